// Public reduction functions: over one axis, several, or all.
//
// They sort the axes and apply the ops of reduce.c; composed reductions are in composite.c.
#include "ops/core/attrs.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

// Converts axes to a bit set. Errors: an axis that x does not have, or that occurs twice.
static bool axes_of(const mu_op *op, const mu_tensor *x, int n, const int *axes, unsigned *bits)
{
    if (n != 0 && mu__need(n < 0 ? NULL : axes, "the list of axes (or their number is negative)") != MU_OK)
        return false;
    for (int i = 0; x && !mu__pending() && i < n; i++) {
        int axis = mu__axis(axes[i], x->shape.rank, op->name);
        if (axis >= 0 && *bits >> axis & 1)
            mu__error(MU_INVALID_ARGUMENT, "%s: axis %d is given twice", op->name, axis);
        if (mu__pending())
            return false;
        *bits |= 1u << axis;
    }
    return true;
}

// Makes the attributes with checked and sorted axes.
static bool attrs_of(const mu_op *op, const mu_tensor *x, int n, const int *axes, bool keep_dims,
                     mu_reduce_attrs *attrs)
{
    unsigned bits = 0;
    memset(attrs, 0, sizeof *attrs);
    attrs->keep_dims = keep_dims;
    if (!axes_of(op, x, n, axes, &bits))
        return false;
    for (int axis = 0; axis < MU_MAX_RANK; axis++)
        if (bits >> axis & 1)
            attrs->axes.at[attrs->axes.n++] = axis;
    return true;
}

mu_tensor *mu__reduce_over(const mu_op *op, mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    mu_reduce_attrs attrs;
    return attrs_of(op, x, n, axes, keep_dims, &attrs) ? mu__apply1(op, &attrs, x) : NULL;
}

mu_tensor *mu__reduce_about(const mu_op *op, mu_tensor *x, mu_tensor *center, int n, const int *axes, bool keep_dims)
{
    mu_reduce_attrs attrs;
    if (mu__pending() || !attrs_of(op, x, n, axes, keep_dims, &attrs))
        return NULL;
    const bool together = n > 0 && attrs.axes.at[attrs.axes.n - 1] - attrs.axes.at[0] == attrs.axes.n - 1;
    if (x && together && (op->dtypes & MU_DTYPE_BIT(x->dtype)))
        return mu__apply2(op, &attrs, x, center);
    mu_tensor *from = mu_subtract(x, center);
    return mu_reduce_sum_axes(op == &mu_op_reduce_exp_about ? mu_exp(from) : mu_square(from), n, axes, keep_dims);
}

typedef mu_tensor *reduce_axes_fn(mu_tensor *x, int n, const int *axes, bool keep_dims);

static mu_tensor *reduce_axis(reduce_axes_fn *reduce, mu_tensor *x, int axis)
{
    static const int all[MU_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (axis != MU_ALL_AXES)
        return reduce(x, 1, &axis, false);
    return reduce(x, x ? x->shape.rank : 0, all, false);
}

mu_tensor *mu_reduce_sum_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_sum, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_sum(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_sum_axes, x, axis);
}

mu_tensor *mu_reduce_mean_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_mean, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_mean(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_mean_axes, x, axis);
}

mu_tensor *mu_reduce_max_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_max, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_max(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_max_axes, x, axis);
}

mu_tensor *mu_reduce_min_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_min, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_min(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_min_axes, x, axis);
}

mu_tensor *mu_reduce_any_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_any, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_any(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_any_axes, x, axis);
}

mu_tensor *mu_reduce_all_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    return mu__reduce_over(&mu_op_reduce_all, x, n, axes, keep_dims);
}

mu_tensor *mu_reduce_all(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_all_axes, x, axis);
}

mu_tensor *mu_reduce_prod_axes(mu_tensor *x, int n, const int *axes, bool keep_dims)
{
    mu_tensor *kept = x;
    if (n > 1 && !axes_of(&mu_op_reduce_prod, x, n, axes, &(unsigned){0}))
        return NULL;
    for (int i = 0; i < n; i++)
        kept = mu__reduce_over(&mu_op_reduce_prod, kept, 1, &axes[i], true);
    if (keep_dims || n == 0)
        return n == 0 ? mu__reduce_over(&mu_op_reduce_prod, x, 0, NULL, keep_dims) : kept;
    return mu__reduce_over(&mu_op_reduce_sum, kept, n, axes, false);  // removes the axes, which all have size 1
}

mu_tensor *mu_reduce_prod(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_prod_axes, x, axis);
}

mu_tensor *mu_reduce_logsumexp(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_logsumexp_axes, x, axis);
}

mu_tensor *mu_reduce_variance(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_variance_axes, x, axis);
}

mu_tensor *mu_reduce_std(mu_tensor *x, int axis)
{
    return reduce_axis(mu_reduce_std_axes, x, axis);
}
