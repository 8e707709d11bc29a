// mu_apply_gradients: the gradients' way from a step to the variables. They are unscaled, clipped, summed over the
// replicas, accumulated, and handed to the optimizer's class; then the moving averages and the constraints follow.
//
// What must not happen in every step (an update that waits for more gradients, one whose gradients are not finite) is
// in a branch of mu_cond, so that one trace serves all steps. Reductions come before the branches, so every replica
// takes the same one. The order of the parts is Keras 3's.
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"
#include "ops/state/accumulator.h"

#include <muster/control.h>
#include <muster/ops.h>

// Gradients paired with their variables.
typedef struct pairs {
    mu_optimizer *optimizer;       // that updates
    mu_optimizer *scaling;         // a loss scale optimizer around it; NULL: none
    const mu_optimizer_args *args; // of the optimizer
    int n;
    mu_variable **variables;
    mu_gradient *gradients;
    mu_tensor **magnitudes; // of gradients that were slices; else NULL
    mu_tensor *iterations;  // number of earlier calls
    mu_tensor *earlier;     // number of earlier updates
} pairs;

static mu_tensor *whole(int64_t value) { return mu_constant(MU_I64, (double)value); }

static mu_tensor *like(const mu_variable *variable, double value)
{
    return mu_constant(variable->resource.spec.dtype, value);
}

// ---- Pairs --------------------------------------------------------------------------------------

static mu_status check_gradient(const mu_variable *variable, const mu_tensor *gradient)
{
    const mu_spec *spec = &variable->resource.spec;
    char expected[MU_SHAPE_TEXT], got[MU_SHAPE_TEXT];
    if (!gradient || (gradient->dtype == spec->dtype && mu__shape_compatible(&gradient->shape, &spec->shape)))
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_apply_gradients: the gradient for variable '%s' is %s %s; expected %s %s, as the variable is",
                     variable->resource.name, mu_dtype_name(gradient->dtype), mu__shape_text(&gradient->shape, got),
                     mu_dtype_name(spec->dtype), mu__shape_text(&spec->shape, expected));
}

static mu_status add_pair(pairs *p, const mu_value *gradient, mu_object *source)
{
    mu_gradient *g = &p->gradients[p->n];
    if (!mu__is(source, &mu__variable_type))
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: gradient %d is of a tensor, not of a variable",
                         p->n);
    mu_variable *variable = p->variables[p->n++] = (mu_variable *)source;
    if (gradient->kind == MU_VALUE_SLICES) {
        *g = (mu_gradient){.values = mu_at(gradient, 0), .indices = mu_at(gradient, 1)};
        return mu_error_code();
    }
    if (gradient->unconnected)
        return MU_OK;
    g->dense =
        gradient->kind == MU_VALUE_VARIABLE ? mu_variable_read(mu_value_variable(gradient)) : mu_value_tensor(gradient);
    return check_gradient(variable, g->dense);
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

// ---- Before the update --------------------------------------------------------------------------

static bool is_connected(const mu_gradient *g) { return g->dense || g->values; }

static void warn_of_unconnected(const pairs *p, int kept)
{
    const mu_variable *first = NULL;
    for (int i = 0; i < p->n && !first; i++)
        first = is_connected(&p->gradients[i]) ? NULL : p->variables[i];
    if (first && !atomic_exchange(&p->optimizer->warned_of_unconnected, true))
        mu__log(MU_LOG_WARNING,
                "the loss does not depend on %d of the %d variables that '%s' trains, such as '%s', so these do not "
                "change; to train them, give their output a loss, or freeze them on purpose "
                "(mu_layer_set_trainable)",
                p->n - kept, p->n, mu__optimizer_name(p->optimizer), mu__optimizer_path(first));
}

