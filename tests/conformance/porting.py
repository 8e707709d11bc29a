# docs/porting.md against the installed Keras and TensorFlow and against the headers: every public name of the modules of
# its tables has a row, every row's name is there, and what stands for it is declared.
# It must not know what the names do.
import re
import sys

import keras
import tensorflow as tf

import muster
from report import Report

PAGE = muster.ROOT / "docs" / "porting.md"
CODE = re.compile(r"`([^`]+)`")


def tables():
    """{module: [(names there, what stands for them here)]} of the page."""
    found, module = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            module = line[3:]
        elif module and line.startswith("| `"):
            there, here = (part.strip() for part in line.strip("| ").split(" | ", 1))
            found.setdefault(module, []).append((CODE.findall(there), here))
    return found


def public_names(module):
    value = {"keras": keras, "tf": tf}[module.split(".")[0]]
    for part in module.split(".")[1:]:
        value = getattr(value, part)
    return {name for name in dir(value) if not name.startswith("_")}


def declared():
    """Functions, types and macros of the public headers, without what comments say."""
    words = set()
    for path in (muster.ROOT / "include" / "muster").glob("*.h"):
        text = re.sub(r"//.*", "", path.read_text())
        words |= set(re.findall(r"\bmu_\w+|\bMU_\w+", text))
    return words


def snake(name):
    """Keras's rule for the names of layers."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()


def check_module(report, module, rows, words):
    listed = [name for names, _ in rows for name in names]
    there = public_names(module)
    wrong = [f"{name} has no row" for name in sorted(there - set(listed))]
    wrong += [f"{name} is not in {module}" for name in sorted(set(listed) - there)]
    wrong += [f"{name} has two rows" for name in sorted({name for name in listed if listed.count(name) > 1})]
    for names, here in rows:
        wrong += [f"{word}, for {names[0]}, is in no header" for word in CODE.findall(here)
                  if re.fullmatch(r"(mu|MU)_\w+", word) and word not in words]
        if here.startswith("—"):
            wrong += [f"{name} is said to be left out, and there is mu_{snake(name)}" for name in names
                      if module == "keras.layers" and f"mu_{snake(name)}" in words]
    left_out = sum(len(names) for names, here in rows if here.startswith("—"))
    report.row(module, f"{len(listed)} names, {left_out} left out with a reason", passed=not wrong, failures=wrong)


def main(_library=None, only=""):
    report, words, found = Report("porting"), declared(), tables()
    for module, rows in found.items():
        if only in module:
            with report.guard(module):
                check_module(report, module, rows, words)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
