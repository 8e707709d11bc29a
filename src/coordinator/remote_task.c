// A worker that is another process: functions are sent to it once as graphs, and run there by their numbers.
//
// The variables of a function are on the parameter servers, to which the worker sends its effects itself. A worker that
// starts again is a new process without functions; mu_rpc_client_server, the number of the process, shows that.
#include "coordinator/task.h"

#include "data/dataset.h"
#include "distribute/servers/function_service.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#include <ctype.h>

enum { MOST_REGISTERED = 1024 };

// A function that the worker knows.
typedef struct registered {
    mu_concrete *concrete; // retained, so that no other has its address
    int64_t number;
} registered;

typedef struct remote_task {
    mu_task task;
    mu_rpc_client *client; // borrowed from the strategy's servers
    uint64_t process;      // that knows the functions; 0: none yet
    struct {
        registered *items;
        size_t n, capacity;
    } functions;
} remote_task;

// ---- What the worker knows ----------------------------------------------------------------------

static void forget_all(remote_task *t)
{
    while (t->functions.n > 0)
        mu_release(t->functions.items[--t->functions.n].concrete);
}

// The worker forgets the oldest function if it has as many as it may.
static mu_status forget_oldest(remote_task *t)
{
    if (t->functions.n < MOST_REGISTERED)
        return MU_OK;
    const registered oldest = t->functions.items[0];
    memmove(t->functions.items, t->functions.items + 1, --t->functions.n * sizeof oldest);
    mu_release(oldest.concrete);
    return mu__remote_function_delete(t->client, oldest.number);
}

// Another process than the one that is known has none of its functions.
static mu_status check_process(const remote_task *t)
{
    if (mu_rpc_client_server(t->client) == t->process)
        return MU_OK;
    return mu__error(MU_UNAVAILABLE, "worker %d at %s was lost, or is a new process", t->task.worker,
                     mu__client_address(t->client));
}

// Begins with a process that answers now: what a coordinator before this one left there goes.
static mu_status begin_with(remote_task *t)
{
    if (!mu_rpc_client_methods(t->client))
        return mu_error_code();
    const uint64_t process = mu_rpc_client_server(t->client);
    if (process != t->process)
        MU_TRY(mu__remote_variables_clear(t->client));
    t->process = process;
    return process != 0 ? MU_OK
                        : mu__error(MU_UNAVAILABLE, "the connection to worker %d at %s was lost", t->task.worker,
                                    mu__client_address(t->client));
}

// A worker that refused the coordinator when it was reached says why to its first call.
static mu_status find_process(remote_task *t)
{
    if (t->process == 0)
        MU_TRY(begin_with(t));
    return check_process(t);
}

// The number of a function, which is sent if the worker does not know it; -1 on error.
static int64_t number_of(remote_task *t, mu_concrete *concrete)
{
    for (size_t i = 0; i < t->functions.n; i++)
        if (t->functions.items[i].concrete == concrete)
            return t->functions.items[i].number;
    if (forget_oldest(t) != MU_OK)
        return -1;
    const int64_t number = mu__per_worker_values_make(t->client, concrete->graph) == MU_OK
                               ? mu__remote_function_register(t->client, concrete->graph)
                               : -1;
    if (number < 0 || check_process(t) != MU_OK ||
        MU_PUSH(&t->functions, ((registered){.concrete = concrete, .number = number})) != MU_OK)
        return -1;
    mu_retain(concrete);
    return number;
}

// ---- What went wrong ----------------------------------------------------------------------------

// Where a message names an address, and not a longer one that begins with it; NULL: nowhere.
static char *find_name(char *message, const char *address)
{
    const size_t length = strlen(address);
    for (char *at = message; (at = strstr(at, address)); at += length)
        if (!isdigit((unsigned char)at[length]))
            return at;
    return NULL;
}

static int server_in(const mu_servers *servers, char *message)
{
    for (int i = 0; i < servers->n; i++)
        if (find_name(message, mu__client_address(servers->servers[i].client)))
            return i;
    return -1;
}

// The worker names a server by its address alone: behind the last one in the first line comes which server that is.
static void add_task(mu_error_value *error, const mu_rpc_client *server)
{
    const char *address = mu__client_address(server), *task = mu__client_task(server);
    const size_t line = strcspn(error->message, "\n");
    char *last = NULL, rest[sizeof error->message];
    for (char *at = error->message; (at = find_name(at, address)) && at < error->message + line;)
        last = at += strlen(address);
    if (!last || !task)
        return;
    snprintf(rest, sizeof rest, "%s", last);
    snprintf(last, sizeof error->message - (size_t)(last - error->message), ", %s%s", task, rest);
}

// A server that is away is named in the worker's report; one that started again has lost its variables.
static void find_blame(const remote_task *t, mu_task_failure *failure)
{
    mu_error_value error;
    mu__error_move(&error);
    const int server = server_in(t->task.strategy->servers, error.message);
    const mu_rpc_client *client = server >= 0 ? t->task.strategy->servers->servers[server].client : NULL;
    if (client && error.code == MU_NOT_FOUND) {
        error.code = MU_UNAVAILABLE;
        mu__lost_text(error.message, client);
    } else if (client) {
        add_task(&error, client);
    }
    if (server >= 0 && (error.code == MU_UNAVAILABLE || error.code == MU_ABORTED))
        *failure = (mu_task_failure){.blame = MU_BLAME_SERVER, .server = server};
    else if (error.code == MU_UNAVAILABLE ||
             (error.code != MU_DEADLINE_EXCEEDED && mu_rpc_client_server(t->client) != t->process))
        failure->blame = MU_BLAME_WORKER;
    mu__error_raise(&error);
}

