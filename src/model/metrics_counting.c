// Metrics that count: true and false positives and negatives, and what follows from them; the confusion of classes.
//
// The counts are the state, one for each threshold, so precision, recall and areas are exact over steps and replicas.
#include "model/model.h"

#include <math.h>
#include <muster/ops.h>
#include <strings.h>

static double quotient(double a, double b)
{
    return b > 0 ? a / b : 0;
}

// ---- Counts at thresholds -----------------------------------------------------------------------

enum { TRUE_POSITIVES, FALSE_POSITIVES, TRUE_NEGATIVES, FALSE_NEGATIVES, COUNTS };
static const char *const count_names[COUNTS] = {"true_positives", "false_positives", "true_negatives",
                                                "false_negatives"};

// A flat column of floats: [elements, 1].
static mu_tensor *column(mu_tensor *x)
{
    return mu_reshape(mu_cast(x, mu__floatx()), 2, (int64_t[]){-1, 1});
}

// Adds to those counts whose place in `states` is 0 or more. A prediction is positive above its threshold.
static mu_status count(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights,
                       mu_tensor *thresholds, const int states[COUNTS])
{
    mu_tensor *predicted = mu_cast(mu_greater(column(y_pred), thresholds), mu__floatx());
    mu_tensor *actual = mu_cast(mu_cast(column(y_true), MU_BOOL), mu__floatx());
    mu_tensor *each = weights ? column(mu__weights_like(weights, y_pred)) : NULL;
    mu_tensor *one = mu_constant(mu__floatx(), 1);
    for (int i = 0; i < COUNTS && !mu__pending(); i++) {
        const bool positive = i == TRUE_POSITIVES || i == FALSE_POSITIVES;
        const bool label = i == TRUE_POSITIVES || i == FALSE_NEGATIVES;
        if (states[i] < 0)
            continue;
        mu_tensor *hits = mu_multiply(positive ? predicted : mu_subtract(one, predicted),
                                      label ? actual : mu_subtract(one, actual));
        mu_tensor *sum = mu_reduce_sum(each ? mu_multiply(hits, each) : hits, 0);
        if (!sum || mu_metric_add(metric, states[i], sum) != MU_OK)
            return mu_error_code();
    }
    return mu_error_code();
}

static mu_status need_binary(const mu_metric *metric, const mu_tensor *y_true, const mu_tensor *y_pred)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const int64_t labels = mu__elements_between(&y_true->shape, 1, MU_MAX(y_true->shape.rank, 1));
    const int64_t predictions = mu__elements_between(&y_pred->shape, 1, MU_MAX(y_pred->shape.rank, 1));
    if (labels == predictions)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "metric '%s': the labels have shape %s, the predictions %s; expected a label "
                     "of 0 or 1 for each prediction", metric->name, mu__shape_text(&y_true->shape, seen),
                     mu__shape_text(&y_pred->shape, other));
}

// ---- One threshold ------------------------------------------------------------------------------

static const mu_field threshold_fields[] = {
    MU_FIELD(mu_threshold_args, threshold, DOUBLE, .limit = MU_FRACTION, .number = .5),
    MU_FIELD(mu_threshold_args, name, NAME),
    {0},
};

static mu_status count_once(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights,
                            const int states[COUNTS])
{
    const double threshold = ((const mu_threshold_args *)metric->args)->threshold;
    MU_TRY(need_binary(metric, y_true, y_pred));
    mu_tensor *at = mu_reshape(mu_constant(mu__floatx(), threshold), 1, (int64_t[]){1});
    return at ? count(metric, y_true, y_pred, weights, at, states) : mu_error_code();
}

static int precision_states(const mu_metric *metric, mu_metric_state *states)
{
    (void)metric;
    states[0] = (mu_metric_state){.name = count_names[TRUE_POSITIVES], .shape = MU_SHAPE(1)};
    states[1] = (mu_metric_state){.name = count_names[FALSE_POSITIVES], .shape = MU_SHAPE(1)};
    return 2;
}

static mu_status precision_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_once(metric, y_true, y_pred, weights, (const int[]){0, 1, -1, -1});
}

static int recall_states(const mu_metric *metric, mu_metric_state *states)
{
    (void)metric;
    states[0] = (mu_metric_state){.name = count_names[TRUE_POSITIVES], .shape = MU_SHAPE(1)};
    states[1] = (mu_metric_state){.name = count_names[FALSE_NEGATIVES], .shape = MU_SHAPE(1)};
    return 2;
}

