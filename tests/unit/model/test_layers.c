// Layers: what each builds and computes, eagerly; gradients through a whole model against differences; the
// summary; names; that a layer keeps what it was given.
#include "model/core/layer.h"
#include "model/training/progress.h"
#include "model_test.h"

static mu_tensor *call(mu_model *model, mu_tensor *x, bool training)
{
    mu_tensor *y = mu_call(model, x, .training = training);
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static void set_weight(mu_model *model, int i, const double *values)
{
    mu_variable *variable = (mu_variable *)mu_value_at(mu_model_weights(model), i)->leaf;
    mu_shape shape = mu_variable_shape(variable);
    assert_int_equal(mu_variable_assign(variable, mu_tensor_new(MU_F64, shape.rank, shape.dims, values)), MU_OK);
}

static void dense_computes(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(2, .activation = "relu"));
    assert_int_equal(mu_model_build(model, 1, (int64_t[]){3}), MU_OK);
    assert_int_equal(mu_model_parameters(model), 8);
    set_weight(model, 0, (double[]){1, 2, 3, 4, 5, 6});
    set_weight(model, 1, (double[]){-30, 1});
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, (double[]){1, 1, 1, 2, 2, 3});
    assert_near(doubles(call(model, x, false)), (double[]){0, 13, 0, 31}, 4, 0);
    mu_tensor *deep = mu_reshape(x, 3, (int64_t[]){1, 2, 3});
    assert_int_equal(mu_tensor_rank(call(model, deep, false)), 3);
}

static void conv_and_pools_compute(void **state)
{
    (void)state;
    double ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, image[16];
    for (int i = 0; i < 16; i++)
        image[i] = i;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){1, 4, 4, 1}, image);
    mu_model *conv = mu_sequential(mu_conv2d(1, 3, .no_bias = true));
    assert_int_equal(mu_model_build(conv, 3, (int64_t[]){4, 4, 1}), MU_OK);
    set_weight(conv, 0, ones);
    assert_near(doubles(call(conv, x, false)), (double[]){45, 54, 81, 90}, 4, 0);
    assert_near(doubles(call(mu_sequential(mu_max_pool2d(2)), x, false)), (double[]){5, 7, 13, 15}, 4, 0);
    assert_near(doubles(call(mu_sequential(mu_average_pool2d(2)), x, false)), (double[]){2.5, 4.5, 10.5, 12.5}, 4, 0);
    mu_tensor *same = call(mu_sequential(mu_max_pool2d(3, .strides = 2, .padding = "same")), x, false);
    assert_near(doubles(same), (double[]){10, 11, 14, 15}, 4, 0);
    mu_model *wide =
        mu_sequential(mu_conv2d(4, .kernel_size_per_axis = {3, 1}, .strides = 2, .padding = "same"), mu_flatten());
    mu_tensor *flat = call(wide, x, false);
    assert_int_equal(mu_tensor_dim(flat, 1), 2 * 2 * 4);
    assert_int_equal(mu_model_parameters(wide), 3 * 1 * 4 + 4);
    mu_model *grouped = mu_sequential(mu_conv2d(4, 1, .groups = 2, .dilation_rate = 1));
    assert_int_equal(mu_model_build(grouped, 3, (int64_t[]){4, 4, 6}), MU_OK);
    assert_int_equal(mu_model_parameters(grouped), 3 * 4 + 4);
}

static void activations_compute(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (int64_t[]){1, 3}, (double[]){-1, 0, 2});
    double sum = exp(-1) + 1 + exp(2);
    const struct {
        const char *name;
        double wanted[3];
    } rows[] = {
        {"linear", {-1, 0, 2}},
        {"relu", {0, 0, 2}},
        {"sigmoid", {1 / (1 + exp(1)), .5, 1 / (1 + exp(-2))}},
        {"tanh", {tanh(-1), 0, tanh(2)}},
        {"exponential", {exp(-1), 1, exp(2)}},
        {"softmax", {exp(-1) / sum, 1 / sum, exp(2) / sum}},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        assert_near(doubles(call(mu_sequential(mu_activation(rows[i].name)), x, false)), rows[i].wanted, 3, 1e-14);
}

