// Tests of processes of a mesh that are killed, stopped, fail or leave, and of what the others learn of it.
#include "mesh_test.h"

#include <netinet/in.h>
#include <sys/socket.h>

static mu_mesh *join(int rank, double heartbeat)
{
    mu_mesh_options options = options_of(rank);
    options.heartbeat_seconds = heartbeat;
    return mu__mesh_join(&options);
}

static mu_status exchange(mu_mesh *mesh, const char *what)
{
    mu_blocks blocks;
    const mu_status status = mu__mesh_exchange(mesh, what, "x", 1, &blocks);
    mu__blocks_free(&blocks);
    return status;
}

// Waits until a heartbeat has told what a peer is doing.
static bool has_heard(const mu_mesh *mesh, int rank, const char *words)
{
    char text[200] = "";
    for (const double begin = idle_now(); strstr(text, words) == NULL && in_time(begin, 10); sleep_seconds(0.01))
        mu__mesh_peer_doing(mesh, rank, text, sizeof text);
    return strstr(text, words) != NULL;
}

// Waits until a peer has left or the job has failed; the error stays pending.
static mu_status wait_for_the_end_of(mu_mesh *mesh, int rank)
{
    mu_status status = MU_OK;
    for (const double begin = idle_now(); status == MU_OK && in_time(begin, 10); sleep_seconds(0.01))
        status = mu__mesh_check(mesh, rank);
    return status;
}

// ---- Killed and stopped -------------------------------------------------------------------------

static int killed_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 10);
    CHECK(mesh != NULL);
    if (rank == 1)
        mu__mesh_doing(mesh, "saving", 7, "weights");
    CHECK(rank == 1 || has_heard(mesh, 1, "saving"));
    CHECK(exchange(mesh, "one") == MU_OK);
    // Rank 1 dies after its second exchange, which needs what the others send after the first. They must not end the
    // job before that.
    const double begin = idle_now();
    const mu_status second = exchange(mesh, "two");
    if (rank == 1)
        raise(SIGKILL);
    CHECK(second == MU_UNAVAILABLE || exchange(mesh, "three") == MU_UNAVAILABLE);
    CHECK(in_time(begin, 1));
    const mu_error error = mu_error_take();
    CHECK(strstr(error.message, "/job:worker/task:1 (127.0.0.1:") != NULL);
    CHECK(strstr(error.message, "is gone: connection closed; last heard from ") != NULL);
    CHECK(strstr(error.message, " s ago, while saving #7 \"weights\" (for ") != NULL);
    // Every later call fails in the same way.
    CHECK(mu__mesh_stream(mesh, rank == 0 ? 2 : 0, "late") == NULL);
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    CHECK(mu__mesh_check(mesh, -1) == MU_UNAVAILABLE);
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    mu_release(mesh);
    return 0;
}

static void test_killed(void **state)
{
    (void)state;
    pid_t children[3];
    make_peers(3);
    for (int i = 0; i < 3; i++)
        children[i] = start_rank(i, killed_rank, NULL);
    assert_int_equal(wait_rank(children[1]), 1000 + SIGKILL);
    assert_int_equal(wait_rank(children[0]) + wait_rank(children[2]), 0);
}

static int stopped_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 3);
    CHECK(mesh != NULL);
    const double begin = seconds_now(), idle_begin = idle_now();
    CHECK(exchange(mesh, "one") == MU_OK);
    if (rank == 1)
        raise(SIGSTOP);
    mu__mesh_doing(mesh, "waiting in collective", 412, "dense_2/kernel");
    CHECK(exchange(mesh, "two") == MU_UNAVAILABLE);
    CHECK(seconds_now() - begin > 2 && in_time(idle_begin, 4)); // its last heartbeat may be somewhat older
    const mu_error error = mu_error_take();
    CHECK(strstr(error.message, "/job:worker/task:1") != NULL);
    CHECK(strstr(error.message, "no sign of life for 3") != NULL);
    CHECK(strstr(error.message, " noticed while waiting in collective #412 \"dense_2/kernel\" (for ") != NULL);
    mu_release(mesh);
    return 0;
}

static void test_stopped(void **state)
{
    (void)state;
    pid_t children[3];
    make_peers(3);
    for (int i = 0; i < 3; i++)
        children[i] = start_rank(i, stopped_rank, NULL);
    assert_int_equal(wait_rank(children[0]) + wait_rank(children[2]), 0);
    kill(children[1], SIGKILL);
    assert_int_equal(wait_rank(children[1]), 1000 + SIGKILL);
}

