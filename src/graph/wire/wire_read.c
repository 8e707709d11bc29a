// Reads a function graph from untrusted bytes.
//
// protobuf-c parses with an allocator that has a budget. Each node is then built as a trace builds it, so its op's
// shape rule checks it. What rules take for granted about attributes (ranks, element types, terminated strings, sizes
// of constants) is checked here first. Errors name node and op. No op is named here, and the caller finds resources.
#include "graph/wire/wire_form.h"

// Budget of one call, nested graphs included.
typedef struct spending {
    size_t nodes, edges, constant_bytes;
} spending;

typedef struct reader {
    const Mu__WireGraph *wire;
    mu_graph *graph;
    mu_resource_resolver *resolve;
    void *arg;
    int depth;
    spending *totals;
} reader;

static mu_graph *read_graph(const void *bytes, size_t size, mu_resource_resolver *resolve, void *arg, int depth,
                            spending *totals);

// ---- Parsing ------------------------------------------------------------------------------------

// A valid graph takes less than 64 times its bytes while it is parsed; parsing stops beyond that.
static void *budget_alloc(void *budget, size_t bytes)
{
    size_t *left = budget;
    if (bytes > *left)
        return NULL;
    *left -= bytes;
    return mu__alloc(bytes);
}

static void budget_free(void *budget, void *block)
{
    (void)budget;
    mu__free(block);
}

static Mu__WireGraph *parse(const void *bytes, size_t size, ProtobufCAllocator *allocator)
{
    if (size > MU_WIRE_BYTES) {
        mu__error(MU_DATA_LOSS, "a serialised graph of %zu bytes was given; the limit is %zu", size, MU_WIRE_BYTES);
        return NULL;
    }
    Mu__WireGraph *wire = mu__wire_graph__unpack(allocator, size, bytes);
    if (!wire && !mu__pending())
        mu__error(
            MU_DATA_LOSS,
            "%zu bytes are not a serialised graph: they are damaged, cut off or something else; write the graph again",
            size);
    return wire;
}

// ---- Shapes and tensors -------------------------------------------------------------------------

static mu_status read_dtype(uint32_t number, const char *what, mu_dtype *out)
{
    if (number > INT32_MAX || !mu__dtype_ok((mu_dtype)number))
        return mu__error(MU_DATA_LOSS, "%s has element type number %u, which does not exist", what, number);
    *out = (mu_dtype)number;
    return MU_OK;
}

static mu_status read_shape(const int64_t *dims, size_t n, const char *what, mu_shape *out)
{
    if (n > MU_MAX_RANK)
        return mu__error(MU_DATA_LOSS, "%s has %zu dimensions; at most %d are possible", what, n, MU_MAX_RANK);
    out->rank = (int)n;
    for (size_t i = 0; i < n; i++)
        out->dims[i] = dims[i];
    return mu__shape_check(out, what);
}

// A bool that is neither 0 nor 1 would be undefined in C.
static mu_status check_bools(const ProtobufCBinaryData *data, const char *what)
{
    for (size_t i = 0; i < data->len; i++)
        if (data->data[i] > 1)
            return mu__error(MU_DATA_LOSS, "%s: element %zu of a bool tensor is %u; it must be 0 or 1", what, i,
                             (unsigned)data->data[i]);
    return MU_OK;
}

static mu_status read_tensor(reader *r, const Mu__WireTensor *wire, const char *what, mu_tensor **out)
{
    mu_spec spec = {0};
    MU_TRY(read_dtype(wire->dtype, what, &spec.dtype));
    MU_TRY(read_shape(wire->dims, wire->n_dims, what, &spec.shape));
    if (!mu__shape_known(&spec.shape) || mu__spec_bytes(&spec) != wire->data.len) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_DATA_LOSS, "%s is %s%s but has %zu bytes", what, mu_dtype_name(spec.dtype),
                         mu__shape_text(&spec.shape, text), wire->data.len);
    }
    r->totals->constant_bytes += wire->data.len;
    if (r->totals->constant_bytes > MU_WIRE_CONSTANT_BYTES)
        return mu__error(MU_DATA_LOSS, "the constants of the graph take more than %zu bytes", MU_WIRE_CONSTANT_BYTES);
    if (spec.dtype == MU_BOOL)
        MU_TRY(check_bools(&wire->data, what));
    mu_tensor *tensor = mu__tensor_alloc(spec.dtype, &spec.shape);
    if (!tensor)
        return MU_RESOURCE_EXHAUSTED;
    if (wire->data.len)
        memcpy(mu__host_write(tensor), wire->data.data, wire->data.len);
    *out = tensor;
    return MU_OK;
}

// ---- Attributes ---------------------------------------------------------------------------------

