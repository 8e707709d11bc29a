// The losses: the formula of each, per sample. y_true has the type and the rank of y_pred, unless the class takes
// labels. Formulas, epsilons and names are Keras 3's.

#include "model/core/note.h"
#include "model/losses/loss.h"
#include "model/training/arguments.h"

#include <limits.h>
#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <strings.h>

#define EPSILON  1e-7 // Keras's: keeps logarithms and quotients finite
#define NO_CLASS INT_MIN

static mu_tensor *like(const mu_tensor *x, double value) { return x ? mu_constant(mu_tensor_dtype(x), value) : NULL; }

static mu_tensor *one_minus(mu_tensor *x) { return mu_subtract(like(x, 1), x); }

static mu_tensor *clip(mu_tensor *x, double low, double high)
{
    return mu_clip_by_value(x, like(x, low), like(x, high));
}

// The mean over the last axis, if there is one besides the batch's.
static mu_tensor *last_mean(mu_tensor *x) { return mu_tensor_rank(x) > 1 ? mu_reduce_mean(x, -1) : x; }

static mu_tensor *last_sum(mu_tensor *x) { return mu_tensor_rank(x) > 1 ? mu_reduce_sum(x, -1) : x; }

// x with this axis as the last one.
static mu_tensor *axis_last(mu_tensor *x, int axis)
{
    const int rank = mu_tensor_rank(x), at = axis < 0 ? axis + rank : axis;
    int axes[MU_MAX_RANK];
    if (!x || at == rank - 1)
        return x;
    if (at < 0 || at >= rank) {
        mu__error(MU_INVALID_ARGUMENT, "a loss: axis is %d; the predictions have %d axes", axis, rank);
        return NULL;
    }
    for (int i = 0; i < rank; i++)
        axes[i] = i == rank - 1 ? at : i + (i >= at);
    return mu_transpose(x, axes);
}

// ---- Regression ---------------------------------------------------------------------------------

static mu_tensor *mean_squared_error(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return last_mean(mu_squared_difference(y_pred, y_true));
}

static mu_tensor *mean_absolute_error(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return last_mean(mu_abs(mu_subtract(y_true, y_pred)));
}

static mu_tensor *mean_absolute_percentage_error(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_tensor *scale = mu_maximum(mu_abs(y_true), like(y_true, EPSILON));
    return mu_multiply(last_mean(mu_abs(mu_divide(mu_subtract(y_true, y_pred), scale))), like(y_true, 100));
}

static mu_tensor *log_of(mu_tensor *x) { return mu_log(mu_add(mu_maximum(x, like(x, EPSILON)), like(x, 1))); }

static mu_tensor *mean_squared_logarithmic_error(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return last_mean(mu_squared_difference(log_of(y_pred), log_of(y_true)));
}

static mu_tensor *huber(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const double delta = ((const mu_huber_args *)loss->args)->delta;
    mu_tensor *error = mu_subtract(y_pred, y_true), *size = mu_abs(error);
    mu_tensor *square = mu_multiply(mu_square(error), like(error, .5));
    mu_tensor *linear = mu_subtract(mu_multiply(size, like(error, delta)), like(error, .5 * delta * delta));
    return last_mean(mu_where(mu_less_equal(size, like(error, delta)), square, linear));
}

static mu_tensor *log_cosh(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_tensor *x = mu_subtract(y_pred, y_true);
    return last_mean(mu_subtract(mu_add(x, mu_nn_softplus(mu_multiply(x, like(x, -2)))), like(x, log(2))));
}

// The bound is inside of the root, whose gradient at 0 would be NaN.
static mu_tensor *unit_length(mu_tensor *x)
{
    const int last = mu_tensor_rank(x) - 1;
    mu_tensor *square = mu_reduce_sum(mu_square(x), last, .keep_dims = true);
    return mu_divide(x, mu_sqrt(mu_maximum(square, like(x, EPSILON * EPSILON))));
}

