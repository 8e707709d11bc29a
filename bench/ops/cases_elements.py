# Cases of the op benchmark: element-wise ops, casts, reductions, cumulative sums. See case.py.
from case import INPUTS, Input, case, of

INPUTS["c3"] = Input("float32", lambda size: {"1k": (4, 16, 4), "64k": (16, 64, 16), "4m": (64, 256, 64), "64m": (256, 1024, 64)}[size])


def unary(name, x="a", torch=None, tf=None, **options):
    options.setdefault("kind", "math")
    case(name, x, f"torch.{torch or name}({x})", f"raw.{tf or name.capitalize()}(x={x})", **options)


def arithmetic():
    for name, torch, tf, y, kind in (
            ("add", "add", "AddV2", "b", "memory"), ("subtract", "sub", "Sub", "b", "memory"),
            ("multiply", "mul", "Mul", "b", "memory"), ("divide", "div", "RealDiv", "q", "memory"),
            ("maximum", "maximum", "Maximum", "b", "memory"), ("minimum", "minimum", "Minimum", "b", "memory"),
            ("floor_divide", "floor_divide", "FloorDiv", "q", "math"), ("mod", "remainder", "FloorMod", "q", "math"),
            ("equal", "eq", "Equal", "b", "memory"),
            ("not_equal", "ne", "NotEqual", "b", "memory"), ("less", "lt", "Less", "b", "memory"),
            ("less_equal", "le", "LessEqual", "b", "memory"), ("greater", "gt", "Greater", "b", "memory"),
            ("greater_equal", "ge", "GreaterEqual", "b", "memory")):
        case(name, f"a {y}", f"torch.{torch}(a, {y})", f"raw.{tf}(x=a, y={y})", kind)
    case("atan2", "a b", "torch.atan2(a, b)", "raw.Atan2(y=a, x=b)", "math")
    case("divide_no_nan", "a q", "", "raw.DivNoNan(x=a, y=q)")
    case("squared_difference", "a b", "", "raw.SquaredDifference(x=a, y=b)")
    case("pow", "p b", "torch.pow(p, b)", "raw.Pow(x=p, y=b)", "math", tolerance=1e-4)
    for name, y in (("scalar", "s"), ("row", "row"), ("column", "col")):
        case(f"add_{name}", f"a {y}", f"torch.add(a, {y})", f"raw.AddV2(x=a, y={y})", call="add")
    case("multiply_row", "a row", "torch.mul(a, row)", "raw.Mul(x=a, y=row)", call="multiply")
    case("add_outer", "row col", "torch.add(row, col)", "raw.AddV2(x=row, y=col)", call="add")
    for x, y, of_type in (("i", "j", "i32"), ("l", "l2", "i64"), ("e", "e2", "f64"), ("f", "f2", "f16"), ("bf", "bf2", "bf16")):
        loose = {"f16": 1e-3, "bf16": 8e-3}.get(of_type, 2e-5)  # one rounding in the type
        case(f"add_{of_type}", f"{x} {y}", f"torch.add({x}, {y})", f"raw.AddV2(x={x}, y={y})", call="add", tolerance=loose)
        case(f"multiply_{of_type}", f"{x} {y}", f"torch.mul({x}, {y})", f"raw.Mul(x={x}, y={y})", call="multiply",
             tolerance=loose)
    case("floor_divide_i32", "i j", "torch.floor_divide(i, j)", "raw.FloorDiv(x=i, y=j)", "math", call="floor_divide")
    case("mod_i32", "i j", "torch.remainder(i, j)", "raw.FloorMod(x=i, y=j)", "math", call="mod")
    case("less_i32", "i j", "torch.lt(i, j)", "raw.Less(x=i, y=j)", call="less")
    case("maximum_bf16", "bf bf2", "torch.maximum(bf, bf2)", "raw.Maximum(x=bf, y=bf2)", call="maximum")
    for name in ("and", "or", "xor"):
        tf = f"raw.Logical{name.capitalize()}(x=m, y=m2)" if name != "xor" else "raw.NotEqual(x=m, y=m2)"
        case(f"logical_{name}", "m m2", f"torch.logical_{name}(m, m2)", tf)
    case("logical_not", "m", "torch.logical_not(m)", "raw.LogicalNot(x=m)")
    case("where", "m a b", "torch.where(m, a, b)", "raw.SelectV2(condition=m, t=a, e=b)")
    case("where_scalar", "m a s", "torch.where(m, a, s)", "raw.SelectV2(condition=m, t=a, e=s)", call="where")
    case("clip_by_value", "a low high", "torch.clamp(a, low, high)", "raw.ClipByValue(t=a, clip_value_min=low, clip_value_max=high)")


