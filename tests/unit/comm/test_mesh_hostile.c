// A stranger tries every port of a running job: random bytes, greetings without a key, frames that are too large, cut
// off or out of place, connections that say nothing. The job must not notice.
#include "mesh_test.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { VISITS = 120, SILENT = 80 };

static uint64_t random_state = 88172645463325252u;

static uint32_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

static bool owns(unsigned long inode)
{
    char path[64], target[64], wanted[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, wanted) == 0)
            return true;
    }
    return false;
}

// The ports on which this process listens, by the kernel's table.
static int own_ports(int *ports, int most)
{
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/self/net/tcp", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && n < most) {
        unsigned port, kind;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", &port, &kind, &inode) == 3 &&
            kind == 0x0A && owns(inode))
            ports[n++] = (int)port;
    }
    if (file != NULL)
        fclose(file);
    return n;
}

static int connect_to(int port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static size_t fill(uint8_t *bytes, size_t most, int kind)
{
    const size_t n = 1 + draw() % most;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)draw();
    if (kind == 0)
        return n;
    // A greeting that looks right, from a rank that could exist.
    memcpy(bytes, "MUSTER", 6);
    bytes[6] = kind == 4 ? MU_WIRE_VERSION + 1 : MU_WIRE_VERSION;
    bytes[7] = (uint8_t)(kind == 3 ? draw() % 4 : MU_PROTECTION_TLS);
    memset(bytes + 8, 0, 8);
    bytes[8] = (uint8_t)(draw() % 5);
    bytes[12] = (uint8_t)(draw() % 5);
    // The bytes after the greeting may look like TLS.
    if (kind == 2 && n > 60)
        memcpy(bytes + 48, "\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03", 11);
    return MU_MAX(n, (size_t)48);
}

static void attack(int port)
{
    static uint8_t bytes[70000];
    int silent[SILENT];
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_to(port);
    for (int i = 0; i < VISITS; i++) {
        const int fd = connect_to(port);
        if (fd < 0)
            continue;
        const size_t n = fill(bytes, i % 10 == 0 ? sizeof bytes : 400, i % 5);
        if (send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 && i % 3 == 0)
            sleep_seconds(0.002);
        const struct linger reset = {.l_onoff = 1};
        if (i % 4 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
    }
    for (int i = 0; i < SILENT; i++)
        if (silent[i] >= 0)
            close(silent[i]);
}

static int attacked_rank(int rank, void *arg)
{
    const bool *plain = arg;
    mu_mesh_options options = options_of(rank);
    options.plain = *plain;
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    int ports[16];
    const int n = own_ports(ports, 16);
    CHECK(n >= 1);
    random_state += (uint64_t)rank * 1234567;
    fflush(NULL);
    const pid_t stranger = fork();
    CHECK(stranger >= 0);
    if (stranger == 0) {
        for (int i = 0; i < n; i++)
            attack(ports[i]);
        _exit(0);
    }
    // All ranks make the same number of rounds, and at least as many as the attack takes.
    int status = -1;
    mu_blocks blocks;
    for (bool attacked = true; attacked;) {
        const uint8_t own = waitpid(stranger, &status, WNOHANG) == 0;
        CHECK(mu__mesh_exchange(mesh, "as usual", &own, 1, &blocks) == MU_OK);
        attacked = false;
        for (int i = 0; i < blocks.n; i++)
            attacked = attacked || *(uint8_t *)blocks.data[i] != 0;
        mu__blocks_free(&blocks);
        sleep_seconds(0.01);
    }
    CHECK(status == 0 && !mu__mesh_has_failed(mesh, NULL));
    // A stream can still be opened.
    mu_stream *stream = rank < 2 ? mu__mesh_stream(mesh, 1 - rank, "after") : NULL;
    CHECK(rank >= 2 || stream != NULL);
    CHECK(mu__mesh_exchange(mesh, "end", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu__stream_close(stream);
    mu_release(mesh);
    return 0;
}

static void test_attacked(void **state)
{
    (void)state;
    bool plain = false;
    run_ranks(3, attacked_rank, &plain);
    plain = true;
    run_ranks(3, attacked_rank, &plain);
}

// The stranger connects before the other ranks do; they still find each other.
static int besieged_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    if (rank == 2) {
        sleep_seconds(0.3);
        for (int i = 0; i < 2; i++)
            attack(atoi(strrchr(test_peer_addresses[i], ':') + 1));
    }
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    mu_release(mesh);
    return 0;
}

static void test_besieged(void **state)
{
    (void)state;
    run_ranks(3, besieged_rank, NULL);
}

// Sends a greeting that says it is `rank`, and then something that cannot be the proof of the key.
static void impersonate(int port, int rank, int to)
{
    uint8_t bytes[200];
    const int fd = connect_to(port);
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)draw();
    memcpy(bytes, "MUSTER", 6);
    bytes[6] = MU_WIRE_VERSION;
    bytes[7] = MU_PROTECTION_TLS;
    memset(bytes + 8, 0, 8);
    bytes[8] = (uint8_t)rank;
    bytes[12] = (uint8_t)to;
    memcpy(bytes + 48, "\x16\x03\x01\x00\x70\x01\x00\x00\x6c\x03\x03", 11);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        while (recv(fd, bytes, sizeof bytes, 0) > 0)
            continue;
    close(fd);
}

static int port_of(int rank) { return atoi(strrchr(test_peer_addresses[rank], ':') + 1); }

// A stranger on this host claims again and again to be the rank that comes last, for longer than a process with the key
// would be tolerated.
static int impersonated_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    options.join_seconds = 30;
    for (const double begin = seconds_now(); rank == 2 && seconds_now() - begin < 6; sleep_seconds(0.1))
        for (int to = 0; to < 2; to++)
            impersonate(port_of(to), 2, to);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    mu_release(mesh);
    return 0;
}

