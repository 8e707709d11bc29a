// mu_reduce_scatter and mu_collective_permute on the replicas of one process: the same numbers as the collectives they
// are built from, in every type, eagerly and traced; gradients against finite differences; refusals.
#include "distribute_test.h"

#include <muster.h>

enum { MOST = 4 };

typedef struct call {
    mu_reduce_op op;
    int axis;
    mu_dtype dtype;
    const mu_replica_pair *pairs;
    int n_pairs;
} call;

// [12, 12] numbers of this replica.
static mu_tensor *own_numbers(mu_dtype dtype)
{
    mu_tensor *base = mu_mod(mu_range(MU_F64, 0, 144, 1), mu_constant(MU_F64, 7));
    mu_tensor *own = mu_multiply(base, mu_add(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, 1)));
    return mu_cast(mu_reshape(own, 2, (int64_t[]){12, 12}), dtype);
}

static mu_value *run_on(mu_strategy *strategy, bool traced, mu_value *(*fn)(mu_value *, void *), void *arg,
                        mu_value *arguments)
{
    mu_value *none = arguments ? arguments : mu_list(MU_END);
    mu_value *result =
        traced ? mu_run(strategy, mu_function_new(fn, arg), none) : mu_run_callback(strategy, fn, arg, none);
    if (!result)
        fail_msg("%s", mu_error_message());
    return mu_local_results(strategy, result);
}

static void assert_same_bytes(const char *what, mu_tensor *seen, mu_tensor *wanted)
{
    if (seen->dtype != wanted->dtype || !mu__shape_equal(&seen->shape, &wanted->shape) ||
        memcmp(mu__host_read(seen), mu__host_read(wanted),
               (size_t)mu_tensor_elements(seen) * mu_dtype_bytes(seen->dtype)) != 0)
        fail_msg("%s differs", what);
}

// ---- reduce_scatter -----------------------------------------------------------------------------

static mu_value *part_and_whole(mu_value *arguments, void *arg)
{
    const call *c = arg;
    (void)arguments;
    mu_tensor *x = own_numbers(c->dtype);
    return mu_list(mu_of(mu_reduce_scatter(c->op, x, c->axis)), mu_of(mu_all_reduce(c->op, x)), MU_END);
}

static void check_parts(int replicas, bool traced, call c)
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(replicas);
    mu_value *results = run_on(strategy, traced, part_and_whole, &c, NULL);
    for (int r = 0; r < replicas; r++) {
        mu_value *own = replicas == 1 ? mu_value_at(results, 0) : mu_value_at(results, r);
        const int axis = c.axis < 0 ? 1 : c.axis;
        int64_t begin[2] = {0, 0}, size[2] = {12, 12};
        size[axis] = 12 / replicas;
        begin[axis] = r * size[axis];
        assert_same_bytes("a part", mu_at(own, 0), mu_slice(mu_at(own, 1), begin, size));
    }
    mu_pool_close(pool);
}

static void parts_are_those_of_the_sum(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int i = 0; i < 8; i++)
            for (int replicas = 1; replicas <= MOST; replicas++)
                check_parts(replicas, i & 1,
                            (call){.op = i & 2 ? MU_MEAN : MU_SUM, .axis = i & 4 ? -1 : 0, .dtype = dtypes[d]});
}

static mu_value *scatter_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_scatter(MU_SUM, mu_at(arguments, 0), 0));
}

// One trace serves every size that divides.
static void sizes_may_be_unknown(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_function *function = mu_function_new(scatter_rows, NULL);
    for (int64_t n = 3; n <= 9; n += 3) {
        mu_value *seen = mu_run(strategy, function, uneven(3, (int64_t[]){n, n, n}));
        if (!seen)
            fail_msg("%s", mu_error_message());
        for (int r = 0; r < 3; r++) {
            mu_tensor *own = mu_value_tensor(mu_value_at(mu_local_results(strategy, seen), r));
            assert_int_equal(mu_tensor_elements(own), n / 3);
            for (int64_t i = 0; i < n / 3; i++) // of 0 + at, n + at and 2 n + at
                assert_true(doubles(own)[i] == (double)(3 * (r * (n / 3) + i) + 3 * n));
        }
    }
    assert_int_equal(mu_function_trace_count(function), 1);
    assert_null(mu_run(strategy, function, uneven(3, (int64_t[]){4, 4, 4})));
    expect_error(MU_INVALID_ARGUMENT, "size 4, of which 3 replicas cannot have equal parts");
}

