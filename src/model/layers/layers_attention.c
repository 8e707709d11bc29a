// Attention layers: with one head, additive, with several heads, with heads in groups.
//
// Scores without a mask, and those of several heads that neither drop weights nor return them, are one fused op. Where
// Keras computes the weights, they are computed here too: a query without any key then takes nothing.

#include "model/core/layer.h"
#include "model/layers/attention_axes.h"

#include <math.h>
#include <muster/attention.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- Inputs and masks ---------------------------------------------------------------------------

typedef struct operands {
    mu_tensor *query, *value, *key, *given_mask;   // given_mask: [batch, queries, keys] or with heads; NULL: none
    mu_tensor *query_mask, *value_mask, *key_mask; // the axes but the features; NULL: none
} operands;

static mu_status need_operands(const mu_layer *layer, int n, const mu_shape *inputs, int most)
{
    if (n < 2 || n > most)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' takes query, value and, optionally, key%s; it was given %d tensor%s. Give them as "
                         ".inputs = mu_list(query, value, MU_END)",
                         mu_layer_name(layer), most > 3 ? " and mask" : "", n, n == 1 ? "" : "s");
    for (int i = 0; i < MU_MIN(n, 3); i++) {
        MU_TRY(mu__need_input_rank(layer, &inputs[i], 3, MU_MAX_RANK));
        MU_TRY(mu__need_last_axis(layer, &inputs[i]));
    }
    return MU_OK;
}

// The axes in front of queries and keys are one batch: that of another input would take from other samples.
static mu_status need_same_front(const mu_layer *layer, int n, const mu_shape *inputs)
{
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    for (int i = 1; i < n; i++) {
        bool fits = inputs[i].rank == inputs[0].rank;
        for (int k = 1; fits && k < inputs[0].rank - 2; k++)
            fits = inputs[i].dims[k] == inputs[0].dims[k] || inputs[i].dims[k] == MU_UNKNOWN ||
                   inputs[0].dims[k] == MU_UNKNOWN;
        if (!fits)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': query is %s and input %d is %s; they must agree in rank and in the axes in "
                             "front of the queries and keys; mu_reshape gives an input more axes",
                             mu_layer_name(layer), mu__shape_text(&inputs[0], text), i,
                             mu__shape_text(&inputs[i], other));
    }
    return MU_OK;
}

// The mask of an input, as bool; NULL: it has none, or an error is pending.
static mu_tensor *input_mask(const mu_layer *layer, mu_tensor *x, const mu_call_context *context, int i)
{
    mu_tensor *mask = mu__step_mask(layer, x, mu__mask_at(context->mask, i), mu_tensor_rank(x) - 1);
    return mask ? mu_cast(mask, MU_BOOL) : NULL;
}

static mu_status find_operands(const mu_layer *layer, mu_value *inputs, const mu_call_context *context, operands *o)
{
    const int n = mu_value_count(inputs);
    *o = (operands){.query = mu_at(inputs, 0), .value = mu_at(inputs, 1)};
    o->key = n > 2 ? mu_at(inputs, 2) : o->value;
    o->query_mask = input_mask(layer, o->query, context, 0);
    o->value_mask = input_mask(layer, o->value, context, 1);
    o->key_mask = n > 2 ? input_mask(layer, o->key, context, 2) : NULL;
    o->given_mask = n > 3 ? mu_cast(mu_at(inputs, 3), MU_BOOL) : NULL;
    return mu_error_code();
}

// The same for layers that attend along the axis in front of the features alone.
static mu_status find_alike(const mu_layer *layer, mu_value *inputs, const mu_call_context *context, operands *o)
{
    MU_TRY(find_operands(layer, inputs, context, o));
    const mu_shape shapes[] = {o->query->shape, o->value->shape, o->key->shape};
    return need_same_front(layer, 3, shapes);
}

