// The operations with which Keras computes masks, as far as they take part in the order of a model's operations.
//
// A layer that makes a mask leaves operations behind (keras.layers: Embedding and Masking a NotEqual, merging layers a
// LogicalOr); a layer that takes a mask has their result as an argument. Keras numbers them among the layers, so files
// that number layers need them, although Muster's layers compute masks by themselves.
#include "model/models/functional.h"
#include "model/layers/recurrent.h"
#include "model/models/model.h"
#include "model/training/training.h"

enum { UNKNOWN = -2, NONE = -1 }; // instead of the node of a mask

static int mask_at(const mu_order_graph *g, mu_order_tensor tensor)
{
    const mu_order_node *node = &g->nodes.items[tensor.node];
    return tensor.output < node->n_masked ? node->mask : NONE;
}

// Adds an operation that computes a mask from one or two nodes; returns its node, or NONE on error.
static int add_operation(mu_order_graph *g, int first, int second)
{
    mu_order_node node = {.mask = NONE};
    mu_status status = MU_PUSH(&node.parents, first);
    if (status == MU_OK && second != NONE)
        status = MU_PUSH(&node.parents, second);
    if (status == MU_OK)
        status = MU_PUSH(&g->nodes, node);
    if (status == MU_OK)
        return (int)g->nodes.n - 1;
    mu__free(node.parents.items);
    return NONE;
}

// The mask of all of several inputs: NONE if one has none.
static int joined(mu_order_graph *g, const mu_order_call *c)
{
    int mask = mask_at(g, c->inputs[0]);
    for (int i = 1; i < c->n_inputs && mask != NONE; i++) {
        const int other = mask_at(g, c->inputs[i]);
        mask = other == NONE ? NONE : mask == UNKNOWN || other == UNKNOWN ? UNKNOWN : add_operation(g, mask, other);
    }
    return mask;
}

static bool any_mask(const mu_order_graph *g, const mu_order_call *c)
{
    for (int i = 0; i < c->n_inputs; i++)
        if (mask_at(g, c->inputs[i]) != NONE)
            return true;
    return false;
}

// Whether Keras's class takes the masks of its inputs as the argument "mask". (A recurrent layer that is called with
// first states does not take that of the sequence.)
static bool takes_mask(const mu_layer *layer, int n_inputs)
{
    static const mu_layer_ops *const takers[] = {
        &mu__softmax_ops,          &mu__batch_normalization_ops, &mu__global_average_pool1d_ops, &mu__bidirectional_ops,
        &mu__time_distributed_ops, &mu__attention_ops,           &mu__additive_attention_ops};
    if (n_inputs > 1 && (layer->ops == &mu__bidirectional_ops || mu__recurrent_of(layer)))
        return false;
    for (size_t i = 0; i < MU_COUNT(takers); i++)
        if (layer->ops == takers[i])
            return true;
    return layer->trainer || mu__recurrent_of(layer);
}

bool mu__may_pass_mask(const mu_layer *layer)
{
    static const mu_layer_ops *const others[] = {&mu__concatenate_ops, &mu__attention_ops, &mu__additive_attention_ops};
    const mu_layer_ops *ops = layer->ops;
    const mu_recurrent *recurrent = mu__recurrent_of(ops == &mu__bidirectional_ops ? layer->sublayers.items[0] : layer);
    bool may = ops->passes_mask || layer->trainer || mu__layer_is_own(layer) || mu__takes_operands(ops);
    for (size_t i = 0; i < MU_COUNT(others); i++)
        may |= ops == others[i];
    return recurrent ? recurrent->sequences : may;
}

// The mask of the outputs that a call adds to the graph. Keras's multi-head attention takes the masks off the tensors
// that it is given, which then depend on the order of the program's calls.
static int made_mask(mu_order_graph *g, const mu_layer *layer, const mu_order_call *c)
{
    const mu_layer_ops *ops = layer->ops;
    const mu_recurrent *recurrent = mu__recurrent_of(ops == &mu__bidirectional_ops ? layer->sublayers.items[0] : layer);
    const int first = c->n_masks > 0 ? c->masks[0].node : mask_at(g, c->inputs[0]);
    if (ops == &mu__masking_ops) {
        const int unequal = add_operation(g, c->inputs[0].node, NONE);
        return unequal == NONE ? NONE : add_operation(g, unequal, NONE);
    }
    if (ops == &mu__embedding_ops)
        return ((const mu_embedding_args *)layer->args)->mask_zero ? add_operation(g, c->inputs[0].node, NONE) : NONE;
    if (ops == &mu__concatenate_ops)
        return any_mask(g, c) ? UNKNOWN : NONE;
    if (mu__takes_operands(ops))
        g->unknown |= any_mask(g, c);
    else if (recurrent)
        return recurrent->sequences ? first : NONE;
    else if (ops == &mu__attention_ops || ops == &mu__additive_attention_ops)
        return first >= 0 ? add_operation(g, first, NONE) : first; // convert_to_tensor
    else if (ops->passes_mask)
        return c->n_inputs > 1 ? joined(g, c) : first;
    return NONE;
}

static mu_status push_mask(mu_order_graph *g, mu_order_node *node, int mask)
{
    g->unknown |= mask == UNKNOWN;
    return mask >= 0 ? MU_PUSH(&node->parents, mask) : MU_OK;
}

// The arguments of a call: its inputs, then the masks.
static mu_status add_parents(mu_order_graph *g, const mu_layer *layer, const mu_order_call *c, mu_order_node *node)
{
    for (int i = 0; i < c->n_inputs; i++)
        MU_TRY(MU_PUSH(&node->parents, c->inputs[i].node));
    for (int i = 0; i < c->n_masks; i++)
        MU_TRY(MU_PUSH(&node->parents, c->masks[i].node));
    for (int i = 0; layer && c->n_masks == 0 && takes_mask(layer, c->n_inputs) && i < c->n_inputs; i++)
        MU_TRY(push_mask(g, node, mask_at(g, c->inputs[i])));
    return MU_OK;
}

// Whether two outputs have the mask: those of both directions.
static bool returns_both(const mu_layer *layer)
{
    return layer->ops == &mu__bidirectional_ops &&
           strcmp(((const mu_bidirectional_args *)layer->args)->merge_mode, "none") == 0;
}

mu_status mu__order_add(mu_order_graph *g, mu_layer *layer, const mu_layer_call *call, const mu_order_call *c, int *out)
{
    mu_order_node node = {.layer = layer, .call = call, .mask = NONE};
    mu_status status = add_parents(g, layer, c, &node);
    if (status == MU_OK && layer && c->n_inputs > 0)
        node.mask = made_mask(g, layer, c);
    node.n_masked = node.mask == NONE ? 0 : returns_both(layer) ? 2 : 1;
    status = mu__pending() ? mu_error_code() : status == MU_OK ? MU_PUSH(&g->nodes, node) : status;
    if (status != MU_OK)
        mu__free(node.parents.items);
    *out = (int)g->nodes.n - 1;
    return status;
}

void mu__order_free(mu_order_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        mu__free(g->nodes.items[i].parents.items);
    mu__free(g->nodes.items);
    *g = (mu_order_graph){0};
}