static mu_tensor *cosine_similarity(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const int axis = ((const mu_cosine_similarity_args *)loss->args)->axis;
    mu_tensor *a = axis_last(y_true, axis), *b = axis_last(y_pred, axis);
    return a && b ? mu_neg(mu_reduce_sum(mu_multiply(unit_length(a), unit_length(b)), -1)) : NULL;
}

// ---- Hinge --------------------------------------------------------------------------------------

// Labels that are all 0 or 1 become -1 or 1.
static mu_tensor *signs(mu_tensor *y_true)
{
    mu_tensor *bits = mu_logical_or(mu_equal(y_true, like(y_true, 0)), mu_equal(y_true, like(y_true, 1)));
    mu_tensor *binary = mu_reduce_all(bits, MU_ALL_AXES);
    return mu_where(binary, mu_subtract(mu_multiply(y_true, like(y_true, 2)), like(y_true, 1)), y_true);
}

static mu_tensor *margin(mu_tensor *y_true, mu_tensor *y_pred)
{
    return mu_maximum(one_minus(mu_multiply(signs(y_true), y_pred)), like(y_pred, 0));
}

static mu_tensor *hinge(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return last_mean(margin(y_true, y_pred));
}

static mu_tensor *squared_hinge(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return last_mean(mu_square(margin(y_true, y_pred)));
}

static mu_tensor *categorical_hinge(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_tensor *right = mu_reduce_sum(mu_multiply(y_true, y_pred), -1);
    mu_tensor *wrong = mu_reduce_max(mu_multiply(one_minus(y_true), y_pred), -1);
    return mu_maximum(mu_add(mu_subtract(wrong, right), like(y_pred, 1)), like(y_pred, 0));
}

// ---- Distributions ------------------------------------------------------------------------------

static mu_tensor *kl_divergence(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_tensor *p = clip(y_true, EPSILON, 1), *q = clip(y_pred, EPSILON, 1);
    return last_sum(mu_multiply(p, mu_log(mu_divide(p, q))));
}

static mu_tensor *poisson(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_tensor *expected = mu_log(mu_add(y_pred, like(y_pred, EPSILON)));
    return last_mean(mu_subtract(y_pred, mu_multiply(y_true, expected)));
}

static mu_tensor *smooth(mu_tensor *y_true, double smoothing, double classes)
{
    if (smoothing == 0)
        return y_true;
    return mu_add(mu_multiply(y_true, like(y_true, 1 - smoothing)), like(y_true, smoothing / classes));
}

// The same over the classes on the last axis, whose number may be known only when the loss is computed.
static mu_tensor *smooth_classes(mu_tensor *y_true, double smoothing)
{
    if (smoothing == 0)
        return y_true;
    mu_tensor *share = mu_divide(like(y_true, smoothing), mu_cast(mu_dim_size(y_true, -1), mu_tensor_dtype(y_true)));
    return mu_add(mu_multiply(y_true, like(y_true, 1 - smoothing)), share);
}

// The cross-entropy of each output from its probability.
static mu_tensor *binary_entropy(mu_tensor *y_true, mu_tensor *p)
{
    mu_tensor *clipped = clip(p, EPSILON, 1 - EPSILON);
    return mu_neg(
        mu_add(mu_multiply(y_true, mu_log(clipped)), mu_multiply(one_minus(y_true), mu_log(one_minus(clipped)))));
}

// The logits that predictions were made of, by the activation of a layer; else the predictions themselves if they are
// logits, else NULL. As in Keras, which also forgives .from_logits of what is a probability.
static mu_tensor *logits_of(mu_tensor *y_pred, mu_note_kind activation, bool from_logits)
{
    const mu_note *note = mu__note_of(y_pred, activation);
    return note ? note->noted : from_logits ? y_pred : NULL;
}

// The same of classes along an axis: a softmax along another one did not make these probabilities.
static mu_tensor *class_logits(mu_tensor *y_pred, int axis, bool from_logits)
{
    const mu_note *note = mu__note_of(y_pred, MU_NOTE_SOFTMAX);
    const bool fits = note && note->axis == (axis < 0 ? axis + mu_tensor_rank(y_pred) : axis);
    return fits ? note->noted : from_logits ? y_pred : NULL;
}

