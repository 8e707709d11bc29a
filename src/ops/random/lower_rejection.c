// Lowerings of random numbers drawn by rejection (gamma, Poisson), and of the derivative of a gamma draw.
//
// All elements draw at once, in a loop that ends when each has its number. An element takes words only of its own
// section of the sequence, and only while it is open, in the order of the plain loops (random_rejection.c); whether an
// attempt is accepted may differ where the two sides of the comparison are equal but for rounding.
#include "ops/core/attrs.h"
#include "ops/core/lower_formula.h"
#include "ops/random/random.h"

#include <float.h>
#include <math.h>

// The state of the loop, a vector of all elements but for key and high, which are scalars and never change. Each
// counter yields two uniform or two normal numbers; the one for the next time is kept.
enum { USED, HAS_UNIFORM, UNIFORM, HAS_NORMAL, NORMAL, OPEN, RESULT, PRODUCT, PARAMETER, KEY, HIGH, STATES };

typedef void write_attempt(const writer *w, mu_hlo state[]);

static mu_hlo both(const writer *w, mu_hlo a, mu_hlo b) { return mu__hlo_binary(w->e, "stablehlo.and", a, b); }
static mu_hlo either(const writer *w, mu_hlo a, mu_hlo b) { return mu__hlo_binary(w->e, "stablehlo.or", a, b); }
static mu_hlo no(const writer *w, mu_hlo a) { return one(w, "stablehlo.not", a); }
static mu_hlo is_finite(const writer *w, mu_hlo a)
{
    const mu_spec spec = {.dtype = MU_BOOL, .shape = a.spec.shape};
    return w->e->add(w->e, &spec, "stablehlo.is_finite", 1, &a, NULL);
}

static mu_hlo compared(const writer *w, const char *direction, mu_hlo a, double bound)
{
    return mu__hlo_compare(w->e, direction, a, number(w, bound));
}

// ---- Loops --------------------------------------------------------------------------------------

// while (any element is open) attempt. `open` is the place of what is open in the state of n values.
static void write_loop(const writer *w, int n, mu_hlo *state, int open, write_attempt *attempt)
{
    mu_hlo end[STATES], inside[STATES];
    const mu_ints axes = {.n = 1};
    mu_emitter *e = w->e;
    memcpy(end, state, sizeof *state * (size_t)n);
    mu_hlo_operation loop = {.name = "stablehlo.while", .n_in = n, .in = state, .n_out = n, .out = end};
    e->open(e, &loop);
    memcpy(inside, state, sizeof *state * (size_t)n);
    e->enter(e, &loop, n, inside);
    const mu_hlo more = mu__hlo_reduce(e, "stablehlo.or", inside[open], mu__hlo_number(e, MU_BOOL, 0), &axes);
    e->leave(e, 1, &more);
    memcpy(inside, state, sizeof *state * (size_t)n);
    e->enter(e, &loop, n, inside);
    attempt(w, inside);
    e->leave(e, n, inside);
    e->close(e, &loop, NULL);
    memcpy(state, end, sizeof *state * (size_t)n);
}

// ---- The next number of each element ------------------------------------------------------------

// The words of the next counter of each element, [4 n].
static mu_hlo next_words(const writer *w, const mu_hlo state[])
{
    mu_emitter *e = w->e;
    const mu_shape *vector = &w->spec.shape, words = MU_SHAPE(4 * vector->dims[0]);
    const mu_hlo begin =
        mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_iota(e, MU_HLO_U64, vector, 0),
                       mu__hlo_convert(e, mu__hlo_fill(e, MU_I64, vector, MU_RANDOM_STRETCH), MU_HLO_U64));
    const mu_hlo low = mu__hlo_binary(e, "stablehlo.add", begin, state[USED]);
    return mu__hlo_reshape(e, mu__hlo_words_at(e, low, mu__hlo_broadcast_to(e, state[HIGH], vector), state[KEY]),
                           &words);
}

// The next uniform (HAS_UNIFORM) or normal (HAS_NORMAL) number of the elements `who`; others' are not moved on.
static mu_hlo next(const writer *w, mu_hlo state[], int has, mu_hlo who)
{
    mu_emitter *e = w->e;
    const mu_shape *vector = &w->spec.shape, pairs = MU_SHAPE(vector->dims[0], 2);
    const mu_hlo words = next_words(w, state), fresh = both(w, who, no(w, state[has]));
    const mu_hlo made =
        mu__hlo_reshape(e, (has == HAS_NORMAL ? mu__hlo_normal : mu__hlo_uniform)(e, words, MU_F64), &pairs);
    const mu_hlo first = mu__hlo_reshape(e, mu__hlo_slice_axis(e, made, 1, 1, 2, 1), vector),
                 second = mu__hlo_reshape(e, mu__hlo_slice_axis(e, made, 1, 0, 1, 1), vector);
    const mu_hlo value = mu__hlo_select(e, state[has], state[has + 1], first);
    state[has + 1] = mu__hlo_select(e, fresh, second, state[has + 1]);
    state[has] = mu__hlo_binary(e, "stablehlo.xor", state[has], who);
    state[USED] = mu__hlo_binary(e, "stablehlo.add", state[USED], mu__hlo_convert(e, fresh, MU_HLO_U64));
    return value;
}