static mu_tensor *greatest(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    mu_tensor *result = parts[0];
    (void)op, (void)arg;
    for (int i = 1; i < n; i++)
        result = mu_maximum(result, parts[i]);
    return result;
}

static mu_value *part_only(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_reduce_scatter(MU_SUM, mu_reshape(own_numbers(MU_F64), 1, (int64_t[]){144}), 0));
}

// A way of reducing of the program's own gets the blocks of all replicas.
static void other_ways_reduce_the_parts(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        mu_strategy *strategy =
            mu_mirrored_strategy(.replicas = 3, .cross_device_ops = i < 2 ? mu_cross_device_ops_new(greatest, NULL)
                                                                          : mu_hierarchical_copy(2));
        mu_value *results = run_on(strategy, i & 1, part_only, NULL, NULL);
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 48; k++)
                assert_true(doubles(mu_value_tensor(mu_value_at(results, r)))[k] == (r * 48 + k) % 7 * (i < 2 ? 3 : 6));
    }
}

// ---- collective_permute -------------------------------------------------------------------------

static mu_value *permuted(mu_value *arguments, void *arg)
{
    const call *c = arg;
    (void)arguments;
    mu_tensor *x = own_numbers(c->dtype);
    return mu_list(mu_of(mu_collective_permute(x, c->pairs, c->n_pairs)), mu_of(x), MU_END);
}

static void check_permuted(int replicas, bool traced, call c)
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(replicas);
    mu_value *results = run_on(strategy, traced, permuted, &c, NULL);
    for (int to = 0; to < replicas; to++) {
        mu_tensor *wanted = mu_zeros(c.dtype, 2, (int64_t[]){12, 12});
        for (int i = 0; i < c.n_pairs; i++)
            if (c.pairs[i].target == to)
                wanted = mu_at(mu_value_at(results, c.pairs[i].source), 1);
        assert_same_bytes("what came", mu_at(mu_value_at(results, to), 0), wanted);
    }
    mu_pool_close(pool);
}

static const mu_replica_pair shift[] = {{0, 1}, {1, 2}, {2, 3}}, ring[] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}},
                             swap[] = {{1, 0}, {0, 1}, {2, 2}}, own[] = {{0, 0}};

static void values_go_to_their_targets(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int traced = 0; traced < 2; traced++) {
            check_permuted(4, traced, (call){.dtype = dtypes[d], .pairs = shift, .n_pairs = 3});
            check_permuted(4, traced, (call){.dtype = dtypes[d], .pairs = ring, .n_pairs = 4});
            check_permuted(3, traced, (call){.dtype = dtypes[d], .pairs = swap, .n_pairs = 3});
            check_permuted(2, traced, (call){.dtype = dtypes[d]});
            check_permuted(1, traced, (call){.dtype = dtypes[d], .pairs = own, .n_pairs = 1});
            check_permuted(1, traced, (call){.dtype = dtypes[d]});
        }
}

static mu_value *around(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *come = mu_collective_permute(mu_value_tensor(state), ring, 4);
    return mu_of(mu_add(come, mu_value_tensor(element)));
}

static mu_value *ring_of_steps(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *own_id = mu_cast(mu_replica_id(), MU_F64);
    return mu_scan(around, mu_of(mu_zeros(MU_F64, 1, (int64_t[]){3})), mu_of(own_id));
}

// In a loop's body: after three steps each replica has the value of the third replica before it.
static void loops_permute_too(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(4);
    mu_value *results = run_on(strategy, true, ring_of_steps, NULL, NULL);
    for (int r = 0; r < 4; r++)
        for (int step = 0; step < 3; step++)
            assert_true(doubles(mu_value_tensor(mu_value_at(results, r)))[step] == (r + 3 - step) % 4);
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *through(const call *c, mu_tensor *x)
{
    return c->pairs ? mu_collective_permute(x, c->pairs, c->n_pairs) : mu_reduce_scatter(c->op, x, c->axis);
}

// Each replica weighs its result differently, so a gradient that reaches the wrong replica is noticed.
static mu_tensor *weighed_loss(const call *c, mu_tensor *x)
{
    mu_tensor *weight = mu_add(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, 0.5));
    mu_tensor *y = through(c, mu_multiply(x, x));
    return mu_reduce_sum(mu_multiply(mu_multiply(y, y), weight), MU_ALL_AXES);
}