static mu_tensor *binary_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_crossentropy_args *args = loss->args;
    mu_tensor *labels = smooth(axis_last(y_true, args->axis), args->label_smoothing, 2);
    mu_tensor *logits = logits_of(y_pred, MU_NOTE_SIGMOID, args->from_logits);
    return last_mean(logits ? mu_nn_sigmoid_cross_entropy(labels, axis_last(logits, args->axis))
                            : binary_entropy(labels, axis_last(y_pred, args->axis)));
}

// Predictions scaled to sum to 1 over the last axis, and kept from 0 and 1.
static mu_tensor *as_probabilities(mu_tensor *y_pred)
{
    const int last = mu_tensor_rank(y_pred) - 1;
    return clip(mu_divide(y_pred, mu_reduce_sum(y_pred, last, .keep_dims = true)), EPSILON, 1 - EPSILON);
}

static mu_tensor *categorical_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_crossentropy_args *args = loss->args;
    mu_tensor *logits = axis_last(class_logits(y_pred, args->axis, args->from_logits), args->axis);
    mu_tensor *labels = smooth_classes(axis_last(y_true, args->axis), args->label_smoothing);
    if (mu__pending() || logits)
        return mu_nn_softmax_cross_entropy(labels, logits);
    y_pred = axis_last(y_pred, args->axis);
    return mu_neg(mu_reduce_sum(mu_multiply(labels, mu_log(as_probabilities(y_pred))), -1));
}

// Labels may have the axis of the classes, in size 1: [batch] or [batch, 1].
static mu_tensor *class_numbers(mu_tensor *y_true, const mu_tensor *y_pred, int axis)
{
    const int rank = mu_tensor_rank(y_true);
    return rank > 0 && rank == mu_tensor_rank(y_pred) && mu_tensor_dim(y_true, axis) == 1 ? mu_squeeze(y_true, axis)
                                                                                          : y_true;
}

// Which labels count; NULL: all.
static mu_tensor *sparse_valid(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *losses)
{
    const mu_sparse_crossentropy_args *args = loss->args;
    mu_tensor *labels = args->ignore_class == NO_CLASS ? NULL : class_numbers(y_true, y_pred, args->axis);
    (void)losses;
    return labels ? mu_not_equal(mu_cast(labels, MU_I64), mu_constant(MU_I64, args->ignore_class)) : NULL;
}

// Whether labels have the shape of the predictions without the classes.
static bool are_class_numbers(const mu_tensor *labels, const mu_tensor *y_pred)
{
    const int rank = mu_tensor_rank(labels);
    bool fits = rank + 1 == mu_tensor_rank(y_pred);
    for (int i = 0; fits && i < rank; i++)
        fits = labels->shape.dims[i] == y_pred->shape.dims[i] || labels->shape.dims[i] == MU_UNKNOWN ||
               y_pred->shape.dims[i] == MU_UNKNOWN;
    return fits;
}

// Class numbers may be floats, as a CSV file has them, of which the whole part counts, as in Keras. Other floats, such
// as one-hot labels, are refused by the op, which says what to do.
static mu_tensor *checked_numbers(const mu_loss *loss, mu_tensor *labels, const mu_tensor *y_pred)
{
    char given[MU_SHAPE_TEXT], predictions[MU_SHAPE_TEXT];
    if (!labels || !y_pred)
        return NULL;
    const bool integers = mu__dtype_is_integer(labels->dtype), fits = are_class_numbers(labels, y_pred);
    if (fits || !integers)
        return fits && mu__dtype_is_float(labels->dtype) ? mu_cast(labels, MU_I64) : labels;
    mu__error(
        MU_INVALID_ARGUMENT,
        "loss '%s': the labels have shape %s and the predictions %s; labels must have the shape of the predictions "
        "without the axis of the classes. For a label of each sample, mu_flatten or a global pool in front of the last "
        "layer joins the other axes, or a recurrent layer without .return_sequences gives its last step alone",
        mu_loss_name(loss), mu__shape_text(&labels->shape, given), mu__shape_text(&y_pred->shape, predictions));
    return NULL;
}

