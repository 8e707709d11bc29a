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
    return mu__reduce_over(&mu_op_reduce_sum, op == &mu_op_reduce_exp_about ? mu_exp(from) : mu_square(from), n, axes,
                           keep_dims);
}

void mu__axes_or_all(const mu_tensor *x, const mu_axes *given, int *n, const int **axes)
{
    static const int all[MU_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    const bool some = given->named && !(given->n == 1 && given->at == &given->one && given->one == MU_ALL_AXES);
    *n = some ? given->n : x ? x->shape.rank : 0;
    *axes = some ? given->at : all;
}

bool mu__reduce_call_take(const mu_reduction_args *given, const char *function, mu_reduce_call *out)
{
    mu_reduction_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK ||
        MU_AXES_TAKE(&args, 1, &out->given, function) != MU_OK)
        return false;
    out->x = args.x;
    out->keep_dims = args.keep_dims;
    mu__axes_or_all(args.x, &out->given, &out->n, &out->axes);
    return true;
}

static mu_tensor *reduce(const mu_op *op, const mu_reduction_args *args, const char *function)
{
    mu_reduce_call r;
    return mu__reduce_call_take(args, function, &r) ? mu__reduce_over(op, r.x, r.n, r.axes, r.keep_dims) : NULL;
}

mu_tensor *mu_reduce_sum_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_sum, args, "mu_reduce_sum");
}

mu_tensor *mu_reduce_mean_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_mean, args, "mu_reduce_mean");
}

mu_tensor *mu_reduce_max_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_max, args, "mu_reduce_max");
}

mu_tensor *mu_reduce_min_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_min, args, "mu_reduce_min");
}

mu_tensor *mu_reduce_any_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_any, args, "mu_reduce_any");
}

mu_tensor *mu_reduce_all_with(const mu_reduction_args *args)
{
    return reduce(&mu_op_reduce_all, args, "mu_reduce_all");
}

// One axis after the other: the gradient of a product over several axes would need the products of all others.
mu_tensor *mu_reduce_prod_with(const mu_reduction_args *args)
{
    mu_reduce_call r;
    if (!mu__reduce_call_take(args, "mu_reduce_prod", &r) ||
        (r.n > 1 && !axes_of(&mu_op_reduce_prod, r.x, r.n, r.axes, &(unsigned){0})))
        return NULL;
    if (r.n == 0)
        return mu__reduce_over(&mu_op_reduce_prod, r.x, 0, NULL, r.keep_dims);
    mu_tensor *kept = r.x;
    for (int i = 0; i < r.n; i++)
        kept = mu__reduce_over(&mu_op_reduce_prod, kept, 1, r.axes != NULL ? &r.axes[i] : NULL, true);
    // A sum over axes of size 1 removes them.
    return r.keep_dims ? kept : mu__reduce_over(&mu_op_reduce_sum, kept, r.n, r.axes, false);
}
