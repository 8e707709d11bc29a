// The progress bar: every value has its place, also on narrow terminals; lines are written now and then.
#include "model/training/progress.h"
#include "model_test.h"

#include <string.h>

static const char *const train_names[] = {"loss", "accuracy"};
static const char *const all_names[] = {"loss", "accuracy", "val_loss", "val_accuracy"};
static const double values[] = {.2912, .8912, .3312, .8801};

// A display of `width` columns (0: none) that writes to memory; every call returns the text since the last one.
typedef struct display {
    mu_progress progress;
    char *text;
    size_t bytes, read;
} display;

static void open_display(display *d, mu_verbose mode, int width, int64_t target)
{
    *d = (display){0};
    d->progress = (mu_progress){.out = open_memstream(&d->text, &d->bytes),
                                .mode = mode,
                                .width = width,
                                .target = target,
                                .begin_ns = mu__now_ns() - 12 * INT64_C(1000000000)};
    assert_non_null(d->progress.out);
}

static const char *shown(display *d)
{
    fflush(d->progress.out);
    const char *text = d->text + d->read;
    d->read = d->bytes;
    return text;
}

static void close_display(display *d)
{
    fclose(d->progress.out);
    free(d->text);
}

// No line may be wider than the terminal; the carriage return takes no column.
static void assert_fits(const char *text, int width)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *rest, *line = strtok_r(copy, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest))
        if (mu__columns(line) > width)
            fail_msg("a line of %d columns on a terminal of %d: \"%s\"", mu__columns(line), width, line);
}

static void assert_has_all(const char *text, int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, " - %s: %.4f", names[i], values[i]);
        if (!strstr(text, wanted))
            fail_msg("\"%s\" lacks \"%s\"", text, wanted);
    }
}

static void the_bar_has_every_value(void **state)
{
    (void)state;
    for (int width = 80; width >= 60; width--) {
        display d;
        open_display(&d, MU_VERBOSE_BAR, width, 469);
        mu__progress_step(&d.progress, 468, 2, train_names, values);
        const char *text = shown(&d);
        assert_has_all(text, 2, train_names);
        assert_fits(text, width);
        close_display(&d);
    }
    display d;
    open_display(&d, MU_VERBOSE_BAR, 40, 469);
    mu__progress_step(&d.progress, 468, 2, train_names, values);
    const char *text = shown(&d);
    assert_has_all(text, 1, train_names);
    assert_fits(text, 40);
    close_display(&d);
}

static void the_finished_lines_have_every_value(void **state)
{
    (void)state;
    static const int widths[] = {0, 200, 100, 80, 60, 40, 20};
    for (size_t i = 0; i < MU_COUNT(widths); i++) {
        display d;
        open_display(&d, MU_VERBOSE_BAR, widths[i], 469);
        mu__progress_step(&d.progress, 468, 2, train_names, values);
        shown(&d);
        mu__progress_end(&d.progress, 469, 4, all_names, values);
        const char *text = shown(&d);
        assert_has_all(text, 4, all_names);
        assert_true(text[strlen(text) - 1] == '\n');
        if (widths[i] >= 40)
            assert_fits(text, widths[i]);
        close_display(&d);
    }
}

static void lines_come_now_and_then(void **state)
{
    (void)state;
    const int64_t second = 1000000000;
    display d;
    open_display(&d, MU_VERBOSE_LINES, 0, 1000);
    mu__progress_step(&d.progress, 99, 2, train_names, values);
    assert_string_equal(shown(&d), "");
    mu__progress_step(&d.progress, 100, 2, train_names, values);
    const char *text = shown(&d);
    assert_true(strncmp(text, "100/1000 ", 9) == 0 && strchr(text, '\n') == text + strlen(text) - 1);
    assert_has_all(text, 2, train_names);
    mu__progress_step(&d.progress, 300, 2, train_names, values);
    assert_string_equal(shown(&d), "");
    d.progress.begin_ns -= 1000 * second;
    d.progress.shown_ns -= 11 * second;
    mu__progress_step(&d.progress, 301, 2, train_names, values);
    assert_has_all(shown(&d), 2, train_names);
    d.progress.shown_ns -= 61 * second;
    mu__progress_step(&d.progress, 302, 2, train_names, values);
    assert_has_all(shown(&d), 2, train_names);
    close_display(&d);
    open_display(&d, MU_VERBOSE_LINES, 0, -1);
    mu__progress_step(&d.progress, 400, 2, train_names, values);
    assert_string_equal(shown(&d), "");
    d.progress.begin_ns -= 61 * second;
    mu__progress_step(&d.progress, 401, 2, train_names, values);
    assert_has_all(shown(&d), 2, train_names);
    close_display(&d);
}

static void nan_has_no_sign(void **state)
{
    (void)state;
    display d;
    open_display(&d, MU_VERBOSE_LINES, 0, 10);
    mu__progress_end(&d.progress, 10, 2, train_names, (double[]){-NAN, NAN});
    const char *text = shown(&d);
    assert_non_null(strstr(text, " - loss: nan - accuracy: nan"));
    close_display(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(the_bar_has_every_value),
        MODEL_TEST(the_finished_lines_have_every_value),
        MODEL_TEST(lines_come_now_and_then),
        MODEL_TEST(nan_has_no_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
