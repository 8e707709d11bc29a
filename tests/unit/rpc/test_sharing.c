// Messages through shared memory: used if both ends are on one host, complete, and refused if the memory is not the
// sender's.
#include "comm/sessions/slots.h"
#include "rpc/client/client.h"
#include "rpc/server/server.h"
#include "rpc_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static mu_value *echo(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_rpc_server *start_server(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "echo", .fn = echo);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

static mu_tensor *counting(int64_t n, double first) { return mu_range(MU_F32, first, first + (double)n, 1); }

static void expect_echo(mu_rpc_result *result, int64_t n, double first)
{
    const mu_value *value = mu_rpc_result_value(result);
    const mu_tensor *tensor = value != NULL ? mu_at(value, 1) : NULL;
    assert_non_null(tensor);
    const float *elements = mu_tensor_data(tensor);
    for (int64_t i = 0; i < n; i++)
        if (elements[i] != (float)(first + (double)i))
            fail_msg("element %lld of %lld is %g", (long long)i, (long long)n, (double)elements[i]);
}

static mu_sharing sharing_of(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const mu_sharing sharing = client->channel.sharing;
    pthread_mutex_unlock(&client->lock);
    return sharing;
}

// Many messages of all sizes at one time: before the ends share memory, while they agree on it, and through it.
static void send_all_sizes(mu_rpc_client *client)
{
    static const int64_t sizes[] = {1, 8191, 8192, 65536, 65537, 200000, 1048576, 3000001};
    enum { N = (int)MU_COUNT(sizes) };
    mu_rpc_result *results[2 * N];
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < 2 * N; i++)
        results[i] = mu_rpc_call(client, "echo", mu_list(number(i), counting(sizes[i % N], i), MU_END));
    for (int i = 0; i < 2 * N; i++)
        expect_echo(results[i], sizes[i % N], i);
    mu_pool_close(pool);
}

static void test_messages_of_all_sizes(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    for (int round = 0; round < 3; round++)
        send_all_sizes(client);
    assert_int_equal(sharing_of(client), MU_SHARING_YES);
    pthread_mutex_lock(&client->lock);
    assert_int_equal(client->budget.used, 0);
    pthread_mutex_unlock(&client->lock);
    mu_pool_close(pool);
}

static void wait_for_no_bytes(mu_rpc_server *server)
{
    size_t used = 1;
    for (int i = 0; i < 6000 && used > 0; i++) {
        pthread_mutex_lock(&server->lock);
        used = server->budget.used;
        pthread_mutex_unlock(&server->lock);
        if (used > 0)
            usleep(10000);
    }
    assert_int_equal(used, 0);
}

// Parts of a message are on their way before the first one is answered; nothing of a refused message remains.
static void test_refused_messages(void **state)
{
    (void)state;
    enum { MOST = 3000000, FLOATS = 200000, HUGE = 1000000, ROUNDS = 20 };
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = MOST);
    mu_rpc_server_register(server, "echo", .fn = echo);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    for (int i = 0; i < 3; i++)
        expect_echo(mu_rpc_call(client, "echo", mu_list(number(i), counting(FLOATS, i), MU_END)), FLOATS, i);
    assert_int_equal(sharing_of(client), MU_SHARING_YES);
    pthread_mutex_lock(&client->lock);
    client->most_bytes = 0; // as of a server that does not say how much it takes
    pthread_mutex_unlock(&client->lock);
    for (int i = 0; i < ROUNDS; i++) {
        mu_rpc_result *huge = mu_rpc_call(client, "echo", mu_list(number(i), counting(HUGE, i), MU_END));
        mu_rpc_result *fits = mu_rpc_call(client, "echo", mu_list(number(i), counting(FLOATS, i), MU_END));
        expect_result(huge, MU_RESOURCE_EXHAUSTED, "does not fit");
        expect_echo(fits, FLOATS, i);
    }
    wait_for_no_bytes(server);
    mu_pool_close(pool);
}

static double processor_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec * 1e-6;
}

// Both ends look for the next message before they sleep, but only for a moment.
static void test_idle_ends_sleep(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    expect_echo(mu_rpc_call(client, "echo", mu_list(number(0), counting(10, 0), MU_END)), 10, 0);
    usleep(50000);
    const double before = processor_ms();
    usleep(500000);
    assert_true(processor_ms() - before < 100);
    mu_pool_close(pool);
}

static void test_the_setting_ends_it(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    pthread_mutex_lock(&client->lock);
    client->channel.sharing = MU_SHARING_NO;
    pthread_mutex_unlock(&client->lock);
    send_all_sizes(client);
    mu_pool_close(pool);
}

static void expect_refused(const char *address, const uint8_t *proof, mu_status code)
{
    assert_null(mu__slots_find(address, proof));
    assert_int_equal(mu_error_take().code, code);
}

static void test_only_the_other_ends_memory(void **state)
{
    uint8_t proof[MU_KEY_BYTES] = {7}, other[MU_KEY_BYTES] = {8};
    char address[MU_SLOTS_ADDRESS], text[MU_SLOTS_ADDRESS];
    (void)state;
    mu_slots *own = mu__slots_new(proof, address), *theirs = mu__slots_find(address, proof);
    assert_non_null(theirs);
    memset(mu__slot_write(own, MU_SLOTS - 1), 3, MU_SLOT_BYTES);
    assert_int_equal(mu__slot_read(theirs, MU_SLOTS - 1)[MU_SLOT_BYTES - 1], 3);
    expect_refused(address, other, MU_UNAUTHENTICATED);
    expect_refused("", proof, MU_NOT_FOUND);
    expect_refused("1/2/3 and more", proof, MU_NOT_FOUND);
    snprintf(text, sizeof text, "%ld/0/1", (long)getpid()); // a file of another kind
    expect_refused(text, proof, MU_NOT_FOUND);
    mu__slots_free(theirs);
    mu__slots_free(own);
    expect_refused(address, proof, MU_NOT_FOUND);
}

// Memory that its maker could shorten would let it kill the reader with SIGBUS.
static void test_memory_that_can_shrink(void **state)
{
    (void)state;
    const uint8_t proof[MU_KEY_BYTES] = {0};
    char text[MU_SLOTS_ADDRESS];
    const off_t bytes = 4096 + (off_t)MU_SLOTS * MU_SLOT_BYTES;
    const int fd = memfd_create("muster", MFD_ALLOW_SEALING);
    struct stat about;
    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(fstat(fd, &about), 0);
    snprintf(text, sizeof text, "%ld/%d/%llu", (long)getpid(), fd, (unsigned long long)about.st_ino);
    expect_refused(text, proof, MU_NOT_FOUND);
    close(fd);
}

// The limit on memory also covers memory shared between processes, and exceeding it raises a signal that ends a
// program.
static void test_a_limit_on_files(void **state)
{
    const uint8_t proof[MU_KEY_BYTES] = {0};
    char address[MU_SLOTS_ADDRESS];
    struct rlimit kept;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    const struct rlimit small = {.rlim_cur = 10000, .rlim_max = kept.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_null(mu__slots_new(proof, address));
    assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    send_all_sizes(mu_rpc_client_new("muster", mu_rpc_server_address(server)));
    mu_pool_close(pool);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_all_sizes),
        cmocka_unit_test(test_refused_messages),
        cmocka_unit_test(test_idle_ends_sleep),
        cmocka_unit_test(test_the_setting_ends_it),
        cmocka_unit_test(test_only_the_other_ends_memory),
        cmocka_unit_test(test_memory_that_can_shrink),
        cmocka_unit_test(test_a_limit_on_files),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
