// Fuzzes the parsers of tf.train.Example and SequenceExample: any bytes are refused with a record, or give a value, and
// a batch of the same example twice gives one if the example does.
#include "data/dataset.h"

#include <muster/example.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const mu_feature features[] = {
    {.name = "f", .dtype = MU_F32, .length = MU_FEATURE_VARIABLE, .lengths = "n"},
    {.name = "i", .dtype = MU_I64, .length = MU_FEATURE_VARIABLE},
    {.name = "s", .dtype = MU_STRING, .length = MU_FEATURE_VARIABLE},
};

static bool parse(mu_tensor *examples, bool sequential)
{
    mu_value *value = sequential ? mu_parse_sequence_example(examples, 3, features, 3, features)
                                 : mu_parse_example(examples, 3, features);
    const mu_status status = mu_error_take().code;
    if ((value != NULL) != (status == MU_OK))
        abort();
    return value != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    const mu_string text = {.bytes = (const char *)data, .n = bytes}, twice[] = {text, text};
    mu_tensor *one = mu_tensor_byte_strings(0, NULL, &text), *batch = mu_tensor_byte_strings(1, &(int64_t){2}, twice);
    for (int sequential = 0; sequential < 2; sequential++)
        if (parse(one, sequential) != parse(batch, sequential))
            abort();
    mu_pool_close(pool);
    return 0;
}
