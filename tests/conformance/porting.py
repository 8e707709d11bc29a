# docs/porting.md against the installed Keras and TensorFlow and against the headers: every public name of the modules of
# its tables has a row, every row's name is there, and what stands for it is declared. Every argument of a class of Keras's
# is a member of the struct of options here, or has a row too.
# It must not know what the names do.
import inspect
import re
import sys

import keras
import tensorflow as tf

import muster
from report import Report

PAGE = muster.ROOT / "docs" / "porting.md"
ARGUMENTS = "## Arguments of Keras's classes"
# Modules whose classes take arguments that structs of options have here.
WITH_OPTIONS = ("keras.layers", "keras.initializers", "keras.regularizers", "keras.constraints", "keras.losses", "keras.metrics",
                "keras.optimizers", "keras.optimizers.schedules", "keras.callbacks")
CODE = re.compile(r"`([^`]+)`")


def tables():
    """{module: [(names there, what stands for them here)]} of the page."""
    found, module = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            module = line[3:] if line != ARGUMENTS else None
        elif module and line.startswith("| `"):
            there, here = (part.strip() for part in line.strip("| ").split(" | ", 1))
            found.setdefault(module, []).append((CODE.findall(there), here))
    return found


def module_named(module):
    value = {"keras": keras, "tf": tf}[module.split(".")[0]]
    for part in module.split(".")[1:]:
        value = getattr(value, part)
    return value


# Classes of which the page lists what their base class does not have.
BESIDES = {"keras.Sequential": "keras.Model"}


def public_names(module):
    names = {name for name in dir(module_named(module)) if not name.startswith("_")}
    return names - public_names(BESIDES[module]) if module in BESIDES else names


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


# ---- Arguments ----------------------------------------------------------------------------------------

def listed_arguments():
    """{(argument, class or "all"): what stands for it} of the page."""
    section = PAGE.read_text().split(ARGUMENTS)[1].split("\n## ")[0]
    rows = [[part.strip() for part in line.strip("| ").split(" | ", 2)] for line in section.splitlines() if line.startswith("| `")]
    return {(argument, name): here for arguments, classes, here in rows for argument in CODE.findall(arguments)
            for name in (CODE.findall(classes) or ["all"])}


def members(declarations, function):
    """The options of a function, or the names of its parameters."""
    with_options = declarations.functions.get(f"{function}_with")
    struct = re.search(r"mu_\w+_args", with_options[1]) if with_options else None
    if struct:
        return {field for field, _ in declarations.structs[struct[0]]._fields_}
    plain = declarations.functions.get(function)
    return set(re.findall(r"(\w+)\s*(?:,|$)", plain[1])) if plain else set()


def is_there(argument, options):
    return bool({argument, f"no_{argument}", f"no_{argument.removeprefix('use_')}"} & options)


def missing_arguments(found):
    """{(argument, class)} of the classes that are there: what Keras's constructors take and no option has the name of."""
    declarations, missing = muster.Declarations(muster.ROOT / "include" / "muster"), set()
    for module in WITH_OPTIONS:
        for name, here in ((name, here) for names, here in found[module] for name in names):
            value, function = getattr(module_named(module), name), re.search(r"mu_\w+", here)
            if here.startswith("—") or not function or not inspect.isclass(value):
                continue
            options = members(declarations, function[0])
            taken = [parameter.name for parameter in inspect.signature(value.__init__).parameters.values()
                     if parameter.name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)]
            missing |= {(argument, value.__name__) for argument in taken if not is_there(argument, options)}
    return missing


def check_arguments(report, found, words):
    missing, listed = missing_arguments(found), listed_arguments()
    wrong = [f"{name}: {argument} is no option, and has no row" for argument, name in sorted(missing)
             if (argument, name) not in listed and (argument, "all") not in listed]
    lacking = missing | {(argument, "all") for argument, _ in missing}
    wrong += [f"{name}: {argument} has a row, and is an option, or no argument there" for argument, name in sorted(listed)
              if (argument, name) not in lacking]
    wrong += [f"{word}, for {key[0]}, is in no header" for key, here in listed.items() for word in CODE.findall(here)
              if re.fullmatch(r"(mu|MU)_\w+", word) and word not in words]
    report.row("arguments", f"{len(missing)} of classes are written differently or left out", passed=not wrong, failures=wrong)


def check_operations(report):
    """The classes of operations that models may have, of the page and of the source."""
    section = PAGE.read_text().split("## Operations in models")[1].split("\n## ")[0]
    listed = {word for word in CODE.findall(section) if re.fullmatch(r"[A-Z]\w+", word)}
    table = (muster.ROOT / "src" / "model" / "layers" / "operation_kinds.c").read_text().split("kinds[] = {")[1].split("\n};")[0]
    there = set(re.findall(r'"([A-Z]\w+)"', table))
    wrong = [f"{name} is not on the page" for name in sorted(there - listed)]
    wrong += [f"{name} is not in the source" for name in sorted(listed - there)]
    report.row("operations in models", f"{len(there)} classes", passed=not wrong, failures=wrong)


def main(_library=None, only=""):
    report, words, found = Report("porting"), declared(), tables()
    for module, rows in found.items():
        if only in module:
            with report.guard(module):
                check_module(report, module, rows, words)
    if only in "arguments":
        with report.guard("arguments"):
            check_arguments(report, found, words)
    if only in "operations":
        with report.guard("operations"):
            check_operations(report)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
