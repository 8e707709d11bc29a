// `muster config`: the settings as a program started here would have them.
#include "tools/tools.h"

bool mu__tool_config(int n, char **arguments)
{
    if (!mu__tool_no_arguments("config", n, arguments))
        return false;
    mu__settings_print(stdout);
    return true;
}
