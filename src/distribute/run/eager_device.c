// Eager ops under one XLA device: each is compiled as a program of its own, once for its attributes and the types and
// shapes of its inputs, and its results stay on the device until they are read. The device is that of the scope, or of
// the replica or the copy of a variable that the thread works for.
//
// What a device program cannot do (collectives, shapes that depend on elements, effects other than on variables, ops
// without a lowering) is left to the host, as TensorFlow's soft placement does. Variables are acquired at the device;
// an effect on them is its pure form, whose result becomes the new value. The programs of a runtime are kept in one
// list of MUSTER_EAGER_PROGRAMS, from which the least recently used one goes.
#include "distribute/run/eager_device.h"

#include <pthread.h>

enum { MOST_VALUES = 32 }; // inputs and outputs of an op that runs here

// One op as a program; an object, because another thread may run it when it leaves the list.
typedef struct program {
    mu_object object;
    const void *client; // of the devices that it runs on
    const mu_engine *engine;
    const mu_op *op;
    void *attrs;
    int n_in;
    mu_spec in[MOST_VALUES];
    mu_plan *plan;       // NULL: the shape rule refuses the inputs
    atomic_bool refused; // the engine has no form of this op for these inputs
    int64_t last_use;    // under the list's lock
} program;

typedef struct program_list {
    pthread_mutex_t lock;
    struct {
        program **items;
        size_t n, capacity;
    } programs;
    int64_t clock;
} program_list;

// ---- The list -----------------------------------------------------------------------------------

static void program_destroy(void *object)
{
    program *p = object;
    if (p->plan)
        p->engine->free(p->plan);
    mu__free(p->attrs);
}

static mu_type program_type = {.name = "eager program", .destroy = program_destroy};

static void *list_create(mu_runtime *runtime)
{
    (void)runtime;
    program_list *list = mu__calloc(1, sizeof *list);
    if (list)
        pthread_mutex_init(&list->lock, NULL);
    return list;
}

static void list_destroy(void *slot)
{
    program_list *list = slot;
    for (size_t i = 0; i < list->programs.n; i++)
        mu_release(list->programs.items[i]);
    mu__free(list->programs.items);
    pthread_mutex_destroy(&list->lock);
    mu__free(list);
}

static bool is_for(const program *p, const mu_device *device, const mu_op *op, const void *attrs, int n_in,
                   const mu_spec *in)
{
    if (p->op != op || p->client != device->engine_client || p->n_in != n_in ||
        (op->attrs_bytes > 0 && memcmp(p->attrs, attrs, op->attrs_bytes) != 0))
        return false;
    for (int i = 0; i < n_in; i++)
        if (p->in[i].dtype != in[i].dtype || !mu__shape_equal(&p->in[i].shape, &in[i].shape))
            return false;
    return true;
}

// The caller releases the result; NULL: there is none.
static program *look_up(program_list *list, const mu_device *device, const mu_op *op, const void *attrs, int n_in,
                        const mu_spec *in)
{
    program *found = NULL;
    pthread_mutex_lock(&list->lock);
    for (size_t i = 0; !found && i < list->programs.n; i++)
        if (is_for(list->programs.items[i], device, op, attrs, n_in, in))
            found = mu_retain(list->programs.items[i]);
    if (found)
        found->last_use = ++list->clock;
    pthread_mutex_unlock(&list->lock);
    return found;
}

static mu_status keep(program_list *list, program *p)
{
    program *dropped = NULL;
    mu_status status = MU_OK;
    pthread_mutex_lock(&list->lock);
    p->last_use = ++list->clock;
    size_t oldest = 0;
    for (size_t i = 1; i < list->programs.n; i++)
        if (list->programs.items[i]->last_use < list->programs.items[oldest]->last_use)
            oldest = i;
    if (list->programs.n > 0 && (int64_t)list->programs.n >= mu__setting_int(MU_SETTING_EAGER_PROGRAMS)) {
        dropped = list->programs.items[oldest];
        list->programs.items[oldest] = mu_retain(p);
    } else if ((status = MU_PUSH(&list->programs, p)) == MU_OK) {
        mu_retain(p);
    }
    pthread_mutex_unlock(&list->lock);
    mu_release(dropped);
    return status;
}

// ---- Compiling one op ---------------------------------------------------------------------------

// A graph of the op alone; NULL with the shape rule's error, or that of the memory.
static mu_graph *graph_of(const mu_op *op, const void *attrs, int n_in, const mu_spec *in)
{
    mu_edge edges[MOST_VALUES];
    mu_graph *graph = mu__graph_new(op->name);
    mu_status status = graph ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n_in; i++) {
        edges[i] = (mu_edge){.node = mu__graph_input(graph, &in[i], NULL)};
        status = edges[i].node ? MU_OK : mu_error_code();
    }
    mu_node *node = status == MU_OK ? mu__graph_node(graph, op, attrs, n_in, edges, 0, NULL) : NULL;
    for (int i = 0; node && status == MU_OK && i < node->n_out; i++)
        status = MU_PUSH(&graph->outputs, ((mu_edge){.node = node, .output = i}));
    if (node && status == MU_OK)
        return graph;
    mu_release(graph);
    return NULL;
}

