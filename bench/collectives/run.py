#!/usr/bin/env python3
# The all-reduce benchmark: between threads, compared with copying memory (bench_allreduce); between processes in
# shared memory and over TCP, compared with Open MPI and Gloo; and the effect on training (speed, start-up).
#
# Every system is a program that checks its sums and prints "bytes microseconds" lines. The programs run in turn for
# several rounds, and the median over the rounds counts; bench_allreduce has its own rounds, of which the best counts.
# In shared memory Muster is measured twice: "shm" with the data in the segment that all processes address, as for
# gradients, and "private" with the data in each process's own memory, as for the other systems. A ratio is the best
# other system's time divided by Muster's, for every size, for two and for four processes, without encryption. The
# cost of TLS has a column, and the cost of adding in rank order has its own lines. A system that is missing or fails
# is reported and skipped. Prints the README's table rows and a line of JSON at the end.
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BEGUN = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parents[2]
RIVALS = ROOT / "bench/rivals"
PROCESSES = (2, 4)
PATHS = {"shm": "shared memory, data in the segment", "private": "shared memory, data in private memory",
         "tcp": "TCP loopback without encryption"}
LIMIT_S = 300
RIVAL_LIMIT_S = 40


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, two processes, no threads, no training")
    return parser.parse_args()


def loud(text):
    print(f"\n*** {text} ***\n", flush=True)


def progress(text):
    print(f"# {time.monotonic() - BEGUN:4.0f} s: {text}", flush=True)


def build_rival(command, source, output, what):
    if shutil.which(command[0]) is None:
        loud(f"{what} is not installed ({command[0]} is missing): scripts/install_packages bench installs it")
        return None
    built = subprocess.run([*command, "-O2", "-D_GNU_SOURCE", source, "-o", output[0], *output[1:]], capture_output=True,
                           text=True)
    if built.returncode != 0:
        loud(f"{what} cannot be built, it is left out: {built.stderr.strip().splitlines()[0] if built.stderr else '?'}")
        return None
    return output[0]


def mpirun(program, btl):
    def command(n):
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(n), "--mca", "pml",
                "ob1", "--mca", "btl", f"self,{btl}", *(["--mca", "btl_tcp_if_include", "lo"] if btl == "tcp" else []),
                program]
    return command


def systems(arguments, scratch):
    """Name, transport, command for n processes; Muster first."""
    ours = arguments.build / "bench/collectives/bench_processes"
    found = [("muster", path, lambda n, path=path: [ours, str(n), path]) for path in (*PATHS, "tls")]
    mpi = build_rival(["mpicc"], RIVALS / "openmpi.c", [scratch / "openmpi"], "Open MPI")
    gloo = build_rival(["g++", "-std=c++17"], RIVALS / "gloo.cc", [scratch / "gloo", "-lgloo"], "gloo")
    if mpi:
        found += [("openmpi", "shm", mpirun(mpi, "vader")), ("openmpi", "tcp", mpirun(mpi, "tcp"))]
    if gloo:
        found += [("gloo", "tcp", lambda n: [gloo, str(n)])]
    return found


