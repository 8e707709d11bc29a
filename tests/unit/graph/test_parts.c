// Gradients of slices of one tensor: the numbers are those of one full-size tensor per slice, for any blocks, and the
// work grows with the tensor and not with the number of slices.
#include "../model/model_test.h"

enum { ROWS = 6, COLUMNS = 8 };

// ---- Counting -----------------------------------------------------------------------------------

// A tape that only counts the results of ops.
typedef struct counter {
    struct mu_tape tape;
    int64_t ops, bytes;
} counter;

static mu_status count_op(struct mu_tape *tape, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                          int n_resources, mu_resource *const *resources, int n_out, mu_tensor *const *out)
{
    counter *c = (counter *)(void *)tape;
    (void)attrs, (void)n_resources, (void)resources;
    c->ops++;
    for (int i = 0; i < n_out; i++) {
        const mu_spec spec = mu__spec_of(out[i]);
        if (!mu__op_is_view(op, n_in > 0 ? &(mu_spec){in[0]->dtype, in[0]->shape} : &spec, &spec))
            c->bytes += (int64_t)mu__spec_bytes(&spec);
    }
    return MU_OK;
}

static void open_counter(counter *c)
{
    *c = (counter){.tape = {.outer = mu__context()->tape, .record = count_op}};
    mu__context()->tape = &c->tape;
}

static void close_counter(counter *c) { mu__context()->tape = c->tape.outer; }

enum { MOST = 128, SIZE = 128 * 64 };

typedef enum way { BY_SPLIT, BY_UNSTACK, BY_SLICES } way;

static void cut(way by, mu_tensor *x, int n, mu_tensor **parts)
{
    if (by == BY_SPLIT)
        mu_split(x, n, 0, parts);
    else if (by == BY_UNSTACK)
        mu_unstack(x, n, 1, parts);
    else
        for (int i = 0; i < n; i++)
            parts[i] =
                mu_slice(x, (int64_t[]){0, i * (mu_tensor_dim(x, 1) / n)}, (int64_t[]){-1, mu_tensor_dim(x, 1) / n});
}

// The cost of the gradient of a function of n parts of one tensor, beyond that of the function itself, and the cost of
// the gradient of that gradient.
static void costs(way by, int n, counter *first, counter *second)
{
    const int64_t columns = by == BY_UNSTACK ? n : SIZE / MOST, rows = SIZE / columns;
    mu_tensor *x = mu_ones(MU_F64, 2, (int64_t[]){rows, columns}), *parts[MOST], *sum = mu_constant(MU_F64, 0);
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    cut(by, x, n, parts);
    for (int i = 0; i < n; i++)
        sum = mu_add(sum, mu_reduce_sum(mu_square(parts[i]), MU_ALL_AXES));
    open_counter(first);
    mu_tensor *slope = mu_at(mu_gradients(inner, sum, mu_list(x, MU_END)), 0);
    close_counter(first);
    mu_tape_close(inner);
    mu_tensor *total = mu_reduce_sum(mu_square(slope), MU_ALL_AXES);
    open_counter(second);
    mu_tensor *curve = mu_at(mu_gradients(outer, total, mu_list(x, MU_END)), 0);
    close_counter(second);
    assert_true(mu_scalar(mu_reduce_max(slope, MU_ALL_AXES)) == 2 && mu_scalar(mu_reduce_min(slope, MU_ALL_AXES)) == 2);
    assert_true(mu_scalar(mu_reduce_max(curve, MU_ALL_AXES)) == 8 && mu_scalar(mu_reduce_min(curve, MU_ALL_AXES)) == 8);
}

// Four times as many parts of the same tensor: at most five times as many ops, and no more bytes except for the
// scalars.
static void cost_is_linear(void **state)
{
    (void)state;
    for (way by = BY_SPLIT; by <= BY_SLICES; by++) {
        counter few[2], many[2];
        const int n = by == BY_SLICES ? 16 : 32, more = by == BY_SLICES ? 64 : 128;
        mu_pool *pool = mu_pool_open();
        costs(by, n, &few[0], &few[1]);
        costs(by, more, &many[0], &many[1]);
        for (int order = 0; order < 2; order++) {
            print_message("way %d, derivative %d: %d parts %lld ops %lld bytes, %d parts %lld ops %lld bytes\n",
                          (int)by, order + 1, n, (long long)few[order].ops, (long long)few[order].bytes, more,
                          (long long)many[order].ops, (long long)many[order].bytes);
            assert_true(many[order].ops <= 5 * few[order].ops);
            assert_true(many[order].bytes <= few[order].bytes + few[order].bytes / 4);
        }
        mu_pool_close(pool);
    }
}

// ---- Any blocks ---------------------------------------------------------------------------------

typedef struct block {
    int64_t begin[2], size[2], stride[2];
} block;

typedef struct blocks {
    int n;
    block at[24];
} blocks;

static mu_tensor *taken(mu_tensor *x, const block *b)
{
    const int64_t end[] = {b->begin[0] + b->size[0] * b->stride[0], b->begin[1] + b->size[1] * b->stride[1]};
    return mu_strided_slice(x, b->begin, end, b->stride, 0, 0, 0);
}

