// Regularizers: penalties on weights and on outputs of layers.

#include "model/core/layer.h"

#include <muster/nn.h>
#include <muster/ops.h>

// ---- Sums ---------------------------------------------------------------------------------------

typedef struct sum_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double l1, l2;
} sum_args;

static const mu_field l1_fields[] = {
    MU_FIELD(sum_args, l1, DOUBLE, .number = .01, .limit = MU_NOT_NEGATIVE),
    {0},
};
static const mu_field l2_fields[] = {
    MU_FIELD(sum_args, l2, DOUBLE, .number = .01, .limit = MU_NOT_NEGATIVE),
    {0},
};
static const mu_field l1_l2_fields[] = {
    MU_FIELD(sum_args, l1, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(sum_args, l2, DOUBLE, .limit = MU_NOT_NEGATIVE),
    {0},
};

static mu_tensor *times(mu_tensor *sum, double factor)
{
    return sum ? mu_multiply(sum, mu_constant(sum->dtype, factor)) : NULL;
}

// A factor that the class lacks is 0.
static mu_tensor *sums(const void *arguments, mu_tensor *x)
{
    const sum_args *args = arguments;
    mu_tensor *sum = NULL;
    if (args->l2 > 0 || args->l1 == 0)
        sum = times(mu_reduce_sum(mu_square(x), MU_ALL_AXES), args->l2);
    if (args->l1 > 0) {
        mu_tensor *absolute = times(mu_reduce_sum(mu_abs(x), MU_ALL_AXES), args->l1);
        sum = sum ? mu_add(sum, absolute) : absolute;
    }
    return sum;
}

static const mu_weight_option_ops l1_ops = {.class = {"l1", "L1", "mu_l1", MU_OPTIONS(sum_args), l1_fields, NULL},
                                            .apply = sums},
                                  l2_ops = {.class = {"l2", "L2", "mu_l2", MU_OPTIONS(sum_args), l2_fields, NULL},
                                            .apply = sums},
                                  l1_l2_ops = {
                                      .class = {"l1_l2", "L1L2", "mu_l1_l2", MU_OPTIONS(sum_args), l1_l2_fields, NULL},
                                      .alias = "l1l2",
                                      .apply = sums};

static mu_regularizer *make(const mu_weight_option_ops *ops, const void *args)
{
    return mu__weight_option_make(&mu__regularizer_kind, ops, args);
}

mu_regularizer *mu_l1(double l1)
{
    return make(&l1_ops, &(sum_args){.size = sizeof(sum_args), .given = ".l1", .l1 = l1});
}

mu_regularizer *mu_l2(double l2)
{
    return make(&l2_ops, &(sum_args){.size = sizeof(sum_args), .given = ".l2", .l2 = l2});
}

mu_regularizer *mu_l1_l2(double l1, double l2)
{
    return make(&l1_l2_ops, &(sum_args){.size = sizeof(sum_args), .given = ".l1, .l2", .l1 = l1, .l2 = l2});
}

// ---- Orthogonality ------------------------------------------------------------------------------

typedef struct orthogonal_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor;
    const char *mode;
} orthogonal_args;

static const char *const modes[] = {"rows", "columns", NULL};
static const mu_field orthogonal_fields[] = {
    MU_FIELD(orthogonal_args, factor, DOUBLE, .number = .01, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(orthogonal_args, mode, CHOICE, .text = "rows", .choices = modes),
    {0},
};

// The mean absolute cosine of the angles between different rows (or columns) of a matrix, times the factor.
static mu_tensor *orthogonal(const void *arguments, mu_tensor *weight)
{
    const orthogonal_args *args = arguments;
    const bool columns = strcmp(args->mode, "columns") == 0;
    char seen[MU_SHAPE_TEXT];
    if (mu_tensor_rank(weight) != 2) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_orthogonal_regularizer: the weight has shape %s; only matrices have rows and columns",
                  mu__shape_text(&weight->shape, seen));
        return NULL;
    }
    const int along = columns ? 0 : 1;
    mu_tensor *one = mu_constant(weight->dtype, 1);
    mu_tensor *norm = mu_sqrt(mu_reduce_sum(mu_square(weight), along, .keep_dims = true));
    mu_tensor *unit = mu_divide(weight, mu_maximum(norm, mu_constant(weight->dtype, 1e-7)));
    mu_tensor *all = mu_reduce_sum(mu_abs(mu_matmul_transposed(unit, unit, columns, !columns)), MU_ALL_AXES);
    mu_tensor *others = mu_subtract(all, mu_reduce_sum(mu_square(unit), MU_ALL_AXES));
    mu_tensor *n = mu_cast(mu_dim_size(weight, 1 - along), weight->dtype); // of outputs unknown in traces
    return times(mu_divide_no_nan(others, mu_multiply(n, mu_subtract(n, one))), args->factor);
}

static const mu_weight_option_ops orthogonal_ops = {
    .class = {"orthogonal_regularizer", "OrthogonalRegularizer", "mu_orthogonal_regularizer",
              MU_OPTIONS(orthogonal_args), orthogonal_fields, NULL},
    .apply = orthogonal,
};

mu_regularizer *mu_orthogonal_regularizer(double factor, const char *mode)
{
    return make(
        &orthogonal_ops,
        &(orthogonal_args){.size = sizeof(orthogonal_args), .given = ".factor", .factor = factor, .mode = mode});
}

// ---- Of the program's own -----------------------------------------------------------------------

static mu_status own_complete(void *args)
{
    return ((const mu_own_weight_function_args *)args)->apply
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_regularizer_new: .apply is NULL; give the function that computes the penalty");
}

MU_WEIGHT_OPTION(regularizer_new, "regularizer", NULL, NULL, mu_regularizer, mu__regularizer_kind,
                 mu_own_weight_function_args, NULL, own_complete, .apply = mu__own_weight_apply)

static const mu_weight_option_ops *const classes[] = {&l1_ops, &l2_ops, &l1_l2_ops, &orthogonal_ops, NULL};
mu_weight_option_kind mu__regularizer_kind = {
    .type = {.name = "regularizer", .destroy = mu__weight_option_destroy},
    .module = "keras.regularizers",
    .classes = classes,
};