// Leaves out the variables on which the loss does not depend, as Keras does: they do not decay either. They have a
// state like others, so that files have the same whatever the loss is.
static mu_status leave_out_unconnected(pairs *p)
{
    int kept = 0;
    for (int i = 0; i < p->n; i++)
        kept += is_connected(&p->gradients[i]);
    if (kept == p->n)
        return MU_OK;
    if (kept == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_apply_gradients: the loss depends on none of the %d variables, the first of which is "
                         "'%s'; compute it from the model's outputs, between mu_tape_open and mu_gradients",
                         p->n, mu__optimizer_path(p->variables[0]));
    warn_of_unconnected(p, kept);
    MU_TRY(mu__optimizer_build(p->optimizer, p->n, p->variables));
    kept = 0;
    for (int i = 0; i < p->n; i++)
        if (is_connected(&p->gradients[i])) {
            p->variables[kept] = p->variables[i];
            p->gradients[kept++] = p->gradients[i];
        }
    p->n = kept;
    return MU_OK;
}

// Divides every gradient by the scale of the loss.
static mu_status unscale(pairs *p)
{
    const double factor = p->args->loss_scale_factor;
    mu_tensor *dynamic = p->scaling ? mu__loss_scale(p->scaling) : NULL;
    if (!p->scaling && factor == 0)
        return MU_OK;
    for (int i = 0; i < p->n; i++) {
        mu_tensor **numbers = p->gradients[i].values ? &p->gradients[i].values : &p->gradients[i].dense;
        mu_tensor *scale =
            p->scaling ? mu_cast(dynamic, p->variables[i]->resource.spec.dtype) : like(p->variables[i], factor);
        *numbers = mu_divide(*numbers, scale);
    }
    return mu_error_code();
}

static mu_status clip(const pairs *p)
{
    const mu_clipping clipping = {
        .norm = p->args->clipnorm, .global_norm = p->args->global_clipnorm, .value = p->args->clipvalue};
    return mu__clip(&clipping, p->n, p->gradients);
}

// Makes slices dense, unless the class takes them. Slices count separately in the magnitude.
static mu_status densify(pairs *p)
{
    const mu_optimizer_ops *ops = p->optimizer->ops;
    const bool accumulates = p->optimizer->accumulator >= 0, sums = accumulates || p->scaling || mu__attempt_number();
    for (int i = 0; i < p->n; i++) {
        mu_gradient *g = &p->gradients[i];
        if (!g->values || (!sums && ops->takes_slices && ops->takes_slices(p->args, p->variables[i])))
            continue;
        const int64_t rows = p->variables[i]->resource.spec.shape.dims[0];
        if (ops->magnitude && !accumulates)
            p->magnitudes[i] = mu_unsorted_segment_sum(ops->magnitude(g->values), g->indices, rows);
        *g = (mu_gradient){.dense = mu_unsorted_segment_sum(g->values, g->indices, rows)};
        MU_TRY(check_gradient(p->variables[i], g->dense));
    }
    return mu_error_code();
}

// Sums dense gradients and magnitudes over all replicas; slices stay this replica's until they are applied.
static mu_status reduce_dense(pairs *p)
{
    const size_t most = 2 * (size_t)p->n + 1;
    mu_tensor **in = mu__calloc(most, 2 * sizeof *in), **out = in ? in + most : NULL;
    mu_tensor ***targets = mu__calloc(most, sizeof *targets);
    const char **names = mu__calloc(most, sizeof *names);
    mu_status status = in && names && targets ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int count = 0;
    for (int i = 0; status == MU_OK && i < 2 * p->n; i++) {
        mu_tensor **target = i < p->n ? &p->gradients[i].dense : &p->magnitudes[i - p->n];
        if (!*target)
            continue;
        names[count] = mu_variable_name(p->variables[i % p->n]);
        targets[count] = target;
        in[count++] = *target;
    }
    if (status == MU_OK && count > 0)
        status = mu__all_reduce_list(MU_REDUCTION_SUM, count, in, out, names, mu_get_strategy()->bytes_per_pack);
    for (int k = 0; k < count && status == MU_OK; k++)
        *targets[k] = out[k];
    mu__free(in);
    mu__free(names);
    mu__free(targets);
    return status;
}

// ---- The update ---------------------------------------------------------------------------------

static mu_tensor *learning_rate(const pairs *p)
{
    return p->args->schedule ? mu_learning_rate_schedule_call(p->args->schedule, p->iterations)
                             : mu_variable_read(p->optimizer->learning_rate);
}

// The rate of one variable.
static mu_tensor *rate_of(const mu_variable *variable, mu_tensor *rate)
{
    return variable->has_rate_factor ? mu_multiply(rate, mu_constant(mu_tensor_dtype(rate), variable->rate_factor))
                                     : rate;
}

