#!/usr/bin/env python3
"""Measures how much a job slows down when another runs on the same cores: bench_teams alone and two at once, in turn.

Prints, for each kind of work, the steps per second alone and what share of them each of two jobs reaches. A fair half
is 0.50; the least that is accepted is 0.45. With --against DIR the programs of another build are measured in turn
with these, so that "alone" can be compared between the two. Nothing else should run on the machine.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(build, work, seconds):
    program = pathlib.Path(build) / "bench" / "teams" / "bench_teams"
    return subprocess.Popen([program, work, str(seconds)], stdout=subprocess.PIPE, text=True)


def result(process):
    out, _ = process.communicate(timeout=120)
    if process.returncode != 0:
        sys.exit(f"bench_teams ended with {process.returncode}")
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build" / "release")
    parser.add_argument("--against", metavar="DIR", help="another build, measured in turn")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    builds = [args.build] + ([args.against] if args.against else [])
    good = True
    for work in ("small", "large"):
        alone = {build: [] for build in builds}
        shares, slowest = {build: [] for build in builds}, {build: [] for build in builds}
        for _ in range(args.rounds):
            for build in builds:
                alone[build].append(result(start(build, work, args.seconds))["steps_per_s"])
                pair = [start(build, work, args.seconds) for _ in range(2)]
                for process in pair:
                    seen = result(process)
                    shares[build].append(seen["steps_per_s"])
                    slowest[build].append(seen["p99_us"])
        for build in builds:
            base = statistics.median(alone[build])
            low, high = min(shares[build]) / base, statistics.median(shares[build]) / base
            print(f"{work:6} {build}: alone {base:.0f} steps/s; one of two {low:.2f} of that at the least, {high:.2f} in "
                  f"the middle; 99 of 100 steps within {statistics.median(slowest[build]):.0f} us")
            good &= build != args.build or low >= 0.45
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
