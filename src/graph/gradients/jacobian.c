// Jacobians from one gradient per element, as a loop over unit vectors; directional derivatives from two gradients.
#include "base/callback.h"
#include "graph/control/map_fn.h"

#include <muster/ops.h>

// ---- Rows of a Jacobian -------------------------------------------------------------------------

typedef struct rows {
    mu_tape *tape;
    mu_tensor *y;
    int n_x;
    void **xs;
} rows;

static mu_spec spec_of(const void *source)
{
    return mu__is(source, &mu__tensor_type) ? mu__spec_of(source) : ((const mu_variable *)source)->resource.spec;
}

static mu_tensor *zeros_of(void *source)
{
    const mu_spec spec = spec_of(source);
    return mu__is(source, &mu__tensor_type) ? mu_zeros_like(source)
                                            : mu_zeros(spec.dtype, spec.shape.rank, spec.shape.dims);
}

// One row of the Jacobian: the gradients of sum(y * direction) with respect to all sources.
static mu_value *row(mu_value *element, void *arg)
{
    const rows *r = arg;
    mu_tensor *dy = mu_reshape_like(mu_at(element, 0), r->y);
    mu_tensor **dxs = mu__calloc((size_t)r->n_x + 1, sizeof *dxs);
    mu_value **items = mu__calloc((size_t)r->n_x + 1, sizeof *items), *result = NULL;
    if (dy && dxs && items && mu__pullback(r->tape, 1, &r->y, &dy, r->n_x, r->xs, dxs) == MU_OK) {
        for (int i = 0; i < r->n_x; i++)
            items[i] = mu_of(dxs[i] ? dxs[i] : zeros_of(r->xs[i]));
        result = mu__pending() ? NULL : mu_list_of(r->n_x, items);
    }
    mu__free(dxs);
    mu__free(items);
    return result;
}

// The unit vectors for all elements of y; a trace may not know their number.
static mu_tensor *unit_vectors(mu_tensor *y)
{
    const int64_t n = mu__elements(&y->shape), all = -1;
    if (n != MU_UNKNOWN)
        return mu_eye(y->dtype, n, n);
    mu_tensor *ones = mu_cast(mu_ones_like(mu_reshape(y, 1, &all)), MU_I64);
    mu_tensor *positions = mu_cumsum(ones, 0, true, false);
    return mu_cast(mu_equal(mu_expand_dims(positions, 0), mu_expand_dims(positions, 1)), y->dtype);
}

// Reshapes [elements of y, source…] to [y…, source…]; at most one dimension may be unknown where the two differ.
static mu_tensor *shaped(mu_tensor *stacked, const mu_shape *y, const mu_spec *source)
{
    mu_shape shape = *y;
    int unknown = 0;
    if (y->rank == 1)
        return stacked;
    for (int k = 0; k < y->rank; k++)
        unknown += y->dims[k] == MU_UNKNOWN;
    if (y->rank + source->shape.rank > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "the Jacobian would have rank %d; the limit is %d", y->rank + source->shape.rank,
                  MU_MAX_RANK);
        return NULL;
    }
    for (int k = 0; k < source->shape.rank; k++) {
        shape.dims[shape.rank++] = source->shape.dims[k] == MU_UNKNOWN ? -1 : source->shape.dims[k];
        unknown += source->shape.dims[k] == MU_UNKNOWN;
    }
    if (unknown <= 1)
        return mu_reshape(stacked, shape.rank, shape.dims);
    mu__error(MU_UNIMPLEMENTED,
              "a Jacobian of which a trace knows %d dimensions only when it runs; flatten y to one axis", unknown);
    return NULL;
}

mu_value *mu_tape_jacobian(mu_tape *tape, mu_tensor *y, mu_value *sources)
{
    if (mu__pending())
        return NULL;
    if (!tape || !y || !sources) {
        mu__error(MU_INVALID_ARGUMENT, "mu_tape_jacobian: %s is NULL", !tape ? "tape" : !y ? "y" : "sources");
        return NULL;
    }
    rows r = {.tape = tape, .y = y, .n_x = mu__value_flatten(sources, NULL, 0)};
    const int64_t n = mu__elements(&y->shape);
    mu_object **leaves = mu__calloc((size_t)r.n_x + 1, 2 * sizeof *leaves);
    mu_value *result = NULL, *stacks = NULL;
    if (!leaves)
        return NULL;
    mu__value_flatten(sources, leaves, r.n_x);
    r.xs = (void **)leaves;
    stacks = n != 0 ? mu_map_fn(row, mu_list(unit_vectors(y), MU_END), &r) : NULL;
    if (n == 0)
        mu__error(MU_INVALID_ARGUMENT, "mu_tape_jacobian: y has no elements");
    bool whole = stacks != NULL;
    for (int i = 0; whole && i < r.n_x; i++) {
        const mu_spec spec = spec_of(leaves[i]);
        whole = (leaves[r.n_x + i] = (mu_object *)shaped(mu_at(stacks, i), &y->shape, &spec)) != NULL;
    }
    if (whole)
        result = mu__give(mu__value_pack(sources, leaves + r.n_x, r.n_x));
    mu__free(leaves);
    return result;
}

// ---- Rows that do not influence each other ------------------------------------------------------

// The gradient for one element of every row at once.
static mu_value *column(mu_value *element, void *arg)
{
    rows *r = arg;
    mu_tensor *dy = mu_broadcast_like(mu_at(element, 0), r->y), *dx = NULL;
    if (!dy || mu__pullback(r->tape, 1, &r->y, &dy, 1, r->xs, &dx) != MU_OK)
        return NULL;
    return mu_list(dx ? dx : zeros_of(r->xs[0]), MU_END);
}