static mu_status read_ints(const Mu__WireInts *wire, const char *what, mu_ints *out)
{
    if (wire->n_at > MU_MAX_INTS)
        return mu__error(MU_DATA_LOSS, "attribute '%s' has %zu numbers; at most %d are possible", what, wire->n_at,
                         MU_MAX_INTS);
    out->n = (int64_t)wire->n_at;
    for (size_t i = 0; i < wire->n_at; i++)
        out->at[i] = wire->at[i];
    return MU_OK;
}

static mu_status read_text(const char *text, const char *what, size_t most, char *out)
{
    const size_t n = strlen(text);
    if (n > most)
        return mu__error(MU_DATA_LOSS, "attribute '%s' has %zu bytes of text; at most %zu are possible", what, n, most);
    memcpy(out, text, n + 1);
    return MU_OK;
}

static mu_status read_nested(reader *r, const ProtobufCBinaryData *bytes, mu_graph **out)
{
    if (bytes->len == 0) // missing; an op that needs it will fail
        return MU_OK;
    if (r->depth + 1 >= MU_WIRE_DEPTH)
        return mu__error(MU_DATA_LOSS, "graphs are nested more than %d deep", MU_WIRE_DEPTH);
    *out = read_graph(bytes->data, bytes->len, r->resolve, r->arg, r->depth + 1, r->totals);
    return *out ? MU_OK : mu_error_code();
}

// Fills one field; a tensor or graph in it belongs to the attributes.
static mu_status read_attr(reader *r, const mu_attr_spec *spec, const Mu__WireAttr *wire, void *attrs)
{
    void *field = (char *)attrs + spec->offset;
    if (strcmp(wire->name, spec->name) != 0)
        return mu__error(MU_DATA_LOSS, "found attribute '%s' where '%s' was expected", wire->name, spec->name);
    if (wire->value_case != mu__wire_case(spec->kind))
        return mu__error(MU_DATA_LOSS, "attribute '%s' has a value of kind %d; it must be %d (the fields of WireAttr)",
                         spec->name, (int)wire->value_case, (int)mu__wire_case(spec->kind));
    switch (spec->kind) {
    case MU_ATTR_INT: *(int64_t *)field = wire->integer; return MU_OK;
    case MU_ATTR_REAL: *(double *)field = wire->real; return MU_OK;
    case MU_ATTR_BOOL: *(bool *)field = wire->boolean != 0; return MU_OK;
    case MU_ATTR_INTS: return read_ints(wire->ints, spec->name, field);
    case MU_ATTR_DTYPE: return read_dtype(wire->dtype, spec->name, field);
    case MU_ATTR_SHAPE: return read_shape(wire->shape->at, wire->shape->n_at, spec->name, field);
    case MU_ATTR_TEXT: return read_text(wire->text, spec->name, MU_ATTR_TEXT_BYTES - 1, field);
    case MU_ATTR_MESSAGE: return read_text(wire->text, spec->name, MU_ATTR_MESSAGE_BYTES - 1, field);
    case MU_ATTR_TENSOR: return read_tensor(r, wire->tensor, spec->name, field);
    case MU_ATTR_GRAPH: return read_nested(r, &wire->graph, field);
    }
    return mu__error(MU_INTERNAL, "attribute '%s' is of a kind that cannot be read", spec->name);
}

