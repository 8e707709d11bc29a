// Parses batches of tf.train.Example and tf.train.SequenceExample into tensors.
//
// A feature is a column of rows: one for each example or, of a sequence, for each step of each. A first pass over the
// rows checks them and counts their values; the second writes them, followed by their padding, into one tensor.
#include "data/formats/example.h"

#include "data/formats/example_form.h"

// One feature of the result.
typedef struct column {
    const mu_feature *feature;
    const char *function;
    int64_t n_rows, per;     // rows; values of a step
    int64_t steps_of_record; // rows of one example
    mu_span *rows;           // [n_rows] Feature messages; NULL: there is none
    bool padded_rows;        // rows are steps of sequences; those without a message are padding
    bool empty_counts;       // a message without a list has 0 values, of any type; else it is as good as none
    mu_span *lists;          // [n_rows] their values
    int64_t *counts;         // [n_rows] how many values; -1: the row has none
    int64_t longest;         // steps of the longest row, of VARIABLE
} column;

static void column_free(column *c)
{
    mu__free(c->lists);
    mu__free(c->counts);
}

static mu_status damaged(const char *function, int64_t example)
{
    return mu__error(MU_DATA_LOSS,
                     "%s: the bytes of example %lld are not a serialised message of this kind; is the record whole?",
                     function, (long long)example);
}

// ---- First pass ---------------------------------------------------------------------------------

static mu_status wrong_count(const column *c, int64_t example, int64_t count)
{
    char text[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: example %lld has %lld values in feature '%s'; its shape %s takes %s%lld. Correct .shape, or "
                     "use MU_FEATURE_VARIABLE",
                     c->function, (long long)example, (long long)count, c->feature->name,
                     mu__shape_text(&c->feature->shape, text),
                     c->feature->length == MU_FEATURE_VARIABLE ? "a multiple of " : "", (long long)c->per);
}

static mu_status damaged_values(const column *c, int64_t example)
{
    return mu__error(MU_DATA_LOSS,
                     "%s: the values of feature '%s' in example %lld are damaged, or not all written in one way: "
                     "packed in one field, or each in its own; write the record again",
                     c->function, c->feature->name, (long long)example);
}

// A row that has no list of values.
static mu_status count_missing(const column *c, int64_t example, bool present)
{
    const mu_feature *feature = c->feature;
    const bool needed = present || !c->padded_rows;
    if (feature->length != MU_FEATURE_FIXED || !needed)
        return MU_OK;
    if (present && c->empty_counts)
        return c->per == 0 ? MU_OK : wrong_count(c, example, 0);
    if (feature->default_value != NULL && !c->padded_rows)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: example %lld has no feature '%s' (%s); correct the name, or give a .default_value",
                     c->function, (long long)example, feature->name, mu_dtype_name(feature->dtype));
}

static mu_status count_row(column *c, int64_t row)
{
    const mu_feature *feature = c->feature;
    const int64_t example = row / c->steps_of_record;
    const mu_span message = c->rows[row];
    mu_dtype dtype = MU_DTYPE_DEFAULT;
    c->counts[row] = -1;
    if (message.bytes != NULL && !mu__example_kind(message, c->padded_rows, &dtype, &c->lists[row]))
        return damaged(c->function, example);
    if (dtype == MU_DTYPE_DEFAULT)
        return count_missing(c, example, message.bytes != NULL);
    if (dtype != feature->dtype)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: example %lld has values of type %s in feature '%s', for which %s is wanted; correct .dtype",
            c->function, (long long)example, mu_dtype_name(dtype), feature->name, mu_dtype_name(feature->dtype));
    mu_value_sink sink = {0};
    if (mu__example_values(c->lists[row], c->padded_rows, dtype, &sink) != MU_OK)
        return damaged_values(c, example);
    c->counts[row] = sink.n;
    const bool fits = feature->length == MU_FEATURE_FIXED ? sink.n == c->per
                      : c->per == 0                       ? sink.n == 0
                                                          : sink.n % c->per == 0;
    if (!fits)
        return wrong_count(c, example, sink.n);
    c->longest = MU_MAX(c->longest, c->per > 0 ? sink.n / c->per : 0);
    return MU_OK;
}

