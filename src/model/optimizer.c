// Optimizers: slots for each variable, and one op per variable that applies its gradient.
//
// Formulas and defaults are Keras 3's. Kingma and Ba, "Adam: a method for stochastic optimization", 2015;
// Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
#include "model/model.h"
#include "ops/nn/nn.h"

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

mu_type mu__optimizer_type = {.name = "optimizer", .destroy = optimizer_destroy};

static mu_optimizer *new_optimizer(const mu_optimizer_ops *ops, double learning_rate)
{
    if (!(learning_rate >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_%s: learning_rate is %g; it must be 0 or more", ops->name, learning_rate);
        return NULL;
    }
    mu_optimizer *optimizer = mu__new(&mu__optimizer_type, sizeof *optimizer);
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
        optimizer->learning_rate =
            scalar_state(optimizer, "learning_rate", mu__floatx(), optimizer->learning_rate_value);
    return optimizer->iterations && optimizer->learning_rate ? MU_OK : mu_error_code();
}

// Makes the state for a caller outside of steps, when the scope may be closed.
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

// The slot of a part of a sharded variable is a part too, so that checkpoints hold the slots as one tensor.
static mu_status slice_slot(const mu_optimizer *optimizer, mu_variable *made, const mu_variable *variable,
                            const char *slot)
{
    const mu_slice_info *slice = variable->slice;
    if (!slice)
        return MU_OK;
    char *full = mu__sprintf("%s/%s/%s", optimizer->ops->name, slice->full_name, slot);
    const mu_status status = full ? mu__variable_set_slice(made, full, &slice->full_shape, slice->offset)
                                  : MU_RESOURCE_EXHAUSTED;
    mu__free(full);
    return status;
}

static mu_status make_slot(mu_optimizer *optimizer, const mu_variable *variable, const char *slot)
{
    char *full = mu__sprintf("%s/%s/%s", optimizer->ops->name, variable->resource.name, slot);
    const mu_spec *spec = &variable->resource.spec;
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *zeros = full ? mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL) : NULL;
    mu__trace_resume(suspended);
    mu_scope_change scope;
    mu__scope_beside(&scope, variable);
    mu_variable *made = zeros ? mu_variable_new(zeros, full, .not_trainable = true) : NULL;
    mu__scope_restore(&scope);
    mu__free(full);
    if (!made || slice_slot(optimizer, made, variable, slot) != MU_OK || MU_PUSH(&optimizer->slots, made) != MU_OK)
        return mu_error_code();
    mu_retain(made);
    return MU_OK;
}

// The index of a variable in the optimizer; makes the slots of a new variable.
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

static mu_status apply_one(mu_optimizer *optimizer, mu_variable *variable, const mu_gradient *gradient)
{
    const int place = place_of(optimizer, variable);
    if (place < 0)
        return mu_error_code();
    mu_variable *const *slots = optimizer->slots.items + place * optimizer->ops->n_slots;
    return gradient->dense ? optimizer->ops->apply(optimizer, variable, slots, gradient->dense)
                           : optimizer->ops->apply_slices(optimizer, variable, slots, gradient);
}

static mu_status apply_all(mu_optimizer *optimizer, int n, mu_variable *const *variables, const mu_gradient *gradients)
{
    optimizer->step = mu_variable_read(optimizer->iterations);
    MU_TRY(mu__optimizer_build(optimizer, n, variables));  // makes the state, in the variables' order
    for (int i = 0; i < n; i++)
        MU_TRY(apply_one(optimizer, variables[i], &gradients[i]));
    mu_tensor *one = mu_constant(MU_I64, 1);
    return one ? mu__variable_update(optimizer->iterations, MU_UPDATE_ADD, one) : mu_error_code();
}

// Sums dense gradients over all replicas; slices stay this replica's until they are applied.
static mu_status reduce_dense(int n, mu_variable *const *variables, mu_gradient *gradients)
{
    mu_tensor **in = mu__calloc((size_t)n + 1, 2 * sizeof *in), **out = in ? in + n : NULL;
    const char **names = mu__calloc((size_t)n + 1, sizeof *names);
    mu_status status = in && names ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int count = 0;
    for (int i = 0; status == MU_OK && i < n; i++)
        if (gradients[i].dense) {
            names[count] = mu_variable_name(variables[i]);
            in[count++] = gradients[i].dense;
        }
    if (status == MU_OK && count > 0)
        status = mu__all_reduce_list(MU_REDUCTION_SUM, count, in, out, names, mu_get_strategy()->bytes_per_pack);
    for (int i = 0, k = 0; i < n && status == MU_OK; i++)
        if (gradients[i].dense)
            gradients[i].dense = out[k++];
    mu__free(in);
    mu__free(names);
    return status;
}

