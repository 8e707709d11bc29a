// A table without room for more rows: the call fails half way, which the copy cannot repeat. The primary answers again
// once the coordinator has given it a new copy, and if a server ends after that, nothing is lost. Also a table that is
// released: its servers and their copies delete it.
#include "servers_test.h"

enum { DIMENSION = 16, KEYS = 6000, SERVERS = 2 };

static mu_tensor *all_rows(mu_embedding_table *table)
{
    mu_tensor *rows = mu_embedding_table_lookup(table, mu_range(MU_I64, 0, KEYS, 1), .read_only = true);
    if (rows == NULL)
        fail_msg("%s", mu_error_message());
    return rows;
}

static void all_rows_made(mu_embedding_table *table)
{
    assert_non_null(mu_embedding_table_lookup(table, mu_range(MU_I64, 0, KEYS, 1)));
}

static void test_no_room_for_rows(void **state)
{
    mu_server *servers[SERVERS];
    mu_embedding_table *table = NULL;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_with_copies(servers);
    MU_SCOPE(strategy)
        table = mu_embedding_table_new(DIMENSION, .max_bytes = 400000, .learning_rate = 0.1);
    mu_tensor *gradients = mu_fill(MU_F32, 2, (int64_t[]){KEYS, DIMENSION}, 0.5);
    mu_embedding_table_apply_gradients(table, mu_range(MU_I64, 0, KEYS, 1), gradients);
    expect_error(MU_RESOURCE_EXHAUSTED, "has no room for more rows");
    const int64_t n = mu_embedding_table_row_count(table);
    assert_true(n > 100 && n < KEYS);
    wait_for_copies(strategy);
    mu_tensor *before = all_rows(table);
    assert_int_equal(mu_server_stop(servers[0]), MU_OK);
    mu_tensor *after = all_rows(table);
    assert_memory_equal(mu_tensor_data(before), mu_tensor_data(after), sizeof(float) * KEYS * DIMENSION);
    assert_int_equal(mu_embedding_table_row_count(table), n);
    assert_int_equal(recovery_of(strategy).failovers, 1);
    mu_pool_close(pool);
}

// ---- Released tables ----------------------------------------------------------------------------

static mu_embedding_table *make_table(mu_strategy *strategy)
{
    mu_embedding_table *table = NULL;
    MU_SCOPE(strategy)
        table = mu_embedding_table_new(DIMENSION, .name = "t");
    if (table == NULL)
        fail_msg("%s", mu_error_message());
    return table;
}

// The name is free again, and the rows are gone.
static void make_twice(mu_strategy *strategy)
{
    mu_pool *pool = mu_pool_open();
    all_rows_made(make_table(strategy));
    mu_pool_close(pool);
    pool = mu_pool_open();
    assert_int_equal(mu_embedding_table_row_count(make_table(strategy)), 0);
    mu_pool_close(pool);
}

static void test_released_tables(void **state)
{
    mu_server *servers[SERVERS];
    (void)state;
    mu_pool *pool = mu_pool_open();
    make_twice(strategy_of_servers(SERVERS, NULL));
    mu_strategy *strategy = strategy_with_copies(servers);
    make_twice(strategy);
    mu_embedding_table *table = make_table(strategy);
    wait_for_copies(strategy);
    assert_int_equal(mu_server_stop(servers[0]), MU_OK);
    assert_int_equal(mu_embedding_table_row_count(table), 0); // the copy has deleted it too
    all_rows_made(table);
    assert_int_equal(mu_embedding_table_row_count(table), KEYS);
    mu_pool_close(pool);
}

static int start(void **state)
{
    setenv("MUSTER_HEARTBEAT", "2", 1);
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_room_for_rows), cmocka_unit_test(test_released_tables)};
    return cmocka_run_group_tests(tests, start, end_library);
}
