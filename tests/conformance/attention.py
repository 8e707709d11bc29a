# Attention layers in Keras and in Muster: outputs, scores and gradients with every mask, configurations, and training.
#
# Both sides get the same weights under the same names. What is compared, and how, is as in sequences.py.
import ctypes
import json
import sys

import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, TOLERANCE, compare_parts, off
from report import Report
from sequences import ROWS, TOLERANCE_F64, TRAINING_STEPS, MU_VERBOSE_SILENT, call_muster, random_weights, weights_of

QUERIES, KEYS, FEATURES = 4, 6, 5
FUNCTIONS = {"Attention": "mu_attention", "AdditiveAttention": "mu_additive_attention",
             "MultiHeadAttention": "mu_multi_head_attention", "GroupQueryAttention": "mu_grouped_query_attention"}
OPPOSITES = {("AdditiveAttention", "use_scale"): "no_scale", ("MultiHeadAttention", "use_bias"): "no_bias",
             ("GroupQueryAttention", "use_bias"): "no_bias"}
CAUSAL, SCORES = {"use_causal_mask": True}, {"return_attention_scores": True}
HEADS = {"num_heads": 3, "key_dim": 2}
GROUPS = {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2}

# Keras's class, options, arguments of the call, the inputs (q, v, k, and m for a mask of pairs), which of them have masks.
# Capital letters are inputs of rank 4; their masks of pairs also have the axes that are not attended along (n), or these
# and the heads (h).
CASES = [(name, options, arguments, inputs, masks)
         for name, options in (("Attention", {}), ("AdditiveAttention", {}), ("MultiHeadAttention", HEADS),
                               ("GroupQueryAttention", GROUPS))
         for arguments, inputs, masks in (({}, "qv", ""), ({}, "qvk", ""), (CAUSAL, "qvk", ""), (CAUSAL | SCORES, "qv", ""),
                                          ({}, "qv", "qv"), (CAUSAL, "qvk", "v"), (SCORES, "qvk", "qvk"))]
CASES += [
    ("Attention", {"use_scale": True}, {}, "qv", ""), ("Attention", {"score_mode": "concat"}, {}, "qvk", "qv"),
    ("Attention", {"score_mode": "concat", "use_scale": True}, SCORES, "qv", ""),
    ("AdditiveAttention", {"use_scale": False}, CAUSAL, "qv", "v"),
    ("Attention", {"dropout": 0.5}, {}, "qv", "v"),
    ("MultiHeadAttention", HEADS | {"value_dim": 4, "output_shape": 7, "use_bias": False}, {}, "qv", "v"),
    ("MultiHeadAttention", HEADS | {"sliding_window": 2, "use_gate": True}, {}, "qvk", ""),
    ("MultiHeadAttention", HEADS | {"sliding_window": 3}, CAUSAL, "qv", "v"),
    ("MultiHeadAttention", HEADS | {"dropout": 0.5}, CAUSAL, "qv", "qv"),
    ("MultiHeadAttention", HEADS, {}, "qvkm", "v"), ("MultiHeadAttention", HEADS, SCORES | CAUSAL, "qvkm", ""),
    ("GroupQueryAttention", GROUPS | {"use_gate": True, "use_bias": False, "sliding_window": 3}, {}, "qv", "qv"),
    ("GroupQueryAttention", GROUPS | {"dropout": 0.25}, {}, "qvkm", "v"),
]
# Inputs of more axes, Q and V: along some of them, and along all.
CASES += [("MultiHeadAttention", HEADS | {"attention_axes": axes} | more, arguments, inputs, "")
          for axes, more, arguments, inputs in (
              ((2,), {}, {}, "QV"), ((-2,), {"use_gate": True, "output_shape": 7}, SCORES, "QVK"), ((1, 2), {}, {}, "QV"),
              ((2, 1), {"dropout": 0.5}, SCORES, "QV"), (None, {"value_dim": 3, "use_bias": False}, SCORES, "QVK"),
              ((1,), {}, SCORES, "qv"), ((1,), {}, {}, "QQ"))]
# With masks. Keras computes that of pairs from the others along the axis in front of the features alone, where it also
# knows an order if the axes happen to be of one length; for other axes it is given the mask that it should have computed.
CASES += [("MultiHeadAttention", HEADS | {"attention_axes": axes} | more, arguments, inputs, masks)
          for axes, more, arguments, inputs, masks in (
              ((2,), {}, {}, "QV", "QV"), ((2,), {}, SCORES, "QVK", "VK"), ((2,), {"dropout": 0.5}, {}, "QV", "Q"),
              ((1,), {}, {}, "QQ", "QV"), ((1, 2), {}, SCORES, "QV", "QV"), (None, {}, {}, "QVK", "QVK"),
              ((1,), {}, CAUSAL, "QQ", ""), ((1,), {"sliding_window": 2}, CAUSAL | SCORES, "QQ", ""),
              ((2,), {}, {}, "QVKm", ""), ((2,), {}, SCORES, "QVKn", "V"), ((2,), {}, {}, "QVKh", ""),
              ((1, 2), {}, {}, "QVKm", ""), ((2, 1), {}, SCORES, "QVKh", ""))]
