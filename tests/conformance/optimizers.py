# Optimizers and learning rate schedules of Keras and of Muster side by side: the same gradients, dense and sparse, for 50
# steps; schedules at many steps; configurations in both directions; names and values of the state.
#
# A step is a traced function. Its loss is the sum of 0.5 w² + g w, so that gradients depend on the weights, of rows that
# occur several times in the table. It must not know how the library gets its results.
import ctypes
import functools
import json
import sys

import keras
import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, compare_parts, off
from report import Report
from training import single

STEPS, ROWS, WIDTH, WORDS = 50, 12, 3, 8
TOLERANCE = {"f64": 1e-9, "f32": 1e-5}
SHAPES = {"kernel": (5, 4), "bias": (4,), "table": (ROWS, WIDTH)}

BETAS = {"beta_1": single(0.9), "beta_2": single(0.999), "epsilon": single(1e-7)}
ADAM_OF_MUON = {"adam_beta_1": single(0.9), "adam_beta_2": single(0.999), "epsilon": single(1e-7)}
# Keras's class, options. Keras rounds its Python numbers to f32, so these have only such as f32 has.
OPTIMIZERS = [
    ("SGD", {"learning_rate": single(0.01)}), ("SGD", {"learning_rate": single(0.01), "momentum": single(0.9)}),
    ("SGD", {"learning_rate": single(0.01), "momentum": 0.75, "nesterov": True}),
    ("Adam", BETAS), ("Adam", BETAS | {"amsgrad": True}), ("AdamW", BETAS | {"weight_decay": single(0.004)}),
    ("AdamW", BETAS | {"amsgrad": True, "weight_decay": 0.25}), ("Adamax", BETAS), ("Nadam", BETAS), ("Lamb", BETAS),
    ("RMSprop", {"rho": single(0.9), "epsilon": single(1e-7)}),
    ("RMSprop", {"rho": 0.75, "epsilon": single(1e-3), "momentum": 0.5, "centered": True}),
    ("RMSprop", {"rho": 0.75, "epsilon": single(1e-3), "centered": True}),
    ("Adagrad", {"initial_accumulator_value": single(0.1), "epsilon": single(1e-7)}),
    ("Adadelta", {"learning_rate": 1.0, "rho": single(0.95), "epsilon": single(1e-7)}),
    ("Adafactor", {}), ("Adafactor", {"learning_rate": 0.25, "relative_step": False, "clip_threshold": 0.5, "beta_2_decay": -0.5,
                                      "epsilon_2": 0.125}),
    ("Ftrl", {"initial_accumulator_value": single(0.1)}),
    ("Ftrl", {"learning_rate": 0.125, "learning_rate_power": -0.25, "l1_regularization_strength": single(0.01),
              "l2_regularization_strength": single(0.02), "l2_shrinkage_regularization_strength": 0.125, "beta": 0.5}),
    ("Lion", {"beta_1": single(0.9), "beta_2": single(0.99)}),
    ("Muon", {"learning_rate": single(0.01), "weight_decay": 0.125, "adam_weight_decay": 0.25, "exclude_layers": ["tab.e$"]} | ADAM_OF_MUON),
    ("Muon", {"learning_rate": 0.125, "nesterov": False, "ns_steps": 3, "rms_rate": None, "weight_decay": None, "momentum": 0.5,
              "adam_lr_ratio": 0.5, "adam_weight_decay": None} | ADAM_OF_MUON),
]
# What every class has.
SHARED = [
    {"weight_decay": 0.125}, {"clipnorm": 0.5}, {"clipvalue": 0.25}, {"global_clipnorm": 0.5},
    {"use_ema": True, "ema_momentum": 0.75}, {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 7},
    {"loss_scale_factor": 1024.0}, {"gradient_accumulation_steps": 3},
    {"gradient_accumulation_steps": 4, "use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 5,
     "clipnorm": 0.25, "weight_decay": 0.125},
]
OPTIMIZERS += [("SGD", {"learning_rate": 0.125, "momentum": 0.5} | options) for options in SHARED]
OPTIMIZERS += [("Adam", BETAS | options) for options in SHARED[::3] if "loss_scale_factor" not in options]
OPTIMIZERS += [("RMSprop", {"epsilon": single(1e-3), "rho": 0.75} | options) for options in SHARED
               if "loss_scale_factor" not in options]

