// Replaces groups of memory-bound ops by fused ops, by a table of rules at the end of this file.
//
// Works on a copy of the graph. Each rule turns the last node of a group into the fused op; unused nodes are pruned
// after each rule.
#include "engine/cpu/fused_ops.h"
#include "engine/cpu/fusion.h"
#include "engine/cpu/plan.h"

// The users of each node: lists in one array; graph outputs are flagged separately.
typedef struct users {
    int *first; // [nodes + 1] into items
    mu_node **items;
    bool *is_output; // [nodes]
} users;

static void free_users(users *u)
{
    mu__free(u->first);
    mu__free(u->items);
    mu__free(u->is_output);
}

static mu_status find_users(const mu_graph *graph, users *u)
{
    size_t n = graph->nodes.n, edges = 0;
    for (size_t i = 0; i < n; i++)
        edges += (size_t)graph->nodes.items[i]->n_in;
    *u = (users){.first = mu__calloc(n + 2, sizeof *u->first),
                 .items = mu__calloc(edges + 1, sizeof *u->items),
                 .is_output = mu__calloc(n + 1, sizeof *u->is_output)};
    if (!u->first || !u->items || !u->is_output)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            u->first[graph->nodes.items[i]->in[k].node->id + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        u->first[i] += u->first[i - 1];
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            u->items[u->first[graph->nodes.items[i]->in[k].node->id + 1]++] = graph->nodes.items[i];
    for (size_t i = 0; i < graph->outputs.n; i++)
        u->is_output[graph->outputs.items[i].node->id] = true;
    return MU_OK;
}

#define MU_EACH_USER(u, node, user) \
    for (int i_ = (u)->first[(node)->id]; i_ < (u)->first[(node)->id + 1] && ((user) = (u)->items[i_], true); i_++)

static bool only_user(const users *u, const mu_node *node, const mu_node *user)
{
    return !u->is_output[node->id] && u->first[node->id + 1] - u->first[node->id] == 1 &&
           u->items[u->first[node->id]] == user;
}

static bool is_edge(mu_edge edge, const mu_node *node, int output)
{
    return edge.node == node && edge.output == output;
}

// ---- Bias into products -------------------------------------------------------------------------

// Products, and what they are with a bias.
static const struct biased_product {
    const mu_op *product, *biased;
    int rank; // of the result; 0: any
} biased_products[] = {
    {&mu_op_conv2d, &mu__op_conv2d_bias, 0},
    {&mu_op_matmul, &mu__op_matmul_bias, 2},
};

static mu_status fuse_bias(mu_graph *graph, const users *u, mu_node *bias)
{
    const mu_node *product = bias->in[0].node;
    (void)graph;
    if (!mu__dtype_is_float(bias->out[0].dtype) || !only_user(u, product, bias))
        return MU_OK;
    for (size_t i = 0; i < MU_COUNT(biased_products); i++) {
        const struct biased_product *known = &biased_products[i];
        if (product->op != known->product || (known->rank > 0 && product->out[0].shape.rank != known->rank))
            continue;
        const mu_edge in[] = {product->in[0], product->in[1], bias->in[1]};
        return mu__graph_rewrite(bias, known->biased, product->attrs, 3, in);
    }
    return MU_OK;
}

// Fuses a ReLU into a product with bias if it is the product's only user; its gradient needs only the result.
static mu_status fuse_relu(mu_graph *graph, const users *u, mu_node *relu)
{
    const mu_node *product = relu->in[0].node;
    (void)graph;
    if (!only_user(u, product, relu))
        return MU_OK;
    if (product->op == &mu__op_conv2d_bias) {
        mu_conv_attrs attrs = *(const mu_conv_attrs *)product->attrs;
        attrs.relu = true;
        return mu__graph_rewrite(relu, &mu__op_conv2d_bias, &attrs, 3, product->in);
    }
    if (product->op == &mu__op_matmul_bias) {
        mu_matmul_attrs attrs;
        memcpy(&attrs, product->attrs, sizeof attrs);
        attrs.relu = true;
        return mu__graph_rewrite(relu, &mu__op_matmul_bias, &attrs, 3, product->in);
    }
    return MU_OK;
}

// ---- ReLU and pool ------------------------------------------------------------------------------

static bool two_by_two(const mu_node *pool)
{
    const mu_pool_attrs *attrs = pool->attrs;
    return attrs->window.at[0] == 2 && attrs->window.at[1] == 2 && attrs->strides.at[0] == 2 &&
           attrs->strides.at[1] == 2 && strcmp(attrs->padding, "valid") == 0;
}

// A pool after a ReLU, and their gradient ops.
typedef struct relu_pool {
    mu_node *pool, *relu;
    mu_node *unpool; // max_pool2d_grad; NULL in graphs without gradients
    mu_node *relu_grad;
} relu_pool;

// Matches if only the pool and the two gradients use the ReLU's result.
static bool match_relu_pool(const users *u, mu_node *pool, relu_pool *m)
{
    *m = (relu_pool){.pool = pool, .relu = pool->in[0].node};
    mu_node *user;
    if (m->relu->op != &mu_op_relu || !two_by_two(pool) || u->is_output[m->relu->id] || pool->out[0].dtype != MU_F32)
        return false;
    MU_EACH_USER(u, m->relu, user) {
        if (user->op == &mu_op_max_pool2d_grad && is_edge(user->in[2], m->relu, 0) && is_edge(user->in[1], pool, 1))
            m->unpool = user;
        else if (user->op == &mu_op_relu_grad && is_edge(user->in[1], m->relu, 0))
            m->relu_grad = user;
        else if (user != pool)
            return false;
    }
    if (!m->unpool && !m->relu_grad)
        return true;
    return m->unpool && m->relu_grad && is_edge(m->relu_grad->in[0], m->unpool, 0) &&
           only_user(u, m->unpool, m->relu_grad);
}

// Replaces every use of output 0 of `from` by `to`.
static void redirect(mu_graph *graph, const mu_node *from, mu_edge to)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            if (is_edge(graph->nodes.items[i]->in[k], from, 0))
                graph->nodes.items[i]->in[k] = to;
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (is_edge(graph->outputs.items[i], from, 0))
            graph->outputs.items[i] = to;
}

