// Intersection over union of classes, from the confusion matrix of labels and predictions.
//
// The matrix is the state: row by label, column by prediction. Pairs with a number outside the classes do not count.

#include "model/core/layer.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"

#include <limits.h>
#include <muster/ops.h>

#define NO_CLASS INT_MIN
#define EPSILON  1e-7 // Keras's

// Keras's classes of means have no target classes, so their configuration has none (all_classes).
#define IOU_FIELDS(all_classes)                                                                     \
    {                                                                                               \
        MU_FIELD(mu_iou_args, num_classes, INT, .limit = MU_POSITIVE),                              \
            MU_FIELD(mu_iou_args, target_class_ids, INTS, .limit = MU_NOT_NEGATIVE,                 \
                     .second = offsetof(mu_iou_args, n_target_class_ids), .internal = all_classes), \
            MU_FIELD(mu_iou_args, ignore_class, INT, .number = NO_CLASS, .none = true),             \
            MU_FIELD(mu_iou_args, dense_y_true, NOT, .keras = "sparse_y_true"),                     \
            MU_FIELD(mu_iou_args, dense_y_pred, NOT, .keras = "sparse_y_pred"),                     \
            MU_FIELD(mu_iou_args, axis, INT, .number = -1), MU_FIELD(mu_iou_args, name, NAME), {0}, \
    }
static const mu_field iou_fields[] = IOU_FIELDS(false), mean_iou_fields[] = IOU_FIELDS(true);
#define ONE_HOT_FIELDS(all_classes)                                                                                 \
    {                                                                                                               \
        MU_FIELD(mu_one_hot_iou_args, num_classes, INT, .limit = MU_POSITIVE),                                      \
            MU_FIELD(mu_one_hot_iou_args, target_class_ids, INTS, .limit = MU_NOT_NEGATIVE,                         \
                     .second = offsetof(mu_one_hot_iou_args, n_target_class_ids), .internal = all_classes),         \
            MU_FIELD(mu_one_hot_iou_args, ignore_class, INT, .number = NO_CLASS, .none = true),                     \
            MU_FIELD(mu_one_hot_iou_args, sparse_y_pred, FLAG),                                                     \
            MU_FIELD(mu_one_hot_iou_args, axis, INT, .number = -1), MU_FIELD(mu_one_hot_iou_args, name, NAME), {0}, \
    }
static const mu_field one_hot_fields[] = ONE_HOT_FIELDS(false), one_hot_mean_fields[] = ONE_HOT_FIELDS(true);
static const mu_field binary_fields[] = {
    MU_FIELD(mu_binary_iou_args, target_class_ids, INTS, .limit = MU_NOT_NEGATIVE,
             .second = offsetof(mu_binary_iou_args, n_target_class_ids)),
    MU_FIELD(mu_binary_iou_args, threshold, DOUBLE, .number = .5),
    MU_FIELD(mu_binary_iou_args, name, NAME),
    {0},
};

static mu_status check_targets(int classes, int n, const int *targets, bool wanted, const char *function)
{
    if (wanted != (n > 0))
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d target_class_ids; %s", function, n,
                         wanted ? "give the classes to average over" : "all classes count here, so leave them out");
    for (int i = 0; i < n; i++)
        if (targets[i] >= classes)
            return mu__error(MU_INVALID_ARGUMENT, "%s: target_class_ids has class %d; there are %d classes", function,
                             targets[i], classes);
    return MU_OK;
}

static mu_status iou_complete(void *arguments)
{
    const mu_iou_args *args = arguments;
    return check_targets(args->num_classes, args->n_target_class_ids, args->target_class_ids, true, "mu_iou_metric");
}

static mu_status mean_iou_complete(void *arguments)
{
    const mu_iou_args *args = arguments;
    return check_targets(args->num_classes, args->n_target_class_ids, args->target_class_ids, false,
                         "mu_mean_iou_metric");
}

static mu_status one_hot_iou_complete(void *arguments)
{
    const mu_one_hot_iou_args *args = arguments;
    return check_targets(args->num_classes, args->n_target_class_ids, args->target_class_ids, true,
                         "mu_one_hot_iou_metric");
}

static mu_status one_hot_mean_iou_complete(void *arguments)
{
    const mu_one_hot_iou_args *args = arguments;
    return check_targets(args->num_classes, args->n_target_class_ids, args->target_class_ids, false,
                         "mu_one_hot_mean_iou_metric");
}

static mu_status binary_iou_complete(void *arguments)
{
    static const int both[] = {0, 1};
    mu_binary_iou_args *args = arguments;
    if (args->n_target_class_ids == 0)
        args->target_class_ids = both;
    args->n_target_class_ids = args->target_class_ids == both ? 2 : args->n_target_class_ids;
    return check_targets(2, args->n_target_class_ids, args->target_class_ids, true, "mu_binary_iou_metric");
}

// ---- The confusion matrix -----------------------------------------------------------------------

static int matrix(int classes, mu_metric_state *states)
{
    states[0] = (mu_metric_state){.name = "total_confusion_matrix", .shape = MU_SHAPE(classes, classes)};
    return 1;
}

// mu_iou_args and mu_one_hot_iou_args begin with the number of classes.
static int iou_states(const mu_metric *metric, mu_metric_state *states)
{
    return matrix(((const mu_iou_args *)metric->args)->num_classes, states);
}

static int binary_iou_states(const mu_metric *metric, mu_metric_state *states)
{
    (void)metric;
    return matrix(2, states);
}

static mu_tensor *flat(mu_tensor *x) { return mu_reshape(mu_cast(x, MU_I64), 1, (int64_t[]){-1}); }

