// Attention layers: traces of unknown lengths, dropout, replicas, names of weights, and refusals. Their results are
// compared with Keras's in tests/conformance/attention.py.
#include "model/core/layer.h"
#include "model_test.h"

#include <muster/attention.h>

static mu_tensor *steps(int64_t batch, int64_t n, int64_t features, uint64_t seed)
{
    return numbers(3, (int64_t[]){batch, n, features}, seed);
}

static mu_tensor *attended(mu_layer *layer, mu_tensor *query, mu_tensor *value, bool training)
{
    mu_tensor *y = mu_call(layer, .inputs = mu_list(query, value, MU_END), .training = training);
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static mu_layer *layer_of(int kind)
{
    switch (kind) {
    case 0: return mu_attention(.use_causal_mask = true);
    case 1: return mu_additive_attention(.use_causal_mask = true);
    case 2: return mu_multi_head_attention(2, 3, .use_causal_mask = true, .sliding_window = 3);
    default: return mu_grouped_query_attention(3, 4, 2, .use_causal_mask = true);
    }
}

// A model traced for unknown lengths gives the results of the layer for known lengths.
static void any_length(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        mu_layer *layer = layer_of(kind);
        mu_tensor *a = mu_input({MU_UNKNOWN, 4}), *b = mu_input({MU_UNKNOWN, 4});
        mu_model *model =
            mu_model_new(.inputs = mu_list(a, b, MU_END), .output = mu_call(layer, .inputs = mu_list(a, b, MU_END)));
        for (int n = 1; n < 6; n += 2) {
            mu_tensor *query = steps(2, n, 4, 1), *value = steps(2, 5, 4, 2);
            mu_tensor *wanted = attended(layer, query, value, false), *seen = attended(model, query, value, false);
            assert_near(doubles(seen), doubles(wanted), mu_tensor_elements(wanted), 1e-14);
        }
    }
}

// A query that looks at the first key alone gets the first value, projected.
static void causal_queries(void **state)
{
    (void)state;
    mu_tensor *x = steps(1, 5, 4, 1);
    for (int kind = 0; kind < 4; kind++) {
        mu_layer *layer = layer_of(kind);
        const double *all = doubles(attended(layer, x, x, false));
        mu_tensor *first = mu_slice(x, (int64_t[]){0, 0, 0}, (int64_t[]){1, 1, 4});
        assert_near(doubles(attended(layer, first, first, false)), all, 4, 1e-14);
    }
}

static void drops_weights(void **state)
{
    (void)state;
    mu_layer *layer = mu_multi_head_attention(2, 3, .dropout = .5, .seed = 4, .return_attention_scores = true);
    mu_value *x = mu_list(steps(2, 5, 4, 1), steps(2, 6, 4, 2), MU_END);
    mu_value *first = mu_call_values(layer, .inputs = x, .training = true);
    mu_value *second = mu_call_values(layer, .inputs = x, .training = true);
    assert_int_equal(mu_value_count(first), 2);
    assert_memory_not_equal(doubles(mu_at(first, 0)), doubles(mu_at(second, 0)), 40 * sizeof(double));
    assert_near(doubles(mu_at(first, 1)), doubles(mu_at(second, 1)), 2 * 2 * 5 * 6, 0); // scores before dropout
    const double *weights = doubles(mu_at(first, 1));
    for (int i = 0; i < 20; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++)
            sum += weights[i * 6 + k];
        assert_number(sum, 1, 1e-14);
    }
}

static void weights_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {"query/kernel",
                                        "query/bias",
                                        "key/kernel",
                                        "key/bias",
                                        "gate/kernel",
                                        "gate/bias",
                                        "value/kernel",
                                        "value/bias",
                                        "attention_output/kernel",
                                        "attention_output/bias"};
    mu_layer *layer = mu_multi_head_attention(2, 3, .use_gate = true, .value_dim = 5, .output_shape = 7);
    attended(layer, steps(1, 2, 4, 1), steps(1, 3, 6, 2), false);
    mu_value *weights = mu_model_weights(layer);
    assert_int_equal(mu_value_count(weights), 10);
    for (int i = 0; i < 10; i++) {
        mu_variable *variable = (mu_variable *)mu_value_at(weights, i)->leaf;
        assert_ptr_equal(mu_layer_weight(layer, names[i]), variable);
    }
    const mu_shape output = mu_variable_shape(mu_layer_weight(layer, "attention_output/kernel"));
    assert_int_equal(output.dims[0], 2);
    assert_int_equal(output.dims[1], 5);
    assert_int_equal(output.dims[2], 7);
}

