// What `--help` prints, and the parts of it that the manual pages print too.
#include "tools/tools.h"

enum { WIDTH = 79, OPTION_COLUMN = 30, COMMAND_COLUMN = 14 };

const mu_tool_exit_code mu__tool_exit_codes[] = {
    {0, "success"},
    {1, "the check failed, or an error of another kind"},
    {64, "wrong usage: an invalid argument or setting, or replicas disagree"},
    {65, "a file is damaged"},
    {66, "a file, program or device does not exist"},
    {69, "another process is unreachable or did not answer in time"},
    {70, "a fault of the library"},
    {74, "memory or disk is full, or the output cannot be written"},
    {77, "permission denied, or a wrong cluster key"},
    {78, "the configuration or the installation does not allow it"},
    {0, NULL},
};

const char *mu__tool_list(const char *const *items, size_t bytes, char *text)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; items[i] && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                 i == 0         ? ""
                                 : items[i + 1] ? ", "
                                                : " or ",
                                 items[i]);
    return text;
}

const char *mu__tool_option_names(const mu_tool_option *option, char text[MU_TOOL_NAMES_BYTES])
{
    const char *value = option->value ? option->value : "", *space = option->value ? " " : "";
    if (option->letter && option->name)
        snprintf(text, MU_TOOL_NAMES_BYTES, "-%c, --%s%s%s", option->letter, option->name, space, value);
    else if (option->letter)
        snprintf(text, MU_TOOL_NAMES_BYTES, "-%c%s%s", option->letter, space, value);
    else
        snprintf(text, MU_TOOL_NAMES_BYTES, "--%s%s%s", option->name, space, value);
    return text;
}

const char *mu__tool_option_text(const mu_tool_option *option, char text[MU_TOOL_TEXT_BYTES])
{
    char choices[200] = "";
    if (option->choices)
        mu__tool_list(option->choices, sizeof choices, choices);
    snprintf(text, MU_TOOL_TEXT_BYTES, "%s%s%s%s%s%s%s", option->text, choices[0] ? ": " : "", choices,
             option->initial ? " (default " : "", option->initial ? option->initial : "", option->initial ? ")" : "",
             option->required ? " (required)" : "");
    return text;
}

// Prints words from `column` on, with the later lines indented by `indent`. An empty line separates paragraphs.
static void print_wrapped(FILE *out, const char *text, int column, int indent)
{
    while (*text) {
        if (strncmp(text, "\n\n", 2) == 0) {
            fprintf(out, "\n\n%*s", indent, "");
            column = indent;
            text += 2;
            continue;
        }
        const int length = (int)strcspn(text, " \n"), gap = column > indent;
        if (gap && column + gap + length > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(out, "%s%.*s", column > indent ? " " : "", length, text);
        text += length;
        text += strncmp(text, "\n\n", 2) != 0 && *text;
    }
    fputc('\n', out);
}

// Prints a name and its description side by side.
static void print_entry(FILE *out, const char *name, const char *text, int column)
{
    int at = fprintf(out, "  %s", name);
    if (at >= column) {
        fputc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", column - at, "");
    print_wrapped(out, text, column, column);
}

static void print_options(const mu_tool_command *command, FILE *out)
{
    char names[MU_TOOL_NAMES_BYTES], text[MU_TOOL_TEXT_BYTES];
    fputs("\nOptions:\n", out);
    for (const mu_tool_option *option = command->options; option && option->text; option++)
        print_entry(out, mu__tool_option_names(option, names), mu__tool_option_text(option, text), OPTION_COLUMN);
    print_entry(out, "-h, --help", "print this text", OPTION_COLUMN);
}

static void print_exit_codes(FILE *out)
{
    char number[12];
    fputs("\nExit codes:\n", out);
    for (const mu_tool_exit_code *code = mu__tool_exit_codes; code->when; code++) {
        snprintf(number, sizeof number, "%d", code->code);
        print_entry(out, number, code->when, COMMAND_COLUMN);
    }
}

// Prints example lines, each indented.
static void print_example(const char *lines, FILE *out)
{
    fputs("\nExample:\n", out);
    for (; *lines; lines += strcspn(lines, "\n") + 1)
        fprintf(out, "  %.*s\n", (int)strcspn(lines, "\n"), lines);
}

void mu__tool_print_help(const mu_tool_command *command, FILE *out)
{
    fprintf(out, "Usage: %s %s\n\n", command->name, command->usage);
    print_wrapped(out, command->description, 0, 0);
    if (command == &mu__tool_muster) {
        fputs("\nCommands:\n", out);
        for (int i = 0; mu__tool_commands[i]; i++)
            print_entry(out, mu__tool_word(mu__tool_commands[i]), mu__tool_commands[i]->summary, COMMAND_COLUMN);
    }
    print_options(command, out);
    if (command->example)
        print_example(command->example, out);
    if (command == &mu__tool_muster)
        print_exit_codes(out);
}
