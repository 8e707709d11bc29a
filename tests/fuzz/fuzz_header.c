// Fuzzes what a worker says of its tensor before it sends the bytes: what is taken can be allocated or refused, its
// bytes can be counted, and it is written as it was read.
#include "distribute/distribute.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t header[MU_HEADER_INTS] = {0}, again[MU_HEADER_INTS];
    mu_spec spec;
    if (bytes > 0)
        memcpy(header, data, MU_MIN(bytes, sizeof header));
    if (mu__header_read(header, &spec)) {
        const mu_tensor tensor = {.dtype = spec.dtype, .shape = spec.shape};
        if (spec.shape.rank > MU_MAX_RANK || mu__elements(&spec.shape) < 0 || mu__spec_bytes(&spec) > PTRDIFF_MAX)
            abort();
        mu__header_write(&tensor, again);
        if (memcmp(header, again, sizeof *header * (size_t)(2 + spec.shape.rank)) != 0)
            abort();
    }
    if (mu_error_take().code != MU_OK)
        abort();
    return 0;
}
