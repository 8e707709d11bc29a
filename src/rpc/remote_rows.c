// Rows of a variable on a server: each row that is asked for crosses the wire once.
//
// The server gathers them into the bytes of its answer (service.c), and they are used where they arrived unless some
// are wanted more than once.
#include "rpc/service.h"

#include "ops/array/distinct.h"
#include "ops/array/index.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

static mu_status check(const mu_resource *variable, const mu_tensor *indices, mu_spec *out)
{
    const mu_spec in = mu__spec_of(indices);
    mu_infer infer = {.op = &mu_op_gather_variable, .n_in = 1, .n_out = 1, .n_resources = 1, .in = &in,
                      .resources = &variable->spec, .out = out};
    return mu__infer_call(&infer);
}

// The rows of distinct ids, [n] + the shape of a row.
static mu_tensor *fetch(const mu_resource *variable, int64_t n, const int64_t *ids)
{
    mu_value *value = mu__remote_call((mu_rpc_client *)variable->home, "muster.variable.rows",
                                      mu_list(mu__text_value(variable->name), mu_tensor_new(MU_I64, 1, &n, ids),
                                              MU_END));
    mu_tensor *rows = mu_value_tensor(value);
    mu_shape wanted = variable->spec.shape;
    wanted.dims[0] = n;
    if (rows != NULL && rows->dtype == variable->spec.dtype && mu__shape_equal(&rows->shape, &wanted))
        return rows;
    if (!mu__pending())
        mu__error(MU_DATA_LOSS, "the server of '%s' answers with rows of another type or shape", variable->name);
    return NULL;
}

mu_tensor *mu__rows_expand(mu_tensor *rows, const uint32_t *number, const mu_spec *out)
{
    const mu_shape *shape = rows != NULL ? &rows->shape : &mu__scalar_shape;
    const size_t bytes = (size_t)mu__elements_between(shape, 1, shape->rank) * mu_dtype_bytes(out->dtype);
    const int64_t n = bytes > 0 ? (int64_t)(mu__spec_bytes(out) / bytes) : 0;
    mu_tensor *all = rows != NULL ? mu__give(mu__tensor_alloc(out->dtype, &out->shape)) : NULL;
    char *to = all != NULL ? mu__host_write(all) : NULL;
    const char *from = all != NULL ? mu__host_read(rows) : NULL;
    for (int64_t i = 0; from != NULL && i < n; i++, to += bytes)
        memcpy(to, from + number[i] * bytes, bytes);
    return from != NULL ? all : NULL;
}

mu_tensor *mu__remote_rows(const mu_resource *variable, mu_tensor *indices)
{
    mu_spec out;
    if (mu__pending() || check(variable, indices, &out) != MU_OK)
        return NULL;
    const mu_view view = {.dtype = indices->dtype, .shape = indices->shape, .data = (void *)mu__host_read(indices)};
    const int64_t n = mu__elements(&indices->shape);
    if (n == 0 || view.data == NULL)
        return view.data != NULL ? mu__give(mu__tensor_alloc(out.dtype, &out.shape)) : NULL;
    int64_t *ids = mu__alloc((size_t)n * 2 * sizeof *ids);
    uint32_t *number = ids != NULL ? mu__alloc((size_t)n * sizeof *number) : NULL;
    mu_tensor *rows = NULL;
    if (number != NULL) {
        mu__indices_of(&view, 0, n, ids);
        const int64_t found = mu__distinct(n, ids, ids + n, number);
        rows = found < 0 ? NULL : fetch(variable, found, ids + n);
        rows = found == n ? mu_reshape(rows, out.shape.rank, out.shape.dims) : mu__rows_expand(rows, number, &out);
    }
    mu__free(number);
    mu__free(ids);
    return rows;
}
