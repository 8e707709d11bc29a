// The classes of optimizers on every strategy, with dense and sparse gradients, and what they share: weight decay,
// averages, accumulation, loss scaling, schedules, names, configurations. Formulas are compared with Keras's in
// tests/conformance/optimizers.py; here several replicas must reach what one reaches.
#include "../fail_allocation.h"
#include "model/optimizers/optimizer.h"
#include "model_test.h"

#include <muster/checkpoint.h>
#include <unistd.h>

enum { ROWS = 6, WIDTH = 2, STEPS = 7, WORDS = 4, SAMPLES = 6 };

// ---- Every class on every strategy --------------------------------------------------------------

static mu_tensor *own_rate(mu_tensor *step, void *arg)
{
    mu_tensor *one = mu_constant(mu_tensor_dtype(step), *(double *)arg);
    return mu_divide(one, mu_add(mu_constant(mu_tensor_dtype(step), 1), step));
}

static double largest_rate = .5;

typedef mu_optimizer *make_optimizer(void);

static mu_optimizer *sgd(void) { return mu_sgd(.learning_rate = .1, .momentum = .5, .weight_decay = .25); }
static mu_optimizer *adam(void) { return mu_adam(.schedule = mu_cosine_decay(.5, 5, .warmup_target = 1)); }
static mu_optimizer *amsgrad(void) { return mu_adam(.learning_rate = .1, .amsgrad = true); }
static mu_optimizer *adamw(void) { return mu_adamw(.use_ema = true, .ema_overwrite_frequency = 3); }
static mu_optimizer *adamax(void) { return mu_adamax(.learning_rate = .1); }
static mu_optimizer *nadam(void) { return mu_nadam(.learning_rate = .1, .gradient_accumulation_steps = 2); }
static mu_optimizer *lamb(void) { return mu_lamb(.learning_rate = .1); }
static mu_optimizer *rmsprop(void) { return mu_rmsprop(.learning_rate = .1, .momentum = .5, .epsilon = .001); }
static mu_optimizer *adagrad(void)
{
    return mu_adagrad(.schedule = mu_learning_rate_schedule_new(own_rate, &largest_rate));
}

static mu_optimizer *adadelta(void) { return mu_adadelta(.learning_rate = 1, .loss_scale_factor = 64); }
static mu_optimizer *ftrl(void) { return mu_ftrl(.learning_rate = .1, .l1_regularization_strength = .01); }
static mu_optimizer *adafactor(void) { return mu_adafactor(.learning_rate = .1); }
static mu_optimizer *lion(void) { return mu_lion(.learning_rate = .1); }
static mu_optimizer *muon(void) { return mu_muon(.learning_rate = .1, .use_ema = true); }
static mu_optimizer *scaled(void) { return mu_loss_scale_optimizer(nadam(), .dynamic_growth_steps = 2); }

static make_optimizer *const makers[] = {sgd,     adam,     amsgrad,   adamw, adamax, nadam, lamb,  rmsprop,
                                         adagrad, adadelta, adafactor, ftrl,  lion,   muon,  scaled};

typedef struct job {
    mu_variable *kernel, *table;
    mu_optimizer *optimizer;
} job;

// The loss of a sample is half the sum of the squares of kernel - x and of the rows that it names.
static mu_value *step(mu_value *batch, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *far = mu_subtract(mu_at(batch, 0), mu_variable_read(j->kernel));
    mu_tensor *rows = mu_gather(mu_variable_read(j->table), mu_at(batch, 1), 0, 0);
    mu_tensor *loss = mu_add(mu_reduce_sum(mu_square(far), MU_ALL_AXES), mu_reduce_sum(mu_square(rows), MU_ALL_AXES));
    loss = mu_scale_loss(j->optimizer, mu_multiply(loss, mu_constant(MU_F64, .5)));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(j->kernel, j->table, MU_END));
    mu_apply_gradients(j->optimizer, gradients);
    return mu_of(loss);
}