static void test_impersonated(void **state)
{
    (void)state;
    run_ranks(3, impersonated_rank, NULL);
}

// Many strangers connect without pause before, while and after the job is formed: the job forms as fast and keeps
// running.
static int flooded_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    mu_blocks blocks;
    options.heartbeat_seconds = 2;
    sleep_seconds(0.2);
    const double begin = seconds_now(), idle_begin = idle_now();
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    CHECK(in_time(idle_begin, 3));
    for (bool go_on = true; go_on; sleep_seconds(0.05)) {
        const uint8_t own = seconds_now() - begin < 6;
        CHECK(mu__mesh_exchange(mesh, "as usual", &own, 1, &blocks) == MU_OK);
        go_on = *(uint8_t *)blocks.data[0] != 0; // rank 0 decides
        mu__blocks_free(&blocks);
    }
    mu_release(mesh);
    return 0;
}

static pid_t flood(int seed)
{
    const pid_t stranger = fork();
    assert_true(stranger >= 0);
    if (stranger > 0)
        return stranger;
    random_state += (uint64_t)seed * 7654321;
    for (alarm(120);;) {
        int held[200];
        for (int i = 0; i < 200; i++) {
            static uint8_t bytes[400];
            held[i] = connect_to(port_of((int)(draw() % 3)));
            const size_t n = fill(bytes, sizeof bytes, i % 5);
            if (held[i] >= 0 && i % 2 == 0)
                (void)!send(held[i], bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT); // or it was turned away already
        }
        for (int i = 0; i < 200; i++)
            if (held[i] >= 0)
                close(held[i]);
    }
}

static void test_flooded(void **state)
{
    (void)state;
    pid_t children[MOST_RANKS];
    make_peers(3);
    const pid_t stranger = flood(1);
    for (int i = 0; i < 3; i++)
        children[i] = start_rank(i, flooded_rank, NULL);
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed += wait_rank(children[i]) != 0;
    kill(stranger, SIGKILL);
    assert_int_equal(wait_rank(stranger), 1000 + SIGKILL);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attacked),
        cmocka_unit_test(test_besieged),
        cmocka_unit_test(test_impersonated),
        cmocka_unit_test(test_flooded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
