// Metrics that are means over samples: of values, losses and accuracies; sums; and the names of all metrics.
//
// Formulas, thresholds and names are Keras 3's. A class says which states it has, how a batch adds to them, and what
// the sums mean.

#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/training/arguments.h"

#include <math.h>
#include <muster/ops.h>
#include <strings.h>

static const mu_field name_fields[] = {MU_FIELD(mu_metric_name_args, name, NAME), {0}};

// ---- Mean of values -----------------------------------------------------------------------------

static mu_status mean_update(mu_metric *metric, mu_tensor *values, mu_tensor *none, mu_tensor *weights)
{
    (void)none;
    return mu__mean_update(metric, mu_cast(values, mu__floatx()), weights);
}

static const mu_metric_ops mean_ops = {
    .class = {"mean", "Mean", "mu_mean_metric", MU_OPTIONS(mu_metric_name_args), name_fields, NULL},
    .states = mu__mean_states,
    .update = mean_update,
    .result = mu__mean_result,
};

mu_metric *mu_mean_metric(const char *name)
{
    return mu__metric_make(&mean_ops, &(mu_metric_name_args){.size = sizeof(mu_metric_name_args), .name = name});
}

static int sum_states(const mu_metric *metric, mu_metric_state *states)
{
    (void)metric;
    states[0] = (mu_metric_state){.name = "total"};
    return 1;
}

static mu_status sum_update(mu_metric *metric, mu_tensor *values, mu_tensor *none, mu_tensor *weights)
{
    (void)none;
    mu_tensor *numbers = mu_cast(values, mu__floatx());
    mu_tensor *each = weights && numbers ? mu__weights_like(weights, numbers) : NULL;
    mu_tensor *total = mu_reduce_sum(each ? mu_multiply(numbers, each) : numbers, MU_ALL_AXES);
    return total ? mu_metric_add(metric, 0, total) : mu_error_code();
}

static double sum_result(const mu_metric *metric, const double *sums)
{
    (void)metric;
    return sums[0];
}

static const mu_metric_ops sum_ops = {
    .class = {"sum", "Sum", "mu_sum_metric", MU_OPTIONS(mu_metric_name_args), name_fields, NULL},
    .states = sum_states,
    .update = sum_update,
    .result = sum_result,
};

mu_metric *mu_sum_metric(const char *name)
{
    return mu__metric_make(&sum_ops, &(mu_metric_name_args){.size = sizeof(mu_metric_name_args), .name = name});
}

// The mean of a loss over samples: Keras's mean_squared_error, hinge, kl_divergence … as metrics.
static mu_status loss_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_loss *loss = metric->loss;
    y_true = mu__labels_of_steps(y_true, y_pred, weights);
    mu_tensor *values = y_true ? mu__loss_call(loss, y_true, y_pred) : NULL;
    mu_tensor *valid = values && loss->ops->valid ? loss->ops->valid(loss, y_true, y_pred, values) : NULL;
    return values ? mu__mean_update(metric, values, valid ? mu__join_weights(weights, valid, values) : weights)
                  : mu_error_code();
}

static const mu_metric_ops loss_ops = {
    .class = {"loss", "MeanMetricWrapper", "mu_loss_metric", MU_OPTIONS(mu_metric_name_args), name_fields, NULL},
    .compares = true,
    .states = mu__mean_states,
    .update = loss_update,
    .result = mu__mean_result,
};

// Each output has a square of its own, which weights may be of.
static mu_status root_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const bool column = mu_tensor_rank(y_true) < mu_tensor_rank(y_pred) || mu_tensor_dim(y_true, -1) == 1;
    if (column || !weights || mu_tensor_rank(weights) != mu_tensor_rank(y_pred))
        return loss_update(metric, y_true, y_pred, weights);
    y_true = mu_expand_dims(y_true, -1);
    return y_true ? loss_update(metric, y_true, mu_expand_dims(y_pred, -1), weights) : mu_error_code();
}

static double root_result(const mu_metric *metric, const double *sums) { return sqrt(mu__mean_result(metric, sums)); }

static const mu_metric_ops root_ops = {
    .class = {"root_mean_squared_error", "RootMeanSquaredError", "mu_root_mean_squared_error_metric",
              MU_OPTIONS(mu_metric_name_args), name_fields, NULL},
    .compares = true,
    .states = mu__mean_states,
    .update = root_update,
    .result = root_result,
};

