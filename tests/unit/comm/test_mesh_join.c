// Tests of what keeps processes from joining: each cause is found and named on all processes that can know it.
#include "mesh_test.h"

#include <netinet/in.h>
#include <sys/socket.h>

// ---- Keys, versions, settings -------------------------------------------------------------------

// What one rank does differently from the others, and which error each of them gets. A rank that cannot prove the key
// ends nothing before the deadline, because it could be a stranger.
typedef struct odd_one {
    int ranks, odd;
    const char *key, *odd_key;
    bool plain, odd_plain;
    const char *odd_greeting;
    mu_status code;
    const char *odd_text, *text;
} odd_one;

static double odd_begin; // before the first process starts: whoever gives up first ends the job of all

static int odd_rank(int rank, void *arg)
{
    const odd_one *odd = arg;
    const bool proven = odd->code != MU_DEADLINE_EXCEEDED;
    mu_mesh_options options = options_of(rank);
    options.join_seconds = proven ? 30 : 6 * MU_TEST_SLOWNESS;
    options.key = rank == odd->odd ? odd->odd_key : odd->key;
    options.plain = rank == odd->odd ? odd->odd_plain : odd->plain;
    if (rank == odd->odd && odd->odd_greeting != NULL)
        options.greeting = odd->odd_greeting;
    const double idle_begin = idle_now();
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK(proven ? in_time(idle_begin, 4) : seconds_now() - odd_begin >= options.join_seconds);
    CHECK_TAKEN(odd->code, rank == odd->odd ? odd->odd_text : odd->text);
    return 0;
}

static void test_odd_one(void **state)
{
    (void)state;
    static const char other_key[] = "another key that is long enough";
    static const char give[] = "give all processes the same MUSTER_CLUSTER_KEY",
                      wrong[] = " from 127.0.0.1 failed the proof of the key (wrong MUSTER_CLUSTER_KEY?)",
                      mixed[] = "use the same settings everywhere";
    const odd_one cases[] = {
        {3, 2, TEST_KEY, other_key, false, false, NULL, MU_DEADLINE_EXCEEDED, give, wrong},
        {3, 1, TEST_KEY, other_key, false, false, NULL, MU_DEADLINE_EXCEEDED, give, give},
        {3, 0, TEST_KEY, other_key, false, false, NULL, MU_DEADLINE_EXCEEDED, wrong, give},
        {2, 1, TEST_KEY, other_key, true, true, NULL, MU_DEADLINE_EXCEEDED, give, wrong},
        {2, 1, TEST_KEY, NULL, false, false, NULL, MU_DEADLINE_EXCEEDED, give,
         "somebody at 127.0.0.1 came as it, but it has no"},
        {2, 1, TEST_KEY, TEST_KEY, false, true, NULL, MU_DEADLINE_EXCEEDED, mixed, "wants encryption"},
        {3, 2, TEST_KEY, TEST_KEY, false, false, "a=1;b=3", MU_FAILED_PRECONDITION, "/job:worker/task:2",
         "has \"a=1;b=3\""},
        {3, 1, TEST_KEY, TEST_KEY, false, false, "a=1;b=3", MU_FAILED_PRECONDITION, "/job:worker/task:1",
         "has \"a=1;b=3\""},
        // A passphrase is as good a key as digits, if all processes have the same.
        {2, 1, other_key, other_key, false, false, "a=1;b=3", MU_FAILED_PRECONDITION, "/job:worker/task:1",
         "has \"a=1;b=3\""},
    };
    // All cases run at the same time: most of their time is waiting.
    pid_t children[MU_COUNT(cases)][MOST_RANKS];
    odd_begin = seconds_now();
    for (size_t i = 0; i < MU_COUNT(cases); i++)
        start_ranks(children[i], cases[i].ranks, odd_rank, (void *)(uintptr_t)&cases[i]);
    for (size_t i = 0; i < MU_COUNT(cases); i++)
        wait_ranks(children[i], cases[i].ranks);
}

// ---- Options and addresses ----------------------------------------------------------------------

static int bad_options_rank(int rank, void *arg)
{
    (void)arg;
    (void)rank;
    mu_mesh_options options = options_of(0);
    options.key = "short";
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "openssl rand -hex 32");
    options.key = "0000000000000000000000000000000000000000000000000000000000000001";
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "repeats 2 different characters");
    options.key = "worker:3:a20be5316959083247eca58a57821866289ef4f8408a8f67fd4acef0b9bb1c2b";
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_PERMISSION_DENIED, "one of several equal tasks; give it the cluster's key");
    options = options_of(2);
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "rank 2 of 2");
    static const char *const wrong[] = {"host",    "host:", ":1",     "host:0", "host:65536",
                                        "host:1x", "::1:5", "[::1:5", "host:+1"};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        options = options_of(0);
        test_peers[1].address = wrong[i];
        CHECK(mu__mesh_join(&options) == NULL);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "is not an address");
    }
    test_peers[1].address = "";
    test_peers[0].address = "";
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "has no address");
    // Without a key the network is closed, for the process's own address and for others.
    test_peers[0].address = "192.0.2.1:4000";
    options.key = NULL;
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_UNAUTHENTICATED, "MUSTER_CLUSTER_KEY");
    test_peers[1].address = test_peer_addresses[1];
    options = options_of(1);
    options.key = NULL;
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_UNAUTHENTICATED, "192.0.2.1:4000");
    return 0;
}