// Stopped for many heartbeats but for less than the limit: no rank reports it, and the stopped rank reports none of the
// others.
static int paused_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 6);
    CHECK(mesh != NULL);
    CHECK(exchange(mesh, "one") == MU_OK);
    if (rank == 1) {
        const pid_t self = getpid(), waker = fork();
        if (waker == 0) {
            kill(self, SIGSTOP);
            sleep_seconds(2.6);
            kill(self, SIGCONT);
            _exit(0);
        }
        waitpid(waker, NULL, 0);
    }
    CHECK(exchange(mesh, "two") == MU_OK);
    sleep_seconds(1);
    CHECK(exchange(mesh, "three") == MU_OK);
    CHECK(!mu__mesh_has_failed(mesh, NULL));
    mu_release(mesh);
    return 0;
}

static void test_paused(void **state)
{
    (void)state;
    run_ranks(2, paused_rank, NULL);
}

// ---- How old the last word is -------------------------------------------------------------------

enum { BEAT_MS = 1000, WATCHED_MS = 6000, DISTURBED_MS = 900 };

static void knock(int rank)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(test_peer_addresses[rank], ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)!connect(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
}

// Rank 1 names its current activity at every moment. Rank 0 wakes its thread shortly before each heartbeat, which must
// not delay the heartbeat.
static int fresh_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 5 * BEAT_MS / 1000.0);
    CHECK(mesh != NULL && exchange(mesh, "one") == MU_OK);
    const double idle_begin = idle_now();
    const int64_t begin = mu__now_ns() / 1000000;
    int64_t now = begin, oldest = 0, knocked = begin;
    for (; now - begin < WATCHED_MS; sleep_seconds(0.005), now = mu__now_ns() / 1000000) {
        char text[200];
        const char *number;
        if (rank == 1)
            mu__mesh_doing(mesh, "at", now, NULL);
        mu__mesh_peer_doing(mesh, 1, text, sizeof text);
        if (rank == 0 && (number = strstr(text, "at #")) != NULL && now - begin > 2 * BEAT_MS)
            oldest = MU_MAX(oldest, now - atoll(number + 4));
        if (rank == 0 && now - knocked >= DISTURBED_MS) {
            knock(1);
            knocked = now;
        }
    }
    const double slowness = (double)(now - begin) / 1000 / MU_MAX(idle_now() - idle_begin, 0.001);
    CHECK((double)oldest < 1.3 * BEAT_MS * slowness);
    CHECK(exchange(mesh, "two") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_fresh(void **state)
{
    (void)state;
    run_ranks(2, fresh_rank, NULL);
}

// ---- Failing, watching --------------------------------------------------------------------------

typedef struct seen {
    atomic_int calls;
    mu_error_value error;
} seen;

static void note(void *arg, const mu_error_value *error)
{
    seen *it = arg;
    it->error = *error;
    atomic_fetch_add(&it->calls, 1);
}

static int failing_rank(int rank, void *arg)
{
    (void)arg;
    seen one = {.calls = 0}, two = {.calls = 0}, late = {.calls = 0};
    mu_mesh *mesh = join(rank, 10);
    CHECK(mesh != NULL);
    CHECK(mu__mesh_watch(mesh, note, &one) == MU_OK && mu__mesh_watch(mesh, note, &two) == MU_OK);
    mu__mesh_unwatch(mesh, note, &two);
    CHECK(exchange(mesh, "one") == MU_OK);
    if (rank == 2) {
        sleep_seconds(0.1); // the others wait already, or come later: all hear the same
        const mu_error_value error = {.code = MU_OUT_OF_RANGE, .file = "", .message = "the loss is not a number"};
        mu__mesh_fail(mesh, &error);
        mu__mesh_fail(mesh, &(mu_error_value){.code = MU_INTERNAL, .file = "", .message = "a consequence"});
    }
    CHECK(exchange(mesh, "two") == MU_OUT_OF_RANGE);
    CHECK_TAKEN(MU_OUT_OF_RANGE, "/job:worker/task:2 failed: the loss is not a number");
    for (int i = 0; i < 3000 && atomic_load(&one.calls) == 0; i++)
        sleep_seconds(0.02);
    CHECK(mu__mesh_watch(mesh, note, &late) == MU_OK);
    for (int i = 0; i < 3000 && atomic_load(&late.calls) == 0; i++)
        sleep_seconds(0.02);
    mu__mesh_unwatch(mesh, note, &one);
    mu__mesh_unwatch(mesh, note, &late);
    CHECK(atomic_load(&one.calls) == 1 && atomic_load(&two.calls) == 0 && atomic_load(&late.calls) == 1);
    CHECK(one.error.code == MU_OUT_OF_RANGE && strcmp(one.error.message, late.error.message) == 0);
    mu_release(mesh);
    return 0;
}

static void test_failing(void **state)
{
    (void)state;
    run_ranks(4, failing_rank, NULL);
}

// ---- Leaving in order ---------------------------------------------------------------------------

static int leaving_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 10);
    CHECK(mesh != NULL);
    CHECK(exchange(mesh, "one") == MU_OK);
    if (rank == 1) {
        mu_release(mesh);
        return 0;
    }
    CHECK(wait_for_the_end_of(mesh, 1) == MU_UNAVAILABLE);
    CHECK_TAKEN(MU_UNAVAILABLE, "has left the job");
    CHECK(!mu__mesh_has_failed(mesh, NULL));
    // The other ranks can still exchange data.
    mu_stream *stream = mu__mesh_stream(mesh, 2 - rank, "still");
    CHECK(stream != NULL);
    mu__stream_close(stream);
    CHECK(exchange(mesh, "two") == MU_UNAVAILABLE);
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    CHECK(mu__mesh_stream(mesh, 1, "never") == NULL);
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    CHECK(!mu__mesh_has_failed(mesh, NULL));
    mu_release(mesh);
    return 0;
}