static mu_status read_attrs(reader *r, const mu_op *op, const Mu__WireNode *wire, void *attrs)
{
    size_t n = 0;
    for (const mu_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        n++;
    if (wire->n_attrs != n)
        return mu__error(MU_DATA_LOSS, "%zu attributes are given; the op has %zu", wire->n_attrs, n);
    for (size_t i = 0; i < n; i++)
        MU_TRY(read_attr(r, &op->attrs[i], wire->attrs[i], attrs));
    return MU_OK;
}

// ---- Nodes --------------------------------------------------------------------------------------

// Reads edges to earlier nodes.
static mu_status read_edges(reader *r, size_t n, const uint32_t *nodes, size_t n_outputs, const uint32_t *outputs,
                            mu_edge *out)
{
    if (n != n_outputs)
        return mu__error(MU_DATA_LOSS, "%zu nodes are named as inputs or outputs, but %zu of their outputs", n,
                         n_outputs);
    r->totals->edges += n;
    if (r->totals->edges > MU_WIRE_EDGES)
        return mu__error(MU_DATA_LOSS, "the graph has more than %d edges", MU_WIRE_EDGES);
    for (size_t i = 0; i < n; i++) {
        if (nodes[i] >= r->graph->nodes.n)
            return mu__error(MU_DATA_LOSS, "input or output %zu comes from node %u, which does not come before it", i,
                             nodes[i]);
        mu_node *node = r->graph->nodes.items[nodes[i]];
        if (outputs[i] >= (uint32_t)node->n_out)
            return mu__error(MU_DATA_LOSS, "input or output %zu is output %u of node %u (%s), which has %d", i,
                             outputs[i], nodes[i], node->op->name, node->n_out);
        out[i] = (mu_edge){.node = node, .output = (int)outputs[i]};
    }
    return MU_OK;
}

static mu_status read_used_resources(const reader *r, const Mu__WireNode *wire, mu_resource **out)
{
    for (size_t i = 0; i < wire->n_resources; i++) {
        if (wire->resources[i] >= r->graph->resources.n)
            return mu__error(MU_DATA_LOSS, "resource number %u is used; the graph has %zu", wire->resources[i],
                             r->graph->resources.n);
        out[i] = r->graph->resources.items[wire->resources[i]];
    }
    return MU_OK;
}

static mu_status add_node(reader *r, const mu_op *op, const Mu__WireNode *wire, const void *attrs, const mu_edge *in,
                          mu_resource *const *resources)
{
    const int n_out = mu__op_outputs(op, attrs, (int)wire->n_inputs);
    if (n_out < 0 || n_out > MU_WIRE_EDGES)
        return mu__error(MU_DATA_LOSS, "its attributes ask for %d outputs; 0 to %d are possible", n_out, MU_WIRE_EDGES);
    mu_node *node = mu__graph_node(r->graph, op, op->attrs_bytes ? attrs : NULL, (int)wire->n_inputs, in,
                                   (int)wire->n_resources, resources);
    if (!node)
        return mu_error_code();
    mu_arena *arena = &r->graph->arena;
    if (*wire->name && !(node->name = mu__arena_strdup(arena, wire->name)))
        return MU_RESOURCE_EXHAUSTED;
    const mu_site site = {.file = wire->file, .line = (int)(wire->line & INT32_MAX), .layer = wire->layer};
    return mu__node_set_site(node, site);
}

static mu_status read_node(reader *r, const Mu__WireNode *wire)
{
    const mu_op *op = mu__op_by_name(wire->op);
    if (!op && mu__custom_is_name(wire->op))
        return mu__error(MU_NOT_FOUND,
                         "the graph uses the op '%.80s', which this process has not registered (mu_register_op)",
                         wire->op);
    if (!op)
        return mu__error(MU_INVALID_ARGUMENT,
                         "there is no op of this name here; `muster ops` lists those of this version");
    if (wire->n_inputs > MU_WIRE_EDGES || wire->n_resources > MU_WIRE_RESOURCES)
        return mu__error(MU_DATA_LOSS, "it has %zu inputs and %zu resources; at most %d and %d are possible",
                         wire->n_inputs, wire->n_resources, MU_WIRE_EDGES, MU_WIRE_RESOURCES);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    void *attrs = mu__calloc(1, op->attrs_bytes + 1);
    mu_edge *in = mu__alloc(sizeof *in * (wire->n_inputs + 1));
    mu_resource **resources = mu__alloc(sizeof *resources * (wire->n_resources + 1));
    if (!attrs || !in || !resources)
        goto out;
    MU_GO(read_attrs(r, op, wire, attrs));
    MU_GO(read_edges(r, wire->n_inputs, wire->inputs, wire->n_input_outputs, wire->input_outputs, in));
    MU_GO(read_used_resources(r, wire, resources));
    MU_GO(add_node(r, op, wire, attrs, in, resources));
out:
    mu__attrs_release(op, attrs);
    mu__free(attrs);
    mu__free(in);
    mu__free(resources);
    return status;
}

// ---- The lists of a graph -----------------------------------------------------------------------

static mu_status read_resource(reader *r, const Mu__WireResource *wire)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    mu_spec spec = {0};
    MU_TRY(read_dtype(wire->dtype, wire->name, &spec.dtype));
    MU_TRY(read_shape(wire->dims, wire->n_dims, wire->name, &spec.shape));
    const size_t index = r->graph->resources.n;
    mu_resource *resource = r->resolve(r->arg, wire->kind, wire->name, &spec);
    if (!resource)
        return mu__pending()
                   ? mu_error_code()
                   : mu__error(MU_NOT_FOUND, "the graph uses the %s '%s', which is not here", wire->kind, wire->name);
    if (strcmp(resource->kind->name, wire->kind) != 0 || resource->spec.dtype != spec.dtype ||
        !mu__shape_equal(&resource->spec.shape, &spec.shape))
        return mu__error(MU_INVALID_ARGUMENT, "the graph uses '%s' as a %s of type %s%s; here it is a %s of type %s%s",
                         wire->name, wire->kind, mu_dtype_name(spec.dtype), mu__shape_text(&spec.shape, wanted),
                         resource->kind->name, mu_dtype_name(resource->spec.dtype),
                         mu__shape_text(&resource->spec.shape, seen));
    const int at = mu__graph_resource(r->graph, resource);
    if (at < 0)
        return MU_RESOURCE_EXHAUSTED;
    return (size_t)at == index ? MU_OK
                               : mu__error(MU_DATA_LOSS, "the graph lists the %s '%s' twice", wire->kind, wire->name);
}

