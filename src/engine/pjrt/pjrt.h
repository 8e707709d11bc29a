// Shared by the files of the PJRT engine: plugins, clients, program text, plans.
//
// A plugin is opened on first use and stays open; a client holds one plugin's devices under one runtime; a plan is a
// graph written as StableHLO for known shapes and compiled by the plugin.
#ifndef MU_SRC_ENGINE_PJRT_H
#define MU_SRC_ENGINE_PJRT_H

#include "engine/engine.h"
#include "engine/pjrt/api.h"

// ---- Plugins (plugin.c) -------------------------------------------------------------------------

// PJ_ARGS makes an argument struct with its size filled in.
#define PJ_ARGS(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})

// mu__pjrt_call calls a function of the plugin. It records a plugin's error for this thread, with a message that
// starts with `what`; UNIMPLEMENTED if the plugin is too old to have the function.
mu_status mu__pjrt_call(const pj_api *api, pj_function function, void *args, const char *what);

// mu__pjrt_destroy calls a function that destroys an object, and ignores its errors.
void mu__pjrt_destroy(const pj_api *api, pj_function function, void *args);

// mu__pjrt_plugin finds and opens the plugin called `name`: by PJRT_NAMES_AND_LIBRARY_PATHS (name:path,…), in
// mu__pjrt_folder, otherwise
// in the package folders of the active Python environment, the user and the system. A name with a slash is a file.
// Further calls return the same table. Returns NULL with NOT_FOUND if there is no such plugin.
const pj_api *mu__pjrt_plugin(const char *name);
bool mu__pjrt_plugin_has(const char *name, const char *flag); // whether its library has an option of this name
// Options of XLA that programs may have to be compiled without, as bits 1 << n (compile_options.c).
// mu__pjrt_switches returns those of `wanted` that the plugin has and XLA_FLAGS leaves open.
enum { MU_PJRT_XNNPACK, MU_PJRT_FAST_MIN_MAX, MU_PJRT_SCHEDULER, MU_PJRT_SWITCHES };
unsigned mu__pjrt_switches(const char *plugin, unsigned wanted);
bool mu__pjrt_installed(const char *name); // whether a file for this plugin exists
bool mu__pjrt_named(const char *name);     // whether PJRT_NAMES_AND_LIBRARY_PATHS gives its file

// mu__pjrt_check_flags fails with INVALID_ARGUMENT if XLA_FLAGS has an option that the library at `path` does not know
// or cannot read (flags.c). mu__pjrt_advise adds to the pending error about a plugin what can be done
// (plugin_advice.c), if that is known.
mu_status mu__pjrt_check_flags(const char *path);
// mu__pjrt_flags_have returns whether XLA_FLAGS, or the file of options that it names, has an option of this name.
bool mu__pjrt_flags_have(const char *name);
// mu__pjrt_has_flag returns whether the library at `path` has an option of this name.
bool mu__pjrt_has_flag(const char *path, const char *name);
void mu__pjrt_advise(void);

// mu__pjrt_try loads the plugin at `path` and compiles a small program in a process of its own (trial.c). Errors:
// INVALID_ARGUMENT if that ends the process, DEADLINE_EXCEEDED after a minute.
typedef const pj_api *mu_pjrt_load(const char *path);
mu_status mu__pjrt_try(const char *path, mu_pjrt_load *load);

// mu__pjrt_folder writes the folder where `muster plugin install` puts plugins: MUSTER_PJRT_PATH, else muster/plugins
// in XDG_DATA_HOME or ~/.local/share. NULL: none of these is set.
enum { MU_PJRT_FOLDER = 2048 };
const char *mu__pjrt_folder(char folder[MU_PJRT_FOLDER]);

// mu__pjrt_list writes the names of the plugins that there are, each once: those of PJRT_NAMES_AND_LIBRARY_PATHS, the
// one that MUSTER_PJRT names, then published ones whose packages are installed. Returns their number, at most
// `capacity`.
enum { MU_PJRT_NAME = 256 };
int mu__pjrt_list(char names[][MU_PJRT_NAME], int capacity);

