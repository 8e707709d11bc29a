// Lowerings of random numbers to StableHLO.
//
// Words come from rng_bit_generator with the algorithm PHILOX, which counts as philox.c does, so integers and uniform
// numbers have the bits of the plain loops; normal numbers differ by the rounding of logarithm, sine and cosine.
// Truncated normals draw until they fit: there a loop computes the words of each group's own counters with plain
// operations.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"
#include "ops/random/random.h"

#include <math.h>

#define LOW_WORD 0xFFFFFFFFll

static mu_hlo integer(mu_emitter *e, mu_dtype dtype, int64_t value)
{
    const mu_spec spec = {.dtype = MU_I64};
    return mu__hlo_convert(e, mu__hlo_bits(e, mu__hlo_data(e, &spec, &value), MU_HLO_U64), dtype);
}

static mu_hlo integers(mu_emitter *e, mu_dtype dtype, const mu_shape *shape, int64_t value)
{
    return mu__hlo_broadcast_to(e, integer(e, dtype, value), shape);
}

static mu_hlo binary(mu_emitter *e, const char *op, mu_hlo a, mu_hlo b) { return mu__hlo_binary(e, op, a, b); }

// ---- Words --------------------------------------------------------------------------------------

// The words from a state on: key and 128-bit counter, [3].
static mu_hlo words_from(mu_emitter *e, mu_hlo state, int64_t n)
{
    mu_hlo out[] = {{.spec = state.spec}, {.spec = {.dtype = MU_HLO_U32, .shape = MU_SHAPE(n)}}};
    mu_hlo_operation call = {.name = "stablehlo.rng_bit_generator", .n_in = 1, .in = &state, .n_out = 2, .out = out};
    e->open(e, &call);
    e->close(e, &call, "{rng_algorithm = #stablehlo<rng_algorithm PHILOX>}");
    return out[1];
}

mu_hlo mu__hlo_seeded(mu_emitter *e, mu_hlo seed)
{
    const mu_shape one = MU_SHAPE(1), pairs = MU_SHAPE(2, 2);
    const mu_hlo mixer[] = {integers(e, MU_HLO_U64, &one, 0x02461E293EC8F720),
                            mu__hlo_bits(e, mu__hlo_convert(e, seed, MU_I64), MU_HLO_U64)};
    const mu_hlo words = mu__hlo_reshape(e, words_from(e, mu__hlo_concat(e, 2, mixer, 0), 4), &pairs);
    const mu_hlo mixed = mu__hlo_bits(e, words, MU_HLO_U64);
    const mu_hlo state[] = {mu__hlo_slice_axis(e, mixed, 0, 0, 1, 1), integers(e, MU_HLO_U64, &one, 0),
                            mu__hlo_slice_axis(e, mixed, 0, 1, 2, 1)};
    return mu__hlo_concat(e, 3, state, 0);
}

mu_hlo mu__hlo_words(mu_emitter *e, mu_hlo seed, int64_t n) { return words_from(e, mu__hlo_seeded(e, seed), n); }

// One of the four words of the counter, which mixing exchanges with others; 32 bits in 64.
typedef struct block {
    mu_emitter *e;
    mu_shape shape;
    mu_hlo words[4], key[2];
} block;

static mu_hlo low_word(const block *b, mu_hlo a)
{
    return binary(b->e, "stablehlo.and", a, integers(b->e, MU_HLO_U64, &a.spec.shape, LOW_WORD));
}

static mu_hlo high_word(const block *b, mu_hlo a)
{
    return binary(b->e, "stablehlo.shift_right_logical", a, integers(b->e, MU_HLO_U64, &a.spec.shape, 32));
}

static mu_hlo mixed_with(const block *b, mu_hlo product, mu_hlo other, mu_hlo key)
{
    const mu_hlo mixed = binary(b->e, "stablehlo.xor", high_word(b, product), other);
    return binary(b->e, "stablehlo.xor", mixed, mu__hlo_broadcast_to(b->e, key, &b->shape));
}

