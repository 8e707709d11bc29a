#!/usr/bin/env python3
"""Parameter servers on the loopback: Muster's against TensorFlow's, and against what the machine moves at most.

Pull and push of whole variables, lookups and updates of rows (dimension 64, in batches of 65,536 of a table far larger
than the caches), empty steps, and the time from the start of the processes to the first step. All programs check their
results and run in turn for several rounds; medians count. Both systems have two workers and two servers, prove a key
or none, and do not encrypt; Muster with TLS is beside it. A limit is what a bare transfer moves in the same run: through
a socket below 64 KiB, through memory that two processes share from there on; and what two threads of one process gather
and copy. At last servers with copies are killed, and the time until requests are served again is taken. The last line is
JSON. Nothing else should run on the machine.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGUN = time.monotonic()
SIZES = [4 << 10 << 2 * i for i in range(9)]  # 4 KiB, 16 KiB, …, 256 MiB
BY_SOCKET = 64 << 10  # below this the limit is the socket
LIMIT_S = 1200
WORKERS = SERVERS = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="about a minute: one round, four sizes, a smaller table")
    parser.add_argument("--alone", action="store_true", help="without TensorFlow: the ratios are null")
    return parser.parse_args()


def progress(text):
    print(f"# {time.monotonic() - BEGUN:4.0f} s: {text}", flush=True)


def run(command, extra=None):
    """The numbers that a command prints, {(what, which): value}, and when it had made its first step."""
    begun, found = time.monotonic(), {}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                                   env={**os.environ, **(extra or {})})
        for line in process.stdout:
            line = line.partition("] ")[2] if line.startswith("[") else line  # the launcher's rank
            if line.strip() == "first step":
                found["start", ""] = time.monotonic() - begun
            elif line.startswith("{"):
                number = json.loads(line)
                found[number["what"], number.get("bytes", number.get("ids", ""))] = number["value"]
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = f"no code: it hangs after {LIMIT_S} s"
        errors.seek(0)
        if code != 0:
            sys.exit(f"{' '.join(map(str, command))} ended with {code}:\n{errors.read()[-3000:]}")
    return found


def ours(arguments, rows, seconds, sizes, encrypt):
    command = [arguments.build / "src/tools/muster", "launch", "--workers", str(WORKERS), "--ps", str(SERVERS),
               "--replicas", "1", "--", arguments.build / "bench/ps/bench_ps", str(rows), str(seconds)]
    found = {}
    for what in (["wire", *map(str, sizes)], ["rows"], ["steps"]):
        found.update(run([*command, *what], {"MUSTER_ENCRYPT": str(int(encrypt))}))
    return found


def measure(arguments, rows, seconds, sizes, rounds):
    python = os.environ.get("MUSTER_PYTHON_ENV", ROOT / "build/python")
    systems = {
        "limit": lambda: run([arguments.build / "bench/ps/bench_ps_limits", str(rows), *map(str, sizes)]),
        "muster": lambda: ours(arguments, rows, seconds, sizes, False),
        "tensorflow": lambda: run([f"{python}/bin/python", ROOT / "bench/ps/rival.py", str(rows), str(seconds),
                                   str(WORKERS), str(SERVERS), "all", *map(str, sizes)],
                                  {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}),
        "tls": lambda: ours(arguments, rows, seconds, sizes, True)}
    if arguments.alone:
        del systems["tensorflow"]
    runs = {name: [] for name in systems}
    for turn in range(rounds):
        for name, system in systems.items():
            runs[name].append(system())
            progress(f"round {turn + 1} of {rounds}: {name}")
    return {name: {key: statistics.median(one[key] for one in all_of) for key in all_of[0]}
            for name, all_of in runs.items()}


def failover(arguments, kills):
    """Milliseconds from kill -9 of a server with copies to the next served requests, {p50, p99}."""
    command = [arguments.build / "src/tools/muster", "launch", "--workers", "1", "--ps", str(SERVERS), "--replicas", "1",
               "--", arguments.build / "bench/ps/bench_ps_failover", str(kills)]
    progress(f"{kills} kills of servers with copies, at least 1.1 s each")
    return {what: value for (what, _), value in run(command).items() if what.startswith("failover")}


def limit_of(key, results):
    what, which = key
    if what in ("pull", "push"):
        return results["limit"]["socket" if which < BY_SOCKET else "shared", which]
    return results["limit"].get(("gather", which)) if what in ("lookup", "update") else None


def words(key):
    what, which = key
    if isinstance(which, int):
        return f"{what} {which >> 20} MB, GB/s" if which >= 1 << 20 else f"{what} {which >> 10} KB, GB/s"
    return {"steps": "empty steps/s", "start": "first step after, s"}.get(what, f"{what}, {which} ids, rows/s")


def cell(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def print_table(results):
    print("\n| | Muster | with TLS | TensorFlow | Muster / TensorFlow | limit | Muster / limit |")
    print("|---|---|---|---|---|---|---|")
    for key, value in results["muster"].items():
        rival, limit = results.get("tensorflow", {}).get(key), limit_of(key, results)
        cells = [value, results["tls"][key], rival, value / rival if rival else None, limit,
                 value / limit if limit else None]
        print(f"| {words(key)} | {' | '.join(map(cell, cells))} |")


def summary(results, failovers):
    mine, rival = results["muster"], results.get("tensorflow")
    moved = [key for key in mine if key[0] in ("pull", "push")]
    looked = [key for key in mine if key[0] in ("lookup", "update")]
    ratios = [mine[key] / rival[key] for key in moved] if rival else None
    line = {"bench": "ps", "pull_push_worst": min(ratios) if ratios else None,
            "pull_push_median": statistics.median(ratios) if ratios else None,
            "lookup_ratio": min(mine[key] / rival[key] for key in looked) if rival else None,
            "lookup_rows_per_s": mine["lookup", "uniform"],
            "lookup_fraction": min(mine[key] / limit_of(key, results) for key in looked if key[0] == "lookup"),
            "closures_per_s": mine["steps", ""],
            "wire_fraction": min(mine[key] / limit_of(key, results) for key in moved),
            "startup_ratio": rival["start", ""] / mine["start", ""] if rival else None,
            **failovers}
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in line.items()}


def main():
    arguments = parse_arguments()
    rows, seconds, rounds, kills = (1 << 20, .15, 1, 5) if arguments.quick else (1 << 21, .5, arguments.rounds, 200)
    sizes = SIZES[:-1:2] if arguments.quick else SIZES
    results = measure(arguments, rows, seconds, sizes, rounds)
    failovers = failover(arguments, kills)
    model = next((line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    print(f"\n# {datetime.date.today()}, {os.cpu_count()} x {model}, {rounds} rounds, {rows} rows of 64 f32, "
          f"{WORKERS} workers, {SERVERS} servers")
    print_table(results)
    print()
    print(json.dumps(summary(results, failovers), separators=(",", ":")))


if __name__ == "__main__":
    main()