static void test_leaving(void **state)
{
    (void)state;
    run_ranks(3, leaving_rank, NULL);
}

// ---- Late ones ----------------------------------------------------------------------------------

static bool is_one(const void *arg, int rank)
{
    (void)arg;
    return rank == 1;
}

static int late_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh *mesh = join(rank, 5);
    CHECK(mesh != NULL);
    mu__mesh_doing(mesh, "in collective", 412, "dense_2/kernel");
    char text[200];
    if (rank == 0) {
        CHECK(has_heard(mesh, 1, "has been in collective #412 \"dense_2/kernel\" for "));
        CHECK(mu__mesh_late_text(mesh, is_one, NULL, text, sizeof text) > 0);
        CHECK(strstr(text, "/job:worker/task:1, which has been in collective #412") == text);
        mu_lateness lateness = mu__lateness();
        const int64_t due = lateness.next_ns;
        mu__mesh_late(mesh, &lateness, "nothing", is_one, NULL);
        CHECK(lateness.next_ns == due);
        lateness.next_ns = mu__now_ns();
        mu__mesh_late(mesh, &lateness, "a test", is_one, NULL);
        CHECK(lateness.next_ns > mu__now_ns());
    }
    CHECK(exchange(mesh, "end") == MU_OK);
    mu_release(mesh);
    return 0;
}

static void test_late(void **state)
{
    (void)state;
    run_ranks(3, late_rank, NULL);
}

static int timeout_rank(int rank, void *arg)
{
    (void)arg;
    setenv("MUSTER_TIMEOUT", "1", 1);
    CHECK(mu_init() == MU_OK);
    mu_mesh *mesh = join(rank, 5);
    CHECK(mesh != NULL);
    if (rank == 1) {
        mu__mesh_doing(mesh, "compiling", -1, NULL);
        CHECK(wait_for_the_end_of(mesh, 0) != MU_OK);
        mu_error_take();
    } else {
        CHECK(has_heard(mesh, 1, "compiling"));
        CHECK(exchange(mesh, "plans") == MU_DEADLINE_EXCEEDED);
        CHECK_TAKEN(MU_DEADLINE_EXCEEDED,
                    "to exchange \"plans\" with /job:worker/task:1, which has been compiling for");
        CHECK(mu__mesh_stream(mesh, 1, "data") == NULL);
        CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "the stream \"data\" from /job:worker/task:1, which has been compiling for");
    }
    mu_release(mesh);
    mu_exit(true);
    return 0;
}

static void test_timeout(void **state)
{
    (void)state;
    run_ranks(2, timeout_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped), cmocka_unit_test(test_paused),
        cmocka_unit_test(test_fresh),  cmocka_unit_test(test_failing), cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_late),   cmocka_unit_test(test_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
