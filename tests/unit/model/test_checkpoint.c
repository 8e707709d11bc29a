// Checkpoints: a run that is interrupted anywhere ends with the bits of an undisturbed one; files are complete or
// absent, fit any number of replicas, and a damaged file is skipped or named.
#include "base/private.h"
#include "../scratch.h"
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"
#include "model_test.h"

#include <muster/checkpoint.h>

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "muster-test-checkpoints"
#define BACKUP FOLDER "/backup.safetensors"
enum { EPOCHS = 4, STEPS = 7 }; // 53 rows in batches of 8

static void remove_folder(void)
{
    if (system("rm -rf " FOLDER) != 0)
        fail_msg("the folder of the test cannot be removed");
}

static mu_model *model_on(int replicas)
{
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(replicas);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(9, .activation = "tanh"), mu_batch_normalization(), mu_dropout(.3), mu_dense(4));
        mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true), .optimizer = mu_adam(),
                   .metrics = MU_METRICS(mu_accuracy()));
    }
    return model;
}

static mu_dataset *data(void)
{
    mu_value *all = mu_list(numbers(2, (int64_t[]){53, 5}, 1), classes(53, 4, 2), MU_END);
    return mu_dataset_batch(mu_dataset_shuffle(mu_dataset_from_tensor_slices(all), 53, .seed = 3), 8);
}

// A process starts: the same seed, so the same first weights.
static mu_model *begin(int replicas)
{
    mu_set_seed(11);
    return model_on(replicas);
}

typedef struct breaking {
    int64_t at; // steps until it breaks off
    int signal; // that is raised; 0: the callback fails
} breaking;

static mu_status count_down(const mu_logs *logs, void *arg)
{
    (void)logs;
    breaking *b = arg;
    if (--b->at != 0)
        return MU_OK;
    return b->signal ? (raise(b->signal), MU_OK) : mu_fail(MU_ABORTED, "broken off");
}

static mu_history *train(mu_model *model, mu_callback *backup, breaking *b)
{
    mu_callback *breaker = mu_callback_new(.on_batch_end = count_down, .arg = b);
    return mu_fit(model, data(), .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT, .validation_data = data(),
                  .callbacks = MU_CALLBACKS(backup, breaker));
}

static void assert_like_undisturbed(mu_model *model, mu_history *history, int replicas)
{
    breaking never = {.at = -1};
    mu_model *whole = begin(replicas);
    mu_history *wanted = train(whole, mu_backup_and_restore(FOLDER "/other"), &never);
    assert_non_null(wanted);
    assert_same_weights(model, whole);
    static const char *const names[] = {"loss", "accuracy", "val_loss"};
    for (size_t i = 0; i < MU_COUNT(names); i++)
        assert_number(mu_history_last(history, names[i]), mu_history_last(wanted, names[i]), 1e-12);
}

// Interrupted after each step, with a save every two steps or at the end of every epoch.
static void continues_with_the_same_bits(void **state)
{
    (void)state;
    for (int replicas = 0; replicas <= 2; replicas += 2)
        for (int64_t at = 3; at < EPOCHS * STEPS; at += 6) {
            mu_pool *pool = mu_pool_open();
            remove_folder();
            breaking b = {.at = at}, never = {.at = -1};
            const int64_t save_freq = at % 4 == 1 ? 2 : 0;
            assert_null(train(begin(replicas), mu_backup_and_restore(FOLDER, .save_freq = save_freq), &b));
            expect_error(MU_ABORTED, "broken off");
            // If there is a file, everything must come from it: the first weights are different then.
            mu_model *model = access(BACKUP, F_OK) == 0 ? model_on(replicas) : begin(replicas);
            mu_history *history = train(model, mu_backup_and_restore(FOLDER, .save_freq = save_freq), &never);
            assert_non_null(history);
            assert_int_not_equal(access(BACKUP, F_OK), 0);
            assert_like_undisturbed(model, history, replicas);
            mu_pool_close(pool);
        }
    remove_folder();
}

