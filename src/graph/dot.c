// Writes a graph as a picture in DOT, the language of Graphviz. Solid arrows are values; dotted arrows are the order of
// effects on a resource. A body is a box around its nodes, with dashed arrows from its outputs to its node. The text
// form is mu__graph_print.
#include "graph/graph.h"

enum { PREFIX = 16 * (MU_MAX_DEPTH + 1) };

typedef struct picture {
    const mu_graph *graph;
    char prefix[PREFIX]; // prefix of node names: "n"; in bodies "n8_0_" and so on
    mu_file_writer *file;
    mu_status status;
} picture;

static void put(picture *p, const char *text)
{
    if (p->status == MU_OK)
        p->status = mu__file_write(p->file, text, strlen(text));
}

static void put_name(picture *p, const char *before, int id)
{
    char text[24];
    put(p, before);
    put(p, p->prefix);
    snprintf(text, sizeof text, "%d", id);
    put(p, text);
}

// Text inside quotes. Names may come from files, so a special character becomes a space.
static void put_label(picture *p, const char *text)
{
    char safe[160];
    size_t n = 0;
    for (; text[n] && n < sizeof safe - 1; n++)
        safe[n] = (unsigned char)text[n] < ' ' || text[n] == '"' || text[n] == '\\' ? ' ' : text[n];
    safe[n] = 0;
    put(p, safe);
}

// Attributes, one per line.
static void put_attrs(picture *p, const mu_node *node)
{
    char text[MU_ATTRS_TEXT];
    mu__attrs_text(node->op, node->attrs, "\n", text);
    for (char *line = text[0] ? text + 1 : NULL, *end; line; line = end ? end + 1 : NULL) {
        if ((end = strchr(line, '\n')))
            *end = 0;
        put(p, "\\n");
        put_label(p, line);
    }
}

static void put_node(picture *p, const mu_node *node)
{
    char text[MU_SHAPE_TEXT + 80], shape[MU_SHAPE_TEXT];
    const bool effect = node->op->flags & (MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE);
    put_name(p, "  ", node->id);
    put(p, " [label=\"");
    put_label(p, node->op->name);
    for (size_t i = 0; node->op == &mu_op_input && i < p->graph->inputs.n; i++)
        if (p->graph->inputs.items[i] == node) {
            snprintf(text, sizeof text, " %zu", i);
            put(p, text);
        }
    put_attrs(p, node);
    for (int i = 0; i < node->n_resources; i++) {
        put(p, " @");
        put_label(p, p->graph->resources.items[node->resources[i]]->name);
    }
    for (int i = 0; i < node->n_out; i++) {
        snprintf(text, sizeof text, "\\n%s%s", mu_dtype_name(node->out[i].dtype),
                 mu__shape_text(&node->out[i].shape, shape));
        put(p, text);
    }
    if (node->file) {
        put(p, "\" tooltip=\"");
        put_label(p, node->file);
        snprintf(text, sizeof text, ":%d", node->line);
        put(p, text);
    }
    put(p, effect ? "\" style=filled];\n" : "\"];\n");
}

// An arrow; `style` ends the line.
static void put_arrow(picture *p, int from, int to, const char *style)
{
    put_name(p, "  ", from);
    put_name(p, " -> ", to);
    put(p, style);
}

static void put_edges(picture *p, const mu_node *node, int *last_effect)
{
    char style[40];
    for (int i = 0; i < node->n_in; i++) {
        const mu_node *from = node->in[i].node;
        snprintf(style, sizeof style, " [label=%d];\n", node->in[i].output);
        put_arrow(p, from->id, node->id, from->n_out > 1 ? style : ";\n");
    }
    for (int i = 0; i < node->n_resources; i++) {
        int *last = &last_effect[node->resources[i]];
        if (*last > 0)
            put_arrow(p, *last - 1, node->id, " [style=dotted];\n");
        *last = node->id + 1;
    }
}

static void put_graph(picture *p);

static void put_bodies(picture *p, const mu_node *node)
{
    const mu_graph *body;
    for (int b = 0; (body = mu__node_body(node, b)); b++) {
        picture inner = {.graph = body, .file = p->file, .status = p->status};
        snprintf(inner.prefix, sizeof inner.prefix, "%.*s%d_%d_", PREFIX - 30, p->prefix, node->id, b);
        put(p, "  subgraph cluster_");
        put(p, inner.prefix);
        put(p, " {\n  label=\"");
        put_label(p, body->name);
        put(p, "\";\n");
        put_graph(&inner);
        put(&inner, "  }\n");
        for (size_t i = 0; i < body->outputs.n; i++) {
            put_name(&inner, "  ", body->outputs.items[i].node->id);
            put_name(p, " -> ", node->id);
            put(p, " [style=dashed];\n");
        }
        p->status = inner.status != MU_OK ? inner.status : p->status;
    }
}

// Nodes and arrows of a graph and of its bodies.
static void put_graph(picture *p)
{
    const mu_graph *graph = p->graph;
    int *last_effect = mu__calloc(graph->resources.n + 1, sizeof *last_effect); // node number + 1; 0: none
    if (!last_effect)
        p->status = MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++)
        put_node(p, graph->nodes.items[i]);
    for (size_t i = 0; last_effect && i < graph->nodes.n; i++)
        put_edges(p, graph->nodes.items[i], last_effect);
    for (size_t i = 0; i < graph->nodes.n; i++)
        put_bodies(p, graph->nodes.items[i]);
    mu__free(last_effect);
}

static void draw(picture *p)
{
    const mu_graph *graph = p->graph;
    char text[120];
    put(p, "digraph \"");
    put_label(p, graph->name);
    put(p, "\" {\n  node [shape=box];\n");
    put_graph(p);
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const mu_edge *from = &graph->outputs.items[i];
        snprintf(text, sizeof text, "  result%zu [shape=plaintext];\n  n%d -> result%zu", i, from->node->id, i);
        put(p, text);
        snprintf(text, sizeof text, " [label=%d];\n", from->output);
        put(p, from->node->n_out > 1 ? text : ";\n");
    }
    put(p, "}\n");
}

mu_status mu__graph_dot(const mu_graph *graph, const char *path)
{
    picture p = {.graph = graph, .prefix = "n", .file = mu__file_create(path)};
    if (!p.file)
        return mu_error_code();
    draw(&p);
    if (p.status == MU_OK)
        return mu__file_commit(p.file);
    mu__file_abandon(p.file);
    return p.status;
}
