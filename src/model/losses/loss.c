// Losses: what all classes share. A loss is computed for each sample; weights, masks and the reduction come after it.
#include "base/callback.h"
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "model/losses/loss.h"

#include <muster/ops.h>

static void loss_destroy(void *object)
{
    mu_loss *loss = object;
    mu__fields_drop(&loss->ops->class, loss->args);
}

mu_type mu__loss_type = {.name = "loss", .destroy = loss_destroy};

static mu_loss *loss_of(const mu_loss_ops *ops, const void *args)
{
    mu_loss *loss = mu__new(&mu__loss_type, sizeof *loss);
    if (!loss)
        return NULL;
    loss->ops = ops;
    if ((loss->args = mu__fields_keep(&ops->class, args)))
        return mu__give(loss);
    mu_release(loss);
    return NULL;
}

mu_loss *mu__loss_make(const mu_loss_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_loss *loss = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK)
        loss = loss_of(ops, filled);
    mu__free(filled);
    return loss;
}

const char *mu_loss_name(const mu_loss *loss)
{
    const mu_loss_args *args = loss ? loss->args : NULL;
    return args && args->name ? args->name : loss ? loss->ops->class.name : NULL;
}

const char *const mu__reductions[] = {"sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", NULL};
const mu_field mu__loss_fields[] = {MU_LOSS_FIELDS(mu_loss_args), {0}};

// ---- A loss of the user's own -------------------------------------------------------------------

static const mu_field own_fields[] = {MU_LOSS_FIELDS(mu_own_loss_args), {0}};

static mu_status own_complete(void *arguments)
{
    const mu_own_loss_args *args = arguments;
    return args->call
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_loss_new: .call is NULL; give the function that computes the loss of each sample");
}

static mu_tensor *own_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    const mu_own_loss_args *args = loss->args;
    mu_tensor *losses;
    MU_CALLBACK("the function of a loss", losses = args->call(y_true, y_pred, args->arg));
    if (!losses && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "loss '%s': its function returned NULL without an error; return the loss of each sample, or NULL "
                  "after mu_fail(code, reason)",
                  mu_loss_name(loss));
    return losses;
}

static const mu_loss_ops own_ops = {
    .class = {"loss", "Loss", "mu_loss_new", MU_OPTIONS(mu_own_loss_args), own_fields, own_complete},
    .takes_labels = true,
    .call = own_call,
};

mu_loss *mu_loss_new_with(const mu_own_loss_args *args) { return mu__loss_make(&own_ops, args); }

// ---- Calls --------------------------------------------------------------------------------------

// Whether `longer` has one axis more than `x`, of size 1.
static bool has_one_more(const mu_tensor *longer, const mu_tensor *x)
{
    return mu_tensor_rank(longer) == mu_tensor_rank(x) + 1 && mu_tensor_dim(longer, -1) == 1;
}

// Labels and predictions in one rank, as Keras has them: an axis of size 1 goes, but not one beside the batch alone.
// Else [batch] and [batch, 1] would give a [batch, batch] matrix of differences.
static bool make_one_rank(mu_tensor **y_true, mu_tensor **y_pred)
{
    mu_tensor **longer = has_one_more(*y_true, *y_pred) ? y_true : has_one_more(*y_pred, *y_true) ? y_pred : NULL;
    mu_tensor **shorter = longer == y_true ? y_pred : y_true;
    if (longer && mu_tensor_rank(*shorter) == 1)
        *shorter = mu_expand_dims(*shorter, -1);
    else if (longer)
        *longer = mu_squeeze(*longer, -1);
    return *y_true && *y_pred;
}

mu_tensor *mu__labels_of_steps(mu_tensor *y_true, const mu_tensor *y_pred, const mu_tensor *counting)
{
    const int rank = mu_tensor_rank(y_true);
    const bool by_step = counting && rank > 1 && has_one_more(y_pred, y_true) && mu_tensor_rank(counting) >= rank &&
                         mu_tensor_dim(counting, rank - 1) != 1;
    return by_step ? mu_expand_dims(y_true, -1) : y_true;
}

// Whether sizes that are known differ.
static bool differ(const mu_tensor *a, const mu_tensor *b)
{
    bool same = mu_tensor_rank(a) == mu_tensor_rank(b);
    for (int i = 0; same && i < mu_tensor_rank(a); i++)
        same = mu_tensor_dim(a, i) == mu_tensor_dim(b, i) || mu_tensor_dim(a, i) == MU_UNKNOWN ||
               mu_tensor_dim(b, i) == MU_UNKNOWN;
    return !same;
}

// Some classes refuse to broadcast, as in Keras.
static mu_status need_shapes(const mu_loss *loss, const mu_tensor *y_true, const mu_tensor *y_pred)
{
    char labels[MU_SHAPE_TEXT], predictions[MU_SHAPE_TEXT];
    if (!y_true || !loss->ops->other_shapes || !differ(y_true, y_pred))
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT,
                     "loss '%s': the labels have shape %s and the predictions %s; both must be the same. %s",
                     mu_loss_name(loss), mu__shape_text(&y_true->shape, labels),
                     mu__shape_text(&y_pred->shape, predictions), loss->ops->other_shapes);
}

