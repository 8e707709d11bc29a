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

// What a process says: the beginning of its output, which names the devices, and the end of what it writes to standard
// error, where a plugin may have written any number of lines before the reason.
typedef struct probe {
    pid_t child;
    int status;
    int in[2]; // standard output and standard error
    size_t used[2];
    char text[2][ANSWER_BYTES];
} probe;

static void become_probe(const char *plugin, int out, int error)
{
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    execl("/proc/self/exe", "muster", "devices", "--plugin", plugin, (char *)NULL);
    _exit(127);
}

static bool start(probe *p, const char *plugin)
{
    int out[2], error[2];
    fflush(stdout);
    if (pipe(out) != 0)
        return false;
    p->child = pipe(error) == 0 ? fork() : -1;
    if (p->child == 0)
        become_probe(plugin, out[1], error[1]);
    close(out[1]);
    if (p->child < 0) {
        close(out[0]);
        return false;
    }
    close(error[1]);
    p->in[0] = out[0];
    p->in[1] = error[0];
    return true;
}

static void take(probe *p, int which, const char *text, size_t n)
{
    const size_t room = ANSWER_BYTES - 1 - p->used[which];
    if (n > room && which == 1) {
        const size_t dropped = n - room;
        memmove(p->text[1], p->text[1] + dropped, p->used[1] - dropped);
        p->used[1] -= dropped;
    } else {
        n = MU_MIN(n, room);
    }
    memcpy(p->text[which] + p->used[which], text, n);
    p->used[which] += n;
    p->text[which][p->used[which]] = '\0';
}

// Reads what there is, after waiting at most so long for it; false: nothing.
static bool hear(probe *p, int wait_ms)
{
    char text[ANSWER_BYTES / 4];
    struct pollfd wait[2] = {{.fd = p->in[0], .events = POLLIN}, {.fd = p->in[1], .events = POLLIN}};
    if (poll(wait, 2, wait_ms) <= 0)
        return false;
    for (int i = 0; i < 2; i++) {
        const ssize_t n = wait[i].revents ? read(p->in[i], text, sizeof text) : 0;
        if (n > 0) {
            take(p, i, text, (size_t)n);
        } else if (wait[i].revents) {
            close(p->in[i]);
            p->in[i] = -1; // poll leaves it out
        }
    }
    return true;
}

// A process that says nothing any more may still run, and another one that it has started may keep its output open. So
// the end of the process counts.
static bool hear_all(probe *p)
{
    enum { SLICE_MS = 50, MOST_LEFT = 64 };
    const int64_t deadline = mu__now_ns() + (int64_t)WAIT_MS * 1000000;
    while (waitpid(p->child, &p->status, WNOHANG) != p->child) {
        if (mu__now_ns() >= deadline) {
            kill(p->child, SIGKILL);
            waitpid(p->child, &p->status, 0);
            return false;
        }
        hear(p, SLICE_MS);
    }
    for (int i = 0; i < MOST_LEFT && hear(p, 0); i++)
        continue;
    return true;
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

// Prints the lines that name devices, and not those that the plugin has written; false: there is none.
static bool print_devices(const char *plugin, const char *text)
{
    char end[MU_PJRT_NAME + 16];
    const size_t n_end = (size_t)snprintf(end, sizeof end, ", plugin %s", plugin);
    bool found = false;
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        if (n >= n_end && memcmp(line + n - n_end, end, n_end) == 0) {
            printf("%.*s\n", (int)n, line);
            found = true;
        }
        line += n + (line[n] == '\n');
    }
    return found;
}

static void report(const char *plugin, bool ended, probe *p)
{
    if (!ended)
        printf("plugin %s did not start within %d s\n", plugin, WAIT_MS / 1000);
    else if (WIFSIGNALED(p->status))
        printf("plugin %s ended the process that started it with signal %d (%s)\n", plugin, WTERMSIG(p->status),
               strsignal(WTERMSIG(p->status)));
    else if (p->status != 0 && p->used[1] > 0)
        printf("plugin %s cannot be used: %s\n", plugin, reason_of(p->text[1]));
    else if (p->status != 0 || !print_devices(plugin, p->text[0]))
        printf("plugin %s ended the process that started it with exit code %d, without a word about its devices\n",
               plugin, WEXITSTATUS(p->status));
}

static bool ask_plugin(const char *plugin)
{
    probe p = {.child = -1};
    if (!start(&p, plugin)) {
        mu__error(MU_RESOURCE_EXHAUSTED, "muster devices: no process can be started to ask plugin %s", plugin);
        return false;
    }
    const bool ended = hear_all(&p);
    for (int i = 0; i < 2; i++)
        if (p.in[i] >= 0)
            close(p.in[i]);
    report(plugin, ended, &p);
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
