// Event files: numbers, histograms, images and texts from training loops of the program's own, and weights from
// mu_tensorboard.
#include "../scratch.h"
#include "model_test.h"

#include <muster/summary.h>

#include <glob.h>

static const char *const pattern = "/events.out.tfevents.*.v2";

static size_t n_files(const char *folder)
{
    char path[300];
    glob_t found;
    snprintf(path, sizeof path, "%s%s", folder, pattern);
    const int status = glob(path, 0, NULL, &found);
    const size_t n = status == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

// Returns how often the only event file of a folder contains these bytes.
static int times_in(const char *folder, const char *bytes, size_t n)
{
    char path[300];
    glob_t found;
    void *data = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s%s", folder, pattern);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    assert_int_equal(mu__file_read(found.gl_pathv[0], 1 << 24, &data, &size), MU_OK);
    globfree(&found);
    int times = 0;
    for (size_t i = 0; i + n <= size; i++)
        times += memcmp((const char *)data + i, bytes, n) == 0;
    mu__free(data);
    return times;
}

#define HAS(folder, text) assert_true(times_in(folder, text, strlen(text)) > 0)

static void fine(mu_status status)
{
    if (status != MU_OK)
        fail_msg("%s", mu_error_message());
}

static void values_are_recorded(void **state)
{
    (void)state;
    mu_summary_writer *writer = mu_summary_writer_new("loop/values");
    assert_non_null(writer);
    assert_int_equal(n_files("loop/values"), 0); // before the first value there is no file
    fine(mu_summary_scalar(writer, "rate", .25, 1));
    fine(mu_summary_text(writer, "note", "**begun**", 1));
    fine(mu_summary_histogram(writer, "numbers", numbers(1, (int64_t[]){500}, 3), 2, .buckets = 7));
    fine(mu_summary_histogram(writer, "same", mu_constant(MU_I32, 4), 2));
    fine(mu_summary_image(writer, "picture", mu_fill(MU_F32, 4, (int64_t[]){5, 3, 2, 3}, .5), 3, .max_outputs = 2));
    fine(mu_summary_flush(writer));
    assert_int_equal(n_files("loop/values"), 1);
    HAS("loop/values", "rate");
    HAS("loop/values", "**begun**");
    HAS("loop/values", "histograms");
    HAS("loop/values", "\x89PNG");
}

// Buckets of -1, NaN, 0, 1, 3 with 2 buckets: [-1, 1) has two numbers and [1, 3] has two.
static void histograms_leave_out_what_is_not_finite(void **state)
{
    (void)state;
    const double data[] = {-1, NAN, 0, 1, 3, INFINITY}, rows[2][3] = {{-1, 1, 2}, {1, 3, 2}};
    mu_summary_writer *writer = mu_summary_writer_new("loop/finite");
    fine(mu_summary_histogram(writer, "h", vector(6, data), 1, .buckets = 2));
    fine(mu_summary_flush(writer));
    assert_int_equal(times_in("loop/finite", (const char *)rows, sizeof rows), 1);
}

static mu_summary_writer *shared;

static mu_value *record(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    fine(mu_summary_scalar(shared, "once", mu_scalar(mu_replica_id()), 1));
    return mu_of(mu_constant(MU_F32, 0));
}

// Of three replicas that run as C functions only the first one records.
static void the_first_replica_records(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    MU_SCOPE(strategy)
        shared = mu_summary_writer_new("loop/replicas");
    if (!mu_run_callback(strategy, record, NULL, mu_of(mu_constant(MU_F32, 1))))
        fail_msg("%s", mu_error_message());
    fine(mu_summary_flush(shared));
    assert_int_equal(times_in("loop/replicas", "once", 4), 1);
}

// In each run of a function: records its argument at the step that a variable holds, and values that were constant in
// the trace.
static mu_value *traced(mu_value *arguments, void *variable)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *step = mu_variable_read(variable);
    if (mu_summary_scalar_tensor(shared, "mean", mu_reduce_mean(x, MU_ALL_AXES), step) != MU_OK ||
        mu_summary_histogram(shared, "spread", x, .step_tensor = step, .buckets = 2) != MU_OK ||
        mu_summary_scalar(shared, "constant", 7, 3) != MU_OK ||
        mu_summary_text(shared, "note", "in a trace", 1) != MU_OK)
        return NULL;
    return mu_variable_assign_add(variable, mu_constant(MU_I64, 1)) == MU_OK ? mu_of(x) : NULL;
}

