// CSV: numbers, quotes, line ends, headers, types; every wrong line is named.
#include "data_test.h"

#include <unistd.h>

static char path[64];

static mu_dataset *csv_of(const char *text, mu_dataset_csv_args args)
{
    strcpy(path, temporary_file(text, strlen(text)));
    args.size = sizeof args;
    args.path = path;
    return mu_dataset_csv_with(&args);
}

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
    check("only a header", (mu_dataset_csv_args){.columns = 1, .skip_lines = 3}, "");
}

static void test_types(void **state)
{
    (void)state;
    const mu_dtype types[] = {MU_I64, MU_F64, MU_U8};
    mu_dataset_csv_args args = {.columns = 3, .dtypes = types};
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

int main(void)
{
    const struct CMUnitTest tests[] = {DATA_TEST(test_lines), DATA_TEST(test_types), DATA_TEST(test_wrong_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
