// A plugin of the tests' own whose devices are in several processes. It computes nothing: its client does what those of
// GPU plugins do, which exchange the descriptions of their devices through the key-value callbacks. Node i of n puts a
// value, gets those of all others, and has the devices 2 i and 2 i + 1 of 2 n.
//
// MU_PLUGIN_TIMEOUT: milliseconds of each get (60000). MU_PLUGIN_LATE: the node that puts nothing. MU_PLUGIN_DIES: the
// node whose process ends before it puts anything.
#include "engine/pjrt/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EACH = 2, MOST_NODES = 16, FUNCTIONS = 118, INVALID = 3, NOT_FOUND = 5, ALREADY_EXISTS = 6, UNIMPLEMENTED = 12 };

struct pj_error {
    int code;
    char message[1200];
};
struct pj_device {
    int id;
};
struct pj_client {
    int node, nodes;
    pj_device devices[EACH * MOST_NODES];
    pj_device *all[EACH * MOST_NODES];
};

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

// ---- Errors -------------------------------------------------------------------------------------

static pj_error *make_error(int code, const char *message, size_t bytes)
{
    pj_error *error = calloc(1, sizeof *error);
    if (!error)
        abort();
    error->code = code;
    snprintf(error->message, sizeof error->message, "%.*s", (int)bytes, message);
    return error;
}

static pj_callback_error *const callback_error = make_error;

static pj_error *refuse(int code, const char *message) { return make_error(code, message, strlen(message)); }

static pj_error *error_destroy(void *args)
{
    free(((pj_error_args *)args)->error);
    return NULL;
}

static pj_error *error_message(void *args)
{
    pj_error_message_args *message = args;
    message->message = message->error->message;
    message->bytes = strlen(message->message);
    return NULL;
}

static pj_error *error_code(void *args)
{
    ((pj_error_code_args *)args)->code = ((pj_error_code_args *)args)->error->code;
    return NULL;
}

static pj_error *initialize(void *args)
{
    (void)args;
    return NULL;
}

static pj_error *fail(void *args)
{
    (void)args;
    return refuse(UNIMPLEMENTED, "this plugin computes nothing");
}

// ---- The world ----------------------------------------------------------------------------------

// The value contains a zero byte, and so does the key.
static size_t words(char *text, const char *word, int node) { return (size_t)sprintf(text, "%s%c%d", word, 0, node); }

static pj_error *put_own(const pj_client_create_args *create, int node)
{
    char key[32], value[32];
    pj_key_put_args put = {.key = key,
                           .key_bytes = words(key, "node", node),
                           .value = value,
                           .bytes = words(value, "value", node),
                           .error = (pj_callback_error **)&callback_error,
                           .arg = create->put_arg};
    pj_error *error = create->put(&put);
    if (error)
        return error;
    error = create->put(&put);
    if (!error || error->code != ALREADY_EXISTS)
        return error ? error : refuse(INVALID, "a key can be put twice"); // another error: the job has failed
    free(error);
    return NULL;
}

static pj_error *get_other(const pj_client_create_args *create, int node)
{
    char key[32], wanted[32];
    pj_key_get_args get = {.key = key,
                           .key_bytes = words(key, "node", node),
                           .timeout_ms = number("MU_PLUGIN_TIMEOUT", 60000),
                           .error = (pj_callback_error **)&callback_error,
                           .arg = create->get_arg};
    pj_error *error = create->get(&get);
    if (error)
        return error;
    const size_t bytes = words(wanted, "value", node);
    const int same = get.bytes == bytes && memcmp(get.value, wanted, bytes) == 0;
    get.delete_value(get.value);
    return same ? NULL : refuse(INVALID, "a value is not what was put");
}

// A key without a value is not found at once; one with a value is.
static pj_error *try_both(const pj_client_create_args *create, int node)
{
    char key[32];
    pj_key_try_get_args get = {
        .key = "nothing", .key_bytes = 7, .error = (pj_callback_error **)&callback_error, .arg = create->try_get_arg};
    pj_error *error = create->try_get(&get);
    if (!error || error->code != NOT_FOUND)
        return error ? error : refuse(INVALID, "a key that nobody has put has a value");
    free(error);
    get.key = key;
    get.key_bytes = words(key, "node", node);
    error = create->try_get(&get);
    if (!error)
        get.delete_value(get.value);
    return error;
}