// ---- The slots ----------------------------------------------------------------------------------

static mu_value *specs_of(mu_task *task, mu_value *arguments, mu_task_failure *failure)
{
    remote_task *t = (remote_task *)task;
    mu_value *specs = arguments ? mu__remote_input_specs(arguments) : NULL;
    if (!specs && mu__pending())
        find_blame(t, failure);
    return specs;
}

// Runs a function whose inputs are `specs`; *fits as in mu__remote_function_run_on.
static mu_value *run(const mu_remote_worker *worker, int64_t number, const mu_concrete *concrete, const mu_value *specs,
                     const mu_input_positions *positions, bool *fits)
{
    const mu_graph *graph = concrete->graph;
    const size_t n_in = graph->inputs.n;
    mu_tensor **tensors = mu__calloc(n_in + graph->outputs.n + 1, sizeof *tensors);
    mu_value *result = NULL;
    if (!tensors)
        return NULL;
    mu_tensor **out = tensors + n_in;
    mu_status status = mu__served_arguments(graph, specs, tensors);
    if (status == MU_OK)
        status = positions->inputs.n == 0
                     ? mu__remote_function_run(worker, number, graph, tensors, out)
                     : mu__remote_function_run_on(worker, number, graph, tensors, positions, out, fits);
    if (status == MU_OK && *fits)
        result = mu__concrete_result(concrete, out, out);
    for (size_t i = 0; i < n_in; i++)
        mu_release(tensors[i]);
    mu__free(tensors);
    return result;
}

// One attempt, with the specs that are known of elements on the worker. *fits: false if they are others.
static mu_value *attempt(remote_task *t, mu_function *function, mu_value *arguments, mu_task_failure *failure,
                         bool *fits)
{
    mu_input_positions positions = {0};
    mu_value *specs = specs_of(&t->task, arguments, failure), *result = NULL;
    mu_concrete *concrete = specs || !arguments ? mu__served_trace(t->task.strategy, function, specs) : NULL;
    if (!concrete)
        return NULL;
    const int64_t number = find_process(t) == MU_OK ? number_of(t, concrete) : -1;
    if (number >= 0 && (!arguments || mu__input_positions_find(&positions, arguments) == MU_OK))
        result = run(&(mu_remote_worker){.client = t->client, .ending = t->task.ending}, number, concrete, specs,
                     &positions, fits);
    if (!*fits)
        mu__input_positions_forget(&positions);
    else if (!result)
        find_blame(t, failure);
    mu__input_positions_free(&positions);
    return result;
}

static mu_value *call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    enum { MOST_ATTEMPTS = 3 }; // no other call takes elements of this worker meanwhile
    for (int i = 0; i < MOST_ATTEMPTS; i++) {
        bool fits = true;
        mu_value *result = attempt((remote_task *)task, function, arguments, failure, &fits);
        if (fits)
            return result;
    }
    mu__error(MU_INVALID_ARGUMENT,
              "the next elements of datasets on worker %d do not fit '%s' together; name each once in the arguments",
              task->worker, mu_function_name(function));
    return NULL;
}

// ---- Per-worker values ---------------------------------------------------------------------------

// Only tensors can be sent.
static bool all_tensors(const mu_value *value)
{
    mu_error_value ignored;
    mu_leaves leaves;
    const bool all = mu__leaves_of(value, &leaves) == MU_OK;
    if (all)
        mu__leaves_free(&leaves);
    mu__error_move(&ignored);
    return all;
}

static void *keep(mu_task *task, void *made, mu_task_failure *failure)
{
    remote_task *t = (remote_task *)task;
    mu_remote_input *input = NULL;
    const bool dataset = mu__is(made, &mu__dataset_type);
    char name[64];
    if (!dataset && !all_tensors(made)) {
        mu__error(MU_UNIMPLEMENTED, "a value that is not made of tensors cannot be sent to another process");
        return NULL;
    }
    snprintf(name, sizeof name, "the %s of worker %d", dataset ? "dataset" : "value", task->worker);
    if (find_process(t) == MU_OK)
        input =
            dataset ? mu__remote_input_dataset(t->client, name, made) : mu__remote_input_value(t->client, name, made);
    if (input && input->process != t->process)
        check_process(t);
    if (!mu__pending())
        return input;
    mu_release(input);
    find_blame(t, failure);
    return NULL;
}

// The client connects by itself. A call shows that the worker takes calls: one that is stopping still has its
// connection. The process that answers now is sent everything again.
static mu_status recover(mu_task *task)
{
    remote_task *t = (remote_task *)task;
    MU_TRY(begin_with(t));
    forget_all(t);
    return MU_OK;
}

// A worker that answers with something else than its absence is there.
static mu_status reach(mu_task *task)
{
    const mu_status status = recover(task);
    if (status == MU_OK || status == MU_UNAVAILABLE || status == MU_DEADLINE_EXCEEDED || status == MU_CANCELLED)
        return status;
    mu_error_take();
    return MU_OK;
}

static void free_task(mu_task *task)
{
    remote_task *t = (remote_task *)task;
    forget_all(t);
    mu__free(t->functions.items);
    mu__free(t);
}

static const mu_task_ops remote_ops = {.name = "remote",
                                       .call = call,
                                       .keep = keep,
                                       .specs = specs_of,
                                       .reach = reach,
                                       .recover = recover,
                                       .free = free_task};

mu_task *mu__remote_task(mu_strategy *strategy, int worker, void *arg)
{
    (void)arg;
    remote_task *t = mu__calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->task = (mu_task){.ops = &remote_ops, .strategy = strategy, .worker = worker};
    t->client = strategy->servers->workers[worker];
    return &t->task;
}