static mu_hlo next_key(const block *b, mu_hlo key, int64_t step)
{
    return low_word(b, binary(b->e, "stablehlo.add", key, integer(b->e, MU_HLO_U64, step)));
}

mu_hlo mu__hlo_words_at(mu_emitter *e, mu_hlo low, mu_hlo high, mu_hlo key)
{
    enum { ROUNDS = 10 };
    const int64_t n = low.spec.shape.dims[0];
    const mu_shape column = MU_SHAPE(n, 1);
    block b = {.e = e, .shape = low.spec.shape};
    b.words[0] = low_word(&b, low);
    b.words[1] = high_word(&b, low);
    b.words[2] = low_word(&b, high);
    b.words[3] = high_word(&b, high);
    b.key[0] = low_word(&b, key);
    b.key[1] = high_word(&b, key);
    for (int round = 0; round < ROUNDS; round++) {
        const mu_hlo first = binary(e, "stablehlo.multiply", b.words[0], integers(e, MU_HLO_U64, &b.shape, 0xD2511F53));
        const mu_hlo second =
            binary(e, "stablehlo.multiply", b.words[2], integers(e, MU_HLO_U64, &b.shape, 0xCD9E8D57));
        b.words[0] = mixed_with(&b, second, b.words[1], b.key[0]);
        b.words[2] = mixed_with(&b, first, b.words[3], b.key[1]);
        b.words[1] = low_word(&b, second);
        b.words[3] = low_word(&b, first);
        b.key[0] = next_key(&b, b.key[0], 0x9E3779B9);
        b.key[1] = next_key(&b, b.key[1], 0xBB67AE85);
    }
    for (int i = 0; i < 4; i++)
        b.words[i] = mu__hlo_reshape(e, mu__hlo_convert(e, b.words[i], MU_HLO_U32), &column);
    return mu__hlo_concat(e, 4, b.words, 1);
}

// ---- Uniform and normal numbers -----------------------------------------------------------------

// The low bits of words as multiples of 2^-bits.
static mu_hlo fraction(mu_emitter *e, mu_hlo words, int bits, int shift, mu_dtype dtype)
{
    const mu_hlo kept =
        binary(e, "stablehlo.and", words, integers(e, MU_HLO_U32, &words.spec.shape, (1ll << bits) - 1));
    const mu_hlo whole = mu__hlo_convert(e, kept, dtype);
    return binary(e, "stablehlo.multiply", whole, mu__hlo_fill(e, dtype, &whole.spec.shape, ldexp(1, -shift)));
}

// Every step is exact.
mu_hlo mu__hlo_uniform(mu_emitter *e, mu_hlo words, mu_dtype dtype)
{
    enum { F64_HIGH = 20, F64_BITS = 52 };
    if (dtype != MU_F64) {
        const int bits = dtype == MU_F32 ? 23 : dtype == MU_F16 ? 10 : 7;
        return fraction(e, words, bits, bits, dtype);
    }
    const int64_t n = words.spec.shape.dims[0] / 2;
    const mu_shape pairs = MU_SHAPE(n, 2), vector = MU_SHAPE(n);
    const mu_hlo seen = mu__hlo_reshape(e, words, &pairs);
    const mu_hlo first = mu__hlo_reshape(e, mu__hlo_slice_axis(e, seen, 1, 0, 1, 1), &vector),
                 second = mu__hlo_reshape(e, mu__hlo_slice_axis(e, seen, 1, 1, 2, 1), &vector);
    return binary(e, "stablehlo.add", fraction(e, first, F64_HIGH, F64_HIGH, dtype),
                  fraction(e, second, 32, F64_BITS, dtype));
}

