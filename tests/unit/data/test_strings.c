// Strings through the stages of datasets: rows, batches, padding, windows, repetitions, caches; and their refusals.
#include "data_test.h"

#include <muster/distribute.h>
#include <muster/ops.h>
#include <unistd.h>

static mu_tensor *letters(void)
{
    return mu_tensor_strings(1, (int64_t[]){5}, (const char *const[]){"a", "bb", "", "dd", "e"});
}

static mu_dataset *slices(void) { return mu_dataset_from_tensor_slices(mu_of(letters())); }

static mu_dataset *with_numbers(void) { return mu_dataset_zip(slices(), mu_dataset_range(0, 5, 1), MU_END); }

static void test_stages_take_strings(void **state)
{
    (void)state;
    assert_elements(slices(), "'a' 'bb' '' 'dd' 'e'");
    assert_elements(mu_dataset_batch(slices(), 2), "['a' 'bb'] ['' 'dd'] ['e']");
    assert_elements(mu_dataset_batch(mu_dataset_batch(mu_dataset_take(slices(), 4), 2), 2), "['a' 'bb'|'' 'dd']");
    assert_elements(mu_dataset_take(mu_dataset_skip(mu_dataset_repeat(slices(), 2), 4), 2), "'e' 'a'");
    assert_elements(mu_dataset_batch(mu_dataset_shard(with_numbers(), 2, 1), 2), "(['bb' 'dd'],[1 3])");
    assert_elements(mu_dataset_unbatch(mu_dataset_batch(with_numbers(), 3)),
                    "('a',0) ('bb',1) ('',2) ('dd',3) ('e',4)");
    assert_elements(mu_dataset_rebatch(mu_dataset_batch(slices(), 2), 1, (int64_t[]){3}, false),
                    "['a' 'bb' ''] ['dd' 'e']");
    assert_elements(mu_dataset_window(slices(), 3, .shift = 2, .drop_remainder = true), "['a' 'bb' ''] ['' 'dd' 'e']");
    assert_elements(mu_dataset_prefetch(mu_dataset_from_tensors(mu_of(letters())), 2), "['a' 'bb' '' 'dd' 'e']");
    assert_elements(mu_dataset_batch(mu_dataset_shuffle(mu_dataset_repeat(mu_dataset_take(slices(), 1), 3), 3), 3),
                    "['a' 'a' 'a']");
}

static mu_value *head(mu_value *element, void *arg)
{
    (void)arg;
    const int64_t n = (int64_t)mu_scalar(element) + 1;
    return mu_list(mu_tensor_strings(1, &n, (const char *const[]){"x", "y", "z"}),
                   mu_tensor_new(MU_I32, 1, &n, (int32_t[]){1, 2, 3}), MU_END);
}

static void test_padding(void **state)
{
    (void)state;
    const mu_shape shapes[] = {{1, {4}}, {1, {MU_UNKNOWN}}}, short_shapes[] = {{1, {2}}, {1, {MU_UNKNOWN}}};
    mu_dataset *grow = mu_dataset_map(mu_dataset_range(0, 3, 1), head, NULL);
    mu_value *values = mu_list(mu_string_scalar("-"), mu_constant(MU_I32, -1), MU_END);
    assert_elements(mu_dataset_padded_batch(grow, 2), "(['x' ''|'x' 'y'],[1 0|1 2]) (['x' 'y' 'z'],[1 2 3])");
    mu_dataset *padded =
        mu_dataset_padded_batch(grow, 3, .padded_shapes = shapes, .n_padded_shapes = 2, .padding_values = values);
    assert_elements(padded, "(['x' '-' '-' '-'|'x' 'y' '-' '-'|'x' 'y' 'z' '-'],[1 -1 -1|1 2 -1|1 2 3])");
    assert_elements(mu_dataset_padded_batch(grow, 3, .padded_shapes = short_shapes, .n_padded_shapes = 2), "");
    expect_error(MU_INVALID_ARGUMENT, "do not fit in padded_shapes[0], [2]");
    assert_elements(mu_dataset_padded_batch(grow, 3, .padding_values = mu_of(mu_constant(MU_I32, 1))), "");
    expect_error(MU_INVALID_ARGUMENT, "component 0 is string and its padding value int32");
    assert_elements(mu_dataset_padded_batch(grow, 3, .padded_shapes = shapes, .n_padded_shapes = 1), "");
    expect_error(MU_INVALID_ARGUMENT, "elements have 2 components, and there are 1 padded_shapes");
}

static void test_cache_in_a_file(void **state)
{
    (void)state;
    char folder[] = "muster-strings-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/cache", folder);
    mu_dataset *cached = mu_dataset_cache(mu_dataset_batch(with_numbers(), 2), path);
    for (int i = 0; i < 2; i++)
        assert_elements(cached, "(['a' 'bb'],[0 1]) (['' 'dd'],[2 3]) (['e'],[4])");
    unlink(path);
    rmdir(folder);
}

static mu_value *twice(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_at(arguments, 0)));
}

static void test_refusals(void **state)
{
    (void)state;
    assert_null(mu_add(letters(), letters()));
    expect_error(MU_INVALID_ARGUMENT,
                 "add: input 0 holds strings, which ops cannot compute with; turn them into numbers");
    assert_null(mu_reshape(letters(), 1, (int64_t[]){-1}));
    expect_error(MU_INVALID_ARGUMENT, "input 0 holds strings");
    mu_function *function = mu_function_new(twice, NULL, .name = "twice");
    assert_null(mu_function_call(function, mu_of(letters())));
    expect_error(MU_INVALID_ARGUMENT, "'twice': argument 0 holds strings; traced functions compute with numbers alone");
    assert_null(mu_dataset_map(slices(), NULL, .function = function));
    expect_error(MU_INVALID_ARGUMENT, "'twice': argument 0 holds strings");
    assert_null(mu_variable_new(letters()));
    expect_error(MU_UNIMPLEMENTED, "strings cannot be used here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_stages_take_strings),
        DATA_TEST(test_padding),
        DATA_TEST(test_cache_in_a_file),
        DATA_TEST(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
