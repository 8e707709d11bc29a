// tf.train.Example and SequenceExample: written and parsed again, one and in batches; defaults, padding, refusals; and
// TFRecord files of them. (Comparison with TensorFlow: tests/conformance/datasets.py.)
#include "data_test.h"

#include <muster/example.h>
#include <unistd.h>

static mu_tensor *longs(int64_t n, const int64_t *values) { return mu_tensor_new(MU_I64, 1, &n, values); }

static mu_tensor *person(const char *name, int64_t age, int n_scores)
{
    return mu_serialize_example(mu_map("name", mu_string_scalar(name), "age", mu_constant(MU_I32, (double)age),
                                       "scores", mu_vector_f32(n_scores, (float[]){1.5f, -2, 3}), MU_END));
}

static mu_tensor *both(mu_tensor *a, mu_tensor *b)
{
    return mu_tensor_byte_strings(1, (int64_t[]){2}, (mu_string[]){mu_tensor_string(a, 0), mu_tensor_string(b, 0)});
}

static const mu_feature all[] = {{.name = "name", .dtype = MU_STRING},
                                 {.name = "age", .dtype = MU_I64},
                                 {.name = "scores", .dtype = MU_F32, .length = MU_FEATURE_VARIABLE, .lengths = "n"}};

static void assert_value(mu_value *value, const char *wanted)
{
    char text[TEXT_BYTES] = "";
    assert_non_null(value);
    write_value(value, text);
    assert_string_equal(text, wanted);
}

static void test_one_and_a_batch(void **state)
{
    (void)state;
    mu_tensor *ann = person("Ann", -3, 2), *bo = person("", 7, 3);
    assert_value(mu_parse_example(ann, 3, all), "('Ann',-3,[1.5 -2],2)");
    assert_value(mu_parse_example(both(ann, bo), 3, all), "(['Ann' ''],[-3 7],[1.5 -2 0|1.5 -2 3],[2 3])");
    const mu_string bytes = mu_tensor_string(ann, 0);
    mu_tensor *u8 = mu_tensor_new(MU_U8, 1, (int64_t[]){(int64_t)bytes.n}, bytes.bytes);
    assert_value(mu_parse_example(u8, 1, all), "('Ann')");
    assert_value(mu_parse_example(mu_tensor_strings(1, (int64_t[]){0}, NULL), 2, all), "([],[])");
}

static void test_defaults_and_shapes(void **state)
{
    (void)state;
    mu_tensor *example = mu_serialize_example(mu_map("m", longs(4, (int64_t[]){1, 2, 3, 4}), MU_END));
    const mu_feature features[] = {
        {.name = "m", .dtype = MU_I64, .shape = {2, {2, 2}}},
        {.name = "word", .dtype = MU_STRING, .default_value = mu_string_scalar("?")},
        {.name = "pair", .dtype = MU_F32, .shape = {1, {2}}, .default_value = mu_vector_f32(2, (float[]){1, 2})},
        {.name = "none", .dtype = MU_F32, .length = MU_FEATURE_VARIABLE}};
    assert_value(mu_parse_example(example, 4, features), "([1 2|3 4],'?',[1 2],[])");
    const mu_feature steps = {.name = "m", .dtype = MU_I64, .shape = {1, {2}}, .length = MU_FEATURE_VARIABLE};
    assert_value(mu_parse_example(example, 1, &steps), "([1 2|3 4])");
}

// Appends a field of bytes to a message under construction.
typedef struct message {
    char bytes[96];
    size_t n;
} message;

static message joined(const message *a, const message *b)
{
    message out = *a;
    memcpy(out.bytes + out.n, b->bytes, b->n);
    out.n += b->n;
    return out;
}

static message field(int number, const message *content)
{
    const message head = {{(char)(number << 3 | 2), (char)content->n}, 2};
    return joined(&head, content);
}

// An Example whose feature "k" has these bytes.
static mu_tensor *example_of(const message *feature)
{
    const message key = {"\x0a\x01k", 3}, value = field(2, feature), entry = joined(&key, &value),
                  entries = field(1, &entry), whole = field(1, &entries);
    return mu_tensor_byte_strings(0, NULL, &(mu_string){whole.bytes, whole.n});
}

