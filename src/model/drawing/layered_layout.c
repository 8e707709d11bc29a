// Draws a graph in layers, with Sugiyama's method (Sugiyama, Tagawa, Toda: "Methods for visual understanding of
// hierarchical system structures", 1981).
//
// A node's layer is one below the lowest node that leads to it. An edge that passes layers has a vertex in each. Sweeps
// order the vertices of each layer by the mean position of their neighbours, and keep the order with the fewest
// crossings. Then each vertex is drawn to its neighbours, as far as the layer's other vertices allow it: nodes not to
// edges that only skip layers, so that the main path is straight and these edges go around it.
#include "model/drawing/layered_layout.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_VERTICES = 1000000, ORDER_SWEEPS = 24, MOST_SWITCHES = 16 };
static const double node_gap = 28, edge_gap = 18, layer_gap = 30, most_extra_gap = 48, port_gap = 12;
static const double node_weight = 1e4; // of a node's target, relative to that of an edge

typedef struct vertex {
    double width, x;
    int layer, position; // position in its layer, from the left
    int chain;           // the first vertex of a chain: what follows one another without a branch is drawn straight
    bool node;           // else it stands for an edge that passes the layer
    bool solid;          // its chain has a node
} vertex;

typedef struct segment {
    int end[2]; // vertices of neighbouring layers: above, below
} segment;

// Neighbours of vertex v on one side: items[first[v]] to items[first[v + 1] - 1].
typedef struct neighbours {
    int *first, *items;
} neighbours;

typedef struct network {
    struct {
        vertex *items;
        size_t n, capacity;
    } vertices; // those of the nodes first
    struct {
        segment *items;
        size_t n, capacity;
    } segments;
    int *first_vertex;  // [edges] of those that an edge has in the layers that it passes
    neighbours side[2]; // above, below
    int n_layers;
    int *first_in_layer;  // [n_layers + 1]
    int *order;           // vertices by layer and position
    double *top, *bottom; // [n_layers]
    double *work;         // 4 numbers for each vertex
} network;

// ---- Layers -------------------------------------------------------------------------------------

// Moves nodes without a predecessor to where they are needed.
static mu_status move_sources(const mu_layout *layout, vertex *v)
{
    int *needed = mu__calloc(layout->nodes.n + 1, sizeof *needed); // 0: nowhere; -1: it has a predecessor
    if (!needed)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < layout->edges.n; i++)
        needed[layout->edges.items[i].to] = -1;
    for (size_t i = 0; i < layout->edges.n; i++) {
        const mu_layout_edge *edge = &layout->edges.items[i];
        int *least = &needed[edge->from];
        if (*least >= 0)
            *least = *least ? MU_MIN(*least, v[edge->to].layer) : v[edge->to].layer;
    }
    for (size_t n = 0; n < layout->nodes.n; n++)
        if (needed[n] > 0 && layout->nodes.items[n].pin == MU_PIN_NONE)
            v[n].layer = needed[n] - 1;
    mu__free(needed);
    return MU_OK;
}

static mu_status choose_layers(const mu_layout *layout, network *net)
{
    vertex *v = net->vertices.items;
    for (size_t i = 0; i < layout->edges.n; i++) {
        const mu_layout_edge *edge = &layout->edges.items[i];
        assert(edge->from < edge->to && (i == 0 || layout->edges.items[i - 1].to <= edge->to));
        v[edge->to].layer = MU_MAX(v[edge->to].layer, v[edge->from].layer + 1);
    }
    MU_TRY(move_sources(layout, v));
    for (size_t n = 0; n < layout->nodes.n; n++)
        net->n_layers = MU_MAX(net->n_layers, v[n].layer + 1);
    for (size_t n = 0; n < layout->nodes.n; n++)
        if (layout->nodes.items[n].pin == MU_PIN_LAST)
            v[n].layer = net->n_layers - 1;
    return MU_OK;
}

// Adds the vertices and segments of an edge.
static mu_status cut_edge(network *net, const mu_layout_edge *edge, int *first_vertex)
{
    int above = edge->from;
    *first_vertex = (int)net->vertices.n;
    for (int layer = net->vertices.items[edge->from].layer + 1; layer < net->vertices.items[edge->to].layer; layer++) {
        if (net->vertices.n >= MOST_VERTICES)
            return mu__error(MU_RESOURCE_EXHAUSTED,
                             "the graph is too large to be drawn: its edges pass more than %d layers in total",
                             MOST_VERTICES);
        MU_TRY(MU_PUSH(&net->vertices, ((vertex){.layer = layer})));
        MU_TRY(MU_PUSH(&net->segments, ((segment){{above, (int)net->vertices.n - 1}})));
        above = (int)net->vertices.n - 1;
    }
    return MU_PUSH(&net->segments, ((segment){{above, edge->to}}));
}

