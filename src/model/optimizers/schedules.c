// Learning rate schedules: the rate as a function of the number of earlier updates, written with ops, so that a traced
// step recomputes it each time.
//
// Formulas and defaults are Keras 3's; they compute in the type of mu_set_floatx.

#include "base/callback.h"
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <math.h>
#include <muster/ops.h>

static void schedule_destroy(void *object)
{
    mu_learning_rate_schedule *schedule = object;
    mu__fields_drop(&schedule->ops->class, schedule->args);
}

mu_type mu__schedule_type = {.name = "learning rate schedule", .destroy = schedule_destroy};

static mu_learning_rate_schedule *make(const mu_schedule_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_learning_rate_schedule *schedule = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK)
        schedule = mu__new(&mu__schedule_type, sizeof *schedule);
    if (schedule) {
        schedule->ops = ops;
        schedule->args = mu__fields_keep(&ops->class, filled);
    }
    mu__free(filled);
    if (!schedule || schedule->args)
        return mu__give(schedule);
    mu_release(schedule);
    return NULL;
}

static mu_tensor *like(const mu_tensor *x, double value) { return x ? mu_constant(mu_tensor_dtype(x), value) : NULL; }

static mu_tensor *over(mu_tensor *step, double steps) { return mu_divide(step, like(step, steps)); }

// ---- Exponential, inverse time ------------------------------------------------------------------

static mu_tensor *multiples(const mu_exponential_decay_args *args, mu_tensor *step)
{
    mu_tensor *p = over(step, (double)args->decay_steps);
    return args->staircase ? mu_floor(p) : p;
}

static mu_tensor *exponential(const void *arguments, mu_tensor *step)
{
    const mu_exponential_decay_args *args = arguments;
    mu_tensor *share = mu_pow(like(step, args->decay_rate), multiples(args, step));
    return mu_multiply(like(step, args->initial_learning_rate), share);
}

static mu_tensor *inverse_time(const void *arguments, mu_tensor *step)
{
    const mu_exponential_decay_args *args = arguments;
    mu_tensor *grown = mu_multiply(like(step, args->decay_rate), multiples(args, step));
    return mu_divide(like(step, args->initial_learning_rate), mu_add(like(step, 1), grown));
}

// ---- Polynomial ---------------------------------------------------------------------------------

static mu_tensor *polynomial(const void *arguments, mu_tensor *step)
{
    const mu_polynomial_decay_args *args = arguments;
    mu_tensor *steps = like(step, (double)args->decay_steps);
    if (args->cycle) {
        mu_tensor *begun = mu_ceil(mu_divide(step, steps));
        steps = mu_multiply(steps, mu_where(mu_equal(step, like(step, 0)), like(step, 1), begun));
    } else {
        step = mu_minimum(step, steps);
    }
    mu_tensor *end = like(step, args->end_learning_rate);
    mu_tensor *range = mu_subtract(like(step, args->initial_learning_rate), end);
    mu_tensor *left = mu_subtract(like(step, 1), mu_divide(step, steps));
    return mu_add(mu_multiply(range, mu_pow(left, like(step, args->power))), end);
}

// ---- Piecewise constant -------------------------------------------------------------------------

static mu_tensor *piecewise_constant(const void *arguments, mu_tensor *step)
{
    const mu_piecewise_constant_decay_args *args = arguments;
    mu_tensor *rate = like(step, args->values[args->n_boundaries]);
    for (int i = args->n_boundaries - 1; i >= 0; i--)
        rate = mu_where(mu_less_equal(step, like(step, args->boundaries[i])), like(step, args->values[i]), rate);
    return rate;
}

