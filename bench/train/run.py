# Runs the training benchmark: `python3 bench/train/run.py [--quick] [--rounds N] [--models cnn,vgg]
# [--without-muster]`.
#
# Measures the README's CNN on one core and on two, and the other models of models.py on one core. For each model it
# tries every setting of every other framework for a few steps, repeats the best settings, and keeps the fastest
# setting of each framework per number of cores; then it runs these and Muster in turn for several rounds. A ratio is
# the median of the ratios within each round, because a machine's speed drifts; no ratio is printed unless the first
# ten losses of all programs agree. Prints the README's tables and a line of JSON at the end. The start-up of the
# other frameworks excludes reading files; Muster's includes it, because it reads them as it needs them. This file
# needs only the standard library; the other frameworks run in the environment that scripts/python_env creates. Every
# program is a command that prints a line of JSON (see rival_common.py).
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(1, str(ROOT / "bench"))
import models  # noqa: E402
import picture  # noqa: E402
import rival_common as common  # noqa: E402

TOLERANCE = 1e-4
# Tolerance after the first step. Adam divides a gradient by its own magnitude, so where gradients are small, as
# before a normalisation, rounding decides: PyTorch's two memory formats differ by 7e-3 after ten steps. In deeper networks
# it decides too: the rivals' own settings of "vgg" differ by up to 4e-3. The first loss must agree within TOLERANCE.
LATER_TOLERANCE = {"batch_norm": 2e-2, "vgg": 1e-2}
DEADLINE_S = 600
PROGRAMS = {"pytorch": "rival_torch.py", "tensorflow": "rival_tensorflow.py", "jax": "rival_jax.py"}
OURS = "muster"

class Failure(Exception):
    """A run without a result; the text gives the reason."""


def parse_arguments():
    parser = argparse.ArgumentParser(description="compares Muster's training with TensorFlow, PyTorch and JAX")
    parser.add_argument("--models", default=",".join(models.MODELS), help="which models (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the measurement (default 5)")
    parser.add_argument("--steps", type=int, default=200, help="timed steps of a run (default 200)")
    parser.add_argument("--quick", action="store_true", help="one round of few steps, one setting of each rival: shows that all works")
    parser.add_argument("--rivals", default=",".join(PROGRAMS), help="which rivals (default %(default)s)")
    parser.add_argument("--without-muster", action="store_true", help="rivals only")
    parser.add_argument("--picture", type=pathlib.Path, help="write the speeds as an SVG file, too")
    parser.add_argument("--muster", type=pathlib.Path, default=ROOT / "build/release/bench/train/bench_train")
    parser.add_argument("--python", type=pathlib.Path, help="the rivals' python (default: in build/python)")
    arguments = parser.parse_args()
    folder = pathlib.Path(os.environ.get("MUSTER_PYTHON_ENV", ROOT / "build/python"))
    arguments.python = arguments.python or folder / "bin/python"
    arguments.warmup, arguments.try_steps = 20, 40
    if arguments.quick:
        arguments.rounds, arguments.steps, arguments.warmup, arguments.try_steps = 1, 20, 10, 10
    arguments.rivals, arguments.models = arguments.rivals.split(","), arguments.models.split(",")
    if arguments.rounds < 1 or arguments.steps < 1:
        parser.error("--rounds and --steps must be at least 1")
    if not set(arguments.rivals) <= set(PROGRAMS):
        parser.error(f"--rivals must be some of {','.join(PROGRAMS)}, with commas between them")
    if not set(arguments.models) <= set(models.MODELS):
        parser.error(f"--models must be some of {','.join(models.MODELS)}, with commas between them")
    if not arguments.python.exists():
        sys.exit(f"{arguments.python} does not exist; run scripts/python_env first")
    if not arguments.without_muster and not arguments.muster.exists():
        sys.exit(f"{arguments.muster} does not exist; build it first (make bench-train), or use --without-muster")
    return arguments


class Progress:
    """On a terminal rewrites one line; elsewhere prints a line per step."""

    def __init__(self):
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text):
        sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
        sys.stderr.flush()

    def clear(self):
        if self.live:
            self.show("")


def last_json(text, program):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    try:
        return json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise Failure(f"{program} printed no line of JSON") from None


