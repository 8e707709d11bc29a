// Metrics with separate sums for each column of the predictions: F-scores of classes, R² of outputs.
//
// The number of columns is that of the first batch; the states are made with it.

#include "model/core/layer.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"

#include <math.h>
#include <muster/ops.h>

#define EPSILON 1e-7 // Keras's

// Notes the number of columns of the first batch; later batches must have as many.
static mu_status need_columns(mu_metric *metric, const mu_tensor *y_true, const mu_tensor *y_pred)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const int64_t columns = mu_tensor_rank(y_pred) == 2 ? mu_tensor_dim(y_pred, 1) : MU_UNKNOWN;
    if (mu_tensor_rank(y_true) != 2 || columns == MU_UNKNOWN || mu_tensor_dim(y_true, 1) != columns ||
        (metric->columns > 0 && metric->columns != columns))
        return mu__error(MU_INVALID_ARGUMENT,
                         "metric '%s': the labels have shape %s, the predictions %s; expected [batch, outputs] for "
                         "both, with the same outputs in every batch; mu_one_hot makes such labels of class numbers",
                         metric->name, mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other));
    metric->columns = columns;
    return MU_OK;
}

static mu_status add_columns(mu_metric *metric, int state, mu_tensor *values, mu_tensor *each)
{
    mu_tensor *sum = mu_reduce_sum(each ? mu_multiply(values, each) : values, 0);
    return sum ? mu_metric_add(metric, state, sum) : mu_error_code();
}

static int column_states(const mu_metric *metric, const char *const *names, int n, mu_metric_state *states)
{
    for (int i = 0; i < n; i++)
        states[i] = (mu_metric_state){.name = names[i], .shape = MU_SHAPE(metric->columns)};
    return n;
}

// ---- F-scores -----------------------------------------------------------------------------------

static const char *const averages[] = {"micro", "macro", "weighted", NULL};

// mu_f1_score_args and mu_fbeta_score_args begin with the same members.
#define F_FIELDS(type)                                    \
    MU_FIELD(type, average, CHOICE, .choices = averages), \
        MU_FIELD(type, threshold, DOUBLE, .limit = MU_FRACTION, .none = true), MU_FIELD(type, name, NAME)
static const mu_field f1_fields[] = {F_FIELDS(mu_f1_score_args), {0}};
static const mu_field fbeta_fields[] = {
    F_FIELDS(mu_fbeta_score_args),
    MU_FIELD(mu_fbeta_score_args, beta, DOUBLE, .limit = MU_POSITIVE, .number = 1),
    {0},
};

static int f_states(const mu_metric *metric, mu_metric_state *states)
{
    static const char *const names[] = {"true_positives", "false_positives", "false_negatives", "intermediate_weights"};
    return column_states(metric, names, MU_COUNT(names), states);
}

// Above the threshold; without one, the largest of its row unless that is 0.
static mu_tensor *positive(mu_tensor *x, double threshold)
{
    const int last = mu_tensor_rank(x) - 1;
    if (threshold > 0)
        return mu_greater(x, mu_constant(mu_tensor_dtype(x), threshold));
    mu_tensor *largest = mu_greater_equal(x, mu_reduce_max(x, last, .keep_dims = true));
    return mu_logical_and(largest, mu_greater(mu_abs(x), mu_constant(mu_tensor_dtype(x), 1e-9)));
}

static mu_status f_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const double threshold = ((const mu_f1_score_args *)metric->args)->threshold;
    MU_TRY(need_columns(metric, y_true, y_pred));
    mu_tensor *labels = mu_cast(y_true, mu__floatx()), *one = mu_constant(mu__floatx(), 1);
    mu_tensor *predicted = mu_cast(positive(mu_cast(y_pred, mu__floatx()), threshold), mu__floatx());
    mu_tensor *each = weights && labels ? mu__weights_like(weights, labels) : NULL;
    if (!labels || !predicted)
        return mu_error_code();
    MU_TRY(add_columns(metric, 0, mu_multiply(predicted, labels), each));
    MU_TRY(add_columns(metric, 1, mu_multiply(predicted, mu_subtract(one, labels)), each));
    MU_TRY(add_columns(metric, 2, mu_multiply(mu_subtract(one, predicted), labels), each));
    return add_columns(metric, 3, labels, each);
}

static double f_score(double tp, double fp, double fn, double beta)
{
    const double precision = tp / (tp + fp + EPSILON), recall = tp / (tp + fn + EPSILON);
    return (1 + beta * beta) * (precision * recall / (beta * beta * precision + recall + EPSILON));
}