# Functions of the other float types: 16-bit floats up to 4 MB only, since compute-bound ops do not change beyond
# that.
FLOATS = (("f64", "e", 2e-5, "64m"), ("f16", "f", 2e-3, "4m"), ("bf16", "bf", 1.6e-2, "4m"))
for of_type, letter in (("float64", "e"), ("float16", "f"), ("bfloat16", "bf")):
    columns = {"float64": "h"}.get(of_type, "t")
    INPUTS[letter + "p"] = Input(of_type, of("d", columns), 0.1, 4)
    INPUTS[letter + "u"] = Input(of_type, of("d", columns), -0.95, 0.95)
    INPUTS[letter + "g"] = Input(of_type, of("d", columns), 1.1, 4)


def other_floats():
    domains = {"": ("exp", "expm1", "erf", "erfc", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "sigmoid"),
               "p": ("log", "log1p", "sqrt", "rsqrt", "lgamma", "digamma"), "u": ("asin", "acos", "atanh"), "g": ("acosh",)}
    activations = (("elu", "F.elu({})", "raw.Elu(features={})"), ("selu", "F.selu({})", "raw.Selu(features={})"),
                   ("gelu", "F.gelu({})", "tf.nn.gelu({})"), ("silu", "F.silu({})", "tf.nn.silu({})"),
                   ("gelu_tanh", "F.gelu({}, approximate='tanh')", "tf.nn.gelu({}, approximate=True)"),
                   ("mish", "F.mish({})", "{0} * tf.tanh(tf.nn.softplus({0}))"),
                   ("softplus", "F.softplus({})", "raw.Softplus(features={})"),
                   ("log_sigmoid", "F.logsigmoid({})", "tf.math.log_sigmoid({})"))
    for of_type, letter, tolerance, largest in FLOATS:
        rest = {"tolerance": tolerance, "largest": largest}
        for domain, names in domains.items():
            for name in names:
                unary(f"{name}_{of_type}", letter + domain, name, name.capitalize(), call=name, **rest)
        for name, torch, tf in activations:
            # TensorFlow rounds to bfloat16 before it takes these two logarithms, which moves the result by three places.
            more = {"tolerance": 3e-2} if of_type == "bf16" and name in ("softplus", "log_sigmoid") else {}
            case(f"{name}_{of_type}", letter, torch.format(letter), tf.format(letter), "math", call=name, out=False, **(rest | more))
        x, y = letter + "p", letter
        case(f"pow_{of_type}", f"{x} {y}", f"torch.pow({x}, {y})", f"raw.Pow(x={x}, y={y})", "math", call="pow", **rest)
        case(f"atan2_{of_type}", f"{y} {x}", f"torch.atan2({y}, {x})", f"raw.Atan2(y={y}, x={x})", "math", call="atan2", **rest)
        case(f"mod_{of_type}", f"{y} {x}", f"torch.remainder({y}, {x})", f"raw.FloorMod(x={y}, y={x})", "math", call="mod", **rest)


def elementwise():
    for name in ("abs", "neg", "sign", "square", "floor", "ceil", "reciprocal"):
        unary(name, kind="memory")
    case("round", "a", "torch.round(a)", "raw.Rint(x=a)")
    for x, of_type in (("i", "i32"), ("e", "f64"), ("bf", "bf16")):
        unary(f"neg_{of_type}", x, "neg", "Neg", call="neg", kind="memory")
    for name in ("exp", "expm1", "erf", "erfc", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "sigmoid"):
        unary(name, tolerance=1e-4 if name == "tan" else 2e-5)
    for name in ("log", "log1p", "sqrt", "rsqrt", "lgamma", "digamma"):
        unary(name, "p", kind="memory" if name == "sqrt" else "math")
    for name in ("asin", "acos", "atanh"):
        unary(name, "u")
    unary("acosh", "g")
    other_floats()
    for name, torch, tf in (("is_nan", "isnan", "IsNan"), ("is_inf", "isinf", "IsInf"), ("is_finite", "isfinite", "IsFinite")):
        unary(name, "a", torch, tf, kind="memory", out=False)
    for name, torch, tf, kind in (
            ("relu", "F.relu(a)", "raw.Relu(features=a)", "memory"), ("relu6", "F.relu6(a)", "raw.Relu6(features=a)", "memory"),
            ("leaky_relu", "F.leaky_relu(a, 0.2)", "raw.LeakyRelu(features=a, alpha=0.2)", "memory"),
            ("elu", "F.elu(a)", "raw.Elu(features=a)", "math"), ("selu", "F.selu(a)", "raw.Selu(features=a)", "math"),
            ("gelu", "F.gelu(a)", "tf.nn.gelu(a)", "math"),
            ("gelu_tanh", "F.gelu(a, approximate='tanh')", "tf.nn.gelu(a, approximate=True)", "math"),
            ("silu", "F.silu(a)", "tf.nn.silu(a)", "math"), ("mish", "F.mish(a)", "a * tf.tanh(tf.nn.softplus(a))", "math"),
            ("softplus", "F.softplus(a)", "raw.Softplus(features=a)", "math"),
            ("softsign", "F.softsign(a)", "raw.Softsign(features=a)", "memory"),
            ("log_sigmoid", "F.logsigmoid(a)", "tf.math.log_sigmoid(a)", "math"),
            ("hard_sigmoid", "F.hardsigmoid(a)", "tf.nn.relu6(a + 3.0) / 6.0", "memory")):
        case(name, "a", torch, tf, kind, out=False)
    for name, x, torch, tf in (
            ("cast_f64", "a", "float64", "double"), ("cast_i32", "a", "int32", "int32"), ("cast_f16", "a", "float16", "half"),
            ("cast_bf16", "a", "bfloat16", "bfloat16"), ("cast_i64", "a", "int64", "int64"), ("cast_bool", "a", "bool", "bool"),
            ("cast_f32", "i", "float32", "float32")):
        case(name, x, f"{x}.to(torch.{torch})", f"raw.Cast(x={x}, DstT=tf.{tf})", out=False)
    for x, of_type in (("by", "u8"), ("f", "f16"), ("bf", "bf16"), ("m", "bool"), ("e", "f64")):
        case(f"cast_{of_type}_f32", x, f"{x}.to(torch.float32)", f"raw.Cast(x={x}, DstT=tf.float32)", call="cast_f32", out=False)


