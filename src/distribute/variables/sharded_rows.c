// Rows of sharded variables: Python's slices, boolean masks, gathers and scatters that touch only the parts concerned.
//
// A row's part follows from the parts' offsets, so any layout is read correctly. Updates need the div layout, as in
// TensorFlow.
#include "distribute/variables/sharded_variable.h"
#include "distribute/strategy_ops.h"

#include "ops/array/dynamic_partition.h"
#include "ops/nn/nn.h"

#include <muster/distribute.h>
#include <muster/ops.h>

static int64_t rows_of(const mu_variable *variable) { return variable->resource.spec.shape.dims[0]; }

static mu_status need_arguments(const mu_variable *variable, const void *other, const char *function, const char *what)
{
    if (mu__pending())
        return mu_error_code();
    if (!variable || !other)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, variable ? what : "variable");
    return MU_OK;
}

// ---- Slices -------------------------------------------------------------------------------------

// The rows first, first + step, … of an axis: n of them.
typedef struct row_range {
    int64_t first, step, n;
} row_range;

// Python's rule for one bound: negative counts from the end, then clamped to what the step can reach.
static int64_t clamp_bound(int64_t bound, int64_t rows, bool backwards)
{
    const int64_t low = backwards ? -1 : 0, high = backwards ? rows - 1 : rows;
    bound += bound < 0 ? rows : 0;
    return MU_MIN(MU_MAX(bound, low), high);
}

static row_range resolve_range(int64_t rows, int64_t begin, int64_t end, int64_t step, bool open_begin, bool open_end)
{
    const bool backwards = step < 0;
    const int64_t first = open_begin ? (backwards ? rows - 1 : 0) : clamp_bound(begin, rows, backwards);
    const int64_t stop = open_end ? (backwards ? -1 : rows) : clamp_bound(end, rows, backwards);
    const uint64_t distance = backwards ? (uint64_t)MU_MAX(first - stop, 0) : (uint64_t)MU_MAX(stop - first, 0);
    const uint64_t size = backwards ? -(uint64_t)step : (uint64_t)step;
    const int64_t n = (int64_t)(distance / size + (distance % size != 0));
    return (row_range){.first = first, .step = n > 1 ? step : 1, .n = n}; // a step that reaches no row may be huge
}

// The part of a range within rows [offset, offset + rows): its number of elements, and the first, counted in the range.
static int64_t part_of_range(const row_range *range, int64_t offset, int64_t rows, int64_t *begin)
{
    const int64_t size = range->step < 0 ? -range->step : range->step;
    const int64_t to_near = range->step < 0 ? range->first - (offset + rows - 1) : offset - range->first;
    const int64_t to_far = range->step < 0 ? range->first - offset : offset + rows - 1 - range->first;
    *begin = to_near <= 0 ? 0 : to_near / size + (to_near % size != 0);
    const int64_t end = to_far < 0 ? 0 : MU_MIN(to_far / size + 1, range->n);
    return MU_MAX(end - *begin, 0);
}

static mu_tensor *slice_of_shard(mu_variable *shard, const row_range *range, int64_t from, int64_t n)
{
    int64_t begin[MU_MAX_RANK] = {range->first + range->step * from - shard->slice->offset}, end[MU_MAX_RANK] = {0},
            strides[MU_MAX_RANK];
    const int64_t stop = begin[0] + range->step * (n - 1) + (range->step < 0 ? -1 : 1);
    for (int i = 0; i < MU_MAX_RANK; i++)
        strides[i] = i == 0 ? range->step : 1;
    end[0] = stop;
    const unsigned others = ~1u; // all rows of the other axes
    return mu_strided_slice(mu_variable_read(shard), begin, end, strides, others, others | (stop < 0), 0);
}

static mu_tensor *no_rows(mu_variable *variable)
{
    mu_shape shape = variable->resource.spec.shape;
    shape.dims[0] = 0;
    return mu_zeros(variable->resource.spec.dtype, shape.rank, shape.dims);
}

// The rows of a range, from the parts that have some, in the range's order.
static mu_tensor *read_range(mu_variable *variable, const row_range *range)
{
    const int n = variable->n_shards;
    mu_tensor **parts = mu__calloc((size_t)n, sizeof *parts), *rows = NULL;
    int used = 0;
    for (int k = 0; parts && range->n > 0 && k < n; k++) {
        mu_variable *shard = variable->shards[range->step < 0 ? n - 1 - k : k];
        int64_t from = 0;
        const int64_t count = part_of_range(range, shard->slice->offset, rows_of(shard), &from);
        if (count > 0)
            parts[used++] = slice_of_shard(shard, range, from, count);
    }
    if (parts && !mu__pending())
        rows = used == 0 ? no_rows(variable) : used == 1 ? parts[0] : mu_concat(used, parts, 0);
    mu__free(parts);
    return rows;
}

