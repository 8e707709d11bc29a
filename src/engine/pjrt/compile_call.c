// One call of the plugin's compiler, on a thread of its own: it cannot be interrupted, so the waiting thread reports
// how long it takes, and stops waiting after a limit. What was given up ends in the background, and its result is
// dropped.
#include "engine/pjrt/pjrt_plan.h"

// How often a compilation that lasts is reported, at the default level of the log: the program does nothing else.
#define REPORT_SECONDS 10.0

typedef struct compilation {
    mu_pjrt_pending pending; // first
    mu_pjrt_client *client;  // retained
    char *text, *options;
    size_t text_bytes, options_bytes;
    char what[128];
    pj_loaded *loaded;
    mu_status status;
    mu_error_value error;
} compilation;

static void free_compilation(mu_pjrt_pending *pending)
{
    compilation *c = (compilation *)pending;
    pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = c->loaded);
    if (c->loaded && !atomic_load(&c->client->lost))
        mu__pjrt_destroy(c->client->api, PJ_LOADED_DESTROY, &args);
    mu_release(c->client);
    mu__latch_free(&pending->done);
    mu__free(c->text);
    mu__free(c->options);
    mu__free(c);
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
    mu__pjrt_pending_end(&c->pending);
    return NULL;
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
        if (mu__latch_wait(&c->pending.done, mu__deadline_ns(slice), c->what) == MU_OK)
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
    mu__pjrt_pending_init(&c->pending, free_compilation);
    c->client = mu_retain(client);
    c->text = mu__alloc(text->n + 1);
    c->options = mu__alloc(options_bytes + 1);
    if (!c->text || !c->options) {
        free_compilation(&c->pending);
        return NULL;
    }
    memcpy(c->text, text->items, text->n + 1);
    memcpy(c->options, options, options_bytes);
    c->text_bytes = text->n;
    c->options_bytes = options_bytes;
    snprintf(c->what, sizeof c->what, "%s", what);
    return c;
}

mu_status mu__pjrt_compile_text(mu_pjrt_client *client, const char *what, const mu_pjrt_text *text, const char *options,
                                size_t options_bytes, pj_loaded **out)
{
    MU_TRY(mu__pjrt_usable(client, what));
    compilation *c = new_compilation(client, what, text, options, options_bytes);
    if (!c)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = mu__pjrt_pending_start(&c->pending, compile, c->what);
    if (status == MU_OK && (status = wait(c)) == MU_OK && (status = c->status) != MU_OK)
        mu__error_raise(&c->error);
    if (status == MU_OK) {
        *out = c->loaded;
        c->loaded = NULL;
    }
    mu__pjrt_pending_leave(&c->pending);
    return status;
}