def run(name, command, n_cores, environment=None):
    """Runs one program, called `name` in messages, on n cores; returns what its last line of JSON says."""
    cores = common.choose_cores(n_cores)
    child = subprocess.Popen([str(word) for word in command], env=os.environ | (environment or {}), cwd=HERE, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, cores))
    try:
        out, err = child.communicate(timeout=DEADLINE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
        os.killpg(child.pid, 9)
        child.communicate()
        if isinstance(stop, KeyboardInterrupt):
            raise
        raise Failure(f"{name} was not done after {DEADLINE_S} s") from None
    if child.returncode != 0:
        said = (err.strip().splitlines() or ["nothing"])[-1]
        raise Failure(f"{name} ended with {child.returncode} and said: {said}")
    return last_json(out, name)


class Bench:
    """One model's programs."""

    def __init__(self, arguments, model, weights):
        self.arguments, self.model, self.weights, self.progress = arguments, model, weights, Progress()
        self.inductor = arguments.python.parent.parent / "inductor"

    def train(self, rival, setting, n_cores, steps):
        words = ["--model", self.model, "--threads", n_cores, "--steps", steps, "--warmup", self.arguments.warmup, "--weights", self.weights]
        if rival == OURS:
            return run(OURS, [self.arguments.muster, *words], n_cores)
        command = [self.arguments.python, HERE / PROGRAMS[rival], *words, "--setting", setting]
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(self.inductor), "PYTHONDONTWRITEBYTECODE": "1",
                       "TF_CPP_MIN_LOG_LEVEL": "3"} | common.SETTINGS[rival][setting].environment
        return run(f"{rival} {setting}", command, n_cores, environment)

    def peak(self):
        return run(f"{OURS} --peak", [self.arguments.muster, "--peak"], 1)["peak_gflops_1core"]


def reference_losses(results):
    """The median of all programs' losses, step by step."""
    return [statistics.median(step) for step in zip(*(result["losses"] for result in results))]


def are_complete(losses):
    return len(losses) >= common.N_LOSSES and all(math.isfinite(loss) for loss in losses)


def tolerances(model):
    """How far losses may differ, step by step."""
    return [TOLERANCE] + [LATER_TOLERANCE.get(model, TOLERANCE)] * (common.N_LOSSES - 1)


def differences(losses, reference):
    if not are_complete(losses):
        return [math.inf] * common.N_LOSSES
    return [abs(loss - middle) / abs(middle) for loss, middle in zip(losses, reference)]


def try_settings(bench, core_counts):
    """Returns the results of every setting that ran, and the failure messages of the others."""
    todo = [(rival, name, n) for n in core_counts for rival in bench.arguments.rivals
            for name, setting in list(common.SETTINGS[rival].items())[:1 if bench.arguments.quick else None]
            if n > 1 or not setting.only_several_cores]
    results, failures = [], {}
    for i, (rival, name, n) in enumerate(todo):
        bench.progress.show(f"{bench.model}: trying settings {i + 1}/{len(todo)}: {rival} {name} on {cores(n)}")
        try:
            results.append(bench.train(rival, name, n, bench.arguments.try_steps))
        except Failure as failure:
            failures[rival, name, n] = str(failure)
    if not results:
        sys.exit(f"no setting of any rival ran; the first one: {next(iter(failures.values()))}")
    bench.progress.clear()
    return results, failures


def try_again(bench, results, core_counts):
    """Repeats the fastest three settings per framework and core count, so that one disturbed run does not decide; keeps the
    better result."""
    for rival in bench.arguments.rivals:
        for n in core_counts:
            same = [r for r in results if r["rival"] == rival and r["threads"] == n]
            for r in sorted(same, key=lambda r: -r["images_per_s"])[:3]:
                bench.progress.show(f"trying once more: {rival} {r['setting']} on {cores(n)}")
                try:
                    again = bench.train(rival, r["setting"], n, bench.arguments.try_steps)
                except Failure:
                    continue
                for key, better in (("images_per_s", max), ("startup_s", min), ("rss_mib", min)):
                    r[key] = better(r[key], again[key])
    bench.progress.clear()


def cores(n):
    return "1 core" if n == 1 else f"{n} cores"


def print_tries(model, results, failures, reference):
    print(f"\n{model}: every setting tried (few steps; losses: largest relative difference from the middle of all programs)\n")
    print(f"{'rival':<11}{'setting':<26}{'cores':>5}{'images/s':>10}{'start-up s':>12}{'RSS MiB':>9}{'losses':>10}")
    for r in results:
        print(f"{r['rival']:<11}{r['setting']:<26}{r['threads']:>5}{r['images_per_s']:>10,.0f}{r['startup_s']:>12.2f}"
              f"{r['rss_mib']:>9.0f}{max(differences(r['losses'], reference)):>10.0e}")
    for (rival, name, n), sentence in failures.items():
        print(f"{rival:<11}{name:<26}{n:>5}  {sentence}")


