// The devices of a plugin under one runtime: the client, and a logical device for each of its devices.
//
// A client is created when one of its devices is first named, because a plugin takes far longer to start than the
// library. Plans and buffers keep it open, since the plugin's objects must not outlive it.
#include "engine/pjrt/pjrt.h"

static void destroy(void *object)
{
    mu_pjrt_client *client = object;
    pj_client_args args = PJ_ARGS(pj_client_args, .client = client->client);
    if (client->client)
        mu__pjrt_destroy(client->api, PJ_CLIENT_DESTROY, &args);
    mu_release(client->world);
    mu__free(client->devices);
    mu__free(client->memory_spaces);
}

static mu_type client_type = {.name = "PJRT client", .destroy = destroy};

static pj_named_value number(const char *name, int64_t value)
{
    return PJ_ARGS(pj_named_value, .name = name, .name_bytes = strlen(name), .type = PJ_VALUE_INT,
                   .value = {.integer = value}, .value_size = 1);
}

// The CPU plugin creates as many devices as requested, in this process alone. Other plugins find theirs; libtpu also
// finds the other hosts, but the others are told how many processes there are.
static mu_status create(mu_pjrt_client *client, const char *name)
{
    const mu_device_world *world = client->world;
    const bool cpu = strstr(name, "cpu") != NULL, tpu = strcmp(client->kind, "TPU") == 0;
    pj_named_value options[2];
    pj_client_create_args args = PJ_ARGS(pj_client_create_args, .options = options);
    if (cpu)
        options[args.n_options++] = number("cpu_device_count", MU_MAX(mu__setting_int(MU_SETTING_CPU_DEVICES), 1));
    if (world && !cpu && !tpu) {
        options[args.n_options++] = number("node_id", world->process);
        options[args.n_options++] = number("num_nodes", world->n_processes);
    }
    if (world)
        mu__pjrt_callbacks(client, &args);
    const mu_status status = mu__pjrt_call(client->api, PJ_CLIENT_CREATE, &args, client->kind);
    if (status != MU_OK)
        mu__pjrt_advise();
    client->client = args.client;
    return status;
}

// A plugin that does not say who it is in the world, or how large that is, is alone.
static void find_world(mu_pjrt_client *client)
{
    pj_client_process_args process = PJ_ARGS(pj_client_process_args, .client = client->client);
    pj_client_devices_args all = PJ_ARGS(pj_client_devices_args, .client = client->client);
    mu_error_value ignored;
    client->n_all = client->n_devices;
    if (mu__pjrt_call(client->api, PJ_CLIENT_PROCESS_INDEX, &process, client->kind) == MU_OK &&
        mu__pjrt_call(client->api, PJ_CLIENT_DEVICES, &all, client->kind) == MU_OK) {
        client->process = process.index;
        client->n_all = (int)MU_MIN(all.n, (size_t)INT32_MAX);
    }
    if (mu__pending())
        mu__error_move(&ignored);
    if (client->n_all > client->n_devices)
        mu__log(MU_LOG_INFO, "%s: %d of the %d devices of %d processes; this one is process %d", client->kind,
                client->n_devices, client->n_all, client->world ? client->world->n_processes : 1, client->process);
}

static mu_status make_devices(mu_pjrt_client *client)
{
    pj_client_devices_args args = PJ_ARGS(pj_client_devices_args, .client = client->client);
    MU_TRY(mu__pjrt_call(client->api, PJ_CLIENT_ADDRESSABLE_DEVICES, &args, client->kind));
    if (args.n == 0 || args.n > 4096)
        return mu__error(MU_FAILED_PRECONDITION, "the plugin for %s offers %zu devices; expected at least one",
                         client->kind, args.n);
    client->devices = mu__calloc(args.n, sizeof *client->devices);
    client->memory_spaces = mu__calloc(args.n, sizeof *client->memory_spaces);
    if (!client->devices || !client->memory_spaces)
        return MU_RESOURCE_EXHAUSTED;
    client->n_devices = (int)args.n;
    for (int i = 0; i < client->n_devices; i++) {
        mu_device *device = &client->devices[i];
        snprintf(device->name, sizeof device->name, "%s:%d", client->kind, i);
        device->engine = &mu__engine_pjrt;
        device->index = i;
        device->team = (mu_team){.n_threads = 1};
        device->engine_device = args.devices[i];
        device->engine_client = client;
        device->memory_space = mu__pjrt_memory_space_init(&client->memory_spaces[i], client, device);
    }
    return MU_OK;
}

int64_t mu__pjrt_memory_bytes(const mu_device *device)
{
    const mu_pjrt_client *client = device->engine_client;
    pj_memory_stats_args args = PJ_ARGS(pj_memory_stats_args, .device = device->engine_device);
    mu_error_value ignored;
    const mu_status status = mu__pjrt_call(client->api, PJ_DEVICE_MEMORY_STATS, &args, device->name);
    if (status != MU_OK)
        mu__error_move(&ignored); // not every plugin keeps count
    return status == MU_OK && args.bytes_limit.is_set ? args.bytes_limit.value : -1;
}

mu_status mu__pjrt_device_id(const mu_device *device, int64_t *out)
{
    const pj_api *api = ((const mu_pjrt_client *)device->engine_client)->api;
    pj_device_description_args of = PJ_ARGS(pj_device_description_args, .device = device->engine_device);
    MU_TRY(mu__pjrt_call(api, PJ_DEVICE_GET_DESCRIPTION, &of, device->name));
    pj_description_id_args id = PJ_ARGS(pj_description_id_args, .description = of.description);
    MU_TRY(mu__pjrt_call(api, PJ_DEVICE_DESCRIPTION_ID, &id, device->name));
    *out = id.id;
    return MU_OK;
}

