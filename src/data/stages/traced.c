// Maps by traced functions: traced once per signature of an element, compiled, and run on the calling thread.
//
// Each caller takes a worker, which is a device with its own memory and plans, so that parallel calls share only the
// graphs. The function must not write variables, because its calls have no order.
#include "data/describe.h"
#include "engine/engine.h"

#include <pthread.h>

enum { KEPT_PLANS = 4 };

// A graph for elements of one signature.
typedef struct signature {
    mu_concrete *concrete; // retained
    mu_graph *graph;       // prepared for the engine; retained
} signature;

typedef struct worker_plan {
    const mu_graph *graph;
    mu_spec *specs;
    mu_plan *plan;
} worker_plan;

typedef struct worker {
    struct worker *next; // list of idle workers
    mu_device device;
    int oldest;
    worker_plan plans[KEPT_PLANS];
} worker;

struct mu_traced_map {
    mu_object object;
    mu_function *function; // retained; NULL: sent from another process, with its only signature
    pthread_mutex_t lock;  // guards the function and the fields below
    struct {
        signature *items;
        size_t n, capacity;
    } signatures;
    worker *idle;
};

static void drop_plan(worker *w, worker_plan *p)
{
    if (p->plan)
        w->device.engine->free(p->plan);
    mu__free(p->specs);
    *p = (worker_plan){0};
}

static void traced_destroy(void *object)
{
    mu_traced_map *map = object;
    for (worker *w = map->idle, *next; w; w = next) {
        next = w->next;
        for (int i = 0; i < KEPT_PLANS; i++)
            drop_plan(w, &w->plans[i]);
        w->device.engine->close_device(&w->device);
        mu__free(w);
    }
    for (size_t i = 0; i < map->signatures.n; i++) {
        mu_release(map->signatures.items[i].graph);
        mu_release(map->signatures.items[i].concrete);
    }
    mu__free(map->signatures.items);
    mu_release(map->function);
    pthread_mutex_destroy(&map->lock);
}

static mu_type traced_type = {.name = "traced map", .destroy = traced_destroy};

mu_traced_map *mu__traced_map_new(mu_function *function)
{
    mu_traced_map *map = mu__new(&traced_type, sizeof *map);
    if (!map)
        return NULL;
    pthread_mutex_init(&map->lock, NULL);
    map->function = mu_retain(function);
    return map;
}

// ---- Signatures ---------------------------------------------------------------------------------

static bool fits(const mu_concrete *concrete, const mu_value *element, const mu_leaves *leaves)
{
    if (!mu__value_same_structure(concrete->inputs, element) || concrete->graph->inputs.n != (size_t)leaves->n)
        return false;
    for (int i = 0; i < leaves->n; i++) {
        const mu_spec *wanted = &concrete->graph->inputs.items[i]->out[0];
        if (wanted->dtype != mu__leaf(leaves, i)->dtype ||
            !mu__shape_compatible(&wanted->shape, &mu__leaf(leaves, i)->shape))
            return false;
    }
    return true;
}

static mu_status check_effects(const mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.items[i]->flags & (MU_OP_WRITES | MU_OP_COLLECTIVE))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "the function of a map uses op %s; its calls have no order and no replicas, so it must only compute",
                graph->nodes.items[i]->op->name);
    return MU_OK;
}

// Adds the signature of a graph; retains it.
static const signature *add_signature(mu_traced_map *map, mu_concrete *concrete)
{
    const mu_engine *engine = &mu__engine_cpu;
    if (!concrete || check_effects(concrete->graph) != MU_OK)
        return NULL;
    const signature made = {.concrete = mu_retain(concrete),
                            .graph = engine->lower ? engine->lower(concrete->graph) : mu_retain(concrete->graph)};
    if (made.graph && MU_PUSH(&map->signatures, made) == MU_OK)
        return &map->signatures.items[map->signatures.n - 1];
    mu_release(made.graph);
    mu_release(made.concrete);
    return NULL;
}

static const signature *trace(mu_traced_map *map, const mu_value *element)
{
    if (map->function)
        return add_signature(map, mu__function_concrete(map->function, element, MU_BATCH_NONE, NULL));
    mu__error(MU_INVALID_ARGUMENT,
              "an element has another structure, type or shape than the function that came with the dataset takes");
    return NULL;
}

