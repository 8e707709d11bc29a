// CSV: numbers, quotes, line ends, headers, types; every wrong line is named. Lines of text; records of one length.
#include "data_test.h"

#include <unistd.h>

static char path[64];

static mu_dataset *csv_of_bytes(const char *bytes, size_t n, mu_dataset_csv_args args)
{
    strcpy(path, temporary_file(bytes, n));
    args.size = sizeof args;
    args.path = path;
    return mu_dataset_csv_with(&args);
}

static mu_dataset *csv_of(const char *text, mu_dataset_csv_args args) { return csv_of_bytes(text, strlen(text), args); }

static void check(const char *text, mu_dataset_csv_args args, const char *wanted)
{
    assert_elements(csv_of(text, args), wanted);
    unlink(path);
}

static void test_lines(void **state)
{
    (void)state;
    check("1,2\n3,4.5\n", (mu_dataset_csv_args){.columns = 2}, "[1 2] [3 4.5]");
    check("a,b\r\n1,-2e3\r\n\r\n 7 ,8", (mu_dataset_csv_args){.columns = 2, .skip_lines = 1}, "[1 -2000] [7 8]");
    check("\"1\";\"2\"\n", (mu_dataset_csv_args){.columns = 2, .delimiter = ';'}, "[1 2]");
    check("5\n6", (mu_dataset_csv_args){.columns = 1}, "[5] [6]");
    check("", (mu_dataset_csv_args){.columns = 1}, "");
    // A line that is only "" has a field, whose text is empty; one without any character has none.
    check("a\n\"\"\n\nb\n\"\"",
          (mu_dataset_csv_args){.columns = 1, .dtypes = (const mu_dtype[]){MU_STRING}, .n_dtypes = 1},
          "('a') ('') ('b') ('')");
    check("only a header", (mu_dataset_csv_args){.columns = 1, .skip_lines = 3}, "");
    // A carriage return alone ends a line too; inside of quotes it is a character.
    check("1,2\r3,4\r\n5,6\r", (mu_dataset_csv_args){.columns = 2}, "[1 2] [3 4] [5 6]");
    check("\"a\rb\"\rc", (mu_dataset_csv_args){.columns = 1, .dtypes = (const mu_dtype[]){MU_STRING}, .n_dtypes = 1},
          "('a\rb') ('c')");
}

// TensorFlow's CsvDataset with header = True skips these headers too.
static void test_headers(void **state)
{
    (void)state;
    const mu_dataset_csv_args headed = {.columns = 2, .skip_lines = 1};
    check("a,b\r1,2\r3,4\r", headed, "[1 2] [3 4]");
    check("a,b\r\n1,2\n", headed, "[1 2]");
    check("\"a\n\"\"x\",b\n1,2\n", headed, "[1 2]");
    check("1\r2,\"\n\"\n\n3,4", (mu_dataset_csv_args){.columns = 2, .skip_lines = 3}, "[3 4]");
    // A line that is skipped need not be of fields.
    check("5\" and 6\"\n1,2\n", headed, "[1 2]");
    check("\"a\n1,2\n", (mu_dataset_csv_args){.columns = 2, .skip_lines = 1, .no_quotes = true}, "[1 2]");
    check("a\n\"b\n1,2\n", (mu_dataset_csv_args){.columns = 2, .skip_lines = 2}, "");
    expect_error(MU_DATA_LOSS, "line 2, column 1: the file ends inside quotes");
}

// A byte 0 is a character like others: it does not end a number, and none is left out.
static void test_zero_bytes(void **state)
{
    (void)state;
    static const char number[] = "1\0"
                                 "2\n",
                      word[] = "a\r\0b\n", quoted[] = "\"a\"\0\n", none[] = "NA\0\n";
    const mu_dataset_csv_args one = {.columns = 1,
                                     .na_value = "NA",
                                     .record_defaults = (mu_tensor *[]){mu_constant(MU_F32, 7)},
                                     .n_record_defaults = 1};
    const mu_dataset_csv_args words = {.columns = 1, .dtypes = (const mu_dtype[]){MU_STRING}, .n_dtypes = 1};
    assert_elements(csv_of_bytes(number, sizeof number - 1, one), "");
    expect_error(MU_DATA_LOSS, "line 1, column 1: \"1\" is not a valid float32");
    assert_elements(csv_of_bytes(none, sizeof none - 1, one), "");
    expect_error(MU_DATA_LOSS, "line 1, column 1: \"NA\" is not a valid float32");
    assert_elements(csv_of_bytes(quoted, sizeof quoted - 1, words), "");
    expect_error(MU_DATA_LOSS, "text follows the closing quote");
    mu_iterator *lines = mu_iterate(csv_of_bytes(word, sizeof word - 1, words));
    assert_non_null(mu_next(lines));
    const mu_string second = mu__string_at(mu_at(mu_next(lines), 0), 0);
    assert_int_equal(second.n, 2);
    assert_memory_equal(second.bytes, "\0b", 2);
    unlink(path);
}

