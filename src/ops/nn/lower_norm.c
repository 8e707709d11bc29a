// Lowering of normalisation to StableHLO: means over the axes of a group, written with sums and broadcasts.
//
// 16-bit floats are computed in float32.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

// x with its channels split into groups, normalised: h = (x - mean) r.
typedef struct normal_form {
    mu_emitter *e;
    mu_hlo h, inverse;   // inverse: r, broadcast
    mu_ints over, along; // over: axes of a mean; along: the others
} normal_form;

static mu_hlo binary(const normal_form *f, const char *op, mu_hlo a, mu_hlo b)
{
    return mu__hlo_binary(f->e, op, a, b);
}

// Each group's mean, broadcast.
static mu_hlo mean_of(const normal_form *f, mu_hlo a)
{
    double n = 1;
    for (int i = 0; i < f->over.n; i++)
        n *= (double)a.spec.shape.dims[f->over.at[i]];
    const mu_hlo sum = mu__hlo_reduce(f->e, "stablehlo.add", a, mu__hlo_number(f->e, a.spec.dtype, 0), &f->over);
    const mu_hlo mean = binary(f, "stablehlo.divide", sum, mu__hlo_fill(f->e, a.spec.dtype, &sum.spec.shape, n));
    return mu__hlo_broadcast(f->e, mean, &a.spec.shape, &f->along);
}

static mu_shape parted_shape(const mu_normalize_attrs *attrs, const mu_shape *x)
{
    const int64_t channels = x->dims[x->rank - 1];
    if (attrs->groups == 0)
        return *x;
    return MU_SHAPE(x->dims[0], mu__elements_between(x, 1, x->rank - 1), attrs->groups, channels / attrs->groups);
}

static normal_form normal_form_of(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_normalize_attrs *attrs = l->attrs;
    const mu_shape shape = parted_shape(attrs, &l->in[0].spec.shape);
    normal_form f = {.e = e};
    for (int axis = 0; axis < shape.rank; axis++) {
        const bool summed = attrs->groups > 0 ? axis == 1 || axis == 3 : axis == shape.rank - 1;
        mu_ints *axes = summed ? &f.over : &f.along;
        axes->at[axes->n++] = axis;
    }
    mu_hlo x = mu__hlo_reshape(e, mu__hlo_wide(e, l->in[0]), &shape);
    if (attrs->centered)
        x = binary(&f, "stablehlo.subtract", x, mean_of(&f, x));
    const mu_hlo variance = mean_of(&f, binary(&f, "stablehlo.multiply", x, x));
    const mu_hlo epsilon = mu__hlo_fill(e, x.spec.dtype, &shape, attrs->epsilon);
    f.inverse = mu__hlo_unary(e, "stablehlo.rsqrt", binary(&f, "stablehlo.add", variance, epsilon));
    f.h = binary(&f, "stablehlo.multiply", x, f.inverse);
    return f;
}

static mu_hlo with_channels(mu_emitter *e, const char *op, mu_hlo a, mu_hlo channels)
{
    return mu__hlo_binary(e, op, a, mu__hlo_broadcast_to(e, mu__hlo_wide(e, channels), &a.spec.shape));
}

mu_status mu__lower_normalize(mu_lowering *l)
{
    const normal_form f = normal_form_of(l);
    mu_hlo y = mu__hlo_reshape(f.e, f.h, &l->in[0].spec.shape);
    if (l->n_in > 1)
        y = with_channels(f.e, "stablehlo.multiply", y, l->in[1]);
    if (l->n_in > 2)
        y = with_channels(f.e, "stablehlo.add", y, l->in[2]);
    return mu__lowered(l, 0, mu__hlo_convert(f.e, y, l->out[0].spec.dtype));
}

static mu_hlo channel_sums(mu_lowering *l, mu_hlo a)
{
    mu_ints axes = {0};
    for (int axis = 0; axis < a.spec.shape.rank - 1; axis++)
        axes.at[axes.n++] = axis;
    const mu_hlo zero = mu__hlo_number(l->emitter, a.spec.dtype, 0);
    return axes.n == 0 ? a : mu__hlo_reduce(l->emitter, "stablehlo.add", a, zero, &axes);
}

// dx = r (a - mean(a) - h mean(a h)), a = dy gamma.
mu_status mu__lower_normalize_grad(mu_lowering *l)
{
    const normal_form f = normal_form_of(l);
    const mu_shape *shape = &l->in[0].spec.shape;
    const mu_hlo dy = mu__hlo_wide(f.e, l->in[1]);
    const mu_hlo wide = l->n_in > 2 ? with_channels(f.e, "stablehlo.multiply", dy, l->in[2]) : dy;
    const mu_hlo a = mu__hlo_reshape(f.e, wide, &f.h.spec.shape);
    const mu_hlo along = binary(&f, "stablehlo.multiply", f.h, mean_of(&f, binary(&f, "stablehlo.multiply", a, f.h)));
    mu_hlo dx = binary(&f, "stablehlo.subtract", a, along);
    if (((const mu_normalize_attrs *)l->attrs)->centered)
        dx = binary(&f, "stablehlo.subtract", dx, mean_of(&f, a));
    dx = mu__hlo_reshape(f.e, binary(&f, "stablehlo.multiply", dx, f.inverse), shape);
    const mu_hlo h = mu__hlo_reshape(f.e, f.h, shape);
    const mu_hlo dgamma = channel_sums(l, mu__hlo_binary(f.e, "stablehlo.multiply", dy, h));
    l->out[1] = mu__hlo_convert(f.e, dgamma, l->out[1].spec.dtype);
    l->out[2] = mu__hlo_convert(f.e, channel_sums(l, dy), l->out[2].spec.dtype);
    return mu__lowered(l, 0, mu__hlo_convert(f.e, dx, l->out[0].spec.dtype));
}

mu_status mu__lower_channel_affine(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    mu_hlo y = with_channels(e, "stablehlo.subtract", mu__hlo_wide(e, l->in[0]), l->in[1]);
    y = with_channels(e, "stablehlo.multiply", y, l->in[2]);
    y = with_channels(e, "stablehlo.add", y, l->in[3]);
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}
