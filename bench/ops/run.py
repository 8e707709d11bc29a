# Runs the op benchmark: `python bench/ops/run.py [--ops add,exp] [--sizes 1k,64k] [--rounds N]`, with the Python that
# scripts/python_env creates (it needs numpy).
#
# Starts Muster's server and the other frameworks, all on one core. For each case and size it compares the results,
# then times the programs in turn for several rounds, and for more rounds if the rounds disagree. After each size it
# repeats the rows in which Muster is slower by more than a tenth, and as many of those in which it is fastest; these
# rounds count like the first, because other load on the machine comes and goes. A time is the median of the rounds;
# another framework's time is that of its best setting; a ratio is the best other time divided by Muster's.
# Memory-bound ops are also compared with loops that move as many bytes with the same mix of reads and writes, timed
# in turn with the op; the report also shows the fraction of the best bandwidth of the run. Prints a table, the
# README's rows and one line of JSON.
import argparse
import json
import math
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import cases  # noqa: E402
import numpy as np  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEADLINE_S = 300
MOST_ROUNDS = 9
SLOWER = 0.9  # rows whose ratio is less are timed once more, and as many from the other end
# The ways of moving memory that the server measures, in its order: bytes read for each byte written.
WAYS = {"read": math.inf, "4:1": 4, "2:1": 2, "1:1": 1, "1:2": 0.5, "1:4": 0.25, "fill": 0}
NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19}
DTYPES = {1: "f4", 2: "f8", 3: "i4", 4: "u1", 5: "i2", 6: "i1", 9: "i8", 10: "u1", 14: "bf", 19: "f2"}
# The other frameworks run with helpful settings: glibc keeps freed memory and requests huge pages.
RIVAL_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296",
                     "MALLOC_TOP_PAD_": "67108864", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_NUM_THREADS": "1",
                     "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Failure(Exception):
    """A failure reported by a program; the text gives the reason."""


