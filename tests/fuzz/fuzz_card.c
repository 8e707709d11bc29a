// Fuzzes what a process tells of itself when it joins a group: what is taken can be an index and can be printed.
#include "comm/collectives/group.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { PROCESSES = 5 };
    mu_card card = {0};
    if (bytes > 0)
        memcpy(&card, data, MU_MIN(bytes, sizeof card));
    const bool good = mu__card_clean(&card, PROCESSES);
    if (memchr(card.isa, '\0', sizeof card.isa) == NULL)
        abort();
    if (good && (card.leader < 0 || card.leader >= PROCESSES))
        abort();
    (void)mu_communication_name((mu_communication)card.implementation);
    return 0;
}
