// Replaces groups of memory-bound ops by fused ops.
//
// Works on a copy of the graph, in this order: bias into convolution and matrix product; ReLU with the 2x2 max pool
// after it, and their gradients (the ReLU mask is applied after the pool, which commutes and needs a quarter of the
// data); the convolution of a first layer into the result; a remaining ReLU into the product before it. Each rewrite
// turns the last node of the group into the fused op; unused nodes are pruned at the end.
#include "engine/cpu/plan.h"
#include "engine/cpu/fusion.h"
#include "ops/nn/fused.h"

// The users of each node: lists in one array; graph outputs are flagged separately.
typedef struct users {
    int *first;         // [nodes + 1] into items
    mu_node **items;
    bool *is_output;    // [nodes]
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
    *u = (users){.first = mu__calloc(n + 2, sizeof *u->first), .items = mu__calloc(edges + 1, sizeof *u->items),
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

static mu_status fuse_bias(mu_graph *graph, const users *u)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        mu_node *bias = graph->nodes.items[i];
        mu_node *product = bias->op == &mu_op_bias_add ? bias->in[0].node : NULL;
        if (!product || !mu__dtype_is_float(bias->out[0].dtype) || !only_user(u, product, bias))
            continue;
        const mu_op *fused = product->op == &mu_op_conv2d   ? &mu_op_conv2d_bias
                             : product->op == &mu_op_matmul && product->out[0].shape.rank == 2 ? &mu_op_matmul_bias
                                                                                                 : NULL;
        mu_edge in[] = {product->n_in > 0 ? product->in[0] : (mu_edge){0},
                        product->n_in > 1 ? product->in[1] : (mu_edge){0}, bias->in[1]};
        if (fused)
            MU_TRY(mu__graph_rewrite(bias, fused, product->attrs, 3, in));
    }
    return MU_OK;
}

// Fuses a ReLU into a product with bias if it is the product's only user; its gradient needs only the result.
static mu_status fuse_relu(mu_graph *graph, const users *u)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        mu_node *relu = graph->nodes.items[i];
        const mu_node *product = relu->op == &mu_op_relu ? relu->in[0].node : NULL;
        if (!product || !only_user(u, product, relu))
            continue;
        if (product->op == &mu_op_conv2d_bias) {
            mu_conv_attrs attrs = *(const mu_conv_attrs *)product->attrs;
            attrs.relu = true;
            MU_TRY(mu__graph_rewrite(relu, &mu_op_conv2d_bias, &attrs, 3, product->in));
        } else if (product->op == &mu_op_matmul_bias) {
            mu_matmul_attrs attrs;
            memcpy(&attrs, product->attrs, sizeof attrs);
            attrs.relu = true;
            MU_TRY(mu__graph_rewrite(relu, &mu_op_matmul_bias, &attrs, 3, product->in));
        }
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
    mu_node *unpool;      // max_pool2d_grad; NULL in graphs without gradients
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

static mu_status fuse_relu_pool(mu_graph *graph, const users *u)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        relu_pool m;
        mu_node *pool = graph->nodes.items[i], *user;
        if (pool->op != &mu_op_max_pool2d || !match_relu_pool(u, pool, &m))
            continue;
        mu_edge x = m.relu->in[0];
        MU_TRY(mu__graph_rewrite(pool, &mu_op_relu_max_pool2d, NULL, 1, &x));
        if (!m.unpool)
            continue;
        mu_edge in[] = {m.unpool->in[0], {.node = pool, .output = 1}, x};
        MU_TRY(mu__graph_rewrite(m.relu_grad, &mu_op_relu_max_pool2d_grad, NULL, 3, in));
        MU_EACH_USER(u, m.relu_grad, user)  // the fused gradient also computes the bias gradient
            if (user->op == &mu_op_bias_add_grad)
                redirect(graph, user, (mu_edge){.node = m.relu_grad, .output = 1});
    }
    return MU_OK;
}

// ---- A first convolution with ReLU and pool -----------------------------------------------------

typedef struct first_layer {
    mu_node *conv, *pool;
    mu_node *unpool;        // relu_max_pool2d_grad
    mu_node *filter_grad;
} first_layer;

// The input channels of each group if the hand-written kernels support the convolution; otherwise 0.
static int64_t plain_channels(const mu_node *conv)
{
    const mu_shape *w = &conv->in[1].node->out[conv->in[1].output].shape;
    return mu__plain_convolution(conv->attrs) && w->dims[0] == w->dims[1] && w->dims[0] <= 7 ? w->dims[2] : 0;
}

static bool few_channels(const mu_node *conv)
{
    return plain_channels(conv) >= 1 && plain_channels(conv) <= 4;
}

