// Metrics that count true and false positives and negatives at thresholds, and what follows from the counts.
//
// The counts are the state, one for each threshold, so precision, recall and areas are exact over steps and replicas.

#include "model/core/layer.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"

#include <math.h>
#include <muster/ops.h>
#include <stdlib.h>

#define NEG_INF -1e10 // Keras's: the prediction of a class that is not among the k largest
#define EPSILON 1e-7  // Keras's: how far the ends of an area's thresholds lie outside 0 to 1

// ---- Counts at thresholds -----------------------------------------------------------------------

enum { TRUE_POSITIVES, FALSE_POSITIVES, TRUE_NEGATIVES, FALSE_NEGATIVES, COUNTS };
static const char *const count_names[COUNTS] = {"true_positives", "false_positives", "true_negatives",
                                                "false_negatives"};

// Which outputs count, and how.
typedef struct selection {
    int top_k;                // only the k largest predictions of a row; 0: all
    int class_id;             // only this column; -1: all
    int64_t labels;           // separate counts for so many columns; 0: one count for all
    mu_tensor *label_weights; // of the columns; NULL: 1
} selection;

// A batch with one row for each decision: [decisions, 1], or [samples, 1, labels].
typedef struct decisions {
    mu_tensor *labels, *predictions, *weights; // floats; weights may be NULL
} decisions;

static mu_status need_binary(const mu_metric *metric, const mu_tensor *y_true, const mu_tensor *y_pred)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const int64_t labels = mu__elements_between(&y_true->shape, 1, MU_MAX(y_true->shape.rank, 1));
    const int64_t predictions = mu__elements_between(&y_pred->shape, 1, MU_MAX(y_pred->shape.rank, 1));
    if (labels == predictions)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "metric '%s': the labels have shape %s, the predictions %s; expected a label of 0 or 1 for each "
                     "prediction; mu_one_hot makes such labels of class numbers",
                     metric->name, mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other));
}

static mu_status need_columns(const mu_metric *metric, const selection *by, const mu_tensor *y_true,
                              const mu_tensor *y_pred)
{
    char seen[MU_SHAPE_TEXT], labels[64] = "";
    const int64_t columns = y_pred->shape.rank > 1 ? mu_tensor_dim(y_pred, -1) : 0;
    if ((by->top_k == 0 && by->class_id < 0 && by->labels == 0) || columns == MU_UNKNOWN)
        return MU_OK;
    if (y_true->shape.rank == y_pred->shape.rank && by->top_k <= columns && by->class_id < columns &&
        (by->labels == 0 || (by->labels == columns && y_pred->shape.rank == 2)))
        return MU_OK;
    if (by->labels)
        snprintf(labels, sizeof labels, ", %lld in all", (long long)by->labels);
    return mu__error(MU_INVALID_ARGUMENT,
                     "metric '%s': the predictions have shape %s; expected [batch, classes] with more than class_id %d "
                     "and at least top_k %d classes%s, and labels of the same shape",
                     metric->name, mu__shape_text(&y_pred->shape, seen), by->class_id, by->top_k, labels);
}

// x with the classes that are not among the k largest of their row far below every threshold.
static mu_tensor *keep_top(mu_tensor *x, int k)
{
    mu_tensor *indices = NULL;
    if (mu_top_k(x, k, NULL, &indices) != MU_OK)
        return NULL;
    mu_tensor *top = mu_reduce_sum(mu_one_hot(indices, mu_tensor_dim(x, -1), mu_tensor_dtype(x)), -2);
    return mu_where(mu_greater(top, mu_zeros_like(top)), x, mu_constant(mu_tensor_dtype(x), NEG_INF));
}

static mu_tensor *only_class(mu_tensor *x, int class_id)
{
    return mu_expand_dims(mu_gather(x, mu_constant(MU_I64, class_id), mu_tensor_rank(x) - 1, 0), -1);
}

static mu_tensor *rows(mu_tensor *x, int64_t labels)
{
    mu_tensor *numbers = mu_cast(x, mu__floatx());
    return labels > 0 ? mu_reshape(numbers, 3, (int64_t[]){-1, 1, labels}) : mu_reshape(numbers, 2, (int64_t[]){-1, 1});
}