// ---- Clients (pjrt_client.c) --------------------------------------------------------------------

enum { MU_PJRT_KIND = 20 }; // bytes of the kind in a device's name

typedef struct mu_pjrt_client mu_pjrt_client;

// The memory of one device.
typedef struct mu_pjrt_memory_space {
    mu_memory_space memory_space; // first
    mu_pjrt_client *client;       // which holds this
    pj_device *device;
} mu_pjrt_memory_space;

struct mu_pjrt_client {
    mu_object object;
    mu_pjrt_client *next;
    char kind[MU_PJRT_KIND]; // of its devices' names: "XLA_CPU"
    const pj_api *api;
    pj_client *client;
    atomic_int in_memory;                // whether the host can address the devices' buffers; 0: not known, -1: no
    mu_device_world *world;              // retained; NULL: the process is alone
    int process, n_all;                  // the plugin's number of this process, and the devices of all processes
    int n_devices;                       // of this process
    unsigned off;                        // options that its programs are compiled without (pjrt_client.c)
    mu_device *devices;                  // engine_device is the pj_device
    mu_pjrt_memory_space *memory_spaces; // of each device
    atomic_int n_shared;                 // programs under way that other processes run too
    atomic_bool lost;                    // one of them did not end (pending.c)
};

// mu__pjrt_client_new opens the plugin called `name` and creates its devices, which are named by `kind` and a number.
// The caller owns it, and ends the devices' threads before releasing it; NULL on error. With a world (retained; NULL:
// none) the plugin makes one world of the devices of all processes, and the call waits for them; only the devices of
// this process become devices here. mu__pjrt_callbacks (world.c) gives the plugin the world's key-value store.
mu_pjrt_client *mu__pjrt_client_new(const char *name, const char *kind, mu_device_world *world);
void mu__pjrt_callbacks(mu_pjrt_client *client, pj_client_create_args *args);

// mu__pjrt_memory_bytes returns the size of a device's memory; -1 if the plugin does not know.
int64_t mu__pjrt_memory_bytes(const mu_device *device);

// mu__pjrt_device_id writes the plugin's number of a device, among those of all processes. mu__pjrt_identify is the
// engine's `identify`.
mu_status mu__pjrt_device_id(const mu_device *device, int64_t *out);
bool mu__pjrt_identify(const mu_device *device, mu_world_device *out);

// mu__pjrt_coordinates writes where a TPU core is, as its plugin says: x, y and z of its chip, and its number there.
// Returns false if the device is not a plugin's, or the plugin does not say.
enum { MU_PJRT_COORDINATES = 4 };
bool mu__pjrt_coordinates(const mu_device *device, int out[MU_PJRT_COORDINATES]);

// ---- Waits that end (pending.c) -----------------------------------------------------------------

// An operation that ends on another thread, while the waiting thread may stop waiting: the last of the two frees it.
// The first member of a struct with what it is about. mu__pjrt_pending_start begins a call on a thread of its own,
// which calls mu__pjrt_pending_end; who waits ends with mu__pjrt_pending_leave.
typedef struct mu_pjrt_pending mu_pjrt_pending;
typedef void mu_pjrt_pending_free(mu_pjrt_pending *pending);
struct mu_pjrt_pending {
    atomic_int holders;
    mu_latch done;
    mu_pjrt_pending_free *free;
};
void mu__pjrt_pending_init(mu_pjrt_pending *pending, mu_pjrt_pending_free *free);
mu_status mu__pjrt_pending_start(mu_pjrt_pending *pending, void *(*call)(void *pending), const char *what);
void mu__pjrt_pending_end(mu_pjrt_pending *pending);
void mu__pjrt_pending_leave(mu_pjrt_pending *pending);

// mu__pjrt_usable fails with UNAVAILABLE if the client is lost: a program that it shared with other processes did not
// end, and neither would what is asked of it now.
mu_status mu__pjrt_usable(const mu_pjrt_client *client, const char *what);

