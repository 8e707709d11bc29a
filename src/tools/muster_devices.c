// `muster devices`: prints the devices that a program would see here: the logical devices of the processors with their
// cores, and the devices of each PJRT plugin with their memory, or why the plugin cannot be used.
//
// A plugin is arbitrary code that may crash while it starts, so each is asked by a process of its own: this command
// again, with --plugin.
#include "engine/engine.h"
#include "engine/pjrt/pjrt.h"
#include "tools/tools.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLUGIN, MOST_PLUGINS = 16, WAIT_MS = 60000, ANSWER_BYTES = 16384 };

static const mu_tool_option options[] = {
    [PLUGIN] = {.name = "plugin", .value = "NAME", .text = "only the devices of this PJRT plugin, a name or a file"},
    {.text = NULL},
};

// ---- The processors -----------------------------------------------------------------------------

// Writes cores as ranges: "0-3,8".
static void print_cores(const int *cpus, int n)
{
    for (int i = 0; i < n;) {
        int last = i;
        while (last + 1 < n && cpus[last + 1] == cpus[last] + 1)
            last++;
        printf("%s%d", i > 0 ? "," : "", cpus[i]);
        if (last > i)
            printf("-%d", cpus[last]);
        i = last + 1;
    }
    putchar('\n');
}

static bool print_processors(mu_runtime *runtime)
{
    const int count = mu_list_physical_devices("CPU", NULL, 0);
    printf("%-12s %-8s %8s  %s\n", "device", "engine", "threads", "cores");
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "CPU:%d", i);
        const mu_device *device = mu__device_by_name(runtime, name);
        if (!device)
            return false;
        printf("%-12s %-8s %8d  ", device->name, device->engine->name, device->team.n_threads);
        print_cores(device->cpus, device->n_cpus);
    }
    return count >= 0;
}

// ---- A plugin, in the process that asks it --------------------------------------------------------

static bool print_plugin(mu_runtime *runtime, const char *plugin)
{
    int n = 0;
    const mu_device *devices = mu__device_plugin(runtime, plugin, &n);
    for (int i = 0; devices && i < n; i++) {
        const int64_t bytes = mu__pjrt_memory_bytes(&devices[i]);
        printf("%-12s %-8s %8s  ", devices[i].name, devices[i].engine->name, "");
        if (bytes >= 0)
            printf("%.1f GiB, plugin %s\n", (double)bytes / (1 << 30), plugin);
        else
            printf("memory unknown, plugin %s\n", plugin);
    }
    return devices != NULL;
}

// ---- A plugin, asked by a process of its own ------------------------------------------------------

static void become_probe(const char *plugin, int out)
{
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execl("/proc/self/exe", "muster", "devices", "--plugin", plugin, (char *)NULL);
    _exit(127);
}

// Reads what the process says until it ends its output; false after WAIT_MS.
static bool hear(int in, char answer[ANSWER_BYTES])
{
    const int64_t deadline = mu__now_ns() + (int64_t)WAIT_MS * 1000000;
    size_t used = 0;
    for (;;) {
        struct pollfd wait = {.fd = in, .events = POLLIN};
        const int64_t left_ms = (deadline - mu__now_ns()) / 1000000;
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) == 0)
            return false;
        const ssize_t n = read(in, answer + used, ANSWER_BYTES - 1 - used);
        used += n > 0 ? (size_t)n : 0;
        answer[used] = '\0';
        if (n <= 0 || used == ANSWER_BYTES - 1)
            return true;
    }
}

// The last line says what is wrong, after "muster: error: ".
static const char *reason_of(char *answer)
{
    static const char prefix[] = "muster: error: ";
    size_t n = strlen(answer);
    while (n > 0 && answer[n - 1] == '\n')
        answer[--n] = '\0';
    const char *line = strrchr(answer, '\n');
    line = line ? line + 1 : answer;
    return strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
}

static void report(const char *plugin, bool heard, int status, char *answer)
{
    if (!heard)
        printf("plugin %s did not start within %d s\n", plugin, WAIT_MS / 1000);
    else if (WIFSIGNALED(status))
        printf("plugin %s ended the process that started it with signal %d (%s)\n", plugin, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    else if (status != 0)
        printf("plugin %s cannot be used: %s\n", plugin, reason_of(answer));
    else
        fputs(answer, stdout);
}

static bool ask_plugin(const char *plugin)
{
    char answer[ANSWER_BYTES] = "";
    int ends[2], status = 0;
    fflush(stdout);
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child < 0) {
        mu__error(MU_RESOURCE_EXHAUSTED, "muster devices: no process can be started to ask plugin %s", plugin);
        return false;
    }
    if (child == 0)
        become_probe(plugin, ends[1]);
    close(ends[1]);
    const bool heard = hear(ends[0], answer);
    close(ends[0]);
    if (!heard)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    report(plugin, heard, status, answer);
    return true;
}

static bool run(const mu_tool_arguments *a)
{
    char names[MOST_PLUGINS][MU_PJRT_NAME];
    mu_runtime *runtime = mu__runtime();
    if (a->values[PLUGIN])
        return print_plugin(runtime, a->values[PLUGIN]);
    bool good = print_processors(runtime);
    const int n = mu__pjrt_list(names, MOST_PLUGINS);
    for (int i = 0; good && i < n; i++)
        good = ask_plugin(names[i]);
    return good;
}

const mu_tool_command mu__tool_devices = {
    .name = "muster devices",
    .usage = "[--plugin NAME]",
    .summary = "list the devices that a program would see here",
    .description =
        "Prints the devices of a program that starts here with the same environment. Of the processors: name, engine, "
        "number of computing threads, and the cores that these run on. Of each PJRT plugin that is installed, or that "
        "PJRT_NAMES_AND_LIBRARY_PATHS or MUSTER_PJRT names: name and memory of its devices, or why it cannot be "
        "used.\n\n"
        "A plugin is started in a process of its own, which may crash without ending this command, and has 60 s.",
    .example = "MUSTER_CPU_DEVICES=2 muster devices\nmuster devices --plugin xla_cpu\n",
    .options = options,
    .run = run,
};