static job job_in(mu_strategy *strategy, make_optimizer *make)
{
    job j = {0};
    MU_SCOPE(strategy) {
        j.kernel = mu_variable_new(numbers(1, (int64_t[]){WIDTH}, 3), "kernel");
        j.table = mu_variable_new(numbers(2, (int64_t[]){ROWS, WIDTH}, 9), "table");
        j.optimizer = make();
    }
    if (!j.optimizer)
        fail_msg("%s", mu_error_message());
    return j;
}

static void run_steps(mu_strategy *strategy, job *j, bool traced, int first, int n)
{
    static const int32_t words[SAMPLES * WORDS] = {3, 1, 3, 0, 1, 3, 3, 2, 0, 1, 3, 4,
                                                   4, 1, 2, 0, 3, 3, 1, 1, 0, 2, 4, 3};
    mu_function *function = mu_function_new(step, j);
    for (int s = first; s < first + n; s++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = numbers(2, (int64_t[]){SAMPLES, WIDTH}, 20 + (uint64_t)s);
        mu_tensor *y = mu_tensor_new(MU_I32, 2, (int64_t[]){SAMPLES, WORDS}, words);
        mu_value *parts = mu__give(mu__split_batch(strategy, mu_list(x, y, MU_END)));
        if (!(traced ? mu_run(strategy, function, parts) : mu_run_callback(strategy, step, j, parts)))
            fail_msg("%s", mu_error_message());
        mu_pool_close(pool);
    }
    assert_true(!traced || mu_function_trace_count(function) <= 2);
}

static void final_values(const job *j, double *out)
{
    memcpy(out, doubles(mu_variable_read(j->kernel)), WIDTH * sizeof *out);
    memcpy(out + WIDTH, doubles(mu_variable_read(j->table)), ROWS * WIDTH * sizeof *out);
}

static void every_strategy_agrees(void **state)
{
    (void)state;
    static const int kinds[] = {0, -1, 2, 3, 4, CENTRAL + 2, CENTRAL + 3, SERVED + 2};
    enum { N = WIDTH + ROWS * WIDTH };
    for (size_t m = 0; m < MU_COUNT(makers); m++)
        for (size_t k = 0; k < MU_COUNT(kinds); k++)
            for (int traced = 0; traced < 2; traced++) {
                mu_pool *pool = mu_pool_open();
                double wanted[N], seen[N];
                job alone = job_in(mu_default_strategy(), makers[m]), j = job_in(strategy_of(kinds[k]), makers[m]);
                run_steps(mu_default_strategy(), &alone, true, 0, STEPS);
                run_steps(j.optimizer->strategy, &j, traced, 0, STEPS);
                final_values(&alone, wanted);
                final_values(&j, seen);
                assert_near(seen, wanted, N, 1e-11);
                for (int c = 1; c < mu_variable_component_count(j.table); c++)
                    assert_memory_equal(doubles(mu__variable_component(j.table, c)),
                                        doubles(mu__variable_component(j.table, 0)), ROWS * WIDTH * sizeof *seen);
                mu_pool_close(pool);
            }
}

// ---- State --------------------------------------------------------------------------------------

// A run that is saved and continued elsewhere ends with the same bits.
static void checkpoints_hold_all_state(void **state)
{
    (void)state;
    enum { N = WIDTH + ROWS * WIDTH, BEFORE = 3 };
    char path[] = "/tmp/optimizer_state_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    for (size_t m = 0; m < MU_COUNT(makers); m++) {
        mu_pool *pool = mu_pool_open();
        double wanted[N], seen[N];
        job first = job_in(strategy_of(2), makers[m]), second = job_in(strategy_of(2), makers[m]);
        run_steps(first.optimizer->strategy, &first, true, 0, BEFORE);
        mu_checkpoint *saved = mu_checkpoint_new(.optimizer = first.optimizer,
                                                 .variables = mu_variables(first.kernel, first.table, MU_END));
        assert_int_equal(mu_checkpoint_save(saved, path), MU_OK);
        run_steps(first.optimizer->strategy, &first, true, BEFORE, STEPS - BEFORE);
        mu_checkpoint *fresh = mu_checkpoint_new(.optimizer = second.optimizer,
                                                 .variables = mu_variables(second.kernel, second.table, MU_END));
        assert_int_equal(mu_checkpoint_restore(fresh, path), MU_OK);
        run_steps(second.optimizer->strategy, &second, true, BEFORE, STEPS - BEFORE);
        final_values(&first, wanted);
        final_values(&second, seen);
        assert_memory_equal(seen, wanted, sizeof seen);
        mu_pool_close(pool);
    }
    close(file);
    unlink(path);
}

