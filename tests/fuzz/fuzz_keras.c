// Fuzzes the reader of Keras's archives: any bytes are refused with a record, or give tensors of the promised sizes.
#include "io/io.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    const int fd = memfd_create("keras", MFD_CLOEXEC);
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
