// Acknowledged updates that are lost when a store goes back to snapshots: each is counted once, at the time that lost
// it, also when a client tells of it only after the store has gone back again.
#include "stores_test.h"

#include "../base/base_test.h"

#include <stdatomic.h>

enum { SERVERS = 3, LIMIT_S = 20, SNAPSHOT_AT = 40 };

// ---- The list -----------------------------------------------------------------------------------

static void expect_lost(mu_restores *list, int64_t known, int64_t epoch, const int64_t lost[])
{
    mu__restores_count(list, known, epoch);
    for (int i = 0; i < list->n; i++)
        assert_int_equal(list->items[i].lost, lost[i]);
}

static void test_the_first_time_after_the_epoch_counts(void **state)
{
    mu_restores list = {0};
    (void)state;
    mu__restores_add(&list, 10, 5);
    mu__restores_add(&list, 20, 9);
    mu__restores_add(&list, 30, 9);
    expect_lost(&list, 8, 4, (int64_t[]){3, 0, 0});   // 9 would seem to have it
    expect_lost(&list, 7, 9, (int64_t[]){3, 0, 0});   // another client that knows of the same
    expect_lost(&list, 11, 10, (int64_t[]){3, 2, 0}); // of updates after the first time
    expect_lost(&list, 12, 20, (int64_t[]){3, 2, 3}); // whose numbers are the same again
    expect_lost(&list, 50, 30, (int64_t[]){3, 2, 3}); // of what was not lost
    expect_lost(&list, 12, 4, (int64_t[]){7, 2, 3});
    expect_lost(&list, INT64_MAX, 4, (int64_t[]){MU_STATE_MOST, 2, 3});
}

// A coordinator gives no list in which a later snapshot is older, but a list from elsewhere may be one.
static void test_a_later_time_may_go_back_further(void **state)
{
    mu_restores list = {0};
    (void)state;
    mu__restores_add(&list, 10, 9);
    mu__restores_add(&list, 20, 5);
    expect_lost(&list, 12, 4, (int64_t[]){3, 4});
}

static void test_many_times(void **state)
{
    mu_restores list = {0};
    (void)state;
    for (int i = 1; i <= MU_MOST_RESTORES + 2; i++)
        mu__restores_add(&list, 10 * i, 5);
    assert_int_equal(list.n, MU_MOST_RESTORES);
    assert_int_equal(list.forgotten, 20);
    assert_int_equal(list.items[0].epoch, 30);
    assert_int_equal(list.items[MU_MOST_RESTORES - 1].epoch, 10 * (MU_MOST_RESTORES + 2));
    mu__restores_count(&list, 8, 19);
    assert_int_equal(list.items[0].lost, 0); // it may have been counted at a time that is forgotten
    mu__restores_count(&list, 8, 20);
    assert_int_equal(list.items[0].lost, 3);
}

static void test_what_was_counted_stays(void **state)
{
    mu_restores own = {0}, given = {0};
    (void)state;
    mu__restores_add(&own, 10, 5);
    mu__restores_add(&own, 15, 5);
    mu__restores_count(&own, 8, 4);
    mu__restores_count(&own, 7, 12);
    mu__restores_add(&given, 10, 5);
    mu__restores_add(&given, 20, 6);
    mu__restores_take(&own, &given);
    assert_int_equal(own.n, 2);
    assert_int_equal(own.items[0].lost, 3);
    assert_int_equal(own.items[1].lost, 0);
}

static void test_as_a_value(void **state)
{
    mu_restores list = {0}, read;
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int i = 1; i <= MU_MOST_RESTORES + 1; i++)
        mu__restores_add(&list, 10 * i, i);
    assert_int_equal(mu__restores_of(mu__restores_value(&list), 10000, &read), MU_OK);
    assert_memory_equal(&read, &list, sizeof list);
    int64_t long_list[3 + 2 * MU_MOST_RESTORES] = {0};
    for (int i = 0; i <= MU_MOST_RESTORES; i++)
        long_list[1 + 2 * i] = i + 1;
    const struct {
        int n;
        const int64_t *numbers;
    } bad[] = {{2, (int64_t[]){0, 1}},          {3, (int64_t[]){0, 1, -1}}, // a sequence number
               {3, (int64_t[]){1, 1, 0}},                                   // an epoch that is not above the one before
               {5, (int64_t[]){0, 2, 0, 2, 0}}, {1, (int64_t[]){-1}},
               {3, (int64_t[]){0, 100, 0}}, // not before the order
               {1, (int64_t[]){100}},           {3 + 2 * MU_MOST_RESTORES, long_list}};
    for (size_t i = 0; i < MU_COUNT(bad); i++) {
        assert_int_equal(mu__restores_of(mu__numbers_value(bad[i].numbers, bad[i].n), 100, &read), MU_INVALID_ARGUMENT);
        mu_error_take();
    }
    assert_int_equal(mu__restores_of(mu_of(mu_constant(MU_F32, 1)), 100, &read), MU_INVALID_ARGUMENT);
    mu_error_take();
    mu_pool_close(pool);
}

