// A plugin of the tests' own that has nothing but a version, MU_PLUGIN_MAJOR and MU_PLUGIN_MINOR, and
// MU_PLUGIN_FUNCTIONS functions. It can be opened and reports its version; nothing else works.
#include "engine/pjrt/api.h"

#include <stdlib.h>

enum { MOST_FUNCTIONS = 256, MOST_TABLES = 32 };

static pj_error *destroy(void *args)
{
    (void)args;
    return NULL;
}

static pj_error *message(void *args)
{
    static const char text[] = "no";
    ((pj_error_message_args *)args)->message = text;
    ((pj_error_message_args *)args)->bytes = sizeof text - 1;
    return NULL;
}

static pj_error *code(void *args)
{
    enum { UNIMPLEMENTED = 12 };
    ((pj_error_code_args *)args)->code = UNIMPLEMENTED;
    return NULL;
}

static pj_error *initialize(void *args)
{
    (void)args;
    return NULL;
}

static pj_error *fail(void *args)
{
    static int error;
    (void)args;
    return (pj_error *)&error;
}

// Counts the attempts to start the plugin, for the tests.
__attribute__((visibility("default"))) int versioned_plugin_starts;

static pj_error *start(void *args)
{
    versioned_plugin_starts++;
    return fail(args);
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

// A new table for each call, because the test opens the plugin in several versions.
__attribute__((visibility("default"))) const pj_api *GetPjrtApi(void);
const pj_api *GetPjrtApi(void)
{
    static _Alignas(pj_api) char tables[MOST_TABLES][sizeof(pj_api) + sizeof(pj_call *) * MOST_FUNCTIONS];
    static int made;
    const int n = number("MU_PLUGIN_FUNCTIONS", MOST_FUNCTIONS);
    if (made == MOST_TABLES)
        return NULL;
    pj_api *api = (pj_api *)tables[made++];
    api->size = sizeof *api + sizeof(pj_call *) * (size_t)n;
    api->version = (pj_version){
        .size = sizeof api->version, .major = number("MU_PLUGIN_MAJOR", 0), .minor = number("MU_PLUGIN_MINOR", 0)};
    for (int i = 0; i < n; i++)
        api->functions[i] = fail;
    if (n > PJ_CLIENT_CREATE)
        api->functions[PJ_CLIENT_CREATE] = start;
    if (n > PJ_PLUGIN_INITIALIZE) {
        api->functions[PJ_ERROR_DESTROY] = destroy;
        api->functions[PJ_ERROR_MESSAGE] = message;
        api->functions[PJ_ERROR_GET_CODE] = code;
        api->functions[PJ_PLUGIN_INITIALIZE] = initialize;
    }
    return api;
}