// The positions 1, 2, … of the steps of x […, steps, features], as [steps, 1] or […, steps, 1].
static mu_tensor *positions(mu_tensor *x)
{
    const int steps = mu_tensor_rank(x) - 2;
    const int64_t n = x ? mu_tensor_dim(x, steps) : MU_UNKNOWN, begin[MU_MAX_RANK] = {0};
    int64_t column[MU_MAX_RANK];
    if (n != MU_UNKNOWN)
        return mu_expand_dims(mu_range(MU_F32, 1, (double)n + 1, 1), -1);
    for (int i = 0; i < MU_MAX_RANK; i++)
        column[i] = i == steps + 1 ? 1 : -1;
    return mu_cumsum(mu_cast(mu_ones_like(mu_slice(x, begin, column)), MU_F32), steps, false, false);
}

static mu_tensor *as_row(mu_tensor *column) { return mu_expand_dims(mu_squeeze(column, -1), -2); }

static mu_tensor *both(mu_tensor *a, mu_tensor *b) { return a && b ? mu_logical_and(a, b) : a ? a : b; }

static mu_tensor *causal_mask(const operands *o)
{
    return mu_greater_equal(positions(o->query), as_row(positions(o->value)));
}

static mu_tensor *window_mask(const operands *o, int width)
{
    mu_tensor *distance = mu_abs(mu_subtract(positions(o->query), as_row(positions(o->value))));
    return mu_less(distance, mu_constant(MU_F32, width));
}

// The weights that drop some of their elements in training.
static mu_tensor *drop(mu_layer *layer, mu_tensor *weights, double rate, const mu_call_context *context)
{
    if (rate == 0 || !context->training)
        return weights;
    return mu_nn_stateless_dropout(weights, rate, mu__weight_next_seed(layer));
}

// The output has the mask of the query; scores have none.
static mu_value *outputs_of(mu_tensor *output, mu_tensor *scores, mu_tensor *query_mask, const mu_call_context *context)
{
    mu_value *mask = query_mask ? mu_of(query_mask) : NULL;
    if (!scores) {
        mu_call_set_mask(context, mask);
        return mu_of(output);
    }
    if (mask)
        mu_call_set_mask(context, mu_list(mask, mu_list_of(0, NULL), MU_END));
    return mu_list(output, scores, MU_END);
}

// ---- One head -----------------------------------------------------------------------------------

static const char *const score_modes[] = {"dot", "concat", NULL};

static const mu_field attention_fields[] = {
    MU_FIELD(mu_attention_args, use_scale, FLAG),
    MU_FIELD(mu_attention_args, score_mode, CHOICE, .text = "dot", .choices = score_modes),
    MU_FIELD(mu_attention_args, dropout, DOUBLE, .limit = MU_BELOW_ONE),
    MU_FIELD(mu_attention_args, seed, SEED),
    MU_FIELD(mu_attention_args, use_causal_mask, FLAG, .in_call = true),
    MU_FIELD(mu_attention_args, return_attention_scores, FLAG, .in_call = true),
    MU_LAYER_FIELDS(mu_attention_args),
    {0},
};

static mu_status attention_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_attention_args *args = layer->args;
    MU_TRY(need_operands(layer, n, inputs, 3));
    MU_TRY(need_same_front(layer, n, inputs));
    if (args->use_scale)
        MU_TRY(mu__weight(layer, "scale", (mu_shape){0}, MU_WEIGHT_OPTIONS(.initializer = "ones")));
    if (strcmp(args->score_mode, "concat") == 0)
        MU_TRY(mu__weight(layer, "concat_score_weight", (mu_shape){0}, MU_WEIGHT_OPTIONS(.initializer = "ones")));
    return args->dropout > 0 ? mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL) : MU_OK;
}

// query + key for each pair: […, queries, keys, features].
static mu_tensor *pair_sums(const operands *o)
{
    return mu_add(mu_expand_dims(o->query, -2), mu_expand_dims(o->key, -3));
}

// A masked score is 1e9 lower, or 65504 in float16, as in Keras.
static mu_tensor *weights_of(const operands *o, mu_tensor *scores, bool causal)
{
    mu_tensor *valid = both(o->value_mask ? mu_expand_dims(o->value_mask, -2) : NULL, causal ? causal_mask(o) : NULL);
    if (valid && scores)
        scores = mu_where(valid, scores,
                          mu_subtract(scores, mu_constant(scores->dtype, scores->dtype == MU_F16 ? 65504 : 1e9)));
    return mu_nn_softmax(scores, -1);
}

