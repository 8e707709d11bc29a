// Derivatives of digamma: shared by the op's kernel and its lowering.
//
// Order n is (-1)^(n+1) times a sum: n! / (x + k)^(n+1) for k below n + MU_POLYGAMMA_STEPS, and an asymptotic series
// for the rest. Negative arguments use the reflection formula.
#ifndef MU_SRC_OPS_POLYGAMMA_H
#define MU_SRC_OPS_POLYGAMMA_H

#include <stdint.h>

// MU_POLYGAMMA_MOST is the largest order; from about 170 on, n! overflows float64.
enum { MU_POLYGAMMA_MOST = 100, MU_POLYGAMMA_STEPS = 10, MU_POLYGAMMA_TERMS = 10 };

typedef struct mu_polygamma_attrs {
    int64_t order; // 1 to MU_POLYGAMMA_MOST; order 0 is the op digamma
} mu_polygamma_attrs;

// For large y the rest of the sum is (n-1)! / y^n (1 + n / (2 y) + tail[0] / y^2 + tail[1] / y^4 + …). With c = cot(pi
// x), the n-th derivative of pi cot(pi x) is (-1)^n pi^(n+1) (bends[0] + bends[1] c + …), up to c^(n+1).
typedef struct mu_polygamma_form {
    int order;
    double tail[MU_POLYGAMMA_TERMS];
    double bends[MU_POLYGAMMA_MOST + 2];
} mu_polygamma_form;

void mu__polygamma_form(int order, mu_polygamma_form *form);

#endif
