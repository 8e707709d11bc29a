// Rows of a variable on servers: each requested row crosses the wire once, and all servers that have some of the rows
// are asked at the same time. So are those whose rows change.
//
// A server gathers them into the bytes of its answer (service.c). Rows are used where they arrived if one server has
// all of them and they are distinct; otherwise they are copied once, from the answers to the result.
#include "ops/array/distinct.h"
#include "ops/array/index.h"
#include "ops/core/loops.h"
#include "ops/nn/nn.h"
#include "rpc/remote/row_route.h"

#include <muster/ops.h>

// A variable, or the parts of one in the order of their rows.
typedef struct parts {
    int n;
    mu_resource *const *at;
    int64_t *begin; // [n + 1] the first row of each
} parts;

// The part of an id is in [low, low + left): half of them are left out without a branch, which would be as random as
// the ids are.
static void part_of(const void *arg, int64_t n, const int64_t *ids, uint32_t *part, int64_t *local)
{
    const parts *p = arg;
    for (int64_t i = 0; i < n; i++) {
        int low = 0;
        for (int left = p->n; left > 1; left -= left / 2)
            low += ids[i] >= p->begin[low + left / 2] ? left / 2 : 0;
        part[i] = (uint32_t)low;
        local[i] = ids[i] - p->begin[low];
    }
}

// The op's own rule for its inputs and the parts; `out` gets the spec of a result.
static mu_status check(const parts *p, const mu_op *op, const void *attrs, const mu_spec *in, mu_spec *out)
{
    mu_spec *specs = mu__calloc((size_t)p->n, sizeof *specs);
    for (int i = 0; specs != NULL && i < p->n; i++)
        specs[i] = p->at[i]->spec;
    mu_infer infer = {.op = op,
                      .attrs = attrs,
                      .n_in = op->n_in,
                      .n_out = op->n_out,
                      .n_resources = p->n,
                      .in = in,
                      .resources = specs,
                      .out = out};
    const mu_status status = specs != NULL ? mu__infer_call(&infer) : MU_RESOURCE_EXHAUSTED;
    mu__free(specs);
    return status;
}

static mu_status check_ids(const parts *p, int64_t n, const int64_t *ids)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= p->begin[p->n])
            return mu__error(MU_INVALID_ARGUMENT, "index %lld (element %lld) is outside the %lld rows of '%s'%s",
                             (long long)ids[i], (long long)i, (long long)p->begin[p->n], p->at[0]->name,
                             p->n > 1 ? " and the parts after it" : "");
    return MU_OK;
}

static mu_status check_rows(const mu_resource *variable, int64_t n, const mu_tensor *rows)
{
    char seen_text[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
    mu_shape wanted = variable->spec.shape;
    wanted.dims[0] = n;
    if (mu__pending())
        return mu_error_code();
    if (rows != NULL && rows->dtype == variable->spec.dtype && mu__shape_equal(&rows->shape, &wanted))
        return MU_OK;
    if (rows == NULL)
        return mu__error(MU_DATA_LOSS,
                         "the server of '%s' answers without rows; it must run the same version of Muster",
                         variable->name);
    return mu__error(MU_DATA_LOSS,
                     "the server of '%s' answers with rows that are %s%s; expected %s%s: another program may have made "
                     "a new variable of this name; let each job use servers of its own",
                     variable->name, mu_dtype_name(rows->dtype), mu__shape_text(&rows->shape, seen_text),
                     mu_dtype_name(variable->spec.dtype), mu__shape_text(&wanted, text));
}

// Asks every server that has some of the rows, then waits for all.
static mu_status fetch(const parts *p, const mu_row_route *route, mu_rpc_client *const *clients, mu_tensor **rows)
{
    int n, *asked;
    mu_remote_call *calls = mu__row_route_calls(route, clients, &asked, &n);
    for (int k = 0; k < n; k++) {
        const char *name = p->at[asked[k]]->name;
        calls[k].subject = mu__remote_subject(&mu_op_gather_variable, "variable", name);
        calls[k].arguments = mu_list(mu__text_value(name), mu__row_route_ids(route, asked[k]), MU_END);
    }
    mu_status status = calls != NULL ? mu__remote_calls("muster.variable.rows", n, calls) : mu_error_code();
    for (int k = 0; k < n && status == MU_OK; k++) {
        const int part = asked[k];
        rows[part] = calls[k].value != NULL ? mu_value_tensor(calls[k].value) : NULL;
        status = check_rows(p->at[part], route->begin[part + 1] - route->begin[part], rows[part]);
    }
    mu__free(calls);
    mu__free(asked);
    return status;
}

static mu_tensor *fetch_and_join(const parts *p, int64_t n, int64_t found, const int64_t *distinct,
                                 const uint32_t *number, const mu_spec *out)
{
    mu_row_route route = {0};
    mu_tensor **rows = mu__calloc((size_t)p->n, sizeof *rows), *all = NULL;
    mu_rpc_client **clients = mu__calloc((size_t)p->n, sizeof *clients);
    for (int i = 0; clients != NULL && i < p->n; i++)
        clients[i] = (mu_rpc_client *)p->at[i]->home;
    if (rows != NULL && clients != NULL && mu__row_route(&route, p->n, found, distinct, part_of, p) == MU_OK &&
        fetch(p, &route, clients, rows) == MU_OK)
        all = p->n == 1 && found == n ? mu_reshape(rows[0], out->shape.rank, out->shape.dims)
                                      : mu__row_route_join(&route, rows, number, out);
    mu__row_route_free(&route);
    mu__free(rows);
    mu__free(clients);
    return all;
}

static mu_tensor *look_up(const parts *p, mu_tensor *indices)
{
    mu_spec out;
    const mu_spec in = mu__spec_of(indices);
    if (check(p, &mu_op_gather_variable, NULL, &in, &out) != MU_OK)
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
        const int64_t found = check_ids(p, n, ids) == MU_OK ? mu__distinct(n, ids, ids + n, number) : -1;
        rows = found < 0 ? NULL : fetch_and_join(p, n, found, ids + n, number, &out);
    }
    mu__free(number);
    mu__free(ids);
    return rows;
}

