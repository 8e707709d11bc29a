// The table of joined_plugin: clients, devices and programs. joined_plugin.h says what the plugin is.
//
// Process i of n learns both numbers from the options node_id and num_nodes, as GPU plugins do, or from TPU_WORKER_ID
// and the names in TPU_WORKER_HOSTNAMES, as libtpu does; without either it is alone. Its devices are MU_PLUGIN_EACH (2)
// or the option cpu_device_count; those of process i are numbers i * each and following. If a process joins a launch
// later than MU_PLUGIN_LATE_SECONDS (20), the others end by SIGABRT, as inside of XLA, also if that process has died;
// so a test that succeeds has not reached that. MU_PLUGIN_DIES_IN="process:launch": that process ends in its launch of
// this number (from 0) on the devices of all.
#include "joined_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_BYTES = 40 };

__attribute__((visibility("default"))) int joined_plugin_counts[JOINED_COUNTS];

static joined_world world;

void joined_count(int what)
{
    pthread_mutex_lock(&joined_lock);
    joined_plugin_counts[what]++;
    pthread_mutex_unlock(&joined_lock);
}

// ---- The processes meet -------------------------------------------------------------------------

static pj_callback_error *const callback_error = joined_error_of;

static pj_error *put(const pj_client_create_args *create, const char *key, const char *value)
{
    pj_key_put_args args = {.key = key,
                            .key_bytes = strlen(key),
                            .value = value,
                            .bytes = strlen(value),
                            .error = (pj_callback_error **)&callback_error,
                            .arg = create->put_arg};
    return create->put(&args);
}

static pj_error *get(const pj_client_create_args *create, const char *key, char *value, size_t bytes)
{
    pj_key_get_args args = {.key = key,
                            .key_bytes = strlen(key),
                            .timeout_ms = 60000,
                            .error = (pj_callback_error **)&callback_error,
                            .arg = create->get_arg};
    pj_error *error = create->get(&args);
    if (error)
        return error;
    snprintf(value, bytes, "%.*s", (int)args.bytes, args.value);
    args.delete_value(args.value);
    return NULL;
}

// Each process puts a key and gets those of all others. The first one makes the folder for arguments and puts its name.
static pj_error *meet(const pj_client_create_args *create)
{
    char key[KEY_BYTES], ignored[sizeof world.folder];
    const char *parent = getenv("TMPDIR");
    if (world.nodes > 1 && (!create->get || !create->try_get || !create->put))
        return joined_error(JOINED_INVALID, "several nodes need all three callbacks");
    if (world.node == 0) {
        snprintf(world.folder, sizeof world.folder, "%.150s/joined_plugin.XXXXXX", parent ? parent : "/tmp");
        if (!mkdtemp(world.folder))
            return joined_error(JOINED_INTERNAL, "cannot make the folder %s", world.folder);
    }
    snprintf(key, sizeof key, "node%d", world.node);
    pj_error *error = put(create, key, world.node == 0 ? world.folder : "here");
    for (int i = 0; !error && i < world.nodes; i++) {
        snprintf(key, sizeof key, "node%d", i);
        if (i != world.node)
            error = get(create, key, i == 0 ? world.folder : ignored, sizeof world.folder);
    }
    return error;
}

static void read_environment(void)
{
    const char *each = getenv("MU_PLUGIN_EACH"), *id = getenv("TPU_WORKER_ID"), *names = getenv("TPU_WORKER_HOSTNAMES");
    world = (joined_world){.nodes = 1, .each = each ? atoi(each) : 2};
    if (!id || !names)
        return;
    world.node = atoi(id);
    for (; *names; names++)
        world.nodes += *names == ',';
}