static mu_tensor *sparse_entropy(mu_tensor *labels, mu_tensor *y_pred, bool from_logits)
{
    if (from_logits)
        return mu_nn_sparse_softmax_cross_entropy(labels, y_pred);
    mu_tensor *clipped = mu_minimum(mu_maximum(y_pred, like(y_pred, EPSILON)), like(y_pred, 1 - EPSILON));
    return mu_nn_sparse_softmax_cross_entropy(labels, mu_log(clipped));
}

static mu_tensor *sparse_categorical_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_sparse_crossentropy_args *args = loss->args;
    mu_tensor *logits = class_logits(y_pred, args->axis, args->from_logits);
    const bool ignores = args->ignore_class != NO_CLASS, from_logits = ignores ? args->from_logits : logits != NULL;
    y_pred = axis_last(ignores || !logits ? y_pred : logits, args->axis);
    mu_tensor *labels = checked_numbers(loss, class_numbers(y_true, y_pred, args->axis), y_pred);
    if (!labels)
        return NULL;
    mu_tensor *valid = sparse_valid(loss, y_true, y_pred, NULL);
    if (!valid)
        return sparse_entropy(labels, y_pred, from_logits);
    y_pred = mu_where(mu_expand_dims(valid, -1), y_pred, like(y_pred, 0)); // the gradient of NaN there would be NaN
    mu_tensor *losses = sparse_entropy(mu_where(valid, labels, like(labels, 0)), y_pred, from_logits);
    return mu_where(valid, losses, like(y_pred, 0));
}

// Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels", 2018.
static mu_tensor *categorical_generalized_cross_entropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const double q = ((const mu_generalized_crossentropy_args *)loss->args)->q;
    mu_tensor *numbers = mu_cast(class_numbers(y_true, y_pred, -1), MU_I64);
    mu_tensor *columns = mu_one_hot(numbers, mu_tensor_dim(y_pred, -1), mu_tensor_dtype(y_pred));
    mu_tensor *p = mu_reduce_sum(mu_multiply(y_pred, columns), -1);
    return mu_divide(one_minus(mu_pow(p, like(p, q))), like(p, q));
}

// Lin et al., "Focal loss for dense object detection", 2017.
static mu_tensor *binary_focal_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_focal_args *args = loss->args;
    mu_tensor *labels = smooth(axis_last(y_true, args->axis), args->label_smoothing, 2), *rest = one_minus(labels);
    mu_tensor *logits = args->from_logits ? y_pred : logits_of(y_pred, MU_NOTE_SIGMOID, false);
    mu_tensor *p = axis_last(args->from_logits ? mu_sigmoid(y_pred) : y_pred, args->axis);
    mu_tensor *right = mu_add(mu_multiply(labels, p), mu_multiply(rest, one_minus(p)));
    mu_tensor *entropy =
        logits ? mu_nn_sigmoid_cross_entropy(labels, axis_last(logits, args->axis)) : binary_entropy(labels, p);
    mu_tensor *focal = mu_multiply(mu_pow(one_minus(right), like(p, args->gamma)), entropy);
    if (args->apply_class_balancing)
        focal = mu_multiply(
            focal, mu_add(mu_multiply(labels, like(p, args->alpha)), mu_multiply(rest, like(p, 1 - args->alpha))));
    return last_mean(focal);
}

static mu_tensor *categorical_focal_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_focal_args *args = loss->args;
    y_pred = axis_last(y_pred, args->axis);
    mu_tensor *labels = smooth_classes(axis_last(y_true, args->axis), args->label_smoothing);
    mu_tensor *p = as_probabilities(args->from_logits ? mu_nn_softmax(y_pred, -1) : y_pred);
    mu_tensor *weight = mu_multiply(mu_pow(one_minus(p), like(p, args->gamma)), like(p, args->alpha));
    return mu_neg(mu_reduce_sum(mu_multiply(weight, mu_multiply(labels, mu_log(p))), -1));
}