# Keras's class, options.
SCHEDULES = [
    ("ExponentialDecay", {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.75}),
    ("ExponentialDecay", {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.75, "staircase": True}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.5, "decay_steps": 10, "decay_rate": 0.75}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.5, "decay_steps": 7, "decay_rate": 2.0, "staircase": True}),
    ("PolynomialDecay", {"initial_learning_rate": 0.5, "decay_steps": 30}),
    ("PolynomialDecay", {"initial_learning_rate": 0.5, "decay_steps": 30, "end_learning_rate": 0.125, "power": 2.5, "cycle": True}),
    ("PiecewiseConstantDecay", {"boundaries": [5, 17, 40], "values": [0.5, 0.25, 1.0, 0.125]}),
    ("PiecewiseConstantDecay", {"boundaries": [9], "values": [0.5, 0.25]}),
    ("CosineDecay", {"initial_learning_rate": 0.5, "decay_steps": 30}),
    ("CosineDecay", {"initial_learning_rate": 0.0, "decay_steps": 30, "alpha": 0.125, "warmup_target": 0.75, "warmup_steps": 12}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.5, "first_decay_steps": 9}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.5, "first_decay_steps": 11, "t_mul": 1.0, "m_mul": 0.75, "alpha": 0.125}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.5, "first_decay_steps": 6, "t_mul": 1.5, "m_mul": 0.5}),
]


def ours_of(options):
    """Options as our functions take them: those that are true by default have the opposite name."""
    options = dict(options)
    for name in ("relative_step", "exclude_embeddings", *(["nesterov"] if "ns_steps" in options else [])):
        if name in options:
            options[f"no_{name}"] = not options.pop(name)
    return {name: 0.0 if value is None else value for name, value in options.items()}


def snake(name):
    special = {"AdamW": "adamw", "RMSprop": "rmsprop", "SGD": "sgd"}
    return special.get(name) or "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def repeats(options):
    """Whether rows of the table may occur several times in a step. Keras adds them up before it clips by the global norm,
    and its centred RMSprop takes the root of a negative number where they do."""
    return "global_clipnorm" not in options and "centered" not in options


def text_of(options):
    return ", ".join(f"{name} {value}" for name, value in options.items())


# ---- Training -----------------------------------------------------------------------------------------

