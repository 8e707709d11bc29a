// make_pages FOLDER: writes the manual pages of `muster` and its subcommands into FOLDER/man1, and the completions for
// bash and zsh into FOLDER/completions. The build runs it; `cmake --install` installs what it wrote.
//
// Everything comes from the tables that `--help` prints (tools.h) and from the table of settings (base/settings.def).
#include "tools/tools.h"

#include <ctype.h>
#include <errno.h>
#include <sys/stat.h>

typedef struct setting {
    const char *name, *sentence;
} setting;

static const setting settings[] = {
#define MU_SETTING_TEXT(id, name, initial, meaning)                      {name, meaning},
#define MU_SETTING_INT(id, name, of, initial, lowest, highest, meaning)  {name, meaning},
#define MU_SETTING_REAL(id, name, of, initial, lowest, highest, meaning) {name, meaning},
#define MU_SETTING_BOOL(id, name, initial, meaning)                      {name, meaning},
#include "base/settings.def"
#undef MU_SETTING_TEXT
#undef MU_SETTING_INT
#undef MU_SETTING_REAL
#undef MU_SETTING_BOOL
};

// Opens FOLDER/KIND/NAME for writing.
static FILE *create(const char *folder, const char *kind, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return NULL;
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, name);
    return fopen(path, "w");
}

static bool finish(FILE *out)
{
    const bool written = !ferror(out);
    return fclose(out) == 0 && written;
}

// ---- Manual pages -------------------------------------------------------------------------------

