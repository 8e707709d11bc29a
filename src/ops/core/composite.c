// Functions composed of ops, without op definitions of their own: constants, statistics, helpers of gradient rules. A
// function becomes an op only if a benchmark shows a benefit.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"

#include <math.h>
#include <muster/ops.h>

// ---- Errors of composed functions ---------------------------------------------------------------

bool mu__error_names(const char *name)
{
    const size_t length = strlen(name);
    return strncmp(mu_error_message(), name, length) == 0 && mu_error_message()[length] == ':';
}

mu_tensor *mu__called(const char *name, const mu_op *op, mu_tensor *result)
{
    if (!result && strcmp(name, op->name) != 0 && mu__error_names(op->name))
        mu__error_begin(strlen(op->name), name);
    return result;
}

mu_tensor *mu__composed(const char *name, int n_in, mu_tensor *const *in, mu_tensor *result)
{
    char text[400] = "", shape[MU_SHAPE_TEXT];
    size_t used = 0;
    struct mu_trace *trace = mu__context()->trace;
    if (result && trace)
        trace->made(trace, name, n_in, in, result);
    if (result || mu__error_names(name))
        return result;
    for (int i = 0; i < n_in && used < sizeof text; i++)
        if (in[i])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", used ? " and " : " of ",
                                     mu_dtype_name(in[i]->dtype), mu__shape_text(&in[i]->shape, shape));
    mu__error_context("in %s%s", name, text);
    return NULL;
}

// ---- For gradients ------------------------------------------------------------------------------

mu_tensor *mu__scalar_like(const mu_tensor *like, double value)
{
    return like ? mu_constant(like->dtype, value) : NULL;
}

mu_tensor *mu__scale(mu_tensor *x, double factor) { return mu_multiply(x, mu__scalar_like(x, factor)); }

// The dimension of a shape that broadcasts to axis `axis` of a result of rank `rank`.
static int64_t dim_under(const mu_shape *shape, int rank, int axis)
{
    int at = axis - (rank - shape->rank);
    return at < 0 ? 1 : shape->dims[at];
}

mu_tensor *mu__unbroadcast(const mu_grad *g, mu_tensor *dy, int i)
{
    mu_tensor *x = g->x[i];
    if (!dy || dy->shape.rank < x->shape.rank)
        return dy;
    bool same = dy->shape.rank == x->shape.rank;
    for (int axis = 0; axis < dy->shape.rank && same; axis++) {
        int64_t dim = x->shape.dims[axis];
        same = dim == dy->shape.dims[axis];
        // Two unknown sizes are equal if no other input can have made the result larger than x there.
        for (int j = 0; j < g->n_in && same && dim == MU_UNKNOWN; j++)
            same = j == i || dim_under(&g->x[j]->shape, dy->shape.rank, axis) == 1;
    }
    return same ? dy : mu_sum_to_like(dy, x);
}

mu_tensor *mu__zeros_like(mu_tensor *like) { return mu_zeros_like(like); }

mu_tensor *mu__ones_like(mu_tensor *like) { return mu_ones_like(like); }

// ---- Constants ----------------------------------------------------------------------------------

static mu_tensor *filled_like(mu_tensor *like, double value)
{
    if (mu__need(like, "mu_zeros_like or mu_ones_like: the tensor") != MU_OK)
        return NULL;
    return mu_broadcast_like(mu_constant(like->dtype, value), like);
}

mu_tensor *mu_zeros_like(mu_tensor *x) { return filled_like(x, 0); }

mu_tensor *mu_ones_like(mu_tensor *x) { return filled_like(x, 1); }

mu_tensor *mu_zeros(mu_dtype dtype, int rank, const int64_t *dims) { return mu_tensor_new(dtype, rank, dims, NULL); }

mu_tensor *mu_ones(mu_dtype dtype, int rank, const int64_t *dims) { return mu_fill(dtype, rank, dims, 1); }

mu_tensor *mu_fill(mu_dtype dtype, int rank, const int64_t *dims, double value)
{
    char element[sizeof(double)];
    if (!mu__pending() && mu__dtype_ok(dtype) && mu__check_number(dtype, value, "mu_fill") != MU_OK)
        return NULL;
    if (value == 0 && !signbit(value))
        return mu_tensor_new(dtype, rank, dims, NULL);
    mu_tensor *tensor = mu__tensor_unset(dtype, rank, dims);
    const int64_t n = tensor ? mu__elements(&tensor->shape) : 0;
    const size_t bytes = mu_dtype_bytes(dtype);
    if (n > 0) {
        mu__write_element(dtype, element, 0, value);
        mu__fill(mu__host_write(tensor), element, bytes, n);
    }
    return tensor;
}

mu_tensor *mu_eye(mu_dtype dtype, int64_t rows, int64_t columns)
{
    int64_t dims[] = {rows, columns};
    if (!mu__pending() && (rows < 0 || columns < 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_eye: %lld rows and %lld columns; it takes none or more of each",
                  (long long)rows, (long long)columns);
        return NULL;
    }
    mu_tensor *tensor = mu_tensor_new(dtype, 2, dims, NULL);
    for (int64_t i = 0; tensor && i < MU_MIN(rows, columns); i++)
        mu__write_element(dtype, mu__host_write(tensor), i * columns + i, 1);
    return tensor;
}

// start, start + step, …; each element is computed independently, and the last one is given.
typedef struct progression {
    double start, step, last;
} progression;

enum { LANES = 8, AT_ONCE = 4 };
typedef double eight_f64 __attribute__((vector_size(64)));
typedef float eight_f32 __attribute__((vector_size(32)));

