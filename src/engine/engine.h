// Interface of an engine, which compiles a function graph for one device and given shapes, and runs it there.
//
// The interface does not assume that tensors are in host memory: inputs and outputs are tensors, state is reached
// through resources, and a device has only a name. engine.c lists the engines.
#ifndef MU_SRC_ENGINE_H
#define MU_SRC_ENGINE_H

#include "graph/graph.h"

#include <muster/engine.h>
#include <pthread.h>
#include <sched.h>

typedef struct mu_device {
    const struct mu_engine *engine;
    char name[32];                       // "CPU:0"
    const mu_memory_space *memory_space; // where its plans acquire resources
    int index;                           // among the devices of this kind
    int *cpus;                           // cores that its threads use
    int n_cpus;
    mu_team team;
    void *engine_device;        // private to the engine
    void *engine_client;        // private to the engine, shared by its devices
    mu_worker *worker;          // its thread, started on first use
    int64_t idle_since;         // when that thread's last run ended; 0: none yet
    atomic_llong input_wait_ns; // the part of its idle time spent waiting for the next batch
    atomic_int posted;          // runs that its thread has not ended
} mu_device;

typedef struct mu_plan mu_plan;
typedef struct mu_launch mu_launch; // work that was launched

// Arguments of one run of a plan on one device. Pointers are borrowed for the run.
typedef struct mu_run_args {
    mu_device *device;         // NULL: that for which the plan was compiled
    int replica;               // local replica: selects the component of each resource
    int replica_id;            // id in the group of all replicas
    mu_collective *collective; // NULL: a single replica
    int64_t run;               // number of a run with collectives; the same on every replica
    mu_tensor *const *in;      // [graph inputs], shapes as compiled
    mu_tensor **out;           // [graph outputs], receives owned references
} mu_run_args;

// A program that devices of several processes run together. Each process launches it on its own devices, and all of
// them must: the caller has agreed with the other processes that they do.
typedef struct mu_launch_world {
    int n_replicas;     // of all processes
    const int64_t *ids; // [n_replicas * partitions] all devices, by the numbers that mu_engine.identify gives
} mu_launch_world;

// Where a device is in the world of several processes.
typedef struct mu_world_device {
    int process;   // the plugin's number of its process
    int n_devices; // of all processes
    int64_t id;    // the device's number among them
} mu_world_device;

