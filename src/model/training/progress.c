// The progress of an epoch, displayed as in Keras.
//
// On a terminal one line is redrawn at most 20 times a second: steps, bar, time left, time per step, values. At the end
// of the epoch all values are shown, on more lines if needed. On other outputs, lines are printed from time to time and
// at the end of the epoch. NO_COLOR turns off colour. If the terminal's width is unknown or 0, the short form is used.

#include "model/core/layer.h"
#include "model/training/progress.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_CELLS 20
#define REDRAW_NS 50000000

// If the output is not a terminal: the shortest and longest time between two lines.
#define LINE_NS        10000000000
#define LATEST_LINE_NS 60000000000

// Waiting for input is shown above this share of the time, except in the first second, which includes the first batch.
#define INPUT_SHARE   .1
#define INPUT_SECONDS 1.0

int mu__terminal_width(FILE *out)
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
    *progress = (mu_progress){.out = out,
                              .mode = verbose,
                              .target = target > 0 ? target : -1,
                              .begin_ns = mu__now_ns(),
                              .width = terminal ? mu__terminal_width(out) : 0,
                              .colour = terminal && !mu__setting_text(MU_SETTING_NO_COLOR)};
    if (verbose != MU_VERBOSE_SILENT && epochs > 0)
        fprintf(out, "Epoch %d/%d\n", epoch, epochs);
}