static mu_status piecewise_complete(void *arguments)
{
    const mu_piecewise_constant_decay_args *args = arguments;
    if (args->n_boundaries < 1 || args->n_values != args->n_boundaries + 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_piecewise_constant_decay: %d boundaries and %d values are given; give at least one "
                         "boundary, and one value more than boundaries",
                         args->n_boundaries, args->n_values);
    for (int i = 1; i < args->n_boundaries; i++)
        if (!(args->boundaries[i] >= args->boundaries[i - 1]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_piecewise_constant_decay: boundaries %g and %g are not in ascending order",
                             args->boundaries[i - 1], args->boundaries[i]);
    return MU_OK;
}

// ---- Cosine -------------------------------------------------------------------------------------

// factor · (1 + cos(π · fraction)) / 2, between alpha and 1.
static mu_tensor *half_cosine(mu_tensor *fraction, mu_tensor *factor, double alpha)
{
    mu_tensor *wave = mu_add(like(fraction, 1), mu_cos(mu_multiply(like(fraction, acos(-1)), fraction)));
    mu_tensor *share = mu_multiply(mu_multiply(like(fraction, .5), factor), wave);
    return mu_add(mu_multiply(like(fraction, 1 - alpha), share), like(fraction, alpha));
}

static mu_tensor *cosine(const void *arguments, mu_tensor *step)
{
    const mu_cosine_decay_args *args = arguments;
    const bool warms = args->warmup_target > 0;
    const double first = args->initial_learning_rate, warmup = warms ? (double)args->warmup_steps : 0,
                 most = warms ? args->warmup_target : first, steps = (double)args->decay_steps;
    step = mu_minimum(step, like(step, steps + warmup));
    mu_tensor *fraction = over(mu_subtract(step, like(step, warmup)), steps);
    mu_tensor *rate = mu_multiply(like(step, most), half_cosine(fraction, like(step, 1), args->alpha));
    if (!(warmup > 0))
        return rate;
    mu_tensor *rise = mu_multiply(mu_subtract(like(step, most), like(step, first)), over(step, warmup));
    return mu_where(mu_less(step, like(step, warmup)), mu_add(rise, like(step, first)), rate);
}

// The number of the period, and how much of it is over.
static mu_tensor *period(const mu_cosine_decay_restarts_args *args, mu_tensor *step, mu_tensor **fraction)
{
    mu_tensor *periods = over(step, (double)args->first_decay_steps), *one = like(step, 1);
    if (args->t_mul == 1) {
        mu_tensor *number = mu_floor(periods);
        *fraction = mu_subtract(periods, number);
        return number;
    }
    mu_tensor *t_mul = like(step, args->t_mul), *shrink = mu_subtract(one, t_mul);
    mu_tensor *number = mu_floor(mu_divide(mu_log(mu_subtract(one, mu_multiply(periods, shrink))), mu_log(t_mul)));
    mu_tensor *length = mu_pow(t_mul, number); // in first periods
    mu_tensor *begin = mu_divide(mu_subtract(one, length), shrink);
    *fraction = mu_divide(mu_subtract(periods, begin), length);
    return number;
}

static mu_tensor *cosine_restarts(const void *arguments, mu_tensor *step)
{
    const mu_cosine_decay_restarts_args *args = arguments;
    mu_tensor *fraction = NULL, *number = period(args, step, &fraction);
    mu_tensor *factor = mu_pow(like(step, args->m_mul), number);
    return mu_multiply(like(step, args->initial_learning_rate), half_cosine(fraction, factor, args->alpha));
}

// ---- A schedule of the user's own ---------------------------------------------------------------

static mu_tensor *own(const void *arguments, mu_tensor *step)
{
    const mu_own_schedule_args *args = arguments;
    mu_tensor *rate;
    MU_CALLBACK("the function of a learning rate schedule", rate = args->call(step, args->arg));
    if (rate && (mu_tensor_rank(rate) != 0 || mu_tensor_dtype(rate) != mu_tensor_dtype(step))) {
        char text[MU_SHAPE_TEXT];
        mu__error(
            MU_INVALID_ARGUMENT,
            "mu_learning_rate_schedule_new: the schedule's function returned %s%s; it must be a scalar of type %s",
            mu_dtype_name(mu_tensor_dtype(rate)), mu__shape_text(&rate->shape, text),
            mu_dtype_name(mu_tensor_dtype(step)));
        return NULL;
    }
    if (!rate && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "mu_learning_rate_schedule_new: the schedule's function returned NULL without "
                                       "an error; return the rate, or NULL after mu_fail(code, reason)");
    return rate;
}

static mu_status own_complete(void *arguments)
{
    const mu_own_schedule_args *args = arguments;
    return args->call ? MU_OK
                      : mu__error(MU_INVALID_ARGUMENT, "mu_learning_rate_schedule_new: .call is NULL; give the "
                                                       "function that computes the rate for a step");
}

// ---- Classes ------------------------------------------------------------------------------------

static mu_status need_rate(const void *args, double rate, const char *function)
{
    return rate != 0 || mu__args_text(args, "initial_learning_rate", 0)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "%s: initial_learning_rate is left out; give the rate of the first step", function);
}