// ---- Overlap of regions -------------------------------------------------------------------------

// The axes that a sum runs over; none: all.
typedef struct axes {
    int n;
    const int *list;
} axes;

static bool has_batch(axes over, int rank)
{
    bool found = over.n == 0;
    for (int i = 0; i < over.n; i++)
        found |= over.list[i] == 0 || over.list[i] == -rank;
    return found;
}

// A sum over the batch is one over that of all replicas: else the loss would depend on their number.
static mu_tensor *sum_over(mu_tensor *x, axes over)
{
    mu_tensor *sum = over.n > 0 ? mu_reduce_sum(x, .axes = over.list, .n_axes = over.n) : mu_reduce_sum(x, MU_ALL_AXES);
    return sum && mu_replica_count() > 1 && has_batch(over, mu_tensor_rank(x)) ? mu_all_reduce(MU_SUM, sum) : sum;
}

static axes dice_axes(const mu_loss *loss)
{
    const mu_dice_args *args = loss->args;
    return (axes){args->n_axis, args->axis};
}

static bool dice_joins(const mu_loss *loss, int rank) { return has_batch(dice_axes(loss), rank); }

static mu_tensor *dice(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const axes over = dice_axes(loss);
    mu_tensor *common = sum_over(mu_multiply(y_true, y_pred), over);
    mu_tensor *all = mu_add(sum_over(y_true, over), sum_over(y_pred, over));
    return one_minus(mu_divide(mu_multiply(common, like(common, 2)), mu_add(all, like(all, EPSILON))));
}

static axes tversky_axes(const mu_loss *loss)
{
    const mu_tversky_args *args = loss->args;
    return (axes){args->n_axis, args->axis};
}

static bool tversky_joins(const mu_loss *loss, int rank) { return has_batch(tversky_axes(loss), rank); }

// Salehi et al., "Tversky loss function for image segmentation using 3D fully convolutional deep networks", 2017.
static mu_tensor *tversky(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_tversky_args *args = loss->args;
    const axes over = tversky_axes(loss);
    mu_tensor *common = sum_over(mu_multiply(y_true, y_pred), over);
    mu_tensor *missed = sum_over(mu_multiply(one_minus(y_pred), y_true), over);
    mu_tensor *wrong = sum_over(mu_multiply(y_pred, one_minus(y_true)), over);
    mu_tensor *apart =
        mu_add(mu_multiply(missed, like(missed, args->alpha)), mu_multiply(wrong, like(wrong, args->beta)));
    return one_minus(mu_divide(common, mu_add(mu_add(common, apart), like(common, EPSILON))));
}

// ---- Similarity ---------------------------------------------------------------------------------

// Whether two samples of the batch have one label: [batch, batch].
static mu_tensor *same_labels(mu_tensor *y_true)
{
    mu_tensor *numbers = mu_cast(mu_reshape(y_true, 1, (int64_t[]){-1}), MU_I64);
    return mu_equal(mu_expand_dims(numbers, 1), mu_expand_dims(numbers, 0));
}

static mu_tensor *diagonal_of(mu_tensor *y_true)
{
    mu_tensor *ones = mu_ones_like(mu_cast(mu_reshape(y_true, 1, (int64_t[]){-1}), MU_I64));
    return same_labels(mu_cumsum(ones, 0, false, false));
}

static mu_tensor *log_sum_where(mu_tensor *condition, mu_tensor *x)
{
    return mu_reduce_logsumexp(mu_where(condition, x, like(x, -INFINITY)), 1);
}