static int times_of(const char *folder, const char *text) { return times_in(folder, text, strlen(text)); }

static void traced_functions_record_in_each_run(void **state)
{
    (void)state;
    const float means[] = {1, 2.5F};
    mu_variable *steps = mu_variable_new(mu_constant(MU_I64, 0), "steps");
    shared = mu_summary_writer_new("loop/traced");
    mu_function *function = mu_function_new(traced, steps);
    for (int i = 0; i < 2; i++)
        if (!mu_function_call(function, mu_of(mu_fill(MU_F64, 1, (int64_t[]){4}, means[i]))))
            fail_msg("%s", mu_error_message());
    assert_int_equal(mu_function_trace_count(function), 1);
    fine(mu_summary_flush(shared));
    static const char *const names[] = {"mean", "spread", "constant", "in a trace"};
    for (size_t i = 0; i < MU_COUNT(names); i++)
        assert_int_equal(times_of("loop/traced", names[i]), 2);
    for (int i = 0; i < 2; i++)
        assert_true(times_in("loop/traced", (const char *)&means[i], sizeof means[i]) > 0);
}

// Of three replicas that run one graph in parallel only the first one records; a value that is not a number is refused.
static void the_first_replica_of_a_graph_records(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_variable *steps = NULL;
    MU_SCOPE(strategy) {
        steps = mu_variable_new(mu_constant(MU_I64, 0), "steps", .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA);
        shared = mu_summary_writer_new("loop/graph");
    }
    mu_function *function = mu_function_new(traced, steps);
    for (int i = 0; i < 4; i++)
        if (!mu_run(strategy, function, mu_of(mu_constant(MU_F64, i))))
            fail_msg("%s", mu_error_message());
    fine(mu_summary_flush(shared));
    assert_int_equal(times_of("loop/graph", "mean"), 4);
    assert_int_equal(times_of("loop/graph", "in a trace"), 4);
    mu_tensor *pair = mu_zeros(MU_F64, 1, (int64_t[]){2}), *one = mu_constant(MU_I64, 1);
    assert_int_equal(mu_summary_scalar_tensor(shared, "pair", pair, one), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_take().message, "mu_reduce_mean"));
    assert_int_equal(mu_summary_scalar_tensor(shared, "one", one, pair), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_take().message, "give an integer scalar"));
}

static void weights_are_recorded(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(4), mu_batch_normalization(), mu_dense(1));
    mu_compile(model, .optimizer = mu_sgd(), .loss = "mse");
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 1}, 2), MU_END);
    if (!mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT,
                .callbacks = mu_tensorboard("fitted", .histogram_freq = 2, .write_images = true)))
        fail_msg("%s", mu_error_message());
    HAS("fitted/train", "dense/kernel/histogram");
    HAS("fitted/train", "batch_normalization/moving_mean/image");
    HAS("fitted/train", "epoch_loss");
}

static void wrong_arguments(void **state)
{
    (void)state;
    mu_summary_writer *writer = mu_summary_writer_new("loop/wrong");
    assert_int_equal(mu_summary_histogram(writer, "h", vector(1, (double[]){1}), 1, .buckets = 0), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_summary_image(writer, "i", vector(1, (double[]){1}), 1), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_take().message, "float64 [1]"));
    char *name = mu__calloc(1, 2000);
    memset(name, 'x', 1999);
    assert_int_equal(mu_summary_scalar(writer, name, 1, 1), MU_INVALID_ARGUMENT);
    mu_error_take();
    mu__free(name);
    assert_null(mu_summary_writer_new(""));
    mu_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(values_are_recorded),
        MODEL_TEST(histograms_leave_out_what_is_not_finite),
        MODEL_TEST(the_first_replica_records),
        MODEL_TEST(traced_functions_record_in_each_run),
        MODEL_TEST(the_first_replica_of_a_graph_records),
        MODEL_TEST(weights_are_recorded),
        MODEL_TEST(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
