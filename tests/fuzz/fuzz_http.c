// Fuzzes the request that strangers on the loopback send for a server's numbers: whatever it is, it gets one answer,
// and more bytes change it only while the request is not complete.
#include "rpc/server/call_metrics.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    // In a block of its own, so that a sanitizer sees each byte too far.
    char *text = calloc(bytes > 0 ? bytes : 1, 1);
    if (text == NULL)
        return 0;
    if (bytes > 0)
        memcpy(text, data, bytes);
    const mu_http whole = mu__http_read(text, bytes);
    if (bytes >= MU_HTTP_MOST && whole == MU_HTTP_MORE)
        abort();
    if (bytes > 0 && mu__http_read(text, bytes - 1) == MU_HTTP_BAD && whole != MU_HTTP_BAD)
        abort();
    free(text);
    return 0;
}
