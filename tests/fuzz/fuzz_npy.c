// Fuzzes the readers of NumPy's files and archives: any bytes are refused with a record, or give tensors.
#include "data/formats/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_tensor *tensor = mu__npy_parse("array", data, bytes);
    if (!tensor == !mu_error_take().code)
        abort();
    mu_release(tensor);
    mu_value *map = mu__npz_parse("archive", data, bytes);
    if (!map == !mu_error_take().code)
        abort();
    mu_release(map);
    return 0;
}
