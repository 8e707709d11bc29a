// Tests of the key-value store of a job: a value that was put is returned, a missing key is named in time, and no
// request from another process can take more than its share of rank 0's memory.
#include "mesh_test.h"

#include "comm/mesh/key_value.h"
#include "comm/mesh/mesh_private.h"

static mu_mesh *join(int rank)
{
    mu_mesh_options options = options_of(rank);
    return mu__mesh_join(&options);
}

static mu_status meet(mu_mesh *mesh, const char *what)
{
    mu_blocks blocks;
    const mu_status status = mu__mesh_exchange(mesh, what, NULL, 0, &blocks);
    mu__blocks_free(&blocks);
    return status;
}

static mu_status put_text(mu_mesh *mesh, const char *key, const char *value)
{
    return mu__key_value_put(mesh, key, strlen(key), value, strlen(value));
}

// Returns whether a key's value comes in time and is `value`.
static bool has(mu_mesh *mesh, const char *key, const char *value, double seconds)
{
    void *data;
    size_t bytes;
    const bool same = mu__key_value_get(mesh, key, strlen(key), seconds, &data, &bytes) == MU_OK &&
                      bytes == strlen(value) && memcmp(data, value, bytes) == 0;
    mu__free(data);
    return same;
}

// ---- Putting and getting ------------------------------------------------------------------------

