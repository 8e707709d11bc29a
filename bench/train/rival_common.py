# Shared by the other frameworks of the training benchmark: settings, data, initial weights, timing and report.
#
# Each framework is one program, `rival_NAME.py --model M --threads N --steps K --warmup W --weights FILE --setting
# NAME`, which defines a function "train on this batch, return the loss", passes it to `measure` and prints one line
# of JSON. This file imports only the standard library until the cores are chosen, and numpy only when it is needed,
# because the runner (run.py) reads this file too and may have no numpy.
import argparse
import dataclasses
import gzip
import json
import os
import pathlib
import sys
import time

import models

BATCH = 128
N_LOSSES = 10
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.99
LEARNING_RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-7

# Stops glibc from returning every activation to the kernel and faulting it in again.
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
NO_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}
# Pooling written as the maximum of four strided slices: the same layer, with a gradient that compilers optimise
# better.
SLICES = {"pool_slices": True}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to run a framework: its options, the environment it needs, and the core counts that it suits."""
    options: dict
    environment: dict = dataclasses.field(default_factory=dict)
    only_several_cores: bool = False


SETTINGS = {
    "pytorch": {
        "eager": Setting({}),
        "eager_malloc": Setting({}, KEEP_PAGES),
        "channels_last": Setting({"channels_last": True}),
        "channels_last_malloc": Setting({"channels_last": True, "fused_adam": True}, KEEP_PAGES),
        "compile": Setting({"compile": True, "fused_adam": True}, KEEP_PAGES),
        "compile_channels_last": Setting({"compile": True, "channels_last": True, "fused_adam": True}, KEEP_PAGES),
        "compile_pool_slices": Setting(
            {"compile": True, "channels_last": True, "fused_adam": True} | SLICES, KEEP_PAGES),
        "ddp": Setting({"ddp": True, "channels_last": True, "fused_adam": True}, KEEP_PAGES, True),
        "ddp_compile_pool_slices": Setting(
            {"ddp": True, "compile": True, "channels_last": True, "fused_adam": True} | SLICES, KEEP_PAGES, True),
    },
    "tensorflow": {
        "keras": Setting({}),
        "keras_malloc": Setting({}, KEEP_PAGES),
        "keras_no_onednn": Setting({}, KEEP_PAGES | NO_ONEDNN),
        "keras_jit": Setting({"jit": True}, KEEP_PAGES),
        "ops_malloc": Setting({"plain_ops": True}, KEEP_PAGES),
        "ops_no_onednn": Setting({"plain_ops": True}, KEEP_PAGES | NO_ONEDNN),
        "ops_jit": Setting({"plain_ops": True, "jit": True}, KEEP_PAGES),
        "mirrored": Setting({"mirrored": True}, KEEP_PAGES, True),
        "mirrored_no_onednn": Setting({"mirrored": True}, KEEP_PAGES | NO_ONEDNN, True),
    },
    "jax": {
        "jit": Setting({}),
        "jit_malloc": Setting({}, KEEP_PAGES),
        "jit_pool_slices": Setting(SLICES),
        "jit_pool_slices_malloc": Setting(SLICES, KEEP_PAGES),
        "pmap": Setting({"pmap": True}, KEEP_PAGES, True),
        "pmap_pool_slices": Setting({"pmap": True} | SLICES, {}, True),
        "pmap_pool_slices_malloc": Setting({"pmap": True} | SLICES, KEEP_PAGES, True),
    },
}

def strided_quarters(height, width):
    """The four (row, column) slices of a 2x2 pooling window with stride 2; an odd last row or column is left out."""
    return [(slice(i, height // 2 * 2, 2), slice(j, width // 2 * 2, 2)) for i in (0, 1) for j in (0, 1)]


def choose_cores(n):
    """The first n processors of this process on different physical cores (on any, if there are too few)."""
    seen, firsts, others = set(), [], []
    for cpu in sorted(os.sched_getaffinity(0)):
        path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings = path.read_text().strip() if path.exists() else str(cpu)
        (others if siblings in seen else firsts).append(cpu)
        seen.add(siblings)
    return (firsts + others)[:n]


def enter(rival):
    """Reads the command line and pins the process; restarts it if its setting's environment is missing."""
    parser = argparse.ArgumentParser(description=f"trains a model of the bench with {rival} and prints one line of JSON")
    parser.add_argument("--model", choices=models.MODELS, default=models.CNN)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--weights", required=True, help="safetensors file with the first weights")
    parser.add_argument("--setting", choices=SETTINGS[rival], required=True)
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.steps < 1 or arguments.warmup < 1:
        parser.error("--threads, --steps and --warmup must be at least 1")
    setting = SETTINGS[rival][arguments.setting]
    if any(os.environ.get(name) != value for name, value in setting.environment.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | setting.environment)
    os.sched_setaffinity(0, choose_cores(arguments.threads))
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    arguments.rival, arguments.options = rival, setting.options
    return arguments


