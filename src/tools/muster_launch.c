// `muster launch -n 4 -- ./program args`: runs a program as several processes that form a cluster on this machine.
// `muster launch --ps 2 --workers 4 -- ./program`: runs it as a coordinator, with servers.
//
// The launcher waits for output lines, the end of a rank, signals and deadlines. When the first rank fails, the
// launcher asks the others to end (SIGTERM), later kills them (SIGKILL), each with all processes that it started, and
// exits with the exit code of that first failure. No process remains. Servers are not ranks of one job: one that ends
// is started again, and the end of the program is the end of all.
#include "tools/launch.h"
#include "tools/tools.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUICK_NS 2000000000
enum { MOST_QUICK = 5 };
enum { GONE = 69 }; // exit code of a rank that lost another one: rarely the first cause

typedef struct rank {
    pid_t pid; // 0: has ended
    int64_t started_ns;
    int quick; // how many times in a row it ended within QUICK_NS
    mu_relay streams[2];
} rank;

typedef struct launch {
    mu_launch_options options;
    char key[MU_RANDOM_KEY];
    rank *ranks;
    mu_kept_port *ports;
    struct pollfd *polled;
    mu_guard guard;
    mu_screen screen;
    int signals; // signalfd
    int alive;
    int first, code;  // the rank that failed first, and its exit code; -1: none
    bool interrupted; // by a signal to the launcher, or by the timeout: no restart
    bool ending;
    int64_t kill_at; // when ranks that are still alive are killed
} launch;

// ---- Arguments ----------------------------------------------------------------------------------

enum { PROCESSES, WORKERS, SERVERS, REPLICAS, MAX_RESTARTS, GRACE, TIMEOUT };

static const mu_tool_option options[] = {
    [PROCESSES] = {.letter = 'n', .value = "PROCESSES", .text = "number of processes, 1 to 1024"},
    [WORKERS] = {.name = "workers",
                 .value = "N",
                 .text = "instead of -n: run the program once, as the coordinator of so many workers (`muster serve`)"},
    [SERVERS] = {.name = "ps", .value = "N", .text = "with --workers: number of parameter servers (`muster serve`)"},
    [REPLICAS] =
        {.name = "replicas",
         .value = "N",
         .initial = "0",
         .text = "CPU devices of each process, at most 256; 0: MUSTER_CPU_DEVICES, else one per core of its share"},
    [MAX_RESTARTS] = {.name = "max-restarts",
                      .value = "N",
                      .initial = "0",
                      .text = "how many times to start all processes again after a failure"},
    [GRACE] = {.name = "grace",
               .value = "SECONDS",
               .initial = "10",
               .text = "time between asking the processes to end (SIGTERM) and killing them (SIGKILL)"},
    [TIMEOUT] = {.name = "timeout",
                 .value = "SECONDS",
                 .initial = "0",
                 .text = "end the job after this time; 0: no limit"},
    {.text = NULL},
};