// A step counts once, whatever number in the mask marks it.
static void masked_steps_count_once(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, 1);
    mu_tensor *mask = mu_tensor_new(MU_I32, 2, (int64_t[]){2, 3}, (int32_t[]){2, 2, 0, 5, -1, 2});
    mu_tensor *y[2];
    for (int as_bool = 0; as_bool < 2; as_bool++)
        y[as_bool] =
            mu_call(mu_batch_normalization(), x, .training = true, .mask = as_bool ? mu_cast(mask, MU_BOOL) : mask);
    assert_near(doubles(y[0]), doubles(y[1]), 24, 0);
}

static void batch_normalization_computes(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_batch_normalization(.momentum = .75, .epsilon = 0));
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 2}, (double[]){1, 10, 3, 30});
    assert_near(doubles(call(model, x, true)), (double[]){-1, -1, 1, 1}, 4, 1e-14);
    int64_t n;
    double *weights = weights_of(model, &n); // gamma, beta, moving mean, moving variance
    assert_int_equal(n, 8);
    assert_near(weights, (double[]){1, 1, 0, 0, .5, 5, 1, 25.75}, 8, 1e-14);
    free(weights);
    double scale[] = {1, 1 / sqrt(25.75)};
    double wanted[] = {.5 * scale[0], 5 * scale[1], 2.5 * scale[0], 25 * scale[1]};
    assert_near(doubles(call(model, x, false)), wanted, 4, 1e-14);
    assert_int_equal(mu_value_count(mu_trainable_variables(model)), 2);
}

static void dropout_drops(void **state)
{
    (void)state;
    int64_t dims[] = {100, 100};
    mu_tensor *x = mu_ones(MU_F64, 2, dims);
    mu_model *model = mu_sequential(mu_dropout(.25));
    assert_near(doubles(call(model, x, false)), doubles(x), 10000, 0);
    const double *first = doubles(call(model, x, true)), *second = doubles(call(model, x, true));
    int zeros = 0, differ = 0;
    for (int i = 0; i < 10000; i++) {
        assert_true(first[i] == 0 || fabs(first[i] - 4. / 3) < 1e-12);
        zeros += first[i] == 0;
        differ += first[i] != second[i];
    }
    assert_in_range(zeros, 2300, 2700);
    assert_true(differ > 1000);
    assert_near(doubles(call(mu_sequential(mu_dropout(0)), x, true)), doubles(x), 10000, 0);
}

static mu_value *drop_traced(mu_value *arguments, void *arg)
{
    return mu_of(mu_call(arg, mu_at(arguments, 0), .training = true));
}

// Replicas drop different positions, and drop others in the next step.
static void replicas_drop_differently(void **state)
{
    (void)state;
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(2);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dropout(.5));
    }
    mu_function *function = mu_function_new(drop_traced, model);
    mu_value *x = mu_of(mu_ones(MU_F64, 2, (int64_t[]){10, 10}));
    mu_tensor *masks[4];
    for (int step = 0; step < 2; step++) {
        mu_value *results = mu_local_results(strategy, mu_run(strategy, function, x));
        for (int r = 0; r < 2; r++)
            masks[2 * step + r] = mu_at(results, r);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(doubles(masks[i]), doubles(masks[k]), 100 * sizeof(double));
}

// ---- Gradients ----------------------------------------------------------------------------------

static void gradients_match_differences(void **state)
{
    (void)state;
    mu_tensor *rows = numbers(2, (int64_t[]){5, 3}, 1), *images = numbers(4, (int64_t[]){2, 6, 6, 2}, 2);
    check_gradients(mu_sequential(mu_dense(4, .activation = "tanh"), mu_dense(2, .activation = "softmax")), rows);
    check_gradients(mu_sequential(mu_dense(4), mu_batch_normalization(), mu_activation("sigmoid")), rows);
    check_gradients(
        mu_sequential(mu_conv2d(3, 3, .activation = "tanh"), mu_average_pool2d(2), mu_flatten(), mu_dense(2)), images);
    check_gradients(mu_sequential(mu_conv2d(4, 3, .padding = "same", .strides = 2, .groups = 2), mu_max_pool2d(2),
                                  mu_flatten(), mu_dense(2, .activation = "exponential")),
                    images);
    static const char *const names[] = {"celu",        "glu",        "hard_tanh",   "hard_shrink",   "soft_shrink",
                                        "tanh_shrink", "squareplus", "sparse_plus", "sparse_sigmoid"};
    for (size_t i = 0; i < MU_COUNT(names); i++)
        check_gradients(mu_sequential(mu_dense(6), mu_activation(names[i])), rows);
}

