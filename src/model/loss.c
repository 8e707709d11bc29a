// Losses per sample, and their mean over the global batch.
#include "model/model.h"

#include <muster/nn.h>
#include <muster/ops.h>

mu_type mu__loss_type = {.name = "loss"};
static mu_type regularizer_type = {.name = "regularizer"};

static mu_loss *new_loss(const char *name, mu_tensor *(*call)(const mu_loss *, mu_tensor *, mu_tensor *),
                         bool from_logits)
{
    if (mu__pending())
        return NULL;
    mu_loss *loss = mu__new(&mu__loss_type, sizeof *loss);
    if (!loss)
        return NULL;
    loss->name = name;
    loss->call = call;
    loss->from_logits = from_logits;
    return mu__give(loss);
}

// Labels may have shape [batch] or [batch, 1].
static mu_tensor *class_numbers(mu_tensor *y_true, const mu_tensor *y_pred)
{
    int rank = mu_tensor_rank(y_true);
    if (rank > 0 && rank == mu_tensor_rank(y_pred) && mu_tensor_dim(y_true, -1) == 1)
        return mu_squeeze(y_true, -1);
    return y_true;
}

static mu_tensor *sparse_crossentropy(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    mu_tensor *labels = class_numbers(y_true, y_pred);
    if (loss->from_logits)
        return mu_nn_sparse_softmax_cross_entropy(labels, y_pred);
    // Keras clips probabilities before the logarithm; its epsilon is 1e-7.
    mu_dtype dtype = mu_tensor_dtype(y_pred);
    mu_tensor *clipped = mu_minimum(mu_maximum(y_pred, mu_constant(dtype, 1e-7)), mu_constant(dtype, 1 - 1e-7));
    return mu_nn_sparse_softmax_cross_entropy(labels, mu_log(clipped));
}

mu_loss *mu_sparse_categorical_crossentropy_loss_with(const mu_crossentropy_args *given)
{
    mu_crossentropy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_sparse_categorical_crossentropy_loss") != MU_OK)
        return NULL;
    return new_loss("sparse_categorical_crossentropy", sparse_crossentropy, args.from_logits);
}

static mu_tensor *squared_error(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred)
{
    (void)loss;
    mu_dtype dtype = mu_tensor_dtype(y_pred);
    // Labels [batch] and predictions [batch, 1] give one value per sample, not a [batch, batch] matrix of differences.
    if (mu_tensor_rank(y_true) + 1 == mu_tensor_rank(y_pred) && mu_tensor_dim(y_pred, -1) == 1)
        y_true = mu_expand_dims(y_true, -1);
    mu_tensor *squares = mu_squared_difference(y_pred, mu_cast(y_true, dtype));
    return mu_tensor_rank(squares) > 1 ? mu_reduce_mean(squares, -1) : squares;
}

mu_loss *mu_mean_squared_error_loss(void)
{
    return new_loss("mean_squared_error", squared_error, false);
}

// ---- Scaling ------------------------------------------------------------------------------------

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
    mu_dtype dtype = mu_tensor_dtype(args.losses);
    mu_tensor *count;
    if (args.global_batch_size > 0)
        count = mu_constant(dtype, (double)args.global_batch_size);
    else
        count = mu_cast(mu_dim_size(args.losses, MU_ALL_AXES), dtype);
    if (args.global_batch_size == 0 && mu_replica_count() > 1)
        count = mu_all_reduce(MU_SUM, count);
    return mu_divide(mu_reduce_sum(args.losses, MU_ALL_AXES), count);
}

// ---- Regularisation -----------------------------------------------------------------------------

mu_regularizer *mu_l2(double factor)
{
    if (mu__pending())
        return NULL;
    if (!(factor >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_l2: the factor is %g; it must be 0 or more", factor);
        return NULL;
    }
    mu_regularizer *regularizer = mu__new(&regularizer_type, sizeof *regularizer);
    if (!regularizer)
        return NULL;
    regularizer->l2 = factor;
    return mu__give(regularizer);
}

mu_tensor *mu__regularization(const mu_model *model)
{
    mu_tensor *sum = NULL;
    for (int l = 0; l < model->n_layers; l++)
        for (int w = 0; w < model->layers[l]->n_weights; w++) {
            const mu_layer *layer = model->layers[l];
            if (!layer->regularizers[w])
                continue;
            mu_tensor *weight = mu_variable_read(layer->weights[w]);
            mu_tensor *squares = mu_reduce_sum(mu_square(weight), MU_ALL_AXES);
            mu_tensor *penalty =
                mu_multiply(squares, mu_constant(mu_variable_dtype(layer->weights[w]), layer->regularizers[w]->l2));
            sum = sum ? mu_add(sum, penalty) : penalty;
        }
    return sum;
}