// Takes the values; a masked query takes nothing.
static mu_value *take(mu_layer *layer, const operands *o, mu_tensor *weights, double dropout, bool returns_scores,
                      const mu_call_context *context)
{
    mu_tensor *output = mu_matmul(drop(layer, weights, dropout, context), o->value);
    if (o->query_mask)
        output = mu_where(mu_expand_dims(o->query_mask, -1), output, mu_zeros_like(output));
    return outputs_of(output, returns_scores ? weights : NULL, o->query_mask, context);
}

static mu_tensor *dot_scores(const mu_layer *layer, const operands *o, bool scaled)
{
    mu_tensor *scores = mu_matmul_transposed(o->query, o->key, false, true);
    return scaled ? mu_multiply(scores, mu__weight_read(layer, "scale")) : scores;
}

static mu_tensor *concat_scores(const mu_layer *layer, const operands *o, bool scaled)
{
    mu_tensor *sums = pair_sums(o);
    if (scaled)
        sums = mu_multiply(mu__weight_read(layer, "scale"), sums);
    return mu_multiply(mu__weight_read(layer, "concat_score_weight"), mu_reduce_sum(mu_tanh(sums), -1));
}

static mu_value *attention_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_attention_args *args = layer->args;
    operands o;
    if (find_alike(layer, inputs, context, &o) != MU_OK)
        return NULL;
    const bool dot = strcmp(args->score_mode, "dot") == 0;
    if (dot && !args->use_scale && args->dropout == 0 && !args->return_attention_scores && !args->use_causal_mask &&
        !o.value_mask && !o.query_mask)
        return mu_of(mu_nn_attention(o.query, o.key, o.value, .scale = 1));
    mu_tensor *scores = dot ? dot_scores(layer, &o, args->use_scale) : concat_scores(layer, &o, args->use_scale);
    return take(layer, &o, weights_of(&o, scores, args->use_causal_mask), args->dropout, args->return_attention_scores,
                context);
}

const mu_layer_ops mu__attention_ops = {
    .class = {"attention", "Attention", "mu_attention", MU_OPTIONS(mu_attention_args), attention_fields, NULL},
    .takes_several = true,
    .build = attention_build,
    .call = attention_call,
};

mu_layer *mu_attention_with(const mu_attention_args *args) { return mu__layer_make(&mu__attention_ops, args); }

// ---- Additive -----------------------------------------------------------------------------------

static const mu_field additive_attention_fields[] = {
    MU_FIELD(mu_additive_attention_args, no_scale, NOT, .keras = "use_scale"),
    MU_FIELD(mu_additive_attention_args, dropout, DOUBLE, .limit = MU_BELOW_ONE),
    MU_FIELD(mu_additive_attention_args, seed, SEED),
    MU_FIELD(mu_additive_attention_args, use_causal_mask, FLAG, .in_call = true),
    MU_FIELD(mu_additive_attention_args, return_attention_scores, FLAG, .in_call = true),
    MU_LAYER_FIELDS(mu_additive_attention_args),
    {0},
};

static mu_status additive_attention_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_additive_attention_args *args = layer->args;
    MU_TRY(need_operands(layer, n, inputs, 3));
    MU_TRY(need_same_front(layer, n, inputs));
    if (inputs[0].rank == MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' adds an axis to its inputs, which have %d already, the most that there are; join "
                         "axes in front of it with mu_reshape_layer",
                         mu_layer_name(layer), MU_MAX_RANK);
    if (!args->no_scale)
        MU_TRY(mu__weight(layer, "scale", MU_SHAPE(inputs[0].dims[inputs[0].rank - 1]),
                          MU_WEIGHT_OPTIONS(.initializer = "glorot_uniform")));
    return args->dropout > 0 ? mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL) : MU_OK;
}