class Program:
    """A program that answers every line with one line."""

    def __init__(self, name, command, environment, core):
        self.name = name
        self.child = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, env=os.environ | environment, cwd=HERE,
                                      preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.unread = b""

    def read_line(self):
        until = time.monotonic() + DEADLINE_S
        while b"\n" not in self.unread:
            if not select.select([self.child.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise SystemExit(f"{self.name} gave no answer for {DEADLINE_S} s")
            some = os.read(self.child.stdout.fileno(), 65536)
            if not some:
                raise SystemExit(f"{self.name} ended with {self.child.wait()}")
            self.unread += some
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode(errors="replace")

    def ask(self, *words):
        self.child.stdin.write((" ".join(str(word) for word in words) + "\n").encode())
        self.child.stdin.flush()
        answer = self.read_line()
        if not answer.startswith("ok"):
            raise Failure(f"{self.name}: {answer.removeprefix('error ')}")
        return [float(word) for word in answer.split()[1:]]

    def end(self):
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()


# ---- Inputs ---------------------------------------------------------------------------------------

def make_input(spec, size, generator):
    shape = spec.shape(size)
    high = cases.SIDES[size] if spec.high == "d" else spec.high
    if spec.dtype.startswith(("float", "bfloat")):
        values = generator.random(shape, np.float32) * np.float32(high - spec.low) + np.float32(spec.low)
        if spec.dtype == "bfloat16":
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(spec.dtype)
    values = generator.integers(spec.low, high, shape, np.int64)
    if spec.dtype.startswith("int") and spec.low > 0:  # divisors of both signs
        values = np.where(generator.random(shape) < 0.3, -values, values)
    return values.astype(spec.dtype)


class Inputs:
    """The inputs of one size: written to files once, loaded by a program when a case first needs them, deleted at the end."""

    def __init__(self, folder, size):
        self.folder, self.size, self.bytes, self.loaded = folder, size, {}, set()

    def give(self, program, name):
        if (program.name, name) in self.loaded:
            return
        spec, path = cases.INPUTS[name], self.folder / name
        if name not in self.bytes:
            seed = [ord(letter) for letter in name]
            array = make_input(spec, self.size, np.random.default_rng(seed))
            if spec.made == "sorted":
                array.sort()
            elif spec.made == "diagonal":
                np.einsum("...ii->...i", array)[...] = array.shape[-1]
            array.tofile(path)
            self.bytes[name] = array.nbytes
        dtype = NUMBERS[spec.dtype] if program.name == "muster" else spec.dtype
        program.ask("load", name, dtype, path, *spec.shape(self.size))
        self.loaded.add((program.name, name))

    def forget(self, programs, names):
        for name in names:
            for program in programs:
                if (program.name, name) in self.loaded:
                    program.ask("drop", name)
                    self.loaded.remove((program.name, name))
            if self.bytes.pop(name, None) is not None:
                (self.folder / name).unlink()


# ---- Results --------------------------------------------------------------------------------------

def read_sample(path):
    data, outputs = path.read_bytes(), []
    while data:
        head, _, data = data.partition(b"\n")
        number, total, n = (int(word) for word in head.split())
        dtype = np.dtype("u2" if DTYPES[number] == "bf" else DTYPES[number])
        values = np.frombuffer(data[:n * dtype.itemsize], dtype)
        data = data[n * dtype.itemsize:]
        if DTYPES[number] == "bf":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        outputs.append((total, values.astype(np.float64), dtype.itemsize))
    return outputs


def difference(ours, theirs):
    """The largest difference, relative to the magnitude of the values; infinite if the shapes differ."""
    worst = 0.0
    for (n, x, _), (m, y, _) in zip(ours, theirs):
        if n != m:
            return math.inf
        both = np.isfinite(x) & np.isfinite(y)
        if not np.array_equal(np.isnan(x), np.isnan(y)) or not np.array_equal(x[~both & ~np.isnan(x)], y[~both & ~np.isnan(y)]):
            return math.inf
        if both.any():
            scale = max(1.0, float(np.median(np.abs(y[both]))))
            worst = max(worst, float(np.max(np.abs(x[both] - y[both]) / np.maximum(np.abs(y[both]), scale))))
    return worst


def settings_of(rival, case):
    if rival == "pytorch":
        return ["eager"] * bool(case.torch) + ["out"] * case.out
    return ["eager", "function", "xla"] if case.tf else []


def both_ends(rows):
    """The rows in which Muster is slower by more than a tenth, and as many of those in which it is fastest."""
    by_ratio = sorted((row for row in rows if row["best"]), key=lambda row: row["best"] / row["ours"])
    n = sum(row["best"] < SLOWER * row["ours"] for row in by_ratio)
    return by_ratio[:n] + by_ratio[max(n, len(by_ratio) - n):]


def unsettled(times):
    """Whether the times are disturbed: more than a third differ from the median by more than a tenth."""
    middle_time = statistics.median(times)
    return 3 * sum(abs(time - middle_time) > 0.1 * middle_time for time in times) > len(times)


def way_of(read, written):
    """The way with the nearest ratio of reads to writes; a side below a twelfth of the other is ignored."""
    if read * 12 < written or written * 12 < read:
        return "fill" if read < written else "read"
    return min(list(WAYS)[1:-1], key=lambda way: abs(math.log(read / written / WAYS[way])))


def operand_of(read, written):
    """The operand size, rounded to a power of two, at which the server's loops move as many bytes as the row; at most
    128 MB."""
    larger = max(read, written)
    moved = larger / 2 if way_of(read, written) in ("2:1", "1:2") else larger
    return 1 << min(max(10, round(math.log2(max(moved, 1)))), 27)


class Bench:
    def __init__(self, arguments, programs, folder):
        self.arguments, self.programs, self.folder = arguments, programs, folder
        self.ours, self.rivals = programs[0], programs[1:]
        self.notes, self.rows = [], []

    def choose(self, program, case, setting, size):
        if program is self.ours:
            program.ask("case", case.call, *case.inputs)
        else:
            program.ask("case", case.name, setting, size)

    def candidates(self, inputs, case, size):
        """The programs and settings that run and agree with Muster; Muster first."""
        wanted = [(self.ours, "")] + [(rival, setting) for rival in self.rivals for setting in settings_of(rival.name, case)]
        fit, reference = [], None
        for program, setting in wanted:
            try:
                for name in case.inputs:
                    inputs.give(program, name)
                self.choose(program, case, setting, size)
                program.ask("check", self.folder / "sample")
            except Failure as failure:
                self.notes.append(f"{case.name} {size} {setting}: {failure}")
                if program is self.ours:
                    return [], None
                continue
            sample = read_sample(self.folder / "sample")
            if program is self.ours:
                reference = sample
            elif case.compared and difference(reference, sample) > case.tolerance:
                self.notes.append(f"{case.name} {size}: {program.name} {setting} differs by {difference(reference, sample):.1e}")
                continue
            fit.append((program, setting))
        return fit, reference

    def time(self, fit, case, size, times, way, operand):
        """The medians, and the rivals' best program and setting; more rounds where those that decide are unsettled. What
        was measured joins `times`, the bandwidth too where the case is bound by it."""
        best = None
        for done in range(max(MOST_ROUNDS, self.arguments.rounds)):
            if done >= self.arguments.rounds and not any(unsettled(times[pair]) for pair in (fit[0], best) if pair):
                break
            for program, setting in fit:
                self.choose(program, case, setting, size)
                times.setdefault((program, setting), []).extend(program.ask("time", self.arguments.milliseconds))
            if case.kind == "memory":
                self.limit(way, operand, times)
            medians = {pair: statistics.median(values) for pair, values in times.items()}
            best = min((pair for pair in fit if pair[0] is not self.ours), key=medians.get, default=None)
        return medians, best

    def measure(self, inputs, case, size, times):
        """A row, or None where the case doesn't run."""
        fit, sample = self.candidates(inputs, case, size)
        if not fit:
            return None
        read = 0 if case.unread else sum(inputs.bytes[name] for name in case.inputs)
        written = sum(n * width for n, _, width in sample)
        way, operand = way_of(read, written), operand_of(read, written)
        medians, best = self.time(fit, case, size, times, way, operand)
        return {"case": case, "size": size, "ours": medians[fit[0]], "bytes": read + written, "times": times,
                "way": way, "operand": operand, "limit": medians.get("limit"),
                "best": medians[best] if best else None, "rival": f"{best[0].name} {best[1]}" if best else ""}

    def measure_all(self, inputs, size, wanted):
        """A row for each case that runs; replaces an existing row by one with more rounds."""
        progress, known = sys.stderr.isatty(), {row["case"]: row for row in self.rows if row["size"] == size}
        for i, case in enumerate(wanted):
            if progress:
                sys.stderr.write(f"\r\x1b[K{size} {case.name}")
            row = self.measure(inputs, case, size, known[case]["times"] if case in known else {})
            if row and case in known:
                known[case].update(row)
            elif row:
                self.rows.append(row)
            later = {name for other in wanted[i + 1:] for name in other.inputs}
            inputs.forget(self.programs, set(case.inputs) - later)

    def limit(self, way, operand, times):
        """Adds a bandwidth to `times`, and keeps the best of the run."""
        bandwidth = self.ours.ask("limit", list(WAYS).index(way), operand, self.arguments.milliseconds)[0]
        times.setdefault("limit", []).append(bandwidth)
        self.limits[operand, way] = max(self.limits.get((operand, way), 0), bandwidth)

    def run(self):
        self.limits, self.peak = {}, self.ours.ask("peak")[0]
        for size in self.arguments.sizes:
            inputs = Inputs(self.folder, size)
            wanted = [case for case in self.arguments.cases
                      if list(cases.SIZES).index(size) <= list(cases.SIZES).index(case.largest)]
            self.measure_all(inputs, size, wanted)
            again = both_ends([row for row in self.rows if row["size"] == size])
            self.measure_all(inputs, size, [row["case"] for row in again])
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


# ---- The report -----------------------------------------------------------------------------------

def middle(values):
    return round(statistics.median(values), 3) if values else None


def print_rows(rows, sizes):
    """The README's table."""
    print("\n| operands of | ops | median | least | largest |\n|---|---|---|---|---|")
    for size in sizes:
        ratios = [row["ratio"] for row in rows if row["size"] == size]
        if ratios:
            words = size.replace("k", " KB").replace("m", " MB")
            print(f"| {words} | {len(ratios)} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    print()


def report(bench):
    print(f"\n{'op':<24}{'size':>5}{'ours us':>12}{'rival us':>12}{'ratio':>8}  {'of limit':>8}{'of best':>8}  best rival")
    for row in bench.rows:
        if row["limit"]:
            row["fraction"] = row["bytes"] / row["limit"] / (row["ours"] * 1e-9)
            row["of_best"] = row["bytes"] / bench.limits[row["operand"], row["way"]] / (row["ours"] * 1e-9)
        row["ratio"] = row["best"] / row["ours"] if row["best"] else None
        bound = f"{row['fraction']:8.2f}{row['of_best']:8.2f}" if row["limit"] else " " * 16
        rival = f"{row['best'] / 1e3:12.2f}{row['ratio']:8.2f}" if row["best"] else f"{'none':>12}{'':8}"
        print(f"{row['case'].name:<24}{row['size']:>5}{row['ours'] / 1e3:12.2f}{rival}  {bound}  {row['rival']}")
    for operand in sorted({operand for operand, _ in bench.limits}):
        print(f"at best, {operand >> 10} KB: " + ", ".join(f"{way} {bench.limits[operand, way] / 1e9:.1f} GB/s"
                                                           for way in WAYS if (operand, way) in bench.limits))
    print(f"matrix product of oneDNN: {bench.peak / 1e9:.0f} GFLOP/s")
    for note in dict.fromkeys(bench.notes):
        print("note:", note)
    rows = [row for row in bench.rows if row["ratio"]]
    print_rows(rows, bench.arguments.sizes)
    large = [row for row in bench.rows if row["size"] in ("4m", "64m") and row["limit"]]
    worst = min(rows, key=lambda row: row["ratio"]) if rows else None
    print(json.dumps({
        "bench": "ops", "small_median": middle([row["ratio"] for row in rows if row["size"] in ("1k", "64k")]),
        "large_bandwidth_fraction": middle([row["fraction"] for row in large]),
        "large_fraction_of_best": middle([row["of_best"] for row in large]),
        "gemm_conv_ratio": middle([row["ratio"] for row in rows if row["case"].kind == "product" and row["size"] in ("4m", "64m")]),
        "worst_ratio": round(worst["ratio"], 3) if worst else None,
        "worst": f"{worst['case'].name} {worst['size']}" if worst else None,
        "below_0.8": sum(row["ratio"] < 0.8 for row in rows), "measured": len(rows)}))


def parse_arguments():
    parser = argparse.ArgumentParser(description="times Muster's ops against TensorFlow and PyTorch on one core")
    parser.add_argument("--ops", help="names or parts before a *, with commas (default: all)")
    parser.add_argument("--sizes", default="1k,64k,4m,64m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--milliseconds", type=float, default=6, help="of each round (default 6)")
    parser.add_argument("--quick", action="store_true", help="one short round of few ops at 1 KB: shows that all works")
    parser.add_argument("--rivals", default="pytorch,tensorflow")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--muster", type=lambda p: pathlib.Path(p).resolve(),
                        default=ROOT / "build/release/bench/ops/bench_ops")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.milliseconds, arguments.sizes = 1, 1, "1k"
        arguments.ops = arguments.ops or "add,exp,reduce_sum,matmul,conv2d,softmax"
    arguments.sizes = arguments.sizes.split(",")
    if not set(arguments.sizes) <= set(cases.SIZES):
        parser.error(f"--sizes must be some of {','.join(cases.SIZES)}")
    words = arguments.ops.split(",") if arguments.ops else ["*"]
    arguments.cases = [case for case in cases.CASES
                       if any(case.name == word or word.endswith("*") and case.name.startswith(word[:-1]) for word in words)]
    if not arguments.cases:
        parser.error("--ops names none of the cases (cases_*.py)")
    if not arguments.muster.exists():
        sys.exit(f"{arguments.muster} does not exist; build it first (make bench-ops)")
    return arguments


def main():
    arguments = parse_arguments()
    rivals = [name for name in arguments.rivals.split(",") if name]
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        programs = [Program("muster", [arguments.muster], {}, arguments.core)]
        programs += [Program(name, [sys.executable, HERE / "rival.py", name], RIVAL_ENVIRONMENT, arguments.core) for name in rivals]
        for program in programs[1:]:
            program.read_line()
        bench = Bench(arguments, programs, pathlib.Path(folder))
        try:
            bench.run()
        finally:  # a long run that is stopped, or whose rival ends, still tells what it has measured
            report(bench)
        for program in programs:
            program.end()


main()