#define NAME(type) \
    MU_FIELD(type, name, NAME), { 0 }
#define RATE(type)          MU_FIELD(type, initial_learning_rate, DOUBLE, .limit = MU_NOT_NEGATIVE)
#define STEPS(type, member) MU_FIELD(type, member, INT64, .limit = MU_POSITIVE)

static const mu_field exponential_fields[] = {
    RATE(mu_exponential_decay_args),
    STEPS(mu_exponential_decay_args, decay_steps),
    MU_FIELD(mu_exponential_decay_args, decay_rate, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_exponential_decay_args, staircase, FLAG),
    NAME(mu_exponential_decay_args),
};
static const mu_field polynomial_fields[] = {
    RATE(mu_polynomial_decay_args),
    STEPS(mu_polynomial_decay_args, decay_steps),
    MU_FIELD(mu_polynomial_decay_args, end_learning_rate, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .0001),
    MU_FIELD(mu_polynomial_decay_args, power, DOUBLE, .number = 1),
    MU_FIELD(mu_polynomial_decay_args, cycle, FLAG),
    NAME(mu_polynomial_decay_args),
};
static const mu_field piecewise_fields[] = {
    MU_FIELD(mu_piecewise_constant_decay_args, boundaries, DOUBLES,
             .second = offsetof(mu_piecewise_constant_decay_args, n_boundaries)),
    MU_FIELD(mu_piecewise_constant_decay_args, values, DOUBLES, .limit = MU_NOT_NEGATIVE,
             .second = offsetof(mu_piecewise_constant_decay_args, n_values)),
    NAME(mu_piecewise_constant_decay_args),
};
static const mu_field cosine_fields[] = {
    RATE(mu_cosine_decay_args),
    STEPS(mu_cosine_decay_args, decay_steps),
    MU_FIELD(mu_cosine_decay_args, alpha, DOUBLE),
    MU_FIELD(mu_cosine_decay_args, warmup_target, DOUBLE, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_cosine_decay_args, warmup_steps, INT64, .limit = MU_NOT_NEGATIVE),
    NAME(mu_cosine_decay_args),
};
static const mu_field restarts_fields[] = {
    RATE(mu_cosine_decay_restarts_args),
    STEPS(mu_cosine_decay_restarts_args, first_decay_steps),
    MU_FIELD(mu_cosine_decay_restarts_args, t_mul, DOUBLE, .limit = MU_POSITIVE, .number = 2),
    MU_FIELD(mu_cosine_decay_restarts_args, m_mul, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1),
    MU_FIELD(mu_cosine_decay_restarts_args, alpha, DOUBLE),
    NAME(mu_cosine_decay_restarts_args),
};
static const mu_field own_fields[] = {NAME(mu_own_schedule_args)};

