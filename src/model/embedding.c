// The embedding layer: looks up rows of a table by integer indices.
//
// It gathers along the table's first axis, so the table's gradient is a list of slices unless the table is used in
// another way too.
#include "model/model.h"

#include <muster/ops.h>

static mu_status embedding_build(mu_layer *layer, const mu_shape *input)
{
    const mu_embedding_args *args = layer->args;
    const char *initializer = args->embeddings_initializer ? args->embeddings_initializer : "uniform";
    if (input->rank < 1 || input->rank >= MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' takes indices of rank 1 to %d with the batch axis first; it was given rank %d",
                         mu_layer_name(layer), MU_MAX_RANK - 1, input->rank);
    return mu__layer_weight(layer, "embeddings", MU_SHAPE(args->input_dim, args->output_dim), initializer, true,
                            args->embeddings_regularizer) ? MU_OK : mu_error_code();
}

// Negative numbers count from the table's end, as in Keras.
static mu_tensor *embedding_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    const mu_embedding_args *args = layer->args;
    mu_tensor *indices = x->dtype == MU_I32 || x->dtype == MU_I64 ? x : mu_cast(x, MU_I32);
    mu_tensor *rows = indices ? mu_constant(indices->dtype, (double)args->input_dim) : NULL;
    mu_tensor *negative = rows ? mu_less(indices, mu_constant(indices->dtype, 0)) : NULL;
    mu_tensor *places = negative ? mu_where(negative, mu_add(indices, rows), indices) : NULL;
    return places ? mu_gather(mu_variable_read(layer->weights[0]), places, 0, 0) : NULL;
}

static const mu_layer_ops embedding_ops = {
    .name = "embedding", .args_bytes = sizeof(mu_embedding_args), .build = embedding_build, .call = embedding_call,
    .takes_integers = true,
    .texts = {offsetof(mu_embedding_args, embeddings_initializer)},
    .objects = {offsetof(mu_embedding_args, embeddings_regularizer)},
};

mu_layer *mu_embedding_with(const mu_embedding_args *given)
{
    mu_embedding_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_embedding") != MU_OK)
        return NULL;
    if (args.input_dim < 1 || args.output_dim < 1) {
        mu__error(MU_INVALID_ARGUMENT, "mu_embedding: input_dim is %lld and output_dim %lld; both must be 1 or more",
                  (long long)args.input_dim, (long long)args.output_dim);
        return NULL;
    }
    if (mu__initializer_known(args.embeddings_initializer, "mu_embedding") != MU_OK)
        return NULL;
    return mu__layer_new(&embedding_ops, &args, args.name);
}
