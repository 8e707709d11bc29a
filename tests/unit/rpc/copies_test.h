// What the tests of copies share: a primary of store 0 with variables of 1 MiB, updates of the first, and servers for
// its copy.
#ifndef MU_TESTS_COPIES_TEST_H
#define MU_TESTS_COPIES_TEST_H

#include "stores_test.h"

enum { UPDATE_BYTES = 1 << 20, MOST_UPDATES = 100 };

// Variables of 1 MiB on store 0, updates of the first, and what the copy is asked to do.
typedef struct updates {
    env e;
    mu_store *store;
    mu_resource *w; // owned
    mu_rpc_result *results[MOST_UPDATES];
    int n;
} updates;

static inline mu_tensor *values_of(int number)
{
    static float values[UPDATE_BYTES / sizeof(float)];
    const int64_t n = MU_COUNT(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)number;
    return mu_tensor_new(MU_F32, 1, &n, values);
}

static inline updates make_updates(int n_variables)
{
    updates u = {.e = make_env()};
    char name[16];
    u.store = mu__store_find(mu__stores_of(u.e.server), 0);
    for (int i = 0; i < n_variables; i++) {
        snprintf(name, sizeof name, "w%d", i);
        expect_answer(ask(&u.e, u.e.coordinator, EPOCH, 0, "muster.variable.create",
                          mu_list(mu__text_value(name), values_of(-1), MU_END)),
                      EPOCH, 0, MU_OK);
    }
    const mu_spec spec = mu__spec_of(values_of(0));
    u.w = mu__remote_variable(u.e.coordinator, "w0", &spec);
    return u;
}

static inline void give_copy(updates *u, mu_rpc_server *server, uint64_t process)
{
    assert_non_null(lead_with(&u->e, EPOCH + 1, MU_ORDER_CONTINUE, mu_rpc_server_address(server), process));
    u->e.oldest = u->e.n_requests + 1;
}

static inline mu_rpc_result *change_later(updates *u, const char *method, mu_value *arguments)
{
    mu_rpc_result *result = begin_ask(&u->e, u->e.coordinator, EPOCH + 1, 0, method, arguments);
    assert_non_null(result);
    return u->results[u->n++] = result;
}

static inline mu_rpc_result *apply_later(updates *u, const mu_op *op, int number)
{
    mu_tensor *value = values_of(number);
    return change_later(u, "muster.apply", mu__remote_apply_arguments(op, NULL, 1, &value, 1, &u->w));
}

static inline mu_rpc_result *update_later(updates *u) { return apply_later(u, &mu_op_assign_variable, u->n); }

static inline mu_value *arguments_of_large(int mib)
{
    const int64_t n = (int64_t)mib << 18;
    return mu_list(mu__text_value("large"), mu_zeros(MU_F32, 1, &n), MU_END);
}

// Waits until the primary has made so many changes.
static inline void wait_until_made(updates *u, int64_t changes)
{
    int64_t applied = 0;
    for (int i = 0; i < 20000 && applied < changes; i++) {
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&u->store->stores->lock);
        applied = u->store->applied;
        pthread_mutex_unlock(&u->store->stores->lock);
    }
    assert_int_equal(applied, changes);
}

static inline void expect_all_acknowledged(updates *u)
{
    for (int i = 0; i < u->n; i++) {
        for (int tries = 0; tries < 20000 && !mu_rpc_result_is_done(u->results[i]); tries++) {
            mu__sleep_ns(1000000);
            if (tries % 100 == 0)
                renew_lease(&u->e);
        }
        expect_answer(mu_rpc_result_value(u->results[i]), EPOCH + 1, 0, MU_OK);
    }
}

static inline void wait_until_complete(updates *u)
{
    int64_t row[MU_N_STATE] = {0};
    for (int i = 0; i < 20000 && !row[MU_STATE_COMPLETE]; i++) {
        mu__sleep_ns(1000000);
        poll(&u->e, 0, row);
    }
    assert_true(row[MU_STATE_COMPLETE]);
}

// Returns the whole content of a store as bytes, owned by the caller.
static inline mu_message *bytes_of(mu_store *store)
{
    pthread_mutex_lock(&store->changing);
    mu_message *message = mu__message_of(mu__store_capture(store), "a store");
    pthread_mutex_unlock(&store->changing);
    assert_non_null(message);
    return message;
}

static inline void set_heartbeat(updates *u, double seconds)
{
    pthread_mutex_lock(&u->store->stores->lock);
    u->store->stores->heartbeat = seconds;
    pthread_mutex_unlock(&u->store->stores->lock);
}

// A server that may hold a copy of store 0 in so many bytes, and that store.
static inline mu_store *start_copy_with(mu_rpc_server **server, size_t most_bytes)
{
    *server = mu_rpc_server_new("muster", "localhost:0");
    mu_kept *kept = mu__kept_new(most_bytes);
    assert_int_equal(mu__stores_add(*server, kept), MU_OK);
    mu_release(kept);
    assert_int_equal(mu_rpc_server_start(*server), MU_OK);
    mu_stores *stores = mu__stores_of(*server);
    pthread_mutex_lock(&stores->lock);
    mu_store *copy = mu__store_make(stores, 0);
    pthread_mutex_unlock(&stores->lock);
    return copy;
}

static inline mu_store *start_copy(mu_rpc_server **server) { return start_copy_with(server, SIZE_MAX); }

static inline void expect_same(mu_store *store, mu_store *copy)
{
    mu_message *original = bytes_of(store), *copied = bytes_of(copy);
    assert_int_equal(original->bytes, copied->bytes);
    assert_memory_equal(original->data, copied->data, copied->bytes);
    mu_release(original);
    mu_release(copied);
}

// Reads the numbers at the beginning of a message to a copy; returns the message's bytes.
static inline size_t read_copy_message(mu_value *arguments, int64_t head[MU_N_COPY])
{
    size_t bytes = 0;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_COPY), MU_OK);
    assert_int_equal(mu__message_bytes(arguments, "a message", &bytes), MU_OK);
    return bytes;
}

#endif