static mu_status find_neighbours(const network *net, int side, neighbours *out)
{
    out->first = mu__calloc(net->vertices.n + 2, sizeof *out->first);
    out->items = mu__calloc(net->segments.n + 1, sizeof *out->items);
    if (!out->first || !out->items)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < net->segments.n; i++)
        out->first[net->segments.items[i].end[!side] + 2]++;
    for (size_t v = 2; v < net->vertices.n + 2; v++)
        out->first[v] += out->first[v - 1];
    for (size_t i = 0; i < net->segments.n; i++) {
        const segment *s = &net->segments.items[i];
        out->items[out->first[s->end[!side] + 1]++] = s->end[side];
    }
    return MU_OK;
}

static int layer_size(const network *net, int layer)
{
    return net->first_in_layer[layer + 1] - net->first_in_layer[layer];
}

static int *layer_order(const network *net, int layer) { return net->order + net->first_in_layer[layer]; }

static void number_positions(network *net)
{
    for (int layer = 0; layer < net->n_layers; layer++)
        for (int i = 0; i < layer_size(net, layer); i++)
            net->vertices.items[layer_order(net, layer)[i]].position = i;
}

// The first order of each layer: as the vertices are numbered, so edges are to the right of nodes.
static mu_status list_layers(network *net)
{
    net->first_in_layer = mu__calloc((size_t)net->n_layers + 2, sizeof *net->first_in_layer);
    net->order = mu__calloc(net->vertices.n + 1, sizeof *net->order);
    net->top = mu__calloc(2 * (size_t)net->n_layers + 1, sizeof *net->top);
    net->work = mu__calloc(4 * net->vertices.n + 4, sizeof *net->work);
    if (!net->first_in_layer || !net->order || !net->top || !net->work)
        return MU_RESOURCE_EXHAUSTED;
    net->bottom = net->top + net->n_layers;
    for (size_t v = 0; v < net->vertices.n; v++)
        net->first_in_layer[net->vertices.items[v].layer + 2]++;
    for (int layer = 2; layer < net->n_layers + 2; layer++)
        net->first_in_layer[layer] += net->first_in_layer[layer - 1];
    for (size_t v = 0; v < net->vertices.n; v++) {
        int *next = &net->first_in_layer[net->vertices.items[v].layer + 1];
        net->order[(*next)++] = (int)v;
    }
    number_positions(net);
    return MU_OK;
}

static mu_status make_network(const mu_layout *layout, network *net)
{
    for (size_t n = 0; n < layout->nodes.n; n++)
        MU_TRY(MU_PUSH(&net->vertices, ((vertex){.width = layout->nodes.items[n].width, .node = true})));
    MU_TRY(choose_layers(layout, net));
    net->first_vertex = mu__calloc(layout->edges.n + 1, sizeof *net->first_vertex);
    if (!net->first_vertex)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < layout->edges.n; i++)
        MU_TRY(cut_edge(net, &layout->edges.items[i], &net->first_vertex[i]));
    MU_TRY(find_neighbours(net, 0, &net->side[0]));
    MU_TRY(find_neighbours(net, 1, &net->side[1]));
    return list_layers(net);
}

static void free_network(network *net)
{
    mu__free(net->vertices.items);
    mu__free(net->segments.items);
    mu__free(net->first_vertex);
    for (int side = 0; side < 2; side++) {
        mu__free(net->side[side].first);
        mu__free(net->side[side].items);
    }
    mu__free(net->first_in_layer);
    mu__free(net->order);
    mu__free(net->top);
    mu__free(net->work);
}

// ---- Order --------------------------------------------------------------------------------------

// Crossings between the edges of two vertices on one side, with `left` to the left of `right`.
static int64_t pair_crossings(const network *net, int side, int left, int right)
{
    const neighbours *near = &net->side[side];
    int64_t sum = 0;
    for (int i = near->first[left]; i < near->first[left + 1]; i++)
        for (int k = near->first[right]; k < near->first[right + 1]; k++)
            sum += net->vertices.items[near->items[i]].position > net->vertices.items[near->items[k]].position;
    return sum;
}

