# Cases of the op benchmark: arithmetic, casts, reductions and cumulative sums for the types that cases_elements.py
# omits. See case.py.
from case import INPUTS, Input, case, of, square

INPUTS |= {
    "i8": Input("int8", of("t", "t"), -100, 100), "j8": Input("int8", of("t", "t"), 1, 20),
    "u8": Input("uint8", of("t", "t"), 0, 256), "v8": Input("uint8", of("t", "t"), 1, 20),
    "i16": Input("int16", of("d", "t"), -100, 100), "j16": Input("int16", of("d", "t"), 1, 20),
    "far": Input("float32", square, 0, 100), "en": Input("float64", of("d", "h"), 0.99, 1.01),
}


def binaries():
    """The PyTorch and TensorFlow expressions for Muster's `op` of x and y."""
    of_types = (("i16", "i16", "j16"), ("i8", "i8", "j8"), ("u8", "u8", "v8"))
    for name, torch, tf in (("add", "add", "AddV2"), ("multiply", "mul", "Mul"), ("maximum", "maximum", "Maximum"),
                            ("less", "lt", "Less")):
        for of_type, x, y in of_types:
            case(f"{name}_{of_type}", f"{x} {y}", f"torch.{torch}({x}, {y})", f"raw.{tf}(x={x}, y={y})", call=name)
    for name, torch, tf in (("floor_divide", "floor_divide", "FloorDiv"), ("mod", "remainder", "FloorMod")):
        for of_type, x, y in of_types + (("i64", "l", "l2"),):
            case(f"{name}_{of_type}", f"{x} {y}", f"torch.{torch}({x}, {y})", f"raw.{tf}(x={x}, y={y})", "math", call=name)
    case("floor_divide_f64", "e ep", "torch.floor_divide(e, ep)", "raw.FloorDiv(x=e, y=ep)", "math", call="floor_divide")
    for of_type, x, y in (("i64", "l", "l2"), ("f64", "e", "e2"), ("f16", "f", "f2"), ("bf16", "bf", "bf2")):
        case(f"equal_{of_type}", f"{x} {y}", f"torch.eq({x}, {y})", f"raw.Equal(x={x}, y={y})", call="equal")
        case(f"minimum_{of_type}", f"{x} {y}", f"torch.minimum({x}, {y})", f"raw.Minimum(x={x}, y={y})", call="minimum")
    for of_type, x, y, loose in (("f64", "e", "ep", 2e-5), ("f16", "f", "f2", 1e-3), ("bf16", "bf", "bf2", 8e-3)):
        case(f"divide_{of_type}", f"{x} {y}", f"torch.div({x}, {y})", f"raw.RealDiv(x={x}, y={y})", call="divide", tolerance=loose)
        case(f"subtract_{of_type}", f"{x} {y}", f"torch.sub({x}, {y})", f"raw.Sub(x={x}, y={y})", call="subtract", tolerance=loose)


def unaries():
    for of_type, x in (("i64", "l"), ("i8", "i8"), ("f16", "f"), ("bf16", "bf"), ("f64", "e")):
        for name in ("abs", "sign", "square"):
            tf = name.capitalize()
            if of_type != "i8" or name != "square":  # TensorFlow has no such square
                case(f"{name}_{of_type}", x, f"torch.{name}({x})", f"raw.{tf}(x={x})", call=name)


