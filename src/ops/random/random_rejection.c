// Random numbers drawn by rejection: gamma and Poisson.
//
// Each element has its own section of the seed's sequence, long enough for all attempts, so any thread can draw any
// element. The methods and the order in which they consume random numbers are TensorFlow's (Marsaglia and Tsang 2000
// for gamma; Knuth's product and Hörmann's PTRS, 1993, for Poisson), so the draws agree. The parameters' shape is the
// last axes of the result; the draws of one parameter are consecutive in the sequence.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/plain.h"
#include "ops/random/random.h"

#include <float.h>
#include <math.h>
#include <muster/ops.h>

// The first counters of several elements' sections, computed together; for the first counter also normal numbers.
enum { BLOCK = MU_RANDOM_PAIRS, AHEAD = 4, FACTORIALS = 64 };
typedef struct precomputed {
    uint32_t words[AHEAD][4 * BLOCK];
    double uniforms[AHEAD][2 * BLOCK], normals[2 * BLOCK];
    bool has_normals;
    mu_philox first;                   // of the whole sequence
    double log_factorials[FACTORIALS]; // cache of log(k!); 0: not computed yet
} precomputed;

// An element's section of the sequence. Each counter yields two doubles, of which the second is used first.
typedef struct stretch {
    precomputed *precomputed; // NULL: nothing is precomputed
    int64_t element;          // in precomputed
    uint64_t begin;           // its first counter in the sequence
    int used;                 // counters consumed
    mu_philox generator;      // at the first counter that is not precomputed
    int n_uniform, n_normal;
    double uniform[2], normal[2];
} stretch;

static void next_words(stretch *s, uint32_t words[4])
{
    if (s->used < AHEAD) {
        memcpy(words, s->precomputed->words[s->used++] + 4 * s->element, 4 * sizeof *words);
        return;
    }
    if (s->used == AHEAD) {
        s->generator = s->precomputed->first;
        mu__philox_skip(&s->generator, s->begin + AHEAD);
    }
    mu__philox_next(&s->generator, words);
    s->used++;
}

static double next_uniform(stretch *s)
{
    if (s->n_uniform == 0 && s->used < AHEAD) {
        memcpy(s->uniform, s->precomputed->uniforms[s->used++] + 2 * s->element, sizeof s->uniform);
        s->n_uniform = 2;
    } else if (s->n_uniform == 0) {
        uint32_t words[4];
        next_words(s, words);
        for (int i = 0; i < 2; i++)
            s->uniform[i] = mu__random_double(words[2 * i], words[2 * i + 1]);
        s->n_uniform = 2;
    }
    return s->uniform[--s->n_uniform];
}

static double next_normal(stretch *s)
{
    if (s->n_normal == 0) {
        uint32_t words[4];
        next_words(s, words);
        if (s->used == 1 && s->precomputed->has_normals)
            memcpy(s->normal, s->precomputed->normals + 2 * s->element, sizeof s->normal);
        else
            mu__random_normals(words, s->normal);
        s->n_normal = 2;
    }
    return s->normal[--s->n_normal];
}

// ---- Draws --------------------------------------------------------------------------------------

static double draw_gamma(stretch *s, double alpha)
{
    if (alpha == 1)
        return -log1p(-next_uniform(s));
    if (!(alpha > 0) || isinf(alpha))
        return alpha > 0 ? alpha : NAN;
    const bool small = alpha < 1; // draws with alpha + 1, then multiplies by a power of a uniform number
    const double d = alpha + (small ? 2.0 / 3 : -1.0 / 3), c = 1.0 / 3 / sqrt(d);
    for (;;) {
        const double x = next_normal(s);
        double v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        const double u = next_uniform(s);
        if (u < 1 - 0.0331 * (x * x) * (x * x) || log(u) < 0.5 * x * x + d * (1 - v + log(v)))
            return small ? d * v * pow(next_uniform(s), 1 / alpha) : d * v;
    }
}

// Knuth: counts uniform numbers until their product falls below exp(-rate).
static double draw_poisson_by_product(stretch *s, double rate)
{
    const double least = exp(-rate);
    double product = next_uniform(s), count = 0;
    for (; product > least; count++)
        product *= next_uniform(s);
    return count;
}

// log(k!), cached for small k, which are the most frequent.
static double log_factorial(precomputed *made, double k)
{
    if (!made || !(k < FACTORIALS))
        return lgamma(k + 1);
    double *kept = &made->log_factorials[(int)k];
    if (*kept == 0)
        *kept = lgamma(k + 1);
    return *kept;
}