// A line of text of at most `limit` columns; colour codes take no columns.
typedef struct line {
    char text[2048];
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

static bool add(line *l, int columns, const char *text)
{
    const size_t n = strlen(text);
    if (l->columns + columns > l->limit || l->used + n >= sizeof l->text)
        return false;
    memcpy(l->text + l->used, text, n + 1);
    l->used += n;
    l->columns += columns;
    return true;
}

static void add_text(line *l, const char *format, ...) MU_PRINTF(2, 3);
static void add_text(line *l, const char *format, ...)
{
    char text[256];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    add(l, mu__columns(text), text);
}

// The values to show at one moment.
typedef struct view {
    int64_t step, target; // target -1: not known
    bool final;
    double elapsed;
    int n;
    const char *const *names;
    const double *values;
    double input_share;  // 0: not shown
    const char *workers; // "": not shown
} view;

// ---- The head: steps, bar and times -------------------------------------------------------------

static void add_bar(line *l, double part, int cells, bool colour)
{
    const int full = (int)(part * cells);
    add(l, 1, " ");
    add_colour(l, "\033[32m", colour);
    for (int i = 0; i < full; i++)
        add(l, 1, "━");
    add_colour(l, "\033[37m", colour);
    for (int i = full; i < cells; i++)
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

// Heads from the widest to the narrowest.
static const struct head {
    int cells;
    bool duration, step_time;
} heads[] = {{BAR_CELLS, true, true}, {BAR_CELLS / 2, true, true}, {0, true, true}, {0, true, false}, {0}};

static line make_head(const mu_progress *progress, const view *v, const struct head *head)
{
    line l = {.limit = INT_MAX};
    const double per_step = v->step > 0 ? v->elapsed / (double)v->step : 0;
    const bool known = v->target > 0 && v->step <= v->target;
    if (known)
        add_text(&l, "%lld/%lld", (long long)v->step, (long long)v->target);
    else
        add_text(&l, "%lld", (long long)v->step);
    if (progress->width != 0 && head->cells > 0)
        add_bar(&l, known ? (double)v->step / (double)v->target : v->final, head->cells, progress->colour);
    if (head->duration)
        add_duration(&l, v->final || !known ? v->elapsed : per_step * (double)(v->target - v->step));
    if (head->step_time)
        add_step_time(&l, per_step);
    return l;
}

// The widest head that leaves `reserved` columns of the line, or the narrowest there is.
static line widest_head(const mu_progress *progress, const view *v, int reserved)
{
    const int limit = progress->width > 0 ? progress->width : INT_MAX;
    line l = make_head(progress, v, &heads[0]);
    for (size_t h = 1; h < MU_COUNT(heads) && l.columns > limit - reserved; h++)
        l = make_head(progress, v, &heads[h]);
    l.limit = limit;
    return l;
}

// ---- The values ---------------------------------------------------------------------------------

typedef struct item {
    char text[256];
    int columns;
} item;

static bool waits_for_input(const view *v) { return v->input_share > INPUT_SHARE && v->elapsed > INPUT_SECONDS; }

// How many items follow the values.
static int n_notes(const view *v) { return waits_for_input(v) + (v->workers[0] != '\0'); }

// Item i of the values; after them what the workers did, and the share of the time that devices waited for input.
static item make_item(const view *v, int i)
{
    item made;
    if (i == v->n && v->workers[0])
        snprintf(made.text, sizeof made.text, " - workers: %s", v->workers);
    else if (i >= v->n)
        snprintf(made.text, sizeof made.text, " - input wait: %.0f%%", 100 * v->input_share);
    else if (isnan(v->values[i])) // printf writes a sign before some
        snprintf(made.text, sizeof made.text, " - %s: nan", v->names[i]);
    else
        snprintf(made.text, sizeof made.text,
                 fabs(v->values[i]) > 1e-3 || v->values[i] == 0 ? " - %s: %.4f" : " - %s: %.4e", v->names[i],
                 v->values[i]);
    mu__printable(made.text, false); // metric names come from the user
    made.columns = mu__columns(made.text);
    return made;
}

// A line that is redrawn: the widest head that leaves reserved for all values; if none does, as many values as fit.
static line running_line(const mu_progress *progress, const view *v)
{
    int wanted = 0;
    for (int i = 0; i < v->n; i++)
        wanted += make_item(v, i).columns;
    line l = widest_head(progress, v, wanted);
    if (l.columns > l.limit)
        return (line){.limit = l.limit};
    for (int i = 0; i < v->n + n_notes(v); i++) {
        const item next = make_item(v, i);
        if (!add(&l, next.columns, next.text))
            break;
    }
    return l;
}

static void put(mu_progress *progress, const line *l)
{
    if (progress->mode == MU_VERBOSE_BAR)
        fprintf(progress->out, "\r%s%*s", l->text, MU_MAX(0, (int)progress->last_length - l->columns), "");
    else
        fputs(l->text, progress->out);
    progress->last_length = (size_t)l->columns;
}

// The final output has every value, on several lines if needed.
static void put_final(mu_progress *progress, const view *v)
{
    static const char *const indent = "   ";
    line l = widest_head(progress, v, 0);
    for (int i = 0; i < v->n + n_notes(v); i++) {
        const item next = make_item(v, i);
        if (add(&l, next.columns, next.text))
            continue;
        put(progress, &l);
        fputc('\n', progress->out);
        progress->last_length = 0;
        l = (line){.limit = MU_MAX(l.limit, (int)strlen(indent) + next.columns)};
        add_text(&l, "%s%s", indent, next.text);
        l.limit = progress->width > 0 ? progress->width : INT_MAX;
    }
    put(progress, &l);
    fputc('\n', progress->out);
}

// ---- Drawing ------------------------------------------------------------------------------------

static void draw(mu_progress *progress, int64_t step, bool final, int n, const char *const *names, const double *values)
{
    const view v = {.step = step,
                    .target = progress->target,
                    .final = final,
                    .n = n,
                    .names = names,
                    .values = values,
                    .elapsed = (double)(mu__now_ns() - progress->begin_ns) / 1e9,
                    .input_share = progress->input_share,
                    .workers = progress->workers};
    if (final) {
        put_final(progress, &v);
    } else {
        const line l = running_line(progress, &v);
        put(progress, &l);
        if (progress->mode == MU_VERBOSE_LINES)
            fputc('\n', progress->out);
    }
    fflush(progress->out);
}

// Lines cannot be redrawn, so they are rare: one per tenth of a long epoch, and one a minute.
static bool line_is_due(const mu_progress *progress, int64_t now)
{
    const int64_t since = now - MU_MAX(progress->shown_ns, progress->begin_ns);
    const int64_t steps = progress->step - progress->shown_step;
    return since >= LATEST_LINE_NS || (since >= LINE_NS && progress->target > 0 && 10 * steps >= progress->target);
}

bool mu__progress_due(const mu_progress *progress)
{
    const int64_t now = mu__now_ns();
    return progress->mode == MU_VERBOSE_BAR ? now - progress->shown_ns >= REDRAW_NS
                                            : progress->mode == MU_VERBOSE_LINES && line_is_due(progress, now);
}

void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values)
{
    progress->step = step;
    if (!mu__progress_due(progress))
        return;
    progress->shown_ns = mu__now_ns();
    progress->shown_step = step;
    draw(progress, step, false, n, names, values);
}

void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values)
{
    if (progress->mode != MU_VERBOSE_SILENT)
        draw(progress, step, true, n, names, values);
}

void mu__progress_abandon(mu_progress *progress)
{
    if (progress->mode == MU_VERBOSE_BAR && progress->shown_ns && progress->last_length > 0) {
        fputc('\n', progress->out);
        fflush(progress->out);
        progress->last_length = 0;
    }
}