static mu_status take_decisions(const mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights,
                                const selection *by, decisions *out)
{
    MU_TRY(need_binary(metric, y_true, y_pred));
    MU_TRY(need_columns(metric, by, y_true, y_pred));
    y_pred = mu_cast(y_pred, mu__floatx());
    y_pred = by->top_k > 0 ? keep_top(y_pred, by->top_k) : y_pred;
    if (by->class_id >= 0) {
        y_true = only_class(y_true, by->class_id);
        y_pred = only_class(y_pred, by->class_id);
    }
    if (!y_true || !y_pred)
        return mu_error_code();
    mu_tensor *each = weights ? mu__weights_like(weights, y_pred) : NULL;
    if (by->label_weights)
        each = mu_multiply(each ? each : mu_ones_like(y_pred), by->label_weights);
    *out = (decisions){.labels = rows(mu_cast(mu_cast(y_true, MU_BOOL), mu__floatx()), by->labels),
                       .predictions = rows(y_pred, by->labels),
                       .weights = each ? rows(each, by->labels) : NULL};
    return mu_error_code();
}

// Adds to those counts whose place in `states` is 0 or more. A prediction is positive above its threshold.
static mu_status count(mu_metric *metric, const decisions *d, mu_tensor *thresholds, const int states[COUNTS])
{
    mu_tensor *one = mu_constant(mu__floatx(), 1);
    mu_tensor *predicted = mu_cast(mu_greater(d->predictions, thresholds), mu__floatx());
    for (int i = 0; i < COUNTS && !mu__pending(); i++) {
        const bool positive = i == TRUE_POSITIVES || i == FALSE_POSITIVES;
        const bool label = i == TRUE_POSITIVES || i == FALSE_NEGATIVES;
        if (states[i] < 0)
            continue;
        mu_tensor *hits = mu_multiply(positive ? predicted : mu_subtract(one, predicted),
                                      label ? d->labels : mu_subtract(one, d->labels));
        mu_tensor *sum = mu_reduce_sum(d->weights ? mu_multiply(hits, d->weights) : hits, 0);
        if (!sum || mu_metric_add(metric, states[i], sum) != MU_OK)
            return mu_error_code();
    }
    return mu_error_code();
}

// A constant row of numbers, made outside of traces.
static mu_tensor *row_of(int n, const double *numbers)
{
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *wide = mu_tensor_new(MU_F64, 1, (int64_t[]){n}, numbers);
    mu_tensor *typed = wide ? mu_cast(wide, mu__floatx()) : NULL;
    mu__trace_resume(suspended);
    return typed;
}

// Whether thresholds divide the range from 0 to 1 evenly, within Keras's tolerance.
static bool are_even(int n, const double *thresholds)
{
    bool even = n >= 3;
    for (int i = 0; even && i < n; i++) {
        const double wanted = (double)i / (n - 1);
        even = fabs(thresholds[i] - wanted) <= EPSILON + 1e-5 * wanted;
    }
    return even;
}

// Predictions from 0 to 1, as Keras takes them at evenly spaced thresholds: logits in an area have its ends too.
static decisions within_range(const decisions *d)
{
    decisions within = *d;
    within.predictions = mu_clip_by_value(d->predictions, mu_constant(mu__floatx(), 0), mu_constant(mu__floatx(), 1));
    return within;
}

// ---- Counts, precision, recall ------------------------------------------------------------------

#define DEFAULT_THRESHOLD .5

