// Sources in memory: slices of tensors, whole tensors as one element, and ranges of numbers.
//
// An iterator returns row numbers; the stage that needs elements gathers the rows. Images are stored as bytes and
// become floats in the gather. This file does not depend on file formats: readers fill the columns.
#include "data/dataset.h"

// ---- Rows ---------------------------------------------------------------------------------------

static void rows_destroy(void *object)
{
    mu_rows *rows = object;
    if (rows->free_source != NULL)
        rows->free_source(rows->source);
    mu_release(rows->spec);
    mu__free(rows->columns);
}

static mu_type rows_type = {.name = "rows", .destroy = rows_destroy};

mu_rows *mu__rows_new(int64_t n, int n_columns, mu_value *spec, void *source, void (*free_source)(void *source))
{
    mu_rows *rows = spec != NULL ? mu__new(&rows_type, sizeof *rows) : NULL;
    if (rows == NULL) {
        if (free_source != NULL)
            free_source(source);
        mu_release(spec);
        return NULL;
    }
    rows->n = n;
    rows->n_columns = n_columns;
    rows->spec = spec;
    rows->source = source;
    rows->free_source = free_source;
    rows->columns = mu__calloc((size_t)n_columns, sizeof *rows->columns);
    if (rows->columns == NULL) {
        mu_release(rows);
        return NULL;
    }
    return rows;
}

// A byte divided by `divisor`, correctly rounded, without a division: x * high is exact (16 bits times 8),
// and x * low is far below the last place of the sum.
static void scale_bytes(const uint8_t *restrict x, int64_t n, int divisor, float *restrict y)
{
    double factor = 1.0 / divisor;
    uint32_t bits;
    float high = (float)factor;
    memcpy(&bits, &high, sizeof bits);
    bits &= 0xffffff00u;
    memcpy(&high, &bits, sizeof high);
    float low = (float)(factor - (double)high);
    for (int64_t i = 0; i < n; i++) {
        float value = (float)x[i];
        y[i] = value * high + value * low;
    }
}

static void gather_column(const mu_column *column, const int64_t *index, int64_t count, void *out)
{
    int64_t elements = mu__elements(&column->spec.shape);
    size_t from_bytes = (size_t)elements * mu_dtype_bytes(column->stored);
    size_t to_bytes = (size_t)elements * mu_dtype_bytes(column->spec.dtype);
    for (int64_t i = 0; i < count; i++) {
        const char *row = (const char *)column->data + (size_t)index[i] * from_bytes;
        char *to = (char *)out + (size_t)i * to_bytes;
        if (i + 2 < count) {
            const char *later = (const char *)column->data + (size_t)index[i + 2] * from_bytes;
            for (size_t byte = 0; byte < from_bytes && byte < 4096; byte += 64)
                __builtin_prefetch(later + byte);
        }
        if (column->divisor != 1)
            scale_bytes((const uint8_t *)row, elements, column->divisor, (float *)(void *)to);
        else if (column->stored == column->spec.dtype)
            memcpy(to, row, from_bytes);
        else
            mu__convert(column->spec.dtype, to, column->stored, row, elements);
    }
}

mu_status mu__rows_gather(mu_rows *rows, const int64_t *index, int64_t count, void *const *out)
{
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++)
        end = MU_MAX(end, index[i] + 1);
    if (rows->ready != NULL)
        MU_TRY(rows->ready(rows, end));
    for (int i = 0; i < rows->n_columns; i++)
        if (rows->columns[i].strings == NULL)
            gather_column(&rows->columns[i], index, count, out[i]);
    return MU_OK;
}

// Strings of a row are a view, numbers are gathered.
static mu_tensor *element_column(const mu_column *column, int64_t row)
{
    const mu_tensor *strings = column->strings;
    if (strings == NULL)
        return mu__tensor_alloc(column->spec.dtype, &column->spec.shape);
    return column->whole ? mu__tensor_view(strings->buffer, strings->offset, MU_STRING, &strings->shape)
                         : mu__row_view(strings, row, 1, true);
}