static pj_error *read_options(const pj_client_create_args *create)
{
    read_environment();
    for (size_t i = 0; i < create->n_options; i++) {
        const pj_named_value *option = &create->options[i];
        const char *const names[] = {"node_id", "num_nodes", "cpu_device_count"};
        int *const values[] = {&world.node, &world.nodes, &world.each};
        int k = 0;
        while (k < 3 && (option->name_bytes != strlen(names[k]) || memcmp(option->name, names[k], option->name_bytes)))
            k++;
        if (k == 3)
            return joined_error(JOINED_INVALID, "unknown option %.*s", (int)option->name_bytes, option->name);
        *values[k] = (int)option->value.integer;
    }
    if (world.nodes < 1 || world.nodes > JOINED_NODES || world.node < 0 || world.node >= world.nodes ||
        world.each < 1 || world.each * world.nodes > JOINED_DEVICES)
        return joined_error(JOINED_INVALID, "process %d of %d with %d devices cannot be", world.node, world.nodes,
                            world.each);
    return NULL;
}

static pj_error *client_create(void *args)
{
    pj_client_create_args *create = args;
    pj_error *error = world.client ? joined_error(JOINED_ALREADY_EXISTS, "there is a client") : read_options(create);
    if (!error && world.nodes > 1)
        error = meet(create);
    if (error)
        return error;
    pj_named_value option =
        JOINED_ARGS(pj_named_value, .name = "cpu_device_count", .name_bytes = 16, .type = PJ_VALUE_INT,
                    .value = {.integer = world.nodes * world.each}, .value_size = 1);
    pj_client_create_args inner = JOINED_ARGS(pj_client_create_args, .options = &option, .n_options = 1);
    error = joined_call(PJ_CLIENT_CREATE, &inner);
    world.client = create->client = inner.client;
    return error;
}

// The last one removes the folder.
static pj_error *client_destroy(void *args)
{
    joined_wait_for_launches();
    if (world.nodes > 1)
        rmdir(world.folder);
    world.client = NULL;
    return joined_call(PJ_CLIENT_DESTROY, args);
}

// ---- Devices ------------------------------------------------------------------------------------

static int id_of(pj_description *description)
{
    pj_description_id_args id = JOINED_ARGS(pj_description_id_args, .description = description);
    return joined_call(PJ_DEVICE_DESCRIPTION_ID, &id) ? -1 : id.id;
}

static int node_of(pj_device *device)
{
    pj_device_description_args of = JOINED_ARGS(pj_device_description_args, .device = device);
    return joined_call(PJ_DEVICE_GET_DESCRIPTION, &of) ? -1 : id_of(of.description) / world.each;
}

static pj_error *client_process(void *args)
{
    ((pj_client_process_args *)args)->index = world.node;
    return NULL;
}

static pj_error *client_addressable(void *args)
{
    pj_client_devices_args *devices = args;
    pj_error *error = joined_call(PJ_CLIENT_DEVICES, args);
    if (error)
        return error;
    devices->devices += world.node * world.each;
    devices->n = (size_t)world.each;
    return NULL;
}

static pj_error *description_process(void *args)
{
    process_index_args *process = args;
    process->index = id_of(process->description) / world.each;
    return NULL;
}

static pj_error *device_is_addressable(void *args)
{
    is_addressable_args *device = args;
    device->addressable = node_of(device->device) == world.node;
    return NULL;
}

// Two cores to a chip; the chips of a host are along x, the hosts along y.
static pj_error *description_attributes(void *args)
{
    static int64_t places[JOINED_DEVICES][3];
    static pj_named_value attributes[JOINED_DEVICES][2];
    pj_description_attributes_args *given = args;
    const int id = id_of(given->description), own = id % world.each;
    if (id < 0 || id >= JOINED_DEVICES)
        return joined_error(JOINED_INTERNAL, "there is no device %d", id);
    pthread_mutex_lock(&joined_lock);
    places[id][0] = own / 2;
    places[id][1] = id / world.each;
    attributes[id][0] = JOINED_ARGS(pj_named_value, .name = "coords", .name_bytes = 6, .type = PJ_VALUE_INTS,
                                    .value = {.integers = places[id]}, .value_size = 3);
    attributes[id][1] = JOINED_ARGS(pj_named_value, .name = "core_on_chip", .name_bytes = 12, .type = PJ_VALUE_INT,
                                    .value = {.integer = own % 2}, .value_size = 1);
    pthread_mutex_unlock(&joined_lock);
    given->attributes = attributes[id];
    given->n = 2;
    return NULL;
}

