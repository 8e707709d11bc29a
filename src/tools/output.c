// Output that the subcommands share.
#include "tools/tools.h"

#include <errno.h>

void mu__tool_print_name(const char *name, int width)
{
    int printed = 0;
    for (; *name; name++, printed++)
        putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
    for (; printed < width; printed++)
        putchar(' ');
}

// Output is buffered, so a write may fail only here.
bool mu__tool_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    mu__error(MU_RESOURCE_EXHAUSTED, "cannot write to standard output: %s", strerror(errno));
    return false;
}
