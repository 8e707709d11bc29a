// Writes a function graph: builds the message tree of graph.proto in an arena, then packs it into one block.
//
// Attributes are written field by field from the op's definition, so no op is named here. Elements of constants are
// borrowed until they are packed. A graph that a reader would refuse is refused here, by name.
#include "graph/wire/wire_form.h"

typedef struct writer {
    mu_arena arena;
    const mu_graph *graph;
    size_t constant_bytes, edges;
} writer;

static void *message(writer *w, const ProtobufCMessageDescriptor *type)
{
    void *made = mu__arena_alloc(&w->arena, type->sizeof_message);
    if (made)
        protobuf_c_message_init(type, made);
    return made;
}

// protobuf-c's strings are not const, though packing only reads them.
static char *text_of(writer *w, const char *text)
{
    return text ? mu__arena_strdup(&w->arena, text) : (char *)protobuf_c_empty_string;
}

static mu_status dims_of(writer *w, const mu_shape *shape, int64_t **dims, size_t *n)
{
    *n = (size_t)shape->rank;
    *dims = mu__arena_copy(&w->arena, shape->dims, sizeof *shape->dims * *n);
    return *dims ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// ---- Attributes ---------------------------------------------------------------------------------

static mu_status write_ints(writer *w, const int64_t *at, size_t n, Mu__WireInts **out)
{
    Mu__WireInts *ints = *out = message(w, &mu__wire_ints__descriptor);
    if (!ints || !(ints->at = mu__arena_copy(&w->arena, at, sizeof *at * n)))
        return MU_RESOURCE_EXHAUSTED;
    ints->n_at = n;
    return MU_OK;
}

static mu_status write_tensor(writer *w, const mu_tensor *tensor, Mu__WireTensor **out)
{
    Mu__WireTensor *wire = *out = message(w, &mu__wire_tensor__descriptor);
    if (!wire)
        return MU_RESOURCE_EXHAUSTED;
    const mu_spec spec = mu__spec_of(tensor);
    wire->dtype = (uint32_t)spec.dtype;
    wire->data = (ProtobufCBinaryData){.len = mu__spec_bytes(&spec), .data = (void *)mu__host_read(tensor)};
    w->constant_bytes += wire->data.len;
    if (w->constant_bytes > MU_WIRE_CONSTANT_BYTES)
        return mu__error(MU_INVALID_ARGUMENT,
                         "'%s' has captured constants of more than %zu bytes; a serialised graph holds no more: keep "
                         "them in variables",
                         w->graph->name, MU_WIRE_CONSTANT_BYTES);
    return dims_of(w, &spec.shape, &wire->dims, &wire->n_dims);
}

static mu_status write_nested(writer *w, const mu_graph *nested, ProtobufCBinaryData *out)
{
    void *bytes = NULL;
    if (!nested) // no bytes: no graph
        return MU_OK;
    MU_TRY(mu__graph_write(nested, &bytes, &out->len));
    out->data = mu__arena_copy(&w->arena, bytes, out->len);
    mu__free(bytes);
    return out->data ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status write_attr(writer *w, const mu_attr_spec *spec, const void *attrs, Mu__WireAttr *wire)
{
    const void *field = (const char *)attrs + spec->offset;
    wire->value_case = mu__wire_case(spec->kind);
    if (!(wire->name = text_of(w, spec->name)))
        return MU_RESOURCE_EXHAUSTED;
    switch (spec->kind) {
    case MU_ATTR_INT: wire->integer = *(const int64_t *)field; return MU_OK;
    case MU_ATTR_REAL: wire->real = *(const double *)field; return MU_OK;
    case MU_ATTR_BOOL: wire->boolean = *(const bool *)field; return MU_OK;
    case MU_ATTR_INTS:
        return write_ints(w, ((const mu_ints *)field)->at, (size_t)((const mu_ints *)field)->n, &wire->ints);
    case MU_ATTR_DTYPE: wire->dtype = (uint32_t) * (const mu_dtype *)field; return MU_OK;
    case MU_ATTR_SHAPE:
        return write_ints(w, ((const mu_shape *)field)->dims, (size_t)((const mu_shape *)field)->rank, &wire->shape);
    case MU_ATTR_TEXT:
    case MU_ATTR_MESSAGE: wire->text = text_of(w, field); return wire->text ? MU_OK : MU_RESOURCE_EXHAUSTED;
    case MU_ATTR_TENSOR: return write_tensor(w, *(mu_tensor *const *)field, &wire->tensor);
    case MU_ATTR_GRAPH: return write_nested(w, *(mu_graph *const *)field, &wire->graph);
    }
    return mu__error(MU_INTERNAL, "attribute '%s' is of a kind that cannot be written", spec->name);
}

static mu_status write_attrs(writer *w, const mu_node *node, Mu__WireNode *wire)
{
    size_t n = 0;
    for (const mu_attr_spec *spec = node->attrs ? node->op->attrs : NULL; spec && spec->name; spec++)
        n++;
    if (!(wire->attrs = mu__arena_alloc(&w->arena, sizeof *wire->attrs * n)))
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        if (!(wire->attrs[i] = message(w, &mu__wire_attr__descriptor)))
            return MU_RESOURCE_EXHAUSTED;
        MU_TRY(write_attr(w, &node->op->attrs[i], node->attrs, wire->attrs[i]));
    }
    wire->n_attrs = n;
    return MU_OK;
}

// ---- Nodes --------------------------------------------------------------------------------------

static uint32_t *numbers(writer *w, size_t n) { return mu__arena_alloc(&w->arena, sizeof(uint32_t) * n); }

static mu_status write_edges(writer *w, const mu_edge *edges, size_t n, uint32_t **nodes, uint32_t **outputs)
{
    w->edges += n;
    if (w->edges > MU_WIRE_EDGES)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' has more than %d edges; a serialised graph holds no more",
                         w->graph->name, MU_WIRE_EDGES);
    *nodes = numbers(w, n);
    *outputs = numbers(w, n);
    if (!*nodes || !*outputs)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        (*nodes)[i] = (uint32_t)edges[i].node->id;
        (*outputs)[i] = (uint32_t)edges[i].output;
    }
    return MU_OK;
}