static program *program_new(const mu_device *device, const mu_op *op, const void *attrs, int n_in, const mu_spec *in)
{
    program *p = mu__new(&program_type, sizeof *p);
    if (!p)
        return NULL;
    p->client = device->engine_client;
    p->engine = device->engine;
    p->op = op;
    p->n_in = n_in;
    if (n_in > 0)
        memcpy(p->in, in, sizeof *in * (size_t)n_in);
    p->attrs = op->attrs_bytes > 0 ? mu__alloc(op->attrs_bytes) : NULL;
    if (op->attrs_bytes > 0 && !p->attrs) {
        mu_release(p);
        return NULL;
    }
    if (p->attrs)
        memcpy(p->attrs, attrs, op->attrs_bytes);
    return p;
}

// What the shape rule refuses is remembered without a plan: the host says why.
static program *make(program_list *list, mu_device *device, const mu_op *op, const void *attrs, int n_in,
                     const mu_spec *in)
{
    mu_context *context = mu__context();
    struct mu_scope *scope = context->scope;
    program *p = program_new(device, op, attrs, n_in, in);
    if (!p)
        return NULL;
    context->scope = NULL; // what the compiler computes is computed on the host
    mu_graph *graph = graph_of(op, attrs, n_in, in);
    p->plan = graph ? device->engine->compile(device, graph, in, n_in) : NULL;
    mu_release(graph);
    context->scope = scope;
    const mu_status status = p->plan ? MU_OK : mu_error_code();
    if (status != MU_RESOURCE_EXHAUSTED) {
        mu_error_value refusal;
        mu__error_move(&refusal);
        if (keep(list, p) == MU_OK)
            return p;
    }
    mu_release(p);
    return NULL;
}

// ---- Running one op -----------------------------------------------------------------------------

static mu_status run(program *p, mu_device *device, mu_tensor *const *in, mu_tensor **out)
{
    const mu_context *context = mu__context();
    const mu_run_args args = {.device = device, .replica = context->component, .in = in, .out = out};
    pthread_mutex_t *order = mu__device_order(mu__runtime());
    mu_launch *launch = NULL;
    pthread_mutex_lock(order);
    const mu_status status = p->engine->launch(p->plan, 1, 1, &device, &args, NULL, &launch);
    pthread_mutex_unlock(order);
    return status == MU_OK ? p->engine->finish(launch) : status;
}

// Runs the op on tensors; the caller owns the outputs. *done: false, the host must do it.
static mu_status run_on(mu_device *device, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                        mu_tensor **out, bool *done)
{
    program_list *list = mu__runtime_slot(mu__runtime(), MU_SLOT_EAGER, list_create, list_destroy);
    mu_spec specs[MOST_VALUES];
    if (!list)
        return mu_error_code();
    for (int i = 0; i < n_in; i++) {
        if (!in[i]->buffer)
            return MU_OK; // the host's path has the words for a symbolic value
        specs[i] = mu__spec_of(in[i]);
    }
    program *p = look_up(list, device, op, attrs, n_in, specs);
    if (!p && !(p = make(list, device, op, attrs, n_in, specs)))
        return mu_error_code();
    const bool here = p->plan && !p->refused;
    mu_status status = here ? run(p, device, in, out) : MU_OK;
    *done = here && status == MU_OK;
    if (status == MU_UNIMPLEMENTED) { // engines write and compile a program when it first runs
        mu_error_value refusal;
        mu__error_move(&refusal);
        p->refused = true;
        status = MU_OK;
    } else if (status != MU_OK) {
        mu__error_context("while running op %s on %s", op->name, device->name);
    }
    mu_release(p);
    return status;
}

// ---- Variables ----------------------------------------------------------------------------------

