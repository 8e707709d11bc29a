// An op, one of its samples and one element type: what the suites over all ops share.
//
// A case has the sample's shapes, numbers that are determined by their position, and the specs that the shape rule
// gives for its results. Each suite decides what it checks.
#ifndef MU_TESTS_OP_CASE_H
#define MU_TESTS_OP_CASE_H

#include "engine/cpu/fused_ops.h"
#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <muster/distribute.h>
#include <muster/ops.h>
#include <cmocka.h>

enum { MOST_INPUTS = 6, MOST_OUTPUTS = 16 };

// A case: one op, one sample, one type under test.
typedef struct op_case {
    const mu_op *op;
    const mu_sample *sample;
    int number; // of the sample
    mu_dtype dtype;
    int n_out;
    mu_spec in[MOST_INPUTS], out[MOST_OUTPUTS];
} op_case;

// Returns every op and, after them, the fused ones; NULL after the last.
static inline const mu_op *any_op_at(int i)
{
    return i < mu__op_count() ? mu__op_at(i) : mu__fused_op_at(i - mu__op_count());
}

static inline void describe(const op_case *c, const char *what)
{
    char text[MU_SHAPE_TEXT];
    print_message("%s, sample %d, %s: %s", c->op->name, c->number, mu_dtype_name(c->dtype), what);
    for (int i = 0; i < c->sample->n_in; i++)
        print_message(" %s", mu__shape_text(&c->in[i].shape, text));
    print_message("%s%s\n", mu__pending() ? ": " : "", mu_error_message());
}

// Returns a number in [0, 1) that is determined by the arguments (splitmix64).
static inline double draw(uint64_t seed, int64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline mu_tensor *drawn_tensor(const mu_spec *spec, uint64_t seed, double low, double high)
{
    mu_tensor *tensor = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    assert_non_null(tensor);
    if (low == 0 && high == 0) {
        low = -2;
        high = 2;
    }
    bool whole = !mu__dtype_is_float(spec->dtype);
    if (spec->dtype == MU_U8 && high <= 0) {
        double kept = low;
        low = -high;
        high = -kept;
    } else if (spec->dtype == MU_U8) {
        low = fmax(low, 0);
    }
    for (int64_t i = 0; i < mu__elements(&spec->shape); i++) {
        double u = draw(seed, i), value = low + u * (high - low);
        if (spec->dtype == MU_BOOL)
            value = u < 0.5;
        else if (whole)
            value = ceil(low) + floor(u * (ceil(high) - ceil(low))); // high itself is left out
        mu__write_element(spec->dtype, mu__host_write(tensor), i, value);
    }
    return tensor;
}

static inline void draw_inputs(const op_case *c, mu_tensor **in)
{
    for (int i = 0; i < c->sample->n_in; i++)
        in[i] = drawn_tensor(&c->in[i], (uint64_t)(c->number * 10 + i + 1), c->sample->low[i], c->sample->high[i]);
}

static inline mu_infer infer_of(op_case *c)
{
    return (mu_infer){
        .op = c->op, .attrs = c->sample->attrs, .n_in = c->sample->n_in, .n_out = c->n_out, .in = c->in, .out = c->out};
}

// Fills the case's results; false if the shape rule refuses its inputs, with an error pending.
static inline bool infer_case(op_case *c)
{
    mu_infer infer = infer_of(c);
    return mu__infer_call(&infer) == MU_OK;
}

// Fills the case's specs; false if the op does not take this type.
static inline bool set_up(op_case *c, const mu_op *op, const mu_sample *sample, int number, mu_dtype dtype)
{
    *c = (op_case){.op = op, .sample = sample, .number = number, .dtype = dtype};
    c->n_out = mu__op_outputs(op, sample->attrs, sample->n_in);
    assert_in_range(c->n_out, 0, MOST_OUTPUTS);
    for (int i = 0; i < sample->n_in; i++)
        c->in[i] = (mu_spec){sample->dtypes[i] ? sample->dtypes[i] : dtype, sample->in[i]};
    if (sample->n_in > 0 && op->dtypes && !(op->dtypes & MU_DTYPE_BIT(c->in[0].dtype)))
        return false;
    if (!infer_case(c)) {
        if (sample == &op->samples[number] && (dtype == MU_F32 || dtype == MU_F64))
            describe(c, "the shape rule refuses the sample");
        mu_error_take();
        return false;
    }
    return true;
}

static inline bool close_enough(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * (1 + fmax(fabs(a), fabs(b)));
}

#endif