static mu_status read_processes(const mu_tool_arguments *a, mu_launch_options *out)
{
    const bool equal = a->values[PROCESSES] != NULL;
    if (!equal && a->values[WORKERS] == NULL && a->values[SERVERS] == NULL)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster launch: -n is missing; give the number of processes, or that of --workers and of --ps");
    if (equal == (a->values[WORKERS] != NULL) || equal == (a->values[SERVERS] != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "muster launch: give either -n PROCESSES, or --workers N and --ps N");
    if (equal)
        return mu__tool_whole(a, PROCESSES, 1, MU_MAX_LAUNCHED, &out->n);
    MU_TRY(mu__tool_whole(a, WORKERS, 1, MU_MAX_LAUNCHED / 2 - 1, &out->workers));
    MU_TRY(mu__tool_whole(a, SERVERS, 1, MU_MAX_LAUNCHED / 2, &out->servers));
    out->n = 1 + out->workers + out->servers;
    if (readlink("/proc/self/exe", out->server_path, sizeof out->server_path - 1) > 0)
        return MU_OK;
    return mu__error(mu__errno_code(errno), "muster launch: cannot find its own program: %s", strerror(errno));
}

static mu_status read_options(const mu_tool_arguments *a, mu_launch_options *out)
{
    *out = (mu_launch_options){.program = a->operands};
    MU_TRY(read_processes(a, out));
    MU_TRY(mu__tool_whole(a, REPLICAS, 0, 256, &out->replicas));
    MU_TRY(mu__tool_whole(a, MAX_RESTARTS, 0, 1000000, &out->max_restarts));
    MU_TRY(mu__tool_number(a, GRACE, "seconds", 0, 1e6, &out->grace));
    return mu__tool_number(a, TIMEOUT, "seconds", 0, 1e9, &out->timeout);
}

// ---- Ending -------------------------------------------------------------------------------------

static void signal_all(const launch *l, int number)
{
    for (int r = 0; r < l->options.n; r++)
        if (l->ranks[r].pid > 0)
            kill(-l->ranks[r].pid, number);
}

// Asks all ranks to end. A second request, or the end of the grace period, kills them.
static void end_all(launch *l, int number)
{
    signal_all(l, l->ending ? SIGKILL : number);
    if (!l->ending)
        l->kill_at = mu__deadline_ns(l->options.grace);
    l->ending = true;
}

static int code_of(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
}

static void say_first(launch *l, int r, const siginfo_t *info)
{
    const char *then = l->alive > 0 ? "; ending the others" : "";
    if (info->si_code == CLD_EXITED)
        mu__screen_say(&l->screen, "muster launch: rank %d (process %d) failed first, with exit code %d%s", r,
                       (int)info->si_pid, info->si_status, then);
    else
        mu__screen_say(&l->screen, "muster launch: rank %d (process %d) failed first, killed by signal %d (%s)%s", r,
                       (int)info->si_pid, info->si_status, strsignal(info->si_status), then);
}

// Passes on a rank's remaining output before the launcher reports its end.
static void drain(launch *l, rank *one)
{
    for (int i = 0; i < 2; i++) {
        mu_relay *stream = &one->streams[i];
        struct pollfd ready = {.fd = stream->fd, .events = POLLIN};
        for (int reads = 0; stream->fd >= 0 && reads < 1000 && poll(&ready, 1, 0) == 1; reads++)
            mu__relay_read(stream, &l->screen);
    }
}

static bool is_rank(const launch *l, pid_t pid)
{
    for (int r = 0; r < l->options.n; r++)
        if (l->ranks[r].pid == pid)
            return true;
    return false;
}

// Reaps processes that left their rank's process group and have ended.
static void reap_strays(const launch *l)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 && !is_rank(l, info.si_pid) &&
           info.si_pid != l->guard.pid) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}

static mu_status start_rank(launch *l, int r)
{
    mu_started started;
    const mu_status status = mu__rank_start(&l->options, r, l->ports, &l->guard, &started);
    rank *one = &l->ranks[r];
    for (int i = 0; i < 2; i++)
        mu__relay_close(&one->streams[i], &l->screen);
    *one = (rank){.pid = started.pid,
                  .started_ns = mu__now_ns(),
                  .quick = one->quick,
                  .streams = {{.fd = started.out, .rank = r, .out = STDOUT_FILENO, .bar = started.terminal},
                              {.fd = started.err, .rank = r, .out = STDERR_FILENO}}};
    l->alive += started.pid > 0;
    return status;
}

// Starts a server again, unless it ends as soon as it has begun, again and again. Returns whether it runs.
static bool start_again(launch *l, int r, const siginfo_t *info)
{
    rank *one = &l->ranks[r];
    const mu_launched_task task = mu__launched_task(&l->options, r);
    one->quick = mu__now_ns() - one->started_ns < QUICK_NS ? one->quick + 1 : 0;
    if (one->quick >= MOST_QUICK)
        return false;
    mu__screen_say(&l->screen, "muster launch: %s %d (process %d) has ended, %s %d; starting it again", task.job,
                   task.index, (int)info->si_pid, info->si_code == CLD_EXITED ? "exit code" : "killed by signal",
                   info->si_status);
    if (start_rank(l, r) == MU_OK)
        return true;
    mu_error_value error;
    mu__error_move(&error);
    mu__screen_say(&l->screen, "%s", error.message);
    return false;
}

// What the end of a rank means where there are servers: the program's end is that of all. Returns whether it is a
// failure.
static bool ended_beside_servers(launch *l, int r, const siginfo_t *info)
{
    if (r > 0)
        return !l->ending && !start_again(l, r, info);
    if (code_of(info) == 0 && !l->ending)
        end_all(l, SIGTERM);
    return code_of(info) != 0;
}