// Prints text for troff: a backslash is \e, a hyphen that is typed is \-, and no line begins with a control character.
static void roff(FILE *out, const char *text)
{
    bool starts = true;
    for (; *text; text++) {
        if (starts && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        starts = *text == '\n';
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

// Prints paragraphs; an empty line starts a new one.
static void roff_paragraphs(FILE *out, const char *text)
{
    for (; *text; text++)
        if (strncmp(text, "\n\n", 2) == 0) {
            fputs("\n.PP\n", out);
            text++;
        } else {
            const char one[] = {*text, '\0'};
            roff(out, one);
        }
    fputc('\n', out);
}

static void roff_entry(FILE *out, const char *name, const char *text)
{
    fputs(".TP\n.B ", out);
    roff(out, name);
    fputc('\n', out);
    roff(out, text);
    fputs(".\n", out);
}

// "muster launch" is the page muster-launch.
static void page_name(const mu_tool_command *command, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s", command->name);
    for (char *at = name; *at; at++)
        *at = *at == ' ' ? '-' : *at;
}

static void write_head(const mu_tool_command *command, const char *page, FILE *out)
{
    fputs(".TH ", out);
    for (const char *at = page; *at; at++)
        if (*at == '-')
            fputs("\\-", out);
        else
            fputc(toupper((unsigned char)*at), out);
    fprintf(out, " 1 \"\" \"Muster %s\" \"Muster\"\n.SH NAME\n", mu_version());
    roff(out, page);
    fputs(" \\- ", out);
    roff(out, command->summary);
    fputs("\n.SH SYNOPSIS\n.B ", out);
    roff(out, command->name);
    fputc('\n', out);
    roff(out, command->usage);
    fputs(command->usage[0] ? "\n.SH DESCRIPTION\n" : ".SH DESCRIPTION\n", out);
    roff_paragraphs(out, command->description);
}

static void write_options(const mu_tool_command *command, FILE *out)
{
    char names[MU_TOOL_NAMES_BYTES], text[MU_TOOL_TEXT_BYTES];
    fputs(".SH OPTIONS\n", out);
    for (const mu_tool_option *option = command->options; option && option->text; option++)
        roff_entry(out, mu__tool_option_names(option, names), mu__tool_option_text(option, text));
    roff_entry(out, "-h, --help", "print a summary of the command and its options");
}

static void write_commands(FILE *out)
{
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; mu__tool_commands[i]; i++)
        roff_entry(out, mu__tool_word(mu__tool_commands[i]), mu__tool_commands[i]->summary);
}

static void write_environment(FILE *out)
{
    fputs(".SH ENVIRONMENT\nThe command and every program that uses the library read these settings; their\n"
          "values are printed by\n.BR muster\\-config (1).\n",
          out);
    for (size_t i = 0; i < MU_COUNT(settings); i++)
        roff_entry(out, settings[i].name, settings[i].sentence);
}

static void write_exit_codes(FILE *out)
{
    char number[12];
    fputs(".SH EXIT STATUS\n", out);
    for (const mu_tool_exit_code *code = mu__tool_exit_codes; code->when; code++) {
        snprintf(number, sizeof number, "%d", code->code);
        roff_entry(out, number, code->when);
    }
}

static void write_see_also(const mu_tool_command *command, FILE *out)
{
    char page[MU_TOOL_NAME_BYTES];
    fputs(".SH SEE ALSO\n", out);
    if (command != &mu__tool_muster)
        fputs(".BR muster (1)\n", out);
    for (int i = 0; command == &mu__tool_muster && mu__tool_commands[i]; i++) {
        page_name(mu__tool_commands[i], page, sizeof page);
        fputs(".BR ", out);
        roff(out, page);
        fprintf(out, " (1)%s\n", mu__tool_commands[i + 1] ? "," : "");
    }
}

static bool write_page(const mu_tool_command *command, const char *folder)
{
    char page[MU_TOOL_NAME_BYTES], file[MU_TOOL_NAME_BYTES + 4];
    page_name(command, page, sizeof page);
    snprintf(file, sizeof file, "%s.1", page);
    FILE *out = create(folder, "man1", file);
    if (!out)
        return false;
    write_head(command, page, out);
    if (command == &mu__tool_muster)
        write_commands(out);
    write_options(command, out);
    if (command->example) {
        fputs(".SH EXAMPLE\n.nf\n", out);
        roff(out, command->example);
        fputs(".fi\n", out);
    }
    if (command == &mu__tool_muster)
        write_environment(out);
    write_exit_codes(out);
    write_see_also(command, out);
    return finish(out);
}

// ---- Completion for bash ------------------------------------------------------------------------

// Prints "-n | --iters" joined by `between`, for the options for which it can.
static void write_names(const mu_tool_option *option, const char *prefix, const char *between, FILE *out)
{
    if (option->letter)
        fprintf(out, "%s-%c%s", prefix, option->letter, option->name ? between : "");
    if (option->name)
        fprintf(out, "%s--%s", prefix, option->name);
}

// The values of options: a list of choices, or nothing where the user has to know.
static void bash_values(const mu_tool_command *command, FILE *out)
{
    char prefix[MU_TOOL_NAME_BYTES];
    snprintf(prefix, sizeof prefix, "%s\\ ", mu__tool_word(command));
    for (const mu_tool_option *option = command->options; option && option->text; option++) {
        if (!option->value)
            continue;
        fputs("        ", out);
        write_names(option, prefix, " | ", out);
        fputs(") words=\"", out);
        for (int i = 0; option->choices && option->choices[i]; i++)
            fprintf(out, "%s%s", i > 0 ? " " : "", option->choices[i]);
        fputs("\" ;;\n", out);
    }
}

static void bash_options(const mu_tool_command *command, FILE *out)
{
    fprintf(out, "        %s\\ *) words=\"%s", mu__tool_word(command), command == &mu__tool_bench ? "allreduce " : "");
    for (const mu_tool_option *option = command->options; option && option->text; option++) {
        write_names(option, "", " ", out);
        fputc(' ', out);
    }
    fputs("--help\" ;;\n", out);
}

static bool write_bash(const char *folder)
{
    FILE *out = create(folder, "completions", "muster.bash");
    if (!out)
        return false;
    fputs("# Completion of the muster command for bash; the build makes it from the command's tables.\n"
          "_muster() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} words=\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        words=\"",
          out);
    for (int i = 0; mu__tool_commands[i]; i++)
        fprintf(out, "%s ", mu__tool_word(mu__tool_commands[i]));
    fputs("help --help --version\"\n"
          "    else\n"
          "        case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}\" in\n",
          out);
    for (int i = 0; mu__tool_commands[i]; i++)
        bash_values(mu__tool_commands[i], out);
    for (int i = 0; mu__tool_commands[i]; i++)
        bash_options(mu__tool_commands[i], out);
    fputs("        esac\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
          "}\n"
          "complete -o default -F _muster muster\n",
          out);
    return finish(out);
}

// ---- Completion for zsh -------------------------------------------------------------------------

// Prints text inside single quotes; ':' separates fields there and brackets enclose a description.
static void zsh_text(const char *text, FILE *out)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr(":[]\\", *text) ? "\\" : "", *text);
}

