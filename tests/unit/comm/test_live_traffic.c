// Changes the traffic between two members of a job: bits flip, bytes vanish or come twice, numbers become large or
// negative, a connection is cut or falls silent, at a place drawn from a seed. No member crashes or hangs. A member
// that ends with an error names the other one, and with TLS no member ends with wrong numbers.
//
// A relay stands between the two: rank 1 knows rank 0 under 127.0.0.2, where the relay listens at rank 0's port. So the
// control connection and all streams pass through it.
#include "world_test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { AT_ONCE = 8, MOST_CONNECTIONS = 12, BUFFER = 1 << 16, TURNS = 6, LARGE = 40000, PATIENCE = 100 };
#ifdef __SANITIZE_ADDRESS__
enum { BATCHES = 3 };
#else
enum { BATCHES = 8 };
#endif

typedef enum harm_kind { NONE, FLIP, NUMBER, REMOVE, REPEAT, CUT, SILENCE, N_HARMS } harm_kind;

// What happens to the traffic of one job.
typedef struct harm {
    harm_kind kind;
    mu_protection protection;
    int connection, direction; // the first is control; direction 0: to rank 0
    size_t at;                 // byte of this direction
    uint32_t value;
} harm;

// ---- The relay ----------------------------------------------------------------------------------

typedef struct way {
    int from, to;
    size_t passed;
    bool silent;
} way;

static struct sockaddr_in address_of(const char *host, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(strcmp(host, "127.0.0.2") == 0 ? INADDR_LOOPBACK + 1 : INADDR_LOOPBACK);
    return at;
}

// Changes the bytes in place; returns how many there are afterwards.
static size_t do_harm(const harm *h, uint8_t *bytes, size_t n, size_t at)
{
    const size_t count = MU_MIN((size_t)4, n - at);
    switch (h->kind) {
    case FLIP: bytes[at] ^= (uint8_t)(1u << h->value % 8); break;
    case NUMBER: memcpy(bytes + at, &h->value, count); break;
    case REMOVE: memmove(bytes + at, bytes + at + count, n - at - count); return n - count;
    case REPEAT: memmove(bytes + at + count, bytes + at, n - at); return n + count;
    default: break;
    }
    return n;
}

// Passes on what has come; false: this connection has ended.
static bool pass_on(way *w, const harm *h)
{
    static uint8_t bytes[BUFFER + 4];
    const ssize_t got = recv(w->from, bytes, BUFFER, 0);
    if (got <= 0)
        return false;
    size_t n = (size_t)got, done = 0;
    if (h != NULL && h->at >= w->passed && h->at < w->passed + n) {
        if (h->kind == CUT)
            return false;
        w->silent = h->kind == SILENCE;
        n = do_harm(h, bytes, n, h->at - w->passed);
    }
    w->passed += (size_t)got;
    while (!w->silent && done < n) {
        const ssize_t sent = send(w->to, bytes + done, n - done, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        done += (size_t)sent;
    }
    return true;
}

static void relay(int listener, int port, const harm *h)
{
    way ways[2 * MOST_CONNECTIONS];
    int n = 0;
    for (;;) {
        struct pollfd fds[2 * MOST_CONNECTIONS + 1] = {{.fd = listener, .events = POLLIN}};
        for (int i = 0; i < 2 * n; i++)
            fds[i + 1] = (struct pollfd){.fd = ways[i].from, .events = POLLIN};
        if (poll(fds, (nfds_t)(2 * n + 1), -1) < 0)
            continue;
        for (int i = 0; i < 2 * n; i++)
            if (fds[i + 1].revents != 0 &&
                !pass_on(&ways[i], i / 2 == h->connection && i % 2 == h->direction ? h : NULL)) {
                shutdown(ways[i].from, SHUT_RDWR);
                shutdown(ways[i].to, SHUT_RDWR);
                ways[i].from = ways[i ^ 1].from = -1; // poll skips it
            }
        if (fds[0].revents == 0 || n == MOST_CONNECTIONS)
            continue;
        const int in = accept(listener, NULL, NULL), out = socket(AF_INET, SOCK_STREAM, 0);
        const struct sockaddr_in to = address_of("127.0.0.1", port);
        if (connect(out, (const struct sockaddr *)&to, sizeof to) != 0) {
            close(in); // rank 0 does not listen yet: rank 1 tries again
            close(out);
            continue;
        }
        ways[2 * n] = (way){.from = in, .to = out};
        ways[2 * n + 1] = (way){.from = out, .to = in};
        n++;
    }
}

// ---- The members --------------------------------------------------------------------------------

// Returns false with an error pending; sets `*wrong` if the numbers are wrong.
static bool work(mu_mesh *mesh, bool *wrong)
{
    const int rank = mu__mesh_rank(mesh);
    mu_group *group = mu__group_join(mesh, 1, "test", NULL);
    mu_collective *c = group != NULL ? mu__group_member(group, 0) : NULL;
    float *data = calloc(LARGE, sizeof *data), rows[2] = {0};
    bool good = c != NULL && data != NULL;
    for (int turn = 0; good && turn < TURNS; turn++) {
        const int64_t n = turn % 2 == 0 ? 3 : LARGE;
        for (int64_t i = 0; i < n; i++)
            data[i] = (float)(rank + 1);
        const float own = (float)rank;
        good = c->all_reduce(c, turn, "dense/kernel", MU_REDUCTION_SUM, MU_F32, data, n) == MU_OK &&
               c->all_gather(c, turn, "rows", MU_F32, &own, 1, rows, NULL) == MU_OK &&
               mu__collective_barrier(c, turn, "end") == MU_OK;
        for (int64_t i = 0; good && i < n; i++)
            *wrong |= data[i] != 3;
        *wrong |= good && (rows[0] != 0 || rows[1] != 1);
    }
    free(data);
    mu_release(group);
    return good;
}

static int member(int rank, void *arg)
{
    const harm *h = arg;
    char near_relay[48];
    bool wrong = false;
    mu_mesh_options options = options_of(rank);
    alarm(PATIENCE * MU_TEST_SLOWNESS);
    setenv("MUSTER_SHARED_MEMORY", "0", 1);
    setenv("MUSTER_TIMEOUT", MU_TEST_SLOWNESS > 1 ? "10" : "4", 1);
    setenv("MUSTER_LOG", "error", 1);
    options.join_seconds = 4 * MU_TEST_SLOWNESS;
    options.heartbeat_seconds = 2 * MU_TEST_SLOWNESS;
    options.plain = h->protection == MU_PROTECTION_PROOF;
    options.key = h->protection == MU_PROTECTION_NONE ? NULL : TEST_KEY;
    snprintf(near_relay, sizeof near_relay, "127.0.0.2:%s", strrchr(test_peer_addresses[0], ':') + 1);
    if (rank == 1)
        test_peers[0].address = near_relay;
    mu_mesh *mesh = mu__mesh_join(&options);
    const bool good = mesh != NULL && work(mesh, &wrong);
    const mu_error error = mu_error_take();
    mu_release(mesh);
    const bool named = strstr(error.message, "/job:worker/task:") != NULL || strstr(error.message, "rank 0") != NULL ||
                       strstr(error.message, "127.0.0.") != NULL;
    const bool harmless = h->kind == NONE || h->protection == MU_PROTECTION_TLS;
    if (good ? wrong && harmless : error.code == MU_OK || !named || h->kind == NONE) {
        fprintf(stderr, "harm %d at byte %zu of connection %d, direction %d, protection %d: rank %d %s: %s\n",
                (int)h->kind, h->at, h->connection, h->direction, (int)h->protection, rank,
                good ? "has wrong numbers" : "fails badly", error.message);
        return 1;
    }
    return 0;
}

// ---- Jobs ---------------------------------------------------------------------------------------

static uint64_t random_state = 88172645463325252u;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16) % below;
}

