// Optimizer updates from sparse gradients: gradient descent (with momentum), Adam, Adagrad and Ftrl on rows of a
// variable.
//
// Follows Keras 3 with TensorFlow's IndexedSlices: every slice counts separately, so second moments get the sum of
// squares of all slices of a row. Gradient descent without momentum and Adagrad touch only the rows that are named. All
// rows of the other moments decay, and Ftrl recomputes every row. On several replicas the slices are concatenated in
// rank order, even if their counts differ; if the dense sums over the variable are smaller, those are all-reduced
// instead. Both orders are deterministic.
#include "ops/array/index.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <math.h>

// Rows of a gradient and their indices in the variable.
typedef struct slices {
    mu_view indices;
    const void *values;
    int64_t n;
} slices;

typedef enum rule { DESCENT, ADAM, ADAGRAD, FTRL } rule;

typedef struct slices_job {
    rule rule;
    bool nesterov;
    int64_t inner; // elements of a row
    void *variable, *slots[2];
    slices rows;
    const void *sums[2];             // dense sums over the variable instead: of gradients, of squares
    double rate, momentum;           // gradient descent; Adam: rate is alpha
    double beta_1, beta_2, epsilon;  // Adam; epsilon: Adagrad too
    double power, l1, l2, shrinkage; // Ftrl
} slices_job;

// The number of dense sums that replace slices: rules with second moments also need the sums of squares.
static int sums_of(const slices_job *j) { return j->rule == DESCENT ? 1 : 2; }

static int64_t index_at(const mu_view *indices, int64_t i)
{
    return indices->dtype == MU_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
}

#define T        float
#define FN(name) f32_##name
#define M(name)  name##f
#include "ops/state/apply_slices_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#define M(name)  name
#include "ops/state/apply_slices_loops.inc.c"

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status slices_infer(mu_infer *infer)
{
    const mu_spec *values = &infer->in[infer->n_in - 2], *indices = &infer->in[infer->n_in - 1];
    MU_TRY(mu__need_update(infer, infer->n_in - 2));
    const mu_spec *variable = &infer->resources[0];
    mu_shape wanted = variable->shape;
    char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
    if ((indices->dtype != MU_I32 && indices->dtype != MU_I64) || indices->shape.rank != 1 || wanted.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the indices are %s%s for a variable of rank %d; they must be a vector of int32 or int64, "
                         "and the variable needs an axis for them",
                         infer->op->name, mu_dtype_name(indices->dtype), mu__shape_text(&indices->shape, seen),
                         wanted.rank);
    wanted.dims[0] = indices->shape.dims[0];
    if (values->dtype != variable->dtype || !mu__shape_compatible(&wanted, &values->shape))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the values are %s%s; for these indices and this variable they must be %s%s",
                         infer->op->name, mu_dtype_name(values->dtype), mu__shape_text(&values->shape, seen),
                         mu_dtype_name(variable->dtype), mu__shape_text(&wanted, text));
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

static int64_t variable_rows(const mu_kernel *kernel) { return kernel->resources[0].shape.dims[0]; }

static mu_status check_indices(const mu_kernel *kernel, const slices *rows)
{
    const int64_t n = variable_rows(kernel);
    for (int64_t i = 0; i < rows->n; i++)
        if (index_at(&rows->indices, i) < 0 || index_at(&rows->indices, i) >= n)
            return mu__row_error(kernel->op->name, i, index_at(&rows->indices, i), n);
    return MU_OK;
}

static bool is_f64(const mu_kernel *kernel) { return kernel->resources[0].dtype == MU_F64; }

static void run_f32(void *arg, int64_t begin, int64_t end) { f32_update(arg, begin, end); }

static void run_f64(void *arg, int64_t begin, int64_t end) { f64_update(arg, begin, end); }

// Members of the team own rows of the variable, so no two write the same row, and slices are applied in order.
static void update(const mu_kernel *kernel, slices_job *j)
{
    const bool moves = j->rule != ADAGRAD && j->slots[0]; // all rows, also those without slices
    const int64_t touched = moves || j->sums[0] ? variable_rows(kernel) : 0;
    mu__share_range(kernel->team, variable_rows(kernel), 64, (touched + j->rows.n) * j->inner,
                    is_f64(kernel) ? run_f64 : run_f32, j);
}

