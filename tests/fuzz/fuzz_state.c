// Fuzzes the place of a pipeline, which workers take over from the chief: it is refused with a record, or the pipeline
// continues from there and ends.
#include "data/dataset.h"

#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    mu_pool *pool = mu_pool_open();
    mu_dataset *numbers = mu_dataset_shuffle(mu_dataset_range(0, 40, 1), 8, .seed = 3);
    mu_iterator *iterator = mu_iterate(mu_dataset_batch(mu_dataset_repeat(numbers, 2), 7));
    if (!iterator)
        abort();
    if (mu_iterator_restore(iterator, text) == MU_OK)
        for (int n = 0; n < 100 && mu_next(iterator); n++)
            continue;
    mu_error_take();
    mu_pool_close(pool);
    free(text);
    return 0;
}
