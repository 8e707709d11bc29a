// Plans: functions drawn at random give the bits of the eager ops whatever memory is shared; blocks of all-reduces live
// long enough; failed steps poison the variables that they wrote.
#include "../model/model_test.h"

#define OPS 60

static unsigned next_random(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

// A random function is determined by its seed, so that it can run both eagerly and traced.
typedef struct program {
    unsigned seed;
    mu_variable *variable;
    bool reduces;
    double alone; // the factor that replaces an all-reduce on one replica; 0: all-reduce
} program;

// Part of a larger tensor, which may be a result of the function.
static mu_tensor *across(mu_tensor *a, mu_tensor *b)
{
    return mu_slice(mu_concat(2, (mu_tensor *[]){a, b}, 0), (int64_t[]){1, 0}, (int64_t[]){4, 4});
}

// Parts of one value beside each other, one of them used where the other could be overwritten.
static mu_tensor *halves_swapped(mu_tensor *a, mu_tensor *b)
{
    mu_tensor *half[2] = {NULL};
    mu_split(mu_reshape(a, 2, (int64_t[]){4, 4}), 2, 0, half); // a trace knows no batch axis
    mu_tensor *row = mu_strided_slice(b, (int64_t[]){-1, 0}, (int64_t[]){0, 0}, NULL, 0, 2, 1);
    mu_tensor *swapped[] = {mu_neg(half[1]), mu_add(half[0], row)};
    return mu_concat(2, swapped, 0);
}

static mu_tensor *random_op(const program *p, unsigned *seed, mu_tensor *a, mu_tensor *b)
{
    switch (next_random(seed, p->reduces ? 14 : 12)) {
    case 0: return mu_add(a, b);
    case 1: return mu_subtract(a, b);
    case 2: return mu_tanh(mu_multiply(a, b));
    case 3: return mu_nn_relu(a);
    case 4: return mu_transpose(mu_reshape(a, 2, (int64_t[]){4, 4}), NULL);
    case 5: return mu_reshape(mu_reshape(a, 1, (int64_t[]){16}), 2, (int64_t[]){4, 4});
    case 6: return mu_tanh(mu_matmul(a, b));
    case 7: return mu_maximum(a, mu_neg(b));
    case 8: return mu_multiply(a, mu_reduce_mean(b, 0));
    case 9: return mu_sin(a);
    case 10: return across(a, b);
    case 11: return halves_swapped(a, b);
    }
    mu_tensor *x = mu_cos(a);
    mu_tensor *reduced = p->alone > 0 ? mu_multiply(x, mu_constant(MU_F64, p->alone)) : mu_all_reduce(MU_SUM, x);
    return mu_multiply(reduced, mu_constant(MU_F64, .25));
}

static mu_value *run_program(mu_value *arguments, void *arg)
{
    const program *p = arg;
    unsigned seed = p->seed;
    mu_tensor *values[OPS + 2] = {mu_at(arguments, 0), mu_at(arguments, 1)};
    int n = 2;
    while (n < OPS) {
        mu_tensor *a = values[next_random(&seed, (unsigned)n)], *b = values[n - 1 - (int)next_random(&seed, 2)];
        if (next_random(&seed, 8) == 0) {
            mu_variable_assign(p->variable, mu_tanh(a));
            values[n++] = mu_variable_read(p->variable);
        } else {
            values[n++] = random_op(p, &seed, a, b);
        }
    }
    mu_value *results[6];
    for (int i = 0; i < 5; i++)
        results[i] = mu_of(values[next_random(&seed, OPS)]);
    results[5] = mu_of(mu_variable_read(p->variable));
    return mu_list_of(6, results);
}

static void assert_results(mu_value *seen, mu_value *wanted, double tolerance)
{
    if (!seen || !wanted)
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < 6; i++)
        assert_near(doubles(mu_at(seen, i)), doubles(mu_at(wanted, i)), 16, tolerance);
}

static mu_value *arguments_for(unsigned seed)
{
    int64_t dims[] = {4, 4};
    return mu_list(numbers(2, dims, seed), numbers(2, dims, seed + 1000), MU_END);
}

static void random_functions_match_eager_ops(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 150; seed++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *zeros = mu_zeros(MU_F64, 2, (int64_t[]){4, 4});
        program p = {.seed = seed, .variable = mu_variable_new(zeros, "v")};
        mu_value *arguments = arguments_for(seed), *wanted = run_program(arguments, &p);
        mu_function *function = mu_function_new(run_program, &p);
        for (int turn = 0; turn < 3; turn++) {
            mu_variable_assign(p.variable, zeros);
            assert_results(mu_run(NULL, function, arguments), wanted, 1e-13);
        }
        mu_pool_close(pool);
    }
}

// With all-reduces between the other ops: two replicas with equal inputs agree with one replica on which each
// all-reduce doubles.
static void random_functions_with_reductions(void **state)
{
    (void)state;
    mu_strategy *two = strategy_of(2);
    for (unsigned seed = 1; seed <= 100; seed++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *zeros = mu_zeros(MU_F64, 2, (int64_t[]){4, 4});
        program p = {.seed = seed, .reduces = true};
        MU_SCOPE(two) {
            p.variable = mu_variable_new(zeros, "v");
        }
        mu_function *function = mu_function_new(run_program, &p);
        mu_value *arguments = arguments_for(seed), *seen = mu_run(two, function, arguments);
        if (!seen)
            fail_msg("%s", mu_error_message());
        mu_value *each = mu_local_results(two, seen);
        mu_value *first = mu_value_at(each, 0), *second = mu_value_at(each, 1);
        assert_results(second, first, 0);
        program alone = {.seed = seed, .reduces = true, .alone = 2, .variable = mu_variable_new(zeros, "alone")};
        assert_results(first, run_program(arguments, &alone), 1e-13);
        mu_variable_assign(p.variable, zeros);
        assert_results(mu_value_at(mu_local_results(two, mu_run(two, function, arguments)), 0), first, 0);
        mu_pool_close(pool);
    }
}

