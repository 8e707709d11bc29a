// The service of a server: the variables that it keeps, and ops that others apply to them.
//
// An op comes as a graph in its serialised form, which is verified like any hostile input: it has the inputs, and one
// node, which works on variables of this server.
#include "rpc/services/service.h"

#include "graph/graph.h"
#include "ops/array/index.h"
#include "ops/state/accumulator.h"
#include "rpc/server/call_metrics.h"
#include "rpc/rpc.h"
#include "rpc/services/table_service.h"

#include <muster/ops.h>

enum { LOCKS = 64, MOST_NAME = 1000, LARGE = 1 << 15 };

typedef struct kept_variable {
    mu_variable *variable; // retained
    mu_holder *holder;     // of its bytes; the name follows it in memory
} kept_variable;

// The variables. An op holds the locks of its own variables only (mu_resource.lock).
typedef struct service {
    mu_object object;
    pthread_mutex_t lock; // of the list
    pthread_mutex_t locks[LOCKS];
    int made; // locks that exist
    struct {
        kept_variable *items;
        size_t n, capacity;
    } variables;
    size_t n_created, bytes;
    mu_table_service *tables;          // retained; NULL: of a store, where they are a part of their own
    mu_kept *kept;                     // retained
    mu_accumulator_list *accumulators; // owned
    mu_rpc_server *server;             // borrowed: it owns this; NULL: of a store
} service;

static size_t bytes_of(const mu_variable *variable) { return mu__spec_bytes(&variable->resource.spec); }

// The caller gets the list's reference.
static mu_variable *take_out(service *s, size_t i)
{
    const kept_variable gone = s->variables.items[i];
    s->variables.items[i] = s->variables.items[--s->variables.n];
    s->bytes -= bytes_of(gone.variable);
    mu__holder_end(gone.holder);
    mu__free(gone.holder);
    return gone.variable;
}

static void clear(service *s)
{
    while (s->variables.n > 0)
        mu_release(take_out(s, s->variables.n - 1));
}

static void service_destroy(void *object)
{
    service *s = object;
    clear(s);
    mu__free(s->variables.items);
    mu_release(s->tables);
    mu_release(s->accumulators);
    mu_release(s->kept);
    for (int i = 0; i < s->made; i++)
        pthread_mutex_destroy(i < LOCKS ? &s->locks[i] : &s->lock);
}

static mu_type service_type = {.name = "service", .destroy = service_destroy};

// With the lock held; the number of variables if there is none of this name.
static size_t find(const service *s, const char *name)
{
    size_t i = 0;
    while (i < s->variables.n && strcmp(s->variables.items[i].variable->resource.name, name) != 0)
        i++;
    return i;
}

// ---- Variables ----------------------------------------------------------------------------------

static mu_status no_room(const service *s, const char *name, size_t bytes)
{
    char kept[MU_HOLDERS_TEXT];
    return mu__error(MU_RESOURCE_EXHAUSTED,
                     "variable '%s' of %zu bytes does not fit: %s; add servers, or split the variable", name, bytes,
                     mu__holders_largest(&s->kept->budget, kept));
}

