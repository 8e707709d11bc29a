// Samples of fit, evaluate and predict: makes a dataset of batches of rows in memory, as Keras does.
#include "data/dataset.h"
#include "model/core/layer.h"
#include "model/training/samples.h"

#include <math.h>
#include <muster/ops.h>

enum { DEFAULT_BATCH_SIZE = 32 };

static mu_dataset *refuse(const char *function, const char *what, const void *given)
{
    mu__error(MU_INVALID_ARGUMENT, "%s: %s is of type %s; expected %s", function, what,
              mu__is_object(given) ? ((const mu_object *)given)->type->name : "text",
              strcmp(what, "sample_weight") == 0 ? "a tensor with a weight for each sample"
              : strcmp(what, "y") == 0           ? "a tensor or a value of labels, one row per sample"
                                       : "a dataset, a tensor or a value, such as a list of inputs and labels");
    return NULL;
}

static mu_value *rows_of(const void *given)
{
    void *rows = (void *)(uintptr_t)given;
    return mu__is(given, &mu__tensor_type) ? mu_of(rows) : mu__is(given, &mu__value_type) ? rows : NULL;
}

// What is compared with the rows of the first tensor.
typedef struct rows_check {
    const char *function, *first; // the argument that has the first tensor
    int64_t rows;                 // of it; -1: none yet
} rows_check;

// `name` is the argument's; `number` counts its tensors.
static mu_status need_rows(rows_check *check, const mu_value *part, const char *name, int *number)
{
    for (int i = 0; part && i < part->n; i++)
        MU_TRY(need_rows(check, part->items[i], name, number));
    if (!part || !part->leaf || !mu__is(part->leaf, &mu__tensor_type))
        return MU_OK;
    const mu_tensor *tensor = (const mu_tensor *)part->leaf;
    const int at = (*number)++;
    if (tensor->shape.rank == 0)
        return MU_OK; // which mu_dataset_from_tensor_slices refuses
    if (check->rows < 0) {
        check->rows = tensor->shape.dims[0];
        check->first = name;
    }
    return tensor->shape.dims[0] == check->rows
               ? MU_OK
               : mu__error(
                     MU_INVALID_ARGUMENT,
                     "%s: tensor %d of %s has %lld rows, and the first one of %s has %lld; all must have the same "
                     "number, a row for each sample",
                     check->function, at, name, (long long)tensor->shape.dims[0], check->first, (long long)check->rows);
}

mu_value *mu__samples_element(const mu_samples *samples, const char *function)
{
    mu_value *x = rows_of(samples->x), *y = samples->y ? rows_of(samples->y) : NULL;
    mu_value *weights = samples->weights ? rows_of(samples->weights) : NULL;
    if (mu__pending())
        return NULL;
    if (!x)
        refuse(function, "x", samples->x);
    else if (samples->y && !y)
        refuse(function, "y", samples->y);
    else if (samples->weights && !weights)
        refuse(function, "sample_weight", samples->weights);
    else if (weights && !y)
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: sample_weight is given without y; give the labels as y, or the weights as the third part of "
                  "each element",
                  function);
    rows_check check = {.function = function, .rows = -1};
    const mu_value *parts[] = {x, y, weights};
    for (int i = 0; i < 3 && !mu__pending(); i++)
        need_rows(&check, parts[i], i == 0 ? y ? "x" : "the samples" : i == 1 ? "y" : "sample_weight", &(int){0});
    return mu__pending() ? NULL : weights ? mu_list(x, y, weights, MU_END) : y ? mu_list(x, y, MU_END) : x;
}

static mu_dataset *batches_of(const mu_samples *samples, const char *function)
{
    mu_value *element = mu__samples_element(samples, function);
    mu_dataset *rows = element ? mu_dataset_from_tensor_slices(element) : NULL;
    const int64_t n = rows ? mu_dataset_cardinality(rows) : 0;
    if (samples->shuffle && n > 1)
        rows = mu_dataset_shuffle(rows, n);
    return rows ? mu_dataset_batch(rows, samples->batch_size ? samples->batch_size : DEFAULT_BATCH_SIZE) : NULL;
}

mu_dataset *mu__samples_dataset(const mu_samples *samples, const char *function)
{
    const bool batched = mu__is(samples->x, &mu__dataset_type);
    if (samples->batch_size < 0 || (batched && (samples->y || samples->weights || samples->batch_size > 0))) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %s", function,
                  samples->batch_size < 0 ? "the batch size is negative; leave it out for 32"
                  : samples->y            ? "x is a dataset, whose elements have the labels; leave y out"
                  : samples->weights
                      ? "x is a dataset, whose elements have the weights as their third part; leave sample_weight out"
                      : "x is a dataset, which has its batches already (mu_dataset_batch); leave out .batch_size");
        return NULL;
    }
    return batched || !samples->x ? (mu_dataset *)(uintptr_t)samples->x : batches_of(samples, function);
}

// ---- Validation data out of the rows ------------------------------------------------------------

static mu_tensor *string_rows(const mu_tensor *tensor, int64_t begin, int64_t size)
{
    const int64_t n = tensor->shape.rank > 0 ? tensor->shape.dims[0] : 0, end = size < 0 ? n : begin + size;
    if (end <= n)
        return mu__give(mu__row_view(tensor, begin, end - begin, false));
    mu__error(MU_INVALID_ARGUMENT,
              "validation_split: a tensor of strings has %lld rows, and the first has more; all must have as many",
              (long long)n);
    return NULL;
}