// The ReLU mask is applied after the pool, which commutes and needs a quarter of the data.
static mu_status fuse_relu_pool(mu_graph *graph, const users *u, mu_node *pool)
{
    relu_pool m;
    mu_node *user;
    if (!match_relu_pool(u, pool, &m))
        return MU_OK;
    const mu_edge x = m.relu->in[0];
    MU_TRY(mu__graph_rewrite(pool, &mu__op_relu_max_pool2d, NULL, 1, &x));
    if (!m.unpool)
        return MU_OK;
    const mu_edge in[] = {m.unpool->in[0], {.node = pool, .output = 1}, x};
    MU_TRY(mu__graph_rewrite(m.relu_grad, &mu__op_relu_max_pool2d_grad, NULL, 3, in));
    MU_EACH_USER(u, m.relu_grad, user) // the fused gradient also computes the bias gradient
        if (user->op == &mu_op_bias_add_grad)
            redirect(graph, user, (mu_edge){.node = m.relu_grad, .output = 1});
    return MU_OK;
}

// ---- A first convolution with ReLU and pool -----------------------------------------------------

typedef struct first_layer {
    mu_node *conv, *pool;
    mu_node *unpool; // relu_max_pool2d_grad
    mu_node *filter_grad;
} first_layer;

// The input channels of each group if the hand-written kernels support the convolution; otherwise 0.
static int64_t plain_channels(const mu_node *conv)
{
    const mu_shape *w = &conv->in[1].node->out[conv->in[1].output].shape;
    return mu__plain_convolution(conv->attrs) && w->dims[0] == w->dims[1] && w->dims[0] <= 7 ? w->dims[2] : 0;
}

