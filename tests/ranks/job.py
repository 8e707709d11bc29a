# A job of several processes for tests: starts one process per rank with TF_CONFIG, each with its own output, and says
# how each ended. The ranks are started directly, without the launcher, so that nobody but the library ends them.
import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

# Random digits, so that no process spends time on stretching it.
KEY = "7c1b0e5fa29d4368b1e07f4c5d82a6930f6e1d2c3b4a59687786958a4b3c2d1e"
SANITIZED = os.environ.get("MU_SANITIZED") == "1"
# Guards against hangs may be as generous as they like; what is asserted to happen soon goes by the idle clock.
SLOW = 16 if SANITIZED else 4
# How much longer than without sanitizers an idle machine takes.
HEAVY = 4 if SANITIZED else 1
End = collections.namedtuple("End", "code text at when")
passed = 0
failed = 0


class IdleClock(threading.Thread):
    """Seconds of a machine that has nothing else to do: it runs slower by how many threads want to run per processor,
    or by how much longer than asked for a short sleep and some work take, whichever is more."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds = 0.0
        self.start()

    def now(self):
        return self.seconds

    def run(self):
        pause, before = 0.01, time.monotonic()
        while True:
            worked = time.thread_time()
            time.sleep(pause)
            for _ in range(2000):
                pass
            with open("/proc/loadavg", encoding="ascii") as file:
                running = int(file.read().split()[3].split("/")[0])
            now = time.monotonic()
            late = (now - before) / (pause + 0.002 + time.thread_time() - worked)
            self.seconds += (now - before) / max(1, late, running / os.cpu_count())
            before = now


idle_clock = IdleClock()


def check(name, condition, detail=""):
    """Counts; a failure is printed."""
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print(f"{name}: failed\n{detail}", flush=True)
    return condition


def finish():
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0 or passed == 0)


def keep_ports(n):
    """Sockets that are bound but never listen: nobody else is given their ports, and the ranks may listen there."""
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    return sockets


def left_over(mark):
    """Processes that still have this among their arguments after a while, as a job has the folder of its test."""
    end = time.monotonic() + SLOW
    while (found := having(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def having(mark):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and str(mark) in (entry / "cmdline").read_text():
                found.append(f"{entry.name}: {(entry / 'cmdline').read_text()}")
        except OSError:
            pass  # it has ended meanwhile
    return found


def plain_environment():
    names = ("MUSTER_", "TF_CONFIG", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
    return {k: v for k, v in os.environ.items() if not k.startswith(names)}


class Job:
    """`arguments` is a list, or a function of the rank that returns one; `environment` likewise a dictionary."""

    def __init__(self, arguments, n, environment=None, prefix=None):
        self.n, self.kept = n, keep_ports(n)
        self.ports = [one.getsockname()[1] for one in self.kept]
        self.scratch = tempfile.TemporaryDirectory()
        self.arguments, self.environment = arguments, environment
        self.prefix = prefix or (lambda rank: [])
        self.processes, self.ends = [None] * n, [None] * n
        self.began = time.monotonic()

    def config(self, rank):
        workers = [f"127.0.0.1:{port}" for port in self.ports]
        return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})

    def start(self, ranks=None):
        for rank in range(self.n) if ranks is None else ranks:
            arguments = self.arguments(rank) if callable(self.arguments) else self.arguments
            more = self.environment(rank) if callable(self.environment) else self.environment or {}
            environment = {**plain_environment(), "TF_CONFIG": self.config(rank), "MUSTER_CLUSTER_KEY": KEY,
                           "MUSTER_CPU_DEVICES": "1", "MUSTER_THREADS": "1", **more}
            environment = {k: v for k, v in environment.items() if v is not None}
            with open(self.path(rank), "wb") as out:
                self.processes[rank] = subprocess.Popen(self.prefix(rank) + [str(a) for a in arguments], stdout=out,
                                                        stderr=out, stdin=subprocess.DEVNULL, env=environment)
        return self

    def run_alone(self):
        """Rank 0 without the others, in this environment, with this output; its exit code."""
        with self:
            return subprocess.call(self.arguments, env={**os.environ, "TF_CONFIG": self.config(0)})

    def path(self, rank):
        return pathlib.Path(self.scratch.name) / str(rank)

    def text(self, rank):
        return self.path(rank).read_text(errors="replace")

    def all_text(self):
        return "\n".join(f"--- rank {r}, {self.ends[r].code if self.ends[r] else 'alive'}:\n{self.text(r)}"
                         for r in range(self.n) if self.path(r).exists())

    def wait_for(self, word, ranks=None, seconds=30):
        """Waits until the output of these ranks holds `word`; False if it does not come."""
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            if all(word in self.text(r) for r in (range(self.n) if ranks is None else ranks)):
                return True
            time.sleep(0.01)
        return False

    def send(self, rank, number=signal.SIGKILL):
        if self.processes[rank].poll() is None:
            self.processes[rank].send_signal(number)

    def wait(self, seconds=60, ranks=None):
        """The ends of these ranks, None for those that do not end; `at` is when, on the idle clock, `when` on
        the monotonic one."""
        ranks = [r for r in (range(self.n) if ranks is None else ranks) if self.processes[r]]
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end and any(self.ends[r] is None for r in ranks):
            for r in ranks:
                if self.ends[r] is None and self.processes[r].poll() is not None:
                    self.ends[r] = End(self.processes[r].returncode, self.text(r), idle_clock.now(),
                                       time.monotonic())
            time.sleep(0.005)
        return [self.ends[r] for r in ranks]

    def codes(self):
        return [end.code if end else None for end in self.ends]

    def close(self):
        for process in self.processes:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        for one in self.kept:
            one.close()
        self.scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
