# Cases of the op benchmark: gradients. Muster runs the backward pass of a tape whose forward pass is complete
# (calls_grad.c); the other frameworks call the ops that their gradients consist of, on what a forward pass keeps. See
# case.py.
from case import IMAGES, INPUTS, Input, case, heads, image, of, square
from cases_nn import FILTER, NCHW, NHWC, depthwise_filter


def shrunk(change):
    """The shape of an image with another height and width."""
    return lambda size: (IMAGES[size][0], change(IMAGES[size][1]), change(IMAGES[size][2]), IMAGES[size][3])


INPUTS |= {
    "dy": Input("float32", image), "dys": Input("float32", shrunk(lambda n: (n - 3) // 2 + 1)),
    "dyd": Input("float32", shrunk(lambda n: n - 4)), "dyh": Input("float32", shrunk(lambda n: n // 2)),
    "dy1": INPUTS["x1"], "dy3": INPUTS["x3"], "dya": Input("float32", square), "dyr": Input("float32", of("d")),
    "dyq": Input("float32", heads),
}
HWIO = "y.permute(2, 3, 1, 0)"


def named(text, old, new):
    """Replaces `old` by `new` in a statement."""
    return text.replace(f"{old} =", f"{new} =").replace(f"= {old}.", f"= {new}.")


def backward(dy, x, w, options, wanted, axes=2):
    stride, padding, dilation, groups = options
    mask, place = {"dx": ("True, False", "[0]"), "dw": ("False, True", "[1]"), "grads": ("True, True", "[:2]")}[wanted]
    return (f"torch.ops.aten.convolution_backward({dy}, {x}, {w}, None, [{stride}] * {axes}, [{padding}] * {axes}, "
            f"[{dilation}] * {axes}, False, [0] * {axes}, {groups}, [{mask}, False]){place}")


def convolution_grads(name, w, dy, options, tf_padding, wanted=("dx", "dw")):
    """options: stride, padding, dilation and groups of PyTorch; TensorFlow has no gradient of groups here."""
    stride, dilation = options[0], options[2]
    how = f"strides=[1, {stride}, {stride}, 1], padding='{tf_padding}', dilations=[1, {dilation}, {dilation}, 1])"
    tf = {"dx": f"raw.Conv2DBackpropInput(input_sizes=x.shape, filter={w}, out_backprop={dy}, " + how,
          "dw": f"raw.Conv2DBackpropFilter(input=x, filter_sizes={w}.shape, out_backprop={dy}, " + how}
    tf["grads"] = f"[{tf['dx']}, {tf['dw']}]"
    setup = NCHW + "; " + named(NCHW, "x", dy) + named(FILTER, "w", w)
    for what in wanted:
        after = {"dx": NHWC, "dw": HWIO, "grads": f"{HWIO} if y.shape[2] == 3 else {NHWC}"}[what]
        case(f"{name}_{what}", f"x {w} {dy}", backward(dy, "x", w, options, what), tf[what] if tf_padding else "", "product",
             out=False, setup=setup, after=after, tolerance=2e-4)  # a filter's gradient adds up a product per pixel: 6e-5 of 64 MB


def convolutions():
    convolution_grads("conv2d", "w", "dy", (1, 1, 1, 1), "SAME", ("dx", "dw", "grads"))
    convolution_grads("conv2d_1x1", "w1", "dy", (1, 0, 1, 1), "VALID")
    convolution_grads("conv2d_stride", "w", "dys", (2, 0, 1, 1), "VALID")
    convolution_grads("conv2d_groups", "wg", "dy", (1, 1, 1, 4), "")
    convolution_grads("conv2d_dilated", "w", "dyd", (1, 0, 2, 1), "VALID")
    how = "strides=[1, 1, 1, 1], padding='SAME')"
    setup = NCHW + "; " + named(NCHW, "x", "dy") + "; " + depthwise_filter("wd")
    groups = (1, 1, 1, "x.shape[1]")
    case("depthwise_dx", "x wd dy", backward("dy", "x", "wd", groups, "dx"),
         "raw.DepthwiseConv2dNativeBackpropInput(input_sizes=x.shape, filter=wd, out_backprop=dy, " + how, "product", out=False,
         setup=setup, after=NHWC)
    case("depthwise_dw", "x wd dy", backward("dy", "x", "wd", groups, "dw"),
         "raw.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=wd.shape, out_backprop=dy, " + how, "product", out=False,
         setup=setup, after="y.permute(2, 3, 0, 1)", tolerance=1e-4)
    setup = "; ".join(f"{x} = {x}.permute(0, 2, 1).contiguous()" for x in ("x1", "dy1")) + "; v1 = v1.permute(2, 1, 0).contiguous()"
    for what, after in (("dx", "y.permute(0, 2, 1)"), ("dw", "y.permute(2, 1, 0)")):
        case(f"conv1d_{what}", "x1 v1 dy1", backward("dy1", "x1", "v1", (1, 1, 1, 1), what, 1), "", "product", out=False, setup=setup,
             after=after, tolerance=2e-4)  # likewise
    setup = ("; ".join(f"{x} = {x}.permute(0, 4, 1, 2, 3)" for x in ("x3", "dy3"))
             + "; w3 = w3.permute(4, 3, 0, 1, 2).contiguous(memory_format=torch.channels_last_3d)")
    how = "strides=[1] * 5, padding='SAME')"
    case("conv3d_dx", "x3 w3 dy3", backward("dy3", "x3", "w3", (1, 1, 1, 1), "dx", 3),
         "raw.Conv3DBackpropInputV2(input_sizes=x3.shape, filter=w3, out_backprop=dy3, " + how, "product", out=False, setup=setup,
         after="y.permute(0, 2, 3, 4, 1)")
    case("conv3d_dw", "x3 w3 dy3", backward("dy3", "x3", "w3", (1, 1, 1, 1), "dw", 3),
         "raw.Conv3DBackpropFilterV2(input=x3, filter_sizes=w3.shape, out_backprop=dy3, " + how, "product", out=False, setup=setup,
         after="y.permute(2, 3, 4, 1, 0)", tolerance=5e-5)
    case("matmul_grads", "a b dya", "(torch.matmul(dya, b.t()), torch.matmul(a.t(), dya))",
         "[raw.MatMul(a=dya, b=b, transpose_b=True), raw.MatMul(a=a, b=dya, transpose_a=True)]", "product", out=False)


def pools():
    aten = "torch.ops.aten."
    for name, dy, window, stride in (("max_pool", "dyh", 2, 2), ("max_pool_3x3", "dys", 3, 2)):
        sides = f"[{window}] * 2, [{stride}] * 2, [0, 0], [1, 1], False"
        how = f"ksize=[1, {window}, {window}, 1], strides=[1, {stride}, {stride}, 1], padding='VALID'"
        case(f"{name}_dx", f"x {dy}",
             f"{aten}max_pool2d_with_indices_backward({dy}, x, {sides}, places)",
             f"raw.MaxPoolGrad(orig_input=x, orig_output=y, grad={dy}, {how})", "math", out=False,
             setup=NCHW + "; " + named(NCHW, "x", dy) + f"; places = {aten}max_pool2d_with_indices(x, {sides})[1]", after=NHWC,
             tf_setup=f"y = raw.MaxPool(input=x, {how})")
    for name, dy, window, stride, padding in (("avg_pool", "dyh", 2, 2, "VALID"), ("avg_pool_same", "dy", 3, 1, "SAME")):
        how = f"ksize=[1, {window}, {window}, 1], strides=[1, {stride}, {stride}, 1], padding='{padding}'"
        case(f"{name}_dx", f"x {dy}",
             f"{aten}avg_pool2d_backward({dy}, x, [{window}] * 2, [{stride}] * 2, [{int(padding == 'SAME')}] * 2, False, False, None)",
             f"raw.AvgPoolGrad(orig_input_shape=x.shape, grad={dy}, {how})", "math", out=False,
             setup=NCHW + "; " + named(NCHW, "x", dy), after=NHWC)


def losses():
    case("softmax_dx", "a dya", "torch._softmax_backward_data(dya, y, 1, torch.float32)",
         "(dya - tf.reduce_sum(dya * y, 1, keepdims=True)) * y", "math", out=False, setup="y = torch.softmax(a, 1)",
         tf_setup="y = raw.Softmax(logits=a)")
    case("log_softmax_dx", "a dya", "torch._log_softmax_backward_data(dya, y, 1, torch.float32)",
         "dya - tf.reduce_sum(dya, 1, keepdims=True) * tf.exp(y)", "math", out=False,
         setup="y = torch.log_softmax(a, 1)", tf_setup="y = raw.LogSoftmax(logits=a)")
    case("sparse_xent_dx", "k a dyr",
         "torch._log_softmax_backward_data(torch.ops.aten.nll_loss_backward(dyr, y, k, None, 0, -100, one), y, 1, torch.float32)",
         "kept * dyr[:, None]", "math", out=False,
         setup="one = torch.tensor(1.0); y = torch.log_softmax(a, 1)",
         tf_setup="kept = raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=k)[1]")
    case("softmax_xent_dx", "prob a dyr", "torch.sub(y, prob).mul_(dyr[:, None])",
         "kept * dyr[:, None]", "math", out=False, setup="y = torch.softmax(a, 1)",
         tf_setup="kept = raw.SoftmaxCrossEntropyWithLogits(features=a, labels=prob)[1]")
    case("sigmoid_xent_dx", "prob a dya", "torch.sigmoid(a).sub_(prob).mul_(dya)", "(tf.sigmoid(a) - prob) * dya", "math", out=False,
         tolerance=1e-4)


def normalizations():
    keep = "; y, mean, rstd = torch.ops.aten.native_"
    case("layer_norm_grads", "a row row2 dya",
         "torch.ops.aten.native_layer_norm_backward(dya, a, row.shape, mean, rstd, row, row2, [True, True, True])", "", "math",
         out=False, setup="pass" + keep + "layer_norm(a, row.shape, row, row2, 1e-5)")
    case("rms_norm_grads", "a row dya", "backward()", "", "math", out=False,
         setup="backward = grad_of(lambda a, row: F.rms_norm(a, row.shape, row, 1e-5), dya, a, row)")
    case("group_norm_grads", "x ch ch3 dy",
         "torch.ops.aten.native_group_norm_backward(dy, x, mean, rstd, ch, x.shape[0], x.shape[1], x.shape[2] * x.shape[3], 4, "
         "[True, True, True])", "", "math", out=False, after=f"{NHWC} if y.dim() == 4 else y",
         setup=NCHW + "; " + named(NCHW, "x", "dy") + keep
         + "group_norm(x, ch, ch3, x.shape[0], x.shape[1], x.shape[2] * x.shape[3], 4, 1e-5)")
    train = "None, None, True, 0.1, 1e-3)"
    case("batch_norm_grads", "x ch ch3 dy",
         "torch.ops.aten.native_batch_norm_backward(dy, x, ch, None, None, kept[1], kept[2], True, 1e-3, [True] * 3)",
         "raw.FusedBatchNormGradV3(y_backprop=dy, x=x, scale=ch, reserve_space_1=kept[3], reserve_space_2=kept[4], "
         "reserve_space_3=kept[5], epsilon=1e-3)[:3]", "math", out=False, tolerance=1e-4, after=f"{NHWC} if y.dim() == 4 else y",
         setup=NCHW + "; " + named(NCHW, "x", "dy") + f"; kept = torch.ops.aten.native_batch_norm(x, ch, ch3, {train}",
         tf_setup="kept = raw.FusedBatchNormV3(x=x, scale=ch, offset=ch3, mean=[], variance=[], epsilon=1e-3)")


def activations():
    aten = "torch.ops.aten."
    for name, torch, tf, kind in (
            ("relu", "threshold_backward(dya, a, 0)", "raw.ReluGrad(gradients=dya, features=a)", "memory"),
            ("gelu", "gelu_backward(dya, a)", "", "math"), ("gelu_tanh", "gelu_backward(dya, a, approximate='tanh')", "", "math"),
            ("silu", "silu_backward(dya, a)", "", "math")):
        case(f"{name}_dx", "a dya", aten + torch, tf, kind, out=False)
    for name in ("tanh", "sigmoid"):
        case(f"{name}_dx", "a dya", f"{aten}{name}_backward(dya, y)", f"raw.{name.capitalize()}Grad(y=y, dy=dya)", "math", out=False,
             setup=f"y = torch.{name}(a)", tf_setup=f"y = tf.{name}(a)")
    case("bias_add_db", "x ch dy", "dy.sum((0, 2, 3))", "raw.BiasAddGrad(out_backprop=dy)", "math", out=False, tolerance=5e-5,
         setup=named(NCHW, "x", "dy"))


def attentions():
    for name, inputs, causal, mask in (("attention", "", "False", ""), ("attention_causal", "", "True", ""),
                                       ("attention_mask", "am ", "False", ", attn_mask=mask")):
        aten = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"
        case(f"{name}_grads", f"qu ke va {inputs}dyq",
             f"{aten}_backward(dyq, qu, ke, va, *kept, 0.0, {causal}{mask})", "", "math", out=False, tolerance=5e-5,
             setup=("mask = torch.where(am, 0.0, float('-inf')); " if mask else "")
             + f"kept = {aten}(qu, ke, va, 0.0, {causal}{mask})")


convolutions()
pools()
losses()
normalizations()
activations()
attentions()
