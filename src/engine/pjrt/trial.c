// Tries a plugin in a process of its own, because only a trial shows whether it ends the process: LLVM reads its
// options (xla_backend_extra_options) when the first program is compiled, and ends the process over a value that it
// cannot read; which values those are is not in the library.
//
// The process is a copy of this one without its other threads, which loads the plugin, compiles a small program, says
// that it is done and ends. Its output is read for that, and for LLVM's own words. How it ended cannot be relied on:
// a program that ignores SIGCHLD, or waits for any process, takes that away.
#include "engine/pjrt/pjrt_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_SECONDS = 60, OUTPUT_BYTES = 4096 };

static const char done_mark = '\0'; // not in any text

// ---- In the new process -------------------------------------------------------------------------

// LLVM calls exit, whose further handlers belong to the program that this process is a copy of.
static void end_here(void) { _exit(1); }

static void compile(const pj_api *api, pj_client *client)
{
    static const char format[] = "mlir";
    static char code[] = "module @muster {\n  func.func public @main(%v0: tensor<f32>) -> (tensor<f32>) {\n"
                         "    %v1 = \"stablehlo.add\"(%v0, %v0) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
                         "    \"func.return\"(%v1) : (tensor<f32>) -> ()\n  }\n}\n";
    char options[MU_PJRT_OPTIONS_BYTES];
    pj_program source = PJ_ARGS(pj_program, .code = code, .code_bytes = sizeof code - 1, .format = format,
                                .format_bytes = sizeof format - 1);
    pj_compile_args args = PJ_ARGS(pj_compile_args, .client = client, .program = &source, .options = options,
                                   .options_bytes = mu__pjrt_compile_options(1, 1, NULL, 0, options));
    (void)mu__pjrt_call(api, PJ_CLIENT_COMPILE, &args, "a trial");
}

// What the plugin refuses with an error it will refuse again, in the program's own process.
static void run_trial(const char *path, mu_pjrt_load *load)
{
    atexit(end_here);
    const pj_api *api = load(path);
    pj_client_create_args made = PJ_ARGS(pj_client_create_args, .n_options = 0);
    if (api && mu__pjrt_call(api, PJ_CLIENT_CREATE, &made, "a trial") == MU_OK)
        compile(api, made.client);
    while (write(STDOUT_FILENO, &done_mark, 1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

static void become_trial(const char *path, mu_pjrt_load *load, int out)
{
    static const int own[] = {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < MU_COUNT(own); i++)
        signal(own[i], SIG_DFL);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    run_trial(path, load);
}

// ---- In this process ----------------------------------------------------------------------------

// Keeps the end of what the process says, until it is done or ends its output; false if it does neither in time.
static bool hear(int in, char output[OUTPUT_BYTES], bool *done)
{
    const int64_t deadline = mu__now_ns() + (int64_t)WAIT_SECONDS * 1000000000;
    size_t used = 0;
    for (;;) {
        struct pollfd wait = {.fd = in, .events = POLLIN};
        const int64_t left_ms = (deadline - mu__now_ns()) / 1000000;
        if (left_ms <= 0)
            return false;
        if (used == OUTPUT_BYTES - 1) {
            used = OUTPUT_BYTES / 2;
            memmove(output, output + OUTPUT_BYTES - 1 - used, used);
        }
        if (poll(&wait, 1, (int)left_ms) <= 0)
            continue;
        const ssize_t n = read(in, output + used, OUTPUT_BYTES - 1 - used);
        *done = n > 0 && memchr(output + used, done_mark, (size_t)n) != NULL;
        used += n > 0 ? (size_t)n : 0;
        output[used] = '\0';
        if (*done || n == 0 || (n < 0 && errno != EINTR))
            return true;
    }
}

// What it said about an option, else its last line.
static const char *reason_of(char *output)
{
    const char *about = NULL, *last = "no reason given";
    for (char *rest = NULL, *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        mu__printable(line, false);
        if (!about && strstr(line, " option"))
            about = line;
        last = line;
    }
    return about ? about : last;
}

static mu_status judge(const char *path, bool heard, bool done, char *output)
{
    if (done)
        return MU_OK;
    if (!heard)
        return mu__error(MU_DEADLINE_EXCEEDED,
                         "plugin %s, tried with the options for LLVM in XLA_FLAGS in a process of its own, has not "
                         "compiled a small program after %d s; remove --xla_backend_extra_options",
                         path, (int)WAIT_SECONDS);
    return mu__error(MU_INVALID_ARGUMENT,
                     "plugin %s ended the process in which it was tried with the options for LLVM in XLA_FLAGS: "
                     "%.300s. Correct --xla_backend_extra_options",
                     path, reason_of(output));
}

mu_status mu__pjrt_try(const char *path, mu_pjrt_load *load)
{
    char output[OUTPUT_BYTES] = "";
    bool done = false;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return mu__error(mu__errno_code(errno), "plugin %s cannot be tried: no pipe: %s", path, strerror(errno));
    const pid_t child = fork();
    if (child == 0)
        become_trial(path, load, ends[1]);
    close(ends[1]);
    const bool heard = child > 0 && hear(ends[0], output, &done);
    close(ends[0]);
    if (child < 0)
        return mu__error(MU_RESOURCE_EXHAUSTED, "plugin %s cannot be tried: no process can be started", path);
    if (!heard)
        kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
    return judge(path, heard, done, output);
}
