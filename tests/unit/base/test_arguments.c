// Argument structs: versions, arguments that are 0 on purpose, and arguments that must have a name.
#include "base_test.h"

typedef struct small_args {
    size_t size;
    const char *given;
    int a;
    mu_keyword_only only_;
} small_args;

typedef struct large_args {
    size_t size;
    const char *given;
    int a;
    mu_keyword_only only_;
    int b, bc;
    double c;
    const char *text;
    int list[2];
} large_args;

static int seen_b, seen_bc;
static double seen_c;

static mu_status f_with(const large_args *given)
{
    large_args args;
    MU_TRY(mu__args_copy(&args, sizeof args, given, "f"));
    seen_b = MU_GIVEN(&args, b) ? args.b : 7;
    seen_bc = MU_GIVEN(&args, bc) ? args.bc : 8;
    seen_c = MU_GIVEN(&args, c) ? args.c : 9;
    return mu__args_positive(&args, "a", args.a, "f");
}
#define f(...) f_with(MU_ARGS(large_args, #__VA_ARGS__, __VA_ARGS__))

#define EXPECT_SEEN(call, b, bc, c)    \
    do {                               \
        assert_int_equal(call, MU_OK); \
        assert_int_equal(seen_b, b);   \
        assert_int_equal(seen_bc, bc); \
        assert_true(seen_c == (c));    \
    } while (0)

static void test_a_zero_that_is_written_counts(void **state)
{
    (void)state;
    const int zero = 0;
    EXPECT_SEEN(f(), 7, 8, 9);
    EXPECT_SEEN(f(1), 7, 8, 9);
    EXPECT_SEEN(f(1, .b = 0), 0, 8, 9);
    EXPECT_SEEN(f(1, .bc = zero), 7, 0, 9);
    EXPECT_SEEN(f(.c = 0.0, .a = 2), 7, 8, 0);
    EXPECT_SEEN(f(1, .b = 3, .c = zero * 1.5), 3, 8, 0);
}

static void test_only_names_of_arguments_count(void **state)
{
    (void)state;
    const struct {
        int b, c;
    } other = {1, 2};
    const int b = 1;
    EXPECT_SEEN(f(b, .text = ".b = 0, .c"), 7, 8, 9);
    EXPECT_SEEN(f(1, .text = "\", .b"), 7, 8, 9);
    EXPECT_SEEN(f(1 + (',' == '"'), .bc = 1), 7, 1, 9);
    EXPECT_SEEN(f(other.b, .list = {other.c, .5 > 1}), 7, 8, 9);
    EXPECT_SEEN(f(1, .list = {0, 1}, .b = 0), 0, 8, 9);
}

// A program that fills the struct itself, as bindings of other languages do.
static void test_zeroed_structs_name_their_zeros(void **state)
{
    (void)state;
    large_args args;
    memset(&args, 0, sizeof args);
    args.size = sizeof args;
    EXPECT_SEEN(f_with(&args), 7, 8, 9);
    args.given = ".c, .bc";
    EXPECT_SEEN(f_with(&args), 7, 0, 0);
    args.given = "b, ."; // without a point it is no name
    EXPECT_SEEN(f_with(&args), 7, 8, 9);
    EXPECT_SEEN(f_with(NULL), 7, 8, 9);
}

static void test_a_zero_without_meaning_is_refused(void **state)
{
    (void)state;
    assert_int_equal(f(.a = 0), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "f: a is 0; it must be 1 or more, or left out for the default");
    assert_int_equal(f(.a = -2), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "a is -2");
}

// As f(1, "relu") where the compiler let it pass: every member after only_ has a name.
static void test_an_argument_without_its_name(void **state)
{
    (void)state;
    const large_args args = {
        .size = sizeof args, .given = "1, \"relu\", .b = 2", .a = 1, .only_ = (mu_keyword_only)(const void *)"relu"};
    assert_int_equal(f_with(&args), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "f: argument 2, \"relu\", has no name");
    large_args filled = args;
    filled.given = NULL;
    assert_int_equal(f_with(&filled), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "only_");
}

static void test_args_of_an_older_caller(void **state)
{
    (void)state;
    const small_args old = {.size = sizeof old, .a = 5};
    large_args out = {.b = 3};
    assert_int_equal(mu__args_copy(&out, sizeof out, &old, "f"), MU_OK);
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.a, 5);
    assert_true(out.c == 0);
    assert_int_equal(mu__args_copy(&out, sizeof out, NULL, "f"), MU_OK);
    assert_int_equal(out.a, 0);
}

static void test_args_of_a_newer_caller(void **state)
{
    (void)state;
    large_args given;
    memset(&given, 0, sizeof given);
    given.size = sizeof given;
    given.a = 4;
    small_args out;
    assert_int_equal(mu__args_copy(&out, sizeof out, &given, "mu_f"), MU_OK);
    assert_int_equal(out.a, 4);
    given.c = 1;
    assert_int_equal(mu__args_copy(&out, sizeof out, &given, "mu_f"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "mu_f");
}

static void test_args_without_size(void **state)
{
    (void)state;
    small_args given = {.size = 0}, out;
    assert_int_equal(mu__args_copy(&out, sizeof out, &given, "mu_f"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "mu_f");
    given.size = SIZE_MAX;
    assert_int_equal(mu__args_copy(&out, sizeof out, &given, "mu_f"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "mu_f");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_zero_that_is_written_counts),
        cmocka_unit_test(test_only_names_of_arguments_count),
        cmocka_unit_test(test_zeroed_structs_name_their_zeros),
        cmocka_unit_test(test_a_zero_without_meaning_is_refused),
        cmocka_unit_test(test_an_argument_without_its_name),
        cmocka_unit_test(test_args_of_an_older_caller),
        cmocka_unit_test(test_args_of_a_newer_caller),
        cmocka_unit_test(test_args_without_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
