// Variables on a server, as this process sees them: an op on one is sent to the server as a graph with that op alone.
#include "rpc/services/service.h"

#include "graph/graph.h"
#include "ops/state/accumulator.h"
#include "rpc/rpc.h"

enum { MOST_TEXT = 1 << 16 };
// How much longer than an op that waits the client waits for its answer.
#define GRACE_S 5.0

// ---- Texts --------------------------------------------------------------------------------------

mu_value *mu__text_value(const char *text)
{
    const int64_t bytes = (int64_t)strlen(text);
    return mu_of(mu_tensor_new(MU_U8, 1, &bytes, text));
}

mu_status mu__value_text(const mu_value *value, const char *what, char **out)
{
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    if (tensor == NULL || tensor->dtype != MU_U8 || tensor->shape.rank != 1 || tensor->shape.dims[0] > MOST_TEXT ||
        memchr(mu__host_read(tensor), '\0', (size_t)tensor->shape.dims[0]) != NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s is not a text: it must be a vector of uint8, without zeros", what);
    *out = mu__sprintf("%.*s", (int)tensor->shape.dims[0], (const char *)mu__host_read(tensor));
    return *out != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// ---- Making and deleting ------------------------------------------------------------------------

static mu_status call(mu_rpc_client *client, const char *method, mu_remote_subject subject, mu_value *arguments)
{
    mu_pool *pool = mu_pool_open();
    mu__remote_call(client, method, subject, arguments);
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_variable_create(mu_rpc_client *client, const char *name, mu_tensor *value)
{
    mu_pool *pool = mu_pool_open();
    mu__remote_delete_forgotten(client);
    call(client, "muster.variable.create", mu__remote_subject(NULL, "creating variable", name),
         mu_list(mu__text_value(name), value, MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_variable_delete(mu_rpc_client *client, const char *name)
{
    mu_pool *pool = mu_pool_open();
    call(client, "muster.variable.delete", mu__remote_subject(NULL, "deleting variable", name),
         mu_list(mu__text_value(name), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_variables_clear(mu_rpc_client *client)
{
    return call(client, "muster.variable.clear",
                mu__remote_subject(NULL, "freeing what an earlier coordinator has left", NULL), NULL);
}

// ---- Applying an op -----------------------------------------------------------------------------

// A graph whose inputs are the op's, and which has the op alone. Owned by the caller.
static mu_graph *graph_of(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                          mu_resource *const *resources)
{
    mu_graph *graph = mu__graph_new(op->name);
    mu_edge *edges = mu__calloc((size_t)n_in + 1, sizeof *edges);
    mu_status status = graph != NULL && edges != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_in && status == MU_OK; i++) {
        const mu_spec spec = mu__spec_of(in[i]);
        edges[i].node = mu__graph_input(graph, &spec, NULL);
        status = edges[i].node != NULL ? MU_OK : mu_error_code();
    }
    mu_node *node = status == MU_OK ? mu__graph_node(graph, op, attrs, n_in, edges, n_resources, resources) : NULL;
    for (int k = 0; node != NULL && status == MU_OK && k < node->n_out; k++)
        status = MU_PUSH(&graph->outputs, ((mu_edge){.node = node, .output = k}));
    mu__free(edges);
    if (node != NULL && status == MU_OK)
        return graph;
    mu_release(graph);
    return NULL;
}

static mu_value *bytes_of(const mu_graph *graph)
{
    void *bytes = NULL;
    size_t size = 0;
    if (mu__graph_write(graph, &bytes, &size) != MU_OK)
        return NULL;
    mu_value *value = mu_of(mu_tensor_new(MU_U8, 1, &(int64_t){(int64_t)size}, bytes));
    mu__free(bytes);
    return value;
}

// What a server answers is checked like all input.
static mu_status take_outputs(const mu_graph *graph, const mu_value *answer, mu_tensor **out)
{
    const int n = (int)graph->outputs.n;
    if ((answer != NULL ? mu_value_count(answer) : 0) != n)
        return mu__error(MU_DATA_LOSS, "the server of '%s' answers %s with %d tensors instead of %d",
                         graph->resources.items[0]->name, graph->name, answer != NULL ? mu_value_count(answer) : 0, n);
    for (int k = 0; k < n; k++) {
        const mu_spec *wanted = &graph->outputs.items[k].node->out[k];
        mu_tensor *tensor = mu_at(answer, k);
        if (tensor == NULL)
            return mu_error_code();
        if (tensor->dtype != wanted->dtype || !mu__shape_compatible(&tensor->shape, &wanted->shape))
            return mu__error(MU_DATA_LOSS, "the server of '%s' answers %s with a tensor of another type or shape",
                             graph->resources.items[0]->name, graph->name);
        out[k] = mu_retain(tensor);
    }
    return MU_OK;
}

static mu_remote_subject subject_of(const mu_op *op, const mu_resource *resource)
{
    return mu__remote_subject(op, resource->kind->opaque ? "accumulator" : "variable", resource->name);
}

// How long the server may take, in seconds; 0: the client's usual time.
static double patience_s(const mu_op *op, const void *attrs)
{
    const double seconds = mu__accumulator_seconds(op, attrs);
    const double limit = seconds > 0 ? seconds : mu__setting_real(MU_SETTING_TIMEOUT);
    return (op->flags & MU_OP_WAITS) != 0 ? limit + GRACE_S : 0;
}

static mu_value *arguments_of(const mu_graph *graph, int n_in, mu_tensor *const *in)
{
    mu_value **inputs = mu__calloc((size_t)n_in + 1, sizeof *inputs);
    if (inputs == NULL)
        return NULL;
    for (int i = 0; i < n_in; i++)
        inputs[i] = mu_of(in[i]);
    mu_value *arguments = mu_list(bytes_of(graph), mu_list_of(n_in, inputs), MU_END);
    mu__free(inputs);
    return arguments;
}

mu_value *mu__remote_apply_arguments(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                                     int n_resources, mu_resource *const *resources)
{
    mu_graph *graph = graph_of(op, attrs, n_in, in, n_resources, resources);
    mu_value *arguments = graph != NULL ? arguments_of(graph, n_in, in) : NULL;
    mu_release(graph);
    return arguments;
}

static mu_status send_op(mu_rpc_client *client, const mu_graph *graph, int n_in, mu_tensor *const *in, mu_tensor **out)
{
    const mu_node *node = graph->nodes.items[graph->nodes.n - 1];
    mu_remote_call request = {.client = client,
                              .arguments = arguments_of(graph, n_in, in),
                              .subject = subject_of(node->op, graph->resources.items[0]),
                              .seconds = patience_s(node->op, node->attrs),
                              .settles = true};
    mu__remote_tell_forgotten(client);
    MU_TRY(mu__remote_calls("muster.apply", 1, &request));
    return take_outputs(graph, request.value, out);
}

static mu_status check_home(const mu_op *op, int n, mu_resource *const *resources)
{
    for (int i = 1; i < n; i++)
        if (resources[i]->home != resources[0]->home)
            return mu__error(MU_FAILED_PRECONDITION,
                             "%s: '%s' and '%s' are kept by different processes; put the variables of one op (a "
                             "variable and its optimizer slots) on one server",
                             op->name, resources[0]->name, resources[i]->name);
    return MU_OK;
}

static mu_status apply(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                       mu_resource *const *resources, mu_tensor **out)
{
    if (op == &mu_op_gather_variable)
        return (out[0] = mu__remote_rows(n_resources, resources, in[0])) != NULL ? MU_OK : mu_error_code();
    if (op == &mu_op_scatter_variable && n_resources > 1)
        return mu__remote_scatter(n_resources, resources, attrs, in[0], in[1]);
    MU_TRY(check_home(op, n_resources, resources));
    mu_pool *pool = mu_pool_open();
    mu_graph *graph = graph_of(op, attrs, n_in, in, n_resources, resources);
    const int n_out = graph != NULL ? (int)graph->outputs.n : 0;
    const mu_status status =
        graph != NULL ? send_op((mu_rpc_client *)resources[0]->home, graph, n_in, in, out) : mu_error_code();
    mu_release(graph);
    mu_pool_close(pool);
    for (int k = 0; k < n_out; k++) {
        if (status != MU_OK)
            mu_release(out[k]);
        out[k] = status == MU_OK ? mu__give(out[k]) : NULL;
    }
    return status;
}

mu_status mu__remote_update_each(const mu_op *op, int n, mu_resource *const *variables, mu_tensor *const *values)
{
    mu_pool *pool = mu__pending() ? NULL : mu_pool_open();
    mu_remote_call *calls = pool != NULL ? mu__calloc((size_t)n + 1, sizeof *calls) : NULL;
    for (int i = 0; calls != NULL && i < n && !mu__pending(); i++) {
        calls[i].client = (mu_rpc_client *)variables[i]->home;
        calls[i].subject = subject_of(op, variables[i]);
        calls[i].settles = true;
        calls[i].arguments = mu__remote_apply_arguments(op, NULL, 1, &values[i], 1, &variables[i]);
        mu__remote_tell_forgotten(calls[i].client);
    }
    if (calls != NULL && !mu__pending())
        mu__remote_calls("muster.apply", n, calls);
    mu__free(calls);
    mu_pool_close(pool);
    return mu_error_code();
}

// ---- The resource -------------------------------------------------------------------------------

static mu_status acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                         mu_buffer **out)
{
    (void)replica, (void)space, (void)access, (void)out;
    return mu__error(
        MU_UNIMPLEMENTED,
        "'%s' is on a server: ops on it are sent there one by one, and it has no memory here; use it on a CPU device",
        resource->name);
}

static mu_status commit(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer)
{
    (void)resource, (void)replica, (void)access, (void)buffer;
    return MU_OK;
}

static void forget(mu_resource *resource) { mu__client_forget(resource->home, MU_RELEASED_VALUE, resource->name); }

const mu_resource_kind mu__remote_variable_kind = {
    .name = "variable", .acquire = acquire, .commit = commit, .apply = apply, .forget = forget};
static const mu_resource_kind dense_kind = {.name = "conditional_accumulator",
                                            .acquire = acquire,
                                            .commit = commit,
                                            .apply = apply,
                                            .forget = forget,
                                            .opaque = true};
static const mu_resource_kind sparse_kind = {.name = "sparse_conditional_accumulator",
                                             .acquire = acquire,
                                             .commit = commit,
                                             .apply = apply,
                                             .forget = forget,
                                             .opaque = true};

const mu_resource_kind *mu__remote_kind(const char *name)
{
    static const mu_resource_kind *const kinds[] = {&mu__remote_variable_kind, &dense_kind, &sparse_kind};
    for (size_t i = 0; i < MU_COUNT(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static void remote_destroy(void *object)
{
    mu_resource *resource = object;
    mu_release(resource->home);
    mu__free(resource->name);
}

static mu_type remote_type = {.name = "remote resource", .destroy = remote_destroy};

mu_resource *mu__remote_variable(mu_rpc_client *client, const char *name, const mu_spec *spec)
{
    return mu__remote_resource(client, &mu__remote_variable_kind, name, spec);
}

mu_resource *mu__remote_resource(mu_rpc_client *client, const mu_resource_kind *kind, const char *name,
                                 const mu_spec *spec)
{
    mu_resource *resource = mu__new(&remote_type, sizeof *resource);
    if (resource == NULL)
        return NULL;
    resource->kind = kind;
    resource->spec = *spec;
    resource->home = mu_retain(client);
    resource->name = mu__strdup(name);
    if (resource->name != NULL)
        return resource;
    mu_release(resource);
    return NULL;
}
