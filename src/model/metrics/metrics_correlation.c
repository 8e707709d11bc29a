// Metrics that say how alike labels and predictions are along an axis; 1 is the best.
//
// Each is a mean over samples, so several replicas add up exactly.

#include "model/core/layer.h"
#include "model/metrics/metric.h"

#include <muster/ops.h>

#define EPSILON 1e-7 // Keras's

static const mu_field axis_fields[] = {
    MU_FIELD(mu_axis_args, axis, INT, .number = -1),
    MU_FIELD(mu_axis_args, name, NAME),
    {0},
};

static mu_tensor *mean_along(mu_tensor *x, int axis) { return mu_reduce_mean(x, axis, .keep_dims = true); }

static mu_tensor *epsilon_of(const mu_tensor *x) { return x ? mu_constant(mu_tensor_dtype(x), EPSILON) : NULL; }

static mu_tensor *unit_length(mu_tensor *x, int axis)
{
    return mu_divide(x, mu_maximum(mu_sqrt(mu_reduce_sum(mu_square(x), axis, .keep_dims = true)), epsilon_of(x)));
}

static mu_tensor *cosine(mu_tensor *y_true, mu_tensor *y_pred, int axis)
{
    return mu_reduce_sum(mu_multiply(unit_length(y_true, axis), unit_length(y_pred, axis)), axis);
}

// With mean 0 and deviation 1.
static mu_tensor *standardized(mu_tensor *x, int axis)
{
    return mu_divide(mu_subtract(x, mean_along(x, axis)), mu_reduce_std(x, axis, .keep_dims = true));
}

static mu_tensor *pearson(mu_tensor *y_true, mu_tensor *y_pred, int axis)
{
    return mu_reduce_mean(mu_multiply(standardized(y_true, axis), standardized(y_pred, axis)), axis);
}

// Lin, "A concordance correlation coefficient to evaluate reproducibility", 1989.
static mu_tensor *concordance(mu_tensor *y_true, mu_tensor *y_pred, int axis)
{
    mu_tensor *mean = mean_along(y_pred, axis);
    mu_tensor *covariance = mu_multiply(mu_subtract(y_true, mean), mu_subtract(y_pred, mean));
    mu_tensor *spread = mu_add(mu_reduce_variance(y_true, axis, .keep_dims = true),
                               mu_reduce_variance(y_pred, axis, .keep_dims = true));
    mu_tensor *norm = mu_add(spread, mu_squared_difference(mean_along(y_true, axis), mean));
    return mu_reduce_mean(mu_divide(mu_add(covariance, covariance), mu_add(norm, epsilon_of(norm))), axis);
}

typedef mu_tensor *likeness(mu_tensor *y_true, mu_tensor *y_pred, int axis);

static mu_status update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, likeness *alike)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const int rank = mu_tensor_rank(y_pred), axis = ((const mu_axis_args *)metric->args)->axis;
    const int at = axis < 0 ? axis + rank : axis;
    if (!mu__shape_compatible(&y_true->shape, &y_pred->shape) || at < 0 || at >= rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "metric '%s': the labels have shape %s, the predictions %s, the axis is %d; expected one "
                         "shape that has this axis",
                         metric->name, mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other),
                         axis);
    mu_tensor *labels = mu_cast(y_true, mu__floatx()), *predictions = mu_cast(y_pred, mu__floatx());
    mu_tensor *values = labels && predictions ? alike(labels, predictions, at) : NULL;
    return values ? mu__mean_update(metric, values, weights) : mu_error_code();
}

static mu_status cosine_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return update(metric, y_true, y_pred, weights, cosine);
}

static mu_status pearson_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return update(metric, y_true, y_pred, weights, pearson);
}

static mu_status concordance_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return update(metric, y_true, y_pred, weights, concordance);
}

MU_METRIC(cosine_similarity, "CosineSimilarity", mu_axis_args, axis_fields, NULL, .states = mu__mean_states,
          .update = cosine_update, .result = mu__mean_result, .maximized = true)
MU_METRIC(pearson_correlation, "PearsonCorrelation", mu_axis_args, axis_fields, NULL, .states = mu__mean_states,
          .update = pearson_update, .result = mu__mean_result, .maximized = true)
MU_METRIC(concordance_correlation, "ConcordanceCorrelation", mu_axis_args, axis_fields, NULL, .states = mu__mean_states,
          .update = concordance_update, .result = mu__mean_result, .maximized = true)

const mu_metric_ops *const mu__correlation_metrics[] = {
    &cosine_similarity_ops,
    &pearson_correlation_ops,
    &concordance_correlation_ops,
    NULL,
};
