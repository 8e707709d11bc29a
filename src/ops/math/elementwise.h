// Which function an element-wise op on one tensor or two is: the op's variant, by which its loops choose. What integers
// fail with in ops on two.
#ifndef MU_SRC_OPS_ELEMENTWISE_H
#define MU_SRC_OPS_ELEMENTWISE_H

#include "ops/core/op.h"

typedef enum mu_unary {
    MU_UNARY_NEG,
    MU_UNARY_ABS,
    MU_UNARY_SIGN,
    MU_UNARY_SQUARE,
    MU_UNARY_FLOOR,
    MU_UNARY_CEIL,
    MU_UNARY_ROUND,
    MU_UNARY_EXP,
    MU_UNARY_EXPM1,
    MU_UNARY_LOG,
    MU_UNARY_LOG1P,
    MU_UNARY_SQRT,
    MU_UNARY_RSQRT,
    MU_UNARY_RECIPROCAL,
    MU_UNARY_ERF,
    MU_UNARY_ERFC,
    MU_UNARY_LGAMMA,
    MU_UNARY_DIGAMMA,
    MU_UNARY_TRIGAMMA,
    MU_UNARY_SIN,
    MU_UNARY_COS,
    MU_UNARY_TAN,
    MU_UNARY_ASIN,
    MU_UNARY_ACOS,
    MU_UNARY_ATAN,
    MU_UNARY_SINH,
    MU_UNARY_COSH,
    MU_UNARY_TANH,
    MU_UNARY_ASINH,
    MU_UNARY_ACOSH,
    MU_UNARY_ATANH,
    MU_UNARY_SIGMOID,
    MU_UNARY_LOG_SIGMOID,
    MU_UNARY_SOFTPLUS,
    MU_UNARY_SOFTSIGN,
    MU_UNARY_RELU,
    MU_UNARY_RELU6,
    MU_UNARY_LEAKY_RELU,
    MU_UNARY_ELU,
    MU_UNARY_SELU,
    MU_UNARY_GELU,
    MU_UNARY_GELU_TANH,
    MU_UNARY_SILU,
    MU_UNARY_HARD_SIGMOID,
    MU_UNARY_MISH,
    MU_UNARY_IS_NAN,
    MU_UNARY_IS_INF,
    MU_UNARY_IS_FINITE
} mu_unary;

typedef enum mu_binary {
    MU_BINARY_ADD,
    MU_BINARY_SUBTRACT,
    MU_BINARY_MULTIPLY,
    MU_BINARY_DIVIDE,
    MU_BINARY_DIVIDE_NO_NAN,
    MU_BINARY_FLOOR_DIVIDE,
    MU_BINARY_MOD,
    MU_BINARY_POW,
    MU_BINARY_MAXIMUM,
    MU_BINARY_MINIMUM,
    MU_BINARY_SQUARED_DIFFERENCE,
    MU_BINARY_ATAN2,
    MU_BINARY_PUT,
    MU_BINARY_EQUAL,
    MU_BINARY_NOT_EQUAL,
    MU_BINARY_LESS,
    MU_BINARY_LESS_EQUAL,
    MU_BINARY_GREATER,
    MU_BINARY_GREATER_EQUAL
} mu_binary;

// mu__integer_error reports that element i of the divisor is 0, or that of an exponent negative.
mu_status mu__integer_error(const mu_op *op, int64_t value, int64_t i);

// mu__check_integers reports the first element of an integer divisor or exponent for which it does so.
mu_status mu__check_integers(const mu_kernel *kernel);

// The plain loops: of all ops on one tensor (elementwise_plain.c); of those on two, and of clipping
// (arithmetic_plain.c).
mu_status mu__unary_ref(const mu_kernel *kernel);
mu_status mu__arithmetic_ref(const mu_kernel *kernel);
mu_status mu__compare_ref(const mu_kernel *kernel);
mu_status mu__clip_ref(const mu_kernel *kernel);

#endif
