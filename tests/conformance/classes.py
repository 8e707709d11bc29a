# Classes of Keras and of Muster side by side: each loss with each reduction and with sample weights, each metric over
# several batches, each option of the activations, regularizers, configurations in both directions, and functional
# models that train. Last, every class of the installed Keras's losses, metrics, callbacks, initializers, regularizers
# and constraints is either there or in NOT_THERE, with the reason.
#
# A loss is compared as evaluate computes it, a metric through its update and result. It must not know how the library
# gets its results.
import ctypes
import json
import sys
import tempfile
import zipfile

import keras
import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, TOLERANCE, compare_parts, off
from report import Report
from training import single

MU_VERBOSE_SILENT = 1
ROWS, OUTPUTS = 24, 4


def numbers(seed, kind, dtype):
    """Labels or predictions of the kind that a class takes."""
    generator = np.random.default_rng(seed)
    if kind == "real":
        return generator.normal(0, 2, (ROWS, OUTPUTS)).astype(dtype)
    if kind == "positive":
        return generator.uniform(0.1, 3, (ROWS, OUTPUTS)).astype(dtype)
    if kind == "bits":
        return generator.integers(0, 2, (ROWS, OUTPUTS)).astype(dtype)
    if kind == "share":
        return generator.uniform(0, 1, (ROWS, OUTPUTS)).astype(dtype)
    if kind == "classes":
        return generator.integers(0, OUTPUTS, ROWS).astype(np.int32)
    if kind == "labels":  # 1 to 3 of them, then 0
        labels = generator.integers(1, OUTPUTS, (ROWS, 3))
        return np.where(np.arange(3) < generator.integers(1, 4, (ROWS, 1)), labels, 0).astype(np.int32)
    if kind == "sequence":
        return generator.normal(0, 2, (ROWS, 7, OUTPUTS)).astype(dtype)
    if kind == "maps":
        return generator.uniform(0, 1, (ROWS, 3, OUTPUTS)).astype(dtype)
    if kind == "rounded":  # many are equal
        return np.round(generator.uniform(0, 1, (ROWS, OUTPUTS)), 1).astype(dtype)
    if kind == "column":
        return generator.uniform(0, 1, (ROWS, 1)).astype(dtype)
    if kind == "vector":
        return generator.uniform(0, 1, ROWS).astype(dtype)
    if kind == "thin":  # an output for each step
        return generator.uniform(0.1, 3, (ROWS, OUTPUTS, 1)).astype(dtype)
    if kind == "images":
        return generator.uniform(0, 1, (ROWS, 3, 2, OUTPUTS)).astype(dtype)
    if kind == "unit":
        rows = generator.normal(0, 1, (ROWS, OUTPUTS))
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(dtype)
    rows = generator.uniform(0.05, 1, (ROWS, OUTPUTS))
    if kind == "one-hot":
        return np.eye(OUTPUTS)[rows.argmax(-1)].astype(dtype)
    return (rows / rows.sum(-1, keepdims=True)).astype(dtype)  # "distribution"


