// Launches of joined_plugin on the devices of all processes. Each has a thread, so that its caller continues at once.
#include "joined_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DIMS = 8 };

static int launches, ended; // under the lock

typedef struct job {
    const joined_world *world;
    pj_loaded *loaded;
    int number, launch_id;
    size_t n_arguments;
    pj_buffer **arguments, **outputs;      // [own devices, …]; retained
    size_t n_own_arguments, n_own_outputs; // of all own devices together
    int64_t *not_donated;
    size_t n_not_donated;
    joined_gate *gate;
} job;

// What comes before the arguments in a parcel, and before each of them.
typedef struct head {
    uint64_t hash, n_devices, n_arguments;
    int64_t launch_id;
} head;
typedef struct argument_head {
    int64_t type, n_dims, dims[MOST_DIMS], bytes;
} argument_head;

static pj_error *describe(pj_buffer *inner, argument_head *out)
{
    element_type_args type = JOINED_ARGS(element_type_args, .buffer = inner);
    dimensions_args dims = JOINED_ARGS(dimensions_args, .buffer = inner);
    pj_error *error = joined_call(BUFFER_ELEMENT_TYPE, &type);
    if (error || (error = joined_call(BUFFER_DIMENSIONS, &dims)) != NULL)
        return error;
    if (dims.n > MOST_DIMS)
        return joined_error(JOINED_INVALID, "an argument has %zu dimensions; at most %d", dims.n, (int)MOST_DIMS);
    *out = (argument_head){.type = type.type, .n_dims = (int64_t)dims.n};
    memcpy(out->dims, dims.dims, dims.n * sizeof *dims.dims);
    return NULL;
}

static pj_error *pack_argument(joined_parcel *parcel, pj_buffer *buffer)
{
    int64_t order[MOST_DIMS];
    pj_buffer *inner;
    argument_head argument;
    pj_error *error = joined_buffer_inner(buffer, &inner);
    if (error || (error = describe(inner, &argument)) != NULL)
        return error;
    for (int i = 0; i < argument.n_dims; i++)
        order[i] = argument.n_dims - 1 - i;
    pj_layout layout = JOINED_ARGS(pj_layout, .tiled = JOINED_ARGS(pj_tiled_layout, .minor_to_major = order,
                                                                   .n_minor_to_major = (size_t)argument.n_dims));
    pj_to_host_args copy = JOINED_ARGS(pj_to_host_args, .source = inner, .layout = &layout);
    if ((error = joined_call(PJ_BUFFER_TO_HOST_BUFFER, &copy)) != NULL) // says how many bytes
        return error;
    argument.bytes = (int64_t)copy.bytes;
    copy.data = joined_alloc(copy.bytes);
    if (!(error = joined_call(PJ_BUFFER_TO_HOST_BUFFER, &copy)))
        error = joined_await_inner(copy.event);
    joined_pack(parcel, &argument, sizeof argument);
    joined_pack(parcel, copy.data, (size_t)argument.bytes);
    free(copy.data);
    return error;
}

static pj_error *send_arguments(const job *j)
{
    joined_parcel parcel = {0};
    const size_t n = (size_t)j->loaded->n_own * j->n_arguments;
    const head first = {.hash = j->loaded->hash,
                        .n_devices = (uint64_t)j->loaded->n_own,
                        .n_arguments = j->n_arguments,
                        .launch_id = j->launch_id};
    pj_error *error = NULL;
    joined_pack(&parcel, &first, sizeof first);
    for (size_t i = 0; !error && i < n; i++)
        error = pack_argument(&parcel, j->arguments[i]);
    if (!error)
        joined_send(j->world, j->number, &parcel);
    free(parcel.data);
    return error;
}

// Participants with different programs would wait for each other for ever.
static void need_same(const job *j, const joined_parcel *parcel, int node)
{
    head theirs;
    memcpy(&theirs, parcel->data, sizeof theirs);
    if (theirs.hash == j->loaded->hash && theirs.launch_id == j->launch_id && theirs.n_arguments == j->n_arguments)
        return;
    fprintf(stderr,
            "joined_plugin: launch %d: process %d runs another program or launch id (%lld) than process %d (%d)\n",
            j->number, node, (long long)theirs.launch_id, j->world->node, j->launch_id);
    abort();
}

