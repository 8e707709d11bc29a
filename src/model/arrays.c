// Samples of fit, evaluate and predict: makes a dataset of batches of rows in memory, as Keras does.
#include "data/dataset.h"
#include "model/model.h"

enum { DEFAULT_BATCH_SIZE = 32 };

static mu_dataset *refuse(const char *function, const char *what, const void *given)
{
    mu__error(MU_INVALID_ARGUMENT, "%s: %s is of type %s; expected %s", function, what,
              mu__is_object(given) ? ((const mu_object *)given)->type->name : "text",
              strcmp(what, "y") == 0 ? "a tensor or a value of labels, one row per sample"
                                     : "a dataset, a tensor or a value, such as a list of inputs and labels");
    return NULL;
}

static mu_value *rows_of(const void *given)
{
    void *rows = (void *)(uintptr_t)given;
    return mu__is(given, &mu__tensor_type) ? mu_of(rows) : mu__is(given, &mu__value_type) ? rows : NULL;
}

static mu_dataset *batches_of(const mu_samples *samples, const char *function)
{
    mu_value *x = rows_of(samples->x), *y = samples->y ? rows_of(samples->y) : NULL;
    if (mu__pending())
        return NULL;
    if (!x)
        return refuse(function, "x", samples->x);
    if (samples->y && !y)
        return refuse(function, "y", samples->y);
    mu_dataset *rows = mu_dataset_from_tensor_slices(y ? mu_list(x, y, MU_END) : x);
    const int64_t n = rows ? mu_dataset_cardinality(rows) : 0;
    if (samples->shuffle && n > 1)
        rows = mu_dataset_shuffle(rows, n);
    return rows ? mu_dataset_batch(rows, samples->batch_size ? samples->batch_size : DEFAULT_BATCH_SIZE) : NULL;
}

mu_dataset *mu__samples_dataset(const mu_samples *samples, const char *function)
{
    const bool batched = mu__is(samples->x, &mu__dataset_type);
    if (samples->batch_size < 0 || (batched && (samples->y || samples->batch_size > 0))) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %s", function,
                  samples->batch_size < 0 ? "the batch size is negative; leave it out for 32"
                  : samples->y ? "x is a dataset, whose elements have the labels; leave y out"
                               : "x is a dataset, which has its batches already (mu_dataset_batch); leave out "
                                 ".batch_size");
        return NULL;
    }
    return batched || !samples->x ? (mu_dataset *)(uintptr_t)samples->x : batches_of(samples, function);
}