// Sun et al., "Circle loss: a unified perspective of pair similarity optimization", 2020.
static mu_tensor *circle(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_circle_args *args = loss->args;
    mu_tensor *same = same_labels(y_true), *other = mu_logical_not(same);
    mu_tensor *far = mu_maximum(one_minus(mu_matmul_transposed(y_pred, y_pred, false, true)), like(y_pred, 0));
    if (!args->keep_diagonal)
        same = mu_logical_and(same, mu_logical_not(diagonal_of(y_true)));
    // Weights of pairs with one label and with different labels, and how far each is from its optimum.
    mu_tensor *pull = mu_multiply(mu_add(far, like(far, args->margin)), mu_cast(same, mu_tensor_dtype(far)));
    mu_tensor *push = mu_maximum(
        mu_multiply(mu_subtract(like(far, 1 + args->margin), far), mu_cast(other, mu_tensor_dtype(far))), like(far, 0));
    mu_tensor *gap = mu_subtract(like(far, args->margin), far);
    mu_tensor *other_gap = mu_subtract(like(far, 1 - args->margin), far);
    mu_tensor *near_sum = log_sum_where(same, mu_multiply(mu_multiply(pull, gap), like(far, -args->gamma)));
    mu_tensor *far_sum = log_sum_where(other, mu_multiply(mu_multiply(push, other_gap), like(far, args->gamma)));
    return mu_nn_softplus(mu_add(near_sum, far_sum));
}

// Samples whose pairs are all at their optimum do not count.
static mu_tensor *circle_valid(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *losses)
{
    (void)loss;
    (void)y_true;
    (void)y_pred;
    return mu_greater(losses, like(losses, 0));
}

static mu_tensor *ctc(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    return mu__ctc_loss(y_true, y_pred);
}

// ---- Classes ------------------------------------------------------------------------------------

static const mu_field huber_fields[] = {
    MU_LOSS_FIELDS(mu_huber_args),
    MU_FIELD(mu_huber_args, delta, DOUBLE, .limit = MU_POSITIVE, .number = 1),
    {0},
};
static const mu_field crossentropy_fields[] = {
    MU_LOSS_FIELDS(mu_crossentropy_args),
    MU_FIELD(mu_crossentropy_args, from_logits, FLAG),
    MU_FIELD(mu_crossentropy_args, label_smoothing, DOUBLE, .limit = MU_FRACTION),
    MU_FIELD(mu_crossentropy_args, axis, INT, .number = -1),
    {0},
};
static const mu_field sparse_fields[] = {
    MU_LOSS_FIELDS(mu_sparse_crossentropy_args),
    MU_FIELD(mu_sparse_crossentropy_args, from_logits, FLAG),
    MU_FIELD(mu_sparse_crossentropy_args, ignore_class, INT, .number = NO_CLASS, .none = true),
    MU_FIELD(mu_sparse_crossentropy_args, axis, INT, .number = -1),
    {0},
};
static const mu_field generalized_fields[] = {
    MU_LOSS_FIELDS(mu_generalized_crossentropy_args),
    MU_FIELD(mu_generalized_crossentropy_args, q, DOUBLE, .limit = MU_INSIDE, .number = .5),
    {0},
};
static const mu_field cosine_fields[] = {
    MU_LOSS_FIELDS(mu_cosine_similarity_args),
    MU_FIELD(mu_cosine_similarity_args, axis, INT, .number = -1),
    {0},
};
static const mu_field dice_fields[] = {
    MU_LOSS_FIELDS(mu_dice_args),
    MU_FIELD(mu_dice_args, axis, INTS, .second = offsetof(mu_dice_args, n_axis)),
    {0},
};
static const mu_field tversky_fields[] = {
    MU_LOSS_FIELDS(mu_tversky_args),
    MU_FIELD(mu_tversky_args, alpha, DOUBLE, .number = .5),
    MU_FIELD(mu_tversky_args, beta, DOUBLE, .number = .5),
    MU_FIELD(mu_tversky_args, axis, INTS, .second = offsetof(mu_tversky_args, n_axis)),
    {0},
};
static const mu_field circle_fields[] = {
    MU_LOSS_FIELDS(mu_circle_args),
    MU_FIELD(mu_circle_args, gamma, DOUBLE, .limit = MU_POSITIVE, .number = 80),
    MU_FIELD(mu_circle_args, margin, DOUBLE, .number = .4),
    MU_FIELD(mu_circle_args, keep_diagonal, NOT, .keras = "remove_diagonal"),
    {0},
};
// Keras's categorical class has no option for the balancing.
#define FOCAL_FIELDS(categorical)                                                          \
    {                                                                                      \
        MU_LOSS_FIELDS(mu_focal_args), MU_FIELD(mu_focal_args, from_logits, FLAG),         \
            MU_FIELD(mu_focal_args, label_smoothing, DOUBLE, .limit = MU_FRACTION),        \
            MU_FIELD(mu_focal_args, apply_class_balancing, FLAG, .internal = categorical), \
            MU_FIELD(mu_focal_args, alpha, DOUBLE, .limit = MU_FRACTION, .number = .25),   \
            MU_FIELD(mu_focal_args, gamma, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 2), \
            MU_FIELD(mu_focal_args, axis, INT, .number = -1), {0},                         \
    }