static void state_is_named(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(2, (double[]){1, 2}), "dense/kernel");
    mu_optimizer *optimizer =
        mu_rmsprop(.centered = true, .use_ema = true, .gradient_accumulation_steps = 2, .name = "second");
    assert_int_equal(mu_apply_gradients(optimizer, mu_list(vector(2, (double[]){1, 1}), MU_END),
                                        .variables = mu_variables(w, MU_END)),
                     MU_OK);
    static const char *const names[] = {"velocity", "average_gradient", "average", "gradient_accumulator"};
    assert_int_equal(optimizer->slots.n, MU_COUNT(names));
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        char full[64];
        snprintf(full, sizeof full, "second/dense/kernel/%s", names[i]);
        assert_string_equal(mu_variable_name(optimizer->slots.items[i]), full);
    }
    assert_string_equal(mu_variable_name(mu_optimizer_learning_rate(optimizer)), "second/learning_rate");
}

// ---- What all classes share ---------------------------------------------------------------------

static mu_status apply_ones(mu_optimizer *optimizer, mu_value *variables)
{
    const int n = mu_value_count(variables);
    mu_value *ones[4];
    for (int i = 0; i < n; i++)
        ones[i] = mu_of(vector(1, (double[]){1}));
    return mu_apply_gradients(optimizer, mu_list_of(n, ones), .variables = variables);
}

static double value_of(mu_variable *variable) { return doubles(mu_variable_read(variable))[0]; }

static void weight_decay_spares(void **state)
{
    (void)state;
    mu_variable *kernel = mu_variable_new(vector(1, (double[]){2}), "bias/kernel");
    mu_variable *bias = mu_variable_new(vector(1, (double[]){2}), "dense/bias");
    mu_variable *scale = mu_variable_new(vector(1, (double[]){2}), "dense/scale");
    mu_optimizer *optimizer = mu_sgd(.learning_rate = .5, .weight_decay = .5);
    assert_int_equal(
        mu_exclude_from_weight_decay(optimizer, .variables = mu_variables(scale, MU_END), .names = "^bias$|gamma"),
        MU_OK);
    assert_int_equal(apply_ones(optimizer, mu_variables(kernel, bias, scale, MU_END)), MU_OK);
    assert_number(value_of(kernel), 2 - .5 * .5 * 2 - .5, 1e-15); // its layer's name does not count
    assert_number(value_of(bias), 1.5, 0);
    assert_number(value_of(scale), 1.5, 0);
    assert_int_not_equal(mu_exclude_from_weight_decay(optimizer, .names = "bias"), MU_OK);
    expect_error(MU_FAILED_PRECONDITION, "before the first update");
    assert_int_not_equal(mu_exclude_from_weight_decay(mu_sgd(), .names = "(bias"), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "'(bias', which is not a regular expression");
}

static void averages_become_the_values(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(1, (double[]){2}), "w");
    mu_optimizer *optimizer = mu_sgd(.learning_rate = 1, .use_ema = true, .ema_momentum = .75);
    assert_int_equal(apply_ones(optimizer, mu_variables(w, MU_END)), MU_OK);
    assert_int_equal(apply_ones(optimizer, mu_variables(w, MU_END)), MU_OK);
    assert_number(value_of(w), 0, 0);
    assert_int_equal(mu_optimizer_finalize_variable_values(optimizer), MU_OK);
    assert_number(value_of(w), .75 * 1, 1e-15);
}