static mu_status value_of(mu_device *device, mu_resource *resource, mu_tensor **out)
{
    mu_buffer *buffer = NULL;
    MU_TRY(resource->kind->acquire(resource, mu__context()->component, device->memory_space, MU_ACCESS_READ, &buffer));
    *out = mu__tensor_view(buffer, 0, resource->spec.dtype, &resource->spec.shape);
    mu_release(buffer);
    return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A result that is not on the device, because it is an argument as it came, is copied there.
static mu_status become(mu_device *device, mu_resource *resource, const mu_tensor *value)
{
    const int component = mu__context()->component;
    mu_buffer *buffer = NULL;
    if (value->buffer->memory_space == device->memory_space && value->offset == 0) {
        buffer = mu_retain(value->buffer);
    } else {
        const mu_spec spec = mu__spec_of(value);
        const void *data = mu__host_read(value);
        buffer = data ? mu__buffer_at(device->memory_space, &spec) : NULL;
        if (!buffer || mu__buffer_from_host(buffer, data) != MU_OK) {
            mu_release(buffer);
            return mu_error_code();
        }
    }
    mu_buffer *before = NULL;
    mu_status status = resource->kind->acquire(resource, component, device->memory_space, MU_ACCESS_WRITE, &before);
    if (status == MU_OK)
        status = resource->kind->commit(resource, component, MU_ACCESS_WRITE, buffer);
    mu_release(before);
    mu_release(buffer);
    return status;
}

// The pure form of an effect takes the variables' values after the op's inputs, and returns their new values after its
// outputs.
static mu_status run_effect(mu_device *device, const mu_op *effect, const void *attrs, int n_in, mu_tensor *const *in,
                            int n_resources, mu_resource *const *resources, int n_out, mu_tensor **out, bool *done)
{
    const mu_op *pure = mu__pure_op(effect);
    mu_tensor *all[MOST_VALUES] = {NULL}, *results[MOST_VALUES] = {NULL};
    mu_status status = pure ? MU_OK : MU_UNIMPLEMENTED;
    if (!pure)
        return MU_OK;
    for (int i = 0; i < n_in; i++) // none where only variables count, and `in` may be NULL
        all[i] = in[i];
    for (int i = 0; status == MU_OK && i < n_resources; i++)
        status = value_of(device, resources[i], &all[n_in + i]);
    if (status == MU_OK)
        status = run_on(device, pure, attrs, n_in + n_resources, all, results, done);
    for (int i = 0; i < n_resources; i++)
        mu_release(all[n_in + i]); // before the new value: nothing else may hold the old one
    for (int i = 0; *done && status == MU_OK && i < n_resources; i++)
        status = become(device, resources[i], results[n_out + i]);
    for (int i = 0; i < n_out + n_resources; i++)
        if (i < n_out && status == MU_OK)
            out[i] = results[i];
        else
            mu_release(results[i]);
    *done = *done && status == MU_OK;
    return status;
}

// ---- Applying an op -----------------------------------------------------------------------------

// The programs are those of one replica, number 0, and what a generator gives depends on the number.
static bool has_form(const mu_op *op)
{
    const struct mu_replica *replica = mu__context()->replica;
    const unsigned never = MU_OP_COLLECTIVE | MU_OP_EFFECT | MU_OP_DATA_DEPENDENT | MU_OP_CONTROL | MU_OP_WAITS;
    if ((op->flags & never) || op->measure || op->no_lowering ||
        ((op->flags & MU_OP_DRAWS) && replica && replica->id > 0))
        return false;
    for (const mu_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        if (spec->kind == MU_ATTR_TENSOR || spec->kind == MU_ATTR_GRAPH)
            return false;
    return true;
}

static mu_device *device_here(const mu_strategy *strategy)
{
    const int component = mu__context()->component;
    return strategy->devices[component < strategy->n_local ? component : 0];
}

// A copy that a strategy keeps for a replica stays on the replica's device.
static bool is_elsewhere(const mu_variable *variable, const mu_device *device)
{
    return variable->owner && variable->n_components > 1 && device_here(variable->owner) != device;
}

static bool are_variables(const mu_device *device, int n, mu_resource *const *resources)
{
    for (int i = 0; i < n; i++)
        if (!resources[i]->kind->assign || resources[i]->shared || resources[i]->home ||
            resources[i]->spec.dtype == MU_STRING || !mu__shape_known(&resources[i]->spec.shape) ||
            is_elsewhere((const mu_variable *)resources[i], device))
            return false;
    return true;
}

static mu_status apply(struct mu_scope *scope, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                       int n_resources, mu_resource *const *resources, int n_out, mu_tensor **out, bool *done)
{
    mu_device *device = device_here(((const mu_strategy_scope *)scope)->strategy);
    *done = false;
    if (n_in + n_resources > MOST_VALUES || n_out + n_resources > MOST_VALUES || !has_form(op) ||
        !are_variables(device, n_resources, resources))
        return MU_OK;
    mu_status status;
    if (op == &mu_op_read_variable) {
        status = value_of(device, resources[0], out);
        *done = status == MU_OK;
    } else if (op == &mu_op_assign_variable) {
        status = mu__shape_equal(&in[0]->shape, &resources[0]->spec.shape) && in[0]->buffer &&
                         in[0]->dtype == resources[0]->spec.dtype
                     ? (*done = true, become(device, resources[0], in[0]))
                     : MU_OK;
    } else if (n_resources > 0) {
        status = run_effect(device, op, attrs, n_in, in, n_resources, resources, n_out, out, done);
    } else {
        status = run_on(device, op, attrs, n_in, in, out, done);
    }
    for (int i = 0; i < n_out; i++)
        out[i] = status == MU_OK && *done ? mu__give(out[i]) : NULL;
    return status;
}

mu_eager_apply *mu__eager_apply_of(const mu_strategy *strategy, bool at_one)
{
    const bool on_device = strategy->ops->eager_on_device || (at_one && !strategy->servers);
    return on_device && strategy->devices[0]->engine->launch ? apply : NULL;
}