// Indices are counted in doubles, which are exact; converting integers would dominate the cost.
MU_PER_ISA(f32_progression, (const progression *line, float *out, int64_t n), (line, out, n))
{
    const double start = line->start, step = line->step;
    eight_f64 position = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t i = 0;
    for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES, position += AT_ONCE * LANES) {
        for (int k = 0; k < AT_ONCE; k++) {
            const eight_f32 values = __builtin_convertvector(start + step * (position + LANES * k), eight_f32);
            memcpy(out + i + LANES * k, &values, sizeof values);
        }
    }
    for (; i < n; i++)
        out[i] = (float)(start + step * (double)i);
}

static mu_tensor *written(mu_tensor *tensor, const progression *line)
{
    const int64_t n = tensor ? mu__elements(&tensor->shape) : 0;
    if (n > 0 && tensor->dtype == MU_F32)
        f32_progression(line, mu__host_write(tensor), n);
    for (int64_t i = 0; i < n && tensor->dtype != MU_F32; i++)
        mu__write_element(tensor->dtype, mu__host_write(tensor), i, line->start + line->step * (double)i);
    if (n > 0)
        mu__write_element(tensor->dtype, mu__host_write(tensor), n - 1, line->last);
    return tensor;
}

mu_tensor *mu_range(mu_dtype dtype, double start, double limit, double delta)
{
    double steps = ceil((limit - start) / delta);
    if (!mu__pending() && (delta == 0 || !(steps < 0x1p53))) {
        mu__error(MU_INVALID_ARGUMENT, "mu_range: from %g to %g by steps of %g is not a finite sequence", start, limit,
                  delta);
        return NULL;
    }
    if (!mu__pending() && (delta > 0 ? start > limit : start < limit)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_range: steps of %g do not lead from %g to %g; give the step the other sign",
                  delta, start, limit);
        return NULL;
    }
    if (!mu__pending() && mu__dtype_ok(dtype) &&
        (mu__check_number(dtype, start, "mu_range") != MU_OK || mu__check_number(dtype, delta, "mu_range") != MU_OK))
        return NULL;
    int64_t n = steps > 0 ? (int64_t)steps : 0;
    progression line = {.start = start, .step = delta, .last = n > 0 ? start + (double)(n - 1) * delta : start};
    if (!mu__pending() && mu__dtype_ok(dtype) && mu__check_number(dtype, line.last, "mu_range") != MU_OK)
        return NULL;
    mu_tensor *tensor = mu__tensor_unset(dtype, 1, &n);
    return written(tensor, &line);
}

mu_tensor *mu_linspace(mu_dtype dtype, double start, double stop, int64_t n)
{
    if (!mu__pending() && n < 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_linspace: %lld points; it takes none or more", (long long)n);
        return NULL;
    }
    mu_tensor *tensor = mu__tensor_unset(dtype, 1, &n);
    progression line = {
        .start = start, .step = (stop - start) / (double)MU_MAX(n - 1, 1), .last = n > 1 ? stop : start};
    return written(tensor, &line);
}

// ---- Clipping and statistics --------------------------------------------------------------------

mu_tensor *mu_reduce_logsumexp_with(const mu_reduction_args *args)
{
    mu_reduce_call r;
    if (!mu__reduce_call_take(args, "mu_reduce_logsumexp", &r))
        return NULL;
    // Subtracts the maximum before the sum, unless it is infinite.
    mu_tensor *most = mu_stop_gradient(mu__reduce_over(&mu_op_reduce_max, r.x, r.n, r.axes, true));
    most = mu_where(mu_is_finite(most), most, mu__scalar_like(most, 0));
    mu_tensor *sum = mu_log(mu__reduce_about(&mu_op_reduce_exp_about, r.x, most, r.n, r.axes, true));
    mu_tensor *kept = mu_add(sum, most);
    return mu__composed1("reduce_logsumexp", r.x,
                         r.keep_dims ? kept : mu__reduce_over(&mu_op_reduce_sum, kept, r.n, r.axes, false));
}

// Number of elements per reduced result; MU_UNKNOWN if a trace does not know it.
static int64_t reduced_elements(const mu_tensor *x, const mu_tensor *kept)
{
    int64_t n = 1;
    for (int i = 0; i < x->shape.rank && n != MU_UNKNOWN; i++)
        if (x->shape.dims[i] != kept->shape.dims[i])
            n = x->shape.dims[i] == MU_UNKNOWN ? MU_UNKNOWN : n * x->shape.dims[i];
    return n;
}

// Sums of 16-bit floats would overflow before the division.
static mu_tensor *variance(const mu_reduce_call *r)
{
    mu_tensor *mean = mu__reduce_over(&mu_op_reduce_mean, r->x, r->n, r->axes, true);
    const bool wide = mean && (mean->dtype == MU_F32 || mean->dtype == MU_F64);
    const int64_t count = wide ? reduced_elements(r->x, mean) : MU_UNKNOWN;
    if (count == MU_UNKNOWN)
        return mu__reduce_over(&mu_op_reduce_mean, mu_square(mu_subtract(r->x, mean)), r->n, r->axes, r->keep_dims);
    mu_tensor *sum = mu__reduce_about(&mu_op_reduce_squares_about, r->x, mean, r->n, r->axes, r->keep_dims);
    return mu_divide(sum, mu__scalar_like(sum, (double)count));
}

mu_tensor *mu_reduce_variance_with(const mu_reduction_args *args)
{
    mu_reduce_call r;
    return mu__reduce_call_take(args, "mu_reduce_variance", &r) ? mu__composed1("reduce_variance", r.x, variance(&r))
                                                                : NULL;
}

mu_tensor *mu_reduce_std_with(const mu_reduction_args *args)
{
    mu_reduce_call r;
    return mu__reduce_call_take(args, "mu_reduce_std", &r) ? mu__composed1("reduce_std", r.x, mu_sqrt(variance(&r)))
                                                           : NULL;
}