def run_program(command, limit_s):
    """A command's output and whether it succeeded. If it hangs, it is killed together with the processes that it started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"not done after {limit_s} s"
    return out, err, process.returncode == 0


def run_once(name, command):
    out, err, good = run_program(command, LIMIT_S if name == "muster" else RIVAL_LIMIT_S)
    if not good and name == "muster":
        sys.exit(f"{command[0]} failed:\n{out[-1000:]}{err[-3000:]}")
    if not good:
        loud(f"{name} failed, what it had not measured is left out: {err.strip()[-300:]}")
    return {int(size): float(us) for size, us in (line.split() for line in out.splitlines())}


def medians(runs):
    sizes = sorted({size for one in runs for size in one})
    return {size: statistics.median(one[size] for one in runs if size in one) for size in sizes}


def measure(found, counts, rounds):
    """{(name, path, processes): {bytes: microseconds}}, medians over the rounds."""
    results, failed = {}, set()
    for turn in range(rounds):
        for n in counts:
            for name, path, command in found:
                if (name, path, n) in failed:
                    continue
                one = run_once(name, command(n))
                if len(one) < len(results.get(("muster", "shm", n), [one])[0]):
                    failed.add((name, path, n))
                results.setdefault((name, path, n), []).append(one)
            progress(f"round {turn + 1} of {rounds}, {n} processes")
    return {key: medians(runs) for key, runs in results.items()}


def rivals_of(results, path, n):
    # Gloo has no shared memory; on one host it would be used all the same.
    of_path = "tcp" if path == "tcp" else "shm"
    return {key[0]: times for key, times in results.items()
            if key[0] != "muster" and key[2] == n and (key[1] == of_path or key[0] == "gloo")}


def compare(results, path, n):
    """[(bytes, ours, best rival, its name)]"""
    ours, rivals = results["muster", path, n], rivals_of(results, path, n)
    rows = []
    for size, time_us in ours.items():
        best = min(((times[size], name) for name, times in rivals.items() if size in times), default=(None, "-"))
        rows.append((size, time_us, *best))
    return rows


def print_tables(results, counts):
    for path, words in PATHS.items():
        for n in counts:
            tls = results["muster", "tls", n] if path == "tcp" else {}
            print(f"\n# {n} processes, {words}: in place, f32, sum; microseconds, median; GB/s is bytes / time")
            print(f"#{'size(B)':>11} {'count':>12} {'time(us)':>10} {'algbw':>8} {'busbw':>8} {'rival(us)':>10} "
                  f"{'rival':>8} {'ratio':>7}{'  with TLS(us)' if tls else ''}")
            for size, ours, best, name in compare(results, path, n):
                speed = size / ours / 1e3
                print(f"{size:12d} {size // 4:12d} {ours:10.2f} {speed:8.2f} {speed * 2 * (n - 1) / n:8.2f} "
                      f"{best or float('nan'):10.2f} {name:>8} {best / ours if best else float('nan'):7.2f}"
                      f"{f'{tls[size]:14.2f}' if tls else ''}")


def ratios(results, path, n):
    """By size, if another system was measured."""
    return {size: best / ours for size, ours, best, _ in compare(results, path, n) if best is not None}


def size_words(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB" if size >= 1 << 10 else f"{size} B"


def print_rows(results, counts, rounds):
    """The README's table."""
    print(f"\n| best rival's time over ours, 4 B to 64 MB, {f'medians of {rounds} rounds' if rounds > 1 else 'one round'} "
          "| worst size | median | at 4 B, ours | best rival |")
    print("|---|---|---|---|---|")
    for path, words in PATHS.items():
        for n in counts:
            found = ratios(results, path, n)
            if found:
                worst = min(found, key=found.get)
                _, ours, best, name = next(row for row in compare(results, path, n) if row[0] == 4)
                print(f"| {words}, {n} processes | {found[worst]:.2f} ({size_words(worst)}) | {statistics.median(found.values()):.2f} "
                      f"| {ours:.2f} µs | {best:.2f} µs ({name}) |")