mu_tensor *mu_tape_batch_jacobian(mu_tape *tape, mu_tensor *y, mu_tensor *x)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending())
        return NULL;
    if (!tape || !y || !x || y->shape.rank < 2 || x->shape.rank < 1) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tape_batch_jacobian: tape, y and x must be given, y with at least two axes and x with one");
        return NULL;
    }
    mu_spec of_row = mu__row_spec(y);
    if (!mu__shape_known(&of_row.shape) || y->shape.rank + x->shape.rank - 1 > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tape_batch_jacobian: y has shape %s; all but the first axis must be known, and the result's rank "
                  "at most %d",
                  mu__shape_text(&y->shape, text), MU_MAX_RANK);
        return NULL;
    }
    void *xs[] = {x};
    rows r = {.tape = tape, .y = y, .n_x = 1, .xs = xs};
    const int64_t n = mu__elements(&of_row.shape);
    int64_t dims[MU_MAX_RANK + 1] = {n};
    int axes[MU_MAX_RANK], rank = 0;
    memcpy(dims + 1, of_row.shape.dims, sizeof *dims * (size_t)of_row.shape.rank);
    mu_tensor *directions = mu_reshape(mu_eye(y->dtype, n, n), of_row.shape.rank + 1, dims);
    mu_tensor *columns = mu_at(mu_map_fn(column, mu_list(directions, MU_END), &r), 0); // [n, rows, x…]
    axes[rank++] = 1;
    axes[rank++] = 0;
    for (int axis = 2; axis <= x->shape.rank; axis++)
        axes[rank++] = axis;
    columns = columns ? mu_transpose(columns, axes) : NULL;
    if (!columns || of_row.shape.rank == 1)
        return columns;
    int unknown = 0;
    rank = 0;
    dims[rank++] = columns->shape.dims[0];
    for (int axis = 0; axis < of_row.shape.rank; axis++)
        dims[rank++] = of_row.shape.dims[axis];
    for (int axis = 1; axis < x->shape.rank; axis++)
        dims[rank++] = x->shape.dims[axis];
    for (int axis = 0; axis < rank; axis++)
        unknown += dims[axis] == MU_UNKNOWN;
    if (unknown <= 1)
        return mu_reshape(columns, rank, dims);
    mu__error(MU_UNIMPLEMENTED,
              "mu_tape_batch_jacobian: a trace knows %d dimensions only when it runs; flatten the rows of y", unknown);
    return NULL;
}

// ---- Along a direction --------------------------------------------------------------------------

// The gradient of y weighted by u is linear in u. Its derivative with respect to u, weighted by the tangents, is the
// directional derivative of y.
static mu_status tangents_of(mu_tape *outer, int n_y, mu_tensor **us, int n_x, mu_tensor *const *slopes,
                             mu_tensor *const *directions, mu_tensor **out)
{
    mu_tensor **ys = mu__calloc(2 * (size_t)n_x + 1, sizeof *ys), **dys = MU_BEHIND(ys, n_x);
    mu_status status = ys ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int n = 0;
    for (int i = 0; ys && i < n_x; i++)
        if (slopes[i]) {
            ys[n] = slopes[i];
            dys[n++] = directions[i];
        }
    if (status == MU_OK && n > 0)
        status = mu__pullback(outer, n, ys, dys, n_y, (void *const *)us, out);
    for (int i = 0; status == MU_OK && i < n_y; i++)
        if (!out[i] && !(out[i] = mu_zeros_like(us[i])))
            status = mu_error_code();
    mu__free(ys);
    return status;
}

static mu_value *differentiate_along(mu_body *fn, mu_value *primals, const mu_tensors *x, const mu_tensors *directions,
                                     void *arg)
{
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_value *results, *found = NULL;
    MU_CALLBACK("a function of mu_jvp", results = fn(primals, arg));
    mu_tensors y = {0};
    mu_tensor **us = NULL;
    if (mu__pending() || mu__tensors_of(results, "mu_jvp", &y) != MU_OK)
        goto out;
    mu_tape_close(inner);
    us = mu__calloc(2 * (size_t)y.n + (size_t)x->n + 1, sizeof *us);
    bool whole = us != NULL;
    for (int i = 0; whole && i < y.n; i++)
        whole = (us[i] = mu_identity(mu_zeros_like(y.at[i]))) != NULL;
    if (!whole || mu__pullback(inner, y.n, y.at, us, x->n, (void *const *)x->at, us + 2 * y.n) != MU_OK)
        goto out;
    mu_tape_close(outer);
    if (tangents_of(outer, y.n, us, x->n, us + 2 * y.n, directions->at, us + y.n) == MU_OK) {
        mu_value *tangents = mu__value_around(results, us + y.n);
        found = tangents ? mu_list(results, tangents, MU_END) : NULL;
    }
out:
    mu_tape_close(inner);
    mu_tape_close(outer);
    mu__free(us);
    mu__free(y.at);
    return found;
}

mu_value *mu_jvp(mu_body *fn, mu_value *primals, mu_value *tangents, void *arg)
{
    mu_tensors x = {0}, directions = {0};
    mu_value *result = NULL;
    if (mu__pending())
        return NULL;
    if (!fn || !primals || !tangents || !mu__value_same_structure(primals, tangents)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_jvp: fn, primals and tangents must be given, and the last two have one structure");
        return NULL;
    }
    if (mu__tensors_of(primals, "mu_jvp", &x) == MU_OK && mu__tensors_of(tangents, "mu_jvp", &directions) == MU_OK)
        result = differentiate_along(fn, primals, &x, &directions, arg);
    mu__free(x.at);
    mu__free(directions.at);
    return result;
}