// Metrics that learn from the first batch how many columns there are have what the epoch's first steps gave them.
static mu_history *train_wide(int64_t at, mu_callback *backup)
{
    breaking b = {.at = at};
    mu_set_seed(11);
    mu_model *model = mu_sequential(mu_dense(4, .activation = "softmax"));
    mu_compile(model, .loss = "categorical_crossentropy", .optimizer = mu_adam(),
               .metrics = MU_METRICS(mu_f1_score_metric(), mu_r2_score_metric(), mu_auc_metric(.multi_label = true)));
    mu_value *all = mu_list(numbers(2, (int64_t[]){53, 5}, 1), mu_one_hot(classes(53, 4, 2), 4, MU_F32), MU_END);
    mu_callback *breaker = mu_callback_new(.on_batch_end = count_down, .arg = &b);
    return mu_fit(model, mu_dataset_batch(mu_dataset_from_tensor_slices(all), 8), .epochs = 2,
                  .verbose = MU_VERBOSE_SILENT, .callbacks = MU_CALLBACKS(backup, breaker));
}

static void metrics_of_the_first_batchs_width_go_on(void **state)
{
    (void)state;
    static const char *const names[] = {"f1_score", "r2_score", "auc"};
    mu_pool *pool = mu_pool_open();
    remove_folder();
    assert_null(train_wide(STEPS + 4, mu_backup_and_restore(FOLDER, .save_freq = 1)));
    expect_error(MU_ABORTED, "broken off");
    mu_history *resumed = train_wide(-1, mu_backup_and_restore(FOLDER, .save_freq = 1));
    mu_history *whole = train_wide(-1, mu_backup_and_restore(FOLDER "/other"));
    assert_true(resumed && whole && mu_history_epochs(resumed) == 1);
    for (size_t i = 0; i < MU_COUNT(names); i++)
        assert_number(mu_history_at(resumed, names[i], 0), mu_history_at(whole, names[i], 1), 1e-12);
    mu_pool_close(pool);
    remove_folder();
}

// In the middle of an epoch, and after its last step.
static void a_signal_saves_the_step_of(int step)
{
    char text[16];
    remove_folder();
    assert_int_equal(mu_stop_on_signals(), MU_OK);
    breaking b = {.at = STEPS + step, .signal = SIGTERM}, never = {.at = -1};
    snprintf(text, sizeof text, "%d", step);
    assert_null(train(begin(2), mu_backup_and_restore(FOLDER), &b));
    expect_error(MU_CANCELLED,
                 "stopped by SIGTERM; progress is saved in '" FOLDER "': run the same command to continue");
    mu_tensor_file *file = mu_tensor_file_open(BACKUP);
    assert_string_equal(mu_tensor_file_metadata(file, "muster.epoch"), "1");
    assert_string_equal(mu_tensor_file_metadata(file, "muster.step"), text);
    mu__signals_restore();
    mu_model *model = model_on(2);
    mu_history *history = train(model, mu_backup_and_restore(FOLDER), &never);
    assert_non_null(history);
    assert_int_equal(mu_history_epochs(history), EPOCHS - 1);
    assert_like_undisturbed(model, history, 2);
    remove_folder();
}

static mu_status break_off_epoch(const mu_logs *logs, void *arg)
{
    return logs->epoch == *(const int *)arg ? mu_fail(MU_ABORTED, "broken off") : MU_OK;
}

// Ten epochs, interrupted at the beginning of epoch 4: the next run does the other six and leaves no backup.
static void test_case_ps_164(void **state)
{
    (void)state;
    int at = 4;
    for (int life = 0; life < 2; life++) {
        mu_callback *breaker = mu_callback_new(.on_epoch_begin = break_off_epoch, .arg = &at);
        mu_history *history = mu_fit(begin(2), data(), .epochs = 10, .verbose = MU_VERBOSE_SILENT,
                                     .callbacks = MU_CALLBACKS(mu_backup_and_restore(FOLDER), breaker));
        assert_int_equal(access(FOLDER, F_OK) == 0, life == 0);
        if (life == 0)
            expect_error(MU_ABORTED, "broken off");
        else
            assert_int_equal(mu_history_epochs(history), 6);
        at = -1;
    }
}

