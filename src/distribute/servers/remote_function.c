// The coordinator's end of functions on workers: sends a graph, and runs it there.
#include "distribute/servers/function_service.h"
#include "rpc/rpc.h"
#include "rpc/remote/remote_table.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"

#include <math.h>

// A table's name, an empty text, and the addresses of its servers.
static mu_value *homes_of_table(const mu_resource *table)
{
    int n = 0;
    mu_rpc_client *const *clients = mu__remote_table_clients(table, &n);
    mu_value **parts = mu__calloc((size_t)n + 2, sizeof *parts);
    for (int i = 0; parts != NULL && i < n + 2; i++)
        parts[i] = mu__text_value(i == 0 ? table->name : i == 1 ? "" : mu__client_address(clients[i - 2]));
    mu_value *list = parts != NULL ? mu_list_of(n + 2, parts) : NULL;
    mu__free(parts);
    return list;
}

// [name, address of its server] for each variable of a graph, which is the worker itself for a per-worker variable;
// [name, "", addresses of its servers] for each embedding table.
static mu_value *homes_of(const mu_rpc_client *worker, const mu_graph *graph)
{
    mu_value **pairs = mu__calloc(graph->resources.n + 1, sizeof *pairs);
    mu_status status = pairs != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->resources.n && status == MU_OK; i++) {
        const mu_resource *resource = graph->resources.items[i];
        const mu_rpc_client *home = resource->per_worker ? worker : resource->home;
        if (home == NULL)
            status = mu__error(MU_FAILED_PRECONDITION,
                               "'%s' uses '%s', which is in this process: workers reach only what a server keeps",
                               graph->name, resource->name);
        else if (resource->kind == &mu__remote_table_kind)
            pairs[i] = homes_of_table(resource);
        else
            pairs[i] = mu_list(mu__text_value(resource->name), mu__text_value(mu__client_address(home)), MU_END);
    }
    mu_value *list = status == MU_OK ? mu_list_of((int)graph->resources.n, pairs) : NULL;
    mu__free(pairs);
    return list;
}

// Through which the stores of a graph's variables are reached; NULL: they have neither copies nor snapshots.
static mu_store_client *route_of(const mu_graph *graph)
{
    mu_store_client *route = NULL;
    int store;
    for (size_t i = 0; i < graph->resources.n && route == NULL; i++) {
        const mu_rpc_client *home = graph->resources.items[i]->home;
        route = home != NULL ? mu__client_routed(home, &store) : NULL;
    }
    return route;
}

// The addresses of all servers, if their stores have copies; NULL: they have none, or an error.
static mu_value *addresses_of(const mu_graph *graph)
{
    int n = 0;
    const mu_store_client *route = route_of(graph);
    mu_rpc_client *const *servers = route != NULL ? mu__store_client_servers(route, &n) : NULL;
    mu_value **texts = servers != NULL ? mu__calloc((size_t)n, sizeof *texts) : NULL;
    for (int i = 0; texts != NULL && i < n; i++)
        texts[i] = mu__text_value(mu__client_address(servers[i]));
    mu_value *list = texts != NULL ? mu_list_of(n, texts) : NULL;
    mu__free(texts);
    return list;
}

static mu_value *registration(const mu_rpc_client *worker, const mu_graph *graph, mu_tensor *bytes)
{
    mu_value *homes = homes_of(worker, graph), *addresses = homes != NULL ? addresses_of(graph) : NULL;
    return addresses != NULL ? mu_list(bytes, homes, addresses, MU_END) : mu_list(bytes, homes, MU_END);
}

// What a graph has that workers of an older version do not know; NULL: nothing.
static const mu_wire_need *need_of(const mu_graph *graph)
{
    static const mu_wire_need parts = {MU_WIRE_PARTS,
                                       "one op on several parts of a variable (a lookup or a scatter in a function)"};
    const mu_wire_need *need = NULL;
    for (size_t i = 0; i < graph->nodes.n && need == NULL; i++) {
        const mu_node *node = graph->nodes.items[i];
        if ((node->op == &mu_op_gather_variable || node->op == &mu_op_scatter_variable) && node->n_resources > 1)
            need = &parts;
        for (int k = 0; need == NULL && mu__node_body(node, k) != NULL; k++)
            need = need_of(mu__node_body(node, k));
    }
    return need;
}

static mu_remote_subject about(const mu_graph *graph) { return mu__remote_subject(NULL, "function", graph->name); }