@functools.cache
def data(floatx, repeated, overflows):
    """First values, and for each step the gradients' constant parts and the rows of the table. Steps in `overflows` have an
    infinite gradient."""
    generator = np.random.default_rng(3)
    first = {name: generator.normal(size=shape).astype(FLOATX[floatx]) for name, shape in SHAPES.items()}
    steps = [([generator.normal(size=SHAPES[name]).astype(FLOATX[floatx]) for name in ("kernel", "bias")]
              + [generator.normal(size=(WORDS, WIDTH)).astype(FLOATX[floatx])],
              (generator.integers(0, ROWS // 2, WORDS) if repeated else generator.permutation(ROWS)[:WORDS]).astype(np.int32)) for _ in range(STEPS)]
    for step in overflows:
        steps[step][0][step % 3][0] = np.inf
    return first, steps


def train_keras(optimizer, floatx, repeated, overflows=()):
    first, steps = data(floatx, repeated, overflows)
    variables = [tf.keras.Variable(value, name=name) for name, value in first.items()]

    @tf.function
    def step(constants, rows):
        with tf.GradientTape() as tape:
            kernel, bias, table = (variable.value for variable in variables)
            parts = [kernel, bias, tf.gather(table, rows)]
            loss = optimizer.scale_loss(tf.add_n([tf.reduce_sum(0.5 * p * p + g * p) for p, g in zip(parts, constants)]))
        gradients = tape.gradient(loss, [kernel, bias, table])
        if optimizer.loss_scale_factor:  # Keras cannot divide slices by it
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, variables))

    with tf.device("CPU:0"):
        optimizer.build(variables)
        for constants, rows in steps:
            step([tf.constant(c) for c in constants], tf.constant(rows))
    state = {}
    for variable in optimizer.variables:
        name = variable.path.split("/")[-1]
        owner = next((own for own in SHAPES if name.startswith(own + "_")), None)
        state[f"{owner}/{name.removeprefix(owner + '_')}" if owner else name] = variable.numpy()
    return {v.name: v.numpy() for v in variables}, state


def train_muster(mu, optimizer, floatx, repeated, overflows=()):
    first, steps = data(floatx, repeated, overflows)
    variables = {name: mu.mu_variable_new(initial_value=mu.tensor(value), name=name) for name, value in first.items()}
    listed = mu.variables(variables.values())

    def step(batch):
        tape = mu.mu_tape_open()
        kernel, bias, table = (mu.mu_variable_read(variable) for variable in variables.values())
        parts, loss = [kernel, bias, mu.mu_gather(table, mu.mu_at(batch, 3), 0, 0)], None
        half = mu.tensor(np.array(0.5, FLOATX[floatx]))
        for i, part in enumerate(parts):
            both = mu.mu_add(mu.mu_multiply(half, mu.mu_square(part)), mu.mu_multiply(mu.mu_at(batch, i), part))
            total = mu.mu_reduce_sum(both, muster.ALL_AXES)
            loss = mu.mu_add(loss, total) if loss else total
        gradients = mu.mu_gradients(tape, mu.mu_scale_loss(optimizer, loss), listed)
        mu.mu_tape_close(tape)
        mu.mu_apply_gradients(optimizer=optimizer, gradients=gradients)
        return mu.mu_of(loss)

    function, _callback = mu.function(step)
    for constants, rows in steps:
        with mu.pool():
            mu.mu_run(mu.strategy, function, mu.values([mu.tensor(c) for c in [*constants, rows]]))
    return {name: mu.array(mu.mu_variable_read(variable)) for name, variable in variables.items()}


def schedule_of(mu, row):
    name, options = row
    if name == "PiecewiseConstantDecay":
        lists = {key: (ctypes.c_double * len(value))(*value) for key, value in options.items()}
        return mu.mu_piecewise_constant_decay(**{f"n_{key}": len(value) for key, value in options.items()}, **lists)
    return getattr(mu, f"mu_{snake(name)}")(**options)


def keras_schedule(floatx, row):
    """Keras's schedule computes in the type of its first number, and a Python number is f32."""
    name, options = row
    number = "initial_learning_rate"
    options = options | ({number: FLOATX[floatx](options[number])} if number in options else {})
    return getattr(tf.keras.optimizers.schedules, name)(**options)


def compare_training(report, mu, floatx, name, options, ours, theirs, overflows=()):
    with mu.pool():
        seen = train_muster(mu, ours(), floatx, repeats(options), overflows)
    wanted, _ = train_keras(theirs(), floatx, repeats(options), overflows)
    far = {variable: off(seen[variable], wanted[variable]) for variable in wanted}
    report.check(f"{name}, {floatx}", f"{text_of(options)}: kernel {far['kernel']:.1e}, bias {far['bias']:.1e}, table "
                 f"(sparse) {far['table']:.1e}", max(far.values()) <= TOLERANCE[floatx])


def compare_optimizer(report, mu, floatx, row):
    name, options = row
    compare_training(report, mu, floatx, name, options, lambda: getattr(mu, f"mu_{snake(name)}")(**ours_of(options)),
                     lambda: getattr(tf.keras.optimizers, name)(**options))


def compare_exclusion(report, mu, floatx, names):
    """Weight decay that leaves variables alone."""
    options = {"learning_rate": 0.125, "weight_decay": 0.5}

    def ours():
        optimizer = mu.mu_adamw(**BETAS, **options)
        mu.mu_exclude_from_weight_decay(optimizer=optimizer, names="|".join(names))
        return optimizer

    def theirs():
        optimizer = tf.keras.optimizers.AdamW(**BETAS, **options)
        optimizer.exclude_from_weight_decay(var_names=names)
        return optimizer

    compare_training(report, mu, floatx, f"AdamW without {' and '.join(names)}", options, ours, theirs)


def compare_followed_schedule(report, mu, floatx, row):
    """An optimizer that follows a schedule, in one trace."""
    name, options = row
    more = {"gradient_accumulation_steps": 2} if "alpha" in options else {}
    compare_training(report, mu, floatx, f"Adam, {name}", options,
                     lambda: mu.mu_adam(schedule=schedule_of(mu, row), **BETAS, **more),
                     lambda: tf.keras.optimizers.Adam(keras_schedule(floatx, row), **BETAS, **more))


def compare_loss_scale(report, mu, floatx, growth):
    """Steps whose gradients are infinite are left out, and halve the scale, which grows again."""
    options = {"initial_scale": 2.0 ** 20, "dynamic_growth_steps": growth}
    inner = {"learning_rate": 0.125, "momentum": 0.5}
    compare_training(report, mu, floatx, "LossScaleOptimizer", options,
                     lambda: mu.mu_loss_scale_optimizer(inner_optimizer=mu.mu_sgd(**inner), **options),
                     lambda: tf.keras.optimizers.LossScaleOptimizer(tf.keras.optimizers.SGD(**inner), **options),
                     overflows=(0, 7, 8, 30))


# ---- Schedules ----------------------------------------------------------------------------------------

def compare_schedule(report, mu, floatx, row):
    name, options = row
    theirs = keras_schedule(floatx, row)
    steps = [*range(64), 100, 1000]
    with mu.pool():
        ours = schedule_of(mu, row)
        seen = [float(mu.array(mu.mu_learning_rate_schedule_call(ours, mu.tensor(np.array(step, np.int64))))) for step in steps]
    far = off(seen, [float(theirs(tf.constant(step, tf.int64))) for step in steps])
    report.check(f"{name}, {floatx}", f"{text_of(options)}: {len(steps)} steps within {far:.1e}", far <= TOLERANCE[floatx])


# ---- Configurations -----------------------------------------------------------------------------------

def compare_configuration(report, mu, floatx, row):
    """Keras's configuration, read and written here, is what Keras wrote; the same for a default of ours."""
    name, options = row
    theirs = getattr(tf.keras.optimizers, name)(**options)
    wanted = tf.keras.optimizers.serialize(theirs)
    with mu.pool():
        ours = mu.mu_optimizer_from_config(json.dumps(wanted))
        seen = json.loads(mu.mu_optimizer_config(ours))
        default = json.loads(mu.mu_optimizer_config(getattr(mu, f"mu_{snake(name)}")()))
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(seen))).get_config()
    fresh = getattr(tf.keras.optimizers, name)().get_config()
    different = [key for key, value in theirs.get_config().items() if not same(again[key], value)]
    different += [f"default {key}" for key, value in fresh.items() if key != "name" and not same(default["config"].get(key), value)]
    report.check(f"configuration of {name}, {floatx}", f"{text_of(options)}: {', '.join(different) or 'equal'}", not different)


