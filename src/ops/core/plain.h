// What plain reference loops share: elements of any type read and written one at a time, and broadcasting by indices.
//
// A reference is the oracle for its op's fast kernel, so it is as simple as the definition and shares no loop with it.
#ifndef MU_SRC_OPS_PLAIN_H
#define MU_SRC_OPS_PLAIN_H

#include "ops/core/loops.h"

// mu__read_whole and mu__write_whole access an element of an integer type or of bool; writing keeps the low bits.
// Floats go through mu__read_element and mu__write_element (tensor.h), as doubles.
int64_t mu__read_whole(const mu_view *view, int64_t i);
void mu__write_whole(const mu_view *view, int64_t i, int64_t value);
double mu__read_real(const mu_view *view, int64_t i);
void mu__write_real(const mu_view *view, int64_t i, double value);

// mu__copy_element copies element j of `from` to element i of `to`, which has the same type.
void mu__copy_element(const mu_view *to, int64_t i, const mu_view *from, int64_t j);

// mu__rounded rounds to the type that kernels compute in: float32 for types of at most 32 bits, else float64.
double mu__rounded(mu_dtype dtype, double value);

// mu__index_of writes the index along each axis of element `at`; mu__element_at is the reverse.
void mu__index_of(const mu_shape *shape, int64_t at, int64_t index[MU_MAX_RANK]);
int64_t mu__element_at(const mu_shape *shape, const int64_t *index);
// mu__broadcast_at returns the element of an operand that broadcasts to element `at` of `out`.
int64_t mu__broadcast_at(const mu_shape *out, const mu_shape *operand, int64_t at);

// Totals in the elements of an output, in which many inputs are combined one by one: floats in float64 until
// mu__totals_close rounds them, whole numbers in place. mu__totals_open starts from what the output holds.
typedef struct mu_totals {
    const mu_view *out;
    double *reals;
} mu_totals;
mu_status mu__totals_open(mu_totals *totals, const mu_view *out);
void mu__totals_combine(const mu_totals *totals, mu_combine combine, int64_t i, const mu_view *from, int64_t j);
void mu__totals_close(mu_totals *totals);

// A copy of a view's elements for plain sums of products, in float64, or in int64 for integers, which wrap around.
// mu__wide_open copies the elements, or makes zeros (`zeros`, for an output); mu__wide_store rounds them into the view
// once.
typedef struct mu_wide {
    const mu_view *view;
    double *reals;    // NULL: integers
    uint64_t *wholes; // NULL: floats
} mu_wide;
mu_status mu__wide_open(mu_wide *wide, const mu_view *view, bool zeros);
void mu__wide_store(const mu_wide *wide);
void mu__wide_close(mu_wide *wide);

// mu__wide_multiply adds the product of element j of a and element k of b to element i of `sum`.
static inline void mu__wide_multiply(const mu_wide *sum, int64_t i, const mu_wide *a, int64_t j, const mu_wide *b,
                                     int64_t k)
{
    if (sum->reals)
        sum->reals[i] += a->reals[j] * b->reals[k];
    else
        sum->wholes[i] += a->wholes[j] * b->wholes[k];
}

#endif