# Keras's class, the kinds of labels and of predictions, options.
LOSSES = [
    ("MeanSquaredError", "real", "real", {}), ("MeanAbsoluteError", "real", "real", {}),
    ("MeanAbsolutePercentageError", "real", "real", {}), ("MeanSquaredLogarithmicError", "positive", "positive", {}),
    ("Huber", "real", "real", {}), ("Huber", "real", "real", {"delta": 0.5}), ("LogCosh", "real", "real", {}),
    ("CosineSimilarity", "real", "real", {}), ("Hinge", "bits", "real", {}), ("SquaredHinge", "bits", "real", {}),
    ("CategoricalHinge", "one-hot", "real", {}), ("KLDivergence", "distribution", "distribution", {}),
    ("Poisson", "positive", "positive", {}), ("BinaryCrossentropy", "bits", "share", {}),
    ("BinaryCrossentropy", "bits", "real", {"from_logits": True, "label_smoothing": 0.25}),
    ("CategoricalCrossentropy", "one-hot", "positive", {"label_smoothing": 0.125}),
    ("CategoricalCrossentropy", "distribution", "real", {"from_logits": True}),
    ("SparseCategoricalCrossentropy", "classes", "distribution", {}),
    ("SparseCategoricalCrossentropy", "classes", "real", {"from_logits": True}),
    ("BinaryFocalCrossentropy", "bits", "share", {}),
    ("BinaryFocalCrossentropy", "bits", "real", {"from_logits": True, "apply_class_balancing": True, "gamma": 1.5}),
    ("CategoricalFocalCrossentropy", "one-hot", "distribution", {}),
    ("CategoricalFocalCrossentropy", "one-hot", "real", {"from_logits": True, "alpha": 0.5}),
    ("CosineSimilarity", "maps", "maps", {"axis": 1}), ("BinaryCrossentropy", "maps", "maps", {"axis": 1}),
    # Without label_smoothing, which Keras divides by the size of the last axis, wherever the classes are.
    ("CategoricalCrossentropy", "maps", "maps", {"axis": 1}),
    ("CategoricalFocalCrossentropy", "maps", "maps", {"axis": 1}),
    ("BinaryFocalCrossentropy", "maps", "maps", {"axis": 1, "label_smoothing": 0.25}),
    ("SparseCategoricalCrossentropy", "classes", "distribution", {"ignore_class": 2}),
    ("SparseCategoricalCrossentropy", "classes", "real", {"from_logits": True, "ignore_class": 0}),
    ("CategoricalGeneralizedCrossEntropy", "classes", "distribution", {}),
    ("CategoricalGeneralizedCrossEntropy", "classes", "distribution", {"q": 0.875}),
    ("Dice", "images", "images", {}), ("Dice", "images", "images", {"axis": (1, 2, 3)}),
    ("Tversky", "images", "images", {}), ("Tversky", "images", "images", {"axis": (1, 2, 3), "alpha": 0.25, "beta": 1.5}),
    ("MeanSquaredError", "positive", "thin", {}), ("KLDivergence", "positive", "thin", {}),
    ("CosineSimilarity", "positive", "thin", {}),
    ("Circle", "classes", "unit", {}), ("Circle", "classes", "unit", {"gamma": 4.0, "margin": 0.25}),
    ("Circle", "classes", "unit", {"gamma": 4.0, "remove_diagonal": False}), ("CTC", "labels", "sequence", {}),
]
REDUCTIONS = ("sum_over_batch_size", "sum", "mean_with_sample_weight")
METRICS = [
    ("BinaryAccuracy", "bits", "share", {}), ("BinaryAccuracy", "bits", "share", {"threshold": 0.25}),
    ("CategoricalAccuracy", "one-hot", "real", {}), ("SparseCategoricalAccuracy", "classes", "real", {}),
    ("TopKCategoricalAccuracy", "one-hot", "real", {"k": 2}),
    ("SparseTopKCategoricalAccuracy", "classes", "real", {"k": 3}),
    ("TopKCategoricalAccuracy", "one-hot", "rounded", {"k": 2}),
    ("SparseTopKCategoricalAccuracy", "classes", "rounded", {"k": 1}),
    ("Precision", "bits", "share", {}), ("Recall", "bits", "share", {}),
    ("AUC", "bits", "share", {}), ("AUC", "bits", "share", {"curve": "PR"}),
    ("AUC", "bits", "share", {"num_thresholds": 20}), ("MeanIoU", "classes", "classes", {"num_classes": OUTPUTS}),
    ("RootMeanSquaredError", "real", "real", {}),
    ("TruePositives", "bits", "share", {}), ("FalsePositives", "bits", "share", {"thresholds": (0.25, 0.75)}),
    ("TrueNegatives", "bits", "share", {}), ("FalseNegatives", "bits", "share", {"thresholds": (0.1, 0.4, 0.9)}),
    ("Precision", "bits", "share", {"thresholds": (0.25, 0.6, 0.75)}), ("Precision", "bits", "share", {"top_k": 2}),
    ("Precision", "bits", "share", {"class_id": 1}), ("Recall", "bits", "share", {"top_k": 1, "class_id": 2}),
    ("Recall", "bits", "share", {"thresholds": (0.25, 0.6)}),
    ("PrecisionAtRecall", "bits", "share", {"recall": 0.5}), ("RecallAtPrecision", "bits", "share", {"precision": 0.5}),
    ("SensitivityAtSpecificity", "bits", "share", {"specificity": 0.75, "num_thresholds": 50}),
    ("SpecificityAtSensitivity", "bits", "share", {"sensitivity": 0.25, "class_id": 3}),
    ("AUC", "bits", "share", {"curve": "PRGAIN"}), ("AUC", "bits", "share", {"summation_method": "minoring"}),
    ("AUC", "bits", "share", {"curve": "PR", "summation_method": "majoring", "thresholds": (0.5, 0.2, 0.9)}),
    ("AUC", "bits", "share", {"multi_label": True, "num_labels": OUTPUTS}),
    ("AUC", "bits", "share", {"multi_label": True, "num_labels": OUTPUTS, "curve": "PR",
                              "label_weights": (0.5, 1.0, 2.0, 0.25)}),
    ("AUC", "bits", "real", {"from_logits": True, "label_weights": (0.5, 1.0, 2.0, 0.25)}),
    ("AUC", "bits", "share", {"multi_label": True}), ("AUC", "bits", "real", {}), ("AUC", "bits", "real", {"curve": "PR"}),
    ("Precision", "bits", "real", {"thresholds": (0.0, 0.5, 1.0)}), ("R2Score", "vector", "column", {}),
    ("F1Score", "bits", "share", {}), ("F1Score", "bits", "share", {"average": "macro", "threshold": 0.5}),
    ("F1Score", "bits", "share", {"average": "micro"}),
    ("FBetaScore", "bits", "share", {"beta": 2.0, "average": "weighted"}),
    ("FBetaScore", "one-hot", "distribution", {"beta": 0.5, "threshold": 0.25}),
    ("R2Score", "real", "real", {}), ("R2Score", "real", "real", {"class_aggregation": None}),
    ("R2Score", "real", "real", {"class_aggregation": "variance_weighted_average", "num_regressors": 3}),
    ("CosineSimilarity", "real", "real", {}), ("CosineSimilarity", "maps", "maps", {"axis": 1}),
    ("PearsonCorrelation", "real", "real", {}), ("ConcordanceCorrelation", "real", "real", {}),
    ("ConcordanceCorrelation", "maps", "maps", {"axis": 1}),
    ("IoU", "classes", "classes", {"num_classes": OUTPUTS, "target_class_ids": (0, 2)}),
    ("IoU", "one-hot", "real", {"num_classes": OUTPUTS, "target_class_ids": (1,), "sparse_y_true": False,
                                "sparse_y_pred": False}),
    ("MeanIoU", "classes", "classes", {"num_classes": OUTPUTS, "ignore_class": 1}),
    ("MeanIoU", "classes", "classes", {"num_classes": OUTPUTS - 1}),
    ("OneHotIoU", "one-hot", "real", {"num_classes": OUTPUTS, "target_class_ids": (0, 3)}),
    ("OneHotMeanIoU", "one-hot", "classes", {"num_classes": OUTPUTS, "sparse_y_pred": True}),
    ("BinaryIoU", "bits", "share", {}), ("BinaryIoU", "bits", "share", {"target_class_ids": (1,), "threshold": 0.25}),
    ("Accuracy", "classes", "classes", {}), ("Sum", "real", None, {}), ("Mean", "real", None, {}),
]
# Metrics that are the mean of a loss; mu_loss_metric makes them of the loss. Not with ignore_class: Keras leaves such
# labels out of a metric only if samples have weights.
LOSS_METRICS = [row for row in LOSSES if row[0] in (
    "MeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredLogarithmicError LogCosh Hinge "
    "SquaredHinge CategoricalHinge KLDivergence Poisson BinaryCrossentropy CategoricalCrossentropy "
    "SparseCategoricalCrossentropy").split() and row[1] != "maps" and row[2] != "thin" and "ignore_class" not in row[3]]


