// Times element-wise functions as one fused chain and op by op, on one core: fusion saves memory traffic. Reports the
// best of many runs, because other programs can only increase a time. Usage: bench_fusions.
#include "engine/cpu/fusion.h"
#include "engine/engine.h"

#include <muster/nn.h>
#include <muster/ops.h>

#include <stdlib.h>

typedef mu_tensor *formula(mu_tensor *x, mu_tensor *y);

static mu_tensor *number(double value) { return mu_constant(MU_F32, value); }

static mu_tensor *scale_shift_relu(mu_tensor *x, mu_tensor *y)
{
    return mu_nn_relu(mu_add(mu_multiply(x, number(1.5)), y));
}

static mu_tensor *momentum(mu_tensor *x, mu_tensor *y)
{
    mu_tensor *velocity = mu_add(mu_multiply(x, number(.9)), mu_multiply(y, number(.1)));
    return mu_subtract(y, mu_multiply(mu_add(velocity, mu_multiply(y, number(1e-4))), number(.01)));
}

static mu_tensor *clipped_square(mu_tensor *x, mu_tensor *y)
{
    mu_tensor *d = mu_squared_difference(x, y);
    return mu_minimum(mu_maximum(mu_sqrt(mu_add(d, number(1e-6))), number(.1)), number(10));
}

static const struct {
    const char *name;
    formula *of;
} formulas[] = {
    {"relu(1.5 x + y)", scale_shift_relu}, {"momentum step", momentum}, {"clip(sqrt((x - y)^2 + e))", clipped_square}};

static mu_value *call(mu_value *arguments, void *arg)
{
    formula *const *of = arg;
    // Returns only one element, so that the full result reuses existing memory; fresh pages would be timed too.
    mu_tensor *y = (*of)(mu_at(arguments, 0), mu_at(arguments, 1));
    return mu_of(mu_slice(y, (int64_t[]){0}, (int64_t[]){1}));
}

static double best_time(mu_device *device, mu_graph *graph, mu_tensor *const *in)
{
    const mu_spec specs[2] = {mu__spec_of(in[0]), mu__spec_of(in[1])};
    mu_plan *plan = device->engine->compile(device, graph, specs, 2);
    double best = 1e9;
    const int64_t until = mu__now_ns() + 300000000;
    for (int run = 0; plan && (run < 10 || mu__now_ns() < until); run++) {
        mu_tensor *out = NULL;
        const mu_run_args args = {.in = in, .out = &out};
        const int64_t begin = mu__now_ns();
        if (device->engine->run(plan, &args) != MU_OK)
            return -1;
        best = MU_MIN(best, (double)(mu__now_ns() - begin) / 1e9);
        mu_release(out);
    }
    device->engine->free(plan);
    return best;
}

static mu_status compare(mu_device *device, const char *name, formula *of, int64_t n)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[2] = {mu_fill(MU_F32, 1, &n, 2), mu_fill(MU_F32, 1, &n, 3)};
    mu_value *arguments = mu_list(in[0], in[1], MU_END);
    const mu_spec specs[2] = {{.dtype = MU_F32, .shape = {1, {MU_UNKNOWN}}},
                              {.dtype = MU_F32, .shape = {1, {MU_UNKNOWN}}}};
    mu_traced traced;
    MU_TRY(mu__trace_run(name, call, &of, arguments, specs, true, &traced));
    mu_graph *chained = mu__graph_clone(traced.graph);
    if (!chained || mu__fusion_fuse(chained) != MU_OK)
        return mu_error_code();
    const double one_by_one = best_time(device, traced.graph, in), together = best_time(device, chained, in);
    printf("%-26s %10lld elements  op by op %9.2f us  chain %9.2f us  ratio %.2f\n", name, (long long)n,
           one_by_one * 1e6, together * 1e6, one_by_one / together);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    mu_release(chained);
    mu_pool_close(pool);
    return mu_error_code();
}

int main(void)
{
    static const int64_t sizes[] = {256, 16384, 1 << 20, 16 << 20};
    mu_status status = mu_init(.threads = 1);
    mu_device *device = status == MU_OK ? mu__device_by_name(mu__runtime(), "CPU:0") : NULL;
    for (size_t f = 0; device && f < MU_COUNT(formulas); f++)
        for (size_t s = 0; s < MU_COUNT(sizes) && status == MU_OK; s++)
            status = compare(device, formulas[f].name, formulas[f].of, sizes[s]);
    return mu_exit(status == MU_OK);
}
