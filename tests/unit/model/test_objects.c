// Several models and optimizers in one checkpoint, backup and preemption handler: two models with equal layer names,
// each with its optimizer, trained against each other. A process that is killed in the middle of an epoch continues
// with the bits of an undisturbed one.
#include "base/private.h"
#include "../scratch.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "model_test.h"

#include <muster/checkpoint.h>
#include <muster/random.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "muster-test-objects"
enum { STEPS = 5 }; // 20 rows in batches of 4

typedef struct pair {
    mu_model *model, *critic;
    mu_optimizer *apart; // of a weight that belongs to no model
    mu_variable *noise, *scale;
} pair;

static mu_tensor *squares(mu_tensor *x) { return mu_reduce_mean(mu_square(x), 1); }

// The critic learns to be small on real rows, the model to make it small on its own.
static mu_tensor *train_both(mu_model *model, mu_value *batch, void *arg)
{
    const pair *p = arg;
    mu_tensor *x = mu_at(batch, 0), *seed = mu_generator_next(p->noise);
    mu_tape *tape = mu_tape_open();
    mu_tensor *shift = mu_stateless_random_uniform(seed, MU_F64, 1, (int64_t[]){3});
    shift = mu_multiply(mu_variable_read(p->scale), shift);
    mu_tensor *made = mu_call(model, mu_add(x, shift), .training = true);
    mu_tensor *drawing = squares(mu_call(p->critic, made, .training = true));
    mu_tensor *judging = mu_add(squares(mu_call(p->critic, x, .training = true)), mu_neg(mu_sin(drawing)));
    mu_value *of_critic = mu_gradients(tape, mu_compute_average_loss(judging), mu_trainable_variables(p->critic));
    mu_value *of_model = mu_gradients(tape, mu_compute_average_loss(drawing), mu_trainable_variables(model));
    mu_value *of_scale = mu_gradients(tape, mu_compute_average_loss(drawing), mu_variables(p->scale, MU_END));
    mu_tape_close(tape);
    if (mu_apply_gradients(mu_model_optimizer(p->critic), of_critic) != MU_OK ||
        mu_apply_gradients(mu_model_optimizer(model), of_model) != MU_OK ||
        mu_apply_gradients(p->apart, of_scale) != MU_OK)
        return NULL;
    return mu_reduce_mean(judging, MU_ALL_AXES);
}

static void make(pair *p, int replicas, uint64_t seed)
{
    mu_set_seed(seed);
    MU_SCOPE(strategy_of(replicas)) {
        p->model = mu_sequential(mu_dense(4, .activation = "tanh"), mu_dropout(.2), mu_dense(3));
        p->critic = mu_sequential(mu_dense(4, .activation = "tanh"), mu_dropout(.2), mu_dense(2));
        mu_model_build(p->model, 1, (int64_t[]){3});
        mu_model_build(p->critic, 1, (int64_t[]){3});
        p->noise = mu_generator_new(seed, "noise");
        p->scale = mu_variable_new(mu_constant(MU_F64, (double)seed), "scale");
        p->apart = mu_sgd(.learning_rate = .05, .momentum = .9);
        mu_optimizer_build(p->apart, mu_variables(p->scale, MU_END));
        mu_compile(p->critic, .optimizer = mu_adam(.learning_rate = .01), .loss = "mse");
        mu_compile(p->model, .optimizer = mu_adam(.learning_rate = .02), .train_step = train_both, .step_arg = p);
    }
}

static mu_items *objects_of(const pair *p)
{
    return MU_BY_NAME("critic", p->critic, "apart", p->apart, "drawn", mu_variables(p->noise, p->scale, MU_END));
}

static mu_dataset *data(void)
{
    mu_dataset *rows = mu_dataset_from_tensor_slices(mu_list(numbers(2, (int64_t[]){20, 3}, 1), MU_END));
    return mu_dataset_batch(mu_dataset_shuffle(rows, 20, .seed = 3), 4);
}

static mu_status kill_at(const mu_logs *logs, void *arg)
{
    (void)logs;
    return --*(int *)arg == 0 ? (raise(SIGKILL), MU_OK) : MU_OK;
}

static mu_history *fit(const pair *p, int *steps)
{
    return mu_fit(p->model, data(), .epochs = 3, .verbose = MU_VERBOSE_SILENT,
                  .callbacks = MU_CALLBACKS(mu_backup_and_restore(FOLDER, .save_freq = 2, .objects = objects_of(p)),
                                            mu_callback_new(.on_batch_end = kill_at, .arg = steps)));
}

static double value_of(mu_variable *variable) { return mu_scalar(mu_variable_read(variable)); }

