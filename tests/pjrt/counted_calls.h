// Counts the compilations and launches of a plugin. Each test program has one; its set-up calls start_counting.
#ifndef MU_TESTS_PJRT_COUNTED_CALLS_H
#define MU_TESTS_PJRT_COUNTED_CALLS_H

#include "changed_table.h"

#include "distribute/distribute.h"

#include <stdatomic.h>

static struct {
    const pj_api *api;                         // the plugin's own table
    const char *text;                          // NULL, or what `containing` counts
    atomic_int compiled, containing, launched; // replicas compile and launch on threads of their own
    atomic_int most_devices;                   // of one launch
} calls;

static pj_error *count_compile(void *args)
{
    const char *code = ((const pj_compile_args *)args)->program->code;
    calls.compiled++;
    calls.containing += calls.text != NULL && strstr(code, calls.text) != NULL;
    return calls.api->functions[PJ_CLIENT_COMPILE](args);
}

static pj_error *count_execute(void *args)
{
    calls.launched++;
    calls.most_devices = MU_MAX(calls.most_devices, (int)((const pj_execute_args *)args)->n_devices);
    return calls.api->functions[PJ_LOADED_EXECUTE](args);
}

// Starts the library with so many devices. `text` (may be NULL) occurs in the programs that calls.containing counts.
static inline int start_counting(void **state, int cpu_devices, const char *text)
{
    mu_init(.cpu_devices = cpu_devices, .seed = 3);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    static const changed_function counted[] = {{PJ_CLIENT_COMPILE, count_compile}, {PJ_LOADED_EXECUTE, count_execute}};
    memset(&calls, 0, sizeof calls);
    calls.text = text;
    *state = change_table(client, MU_COUNT(counted), counted, &calls.api);
    return 0;
}

#endif
