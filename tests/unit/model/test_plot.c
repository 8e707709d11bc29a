// Pictures: layouts of graphs made at random, models as SVG, names that try to break the file, and refusals.
#include "../scratch.h"
#include "model_test.h"
#include "model/drawing/layered_layout.h"
#include "model/training/training.h"

#include <muster/plot.h>

static char *read_text(const char *path)
{
    void *data = NULL;
    size_t bytes;
    if (mu__file_read(path, 1 << 24, &data, &bytes) != MU_OK)
        fail_msg("%s", mu_error_message());
    return data;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        n++;
    return n;
}

// Draws a model and returns the file's text; free it with mu__free.
#define PLOTTED(...) plotted(mu_plot_model(__VA_ARGS__, .to_file = "drawn.svg"))
static char *plotted(mu_status status)
{
    if (status != MU_OK)
        fail_msg("%s", mu_error_message());
    return read_text("drawn.svg");
}

// ---- Layouts ------------------------------------------------------------------------------------

static uint64_t chance;
static int draw(int n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((chance >> 33) % (uint64_t)n);
}

static void random_graph(mu_layout *layout, uint64_t seed)
{
    chance = seed;
    const int n = 2 + draw(40);
    for (int i = 0; i < n; i++) {
        const mu_layout_node node = {.width = 20 + draw(200), .height = 20 + draw(80)};
        assert_int_equal(MU_PUSH(&layout->nodes, node), MU_OK);
        for (int k = 0; i > 0 && k < 3 && draw(4); k++) {
            const int back = draw(8);
            const mu_layout_edge edge = {.from = MU_MAX(0, i - 1 - back), .to = i};
            assert_int_equal(MU_PUSH(&layout->edges, edge), MU_OK);
        }
    }
}

static bool boxes_meet(const mu_layout_node *a, const mu_layout_node *b)
{
    return fabs(a->x - b->x) < (a->width + b->width) / 2 && fabs(a->y - b->y) < (a->height + b->height) / 2;
}

// Returns whether a vertical line between two points of an edge crosses a box that is not one of its ends.
static bool line_meets(const mu_point *line, const mu_layout_node *box)
{
    return fabs(line->x - box->x) < box->width / 2 && line[0].y < box->y + box->height / 2 - 1e-9 &&
           line[1].y > box->y - box->height / 2 + 1e-9;
}

static void check_edge(const mu_layout *layout, const mu_layout_edge *edge)
{
    const mu_layout_node *from = &layout->nodes.items[edge->from], *to = &layout->nodes.items[edge->to];
    const mu_point *last = &edge->points[edge->n_points - 1];
    assert_true(edge->n_points >= 4 && edge->n_points % 2 == 0);
    assert_true(fabs(edge->points[0].x - from->x) <= from->width / 2 + 2 && fabs(last->x - to->x) <= to->width / 2 + 2);
    assert_number(edge->points[0].y, from->y + from->height / 2, 1e-9);
    assert_number(last->y, to->y - to->height / 2, 1e-9);
    for (int i = 1; i < edge->n_points; i++)
        assert_true(edge->points[i].y >= edge->points[i - 1].y - 1e-9);
    for (int i = 2; i + 2 < edge->n_points; i += 2)
        for (size_t n = 0; n < layout->nodes.n; n++)
            assert_false(line_meets(&edge->points[i], &layout->nodes.items[n]));
}

// Boxes lie apart and inside the picture; edges lead downwards from box to box, around all others.
static void layouts_are_sound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        mu_layout layout = {0};
        random_graph(&layout, seed);
        assert_int_equal(mu__layout_compute(&layout), MU_OK);
        for (size_t i = 0; i < layout.nodes.n; i++) {
            const mu_layout_node *node = &layout.nodes.items[i];
            assert_true(node->x - node->width / 2 > -1e-6 && node->x + node->width / 2 < layout.width + 1e-6);
            assert_true(node->y - node->height / 2 > -1e-6 && node->y + node->height / 2 < layout.height + 1e-6);
            for (size_t k = 0; k < i; k++)
                assert_false(boxes_meet(node, &layout.nodes.items[k]));
        }
        for (size_t i = 0; i < layout.edges.n; i++)
            check_edge(&layout, &layout.edges.items[i]);
        mu__layout_free(&layout);
    }
}

