// Errors of objects on servers begin with the function that the program called and with the program's own name of the
// object; the library's method and the server's address follow after the reason. The servers are in this process.
#include "rpc/rpc.h"

#include "accumulators_test.h"

typedef struct things {
    mu_strategy *strategy;
    mu_variable *w;
    mu_embedding_table *table;
    mu_accumulator *sums;
} things;

static mu_tensor *ids(void)
{
    const int64_t n = 2, numbers[] = {0, 1};
    return mu_tensor_new(MU_I64, 1, &n, numbers);
}

static mu_tensor *rows(void)
{
    const int64_t sizes[] = {2, 2};
    return mu_zeros(MU_F32, 2, sizes);
}

static void read_w(const things *t) { mu_variable_read(t->w); }
static void assign_w(const things *t) { mu_variable_assign(t->w, rows()); }
static void add_to_w(const things *t) { mu_variable_assign_add(t->w, rows()); }
static void look_up_w(const things *t) { mu_variable_gather(t->w, ids()); }
static void scatter_to_w(const things *t) { mu_variable_scatter_add(t->w, ids(), rows()); }
static void look_up(const things *t) { mu_embedding_table_lookup(t->table, ids()); }
static void update(const things *t) { mu_embedding_table_apply_gradients(t->table, ids(), rows()); }
static void count_rows(const things *t) { mu_embedding_table_row_count(t->table); }
static void add_gradient(const things *t) { mu_accumulator_apply_grad(t->sums, row(1, 2), 0); }
static void take_gradient(const things *t) { mu_accumulator_take_grad(t->sums, 1, .timeout_seconds = 1); }
static void close_sums(const things *t) { mu_accumulator_close(t->sums); }
static void make_variable(const things *t)
{
    MU_SCOPE(t->strategy)
        mu_variable_new(rows(), "new");
}
static void make_table(const things *t)
{
    MU_SCOPE(t->strategy)
        mu_embedding_table_new(2, .name = "more");
}
static void make_accumulator(const things *t)
{
    MU_SCOPE(t->strategy)
        mu_conditional_accumulator(MU_F64, .name = "others");
}

static things make_things(mu_strategy *strategy)
{
    things t = {.strategy = strategy};
    MU_SCOPE(strategy) {
        t.w = mu_variable_new(rows(), "w");
        t.table = mu_embedding_table_new(2, .name = "clicks");
        t.sums = mu_conditional_accumulator(MU_F64, .name = "sums");
    }
    if (t.w == NULL || t.table == NULL || t.sums == NULL)
        fail_msg("%s", mu_error_message());
    return t;
}

// "BEGIN…why… ("METHOD" at localhost:PORT)", with what the library adds on further lines.
static void expect_text(mu_status code, const char *begin, const char *method)
{
    char called[100];
    const mu_error error = mu_error_take();
    snprintf(called, sizeof called, " (\"%s\" at localhost:", method);
    const char *at = error.message != NULL ? strstr(error.message, called) : NULL;
    if (error.code != code || at == NULL || strncmp(error.message, begin, strlen(begin)) != 0 ||
        at[strcspn(at, "\n") - 1] != ')' || at - error.message < (long)strlen(begin) + 10)
        fail_msg("expected %s with \"%s… (\"%s\" at …)\", got %s: %s", mu_status_name(code), begin, method,
                 mu_status_name(error.code), error.message);
    if (strstr(at, ", parameter server 0)") == NULL && strstr(at, ", parameter server 1)") == NULL)
        fail_msg("which server is it? %s", error.message);
}

typedef struct request {
    void (*call)(const things *t);
    const char *begin, *method;
} request;

// On what the servers have, and on what is new there.
static const request old_things[] = {
    {read_w, "read_variable of variable 'w': ", "muster.apply"},
    {assign_w, "assign_variable of variable 'w': ", "muster.apply"},
    {add_to_w, "assign_add_variable of variable 'w': ", "muster.apply"},
    {look_up_w, "gather_variable of variable 'w': ", "muster.variable.rows"},
    {scatter_to_w, "scatter_variable of variable 'w': ", "muster.apply"},
    {look_up, "embedding_table_lookup of embedding table 'clicks': ", "muster.table.lookup"},
    {update, "embedding_table_update of embedding table 'clicks': ", "muster.table.update"},
    {count_rows, "state of embedding table 'clicks': ", "muster.table.state"},
    {add_gradient, "resource_accumulator_apply_gradient of accumulator 'sums': ", "muster.apply"},
    {take_gradient, "taking a gradient of accumulator 'sums': ", "muster.accumulator.take"},
};
static const request new_things[] = {
    // and what is done already on a server that has lost it
    {close_sums, "closing accumulator 'sums': ", "muster.accumulator.close"},
    {make_variable, "creating variable 'new': ", "muster.variable.create"},
    {make_table, "creating embedding table 'more': ", "muster.table.create"},
    {make_accumulator, "creating accumulator 'others': ", "muster.accumulator.create"},
};

static void expect_unavailable(const things *t, const request *r)
{
    r->call(t);
    expect_text(MU_UNAVAILABLE, r->begin, r->method);
}

static void test_a_server_that_is_away(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *servers[2];
    things t = make_things(strategy_of_two(servers, 0));
    for (int i = 0; i < 2; i++)
        mu_server_stop(servers[i]);
    for (size_t i = 0; i < MU_COUNT(old_things); i++)
        expect_unavailable(&t, &old_things[i]);
    for (size_t i = 0; i < MU_COUNT(new_things); i++)
        expect_unavailable(&t, &new_things[i]);
    mu_pool_close(pool);
}