// A reduced value that later ops work on in place keeps its memory until the last of them.
static mu_value *keep_reduced_values(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *mean = mu_multiply(mu_all_reduce(MU_SUM, mu_neg(x)), mu_constant(MU_F64, .5));
    mu_tensor *others = x;
    for (int i = 0; i < 10; i++)
        others = mu_sin(mu_add(mu_exp(others), mu_cos(others)));
    return mu_of(mu_add(mean, mu_multiply(others, mu_constant(MU_F64, 0))));
}

static void reduced_values_live_long_enough(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *result =
        mu_run(strategy, mu_function_new(keep_reduced_values, NULL), mu_of(vector(4, (double[]){1, 2, 3, 4})));
    for (int r = 0; r < 2; r++)
        assert_near(doubles(mu_at(mu_local_results(strategy, result), r)), (double[]){-1, -2, -3, -4}, 4, 1e-15);
}

// ---- Memory of the collective's own -------------------------------------------------------------

// Plain memory in the place of a shared segment, and a record of what was reduced in it.
static struct {
    atomic_int taken, inside, outside;
    mu_buffer *blocks[2];
    mu_status (*start)(mu_collective *, int64_t, const char *, mu_reduction, mu_dtype, void *, int64_t, bool,
                       int64_t *);
} own;

static void free_own(void *object) { free(((mu_buffer *)object)->data); }

static mu_type own_type = {.name = "own memory", .destroy = free_own};

static mu_buffer *own_memory(mu_collective *self, size_t bytes)
{
    mu_buffer *block = mu__new(&own_type, sizeof *block);
    block->bytes = bytes;
    block->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    own.blocks[self->rank] = block;
    atomic_fetch_add(&own.taken, 1);
    return block;
}

static mu_status watch_start(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                             mu_dtype dtype, void *data, int64_t count, bool soon, int64_t *started)
{
    const mu_buffer *block = own.blocks[self->rank];
    const char *at = data, *begin = block ? block->data : NULL;
    const bool in = begin && at >= begin && at + (size_t)count * mu_dtype_bytes(dtype) <= begin + block->bytes;
    atomic_fetch_add(in ? &own.inside : &own.outside, 1);
    return own.start(self, number, name, reduction, dtype, data, count, soon, started);
}

// What is reduced in place lies in the collective's memory, which is taken once and given back with the device.
static void blocks_lie_in_the_collectives_memory(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    for (int r = 0; r < 2; r++) {
        mu_collective *c = mu__group_member(strategy->group, r);
        own.start = c->start;
        c->start = watch_start;
        c->memory = own_memory;
    }
    mu_function *function = mu_function_new(keep_reduced_values, NULL);
    for (int turn = 0; turn < 3; turn++) {
        mu_value *result = mu_run(strategy, function, mu_of(vector(4, (double[]){1, 2, 3, 4})));
        for (int r = 0; r < 2; r++)
            assert_near(doubles(mu_at(mu_local_results(strategy, result), r)), (double[]){-1, -2, -3, -4}, 4, 1e-15);
    }
    assert_int_equal(atomic_load(&own.taken), 2);
    assert_int_equal(atomic_load(&own.inside), 6);
    assert_int_equal(atomic_load(&own.outside), 0);
}

// ---- Failed steps -------------------------------------------------------------------------------

static mu_value *write_then_check(mu_value *arguments, void *arg)
{
    mu_variable **variables = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign(variables[0], x);
    mu_assert(mu_greater(x, mu_zeros_like(x)), "not positive");
    mu_variable_assign(variables[1], x);
    return mu_of(x);
}

static void failed_steps_poison_what_they_wrote(void **state)
{
    (void)state;
    mu_variable *variables[] = {mu_variable_new(mu_constant(MU_F64, 1), "early"),
                                mu_variable_new(mu_constant(MU_F64, 1), "late")};
    mu_function *function = mu_function_new(write_then_check, variables);
    assert_null(mu_run(NULL, function, mu_of(mu_constant(MU_F64, -1))));
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    assert_true(mu_scalar(mu_variable_read(variables[1])) == 1);
    assert_null(mu_variable_read(variables[0]));
    expect_error(MU_FAILED_PRECONDITION, "'early' was left in doubt");
    assert_null(mu_run(NULL, function, mu_of(mu_constant(MU_F64, -2))));
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    assert_int_equal(mu_variable_assign_add(variables[0], mu_constant(MU_F64, 2)), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "'early' was left in doubt");
    assert_non_null(mu_run(NULL, function, mu_of(mu_constant(MU_F64, 3)))); // assigns it before anything else
    assert_true(mu_scalar(mu_variable_read(variables[0])) == 3);
    assert_null(mu_run(NULL, function, mu_of(mu_constant(MU_F64, -1))));
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    assert_int_equal(mu_variable_assign(variables[0], mu_constant(MU_F64, 5)), MU_OK);
    assert_non_null(mu_run(NULL, function, mu_of(mu_constant(MU_F64, 2))));
    assert_true(mu_scalar(mu_variable_read(variables[0])) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(random_functions_match_eager_ops),    MODEL_TEST(random_functions_with_reductions),
        MODEL_TEST(reduced_values_live_long_enough),     MODEL_TEST(blocks_lie_in_the_collectives_memory),
        MODEL_TEST(failed_steps_poison_what_they_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
