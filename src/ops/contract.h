// Tensors whose axes have labels, and sums of products over labels that meet: what einsum and tensordot share.
//
// A term is a tensor and one label (a small number) per axis, each at most once. Everything is lowered to
// transposes, reshapes, products of matrices and reductions, so gradients follow. Knows no notation.
#ifndef MU_SRC_OPS_CONTRACT_H
#define MU_SRC_OPS_CONTRACT_H

#include "ops/op.h"

enum { MU_LABELS = 64 };

typedef struct mu_term {
    mu_tensor *x;                    // NULL after a failure
    unsigned char label[MU_MAX_RANK];  // of axis i, for i < n
    int n;
} mu_term;

typedef uint64_t mu_label_set;  // bit i: label i

mu_label_set mu__labels_of(const mu_term *term);
int64_t mu__label_dim(const mu_term *term, int label);  // 1 where the term lacks the label

// mu__term_sum sums the labels away that are not in `kept`.
mu_term mu__term_sum(const mu_term *a, mu_label_set kept);

// mu__term_product multiplies two terms and sums over what is not in `kept`. Axes under one label must be of one
// size, except labels in `stretched`, where 1 broadcasts. The order of labels in `wanted` (NULL: any) is met where
// it costs nothing. Errors: INVALID_ARGUMENT naming `op` for axes that differ.
mu_term mu__term_product(const mu_term *a, const mu_term *b, mu_label_set kept, mu_label_set stretched,
                         const mu_term *wanted, const char *op);

// mu__term_order gives the term's tensor with its axes in the order of `n` labels; labels that it lacks become
// axes of size 1.
mu_tensor *mu__term_order(const mu_term *a, const unsigned char *labels, int n);

#endif
