// Element-wise ops on one tensor: signs, powers, exponentials, trigonometry, activations.
//
// A definition selects its function. The plain loop of all of them is in elementwise_plain.c; the fast ones are the
// vectorised functions of `kernels`, or loops that the compiler vectorises (unary_loops.inc.c for floats,
// number_loops.inc.c for all numbers). float16 and bfloat16 are converted to float32 chunk by chunk. Gradients are
// composed of ops and use the output where that saves work.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/math/elementwise.h"

#include <float.h>
#include <math.h>
#include <muster/ops.h>

#define T        float
#define FN(name) f32_##name
#define M(name)  name##f
#define MAX      FLT_MAX
#include "ops/math/unary_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#define M(name)  name
#define MAX      DBL_MAX
#include "ops/math/unary_loops.inc.c"

#define T            float
#define W            float
#define FN(name)     f32_##name
#define MAGNITUDE(x) fabsf(x)
#define SIGN_OF(x)   ((x) != (x) ? (x) : (float)(((x) > 0) - ((x) < 0)))
#include "ops/math/number_loops.inc.c"

#define T            double
#define W            double
#define FN(name)     f64_##name
#define MAGNITUDE(x) fabs(x)
#define SIGN_OF(x)   ((x) != (x) ? (x) : (double)(((x) > 0) - ((x) < 0)))
#include "ops/math/number_loops.inc.c"

#define T            int64_t
#define W            uint64_t
#define FN(name)     i64_##name
#define MAGNITUDE(x) ((x) < 0 ? -(W)(x) : (W)(x))
#define SIGN_OF(x)   (((x) > 0) - ((x) < 0))
#include "ops/math/number_loops.inc.c"

#define T            int32_t
#define W            uint32_t
#define FN(name)     i32_##name
#define MAGNITUDE(x) ((x) < 0 ? -(W)(x) : (W)(x))
#define SIGN_OF(x)   (((x) > 0) - ((x) < 0))
#include "ops/math/number_loops.inc.c"

#define T            int16_t
#define W            uint32_t
#define FN(name)     i16_##name
#define MAGNITUDE(x) ((x) < 0 ? -(W)(x) : (W)(x))
#define SIGN_OF(x)   (((x) > 0) - ((x) < 0))
#include "ops/math/number_loops.inc.c"

#define T            int8_t
#define W            uint32_t
#define FN(name)     i8_##name
#define MAGNITUDE(x) ((x) < 0 ? -(W)(x) : (W)(x))
#define SIGN_OF(x)   (((x) > 0) - ((x) < 0))
#include "ops/math/number_loops.inc.c"

#define T            uint8_t
#define W            uint32_t
#define FN(name)     u8_##name
#define MAGNITUDE(x) (x)
#define SIGN_OF(x)   ((x) > 0)
#include "ops/math/number_loops.inc.c"

// ---- Kernels ------------------------------------------------------------------------------------

typedef void loop1(int variant, double alpha, const void *in, void *out, int64_t n);

typedef struct unary_job {
    const mu_kernel *kernel;
    loop1 *loop;
    double alpha;
} unary_job;

static void run_in_f32(void *arg, const mu_f32_run *run)
{
    const unary_job *job = arg;
    job->loop(job->kernel->op->variant, job->alpha, run->in[0], run->out, run->n);
}

static void unary_range(void *arg, int64_t begin, int64_t end)
{
    const unary_job *job = arg;
    const mu_view *in = &job->kernel->in[0], *out = &job->kernel->out[0];
    const void *from = (const char *)in->data + (size_t)begin * mu_dtype_bytes(in->dtype);
    void *to = (char *)out->data + (size_t)begin * mu_dtype_bytes(out->dtype);
    const mu_float16_run run = {.in_dtype = in->dtype,
                                .out_dtype = out->dtype,
                                .n_in = 1,
                                .in = {from},
                                .step = {1},
                                .out = to,
                                .n = end - begin};
    if (in->dtype == MU_F16 || in->dtype == MU_BF16)
        mu__in_f32(&run, run_in_f32, arg);
    else
        job->loop(job->kernel->op->variant, job->alpha, from, to, end - begin);
}

static mu_status run_unary(const mu_kernel *k, loop1 *loop)
{
    const mu_alpha_attrs *attrs = k->attrs;
    unary_job job = {.kernel = k, .loop = loop, .alpha = attrs ? attrs->alpha : 0};
    int64_t n = mu__elements(&k->in[0].shape);
    mu__share_range(k->team, n, 1024, n, unary_range, &job);
    return MU_OK;
}

