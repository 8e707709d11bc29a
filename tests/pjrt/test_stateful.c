// Stateful recurrent layers on XLA devices: they train, evaluate and predict as on the native engine, on one device and
// on several, with parts of equal and of unequal sizes, step by step and several steps at once.
#include "skip.h"

#include "../unit/model/model_test.h"

#include <muster/recurrent.h>

enum { BATCH = 5, BATCHES = 6, STEPS = 3, WIDTH = 3, MOST_WEIGHTS = 400, EPOCHS = 2 };

typedef struct outcome {
    double weights[MOST_WEIGHTS], loss, evaluated, predicted[BATCH * BATCHES];
    int64_t n;
} outcome;

static const char *const processors[] = {"CPU:0", "CPU:1", "CPU:2", NULL};
static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", "XLA_CPU:2", NULL};

// On the first devices of these; 3 divide a batch of 5 rows into 2, 2 and 1.
static mu_strategy *on(const char *const *names, int n)
{
    const char *some[4] = {NULL};
    memcpy(some, names, sizeof *some * (size_t)n);
    return n == 1 ? mu_one_device_strategy(some[0]) : mu_mirrored_strategy(.devices = some);
}

static mu_dataset *sequences(int64_t batch)
{
    mu_value *all = mu_list(numbers(3, (int64_t[]){BATCH * BATCHES, STEPS, WIDTH}, 3),
                            numbers(2, (int64_t[]){BATCH * BATCHES, 1}, 5), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), batch, .drop_remainder = true);
}

// One layer of each kind, or one alone, because compiling takes most of the time.
typedef enum layers { ALL, LSTM, GRU, SIMPLE } layers;

static mu_model *model_of(int64_t batch, layers which, int steps)
{
    mu_layer *input = mu_input_layer({STEPS, WIDTH}, .batch_size = batch);
    mu_layer *lstm = mu_lstm(3, .return_sequences = which == ALL, .stateful = true, .seed = 1);
    mu_layer *gru = mu_gru(3, .return_sequences = which == ALL, .stateful = true, .seed = 2);
    mu_layer *simple = mu_simple_rnn(2, .stateful = true, .seed = 3);
    mu_layer *one = which == LSTM ? lstm : which == GRU ? gru : simple;
    mu_model *model =
        which == ALL ? mu_sequential(input, lstm, gru, simple, mu_dense(1)) : mu_sequential(input, one, mu_dense(1));
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = .05), .loss = mu_mean_squared_error_loss(),
               .steps_per_execution = steps);
    return model;
}

static void use(mu_model *model, int64_t batch, outcome *out)
{
    mu_history *evaluated = mu_evaluate(model, sequences(batch), .verbose = MU_VERBOSE_SILENT);
    mu_tensor *predicted = evaluated ? mu_predict(model, sequences(batch), .verbose = MU_VERBOSE_SILENT) : NULL;
    if (!predicted)
        fail_msg("%s", mu_error_message());
    out->evaluated = mu_history_last(evaluated, "loss");
    memcpy(out->predicted, doubles(predicted), sizeof(double) * (size_t)mu_tensor_elements(predicted));
}

static void train(mu_strategy *strategy, int64_t batch, layers which, int steps, bool uses, outcome *out)
{
    mu_pool *pool = mu_pool_open();
    mu_model *model = NULL;
    memset(out, 0, sizeof *out);
    mu_set_seed(7);
    MU_SCOPE(strategy)
        model = model_of(batch, which, steps);
    mu_history *history = mu_fit(model, sequences(batch), .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s: %s", mu_strategy_name(strategy), mu_error_message());
    out->loss = mu_history_last(history, "loss");
    if (uses)
        use(model, batch, out);
    double *weights = weights_of(model, &out->n);
    assert_true(out->n <= MOST_WEIGHTS);
    memcpy(out->weights, weights, sizeof *weights * (size_t)out->n);
    free(weights);
    mu_pool_close(pool);
}

static void same(const outcome *seen, const outcome *wanted)
{
    assert_int_equal(seen->n, wanted->n);
    assert_near(seen->weights, wanted->weights, wanted->n, 1e-10);
    assert_number(seen->loss, wanted->loss, 1e-10);
    assert_number(seen->evaluated, wanted->evaluated, 1e-10);
    assert_near(seen->predicted, wanted->predicted, BATCH * BATCHES, 1e-10);
}

static void trains_as_on_the_native_engine(void **state)
{
    (void)state;
    static outcome wanted, seen;
    train(on(processors, 1), BATCH, ALL, 1, true, &wanted);
    train(on(devices, 1), BATCH, ALL, 1, true, &seen);
    same(&seen, &wanted);
    train(on(processors, 1), BATCH, LSTM, 1, false, &wanted);
    train(on(devices, 3), BATCH, LSTM, 1, false, &seen);
    same(&seen, &wanted);
}

// Equal parts, which run as one program, also with several steps in a loop.
static void trains_in_one_program(void **state)
{
    (void)state;
    static outcome wanted, seen;
    train(on(processors, 1), 6, GRU, 1, true, &wanted);
    train(on(devices, 2), 6, GRU, 1, true, &seen);
    same(&seen, &wanted);
    train(on(devices, 2), 6, GRU, 2, false, &seen);
    assert_near(seen.weights, wanted.weights, wanted.n, 1e-10);
}

// A batch of another size is refused with the layer's message, and the weights are unchanged.
static void needs_one_batch_size(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        mu_pool *pool = mu_pool_open();
        mu_model *model = NULL;
        MU_SCOPE(on(devices, n))
            model = model_of(BATCH, SIMPLE, 1);
        assert_non_null(mu_fit(model, sequences(BATCH), .verbose = MU_VERBOSE_SILENT));
        int64_t n_weights;
        double *before = weights_of(model, &n_weights);
        for (int64_t batch = 2; batch <= 3; batch++) { // equal parts on two devices, and unequal ones
            assert_null(mu_fit(model, sequences(batch), .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_INVALID_ARGUMENT, "keeps the states of 5 sequences");
        }
        double *after = weights_of(model, &n_weights);
        assert_memory_equal(before, after, sizeof *before * (size_t)n_weights);
        free(before);
        free(after);
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(trains_as_on_the_native_engine), MODEL_TEST(trains_in_one_program),
                                       MODEL_TEST(needs_one_batch_size)};
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
