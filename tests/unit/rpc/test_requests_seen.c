// The table of requests seen: what it keeps of clients that have ended. The test has its own clock.
#include "base/system.h"
#include "rpc/rpc.h"
#include "rpc/stores/store.h"
#include "rpc_test.h"

enum { CLIENTS = 200, ANSWER_BYTES = 1 << 20 };

static int64_t passed_ns;

static int64_t clock_of_test(void) { return mu__linux.now_ns() + passed_ns; }

static mu_value *large_answer(void)
{
    const int64_t n = ANSWER_BYTES;
    return mu_of(mu_tensor_new(MU_U8, 1, &n, NULL));
}

// A client's request that changes something and has an answer; the client sends no other one.
static void ask_once(mu_seen *seen, int64_t client, mu_value *answer)
{
    const mu_seen_request *done;
    assert_int_equal(mu__seen_find(seen, client, 1, 1, &done), MU_SEEN_NEW);
    assert_int_equal(mu__seen_add(seen, client, 1), MU_OK);
    mu__seen_done(seen, client, 1, client + 1, answer);
}

static size_t answers_of(const mu_seen *seen, size_t *n_requests)
{
    size_t n = 0;
    *n_requests = 0;
    for (size_t i = 0; i < seen->clients.n; i++)
        for (size_t k = 0; k < seen->clients.items[i].requests.n; k++) {
            n += seen->clients.items[i].requests.items[k].answer != NULL;
            ++*n_requests;
        }
    return n;
}

// Workers come, are answered, and end, for hours: their answers are not kept, but their requests are still known, so
// that none is done twice.
static void test_answers_of_clients_that_have_ended(void **state)
{
    mu_seen seen = {0}, copy = {0};
    const mu_seen_request *done;
    size_t n_requests;
    (void)state;
    for (int i = 0; i < CLIENTS; i++) {
        mu_pool *pool = mu_pool_open();
        ask_once(&seen, i, large_answer());
        mu_pool_close(pool);
        passed_ns += (int64_t)(mu__setting_real(MU_SETTING_TIMEOUT) * 1e9 / 10);
        assert_true(seen.bytes <= MU_SEEN_BYTES + 20 * (ANSWER_BYTES + 100));
    }
    assert_true(answers_of(&seen, &n_requests) * ANSWER_BYTES <= MU_SEEN_BYTES + 20 * ANSWER_BYTES);
    assert_int_equal(n_requests, CLIENTS);
    mu_pool *pool = mu_pool_open();
    assert_int_equal(mu__seen_load(&copy, mu__seen_value(&seen)), MU_OK);
    mu_pool_close(pool);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mu__seen_find(i == 0 ? &seen : &copy, 0, 1, 1, &done), MU_SEEN_DONE);
        assert_true(done->sequence == 0 && done->answer == NULL);
        assert_int_equal(mu__seen_find(i == 0 ? &seen : &copy, CLIENTS - 1, 1, 1, &done), MU_SEEN_DONE);
        assert_true(done->sequence == CLIENTS && done->answer != NULL);
    }
    assert_int_equal(copy.bytes, seen.bytes);
    mu__seen_clear(&seen);
    mu__seen_clear(&copy);
    assert_int_equal(seen.bytes, 0);
}

// However many answers wait, those of clients that may ask again are kept.
static void test_answers_that_may_be_asked_for(void **state)
{
    mu_seen seen = {0};
    size_t n_requests;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *answer = large_answer(); // of all, so that they take no memory
    for (int i = 0; i < CLIENTS; i++)
        ask_once(&seen, i, answer);
    assert_true(seen.bytes > MU_SEEN_BYTES);
    assert_int_equal(answers_of(&seen, &n_requests), CLIENTS);
    mu__seen_clear(&seen);
    mu_pool_close(pool);
}