// Every `input` node must be listed once, because an engine binds exactly those.
static mu_status read_inputs(reader *r)
{
    mu_graph *graph = r->graph;
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.items[i]->op == &mu_op_input;
    if (r->wire->n_inputs != n)
        return mu__error(MU_DATA_LOSS, "%zu inputs are listed, but %zu nodes are inputs", r->wire->n_inputs, n);
    bool *seen = mu__calloc(graph->nodes.n + 1, sizeof *seen);
    mu_status status = seen ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n && status == MU_OK; i++) {
        const uint32_t at = r->wire->inputs[i];
        if (at >= graph->nodes.n || graph->nodes.items[at]->op != &mu_op_input || seen[at])
            MU_GO(mu__error(MU_DATA_LOSS, "input %zu is node %u, which is not an input or was listed before", i, at));
        seen[at] = true;
        status = MU_PUSH(&graph->inputs, graph->nodes.items[at]);
    }
out:
    mu__free(seen);
    return status;
}

static mu_status read_outputs(reader *r)
{
    const Mu__WireGraph *wire = r->wire;
    if (wire->n_outputs > MU_WIRE_EDGES)
        return mu__error(MU_DATA_LOSS, "%zu outputs; at most %d are possible", wire->n_outputs, MU_WIRE_EDGES);
    mu_status status = MU_OK;
    mu_edge *edges = mu__alloc(sizeof *edges * (wire->n_outputs + 1));
    if (!edges)
        return MU_RESOURCE_EXHAUSTED;
    MU_GO(read_edges(r, wire->n_outputs, wire->outputs, wire->n_output_outputs, wire->output_outputs, edges));
    for (size_t i = 0; i < wire->n_outputs; i++)
        MU_GO(MU_PUSH(&r->graph->outputs, edges[i]));
out:
    mu__free(edges);
    return status;
}

static mu_status read_lists(reader *r)
{
    const Mu__WireGraph *wire = r->wire;
    if (wire->version != MU_GRAPH_VERSION)
        return mu__error(MU_DATA_LOSS,
                         "it has version %u (0: it was cut off) of the serialised form; this library reads version %d",
                         wire->version, MU_GRAPH_VERSION);
    r->totals->nodes += wire->n_nodes;
    if (r->totals->nodes > MU_WIRE_NODES || wire->n_resources > MU_WIRE_RESOURCES)
        return mu__error(MU_DATA_LOSS, "it has %zu nodes and %zu resources; at most %d and %d are possible",
                         r->totals->nodes, wire->n_resources, MU_WIRE_NODES, MU_WIRE_RESOURCES);
    for (size_t i = 0; i < wire->n_resources; i++)
        MU_TRY(read_resource(r, wire->resources[i]));
    for (size_t i = 0; i < wire->n_nodes; i++)
        if (read_node(r, wire->nodes[i]) != MU_OK) {
            mu__error_context("in node %zu (op %.60s)", i, wire->nodes[i]->op);
            return mu_error_code();
        }
    MU_TRY(read_inputs(r));
    return read_outputs(r);
}

static mu_graph *read_graph(const void *bytes, size_t size, mu_resource_resolver *resolve, void *arg, int depth,
                            spending *totals)
{
    size_t budget = ((size_t)1 << 20) + (size <= MU_WIRE_BYTES ? 64 * size : 0);
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};
    Mu__WireGraph *wire = parse(bytes, size, &allocator);
    if (!wire)
        return NULL;
    reader r = {.wire = wire,
                .graph = mu__graph_new(wire->name),
                .resolve = resolve,
                .arg = arg,
                .depth = depth,
                .totals = totals};
    if (r.graph && read_lists(&r) != MU_OK) {
        mu__error_context("while reading the serialised graph '%.60s'", wire->name);
        mu_release(r.graph);
        r.graph = NULL;
    }
    mu__wire_graph__free_unpacked(wire, &allocator);
    return r.graph;
}

mu_graph *mu__graph_read(const void *bytes, size_t size, mu_resource_resolver *resolve, void *arg)
{
    spending totals = {0};
    return mu__pending() ? NULL : read_graph(bytes, size, resolve, arg, 0, &totals);
}