// Draws places near the beginning more often, because that is where most of the structure is.
static harm draw_harm(int number)
{
    static const uint32_t telling[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0, 2000, 0x10000};
    const uint32_t reach = 1u << (5 + draw(12));
    harm h = {.kind = number == 0 ? NONE : (harm_kind)(1 + draw(N_HARMS - 1)),
              .protection = (mu_protection)draw(3),
              .connection = (int)draw(2),
              .direction = (int)draw(2),
              .at = draw(reach)};
    h.value = telling[draw(MU_COUNT(telling))];
    return h;
}

typedef struct job {
    harm harm;
    pid_t ranks[MOST_RANKS], relay;
} job;

static void start_job(job *j)
{
    make_peers(2);
    const int port = atoi(strrchr(test_peer_addresses[0], ':') + 1), one = 1;
    const struct sockaddr_in at = address_of("127.0.0.2", port);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 16), 0);
    const pid_t parent = getpid();
    j->relay = fork();
    assert_true(j->relay >= 0);
    if (j->relay == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            relay(listener, port, &j->harm);
        _exit(1);
    }
    close(listener);
    for (int rank = 0; rank < 2; rank++)
        j->ranks[rank] = start_rank(rank, member, &j->harm);
}

static int end_job(job *j)
{
    int failed = 0, code;
    for (int rank = 0; rank < 2; rank++)
        if ((code = wait_rank(j->ranks[rank])) != 0) {
            fprintf(stderr,
                    "rank %d ended with %d after harm %d at byte %zu of connection %d, direction %d, protection %d\n",
                    rank, code, (int)j->harm.kind, j->harm.at, j->harm.connection, j->harm.direction,
                    (int)j->harm.protection);
            failed++;
        }
    kill(j->relay, SIGKILL);
    wait_rank(j->relay);
    return failed;
}

static void test_changed_traffic(void **state)
{
    static job jobs[AT_ONCE];
    int failed = 0;
    (void)state;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < AT_ONCE; i++) {
            jobs[i].harm = draw_harm(batch * AT_ONCE + i);
            start_job(&jobs[i]);
        }
        for (int i = 0; i < AT_ONCE; i++)
            failed += end_job(&jobs[i]);
    }
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed_traffic)};
    if (argc > 1) // another seed
        random_state += strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15u;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
