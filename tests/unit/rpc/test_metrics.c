// The numbers that a server shows over HTTP, hostile requests for them, draining a server, and a server that waits for
// file descriptors when it has none.
#include "../../metrics_page.h"
#include "base/system.h"
#include "rpc/server/call_metrics.h"
#include "rpc/rpc.h"
#include "rpc_test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static atomic_bool entered, released;

static mu_value *wait_for_release(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    atomic_store(&entered, true);
    while (!atomic_load(&released))
        usleep(1000);
    return number(1);
}

static mu_value *answer(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return number(2);
}

static mu_rpc_server *start_server(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "wait", .fn = wait_for_release);
    mu_rpc_server_register(server, "answer \"this\"", .fn = answer);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

static void expect_answer(int port, const char *request, const char *part)
{
    static char text[1 << 16];
    assert_true(http_ask(port, request, text, sizeof text));
    if (strstr(text, part) == NULL)
        fail_msg("\"%.60s\" is answered without \"%s\":\n%s", request, part, text);
}

static void test_numbers_of_a_server(void **state)
{
    static const char get[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    const int port = mu__server_metrics_port(server);
    assert_true(port > 0);
    for (int i = 0; i < 3; i++)
        expect_result(mu_rpc_call(client, "answer \"this\""), MU_OK, "");
    expect_answer(port, get, "HTTP/1.1 200 OK\r\n");
    expect_answer(port, get, "muster_calls_total{method=\"answer \\\"this\\\"\"} 3\n");
    expect_answer(port, get, "muster_call_seconds_bucket{method=\"answer \\\"this\\\"\",le=\"+Inf\"} 3\n");
    expect_answer(port, get, "muster_connections 1\n");
    expect_answer(port, "GET /other HTTP/1.1\r\n\r\n", "404 Not Found");
    expect_answer(port, "POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed");
    expect_answer(port, "nonsense\r\n\r\n", "400 Bad Request");
    mu_pool_close(pool);
}

// Readers of the format refuse a whole page for a line that is cut in two, for two lines with the same labels, and for
// bytes that are not UTF-8.
static void test_names_of_methods_in_labels(void **state)
{
    static const struct {
        const char *name, *label;
    } cases[] = {{"a\nb", "a\\nb"},
                 {"a b", "a b"},
                 {"a\tb", "a\tb"},
                 {"\\\"", "\\\\\\\""},
                 {"gr\xC3\xBC\xC3\x9F", "gr\xC3\xBC\xC3\x9F"},
                 {"\xE2\x82\xAC\xF0\x9F\x98\x80", "\xE2\x82\xAC\xF0\x9F\x98\x80"},
                 {"a\xFF", "a\\\\xff"},
                 {"\xC3", "\\\\xc3"},
                 {"\xED\xA0\x80", "\\\\xed\\\\xa0\\\\x80"}, // half of a surrogate pair
                 {"\xC0\x80", "\\\\xc0\\\\x80"}};
    char longest[201], line[1200];
    (void)state;
    memset(longest, 0xFF, sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu_text text = {0};
        snprintf(line, sizeof line, "muster_calls_total{method=\"%s\"} 0\n", cases[i].label);
        assert_int_equal(mu__metrics_put(&text, 0, cases[i].name, &(mu_method_metrics){.ended = 0}), MU_OK);
        assert_string_equal(text.items, line);
        mu__free(text.items);
    }
    mu_text text = {0};
    assert_int_equal(mu__metrics_put(&text, 0, longest, &(mu_method_metrics){.ended = 7}), MU_OK);
    assert_int_equal(text.n, strlen("muster_calls_total{method=\"\"} 7\n") + 5 * strlen(longest));
    mu__free(text.items);
}

// The sum of many short calls goes on after a long time: it is not rounded to six digits.
static void test_the_sum_of_seconds_is_exact(void **state)
{
    mu_method_metrics metrics = {0};
    mu_text text = {0};
    (void)state;
    mu__metrics_count(&metrics, INT64_C(3000000000000000), false, 0, 0);
    mu__metrics_count(&metrics, 250000000, false, 0, 0);
    assert_int_equal(mu__metrics_put(&text, MU_METRIC_FAMILIES - 1, "a", &metrics), MU_OK);
    assert_non_null(strstr(text.items, "muster_call_seconds_sum{method=\"a\"} 3000000.25\n"));
    mu__free(text.items);
}

static void test_requests_of_strangers(void **state)
{
    static const struct {
        const char *text;
        mu_http is;
    } cases[] = {{"", MU_HTTP_MORE},
                 {"GET /metrics HTTP/1.1\r\n", MU_HTTP_MORE},
                 {"\n", MU_HTTP_BAD},
                 {"GET /metrics HTTP/1.0\n\n", MU_HTTP_METRICS},
                 {"GET /metrics\r\n\r\n", MU_HTTP_BAD},
                 {"GET /metrics2 HTTP/1.1\r\n\r\n", MU_HTTP_NOT_FOUND},
                 {" \n\n", MU_HTTP_BAD},
                 {"GET  HTTP/1.1\r\n\r\n", MU_HTTP_NOT_FOUND},
                 {"HEAD / HTTP/1.1\r\n\r\n", MU_HTTP_NO_METHOD}};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(cases); i++)
        assert_int_equal(mu__http_read(cases[i].text, strlen(cases[i].text)), cases[i].is);
    char *endless = malloc(MU_HTTP_MOST);
    memset(endless, 'a', MU_HTTP_MOST);
    assert_int_equal(mu__http_read(endless, MU_HTTP_MOST - 1), MU_HTTP_MORE);
    assert_int_equal(mu__http_read(endless, MU_HTTP_MOST), MU_HTTP_BAD);
    endless[3] = '\0';
    assert_int_equal(mu__http_read(endless, 10), MU_HTTP_BAD);
    free(endless);
}