static mu_status count_rows(column *c)
{
    c->per = mu__elements(&c->feature->shape);
    c->lists = mu__calloc((size_t)c->n_rows + 1, sizeof *c->lists);
    c->counts = mu__calloc((size_t)c->n_rows + 1, sizeof *c->counts);
    if (c->lists == NULL || c->counts == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t row = 0; row < c->n_rows; row++)
        MU_TRY(count_row(c, row));
    return MU_OK;
}

// ---- Second pass --------------------------------------------------------------------------------

// Writes values [from, to) of a row as the default.
static mu_status fill(const column *c, mu_value_sink *sink, int64_t n)
{
    const mu_tensor *value = c->feature->default_value;
    const bool whole = value != NULL && value->shape.rank > 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = whole ? i : 0;
        if (sink->strings != NULL) {
            const mu_string string = value != NULL ? mu__string_at(value, at) : (mu_string){"", 0};
            MU_TRY(mu__strings_add(sink->strings, string.bytes, string.n));
        } else if (c->feature->dtype == MU_F32) {
            ((float *)sink->numbers)[sink->n + i] = value != NULL ? ((const float *)mu__host_read(value))[at] : 0;
        } else {
            ((int64_t *)sink->numbers)[sink->n + i] = value != NULL ? ((const int64_t *)mu__host_read(value))[at] : 0;
        }
    }
    return MU_OK;
}

static mu_status write_rows(const column *c, mu_value_sink *sink)
{
    const int64_t width = c->feature->length == MU_FEATURE_FIXED ? c->per : c->longest * c->per;
    for (int64_t row = 0; row < c->n_rows; row++) {
        sink->n = row * width;
        if (c->counts[row] > 0)
            MU_TRY(mu__example_values(c->lists[row], c->padded_rows, c->feature->dtype, sink));
        MU_TRY(fill(c, sink, (row + 1) * width - sink->n));
    }
    return MU_OK;
}

// The tensor of a counted column, whose first axes are those of `before`; owned.
static mu_tensor *column_tensor(const column *c, mu_shape before)
{
    const mu_feature *feature = c->feature;
    mu_strings strings = {0};
    mu_shape shape = before;
    if (feature->length == MU_FEATURE_VARIABLE)
        shape.dims[shape.rank++] = c->longest;
    for (int i = 0; i < feature->shape.rank; i++)
        shape.dims[shape.rank++] = feature->shape.dims[i];
    if (mu__shape_check(&shape, c->function) != MU_OK)
        return NULL;
    const bool text = feature->dtype == MU_STRING;
    mu_tensor *tensor = text ? NULL : mu__tensor_alloc(feature->dtype, &shape);
    mu_value_sink sink = {.numbers = tensor != NULL ? mu__host_write(tensor) : NULL, .strings = text ? &strings : NULL};
    const mu_status status = tensor != NULL || text ? write_rows(c, &sink) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        return text ? mu__strings_end(&strings, &shape) : tensor;
    mu__strings_free(&strings);
    mu_release(tensor);
    return NULL;
}

static mu_tensor *lengths_tensor(const int64_t *lengths, int64_t n, bool batch)
{
    mu_tensor *tensor = mu__tensor_alloc(MU_I64, batch ? &(mu_shape){1, {n}} : &mu__scalar_shape);
    if (tensor != NULL && n > 0)
        memcpy(mu__host_write(tensor), lengths, (size_t)n * sizeof *lengths);
    return tensor;
}

// ---- The features of all examples ---------------------------------------------------------------

static mu_status add_features(const mu_records *records, const mu_feature *feature, mu_example_map map, mu_span *rows,
                              mu_leaves *made)
{
    column c = {.feature = feature,
                .function = records->function,
                .n_rows = records->n,
                .steps_of_record = 1,
                .rows = rows,
                .empty_counts = map == MU_EXAMPLE_CONTEXT};
    mu_status status = count_rows(&c);
    mu_shape before = records->batch ? MU_SHAPE(records->n) : mu__scalar_shape;
    if (status == MU_OK && !mu__build_add(made, column_tensor(&c, before)))
        status = mu_error_code();
    for (int64_t i = 0; status == MU_OK && feature->lengths != NULL && i < c.n_rows; i++)
        c.counts[i] = c.per > 0 ? MU_MAX(c.counts[i], 0) / c.per : 0;
    if (status == MU_OK && feature->lengths != NULL &&
        !mu__build_add(made, lengths_tensor(c.counts, c.n_rows, records->batch)))
        status = mu_error_code();
    column_free(&c);
    return status;
}