static mu_tensor *slice_sharded(mu_variable *variable, const int64_t *begin, const int64_t *end, const int64_t *strides,
                                unsigned begin_mask, unsigned end_mask, unsigned shrink_mask)
{
    const int64_t rows = rows_of(variable), step = strides ? strides[0] : 1;
    row_range range = {.first = begin[0] + (begin[0] < 0 ? rows : 0), .step = 1, .n = 1};
    if (!(shrink_mask & 1))
        range = resolve_range(rows, begin[0], end[0], step, begin_mask & 1, end_mask & 1);
    mu_tensor *part = read_range(variable, &range);
    // What is left to do: the other axes, and the removal of axis 0.
    int64_t begins[MU_MAX_RANK] = {0}, ends[MU_MAX_RANK] = {0}, steps[MU_MAX_RANK] = {shrink_mask & 1 ? step : 1};
    for (int i = 1; i < variable->resource.spec.shape.rank; i++) {
        begins[i] = begin[i];
        ends[i] = end[i];
        steps[i] = strides ? strides[i] : 1;
    }
    return mu_strided_slice(part, begins, ends, steps, begin_mask | 1, end_mask | 1, shrink_mask);
}

static mu_status check_rows(const mu_variable *variable, int64_t begin, int64_t step, bool shrinks)
{
    const mu_shape *shape = &variable->resource.spec.shape;
    if (shape->rank > 0 && shrinks && (begin < -shape->dims[0] || begin >= shape->dims[0]))
        return mu__error(MU_OUT_OF_RANGE, "mu_variable_strided_slice: index %lld of '%s', which has %lld rows",
                         (long long)begin, variable->resource.name, (long long)shape->dims[0]);
    if (shape->rank > 0 && !shrinks && step == 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_variable_strided_slice: '%s' is sliced with a stride of 0; it must be positive or negative",
            variable->resource.name);
    return MU_OK;
}

mu_tensor *mu_variable_strided_slice(mu_variable *variable, const int64_t *begin, const int64_t *end,
                                     const int64_t *strides, unsigned begin_mask, unsigned end_mask,
                                     unsigned shrink_mask)
{
    static const char *const name = "mu_variable_strided_slice";
    if (need_arguments(variable, begin, name, "list of begins") != MU_OK ||
        need_arguments(variable, end, name, "list of ends") != MU_OK ||
        check_rows(variable, begin[0], strides ? strides[0] : 1, shrink_mask & 1) != MU_OK)
        return NULL;
    if (variable->n_shards > 0)
        return slice_sharded(variable, begin, end, strides, begin_mask, end_mask, shrink_mask);
    return mu_strided_slice(mu_variable_read(variable), begin, end, strides, begin_mask, end_mask, shrink_mask);
}

mu_tensor *mu_variable_boolean_mask(mu_variable *variable, mu_tensor *mask)
{
    mu_tensor *out[2] = {0};
    int64_t dims[MU_MAX_RANK] = {-1};
    char text[MU_SHAPE_TEXT], own[MU_SHAPE_TEXT];
    if (need_arguments(variable, mask, "mu_variable_boolean_mask", "mask") != MU_OK)
        return NULL;
    const mu_shape *shape = &variable->resource.spec.shape;
    bool fits = mask->dtype == MU_BOOL && mask->shape.rank >= 1 && mask->shape.rank <= shape->rank;
    for (int i = 0; fits && i < mask->shape.rank; i++)
        fits = mask->shape.dims[i] == MU_UNKNOWN || mask->shape.dims[i] == shape->dims[i];
    if (!fits) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_variable_boolean_mask: the mask is %s%s and '%s' has the shape %s; the mask must be bool, with "
                  "the variable's first dimensions",
                  mu_dtype_name(mask->dtype), mu__shape_text(&mask->shape, text), variable->resource.name,
                  mu__shape_text(shape, own));
        return NULL;
    }
    for (int i = mask->shape.rank; i < shape->rank; i++)
        dims[1 + i - mask->shape.rank] = shape->dims[i];
    mu_tensor *rows = mu_reshape(mu_variable_read(variable), 1 + shape->rank - mask->shape.rank, dims);
    mu_tensor *flat = mu_cast(mu_reshape(mask, 1, (int64_t[]){-1}), MU_I32);
    return mu__dynamic_partition(rows, flat, 2, out) == MU_OK ? out[1] : NULL;
}

// ---- Which part a row is in ---------------------------------------------------------------------