static void a_signal_saves_the_step(void **state)
{
    (void)state;
    static const int steps[] = {1, 3, STEPS};
    for (size_t i = 0; i < MU_COUNT(steps); i++) {
        mu_pool *pool = mu_pool_open();
        a_signal_saves_the_step_of(steps[i]);
        mu_pool_close(pool);
    }
}

static void steps_per_epoch_continues_in_the_data(void **state)
{
    (void)state;
    int64_t n;
    double *seen[2];
    for (int broken = 0; broken < 2; broken++) {
        remove_folder();
        breaking b = {.at = broken ? 8 : -1};
        mu_callback *breaker = mu_callback_new(.on_batch_end = count_down, .arg = &b);
        mu_model *model = begin(2);
        for (int turn = 0; turn <= broken; turn++, model = turn <= broken ? model_on(2) : model)
            mu_fit(model, mu_dataset_repeat(data(), -1), .epochs = 4, .steps_per_epoch = 3,
                   .verbose = MU_VERBOSE_SILENT,
                   .callbacks = MU_CALLBACKS(mu_backup_and_restore(FOLDER, .save_freq = 1), breaker)),
                mu_error_take();
        seen[broken] = weights_of(model, &n);
    }
    assert_memory_equal(seen[0], seen[1], sizeof *seen[0] * (size_t)n);
    free(seen[0]);
    free(seen[1]);
    remove_folder();
}

static void four_replicas_go_on_as_three(void **state)
{
    (void)state;
    remove_folder();
    mu_model *four = begin(4), *three = model_on(3);
    assert_non_null(mu_fit(four, data(), .verbose = MU_VERBOSE_SILENT));
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(mu_checkpoint_new(.model = four), FOLDER);
    assert_int_equal(mu_checkpoint_manager_save(manager, -1), MU_OK);
    mu_checkpoint_manager *other = mu_checkpoint_manager_new(mu_checkpoint_new(.model = three), FOLDER);
    assert_int_equal(mu_checkpoint_manager_restore(other), 0);
    int64_t n;
    double *x = weights_of(four, &n), *y = weights_of(three, &n);
    assert_memory_equal(x, y, sizeof *x * (size_t)n);
    free(x);
    free(y);
    mu_history *a = mu_fit(four, data(), .verbose = MU_VERBOSE_SILENT),
               *b = mu_fit(three, data(), .verbose = MU_VERBOSE_SILENT);
    assert_non_null(a);
    assert_non_null(b);
    remove_folder();
}

static void the_manager_keeps_the_latest_that_are_whole(void **state)
{
    (void)state;
    remove_folder();
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 0), "v");
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, FOLDER "/deep/er", .max_to_keep = 2);
    assert_int_equal(mu_checkpoint_manager_restore(manager), -1);
    for (int i = 1; i <= 12; i++) {
        assert_int_equal(mu_variable_assign(v, mu_constant(MU_F64, i)), MU_OK);
        assert_int_equal(mu_checkpoint_manager_save(manager, i), MU_OK);
    }
    assert_int_equal(mu_checkpoint_manager_latest(manager), 12);
    assert_int_not_equal(access(FOLDER "/deep/er/ckpt-10.safetensors", F_OK), 0);
    assert_int_equal(truncate(FOLDER "/deep/er/ckpt-12.safetensors", 100), 0);
    assert_int_equal(mu_checkpoint_manager_restore(manager), 11);
    assert_number(mu_scalar(mu_variable_read(v)), 11, 0);
    assert_int_equal(truncate(FOLDER "/deep/er/ckpt-11.safetensors", 100), 0);
    assert_int_equal(mu_checkpoint_manager_restore(manager), -1);
    expect_error(MU_DATA_LOSS, "ckpt-11");
    remove_folder();
}

