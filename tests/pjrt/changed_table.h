// Puts functions of a test's own into the table of a plugin that is in use, to count, change or delay its calls.
#ifndef MU_TESTS_PJRT_CHANGED_TABLE_H
#define MU_TESTS_PJRT_CHANGED_TABLE_H

#include "engine/pjrt/pjrt.h"

#include <stdlib.h>
#include <string.h>

typedef struct changed_function {
    pj_function function;
    pj_call *call;
} changed_function;

// Returns the plugin's own table through `own`. The caller frees the result after mu_exit, or gives it to
// exit_and_free_table as its state.
static inline pj_api *change_table(mu_pjrt_client *client, int n, const changed_function *changed, const pj_api **own)
{
    pj_api *table = malloc(client->api->size);
    if (!table)
        abort();
    memcpy(table, client->api, client->api->size);
    *own = client->api;
    for (int i = 0; i < n; i++)
        table->functions[changed[i].function] = changed[i].call;
    client->api = table;
    return table;
}

static inline int exit_and_free_table(void **state)
{
    mu_exit(true);
    free(*state);
    return 0;
}

#endif