static const mu_field count_fields[] = {
    MU_FIELD(mu_count_args, threshold, DOUBLE, .number = DEFAULT_THRESHOLD, .internal = true),
    MU_FIELD(mu_count_args, thresholds, DOUBLES, .limit = MU_FRACTION, .second = offsetof(mu_count_args, n_thresholds),
             .single = true),
    MU_FIELD(mu_count_args, name, NAME),
    {0},
};
static const mu_field precision_fields[] = {
    MU_FIELD(mu_precision_args, threshold, DOUBLE, .number = DEFAULT_THRESHOLD, .internal = true),
    MU_FIELD(mu_precision_args, thresholds, DOUBLES, .limit = MU_FRACTION,
             .second = offsetof(mu_precision_args, n_thresholds), .single = true),
    MU_FIELD(mu_precision_args, top_k, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_precision_args, class_id, INT, .number = -1, .none = true),
    MU_FIELD(mu_precision_args, name, NAME),
    {0},
};

static mu_status check_threshold(double threshold, const char *function)
{
    return threshold >= 0 && threshold <= 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: threshold is %g; it must be from 0 to 1", function, threshold);
}

// Arguments without a text (base.h) can only say another threshold than the default. mu_precision_args begins with the
// members of mu_count_args.
static bool gives_threshold(const mu_count_args *args)
{
    return args->threshold != DEFAULT_THRESHOLD || mu__args_given(args, "threshold");
}

// A threshold that is given is a list of one, as which Keras's configuration has it.
static void list_threshold(mu_count_args *args)
{
    if (args->n_thresholds > 0 || !gives_threshold(args))
        return;
    args->thresholds = &args->threshold;
    args->n_thresholds = 1;
}

static mu_status count_complete(void *arguments)
{
    mu_count_args *args = arguments;
    list_threshold(args);
    return check_threshold(args->threshold, "a metric that counts");
}

static mu_status precision_complete(void *arguments)
{
    mu_precision_args *args = arguments;
    MU_TRY(check_threshold(args->threshold, "mu_precision_metric or mu_recall_metric"));
    if (args->top_k > 0 && !gives_threshold(arguments))
        args->threshold = NEG_INF; // all of the k largest are positive
    else
        list_threshold(arguments);
    return MU_OK;
}

static int threshold_count(const mu_metric *metric)
{
    return MU_MAX(((const mu_count_args *)metric->args)->n_thresholds, 1);
}

static int states_of(const mu_metric *metric, int n, const int *which, mu_metric_state *states)
{
    for (int i = 0; i < n; i++)
        states[i] = (mu_metric_state){.name = count_names[which[i]], .shape = MU_SHAPE(threshold_count(metric))};
    return n;
}

static mu_status count_at(mu_metric *metric, const decisions *given, const int states[COUNTS])
{
    const mu_count_args *args = metric->args;
    const int n = threshold_count(metric);
    const double *thresholds = args->thresholds ? args->thresholds : &args->threshold;
    const decisions d = are_even(n, thresholds) ? within_range(given) : *given;
    mu_tensor *at = row_of(n, thresholds);
    return at ? count(metric, &d, at, states) : mu_error_code();
}

static int accumulator_states(const mu_metric *metric, mu_metric_state *states)
{
    states[0] = (mu_metric_state){.name = "accumulator", .shape = MU_SHAPE(threshold_count(metric))};
    return 1;
}

static mu_status count_one(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, int which)
{
    decisions d;
    int states[COUNTS] = {-1, -1, -1, -1};
    states[which] = 0;
    MU_TRY(take_decisions(metric, y_true, y_pred, weights, &(selection){.class_id = -1}, &d));
    return count_at(metric, &d, states);
}

static mu_status true_positives_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_one(metric, y_true, y_pred, weights, TRUE_POSITIVES);
}

static mu_status false_positives_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_one(metric, y_true, y_pred, weights, FALSE_POSITIVES);
}

static mu_status true_negatives_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_one(metric, y_true, y_pred, weights, TRUE_NEGATIVES);
}

static mu_status false_negatives_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_one(metric, y_true, y_pred, weights, FALSE_NEGATIVES);
}

static int accumulator_results(const mu_metric *metric, const double *sums, double *out)
{
    memcpy(out, sums, (size_t)threshold_count(metric) * sizeof *out);
    return threshold_count(metric);
}

static int precision_states(const mu_metric *metric, mu_metric_state *states)
{
    return states_of(metric, 2, (const int[]){TRUE_POSITIVES, FALSE_POSITIVES}, states);
}

