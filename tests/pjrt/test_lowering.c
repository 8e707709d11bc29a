// Training steps and functions whose ops only exist on devices since they have a lowering, on two engines: dropout,
// embeddings, sparse updates, random numbers, control flow. Integers and uniform numbers have the same bits on both.
#include "skip.h"

#include "graph/graph.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// ---- Training with an embedding and dropout -----------------------------------------------------

enum { STEPS = 5, BATCH = 8, WORDS = 6, VOCABULARY = 20, CLASSES = 3, MOST_WEIGHTS = 2000 };

typedef struct training {
    const char *optimizer;
    mu_model *model;
    mu_optimizer *made;
    double losses[STEPS];
    float weights[MOST_WEIGHTS];
    int64_t n_weights;
} training;

static mu_value *train_step(mu_value *batch, void *arg)
{
    training *job = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, mu_at(batch, 0), .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = BATCH * 2);
    mu_apply_gradients(job->made, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

static mu_value *make_batch(int step)
{
    int32_t words[BATCH * WORDS], labels[BATCH];
    for (int i = 0; i < BATCH; i++) {
        labels[i] = (i * 5 + step) % CLASSES;
        for (int k = 0; k < WORDS; k++)
            words[i * WORDS + k] = (labels[i] * 6 + k * k + i % 2) % VOCABULARY;  // some words come twice
    }
    return mu_list(mu_of(mu_tensor_new(MU_I32, 2, (int64_t[]){BATCH, WORDS}, words)),
                   mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){BATCH}, labels)), MU_END);
}

static void keep_weights(training *job)
{
    mu_value *weights = mu_model_weights(job->model);
    for (int i = 0; i < mu_value_count(weights); i++) {
        const mu_tensor *tensor = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        const int64_t n = mu_tensor_elements(tensor);
        if (tensor->dtype != MU_F32)
            continue;
        assert_true(job->n_weights + n <= MOST_WEIGHTS);
        memcpy(job->weights + job->n_weights, mu_tensor_data(tensor), sizeof(float) * (size_t)n);
        job->n_weights += n;
    }
}

static void train(mu_strategy *strategy, training *job)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(4);
    MU_SCOPE(strategy) {
        job->model = mu_sequential(mu_embedding(VOCABULARY, 8), mu_flatten(), mu_dropout(0.3),
                                   mu_dense(16, .activation = "relu"), mu_dropout(0.5), mu_dense(CLASSES));
        job->made = strcmp(job->optimizer, "adam") == 0
                        ? mu_adam(.learning_rate = 1e-2)
                        : mu_sgd(.learning_rate = 0.1, .momentum = strcmp(job->optimizer, "sgd") == 0 ? 0 : 0.9,
                                 .nesterov = strcmp(job->optimizer, "nesterov") == 0);
    }
    mu_function *step = mu_function_new(train_step, job);
    for (int i = 0; i < STEPS; i++) {
        mu_value *result = mu_run(strategy, step, make_batch(i));
        if (!result)
            fail_msg("step %d of %s: %s", i, mu_strategy_name(strategy), mu_error_message());
        job->losses[i] = mu_scalar(mu_reduce(strategy, MU_SUM, result));
    }
    keep_weights(job);
    assert_int_equal(mu_error_code(), MU_OK);
    mu_pool_close(pool);
}

static void compare(const training *native, const training *plugin)
{
    double apart = 0;
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(native->losses[i] - plugin->losses[i]) <= 1e-5))
            fail_msg("%s, step %d: loss %.7f native, %.7f plugin", native->optimizer, i, native->losses[i],
                     plugin->losses[i]);
    assert_int_equal(native->n_weights, plugin->n_weights);
    for (int64_t i = 0; i < native->n_weights; i++)
        apart = fmax(apart, fabs((double)native->weights[i] - plugin->weights[i]));
    print_message("%s: %lld weights, at most %.2g apart\n", native->optimizer, (long long)native->n_weights, apart);
    assert_true(apart < 1e-4);
}

static void check_training(mu_strategy *on_native, mu_strategy *on_plugin)
{
    static const char *const optimizers[] = {"sgd", "momentum", "nesterov", "adam"};
    for (size_t i = 0; i < MU_COUNT(optimizers); i++) {
        training native = {.optimizer = optimizers[i]}, plugin = native;
        train(on_native, &native);
        train(on_plugin, &plugin);
        assert_true(native.losses[STEPS - 1] != native.losses[0]);
        compare(&native, &plugin);
    }
}

static void test_embedding_and_dropout_train(void **state)
{
    (void)state;
    check_training(mu_one_device_strategy("CPU:0"), mu_one_device_strategy("XLA_CPU:0"));
}

// Each replica has masks of its own, and its slices are summed with the others'.
static void test_embedding_and_dropout_train_on_two_replicas(void **state)
{
    (void)state;
    static const char *const processors[] = {"CPU:0", "CPU:1", NULL};
    static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};
    check_training(mu_mirrored_strategy(.devices = processors), mu_mirrored_strategy(.devices = devices));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_and_dropout_train),
        cmocka_unit_test(test_embedding_and_dropout_train_on_two_replicas),
    };
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 2);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
