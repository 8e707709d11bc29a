// Tests of values: nests made, read, flattened, rebuilt and compared.
#include "tensor_test.h"

static mu_value *nest(double a, double b, double c)
{
    return mu_map("x", mu_constant(MU_F32, a), "rest", mu_list(mu_constant(MU_F32, b), mu_constant(MU_F32, c), MU_END),
                  MU_END);
}

static void test_nests(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *value = nest(1, 2, 3);
    assert_int_equal(mu_value_kind_of(value), MU_VALUE_MAP);
    assert_int_equal(mu_value_count(value), 2);
    assert_string_equal(mu_value_key(value, 1), "rest");
    assert_true(mu_scalar(mu_at(mu_value_get(value, "rest"), 1)) == 3);
    assert_true(mu_scalar(mu_value_at(value, 0)) == 1);
    assert_true(mu_scalar(mu_at(mu_of(mu_constant(MU_I32, 5)), 0)) == 5);
    mu_pool_close(pool);
}

static void test_flatten_and_pack(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *value = nest(1, 2, 3), *other = nest(4, 5, 6);
    mu_object *leaves[4] = {NULL};
    assert_int_equal(mu__value_flatten(value, NULL, 0), 3);
    assert_int_equal(mu__value_flatten(value, leaves, 2), 3);
    assert_null(leaves[2]);
    assert_int_equal(mu__value_flatten(value, leaves, 4), 3);
    mu_value *packed = mu__value_pack(other, leaves, 3);
    assert_true(mu__value_same_structure(packed, value));
    assert_true(mu_scalar(mu_at(mu_value_get(packed, "rest"), 0)) == 2);
    assert_false(mu__value_same_structure(packed, mu_list(mu_constant(MU_F32, 1), MU_END)));
    mu_release(packed);
    mu_pool_close(pool);
}

static void test_empty_containers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    assert_int_equal(mu_value_count(mu_list(MU_END)), 0);
    assert_int_equal(mu_value_count(mu_map(MU_END)), 0);
    assert_int_equal(mu_value_kind_of(mu_map_of(0, NULL, NULL)), MU_VALUE_MAP);
    mu_pool_close(pool);
}

static void test_refusals(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    assert_null(mu_list(mu_constant(MU_F32, 1), NULL, MU_END));
    assert_taken(MU_INVALID_ARGUMENT, "element 1 is NULL");
    assert_null(mu_value_get(nest(1, 2, 3), "y"));
    assert_taken(MU_NOT_FOUND, "no key \"y\"");
    assert_null(mu_value_at(nest(1, 2, 3), 2));
    assert_taken(MU_OUT_OF_RANGE, "element 2");
    assert_null(mu_value_tensor(nest(1, 2, 3)));
    assert_taken(MU_INVALID_ARGUMENT, "container");
    assert_null(mu_of(NULL));
    assert_taken(MU_INVALID_ARGUMENT, "NULL");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nests), cmocka_unit_test(test_flatten_and_pack), cmocka_unit_test(test_empty_containers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