def same(ours, theirs):
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= 1e-7 * abs(theirs)
    return ours == theirs


def compare_schedule_configuration(report, mu, floatx, row):
    name, options = row
    theirs = tf.keras.optimizers.Adam(getattr(tf.keras.optimizers.schedules, name)(**options))
    with mu.pool():
        ours = mu.mu_optimizer_from_config(json.dumps(tf.keras.optimizers.serialize(theirs)))
        seen = json.loads(mu.mu_optimizer_config(ours))
        fresh = json.loads(mu.mu_optimizer_config(mu.mu_adam(schedule=schedule_of(mu, row))))
    again = [keras.saving.deserialize_keras_object(config) for config in (seen, fresh)]
    steps = [tf.constant(step, tf.int64) for step in range(64)]
    rates = [[float(optimizer._learning_rate(step)) for step in steps] for optimizer in (theirs, *again)]
    report.check(f"configuration of {name}, {floatx}", text_of(options), rates[0] == rates[1] == rates[2])


def compare_loss_scale_configuration(report, mu, floatx, _):
    theirs = tf.keras.optimizers.LossScaleOptimizer(tf.keras.optimizers.Lion(0.25), 1024.0, 7)
    wanted = tf.keras.optimizers.serialize(theirs)
    with mu.pool():
        seen = json.loads(mu.mu_optimizer_config(mu.mu_optimizer_from_config(json.dumps(wanted))))
    again = tf.keras.optimizers.serialize(keras.saving.deserialize_keras_object(seen))
    report.check(f"configuration of LossScaleOptimizer, {floatx}", "with Lion", again == wanted)


def compare_slots(report, mu, floatx, row):
    """A checkpoint holds every state of Keras's optimizer, under Keras's name of it, with the same values."""
    name, options = row
    _, wanted = train_keras(getattr(tf.keras.optimizers, name)(**options), floatx, repeats(options))
    wanted = {key: value for key, value in wanted.items() if "/" in key}
    with mu.pool():
        optimizer = getattr(mu, f"mu_{snake(name)}")(**ours_of(options))
        train_muster(mu, optimizer, floatx, repeats(options))
        seen = mu.read_state(optimizer)
    own = snake(name)
    names = {key.removeprefix(f"{own}/") for key, value in seen.items() if np.ndim(value) > 0}  # not numbers of the optimizer's
    names -= {f"{variable}/{factor}" for variable in SHAPES for factor in "rc"}  # Keras's Adafactor gives these no names
    far = max((off(seen[f"{own}/{key}"], value) for key, value in wanted.items() if f"{own}/{key}" in seen), default=0)
    report.check(f"state of {name}, {floatx}", f"{text_of(options)}: {len(names)} tensors within {far:.1e}",
                 names == set(wanted) and far <= 10 * TOLERANCE[floatx])


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("optimizers")
    for floatx in FLOATX:
        parts = [(compare_optimizer, row, row[0]) for row in OPTIMIZERS]
        parts += [(compare_loss_scale, growth, "LossScaleOptimizer") for growth in (3, 2000)]
        parts += [(compare_exclusion, names, "AdamW without") for names in (["bias"], ["bi", "^ta.le"])]
        parts += [(compare_schedule, row, row[0]) for row in SCHEDULES]
        parts += [(compare_followed_schedule, row, row[0]) for row in SCHEDULES]
        parts += [(compare_configuration, row, f"configuration of {row[0]}") for row in OPTIMIZERS]
        parts += [(compare_schedule_configuration, row, f"configuration of {row[0]}") for row in SCHEDULES]
        parts += [(compare_loss_scale_configuration, None, "configuration of LossScaleOptimizer")]
        parts += [(compare_slots, row, f"state of {row[0]}") for row in OPTIMIZERS]
        compare_parts(report, mu, floatx, parts, only)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
