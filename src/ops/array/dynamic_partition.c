// dynamic_partition: divides rows among several outputs by a number per row. The outputs' sizes depend on the numbers.
//
// Lookups in sharded tables and boolean masks are made of it. The gradient puts the rows back in their positions.
#include "ops/array/dynamic_partition.h"

#include "ops/core/attrs.h"

#include <muster/ops.h>

enum { MOST_PARTS = 4096 };

static int partition_outputs(const void *attrs)
{
    const mu_segment_attrs *segments = attrs;
    return segments->n >= 1 && segments->n <= MOST_PARTS ? (int)segments->n : -1;
}

static mu_status partition_infer(mu_infer *infer)
{
    const mu_spec *x = &infer->in[0], *numbers = &infer->in[1];
    char text[MU_SHAPE_TEXT];
    if (numbers->dtype != MU_I32 || numbers->shape.rank != 1 || x->shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "dynamic_partition: the parts are given as %s%s for x of rank %d; they must be a vector of "
                         "int32, one for each row of x",
                         mu_dtype_name(numbers->dtype), mu__shape_text(&numbers->shape, text), x->shape.rank);
    const int64_t n = numbers->shape.dims[0], rows = x->shape.dims[0];
    if (n != MU_UNKNOWN && rows != MU_UNKNOWN && n != rows)
        return mu__error(MU_INVALID_ARGUMENT,
                         "dynamic_partition: %lld numbers of parts for %lld rows; give one for each row", (long long)n,
                         (long long)rows);
    for (int i = 0; i < infer->n_out; i++) {
        infer->out[i] = *x;
        infer->out[i].shape.dims[0] = MU_UNKNOWN;
    }
    return MU_OK;
}

static mu_status partition_measure(const mu_kernel *k, mu_spec *out)
{
    const int32_t *numbers = k->in[1].data;
    const int64_t n = k->in[1].shape.dims[0];
    for (int p = 0; p < k->n_out; p++)
        out[p].shape.dims[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (numbers[i] < 0 || numbers[i] >= k->n_out)
            return mu__error(MU_INVALID_ARGUMENT, "dynamic_partition: row %lld goes to part %d; the parts are 0 to %d",
                             (long long)i, (int)numbers[i], k->n_out - 1);
        out[numbers[i]].shape.dims[0]++;
    }
    return MU_OK;
}

static mu_status partition_ref(const mu_kernel *k)
{
    const int32_t *numbers = k->in[1].data;
    const mu_shape *shape = &k->in[0].shape;
    const size_t row = (size_t)mu__elements_between(shape, 1, shape->rank) * mu_dtype_bytes(k->in[0].dtype);
    size_t *filled = mu__calloc((size_t)k->n_out, sizeof *filled);
    if (!filled)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < shape->dims[0] && row > 0; i++) {
        const int p = numbers[i];
        memcpy((char *)k->out[p].data + filled[p], (const char *)k->in[0].data + (size_t)i * row, row);
        filled[p] += row;
    }
    mu__free(filled);
    return MU_OK;
}

static mu_tensor *partition_grad(mu_grad *g, int i)
{
    if (i != 0)
        return NULL;
    mu_tensor **parts = mu__calloc(2 * (size_t)g->n_out, sizeof *parts), *dx = NULL;
    mu_tensor **positions = MU_BEHIND(parts, g->n_out);
    if (!parts)
        return NULL;
    for (int p = 0; p < g->n_out; p++)
        parts[p] = mu__grad_of(g, p);
    if (mu__dynamic_partition(mu__positions(g->x[1]), g->x[1], g->n_out, positions) == MU_OK)
        dx = mu_gather(mu_concat(g->n_out, parts, 0), mu__inverse_permutation(mu_concat(g->n_out, positions, 0)), 0, 0);
    mu__free(parts);
    return dx;
}

static const mu_attr_spec partition_fields[] = {{"n", MU_ATTR_INT, offsetof(mu_segment_attrs, n)}, {0}};
static const mu_segment_attrs three = {3};
static const mu_sample samples_partition[] = {
    {.n_in = 2,
     .in = {MU_DIMS(5, 3), MU_DIMS(5)},
     .dtypes = {0, MU_I32},
     .high = {0, 3},
     .attrs = &three,
     .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(1), MU_DIMS(1)}, .dtypes = {0, MU_I32}, .high = {0, 3}, .attrs = &three, .no_grad = 2},
    {.n_in = 2,
     .in = {MU_DIMS(0, 2), MU_DIMS(0)},
     .dtypes = {0, MU_I32},
     .high = {0, 3},
     .attrs = &three,
     .no_grad = 2},
    {0},
};
const mu_op mu_op_dynamic_partition = {
    .name = "dynamic_partition",
    .n_in = 2,
    .n_out = 1,
    .flags = MU_OP_DATA_DEPENDENT,
    .attrs_bytes = sizeof(mu_segment_attrs),
    .attrs = partition_fields,
    .attr_outputs = partition_outputs,
    .infer = partition_infer,
    .measure = partition_measure,
    .ref = partition_ref,
    .grad = partition_grad,
    .samples = samples_partition,
    .no_lowering = "the parts' sizes depend on the elements; use mu_where with a mask for each part, or run the "
                   "function on a CPU device",
};

// ---- Short forms --------------------------------------------------------------------------------

mu_status mu__dynamic_partition(mu_tensor *x, mu_tensor *numbers, int64_t parts, mu_tensor **out)
{
    const mu_segment_attrs attrs = {.n = parts};
    mu_tensor *in[] = {x, numbers};
    if (parts < 1 || parts > MOST_PARTS)
        return mu__error(MU_INVALID_ARGUMENT, "dynamic_partition: %lld parts; 1 to %d are possible", (long long)parts,
                         MOST_PARTS);
    return mu__apply(&mu_op_dynamic_partition, &attrs, 2, in, 0, NULL, out);
}

mu_tensor *mu__positions(mu_tensor *vector)
{
    return vector ? mu_cumsum(mu_cast(mu_ones_like(vector), MU_I64), 0, true, false) : NULL;
}

mu_tensor *mu__inverse_permutation(mu_tensor *permutation)
{
    return permutation ? mu_tensor_scatter_update(mu_zeros_like(permutation), mu_expand_dims(permutation, -1),
                                                  mu__positions(permutation))
                       : NULL;
}