typedef struct mu_engine {
    const char *name; // "cpu"
    // lower rewrites a graph once for this engine (fused ops); the caller owns the result. Optional: NULL keeps the
    // graph.
    mu_graph *(*lower)(const mu_graph *graph);
    // compile makes a plan for input shapes on the device's own thread. Returns NULL on error.
    mu_plan *(*compile)(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
    // run executes a plan on the device's thread; it may block in collectives until their deadline.
    mu_status (*run)(mu_plan *plan, const mu_run_args *args);
    void (*free)(mu_plan *plan);
    // close_device frees what the engine keeps for a device (memory shared by its plans).
    void (*close_device)(mu_device *device);
    // A plan is for all devices of one engine_client, not for one device. Such plans do not depend on the thread.
    bool shares_plans;
    // Optional, for devices that work by themselves: launch queues the work of n replicas on devices of one client, in
    // one program with their collectives inside, and returns without waiting. Replica i has the logical devices from
    // devices[i * partitions] on: variables and results are on the first, and annotations of the graph divide work
    // among all. Inputs and arguments must live, and must not change, until finish, which waits for the end and frees
    // the launch. It returns the first error; then variables that the run writes are poisoned. One thread at a time
    // launches on a device. With a world (NULL: this process alone) the program is that of all processes, which `join`
    // has compiled, and args->run numbers the launch; if another process fails meanwhile, or the program does not end
    // within MUSTER_TIMEOUT, launch and finish fail, and the devices cannot be used any more. When finish fails, it
    // informs the other processes; when launch fails, the caller does.
    mu_status (*launch)(mu_plan *plan, int n, int partitions, mu_device *const *devices, const mu_run_args *args,
                        const mu_launch_world *world, mu_launch **out);
    mu_status (*finish)(mu_launch *launch);
    // Optional, for devices of several processes. identify says where a device is among them; false: its process is
    // alone. join identifies the program that a plan shares with the other processes: a hash of its text, never 0. If
    // it is not compiled, it is compiled now, or without `compile` *hash is 0.
    bool (*identify)(const mu_device *device, mu_world_device *out);
    int most_joined; // devices of one program
    mu_status (*join)(mu_plan *plan, const mu_launch_world *world, int n, int partitions, mu_device *const *devices,
                      bool compile, int64_t *hash);
} mu_engine;

extern const mu_engine mu__engine_cpu;

// mu__check_inputs checks that a graph accepts inputs of these types and shapes, which must be known.
mu_status mu__check_inputs(const mu_graph *graph, const mu_spec *inputs, int n_inputs);

// Logical devices of the runtime, created on first use. The devices of a PJRT plugin replace the CPU devices in the
// count only if MUSTER_PJRT names the plugin. mu__device_by_name opens a plugin when it is asked for one of its
// devices ("XLA_CPU:0"), and lists the valid names in its error.
int mu__device_count(mu_runtime *runtime);
mu_device *mu__device_at(mu_runtime *runtime, int i);
mu_device *mu__device_by_name(mu_runtime *runtime, const char *name);

// mu__device_defaults returns the number of devices that a strategy without names takes, and the first of them: those
// of the plugin that MUSTER_PJRT names, else those of the first GPU plugin that starts, else the CPU devices; never
// devices of two kinds. It starts plugins. 0 with an error if the plugin of MUSTER_PJRT does not start.
// mu__device_gpus_start returns whether a GPU plugin starts; it keeps no devices of it, so that they can be made later
// in the world of several processes.
int mu__device_defaults(mu_runtime *runtime, mu_device **first);
bool mu__device_gpus_start(mu_runtime *runtime);

// mu__device_plugin opens the plugin with this name, unless it is open, and returns its devices and their number; NULL
// on error.
mu_device *mu__device_plugin(mu_runtime *runtime, const char *plugin, int *n);

// ---- Devices of several processes ---------------------------------------------------------------

// What a plugin needs to make one world of the devices of several processes: which of them this one is, and a key-value
// store that all have. An object. Its functions are called on any thread; they fail when the job has ended. get waits
// at most `seconds` (0: not at all, and NOT_FOUND); the caller frees the value with mu__free. check fails if one of the
// processes has failed; fail reports to the others that this one has failed, with the pending error.
typedef struct mu_device_world mu_device_world;
struct mu_device_world {
    mu_object object; // first
    int process, n_processes;
    mu_status (*put)(mu_device_world *world, const void *key, size_t key_bytes, const void *value, size_t bytes);
    mu_status (*get)(mu_device_world *world, const void *key, size_t key_bytes, double seconds, void **value,
                     size_t *bytes);
    bool (*lasts)(mu_device_world *world); // false: the job has ended
    mu_status (*check)(mu_device_world *world);
    void (*fail)(mu_device_world *world);
};

// mu__device_set_world sets the world of the plugins whose devices are made from now on; retained. NULL: none. Devices
// that a plugin has already made stay alone, and a warning says so.
void mu__device_set_world(mu_runtime *runtime, mu_device_world *world);

// mu__device_preferred returns the plugin that MUSTER_PJRT names, whose devices replace the CPU devices; NULL: none.
// mu__device_plugin_opens opens its file, and makes no devices.
const char *mu__device_preferred(void);
mu_status mu__device_plugin_opens(mu_runtime *runtime, const char *plugin);

// ---- The TPU system (tpu.c) ---------------------------------------------------------------------

// mu__tpu_initialize chooses the devices that are the cores of this host's TPU system: those of the plugin that
// MUSTER_PJRT names (an error if it does not start), else of the first that starts of the plugins that
// PJRT_NAMES_AND_LIBRARY_PATHS names ("tpu" before the others) and the installed plugin "tpu", else the CPU devices,
// with a warning. From then on they are named "TPU:0", "TPU:1" and so on as well. mu__tpu_shutdown ends the system.
// mu__tpu_life numbers the initialisations from 1; 0 while there is no system. What was made in an earlier life is
// lost.
mu_status mu__tpu_initialize(mu_runtime *runtime);
bool mu__tpu_shutdown(mu_runtime *runtime); // false: there was none
int mu__tpu_life(mu_runtime *runtime);
int mu__tpu_core_count(mu_runtime *runtime);
mu_device *mu__tpu_core(mu_runtime *runtime, int i); // NULL if there is none

// Processes that may use the same cores divide them. mu__device_cores returns the cores that the CPU devices were
// made for. mu__device_share restricts the process to part `index` of `count` equal parts of these cores, in the
// order of their numbers: its devices (as many as the smallest part has cores, unless the user set a number) and all
// its other threads. With more processes than cores, several processes share a core. Nothing may run on the devices
// during the call. mu__device_limit limits each device to n_threads threads; mu__device_least returns the smallest
// number of threads of a device.
void mu__device_cores(mu_runtime *runtime, cpu_set_t *out);
void mu__device_share(mu_runtime *runtime, int index, int count);
void mu__device_limit(mu_runtime *runtime, int n_threads);
int mu__device_least(mu_runtime *runtime);

// Hold mu__device_order while handing work to devices: two runs from different threads must be queued in the same
// order on every device that they share, or each waits in a collective for the other.
pthread_mutex_t *mu__device_order(mu_runtime *runtime);

// mu__device_worker returns the device's thread, started on first use. Called with mu__device_order held.
mu_worker *mu__device_worker(mu_device *device);

// mu__concrete_prepare prepares a concrete function for compilation; call it before replicas request their plans.
mu_status mu__concrete_prepare(mu_concrete *concrete, const mu_engine *engine);

// mu__concrete_plan returns the plan of a concrete function for these inputs on this device, or NULL if there is none
// yet. mu__concrete_compile compiles it (MUSTER_PLAN_CACHE plans are kept; the least recently used that no run uses is
// freed). Call both on the device's thread, unless the engine shares plans. The caller gives the plan back after its
// run with mu__concrete_unuse.
mu_plan *mu__concrete_plan(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs);
mu_plan *mu__concrete_compile(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs);
void mu__concrete_unuse(mu_concrete *concrete, mu_plan *plan);

#endif