// After mu_fit the model has its averages, on several replicas too.
static void fit_ends_with_averages(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 2; replicas++) {
        mu_model *model = NULL;
        mu_optimizer *optimizer = NULL;
        mu_strategy *strategy = strategy_of(replicas);
        MU_SCOPE(strategy) {
            model = mu_sequential(mu_dense(1));
            optimizer = mu_sgd(.use_ema = true);
            mu_compile(model, .optimizer = optimizer, .loss = "mse");
        }
        mu_tensor *x = numbers(2, (int64_t[]){8, 3}, 4), *y = numbers(2, (int64_t[]){8, 1}, 5);
        if (!mu_fit(model, x, y, .epochs = 2, .verbose = MU_VERBOSE_SILENT))
            fail_msg("%s", mu_error_message());
        const double *average = doubles(mu_variable_read(optimizer->slots.items[0]));
        assert_near(doubles(mu_variable_read(optimizer->variables.items[0])), average, 3, 0);
    }
}

static void accumulation_waits(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(1, (double[]){2}), "w");
    mu_optimizer *optimizer = mu_sgd(.learning_rate = 1, .gradient_accumulation_steps = 3);
    for (int i = 1; i <= 6; i++) {
        assert_int_equal(apply_ones(optimizer, mu_variables(w, MU_END)), MU_OK);
        assert_number(value_of(w), 2 - i / 3, 1e-15);
    }
    assert_number(mu_scalar(mu_variable_read(mu_optimizer_iterations(optimizer))), 6, 0);
}

static double scale_of(mu_optimizer *optimizer) { return mu_scalar(mu_scale_loss(optimizer, mu_constant(MU_F64, 1))); }

// A gradient that is not finite on one replica stops the update on all.
static mu_value *scaled_step(mu_value *batch, void *arg)
{
    job *j = arg;
    mu_apply_gradients(j->optimizer, mu_list(mu_reduce_sum(mu_at(batch, 0), 0), MU_END),
                       .variables = mu_variables(j->kernel, MU_END));
    return batch;
}

static void loss_scale_adapts(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        job j = {0};
        mu_strategy *strategy = strategy_of(kind == 0 ? 2 : CENTRAL + 2);
        MU_SCOPE(strategy) {
            j.kernel = mu_variable_new(vector(1, (double[]){2}), "w");
            j.optimizer =
                mu_loss_scale_optimizer(mu_sgd(.learning_rate = 1), .initial_scale = 8, .dynamic_growth_steps = 2);
        }
        mu_function *function = mu_function_new(scaled_step, &j);
        static const double gradients[][2] = {{8, 8}, {INFINITY, 8}, {4, 4}, {NAN, 0}, {1, 1}, {1, 1}, {1, 1}, {2, 2}};
        static const double scales[] = {8, 4, 4, 2, 2, 4, 4, 8}, values[] = {0, 0, -2, -2, -3, -4, -4.5, -5.5};
        for (size_t i = 0; i < MU_COUNT(gradients); i++) {
            mu_tensor *both = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 1}, gradients[i]);
            if (!mu_run(strategy, function, mu__give(mu__split_batch(strategy, mu_list(both, MU_END)))))
                fail_msg("%s", mu_error_message());
            assert_number(scale_of(j.optimizer), scales[i], 0);
            assert_number(value_of(j.kernel), values[i], 1e-15);
        }
        assert_number(mu_scalar(mu_variable_read(mu_optimizer_iterations(j.optimizer))), 6, 0);
    }
}

// ---- Schedules, names, configurations -----------------------------------------------------------

static void schedules_replace_the_rate(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(vector(1, (double[]){2}), "w");
    mu_learning_rate_schedule *halved = mu_piecewise_constant_decay(1, ((double[]){0}), 2, ((double[]){1, .5}));
    mu_optimizer *optimizer = mu_sgd(.schedule = halved);
    assert_null(mu_sgd(.learning_rate = 0, .schedule = halved));
    expect_error(MU_INVALID_ARGUMENT, ".learning_rate and .schedule are both given");
    assert_int_equal(apply_ones(optimizer, mu_variables(w, MU_END)), MU_OK);
    assert_int_equal(apply_ones(optimizer, mu_variables(w, MU_END)), MU_OK);
    assert_number(value_of(w), .5, 0);
    assert_null(mu_optimizer_learning_rate(optimizer));
    expect_error(MU_FAILED_PRECONDITION, "'sgd' follows a schedule; mu_optimizer_current_rate");
    assert_number(mu_scalar(mu_optimizer_current_rate(optimizer)), .5, 0);
    assert_number(mu_scalar(mu_optimizer_current_rate(mu_sgd(.schedule = halved))), 1, 0);
    assert_number(mu_scalar(mu_optimizer_current_rate(mu_loss_scale_optimizer(mu_sgd(.learning_rate = .25)))), .25, 0);
}

