# The other side of the op benchmark, `rival.py pytorch` or `rival.py tensorflow`: a program that reads commands from
# run.py, like Muster's server.c. `case NAME SETTING SIZE` selects a case of cases.py and how to run it: eager; out
# (PyTorch, into existing memory); function and xla (TensorFlow, traced, and compiled with XLA).
import sys
import time
from itertools import repeat

sys.dont_write_bytecode = True
import cases  # noqa: E402
import numpy as np  # noqa: E402

SAMPLED = 4096
NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19,
           "int16": 5, "int8": 6}
BY_NAME = {case.name: case for case in cases.CASES}


def read_input(dtype, path, dims):
    return np.fromfile(path, np.uint16 if dtype == "bfloat16" else dtype).reshape(dims)


class PyTorch:
    def __init__(self):
        import torch

        torch.set_num_threads(1)
        torch.autograd.grad_mode.set_grad_enabled(False)
        self.mode = torch.inference_mode()
        self.mode.__enter__()
        self.torch = torch
        self.base = {"torch": torch, "F": torch.nn.functional, "grad_of": self.grad_of}

    def tensor(self, dtype, array):
        tensor = self.torch.from_numpy(array)
        return tensor.view(self.torch.bfloat16) if dtype == "bfloat16" else tensor

    def grad_of(self, function, dy, *inputs):
        """The backward pass of a function whose forward pass has run."""
        torch = self.torch
        with torch.inference_mode(False), torch.enable_grad():
            dy, inputs = dy.clone(), [x.clone().requires_grad_() for x in inputs]
            y = function(*inputs)
        return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)

    def call(self, case, setting, size, inputs):
        names = self.base | inputs
        exec(case.setup, names)
        if setting == "out":
            names["o"] = eval(case.torch, names)
            return eval(f"lambda: {case.torch[:-1]}, out=o)", names)
        return eval(f"lambda: {case.torch}", names)

    def arrays(self, case, result):
        for y in result if isinstance(result, (list, tuple)) else [result]:
            y = eval(case.after, {"y": y})
            name = str(y.dtype).removeprefix("torch.")
            y = y.contiguous()
            yield name, (y.view(self.torch.uint16) if name == "bfloat16" else y).numpy()


class TensorFlow:
    def __init__(self):
        import os

        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
        self.tf = tf
        axes = {"axis0": [0], "axis1": [1], "axis01": [0, 1], "axis02": [0, 2], "axis10": [1, 0], "axis0312": [0, 3, 1, 2],
                "axis0213": [0, 2, 1, 3], "one_one": [1, 1], "two_two": [2, 2], "paddings": [[1, 1], [2, 2]], "flat_shape": [-1]}
        self.base = {"tf": tf, "raw": tf.raw_ops, "np": np} | {name: tf.constant(value) for name, value in axes.items()}
        self.base["key"] = tf.constant([7], tf.uint64)
        self.base["counter"] = tf.constant([0, 0], tf.uint64)

    def tensor(self, dtype, array):
        tensor = self.tf.constant(array)
        return self.tf.bitcast(tensor, self.tf.bfloat16) if dtype == "bfloat16" else tensor

    def call(self, case, setting, size, inputs):
        square = cases.square(size)
        names = self.base | inputs | {"square_shape": self.tf.constant(square), "side": square[0],
                                      "square_shape64": self.tf.constant(square, self.tf.int64)}
        exec(case.tf_setup, names)
        if setting == "eager":
            return eval(f"lambda: {case.tf}", names)
        traced = self.tf.function(eval(f"lambda {', '.join(case.inputs)}: {case.tf}", names), jit_compile=setting == "xla",
                                  autograph=False)
        values = [inputs[name] for name in case.inputs]
        return lambda: traced(*values)

    def arrays(self, case, result):
        for y in result if isinstance(result, (list, tuple)) else [result]:
            name = y.dtype.name
            yield name, (self.tf.bitcast(y, self.tf.uint16) if name == "bfloat16" else y).numpy()


class Server:
    def __init__(self, library):
        self.library, self.inputs, self.case, self.run = library, {}, None, None
        self.calls = {}  # of the case at hand, by setting: what is traced and compiled stays so

    def load(self, name, dtype, path, *dims):
        self.inputs[name] = self.library.tensor(dtype, read_input(dtype, path, [int(dim) for dim in dims]))
        return ""

    def drop(self, name):
        self.run, self.case, self.calls = None, None, {}
        del self.inputs[name]
        return ""

    def choose(self, name, setting, size):
        if self.case is not BY_NAME[name]:
            self.case, self.calls = BY_NAME[name], {}
        if setting not in self.calls:
            inputs = {each: self.inputs[each] for each in self.case.inputs}
            self.calls[setting] = self.library.call(self.case, setting, size, inputs)
            self.calls[setting]()
        self.run = self.calls[setting]
        return ""

    def check(self, path):
        with open(path, "wb") as file:
            for dtype, array in self.library.arrays(self.case, self.run()):
                flat = array.reshape(-1)
                step = flat.size // SAMPLED if flat.size > SAMPLED else 1
                sample = np.ascontiguousarray(flat[::step])
                file.write(b"%d %d %d\n" % (NUMBERS[dtype], flat.size, sample.size))
                file.write(sample.tobytes())
        return ""

    def seconds_of(self, calls):
        run = self.run
        start = time.perf_counter()
        for _ in repeat(None, calls):
            run()
        return time.perf_counter() - start

    def time(self, milliseconds):
        """The best of three runs, each about a third of the time, as in server.c."""
        wanted, calls = float(milliseconds) / 3000, 1
        took = self.seconds_of(1)
        while took < wanted:
            calls = int(calls * min(10, 1.2 * wanted / max(took, 1e-7))) + 1
            took = self.seconds_of(calls)
        tries = [took] + [self.seconds_of(calls) for _ in range(2) if took < 3 * wanted]
        return f" {1e9 * min(tries) / calls:.2f}"

    def obey(self, words):
        work = {"load": self.load, "drop": self.drop, "case": self.choose, "check": self.check, "time": self.time}
        try:
            return "ok" + work[words[0]](*words[1:])
        except Exception as failure:  # whatever a library raises is the answer
            return "error " + " ".join(f"{type(failure).__name__}: {failure}".split())[:200]


def main():
    server = Server({"pytorch": PyTorch, "tensorflow": TensorFlow}[sys.argv[1]]())
    print("ready", flush=True)
    for line in sys.stdin:
        print(server.obey(line.split()), flush=True)


main()