static mu_value *additive_attention_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_additive_attention_args *args = layer->args;
    operands o;
    if (find_alike(layer, inputs, context, &o) != MU_OK)
        return NULL;
    mu_tensor *features = mu_tanh(pair_sums(&o));
    if (!args->no_scale)
        features = mu_multiply(mu__weight_read(layer, "scale"), features);
    mu_tensor *weights = weights_of(&o, mu_reduce_sum(features, -1), args->use_causal_mask);
    return take(layer, &o, weights, args->dropout, args->return_attention_scores, context);
}

const mu_layer_ops mu__additive_attention_ops = {
    .class = {"additive_attention", "AdditiveAttention", "mu_additive_attention",
              MU_OPTIONS(mu_additive_attention_args), additive_attention_fields, NULL},
    .takes_several = true,
    .build = additive_attention_build,
    .call = additive_attention_call,
};

mu_layer *mu_additive_attention_with(const mu_additive_attention_args *args)
{
    return mu__layer_make(&mu__additive_attention_ops, args);
}

// ---- Several heads ------------------------------------------------------------------------------

// What the classes with several heads have in common, from the options of either.
typedef struct heads {
    int queries, keys;                          // numbers of heads; keys divides queries
    int key_dim, value_dim, output_dim, window; // output_dim, window: 0: the query's features; no window
    int n_axes;                                 // of the inputs, to attend along
    const int *axes;
    double dropout;
    bool no_bias, gate, causal, returns_scores;
    const void *kernel_initializer, *kernel_regularizer, *kernel_constraint;
    const void *bias_initializer, *bias_regularizer, *bias_constraint;
} heads;

#define HEADS_OPTIONS(a)                                                                                    \
    .window = (a)->sliding_window, .dropout = (a)->dropout, .no_bias = (a)->no_bias, .gate = (a)->use_gate, \
    .causal = (a)->use_causal_mask, .returns_scores = (a)->return_attention_scores,                         \
    .kernel_initializer = (a)->kernel_initializer, .bias_initializer = (a)->bias_initializer,               \
    .kernel_regularizer = (a)->kernel_regularizer, .bias_regularizer = (a)->bias_regularizer,               \
    .kernel_constraint = (a)->kernel_constraint, .bias_constraint = (a)->bias_constraint

#define HEADS_FIELDS(type)                                                                                     \
    MU_FIELD(type, dropout, DOUBLE, .limit = MU_BELOW_ONE), MU_FIELD(type, no_bias, NOT, .keras = "use_bias"), \
        MU_FIELD(type, sliding_window, INT, .limit = MU_NOT_NEGATIVE, .none = true),                           \
        MU_FIELD_WEIGHT(type, kernel, "glorot_uniform"), MU_FIELD_WEIGHT(type, bias, "zeros"),                 \
        MU_FIELD(type, use_gate, FLAG), MU_FIELD(type, seed, SEED),                                            \
        MU_FIELD(type, use_causal_mask, FLAG, .in_call = true),                                                \
        MU_FIELD(type, return_attention_scores, FLAG, .in_call = true), MU_LAYER_FIELDS(type)

static mu_status projection_build(mu_layer *layer, const heads *h, const char *kernel, mu_shape kernel_shape,
                                  const char *bias, mu_shape bias_shape)
{
    MU_TRY(mu__weight(layer, kernel, kernel_shape, MU_OPTIONS_OF(h, kernel)));
    return h->no_bias ? MU_OK : mu__weight(layer, bias, bias_shape, MU_OPTIONS_OF(h, bias));
}