def reductions():
    for name, torch, tf in (("sum", "sum", "Sum"), ("mean", "mean", "Mean"), ("max", "amax", "Max"), ("min", "amin", "Min")):
        for axis in (0, 1):
            case(f"{name}_{axis}", "a", f"torch.{torch}(a, dim={axis})", f"raw.{tf}(input=a, axis=axis{axis})",
                 tolerance=1e-4)
        case(f"{name}_all", "a", f"torch.{torch}(a)", f"raw.{tf}(input=a, axis=axis01)", out=False, tolerance=1e-4)
    case("sum_02", "c3", "torch.sum(c3, dim=(0, 2))", "raw.Sum(input=c3, axis=axis02)", tolerance=5e-5)
    case("sum_1_f64", "e", "torch.sum(e, dim=1)", "raw.Sum(input=e, axis=axis1)", call="sum_1")
    case("sum_1_bf16", "bf", "torch.sum(bf, dim=1)", "raw.Sum(input=bf, axis=axis1)", call="sum_1", tolerance=1e-2)
    case("sum_0_i32", "i", "torch.sum(i, dim=0, dtype=torch.int32)", "raw.Sum(input=i, axis=axis0)", call="sum_0")
    for axis in (0, 1):
        case(f"prod_{axis}", "near1", f"torch.prod(near1, dim={axis})", f"raw.Prod(input=near1, axis=axis{axis})",
             tolerance=5e-5)
    for name, x in (("any", "zeros"), ("all", "ones")):
        case(f"{name}_all", x, f"torch.{name}({x})", f"raw.{name.capitalize()}(input={x}, axis=axis01)", out=False)
        case(f"{name}_1", x, f"torch.{name}({x}, dim=1)", f"raw.{name.capitalize()}(input={x}, axis=axis1)")
    for axis in (0, 1):
        case(f"logsumexp_{axis}", "a", f"torch.logsumexp(a, dim={axis})", f"tf.reduce_logsumexp(a, axis={axis})", "math")
        case(f"variance_{axis}", "a", f"torch.var(a, dim={axis}, correction=0)", f"tf.math.reduce_variance(a, axis={axis})", "math")
        case(f"argmax_{axis}", "a", f"torch.argmax(a, dim={axis})", f"raw.ArgMax(input=a, dimension=axis{axis}[0])")
    case("std_1", "a", "torch.std(a, dim=1, correction=0)", "tf.math.reduce_std(a, axis=1)", "math")
    case("argmin_1", "a", "torch.argmin(a, dim=1)", "raw.ArgMin(input=a, dimension=axis1[0])")
    for axis in (0, 1):
        case(f"cumsum_{axis}", "a", f"torch.cumsum(a, dim={axis})", f"raw.Cumsum(x=a, axis=axis{axis}[0])", "math")
    case("cumsum_back", "a", "", "raw.Cumsum(x=a, axis=axis1[0], exclusive=True, reverse=True)", "math")
    case("cumprod_1", "near1", "torch.cumprod(near1, dim=1)", "raw.Cumprod(x=near1, axis=axis1[0])", "math")


arithmetic()
elementwise()
reductions()