static void settle(const writer *w, mu_hlo state[], mu_hlo accepted, mu_hlo value)
{
    const mu_hlo now = both(w, state[OPEN], accepted);
    state[RESULT] = mu__hlo_select(w->e, now, value, state[RESULT]);
    state[OPEN] = both(w, state[OPEN], no(w, now));
}

// ---- Gamma --------------------------------------------------------------------------------------

// Marsaglia and Tsang; alpha below 1 draws with alpha + 1.
static void attempt_gamma(const writer *w, mu_hlo state[])
{
    const mu_hlo alpha = state[PARAMETER];
    const mu_hlo shift = select_by(w, "LT", alpha, 1, number(w, 2.0 / 3), number(w, -1.0 / 3));
    const mu_hlo d = add(w, alpha, shift), c = over(w, number(w, 1.0 / 3), root(w, d));
    const mu_hlo x = next(w, state, HAS_NORMAL, state[OPEN]), base = plus(w, mul(w, c, x), 1);
    const mu_hlo inside = compared(w, "GT", base, 0), u = next(w, state, HAS_UNIFORM, both(w, state[OPEN], inside));
    const mu_hlo v = mul(w, mul(w, base, base), base), square = mul(w, x, x);
    const mu_hlo quick = mu__hlo_compare(w->e, "LT", u, from(w, 1, mul(w, scaled(w, square, 0.0331), square)));
    const mu_hlo bound = add(w, scaled(w, square, 0.5), mul(w, d, add(w, from(w, 1, v), logarithm(w, v))));
    const mu_hlo accepted = either(w, quick, mu__hlo_compare(w->e, "LT", logarithm(w, u), bound));
    settle(w, state, both(w, inside, accepted), mul(w, d, v));
}

// 1: exponential. Below 1: times a power of a uniform number. Invalid alpha: NaN; infinite: itself.
static mu_hlo draw_gamma(const writer *w, mu_hlo state[])
{
    const mu_hlo alpha = state[PARAMETER], positive = compared(w, "GT", alpha, 0), is_one = compared(w, "EQ", alpha, 1);
    const mu_hlo drawn = both(w, both(w, positive, is_finite(w, alpha)), no(w, is_one));
    state[OPEN] = drawn;
    state[RESULT] = mu__hlo_select(w->e, positive, alpha, number(w, NAN));
    write_loop(w, STATES, state, OPEN, attempt_gamma);
    const mu_hlo small = both(w, drawn, compared(w, "LT", alpha, 1));
    const mu_hlo u = next(w, state, HAS_UNIFORM, either(w, small, is_one));
    const mu_hlo power = mu__hlo_binary(w->e, "stablehlo.power", u, over(w, number(w, 1), alpha));
    const mu_hlo exponential =
        one(w, "stablehlo.negate", one(w, "stablehlo.log_plus_one", one(w, "stablehlo.negate", u)));
    return mu__hlo_select(w->e, is_one, exponential,
                          mu__hlo_select(w->e, small, mul(w, state[RESULT], power), state[RESULT]));
}

// ---- Poisson ------------------------------------------------------------------------------------

// Whether Hörmann's PTRS accepts k, drawn of u (from which 1/2 is subtracted) and v.
static mu_hlo accepts(const writer *w, mu_hlo rate, mu_hlo b, mu_hlo a, mu_hlo distance, mu_hlo v, mu_hlo k)
{
    const mu_hlo squeeze = from(w, 0.9277, over(w, number(w, 3.6224), plus(w, b, -2)));
    const mu_hlo quick = both(w, compared(w, "GE", distance, 0.07), mu__hlo_compare(w->e, "LE", v, squeeze));
    const mu_hlo out = either(w, compared(w, "LT", k, 0),
                              both(w, compared(w, "LT", distance, 0.013), mu__hlo_compare(w->e, "GT", v, distance)));
    const mu_hlo inverse_alpha = plus(w, over(w, number(w, 1.1328), plus(w, b, -3.4)), 1.1239);
    const mu_hlo log_factorial = mu__hlo_lgamma_above(w, plus(w, k, 1));
    const mu_hlo chance = sub(w, sub(w, mul(w, k, logarithm(w, rate)), rate), log_factorial);
    const mu_hlo scale = add(w, over(w, a, mul(w, distance, distance)), b);
    const mu_hlo slow = mu__hlo_compare(w->e, "LE", logarithm(w, over(w, mul(w, v, inverse_alpha), scale)), chance);
    return either(w, quick, both(w, no(w, out), slow));
}

