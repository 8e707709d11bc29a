# Cases of the op benchmark: ops that move or reshape elements, and ops that create tensors. See case.py.
from case import INPUTS, Input, case, of

INPUTS["st"] = Input("float32", of(4, "q", "d"))


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
    case("tile", "a", "a.repeat(2, 2)", "raw.Tile(input=a, multiples=two_two)", out=False)
    case("repeat_0", "a", "torch.repeat_interleave(a, 2, dim=0)", "tf.repeat(a, 2, axis=0)", out=False)
    case("repeat_1", "a", "torch.repeat_interleave(a, 2, dim=1)", "tf.repeat(a, 2, axis=1)", out=False)
    case("broadcast_row", "row", "row.expand(len(row), len(row)).contiguous()", "raw.BroadcastTo(input=row, shape=square_shape)",
         out=False)
    case("broadcast_column", "col", "col.expand(len(col), len(col)).contiguous()",
         "raw.BroadcastTo(input=col, shape=square_shape)", out=False)
    for axis in (0, 1):
        case(f"reverse_{axis}", "a", f"torch.flip(a, ({axis},))", f"raw.ReverseV2(tensor=a, axis=axis{axis})", out=False)
        case(f"roll_{axis}", "a", f"torch.roll(a, 3, {axis})", f"tf.roll(a, 3, {axis})", out=False)


def making():
    side = "len(row)"
    case("zeros", "row", f"torch.zeros(({side}, {side}))", "raw.Fill(dims=square_shape, value=0.0)", out=False, unread=True)
    case("fill", "row", f"torch.full(({side}, {side}), 1.5)", "raw.Fill(dims=square_shape, value=1.5)", out=False, unread=True)
    case("zeros_like", "a", "torch.zeros_like(a)", "raw.ZerosLike(x=a)", out=False, unread=True)
    case("eye", "row", f"torch.eye({side})", f"tf.eye(side)", out=False, unread=True)
    case("range", "row", f"torch.arange(0.0, {side} ** 2)", "tf.range(0.0, float(side ** 2), 1.0)", out=False,
         unread=True, tolerance=1e-6)
    case("linspace", "row", f"torch.linspace(0, 1, {side} ** 2)", f"raw.LinSpace(start=0.0, stop=1.0, num=side ** 2)", out=False,
         unread=True, tolerance=1e-5)


shapes()
making()
