# parts.py LIBRARY FOLDER: runs parts of the conformance tests side by side, one for each core. TensorFlow is imported
# once: each part is a fork of this process, made before TensorFlow starts anything.
#
# Standard input has a line for each job: its part, the device ("-": the CPU) and the text that picks rows. What job N
# prints goes to FOLDER/N, its errors to FOLDER/N.log; a job that ends without a count has failed. What a job printed is
# printed when it has ended. A variable that TensorFlow reads when it is imported must be set before, in `run`.
# It must not know what is compared.
import atexit
import os
import pathlib
import re
import runpy
import sys
import time
import traceback

import report

HERE = pathlib.Path(__file__).resolve().parent
COUNT = re.compile(rf"^({report.TENSORFLOW}|{report.JAX}|{report.COMPILED}): \d+ passed, \d+ failed$", re.M)
NO_RESULT = f"{report.TENSORFLOW}: 0 passed, 1 failed"
LOG_LINES = 20


class Job:
    def __init__(self, folder, number, line):
        self.part, self.device, self.text = (line.split(maxsplit=2) + [""])[:3]
        self.name = self.part + (f' "{self.text}"' if self.text else "") + (f" on {self.device}" if self.device != "-" else "")
        self.output, self.log = folder / str(number), folder / f"{number}.log"

    def start(self, library):
        self.begin = time.monotonic()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            self.become(library)
        return process

    def become(self, library):
        """In the fork: as if python had been started with the part."""
        code = 1
        try:
            for path, descriptor in ((self.output, 1), (self.log, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if self.device != "-":
                os.environ["MU_TEST_DEVICE"] = self.device
            path = str(HERE / f"{self.part}.py")
            sys.argv = [path, library, *([self.text] if self.text else [])]
            runpy.run_path(path, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def finish(self, status):
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        if not COUNT.search(text):
            log = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self.log.exists() else []
            text += "\n".join([f"{self.name} stopped with exit code {os.waitstatus_to_exitcode(status)}; the end of its log:",
                               *log, NO_RESULT, ""])
        text += f"# {self.name}: {time.monotonic() - self.begin:.0f} s\n"
        self.output.write_text(text)
        print(text, end="", flush=True)


def main(library, folder):
    jobs = [Job(pathlib.Path(folder), number, line) for number, line in enumerate(sys.stdin.read().splitlines())]
    if any(job.part != "collectives" for job in jobs):
        import keras  # noqa: F401  (for the forks)
        import tensorflow  # noqa: F401
    running, waiting = {}, jobs[::-1]
    while running or waiting:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            job = waiting.pop()
            running[job.start(library)] = job
        process, status = os.wait()
        running.pop(process).finish(status)


main(*sys.argv[1:])
