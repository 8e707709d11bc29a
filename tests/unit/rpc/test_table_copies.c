// Embedding tables as a part of a store: a table that was saved and loaded answers as the original does, bit for bit,
// and evicts the same rows; both share the budget.
#include "ops/state/embedding_table.h"
#include "rpc/remote/row_route.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"
#include "rpc_test.h"

#include <muster/ops.h>

enum { DIMENSION = 3, KEYS = 200, BATCH = 7, CALLS = 200, MOST_ROWS = 64 };

static const mu_store_method *method_of(const char *name)
{
    for (int i = 0; i < mu__tables_part.n_methods; i++)
        if (strcmp(mu__tables_part.methods[i].name, name) == 0)
            return &mu__tables_part.methods[i];
    fail_msg("no method %s", name);
    return NULL;
}

static mu_value *call(void *part, const char *name, mu_value *arguments)
{
    const mu_store_method *method = method_of(name);
    if (method->fn != NULL)
        return method->fn(arguments, part);
    mu_value *value = NULL;
    mu_message *message = method->writer(arguments, part);
    if (message != NULL)
        assert_int_equal(mu__message_value(message, 0, &value), MU_OK);
    mu_release(message);
    return mu__give(value);
}

static mu_value *table_arguments(const char *name, const mu_table_options *o)
{
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS;
    return mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 1, &n_ints, &o->dimension),
                   mu_tensor_new(MU_F64, 1, &n_reals, &o->scale), MU_END);
}

static mu_table_options options(int64_t max_rows, int64_t max_age)
{
    return (mu_table_options){.dimension = DIMENSION,
                              .dtype = MU_BF16,
                              .optimizer = MU_TABLE_ADAM,
                              .seed = 5,
                              .max_rows = max_rows,
                              .max_age = max_age,
                              .scale = 0.5,
                              .learning_rate = 0.1,
                              .beta_1 = 0.9,
                              .beta_2 = 0.99,
                              .epsilon = 1e-7};
}

// Call i of a series, the same for every table: most are lookups and updates of keys that come and go.
static mu_value *one_call(void *part, int i)
{
    int64_t keys[BATCH];
    const int64_t n = BATCH, sizes[] = {BATCH, DIMENSION};
    float gradients[BATCH * DIMENSION];
    for (int k = 0; k < BATCH; k++)
        keys[k] = (i * 31 + k * k * 17 + i * i) % KEYS;
    for (int k = 0; k < BATCH * DIMENSION; k++)
        gradients[k] = (float)((i * 13 + k * 7) % 11 - 5) / 8;
    mu_value *name = mu__text_value("t");
    mu_tensor *which = mu_tensor_new(MU_I64, 1, &n, keys);
    if (i % 3 == 0)
        return call(part, "muster.table.update",
                    mu_list(name, which, mu_tensor_new(MU_F32, 2, sizes, gradients), mu_constant(MU_F64, -1), MU_END));
    return call(part, "muster.table.lookup", mu_list(name, which, mu_constant(MU_BOOL, i % 3 == 2), MU_END));
}

static void expect_same(const mu_value *a, const mu_value *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a == NULL)
        return;
    mu_message *left = mu__message_of(a, "a"), *right = mu__message_of(b, "b");
    assert_int_equal(left->bytes, right->bytes);
    assert_memory_equal(left->data, right->data, left->bytes);
    mu_release(left);
    mu_release(right);
}

static void *copy_of(void *part, mu_kept *kept)
{
    void *copy = mu__tables_part.make(kept);
    const mu_value *rows = mu__tables_part.save(part);
    for (int i = 0; i < mu_value_count(rows); i++) {
        char *name = NULL;
        const mu_value *row = mu_value_at(rows, i);
        assert_int_equal(mu__value_text(mu_value_at(row, 0), "a name", &name), MU_OK);
        assert_int_equal(mu__tables_part.load(copy, name, mu_value_at(row, 1)), MU_OK);
        mu__free(name);
    }
    return copy;
}

static void check_copy(int64_t max_rows, int64_t max_age)
{
    const mu_table_options o = options(max_rows, max_age);
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    void *original = mu__tables_part.make(kept);
    call(original, "muster.table.create", table_arguments("t", &o));
    call(original, "muster.table.create", table_arguments("empty", &o));
    for (int i = 0; i < CALLS; i++)
        one_call(original, i);
    void *copy = copy_of(original, kept);
    for (int i = CALLS; i < 2 * CALLS; i++) {
        mu_pool *pool = mu_pool_open();
        expect_same(one_call(original, i), one_call(copy, i));
        mu_pool_close(pool);
    }
    expect_same(mu__tables_part.save(original), mu__tables_part.save(copy));
    assert_non_null(call(copy, "muster.table.state", mu_list(mu__text_value("empty"), MU_END)));
    mu_release(original);
    mu_release(copy);
    assert_int_equal(kept->budget.used, 0);
    mu_release(kept);
}

static void test_a_copy_answers_as_the_original(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    check_copy(MOST_ROWS, 0);
    check_copy(0, 12);
    check_copy(MOST_ROWS, 30);
    mu_pool_close(pool);
}

// Tables and variables of one process use the same budget, whichever store they are in.
static void test_one_budget(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_table_options o = options(0, 0);
    mu_kept *kept = mu__kept_new(200000);
    void *tables = mu__tables_part.make(kept), *variables = mu__variables_part.make(kept);
    const char *names[] = {"small", "large", "middle", "tiny"};
    const int64_t sizes[] = {20, 200, 100, 1}, huge = 60000;
    for (int i = 0; i < 4; i++)
        assert_int_equal(mu__variables_part.load(variables, names[i], mu_of(mu_tensor_new(MU_F32, 1, &sizes[i], NULL))),
                         MU_OK);
    call(tables, "muster.table.create", table_arguments("t", &o));
    for (int i = 0; i < 3 && !mu__pending(); i++)
        one_call(tables, i);
    expect_error(MU_RESOURCE_EXHAUSTED, "embedding table 't' has no room for more rows: this server keeps");
    mu__variables_part.load(variables, "huge", mu_of(mu_tensor_new(MU_F32, 1, &huge, NULL)));
    expect_error(MU_RESOURCE_EXHAUSTED, ", variable 'large' 800, variable 'middle' 400; add servers");
    mu_release(tables);
    mu_release(variables);
    mu_release(kept);
    mu_pool_close(pool);
}

static void first_part(const void *arg, int64_t n, const int64_t *ids, uint32_t *part, int64_t *local)
{
    (void)arg;
    memset(part, 0, sizeof *part * (size_t)n);
    memcpy(local, ids, sizeof *ids * (size_t)n);
}

// Indices are numbers of 32 bits.
static void test_more_rows_than_places(void **state)
{
    (void)state;
    mu_row_route route;
    assert_int_equal(mu__row_route(&route, 2, (int64_t)1 << 32, NULL, first_part, NULL), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "4294967296 rows in one request to several servers; at most 4294967295");
    mu__row_route_free(&route);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_answers_as_the_original),
        cmocka_unit_test(test_one_budget),
        cmocka_unit_test(test_more_rows_than_places),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