// ---- A server -----------------------------------------------------------------------------------

static int64_t cut_store(env *e, int64_t epoch, int64_t cut, const char *folder)
{
    const int64_t head[4] = {0, epoch, (int64_t)mu_rpc_client_server(e->coordinator), cut};
    int64_t at = -1;
    const mu_value *value = mu_rpc_result_value(mu_rpc_call(
        e->coordinator, "muster.store.cut",
        mu_list(mu__numbers_value(head, 4), mu__text_value(folder), mu__numbers_value(&(int64_t){0}, 1), MU_END)));
    assert_non_null(value);
    assert_int_equal(mu__numbers_of(value, &at, 1), MU_OK);
    return at;
}

static mu_value *order_back(env *e, int64_t epoch, int64_t cut, const char *folder, const mu_restores *before)
{
    const int64_t head[MU_N_LEAD] = {0, epoch, MU_ORDER_RESTORE, 0, (int64_t)mu_rpc_client_server(e->coordinator),
                                     0, cut};
    mu_value *order = mu_list(mu__numbers_value(head, MU_N_LEAD), mu__text_value(""), mu__text_value(folder),
                              mu__restores_value(before), MU_END);
    return mu_rpc_result_value(mu_rpc_call(e->coordinator, "muster.store.lead", order));
}

static void go_back(env *e, int64_t epoch, int64_t cut, const char *folder, const mu_restores *before)
{
    assert_non_null(order_back(e, epoch, cut, folder, before));
    renew_lease(e);
}

static void make_variables(env *e, int64_t epoch, int64_t cut, const char *letter, int n)
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", letter, i);
        expect_answer(ask(e, e->coordinator, epoch, cut, "muster.variable.create",
                          mu_list(mu__text_value(name), mu_constant(MU_F32, 3), MU_END)),
                      epoch, cut, MU_OK);
    }
}

// A client that has seen a change in an epoch calls the store.
static void tell(env *e, int64_t epoch, int64_t cut, int64_t known, int64_t known_epoch)
{
    const int64_t head[MU_N_ASK] = {0, epoch, cut, 2, ++e->n_requests, e->n_requests, known, known_epoch};
    const int64_t first = 0;
    mu_value *body = mu_list(mu__text_value("v"), mu__numbers_value(&first, 0), MU_END);
    assert_non_null(mu_rpc_result_value(
        mu_rpc_call(e->worker, "muster.store.call",
                    mu_list(mu__numbers_value(head, MU_N_ASK), mu__text_value("muster.variable.rows"), body, MU_END))));
}

// What the server's rows say was lost: at an earlier time of this epoch (0: nothing), and at the last.
static void expect_rows(env *e, int64_t cut, int64_t earlier_epoch, int64_t earlier, int64_t last)
{
    const int64_t head[2] = {e->n_polls + 1, e->n_polls};
    const int n = earlier_epoch > 0 ? 2 : 1;
    int64_t rows[2 * MU_N_STATE];
    const mu_value *answer = mu_rpc_result_value(mu_rpc_call(
        e->coordinator, "muster.store.state",
        mu_list(mu__numbers_value(head, 2), mu__numbers_value(NULL, 0), mu__numbers_value(&cut, 1), MU_END)));
    e->n_polls++;
    assert_non_null(answer);
    assert_int_equal(mu__numbers_of(answer, rows, n * MU_N_STATE), MU_OK);
    if (n == 2) {
        assert_int_equal(rows[MU_STATE_ROLE], MU_ROW_EARLIER);
        assert_int_equal(rows[MU_STATE_EPOCH], earlier_epoch);
        assert_int_equal(rows[MU_STATE_LOST], earlier);
    }
    assert_int_equal(rows[(n - 1) * MU_N_STATE + MU_STATE_ROLE], MU_STORE_PRIMARY);
    assert_int_equal(rows[(n - 1) * MU_N_STATE + MU_STATE_LOST], last);
}