// Crossings below a layer. A Fenwick tree counts the ends further to the right among those of the vertices before.
static int64_t layer_crossings(const network *net, int layer)
{
    const neighbours *below = &net->side[1];
    const int n = layer_size(net, layer), wide = layer_size(net, layer + 1);
    double *tree = net->work;
    int64_t sum = 0, seen = 0;
    memset(tree, 0, ((size_t)wide + 1) * sizeof *tree);
    for (int i = 0; i < n; i++) {
        const int v = layer_order(net, layer)[i];
        for (int k = below->first[v]; k < below->first[v + 1]; k++) {
            sum += seen;
            for (int at = net->vertices.items[below->items[k]].position + 1; at > 0; at -= at & -at)
                sum -= (int64_t)tree[at];
        }
        for (int k = below->first[v]; k < below->first[v + 1]; k++, seen++)
            for (int at = net->vertices.items[below->items[k]].position + 1; at <= wide; at += at & -at)
                tree[at]++;
    }
    return sum;
}

static int64_t count_crossings(const network *net)
{
    int64_t sum = 0;
    for (int layer = 0; layer + 1 < net->n_layers; layer++)
        sum += layer_crossings(net, layer);
    return sum;
}

typedef struct ranked {
    double key;
    int position, v;
} ranked;

static int by_key(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key ? 1 : a->position - b->position;
}

// Orders a layer by the mean places of the vertices' neighbours on one side.
static void order_layer(network *net, int layer, int side)
{
    const neighbours *near = &net->side[side];
    ranked *list = (ranked *)net->work;
    const int n = layer_size(net, layer);
    for (int i = 0; i < n; i++) {
        const int v = layer_order(net, layer)[i], first = near->first[v], end = near->first[v + 1];
        double sum = 0;
        for (int k = first; k < end; k++)
            sum += net->vertices.items[near->items[k]].position;
        list[i] = (ranked){.key = end > first ? sum / (end - first) : i, .position = i, .v = v};
    }
    qsort(list, (size_t)n, sizeof *list, by_key);
    for (int i = 0; i < n; i++) {
        layer_order(net, layer)[i] = list[i].v;
        net->vertices.items[list[i].v].position = i;
    }
}

static bool switch_pair(network *net, int layer, int i)
{
    int *order = layer_order(net, layer);
    const int left = order[i], right = order[i + 1];
    const int64_t now = pair_crossings(net, 0, left, right) + pair_crossings(net, 1, left, right);
    if (now == 0 || pair_crossings(net, 0, right, left) + pair_crossings(net, 1, right, left) >= now)
        return false;
    order[i] = right;
    order[i + 1] = left;
    net->vertices.items[left].position = i + 1;
    net->vertices.items[right].position = i;
    return true;
}

// Exchanges neighbours in a layer as long as that removes crossings.
static void switch_pairs(network *net)
{
    bool better = true;
    for (int pass = 0; better && pass < MOST_SWITCHES; pass++) {
        better = false;
        for (int layer = 0; layer < net->n_layers; layer++)
            for (int i = 0; i + 1 < layer_size(net, layer); i++)
                better |= switch_pair(net, layer, i);
    }
}

static mu_status choose_order(network *net)
{
    const size_t bytes = net->vertices.n * sizeof *net->order;
    int *best = mu__alloc(bytes);
    if (!best)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(best, net->order, bytes);
    int64_t fewest = count_crossings(net);
    for (int sweep = 0; sweep < ORDER_SWEEPS && fewest > 0; sweep++) {
        const int side = sweep % 2;
        for (int i = 1; i < net->n_layers; i++)
            order_layer(net, side ? net->n_layers - 1 - i : i, side);
        switch_pairs(net);
        const int64_t crossings = count_crossings(net);
        if (crossings < fewest) {
            fewest = crossings;
            memcpy(best, net->order, bytes);
        }
    }
    memcpy(net->order, best, bytes);
    number_positions(net);
    mu__free(best);
    return MU_OK;
}

// ---- Places -------------------------------------------------------------------------------------

static double distance(const vertex *left, const vertex *right)
{
    return (left->width + right->width) / 2 + (left->node && right->node ? node_gap : edge_gap);
}

// The mean of the neighbours on one side, those of chains with nodes only or all. NaN: there are none.
static double mean_of(const network *net, int v, int side, bool solid)
{
    const neighbours *near = &net->side[side];
    double sum = 0;
    int n = 0;
    for (int i = near->first[v]; i < near->first[v + 1]; i++) {
        const vertex *other = &net->vertices.items[near->items[i]];
        if (solid && !other->solid)
            continue;
        sum += other->x;
        n++;
    }
    return n ? sum / n : NAN;
}

