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

// Encodings leave the mask token out, also where no other token may be out of the vocabulary.
static void encodings_have_no_masks(void **state)
{
    (void)state;
    mu_tensor *rows = mu_tensor_strings(2, (int64_t[]){2, 2}, (const char *const[]){"dog", "", "", ""});
    assert_longs(
        mu_call(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .mask_token = "", .output_mode = "count"),
                rows),
        6, (int64_t[]){0, 0, 1, 0, 0, 0});
    assert_longs(mu_call(mu_string_lookup(.vocabulary = animals, .n_vocabulary = 2, .mask_token = "",
                                          .num_oov_indices = 0, .output_mode = "multi_hot"),
                         rows),
                 4, (int64_t[]){0, 1, 0, 0});
    assert_longs(mu_call(mu_integer_lookup(.vocabulary = (const int64_t[]){5}, .n_vocabulary = 1, .mask_token = 0,
                                           .output_mode = "one_hot"),
                         mu_tensor_new(MU_I64, 1, (int64_t[]){3}, (int64_t[]){5, 0, 7})),
                 6, (int64_t[]){0, 1, 0, 0, 1, 0});
    assert_longs(mu_call(mu_text_vectorization(.vocabulary = animals, .n_vocabulary = 2, .split = "none",
                                               .output_mode = "multi_hot"),
                         rows),
                 6, (int64_t[]){0, 0, 1, 0, 0, 0});
}

// The token that stands for those out of the vocabulary may be in the vocabulary, except where indices become tokens.
static void vocabularies_have_any_token_but_the_mask(void **state)
{
    static const int64_t numbers[] = {7, -1, 3};
    (void)state;
    mu_layer *layer = mu_integer_lookup(.vocabulary = numbers, .n_vocabulary = 3);
    assert_longs(mu_call(layer, mu_tensor_new(MU_I64, 1, (int64_t[]){3}, (int64_t[]){-1, 3, 4})), 3,
                 (int64_t[]){2, 3, 0});
    assert_longs(mu_vocabulary(layer), 4, (int64_t[]){-1, 7, -1, 3});
    assert_null(mu_integer_lookup(.vocabulary = numbers, .n_vocabulary = 3, .invert = true));
    expect_error(MU_INVALID_ARGUMENT,
                 "vocabulary[1] is -1, the out-of-vocabulary token; leave it out, or put all special tokens in front");
    assert_null(mu_integer_lookup(.vocabulary = numbers, .n_vocabulary = 3, .mask_token = 3, .output_mode = "count"));
    expect_error(MU_INVALID_ARGUMENT, "vocabulary[2] is 3, the mask token; leave it out");
    assert_null(mu_text_vectorization(.vocabulary = (const char *const[]){"a", ""}, .n_vocabulary = 2));
    expect_error(MU_INVALID_ARGUMENT, "vocabulary[1] is \"\", the mask token");
}

// Keras has an integer or a string as the mask of a hash, and so have configurations.
static void hashes_mask_integers(void **state)
{
    (void)state;
    mu_layer *layer = mu_hashing(3, .mask_integer = 0);
    const char *text = mu_layer_config(layer);
    assert_non_null(strstr(text, "\"mask_value\":0,"));
    mu_tensor *numbers = mu_tensor_new(MU_I64, 1, (int64_t[]){3}, (int64_t[]){0, 5, 0});
    mu_tensor *bins = mu_call(layer, numbers);
    assert_int_equal(mu_tensor_item_int(bins, 0), 0);
    assert_true(mu_tensor_item_int(bins, 1) > 0);
    assert_longs(mu_call(mu_layer_from_config(text), numbers), 3, mu_tensor_data(bins));
    assert_non_null(strstr(mu_layer_config(mu_hashing(3, .mask_value = "0")), "\"mask_value\":\"0\""));
    assert_non_null(strstr(mu_layer_config(mu_hashing(3)), "\"mask_value\":null"));
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
    assert_longs(mu_at(mu_next(iterator), 0), 4, (int64_t[]){1, 2, 3, 4}); // of equal counts the larger first
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
    assert_null(mu_hashing(10, .mask_value = "-1", .mask_integer = -1));
    expect_error(MU_INVALID_ARGUMENT, "mask_value is \"-1\" and .mask_integer -1; give the one that the inputs are");
    assert_null(mu_hashing(10, .salt = (const int64_t[]){1, 2, 3}, .n_salt = 3));
    expect_error(MU_INVALID_ARGUMENT, "the key of SipHash has 1 or 2 numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(lookups_find_tokens),
                                       MODEL_TEST(encodings_have_no_masks),
                                       MODEL_TEST(vocabularies_have_any_token_but_the_mask),
                                       MODEL_TEST(hashes_mask_integers),
                                       MODEL_TEST(datasets_are_looked_up),
                                       MODEL_TEST(texts_become_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
