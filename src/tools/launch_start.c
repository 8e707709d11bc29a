// Starts the ranks of `muster launch`: ports, cores, environment, process groups.
//
// Each rank gets the whole cluster in TF_CONFIG and its share of whole cores: two ranks share a core only if there are
// more ranks than cores. It leads a process group, so that processes that it starts end with it. The launcher keeps its
// port reserved while the job lives.
#include "tools/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

// ---- The guard ----------------------------------------------------------------------------------

// Reads the number of every process group. 0 is the launcher's normal end; end of file means that it was killed.
static void guard_main(int fd)
{
    pid_t groups[MU_MAX_LAUNCHED], pid;
    int n = 0;
    while (read(fd, &pid, sizeof pid) == (ssize_t)sizeof pid) {
        if (pid == 0)
            _exit(0);
        groups[n++ % MU_MAX_LAUNCHED] = pid; // after a restart only the last groups are alive
    }
    for (int i = 0; i < MU_MIN(n, MU_MAX_LAUNCHED); i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

mu_status mu__guard_start(mu_guard *guard)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return mu__error(mu__errno_code(errno), "muster launch: cannot make a pipe: %s", strerror(errno));
    guard->pid = fork();
    if (guard->pid == 0) {
        setsid(); // the launcher handles Ctrl-C
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        close(ends[1]);
        guard_main(ends[0]);
    }
    close(ends[0]);
    guard->fd = ends[1];
    if (guard->pid > 0)
        return MU_OK;
    close(ends[1]);
    return mu__error(mu__errno_code(errno), "muster launch: cannot start a process: %s", strerror(errno));
}

static void guard_tell(const mu_guard *guard, pid_t pid)
{
    while (write(guard->fd, &pid, sizeof pid) < 0 && errno == EINTR)
        continue;
}

void mu__guard_end(mu_guard *guard)
{
    guard_tell(guard, 0);
    close(guard->fd);
}

// ---- Cores --------------------------------------------------------------------------------------

typedef struct cpu_and_core {
    int cpu, core; // core: the lowest number among the processors of the same core
} cpu_and_core;

static int core_of(int cpu)
{
    char path[96];
    int core = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &core) != 1)
        core = cpu;
    if (file)
        fclose(file);
    return core;
}

static int by_core(const void *a, const void *b)
{
    const cpu_and_core *x = a, *y = b;
    return x->core != y->core ? x->core - y->core : x->cpu - y->cpu;
}

typedef struct cpu_table {
    int n, n_cores;
    cpu_and_core cpus[CPU_SETSIZE]; // sorted by core
    int core[CPU_SETSIZE];          // core of each entry, counted from 0
} cpu_table;

static bool list_cpus(cpu_table *table)
{
    cpu_set_t allowed;
    table->n = table->n_cores = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            table->cpus[table->n++] = (cpu_and_core){.cpu = cpu, .core = core_of(cpu)};
    qsort(table->cpus, (size_t)table->n, sizeof *table->cpus, by_core);
    for (int i = 0; i < table->n; i++) {
        table->n_cores += i == 0 || table->cpus[i].core != table->cpus[i - 1].core;
        table->core[i] = table->n_cores - 1;
    }
    return table->n > 0;
}

int mu__default_replicas(int n)
{
    enum { MOST = 8 };
    cpu_table table;
    const int cores = list_cpus(&table) ? MU_MIN(table.n_cores, mu__runtime_threads(mu__runtime())) : 1;
    return MU_MAX(1, MU_MIN(MOST, cores / n));
}

// The processors of rank `rank` of n: consecutive whole cores.
static bool cores_for(int rank, int n, cpu_set_t *out)
{
    cpu_table table;
    if (!list_cpus(&table))
        return false;
    int begin = (int)((int64_t)table.n_cores * rank / n), end = (int)((int64_t)table.n_cores * (rank + 1) / n);
    if (n > table.n_cores) {
        begin = rank % table.n_cores;
        end = begin + 1;
    }
    CPU_ZERO(out);
    for (int i = 0; i < table.n; i++)
        if (table.core[i] >= begin && table.core[i] < end)
            CPU_SET(table.cpus[i].cpu, out);
    return true;
}

// ---- Environment --------------------------------------------------------------------------------

typedef struct variables {
    char **items; // owned texts "NAME=value", terminated by NULL
    size_t n, capacity;
} variables;

static void variables_free(variables *list)
{
    for (size_t i = 0; i < list->n; i++)
        mu__free(list->items[i]);
    mu__free(list->items);
}

static mu_status add_variable(variables *list, char *text)
{
    if (text && MU_PUSH(list, text) == MU_OK)
        return MU_OK;
    mu__free(text);
    return MU_RESOURCE_EXHAUSTED;
}

static bool is_named(const char *text, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && text[n] == '=';
}

