// Constraints: what becomes of a weight after each update.

#include "model/core/layer.h"

#include <muster/ops.h>

// CONSTRAINT(function's word and name, Keras's class, struct of options, fields, what completes them, function)
#define CONSTRAINT(word, keras_class, args_type, rows, completer, function)                                          \
    MU_WEIGHT_OPTION(word, #word, keras_class, NULL, mu_constraint, mu__constraint_kind, args_type, rows, completer, \
                     .apply = function)

// ---- Norms --------------------------------------------------------------------------------------

#define AXES(type) MU_FIELD(type, axes, INTS, .keras = "axis", .second = offsetof(type, n_axes), .single = true)

static const mu_field max_norm_fields[] = {
    MU_FIELD(mu_max_norm_args, max_value, DOUBLE, .number = 2, .limit = MU_NOT_NEGATIVE),
    AXES(mu_max_norm_args),
    {0},
};
static const mu_field unit_norm_fields[] = {AXES(mu_unit_norm_args), {0}};
static const mu_field min_max_norm_fields[] = {
    MU_FIELD(mu_min_max_norm_args, min_value, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_min_max_norm_args, max_value, DOUBLE, .number = 1, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_min_max_norm_args, rate, DOUBLE, .number = 1, .limit = MU_FRACTION),
    AXES(mu_min_max_norm_args),
    {0},
};

// No axes are axis 0.
#define COMPLETE(word)                                      \
    static mu_status word##_complete(void *arguments)       \
    {                                                       \
        static const int first[] = {0};                     \
        mu_##word##_args *args = arguments;                 \
        args->axes = args->n_axes > 0 ? args->axes : first; \
        args->n_axes = args->n_axes > 0 ? args->n_axes : 1; \
        return MU_OK;                                       \
    }
COMPLETE(max_norm)
COMPLETE(unit_norm)
COMPLETE(min_max_norm)

static mu_tensor *norms(mu_tensor *weight, int n_axes, const int *axes)
{
    return mu_sqrt(mu_reduce_sum(mu_square(weight), .axes = axes, .n_axes = n_axes, .keep_dims = true));
}

// The weight with other norms; Keras divides by the old ones plus 1e-7.
static mu_tensor *with_norms(mu_tensor *weight, mu_tensor *old, mu_tensor *wanted)
{
    return mu_multiply(weight, mu_divide(wanted, mu_add(old, mu_constant(weight->dtype, 1e-7))));
}

static mu_tensor *clipped(mu_tensor *x, double low, double high)
{
    return x ? mu_minimum(mu_maximum(x, mu_constant(x->dtype, low)), mu_constant(x->dtype, high)) : NULL;
}

static mu_tensor *max_norm(const void *arguments, mu_tensor *weight)
{
    const mu_max_norm_args *args = arguments;
    mu_tensor *old = norms(weight, args->n_axes, args->axes);
    return with_norms(weight, old, clipped(old, 0, args->max_value));
}

static mu_tensor *unit_norm(const void *arguments, mu_tensor *weight)
{
    const mu_unit_norm_args *args = arguments;
    mu_tensor *old = norms(weight, args->n_axes, args->axes);
    return mu_divide(weight, mu_add(old, mu_constant(weight->dtype, 1e-7)));
}

static mu_tensor *min_max_norm(const void *arguments, mu_tensor *weight)
{
    const mu_min_max_norm_args *args = arguments;
    mu_tensor *old = norms(weight, args->n_axes, args->axes);
    mu_tensor *moved =
        mu_multiply(clipped(old, args->min_value, args->max_value), mu_constant(weight->dtype, args->rate));
    mu_tensor *kept = mu_multiply(old, mu_constant(weight->dtype, 1 - args->rate));
    return with_norms(weight, old, mu_add(moved, kept));
}

CONSTRAINT(max_norm, "MaxNorm", mu_max_norm_args, max_norm_fields, max_norm_complete, max_norm)
CONSTRAINT(unit_norm, "UnitNorm", mu_unit_norm_args, unit_norm_fields, unit_norm_complete, unit_norm)
CONSTRAINT(min_max_norm, "MinMaxNorm", mu_min_max_norm_args, min_max_norm_fields, min_max_norm_complete, min_max_norm)

// ---- Others -------------------------------------------------------------------------------------

typedef struct no_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
} no_args;

static mu_tensor *non_neg(const void *args, mu_tensor *weight)
{
    (void)args;
    return mu_maximum(weight, mu_constant(weight->dtype, 0));
}

static const mu_weight_option_ops non_neg_ops = {
    .class = {"non_neg", "NonNeg", "mu_non_neg", MU_OPTIONS(no_args), NULL, NULL}, .apply = non_neg};

mu_constraint *mu_non_neg(void) { return mu__weight_option_make(&mu__constraint_kind, &non_neg_ops, NULL); }

static mu_status own_complete(void *args)
{
    return ((const mu_own_weight_function_args *)args)->apply
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_constraint_new: .apply is NULL; give the function that changes a weight");
}

MU_WEIGHT_OPTION(constraint_new, "constraint", NULL, NULL, mu_constraint, mu__constraint_kind,
                 mu_own_weight_function_args, NULL, own_complete, .apply = mu__own_weight_apply)

static const mu_weight_option_ops *const classes[] = {&non_neg_ops, &max_norm_ops, &unit_norm_ops, &min_max_norm_ops,
                                                      NULL};
mu_weight_option_kind mu__constraint_kind = {
    .type = {.name = "constraint", .destroy = mu__weight_option_destroy},
    .module = "keras.constraints",
    .classes = classes,
};
