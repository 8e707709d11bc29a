# Cases of the bench of ops: matrix products, convolutions, pools, what networks are made of. See case.py.
from case import IMAGES, INPUTS, SIDES, Input, case, of

INPUTS["bfw"] = Input("bfloat16", lambda size: (2 * SIDES[size], min(SIDES[size], 1024)))

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


products()
networks()