static void test_a_client_that_missed_one_time(void **state)
{
    mu_restores before = {0};
    const char *folder = temporary_folder();
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    const int64_t first = cut_store(&e, EPOCH, 100, folder);
    make_variables(&e, EPOCH, 100, "a", 3);
    go_back(&e, EPOCH + 1, 100, folder, &before);
    make_variables(&e, EPOCH + 1, 100, "b", 4); // more than were lost
    const int64_t second = cut_store(&e, EPOCH + 1, 101, folder);
    assert_int_equal(second, first + 4);
    make_variables(&e, EPOCH + 1, 101, "c", 2);
    mu__restores_add(&before, EPOCH + 1, first);
    go_back(&e, EPOCH + 2, 101, folder, &before);
    expect_rows(&e, 101, 0, 0, 0);
    tell(&e, EPOCH + 2, 101, first + 3, EPOCH);
    expect_rows(&e, 101, EPOCH + 1, 3, 0);
    tell(&e, EPOCH + 2, 101, second + 2, EPOCH + 1);
    tell(&e, EPOCH + 2, 101, first + 2, EPOCH); // another client, which knows of two of the three
    expect_rows(&e, 101, EPOCH + 1, 3, 2);
    remove_folder(folder);
    mu_pool_close(pool);
}

// ---- A file that cannot be read -----------------------------------------------------------------

static mu_store_request *read_first(mu_store_client *client, double seconds)
{
    const int32_t first = 0;
    const int64_t one = 1;
    mu_store_request *request = mu__store_request_new(
        client, 0, "muster.variable.rows",
        mu_list(mu__text_value("rows"), mu_of(mu_tensor_new(MU_I32, 1, &one, &first)), MU_END), seconds);
    assert_non_null(request);
    while (!mu__store_request_step(request))
        mu__sleep_ns(1000000);
    return request;
}

static void expect_request_fails(mu_store_client *client, const char *path)
{
    mu_store_request *request = read_first(client, 0.3);
    assert_null(mu__store_request_value(request));
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_UNAVAILABLE);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "store 0 cannot go back to its last snapshot"));
    assert_non_null(strstr(error.message, "start the program again and restore a checkpoint"));
    mu__store_request_free(request);
}

// Overwrites bytes of the file from `at` (negative: from its end) on; with none, cuts it off there.
static void damage(const char *path, long at, const char *bytes)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    if (*bytes == '\0')
        assert_int_equal(ftruncate(fileno(file), at), 0);
    else
        fputs(bytes, file);
    fclose(file);
}

static void test_a_file_that_stays_damaged_is_named_to_clients(void **state)
{
    const mu_restores none = {0};
    const char *folder = temporary_folder();
    char path[200], whole[220];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store_client *client = mu__give(mu__store_client_new(1, &e.coordinator));
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create",
                      mu_list(mu__text_value("rows"), mu_of(mu_ones(MU_F32, 1, (int64_t[]){4})), MU_END)),
                  EPOCH, 0, MU_OK);
    cut_store(&e, EPOCH, 100, folder);
    snprintf(path, sizeof path, "%s/cut-100-store-0.safetensors", folder);
    snprintf(whole, sizeof whole, "%s.whole", path);
    assert_int_equal(rename(path, whole), 0);
    assert_null(order_back(&e, EPOCH + 1, 100, folder, &none));
    expect_error(MU_NOT_FOUND, path);
    expect_request_fails(client, path);
    assert_int_equal(rename(whole, path), 0);
    damage(path, 40, "");
    assert_null(order_back(&e, EPOCH + 2, 100, folder, &none));
    mu_error_take();
    expect_request_fails(client, path);
    remove_folder(folder);
    mu_pool_close(pool);
}

// The coordinator has ordered another server to lead the store: why this one could not is no longer the reason.
static void test_the_reason_is_forgotten_when_another_server_leads(void **state)
{
    const mu_restores none = {0};
    const char *folder = temporary_folder();
    char path[200];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store_client *client = mu__give(mu__store_client_new(1, &e.coordinator));
    snprintf(path, sizeof path, "%s/cut-100-store-0.safetensors", folder);
    assert_null(order_back(&e, EPOCH + 1, 100, folder, &none));
    expect_error(MU_NOT_FOUND, path);
    expect_request_fails(client, path);
    const int64_t poll[2] = {++e.n_polls, 0}, others[2] = {0, EPOCH + 2};
    assert_non_null(
        mu_rpc_result_value(mu_rpc_call(e.coordinator, "muster.store.state",
                                        mu_list(mu__numbers_value(poll, 2), mu__numbers_value(others, 2), MU_END))));
    mu_store_request *request = read_first(client, 0.3);
    assert_null(mu__store_request_value(request));
    expect_error(MU_UNAVAILABLE, "no server answers as primary of store 0");
    mu__store_request_free(request);
    remove_folder(folder);
    mu_pool_close(pool);
}

