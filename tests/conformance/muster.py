# A thin binding of libmuster.so for the conformance tests: ctypes over the exported functions.
#
# Signatures and argument structs are read from the public headers, so that nothing is written twice: a function is
# called by its C name, keyword arguments fill the struct of its `_with` form, Python lists become C arrays, and a
# pending error becomes an exception. Objects are plain handles that live as long as their pool.
# MU_TEST_DEVICE, for example XLA_CPU:0, names the device that computes; unset: the CPU.
# It must not know TensorFlow, nor anything of the library that the headers do not say.
import contextlib
import ctypes
import os
import pathlib
import re
import tempfile

import ml_dtypes
import numpy as np
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ("base", "tensor", "ops", "nn", "graph", "control", "engine", "comm", "cluster", "data", "example", "image", "io", "distribute", "weight", "layer", "spatial", "preprocessing", "text", "recurrent", "attention", "loss",
           "optimizer", "model", "callback", "checkpoint", "saved_model", "plot", "summary", "cancellation", "accumulator", "sharding", "parameter_server", "server", "embedding_table",
           "coordinator", "tpu")

NUMBERS = {
    "int": ctypes.c_int, "unsigned": ctypes.c_uint, "bool": ctypes.c_bool, "size_t": ctypes.c_size_t, "char": ctypes.c_char,
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double,
    "void": None, "mu_keyword_only": ctypes.c_void_p,
}
DTYPES = {
    np.dtype(np.float32): 1, np.dtype(np.float64): 2, np.dtype(np.int32): 3, np.dtype(np.uint8): 4, np.dtype(np.int16): 5,
    np.dtype(np.int8): 6, np.dtype(np.int64): 9, np.dtype(np.bool_): 10, np.dtype(ml_dtypes.bfloat16): 14,
    np.dtype(np.float16): 19,
}
NUMPY_TYPES = {number: dtype for dtype, number in DTYPES.items()}
ALL_AXES = -2**31
MU_STRING = 7
MU_INTERNAL = 13  # a status; the header lists them by a macro
STEP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class MusterError(Exception):
    """The library's error record: code as in mu_status, and the message."""

    def __init__(self, code, message):
        super().__init__(f"{message} (status {code})")
        self.code = code


class Declarations:
    """What the public headers declare: constants, structs and functions."""

    def __init__(self, folder):
        text = "\n".join((folder / f"{name}.h").read_text() for name in HEADERS)
        self.constants = {name: int(value) for name, value in re.findall(r"#define (MU_\w+) \(?(\d+)\)?\s", text)}
        text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", re.sub(r"//.*", "", text), flags=re.M)
        self.constants |= {name: int(value) for name, value in re.findall(r"\b(MU_[A-Z0-9_]+) = (-?\d+)", text)}
        self.enums = set(re.findall(r"typedef enum (\w+) \{", text))
        self.pointers = set(re.findall(r"MU_ANY\((\w+),", text))  # an object of several types, or its name
        self.structs = {}
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.S):
            texts = {}  # how each member that is not a callback is declared
            self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": self.fields(body, texts), "texts": texts})
        found = re.findall(r"MU_API ([^;{]*?\b\*?)(mu_\w+)\(((?:[^()]|\([^()]*\))*)\)[^;]*;", text)
        self.functions = {name: (result.strip(), " ".join(arguments.split())) for result, name, arguments in found}

    def type_of(self, text):
        text = text.strip()
        if "(*" in text or "**" in text or "*const" in text:
            return ctypes.c_void_p
        if "*" in text:
            return ctypes.c_char_p if re.match(r"(const )?char \*", text) else ctypes.c_void_p
        word = text.replace("const ", "").split()[0]
        if word in self.enums:
            return ctypes.c_int
        if word in self.pointers:
            return ctypes.c_void_p
        return self.structs[word] if word in self.structs else NUMBERS[word]

    def fields(self, body, texts):
        fields = []
        for line in filter(None, (" ".join(part.split()) for part in body.split(";"))):
            callback = re.search(r"\(\*(?:const )?(\w+)\)\(", line)
            if callback:
                fields.append((callback[1], ctypes.c_void_p))
                continue
            base = re.match(r"(?:const )?(?:struct )?\w+ ", line)[0]
            for declarator in line[len(base):].split(","):
                kind = self.type_of(base + declarator.strip())
                name, length = re.match(r"[* ]*(?:const \*)?(\w+)(?:\[(\w+)\])?", declarator.strip()).groups()
                if length:
                    kind *= int(length) if length.isdigit() else self.constants[length]
                fields.append((name, kind))
                texts[name] = base + declarator
        return fields


