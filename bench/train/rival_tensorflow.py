# TensorFlow's part in the training bench: the same model as a Keras model, or written with tf.nn and the fused Adam op,
# in a tf.function, compiled by XLA or not, on one device or mirrored over logical devices of one core each.
# How it is timed and what a setting's options mean to others lies in rival_common.py.
import os

import models
import rival_common as common

arguments = common.enter("tensorflow")
options = arguments.options
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402


def prepare_devices():
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    if options.get("mirrored"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * arguments.threads)


def scaled(images):
    return tf.cast(images, tf.float32)[..., tf.newaxis] / 255


def keras_layer(layer):
    layers = tf.keras.layers
    activation = "relu" if layer.relu else None
    make = {
        "conv": lambda: layers.Conv2D(layer.units, layer.size, padding=layer.padding, activation=activation,
                                      use_bias=layer.bias),
        "dense": lambda: layers.Dense(layer.units, activation=activation),
        "norm": lambda: layers.BatchNormalization(momentum=common.NORM_MOMENTUM, epsilon=common.NORM_EPSILON),
        "relu": layers.ReLU, "flatten": layers.Flatten,
        "max_pool": lambda: layers.MaxPooling2D(2), "average_pool": lambda: layers.AveragePooling2D(2),
    }
    return make[layer.kind]()


def build_keras(weights):
    model = tf.keras.Sequential([tf.keras.Input(models.IMAGE)] + [keras_layer(layer) for layer in models.MODELS[arguments.model]])
    model.set_weights(list(weights.values()))
    optimizer = tf.keras.optimizers.Adam(common.LEARNING_RATE, common.BETA_1, common.BETA_2, common.EPSILON)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def keras_step(weights):
    model, optimizer = build_keras(weights)

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(scaled(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), logits)
            loss = tf.reduce_sum(losses) / common.BATCH  # the global batch: replicas add up to the mean
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def adam_op(variable, first, second, n_steps, gradient):
    return tf.raw_ops.ResourceApplyAdam(
        var=variable.handle, m=first.handle, v=second.handle,
        beta1_power=common.BETA_1 ** n_steps, beta2_power=common.BETA_2 ** n_steps, lr=common.LEARNING_RATE,
        beta1=common.BETA_1, beta2=common.BETA_2, epsilon=common.EPSILON, grad=gradient)


def normalise(x, name, variables):
    """Normalises by the batch statistics and updates the moving ones."""
    gamma, beta, moving_mean, moving_variance = (variables[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance"))
    x, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=common.NORM_EPSILON, is_training=True)
    for moving, now in ((moving_mean, mean), (moving_variance, variance)):
        moving.assign_sub((moving - tf.stop_gradient(now)) * (1 - common.NORM_MOMENTUM))
    return x


def apply_plain(placed, x, variables):
    layer, name = placed.layer, placed.name
    if layer.kind == "conv":
        x = tf.nn.conv2d(x, variables[f"{name}/kernel"], 1, layer.padding.upper())
    elif layer.kind == "dense":
        x = tf.matmul(x, variables[f"{name}/kernel"])
    elif layer.kind == "norm":
        x = normalise(x, name, variables)
    elif layer.kind == "flatten":
        x = tf.reshape(x, [-1, *placed.after])
    elif layer.kind == "max_pool":
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    elif layer.kind == "average_pool":
        x = tf.nn.avg_pool2d(x, 2, 2, "VALID")
    if layer.kind in ("conv", "dense") and layer.bias:
        x = tf.nn.bias_add(x, variables[f"{name}/bias"])
    return tf.nn.relu(x) if layer.relu or layer.kind == "relu" else x


def plain_step(weights):
    everything = {name: tf.Variable(value) for name, value in weights.items()}
    variables = [everything[name] for name in models.trainable(arguments.model)]
    slots = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]
    n_steps = tf.Variable(0.0)

    def forward(images, labels):
        x = scaled(images)
        for placed in models.place(arguments.model):
            x = apply_plain(placed, x, everything)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), x))

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = forward(images, labels)
        n_steps.assign_add(1)
        for variable, (first, second), gradient in zip(variables, slots, tape.gradient(loss, variables)):
            adam_op(variable, first, second, n_steps, gradient)
        return loss

    return step


def on_one_device(weights):
    build = plain_step if options.get("plain_ops") else keras_step
    step = tf.function(build(weights), jit_compile=options.get("jit", False))
    return lambda images, labels: step(tf.constant(images), tf.constant(labels))


def mirrored(weights):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(arguments.threads)])
    with strategy.scope():
        step = keras_step(weights)
    part = common.BATCH // arguments.threads

    @tf.function
    def distributed(images, labels):
        return strategy.reduce("SUM", strategy.run(step, (images, labels)), axis=None)

    def train_on(images, labels):
        def parts(array):
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(array[context.replica_id_in_sync_group * part:][:part]))
        return distributed(parts(images), parts(labels))

    return train_on


def main():
    prepare_devices()
    read = common.read_weights(arguments.weights, arguments.model)
    weights = {name: read[name] for name in models.shapes(arguments.model)}  # in Keras's order
    train_on = mirrored(weights) if options.get("mirrored") else on_one_device(weights)
    common.report(common.measure(arguments, train_on, common.Batches()))


main()
