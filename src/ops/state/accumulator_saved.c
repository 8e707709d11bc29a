// An accumulator as a value, with all that it has: for a copy in another process, and for snapshots.
//
// A list: what it is and its numbers (int64), the attempts' numbers of the gradients that are kept apart (int64) and
// these gradients, then the values of its sum if it has one, and of a sparse sum the indices and counts of the rows.
// The reader trusts nothing in it.
#include "ops/state/accumulator.h"

enum { SPARSE, MEAN, DTYPE, RANK, DIMS, STEP = DIMS + MU_MAX_RANK, CLOSED, SUMMED, KEPT, N_NUMBERS };
enum { MOST_KEPT = 1 << 20, AROUND = 5 };

static mu_tensor *vector(const int64_t *numbers, int64_t n) { return mu_tensor_new(MU_I64, 1, &n, numbers); }

// With the accumulator's lock.
static mu_value *saved(const mu_accumulator *a)
{
    const size_t n_kept = a->kept.n;
    int64_t numbers[N_NUMBERS] = {a->sparse, a->mean, a->resource.spec.dtype, a->declared_rank};
    int64_t *attempts = mu__calloc(n_kept + 1, sizeof *attempts);
    mu_value **parts = mu__calloc(n_kept + AROUND, sizeof *parts);
    mu_value *list = NULL;
    int n = 0;
    memcpy(numbers + DIMS, a->declared.dims, (size_t)MU_MAX(a->declared_rank, 0) * sizeof *numbers);
    numbers[STEP] = a->step;
    numbers[CLOSED] = a->closed;
    numbers[SUMMED] = a->sum.n;
    numbers[KEPT] = (int64_t)n_kept;
    if (attempts && parts) {
        for (size_t i = 0; i < n_kept; i++)
            attempts[i] = a->kept.items[i].attempt;
        parts[n++] = mu_of(vector(numbers, N_NUMBERS));
        parts[n++] = mu_of(vector(attempts, (int64_t)n_kept));
        for (size_t i = 0; i < n_kept; i++)
            parts[n++] = mu_of(
                mu_tensor_new(a->resource.spec.dtype, a->declared.rank, a->declared.dims, a->kept.items[i].values));
        if (a->sum.n > 0)
            parts[n++] =
                mu_of(mu_tensor_new(a->resource.spec.dtype, a->sum.shape.rank, a->sum.shape.dims, a->sum.values));
        if (a->sum.n > 0 && a->sparse) {
            parts[n++] = mu_of(vector(a->sum.indices, a->sum.shape.dims[0]));
            parts[n++] = mu_of(vector(a->sum.counts, a->sum.shape.dims[0]));
        }
        list = mu_list_of(n, parts);
    }
    mu__free(attempts);
    mu__free(parts);
    return list;
}

mu_value *mu__accumulator_save(mu_accumulator *a)
{
    pthread_mutex_lock(&a->lock);
    mu_value *value = saved(a);
    pthread_mutex_unlock(&a->lock);
    return value;
}

// ---- Reading ------------------------------------------------------------------------------------

static mu_status damaged(const char *name)
{
    return mu__pending() ? mu_error_code() : mu__error(MU_DATA_LOSS, "the saved accumulator '%.200s' is damaged", name);
}

static const int64_t *numbers_at(const mu_value *value, int i, int64_t n)
{
    const mu_tensor *tensor = i < mu_value_count(value) ? mu_at(value, i) : NULL;
    const bool fits = tensor && tensor->dtype == MU_I64 && tensor->shape.rank == 1 && tensor->shape.dims[0] == n;
    return fits ? mu__host_read(tensor) : NULL;
}

static bool view_at(const mu_accumulator *a, const mu_value *value, int i, mu_view *out)
{
    const mu_tensor *tensor = i < mu_value_count(value) ? mu_at(value, i) : NULL;
    if (!tensor || tensor->dtype != a->resource.spec.dtype)
        return false;
    *out = (mu_view){.dtype = tensor->dtype, .shape = tensor->shape, .data = (void *)mu__host_read(tensor)};
    return true;
}

