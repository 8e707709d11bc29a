// What the files of the PJRT engine share: plugins, clients, programs in text, plans.
//
// A plugin is opened on first use and stays; a client is one plugin's devices under one runtime; a plan is a
// graph written as StableHLO under known shapes and compiled by the plugin.
#ifndef MU_SRC_ENGINE_PJRT_H
#define MU_SRC_ENGINE_PJRT_H

#include "engine/engine.h"
#include "engine/pjrt/api.h"

// ---- Plugins (plugin.c) -------------------------------------------------------------------------

// PJ_ARGS makes an argument struct that knows its size.
#define PJ_ARGS(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})

// mu__pjrt_call calls a function of the plugin; an error becomes a record of this thread that starts with
// `what`. UNIMPLEMENTED if the plugin is too old to have the function.
mu_status mu__pjrt_call(const pj_api *api, pj_function function, void *args, const char *what);

// mu__pjrt_destroy calls one of the functions that end a thing; nothing can be done about an error there.
void mu__pjrt_destroy(const pj_api *api, pj_function function, void *args);

// mu__pjrt_await waits for an event and destroys it; NULL is accepted. The error is the event's.
mu_status mu__pjrt_await(const pj_api *api, pj_event *event, const char *what);

// mu__pjrt_plugin finds and opens the plugin called `name`: by PJRT_NAMES_AND_LIBRARY_PATHS (name:path,…), else
// in the package folders of the Python environment in force, the user and the system. A name with a slash is a
// file. Calling it again gives the same table. NULL with NOT_FOUND if there is none.
const pj_api *mu__pjrt_plugin(const char *name);
bool mu__pjrt_installed(const char *name);  // whether there is such a file to open

// ---- Clients (client.c) -------------------------------------------------------------------------

enum { MU_PJRT_KIND = 20 };  // bytes of the kind in a device's name

typedef struct mu_pjrt_client {
    struct mu_pjrt_client *next;
    char kind[MU_PJRT_KIND];      // of its devices' names: "XLA_CPU"
    const pj_api *api;
    pj_client *client;
    int n_devices;
    mu_device *devices;           // engine_device: the pj_device
} mu_pjrt_client;

// mu__pjrt_client_new opens the plugin called `name` and asks it for its devices, which are then named by `kind`
// and a number. NULL on error.
mu_pjrt_client *mu__pjrt_client_new(const char *name, const char *kind);
void mu__pjrt_client_free(mu_pjrt_client *client);  // after its devices' threads

// ---- Programs (partition.c, emit.c) -------------------------------------------------------------

// What a program takes and leaves is known by slots: output i of a node is slot mu_pjrt_parts.first[node] + i.
typedef struct mu_pjrt_part {
    int begin, end;               // nodes of the graph; node `end`, if any, is a collective done by the host
    int n_taken, n_left;
    int *taken, *left;            // slots, in order of arguments and of results
} mu_pjrt_part;

// How the values of a pure graph pass through its programs.
typedef struct mu_pjrt_parts {
    int n_values, n_parts;
    int *first;                   // of each node: slot of its output 0
    mu_pjrt_part *parts;
} mu_pjrt_parts;

// mu__pjrt_parts_of finds what passes in and out: of one program, or of as many as lie between the collectives
// (`split`). Lives in the arena.
mu_status mu__pjrt_parts_of(const mu_graph *graph, bool split, mu_arena *arena, mu_pjrt_parts *out);

// mu__pjrt_emit writes the parts under known shapes, for the replica with this id, each as StableHLO's text that
// ends with a 0 which is not counted; `specs` [slots] gets the types of all slots. The caller frees each text's items.
typedef struct mu_pjrt_text {
    char *items;
    size_t n, capacity;
} mu_pjrt_text;
mu_status mu__pjrt_emit(const mu_graph *graph, const mu_spec *inputs, const mu_pjrt_parts *parts, int replica,
                        mu_pjrt_text *texts, mu_spec *specs);

// ---- Plans (run_plan.c) -------------------------------------------------------------------------

extern const mu_engine mu__engine_pjrt;

#endif