// The main path of a residual network is one straight line, and two towers that were given crosswise do not cross.
static void layouts_are_straight(void **state)
{
    (void)state;
    static const int residual[][2] = {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {3, 4}, {4, 5}};
    static const int towers[][2] = {{1, 2}, {0, 3}, {2, 4}, {3, 4}};
    mu_layout layout = {0};
    for (int i = 0; i < 6; i++)
        MU_PUSH(&layout.nodes, ((mu_layout_node){.width = 100 + 10 * i, .height = 40}));
    for (size_t i = 0; i < MU_COUNT(residual); i++)
        MU_PUSH(&layout.edges, ((mu_layout_edge){.from = residual[i][0], .to = residual[i][1]}));
    assert_int_equal(mu__layout_compute(&layout), MU_OK);
    for (int i = 2; i < 4; i++)
        assert_number(layout.nodes.items[i].x, layout.nodes.items[1].x, .5);
    mu__layout_free(&layout);
    for (int i = 0; i < 5; i++)
        MU_PUSH(&layout.nodes, ((mu_layout_node){.width = 100, .height = 40}));
    for (size_t i = 0; i < MU_COUNT(towers); i++)
        MU_PUSH(&layout.edges, ((mu_layout_edge){.from = towers[i][0], .to = towers[i][1]}));
    assert_int_equal(mu__layout_compute(&layout), MU_OK);
    assert_number(layout.nodes.items[0].x, layout.nodes.items[3].x, .5);
    assert_number(layout.nodes.items[1].x, layout.nodes.items[2].x, .5);
    assert_number(layout.nodes.items[4].x, (layout.nodes.items[0].x + layout.nodes.items[1].x) / 2, .5);
    mu__layout_free(&layout);
}

// ---- Models -------------------------------------------------------------------------------------

static mu_model *towers_model(void)
{
    mu_tensor *user = mu_input({1}, .dtype = MU_I32, .name = "user"), *item = mu_input({5}, .name = "item");
    mu_layer *shared = mu_dense(4, .activation = "relu", .name = "shared");
    mu_model *tower = mu_sequential(mu_dense(5), mu_dropout(.1), mu_dense(5));
    mu_tensor *a = mu_call(tower, mu_call(mu_flatten(), mu_call(mu_embedding(9, 5), user)));
    mu_value *both = mu_list(mu_call(shared, a), mu_call(shared, item), MU_END);
    mu_tensor *joined = mu_call(mu_concatenate(), .inputs = both);
    mu_model *model = mu_model_new(.inputs = mu_list(user, item, MU_END), .output = joined);
    if (!model)
        fail_msg("%s", mu_error_message());
    return model;
}

static void models_are_drawn(void **state)
{
    (void)state;
    mu_model *model = towers_model();
    char *text = PLOTTED(model, .show_shapes = true, .show_dtype = true);
    assert_int_equal(count(text, "InputLayer"), 2);
    assert_int_equal(count(text, "shared, call 1 of 2") + count(text, "shared, call 2 of 2"), 2);
    assert_int_equal(count(text, "(None, 5) float64"), 6);
    assert_int_equal(count(text, "(None, 1) int32"), 2);
    assert_int_equal(count(text, ">Dropout<"), 0);
    assert_int_equal(count(text, "<g>"), 8);
    assert_int_equal(count(text, "url(#arrow)"), 7);
    mu__free(text);
    text = PLOTTED(model, .expand_nested = true, .no_layer_names = true, .rankdir = "LR",
                   .show_layer_activations = true, .show_trainable = true);
    assert_int_equal(count(text, ">Dropout<"), 1);
    assert_int_equal(count(text, "<g>"), 10);
    assert_int_equal(count(text, "(None"), 0);
    assert_int_equal(count(text, ">trained<"), 5);
    assert_int_equal(count(text, ">relu<"), 2);
    mu__free(text);
}

static void sequential_models_are_drawn(void **state)
{
    (void)state;
    mu_model *inner = mu_sequential(mu_dense(3), mu_dense(4));
    mu_model *model = mu_sequential(mu_input_layer({2}), inner, mu_softmax());
    char *text = PLOTTED(model, .show_shapes = true, .expand_nested = true);
    assert_int_equal(count(text, "(None, 2)"), 2);
    assert_int_equal(count(text, "(None, 3)"), 2);
    assert_int_equal(count(text, "(None, 4)"), 3);
    mu__free(text);
    mu_model *unbuilt = mu_sequential(mu_dense(3));
    assert_int_equal(mu_plot_model(unbuilt, "never.svg"), MU_FAILED_PRECONDITION);
    assert_non_null(strstr(mu_error_message(), "mu_model_build"));
    mu_error_take();
    assert_int_equal(access("never.svg", F_OK), -1);
}