static void zsh_option(const mu_tool_option *option, FILE *out)
{
    for (int form = 0; form < 2; form++) {
        if (form == 0 ? !option->letter : !option->name)
            continue;
        if (form == 0)
            fprintf(out, "        '-%c[", option->letter);
        else
            fprintf(out, "        '--%s[", option->name);
        zsh_text(option->text, out);
        fputs("]", out);
        if (option->value)
            fprintf(out, ":%s:", option->value);
        for (int i = 0; option->choices && option->choices[i]; i++)
            fprintf(out, "%s%s", i == 0 ? "(" : " ", option->choices[i]);
        fputs(option->choices ? ")' \\\n" : "' \\\n", out);
    }
}

static void zsh_command(const mu_tool_command *command, FILE *out)
{
    fprintf(out, "    %s) _arguments \\\n", mu__tool_word(command));
    for (const mu_tool_option *option = command->options; option && option->text; option++)
        zsh_option(option, out);
    if (command->ends_at_operand)
        fputs("        '*::program:_normal' ;;\n", out);
    else if (command == &mu__tool_bench)
        fputs("        '1:collective:(allreduce)' ;;\n", out);
    else
        fputs(command->most != 0 ? "        '1:file:_files' ;;\n" : "        '--help[print the help]' ;;\n", out);
}

static bool write_zsh(const char *folder)
{
    FILE *out = create(folder, "completions", "_muster");
    if (!out)
        return false;
    fputs("#compdef muster\n"
          "# Completion of the muster command for zsh; the build makes it from the command's tables.\n"
          "local -a commands\n"
          "commands=(\n",
          out);
    for (int i = 0; mu__tool_commands[i]; i++) {
        fprintf(out, "    '%s:", mu__tool_word(mu__tool_commands[i]));
        zsh_text(mu__tool_commands[i]->summary, out);
        fputs("'\n", out);
    }
    fputs(")\n"
          "if ((CURRENT == 2)); then\n"
          "    _describe command commands\n"
          "    return\n"
          "fi\n"
          "shift words\n"
          "((CURRENT--))\n"
          "case $words[1] in\n",
          out);
    for (int i = 0; mu__tool_commands[i]; i++)
        zsh_command(mu__tool_commands[i], out);
    fputs("esac\n", out);
    return finish(out);
}

int main(int argc, char **argv)
{
    const char *folder = argc == 2 ? argv[1] : NULL;
    bool ok = folder && write_page(&mu__tool_muster, folder) && write_bash(folder) && write_zsh(folder);
    for (int i = 0; ok && mu__tool_commands[i]; i++)
        ok = write_page(mu__tool_commands[i], folder);
    if (!ok)
        fprintf(stderr, "make_pages: cannot write into '%s': %s; usage: make_pages FOLDER\n", folder ? folder : "",
                strerror(errno));
    return ok ? 0 : 74;
}