static mu_metric *metric_of_loss(const mu_metric_ops *ops, mu_loss *loss, const char *name)
{
    if (mu__pending() || mu__need(loss, "mu_loss_metric: the loss") != MU_OK)
        return NULL;
    mu_metric *metric = mu__metric_make(ops, &(mu_metric_name_args){.size = sizeof(mu_metric_name_args), .name = name});
    if (metric)
        metric->loss = mu_retain(loss);
    return metric;
}

mu_metric *mu_loss_metric(mu_loss *loss) { return metric_of_loss(&loss_ops, loss, mu_loss_name(loss)); }

mu_metric *mu_root_mean_squared_error_metric(void)
{
    return metric_of_loss(&root_ops, mu_mean_squared_error_loss(), NULL);
}

// ---- Accuracy -----------------------------------------------------------------------------------

// How "accuracy" compares labels and predictions: chosen by their shapes, as in Keras.
typedef enum comparison { BINARY, SPARSE, CATEGORICAL } comparison;

static comparison comparison_of(const mu_shape *labels, const mu_shape *predictions)
{
    if (predictions->dims[predictions->rank - 1] == 1)
        return BINARY;
    return labels->rank < predictions->rank || labels->dims[labels->rank - 1] == 1 ? SPARSE : CATEGORICAL;
}

// Rejects labels that would broadcast against the predictions.
static mu_status check_accuracy(const mu_shape *labels, const mu_shape *predictions, comparison how, const char *what)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    mu_shape wanted = *predictions;
    if (predictions->rank < 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_%s: the predictions have shape %s; expected [batch, classes], or [batch, 1] for two "
                         "classes. Reshape the model's output",
                         what, mu__shape_text(predictions, seen));
    if (how == SPARSE)
        wanted.dims[wanted.rank - 1] = 1;
    if (labels->rank < wanted.rank && (how == SPARSE || wanted.dims[wanted.rank - 1] == 1))
        wanted.rank--;
    if (mu__shape_compatible(labels, &wanted))
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "mu_%s: the labels have shape %s, the predictions %s; expected %s. Check the last axis of the labels and the "
        "number of units of the last layer",
        what, mu__shape_text(labels, seen), mu__shape_text(predictions, other),
        how == BINARY
            ? "one label of 0 or 1 for each prediction"
            : "one class number for each row of predictions, or a column of labels for each column of predictions");
}

// 1 where a prediction over the threshold has label 1, or another has label 0.
static mu_tensor *right_decisions(mu_tensor *y_true, mu_tensor *y_pred, double threshold)
{
    if (mu_tensor_rank(y_true) < mu_tensor_rank(y_pred))
        y_true = mu_expand_dims(y_true, -1);
    mu_tensor *over = mu_greater(y_pred, mu_constant(mu_tensor_dtype(y_pred), threshold));
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

// Whether weights are of each output, not of samples.
static bool weigh_outputs(const mu_tensor *weights, const mu_tensor *values)
{
    return weights && mu_tensor_rank(weights) == mu_tensor_rank(values) && mu_tensor_dim(weights, -1) != 1;
}

static mu_status accuracy(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, comparison how)
{
    const double threshold = ((const mu_threshold_args *)metric->args)->threshold;
    if (check_accuracy(&y_true->shape, &y_pred->shape, how, metric->ops->class.name) != MU_OK)
        return mu_error_code();
    mu_tensor *right = how == BINARY   ? right_decisions(y_true, y_pred, threshold)
                       : how == SPARSE ? right_classes(y_true, y_pred)
                                       : right_columns(y_true, y_pred);
    mu_tensor *values = mu_cast(right, mu__floatx());
    // Each sample of binary outputs counts once, by the share of its outputs that are right.
    if (values && how == BINARY && mu_tensor_dim(values, -1) != 1 && !weigh_outputs(weights, values))
        values = mu_reduce_mean(values, -1);
    return values ? mu__mean_update(metric, values, weights) : mu_error_code();
}

static mu_status accuracy_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_shape *shape = &y_pred->shape;
    return accuracy(metric, y_true, y_pred, weights, shape->rank < 2 ? SPARSE : comparison_of(&y_true->shape, shape));
}

static mu_status binary_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return accuracy(metric, y_true, y_pred, weights, BINARY);
}

static mu_status sparse_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return accuracy(metric, y_true, y_pred, weights, SPARSE);
}

static mu_status categorical_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return accuracy(metric, y_true, y_pred, weights, CATEGORICAL);
}

// Keras's classes that compare classes have no threshold, so their configuration has none.
#define THRESHOLD_FIELDS(of_classes)                                                                                \
    {                                                                                                               \
        MU_FIELD(mu_threshold_args, threshold, DOUBLE, .limit = MU_FRACTION, .number = .5, .internal = of_classes), \
            MU_FIELD(mu_threshold_args, name, NAME), {0},                                                           \
    }