// Whether a class compares labels with predictions element by element.
static bool compares_elements(const mu_loss *loss) { return !loss->ops->takes_labels && !loss->ops->chooses; }

mu_tensor *mu__loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    if (mu__pending() || !y_true || !y_pred)
        return NULL;
    if (mu__dtype_is_half(mu_tensor_dtype(y_pred))) // losses of half types are computed in the type of mu_set_floatx
        y_pred = mu_cast(y_pred, mu__floatx());
    if (!y_pred)
        return NULL;
    if (compares_elements(loss) &&
        (!(y_true = mu_cast(y_true, mu_tensor_dtype(y_pred))) || !make_one_rank(&y_true, &y_pred)))
        return NULL;
    return need_shapes(loss, y_true, y_pred) == MU_OK ? loss->ops->call(loss, y_true, y_pred) : NULL;
}

mu_tensor *mu_loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    if (mu__pending() || mu__need(loss, "mu_loss_call: the loss") != MU_OK ||
        mu__need(y_true, "mu_loss_call: y_true") != MU_OK || mu__need(y_pred, "mu_loss_call: y_pred") != MU_OK)
        return NULL;
    return mu__loss_call(loss, y_true, y_pred);
}

mu_tensor *mu__weights_like(mu_tensor *weights, mu_tensor *values)
{
    while (weights && mu_tensor_rank(weights) < mu_tensor_rank(values))
        weights = mu_expand_dims(weights, -1);
    if (weights && mu_tensor_rank(weights) > mu_tensor_rank(values) && mu_tensor_dim(weights, -1) == 1)
        weights = mu_squeeze(weights, -1);
    return weights ? mu_broadcast_like(mu_cast(weights, mu_tensor_dtype(values)), values) : NULL;
}

mu_tensor *mu__join_weights(mu_tensor *weights, mu_tensor *mask, mu_tensor *values)
{
    mu_tensor *joined = weights ? mu__weights_like(weights, values) : NULL;
    if (!mask || mu_tensor_rank(mask) > mu_tensor_rank(values))
        return joined;
    mu_tensor *valid = mu__weights_like(mask, values);
    return joined ? mu_multiply(joined, valid) : valid;
}

// ---- Scaling ------------------------------------------------------------------------------------

static mu_tensor *over_replicas(mu_tensor *sum)
{
    return sum && mu_replica_count() > 1 ? mu_all_reduce(MU_SUM, sum) : mu__over_step(sum);
}

static mu_tensor *elements_of(mu_tensor *losses)
{
    return mu_cast(mu_dim_size(losses, MU_ALL_AXES), mu_tensor_dtype(losses));
}

// What the sum of all replicas is divided by.
static mu_tensor *divisor(const mu_loss *loss, mu_tensor *losses, mu_tensor *weights, mu_tensor *mask)
{
    const char *reduction = ((const mu_loss_args *)loss->args)->reduction;
    if (strcmp(reduction, "sum") == 0)
        return mu_constant(mu_tensor_dtype(losses), 1);
    mu_tensor *joined = mu__join_weights(weights, mask, losses); // NULL: no weights, and no mask of these losses
    if (strcmp(reduction, "mean_with_sample_weight") == 0 && joined)
        return over_replicas(mu_reduce_sum(joined, MU_ALL_AXES));
    return over_replicas(mask && mu_tensor_rank(mask) <= mu_tensor_rank(losses)
                             ? mu_reduce_sum(mu__weights_like(mask, losses), MU_ALL_AXES)
                             : elements_of(losses));
}

// A number for each sample of the batch, of the weights' shape if there are weights.
static mu_tensor *samples_of(const mu_loss_inputs *in)
{
    int axes[MU_MAX_RANK], n = 0;
    if (in->weights)
        return in->weights;
    for (int i = 1; i < mu_tensor_rank(in->y_pred); i++)
        axes[n++] = i;
    return n > 0 ? mu_reduce_max(in->y_pred, .axes = axes, .n_axes = n) : in->y_pred;
}

// The mask of the outputs and that of the loss itself.
static mu_tensor *joined_mask(const mu_loss *loss, const mu_loss_inputs *in, mu_tensor *losses)
{
    mu_tensor *valid = loss->ops->valid ? loss->ops->valid(loss, in->y_true, in->y_pred, losses) : NULL;
    return valid && in->mask ? mu_logical_and(valid, mu_cast(in->mask, MU_BOOL)) : valid ? valid : in->mask;
}

// Whether each of several replicas has the losses of all.
static bool is_of_all_replicas(const mu_loss *loss, const mu_loss_inputs *in)
{
    return mu_replica_count() > 1 && loss->ops->joins_replicas &&
           loss->ops->joins_replicas(loss, mu_tensor_rank(in->y_pred));
}