static int all_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    for (int turn = 0; turn < 20; turn++) {
        char key[40], value[40];
        // Some processes wait before the put, others ask after it.
        if ((turn + rank) % 2 == 0)
            sleep_seconds(0.005);
        snprintf(key, sizeof key, "turn %d/%d", turn, rank);
        snprintf(value, sizeof value, "of rank %d", rank);
        CHECK(put_text(mesh, key, turn == 3 ? "" : value) == MU_OK);
        for (int other = 0; other < test_ranks; other++) {
            snprintf(key, sizeof key, "turn %d/%d", turn, other);
            snprintf(value, sizeof value, "of rank %d", other);
            CHECK(has(mesh, key, turn == 3 ? "" : value, 60));
            CHECK(has(mesh, key, turn == 3 ? "" : value, 0));
        }
    }
    CHECK(meet(mesh, "end") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_all_put_and_get(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        run_ranks(ranks, all_rank, NULL);
}

static int limits_rank(int rank, void *arg)
{
    (void)arg;
    static char big[MU_MAX_KEY_VALUE + 1], key[MU_MAX_KEY + 1];
    void *data;
    size_t bytes;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    memset(big, 'v', sizeof big);
    memset(key, 'k', sizeof key);
    key[0] = (char)('0' + rank);
    CHECK(mu__key_value_get(mesh, "\0", 1, 0, &data, &bytes) == MU_NOT_FOUND && data == NULL);
    CHECK_TAKEN(MU_NOT_FOUND, "\".\" has no value yet");
    CHECK(mu__key_value_put(mesh, key, sizeof key, "", 0) == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "keys of 1 to 1024 bytes");
    CHECK(mu__key_value_put(mesh, key, 0, "", 0) == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "a key of 0 bytes");
    CHECK(mu__key_value_put(mesh, key, MU_MAX_KEY, big, sizeof big) == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "at most 1046528 fit");
    CHECK(mu__key_value_put(mesh, key, MU_MAX_KEY, big, MU_MAX_KEY_VALUE) == MU_OK);
    CHECK(mu__key_value_put(mesh, key, MU_MAX_KEY, "x", 1) == MU_ALREADY_EXISTS);
    CHECK_TAKEN(MU_ALREADY_EXISTS, "has a value already");
    key[0] = (char)('0' + (rank + 1) % test_ranks);
    CHECK(mu__key_value_get(mesh, key, MU_MAX_KEY, 60, &data, &bytes) == MU_OK && bytes == MU_MAX_KEY_VALUE);
    CHECK(memcmp(data, big, bytes) == 0);
    mu__free(data);
    CHECK(meet(mesh, "end") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_limits(void **state)
{
    (void)state;
    run_ranks(2, limits_rank, NULL);
}

// ---- What never comes ---------------------------------------------------------------------------

static int deadline_rank(int rank, void *arg)
{
    (void)arg;
    void *data;
    size_t bytes;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    mu__mesh_doing(mesh, "having lunch", -1, NULL);
    CHECK(rank == 2 || put_text(mesh, rank == 0 ? "zero" : "one", "here") == MU_OK);
    CHECK(meet(mesh, "some have put") == MU_OK);
    if (rank < 2) {
        const double begin = seconds_now();
        CHECK(mu__key_value_get(mesh, "topology/2", 10, 0.3, &data, &bytes) == MU_DEADLINE_EXCEEDED);
        CHECK(seconds_now() - begin >= 0.3);
        const mu_error error = mu_error_take();
        CHECK(strstr(error.message, "\"topology/2\"") && strstr(error.message, "no key came from /job:worker/task:2"));
        CHECK(!strstr(error.message, "task:1,") && strstr(error.message, "which "));
    }
    CHECK(meet(mesh, "end") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_deadlines_name_who_is_missing(void **state)
{
    (void)state;
    run_ranks(3, deadline_rank, NULL);
}

static int killed_rank(int rank, void *arg)
{
    const int victim = *(int *)arg;
    char name[40];
    void *data;
    size_t bytes;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    CHECK(meet(mesh, "begin") == MU_OK);
    // The victim waits until no process needs it any more for the earlier keys.
    snprintf(name, sizeof name, "%d has begun", rank);
    CHECK(rank == victim || put_text(mesh, name, "") == MU_OK);
    for (int other = 0; rank == victim && other < 3; other++) {
        snprintf(name, sizeof name, "%d has begun", other);
        CHECK(other == victim || has(mesh, name, "", 60));
    }
    if (rank == victim)
        raise(SIGKILL);
    const double begin = idle_now();
    CHECK(mu__key_value_get(mesh, "of the victim", 13, 600, &data, &bytes) == MU_UNAVAILABLE);
    CHECK(in_time(begin, 5));
    snprintf(name, sizeof name, "/job:worker/task:%d", victim);
    const mu_error error = mu_error_take();
    CHECK(strstr(error.message, name) && strstr(error.message, "is gone"));
    mu_release(mesh);
    return 0;
}

// Whether the one that keeps the values or another one.
static void test_a_dead_process_is_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        pid_t children[MOST_RANKS];
        start_ranks(children, 3, killed_rank, &victim);
        for (int i = 0; i < 3; i++)
            assert_int_equal(wait_rank(children[i]), i == victim ? 1000 + SIGKILL : 0);
    }
}

// A signal ends the wait. The answer comes later and finds no waiter.
static int stopped_rank(int rank, void *arg)
{
    (void)arg;
    void *data;
    size_t bytes;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL && meet(mesh, "begin") == MU_OK);
    if (rank == 1) {
        CHECK(mu_stop_on_signals() == MU_OK);
        raise(SIGTERM);
        CHECK(mu__key_value_get(mesh, "later", 5, 600, &data, &bytes) == MU_CANCELLED);
        CHECK_TAKEN(MU_CANCELLED, "SIGTERM");
        mu__stop_hold();
        CHECK(put_text(mesh, "given up", "") == MU_OK);
    } else {
        CHECK(has(mesh, "given up", "", 60));
        CHECK(put_text(mesh, "later", "too late") == MU_OK);
    }
    CHECK(has(mesh, "later", "too late", 60));
    CHECK(meet(mesh, "end") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_a_wait_that_is_given_up(void **state)
{
    (void)state;
    run_ranks(2, stopped_rank, NULL);
}

// ---- Requests that nobody would send ------------------------------------------------------------

typedef struct heard {
    int n;
    mu_status code;
    char text[300];
} heard;

static void take(void *arg, const mu_reply *reply)
{
    heard *h = arg;
    snprintf(h->text, sizeof h->text, "%.*s", (int)reply->bytes, (const char *)reply->data);
    h->code = reply->code;
    h->n++;
}

static mu_status send_raw(mu_mesh *mesh, const char *method, const void *data, size_t bytes, heard *h)
{
    pthread_mutex_lock(&mesh->lock);
    const mu_status status = mu__session_request(
        mu__peer_session(mesh, 0),
        &(mu_request_options){
            .method = method, .data = data, .bytes = bytes, .seconds = 60, .replied = take, .arg = h});
    pthread_mutex_unlock(&mesh->lock);
    mu__node_wake(&mesh->node);
    return status;
}

static bool replied(mu_mesh *mesh, const heard *h, int n)
{
    bool done = false;
    for (const double begin = idle_now(); !done && in_time(begin, 20); sleep_seconds(0.002)) {
        pthread_mutex_lock(&mesh->lock);
        done = h->n >= n;
        pthread_mutex_unlock(&mesh->lock);
    }
    return done;
}

static int hostile_rank(int rank, void *arg)
{
    (void)arg;
    static const struct {
        const char *method;
        uint32_t milliseconds, key_bytes;
        size_t bytes;
    } cases[] = {{MU_KEY_VALUE_GET, 10, UINT32_MAX, 12},
                 {MU_KEY_VALUE_GET, 10, 0, 8},
                 {MU_KEY_VALUE_GET, 10, 4, 16},
                 {MU_KEY_VALUE_GET, UINT32_MAX, 4, 12},
                 {MU_KEY_VALUE_GET, 10, 2000, 2008},
                 {MU_KEY_VALUE_PUT, 0, UINT32_MAX, 4096},
                 {MU_KEY_VALUE_PUT, 0, 4, MU_MAX_BLOCK},
                 {MU_KEY_VALUE_PUT, 0, 4, 7},
                 {MU_KEY_VALUE_PUT, 0, 4096, 1 << 16},
                 {"key_value/", 0, 4, 12},
                 {"", 0, 4, 12},
                 {MU_KEY_VALUE_PUT, 0, 0, 0}};
    static uint8_t data[MU_MAX_BLOCK];
    static heard h;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    for (size_t i = 0; rank == 1 && i < MU_COUNT(cases); i++) {
        memset(data, 'x', sizeof data);
        for (int b = 0; b < 4; b++) {
            data[b] = (uint8_t)(cases[i].milliseconds >> 8 * b);
            data[4 + b] = (uint8_t)(cases[i].key_bytes >> 8 * b);
        }
        CHECK(send_raw(mesh, cases[i].method, data, cases[i].bytes, &h) == MU_OK);
        CHECK(replied(mesh, &h, (int)i + 1));
        CHECK(h.code == MU_INVALID_ARGUMENT && strstr(h.text, "cannot be"));
    }
    CHECK(meet(mesh, "end") == MU_OK && !mu__mesh_has_failed(mesh, NULL));
    mu_release(mesh);
    return 0;
}

static void test_hostile_sizes(void **state)
{
    (void)state;
    run_ranks(2, hostile_rank, NULL);
}

static int greedy_rank(int rank, void *arg)
{
    enum { MORE = 50 };
    (void)arg;
    static heard refused;
    mu_mesh *mesh = join(rank);
    CHECK(mesh != NULL);
    const uint8_t wait[] = {0x60, 0xEA, 0, 0, 1, 0, 0, 0, 'w'}; // a minute, a key of one byte
    for (int i = 0; rank == 1 && i < MU_MOST_KEY_WAITS + MORE; i++)
        CHECK(send_raw(mesh, MU_KEY_VALUE_GET, wait, sizeof wait, &refused) == MU_OK);
    CHECK(rank != 1 || (replied(mesh, &refused, MORE) && refused.code == MU_RESOURCE_EXHAUSTED));
    CHECK(meet(mesh, "all wait") == MU_OK);
    // Another process may wait and is served meanwhile; the processes that already wait get their answers.
    static heard answered;
    CHECK(rank != 2 || send_raw(mesh, MU_KEY_VALUE_GET, wait, sizeof wait, &answered) == MU_OK);
    CHECK(rank != 2 || put_text(mesh, "w", "now") == MU_OK);
    CHECK(rank != 2 || (replied(mesh, &answered, 1) && answered.code == MU_OK));
    CHECK(rank != 1 || (replied(mesh, &refused, MU_MOST_KEY_WAITS + MORE) && refused.code == MU_OK));
    CHECK(meet(mesh, "end") == MU_OK && !mu__mesh_has_failed(mesh, NULL));
    mu_release(mesh);
    return 0;
}

static void test_waits_are_bounded(void **state)
{
    (void)state;
    run_ranks(3, greedy_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_put_and_get),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_deadlines_name_who_is_missing),
                                       cmocka_unit_test(test_a_dead_process_is_named),
                                       cmocka_unit_test(test_a_wait_that_is_given_up),
                                       cmocka_unit_test(test_hostile_sizes),
                                       cmocka_unit_test(test_waits_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
