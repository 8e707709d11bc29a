// Effects on resources that another process keeps, as steps of a plan: the op is sent there with its inputs.
//
// Only bodies (branches and loops) have such steps: outside of them the caller that runs the graph applies effects
// itself (graph/passes/segments.h).
#include "engine/cpu/plan.h"

bool mu__is_remote_effect(const mu_graph *graph, const mu_node *node)
{
    return node->n_resources > 0 && (node->op->flags & MU_OP_CONTROL) == 0 &&
           graph->resources.items[node->resources[0]]->kind->apply != NULL;
}

static mu_tensor *copy_of(const mu_view *view)
{
    const mu_spec spec = {.dtype = view->dtype, .shape = view->shape};
    mu_tensor *tensor = mu__give(mu__tensor_alloc(view->dtype, &view->shape));
    if (tensor)
        memcpy(mu__host_write(tensor), view->data, mu__spec_bytes(&spec));
    return tensor;
}

mu_status mu__remote_effect_apply(const mu_graph *graph, const mu_node *node, const mu_kernel *kernel, mu_tensor **out)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor **in = mu__calloc((size_t)node->n_in + 1, sizeof *in);
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof(mu_resource *));
    for (int i = 0; in && i < node->n_in; i++)
        in[i] = copy_of(&kernel->in[i]);
    for (int r = 0; resources && r < node->n_resources; r++)
        resources[r] = graph->resources.items[node->resources[r]];
    const mu_status status = in && resources
                                 ? mu__apply(node->op, node->attrs, node->n_in, in, node->n_resources, resources, out)
                                 : MU_RESOURCE_EXHAUSTED;
    for (int k = 0; status == MU_OK && k < node->n_out; k++)
        mu_retain(out[k]);
    mu__free(in);
    mu__free(resources);
    mu_pool_close(pool);
    return status;
}

static mu_status take(const mu_node *node, const mu_tensor *result, const mu_view *destination)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    const mu_spec spec = mu__spec_of(result);
    if (result->dtype != destination->dtype || !mu__shape_equal(&result->shape, &destination->shape))
        return mu__error(MU_DATA_LOSS, "%s returned a tensor of shape %s from another process; the plan expects %s",
                         node->op->name, mu__shape_text(&result->shape, seen),
                         mu__shape_text(&destination->shape, wanted));
    memcpy(destination->data, mu__host_read(result), mu__spec_bytes(&spec));
    return MU_OK;
}

mu_status mu__remote_effect_run(const mu_graph *graph, const mu_node *node, const mu_kernel *kernel)
{
    mu_tensor **out = mu__calloc((size_t)node->n_out + 1, sizeof *out);
    mu_status status = out ? mu__remote_effect_apply(graph, node, kernel, out) : MU_RESOURCE_EXHAUSTED;
    for (int k = 0; out && k < node->n_out; k++) {
        if (status == MU_OK)
            status = take(node, out[k], &kernel->out[k]);
        mu_release(out[k]);
    }
    mu__free(out);
    return status;
}
