// Traced functions: a C callback, and one graph for each signature of its arguments.
//
// A signature is the structure of the arguments with the type and shape of each tensor. Batch axes are unknown from the
// start; any other axis that differs between calls is unknown in the next trace, so a function is traced only a few
// times. If the batch axes were not named, a function that needs known sizes (to split a batch, for example) is traced
// for each size. The log gives the reason for each trace.
#include "graph/graph.h"

#include <pthread.h>

enum { MOST_INLINED = 100 }; // nesting of function calls; deeper means endless recursion

struct mu_function {
    mu_object object;
    mu_traceable *fn;
    void *arg;
    char *name;
    int *batch_axes; // as in mu_function_args; NULL: not given
    int n_batch_axes;
    pthread_mutex_t lock; // held while a thread looks up or traces a graph
    int n_traces;
    mu_function *outer; // around this one; retained. NULL: none
    bool jit_compile;
    bool exact;             // can only be traced with known sizes
    const void *failed_for; // owner of the latest trace if it failed after a collective; only compared
    struct {
        mu_concrete **items;
        size_t n, capacity;
    } concretes;
};

static void concrete_destroy(void *object)
{
    mu_concrete *concrete = object;
    if (concrete->plans)
        concrete->free_plans(concrete->plans);
    pthread_mutex_destroy(&concrete->lock);
    mu_release(concrete->inputs);
    mu_release(concrete->outputs);
    mu__free(concrete->own);
    mu_release(concrete->graph);
    mu_release(concrete->owner);
}

static mu_type concrete_type = {.name = "concrete function", .destroy = concrete_destroy};

mu_concrete *mu__concrete_of(mu_graph *graph, mu_value *inputs, mu_value *outputs)
{
    mu_concrete *concrete = mu__new(&concrete_type, sizeof *concrete);
    if (!concrete)
        return NULL;
    pthread_mutex_init(&concrete->lock, NULL);
    concrete->graph = mu_retain(graph);
    concrete->inputs = mu_retain(inputs);
    concrete->outputs = mu_retain(outputs);
    return concrete;
}

static void function_destroy(void *object)
{
    mu_function *function = object;
    for (size_t i = 0; i < function->concretes.n; i++)
        mu_release(function->concretes.items[i]);
    mu__free(function->concretes.items);
    mu_release(function->outer);
    mu__free(function->batch_axes);
    mu__free(function->name);
    pthread_mutex_destroy(&function->lock);
}

static mu_type function_type = {.name = "function", .destroy = function_destroy};

static mu_status check_args(const mu_function_args *args)
{
    if (!args->fn)
        return mu__error(MU_INVALID_ARGUMENT, "mu_function_new: the callback is NULL");
    if (args->n_batch_axes < 0 || !args->batch_axes != !args->n_batch_axes)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_function_new: %d batch axes%s; give batch_axes and their number, n_batch_axes, or neither",
                         args->n_batch_axes, args->batch_axes ? "" : " without batch_axes");
    return MU_OK;
}

// The name of the callback as the call has it: of `&steps[2].fn` it is steps.
static char *name_of(const mu_function_args *args)
{
    enum { LONGEST = 64 };
    const char *text = mu__args_text(args, "fn", 0);
    while (text && *text && !mu__in_name(*text))
        text++;
    int length = 0;
    while (text && mu__in_name(text[length]) && length < LONGEST)
        length++;
    if (args->name || length == 0)
        return mu__strdup(args->name ? args->name : "function");
    return mu__sprintf("%.*s", length, text);
}

static mu_status fill(mu_function *function, const mu_function_args *args)
{
    const size_t bytes = (size_t)args->n_batch_axes * sizeof *args->batch_axes;
    function->fn = args->fn;
    function->arg = args->arg;
    function->n_batch_axes = args->n_batch_axes;
    function->jit_compile = args->jit_compile;
    function->batch_axes = bytes ? mu__alloc(bytes) : NULL;
    function->name = name_of(args);
    if (!function->name || (bytes && !function->batch_axes))
        return MU_RESOURCE_EXHAUSTED;
    if (bytes)
        memcpy(function->batch_axes, args->batch_axes, bytes);
    return MU_OK;
}