// The angle is multiplied in float64, as in the plain loops.
mu_hlo mu__hlo_normal(mu_emitter *e, mu_hlo words, mu_dtype dtype)
{
    const mu_hlo u = mu__hlo_uniform(e, words, dtype);
    const int64_t n = u.spec.shape.dims[0];
    const mu_shape pairs = MU_SHAPE(n / 2, 2), column = MU_SHAPE(n / 2, 1);
    const mu_hlo seen = mu__hlo_reshape(e, u, &pairs);
    const mu_hlo first = mu__hlo_slice_axis(e, seen, 1, 0, 1, 1);
    const mu_hlo fraction = mu__hlo_convert(e, mu__hlo_slice_axis(e, seen, 1, 1, 2, 1), MU_F64);
    const mu_hlo angle = mu__hlo_convert(
        e, binary(e, "stablehlo.multiply", fraction, mu__hlo_fill(e, MU_F64, &column, 2 * M_PI)), dtype);
    const mu_hlo bounded = binary(e, "stablehlo.maximum", first, mu__hlo_fill(e, dtype, &column, 1e-7));
    const mu_hlo square = binary(e, "stablehlo.multiply", mu__hlo_unary(e, "stablehlo.log", bounded),
                                 mu__hlo_fill(e, dtype, &column, -2));
    const mu_hlo radius = mu__hlo_unary(e, "stablehlo.sqrt", square);
    const mu_hlo both[] = {binary(e, "stablehlo.multiply", mu__hlo_unary(e, "stablehlo.sine", angle), radius),
                           binary(e, "stablehlo.multiply", mu__hlo_unary(e, "stablehlo.cosine", angle), radius)};
    return mu__hlo_reshape(e, mu__hlo_concat(e, 2, both, 1), &u.spec.shape);
}

// ---- Truncated normal numbers -------------------------------------------------------------------

// The state of the loop: attempts so far, how many numbers each group has, the numbers ([groups, size]), and what never
// changes: key and the counters' high half.
enum { ATTEMPT, FILLED, NUMBERS, KEY, HIGH, STATES };

static void write_condition(mu_emitter *e, mu_hlo_operation *loop, int64_t size)
{
    mu_hlo state[STATES];
    const mu_ints axes = {.n = 1};
    memcpy(state, loop->in, sizeof state);
    e->enter(e, loop, STATES, state);
    const mu_hlo least =
        mu__hlo_reduce(e, "stablehlo.minimum", state[FILLED], mu__hlo_number(e, MU_I32, (double)size), &axes);
    const mu_hlo more = mu__hlo_compare(e, "LT", least, mu__hlo_number(e, MU_I32, (double)size));
    e->leave(e, 1, &more);
}

// Appends those of one column of draws that are within two standard deviations, where there is room.
static void append(mu_emitter *e, mu_hlo draws, int64_t column, mu_hlo state[STATES])
{
    const mu_shape *shape = &state[NUMBERS].spec.shape, *groups = &state[FILLED].spec.shape;
    const mu_dtype dtype = draws.spec.dtype;
    const mu_ints rows = {.n = 1};
    const mu_hlo drawn = mu__hlo_reshape(e, mu__hlo_slice_axis(e, draws, 1, column, column + 1, 1), groups);
    const mu_hlo fits =
        mu__hlo_compare(e, "LT", mu__hlo_unary(e, "stablehlo.abs", drawn), mu__hlo_fill(e, dtype, groups, 2));
    const mu_hlo next =
        mu__hlo_compare(e, "EQ", mu__hlo_iota(e, MU_I32, shape, 1), mu__hlo_broadcast(e, state[FILLED], shape, &rows));
    const mu_hlo here = binary(e, "stablehlo.and", next, mu__hlo_broadcast(e, fits, shape, &rows));
    state[NUMBERS] = mu__hlo_select(e, here, mu__hlo_broadcast(e, drawn, shape, &rows), state[NUMBERS]);
    state[FILLED] = binary(e, "stablehlo.add", state[FILLED], mu__hlo_convert(e, fits, MU_I32));
}