def snake(name):
    """Keras's class as a function of ours names it."""
    special = {"KLDivergence": "kl_divergence", "AUC": "auc", "MeanIoU": "mean_iou", "CTC": "ctc",
               "IoU": "iou", "BinaryIoU": "binary_iou", "OneHotIoU": "one_hot_iou",
               "OneHotMeanIoU": "one_hot_mean_iou", "FBetaScore": "fbeta_score"}
    return special.get(name) or "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


NEGATED = {"remove_diagonal": "keep_diagonal", "sparse_y_true": "dense_y_true"}  # an option that is true by default has the opposite name here


def options_here(options):
    """Keras's options as our functions take them: a list is a pointer and a number."""
    out = {}
    for key, value in options.items():
        if isinstance(value, tuple):
            kind = ctypes.c_int if all(isinstance(item, int) for item in value) else ctypes.c_double
            out |= {f"n_{key}": len(value), key: (kind * len(value))(*value)}
        elif key in NEGATED or (key == "sparse_y_pred" and not value):
            out[NEGATED.get(key, "dense_y_pred")] = not value
        elif value is None:
            out[key] = "none"
        else:
            out[key] = value
    return out


def compare_gradient(report, mu, floatx, row):
    """The gradient of the sum of the losses of all samples, which no reduction touches."""
    name, labels, predictions, options = row
    dtype = FLOATX[floatx]
    y, p = numbers(1, labels, dtype), tf.constant(numbers(2, predictions, dtype))
    theirs = getattr(tf.keras.losses, name)(reduction="sum", **options)
    with tf.GradientTape() as tape:
        tape.watch(p)
        total = theirs(y, p)
    with mu.pool():
        loss = getattr(mu, f"mu_{snake(name)}_loss")(**options_here(options))
        source, record = mu.tensor(p.numpy()), mu.mu_tape_open()
        each = mu.mu_loss_call(loss, mu.tensor(y), mu.mu_identity(source))
        gradients = mu.mu_gradients(record, mu.mu_reduce_sum(each, muster.ALL_AXES), mu.values([source]))
        mu.mu_tape_close(record)
        far = off(mu.array(mu.mu_convert_to_tensor(mu.mu_value_at(gradients, 0))), tape.gradient(total, p).numpy())
    report.check(f"gradient of loss {name} {options}, {floatx}", f"within {far:.1e}", far <= TOLERANCE[floatx])


