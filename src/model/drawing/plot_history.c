// mu_plot_history: the curves of a training run as SVG, a panel for each value with its "val_" beside it.
#include "model/drawing/svg.h"
#include "model/training/training.h"

#include <muster/plot.h>

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 340, HEIGHT = 220, LEFT = 62, RIGHT = 14, TOP = 40, BOTTOM = 40, ACROSS = 3, MOST_TICKS = 16 };

// A panel's range of values, and the step from one line of the grid to the next: `digit` times ten to the `power`.
typedef struct scale {
    double low, high, step;
    int digit, power;
} scale;

typedef struct panel {
    mu_svg *svg;
    const mu_history *history;
    const char *name;
    int x, y;
    scale values;
} panel;

// ---- Scales -------------------------------------------------------------------------------------

static void widen(const mu_history *history, const char *name, double *low, double *high)
{
    for (int i = 0; i < mu_history_epochs(history); i++) {
        const double value = mu_history_at(history, name, i);
        if (isfinite(value)) {
            *low = fmin(*low, value);
            *high = fmax(*high, value);
        }
    }
}

// Steps of 1, 2 or 5 times a power of ten, about five of them.
static scale scale_of(double low, double high)
{
    if (!(low <= high))
        low = 0, high = 1;
    if (high - low <= 1e-9 * fmax(fabs(low), fabs(high)) || high == low)
        low -= fmax(.5, fabs(low) / 2), high += fmax(.5, fabs(high) / 2);
    const double rough = (high - low) / 5;
    scale s = {.digit = 1, .power = (int)floor(log10(rough))};
    const double share = rough / pow(10, s.power);
    s.digit = share < 1.5 || share >= 7.5 ? 1 : share < 3.5 ? 2 : 5;
    s.power += share >= 7.5;
    s.step = s.digit * pow(10, s.power);
    s.low = floor(low / s.step) * s.step;
    s.high = ceil(high / s.step) * s.step;
    return s;
}

// The decimals of a multiple of the step, written without printf's decimal point, which is the locale's.
static void tick_text(const scale *s, double value, char text[48])
{
    if (s->power >= 5 || s->power < -6) {
        snprintf(text, 48, "%llde%d", (long long)llround(value / pow(10, s->power)), s->power);
        return;
    }
    const int decimals = MU_MAX(0, -s->power);
    const long long all = llround(value * pow(10, decimals)), one = llround(pow(10, decimals));
    const int n = snprintf(text, 48, "%s%lld.%06lld", all < 0 ? "-" : "", llabs(all) / one,
                           llabs(all) % one * llround(pow(10, 6 - decimals)));
    text[n - (decimals > 0 ? 6 - decimals : 7)] = '\0';
}

// ---- A panel ------------------------------------------------------------------------------------

static int x_at(const panel *p, int epoch)
{
    const int last = MU_MAX(1, mu_history_epochs(p->history) - 1);
    return p->x + LEFT + (int)lround((double)epoch / last * (WIDTH - LEFT - RIGHT));
}

static int y_at(const panel *p, double value)
{
    const double share = (value - p->values.low) / (p->values.high - p->values.low);
    return p->y + HEIGHT - BOTTOM - (int)lround(share * (HEIGHT - TOP - BOTTOM));
}

static void draw_grid(const panel *p)
{
    char text[48];
    const int n = (int)lround((p->values.high - p->values.low) / p->values.step);
    for (int i = 0; i <= MU_MIN(n, MOST_TICKS); i++) {
        const double value = p->values.low + i * p->values.step;
        tick_text(&p->values, value, text);
        mu__svg_add(p->svg,
                    "<path d='M%d %dH%d' stroke='#e3e3e8'/><text x='%d' y='%d' text-anchor='end' font-size='10' "
                    "fill='#666' " MU_SVG_SANS ">%s</text>\n",
                    p->x + LEFT, y_at(p, value), p->x + WIDTH - RIGHT, p->x + LEFT - 6, y_at(p, value) + 4, text);
    }
    const int epochs = mu_history_epochs(p->history), every = MU_MAX(1, (epochs + 7) / 8);
    for (int i = 0; i < epochs; i += every)
        mu__svg_add(p->svg,
                    "<text x='%d' y='%d' text-anchor='middle' font-size='10' fill='#666' " MU_SVG_SANS ">%d</text>\n",
                    x_at(p, i), p->y + HEIGHT - BOTTOM + 16, i + 1);
    mu__svg_add(p->svg,
                "<text x='%d' y='%d' text-anchor='middle' font-size='10' fill='#666' " MU_SVG_SANS ">epoch</text>\n",
                p->x + (LEFT + WIDTH - RIGHT) / 2, p->y + HEIGHT - 8);
}

