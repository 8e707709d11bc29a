// The progress of an epoch, as Keras draws it.
//
// On a terminal one line is drawn over and over (at most 20 times a second): steps, bar, time left, time per
// step, values. Elsewhere one line is printed at the end of the epoch. NO_COLOR drops the colour. A terminal
// that tells no width, or 0, gets the short form.
#include "model/model.h"

#include <math.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_CELLS 20
#define REDRAW_NS 50000000

// Waiting for input is told from this share of the time on, and not of the first second: it is the first batch's.
#define INPUT_SHARE   .1
#define INPUT_SECONDS 1.0

static int terminal_width(FILE *out)
{
    struct winsize size = {0};
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void mu__progress_begin(mu_progress *progress, mu_verbose verbose, int epoch, int epochs, int64_t target)
{
    FILE *out = stdout;
    bool terminal = isatty(fileno(out)) == 1;
    if (verbose == MU_VERBOSE_AUTO)
        verbose = terminal ? MU_VERBOSE_BAR : MU_VERBOSE_LINES;
    *progress = (mu_progress){.out = out, .mode = verbose, .target = target > 0 ? target : -1, .begin_ns = mu__now_ns(),
                              .width = terminal ? terminal_width(out) : 0,
                              .colour = terminal && !mu__setting_text(MU_SETTING_NO_COLOR)};
    if (verbose != MU_VERBOSE_SILENT && epochs > 0)
        fprintf(out, "Epoch %d/%d\n", epoch, epochs);
}

// A line of text that may not grow over `columns`; colour takes no columns.
typedef struct line {
    char text[1024];
    size_t used;
    int columns, limit;
} line;

static void add_colour(line *l, const char *code, bool colour)
{
    if (colour && l->used + strlen(code) < sizeof l->text) {
        memcpy(l->text + l->used, code, strlen(code) + 1);
        l->used += strlen(code);
    }
}

static void add(line *l, int columns, const char *text)
{
    size_t n = strlen(text);
    if (l->columns + columns > l->limit || l->used + n >= sizeof l->text)
        return;
    memcpy(l->text + l->used, text, n + 1);
    l->used += n;
    l->columns += columns;
}

static void add_text(line *l, const char *format, ...) MU_PRINTF(2, 3);
static void add_text(line *l, const char *format, ...)
{
    char text[256];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    mu__printable(text, false);  // names of metrics are the user's
    add(l, mu__columns(text), text);
}

static void add_bar(line *l, double part, bool colour)
{
    int full = (int)(part * BAR_CELLS);
    add(l, 1, " ");
    add_colour(l, "\033[32m", colour);
    for (int i = 0; i < full; i++)
        add(l, 1, "━");
    add_colour(l, "\033[37m", colour);
    for (int i = full; i < BAR_CELLS; i++)
        add(l, 1, colour ? "━" : " ");
    add_colour(l, "\033[0m", colour);
}

static void add_duration(line *l, double seconds)
{
    if (seconds >= 3600)
        add_text(l, " %d:%02d:%02d", (int)(seconds / 3600), (int)fmod(seconds / 60, 60), (int)fmod(seconds, 60));
    else if (seconds >= 60)
        add_text(l, " %d:%02d", (int)(seconds / 60), (int)fmod(seconds, 60));
    else
        add_text(l, " %.0fs", seconds);
}

static void add_step_time(line *l, double seconds)
{
    if (seconds >= 1)
        add_text(l, " %.0fs/step", seconds);
    else if (seconds >= 1e-3)
        add_text(l, " %.0fms/step", seconds * 1e3);
    else
        add_text(l, " %.0fus/step", seconds * 1e6);
}

static void add_values(line *l, int n, const char *const *names, const double *values)
{
    for (int i = 0; i < n; i++)
        add_text(l, fabs(values[i]) > 1e-3 || values[i] == 0 ? " - %s: %.4f" : " - %s: %.4e", names[i], values[i]);
}

static void draw(mu_progress *progress, int64_t step, bool final, int n, const char *const *names, const double *values)
{
    line l = {.limit = progress->width > 0 ? progress->width : 1000};
    double elapsed = (double)(mu__now_ns() - progress->begin_ns) / 1e9,
           per_step = step > 0 ? elapsed / (double)step : 0;
    bool known = progress->target > 0 && step <= progress->target;
    if (known)
        add_text(&l, "%lld/%lld", (long long)step, (long long)progress->target);
    else
        add_text(&l, "%lld", (long long)step);
    if (progress->width != 0)
        add_bar(&l, known ? (double)step / (double)progress->target : final, progress->colour);
    add_duration(&l, final || !known ? elapsed : per_step * (double)(progress->target - step));
    add_step_time(&l, per_step);
    add_values(&l, n, names, values);
    if (progress->input_share > INPUT_SHARE && elapsed > INPUT_SECONDS)
        add_text(&l, " - input wait: %.0f%%", 100 * progress->input_share);
    if (progress->mode == MU_VERBOSE_BAR)
        fprintf(progress->out, "\r%s%*s", l.text, MU_MAX(0, (int)progress->last_length - l.columns), "");
    else
        fputs(l.text, progress->out);
    progress->last_length = (size_t)l.columns;
    if (final)
        fputc('\n', progress->out);
    fflush(progress->out);
}

bool mu__progress_due(const mu_progress *progress)
{
    return progress->mode == MU_VERBOSE_BAR && mu__now_ns() - progress->shown_ns >= REDRAW_NS;
}

void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values)
{
    if (!mu__progress_due(progress))
        return;
    progress->shown_ns = mu__now_ns();
    draw(progress, step, false, n, names, values);
}

void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values)
{
    if (progress->mode != MU_VERBOSE_SILENT)
        draw(progress, step, true, n, names, values);
}

void mu__progress_abandon(mu_progress *progress)
{
    if (progress->mode == MU_VERBOSE_BAR && progress->shown_ns) {
        fputc('\n', progress->out);
        fflush(progress->out);
    }
}
