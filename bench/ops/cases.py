# The cases of the bench of ops: what each is called in Muster's table (calls.c), its inputs, the same computation in
# PyTorch and in TensorFlow (expressions over the inputs' names), and how it is judged: `memory` against the bytes that
# must move, `math` only against rivals, `product` among matrix products and convolutions.
# Inputs are made per size: a square matrix of float32 has SIZE bytes, so its side is 16, 128, 1024 or 4096.
# It must not know how anything is timed.
import dataclasses

SIZES = {"1k": 1 << 10, "64k": 1 << 16, "4m": 1 << 22, "64m": 1 << 26}
SIDES = {"1k": 16, "64k": 128, "4m": 1024, "64m": 4096}
IMAGES = {"1k": (1, 8, 8, 4), "64k": (4, 16, 16, 16), "4m": (16, 32, 32, 64), "64m": (64, 64, 64, 64)}


@dataclasses.dataclass(frozen=True)
class Input:
    """`shape` from the size's name; elements uniform between low and high (booleans, integers: high not included)."""
    dtype: str
    shape: object
    low: float = -3.0
    high: float = 3.0


def square(size):
    return (SIDES[size], SIDES[size])


def of(*axes):
    """A shape by letters: d the side, i image axes, numbers themselves, h half and t twice the side."""
    def shape(size):
        side, image = SIDES[size], IMAGES[size]
        named = {"d": side, "h": side // 2, "t": 2 * side, "q": side // 4, "n": side * side, "c": image[3],
                 "b": max(1, side // 64), "s": min(side, 64), "p": side * side // (max(1, side // 64) * min(side, 64))}
        return tuple(named.get(axis, axis) for axis in axes)
    return shape


def image(size):
    return IMAGES[size]


INPUTS = {
    "a": Input("float32", square), "b": Input("float32", square),
    "p": Input("float32", square, 0.1, 4), "q": Input("float32", square, 0.1, 4),
    "u": Input("float32", square, -0.95, 0.95), "g": Input("float32", square, 1.1, 4),
    "near1": Input("float32", square, 0.99, 1.01),
    "s": Input("float32", of()), "low": Input("float32", of(), -1, -0.5), "high": Input("float32", of(), 0.5, 1),
    "row": Input("float32", of("d")), "row2": Input("float32", of("d")), "col": Input("float32", of("d", 1)),
    "c1": Input("float32", of("d", 1, "d")),
    "i": Input("int32", square, -100, 100), "j": Input("int32", square, 1, 20),
    "l": Input("int64", of("d", "h"), -100, 100), "l2": Input("int64", of("d", "h"), 1, 20),
    "by": Input("uint8", of("d", "d"), 0, 256),
    "m": Input("bool", square, 0, 2), "m2": Input("bool", square, 0, 2),
    "ones": Input("bool", square, 1, 2), "zeros": Input("bool", square, 0, 1),
    "e": Input("float64", of("d", "h")), "e2": Input("float64", of("d", "h")),
    "ep": Input("float64", of("d", "h"), 0.1, 4),
    "f": Input("float16", of("d", "t")), "f2": Input("float16", of("d", "t")),
    "bf": Input("bfloat16", of("d", "t")), "bf2": Input("bfloat16", of("d", "t")),
    "k": Input("int64", of("d"), 0, "d"), "kk": Input("int64", square, 0, "d"), "k32": Input("int32", of("d"), 0, "d"),
    "knd": Input("int64", of("n", 2), 0, "d"), "kr": Input("int64", of("d", 1), 0, "d"),
    "many": Input("int64", of("n"), 0, 1000), "seed": Input("int64", of(2), 1, 1000),
    "sorted": Input("float32", of("n")), "flat": Input("float32", of("n")),
    "prob": Input("float32", square, 0, 1),
    "x": Input("float32", image), "w": Input("float32", of(3, 3, "c", "c"), -0.1, 0.1),
    "w1": Input("float32", of(1, 1, "c", "c"), -0.1, 0.1), "wg": Input("float32", lambda size: (3, 3, IMAGES[size][3] // 4, IMAGES[size][3])),
    "wd": Input("float32", of(3, 3, "c", 1)), "ch": Input("float32", of("c")), "ch2": Input("float32", of("c"), 0.5, 2),
    "ch3": Input("float32", of("c")), "ch4": Input("float32", of("c"), 0.5, 2),
    "x1": Input("float32", lambda size: (IMAGES[size][0], IMAGES[size][1] * IMAGES[size][2], IMAGES[size][3])),
    "v1": Input("float32", of(3, "c", "c"), -0.1, 0.1),
    "bm": Input("float32", of("p", "s", "b")), "qu": Input("float32", lambda size: heads(size)),
    "ke": Input("float32", lambda size: heads(size)), "va": Input("float32", lambda size: heads(size)),
    "ba": Input("float32", lambda size: batched(size)), "bb": Input("float32", lambda size: batched(size)),
    "vec": Input("float32", of("d", 1)),
}


def heads(size):
    """Attention's [batch, heads, length, width]."""
    return {"1k": (1, 1, 16, 16), "64k": (1, 2, 128, 64), "4m": (2, 8, 1024, 64), "64m": (16, 16, 1024, 64)}[size]


def batched(size):
    return {"1k": (4, 8, 8), "64k": (16, 32, 32), "4m": (256, 64, 64), "64m": (1024, 128, 128)}[size]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str        # unique; Muster's row is `call` or this
    inputs: tuple
    torch: str       # "" where there is no such function
    tf: str
    kind: str
    call: str
    out: bool        # PyTorch's function takes out=
    tolerance: float
    setup: str       # PyTorch: statements run once on its inputs
    after: str       # PyTorch: how the result `y` becomes Muster's layout; not timed
    compared: bool   # whether results are compared element by element
    moved: str       # how its bytes are counted: read, copy, add or fill
    largest: str     # the largest size that is run


CASES = []


# Tolerances are for telling a wrong rival from a right one: sums of up to 16 million float32 in another order differ by
# up to 1e-3. How exact the ops are is what the conformance tests check.
def case(name, inputs, torch, tf, kind="memory", call=None, out=True, tolerance=2e-5, setup="", after="y",
         compared=True, moved=None, largest="64m"):
    inputs = tuple(inputs.split())
    moved = moved or ("add" if len(inputs) > 1 else "copy")
    CASES.append(Case(name, inputs, torch, tf, kind, call or name, out and "(" in torch, tolerance, setup, after,
                      compared, moved, largest))


def unary(name, x="a", torch=None, tf=None, **options):
    options.setdefault("kind", "math")
    case(name, x, f"torch.{torch or name}({x})", f"raw.{tf or name.capitalize()}(x={x})", **options)


def arithmetic():
    for name, torch, tf, y, kind in (
            ("add", "add", "AddV2", "b", "memory"), ("subtract", "sub", "Sub", "b", "memory"),
            ("multiply", "mul", "Mul", "b", "memory"), ("divide", "div", "RealDiv", "q", "memory"),
            ("maximum", "maximum", "Maximum", "b", "memory"), ("minimum", "minimum", "Minimum", "b", "memory"),
            ("floor_divide", "floor_divide", "FloorDiv", "q", "math"), ("mod", "remainder", "FloorMod", "q", "math"),
            ("atan2", "atan2", "Atan2", "b", "math"), ("equal", "eq", "Equal", "b", "memory"),
            ("not_equal", "ne", "NotEqual", "b", "memory"), ("less", "lt", "Less", "b", "memory"),
            ("less_equal", "le", "LessEqual", "b", "memory"), ("greater", "gt", "Greater", "b", "memory"),
            ("greater_equal", "ge", "GreaterEqual", "b", "memory")):
        case(name, f"a {y}", f"torch.{torch}(a, {y})", f"raw.{tf}(x=a, y={y})", kind)
    case("divide_no_nan", "a q", "", "raw.DivNoNan(x=a, y=q)")
    case("squared_difference", "a b", "", "raw.SquaredDifference(x=a, y=b)")
    case("pow", "p b", "torch.pow(p, b)", "raw.Pow(x=p, y=b)", "math", tolerance=1e-4)
    for name, y in (("scalar", "s"), ("row", "row"), ("column", "col")):
        case(f"add_{name}", f"a {y}", f"torch.add(a, {y})", f"raw.AddV2(x=a, y={y})", call="add", moved="copy")
    case("multiply_row", "a row", "torch.mul(a, row)", "raw.Mul(x=a, y=row)", call="multiply", moved="copy")
    case("add_outer", "row col", "torch.add(row, col)", "raw.AddV2(x=row, y=col)", call="add", moved="fill")
    for x, y, of_type in (("i", "j", "i32"), ("l", "l2", "i64"), ("e", "e2", "f64"), ("f", "f2", "f16"), ("bf", "bf2", "bf16")):
        loose = {"f16": 2e-3, "bf16": 2e-2}.get(of_type, 2e-5)
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
    case("where_scalar", "m a s", "torch.where(m, a, s)", "raw.SelectV2(condition=m, t=a, e=s)", call="where", moved="copy")
    case("clip_by_value", "a low high", "torch.clamp(a, low, high)", "raw.ClipByValue(t=a, clip_value_min=low, clip_value_max=high)",
         moved="copy")


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
    for name, x, y in (("exp", "e", "bf"), ("log", "ep", ""), ("tanh", "e", "bf"), ("sigmoid", "e", "bf"), ("sin", "e", ""),
                       ("sqrt", "ep", "")):
        unary(f"{name}_f64", x, name, name.capitalize(), call=name)
        if y:
            unary(f"{name}_bf16", y, name, name.capitalize(), call=name, tolerance=2e-2)
    unary("tanh_f16", "f", "tanh", "Tanh", call="tanh", tolerance=2e-3)
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
            case(f"{name}_{axis}", "a", f"torch.{torch}(a, dim={axis})", f"raw.{tf}(input=a, axis=axis{axis})", moved="read",
                 tolerance=1e-4)
        case(f"{name}_all", "a", f"torch.{torch}(a)", f"raw.{tf}(input=a, axis=axis01)", moved="read", out=False, tolerance=1e-3)
    case("sum_02", "c3", "torch.sum(c3, dim=(0, 2))", "raw.Sum(input=c3, axis=axis02)", moved="read", tolerance=1e-3)
    case("sum_1_f64", "e", "torch.sum(e, dim=1)", "raw.Sum(input=e, axis=axis1)", call="sum_1", moved="read")
    case("sum_1_bf16", "bf", "torch.sum(bf, dim=1)", "raw.Sum(input=bf, axis=axis1)", call="sum_1", moved="read", tolerance=5e-2)
    case("sum_0_i32", "i", "torch.sum(i, dim=0, dtype=torch.int32)", "raw.Sum(input=i, axis=axis0)", call="sum_0", moved="read")
    for axis in (0, 1):
        case(f"prod_{axis}", "near1", f"torch.prod(near1, dim={axis})", f"raw.Prod(input=near1, axis=axis{axis})", moved="read",
             tolerance=1e-3)
    for name, x in (("any", "zeros"), ("all", "ones")):
        case(f"{name}_all", x, f"torch.{name}({x})", f"raw.{name.capitalize()}(input={x}, axis=axis01)", moved="read", out=False)
        case(f"{name}_1", x, f"torch.{name}({x}, dim=1)", f"raw.{name.capitalize()}(input={x}, axis=axis1)", moved="read")
    for axis in (0, 1):
        case(f"logsumexp_{axis}", "a", f"torch.logsumexp(a, dim={axis})", f"tf.reduce_logsumexp(a, axis={axis})", "math")
        case(f"variance_{axis}", "a", f"torch.var(a, dim={axis}, correction=0)", f"tf.math.reduce_variance(a, axis={axis})", "math",
             tolerance=1e-3)
        case(f"argmax_{axis}", "a", f"torch.argmax(a, dim={axis})", f"raw.ArgMax(input=a, dimension=axis{axis}[0])", moved="read")
    case("std_1", "a", "torch.std(a, dim=1, correction=0)", "tf.math.reduce_std(a, axis=1)", "math", tolerance=1e-3)
    case("argmin_1", "a", "torch.argmin(a, dim=1)", "raw.ArgMin(input=a, dimension=axis1[0])", moved="read")
    for axis in (0, 1):
        case(f"cumsum_{axis}", "a", f"torch.cumsum(a, dim={axis})", f"raw.Cumsum(x=a, axis=axis{axis}[0])", "math", tolerance=1e-3)
    case("cumsum_back", "a", "", "raw.Cumsum(x=a, axis=axis1[0], exclusive=True, reverse=True)", "math", tolerance=1e-3)
    case("cumprod_1", "near1", "torch.cumprod(near1, dim=1)", "raw.Cumprod(x=near1, axis=axis1[0])", "math", tolerance=1e-3)


def shapes():
    case("reshape", "a", "a.reshape(-1)", "raw.Reshape(tensor=a, shape=flat_shape)", "math", out=False)
    case("expand_dims", "a", "a.unsqueeze(1)", "raw.ExpandDims(input=a, axis=axis1[0])", "math", out=False)
    case("squeeze", "c1", "c1.squeeze(1)", "raw.Squeeze(input=c1, axis=[1])", "math", out=False)
    case("transpose", "a", "a.t().contiguous()", "raw.Transpose(x=a, perm=axis10)", out=False)
    case("transpose_f64", "e", "e.t().contiguous()", "raw.Transpose(x=e, perm=axis10)", call="transpose", out=False)
    case("transpose_bf16", "bf", "bf.t().contiguous()", "raw.Transpose(x=bf, perm=axis10)", call="transpose", out=False)
    case("transpose_nchw", "x", "x.permute(0, 3, 1, 2).contiguous()", "raw.Transpose(x=x, perm=axis0312)", out=False)
    case("transpose_heads", "qu", "qu.transpose(1, 2).contiguous()", "raw.Transpose(x=qu, perm=axis0213)", out=False)
    for axis in (0, 1):
        case(f"concat_{axis}", "a b", f"torch.cat((a, b), dim={axis})", f"raw.ConcatV2(values=[a, b], axis={axis})")
    for axis in (0, 1, 2):
        case(f"stack_{axis}", "a b", f"torch.stack((a, b), dim={axis})", f"raw.Pack(values=[a, b], axis={axis})")
    split = "[part.contiguous() for part in a.chunk(4, dim=1)]"
    case("split", "a", split, "raw.Split(axis=axis1[0], value=a, num_split=4)", out=False)
    case("split_0", "a", "[part.clone() for part in a.chunk(4, dim=0)]", "raw.Split(axis=axis0[0], value=a, num_split=4)", "math",
         out=False)
    case("unstack", "st", "[part.clone() for part in st.unbind(0)]", "raw.Unpack(value=st, num=4, axis=0)", "math", out=False)
    case("slice", "a", "a[1:-1, 1:-1].contiguous()", "raw.Slice(input=a, begin=one_one, size=tf.shape(a) - 2)",
         out=False)
    case("strided_slice", "a", "a[:, ::2].contiguous()", "a[:, ::2]", out=False)
    case("slice_back", "a", "torch.flip(a, (1,))", "a[:, ::-1]", out=False)
    case("pad", "a", "F.pad(a, (2, 2, 1, 1))", "raw.Pad(input=a, paddings=paddings)", out=False)
    for mode, torch in (("reflect", "reflect"), ("symmetric", "")):
        case(f"pad_{mode}", "a", torch and "F.pad(a[None], (2, 2, 1, 1), mode='reflect')[0]",
             f"raw.MirrorPad(input=a, paddings=paddings, mode='{mode.upper()}')", out=False)
    case("tile", "a", "a.repeat(2, 2)", "raw.Tile(input=a, multiples=two_two)", out=False, moved="fill")
    case("repeat_0", "a", "torch.repeat_interleave(a, 2, dim=0)", "tf.repeat(a, 2, axis=0)", out=False, moved="fill")
    case("repeat_1", "a", "torch.repeat_interleave(a, 2, dim=1)", "tf.repeat(a, 2, axis=1)", out=False, moved="fill")
    case("broadcast_row", "row", "row.expand(len(row), len(row)).contiguous()", "raw.BroadcastTo(input=row, shape=square_shape)",
         out=False, moved="fill")
    case("broadcast_column", "col", "col.expand(len(col), len(col)).contiguous()",
         "raw.BroadcastTo(input=col, shape=square_shape)", out=False, moved="fill")
    for axis in (0, 1):
        case(f"reverse_{axis}", "a", f"torch.flip(a, ({axis},))", f"raw.ReverseV2(tensor=a, axis=axis{axis})", out=False)
        case(f"roll_{axis}", "a", f"torch.roll(a, 3, {axis})", f"tf.roll(a, 3, {axis})", out=False)


def indexing():
    case("gather_0", "a k", "torch.index_select(a, 0, k)", "raw.GatherV2(params=a, indices=k, axis=0)", moved="copy")
    case("gather_0_i32", "a k32", "torch.index_select(a, 0, k32)", "raw.GatherV2(params=a, indices=k32, axis=0)", call="gather_0",
         moved="copy")
    case("gather_1", "a k", "torch.index_select(a, 1, k)", "raw.GatherV2(params=a, indices=k, axis=1)", "math")
    case("batch_gather", "a kk", "torch.gather(a, 1, kk)", "tf.gather(a, kk, axis=1, batch_dims=1)", "math")
    case("gather_nd", "a knd", "a[knd[:, 0], knd[:, 1]]", "raw.GatherNd(params=a, indices=knd)", "math", out=False)
    case("scatter_nd", "kr a", "torch.zeros_like(a).index_add_(0, kr[:, 0], a)", "raw.ScatterNd(indices=kr, updates=a, shape=square_shape64)",
         "math", out=False, tolerance=1e-3)
    case("scatter_update", "a kr b", "", "raw.TensorScatterUpdate(tensor=a, indices=kr, updates=b)", "math")
    case("scatter_add", "a kr b", "a.index_add(0, kr[:, 0], b)", "raw.TensorScatterAdd(tensor=a, indices=kr, updates=b)", "math",
         out=False, tolerance=1e-3)
    case("scatter_max", "a kr b", "", "raw.TensorScatterMax(tensor=a, indices=kr, updates=b)", "math")
    case("one_hot", "k", "F.one_hot(k, len(k)).to(torch.float32)", "tf.one_hot(k, side)", out=False, moved="fill")
    case("segment_sum", "a k", "torch.zeros_like(a).index_add_(0, k, a)", "raw.UnsortedSegmentSum(data=a, segment_ids=k, num_segments=side)",
         "math", out=False, tolerance=1e-3)
    case("top_k", "a", "torch.topk(a, 8, dim=1)", "raw.TopKV2(input=a, k=8)", "math", out=False)
    case("sort", "a", "torch.sort(a, dim=1)[0]", "tf.sort(a, axis=1)", "math", out=False)
    case("argsort", "a", "torch.argsort(a, dim=1, stable=True)", "tf.argsort(a, axis=1, stable=True)", "math", out=False)
    case("unique", "many", "", "raw.Unique(x=many)", "math")
    case("searchsorted", "sorted flat", "torch.searchsorted(sorted, flat, out_int32=True)", "tf.searchsorted(sorted, flat)", "math",
         out=False, largest="4m")


def making():
    side = "len(row)"
    case("zeros", "row", f"torch.zeros(({side}, {side}))", "raw.Fill(dims=square_shape, value=0.0)", out=False, moved="fill")
    case("fill", "row", f"torch.full(({side}, {side}), 1.5)", "raw.Fill(dims=square_shape, value=1.5)", out=False, moved="fill")
    case("zeros_like", "a", "torch.zeros_like(a)", "raw.ZerosLike(x=a)", out=False, moved="fill")
    case("eye", "row", f"torch.eye({side})", f"tf.eye(side)", out=False, moved="fill")
    case("range", "row", f"torch.arange(0.0, {side} ** 2)", "tf.range(0.0, float(side ** 2), 1.0)", out=False,
         moved="fill", tolerance=1e-6)
    case("linspace", "row", f"torch.linspace(0, 1, {side} ** 2)", f"raw.LinSpace(start=0.0, stop=1.0, num=side ** 2)", out=False,
         moved="fill", tolerance=1e-5)
    for name, torch, tf in (("random_uniform", "rand", "random_uniform"), ("random_normal", "randn", "random_normal"),
                            ("truncated_normal", "", "truncated_normal")):
        case(name, "seed a", torch and "torch.%s(a.shape)" % torch,
             "raw.Stateless%sV2(shape=square_shape, key=key, counter=counter, alg=1, dtype=tf.float32)"
             % "".join(part.capitalize() for part in tf.split("_")), "math", out=False, compared=False)


NCHW = "x = x.permute(0, 3, 1, 2)"
FILTER = "; w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)"
NHWC = "y.permute(0, 2, 3, 1)"


def convolution(name, w, torch, tf, **options):
    case(name, f"x {w}", torch, tf, "product", out=False, setup=NCHW + FILTER.replace("w =", f"{w} =").replace("= w.", f"= {w}."),
         after=NHWC, tolerance=1e-4, **options)


def products():
    case("matmul", "a b", "torch.matmul(a, b)", "raw.MatMul(a=a, b=b)", "product", tolerance=1e-4)
    case("matmul_ta", "a b", "torch.matmul(a.t(), b)", "raw.MatMul(a=a, b=b, transpose_a=True)", "product", tolerance=1e-4)
    case("matmul_tb", "a b", "torch.matmul(a, b.t())", "raw.MatMul(a=a, b=b, transpose_b=True)", "product", tolerance=1e-4)
    case("matmul_batched", "ba bb", "torch.matmul(ba, bb)", "raw.BatchMatMulV2(x=ba, y=bb)", "product", call="matmul", tolerance=1e-4)
    case("matmul_vector", "a vec", "torch.matmul(a, vec)", "raw.MatMul(a=a, b=vec)", call="matmul", moved="read", tolerance=1e-4)
    case("matmul_bf16", "bf bfw", "torch.matmul(bf, bfw)", "raw.MatMul(a=bf, b=bfw)", "product", call="matmul", tolerance=5e-2)
    nhwc = "tf.nn.conv2d(x, {}, {}, '{}')"
    convolution("conv2d", "w", "F.conv2d(x, w, padding=1)", nhwc.format("w", 1, "SAME"))
    convolution("conv2d_1x1", "w1", "F.conv2d(x, w1)", nhwc.format("w1", 1, "VALID"))
    convolution("conv2d_stride", "w", "F.conv2d(x, w, stride=2)", nhwc.format("w", 2, "VALID"))
    convolution("conv2d_groups", "wg", "F.conv2d(x, wg, padding=1, groups=4)", "")
    convolution("conv2d_dilated", "w", "F.conv2d(x, w, dilation=2)", "tf.nn.conv2d(x, w, 1, 'VALID', dilations=2)")
    case("depthwise", "x wd", "F.conv2d(x, wd, padding=1, groups=x.shape[1])", "tf.nn.depthwise_conv2d(x, wd, [1, 1, 1, 1], 'SAME')",
         "product", out=False, setup=NCHW + "; wd = wd.permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)", after=NHWC,
         tolerance=1e-4)
    case("conv1d", "x1 v1", "F.conv1d(x1, v1, padding=1)", "tf.nn.conv1d(x1, v1, 1, 'SAME')", "product", out=False,
         setup="x1 = x1.permute(0, 2, 1).contiguous(); v1 = v1.permute(2, 1, 0).contiguous()", after="y.permute(0, 2, 1)", tolerance=1e-4)


def networks():
    for name, torch, tf in (
            ("max_pool", "F.max_pool2d(x, 2)", "tf.nn.max_pool2d(x, 2, 2, 'VALID')"),
            ("max_pool_3x3", "F.max_pool2d(x, 3, 2)", "tf.nn.max_pool2d(x, 3, 2, 'VALID')"),
            ("avg_pool", "F.avg_pool2d(x, 2)", "tf.nn.avg_pool2d(x, 2, 2, 'VALID')")):
        case(name, "x", torch, tf, out=False, setup=NCHW, after=NHWC, moved="read" if name != "max_pool_3x3" else "copy")
    case("bias_add", "x ch", "torch.add(x, ch)", "raw.BiasAdd(value=x, bias=ch)", moved="copy")
    case("softmax", "a", "torch.softmax(a, 1)", "raw.Softmax(logits=a)", "math")
    case("softmax_0", "a", "torch.softmax(a, 0)", "tf.nn.softmax(a, axis=0)", "math")
    case("log_softmax", "a", "torch.log_softmax(a, 1)", "raw.LogSoftmax(logits=a)", "math")
    case("sparse_xent", "k a", "F.cross_entropy(a, k, reduction='none')",
         "raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=k)[0]", "math", out=False)
    case("softmax_xent", "prob a", "F.cross_entropy(a, prob, reduction='none')",
         "raw.SoftmaxCrossEntropyWithLogits(features=a, labels=prob)[0]", "math", out=False, tolerance=1e-3)
    case("sigmoid_xent", "prob a", "F.binary_cross_entropy_with_logits(a, prob, reduction='none')",
         "tf.nn.sigmoid_cross_entropy_with_logits(labels=prob, logits=a)", "math", out=False)
    case("batch_norm", "x ch ch2 ch3 ch4", "F.batch_norm(x, ch, ch2, ch4, ch3, eps=1e-3)",
         "raw.FusedBatchNormV3(x=x, scale=ch4, offset=ch3, mean=ch, variance=ch2, epsilon=1e-3, is_training=False)[0]", "math",
         out=False, setup=NCHW, after=NHWC, tolerance=1e-4)
    case("batch_norm_training", "x ch ch3", "F.batch_norm(x, None, None, ch, ch3, training=True, eps=1e-3)",
         "raw.FusedBatchNormV3(x=x, scale=ch, offset=ch3, mean=[], variance=[], epsilon=1e-3)[0]", "math", out=False, setup=NCHW,
         after=NHWC, tolerance=1e-3)
    case("layer_norm", "a row row2", "F.layer_norm(a, row.shape, row, row2, 1e-5)", "", "math", out=False, tolerance=1e-3)
    case("rms_norm", "a row", "F.rms_norm(a, row.shape, row, 1e-5)", "", "math", out=False, tolerance=1e-4)
    case("group_norm", "x ch ch3", "F.group_norm(x, 4, ch, ch3, 1e-5)", "", "math", out=False, setup=NCHW, after=NHWC, tolerance=1e-3)
    case("dropout", "a seed", "F.dropout(a, 0.25)", "tf.nn.experimental.stateless_dropout(a, 0.25, seed)", "math", out=False,
         compared=False)
    for name, torch in (("attention", ""), ("attention_causal", ", is_causal=True")):
        case(name, "qu ke va", f"F.scaled_dot_product_attention(qu, ke, va{torch})", "", "math", out=False, tolerance=1e-4)


INPUTS["c3"] = Input("float32", lambda size: {"1k": (4, 16, 4), "64k": (16, 64, 16), "4m": (64, 256, 64), "64m": (256, 1024, 64)}[size])
INPUTS["st"] = Input("float32", of(4, "q", "d"))
INPUTS["bfw"] = Input("bfloat16", lambda size: (2 * SIDES[size], min(SIDES[size], 1024)))
for family in (arithmetic, elementwise, reductions, shapes, indexing, making, products, networks):
    family()
