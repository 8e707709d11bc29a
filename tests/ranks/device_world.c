// device_world PART: one process of several whose devices form a world, with a plugin of the tests' own that computes
// nothing (tests/pjrt/world_plugin.c). PART: "met", all processes have met; "late", the last one puts no key; "dies",
// the last one's process ends while the others wait for its key.
#include "engine/pjrt/pjrt.h"

#include <muster.h>

enum { EACH = 2, WAIT_SECONDS = 20 };

static int complain(const char *what)
{
    fprintf(stderr, "device_world: %s; error: %s\n", what, mu_error_message());
    return 1;
}

// This process has only its own devices, and knows the number of all devices and its own number.
static int check_met(int process, int n)
{
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    if (!strategy)
        return complain("there is no strategy");
    const mu_pjrt_client *client = mu__device_at(mu__runtime(), 0)->engine_client;
    if (mu__device_count(mu__runtime()) != EACH || mu_num_replicas_in_sync(strategy) != EACH * n)
        return complain("the numbers of devices and replicas are wrong");
    if (client->process != process || client->n_all != EACH * n || client->n_devices != EACH)
        return complain("the client does not know its place in the world");
    for (int i = 0; i < EACH; i++) {
        pj_device_description_args of = PJ_ARGS(pj_device_description_args, .device = client->devices[i].engine_device);
        if (mu__pjrt_call(client->api, PJ_DEVICE_GET_DESCRIPTION, &of, "device") != MU_OK)
            return complain("a device has no description");
        pj_description_id_args id = PJ_ARGS(pj_description_id_args, .description = of.description);
        if (mu__pjrt_call(client->api, PJ_DEVICE_DESCRIPTION_ID, &id, "device") != MU_OK || id.id != EACH * process + i)
            return complain("a device has another number in the world");
    }
    return 0;
}

// The other processes fail in time, and name the key and the process that they waited for.
static int check_named(int n, const char *word)
{
    char name[40];
    const int64_t begin = mu__now_ns();
    if (mu_multi_worker_mirrored_strategy())
        return complain("a strategy was made without the last process");
    snprintf(name, sizeof name, "/job:worker/task:%d", n - 1);
    const mu_error error = mu_error_take();
    if (!strstr(error.message, name) || !strstr(error.message, word)) {
        fprintf(stderr, "device_world: \"%s\" does not have \"%s\" and \"%s\"\n", error.message, name, word);
        return 1;
    }
    return mu__now_ns() - begin < WAIT_SECONDS * INT64_C(1000000000) ? 0 : complain("that took too long");
}

int main(int argc, char **argv)
{
    mu_init();
    mu_cluster *cluster = mu_cluster_from_environment();
    const int process = mu_cluster_worker_index(cluster), n = mu_cluster_worker_count(cluster);
    const char *part = argc > 1 ? argv[1] : "met";
    int failed;
    if (strcmp(part, "met") == 0)
        failed = check_met(process, n);
    else if (strcmp(part, "dies") == 0)
        failed = check_named(n, "is gone");
    else if (process < n - 1)
        failed = check_named(n, "no key came from");
    else
        failed = mu_multi_worker_mirrored_strategy() ? complain("a strategy was made alone") : (mu_error_take(), 0);
    const int ended = mu_exit(true);
    return failed || ended;
}
