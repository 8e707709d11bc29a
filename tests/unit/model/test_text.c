// Layers for strings and categories: what they refuse, and how a vocabulary gets into a dataset and a configuration.
// What they compute is compared with Keras (tests/conformance/datasets.py).
#include "model/core/layer.h"
#include "model_test.h"

#include <muster/text.h>

static const char *const animals[] = {"cat", "dog"};

static mu_tensor *words(void)
{
    return mu_tensor_strings(1, (int64_t[]){4}, (const char *const[]){"dog", "cow", "cat", ""});
}

static void assert_longs(mu_tensor *tensor, int n, const int64_t *wanted)
{
    if (!tensor)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_tensor_elements(tensor), n);
    assert_memory_equal(mu_tensor_data(tensor), wanted, (size_t)n * sizeof *wanted);
}

static void lookups_find_tokens(void **state)
{
    (void)state;
    mu_layer *layer = mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2);
    assert_longs(mu_call(layer, words()), 4, (int64_t[]){2, 0, 1, 0});
    assert_longs(mu_call(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .mask_token = ""), words()), 4,
                 (int64_t[]){3, 1, 2, 0});
    assert_null(mu_call(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .num_oov_indices = 0), words()));
    expect_error(MU_INVALID_ARGUMENT, "\"cow\" is not in the vocabulary, and num_oov_indices is 0");
    assert_null(mu_call(mu_string_lookup(), words()));
    expect_error(MU_FAILED_PRECONDITION, "has no vocabulary of strings");
    assert_null(mu_call(layer, mu_constant(MU_I64, 1)));
    expect_error(MU_INVALID_ARGUMENT, "looks up strings; the input is int64");
    assert_null(mu_string_lookup(.vocabulary = (const char *const[]){"a", "a"}, .n_vocabulary = 2));
    expect_error(MU_INVALID_ARGUMENT, "vocabulary[1] is the same as token 0");
    assert_null(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .max_tokens = 2));
    expect_error(MU_INVALID_ARGUMENT, "the vocabulary has 3 tokens with the special ones, and max_tokens is 2");
    assert_null(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .invert = true, .output_mode = "count"));
    expect_error(MU_INVALID_ARGUMENT, ".invert needs the output mode \"int\"");
}

static mu_value *look_up(mu_value *element, void *layer)
{
    return mu_list(mu_call((mu_layer *)layer, mu_at(element, 0)), mu_at(element, 1), MU_END);
}

static mu_value *in_a_trace(mu_value *arguments, void *layer)
{
    return mu_of(mu_call((mu_layer *)layer, mu_at(arguments, 0)));
}

static void datasets_are_looked_up(void **state)
{
    (void)state;
    mu_layer *layer = mu_string_lookup();
    mu_dataset *data = mu_dataset_from_tensor_slices(mu_list(words(), mu_ones(MU_F32, 1, (int64_t[]){4}), MU_END));
    assert_int_equal(mu_adapt(layer, mu_dataset_batch(data, 3)), MU_OK);
    mu_iterator *iterator = mu_iterate(mu_dataset_map(mu_dataset_batch(data, 4), look_up, layer));
    assert_longs(mu_at(mu_next(iterator), 0), 4, (int64_t[]){1, 2, 3, 4});  // of equal counts the larger first
    mu_layer *back = mu_layer_from_config(mu_layer_config(layer));
    assert_longs(mu_call(back, words()), 4, (int64_t[]){1, 2, 3, 4});
    assert_string_equal(mu_tensor_string(mu_vocabulary(back), 1).bytes, "dog");
    mu_layer *numbers = mu_integer_lookup(.vocabulary = (const int64_t[]){5}, .n_vocabulary = 1);
    mu_function *function = mu_function_new(in_a_trace, numbers, .name = "trace");
    assert_null(mu_function_call(function, mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){1}, (int64_t[]){5}))));
    expect_error(MU_FAILED_PRECONDITION, "looks values up on the host and cannot be part of a traced function");
    assert_int_not_equal(mu_adapt(mu_dense(1), data), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "is of class Dense, which has nothing to adapt");
}

static void texts_become_words(void **state)
{
    (void)state;
    mu_layer *layer = mu_text_vectorization(.vocabulary = animals, .n_vocabulary = 2);
    assert_longs(mu_call(layer, mu_string_scalar("Dog, dog & a Cat!")), 4, (int64_t[]){3, 3, 1, 2});
    assert_null(mu_call(layer, mu_tensor_strings(2, (int64_t[]){1, 2}, animals)));
    expect_error(MU_INVALID_ARGUMENT, "takes strings of shape [batch] or [batch, 1]; the input is string [1, 2]");
    assert_null(mu_text_vectorization(.split = "words"));
    expect_error(MU_INVALID_ARGUMENT, "split is 'words'; it must be one of 'whitespace', 'character', 'none'");
    assert_null(mu_string_lookup(.salt = (const int64_t[]){1, 2, 3}, .n_salt = 3));
    expect_error(MU_INVALID_ARGUMENT, "mu_string_lookup: n_salt is 3; the key of SipHash has 1 or 2 numbers");
    assert_null(mu_integer_lookup(.salt = (const int64_t[]){1}, .n_salt = 1));
    expect_error(MU_INVALID_ARGUMENT, "write .oov_method = \"farmhash\", or leave .salt out");
    assert_null(mu_hashing(10, .salt = (const int64_t[]){1, 2, 3}, .n_salt = 3));
    expect_error(MU_INVALID_ARGUMENT, "the key of SipHash has 1 or 2 numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(lookups_find_tokens), MODEL_TEST(datasets_are_looked_up),
                                       MODEL_TEST(texts_become_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
