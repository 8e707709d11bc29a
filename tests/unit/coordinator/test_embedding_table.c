// Embedding tables: rows on first use, the optimizers' formulas, which rows are evicted first, limits, many threads; on
// servers the same rows, trained by functions on workers, and checkpoints written by three servers and restored to any
// number.
#include "../scratch.h"
#include "servers_test.h"
#include "ops/state/embedding_table.h"

#include <math.h>
#include <pthread.h>

enum { DIMENSION = 5, KEYS = 40, STEPS = 6, MOST_SLOTS = 2 * DIMENSION };

static mu_tensor *keys_of(int n, const int64_t *keys) { return mu_tensor_new(MU_I64, 1, (int64_t[]){n}, keys); }
#define KEYS_OF(...) keys_of((int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static const float *rows_of(mu_embedding_table *table, mu_tensor *keys)
{
    mu_tensor *rows = mu_embedding_table_lookup(table, keys);
    if (!rows)
        fail_msg("%s", mu_error_message());
    return mu__host_read(rows);
}

static mu_tensor *gradients_of(int64_t n, int step)
{
    mu_tensor *gradients = mu_tensor_new(MU_F32, 2, (int64_t[]){n, DIMENSION}, NULL);
    for (int64_t i = 0; i < n * DIMENSION; i++)
        ((float *)mu__host_write(gradients))[i] = (float)((i * 31 + step * 17) % 23 - 11) / 16;
    return gradients;
}

// ---- In this process ----------------------------------------------------------------------------

static void test_rows_are_made_on_first_use(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *a = mu_embedding_table_new(DIMENSION, .seed = 3, .scale = 0.5);
    mu_embedding_table *b = mu_embedding_table_new(DIMENSION, .seed = 3, .scale = 0.5), *other;
    other = mu_embedding_table_new(DIMENSION, .seed = 4, .scale = 0.5);
    assert_true(mu_embedding_table_row_count(a) == 0 && mu_embedding_table_bytes(a) == 0);
    const float *first = rows_of(a, KEYS_OF(7, -1, INT64_MIN, 7)), *second = rows_of(b, KEYS_OF(INT64_MIN, 7));
    assert_int_equal(mu_embedding_table_row_count(a), 3);
    assert_true(mu_embedding_table_bytes(a) > 0);
    assert_memory_equal(first, first + 3 * DIMENSION, DIMENSION * sizeof(float));
    assert_memory_equal(first, second + DIMENSION, DIMENSION * sizeof(float));
    assert_memory_not_equal(first, rows_of(other, KEYS_OF(7)), DIMENSION * sizeof(float));
    mu_tensor *seen = mu_embedding_table_lookup(b, KEYS_OF(-1, 99), .read_only = true);
    assert_memory_equal(mu__host_read(seen), first + DIMENSION, DIMENSION * sizeof(float));
    assert_int_equal(mu_embedding_table_row_count(b), 2);
    for (int i = 0; i < DIMENSION; i++)
        assert_true(fabsf(first[i]) <= 0.5f && first[i] != first[(i + 1) % DIMENSION]);
    const float *zeros = rows_of(mu_embedding_table_new(DIMENSION, .initializer = "zeros"), KEYS_OF(1));
    assert_true(zeros[0] == 0 && zeros[DIMENSION - 1] == 0);
    mu_pool_close(pool);
}

static void test_first_values_have_their_distribution(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static const struct {
        const char *name;
        double deviation;
    } kinds[] = {{"uniform", 0.1 / 1.7320508}, {"normal", 0.1}};
    for (size_t k = 0; k < MU_COUNT(kinds); k++) {
        mu_pool *pool = mu_pool_open();
        mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .initializer = kinds[k].name, .scale = 0.1);
        const float *x = rows_of(table, mu_range(MU_I64, 0, MANY, 1));
        double sum = 0, squares = 0, beside = 0;
        for (int i = 0; i + 1 < MANY * DIMENSION; i++) {
            sum += x[i];
            squares += x[i] * x[i];
            beside += x[i] * x[i + 1];
        }
        const double n = MANY * DIMENSION;
        assert_float_equal(sum / n, 0, 0.002);
        assert_float_equal(sqrt(squares / n), kinds[k].deviation, 0.001);
        assert_float_equal(beside / squares, 0, 0.02);
        mu_pool_close(pool);
    }
}

