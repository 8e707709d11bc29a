// Tests of values: nests made, read, flattened, rebuilt and compared.
#include "tensor_test.h"

#include <limits.h>

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
    assert_null(mu_value_key(value, 2)); // behind the last
    assert_null(mu_value_key(value, -1));
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
    mu_pool *inner = mu_pool_open();
    assert_null(mu_list((void *)inner, MU_END));
    assert_taken(MU_INVALID_ARGUMENT, "no object of Muster");
    mu_pool_close(inner);
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

// Programs that cast give tensors where values are wanted: the object says what it is.
static void test_arrays_of_tensors(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *one = mu_constant(MU_F32, 1);
    mu_value *mixed[] = {(mu_value *)one, mu_of(mu_constant(MU_F32, 2))};
    mu_value *list = mu_list_of(2, mixed);
    assert_true(mu__is(mu_value_at(list, 0), &mu__value_type));
    assert_true(mu_scalar(mu_at(list, 0)) == 1 && mu_scalar(mu_at(list, 1)) == 2);
    mu_value *map = mu_map_of(2, (const char *const[]){"a", "b"}, mixed);
    assert_true(mu_scalar(mu_value_get(map, "a")) == 1);
    assert_null(mu_list_of(1, (mu_value *const[]){(mu_value *)one->buffer}));
    assert_taken(MU_INVALID_ARGUMENT, "element 0 is a buffer");
    assert_null(mu_list_of(-1, mixed));
    assert_taken(MU_INVALID_ARGUMENT, "n is -1");
    assert_null(mu_map_of(INT_MIN, (const char *const[]){"a"}, mixed));
    assert_taken(MU_INVALID_ARGUMENT, "0 or more");
    mu_pool_close(pool);
}

// Walks over values recurse, so a nest has a limit, which is far below what a stack of 256 KB holds.
static void test_deep_nests(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *nest = mu_of(mu_constant(MU_F32, 7));
    for (int depth = 1; depth <= 1000; depth++)
        nest = depth % 2 ? mu_list(nest, MU_END) : mu_map("x", nest, MU_END);
    mu_object *leaf = NULL;
    assert_non_null(nest);
    assert_int_equal(mu__value_flatten(nest, &leaf, 1), 1);
    mu_value *packed = mu__value_pack(nest, &leaf, 1);
    assert_true(mu__value_same_structure(nest, packed));
    mu_release(packed);
    assert_null(mu_list(nest, MU_END));
    assert_taken(MU_INVALID_ARGUMENT, "at most 1000");
    assert_null(mu_map_of(1, (const char *const[]){"x"}, &nest));
    assert_taken(MU_INVALID_ARGUMENT, "at most 1000");
    mu_pool_close(pool);
}

// A mirrored value of fewer components than there are replicas, as mu_broadcast_to_devices makes it for two of three
// devices: a replica without a component of its own sees the first.
static void test_replicas_behind_the_components(void **state)
{
    (void)state;
    enum { REPLICAS = 3 };
    const double wanted[] = {1, 2, 1};
    mu_pool *pool = mu_pool_open();
    mu_context *context = mu__context();
    const mu_context before = *context;
    mu_value *parts[] = {mu_of(mu_constant(MU_F32, 1)), mu_of(mu_constant(MU_F32, 2))};
    mu_value *mirrored = mu__value_container(MU_VALUE_MIRRORED, 2, parts, NULL);
    assert_non_null(mirrored);
    context->n_components = REPLICAS;
    for (int replica = 0; replica < REPLICAS; replica++) {
        context->component = replica;
        mu_tensor *seen = mu_value_tensor(mirrored);
        assert_non_null(seen);
        assert_true(mu_scalar(seen) == wanted[replica]);
    }
    context->component = before.component;
    context->n_components = before.n_components;
    mu_release(mirrored);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nests),
        cmocka_unit_test(test_flatten_and_pack),
        cmocka_unit_test(test_empty_containers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_arrays_of_tensors),
        cmocka_unit_test(test_deep_nests),
        cmocka_unit_test(test_replicas_behind_the_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
