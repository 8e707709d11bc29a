// The `muster` command: finds the subcommand, runs it, and exits with a code of docs/exit-codes.md.
//
// The table of subcommands is also what `muster --help` prints. If the reader of the output closes the pipe early, the
// command ends silently, as Unix tools do; other failures to write output are errors.
#include "tools/tools.h"

#include <errno.h>
#include <signal.h>

typedef struct command_row {
    const char *name, *arguments, *sentence;
    bool (*run)(int n, char **arguments);
} command_row;

static const command_row commands[] = {
    {"launch", "-n N [--] PROG", "a program as N processes on this machine that make up a cluster", NULL},
    {"doctor", "[--json]", "run in each process of a cluster: whether all reach each other, and how fast",
     mu__tool_doctor},
    {"bench", "allreduce", "what an all-reduce costs, by size, in the columns of nccl-tests", NULL},
    {"devices", "", "the devices that a program would see here", mu__tool_devices},
    {"config", "", "every setting with its value, where that comes from, and what it does", mu__tool_config},
    {"ops", "", "every operation: element types, gradient and engines, and why one is missing", mu__tool_ops},
    {"inspect", "[--json] FILE", "the tensors of a safetensors file: shape, bytes, range, mean", mu__tool_inspect},
    {"explain", "FILE", "where the time went, from a timeline of MUSTER_TRACE=FILE", mu__tool_explain},
};

static void print_help(FILE *out)
{
    fputs("Usage: muster COMMAND [ARGUMENTS]\n\nCommands:\n", out);
    for (size_t i = 0; i < MU_COUNT(commands); i++)
        fprintf(out, "  %-8s %-14s %s\n", commands[i].name, commands[i].arguments, commands[i].sentence);
    fputs("\nOptions:\n"
          "  --version               print the version\n"
          "  --help                  print this text\n\n"
          "Exit codes: 0 success, 64 wrong usage, 65 damaged file, 66 no such file; docs/exit-codes.md has all.\n",
              out);
}

static const command_row *find_command(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    mu__error(MU_INVALID_ARGUMENT, "'%s' is not a command of muster; `muster --help` lists them", name);
    return NULL;
}

bool mu__tool_no_arguments(const char *command, int n, char **arguments)
{
    if (n > 0)
        mu__error(MU_INVALID_ARGUMENT, "`muster %s` takes no arguments, got '%s'", command, arguments[0]);
    return n == 0;
}

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

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_DFL);  // a parent may have ignored SIGPIPE; then a closed pipe would be an error
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_help(stderr);
        return 64;  // EX_USAGE
    }
    if (strcmp(name, "launch") == 0)
        return mu__tool_launch(argc - 2, argv + 2);  // the program's exit code
    if (strcmp(name, "bench") == 0)
        return mu__tool_bench(argc - 2, argv + 2);  // sets up its own devices
    bool ok = true;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
    } else if (strcmp(name, "--version") == 0) {
        printf("muster %s\n", mu_version());
    } else if (mu_init() == MU_OK) {
        const command_row *row = find_command(name);
        ok = row && row->run(argc - 2, argv + 2);
    }
    ok = mu__tool_flush() && ok;
    return mu_exit(ok);
}