static int connect_to(int port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

// Connections that ask for nothing keep nobody from the numbers; one whose request comes in two parts gets its answer.
static void test_silent_connections(void **state)
{
    enum { SILENT = 40, LIMIT_S = 20 }; // of which each would wait for 2 s
    static const char first[] = "GET /metrics HT", rest[] = "TP/1.1\r\n\r\n";
    int silent[SILENT];
    char begin[16] = "";
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    const int port = mu__server_metrics_port(server);
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_to(port);
    const int64_t began_ns = mu__now_ns();
    const int parts = connect_to(port);
    assert_int_equal(send(parts, first, strlen(first), MSG_NOSIGNAL), (int)strlen(first));
    expect_answer(port, "GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    assert_int_equal(send(parts, rest, strlen(rest), MSG_NOSIGNAL), (int)strlen(rest));
    assert_int_equal(recv(parts, begin, sizeof begin - 1, MSG_WAITALL), (int)sizeof begin - 1);
    assert_string_equal(begin, "HTTP/1.1 200 OK");
    assert_true(mu__now_ns() - began_ns < LIMIT_S * INT64_C(1000000000));
    close(parts);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    mu_pool_close(pool);
}

static void test_draining(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_rpc_result *running = mu_rpc_call(client, "wait");
    while (!atomic_load(&entered))
        usleep(1000);
    assert_false(mu__server_drain(server, 0)); // it runs
    expect_result(mu_rpc_call(client, "answer \"this\""), MU_UNAVAILABLE, "being drained");
    atomic_store(&released, true);
    assert_true(mu__server_drain(server, 60));
    expect_result(running, MU_OK, "");
    mu_pool_close(pool);
}

// ---- A process without descriptors --------------------------------------------------------------

static atomic_bool has_no_descriptors;
static atomic_int n_refused;

static int take_or_refuse(int listener)
{
    if (!atomic_load(&has_no_descriptors))
        return mu__linux.accept(listener);
    n_refused++;
    errno = EMFILE;
    return -1;
}

// Returns its argument if the page was received.
static void *ask_for_numbers(void *port)
{
    static char text[1 << 16];
    const bool came = http_ask(*(const int *)port, "GET /metrics HTTP/1.1\r\n\r\n", text, sizeof text);
    return came && strstr(text, "200 OK") ? port : NULL;
}

// A page requested then is written as soon as there are descriptors again, and until then the listener does not spin.
static void test_a_page_waits_for_descriptors(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    atomic_store(&has_no_descriptors, true);
    pthread_t asking;
    int port = mu__server_metrics_port(server);
    assert_int_equal(pthread_create(&asking, NULL, ask_for_numbers, &port), 0);
    usleep(500 * 1000);
    assert_in_range(atomic_load(&n_refused), 1, 10);
    atomic_store(&has_no_descriptors, false);
    void *answered = NULL;
    assert_int_equal(pthread_join(asking, &answered), 0);
    assert_ptr_equal(answered, &port);
    mu_pool_close(pool);
}

// So does a client: its call is answered once there are descriptors again, and the server sleeps until then.
static void test_a_client_waits_for_descriptors(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server();
    n_refused = 0;
    atomic_store(&has_no_descriptors, true);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_rpc_result *result = mu_rpc_call(client, "answer \"this\"");
    usleep(500 * 1000);
    assert_in_range(atomic_load(&n_refused), 1, 10);
    atomic_store(&has_no_descriptors, false);
    expect_result(result, MU_OK, "");
    mu_pool_close(pool);
}

static int start(void **state)
{
    static mu_system system;
    system = mu__linux;
    system.accept = take_or_refuse;
    mu__system = &system;
    setenv("MUSTER_METRICS_PORT", "0", 1);
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_a_server),          cmocka_unit_test(test_names_of_methods_in_labels),
        cmocka_unit_test(test_the_sum_of_seconds_is_exact),  cmocka_unit_test(test_requests_of_strangers),
        cmocka_unit_test(test_silent_connections),           cmocka_unit_test(test_draining),
        cmocka_unit_test(test_a_page_waits_for_descriptors), cmocka_unit_test(test_a_client_waits_for_descriptors),
    };
    return cmocka_run_group_tests(tests, start, end_library);
}
