// Layers that most models have: dense, embedding, identity, the input of a sequential model, masking.
//
// Each class is its fields, what builds its weights and what computes it. Computations consist of ops, so layers work
// eagerly, in traces and on replicas, and have gradients.

#include "model/core/layer.h"
#include "model/models/functional.h"

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/sharding.h>

#include <math.h>

// ---- Dense --------------------------------------------------------------------------------------

static const mu_field dense_fields[] = {
    MU_FIELD(mu_dense_args, units, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_dense_args, activation, ACTIVATION),
    MU_FIELD(mu_dense_args, no_bias, NOT, .keras = "use_bias"),
    MU_FIELD_WEIGHT(mu_dense_args, kernel, "glorot_uniform"),
    MU_FIELD_WEIGHT(mu_dense_args, bias, "zeros"),
    MU_FIELD(mu_dense_args, activity_regularizer, REGULARIZER),
    MU_LAYER_FIELDS(mu_dense_args),
    {0},
};

static mu_status dense_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_dense_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, 2, MU_MAX_RANK));
    MU_TRY(mu__need_last_axis(layer, input));
    const mu_shape kernel = MU_SHAPE(input->dims[input->rank - 1], args->units);
    MU_TRY(mu__weight(layer, "kernel", kernel, MU_OPTIONS_OF(args, kernel)));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->units), MU_OPTIONS_OF(args, bias));
}

static mu_value *dense_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_dense_args *args = layer->args;
    mu_tensor *y = mu_matmul(mu_at(inputs, 0), mu__weight_read(layer, "kernel"));
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu__weight_read(layer, "bias"));
    return mu_of(mu__activate(args->activation, y));
}

const mu_layer_ops mu__dense_ops = {
    .class = {"dense", "Dense", "mu_dense", MU_OPTIONS(mu_dense_args), dense_fields, NULL},
    .passes_mask = true,
    .build = dense_build,
    .call = dense_call,
};

mu_layer *mu_dense_with(const mu_dense_args *args) { return mu__layer_make(&mu__dense_ops, args); }

// ---- Embedding ----------------------------------------------------------------------------------

static const mu_field embedding_fields[] = {
    MU_FIELD(mu_embedding_args, input_dim, INT64, .limit = MU_POSITIVE),
    MU_FIELD(mu_embedding_args, output_dim, INT64, .limit = MU_POSITIVE),
    MU_FIELD_WEIGHT(mu_embedding_args, embeddings, "uniform"),
    MU_FIELD(mu_embedding_args, activity_regularizer, REGULARIZER),
    MU_FIELD(mu_embedding_args, mask_zero, FLAG),
    MU_LAYER_FIELDS(mu_embedding_args),
    {0},
};

static mu_status embedding_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_embedding_args *args = layer->args;
    if (input->rank < 1 || input->rank >= MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' takes indices of rank 1 to %d with the batch axis first; it was given rank %d",
                         mu_layer_name(layer), MU_MAX_RANK - 1, input->rank);
    const mu_shape table = MU_SHAPE(args->input_dim, args->output_dim);
    return mu__weight(layer, "embeddings", table, MU_OPTIONS_OF(args, embeddings));
}

// Negative numbers count from the table's end, as in Keras. The table is gathered from along its first axis, so its
// gradient is a list of slices unless the table is used in another way too.
static mu_value *look_up(mu_layer *layer, mu_tensor *x, const mu_call_context *context, int64_t n_rows, bool mask_zero)
{
    mu_tensor *indices = !x || x->dtype == MU_I32 || x->dtype == MU_I64 ? x : mu_cast(x, MU_I32);
    if (!indices)
        return NULL;
    mu_tensor *zero = mu_constant(indices->dtype, 0), *rows = mu_constant(indices->dtype, (double)n_rows);
    if (mask_zero)
        mu_call_set_mask(context, mu_of(mu_not_equal(indices, zero)));
    mu_tensor *wrapped = mu_where(mu_less(indices, zero), mu_add(indices, rows), indices);
    mu_variable *table = mu__weight_named(layer, "embeddings");
    mu_tensor *found = table ? mu_variable_gather(table, wrapped) : NULL;
    return found ? mu_of(mu_cast(found, layer->policy.compute)) : NULL;
}

static mu_value *embedding_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_embedding_args *args = layer->args;
    return look_up(layer, mu_at(inputs, 0), context, args->input_dim, args->mask_zero);
}