// In the order in which Keras makes them.
static mu_status heads_build(mu_layer *layer, const heads *h, int n, const mu_shape *inputs, const uint64_t *seed)
{
    const int last = inputs[0].rank - 1;
    MU_TRY(need_operands(layer, n, inputs, 4));
    MU_TRY(mu__attention_axes_check(layer, MU_MIN(n, 3), inputs, h->n_axes, h->axes));
    const int64_t query = inputs[0].dims[last], value = inputs[1].dims[last], key = inputs[n > 2 ? 2 : 1].dims[last];
    const int64_t output = h->output_dim ? h->output_dim : query;
    MU_TRY(projection_build(layer, h, "query/kernel", MU_SHAPE(query, h->queries, h->key_dim), "query/bias",
                            MU_SHAPE(h->queries, h->key_dim)));
    MU_TRY(projection_build(layer, h, "key/kernel", MU_SHAPE(key, h->keys, h->key_dim), "key/bias",
                            MU_SHAPE(h->keys, h->key_dim)));
    if (h->gate)
        MU_TRY(projection_build(layer, h, "gate/kernel", MU_SHAPE(query, h->queries, h->value_dim), "gate/bias",
                                MU_SHAPE(h->queries, h->value_dim)));
    MU_TRY(projection_build(layer, h, "value/kernel", MU_SHAPE(value, h->keys, h->value_dim), "value/bias",
                            MU_SHAPE(h->keys, h->value_dim)));
    MU_TRY(projection_build(layer, h, "attention_output/kernel", MU_SHAPE(h->queries, h->value_dim, output),
                            "attention_output/bias", MU_SHAPE(output)));
    return h->dropout > 0 ? mu__weight_seed(layer, seed) : MU_OK;
}

// x [batch, steps, features] to [batch, heads, steps, size].
static mu_tensor *project(const mu_layer *layer, mu_tensor *x, const char *kernel, const char *bias)
{
    mu_tensor *both[] = {x, mu__weight_read(layer, kernel)}, *shift = mu__weight_read(layer, bias);
    mu_tensor *y = both[0] && both[1] ? mu_einsum("abc,cde->adbe", 2, both) : NULL;
    return shift ? mu_add(y, mu_expand_dims(shift, 1)) : y;
}

static mu_tensor *project_output(const mu_layer *layer, mu_tensor *taken)
{
    mu_tensor *both[] = {taken, mu__weight_read(layer, "attention_output/kernel")};
    mu_tensor *shift = mu__weight_read(layer, "attention_output/bias");
    mu_tensor *y = both[0] && both[1] ? mu_einsum("abcd,bde->ace", 2, both) : NULL;
    return shift ? mu_nn_bias_add(y, shift) : y;
}

// Whether the fused op's causal mask, which aligns the last query with the last key, is the required one.
static bool causal_is_fused(const heads *h, const operands *o)
{
    const int64_t queries = mu_tensor_dim(o->query, 1);
    return h->causal && !h->window && queries != MU_UNKNOWN && queries == mu_tensor_dim(o->value, 1);
}

// The mask that broadcasts to [batch, heads, queries, keys]; NULL: none.
static mu_tensor *heads_mask(const heads *h, const operands *o, bool with_causal)
{
    mu_tensor *mask = o->query_mask ? mu_expand_dims(o->query_mask, -1) : NULL;
    mask = both(mask, o->value_mask ? mu_expand_dims(o->value_mask, -2) : NULL);
    mask = both(mask, o->key_mask ? mu_expand_dims(o->key_mask, -2) : NULL);
    mask = both(mask, with_causal ? causal_mask(o) : NULL);
    mask = both(mask, h->window ? window_mask(o, h->window) : NULL);
    if (mask && mu_tensor_rank(mask) == 3)
        mask = mu_expand_dims(mask, 1);
    mu_tensor *given =
        o->given_mask && mu_tensor_rank(o->given_mask) == 3 ? mu_expand_dims(o->given_mask, 1) : o->given_mask;
    return both(mask, given);
}

// The weights of the keys; those of masked keys are 0.
static mu_tensor *head_weights(const heads *h, mu_tensor *query, mu_tensor *key, mu_tensor *mask)
{
    if (!query)
        return NULL;
    mu_tensor *scaled = mu_multiply(query, mu_constant(query->dtype, 1 / sqrt(h->key_dim)));
    mu_tensor *scores = mu_matmul_transposed(scaled, key, false, true);
    if (!mask)
        return mu_nn_softmax(scores, -1);
    mu_tensor *lowest = mu_constant(query->dtype, query->dtype == MU_F16 ? -3e4 : -1e9);
    mu_tensor *weights = mu_nn_softmax(mu_where(mask, scores, lowest), -1);
    return mu_where(mask, weights, mu_zeros_like(weights));
}

