// The list of subcommands, and the description of `muster` itself.
#include "tools/tools.h"

const mu_tool_command *const mu__tool_commands[] = {
    &mu__tool_launch,  &mu__tool_serve,
    &mu__tool_doctor,  &mu__tool_bench,
    &mu__tool_devices, &mu__tool_plugin,
    &mu__tool_config,  &mu__tool_ops,
    &mu__tool_fit,     &mu__tool_convert,
    &mu__tool_inspect, &mu__tool_explain,
    &mu__tool_key,     NULL,
};

const char *mu__tool_word(const mu_tool_command *command)
{
    const char *space = strchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

// ---- muster -------------------------------------------------------------------------------------

enum { VERSION };

static const mu_tool_option options[] = {
    [VERSION] = {.name = "version", .text = "print the version"},
    {.text = NULL},
};

static const mu_tool_command *find_command(const char *word)
{
    for (int i = 0; mu__tool_commands[i]; i++)
        if (strcmp(mu__tool_word(mu__tool_commands[i]), word) == 0)
            return mu__tool_commands[i];
    mu__error(MU_INVALID_ARGUMENT, "'%s' is not a command of muster; `muster --help` lists them", word);
    return NULL;
}

static int run_command(const mu_tool_command *command, const mu_tool_arguments *arguments)
{
    if (command->main)
        return command->main(arguments);
    bool ok = mu_init() == MU_OK && command->run(arguments);
    ok = mu__tool_flush() && ok;
    return mu_exit(ok);
}

static int print_help(const mu_tool_command *command)
{
    if (command)
        mu__tool_print_help(command, stdout);
    return mu_exit(mu__tool_flush() && command);
}

static int muster_main(const mu_tool_arguments *a)
{
    mu_tool_arguments own;
    if (a->values[VERSION]) {
        printf("muster %s\n", mu_version());
        return mu_exit(mu__tool_flush());
    }
    if (a->n == 0) {
        mu__tool_print_help(&mu__tool_muster, stderr);
        return 64; // EX_USAGE
    }
    if (strcmp(a->operands[0], "help") == 0)
        return print_help(a->n > 1 ? find_command(a->operands[1]) : &mu__tool_muster);
    const mu_tool_command *command = find_command(a->operands[0]);
    if (!command || mu__tool_parse(command, a->n, a->operands, &own) != MU_OK)
        return mu_exit(false);
    return own.help ? print_help(command) : run_command(command, &own);
}

const mu_tool_command mu__tool_muster = {
    .name = "muster",
    .usage = "COMMAND [ARGUMENT]...",
    .summary = "start, check and inspect jobs of distributed training",
    .description = "muster starts, checks and measures jobs that train with the Muster library, and shows what their "
                   "files contain. `muster COMMAND --help` describes a command.",
    .options = options,
    .most = -1,
    .ends_at_operand = true,
    .main = muster_main,
};
