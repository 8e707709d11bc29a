// The `muster` command: reads the options before the subcommand and runs it (commands.c). The exit code is one of
// docs/exit-codes.md, or that of the program that `muster launch` ran.
//
// If the reader of the output closes the pipe early, the command ends silently, as Unix tools do; other failures to
// write output are errors.
#include "tools/tools.h"

#include <signal.h>

int main(int argc, char **argv)
{
    mu_tool_arguments arguments;
    signal(SIGPIPE, SIG_DFL); // a parent may have ignored SIGPIPE; then a closed pipe would be an error
    if (mu__tool_parse(&mu__tool_muster, argc, argv, &arguments) != MU_OK)
        return mu_exit(false);
    if (!arguments.help)
        return mu__tool_muster.main(&arguments);
    mu__tool_print_help(&mu__tool_muster, stdout);
    return mu_exit(mu__tool_flush());
}