// Counts the steps of every example's sequence.
static mu_status count_steps(const mu_records *records, const mu_feature *feature, const mu_span *lists, int64_t *steps,
                             int64_t *longest)
{
    for (int64_t i = 0; i < records->n; i++) {
        size_t at = 0;
        mu_span step;
        bool bad = false;
        while (lists[i].bytes != NULL && mu__example_step(lists[i], &at, &step, &bad))
            steps[i]++;
        if (bad)
            return damaged(records->function, i);
        if (lists[i].bytes == NULL && feature->length == MU_FEATURE_FIXED && feature->default_value == NULL)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: example %lld has no sequence '%s' (%s); correct the name, or give a .default_value",
                             records->function, (long long)i, feature->name, mu_dtype_name(feature->dtype));
        *longest = MU_MAX(*longest, steps[i]);
    }
    return MU_OK;
}

static mu_status add_sequence(const mu_records *records, const mu_feature *feature, const mu_span *lists,
                              mu_leaves *made)
{
    int64_t longest = 0, *steps = mu__calloc((size_t)records->n + 1, sizeof *steps);
    column c = {.feature = feature, .function = records->function, .padded_rows = true};
    mu_status status = steps != NULL ? count_steps(records, feature, lists, steps, &longest) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && __builtin_mul_overflow(records->n, longest, &c.n_rows))
        status =
            mu__error(MU_RESOURCE_EXHAUSTED, "%s: sequence '%s' has too many steps", records->function, feature->name);
    c.steps_of_record = MU_MAX(longest, 1);
    if (status == MU_OK && (c.rows = mu__calloc((size_t)c.n_rows + 1, sizeof *c.rows)) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; status == MU_OK && i < records->n; i++) {
        size_t at = 0;
        bool bad = false;
        for (int64_t step = 0; step < steps[i]; step++)
            mu__example_step(lists[i], &at, &c.rows[i * longest + step], &bad);
    }
    if (status == MU_OK)
        status = count_rows(&c);
    const mu_shape before = records->batch ? MU_SHAPE(records->n, longest) : MU_SHAPE(longest);
    if (status == MU_OK && !mu__build_add(made, column_tensor(&c, before)))
        status = mu_error_code();
    if (status == MU_OK && feature->lengths != NULL &&
        !mu__build_add(made, lengths_tensor(steps, records->n, records->batch)))
        status = mu_error_code();
    column_free(&c);
    mu__free(c.rows);
    mu__free(steps);
    return status;
}

// Finds all features in all examples: found[feature * n + example].
static mu_status find(const mu_records *records, mu_example_map map, int n, const mu_feature *features, mu_span *found)
{
    const char **keys = mu__calloc((size_t)n + 1, sizeof *keys);
    mu_span *values = mu__calloc((size_t)n + 1, sizeof *values);
    mu_status status = keys != NULL && values != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++)
        keys[i] = features[i].name;
    for (int64_t record = 0; status == MU_OK && record < records->n; record++) {
        if (!mu__example_find(records->items[record], map, n, keys, values))
            status = damaged(records->function, record);
        for (int i = 0; i < n; i++)
            found[i * records->n + record] = values[i];
    }
    mu__free(keys);
    mu__free(values);
    return status;
}

mu_value *mu__example_parse(const mu_records *records, const mu_feature_list *list, mu_example_map map)
{
    mu_leaves made = {0};
    mu_span *found = mu__calloc((size_t)list->n * (size_t)records->n + 1, sizeof *found);
    mu_status status = found != NULL && mu__build_begin(&made, list->n_leaves) ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = find(records, map, list->n, list->items, found);
    for (int i = 0; status == MU_OK && i < list->n; i++)
        status = map == MU_EXAMPLE_LISTS ? add_sequence(records, &list->items[i], found + i * records->n, &made)
                                         : add_features(records, &list->items[i], map, found + i * records->n, &made);
    mu__free(found);
    return mu__build_end(&made, list->like);
}