int64_t mu__remote_function_register(mu_rpc_client *worker, const mu_graph *graph)
{
    void *bytes = NULL;
    size_t size = 0;
    mu_pool *pool = mu_pool_open();
    mu_value *answer = NULL;
    if (mu__graph_write(graph, &bytes, &size) == MU_OK) {
        const int64_t n = (int64_t)size;
        mu_remote_call call = {.client = worker,
                               .need = need_of(graph),
                               .subject = about(graph),
                               .arguments = registration(worker, graph, mu_tensor_new(MU_U8, 1, &n, bytes))};
        answer = mu__remote_calls("muster.function.register", 1, &call) == MU_OK ? call.value : NULL;
    }
    mu__free(bytes);
    const mu_tensor *number = answer != NULL ? mu_at(answer, 0) : NULL;
    if (!mu__pending() && (number == NULL || number->dtype != MU_I64 || number->shape.rank != 0))
        mu__error(MU_DATA_LOSS, "the worker at %s answers with something else than a function's number",
                  mu__client_address(worker));
    const int64_t registered = mu__pending() ? -1 : mu_tensor_item_int(number, 0);
    mu_pool_close(pool);
    return registered;
}

static mu_status take_outputs(mu_rpc_client *worker, const mu_graph *graph, const mu_value *answer, mu_tensor **out)
{
    const int n = (int)graph->outputs.n;
    if (answer == NULL || mu_value_count(answer) != n)
        return mu__error(MU_DATA_LOSS, "the worker at %s answers '%s' with another number of tensors than %d",
                         mu__client_address(worker), graph->name, n);
    for (int k = 0; k < n; k++) {
        const mu_edge *edge = &graph->outputs.items[k];
        const mu_spec *wanted = &edge->node->out[edge->output];
        out[k] = mu_at(answer, k);
        if (out[k] == NULL)
            return mu_error_code();
        if (out[k]->dtype != wanted->dtype || !mu__shape_compatible(&out[k]->shape, &wanted->shape))
            return mu__error(MU_DATA_LOSS, "the worker at %s answers '%s' with a tensor of another type or shape",
                             mu__client_address(worker), graph->name);
    }
    return MU_OK;
}

// What is sent of the inputs: those that are tensors here. Of the others the worker has the elements.
static mu_value *sent_of(const mu_graph *graph, mu_tensor *const *in)
{
    mu_value **inputs = mu__calloc(graph->inputs.n + 1, sizeof *inputs);
    int n = 0;
    for (size_t i = 0; inputs != NULL && i < graph->inputs.n; i++)
        if (in[i]->buffer != NULL)
            inputs[n++] = mu_of(in[i]);
    mu_value *list = inputs != NULL ? mu_list_of(n, inputs) : NULL;
    mu__free(inputs);
    return list;
}

// A function's number, and the last cut that this process knows: what it has seen was perhaps made after that cut, so
// that what the function does must not count as made before it. Workers of older versions read the first number alone.
static mu_value *number_and_cut(const mu_graph *graph, int64_t number)
{
    mu_store_client *route = route_of(graph);
    const int64_t numbers[2] = {number, route != NULL ? mu__store_client_cut(route) : 0}, n = 2;
    return mu_of(route != NULL ? mu_tensor_new(MU_I64, 1, &n, numbers) : mu_tensor_new(MU_I64, 0, NULL, numbers));
}

// A step may take any time: the heartbeat shows whether the worker is alive. One that is cancelled changes nothing any
// more when this returns.
static const mu_value *call_run(const mu_remote_worker *worker, const mu_graph *graph, mu_value *arguments)
{
    mu_remote_call call = {.client = worker->client,
                           .subject = about(graph),
                           .arguments = arguments,
                           .seconds = INFINITY,
                           .settles = true,
                           .leaves = worker->ending};
    return mu__remote_calls("muster.function.run", 1, &call) == MU_OK ? call.value : NULL;
}

mu_status mu__remote_function_run(const mu_remote_worker *worker, int64_t number, const mu_graph *graph,
                                  mu_tensor *const *in, mu_tensor **out)
{
    const mu_value *answer =
        call_run(worker, graph, mu_list(number_and_cut(graph, number), sent_of(graph, in), MU_END));
    return mu__pending() ? mu_error_code() : take_outputs(worker->client, graph, answer, out);
}

mu_status mu__remote_function_run_on(const mu_remote_worker *worker, int64_t number, const mu_graph *graph,
                                     mu_tensor *const *in, const mu_input_positions *positions, mu_tensor **out,
                                     bool *fits)
{
    const int64_t n = (int64_t)positions->pairs.n;
    mu_value *pairs = mu_of(mu_tensor_new(MU_I64, 1, &n, positions->pairs.items));
    const mu_value *answer =
        call_run(worker, graph, mu_list(number_and_cut(graph, number), sent_of(graph, in), pairs, MU_END));
    if (mu__pending())
        return mu_error_code();
    *fits = answer == NULL || mu_value_count(answer) != 0;
    return *fits ? take_outputs(worker->client, graph, answer != NULL ? mu_value_at(answer, 0) : NULL, out) : MU_OK;
}

mu_status mu__remote_function_delete(mu_rpc_client *worker, int64_t number)
{
    mu_pool *pool = mu_pool_open();
    mu__remote_call(worker, "muster.function.delete", mu__remote_subject(NULL, "deleting a function", NULL),
                    mu_list(mu_tensor_new(MU_I64, 0, NULL, &number), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}