// Gradients paired with their variables.
typedef struct pairs {
    const mu_optimizer_ops *ops;
    int n;
    mu_variable **variables;
    mu_gradient *gradients;
} pairs;

static mu_status check_gradient(const mu_variable *variable, const mu_tensor *gradient)
{
    const mu_spec *spec = &variable->resource.spec;
    char expected[MU_SHAPE_TEXT], got[MU_SHAPE_TEXT];
    if (!gradient || (gradient->dtype == spec->dtype && mu__shape_compatible(&gradient->shape, &spec->shape)))
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: the gradient for variable '%s' is %s %s; expected %s "
                     "%s, as the variable is", variable->resource.name, mu_dtype_name(gradient->dtype),
                     mu__shape_text(&gradient->shape, got), mu_dtype_name(spec->dtype),
                     mu__shape_text(&spec->shape, expected));
}

static mu_status add_pair(pairs *p, const mu_value *gradient, mu_object *source)
{
    mu_gradient *g = &p->gradients[p->n];
    if (!mu__is(source, &mu__variable_type))
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: gradient %d is of a tensor, not of a variable",
                         p->n);
    mu_variable *variable = p->variables[p->n++] = (mu_variable *)source;
    if (gradient->kind != MU_VALUE_SLICES) {
        g->dense = gradient->kind == MU_VALUE_VARIABLE ? mu_variable_read(mu_value_variable(gradient))
                                                       : mu_value_tensor(gradient);
        return check_gradient(variable, g->dense);
    }
    if (p->ops->apply_slices)
        *g = (mu_gradient){.values = mu_at(gradient, 0), .indices = mu_at(gradient, 1)};
    else
        g->dense =
            mu_unsorted_segment_sum(mu_at(gradient, 0), mu_at(gradient, 1), variable->resource.spec.shape.dims[0]);
    return mu_error_code();
}

// Walks gradients and their sources in parallel.
static mu_status collect_pairs(pairs *p, const mu_value *gradients, const mu_value *sources)
{
    if (sources->leaf)
        return add_pair(p, gradients, sources->leaf);
    if (gradients->n != sources->n)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: %d gradients for %d variables", gradients->n,
                         sources->n);
    for (int i = 0; i < sources->n; i++)
        MU_TRY(collect_pairs(p, gradients->items[i], sources->items[i]));
    return MU_OK;
}

mu_status mu_apply_gradients_with(const mu_apply_gradients_args *given)
{
    if (mu__pending())
        return mu_error_code();
    mu_apply_gradients_args args;
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_apply_gradients"));
    mu_optimizer *optimizer = args.optimizer;
    const mu_value *gradients = args.gradients;
    if (!optimizer || !gradients)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: %s is NULL", optimizer ? "gradients" : "optimizer");
    const mu_value *sources = args.variables ? args.variables : gradients->sources;
    if (!sources)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: the gradients are not what mu_gradients returned; "
                         "name the variables that they are for with .variables");
    const size_t n = (size_t)mu__value_flatten(sources, NULL, 0) + 1;
    pairs p = {.ops = optimizer->ops,
               .variables = mu__calloc(n, sizeof *p.variables),
               .gradients = mu__calloc(n, sizeof *p.gradients)};
    mu_status status = p.variables && p.gradients ? collect_pairs(&p, gradients, sources) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = build(optimizer);
    if (status == MU_OK)
        status = mu__clip(&optimizer->clipping, p.n, p.gradients);
    if (status == MU_OK)
        status = reduce_dense(p.n, p.variables, p.gradients);
    if (status == MU_OK)
        status = apply_all(optimizer, p.n, p.variables, p.gradients);
    mu__free(p.variables);
    mu__free(p.gradients);
    return status;
}

static mu_apply_slices_attrs slices_attrs(const mu_optimizer *optimizer, const mu_variable *variable)
{
    mu_apply_slices_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.nesterov = optimizer->nesterov;
    attrs.reduce = mu_replica_count() > 1;
    snprintf(attrs.name, sizeof attrs.name, "slices of %.80s", variable->resource.name);
    return attrs;
}

// ---- Adam ---------------------------------------------------------------------------------------

static mu_status adam_apply(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots,
                            mu_tensor *gradient)
{
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate),
                       mu_constant(MU_F64, optimizer->beta_1),
                       mu_constant(MU_F64, optimizer->beta_2),
                       mu_constant(MU_F64, optimizer->epsilon),
                       optimizer->step,
                       gradient};
    mu_resource *resources[] = {&variable->resource, &slots[0]->resource, &slots[1]->resource};
    return mu__apply(&mu_op_apply_adam, NULL, 6, in, 3, resources, NULL);
}