static mu_status decay(const pairs *p, mu_variable *variable, mu_tensor *rate)
{
    const mu_optimizer_ops *ops = p->optimizer->ops;
    const double amount = ops->decay ? ops->decay(p->optimizer, variable) : p->args->weight_decay;
    if (amount == 0 || !mu__optimizer_decays(p->optimizer, variable))
        return MU_OK;
    mu_tensor *share = mu_multiply(mu__variable_read(variable), like(variable, amount));
    mu_tensor *lost = mu_multiply(share, mu_cast(rate, variable->resource.spec.dtype));
    return lost ? mu__variable_update(variable, MU_UPDATE_SUB, lost) : mu_error_code();
}

static mu_status update_one(const pairs *p, int i, mu_tensor *rate)
{
    const mu_optimizer_ops *ops = p->optimizer->ops;
    const mu_dtype dtype = p->variables[i]->resource.spec.dtype;
    mu_optimizer_update u = {.optimizer = p->optimizer,
                             .variable = p->variables[i],
                             .gradient = p->gradients[i],
                             .slots = mu__optimizer_slots(p->optimizer, p->variables[i]),
                             .rate = mu_cast(rate, dtype),
                             .earlier = p->earlier};
    u.step = mu_cast(mu_add(p->earlier, whole(1)), dtype);
    if (!u.slots || !u.step)
        return mu_error_code();
    if (u.gradient.values)
        return ops->update_slices(&u);
    u.magnitude = p->magnitudes[i];
    if (ops->magnitude && !u.magnitude)
        u.magnitude = ops->magnitude(u.gradient.dense);
    return ops->update(&u);
}

static mu_status update_all(const pairs *p)
{
    mu_tensor *rate = learning_rate(p);
    if (!rate)
        return mu_error_code();
    for (int i = 0; i < p->n; i++)
        MU_TRY(decay(p, p->variables[i], rate_of(p->variables[i], rate)));
    if (p->optimizer->ops->begin)
        MU_TRY(p->optimizer->ops->begin(p->optimizer, p->earlier));
    for (int i = 0; i < p->n; i++)
        MU_TRY(update_one(p, i, rate_of(p->variables[i], rate)));
    return MU_OK;
}

// ---- Branches -----------------------------------------------------------------------------------

// What the branches of effects return.
static mu_value *nothing(mu_status status)
{
    mu_tensor *zero = status == MU_OK ? mu_constant(MU_I32, 0) : NULL;
    return zero ? mu_of(zero) : NULL;
}

static mu_value *do_nothing(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return nothing(MU_OK);
}

static mu_status when(mu_tensor *condition, mu_body *then, mu_body *otherwise, void *arg)
{
    mu_tensor *unused = condition ? mu_constant(MU_I32, 0) : NULL;
    return unused && mu_cond(condition, then, otherwise, mu_of(unused), arg) ? MU_OK : mu_error_code();
}

// Whether (number + 1) % period is 0.
static mu_tensor *ends_period(mu_tensor *number, int period)
{
    return mu_equal(mu_mod(mu_add(number, whole(1)), whole(period)), whole(0));
}

static mu_variable *slot_of(const pairs *p, mu_variable *variable, int slot)
{
    mu_variable *const *slots = mu__optimizer_slots(p->optimizer, variable);
    return slots ? slots[slot] : NULL;
}

// ---- Accumulation -------------------------------------------------------------------------------

static mu_value *add_to_sums(mu_value *arguments, void *arg)
{
    const pairs *p = arg;
    (void)arguments;
    mu_status status = MU_OK;
    for (int i = 0; i < p->n && status == MU_OK; i++) {
        mu_variable *sum = slot_of(p, p->variables[i], p->optimizer->accumulator);
        status = sum ? mu__variable_update(sum, MU_UPDATE_ADD, p->gradients[i].dense) : mu_error_code();
    }
    return nothing(status);
}