static mu_tensor *wrong_rate(mu_tensor *step, void *arg)
{
    (void)step;
    return arg;
}

static void schedules_refuse(void **state)
{
    (void)state;
    assert_null(mu_exponential_decay(.decay_steps = 10, .decay_rate = .5));
    expect_error(MU_INVALID_ARGUMENT, "initial_learning_rate is left out");
    assert_non_null(mu_cosine_decay(0, 10, .warmup_target = 1));
    assert_null(mu_polynomial_decay(.5));
    expect_error(MU_INVALID_ARGUMENT, "mu_polynomial_decay: decay_steps is 0; it must be 1 or more");
    assert_null(mu_piecewise_constant_decay(2, ((double[]){5, 9}), 2, ((double[]){1, .5})));
    expect_error(MU_INVALID_ARGUMENT, "2 boundaries and 2 values");
    assert_null(mu_piecewise_constant_decay(2, ((double[]){9, 5}), 3, ((double[]){1, .5, 0})));
    expect_error(MU_INVALID_ARGUMENT, "9 and 5 are not in ascending order");
    mu_tensor *step_number = mu_constant(MU_I64, 3);
    assert_null(mu_learning_rate_schedule_call(mu_learning_rate_schedule_new(wrong_rate, vector(1, (double[]){1})),
                                               step_number));
    expect_error(MU_INVALID_ARGUMENT, "must be a scalar of type float64");
    assert_null(mu_learning_rate_schedule_call(mu_learning_rate_schedule_new(wrong_rate), step_number));
    expect_error(MU_INVALID_ARGUMENT, "returned NULL without an error");
    assert_null(mu_learning_rate_schedule_call(mu_cosine_decay(1, 5), vector(2, (double[]){1, 2})));
    expect_error(MU_INVALID_ARGUMENT, "the step has shape [2]; it must be a scalar");
}

static void options_are_checked(void **state)
{
    (void)state;
    assert_null(mu_ftrl(.learning_rate_power = .5));
    expect_error(MU_INVALID_ARGUMENT, "mu_ftrl: learning_rate_power is 0.5; it must be 0 or less");
    assert_null(mu_lion(.beta_1 = 0));
    expect_error(MU_INVALID_ARGUMENT, "mu_lion: beta_1 is 0");
    assert_null(mu_muon(.n_exclude_layers = 1, .exclude_layers = (const char *const[]){"("}));
    expect_error(MU_INVALID_ARGUMENT, "mu_muon: exclude_layers is '(', which is not a regular expression");
    assert_null(mu_adagrad(.gradient_accumulation_steps = 1));
    expect_error(MU_INVALID_ARGUMENT, "mu_adagrad: gradient_accumulation_steps is 1");
    assert_null(mu_nadam(.clipnorm = 1, .clipvalue = 1));
    expect_error(MU_INVALID_ARGUMENT, "mu_nadam: gradients are clipped by more than one");
    assert_null(mu_loss_scale_optimizer(NULL));
    expect_error(MU_INVALID_ARGUMENT, "inner_optimizer is NULL");
    assert_null(mu_loss_scale_optimizer(mu_loss_scale_optimizer(mu_sgd())));
    expect_error(MU_INVALID_ARGUMENT, "is a loss scale optimizer itself");
    assert_null(mu_optimizer_named("adamm"));
    expect_error(MU_INVALID_ARGUMENT, "no optimizer is named 'adamm'; expected an object or one of sgd, adam, adamw");
    assert_non_null(mu_optimizer_named("RMSprop"));
}

