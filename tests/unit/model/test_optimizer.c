// Optimizers, losses and their scaling, against numbers worked out from the formulas here.
#include "model/losses/loss.h"
#include "model/optimizers/optimizer.h"
#include "model_test.h"

#define STEPS 5

static double target(int i) { return i == 0 ? 1.5 : -2; }

// The gradient of 0.5 * sum((w - target)^2) is w - target.
static mu_value *step_towards_target(mu_value *arguments, void *arg)
{
    void **job = arg;
    (void)arguments;
    mu_tape *tape = mu_tape_open();
    mu_tensor *difference = mu_subtract(mu_variable_read(job[0]), vector(2, (double[]){target(0), target(1)}));
    mu_tensor *loss = mu_multiply(mu_reduce_sum(mu_square(difference), MU_ALL_AXES), mu_constant(MU_F64, .5));
    mu_apply_gradients(job[1], mu_gradients(tape, loss, mu_variables(job[0], MU_END)));
    return mu_of(loss);
}

static void run_steps(mu_optimizer *optimizer, double *out)
{
    mu_variable *w = mu_variable_new(vector(2, (double[]){0, 0}), "w");
    void *job[] = {w, optimizer};
    mu_function *function = mu_function_new(step_towards_target, job);
    for (int i = 0; i < STEPS; i++)
        if (!mu_run(NULL, function, NULL))
            fail_msg("%s", mu_error_message());
    memcpy(out, doubles(mu_variable_read(w)), 2 * sizeof *out);
    assert_true(mu_scalar(mu_variable_read(mu_optimizer_iterations(optimizer))) == STEPS);
}

static void gradient_descent(void **state)
{
    (void)state;
    double seen[2], wanted[2] = {0, 0};
    run_steps(mu_sgd(.learning_rate = .1), seen);
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < STEPS; s++)
            wanted[i] -= .1 * (wanted[i] - target(i));
    assert_near(seen, wanted, 2, 1e-14);
}

static void momentum(void **state)
{
    (void)state;
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        double seen[2], wanted[2] = {0, 0};
        run_steps(mu_sgd(.learning_rate = .1, .momentum = .9, .nesterov = nesterov), seen);
        for (int i = 0; i < 2; i++)
            for (double s = 0, m = 0; s < STEPS; s++) {
                double g = wanted[i] - target(i);
                m = .9 * m - .1 * g;
                wanted[i] += nesterov ? .9 * m - .1 * g : m;
            }
        assert_near(seen, wanted, 2, 1e-14);
    }
}

static void adam(void **state)
{
    (void)state;
    double seen[2], wanted[2] = {0, 0};
    run_steps(mu_adam(.learning_rate = .1, .beta_1 = .8), seen);
    for (int i = 0; i < 2; i++)
        for (double s = 1, m = 0, v = 0; s <= STEPS; s++) {
            double g = wanted[i] - target(i);
            m += (g - m) * (1 - .8);
            v += (g * g - v) * (1 - .999);
            wanted[i] -= .1 * sqrt(1 - pow(.999, s)) / (1 - pow(.8, s)) * m / (sqrt(v) + 1e-7);
        }
    assert_near(seen, wanted, 2, 1e-12);
}

// Gradients that the program made itself: averaged over two steps, or kept in a variable.
static void gradients_from_anywhere(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(2, (double[]){1, 2}), "w");
    mu_variable *sum = mu_variable_new(vector(2, (double[]){3, 5}), "sum", .not_trainable = true);
    mu_optimizer *optimizer = mu_sgd(.learning_rate = 1);
    mu_value *variables = mu_variables(w, MU_END);
    mu_tensor *mean = mu_multiply(vector(2, (double[]){2, 4}), mu_constant(MU_F64, .5));
    assert_int_equal(mu_apply_gradients(optimizer, mu_list(mean, MU_END), .variables = variables), MU_OK);
    assert_near(doubles(mu_variable_read(w)), (double[]){0, 0}, 2, 1e-15);
    assert_int_equal(mu_apply_gradients(optimizer, mu_variables(sum, MU_END), .variables = variables), MU_OK);
    assert_near(doubles(mu_variable_read(w)), (double[]){-3, -5}, 2, 1e-15);
    assert_int_not_equal(mu_apply_gradients(optimizer, mu_list(mean, mean, MU_END), .variables = variables), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "2 gradients for 1 variables");
    mu_value *wrong = mu_list(vector(3, (double[]){1, 2, 3}), MU_END);
    assert_int_not_equal(mu_apply_gradients(optimizer, wrong, .variables = variables), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "variable 'w' is float64 [3]; expected float64 [2]");
    assert_int_not_equal(mu_apply_gradients(optimizer, mu_list(mean, MU_END)), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, ".variables");
}

static void zero_is_reachable(void **state)
{
    (void)state;
    double seen[2];
    run_steps(mu_sgd(.learning_rate = 0, .momentum = 0), seen);
    assert_true(seen[0] == 0 && seen[1] == 0);
    run_steps(mu_adam(.beta_1 = 0, .beta_2 = 0, .learning_rate = 0), seen);
    assert_true(seen[0] == 0 && seen[1] == 0);
}

// The learning rate can be changed between steps, also if the scope was closed before it was asked for.
static void learning_rate_is_a_variable(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_optimizer *optimizer = NULL;
    MU_SCOPE(strategy) {
        optimizer = mu_sgd();
    }
    mu_variable *rate = mu_optimizer_learning_rate(optimizer);
    assert_int_equal(rate->n_components, 2);
    assert_number(mu_scalar(mu_variable_read(rate)), .01, 1e-15);
    assert_int_equal(mu_variable_assign(rate, mu_constant(MU_F64, .5)), MU_OK);
    assert_number(mu_scalar(mu_variable_read(rate)), .5, 0);
}