def threads_bench(arguments):
    done = subprocess.run([arguments.build / "bench/collectives/bench_allreduce"], stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit("bench_allreduce failed")
    return json.loads(done.stdout.splitlines()[-1])


# ---- The cost of adding in rank order ----------------------------------------------------------

def deterministic_prices(arguments, rounds):
    """Prints one line for each way that ranks are connected."""
    ours = arguments.build / "bench/collectives/bench_processes"
    print()
    for path, layout, words in (("shm", ("4", "shm", "1"), "4 processes, shared memory"),
                                ("tcp", ("4", "tcp", "1"), "4 processes, TCP"),
                                ("mixed", ("2", "tcp", "2"), "2 processes of 2 replicas, TCP between them")):
        runs = {True: [], False: []}
        for turn in range(2 * rounds):
            wanted = (turn + turn // 2) % 2 == 1  # off on on off
            runs[wanted].append(run_once("muster", [ours, *layout, *(["deterministic"] if wanted else [])]))
        off, on = medians(runs[False]), medians(runs[True])
        prices = [on[size] / off[size] for size in off]
        worst = max(off, key=lambda size: on[size] / off[size])
        print(f"# deterministic, {words}: {statistics.geometric_mean(prices):.2f} times the time without it, "
              f"at worst {on[worst] / off[worst]:.2f} ({worst} B)", flush=True)


# ---- The effect on training ---------------------------------------------------------------------

def train_command(arguments, workers, devices, extra):
    """The CNN of bench/train on `workers` processes of `devices` replicas each; None if it cannot run."""
    program = arguments.build / "bench/collectives/bench_fit"
    muster = arguments.build / "src/tools/muster"
    if not program.exists() or not muster.exists():
        return None
    if workers == 1:
        return [program, str(devices), *extra]
    return [muster, "launch", "-n", str(workers), "--replicas", str(devices), "--", program, str(devices), *extra]


def last_number(text, word):
    return next((float(line.split()[-1]) for line in reversed(text.splitlines()) if word in line), None)


def train(arguments, workers, devices, extra, word):
    command = train_command(arguments, workers, devices, extra)
    if command is None:
        return None
    out, err, good = run_program(command, LIMIT_S)
    if not good:
        loud(f"{' '.join(map(str, command))} failed, it is left out: {err.strip()[-300:]}")
        return None
    return last_number(out, word)


def training_numbers(arguments, rounds):
    if train_command(arguments, 2, 1, []) is None:
        loud("bench_fit or the muster command is missing: fit on processes and start-up are left out")
        return None, None
    threads, processes, starts = [], [], []
    for _ in range(rounds):
        threads.append(train(arguments, 1, 2, [], "images_per_s"))
        processes.append(train(arguments, 2, 1, [], "images_per_s"))
        starts.append(train(arguments, 4, 1, ["begun", str(time.time())], "first_step_s"))
    if None in threads + processes + starts:
        return None, None
    print(f"\n# fit of the CNN, images/s: {statistics.median(threads):.0f} by 2 threads, "
          f"{statistics.median(processes):.0f} by 2 processes; 4 processes have made a step after "
          f"{statistics.median(starts):.2f} s")
    return statistics.median(processes) / statistics.median(threads), statistics.median(starts)


def main():
    arguments = parse_arguments()
    counts = PROCESSES[:1] if arguments.quick else PROCESSES
    rounds = 1 if arguments.quick else arguments.rounds
    models = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    print(f"# {datetime.date.today()}, {len(os.sched_getaffinity(0))} x {models[0] if models else platform.machine()}, "
          f"Linux {platform.release()}, {rounds} rounds in turn")
    threads = {} if arguments.quick else threads_bench(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        found = systems(arguments, pathlib.Path(scratch))
        results = measure(found, counts, rounds)
    print_tables(results, counts)
    print_rows(results, counts, rounds)
    if not arguments.quick:
        deterministic_prices(arguments, min(rounds, 2))
        progress("deterministic")
    fit, startup = (None, None) if arguments.quick else training_numbers(arguments, rounds)
    summary = {"threads_fraction_1mb_up": threads.get("threads_fraction_1mb_up")}
    for path in PATHS:
        for n in counts:
            values = ratios(results, path, n).values()
            summary |= {f"{path}_{n}_worst": min(values, default=None),
                        f"{path}_{n}_median": statistics.median(values) if values else None}
    summary |= {"fit_2process_vs_2thread": fit, "startup_4_s": startup,
                "shm_us_4b_2": results["muster", "shm", 2][4], "tcp_us_4b_2": results["muster", "tcp", 2][4]}
    print()
    print(json.dumps({"bench": "allreduce"} | {key: value and round(value, 3) for key, value in summary.items()}))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
