// The tree that paths such as "layers/dense/vars/0" make: a node for each part of a path, children in the order in
// which they were added.
#ifndef MU_SRC_IO_PATH_TREE_H
#define MU_SRC_IO_PATH_TREE_H

#include "base/base.h"

typedef struct mu_path_node {
    const char *name; // [length], in the caller's paths
    size_t length;
    int parent, first, last, next; // numbers of nodes; -1: none
    int tensor;                    // of a dataset in HDF5; -1: a group
    uint64_t address;              // of a header in HDF5
    const char *key;               // of a variable in a checkpoint; NULL: an object
} mu_path_node;

// The owner zeroes it, adds the root (parent -1), and frees `items` in the end.
typedef struct mu_path_tree {
    mu_path_node *items;
    size_t n, capacity;
} mu_path_tree;

// mu__path_add adds a child, or the root; its number is the tree's n before the call. mu__path_child returns the child
// of this name, or -1.
mu_status mu__path_add(mu_path_tree *tree, int parent, const char *name, size_t length);
int mu__path_child(const mu_path_tree *tree, int parent, const char *name, size_t length);

#endif