// SCHEDULE(the word of mu_WORD_decay, Keras's class, type of the arguments, fields, function that computes it)
#define SCHEDULE(word, keras, type, fields, function)                                                       \
    static mu_status word##_complete(void *args)                                                            \
    {                                                                                                       \
        return need_rate(args, ((const type *)args)->initial_learning_rate, "mu_" #word);                   \
    }                                                                                                       \
    static const mu_schedule_ops word##_ops = {                                                             \
        .class = {#word, keras, "mu_" #word, MU_OPTIONS(type), fields, word##_complete}, .call = function}; \
    mu_learning_rate_schedule *mu_##word##_with(const type *args) { return make(&word##_ops, args); }

SCHEDULE(exponential_decay, "ExponentialDecay", mu_exponential_decay_args, exponential_fields, exponential)
SCHEDULE(inverse_time_decay, "InverseTimeDecay", mu_exponential_decay_args, exponential_fields, inverse_time)
SCHEDULE(polynomial_decay, "PolynomialDecay", mu_polynomial_decay_args, polynomial_fields, polynomial)
SCHEDULE(cosine_decay, "CosineDecay", mu_cosine_decay_args, cosine_fields, cosine)
SCHEDULE(cosine_decay_restarts, "CosineDecayRestarts", mu_cosine_decay_restarts_args, restarts_fields, cosine_restarts)

static const mu_schedule_ops piecewise_constant_decay_ops = {
    .class = {"piecewise_constant_decay", "PiecewiseConstantDecay", "mu_piecewise_constant_decay",
              MU_OPTIONS(mu_piecewise_constant_decay_args), piecewise_fields, piecewise_complete},
    .call = piecewise_constant,
};
static const mu_schedule_ops own_ops = {
    .class = {"learning_rate_schedule", NULL, "mu_learning_rate_schedule_new", MU_OPTIONS(mu_own_schedule_args),
              own_fields, own_complete},
    .call = own,
};

mu_learning_rate_schedule *mu_piecewise_constant_decay_with(const mu_piecewise_constant_decay_args *args)
{
    return make(&piecewise_constant_decay_ops, args);
}

mu_learning_rate_schedule *mu_learning_rate_schedule_new_with(const mu_own_schedule_args *args)
{
    return make(&own_ops, args);
}

// ---- Calls --------------------------------------------------------------------------------------

mu_tensor *mu_learning_rate_schedule_call(const mu_learning_rate_schedule *schedule, mu_tensor *step)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending() || mu__need(schedule, "mu_learning_rate_schedule_call: the schedule") != MU_OK ||
        mu__need(step, "mu_learning_rate_schedule_call: the step") != MU_OK)
        return NULL;
    if (mu_tensor_rank(step) != 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_learning_rate_schedule_call: the step has shape %s; it must be a scalar",
                  mu__shape_text(&step->shape, text));
        return NULL;
    }
    mu_tensor *number = mu_cast(step, mu__floatx());
    return number ? schedule->ops->call(schedule->args, number) : NULL;
}

// ---- Keras's JSON -------------------------------------------------------------------------------

json_t *mu__schedule_json(const mu_learning_rate_schedule *schedule)
{
    const mu_class *class = &schedule->ops->class;
    if (!class->keras) {
        mu__error(MU_UNIMPLEMENTED, "the schedule of a function of the program's own has no configuration in Keras's "
                                    "JSON; make the schedule again where the configuration is read");
        return NULL;
    }
    json_t *config = json_object();
    const char *name = mu__fields_name(class, schedule->args);
    mu_status status = config ? mu__fields_json(class, schedule->args, config) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && name)
        status = mu__json_member(config, "name", json_string(name));
    if (status == MU_OK)
        return mu__keras_json("keras.optimizers.schedules", class->keras, config);
    json_decref(config);
    return NULL;
}

mu_learning_rate_schedule *mu__schedule_from(const json_t *json)
{
    static const mu_schedule_ops *const known[] = {
        &exponential_decay_ops,        &inverse_time_decay_ops, &polynomial_decay_ops,
        &piecewise_constant_decay_ops, &cosine_decay_ops,       &cosine_decay_restarts_ops,
    };
    const char *name = json_string_value(json_object_get(json, "class_name"));
    for (size_t i = 0; name && i < MU_COUNT(known); i++) {
        if (strcmp(known[i]->class.keras, name) != 0)
            continue;
        void *args = mu__fields_from(&known[i]->class, json_object_get(json, "config"), 0);
        mu_learning_rate_schedule *schedule = args ? make(known[i], args) : NULL;
        mu__fields_from_free(args);
        return schedule;
    }
    mu__error(MU_UNIMPLEMENTED, "the configuration has the learning rate schedule '%.60s', which Muster lacks",
              name ? name : "?");
    return NULL;
}
