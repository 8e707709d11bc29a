// Shared by writer and reader of the serialized form: version, limits, and the field that carries each kind of
// attribute.
//
// The messages are in graph.proto. Only wire_write.c and wire_read.c include this file; all other code sees bytes.
#ifndef MU_SRC_GRAPH_WIRE_H
#define MU_SRC_GRAPH_WIRE_H

#include "graph/graph.h"

#include "graph.pb-c.h"

// Writers refuse graphs beyond these limits, so that whatever is written can be read.
enum {
    MU_GRAPH_VERSION = 1,
    MU_WIRE_NODES = 1000000,
    MU_WIRE_EDGES = 10000000,
    MU_WIRE_RESOURCES = 65536,
    MU_WIRE_DEPTH = MU_MAX_DEPTH, // nesting depth of graphs
};
#define MU_WIRE_CONSTANT_BYTES ((size_t)1 << 30) // of all constants together
#define MU_WIRE_BYTES          ((size_t)2 << 30) // of the whole

// Which value carries an attribute of this kind.
static inline Mu__WireAttr__ValueCase mu__wire_case(mu_attr_kind kind)
{
    static const Mu__WireAttr__ValueCase cases[] = {
        [MU_ATTR_INT] = MU__WIRE_ATTR__VALUE_INTEGER,   [MU_ATTR_REAL] = MU__WIRE_ATTR__VALUE_REAL,
        [MU_ATTR_BOOL] = MU__WIRE_ATTR__VALUE_BOOLEAN,  [MU_ATTR_INTS] = MU__WIRE_ATTR__VALUE_INTS,
        [MU_ATTR_DTYPE] = MU__WIRE_ATTR__VALUE_DTYPE,   [MU_ATTR_SHAPE] = MU__WIRE_ATTR__VALUE_SHAPE,
        [MU_ATTR_TEXT] = MU__WIRE_ATTR__VALUE_TEXT,     [MU_ATTR_MESSAGE] = MU__WIRE_ATTR__VALUE_TEXT,
        [MU_ATTR_TENSOR] = MU__WIRE_ATTR__VALUE_TENSOR, [MU_ATTR_GRAPH] = MU__WIRE_ATTR__VALUE_GRAPH,
    };
    return cases[kind];
}

#endif