static mu_status write_node(writer *w, const mu_node *node, Mu__WireNode **out)
{
    Mu__WireNode *wire = *out = message(w, &mu__wire_node__descriptor);
    if (!wire || !(wire->op = text_of(w, node->op->name)) || !(wire->name = text_of(w, node->name)) ||
        !(wire->file = text_of(w, node->file)) || !(wire->layer = text_of(w, node->layer)) ||
        !(wire->resources = numbers(w, (size_t)node->n_resources)))
        return MU_RESOURCE_EXHAUSTED;
    wire->line = (uint32_t)node->line;
    wire->n_resources = (size_t)node->n_resources;
    for (int i = 0; i < node->n_resources; i++)
        wire->resources[i] = (uint32_t)node->resources[i];
    wire->n_inputs = wire->n_input_outputs = (size_t)node->n_in;
    MU_TRY(write_edges(w, node->in, (size_t)node->n_in, &wire->inputs, &wire->input_outputs));
    return write_attrs(w, node, wire);
}

// ---- Graphs -------------------------------------------------------------------------------------

static mu_status write_resource(writer *w, size_t i, Mu__WireResource **out)
{
    const mu_resource *resource = w->graph->resources.items[i];
    for (size_t k = 0; k < i; k++)
        if (strcmp(w->graph->resources.items[k]->name, resource->name) == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "'%s' uses two resources named '%s', which a reader could not tell apart; give each "
                             "variable a name of its own",
                             w->graph->name, resource->name);
    Mu__WireResource *wire = *out = message(w, &mu__wire_resource__descriptor);
    if (!wire || !(wire->kind = text_of(w, resource->kind->name)) || !(wire->name = text_of(w, resource->name)))
        return MU_RESOURCE_EXHAUSTED;
    wire->dtype = (uint32_t)resource->spec.dtype;
    return dims_of(w, &resource->spec.shape, &wire->dims, &wire->n_dims);
}

static mu_status write_lists(writer *w, Mu__WireGraph *wire)
{
    const mu_graph *graph = w->graph;
    wire->nodes = mu__arena_alloc(&w->arena, sizeof *wire->nodes * graph->nodes.n);
    wire->resources = mu__arena_alloc(&w->arena, sizeof *wire->resources * graph->resources.n);
    wire->inputs = numbers(w, graph->inputs.n);
    if (!wire->nodes || !wire->resources || !wire->inputs)
        return MU_RESOURCE_EXHAUSTED;
    for (; wire->n_resources < graph->resources.n; wire->n_resources++)
        MU_TRY(write_resource(w, wire->n_resources, &wire->resources[wire->n_resources]));
    for (; wire->n_nodes < graph->nodes.n; wire->n_nodes++)
        MU_TRY(write_node(w, graph->nodes.items[wire->n_nodes], &wire->nodes[wire->n_nodes]));
    for (; wire->n_inputs < graph->inputs.n; wire->n_inputs++)
        wire->inputs[wire->n_inputs] = (uint32_t)graph->inputs.items[wire->n_inputs]->id;
    wire->n_outputs = wire->n_output_outputs = graph->outputs.n;
    return write_edges(w, graph->outputs.items, graph->outputs.n, &wire->outputs, &wire->output_outputs);
}

static mu_status pack(const writer *w, const Mu__WireGraph *wire, void **bytes, size_t *size)
{
    const size_t packed = mu__wire_graph__get_packed_size(wire);
    if (packed > MU_WIRE_BYTES)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' takes %zu bytes when serialised; the limit is %zu", w->graph->name,
                         packed, MU_WIRE_BYTES);
    uint8_t *block = mu__alloc(packed);
    if (!block)
        return MU_RESOURCE_EXHAUSTED;
    mu__wire_graph__pack(wire, block);
    *bytes = block;
    *size = packed;
    return MU_OK;
}

mu_status mu__graph_write(const mu_graph *graph, void **bytes, size_t *size)
{
    writer w = {.graph = graph};
    mu_status status = MU_OK;
    *bytes = NULL;
    *size = 0;
    if (mu__pending())
        return mu_error_code();
    if (graph->nodes.n > MU_WIRE_NODES || graph->resources.n > MU_WIRE_RESOURCES)
        return mu__error(MU_INVALID_ARGUMENT,
                         "'%s' has %zu nodes and %zu resources; a serialised graph holds at most %d and %d",
                         graph->name, graph->nodes.n, graph->resources.n, MU_WIRE_NODES, MU_WIRE_RESOURCES);
    Mu__WireGraph *wire = message(&w, &mu__wire_graph__descriptor);
    if (!wire || !(wire->name = text_of(&w, graph->name)))
        MU_GO(MU_RESOURCE_EXHAUSTED);
    wire->version = MU_GRAPH_VERSION;
    MU_GO(write_lists(&w, wire));
    MU_GO(pack(&w, wire, bytes, size));
out:
    mu__arena_free(&w.arena);
    return status;
}