// Updates with the mean of the gradients since the last update, and begins a new sum.
static mu_status update_with_mean(const pairs *given, mu_gradient *means)
{
    pairs p = *given;
    p.gradients = means;
    for (int i = 0; i < p.n; i++) {
        mu_variable *sum = slot_of(&p, p.variables[i], p.optimizer->accumulator);
        mu_tensor *all = sum ? mu_add(given->gradients[i].dense, mu__variable_read(sum)) : NULL;
        means[i].dense = mu_divide(all, like(p.variables[i], p.args->gradient_accumulation_steps));
    }
    MU_TRY(mu_error_code());
    MU_TRY(clip(&p));
    MU_TRY(update_all(&p));
    for (int i = 0; i < p.n; i++) {
        mu_tensor *zeros = mu_zeros_like(means[i].dense);
        MU_TRY(zeros
                   ? mu__variable_update(slot_of(&p, p.variables[i], p.optimizer->accumulator), MU_UPDATE_ASSIGN, zeros)
                   : mu_error_code());
    }
    return MU_OK;
}

static mu_value *use_sums(mu_value *arguments, void *arg)
{
    const pairs *p = arg;
    (void)arguments;
    mu_gradient *means = mu__calloc((size_t)p->n + 1, sizeof *means);
    const mu_status status = means ? update_with_mean(p, means) : MU_RESOURCE_EXHAUSTED;
    mu__free(means);
    return nothing(status);
}

// ---- Moving averages ----------------------------------------------------------------------------

static mu_value *overwrite(mu_value *arguments, void *arg)
{
    const pairs *p = arg;
    (void)arguments;
    mu_status status = MU_OK;
    for (size_t i = 0; i < p->optimizer->variables.n && status == MU_OK; i++) {
        mu_variable *variable = p->optimizer->variables.items[i],
                    *average = slot_of(p, variable, p->optimizer->average);
        mu_tensor *value = average ? mu__variable_read(average) : NULL;
        status = value ? mu__variable_update(variable, MU_UPDATE_ASSIGN, value) : mu_error_code();
    }
    return nothing(status);
}

// The first average is the variable itself.
static mu_status move_average(const pairs *p, mu_variable *variable)
{
    mu_variable *average = slot_of(p, variable, p->optimizer->average);
    if (!average)
        return mu_error_code();
    mu_tensor *later = mu_cast(mu_not_equal(p->earlier, whole(0)), variable->resource.spec.dtype);
    mu_tensor *keep = mu_multiply(later, like(variable, p->args->ema_momentum));
    mu_tensor *kept = mu_multiply(keep, mu__variable_read(average));
    mu_tensor *added = mu_multiply(mu_subtract(like(variable, 1), keep), mu__variable_read(variable));
    mu_tensor *moved = mu_add(kept, added);
    return moved ? mu__variable_update(average, MU_UPDATE_ASSIGN, moved) : mu_error_code();
}

static mu_status move_averages(pairs *p)
{
    if (p->optimizer->average < 0)
        return MU_OK;
    for (size_t i = 0; i < p->optimizer->variables.n; i++)
        MU_TRY(move_average(p, p->optimizer->variables.items[i]));
    const int every = p->args->ema_overwrite_frequency;
    return every > 0 ? when(ends_period(p->earlier, every), overwrite, do_nothing, p) : MU_OK;
}

// ---- Constraints --------------------------------------------------------------------------------

static mu_status constrain(const pairs *p)
{
    for (int i = 0; i < p->n; i++) {
        mu_variable *variable = p->variables[i];
        if (!variable->constraint)
            continue;
        mu_tensor *value = mu__weight_option_apply(variable->constraint, mu__variable_read(variable));
        MU_TRY(value ? mu__variable_update(variable, MU_UPDATE_ASSIGN, value) : mu_error_code());
    }
    return MU_OK;
}

// ---- One step -----------------------------------------------------------------------------------

static mu_status count_step(const pairs *p)
{
    mu_tensor *one = whole(1);
    return one ? mu__variable_update(p->optimizer->iterations, MU_UPDATE_ADD, one) : mu_error_code();
}

static mu_status take_step(pairs *p)
{
    const int every = p->args->gradient_accumulation_steps;
    MU_TRY(every ? when(ends_period(p->iterations, every), use_sums, add_to_sums, p) : update_all(p));
    MU_TRY(move_averages(p));
    MU_TRY(constrain(p));
    return count_step(p);
}

