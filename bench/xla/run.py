#!/usr/bin/env python3
"""Muster and a rival on XLA devices of one plugin, in pairs: the same step, measured one after the other by two
processes that stay open. Checks first that both compute the same losses. The last line is JSON with Muster's time over
the rival's, medians of the pairs. The rival is JAX with the same plugin, or PyTorch.
Usage: run.py [--quick] [--build FOLDER] [--python FOLDER] [--kind XLA_CPU|GPU] [--rival jax|torch] [--figures NAME...]"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from sizes import GPTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE_BYTES = 16 << 20
# PyTorch's Adam adds epsilon to another number than Keras's, which Muster and the bench's JAX follow.
TOLERANCES = {"jax": 1e-4, "torch": 2e-3, "bfloat16": 1e-2}
# figure: request, name, times per measurement, pairs, and fewer of both for --quick
FIGURES = {
    "cnn_step": ("step", "cnn", 20, 9, 8, 3), "gpt_step": ("step", "gpt", 8, 9, 3, 3),
    "mirrored_2": ("step", "cnn_2", 20, 9, 8, 3), "overhead": ("empty", "-", 5000, 11, 2000, 5),
    "transfer": ("transfer", "-", 40, 9, 15, 5), "compile_cnn": ("compile", "cnn", 1, 5, 1, 1),
    "compile_gpt": ("compile", "gpt", 1, 5, 1, 1),
    "gpt2_step": ("step", "gpt2", 20, 9, 5, 3), "gpt2_small_step": ("step", "gpt2_small", 20, 5, 5, 3),
}
ALWAYS = [name for name in FIGURES if not name.startswith("gpt2")]


class Side:
    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | environment)

    def ask(self, what, name, times):
        self.process.stdin.write(f"{what} {name} {times}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"run.py: {self.process.args[0]} ended at '{what} {name}'")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def verify(ours, theirs, figures, rival):
    for name in sorted({FIGURES[figure][1] for figure in figures} - {"-"}):
        mine, other = (side.ask("check", name, 1)["losses"] for side in (ours, theirs))
        apart = max(abs(a - b) for a, b in zip(mine, other))
        print(f"{name}: losses {mine[0]:.5f} to {mine[-1]:.5f}, at most {apart:.1e} apart")
        narrow = name in GPTS and GPTS[name].dtype == "bfloat16"
        if not apart < TOLERANCES["bfloat16" if narrow else rival]:
            sys.exit(f"run.py: {name} computes other losses: {mine} and {other}")


def compare(ours, theirs, figure, quick):
    what, name, times, pairs, few_times, few_pairs = FIGURES[figure]
    times, pairs = (few_times, few_pairs) if quick else (times, pairs)
    taken = []
    for i in range(pairs):  # each goes first in turn
        order = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        both = {side: side.ask(what, name, times) for side in order}
        taken.append((both[ours], both[theirs]))
    medians = {key: tuple(statistics.median(pair[i][key] for pair in taken) for i in range(2))
               for key in taken[0][0]}
    ratios = {key: statistics.median(pair[0][key] / max(pair[1][key], 1e-9) for pair in taken) for key in taken[0][0]}
    report(figure, medians, ratios)
    return ratios["wall"], medians["wall"]


def report(figure, medians, ratios):
    def text(seconds):
        return f"{seconds * 1e6:9.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:9.2f} ms"
    line = f"{figure:12} wall {text(medians['wall'][0])} {text(medians['wall'][1])}  x {ratios['wall']:.3f}"
    if "processor" in ratios:
        line += f"   processor {text(medians['processor'][0])} {text(medians['processor'][1])}  x {ratios['processor']:.3f}"
    if figure.startswith("gpt2"):
        size = GPTS[FIGURES[figure][1]]
        line += "   " + ", ".join(f"{size.samples * size.length / s:.0f} tokens/s" for s in medians["wall"])
    if figure == "transfer":
        line += "   " + ", ".join(f"{2 * LARGE_BYTES / seconds / 1e9:.1f} GB/s" for seconds in medians["wall"])
    print(line, flush=True)


def cpu_plugin(build):
    plugin = build / "pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"
    if not plugin.exists():
        subprocess.run([ROOT / "tests/pjrt/fetch.sh", build / "pjrt"], check=True)
    return {"PJRT_NAMES_AND_LIBRARY_PATHS": f"xla_cpu:{plugin}", "JAX_PLATFORMS": "xla_cpu"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements: about a minute")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--python", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("MUSTER_PYTHON_ENV", ROOT / "build/python")))
    parser.add_argument("--figures", nargs="*", default=ALWAYS, choices=list(FIGURES))
    parser.add_argument("--kind", default="XLA_CPU", choices=["XLA_CPU", "GPU"], help="of Muster's devices")
    parser.add_argument("--rival", default="jax", choices=["jax", "torch"])
    options = parser.parse_args()
    # Both processes stay open, and Muster's plugin takes three quarters of a GPU's memory when it starts.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if options.kind == "XLA_CPU":
        environment |= cpu_plugin(options.build)
    place = ["cpu" if options.kind == "XLA_CPU" else "cuda"] if options.rival == "torch" else []
    ours = Side([options.build / "bench/xla/bench_xla", options.kind], environment)
    theirs = Side([options.python / "bin/python", ROOT / f"bench/xla/rival_{options.rival}.py", *place], environment)
    verify(ours, theirs, options.figures, options.rival)
    print(f"{'':12} {'Muster':>16} {options.rival:>12}")
    results = {figure: compare(ours, theirs, figure, options.quick) for figure in options.figures}
    ours.close()
    theirs.close()
    ratios = {f"{figure}_ratio": round(ratio, 3) for figure, (ratio, _) in results.items()
              if not figure.startswith("compile")}
    compiled = [times for figure, (_, times) in results.items() if figure.startswith("compile")]
    if compiled:
        ratios["compile_ratio"] = round(sum(c[0] for c in compiled) / sum(c[1] for c in compiled), 3)
    print(json.dumps({"bench": "xla" if options.rival == "jax" else f"xla_{options.rival}"} | ratios))


main()
