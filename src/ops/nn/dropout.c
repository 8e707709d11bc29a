// dropout, and the generator that supplies a new seed for each call.
//
// Whether an element is dropped depends only on the seed and the element's index, so no mask is stored and the gradient
// is the same op on dy. A generator is a resource of three int64 (128-bit counter, key), as in TensorFlow's Philox
// generators. Replicas fold their id into the key, so their masks differ.
#include "ops/core/composed.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"
#include "ops/random/random.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- generator_next: one resource -> seed [2] ---------------------------------------------------

enum { GENERATOR_WORDS = 3, SEED_WORDS = 2 };
#define REPLICA_STEP 0x9E3779B97F4A7C15u // between the keys of two replicas

static mu_status generator_infer(mu_infer *infer)
{
    const mu_spec *state = &infer->resources[0];
    if (state->dtype != MU_I64 || state->shape.rank != 1 || state->shape.dims[0] != GENERATOR_WORDS)
        return mu__error(MU_INVALID_ARGUMENT, "%s: a generator's state is int64 [3], got %s of rank %d",
                         infer->op->name, mu_dtype_name(state->dtype), state->shape.rank);
    infer->out[0] = (mu_spec){MU_I64, MU_SHAPE(SEED_WORDS)};
    return MU_OK;
}

static mu_status generator_ref(const mu_kernel *kernel)
{
    uint64_t *state = kernel->resources[0].data, *seed = kernel->out[0].data;
    seed[0] = state[2] + (uint64_t)kernel->replica * REPLICA_STEP;
    seed[1] = state[0]++;
    state[1] += state[0] == 0;
    return MU_OK;
}

mu_status mu__lower_generator(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int64_t step = (int64_t)REPLICA_STEP;
    const mu_spec spec = {.dtype = MU_I64};
    const mu_shape vector = MU_SHAPE(1);
    mu_hlo words[GENERATOR_WORDS];
    for (int i = 0; i < GENERATOR_WORDS; i++)
        words[i] = mu__hlo_slice_axis(e, l->state[0], 0, i, i + 1, 1);
    const mu_hlo offset =
        mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_replica(e, MU_I64), mu__hlo_data(e, &spec, &step));
    const mu_hlo key = mu__hlo_binary(e, "stablehlo.add", words[2], mu__hlo_reshape(e, offset, &vector));
    const mu_hlo seed[] = {key, words[0]};
    words[0] = mu__hlo_binary(e, "stablehlo.add", words[0], mu__hlo_fill(e, MU_I64, &vector, 1));
    const mu_hlo carry = mu__hlo_compare(e, "EQ", words[0], mu__hlo_fill(e, MU_I64, &vector, 0));
    words[1] = mu__hlo_binary(e, "stablehlo.add", words[1], mu__hlo_convert(e, carry, MU_I64));
    l->state[0] = mu__hlo_concat(e, GENERATOR_WORDS, words, 0);
    return mu__lowered(l, 0, mu__hlo_concat(e, SEED_WORDS, seed, 0));
}

const mu_op mu_op_generator_next = {
    .name = "generator_next",
    .n_out = 1,
    .n_resources = 1,
    .flags = MU_OP_READS | MU_OP_WRITES | MU_OP_DRAWS,
    .infer = generator_infer,
    .ref = generator_ref,
    .lower = mu__lower_generator,
};

// ---- dropout: x, seed -> y ----------------------------------------------------------------------

static mu_status dropout_infer(mu_infer *infer)
{
    const mu_dropout_attrs *attrs = infer->attrs;
    const mu_spec *seed = &infer->in[1];
    if (!(attrs->rate >= 0 && attrs->rate < 1))
        return mu__error(MU_INVALID_ARGUMENT, "%s: rate %g; it must be at least 0 and less than 1", infer->op->name,
                         attrs->rate);
    if (seed->dtype != MU_I64 || seed->shape.rank != 1 || seed->shape.dims[0] != SEED_WORDS)
        return mu__error(MU_INVALID_ARGUMENT, "%s: a seed is int64 [2], got %s of rank %d", infer->op->name,
                         mu_dtype_name(seed->dtype), seed->shape.rank);
    return mu__infer_same(infer);
}

static mu_tensor *dropout_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply2(&mu_op_dropout, g->attrs, g->dy, g->x[1]) : NULL;
}

enum { WORDS = 256 };          // random words computed at a time
#define UNIFORM_BITS 0x7FFFFFu // bits of a word that make its uniform number: bits / 2^23, as in TensorFlow

// Words whose bits are below the limit are dropped: elements are kept if their uniform number is at least the rate.
static uint32_t limit_of(const mu_dropout_attrs *attrs)
{
    return (uint32_t)ceil((double)(float)attrs->rate * (UNIFORM_BITS + 1.0));
}

typedef struct dropout_job {
    const mu_view *x, *y;
    mu_philox generator;
    uint32_t limit;
    double scale;
} dropout_job;

MU_PER_ISA(keep_f32, (const float *x, float *y, const uint32_t *bits, uint32_t limit, float scale, int64_t n),
           (x, y, bits, limit, scale, n))
{
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (bits[i] & UNIFORM_BITS) >= limit ? x[i] * scale : 0;
}

static void keep_any(const mu_view *x, const mu_view *y, const uint32_t *bits, const dropout_job *job, int64_t at,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bool stays = (bits[i] & UNIFORM_BITS) >= job->limit;
        mu__write_element(y->dtype, y->data, at + i,
                          stays ? mu__read_element(x->dtype, x->data, at + i) * job->scale : 0);
    }
}