// Steps along several axes have no order.
static mu_status need_order(const mu_layer *layer, const heads *h, const mu_attention_axes *axes)
{
    if (axes->n == 1 || (!h->causal && !h->window))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s': %s needs an order of the steps, but queries attend along %d axes of inputs of rank "
                     "%d; give one axis (.attention_axes), or join axes in front of the layer with mu_reshape_layer",
                     mu_layer_name(layer), h->causal ? ".use_causal_mask" : ".sliding_window", axes->n, axes->rank);
}

// The operands as sequences, and their masks as those of sequences.
static mu_status fold(const mu_layer *layer, const heads *h, operands *o, mu_attention_axes *axes)
{
    MU_TRY(mu__attention_axes_find(layer, mu_tensor_rank(o->query), h->n_axes, h->axes, axes));
    if (mu__attention_is_plain(axes))
        return MU_OK;
    MU_TRY(need_order(layer, h, axes));
    const operands whole = *o;
    o->query = mu__attention_fold(axes, whole.query);
    o->value = mu__attention_fold(axes, whole.value);
    o->key = whole.key == whole.value ? o->value : mu__attention_fold(axes, whole.key);
    o->query_mask = mu__attention_fold_steps(axes, whole.query_mask, whole.query);
    o->value_mask = mu__attention_fold_steps(axes, whole.value_mask, whole.value);
    o->key_mask = mu__attention_fold_steps(axes, whole.key_mask, whole.key);
    o->given_mask = mu__attention_fold_pairs(layer, axes, whole.given_mask, whole.query, whole.key, h->queries);
    return mu_error_code();
}

// What the heads take, [batch, heads, queries, size], and the weights of the keys where they are computed, as in Keras
// for folded inputs with a mask.
static mu_tensor *take_by_heads(mu_layer *layer, const heads *h, const operands *o, bool folded,
                                const mu_call_context *context, mu_tensor **weights)
{
    const int group = h->queries / h->keys;
    mu_tensor *query = project(layer, o->query, "query/kernel", "query/bias");
    mu_tensor *key = project(layer, o->key, "key/kernel", "key/bias");
    mu_tensor *value = project(layer, o->value, "value/kernel", "value/bias");
    if (group > 1) {
        key = mu_repeat(key, group, 1);
        value = mu_repeat(value, group, 1);
    }
    mu_tensor *mask = folded || h->dropout > 0 || h->returns_scores ? heads_mask(h, o, h->causal) : NULL;
    if (h->dropout > 0 || h->returns_scores || mask) {
        *weights = head_weights(h, query, key, mask);
        return mu_matmul(drop(layer, *weights, h->dropout, context), value);
    }
    const bool fused = causal_is_fused(h, o);
    return mu_nn_attention(query, key, value, .mask = heads_mask(h, o, h->causal && !fused), .causal = fused,
                           .scale = 1 / sqrt(h->key_dim));
}

static mu_value *heads_call(mu_layer *layer, const heads *h, mu_value *inputs, const mu_call_context *context)
{
    operands o;
    if (find_operands(layer, inputs, context, &o) != MU_OK)
        return NULL;
    const mu_tensor *query = o.query, *key = o.key;
    mu_tensor *query_mask = o.query_mask;
    mu_attention_axes axes;
    if (fold(layer, h, &o, &axes) != MU_OK)
        return NULL;
    mu_tensor *weights = NULL;
    mu_tensor *taken = take_by_heads(layer, h, &o, !mu__attention_is_plain(&axes), context, &weights);
    if (h->gate)
        taken = mu_multiply(taken, mu_sigmoid(project(layer, o.query, "gate/kernel", "gate/bias")));
    mu_tensor *output = mu__attention_unfold(&axes, project_output(layer, taken), query);
    weights = h->returns_scores ? mu__attention_unfold_scores(&axes, weights, query, key) : NULL;
    return outputs_of(output, weights, query_mask, context);
}

