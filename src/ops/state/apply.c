// Optimizer updates: gradient descent (with momentum) and Adam, each in one pass over the variable and its slots.
//
// The formulas are Keras 3's. Scalars are tensors, so that a schedule needs no new trace. The work is shared by the
// team: float32 by kernels, float64 by loops that the compiler vectorises. Independent of optimizer objects, which
// create the slots.
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include "kernels/kernels.h"

#include <math.h>

// One update: its scalars and arrays.
typedef struct update_job {
    const mu_op *op;
    mu_dtype dtype;
    bool nesterov;
    void *variable, *slots[2];
    const void *grad;
    int64_t n;
    double rate, momentum; // gradient descent; Adam: rate is alpha
    double beta_1, beta_2, epsilon;
} update_job;

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status need_scalars(const mu_infer *infer, int n)
{
    char text[MU_SHAPE_TEXT];
    for (int i = 0; i < n; i++)
        if (infer->in[i].shape.rank != 0)
            return mu__error(MU_INVALID_ARGUMENT, "%s: input %d has shape %s; it must be a scalar", infer->op->name, i,
                             mu__shape_text(&infer->in[i].shape, text));
    return MU_OK;
}

// The gradient (last input) and the slots must have the variable's shape and type.
static mu_status need_alike(const mu_infer *infer, const mu_spec *variable, const mu_spec *other, const char *what)
{
    char own[MU_SHAPE_TEXT], theirs[MU_SHAPE_TEXT];
    if (variable->dtype == other->dtype && mu__shape_compatible(&variable->shape, &other->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the variable is %s %s, its %s %s %s; they must agree", infer->op->name,
                     mu_dtype_name(variable->dtype), mu__shape_text(&variable->shape, own), what,
                     mu_dtype_name(other->dtype), mu__shape_text(&other->shape, theirs));
}

mu_status mu__need_update(const mu_infer *infer, int n_scalars)
{
    const mu_spec *variable = &infer->resources[0];
    if (infer->n_resources < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: no variable given", infer->op->name);
    if (variable->dtype != MU_F32 && variable->dtype != MU_F64)
        return mu__error(MU_INVALID_ARGUMENT, "%s: variables are float32 or float64, got %s", infer->op->name,
                         mu_dtype_name(variable->dtype));
    MU_TRY(need_scalars(infer, n_scalars));
    for (int i = 1; i < infer->n_resources; i++)
        MU_TRY(need_alike(infer, variable, &infer->resources[i], "slot"));
    return MU_OK;
}

static mu_status update_infer(mu_infer *infer)
{
    MU_TRY(mu__need_update(infer, infer->n_in - 1));
    return need_alike(infer, &infer->resources[0], &infer->in[infer->n_in - 1], "gradient");
}

static mu_status descent_infer(mu_infer *infer)
{
    if (infer->n_resources > 2)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d resources given; a variable and at most one slot are taken",
                         infer->op->name, infer->n_resources);
    return update_infer(infer);
}

// ---- Kernels ------------------------------------------------------------------------------------

double mu__read_scalar(const mu_kernel *kernel, int i)
{
    return mu__read_element(kernel->in[i].dtype, kernel->in[i].data, 0);
}

double mu__adam_rate(const mu_kernel *kernel)
{
    const double step = mu__read_scalar(kernel, 4) + 1;
    const double beta_1 = mu__read_scalar(kernel, 1), beta_2 = mu__read_scalar(kernel, 2);
    return mu__read_scalar(kernel, 0) * sqrt(1 - pow(beta_2, step)) / (1 - pow(beta_1, step));
}

MU_PER_ISA(descend_f64, (const update_job *j, int64_t begin, int64_t end), (j, begin, end))
{
    double *restrict variable = j->variable, *restrict velocity = j->slots[0];
    const double *restrict grad = j->grad;
    const double rate = j->rate, momentum = j->momentum;
    if (!velocity) {
        for (int64_t i = begin; i < end; i++)
            variable[i] -= rate * grad[i];
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        velocity[i] = momentum * velocity[i] - rate * grad[i];
        variable[i] += j->nesterov ? momentum * velocity[i] - rate * grad[i] : velocity[i];
    }
}

MU_PER_ISA(adam_f64, (const update_job *j, int64_t begin, int64_t end), (j, begin, end))
{
    double *restrict variable = j->variable, *restrict m = j->slots[0], *restrict v = j->slots[1];
    const double *restrict grad = j->grad;
    const double alpha = j->rate, epsilon = j->epsilon, new_m = 1 - j->beta_1, new_v = 1 - j->beta_2;
    for (int64_t i = begin; i < end; i++) {
        m[i] += (grad[i] - m[i]) * new_m;
        v[i] += (grad[i] * grad[i] - v[i]) * new_v;
        variable[i] -= m[i] * alpha / (sqrt(v[i]) + epsilon);
    }
}

static void run_part(void *arg, int64_t begin, int64_t end)
{
    const update_job *j = arg;
    const bool adam = j->op == &mu_op_apply_adam;
    if (j->dtype == MU_F64)
        (adam ? adam_f64 : descend_f64)(j, begin, end);
    else if (adam)
        mu__kernels()->adam(
            j->variable, j->slots[0], j->slots[1], j->grad,
            (mu_adam_scalars){(float)j->rate, (float)(1 - j->beta_1), (float)(1 - j->beta_2), (float)j->epsilon}, begin,
            end);
    else
        mu__kernels()->sgd(j->variable, j->slots[0], j->grad,
                           (mu_sgd_scalars){(float)j->rate, (float)j->momentum, j->nesterov}, begin, end);
}

static mu_status run_update(const mu_kernel *kernel, update_job *j)
{
    j->op = kernel->op;
    j->dtype = kernel->resources[0].dtype;
    j->variable = kernel->resources[0].data;
    for (int i = 1; i < kernel->n_resources; i++)
        j->slots[i - 1] = kernel->resources[i].data;
    j->grad = kernel->in[kernel->n_in - 1].data;
    j->n = mu__elements(&kernel->resources[0].shape);
    mu__share_range(kernel->team, j->n, 1024, j->n, run_part, j);
    return MU_OK;
}

static mu_status descent_run(const mu_kernel *kernel)
{
    const mu_nesterov_attrs *attrs = kernel->attrs;
    update_job j = {
        .nesterov = attrs->nesterov, .rate = mu__read_scalar(kernel, 0), .momentum = mu__read_scalar(kernel, 1)};
    return run_update(kernel, &j);
}

static mu_status adam_run(const mu_kernel *kernel)
{
    update_job j = {.rate = mu__adam_rate(kernel),
                    .beta_1 = mu__read_scalar(kernel, 1),
                    .beta_2 = mu__read_scalar(kernel, 2),
                    .epsilon = mu__read_scalar(kernel, 3)};
    return run_update(kernel, &j);
}

// ---- Plain loops --------------------------------------------------------------------------------

static mu_status descent_ref(const mu_kernel *kernel)
{
    const mu_view *variable = &kernel->resources[0], *grad = &kernel->in[2];
    const double rate = mu__read_scalar(kernel, 0), momentum = mu__read_scalar(kernel, 1);
    const bool nesterov = ((const mu_nesterov_attrs *)kernel->attrs)->nesterov;
    for (int64_t i = 0; i < mu__elements(&variable->shape); i++) {
        double change = -rate * mu__read_real(grad, i);
        if (kernel->n_resources > 1) {
            const mu_view *slot = &kernel->resources[1];
            const double velocity = momentum * mu__read_real(slot, i) + change;
            mu__write_real(slot, i, velocity);
            change = nesterov ? momentum * velocity + change : velocity;
        }
        mu__write_real(variable, i, mu__read_real(variable, i) + change);
    }
    return MU_OK;
}

static mu_status adam_ref(const mu_kernel *kernel)
{
    const mu_view *variable = &kernel->resources[0], *first = &kernel->resources[1], *second = &kernel->resources[2];
    const double rate = mu__adam_rate(kernel), beta_1 = mu__read_scalar(kernel, 1);
    const double beta_2 = mu__read_scalar(kernel, 2), epsilon = mu__read_scalar(kernel, 3);
    for (int64_t i = 0; i < mu__elements(&variable->shape); i++) {
        const double g = mu__read_real(&kernel->in[5], i);
        const double m = beta_1 * mu__read_real(first, i) + (1 - beta_1) * g;
        const double v = beta_2 * mu__read_real(second, i) + (1 - beta_2) * g * g;
        mu__write_real(first, i, m);
        mu__write_real(second, i, v);
        mu__write_real(variable, i, mu__read_real(variable, i) - rate * m / (sqrt(v) + epsilon));
    }
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec descent_fields[] = {
    {"nesterov", MU_ATTR_BOOL, offsetof(mu_nesterov_attrs, nesterov)},
    {0},
};

// Inputs: learning rate, momentum, gradient. Resources: variable, and a velocity where momentum is used.
const mu_op mu_op_apply_gradient_descent = {
    .name = "apply_gradient_descent",
    .n_in = 3,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_nesterov_attrs),
    .attrs = descent_fields,
    .infer = descent_infer,
    .ref = descent_ref,
    .cpu = {.run = descent_run},
    .lower = mu__lower_descent,
};

// Inputs: learning rate, beta 1, beta 2, epsilon, number of earlier updates, gradient. Resources:
// variable, first moment, second moment.
const mu_op mu_op_apply_adam = {
    .name = "apply_adam",
    .n_in = 6,
    .n_resources = 3,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_FLOATS,
    .infer = update_infer,
    .ref = adam_ref,
    .cpu = {.run = adam_run},
    .lower = mu__lower_adam,
};
