// What the plugin's tests share: without the plugin they are skipped, with a message.
#ifndef MU_TESTS_PJRT_SKIP_H
#define MU_TESTS_PJRT_SKIP_H

#include <stdio.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static inline int plugin_missing(void)
{
    if (access(MU_TEST_PLUGIN, R_OK) == 0)
        return 0;
    fprintf(stderr, "SKIPPED: %s is missing (pjrt/fetch makes it); nothing of the PJRT engine was tested here\n",
            MU_TEST_PLUGIN);
    return 1;
}

#endif