def compare_loss(report, mu, floatx, row):
    name, labels, predictions, options = row
    dtype = FLOATX[floatx]
    y, p = numbers(1, labels, dtype), numbers(2, predictions, dtype)
    weights = np.random.default_rng(3).uniform(0, 2, ROWS).astype(dtype)
    far = {}
    for reduction in REDUCTIONS:
        for weighted in (False, True):
            theirs = getattr(tf.keras.losses, name)(reduction=reduction, **options)
            # Keras does not broadcast weights over later axes.
            whole = np.repeat(weights[:, None], OUTPUTS, 1) if predictions == "maps" else weights
            wanted = theirs(y, p, sample_weight=whole if weighted else None).numpy()
            with mu.pool():
                ours = mu.model([mu.mu_activation("linear")])
                loss = getattr(mu, f"mu_{snake(name)}_loss")(reduction=reduction, **options_here(options))
                mu.mu_compile(model=ours, loss=loss)
                parts = [mu.tensor(p), mu.tensor(y)] + ([mu.tensor(weights)] if weighted else [])
                history = mu.mu_evaluate(model=ours, x=mu.values(parts), batch_size=ROWS,
                                         verbose=MU_VERBOSE_SILENT)
                far[f"{reduction}{', weighted' if weighted else ''}"] = off(mu.mu_history_last(history, "loss"), wanted)
    worst = max(far, key=far.get)
    report.check(f"loss {name} {options}, {floatx}", f"within {far[worst]:.1e} ({worst})",
                 far[worst] <= TOLERANCE[floatx])


def metric_here(mu, name, options):
    if name in ("Mean", "Sum", "Accuracy"):
        return getattr(mu, "mu_accuracy_metric" if name == "Accuracy" else f"mu_{snake(name)}_metric")(snake(name))
    if (name, options) in [(row[0], row[3]) for row in LOSS_METRICS]:
        return mu.mu_loss_metric(getattr(mu, f"mu_{snake(name)}_loss")(**options_here(options)))
    return getattr(mu, f"mu_{snake(name)}_metric")(**options_here(options))


def results_here(mu, metric):
    """One number, or an array of several."""
    out = (ctypes.c_double * 16)()
    n = mu.mu_metric_results(metric, 16, out)
    assert abs(mu.mu_metric_result(metric) - np.mean(out[:n])) < 1e-12
    return np.array(out[:n]) if n > 1 else out[0]


def compare_metric(report, mu, floatx, row):
    """Three batches, the second with weights."""
    name, labels, predictions, options = row
    dtype = FLOATX[floatx]
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    theirs = getattr(tf.keras.metrics, name + "Error" if name == "LogCosh" else name)(**listed)
    with mu.pool():
        ours = metric_here(mu, name, options)
        for seed in range(3):
            y = numbers(seed, labels, dtype)
            p = None if predictions is None else numbers(seed + 10, predictions, dtype)
            weighted = seed == 1 and "IoU" not in name  # whose weights Keras rounds to integers
            weights = np.random.default_rng(seed).uniform(0, 2, ROWS).astype(dtype) if weighted else None
            # TensorFlow's top-k has no float64; a sum's weights are not spread over later axes.
            narrow = p.astype(np.float32) if "TopK" in name else p
            spread = weights[:, None] if weighted and name == "Sum" else weights
            pair = (y,) if p is None else (y, narrow)
            theirs.update_state(*pair, sample_weight=spread)
            mu.mu_metric_update_weighted(ours, mu.tensor(y), None if p is None else mu.tensor(p),
                                         None if weights is None else mu.tensor(weights))
        far = off(results_here(mu, ours), theirs.result().numpy())
    report.check(f"metric {name} {options}, {floatx}", f"within {far:.1e}", far <= TOLERANCE[floatx])