bool mu__pjrt_identify(const mu_device *device, mu_world_device *out)
{
    const mu_pjrt_client *client = device->engine_client;
    mu_error_value ignored;
    *out = (mu_world_device){.process = client->process, .n_devices = client->n_all};
    if (!client->world || client->n_all <= client->n_devices || !client->world->lasts(client->world))
        return false; // after the job's end the death of another process is not reported
    if (mu__pjrt_device_id(device, &out->id) == MU_OK)
        return true;
    mu__error_move(&ignored); // a plugin that does not number its devices
    return false;
}

static bool is_named(const pj_named_value *value, const char *name, pj_value_type type)
{
    return value->type == (int)type && value->name_bytes == strlen(name) &&
           memcmp(value->name, name, value->name_bytes) == 0;
}

static bool in_range(int64_t coordinate) { return coordinate >= 0 && coordinate < INT16_MAX; }

// Two attributes: "coords", up to three numbers, and "core_on_chip".
static bool read_coordinates(const pj_description_attributes_args *given, int out[MU_PJRT_COORDINATES])
{
    enum { CHIP = MU_PJRT_COORDINATES - 1 };
    bool chip = false, core = false;
    memset(out, 0, sizeof *out * MU_PJRT_COORDINATES);
    for (size_t i = 0; i < given->n; i++) {
        const pj_named_value *value = &given->attributes[i];
        if (is_named(value, "coords", PJ_VALUE_INTS) && value->value_size <= CHIP) {
            chip = true;
            for (size_t k = 0; k < value->value_size; k++) {
                chip &= in_range(value->value.integers[k]);
                out[k] = (int)value->value.integers[k];
            }
        } else if (is_named(value, "core_on_chip", PJ_VALUE_INT) && in_range(value->value.integer)) {
            core = true;
            out[CHIP] = (int)value->value.integer;
        }
    }
    return chip && core;
}

bool mu__pjrt_coordinates(const mu_device *device, int out[MU_PJRT_COORDINATES])
{
    if (device->engine != &mu__engine_pjrt)
        return false;
    const pj_api *api = ((const mu_pjrt_client *)device->engine_client)->api;
    pj_device_description_args of = PJ_ARGS(pj_device_description_args, .device = device->engine_device);
    pj_description_attributes_args given = PJ_ARGS(pj_description_attributes_args, .n = 0);
    mu_error_value ignored;
    mu_status status = mu__pjrt_call(api, PJ_DEVICE_GET_DESCRIPTION, &of, device->name);
    given.description = of.description;
    if (status == MU_OK)
        status = mu__pjrt_call(api, PJ_DEVICE_DESCRIPTION_ATTRIBUTES, &given, device->name);
    if (status != MU_OK)
        mu__error_move(&ignored); // not every plugin has attributes
    return status == MU_OK && read_coordinates(&given, out);
}

static void log_client(const mu_pjrt_client *client)
{
    pj_client_text_args platform = PJ_ARGS(pj_client_text_args, .client = client->client), version = platform;
    if (!mu__log_enabled(MU_LOG_INFO) ||
        mu__pjrt_call(client->api, PJ_CLIENT_PLATFORM_NAME, &platform, client->kind) != MU_OK ||
        mu__pjrt_call(client->api, PJ_CLIENT_PLATFORM_VERSION, &version, client->kind) != MU_OK)
        return;
    mu__log(MU_LOG_INFO, "%s: %d devices of platform %.*s (%.*s)", client->kind, client->n_devices, (int)platform.bytes,
            platform.text, (int)version.bytes, version.text);
}

// Options that programs of CPU devices are compiled without; XLA_FLAGS=--OPTION=true keeps one.
//
// With XNNPACK, programs that run on several devices of a process at once compute wrong numbers, in about one step of
// five, or end in a deadlock: seen with xla-cpu-pjrt 0.0.1 on a processor with AVX2 (decision 111), wrong numbers in
// JAX's programs too, and neither without XNNPACK. With fast minima and maxima a NaN in the second operand is lost
// (decision 140). With the order of operations that is meant for concurrency, a training step needs a quarter more
// memory for temporaries, and is slower (decision 147).
static unsigned options_to_avoid(const mu_pjrt_client *client, const char *name)
{
    static const char cpu[] = "cpu";
    mu_error_value ignored;
    pj_client_text_args platform = PJ_ARGS(pj_client_text_args, .client = client->client);
    if (mu__pjrt_call(client->api, PJ_CLIENT_PLATFORM_NAME, &platform, client->kind) != MU_OK) {
        mu__error_move(&ignored);
        return 0;
    }
    if (platform.bytes != sizeof cpu - 1 || memcmp(platform.text, cpu, sizeof cpu - 1) != 0)
        return 0;
    return mu__pjrt_switches(name, 1u << MU_PJRT_FAST_MIN_MAX | 1u << MU_PJRT_SCHEDULER |
                                       (client->n_devices > 1) << MU_PJRT_XNNPACK);
}

mu_pjrt_client *mu__pjrt_client_new(const char *name, const char *kind, mu_device_world *world)
{
    const int64_t begin = mu__now_ns();
    const pj_api *api = mu__pjrt_plugin(name);
    mu_pjrt_client *client = api ? mu__new(&client_type, sizeof *client) : NULL;
    if (!client)
        return NULL;
    client->api = api;
    client->world = mu_retain(world);
    snprintf(client->kind, sizeof client->kind, "%s", kind);
    if (create(client, name) != MU_OK || make_devices(client) != MU_OK) {
        mu_release(client);
        return NULL;
    }
    client->off = options_to_avoid(client, name);
    find_world(client);
    log_client(client);
    mu__log(MU_LOG_DEBUG, "%s started in %.1f ms", kind, (double)(mu__now_ns() - begin) / 1e6);
    return client;
}
