# Cases of the op benchmark: matrix products, convolutions, pools and other parts of networks. See case.py.
from case import INPUTS, SIDES, Input, batched, case, heads, image, of, square

VOLUMES = {"1k": (1, 4, 4, 4, 4), "64k": (2, 8, 8, 8, 16), "4m": (4, 16, 16, 16, 64), "64m": (8, 32, 32, 32, 64)}


def kernel(*dims, ends=("c", "c")):
    return Input("float32", of(*dims, *ends), -0.1, 0.1)


INPUTS |= {
    "bfw": Input("bfloat16", lambda size: (2 * SIDES[size], min(SIDES[size], 1024))),
    "fw": Input("float16", lambda size: (2 * SIDES[size], min(SIDES[size], 1024))),
    "ew": Input("float64", of("h", "d")), "iw": Input("int32", square, -100, 100), "lw": Input("int64", of("h", "d"), -100, 100),
    "sq16": Input("int16", square, -100, 100), "sq8": Input("int8", square, -100, 100),
    "rowv": Input("float32", of(1, "d")), "bk": Input("float32", lambda size: batched(size)[1:]),
    "ba1": Input("float32", lambda size: (1, batched(size)[0] // 4, *batched(size)[1:])),
    "bb1": Input("float32", lambda size: (4, 1, *batched(size)[1:])),
    "wm": kernel(3, 3, ends=("c", 2)), "wp": kernel(1, 1), "w5": kernel(5, 5), "w3": kernel(3, 3, 3),
    "x3": Input("float32", VOLUMES.get), "am": Input("bool", lambda size: (heads(size)[2], heads(size)[2]), 0, 2),
    "xb": Input("bfloat16", image), "wb": Input("bfloat16", of(3, 3, "c", "c"), -0.1, 0.1),
    "xf": Input("float16", image), "wf": Input("float16", of(3, 3, "c", "c"), -0.1, 0.1),
    "xe": Input("float64", image), "we": Input("float64", of(3, 3, "c", "c"), -0.1, 0.1),
}

NCHW = "x = x.permute(0, 3, 1, 2)"
FILTER = "; w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)"
NHWC = "y.permute(0, 2, 3, 1)"


def convolution(name, w, torch, tf, **options):
    case(name, f"x {w}", torch, tf, "product", out=False, setup=NCHW + FILTER.replace("w =", f"{w} =").replace("= w.", f"= {w}."),
         after=NHWC, tolerance=1e-4, **options)


def depthwise_filter(w):
    return (f"{w} = {w}.permute(2, 3, 0, 1).reshape(-1, 1, {w}.shape[0], {w}.shape[1])"
            ".contiguous(memory_format=torch.channels_last)")


def more_products():
    """Matrix products of other types and forms."""
    case("matmul_f64", "e ew", "torch.matmul(e, ew)", "raw.MatMul(a=e, b=ew)", "product", call="matmul", tolerance=1e-9)
    # Beyond 4 MB the rivals take minutes for a product of these.
    for of_type, x, w, loose in (("f16", "f", "fw", 2e-3), ("i32", "i", "iw", 0), ("i64", "l", "lw", 0)):
        case(f"matmul_{of_type}", f"{x} {w}", f"torch.matmul({x}, {w})", f"raw.MatMul(a={x}, b={w})", "product", call="matmul",
             tolerance=loose, largest="4m")
    case("matmul_i16", "sq16 sq16", "torch.matmul(sq16, sq16)", "raw.BatchMatMulV2(x=sq16, y=sq16)", "product", call="matmul", tolerance=0,
         largest="4m")
    case("matmul_i8", "sq8 sq8", "torch.matmul(sq8, sq8)", "", "product", call="matmul", tolerance=0, largest="4m")
    case("matmul_broadcast", "ba1 bb1", "torch.matmul(ba1, bb1)", "raw.BatchMatMulV2(x=ba1, y=bb1)", "product", call="matmul",
         tolerance=1e-4)
    case("matmul_shared", "ba bk", "torch.matmul(ba, bk)", "raw.BatchMatMulV2(x=ba, y=bk)", "product", call="matmul", tolerance=1e-4)
    case("vector_matmul", "rowv a", "torch.matmul(rowv, a)", "raw.MatMul(a=rowv, b=a)", call="matmul", tolerance=1e-4)
    case("matmul_ta_vector", "a vec", "torch.matmul(a.t(), vec)", "raw.MatMul(a=a, b=vec, transpose_a=True)", call="matmul_ta", tolerance=1e-4)
    case("outer", "vec rowv", "torch.matmul(vec, rowv)", "raw.MatMul(a=vec, b=rowv)", call="matmul")


def volumes():
    """3-D and transposed convolutions. PyTorch's kernels for transposed convolutions are [channels, filters, …]."""
    setup = ("x3 = x3.permute(0, 4, 1, 2, 3); w3 = w3.permute(4, 3, 0, 1, 2).contiguous(memory_format=torch.channels_last_3d)")
    after = "y.permute(0, 2, 3, 4, 1)"
    case("conv3d", "x3 w3", "F.conv3d(x3, w3, padding=1)", "tf.nn.conv3d(x3, w3, [1] * 5, 'SAME')", "product", out=False, setup=setup,
         after=after, tolerance=1e-4)
    case("conv3d_stride", "x3 w3", "F.conv3d(x3, w3, stride=2)", "tf.nn.conv3d(x3, w3, [1, 2, 2, 2, 1], 'VALID')", "product", out=False,
         setup=setup, after=after, tolerance=1e-4)
    sizes = "[x3.shape[0], *(2 * n + 1 for n in x3.shape[1:4]), x3.shape[4]]"
    case("conv3d_transpose", "x3 w3", "F.conv_transpose3d(x3, w3, stride=2)",
         f"tf.nn.conv3d_transpose(x3, w3, {sizes}, [1, 2, 2, 2, 1], 'VALID')", "product", out=False, setup=setup, after=after,
         tolerance=1e-4)
    convolution("conv2d_transpose", "w", "F.conv_transpose2d(x, w, padding=1)", "tf.nn.conv2d_transpose(x, w, tf.shape(x), 1, 'SAME')")
    sizes = "[x.shape[0], 2 * x.shape[1] + 1, 2 * x.shape[2] + 1, x.shape[3]]"
    convolution("conv2d_transpose_stride", "w", "F.conv_transpose2d(x, w, stride=2)",
                f"tf.nn.conv2d_transpose(x, w, {sizes}, 2, 'VALID')")
    case("conv1d_transpose", "x1 v1", "F.conv_transpose1d(x1, v1, stride=2)",
         "tf.nn.conv1d_transpose(x1, v1, [x1.shape[0], 2 * x1.shape[1] + 1, x1.shape[2]], 2, 'VALID')", "product", out=False,
         setup="x1 = x1.permute(0, 2, 1).contiguous(); v1 = v1.permute(2, 1, 0).contiguous()", after="y.permute(0, 2, 1)", tolerance=1e-4)


def products():
    case("matmul", "a b", "torch.matmul(a, b)", "raw.MatMul(a=a, b=b)", "product", tolerance=1e-4)
    case("matmul_ta", "a b", "torch.matmul(a.t(), b)", "raw.MatMul(a=a, b=b, transpose_a=True)", "product", tolerance=1e-4)
    case("matmul_tb", "a b", "torch.matmul(a, b.t())", "raw.MatMul(a=a, b=b, transpose_b=True)", "product", tolerance=1e-4)
    case("matmul_batched", "ba bb", "torch.matmul(ba, bb)", "raw.BatchMatMulV2(x=ba, y=bb)", "product", call="matmul", tolerance=1e-4)
    case("matmul_vector", "a vec", "torch.matmul(a, vec)", "raw.MatMul(a=a, b=vec)", call="matmul", tolerance=1e-4)
    case("matmul_bf16", "bf bfw", "torch.matmul(bf, bfw)", "raw.MatMul(a=bf, b=bfw)", "product", call="matmul", tolerance=1e-2)
    more_products()
    nhwc = "tf.nn.conv2d(x, {}, {}, '{}')"
    convolution("conv2d", "w", "F.conv2d(x, w, padding=1)", nhwc.format("w", 1, "SAME"))
    convolution("conv2d_1x1", "w1", "F.conv2d(x, w1)", nhwc.format("w1", 1, "VALID"))
    convolution("conv2d_stride", "w", "F.conv2d(x, w, stride=2)", nhwc.format("w", 2, "VALID"))
    convolution("conv2d_groups", "wg", "F.conv2d(x, wg, padding=1, groups=4)", "")
    convolution("conv2d_dilated", "w", "F.conv2d(x, w, dilation=2)", "tf.nn.conv2d(x, w, 1, 'VALID', dilations=2)")
    case("depthwise", "x wd", "F.conv2d(x, wd, padding=1, groups=x.shape[1])", "tf.nn.depthwise_conv2d(x, wd, [1, 1, 1, 1], 'SAME')",
         "product", out=False, setup=NCHW + "; wd = wd.permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)", after=NHWC,
         tolerance=1e-4)
    convolution("conv2d_5x5", "w5", "F.conv2d(x, w5, padding=2)", nhwc.format("w5", 1, "SAME"), call="conv2d")
    convolution("conv2d_same_stride", "w", "F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=2)", nhwc.format("w", 2, "SAME"))
    convolution("conv2d_padded", "w", "F.conv2d(F.pad(x, (0, 1, 1, 2)), w)",
                "tf.nn.conv2d(x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]])")
    convolution("conv2d_groups_dilated", "wg", "F.conv2d(x, wg, dilation=2, groups=4)", "")
    for of_type, x, w, loose, largest in (("bf16", "xb", "wb", 1e-2, "64m"), ("f16", "xf", "wf", 2e-3, "4m"),
                                          ("f64", "xe", "we", 1e-9, "4m")):
        case(f"conv2d_{of_type}", f"{x} {w}", f"F.conv2d({x}, {w})", f"tf.nn.conv2d({x}, {w}, 1, 'VALID')", "product",
             call="conv2d_valid", out=False, setup=NCHW.replace("x", x) + FILTER.replace("w =", f"{w} =").replace("= w.", f"= {w}."),
             after=NHWC, tolerance=loose, largest=largest)
    for name, w, stride, dilation in (("depthwise_stride", "wm", 2, 1), ("depthwise_dilated", "wd", 1, 2)):
        case(name, f"x {w}", f"F.conv2d(x, {w}, stride={stride}, dilation={dilation}, groups=x.shape[1])",
             f"tf.nn.depthwise_conv2d(x, {w}, [1, {stride}, {stride}, 1], 'VALID', dilations=[{dilation}, {dilation}])", "product",
             out=False, setup=NCHW + "; " + depthwise_filter(w), after=NHWC, tolerance=1e-4)
    case("separable", "x wd wp", "F.conv2d(F.conv2d(x, wd, padding=1, groups=x.shape[1]), wp)",
         "tf.nn.separable_conv2d(x, wd, wp, [1, 1, 1, 1], 'SAME')", "product", out=False,
         setup=NCHW + "; " + depthwise_filter("wd") + FILTER.replace("w =", "wp =").replace("= w.", "= wp."), after=NHWC, tolerance=1e-4)
    volumes()
    case("conv1d_dilated", "x1 v1", "F.conv1d(F.pad(x1, (4, 0)), v1, dilation=2)",
         "tf.nn.conv1d(tf.pad(x1, [[0, 0], [4, 0], [0, 0]]), v1, 1, 'VALID', dilations=2)", "product", out=False,
         setup="x1 = x1.permute(0, 2, 1).contiguous(); v1 = v1.permute(2, 1, 0).contiguous()", after="y.permute(0, 2, 1)", tolerance=1e-4)
    case("conv1d", "x1 v1", "F.conv1d(x1, v1, padding=1)", "tf.nn.conv1d(x1, v1, 1, 'SAME')", "product", out=False,
         setup="x1 = x1.permute(0, 2, 1).contiguous(); v1 = v1.permute(2, 1, 0).contiguous()", after="y.permute(0, 2, 1)", tolerance=1e-4)


def more_pools():
    for name, torch, tf in (
            ("max_pool_same", "F.max_pool2d(x, 3, 1, padding=1)", "tf.nn.max_pool2d(x, 3, 1, 'SAME')"),
            ("avg_pool_3x3", "F.avg_pool2d(x, 3, 2)", "tf.nn.avg_pool2d(x, 3, 2, 'VALID')"),
            ("avg_pool_same", "F.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False)", "tf.nn.avg_pool2d(x, 3, 1, 'SAME')")):
        case(name, "x", torch, tf, "math", out=False, setup=NCHW, after=NHWC)
    for kind in ("max", "avg"):
        case(f"{kind}_pool1d", "x1", f"F.{kind}_pool1d(x1, 2)", f"tf.nn.{kind}_pool1d(x1, 2, 2, 'VALID')", "math", out=False,
             setup="x1 = x1.permute(0, 2, 1).contiguous()", after="y.permute(0, 2, 1)")
        case(f"{kind}_pool3d", "x3", f"F.{kind}_pool3d(x3, 2)", f"tf.nn.{kind}_pool3d(x3, 2, 2, 'VALID')", "math", out=False,
             setup="x3 = x3.permute(0, 4, 1, 2, 3)", after="y.permute(0, 2, 3, 4, 1)")
    case("max_pool1d_3", "x1", "F.max_pool1d(x1, 3, 2)", "tf.nn.max_pool1d(x1, 3, 2, 'VALID')", "math", out=False,
         setup="x1 = x1.permute(0, 2, 1).contiguous()", after="y.permute(0, 2, 1)")
    case("max_pool3d_3", "x3", "F.max_pool3d(x3, 3, 2)", "tf.nn.max_pool3d(x3, 3, 2, 'VALID')", "math", out=False,
         setup="x3 = x3.permute(0, 4, 1, 2, 3)", after="y.permute(0, 2, 3, 4, 1)")


def networks():
    for name, torch, tf in (
            ("max_pool", "F.max_pool2d(x, 2)", "tf.nn.max_pool2d(x, 2, 2, 'VALID')"),
            ("max_pool_3x3", "F.max_pool2d(x, 3, 2)", "tf.nn.max_pool2d(x, 3, 2, 'VALID')"),
            ("avg_pool", "F.avg_pool2d(x, 2)", "tf.nn.avg_pool2d(x, 2, 2, 'VALID')")):
        case(name, "x", torch, tf, out=False, setup=NCHW, after=NHWC)
    more_pools()
    case("bias_add", "x ch", "torch.add(x, ch)", "raw.BiasAdd(value=x, bias=ch)")
    case("softmax", "a", "torch.softmax(a, 1)", "raw.Softmax(logits=a)", "math")
    case("softmax_0", "a", "torch.softmax(a, 0)", "tf.nn.softmax(a, axis=0)", "math")
    case("log_softmax", "a", "torch.log_softmax(a, 1)", "raw.LogSoftmax(logits=a)", "math")
    case("sparse_xent", "k a", "F.cross_entropy(a, k, reduction='none')",
         "raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=k)[0]", "math", out=False)
    case("softmax_xent", "prob a", "F.cross_entropy(a, prob, reduction='none')",
         "raw.SoftmaxCrossEntropyWithLogits(features=a, labels=prob)[0]", "math", out=False)
    case("sigmoid_xent", "prob a", "F.binary_cross_entropy_with_logits(a, prob, reduction='none')",
         "tf.nn.sigmoid_cross_entropy_with_logits(labels=prob, logits=a)", "math", out=False)
    case("batch_norm", "x ch ch2 ch3 ch4", "F.batch_norm(x, ch, ch2, ch4, ch3, eps=1e-3)",
         "raw.FusedBatchNormV3(x=x, scale=ch4, offset=ch3, mean=ch, variance=ch2, epsilon=1e-3, is_training=False)[0]", "math",
         out=False, setup=NCHW, after=NHWC, tolerance=1e-4)
    case("batch_norm_training", "x ch ch3", "F.batch_norm(x, None, None, ch, ch3, training=True, eps=1e-3)",
         "raw.FusedBatchNormV3(x=x, scale=ch, offset=ch3, mean=[], variance=[], epsilon=1e-3)[0]", "math", out=False, setup=NCHW,
         after=NHWC, tolerance=1e-4)
    case("layer_norm", "a row row2", "F.layer_norm(a, row.shape, row, row2, 1e-5)", "", "math", out=False)
    case("rms_norm", "a row", "F.rms_norm(a, row.shape, row, 1e-5)", "", "math", out=False, tolerance=1e-4)
    case("group_norm", "x ch ch3", "F.group_norm(x, 4, ch, ch3, 1e-5)", "", "math", out=False, setup=NCHW, after=NHWC)
    for name, rate in (("dropout", 0.25), ("dropout_half", 0.5), ("dropout_9", 0.9)):
        case(name, "a seed", f"F.dropout(a, {rate})", f"tf.nn.experimental.stateless_dropout(a, {rate}, seed)", "math", out=False,
             compared=False)
    case("attention_mask", "qu ke va am", "F.scaled_dot_product_attention(qu, ke, va, attn_mask=am)", "", "math", out=False,
         tolerance=1e-4)
    for name, torch in (("attention", ""), ("attention_causal", ", is_causal=True")):
        case(name, "qu ke va", f"F.scaled_dot_product_attention(qu, ke, va{torch})", "", "math", out=False, tolerance=1e-4)


products()
networks()
