// Weights in files: from any strategy to any other, checked as a whole before the first one changes; the
// checkpoint callback.
#include "../caught_output.h"
#include "../scratch.h"
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"
#include "model_test.h"

#include <unistd.h>

static mu_model *model_on(int kind, int units)
{
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(kind);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(units), mu_batch_normalization(), mu_dropout(.5), mu_dense(2));
        mu_compile(model, .loss = mu_mean_squared_error_loss(), .optimizer = mu_adam());
    }
    assert_int_equal(mu_model_build(model, 1, (int64_t[]){3}), MU_OK);
    return model;
}

static mu_dataset *data(void)
{
    mu_value *all = mu_list(numbers(2, (int64_t[]){10, 3}, 1), numbers(2, (int64_t[]){10, 2}, 2), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), 4);
}

static void strategies_interchange(void **state)
{
    (void)state;
    static const char *const path = "muster-test-weights.safetensors";
    static const int kinds[] = {0, -1, 1, 3, 8};
    for (size_t i = 0; i < MU_COUNT(kinds); i++)
        for (size_t k = 0; k < MU_COUNT(kinds); k++) {
            mu_pool *pool = mu_pool_open();
            mu_model *from = model_on(kinds[i], 4), *to = model_on(kinds[k], 4);
            assert_non_null(mu_fit(from, data(), .verbose = MU_VERBOSE_SILENT));
            assert_int_equal(mu_save_weights(from, path), MU_OK);
            assert_int_equal(mu_load_weights(to, path), MU_OK);
            assert_same_weights(from, to);
            mu_value *weights = mu_model_weights(to);
            for (int w = 0; w < mu_value_count(weights); w++) {
                const mu_variable *variable = (mu_variable *)mu_value_at(weights, w)->leaf;
                mu_spec spec = variable->resource.spec;
                for (int c = 1; c < variable->n_components; c++)
                    assert_memory_equal(mu__host_read(variable->components[c]), mu__host_read(variable->components[0]),
                                        mu__spec_bytes(&spec));
            }
            mu_pool_close(pool);
        }
    unlink(path);
}

// What a program does with mu_model_weights: reads one, sets one.
static void weights_are_read_and_set(void **state)
{
    (void)state;
    mu_model *model = model_on(2, 4);
    mu_value *weights = mu_model_weights(model), *first = mu_value_at(weights, 0);
    mu_variable *kernel = mu_value_variable(first);
    assert_int_equal(mu_tensor_elements(mu_variable_read(kernel)), 12);
    assert_int_equal(mu_variable_assign(kernel, mu_ones(MU_F64, 2, (int64_t[]){3, 4})), MU_OK);
    assert_true(mu_scalar(mu_reduce_sum(mu_variable_read(kernel), MU_ALL_AXES)) == 12);
    assert_null(mu_value_tensor(first));
    expect_error(MU_INVALID_ARGUMENT, "mu_value_variable");
    assert_null(mu_value_variable(weights));
    expect_error(MU_INVALID_ARGUMENT, "a container, not a variable");
}

// Weights by their paths, and files of which a part is loaded.
static void a_part_is_loaded(void **state)
{
    (void)state;
    static const char *const path = "muster-test-part.safetensors";
    mu_model *from = model_on(0, 4), *to = model_on(0, 4), *wider = model_on(0, 5);
    assert_int_equal(mu_save_weights(from, path), MU_OK);
    mu_variable *kernel = mu_model_weight(to, "dense/kernel"), *other = mu_model_weight(to, "dense_1/kernel");
    const double before = mu_tensor_item(mu_variable_read(other), 0);
    assert_int_equal(mu_load_weights(to, path, .only = "^dense/"), MU_OK);
    assert_true(mu_tensor_item(mu_variable_read(kernel), 5) ==
                mu_tensor_item(mu_variable_read(mu_model_weight(from, "dense/kernel")), 5));
    assert_true(mu_tensor_item(mu_variable_read(other), 0) == before);
    // From a wider model only the weights of equal shape are loaded.
    assert_int_equal(mu_load_weights(wider, path), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "'dense/kernel' in");
    assert_int_equal(mu_load_weights(wider, path, .skip_mismatch = true), MU_OK);
    mu_variable_assign(mu_model_weight(from, "dense_1/bias"), numbers(1, (int64_t[]){2}, 5));
    assert_int_equal(mu_save_weights(from, path), MU_OK);
    assert_int_equal(mu_load_weights(wider, path, .skip_mismatch = true), MU_OK);
    assert_true(mu_tensor_item(mu_variable_read(mu_model_weight(wider, "dense_1/bias")), 1) ==
                mu_tensor_item(numbers(1, (int64_t[]){2}, 5), 1));
    assert_int_equal(mu_load_weights(to, path, .only = "^conv"), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "mu_variable_name");
    assert_int_equal(mu_load_weights(to, path, .only = "("), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "not a regular expression");
    assert_null(mu_model_weight(to, "dense/kernle"));
    expect_error(MU_NOT_FOUND, "begin with 'dense/kernel'");
    unlink(path);
}