// Call with the lock held. The signature's objects live as long as the map.
static bool find_signature(mu_traced_map *map, const mu_value *element, const mu_leaves *leaves, signature *out)
{
    const signature *found = NULL;
    for (size_t i = 0; i < map->signatures.n && !found; i++)
        if (fits(map->signatures.items[i].concrete, element, leaves))
            found = &map->signatures.items[i];
    if (!found && !(found = trace(map, element)))
        return false;
    *out = *found;
    return true;
}

mu_value *mu__traced_map_spec(mu_traced_map *map, mu_value *element)
{
    mu_leaves leaves = {0};
    signature s;
    mu_value *spec = NULL;
    if (mu__leaves_of(element, &leaves) == MU_OK) {
        pthread_mutex_lock(&map->lock);
        if (find_signature(map, element, &leaves, &s) && s.concrete->outputs)
            spec = mu__map_spec(mu_retain(s.concrete->outputs), mu__spec_as_it_is, 0);
        pthread_mutex_unlock(&map->lock);
    }
    mu__leaves_free(&leaves);
    return spec;
}

// ---- Calling ------------------------------------------------------------------------------------

static worker *take_worker(mu_traced_map *map)
{
    worker *w = map->idle;
    if (w) {
        map->idle = w->next;
        return w;
    }
    if ((w = mu__calloc(1, sizeof *w)))
        w->device = (mu_device){.engine = &mu__engine_cpu, .name = "map", .team = {.n_threads = 1}};
    return w;
}

static mu_plan *plan_for(worker *w, mu_graph *graph, const mu_leaves *leaves)
{
    for (int i = 0; i < KEPT_PLANS; i++) {
        bool same = w->plans[i].graph == graph;
        for (int k = 0; same && k < leaves->n; k++)
            same = mu__shape_equal(&w->plans[i].specs[k].shape, &mu__leaf(leaves, k)->shape);
        if (same)
            return w->plans[i].plan;
    }
    worker_plan *oldest = &w->plans[w->oldest];
    w->oldest = (w->oldest + 1) % KEPT_PLANS;
    drop_plan(w, oldest);
    if (!(oldest->specs = mu__calloc((size_t)leaves->n + 1, sizeof *oldest->specs)))
        return NULL;
    for (int k = 0; k < leaves->n; k++)
        oldest->specs[k] = mu__spec_of(mu__leaf(leaves, k));
    oldest->plan = w->device.engine->compile(&w->device, graph, oldest->specs, leaves->n);
    oldest->graph = oldest->plan ? graph : NULL;
    return oldest->plan;
}

static mu_value *run(worker *w, const signature *s, const mu_leaves *leaves)
{
    const size_t n = s->graph->outputs.n;
    mu_tensor **out = mu__calloc(n + 1, sizeof *out);
    mu_plan *plan = out ? plan_for(w, s->graph, leaves) : NULL;
    mu_value *result = NULL;
    const mu_run_args args = {.in = (mu_tensor *const *)leaves->items, .out = out};
    if (plan && w->device.engine->run(plan, &args) == MU_OK)
        result = mu__concrete_result(s->concrete, out, out);
    for (size_t i = 0; out && i < n; i++)
        mu_release(out[i]);
    mu__free(out);
    return result;
}

mu_value *mu__traced_map_call(mu_traced_map *map, mu_value *element)
{
    mu_leaves leaves = {0};
    signature s = {0};
    worker *w = NULL;
    mu_value *result = NULL;
    if (mu__leaves_of(element, &leaves) == MU_OK) {
        pthread_mutex_lock(&map->lock);
        if (find_signature(map, element, &leaves, &s))
            w = take_worker(map);
        pthread_mutex_unlock(&map->lock);
    }
    if (w) {
        result = run(w, &s, &leaves);
        pthread_mutex_lock(&map->lock);
        w->next = map->idle;
        map->idle = w;
        pthread_mutex_unlock(&map->lock);
    }
    mu__leaves_free(&leaves);
    return result;
}

// ---- In descriptions ----------------------------------------------------------------------------