// Computes one row by the formulas, in float64.
typedef struct model_row {
    double w[DIMENSION], s[MOST_SLOTS];
    int t;
} model_row;

static void model_update(mu_table_optimizer optimizer, model_row *r, const double *g, double rate)
{
    double squares = 0, *m = r->s, *v = r->s + DIMENSION;
    r->t++;
    for (int i = 0; i < DIMENSION; i++)
        squares += g[i] * g[i] / DIMENSION;
    r->s[0] += optimizer == MU_TABLE_ROWWISE_ADAGRAD ? squares : 0;
    for (int i = 0; i < DIMENSION; i++) {
        if (optimizer == MU_TABLE_ADAM) {
            m[i] += (g[i] - m[i]) * 0.1;
            v[i] += (g[i] * g[i] - v[i]) * 0.001;
            r->w[i] -= rate * sqrt(1 - pow(.999, r->t)) / (1 - pow(.9, r->t)) * m[i] / (sqrt(v[i]) + 1e-7);
            continue;
        }
        r->s[i] += optimizer == MU_TABLE_ADAGRAD ? g[i] * g[i] : 0;
        const double below = optimizer == MU_TABLE_ADAGRAD ? r->s[i] : optimizer == MU_TABLE_SGD ? 1 : r->s[0];
        r->w[i] -= rate * g[i] / sqrt(below + (optimizer == MU_TABLE_SGD ? 0 : 1e-7));
    }
}

static void check_optimizer(const char *name, mu_table_optimizer optimizer)
{
    static const int64_t keys[4] = {5, 9, 5, 1000}; // 5 twice: its gradients are added up
    mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .optimizer = name, .learning_rate = 0.1);
    model_row rows[3] = {0};
    const int row_of[4] = {0, 1, 0, 2};
    const float *first = rows_of(table, keys_of(4, keys));
    for (int i = 0; i < 4 * DIMENSION; i++)
        rows[row_of[i / DIMENSION]].w[i % DIMENSION] = first[i];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < MOST_SLOTS && optimizer != MU_TABLE_ADAM; i++)
            rows[k].s[i] = 0.1;
    for (int step = 0; step < STEPS; step++) {
        const int n = step % 2 == 0 ? 4 : 3; // key 1000 every second time only
        mu_tensor *given = gradients_of(n, step);
        double sums[3][DIMENSION] = {0};
        for (int i = 0; i < n * DIMENSION; i++)
            sums[row_of[i / DIMENSION]][i % DIMENSION] += ((const float *)mu__host_read(given))[i];
        mu_tensor *rate = step == 3 ? mu_constant(MU_F32, 0.5) : NULL;
        assert_int_equal(mu_embedding_table_apply_gradients(table, keys_of(n, keys), given, .learning_rate = rate),
                         MU_OK);
        for (int k = 0; k < (n == 4 ? 3 : 2); k++)
            model_update(optimizer, &rows[k], sums[k], step == 3 ? 0.5 : 0.1);
    }
    const float *last = rows_of(table, keys_of(4, keys));
    for (int i = 0; i < 4 * DIMENSION; i++)
        assert_float_equal(last[i], rows[row_of[i / DIMENSION]].w[i % DIMENSION], 2e-6);
}

static void test_optimizers_follow_their_formulas(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    check_optimizer("sgd", MU_TABLE_SGD);
    check_optimizer("adagrad", MU_TABLE_ADAGRAD);
    check_optimizer("rowwise_adagrad", MU_TABLE_ROWWISE_ADAGRAD);
    check_optimizer("adam", MU_TABLE_ADAM);
    mu_pool_close(pool);
}

// Updates of a 500th of a bfloat16's last place add up correctly on average.
static void test_bfloat16_rows_keep_small_updates(void **state)
{
    (void)state;
    enum { MANY = 400, TIMES = 500 };
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table =
        mu_embedding_table_new(DIMENSION, .dtype = MU_BF16, .optimizer = "sgd", .learning_rate = 1, .scale = 0.5);
    mu_tensor *keys = mu_range(MU_I64, 0, MANY, 1);
    const float *before = rows_of(table, keys);
    mu_tensor *small = mu_fill(MU_F32, 2, (int64_t[]){MANY, DIMENSION}, -1e-5);
    for (int i = 0; i < TIMES; i++)
        assert_int_equal(mu_embedding_table_apply_gradients(table, keys, small), MU_OK);
    const float *after = rows_of(table, keys);
    double moved = 0;
    for (int i = 0; i < MANY * DIMENSION; i++)
        moved += (after[i] - before[i]) / (MANY * DIMENSION);
    assert_float_equal(moved, TIMES * 1e-5, 2e-4);
    mu_pool_close(pool);
}