// Moves a layer's vertices apart that are too close, as little as possible: the least sum of weighted squares, by
// joining neighbours into blocks ("pool adjacent violators").
static void part_layer(network *net, int layer)
{
    const int n = layer_size(net, layer), *order = layer_order(net, layer);
    double *mean = net->work, *weight = mean + net->vertices.n, *count = weight + net->vertices.n, offset = 0;
    int blocks = 0;
    for (int i = 0; i < n; i++) {
        const vertex *v = &net->vertices.items[order[i]];
        if (i > 0)
            offset += distance(&net->vertices.items[order[i - 1]], v);
        mean[blocks] = v->x - offset;
        weight[blocks] = v->node ? node_weight : 1;
        count[blocks++] = 1;
        for (; blocks > 1 && mean[blocks - 2] > mean[blocks - 1]; blocks--) {
            const double both = weight[blocks - 2] + weight[blocks - 1];
            mean[blocks - 2] = (mean[blocks - 2] * weight[blocks - 2] + mean[blocks - 1] * weight[blocks - 1]) / both;
            weight[blocks - 2] = both;
            count[blocks - 2] += count[blocks - 1];
        }
    }
    offset = 0;
    for (int i = 0, block = 0, used = 0; i < n; i++, used++) {
        vertex *v = &net->vertices.items[order[i]];
        if (i > 0)
            offset += distance(&net->vertices.items[order[i - 1]], v);
        if (used == (int)count[block]) {
            block++;
            used = 0;
        }
        v->x = mean[block] + offset;
    }
}

// Begins with every layer packed around the middle.
static void pack_layer(network *net, int layer)
{
    const int n = layer_size(net, layer), *order = layer_order(net, layer);
    double x = 0;
    for (int i = 0; i < n; i++) {
        vertex *v = &net->vertices.items[order[i]];
        x += i ? distance(&net->vertices.items[order[i - 1]], v) : 0;
        v->x = x;
    }
    for (int i = 0; i < n; i++)
        net->vertices.items[order[i]].x -= x / 2;
}

static void find_chains(network *net)
{
    const neighbours *above = &net->side[0], *below = &net->side[1];
    for (size_t v = 0; v < net->vertices.n; v++)
        net->vertices.items[v].chain = (int)v;
    for (int i = 0; i < (int)net->vertices.n; i++) {
        const int v = net->order[i];
        if (below->first[v + 1] - below->first[v] != 1)
            continue;
        const int next = below->items[below->first[v]];
        if (above->first[next + 1] - above->first[next] == 1)
            net->vertices.items[next].chain = net->vertices.items[v].chain;
    }
    for (size_t v = 0; v < net->vertices.n; v++)
        net->vertices.items[net->vertices.items[v].chain].solid |= net->vertices.items[v].node;
    for (size_t v = 0; v < net->vertices.n; v++)
        net->vertices.items[v].solid = net->vertices.items[net->vertices.items[v].chain].solid;
}

static void straighten_chains(network *net)
{
    double *sum = net->work, *weight = sum + net->vertices.n;
    memset(sum, 0, 2 * net->vertices.n * sizeof *sum);
    for (size_t i = 0; i < net->vertices.n; i++) {
        const vertex *v = &net->vertices.items[i];
        const double counts = v->node ? node_weight : 1;
        sum[v->chain] += counts * v->x;
        weight[v->chain] += counts;
    }
    for (size_t i = 0; i < net->vertices.n; i++) {
        vertex *v = &net->vertices.items[i];
        v->x = sum[v->chain] / weight[v->chain];
    }
}

// The neighbours' mean on one side; if the chain has nodes, then of chains with nodes, if there are any.
static double side_of(const network *net, int v, int side)
{
    const double solid = net->vertices.items[v].solid ? mean_of(net, v, side, true) : NAN;
    return isnan(solid) ? mean_of(net, v, side, false) : solid;
}

static bool has_solid(const network *net, int v, int side)
{
    return !net->vertices.items[v].solid || !isnan(mean_of(net, v, side, true));
}