def plain(config):
    """A configuration without what Keras adds of its own, tuples as lists."""
    return {key: np.asarray(value).tolist() if isinstance(value, tuple) or hasattr(value, "shape") else value
            for key, value in config.items() if key not in ("name", "dtype", "fn")}


# Metrics of values and not of labels and predictions, and the class Accuracy, whose name here is that of mu_accuracy.
NOT_COMPILED = ("Mean", "Sum", "Accuracy")


def compiled_with(mu, **options):
    """What a .keras file says that a model is compiled with."""
    with tempfile.TemporaryDirectory() as folder:
        model = mu.model([mu.mu_input_layer(shape=[3]), mu.mu_dense(units=2)])
        mu.mu_compile(model=model, **options)
        mu.mu_save_model(model, f"{folder}/model.keras")
        return json.loads(zipfile.ZipFile(f"{folder}/model.keras").read("config.json"))["compile_config"]


def compare_compiled(report, mu, _floatx, row):
    """A loss or metric as Keras makes it of our configuration."""
    name, options, is_loss = row
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    module = tf.keras.losses if is_loss else tf.keras.metrics
    theirs = getattr(module, name + "Error" if name == "LogCosh" and not is_loss else name)(**listed)
    with mu.pool():
        if is_loss:
            made = compiled_with(mu, loss=getattr(mu, f"mu_{snake(name)}_loss")(**options_here(options)))["loss"]
        else:
            made = compiled_with(mu, loss="mse", metrics=metric_here(mu, name, options))["metrics"][0]
    if isinstance(made, str):  # a name, as which classes without options are written
        made = tf.keras.losses.get(made) if is_loss else tf.keras.metrics.get(made)
        made = keras.saving.serialize_keras_object(made)
    seen, wanted = plain(keras.saving.deserialize_keras_object(made).get_config()), plain(theirs.get_config())
    report.check(f"compiled with {name} {options}", f"{seen} here, {wanted} in Keras" if seen != wanted else f"{len(seen)} options",
                 seen == wanted)


def compare_activations(report, mu, floatx, names):
    x = np.random.default_rng(4).normal(0, 2, (6, 8)).astype(FLOATX[floatx])
    far = {}
    for name in names:
        with mu.pool():
            ours = mu.array(mu.mu_call(model=mu.mu_activation(name), x=mu.tensor(x)))
        far[name] = off(ours, tf.keras.activations.get(name)(tf.constant(x)).numpy())
    worst = max(far, key=far.get)
    report.check(f"activations, {floatx}", f"{len(far)} within {far[worst]:.1e} ({worst})", far[worst] <= TOLERANCE[floatx])


ACTIVATIONS = ("linear relu sigmoid tanh softmax exponential relu6 leaky_relu elu selu gelu silu swish mish softplus "
               "softsign hard_sigmoid hard_silu hard_swish log_sigmoid log_softmax celu glu hard_tanh hard_shrink "
               "soft_shrink tanh_shrink squareplus sparse_plus sparse_sigmoid").split()


def layers_for_config():
    layers = tf.keras.layers
    return [layers.Input((8, 8, 3)), layers.ZeroPadding2D(1), layers.Conv2D(4, (3, 1), padding="same", activation="gelu"),
            layers.BatchNormalization(momentum=0.75), layers.DepthwiseConv2D(3), layers.LeakyReLU(0.125), layers.MaxPooling2D(3, 2),
            layers.UpSampling2D(2), layers.GlobalAveragePooling2D(), layers.Dropout(0.25, seed=7),
            layers.LayerNormalization(), layers.Dense(6, use_bias=False, kernel_regularizer=tf.keras.regularizers.L1L2(0.5, 0.25)),
            layers.Reshape((3, 2)), layers.Permute((2, 1)), layers.Flatten(), layers.Dense(3, "softmax")]