// The requests seen are in a message of their own, whose reader knows no file.
static void test_a_damaged_table_of_requests_names_the_file(void **state)
{
    const mu_restores none = {0};
    const char *folder = temporary_folder();
    char path[200];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store_client *client = mu__give(mu__store_client_new(1, &e.coordinator));
    cut_store(&e, EPOCH, 100, folder);
    snprintf(path, sizeof path, "%s/cut-100-store-0.safetensors", folder);
    damage(path, -8, "\377\377\377\377");
    assert_null(order_back(&e, EPOCH + 1, 100, folder, &none));
    expect_error(MU_DATA_LOSS, path);
    expect_request_fails(client, path);
    remove_folder(folder);
    mu_pool_close(pool);
}

// ---- The coordinator ----------------------------------------------------------------------------

static atomic_llong epoch_of[SERVERS]; // of store i, by its last order
static atomic_llong back_epoch[2];     // of the orders to take store 0 back
static atomic_int n_back;
static atomic_bool list_is_right; // that came with the second of them
static atomic_llong says_lost[2]; // the primary of store 0, of either time

static void fill_row(int64_t *row, int64_t role, int64_t epoch, int64_t lost)
{
    row[MU_STATE_ROLE] = role;
    row[MU_STATE_EPOCH] = epoch;
    row[MU_STATE_LOST] = lost;
}

static mu_value *answer_state(mu_value *arguments, void *arg)
{
    int64_t rows[2 * MU_N_STATE] = {0};
    (void)arguments, (void)arg;
    if (n_back < 2)
        return mu__numbers_value(rows, 0);
    fill_row(rows, MU_ROW_EARLIER, back_epoch[0], says_lost[0]);
    fill_row(rows + MU_N_STATE, MU_STORE_PRIMARY, epoch_of[0], says_lost[1]);
    return mu__numbers_value(rows, 2 * MU_N_STATE);
}

static mu_value *answer_lead(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_LEAD];
    mu_restores before;
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_LEAD), MU_OK);
    assert_int_equal(mu__restores_of(mu_value_at(arguments, 3), head[MU_LEAD_EPOCH], &before), MU_OK);
    epoch_of[head[MU_LEAD_STORE]] = head[MU_LEAD_EPOCH];
    if (head[MU_LEAD_STORE] == 0 && head[MU_LEAD_ORDER] == MU_ORDER_RESTORE && n_back < 2) {
        list_is_right =
            before.n == n_back &&
            (n_back == 0 || (before.items[0].epoch == back_epoch[0] && before.items[0].sequence == SNAPSHOT_AT));
        back_epoch[n_back] = head[MU_LEAD_EPOCH];
        n_back++;
    }
    return mu__numbers_value((int64_t[]){head[MU_LEAD_EPOCH], SNAPSHOT_AT}, 2);
}

static mu_value *answer_cut(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu__numbers_value((int64_t[]){SNAPSHOT_AT}, 1);
}