static mu_value *loss_only(mu_value *arguments, void *arg) { return mu_of(weighed_loss(arg, mu_at(arguments, 0))); }

static mu_value *loss_gradient(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = weighed_loss(arg, x);
    return mu_of(mu_at(mu_gradients(tape, loss, mu_list(x, MU_END)), 0));
}

static mu_value *inputs(mu_strategy *strategy, int replica, int element, double by)
{
    mu_value *parts[3];
    for (int r = 0; r < 3; r++) {
        double data[18];
        for (int i = 0; i < 18; i++)
            data[i] = 0.3 + 0.1 * ((r * 18 + i) * 5 % 11) + (r == replica && i == element ? by : 0);
        parts[r] = mu_of(mu_tensor_new(MU_F64, 2, (int64_t[]){3, 6}, data));
    }
    return mu_list(mu_per_replica_of(strategy, 3, parts), MU_END);
}

static double total(mu_strategy *strategy, bool traced, call *c, int replica, int element, double by)
{
    mu_value *losses = run_on(strategy, traced, loss_only, c, inputs(strategy, replica, element, by));
    double sum = 0;
    for (int r = 0; r < 3; r++)
        sum += mu_scalar(mu_value_at(losses, r));
    return sum;
}

static void check_gradient(call c, bool traced)
{
    const double h = 1e-5;
    mu_strategy *strategy = strategy_of(3);
    mu_value *gradients = run_on(strategy, traced, loss_gradient, &c, inputs(strategy, 0, 0, 0));
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 18; i += 5) {
            mu_pool *pool = mu_pool_open();
            const double more = total(strategy, traced, &c, r, i, h), less = total(strategy, traced, &c, r, i, -h);
            const double wanted = (more - less) / (2 * h);
            assert_number(doubles(mu_value_tensor(mu_value_at(gradients, r)))[i], wanted, 1e-6 * (1 + fabs(wanted)));
            mu_pool_close(pool);
        }
}

static void gradients_are_right(void **state)
{
    (void)state;
    for (int traced = 0; traced < 2; traced++) {
        for (int axis = 0; axis < 2; axis++)
            for (mu_reduce_op op = MU_SUM; op <= MU_MEAN; op++)
                check_gradient((call){.op = op, .axis = axis}, traced);
        check_gradient((call){.pairs = shift, .n_pairs = 2}, traced);
        check_gradient((call){.pairs = swap, .n_pairs = 3}, traced);
    }
}

// ---- What is refused ----------------------------------------------------------------------------

static mu_value *call_one(mu_value *arguments, void *arg)
{
    const call *c = arg;
    (void)arguments;
    mu_tensor *x = mu_zeros(MU_F32, 2, (int64_t[]){4, 6});
    return mu_of(c->pairs ? mu_collective_permute(x, c->pairs, c->n_pairs) : mu_reduce_scatter(c->op, x, c->axis));
}

static void refuse(call c, const char *words)
{
    for (int traced = 0; traced < 2; traced++) {
        mu_strategy *strategy = strategy_of(3);
        mu_value *none = mu_list(MU_END);
        assert_null(traced ? mu_run(strategy, mu_function_new(call_one, &c), none)
                           : mu_run_callback(strategy, call_one, &c, none));
        expect_error(MU_INVALID_ARGUMENT, words);
    }
}

