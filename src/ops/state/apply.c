// Optimizer updates: gradient descent (with momentum) and Adam, each in one pass over the variable and its slots.
//
// The formulas are Keras 3's. Scalars are tensors, so that a schedule needs no new trace. The work is shared by the
// team. Independent of optimizer objects, which create the slots.
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include "kernels/kernels.h"

#include <math.h>

// One update: its scalars and arrays.
typedef struct update_job {
    const mu_op *op;
    mu_dtype dtype;
    bool fast, nesterov;
    void *variable, *slots[2];
    const void *grad;
    int64_t n;
    double rate, momentum;            // gradient descent; Adam: rate is alpha
    double beta_1, beta_2, epsilon;
} update_job;

#define T float
#define FN(name) f32_##name
#define M(name) name##f
#include "ops/state/apply_loops.inc.c"

#define T double
#define FN(name) f64_##name
#define M(name) name
#include "ops/state/apply_loops.inc.c"

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

static void run_part(void *arg, int64_t begin, int64_t end)
{
    const update_job *j = arg;
    const bool adam = j->op == &mu_op_apply_adam;
    if (j->dtype == MU_F64)
        (adam ? f64_adam : f64_descend)(j, begin, end);
    else if (!j->fast)
        (adam ? f32_adam : f32_descend)(j, begin, end);
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

static mu_status descend(const mu_kernel *kernel, bool fast)
{
    const mu_nesterov_attrs *attrs = kernel->attrs;
    update_job j = {.fast = fast, .nesterov = attrs->nesterov, .rate = mu__read_scalar(kernel, 0),
                    .momentum = mu__read_scalar(kernel, 1)};
    return run_update(kernel, &j);
}

static mu_status descent_ref(const mu_kernel *kernel)
{
    return descend(kernel, false);
}

static mu_status descent_fast(const mu_kernel *kernel)
{
    return descend(kernel, true);
}

static mu_status adam(const mu_kernel *kernel, bool fast)
{
    update_job j = {.fast = fast, .rate = mu__adam_rate(kernel), .beta_1 = mu__read_scalar(kernel, 1),
                    .beta_2 = mu__read_scalar(kernel, 2), .epsilon = mu__read_scalar(kernel, 3)};
    return run_update(kernel, &j);
}

static mu_status adam_ref(const mu_kernel *kernel)
{
    return adam(kernel, false);
}

static mu_status adam_fast(const mu_kernel *kernel)
{
    return adam(kernel, true);
}

// The gradient has the variable's type.
static mu_status update_prepare(mu_prepare *prepare)
{
    prepare->declined = prepare->in[prepare->n_in - 1].dtype != MU_F32;
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec descent_fields[] = {
    {"nesterov", MU_ATTR_BOOL, offsetof(mu_nesterov_attrs, nesterov)},
    {0},
};

// Inputs: learning rate, momentum, gradient. Resources: variable, and a velocity where momentum is used.
const mu_op mu_op_apply_gradient_descent = {
    .name = "apply_gradient_descent", .n_in = 3, .n_resources = MU_VARIADIC, .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_FLOATS, .attrs_bytes = sizeof(mu_nesterov_attrs), .attrs = descent_fields,
    .infer = descent_infer, .ref = descent_ref, .cpu = {update_prepare, descent_fast, NULL},
    .lower = mu__lower_descent,
};

// Inputs: learning rate, beta 1, beta 2, epsilon, number of earlier updates, gradient. Resources:
// variable, first moment, second moment.
const mu_op mu_op_apply_adam = {
    .name = "apply_adam", .n_in = 6, .n_resources = 3, .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_FLOATS, .infer = update_infer, .ref = adam_ref, .cpu = {update_prepare, adam_fast, NULL},
    .lower = mu__lower_adam,
};