mu_value *mu__rows_element(mu_rows *rows, int64_t row)
{
    mu_object **leaves = mu__calloc((size_t)rows->n_columns, sizeof *leaves);
    void **data = mu__calloc((size_t)rows->n_columns, sizeof *data);
    mu_value *value = NULL;
    if (leaves == NULL || data == NULL)
        goto out;
    for (int i = 0; i < rows->n_columns; i++) {
        mu_tensor *tensor = element_column(&rows->columns[i], row);
        if (tensor == NULL)
            goto out;
        leaves[i] = &tensor->object;
        data[i] = mu__host_write(tensor);
    }
    if (mu__rows_gather(rows, &row, 1, data) == MU_OK)
        value = mu__value_pack(rows->spec, leaves, rows->n_columns);
out:
    for (int i = 0; leaves != NULL && i < rows->n_columns; i++)
        mu_release(leaves[i]);
    mu__free(leaves);
    mu__free(data);
    return value;
}

// ---- The stage that hands rows out --------------------------------------------------------------

typedef struct rows_args {
    mu_rows *rows; // retained
    bool path;     // its only row is a file name
} rows_args;

static const mu_owned_field rows_owned[] = {{MU_OWNS_OBJECT, offsetof(rows_args, rows)}, {MU_OWNS_END, 0}};
static const mu_sent_field rows_sent[] = {
    MU_SENDS_OBJECT(rows_args, rows, &mu__rows_form), MU_SENDS_INT(rows_args, path, 0, 1), {.kind = MU_SENT_END}};

static mu_rows *rows_of(const mu_dataset *dataset) { return ((const rows_args *)dataset->args)->rows; }

typedef struct counter {
    int64_t at;
} counter;

static mu_status rows_next(mu_stage *stage, mu_item *item, bool *end)
{
    counter *state = stage->state;
    mu_rows *rows = rows_of(stage->dataset);
    *end = state->at >= rows->n;
    if (!*end)
        *item = (mu_item){.rows = rows, .row = state->at++};
    return MU_OK;
}

static mu_status rows_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    counter *state = stage->state;
    *skipped = MU_MIN(count, rows_of(stage->dataset)->n - state->at);
    state->at += *skipped;
    return MU_OK;
}

static int64_t rows_cardinality(const mu_dataset *dataset) { return rows_of(dataset)->n; }

static mu_value *rows_spec(const mu_dataset *dataset) { return mu_retain(rows_of(dataset)->spec); }

const mu_stage_ops mu__rows_stage = {
    .name = "rows",
    .sent = rows_sent,
    .state_bytes = sizeof(counter),
    .args_bytes = sizeof(rows_args),
    .owned = rows_owned,
    .next = rows_next,
    .skip = rows_skip,
    .cardinality = rows_cardinality,
    .spec = rows_spec,
};

mu_dataset *mu__dataset_of_rows(mu_rows *rows, bool path)
{
    return rows != NULL ? mu__give(mu__dataset_new(&mu__rows_stage, &(rows_args){rows, path}, 0, NULL)) : NULL;
}

bool mu__dataset_is_path(const mu_dataset *dataset)
{
    return dataset->ops == &mu__rows_stage && ((const rows_args *)dataset->args)->path;
}

// ---- Tensors as rows ----------------------------------------------------------------------------

static mu_status drop_axis(mu_spec *leaf, int64_t number)
{
    (void)number;
    if (leaf->shape.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "a scalar has no axis 0 to cut; use mu_dataset_from_tensors, or give vectors");
    leaf->shape.rank--;
    memmove(leaf->shape.dims, leaf->shape.dims + 1, (size_t)leaf->shape.rank * sizeof leaf->shape.dims[0]);
    return MU_OK;
}

static mu_status keep_axes(mu_spec *leaf, int64_t number)
{
    (void)leaf, (void)number;
    return MU_OK;
}

// Checks the tensors and returns how many rows they have; -1 on error.
static int64_t count_rows(mu_object *const *leaves, int n, bool slices)
{
    int64_t rows = 1;
    for (int i = 0; i < n; i++) {
        if (!mu__is(leaves[i], &mu__tensor_type) || ((mu_tensor *)leaves[i])->buffer == NULL) {
            mu__error(MU_INVALID_ARGUMENT,
                      "component %d of the value is not a tensor with elements; datasets are made of those", i);
            return -1;
        }
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        if (mu__host_read(tensor) == NULL)
            return -1;
        if (!slices || tensor->shape.rank == 0)
            continue;
        if (i > 0 && tensor->shape.dims[0] != rows) {
            mu__error(MU_INVALID_ARGUMENT,
                      "component %d has %lld rows and component 0 has %lld; all must have the same number", i,
                      (long long)tensor->shape.dims[0], (long long)rows);
            return -1;
        }
        rows = tensor->shape.dims[0];
    }
    return rows;
}

