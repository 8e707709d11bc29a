// Which line of the program an op was made at: kept per context while a call is in progress.
//
// Every public call that makes ops is wrapped by a macro of its own name (muster/lines.h): it enters its line,
// makes the call and leaves. Lines form a short stack, because arguments are calls too. Nodes of a trace and
// entries of a tape take the innermost line; an error that happens in between names it. Callers from other
// languages enter nothing and get no lines. A layer enters the line that it is called at once more, with its name,
// which calls inside of it inherit. Knows no op.
#include "ops/composed.h"

#include <muster/lines.h>

#define MU_COLD __attribute__((noinline, cold))

void mu__line_push(mu_context *context, mu_site site)
{
    if (context->n_lines < MU_LINE_DEPTH)
        context->lines[context->n_lines] = site;
    context->n_lines++;
}

void mu__line_pop(mu_context *context)
{
    context->n_lines -= context->n_lines > 0;
}

mu_site mu__line(void)
{
    const mu_context *context = mu__context();
    const int n = MU_MIN(context->n_lines, MU_LINE_DEPTH);
    return n > 0 ? context->lines[n - 1] : (mu_site){0};
}

void mu__error_place(mu_site site)
{
    if (site.file && *site.file && mu__pending() && !strstr(mu_error_message(), "(made at "))
        mu__error_append(" (made at %s:%d)", site.file, site.line);
    if (site.function && !mu__error_names(site.function))
        mu__error_context("in %s", site.function);
    if (site.layer && !strstr(mu_error_message(), "in layer '"))
        mu__error_context("in layer '%s'", site.layer);
}

// A thread's first call, and calls that find or leave an error: kept out of the way of all others, which are to
// cost next to nothing.
static MU_COLD void enter_slowly(const char *file, int line)
{
    mu_context *context = mu__context();
    // A record that is there already belongs to an earlier call: this one must not name its line in it.
    const mu_site site = {.file = file, .line = line, .layer = mu__line().layer};
    mu__line_push(context, context->error.code == MU_OK ? site : (mu_site){0});
}

static MU_COLD void leave_slowly(void)
{
    mu_site site = mu__line();
    site.layer = NULL;  // the layer says itself that it failed
    mu__error_place(site);
    mu__line_pop(mu__context());
}

void mu_line_enter(const char *file, int line)
{
    mu_context *context = mu__current;
    if (context && context->error.code == MU_OK && context->n_lines > 0 && context->n_lines < MU_LINE_DEPTH) {
        mu_site *site = &context->lines[context->n_lines++];
        *site = (mu_site){.file = file, .line = line, .layer = site[-1].layer};
    } else if (context && context->error.code == MU_OK && context->n_lines == 0) {
        context->lines[context->n_lines++] = (mu_site){.file = file, .line = line};
    } else {
        enter_slowly(file, line);
    }
}

static inline void leave(void)
{
    mu_context *context = mu__current;
    if (context && context->error.code == MU_OK && context->n_lines > 0)
        context->n_lines--;
    else
        leave_slowly();
}

mu_tensor *mu_line_leave(mu_tensor *result)
{
    leave();
    return result;
}

mu_value *mu_line_leave_value(mu_value *result)
{
    leave();
    return result;
}

mu_status mu_line_leave_status(mu_status result)
{
    leave();
    return result;
}