static void test_types(void **state)
{
    (void)state;
    const mu_dtype types[] = {MU_I64, MU_F64, MU_U8};
    mu_dataset_csv_args args = {.columns = 3, .dtypes = types, .n_dtypes = 3};
    check("9007199254740993,0.1,255\n", args, "(9.0072e+15,0.1,255)");
    mu_dataset *dataset = csv_of("9007199254740993,0.1,255\n", args);
    MU_EACH(row, dataset)
        assert_true(*(const int64_t *)mu_tensor_data(mu_at(row, 0)) == 9007199254740993);
    unlink(path);
    check("1,2,256\n", args, "");
    expect_error(MU_DATA_LOSS, "line 1, column 3: \"256\" is not a valid uint8");
    check("1.5,2,3\n", args, "");
    expect_error(MU_DATA_LOSS, "column 1: \"1.5\" is not a valid int64");
}

static void test_wrong_lines(void **state)
{
    (void)state;
    mu_dataset_csv_args two = {.columns = 2};
    check("1,2\n3\n", two, "[1 2]");
    expect_error(MU_DATA_LOSS, "line 2 has only 1 columns; expected 2");
    check("1,2,3\n", two, "");
    expect_error(MU_DATA_LOSS, "line 1 has more than 2 columns");
    check("1,two\n", two, "");
    expect_error(MU_DATA_LOSS, "line 1, column 2: \"two\" is not a valid float32");
    check("1,\n", two, "");
    expect_error(MU_DATA_LOSS, "column 2: \"\" is not a valid float32");
    check("1,\"2", two, "");
    expect_error(MU_DATA_LOSS, "inside quotes");
    const mu_dataset_csv_args words = {.columns = 2, .dtypes = (const mu_dtype[]){MU_STRING, MU_STRING}, .n_dtypes = 2};
    check("a,b\"c\n", words, "");
    expect_error(MU_DATA_LOSS, "line 1, column 2: a quote is inside of a field without quotes");
    check("a,b\n \"c\",d\n", words, "('a','b')");
    expect_error(MU_DATA_LOSS, "line 2, column 1: a quote is inside of a field without quotes");
    check("\"a\"b,c\n", words, "");
    expect_error(MU_DATA_LOSS, "column 1: text follows the closing quote; double a quote inside of quotes");
    char wide[2000];
    memset(wide, '1', sizeof wide);
    wide[sizeof wide - 1] = 0;
    check(wide, two, "");
    expect_error(MU_DATA_LOSS, "too long");
    assert_null(mu_dataset_csv("x"));
    expect_error(MU_INVALID_ARGUMENT, "columns = 0");
    assert_null(mu_dataset_csv(.columns = 2));
    expect_error(MU_INVALID_ARGUMENT, "neither a path nor .paths");
}

static void test_strings_blanks_and_names(void **state)
{
    (void)state;
    const mu_dtype types[] = {MU_STRING, MU_F32, MU_I32};
    const char *const names[] = {"name", "height", "age"};
    mu_tensor *const defaults[] = {NULL, mu_constant(MU_F32, -1), NULL};
    mu_dataset_csv_args args = {.columns = 3,
                                .dtypes = types,
                                .n_dtypes = 3,
                                .names = names,
                                .n_names = 3,
                                .record_defaults = defaults,
                                .n_record_defaults = 3,
                                .skip_lines = 1};
    check("n,h,a\n\"Ann, \"\"A\"\"\",1.5,3\nBo,,4\n,2,5\n", args, "('Ann, \"A\"',1.5,3) ('Bo',-1,4) ('',2,5)");
    check("n,h,a\nBo,1,\n", args, "");
    expect_error(MU_DATA_LOSS, "line 2, column 3: the field is empty; give a default in record_defaults");
    args.na_value = "NA";
    check("n,h,a\nNA,NA,7\n", args, "('',-1,7)");
    check("x\n\"two\nlines\",0,0\n", args, "('two\nlines',0,0)");
    mu_tensor *const halves[] = {mu_constant(MU_F32, .5), NULL};
    const mu_dataset_csv_args vectors = {
        .columns = 2, .record_defaults = halves, .n_record_defaults = 2, .na_value = "NA"};
    check("NA,1\n,2\n3,4\n", vectors, "[0.5 1] [0.5 2] [3 4]");
    check("1,NA\n", vectors, "");
    expect_error(MU_DATA_LOSS, "line 1, column 2: \"NA\" is not a valid float32");
    args.no_quotes = true;
    check("x\n\"a\",0,0\n", args, "('\"a\"',0,0)");
}