static mu_value *scatter_flags(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_reduce_scatter(MU_SUM, mu_ones(MU_BOOL, 1, (int64_t[]){2}), 0));
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    static const mu_replica_pair beyond[] = {{0, 3}}, below[] = {{-1, 0}}, from_twice[] = {{0, 1}, {0, 2}},
                                 to_twice[] = {{0, 1}, {2, 1}};
    refuse((call){.axis = 0}, "size 4, of which 3 replicas cannot have equal parts");
    refuse((call){.axis = 2}, "axis 2");
    refuse((call){.op = (mu_reduce_op)2, .axis = 1}, "the operation is 2; it must be MU_SUM (0) or MU_MEAN (1)");
    refuse((call){.pairs = beyond, .n_pairs = 1}, "there are replicas 0 to 2");
    refuse((call){.pairs = below, .n_pairs = 1}, "from replica -1");
    refuse((call){.pairs = from_twice, .n_pairs = 2}, "replica 0 is the source of pair 0 and of pair 1");
    refuse((call){.pairs = to_twice, .n_pairs = 2}, "replica 1 is the target of pair 0 and of pair 1");
    refuse((call){.pairs = to_twice, .n_pairs = -1}, "-1 pairs");
    for (int replicas = 1; replicas <= 2; replicas++) { // one replica refuses the same as two
        assert_null(mu_run_callback(strategy_of(replicas), scatter_flags, NULL, mu_list(MU_END)));
        expect_error(MU_INVALID_ARGUMENT, "reduce_scatter");
    }
    MU_SCOPE(strategy_of(2)) {
        assert_null(mu_reduce_scatter(MU_SUM, mu_constant(MU_F32, 1), 0));
        expect_error(MU_FAILED_PRECONDITION, "mu_reduce_scatter is for functions that run on replicas");
        assert_null(mu_collective_permute(mu_constant(MU_F32, 1), own, 1));
        expect_error(MU_FAILED_PRECONDITION, "mu_collective_permute is for functions that run on replicas");
    }
}

// The argument that replica 1 passes differently from the others.
typedef enum oddity { SHAPE, SIZE, AXIS, OPERATION, KIND, PAIRS, TYPE, N_ODDITIES } oddity;

static mu_value *differ(mu_value *arguments, void *arg)
{
    const oddity how = *(const oddity *)arg;
    const bool odd = mu_scalar(mu_replica_id()) == 1;
    (void)arguments;
    mu_tensor *square = mu_zeros(how == TYPE && odd ? MU_F64 : MU_F32, 2, (int64_t[]){6, 6});
    mu_tensor *tall = mu_zeros(MU_F32, 2, (int64_t[]){odd ? 12 : 6, how == SIZE || !odd ? 6 : 3});
    if (how == PAIRS || how == KIND)
        return mu_of(odd && how == KIND ? mu_reduce_scatter(MU_SUM, square, 0)
                                        : mu_collective_permute(square, ring + odd, 2));
    return mu_of(mu_reduce_scatter(how == OPERATION && odd ? MU_MEAN : MU_SUM, how <= SIZE ? tall : square,
                                   how == AXIS && odd ? 1 : 0));
}

static void replicas_must_agree(void **state)
{
    (void)state;
    static const char *const words[] = {
        [SHAPE] = "replica 0 brings float32[6, 6] along axis 0, replica 1 float32[12, 3] along axis 0",
        [SIZE] = "replica 0 brings float32[6, 6] along axis 0, replica 1 float32[12, 6] along axis 0",
        [AXIS] = "along axis 1",
        [OPERATION] = "reduce_scatter: replica 0 asks for 'sum', replica 1 for 'mean'",
        [KIND] = "where replica 1 calls reduce_scatter of 'sum'",
        [PAIRS] = "by the pairs of replica 0, replica 1 gets replica 0's tensor, by those of replica 1 it gets zeros",
        [TYPE] = "replica 0 has 12 elements of float32, replica 1 has 12 of float64",
    };
    for (oddity how = SHAPE; how < N_ODDITIES; how++) {
        assert_null(mu_run_callback(strategy_of(how == PAIRS ? 4 : 3), differ, &how, mu_list(MU_END)));
        expect_error(how == KIND   ? MU_FAILED_PRECONDITION
                     : how == TYPE ? MU_INTERNAL
                                   : MU_INVALID_ARGUMENT,
                     words[how]);
    }
    assert_null(mu_run(strategy_of(2), mu_function_new(scatter_rows, NULL), uneven(2, (int64_t[]){4, 2})));
    expect_error(MU_INVALID_ARGUMENT, "float64[4] along axis 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(parts_are_those_of_the_sum),  MODEL_TEST(sizes_may_be_unknown),
        MODEL_TEST(other_ways_reduce_the_parts), MODEL_TEST(values_go_to_their_targets),
        MODEL_TEST(loops_permute_too),           MODEL_TEST(gradients_are_right),
        MODEL_TEST(wrong_arguments_are_named),   MODEL_TEST(replicas_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