static bool has_row(mu_embedding_table *table, int64_t key)
{
    const int64_t before = mu_embedding_table_row_count(table);
    const float *row = rows_of(table, keys_of(1, &key));
    return mu_embedding_table_row_count(table) == before && row[0] != 0;
}

static void test_the_row_not_used_for_longest_goes(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .max_rows = 3, .optimizer = "sgd");
    for (int64_t key = 1; key <= 3; key++)
        mu_embedding_table_apply_gradients(table, keys_of(1, &key), gradients_of(1, (int)key));
    mu_tensor *first = mu_embedding_table_lookup(table, KEYS_OF(1)); // 2 is the oldest now
    mu_embedding_table_apply_gradients(table, KEYS_OF(4), gradients_of(1, 4));
    assert_int_equal(mu_embedding_table_row_count(table), 3);
    mu_tensor *again = mu_embedding_table_lookup(table, KEYS_OF(1));
    assert_memory_equal(mu__host_read(first), mu__host_read(again), DIMENSION * sizeof(float));
    mu_embedding_table *fresh = mu_embedding_table_new(DIMENSION, .max_rows = 3, .optimizer = "sgd");
    const float *anew = rows_of(table, KEYS_OF(2));
    assert_memory_equal(anew, rows_of(fresh, KEYS_OF(2)), DIMENSION * sizeof(float));
    mu_tensor *many = mu_embedding_table_lookup(table, mu_range(MU_I64, 100, 200, 1)); // more than there is room for
    assert_true(many && mu_embedding_table_row_count(table) == 3);
    mu_pool_close(pool);
}

static void test_rows_that_are_too_old_go(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .max_age = 3);
    rows_of(table, KEYS_OF(1, 2, 3));
    for (int i = 0; i < 2; i++)
        mu_embedding_table_apply_gradients(table, KEYS_OF(2), gradients_of(1, i));
    assert_true(mu_embedding_table_row_count(table) == 3 && has_row(table, 3));
    mu_embedding_table_apply_gradients(table, KEYS_OF(2), gradients_of(1, 2));
    assert_int_equal(mu_embedding_table_row_count(table), 2); // 1 was not used in three updates
    for (int i = 0; i < 3; i++)
        mu_embedding_table_apply_gradients(table, KEYS_OF(9), gradients_of(1, i));
    assert_int_equal(mu_embedding_table_row_count(table), 1);
    mu_pool_close(pool);
}

// Each update uses the row of the one before: no row is too old for the update that uses it.
static void test_a_row_in_use_is_not_too_old(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *aging = mu_embedding_table_new(DIMENSION, .max_age = 1, .optimizer = "sgd"),
                       *kept = mu_embedding_table_new(DIMENSION, .optimizer = "sgd", .name = "kept");
    for (int i = 0; i < 3; i++) {
        mu_embedding_table_apply_gradients(aging, KEYS_OF(7), gradients_of(1, i));
        mu_embedding_table_apply_gradients(kept, KEYS_OF(7), gradients_of(1, i));
    }
    const float *row = rows_of(aging, KEYS_OF(7));
    assert_memory_equal(row, rows_of(kept, KEYS_OF(7)), DIMENSION * sizeof(float));
    mu_pool_close(pool);
}

// Lookups alone keep a row, also if the table is not updated meanwhile.
static void test_lookups_are_uses(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .max_rows = 2, .optimizer = "sgd");
    mu_embedding_table_apply_gradients(table, KEYS_OF(1), gradients_of(1, 1));
    const float *first = rows_of(table, KEYS_OF(1));
    for (int64_t key = 2; key < 5; key++) {
        rows_of(table, keys_of(1, &key));
        assert_memory_equal(first, rows_of(table, KEYS_OF(1)), DIMENSION * sizeof(float));
    }
    mu_pool_close(pool);
}

