// Lowerings of optimizers' updates and of updates of a variable's rows to StableHLO.
//
// A variable is a value: an update computes the next one from it. An index outside the variable is ignored, and the
// program fails as the plain loops do.
#include "ops/array/index.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

// ---- Dense updates ------------------------------------------------------------------------------

static mu_hlo scaled(mu_emitter *e, mu_hlo a, mu_hlo scalar)
{
    return mu__hlo_binary(e, "stablehlo.multiply", a,
                          mu__hlo_broadcast_to(e, mu__hlo_convert(e, scalar, a.spec.dtype), &a.spec.shape));
}

mu_status mu__lower_descent(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo step = scaled(e, l->in[2], l->in[0]);
    mu_hlo change = mu__hlo_unary(e, "stablehlo.negate", step);
    if (l->n_resources > 1) {
        l->state[1] = mu__hlo_binary(e, "stablehlo.subtract", scaled(e, l->state[1], l->in[1]), step);
        change = ((const mu_nesterov_attrs *)l->attrs)->nesterov
                     ? mu__hlo_binary(e, "stablehlo.subtract", scaled(e, l->state[1], l->in[1]), step)
                     : l->state[1];
    }
    l->state[0] = mu__hlo_binary(e, "stablehlo.add", l->state[0], change);
    return e->status;
}

static mu_hlo one_minus(mu_emitter *e, mu_hlo a)
{
    return mu__hlo_binary(e, "stablehlo.subtract", mu__hlo_number(e, a.spec.dtype, 1), a);
}

// old + (new - old) rate
static mu_hlo towards(mu_emitter *e, mu_hlo old, mu_hlo new_value, mu_hlo rate)
{
    return mu__hlo_binary(e, "stablehlo.add", old,
                          scaled(e, mu__hlo_binary(e, "stablehlo.subtract", new_value, old), rate));
}

// The scalars of an update by Adam, in float64, as the kernels compute them.
typedef struct adam_scalars {
    mu_hlo rate, left_1, left_2, epsilon; // the bias-corrected rate; 1 - beta_1, 1 - beta_2
} adam_scalars;

// From inputs 0 to 4: learning rate, beta_1, beta_2, epsilon, number of earlier updates.
static adam_scalars adam_scalars_of(const mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    mu_hlo scalars[5];
    for (int i = 0; i < 5; i++)
        scalars[i] = mu__hlo_convert(e, l->in[i], MU_F64);
    const mu_hlo step = mu__hlo_binary(e, "stablehlo.add", scalars[4], mu__hlo_number(e, MU_F64, 1));
    const mu_hlo left_1 = one_minus(e, mu__hlo_binary(e, "stablehlo.power", scalars[1], step));
    const mu_hlo left_2 = one_minus(e, mu__hlo_binary(e, "stablehlo.power", scalars[2], step));
    const mu_hlo ratio = mu__hlo_binary(e, "stablehlo.divide", mu__hlo_unary(e, "stablehlo.sqrt", left_2), left_1);
    return (adam_scalars){.rate = mu__hlo_binary(e, "stablehlo.multiply", scalars[0], ratio),
                          .left_1 = one_minus(e, scalars[1]),
                          .left_2 = one_minus(e, scalars[2]),
                          .epsilon = scalars[3]};
}

// Moves the variable by its moments: m rate / (sqrt(v) + epsilon).
static void move_by_moments(mu_lowering *l, const adam_scalars *a)
{
    mu_emitter *e = l->emitter;
    const mu_hlo root = mu__hlo_unary(e, "stablehlo.sqrt", l->state[2]);
    const mu_hlo epsilon = mu__hlo_broadcast_to(e, mu__hlo_convert(e, a->epsilon, root.spec.dtype), &root.spec.shape);
    const mu_hlo below = mu__hlo_binary(e, "stablehlo.add", root, epsilon);
    const mu_hlo change = mu__hlo_binary(e, "stablehlo.divide", scaled(e, l->state[1], a->rate), below);
    l->state[0] = mu__hlo_binary(e, "stablehlo.subtract", l->state[0], change);
}

mu_status mu__lower_adam(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const adam_scalars a = adam_scalars_of(l);
    const mu_hlo grad = l->in[5], squared = mu__hlo_binary(e, "stablehlo.multiply", grad, grad);
    l->state[1] = towards(e, l->state[1], grad, a.left_1);
    l->state[2] = towards(e, l->state[2], squared, a.left_2);
    move_by_moments(l, &a);
    return e->status;
}

// ---- Updates from slices ------------------------------------------------------------------------

// Adds `factor` times the slices to the rows at `index`; every slice counts, also if a row has several.
static mu_hlo add_slices(mu_emitter *e, mu_hlo to, mu_hlo index, mu_hlo slices, mu_hlo factor)
{
    return mu__hlo_combine(e, "stablehlo.add", to, index, scaled(e, slices, factor));
}

// Slices of all replicas, where the op sums them.
static mu_hlo of_all(const mu_lowering *l, mu_hlo slices)
{
    const bool reduce = ((const mu_apply_slices_attrs *)l->attrs)->reduce;
    return reduce ? mu__hlo_gather_replicas(l->emitter, slices, 0) : slices;
}

static mu_status raise_row(const mu_fault *fault, int64_t position, int64_t value)
{
    return mu__row_error(fault->op->name, position, value, fault->limits.dims[0]);
}