// Ids sorted by part: of each part its local rows, and where in the list of ids they stood.
typedef struct routed {
    mu_tensor **local, **positions;
    mu_tensor *numbers; // the part of each id
} routed;

static mu_tensor *long_scalar(int64_t value) { return mu_tensor_new(MU_I64, 0, NULL, &value); }

// Outside of traces, errors name the id and the variable.
static mu_status check_ids(const mu_variable *variable, const mu_tensor *ids)
{
    const int64_t rows = rows_of(variable);
    if (ids->node || !mu__host_read(ids))
        return mu_error_code();
    for (int64_t i = 0; i < mu__elements(&ids->shape); i++) {
        const int64_t id = ((const int64_t *)mu__host_read(ids))[i];
        if (id < 0 || id >= rows)
            return mu__error(MU_INVALID_ARGUMENT, "index %lld (element %lld) of '%s', which has %lld rows",
                             (long long)id, (long long)i, variable->resource.name, (long long)rows);
    }
    return MU_OK;
}

// The part of each id, and its row there. In a trace an id that is out of range fails when the function runs.
static mu_status find_parts(const mu_variable *variable, mu_tensor *ids, bool mod, mu_tensor **numbers,
                            mu_tensor **local)
{
    const int n = variable->n_shards;
    if (mod) {
        mu_tensor *parts = long_scalar(n);
        *numbers = mu_cast(mu_mod(ids, parts), MU_I32);
        *local = mu_floor_divide(ids, parts);
        return mu_error_code();
    }
    int64_t *offsets = mu__calloc(2 * (size_t)n, sizeof *offsets), *ends = MU_BEHIND(offsets, n);
    if (!offsets)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++) {
        offsets[i] = variable->shards[i]->slice->offset;
        ends[i] = offsets[i] + rows_of(variable->shards[i]);
    }
    *numbers = mu_searchsorted(mu_tensor_new(MU_I64, 1, (int64_t[]){n}, ends), ids, true);
    // An id past the end has the number n, which dynamic_partition refuses.
    mu_tensor *known = mu_minimum(*numbers, mu_constant(MU_I32, n - 1));
    *local = mu_subtract(ids, mu_gather(mu_tensor_new(MU_I64, 1, (int64_t[]){n}, offsets), known, 0, 0));
    mu__free(offsets);
    return mu_error_code();
}

static void free_routed(routed *r)
{
    mu__free(r->local);
    *r = (routed){0};
}

static mu_status route(const mu_variable *variable, mu_tensor *ids, bool mod, routed *out)
{
    const size_t n = (size_t)variable->n_shards;
    mu_tensor *local = NULL;
    *out = (routed){.local = mu__calloc(2 * n, sizeof *out->local)};
    if (!out->local)
        return MU_RESOURCE_EXHAUSTED;
    out->positions = out->local + n;
    MU_TRY(check_ids(variable, ids));
    MU_TRY(find_parts(variable, ids, mod, &out->numbers, &local));
    MU_TRY(mu__dynamic_partition(local, out->numbers, (int64_t)n, out->local));
    return mu__dynamic_partition(mu__positions(ids), out->numbers, (int64_t)n, out->positions);
}

// ---- Gathering ----------------------------------------------------------------------------------

// The requested rows of each part, one part after the other.
static mu_tensor *gather_parts(mu_variable *variable, const routed *r)
{
    const int n = variable->n_shards;
    mu_tensor **rows = mu__calloc((size_t)n, sizeof *rows), *all = NULL;
    for (int i = 0; rows && i < n; i++)
        rows[i] = mu__variable_gather(variable->shards[i], r->local[i]);
    if (rows && !mu__pending())
        all = mu_concat(n, rows, 0);
    mu__free(rows);
    return all;
}

static mu_status need_indices(const mu_tensor *indices, const char *function, bool vector)
{
    char text[MU_SHAPE_TEXT];
    if ((indices->dtype == MU_I32 || indices->dtype == MU_I64) && (!vector || indices->shape.rank == 1))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the indices are %s%s; they must be %sint32 or int64", function,
                     mu_dtype_name(indices->dtype), mu__shape_text(&indices->shape, text),
                     vector ? "a vector of " : "");
}

static bool on_servers(const mu_variable *variable)
{
    for (int i = 0; i < variable->n_shards; i++)
        if (!variable->shards[i]->resource.home)
            return false;
    return true;
}