mu_function *mu_function_new_with(const mu_function_args *given)
{
    mu_function_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_function_new") != MU_OK ||
        check_args(&args) != MU_OK)
        return NULL;
    mu_function *function = mu__new(&function_type, sizeof *function);
    if (!function)
        return NULL;
    pthread_mutexattr_t recursive; // the callback may call mu_function_trace_count
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&function->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    if (fill(function, &args) == MU_OK)
        return mu__give(function);
    mu_release(function);
    return NULL;
}

mu_function *mu__function_around(mu_function *function, mu_traceable *around)
{
    pthread_mutex_lock(&function->lock);
    if (!function->outer) {
        mu_pool *pool = mu_pool_open();
        const mu_function_args args = {.size = sizeof args,
                                       .fn = around,
                                       .arg = function,
                                       .name = function->name,
                                       .jit_compile = function->jit_compile};
        function->outer = mu_retain(mu_function_new_with(&args));
        mu_pool_close(pool);
    }
    mu_function *outer = function->outer;
    pthread_mutex_unlock(&function->lock);
    return outer;
}

const char *mu_function_name(const mu_function *function) { return function ? function->name : NULL; }

int mu_function_trace_count(const mu_function *function)
{
    if (!function)
        return -1;
    mu_function *locked = (mu_function *)function;
    pthread_mutex_lock(&locked->lock);
    const int n = locked->n_traces;
    pthread_mutex_unlock(&locked->lock);
    return n;
}

mu_value *mu__function_inline(const mu_function *function, mu_value *arguments)
{
    mu_context *context = mu__context();
    if (context->n_inlined >= MOST_INLINED) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_function_call: %d functions call each other; one that calls itself must end it by something that "
                  "is known while it is traced, or be a mu_while_loop",
                  context->n_inlined);
        return NULL;
    }
    context->n_inlined++;
    mu_value *result = function->fn(arguments, function->arg);
    context->n_inlined--;
    return result;
}

// The tensor leaves of the arguments, as specs; variables are part of the structure.
typedef struct signature {
    int n;
    mu_spec *specs;
    bool *own; // per tensor: a replica's own (mu__made_here), or one value for all
} signature;

static void free_signature(signature *s)
{
    mu__free(s->specs);
    mu__free(s->own);
}

// Makes the size of the i-th tensor's batch axis unknown.
static mu_status forget_batch(const mu_function *function, int i, mu_shape *shape)
{
    int axis = 0;
    if (function->batch_axes) {
        const int named = function->batch_axes[MU_MIN(i, function->n_batch_axes - 1)];
        axis = named == MU_NO_BATCH ? shape->rank : named < 0 ? named + shape->rank : named;
        char text[MU_SHAPE_TEXT];
        if (axis < 0 || (axis >= shape->rank && named != MU_NO_BATCH))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: tensor %d of the arguments has shape %s and no axis %d; correct batch_axes of mu_function_new",
                function->name, i, mu__shape_text(shape, text), named);
    }
    if (axis < shape->rank)
        shape->dims[axis] = MU_UNKNOWN;
    return MU_OK;
}

