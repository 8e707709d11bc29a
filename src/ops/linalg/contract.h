// Tensors with labelled axes and sums of products over shared labels: the common core of einsum and tensordot.
//
// A term is a tensor with one label (a small number) per axis; each label occurs at most once. Everything is lowered to
// transposes, reshapes, matrix products and reductions, so gradients follow. Does not parse notation.
#ifndef MU_SRC_OPS_CONTRACT_H
#define MU_SRC_OPS_CONTRACT_H

#include "ops/core/op.h"

enum { MU_LABELS = 64 };

typedef struct mu_term {
    mu_tensor *x;                     // NULL after a failure
    unsigned char label[MU_MAX_RANK]; // label[i] is the label of axis i, for i < n
    int n;
} mu_term;

typedef uint64_t mu_label_set; // bit i: label i

mu_label_set mu__labels_of(const mu_term *term);
int64_t mu__label_dim(const mu_term *term, int label); // 1 if the term does not have the label

// mu__term_sum sums over all labels that are not in `kept`.
mu_term mu__term_sum(const mu_term *a, mu_label_set kept);

// mu__term_product multiplies two terms and sums over the labels that are not in `kept`. Axes with the same label must
// have the same size, except labels in `stretched`, where size 1 broadcasts. `wanted` (NULL: any) is the preferred
// order of labels; it is followed only where that is free. Errors: INVALID_ARGUMENT naming `op` if sizes differ.
mu_term mu__term_product(const mu_term *a, const mu_term *b, mu_label_set kept, mu_label_set stretched,
                         const mu_term *wanted, const char *op);

// mu__term_order returns the term's tensor with its axes in the order of the `n` labels. A label that the term does not
// have becomes an axis of size 1.
mu_tensor *mu__term_order(const mu_term *a, const unsigned char *labels, int n);

#endif