const mu_layer_ops mu__embedding_ops = {
    .class = {"embedding", "Embedding", "mu_embedding", MU_OPTIONS(mu_embedding_args), embedding_fields, NULL},
    .takes_integers = true,
    .no_autocast = true,
    .build = embedding_build,
    .call = embedding_call,
};

mu_layer *mu_embedding_with(const mu_embedding_args *args) { return mu__layer_make(&mu__embedding_ops, args); }

// ---- Reversible embedding -----------------------------------------------------------------------

static const mu_field reversible_embedding_fields[] = {
    MU_FIELD(mu_reversible_embedding_args, input_dim, INT64, .limit = MU_POSITIVE),
    MU_FIELD(mu_reversible_embedding_args, output_dim, INT64, .limit = MU_POSITIVE),
    MU_FIELD(mu_reversible_embedding_args, no_tie_weights, NOT, .keras = "tie_weights"),
    MU_FIELD_WEIGHT(mu_reversible_embedding_args, embeddings, "uniform"),
    MU_FIELD(mu_reversible_embedding_args, activity_regularizer, REGULARIZER),
    MU_FIELD(mu_reversible_embedding_args, mask_zero, FLAG),
    MU_FIELD(mu_reversible_embedding_args, reverse_dtype, TEXT),
    MU_FIELD(mu_reversible_embedding_args, logit_soft_cap, DOUBLE, .limit = MU_POSITIVE, .number = NAN),
    MU_LAYER_FIELDS(mu_reversible_embedding_args),
    {0},
};

static mu_status reversible_embedding_complete(void *arguments)
{
    const mu_reversible_embedding_args *args = arguments;
    if (!args->reverse_dtype || mu__dtype_is_float(mu__dtype_from_name(args->reverse_dtype)))
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "mu_reversible_embedding: reverse_dtype is '%.40s'; it must be float16, bfloat16, float32 or float64",
        args->reverse_dtype);
}

static mu_status reversible_embedding_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n, (void)input;
    const mu_reversible_embedding_args *args = layer->args;
    const mu_shape table = MU_SHAPE(args->input_dim, args->output_dim);
    const mu_shape reverse = MU_SHAPE(args->output_dim, args->input_dim);
    MU_TRY(mu__weight(layer, "embeddings", table, MU_OPTIONS_OF(args, embeddings)));
    return !args->no_tie_weights ? MU_OK
                                 : mu__weight(layer, "reverse_embeddings", reverse,
                                              MU_WEIGHT_OPTIONS(.initializer = args->embeddings_initializer));
}

// The type of the product: the wider one, and float32 for two half types.
static mu_dtype reverse_type(const mu_reversible_embedding_args *args, mu_dtype x, mu_dtype kernel)
{
    if (args->reverse_dtype)
        return mu__dtype_from_name(args->reverse_dtype);
    const size_t ours = mu_dtype_bytes(x), theirs = mu_dtype_bytes(kernel);
    return x == kernel || ours > theirs ? x : ours < theirs ? kernel : MU_F32;
}

// Logits: x times the transposed table.
static mu_value *project_back(mu_layer *layer, mu_tensor *x)
{
    const mu_reversible_embedding_args *args = layer->args;
    mu_tensor *kernel = args->no_tie_weights ? mu__weight_read(layer, "reverse_embeddings")
                                             : mu_transpose(mu__weight_read(layer, "embeddings"), NULL);
    if (!x || !kernel)
        return NULL;
    if (!mu__dtype_is_float(x->dtype)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "layer '%s' is called with .reverse on %s; it must be a float type: give the vectors that the layers "
                  "behind the embedding made, not indices",
                  mu_layer_name(layer), mu_dtype_name(x->dtype));
        return NULL;
    }
    const mu_dtype type = reverse_type(args, x->dtype, kernel->dtype);
    mu_tensor *logits = mu_matmul(mu_cast(x, type), mu_cast(kernel, type));
    if (isnan(args->logit_soft_cap))
        return mu_of(logits);
    mu_tensor *cap = mu_constant(type, args->logit_soft_cap);
    return mu_of(mu_multiply(mu_tanh(mu_divide(logits, cap)), cap));
}

static mu_value *reversible_embedding_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_reversible_embedding_args *args = layer->args;
    return context->reverse ? project_back(layer, mu_at(inputs, 0))
                            : look_up(layer, mu_at(inputs, 0), context, args->input_dim, args->mask_zero);
}