def read_idx(name):
    """One of the dataset's files as a byte array with the file's shape."""
    import numpy as np

    folder = pathlib.Path(os.environ.get("MUSTER_DATA_DIR", "/usr/share/datasets/fashion-mnist"))
    path = folder / name
    if not path.exists():
        sys.exit(f"{path} does not exist; install Debian's dataset-fashion-mnist or set MUSTER_DATA_DIR to its folder")
    with gzip.open(path) as file:
        n_axes = file.read(4)[3]
        data = np.empty(np.frombuffer(file.read(4 * n_axes), ">i4"), np.uint8)
        if file.readinto(data.reshape(-1)) != data.size:
            sys.exit(f"{path} ends before the {data.size} bytes that its header claims; install the package again")
    return data


class Batches:
    """The training set in file order, whole batches only, again from the start after the last; images stay bytes. How long
    the files took is known, so that the first step can be told without them."""

    def __init__(self, rank=0, ranks=1):
        import numpy  # noqa: F401  (belongs to the program's start, not to its files)

        begin = time.perf_counter()
        self.images = read_idx("train-images-idx3-ubyte.gz")
        self.labels = read_idx("train-labels-idx1-ubyte.gz")
        self.seconds = time.perf_counter() - begin
        self.part = BATCH // ranks
        self.offset = rank * self.part
        self.n_batches = len(self.images) // BATCH

    def __call__(self, step):
        start = (step % self.n_batches) * BATCH + self.offset
        return self.images[start:start + self.part], self.labels[start:start + self.part]


def read_weights(path, model):
    from safetensors.numpy import load_file

    weights = load_file(path)
    found, wanted = {name: array.shape for name, array in weights.items()}, models.shapes(model)
    if found != wanted:
        sys.exit(f"{path} holds {found}; the bench's model {model} needs {wanted}")
    return weights


def first_values(name, shape, generator):
    """Keras's initial weights, drawn by numpy: Glorot uniform kernels, gamma and variances 1, all others 0."""
    import numpy as np

    if not name.endswith("/kernel"):
        return np.full(shape, float(name.endswith(("/gamma", "/moving_variance"))), np.float32)
    area = int(np.prod(shape[:-2]))
    limit = np.sqrt(6 / (area * (shape[-2] + shape[-1])))
    return generator.uniform(-limit, limit, shape).astype(np.float32)


def write_weights(path, model, seed):
    import numpy as np
    from safetensors.numpy import save_file

    generator = np.random.default_rng(seed)
    save_file({name: first_values(name, shape, generator) for name, shape in models.shapes(model).items()}, path)


def seconds_since_start():
    """Seconds since this process started, from the kernel's record of its start (in ticks, usually of 10 ms)."""
    after_name = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def peak_mib():
    """Peak resident memory. Not from getrusage, whose peak includes the parent's memory at the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(arguments, train_on, batches):
    """Runs `train_on(images, labels)`, which returns a loss that float() waits for; returns the report. Reading the files
    does not count as start-up."""
    first = float(train_on(*batches(0)))
    startup_s = seconds_since_start() - batches.seconds
    total = 1 + arguments.warmup + arguments.steps
    losses = []
    for step in range(1, total):
        losses.append(train_on(*batches(step)))
        if step == arguments.warmup:
            float(losses[-1])
            begin = time.perf_counter()
    float(losses[-1])
    seconds = time.perf_counter() - begin
    return {
        "rival": arguments.rival, "setting": arguments.setting, "model": arguments.model,
        "threads": arguments.threads,
        "images_per_s": round(arguments.steps * BATCH / seconds, 1),
        "losses": [first] + [float(loss) for loss in losses[:N_LOSSES - 1]],
        "startup_s": round(startup_s, 3), "rss_mib": round(peak_mib(), 1),
    }


def report(result):
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in models.MODELS:
        sys.exit("usage: rival_common.py WEIGHTS_FILE MODEL SEED   (writes the first weights)")
    write_weights(sys.argv[1], sys.argv[2], int(sys.argv[3]))
