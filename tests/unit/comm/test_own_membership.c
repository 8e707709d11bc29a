// Tests of sessions under a membership policy of the test's own (own_membership.h): a server whose clients come and go.
// All nodes run in this thread, on real sockets.
#include "mesh_test.h"
#include "own_membership.h"

static void begin(int rank, mu_keyring *keyring, const char *address)
{
    party *p = &parties[rank];
    *p = (party){.node = {.membership = &clients,
                          .keyring = keyring,
                          .open = true,
                          .heartbeat_seconds = 10,
                          .own = {.rank = rank, .ranks = NODES},
                          .n_members = rank == SERVER ? CLIENTS : 1}};
    p->node.members = p->list;
    for (int i = 0; i < CLIENTS; i++)
        p->list[i] = &p->members[i];
    assert_int_equal(mu__node_start(&p->node), MU_OK);
    if (rank == SERVER)
        assert_int_equal(mu__node_listen(&p->node, address), MU_OK);
    else
        mu__dial_start(&p->node, SERVER, address, mu__now_ns());
}

static void until(const int *count, int value)
{
    for (const double start = idle_now(); *count != value && in_time(start, 20);)
        for (int i = 0; i < NODES; i++)
            if (parties[i].node.n_members > 0)
                mu__node_step(&parties[i].node, mu__now_ns() + 1000000);
    assert_int_equal(*count, value);
}

static void replied(void *arg, const mu_reply *reply)
{
    party *p = arg;
    p->replies++;
    p->code = reply->code;
    snprintf(p->text, sizeof p->text, "%.*s", (int)reply->bytes, (const char *)reply->data);
}

static void ask(int rank, const char *method, double seconds, mu_status code, const char *text)
{
    party *p = &parties[rank];
    const int before = p->replies;
    assert_int_equal(
        mu__session_request(
            &p->members[0].session,
            &(mu_request_options){
                .method = method, .data = "hi", .bytes = 2, .seconds = seconds, .replied = replied, .arg = p}),
        MU_OK);
    until(&p->replies, before + 1);
    assert_int_equal(p->code, code);
    assert_string_equal(p->text, text);
}

static void test_clients_come_and_go(void **state)
{
    (void)state;
    start_idle_clock(); // a process of its own, which must not inherit connections
    make_peers(1);
    mu_keyring *keyring = mu__keyring_new(TEST_KEY, false);
    for (int rank = 0; rank < NODES; rank++)
        begin(rank, keyring, test_peer_addresses[0]);
    until(&parties[SERVER].joined, 2);
    ask(2, "sing", 20, MU_NOT_FOUND, "no such method");
    ask(1, "sleep", 0.05, MU_DEADLINE_EXCEEDED, "no reply in time");
    mu__node_end(&parties[1].node); // dies; the server and the other client continue
    parties[1].node.n_members = 0;
    until(&parties[SERVER].lost, 1);
    ask(2, "echo", 20, MU_OK, "hi");
    const mu_request_options late = {.method = "echo", .seconds = 20, .replied = replied, .arg = &parties[1]};
    assert_int_equal(mu__session_request(&parties[1].members[0].session, &late), MU_UNAVAILABLE);
    assert_non_null(strstr(mu_error_take().message, "the connection is closed"));
    begin(1, keyring, test_peer_addresses[0]); // and comes again
    until(&parties[SERVER].joined, 3);
    ask(1, "echo", 20, MU_OK, "hi");
    mu__node_leave(&parties[2].node);
    until(&parties[SERVER].left, 1);
    assert_true(parties[SERVER].lost == 1 && parties[1].lost == 0);
    for (int rank = 0; rank < NODES; rank++)
        mu__node_end(&parties[rank].node);
    mu_release(keyring);
}

// It goes on in sentences such as "the server was …".
static void test_the_last_word_of_one_that_said_nothing(void **state)
{
    const mu_session session = {.heard_ns = mu__now_ns() - 2000000000};
    char word[100];
    (void)state;
    mu__session_last_word(&session, word, sizeof word);
    assert_memory_equal(word, "last heard from ", 16);
    assert_non_null(strstr(word, " s ago; it never reported what it was doing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients_come_and_go),
                                       cmocka_unit_test(test_the_last_word_of_one_that_said_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