// TensorFlow's parser reads one packed field, or values in fields of their own, and refuses or drops the others.
static void test_values_in_several_forms(void **state)
{
    (void)state;
    const mu_feature k = {.name = "k", .dtype = MU_I64, .length = MU_FEATURE_VARIABLE};
    static const message packed = {"\x0a\x02\x01\x02", 4}, single = {"\x08\x03\x08\x04", 4}, other = {"\x12\x01z", 3},
                         none = {"", 0};
    const struct {
        const message *first, *second;
        const char *wanted;
    } lists[] = {{&packed, &none, "([1 2])"},  {&single, &none, "([3 4])"},
                 {&none, &none, "([])"},       {&single, &single, "([3 4 3 4])"},
                 {&packed, &packed, NULL},     {&packed, &single, NULL},
                 {&single, &packed, NULL},     {&other, &packed, NULL},
                 {&packed, &other, "([1 2])"}, {&single, &other, NULL}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const message list = joined(lists[i].first, lists[i].second), feature = field(3, &list);
        mu_value *value = mu_parse_example(example_of(&feature), 1, &k);
        if (lists[i].wanted != NULL)
            assert_value(value, lists[i].wanted);
        else
            expect_error(MU_DATA_LOSS, "the values of feature 'k' in example 0 are damaged, or not all written in one");
    }
    const message once = field(3, &packed), twice = joined(&once, &once);
    assert_null(mu_parse_example(example_of(&twice), 1, &k));
    expect_error(MU_DATA_LOSS, "the bytes of example 0 are not a serialised message");
    const message unknown = field(9, &none), late = joined(&once, &unknown), early = joined(&unknown, &once);
    assert_value(mu_parse_example(example_of(&late), 1, &k), "([1 2])");
    assert_null(mu_parse_example(example_of(&early), 1, &k));
    expect_error(MU_DATA_LOSS, "the bytes of example 0 are not a serialised message");
}

// A feature of a context is the last of its name, also if that is empty: it has no values then, and no default. In an
// Example the last counts that is not empty.
static void test_a_name_twice(void **state)
{
    (void)state;
    static const message key = {"\x0a\x01k", 3}, packed = {"\x0a\x02\x01\x02", 4}, none = {"", 0};
    const message list = field(3, &packed), values = field(2, &list), empty = field(2, &none);
    const message full_entry = joined(&key, &values), empty_entry = joined(&key, &empty);
    const message first = field(1, &full_entry), second = field(1, &empty_entry);
    const message last_empty = joined(&first, &second), last_full = joined(&second, &first);
    const message maps[] = {field(1, &last_empty), field(1, &last_full)};
    mu_tensor *texts[2];
    for (int i = 0; i < 2; i++)
        texts[i] = mu_tensor_byte_strings(0, NULL, &(mu_string){maps[i].bytes, maps[i].n});
    const mu_feature any = {.name = "k", .dtype = MU_I64, .length = MU_FEATURE_VARIABLE, .lengths = "n"};
    const mu_feature two = {.name = "k", .dtype = MU_I64, .shape = {1, {2}}, .default_value = mu_constant(MU_I64, 9)};
    assert_value(mu_parse_sequence_example(texts[0], 1, &any, 0, NULL), "(([],0),())");
    assert_value(mu_parse_sequence_example(texts[1], 1, &any, 0, NULL), "(([1 2],2),())");
    assert_value(mu_parse_sequence_example(texts[1], 1, &two, 0, NULL), "(([1 2]),())");
    assert_null(mu_parse_sequence_example(texts[0], 1, &two, 0, NULL));
    expect_error(MU_INVALID_ARGUMENT, "example 0 has 0 values in feature 'k'; its shape [2] takes 2");
    assert_value(mu_parse_example(texts[0], 1, &two), "([1 2])");
}

static void test_refusals(void **state)
{
    (void)state;
    mu_tensor *ann = person("Ann", 1, 3);
    const mu_feature missing = {.name = "nme", .dtype = MU_STRING}, type = {.name = "age", .dtype = MU_F32},
                     count = {.name = "scores", .dtype = MU_F32, .shape = {1, {2}}},
                     steps = {.name = "scores", .dtype = MU_F32, .shape = {1, {2}}, .length = MU_FEATURE_VARIABLE},
                     cannot = {.name = "age", .dtype = MU_I32},
                     other = {.name = "age", .dtype = MU_I64, .default_value = mu_constant(MU_F32, 1)};
    assert_null(mu_parse_example(ann, 1, &missing));
    expect_error(MU_INVALID_ARGUMENT, "example 0 has no feature 'nme' (string)");
    assert_null(mu_parse_example(both(ann, ann), 1, &type));
    expect_error(MU_INVALID_ARGUMENT, "values of type int64 in feature 'age', for which float32 is wanted");
    assert_null(mu_parse_example(ann, 1, &count));
    expect_error(MU_INVALID_ARGUMENT, "has 3 values in feature 'scores'; its shape [2] takes 2");
    assert_null(mu_parse_example(ann, 1, &steps));
    expect_error(MU_INVALID_ARGUMENT, "takes a multiple of 2");
    assert_null(mu_parse_example(ann, 1, &cannot));
    expect_error(MU_INVALID_ARGUMENT, "feature 'age' is to be int32; examples hold");
    assert_null(mu_parse_example(ann, 1, &other));
    expect_error(MU_INVALID_ARGUMENT, "the default value of feature 'age' is float32 []");
    assert_null(mu_parse_example(ann, 2, (mu_feature[]){all[0], all[0]}));
    expect_error(MU_INVALID_ARGUMENT, "two features or lengths have the name 'name'");
    assert_null(mu_parse_example(mu_constant(MU_F32, 1), 1, all));
    expect_error(MU_INVALID_ARGUMENT, "the examples are float32 []");
    const mu_string bytes = mu_tensor_string(ann, 0);
    assert_null(mu_parse_example(mu_tensor_byte_strings(0, NULL, &(mu_string){bytes.bytes, bytes.n - 1}), 1, all));
    expect_error(MU_DATA_LOSS, "the bytes of example 0 are not a serialised message");
}