static pj_error *unpack_argument(pj_client *client, const joined_parcel *parcel, size_t *at, pj_device *device,
                                 pj_buffer **out)
{
    argument_head argument;
    memcpy(&argument, parcel->data + *at, sizeof argument);
    pj_from_host_args args = JOINED_ARGS(
        pj_from_host_args, .client = client, .data = parcel->data + *at + sizeof argument, .type = (int)argument.type,
        .dims = argument.dims, .n_dims = (size_t)argument.n_dims, .semantics = PJ_HOST_DURING_CALL, .device = device);
    *at += sizeof argument + (size_t)argument.bytes;
    pj_error *error = joined_call(PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, &args);
    *out = args.buffer;
    return error ? error : joined_await_inner(args.done);
}

// The argument lists of all devices: this process's own, and those that others have sent.
static pj_error *gather(const job *j, pj_device *const *devices, pj_buffer ***lists)
{
    joined_parcel parcels[JOINED_NODES] = {{0}};
    size_t at[JOINED_NODES] = {0}, own = 0;
    pj_error *error = NULL;
    for (int d = 0; !error && d < j->loaded->n; d++) {
        const int node = j->loaded->node[d];
        if (node != j->world->node && !parcels[node].data) {
            parcels[node] = joined_receive(j->world, j->number, node);
            need_same(j, &parcels[node], node);
            at[node] = sizeof(head);
        }
        for (size_t i = 0; !error && i < j->n_arguments; i++)
            error = node == j->world->node
                        ? joined_buffer_inner(j->arguments[own++], &lists[d][i])
                        : unpack_argument(j->world->client, &parcels[node], &at[node], devices[d], &lists[d][i]);
    }
    for (int node = 0; node < j->world->nodes; node++)
        free(parcels[node].data);
    return error;
}

static pj_error *execute_all(const job *j, pj_buffer ***lists, pj_buffer ***results)
{
    pj_event *complete[JOINED_DEVICES] = {NULL};
    pj_execute_options options = JOINED_ARGS(pj_execute_options, .launch_id = j->launch_id,
                                             .not_donated = j->not_donated, .n_not_donated = j->n_not_donated);
    pj_execute_args args =
        JOINED_ARGS(pj_execute_args, .loaded = j->loaded->inner, .options = &options,
                    .arguments = (pj_buffer *const *const *)lists, .n_devices = (size_t)j->loaded->n,
                    .n_arguments = j->n_arguments, .outputs = (pj_buffer * *const *)results, .complete = complete);
    pj_error *error = joined_call(PJ_LOADED_EXECUTE, &args);
    for (int d = 0; !error && d < j->loaded->n; d++)
        error = joined_await_inner(complete[d]);
    return error;
}

static void destroy_inner(pj_buffer *inner)
{
    if (inner)
        joined_call(PJ_BUFFER_DESTROY, &JOINED_ARGS(pj_buffer_args, .buffer = inner));
}

// The results of this process's devices become those of the launch; the others are destroyed.
static void sort_results(const job *j, pj_buffer ***lists, pj_buffer ***results)
{
    size_t own = 0;
    for (int d = 0; d < j->loaded->n; d++) {
        const bool here = j->loaded->node[d] == j->world->node;
        for (size_t i = 0; i < j->n_arguments && !here; i++)
            destroy_inner(lists[d][i]);
        for (size_t i = 0; i < j->loaded->n_outputs; i++)
            here ? (void)(j->outputs[own++]->inner = results[d][i]) : destroy_inner(results[d][i]);
        free(lists[d]);
        free(results[d]);
    }
}

static pj_error *run(const job *j)
{
    pj_buffer **lists[JOINED_DEVICES], **results[JOINED_DEVICES];
    loaded_devices_args all = JOINED_ARGS(loaded_devices_args, .loaded = j->loaded->inner);
    pj_error *error = joined_call(LOADED_ADDRESSABLE_DEVICES, &all);
    if (error || (error = send_arguments(j)) != NULL)
        return error;
    for (int d = 0; d < j->loaded->n; d++) {
        lists[d] = joined_alloc(sizeof **lists * j->n_arguments);
        results[d] = joined_alloc(sizeof **results * j->loaded->n_outputs);
    }
    error = gather(j, all.devices, lists);
    if (!error)
        error = execute_all(j, lists, results);
    sort_results(j, lists, results);
    return error;
}