static void nothing_changes_unless_all_fits(void **state)
{
    (void)state;
    static const char *const path = "muster-test-misfit.safetensors";
    mu_model *model = model_on(2, 4), *other = model_on(2, 5), *copy = model_on(2, 4);
    assert_int_equal(mu_save_weights(model, path), MU_OK);
    assert_int_equal(mu_load_weights(copy, path), MU_OK);
    assert_int_equal(mu_save_weights(other, path), MU_OK);
    assert_int_equal(mu_load_weights(model, path), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "dense/kernel");
    mu_value *weights =
        mu_map("dense/kernel", mu_variable_read((mu_variable *)mu_value_at(mu_model_weights(other), 0)->leaf), MU_END);
    assert_int_equal(mu_save_tensors(path, weights), MU_OK);
    assert_int_equal(mu_load_weights(other, path), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "no tensor 'dense/bias'");
    weights = mu_map("dense/kernel", mu_zeros(MU_F32, 2, (int64_t[]){3, 5}), MU_END);
    assert_int_equal(mu_save_tensors(path, weights), MU_OK);
    assert_int_equal(mu_load_weights(other, path), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "float32");
    assert_same_weights(model, copy);
    unlink(path);
    assert_int_equal(mu_load_weights(model, path), MU_NOT_FOUND);
    expect_error(MU_NOT_FOUND, path);
    assert_int_equal(mu_save_weights(model, "no such folder/w.safetensors"), MU_NOT_FOUND);
    expect_error(MU_NOT_FOUND, "no such folder");
    mu_model *unbuilt = mu_sequential(mu_dense(1));
    assert_int_equal(mu_save_weights(unbuilt, path), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "no weights yet");
}

static void checkpoints_are_saved(void **state)
{
    (void)state;
    static const char *const path = "muster-test-checkpoint.safetensors";
    mu_model *model = model_on(2, 4), *copy = model_on(0, 4);
    mu_callback *every = mu_model_checkpoint(path);
    assert_non_null(mu_fit(model, data(), .epochs = 2, .callbacks = MU_CALLBACKS(every), .verbose = MU_VERBOSE_SILENT));
    assert_int_equal(mu_load_weights(copy, path), MU_OK);
    assert_same_weights(model, copy);
    mu_callback *best = mu_model_checkpoint(path, .save_best_only = true, .monitor = "loss");
    mu_variable_assign(mu_optimizer_learning_rate(model->trainer->optimizer), mu_constant(MU_F64, 1e3));
    assert_non_null(mu_fit(model, data(), .epochs = 1, .callbacks = MU_CALLBACKS(best), .verbose = MU_VERBOSE_SILENT));
    assert_int_equal(mu_load_weights(copy, path), MU_OK);
    assert_same_weights(model, copy);
    unlink(path);
}