// This program again, as a process that is killed in the middle of its second epoch.
static void run_killed(int replicas)
{
    char text[16];
    snprintf(text, sizeof text, "%d", replicas);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_objects", text, (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static int be_killed(int replicas)
{
    pair p;
    int steps = STEPS + 3;
    start_devices(NULL);
    make(&p, replicas, 11);
    fit(&p, &steps);
    return 1;
}

static void a_killed_pair_goes_on(void **state)
{
    (void)state;
    for (int replicas = 0; replicas <= 2; replicas += 2) {
        pair whole, broken;
        int never = -1;
        run_killed(replicas);
        make(&broken, replicas, 99); // all must come from the file
        mu_history *history = fit(&broken, &never);
        if (!history)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_history_epochs(history), 2);
        make(&whole, replicas, 11);
        mu_history *wanted = fit(&whole, &never);
        assert_same_weights(broken.model, whole.model);
        assert_same_weights(broken.critic, whole.critic);
        assert_true(value_of(broken.scale) == value_of(whole.scale) && value_of(whole.scale) != 11);
        assert_true(mu_history_last(history, "loss") == mu_history_last(wanted, "loss"));
    }
}

// ---- Custom loops -------------------------------------------------------------------------------

typedef struct loop {
    mu_iterator *iterator;
    mu_function *step;
} loop;

static mu_value *step_of(mu_value *batch, void *arg)
{
    const pair *p = arg;
    mu_tensor *loss = train_both(p->model, batch, arg);
    return loss ? mu_of(loss) : NULL;
}

static mu_value *take_step(mu_value *nothing, void *arg)
{
    (void)nothing;
    const loop *l = arg;
    mu_value *batch = mu_next(l->iterator);
    return batch ? mu_run(mu_default_strategy(), l->step, batch) : NULL;
}

static mu_status run_loop(pair *p, int until, int stop_at)
{
    mu_iterator *iterator = mu_iterate(mu_dataset_repeat(data(), -1));
    mu_checkpoint *checkpoint =
        mu_checkpoint_new(.model = p->model,
                          .objects = MU_BY_NAME("critic", p->critic, "apart", p->apart, "drawn",
                                                mu_variables(p->noise, p->scale, MU_END), "data", iterator));
    mu_preemption_handler *handler = mu_preemption_handler_new(checkpoint, FOLDER "/loop");
    loop l = {iterator, mu_function_new(step_of, p)};
    while (handler && !mu__pending() && mu_preemption_total_runs(handler) < until) {
        if (mu_preemption_total_runs(handler) == stop_at)
            raise(SIGTERM);
        mu_preemption_run(handler, take_step, &l, mu_list_of(0, NULL));
    }
    return mu_error_code();
}

static void a_preempted_loop_goes_on(void **state)
{
    (void)state;
    pair whole, broken, again;
    make(&broken, 0, 11);
    run_loop(&broken, 9, 4);
    expect_error(MU_CANCELLED, "after 4 steps");
    mu__signals_restore();
    make(&again, 0, 99);
    assert_int_equal(run_loop(&again, 9, -1), MU_OK);
    assert_int_equal(system("rm -rf " FOLDER "/loop"), 0);
    make(&whole, 0, 11);
    assert_int_equal(run_loop(&whole, 9, -1), MU_OK);
    assert_same_weights(again.model, whole.model);
    assert_same_weights(again.critic, whole.critic);
    assert_true(value_of(again.scale) == value_of(whole.scale));
}

static void objects_need_names(void **state)
{
    (void)state;
    pair p;
    make(&p, 0, 1);
    assert_null(mu_checkpoint_new(.objects = MU_ITEMS(p.critic)));
    expect_error(MU_INVALID_ARGUMENT, "MU_BY_NAME");
    assert_null(mu_checkpoint_new(.objects = MU_BY_NAME("a/b", p.critic)));
    expect_error(MU_INVALID_ARGUMENT, "'a/b'");
    assert_null(mu_checkpoint_new(.objects = MU_BY_NAME("a", "b")));
    expect_error(MU_INVALID_ARGUMENT, "'a' is a name");
    assert_null(mu_checkpoint_new(.objects = MU_BY_NAME("layer", mu_dense(1))));
    expect_error(MU_INVALID_ARGUMENT, "is a layer, not a model");
    assert_null(mu_checkpoint_new(.model = p.model, .variables = mu_model_weights(p.critic)));
    expect_error(MU_INVALID_ARGUMENT, "give the objects names in .objects");
    // An optimizer alone has the state that it was built with.
    mu_checkpoint *checkpoint = mu_checkpoint_new(.objects = MU_BY_NAME("apart", p.apart));
    assert_int_equal(mu_checkpoint_save(checkpoint, "apart.safetensors"), MU_OK);
    mu_optimizer *other = mu_sgd(.learning_rate = .5, .momentum = .9);
    assert_int_equal(mu_optimizer_build(other, mu_variables(p.scale, MU_END)), MU_OK);
    assert_int_equal(
        mu_checkpoint_restore(mu_checkpoint_new(.objects = MU_BY_NAME("apart", other)), "apart.safetensors"), MU_OK);
    assert_true(value_of(mu_optimizer_learning_rate(other)) == .05);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_killed(atoi(argv[1]));
    const struct CMUnitTest tests[] = {
        MODEL_TEST(a_killed_pair_goes_on),
        MODEL_TEST(a_preempted_loop_goes_on),
        MODEL_TEST(objects_need_names),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