static mu_value *take_scaled_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    return nothing(take_step(arg));
}

static mu_tensor *all_finite(const pairs *p)
{
    mu_tensor *finite = NULL;
    for (int i = 0; i < p->n; i++) {
        mu_tensor *own = mu_reduce_all(mu_is_finite(p->gradients[i].dense), MU_ALL_AXES);
        finite = finite ? mu_logical_and(finite, own) : own;
    }
    return finite;
}

static mu_status take_step_if_finite(pairs *p)
{
    mu_tensor *finite = p->n > 0 ? all_finite(p) : NULL;
    if (!finite)
        return mu_error_code();
    MU_TRY(when(finite, take_scaled_step, do_nothing, p));
    return mu__loss_scale_update(p->scaling, finite);
}

// Updates with the gradients of all replicas.
static mu_status update(pairs *p)
{
    const int every = p->args->gradient_accumulation_steps;
    p->iterations = mu_variable_read(p->optimizer->iterations);
    p->earlier = every ? mu_floor_divide(p->iterations, whole(every)) : p->iterations;
    MU_TRY(mu__optimizer_build(p->optimizer, p->n, p->variables)); // makes the state, in the variables' order
    MU_TRY(mu_error_code());
    return p->scaling ? take_step_if_finite(p) : take_step(p);
}

// ---- Gradients that are applied later (distribute/servers/aggregation.h) ------------------------

// What calls on workers leave for one update: a sum for each gradient, and for each magnitude.
typedef struct left_gradients {
    mu_object object;
    mu_optimizer *optimizer; // as given to mu_apply_gradients; not retained: it clears this at its end
    int n;
    mu_variable **variables; // [n] retained by the optimizer
    mu_accumulator **sums;   // [2 * n] retained; NULL: nothing depends on the variable, or no magnitude
} left_gradients;

static void left_destroy(void *object)
{
    left_gradients *left = object;
    for (int i = 0; i < 2 * left->n && left->sums; i++)
        mu_release(left->sums[i]);
    mu__free(left->sums);
    mu__free(left->variables);
}

static mu_type left_type = {.name = "gradients of workers", .destroy = left_destroy};

void mu__optimizer_forget_left(mu_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->left.n; i++) {
        ((left_gradients *)optimizer->left.items[i])->optimizer = NULL;
        mu__aggregation_forget(optimizer->strategy, optimizer->left.items[i]);
        mu_release(optimizer->left.items[i]);
    }
    mu__free(optimizer->left.items);
}

static mu_optimizer *given_optimizer(const pairs *p) { return p->scaling ? p->scaling : p->optimizer; }

// The update of one step, from the sums of its calls.
static mu_status update_with_left(void *owner, mu_tensor *const *sums, mu_tensor *calls)
{
    (void)calls;
    const left_gradients *left = owner;
    mu_optimizer *optimizer = left->optimizer;
    if (!optimizer)
        return mu__error(MU_FAILED_PRECONDITION, "the optimizer of the gradients that workers have left was released");
    pairs p = {.optimizer = optimizer->inner ? optimizer->inner : optimizer,
               .scaling = optimizer->inner ? optimizer : NULL,
               .n = left->n,
               .variables = left->variables,
               .gradients = mu__calloc((size_t)left->n + 1, sizeof *p.gradients),
               .magnitudes = mu__calloc((size_t)left->n + 1, sizeof *p.magnitudes)};
    p.args = p.optimizer->args;
    mu_status status = p.gradients && p.magnitudes ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < 2 * left->n && status == MU_OK; i++)
        *(i < left->n ? &p.gradients[i].dense : &p.magnitudes[i - left->n]) = sums[i];
    if (status == MU_OK)
        status = update(&p);
    mu__free(p.gradients);
    mu__free(p.magnitudes);
    return status;
}

static mu_tensor *left_tensor(const pairs *p, int i)
{
    return i < p->n ? p->gradients[i].dense : p->magnitudes[i - p->n];
}

static bool is_for(const left_gradients *left, const pairs *p)
{
    bool same = left->n == p->n;
    for (int i = 0; same && i < 2 * p->n; i++)
        same = left->variables[i % p->n] == p->variables[i % p->n] && !left->sums[i] == !left_tensor(p, i);
    return same;
}