// Text that would end the element, start a script, or be invalid XML.
static void hostile_names_are_escaped(void **state)
{
    (void)state;
    static const char *const names[] = {"</text><script>alert('x')</script>",
                                        "\"' onload='x",
                                        "&lt;",
                                        "]]>",
                                        "\x01\x1b[31m",
                                        "half \xe2\x82",
                                        "\xc0\xbc script",
                                        "\xed\xa0\x80",
                                        "\xef\xbf\xbf",
                                        "\xe2\x80\xae turned",
                                        "\xf8\x88\x80\x80\x80"};
    char name[3000];
    memset(name, '<', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i <= MU_COUNT(names); i++) {
        mu_model *model = mu_sequential(mu_input_layer({2}), mu_dense(3, .name = i ? names[i - 1] : name));
        assert_non_null(model);
        char *text = PLOTTED(model, .show_shapes = true);
        assert_null(strstr(text, "script>"));
        assert_null(strstr(text, "' onload"));
        assert_null(strstr(text, "<<"));
        assert_null(strstr(text, "]]>"));
        assert_int_equal(count(text, "<text"), count(text, "</text>"));
        for (const char *at = text; *at; at++)
            assert_true((uint8_t)*at >= ' ' || *at == '\n');
        if (i == 3)
            assert_non_null(strstr(text, "&amp;lt;"));
        json_t *valid = json_string(text); // refuses text that is not UTF-8
        assert_non_null(valid);
        json_decref(valid);
        mu__free(text);
    }
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_input_layer({2}), mu_dense(3));
    assert_int_equal(mu_plot_model(model, "model.png"), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "rsvg-convert"));
    mu_error_take();
    assert_int_equal(mu_plot_model(model, "model.svg", .rankdir = "BT"), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_plot_model(model, "/no/such/folder/model.svg"), MU_NOT_FOUND);
    mu_error_take();
}

// ---- Histories ----------------------------------------------------------------------------------

static double next_rate(int epoch, double rate, void *arg)
{
    (void)rate, (void)arg;
    return epoch == 2 ? 1e300 : .01;
}

// A panel for each value, with a curve for training and one for validation; values that are not finite are left out.
static void histories_are_drawn(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(1));
    mu_compile(model, .optimizer = mu_sgd(), .loss = "mse", .metrics = MU_METRICS("mae"));
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 1}, 2), MU_END);
    mu_history *history = mu_fit(model, data, .epochs = 4, .verbose = MU_VERBOSE_SILENT, .validation_data = data,
                                 .callbacks = mu_learning_rate_scheduler(next_rate, NULL));
    assert_non_null(history);
    assert_false(isfinite(mu_history_last(history, "loss")));
    char *text = plotted(mu_plot_history(history, "drawn.svg"));
    assert_int_equal(count(text, ">loss<"), 1);
    assert_int_equal(count(text, ">mean_absolute_error<") + count(text, ">mae<"), 1);
    assert_int_equal(count(text, ">validation<"), 2);
    assert_int_equal(count(text, ">learning_rate<"), 1); // which the callback sets
    assert_int_equal(count(text, ">epoch<"), 3);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    mu__free(text);
    // Validation of the middle epoch alone, and of every other one of many: there are points, without lines.
    mu_model *finite = mu_sequential(mu_dense(1));
    mu_compile(finite, .optimizer = mu_sgd(), .loss = "mse", .metrics = MU_METRICS("mae"));
    for (int epochs = 3; epochs <= 31; epochs += 28) {
        mu_history *some = mu_fit(finite, data, .epochs = epochs, .verbose = MU_VERBOSE_SILENT, .validation_data = data,
                                  .validation_freq = 2);
        assert_non_null(some);
        text = plotted(mu_plot_history(some, "drawn.svg"));
        assert_int_equal(count(text, ">validation<"), 2);
        assert_int_equal(count(text, "<circle"), epochs == 3 ? 2 * (3 + 1) : 2 * 15);
        mu__free(text);
    }
    assert_int_equal(mu_plot_history(mu_fit(model, data, .epochs = 0), "drawn.svg"), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_take().message, "no epochs"));
    assert_int_equal(mu_plot_history(history, "drawn.pdf"), MU_INVALID_ARGUMENT);
    mu_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(layouts_are_sound),         MODEL_TEST(layouts_are_straight),
        MODEL_TEST(models_are_drawn),          MODEL_TEST(sequential_models_are_drawn),
        MODEL_TEST(hostile_names_are_escaped), MODEL_TEST(other_formats_are_refused),
        MODEL_TEST(histories_are_drawn),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