static mu_model *masked_attention(void)
{
    mu_tensor *x = mu_input({4}, .dtype = MU_I64);
    mu_tensor *e = mu_call(mu_embedding(6, 4, .mask_zero = true), x);
    mu_tensor *y = mu_call(mu_multi_head_attention(2, 3), .inputs = mu_list(e, e, MU_END));
    return mu_model_new(x, mu_call(mu_dense(2), mu_call(mu_global_average_pool1d(), y)));
}

static void replicas_train_alike(void **state)
{
    (void)state;
    mu_tensor *words = mu_reshape(classes(14 * 4, 6, 3), 2, (int64_t[]){14, 4});
    mu_value *all = mu_list(words, classes(14, 2, 5), MU_END);
    check_replicas_train_alike(masked_attention, mu_dataset_batch(mu_dataset_from_tensor_slices(all), 5));
}

// Operands without an entry in .masks use the mask that they carry, as in Keras; an empty list of masks means that
// there are none.
static void operands_keep_masks_that_they_carry(void **state)
{
    (void)state;
    mu_tensor *tokens = mu_tensor_new(MU_I64, 2, (int64_t[]){2, 3}, (int64_t[]){1, 0, 2, 2, 1, 0});
    mu_tensor *memory = numbers(3, (int64_t[]){2, 4, 5}, 1), *in = mu_input({3}, .dtype = MU_I64);
    mu_tensor *given = mu_tensor_new(MU_BOOL, 2, (int64_t[]){2, 4}, (bool[]){1, 0, 1, 1, 1, 1, 0, 0});
    mu_layer *table = mu_embedding(3, 5, .mask_zero = true);
    mu_value *none = mu_list_of(0, NULL), *mixed = mu_list(none, given, MU_END);
    for (int i = 2; i < 4; i++) {
        mu_layer *layer = i == 2 ? mu_multi_head_attention(2, 3) : mu_grouped_query_attention(3, 4, 2);
        mu_tensor *x = mu_call(table, tokens), *carried = mu_mask_of(x);
        mu_value *both = mu_list(x, memory, MU_END);
        mu_tensor *seen = mu_call(layer, .inputs = both, .masks = mixed);
        mu_tensor *wanted = mu_call(layer, .inputs = both, .masks = mu_list(carried, given, MU_END));
        assert_near(doubles(seen), doubles(wanted), 2 * 3 * 5, 0);
        assert_ptr_equal(mu_mask_of(seen), carried);
        assert_null(mu_mask_of(mu_call(layer, .inputs = both, .masks = none)));
        mu_tensor *y = mu_call(layer, .inputs = mu_list(mu_call(table, in), memory, MU_END), .masks = mixed);
        assert_near(doubles(mu_call(mu_model_new(in, y), tokens)), doubles(wanted), 2 * 3 * 5, 0);
    }
}

