// Masks of steps in layers around other layers: which layers get them, which mask the result carries, and which shapes
// masks may have.
#include "model_test.h"

#include <muster/attention.h>
#include <muster/recurrent.h>

static mu_tensor *mask_of(int rank, const int64_t *dims, const bool *bits)
{
    return mu_tensor_new(MU_BOOL, rank, dims, bits);
}

// A mask of rows does not apply to the elements of a row, whatever else is called beside the layer that asks for rows.
static void rows_are_no_classes(void **state)
{
    (void)state;
    mu_layer *softmax = mu_softmax(), *last = mu_batch_normalization(.momentum = 0);
    mu_layer *both = mu_sequential(softmax, last);
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){2, 1, 2}, (double[]){0, 1, 2, 5});
    mu_tensor *mask = mask_of(2, (int64_t[]){2, 1}, (bool[]){true, false});
    assert_non_null(mu_call(mu_time_distributed(both), x, .mask = mask, .training = true));
    const double *mean = doubles(mu_variable_read(mu_layer_weight(last, "moving_mean")));
    assert_near(mean, (double[]){1 / (1 + exp(1)), 1 / (1 + exp(-1))}, 2, 1e-6);
}

// Returns the mean that a batch normalization inside of `inner` has seen in a call with a mask that excludes step 1 of
// row 0.
static void sees_rows(mu_layer *inner, mu_layer *normalization, mu_tensor *x, bool training)
{
    mu_tensor *mask = mask_of(2, (int64_t[]){2, 3}, (bool[]){true, false, true, true, true, true});
    assert_non_null(mu_call(mu_time_distributed(inner), x, .mask = mask, .training = training));
    assert_non_null(mu_layer_weight(normalization, "moving_mean"));
}

static mu_value *recurrent_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_layer *steps = mu_layer_attribute(layer, "steps"), *last = mu_layer_attribute(layer, "last");
    return mu_of(mu_call(last, mu_call(steps, mu_at(inputs, 0))));
}

static void rows_pass_layers_that_do_not_ask(void **state)
{
    (void)state;
    mu_tensor *x = numbers(4, (int64_t[]){2, 3, 4, 5}, 1);
    for (int training = 0; training < 2; training++) {
        mu_layer *last = mu_batch_normalization();
        sees_rows(mu_sequential(mu_lstm(3), last), last, x, training);
        last = mu_batch_normalization();
        sees_rows(mu_sequential(mu_global_average_pool1d(), last), last, x, training);
        last = mu_batch_normalization();
        sees_rows(last, last, x, training);
        last = mu_batch_normalization();
        mu_layer *own = mu_layer_new("own", .call = recurrent_call);
        mu_layer_set_attribute(own, "steps", mu_lstm(3));
        mu_layer_set_attribute(own, "last", last);
        sees_rows(own, last, x, training);
        last = mu_batch_normalization();
        sees_rows(mu_time_distributed(last), last, x, training);
    }
}

// The excluded row does not contribute to what a normalization behind another layer has seen last.
static void rows_reach_what_asks(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){2, 1, 2, 1}, (double[]){1, 3, 100, 300});
    mu_tensor *mask = mask_of(2, (int64_t[]){2, 1}, (bool[]){true, false});
    mu_layer *behind = mu_batch_normalization(.momentum = 0), *deep = mu_batch_normalization(.momentum = 0),
             *nested = mu_batch_normalization(.momentum = 0);
    mu_layer *inner[] = {mu_sequential(mu_global_average_pool1d(), behind), deep, mu_time_distributed(nested)};
    mu_layer *seen[] = {behind, deep, nested};
    static const double wanted[] = {2, 2, 3};
    for (int i = 0; i < 3; i++) {
        assert_non_null(mu_call(mu_time_distributed(inner[i]), x, .mask = mask, .training = true));
        assert_number(doubles(mu_variable_read(mu_layer_weight(seen[i], "moving_mean")))[0], wanted[i], 1e-6);
    }
}

// Words in sentences: the result for a sentence counts if one of its words does.
static void outputs_have_masks_of_their_axes(void **state)
{
    (void)state;
    mu_tensor *words = mu_tensor_new(MU_I64, 3, (int64_t[]){1, 3, 4}, (int64_t[]){1, 2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0});
    mu_tensor *h = mu_call(mu_embedding(9, 3, .mask_zero = true), words);
    for (int units = 4; units < 6; units++) {
        mu_tensor *sentences = mu_call(mu_time_distributed(mu_lstm(units)), h), *mask = mu_mask_of(sentences);
        assert_int_equal(mu_tensor_rank(mask), 2);
        assert_near(doubles(mu_cast(mask, MU_F64)), (double[]){1, 0, 1}, 3, 0);
        mu_tensor *again = mu_call(mu_time_distributed(mu_dense(2)), sentences);
        assert_non_null(mu_call(mu_lstm(2), again));
        assert_non_null(mu_call(mu_multi_head_attention(2, 3), .inputs = mu_list(again, again, MU_END)));
    }
    mu_tensor *kept = mu_call(mu_time_distributed(mu_lstm(5, .return_sequences = true)), h);
    assert_int_equal(mu_tensor_rank(mu_mask_of(kept)), 3);
    mu_tensor *input = mu_input({3, 4}, .dtype = MU_I64);
    mu_tensor *y = mu_call(mu_time_distributed(mu_lstm(5)), mu_call(mu_embedding(9, 3, .mask_zero = true), input));
    mu_model *model = mu_model_new(input, mu_call(mu_lstm(2), mu_call(mu_time_distributed(mu_dense(2)), y)));
    assert_non_null(mu_call(model, words));
}