static const mu_field focal_fields[] = FOCAL_FIELDS(false), categorical_focal_fields[] = FOCAL_FIELDS(true);

// The class of a formula, and the function that makes such a loss.
#define LOSS(formula, keras_class, args_type, args_fields, ...)                                             \
    static const mu_loss_ops formula##_ops = {                                                              \
        .class = {#formula, keras_class, "mu_" #formula "_loss", MU_OPTIONS(args_type), args_fields, NULL}, \
        .call = formula,                                                                                    \
        __VA_ARGS__};                                                                                       \
    mu_loss *mu_##formula##_loss_with(const args_type *args) { return mu__loss_make(&formula##_ops, args); }

LOSS(mean_squared_error, "MeanSquaredError", mu_loss_args, mu__loss_fields, .short_name = "mse")
LOSS(mean_absolute_error, "MeanAbsoluteError", mu_loss_args, mu__loss_fields, .short_name = "mae")
LOSS(mean_absolute_percentage_error, "MeanAbsolutePercentageError", mu_loss_args, mu__loss_fields, .short_name = "mape")
LOSS(mean_squared_logarithmic_error, "MeanSquaredLogarithmicError", mu_loss_args, mu__loss_fields, .short_name = "msle")
LOSS(huber, "Huber", mu_huber_args, huber_fields, .short_name = NULL)
LOSS(log_cosh, "LogCosh", mu_loss_args, mu__loss_fields, .short_name = "logcosh")
LOSS(cosine_similarity, "CosineSimilarity", mu_cosine_similarity_args, cosine_fields, .short_name = NULL)
LOSS(hinge, "Hinge", mu_loss_args, mu__loss_fields, .short_name = NULL)
LOSS(squared_hinge, "SquaredHinge", mu_loss_args, mu__loss_fields, .short_name = NULL)
LOSS(categorical_hinge, "CategoricalHinge", mu_loss_args, mu__loss_fields, .short_name = NULL)
LOSS(kl_divergence, "KLDivergence", mu_loss_args, mu__loss_fields, .short_name = "kld")
LOSS(poisson, "Poisson", mu_loss_args, mu__loss_fields, .short_name = NULL)
#define BINARY_SHAPES "Each output has a label of its own: give the last layer as many units as a sample has labels"
LOSS(binary_crossentropy, "BinaryCrossentropy", mu_crossentropy_args, crossentropy_fields, .short_name = "bce",
     .other_shapes = BINARY_SHAPES)
LOSS(categorical_crossentropy, "CategoricalCrossentropy", mu_crossentropy_args, crossentropy_fields,
     .other_shapes = "Labels have a number for each class: mu_one_hot makes them of class numbers, for which "
                     "sparse_categorical_crossentropy is the loss")