// A poisoned weight fails when it is read until it is assigned.
static void poisoned_weights_fail_until_restored(void **state)
{
    (void)state;
    static const char *const path = "muster-test-marked.safetensors";
    mu_model *model = model_on(2, 4);
    assert_int_equal(mu_save_weights(model, path), MU_OK);
    mu_variable *kernel = (mu_variable *)mu_value_at(mu_model_weights(model), 0)->leaf;
    kernel->resource.kind->poison(&kernel->resource, 1);
    assert_null(mu_fit(model, data(), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_FAILED_PRECONDITION, "'dense/kernel' was left in doubt");
    assert_int_equal(mu_load_weights(model, path), MU_OK);
    assert_non_null(mu_fit(model, data(), .verbose = MU_VERBOSE_SILENT));
    unlink(path);
}

static mu_optimizer *plain_nadam(void) { return mu_nadam(.learning_rate = .5); }

static mu_optimizer *scaled_nadam(void) { return mu_loss_scale_optimizer(plain_nadam()); }

static mu_optimizer *scaled_sums(void)
{
    return mu_loss_scale_optimizer(mu_nadam(.learning_rate = .5, .gradient_accumulation_steps = 2));
}

// Trains five steps, saves, and trains a model that loads the file and this one four steps more: with the same bits.
static void continue_with(mu_optimizer *(*make)(void), const char *path)
{
    mu_value *batch = mu_list(numbers(2, (int64_t[]){10, 3}, 1), numbers(2, (int64_t[]){10, 2}, 2), MU_END);
    mu_model *models[2];
    for (int k = 0; k < 2; k++) {
        models[k] = mu_sequential(mu_dense(2));
        assert_int_equal(mu_model_build(models[k], 1, (int64_t[]){3}), MU_OK);
        mu_compile(models[k], .loss = "mse", .optimizer = make());
    }
    for (int step = 0; step < 5; step++)
        assert_non_null(mu_train_on_batch(models[0], batch));
    assert_int_equal(mu_save_weights(models[0], path), MU_OK);
    assert_int_equal(mu_load_weights(models[1], path), MU_OK);
    for (int step = 0; step < 8; step++)
        assert_non_null(mu_train_on_batch(models[step % 2], batch));
    assert_same_weights(models[0], models[1]);
}

static bool has_tensor(const char *path, const char *name)
{
    mu_tensor_file *file = mu_tensor_file_open(path);
    assert_non_null(file);
    return mu_tensor_file_find(file, name) >= 0;
}

// Nadam's product of momenta, a number that no weight has of its own, is the last of the optimizer's variables; inside
// of a loss scale optimizer it is in checkpoints alone, as an attribute (decision 157).
static void nadam_continues(void **state)
{
    (void)state;
    static const char *const paths[] = {"nadam.weights.h5", "nadam.ckpt"};
    for (size_t i = 0; i < MU_COUNT(paths); i++) {
        continue_with(plain_nadam, paths[i]);
        continue_with(scaled_sums, paths[i]);
        continue_with(scaled_nadam, paths[i]);
    }
    assert_true(has_tensor(paths[0], "optimizer/vars/9"));
    assert_false(has_tensor(paths[0], "optimizer/vars/10"));
    assert_true(has_tensor(paths[1], "optimizer/inner_optimizer/_u_product"));
}

// The product, which the file lacks, is that of all updates, of which the last ones change nothing.
static void nadam_of_many_updates_is_read_at_once(void **state)
{
    (void)state;
    mu_optimizer *inside[] = {plain_nadam(), plain_nadam()};
    mu_value *batch = mu_list(numbers(2, (int64_t[]){10, 3}, 1), numbers(2, (int64_t[]){10, 2}, 2), MU_END);
    for (int i = 0; i < 2; i++) {
        mu_model *model = mu_sequential(mu_dense(2));
        mu_compile(model, .loss = "mse", .optimizer = mu_loss_scale_optimizer(inside[i]));
        assert_non_null(mu_train_on_batch(model, batch));
        mu_variable_assign(mu_optimizer_iterations(inside[i]), mu_constant(MU_I64, i ? 0 : 1e12));
        assert_int_equal((i ? mu_load_weights(model, "many.weights.h5") : mu_save_weights(model, "many.weights.h5")),
                         MU_OK);
        assert_int_equal(mu_save_weights(model, "many.ckpt"), MU_OK);
    }
    assert_number(mu_scalar(mu_variable_read(mu_optimizer_iterations(inside[1]))), 1e12, 0);
    mu_tensor_file *file = mu_tensor_file_open("many.ckpt");
    const int at = mu_tensor_file_find(file, "optimizer/inner_optimizer/_u_product");
    assert_in_range((uint64_t)(mu_scalar(mu_tensor_file_read(file, at)) * 1e300), 0, 1);
}

static mu_model *trained_with(mu_optimizer *optimizer)
{
    mu_model *model = mu_sequential(mu_dense(2));
    mu_compile(model, .loss = "mse", .optimizer = optimizer);
    mu_value *batch = mu_list(numbers(2, (int64_t[]){10, 3}, 1), numbers(2, (int64_t[]){10, 2}, 2), MU_END);
    assert_non_null(mu_train_on_batch(model, batch));
    return model;
}

static void load(void *model) { assert_int_equal(mu_load_weights(model, "state.weights.h5"), MU_OK); }

// The weights are loaded; the state is not, and the log names what the file lacks.
static void the_state_of_another_optimizer_is_told(void **state)
{
    (void)state;
    char text[4000];
    mu_model *from = trained_with(mu_adam()), *to = trained_with(mu_nadam());
    assert_int_equal(mu_save_weights(from, "state.weights.h5"), MU_OK);
    catch_stderr(load, to, text, sizeof text);
    assert_non_null(strstr(text, "'state.weights.h5' has no 'optimizer/vars/"));
    assert_non_null(strstr(text, "the optimizer starts from its initial state"));
    assert_same_weights(from, to);
    catch_stderr(load, from, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(strategies_interchange),
        MODEL_TEST(weights_are_read_and_set),
        MODEL_TEST(a_part_is_loaded),
        MODEL_TEST(nothing_changes_unless_all_fits),
        MODEL_TEST(checkpoints_are_saved),
        MODEL_TEST(poisoned_weights_fail_until_restored),
        MODEL_TEST(nadam_continues),
        MODEL_TEST(nadam_of_many_updates_is_read_at_once),
        MODEL_TEST(the_state_of_another_optimizer_is_told),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
