// Fuzzes the file reader and its gzip: any bytes are refused with a record, or give at most the limit.
// The first byte chooses the limit, the rest is the file, which lives in memory.
#include "base/base.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const size_t limit = (size_t)1 << data[0] % 24;
    char path[64];
    const int fd = memfd_create("file", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 1, bytes - 1) != (ssize_t)(bytes - 1))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *content;
    size_t n;
    const mu_status status = mu__file_read(path, limit, &content, &n);
    if ((status == MU_OK) != (content != NULL) || status != mu_error_code() || n > limit)
        abort();
    if (content != NULL && ((const char *)content)[n] != '\0')
        abort();
    mu__free(content);
    mu_error_take();
    close(fd);
    return 0;
}
