// What reductions and gathers of existing values and of traced ones share: tables of functions by the kind of value.
#ifndef MU_SRC_DISTRIBUTE_REDUCE_H
#define MU_SRC_DISTRIBUTE_REDUCE_H

#include "distribute/distribute.h"

// A mu_reduce_part reduces one part of a nest: everything but lists and maps. The result belongs to the pool.
typedef mu_value *mu_reduce_part(const mu_reducing *r, const mu_value *part);

// mu__reduce_by_kind reduces each part of a nest with the function for its kind.
mu_value *mu__reduce_by_kind(const mu_reducing *r, mu_value *value, mu_reduce_part *const *by_kind);

// mu__leaf_tensor returns a leaf's tensor; it reads a variable.
mu_tensor *mu__leaf_tensor(const mu_value *leaf);
// mu__components_differ returns whether a variable has a value for each replica (ON_READ).
bool mu__components_differ(const mu_reducing *r, const mu_value *leaf);

// Parts: a leaf, or slices, that are one value on all replicas; a variable's or a mirrored value's copies; slices of
// which each worker has its own; one component for each replica.
mu_reduce_part mu__reduce_same, mu__reduce_same_slices, mu__reduce_copies, mu__reduce_own_slices, mu__reduce_each;

// A mu_gather_part gathers one part of a nest, mu__gather_by_kind each part with the function for its kind.
typedef mu_value *mu_gather_part(mu_strategy *strategy, const mu_value *part, int axis);
mu_value *mu__gather_by_kind(mu_strategy *strategy, mu_value *value, int axis, mu_gather_part *const *by_kind);

// mu__has_components returns whether a variable has a copy of its own for each replica.
bool mu__has_components(const mu_value *leaf);
// Parts: one component for each replica; slices, which cannot be gathered.
mu_gather_part mu__gather_each, mu__refuse_slices;

#endif