static const mu_field threshold_fields[] = THRESHOLD_FIELDS(false), class_fields[] = THRESHOLD_FIELDS(true);

// The numbers of the classes in one row, which broadcasts; where how many there are is unknown, in the shape of y_pred.
static mu_tensor *class_numbers(mu_tensor *y_pred)
{
    const int last = mu_tensor_rank(y_pred) - 1;
    const int64_t n = mu_tensor_dim(y_pred, last);
    return n == MU_UNKNOWN ? mu_cumsum(mu_cast(mu_ones_like(y_pred), MU_I64), last, true, false)
                           : mu_range(MU_I64, 0, (double)n, 1);
}

// Whether the label is among the k largest outputs: fewer than k are larger than that of the label. As in TensorFlow,
// outputs that equal the last one of these count too, and a row with one that is not finite has no largest.
static mu_status top_k(mu_metric *metric, mu_tensor *labels, mu_tensor *y_pred, mu_tensor *weights)
{
    const int last = mu_tensor_rank(y_pred) - 1;
    mu_tensor *k = mu_constant(MU_I32, ((const mu_top_k_args *)metric->args)->k);
    mu_tensor *is_label = mu_equal(class_numbers(y_pred), mu_expand_dims(mu_cast(labels, MU_I64), -1));
    mu_tensor *zero = mu_constant(mu_tensor_dtype(y_pred), 0);
    mu_tensor *of_label = mu_reduce_sum(mu_where(is_label, y_pred, zero), last, .keep_dims = true);
    mu_tensor *larger = mu_reduce_sum(mu_cast(mu_greater(y_pred, of_label), MU_I32), -1);
    mu_tensor *known = mu_logical_and(mu_reduce_any(is_label, -1), mu_reduce_all(mu_is_finite(y_pred), -1));
    mu_tensor *values = mu_cast(mu_logical_and(known, mu_less(larger, k)), mu__floatx());
    return values ? mu__mean_update(metric, values, weights) : mu_error_code();
}

static mu_status top_k_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return top_k(metric, mu_argmax(mu_cast(y_true, mu__floatx()), -1), y_pred, weights);
}

static mu_status sparse_top_k_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    mu_tensor *labels = mu_tensor_rank(y_true) == mu_tensor_rank(y_pred) ? mu_squeeze(y_true, -1) : y_true;
    return labels ? top_k(metric, labels, y_pred, weights) : mu_error_code();
}

static const mu_field top_k_fields[] = {
    MU_FIELD(mu_top_k_args, k, INT, .limit = MU_POSITIVE, .number = 5),
    MU_FIELD(mu_top_k_args, name, NAME),
    {0},
};

// Keras's class Accuracy: how often labels and predictions are equal.
static mu_status equal_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    mu_tensor *labels = mu_cast(y_true, mu_tensor_dtype(y_pred));
    const int more = mu_tensor_rank(y_pred) - mu_tensor_rank(y_true);
    labels = more == 1 ? mu_expand_dims(labels, -1) : more == -1 ? mu_squeeze(labels, -1) : labels;
    if (!labels)
        return mu_error_code();
    if (!mu__shape_compatible(&labels->shape, &y_pred->shape))
        return mu__error(MU_INVALID_ARGUMENT,
                         "metric '%s': the labels have shape %s, the predictions %s; expected one shape. mu_accuracy "
                         "compares classes with probabilities",
                         metric->name, mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other));
    mu_tensor *values = mu_cast(mu_equal(labels, y_pred), mu__floatx());
    return values ? mu__mean_update(metric, values, weights) : mu_error_code();
}

static const mu_metric_ops equal_ops = {
    .class = {"accuracy", "Accuracy", "mu_accuracy_metric", MU_OPTIONS(mu_metric_name_args), name_fields, NULL},
    .compares = true,
    .states = mu__mean_states,
    .update = equal_update,
    .result = mu__mean_result,
    .maximized = true,
};

mu_metric *mu_accuracy_metric(const char *name)
{
    return mu__metric_make(&equal_ops, &(mu_metric_name_args){.size = sizeof(mu_metric_name_args), .name = name});
}

// ---- Classes ------------------------------------------------------------------------------------

#define ACCURACY(word, keras_class, args_type, args_fields, update_function)                                         \
    MU_METRIC(word, keras_class, args_type, args_fields, NULL, .states = mu__mean_states, .update = update_function, \
              .result = mu__mean_result, .maximized = true)