def compare_configuration(report, mu, floatx, _):
    """Keras's JSON is read here and gives the same outputs; ours is read by Keras and gives the same model."""
    theirs = tf.keras.Sequential(layers_for_config())
    x = np.random.default_rng(5).normal(size=(4, 8, 8, 3)).astype(FLOATX[floatx])
    weights = {"/".join(v.path.split("/")[-2:]): v.numpy() for v in theirs.weights if "seed" not in v.path}
    with mu.pool():
        ours = mu.mu_layer_from_config(theirs.to_json())
        mu.write_weights(ours, weights)
        seen = mu.array(mu.mu_call(model=ours, x=mu.tensor(x)))
        text = mu.mu_layer_config(ours)
    far = off(seen, theirs(x).numpy())
    report.check(f"Keras's configuration read here, {floatx}", f"outputs within {far:.1e}", far <= TOLERANCE[floatx])
    again = tf.keras.models.model_from_json(text.decode() if isinstance(text, bytes) else text)
    again.set_weights(theirs.get_weights())
    far = off(again(x).numpy(), theirs(x).numpy())
    same = [layer.__class__.__name__ for layer in again.layers] == [layer.__class__.__name__ for layer in theirs.layers]
    report.check(f"our configuration read by Keras, {floatx}", f"outputs within {far:.1e}", same and far <= TOLERANCE[floatx])


def compare_functional(report, mu, floatx, _):
    """A residual model of two inputs and a shared layer, after 20 steps of SGD."""
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(6)
    a, b, y = (generator.normal(size=(ROWS, n)).astype(dtype) for n in (4, 4, 2))
    layers = tf.keras.layers
    left, right = layers.Input((4,)), layers.Input((4,))
    shared = layers.Dense(4, "tanh", name="shared")
    total = layers.Add()([shared(left), shared(right), left])
    theirs = tf.keras.Model([left, right], layers.Dense(2, name="head")(layers.Concatenate()([total, right])))
    theirs.compile(tf.keras.optimizers.SGD(0.1), "mse")
    weights = {"/".join(v.path.split("/")[-2:]): v.numpy() for v in theirs.weights}
    with mu.pool():
        p, q = mu.mu_input(shape=[4]), mu.mu_input(shape=[4])
        dense = mu.mu_dense(units=4, activation="tanh", name="shared")
        first, second = mu.mu_call(model=dense, x=p), mu.mu_call(model=dense, x=q)
        sums = mu.mu_call(model=mu.mu_add_layer(), inputs=mu.values([first, second, p]))
        joined = mu.mu_call(model=mu.mu_concatenate(), inputs=mu.values([sums, q]))
        ours = mu.mu_model_new(inputs=mu.values([p, q]), output=mu.mu_call(model=mu.mu_dense(units=2, name="head"), x=joined))
        mu.write_weights(ours, weights)
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.1), loss=mu.mu_mean_squared_error_loss())
        x = mu.values([mu.tensor(a), mu.tensor(b)])
        mu.mu_fit(model=ours, x=mu.mu_list_of(2, [x, mu.mu_of(mu.tensor(y))]), batch_size=ROWS, epochs=20,
                  no_shuffle=True, verbose=MU_VERBOSE_SILENT)
        after = mu.read_weights(ours)
    theirs.fit([a, b], y, batch_size=ROWS, epochs=20, shuffle=False, verbose=0)
    far = max(off(after["/".join(v.path.split("/")[-2:])], v.numpy()) for v in theirs.weights)
    report.check(f"functional model, {floatx}", f"weights within {far:.1e} after 20 steps", far <= TOLERANCE[floatx])


def compare_shared_model(report, mu, floatx, _):
    """A model with a regularizer that is part of two models within one: its penalty and its weights count once."""
    dtype, layers = FLOATX[floatx], tf.keras.layers
    generator = np.random.default_rng(12)
    x, kernel = generator.normal(size=(ROWS, 3)).astype(dtype), generator.normal(size=(3, 4)).astype(dtype)
    given = tf.keras.Input((3,))
    encoder = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(4, kernel_regularizer="l2", name="encoded")])
    heads = [tf.keras.Sequential([tf.keras.Input((3,)), encoder, layers.Dense(n, kernel_initializer="zeros")]) for n in (1, 2)]
    theirs = tf.keras.Model(given, [head(given) for head in heads])
    encoder.layers[-1].kernel.assign(kernel)
    theirs.compile(tf.keras.optimizers.SGD(0.1), ["mse", "mse"])
    y = [np.zeros((ROWS, n), dtype) for n in (1, 2)]
    history = theirs.fit(x, y, batch_size=ROWS, epochs=5, shuffle=False, verbose=0).history["loss"]
    with mu.pool():
        p = mu.mu_input(shape=[3])
        shared = mu.model([mu.mu_dense(units=4, kernel_regularizer="l2", name="encoded")])
        ours_heads = [mu.model([shared, mu.mu_dense(units=n, kernel_initializer="zeros")]) for n in (1, 2)]
        ours = mu.mu_model_new(inputs=mu.mu_of(p), outputs=mu.values([mu.mu_call(model=head, x=p) for head in ours_heads]))
        mu.mu_variable_assign(mu.mu_value_variable(mu.mu_value_at(mu.mu_model_weights(ours), 0)), mu.tensor(kernel))
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.1), loss="mse")
        seen = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.values([mu.tensor(part) for part in y]), batch_size=ROWS,
                         epochs=5, no_shuffle=True, verbose=MU_VERBOSE_SILENT)
        far = off([mu.mu_history_at(seen, "loss", i) for i in range(5)], history)
        count = mu.mu_model_parameters(ours)
    report.check(f"functional, a model in two models, {floatx}", f"{count} parameters, losses within {far:.1e}",
                 count == theirs.count_params() and far <= TOLERANCE[floatx])


