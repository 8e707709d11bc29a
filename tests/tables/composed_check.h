// What suites of composed functions share: an entry is a function of tensors, and all entries must obey the same rules.
//
// The gradient, and the gradient of the gradient, agree with central differences (f64), also of a batch of one and of
// none; a trace that does not know the batch axis gives a shape that fits; a compiled function gives what eager
// execution gives, and its gradients. Functions that are ops are test_gradients's.
#ifndef MU_TESTS_COMPOSED_CHECK_H
#define MU_TESTS_COMPOSED_CHECK_H

#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <muster/distribute.h>
#include <muster/nn.h>
#include <muster/ops.h>

#include <cmocka.h>

enum { COMPOSED_INPUTS = 4 };

typedef mu_tensor *composed_fn(mu_tensor *const *in);
typedef struct composed {
    const char *name;
    composed_fn *fn;
    int n_in;
    mu_shape in[COMPOSED_INPUTS];
    double low, high; // of the elements; both 0: from -2 to 2
    unsigned batched; // bit i: axis 0 of input i is the batch, which a trace need not know
} composed;

static inline double composed_draw(uint64_t seed, int64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (double)((z ^ (z >> 27)) >> 11) * 0x1p-53;
}

static inline mu_tensor *composed_tensor(mu_shape shape, uint64_t seed, double low, double high)
{
    mu_tensor *tensor = mu_tensor_new(MU_F64, shape.rank, shape.dims, NULL);
    assert_non_null(tensor);
    for (int64_t i = 0; i < mu__elements(&shape); i++)
        ((double *)mu__host_write(tensor))[i] = low + composed_draw(seed, i) * (high - low);
    return tensor;
}

// The gradients of the weighted sum of the result, themselves weighted and summed: a number whose derivative is the
// second one. With order 0 the first number alone.
static inline mu_tensor *composed_number(const composed *c, mu_tensor *const *in, int order)
{
    mu_value *sources[COMPOSED_INPUTS];
    for (int i = 0; i < c->n_in; i++)
        sources[i] = mu_of(in[i]);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = c->fn(in);
    if (!y)
        fail_msg("%s: %s", c->name, mu_error_message());
    mu_tensor *sum = mu_reduce_sum(mu_multiply(y, composed_tensor(y->shape, 77, 0.5, 1.5)), MU_ALL_AXES);
    mu_value *gradients = order > 0 ? mu_gradients(tape, sum, mu_list_of(c->n_in, sources)) : NULL;
    mu_tape_close(tape);
    for (int i = 0; i < c->n_in && order > 0; i++) {
        mu_tensor *dx = gradients ? mu_at(gradients, i) : NULL;
        if (!dx)
            fail_msg("%s: no gradient: %s", c->name, mu_error_message());
        mu_tensor *part = mu_reduce_sum(mu_multiply(dx, composed_tensor(dx->shape, 99, 0.5, 1.5)), MU_ALL_AXES);
        sum = i == 0 ? part : mu_add(sum, part);
    }
    return sum;
}

static inline double composed_value(const composed *c, mu_tensor *const *in, int order)
{
    mu_pool *pool = mu_pool_open();
    const double value = mu_scalar(composed_number(c, in, order));
    mu_pool_close(pool);
    return value;
}

static inline void composed_compare(const composed *c, mu_tensor *const *in, int order)
{
    mu_value *sources[COMPOSED_INPUTS];
    for (int i = 0; i < c->n_in; i++)
        sources[i] = mu_of(in[i]);
    mu_tape *tape = mu_tape_open();
    mu_tensor *number = composed_number(c, in, order);
    mu_value *gradients = mu_gradients(tape, number, mu_list_of(c->n_in, sources));
    mu_tape_close(tape);
    for (int i = 0; i < c->n_in; i++) {
        const mu_tensor *dx = gradients ? mu_at(gradients, i) : NULL;
        if (!dx || !mu__shape_equal(&dx->shape, &c->in[i]))
            fail_msg("%s: no gradient of input %d in its shape: %s", c->name, i, mu_error_message());
        double *x = mu__host_write(in[i]);
        for (int64_t k = 0; k < mu__elements(&c->in[i]); k++) {
            const double kept = x[k], step = 1e-5;
            x[k] = kept + step;
            const double up = composed_value(c, in, order);
            x[k] = kept - step;
            const double down = composed_value(c, in, order), wanted = (up - down) / (2 * step);
            x[k] = kept;
            const double found = ((const double *)mu__host_read(dx))[k];
            if (!(fabs(found - wanted) <= (order ? 2e-5 : 2e-6) * (1 + fabs(wanted))))
                fail_msg("%s: derivative %d of input %d, element %lld: %.12g, differences give %.12g", c->name,
                         order + 1, i, (long long)k, found, wanted);
        }
    }
}

static inline mu_value *composed_traced(mu_value *arguments, void *arg)
{
    const composed *c = arg;
    mu_tensor *in[COMPOSED_INPUTS];
    for (int i = 0; i < c->n_in; i++)
        in[i] = mu_at(arguments, i);
    mu_tensor *y = c->fn(in);
    return y ? mu_of(y) : NULL;
}