static void test_sequences(void **state)
{
    (void)state;
    mu_value *words = mu_list(mu_tensor_strings(1, (int64_t[]){2}, (const char *const[]){"a", "b"}),
                              mu_tensor_strings(1, (int64_t[]){1}, (const char *const[]){"c"}), MU_END);
    mu_tensor *points = mu_tensor_new(MU_F32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4});
    mu_tensor *first = mu_serialize_sequence_example(mu_map("id", mu_constant(MU_I64, 7), MU_END),
                                                     mu_map("words", words, "points", points, MU_END));
    mu_tensor *second = mu_serialize_sequence_example(
        mu_map("id", mu_constant(MU_I64, 8), MU_END),
        mu_map("points", mu_tensor_new(MU_F32, 2, (int64_t[]){1, 2}, (float[]){5, 6}), MU_END));
    const mu_feature id = {.name = "id", .dtype = MU_I64};
    const mu_feature sequences[] = {
        {.name = "points", .dtype = MU_F32, .shape = {1, {2}}},
        {.name = "words", .dtype = MU_STRING, .length = MU_FEATURE_VARIABLE, .lengths = "steps"}};
    assert_value(mu_parse_sequence_example(first, 1, &id, 2, sequences), "((7),([1 2|3 4],['a' 'b'|'c' ''],2))");
    mu_value *batch = mu_parse_sequence_example(both(first, second), 1, &id, 2, sequences);
    assert_value(batch, "(([7 8]),([1 2 3 4 5 6 0 0],['a' 'b' 'c' '' '' '' '' ''],[2 0]))");
    assert_int_equal(
        mu_tensor_rank(mu_value_get(mu_value_at(batch, 1), "points") ? mu_at(mu_value_at(batch, 1), 0) : NULL), 3);
    const mu_feature counted = {.name = "points", .dtype = MU_F32, .shape = {1, {2}}, .lengths = "steps"};
    batch = mu_parse_sequence_example(both(first, second), 1, &id, 1, &counted);
    assert_value(batch, "(([7 8]),([1 2 3 4 5 6 0 0],[2 1]))");
    assert_null(mu_parse_sequence_example(first, 1, &counted, 0, NULL));
    expect_error(MU_INVALID_ARGUMENT, "feature 'points' has a fixed length, and .lengths");
    assert_null(mu_parse_sequence_example(second, 0, NULL, 1, &(mu_feature){.name = "x", .dtype = MU_I64}));
    expect_error(MU_INVALID_ARGUMENT, "example 0 has no sequence 'x'");
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "muster-example-XXXXXX";
    close(mkstemp(path));
    mu_tfrecord_writer *writer = mu_tfrecord_writer_new(path);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mu_tfrecord_write(writer, person("P", i, i)), MU_OK);
    assert_int_equal(mu_tfrecord_writer_close(writer), MU_OK);
    assert_int_equal(mu_tfrecord_write(writer, person("P", 1, 1)), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "the file is closed");
    mu_dataset *parsed = mu_dataset_parse_example(mu_dataset_tfrecord(path), .features = all, .n_features = 3);
    assert_elements(parsed, "('P',0,[],0) ('P',1,[1.5],1) ('P',2,[1.5 -2],2)");
    assert_elements(mu_dataset_padded_batch(parsed, 3), "(['P' 'P' 'P'],[0 1 2],[0 0|1.5 0|1.5 -2],[0 1 2])");
    mu_value *spec = mu_dataset_element_spec(parsed);
    assert_int_equal(mu_tensor_dim(mu_at(spec, 2), 0), MU_UNKNOWN);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_one_and_a_batch), DATA_TEST(test_defaults_and_shapes),
        DATA_TEST(test_refusals),        DATA_TEST(test_values_in_several_forms),
        DATA_TEST(test_a_name_twice),    DATA_TEST(test_sequences),
        DATA_TEST(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