static mu_status real_run(const mu_kernel *k) { return run_unary(k, k->in[0].dtype == MU_F64 ? f64_real : f32_real); }

static mu_status predicate_run(const mu_kernel *k)
{
    return run_unary(k, k->in[0].dtype == MU_F64 ? f64_predicate : f32_predicate);
}

static mu_status number_run(const mu_kernel *k)
{
    switch (k->in[0].dtype) {
    case MU_F64: return run_unary(k, f64_number);
    case MU_I64: return run_unary(k, i64_number);
    case MU_I32: return run_unary(k, i32_number);
    case MU_I16: return run_unary(k, i16_number);
    case MU_I8: return run_unary(k, i8_number);
    case MU_U8: return run_unary(k, u8_number);
    default: return run_unary(k, f32_number);
    }
}

// Functions that `kernels` has vectorised.
static const mu_math fast[] = {
    [MU_UNARY_EXP] = MU_MATH_EXP,
    [MU_UNARY_EXPM1] = MU_MATH_EXPM1,
    [MU_UNARY_LOG] = MU_MATH_LOG,
    [MU_UNARY_LOG1P] = MU_MATH_LOG1P,
    [MU_UNARY_ERF] = MU_MATH_ERF,
    [MU_UNARY_ERFC] = MU_MATH_ERFC,
    [MU_UNARY_LGAMMA] = MU_MATH_LGAMMA,
    [MU_UNARY_DIGAMMA] = MU_MATH_DIGAMMA,
    [MU_UNARY_SIN] = MU_MATH_SIN,
    [MU_UNARY_COS] = MU_MATH_COS,
    [MU_UNARY_TAN] = MU_MATH_TAN,
    [MU_UNARY_ASIN] = MU_MATH_ASIN,
    [MU_UNARY_ACOS] = MU_MATH_ACOS,
    [MU_UNARY_ATAN] = MU_MATH_ATAN,
    [MU_UNARY_SINH] = MU_MATH_SINH,
    [MU_UNARY_COSH] = MU_MATH_COSH,
    [MU_UNARY_TANH] = MU_MATH_TANH,
    [MU_UNARY_ASINH] = MU_MATH_ASINH,
    [MU_UNARY_ACOSH] = MU_MATH_ACOSH,
    [MU_UNARY_ATANH] = MU_MATH_ATANH,
    [MU_UNARY_SIGMOID] = MU_MATH_SIGMOID,
    [MU_UNARY_LOG_SIGMOID] = MU_MATH_LOG_SIGMOID,
    [MU_UNARY_SOFTPLUS] = MU_MATH_SOFTPLUS,
    [MU_UNARY_ELU] = MU_MATH_ELU,
    [MU_UNARY_SELU] = MU_MATH_SELU,
    [MU_UNARY_GELU] = MU_MATH_GELU,
    [MU_UNARY_GELU_TANH] = MU_MATH_GELU_TANH,
    [MU_UNARY_SILU] = MU_MATH_SILU,
    [MU_UNARY_MISH] = MU_MATH_MISH,
    [MU_UNARY_SQRT] = MU_MATH_SQRT,
    [MU_UNARY_RSQRT] = MU_MATH_RSQRT,
};

static void f32_math(int variant, double alpha, const void *in, void *out, int64_t n)
{
    mu__kernels()->math_f32(fast[variant], (float)alpha, in, out, n);
}

static void f64_math(int variant, double alpha, const void *in, void *out, int64_t n)
{
    mu__kernels()->math_f64(fast[variant], alpha, in, out, n);
}

static mu_status math_run(const mu_kernel *k) { return run_unary(k, k->in[0].dtype == MU_F64 ? f64_math : f32_math); }

static mu_status predicate_infer(mu_infer *infer)
{
    infer->out[0] = (mu_spec){.dtype = MU_BOOL, .shape = infer->in[0].shape};
    return MU_OK;
}

// ---- Samples ------------------------------------------------------------------------------------

static const mu_sample samples_real[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}},
    {.n_in = 1, .in = {MU_DIMS(67)}, .low = {-5}, .high = {5}},
    {.n_in = 1, .in = {MU_NO_DIMS}},
    {.n_in = 1, .in = {MU_DIMS(2, 0, 3)}},
    {0},
};
static const mu_sample samples_positive[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .low = {0.3}, .high = {4}},
    {.n_in = 1, .in = {MU_DIMS(0)}, .low = {0.3}, .high = {4}},
    {0},
};
static const mu_sample samples_unit[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .low = {-0.9}, .high = {0.9}},
    {0},
};
static const mu_sample samples_above_one[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .low = {1.2}, .high = {4}},
    {0},
};