static int recall_states(const mu_metric *metric, mu_metric_state *states)
{
    return states_of(metric, 2, (const int[]){TRUE_POSITIVES, FALSE_NEGATIVES}, states);
}

static mu_status count_shares(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights,
                              const int states[COUNTS])
{
    const mu_precision_args *args = metric->args;
    const selection by = {.top_k = args->top_k, .class_id = args->class_id};
    decisions d;
    MU_TRY(take_decisions(metric, y_true, y_pred, weights, &by, &d));
    return count_at(metric, &d, states);
}

static mu_status precision_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_shares(metric, y_true, y_pred, weights, (const int[]){0, 1, -1, -1});
}

static mu_status recall_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    return count_shares(metric, y_true, y_pred, weights, (const int[]){0, -1, -1, 1});
}

static double quotient(double a, double b) { return b > 0 ? a / b : 0; }

static int share_results(const mu_metric *metric, const double *sums, double *out)
{
    const int n = threshold_count(metric);
    for (int i = 0; i < n; i++)
        out[i] = quotient(sums[i], sums[i] + sums[n + i]);
    return n;
}

// ---- The best of one share where another is large enough ----------------------------------------

// mu_precision_at_recall_args and its relatives have the same members.
#define AT_FIELDS(type, value)                                                    \
    MU_FIELD(type, value, DOUBLE, .limit = MU_FRACTION),                          \
        MU_FIELD(type, num_thresholds, INT, .limit = MU_POSITIVE, .number = 200), \
        MU_FIELD(type, class_id, INT, .number = -1, .none = true), MU_FIELD(type, name, NAME)
static const mu_field at_recall_fields[] = {AT_FIELDS(mu_precision_at_recall_args, recall), {0}};
static const mu_field at_precision_fields[] = {AT_FIELDS(mu_recall_at_precision_args, precision), {0}};
static const mu_field at_specificity_fields[] = {AT_FIELDS(mu_sensitivity_at_specificity_args, specificity), {0}};
static const mu_field at_sensitivity_fields[] = {AT_FIELDS(mu_specificity_at_sensitivity_args, sensitivity), {0}};

// n thresholds from 0 to 1 whose ends are moved outwards; one is 0.5. For mu__free; NULL on error.
static double *spread(int n, double outwards)
{
    double *numbers = mu__calloc((size_t)n, sizeof *numbers);
    for (int i = 0; numbers && i < n; i++)
        numbers[i] = n == 1 ? .5 : i == 0 ? -outwards : i == n - 1 ? 1 + outwards : (double)i / (n - 1);
    return numbers;
}

static mu_status count_all(mu_metric *metric, const decisions *given, int n, const double *thresholds, bool by_label)
{
    const bool even = thresholds && (n == 2 || are_even(n, thresholds));
    const decisions d = even ? within_range(given) : *given;
    mu_tensor *at = thresholds ? row_of(n, thresholds) : NULL;
    at = at && by_label ? mu_expand_dims(at, -1) : at;
    return at ? count(metric, &d, at, (const int[]){0, 1, 2, 3}) : mu_error_code();
}

static int at_states(const mu_metric *metric, mu_metric_state *states)
{
    const mu_shape shape = MU_SHAPE(((const mu_precision_at_recall_args *)metric->args)->num_thresholds);
    for (int i = 0; i < COUNTS; i++)
        states[i] = (mu_metric_state){.name = count_names[i], .shape = shape};
    return COUNTS;
}

static mu_status at_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_precision_at_recall_args *args = metric->args;
    decisions d;
    MU_TRY(take_decisions(metric, y_true, y_pred, weights, &(selection){.class_id = args->class_id}, &d));
    double *thresholds = spread(args->num_thresholds, 0);
    const mu_status status = count_all(metric, &d, args->num_thresholds, thresholds, false);
    mu__free(thresholds);
    return status;
}

typedef enum share { PRECISION, RECALL, SPECIFICITY } share;