static bool has_value(const panel *p, const char *name, int epoch)
{
    return isfinite(mu_history_at(p->history, name, epoch));
}

// Whether a value gets a point: each one of few, and where validation leaves out epochs, each one without a neighbour.
static bool has_point(const panel *p, const char *name, int epoch)
{
    const bool joined = has_value(p, name, epoch - 1) || has_value(p, name, epoch + 1);
    return has_value(p, name, epoch) && (mu_history_epochs(p->history) <= 20 || !joined);
}

// A line from epoch to epoch; a value that is not a number leaves a gap.
static void draw_curve(const panel *p, const char *name, const char *colour)
{
    bool drawing = false;
    mu__svg_add(p->svg, "<path d='");
    for (int i = 0; i < mu_history_epochs(p->history); i++) {
        const double value = mu_history_at(p->history, name, i);
        if (isfinite(value))
            mu__svg_add(p->svg, "%c%d %d", drawing ? 'L' : 'M', x_at(p, i), y_at(p, value));
        drawing = isfinite(value);
    }
    mu__svg_add(p->svg, "' fill='none' stroke='%s' stroke-width='2' stroke-linejoin='round'/>\n", colour);
    for (int i = 0; i < mu_history_epochs(p->history); i++)
        if (has_point(p, name, i))
            mu__svg_add(p->svg, "<circle cx='%d' cy='%d' r='3' fill='%s'/>\n", x_at(p, i),
                        y_at(p, mu_history_at(p->history, name, i)), colour);
}

static void draw_label(const panel *p, int x, const char *text, const char *colour)
{
    mu__svg_add(
        p->svg,
        "<path d='M%d %dh16' stroke='%s' stroke-width='2'/><text x='%d' y='%d' font-size='10' fill='#444' " MU_SVG_SANS
        ">%s</text>\n",
        x, p->y + 20, colour, x + 20, p->y + 24, text);
}

static void draw_panel(panel *p)
{
    static const char *const training = "#2f6db3", *const validation = "#d9772b";
    char other[160];
    double low = INFINITY, high = -INFINITY;
    snprintf(other, sizeof other, "val_%.150s", p->name);
    widen(p->history, other, &low, &high);
    const bool validated = low <= high;
    widen(p->history, p->name, &low, &high);
    p->values = scale_of(low, high);
    mu__svg_add(p->svg, "<text x='%d' y='%d' font-size='12' font-weight='bold' fill='#222' " MU_SVG_SANS ">",
                p->x + LEFT, p->y + 24);
    mu__svg_escape(p->svg, p->name, 22);
    mu__svg_add(p->svg, "</text>\n");
    draw_grid(p);
    draw_curve(p, p->name, training);
    if (!validated)
        return;
    draw_curve(p, other, validation);
    draw_label(p, p->x + WIDTH - 148, "training", training);
    draw_label(p, p->x + WIDTH - 78, "validation", validation);
}

// ---- The file -----------------------------------------------------------------------------------

static mu_status draw(const mu_plot_history_args *args)
{
    mu_svg svg = {0};
    int panels = 0;
    for (int i = 0; i < mu_history_names(args->history); i++) {
        const char *name = mu_history_name(args->history, i);
        if (strncmp(name, "val_", 4) == 0)
            continue;
        panel p = {.svg = &svg,
                   .history = args->history,
                   .name = name,
                   .x = panels % ACROSS * WIDTH + 6,
                   .y = panels / ACROSS * HEIGHT + 6};
        draw_panel(&p);
        panels++;
    }
    const int rows = (panels + ACROSS - 1) / ACROSS;
    return mu__svg_save(&svg, args->to_file, MU_MIN(panels, ACROSS) * WIDTH + 12, rows * HEIGHT + 12);
}

mu_status mu_plot_history_with(const mu_plot_history_args *given)
{
    mu_plot_history_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_plot_history"));
    MU_TRY(mu__need(args.history, "mu_plot_history: the history"));
    args.to_file = args.to_file ? args.to_file : "history.svg";
    MU_TRY(mu__svg_path(args.to_file, "mu_plot_history"));
    if (mu_history_epochs(args.history) < 1 || mu_history_names(args.history) < 1)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_plot_history: the history has no epochs; mu_fit with .epochs above 0 returns one that has");
    return mu_strategy_should_checkpoint(mu_get_strategy()) ? draw(&args) : MU_OK;
}