CASES += [(name, options, arguments, inputs, masks)
          for name, options in (("Attention", {"use_scale": True}), ("Attention", {"score_mode": "concat"}),
                                ("AdditiveAttention", {}))
          for arguments, inputs, masks in (({}, "QV", ""), (CAUSAL | SCORES, "QVK", ""), ({}, "QV", "Q"), (SCORES, "QVK", "QV"))]
# A query may look at itself: as many queries as keys, where the fused op masks by itself.
SELF = [("MultiHeadAttention", HEADS, CAUSAL, "s", ""), ("GroupQueryAttention", GROUPS, CAUSAL, "s", "s")]


def title(case):
    name, options, arguments, inputs, masks = case
    given = ", ".join(f"{key} {value}" for key, value in (options | arguments).items())
    return f"{name}({given}) of {inputs}{' masked ' + masks if masks else ''}"


def in_muster(mu, name, options, arguments):
    made = {}
    for key, value in options.items():
        opposite = OPPOSITES.get((name, key))
        made[opposite or key] = not value if opposite else value
    if made.get("attention_axes"):
        axes = made["attention_axes"]
        made |= {"attention_axes": (ctypes.c_int * len(axes))(*axes), "n_attention_axes": len(axes)}
    return getattr(mu, FUNCTIONS[name])(**made, **arguments)


def arguments_of(case, generator, dtype):
    """The inputs, and for each its mask or None; a first key is never masked, so that no query is without any."""
    _, _, _, inputs, masks = case
    if inputs == "s":
        x = generator.normal(size=(ROWS, KEYS, FEATURES)).astype(dtype)
        mask = generator.random((ROWS, KEYS)) < 0.6 if masks else None
        if masks:
            mask[:, 0] = True
        return [x, x], [mask, mask]
    shapes = {"q": (QUERIES, FEATURES), "v": (KEYS, FEATURES), "k": (KEYS, FEATURES)}
    shapes |= {kind.upper(): (3, *shape) for kind, shape in shapes.items()}
    given = [shapes[kind] for kind in inputs if kind in shapes]
    tensors = [generator.normal(size=(ROWS, *shape)).astype(dtype) for shape in given]
    found = []
    for shape, place in zip(given, "qvk"):
        mask = generator.random((ROWS, *shape[:-1])) < 0.7 if place in masks.lower() else None
        if mask is not None:
            mask[:, 0] = mask[..., 0] = True
        found.append(mask)
    if inputs[-1] in "mnh":
        pairs = (generator.random((ROWS, *pair_axes(case, given[0], given[1]))) < 0.7).astype(dtype)
        pairs[..., 0] = 1
        tensors.append(pairs)
        found.append(None)
    return tensors, found


def axes_of(options, rank):
    return [axis % rank for axis in options.get("attention_axes") or range(1, rank - 1)]


def pair_axes(case, query, key):
    """The sizes of a mask of pairs behind the batch, for the shapes of a query and a key without it."""
    _, options, _, inputs, _ = case
    axes = axes_of(options, len(query) + 1)
    rest = [size for axis, size in enumerate(query[:-1], 1) if axis not in axes]
    before = {"m": [], "n": rest, "h": [*rest, options.get("num_heads")]}[inputs[-1]]
    return [*before, *(query[axis - 1] for axis in axes), *(key[axis - 1] for axis in axes)]


def pairs_of(axes, masks):
    """The mask of pairs that the masks of query, value and key mean, [batch, other axes, queries, keys]."""
    query, *others = masks
    rank = max(mask.ndim for mask in masks if mask is not None)
    order = [axis for axis in range(rank) if axis not in axes] + axes
    n_rest, n = rank - len(axes), len(axes)
    pairs = True
    if query is not None:
        folded = query.transpose(order)
        pairs = folded.reshape(*folded.shape, *[1] * n)
    for key in (mask for mask in others if mask is not None):
        folded = key.transpose(order)
        pairs = pairs & folded.reshape(*folded.shape[:n_rest], *[1] * n, *folded.shape[n_rest:])
    return pairs