// Matches if the convolution's input needs no gradient.
static bool match_first_layer(const users *u, mu_node *pool, first_layer *m)
{
    *m = (first_layer){.pool = pool, .conv = pool->in[0].node};
    mu_node *user;
    if (m->conv->op != &mu_op_conv2d_bias || u->is_output[m->conv->id] || !few_channels(m->conv))
        return false;
    MU_EACH_USER(u, m->conv, user) {
        if (user->op == &mu_op_relu_max_pool2d_grad && is_edge(user->in[2], m->conv, 0))
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
                if (is_edge(user->in[k], m->unpool, 0) || (is_edge(user->in[k], m->unpool, 1) && m->filter_grad &&
                                                           user->id < m->filter_grad->id))
                    return false;
    return m->filter_grad != NULL;
}

static mu_status fuse_first_layer(mu_graph *graph, const users *u)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        first_layer m;
        mu_node *pool = graph->nodes.items[i], *user;
        if (pool->op != &mu_op_relu_max_pool2d || !match_first_layer(u, pool, &m))
            continue;
        MU_TRY(mu__graph_rewrite(pool, &mu_op_conv2d_relu_pool, m.conv->attrs, 3, m.conv->in));
        if (!m.unpool)
            continue;
        mu_edge in[] = {m.conv->in[0], {.node = pool, .output = 1}, m.unpool->in[0], m.conv->in[1]};
        MU_TRY(mu__graph_rewrite(m.filter_grad, &mu_op_conv2d_relu_pool_grad, m.conv->attrs, 4, in));
        MU_EACH_USER(u, m.unpool, user)
            for (int k = 0; k < user->n_in; k++)
                if (is_edge(user->in[k], m.unpool, 1))
                    user->in[k] = (mu_edge){.node = m.filter_grad, .output = 1};
    }
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
    if (m->conv->op != &mu_op_conv2d_bias || u->is_output[unpool->id] || plain_channels(m->conv) < 1 ||
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
static bool all_behind(const users *u, const mu_node *node, const mu_node *place)
{
    mu_node *user;
    MU_EACH_USER(u, node, user)
        if (user->id < place->id)
            return false;
    return true;
}

static mu_status fuse_deep_layer(mu_graph *graph, const users *u)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        deep_layer m;
        mu_node *unpool = graph->nodes.items[i], *user;
        if (unpool->op != &mu_op_relu_max_pool2d_grad || !match_deep_layer(u, unpool, &m))
            continue;
        mu_node *place = m.input_grad->id < m.filter_grad->id ? m.input_grad : m.filter_grad;
        bool sums_behind = true;
        MU_EACH_USER(u, unpool, user)
            sums_behind &= user == m.filter_grad || user == m.input_grad || user->id > place->id;
        if (!sums_behind || !all_behind(u, m.filter_grad, place) || !all_behind(u, m.input_grad, place))
            continue;
        mu_edge in[] = {m.conv->in[0], m.conv->in[1], unpool->in[1], unpool->in[0]};
        const void *attrs = m.conv->attrs;
        redirect(graph, m.input_grad, (mu_edge){.node = place, .output = 2});
        if (place == m.input_grad)  // the node's first output is now the filter gradient
            redirect(graph, m.filter_grad, (mu_edge){.node = place, .output = 0});
        MU_EACH_USER(u, unpool, user)
            for (int k = 0; k < user->n_in; k++)
                if (is_edge(user->in[k], unpool, 1))
                    user->in[k] = (mu_edge){.node = place, .output = 1};
        MU_TRY(mu__graph_rewrite(place, &mu_op_conv2d_relu_pool_grads, attrs, 4, in));
    }
    return MU_OK;
}

// ---- All of them --------------------------------------------------------------------------------

mu_graph *mu__cpu_lower(const mu_graph *graph)
{
    static mu_status (*const rewrites[])(mu_graph *, const users *) = {fuse_bias, fuse_relu_pool, fuse_first_layer,
                                                                        fuse_deep_layer, fuse_relu};
    mu_graph *lowered = mu__graph_inline(graph, false);
    mu_status status = lowered ? MU_OK : mu_error_code();
    for (size_t i = 0; status == MU_OK && i < lowered->nodes.n; i++)
        status = mu__replace_bodies(lowered->nodes.items[i], mu__cpu_lower);
    for (size_t i = 0; i < MU_COUNT(rewrites) && status == MU_OK; i++) {
        users u;
        status = find_users(lowered, &u);
        if (status == MU_OK)
            status = rewrites[i](lowered, &u);
        free_users(&u);
        if (status == MU_OK)
            status = mu__pass_prune(lowered);
    }
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