static mu_status add_variable(service *s, const char *name, mu_tensor *value)
{
    const mu_spec spec = mu__spec_of(value);
    const size_t bytes = mu__spec_bytes(&spec);
    if (find(s, name) < s->variables.n)
        return mu__error(MU_ALREADY_EXISTS, "this server has a variable '%s'; delete it first, or choose another name",
                         name);
    kept_variable made = {.holder = mu__calloc(1, sizeof *made.holder + strlen(name) + 1)};
    if (made.holder == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__holder_begin(made.holder, &s->kept->budget, "variable", strcpy((char *)(made.holder + 1), name));
    mu_status status = mu__holder_take(made.holder, bytes) ? MU_OK : no_room(s, name, bytes);
    if (status == MU_OK) {
        made.variable = mu__variable_make(&(mu_variable_args){.name = name}, value, 1);
        status = made.variable != NULL ? MU_PUSH(&s->variables, made) : mu_error_code();
    }
    if (status != MU_OK) {
        mu__holder_end(made.holder);
        mu__free(made.holder);
        mu_release(made.variable);
        return status;
    }
    made.variable->resource.lock = &s->locks[s->n_created++ % LOCKS];
    s->bytes += bytes;
    return MU_OK;
}

mu_status mu__argument_name(const mu_value *arguments, const char *what, char **name)
{
    char text[64];
    snprintf(text, sizeof text, "the name of %s", what);
    MU_TRY(mu__value_text(mu_value_at(arguments, 0), text, name));
    if (**name != '\0' && strlen(*name) <= MOST_NAME)
        return MU_OK;
    mu__free(*name);
    *name = NULL;
    return mu__error(MU_INVALID_ARGUMENT, "%s needs 1 to %d bytes", text, MOST_NAME);
}

static mu_value *create(mu_value *arguments, void *arg)
{
    service *s = arg;
    char *name = NULL;
    if (mu__argument_name(arguments, "a variable", &name) == MU_OK) {
        mu_tensor *value = mu_at(arguments, 1);
        if (value != NULL && mu__change_begin() == MU_OK) {
            pthread_mutex_lock(&s->lock);
            add_variable(s, name, value);
            pthread_mutex_unlock(&s->lock);
        }
    }
    mu__free(name);
    return NULL;
}

// The caller gets the list's reference; NULL: there is none of this name.
static mu_variable *remove_variable(service *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    const size_t i = find(s, name);
    mu_variable *gone = i < s->variables.n ? take_out(s, i) : NULL;
    pthread_mutex_unlock(&s->lock);
    return gone;
}

static mu_value *delete_one(mu_value *arguments, void *arg)
{
    char *name = NULL;
    if (mu__argument_name(arguments, "a variable", &name) != MU_OK || mu__change_begin() != MU_OK) {
        mu__free(name);
        return NULL;
    }
    mu_variable *gone = remove_variable(arg, name);
    if (gone == NULL)
        mu__error(MU_NOT_FOUND, "this server has no variable '%s'", name);
    mu_release(gone);
    mu__free(name);
    return NULL;
}

static void forget_one(service *s, const char *name)
{
    mu_variable *gone = remove_variable(s, name);
    if (gone == NULL)
        mu__accumulators_forget(s->accumulators, name);
    mu_release(gone);
}

// Deletes what its owner has released, as far as it is there. All names are read before anything is deleted, so that a
// request that fails has changed nothing, as its copy takes it.
static mu_value *forget(mu_value *arguments, void *arg)
{
    const int n = arguments != NULL ? mu_value_count(arguments) : 0;
    char **names = mu__pending() ? NULL : mu__calloc((size_t)n + 1, sizeof *names);
    for (int i = 0; names != NULL && i < n && !mu__pending(); i++)
        mu__value_text(mu_value_at(arguments, i), "a released name", &names[i]);
    const bool begun = names != NULL && !mu__pending() && mu__change_begin() == MU_OK;
    for (int i = 0; names != NULL && i < n; i++) {
        if (begun)
            forget_one(arg, names[i]);
        mu__free(names[i]);
    }
    mu__free(names);
    return NULL;
}

static void free_all(void *arg)
{
    service *s = arg;
    pthread_mutex_lock(&s->lock);
    clear(s);
    pthread_mutex_unlock(&s->lock);
    mu__accumulators_clear(s->accumulators);
    if (s->tables != NULL)
        mu__table_service_clear(s->tables);
}

// A coordinator begins with this: of those before it nothing is left on the server, whatever their options were.
static mu_value *clear_all(mu_value *arguments, void *arg)
{
    service *s = arg;
    (void)arguments;
    if (s->server != NULL)
        mu__server_free_owned(s->server);
    else if (mu__change_begin() == MU_OK)
        free_all(s);
    return NULL;
}

// ---- Ops ----------------------------------------------------------------------------------------

// The graph retains what is found before the lock is given back, in read_graph.
static mu_resource *resolve(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    service *s = arg;
    (void)spec;
    const size_t i = find(s, name);
    if (strcmp(kind, "variable") == 0 && i < s->variables.n)
        return &s->variables.items[i].variable->resource;
    mu_resource *accumulator = mu__accumulators_find(s->accumulators, kind, name);
    if (accumulator != NULL)
        return accumulator;
    mu__error(MU_NOT_FOUND, "this server has no %.60s '%.200s'", kind, name);
    return NULL;
}

static mu_graph *read_graph(service *s, const mu_tensor *bytes)
{
    if (bytes == NULL)
        return NULL;
    if (bytes->dtype != MU_U8 || bytes->shape.rank != 1) {
        mu__error(MU_INVALID_ARGUMENT, "the graph of an op must be a vector of uint8");
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    mu_graph *graph = mu__graph_read(mu__host_read(bytes), (size_t)bytes->shape.dims[0], resolve, s);
    pthread_mutex_unlock(&s->lock);
    return graph;
}

// The inputs first, then the one op. One that could combine slices of replicas has none to combine with here.
static const mu_node *only_op(const mu_graph *graph)
{
    const mu_node *node = graph->nodes.n > 0 ? graph->nodes.items[graph->nodes.n - 1] : NULL;
    if (node != NULL && graph->nodes.n == graph->inputs.n + 1 && node->op != &mu_op_input && node->n_resources > 0 &&
        node->n_in == (int)graph->inputs.n && (node->flags & MU_OP_CONTROL) == 0)
        return node;
    mu__error(MU_INVALID_ARGUMENT, "a server applies one op to its variables at one time; '%s' has %zu nodes",
              graph->name, graph->nodes.n);
    return NULL;
}

// A take in a store, whose gradients are there (begin_change): one that fails after it has moved their sum has changed
// the accumulator.
static mu_status apply_take(const mu_node *node, mu_tensor *const *in, mu_resource *const *resources, mu_tensor **out)
{
    const mu_accumulator *accumulator = (const mu_accumulator *)resources[0];
    const int64_t had = accumulator->sum.n;
    const mu_status status = mu__apply(node->op, node->attrs, node->n_in, in, node->n_resources, resources, out);
    if (status != MU_OK && accumulator->sum.n != had)
        mu__change_torn();
    return status;
}

// A large value is read by lending the variable's memory to the answer, and assigned by keeping the memory in which it
// arrived. False: the op has to be applied.
static bool without_copying(const mu_node *node, mu_tensor *const *in, mu_resource *resource, mu_tensor **out)
{
    mu_variable *variable = (mu_variable *)resource;
    bool done = false;
    if (mu__pending() || mu__spec_bytes(&resource->spec) < LARGE || node->n_resources != 1 ||
        resource->kind != &mu__variable_kind)
        return false;
    mu__resources_lock(1, &resource);
    if (node->op == &mu_op_read_variable)
        done = (out[0] = mu__variable_lend(variable)) != NULL;
    else if (node->op == &mu_op_assign_variable)
        done = in[0] != NULL && mu__variable_take(variable, in[0]);
    mu__resources_unlock(1, &resource);
    return done || mu__pending();
}

// A kernel checks what it was given before it writes. What fails for another reason may have written, and the copy must
// not take it for a request that changed nothing.
static void note_torn(const mu_node *node, mu_resource *const *resources, mu_status status)
{
    const bool checked = status != MU_RESOURCE_EXHAUSTED && status != MU_INTERNAL;
    if (status != MU_OK && !checked && (node->flags & MU_OP_WRITES) != 0 && resources[0]->kind == &mu__variable_kind)
        mu__change_torn();
}

// An op that waits gives its place to another call.
static mu_status apply_node(const mu_node *node, mu_tensor *const *in, mu_resource *const *resources, mu_tensor **out)
{
    if (without_copying(node, in, resources[0], out))
        return mu_error_code();
    const bool waits = (node->op->flags & MU_OP_WAITS) != 0;
    if (waits && mu__change_in_store())
        return apply_take(node, in, resources, out);
    if (waits)
        MU_TRY(mu__call_wait_begin());
    const mu_status status = mu__apply(node->op, node->attrs, node->n_in, in, node->n_resources, resources, out);
    if (waits)
        mu__call_wait_end();
    note_torn(node, resources, status);
    return status;
}

// Ops that wait are takes.
static mu_status begin_change(const mu_node *node, mu_tensor *const *in, mu_resource *const *resources)
{
    if ((node->flags & MU_OP_WRITES) == 0)
        return MU_OK;
    if ((node->op->flags & MU_OP_WAITS) == 0 || !mu__change_in_store())
        return mu__change_begin();
    return mu__accumulator_begin((mu_accumulator *)resources[0], mu_tensor_item_int(in[0], 0),
                                 mu__accumulator_seconds(node->op, node->attrs));
}

static mu_value *apply_op(const mu_graph *graph, const mu_node *node, const mu_value *inputs, mu_tensor **in,
                          mu_tensor **out)
{
    mu_resource *resources[MU_MAX_INTS];
    if (mu_value_count(inputs) != node->n_in)
        mu__error(MU_INVALID_ARGUMENT, "%s takes %d tensors; %d were sent", node->op->name, node->n_in,
                  mu_value_count(inputs));
    else if (node->n_resources > (int)MU_COUNT(resources))
        mu__error(MU_INVALID_ARGUMENT,
                  "%s was sent for %d variables; a server applies an op to at most %d: divide the variables among "
                  "several ops",
                  node->op->name, node->n_resources, (int)MU_COUNT(resources));
    if (mu__pending())
        return NULL;
    for (int i = 0; i < node->n_in; i++)
        in[i] = mu_at(inputs, node->in[i].node->id);
    for (int i = 0; i < node->n_resources; i++)
        resources[i] = graph->resources.items[node->resources[i]];
    if (mu__pending() || begin_change(node, in, resources) != MU_OK)
        return NULL;
    if (resources[0]->kind->opaque) // takes wait for what others do to accumulators
        mu__change_concerns(resources[0]->name);
    if (apply_node(node, in, resources, out) != MU_OK)
        return NULL;
    mu_value **values = mu__calloc((size_t)node->n_out + 1, sizeof *values);
    for (int i = 0; i < node->n_out && values != NULL; i++)
        values[i] = mu_of(out[i]);
    mu_value *list = values != NULL ? mu_list_of(node->n_out, values) : NULL;
    mu__free(values);
    if (list == NULL)
        mu__change_torn();
    return list;
}

static mu_value *apply(mu_value *arguments, void *arg)
{
    mu_graph *graph = read_graph(arg, mu_at(arguments, 0));
    const mu_node *node = graph != NULL ? only_op(graph) : NULL;
    mu_tensor **in = node != NULL ? mu__calloc((size_t)node->n_in + 1, sizeof *in) : NULL;
    mu_tensor **out = node != NULL ? mu__calloc((size_t)node->n_out + 1, sizeof *out) : NULL;
    const mu_value *inputs = node != NULL ? mu_value_at(arguments, 1) : NULL;
    mu_value *result = in != NULL && out != NULL && inputs != NULL ? apply_op(graph, node, inputs, in, out) : NULL;
    mu__free(in);
    mu__free(out);
    mu_release(graph);
    return result;
}

// ---- Rows ---------------------------------------------------------------------------------------

static mu_variable *find_retained(service *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    const size_t i = find(s, name);
    mu_variable *variable = i < s->variables.n ? mu_retain(s->variables.items[i].variable) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (variable == NULL)
        mu__error(MU_NOT_FOUND, "this server has no variable '%s'", name);
    return variable;
}

// A gather from a variable, whose lock is held.
typedef struct gathering {
    const mu_resource *table;
    mu_view ids;
    const void *from;
    size_t row_bytes;
} gathering;

static mu_status gather_into(void *elements, void *arg)
{
    const gathering *g = arg;
    if (g->row_bytes > 0)
        mu__gather_rows(&g->ids, 0, g->from, g->table->spec.shape.dims[0], g->row_bytes, elements, g->ids.shape.dims[0],
                        1);
    return MU_OK;
}

// The rows as the bytes of the answer: gathered where they are sent from. With the variable's lock.
static mu_message *gather(mu_resource *table, const mu_tensor *ids)
{
    const mu_shape *shape = &table->spec.shape;
    gathering g = {.table = table,
                   .ids = {.dtype = ids->dtype, .shape = ids->shape, .data = (void *)mu__host_read(ids)},
                   .row_bytes = mu_dtype_bytes(table->spec.dtype)};
    mu_spec spec = table->spec;
    g.row_bytes *= (size_t)mu__elements_between(shape, 1, shape->rank);
    spec.shape.dims[0] = ids->shape.dims[0];
    if (mu__shape_check(&spec.shape, table->name) != MU_OK)
        return NULL;
    if (!mu__indices_inside(&g.ids, 0, ids->shape.dims[0], shape->dims[0])) {
        mu__error(MU_INVALID_ARGUMENT, "an index is outside the %lld rows of '%s'", (long long)shape->dims[0],
                  table->name);
        return NULL;
    }
    mu_buffer *buffer = NULL;
    if (table->kind->acquire(table, 0, &mu__host_memory, MU_ACCESS_READ, &buffer) != MU_OK)
        return NULL;
    g.from = buffer->data;
    mu_message *message = mu__message_filled(&spec, gather_into, &g);
    mu_release(buffer);
    return message;
}

static mu_status check_ids(const mu_tensor *ids, const mu_resource *table)
{
    if (ids == NULL)
        return mu_error_code();
    if ((ids->dtype == MU_I32 || ids->dtype == MU_I64) && ids->shape.rank == 1 && table->spec.shape.rank >= 1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "rows of '%s' of rank %d are requested by a tensor of %s of rank %d; the indices must be a vector "
                     "of int32 or int64, and the variable needs rows",
                     table->name, table->spec.shape.rank, mu_dtype_name(ids->dtype), ids->shape.rank);
}

// Sends the requested rows and never the table.
static mu_message *rows(const mu_value *arguments, void *arg)
{
    char *name = NULL;
    mu_variable *table = mu__argument_name(arguments, "a variable", &name) == MU_OK ? find_retained(arg, name) : NULL;
    const mu_tensor *ids = table != NULL ? mu_at(arguments, 1) : NULL;
    mu_message *message = NULL;
    if (table != NULL && check_ids(ids, &table->resource) == MU_OK) {
        mu_resource *resource = &table->resource;
        mu__resources_lock(1, &resource);
        message = gather(resource, ids);
        mu__resources_unlock(1, &resource);
    }
    mu_release(table);
    mu__free(name);
    return message;
}

// ---- As a part of a store -----------------------------------------------------------------------

static mu_variable *variable_at(service *s, size_t i)
{
    pthread_mutex_lock(&s->lock);
    mu_variable *variable = i < s->variables.n ? mu_retain(s->variables.items[i].variable) : NULL;
    pthread_mutex_unlock(&s->lock);
    return variable;
}

static mu_value *saved(mu_variable *variable)
{
    mu_resource *resource = &variable->resource;
    mu_tensor *value = NULL;
    if (mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &resource, &value) != MU_OK)
        return NULL;
    return mu_list(mu__text_value(resource->name), mu_of(value), MU_END);
}

static mu_value *save(void *part)
{
    service *s = part;
    mu_value *sums = mu__accumulators_save(s->accumulators);
    const int n_sums = sums != NULL ? mu_value_count(sums) : 0;
    mu_value **rows = mu__calloc(s->variables.n + (size_t)n_sums + 1, sizeof *rows);
    const size_t n = rows != NULL ? s->variables.n : 0;
    for (size_t i = 0; i < n; i++) {
        mu_variable *variable = variable_at(s, i);
        rows[i] = variable != NULL ? saved(variable) : NULL;
        mu_release(variable);
    }
    for (int i = 0; rows != NULL && i < n_sums; i++)
        rows[n + (size_t)i] = mu_value_at(sums, i);
    mu_value *list = rows != NULL ? mu_list_of((int)n + n_sums, rows) : NULL;
    mu__free(rows);
    return list;
}

// A variable is a tensor, an accumulator a list.
static mu_status load(void *part, const char *name, mu_value *value)
{
    service *s = part;
    if (value != NULL && value->kind != MU_VALUE_TENSOR)
        return mu__accumulators_load(s->accumulators, name, value);
    mu_tensor *tensor = mu_value_tensor(value);
    pthread_mutex_lock(&s->lock);
    const mu_status status = tensor != NULL ? add_variable(s, name, tensor) : mu_error_code();
    pthread_mutex_unlock(&s->lock);
    return status;
}

// ---- The service --------------------------------------------------------------------------------

static bool make_locks(service *s)
{
    while (s->made < LOCKS + 1 && pthread_mutex_init(s->made < LOCKS ? &s->locks[s->made] : &s->lock, NULL) == 0)
        s->made++;
    return s->made == LOCKS + 1;
}

static mu_status write_metrics(void *arg, mu_text *out)
{
    service *s = arg;
    pthread_mutex_lock(&s->lock);
    const size_t n = s->variables.n, bytes = s->bytes, most = s->kept->budget.limit, kept = s->kept->budget.used;
    pthread_mutex_unlock(&s->lock);
    MU_TRY(mu__metrics_gauge(out, "variables", (double)n));
    MU_TRY(mu__metrics_gauge(out, "variable_bytes", (double)bytes));
    MU_TRY(mu__metrics_gauge(out, "kept_bytes", (double)kept));
    return most == SIZE_MAX ? MU_OK : mu__metrics_gauge(out, "variable_bytes_limit", (double)most);
}

static void *make(mu_kept *kept)
{
    service *s = mu__new(&service_type, sizeof *s);
    if (s == NULL)
        return NULL;
    s->kept = mu_retain(kept);
    s->accumulators = mu__accumulators_new(&s->kept->budget);
    if (s->accumulators != NULL && make_locks(s))
        return s;
    if (!mu__pending())
        mu__error(MU_RESOURCE_EXHAUSTED, "the system cannot make locks; free memory");
    mu_release(s);
    return NULL;
}

static const mu_store_method methods[] = {{.name = "muster.variable.create", .fn = create},
                                          {.name = "muster.variable.delete", .input = "(uint8[?])", .fn = delete_one},
                                          {.name = "muster.variable.forget", .fn = forget},
                                          {.name = "muster.variable.clear", .fn = clear_all},
                                          {.name = "muster.variable.rows", .writer = rows},
                                          {.name = "muster.apply", .fn = apply},
                                          {.name = "muster.accumulator.create", .fn = mu__accumulator_create},
                                          {.name = "muster.accumulator.close", .fn = mu__accumulator_close},
                                          {.name = "muster.accumulator.take", .fn = mu__accumulator_take_method}};

mu_accumulator_list *mu__service_accumulators(void *s) { return ((service *)s)->accumulators; }

const mu_store_part mu__variables_part = {
    .name = "variables", .make = make, .n_methods = MU_COUNT(methods), .methods = methods, .save = save, .load = load};

mu_status mu__service_add(mu_rpc_server *server, mu_kept *kept)
{
    service *s = make(kept);
    mu_status status = s != NULL ? mu__server_keep(server, s) : mu_error_code();
    if (status == MU_OK)
        status = mu__server_owned(server, free_all, s);
    if (status == MU_OK) {
        s->server = server;
        s->tables = mu__table_service_add(server, kept);
        status = s->tables != NULL ? mu__server_add_metrics(server, write_metrics, s) : mu_error_code();
    }
    mu_release(s);
    return status == MU_OK ? mu__part_register(server, &mu__variables_part, s) : status;
}
