// Formulas written as StableHLO: arithmetic between values of one type and shape, and with numbers.
#ifndef MU_SRC_OPS_LOWER_FORMULA_H
#define MU_SRC_OPS_LOWER_FORMULA_H

#include "ops/core/lower.h"

typedef struct writer {
    mu_emitter *e;
    mu_spec spec;
} writer;

static inline mu_hlo number(const writer *w, double value)
{
    return mu__hlo_fill(w->e, w->spec.dtype, &w->spec.shape, value);
}

static inline mu_hlo add(const writer *w, mu_hlo a, mu_hlo b) { return mu__hlo_binary(w->e, "stablehlo.add", a, b); }
static inline mu_hlo sub(const writer *w, mu_hlo a, mu_hlo b)
{
    return mu__hlo_binary(w->e, "stablehlo.subtract", a, b);
}

static inline mu_hlo mul(const writer *w, mu_hlo a, mu_hlo b)
{
    return mu__hlo_binary(w->e, "stablehlo.multiply", a, b);
}

static inline mu_hlo over(const writer *w, mu_hlo a, mu_hlo b)
{
    return mu__hlo_binary(w->e, "stablehlo.divide", a, b);
}

static inline mu_hlo one(const writer *w, const char *op, mu_hlo a) { return mu__hlo_unary(w->e, op, a); }
static inline mu_hlo logarithm(const writer *w, mu_hlo a) { return one(w, "stablehlo.log", a); }
static inline mu_hlo root(const writer *w, mu_hlo a) { return one(w, "stablehlo.sqrt", a); }
static inline mu_hlo angle(const writer *w, mu_hlo y, mu_hlo x)
{
    return mu__hlo_binary(w->e, "stablehlo.atan2", y, x);
}

static inline mu_hlo scaled(const writer *w, mu_hlo a, double factor) { return mul(w, a, number(w, factor)); }
static inline mu_hlo plus(const writer *w, mu_hlo a, double value) { return add(w, a, number(w, value)); }
static inline mu_hlo from(const writer *w, double value, mu_hlo a) { return sub(w, number(w, value), a); }

static inline mu_hlo select_by(const writer *w, const char *direction, mu_hlo a, double bound, mu_hlo yes, mu_hlo no)
{
    return mu__hlo_select(w->e, mu__hlo_compare(w->e, direction, a, number(w, bound)), yes, no);
}

// The magnitude with the sign of x (NaN propagates).
static inline mu_hlo signed_like(const writer *w, mu_hlo magnitude, mu_hlo x)
{
    return select_by(w, "LT", x, 0, one(w, "stablehlo.negate", magnitude), magnitude);
}

// The logarithm of the gamma function and its derivative, for x >= 1/2 (math/lower_math.c).
mu_hlo mu__hlo_lgamma_above(const writer *w, mu_hlo x);
mu_hlo mu__hlo_digamma_above(const writer *w, mu_hlo x);

#endif
