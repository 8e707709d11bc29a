# Rows of results, printed as they come, and the counts. A report says what its checks hold against what, because checks
# against TensorFlow, against JAX and of Muster against itself are counted apart.
# It must not know what is compared.
import contextlib
import traceback


TENSORFLOW = "compared with TensorFlow"
JAX = "compared with JAX"
COMPILED = "eager against compiled, Muster alone"


class Report:
    def __init__(self, title, kind=TENSORFLOW):
        self.kind = kind
        self.passed, self.failed, self.known = 0, 0, 0
        print(f"== {title}", flush=True)

    def row(self, name, text, passed, failures=(), known=()):
        """One line, then one for every failure and every difference that is meant."""
        self.passed += passed
        self.failed += len(failures)
        self.known += len(known)
        print(f"{'FAIL' if failures else 'ok  '} {name:<34} {text}", flush=True)
        for failure in failures:
            print(f"       FAIL {failure}", flush=True)
        for difference in known:
            print(f"       meant {difference}", flush=True)

    def check(self, name, text, ok):
        """A row that is one check."""
        self.row(name, text, passed=int(ok), failures=() if ok else ["outside the bounds"])

    @contextlib.contextmanager
    def guard(self, name):
        """An exception inside is a failed row, and the next case has its turn."""
        try:
            yield
        except Exception as error:
            self.row(name, "", passed=0, failures=["".join(traceback.format_exception_only(error)).strip()])

    def finish(self):
        """Prints the last lines; the exit status."""
        if self.known:
            print(f"{self.known} differences are meant; docs/conformance.md has the reasons", flush=True)
        print(f"{self.kind}: {self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0
