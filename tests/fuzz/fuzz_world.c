// Fuzzes what a worker tells of its devices: nothing is read beyond the block, and only a whole one is taken.
#include "distribute/distribute.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

// The first byte is the number of devices that are expected of each of two workers, of which this is the second.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const int n = data[0];
    int64_t *ids = malloc(sizeof *ids * ((size_t)n + 1));
    void *block = malloc(bytes); // ends where the bytes end
    if (!ids || !block)
        abort();
    memcpy(block, data + 1, bytes - 1);
    ids[n] = 77;
    const bool taken = mu__world_read(block, bytes - 1, 1, 2, n, ids);
    if (ids[n] != 77 || (taken && bytes - 1 != 4 * sizeof(int32_t) + (size_t)n * sizeof *ids))
        abort();
    free(block);
    free(ids);
    if (mu_error_take().code != MU_OK)
        abort();
    return 0;
}