static double share_at(share which, const double *sums, int n, int i)
{
    const double tp = sums[i], fp = sums[n + i], tn = sums[2 * n + i], fn = sums[3 * n + i];
    return which == PRECISION ? quotient(tp, tp + fp) : which == RECALL ? quotient(tp, tp + fn) : quotient(tn, tn + fp);
}

static double best_where(const mu_metric *metric, const double *sums, share best, share constrained)
{
    const mu_precision_at_recall_args *args = metric->args;
    double found = 0;
    for (int i = 0; i < args->num_thresholds; i++)
        if (share_at(constrained, sums, args->num_thresholds, i) >= args->recall)
            found = fmax(found, share_at(best, sums, args->num_thresholds, i));
    return found;
}

static double precision_at_recall(const mu_metric *metric, const double *sums)
{
    return best_where(metric, sums, PRECISION, RECALL);
}

static double recall_at_precision(const mu_metric *metric, const double *sums)
{
    return best_where(metric, sums, RECALL, PRECISION);
}

static double sensitivity_at_specificity(const mu_metric *metric, const double *sums)
{
    return best_where(metric, sums, RECALL, SPECIFICITY);
}

static double specificity_at_sensitivity(const mu_metric *metric, const double *sums)
{
    return best_where(metric, sums, SPECIFICITY, RECALL);
}

// ---- Areas --------------------------------------------------------------------------------------

static const char *const curves[] = {"ROC", "PR", "PRGAIN", NULL};
static const char *const summations[] = {"interpolation", "minoring", "majoring", NULL};

static const mu_field auc_fields[] = {
    MU_FIELD(mu_auc_args, num_thresholds, INT, .limit = MU_POSITIVE, .number = 200),
    MU_FIELD(mu_auc_args, curve, CHOICE, .text = "ROC", .choices = curves),
    MU_FIELD(mu_auc_args, summation_method, CHOICE, .text = "interpolation", .choices = summations),
    MU_FIELD(mu_auc_args, thresholds, DOUBLES, .limit = MU_FRACTION, .second = offsetof(mu_auc_args, n_thresholds)),
    MU_FIELD(mu_auc_args, multi_label, FLAG),
    MU_FIELD(mu_auc_args, num_labels, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_auc_args, label_weights, DOUBLES, .limit = MU_NOT_NEGATIVE,
             .second = offsetof(mu_auc_args, n_label_weights)),
    MU_FIELD(mu_auc_args, from_logits, FLAG),
    MU_FIELD(mu_auc_args, name, NAME),
    {0},
};

static mu_status auc_complete(void *arguments)
{
    mu_auc_args *args = arguments;
    if (args->num_thresholds < 2)
        return mu__error(MU_INVALID_ARGUMENT, "mu_auc_metric: num_thresholds is %d; it must be 2 or more",
                         args->num_thresholds);
    if (!args->multi_label && args->num_labels > 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_auc_metric: num_labels is %d, but multi_label is false; give multi_label = true for the "
                         "mean of the labels' areas, or leave num_labels out",
                         args->num_labels);
    if (args->num_labels > 0 && args->n_label_weights > 0 && args->n_label_weights != args->num_labels)
        return mu__error(MU_INVALID_ARGUMENT, "mu_auc_metric: %d label_weights for %d labels; give one for each",
                         args->n_label_weights, args->num_labels);
    if (args->thresholds)
        args->num_thresholds = args->n_thresholds + 2;
    return MU_OK;
}

// Without multi_label all columns count as one.
static int64_t auc_columns(const void *arguments)
{
    const mu_auc_args *args = arguments;
    return !args->multi_label ? 1 : args->num_labels > 0 ? args->num_labels : args->n_label_weights;
}

