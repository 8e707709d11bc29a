// Regularizers: penalties on weights, which fit adds to the loss.
#include "model/model.h"

#include <muster/nn.h>
#include <muster/ops.h>

static mu_type regularizer_type = {.name = "regularizer"};

static mu_regularizer *regularizer(mu_regularizer factors, const char *function)
{
    if (mu__pending())
        return NULL;
    const double wrong = !(factors.l1 >= 0) ? factors.l1 : !(factors.l2 >= 0) ? factors.l2 : factors.orthogonal;
    if (!(wrong >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the factor is %g; it must be 0 or more", function, wrong);
        return NULL;
    }
    mu_regularizer *made = mu__new(&regularizer_type, sizeof *made);
    if (!made)
        return NULL;
    factors.object = made->object;
    *made = factors;
    return mu__give(made);
}

mu_regularizer *mu_l1(double factor)
{
    return regularizer((mu_regularizer){.l1 = factor}, "mu_l1");
}

mu_regularizer *mu_l2(double factor)
{
    return regularizer((mu_regularizer){.l2 = factor}, "mu_l2");
}

mu_regularizer *mu_l1_l2(double l1, double l2)
{
    return regularizer((mu_regularizer){.l1 = l1, .l2 = l2}, "mu_l1_l2");
}

mu_regularizer *mu_orthogonal_regularizer(double factor, const char *mode)
{
    const bool columns = mode && strcmp(mode, "columns") == 0;
    if (!mu__pending() && mode && !columns && strcmp(mode, "rows") != 0)
        mu__error(MU_INVALID_ARGUMENT, "mu_orthogonal_regularizer: mode is '%.40s'; it must be \"rows\" or \"columns\"",
                  mode);
    return regularizer((mu_regularizer){.orthogonal = factor, .columns = columns}, "mu_orthogonal_regularizer");
}

// The mean absolute cosine of the angles between different rows (or columns) of a matrix, times the factor.
static mu_tensor *orthogonal_penalty(const mu_regularizer *by, mu_tensor *weight)
{
    char seen[MU_SHAPE_TEXT];
    if (mu_tensor_rank(weight) != 2) {
        mu__error(MU_INVALID_ARGUMENT, "mu_orthogonal_regularizer: the weight has shape %s; only matrices have rows "
                  "and columns", mu__shape_text(&weight->shape, seen));
        return NULL;
    }
    const int along = by->columns ? 0 : 1;
    const int64_t n = mu_tensor_dim(weight, 1 - along);
    mu_tensor *norm = mu_sqrt(mu_reduce_sum_axes(mu_square(weight), 1, &along, true));
    mu_tensor *unit = mu_divide(weight, mu_maximum(norm, mu_constant(weight->dtype, 1e-7)));
    mu_tensor *cosines = mu_matmul_transposed(unit, unit, by->columns, !by->columns);
    mu_tensor *others = mu_subtract(mu_ones(weight->dtype, 2, (int64_t[]){n, n}), mu_eye(weight->dtype, n, n));
    mu_tensor *sum = mu_reduce_sum(mu_multiply(mu_abs(cosines), others), MU_ALL_AXES);
    return mu_multiply(sum, mu_constant(weight->dtype, n > 1 ? by->orthogonal / (double)(n * (n - 1)) : 0));
}

mu_tensor *mu__penalty(const mu_regularizer *by, mu_tensor *weight)
{
    mu_tensor *sum = NULL;
    if (!weight)
        return NULL;
    if (by->orthogonal > 0)
        return orthogonal_penalty(by, weight);
    if (by->l2 > 0 || by->l1 == 0)
        sum = mu_multiply(mu_reduce_sum(mu_square(weight), MU_ALL_AXES), mu_constant(weight->dtype, by->l2));
    if (by->l1 > 0) {
        mu_tensor *l1 = mu_multiply(mu_reduce_sum(mu_abs(weight), MU_ALL_AXES), mu_constant(weight->dtype, by->l1));
        sum = sum ? mu_add(sum, l1) : l1;
    }
    return sum;
}

json_t *mu__regularizer_json(const mu_regularizer *by)
{
    if (!by)
        return json_null();
    const char *class_name = by->orthogonal > 0 ? "OrthogonalRegularizer"
                             : by->l1 > 0 && by->l2 > 0 ? "L1L2" : by->l1 > 0 ? "L1" : "L2";
    json_t *config = json_object();
    if (by->orthogonal > 0) {
        json_object_set_new(config, "factor", json_real(by->orthogonal));
        json_object_set_new(config, "mode", json_string(by->columns ? "columns" : "rows"));
    }
    if (by->l1 > 0)
        json_object_set_new(config, "l1", json_real(by->l1));
    if (by->l2 > 0 || (by->l1 == 0 && by->orthogonal == 0))
        json_object_set_new(config, "l2", json_real(by->l2));
    return json_pack("{s:s, s:s, s:o, s:n}", "module", "keras.regularizers", "class_name", class_name, "config", config,
                     "registered_name");
}

mu_regularizer *mu__regularizer_from(const json_t *value)
{
    const json_t *config = json_object_get(value, "config");
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    const char *known[] = {"L1", "L2", "L1L2"};
    for (size_t i = 0; config && class_name && i < MU_COUNT(known); i++)
        if (strcmp(known[i], class_name) == 0)
            return regularizer((mu_regularizer){.l1 = json_number_value(json_object_get(config, "l1")),
                                                .l2 = json_number_value(json_object_get(config, "l2"))},
                               "keras.regularizers");
    if (config && class_name && strcmp(class_name, "OrthogonalRegularizer") == 0)
        return mu_orthogonal_regularizer(json_number_value(json_object_get(config, "factor")),
                                         json_string_value(json_object_get(config, "mode")));
    mu__error(MU_UNIMPLEMENTED, "the configuration has the regularizer '%.60s'; known are L1, L2, L1L2 and "
              "OrthogonalRegularizer", class_name ? class_name : "?");
    return NULL;
}

static mu_tensor *add_penalties(const mu_layer *layer, mu_tensor *sum)
{
    for (size_t i = 0; i < layer->weights.n; i++) {
        const mu_weight *weight = &layer->weights.items[i];
        if (!weight->regularizer)
            continue;
        mu_tensor *penalty = mu__penalty(weight->regularizer, mu_variable_read(weight->variable));
        sum = sum ? mu_add(sum, penalty) : penalty;
    }
    for (size_t i = 0; i < layer->sublayers.n; i++)
        sum = add_penalties(layer->sublayers.items[i], sum);
    return sum;
}

mu_tensor *mu__regularization(const mu_model *model)
{
    return add_penalties(model, NULL);
}