def to_c(value, declaration=""):
    """Python values as ctypes takes them: text becomes bytes, lists become arrays of what the declaration points to."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (list, tuple)):
        if "char" in declaration:
            return (ctypes.c_char_p * len(value))(*(item.encode() for item in value))
        pointee = ctypes.c_int64 if "int64_t *" in declaration else ctypes.c_int if "int *" in declaration else ctypes.c_void_p
        return (pointee * max(len(value), 1))(*value)
    return value


class Library:
    """libmuster.so, started with `cpu_devices` logical devices. mu.mu_name(...) calls any exported function."""

    def __init__(self, path, cpu_devices=1):
        self.lib = ctypes.CDLL(str(path))
        self.declared = Declarations(ROOT / "include" / "muster")
        self.end = ctypes.addressof(ctypes.c_char.in_dll(self.lib, "mu_list_end"))
        self.failure = None
        self.cached = {}
        self.mu_init(cpu_devices=cpu_devices, seed=1)
        self.device = os.environ.get("MU_TEST_DEVICE", "")
        self.strategy = self.mu_one_device_strategy(self.device) if self.device else None  # of functions and models
        self.mu_set_strategy(self.strategy)
        self.pools, self.unset = 0, False

    def __getattr__(self, name):
        if not name.startswith("mu_"):
            raise AttributeError(name)
        if name not in self.cached:
            self.cached[name] = self.keyword_call(name) if f"{name}_with" in self.declared.functions else self.plain_call(name)
        return self.cached[name]

    def bind(self, name):
        result, arguments = self.declared.functions[name]
        function = self.lib[name]
        declarations = [] if arguments == "void" else re.split(r",\s*(?![^()]*\))", arguments)
        function.restype = self.declared.type_of(result + " ")
        # An array as a parameter is a pointer.
        function.argtypes = [ctypes.c_void_p if declaration.endswith("]") else self.declared.type_of(declaration)
                             for declaration in declarations]
        return function, declarations

    def plain_call(self, name):
        function, declarations = self.bind(name)

        def call(*arguments):
            kept = [to_c(value, declaration) for value, declaration in zip(arguments, declarations, strict=True)]
            result = function(*kept)
            self.check()
            return result

        return call

    def keyword_call(self, name):
        function, declarations = self.bind(f"{name}_with")
        struct = self.declared.structs[re.search(r"mu_\w+_args", declarations[0])[0]]
        kinds = dict(struct._fields_)
        in_order = [field for field, _ in struct._fields_][2:]  # after size and given

        def call(*positional, **options):
            options = dict(zip(in_order, positional)) | options
            for key in [key for key, value in options.items() if isinstance(value, (list, tuple, ctypes.Array))]:
                if f"n_{key}" in kinds:  # the length of an array is the member beside it
                    options.setdefault(f"n_{key}", len(options[key]))
            is_array = {key: isinstance(kinds[key], type) and issubclass(kinds[key], ctypes.Array) for key in options}
            kept = {key: value if is_array[key] else to_c(value, struct.texts.get(key, "")) for key, value in options.items()}
            named = ", ".join(f".{key}" for key in options).encode()
            args = struct(size=ctypes.sizeof(struct), given=named)
            for key, value in kept.items():
                if is_array[key]:
                    value = kinds[key](*value)
                elif isinstance(value, (ctypes.Array, ctypes._CFuncPtr)):
                    value = ctypes.cast(value, ctypes.c_void_p)
                elif isinstance(value, bytes) and kinds[key] is ctypes.c_void_p:  # a name in place of an object
                    value = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
                setattr(args, key, value)
            result = function(ctypes.byref(args))
            self.check()
            return result

        return call

    def check(self):
        """Raises what a callback or the library left behind."""
        self.lib.mu_error_code.restype = ctypes.c_int
        if not self.lib.mu_error_code():
            self.failure = None  # of a callback that was called again and did not fail
            return
        self.lib.mu_error_take.restype = self.declared.structs["mu_error"]
        error = self.lib.mu_error_take()
        failure, self.failure = self.failure, None
        if failure:
            raise failure
        raise MusterError(error.code, error.message.decode())

    def call_back(self, function, failed):
        """Runs a callback's Python; an exception becomes the library's error and is raised again by the outer call."""
        try:
            return function()
        except Exception as error:  # whatever it is must not cross C
            self.failure = error
            self.lib.mu_fail_at.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p]
            code = error.code if isinstance(error, MusterError) else MU_INTERNAL
            self.lib.mu_fail_at(code, b"python", 0, b"a Python callback failed")
            return failed

    @contextlib.contextmanager
    def pool(self):
        opened = self.mu_pool_open()
        self.pools += 1
        try:
            yield
        finally:
            self.lib.mu_pool_close(ctypes.c_void_p(opened))
            self.pools -= 1
            if self.unset and self.pools == 0:
                self.mu_set_strategy(self.strategy)
                self.unset = False

    @contextlib.contextmanager
    def scope(self, strategy):
        """A device is in force outside of scopes only: pools that close then set it again."""
        if self.device:
            self.mu_set_strategy(None)
            self.unset = True
        guard = self.mu_scope_open(strategy)
        try:
            yield
        finally:
            self.lib.mu_scope_close(ctypes.byref(guard))

    def mirrored(self, n):
        """Mirrored replicas on n devices of the kind that computes."""
        kind = self.device.partition(":")[0] or "CPU"
        names = (ctypes.c_char_p * (n + 1))(*(f"{kind}:{i}".encode() for i in range(n)))
        return self.mu_mirrored_strategy(devices=names)

    # ---- Tensors and values -----------------------------------------------------------------------

    def tensor(self, array):
        array = np.asarray(array)
        data = np.ascontiguousarray(array)
        return self.mu_tensor_new(DTYPES[array.dtype], array.ndim, list(array.shape), data.ctypes.data)

    def any_tensor(self, array):
        """A tensor of numbers, or of strings if the array's elements are objects: bytes."""
        array = np.asarray(array)
        if array.dtype != object:
            return self.tensor(array)
        kind = self.declared.structs["mu_string"]
        strings = (kind * max(array.size, 1))(*(kind(bytes(item), len(item)) for item in array.ravel()))
        return self.mu_tensor_byte_strings(array.ndim, list(array.shape), ctypes.addressof(strings))

    def array(self, tensor):
        shape = self.mu_tensor_shape(tensor)
        if self.mu_tensor_dtype(tensor) == MU_STRING:
            out = np.empty(shape.dims[:shape.rank], object)
            for i in range(out.size):
                string = self.mu_tensor_string(tensor, i)
                address = ctypes.cast(ctypes.pointer(string), ctypes.POINTER(ctypes.c_void_p))[0]
                out[np.unravel_index(i, out.shape)] = ctypes.string_at(address, string.n)
            return out
        out = np.empty(shape.dims[:shape.rank], NUMPY_TYPES[self.mu_tensor_dtype(tensor)])
        self.mu_tensor_copy_to(tensor, out.ctypes.data, out.nbytes)
        return out

    def values(self, tensors):
        """A mu_value list of tensors."""
        return self.mu_list_of(len(tensors), [self.mu_of(tensor) for tensor in tensors])

    def variables(self, handles):
        """A mu_value list of variables."""
        self.lib.mu_variables.restype = ctypes.c_void_p
        result = self.lib.mu_variables(*(ctypes.c_void_p(handle) for handle in [*handles, self.end]))
        self.check()
        return result

    def function(self, step):
        """A mu_function of step(batch) -> mu_value; returns it with what must stay alive as long as it does."""
        callback = STEP(lambda batch, _: self.call_back(lambda: step(batch), None))
        return self.mu_function_new(fn=callback), callback

    # ---- Models -----------------------------------------------------------------------------------

    def model(self, layers):
        return self.mu_sequential_of([*layers, self.end])

    def read_state(self, optimizer):
        """Every tensor of an optimizer's state by its name in a checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "state.safetensors"
            self.mu_checkpoint_save(self.mu_checkpoint_new(optimizer=optimizer), str(path))
            return safetensors.numpy.load_file(path)

    def read_weights(self, model):
        """Every weight by its name, in the order of layers; none on workers other than the chief, which writes them."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "weights.safetensors"
            self.mu_save_weights(model, str(path))
            return safetensors.numpy.load_file(path) if path.exists() else {}

    def write_weights(self, model, weights):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/weights.safetensors"
            safetensors.numpy.save_file(weights, path)
            self.mu_load_weights(model, path)