// Rows [begin, begin + size) of every tensor in a nest; a negative size takes the rest.
static mu_value *take_rows(mu_value *nest, int64_t begin, int64_t size)
{
    const int n = mu__value_flatten(nest, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *part = NULL;
    bool whole = leaves != NULL;
    if (whole)
        mu__value_flatten(nest, leaves, n);
    for (int i = 0; whole && i < n; i++) {
        mu_tensor *tensor = (mu_tensor *)leaves[i];
        int64_t from[MU_MAX_RANK] = {begin}, sizes[MU_MAX_RANK] = {size};
        for (int k = 1; k < MU_MAX_RANK; k++)
            sizes[k] = -1;
        leaves[i] =
            (mu_object *)(mu__has_strings(tensor) ? string_rows(tensor, begin, size) : mu_slice(tensor, from, sizes));
        whole = leaves[i] != NULL;
    }
    if (whole)
        part = mu__give(mu__value_pack(nest, leaves, n));
    mu__free(leaves);
    return part;
}

mu_status mu__samples_split(mu_samples *samples, double share, mu_samples *rest, const char *function)
{
    if (!(share > 0 && share < 1))
        return mu__error(MU_INVALID_ARGUMENT, "%s: validation_split is %g; it must be above 0 and below 1", function,
                         share);
    if (mu__is(samples->x, &mu__dataset_type))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: validation_split takes rows of arrays, and x is a dataset; split it with mu_dataset_take "
                         "and mu_dataset_skip, and give .validation_data",
                         function);
    if (mu__creator_of(samples->x))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: validation_split takes rows of arrays, and x is a dataset creator; give "
                         ".validation_data, such as another creator",
                         function);
    mu_value *all = mu__samples_element(samples, function);
    mu_object *first = NULL;
    if (!all)
        return mu_error_code();
    mu__value_flatten(all, &first, 1);
    const int64_t n = first && mu_tensor_rank((mu_tensor *)first) > 0 ? mu_tensor_dim((mu_tensor *)first, 0) : 0;
    const int64_t at = (int64_t)floor((double)n * (1 - share));
    if (at < 1 || at >= n)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: validation_split is %g of %lld rows, which leaves %lld to train on; give more rows or another share",
            function, share, (long long)n, (long long)at);
    *rest = (mu_samples){.x = take_rows(all, at, -1), .batch_size = samples->batch_size};
    *samples = (mu_samples){.x = take_rows(all, 0, at), .batch_size = samples->batch_size, .shuffle = samples->shuffle};
    return mu_error_code();
}

// ---- Weights by class ---------------------------------------------------------------------------

// The class of each sample: labels are classes, or the largest of several columns.
static mu_tensor *class_of(mu_tensor *labels)
{
    if (mu_tensor_rank(labels) > 1 && mu_tensor_dim(labels, -1) > 1)
        return mu_argmax(labels, -1);
    if (mu_tensor_rank(labels) > 1)
        labels = mu_squeeze(labels, -1);
    return labels ? mu_cast(labels, MU_I64) : NULL;
}

static mu_value *add_class_weights(mu_value *element, void *arg)
{
    const mu_class_weights *by = arg;
    const int64_t n = by->n;
    const int parts = mu_value_count(element);
    if (parts != 2 || mu_value_kind_of(mu_value_at(element, 1)) != MU_VALUE_TENSOR) {
        mu__error(MU_INVALID_ARGUMENT, "class_weight: %s",
                  parts > 2   ? "the data have sample weights; give these or weights of classes, not both"
                  : parts < 2 ? "an element has no labels; give a list of inputs and labels"
                              : "the labels are those of several outputs; weights of classes go with one tensor of "
                                "labels, so give sample_weight, a weight for each sample of each output");
        return NULL;
    }
    mu_tensor *classes = class_of(mu_at(element, 1)), *weights = mu_tensor_new(MU_F64, 1, &n, by->weights);
    if (!classes || !weights)
        return NULL;
    mu_tensor *zero = mu_constant(classes->dtype, 0), *end = mu_constant(classes->dtype, (double)n);
    mu_tensor *known = mu_logical_and(mu_greater_equal(classes, zero), mu_less(classes, end));
    mu_tensor *found = mu_gather(weights, mu_where(known, classes, mu_zeros_like(classes)), 0, 0);
    mu_tensor *of_samples = mu_cast(mu_where(known, found, mu_ones_like(found)), mu__floatx());
    return of_samples ? mu_list(mu_value_at(element, 0), mu_value_at(element, 1), mu_of(of_samples), MU_END) : NULL;
}

mu_dataset *mu__class_weights(mu_dataset *data, const mu_class_weights *by, const char *function)
{
    if (!data || (by->n == 0 && !by->weights))
        return data;
    if (by->n < 1 || !by->weights) {
        mu__error(
            MU_INVALID_ARGUMENT,
            "%s: n_class_weight is %d and class_weight is %s; give an array of weights and its length, or neither",
            function, by->n, by->weights ? "an array" : "NULL");
        return NULL;
    }
    return mu_dataset_map(data, add_class_weights, (void *)(uintptr_t)by, .name = "class_weight");
}