// Checks the replica's own indices, the op's last input.
static void check_rows(mu_lowering *l)
{
    const mu_shape limits = MU_SHAPE(l->state[0].spec.shape.dims[0]);
    mu__hlo_check(l, l->n_in - 1, MU_CHECK_INDEX, &limits, raise_row);
}

// Inputs: learning rate, momentum, values, indices. States: variable, and a velocity where momentum is used.
mu_status mu__lower_descent_slices(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    check_rows(l);
    const mu_hlo values = of_all(l, l->in[2]), index = of_all(l, l->in[3]);
    const mu_hlo down = mu__hlo_unary(e, "stablehlo.negate", l->in[0]);
    const bool nesterov = ((const mu_apply_slices_attrs *)l->attrs)->nesterov, has_velocity = l->n_resources > 1;
    if (has_velocity) {
        l->state[1] = add_slices(e, scaled(e, l->state[1], l->in[1]), index, values, down);
        const mu_hlo change = nesterov ? scaled(e, l->state[1], l->in[1]) : l->state[1];
        l->state[0] = mu__hlo_binary(e, "stablehlo.add", l->state[0], change);
    }
    if (!has_velocity || nesterov)
        l->state[0] = add_slices(e, l->state[0], index, values, down);
    return e->status;
}

// Inputs: the five scalars, values, indices. States: variable, first moment, second moment.
mu_status mu__lower_adam_slices(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    check_rows(l);
    const adam_scalars a = adam_scalars_of(l);
    const mu_hlo values = of_all(l, l->in[5]), index = of_all(l, l->in[6]);
    const mu_hlo squares = mu__hlo_binary(e, "stablehlo.multiply", values, values);
    l->state[1] = add_slices(e, scaled(e, l->state[1], one_minus(e, a.left_1)), index, values, a.left_1);
    l->state[2] = add_slices(e, scaled(e, l->state[2], one_minus(e, a.left_2)), index, squares, a.left_2);
    move_by_moments(l, &a);
    return e->status;
}

// Inputs: learning rate, epsilon, values, indices. States: variable, accumulator.
mu_status mu__lower_adagrad_slices(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    check_rows(l);
    const mu_hlo values = of_all(l, l->in[2]), index = of_all(l, l->in[3]);
    const mu_hlo squares = mu__hlo_binary(e, "stablehlo.multiply", values, values);
    l->state[1] = mu__hlo_combine(e, "stablehlo.add", l->state[1], index, squares);
    const mu_hlo taken = mu__hlo_take(e, l->state[1], 0, index);
    const mu_hlo epsilon = mu__hlo_broadcast_to(e, mu__hlo_convert(e, l->in[1], taken.spec.dtype), &taken.spec.shape);
    const mu_hlo below = mu__hlo_unary(e, "stablehlo.sqrt", mu__hlo_binary(e, "stablehlo.add", taken, epsilon));
    const mu_hlo change = mu__hlo_binary(e, "stablehlo.divide", scaled(e, values, l->in[0]), below);
    l->state[0] = mu__hlo_combine(e, "stablehlo.add", l->state[0], index, mu__hlo_unary(e, "stablehlo.negate", change));
    return e->status;
}

// ---- Updates of rows ----------------------------------------------------------------------------

// Inputs: indices. The rows of the variable's current value.
mu_status mu__lower_gather_variable(mu_lowering *l)
{
    const mu_hlo in[] = {l->state[0], l->in[0]};
    const mu_gather_attrs first_axis = {0};
    mu_lowering inner = *l;
    if (l->n_resources != 1)
        return mu__error(MU_UNIMPLEMENTED, "gather_variable: the parts of a variable are read at once only from "
                                           "servers; run the function on a CPU device");
    inner.attrs = &first_axis;
    inner.n_in = 2;
    inner.in = in;
    return mu__lower_gather(&inner);
}

static mu_status raise_scatter(const mu_fault *fault, int64_t position, int64_t value)
{
    return mu__row_error("scatter", position, value, fault->limits.dims[0]);
}

// Inputs: indices, values. Subtracting is adding the negative.
mu_status mu__lower_scatter_variable(mu_lowering *l)
{
    static const char *const operations[] = {
        [MU_SCATTER_ADD] = "stablehlo.add",
        [MU_SCATTER_SUB] = "stablehlo.add",
        [MU_SCATTER_MUL] = "stablehlo.multiply",
        [MU_SCATTER_DIV] = "stablehlo.divide",
        [MU_SCATTER_MIN] = "stablehlo.minimum",
        [MU_SCATTER_MAX] = "stablehlo.maximum",
        [MU_SCATTER_UPDATE] = NULL,
    };
    mu_emitter *e = l->emitter;
    if (l->n_resources != 1)
        return mu__error(MU_UNIMPLEMENTED, "scatter_variable: the parts of a variable are changed at once only on "
                                           "servers; run the function on a CPU device");
    const mu_scatter kind = (mu_scatter)((const mu_scatter_attrs *)l->attrs)->kind;
    const mu_shape limits = MU_SHAPE(l->state[0].spec.shape.dims[0]);
    mu__hlo_check(l, 0, MU_CHECK_INDEX, &limits, raise_scatter);
    const mu_hlo values = kind == MU_SCATTER_SUB ? mu__hlo_unary(e, "stablehlo.negate", l->in[1]) : l->in[1];
    l->state[0] = mu__hlo_combine(e, operations[kind], l->state[0], l->in[0], values);
    return e->status;
}
