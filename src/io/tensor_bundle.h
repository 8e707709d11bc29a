// TensorFlow's checkpoints ("tensor bundles"): PREFIX.index, a sorted table from names to entries, and
// PREFIX.data-00000-of-00001 and so on with the elements.
#ifndef MU_SRC_IO_TENSOR_BUNDLE_H
#define MU_SRC_IO_TENSOR_BUNDLE_H

#include "io/io.h"

#include "tensor_bundle.pb-c.h"

#define MU_BUNDLE_GRAPH "_CHECKPOINTABLE_OBJECT_GRAPH"
enum { MU_BUNDLE_STRING = 7 }; // TensorFlow's number of the type of texts

// ---- Sorted tables (bundle_table.c), in the format of LevelDB, not compressed -------------------

// mu__table_each calls a function with each key and value of a table in memory, in order, until one fails. Errors:
// DATA_LOSS; UNIMPLEMENTED for a compressed table.
typedef mu_status (*mu_table_fn)(void *arg, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                                 size_t value_bytes);
mu_status mu__table_each(const char *path, const uint8_t *data, size_t bytes, mu_table_fn fn, void *arg);

typedef struct mu_table_row {
    const char *key;
    uint8_t *value;
    size_t bytes;
} mu_table_row;
// mu__table_write writes rows, which are sorted by key, to a file.
mu_status mu__table_write(mu_file_writer *file, size_t n, const mu_table_row *rows);

// Variable-length integers, seven bits in a byte, the lowest first.
uint64_t mu__cursor_varint(mu_cursor *cursor);

// ---- Object graphs (bundle_graph.c) -------------------------------------------------------------

// mu__bundle_find returns the key of the variable that a path of attribute names leads to, such as
// "_operations/1/kernel", from the root or its "model"; NULL: there is none. Each name may have an underscore in front
// in the graph, or lack it.
const char *mu__bundle_find(const Mu__BundleGraph *graph, const char *path);
// mu__bundle_graph makes the serialised graph of objects whose variables have these keys, in `out`, for mu__free.
mu_status mu__bundle_graph(int n, const char *const *keys, uint8_t **out, size_t *bytes);

#endif
