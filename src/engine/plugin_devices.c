// Starts plugins, by name or by the kind of their devices, and remembers which do not start and why.
//
// "GPU" is the kind of several plugins (CUDA, ROCm, in more than one version), of which at most one may fit the
// machine's driver: the first that starts serves the kind.
#include "engine/plugin_devices.h"

#include <ctype.h>
#include <pthread.h>
#include <strings.h>

struct mu_failed_plugin {
    mu_failed_plugin *next;
    char name[MU_PJRT_NAME];
    mu_error_value cause;
};

void mu__plugins_init(mu_plugin_devices *plugins)
{
    *plugins = (mu_plugin_devices){.clients = NULL};
    pthread_mutex_init(&plugins->lock, NULL);
}

static void forget_failures(mu_plugin_devices *plugins)
{
    while (plugins->failed) {
        mu_failed_plugin *next = plugins->failed->next;
        mu__free(plugins->failed);
        plugins->failed = next;
    }
}

void mu__plugins_destroy(mu_plugin_devices *plugins)
{
    while (plugins->clients) {
        mu_pjrt_client *client = plugins->clients;
        plugins->clients = client->next;
        for (int i = 0; i < client->n_devices; i++)
            mu__worker_free(client->devices[i].worker);
        mu_release(client);
    }
    forget_failures(plugins);
    mu_release(plugins->world);
    pthread_mutex_destroy(&plugins->lock);
}

// ---- Kinds --------------------------------------------------------------------------------------

static bool is_gpu_plugin(const char *base)
{
    base += strncmp(base, "xla_", 4) == 0 ? 4 : 0;
    return strncmp(base, "cuda", 4) == 0 || strncmp(base, "rocm", 4) == 0 || strcmp(base, "gpu") == 0;
}

// The kind in the names of a plugin's devices: "GPU" for those of CUDA and ROCm, else the plugin's name in upper case.
// "cpu" would clash with the CPU devices.
static void kind_of_plugin(const char *name, char kind[MU_PJRT_KIND])
{
    const char *end = strrchr(name, '/');
    const char *base = end ? end + 1 : name;
    size_t n = 0;
    if (is_gpu_plugin(base)) {
        snprintf(kind, MU_PJRT_KIND, "GPU");
        return;
    }
    snprintf(kind, MU_PJRT_KIND, "%s", strcasecmp(base, "cpu") == 0 ? "xla_" : "");
    for (n = strlen(kind); *base && *base != '.' && n < MU_PJRT_KIND - 1; base++)
        kind[n++] = *base;
    kind[n] = '\0';
    for (char *c = kind; *c; c++)
        *c = (char)toupper((unsigned char)*c);
}

// ---- Starting -----------------------------------------------------------------------------------

static const mu_failed_plugin *failed_before(const mu_plugin_devices *plugins, const char *name)
{
    const mu_failed_plugin *failed = plugins->failed;
    while (failed && strcmp(failed->name, name) != 0)
        failed = failed->next;
    return failed;
}

// Remembers this thread's error as the plugin's, unless another attempt may succeed: after an installation, or with
// more free memory.
static void remember(mu_plugin_devices *plugins, const char *name)
{
    if (mu_error_code() == MU_RESOURCE_EXHAUSTED || !mu__pjrt_installed(name))
        return;
    mu_error_value cause;
    mu__error_move(&cause);
    mu_failed_plugin *failed = mu__calloc(1, sizeof *failed);
    if (failed) {
        snprintf(failed->name, sizeof failed->name, "%s", name);
        failed->cause = cause;
        failed->next = plugins->failed;
        plugins->failed = failed;
    } else {
        mu_error_take();
    }
    mu__error_raise(&cause);
}

// Called with the lock held. The caller owns the result.
static mu_pjrt_client *start(mu_plugin_devices *plugins, const char *name, const char *kind, mu_device_world *world)
{
    const mu_failed_plugin *failed = failed_before(plugins, name);
    if (failed) {
        mu__error_raise(&failed->cause);
        return NULL;
    }
    mu_pjrt_client *client = mu__pjrt_client_new(name, kind, world);
    if (!client)
        remember(plugins, name);
    return client;
}

// *again: the plugin did not start before either.
static mu_pjrt_client *client_of(mu_plugin_devices *plugins, const char *name, bool *again)
{
    char kind[MU_PJRT_KIND];
    kind_of_plugin(name, kind);
    pthread_mutex_lock(&plugins->lock);
    *again = failed_before(plugins, name) != NULL;
    mu_pjrt_client *client = plugins->clients;
    while (client && strcmp(client->kind, kind) != 0)
        client = client->next;
    if (!client && (client = start(plugins, name, kind, plugins->world)) != NULL) {
        client->next = plugins->clients;
        plugins->clients = client;
    }
    pthread_mutex_unlock(&plugins->lock);
    return client;
}

