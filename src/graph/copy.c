// Copying one graph into another: see copy.h. The caller chooses which nodes are copied, and which values replace the
// others.
#include "graph/copy.h"

mu_status mu__copy_begin(mu_copying *c, const mu_graph *from, mu_graph *to)
{
    size_t n = 0;
    *c = (mu_copying){.from = from, .to = to, .first = mu__calloc(from->nodes.n + 1, sizeof *c->first)};
    for (size_t i = 0; c->first && i < from->nodes.n; i++) {
        c->first[i] = (int)n;
        n += (size_t)from->nodes.items[i]->n_out;
    }
    c->values = c->first ? mu__calloc(n + 1, sizeof *c->values) : NULL;
    return c->values ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__copy_end(mu_copying *c)
{
    mu__free(c->first);
    mu__free(c->values);
}

mu_edge *mu__copied_value(const mu_copying *c, const mu_node *node, int output)
{
    return &c->values[c->first[node->id] + output];
}

mu_edge *mu__copy_inputs(const mu_copying *c, const mu_node *node, int more)
{
    mu_edge *in = mu__calloc((size_t)(node->n_in + more) + 1, sizeof *in);
    for (int i = 0; in && i < node->n_in; i++)
        in[i] = *mu__copied_value(c, node->in[i].node, node->in[i].output);
    return in;
}

static mu_node *dressed(const mu_copying *c, const mu_node *node, mu_node *copy)
{
    if (!copy)
        return NULL;
    copy->name = node->name ? mu__arena_strdup(&c->to->arena, node->name) : NULL;
    copy->number = node->number;
    return mu__node_set_site(copy, mu__node_site(node)) == MU_OK ? copy : NULL;
}

mu_node *mu__copy_node(const mu_copying *c, const mu_node *node, const mu_op *op, const void *attrs, int n_in,
                       const mu_edge *in)
{
    return dressed(c, node, mu__graph_node(c->to, op, attrs, n_in, in, 0, NULL));
}

mu_status mu__copy_plain(const mu_copying *c, const mu_node *node, const mu_edge *in)
{
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof *resources);
    mu_node *copy = NULL;
    for (int i = 0; resources && i < node->n_resources; i++)
        resources[i] = c->from->resources.items[node->resources[i]];
    if (resources)
        copy = dressed(c, node,
                       mu__graph_node(c->to, node->op, node->attrs, node->n_in, in, node->n_resources, resources));
    mu__free(resources);
    for (int k = 0; copy && k < node->n_out; k++)
        *mu__copied_value(c, node, k) = (mu_edge){.node = copy, .output = k};
    return copy ? MU_OK : mu_error_code();
}