// Patterns that take gigabytes of memory or the whole stack to compile, or whose meaning differs from Python's.
static void expressions_are_bounded(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"x{1,255}{1,255}{1,255}", "which has a '{'"},
        {"x++++++++++++++++++++++++++++++", "more than 8 times '+'"},
        {"layer_\\d", "which has '\\d'"},
        {"(a)\\1", "which has '\\1'"},
    };
    for (size_t i = 0; i < MU_COUNT(refused); i++) {
        assert_null(mu_muon(.n_exclude_layers = 1, .exclude_layers = &refused[i][0]));
        expect_error(MU_INVALID_ARGUMENT, refused[i][1]);
    }
    char *deep = calloc(1, 100001);
    assert_non_null(deep);
    memset(deep, '(', 100000);
    assert_null(mu_muon(.n_exclude_layers = 1, .exclude_layers = (const char *const[]){deep}));
    expect_error(MU_INVALID_ARGUMENT, "an expression of 100000 bytes");
    free(deep);
    assert_non_null(mu_muon(.n_exclude_layers = 1, .exclude_layers = (const char *const[]){"^out\\.[0-9]+\\b|last$"}));
}

// A matrix that Muon has updated stays with Muon when its layer becomes part of a model whose name is excluded.
static void names_change_no_rule(void **state)
{
    (void)state;
    mu_tensor *results[2];
    for (int renamed = 0; renamed < 2; renamed++) {
        mu_layer *dense = mu_dense(2, .no_bias = true);
        mu_tensor *x = numbers(2, (int64_t[]){2, 3}, 3);
        mu_call(dense, x);
        mu_variable *kernel = mu_value_variable(mu_value_at(mu_trainable_variables(dense), 0));
        mu_variable_assign(kernel, numbers(2, (int64_t[]){3, 2}, 5));
        mu_optimizer *optimizer =
            mu_muon(.learning_rate = .1, .n_exclude_layers = 1, .exclude_layers = (const char *const[]){"inner"});
        for (int i = 0; i < 2; i++) {
            mu_value *gradients = mu_list(numbers(2, (int64_t[]){3, 2}, 7), MU_END);
            mu_apply_gradients(optimizer, gradients, .variables = mu_variables(kernel, MU_END));
            if (i == 0 && renamed) {
                mu_tensor *input = mu_input({3}, .dtype = MU_F64);
                mu_sequential(mu_model_new(input, mu_call(dense, input), .name = "inner"));
                assert_non_null(strstr(mu__optimizer_path(kernel), "inner"));
            }
        }
        results[renamed] = mu_variable_read(kernel);
        if (mu_error_code())
            fail_msg("%s", mu_error_message());
    }
    assert_near(doubles(results[1]), doubles(results[0]), 6, 0);
}

static void configurations_are_read(void **state)
{
    (void)state;
    mu_optimizer *optimizer = mu_optimizer_from_config(
        "{\"module\": \"keras.optimizers\", \"class_name\": \"Lion\", \"config\": {\"name\": \"cub\", "
        "\"weight_decay\": null, \"learning_rate\": {\"class_name\": \"PiecewiseConstantDecay\", \"config\": "
        "{\"boundaries\": [3], \"values\": [1, 0.5]}}}}");
    assert_non_null(optimizer);
    assert_string_equal(mu__optimizer_name(optimizer), "cub");
    assert_non_null(strstr(mu_optimizer_config(optimizer), "\"boundaries\":[3.0],\"values\":[1.0,0.5]"));
    static const char *const refused[][2] = {
        {"{", "not JSON"},
        {"[]", "expected {\"class_name\""},
        {"{\"class_name\": \"Lion\"}", "expected {\"class_name\""},
        {"{\"class_name\": \"Lionfish\", \"config\": {}}", "no optimizer of Keras's class 'Lionfish'"},
        {"{\"class_name\": \"SGD\", \"config\": {\"momentum\": \"much\"}}", "'momentum' of the configuration"},
        {"{\"class_name\": \"SGD\", \"config\": {\"learning_rate\": {\"class_name\": \"Decay\"}}}", "schedule 'Decay'"},
        {"{\"class_name\": \"SGD\", \"config\": {\"learning_rate\": {\"class_name\": \"PiecewiseConstantDecay\", "
         "\"config\": {\"boundaries\": [1, 2, 3], \"values\": [1]}}}}",
         "3 boundaries and 1 values"},
        {"{\"class_name\": \"SGD\", \"config\": {\"learning_rate\": {\"class_name\": \"PiecewiseConstantDecay\", "
         "\"config\": {\"boundaries\": [], \"values\": [1]}}}}",
         "'boundaries' of the configuration"},
        {"{\"class_name\": \"LossScaleOptimizer\", \"config\": {\"inner_optimizer\": {\"class_name\": "
         "\"LossScaleOptimizer\", \"config\": {}}}}",
         "optimizer of another class"},
        {"{\"class_name\": \"LossScaleOptimizer\", \"config\": {\"inner_optimizer\": 7}}", "expected {\"class_name\""},
    };
    for (size_t i = 0; i < MU_COUNT(refused); i++) {
        assert_null(mu_optimizer_from_config(refused[i][0]));
        if (!strstr(mu_error_message(), refused[i][1]))
            fail_msg("expected '%s' in '%s'", refused[i][1], mu_error_message());
        mu_error_take();
    }
    assert_null(mu_optimizer_config(mu_sgd(.schedule = mu_learning_rate_schedule_new(own_rate, &largest_rate))));
    expect_error(MU_UNIMPLEMENTED, "function of the program's own");
}

