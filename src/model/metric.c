// Metrics: a total and a count per replica, summed over replicas when read.
//
// Both are ON_READ variables with aggregation SUM, so every sample counts once for any division of batches.
#include "model/model.h"

#include <math.h>
#include <muster/ops.h>

#define LONGEST_NAME 48  // "val_" and the name fit wherever values are logged

static void metric_destroy(void *object)
{
    mu_metric *metric = object;
    mu_release(metric->total);
    mu_release(metric->count);
    mu__free(metric->name);
}

mu_type mu__metric_type = {.name = "metric", .destroy = metric_destroy};

static mu_metric *new_metric(const char *name, mu_tensor *(*values)(mu_tensor *, mu_tensor *))
{
    if (mu__pending())
        return NULL;
    if (strlen(name) > LONGEST_NAME) {
        mu__error(MU_INVALID_ARGUMENT, "the name of a metric has %zu characters; at most %d are supported: '%s'",
                  strlen(name), LONGEST_NAME, name);
        return NULL;
    }
    mu_metric *metric = mu__new(&mu__metric_type, sizeof *metric);
    if (!metric)
        return NULL;
    metric->values = values;
    metric->name = mu__strdup(name);
    if (!metric->name) {
        mu_release(metric);
        return NULL;
    }
    return mu__give(metric);
}

// ---- Accuracy -----------------------------------------------------------------------------------

#define THRESHOLD .5  // of Keras's BinaryAccuracy

// How "accuracy" compares labels and predictions: chosen by their shapes, as in Keras.
typedef enum comparison { BINARY, SPARSE, CATEGORICAL } comparison;

static comparison comparison_of(const mu_shape *labels, const mu_shape *predictions)
{
    if (predictions->dims[predictions->rank - 1] == 1)
        return BINARY;
    return labels->rank < predictions->rank || labels->dims[labels->rank - 1] == 1 ? SPARSE : CATEGORICAL;
}

// Rejects labels that would broadcast against the predictions.
static mu_status check_accuracy(const mu_shape *labels, const mu_shape *predictions)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    mu_shape wanted = *predictions;
    if (predictions->rank < 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_accuracy: the predictions have shape %s; expected [batch, classes], or [batch, 1] for two "
                         "classes. Reshape the model's output",
                         mu__shape_text(predictions, seen));
    const comparison how = comparison_of(labels, predictions);
    if (how != CATEGORICAL)
        wanted.dims[wanted.rank - 1] = 1;
    if (labels->rank < wanted.rank)
        wanted.rank--;
    if (mu__shape_compatible(labels, &wanted))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_accuracy: the labels have shape %s, the predictions %s; expected %s. Check the last axis of "
                     "the "
                     "labels and the number of units of the last layer",
                     mu__shape_text(labels, seen), mu__shape_text(predictions, other),
                     how == BINARY ? "one label of 0 or 1 for each prediction"
                                   : "one class number for each row of predictions, or a column of labels for each "
                                     "column of predictions");
}

// 1 where a prediction over the threshold has label 1, or another has label 0.
static mu_tensor *right_decisions(mu_tensor *y_true, mu_tensor *y_pred)
{
    if (mu_tensor_rank(y_true) < mu_tensor_rank(y_pred))
        y_true = mu_expand_dims(y_true, -1);
    mu_tensor *over = mu_greater(y_pred, mu_constant(mu_tensor_dtype(y_pred), THRESHOLD));
    return mu_equal(mu_cast(over, mu_tensor_dtype(y_true)), y_true);
}

// 1 where the index of the largest output equals the label. A label that is not an integer is never correct.
static mu_tensor *right_classes(mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_dtype dtype = mu__dtype_is_float(mu_tensor_dtype(y_true)) ? MU_F64 : MU_I64;
    if (mu_tensor_rank(y_true) == mu_tensor_rank(y_pred))
        y_true = mu_squeeze(y_true, -1);
    return mu_equal(mu_cast(y_true, dtype), mu_cast(mu_argmax(y_pred, -1), dtype));
}

