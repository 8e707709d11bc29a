// Attention along some axes of inputs that have several besides batch and features: these are joined to one axis of
// steps, and all others to the batch, so that the rest of a layer sees sequences [batch, steps, features].
#ifndef MU_SRC_MODEL_ATTENTION_AXES_H
#define MU_SRC_MODEL_ATTENTION_AXES_H

#include "model/core/layer.h"

typedef struct mu_attention_axes {
    int rank;
    int n, axes[MU_MAX_RANK];      // to attend along
    int n_rest, rest[MU_MAX_RANK]; // the others: the batch's first, without the features'
} mu_attention_axes;

// mu__attention_axes_find resolves axes for inputs of a rank (n 0: all between batch and features).
// mu__attention_axes_check does so and checks that inputs of such shapes can be joined. Errors: INVALID_ARGUMENT, which
// name the layer.
mu_status mu__attention_axes_find(const mu_layer *layer, int rank, int n, const int *axes, mu_attention_axes *out);
mu_status mu__attention_axes_check(const mu_layer *layer, int n_inputs, const mu_shape *inputs, int n, const int *axes);
// Whether inputs are sequences as they are.
static inline bool mu__attention_is_plain(const mu_attention_axes *a) { return a->rank == 3; }
// mu__attention_fold makes x a sequence, and mu__attention_fold_steps the mask of x (its axes but the last; NULL: none)
// that of the sequence. mu__attention_fold_pairs makes a mask [batch, …, heads, queries…, keys…] that of sequences,
// [batch, heads or 1, queries, keys]; in front of the queries it has all axes, all but the heads, the batch's, or none,
// and any axis may have the size 1.
// Errors: INVALID_ARGUMENT for another shape. mu__attention_unfold undoes that for what was made of a query like
// `like`; mu__attention_unfold_scores for weights [batch, heads, queries, keys], as [batch, …, heads, queries…, keys…].
mu_tensor *mu__attention_fold(const mu_attention_axes *a, mu_tensor *x);
mu_tensor *mu__attention_fold_steps(const mu_attention_axes *a, mu_tensor *mask, mu_tensor *x);
mu_tensor *mu__attention_fold_pairs(const mu_layer *layer, const mu_attention_axes *a, mu_tensor *mask,
                                    const mu_tensor *query, const mu_tensor *key, int heads);
mu_tensor *mu__attention_unfold(const mu_attention_axes *a, mu_tensor *y, const mu_tensor *like);
mu_tensor *mu__attention_unfold_scores(const mu_attention_axes *a, mu_tensor *scores, const mu_tensor *query,
                                       const mu_tensor *key);

#endif