static mu_status fill_left(left_gradients *left, const pairs *p)
{
    left->optimizer = given_optimizer(p);
    left->variables = mu__calloc((size_t)p->n + 1, sizeof *left->variables);
    left->sums = mu__calloc(2 * (size_t)p->n + 1, sizeof(mu_accumulator *));
    if (!left->variables || !left->sums)
        return MU_RESOURCE_EXHAUSTED;
    left->n = p->n;
    memcpy(left->variables, p->variables, sizeof *left->variables * (size_t)p->n);
    for (int i = 0; i < 2 * p->n; i++)
        if (left_tensor(p, i) &&
            !(left->sums[i] = mu__deferred_accumulator(p->variables[i % p->n], i < p->n ? "gradient" : "magnitude",
                                                       &p->variables[i % p->n]->resource.spec)))
            return mu_error_code();
    return MU_OK;
}

static mu_status add_left(const pairs *p, left_gradients *left)
{
    mu_optimizer *optimizer = given_optimizer(p);
    mu_accumulator *first = NULL;
    for (int i = 0; i < 2 * p->n && !first; i++)
        first = left->sums[i];
    if (!first)
        return mu__error(MU_INVALID_ARGUMENT, "mu_apply_gradients: there is no gradient to apply");
    MU_TRY(MU_PUSH(&optimizer->left, &left->object));
    mu_retain(left);
    const mu_deferred_site site = {
        .first = first, .n = 2 * left->n, .sums = left->sums, .update = update_with_left, .owner = &left->object};
    if (mu__aggregation_add(mu_get_strategy(), &site) == MU_OK)
        return MU_OK;
    mu_release(optimizer->left.items[--optimizer->left.n]); // the next trace must not find it: no step would apply it
    return mu_error_code();
}

// Those of an earlier trace, or new ones. Borrowed; NULL on error.
static left_gradients *left_for(const pairs *p)
{
    const mu_optimizer *optimizer = given_optimizer(p);
    for (size_t i = 0; i < optimizer->left.n; i++)
        if (is_for((left_gradients *)optimizer->left.items[i], p))
            return (left_gradients *)optimizer->left.items[i];
    left_gradients *left = mu__new(&left_type, sizeof *left);
    if (!left)
        return NULL;
    const mu_status status = fill_left(left, p) == MU_OK ? add_left(p, left) : mu_error_code();
    mu_release(left);
    return status == MU_OK ? left : NULL;
}

static mu_status leave_gradients(const pairs *p)
{
    MU_TRY(mu__optimizer_build(p->optimizer, p->n, p->variables));
    left_gradients *left = left_for(p);
    for (int i = 0; left && i < 2 * p->n; i++)
        if (left->sums[i])
            MU_TRY(mu__accumulator_keep(left->sums[i], mu__attempt_number(), left_tensor(p, i)));
    return left ? mu__deferred_applied(p->n, p->variables) : mu_error_code();
}

static mu_status apply(pairs *p)
{
    MU_TRY(mu__optimizer_need(given_optimizer(p)));
    for (int i = 0; i < p->n; i++)
        MU_TRY(mu__need_own_copies(p->variables[i], "mu_apply_gradients"));
    MU_TRY(leave_out_unconnected(p));
    MU_TRY(unscale(p));
    MU_TRY(p->args->gradient_accumulation_steps ? MU_OK : clip(p));
    MU_TRY(densify(p));
    if (mu__attempt_number())
        return leave_gradients(p);
    MU_TRY(reduce_dense(p));
    return update(p);
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
    pairs p = {.optimizer = optimizer->inner ? optimizer->inner : optimizer,
               .scaling = optimizer->inner ? optimizer : NULL,
               .variables = mu__calloc(n, sizeof *p.variables),
               .gradients = mu__calloc(n, sizeof *p.gradients),
               .magnitudes = mu__calloc(n, sizeof *p.magnitudes)};
    p.args = p.optimizer->args;
    mu_status status =
        p.variables && p.gradients && p.magnitudes ? collect_pairs(&p, gradients, sources) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = apply(&p);
    mu__free(p.variables);
    mu__free(p.gradients);
    mu__free(p.magnitudes);
    return status;
}