// A new row that a lookup uses twice is used later than one that it makes in between.
static void test_a_key_twice_in_a_lookup(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table = mu_embedding_table_new(DIMENSION, .max_rows = 3, .optimizer = "sgd");
    mu_embedding_table_apply_gradients(table, KEYS_OF(9), gradients_of(1, 1));
    rows_of(table, KEYS_OF(1, 2, 1));
    const float *trained = rows_of(table, KEYS_OF(9));
    rows_of(table, KEYS_OF(3)); // for which 2 goes
    mu_embedding_table_lookup(table, KEYS_OF(2), .read_only = true);
    rows_of(table, KEYS_OF(4)); // for which 1 goes; 9, if 2 were there and used
    assert_memory_equal(trained, rows_of(table, KEYS_OF(9)), DIMENSION * sizeof(float));
    mu_pool_close(pool);
}

static void test_memory_stays_within_the_limits(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *limited = mu_embedding_table_new(64, .max_bytes = 8 << 20, .name = "limited");
    mu_status status = MU_OK;
    for (int i = 0; i < 100 && status == MU_OK; i++)
        status = mu_embedding_table_lookup(limited, mu_range(MU_I64, i * 1000, i * 1000 + 1000, 1)) ? MU_OK
                                                                                                    : mu_error_code();
    expect_error(MU_RESOURCE_EXHAUSTED, "embedding table 'limited' has no room for more rows");
    assert_true(mu_embedding_table_bytes(limited) <= 8 << 20 && mu_embedding_table_row_count(limited) > 9000);
    // A million keys through a table of ten thousand rows: its memory does not grow.
    mu_embedding_table *turning = mu_embedding_table_new(8, .max_rows = 10000);
    int64_t bytes = 0;
    for (int i = 0; i < 100; i++) {
        mu_pool *inner = mu_pool_open();
        mu_embedding_table_lookup(turning, mu_range(MU_I64, i * 10000, i * 10000 + 10000, 1));
        mu_pool_close(inner);
        if (i == 2)
            bytes = mu_embedding_table_bytes(turning);
    }
    assert_true(mu_embedding_table_row_count(turning) <= 10000 && mu_embedding_table_row_count(turning) > 8000);
    assert_int_equal(mu_embedding_table_bytes(turning), bytes);
    mu_pool_close(pool);
}

// Removals in the index leave everything else where it is found: against a plain list of what should be there.
static void test_many_rows_come_and_go(void **state)
{
    (void)state;
    enum { ROOM = 200, ROUNDS = 3000 };
    int64_t used[1000];
    mu_pool *pool = mu_pool_open();
    mu_embedding_table *table =
        mu_embedding_table_new(1, .max_rows = ROOM, .optimizer = "sgd", .learning_rate = 1, .initializer = "zeros");
    mu_tensor *one = mu_fill(MU_F32, 2, (int64_t[]){1, 1}, -1);
    double wanted[1000] = {0};
    uint64_t random = 1;
    memset(used, 0, sizeof used);
    for (int i = 1; i <= ROUNDS; i++) {
        mu_pool *inner = mu_pool_open();
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t key = (int64_t)(random >> 33) % 1000;
        int newer = 0;
        for (int k = 0; k < 1000; k++)
            newer += used[k] > used[key];
        wanted[key] = (used[key] && newer < ROOM ? wanted[key] : 0) + 1;
        used[key] = i;
        assert_int_equal(mu_embedding_table_apply_gradients(table, keys_of(1, &key), one), MU_OK);
        assert_true(rows_of(table, keys_of(1, &key))[0] == (float)wanted[key]);
        mu_pool_close(inner);
    }
    assert_int_equal(mu_embedding_table_row_count(table), ROOM);
    mu_pool_close(pool);
}

// ---- Many threads -------------------------------------------------------------------------------

enum { THREADS = 4, ROUNDS = 50, SHARED = 300 };

static void *update_often(void *arg)
{
    mu_table *table = arg;
    int64_t keys[SHARED];
    float gradients[SHARED * DIMENSION], rows[SHARED * DIMENSION];
    for (int i = 0; i < SHARED; i++)
        keys[i] = i * 7919;
    for (int i = 0; i < SHARED * DIMENSION; i++)
        gradients[i] = -1;
    for (int i = 0; i < ROUNDS; i++)
        if (mu__table_update(table, SHARED, keys, gradients, 1) != MU_OK ||
            mu__table_lookup(table, SHARED, keys, true, rows) != MU_OK)
            return NULL;
    return arg;
}