static int auc_states(const mu_metric *metric, mu_metric_state *states)
{
    const mu_auc_args *args = metric->args;
    const mu_shape shape =
        args->multi_label ? MU_SHAPE(args->num_thresholds, metric->columns) : MU_SHAPE(args->num_thresholds);
    for (int i = 0; i < COUNTS; i++)
        states[i] = (mu_metric_state){.name = count_names[i], .shape = shape};
    return COUNTS;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *auc_thresholds(const mu_auc_args *args)
{
    double *numbers = spread(args->num_thresholds, EPSILON);
    if (numbers && args->thresholds) {
        memcpy(numbers + 1, args->thresholds, (size_t)args->n_thresholds * sizeof *numbers);
        qsort(numbers + 1, (size_t)args->n_thresholds, sizeof *numbers, ascending);
    }
    return numbers;
}

// Those of the first batch, if the options do not say how many labels there are.
static mu_status find_columns(const mu_metric *metric, const mu_tensor *y_pred, int64_t *columns)
{
    char seen[MU_SHAPE_TEXT];
    *columns = metric->columns;
    if (*columns == 0 && mu_tensor_rank(y_pred) == 2 && mu_tensor_dim(y_pred, 1) != MU_UNKNOWN)
        *columns = mu_tensor_dim(y_pred, 1);
    return *columns > 0
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "metric '%s': the predictions have shape %s; with multi_label they must be [batch, labels]",
                           metric->name, mu__shape_text(&y_pred->shape, seen));
}

static mu_status auc_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_auc_args *args = metric->args;
    const bool weigh = args->label_weights && !args->multi_label;
    int64_t columns;
    MU_TRY(find_columns(metric, y_pred, &columns));
    const selection by = {.class_id = -1,
                          .labels = args->multi_label ? columns : 0,
                          .label_weights = weigh ? row_of(args->n_label_weights, args->label_weights) : NULL};
    decisions d;
    mu_tensor *probabilities = args->from_logits ? mu_sigmoid(y_pred) : y_pred;
    MU_TRY(probabilities ? take_decisions(metric, y_true, probabilities, weights, &by, &d) : mu_error_code());
    metric->columns = columns; // only now, so that a batch that is refused says nothing
    double *thresholds = auc_thresholds(args);
    const mu_status status = count_all(metric, &d, args->num_thresholds, thresholds, args->multi_label);
    mu__free(thresholds);
    return status;
}

// The counts of one label at all thresholds: those of threshold i at i * stride.
typedef struct counts {
    int n, stride;
    const double *tp, *fp, *tn, *fn;
} counts;

// A curve's point at a threshold.
static void point(const mu_auc_args *args, const counts *c, int i, double *x, double *y)
{
    const double tp = c->tp[i * c->stride], fp = c->fp[i * c->stride];
    const double tn = c->tn[i * c->stride], fn = c->fn[i * c->stride];
    const double recall = quotient(tp, tp + fn);
    if (strcmp(args->curve, "ROC") == 0) {
        *x = quotient(fp, fp + tn);
        *y = recall;
    } else if (strcmp(args->curve, "PR") == 0) {
        *x = recall;
        *y = quotient(tp, tp + fp);
    } else { // Flach and Kull, "Precision-recall-gain curves: PR analysis done right", 2015
        const double odds = quotient(tp + fn, tn + fp);
        *x = tp > 0 ? fmax(1 - odds * fn / tp, 0) : 0;
        *y = tp > 0 ? 1 - odds * fp / tp : 1;
    }
}

static double riemann_area(const mu_auc_args *args, const counts *c)
{
    double area = 0, x, y, next_x, next_y;
    for (int i = 0; i + 1 < c->n; i++) {
        point(args, c, i, &x, &y);
        point(args, c, i + 1, &next_x, &next_y);
        const double height = strcmp(args->summation_method, "minoring") == 0   ? fmin(y, next_y)
                              : strcmp(args->summation_method, "majoring") == 0 ? fmax(y, next_y)
                                                                                : (y + next_y) / 2;
        area += (x - next_x) * height;
    }
    return area;
}

// The area under precision over recall. Between thresholds true positives are interpolated linearly: Davis and
// Goadrich, "The relationship between precision-recall and ROC curves", 2006.
static double pr_area(const counts *c)
{
    double area = 0;
    for (int i = 0; i + 1 < c->n; i++) {
        const double tp = c->tp[i * c->stride], next_tp = c->tp[(i + 1) * c->stride];
        const double positives = tp + c->fp[i * c->stride], next = next_tp + c->fp[(i + 1) * c->stride];
        const double step = tp - next_tp, slope = quotient(step, fmax(positives - next, 0));
        const double intercept = next_tp - slope * next;
        const double ratio = positives > 0 && next > 0 ? positives / next : 1;
        area += quotient(slope * (step + intercept * log(ratio)), fmax(next_tp + c->fn[(i + 1) * c->stride], 0));
    }
    return area;
}