static mu_status adam_slices(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots,
                             const mu_gradient *gradient)
{
    const mu_apply_slices_attrs attrs = slices_attrs(optimizer, variable);
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate), mu_constant(MU_F64, optimizer->beta_1),
                       mu_constant(MU_F64, optimizer->beta_2), mu_constant(MU_F64, optimizer->epsilon), optimizer->step,
                       gradient->values, gradient->indices};
    mu_resource *resources[] = {&variable->resource, &slots[0]->resource, &slots[1]->resource};
    return mu__apply(&mu_op_apply_adam_slices, &attrs, 7, in, 3, resources, NULL);
}

static const mu_optimizer_ops adam_ops = {
    .name = "adam",
    .n_slots = 2,
    .slot_names = {"momentum", "velocity"},
    .apply = adam_apply,
    .apply_slices = adam_slices,
};

mu_optimizer *mu_adam_with(const mu_adam_args *given)
{
    mu_adam_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_adam") != MU_OK)
        return NULL;
    const double beta_1 = MU_GIVEN(&args, beta_1) ? args.beta_1 : 0.9;
    const double beta_2 = MU_GIVEN(&args, beta_2) ? args.beta_2 : 0.999;
    const double epsilon = MU_GIVEN(&args, epsilon) ? args.epsilon : 1e-7;
    if (!(epsilon >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_adam: epsilon is %g; it must be 0 or more", epsilon);
        return NULL;
    }
    const mu_clipping clipping = {.norm = args.clipnorm, .global_norm = args.global_clipnorm, .value = args.clipvalue};
    if (check_share(beta_1, "adam", "beta_1") != MU_OK || check_share(beta_2, "adam", "beta_2") != MU_OK ||
        mu__check_clipping(&clipping, "mu_adam") != MU_OK)
        return NULL;
    mu_optimizer *optimizer = new_optimizer(&adam_ops, MU_GIVEN(&args, learning_rate) ? args.learning_rate : 0.001);
    if (!optimizer)
        return NULL;
    optimizer->beta_1 = beta_1;
    optimizer->beta_2 = beta_2;
    optimizer->epsilon = epsilon;
    optimizer->clipping = clipping;
    return optimizer;
}

// ---- Gradient descent ---------------------------------------------------------------------------

static mu_status sgd_apply(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots,
                           mu_tensor *gradient)
{
    mu_nesterov_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.nesterov = optimizer->nesterov;
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate), mu_constant(MU_F64, optimizer->momentum), gradient};
    mu_resource *resources[] = {&variable->resource, optimizer->ops->n_slots ? &slots[0]->resource : NULL};
    return mu__apply(&mu_op_apply_gradient_descent, &attrs, 3, in, 1 + optimizer->ops->n_slots, resources, NULL);
}

static mu_status sgd_slices(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots,
                            const mu_gradient *gradient)
{
    const mu_apply_slices_attrs attrs = slices_attrs(optimizer, variable);
    mu_tensor *in[] = {mu_variable_read(optimizer->learning_rate), mu_constant(MU_F64, optimizer->momentum),
                       gradient->values, gradient->indices};
    mu_resource *resources[] = {&variable->resource, optimizer->ops->n_slots ? &slots[0]->resource : NULL};
    return mu__apply(&mu_op_apply_gradient_descent_slices, &attrs, 4, in, 1 + optimizer->ops->n_slots, resources, NULL);
}

static const mu_optimizer_ops sgd_ops = {.name = "sgd", .apply = sgd_apply, .apply_slices = sgd_slices};
static const mu_optimizer_ops sgd_momentum_ops = {
    .name = "sgd", .n_slots = 1, .slot_names = {"momentum"}, .apply = sgd_apply, .apply_slices = sgd_slices,
};

mu_optimizer *mu_sgd_with(const mu_sgd_args *given)
{
    mu_sgd_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_sgd") != MU_OK)
        return NULL;
    const mu_clipping clipping = {.norm = args.clipnorm, .global_norm = args.global_clipnorm, .value = args.clipvalue};
    if (check_share(args.momentum, "sgd", "momentum") != MU_OK || mu__check_clipping(&clipping, "mu_sgd") != MU_OK)
        return NULL;
    mu_optimizer *optimizer =
        new_optimizer(args.momentum > 0 ? &sgd_momentum_ops : &sgd_ops,
                      MU_GIVEN(&args, learning_rate) ? args.learning_rate : 0.01);
    if (!optimizer)
        return NULL;
    optimizer->momentum = args.momentum;
    optimizer->nesterov = args.nesterov;
    optimizer->clipping = clipping;
    return optimizer;
}
