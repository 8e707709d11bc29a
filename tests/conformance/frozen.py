# Frozen layers, in Keras and in Muster: layers in models in models, some thawed again inside of a frozen model. What is
# trained, the history and the weights after fit, with optimizers that keep averages, sums and norms of all that they
# train; and which layers are frozen after a model has moved through files and clones.
#
# Part of fitting.py.
import tempfile

import keras
import numpy as np

from defaults import FLOATX, TOLERANCE, off, set_floatx

MU_VERBOSE_SILENT = 1
ROWS, STEPS, FEATURES = 11, 3, 4


def build():
    layers = keras.layers
    start = keras.Input((5,))
    side = keras.Model(start, layers.Dense(5, activation="tanh", name="s1")(start), name="side")
    inner = keras.Sequential([keras.Input((5,)), layers.Dense(5, use_bias=False, name="i1", kernel_regularizer="l2"),
                              layers.BatchNormalization(name="i2"), layers.Dense(4, name="i3", kernel_regularizer="l1")], name="inner")
    x = keras.Input((STEPS, FEATURES))
    y = layers.TimeDistributed(layers.Dense(5, name="t1"), name="steps")(x)
    y = layers.Bidirectional(layers.SimpleRNN(5, name="rnn"), merge_mode="sum", name="both")(y)
    y = layers.BatchNormalization(name="norm")(layers.Dense(5, use_bias=False, name="a")(y))
    model = keras.Model(x, layers.Dense(2, name="last")(inner(side(y))))
    generator = np.random.default_rng(3)
    for variable in model.weights:
        variable.assign(generator.uniform(0.125, 0.5, tuple(variable.shape)))
    return model


# What is done in turn: "-inner" freezes the layer, "+inner/i1" thaws that of the model inside; "" is the whole model.
CHANGES = {
    "a layer": "-a", "a normalization": "-norm", "a model": "-inner", "a layer of a model": "-inner/i3",
    "a normalization of a model": "-inner/i2", "a model, one of its layers thawed": "-inner +inner/i1",
    "a functional model, its layer thawed": "-side +side/s1", "a wrapper": "-both -steps", "what a wrapper has": "-steps/t1",
    "a wrapper, what it has thawed": "-steps +steps/t1", "all": "-", "all, one layer thawed": "- +last",
    "all but one, layer by layer": "-steps -both -a -norm -side -inner",
}
BETAS = {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 2**-20}  # which float32 has, to which Keras rounds them
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.0625, "momentum": 0.5}, "lamb": {"learning_rate": 0.0625, **BETAS},
    "adamw": {"learning_rate": 0.0625, "weight_decay": 0.125, "gradient_accumulation_steps": 3, "global_clipnorm": 0.25, **BETAS},
    "adam": {"learning_rate": 0.0625, "use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2, **BETAS},
}
# What "steps" has is no layer of the model, so only a file says that it is frozen.
FITS = [("a normalization", "adam"), ("a layer of a model", "lamb"), ("a normalization of a model", "adamw"),
        ("a model, one of its layers thawed", "adam"), ("a functional model, its layer thawed", "adamw"),
        ("a wrapper", "sgd"), ("all, one layer thawed", "lamb")]
CLASSES = {"sgd": "SGD", "lamb": "Lamb", "adamw": "AdamW", "adam": "Adam"}


def freeze_there(model, words):
    for word in words.split():
        layer = model
        for name in filter(None, word[1:].split("/")):
            layer = layer.layer if isinstance(layer, keras.layers.Wrapper) else layer.get_layer(name)
        layer.trainable = word[0] == "+"


def freeze_here(mu, model, words):
    for word in words.split():
        layer = model
        for name in filter(None, word[1:].split("/")):
            layer = mu.mu_model_layer(layer, name)
        mu.mu_layer_set_trainable(layer, word[0] == "+")


def short(path):
    """The end of a path, which does not tell what a model was part of before it was saved."""
    return "/".join(path.split("/")[-3 if "rnn" in path else -2:])


def trained_there(model):
    return sorted(short(variable.path) for variable in model.trainable_variables)


def trained_here(mu, model):
    variables = mu.mu_trainable_variables(model)
    paths = [mu.mu_variable_name(mu.mu_value_variable(mu.mu_value_at(variables, i))) for i in range(mu.mu_value_count(variables))]
    return sorted(short(path.decode()) for path in paths)


def load(mu, model, folder):
    model.save(folder + "/theirs.keras")
    return mu.mu_load_model(path=folder + "/theirs.keras")


def compare_frozen(report, mu, floatx, row):
    """fit with the loss, the penalties and the statistics of what is frozen and what is not."""
    name, optimizer = row
    set_floatx(mu, floatx)
    generator, dtype = np.random.default_rng(4), FLOATX[floatx]
    x = generator.normal(size=(ROWS, STEPS, FEATURES)).astype(dtype)
    y = generator.normal(size=(ROWS, 2)).astype(dtype)
    theirs, options = build(), OPTIMIZERS[optimizer]
    with mu.pool(), tempfile.TemporaryDirectory() as folder:
        ours = load(mu, theirs, folder)
        freeze_there(theirs, CHANGES[name])
        freeze_here(mu, ours, CHANGES[name])
        theirs.compile(getattr(keras.optimizers, CLASSES[optimizer])(**options), "mse")
        mu.mu_compile(model=ours, optimizer=getattr(mu, f"mu_{optimizer}")(**options), loss="mse")
        wanted = theirs.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
        history = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.tensor(y), batch_size=4, epochs=3, no_shuffle=True,
                            verbose=MU_VERBOSE_SILENT)
        same = trained_here(mu, ours) == trained_there(theirs)
        seen = {short(path): value for path, value in mu.read_weights(ours).items()}
        far = max(off([mu.mu_history_at(history, "loss", i) for i in range(3)], wanted),
                  *(off(seen[short(variable.path)], variable.numpy()) for variable in theirs.weights))
    report.check(f"frozen: {name}, {optimizer}, {floatx}", f"losses and weights within {far:.1e}", same and far <= TOLERANCE[floatx])


def compare_frozen_files(report, mu, floatx, name):
    """Keras's file here, ours there, and clones. Keras's own clone of a frozen functional model is not frozen."""
    set_floatx(mu, floatx)
    with mu.pool(), tempfile.TemporaryDirectory() as folder:
        theirs = build()
        freeze_there(theirs, CHANGES[name])
        wanted = trained_there(theirs)
        ours = load(mu, theirs, folder)
        again = keras.saving.load_model(folder + "/theirs.keras")
        mu.mu_save_model(ours, folder + "/ours.keras")
        clone = mu.mu_clone_model(ours)
        mu.mu_model_build(clone, 2, [STEPS, FEATURES])
        seen = {"their file": trained_there(again), "read here": trained_here(mu, ours), "cloned here": trained_here(mu, clone),
                "our file": trained_there(keras.saving.load_model(folder + "/ours.keras"))}
    failures = [f"{way}: {len(paths)} of {len(wanted)} are trained" for way, paths in seen.items() if paths != wanted]
    report.row(f"frozen in files: {name}", "ways", len(seen) - len(failures), failures)