# An activation in front of a loss, the kind of labels, and what the loss is called.
SATURATED = [("softmax", "one-hot", "categorical_crossentropy"), ("softmax", "classes", "sparse_categorical_crossentropy"),
             ("sigmoid", "bits", "binary_crossentropy"), ("sigmoid", "bits", "binary_focal_crossentropy"),
             ("softmax", "one-hot", "categorical_focal_crossentropy")]


def compare_saturated(report, mu, floatx, row):
    """Probabilities that are 0 and 1 in their type: the loss is that of the logits, and so is the gradient."""
    activation, labels, loss = row
    dtype = FLOATX[floatx]
    x, y = numbers(1, "real", dtype) * 40, numbers(2, labels, dtype)
    kernel = numbers(3, "real", dtype)[:OUTPUTS]
    given = tf.keras.Input((OUTPUTS,))
    hidden = tf.keras.layers.Dense(OUTPUTS, name="dense", use_bias=False)(given)
    theirs = tf.keras.Model(given, tf.keras.layers.Activation(activation, name="last")(hidden))
    theirs.layers[1].kernel.assign(kernel)
    theirs.compile(tf.keras.optimizers.SGD(single(0.01)), loss)
    with mu.pool():
        p = mu.mu_input(shape=[OUTPUTS])
        hidden = mu.mu_call(model=mu.mu_dense(units=OUTPUTS, name="dense", no_bias=True), x=p)
        ours = mu.mu_model_new(inputs=mu.mu_of(p), output=mu.mu_call(model=mu.mu_activation(activation), x=hidden))
        mu.write_weights(ours, {"dense/kernel": kernel})
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=single(0.01)), loss=loss)
        history = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.tensor(y), batch_size=8, epochs=3, no_shuffle=True,
                            verbose=MU_VERBOSE_SILENT)
        seen = [mu.mu_history_at(history, "loss", i) for i in range(3)]
        after = mu.read_weights(ours)["dense/kernel"]
    wanted = theirs.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]
    far = max(off(seen, wanted), off(after, theirs.layers[1].kernel.numpy()))
    report.check(f"saturated {activation}, {loss}, {floatx}", f"within {far:.1e}", far <= 10 * TOLERANCE[floatx])


REGULARIZERS = [("OrthogonalRegularizer", {"factor": 0.25}), ("OrthogonalRegularizer", {"factor": 2.0, "mode": "columns"}),
                ("L1L2", {"l1": 0.5, "l2": 0.25}), ("L1", {"l1": 0.125}), ("L2", {"l2": 0.125})]


def compare_regularizers(report, mu, floatx, _):
    """The penalty that evaluate adds, read from Keras's configuration, and the configuration that we write."""
    dtype, far = FLOATX[floatx], {}
    kernel = np.random.default_rng(10).normal(size=(5, 4)).astype(dtype)
    for name, options in REGULARIZERS:
        regularizer = getattr(tf.keras.regularizers, name)(**options)
        theirs = tf.keras.Sequential([tf.keras.layers.Input((5,)), tf.keras.layers.Dense(
            4, name="dense", use_bias=False, kernel_regularizer=regularizer)])
        with mu.pool():
            ours = mu.mu_layer_from_config(theirs.to_json())
            mu.write_weights(ours, {"dense/kernel": kernel})
            mu.mu_compile(model=ours, loss=mu.mu_mean_squared_error_loss())
            zeros = mu.values([mu.tensor(np.zeros((2, 5), dtype)), mu.tensor(np.zeros((2, 4), dtype))])
            seen = mu.mu_history_last(mu.mu_evaluate(model=ours, x=zeros, verbose=MU_VERBOSE_SILENT), "loss")
            text = mu.mu_layer_config(ours)
        again = tf.keras.models.model_from_json(text.decode() if isinstance(text, bytes) else text)
        same = again.layers[-1].kernel_regularizer.get_config() == regularizer.get_config()
        wanted = regularizer(tf.constant(kernel.astype(np.float32))).numpy()  # Keras's have no float64
        far[f"{name} {options}"] = off(seen, wanted) if same else np.inf
    worst = max(far, key=far.get)
    report.check(f"regularizers, {floatx}", f"{len(far)} within {far[worst]:.1e} ({worst})", far[worst] <= TOLERANCE[floatx])


