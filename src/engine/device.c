// Logical devices: how the cores that this process may use are divided.
//
// By default there is one CPU device per core, at most eight; further cores join the devices' teams, so that every
// core works. Cores are physical (hwloc): of the hardware threads of one core only the first is used. Processes of
// one job that have the same cores divide them once they have met. The devices of a PJRT plugin join the table when
// one of them is first requested.
#include "engine/plugin_devices.h"

#include <ctype.h>
#include <hwloc.h>
#include <pthread.h>
#include <unistd.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_DEFAULT_DEVICES 8

typedef struct device_table {
    int n;
    int n_made; // devices created; only the first n are in use
    mu_device *devices;
    int *cpus;             // [n_cores] the cores of all devices, in one array
    int n_cores, limit;    // limit: on all threads, before cores were divided with other processes
    pthread_mutex_t order; // see mu__device_order
    mu_plugin_devices plugins;
} device_table;

// Asks hwloc for the first allowed hardware thread of every core; returns their number.
static int physical_cores(int *cpus, int capacity)
{
    hwloc_topology_t topology;
    int n = 0;
    if (access("/sys/devices/system/cpu/cpu0/topology", F_OK) != 0)
        return 0; // a container without /sys: hwloc would only print warnings
    if (hwloc_topology_init(&topology) != 0)
        return 0;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) == 0) {
        int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < cores && n < capacity; i++) {
            hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
            int cpu = core ? hwloc_bitmap_first(core->cpuset) : -1;
            if (cpu >= 0)
                cpus[n++] = cpu;
        }
    }
    hwloc_topology_destroy(topology);
    return n;
}

static int allowed_cpus(int *cpus, int capacity)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && n < capacity; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus[n++] = cpu;
    return n;
}

static int usable_cores(int *cpus, int capacity)
{
    int n = physical_cores(cpus, capacity), allowed = 0;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    for (int i = 0; i < n; i++) // hwloc may not see a narrower affinity set by the user
        if (cpus[i] < CPU_SETSIZE && CPU_ISSET(cpus[i], &set))
            cpus[allowed++] = cpus[i];
    if (allowed == 0)
        allowed = allowed_cpus(cpus, capacity);
    return MU_MAX(1, allowed);
}

// Runs on a device's thread.
static void keep_to_team(void *arg)
{
    const mu_device *device = arg;
    (void)mu__team_limit(device->n_cpus);
}

// Part `index` of `count` parts of n_cores cores: [*begin, *end). With more parts than cores, parts share a core.
static void part_of(int n_cores, int index, int count, int *begin, int *end)
{
    *begin = (int)((int64_t)n_cores * index / count);
    *end = (int)((int64_t)n_cores * (index + 1) / count);
    if (*end > *begin)
        return;
    *begin = index % n_cores;
    *end = *begin + 1;
}

static void set_threads(mu_device *device, int n)
{
    device->n_cpus = device->team.n_threads = n;
    if (device->worker)
        (void)mu__worker_post(device->worker, keep_to_team, device);
}

// Divides n_cores cores from `first` on among the devices in use; devices that were created earlier share these
// cores.
static void share_cores(device_table *table, int first, int n_cores)
{
    for (int i = 0; i < table->n_made; i++) {
        int begin, end;
        part_of(n_cores, i % table->n, table->n, &begin, &end);
        table->devices[i].cpus = table->cpus + first + begin;
        set_threads(&table->devices[i], end - begin);
    }
}

static int choose_number(int n_cores)
{
    const int wanted = (int)mu__setting_int(MU_SETTING_CPU_DEVICES);
    return wanted > 0 ? wanted : MU_MAX(1, MU_MIN(n_cores, MAX_DEFAULT_DEVICES));
}

static void destroy_devices(void *slot)
{
    device_table *table = slot;
    mu__plugins_destroy(&table->plugins);
    for (int i = 0; i < table->n_made; i++) {
        mu__worker_free(table->devices[i].worker);
        mu__engine_cpu.close_device(&table->devices[i]);
    }
    pthread_mutex_destroy(&table->order);
    mu__free(table->devices);
    mu__free(table->cpus);
    mu__free(table);
}