// With several labels, the mean of their areas.
static double auc_result(const mu_metric *metric, const double *sums)
{
    const mu_auc_args *args = metric->args;
    const int labels = (int)metric->columns, n = args->num_thresholds * labels;
    const bool smooth = strcmp(args->curve, "PR") == 0 && strcmp(args->summation_method, "interpolation") == 0;
    double total = 0, weights = 0;
    for (int k = 0; k < labels; k++) {
        const counts c = {.n = args->num_thresholds,
                          .stride = labels,
                          .tp = sums + k,
                          .fp = sums + n + k,
                          .tn = sums + 2 * n + k,
                          .fn = sums + 3 * n + k};
        const double weight = args->multi_label && args->label_weights ? args->label_weights[k] : 1;
        total += weight * (smooth ? pr_area(&c) : riemann_area(args, &c));
        weights += weight;
    }
    return quotient(total, weights);
}

// ---- Classes ------------------------------------------------------------------------------------

MU_METRIC(true_positives, "TruePositives", mu_count_args, count_fields, count_complete, .states = accumulator_states,
          .update = true_positives_update, .results = accumulator_results)
MU_METRIC(false_positives, "FalsePositives", mu_count_args, count_fields, count_complete, .states = accumulator_states,
          .update = false_positives_update, .results = accumulator_results)
MU_METRIC(true_negatives, "TrueNegatives", mu_count_args, count_fields, count_complete, .states = accumulator_states,
          .update = true_negatives_update, .results = accumulator_results)
MU_METRIC(false_negatives, "FalseNegatives", mu_count_args, count_fields, count_complete, .states = accumulator_states,
          .update = false_negatives_update, .results = accumulator_results)
MU_METRIC(precision, "Precision", mu_precision_args, precision_fields, precision_complete, .states = precision_states,
          .update = precision_update, .results = share_results, .maximized = true)
MU_METRIC(recall, "Recall", mu_precision_args, precision_fields, precision_complete, .states = recall_states,
          .update = recall_update, .results = share_results, .maximized = true)
MU_METRIC(precision_at_recall, "PrecisionAtRecall", mu_precision_at_recall_args, at_recall_fields, NULL,
          .states = at_states, .update = at_update, .result = precision_at_recall, .maximized = true)
MU_METRIC(recall_at_precision, "RecallAtPrecision", mu_recall_at_precision_args, at_precision_fields, NULL,
          .states = at_states, .update = at_update, .result = recall_at_precision, .maximized = true)
MU_METRIC(sensitivity_at_specificity, "SensitivityAtSpecificity", mu_sensitivity_at_specificity_args,
          at_specificity_fields, NULL, .states = at_states, .update = at_update, .result = sensitivity_at_specificity,
          .maximized = true)
MU_METRIC(specificity_at_sensitivity, "SpecificityAtSensitivity", mu_specificity_at_sensitivity_args,
          at_sensitivity_fields, NULL, .states = at_states, .update = at_update, .result = specificity_at_sensitivity,
          .maximized = true)
MU_METRIC(auc, "AUC", mu_auc_args, auc_fields, auc_complete, .states = auc_states, .update = auc_update,
          .result = auc_result, .maximized = true, .by_column = true, .columns_of = auc_columns)

const mu_metric_ops *const mu__counting_metrics[] = {
    &true_positives_ops,
    &false_positives_ops,
    &true_negatives_ops,
    &false_negatives_ops,
    &precision_ops,
    &recall_ops,
    &precision_at_recall_ops,
    &recall_at_precision_ops,
    &sensitivity_at_specificity_ops,
    &specificity_at_sensitivity_ops,
    &auc_ops,
    NULL,
};
