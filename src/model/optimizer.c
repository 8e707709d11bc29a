// Optimizers: slots for each variable, and one op per variable that applies its gradient.
//
// Formulas and defaults are Keras 3's. Kingma and Ba, "Adam: a method for stochastic optimization", 2015;
// Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
#include "model/model.h"
#include "ops/nn.h"

#include <muster/ops.h>

static void optimizer_destroy(void *object)
{
    mu_optimizer *optimizer = object;
    for (size_t i = 0; i < optimizer->variables.n; i++)
        mu_release(optimizer->variables.items[i]);
    for (size_t i = 0; i < optimizer->slots.n; i++)
        mu_release(optimizer->slots.items[i]);
    mu__free(optimizer->variables.items);
    mu__free(optimizer->slots.items);
    mu_release(optimizer->iterations);
    mu_release(optimizer->learning_rate);
    mu_release(optimizer->strategy);
}

static mu_type optimizer_type = {.name = "optimizer", .destroy = optimizer_destroy};

// 0 means the default, MU_ZERO means 0.
static double option(double given, double otherwise)
{
    return given == 0 ? otherwise : given == MU_ZERO ? 0 : given;
}

static mu_optimizer *new_optimizer(const mu_optimizer_ops *ops, double learning_rate)
{
    if (!(learning_rate >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_%s: learning_rate is %g; it must be 0 or more", ops->name, learning_rate);
        return NULL;
    }
    mu_optimizer *optimizer = mu__new(&optimizer_type, sizeof *optimizer);
    if (!optimizer)
        return NULL;
    optimizer->ops = ops;
    optimizer->strategy = mu_retain(mu_get_strategy());
    optimizer->learning_rate_value = learning_rate;
    return mu__give(optimizer);
}

static mu_status check_share(double value, const char *optimizer, const char *name)
{
    if (value >= 0 && value < 1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "mu_%s: %s is %g; it must be from 0 to below 1", optimizer, name, value);
}

// ---- State --------------------------------------------------------------------------------------

static mu_variable *scalar_state(const mu_optimizer *optimizer, const char *name, mu_dtype dtype, double value)
{
    char *full = mu__sprintf("%s/%s", optimizer->ops->name, name);
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *initial = full ? mu_constant(dtype, value) : NULL;
    mu__trace_resume(suspended);
    mu_variable *variable = initial ? mu_variable_new(initial, full, .not_trainable = true,
                                                      .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA) : NULL;
    mu__free(full);
    return mu_retain(variable);
}

static mu_status build(mu_optimizer *optimizer)
{
    if (!optimizer->iterations)
        optimizer->iterations = scalar_state(optimizer, "iterations", MU_I64, 0);
    if (!optimizer->learning_rate)
        optimizer->learning_rate = scalar_state(optimizer, "learning_rate", mu__floatx(), optimizer->learning_rate_value);
    return optimizer->iterations && optimizer->learning_rate ? MU_OK : mu_error_code();
}

// Makes the state for a caller outside of steps, where the scope may be closed already.
static mu_status build_in_scope(mu_optimizer *optimizer, const char *function)
{
    if (mu__pending())
        return mu_error_code();
    if (!optimizer)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the optimizer is NULL", function);
    if (mu__context()->replica || (optimizer->iterations && optimizer->learning_rate))
        return build(optimizer);
    mu_scope_guard scope = mu_scope_open(optimizer->strategy);
    mu_status status = mu__pending() ? mu_error_code() : build(optimizer);
    mu_scope_close(&scope);
    return status;
}

mu_variable *mu_optimizer_learning_rate(mu_optimizer *optimizer)
{
    return build_in_scope(optimizer, "mu_optimizer_learning_rate") == MU_OK ? optimizer->learning_rate : NULL;
}

mu_variable *mu_optimizer_iterations(mu_optimizer *optimizer)
{
    return build_in_scope(optimizer, "mu_optimizer_iterations") == MU_OK ? optimizer->iterations : NULL;
}

static mu_status make_slot(mu_optimizer *optimizer, const mu_variable *variable, const char *slot)
{
    char *full = mu__sprintf("%s/%s/%s", optimizer->ops->name, variable->resource.name, slot);
    const mu_spec *spec = &variable->resource.spec;
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *zeros = full ? mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL) : NULL;
    mu__trace_resume(suspended);
    mu_variable *made = zeros ? mu_variable_new(zeros, full, .not_trainable = true) : NULL;
    mu__free(full);
    if (!made || MU_PUSH(&optimizer->slots, made) != MU_OK)
        return mu_error_code();
    mu_retain(made);
    return MU_OK;
}

// The place of a variable among those the optimizer knows; its slots are made when it is new.
static int place_of(mu_optimizer *optimizer, mu_variable *variable)
{
    for (size_t i = 0; i < optimizer->variables.n; i++)
        if (optimizer->variables.items[i] == variable)
            return (int)i;
    for (int s = 0; s < optimizer->ops->n_slots; s++)
        if (make_slot(optimizer, variable, optimizer->ops->slot_names[s]) != MU_OK)
            return -1;
    if (MU_PUSH(&optimizer->variables, variable) != MU_OK)
        return -1;
    mu_retain(variable);
    return (int)optimizer->variables.n - 1;
}