static void *create_devices(mu_runtime *runtime)
{
    enum { CAPACITY = 1024 };
    device_table *table = mu__calloc(1, sizeof *table);
    if (!table || !(table->cpus = mu__calloc(CAPACITY, sizeof *table->cpus))) {
        mu__free(table);
        return NULL;
    }
    mu__plugins_init(&table->plugins);
    pthread_mutex_init(&table->order, NULL);
    table->n_cores = usable_cores(table->cpus, CAPACITY);
    table->limit = mu__runtime_threads(runtime);
    const int n_cores = MU_MIN(table->n_cores, table->limit), n = choose_number(n_cores);
    table->devices = mu__calloc((size_t)n, sizeof *table->devices);
    if (!table->devices) {
        destroy_devices(table);
        return NULL;
    }
    table->n = table->n_made = n;
    for (int i = 0; i < n; i++) {
        snprintf(table->devices[i].name, sizeof table->devices[i].name, "CPU:%d", i);
        table->devices[i].engine = &mu__engine_cpu;
        table->devices[i].memory_space = &mu__host_memory;
        table->devices[i].index = i;
    }
    share_cores(table, 0, n_cores);
    return table;
}

static device_table *devices(mu_runtime *runtime)
{
    return mu__runtime_slot(runtime, MU_SLOT_ENGINE, create_devices, destroy_devices);
}

// ---- Dividing with other processes --------------------------------------------------------------

void mu__device_cores(mu_runtime *runtime, cpu_set_t *out)
{
    const device_table *table = devices(runtime);
    CPU_ZERO(out);
    for (int i = 0; table && i < table->n_cores; i++)
        if (table->cpus[i] < CPU_SETSIZE)
            CPU_SET(table->cpus[i], out);
}

void mu__device_share(mu_runtime *runtime, int index, int count)
{
    device_table *table = devices(runtime);
    int begin, end;
    if (!table || count < 2)
        return;
    part_of(table->n_cores, index, count, &begin, &end);
    const int least = MU_MIN(table->n_cores, table->limit) / count;
    mu__runtime_take(runtime, table->cpus + begin, end - begin);
    table->n = MU_MIN(table->n_made, choose_number(least));
    share_cores(table, begin, MU_MIN(end - begin, mu__runtime_threads(runtime)));
}

void mu__device_limit(mu_runtime *runtime, int n_threads)
{
    device_table *table = devices(runtime);
    for (int i = 0; table && i < table->n_made; i++)
        if (table->devices[i].n_cpus > n_threads)
            set_threads(&table->devices[i], n_threads);
}

int mu__device_least(mu_runtime *runtime)
{
    const device_table *table = devices(runtime);
    int least = table ? table->devices[0].n_cpus : 1;
    for (int i = 1; table && i < table->n; i++)
        least = MU_MIN(least, table->devices[i].n_cpus);
    return least;
}

// ---- Devices of plugins -------------------------------------------------------------------------

mu_device *mu__device_plugin(mu_runtime *runtime, const char *plugin, int *n)
{
    device_table *table = devices(runtime);
    const mu_pjrt_client *client = table ? mu__plugins_client(&table->plugins, plugin) : NULL;
    *n = client ? client->n_devices : 0;
    return client ? client->devices : NULL;
}

void mu__device_set_world(mu_runtime *runtime, mu_device_world *world)
{
    device_table *table = devices(runtime);
    if (table)
        mu__plugins_set_world(&table->plugins, world);
}

const char *mu__device_preferred(void)
{
    const char *plugin = mu__setting_text(MU_SETTING_PJRT);
    return plugin && *plugin ? plugin : NULL;
}

mu_status mu__device_plugin_opens(mu_runtime *runtime, const char *plugin)
{
    return devices(runtime) && mu__pjrt_plugin(plugin) ? MU_OK : mu_error_code();
}

bool mu__device_gpus_start(mu_runtime *runtime)
{
    device_table *table = devices(runtime);
    return table && mu__plugins_try(&table->plugins, "GPU");
}

// The client whose devices replace the CPU devices; NULL if none is configured, or after an error.
static mu_pjrt_client *preferred_client(device_table *table)
{
    const char *plugin = mu__device_preferred();
    return plugin ? mu__plugins_client(&table->plugins, plugin) : NULL;
}

// The devices that a program can name at present: "CPU:0, CPU:1, XLA_CPU:0".
static void list_devices(device_table *table, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "CPU:0");
    if (table->n > 1)
        at += (size_t)snprintf(text + at, bytes - at, " to CPU:%d", table->n - 1);
    mu__plugins_list(&table->plugins, text + at, bytes - at);
}

// What `muster plugin install` calls the published plugin for a kind of device; NULL: there is none.
static const char *published_as(const char *plugin)
{
    static const char *const words[][2] = {{"gpu", "cuda13"}, {"tpu", "tpu"}, {"xla_cpu", "cpu"}};
    for (size_t i = 0; i < MU_COUNT(words); i++)
        if (strcmp(words[i][0], plugin) == 0)
            return words[i][1];
    return NULL;
}