static double total(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static int f_scores(const mu_metric *metric, const double *sums, double beta, double *out)
{
    const char *average = ((const mu_f1_score_args *)metric->args)->average;
    const int n = (int)metric->columns;
    const double *tp = sums, *fp = sums + n, *fn = sums + 2 * n, *weights = sums + 3 * n;
    if (average && strcmp(average, "micro") == 0) {
        out[0] = f_score(total(tp, n), total(fp, n), total(fn, n), beta);
        return 1;
    }
    const bool weighted = average && strcmp(average, "weighted") == 0;
    for (int i = 0; i < n; i++)
        out[i] = f_score(tp[i], fp[i], fn[i], beta) * (weighted ? weights[i] / (total(weights, n) + EPSILON) : 1);
    if (!average)
        return n;
    out[0] = total(out, n) / (weighted ? 1 : n);
    return 1;
}

static int f1_results(const mu_metric *metric, const double *sums, double *out)
{
    return f_scores(metric, sums, 1, out);
}

static int fbeta_results(const mu_metric *metric, const double *sums, double *out)
{
    return f_scores(metric, sums, ((const mu_fbeta_score_args *)metric->args)->beta, out);
}

// ---- R² -----------------------------------------------------------------------------------------

static const char *const aggregations[] = {"uniform_average", "variance_weighted_average", "none", NULL};
static const mu_field r2_fields[] = {
    MU_FIELD(mu_r2_score_args, class_aggregation, CHOICE, .text = "uniform_average", .choices = aggregations,
             .null_choice = "none"),
    MU_FIELD(mu_r2_score_args, num_regressors, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_r2_score_args, name, NAME),
    {0},
};

static int r2_states(const mu_metric *metric, mu_metric_state *states)
{
    static const char *const names[] = {"squared_sum", "sum", "residual", "count"};
    const int n = column_states(metric, names, MU_COUNT(names), states);
    states[n] = (mu_metric_state){.name = "num_samples"};
    return n + 1;
}

// x with the last axis of size 1 that other tensors have: one output is [batch] or [batch, 1].
static mu_tensor *with_column(mu_tensor *x, const mu_tensor *other)
{
    return mu_tensor_rank(x) == 1 && mu_tensor_rank(other) == 2 && mu_tensor_dim(other, 1) == 1 ? mu_expand_dims(x, -1)
                                                                                                : x;
}

static mu_status r2_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    mu_tensor *given = y_true;
    y_true = with_column(y_true, y_pred);
    y_pred = y_true ? with_column(y_pred, given) : NULL;
    MU_TRY(y_pred ? MU_OK : mu_error_code());
    MU_TRY(need_columns(metric, y_true, y_pred));
    mu_tensor *labels = mu_cast(y_true, mu__floatx()), *guessed = mu_cast(y_pred, mu__floatx());
    mu_tensor *each = weights && labels ? mu__weights_like(weights, labels) : NULL;
    if (!labels || !guessed)
        return mu_error_code();
    MU_TRY(add_columns(metric, 0, mu_square(labels), each));
    MU_TRY(add_columns(metric, 1, labels, each));
    MU_TRY(add_columns(metric, 2, mu_squared_difference(labels, guessed), each));
    MU_TRY(add_columns(metric, 3, mu_ones_like(labels), each));
    return mu_metric_add(metric, 4, mu_dim_size(labels, MU_ALL_AXES));
}

// The score adjusted for the number of regressors, if there are enough samples.
static double adjusted(const mu_metric *metric, double score, double samples)
{
    const int p = ((const mu_r2_score_args *)metric->args)->num_regressors;
    return p > 0 && p < samples - 1 ? 1 - (1 - score) * (samples - 1) / (samples - p - 1) : score;
}

static int r2_results(const mu_metric *metric, const double *sums, double *out)
{
    const char *aggregation = ((const mu_r2_score_args *)metric->args)->class_aggregation;
    const int n = (int)metric->columns;
    const double samples = sums[4 * n];
    const bool by_variance = strcmp(aggregation, "variance_weighted_average") == 0;
    double score = 0, weights = 0;
    for (int i = 0; i < n; i++) {
        const double mean = sums[n + i] / sums[3 * n + i], spread = sums[i] - sums[n + i] * mean;
        const double raw = 1 - sums[2 * n + i] / spread, weight = by_variance ? spread : 1;
        out[i] = isinf(raw) ? 0 : raw;
        score += weight * out[i];
        weights += weight;
    }
    if (strcmp(aggregation, "none") != 0) {
        out[0] = adjusted(metric, score / weights, samples);
        return 1;
    }
    for (int i = 0; i < n; i++)
        out[i] = adjusted(metric, out[i], samples);
    return n;
}

// ---- Classes ------------------------------------------------------------------------------------

MU_METRIC(f1_score, "F1Score", mu_f1_score_args, f1_fields, NULL, .states = f_states, .update = f_update,
          .results = f1_results, .maximized = true, .by_column = true)
MU_METRIC(fbeta_score, "FBetaScore", mu_fbeta_score_args, fbeta_fields, NULL, .states = f_states, .update = f_update,
          .results = fbeta_results, .maximized = true, .by_column = true)
MU_METRIC(r2_score, "R2Score", mu_r2_score_args, r2_fields, NULL, .states = r2_states, .update = r2_update,
          .results = r2_results, .maximized = true, .by_column = true)

const mu_metric_ops *const mu__column_metrics[] = {&f1_score_ops, &fbeta_score_ops, &r2_score_ops, NULL};