// ---- Names, summary, keeping --------------------------------------------------------------------

static void names_and_summary(void **state)
{
    (void)state;
    char text[16384];
    mu_layer *chosen = mu_dense(2, .name = "dense_1");
    mu_model *model =
        mu_sequential(mu_conv2d(2, 3), mu_flatten(), mu_dense(4), chosen, mu_dense(3), mu_batch_normalization());
    FILE *out = tmpfile();
    assert_int_equal(mu_summary(model, out), MU_OK);
    assert_int_equal(mu_model_build(model, 3, (int64_t[]){5, 5, 1}), MU_OK);
    assert_int_equal(mu_summary(model, out), MU_OK);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    static const char *const parts[] = {
        "conv2d (Conv2D)",      "(None, 3, 3, 2)",          "dense (Dense)",
        "dense_1 (Dense)",      "dense_2 (Dense)",          "0 (unbuilt)",
        " Total params: 127 (", " Trainable params: 121 (", " Non-trainable params: 6 ("};
    for (size_t i = 0; i < MU_COUNT(parts); i++)
        if (!strstr(text, parts[i]))
            fail_msg("no \"%s\" in:\n%s", parts[i], text);
    assert_string_equal(mu_layer_name(chosen), "dense_1");
    const mu_variable *last = (mu_variable *)mu_value_at(mu_model_weights(model), 7)->leaf;
    assert_string_equal(mu_variable_name(last), "dense_2/bias");
    assert_null(mu_sequential(mu_dense(1, .name = "a"), mu_flatten(), mu_dense(1, .name = "a")));
    expect_error(MU_INVALID_ARGUMENT, "both named 'a'");
}

// Names that would control a terminal are shown without that, in the summary and in the progress bar.
static void names_do_not_steer_terminals(void **state)
{
    (void)state;
    char text[4096];
    mu_model *model = mu_sequential(mu_dense(4, .name = "evil\033[2J\r\nüber"));
    FILE *out = tmpfile();
    assert_int_equal(mu_summary(model, out), MU_OK);
    mu_progress progress;
    mu__progress_begin(&progress, MU_VERBOSE_LINES, 1, 0, 3);
    progress.out = out;
    mu__progress_end(&progress, 3, 1, (const char *const[]){"lo\033]0;title\007ss"}, (double[]){0.5});
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    assert_non_null(strstr(text, "\n│ evil?[2J? über (Dense)          │ ?  "));
    assert_non_null(strstr(text, " - lo?]0;title?ss: 0.5000\n"));
    assert_null(strpbrk(text, "\033\r\007"));
}

// Returns the columns that a line takes; a character of several bytes takes one.
static int columns_in(const char *line)
{
    int columns = 0;
    for (; *line && *line != '\n'; line++)
        columns += (*line & 0xC0) != 0x80;
    return columns;
}

// Whatever the names are, all lines of the table end in one column, and nothing is cut.
static void summary_of_long_names(void **state)
{
    (void)state;
    char name[200], text[8192];
    memset(name, 'q', sizeof name - 1);
    name[sizeof name - 1] = 0;
    mu_model *model = mu_sequential(mu_dense(4, .name = name), mu_dense(2, .name = "b"));
    FILE *out = tmpfile();
    assert_int_equal(mu_model_build(model, 1, (int64_t[]){3}), MU_OK);
    assert_int_equal(mu_summary(model, out, .show_trainable = true, .line_length = 61), MU_OK);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    int n = 0;
    const char *line = strchr(text, '\n') + 1;
    for (; *line != ' '; line = strchr(line, '\n') + 1) {
        assert_int_equal(columns_in(line), 61);
        for (const char *at = line; at < strchr(line, '\n'); at++)
            n += *at == 'q';
    }
    assert_int_equal(n, 20); // the width of its column without the ellipsis
    assert_non_null(strstr(text, "qqqq…"));
}