// A worker in a cluster with parameter servers does not see the cluster's key.
static bool has_own_key(const mu_launch_options *options, int rank)
{
    return options->keyring && rank > 0 && rank <= options->workers;
}

// Variables that would take precedence over TF_CONFIG, or that the launcher sets.
static bool replaced(const char *text, const mu_launch_options *options, int rank)
{
    return is_named(text, "TF_CONFIG") || is_named(text, "MUSTER_CLUSTER") ||
           (has_own_key(options, rank) &&
            (is_named(text, "MUSTER_CLUSTER_KEY") || is_named(text, "MUSTER_CLUSTER_KEY_FILE"))) ||
           (options->replicas > 0 && is_named(text, "MUSTER_CPU_DEVICES")) || is_named(text, "MUSTER_TRACE") ||
           is_named(text, "MUSTER_METRICS_PORT");
}

mu_launched_task mu__launched_task(const mu_launch_options *options, int rank)
{
    if (options->workers == 0)
        return (mu_launched_task){"worker", rank};
    if (rank == 0)
        return (mu_launched_task){"chief", 0};
    return rank <= options->workers ? (mu_launched_task){"worker", rank - 1}
                                    : (mu_launched_task){"ps", rank - 1 - options->workers};
}

static json_t *cluster_of(const mu_launch_options *options, const mu_kept_port *ports)
{
    char address[32];
    json_t *cluster = json_object();
    for (int i = 0; i < options->n; i++) {
        const mu_launched_task task = mu__launched_task(options, i);
        snprintf(address, sizeof address, "127.0.0.1:%d", ports[i].port);
        if (task.index == 0)
            json_object_set_new(cluster, task.job, json_array());
        json_array_append_new(json_object_get(cluster, task.job), json_string(address));
    }
    return cluster;
}

static char *tf_config(const mu_launch_options *options, int rank, const mu_kept_port *ports)
{
    const mu_launched_task task = mu__launched_task(options, rank);
    json_t *config = json_pack("{s:o,s:{s:s,s:i}}", "cluster", cluster_of(options, ports), "task", "type", task.job,
                               "index", task.index);
    char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    char *variable = text ? mu__sprintf("TF_CONFIG=%s", text) : NULL;
    free(text); // allocated by jansson
    json_decref(config);
    return variable;
}

// One timeline file per rank: rank 0's keeps the given name, unless the name contains %p (the process number).
static char *trace_variable(const char *file, int rank)
{
    if (rank == 0 || strstr(file, "%p"))
        return mu__sprintf("MUSTER_TRACE=%s", file);
    return mu__sprintf("MUSTER_TRACE=%s.%d", file, rank);
}

// Only one process can use a fixed port, so rank N uses rank 0's port plus N.
static int metrics_port(int rank)
{
    const int port = (int)mu__setting_int(MU_SETTING_METRICS_PORT);
    return port > 0 ? port + rank : port;
}

static mu_status check_metrics_ports(const mu_launch_options *options)
{
    const int first = metrics_port(0), last = metrics_port(options->n - 1);
    if (last <= 65535)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "muster launch: MUSTER_METRICS_PORT is %d, and %d processes need the ports up to %d; give at most "
                     "%d, or 0 for ports that the system chooses",
                     first, options->n, last, 65536 - options->n);
}

static mu_status add_key(const mu_launch_options *options, int rank, variables *out)
{
    char text[MU_WORKER_KEY];
    if (!has_own_key(options, rank))
        return options->key[0] ? add_variable(out, mu__sprintf("MUSTER_CLUSTER_KEY=%s", options->key)) : MU_OK;
    MU_TRY(mu__keyring_worker_key(options->keyring, mu__launched_task(options, rank).index, text));
    return add_variable(out, mu__sprintf("MUSTER_CLUSTER_KEY=%s", text));
}

static mu_status environment_of(const mu_launch_options *options, int rank, const mu_kept_port *ports, variables *out)
{
    const char *trace = mu__environment("MUSTER_TRACE");
    for (char *const *at = mu__environment_list(); *at; at++)
        if (!replaced(*at, options, rank))
            MU_TRY(add_variable(out, mu__strdup(*at)));
    MU_TRY(add_variable(out, tf_config(options, rank, ports)));
    if (mu__environment("MUSTER_METRICS_PORT"))
        MU_TRY(add_variable(out, mu__sprintf("MUSTER_METRICS_PORT=%d", metrics_port(rank))));
    MU_TRY(add_key(options, rank, out));
    if (options->replicas > 0)
        MU_TRY(add_variable(out, mu__sprintf("MUSTER_CPU_DEVICES=%d", options->replicas)));
    if (trace)
        MU_TRY(add_variable(out, trace_variable(trace, rank)));
    return MU_PUSH(out, (char *)NULL);
}

// ---- Start --------------------------------------------------------------------------------------

// The pipes for a rank's output: the launcher's ends and the rank's.
typedef struct plumbing {
    int out[2], err[2], report[2]; // report: carries the errno if the program cannot be run
} plumbing;