static mu_rows *rows_of_value(mu_value *value, mu_object *const *leaves, int n, bool slices)
{
    int64_t n_rows = count_rows(leaves, n, slices);
    mu_value *spec = n_rows >= 0 ? mu__map_spec(mu_retain(value), slices ? drop_axis : keep_axes, 0) : NULL;
    mu_rows *rows = spec != NULL ? mu__rows_new(n_rows, n, spec, mu_retain(value), mu_release) : NULL;
    for (int i = 0; rows != NULL && i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        rows->columns[i] = (mu_column){.data = mu__host_read(tensor),
                                       .stored = tensor->dtype,
                                       .spec = mu__spec_of(tensor),
                                       .divisor = 1,
                                       .whole = !slices,
                                       .strings = mu__has_strings(tensor) ? tensor : NULL};
        if (slices)
            drop_axis(&rows->columns[i].spec, 0);
    }
    return rows;
}

mu_rows *mu__rows_of_tensors(mu_value *value, bool slices)
{
    int n = value != NULL ? mu__value_flatten(value, NULL, 0) : 0;
    if (n == 0) {
        mu__error(MU_INVALID_ARGUMENT, "a dataset needs a value with at least one tensor; this one has none");
        return NULL;
    }
    mu_object **leaves = mu__calloc((size_t)n, sizeof *leaves);
    if (leaves == NULL)
        return NULL;
    mu__value_flatten(value, leaves, n);
    mu_rows *rows = rows_of_value(value, leaves, n, slices);
    mu__free(leaves);
    return rows;
}

mu_dataset *mu_dataset_from_tensors(mu_value *value)
{
    return mu__pending() ? NULL : mu__dataset_of_rows(mu__rows_of_tensors(value, false), false);
}

mu_dataset *mu_dataset_from_tensor_slices(mu_value *value)
{
    return mu__pending() ? NULL : mu__dataset_of_rows(mu__rows_of_tensors(value, true), false);
}

// ---- Ranges -------------------------------------------------------------------------------------

typedef struct range_args {
    int64_t start, stop, step;
} range_args;

static const mu_sent_field range_sent[] = {MU_SENDS_INT(range_args, start, INT64_MIN, INT64_MAX),
                                           MU_SENDS_INT(range_args, stop, INT64_MIN, INT64_MAX),
                                           MU_SENDS_INT(range_args, step, INT64_MIN, INT64_MAX),
                                           {.kind = MU_SENT_END}};

static int64_t range_cardinality(const mu_dataset *dataset)
{
    const range_args *args = dataset->args;
    int64_t start = args->start, stop = args->stop, step = args->step;
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (int64_t)MU_MIN((span - 1) / stride + 1, (uint64_t)INT64_MAX);
}

static mu_status range_next(mu_stage *stage, mu_item *item, bool *end)
{
    counter *state = stage->state;
    const range_args *args = stage->dataset->args;
    *end = state->at >= range_cardinality(stage->dataset);
    if (*end)
        return MU_OK;
    int64_t number = (int64_t)((uint64_t)args->start + (uint64_t)state->at * (uint64_t)args->step);
    item->value = mu__number_value(number);
    state->at++;
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_status range_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    counter *state = stage->state;
    *skipped = MU_MIN(count, range_cardinality(stage->dataset) - state->at);
    state->at += *skipped;
    return MU_OK;
}

static mu_value *range_spec(const mu_dataset *dataset)
{
    (void)dataset;
    return mu__spec_leaf(MU_I64, &mu__scalar_shape);
}

static mu_status check_step(int64_t step)
{
    return step != 0 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "the step of a range is 0; give another number");
}

static mu_status check_range(const mu_dataset *dataset)
{
    return check_step(((const range_args *)dataset->args)->step);
}

const mu_stage_ops mu__range_stage = {
    .name = "range",
    .sent = range_sent,
    .check = check_range,
    .state_bytes = sizeof(counter),
    .args_bytes = sizeof(range_args),
    .next = range_next,
    .skip = range_skip,
    .cardinality = range_cardinality,
    .spec = range_spec,
};

mu_dataset *mu_dataset_range(int64_t start, int64_t stop, int64_t step)
{
    if (mu__pending() || check_step(step) != MU_OK)
        return NULL;
    return mu__give(mu__dataset_new(&mu__range_stage, &(range_args){start, stop, step}, 0, NULL));
}