static pj_error *buffer_from_host(void *args)
{
    pj_from_host_args *given = args, own = *given;
    pj_error *error = joined_call(PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, &own);
    if (error)
        return error;
    given->done = joined_event(own.done, NULL);
    given->buffer = joined_buffer(own.buffer, NULL);
    return NULL;
}

// ---- Programs -----------------------------------------------------------------------------------

static uint64_t hash(uint64_t seed, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ (unsigned char)data[i]) * UINT64_C(1099511628211);
    return seed;
}

static pj_error *count_outputs(pj_loaded *loaded)
{
    pj_loaded_executable_args of = JOINED_ARGS(pj_loaded_executable_args, .loaded = loaded->inner);
    pj_error *error = joined_call(PJ_LOADED_GET_EXECUTABLE, &of);
    if (error)
        return error;
    pj_outputs_args outputs = JOINED_ARGS(pj_outputs_args, .executable = of.executable);
    error = joined_call(PJ_EXECUTABLE_NUM_OUTPUTS, &outputs);
    loaded->n_outputs = outputs.n;
    joined_call(PJ_EXECUTABLE_DESTROY, &JOINED_ARGS(pj_executable_args, .executable = of.executable));
    return error;
}

// A program without an assignment has no devices.
static pj_error *find_devices(pj_loaded *loaded)
{
    loaded_devices_args all = JOINED_ARGS(loaded_devices_args, .loaded = loaded->inner);
    pj_error *error = joined_call(LOADED_ADDRESSABLE_DEVICES, &all);
    for (size_t i = 0; !error && i < all.n; i++) {
        const int node = node_of(all.devices[i]);
        loaded->node[loaded->n++] = node;
        if (node == world.node)
            loaded->own[loaded->n_own++] = all.devices[i];
    }
    return error;
}

static bool is_joined(const pj_loaded *loaded) { return loaded->n_own < loaded->n; }

static pj_error *client_compile(void *args)
{
    pj_compile_args *given = args, own = *given;
    pj_error *error = joined_call(PJ_CLIENT_COMPILE, &own);
    if (error)
        return error;
    pj_loaded *loaded = given->loaded = joined_alloc(sizeof *loaded);
    loaded->inner = own.loaded;
    loaded->hash = hash(0, given->program->code, given->program->code_bytes);
    loaded->hash = hash(loaded->hash, given->options, given->options_bytes);
    if (!(error = count_outputs(loaded)))
        error = find_devices(loaded);
    joined_count(is_joined(loaded) ? JOINED_COMPILED : OWN_COMPILED);
    return error;
}

static pj_error *loaded_destroy(void *args)
{
    pj_loaded *loaded = ((pj_loaded_args *)args)->loaded;
    pj_error *error = joined_call(PJ_LOADED_DESTROY, &JOINED_ARGS(pj_loaded_args, .loaded = loaded->inner));
    free(loaded);
    return error;
}

static pj_error *loaded_executable(void *args)
{
    pj_loaded_executable_args *given = args, own = *given;
    own.loaded = given->loaded->inner;
    pj_error *error = joined_call(PJ_LOADED_GET_EXECUTABLE, &own);
    given->executable = own.executable;
    return error;
}

static pj_error *loaded_devices(void *args)
{
    loaded_devices_args *given = args;
    given->devices = given->loaded->own;
    given->n = (size_t)given->loaded->n_own;
    return NULL;
}

// ---- A launch on own devices --------------------------------------------------------------------