// How far a chain could move to the left and to the right: half of the free space, as its neighbour may move too.
static void measure_space(const network *net, double *left, double *right)
{
    for (size_t i = 0; i < net->vertices.n; i++)
        left[i] = right[i] = INFINITY;
    for (int layer = 0; layer < net->n_layers; layer++)
        for (int i = 0; i + 1 < layer_size(net, layer); i++) {
            const vertex *v = &net->vertices.items[layer_order(net, layer)[i]];
            const vertex *next = &net->vertices.items[layer_order(net, layer)[i + 1]];
            const double space = fmax(0, next->x - v->x - distance(v, next)) / 2;
            right[v->chain] = fmin(right[v->chain], space);
            left[next->chain] = fmin(left[next->chain], space);
        }
}

// Moves chains towards the middle between what is above them and what is below them, `apart`: as far as there is space.
// Returns the largest move.
static double attract_chains(network *net, bool apart)
{
    double *above = net->work, *below = above + net->vertices.n, *left = below + net->vertices.n;
    double *right = left + net->vertices.n, most = 0;
    measure_space(net, left, right);
    for (int i = 0; i < (int)net->vertices.n; i++) {
        const int v = net->order[i], chain = net->vertices.items[v].chain;
        if (v == chain)
            above[chain] = has_solid(net, v, 0) ? side_of(net, v, 0) : NAN;
        below[chain] = has_solid(net, v, 1) ? side_of(net, v, 1) : NAN; // the last vertex counts
    }
    for (size_t i = 0; i < net->vertices.n; i++) {
        vertex *v = &net->vertices.items[i];
        const double up = above[v->chain], down = below[v->chain];
        const double target = isnan(up) ? down : isnan(down) ? up : (up + down) / 2;
        double move = isnan(target) ? 0 : .6 * (target - v->x);
        if (apart)
            move = fmax(-left[v->chain], fmin(right[v->chain], move));
        most = fmax(most, fabs(move));
        v->x += move;
    }
    return most;
}

static void part_all(network *net)
{
    for (int layer = 0; layer < net->n_layers; layer++)
        part_layer(net, layer);
}

static void place_vertices(network *net)
{
    find_chains(net);
    for (int layer = 0; layer < net->n_layers; layer++)
        pack_layer(net, layer);
    const int sweeps = (int)MU_MAX(20, MU_MIN(400, 20000000 / (int64_t)(net->vertices.n + 1)));
    for (int sweep = 0; sweep < sweeps && attract_chains(net, false) > .01; sweep++)
        for (int i = 0; i < 2; i++) {
            part_all(net);
            straighten_chains(net);
        }
    // Chains become straight and far enough from each other, or bend where they cannot be both.
    for (int sweep = 0; sweep < sweeps; sweep++) {
        straighten_chains(net);
        part_all(net);
    }
    for (int sweep = 0; sweep < sweeps && attract_chains(net, true) > .01; sweep++)
        ;
}

// ---- Coordinates --------------------------------------------------------------------------------

// Spreads the ends of edges on one side of a node, in the order of their other ends. An edge that is straight stays in
// the middle.
typedef struct port {
    double far, *at;
} port;

static int by_far(const void *left, const void *right)
{
    const port *a = left, *b = right;
    return a->far < b->far ? -1 : a->far > b->far;
}

static void spread_ports(int n, port *ports, const vertex *node)
{
    const double step = n > 1 ? fmin(port_gap, node->width * .4 / (n - 1)) : 0;
    double middle = (n - 1) / 2.;
    qsort(ports, (size_t)n, sizeof *ports, by_far);
    for (int i = 0; i < n; i++)
        if (fabs(ports[i].far - node->x) < 1)
            middle = i;
    for (int i = 0; i < n; i++)
        *ports[i].at += (i - middle) * step;
}

// The vertex next to an end of an edge.
static const vertex *next_vertex(const network *net, const mu_layout *layout, int edge, bool at_begin)
{
    const mu_layout_edge *e = &layout->edges.items[edge];
    const vertex *v = net->vertices.items;
    const int passed = v[e->to].layer - v[e->from].layer - 1;
    if (passed == 0)
        return at_begin ? &v[e->to] : &v[e->from];
    return &v[net->first_vertex[edge] + (at_begin ? 0 : passed - 1)];
}

static mu_status choose_ports(const network *net, mu_layout *layout)
{
    port *ports = mu__calloc(layout->edges.n + 1, sizeof *ports);
    if (!ports)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t node = 0; node < layout->nodes.n; node++)
        for (int begin = 0; begin < 2; begin++) {
            int n = 0;
            for (size_t i = 0; i < layout->edges.n; i++) {
                mu_layout_edge *edge = &layout->edges.items[i];
                if ((begin ? edge->from : edge->to) == (int)node)
                    ports[n++] = (port){.far = next_vertex(net, layout, (int)i, begin)->x,
                                        .at = begin ? &edge->from_at : &edge->to_at};
            }
            if (n > 1)
                spread_ports(n, ports, &net->vertices.items[node]);
        }
    mu__free(ports);
    return MU_OK;
}

