// What the fuzzers of file readers share: the bytes as a file in memory, and a dataset of it run to its end.
#ifndef MU_FUZZ_DATASET_FILE_H
#define MU_FUZZ_DATASET_FILE_H

#include "data/dataset.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FUZZ_ELEMENTS = 1000 };

// Any bytes are refused with a record, or give elements and then an end.
static inline int fuzz_file(const uint8_t *data, size_t bytes, mu_dataset *(*open)(const char *path))
{
    char path[64];
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mu_pool *pool = mu_pool_open();
    mu_dataset *dataset = open(path);
    if (!dataset == !mu_error_code())
        abort();
    int n = 0;
    MU_EACH(element, dataset)
        if (n++ == FUZZ_ELEMENTS)
            break;
    mu_error_take();
    mu_pool_close(pool);
    close(fd);
    return 0;
}

#endif
