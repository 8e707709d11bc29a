// Fuzzes the descriptions of datasets that workers get: the input is a value, which must be refused with a reason or
// make a dataset, and what that is described as makes it again. Some of its elements are made, unless it may run
// for ever without giving any.
//
// Seeds are descriptions of pipelines (seeds/description).
#include "data/describe.h"
#include "rpc/rpc.h"

#include <stdlib.h>

enum { MOST_ELEMENTS = 8, MOST_LENGTH = 1000, MOST_SHAPE = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

// Whether every stage has few elements, none of which is large. Files are not opened: what is in them is not the input.
static bool is_short(const mu_dataset *dataset)
{
    const int64_t n = mu_dataset_cardinality(dataset);
    bool is = n >= 0 && n <= MOST_LENGTH;
    mu_value *spec = is ? mu__dataset_spec(dataset) : NULL;
    mu_leaves leaves = {0};
    is = spec != NULL && mu__leaves_of(spec, &leaves) == MU_OK;
    for (int i = 0; is && i < leaves.n; i++) {
        const mu_shape *shape = &mu__leaf(&leaves, i)->shape;
        for (int k = 0; k < shape->rank; k++)
            is = is && shape->dims[k] < MOST_SHAPE;
    }
    mu__leaves_free(&leaves);
    mu_release(spec);
    for (int i = 0; i < dataset->n_inputs && is; i++)
        is = is_short(dataset->inputs[i]);
    return is;
}

static void try_elements(mu_dataset *dataset)
{
    mu_iterator *iterator = mu__dataset_iterate(dataset);
    for (int i = 0; iterator != NULL && i < MOST_ELEMENTS && mu_next(iterator) != NULL; i++)
        ;
    mu_release(iterator);
    mu_error_take();
}

static void try_description(const mu_value *description)
{
    mu_dataset *dataset = mu__dataset_described(description);
    demand((dataset != NULL) == (mu_error_code() == MU_OK));
    if (dataset == NULL) {
        mu_error_take();
        return;
    }
    mu_value *written = mu__dataset_describe(dataset); // fails if a map's argument is not what its input gives
    mu_dataset *again = written != NULL ? mu__dataset_described(written) : NULL;
    demand(written == NULL || again != NULL);
    mu_error_take();
    mu_release(again);
    if (is_short(dataset))
        try_elements(dataset);
    mu_error_take();
    mu_release(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_value *value = NULL;
    mu_message *message = mu__message_new(bytes);
    if (bytes > 0)
        memcpy(message->data, data, bytes);
    if (mu__message_value(message, 0, &value) == MU_OK)
        try_description(value);
    mu_error_take();
    mu_release(value);
    mu_release(message);
    mu_pool_close(pool);
    return 0;
}