static bool few_channels(const mu_node *conv) { return plain_channels(conv) >= 1 && plain_channels(conv) <= 4; }

// Matches if the convolution's input needs no gradient.
static bool match_first_layer(const users *u, mu_node *pool, first_layer *m)
{
    *m = (first_layer){.pool = pool, .conv = pool->in[0].node};
    mu_node *user;
    if (m->conv->op != &mu__op_conv2d_bias || u->is_output[m->conv->id] || !few_channels(m->conv))
        return false;
    MU_EACH_USER(u, m->conv, user) {
        if (user->op == &mu__op_relu_max_pool2d_grad && is_edge(user->in[2], m->conv, 0))
            m->unpool = user;
        else if (user != pool)
            return false;
    }
    if (!m->unpool)
        return true;
    if (u->is_output[m->unpool->id])
        return false;
    MU_EACH_USER(u, m->unpool, user)
        if (user->op == &mu_op_conv2d_filter_grad && is_edge(user->in[1], m->unpool, 0))
            m->filter_grad = user;
    MU_EACH_USER(u, m->unpool, user)
        if (user != m->filter_grad)
            for (int k = 0; k < user->n_in; k++)
                if (is_edge(user->in[k], m->unpool, 0) ||
                    (is_edge(user->in[k], m->unpool, 1) && m->filter_grad && user->id < m->filter_grad->id))
                    return false;
    return m->filter_grad != NULL;
}

static mu_status fuse_first_layer(mu_graph *graph, const users *u, mu_node *pool)
{
    first_layer m;
    mu_node *user;
    (void)graph;
    if (!match_first_layer(u, pool, &m))
        return MU_OK;
    MU_TRY(mu__graph_rewrite(pool, &mu__op_conv2d_relu_pool, m.conv->attrs, 3, m.conv->in));
    if (!m.unpool)
        return MU_OK;
    const mu_edge in[] = {m.conv->in[0], {.node = pool, .output = 1}, m.unpool->in[0], m.conv->in[1]};
    MU_TRY(mu__graph_rewrite(m.filter_grad, &mu__op_conv2d_relu_pool_grad, m.conv->attrs, 4, in));
    MU_EACH_USER(u, m.unpool, user)
        for (int k = 0; k < user->n_in; k++)
            if (is_edge(user->in[k], m.unpool, 1))
                user->in[k] = (mu_edge){.node = m.filter_grad, .output = 1};
    return MU_OK;
}

// ---- All gradients of a deeper convolution at once ----------------------------------------------

typedef struct deep_layer {
    mu_node *conv;
    mu_node *filter_grad, *input_grad;
} deep_layer;

// Matches if only the two gradients of the convolution use the unpooled gradient.
static bool match_deep_layer(const users *u, const mu_node *unpool, deep_layer *m)
{
    *m = (deep_layer){.conv = unpool->in[2].node};
    mu_node *user;
    if (m->conv->op != &mu__op_conv2d_bias || u->is_output[unpool->id] || plain_channels(m->conv) < 1 ||
        plain_channels(m->conv) % 16 != 0)
        return false;
    MU_EACH_USER(u, unpool, user) {
        if (user->op == &mu_op_conv2d_filter_grad && is_edge(user->in[1], unpool, 0))
            m->filter_grad = user;
        else if (user->op == &mu_op_conv2d_input_grad && is_edge(user->in[0], unpool, 0))
            m->input_grad = user;
        else
            for (int k = 0; k < user->n_in; k++)
                if (is_edge(user->in[k], unpool, 0))
                    return false;
    }
    return m->filter_grad && m->input_grad;
}

// All users must come after the node that will compute the sums.
static bool all_behind(const users *u, const mu_node *node, const mu_node *rewritten)
{
    mu_node *user;
    MU_EACH_USER(u, node, user)
        if (user->id < rewritten->id)
            return false;
    return true;
}