def by_speed(model, results, rivals, core_counts, reference):
    """Each rival's settings per core count whose losses agree, fastest first; ours has none to choose."""
    settings = {(OURS, n): [""] for n in core_counts}
    for rival in rivals:
        for n in core_counts:
            fit = [r for r in results if r["rival"] == rival and r["threads"] == n
                   and all(off <= allowed for off, allowed in zip(differences(r["losses"], reference), tolerances(model)))]
            if not fit:
                sys.exit(f"{model}: no setting of {rival} on {cores(n)} ran with losses like the others'; see the table")
            settings[rival, n] = [r["setting"] for r in sorted(fit, key=lambda r: -r["images_per_s"])]
    return settings


def train_patiently(bench, program, setting, n):
    """A rival that dies (JAX's pmap does, now and then, when a collective waits too long) gets two more tries."""
    for left in (2, 1, 0):
        try:
            return bench.train(program, setting, n, bench.arguments.steps)
        except Failure as failure:
            bench.progress.clear()
            print(f"{failure}\n{left} more tries")
            last = failure
    raise last


def measure(bench, settings, found, program, n, rounds):
    """Adds to what was found until it has a result for each round. A setting that keeps dying is given up for the next
    fastest, which makes up for the rounds before."""
    while len(found) < rounds:
        setting = settings[program, n][0]
        try:
            found.append(train_patiently(bench, program, setting, n))
        except Failure:
            if len(settings[program, n]) == 1:
                raise
            settings[program, n].pop(0)
            print(f"{program} {setting} is given up on {cores(n)}; its next fastest is {settings[program, n][0]}")
            found.clear()


def measure_rounds(bench, settings, core_counts):
    """Returns {(program, cores): its result in each round} and the peaks measured between them."""
    arguments = bench.arguments
    programs = arguments.rivals + ([] if arguments.without_muster else [OURS])
    results, peaks = {(p, n): [] for p in programs for n in core_counts}, []
    for i in range(arguments.rounds):
        for n in core_counts:
            for program in programs:
                bench.progress.show(f"{bench.model}: round {i + 1}/{arguments.rounds}: {program} on {cores(n)}")
                measure(bench, settings, results[program, n], program, n, i + 1)
        if not arguments.without_muster:
            bench.progress.show(f"round {i + 1}/{arguments.rounds}: peak of one core")
            peaks.append(bench.peak())
    bench.progress.clear()
    return results, peaks


def check_losses(model, results):
    """Ends the program unless all programs computed the same first losses: otherwise they did not do the same work."""
    everything = [r for runs in results.values() for r in runs]
    bad = next((r for r in everything if not are_complete(r["losses"])), None)
    if bad:
        sys.exit(f"{bad['rival']} reported the losses {bad['losses']}; expected {common.N_LOSSES} finite numbers")
    widest = []
    for step, allowed in enumerate(tolerances(model)):
        low, *_, high = sorted(everything, key=lambda r: r["losses"][step])
        widest.append((high["losses"][step] - low["losses"][step]) / abs(low["losses"][step]))
        if widest[-1] > allowed:
            sys.exit(f"{model}: the losses do not agree, so no ratio means anything: in step {step + 1}, "
                     f"{high['rival']} on {cores(high['threads'])} has {high['losses'][step]!r} and "
                     f"{low['rival']} on {cores(low['threads'])} has {low['losses'][step]!r}, "
                     f"{widest[-1]:.1e} apart (allowed {allowed:.0e})")
    print(f"\n{model}: the first losses agree within {widest[0]:.1e}, the first {common.N_LOSSES} within {max(widest):.1e}.")
    return max(widest)


def median_of(runs, key):
    return statistics.median(r[key] for r in runs)


def ratio_of(above, below, key):
    return statistics.median(a[key] / b[key] for a, b in zip(above, below))


def fastest_rival(results, n):
    rivals = [program for program, cores_used in results if program != OURS and cores_used == n]
    return max(rivals, key=lambda rival: median_of(results[rival, n], "images_per_s"))