// Reports an unknown device name. If the plugin is installed but cannot be used, the message gives the reason, which is
// this thread's error; otherwise it lists the devices.
static void refuse_name(device_table *table, const char *name, const char *plugin)
{
    char known[300];
    mu_error_value reason;
    mu__error_move(&reason);
    list_devices(table, known, sizeof known);
    const char *word = published_as(plugin);
    if (!mu__pjrt_installed(plugin))
        mu__error(MU_INVALID_ARGUMENT,
                  "no device is named '%s'; there %s %s. Name one of these, or %s%s%s the path of a PJRT plugin called "
                  "%s in PJRT_NAMES_AND_LIBRARY_PATHS",
                  name, table->n > 1 ? "are" : "is", known, word ? "run `muster plugin install " : "give",
                  word ? word : "", word ? "`, or give" : "", plugin);
    else
        mu__error(MU_INVALID_ARGUMENT, "no device is named '%s'; there %s %s. The plugin %s cannot be used: %s", name,
                  table->n > 1 ? "are" : "is", known, plugin, reason.message);
}

static mu_device *device_of_plugin(device_table *table, const char *name, size_t kind_length, int index)
{
    char kind[MU_PJRT_KIND], plugin[MU_PJRT_NAME];
    const mu_pjrt_client *preferred = preferred_client(table);
    if (preferred && strlen(preferred->kind) == kind_length && strncmp(preferred->kind, name, kind_length) == 0 &&
        index < preferred->n_devices)
        return &preferred->devices[index];
    if (mu__pending())
        return NULL; // the plugin that MUSTER_PJRT names failed; report that error
    snprintf(kind, sizeof kind, "%.*s", (int)kind_length, name);
    const mu_pjrt_client *client = mu__plugins_of_kind(&table->plugins, kind, plugin);
    if (client && index < client->n_devices)
        return &client->devices[index];
    if (client)
        mu__error(MU_INVALID_ARGUMENT, "no device is named '%s'; plugin %s offers %s:0 to %s:%d", name, plugin,
                  client->kind, client->kind, client->n_devices - 1);
    else
        refuse_name(table, name, plugin);
    return NULL;
}

// ---- All devices --------------------------------------------------------------------------------

int mu__device_count(mu_runtime *runtime)
{
    device_table *table = devices(runtime);
    const mu_pjrt_client *client = table ? preferred_client(table) : NULL;
    return client ? client->n_devices : table && !mu__device_preferred() ? table->n : 0;
}

mu_device *mu__device_at(mu_runtime *runtime, int i)
{
    device_table *table = devices(runtime);
    const mu_pjrt_client *client = table ? preferred_client(table) : NULL;
    if (client || mu__device_preferred())
        return client && i >= 0 && i < client->n_devices ? &client->devices[i] : NULL;
    return table && i >= 0 && i < table->n ? &table->devices[i] : NULL;
}

// Reads one part of a name in TensorFlow's long form: a place, or a device such as "CPU:1", "cpu:1" or "CPU". Returns
// false if the part does not refer to this process. Only these kinds may omit the number 0.
static bool take_part(const char *part, size_t length, char *canonical, size_t bytes)
{
    static const char *const here[] = {"job:localhost", "replica:0", "task:0"}, *const kinds[] = {"CPU", "GPU", "TPU"};
    for (size_t i = 0; i < MU_COUNT(here); i++)
        if (length == strlen(here[i]) && strncmp(part, here[i], length) == 0)
            return true;
    if (length > 7 && strncmp(part, "device:", 7) == 0) {
        part += 7;
        length -= 7;
    }
    if (canonical[0] != '\0' || length == 0 || length + 3 > bytes)
        return false;
    snprintf(canonical, bytes, "%.*s", (int)length, part);
    for (size_t i = 0; i < MU_COUNT(kinds); i++)
        if (strcspn(canonical, ":") == 3 && strncasecmp(canonical, kinds[i], 3) == 0) {
            memcpy(canonical, kinds[i], 3);
            if (length == 3)
                memcpy(canonical + 3, ":0", 3);
        }
    return true;
}

// Converts "/job:localhost/replica:0/task:0/device:CPU:1", "/cpu:1" and similar names to "CPU:1"; other names stay.
static const char *canonical_name(const char *name, char *canonical, size_t bytes)
{
    canonical[0] = '\0';
    for (const char *at = name + (name[0] == '/'); *at; at += strspn(at, "/")) {
        const size_t length = strcspn(at, "/");
        if (!take_part(at, length, canonical, bytes))
            return name;
        at += length;
    }
    return canonical[0] ? canonical : name;
}