static void test_no_update_is_lost(void **state)
{
    (void)state;
    const mu_table_options options = {.dimension = DIMENSION,
                                      .dtype = MU_F32,
                                      .optimizer = MU_TABLE_SGD,
                                      .initializer = MU_TABLE_ZEROS,
                                      .learning_rate = 1};
    mu_table *table = mu__table_new(&options, "shared", NULL);
    pthread_t threads[THREADS];
    float row[DIMENSION];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, update_often, table), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_non_null(result);
    }
    for (int64_t i = 0; i < SHARED; i++) {
        assert_int_equal(mu__table_lookup(table, 1, &(int64_t){i * 7919}, false, row), MU_OK);
        assert_true(row[0] == THREADS * ROUNDS && row[DIMENSION - 1] == THREADS * ROUNDS);
    }
    assert_int_equal(mu__table_rows(table), SHARED);
    mu_release(table);
}

// ---- On servers ---------------------------------------------------------------------------------

typedef struct job {
    mu_strategy *strategy;
    mu_coordinator *coordinator; // NULL: no servers
    mu_embedding_table *table;
    mu_variable *kernel;
    mu_optimizer *optimizer;
    mu_function *step;
    mu_checkpoint *checkpoint;
} job;

static mu_value *train(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *keys = mu_at(arguments, 0), *rows = mu_embedding_table_lookup(j->table, keys);
    mu_tensor *y = mu_matmul(rows, mu_variable_read(j->kernel));
    mu_tensor *loss = mu_reduce_mean(mu_square(mu_subtract(y, mu_constant(MU_F32, 1))), MU_ALL_AXES);
    mu_value *kernel = mu_variables(j->kernel, MU_END);
    mu_value *gradients = mu_gradients(tape, loss, mu_list(rows, kernel, MU_END));
    mu_embedding_table_apply_gradients(j->table, keys, mu_at(gradients, 0));
    mu_apply_gradients(j->optimizer, mu_value_at(gradients, 1), .variables = kernel);
    return mu_of(loss);
}

static void begin(job *j, mu_strategy *strategy, mu_dtype dtype)
{
    *j = (job){.strategy = strategy};
    if (mu_strategy_ps_count(strategy) > 0)
        j->coordinator = mu_coordinator_new(strategy);
    mu_tensor *ones = mu_fill(MU_F32, 2, (int64_t[]){DIMENSION, 1}, 0.5);
    MU_SCOPE(strategy) {
        j->table = mu_embedding_table_new(DIMENSION, .optimizer = "adam", .learning_rate = 0.1, .dtype = dtype,
                                          .name = "users", .max_age = 100);
        j->kernel = mu_variable_new(ones, "kernel");
        j->optimizer = mu_sgd(.learning_rate = 0.1);
    }
    j->step = mu_function_new(train, j);
    j->checkpoint = mu_checkpoint_new(.variables = mu_variables(j->kernel, MU_END), .optimizer = j->optimizer,
                                      .embedding_tables = MU_EMBEDDING_TABLES(j->table));
    assert_non_null(j->checkpoint);
}

static double train_step(job *j, int i)
{
    int64_t keys[KEYS];
    for (int k = 0; k < KEYS; k++)
        keys[k] = ((int64_t)k * 7 + i * 3) % 50 * 1000003 - 12345;
    mu_value *batch = mu_list(keys_of(KEYS, keys), MU_END);
    mu_value *loss =
        j->coordinator ? mu_fetch(mu_schedule(j->coordinator, j->step, batch)) : mu_run(j->strategy, j->step, batch);
    if (!loss)
        fail_msg("step %d: %s", i, mu_error_message());
    return mu_scalar(loss);
}

static void test_servers_train_as_one_process(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers += 2)
        for (int half = 0; half < 2; half++) {
            mu_pool *pool = mu_pool_open();
            const mu_dtype dtype = half ? MU_BF16 : MU_F32;
            job served, single;
            begin(&served, strategy_of_servers(servers, NULL), dtype);
            begin(&single, mu_one_device_strategy("CPU:0"), dtype);
            double first = 0, loss = 0;
            for (int i = 0; i < 12; i++) {
                loss = train_step(&served, i);
                first = i == 0 ? loss : first;
                assert_true(loss == train_step(&single, i));
            }
            assert_true(loss < first / 10);
            assert_int_equal(mu_embedding_table_row_count(served.table), mu_embedding_table_row_count(single.table));
            assert_true(mu_embedding_table_bytes(served.table) > 0);
            mu_pool_close(pool);
        }
}