// mu__pjrt_await waits for an event, destroys it and returns its error; NULL is accepted. mu__pjrt_await_buffer waits
// until a buffer has its value. mu__pjrt_call_execute launches. While a program of several processes is under way, all
// of them also end when the job fails (with its error), or after MUSTER_TIMEOUT (DEADLINE_EXCEEDED); then the client is
// lost. mu__pjrt_await_copy waits for a copy of a buffer that has its value: no other process can keep it from ending,
// and the plugin writes to its destination until then, so this one never gives up.
mu_status mu__pjrt_await(mu_pjrt_client *client, pj_event *event, const char *what);
mu_status mu__pjrt_await_copy(mu_pjrt_client *client, pj_event *event, const char *what);
mu_status mu__pjrt_await_buffer(mu_pjrt_client *client, pj_buffer *buffer, const char *what);
mu_status mu__pjrt_call_execute(mu_pjrt_client *client, pj_execute_args *args, const char *what);

// ---- Buffers (memory_space.c) -------------------------------------------------------------------

const mu_memory_space *mu__pjrt_memory_space_init(mu_pjrt_memory_space *space, mu_pjrt_client *client,
                                                  const mu_device *device);

// mu__pjrt_upload and mu__pjrt_download copy elements, dense and row-major on the host, to a new buffer of the plugin
// and back; both wait. mu__pjrt_send starts an upload: until *done (NULL: it is over) and whatever uses the buffer have
// ended, the elements must neither move nor change. mu__pjrt_read_number reads an int64 scalar. Their errors start with
// `what`. mu__pjrt_drop destroys a buffer and sets it to NULL; one of a lost client is left.
mu_status mu__pjrt_upload(const mu_pjrt_memory_space *space, const mu_view *from, const char *what, pj_buffer **out);
mu_status mu__pjrt_send(const mu_pjrt_memory_space *space, const mu_view *from, const char *what, pj_buffer **out,
                        pj_event **done);
mu_status mu__pjrt_download(mu_pjrt_client *client, pj_buffer *from, const mu_view *out, const char *what);
mu_status mu__pjrt_read_number(mu_pjrt_client *client, pj_buffer *from, const char *what, int64_t *out);
void mu__pjrt_drop(const mu_pjrt_client *client, pj_buffer **buffer);

// The handle of a mu_buffer on a device. The plugin's buffers never change, so a write replaces them, with the lock
// held: other threads may be copying the old one. mu__pjrt_put replaces it (NULL: no value), under the lock.
typedef struct mu_pjrt_copy {
    pj_device *device;
    pj_buffer *buffer;
} mu_pjrt_copy;
typedef struct mu_pjrt_memory {
    mu_pjrt_client *client; // retained
    mu_spec spec;
    pthread_mutex_t lock;
    pj_buffer *buffer; // NULL: no value
    mu_buffer *owner;  // retained; whose elements these are; NULL: its own
    // Of this value on further logical devices of the replicas that use it: another strategy may have other ones.
    struct {
        mu_pjrt_copy *items;
        size_t n, capacity;
    } copies;
} mu_pjrt_memory;
void mu__pjrt_put(mu_pjrt_memory *memory, pj_buffer *buffer);

// mu__pjrt_copy returns the copy of a value on another logical device than its own, and makes it if there is none; it
// belongs to the memory. NULL on error. mu__pjrt_keep_copy keeps a copy that a program has made there (it is dropped on
// error). Both take the lock.
pj_buffer *mu__pjrt_copy(mu_pjrt_memory *memory, const mu_device *device);
void mu__pjrt_keep_copy(mu_pjrt_memory *memory, const mu_device *device, pj_buffer *buffer);

// ---- Programs (partition.c, emit.c) -------------------------------------------------------------

// A variable whose memory a program takes over for the variable's new value: the old value is an argument of the
// program, and is not needed afterwards.
typedef struct mu_pjrt_donation {
    int resource, argument, result;
} mu_pjrt_donation;

