// Arguments of the subcommands: getopt_long driven by a subcommand's table of options, and readers of values.
#include "tools/tools.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

// getopt_long returns LONG_ONLY + the index for an option that has no letter.
enum { LONG_ONLY = 256, HELP = LONG_ONLY + MU_TOOL_OPTIONS };

typedef struct getopt_tables {
    char letters[2 * MU_TOOL_OPTIONS + 4];
    struct option names[MU_TOOL_OPTIONS + 2];
} getopt_tables;

static int code_of(const mu_tool_option *option, int i) { return option->letter ? option->letter : LONG_ONLY + i; }

// In `letters`, '+' ends the options at the first operand; ':' reports a missing value as ':' and prints nothing.
static void fill_tables(const mu_tool_command *command, getopt_tables *out)
{
    size_t used = 0, n = 0;
    *out = (getopt_tables){0};
    if (command->ends_at_operand)
        out->letters[used++] = '+';
    out->letters[used++] = ':';
    for (int i = 0; command->options && command->options[i].text; i++) {
        const mu_tool_option *option = &command->options[i];
        if (option->letter)
            out->letters[used++] = option->letter;
        if (option->letter && option->value)
            out->letters[used++] = ':';
        if (option->name)
            out->names[n++] = (struct option){option->name, option->value ? required_argument : no_argument, NULL,
                                              code_of(option, i)};
    }
    out->letters[used++] = 'h';
    out->names[n] = (struct option){"help", no_argument, NULL, HELP};
}

static int index_of(const mu_tool_command *command, int code)
{
    for (int i = 0; command->options && command->options[i].text; i++)
        if (code_of(&command->options[i], i) == code)
            return i;
    return -1;
}

// `code` is getopt_long's result for an error; optopt is 0 for an unknown long option.
static mu_status refuse(const mu_tool_command *command, int code, char **argv)
{
    char name[MU_TOOL_NAME_BYTES];
    const int known = index_of(command, optopt);
    if (known >= 0) {
        mu__tool_option_name(&command->options[known], name);
        return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' %s; usage: %s %s", command->name, name,
                         code == ':' ? "needs a value" : "takes no value", command->name, command->usage);
    }
    const char letter[] = {'-', (char)optopt, '\0'};
    return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' is not an option; usage: %s %s", command->name,
                     optopt > 0 && optopt < LONG_ONLY ? letter : argv[optind - 1], command->name, command->usage);
}

static mu_status check(const mu_tool_arguments *a)
{
    const mu_tool_command *command = a->command;
    const char *needs = command->needs ? command->needs : "it takes no arguments";
    char name[MU_TOOL_NAME_BYTES];
    if (a->n < command->fewest)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %s; usage: %s %s", command->name, needs, command->name,
                         command->usage);
    if (command->most >= 0 && a->n > command->most)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %s; '%s' is too many", command->name, needs,
                         a->operands[command->most]);
    for (int i = 0; command->options && command->options[i].text; i++)
        if (command->options[i].required && !a->values[i])
            return mu__error(MU_INVALID_ARGUMENT, "%s: %s is missing; usage: %s %s", command->name,
                             mu__tool_option_name(&command->options[i], name), command->name, command->usage);
    return MU_OK;
}

mu_status mu__tool_parse(const mu_tool_command *command, int argc, char **argv, mu_tool_arguments *out)
{
    getopt_tables tables;
    fill_tables(command, &tables);
    *out = (mu_tool_arguments){.command = command};
    for (int i = 0; command->options && command->options[i].text; i++)
        out->values[i] = command->options[i].initial;
    optind = 0; // glibc: start anew, also after another argv
    opterr = 0;
    for (int code; (code = getopt_long(argc, argv, tables.letters, tables.names, NULL)) != -1;) {
        const int i = index_of(command, code);
        if (code == HELP || code == 'h')
            out->help = true;
        else if (i < 0)
            return refuse(command, code, argv);
        else
            out->values[i] = optarg ? optarg : "";
    }
    out->operands = argv + optind;
    out->n = argc - optind;
    return out->help ? MU_OK : check(out);
}

const char *mu__tool_option_name(const mu_tool_option *option, char text[MU_TOOL_NAME_BYTES])
{
    if (option->letter)
        snprintf(text, MU_TOOL_NAME_BYTES, "-%c", option->letter);
    else
        snprintf(text, MU_TOOL_NAME_BYTES, "--%s", option->name);
    return text;
}

// ---- Values -------------------------------------------------------------------------------------

mu_status mu__tool_wrong(const mu_tool_arguments *a, int option, const char *expected)
{
    char name[MU_TOOL_NAME_BYTES];
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is '%s'; expected %s", a->command->name,
                     mu__tool_option_name(&a->command->options[option], name), a->values[option], expected);
}

mu_status mu__tool_number(const mu_tool_arguments *a, int option, const char *unit, double low, double high,
                          double *out)
{
    char *end = NULL, expected[80];
    const double value = strtod(a->values[option], &end);
    *out = value;
    if (end != a->values[option] && *end == '\0' && value >= low && value <= high)
        return MU_OK;
    snprintf(expected, sizeof expected, "%s from %.10g to %.10g", unit, low, high);
    return mu__tool_wrong(a, option, expected);
}

mu_status mu__tool_whole(const mu_tool_arguments *a, int option, int low, int high, int *out)
{
    char *end = NULL, expected[80];
    const double value = strtod(a->values[option], &end);
    if (end != a->values[option] && *end == '\0' && value >= low && value <= high && value == floor(value)) {
        *out = (int)value;
        return MU_OK;
    }
    snprintf(expected, sizeof expected, "a whole number from %d to %d", low, high);
    return mu__tool_wrong(a, option, expected);
}

int mu__tool_choice(const mu_tool_arguments *a, int option)
{
    const char *const *choices = a->command->options[option].choices;
    char expected[200];
    for (int i = 0; choices[i]; i++)
        if (strcasecmp(choices[i], a->values[option]) == 0)
            return i;
    mu__tool_wrong(a, option, mu__tool_list(choices, sizeof expected, expected));
    return -1;
}