static void summaries_that_are_refused(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(4, .name = "a"), mu_dense(2, .name = "b"));
    FILE *out = tmpfile();
    assert_int_equal(mu_summary(model, out, .line_length = 20), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "give a larger .line_length");
    assert_int_equal(mu_summary(model, out, .line_length = 0), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "line_length is 0");
    assert_int_equal(mu_summary(model, out, .layer_range = {"a"}), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "give the first and the last");
    assert_int_equal(mu_summary(model, out, .layer_range = {"a", "c"}), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "'c', but the name of no layer");
    assert_int_equal(mu_summary(model, out, .layer_range = {"a", "(b"}), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "not a regular expression");
    fclose(out);
}

// Texts and regularizers may have been freed by the time a layer is built.
static void keeps_what_it_was_given(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    char activation[] = "relu", initializer[] = "ones", padding[] = "same", name[] = "mine";
    mu_model *model =
        mu_sequential(mu_conv2d(1, 2, .padding = padding, .activation = activation, .kernel_initializer = initializer,
                                .name = name, .kernel_regularizer = mu_l2(.5)));
    mu_retain(model);
    strcpy(activation, "xxxx");
    strcpy(initializer, "xxxx");
    strcpy(padding, "xxxx");
    strcpy(name, "xxxx");
    mu_pool_close(pool);
    mu_tensor *x = mu_ones(MU_F64, 4, (int64_t[]){1, 2, 2, 1});
    assert_near(doubles(call(model, x, false)), (double[]){4, 2, 2, 1}, 4, 0);
    assert_number(mu_scalar(mu_at(mu_model_losses(model), 0)), 2, 0);
    assert_string_equal(mu_variable_name((mu_variable *)mu_value_at(mu_model_weights(model), 0)->leaf), "mine/kernel");
    mu_release(model);
}

// Weights that are made by a call outside of the scope still belong to the strategy.
static void late_build_is_mirrored(void **state)
{
    (void)state;
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(3);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(2));
    }
    call(model, mu_ones(MU_F64, 2, (int64_t[]){1, 2}), false);
    assert_int_equal(((mu_variable *)mu_value_at(mu_model_weights(model), 0)->leaf)->n_components, 3);
}

static void initializers_draw(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double limit, deviation;
    } rows[] = {
        {"zeros", 0, 0},
        {"ones", 1, 0},
        {"glorot_uniform", 0.17320508, 0.1},
        {"he_uniform", 0.24494898, 0.14142136},
        {"lecun_uniform", 0.17320508, 0.1},
        {"glorot_normal", 0.2274, 0.1},
        {"he_normal", 0.3216, 0.14142136},
        {"lecun_normal", 0.2274, 0.1},
        {"random_uniform", 0.05, 0.02886751},
        {"random_normal", 0.3, 0.05},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_shape shape = {.rank = 2, .dims = {100, 100}};
        const double *w = doubles(initial(rows[i].name, MU_F64, shape));
        double sum = 0, squares = 0, largest = 0;
        for (int k = 0; k < 10000; k++) {
            sum += w[k] / 10000;
            squares += w[k] * w[k] / 10000;
            largest = fmax(largest, fabs(w[k]));
        }
        assert_true(largest <= rows[i].limit * 1.0001);
        assert_true(fabs(sqrt(fmax(0, squares - sum * sum)) - rows[i].deviation) <= .03 * rows[i].deviation + 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(dense_computes),
        MODEL_TEST(conv_and_pools_compute),
        MODEL_TEST(activations_compute),
        MODEL_TEST(batch_normalization_computes),
        MODEL_TEST(masked_steps_count_once),
        MODEL_TEST(dropout_drops),
        MODEL_TEST(replicas_drop_differently),
        MODEL_TEST(gradients_match_differences),
        MODEL_TEST(names_and_summary),
        MODEL_TEST(names_do_not_steer_terminals),
        MODEL_TEST(summary_of_long_names),
        MODEL_TEST(summaries_that_are_refused),
        MODEL_TEST(keeps_what_it_was_given),
        MODEL_TEST(late_build_is_mirrored),
        MODEL_TEST(initializers_draw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