// Records every rank that has ended and kills its process group. The group's number cannot be reused before the rank
// has been waited for.
static void reap(launch *l)
{
    siginfo_t info, first_info = {0};
    int first = -1;
    for (int r = 0; r < l->options.n; r++) {
        rank *one = &l->ranks[r];
        info.si_pid = 0;
        if (one->pid == 0 || waitid(P_PID, (id_t)one->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            continue;
        kill(-one->pid, SIGKILL);
        waitid(P_PID, (id_t)one->pid, &info, WEXITED);
        one->pid = 0;
        l->alive--;
        drain(l, one);
        const bool failed = l->options.workers > 0 ? ended_beside_servers(l, r, &info) : code_of(&info) != 0;
        if (failed && (first < 0 || code_of(&first_info) == GONE)) {
            first = r;
            first_info = info;
        }
    }
    reap_strays(l);
    if (first < 0 || l->first >= 0)
        return;
    l->first = first;
    l->code = code_of(&first_info) != 0 ? code_of(&first_info) : GONE; // a server may end with 0 again and again
    if (!l->ending) {
        say_first(l, first, &first_info);
        end_all(l, SIGTERM);
    }
}

// A process that left its rank's group (setsid, a daemon) becomes a child of the launcher when its parents are gone,
// and is killed with the job. Its own children become visible once it has ended.
static void end_strays(const launch *l)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (bool found = true; found;) {
        FILE *children = fopen(path, "re");
        int pid;
        found = false;
        while (children && fscanf(children, "%d", &pid) == 1) {
            if (pid == l->guard.pid)
                continue;
            found |= kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid;
        }
        if (children)
            fclose(children);
    }
}

// ---- One run of the job -------------------------------------------------------------------------

static mu_status start_all(launch *l)
{
    l->first = -1;
    l->code = 0;
    l->ending = false;
    for (int r = 0; r < l->options.n; r++) {
        l->ranks[r].quick = 0;
        MU_TRY(start_rank(l, r));
    }
    return MU_OK;
}

static void take_signals(launch *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        l->interrupted = true;
        end_all(l, (int)info.ssi_signo);
    }
}

// Milliseconds until the earlier of two deadlines; -1: no deadline.
static int milliseconds_until(int64_t a, int64_t b)
{
    const int64_t at = MU_MIN(a, b);
    return at == MU_FOREVER ? -1 : (int)MU_MIN(MU_MAX((at - mu__now_ns()) / 1000000 + 1, 0), 1000000);
}

// Passes on output for at most `milliseconds`; false if no more can come.
static bool wait_for(launch *l, int milliseconds)
{
    int n = 1;
    bool open = l->alive > 0;
    l->polled[0] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    for (int i = 0; i < 2 * l->options.n; i++, n++) {
        l->polled[n] = (struct pollfd){.fd = l->ranks[i / 2].streams[i % 2].fd, .events = POLLIN};
        open |= l->polled[n].fd >= 0;
    }
    if (!open || poll(l->polled, (nfds_t)n, milliseconds) < 0)
        return open && errno == EINTR;
    for (int i = 0; i < 2 * l->options.n; i++)
        if (l->polled[i + 1].revents)
            mu__relay_read(&l->ranks[i / 2].streams[i % 2], &l->screen);
    if (l->polled[0].revents)
        take_signals(l);
    return true;
}

static void watch(launch *l)
{
    int64_t time_out = l->options.timeout > 0 ? mu__deadline_ns(l->options.timeout) : MU_FOREVER;
    while (l->alive > 0) {
        wait_for(l, milliseconds_until(time_out, l->ending ? l->kill_at : MU_FOREVER));
        reap(l);
        const int64_t now = mu__now_ns();
        if (now >= time_out) {
            mu__screen_say(&l->screen, "muster launch: the job has not ended after %g seconds; ending it",
                           l->options.timeout);
            time_out = MU_FOREVER;
            l->interrupted = true;
            l->first = 0;
            l->code = GONE;
            end_all(l, SIGTERM);
        }
        if (l->ending && now >= l->kill_at) {
            signal_all(l, SIGKILL);
            l->kill_at = MU_FOREVER;
        }
    }
    end_strays(l);
    const int64_t last = mu__deadline_ns(.2); // time to read remaining output
    while (mu__now_ns() < last && wait_for(l, milliseconds_until(last, MU_FOREVER)))
        continue;
    for (int i = 0; i < 2 * l->options.n; i++)
        mu__relay_close(&l->ranks[i / 2].streams[i % 2], &l->screen);
}

// ---- The job ------------------------------------------------------------------------------------

// The ranks of a cluster with parameter servers need not all be trusted alike: each worker's key is made of this.
static mu_status make_keyring(launch *l)
{
    char *key = NULL;
    mu_status status = l->key[0] ? MU_OK : mu__mesh_key(&key);
    const char *used = key ? key : l->key;
    if (status == MU_OK)
        status = mu__key_check(used);
    if (status == MU_OK)
        l->options.keyring = mu__keyring_new(used, true);
    mu__key_forget(key);
    return status == MU_OK && !l->options.keyring ? mu_error_code() : status;
}

