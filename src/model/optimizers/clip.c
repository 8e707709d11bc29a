// Clips gradients by norm or by value, dense ones and slices alike.
//
// Slices are clipped as they are, before rows with the same index are added, as in TensorFlow and Keras. Formulas are
// theirs; Pascanu et al., "On the difficulty of training recurrent neural networks", 2013.

#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <muster/ops.h>

mu_status mu__check_clipping(const mu_clipping *clipping, const char *function)
{
    const double values[] = {clipping->norm, clipping->global_norm, clipping->value};
    static const char *const names[] = {"norm", "global_norm", "value"};
    int given = 0;
    for (int i = 0; i < 3; i++) {
        if (!(values[i] >= 0))
            return mu__error(MU_INVALID_ARGUMENT, "%s: clipping by %s %g; it must be positive, or 0 for none", function,
                             names[i], values[i]);
        given += values[i] > 0;
    }
    if (given > 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: gradients are clipped by more than one of norm, global norm and value; choose one",
                         function);
    return MU_OK;
}

// The numbers of a gradient, wherever they belong.
static mu_tensor **numbers_of(mu_gradient *gradient) { return gradient->values ? &gradient->values : &gradient->dense; }

static mu_tensor *like(const mu_tensor *tensor, double value) { return mu_constant(tensor->dtype, value); }

static mu_tensor *square_sum(mu_tensor *tensor) { return mu_reduce_sum(mu_square(tensor), MU_ALL_AXES); }

static mu_tensor *by_norm(mu_tensor *tensor, double limit)
{
    mu_tensor *bound = like(tensor, limit), *norm = mu_sqrt(square_sum(tensor));
    return mu_divide(mu_multiply(tensor, bound), mu_maximum(norm, bound));
}

static mu_tensor *by_value(mu_tensor *tensor, double limit)
{
    return mu_clip_by_value(tensor, like(tensor, -limit), like(tensor, limit));
}

// A norm that is not finite makes every gradient NaN.
static mu_tensor *global_scale(int n, mu_gradient *gradients, double limit)
{
    mu_tensor *sum = NULL;
    for (int i = 0; i < n; i++) {
        mu_tensor *part = square_sum(*numbers_of(&gradients[i]));
        sum = sum && part ? mu_add(sum, mu_cast(part, sum->dtype)) : part;
        if (!sum)
            return NULL;
    }
    mu_tensor *norm = mu_sqrt(sum);
    mu_tensor *scale =
        norm ? mu_multiply(like(norm, limit), mu_minimum(mu_reciprocal(norm), like(norm, 1 / limit))) : NULL;
    return scale ? mu_add(scale, mu_subtract(norm, norm)) : NULL;
}

mu_status mu__clip(const mu_clipping *clipping, int n, mu_gradient *gradients)
{
    if (n == 0 || !(clipping->norm || clipping->global_norm || clipping->value))
        return MU_OK;
    mu_tensor *scale = clipping->global_norm ? global_scale(n, gradients, clipping->global_norm) : NULL;
    for (int i = 0; i < n && !mu__pending(); i++) {
        mu_tensor **numbers = numbers_of(&gradients[i]);
        *numbers = scale            ? mu_multiply(*numbers, mu_cast(scale, (*numbers)->dtype))
                   : clipping->norm ? by_norm(*numbers, clipping->norm)
                                    : by_value(*numbers, clipping->value);
    }
    return mu_error_code();
}

// ---- For custom loops ---------------------------------------------------------------------------

// How many tensors and slices a nest of gradients has; `out` gets them in order.
static int collect(const mu_value *value, mu_gradient *out)
{
    if (value->kind == MU_VALUE_SLICES || value->leaf) {
        const bool slices = value->kind == MU_VALUE_SLICES;
        if (out)
            *out = slices ? (mu_gradient){.values = mu_at(value, 0), .indices = mu_at(value, 1)}
                          : (mu_gradient){.dense = mu_value_tensor(value)};
        return 1;
    }
    int n = 0;
    for (int i = 0; i < value->n; i++)
        n += collect(value->items[i], out ? out + n : NULL);
    return n;
}

static mu_value *rebuild(const mu_value *value, const mu_gradient **next)
{
    if (value->leaf) {
        mu_value *leaf = mu_of((*next)++->dense);
        if (leaf)
            leaf->unconnected = value->unconnected;
        return leaf;
    }
    const bool slices = value->kind == MU_VALUE_SLICES;
    mu_value **items = mu__calloc((size_t)value->n + 1, sizeof *items), *result = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < value->n; i++) {
        items[i] = slices ? i > 0 ? value->items[i] : mu_of((*next)++->values) : rebuild(value->items[i], next);
        whole = items[i] != NULL;
    }
    if (whole)
        result = mu__give(mu__value_container(value->kind, value->n, items, (const char *const *)value->keys));
    mu__free(items);
    return result;
}

mu_value *mu_clip_gradients_with(const mu_clip_gradients_args *given)
{
    mu_clip_gradients_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_clip_gradients") != MU_OK)
        return NULL;
    const mu_clipping clipping = {.norm = args.norm, .global_norm = args.global_norm, .value = args.value};
    if (!args.gradients)
        mu__error(MU_INVALID_ARGUMENT, "mu_clip_gradients: the gradients are NULL");
    if (mu__pending() || mu__check_clipping(&clipping, "mu_clip_gradients") != MU_OK)
        return NULL;
    const int n = collect(args.gradients, NULL);
    mu_gradient *gradients = mu__calloc((size_t)n + 1, sizeof *gradients);
    const mu_gradient *next = gradients;
    mu_value *result = NULL;
    if (gradients)
        collect(args.gradients, gradients);
    if (gradients && !mu__pending() && mu__clip(&clipping, n, gradients) == MU_OK)
        result = rebuild(args.gradients, &next);
    mu__free(gradients);
    if (result && args.gradients->sources && !result->sources)
        result->sources = mu_retain(args.gradients->sources);
    return result;
}