static void write_attempt(mu_emitter *e, mu_hlo_operation *loop, int64_t counters, int64_t size)
{
    mu_hlo state[STATES];
    memcpy(state, loop->in, sizeof state);
    e->enter(e, loop, STATES, state);
    const mu_shape *groups = &state[FILLED].spec.shape;
    const int64_t n = groups->dims[0];
    const mu_shape vector = MU_SHAPE(4 * n), table = MU_SHAPE(n, size);
    const mu_hlo first = binary(e, "stablehlo.multiply", mu__hlo_iota(e, MU_HLO_U64, groups, 0),
                                integers(e, MU_HLO_U64, groups, counters));
    const mu_hlo low = binary(e, "stablehlo.add", first, mu__hlo_broadcast_to(e, state[ATTEMPT], groups));
    const mu_hlo words = mu__hlo_words_at(e, low, mu__hlo_broadcast_to(e, state[HIGH], groups), state[KEY]);
    const mu_hlo draws =
        mu__hlo_reshape(e, mu__hlo_normal(e, mu__hlo_reshape(e, words, &vector), state[NUMBERS].spec.dtype), &table);
    for (int64_t i = 0; i < size; i++)
        append(e, draws, i, state);
    state[ATTEMPT] = binary(e, "stablehlo.add", state[ATTEMPT], integer(e, MU_HLO_U64, 1));
    e->leave(e, STATES, state);
}

// A group of `size` numbers has its own counters, one for each attempt to draw as many.
static mu_hlo truncated(mu_emitter *e, mu_hlo seed, int64_t groups, int64_t size, mu_dtype dtype)
{
    const mu_shape scalar = {.rank = 0}, vector = MU_SHAPE(groups), table = MU_SHAPE(groups, size);
    const mu_hlo state = mu__hlo_seeded(e, seed);
    mu_hlo begin[STATES] = {
        [ATTEMPT] = integer(e, MU_HLO_U64, 0),
        [FILLED] = mu__hlo_fill(e, MU_I32, &vector, 0),
        [NUMBERS] = mu__hlo_fill(e, dtype, &table, 0),
        [KEY] = mu__hlo_reshape(e, mu__hlo_slice_axis(e, state, 0, 0, 1, 1), &scalar),
        [HIGH] = mu__hlo_reshape(e, mu__hlo_slice_axis(e, state, 0, 2, 3, 1), &scalar),
    };
    mu_hlo end[STATES];
    memcpy(end, begin, sizeof end);
    mu_hlo_operation loop = {.name = "stablehlo.while", .n_in = STATES, .in = begin, .n_out = STATES, .out = end};
    e->open(e, &loop);
    write_condition(e, &loop, size);
    write_attempt(e, &loop, (int64_t)mu__random_counters(MU_RANDOM_TRUNCATED, size), size);
    e->close(e, &loop, NULL);
    const mu_shape all = MU_SHAPE(groups * size);
    return mu__hlo_reshape(e, end[NUMBERS], &all);
}

// ---- Integers -----------------------------------------------------------------------------------

// Pairs of words as unsigned 64-bit numbers, [n].
static mu_hlo wide_words(mu_emitter *e, mu_hlo words)
{
    const mu_shape pairs = MU_SHAPE(words.spec.shape.dims[0] / 2, 2);
    return mu__hlo_bits(e, mu__hlo_reshape(e, words, &pairs), MU_HLO_U64);
}

static mu_hlo integers_between(mu_emitter *e, mu_hlo words, const mu_random_attrs *attrs)
{
    const bool wide = attrs->dtype == MU_I64;
    const mu_hlo drawn = wide ? wide_words(e, words) : words;
    const mu_dtype dtype = drawn.spec.dtype;
    const mu_shape *shape = &drawn.spec.shape;
    const int64_t range = (int64_t)((uint64_t)attrs->high - (uint64_t)attrs->low);
    const mu_hlo left = binary(e, "stablehlo.remainder", drawn, integers(e, dtype, shape, range));
    const mu_hlo moved = binary(e, "stablehlo.add", left, integers(e, dtype, shape, attrs->low));
    return mu__hlo_bits(e, moved, attrs->dtype);
}

// ---- Ops ----------------------------------------------------------------------------------------