static void test_bad_options(void **state)
{
    (void)state;
    make_peers(2);
    assert_int_equal(wait_rank(start_rank(0, bad_options_rank, NULL)), 0);
}

static int taken_port_rank(int rank, void *arg)
{
    (void)rank;
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t) * (int *)arg)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0); // as the test keeps the port
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    mu_mesh_options options = options_of(0);
    CHECK(mu__mesh_join(&options) == NULL);
    char who[64];
    snprintf(who, sizeof who, "is taken by process %d (", (int)getpid());
    CHECK_TAKEN(MU_ALREADY_EXISTS, who);
    close(fd);
    return 0;
}

static void test_taken_port(void **state)
{
    (void)state;
    make_peers(2);
    int port = atoi(strrchr(test_peer_addresses[0], ':') + 1);
    assert_int_equal(wait_rank(start_rank(0, taken_port_rank, &port)), 0);
}

static int key_rank(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    char path[] = P_tmpdir "/muster-key-XXXXXX", *key = NULL;
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, TEST_KEY "\nmore\n", sizeof TEST_KEY + 5) > 0);
    close(fd);
    setenv("MUSTER_CLUSTER_KEY_FILE", path, 1);
    CHECK(mu_init() == MU_OK);
    CHECK(mu__mesh_key(&key) == MU_OK && strcmp(key, TEST_KEY) == 0);
    mu__free(key);
    unlink(path);
    CHECK(mu__mesh_key(&key) == MU_NOT_FOUND && key == NULL);
    CHECK_TAKEN(MU_NOT_FOUND, path);
    // A key file of random bytes would be cut at the first zero byte.
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(TEST_KEY "\0more", 1, sizeof TEST_KEY + 4, file) == sizeof TEST_KEY + 4);
    fclose(file);
    CHECK(mu__mesh_key(&key) == MU_INVALID_ARGUMENT && key == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "is not a text: byte 64 is 0");
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("\n" TEST_KEY, file) >= 0);
    fclose(file);
    CHECK(mu__mesh_key(&key) == MU_INVALID_ARGUMENT && key == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "has no key: its first line is empty");
    unlink(path);
    // No message shows the key.
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    mu_exit(true);
    CHECK(mu_init() == MU_OK);
    mu__settings_print(out);
    fclose(out);
    CHECK(strstr(text, "MUSTER_CLUSTER_KEY") != NULL && strstr(text, TEST_KEY) == NULL);
    free(text);
    CHECK(mu__mesh_key(&key) == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "both set");
    mu_exit(true);
    return 0;
}

static void test_key(void **state)
{
    (void)state;
    assert_int_equal(wait_rank(start_rank(0, key_rank, NULL)), 0);
}

// ---- Who is missing -----------------------------------------------------------------------------

static int missing_rank(int rank, void *arg)
{
    const char *reason = arg;
    mu_mesh_options options = options_of(rank);
    options.join_seconds = 4 * MU_TEST_SLOWNESS;
    if (rank == 1)
        return 0;
    CHECK(mu__mesh_join(&options) == NULL);
    const mu_error error = mu_error_take();
    CHECK(error.code == MU_DEADLINE_EXCEEDED);
    CHECK(strstr(error.message, "2 of 3 processes are here; missing: /job:worker/task:1 at ") != NULL);
    // Whichever of the two ends first tells the other.
    CHECK(strstr(error.message, reason) != NULL || strstr(error.message, "(it has not come yet)") != NULL);
    return 0;
}

static int unknown_name_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    options.join_seconds = 8; // a name server that does not answer is given up after a second
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    test_peers[0].address = "no-such-host.invalid:4000";
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "missing: /job:worker/task:0 at no-such-host.invalid:4000 (name not found");
    return 0;
}

// ---- A wrong key where addresses are not known --------------------------------------------------