static mu_status fuse_deep_layer(mu_graph *graph, const users *u, mu_node *unpool)
{
    deep_layer m;
    mu_node *user;
    if (!match_deep_layer(u, unpool, &m))
        return MU_OK;
    mu_node *rewritten = m.input_grad->id < m.filter_grad->id ? m.input_grad : m.filter_grad;
    bool sums_behind = true;
    MU_EACH_USER(u, unpool, user)
        sums_behind &= user == m.filter_grad || user == m.input_grad || user->id > rewritten->id;
    if (!sums_behind || !all_behind(u, m.filter_grad, rewritten) || !all_behind(u, m.input_grad, rewritten))
        return MU_OK;
    const mu_edge in[] = {m.conv->in[0], m.conv->in[1], unpool->in[1], unpool->in[0]};
    const void *attrs = m.conv->attrs;
    redirect(graph, m.input_grad, (mu_edge){.node = rewritten, .output = 2});
    if (rewritten == m.input_grad) // the node's first output is now the filter gradient
        redirect(graph, m.filter_grad, (mu_edge){.node = rewritten, .output = 0});
    MU_EACH_USER(u, unpool, user)
        for (int k = 0; k < user->n_in; k++)
            if (is_edge(user->in[k], unpool, 1))
                user->in[k] = (mu_edge){.node = rewritten, .output = 1};
    return mu__graph_rewrite(rewritten, &mu__op_conv2d_relu_pool_grads, attrs, 4, in);
}

// ---- The rules ----------------------------------------------------------------------------------

// A rule looks at every node of the op `last`; `apply` rewrites the graph if the node ends a group that matches. Rules
// run in this order, each over the whole graph.
typedef struct rule {
    const mu_op *last;
    mu_status (*apply)(mu_graph *graph, const users *u, mu_node *node);
} rule;
static const rule rules[] = {
    {&mu_op_bias_add, fuse_bias},                    // bias into a convolution or matrix product
    {&mu_op_max_pool2d, fuse_relu_pool},             // ReLU and 2x2 max pool, and their gradients
    {&mu__op_relu_max_pool2d, fuse_first_layer},     // first convolution, ReLU and pool
    {&mu__op_relu_max_pool2d_grad, fuse_deep_layer}, // all gradients of a deeper convolution, ReLU and pool
    {&mu_op_relu, fuse_relu},                        // ReLU into a product with bias
};

static mu_status apply_rule(mu_graph *graph, const rule *applied)
{
    users u;
    mu_status status = find_users(graph, &u);
    for (size_t i = 0; i < graph->nodes.n && status == MU_OK; i++)
        if (graph->nodes.items[i]->op == applied->last)
            status = applied->apply(graph, &u, graph->nodes.items[i]);
    free_users(&u);
    return status == MU_OK ? mu__pass_prune(graph) : status;
}

mu_graph *mu__cpu_lower(const mu_graph *graph)
{
    mu_graph *lowered = mu__graph_inline(graph, false);
    mu_status status = lowered ? MU_OK : mu_error_code();
    for (size_t i = 0; status == MU_OK && i < lowered->nodes.n; i++)
        status = mu__replace_bodies(lowered->nodes.items[i], mu__cpu_lower);
    for (size_t i = 0; i < MU_COUNT(rules) && status == MU_OK; i++)
        status = apply_rule(lowered, &rules[i]);
    if (status == MU_OK && mu__setting_bool(MU_SETTING_FUSION))
        status = mu__fusion_fuse(lowered);
    if (status == MU_OK)
        status = mu__graph_assert(lowered);
    if (status == MU_OK) {
        if (mu__log_enabled(MU_LOG_DEBUG))
            mu__graph_print(lowered, stderr);
        return lowered;
    }
    mu_release(lowered);
    return NULL;
}