def of_peak(speed, flop, n, peaks):
    return speed * flop / 1e9 / n / statistics.median(peaks) if peaks else None


def shown(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def flop_of(model, program):
    """Nominal and executed FLOP; the other frameworks execute the nominal ones."""
    nominal, executed = models.flop(model)
    return nominal, executed if program == OURS else nominal


def print_results(model, results, peaks, settings):
    nominal, executed = models.flop(model)
    print(f"{model}: FLOP per image: {nominal:,} nominally; at most {executed:,} where the gradients that a maximum pool makes "
          "zero are skipped, as Muster does")
    if peaks:
        print(f"oneDNN's peak on one core: {statistics.median(peaks):.0f} GFLOP/s")
    print(f"\n{'program':<11}{'setting':<26}{'cores':>5}{'images/s':>10}{'spread':>8}{'x fastest':>11}{'GFLOP/s':>9}"
          f"{'of peak':>9}{'executed':>10}{'start-up s':>12}{'RSS MiB':>9}")
    for (program, n), runs in results.items():
        speeds = [r["images_per_s"] for r in runs]
        speed, fractions = statistics.median(speeds), [of_peak(statistics.median(speeds), flop, n, peaks)
                                                       for flop in flop_of(model, program)]
        rival_runs = results[fastest_rival(results, n), n]
        print(f"{program:<11}{settings[program, n][0]:<26}{n:>5}{speed:>10,.0f}"
              f"{(max(speeds) - min(speeds)) / speed:>8.0%}{ratio_of(runs, rival_runs, 'images_per_s'):>11.2f}"
              f"{speed * nominal / 1e9:>9.0f}{shown(fractions[0]):>9}{shown(fractions[1]):>10}"
              f"{median_of(runs, 'startup_s'):>12.3f}{median_of(runs, 'rss_mib'):>9.0f}")


# ---- The rows of the README ----------------------------------------------------------------------

NAMES = {OURS: "Muster", "tensorflow": "TensorFlow", "pytorch": "PyTorch", "jax": "JAX"}


def print_cnn_rows(results, peaks, core_counts):
    """The table of the CNN: start-up and memory are those on most cores."""
    most = max(core_counts)
    print("\n| | " + " | ".join([f"{cores(n)}, images/s" for n in core_counts])
          + " | of peak, nominal FLOP | of peak, executed FLOP | first step after | memory |")
    print("|---" * (5 + len(core_counts)) + "|")
    for program in [name for name in NAMES if (name, 1) in results]:
        speed = median_of(results[program, 1], "images_per_s")
        cells = [f"{median_of(results[program, n], 'images_per_s'):,.0f}" for n in core_counts]
        cells += [shown(of_peak(speed, flop, 1, peaks)) for flop in flop_of(models.CNN, program)]
        cells += [f"{median_of(results[program, most], 'startup_s'):.2f} s", f"{median_of(results[program, most], 'rss_mib'):.0f} MiB"]
        print(f"| {NAMES[program]} | " + " | ".join(cells) + " |")


def print_neighbour_rows(found):
    """The table of all models on one core: images per second, and ours over the fastest rival's in the same round."""
    programs = [name for name in NAMES if any((name, 1) in results for results, _ in found.values())]
    print("\n| on one core, images/s | " + " | ".join(NAMES[program] for program in programs)
          + " | times the fastest rival | of peak, nominal FLOP | of peak, executed FLOP |")
    print("|---" * (4 + len(programs)) + "|")
    for model, (results, peaks) in found.items():
        cells = [f"{median_of(results[program, 1], 'images_per_s'):,.0f}" for program in programs]
        ours = results.get((OURS, 1))
        cells.append(shown(ours and ratio_of(ours, results[fastest_rival(results, 1), 1], "images_per_s")))
        speed = median_of(ours, "images_per_s") if ours else 0
        cells += [shown(of_peak(speed, flop, 1, peaks)) for flop in models.flop(model)]
        print(f"| {models.TITLES[model]} | " + " | ".join(cells) + " |")


def ratio_to_tensorflow(results, tries, n, field):
    """Ours over the lowest of any TensorFlow setting, so that none is compared at a setting that is only fast later."""
    theirs = [r[field] for r in tries if r["rival"] == "tensorflow" and r["threads"] == n]
    if not theirs:
        return None
    return median_of(results[OURS, n], field) / min(theirs + [median_of(results["tensorflow", n], field)])


def summarise(results, peaks, tries):
    """The CNN's verdict; start-up and memory are those on most cores."""
    summary = dict.fromkeys(("cnn_ratio_1core", "cnn_ratio_2core", "scaling_2", "startup_ratio", "rss_ratio",
                             "peak_fraction_1core", "executed_peak_fraction_1core"))
    counts = [n for program, n in results if program == OURS]
    for n in counts:
        rival_runs = results[fastest_rival(results, n), n]
        summary[f"cnn_ratio_{n}core"] = ratio_of(results[OURS, n], rival_runs, "images_per_s")
    if 2 in counts:
        summary["scaling_2"] = ratio_of(results[OURS, 2], results[OURS, 1], "images_per_s")
    if counts:
        speed = median_of(results[OURS, 1], "images_per_s")
        summary["peak_fraction_1core"], summary["executed_peak_fraction_1core"] = (
            of_peak(speed, flop, 1, peaks) for flop in models.flop(models.CNN))
        summary["startup_ratio"] = ratio_to_tensorflow(results, tries, max(counts), "startup_s")
        summary["rss_ratio"] = ratio_to_tensorflow(results, tries, max(counts), "rss_mib")
    return {key: value and round(value, 4) for key, value in summary.items()}


def machine():
    models = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    return f"{datetime.date.today()}, {len(os.sched_getaffinity(0))} x {models[0] if models else platform.machine()}"


def draw(path, results, rounds):
    """The medians as bars, one group per number of cores."""
    speeds = {n: [(program, median_of(runs, "images_per_s")) for (program, m), runs in results.items() if m == n]
              for _, n in results}
    groups = [(cores(n), [(program, speed, f"{speed:,.0f} images/s")
                          for program, speed in sorted(found, key=lambda pair: -pair[1])])
              for n, found in sorted(speeds.items())]
    picture.write_bars(path, "Training the CNN, images per second",
                       f"batch {common.BATCH}, Adam, f32; medians of {rounds} rounds in turn; make bench-train, {machine()}",
                       groups, OURS)


def print_machine(arguments):
    script = ("import importlib.metadata as m; "
              "print(', '.join(n + ' ' + m.version(n) for n in ('tensorflow-cpu', 'torch', 'jax', 'numpy')))")
    versions = subprocess.run([arguments.python, "-c", script], capture_output=True, text=True, check=True).stdout
    print(f"{machine()}, Linux {platform.release()}; {versions.strip()}; batch {common.BATCH}, f32, "
          f"{arguments.rounds} rounds of {arguments.steps} steps")
    if arguments.quick:
        print("--quick: too short to measure anything")


def bench_model(arguments, model, core_counts, scratch):
    """Measures one model and prints what was found; returns the results, the peaks and the settings tried."""
    weights = scratch / f"{model}.safetensors"
    subprocess.run([arguments.python, HERE / "rival_common.py", weights, model, "1"], check=True)
    bench = Bench(arguments, model, weights)
    tries, failures = try_settings(bench, core_counts)
    if not arguments.quick:
        try_again(bench, tries, core_counts)
    reference = reference_losses(tries)
    print_tries(model, tries, failures, reference)
    settings = by_speed(model, tries, arguments.rivals, core_counts, reference)
    results, peaks = measure_rounds(bench, settings, core_counts)
    check_losses(model, results)
    print_results(model, results, peaks, settings)
    sys.stdout.flush()
    return results, peaks, tries


def main():
    arguments = parse_arguments()
    print_machine(arguments)
    found, summary = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            counts = [n for n in ((1, 2) if model == models.CNN else (1,)) if n <= len(os.sched_getaffinity(0))]
            results, peaks, tries = bench_model(arguments, model, counts, pathlib.Path(scratch))
            found[model] = results, peaks
            if model == models.CNN:
                summary = summarise(results, peaks, tries)
                if arguments.picture:
                    draw(arguments.picture, results, arguments.rounds)
    if models.CNN in found:
        print_cnn_rows(*found[models.CNN], sorted({n for _, n in found[models.CNN][0]}))
    print_neighbour_rows(found)
    ratios = {model: round(ratio_of(results[OURS, 1], results[fastest_rival(results, 1), 1], "images_per_s"), 4)
              for model, (results, _) in found.items() if (OURS, 1) in results}
    print()
    print(json.dumps({"bench": "train"} | summary | {"ratios_1core": ratios}))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"\n{failure}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