static mu_status signature_of(const mu_function *function, const mu_value *arguments, bool batch, signature *out)
{
    int n = mu__value_flatten(arguments, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    out->specs = mu__calloc((size_t)n + 1, sizeof *out->specs);
    out->own = mu__calloc((size_t)n + 1, sizeof *out->own);
    out->n = 0;
    if (!leaves || !out->specs || !out->own) {
        mu__free(leaves);
        return MU_RESOURCE_EXHAUSTED;
    }
    mu__value_flatten(arguments, leaves, n);
    mu_status status = MU_OK;
    for (int i = 0; i < n && status == MU_OK; i++) {
        if (!mu__is(leaves[i], &mu__tensor_type))
            continue;
        mu_spec spec = mu__spec_of((mu_tensor *)leaves[i]);
        if (spec.dtype == MU_STRING) {
            status = mu__error(MU_INVALID_ARGUMENT,
                               "'%s': argument %d holds strings; traced functions compute with numbers alone, on any "
                               "device. Turn the strings into numbers before the call (mu_string_lookup, mu_hashing or "
                               "mu_text_vectorization in mu_dataset_map), or use a C function that is not traced",
                               function->name, out->n);
            break;
        }
        if (batch || function->batch_axes)
            status = forget_batch(function, out->n, &spec.shape);
        out->own[out->n] = mu__made_here((mu_tensor *)leaves[i]);
        out->specs[out->n++] = spec;
    }
    mu__free(leaves);
    return status;
}

static const mu_spec *concrete_spec(const mu_concrete *concrete, size_t i)
{
    return &concrete->graph->inputs.items[i]->out[0];
}

// For arguments of one structure: whether the leaves that are no tensors are the same objects. A graph holds the
// variables that it was traced with, so other variables need another graph.
static bool same_objects(const mu_value *a, const mu_value *b)
{
    if (!a)
        return true;
    if (a->leaf) {
        const bool tensor = mu__is(a->leaf, &mu__tensor_type);
        return tensor == mu__is(b->leaf, &mu__tensor_type) && (tensor || a->leaf == b->leaf);
    }
    for (int i = 0; i < a->n; i++)
        if (!same_objects(a->items[i], b->items[i]))
            return false;
    return true;
}

// Same types, ranks and owners, so that one trace with unknown axes can serve both.
static bool comparable(const mu_concrete *concrete, const mu_value *arguments, const signature *s, const void *owner)
{
    if (concrete->owner != owner || !mu__value_same_structure(concrete->inputs, arguments) ||
        (size_t)s->n != concrete->graph->inputs.n || !same_objects(concrete->inputs, arguments))
        return false;
    for (int i = 0; i < s->n; i++) {
        const mu_spec *spec = concrete_spec(concrete, (size_t)i);
        if (spec->dtype != s->specs[i].dtype || spec->shape.rank != s->specs[i].shape.rank ||
            concrete->own[i] != s->own[i])
            return false;
    }
    return true;
}

// Whether the graph accepts the arguments; if not, axes of `s` that differ become unknown.
static bool accepts(const mu_concrete *concrete, signature *s)
{
    bool fits = true;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->specs[i].shape.rank; k++)
            if (concrete_spec(concrete, (size_t)i)->shape.dims[k] != MU_UNKNOWN)
                fits &= concrete_spec(concrete, (size_t)i)->shape.dims[k] == s->specs[i].shape.dims[k];
    return fits;
}

static void relax(const mu_concrete *concrete, signature *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->specs[i].shape.rank; k++) {
            int64_t seen = concrete_spec(concrete, (size_t)i)->shape.dims[k];
            char text[MU_SHAPE_TEXT];
            if (seen == s->specs[i].shape.dims[k])
                continue;
            mu__log(MU_LOG_INFO, "tracing again: axis %d of argument %d was %lld before and is now part of %s", k, i,
                    (long long)seen, mu__shape_text(&s->specs[i].shape, text));
            s->specs[i].shape.dims[k] = MU_UNKNOWN;
        }
}