// Groups of WORDS elements [begin, end); the group's number determines its random words.
static void drop_groups(void *arg, int64_t begin, int64_t end)
{
    const dropout_job *job = arg;
    const int64_t elements = mu__elements(&job->x->shape);
    uint32_t bits[WORDS];
    for (int64_t group = begin; group < end; group++) {
        const int64_t at = group * WORDS, n = MU_MIN(WORDS, elements - at);
        mu_philox generator = job->generator;
        mu__philox_skip(&generator, (uint64_t)(at / 4));
        mu__philox_fill(&generator, 1, WORDS / 4, bits);
        if (job->x->dtype == MU_F32)
            keep_f32((const float *)job->x->data + at, (float *)job->y->data + at, bits, job->limit, (float)job->scale,
                     n);
        else
            keep_any(job->x, job->y, bits, job, at, n);
    }
}

static mu_status dropout_run(const mu_kernel *kernel)
{
    const mu_dropout_attrs *attrs = kernel->attrs;
    const uint64_t *seed = kernel->in[1].data;
    const int64_t n = mu__elements(&kernel->in[0].shape);
    dropout_job job = {
        .x = &kernel->in[0],
        .y = &kernel->out[0],
        .scale = 1 / (1 - attrs->rate),
        .generator = mu__philox_seeded(seed[0], seed[1]),
        .limit = limit_of(attrs),
    };
    mu__share_range(kernel->team, (n + WORDS - 1) / WORDS, 1, n, drop_groups, &job);
    return MU_OK;
}

// An element's random word is the one of its index in the seed's sequence; each counter has four.
static mu_status dropout_ref(const mu_kernel *kernel)
{
    const mu_dropout_attrs *attrs = kernel->attrs;
    const mu_view *x = &kernel->in[0];
    const uint64_t *seed = kernel->in[1].data;
    for (int64_t i = 0; i < mu__elements(&x->shape); i++) {
        uint32_t words[4];
        mu_philox generator = mu__philox_seeded(seed[0], seed[1]);
        mu__philox_skip(&generator, (uint64_t)(i / 4));
        mu__philox_next(&generator, words);
        const double uniform = (words[i % 4] & UNIFORM_BITS) / (UNIFORM_BITS + 1.0);
        const bool stays = uniform >= (double)(float)attrs->rate;
        mu__write_real(&kernel->out[0], i, stays ? mu__read_real(x, i) / (1 - attrs->rate) : 0);
    }
    return MU_OK;
}

mu_status mu__lower_dropout(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_dropout_attrs *attrs = l->attrs;
    const mu_hlo x = mu__hlo_wide(e, l->in[0]);
    const mu_shape *shape = &x.spec.shape;
    if (mu__elements(shape) == 0)
        return mu__lowered(l, 0, l->in[0]);
    const mu_hlo words = mu__hlo_reshape(e, mu__hlo_words(e, l->in[1], mu__elements(shape)), shape);
    const mu_hlo mask = mu__hlo_fill(e, MU_I32, shape, UNIFORM_BITS),
                 limit = mu__hlo_fill(e, MU_I32, shape, limit_of(attrs));
    const mu_hlo bits = mu__hlo_binary(e, "stablehlo.and", mu__hlo_bits(e, words, MU_I32), mask);
    const mu_hlo scale = mu__hlo_fill(e, x.spec.dtype, shape, 1 / (1 - attrs->rate));
    const mu_hlo y =
        mu__hlo_select(e, mu__hlo_compare(e, "GE", bits, limit), mu__hlo_binary(e, "stablehlo.multiply", x, scale),
                       mu__hlo_fill(e, x.spec.dtype, shape, 0));
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}

static const mu_attr_spec dropout_fields[] = {{"rate", MU_ATTR_REAL, offsetof(mu_dropout_attrs, rate)}, {0}};
static const mu_dropout_attrs third = {0.3}, none = {0};

static const mu_sample dropout_samples[] = {
    {.n_in = 2,
     .in = {{2, {5, 77}}, {1, {2}}},
     .low = {-2, 0},
     .high = {2, 1000},
     .dtypes = {0, MU_I64},
     .attrs = &third,
     .no_grad = 2},
    {.n_in = 2,
     .in = {{1, {3}}, {1, {2}}},
     .low = {-2, 0},
     .high = {2, 1000},
     .dtypes = {0, MU_I64},
     .attrs = &none,
     .no_grad = 2},
    {.n_in = 2,
     .in = {{2, {0, 3}}, {1, {2}}},
     .low = {-2, 0},
     .high = {2, 1000},
     .dtypes = {0, MU_I64},
     .attrs = &third,
     .no_grad = 2},
    {0},
};

const mu_op mu_op_dropout = {
    .name = "dropout",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_dropout_attrs),
    .attrs = dropout_fields,
    .infer = dropout_infer,
    .grad = dropout_grad,
    .ref = dropout_ref,
    .cpu = {.run = dropout_run},
    .samples = dropout_samples,
    .lower = mu__lower_dropout,
};

// ---- Functions ----------------------------------------------------------------------------------

mu_tensor *mu__generator_next(mu_resource *generator)
{
    mu_tensor *seed = NULL;
    return mu__apply(&mu_op_generator_next, NULL, 0, NULL, 1, &generator, &seed) == MU_OK ? seed : NULL;
}

mu_tensor *mu_nn_stateless_dropout(mu_tensor *x, double rate, mu_tensor *seed)
{
    if (mu__pending())
        return NULL;
    if (seed && seed->dtype == MU_I32)
        seed = mu_cast(seed, MU_I64);
    mu_tensor *y = mu__apply2(&mu_op_dropout, &(mu_dropout_attrs){rate}, x, seed);
    return mu__called("stateless_dropout", &mu_op_dropout, y);
}
