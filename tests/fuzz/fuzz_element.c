// Fuzzes the structure of a worker's elements, which one that has no data learns from another: it is refused with a
// record, or is a value that is written again as the same text.
#include "distribute/distribute.h"

#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    mu_pool *pool = mu_pool_open();
    mu_value *value = mu__element_from_text(text);
    if (!value == !mu_error_code())
        abort();
    if (value) {
        char *written = mu__element_text(value);
        mu_value *again = mu__element_from_text(written);
        char *twice = again ? mu__element_text(again) : NULL;
        if (!twice || strcmp(written, twice) != 0)
            abort();
        mu__free(written);
        mu__free(twice);
        mu_release(again);
    }
    mu_release(value);
    mu_error_take();
    mu_pool_close(pool);
    free(text);
    return 0;
}