static void check_files(const char *a, const char *b)
{
    mu_tensor_file *left = mu_tensor_file_open(a), *right = mu_tensor_file_open(b);
    assert_true(left && right && mu_tensor_file_count(left) == 7);
    for (int i = 0; i < 7; i++) {
        const int k = mu_tensor_file_find(right, mu_tensor_file_name(left, i));
        mu_tensor *x = mu_tensor_file_read(left, i), *y = k >= 0 ? mu_tensor_file_read(right, k) : NULL;
        const mu_spec spec = mu__spec_of(x);
        if (!y || !mu__shape_equal(&x->shape, &y->shape) ||
            memcmp(mu__host_read(x), mu__host_read(y), mu__spec_bytes(&spec)) != 0)
            fail_msg("'%s' differs", mu_tensor_file_name(left, i));
    }
}

static void test_checkpoints_go_to_other_numbers_of_servers(void **state)
{
    (void)state;
    job j;
    mu_pool *pool = mu_pool_open();
    begin(&j, strategy_of_servers(3, NULL), MU_F32);
    for (int i = 0; i < 3; i++)
        train_step(&j, i);
    assert_int_equal(mu_checkpoint_save(j.checkpoint, "three"), MU_OK);
    train_step(&j, 3);
    assert_int_equal(mu_checkpoint_save(j.checkpoint, "four"), MU_OK);
    mu_pool_close(pool);
    for (int servers = 0; servers < 6; servers += servers == 2 ? 3 : 1) {
        pool = mu_pool_open();
        begin(&j, servers ? strategy_of_servers(servers, NULL) : mu_one_device_strategy("CPU:0"), MU_F32);
        mu_embedding_table_lookup(j.table, KEYS_OF(77)); // replaced
        assert_int_equal(mu_checkpoint_restore(j.checkpoint, "three"), MU_OK);
        assert_int_equal(mu_checkpoint_save(j.checkpoint, "restored"), MU_OK);
        check_files("three", "restored");
        train_step(&j, 3);
        assert_int_equal(mu_checkpoint_save(j.checkpoint, "trained"), MU_OK);
        check_files("four", "trained");
        mu_pool_close(pool);
    }
}

static void test_mistakes_are_named(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_embedding_table *table = NULL, *same = NULL;
    assert_null(mu_embedding_table_new(0));
    expect_error(MU_INVALID_ARGUMENT, "the dimension is 0");
    assert_null(mu_embedding_table_new(4, .optimizer = "lion"));
    expect_error(MU_INVALID_ARGUMENT, ".optimizer is \"lion\"; it must be one of \"sgd\"");
    assert_null(mu_embedding_table_new(4, .dtype = MU_F64));
    expect_error(MU_INVALID_ARGUMENT, "MU_F32 or MU_BF16");
    MU_SCOPE(strategy) {
        table = mu_embedding_table_new(DIMENSION, .name = "t");
        same = mu_embedding_table_new(DIMENSION, .name = "t");
    }
    assert_null(same);
    expect_error(MU_ALREADY_EXISTS, "embedding table 't'");
    assert_null(mu_embedding_table_lookup(table, mu_constant(MU_F32, 1)));
    expect_error(MU_INVALID_ARGUMENT, "they must be int64 or int32");
    mu_embedding_table_apply_gradients(table, KEYS_OF(1, 2), gradients_of(1, 0));
    expect_error(MU_INVALID_ARGUMENT, "for these keys they must be float32[2, 5]");
    mu_checkpoint *checkpoint = mu_checkpoint_new(.embedding_tables = MU_EMBEDDING_TABLES(table));
    mu_embedding_table_lookup(table, KEYS_OF(1));
    assert_int_equal(mu_checkpoint_save(checkpoint, "adagrad"), MU_OK);
    mu_embedding_table *sgd = mu_embedding_table_new(DIMENSION, .name = "t", .optimizer = "sgd");
    mu_checkpoint_restore(mu_checkpoint_new(.embedding_tables = MU_EMBEDDING_TABLES(sgd)), "adagrad");
    expect_error(MU_INVALID_ARGUMENT, "'t/slots' in the checkpoint 'adagrad' is float32[1, 5]");
    mu_pool_close(pool);
}

