// The part of the PJRT C interface that compiles for devices that are not there, as tests use it (api.h has the rest).
#ifndef MU_TESTS_PJRT_TOPOLOGY_API_H
#define MU_TESTS_PJRT_TOPOLOGY_API_H

#include "engine/pjrt/api.h"

enum { PJ_TOPOLOGY_CREATE = 82, PJ_TOPOLOGY_DESCRIPTIONS = 86, PJ_COMPILE = 89 };

typedef struct pj_topology pj_topology;
typedef struct pj_topology_create_args {
    PJ_HEAD;
    const char *name;
    size_t name_bytes;
    const pj_named_value *options;
    size_t n_options;
    pj_topology *topology; // out
} pj_topology_create_args;
typedef struct pj_topology_descriptions_args {
    PJ_HEAD;
    pj_topology *topology;
    pj_description *const *descriptions;
    size_t n;
} pj_topology_descriptions_args;
typedef struct pj_compile_for_args {
    PJ_HEAD;
    const pj_topology *topology;
    const pj_program *program;
    const char *options; // serialised CompileOptionsProto
    size_t options_bytes;
    pj_client *client;         // NULL: none
    pj_executable *executable; // out
} pj_compile_for_args;

#endif
