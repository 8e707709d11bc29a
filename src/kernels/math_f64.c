// Elementary functions of float64 arrays: the few that matter, to the last place or two (real.h). What is not
// here is computed by libm.
#include "parts.h"
#include "real.h"

#if defined(__clang__)
#define EACH_ALONE
#else
#define EACH_ALONE _Pragma("GCC ivdep")
#endif

#define LOOP(expression)               \
    EACH_ALONE                         \
    for (int64_t i = 0; i < n; i++) {  \
        const double x = in[i];        \
        out[i] = (expression);         \
    }                                  \
    break

MU_INLINE double sigmoid_fine(double x)
{
    const double e = exp_fine_below(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static void loops(mu_math function, const double *in, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_EXP: LOOP(exp_fine(x));
    case MU_MATH_LOG: LOOP(log_fine(x));
    case MU_MATH_SIGMOID: LOOP(sigmoid_fine(x));
    case MU_MATH_TANH: LOOP(tanh_fine(x));
    case MU_MATH_SIN: LOOP(sin_fine(x));
    case MU_MATH_COS: LOOP(cos_fine(x));
    default: break;
    }
}

static bool all_below(const double *in, double limit, int64_t n)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= !(fabs(in[i]) < limit);
    return outside == 0;
}

void MU_KERNEL(math_f64)(mu_math function, const double *x, double *y, int64_t n)
{
    enum { PIECE = 128 };
    if (function != MU_MATH_SIN && function != MU_MATH_COS) {
        loops(function, x, y, n);
        return;
    }
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        if (all_below(x + at, CIRCLE_LIMIT, count))
            loops(function, x + at, y + at, count);
        else
            for (int64_t i = at; i < at + count; i++)
                y[i] = function == MU_MATH_SIN ? sin(x[i]) : cos(x[i]);
    }
}
