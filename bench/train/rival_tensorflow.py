# TensorFlow's part in the training bench: the same CNN as a Keras model, or written with tf.nn and the fused Adam op,
# in a tf.function, compiled by XLA or not, on one device or mirrored over logical devices of one core each.
# How it is timed and what a setting's options mean to others lies in rival_common.py.
import os

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


def build_keras(weights):
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)])
    model.set_weights([weights[name] for name in common.SHAPES])
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


def plain_step(weights):
    variables = [tf.Variable(weights[name]) for name in common.SHAPES]
    slots = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]
    n_steps = tf.Variable(0.0)

    def forward(images, labels):
        k1, b1, k2, b2, k3, b3, k4, b4 = variables
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(scaled(images), k1, 1, "VALID"), b1))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, k2, 1, "VALID"), b2))
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 1600])
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, k3), b3))
        logits = tf.nn.bias_add(tf.matmul(x, k4), b4)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), logits))

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
    weights = common.read_weights(arguments.weights)
    train_on = mirrored(weights) if options.get("mirrored") else on_one_device(weights)
    common.report(common.measure(arguments, train_on, common.Batches()))


main()