// ---- Variables on which the loss does not depend ------------------------------------------------

typedef struct idle_job {
    mu_variable *w, *idle;
    mu_optimizer *optimizer;
    bool clips;
} idle_job;

static mu_value *step_without_one(mu_value *arguments, void *arg)
{
    const idle_job *job = arg;
    (void)arguments;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_reduce_sum(mu_square(mu_variable_read(job->w)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(job->idle, job->w, MU_END));
    if (job->clips)
        gradients = mu_clip_gradients(gradients, .norm = 1);
    mu_apply_gradients(job->optimizer, gradients);
    return mu_of(loss);
}

static mu_optimizer *decaying(int kind)
{
    switch (kind) {
    case 0: return mu_adamw(.learning_rate = .1, .weight_decay = .5);
    case 1: return mu_ftrl(.learning_rate = .1);
    case 2: return mu_sgd(.learning_rate = .1, .weight_decay = .5, .gradient_accumulation_steps = 2);
    case 3: return mu_loss_scale_optimizer(mu_lion(.learning_rate = .1, .weight_decay = .5));
    default: return mu_lamb(.learning_rate = .1, .weight_decay = .5, .use_ema = true);
    }
}

static void without_loss_nothing_changes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        mu_strategy *strategy = strategy_of(1 + i / 10);
        idle_job job = {.clips = i % 10 >= 5};
        MU_SCOPE(strategy) {
            job.w = mu_variable_new(vector(2, (double[]){1, 2}), "w");
            job.idle = mu_variable_new(vector(2, (double[]){3, 4}), "idle");
            job.optimizer = decaying(i % 5);
        }
        mu_function *step = mu_function_new(step_without_one, &job);
        for (int s = 0; s < 4; s++)
            assert_non_null(mu_run(strategy, step, NULL));
        assert_near(doubles(mu_variable_read(job.idle)), (double[]){3, 4}, 2, 0);
        assert_true(doubles(mu_variable_read(job.w))[0] < 1);
        const mu_optimizer *own = job.optimizer->inner ? job.optimizer->inner : job.optimizer;
        assert_ptr_equal(own->variables.items[0], job.idle); // files have its state
    }
}

static void a_loss_of_nothing_is_refused(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(2, (double[]){1, 2}), "w");
    mu_tape *tape = mu_tape_open();
    mu_value *gradients = mu_gradients(tape, mu_constant(MU_F64, 2), mu_variables(w, MU_END));
    assert_near(doubles(mu_at(gradients, 0)), (double[]){0, 0}, 2, 0);
    assert_int_not_equal(mu_apply_gradients(mu_sgd(), gradients), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "depends on none of the 1 variables, the first of which is 'w'");
}

// ---- Losses -------------------------------------------------------------------------------------

static void losses_per_sample(void **state)
{
    (void)state;
    mu_tensor *labels = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, 2});
    mu_tensor *column = mu_reshape(labels, 2, (int64_t[]){2, 1});
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, (double[]){.5, .25, .25, .2, .3, .5});
    mu_loss *plain = mu_sparse_categorical_crossentropy_loss();
    mu_loss *logits = mu_sparse_categorical_crossentropy_loss(.from_logits = true);
    double wanted[] = {-log(.5), -log(.5)};
    assert_near(doubles(mu__loss_call(plain, labels, x)), wanted, 2, 1e-12);
    assert_near(doubles(mu__loss_call(plain, column, x)), wanted, 2, 1e-12);
    double soft[] = {-.5 + log(exp(.5) + 2 * exp(.25)), -.5 + log(exp(.2) + exp(.3) + exp(.5))};
    assert_near(doubles(mu__loss_call(logits, column, x)), soft, 2, 1e-12);
    mu_loss *squared = mu_mean_squared_error_loss();
    mu_tensor *y = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 1}, (double[]){1, 5});
    mu_tensor *flat = vector(2, (double[]){3, 4});
    assert_near(doubles(mu__loss_call(squared, flat, y)), (double[]){4, 1}, 2, 0);
    assert_near(doubles(mu__loss_call(squared, mu_reshape(flat, 2, (int64_t[]){2, 1}), y)), (double[]){4, 1}, 2, 0);
}

static mu_value *share_of_mean(mu_value *batch, void *arg)
{
    return mu_of(mu_compute_average_loss(mu_at(batch, 0), .global_batch_size = *(int64_t *)arg));
}

// The shares of unequal parts add up to the mean over the global batch, counted or given.
static void average_loss_scales(void **state)
{
    (void)state;
    double values[5] = {1, 2, 3, 4, 10};
    for (int64_t given = 0; given <= 10; given += 5)
        for (int replicas = 1; replicas <= DEVICES; replicas++) {
            mu_strategy *strategy = strategy_of(replicas);
            mu_function *function = mu_function_new(share_of_mean, &given);
            mu_value *batch = mu__give(mu__split_batch(strategy, mu_of(vector(5, values))));
            double sum = mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, function, batch)));
            assert_number(sum, given == 10 ? 2 : 4, 1e-14);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(gradient_descent),
        MODEL_TEST(momentum),
        MODEL_TEST(adam),
        MODEL_TEST(gradients_from_anywhere),
        MODEL_TEST(zero_is_reachable),
        MODEL_TEST(learning_rate_is_a_variable),
        MODEL_TEST(without_loss_nothing_changes),
        MODEL_TEST(a_loss_of_nothing_is_refused),
        MODEL_TEST(losses_per_sample),
        MODEL_TEST(average_loss_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