static pj_error *meet(const pj_client_create_args *create, int node, int nodes)
{
    pj_error *error = NULL;
    if (nodes > 1 && (!create->get || !create->try_get || !create->put))
        return refuse(INVALID, "several nodes need all three callbacks");
    if (node == number("MU_PLUGIN_DIES", -1))
        _exit(0);
    if (node == number("MU_PLUGIN_LATE", -1) || nodes == 1)
        return NULL;
    error = put_own(create, node);
    for (int i = 0; !error && i < nodes; i++)
        if (i != node)
            error = get_other(create, i);
    return error ? error : try_both(create, (node + 1) % nodes);
}

static pj_error *client_create(void *args)
{
    pj_client_create_args *create = args;
    int node = 0, nodes = 1;
    for (size_t i = 0; i < create->n_options; i++) {
        const pj_named_value *option = &create->options[i];
        if (option->name_bytes == 7 && memcmp(option->name, "node_id", 7) == 0)
            node = (int)option->value.integer;
        else if (option->name_bytes == 9 && memcmp(option->name, "num_nodes", 9) == 0)
            nodes = (int)option->value.integer;
        else
            return refuse(INVALID, "an option that this plugin does not know");
    }
    if (nodes < 1 || nodes > MOST_NODES || node < 0 || node >= nodes)
        return refuse(INVALID, "this node is none of the nodes");
    pj_error *error = meet(create, node, nodes);
    if (error)
        return error;
    pj_client *client = calloc(1, sizeof *client);
    if (!client)
        abort();
    client->node = node;
    client->nodes = nodes;
    for (int i = 0; i < EACH * nodes; i++) {
        client->devices[i].id = i;
        client->all[i] = &client->devices[i];
    }
    create->client = client;
    return NULL;
}

static pj_error *client_destroy(void *args)
{
    free(((pj_client_args *)args)->client);
    return NULL;
}

static pj_error *client_process(void *args)
{
    ((pj_client_process_args *)args)->index = ((pj_client_process_args *)args)->client->node;
    return NULL;
}

static pj_error *client_devices(void *args)
{
    pj_client_devices_args *devices = args;
    devices->devices = devices->client->all;
    devices->n = (size_t)(EACH * devices->client->nodes);
    return NULL;
}

static pj_error *client_addressable(void *args)
{
    pj_client_devices_args *devices = args;
    devices->devices = devices->client->all + EACH * devices->client->node;
    devices->n = EACH;
    return NULL;
}

// ---- Devices ------------------------------------------------------------------------------------

static pj_error *device_description(void *args)
{
    pj_device_description_args *device = args;
    device->description = (pj_description *)device->device;
    return NULL;
}

static pj_error *description_id(void *args)
{
    pj_description_id_args *id = args;
    id->id = ((pj_device *)id->description)->id;
    return NULL;
}

__attribute__((visibility("default"))) const pj_api *GetPjrtApi(void);
const pj_api *GetPjrtApi(void)
{
    static _Alignas(pj_api) char table[sizeof(pj_api) + sizeof(pj_call *) * FUNCTIONS];
    static pj_call *const calls[FUNCTIONS] = {
        [PJ_ERROR_DESTROY] = error_destroy,
        [PJ_ERROR_MESSAGE] = error_message,
        [PJ_ERROR_GET_CODE] = error_code,
        [PJ_PLUGIN_INITIALIZE] = initialize,
        [PJ_CLIENT_CREATE] = client_create,
        [PJ_CLIENT_DESTROY] = client_destroy,
        [PJ_CLIENT_PROCESS_INDEX] = client_process,
        [PJ_CLIENT_DEVICES] = client_devices,
        [PJ_CLIENT_ADDRESSABLE_DEVICES] = client_addressable,
        [PJ_DEVICE_GET_DESCRIPTION] = device_description,
        [PJ_DEVICE_DESCRIPTION_ID] = description_id,
    };
    pj_api *api = (pj_api *)table;
    api->size = sizeof *api + sizeof(pj_call *) * FUNCTIONS;
    api->version = (pj_version){.size = sizeof api->version, .minor = 81};
    for (int i = 0; i < FUNCTIONS; i++)
        api->functions[i] = calls[i] ? calls[i] : fail;
    return api;
}