static mu_status recall_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_once(metric, y_true, y_pred, weights, (const int[]){0, -1, -1, 1});
}

static double share_result(const mu_metric *metric, const double *sums)
{
    (void)metric;
    return quotient(sums[0], sums[0] + sums[1]);
}

static int f1_states(const mu_metric *metric, mu_metric_state *states)
{
    precision_states(metric, states);
    states[2] = (mu_metric_state){.name = count_names[FALSE_NEGATIVES], .shape = MU_SHAPE(1)};
    return 3;
}

static mu_status f1_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_once(metric, y_true, y_pred, weights, (const int[]){0, 1, -1, 2});
}

static double f1_result(const mu_metric *metric, const double *sums)
{
    (void)metric;
    return quotient(2 * sums[0], 2 * sums[0] + sums[1] + sums[2]);
}

// ---- Areas --------------------------------------------------------------------------------------

static const char *const curves[] = {"ROC", "PR", NULL};

static const mu_field auc_fields[] = {
    MU_FIELD(mu_auc_args, num_thresholds, INT, .limit = MU_POSITIVE, .number = 200),
    MU_FIELD(mu_auc_args, curve, WORD, .text = "ROC", .words = curves),
    MU_FIELD(mu_auc_args, from_logits, FLAG),
    MU_FIELD(mu_auc_args, name, NAME),
    {0},
};

static int auc_states(const mu_metric *metric, mu_metric_state *states)
{
    const mu_shape shape = MU_SHAPE(((const mu_auc_args *)metric->args)->num_thresholds);
    for (int i = 0; i < COUNTS; i++)
        states[i] = (mu_metric_state){.name = count_names[i], .shape = shape};
    return COUNTS;
}

// Evenly spaced, with the ends moved outwards so that predictions of 0 and 1 lie between them.
static mu_tensor *auc_thresholds(int n)
{
    const int64_t dims[] = {n};
    double *numbers = mu__calloc((size_t)n, sizeof *numbers);
    mu_tensor *wide = NULL;
    if (!numbers)
        return NULL;
    for (int i = 0; i < n; i++)
        numbers[i] = i == 0 ? -1e-7 : i == n - 1 ? 1 + 1e-7 : (double)i / (n - 1);
    mu_suspended suspended = mu__trace_suspend();
    wide = mu_tensor_new(MU_F64, 1, dims, numbers);
    mu_tensor *typed = wide ? mu_cast(wide, mu__floatx()) : NULL;
    mu__trace_resume(suspended);
    mu__free(numbers);
    return typed;
}

static mu_status auc_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_auc_args *args = metric->args;
    MU_TRY(need_binary(metric, y_true, y_pred));
    mu_tensor *thresholds = auc_thresholds(args->num_thresholds);
    mu_tensor *probabilities = args->from_logits ? mu_sigmoid(y_pred) : y_pred;
    return thresholds && probabilities ? count(metric, y_true, probabilities, weights, thresholds,
                                               (const int[]){0, 1, 2, 3}) : mu_error_code();
}

// The area under recall over the rate of false positives, by trapezoids.
static double roc_area(int n, const double *tp, const double *fp, const double *tn, const double *fn)
{
    double area = 0;
    for (int i = 0; i + 1 < n; i++) {
        const double x = quotient(fp[i], fp[i] + tn[i]), next_x = quotient(fp[i + 1], fp[i + 1] + tn[i + 1]);
        const double y = quotient(tp[i], tp[i] + fn[i]), next_y = quotient(tp[i + 1], tp[i + 1] + fn[i + 1]);
        area += (x - next_x) * (y + next_y) / 2;
    }
    return area;
}

// The area under precision over recall. Between thresholds true positives are interpolated linearly: Davis and
// Goadrich, "The relationship between precision-recall and ROC curves", 2006.
static double pr_area(int n, const double *tp, const double *fp, const double *fn)
{
    double area = 0;
    for (int i = 0; i + 1 < n; i++) {
        const double positives = tp[i] + fp[i], next = tp[i + 1] + fp[i + 1];
        const double step = tp[i] - tp[i + 1], slope = quotient(step, fmax(positives - next, 0));
        const double intercept = tp[i + 1] - slope * next;
        const double ratio = positives > 0 && next > 0 ? positives / next : 1;
        area += quotient(slope * (step + intercept * log(ratio)), fmax(tp[i + 1] + fn[i + 1], 0));
    }
    return area;
}