def casts():
    names = {"bool": ("bool", "bool"), "f64": ("float64", "double"), "f16": ("float16", "half"), "bf16": ("bfloat16", "bfloat16"),
             "f32": ("float32", "float32"), "i64": ("int64", "int64"), "i32": ("int32", "int32"), "i8": ("int8", "int8"),
             "u8": ("uint8", "uint8"), "i16": ("int16", "int16")}
    for source, x, targets in (("i64", "l", "f32 f64 i32 bool u8"), ("i32", "i", "i64 f64 i8 bf16"), ("f32", "far", "i8 u8 i16"),
                               ("bool", "m", "i32 i64 f16 bf16 u8"), ("f64", "e", "i32 i64 bf16"), ("u8", "u8", "i32 bf16 f16"),
                               ("i8", "i8", "f32 i32"), ("i16", "i16", "f32"), ("bf16", "bf", "f16 f64"), ("f16", "f", "bf16 i32")):
        for target in targets.split():
            torch, tf = names[target]
            case(f"cast_{source}_{target}", x, f"{x}.to(torch.{torch})", f"raw.Cast(x={x}, DstT=tf.{tf})", call=f"cast_{target}",
                 out=False)


def reductions():
    case("logsumexp_all", "a", "torch.logsumexp(a, dim=(0, 1))", "tf.reduce_logsumexp(a)", "math", tolerance=1e-4)
    for of_type, x in (("i32", "i"), ("i64", "l"), ("f64", "e"), ("u8", "u8"), ("bf16", "bf")):
        loose = 0
        for axis in (0, 1):
            ties = of_type in ("i32", "i64", "f64")  # PyTorch's choice among equals is another one
            case(f"argmax_{axis}_{of_type}", x, f"torch.argmax({x}, dim={axis})", f"raw.ArgMax(input={x}, dimension=axis{axis}[0])",
                 call=f"argmax_{axis}", compared=ties and of_type == "f64")
            case(f"max_{axis}_{of_type}", x, f"torch.amax({x}, dim={axis})", f"raw.Max(input={x}, axis=axis{axis})",
                 call=f"max_{axis}", tolerance=loose)
    for of_type, x in (("i64", "l"), ("f64", "e")):
        case(f"sum_0_{of_type}", x, f"torch.sum({x}, dim=0)", f"raw.Sum(input={x}, axis=axis0)", call="sum_0")
        case(f"mean_1_{of_type}", x, "" if of_type == "i64" else f"torch.mean({x}, dim=1)", f"raw.Mean(input={x}, axis=axis1)",
             call="mean_1")
    case("argmin_0", "a", "torch.argmin(a, dim=0)", "raw.ArgMin(input=a, dimension=axis0[0])")
    case("any_0", "m", "torch.any(m, dim=0)", "raw.Any(input=m, axis=axis0)")
    case("all_0", "m", "torch.all(m, dim=0)", "raw.All(input=m, axis=axis0)")


def running():
    for axis in (0, 1):
        for of_type, x in (("f64", "e"), ("i32", "i"), ("i64", "l"), ("bf16", "bf")):
            same = ", dtype=torch.int32" if of_type == "i32" else ""
            case(f"cumsum_{axis}_{of_type}", x, f"torch.cumsum({x}, dim={axis}{same})", f"raw.Cumsum(x={x}, axis=axis{axis}[0])",
                 "math", call=f"cumsum_{axis}", compared=of_type != "bf16", tolerance=1e-6)
    case("cumprod_0", "near1", "torch.cumprod(near1, dim=0)", "raw.Cumprod(x=near1, axis=axis0[0])", "math")
    case("cumprod_1_f64", "en", "torch.cumprod(en, dim=1)", "raw.Cumprod(x=en, axis=axis1[0])", "math", call="cumprod_1")
    case("cumsum_back_0", "a", "", "raw.Cumsum(x=a, axis=axis0[0], exclusive=True, reverse=True)", "math")


def normalized():
    for of_type, x, loose in (("f64", "e", 2e-5), ("f16", "f", 2e-3), ("bf16", "bf", 2e-2)):
        case(f"softmax_{of_type}", x, f"torch.softmax({x}, 1)", f"raw.Softmax(logits={x})", "math", call="softmax", tolerance=loose)
        case(f"log_softmax_{of_type}", x, f"torch.log_softmax({x}, 1)", f"raw.LogSoftmax(logits={x})", "math", call="log_softmax",
             tolerance=loose)


for family in (binaries, unaries, casts, reductions, running, normalized):
    family()
