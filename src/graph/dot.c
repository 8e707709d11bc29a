// A graph as a picture: DOT, the language of Graphviz. Values flow along solid arrows; dotted ones are the order of
// effects on a resource. The readable dump is mu__graph_print.
#include "graph/graph.h"

typedef struct picture {
    const mu_graph *graph;
    mu_file_writer *file;
    mu_status status;
} picture;

static void put(picture *p, const char *text)
{
    if (p->status == MU_OK)
        p->status = mu__file_write(p->file, text, strlen(text));
}

// Text inside quotes; names may come from files, so whatever is not plain becomes a space.
static void put_label(picture *p, const char *text)
{
    char safe[160];
    size_t n = 0;
    for (; text[n] && n < sizeof safe - 1; n++)
        safe[n] = (unsigned char)text[n] < ' ' || text[n] == '"' || text[n] == '\\' ? ' ' : text[n];
    safe[n] = 0;
    put(p, safe);
}

static void put_node(picture *p, const mu_node *node)
{
    char text[MU_SHAPE_TEXT + 80], shape[MU_SHAPE_TEXT];
    const bool effect = node->op->flags & (MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE);
    snprintf(text, sizeof text, "  n%d [label=\"", node->id);
    put(p, text);
    put_label(p, node->op->name);
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

static void put_edges(picture *p, const mu_node *node, int *last_effect)
{
    char text[120];
    for (int i = 0; i < node->n_in; i++) {
        const mu_node *from = node->in[i].node;
        if (from->n_out > 1)
            snprintf(text, sizeof text, "  n%d -> n%d [label=%d];\n", from->id, node->id, node->in[i].output);
        else
            snprintf(text, sizeof text, "  n%d -> n%d;\n", from->id, node->id);
        put(p, text);
    }
    for (int i = 0; i < node->n_resources; i++) {
        int *last = &last_effect[node->resources[i]];
        snprintf(text, sizeof text, "  n%d -> n%d [style=dotted];\n", *last - 1, node->id);
        if (*last > 0)
            put(p, text);
        *last = node->id + 1;
    }
}

static void draw(picture *p, int *last_effect)
{
    const mu_graph *graph = p->graph;
    char text[120];
    put(p, "digraph \"");
    put_label(p, graph->name);
    put(p, "\" {\n  node [shape=box];\n");
    for (size_t i = 0; i < graph->nodes.n; i++)
        put_node(p, graph->nodes.items[i]);
    for (size_t i = 0; i < graph->nodes.n; i++)
        put_edges(p, graph->nodes.items[i], last_effect);
    for (size_t i = 0; i < graph->outputs.n; i++) {
        snprintf(text, sizeof text, "  result%zu [shape=plaintext];\n  n%d -> result%zu;\n", i,
                 graph->outputs.items[i].node->id, i);
        put(p, text);
    }
    put(p, "}\n");
}

mu_status mu__graph_dot(const mu_graph *graph, const char *path)
{
    int *last_effect = mu__calloc(graph->resources.n + 1, sizeof *last_effect);  // node number + 1; 0: none
    picture p = {.graph = graph, .file = last_effect ? mu__file_create(path) : NULL};
    if (p.file)
        draw(&p, last_effect);
    mu__free(last_effect);
    if (!p.file)
        return mu_error_code();
    if (p.status == MU_OK)
        return mu__file_commit(p.file);
    mu__file_abandon(p.file);
    return p.status;
}