#define UNARY(text, which, allowed, kernel, inputs)                                                                  \
    .name = text, .variant = MU_UNARY_##which, .n_in = 1, .n_out = 1, .flags = MU_OP_ELEMENTWISE, .dtypes = allowed, \
    .in_place = 1, .infer = mu__infer_same, .ref = mu__unary_ref, .cpu = {.run = kernel}, .samples = inputs

#define FORMULA .lower = mu__lower_formula // StableHLO has no single operation for it

static mu_tensor *times(const mu_grad *g, mu_tensor *derivative) { return mu_multiply(g->dy, derivative); }

static mu_tensor *plus(mu_tensor *x, double value) { return mu_add(x, mu__scalar_like(x, value)); }

// ---- All number types ---------------------------------------------------------------------------

static mu_tensor *neg_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_neg(g->dy);
}
const mu_op mu_op_neg = {UNARY("neg", NEG, MU_NUMBERS, number_run, samples_real), .grad = neg_grad,
                         .hlo = "stablehlo.negate"};

static mu_tensor *abs_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_sign(g->x[0]));
}
const mu_op mu_op_abs = {UNARY("abs", ABS, MU_NUMBERS, number_run, samples_real), .grad = abs_grad,
                         .lower = mu__lower_sizes};

static mu_tensor *flat_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__zeros_like(g->x[0]);
}
const mu_op mu_op_sign = {UNARY("sign", SIGN, MU_NUMBERS, number_run, samples_real), .grad = flat_grad,
                          .lower = mu__lower_sizes};

static mu_tensor *square_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu__scale(g->x[0], 2));
}
const mu_op mu_op_square = {UNARY("square", SQUARE, MU_NUMBERS, number_run, samples_real), .grad = square_grad,
                            .lower = mu__lower_square};

// ---- Rounding: no gradient ----------------------------------------------------------------------

const mu_op mu_op_floor = {UNARY("floor", FLOOR, MU_FLOATS, real_run, samples_real), .hlo = "stablehlo.floor"};
const mu_op mu_op_ceil = {UNARY("ceil", CEIL, MU_FLOATS, real_run, samples_real), .hlo = "stablehlo.ceil"};
const mu_op mu_op_round = {UNARY("round", ROUND, MU_FLOATS, real_run, samples_real),
                           .hlo = "stablehlo.round_nearest_even"};
mu_tensor *mu_round(mu_tensor *x)
{
    return x && mu__dtype_is_integer(x->dtype) ? mu_identity(x) : mu__apply1(&mu_op_round, NULL, x);
}

// ---- Exponentials, logarithms, powers -----------------------------------------------------------

static mu_tensor *exp_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, g->y[0]);
}
const mu_op mu_op_exp = {UNARY("exp", EXP, MU_FLOATS, math_run, samples_real), .grad = exp_grad,
                         .hlo = "stablehlo.exponential"};

static mu_tensor *expm1_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_exp(g->x[0]));
}
const mu_op mu_op_expm1 = {UNARY("expm1", EXPM1, MU_FLOATS, math_run, samples_real), .grad = expm1_grad,
                           .hlo = "stablehlo.exponential_minus_one"};

static mu_tensor *log_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, g->x[0]);
}
const mu_op mu_op_log = {UNARY("log", LOG, MU_FLOATS, math_run, samples_positive), .grad = log_grad,
                         .hlo = "stablehlo.log"};

static mu_tensor *log1p_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, plus(g->x[0], 1));
}
const mu_op mu_op_log1p = {UNARY("log1p", LOG1P, MU_FLOATS, math_run, samples_positive), .grad = log1p_grad,
                           .hlo = "stablehlo.log_plus_one"};

static mu_tensor *sqrt_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(mu__scale(g->dy, 0.5), g->y[0]);
}
const mu_op mu_op_sqrt = {UNARY("sqrt", SQRT, MU_FLOATS, math_run, samples_positive), .grad = sqrt_grad,
                          .hlo = "stablehlo.sqrt"};