// [graph, spec of an element, spec of the result].
static mu_value *write_signature(const signature *s)
{
    void *bytes = NULL;
    size_t size = 0;
    if (s->concrete->graph->resources.n > 0) {
        mu__error(MU_UNIMPLEMENTED,
                  "the function '%s' of a map uses variable '%s', which another process does not have",
                  s->concrete->graph->name, s->concrete->graph->resources.items[0]->name);
        return NULL;
    }
    mu_value *in = mu__give(mu__spec_describe(s->concrete->inputs)), *list = NULL;
    mu_value *out = in && s->concrete->outputs ? mu__give(mu__spec_describe(s->concrete->outputs)) : NULL;
    if (out && mu__graph_write(s->concrete->graph, &bytes, &size) == MU_OK)
        list = mu_list(mu_tensor_new(MU_U8, 1, &(int64_t){(int64_t)size}, bytes), in, out, MU_END);
    mu__free(bytes);
    return list;
}

static mu_value *write_map(const void *object, const mu_dataset *dataset)
{
    mu_traced_map *map = (mu_traced_map *)(uintptr_t)object;
    mu_value *element = mu__dataset_spec(dataset->inputs[0]), *written = NULL;
    mu_leaves leaves = {0};
    signature s = {0};
    if (element && mu__leaves_of(element, &leaves) == MU_OK) {
        pthread_mutex_lock(&map->lock);
        if (find_signature(map, element, &leaves, &s))
            written = write_signature(&s);
        pthread_mutex_unlock(&map->lock);
    }
    mu__leaves_free(&leaves);
    mu_release(element);
    if (!written && !mu__pending())
        mu__error(MU_UNIMPLEMENTED, "the function of a map has no known %s, so it is traced where its elements are",
                  element ? "result" : "argument");
    return written;
}

static mu_resource *no_resource(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg, (void)kind, (void)name, (void)spec;
    return NULL;
}

// Whether a structure of specs is what a graph takes, or gives.
static mu_status check_structure(const mu_value *structure, const mu_graph *graph, bool inputs)
{
    const size_t n = inputs ? graph->inputs.n : graph->outputs.n;
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(structure, &leaves));
    bool same = (size_t)leaves.n == n;
    for (size_t i = 0; same && i < n; i++) {
        const mu_edge *edge = &graph->outputs.items[inputs ? 0 : i];
        const mu_spec *wanted = inputs ? &graph->inputs.items[i]->out[0] : &edge->node->out[edge->output];
        const mu_tensor *leaf = mu__leaf(&leaves, (int)i);
        same = leaf->dtype == wanted->dtype && mu__shape_equal(&leaf->shape, &wanted->shape);
    }
    mu__leaves_free(&leaves);
    return same ? MU_OK
                : mu__error(MU_INVALID_ARGUMENT, "the %s of the function '%s' differ from its graph's %zu",
                            inputs ? "arguments" : "results", graph->name, n);
}

// Adds the graph that was read; the map takes only what fits it.
static mu_status read_signature(mu_traced_map *map, mu_graph *graph, mu_value *in, mu_value *out)
{
    if (!graph || !in || !out)
        return mu_error_code();
    MU_TRY(check_structure(in, graph, true));
    MU_TRY(check_structure(out, graph, false));
    mu_concrete *concrete = mu__concrete_of(graph, in, out);
    const bool added = add_signature(map, concrete) != NULL;
    mu_release(concrete);
    return added ? MU_OK : mu_error_code();
}

static void *read_map(const mu_value *value)
{
    const bool three = value->kind == MU_VALUE_LIST && value->n == 3 && value->items[0]->kind == MU_VALUE_TENSOR;
    const mu_tensor *bytes = three ? (const mu_tensor *)value->items[0]->leaf : NULL;
    if (!bytes || bytes->dtype != MU_U8 || bytes->shape.rank != 1)
        return NULL;
    mu_traced_map *map = mu__traced_map_new(NULL);
    const size_t size = (size_t)bytes->shape.dims[0];
    mu_graph *graph = map ? mu__graph_read(mu__host_read(bytes), size, no_resource, NULL) : NULL;
    mu_value *in = graph ? mu__spec_described(value->items[1]) : NULL;
    mu_value *out = in ? mu__spec_described(value->items[2]) : NULL;
    if (map && read_signature(map, graph, in, out) != MU_OK) {
        mu_release(map);
        map = NULL;
    }
    mu_release(graph);
    mu_release(in);
    mu_release(out);
    return map;
}

const mu_object_form mu__traced_map_form = {.write = write_map, .read = read_map};