// The gradient of the sum of (i + 1) times every element of block i, and of its square.
static mu_value *weighted(mu_value *arguments, void *arg)
{
    const blocks *all = arg;
    mu_tensor *x = mu_reshape(mu_at(arguments, 0), 2, (int64_t[]){ROWS, COLUMNS}), *sum = mu_constant(MU_F64, 0);
    mu_tape *tape = mu_tape_open();
    for (int i = 0; i < all->n; i++)
        sum = mu_add(sum, mu_multiply(mu_constant(MU_F64, i + 1), mu_reduce_sum(taken(x, &all->at[i]), MU_ALL_AXES)));
    return mu_list(mu_at(mu_gradients(tape, sum, mu_list(x, MU_END)), 0), MU_END);
}

static void check_blocks(const blocks *all)
{
    double wanted[ROWS * COLUMNS] = {0};
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < all->n; i++)
        for (int64_t r = 0; r < all->at[i].size[0]; r++)
            for (int64_t c = 0; c < all->at[i].size[1]; c++)
                wanted[(all->at[i].begin[0] + r * all->at[i].stride[0]) * COLUMNS + all->at[i].begin[1] +
                       c * all->at[i].stride[1]] += i + 1;
    mu_value *x = mu_of(vector(ROWS * COLUMNS, NULL));
    assert_near(doubles(mu_at(weighted(x, (void *)all), 0)), wanted, ROWS * COLUMNS, 1e-12);
    mu_value *traced = mu_run(NULL, mu_function_new(weighted, (void *)all), x);
    assert_non_null(traced);
    assert_near(doubles(mu_at(traced, 0)), wanted, ROWS * COLUMNS, 1e-12);
    mu_pool_close(pool);
}

static void any_blocks(void **state)
{
    (void)state;
    static const blocks chosen[] = {
        {1, {{{1, 2}, {3, 4}, {1, 1}}}},
        {2, {{{0, 0}, {6, 3}, {1, 1}}, {{0, 5}, {6, 3}, {1, 1}}}},                           // a gap
        {3, {{{0, 0}, {6, 5}, {1, 1}}, {{0, 3}, {6, 5}, {1, 1}}, {{0, 0}, {6, 8}, {1, 1}}}}, // overlaps
        {4, {{{0, 0}, {3, 4}, {1, 1}}, {{3, 4}, {3, 4}, {1, 1}}, {{0, 4}, {3, 4}, {1, 1}}, {{3, 0}, {3, 4}, {1, 1}}}},
        {3, {{{0, 0}, {6, 4}, {1, 2}}, {{0, 1}, {6, 4}, {1, 2}}, {{2, 0}, {2, 8}, {1, 1}}}}, // steps of two
        {3, {{{2, 0}, {0, 8}, {1, 1}}, {{0, 3}, {6, 0}, {1, 1}}, {{5, 7}, {1, 1}, {1, 1}}}}, // empty ones
        {3, {{{2, 1}, {1, 2}, {1, 1}}, {{2, 1}, {1, 2}, {1, 1}}, {{2, 1}, {1, 2}, {1, 1}}}}, // one block thrice
    };
    for (size_t i = 0; i < MU_COUNT(chosen); i++)
        check_blocks(&chosen[i]);
    uint64_t random = 1;
    for (int iteration = 0; iteration < 200; iteration++) {
        blocks all = {.n = 1 + iteration % 24};
        for (int i = 0; i < all.n; i++)
            for (int axis = 0; axis < 2; axis++) {
                const int64_t dim = axis ? COLUMNS : ROWS;
                block *b = &all.at[i];
                random = random * 6364136223846793005u + 1442695040888963407u;
                b->stride[axis] = iteration % 3 == 0 && random >> 60 == 0 ? 2 : 1;
                b->begin[axis] = (int64_t)(random >> 33) % dim;
                b->size[axis] =
                    (int64_t)(random >> 45) % ((dim - b->begin[axis] + b->stride[axis] - 1) / b->stride[axis] + 1);
            }
        check_blocks(&all);
    }
}

// ---- Unknown sizes ------------------------------------------------------------------------------

static mu_value *halves(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *parts[4], *sum = mu_constant(MU_F64, 0);
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_unstack(x, 4, 1, parts);
    for (int i = 0; i < 4; i += 2) // every other one: zeros of a shape that the trace does not know
        sum = mu_add(sum, mu_reduce_sum(mu_square(parts[i]), MU_ALL_AXES));
    return mu_list(mu_at(mu_gradients(tape, sum, mu_list(x, MU_END)), 0), MU_END);
}

static void unknown_batch(void **state)
{
    (void)state;
    mu_function *function = mu_function_new(halves, NULL);
    for (int64_t batch = 0; batch < 4; batch++) {
        mu_tensor *x = mu_ones(MU_F64, 2, (int64_t[]){batch, 4});
        mu_tensor *slope = mu_at(mu_run(NULL, function, mu_of(x)), 0);
        assert_non_null(slope);
        assert_int_equal(mu_tensor_dim(slope, 0), batch);
        for (int64_t i = 0; i < 4 * batch; i++)
            assert_true(doubles(slope)[i] == (i % 2 ? 0 : 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(cost_is_linear),
        MODEL_TEST(any_blocks),
        MODEL_TEST(unknown_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
