// What the tests of the neural ops share: random tensors, an op computed by its plain loops or by its fast kernel, and
// gradients against central differences.
//
// The tests run ops by hand, so that both kernels of an op are tested whichever of them mu__apply would choose.
#ifndef MU_TESTS_NN_CHECK_H
#define MU_TESTS_NN_CHECK_H

#include "ops/nn/nn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CHECK_INPUTS = 6 };

// Returns a tensor of numbers between low and high that are the same in every run.
static inline mu_tensor *random_tensor(mu_dtype dtype, mu_shape shape, double low, double high, uint64_t seed)
{
    mu_tensor *t = mu__tensor_alloc(dtype, &shape);
    assert_non_null(t);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (int64_t i = 0; i < mu__elements(&shape); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        mu__write_element(dtype, mu__host_write(t), i, low + (high - low) * (double)(state >> 11) / 9007199254740992.0);
    }
    return mu__give(t);
}

static inline double element(const mu_tensor *t, int64_t i) { return mu__read_element(t->dtype, mu__host_read(t), i); }

static inline mu_view view_of(const mu_tensor *t) { return (mu_view){t->dtype, t->shape, mu__host_write(t)}; }

static mu_team check_team = {1};

// Runs one op on the team above, by its fast or its plain kernel. Returns false if the fast one declines.
static inline bool run_row(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, mu_tensor **out,
                           bool fast)
{
    mu_spec in_specs[CHECK_INPUTS], out_specs[CHECK_INPUTS] = {0};
    mu_view in_views[CHECK_INPUTS], out_views[CHECK_INPUTS];
    const int n_out = mu__op_outputs(op, attrs, n_in);
    for (int i = 0; i < n_in; i++) {
        in_specs[i] = mu__spec_of(in[i]);
        in_views[i] = view_of(in[i]);
        if (op->shape_only >> i & 1)
            in_views[i].data = NULL;
    }
    mu_infer infer = {.op = op, .attrs = attrs, .n_in = n_in, .n_out = n_out, .in = in_specs, .out = out_specs};
    assert_int_equal(mu__infer_call(&infer), MU_OK);
    for (int i = 0; i < n_out; i++) {
        out[i] = mu__give(mu__tensor_alloc(out_specs[i].dtype, &out_specs[i].shape));
        assert_non_null(out[i]);
        memset(mu__host_write(out[i]), 0xFF, mu__spec_bytes(&out_specs[i])); // NaNs: unwritten elements are noticed
        out_views[i] = view_of(out[i]);
    }
    mu_prepare prepare = {
        .op = op, .attrs = attrs, .n_in = n_in, .n_out = n_out, .in = in_specs, .out = out_specs, .team = &check_team};
    if (fast && op->cpu.prepare)
        assert_int_equal(op->cpu.prepare(&prepare), MU_OK);
    if (fast && (prepare.declined || !op->cpu.run))
        return false;
    void *scratch = prepare.scratch_bytes ? mu__alloc_data(prepare.scratch_bytes) : NULL;
    if (scratch)
        memset(scratch, 0xFF, prepare.scratch_bytes);
    mu_kernel kernel = {.op = op,
                        .attrs = attrs,
                        .n_in = n_in,
                        .n_out = n_out,
                        .in = in_views,
                        .out = out_views,
                        .team = &check_team,
                        .scratch = scratch,
                        .state = prepare.state};
    assert_int_equal(fast ? op->cpu.run(&kernel) : op->ref(&kernel), MU_OK);
    if (scratch)
        mu__free_data(scratch, prepare.scratch_bytes);
    if (prepare.state && op->cpu.release)
        op->cpu.release(prepare.state);
    return true;
}

static inline void assert_close(const mu_tensor *a, const mu_tensor *b, double tolerance)
{
    assert_true(mu__shape_equal(&a->shape, &b->shape));
    for (int64_t i = 0; i < mu__elements(&a->shape); i++) {
        const double x = element(a, i), y = element(b, i);
        if (!(fabs(x - y) <= tolerance * (1 + fabs(y))) && !(isnan(x) && isnan(y)) && x != y)
            fail_msg("element %lld: %.17g against %.17g", (long long)i, x, y);
    }
}

// Checks that the fast and the plain kernel of an op agree in every output.
static inline void check_fast(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, double tolerance,
                              bool must_be_fast)
{
    mu_tensor *plain[CHECK_INPUTS], *fast[CHECK_INPUTS];
    assert_true(run_row(op, attrs, n_in, in, plain, false));
    const bool ran = run_row(op, attrs, n_in, in, fast, true);
    assert_true(ran || !must_be_fast);
    for (int i = 0; ran && i < mu__op_outputs(op, attrs, n_in); i++)
        assert_close(fast[i], plain[i], tolerance);
}

// sum(weights * output `o`) of a row.
static inline double weighted(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int o,
                              const mu_tensor *weights)
{
    mu_tensor *out[CHECK_INPUTS];
    double sum = 0;
    mu_pool *pool = mu_pool_open();
    run_row(op, attrs, n_in, in, out, false);
    for (int64_t i = 0; i < mu__elements(&weights->shape); i++)
        sum += element(out[o], i) * element(weights, i);
    mu_pool_close(pool);
    return sum;
}

// Compares the op's gradient rule for output `o` with central differences, in float64.
static inline void check_gradient(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, unsigned no_grad,
                                  int o)
{
    mu_tensor *out[CHECK_INPUTS], *dys[CHECK_INPUTS] = {NULL};
    run_row(op, attrs, n_in, in, out, false);
    dys[o] = random_tensor(MU_F64, out[o]->shape, -1, 1, 77);
    mu_grad g = {.op = op,
                 .attrs = attrs,
                 .n_in = n_in,
                 .n_out = mu__op_outputs(op, attrs, n_in),
                 .x = in,
                 .y = out,
                 .dys = dys,
                 .dy = dys[0]};
    for (int i = 0; i < n_in; i++) {
        if (no_grad >> i & 1)
            continue;
        const mu_tensor *dx = op->grad(&g, i);
        if (!dx)
            fail_msg("%s: no gradient of input %d: %s", op->name, i, mu_error_message());
        assert_true(mu__shape_equal(&dx->shape, &in[i]->shape));
        double *x = mu__host_write(in[i]);
        for (int64_t k = 0; k < mu__elements(&in[i]->shape); k++) {
            const double kept = x[k], h = 1e-5;
            x[k] = kept + h;
            const double up = weighted(op, attrs, n_in, in, o, dys[o]);
            x[k] = kept - h;
            const double down = weighted(op, attrs, n_in, in, o, dys[o]);
            x[k] = kept;
            const double wanted = (up - down) / (2 * h);
            if (!(fabs(element(dx, k) - wanted) <= 1e-6 * (1 + fabs(wanted))))
                fail_msg("%s: input %d, element %lld: gradient %.12g, differences give %.12g", op->name, i,
                         (long long)k, element(dx, k), wanted);
        }
    }
}

#endif
