// Every class of optimizer on XLA devices, with dense and sparse gradients: after some steps the weights are those of
// the native engine, on two devices, in one program and in parts of unequal sizes.
//
// All classes make one program, because compiling is what takes time. Formulas are compared with Keras's elsewhere
// (tests/conformance/optimizers.py).
#include "skip.h"

#include "../unit/model/model_test.h"

#include "model/optimizers/optimizer.h"

enum { ROWS = 6, WIDTH = 2, STEPS = 4, WORDS = 4, MOST = 16, MOST_NUMBERS = 400 };

// With the options that all classes share: schedules, weight decay, clipping, averages, accumulation, loss scaling. The
// first ones take slices of gradients as they are.
enum { TAKE_SLICES = 3 };

static int make_optimizers(mu_optimizer *out[MOST])
{
    mu_optimizer *const all[] = {
        mu_sgd(.learning_rate = .1, .momentum = .5),
        mu_adam(.schedule = mu_cosine_decay(.5, 5, .warmup_target = 1)),
        mu_adagrad(.learning_rate = .1),
        mu_adam(.learning_rate = .1, .amsgrad = true, .clipnorm = .5),
        mu_adamw(.use_ema = true, .ema_overwrite_frequency = 3),
        mu_adamax(.learning_rate = .1),
        mu_nadam(.learning_rate = .1, .gradient_accumulation_steps = 2),
        mu_lamb(.learning_rate = .1),
        mu_rmsprop(.learning_rate = .1, .momentum = .5, .epsilon = .001),
        mu_adadelta(.learning_rate = 1, .loss_scale_factor = 64),
        mu_adafactor(.learning_rate = .1),
        mu_ftrl(.learning_rate = .1, .l1_regularization_strength = .01),
        mu_lion(.learning_rate = .1),
        mu_muon(.learning_rate = .1),
        mu_loss_scale_optimizer(mu_sgd(.learning_rate = .1, .weight_decay = .25), .dynamic_growth_steps = 2),
    };
    memcpy(out, all, sizeof all);
    return (int)MU_COUNT(all);
}

typedef struct job {
    int n;
    mu_optimizer *optimizers[MOST];
    mu_variable *kernels[MOST], *tables[MOST];
} job;

static mu_status train(mu_optimizer *optimizer, mu_variable *kernel, mu_variable *table, mu_value *batch)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *far = mu_subtract(mu_at(batch, 0), mu_variable_read(kernel));
    mu_tensor *rows = mu_gather(mu_variable_read(table), mu_at(batch, 1), 0, 0);
    mu_tensor *loss = mu_add(mu_reduce_sum(mu_square(far), MU_ALL_AXES), mu_reduce_sum(mu_square(rows), MU_ALL_AXES));
    loss = mu_scale_loss(optimizer, mu_multiply(loss, mu_constant(MU_F64, .5)));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(kernel, table, MU_END));
    mu_tape_close(tape);
    return gradients ? mu_apply_gradients(optimizer, gradients) : mu_error_code();
}

static mu_value *step(mu_value *batch, void *arg)
{
    const job *j = arg;
    for (int i = 0; i < j->n; i++)
        if (train(j->optimizers[i], j->kernels[i], j->tables[i], batch) != MU_OK)
            return NULL;
    return mu_of(mu_constant(MU_F64, 0));
}

static void open_job(mu_strategy *strategy, int most, job *j)
{
    memset(j, 0, sizeof *j);
    MU_SCOPE(strategy) {
        j->n = MU_MIN(make_optimizers(j->optimizers), most);
        for (int i = 0; i < j->n; i++) {
            j->kernels[i] = mu_variable_new(.initial_value = numbers(2, (int64_t[]){1, WIDTH}, 4), .name = "kernel");
            j->tables[i] = mu_variable_new(.initial_value = numbers(2, (int64_t[]){WORDS, WIDTH}, 5), .name = "table");
            mu_optimizer_build(j->optimizers[i], mu_variables(j->kernels[i], j->tables[i], MU_END));
        }
    }
}

// The rows of each replica's part of the batch; a part may have none of the words.
static mu_value *batch_of(mu_strategy *strategy, const int64_t sizes[2], int number)
{
    mu_value *parts[2];
    int64_t first = 0;
    for (int r = 0; r < 2; first += sizes[r++]) {
        int64_t words[ROWS];
        for (int64_t i = 0; i < sizes[r]; i++)
            words[i] = (first + i + number) % 3;
        parts[r] = mu_list(numbers(2, (int64_t[]){sizes[r], WIDTH}, (uint64_t)(10 * number + r)),
                           mu_tensor_new(MU_I64, 1, &sizes[r], words), MU_END);
    }
    return mu_per_replica_of(strategy, 2, parts);
}

static void keep(mu_value *variables, double *out, int *n)
{
    for (int i = 0; i < mu_value_count(variables); i++) {
        mu_tensor *value = mu_cast(mu_variable_read(mu_value_variable(mu_value_at(variables, i))), MU_F64);
        assert_true(value && *n + mu_tensor_elements(value) <= MOST_NUMBERS);
        memcpy(out + *n, doubles(value), sizeof *out * (size_t)mu_tensor_elements(value));
        *n += (int)mu_tensor_elements(value);
    }
}

static int run_on(mu_strategy *strategy, int most, const int64_t sizes[2], double out[MOST_NUMBERS])
{
    mu_pool *pool = mu_pool_open();
    job j;
    int kept = 0;
    open_job(strategy, most, &j);
    mu_function *function = mu_function_new(step, &j);
    for (int i = 0; i < STEPS; i++)
        if (!mu_run(strategy, function, batch_of(strategy, sizes, i)))
            fail_msg("step %d: %s", i, mu_error_message());
    for (int i = 0; i < j.n; i++)
        keep(mu_variables(j.kernels[i], j.tables[i], MU_END), out, &kept);
    mu_pool_close(pool);
    return kept;
}

static void compare(int most, int64_t first, int64_t second)
{
    static double wanted[MOST_NUMBERS], seen[MOST_NUMBERS];
    enum { EACH = (1 + WORDS) * WIDTH };
    const int64_t sizes[] = {first, second};
    mu_strategy *native = mu_mirrored_strategy(.devices = (const char *[]){"CPU:0", "CPU:1", NULL});
    mu_strategy *xla = mu_mirrored_strategy(.devices = (const char *[]){"XLA_CPU:0", "XLA_CPU:1", NULL});
    const int kept = run_on(native, most, sizes, wanted);
    assert_int_equal(run_on(xla, most, sizes, seen), kept);
    for (int i = 0; i < kept; i++)
        if (!(fabs(seen[i] - wanted[i]) <= 1e-10 * fmax(1, fabs(wanted[i]))))
            fail_msg("optimizer %d, number %d of its weights: %.17g; expected %.17g", i / EACH, i % EACH, seen[i],
                     wanted[i]);
}

static void one_program(void **state)
{
    (void)state;
    compare(MOST, 3, 3);
}

static void parts(void **state)
{
    (void)state;
    compare(TAKE_SLICES, 4, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(one_program), MODEL_TEST(parts)};
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
