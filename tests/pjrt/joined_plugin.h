// Shared by the files of joined_plugin, a plugin of the tests' own whose programs run on the devices of several
// processes, and by the tests that read what it counts.
//
// It wraps the published CPU plugin, whose collectives stay inside of one process: each process opens that plugin with
// the devices of all processes and shows its own ones as addressable. A launch sends the arguments of its own devices
// to all other processes, runs the whole program on all devices, and returns the results of its own devices. Handles of
// buffers, events and loaded programs are this plugin's own, since results exist before the program has run.
#ifndef MU_TESTS_PJRT_JOINED_PLUGIN_H
#define MU_TESTS_PJRT_JOINED_PLUGIN_H

#include "engine/pjrt/api.h"

#include <pthread.h>

// The numbers in the exported joined_plugin_counts: programs compiled and launched on devices of several processes, and
// on those of this process alone.
enum { JOINED_COMPILED, JOINED_LAUNCHED, OWN_COMPILED, OWN_LAUNCHED, JOINED_COUNTS };

enum { JOINED_INVALID = 3, JOINED_ALREADY_EXISTS = 6, JOINED_UNIMPLEMENTED = 12, JOINED_INTERNAL = 13 };

// Functions of the table that the library does not use.
enum {
    EVENT_ERROR = 7,
    EVENT_ON_READY = 9,
    DESCRIPTION_PROCESS_INDEX = 24,
    DEVICE_IS_ADDRESSABLE = 30,
    LOADED_ADDRESSABLE_DEVICES = 52,
    BUFFER_ELEMENT_TYPE = 59,
    BUFFER_DIMENSIONS = 60,
    JOINED_FUNCTIONS = 118
};

typedef struct on_ready_args {
    PJ_HEAD;
    pj_event *event;
    void (*call)(pj_error *error, void *arg);
    void *arg;
} on_ready_args;
typedef struct process_index_args {
    PJ_HEAD;
    pj_description *description;
    int index;
} process_index_args;
typedef struct is_addressable_args {
    PJ_HEAD;
    pj_device *device;
    bool addressable;
} is_addressable_args;
typedef struct loaded_devices_args {
    PJ_HEAD;
    pj_loaded *loaded;
    pj_device *const *devices;
    size_t n;
} loaded_devices_args;
typedef struct element_type_args {
    PJ_HEAD;
    pj_buffer *buffer;
    int type;
} element_type_args;
typedef struct dimensions_args {
    PJ_HEAD;
    pj_buffer *buffer;
    const int64_t *dims;
    size_t n;
} dimensions_args;

#define JOINED_ARGS(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})

// ---- joined_objects.c ---------------------------------------------------------------------------

extern const pj_api *joined_inner; // the table of the CPU plugin
static inline pj_error *joined_call(int function, void *args) { return joined_inner->functions[function](args); }

extern pthread_mutex_t joined_lock; // of gates, counts of references, and the world
extern pthread_cond_t joined_changed;

void *joined_alloc(size_t bytes); // zeroed; ends the process without memory
pj_error *joined_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
pj_error *joined_error_of(int code, const char *message, size_t bytes); // as plugins' callbacks make one

// The end of a launch: opened once, with or without an error (code).
typedef struct joined_gate joined_gate;
joined_gate *joined_gate_new(void);
joined_gate *joined_gate_keep(joined_gate *gate);
void joined_gate_drop(joined_gate *gate);
void joined_gate_open(joined_gate *gate, pj_error *error);
pj_error *joined_gate_wait(joined_gate *gate); // returns its error

struct pj_buffer {
    pj_buffer *inner;  // the CPU plugin's; NULL until the gate is open
    joined_gate *gate; // NULL: inner is there
    int references;
};
pj_buffer *joined_buffer(pj_buffer *inner, joined_gate *gate);
pj_buffer *joined_buffer_keep(pj_buffer *buffer);
void joined_buffer_drop(pj_buffer *buffer);
pj_error *joined_buffer_inner(pj_buffer *buffer, pj_buffer **inner); // waits for it

// An event is the CPU plugin's (NULL: none) or that of a gate.
pj_event *joined_event(pj_event *inner, joined_gate *gate);

pj_error *joined_await_inner(pj_event *inner); // and destroys it; NULL is accepted

// Puts the functions for errors, events and buffers into the table.
void joined_objects(pj_call **functions);

// ---- joined_exchange.c --------------------------------------------------------------------------

typedef struct joined_parcel {
    char *data;
    size_t bytes, capacity;
} joined_parcel;
void joined_pack(joined_parcel *parcel, const void *data, size_t bytes);

typedef struct joined_world {
    int node, nodes, each; // `each`: devices of a node
    char folder[200];
    pj_client *client; // the CPU plugin's; one at a time
} joined_world;

// joined_send sends a parcel to all other nodes. joined_receive waits for the parcel of one node; if it is late it ends
// this process, as XLA does.
void joined_send(const joined_world *world, int launch, const joined_parcel *parcel);
joined_parcel joined_receive(const joined_world *world, int launch, int node);

// ---- joined_plugin.c, joined_launch.c -----------------------------------------------------------

enum { JOINED_NODES = 16, JOINED_DEVICES = 64 };

struct pj_loaded {
    pj_loaded *inner;
    uint64_t hash; // of the program and its options
    size_t n_outputs;
    int n, n_own;             // devices, and those of this process
    int node[JOINED_DEVICES]; // of each device
    pj_device *own[JOINED_DEVICES];
};

void joined_count(int what);

// joined_launch starts a program of all processes; errors show in its results and events once it has ended.
pj_error *joined_launch(const joined_world *world, const pj_execute_args *args);
// joined_wait_for_launches returns when all launches have ended; the next one is number 0 again.
void joined_wait_for_launches(void);

#endif
