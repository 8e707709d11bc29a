// Fuzzes the tickets that hosts send each other at a rendezvous: the input is two of them. What is taken is within its
// bounds, and two that differ are put into words whatever they hold.
#include "comm/group.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static mu_ticket tickets[2];
    char text[MU_TEXT_BYTES], part[MU_FORM_TEXT];
    memset(tickets, 0, sizeof tickets);
    if (bytes > 0)
        memcpy(tickets, data, MU_MIN(bytes, sizeof tickets));
    for (int i = 0; i < 2; i++) {
        demand(strlen(mu__ticket_text(&tickets[i], text)) < sizeof text);
        for (const char *c = text; *c != '\0'; c++)
            demand((unsigned char)*c >= 0x20);
        if (mu__ticket_can_be(&tickets[i]))
            demand((size_t)tickets[i].window <= MU_WINDOW_BYTES && strlen(tickets[i].same.name) < MU_TICKET_NAME);
    }
    demand(strlen(mu__form_part(&tickets[0].form, &tickets[1].form, part)) < sizeof part);
    demand(mu_error_take().code == MU_OK);
    return 0;
}