// The inputs and outputs of a program are slots: output i of a node is slot mu_pjrt_parts.first[node] + i.
typedef struct mu_pjrt_part {
    int begin, end; // nodes of the graph; node `end`, if any, is a collective that the host performs
    int n_taken, n_left, n_donated;
    int *taken, *left; // slots read and written, in order of arguments and of results
    mu_pjrt_donation *donated;
    bool may_fail; // its last result, after those, is which op has failed; mu__pjrt_emit finds it
} mu_pjrt_part;

// How the values of a pure graph pass between its programs.
typedef struct mu_pjrt_parts {
    int n_values, n_parts;
    int *first; // slot of each node's output 0
    mu_pjrt_part *parts;
    // The host gathers tensors of any sizes between parts. What follows has known shapes once the sizes of the wholes
    // are known: those of the first ones, in the graph's order, and how many parts mu__pjrt_emit could write with them.
    int n_wholes, n_written;
    const int64_t *wholes;
    bool joined; // other processes run the program too; they have to know of a failure
} mu_pjrt_parts;

// mu__pjrt_parts_of finds the inputs and outputs of one program, or with `split` of the programs between the
// collectives. The result lives in the arena.
mu_status mu__pjrt_parts_of(const mu_graph *graph, bool split, mu_arena *arena, mu_pjrt_parts *out);

// mu__pjrt_emit writes the parts as StableHLO text for known shapes. `replicas` is the number of replicas that run the
// program together, with its collectives inside; MU_PJRT_ONE_BY_ONE: each runs the parts for itself, and its id is each
// part's last argument. With several `partitions` arguments and results are on all logical devices of a replica, and
// the annotations of the graph are written. Each text ends with a zero byte that is not counted; `specs` [slots]
// receives the types of all slots. The caller frees each text's items.
//
// Replicas that run a program together must all perform its collectives: a participant that is missing ends the
// process, inside of XLA. Where what decides that is not surely the same on all of them, the program lets them agree.
// `faults` lists how ops may fail: control flow whose replicas may not agree, checks, indices; a program says the
// number of one (mu_emitter.fault). The caller frees faults->items.
enum { MU_PJRT_ONE_BY_ONE = 0 };
typedef struct mu_pjrt_fault {
    mu_fault fault;
    const mu_node *node; // of the graph or one of its bodies
} mu_pjrt_fault;
typedef struct mu_pjrt_faults {
    mu_pjrt_fault *items;
    size_t n, capacity;
} mu_pjrt_faults;
typedef struct mu_pjrt_text {
    char *items;
    size_t n, capacity;
} mu_pjrt_text;
mu_status mu__pjrt_emit(const mu_graph *graph, const mu_spec *inputs, mu_pjrt_parts *parts, int replicas,
                        int partitions, mu_pjrt_text *texts, mu_spec *specs, mu_pjrt_faults *faults);

// The values of a graph that are known when its program is written (known.c): mu__pjrt_know finds those of a node's
// outputs, and makes a check whose input is known (*checked: the program needs none). Errors: the check's.
typedef struct mu_pjrt_known {
    const int *first;   // slot of each node's output 0
    int replicas;       // as of mu__pjrt_emit
    mu_tensor **values; // [slots] owned; NULL: not known
} mu_pjrt_known;
mu_status mu__pjrt_know(const mu_pjrt_known *known, const mu_node *node, const mu_hlo *in, mu_hlo *out, bool *checked);
void mu__pjrt_forget_known(mu_pjrt_known *known, int n_values);

// mu__pjrt_dump writes the text into the folder of MUSTER_DUMP_STABLEHLO, if that is set, as
// FUNCTION.PROCESS.NUMBER.mlir. What goes wrong is logged as a warning.
void mu__pjrt_dump(const char *function, const mu_pjrt_text *text);

// ---- Plans (pjrt_plan.h, launch.c) --------------------------------------------------------------

extern const mu_engine mu__engine_pjrt;

#endif
