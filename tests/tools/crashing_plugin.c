// A PJRT plugin that ends its process when it is opened, as one does that finds another driver than it was made for.
// MU_PLUGIN_DOES says how: "exit" with exit code 0; "talk", it writes many lines and then has no table of functions.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) const void *GetPjrtApi(void);

const void *GetPjrtApi(void)
{
    enum { LINES = 5000 };
    const char *what = getenv("MU_PLUGIN_DOES");
    if (what && strcmp(what, "exit") == 0)
        exit(0);
    if (!what || strcmp(what, "talk") != 0)
        abort();
    for (int i = 0; i < LINES; i++)
        fprintf(stderr, "line %d of a plugin that says much\n", i);
    return NULL;
}
