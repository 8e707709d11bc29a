// `muster key`: makes a key for a cluster, or derives from it the key with which a process is one worker and no more.
#include "comm/sessions/net.h"
#include "tools/tools.h"

#include <ctype.h>
#include <openssl/crypto.h>

enum { TASK };

static const mu_tool_option options[] = {
    [TASK] = {.name = "for",
              .value = "worker:N",
              .text = "derive the key of worker N from the cluster's key; default: make a new key for a cluster"},
    {.text = NULL},
};

static mu_status read_task(const mu_tool_arguments *a, int *worker)
{
    static const char job[] = "worker:";
    const char *task = a->values[TASK];
    int end = 0;
    if (strncmp(task, job, sizeof job - 1) != 0 || !isdigit((unsigned char)task[sizeof job - 1]) ||
        sscanf(task + sizeof job - 1, "%5d%n", worker, &end) != 1 || task[sizeof job - 1 + (size_t)end] != '\0' ||
        *worker < 0 || *worker >= MU_MOST_BEARER)
        return mu__tool_wrong(a, TASK,
                              "worker:0, worker:1, …; a coordinator, a parameter server and the workers of other "
                              "strategies need the cluster's key itself");
    return MU_OK;
}

static mu_status print_worker_key(int worker)
{
    char *key = NULL, text[MU_WORKER_KEY];
    MU_TRY(mu__mesh_key(&key));
    if (key == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "muster key: there is no cluster key to derive from; set "
                                              "MUSTER_CLUSTER_KEY_FILE to the file that has it, or MUSTER_CLUSTER_KEY");
    mu_status status = mu__key_check(key);
    mu_keyring *keyring = status == MU_OK ? mu__keyring_new(key, true) : NULL;
    mu__key_forget(key);
    if (keyring == NULL)
        return mu_error_code();
    status = mu__keyring_worker_key(keyring, worker, text);
    if (status == MU_OK)
        printf("%s\n", text);
    OPENSSL_cleanse(text, sizeof text);
    mu_release(keyring);
    return status;
}

static bool run(const mu_tool_arguments *a)
{
    char text[MU_RANDOM_KEY];
    int worker = 0;
    if (a->values[TASK] != NULL)
        return read_task(a, &worker) == MU_OK && print_worker_key(worker) == MU_OK;
    if (mu__key_random(text) == MU_OK)
        printf("%s\n", text);
    OPENSSL_cleanse(text, sizeof text);
    return !mu__pending();
}

const mu_tool_command mu__tool_key = {
    .name = "muster key",
    .usage = "[--for worker:N]",
    .summary = "make a key for a cluster, or for one of its workers",
    .description =
        "Prints a new random key for a cluster. A process that has it can be any task.\n\n"
        "With --for worker:N it prints the key of one worker of a cluster with parameter servers, derived from the "
        "cluster's key, which it reads from MUSTER_CLUSTER_KEY_FILE or MUSTER_CLUSTER_KEY. A worker that gets this key "
        "instead of the cluster's (in the same variables) proves with it that it is worker N. It cannot be another "
        "task, and cannot stop or clear a server. The coordinator and the parameter servers keep the cluster's key; "
        "their settings do not change. `muster launch --workers` gives each worker its own key.",
    .example = "umask 077\nmuster key > cluster.key\n"
               "MUSTER_CLUSTER_KEY_FILE=cluster.key muster key --for worker:3 > worker-3.key\n",
    .options = options,
    .needs = "it takes no operands",
    .run = run,
};