static mu_tensor *rsqrt_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu__scale(mu_multiply(g->y[0], mu_square(g->y[0])), -0.5));
}
const mu_op mu_op_rsqrt = {UNARY("rsqrt", RSQRT, MU_FLOATS, math_run, samples_positive), .grad = rsqrt_grad,
                           .hlo = "stablehlo.rsqrt"};

static mu_tensor *reciprocal_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_neg(times(g, mu_square(g->y[0])));
}
const mu_op mu_op_reciprocal = {UNARY("reciprocal", RECIPROCAL, MU_FLOATS, real_run, samples_positive),
                                .grad = reciprocal_grad, .lower = mu__lower_activation};

// erf' = 2 / sqrt(pi) e^(-x^2); erfc' is its negative.
static mu_tensor *erf_grad(mu_grad *g, int i)
{
    (void)i;
    double factor = g->op->variant == MU_UNARY_ERF ? 1.1283791670955125739 : -1.1283791670955125739;
    return times(g, mu__scale(mu_exp(mu_neg(mu_square(g->x[0]))), factor));
}
const mu_op mu_op_erf = {UNARY("erf", ERF, MU_FLOATS, math_run, samples_real), FORMULA, .grad = erf_grad};
const mu_op mu_op_erfc = {UNARY("erfc", ERFC, MU_FLOATS, math_run, samples_real), FORMULA, .grad = erf_grad};

static mu_tensor *lgamma_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_digamma(g->x[0]));
}
const mu_op mu_op_lgamma = {UNARY("lgamma", LGAMMA, MU_FLOATS, math_run, samples_positive), FORMULA,
                            .grad = lgamma_grad};

static mu_tensor *digamma_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu__apply1(&mu_op_trigamma, NULL, g->x[0]));
}
const mu_op mu_op_digamma = {UNARY("digamma", DIGAMMA, MU_FLOATS, math_run, samples_positive), FORMULA,
                             .grad = digamma_grad};

static mu_tensor *trigamma_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_polygamma(2, g->x[0]));
}
static const mu_sample samples_trigamma[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .low = {0.8}, .high = {9}},
    {.n_in = 1, .in = {MU_DIMS(5)}, .low = {-2.7}, .high = {-2.3}},
    {.n_in = 1, .in = {MU_DIMS(0)}},
    {0},
};
const mu_op mu_op_trigamma = {UNARY("trigamma", TRIGAMMA, MU_FLOATS, real_run, samples_trigamma), .grad = trigamma_grad,
                              .lower = mu__lower_formula};

// ---- Trigonometry -------------------------------------------------------------------------------

static mu_tensor *sin_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_cos(g->x[0]));
}
const mu_op mu_op_sin = {UNARY("sin", SIN, MU_FLOATS, math_run, samples_real), .grad = sin_grad,
                         .hlo = "stablehlo.sine"};

static mu_tensor *cos_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_neg(times(g, mu_sin(g->x[0])));
}
const mu_op mu_op_cos = {UNARY("cos", COS, MU_FLOATS, math_run, samples_real), .grad = cos_grad,
                         .hlo = "stablehlo.cosine"};

static mu_tensor *tan_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, plus(mu_square(g->y[0]), 1));
}
const mu_op mu_op_tan = {UNARY("tan", TAN, MU_FLOATS, math_run, samples_unit), .grad = tan_grad,
                         .hlo = "stablehlo.tan"};

// 1 / sqrt(1 - x^2), negative for acos.
static mu_tensor *asin_grad(mu_grad *g, int i)
{
    (void)i;
    mu_tensor *dx = times(g, mu_rsqrt(plus(mu_neg(mu_square(g->x[0])), 1)));
    return g->op->variant == MU_UNARY_ASIN ? dx : mu_neg(dx);
}
const mu_op mu_op_asin = {UNARY("asin", ASIN, MU_FLOATS, math_run, samples_unit), FORMULA, .grad = asin_grad};
const mu_op mu_op_acos = {UNARY("acos", ACOS, MU_FLOATS, math_run, samples_unit), FORMULA, .grad = asin_grad};

static mu_tensor *atan_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, plus(mu_square(g->x[0]), 1));
}
const mu_op mu_op_atan = {UNARY("atan", ATAN, MU_FLOATS, math_run, samples_real), FORMULA, .grad = atan_grad};

static mu_tensor *sinh_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_cosh(g->x[0]));
}
const mu_op mu_op_sinh = {UNARY("sinh", SINH, MU_FLOATS, math_run, samples_real), FORMULA, .grad = sinh_grad};

