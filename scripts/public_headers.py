# What the public headers declare, read for scripts/make_lines and scripts/describe_interface.
#
# The headers keep to a form that is easy to read: one declaration per statement, `typedef struct NAME { … } NAME;`,
# comments with // before a declaration or behind a member.
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include" / "muster"
NOT_FOR_PROGRAMS = {"lines.h", "network.h"}  # macros of names declared elsewhere; what modules implement
# A type that programs see only as a pointer, or another name for one.
OBJECT = re.compile(r"^typedef (?:struct )?(mu_\w+) (mu_\w+);", re.M)
OPTIONS = re.compile(r"size_t size;\s*const char \*given;")


def headers():
    """Names of the headers, in the order in which <muster.h> includes them."""
    text = (ROOT / "include" / "muster.h").read_text()
    return [name for name in re.findall(r"#include <muster/(\w+\.h)>", text) if name not in NOT_FOR_PROGRAMS]


def words(text):
    return " ".join(text.split())


def without_comments(text):
    return re.sub(r"//.*", "", text)


def split(text, at=","):
    """Splits at characters outside of parentheses."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == at and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part for part in map(words, [*parts, text[begin:]]) if part]


def callback(text):
    """A declarator such as mu_value *(*fn)(mu_value *element, void *arg); None if it is none."""
    found = re.fullmatch(r"(.*?)\(\*(?:const )?(\w*)\)\((.*)\)", words(text))
    if not found:
        return None
    return {"name": found[2], "type": "callback", "result": found[1].strip(), "parameters": parameters(found[3])}


def declarator(base, text):
    """The member or parameter that `text` declares: `*const *items`, `dims[4]`."""
    stars, name, count = re.fullmatch(r"((?:\*|const\b|\s)*)(\w*)\s*(?:\[(\w*)\])?", text.strip()).groups()
    field = {"name": name, "type": words(f"{base} {stars}")}
    return field | ({"count": count} if count else {})


def declarators(text):
    """What one statement declares: `int filters, kernel_size` declares two members."""
    found = callback(text)
    if found:
        return [found]
    base, rest = re.match(r"((?:const )?(?:struct |enum )?\w+)\s*(.*)", words(text), re.S).groups()
    return [declarator(base, part) for part in split(rest) or [""]]


def parameters(text):
    return [] if words(text) in ("", "void") else [
        {"name": "...", "type": "..."} if part == "..." else declarators(part)[0] for part in split(text)]


def comment_before(text, position):
    """The // lines that end where a declaration begins, or its macro."""
    lines = text[:position].rstrip(" ").split("\n")[:-1]
    while lines and (lines[-1].startswith("#define") or (len(lines) > 1 and lines[-2].endswith("\\"))):
        lines.pop()
    found = []
    while lines and lines[-1].startswith("//") and not lines[-1].startswith("// ----"):
        found.insert(0, lines.pop()[2:].strip())
    return words(" ".join(found))


def members(body):
    """Members of a struct, with their comments: behind the member, or on the lines before it."""
    fields, before, positional = [], [], True
    for statement in re.finditer(r"[ \t]*//(?P<line>[^\n]*)\n|(?P<code>[^;/]+);[ \t]*(?://(?P<behind>[^\n]*))?", body):
        if statement["line"] is not None:
            before.append(statement["line"].strip())
            continue
        doc = words(" ".join([*before, statement["behind"] or ""]))
        before = []
        for field in declarators(statement["code"]):
            positional = positional and field["type"] != "mu_keyword_only"
            fields.append(field | ({"doc": doc} if doc else {}) | {"positional": positional})
    return fields


def structs(text):
    for found in re.finditer(r"^typedef struct (\w+) \{\n(.*?)^\} \1;", text, re.M | re.S):
        options = bool(OPTIONS.search(found[2]))
        fields = members(found[2])
        for field in fields:
            positional = field.pop("positional")
            if options and positional and field["name"] not in ("size", "given"):
                field["positional"] = True
        yield {"name": found[1], "doc": comment_before(text, found.start()), "options": options, "fields": fields}


def list_entries(text, name):
    """The pairs of a list macro: #define MU_STATUS_LIST(X) X(OK, 0) …"""
    body = re.search(rf"#define {name}\(X\)((?:[^\n]*\\\n)*[^\n]*)", text)[1]
    return re.findall(r"X\((\w+), (-?\w+)\)", body)


def enums(text):
    for found in re.finditer(r"^typedef enum (\w+) \{(.*?)\} \1;", text, re.M | re.S):
        body, number, values = without_comments(found[2]), -1, []
        entries = split(re.sub(r"^#.*$", "", body, flags=re.M))
        uses = re.fullmatch(r"(\w+_LIST)\(\w+\)", words(" ".join(entries)))
        for entry in [f"MU_{word} = {value}" for word, value in list_entries(text, uses[1])] if uses else entries:
            name, _, value = entry.partition(" = ")
            number = int(value, 0) if value else number + 1
            values.append({"name": name, "value": number})
        yield {"name": found[1], "doc": comment_before(text, found.start()), "values": values}


def functions(text):
    macros = dict(re.findall(r"^#define (mu_\w+)\(\.\.\.\)(?:\s|\\\n)*(mu_\w+)\(MU_ARGS", text, re.M))
    named = {function: macro for macro, function in macros.items()}
    for found in re.finditer(r"^MU_API\s+([^;{]*?[\s*])(mu_\w+)\(((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*)\)[^;{]*;",
                             text, re.M):
        name = found[2]
        function = {"name": name, "doc": comment_before(text, found.start()), "result": words(found[1]),
                    "parameters": parameters(without_comments(found[3]))}
        yield function | ({"macro": named[name]} if name in named else {})


def number(text):
    return sum(int(part.replace("INT_MIN", str(-2**31))) for part in text.split(" + "))


def read(name):
    """Everything that one header declares; \"any\" are pointers of one of several types."""
    text = (INCLUDE / name).read_text()
    plain = without_comments(text)
    constants = re.findall(r"^#define (MU_[A-Z0-9_]+) \(?(?:\(int64_t\))?(INT_MIN(?: \+ \d+)?|-?\d+)\)?(?:$|\s)", text, re.M)
    kinds = re.findall(r"^typedef ([^;{}]*?)\b(mu_\w+)\(([^;{}]*)\);", plain, re.M)
    return {
        "constants": [{"name": constant, "value": number(value)} for constant, value in constants],
        "enums": list(enums(text)),
        "structs": list(structs(text)),
        "objects": sorted(name for _, name in OBJECT.findall(plain)),
        "any": [{"name": kind, "types": split(types)} for kind, types in re.findall(r"^MU_ANY\((\w+), ([^;]*)\);", plain, re.M)],
        "callbacks": [{"name": kind, "result": words(result), "parameters": parameters(arguments)}
                      for result, kind, arguments in kinds],
        "data": [{"name": name, "type": words(kind)}
                 for kind, name in re.findall(r"^MU_API extern ([^;(]*?)(\w+);", plain, re.M)],
        "functions": list(functions(text)),
    }