static void close_all(plumbing *pipes)
{
    int *const ends[] = {pipes->out, pipes->err, pipes->report};
    for (size_t i = 0; i < MU_COUNT(ends); i++)
        for (int k = 0; k < 2; k++)
            if (ends[i][k] >= 0)
                close(ends[i][k]);
}

// A pseudoterminal as wide as the launcher's, less the prefix of each line.
static bool make_terminal(int ends[2])
{
    struct winsize size = {0};
    struct termios mode;
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || grantpt(ends[0]) != 0 || unlockpt(ends[0]) != 0)
        return false;
    const char *name = ptsname(ends[0]);
    ends[1] = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (ends[1] < 0 || tcgetattr(ends[1], &mode) != 0)
        return false;
    cfmakeraw(&mode);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 4)
        size.ws_col = (unsigned short)(size.ws_col - 4);
    return tcsetattr(ends[1], TCSANOW, &mode) == 0 && ioctl(ends[1], TIOCSWINSZ, &size) == 0;
}

static mu_status lay(plumbing *pipes, int rank, bool *terminal)
{
    *pipes = (plumbing){.out = {-1, -1}, .err = {-1, -1}, .report = {-1, -1}};
    *terminal = rank == 0 && isatty(STDOUT_FILENO) == 1;
    const bool whole = (*terminal ? make_terminal(pipes->out) : pipe2(pipes->out, O_CLOEXEC) == 0) &&
                       pipe2(pipes->err, O_CLOEXEC) == 0 && pipe2(pipes->report, O_CLOEXEC) == 0;
    if (whole)
        return MU_OK;
    const int failed = errno;
    close_all(pipes);
    return mu__error(mu__errno_code(failed), "muster launch: cannot make pipes for rank %d: %s", rank,
                     strerror(failed));
}

// Runs in the new process: only system calls until the program starts.
static void become(char *const *program, const plumbing *pipes, const cpu_set_t *cores, char **environment,
                   pid_t launcher)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (getppid() != launcher)
        _exit(1); // the launcher died before it was watched
    if (cores)
        sched_setaffinity(0, sizeof *cores, cores);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (empty >= 0 && dup2(empty, STDIN_FILENO) >= 0 && dup2(pipes->out[1], STDOUT_FILENO) >= 0 &&
        dup2(pipes->err[1], STDERR_FILENO) >= 0)
        execvpe(program[0], program, environment);
    const int failed = errno;
    if (write(pipes->report[1], &failed, sizeof failed) < 0)
        _exit(126);
    _exit(127);
}

static mu_status refuse(const mu_launch_options *options, int failed)
{
    return mu__error(
        mu__errno_code(failed), "muster launch: cannot run '%s': %s%s", options->program[0], strerror(failed),
        failed == ENOENT && !strchr(options->program[0], '/') ? "; a program of this folder is called ./name" : "");
}

static mu_status start_with(const mu_launch_options *options, int rank, plumbing *pipes, char **environment,
                            const mu_guard *guard, mu_started *out)
{
    cpu_set_t cores;
    char serve[] = "serve", path[sizeof options->server_path];
    memcpy(path, options->server_path, sizeof path);
    char *const server[] = {path, serve, NULL};
    const bool pinned = mu__setting_bool(MU_SETTING_PIN) && cores_for(rank, options->n, &cores);
    const pid_t launcher = getpid();
    out->pid = fork();
    if (out->pid < 0)
        return mu__error(mu__errno_code(errno), "muster launch: cannot start rank %d: %s", rank, strerror(errno));
    if (out->pid == 0)
        become(options->workers > 0 && rank > 0 ? server : options->program, pipes, pinned ? &cores : NULL, environment,
               launcher);
    setpgid(out->pid, out->pid); // done in both processes, because either may run first
    guard_tell(guard, out->pid);
    int failed = 0;
    close(pipes->report[1]);
    pipes->report[1] = -1;
    if (read(pipes->report[0], &failed, sizeof failed) == (ssize_t)sizeof failed)
        return refuse(options, failed);
    out->out = pipes->out[0];
    out->err = pipes->err[0];
    pipes->out[0] = pipes->err[0] = -1;
    return MU_OK;
}

mu_status mu__rank_start(const mu_launch_options *options, int rank, const mu_kept_port *ports, const mu_guard *guard,
                         mu_started *out)
{
    plumbing pipes;
    variables environment = {0};
    *out = (mu_started){.out = -1, .err = -1};
    MU_TRY(check_metrics_ports(options));
    MU_TRY(lay(&pipes, rank, &out->terminal));
    mu_status status = environment_of(options, rank, ports, &environment);
    if (status == MU_OK)
        status = start_with(options, rank, &pipes, environment.items, guard, out);
    close_all(&pipes);
    variables_free(&environment);
    return status;
}
