// Every allocation of building, training, measuring and saving a model fails once: the call says so, replicas
// release each other, and nothing is lost or left behind.
#include "../fail_allocation.h"
#include "../scratch.h"
#include "model_test.h"

#include <unistd.h>

static const char path[] = "muster-test-memory.safetensors";

static void train(int replicas)
{
    mu_strategy *strategy = strategy_of(replicas);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model =
            mu_sequential(mu_conv2d(2, 3, .activation = "relu", .kernel_regularizer = mu_l2(.1)), mu_flatten(),
                          mu_batch_normalization(.synchronized = true), mu_dropout(.2), mu_dense(3, .name = "last"));
        mu_compile(model, .optimizer = mu_sgd(.momentum = .5), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_value *all = mu_list(mu_zeros(MU_F64, 4, (int64_t[]){7, 4, 4, 1}), mu_zeros(MU_I64, 1, (int64_t[]){7}), MU_END);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(all), 3);
    mu_fit(model, data, .validation_data = data,
           .callbacks = MU_CALLBACKS(mu_model_checkpoint(path), mu_early_stopping()), .verbose = MU_VERBOSE_SILENT);
    mu_load_weights(model, path);
    mu_predict(model, data);
}

static void train_on(void *replicas) { train(*(int *)replicas); }

static void check(int replicas)
{
    train(replicas);
    assert_int_equal(mu_error_code(), MU_OK);
    bool failed = true;
    int rounds = 0;
    for (long n = 1; failed && rounds < 5000; n += n < 300 ? 1 : 5, rounds++)
        failed = fail_allocation(n, train_on, &replicas).failed;
    assert_in_range(rounds, 100, 4999);
    unlink(path);
}

static void on_one_replica(void **state)
{
    (void)state;
    check(1);
}

static void on_three_replicas(void **state)
{
    (void)state;
    check(3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(on_one_replica),
        MODEL_TEST(on_three_replicas),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