static int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static mu_hlo drawn(const mu_lowering *l, int64_t n)
{
    mu_emitter *e = l->emitter;
    const mu_hlo seed = l->in[0];
    const mu_dtype dtype = l->out[0].spec.dtype, wide = dtype == MU_F64 ? MU_F64 : MU_F32;
    const int64_t size = mu__random_group_size(l->op->variant, dtype), words = 4 / size; // of each number
    if (l->op->variant == MU_RANDOM_INTEGERS)
        return integers_between(e, mu__hlo_words(e, seed, n * words), l->attrs);
    if (l->op->variant == MU_RANDOM_UNIFORM)
        return mu__hlo_uniform(e, mu__hlo_words(e, seed, n * words), dtype);
    if (l->op->variant == MU_RANDOM_NORMAL)
        return mu__hlo_normal(e, mu__hlo_words(e, seed, rounded_up(n, 2) * words), wide);
    return truncated(e, seed, rounded_up(n, size) / size, size, wide);
}

mu_status mu__lower_random(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_spec *spec = &l->out[0].spec;
    const int64_t n = mu__elements(&spec->shape);
    if (n == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, spec->dtype, &spec->shape, 0));
    const mu_hlo first = mu__hlo_slice_axis(e, drawn(l, n), 0, 0, n, 1);
    return mu__lowered(l, 0, mu__hlo_reshape(e, mu__hlo_convert(e, first, spec->dtype), &spec->shape));
}

// ---- Permutations -------------------------------------------------------------------------------

// Step s of the shuffle exchanges elements n - 1 - s and partners[s].
static void write_exchange(mu_emitter *e, mu_hlo_operation *loop, int64_t n)
{
    mu_hlo state[3]; // step, elements, partners
    const mu_shape scalar = {.rank = 0};
    memcpy(state, loop->in, sizeof state);
    e->enter(e, loop, 3, state);
    const mu_hlo last = binary(e, "stablehlo.subtract", mu__hlo_number(e, MU_I64, (double)(n - 1)), state[0]);
    const mu_hlo partner = mu__hlo_reshape(e, mu__hlo_part(e, state[2], 0, state[0], 1), &scalar);
    const mu_hlo mine = mu__hlo_part(e, state[1], 0, last, 1), theirs = mu__hlo_part(e, state[1], 0, partner, 1);
    state[1] = mu__hlo_put_part(e, mu__hlo_put_part(e, state[1], 0, last, theirs), 0, partner, mine);
    state[0] = binary(e, "stablehlo.add", state[0], mu__hlo_number(e, MU_I64, 1));
    e->leave(e, 3, state);
}

static void write_steps_left(mu_emitter *e, mu_hlo_operation *loop, int64_t n)
{
    mu_hlo state[3];
    memcpy(state, loop->in, sizeof state);
    e->enter(e, loop, 3, state);
    const mu_hlo more = mu__hlo_compare(e, "LT", state[0], mu__hlo_number(e, MU_I64, (double)(n - 1)));
    e->leave(e, 1, &more);
}

// Fisher-Yates from the end. The partners are drawn at once; element i exchanges with one of the i + 1 first.
mu_status mu__lower_permutation(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const int64_t n = shape->dims[0];
    const mu_hlo ordered = mu__hlo_iota(e, MU_I64, shape, 0);
    if (n < 2)
        return mu__lowered(l, 0, ordered);
    const mu_shape steps = MU_SHAPE(n - 1);
    const mu_hlo choices =
        binary(e, "stablehlo.subtract", integers(e, MU_HLO_U64, &steps, n), mu__hlo_iota(e, MU_HLO_U64, &steps, 0));
    const mu_hlo words = wide_words(e, mu__hlo_words(e, l->in[0], 2 * (n - 1)));
    const mu_hlo partners = mu__hlo_bits(e, binary(e, "stablehlo.remainder", words, choices), MU_I64);
    const mu_hlo begin[] = {mu__hlo_number(e, MU_I64, 0), ordered, partners};
    mu_hlo end[3];
    memcpy(end, begin, sizeof end);
    mu_hlo_operation loop = {.name = "stablehlo.while", .n_in = 3, .in = begin, .n_out = 3, .out = end};
    e->open(e, &loop);
    write_steps_left(e, &loop, n);
    write_exchange(e, &loop, n);
    e->close(e, &loop, NULL);
    return mu__lowered(l, 0, end[1]);
}