static bool find_parts(int n, mu_resource *const *variables, parts *p)
{
    *p = (parts){.n = n, .at = variables, .begin = mu__pending() ? NULL : mu__calloc((size_t)n + 1, sizeof *p->begin)};
    for (int i = 0; p->begin != NULL && i < n; i++)
        p->begin[i + 1] = p->begin[i] + (variables[i]->spec.shape.rank > 0 ? variables[i]->spec.shape.dims[0] : 0);
    return p->begin != NULL;
}

mu_tensor *mu__remote_rows(int n, mu_resource *const *variables, mu_tensor *indices)
{
    parts p;
    mu_tensor *rows = find_parts(n, variables, &p) ? look_up(&p, indices) : NULL;
    mu__free(p.begin);
    return rows;
}

// ---- Changing rows ------------------------------------------------------------------------------

// The values by part, in the order in which the parts get their ids: one tensor, whose rows are lent to each part.
static mu_tensor *sort_values(const mu_row_route *route, const mu_tensor *values)
{
    mu_tensor *sorted = mu__give(mu__tensor_alloc(values->dtype, &values->shape));
    const mu_spec spec = mu__spec_of(values);
    const size_t bytes = route->n > 0 ? mu__spec_bytes(&spec) / (size_t)route->n : 0;
    const char **at = sorted != NULL ? mu__alloc(((size_t)route->n + 1) * sizeof *at) : NULL;
    const char *from = at != NULL ? mu__host_read(values) : NULL;
    for (int64_t i = 0; from != NULL && i < route->n; i++)
        at[route->position[i]] = from + (size_t)i * bytes;
    if (from != NULL && bytes > 0)
        mu__copy_scattered(mu__host_write(sorted), at, bytes, route->n);
    mu__free(at);
    return sorted;
}

static mu_tensor *values_of(const mu_row_route *route, int part, mu_tensor *sorted)
{
    mu_shape shape = sorted->shape;
    const mu_spec spec = mu__spec_of(sorted);
    const size_t bytes = mu__spec_bytes(&spec) / (size_t)route->n;
    shape.dims[0] = route->begin[part + 1] - route->begin[part];
    return mu__give(
        mu__tensor_view(sorted->buffer, sorted->offset + (size_t)route->begin[part] * bytes, sorted->dtype, &shape));
}

static mu_status send_changes(const parts *p, const mu_row_route *route, const void *attrs, mu_tensor *sorted)
{
    int n = 0, *asked = NULL;
    mu_rpc_client **clients = mu__calloc((size_t)p->n, sizeof *clients);
    for (int i = 0; clients != NULL && i < p->n; i++)
        clients[i] = (mu_rpc_client *)p->at[i]->home;
    mu_remote_call *calls = clients != NULL ? mu__row_route_calls(route, clients, &asked, &n) : NULL;
    for (int k = 0; k < n && sorted != NULL; k++) {
        mu_tensor *in[] = {mu__row_route_ids(route, asked[k]), values_of(route, asked[k], sorted)};
        calls[k].subject = mu__remote_subject(&mu_op_scatter_variable, "variable", p->at[asked[k]]->name);
        calls[k].arguments = in[0] != NULL && in[1] != NULL ? mu__remote_apply_arguments(&mu_op_scatter_variable, attrs,
                                                                                         2, in, 1, &p->at[asked[k]])
                                                            : NULL;
    }
    const mu_status status =
        calls != NULL && !mu__pending() ? mu__remote_calls("muster.apply", n, calls) : mu_error_code();
    mu__free(calls);
    mu__free(asked);
    mu__free(clients);
    return status;
}

static mu_status change(const parts *p, const void *attrs, mu_tensor *indices, mu_tensor *values)
{
    const mu_view view = {.dtype = indices->dtype, .shape = indices->shape, .data = (void *)mu__host_read(indices)};
    const int64_t n = mu__elements(&indices->shape);
    int64_t *ids = view.data != NULL ? mu__alloc(((size_t)n + 1) * sizeof *ids) : NULL;
    mu_row_route route = {0};
    const mu_spec in[] = {mu__spec_of(indices), mu__spec_of(values)};
    mu_status status = ids != NULL ? check(p, &mu_op_scatter_variable, attrs, in, NULL) : mu_error_code();
    if (status == MU_OK) {
        mu__indices_of(&view, 0, n, ids);
        status = check_ids(p, n, ids);
    }
    if (status == MU_OK)
        status = mu__row_route(&route, p->n, n, ids, part_of, p);
    if (status == MU_OK)
        status = send_changes(p, &route, attrs, sort_values(&route, values));
    mu__row_route_free(&route);
    mu__free(ids);
    return status;
}

mu_status mu__remote_scatter(int n, mu_resource *const *variables, const void *attrs, mu_tensor *indices,
                             mu_tensor *values)
{
    parts p;
    mu_pool *pool = mu_pool_open();
    const mu_status status = find_parts(n, variables, &p) ? change(&p, attrs, indices, values) : mu_error_code();
    mu__free(p.begin);
    mu_pool_close(pool);
    return status;
}
