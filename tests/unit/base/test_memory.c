// Tests of blocks, tensor data, arenas and growing arrays, each also with allocations failing.
#include "base_test.h"

static void test_blocks(void **state)
{
    (void)state;
    void *empty = mu__alloc(0);
    assert_non_null(empty);
    mu__free(empty);
    int *numbers = mu__calloc(100, sizeof *numbers);
    for (int i = 0; i < 100; i++)
        assert_int_equal(numbers[i], 0);
    numbers = mu__realloc(numbers, 200 * sizeof *numbers);
    assert_non_null(numbers);
    mu__free(numbers);
    mu__free(NULL);
    char *text = mu__sprintf("%d-%s", 12, "x");
    assert_string_equal(text, "12-x");
    char *copy = mu__strdup(text);
    assert_string_equal(copy, text);
    mu__free(copy);
    mu__free(text);
    text = mu__sprintf("%s", "");
    assert_string_equal(text, "");
    mu__free(text);
}

static void test_overflow(void **state)
{
    (void)state;
    assert_null(mu__calloc(SIZE_MAX / 2, 3));
    assert_taken(MU_RESOURCE_EXHAUSTED, "bytes");
    assert_null(mu__alloc_data(SIZE_MAX - 1));
    assert_taken(MU_RESOURCE_EXHAUSTED, "bytes");
    assert_null(mu__alloc_data(SIZE_MAX / 4));
    assert_taken(MU_RESOURCE_EXHAUSTED, "bytes");
    mu_arena arena = {0};
    assert_null(mu__arena_alloc(&arena, SIZE_MAX - 3));
    assert_taken(MU_RESOURCE_EXHAUSTED, "bytes");
    void *items = NULL;
    size_t capacity = 0;
    assert_int_equal(mu__grow(&items, &capacity, SIZE_MAX / 2, 8), MU_RESOURCE_EXHAUSTED);
    assert_taken(MU_RESOURCE_EXHAUSTED, "array");
}

static void test_data_blocks(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        char *block = mu__alloc_data(sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        memset(block, 1, sizes[i]);
        mu__free_data(block, sizes[i]);
    }
    mu__free_data(NULL, 9 << 20);
}

static void test_arena(void **state)
{
    (void)state;
    mu_arena arena = {0};
    for (int i = 0; i < 2000; i++) {
        unsigned char *block = mu__arena_alloc(&arena, (size_t)i);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (int at = 0; at < i; at++)
            assert_int_equal(block[at], 0);
        memset(block, 7, (size_t)i);
    }
    assert_string_equal(mu__arena_strdup(&arena, "text"), "text");
    assert_memory_equal(mu__arena_copy(&arena, "ab", 2), "ab", 2);
    assert_non_null(mu__arena_alloc(&arena, 3 << 20));
    assert_true(arena.bytes >= 2000 * 1999 / 2);
    mu__arena_free(&arena);
    assert_null(arena.first);
    mu__arena_free(&arena);
}

static void test_growing_array(void **state)
{
    (void)state;
    struct {
        int *items;
        size_t n, capacity;
    } array = {0};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(MU_PUSH(&array, i), MU_OK);
    assert_int_equal(array.n, 1000);
    assert_true(array.capacity >= 1000 && array.capacity < 3000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(array.items[i], i);
    mu__free(array.items);
}

static bool use_all(void *arg)
{
    (void)arg;
    mu_arena arena = {0};
    struct {
        char **items;
        size_t n, capacity;
    } texts = {0};
    bool succeeded = mu__arena_alloc(&arena, 10000) != NULL && mu__arena_strdup(&arena, "x") != NULL;
    void *data = mu__alloc_data(5 << 20);
    char *text = mu__sprintf("%d", 3);
    succeeded = succeeded && data != NULL && text != NULL && MU_PUSH(&texts, text) == MU_OK;
    mu__free(text);
    mu__free(texts.items);
    mu__free_data(data, 5 << 20);
    mu__arena_free(&arena);
    return succeeded;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(use_all, NULL);
}

static void test_allocations_are_counted(void **state)
{
    (void)state;
    mu__alloc_fail_at(0);
    mu__free(mu__alloc(1));
    mu__free(mu__strdup("x"));
    assert_int_equal(mu__alloc_fail_at(0), 2);
    assert_int_equal(mu__alloc_fail_at(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_data_blocks),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_growing_array),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_allocations_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
