#!/usr/bin/env python3
# Makes the files of test_formats as Python's packages write them (numpy, h5py and TensorFlow needed):
# `make_tensor_files.py FOLDER`. The checkpoint has two shards, and a tensor in slices.
# With `--check FILE…` it opens files that Muster wrote and compares them.
import os
import shutil
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import h5py
import numpy

TENSORS = {
    "conv2d/kernel": numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4) / 4,
    "conv2d/bias": numpy.array([-1.5, 0, 2], dtype=numpy.float64),
    "step": numpy.array(7, dtype=numpy.int64),
    "mask": numpy.array([True, False, True]),
    "empty": numpy.zeros((0, 5), dtype=numpy.int32),
    "bytes": numpy.array([0, 127, 255], dtype=numpy.uint8),
    "half": numpy.array([1, -2], dtype=numpy.float16),
}


def write_h5(path, libver):
    with h5py.File(path, "w", libver=libver) as file:
        for name, value in TENSORS.items():
            file[name] = value


def write_checkpoint(prefix):
    import tensorflow as tf

    kernel = TENSORS["conv2d/kernel"]
    others = {name: value for name, value in TENSORS.items() if name != "conv2d/kernel"}
    with tempfile.TemporaryDirectory() as folder:
        parts = [folder + "/a", folder + "/b"]
        tf.raw_ops.SaveV2(prefix=parts[0], tensor_names=["conv2d/kernel"] * 2, tensors=[kernel[:, :1], kernel[:, 1:]],
                          shape_and_slices=["2 3 4 -:0,1:-", "2 3 4 -:1,2:-"])
        tf.raw_ops.SaveV2(prefix=parts[1], tensor_names=list(others), tensors=list(others.values()),
                          shape_and_slices=[""] * len(others))
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)


def read(path):
    if path.endswith(".npz"):
        return dict(numpy.load(path))
    if path.endswith(".h5"):
        with h5py.File(path) as file:
            return {name: file[name][()] for name in TENSORS}
    import tensorflow as tf

    reader = tf.train.load_checkpoint(path)
    return {name: numpy.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def check(path):
    seen = read(path)
    assert set(seen) == set(TENSORS), set(seen)
    for name, wanted in TENSORS.items():
        assert seen[name].dtype == wanted.dtype and seen[name].shape == wanted.shape, (path, name, seen[name])
        assert (seen[name] == wanted).all(), (path, name, seen[name])
    print(f"{path}: {len(TENSORS)} tensors as wanted")


if sys.argv[1] == "--check":
    for path in sys.argv[2:]:
        check(path)
else:
    numpy.savez_compressed(sys.argv[1] + "/python.npz", **TENSORS)
    write_h5(sys.argv[1] + "/python.weights.h5", None)
    write_h5(sys.argv[1] + "/python_latest.weights.h5", "latest")
    write_checkpoint(sys.argv[1] + "/python.ckpt")