// An axis of size 1 counts for all steps, or none.
static void one_counts_for_all(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){2, 3, 2}, 1);
    mu_tensor *column = mask_of(2, (int64_t[]){2, 1}, (bool[]){true, false});
    mu_tensor *whole = mask_of(2, (int64_t[]){2, 3}, (bool[]){true, true, true, false, false, false});
    mu_layer *layers[] = {mu_global_average_pool1d(), mu_lstm(3), mu_time_distributed(mu_batch_normalization())};
    for (int i = 0; i < 3; i++) {
        mu_tensor *wanted = mu_call(layers[i], x, .mask = whole, .training = true);
        mu_tensor *seen = mu_call(layers[i], x, .mask = column, .training = true);
        assert_non_null(seen);
        assert_near(doubles(seen), doubles(wanted), 2, 1e-15);
    }
}

static mu_value *count_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)arg;
    mu_tensor *counted = mu_cast(mu_at(context->mask, 0), MU_F64);
    while (counted && mu_tensor_rank(counted) > 1)
        counted = mu_reduce_sum(counted, -1);
    return mu_of(mu_add(mu_multiply(mu_at(inputs, 0), mu_constant(MU_F64, 0)), mu_expand_dims(counted, -1)));
}

// After the steps a mask may have further axes: the inner layer gets those of its step, as in Keras. The mask of the
// outputs has the axes that the outputs have, here none of the further ones.
static void masks_have_any_axes_behind_the_steps(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, 1);
    const int64_t dims[] = {2, 3, 5, 1};
    bool bits[30];
    for (int i = 0; i < 30; i++)
        bits[i] = i % 7 < 2;
    for (int rank = 3; rank <= 4; rank++) {
        mu_tensor *mask = mask_of(rank, dims, bits);
        mu_layer *dense = mu_time_distributed(mu_dense(2));
        mu_tensor *y = mu_call(dense, x, .mask = mask), *plain = mu_call(dense, x);
        assert_non_null(y);
        assert_near(doubles(y), doubles(plain), 12, 0);
        assert_int_equal(mu_tensor_rank(mu_mask_of(y)), 2);
        mu_tensor *seen = mu_call(mu_time_distributed(mu_layer_new("count", .call = count_call)), x, .mask = mask);
        assert_non_null(seen);
        for (int step = 0; step < 6; step++) {
            int wanted = 0;
            for (int i = 0; i < 5; i++)
                wanted += bits[5 * step + i];
            assert_number(doubles(seen)[4 * step], wanted, 0);
        }
    }
    mu_tensor *spread = mu_call(mu_time_distributed(mu_layer_new("count", .call = count_call)), x,
                                .mask = mask_of(3, (int64_t[]){2, 1, 5}, bits));
    assert_non_null(spread);
    for (int step = 0; step < 6; step++)
        assert_number(doubles(spread)[4 * step], doubles(spread)[12 * (step / 3)], 0);
    assert_null(mu_call(mu_time_distributed(mu_dense(2)), x, .mask = mu_ones(MU_BOOL, 3, (int64_t[]){2, 2, 4})));
    expect_error(MU_INVALID_ARGUMENT, "the mask must have the first 2 axes of the input");
    assert_null(mu_call(mu_time_distributed(mu_softmax()), x, .mask = mu_ones(MU_BOOL, 3, (int64_t[]){2, 3, 5})));
    expect_error(MU_INVALID_ARGUMENT, "softmax");
}

static mu_value *inner_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_call(mu_layer_attribute(layer, "steps"), mu_at(inputs, 0)));
}

// A layer of the program's own is built by its first call, also by one in training whose number of steps is unknown;
// only layers whose order of calls turns out to matter are refused.
static void first_calls_of_any_length(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mu_layer *own = mu_layer_new("own", .call = inner_call);
        mu_layer_set_attribute(own, "steps", i ? mu_batch_normalization() : mu_dense(2));
        mu_tensor *y = mu_call(mu_time_distributed(own), mu_input({MU_UNKNOWN, 4}), .training = true);
        assert_int_equal(y == NULL, i);
        if (i)
            expect_error(MU_INVALID_ARGUMENT, "has weights that its calls change, so the number of steps must be");
    }
}

// A call that runs out of memory leaves no mask of rows behind.
static void failed_calls_leave_no_rows(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){2, 3, 2}, 1), *rows = mu_ones(MU_BOOL, 2, (int64_t[]){2, 3});
    mu_layer *layer = mu_time_distributed(mu_sequential(mu_softmax(), mu_batch_normalization()));
    assert_non_null(mu_call(layer, x, .mask = rows, .training = true));
    int code = MU_RESOURCE_EXHAUSTED, failures = 0;
    for (long n = 1; code == MU_RESOURCE_EXHAUSTED; n++, failures++) {
        mu__alloc_fail_at(n);
        mu_tensor *y = mu_call(layer, x, .mask = rows, .training = true);
        mu__alloc_fail_at(0);
        code = mu_error_take().code;
        assert_int_equal(y != NULL, code == MU_OK);
        assert_ptr_equal(mu__row_mask_set(NULL), NULL);
    }
    assert_int_equal(code, MU_OK);
    assert_true(failures > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(rows_are_no_classes),       MODEL_TEST(rows_pass_layers_that_do_not_ask),
        MODEL_TEST(rows_reach_what_asks),      MODEL_TEST(outputs_have_masks_of_their_axes),
        MODEL_TEST(one_counts_for_all),        MODEL_TEST(masks_have_any_axes_behind_the_steps),
        MODEL_TEST(first_calls_of_any_length), MODEL_TEST(failed_calls_leave_no_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