static void test_selected_columns(void **state)
{
    (void)state;
    const int columns[] = {1, 3};
    const mu_dtype types[] = {MU_STRING, MU_I64};
    mu_dataset_csv_args args = {
        .columns = 4, .dtypes = types, .n_dtypes = 2, .select_columns = columns, .n_select_columns = 2};
    check("x,a,y,1\nx,b,,2\n", args, "('a',1) ('b',2)");
    args.n_dtypes = 4;
    assert_null(csv_of("", args));
    unlink(path);
    expect_error(
        MU_INVALID_ARGUMENT,
        "mu_dataset_csv: .dtypes has 4 elements by its length .n_dtypes; give 2, one for each column that is read");
    args.dtypes = NULL;
    args.n_dtypes = 0;
    check("x,1,y,2\n", args, "[1 2]");
    args.select_columns = (const int[]){1, 1};
    assert_null(csv_of("", args));
    unlink(path);
    expect_error(MU_INVALID_ARGUMENT, "select_columns[1] is 1; expected columns from 0 to 3, ascending");
}

static void test_text_lines(void **state)
{
    (void)state;
    strcpy(path, temporary_file("one\r\n\ntwo words\nlast", 21));
    assert_elements(mu_dataset_text_line(path), "'one' '' 'two words' 'last'");
    assert_elements(mu_dataset_skip(mu_dataset_text_line(path), 3), "'last'");
    assert_elements(mu_dataset_text_lines(mu_dataset_from_tensor_slices(
                        mu_of(mu_tensor_strings(1, (int64_t[]){2}, (const char *const[]){path, path})))),
                    "'one' '' 'two words' 'last' 'one' '' 'two words' 'last'");
    unlink(path);
    strcpy(path, temporary_file("a\rb\r\r\n\r\nc\n\r", 11));
    assert_elements(mu_dataset_text_line(path), "'ab' '' 'c'");
    unlink(path);
}

static void test_records_of_one_length(void **state)
{
    (void)state;
    strcpy(path, temporary_file("\1\2\3\4\5\6\7", 7));
    assert_elements(mu_dataset_fixed_length_record(path, 3, .header_bytes = 1), "[2 3 4] [5 6 7]");
    assert_elements(mu_dataset_fixed_length_record(path, 2, .footer_bytes = 3), "[1 2] [3 4]");
    assert_elements(mu_dataset_fixed_length_record(path, 1, .header_bytes = 4, .footer_bytes = 2), "[5]");
    assert_elements(mu_dataset_fixed_length_record(path, 4, .header_bytes = 4, .footer_bytes = 3), "");
    mu_dataset *twice =
        mu_dataset_from_tensor_slices(mu_of(mu_tensor_strings(1, (int64_t[]){2}, (const char *const[]){path, path})));
    assert_elements(mu_dataset_fixed_length_record(.paths = twice, .record_bytes = 5, .footer_bytes = 2),
                    "[1 2 3 4 5] [1 2 3 4 5]");
    assert_elements(mu_dataset_fixed_length_record(path, 3), "[1 2 3] [4 5 6]");
    expect_error(MU_DATA_LOSS, "1 bytes are behind the last whole record of 3 bytes; expected a footer of 0");
    assert_elements(mu_dataset_fixed_length_record(path, 2, .header_bytes = 8), "");
    expect_error(MU_DATA_LOSS, "the file ends in its header of 8 bytes");
    assert_elements(mu_dataset_fixed_length_record(path, 2, .header_bytes = 6, .footer_bytes = 2), "");
    expect_error(MU_DATA_LOSS, "expected a footer of 2");
    unlink(path);
    assert_null(mu_dataset_fixed_length_record("x", 0));
    expect_error(MU_INVALID_ARGUMENT, "record_bytes 0, header_bytes 0, footer_bytes 0; expected a record of 1 to");
    assert_null(mu_dataset_fixed_length_record(.record_bytes = 2));
    expect_error(MU_INVALID_ARGUMENT, "neither a path nor .paths");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_lines),
        DATA_TEST(test_headers),
        DATA_TEST(test_zero_bytes),
        DATA_TEST(test_types),
        DATA_TEST(test_wrong_lines),
        DATA_TEST(test_strings_blanks_and_names),
        DATA_TEST(test_selected_columns),
        DATA_TEST(test_text_lines),
        DATA_TEST(test_records_of_one_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