// Small rates, by Knuth: an attempt multiplies by one more uniform number, and counts. Others: PTRS.
static void attempt_poisson(const writer *w, mu_hlo state[])
{
    const mu_hlo rate = state[PARAMETER], by_product = compared(w, "LT", rate, MU_RANDOM_KNUTH_BELOW);
    const mu_hlo u = next(w, state, HAS_UNIFORM, state[OPEN]);
    const mu_hlo v = next(w, state, HAS_UNIFORM, both(w, state[OPEN], no(w, by_product)));
    const mu_hlo centred = plus(w, u, -0.5), distance = from(w, 0.5, one(w, "stablehlo.abs", centred));
    const mu_hlo b = plus(w, scaled(w, root(w, rate), 2.53), 0.931), a = plus(w, scaled(w, b, 0.02483), -0.059);
    const mu_hlo slope = add(w, over(w, scaled(w, a, 2), distance), b);
    const mu_hlo k = one(w, "stablehlo.floor", plus(w, add(w, mul(w, slope, centred), rate), 0.43));
    state[PRODUCT] = mul(w, state[PRODUCT], u);
    const mu_hlo least = one(w, "stablehlo.exponential", one(w, "stablehlo.negate", rate));
    const mu_hlo counted = plus(w, state[RESULT], 1), fell = mu__hlo_compare(w->e, "LE", state[PRODUCT], least);
    const mu_hlo counting = both(w, state[OPEN], by_product);
    state[RESULT] = mu__hlo_select(w->e, counting, counted, state[RESULT]);
    settle(w, state, mu__hlo_select(w->e, by_product, fell, accepts(w, rate, b, a, distance, v, k)),
           mu__hlo_select(w->e, by_product, counted, k));
}

// Infinite and NaN counts exist only for float results.
static mu_hlo draw_poisson(const writer *w, mu_hlo state[], bool floats)
{
    const mu_hlo rate = state[PARAMETER], drawn = is_finite(w, rate), zero = number(w, 0);
    state[OPEN] = drawn;
    state[RESULT] = number(w, -1);
    write_loop(w, STATES, state, OPEN, attempt_poisson);
    return mu__hlo_select(w->e, drawn, state[RESULT], floats ? select_by(w, "LT", rate, 0, zero, rate) : zero);
}

// ---- Ops that draw ------------------------------------------------------------------------------

static void begin(const writer *w, mu_hlo seed, mu_hlo parameter, mu_hlo state[STATES])
{
    mu_emitter *e = w->e;
    const mu_shape *vector = &w->spec.shape, scalar = {.rank = 0};
    const mu_hlo generator = mu__hlo_seeded(e, seed), never = mu__hlo_fill(e, MU_BOOL, vector, 0);
    state[USED] = mu__hlo_convert(e, mu__hlo_fill(e, MU_I64, vector, 0), MU_HLO_U64);
    state[HAS_UNIFORM] = state[HAS_NORMAL] = never;
    state[UNIFORM] = state[NORMAL] = number(w, 0);
    state[PRODUCT] = number(w, 1);
    state[PARAMETER] = parameter;
    state[KEY] = mu__hlo_reshape(e, mu__hlo_slice_axis(e, generator, 0, 0, 1, 1), &scalar);
    state[HIGH] = mu__hlo_reshape(e, mu__hlo_slice_axis(e, generator, 0, 2, 3, 1), &scalar);
}