// Logs why no earlier trace fits: the difference to the latest one.
static void explain(const mu_function *function, const mu_value *arguments, const signature *s, const void *owner)
{
    if (function->concretes.n == 0 || !mu__log_enabled(MU_LOG_INFO))
        return;
    const mu_concrete *before = function->concretes.items[function->concretes.n - 1];
    if (before->owner != owner) {
        mu__log(MU_LOG_INFO, "tracing again: the strategy in force is another one");
        return;
    }
    if ((size_t)s->n != before->graph->inputs.n || !mu__value_same_structure(before->inputs, arguments)) {
        mu__log(MU_LOG_INFO, "tracing again: the arguments are nested in another way, with %d tensors instead of %zu",
                s->n, before->graph->inputs.n);
        return;
    }
    if (!same_objects(before->inputs, arguments)) {
        mu__log(MU_LOG_INFO, "tracing again: the arguments have other variables");
        return;
    }
    char new_text[MU_SHAPE_TEXT], old_text[MU_SHAPE_TEXT];
    for (int i = 0; i < s->n; i++) {
        const mu_spec *old = concrete_spec(before, (size_t)i), *now = &s->specs[i];
        if (before->own[i] != s->own[i])
            mu__log(MU_LOG_INFO, "tracing again: argument %d is %s now and was %s before", i,
                    s->own[i] ? "per replica" : "one value for all replicas", s->own[i] ? "one value" : "per replica");
        else if (old->dtype != now->dtype)
            mu__log(MU_LOG_INFO, "tracing again: argument %d has type %s and had %s before", i,
                    mu_dtype_name(now->dtype), mu_dtype_name(old->dtype));
        else if (old->shape.rank != now->shape.rank)
            mu__log(MU_LOG_INFO, "tracing again: argument %d has rank %d and had %d before", i, now->shape.rank,
                    old->shape.rank);
        else if (!mu__shape_equal(&old->shape, &now->shape))
            mu__log(MU_LOG_INFO,
                    "tracing again: argument %d has shape %s and had %s before, and the function needs to know", i,
                    mu__shape_text(&now->shape, new_text), mu__shape_text(&old->shape, old_text));
    }
}

static bool gathers(const mu_graph *graph)
{
    bool found = false;
    for (size_t i = 0; i < graph->nodes.n && !found; i++) {
        const mu_node *node = graph->nodes.items[i];
        const mu_graph *body;
        found = node->op == &mu_op_all_gather;
        for (int b = 0; !found && (body = mu__node_body(node, b)); b++)
            found = gathers(body);
    }
    return found;
}

static mu_concrete *trace_concrete(mu_function *function, const mu_value *arguments, signature *s, void *owner)
{
    mu_traced traced;
    int64_t begin = mu__now_ns();
    if (mu__trace_run(function->name, function->fn, function->arg, arguments, s->specs, function->n_traces == 0,
                      &traced) != MU_OK) {
        if (traced.collective)
            function->failed_for = owner;
        return NULL;
    }
    function->n_traces++;
    mu_concrete *concrete = mu__new(&concrete_type, sizeof *concrete);
    if (concrete)
        pthread_mutex_init(&concrete->lock, NULL);
    if (!concrete || MU_PUSH(&function->concretes, concrete) != MU_OK) {
        mu_release(concrete);
        mu_release(traced.graph);
        mu_release(traced.inputs);
        mu_release(traced.outputs);
        return NULL;
    }
    concrete->graph = traced.graph;
    concrete->inputs = traced.inputs;
    concrete->outputs = traced.outputs;
    concrete->gathers = gathers(traced.graph);
    concrete->own = s->own;
    s->own = NULL;
    concrete->owner = mu_retain(owner);
    mu__log(MU_LOG_INFO, "traced %s (trace %d): %zu nodes in %.2f ms", function->name, function->n_traces,
            traced.graph->nodes.n, (double)(mu__now_ns() - begin) / 1e6);
    if (mu__log_enabled(MU_LOG_DEBUG))
        mu__graph_print(traced.graph, stderr);
    return concrete;
}

// Tracing without batch sizes failed: tries with the sizes. The error is then the one that names them.
static mu_concrete *trace_exactly(mu_function *function, const mu_value *arguments, void *owner)
{
    signature s = {0};
    const mu_status code = mu_error_code();
    if ((code != MU_INVALID_ARGUMENT && code != MU_UNIMPLEMENTED) || mu__value_flatten(arguments, NULL, 0) == 0)
        return NULL;
    char *reason = mu__strdup(mu_error_message());
    mu_error_take();
    mu_concrete *found = NULL;
    if (signature_of(function, arguments, false, &s) == MU_OK)
        found = trace_concrete(function, arguments, &s, owner);
    if (found) {
        function->exact = true;
        mu__log(MU_LOG_INFO, "%s is traced for each size of its arguments: %s", function->name, reason ? reason : "");
    }
    free_signature(&s);
    mu__free(reason);
    return found;
}

