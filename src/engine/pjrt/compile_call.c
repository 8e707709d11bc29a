// One call of the plugin's compiler, on a thread of its own: it cannot be interrupted, so that whoever waits for it can
// say how long it takes, and give up. What was given up ends in the background, and its result is dropped.
#include "engine/pjrt/pjrt_plan.h"

#include <signal.h>

// How often a compilation that lasts is reported, at the default level of the log: the program does nothing else.
#define REPORT_SECONDS 10.0

typedef struct compilation {
    atomic_int holders;       // the thread and who waits; the last one frees
    mu_pjrt_client *client;   // retained
    char *text, *options;
    size_t text_bytes, options_bytes;
    char what[128];
    pj_loaded *loaded;
    mu_status status;
    mu_error_value error;
    mu_latch done;
} compilation;

static void free_compilation(compilation *c)
{
    pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = c->loaded);
    if (c->loaded)
        mu__pjrt_destroy(c->client->api, PJ_LOADED_DESTROY, &args);
    mu_release(c->client);
    mu__latch_free(&c->done);
    mu__free(c->text);
    mu__free(c->options);
    mu__free(c);
}

// Unless it was given up, whoever waits frees the compilation, so that no thread holds the client after mu_exit.
static void thread_ends(compilation *c)
{
    if (atomic_fetch_sub(&c->holders, 1) > 1)
        mu__latch_arrive(&c->done);
    else
        free_compilation(c);
}

static void let_go(compilation *c)
{
    if (atomic_fetch_sub(&c->holders, 1) > 1)
        return;
    (void)mu__latch_wait(&c->done, MU_FOREVER, c->what); // the thread arrives at once, if it has not
    free_compilation(c);
}

static void *compile(void *argument)
{
    static const char format[] = "mlir";
    compilation *c = argument;
    pj_program source = PJ_ARGS(pj_program, .code = c->text, .code_bytes = c->text_bytes, .format = format,
                                .format_bytes = sizeof format - 1);
    pj_compile_args args = PJ_ARGS(pj_compile_args, .client = c->client->client, .program = &source,
                                   .options = c->options, .options_bytes = c->options_bytes);
    c->status = mu__pjrt_call(c->client->api, PJ_CLIENT_COMPILE, &args, c->what);
    if (c->status == MU_OK)
        c->loaded = args.loaded;
    else
        mu__error_move(&c->error);
    thread_ends(c);
    return NULL;
}

static mu_status start(compilation *c)
{
    pthread_t thread;
    sigset_t all, own;
    sigfillset(&all);  // the program's own threads handle signals
    pthread_sigmask(SIG_SETMASK, &all, &own);
    const int failed = pthread_create(&thread, NULL, compile, c);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (failed != 0)
        return mu__error(mu__errno_code(failed), "%s: cannot start a thread for the compiler: %s", c->what,
                         strerror(failed));
    pthread_detach(thread);
    return MU_OK;
}

static mu_status wait(compilation *c)
{
    const int64_t begin = mu__now_ns();
    const double most = mu__setting_real(MU_SETTING_COMPILE_TIMEOUT), report = MU_MIN(REPORT_SECONDS, most / 4);
    for (;;) {
        const double seconds = (double)(mu__now_ns() - begin) / 1e9;
        mu_error_value ignored;
        if (seconds >= most)
            return mu__error(MU_DEADLINE_EXCEEDED,
                             "%s: %s's compiler has not finished after %.0f s; raise MUSTER_COMPILE_TIMEOUT, or make "
                             "the function smaller (MUSTER_DUMP_STABLEHLO=folder shows its program)",
                             c->what, c->client->kind, most);
        const double slice = MU_MIN(most - seconds, report);
        if (mu__latch_wait(&c->done, mu__now_ns() + (int64_t)(slice * 1e9), c->what) == MU_OK)
            return MU_OK;
        mu__error_move(&ignored);
        mu__log(MU_LOG_WARNING, "compiling '%s' for %s: %.0f s so far, of at most %.0f (MUSTER_COMPILE_TIMEOUT)",
                c->what, c->client->kind, (double)(mu__now_ns() - begin) / 1e9, most);
    }
}

static compilation *new_compilation(mu_pjrt_client *client, const char *what, const mu_pjrt_text *text,
                                    const char *options, size_t options_bytes)
{
    compilation *c = mu__calloc(1, sizeof *c);
    if (!c)
        return NULL;
    atomic_store(&c->holders, 1);
    c->client = mu_retain(client);
    c->text = mu__alloc(text->n + 1);
    c->options = mu__alloc(options_bytes + 1);
    if (!c->text || !c->options || mu__latch_init(&c->done, 1) != MU_OK) {
        free_compilation(c);
        return NULL;
    }
    memcpy(c->text, text->items, text->n + 1);
    memcpy(c->options, options, options_bytes);
    c->text_bytes = text->n;
    c->options_bytes = options_bytes;
    snprintf(c->what, sizeof c->what, "%s", what);
    return c;
}

mu_status mu__pjrt_compile_text(mu_pjrt_client *client, const char *what, const mu_pjrt_text *text,
                                const char *options, size_t options_bytes, pj_loaded **out)
{
    compilation *c = new_compilation(client, what, text, options, options_bytes);
    if (!c)
        return MU_RESOURCE_EXHAUSTED;
    atomic_fetch_add(&c->holders, 1);
    mu_status status = start(c);
    if (status != MU_OK)
        thread_ends(c); // there is none
    else if ((status = wait(c)) == MU_OK && (status = c->status) != MU_OK)
        mu__error_raise(&c->error);
    if (status == MU_OK) {
        *out = c->loaded;
        c->loaded = NULL;
    }
    let_go(c);
    return status;
}