// Inputs of rank 4 are sequences of a larger batch, with their masks.
static void deep_inputs_are_sequences(void **state)
{
    (void)state;
    const int64_t flat[] = {6, 4, 2};
    mu_tensor *query = numbers(4, (int64_t[]){2, 3, 4, 2}, 1), *value = numbers(4, (int64_t[]){2, 3, 4, 2}, 2);
    mu_tensor *mask =
        mu_reshape(mu_greater(numbers(1, (int64_t[]){24}, 3), mu_constant(MU_F64, -.2)), 3, (int64_t[]){2, 3, 4});
    mu_tensor *flat_mask = mu_reshape(mask, 2, flat);
    mu_layer *layers[] = {mu_attention(.use_causal_mask = true), mu_additive_attention(),
                          mu_multi_head_attention(2, 3, .attention_axes = (int[]){2}, .n_attention_axes = 1,
                                                  .use_causal_mask = true, .sliding_window = 3)};
    // With .dropout the weights of whole sequences are computed too, so that a query without a key gets zeros there as
    // well.
    for (size_t i = 0; i < MU_COUNT(layers); i++) {
        mu_tensor *seen =
            mu_call(layers[i], .inputs = mu_list(query, value, MU_END), .masks = mu_list(mask, mask, MU_END));
        mu_layer *again =
            i < 2 ? layers[i]
                  : mu_multi_head_attention(2, 3, .use_causal_mask = true, .dropout = .5, .sliding_window = 3);
        mu_value *sequences = mu_list(mu_reshape(query, 3, flat), mu_reshape(value, 3, flat), MU_END);
        mu_value *masks = mu_list(flat_mask, flat_mask, MU_END);
        mu_tensor *wanted = mu_call(again, .inputs = sequences, .masks = masks);
        if (i == 2) {
            mu_value *to = mu_model_weights(again), *from = mu_model_weights(layers[i]);
            for (int w = 0; w < mu_value_count(to); w++)
                mu_variable_assign(mu_value_variable(mu_value_at(to, w)),
                                   mu_variable_read(mu_value_variable(mu_value_at(from, w))));
            wanted = mu_call(again, .inputs = sequences, .masks = masks);
        }
        assert_ptr_equal(mu_mask_of(seen), mask);
        assert_near(doubles(seen), doubles(wanted), 48, 1e-14);
    }
}