def call_keras(theirs, case, inputs, masks, factors):
    name, options, arguments, kinds, _ = case
    several = "Head" in name or "Group" in name
    wide = None if several or inputs[0].ndim == 3 else inputs[0].shape[:2]
    if wide:  # whose masks Keras computes with for rank 3 alone
        inputs = [x.reshape(-1, *x.shape[2:]) for x in inputs]
        masks = [mask if mask is None else mask.reshape(-1, mask.shape[2]) for mask in masks]
    with tf.GradientTape() as tape:
        tensors = [tf.constant(x) for x in inputs]
        given = [None if mask is None else tf.constant(mask) for mask in masks]
        if several:
            names = ("query_mask", "value_mask", "key_mask")
            more = {key: mask for key, mask in zip(names, given) if mask is not None}
            if "query_mask" in more and "Head" in name:  # which is read from the tensor
                tf_mask = more.pop("query_mask")
                tensors[0]._keras_mask = tf_mask
            if kinds[-1] in "mnh":
                more["attention_mask"] = tensors.pop()
            elif inputs[0].ndim > 3 and any(mask is not None for mask in masks):
                more = in_pairs(tensors[0], more, axes_of(options, inputs[0].ndim), masks)
            outputs = theirs(*tensors, **more, **arguments)
        else:
            outputs = theirs(tensors, mask=given[:2] + [None] * (len(tensors) - 2) if any(m is not None for m in given) else None,
                             **arguments)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        loss = sum(tf.reduce_sum(y * factors(i, y.shape)) for i, y in enumerate(outputs))
    gradients = tape.gradient(loss, theirs.trainable_weights) if theirs.trainable_weights else []
    outputs = [tf.reshape(y, [*wide, *y.shape[1:]]) if wide else y for y in outputs]
    return [y.numpy() for y in outputs], [g.numpy() for g in gradients]


def in_pairs(query, given, axes, masks):
    """The arguments of a call of Keras's with masks of inputs of rank 4."""
    if axes == [2]:
        return given
    query._keras_mask = None
    return {"attention_mask": tf.constant(pairs_of(axes, masks))}


def masks_of(mu, masks):
    none = mu.mu_list_of(0, [])
    return mu.mu_list_of(len(masks), [mu.mu_of(mu.tensor(mask)) if mask is not None else none for mask in masks])


def off_all(ours, theirs):
    """The largest difference, relative to the largest of all numbers: a key's bias has no gradient but rounding."""
    if not theirs:
        return 0.0
    return off(np.concatenate([np.ravel(part) for part in ours]), np.concatenate([np.ravel(part) for part in theirs]))


def compare_layer(report, mu, floatx, case):
    name, options, arguments, _, _ = case
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(2)
    inputs, masks = arguments_of(case, generator, dtype)
    theirs = getattr(tf.keras.layers, name)(**options)
    theirs(*inputs[:2]) if "Head" in name or "Group" in name else theirs(inputs[:2])
    random_weights(theirs.trainable_weights, generator, dtype)

    def factors(i, shape):
        return np.random.default_rng(i).normal(size=tuple(shape)).astype(dtype)

    outputs, gradients = call_keras(theirs, case, inputs, masks, factors)
    wanted, shapes = outputs + gradients, [y.shape for y in outputs]
    with mu.pool():
        ours = in_muster(mu, name, options, arguments)
        tensors = [mu.tensor(x) for x in inputs]
        keyword = {"masks": masks_of(mu, masks)} if any(mask is not None for mask in masks) else {}
        mu.mu_call_values(model=ours, inputs=mu.values(tensors), **keyword)
        for path, value in weights_of(theirs).items():
            if "seed" not in path:
                variable = mu.mu_layer_weight(ours, path.partition("/")[2])
                mu.mu_variable_assign(variable, mu.tensor(value))

        def call(given):
            return call_muster(mu, ours, given, keyword, factors, shapes)

        eager = [mu.array(y) for y in call(tensors)]
        function, _callback = mu.function(lambda batch: mu.values(call([mu.mu_at(batch, i) for i in range(len(tensors))])))
        result = mu.mu_run(mu.strategy, function, mu.values(tensors))
        traced = [mu.array(mu.mu_at(result, i)) for i in range(len(wanted))]
    far = [max([off(a, b) for a, b in zip(seen[:len(outputs)], outputs, strict=True)] + [off_all(seen[len(outputs):], gradients)])
           for seen in (eager, traced)]
    report.check(f"{title(case)}, {floatx}", f"outputs and gradients within {far[0]:.1e}, traced {far[1]:.1e}",
                 max(far) <= TOLERANCE[floatx])


# ---- Configurations and training ----------------------------------------------------------------------

CONFIGURATIONS = [("Attention", {"use_scale": True, "score_mode": "concat", "dropout": 0.25, "seed": 3}),
                  ("AdditiveAttention", {"use_scale": False}),
                  ("MultiHeadAttention", HEADS | {"value_dim": 4, "output_shape": 7, "use_bias": False, "sliding_window": 2}),
                  ("GroupQueryAttention", GROUPS | {"use_gate": True, "kernel_initializer": "he_normal"})]


