#!/usr/bin/env python3
# Makes python.keras, a model that Keras saved, and python_keras.npz, an input and what the model predicts for it:
# `make_keras.py FOLDER`. The model has two inputs and outputs, a shared layer, a nested model, attention with a mask.
import os
import sys
import zipfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy

L = keras.layers
keras.utils.set_random_seed(5)
words, x = keras.Input((6,), dtype="int32", name="words"), keras.Input((6, 4), name="x")
inner = keras.Sequential([keras.Input((4,)), L.Dense(5, activation="relu"), L.Dropout(0.1), L.Dense(4)], name="inner")
y = L.Embedding(9, 4, mask_zero=True)(words)
y = L.MultiHeadAttention(2, 3)(y, y, use_causal_mask=True)
shared = L.Dense(4, name="shared")
y = L.Add()([shared(y), shared(shared(x))])
y = L.Bidirectional(L.LSTM(2))(L.LayerNormalization()(y))
model = keras.Model([words, x], [inner(y), L.Dense(1, name="score")(y)], name="golden")
model.compile(keras.optimizers.Adam(0.01), ["mse", keras.losses.Huber(delta=0.5)], loss_weights=[1.0, 0.25], metrics=[["mae"], []])
inputs = [numpy.array([[1, 2, 3, 4, 0, 0], [5, 6, 7, 8, 1, 2]], dtype=numpy.int32),
          numpy.linspace(-1, 1, 48, dtype=numpy.float32).reshape(2, 6, 4)]
targets = [numpy.ones((2, 4), numpy.float32), numpy.zeros((2, 1), numpy.float32)]
model.fit(inputs, targets, epochs=3, verbose=0)
model.save(sys.argv[1] + "/stored.keras")
with zipfile.ZipFile(sys.argv[1] + "/stored.keras") as stored, \
        zipfile.ZipFile(sys.argv[1] + "/python.keras", "w", zipfile.ZIP_DEFLATED) as packed:
    for name in stored.namelist():
        packed.writestr(name, stored.read(name))
os.remove(sys.argv[1] + "/stored.keras")
first, score = model.predict(inputs, verbose=0)
numpy.savez(sys.argv[1] + "/python_keras.npz", words=inputs[0], x=inputs[1], first=first, score=score)