// Masks of pairs may have size 1 along any axis but the batch's: a padding mask has size 1 along queries and heads.
static void masks_of_pairs_spread(void **state)
{
    (void)state;
    mu_tensor *x = numbers(4, (int64_t[]){2, 3, 4, 2}, 1);
    mu_layer *layer = mu_multi_head_attention(2, 3, .attention_axes = (int[]){2}, .n_attention_axes = 1);
    mu_tensor *padding =
        mu_reshape(mu_greater(numbers(1, (int64_t[]){8}, 3), mu_constant(MU_F64, -.2)), 4, (int64_t[]){2, 1, 1, 4});
    mu_tensor *whole = mu_logical_and(padding, mu_ones(MU_BOOL, 4, (int64_t[]){1, 3, 4, 4}));
    mu_tensor *heads = mu_logical_and(mu_expand_dims(padding, 2), mu_ones(MU_BOOL, 5, (int64_t[]){1, 1, 2, 4, 1}));
    mu_tensor *wanted = mu_call(layer, .inputs = mu_list(x, x, x, whole, MU_END));
    mu_tensor *given[] = {padding, mu_logical_and(padding, mu_ones(MU_BOOL, 4, (int64_t[]){1, 1, 4, 1})), heads};
    for (size_t i = 0; i < MU_COUNT(given); i++) {
        mu_tensor *seen = mu_call(layer, .inputs = mu_list(x, x, x, given[i], MU_END));
        assert_non_null(seen);
        assert_near(doubles(seen), doubles(wanted), 48, 1e-14);
    }
    mu_tensor *three = mu_ones(MU_BOOL, 5, (int64_t[]){2, 3, 3, 4, 4});
    assert_null(mu_call(layer, .inputs = mu_list(x, x, x, three, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "the mask must be [batch, axes not attended along, 2 heads, the query's axes");
}

// Axes before those of queries and keys are treated as one batch, also in a layer that is already built.
static void batches_of_batches_agree(void **state)
{
    (void)state;
    mu_tensor *query = numbers(4, (int64_t[]){2, 2, 3, 4}, 1), *value = steps(2, 3, 4, 1);
    mu_tensor *other = numbers(4, (int64_t[]){2, 1, 3, 4}, 1);
    mu_layer *layers[] = {mu_attention(), mu_additive_attention()};
    for (int i = 0; i < 4; i++) {
        assert_null(mu_call(layers[i / 2], .inputs = mu_list(query, i % 2 ? other : value, MU_END)));
        expect_error(MU_INVALID_ARGUMENT, "agree in rank and in the axes in front of the queries and keys");
    }
    for (int i = 0; i < 2; i++) {
        assert_non_null(mu_call(layers[i], .inputs = mu_list(query, query, MU_END)));
        assert_null(mu_call(layers[i], .inputs = mu_list(query, value, MU_END)));
        expect_error(MU_INVALID_ARGUMENT, "agree in rank and in the axes in front of the queries and keys");
    }
}

static void refuses(void **state)
{
    (void)state;
    mu_tensor *x = steps(2, 3, 4, 1);
    assert_null(mu_multi_head_attention(0, 3));
    expect_error(MU_INVALID_ARGUMENT, "num_heads is 0; it must be 1 or more");
    assert_null(mu_grouped_query_attention(2, 3, 2));
    expect_error(MU_INVALID_ARGUMENT, "num_query_heads is 3, which num_key_value_heads, 2, does not divide");
    assert_null(mu_attention(.score_mode = "sum"));
    expect_error(MU_INVALID_ARGUMENT, "score_mode is 'sum'; it must be one of 'dot', 'concat'");
    assert_null(mu_call(mu_attention(), x));
    expect_error(MU_INVALID_ARGUMENT, "takes query, value and, optionally, key; it was given 1 tensor.");
    assert_null(mu_call(mu_additive_attention(), .inputs = mu_list(x, x, x, x, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "it was given 4 tensors");
    mu_tensor *deep = numbers(4, (int64_t[]){2, 3, 4, 2}, 1);
    mu_tensor *rows = mu_ones(MU_BOOL, 2, (int64_t[]){2, 3});
    assert_null(mu_call(mu_grouped_query_attention(2, 4, 2), .inputs = mu_list(deep, deep, MU_END), .mask = rows));
    expect_error(
        MU_INVALID_ARGUMENT,
        "its mask has shape [2, 3] and its input [2, 3, 4, 2]; the mask must have the first 3 axes of the input");
    assert_null(mu_call(mu_attention(), .inputs = mu_list(deep, deep, MU_END), .mask = rows));
    expect_error(MU_INVALID_ARGUMENT, "its mask has shape [2, 3]");
    assert_null(mu_call(mu_multi_head_attention(2, 3, .use_causal_mask = true), .inputs = mu_list(deep, deep, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, ".use_causal_mask needs an order of the steps, but queries attend along 2 axes");
    assert_null(mu_call(mu_multi_head_attention(2, 3),
                        .inputs = mu_list(deep, deep, deep, mu_ones(MU_F64, 3, (int64_t[]){2, 12, 12}), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "the mask of pairs has shape [2, 12, 12], the query [2, 3, 4, 2]");
    assert_null(mu_call(mu_multi_head_attention(2, 3, .attention_axes = (int[]){3}, .n_attention_axes = 1),
                        .inputs = mu_list(deep, deep, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "attention_axes[0] is 3; for inputs of rank 4, expected distinct axes");
    assert_null(mu_call(mu_multi_head_attention(2, 3, .attention_axes = (int[]){2}, .n_attention_axes = 1),
                        .inputs = mu_list(deep, numbers(4, (int64_t[]){2, 5, 4, 2}, 1), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "must agree in rank and in the axes that are not attended along");
    const bool bits[] = {true, false, true};
    mu_tensor *mask = mu_tensor_new(MU_BOOL, 2, (int64_t[]){1, 3}, bits);
    assert_null(mu_call(mu_attention(), x, .mask = mask, .masks = mu_list(mask, mask, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "mask and .masks are both given");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(any_length),
        MODEL_TEST(causal_queries),
        MODEL_TEST(drops_weights),
        MODEL_TEST(weights_have_names),
        MODEL_TEST(replicas_train_alike),
        MODEL_TEST(deep_inputs_are_sequences),
        MODEL_TEST(masks_of_pairs_spread),
        MODEL_TEST(batches_of_batches_agree),
        MODEL_TEST(refuses),
        MODEL_TEST(operands_keep_masks_that_they_carry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
