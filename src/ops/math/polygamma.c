// polygamma: the derivatives of digamma, up to order 100; the gradient of each order is the next order.
//
// All types are computed in float64. Orders 0 and 1 are separate ops, digamma and trigamma.
#include "ops/core/composed.h"
#include "ops/math/polygamma.h"
#include "ops/core/plain.h"
#include "ops/core/lower.h"
#include "ops/core/op.h"

#include <math.h>
#include <muster/ops.h>

// ---- One number ---------------------------------------------------------------------------------

void mu__polygamma_form(int order, mu_polygamma_form *form)
{
    // Bernoulli numbers over factorials: B(2j) / (2j)!.
    static const double bernoulli[MU_POLYGAMMA_TERMS] = {
        1.0 / 12,
        -1.0 / 720,
        1.0 / 30240,
        -1.0 / 1209600,
        1.0 / 47900160,
        -691.0 / 1307674368000,
        1.0 / 74724249600,
        -3617.0 / 10670622842880000,
        43867.0 / 5109094217170944000,
        -174611.0 / 802857662698291200000.0,
    };
    double rising = order;
    *form = (mu_polygamma_form){.order = order, .bends = {[1] = 1}};
    for (int j = 0; j < MU_POLYGAMMA_TERMS; j++) {
        rising *= (order + 2.0 * j + 1) * (j ? order + 2.0 * j : 1);
        form->tail[j] = bernoulli[j] * rising;
    }
    // d/dx p(c) = p'(c) * -(1 + c^2) pi. Every polynomial is even or odd.
    for (int m = 1; m <= order; m++) {
        double derivative[MU_POLYGAMMA_MOST + 2] = {0};
        for (int i = 0; i <= m; i++)
            derivative[i] = (i + 1) * form->bends[i + 1];
        for (int i = 0; i <= m + 1; i++)
            form->bends[i] = derivative[i] + (i >= 2 ? derivative[i - 2] : 0);
    }
}

// The sum for x >= 0: n! / x^(n+1) + n! / (x + 1)^(n+1) + …
static double sum_from(const mu_polygamma_form *form, double x)
{
    const int n = form->order;
    double sum = 0;
    for (; x < n + MU_POLYGAMMA_STEPS; x++) {
        double term = 1 / x;
        for (int k = 1; k <= n; k++)
            term *= k / x;
        sum += term;
    }
    const double inverse = 1 / x, square = inverse * inverse;
    double rest = inverse, series = 0;
    for (int k = 1; k < n; k++)
        rest *= k * inverse;
    for (int j = MU_POLYGAMMA_TERMS - 1; j >= 0; j--)
        series = square * (series + form->tail[j]);
    return sum + rest * (1 + 0.5 * n * inverse + series);
}

// psi(1 - x) - psi(x) = pi cot(pi x), differentiated n times.
static double polygamma(const mu_polygamma_form *form, double x)
{
    const int n = form->order;
    if (x <= 0 && x == floor(x))
        return n % 2 ? INFINITY : NAN;
    if (x >= 0 || x != x)
        return n % 2 ? sum_from(form, x) : -sum_from(form, x);
    // Computes the cosine as a sine, so that the cotangent is exactly 0 halfway between the poles.
    const double off = fabs(x - rint(x)), c = copysign(sin(M_PI * (0.5 - off)) / sin(M_PI * off), x - rint(x));
    double bend = 0;
    for (int i = n + 1; i >= 0; i--)
        bend = bend * c + form->bends[i];
    bend *= pow(M_PI, n + 1);
    return n % 2 ? bend - sum_from(form, 1 - x) : -bend - sum_from(form, 1 - x);
}

// ---- Op definition ------------------------------------------------------------------------------

typedef struct polygamma_job {
    const mu_kernel *kernel;
    mu_polygamma_form form;
} polygamma_job;

static void polygamma_range(void *arg, int64_t begin, int64_t end)
{
    const polygamma_job *job = arg;
    const mu_view *in = &job->kernel->in[0], *out = &job->kernel->out[0];
    for (int64_t i = begin; i < end; i++)
        mu__write_real(out, i, polygamma(&job->form, mu__read_real(in, i)));
}

static mu_status polygamma_ref(const mu_kernel *k)
{
    polygamma_job job = {.kernel = k};
    const int64_t n = mu__elements(&k->in[0].shape);
    mu__polygamma_form((int)((const mu_polygamma_attrs *)k->attrs)->order, &job.form);
    mu__share_range(k->team, n, 128, n * 64, polygamma_range, &job);
    return MU_OK;
}

static mu_status refuse_order(int64_t order)
{
    return mu__error(MU_INVALID_ARGUMENT, "polygamma: order %lld; it takes orders from 0 (digamma) to %d",
                     (long long)order, MU_POLYGAMMA_MOST);
}

static mu_status polygamma_infer(mu_infer *infer)
{
    const int64_t order = ((const mu_polygamma_attrs *)infer->attrs)->order;
    return order < 1 || order > MU_POLYGAMMA_MOST ? refuse_order(order) : mu__infer_same(infer);
}

static mu_tensor *of_order(int64_t order, mu_tensor *x)
{
    return mu__apply1(&mu_op_polygamma, &(mu_polygamma_attrs){order}, x);
}

static mu_tensor *polygamma_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_multiply(g->dy, of_order(((const mu_polygamma_attrs *)g->attrs)->order + 1, g->x[0]));
}

static const mu_attr_spec fields[] = {{"order", MU_ATTR_INT, offsetof(mu_polygamma_attrs, order)}, {0}};
static const mu_polygamma_attrs first = {1}, second = {2}, third = {3}, sixth = {6};
static const mu_sample samples[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .low = {0.8}, .high = {9}, .attrs = &second},
    {.n_in = 1, .in = {MU_DIMS(7)}, .low = {-0.7}, .high = {-0.3}, .attrs = &second},
    {.n_in = 1, .in = {MU_DIMS(67)}, .low = {1}, .high = {30}, .attrs = &third},
    {.n_in = 1, .in = {MU_NO_DIMS}, .low = {2}, .high = {4}, .attrs = &sixth},
    {.n_in = 1, .in = {MU_DIMS(2, 0, 3)}, .attrs = &first},
    {0},
};
const mu_op mu_op_polygamma = {
    .name = "polygamma",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_ELEMENTWISE,
    .dtypes = MU_FLOATS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_polygamma_attrs),
    .attrs = fields,
    .infer = polygamma_infer,
    .grad = polygamma_grad,
    .ref = polygamma_ref,
    .lower = mu__lower_polygamma,
    .samples = samples,
};

mu_tensor *mu_polygamma(int order, mu_tensor *x)
{
    const mu_op *op = order == 0 ? &mu_op_digamma : &mu_op_trigamma;
    if (mu__pending())
        return NULL;
    return order == 0 || order == 1 ? mu__called("polygamma", op, mu__apply1(op, NULL, x)) : of_order(order, x);
}
