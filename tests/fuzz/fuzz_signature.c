// Fuzzes the signatures of collectives that hosts send each other; the input is two of them. An accepted signature is
// within its bounds, and any two can be described in an error.
#include "comm/collectives/group.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static mu_signature signatures[2];
    char text[MU_TEXT_BYTES], part[MU_FORM_TEXT];
    memset(signatures, 0, sizeof signatures);
    if (bytes > 0)
        memcpy(signatures, data, MU_MIN(bytes, sizeof signatures));
    for (int i = 0; i < 2; i++) {
        demand(strlen(mu__signature_text(&signatures[i], text)) < sizeof text);
        for (const char *c = text; *c != '\0'; c++)
            demand((unsigned char)*c >= 0x20);
        if (!mu__signature_can_be(&signatures[i]))
            continue;
        demand((size_t)signatures[i].window <= MU_WINDOW_BYTES);
        demand(strlen(signatures[i].same.name) < MU_SIGNATURE_NAME);
    }
    demand(strlen(mu__form_part(&signatures[0].form, &signatures[1].form, part)) < sizeof part);
    demand(mu_error_take().code == MU_OK);
    return 0;
}
