// Elementary functions over arrays: their names and the types of their entries in the kernel table. An output may be
// the same array as an input. Results are within an ulp or two of libm's, including NaN, infinities, zeros and
// denormal numbers.
#ifndef MU_SRC_KERNELS_ELEMENTARY_H
#define MU_SRC_KERNELS_ELEMENTARY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mu_math {
    MU_MATH_EXP,
    MU_MATH_LOG,
    MU_MATH_SIGMOID,
    MU_MATH_TANH,
    MU_MATH_SIN,
    MU_MATH_COS,
    MU_MATH_SILU,
    MU_MATH_EXPM1,
    MU_MATH_LOG1P,
    MU_MATH_TAN,
    MU_MATH_ASIN,
    MU_MATH_ACOS,
    MU_MATH_ATAN,
    MU_MATH_SINH,
    MU_MATH_COSH,
    MU_MATH_ASINH,
    MU_MATH_ACOSH,
    MU_MATH_ATANH,
    MU_MATH_ERF,
    MU_MATH_ERFC,
    MU_MATH_LOG_SIGMOID,
    MU_MATH_SOFTPLUS,
    MU_MATH_ELU,
    MU_MATH_SELU,
    MU_MATH_GELU,
    MU_MATH_GELU_TANH,
    MU_MATH_MISH,
    MU_MATH_DIGAMMA,
    MU_MATH_LGAMMA,
    MU_MATH_SQRT,
    MU_MATH_RSQRT,
    MU_N_MATH
} mu_math;

typedef enum mu_math2 { MU_MATH_POW, MU_MATH_ATAN2, MU_MATH_FLOOR_MOD, MU_N_MATH2 } mu_math2;

// y = f(x), element by element; alpha is ELU's derivative.
typedef void mu_math_f32(mu_math function, float alpha, const float *x, float *y, int64_t n);
typedef void mu_math_f64(mu_math function, double alpha, const double *x, double *y, int64_t n);

// out = f(a, b); an operand's step is 1, or 0 for a scalar.
typedef void mu_math2_f32(mu_math2 function, const float *a, int64_t step_a, const float *b, int64_t step_b, float *out,
                          int64_t n);
typedef void mu_math2_f64(mu_math2 function, const double *a, int64_t step_a, const double *b, int64_t step_b,
                          double *out, int64_t n);

#endif
