// mu_map_fn: calls a function for each slice; in a trace, a loop without carried values.
#include "base/callback.h"
#include "graph/control/map_fn.h"
#include "graph/variables/variables_read.h"

#include <muster/ops.h>

mu_status mu__need_rows(const mu_tensors *elems, const char *what)
{
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    for (int i = 0; i < elems->n; i++) {
        const mu_shape *shape = &elems->at[i]->shape, *first = &elems->at[0]->shape;
        if (shape->rank > 0 &&
            (shape->dims[0] == first->dims[0] || shape->dims[0] == MU_UNKNOWN || first->dims[0] == MU_UNKNOWN))
            continue;
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: tensors %d and 0 of elems have shapes %s and %s; first axes must be there and equal",
                         what, i, mu__shape_text(shape, a), mu__shape_text(first, b));
    }
    return elems->n > 0 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "%s: elems has no tensor", what);
}

mu_spec mu__row_spec(const mu_tensor *tensor)
{
    mu_spec spec = {.dtype = tensor->dtype, .shape = {.rank = tensor->shape.rank - 1}};
    memcpy(spec.shape.dims, tensor->shape.dims + 1, sizeof(int64_t) * (size_t)spec.shape.rank);
    return spec;
}

mu_tensor *mu__row(mu_tensor *tensor, int64_t i)
{
    int64_t begin[MU_MAX_RANK] = {i}, end[MU_MAX_RANK] = {i + 1}, strides[MU_MAX_RANK];
    for (int axis = 0; axis < MU_MAX_RANK; axis++)
        strides[axis] = 1;
    return mu_strided_slice(tensor, begin, end, strides, ~1u, ~1u, 1);
}

mu_value *mu__row_of_all(const mu_value *like, const mu_tensors *elems, int64_t i)
{
    mu_tensor **parts = mu__calloc((size_t)elems->n + 1, sizeof *parts);
    mu_value *element = NULL;
    bool whole = parts != NULL;
    for (int k = 0; whole && k < elems->n; k++)
        whole = (parts[k] = mu__row(elems->at[k], i)) != NULL;
    if (whole)
        element = mu__value_around(like, parts);
    mu__free(parts);
    return element;
}

mu_value *mu__row_inputs(mu_body_trace *body, const mu_value *like, const mu_tensors *elems)
{
    return mu__body_inputs(body, like, elems, mu__row_spec);
}

// ---- In a trace ---------------------------------------------------------------------------------

static mu_status apply_map(mu_body_trace *body, const mu_tensors *elems, mu_tensor ***out)
{
    mu_loop_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = body->trace.graph;
    attrs.n_slices = elems->n;
    attrs.rows = -1;
    MU_TRY(mu__body_hoist_reads(1, &body));
    if (mu__tape_listens())
        MU_TRY(mu__body_keep(attrs.body, 0));
    mu_tensor **own = mu__calloc((size_t)elems->n + 1, sizeof *own);
    mu_status status = own && (own[0] = mu_dim_size(elems->at[0], 0)) ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; own && i < elems->n; i++)
        own[1 + i] = elems->at[i];
    if (status == MU_OK)
        status = mu__control_apply(&mu_op_while_loop, &attrs, 1, &body, 1 + elems->n, own, out);
    mu__free(own);
    return status;
}

static mu_value *trace_map(mu_body *fn, const mu_value *elems, const mu_tensors *leaves, void *arg)
{
    mu_body_trace body;
    mu_tensors results = {0};
    mu_tensor **out = NULL;
    mu_value *result = NULL;
    mu_status status = mu__body_begin(&body, "map_fn");
    mu_value *element = status == MU_OK ? mu__row_inputs(&body, elems, leaves) : NULL;
    mu_value *inner = element ? fn(element, arg) : NULL;
    MU_GO(mu__body_finish(&body, inner, "mu_map_fn", &results));
    MU_GO(apply_map(&body, leaves, &out));
    result = mu__value_around(inner, out + 1);
    if (result)
        result = mu__pool_return(body.pool, result);
out:
    mu__free(results.at);
    mu__free(out);
    mu__body_free(&body);
    return result;
}

// ---- Outside of traces --------------------------------------------------------------------------

// The results of all rows; tensor k of row i is at[i * n + k].
typedef struct rows {
    int n_rows, n;
    mu_tensor **at;
    mu_value *like;
} rows;

static mu_status map_row(mu_body *fn, const mu_value *elems, const mu_tensors *leaves, void *arg, int i, rows *r)
{
    mu_tensors results = {0};
    mu_status status = MU_OK;
    mu_value *element = mu__row_of_all(elems, leaves, i), *result;
    MU_CALLBACK("a function of mu_map_fn", result = element ? fn(element, arg) : NULL);
    result = mu__variables_read(result);
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__tensors_of(result, "mu_map_fn", &results));
    if (i == 0) {
        r->like = result;
        r->n = results.n;
        r->at = mu__calloc((size_t)r->n_rows * (size_t)results.n + 1, sizeof *r->at);
    } else if (!mu__value_same_structure(r->like, result)) {
        status = mu__error(MU_INVALID_ARGUMENT,
                           "mu_map_fn: the result for row %d has another structure than that for row 0", i);
    }
    for (int k = 0; status == MU_OK && r->at && k < r->n; k++)
        r->at[i * r->n + k] = results.at[k];
    mu__free(results.at);
    return r->at ? status : MU_RESOURCE_EXHAUSTED;
}

static mu_value *stack_rows(const rows *r)
{
    mu_tensor **column = mu__calloc((size_t)r->n_rows + 1, sizeof *column),
              **stacks = mu__calloc((size_t)r->n + 1, sizeof *stacks);
    mu_value *result = NULL;
    bool whole = column && stacks;
    for (int k = 0; whole && k < r->n; k++) {
        for (int i = 0; i < r->n_rows; i++)
            column[i] = r->at[i * r->n + k];
        whole = (stacks[k] = mu_stack(r->n_rows, column, 0)) != NULL;
    }
    if (whole)
        result = mu__value_around(r->like, stacks);
    mu__free(column);
    mu__free(stacks);
    return result;
}

static mu_value *map_now(mu_body *fn, const mu_value *elems, const mu_tensors *leaves, void *arg)
{
    rows r = {.n_rows = (int)leaves->at[0]->shape.dims[0]};
    mu_status status =
        r.n_rows > 0 ? MU_OK
                     : mu__error(MU_INVALID_ARGUMENT, "mu_map_fn: elems has no rows, so what fn gives is not known");
    for (int i = 0; status == MU_OK && i < r.n_rows; i++)
        status = map_row(fn, elems, leaves, arg, i, &r);
    mu_value *result = status == MU_OK ? stack_rows(&r) : NULL;
    mu__free(r.at);
    return result;
}

mu_status mu__map_leaves(mu_body *fn, mu_value *elems, const char *what, mu_tensors *leaves)
{
    if (mu__pending())
        return mu_error_code();
    if (!fn || !elems)
        return mu__error(MU_INVALID_ARGUMENT, "%s: fn and elems must be given", what);
    MU_TRY(mu__tensors_of(elems, what, leaves));
    return mu__need_rows(leaves, what);
}

mu_value *mu_map_fn(mu_body *fn, mu_value *elems, void *arg)
{
    mu_tensors leaves = {0};
    mu_value *result = NULL;
    elems = mu__variables_read(elems);
    if (mu__map_leaves(fn, elems, "mu_map_fn", &leaves) == MU_OK)
        result = mu__context()->trace ? trace_map(fn, elems, &leaves, arg) : map_now(fn, elems, &leaves, arg);
    mu__free(leaves.at);
    return result;
}