static double auc_result(const mu_metric *metric, const double *sums)
{
    const mu_auc_args *args = metric->args;
    const int n = args->num_thresholds;
    const double *tp = sums, *fp = sums + n, *tn = sums + 2 * n, *fn = sums + 3 * n;
    return strcmp(args->curve, "PR") == 0 ? pr_area(n, tp, fp, fn) : roc_area(n, tp, fp, tn, fn);
}

static mu_status auc_complete(void *arguments)
{
    const mu_auc_args *args = arguments;
    return args->num_thresholds > 1 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_auc_metric: num_thresholds is %d; it "
                                                        "must be 2 or more", args->num_thresholds);
}

// ---- Confusion of classes -----------------------------------------------------------------------

static const mu_field iou_fields[] = {
    MU_FIELD(mu_mean_iou_args, num_classes, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_mean_iou_args, name, NAME),
    {0},
};

static int iou_states(const mu_metric *metric, mu_metric_state *states)
{
    const int n = ((const mu_mean_iou_args *)metric->args)->num_classes;
    states[0] = (mu_metric_state){.name = "total_confusion_matrix", .shape = MU_SHAPE(n, n)};
    return 1;
}

// Labels and predictions are class numbers; row by label, column by prediction.
static mu_status iou_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const int64_t n = ((const mu_mean_iou_args *)metric->args)->num_classes;
    mu_tensor *flat = mu_reshape(mu_cast(y_true, MU_I64), 1, (int64_t[]){-1});
    mu_tensor *guessed = mu_reshape(mu_cast(y_pred, MU_I64), 1, (int64_t[]){-1});
    mu_tensor *cells = mu_add(mu_multiply(flat, mu_constant(MU_I64, (double)n)), guessed);
    mu_tensor *each = weights ? mu_reshape(mu__weights_like(weights, mu_cast(y_pred, mu__floatx())), 1, (int64_t[]){-1})
                              : cells ? mu_ones_like(mu_cast(cells, mu__floatx())) : NULL;
    mu_tensor *sums = each ? mu_unsorted_segment_sum(each, cells, n * n) : NULL;
    return sums ? mu_metric_add(metric, 0, mu_reshape(sums, 2, (int64_t[]){n, n})) : mu_error_code();
}

static double iou_result(const mu_metric *metric, const double *sums)
{
    const int n = ((const mu_mean_iou_args *)metric->args)->num_classes;
    double total = 0, valid = 0;
    for (int c = 0; c < n; c++) {
        double around = -sums[c * n + c];
        for (int k = 0; k < n; k++)
            around += sums[c * n + k] + sums[k * n + c];
        total += quotient(sums[c * n + c], around);
        valid += around > 0;
    }
    return quotient(total, valid);
}

// ---- Classes ------------------------------------------------------------------------------------

#define COUNTING(word, keras_class, args_type, args_fields, completes, prefix, result_function)                      \
    static const mu_metric_ops word##_ops = {                                                                        \
        .class = {#word, keras_class, "mu_" #word "_metric", MU_OPTIONS(args_type), args_fields, completes},         \
        .compares = true, .states = prefix##_states, .update = prefix##_update, .result = result_function};          \
    mu_metric *mu_##word##_metric_with(const args_type *args)                                                        \
    {                                                                                                                \
        return mu__metric_make(&word##_ops, args);                                                                   \
    }

COUNTING(precision, "Precision", mu_threshold_args, threshold_fields, NULL, precision, share_result)
COUNTING(recall, "Recall", mu_threshold_args, threshold_fields, NULL, recall, share_result)
COUNTING(f1_score, "F1Score", mu_threshold_args, threshold_fields, NULL, f1, f1_result)
COUNTING(auc, "AUC", mu_auc_args, auc_fields, auc_complete, auc, auc_result)
COUNTING(mean_iou, "MeanIoU", mu_mean_iou_args, iou_fields, NULL, iou, iou_result)

const mu_metric_ops *mu__counting_metric_find(const char *name)
{
    const mu_metric_ops *const known[] = {&precision_ops, &recall_ops, &f1_score_ops, &auc_ops};
    for (size_t i = 0; i < MU_COUNT(known); i++)
        if (strcasecmp(known[i]->class.name, name) == 0 || strcasecmp(known[i]->class.keras, name) == 0)
            return known[i];
    return NULL;
}