// ---- A server that has started again ------------------------------------------------------------

static void start_again(mu_server *server)
{
    char text[100];
    snprintf(text, sizeof text, "{\"local\": [\"%s\"]}", mu_server_target(server) + strlen("muster://"));
    assert_int_equal(mu_server_stop(server), MU_OK);
    assert_non_null(mu_server_new(mu_simple_cluster_resolver(mu_cluster_spec_parse(text))));
}

// Steps and other calls name a server in the same way: by its number in the cluster and its address.
enum { N_LOST = 3 };
static const char *const lost_texts[N_LOST] = {
    "parameter server ", " at localhost:",
    " has started again, and its variables and tables are lost; start the program again, and restore a checkpoint"};

// Calls until the client is connected again.
static void expect_lost(const things *t, const request *r)
{
    mu_error error;
    do {
        r->call(t);
        error = mu_error_take();
    } while (error.code == MU_UNAVAILABLE && strstr(error.message, "cannot be reached") != NULL);
    mu_fail(error.code, "%s", error.message);
    for (int i = 0; i < N_LOST; i++)
        if (strstr(mu_error_message(), lost_texts[i]) == NULL)
            fail_msg("no \"%s\" in: %s", lost_texts[i], mu_error_message());
    expect_text(MU_UNAVAILABLE, r->begin, r->method);
}

static mu_value *read_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_variable_read(((things *)arg)->w));
}

static void test_steps_name_a_server_like_other_calls(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *servers[2];
    things t = make_things(strategy_of_two(servers, 0));
    mu_coordinator *c = mu_coordinator_new(t.strategy, .ignore_transient_ps_failures = 0);
    mu_function *step = mu_function_new(read_step, &t);
    assert_non_null(mu_fetch(mu_schedule(c, step, NULL)));
    start_again(servers[0]);
    mu_error error;
    do {
        assert_null(mu_fetch(mu_schedule(c, step, NULL)));
        mu_error_take();
        (void)mu_join(c);
        error = mu_error_take();
        if (error.code == MU_OK)
            break;
        if (strstr(error.message, "has started again") == NULL)
            assert_non_null(strstr(error.message, ", parameter server 0)"));
    } while (strstr(error.message, "has started again") == NULL);
    assert_int_equal(error.code, MU_UNAVAILABLE);
    for (int i = 0; i < N_LOST; i++)
        assert_non_null(strstr(error.message, lost_texts[i]));
    mu_pool_close(pool);
}

// What a server has lost is not a name that was never there: who takes NOT_FOUND of a restored checkpoint for the first
// run of a program would train again from the beginning. What is new can be made there.
static void test_a_server_that_has_started_again(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *servers[2];
    things t = make_things(strategy_of_two(servers, 0));
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(t.w, MU_END));
    assert_int_equal(mu_checkpoint_save(checkpoint, "served_errors.safetensors"), MU_OK);
    for (int i = 0; i < 2; i++)
        start_again(servers[i]);
    for (size_t i = 0; i < MU_COUNT(old_things); i++)
        expect_lost(&t, &old_things[i]);
    assert_int_equal(mu_checkpoint_restore(checkpoint, "served_errors.safetensors"), MU_UNAVAILABLE);
    mu_error_take();
    unlink("served_errors.safetensors");
    for (size_t i = 0; i < MU_COUNT(new_things); i++) {
        new_things[i].call(&t);
        assert_int_equal(mu_error_take().code, MU_OK);
    }
    mu_pool_close(pool);
}

// The server's own message: with copies, for requests that pass through another method, and without either.
static void test_what_a_server_refuses(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        mu_pool *pool = mu_pool_open();
        mu_server *servers[2];
        things t = make_things(strategy_of_two(servers, copies));
        mu_accumulator_take_grad(t.sums, 1, .timeout_seconds = 0.01);
        expect_text(MU_DEADLINE_EXCEEDED, "taking a gradient of accumulator 'sums': ", "muster.accumulator.take");
        mu_pool_close(pool);
    }
}

// A method of the program's own is the name that the program knows, so it stays in front.
static void test_texts(void **state)
{
    static const struct {
        const char *method, *why, *text;
    } table[] = {
        {"f", "it failed", "\"f\" at a:1: it failed"},
        {"muster.apply", "it failed", "it failed (\"muster.apply\" at a:1)"},
        {"muster.apply", "it failed\nin f", "it failed (\"muster.apply\" at a:1)\nin f"},
        {"muster.function.run", "it failed (\"muster.apply\" at b:2)",
         "it failed (\"muster.apply\" at b:2) (\"muster.function.run\" at a:1)"},
    };
    static const char end[] = "x (\"muster.apply\" at b:2); the function may have run (\"muster.function.run\" at a:1)";
    char text[MU_FAILURE_TEXT], why[800];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_string_equal(mu__call_failure(text, table[i].method, "a:1", table[i].why), table[i].text);
    // However long the reason is, both addresses are there.
    memset(why, 'x', sizeof why);
    strcpy(why + 700, " (\"muster.apply\" at b:2); the function may have run");
    mu__call_failure(text, "muster.function.run", "a:1", why);
    assert_non_null(strstr(text, end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_server_that_is_away),
                                       cmocka_unit_test(test_a_server_that_has_started_again),
                                       cmocka_unit_test(test_steps_name_a_server_like_other_calls),
                                       cmocka_unit_test(test_what_a_server_refuses), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
