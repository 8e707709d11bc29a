// Which source line made an op; kept per context while a call is in progress.
//
// Every public call that can fail is wrapped by a macro of its own name (muster/lines.h), which pushes the line, makes
// the call and pops it. Lines form a short stack, because arguments may be calls too. Nodes of a trace and entries of a
// tape record the innermost line; errors name it. Callers from other languages push nothing and get no lines. A layer
// pushes its caller's line again with the layer's name, which calls inside the layer inherit.
#include "ops/core/composed.h"

#define MU_COLD __attribute__((noinline, cold))

void mu__line_push(mu_context *context, mu_site site)
{
    if (context->n_lines < MU_LINE_DEPTH)
        context->lines[context->n_lines] = site;
    context->n_lines++;
}

void mu__line_pop(mu_context *context) { context->n_lines -= context->n_lines > 0; }

mu_site mu__line(void)
{
    const mu_context *context = mu__context();
    const int n = MU_MIN(context->n_lines, MU_LINE_DEPTH);
    return n > 0 && context->lines[n - 1].line >= 0 ? context->lines[n - 1] : (mu_site){0};
}

void mu__error_add_site(mu_site site)
{
    if (site.file && *site.file && mu__pending() && !strstr(mu_error_message(), "(made at "))
        mu__error_append(" (made at %s:%d)", site.file, site.line);
    if (site.function && !mu__error_names(site.function))
        mu__error_context("in %s", site.function);
    if (site.layer && !strstr(mu_error_message(), "in layer '"))
        mu__error_context("in layer '%s'", site.layer);
}

// The first call of a thread, and calls that find or leave an error. Kept out of line, because all other calls should
// cost almost nothing.
static MU_COLD void enter_slowly(const char *file, int line)
{
    mu_context *context = mu__context();
    // An existing record belongs to an earlier call, so it must not get this call's line: a negative one marks it.
    const mu_site site = {.file = file, .line = line, .layer = mu__line().layer};
    context->n_calls += context->n_lines == 0;
    mu__line_push(context, context->error.code == MU_OK ? site : (mu_site){.file = file, .line = -line});
}

// Calls do nothing while an error is pending. A program that never reads the record would not notice.
static MU_COLD void report_skipped(mu_error_value *error, const mu_site *site, const char *name)
{
    static const char suffix[] = "_with";
    const size_t length = strlen(name), end = sizeof suffix - 1;
    const bool with = length > end && strcmp(name + length - end, suffix) == 0;
    error->skipped = true;
    mu__log(MU_LOG_WARNING, "%s:%d: %.*s and later calls do nothing until mu_error_take reads the pending error: %.*s",
            site->file, -site->line, (int)(with ? length - end : length), name, (int)strcspn(error->message, "\n"),
            error->message);
}

void mu_line_failed(const char *name)
{
    mu_context *context = mu__current;
    // A call inside another one belongs to the same expression, or to a callback whose error its caller gets.
    if (!context || context->error.code == MU_OK || context->n_lines != 1)
        return;
    const mu_site *site = &context->lines[0];
    if (name && site->line < 0 && !context->error.skipped)
        report_skipped(&context->error, site, name);
}

static MU_COLD void leave_slowly(void)
{
    mu_site site = mu__line();
    site.layer = NULL; // the layer reports its own failure
    mu__error_add_site(site);
    mu__line_pop(mu__context());
}

void mu_line_enter(const char *file, int line)
{
    mu_context *context = mu__current;
    if (context && context->error.code == MU_OK && context->n_lines > 0 && context->n_lines < MU_LINE_DEPTH) {
        mu_site *site = &context->lines[context->n_lines++];
        *site = (mu_site){.file = file, .line = line, .layer = site[-1].layer};
    } else if (context && context->error.code == MU_OK && context->n_lines == 0) {
        context->n_calls++;
        context->lines[context->n_lines++] = (mu_site){.file = file, .line = line};
    } else {
        enter_slowly(file, line);
    }
}

void mu_line_leave(void)
{
    mu_context *context = mu__current;
    if (context && context->error.code == MU_OK && context->n_lines > 0)
        context->n_lines--;
    else
        leave_slowly();
}

// The line of a call that is no part of the stack: an error that was recorded before it is not its own.
static void name_line(bool was_pending, const char *file, int line)
{
    if (!was_pending)
        mu__error_add_site((mu_site){.file = file, .line = line});
}

mu_pool *mu_line_pool_open(const char *file, int line)
{
    const bool was_pending = mu__pending();
    mu_pool *pool = mu_pool_open();
    name_line(was_pending, file, line);
    return pool;
}

void mu_line_pool_close(mu_pool *pool, const char *file, int line)
{
    const bool was_pending = mu__pending();
    mu_pool_close(pool);
    name_line(was_pending, file, line);
}