// One op on all parts: each server is asked once, all at the same time (rpc/remote/remote_rows.c).
static mu_tensor *gather_from_servers(const mu_variable *variable, mu_tensor *ids)
{
    mu_resource **parts = mu__calloc((size_t)variable->n_shards, sizeof *parts);
    mu_tensor *rows = NULL;
    for (int i = 0; parts && i < variable->n_shards; i++)
        parts[i] = &variable->shards[i]->resource;
    if (parts)
        mu__apply(&mu_op_gather_variable, NULL, 1, &ids, variable->n_shards, parts, &rows);
    mu__free(parts);
    return rows;
}

// Ids are routed to the parts, and the rows that come back are put where the ids were. An id that occurs twice is
// gathered twice, so that its gradient has two slices, as that of a plain variable has.
mu_tensor *mu__sharded_gather(mu_variable *variable, mu_tensor *ids, bool mod)
{
    mu_tensor *rows = NULL;
    routed r = {0};
    if (!mod && on_servers(variable))
        return gather_from_servers(variable, ids);
    mu_tensor *flat = mu_reshape(mu_cast(ids, MU_I64), 1, (int64_t[]){-1});
    if (flat && route(variable, flat, mod, &r) == MU_OK) {
        mu_tensor *all = gather_parts(variable, &r);
        mu_tensor *order = mu__inverse_permutation(mu_concat(variable->n_shards, r.positions, 0));
        rows = mu_gather(all, mu_reshape_like(order, ids), 0, 0);
    }
    free_routed(&r);
    return rows;
}

mu_tensor *mu_variable_gather(mu_variable *variable, mu_tensor *indices)
{
    if (need_arguments(variable, indices, "mu_variable_gather", "tensor of indices") != MU_OK ||
        need_indices(indices, "mu_variable_gather", false) != MU_OK)
        return NULL;
    return mu__autocast(variable, variable->n_shards > 0 ? mu__sharded_gather(variable, indices, false)
                                                         : mu__variable_gather(variable, indices));
}

mu_tensor *mu_variable_sparse_read(mu_variable *variable, mu_tensor *indices)
{
    if (need_arguments(variable, indices, "mu_variable_sparse_read", "tensor of indices") != MU_OK ||
        need_indices(indices, "mu_variable_sparse_read", true) != MU_OK)
        return NULL;
    if (variable->n_shards == 0)
        return mu__variable_gather(variable, indices);
    routed r = {0};
    mu_tensor *rows = route(variable, mu_cast(indices, MU_I64), false, &r) == MU_OK ? gather_parts(variable, &r) : NULL;
    free_routed(&r);
    return rows;
}

// ---- Scattering ---------------------------------------------------------------------------------

static mu_status need_div_layout(const mu_variable *variable)
{
    const int64_t rows = rows_of(variable);
    for (int i = 0; i < variable->n_shards; i++)
        if (variable->shards[i]->slice->offset != mu__div_begin(rows, variable->n_shards, i))
            return mu__error(MU_UNIMPLEMENTED,
                             "'%s' cannot be scattered into: part %d begins at row %lld, and an even division of %lld "
                             "rows into %d parts begins it at row %lld; make the variable with a partitioner",
                             variable->resource.name, i, (long long)variable->shards[i]->slice->offset, (long long)rows,
                             variable->n_shards, (long long)mu__div_begin(rows, variable->n_shards, i));
    return MU_OK;
}

mu_status mu__sharded_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    static mu_status (*const scatters[])(mu_variable *, mu_tensor *, mu_tensor *) = {
        [MU_SCATTER_ADD] = mu_variable_scatter_add,      [MU_SCATTER_SUB] = mu_variable_scatter_sub,
        [MU_SCATTER_MUL] = mu_variable_scatter_mul,      [MU_SCATTER_DIV] = mu_variable_scatter_div,
        [MU_SCATTER_MIN] = mu_variable_scatter_min,      [MU_SCATTER_MAX] = mu_variable_scatter_max,
        [MU_SCATTER_UPDATE] = mu_variable_scatter_update};
    const int n = variable->n_shards;
    routed r = {0};
    MU_TRY(need_indices(indices, "scatter", true));
    MU_TRY(need_div_layout(variable));
    if (on_servers(variable)) {
        const mu_tensor *ids = mu_cast(indices, MU_I64);
        MU_TRY(ids ? check_ids(variable, ids) : mu_error_code());
        return mu__parts_scatter(variable, kind, indices, values);
    }
    mu_tensor **parts = mu__calloc((size_t)n, sizeof *parts);
    mu_status status = parts ? route(variable, mu_cast(indices, MU_I64), false, &r) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = mu__dynamic_partition(values, r.numbers, n, parts);
    for (int i = 0; status == MU_OK && i < n; i++)
        status = scatters[kind](variable->shards[i], r.local[i], parts[i]);
    free_routed(&r);
    mu__free(parts);
    return status;
}