static mu_tensor *cosh_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_sinh(g->x[0]));
}
const mu_op mu_op_cosh = {UNARY("cosh", COSH, MU_FLOATS, math_run, samples_real), FORMULA, .grad = cosh_grad};

static mu_tensor *tanh_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_tanh_grad, NULL, g->dy, g->y[0]);
}
const mu_op mu_op_tanh = {UNARY("tanh", TANH, MU_FLOATS, math_run, samples_real), .grad = tanh_grad,
                          .hlo = "stablehlo.tanh"};

static mu_tensor *asinh_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_rsqrt(plus(mu_square(g->x[0]), 1)));
}
const mu_op mu_op_asinh = {UNARY("asinh", ASINH, MU_FLOATS, math_run, samples_real), FORMULA, .grad = asinh_grad};

static mu_tensor *acosh_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, mu_sinh(g->y[0]));
}
const mu_op mu_op_acosh = {UNARY("acosh", ACOSH, MU_FLOATS, math_run, samples_above_one), FORMULA, .grad = acosh_grad};

static mu_tensor *atanh_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, plus(mu_neg(mu_square(g->x[0])), 1));
}
const mu_op mu_op_atanh = {UNARY("atanh", ATANH, MU_FLOATS, math_run, samples_unit), FORMULA, .grad = atanh_grad};

// ---- Activations (nn_compose.c has the tf.nn names) ----------------------------------------------

static mu_tensor *sigmoid_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_sigmoid_grad, NULL, g->dy, g->y[0]);
}
const mu_op mu_op_sigmoid = {UNARY("sigmoid", SIGMOID, MU_FLOATS, math_run, samples_real), .grad = sigmoid_grad,
                             .hlo = "stablehlo.logistic"};

static mu_tensor *log_sigmoid_grad(mu_grad *g, int i)
{
    (void)i;
    return times(g, mu_sigmoid(mu_neg(g->x[0])));
}
const mu_op mu_op_log_sigmoid = {UNARY("log_sigmoid", LOG_SIGMOID, MU_FLOATS, math_run, samples_real),
                                 .grad = log_sigmoid_grad, .lower = mu__lower_activation};

static mu_tensor *softplus_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_softplus_grad, NULL, g->dy, g->x[0]);
}
const mu_op mu_op_softplus = {UNARY("softplus", SOFTPLUS, MU_FLOATS, math_run, samples_real), .grad = softplus_grad,
                              .lower = mu__lower_activation};

static mu_tensor *softsign_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_divide(g->dy, mu_square(plus(mu_abs(g->x[0]), 1)));
}
const mu_op mu_op_softsign = {UNARY("softsign", SOFTSIGN, MU_FLOATS, real_run, samples_real), .grad = softsign_grad,
                              .lower = mu__lower_activation};

static mu_tensor *relu_rule(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_relu_grad, NULL, g->dy, g->y[0]);
}
const mu_op mu_op_relu = {UNARY("relu", RELU, MU_FLOATS, real_run, samples_real), .grad = relu_rule,
                          .lower = mu__lower_relu};

// dy where low < x < high, else 0.
static mu_tensor *between(const mu_grad *g, double low, double high, mu_tensor *inside)
{
    mu_tensor *x = g->x[0];
    mu_tensor *is_inside = mu_logical_and(mu_greater(x, mu__scalar_like(x, low)), mu_less(x, mu__scalar_like(x, high)));
    return mu_where(is_inside, inside, mu__scalar_like(x, 0));
}

static mu_tensor *relu6_grad(mu_grad *g, int i)
{
    (void)i;
    return between(g, 0, 6, g->dy);
}
const mu_op mu_op_relu6 = {UNARY("relu6", RELU6, MU_FLOATS, real_run, samples_real), .grad = relu6_grad,
                           .lower = mu__lower_activation};

static mu_tensor *hard_sigmoid_grad(mu_grad *g, int i)
{
    (void)i;
    return between(g, -3, 3, mu__scale(g->dy, 1.0 / 6));
}
const mu_op mu_op_hard_sigmoid = {UNARY("hard_sigmoid", HARD_SIGMOID, MU_FLOATS, real_run, samples_real),
                                  .grad = hard_sigmoid_grad, .lower = mu__lower_activation};

static mu_tensor *where_negative(const mu_grad *g, mu_tensor *negative, mu_tensor *other)
{
    return mu_where(mu_less(g->x[0], mu__scalar_like(g->x[0], 0)), negative, other);
}