mu_pjrt_client *mu__plugins_client(mu_plugin_devices *plugins, const char *name)
{
    bool again;
    return client_of(plugins, name, &again);
}

// ---- The plugins of a kind ----------------------------------------------------------------------

enum { MOST_LISTED = 16 };

// The listed plugins whose devices are of this kind, in order.
static int plugins_of_kind(const char *kind, char names[MOST_LISTED][MU_PJRT_NAME])
{
    char own[MU_PJRT_KIND];
    const int listed = mu__pjrt_list(names, MOST_LISTED);
    int n = 0;
    for (int i = 0; i < listed; i++) {
        kind_of_plugin(names[i], own);
        if (strcmp(own, kind) != 0)
            continue;
        if (n < i)
            memcpy(names[n], names[i], MU_PJRT_NAME);
        n++;
    }
    return n;
}

static void warn(const char *plugin, const char *kind, const mu_error_value *cause)
{
    mu__log(MU_LOG_WARNING, "the plugin %s cannot be used, so it has no %s: %s", plugin, kind, cause->message);
}

mu_pjrt_client *mu__plugins_of_kind(mu_plugin_devices *plugins, const char *kind, char plugin[MU_PJRT_NAME])
{
    char names[MOST_LISTED][MU_PJRT_NAME];
    mu_error_value first = {.code = MU_OK}, cause;
    const int n = plugins_of_kind(kind, names);
    bool again;
    for (int i = 0; i < n; i++) {
        mu_pjrt_client *client = client_of(plugins, names[i], &again);
        if (client || i == 0)
            memcpy(plugin, names[i], MU_PJRT_NAME);
        if (client)
            return client;
        mu__error_move(&cause);
        if (!again)
            warn(names[i], kind, &cause);
        if (i == 0)
            first = cause;
    }
    if (n > 0) {
        mu__error_raise(&first);
        return NULL;
    }
    for (size_t i = 0; i <= strlen(kind); i++)
        plugin[i] = (char)tolower((unsigned char)kind[i]);
    return client_of(plugins, plugin, &again);
}

bool mu__plugins_try(mu_plugin_devices *plugins, const char *kind)
{
    char names[MOST_LISTED][MU_PJRT_NAME];
    const int n = plugins_of_kind(kind, names);
    mu_error_value cause;
    bool starts = false;
    pthread_mutex_lock(&plugins->lock);
    for (const mu_pjrt_client *client = plugins->clients; client; client = client->next)
        starts |= strcmp(client->kind, kind) == 0;
    for (int i = 0; i < n && !starts; i++) {
        const bool again = failed_before(plugins, names[i]) != NULL;
        mu_pjrt_client *client = start(plugins, names[i], kind, NULL);
        starts = client != NULL;
        mu_release(client);
        mu__error_move(&cause);
        if (!starts && !again)
            warn(names[i], kind, &cause);
    }
    pthread_mutex_unlock(&plugins->lock);
    return starts;
}

// ---- All clients --------------------------------------------------------------------------------

void mu__plugins_list(mu_plugin_devices *plugins, char *text, size_t bytes)
{
    size_t at = 0;
    pthread_mutex_lock(&plugins->lock);
    for (const mu_pjrt_client *client = plugins->clients; client && at < bytes; client = client->next)
        at += (size_t)snprintf(text + at, bytes - at, client->n_devices > 1 ? ", %s:0 to %s:%d" : ", %s:0",
                               client->kind, client->kind, client->n_devices - 1);
    pthread_mutex_unlock(&plugins->lock);
}

void mu__plugins_set_world(mu_plugin_devices *plugins, mu_device_world *world)
{
    pthread_mutex_lock(&plugins->lock);
    for (const mu_pjrt_client *client = plugins->clients; world && client; client = client->next)
        if (strcmp(client->kind, "XLA_CPU") != 0) // whose plugin knows no other processes
            mu__log(MU_LOG_WARNING,
                    "the devices %s:0 to %s:%d were made before this process joined %d others, and form no world with "
                    "theirs. Make the strategy before anything else names a device",
                    client->kind, client->kind, client->n_devices - 1, world->n_processes - 1);
    mu_release(plugins->world);
    plugins->world = mu_retain(world);
    forget_failures(plugins);
    pthread_mutex_unlock(&plugins->lock);
}