# Classes of the installed Keras that are not there, and why.
NOT_THERE = {
    "STFT": "few users: kernels of a Fourier transform",
    "CallbackList": "Python only: callbacks are a list here", "OrbaxCheckpoint": "Python only: files of JAX's Orbax",
    "RemoteMonitor": "few users: sends values to a web server",
}
# Classes that go by another name here: the function that makes one.
OTHER_NAMES = {
    "Mean": "mu_mean_metric", "Sum": "mu_sum_metric", "Metric": "mu_metric_new", "MeanMetricWrapper": "mu_loss_metric",
    "Loss": "mu_loss_new", "Callback": "mu_callback_new", "LambdaCallback": "mu_callback_new", "CSVLogger": "mu_csv_logger",
    "ReduceLROnPlateau": "mu_reduce_lr_on_plateau", "TerminateOnNaN": "mu_terminate_on_nan", "SwapEMAWeights": "mu_swap_ema_weights",
    "TensorBoard": "mu_tensorboard", "History": "mu_history_at", "ProgbarLogger": "mu_fit", "L1": "mu_l1", "L2": "mu_l2",
    "L1L2": "mu_l1_l2", "Initializer": "mu_initializer_new", "Regularizer": "mu_regularizer_new",
    "Constraint": "mu_constraint_new",
}


def is_there(mu, module, name):
    """Whether a class of Keras is known by its name, or has a function of its own."""
    function = OTHER_NAMES.get(name) or f"mu_{snake(name)}"
    if function in mu.declared.functions or f"{function}_with" in mu.declared.functions:
        return True
    try:
        if module == "losses":
            mu.mu_loss_named(name)
        elif module == "metrics":
            mu.mu_metric_named(name)
        elif module == "initializers":
            mu.mu_dense(units=1, kernel_initializer=snake(name))
        else:
            return False
    except muster.MusterError as error:
        return " is named " not in str(error)  # else an option is missing
    return True


def compare_lists(report, mu, floatx, _):
    """Every class of Keras's modules, by its own name, is there or has a reason."""
    for module in ("losses", "metrics", "callbacks", "initializers", "regularizers", "constraints"):
        members = vars(getattr(keras, module)).values()
        classes = sorted({value.__name__ for value in members if isinstance(value, type)})
        with mu.pool():
            lacking = [name for name in classes if not is_there(mu, module, name)]
        unexplained = [name for name in lacking if name not in NOT_THERE]
        report.check(f"classes of keras.{module}", f"{len(classes) - len(lacking)} of {len(classes)} are there, "
                     f"{len(lacking) - len(unexplained)} have a reason" +
                     (f", these have none: {', '.join(unexplained)}" if unexplained else ""), not unexplained)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("classes")
    for floatx in FLOATX:
        parts = [(compare_loss, row, f"loss {row[0]}") for row in LOSSES]
        parts += [(compare_gradient, row, f"gradient of loss {row[0]}") for row in LOSSES]
        parts += [(compare_metric, row, f"metric {row[0]}") for row in METRICS + LOSS_METRICS]
        if floatx == "f32":
            parts += [(compare_compiled, (row[0], row[3], is_loss), f"compiled with {row[0]}")
                      for rows, is_loss in ((METRICS, False), (LOSSES, True)) for row in rows if row[0] not in NOT_COMPILED]
        parts += [(compare_saturated, row, f"saturated {row[0]}") for row in SATURATED]
        parts += [(compare_regularizers, None, "regularizers")]
        parts += [(compare_activations, ACTIVATIONS, "activations"), (compare_configuration, None, "configuration"),
                  (compare_functional, None, "functional"), (compare_shared_model, None, "functional, shared")]
        compare_parts(report, mu, floatx, parts, only)
    if only in "lists":
        compare_lists(report, mu, None, None)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
