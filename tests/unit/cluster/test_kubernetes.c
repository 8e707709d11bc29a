// The Kubernetes resolver against a server that speaks the API over TLS: addresses, order, credentials, wrong answers
// and no answer.
#include "api_server.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

static char folder[] = "muster-test-kubernetes-XXXXXX";
static char url[64];
static pid_t server;

static void write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void add_extension(X509 *certificate, int what, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, what, value);
    assert_non_null(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

// A key, and a certificate of 127.0.0.1 that it signs itself.
static void write_certificate(void)
{
    char path[128];
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1");
    add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    snprintf(path, sizeof path, "%s/ca.crt", folder);
    FILE *file = fopen(path, "w");
    assert_true(PEM_write_X509(file, certificate));
    fclose(file);
    snprintf(path, sizeof path, "%s/key.pem", folder);
    file = fopen(path, "w");
    assert_true(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static int start_server(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    write_certificate();
    write_text("token", "secret\n");
    const int port = start_api(folder, &server);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", port);
    return port > 0 ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    char command[64];
    stop_api(server);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const char *spec_of(mu_cluster *cluster)
{
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    return spec ? mu_cluster_spec_json(spec) : NULL;
}

static mu_cluster *pods_of(const char *labels)
{
    const char *const selectors[] = {labels, NULL};
    const mu_job_labels jobs[] = {{"worker", selectors}, {NULL, NULL}};
    return mu_kubernetes_cluster_resolver(jobs, .api_server = url, .credentials = folder);
}

static void pods_become_tasks(void **state)
{
    (void)state;
    mu_cluster *cluster = mu_kubernetes_cluster_resolver(.api_server = url, .credentials = folder);
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"10.0.0.1:8470\", \"10.0.0.10:8470\", \"10.0.0.2:8470\"]}");
    assert_null(mu_cluster_task_type(cluster));
    assert_int_equal(mu_cluster_task_id(cluster), -1);
    assert_string_equal(mu_cluster_master(cluster), "");
    assert_string_equal(mu_cluster_rpc_layer(cluster), "grpc");
    assert_int_equal(mu_cluster_set_task_type(cluster, "worker"), MU_OK);
    assert_int_equal(mu_cluster_set_task_id(cluster, 2), MU_OK);
    assert_string_equal(mu_cluster_master(cluster), "grpc://10.0.0.2:8470");
    const char *const workers[] = {"job-name=tensorflow", NULL}, *const servers[] = {"job-name=ps", NULL};
    const mu_job_labels jobs[] = {{"worker", workers}, {"ps", servers}, {NULL, NULL}};
    cluster = mu_kubernetes_cluster_resolver(jobs, .api_server = url, .credentials = folder, .port = 99,
                                             .namespace_name = "ml");
    assert_string_equal(
        spec_of(cluster),
        "{\"ps\": [\"[fd00::7]:99\"], \"worker\": [\"10.0.0.1:99\", \"10.0.0.10:99\", \"10.0.0.2:99\"]}");
    // No pods are no cluster of one: each pod of a job whose selector is wrong would train alone.
    cluster = pods_of("job-name=empty");
    assert_string_equal(spec_of(cluster), "{\"worker\": {}}");
    assert_int_equal(mu_cluster_set_task_type(cluster, "worker"), MU_OK);
    assert_int_equal(mu_cluster_set_task_id(cluster, 0), MU_OK);
    assert_int_equal(mu_cluster_worker_count(cluster), 0);
    assert_int_equal(mu_cluster_check(cluster), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "that job of the cluster has no tasks");
}

static void refused(const char *labels, mu_status status, const char *text)
{
    assert_null(spec_of(pods_of(labels)));
    assert_taken(status, text);
}

static void wrong_answers_are_refused(void **state)
{
    (void)state;
    refused("job-name=pending", MU_FAILED_PRECONDITION, "Pending");
    refused("job-name=homeless", MU_DATA_LOSS, "on which host");
    refused("job-name=nameless", MU_DATA_LOSS, "without name");
    refused("job-name=list", MU_DATA_LOSS, "not a list");
    refused("job-name=torn", MU_INVALID_ARGUMENT, "answer");
    refused("job-name=long", MU_RESOURCE_EXHAUSTED, "bytes");
    refused("job-name=busy", MU_UNAVAILABLE, "429");
    refused("job-name=broken", MU_UNAVAILABLE, "503");
    refused("job-name=moved", MU_FAILED_PRECONDITION, "302");
}

static void credentials_count(void **state)
{
    (void)state;
    write_text("token", "guess");
    assert_null(spec_of(pods_of("job-name=tensorflow")));
    assert_taken(MU_UNAUTHENTICATED, "401");
    write_text("token", "secret");
    mu_cluster *cluster = mu_kubernetes_cluster_resolver(.api_server = url, .credentials = "muster-no-such-folder");
    assert_null(spec_of(cluster));
    assert_taken(MU_NOT_FOUND, "token");
    cluster = mu_kubernetes_cluster_resolver(.api_server = url); // a certificate that no authority signed
    assert_null(spec_of(cluster));
    assert_taken(MU_UNAVAILABLE, "certificate");
    cluster = mu_kubernetes_cluster_resolver(.api_server = url, .credentials = folder, .namespace_name = "forbidden");
    assert_null(spec_of(cluster));
    assert_taken(MU_PERMISSION_DENIED, "403");
}

static void outside_of_pods(void **state)
{
    (void)state;
    assert_null(spec_of(mu_kubernetes_cluster_resolver()));
    assert_taken(MU_FAILED_PRECONDITION, "KUBERNETES_SERVICE_HOST");
    assert_null(spec_of(mu_kubernetes_cluster_resolver(.api_server = "http://127.0.0.1:1")));
    assert_taken(MU_UNAVAILABLE, "127.0.0.1:1");
    assert_null(mu_kubernetes_cluster_resolver(.location = (mu_executable_location)2));
    assert_taken(MU_INVALID_ARGUMENT, "location is 2");
    assert_null(mu_kubernetes_cluster_resolver(.port = 70000));
    assert_taken(MU_INVALID_ARGUMENT, "70000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(pods_become_tasks),
        cluster_test(wrong_answers_are_refused),
        cluster_test(credentials_count),
        cluster_test(outside_of_pods),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
