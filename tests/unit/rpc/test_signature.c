// Signatures: what is valid, and which arguments match.
#include "rpc/rpc.h"
#include "rpc_test.h"

static void test_matches(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *rows = mu_tensor_new(MU_F32, 2, (int64_t[]){3, 64}, NULL);
    const struct {
        const char *signature;
        mu_value *arguments;
        const char *error; // NULL: it matches
    } cases[] = {
        {"int32[]", number(1), NULL},
        {"(int32[], int32[])", pair(1, 2), NULL},
        {"()", mu_list(MU_END), NULL},
        {"{rows: float32[?, 64], n: int32[]}", mu_map("n", number(1), "rows", rows, MU_END), NULL},
        {"(float32[*])", mu_list(rows, MU_END), NULL},
        {"((int32[]), float32[3,64])", mu_list(mu_list(number(1), MU_END), rows, MU_END), NULL},
        {"(int32[])", NULL, "argument 0 is missing"},
        {"(int32[], int32[])", mu_list(number(1), MU_END), "argument 1 is missing"},
        {"(int32[])", pair(1, 2), "2 values; expected 1"},
        {"(int64[])", mu_list(number(1), MU_END), "a tensor is int32, not int64"},
        {"(float32[?, 32])", mu_list(rows, MU_END), "has the shape [3, 64]"},
        {"(float32[?])", mu_list(rows, MU_END), "has the shape [3, 64]"},
        {"{a: int32[]}", mu_map("b", number(1), MU_END), "key a is missing"},
        {"(int32[])", number(1), "argument 0 is missing"},
    };
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        const mu_status status = mu__signature_check(cases[i].signature, cases[i].arguments);
        assert_int_equal(status, cases[i].error != NULL ? MU_INVALID_ARGUMENT : MU_OK);
        if (cases[i].error != NULL)
            expect_error(MU_INVALID_ARGUMENT, cases[i].error);
    }
    mu_pool_close(pool);
}

static void test_malformed_signatures(void **state)
{
    static const char *const wrong[] = {"",           "int32",   "int33[]",   "(int32[]",  "(int32[] int32[])",
                                        "{int32[]}",  "int32[2", "int32[-1]", "int32[] x", "int32[1,2,3,4,5,6,7,8,9]",
                                        "{a int32[]}"};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_int_equal(mu__signature_valid(wrong[i]), MU_INVALID_ARGUMENT);
        expect_error(MU_INVALID_ARGUMENT, "the signature");
    }
    char deep[300];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(mu__signature_valid(deep), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "nested");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches), cmocka_unit_test(test_malformed_signatures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