static inline void composed_trace(const composed *c, mu_tensor *const *in)
{
    mu_spec specs[COMPOSED_INPUTS];
    mu_value *leaves[COMPOSED_INPUTS];
    for (int i = 0; i < c->n_in; i++) {
        specs[i] = mu__spec_of(in[i]);
        leaves[i] = mu_of(in[i]);
        if (c->batched >> i & 1)
            specs[i].shape.dims[0] = MU_UNKNOWN;
    }
    mu_traced traced;
    if (mu__trace_run(c->name, composed_traced, (void *)c, mu_list_of(c->n_in, leaves), specs, true, &traced) != MU_OK)
        fail_msg("%s: traced: %s", c->name, mu_error_message());
    const mu_shape traced_shape = mu_tensor_shape(mu_value_tensor(traced.outputs)), shape = mu_tensor_shape(c->fn(in));
    if (!mu__shape_compatible(&traced_shape, &shape))
        fail_msg("%s: the traced shape does not fit", c->name);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
}

typedef struct composed_call {
    const composed *row;
    mu_tensor *const *in;
} composed_call;

// The result and the gradients of its squares' sum with respect to the first n of `sources`, as a list.
static inline mu_value *composed_results(const composed *c, mu_tensor *const *in, int n, mu_value *const *sources)
{
    mu_value *results[1 + COMPOSED_INPUTS];
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = c->fn(in), *loss = y ? mu_reduce_sum(mu_multiply(y, y), MU_ALL_AXES) : NULL;
    mu_value *gradients = loss ? mu_gradients(tape, loss, mu_list_of(n, sources)) : NULL;
    mu_tape_close(tape);
    results[0] = y ? mu_of(y) : NULL;
    for (int i = 0; i < n; i++)
        results[1 + i] = gradients ? mu_of(mu_at(gradients, i)) : NULL;
    return gradients ? mu_list_of(1 + n, results) : NULL;
}

// Inputs with a batch are arguments, in order; the others are captured.
static inline mu_value *composed_body(mu_value *arguments, void *arg)
{
    const composed_call *call = arg;
    mu_tensor *in[COMPOSED_INPUTS];
    mu_value *sources[COMPOSED_INPUTS];
    int next = 0;
    for (int i = 0; i < call->row->n_in; i++) {
        const bool batched = call->row->batched >> i & 1;
        in[i] = batched ? mu_at(arguments, next) : call->in[i];
        if (batched)
            sources[next++] = mu_of(in[i]);
    }
    return composed_results(call->row, in, next, sources);
}

static inline void composed_same(const composed *c, int which, const mu_tensor *compiled, const mu_tensor *eager)
{
    if (!compiled || !eager || !mu__shape_equal(&compiled->shape, &eager->shape))
        fail_msg("%s: result %d as a function: %s", c->name, which, mu_error_message());
    for (int64_t i = 0; i < mu__elements(&eager->shape); i++) {
        const double a = ((const double *)mu__host_read(compiled))[i], b = ((const double *)mu__host_read(eager))[i];
        if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b))))
            fail_msg("%s: result %d (0: the value, then gradients), element %lld is %.17g in a function, %.17g outside",
                     c->name, which, (long long)i, a, b);
    }
}

// The compiled function gives what eager execution gives, gradients included.
static inline void composed_run(const composed *c, mu_tensor *const *in)
{
    composed_call call = {c, in};
    mu_value *leaves[COMPOSED_INPUTS];
    int n = 0;
    for (int i = 0; i < c->n_in; i++)
        if (c->batched >> i & 1)
            leaves[n++] = mu_of(in[i]);
    mu_function *function = mu_function_new(composed_body, &call);
    mu_value *compiled = mu_run(mu_get_strategy(), function, mu_list_of(n, leaves));
    mu_value *eager = composed_results(c, in, n, leaves);
    for (int i = 0; i <= n; i++)
        composed_same(c, i, compiled ? mu_at(compiled, i) : NULL, eager ? mu_at(eager, i) : NULL);
}

static inline void composed_draw_inputs(const composed *c, mu_tensor **in)
{
    const bool plain = c->low == 0 && c->high == 0;
    for (int i = 0; i < c->n_in; i++)
        in[i] = composed_tensor(c->in[i], (uint64_t)i + 1, plain ? -2 : c->low, plain ? 2 : c->high);
}

// The row with another batch size, unless it gives one itself.
static inline void composed_resized(const composed *row, int64_t size)
{
    mu_tensor *in[COMPOSED_INPUTS];
    composed c = *row;
    for (int i = 0; i < c.n_in; i++)
        if (c.batched >> i & 1)
            c.in[i].dims[0] = size;
    composed_draw_inputs(&c, in);
    if (!c.fn(in)) {
        assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
        return;
    }
    composed_compare(&c, in, 0);
    composed_compare(&c, in, 1);
}

// Checks one row against the rules.
static inline void composed_check(const composed *c)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[COMPOSED_INPUTS];
    composed_draw_inputs(c, in);
    composed_compare(c, in, 0);
    composed_compare(c, in, 1);
    composed_trace(c, in);
    composed_run(c, in);
    composed_resized(c, 1);
    composed_resized(c, 0);
    mu_pool_close(pool);
    assert_int_equal(mu_error_code(), MU_OK);
}

#endif