// The layers' upper and lower sides. Where edges go far to the side, the gap is larger.
static void stack_layers(network *net, mu_layout *layout)
{
    double *far = net->work, y = 0;
    memset(far, 0, ((size_t)net->n_layers + 1) * sizeof *far);
    for (size_t i = 0; i < net->segments.n; i++) {
        const vertex *above = &net->vertices.items[net->segments.items[i].end[0]];
        const vertex *below = &net->vertices.items[net->segments.items[i].end[1]];
        far[above->layer] = fmax(far[above->layer], fabs(above->x - below->x));
    }
    for (size_t n = 0; n < layout->nodes.n; n++)
        net->bottom[net->vertices.items[n].layer] =
            fmax(net->bottom[net->vertices.items[n].layer], layout->nodes.items[n].height);
    for (int layer = 0; layer < net->n_layers; layer++) {
        net->top[layer] = y;
        net->bottom[layer] += y;
        y = net->bottom[layer] + layer_gap + fmin(most_extra_gap, far[layer] / 10);
    }
    layout->height = net->bottom[net->n_layers - 1];
}

static void place_nodes(network *net, mu_layout *layout)
{
    double left = INFINITY, right = -INFINITY;
    for (size_t v = 0; v < net->vertices.n; v++) {
        left = fmin(left, net->vertices.items[v].x - net->vertices.items[v].width / 2);
        right = fmax(right, net->vertices.items[v].x + net->vertices.items[v].width / 2);
    }
    for (size_t v = 0; v < net->vertices.n; v++)
        net->vertices.items[v].x -= left;
    layout->width = right - left;
    for (size_t n = 0; n < layout->nodes.n; n++) {
        mu_layout_node *node = &layout->nodes.items[n];
        const int layer = net->vertices.items[n].layer;
        node->x = net->vertices.items[n].x;
        node->y = node->pin == MU_PIN_LAST    ? net->bottom[layer]
                  : node->pin == MU_PIN_FIRST ? net->top[layer]
                                              : (net->top[layer] + net->bottom[layer]) / 2;
    }
}

static mu_status draw_edge(const network *net, const mu_layout *layout, int i)
{
    mu_layout_edge *edge = &layout->edges.items[i];
    const mu_layout_node *from = &layout->nodes.items[edge->from], *to = &layout->nodes.items[edge->to];
    const vertex *v = net->vertices.items;
    const int first = v[edge->from].layer, last = v[edge->to].layer;
    mu_point *p = edge->points = mu__calloc(2 * (size_t)(last - first + 1), sizeof *p);
    if (!p)
        return MU_RESOURCE_EXHAUSTED;
    for (int layer = first; layer <= last; layer++, p += 2) {
        p[0].x = p[1].x = layer == first  ? from->x + edge->from_at
                          : layer == last ? to->x + edge->to_at
                                          : v[net->first_vertex[i] + layer - first - 1].x;
        p[0].y = layer == first ? from->y + from->height / 2 : net->top[layer];
        p[1].y = layer == last ? to->y - to->height / 2 : net->bottom[layer];
        if (layer > first && fabs(p[0].x - p[-1].x) < 2)
            p[0].x = p[1].x = p[-1].x;
    }
    edge->n_points = 2 * (last - first + 1);
    return MU_OK;
}

static mu_status compute(network *net, mu_layout *layout)
{
    MU_TRY(make_network(layout, net));
    MU_TRY(choose_order(net));
    place_vertices(net);
    stack_layers(net, layout);
    place_nodes(net, layout);
    MU_TRY(choose_ports(net, layout));
    for (size_t i = 0; i < layout->edges.n; i++)
        MU_TRY(draw_edge(net, layout, (int)i));
    return MU_OK;
}

mu_status mu__layout_compute(mu_layout *layout)
{
    network net = {0};
    const mu_status status = layout->nodes.n > 0 ? compute(&net, layout) : MU_OK;
    free_network(&net);
    return status;
}

void mu__layout_free(mu_layout *layout)
{
    for (size_t i = 0; i < layout->edges.n; i++)
        mu__free(layout->edges.items[i].points);
    mu__free(layout->edges.items);
    mu__free(layout->nodes.items);
    *layout = (mu_layout){0};
}