// At 0 the derivative is that of the negative side, as in TensorFlow.
static mu_tensor *leaky_relu_grad(mu_grad *g, int i)
{
    (void)i;
    mu_tensor *scaled = mu__scale(g->dy, ((const mu_alpha_attrs *)g->attrs)->alpha);
    return mu_where(mu_greater(g->x[0], mu__scalar_like(g->x[0], 0)), g->dy, scaled);
}
static const mu_attr_spec alpha_attrs[] = {{"alpha", MU_ATTR_REAL, offsetof(mu_alpha_attrs, alpha)}, {0}};
static const mu_alpha_attrs sample_alpha = {.alpha = 0.3};
static const mu_sample samples_alpha[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &sample_alpha},
    {.n_in = 1, .in = {MU_DIMS(2, 0)}, .attrs = &sample_alpha},
    {0},
};
const mu_op mu_op_leaky_relu = {UNARY("leaky_relu", LEAKY_RELU, MU_FLOATS, real_run, samples_alpha),
                                .attrs_bytes = sizeof(mu_alpha_attrs), .attrs = alpha_attrs, .grad = leaky_relu_grad,
                                .lower = mu__lower_activation};

static mu_tensor *elu_grad(mu_grad *g, int i)
{
    (void)i;
    return where_negative(g, times(g, plus(g->y[0], ((const mu_alpha_attrs *)g->attrs)->alpha)), g->dy);
}
const mu_op mu_op_elu = {UNARY("elu", ELU, MU_FLOATS, math_run, samples_alpha), .attrs_bytes = sizeof(mu_alpha_attrs),
                         .attrs = alpha_attrs, .grad = elu_grad, .lower = mu__lower_activation};

static mu_tensor *selu_grad(mu_grad *g, int i)
{
    (void)i;
    return where_negative(g, times(g, plus(g->y[0], 1.7580993408473768599)), mu__scale(g->dy, 1.0507009873554804934));
}
const mu_op mu_op_selu = {UNARY("selu", SELU, MU_FLOATS, math_run, samples_real), .grad = selu_grad,
                          .lower = mu__lower_activation};

static mu_tensor *gelu_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_gelu_grad, NULL, g->dy, g->x[0]);
}
const mu_op mu_op_gelu = {UNARY("gelu", GELU, MU_FLOATS, math_run, samples_real), FORMULA, .grad = gelu_grad};

static mu_tensor *gelu_tanh_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_gelu_tanh_grad, NULL, g->dy, g->x[0]);
}
const mu_op mu_op_gelu_tanh = {UNARY("gelu_tanh", GELU_TANH, MU_FLOATS, math_run, samples_real), .grad = gelu_tanh_grad,
                               .lower = mu__lower_activation};

static mu_tensor *silu_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_silu_grad, NULL, g->dy, g->x[0]);
}
const mu_op mu_op_silu = {UNARY("silu", SILU, MU_FLOATS, math_run, samples_real), .grad = silu_grad,
                          .lower = mu__lower_activation};

static mu_tensor *mish_grad(mu_grad *g, int i)
{
    (void)i;
    mu_tensor *x = g->x[0], *t = mu_tanh(mu__apply1(&mu_op_softplus, NULL, x));
    mu_tensor *derivative = mu_multiply(mu_multiply(x, mu_sigmoid(x)), plus(mu_neg(mu_square(t)), 1));
    return times(g, mu_add(t, derivative));
}
const mu_op mu_op_mish = {UNARY("mish", MISH, MU_FLOATS, math_run, samples_real), .grad = mish_grad,
                          .lower = mu__lower_activation};

// ---- Tests of elements --------------------------------------------------------------------------

#define PREDICATE(text, which)                                                                                         \
    .name = text, .variant = MU_UNARY_##which, .n_in = 1, .n_out = 1, .flags = MU_OP_ELEMENTWISE, .dtypes = MU_FLOATS, \
    .infer = predicate_infer, .ref = mu__unary_ref, .cpu = {.run = predicate_run}, .samples = samples_real

const mu_op mu_op_is_nan = {PREDICATE("is_nan", IS_NAN), .lower = mu__lower_predicate};
const mu_op mu_op_is_inf = {PREDICATE("is_inf", IS_INF), .lower = mu__lower_predicate};
const mu_op mu_op_is_finite = {PREDICATE("is_finite", IS_FINITE), .hlo = "stablehlo.is_finite"};
