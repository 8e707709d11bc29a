// Every allocation of a pipeline fails once: the call says so, and nothing is lost or left behind.
#include "data_test.h"

#include <unistd.h>

static char csv_path[64], idx_path[64];

static mu_value *twice(mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(element, element, MU_END);
}

static bool any(mu_value *element, void *arg)
{
    (void)arg;
    return mu_value_count(element) > 0;
}

static mu_dataset *three(mu_value *element, void *arg)
{
    (void)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(element), 3);
}

static mu_dataset *in_memory(void)
{
    mu_dataset *rows = mu_dataset_from_tensor_slices(mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){6, 2}, NULL),
                                                             mu_tensor_new(MU_U8, 1, (int64_t[]){6}, NULL), MU_END));
    rows = mu_dataset_repeat(mu_dataset_shuffle(mu_dataset_cache(rows), 4, .seed = 1), 2);
    rows = mu_dataset_rebatch(mu_dataset_batch(rows, 4), 2, (int64_t[]){3, 0}, false);
    return mu_dataset_window(mu_dataset_unbatch(mu__dataset_split(rows, 2)), 3, .shift = 2);
}

static mu_dataset *callbacks(void)
{
    mu_dataset *numbers = mu_dataset_concatenate(mu_dataset_range(0, 3, 1), mu_dataset_range(0, 2, 1));
    numbers = mu_dataset_filter(mu_dataset_map(numbers, twice, NULL), any, NULL);
    numbers = mu_dataset_interleave(mu_dataset_enumerate(numbers, 3), three, NULL, .cycle_length = 2);
    return mu_dataset_padded_batch(mu_dataset_zip(numbers, numbers, MU_END), 4);
}

static mu_dataset *threads(void)
{
    mu_dataset *mapped = mu_dataset_map(mu_dataset_range(0, 6, 1), twice, NULL, .parallel_calls = 2);
    return mu_dataset_prefetch(mu_dataset_batch(mapped, 2), 2);
}

static mu_dataset *files(void)
{
    return mu_dataset_zip(mu_dataset_csv(csv_path, .columns = 2), mu_dataset_idx(idx_path), MU_END);
}

static mu_dataset *cached_file(void)
{
    unlink("test_data_memory.cache");
    return mu_dataset_repeat(
        mu_dataset_cache(mu_dataset_map(mu_dataset_range(0, 3, 1), twice, NULL), "test_data_memory.cache"), 2);
}

static void run(mu_dataset *(*make)(void))
{
    mu_iterator *iterator = mu_iterate(make());
    while (iterator != NULL && mu_next(iterator) != NULL)
        continue;
    if (iterator != NULL)
        mu_iterator_state(iterator);
}

static void check(mu_dataset *(*make)(void))
{
    bool failed = true;
    int rounds = 0;
    for (; failed && rounds < 3000; rounds++) {
        mu_pool *pool = mu_pool_open();
        long before = mu__live_objects(NULL);
        mu__alloc_fail_at(rounds + 1);
        run(make);
        mu__alloc_fail_at(0);
        mu_status code = mu_error_take().code;
        failed = code != MU_OK;
        if (failed)
            assert_int_equal(code, MU_RESOURCE_EXHAUSTED);
        mu_pool_close(pool);
        assert_int_equal(mu__live_objects(NULL), before);
    }
    assert_in_range(rounds, 20, 2999);
}

static void test_in_memory(void **state)
{
    (void)state;
    check(in_memory);
}
static void test_callbacks(void **state)
{
    (void)state;
    check(callbacks);
}
static void test_threads(void **state)
{
    (void)state;
    check(threads);
}

static void test_files(void **state)
{
    (void)state;
    const uint8_t idx[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};
    strcpy(csv_path, temporary_file("1,2\n3,4\n", 8));
    strcpy(idx_path, temporary_file(idx, sizeof idx));
    check(files);
    unlink(csv_path);
    unlink(idx_path);
    check(cached_file);
    unlink("test_data_memory.cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_in_memory),
        DATA_TEST(test_callbacks),
        DATA_TEST(test_threads),
        DATA_TEST(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