// Weights have the first axes of the losses, and may end with an axis of size 1.
static mu_status need_weights(const mu_loss *loss, const mu_tensor *weights, const mu_tensor *losses)
{
    char given[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!weights || !losses)
        return mu_error_code();
    const int rank = mu_tensor_rank(weights), most = mu_tensor_rank(losses);
    bool fits = rank <= most || (rank == most + 1 && mu_tensor_dim(weights, -1) == 1);
    for (int i = 0; fits && i < rank && i < most; i++) {
        const int64_t dim = mu_tensor_dim(weights, i), of_losses = mu_tensor_dim(losses, i);
        fits = dim == of_losses || dim == 1 || dim == MU_UNKNOWN || of_losses == MU_UNKNOWN;
    }
    if (fits)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "loss '%s': the weights of samples have shape %s and the losses %s; give a number for each "
                     "sample, [batch], or for each loss",
                     mu_loss_name(loss), mu__shape_text(&weights->shape, given),
                     mu__shape_text(&losses->shape, wanted));
}

// Labels [batch] beside predictions [batch, n] would be broadcast along the wrong axis where the batch has n samples.
static mu_status need_labels_of_units(const mu_loss *loss, const mu_tensor *labels, const mu_tensor *y_pred)
{
    char text[MU_SHAPE_TEXT];
    if (!labels || !compares_elements(loss) || loss->ops->other_shapes || mu_tensor_rank(labels) != 1 ||
        mu_tensor_rank(y_pred) != 2 || mu_tensor_dim(y_pred, 1) == 1 || mu_tensor_dim(y_pred, 1) == MU_UNKNOWN)
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT,
                     "loss '%s': the labels have one number for each sample and the predictions %lld, of shape %s; "
                     "give labels [batch, %lld], or the last layer one unit. Numbers of classes go with a sparse loss",
                     mu_loss_name(loss), (long long)mu_tensor_dim(y_pred, 1), mu__shape_text(&y_pred->shape, text),
                     (long long)mu_tensor_dim(y_pred, 1));
}

mu_status mu__loss_share(const mu_loss *loss, const mu_loss_inputs *in, mu_loss_share *out)
{
    mu_tensor *labels = mu__labels_of_steps(in->y_true, in->y_pred, in->mask ? in->mask : in->weights);
    MU_TRY(need_labels_of_units(loss, labels, in->y_pred));
    mu_tensor *losses = labels ? mu__loss_call(loss, labels, in->y_pred) : NULL;
    if (!losses)
        return mu_error_code();
    mu_tensor *mask = joined_mask(loss, in, losses);
    const char *reduction = ((const mu_loss_args *)loss->args)->reduction;
    const bool mean = strcmp(reduction, "sum_over_batch_size") == 0 || strcmp(reduction, "mean") == 0;
    // A class that returns one loss for all samples (Dice): each sample has it, but a sum has it once.
    const bool spread = mu_tensor_rank(losses) == 0 && (mean || in->weights);
    if (spread)
        losses = mu_broadcast_like(losses, mu_cast(samples_of(in), mu_tensor_dtype(losses)));
    const bool plain = mean && !mask;
    MU_TRY(need_weights(loss, in->weights, losses));
    mu_tensor *weights = mu__join_weights(in->weights, mask, losses);
    mu_tensor *weighted = weights ? mu_multiply(losses, weights) : losses;
    out->count = elements_of(mu_tensor_rank(losses) == 0 ? mu_cast(samples_of(in), mu_tensor_dtype(losses)) : losses);
    out->total = mu_reduce_sum(weighted, MU_ALL_AXES);
    out->share = plain ? mu_compute_average_loss(weighted)
                       : mu_divide_no_nan(out->total, divisor(loss, losses, in->weights, mask));
    if (!spread && strcmp(reduction, "sum") == 0 && is_of_all_replicas(loss, in))
        out->share = mu_divide(out->share, mu_constant(mu_tensor_dtype(out->share), mu_replica_count()));
    if (!plain) // the mean of the steps' losses is weighted by their samples
        out->total = mu_multiply(out->share, over_replicas(out->count));
    return mu_error_code();
}

mu_tensor *mu_compute_average_loss_with(const mu_average_loss_args *given)
{
    mu_average_loss_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_compute_average_loss") != MU_OK)
        return NULL;
    if (!args.losses || args.global_batch_size < 0) {
        if (args.losses)
            mu__error(MU_INVALID_ARGUMENT, "mu_compute_average_loss: global_batch_size is %lld; it must be positive",
                      (long long)args.global_batch_size);
        else
            mu__error(MU_INVALID_ARGUMENT, "mu_compute_average_loss: losses is NULL");
        return NULL;
    }
    mu_tensor *count = args.global_batch_size > 0
                           ? mu_constant(mu_tensor_dtype(args.losses), (double)args.global_batch_size)
                           : over_replicas(elements_of(args.losses));
    return mu_divide(mu_reduce_sum(args.losses, MU_ALL_AXES), count);
}
