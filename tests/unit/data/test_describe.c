// Datasets as descriptions: a dataset made from one gives the same elements, stages that call the program's code cannot
// be described, and a hostile description is refused with a reason.
#include "data_test.h"

#include "data/describe.h"

#include <muster/example.h>
#include <muster/ops.h>

#include <unistd.h>

#define vector(dtype, ...) \
    vector_of(dtype, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static mu_value *vector_of(mu_dtype dtype, int n, const double *numbers)
{
    return mu_of(mu_cast(mu_tensor_new(MU_F64, 1, &(int64_t){n}, numbers), dtype));
}

// The same pipeline, made from its description.
static mu_dataset *again(mu_dataset *dataset)
{
    mu_value *description = mu__dataset_describe(dataset);
    mu_dataset *made = description != NULL ? mu__give(mu__dataset_described(description)) : NULL;
    if (made == NULL)
        fail_msg("%s", mu_error_take().message);
    return made;
}

#define assert_same(dataset, text)             \
    do {                                       \
        assert_elements(dataset, text);        \
        assert_elements(again(dataset), text); \
    } while (0)

static void the_order_of_elements(void **state)
{
    (void)state;
    mu_dataset *six = mu_dataset_range(0, 6, 1);
    assert_same(mu_dataset_range(7, -2, -3), "7 4 1");
    assert_same(mu_dataset_batch(six, 4), "[0 1 2 3] [4 5]");
    assert_same(mu_dataset_batch(six, 4, .drop_remainder = true), "[0 1 2 3]");
    assert_same(mu_dataset_repeat(mu_dataset_take(mu_dataset_skip(six, 1), 2), 2), "1 2 1 2");
    assert_same(mu_dataset_shard(six, 3, 1), "1 4");
    assert_same(mu_dataset_window(six, 2, .shift = 3, .stride = 2), "[0 2] [3 5]");
    assert_same(mu_dataset_unbatch(mu_dataset_batch(mu_dataset_cache(six), 4)), "0 1 2 3 4 5");
    assert_same(mu_dataset_rebatch(mu_dataset_batch(six, 6), 2, (int64_t[]){1, 2}, false), "[0] [1 2] [3] [4 5]");
    assert_same(mu_dataset_concatenate(six, mu_dataset_unique(mu_dataset_repeat(mu_dataset_range(0, 2, 1), 2))),
                "0 1 2 3 4 5 0 1");
    assert_same(mu_dataset_options(mu_dataset_prefetch(six, 3), .auto_shard_policy = MU_AUTO_SHARD_OFF), "0 1 2 3 4 5");
    mu_dataset *drawn = mu_sample_from_datasets(2, ((mu_dataset *[]){six, mu_dataset_range(10, 20, 1)}), .seed = 5);
    char text[TEXT_BYTES];
    strcpy(text, elements(again(drawn)));
    assert_elements(drawn, text);
    assert_same(mu_choose_from_datasets(2, ((mu_dataset *[]){six, mu_dataset_range(10, 20, 1)}),
                                        mu_dataset_from_tensor_slices(vector(MU_I64, 1, 0, 1))),
                "10 0 11");
}

// A description begins the next iteration of each shuffle, as an iterator of this process would.
static void shuffles_begin_anew(void **state)
{
    (void)state;
    mu_dataset *numbers = mu_dataset_range(0, 20, 1), *one = mu_dataset_shuffle(numbers, 20, .seed = 3);
    mu_dataset *other = mu_dataset_shuffle(numbers, 20, .seed = 3);
    char first[TEXT_BYTES], second[TEXT_BYTES];
    strcpy(first, elements(again(one)));
    strcpy(second, elements(one));
    assert_string_not_equal(first, second);
    assert_elements(other, first);
    assert_elements(again(other), second);
    mu_dataset *fixed = mu_dataset_shuffle(numbers, 20, .seed = 3, .no_reshuffle_each_iteration = true);
    assert_elements(again(fixed), first);
    assert_elements(again(fixed), first);
    mu_dataset *twice = again(mu_dataset_repeat(other, 2)); // the third iteration, and the fourth
    const char *both = elements(twice);
    assert_null(strstr(both, first));
    assert_null(strstr(both, second));
}

static void a_dataset_that_is_used_twice_is_sent_once(void **state)
{
    (void)state;
    mu_dataset *doubled = mu_dataset_range(0, 2, 1);
    for (int i = 0; i < 30; i++) // a tree of these would have 2^30 stages
        doubled = mu_dataset_zip(doubled, doubled, MU_END);
    mu_value *description = mu__dataset_describe(doubled);
    assert_int_equal(mu_value_count(description), 31);
    assert_null(mu__dataset_described(description)); // its iterator would be such a tree
    expect_error(MU_INVALID_ARGUMENT, "would open 131071 stages");
    assert_same(mu_dataset_zip(mu_dataset_range(0, 2, 1), mu_dataset_range(5, 7, 1), MU_END), "(0,5) (1,6)");
}

static void rows_and_files(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 4};
    mu_value *rows = mu_map("x", mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){2, 2}, x)), "s",
                            mu_of(mu_tensor_strings(1, (int64_t[]){2}, (const char *[]){"a", "b"})), MU_END);
    assert_same(mu_dataset_from_tensor_slices(rows), "([1 2],'a') ([3 4],'b')");
    assert_same(mu_dataset_from_tensors(vector(MU_I64, 1, 0, 1)), "[1 0 1]");
    const char *path = temporary_file("1,x\n,y\n", 7);
    assert_same(mu_dataset_text_lines(mu_dataset_paths(1, &path)), "'1,x' ',y'");
    const mu_dtype types[] = {MU_I64, MU_STRING};
    mu_tensor *defaults[] = {mu_constant(MU_I64, 9), NULL};
    assert_same(mu_dataset_csv(path, .columns = 2, .dtypes = types, .n_dtypes = 2, .record_defaults = defaults,
                               .n_record_defaults = 2),
                "(1,'x') (9,'y')");
    assert_same(mu_dataset_take(mu_dataset_fixed_length_record(path, 2, .header_bytes = 1, .footer_bytes = 2), 2),
                "[44 120] [10 44]");
    unlink(path);
    assert_elements(again(mu_dataset_tfrecord("nowhere")), ""); // opened where it is iterated
    expect_error(MU_NOT_FOUND, "nowhere");
    mu_dataset *lines = mu_dataset_from_tensor_slices(vector(MU_F32, 1, 2, 3));
    const mu_shape three = MU_SHAPE(3);
    assert_same(mu_dataset_padded_batch(mu_dataset_batch(lines, 2), 2, .n_padded_shapes = 1, .padded_shapes = &three,
                                        .padding_values = mu_of(mu_constant(MU_F32, 7))),
                "[1 2 7|3 7 7]");
}