// A process with the key may still send anything.
static void test_hostile_requests_are_refused(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *server = mu_server_create_local_server(true);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_server_target(server) + strlen("muster://"));
    mu_tensor *name = mu_tensor_new(MU_U8, 1, (int64_t[]){1}, "t"), *no = mu_constant(MU_BOOL, 0);
    const int64_t ints[8] = {4, MU_F32, MU_TABLE_ADAM, 0, 1, 0, 0, 0}, wrong[8] = {INT64_MAX, 99, -1, 7, 0, -1, 0, 0};
    const double reals[6] = {.05, .1, .1, .9, .999, 1e-7}, odd[6] = {NAN, NAN, 0, 2, 2, -1};
#define INTS(x)  mu_tensor_new(MU_I64, 1, (int64_t[]){8}, x)
#define REALS(x) mu_tensor_new(MU_F64, 1, (int64_t[]){6}, x)
#define REFUSED(code, method, ...) \
    expect_result(mu_rpc_call(client, "muster.table." method, mu_list(__VA_ARGS__, MU_END)), code, "")
    REFUSED(MU_INVALID_ARGUMENT, "create", name, INTS(wrong), REALS(reals));
    REFUSED(MU_INVALID_ARGUMENT, "create", name, INTS(ints), REALS(odd));
    REFUSED(MU_INVALID_ARGUMENT, "create", name, REALS(reals), INTS(ints));
    REFUSED(MU_NOT_FOUND, "lookup", name, KEYS_OF(1), no);
    REFUSED(MU_OK, "create", name, INTS(ints), REALS(reals));
    REFUSED(MU_INVALID_ARGUMENT, "lookup", name, no, no);
    REFUSED(MU_INVALID_ARGUMENT, "lookup", name, KEYS_OF(1), KEYS_OF(1));
    REFUSED(MU_INVALID_ARGUMENT, "update", name, KEYS_OF(1, 2), mu_zeros(MU_F32, 2, (int64_t[]){1, 4}), no);
    REFUSED(MU_INVALID_ARGUMENT, "import", name, KEYS_OF(1), KEYS_OF(1), KEYS_OF(1), KEYS_OF(1));
    REFUSED(MU_OUT_OF_RANGE, "export", name, mu_constant(MU_I64, 1000));
    REFUSED(MU_INVALID_ARGUMENT, "clear", name, no);
    mu_tensor *infinite = mu_fill(MU_F32, 2, (int64_t[]){1, 4}, INFINITY);
    REFUSED(MU_OK, "update", name, KEYS_OF(1), infinite, mu_constant(MU_F64, NAN));
    REFUSED(MU_OK, "state", name);
    REFUSED(MU_OK, "delete", name);
    REFUSED(MU_NOT_FOUND, "state", name);
    mu_pool_close(pool);
}

static int start(void **state) { return start_with_key(state) == 0 ? scratch_enter(state) : -1; }
static int end(void **state) { return scratch_leave(state) != 0 ? -1 : end_library(state); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_made_on_first_use),
        cmocka_unit_test(test_first_values_have_their_distribution),
        cmocka_unit_test(test_optimizers_follow_their_formulas),
        cmocka_unit_test(test_bfloat16_rows_keep_small_updates),
        cmocka_unit_test(test_the_row_not_used_for_longest_goes),
        cmocka_unit_test(test_rows_that_are_too_old_go),
        cmocka_unit_test(test_a_row_in_use_is_not_too_old),
        cmocka_unit_test(test_lookups_are_uses),
        cmocka_unit_test(test_a_key_twice_in_a_lookup),
        cmocka_unit_test(test_memory_stays_within_the_limits),
        cmocka_unit_test(test_many_rows_come_and_go),
        cmocka_unit_test(test_no_update_is_lost),
        cmocka_unit_test(test_servers_train_as_one_process),
        cmocka_unit_test(test_checkpoints_go_to_other_numbers_of_servers),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_hostile_requests_are_refused),
    };
    return cmocka_run_group_tests_name("coordinator/embedding_table", tests, start, end);
}