static mu_tensor *right_columns(mu_tensor *y_true, mu_tensor *y_pred)
{
    return mu_equal(mu_argmax(mu_cast(y_true, mu__floatx()), -1), mu_argmax(y_pred, -1));
}

static mu_tensor *right_answers(mu_tensor *y_true, mu_tensor *y_pred)
{
    if (check_accuracy(&y_true->shape, &y_pred->shape) != MU_OK)
        return NULL;
    mu_tensor *(*const compare[])(mu_tensor *, mu_tensor *) = {
        [BINARY] = right_decisions, [SPARSE] = right_classes, [CATEGORICAL] = right_columns};
    return mu_cast(compare[comparison_of(&y_true->shape, &y_pred->shape)](y_true, y_pred), mu__floatx());
}

mu_metric *mu_accuracy(void)
{
    return new_metric("accuracy", right_answers);
}

mu_metric *mu_mean_metric(const char *name)
{
    return new_metric(name ? name : "mean", NULL);
}

const char *mu_metric_name(const mu_metric *metric)
{
    return metric ? metric->name : NULL;
}

// ---- State --------------------------------------------------------------------------------------

static mu_variable *state(const char *metric, const char *name)
{
    char *full = mu__sprintf("%s/%s", metric, name);
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *zero = full ? mu_constant(mu__floatx(), 0) : NULL;
    mu__trace_resume(suspended);
    mu_variable *variable = NULL;
    if (zero)
        variable = mu_variable_new(zero, full, .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                   .aggregation = MU_AGGREGATION_SUM, .not_trainable = true);
    mu__free(full);
    return mu_retain(variable);
}

mu_status mu__metric_build(mu_metric *metric)
{
    if (!metric->total)
        metric->total = state(metric->name, "total");
    if (!metric->count)
        metric->count = state(metric->name, "count");
    return metric->total && metric->count ? MU_OK : mu_error_code();
}

// A value added outside of replicas counts once: on the first copy.
static mu_status add_to(mu_variable *variable, mu_tensor *value)
{
    mu_context *context = mu__context();
    if (context->replica || context->trace || !variable->rules)
        return mu_variable_assign_add(variable, value);
    const int before = context->component;
    context->component = 0;
    const mu_status status = mu__variable_update(variable, MU_UPDATE_ADD, value);
    context->component = before;
    return status;
}

mu_status mu__metric_add(mu_metric *metric, mu_tensor *total, mu_tensor *count)
{
    MU_TRY(mu__metric_build(metric));
    MU_TRY(add_to(metric->total, total));
    return add_to(metric->count, count);
}

mu_status mu_metric_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred)
{
    if (mu__pending())
        return mu_error_code();
    if (!metric || !y_true || (metric->values && !y_pred))
        return mu__error(MU_INVALID_ARGUMENT, "mu_metric_update: %s is NULL",
                         !metric   ? "metric"
                         : !y_true ? "y_true"
                                   : "y_pred");
    mu_tensor *values = metric->values ? metric->values(y_true, y_pred) : mu_cast(y_true, mu__floatx());
    mu_tensor *total = values ? mu_reduce_sum(values, MU_ALL_AXES) : NULL;
    mu_tensor *count = values ? mu_cast(mu_dim_size(values, MU_ALL_AXES), mu__floatx()) : NULL;
    return count ? mu__metric_add(metric, total, count) : mu_error_code();
}

double mu_metric_result(mu_metric *metric)
{
    if (mu__pending() || mu__need(metric, "mu_metric_result: the metric") != MU_OK)
        return NAN;
    if (!metric->total)
        return 0;
    mu_pool *pool = mu_pool_open();
    double total = mu_scalar(mu_variable_read(metric->total)), count = mu_scalar(mu_variable_read(metric->count));
    mu_pool_close(pool);
    return count > 0 ? total / count : total;
}

mu_status mu_metric_reset(mu_metric *metric)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(metric, "mu_metric_reset: the metric"));
    if (!metric->total)
        return MU_OK;
    MU_TRY(mu_variable_assign(metric->total, mu_constant(mu_variable_dtype(metric->total), 0)));
    return mu_variable_assign(metric->count, mu_constant(mu_variable_dtype(metric->count), 0));
}