// A save may be killed at any moment: the previous file can still be loaded.
static void a_killed_save_leaves_the_one_before(void **state)
{
    (void)state;
    remove_folder();
    assert_int_equal(mkdir(FOLDER, 0777), 0);
    mu_variable *v = mu_variable_new(numbers(1, (int64_t[]){100000}, 1), "v");
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    assert_int_equal(mu_checkpoint_save(checkpoint, FOLDER "/v.safetensors"), MU_OK);
    for (int i = 0; i < 25; i++) {
        const pid_t child = fork();
        if (child == 0)
            for (;;)
                mu_checkpoint_save(checkpoint, FOLDER "/v.safetensors");
        usleep((useconds_t)(100 + i * 397));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(mu_checkpoint_restore(checkpoint, FOLDER "/v.safetensors"), MU_OK);
    }
    remove_folder();
}

static int count_files(void)
{
    int n = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

// The file that a killed save leaves, under one of the names that savers choose.
static void leave_a_temporary(const char *goal)
{
    char path[200];
    snprintf(path, sizeof path, "%s.tmp-0123456789ab-1-0", goal);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void what_killed_saves_left_is_removed(void **state)
{
    (void)state;
    remove_folder();
    assert_int_equal(mkdir(FOLDER, 0777), 0);
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    leave_a_temporary(FOLDER "/v.safetensors");
    assert_int_equal(mu_checkpoint_save(checkpoint, FOLDER "/v.safetensors"), MU_OK);
    assert_int_equal(count_files(), 1);
    leave_a_temporary(FOLDER "/v.safetensors");
    assert_int_equal(mu_checkpoint_restore(checkpoint, FOLDER "/v.safetensors"), MU_OK);
    assert_int_equal(count_files(), 1);
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, FOLDER);
    leave_a_temporary(FOLDER "/ckpt-7.safetensors");
    leave_a_temporary(FOLDER "/other.safetensors");
    assert_int_equal(mu_checkpoint_manager_save(manager, 1), MU_OK);
    assert_int_equal(count_files(), 3);
    leave_a_temporary(FOLDER "/ckpt-7.safetensors");
    assert_int_equal(mu_checkpoint_manager_restore(manager), 1);
    assert_int_equal(count_files(), 3);
    remove_folder();
}

// A TensorFlow checkpoint is several files, whose names are longer than the one given to load it.
static void what_killed_saves_left_of_the_parts_is_removed(void **state)
{
    (void)state;
    static const char *const paths[] = {FOLDER "/m.ckpt", FOLDER "/m.ckpt.index"};
    remove_folder();
    assert_int_equal(mkdir(FOLDER, 0777), 0);
    mu_model *model = mu_sequential(mu_dense(1));
    mu_model_build(model, 1, (int64_t[]){3});
    for (size_t i = 0; i < MU_COUNT(paths); i++) {
        assert_int_equal(mu_save_weights(model, paths[0]), MU_OK);
        leave_a_temporary(FOLDER "/m.ckpt.index");
        leave_a_temporary(FOLDER "/m.ckpt.data-00000-of-00001");
        leave_a_temporary(FOLDER "/m.ckpt2.index");
        assert_int_equal(count_files(), 5);
        assert_int_equal(mu_load_weights(model, paths[i]), MU_OK);
        assert_int_equal(count_files(), 3);
    }
    remove_folder();
}

// Names that collide with those of variables made in the first step are reported at once.
static void colliding_names_are_told_when_the_checkpoint_is_made(void **state)
{
    (void)state;
    static const char *const names[] = {"accuracy/total", "loss/count", "adam/iterations", "adam/learning_rate",
                                        "adam/w/velocity"};
    mu_model *model = mu_sequential(mu_dense(3));
    mu_compile(model, .optimizer = mu_adam(), .metrics = MU_METRICS(mu_accuracy()),
               .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    mu_variable *w = mu_variable_new(mu_constant(MU_F64, 1), "w");
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        mu_variable *other = mu_variable_new(mu_constant(MU_F64, 1), names[i]);
        assert_null(mu_checkpoint_new(.model = model, .variables = mu_variables(w, other, MU_END)));
        expect_error(MU_INVALID_ARGUMENT, names[i]);
    }
    assert_non_null(mu_checkpoint_new(.model = model, .variables = mu_variables(w, MU_END)));
    mu_model_build(model, 1, (int64_t[]){4});
    mu_variable *kernel = mu_variable_new(mu_constant(MU_F64, 1), "dense/kernel");
    assert_null(mu_checkpoint_new(.model = model, .variables = mu_variables(kernel, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "named 'dense/kernel'");
}

// A save makes the state that the first step would make, also inside a scope of a strategy that the model is not of.
static void a_model_is_saved_inside_another_scope(void **state)
{
    (void)state;
    remove_folder();
    assert_int_equal(mkdir(FOLDER, 0777), 0);
    mu_strategy *mirrored = mu_mirrored_strategy(.replicas = 2);
    mu_model *model = mu_sequential(mu_dense(3));
    mu_compile(model, .optimizer = mu_adam(), .loss = mu_mean_squared_error_loss());
    mu_model_build(model, 1, (int64_t[]){4});
    mu_checkpoint *checkpoint = mu_checkpoint_new(.model = model);
    mu_optimizer *momentum = mu_sgd(.momentum = .9);
    MU_SCOPE(mirrored) {
        assert_int_equal(mu_checkpoint_save(checkpoint, FOLDER "/v"), MU_OK);
        assert_int_equal(mu_checkpoint_restore(checkpoint, FOLDER "/v"), MU_OK);
        assert_int_equal(mu_save_weights(model, FOLDER "/v.weights.h5"), MU_OK);
        assert_int_equal(mu_optimizer_build(momentum, mu_trainable_variables(model)), MU_OK);
        mu_variable *iterations = mu_optimizer_iterations(mu_sgd());
        assert_ptr_equal(mu_get_strategy(), mirrored); // its scope is open as before
        assert_int_equal(mu_variable_component_count(iterations), 2);
    }
    assert_int_equal(mu_variable_component_count(mu_optimizer_iterations(momentum)), 1);
    assert_false(mu_has_strategy());
    remove_folder();
}

static void wrong_uses_say_what_is_wrong(void **state)
{
    (void)state;
    remove_folder();
    assert_null(mu_checkpoint_new(.model = NULL));
    expect_error(MU_INVALID_ARGUMENT, "nothing to save");
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v"), *twin = mu_variable_new(mu_constant(MU_F64, 1), "v");
    assert_null(mu_checkpoint_new(.variables = mu_of(mu_constant(MU_F64, 1))));
    expect_error(MU_INVALID_ARGUMENT, "something else than variables");
    assert_null(mu_checkpoint_new(.variables = mu_variables(v, twin, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "named 'v'");
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    assert_int_not_equal(mu_checkpoint_restore(checkpoint, "muster-no-such-file"), MU_OK);
    expect_error(MU_NOT_FOUND, "muster-no-such-file");
    assert_int_equal(mkdir(FOLDER, 0777), 0);
    assert_int_equal(mu_checkpoint_save(checkpoint, FOLDER "/v"), MU_OK);
    mu_variable *w = mu_variable_new(mu_constant(MU_F64, 2), "w");
    assert_int_not_equal(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(v, w, MU_END)), FOLDER "/v"),
                         MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "has no 'w'");
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(continues_with_the_same_bits),
        MODEL_TEST(metrics_of_the_first_batchs_width_go_on),
        MODEL_TEST(a_signal_saves_the_step),
        MODEL_TEST(test_case_ps_164),
        MODEL_TEST(steps_per_epoch_continues_in_the_data),
        MODEL_TEST(four_replicas_go_on_as_three),
        MODEL_TEST(the_manager_keeps_the_latest_that_are_whole),
        MODEL_TEST(a_killed_save_leaves_the_one_before),
        MODEL_TEST(what_killed_saves_left_is_removed),
        MODEL_TEST(what_killed_saves_left_of_the_parts_is_removed),
        MODEL_TEST(colliding_names_are_told_when_the_checkpoint_is_made),
        MODEL_TEST(a_model_is_saved_inside_another_scope),
        MODEL_TEST(wrong_uses_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
