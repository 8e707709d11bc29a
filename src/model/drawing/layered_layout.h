// Drawing directed graphs without cycles in layers: where boxes and edges go. It knows no models and writes nothing.
#ifndef MU_SRC_MODEL_LAYERED_LAYOUT_H
#define MU_SRC_MODEL_LAYERED_LAYOUT_H

#include "base/base.h"

typedef struct mu_point {
    double x, y;
} mu_point;

typedef enum mu_layout_pin { MU_PIN_NONE, MU_PIN_FIRST, MU_PIN_LAST } mu_layout_pin;

typedef struct mu_layout_node {
    double width, height;
    mu_layout_pin pin; // the first layer, or the last one
    double x, y;       // of the centre; computed
} mu_layout_node;

typedef struct mu_layout_edge {
    int from, to;          // from < to; edges are in the order of `to`
    double from_at, to_at; // where it leaves and enters, from the centres of the nodes
    // Computed: an even number of points, from the lower side of `from` to the upper side of `to`. Lines from an even
    // point to the next one are vertical; the others bend.
    mu_point *points;
    int n_points;
} mu_layout_edge;

typedef struct mu_layout {
    struct {
        mu_layout_node *items;
        size_t n, capacity;
    } nodes;
    struct {
        mu_layout_edge *items;
        size_t n, capacity;
    } edges;
    double width, height; // computed: of everything; the upper left corner is at 0, 0
} mu_layout;

// mu__layout_compute places nodes and edges, from the top to the bottom. Errors: RESOURCE_EXHAUSTED.
mu_status mu__layout_compute(mu_layout *layout);
void mu__layout_free(mu_layout *layout);

#endif