static mu_tensor *within(mu_tensor *numbers, int64_t classes)
{
    return mu_logical_and(mu_greater_equal(numbers, mu_constant(MU_I64, 0)),
                          mu_less(numbers, mu_constant(MU_I64, (double)classes)));
}

// Adds pairs of class numbers, which have one shape.
static mu_status add_pairs(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, int classes,
                           int ignored)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (y_true && y_pred &&
        mu__elements_between(&y_true->shape, 1, MU_MAX(y_true->shape.rank, 1)) !=
            mu__elements_between(&y_pred->shape, 1, MU_MAX(y_pred->shape.rank, 1)))
        return mu__error(MU_INVALID_ARGUMENT,
                         "metric '%s': class numbers of labels have shape %s, of predictions %s; expected one shape. "
                         "Predictions that have a number for each class need .dense_y_pred, such labels .dense_y_true",
                         metric->name, mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other));
    mu_tensor *row = flat(y_true), *column = flat(y_pred);
    mu_tensor *valid = mu_logical_and(within(row, classes), within(column, classes));
    if (ignored != NO_CLASS)
        valid = mu_logical_and(valid, mu_not_equal(row, mu_constant(MU_I64, ignored)));
    mu_tensor *cells = mu_add(mu_multiply(row, mu_constant(MU_I64, classes)), column);
    cells = mu_where(valid, cells, mu_constant(MU_I64, -1)); // which the sum leaves out
    if (!cells)
        return mu_error_code();
    mu_tensor *floats = mu_cast(y_pred, mu__floatx());
    mu_tensor *each = weights ? mu_reshape(mu__weights_like(weights, floats), 1, (int64_t[]){-1})
                              : mu_ones_like(mu_cast(cells, mu__floatx()));
    mu_tensor *sums = mu_unsorted_segment_sum(each, cells, (int64_t)classes * classes);
    return sums ? mu_metric_add(metric, 0, mu_reshape(sums, 2, (int64_t[]){classes, classes})) : mu_error_code();
}

static mu_tensor *class_of(mu_tensor *x, bool dense, int axis)
{
    return dense ? mu_argmax(mu_cast(x, mu__floatx()), axis) : x;
}

static mu_status iou_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_iou_args *args = metric->args;
    return add_pairs(metric, class_of(y_true, args->dense_y_true, args->axis),
                     class_of(y_pred, args->dense_y_pred, args->axis), weights, args->num_classes, args->ignore_class);
}

static mu_status one_hot_iou_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_one_hot_iou_args *args = metric->args;
    return add_pairs(metric, class_of(y_true, true, args->axis), class_of(y_pred, !args->sparse_y_pred, args->axis),
                     weights, args->num_classes, args->ignore_class);
}

static mu_status binary_iou_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const double threshold = ((const mu_binary_iou_args *)metric->args)->threshold;
    mu_tensor *numbers = mu_cast(y_pred, mu__floatx());
    mu_tensor *over = mu_cast(mu_greater_equal(numbers, mu_constant(mu__floatx(), threshold)), MU_I64);
    return over ? add_pairs(metric, y_true, over, weights, 2, NO_CLASS) : mu_error_code();
}

// ---- Results ------------------------------------------------------------------------------------

// The mean over the target classes (none: all) that occur.
static double mean_over(const double *sums, int classes, int n, const int *targets)
{
    double total = 0, valid = 0;
    for (int i = 0; i < (n > 0 ? n : classes); i++) {
        const int c = n > 0 ? targets[i] : i;
        double around = -sums[c * classes + c];
        for (int k = 0; k < classes; k++)
            around += sums[c * classes + k] + sums[k * classes + c];
        total += around > 1e-9 ? sums[c * classes + c] / (around + EPSILON) : 0;
        valid += around > 1e-9;
    }
    return total / (valid + EPSILON);
}

static double iou_result(const mu_metric *metric, const double *sums)
{
    const mu_iou_args *args = metric->args;
    return mean_over(sums, args->num_classes, args->n_target_class_ids, args->target_class_ids);
}

static double one_hot_iou_result(const mu_metric *metric, const double *sums)
{
    const mu_one_hot_iou_args *args = metric->args;
    return mean_over(sums, args->num_classes, args->n_target_class_ids, args->target_class_ids);
}

static double binary_iou_result(const mu_metric *metric, const double *sums)
{
    const mu_binary_iou_args *args = metric->args;
    return mean_over(sums, 2, args->n_target_class_ids, args->target_class_ids);
}

// ---- Classes ------------------------------------------------------------------------------------

MU_METRIC(iou, "IoU", mu_iou_args, iou_fields, iou_complete, .states = iou_states, .update = iou_update,
          .result = iou_result, .maximized = true)
MU_METRIC(mean_iou, "MeanIoU", mu_iou_args, mean_iou_fields, mean_iou_complete, .states = iou_states,
          .update = iou_update, .result = iou_result, .maximized = true)
MU_METRIC(one_hot_iou, "OneHotIoU", mu_one_hot_iou_args, one_hot_fields, one_hot_iou_complete, .states = iou_states,
          .update = one_hot_iou_update, .result = one_hot_iou_result, .maximized = true)
MU_METRIC(one_hot_mean_iou, "OneHotMeanIoU", mu_one_hot_iou_args, one_hot_mean_fields, one_hot_mean_iou_complete,
          .states = iou_states, .update = one_hot_iou_update, .result = one_hot_iou_result, .maximized = true)
MU_METRIC(binary_iou, "BinaryIoU", mu_binary_iou_args, binary_fields, binary_iou_complete, .states = binary_iou_states,
          .update = binary_iou_update, .result = binary_iou_result, .maximized = true)

const mu_metric_ops *const mu__iou_metrics[] = {
    &iou_ops, &mean_iou_ops, &one_hot_iou_ops, &one_hot_mean_iou_ops, &binary_iou_ops, NULL,
};