static double draw_poisson_by_ratio(stretch *s, double rate)
{
    const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    for (;;) {
        const double u = next_uniform(s) - 0.5, v = next_uniform(s), distance = 0.5 - fabs(u);
        const double k = floor((2 * a / distance + b) * u + rate + 0.43);
        if (distance >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2))
            return k;
        if (k < 0 || (distance < 0.013 && v > distance))
            continue;
        const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        const double chance = -rate + k * log(rate) - log_factorial(s->precomputed, k);
        if (log(v * inverse_alpha / (a / (distance * distance) + b)) <= chance)
            return k;
    }
}

// The count is 0 for a rate of 0 or less. Infinite and NaN counts exist only for float results.
static double draw_poisson(stretch *s, double rate, bool floats)
{
    if (!isfinite(rate))
        return floats && !(rate < 0) ? rate : 0;
    return rate < MU_RANDOM_KNUTH_BELOW ? draw_poisson_by_product(s, rate) : draw_poisson_by_ratio(s, rate);
}

static void precompute(precomputed *made, uint64_t begin, int64_t n, bool gamma)
{
    mu_philox generator = made->first;
    mu__philox_skip(&generator, begin);
    for (int i = 0; i < AHEAD; i++, mu__philox_skip(&generator, 1)) {
        mu__philox_fill(&generator, MU_RANDOM_STRETCH, n, made->words[i]);
        mu__random_doubles(made->words[i], made->uniforms[i], 2 * n);
    }
    made->has_normals = gamma;
    if (gamma)
        mu__random_normals_of(made->words[0], made->normals, n);
}

static void draw_elements(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_view *parameters = &k->in[1], *out = &k->out[0];
    const int64_t n_parameters = mu__elements(&parameters->shape), each = mu__elements(&out->shape) / n_parameters;
    const bool gamma = k->op == &mu_op_stateless_random_gamma, floats = mu__dtype_is_float(out->dtype);
    precomputed made;
    made.first = mu__random_generator(&k->in[0]);
    memset(made.log_factorials, 0, sizeof made.log_factorials);
    int64_t which = begin / each, sample = begin % each;
    for (int64_t i = begin; i < end; i++) {
        stretch s;
        s.precomputed = &made;
        s.element = (i - begin) % BLOCK;
        s.begin = (uint64_t)i * MU_RANDOM_STRETCH;
        s.used = s.n_uniform = s.n_normal = 0;
        if (s.element == 0)
            precompute(&made, s.begin, MU_MIN((int64_t)BLOCK, end - i), gamma);
        const double parameter = mu__read_element(parameters->dtype, parameters->data, which);
        mu__write_element(out->dtype, out->data, sample * n_parameters + which,
                          gamma ? draw_gamma(&s, parameter) : draw_poisson(&s, parameter, floats));
        if (++sample == each) {
            sample = 0;
            which++;
        }
    }
}

static mu_status draw_fast(const mu_kernel *k)
{
    const int64_t n = mu__elements(&k->out[0].shape);
    mu__share_range(k->team, n, 16, n * 64, draw_elements, (void *)k);
    return MU_OK;
}

static mu_status draw_ref(const mu_kernel *k)
{
    const mu_view *parameters = &k->in[1], *out = &k->out[0];
    const int64_t n = mu__elements(&out->shape), n_parameters = mu__elements(&parameters->shape);
    for (int64_t i = 0; i < n; i++) {
        const int64_t each = n / n_parameters, which = i / each, sample = i % each;
        const double parameter = mu__read_real(parameters, which);
        stretch s = {.used = AHEAD + 1, .generator = mu__random_generator(&k->in[0])};
        mu__philox_skip(&s.generator, (uint64_t)i * MU_RANDOM_STRETCH);
        mu__write_real(out, sample * n_parameters + which,
                       k->op == &mu_op_stateless_random_gamma
                           ? draw_gamma(&s, parameter)
                           : draw_poisson(&s, parameter, mu__dtype_is_float(out->dtype)));
    }
    return MU_OK;
}

// ---- The derivative of a gamma draw towards alpha -----------------------------------------------