mu_status mu__optimizer_build(mu_optimizer *optimizer, int n, mu_variable *const *variables)
{
    MU_TRY(build(optimizer));
    for (int i = 0; i < n; i++)
        if (place_of(optimizer, variables[i]) < 0)
            return mu_error_code();
    return MU_OK;
}

// ---- Applying -----------------------------------------------------------------------------------

static mu_status apply_all(mu_optimizer *optimizer, int n, mu_variable *const *variables, mu_tensor *const *gradients)
{
    optimizer->step = mu_variable_read(optimizer->iterations);
    for (int i = 0; i < n; i++) {
        int place = place_of(optimizer, variables[i]);
        if (place < 0)
            return mu_error_code();
        mu_variable *const *slots = optimizer->slots.items + place * optimizer->ops->n_slots;
        MU_TRY(optimizer->ops->apply(optimizer, variables[i], slots, gradients[i]));
    }
    mu_tensor *one = mu_constant(MU_I64, 1);
    return one ? mu__variable_update(optimizer->iterations, MU_UPDATE_ADD, one) : mu_error_code();
}

mu_status mu_apply_gradients(mu_optimizer *optimizer, mu_value *gradients)
{
    if (mu__pending())
        return mu_error_code();
    if (!optimizer || !gradients)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: %s is NULL", optimizer ? "gradients" : "optimizer");
    const mu_value *sources = gradients->sources;
    if (!sources)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: the gradients are not what mu_gradients returned");
    int n = mu__value_flatten(gradients, NULL, 0);
    mu_object **block = mu__calloc((size_t)n + 1, 3 * sizeof *block);
    if (!block)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    mu_tensor **in = (mu_tensor **)block, **reduced = in + n;
    mu_variable **variables = (mu_variable **)(reduced + n);
    mu__value_flatten(gradients, block, n);
    mu__value_flatten(sources, (mu_object **)variables, n);
    for (int i = 0; i < n; i++)
        if (!mu__is(variables[i], &mu__variable_type))
            MU_GO(mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: gradient %d is of a tensor, not of a variable", i));
    MU_GO(build(optimizer));
    MU_GO(mu__all_reduce_list(MU_REDUCTION_SUM, n, in, reduced, 0));
    MU_GO(apply_all(optimizer, n, variables, reduced));
out:
    mu__free(block);
    return status;
}

// ---- Adam ---------------------------------------------------------------------------------------

static mu_status adam_apply(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots, mu_tensor *gradient)
{
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate), mu_constant(MU_F64, optimizer->beta_1),
                       mu_constant(MU_F64, optimizer->beta_2), mu_constant(MU_F64, optimizer->epsilon), optimizer->step, gradient};
    mu_resource *resources[] = {&variable->resource, &slots[0]->resource, &slots[1]->resource};
    return mu__apply(&mu_op_apply_adam, NULL, 6, in, 3, resources, NULL);
}

static const mu_optimizer_ops adam_ops = {
    .name = "adam", .n_slots = 2, .slot_names = {"momentum", "velocity"}, .apply = adam_apply,
};

mu_optimizer *mu_adam_with(const mu_adam_args *given)
{
    mu_adam_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_adam") != MU_OK)
        return NULL;
    double beta_1 = option(args.beta_1, 0.9), beta_2 = option(args.beta_2, 0.999), epsilon = option(args.epsilon, 1e-7);
    if (!(epsilon >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_adam: epsilon is %g; it must be 0 or more", epsilon);
        return NULL;
    }
    if (check_share(beta_1, "adam", "beta_1") != MU_OK || check_share(beta_2, "adam", "beta_2") != MU_OK)
        return NULL;
    mu_optimizer *optimizer = new_optimizer(&adam_ops, option(args.learning_rate, 0.001));
    if (!optimizer)
        return NULL;
    optimizer->beta_1 = beta_1;
    optimizer->beta_2 = beta_2;
    optimizer->epsilon = epsilon;
    return optimizer;
}

// ---- Gradient descent ---------------------------------------------------------------------------

static mu_status sgd_apply(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots, mu_tensor *gradient)
{
    mu_nesterov_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.nesterov = optimizer->nesterov;
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate), mu_constant(MU_F64, optimizer->momentum), gradient};
    mu_resource *resources[] = {&variable->resource, optimizer->ops->n_slots ? &slots[0]->resource : NULL};
    return mu__apply(&mu_op_apply_gradient_descent, &attrs, 3, in, 1 + optimizer->ops->n_slots, resources, NULL);
}

static const mu_optimizer_ops sgd_ops = {.name = "sgd", .apply = sgd_apply};
static const mu_optimizer_ops sgd_momentum_ops = {
    .name = "sgd", .n_slots = 1, .slot_names = {"momentum"}, .apply = sgd_apply,
};

mu_optimizer *mu_sgd_with(const mu_sgd_args *given)
{
    mu_sgd_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_sgd") != MU_OK)
        return NULL;
    args.momentum = option(args.momentum, 0);
    if (check_share(args.momentum, "sgd", "momentum") != MU_OK)
        return NULL;
    mu_optimizer *optimizer = new_optimizer(args.momentum > 0 ? &sgd_momentum_ops : &sgd_ops, option(args.learning_rate, 0.01));
    if (!optimizer)
        return NULL;
    optimizer->momentum = args.momentum;
    optimizer->nesterov = args.nesterov;
    return optimizer;
}