static mu_concrete *find_or_trace(mu_function *function, const mu_value *arguments, mu_batch batch, void *owner)
{
    signature s = {0};
    mu_concrete *found = NULL;
    const bool exact = batch == MU_BATCH_PREFERRED && function->exact;
    function->failed_for = NULL;
    if (exact)
        batch = MU_BATCH_NONE;
    if (mu__pending() || signature_of(function, arguments, batch != MU_BATCH_NONE, &s) != MU_OK)
        goto out;
    for (size_t i = 0; i < function->concretes.n && !found; i++) {
        mu_concrete *concrete = function->concretes.items[i];
        if (comparable(concrete, arguments, &s, owner) && accepts(concrete, &s))
            found = concrete;
    }
    bool relaxed = found != NULL;
    for (size_t i = 0; i < function->concretes.n && !found && !exact; i++)
        if (comparable(function->concretes.items[i], arguments, &s, owner)) {
            relax(function->concretes.items[i], &s);
            relaxed = true;
        }
    if (!relaxed)
        explain(function, arguments, &s, owner);
    if (!found)
        found = trace_concrete(function, arguments, &s, owner);
    if (!found && batch == MU_BATCH_PREFERRED && !function->batch_axes)
        found = trace_exactly(function, arguments, owner);
out:
    free_signature(&s);
    return found;
}

bool mu__function_jit_compile(const mu_function *function) { return function->jit_compile; }

bool mu__function_gathers(mu_function *function, const void *owner)
{
    bool found = false;
    pthread_mutex_lock(&function->lock);
    for (size_t i = 0; i < function->concretes.n && !found; i++)
        found = function->concretes.items[i]->owner == owner && function->concretes.items[i]->gathers;
    pthread_mutex_unlock(&function->lock);
    return found;
}

bool mu__function_is_collective(mu_function *function, const void *owner)
{
    pthread_mutex_lock(&function->lock);
    bool found = owner && function->failed_for == owner;
    for (size_t i = 0; i < function->concretes.n && !found; i++)
        found = function->concretes.items[i]->owner == owner && function->concretes.items[i]->graph->collective;
    pthread_mutex_unlock(&function->lock);
    return found;
}

mu_concrete *mu__function_concrete(mu_function *function, const mu_value *arguments, mu_batch batch, void *owner)
{
    pthread_mutex_lock(&function->lock);
    mu_concrete *concrete = find_or_trace(function, arguments, batch, owner);
    pthread_mutex_unlock(&function->lock);
    return concrete;
}

mu_value *mu__concrete_result(const mu_concrete *concrete, mu_tensor *const *out, mu_tensor *const *first)
{
    if (!concrete->outputs)
        return mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
    int n = mu__value_flatten(concrete->outputs, NULL, 0), tensors = 0;
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    if (!leaves)
        return NULL;
    mu__value_flatten(concrete->outputs, leaves, n);
    for (int i = 0; i < n; i++) {
        if (!mu__is(leaves[i], &mu__tensor_type))
            continue;
        const int64_t run = ((mu_tensor *)leaves[i])->run;
        mu_tensor *result = (run ? out : first)[tensors++];
        result->run = run;
        leaves[i] = &result->object;
    }
    mu_value *value = mu__value_pack(concrete->outputs, leaves, n);
    mu__free(leaves);
    return value;
}

mu_status mu_function_dot(mu_function *function, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    if (!function || !path)
        return mu__error(MU_INVALID_ARGUMENT, "mu_function_dot: the %s is NULL", function ? "path" : "function");
    pthread_mutex_lock(&function->lock);
    const mu_concrete *latest = function->concretes.n ? function->concretes.items[function->concretes.n - 1] : NULL;
    mu_graph *graph = latest ? mu_retain(latest->graph) : NULL;
    pthread_mutex_unlock(&function->lock);
    if (!graph)
        return mu__error(MU_FAILED_PRECONDITION, "mu_function_dot: the function has not been traced; run it once");
    const mu_status status = mu__graph_dot(graph, path);
    mu_release(graph);
    return status;
}