// Uses the caller's key, or makes one for this job.
static mu_status make_key(launch *l)
{
    l->options.key = l->key;
    if (!mu__environment("MUSTER_CLUSTER_KEY") && !mu__environment("MUSTER_CLUSTER_KEY_FILE"))
        MU_TRY(mu__key_random(l->key));
    const int version = (int)mu__setting_int(MU_SETTING_WIRE_VERSION);
    if (l->options.workers > 0 && version >= MU_WIRE_BEARERS)
        return make_keyring(l);
    if (l->options.workers > 0)
        mu__screen_say(
            &l->screen,
            "muster launch: MUSTER_WIRE_VERSION is %d, which has no keys of workers: each gets the job's key", version);
    return MU_OK;
}

static mu_status hear_signals(launch *l)
{
    static const int heard[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < MU_COUNT(heard); i++)
        sigaddset(&set, heard[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals >= 0
               ? MU_OK
               : mu__error(mu__errno_code(errno), "muster launch: cannot wait for signals: %s", strerror(errno));
}

static mu_status run_job(launch *l)
{
    mu_status status = MU_OK;
    for (int restarts = 0;; restarts++) {
        status = start_all(l);
        if (status != MU_OK)
            end_all(l, SIGKILL);
        watch(l);
        if (status != MU_OK || l->code == 0 || l->interrupted || restarts == l->options.max_restarts)
            return status;
        mu__screen_say(&l->screen, "muster launch: starting all ranks again (%d of %d)", restarts + 1,
                       l->options.max_restarts);
    }
}

// Output lost to a full disk is a failure unless the job has already failed.
static mu_status check_output(const launch *l)
{
    const int lost = l->screen.lost;
    if (l->code != 0 || (lost != ENOSPC && lost != EDQUOT && lost != EFBIG && lost != EIO))
        return MU_OK;
    return mu__error(mu__errno_code(lost),
                     "muster launch: lines of the ranks could not be written: %s; make room and run it again",
                     strerror(lost));
}

static mu_status launch_all(launch *l)
{
    l->ranks = mu__calloc((size_t)l->options.n, sizeof *l->ranks);
    l->ports = mu__calloc((size_t)l->options.n, sizeof *l->ports);
    l->polled = mu__calloc(2 * (size_t)l->options.n + 1, sizeof *l->polled);
    if (!l->ranks || !l->ports || !l->polled)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < 2 * l->options.n; i++)
        l->ranks[i / 2].streams[i % 2].fd = -1;
    mu__screen_open(&l->screen);
    if (l->options.replicas == 0 && !mu__environment("MUSTER_CPU_DEVICES"))
        l->options.replicas = mu__default_replicas(l->options.n);
    MU_TRY(make_key(l));
    MU_TRY(mu__ports_keep(l->ports, l->options.n, true));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    mu_status status = mu__guard_start(&l->guard);
    if (status == MU_OK) {
        status = hear_signals(l);
        if (status == MU_OK)
            status = run_job(l);
        if (status == MU_OK)
            status = check_output(l);
        mu__guard_end(&l->guard);
        waitpid(l->guard.pid, NULL, 0);
    }
    mu__ports_give_back(l->ports, l->options.n);
    return status;
}

static int launch_main(const mu_tool_arguments *a)
{
    launch l = {.signals = -1, .first = -1};
    mu_status status = mu__runtime() ? read_options(a, &l.options) : mu_error_code();
    if (status == MU_OK)
        status = launch_all(&l);
    if (l.signals >= 0)
        close(l.signals);
    mu__free(l.ranks);
    mu__free(l.ports);
    mu__free(l.polled);
    mu_release(l.options.keyring);
    return status == MU_OK ? l.code : mu_exit(false);
}

const mu_tool_command mu__tool_launch = {
    .name = "muster launch",
    .usage = "-n PROCESSES | --workers N --ps N [OPTION]... [--] PROGRAM [ARGUMENT]...",
    .summary = "run a program as several processes on this machine that make up a cluster",
    .description = "Runs a program as several processes (ranks) on this machine. Each one gets the whole cluster in "
                   "TF_CONFIG, a key for the job, and its share of the cores. Lines of output are prefixed with the "
                   "rank that wrote them; one progress bar is shown.\n\n"
                   "When the first rank fails, the launcher ends the others, with all processes that they started. The "
                   "exit code is that of the first failure; 128 + N if signal N killed the rank.\n\n"
                   "With --workers and --ps, the program runs once, as the chief that coordinates workers and "
                   "parameter servers. A worker or server that ends is started again. When the program ends, all "
                   "others are ended, and its exit code is the launcher's. The chief and the parameter servers get the "
                   "job's key, each worker only a key of its own (`muster key`), with which it cannot be another task.",
    .example = "muster launch -n 2 -- ./program --epochs 3\nmuster launch --workers 4 --ps 2 -- ./program\n",
    .options = options,
    .needs = "the program is missing",
    .fewest = 1,
    .most = -1,
    .ends_at_operand = true,
    .main = launch_main,
};