// As with RANK and WORLD_SIZE: only the address of rank 0 is known, and `arg` is what rank 0 makes of its own.
static int unknown_address_rank(int rank, void *arg)
{
    const char *own = arg;
    static char address[48];
    mu_mesh_options options = options_of(rank);
    // Only rank 0 knows which ranks came with another key. The first rank to give up tells the others, so that must be
    // rank 0.
    options.join_seconds = (rank == 2 ? 10 : 6) * MU_TEST_SLOWNESS;
    options.key = rank == 1 ? "another key that is long enough" : TEST_KEY;
    if (rank == 0 && own != NULL) {
        snprintf(address, sizeof address, "%s%s", own, strrchr(test_peer_addresses[0], ':'));
        test_peers[0].address = address;
    }
    for (int i = 1; i < test_ranks; i++)
        test_peers[i].address = "";
    CHECK(mu__mesh_join(&options) == NULL);
    if (rank == 1)
        CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "give all processes the same MUSTER_CLUSTER_KEY");
    else if (rank == 0)
        CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "missing: /job:worker/task:1 at address not known yet (somebody at 127.0.0.1 "
                                          "came as it, but its cluster key is not ours");
    else
        CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "missing: /job:worker/task:1 at address not known yet");
    return 0;
}

// ---- When the first report comes ----------------------------------------------------------------

typedef struct reported {
    int log;                  // a descriptor of rank 0's output
    _Atomic int64_t began_ns; // when rank 0 did
} reported;

static int reported_rank(int rank, void *arg)
{
    reported *shared = arg;
    mu_mesh_options options = options_of(rank);
    char text[4000] = "";
    if (rank == 0) {
        dup2(shared->log, STDERR_FILENO);
        atomic_store(&shared->began_ns, mu__now_ns());
    } else {
        while (strstr(text, "waits 10 s for the others: 1 of 2") == NULL) {
            sleep_seconds(0.005);
            const ssize_t n = pread(shared->log, text, sizeof text - 1, 0);
            text[n > 0 ? n : 0] = '\0';
        }
        const double seconds = (double)(mu__now_ns() - atomic_load(&shared->began_ns)) / 1e9;
        CHECK(seconds > 9 && seconds <= 10);
    }
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    mu_release(mesh);
    return 0;
}

// Cases that only wait run at the same time, so that each can have as long a deadline as a slow machine needs.
static void test_patient(void **state)
{
    (void)state;
    pid_t nameless, children[4][MOST_RANKS];
    reported *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED && (shared->log = memfd_create("log", 0)) >= 0);
    make_peers(2);
    nameless = start_rank(1, unknown_name_rank, NULL);
    start_ranks(children[0], 2, reported_rank, shared);
    start_ranks(children[1], 3, missing_rank, (void *)(uintptr_t) "(connection refused: nothing listens there yet)");
    start_ranks(children[2], 3, unknown_address_rank, NULL);
    start_ranks(children[3], 2, unknown_address_rank, (void *)(uintptr_t) "0.0.0.0");
    assert_int_equal(wait_rank(nameless), 0);
    wait_ranks(children[0], 2);
    wait_ranks(children[1], 3);
    wait_ranks(children[2], 3);
    wait_ranks(children[3], 2);
}

// ---- Coming late, dying early, coming twice -----------------------------------------------------

static int restarted_rank(int rank, void *arg)
{
    const int *second = arg; // whether this is rank 1's second life
    mu_mesh_options options = options_of(rank);
    mu_blocks blocks;
    if (rank == 1 && !*second) {
        alarm(0);
        signal(SIGALRM, SIG_DFL);
        ualarm(300000, 0); // dies while it waits for rank 2
    }
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    CHECK(mu__mesh_exchange(mesh, "after all", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(mesh);
    return 0;
}

static void test_restarted(void **state)
{
    (void)state;
    int first = 0, second = 1;
    make_peers(3);
    const pid_t zero = start_rank(0, restarted_rank, &first), one = start_rank(1, restarted_rank, &first);
    assert_int_equal(wait_rank(one), 1000 + SIGALRM);
    const pid_t again = start_rank(1, restarted_rank, &second);
    sleep_seconds(0.3); // it is to wait too, but may be late
    const pid_t two = start_rank(2, restarted_rank, &first);
    assert_int_equal(wait_rank(zero) + wait_rank(two) + wait_rank(again), 0);
}

static int twin_rank(int rank, void *arg)
{
    const int *twin = arg;
    mu_mesh_options options = options_of(rank);
    static char address[64];
    const double begin = idle_now();
    if (*twin) {
        snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
        test_peers[1].address = address;
        sleep_seconds(0.3);
    }
    CHECK(mu__mesh_join(&options) == NULL);
    CHECK(in_time(begin, 9));
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "two processes say that they are /job:worker/task:1");
    return 0;
}

static void test_twins(void **state)
{
    (void)state;
    int no = 0, yes = 1;
    make_peers(3);
    const pid_t zero = start_rank(0, twin_rank, &no), one = start_rank(1, twin_rank, &no),
                twin = start_rank(1, twin_rank, &yes);
    assert_int_equal(wait_rank(zero) + wait_rank(one) + wait_rank(twin), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_one), cmocka_unit_test(test_bad_options), cmocka_unit_test(test_taken_port),
        cmocka_unit_test(test_key),     cmocka_unit_test(test_restarted),   cmocka_unit_test(test_twins),
        cmocka_unit_test(test_patient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