ACCURACY(binary_accuracy, "BinaryAccuracy", mu_threshold_args, threshold_fields, binary_update)
ACCURACY(categorical_accuracy, "CategoricalAccuracy", mu_threshold_args, class_fields, categorical_update)
ACCURACY(sparse_categorical_accuracy, "SparseCategoricalAccuracy", mu_threshold_args, class_fields, sparse_update)
ACCURACY(top_k_categorical_accuracy, "TopKCategoricalAccuracy", mu_top_k_args, top_k_fields, top_k_update)
ACCURACY(sparse_top_k_categorical_accuracy, "SparseTopKCategoricalAccuracy", mu_top_k_args, top_k_fields,
         sparse_top_k_update)

static const mu_metric_ops accuracy_ops = {
    .class = {"accuracy", "acc", "mu_accuracy", MU_OPTIONS(mu_threshold_args), threshold_fields, NULL},
    .compares = true,
    .states = mu__mean_states,
    .update = accuracy_update,
    .result = mu__mean_result,
    .maximized = true,
};

mu_metric *mu_accuracy(void) { return mu__metric_make(&accuracy_ops, NULL); }

const mu_metric_ops *const mu__mean_metrics[] = {
    &accuracy_ops,
    &binary_accuracy_ops,
    &categorical_accuracy_ops,
    &sparse_categorical_accuracy_ops,
    &top_k_categorical_accuracy_ops,
    &sparse_top_k_categorical_accuracy_ops,
    NULL,
};

// ---- Names --------------------------------------------------------------------------------------

static const mu_metric_ops *const *const families[] = {
    mu__mean_metrics, mu__counting_metrics, mu__iou_metrics, mu__column_metrics, mu__correlation_metrics,
};

const mu_metric_ops *mu__metric_find(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(families); i++)
        for (const mu_metric_ops *const *ops = families[i]; *ops; ops++)
            if (strcasecmp(name, (*ops)->class.name) == 0 || strcasecmp(name, (*ops)->class.keras) == 0)
                return *ops;
    return NULL;
}

static mu_metric *unknown_name(const char *name, const char *function)
{
    char known[1024] = "";
    for (size_t i = 0; i < MU_COUNT(families); i++)
        for (const mu_metric_ops *const *ops = families[i]; *ops; ops++) {
            const size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s, ", (*ops)->class.name);
        }
    mu__error(MU_INVALID_ARGUMENT,
              "%s: no metric is named '%.60s'; expected an object or one of %s"
              "root_mean_squared_error, or a loss",
              function, name, known);
    return NULL;
}

mu_metric *mu__metric_named(const char *name, const char *function)
{
    const mu_metric_ops *ops = mu__metric_find(name);
    if (ops)
        return mu__metric_make(ops, NULL);
    if (strcasecmp(name, "root_mean_squared_error") == 0 || strcasecmp(name, "RootMeanSquaredError") == 0 ||
        strcasecmp(name, "rmse") == 0)
        return mu_root_mean_squared_error_metric();
    if (strcasecmp(name, "log_cosh_error") == 0 || strcasecmp(name, "LogCoshError") == 0)
        return mu_loss_metric(mu_log_cosh_loss());
    return mu__loss_find(name) ? mu_loss_metric(mu_loss_named(name)) : unknown_name(name, function);
}

mu_metric *mu__metric_called(const char *name, const char *function)
{
    mu_metric *metric = mu__metric_named(name, function);
    return metric && mu__metric_rename(metric, name) == MU_OK ? metric : NULL;
}

bool mu__metric_known(const char *name)
{
    return mu__metric_find(name) || mu__loss_find(name) || strcasecmp(name, "root_mean_squared_error") == 0 ||
           strcasecmp(name, "RootMeanSquaredError") == 0 || strcasecmp(name, "rmse") == 0 ||
           strcasecmp(name, "log_cosh_error") == 0 || strcasecmp(name, "LogCoshError") == 0;
}

const char *mu__metric_word(const mu_metric *metric)
{
    if (metric->ops == &accuracy_ops)
        return "accuracy";
    if (metric->ops == &root_ops)
        return "RootMeanSquaredError";
    return metric->loss && metric->ops == &loss_ops ? metric->loss->ops->class.name : NULL;
}

mu_metric *mu_metric_named(const char *name)
{
    if (mu__pending() || mu__need(name, "mu_metric_named: the name") != MU_OK)
        return NULL;
    return mu__metric_named(name, "mu_metric_named");
}