mu_device *mu__device_by_name(mu_runtime *runtime, const char *given)
{
    char canonical[MU_PJRT_KIND + 16];
    device_table *table = devices(runtime);
    const char *name = canonical_name(given, canonical, sizeof canonical);
    const size_t kind_length = strcspn(name, ":");
    for (int i = 0; table && i < table->n; i++)
        if (strcmp(table->devices[i].name, name) == 0)
            return &table->devices[i];
    char *end = NULL;
    const long index = name[kind_length] == ':' ? strtol(name + kind_length + 1, &end, 10) : -1;
    mu_device *core = strncmp(name, "TPU:", 4) == 0 && end && *end == '\0' && index >= 0 && index < INT32_MAX
                          ? mu__tpu_core(runtime, (int)index)
                          : NULL;
    if (core)
        return core;
    if (table && strncmp(name, "CPU:", 4) != 0 && kind_length > 0 && kind_length < MU_PJRT_KIND && end &&
        *end == '\0' && end > name + kind_length + 1 && index >= 0 && index < INT32_MAX)
        return device_of_plugin(table, name, kind_length, (int)index);
    if (table)
        mu__error(MU_INVALID_ARGUMENT,
                  "no device is named '%s'; there are CPU:0 to CPU:%d (mu_init(.cpu_devices = n) or "
                  "MUSTER_CPU_DEVICES=n makes more), and those of PJRT plugins (XLA_CPU:0)",
                  given, table->n - 1);
    return NULL;
}

pthread_mutex_t *mu__device_order(mu_runtime *runtime) { return &devices(runtime)->order; }

mu_worker *mu__device_worker(mu_device *device)
{
    if (!device->worker)
        device->worker = mu__worker_new(device->name, mu__setting_bool(MU_SETTING_PIN) ? device->cpus : NULL,
                                        device->n_cpus, mu__runtime());
    return device->worker;
}

int mu_device_count(void) { return mu__device_count(mu__runtime()); }

const char *mu_device_name(int index)
{
    const mu_device *device = mu__device_at(mu__runtime(), index);
    return device ? device->name : NULL;
}

// ---- Devices by type ----------------------------------------------------------------------------

// The devices of a kind: of the processors, or of the first plugin for the kind that starts. As in TensorFlow, it is
// not an error if none starts, but the log says why.
static int devices_of_kind(device_table *table, const char *kind, mu_device **first)
{
    char plugin[MU_PJRT_NAME];
    if (strcmp(kind, "CPU") == 0) {
        *first = table->devices;
        return table->n;
    }
    const mu_pjrt_client *client = mu__plugins_of_kind(&table->plugins, kind, plugin);
    mu_error_value logged; // by the log
    if (!client)
        mu__error_move(&logged);
    *first = client ? client->devices : NULL;
    return client ? client->n_devices : 0;
}

int mu__device_defaults(mu_runtime *runtime, mu_device **first)
{
    device_table *table = devices(runtime);
    if (!table)
        return 0;
    const mu_pjrt_client *preferred = preferred_client(table);
    if (preferred || mu__device_preferred()) {
        *first = preferred ? preferred->devices : NULL;
        return preferred ? preferred->n_devices : 0;
    }
    const int n = devices_of_kind(table, "GPU", first);
    return n > 0 ? n : devices_of_kind(table, "CPU", first);
}

int mu_list_physical_devices(const char *device_type, const char **names, int capacity)
{
    char kind[MU_PJRT_KIND];
    device_table *table = devices(mu__runtime());
    mu_device *first = NULL;
    mu_error_value before;
    if (!table)
        return -1;
    if (!device_type || strlen(device_type) >= sizeof kind || capacity < 0 || (capacity > 0 && !names)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_list_physical_devices: expected a type of device, such as \"CPU\", \"GPU\" or \"TPU\", and an "
                  "array for %d names",
                  capacity);
        return -1;
    }
    for (size_t i = 0; i <= strlen(device_type); i++)
        kind[i] = (char)toupper((unsigned char)device_type[i]);
    mu__error_move(&before); // a pending error must not be taken for the reason why the plugin cannot be used
    const int n = devices_of_kind(table, kind, &first);
    mu__error_raise(&before);
    for (int i = 0; i < n && i < capacity; i++)
        names[i] = first[i].name;
    return n;
}