MU_LAYER_CLASS(reversible_embedding, "reversible_embedding", "ReversibleEmbedding", mu_reversible_embedding_args,
               reversible_embedding_fields, reversible_embedding_complete, .takes_integers = true, .no_autocast = true,
               .takes_reverse = true, .build = reversible_embedding_build, .call = reversible_embedding_call)

// ---- Identity -----------------------------------------------------------------------------------

static const mu_field identity_fields[] = {MU_LAYER_FIELDS(mu_identity_layer_args), {0}};

static mu_value *same_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return inputs;
}

const mu_layer_ops mu__identity_ops = {
    .class = {"identity", "Identity", "mu_identity_layer", MU_OPTIONS(mu_identity_layer_args), identity_fields, NULL},
    .keeps_type = true,
    .takes_several = true,
    .passes_mask = true,
    .call = same_call,
};

mu_layer *mu_identity_layer_with(const mu_identity_layer_args *args) { return mu__layer_make(&mu__identity_ops, args); }

// ---- Activity regularization --------------------------------------------------------------------

static const mu_field activity_fields[] = {
    MU_FIELD(mu_activity_regularization_args, l1, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_activity_regularization_args, l2, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_LAYER_FIELDS(mu_activity_regularization_args),
    {0},
};

static mu_status activity_make(mu_layer *layer)
{
    const mu_activity_regularization_args *args = layer->args;
    layer->activity = mu_retain(mu_l1_l2(args->l1, args->l2));
    return layer->activity ? MU_OK : mu_error_code();
}

MU_LAYER_CLASS(activity_regularization, "activity_regularization", "ActivityRegularization",
               mu_activity_regularization_args, activity_fields, NULL, .takes_several = true, .passes_mask = true,
               .make = activity_make, .call = same_call)

// ---- The input of a sequential model ------------------------------------------------------------

static const mu_field input_layer_fields[] = {
    MU_FIELD(mu_input_args, shape, DIMS, .keras = "batch_shape", .internal = true),
    MU_FIELD(mu_input_args, name, NAME),
    MU_FIELD(mu_input_args, batch_size, INT64, .limit = MU_NOT_NEGATIVE, .internal = true),
    {0},
};

static mu_value *input_layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_shape declared = mu__input_shape(layer->args);
    mu_tensor *x = mu_at(inputs, 0);
    (void)context;
    mu_tensor *same = mu__as_declared(mu_layer_name(layer), &declared, x);
    return same ? mu_of(same) : NULL;
}

const mu_layer_ops mu__input_layer_ops = {
    .class = {"input_layer", "InputLayer", "mu_input_layer", MU_OPTIONS(mu_input_args), input_layer_fields, NULL},
    .keeps_type = true,
    .passes_mask = true,
    .call = input_layer_call,
};

mu_layer *mu_input_layer_with(const mu_input_args *args) { return mu__layer_make(&mu__input_layer_ops, args); }

// ---- Masking ------------------------------------------------------------------------------------

static const mu_field masking_fields[] = {
    MU_FIELD(mu_masking_args, mask_value, DOUBLE),
    MU_LAYER_FIELDS(mu_masking_args),
    {0},
};

// A step is masked where all its features have the value; masked steps become 0.
static mu_value *masking_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_tensor *x = mu_at(inputs, 0);
    mu_tensor *value = x ? mu_constant(x->dtype, ((const mu_masking_args *)layer->args)->mask_value) : NULL;
    const int last = mu_tensor_rank(x) - 1;
    mu_tensor *valid = value ? mu_reduce_any(mu_not_equal(x, value), last, .keep_dims = true) : NULL;
    if (!valid)
        return NULL;
    mu_call_set_mask(context, mu_of(mu_squeeze(valid, -1)));
    return mu_of(mu_multiply(x, mu_cast(valid, x->dtype)));
}

static mu_status masking_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, 2, MU_MAX_RANK);
}

const mu_layer_ops mu__masking_ops = {
    .class = {"masking", "Masking", "mu_masking", MU_OPTIONS(mu_masking_args), masking_fields, NULL},
    .build = masking_build,
    .call = masking_call,
};

mu_layer *mu_masking_with(const mu_masking_args *args) { return mu__layer_make(&mu__masking_ops, args); }