def compare_configuration(report, mu, floatx, row):
    """Keras's layer, read here and written again, is the same layer in Keras."""
    name, options = row
    theirs = getattr(tf.keras.layers, name)(name="mine", **options)
    x = np.zeros((1, 2, FEATURES), FLOATX[floatx])
    theirs([x, x]) if "Head" not in name and "Group" not in name else theirs(x, x)
    text = json.dumps(tf.keras.layers.serialize(theirs))
    with mu.pool():
        again = tf.keras.layers.deserialize(json.loads(mu.mu_layer_config(mu.mu_layer_from_config(text))))
    wanted = theirs.get_config()
    wanted.pop("attention_axes", None)
    seen = again.get_config()
    seen.pop("attention_axes", None)
    report.check(f"configuration {name}, {floatx}", "the same in both directions", json.dumps(wanted) == json.dumps(seen))


def compare_training(report, mu, floatx, name):
    """200 steps of SGD of a model of words with self-attention, masks and a residual connection."""
    dtype, words, sentence, width = FLOATX[floatx], 30, 6, 8
    generator = np.random.default_rng(4)
    x = generator.integers(1, words, (24, sentence)).astype(np.int32)
    x[np.arange(sentence)[None] >= generator.integers(1, sentence + 1, len(x))[:, None]] = 0
    y = (x % 3).astype(np.int32)
    options = {"MultiHeadAttention": {"num_heads": 2, "key_dim": 4}, "Attention": {"use_scale": True},
               "GroupQueryAttention": {"head_dim": 4, "num_query_heads": 2, "num_key_value_heads": 1}}[name]
    layers = tf.keras.layers
    tokens = layers.Input((sentence,), dtype="int32")
    embedded = layers.Embedding(words, width, mask_zero=True, name="table")(tokens)
    asked = layers.Dense(width, name="asked")(embedded)  # MultiHeadAttention takes the masks off its inputs
    attend = getattr(layers, name)(name="attend", **options)
    taken = attend([asked, asked], use_causal_mask=True) if name == "Attention" else \
        attend(asked, asked, use_causal_mask=True)
    theirs = tf.keras.Model(tokens, layers.Dense(3, name="head")(layers.Add()([embedded, taken])))
    random_weights(theirs.trainable_weights, generator, dtype)
    first = {key: value for key, value in weights_of(theirs).items() if "seed" not in key}
    theirs.compile(tf.keras.optimizers.SGD(0.0625), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = theirs.fit(x, y, batch_size=len(x), epochs=TRAINING_STEPS, shuffle=False, verbose=0).history
    with mu.pool():
        given = mu.mu_input(shape=[sentence], dtype=mu.declared.constants["MU_I32"])
        ours = mu.mu_call(model=mu.mu_embedding(input_dim=words, output_dim=width, mask_zero=True, name="table"), x=given)
        query = mu.mu_call(model=mu.mu_dense(units=width, name="asked"), x=ours)
        layer = getattr(mu, FUNCTIONS[name])(name="attend", use_causal_mask=True, **options)
        summed = mu.mu_call(model=mu.mu_add_layer(),
                            inputs=mu.values([ours, mu.mu_call(model=layer, inputs=mu.values([query, query]))]))
        model = mu.mu_model_new(input=given, output=mu.mu_call(model=mu.mu_dense(units=3, name="head"), x=summed))
        mu.write_weights(model, first)
        mu.mu_compile(model=model, optimizer=mu.mu_sgd(learning_rate=0.0625),
                      loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True))
        seen = mu.mu_fit(model=model, x=mu.values([mu.tensor(x), mu.tensor(y)]), batch_size=len(x), epochs=TRAINING_STEPS,
                         no_shuffle=True, verbose=MU_VERBOSE_SILENT)
        after, loss = mu.read_weights(model), mu.mu_history_last(seen, "loss")
    far = max(off(after[key], value) for key, value in weights_of(theirs).items() if "seed" not in key)
    far_loss = off(loss, history["loss"][-1])
    report.check(f"training {name}, {floatx}", f"after {TRAINING_STEPS} steps weights within {far:.1e}, loss within "
                 f"{far_loss:.1e}", far <= TOLERANCE_F64 and far_loss <= 1e-6)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("attention")
    for floatx in FLOATX:
        parts = [(compare_layer, case, title(case)) for case in CASES + SELF]
        parts += [(compare_configuration, row, f"configuration {row[0]}") for row in CONFIGURATIONS]
        if floatx == "f64":
            parts += [(compare_training, name, f"training {name}")
                      for name in ("Attention", "MultiHeadAttention", "GroupQueryAttention")]
        compare_parts(report, mu, floatx, parts, only)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