static pj_error *execute_own(const pj_execute_args *args)
{
    pj_execute_args inner = *args;
    pj_buffer **lists[JOINED_DEVICES] = {NULL};
    pj_error *error = NULL;
    inner.loaded = args->loaded->inner;
    inner.arguments = (pj_buffer *const *const *)lists;
    for (size_t d = 0; d < args->n_devices; d++) {
        lists[d] = joined_alloc(sizeof **lists * args->n_arguments);
        for (size_t i = 0; !error && i < args->n_arguments; i++)
            error = joined_buffer_inner(args->arguments[d][i], &lists[d][i]);
    }
    if (!error)
        error = joined_call(PJ_LOADED_EXECUTE, &inner);
    for (size_t d = 0; d < args->n_devices; d++) {
        for (size_t i = 0; !error && i < args->loaded->n_outputs; i++)
            args->outputs[d][i] = joined_buffer(args->outputs[d][i], NULL);
        if (!error && args->complete)
            args->complete[d] = joined_event(args->complete[d], NULL);
        free(lists[d]);
    }
    joined_count(OWN_LAUNCHED);
    return error;
}

static pj_error *loaded_execute(void *args)
{
    const pj_execute_args *given = args;
    if (given->n_devices > JOINED_DEVICES)
        return joined_error(JOINED_INVALID, "a launch for %zu devices", given->n_devices);
    return is_joined(given->loaded) ? joined_launch(&world, given) : execute_own(given);
}

// ---- The table ----------------------------------------------------------------------------------

static pj_error *fail(void *args)
{
    (void)args;
    return joined_error(JOINED_UNIMPLEMENTED, "this plugin has few functions");
}

static void fill(pj_call **functions)
{
    static const int forwarded[] = {PJ_PLUGIN_INITIALIZE,      PJ_CLIENT_PLATFORM_NAME,  PJ_CLIENT_PLATFORM_VERSION,
                                    PJ_CLIENT_DEVICES,         PJ_DEVICE_DESCRIPTION_ID, PJ_DEVICE_GET_DESCRIPTION,
                                    PJ_DEVICE_MEMORY_STATS,    PJ_EXECUTABLE_DESTROY,    PJ_EXECUTABLE_NUM_OUTPUTS,
                                    PJ_EXECUTABLE_MEMORY_STATS};
    for (int i = 0; i < JOINED_FUNCTIONS; i++)
        functions[i] = fail;
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        functions[forwarded[i]] = joined_inner->functions[forwarded[i]];
    joined_objects(functions);
    functions[PJ_CLIENT_CREATE] = client_create;
    functions[PJ_CLIENT_DESTROY] = client_destroy;
    functions[PJ_CLIENT_PROCESS_INDEX] = client_process;
    functions[PJ_CLIENT_ADDRESSABLE_DEVICES] = client_addressable;
    functions[PJ_CLIENT_COMPILE] = client_compile;
    functions[PJ_CLIENT_BUFFER_FROM_HOST_BUFFER] = buffer_from_host;
    functions[DESCRIPTION_PROCESS_INDEX] = description_process;
    functions[PJ_DEVICE_DESCRIPTION_ATTRIBUTES] = description_attributes;
    functions[DEVICE_IS_ADDRESSABLE] = device_is_addressable;
    functions[PJ_LOADED_DESTROY] = loaded_destroy;
    functions[PJ_LOADED_GET_EXECUTABLE] = loaded_executable;
    functions[LOADED_ADDRESSABLE_DEVICES] = loaded_devices;
    functions[PJ_LOADED_EXECUTE] = loaded_execute;
}

// The CPU plugin is at MU_TEST_PLUGIN and stays open.
__attribute__((visibility("default"))) const pj_api *GetPjrtApi(void);
const pj_api *GetPjrtApi(void)
{
    static _Alignas(pj_api) char table[sizeof(pj_api) + sizeof(pj_call *) * JOINED_FUNCTIONS];
    pj_api *api = (pj_api *)table;
    void *library = dlopen(MU_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    pj_get_api *open = NULL;
    if (library)
        *(void **)&open = dlsym(library, "GetPjrtApi");
    if (!open)
        return NULL;
    joined_inner = open();
    api->size = sizeof *api + sizeof(pj_call *) * JOINED_FUNCTIONS;
    api->version = joined_inner->version;
    fill(api->functions);
    return api;
}