// A client never acknowledges an answer, under one name or many: the table does not grow without bound, no request is
// done twice, and the client that asked last keeps its answer.
static void test_answers_that_nobody_takes(void **state)
{
    enum { REQUESTS = 3000, MOST = 1 << 30 };
    const mu_seen_request *done;
    (void)state;
    for (int names = 1; names <= REQUESTS / 3; names += REQUESTS / 3 - 1) {
        mu_seen seen = {0};
        mu_pool *pool = mu_pool_open();
        mu_value *answer = large_answer();
        for (int i = 0; i < REQUESTS; i++) {
            const int64_t client = i % names, number = i / names + 1;
            assert_int_equal(mu__seen_find(&seen, client, number, 1, &done), MU_SEEN_NEW);
            assert_int_equal(mu__seen_add(&seen, client, 1), MU_OK);
            mu__seen_done(&seen, client, number, i + 1, answer);
            assert_true(seen.bytes <= (size_t)MOST + ANSWER_BYTES + 100);
        }
        assert_true(seen.bytes > (size_t)MOST - ANSWER_BYTES - 100); // no more are dropped than must be
        for (int i = 0; i < REQUESTS; i++) {
            assert_int_equal(mu__seen_find(&seen, i % names, i / names + 1, 1, &done), MU_SEEN_DONE);
            assert_int_equal(done->answer != NULL, done->sequence == i + 1);
        }
        assert_non_null(done->answer);
        mu__seen_clear(&seen);
        mu_pool_close(pool);
    }
}

// More requests than the table keeps, with answers of several elements: the table still goes to a copy as one message,
// and the client that is asking is never the one that is forgotten.
static void test_a_full_table_can_be_sent(void **state)
{
    enum { NAMES = 600, EACH = 512, MOST_KEPT = 1 << 18 };
    mu_seen seen = {0}, copy = {0};
    const mu_seen_request *done;
    size_t bytes = 0;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *answer = mu_list(mu_constant(MU_F32, 1), mu_list(mu_constant(MU_F32, 2), MU_END), MU_END);
    for (int client = 0; client < NAMES; client++)
        for (int number = 1; number <= EACH; number++) {
            assert_int_equal(mu__seen_find(&seen, client, number, 1, &done), MU_SEEN_NEW);
            assert_int_equal(mu__seen_add(&seen, client, 1), MU_OK);
            mu__seen_done(&seen, client, number, (int64_t)client * EACH + number, answer);
        }
    assert_true(seen.n_requests <= MOST_KEPT && seen.n_requests > MOST_KEPT - 2 * EACH);
    mu_value *sent = mu__seen_value(&seen);
    assert_int_equal(mu__message_bytes(sent, "the table", &bytes), MU_OK);
    assert_int_equal(mu__seen_load(&copy, sent), MU_OK);
    for (int i = 0; i < 2; i++) {
        mu_seen *table = i == 0 ? &seen : &copy;
        assert_int_equal(mu__seen_find(table, 0, 1, 1, &done), MU_SEEN_NEW);
        assert_int_equal(mu__seen_find(table, NAMES / 2, 1, 1, &done), MU_SEEN_DONE);
        assert_true(done->answer == NULL && done->sequence == 0);
        assert_int_equal(mu__seen_find(table, NAMES - 1, 1, 1, &done), MU_SEEN_DONE);
        assert_true(done->answer != NULL && done->sequence == (NAMES - 1) * EACH + 1);
    }
    assert_true(copy.n_requests == seen.n_requests && copy.n_elements == seen.n_elements);
    mu__seen_clear(&seen);
    mu__seen_clear(&copy);
    mu_pool_close(pool);
}

// An answer that no message can hold is not kept, but the request is; and requests of any number can be forgotten.
static void test_what_the_table_does_not_keep(void **state)
{
    enum { MANY = (1 << 18) + 1 };
    static mu_value *items[MANY];
    mu_seen seen = {0};
    const mu_seen_request *done;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *small = mu_of(mu_constant(MU_F32, 1));
    for (int i = 0; i < MANY; i++)
        items[i] = small;
    ask_once(&seen, 1, mu_list_of(MANY, items));
    assert_int_equal(mu__seen_find(&seen, 1, 1, 1, &done), MU_SEEN_DONE);
    assert_true(done->answer == NULL && done->sequence == 0);
    mu_value *last = mu_of(mu_constant(MU_F32, 2));
    const int references = last->object.references;
    assert_int_equal(mu__seen_add(&seen, 1, 1), MU_OK);
    mu__seen_done(&seen, 1, INT64_MAX, 2, last);
    assert_int_equal(last->object.references, references + 1);
    mu__seen_clear(&seen);
    assert_int_equal(last->object.references, references);
    mu_pool_close(pool);
}

static int start(void **state)
{
    static mu_system system;
    system = mu__linux;
    system.now_ns = clock_of_test;
    mu__system = &system;
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_of_clients_that_have_ended), cmocka_unit_test(test_answers_that_may_be_asked_for),
        cmocka_unit_test(test_answers_that_nobody_takes), cmocka_unit_test(test_a_full_table_can_be_sent),
        cmocka_unit_test(test_what_the_table_does_not_keep)};
    return cmocka_run_group_tests(tests, start, end_library);
}