static const mu_field multi_head_attention_fields[] = {
    MU_FIELD(mu_multi_head_attention_args, num_heads, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_multi_head_attention_args, key_dim, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_multi_head_attention_args, value_dim, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_multi_head_attention_args, output_shape, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    HEADS_FIELDS(mu_multi_head_attention_args),
    MU_FIELD(mu_multi_head_attention_args, attention_axes, INTS,
             .second = offsetof(mu_multi_head_attention_args, n_attention_axes)),
    {0},
};

static mu_status multi_head_attention_complete(void *arguments)
{
    mu_multi_head_attention_args *args = arguments;
    args->value_dim = args->value_dim ? args->value_dim : args->key_dim;
    return MU_OK;
}

static heads multi_heads(const mu_layer *layer)
{
    const mu_multi_head_attention_args *args = layer->args;
    return (heads){.queries = args->num_heads,
                   .keys = args->num_heads,
                   .key_dim = args->key_dim,
                   .value_dim = args->value_dim,
                   .output_dim = args->output_shape,
                   .n_axes = args->n_attention_axes,
                   .axes = args->attention_axes,
                   HEADS_OPTIONS(args)};
}

static mu_status multi_head_attention_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_multi_head_attention_args *args = layer->args;
    const heads h = multi_heads(layer);
    return heads_build(layer, &h, n, inputs, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *multi_head_attention_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const heads h = multi_heads(layer);
    return heads_call(layer, &h, inputs, context);
}

const mu_layer_ops mu__multi_head_attention_ops = {
    .class = {"multi_head_attention", "MultiHeadAttention", "mu_multi_head_attention",
              MU_OPTIONS(mu_multi_head_attention_args), multi_head_attention_fields, multi_head_attention_complete},
    .takes_several = true,
    .build = multi_head_attention_build,
    .call = multi_head_attention_call,
};

mu_layer *mu_multi_head_attention_with(const mu_multi_head_attention_args *args)
{
    return mu__layer_make(&mu__multi_head_attention_ops, args);
}

// ---- Heads in groups ----------------------------------------------------------------------------

static const mu_field grouped_query_attention_fields[] = {
    MU_FIELD(mu_grouped_query_attention_args, head_dim, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_grouped_query_attention_args, num_query_heads, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_grouped_query_attention_args, num_key_value_heads, INT, .limit = MU_POSITIVE),
    HEADS_FIELDS(mu_grouped_query_attention_args),
    {0},
};

static mu_status grouped_query_attention_complete(void *arguments)
{
    const mu_grouped_query_attention_args *args = arguments;
    if (args->num_query_heads % args->num_key_value_heads == 0)
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "mu_grouped_query_attention: num_query_heads is %d, which num_key_value_heads, %d, does not divide",
        args->num_query_heads, args->num_key_value_heads);
}

static heads grouped_heads(const mu_layer *layer)
{
    const mu_grouped_query_attention_args *args = layer->args;
    return (heads){.queries = args->num_query_heads,
                   .keys = args->num_key_value_heads,
                   .key_dim = args->head_dim,
                   .value_dim = args->head_dim,
                   HEADS_OPTIONS(args)};
}

static mu_status grouped_query_attention_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_grouped_query_attention_args *args = layer->args;
    const heads h = grouped_heads(layer);
    return heads_build(layer, &h, n, inputs, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *grouped_query_attention_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const heads h = grouped_heads(layer);
    return heads_call(layer, &h, inputs, context);
}

const mu_layer_ops mu__grouped_query_attention_ops = {
    .class = {"grouped_query_attention", "GroupQueryAttention", "mu_grouped_query_attention",
              MU_OPTIONS(mu_grouped_query_attention_args), grouped_query_attention_fields,
              grouped_query_attention_complete},
    .takes_several = true,
    .build = grouped_query_attention_build,
    .call = grouped_query_attention_call,
};

mu_layer *mu_grouped_query_attention_with(const mu_grouped_query_attention_args *args)
{
    return mu__layer_make(&mu__grouped_query_attention_ops, args);
}
