// Prefetch and parallel map: same elements in the same order, errors in their place, early ends.
#include "data_test.h"

#include <unistd.h>

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

static void test_prefetch(void **state)
{
    (void)state;
    assert_elements(mu_dataset_prefetch(range(5), 2), "0 1 2 3 4");
    assert_elements(mu_dataset_prefetch(range(5), 0), "0 1 2 3 4");
    assert_elements(mu_dataset_batch(mu_dataset_prefetch(range(5), 100), 2), "[0 1] [2 3] [4]");
    assert_elements(mu_dataset_repeat(mu_dataset_prefetch(mu_dataset_prefetch(range(3), 1), 1), 2), "0 1 2 0 1 2");
    assert_null(mu_dataset_prefetch(range(5), -3));
    expect_error(MU_INVALID_ARGUMENT, "prefetch of -3");
}

static void test_prefetch_broken_off(void **state)
{
    (void)state;
    mu_dataset *endless = mu_dataset_prefetch(mu_dataset_batch(mu_dataset_repeat(range(5), MU_INFINITE), 3), 4);
    for (int i = 0; i < 20; i++)
        MU_EACH(batch, endless)
            if (mu_tensor_elements(mu_at(batch, 0)) == 3)
                break;
    mu_iterate(endless); // never started
}

static mu_value *slow_square(mu_value *element, void *arg)
{
    (void)arg;
    double x = mu_scalar(element);
    usleep((unsigned)(100 * ((int)x * 7 % 5)));
    if (x == 13)
        mu_fail(MU_ABORTED, "thirteen");
    return mu_of(mu_constant(MU_I64, x * x));
}

static void test_parallel_map(void **state)
{
    (void)state;
    mu_dataset *squares = mu_dataset_map(range(10), slow_square, NULL, .parallel_calls = 4);
    assert_elements(squares, "0 1 4 9 16 25 36 49 64 81");
    assert_elements(mu_dataset_prefetch(mu_dataset_shuffle(squares, 1, .seed = 1), 2), "0 1 4 9 16 25 36 49 64 81");
    assert_elements(mu_dataset_skip(squares, 8), "64 81");
}

static void test_errors_in_place(void **state)
{
    (void)state;
    mu_dataset *datasets[] = {
        mu_dataset_prefetch(mu_dataset_map(mu_dataset_range(10, 16, 1), slow_square, NULL), 3),
        mu_dataset_map(mu_dataset_range(10, 16, 1), slow_square, NULL, .parallel_calls = 3),
    };
    for (size_t i = 0; i < MU_COUNT(datasets); i++) {
        mu_iterator *iterator = mu_iterate(datasets[i]);
        char text[TEXT_BYTES] = "";
        append_elements(iterator, 9, text);
        assert_string_equal(text, "100 121 144");
        expect_error(MU_ABORTED, "thirteen");
        append_elements(iterator, 9, text);
        assert_string_equal(text, "100 121 144 196 225");
    }
}

// A batch that is read ahead does not share memory with a batch that is still referenced.
static void test_many_batches(void **state)
{
    (void)state;
    mu_dataset *batches = mu_dataset_prefetch(mu_dataset_batch(range(3000), 3), 5);
    mu_value *kept[4] = {0};
    int64_t next = 0;
    MU_EACH(batch, batches) {
        const int64_t *numbers = mu_tensor_data(mu_at(batch, 0));
        for (int i = 0; i < 3; i++)
            assert_int_equal(numbers[i], next++);
        if (next <= 12)
            kept[next / 3 - 1] = mu_retain(batch);
    }
    assert_int_equal(next, 3000);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(((const int64_t *)mu_tensor_data(mu_at(kept[i], 0)))[2], 3 * i + 2);
        mu_release(kept[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_prefetch),        DATA_TEST(test_prefetch_broken_off), DATA_TEST(test_parallel_map),
        DATA_TEST(test_errors_in_place), DATA_TEST(test_many_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
