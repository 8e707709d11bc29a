# The rows of the op table for include/muster/nn.h: products, convolutions, pooling, losses,
# normalisation, dropout, attention.
# It must not know how samples are run or compared (ops.py).
import ctypes

import numpy as np

from op_table import FLOATS, INTEGERS, NUMBERS, Sample, add


# ---- Matrix products ----------------------------------------------------------------------------------

def add_products():
    def plain(draw):
        for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3)), ((33, 17), (17, 65))):
            yield Sample(draw(*a), draw(*b))

    def transposed(draw):
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                yield Sample(draw(*((4, 3) if transpose_a else (3, 4))), draw(*((5, 4) if transpose_b else (4, 5))),
                             transpose_a=transpose_a, transpose_b=transpose_b)

    add("matmul", "matmul", plain, FLOATS, slack=32)
    add("matmul (integers)", "matmul", plain, ("i64", "i32"), ours=lambda mu, a, b: mu.mu_matmul(a, b))
    def batched(draw):
        for a, b in (((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((1, 33, 17), (2, 17, 65))):
            yield Sample(draw(*a), draw(*b))

    add("matmul (16-bit integers)", "matmul", batched, ("i16",), ours=lambda mu, a, b: mu.mu_matmul(a, b))
    add("matmul_transposed", "matmul", transposed, FLOATS + ("i64", "i32"), slack=32)
    add("nn_bias_add", "nn.bias_add", lambda draw: [Sample(draw(2, 3, 4), draw(4))], NUMBERS)


# ---- Linear algebra -----------------------------------------------------------------------------------

def add_linear_algebra():
    equations = {
        "ij,jk->ik": ((3, 4), (4, 5)), "bij,bkj->bik": ((2, 3, 4), (2, 5, 4)), "bqhd,bkhd->bhqk": ((2, 3, 2, 4), (2, 5, 2, 4)),
        "...ij,...jk->...ik": ((3, 1, 2, 4), (2, 4, 5)), "i,j->ij": ((3,), (4,)), "bi,bi->b": ((3, 4), (3, 4)), "ii": ((4, 4),),
        "bii->bi": ((2, 3, 3),), "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)), "ba,bc": ((4, 2), (4, 3)), "ab->ba": ((3, 4),),
        "...ij->...i": ((2, 3, 4),), "ijk,kj->i": ((2, 3, 4), (4, 3)), "ij...,jk...->ik...": ((2, 3, 4), (3, 5, 4)),
        "ij,jk->ki": ((3, 0), (0, 2)),
    }

    def einsum(draw):
        for equation, shapes in equations.items():
            yield Sample(*(draw(*shape) for shape in shapes), equation=equation)

    def norms(draw):
        for order, axes in (("euclidean", None), (1, None), (np.inf, None), ("euclidean", [1]), (3, [0]), (1, [-1]),
                            (np.inf, [0]), ("euclidean", [0, 2]), (1, [1, 2]), (np.inf, [-2, -1])):
            yield Sample(draw(2, 3, 4), order=order, axes=axes, keep=axes == [1])

    def spectral_norms(draw):  # TensorFlow has singular values of no shorter floats
        for axes in ([1, 2], [2, 0]):
            yield Sample(draw(2, 3, 4), order=2, axes=axes, keep=False)

    def norm_theirs(tf, x, order, axes, keep):
        return tf.norm(x, order, axes[0] if axes and len(axes) == 1 else axes, keep)

    def norm_ours(mu, x, order, axes, keep):
        over = {"axes": axes, "n_axes": len(axes)} if axes else {}
        return mu.mu_norm(x, 0.0 if order == "euclidean" else float(order), keep_dims=keep, **over)

    def positive(draw):
        for shape in ((3, 3), (2, 4, 4), (1, 1), (70, 70)):
            x = draw(*shape).astype(np.float64)
            yield Sample((x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(draw.dtype))

    def systems(draw):
        for lower in (True, False):
            for adjoint in (True, False):
                matrix = draw(2, 4, 4, low=0.5, high=1) + 2 * np.eye(4, dtype=draw.dtype)
                yield Sample(matrix, draw(2, 4, 3), lower=lower, adjoint=adjoint)
        yield Sample(draw(70, 70) / draw.dtype.type(70) + np.eye(70, dtype=draw.dtype), draw(70, 5), lower=True, adjoint=False)

    add("einsum", lambda tf, *inputs, equation: tf.einsum(equation, *inputs), einsum, FLOATS, slack=32,
        ours=lambda mu, *inputs, equation: mu.mu_einsum(equation, len(inputs), list(inputs)))
    add("tensordot", lambda tf, a, b, n: tf.tensordot(a, b, n), lambda draw: [Sample(draw(2, 3, 4), draw(3, 4, 5), n=2)], FLOATS,
        slack=32)
    add("tensordot_axes", lambda tf, a, b, n, axes_a, axes_b: tf.tensordot(a, b, [axes_a, axes_b]),
        lambda draw: [Sample(draw(2, 3, 4), draw(4, 5, 2), n=2, axes_a=[0, 2], axes_b=[2, 0])],
        FLOATS + ("i64", "i32"), slack=32,
        ours=lambda mu, a, b, n, axes_a, axes_b: mu.mu_tensordot(a, b, axes_a=axes_a, axes_b=axes_b, n_axes=n))
    add("norm", norm_theirs, norms, FLOATS, slack=16, ours=norm_ours)
    add("norm (singular value)", norm_theirs, spectral_norms, ("f64", "f32"), slack=16, ours=norm_ours)
    add("cholesky", "linalg.cholesky", positive, ("f64", "f32"), slack=64)
    add("triangular_solve", lambda tf, *inputs, **options: tf.linalg.triangular_solve(*inputs, **options), systems,
        ("f64", "f32"), slack=64)


# ---- Convolution and pooling --------------------------------------------------------------------------

def edges_of(pads):
    """Muster's top, bottom, left, right as TensorFlow's list of pairs."""
    return [[0, 0], list(pads[:2]), list(pads[2:]), [0, 0]]


def add_convolutions():
    def theirs(tf, x, kernel, strides, dilations, padding, pads, groups):
        return tf.nn.conv2d(x, kernel, strides, edges_of(pads) if padding == "explicit" else padding.upper(),
                            dilations=dilations)

    none = (0, 0, 0, 0)
    cases = {
        "": [((2, 7, 6, 3), (3, 3, 3, 4), (1, 1), (1, 1), "valid", none, 1),
             ((2, 7, 6, 3), (3, 2, 3, 5), (2, 2), (1, 1), "same", none, 1),
             ((1, 9, 8, 2), (3, 3, 2, 4), (1, 1), (1, 1), "explicit", (1, 0, 2, 1), 1),
             ((2, 28, 28, 1), (3, 3, 1, 32), (1, 1), (1, 1), "valid", none, 1)],
        " (dilated)": [((1, 9, 8, 2), (3, 3, 2, 4), (1, 1), (2, 2), "same", none, 1)],
        " (groups)": [((2, 7, 6, 4), (3, 3, 2, 6), (1, 1), (1, 1), "same", none, 2)],
        " (empty batch)": [((0, 7, 6, 3), (3, 3, 3, 4), (1, 1), (1, 1), "valid", none, 1)],
    }

    def samples(draw, which):
        names = ("strides", "dilations", "padding", "pads", "groups")
        return [Sample(draw(*case[0]), draw(*case[1]), **dict(zip(names, case[2:]))) for case in cases[which]]

    def depthwise_theirs(tf, x, kernel, strides, padding):
        return tf.nn.depthwise_conv2d(x, kernel, [1, *strides, 1], padding.upper())

    def depthwise(draw):
        yield Sample(draw(2, 7, 6, 3), draw(3, 3, 3, 2), strides=(1, 1), padding="same")
        yield Sample(draw(1, 7, 6, 4), draw(2, 3, 4, 1), strides=(2, 2), padding="valid")

    def conv1d_theirs(tf, x, kernel, stride, dilation, padding):
        if padding == "causal":
            x, padding = tf.pad(x, [[0, 0], [dilation * (kernel.shape[0] - 1), 0], [0, 0]]), "valid"
        return tf.nn.conv1d(x, kernel, stride, padding.upper(), dilations=dilation)

    def conv1d(draw):
        for stride, dilation, padding in ((1, 1, "valid"), (2, 1, "same"), (1, 1, "causal")):
            yield Sample(draw(2, 9, 3), draw(3, 3, 4), stride=stride, dilation=dilation, padding=padding)

    def causal(draw):
        yield Sample(draw(2, 9, 3), draw(3, 3, 4), stride=1, dilation=2, padding="causal")

    def conv1d_pads(draw):
        yield Sample(draw(2, 9, 3), draw(3, 3, 4), padding="explicit", pads=(2, 1))

    def conv1d_pads_theirs(tf, x, kernel, padding, pads):
        return tf.nn.conv1d(tf.pad(x, [[0, 0], list(pads), [0, 0]]), kernel, 1, "VALID")

    def volumes(draw):
        for strides, padding, groups in (((1, 1, 1), "valid", 1), ((2, 1, 2), "same", 1)):
            yield Sample(draw(2, 4, 5, 6, 4), draw(3, 2, 3, 4 // groups, 6), strides=strides, padding=padding, groups=groups)

    def volumes_theirs(tf, x, kernel, strides, padding, groups):
        return tf.nn.conv3d(x, kernel, [1, *strides, 1], padding.upper())

    def transposed(rank):
        def make(draw):
            for strides, padding in ((1, "valid"), (2, "same"), (3, "valid"), (2, "valid")):
                extents = (4, 3, 2)[:rank]
                yield Sample(draw(2, *extents, 3), draw(*(3, 2, 2)[:rank], 5, 3), strides=strides, padding=padding)
        return make

    def transposed_theirs(tf, x, kernel, strides, padding):
        extents = [n * strides + (max(k - strides, 0) if padding == "valid" else 0) for n, k in zip(x.shape[1:-1], kernel.shape)]
        call = {1: tf.nn.conv1d_transpose, 2: tf.nn.conv2d_transpose, 3: tf.nn.conv3d_transpose}[len(extents)]
        return call(x, kernel, [x.shape[0], *extents, kernel.shape[-2]], strides, padding.upper())

    def transposed_ours(mu, x, kernel, strides, padding, rank):
        if rank == 1:
            return mu.mu_nn_conv1d_transpose(x=x, kernel=kernel, stride=strides, padding=padding)
        return getattr(mu, f"mu_nn_conv{rank}d_transpose")(x=x, kernel=kernel, strides=(strides,) * rank, padding=padding)

    for rank in (1, 2, 3):
        add(f"nn_conv{rank}d_transpose", transposed_theirs, transposed(rank), FLOATS + ("i32",) * (rank < 3), slack=64,
            ours=lambda mu, x, kernel, rank=rank, **options: transposed_ours(mu, x, kernel, rank=rank, **options))
    add("nn_separable_conv2d", lambda tf, x, a, b, strides, padding: tf.nn.separable_conv2d(x, a, b, [1, *strides, 1], padding.upper()),
        lambda draw: [Sample(draw(2, 7, 6, 3), draw(3, 3, 3, 2), draw(1, 1, 6, 4), strides=strides, padding=padding)
                      for strides, padding in (((1, 1), "same"), ((2, 2), "valid"))], FLOATS, slack=64,
        ours=lambda mu, x, a, b, **options: mu.mu_nn_separable_conv2d(x=x, depthwise_kernel=a, pointwise_kernel=b, **options))

    rows = [("conv2d", note, theirs, lambda draw, note=note: samples(draw, note)) for note in cases]
    rows += [("depthwise_conv2d", "", depthwise_theirs, depthwise), ("conv1d", "", conv1d_theirs, conv1d),
             ("conv1d", " (dilated)", conv1d_theirs, causal), ("conv1d", " (explicit)", conv1d_pads_theirs, conv1d_pads),
             ("conv3d", "", volumes_theirs, volumes)]
    for name, note, call, make in rows:
        add(f"nn_{name}{note}", call, make, FLOATS + ("i32",) * (name in ("conv1d", "conv2d")), slack=64,
            ours=lambda mu, x, kernel, name=name, **options: getattr(mu, f"mu_nn_{name}")(x=x, kernel=kernel, **options))


def add_pooling():
    def samples(draw):
        for window, strides, padding in (((2, 2), (2, 2), "valid"), ((3, 2), (2, 1), "same"), ((3, 3), (1, 1), "valid")):
            yield Sample(draw.distinct(2, 7, 6, 3, over=32), window=window, strides=strides, padding=padding)

    for name in ("max_pool2d", "avg_pool2d"):
        add(f"nn_{name}", lambda tf, x, window, strides, padding, name=name:
            getattr(tf.nn, name)(x, window, strides, padding.upper()), samples, NUMBERS if name[0] == "m" else FLOATS, slack=4,
            ours=lambda mu, x, name=name, **options: getattr(mu, f"mu_nn_{name}")(x=x, **options))


def add_pooling_of_other_ranks():
    def sequences(draw):
        for window, stride, padding in ((2, 2, "valid"), (3, 1, "same"), (3, 2, "same")):
            yield Sample(draw.distinct(2, 7, 3, over=8), window=window, stride=stride, padding=padding)

    def volumes(draw):
        for window, strides, padding in (((2, 2, 2), (2, 2, 2), "valid"), ((3, 2, 2), (2, 1, 2), "same"),
                                         ((1, 3, 2), (1, 1, 1), "valid")):
            yield Sample(draw.distinct(1, 5, 4, 6, 2, over=16), window=window, strides=strides, padding=padding)

    for name in ("max_pool", "avg_pool"):
        add(f"nn_{name}1d", lambda tf, x, window, stride, padding, name=name:
            getattr(tf.nn, f"{name}1d")(x, window, stride, padding.upper()), sequences, NUMBERS if name[0] == "m" else FLOATS, slack=4,
            ours=lambda mu, x, name=name, **options: getattr(mu, f"mu_nn_{name}1d")(x=x, **options))
        add(f"nn_{name}3d", lambda tf, x, window, strides, padding, name=name:
            getattr(tf.nn, f"{name}3d")(x, window, strides, padding.upper()), volumes, FLOATS, slack=4,
            ours=lambda mu, x, name=name, **options: getattr(mu, f"mu_nn_{name}3d")(x=x, **options))


def add_resizing():
    def samples(draw):
        for height, width in ((3, 3), (9, 4), (5, 7), (1, 13)):
            yield Sample(draw(2, 5, 7, 3, high=9), height=height, width=width)
        yield Sample(draw(4, 6, 2), height=7, width=5)

    # TensorFlow mixes pixels in float32 alone; Muster keeps the type of floats.
    for method, note, dtypes in ((0, "", ("f32",)), (0, " (integers)", INTEGERS), (1, " (nearest)", NUMBERS)):
        add(f"image_resize{note}", lambda tf, x, height, width, method=method:
            tf.image.resize(x, [height, width], "nearest" if method else "bilinear"), samples, dtypes, slack=8,
            ours=lambda mu, x, height, width, method=method: mu.mu_image_resize(x, height, width, method))


def add_transforms():
    places = [[1.3, -0.6, -1.1, 0.7, 0.9, -0.4, 0, 0], [-0.8, 0.3, 9.2, 0.2, 1.6, -7.3, 0.1, -0.05],
              [1, 0, 0.5, 0, 1, -0.5, 0, 0], [3, 0, -20, 0, -4, 15, 0, 0]]

    def samples(draw):
        for interpolation in ("bilinear", "nearest"):
            for mode in ("constant", "reflect", "wrap", "nearest"):
                for shape in ((4, 5, 7, 3), (4, 1, 6, 1)):
                    yield Sample(draw(*shape, high=9), interpolation=interpolation, fill_mode=mode)

    def theirs(tf, x, interpolation, fill_mode):
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=x, transforms=tf.constant(places, tf.float32), output_shape=tf.shape(x)[1:3], fill_value=0.25,
            interpolation=interpolation.upper(), fill_mode=fill_mode.upper())

    add("image_affine_transform", theirs, samples, ("f32", "f16", "bf16", "i64", "i32", "u8"), slack=64, ours=lambda mu, x, **options:
        mu.mu_image_affine_transform(images=x, transforms=mu.tensor(np.array(places, np.float32)), fill_value=0.25, **options))



# ---- Softmax and losses -------------------------------------------------------------------------------

def add_losses():
    def along(draw):
        for shape, axis in (((3, 5), -1), ((2, 3, 4), 1), ((1, 1), -1), ((4, 70), -1)):
            yield Sample(draw(*shape, low=-8, high=8), axis=axis)

    def sparse(draw):
        for dtype in (np.int32, np.int64):
            yield Sample(draw.indices(6, n=10, dtype=dtype), draw(6, 10, low=-8, high=8))

    def dense(draw):
        labels = draw(6, 10, low=0.1, high=1).astype(np.float64)
        yield Sample((labels / labels.sum(-1, keepdims=True)).astype(draw.dtype), draw(6, 10, low=-8, high=8))

    def binary(draw):
        yield Sample(draw(3, 5, low=0, high=1), draw(3, 5, low=-8, high=8))

    def sigmoid_theirs(tf, labels, logits):
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def dense_theirs(tf, labels, logits):
        return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    add("nn_softmax", lambda tf, x, axis: tf.nn.softmax(x, axis), along, FLOATS, slack=8)
    add("nn_log_softmax", lambda tf, x, axis: tf.nn.log_softmax(x, axis), along, FLOATS, slack=16)
    add("nn_sparse_softmax_cross_entropy", "nn.sparse_softmax_cross_entropy_with_logits", sparse, FLOATS, slack=16)
    add("nn_softmax_cross_entropy", dense_theirs, dense, FLOATS, slack=16)
    add("nn_sigmoid_cross_entropy", sigmoid_theirs, binary, FLOATS, slack=8)


# ---- Normalisation and attention ----------------------------------------------------------------------

EPSILON = 2.0**-10  # a number that f32 has


def add_normalizations():
    def channels(draw):
        yield Sample(draw(4, 3, 3, 6), draw(6, low=0.5, high=2), draw(6))
        yield Sample(draw(17, 6), draw(6, low=0.5, high=2), draw(6))

    def given(draw):
        yield Sample(draw(5, 6), draw(6), draw(6, low=0.5, high=2), draw(6), draw(6, low=0.5, high=2))

    def training_ours(mu, x, gamma, beta):
        out = (ctypes.c_void_p * 3)()
        mu.mu_nn_batch_norm_training(x, gamma, beta, EPSILON, *(ctypes.byref(out, 8 * i) for i in range(3)))
        return list(out)

    def training_theirs(tf, x, gamma, beta):
        mean, variance = tf.nn.moments(x, list(range(len(x.shape) - 1)))
        return [tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON), mean, variance]

    def layer_theirs(tf, x, gamma, beta):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + EPSILON) * gamma + beta

    def rms_theirs(tf, x, gamma):
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + EPSILON) * gamma

    def group_theirs(tf, x, gamma, beta):
        grouped = tf.reshape(x, [x.shape[0], -1, 3, x.shape[-1] // 3])
        mean, variance = tf.nn.moments(grouped, [1, 3], keepdims=True)
        return tf.reshape((grouped - mean) * tf.math.rsqrt(variance + EPSILON), x.shape) * gamma + beta

    add("nn_batch_norm_training", training_theirs, channels, FLOATS, slack=32, ours=training_ours)
    add("nn_batch_normalization", lambda tf, *inputs: tf.nn.batch_normalization(*inputs, EPSILON), given, FLOATS, slack=8,
        ours=lambda mu, *inputs: mu.mu_nn_batch_normalization(*inputs, EPSILON))
    add("nn_layer_normalization", layer_theirs, channels, FLOATS, slack=32,
        ours=lambda mu, *inputs: mu.mu_nn_layer_normalization(*inputs, EPSILON))
    add("nn_rms_normalization", rms_theirs, lambda draw: [Sample(draw(4, 6), draw(6))], FLOATS, slack=32,
        ours=lambda mu, *inputs: mu.mu_nn_rms_normalization(*inputs, EPSILON))
    add("nn_group_normalization", group_theirs, channels, FLOATS, slack=32,
        ours=lambda mu, x, gamma, beta: mu.mu_nn_group_normalization(x, 3, gamma, beta, EPSILON))


def add_dropout():
    def samples(draw):
        for seed in ([3, 5], [-1, 2**40]):
            yield Sample(draw(3, 40), np.array(seed, np.int64), rate=0.25)
        yield Sample(draw(3, 40), np.array([-3, 5], np.int32), rate=0.25)

    # Other types drop the same positions in Muster; TensorFlow draws anew in each type.
    add("nn_stateless_dropout", lambda tf, x, seed, rate: tf.nn.experimental.stateless_dropout(x, rate, seed), samples, ("f32",),
        ours=lambda mu, x, seed, rate: mu.mu_nn_stateless_dropout(x, rate, seed))


def add_attention():
    def theirs(tf, query, key, value, *mask, causal=False):
        scores = tf.matmul(query, key, transpose_b=True) * tf.cast(query.shape[-1], query.dtype) ** -0.5
        seen = mask[0] if mask else tf.constant(True)
        if causal:
            queries, keys = query.shape[-2], key.shape[-2]
            seen &= tf.range(keys)[None, :] <= tf.range(queries)[:, None] + keys - queries
        scores = tf.where(seen, scores, tf.constant(-1e4, scores.dtype))
        return tf.matmul(tf.nn.softmax(scores), value)

    def samples(draw):
        yield Sample(draw(2, 5, 4), draw(2, 7, 4), draw(2, 7, 3))
        yield Sample(draw(2, 3, 5, 4), draw(2, 3, 5, 4), draw(2, 3, 5, 6), causal=True)
        mask = draw.generator.integers(0, 2, (5, 7)).astype(bool)
        mask[:, 0] = True
        yield Sample(draw(2, 5, 4), draw(2, 7, 4), draw(2, 7, 3), mask)

    def ours(mu, query, key, value, *mask, **options):
        return mu.mu_nn_attention(query=query, key=key, value=value, **({"mask": mask[0]} if mask else {}), **options)

    add("nn_attention", theirs, samples, FLOATS, slack=32, ours=ours)


add_products()
add_linear_algebra()
add_convolutions()
add_pooling()
add_pooling_of_other_ranks()
add_resizing()
add_transforms()
add_losses()
add_normalizations()
add_dropout()
add_attention()