// The draws of one parameter are consecutive in the sequence, and the parameters' axes are the result's last ones.
static mu_status lower_draw(mu_lowering *l, bool gamma)
{
    mu_emitter *e = l->emitter;
    const mu_spec *spec = &l->out[0].spec;
    const int64_t n = mu__elements(&spec->shape);
    if (n == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, spec->dtype, &spec->shape, 0));
    const int64_t n_parameters = mu__elements(&l->in[1].spec.shape);
    const mu_shape flat = MU_SHAPE(n_parameters), table = MU_SHAPE(n_parameters, n / n_parameters), all = MU_SHAPE(n);
    const mu_ints rows = {.n = 1}, swap = {.n = 2, .at = {1, 0}};
    const writer w = {e, {.dtype = MU_F64, .shape = all}};
    const mu_hlo parameters = mu__hlo_reshape(e, mu__hlo_convert(e, l->in[1], MU_F64), &flat);
    mu_hlo state[STATES];
    begin(&w, l->in[0], mu__hlo_reshape(e, mu__hlo_broadcast(e, parameters, &table, &rows), &all), state);
    const mu_hlo drawn = gamma ? draw_gamma(&w, state) : draw_poisson(&w, state, mu__dtype_is_float(spec->dtype));
    const mu_hlo ordered = mu__hlo_transpose(e, mu__hlo_reshape(e, drawn, &table), &swap);
    return mu__lowered(l, 0, mu__hlo_convert(e, mu__hlo_reshape(e, ordered, &spec->shape), spec->dtype));
}

mu_status mu__lower_gamma(mu_lowering *l) { return lower_draw(l, true); }
mu_status mu__lower_poisson(mu_lowering *l) { return lower_draw(l, false); }

// ---- The derivative of a gamma draw -------------------------------------------------------------

// The series of random_rejection.c; all vectors.
enum { GOES_ON, VALUE, TERM_NUMBER, WEIGHT, DIGAMMA, SUM, TOTAL, ALPHA, DRAW, GRAD_STATES };

static void add_term(const writer *w, mu_hlo s[])
{
    const mu_hlo n = s[TERM_NUMBER], apart = sub(w, s[DIGAMMA], logarithm(w, s[DRAW]));
    s[SUM] = add(w, s[SUM], mul(w, s[WEIGHT], apart));
    s[TOTAL] = add(w, s[TOTAL], s[WEIGHT]);
    const mu_hlo left = mul(w, s[WEIGHT], one(w, "stablehlo.abs", apart));
    const mu_hlo least =
        add(w, scaled(w, one(w, "stablehlo.abs", s[SUM]), DBL_EPSILON * 0.01), scaled(w, s[TOTAL], DBL_MIN));
    const mu_hlo exact =
        both(w, mu__hlo_compare(w->e, "GT", n, sub(w, s[DRAW], s[ALPHA])), mu__hlo_compare(w->e, "LE", left, least));
    const mu_hlo lost = either(w, no(w, is_finite(w, s[TOTAL])), compared(w, "GT", n, MU_RANDOM_MOST_TERMS));
    const mu_hlo now = both(w, s[GOES_ON], either(w, exact, lost));
    s[VALUE] = mu__hlo_select(w->e, now, mu__hlo_select(w->e, exact, s[SUM], number(w, NAN)), s[VALUE]);
    s[GOES_ON] = both(w, s[GOES_ON], no(w, now));
    const mu_hlo factor = add(w, s[ALPHA], n);
    s[DIGAMMA] = add(w, s[DIGAMMA], over(w, number(w, 1), factor));
    s[WEIGHT] = mul(w, s[WEIGHT], over(w, s[DRAW], factor));
    s[TERM_NUMBER] = plus(w, n, 1);
}

mu_status mu__lower_gamma_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_spec *spec = &l->out[0].spec;
    const mu_shape all = MU_SHAPE(mu__elements(&spec->shape));
    if (all.dims[0] == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, spec->dtype, &spec->shape, 0));
    const writer w = {e, {.dtype = MU_F64, .shape = all}};
    const mu_hlo alpha =
        mu__hlo_reshape(e, mu__hlo_convert(e, mu__hlo_broadcast_to(e, l->in[0], &spec->shape), MU_F64), &all);
    const mu_hlo x = mu__hlo_reshape(e, mu__hlo_convert(e, l->in[1], MU_F64), &all), zero = number(&w, 0);
    const mu_hlo positive = both(&w, compared(&w, "GT", alpha, 0), compared(&w, "GT", x, 0));
    mu_hlo state[GRAD_STATES] = {
        [GOES_ON] = both(&w, positive, both(&w, is_finite(&w, alpha), is_finite(&w, x))),
        [VALUE] = select_by(&w, "EQ", x, 0, zero, number(&w, NAN)),
        [TERM_NUMBER] = number(&w, 1),
        [WEIGHT] = over(&w, x, alpha),
        [DIGAMMA] = mu__hlo_digamma_above(&w, plus(&w, alpha, 1)),
        [SUM] = zero,
        [TOTAL] = zero,
        [ALPHA] = alpha,
        [DRAW] = x,
    };
    write_loop(&w, GRAD_STATES, state, GOES_ON, add_term);
    return mu__lowered(l, 0, mu__hlo_convert(e, mu__hlo_reshape(e, state[VALUE], &spec->shape), spec->dtype));
}