// Updates from the sums of the slices over the variable, which are reduced as one dense array if replicas take part.
static mu_status update_from_sums(const mu_kernel *kernel, slices_job *j, mu_collective *collective)
{
    const mu_apply_slices_attrs *attrs = kernel->attrs;
    const mu_dtype dtype = kernel->resources[0].dtype;
    const int64_t elements = variable_rows(kernel) * j->inner, all = elements * sums_of(j);
    const size_t bytes = (size_t)all * mu_dtype_bytes(dtype);
    char *sums = mu__alloc_data(bytes);
    if (!sums)
        return MU_RESOURCE_EXHAUSTED;
    memset(sums, 0, bytes);
    char *squares = sums_of(j) > 1 ? sums + bytes / 2 : NULL;
    (is_f64(kernel) ? f64_sum : f32_sum)(j, sums, squares);
    const mu_status status = !collective ? MU_OK
                                         : collective->all_reduce(collective, kernel->number, attrs->name,
                                                                  MU_REDUCTION_SUM, dtype, sums, all);
    if (status == MU_OK) {
        j->rows.n = 0;
        j->sums[0] = sums;
        j->sums[1] = squares;
        update(kernel, j);
    }
    mu__free_data(sums, bytes);
    return status;
}

static mu_status update_from_all(const mu_kernel *kernel, slices_job *j, int64_t total, int64_t *counts)
{
    const mu_apply_slices_attrs *attrs = kernel->attrs;
    mu_collective *collective = kernel->collective;
    const mu_dtype dtype = kernel->resources[0].dtype, index_type = j->rows.indices.dtype;
    const size_t value_bytes = (size_t)(total * j->inner) * mu_dtype_bytes(dtype),
                 index_bytes = (size_t)total * mu_dtype_bytes(index_type);
    void *values = mu__alloc_data(value_bytes), *indices = mu__alloc_data(index_bytes);
    mu_status status = values && indices ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = collective->all_gather(collective, kernel->number, attrs->name, index_type, j->rows.indices.data,
                                        j->rows.n, indices, counts);
    for (int r = 0; r < collective->size; r++)
        counts[r] *= j->inner;
    if (status == MU_OK)
        status = collective->all_gather(collective, kernel->number, attrs->name, dtype, j->rows.values,
                                        j->rows.n * j->inner, values, counts);
    if (status == MU_OK) {
        j->rows = (slices){.indices = {.dtype = index_type, .data = indices}, .values = values, .n = total};
        status = check_indices(kernel, &j->rows); // other replicas' indices are not trusted
    }
    if (status == MU_OK)
        update(kernel, j);
    mu__free_data(values, value_bytes);
    mu__free_data(indices, index_bytes);
    return status;
}

// Total number of slices of all replicas, from the counts received; returns false if it is not plausible.
static bool add_up(const int64_t *counts, int n, int64_t inner, int64_t *total)
{
    const int64_t most = INT64_MAX / (16 * MU_MAX(inner, 1)); // so that elements and bytes cannot overflow
    *total = 0;
    for (int r = 0; r < n; *total += counts[r++])
        if (counts[r] < 0 || counts[r] > most - *total)
            return false;
    return true;
}

// All replicas choose the same way of exchanging from the numbers of slices, which they exchange first.
static mu_status update_together(const mu_kernel *kernel, slices_job *j)
{
    const mu_apply_slices_attrs *attrs = kernel->attrs;
    mu_collective *collective = kernel->collective;
    int64_t *counts = mu__calloc((size_t)collective->size, 2 * sizeof *counts), total = 0;
    if (!counts)
        return MU_RESOURCE_EXHAUSTED;
    int64_t *ones = counts + collective->size;
    for (int r = 0; r < collective->size; r++)
        ones[r] = 1;
    mu__form_said(collective, 1, &kernel->resources[0], MU_NO_AXIS);
    mu_status status =
        collective->all_gather(collective, kernel->number, attrs->name, MU_I64, &j->rows.n, 1, counts, ones);
    if (status == MU_OK && !add_up(counts, collective->size, j->inner, &total))
        status = mu__error(MU_DATA_LOSS, "%s %s: a replica reports an impossible number of slices", kernel->op->name,
                           attrs->name);
    if (status == MU_OK)
        status = j->rule == FTRL || total > variable_rows(kernel) * sums_of(j)
                     ? update_from_sums(kernel, j, collective)
                     : update_from_all(kernel, j, total, counts);
    mu__free(counts);
    return status;
}