// ---- Memory -------------------------------------------------------------------------------------

static mu_value *one_update(mu_value *batch, void *arg)
{
    job *j = arg;
    mu_value *gradients = mu_list(mu_reduce_sum(mu_at(batch, 0), 0), MU_END);
    mu_apply_gradients(j->optimizer, gradients, .variables = mu_variables(j->kernel, MU_END));
    return batch;
}

static void configure_and_update(void *arg)
{
    (void)arg;
    mu_strategy *strategy = strategy_of(2);
    job j = {0};
    MU_SCOPE(strategy) {
        mu_learning_rate_schedule *rates = mu_piecewise_constant_decay(1, ((double[]){0}), 2, ((double[]){1, .5}));
        mu_optimizer *inner = mu_nadam(.schedule = rates, .use_ema = true, .ema_overwrite_frequency = 1,
                                       .gradient_accumulation_steps = 2, .name = "inner");
        mu_exclude_from_weight_decay(inner, .names = "bias");
        j.kernel = mu_variable_new(vector(1, (double[]){2}), "w");
        j.optimizer = mu_optimizer_from_config(mu_optimizer_config(mu_loss_scale_optimizer(inner)));
    }
    mu_value *batch = mu_list(mu_ones(MU_F64, 2, (int64_t[]){2, 1}), MU_END);
    mu_value *parts = mu_error_code() == MU_OK ? mu__give(mu__split_batch(strategy, batch)) : NULL;
    mu_run(strategy, mu_function_new(one_update, &j), parts);
    mu_optimizer_finalize_variable_values(j.optimizer);
}

// Every allocation of reading, writing, making and using an optimizer fails once.
static void failed_allocations_are_said(void **state)
{
    (void)state;
    bool failed = true;
    int rounds = 0;
    configure_and_update(NULL);
    assert_int_equal(mu_error_code(), MU_OK);
    for (long n = 1; failed && rounds < 5000; n += n < 300 ? 1 : 3, rounds++)
        failed = fail_allocation(n, configure_and_update, NULL).failed;
    assert_in_range(rounds, 100, 4999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(every_strategy_agrees),
        MODEL_TEST(checkpoints_hold_all_state),
        MODEL_TEST(state_is_named),
        MODEL_TEST(weight_decay_spares),
        MODEL_TEST(averages_become_the_values),
        MODEL_TEST(fit_ends_with_averages),
        MODEL_TEST(accumulation_waits),
        MODEL_TEST(loss_scale_adapts),
        MODEL_TEST(schedules_replace_the_rate),
        MODEL_TEST(schedules_refuse),
        MODEL_TEST(options_are_checked),
        MODEL_TEST(expressions_are_bounded),
        MODEL_TEST(names_change_no_rule),
        MODEL_TEST(configurations_are_read),
        MODEL_TEST(failed_allocations_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
