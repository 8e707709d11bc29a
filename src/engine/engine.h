// What an engine is: it compiles a function graph for one device and given shapes, and runs it there.
//
// The interface does not assume that tensors lie in host memory that everybody can read: inputs and outputs
// are tensors, state is reached through resources, and a device is only named. Engines are rows in engine.c.
#ifndef MU_SRC_ENGINE_H
#define MU_SRC_ENGINE_H

#include "graph/graph.h"

#include <muster/engine.h>
#include <pthread.h>
#include <sched.h>

typedef struct mu_device {
    const struct mu_engine *engine;
    char name[32];        // "CPU:0"
    int index;            // among the devices of this kind
    int *cpus;            // cores that its threads use
    int n_cpus;
    mu_team team;
    void *engine_device;  // the engine's own
    void *engine_client;  // likewise: what its devices share
    mu_worker *worker;    // its thread, once needed
    int64_t idle_since;   // when that thread's last run ended; 0: none yet
    atomic_llong input_wait_ns; // of its idle time: while the next batch was being made
} mu_device;

typedef struct mu_plan mu_plan;

// What one run of a plan is given. Pointers are borrowed for the run.
typedef struct mu_run_args {
    int replica;                 // local replica: which component of each resource
    int replica_id;              // id in the group of all replicas
    mu_collective *collective;   // NULL: alone
    int64_t run;                 // number of the run; the same on every replica
    mu_tensor *const *in;        // [graph inputs], shapes as compiled
    mu_tensor **out;             // [graph outputs], to fill with owned references
} mu_run_args;

typedef struct mu_engine {
    const char *name;            // "cpu"
    // lower rewrites a graph once for this engine (fused rows); owned by the caller. Optional: as it is.
    mu_graph *(*lower)(const mu_graph *graph);
    // compile makes a plan for input shapes; called on the device's own thread. NULL on error.
    mu_plan *(*compile)(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
    // run executes it there; may block in collectives up to their deadline.
    mu_status (*run)(mu_plan *plan, const mu_run_args *args);
    void (*free)(mu_plan *plan);
    // close_device frees what the engine keeps for a device (memory shared by its plans).
    void (*close_device)(mu_device *device);
} mu_engine;

extern const mu_engine mu__engine_cpu;

// mu__check_inputs tells whether a graph takes inputs of these types and shapes, which must be known.
mu_status mu__check_inputs(const mu_graph *graph, const mu_spec *inputs, int n_inputs);

// Logical devices of the runtime, made on first use. Those of a PJRT plugin are counted, in place of the CPU
// devices, only where MUSTER_PJRT names the plugin; by_name opens a plugin when one of its devices is named
// ("XLA_CPU:0"), and lists the names in its error.
int mu__device_count(mu_runtime *runtime);
mu_device *mu__device_at(mu_runtime *runtime, int i);
mu_device *mu__device_by_name(mu_runtime *runtime, const char *name);

// Processes that may use the same cores divide them. mu__device_cores says which cores the CPU devices have been made
// for. mu__device_share keeps part `index` of `count` equal parts of them, in the order of their numbers, for this
// process: its devices, then as many as the smallest part has cores unless a number was asked for, and all its other
// threads. With more processes than cores several have the same one. Nothing may run on the devices meanwhile.
// mu__device_limit keeps all of them to so many threads each; mu__device_least is the smallest number that one has.
void mu__device_cores(mu_runtime *runtime, cpu_set_t *out);
void mu__device_share(mu_runtime *runtime, int index, int count);
void mu__device_limit(mu_runtime *runtime, int n_threads);
int mu__device_least(mu_runtime *runtime);

// mu__device_order is held while work is handed to devices: two runs that come from different threads must stand
// in the same order on every device that they share, or each waits in a collective for the other to finish.
pthread_mutex_t *mu__device_order(mu_runtime *runtime);

// mu__device_worker returns the device's thread, started on first use. Called with mu__device_order held.
mu_worker *mu__device_worker(mu_device *device);

// mu__concrete_prepare readies a concrete function for plans; called before replicas ask for theirs.
mu_status mu__concrete_prepare(mu_concrete *concrete, const mu_engine *engine);

// mu__concrete_planned returns the plan of a concrete function for these inputs on this device, NULL if there is none
// yet. mu__concrete_compile makes it (at most MUSTER_PLAN_CACHE are kept; the least recently used goes). Both are
// called on the device's thread.
mu_plan *mu__concrete_planned(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs);
mu_plan *mu__concrete_compile(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs);

#endif