// Implicit differentiation: -(dP/da) / p, where P(a, x) is the distribution function and p the density. In the series
// of P a common factor cancels, which leaves the sum of c_n (digamma(a + n + 1) - log x), c_0 = x / a, c_n = c_(n-1) x
// / (a + n).
static double gamma_derivative(double a, double x)
{
    if (!(a > 0) || !(x > 0) || isinf(x) || isinf(a))
        return x == 0 ? 0 : NAN;
    const double log_x = log(x);
    double weight = x / a, digamma = mu__digamma(a + 1), sum = 0, total = 0;
    for (double n = 1;; n++) {
        const double term = weight * (digamma - log_x);
        sum += term;
        total += weight;
        if (n > x - a && weight * fabs(digamma - log_x) <= DBL_EPSILON * 0.01 * fabs(sum) + DBL_MIN * total)
            return sum;
        if (!isfinite(total) || n > MU_RANDOM_MOST_TERMS) // x is far beyond any draw from this distribution
            return NAN;
        digamma += 1 / (a + n);
        weight *= x / (a + n);
    }
}

static void derivatives(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_view *alpha = &k->in[0], *draws = &k->in[1], *out = &k->out[0];
    const int64_t n = mu__elements(&alpha->shape);
    for (int64_t i = begin; i < end; i++)
        mu__write_element(out->dtype, out->data, i,
                          gamma_derivative(mu__read_element(alpha->dtype, alpha->data, i % n),
                                           mu__read_element(draws->dtype, draws->data, i)));
}

static mu_status derivative_ref(const mu_kernel *k)
{
    const int64_t n = mu__elements(&k->out[0].shape);
    mu__share_range(k->team, n, 16, n * 64, derivatives, (void *)k);
    return MU_OK;
}

static mu_tensor *gamma_rule(mu_grad *g, int i)
{
    if (i == 0)
        return NULL;
    mu_tensor *derivative = mu__apply2(&mu_op_random_gamma_grad, NULL, g->x[1], g->y[0]);
    return mu_sum_to_like(mu_multiply(g->dy, derivative), g->x[1]);
}

// ---- Op definitions -----------------------------------------------------------------------------

// Error unless the shape `last` is the last axes of `all`.
static mu_status need_last_axes(const mu_infer *infer, const mu_shape *last, const mu_shape *all)
{
    mu_shape tail = {.rank = last->rank};
    char last_text[MU_SHAPE_TEXT], all_text[MU_SHAPE_TEXT];
    for (int i = 0; i < last->rank && last->rank <= all->rank; i++)
        tail.dims[i] = all->dims[all->rank - last->rank + i];
    if (last->rank <= all->rank && mu__shape_compatible(&tail, last))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: parameters of shape %s must be the last axes of the result, %s",
                     infer->op->name, mu__shape_text(last, last_text), mu__shape_text(all, all_text));
}

static mu_status draw_infer(mu_infer *infer)
{
    const mu_random_attrs *attrs = infer->attrs;
    const mu_spec *parameters = &infer->in[1];
    const bool gamma = infer->op == &mu_op_stateless_random_gamma;
    const unsigned counts = MU_FLOATS | MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64);
    MU_TRY(mu__need_seed(infer));
    if (!mu__dtype_is_float(parameters->dtype) || !mu__dtype_ok(attrs->dtype) ||
        !(gamma ? attrs->dtype == parameters->dtype : counts & MU_DTYPE_BIT(attrs->dtype)))
        return mu__error(MU_INVALID_ARGUMENT, "%s: it does not make %s of %s parameters", infer->op->name,
                         mu_dtype_name(attrs->dtype), mu_dtype_name(parameters->dtype));
    MU_TRY(mu__need_known_shape(&attrs->shape, infer->op->name));
    MU_TRY(need_last_axes(infer, &parameters->shape, &attrs->shape));
    infer->out[0] = (mu_spec){attrs->dtype, attrs->shape};
    return MU_OK;
}

// Inputs: alpha, draws.
static mu_status derivative_infer(mu_infer *infer)
{
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(need_last_axes(infer, &infer->in[0].shape, &infer->in[1].shape));
    infer->out[0] = infer->in[1];
    return MU_OK;
}

static const mu_attr_spec draw_fields[] = {
    {"shape", MU_ATTR_SHAPE, offsetof(mu_random_attrs, shape)},
    {"dtype", MU_ATTR_DTYPE, offsetof(mu_random_attrs, dtype)},
    {0},
};
static const mu_random_attrs f32_4x3 = {MU_DIMS(4, 3), MU_F32, 0, 0}, i64_7 = {MU_DIMS(7), MU_I64, 0, 0},
                             f64_0 = {MU_DIMS(0, 2), MU_F64, 0, 0};