static mu_status run_slices(const mu_kernel *kernel, slices_job *j)
{
    const mu_apply_slices_attrs *attrs = kernel->attrs;
    const mu_view *values = &kernel->in[kernel->n_in - 2], *indices = values + 1;
    const mu_shape *shape = &kernel->resources[0].shape;
    j->inner = mu__elements_between(shape, 1, shape->rank);
    j->variable = kernel->resources[0].data;
    for (int i = 1; i < kernel->n_resources; i++)
        j->slots[i - 1] = kernel->resources[i].data;
    j->rows = (slices){.indices = *indices, .values = values->data, .n = indices->shape.dims[0]};
    MU_TRY(check_indices(kernel, &j->rows));
    if (attrs->reduce && kernel->collective && kernel->collective->size > 1)
        return update_together(kernel, j);
    if (j->rule == FTRL)
        return update_from_sums(kernel, j, NULL);
    update(kernel, j);
    return MU_OK;
}

static mu_status descent_ref(const mu_kernel *kernel)
{
    slices_job j = {.nesterov = ((const mu_apply_slices_attrs *)kernel->attrs)->nesterov,
                    .rate = mu__read_scalar(kernel, 0),
                    .momentum = mu__read_scalar(kernel, 1)};
    return run_slices(kernel, &j);
}

static mu_status adam_ref(const mu_kernel *kernel)
{
    slices_job j = {.rule = ADAM,
                    .rate = mu__adam_rate(kernel),
                    .beta_1 = mu__read_scalar(kernel, 1),
                    .beta_2 = mu__read_scalar(kernel, 2),
                    .epsilon = mu__read_scalar(kernel, 3)};
    return run_slices(kernel, &j);
}

static mu_status adagrad_ref(const mu_kernel *kernel)
{
    slices_job j = {.rule = ADAGRAD, .rate = mu__read_scalar(kernel, 0), .epsilon = mu__read_scalar(kernel, 1)};
    return run_slices(kernel, &j);
}

static mu_status ftrl_ref(const mu_kernel *kernel)
{
    slices_job j = {.rule = FTRL,
                    .rate = mu__read_scalar(kernel, 0),
                    .power = mu__read_scalar(kernel, 1),
                    .l1 = mu__read_scalar(kernel, 2),
                    .l2 = mu__read_scalar(kernel, 3),
                    .shrinkage = mu__read_scalar(kernel, 4)};
    return run_slices(kernel, &j);
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec slices_fields[] = {
    {"nesterov", MU_ATTR_BOOL, offsetof(mu_apply_slices_attrs, nesterov)},
    {"reduce", MU_ATTR_BOOL, offsetof(mu_apply_slices_attrs, reduce)},
    {"name", MU_ATTR_TEXT, offsetof(mu_apply_slices_attrs, name)},
    {0},
};

#define SLICES(text, run)                                                                                              \
    .name = text, .flags = MU_OP_READS | MU_OP_WRITES | MU_OP_COLLECTIVE, .dtypes = MU_FLOATS, .fails_for = MU_FLOATS, \
    .attrs_bytes = sizeof(mu_apply_slices_attrs), .attrs = slices_fields, .infer = slices_infer, .ref = run

// Inputs: learning rate, momentum, values, indices. Resources: variable, and a velocity where momentum is used.
const mu_op mu_op_apply_gradient_descent_slices = {SLICES("apply_gradient_descent_slices", descent_ref), .n_in = 4,
                                                   .n_resources = MU_VARIADIC, .lower = mu__lower_descent_slices};

// Inputs: learning rate, beta 1, beta 2, epsilon, number of earlier updates, values, indices. Resources:
// variable, first moment, second moment.
const mu_op mu_op_apply_adam_slices = {SLICES("apply_adam_slices", adam_ref), .n_in = 7, .n_resources = 3,
                                       .lower = mu__lower_adam_slices};

// Inputs: learning rate, epsilon, values, indices. Resources: variable, accumulator.
const mu_op mu_op_apply_adagrad_slices = {SLICES("apply_adagrad_slices", adagrad_ref), .n_in = 4, .n_resources = 2,
                                          .lower = mu__lower_adagrad_slices};

// Inputs: learning rate, learning rate power, l1, l2, l2 shrinkage, values, indices. Resources: variable, accumulator,
// linear.
const mu_op mu_op_apply_ftrl_slices = {
    SLICES("apply_ftrl_slices", ftrl_ref),
    .n_in = 7,
    .n_resources = 3,
    .no_lowering =
        "it updates variables on parameter servers, which the plain loops do; elsewhere the slices are summed first",
};