static mu_rpc_server *start_server(mu_rpc_method *state, mu_rpc_method *take_lead)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {{.name = "muster.store.state", .fn = state},
                                                   {.name = "muster.store.lead", .fn = take_lead},
                                                   {.name = "muster.store.cut", .fn = answer_cut}};
    for (size_t i = 0; i < MU_COUNT(methods); i++)
        assert_int_equal(mu__server_add(server, &methods[i]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

#define STEP_UNTIL(placement, condition)                                                                              \
    for (int64_t limit_ns = mu__deadline_ns(LIMIT_S); !(condition) && mu__now_ns() < limit_ns; mu__sleep_ns(1000000)) \
    mu__placement_step(placement)

static int64_t lost_in(const mu_placement *placement) { return mu__placement_numbers(placement).updates_lost; }

typedef struct job {
    mu_rpc_server *servers[SERVERS];
    mu_placement *placement;
} job;

// Servers that answer so, and a coordinator that has a snapshot of theirs.
static job start_job(mu_rpc_method *state, mu_rpc_method *take_lead)
{
    job j;
    mu_rpc_client *clients[SERVERS];
    for (int i = 0; i < SERVERS; i++) {
        j.servers[i] = start_server(state, take_lead);
        clients[i] = mu_rpc_client_new("muster", mu_rpc_server_address(j.servers[i]), .fail_fast = true);
    }
    j.placement = mu__placement_new(&(mu_placement_options){
        .n = SERVERS, .servers = clients, .snapshot_seconds = 0.02, .folder = "/nowhere", .heartbeat = 2});
    STEP_UNTIL(j.placement, mu__placement_numbers(j.placement).snapshots > 0);
    return j;
}

static void test_the_coordinator_counts_each_time(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    job j = start_job(answer_state, answer_lead);
    mu_placement *placement = j.placement;
    for (int i = 1; i < SERVERS; i++) {
        assert_int_equal(mu_rpc_server_stop(j.servers[i]), MU_OK);
        STEP_UNTIL(placement, mu__placement_numbers(placement).restores == i * SERVERS);
        assert_int_equal(mu__placement_numbers(placement).restores, i * SERVERS);
        assert_int_equal(n_back, i);
        assert_true(list_is_right);
    }
    says_lost[1] = 2;
    STEP_UNTIL(placement, lost_in(placement) == 2);
    says_lost[0] = 3; // of the first time, told after the second
    STEP_UNTIL(placement, lost_in(placement) == 5);
    says_lost[0] = 1; // by another server, which has heard of less
    says_lost[1] = 4;
    STEP_UNTIL(placement, lost_in(placement) == 7);
    assert_int_equal(lost_in(placement), 7);
    mu_release(j.placement);
    mu_pool_close(pool);
}

static atomic_int n_unheard; // orders to take store 0 back that were followed, without an answer
static atomic_int n_told;    // times that a primary has told its losses since
static atomic_bool is_heard; // orders are answered now

enum { LOST = 5, UNHEARD = 4, TOLD = 3, UNHEARD_FOR_NS = 300000000 };

static mu_value *tell_losses(mu_value *arguments, void *arg)
{
    int64_t row[MU_N_STATE] = {0};
    (void)arguments, (void)arg;
    if (n_unheard < UNHEARD)
        return mu__numbers_value(row, 0);
    n_told++;
    fill_row(row, MU_STORE_PRIMARY, epoch_of[0], LOST);
    return mu__numbers_value(row, MU_N_STATE);
}

static mu_value *follow_unheard(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_LEAD];
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_LEAD), MU_OK);
    if (head[MU_LEAD_STORE] == 0)
        epoch_of[0] = head[MU_LEAD_EPOCH];
    if (head[MU_LEAD_STORE] == 0 && head[MU_LEAD_ORDER] == MU_ORDER_RESTORE && !is_heard) {
        if (++n_unheard >= UNHEARD) // the primary tells its losses before this order's answer is there
            mu__sleep_ns(UNHEARD_FOR_NS);
        mu_fail(MU_UNAVAILABLE, "no answer");
        return NULL;
    }
    return mu__numbers_value((int64_t[]){head[MU_LEAD_EPOCH], SNAPSHOT_AT}, 2);
}

// Orders of which the coordinator keeps no more than two were followed, and the primary says what was lost: that counts
// when it says so of an order that is kept.
static void test_orders_without_answers_count_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    job j = start_job(tell_losses, follow_unheard);
    assert_int_equal(mu_rpc_server_stop(j.servers[1]), MU_OK);
    STEP_UNTIL(j.placement, n_told >= TOLD);
    assert_int_equal(lost_in(j.placement), 0);
    is_heard = true;
    STEP_UNTIL(j.placement, mu__placement_numbers(j.placement).restores >= SERVERS);
    STEP_UNTIL(j.placement, lost_in(j.placement) > 0);
    const int told = n_told;
    STEP_UNTIL(j.placement, n_told >= told + TOLD);
    assert_int_equal(lost_in(j.placement), LOST);
    mu_release(j.placement);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_time_after_the_epoch_counts),
        cmocka_unit_test(test_a_later_time_may_go_back_further),
        cmocka_unit_test(test_many_times),
        cmocka_unit_test(test_what_was_counted_stays),
        cmocka_unit_test(test_as_a_value),
        cmocka_unit_test(test_a_client_that_missed_one_time),
        cmocka_unit_test(test_a_file_that_stays_damaged_is_named_to_clients),
        cmocka_unit_test(test_the_reason_is_forgotten_when_another_server_leads),
        cmocka_unit_test(test_a_damaged_table_of_requests_names_the_file),
        cmocka_unit_test(test_the_coordinator_counts_each_time),
        cmocka_unit_test(test_orders_without_answers_count_once),
    };
    return cmocka_run_group_tests_name("rpc/restores", tests, start_with_key, end_library);
}