static const mu_sample samples_gamma[] = {
    {.n_in = 2,
     .in = {MU_DIMS(2), MU_DIMS(3)},
     .dtypes = {MU_I64, MU_F32},
     .attrs = &f32_4x3,
     .low = {0, 0.1},
     .high = {1000, 3},
     .no_grad = 3},
    {.n_in = 2,
     .in = {MU_DIMS(2), MU_DIMS(2)},
     .dtypes = {MU_I32, MU_F64},
     .attrs = &f64_0,
     .low = {0, 0.1},
     .high = {1000, 3},
     .no_grad = 3},
    {0},
};
static const mu_sample samples_poisson[] = {
    {.n_in = 2,
     .in = {MU_DIMS(2), MU_NO_DIMS},
     .dtypes = {MU_I64, MU_F64},
     .attrs = &i64_7,
     .low = {0, 1},
     .high = {1000, 40},
     .no_grad = 3},
    {.n_in = 2,
     .in = {MU_DIMS(2), MU_DIMS(4, 3)},
     .dtypes = {MU_I32, MU_F32},
     .attrs = &f32_4x3,
     .low = {0, 1},
     .high = {1000, 40},
     .no_grad = 3},
    {0},
};
static const mu_sample samples_derivative[] = {
    {.n_in = 2, .in = {MU_DIMS(3), MU_DIMS(4, 3)}, .low = {0.2, 0.1}, .high = {6, 8}, .no_grad = 3},
    {.n_in = 2, .in = {MU_NO_DIMS, MU_DIMS(0)}, .low = {0.2, 0.1}, .high = {6, 8}, .no_grad = 3},
    {0},
};
#define DRAW(text, some, writes)                                                                        \
    .name = text, .n_in = 2, .n_out = 1, .dtypes = MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64),         \
    .attrs_bytes = sizeof(mu_random_attrs), .attrs = draw_fields, .infer = draw_infer, .ref = draw_ref, \
    .cpu = {.run = draw_fast}, .samples = some, .lower = writes

const mu_op mu_op_stateless_random_gamma = {DRAW("stateless_random_gamma", samples_gamma, mu__lower_gamma),
                                            .grad = gamma_rule};
const mu_op mu_op_stateless_random_poisson = {DRAW("stateless_random_poisson", samples_poisson, mu__lower_poisson)};
const mu_op mu_op_random_gamma_grad = {
    .name = "random_gamma_grad",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .infer = derivative_infer,
    .ref = derivative_ref,
    .samples = samples_derivative,
    .lower = mu__lower_gamma_grad,
};

// ---- Public functions ---------------------------------------------------------------------------

static mu_random_attrs attrs_of(mu_dtype dtype, int rank, const int64_t *dims)
{
    mu_random_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = mu_shape_make(rank, dims);
    attrs.dtype = dtype;
    return attrs;
}

static double smallest_normal(mu_dtype dtype)
{
    return dtype == MU_F64 ? DBL_MIN : dtype == MU_F16 ? 0x1p-14 : (double)FLT_MIN;
}

mu_tensor *mu_stateless_random_gamma(mu_tensor *seed, mu_tensor *alpha, mu_tensor *beta, int rank, const int64_t *dims)
{
    if (mu__pending())
        return NULL;
    mu_tensor *shape = alpha;
    if (alpha && beta && !mu__shape_equal(&alpha->shape, &beta->shape))
        alpha = mu_add(alpha, mu_zeros_like(beta));
    const mu_random_attrs attrs = attrs_of(alpha ? alpha->dtype : MU_F32, rank, dims);
    mu_tensor *draws = mu__apply2(&mu_op_stateless_random_gamma, &attrs, seed, alpha);
    if (beta)
        draws = mu_divide(draws, beta);
    mu_tensor *given[] = {seed, shape, beta};
    return mu__composed("stateless_random_gamma", 3, given,
                        draws ? mu_maximum(draws, mu__scalar_like(draws, smallest_normal(draws->dtype))) : NULL);
}

mu_tensor *mu_stateless_random_poisson(mu_tensor *seed, mu_tensor *rate, mu_dtype dtype, int rank, const int64_t *dims)
{
    const mu_random_attrs attrs = attrs_of(dtype, rank, dims);
    if (mu__pending())
        return NULL;
    if (rate && (rate->dtype == MU_I32 || rate->dtype == MU_I64))
        rate = mu_cast(rate, MU_F64);
    return mu__apply2(&mu_op_stateless_random_poisson, &attrs, seed, rate);
}
