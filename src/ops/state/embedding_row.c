// One row of an embedding table: its first values, and the update of values and slots by a gradient in one pass.
//
// First values depend on key and seed alone, so it does not matter on which server a row is, or whether it was there
// before. The formulas are Keras 3's for a dense gradient of this row; Adam counts the row's own updates. Row-wise
// Adagrad has one accumulator for the row, of mean squares (Gupta et al., 2014; as in FBGEMM).
#include "ops/state/embedding_table.h"

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "ops/array/distinct.h"

#include <math.h>

#define GOLDEN 0x9E3779B97F4A7C15u // 2^64 / the golden ratio: SplitMix64's step

// ---- First values -------------------------------------------------------------------------------

static uint64_t state_of(const mu_table_options *o, uint64_t key)
{
    return mu__hash_id(key ^ mu__hash_id((uint64_t)o->seed + GOLDEN));
}

// From 0 to below 1, in steps of 2^-24.
static float unit(uint64_t state, uint64_t i) { return (float)(mu__hash_id(state + i * GOLDEN) >> 40) * 0x1p-24f; }

// Box and Muller (1958): two words make two numbers, of which the second serves the odd element.
static float normal(uint64_t state, uint64_t i)
{
    const float radius = sqrtf(-2 * logf(1 - unit(state, i & ~(uint64_t)1)));
    const float angle = 6.28318530717958647692f * unit(state, i | 1);
    return radius * (i % 2 == 0 ? cosf(angle) : sinf(angle));
}

static float first_value(const mu_table_options *o, uint64_t state, uint64_t i)
{
    const float scale = (float)o->scale;
    return o->initializer == MU_TABLE_UNIFORM  ? scale * (2 * unit(state, i) - 1)
           : o->initializer == MU_TABLE_NORMAL ? scale * normal(state, i)
                                               : 0;
}

void mu__row_first(const mu_table_options *o, uint64_t key, float *out)
{
    const uint64_t state = state_of(o, key);
    for (int64_t i = 0; i < o->dimension; i++)
        out[i] = first_value(o, state, (uint64_t)i);
    for (int64_t i = 0; o->dtype == MU_BF16 && i < o->dimension; i++)
        out[i] = mu__bf16_to_f32(mu__f32_to_bf16(out[i]));
}

void mu__row_begin(const mu_table *t, mu_table_row *row)
{
    const mu_table_options *o = &t->options;
    const uint64_t state = state_of(o, row->key);
    float *slots = mu__table_slots_of(t, row);
    uint16_t *bf16_values = mu__table_values_of(t, row);
    if (o->dtype == MU_F32)
        mu__row_first(o, row->key, mu__table_values_of(t, row));
    for (int64_t i = 0; o->dtype == MU_BF16 && i < o->dimension; i++)
        bf16_values[i] = mu__f32_to_bf16(first_value(o, state, (uint64_t)i));
    const float first = o->optimizer == MU_TABLE_ADAM ? 0 : (float)o->initial_accumulator;
    for (int64_t i = 0; i < mu__table_slots(o); i++)
        slots[i] = first;
}

void mu__row_read(const mu_table *t, mu_table_row *row, float *out)
{
    const int64_t n = t->options.dimension;
    if (t->options.dtype == MU_F32)
        memcpy(out, mu__table_values_of(t, row), (size_t)n * sizeof *out);
    else
        mu__kernels()->widen_bf16(mu__table_values_of(t, row), out, n);
}

// ---- Updates ------------------------------------------------------------------------------------

MU_PER_ISA(descend, (float *restrict w, const float *restrict g, int64_t n, float rate), (w, g, n, rate))
{
    for (int64_t i = 0; i < n; i++)
        w[i] -= rate * g[i];
}

MU_PER_ISA(adagrad,
           (float *restrict w, const float *restrict g, float *restrict sum, int64_t n, float rate, float epsilon),
           (w, g, sum, n, rate, epsilon))
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += g[i] * g[i];
        w[i] -= rate * g[i] / sqrtf(sum[i] + epsilon);
    }
}

MU_PER_ISA(adam,
           (float *restrict w, const float *restrict g, float *restrict m, float *restrict v, int64_t n,
            const float *factors),
           (w, g, m, v, n, factors))
{
    const float alpha = factors[0], new_m = factors[1], new_v = factors[2], epsilon = factors[3];
    for (int64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * new_m;
        v[i] += (g[i] * g[i] - v[i]) * new_v;
        w[i] -= m[i] * alpha / (sqrtf(v[i]) + epsilon);
    }
}

static void rowwise_adagrad(const mu_table_options *o, float *w, const float *g, float *sum, float rate)
{
    float squares = 0;
    for (int64_t i = 0; i < o->dimension; i++)
        squares += g[i] * g[i];
    *sum += squares / (float)o->dimension;
    descend(w, g, o->dimension, rate / sqrtf(*sum + (float)o->epsilon));
}

static void update_adam(const mu_table_options *o, mu_table_row *row, float *w, const float *g, float *slots,
                        double rate)
{
    const double t = row->updates;
    const float factors[] = {(float)(rate * sqrt(1 - pow(o->beta_2, t)) / (1 - pow(o->beta_1, t))),
                             (float)(1 - o->beta_1), (float)(1 - o->beta_2), (float)o->epsilon};
    adam(w, g, slots, slots + o->dimension, o->dimension, factors);
}

static void update(const mu_table_options *o, mu_table_row *row, float *w, const float *g, float *slots, double rate)
{
    row->updates += row->updates < UINT32_MAX;
    switch ((mu_table_optimizer)o->optimizer) {
    case MU_TABLE_ADAGRAD: adagrad(w, g, slots, o->dimension, (float)rate, (float)o->epsilon); break;
    case MU_TABLE_ROWWISE_ADAGRAD: rowwise_adagrad(o, w, g, slots, (float)rate); break;
    case MU_TABLE_ADAM: update_adam(o, row, w, g, slots, rate); break;
    default: descend(w, g, o->dimension, (float)rate);
    }
}

// Rounds up or down at random, by how near each is, so that updates below a bfloat16's last place count on average. The
// random bits are those of key, update and element: the same wherever the row is.
static void narrow(const mu_table_row *row, const float *from, uint16_t *to, int64_t n)
{
    const uint64_t state = mu__hash_id(row->key + row->updates * GOLDEN);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const bool finite = (bits & 0x7F800000) != 0x7F800000;
        const uint32_t noise = (uint32_t)(mu__hash_id(state + (uint64_t)(i / 4)) >> 16 * (i % 4)) & 0xFFFF;
        to[i] = finite ? (uint16_t)((bits + noise) >> 16) : mu__f32_to_bf16(from[i]);
    }
}

void mu__row_update(const mu_table *t, mu_table_row *row, const float *gradient, double rate, float *scratch)
{
    const mu_table_options *o = &t->options;
    void *values = mu__table_values_of(t, row);
    if (o->dtype == MU_F32) {
        update(o, row, values, gradient, mu__table_slots_of(t, row), rate);
        return;
    }
    mu__kernels()->widen_bf16(values, scratch, o->dimension);
    update(o, row, scratch, gradient, mu__table_slots_of(t, row), rate);
    narrow(row, scratch, values, o->dimension);
}