static void examples(void **state)
{
    (void)state;
    mu_tensor *empty = mu_tensor_strings(1, (int64_t[]){1}, (const char *[]){""});
    mu_dataset *messages = mu_dataset_from_tensor_slices(mu_of(empty));
    const mu_feature features[] = {
        {.name = "a", .dtype = MU_F32, .shape = MU_SHAPE(2), .default_value = mu_constant(MU_F32, 3)},
        {.name = "b", .dtype = MU_I64, .length = MU_FEATURE_VARIABLE, .lengths = "n"}};
    assert_same(mu_dataset_parse_example(messages, .n_features = 2, .features = features), "([3 3],[],0)");
    const mu_feature steps = {.name = "s", .dtype = MU_F32, .length = MU_FEATURE_VARIABLE};
    mu_dataset *sequences = mu_dataset_parse_example(messages, .n_features = 1, .features = features, .n_sequences = 1,
                                                     .sequences = &steps);
    assert_string_equal(elements(again(sequences)), elements(sequences));
}

static mu_value *triple(mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_multiply(mu_at(element, 0), mu_constant(MU_I64, 3)), mu_at(element, 0), MU_END);
}

static mu_value *as_it_is(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

static bool all(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return true;
}

static void traced_functions_travel_and_callbacks_do_not(void **state)
{
    (void)state;
    mu_function *function = mu_function_new(triple, NULL);
    mu_dataset *three = mu_dataset_range(0, 3, 1);
    assert_same(mu_dataset_map(three, .function = function), "(0,0) (3,1) (6,2)");
    assert_same(mu_dataset_map(mu_dataset_batch(three, 2), .function = function, .parallel_calls = 2),
                "([0 3],[0 1]) ([6],[2])");
    assert_null(mu__dataset_describe(mu_dataset_batch(mu_dataset_map(three, as_it_is), 2)));
    expect_error(MU_UNIMPLEMENTED, "stage map of a dataset cannot be sent");
    assert_null(mu__dataset_describe(mu_dataset_filter(three, all, NULL)));
    expect_error(MU_UNIMPLEMENTED, "stage filter of a dataset cannot be sent");
}

static mu_value *number(int64_t n) { return mu_of(mu_tensor_new(MU_I64, 0, NULL, &n)); }

static mu_value *stage(const char *name, int n_inputs, int64_t input, mu_value *first, mu_value *second)
{
    mu_value *items[] = {mu_of(mu_string_scalar(name)), mu__int64s_value(n_inputs, &input), first, second};
    return mu_list_of(2 + (first != NULL) + (second != NULL), items);
}

static void expect_refused(mu_value *description, const char *why)
{
    assert_null(mu__dataset_described(description));
    expect_error(MU_INVALID_ARGUMENT, why);
}

static void hostile_descriptions_are_refused(void **state)
{
    (void)state;
    mu_value *range = mu_value_at(mu__dataset_describe(mu_dataset_range(0, 3, 1)), 0);
    expect_refused(NULL, "a list of 1 to 1024 stages");
    expect_refused(mu_list(MU_END), "a list of 1 to 1024 stages");
    expect_refused(mu_list(number(1), MU_END), "does not begin with a name");
    expect_refused(mu_list(stage("system", 0, 0, NULL, NULL), MU_END), "no stage named \"system\"");
    expect_refused(mu_list(stage("generator", 0, 0, NULL, NULL), MU_END), "no stage named \"generator\"");
    expect_refused(mu_list(stage("take", 1, 0, number(1), NULL), MU_END), "input 0 is stage 0, which is not before it");
    expect_refused(mu_list(range, stage("take", 1, -1, number(1), NULL), MU_END), "input 0 is stage -1");
    expect_refused(mu_list(range, stage("take", 0, 0, number(1), NULL), MU_END), "take has 1 to 1 inputs");
    expect_refused(mu_list(range, stage("take", 1, 0, NULL, NULL), MU_END), "and 1 arguments");
    expect_refused(mu_list(range, stage("take", 1, 0, number(-2), NULL), MU_END), "out of its range");
    expect_refused(mu_list(range, stage("take", 1, 0, mu_list(MU_END), NULL), MU_END), "another kind");
    expect_refused(mu_list(range, stage("prefetch", 1, 0, number(MU_MAX_PREFETCH + 1), NULL), MU_END), "stage 1");
    expect_refused(mu_list(range, stage("rebatch", 1, 0, mu__int64s_value(2, (int64_t[]){0, 0}), number(0)), MU_END),
                   "not all 0");
    expect_refused(mu_list(stage("rows", 0, 0, mu_list(MU_END), number(0)), MU_END), "another kind");
    mu_value *floats = vector(MU_F32, 1, 2);
    mu_value *types = mu__int64s_value(1, (int64_t[]){MU_STRING}), *ones = mu__int64s_value(1, (int64_t[]){1});
    expect_refused(mu_list(stage("rows", 0, 0, mu_list(floats, types, ones, number(1), MU_END), number(0)), MU_END),
                   "becomes no element of type");
    mu_value *many[MU_MOST_STAGES + 1];
    for (int i = 0; i <= MU_MOST_STAGES; i++)
        many[i] = range;
    expect_refused(mu_list_of(MU_MOST_STAGES + 1, many), "a list of 1 to 1024 stages");
    mu_value *mapped =
        mu__dataset_describe(mu_dataset_map(mu_dataset_range(0, 3, 1), .function = mu_function_new(triple, NULL)));
    mu_value *parts[5], *map = mu_value_at(mapped, 1);
    for (int i = 0; i < 5; i++)
        parts[i] = mu_value_at(map, i);
    parts[0] = mu_of(mu_string_scalar("parallel_map"));
    expect_refused(mu_list(range, mu_list_of(5, parts), MU_END), "0 parallel calls; expected 1 to");
    parts[0] = mu_value_at(map, 0);
    mu_value *sent = parts[3]; // of a scalar int64, but the graph is given another argument
    parts[3] = mu_list(mu_value_at(sent, 0), mu__int64s_value(2, (int64_t[]){MU_F32, 3}), mu_value_at(sent, 2), MU_END);
    expect_refused(mu_list(range, mu_list_of(5, parts), MU_END), "the arguments of the function");
    parts[3] = mu_list(mu_of(mu_tensor_new(MU_U8, 1, (int64_t[]){3}, "abc")), mu_value_at(sent, 1),
                       mu_value_at(sent, 2), MU_END);
    assert_null(mu__dataset_described(mu_list(range, mu_list_of(5, parts), MU_END)));
    expect_error(MU_DATA_LOSS, "stage 1");
}

static void every_stage_says_what_is_sent(void **state)
{
    (void)state;
    const mu_stage_ops *const stages[] = {
#define MU_STAGE(name, fewest, most) &mu__##name##_stage,
#include "data/stages/stages.def"
#undef MU_STAGE
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if ((stages[i]->args_bytes > 0) != (stages[i]->sent != NULL))
            fail_msg("stage %s has arguments and does not say what is sent of them", stages[i]->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(the_order_of_elements),
        DATA_TEST(shuffles_begin_anew),
        DATA_TEST(a_dataset_that_is_used_twice_is_sent_once),
        DATA_TEST(rows_and_files),
        DATA_TEST(examples),
        DATA_TEST(traced_functions_travel_and_callbacks_do_not),
        DATA_TEST(hostile_descriptions_are_refused),
        DATA_TEST(every_stage_says_what_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