static void die_if_told(const job *j)
{
    int node = -1, number = -1;
    const char *text = getenv("MU_PLUGIN_DIES_IN");
    if (text && sscanf(text, "%d:%d", &node, &number) == 2 && node == j->world->node && number == j->number)
        _exit(0);
}

// Launches run one after the other, in the order of their calls.
static void *run_job(void *arg)
{
    job *j = arg;
    pthread_mutex_lock(&joined_lock);
    while (ended < j->number)
        pthread_cond_wait(&joined_changed, &joined_lock);
    pthread_mutex_unlock(&joined_lock);
    die_if_told(j);
    pj_error *error = run(j);
    joined_gate_open(j->gate, error); // From here on the caller may destroy the program.
    for (size_t i = 0; i < j->n_own_arguments; i++)
        joined_buffer_drop(j->arguments[i]);
    for (size_t i = 0; i < j->n_own_outputs; i++)
        joined_buffer_drop(j->outputs[i]);
    joined_gate_drop(j->gate);
    pthread_mutex_lock(&joined_lock);
    ended++;
    pthread_cond_broadcast(&joined_changed);
    pthread_mutex_unlock(&joined_lock);
    free(j->arguments);
    free(j->outputs);
    free(j->not_donated);
    free(j);
    return NULL;
}

static job *new_job(const joined_world *world, const pj_execute_args *args)
{
    pj_loaded *loaded = args->loaded;
    job *j = joined_alloc(sizeof *j);
    *j = (job){.world = world,
               .loaded = loaded,
               .launch_id = args->options->launch_id,
               .n_arguments = args->n_arguments,
               .n_own_arguments = args->n_devices * args->n_arguments,
               .n_own_outputs = args->n_devices * loaded->n_outputs,
               .n_not_donated = args->options->n_not_donated,
               .gate = joined_gate_new()};
    j->arguments = joined_alloc(sizeof *j->arguments * j->n_own_arguments);
    j->outputs = joined_alloc(sizeof *j->outputs * j->n_own_outputs);
    j->not_donated = joined_alloc(sizeof *j->not_donated * j->n_not_donated);
    if (j->n_not_donated > 0)
        memcpy(j->not_donated, args->options->not_donated, sizeof *j->not_donated * j->n_not_donated);
    for (size_t d = 0; d < args->n_devices; d++) {
        for (size_t i = 0; i < args->n_arguments; i++)
            j->arguments[d * args->n_arguments + i] = joined_buffer_keep(args->arguments[d][i]);
        for (size_t i = 0; i < loaded->n_outputs; i++) {
            args->outputs[d][i] = joined_buffer(NULL, j->gate);
            j->outputs[d * loaded->n_outputs + i] = joined_buffer_keep(args->outputs[d][i]);
        }
        if (args->complete)
            args->complete[d] = joined_event(NULL, j->gate);
    }
    return j;
}

pj_error *joined_launch(const joined_world *world, const pj_execute_args *args)
{
    pthread_t thread;
    if (args->n_devices != (size_t)args->loaded->n_own)
        return joined_error(JOINED_INVALID, "a launch for %zu devices of this process, which has %d in the program",
                            args->n_devices, args->loaded->n_own);
    job *j = new_job(world, args);
    joined_count(JOINED_LAUNCHED);
    pthread_mutex_lock(&joined_lock);
    j->number = launches++;
    pthread_mutex_unlock(&joined_lock);
    if (pthread_create(&thread, NULL, run_job, j) != 0)
        abort();
    pthread_detach(thread);
    return NULL;
}

void joined_wait_for_launches(void)
{
    pthread_mutex_lock(&joined_lock);
    while (ended < launches)
        pthread_cond_wait(&joined_changed, &joined_lock);
    launches = ended = 0;
    pthread_mutex_unlock(&joined_lock);
}