LOSS(sparse_categorical_crossentropy, "SparseCategoricalCrossentropy", mu_sparse_crossentropy_args, sparse_fields,
     .takes_labels = true, .valid = sparse_valid)
LOSS(binary_focal_crossentropy, "BinaryFocalCrossentropy", mu_focal_args, focal_fields, .other_shapes = BINARY_SHAPES)
LOSS(categorical_focal_crossentropy, "CategoricalFocalCrossentropy", mu_focal_args, categorical_focal_fields,
     .short_name = NULL)
LOSS(categorical_generalized_cross_entropy, "CategoricalGeneralizedCrossEntropy", mu_generalized_crossentropy_args,
     generalized_fields, .takes_labels = true)
LOSS(dice, "Dice", mu_dice_args, dice_fields, .joins_replicas = dice_joins)
LOSS(tversky, "Tversky", mu_tversky_args, tversky_fields, .joins_replicas = tversky_joins)
LOSS(circle, "Circle", mu_circle_args, circle_fields, .takes_labels = true, .valid = circle_valid)
LOSS(ctc, "CTC", mu_loss_args, mu__loss_fields, .takes_labels = true)

// Keras's name for the cross-entropy that fits the shapes as they are given.
static mu_tensor *crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const bool binary = mu_tensor_dim(y_pred, -1) == 1;
    const bool numbers = mu_tensor_rank(y_true) < mu_tensor_rank(y_pred) || mu_tensor_dim(y_true, -1) == 1;
    const mu_loss *chosen = mu__loss_make(binary    ? &binary_crossentropy_ops
                                          : numbers ? &sparse_categorical_crossentropy_ops
                                                    : &categorical_crossentropy_ops,
                                          NULL);
    (void)loss;
    return chosen ? mu__loss_call(chosen, y_true, y_pred) : NULL;
}

static const mu_loss_ops crossentropy_ops = {
    .class = {"crossentropy", "crossentropy", "mu_loss_named", MU_OPTIONS(mu_loss_args), mu__loss_fields, NULL},
    .short_name = "ce",
    .chooses = true,
    .call = crossentropy,
};

static const mu_loss_ops *const classes[] = {
    &mean_squared_error_ops,
    &mean_absolute_error_ops,
    &mean_absolute_percentage_error_ops,
    &mean_squared_logarithmic_error_ops,
    &huber_ops,
    &log_cosh_ops,
    &cosine_similarity_ops,
    &hinge_ops,
    &squared_hinge_ops,
    &categorical_hinge_ops,
    &kl_divergence_ops,
    &poisson_ops,
    &binary_crossentropy_ops,
    &categorical_crossentropy_ops,
    &sparse_categorical_crossentropy_ops,
    &binary_focal_crossentropy_ops,
    &categorical_focal_crossentropy_ops,
    &categorical_generalized_cross_entropy_ops,
    &dice_ops,
    &tversky_ops,
    &circle_ops,
    &ctc_ops,
    &crossentropy_ops,
};

const mu_loss_ops *mu__loss_find(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(classes); i++)
        if (strcasecmp(classes[i]->class.name, name) == 0 || strcasecmp(classes[i]->class.keras, name) == 0 ||
            (classes[i]->short_name && strcasecmp(classes[i]->short_name, name) == 0))
            return classes[i];
    return NULL;
}

mu_loss *mu__loss_named(const char *name, const char *function)
{
    const mu_loss_ops *ops = mu__loss_find(name);
    if (ops)
        return mu__loss_make(ops, NULL);
    char known[1024] = "";
    for (size_t i = 0; i < MU_COUNT(classes); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", classes[i]->class.name);
    }
    mu__error(MU_INVALID_ARGUMENT, "%s: no loss is named '%.60s'; expected an object or one of %s", function, name,
              known);
    return NULL;
}

mu_loss *mu_loss_named(const char *name)
{
    if (mu__pending() || mu__need(name, "mu_loss_named: the name") != MU_OK)
        return NULL;
    return mu__loss_named(name, "mu_loss_named");
}
