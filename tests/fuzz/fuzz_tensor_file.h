// What the fuzzers of files with tensors share: any bytes are refused with a record, or give tensors of the promised
// sizes. The readers want a file, so the bytes go through one that lives in memory.
#ifndef FUZZ_TENSOR_FILE_H
#define FUZZ_TENSOR_FILE_H

#include "io/io.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static inline int load_bytes(const uint8_t *data, size_t bytes)
{
    char path[64];
    const int fd = memfd_create("tensors", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mu_pool *pool = mu_pool_open();
    mu_value *map = mu_load_tensors(path);
    if (!map == !mu_error_code())
        abort();
    mu_error_take();
    mu_pool_close(pool);
    close(fd);
    return 0;
}

#endif
