// Fuzzes what a coordinator reads of a server: the input as a value, which is the answer to a question about the
// server's stores. Whatever it is, the numbers that are believed leave room to count on.
#include "rpc/channel.h"
#include "rpc/stores/store.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_rows(const mu_value *answer)
{
    const int64_t *rows, n = mu__state_rows(answer, &rows);
    for (int64_t i = 0; i < n * MU_N_STATE; i += MU_N_STATE) {
        const int64_t counts[] = {rows[i + MU_STATE_EPOCH], rows[i + MU_STATE_CUT], rows[i + MU_STATE_LOST]};
        for (size_t k = 0; k < MU_COUNT(counts); k++)
            if (counts[k] < 0 || counts[k] > INT64_MAX / 1024)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_value *answer = NULL;
    mu_message *message = mu__message_new(bytes);
    if (message == NULL)
        abort();
    mu__put_bytes(message->data, data, bytes);
    if (mu__message_value(message, 0, &answer) == MU_OK)
        check_rows(answer);
    if (answer != NULL && mu_error_code() != MU_OK)
        abort();
    mu_error_take();
    mu_release(answer);
    mu_release(message);
    return 0;
}