static bool is_valid(const int64_t *at)
{
    return at && at[DTYPE] >= 0 && at[DTYPE] < 32 && (MU_DTYPE_BIT(at[DTYPE]) & MU_FLOATS) && at[RANK] >= -1 &&
           at[RANK] <= MU_MAX_RANK && at[SUMMED] >= 0 && at[KEPT] >= 0 && at[KEPT] <= MOST_KEPT;
}

static mu_accumulator *made_of(const int64_t *at, const char *name)
{
    mu_shape shape = {.rank = (int)MU_MAX(at[RANK], 0)};
    memcpy(shape.dims, at + DIMS, (size_t)shape.rank * sizeof *shape.dims);
    const mu_conditional_accumulator_args args = {.size = sizeof args,
                                                  .dtype = (mu_dtype)at[DTYPE],
                                                  .name = name,
                                                  .shape = at[RANK] >= 0 ? &shape : NULL,
                                                  .reduction_type = at[MEAN] ? "MEAN" : "SUM"};
    if (args.shape && mu__shape_check(args.shape, name) != MU_OK)
        return NULL;
    return mu__accumulator_new(&args, at[SPARSE] != 0);
}

static mu_status load_kept(mu_accumulator *a, const mu_value *value, int64_t n)
{
    const int64_t *attempts = numbers_at(value, 1, n);
    mu_view view;
    if (!attempts)
        return damaged(a->resource.name);
    for (int i = 0; i < n; i++) {
        if (!view_at(a, value, 2 + i, &view) || a->declared_rank < 0 || !mu__shape_equal(&view.shape, &a->declared))
            return damaged(a->resource.name);
        const size_t bytes = mu__spec_bytes(&(mu_spec){.dtype = view.dtype, .shape = view.shape});
        MU_TRY(mu__accumulator_reserve(a, bytes));
        const mu_kept_gradient kept = {.attempt = attempts[i], .values = mu__alloc(bytes + 1)};
        if (!kept.values || MU_PUSH(&a->kept, kept) != MU_OK) {
            mu__free(kept.values);
            mu__holder_give(&a->holder, bytes);
            return MU_RESOURCE_EXHAUSTED;
        }
        memcpy(kept.values, view.data, bytes);
    }
    return MU_OK;
}

// Added like one gradient, so that it is checked like one.
static mu_status load_sum(mu_accumulator *a, const mu_value *value, int at, int64_t n)
{
    mu_view view;
    if (!view_at(a, value, at, &view))
        return damaged(a->resource.name);
    const int64_t rows = view.shape.rank > 0 ? view.shape.dims[0] : 0;
    if (a->sparse) {
        const int64_t *indices = numbers_at(value, at + 1, rows), *counts = numbers_at(value, at + 2, rows);
        const mu_view index_view = {.dtype = MU_I64, .shape = MU_SHAPE(rows), .data = (void *)indices};
        for (int64_t i = 0; counts && i < rows; i++)
            counts = counts[i] >= 1 && counts[i] <= n ? counts : NULL;
        if (!indices || !counts)
            return damaged(a->resource.name);
        MU_TRY(mu__sparse_add(a, &view, &index_view, NULL));
        memcpy(a->sum.counts, counts, (size_t)rows * sizeof *counts);
    } else {
        MU_TRY(mu__dense_add(a, &view));
    }
    a->sum.n = n;
    return MU_OK;
}

mu_accumulator *mu__accumulator_load(const char *name, const mu_value *value)
{
    const int64_t *at = value && value->kind != MU_VALUE_TENSOR ? numbers_at(value, 0, N_NUMBERS) : NULL;
    mu_accumulator *a = NULL;
    if (!is_valid(at))
        damaged(name);
    else
        a = made_of(at, name);
    if (!a)
        return NULL;
    const int next = (int)at[KEPT] + 2;
    const int wanted = next + (at[SUMMED] > 0 ? (a->sparse ? 3 : 1) : 0);
    mu_status status = mu_value_count(value) == wanted ? load_kept(a, value, at[KEPT]) : damaged(name);
    if (status == MU_OK && at[SUMMED] > 0)
        status = load_sum(a, value, next, at[SUMMED]);
    a->step = at[STEP];
    a->closed = at[CLOSED] != 0;
    if (status == MU_OK)
        return a;
    mu_release(a);
    return NULL;
}
