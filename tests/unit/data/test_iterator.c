// Iteration: MU_EACH with break, continue, nesting and errors; lent elements; saved and restored positions.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

static void test_each(void **state)
{
    (void)state;
    double total = 0;
    MU_EACH(element, range(10)) {
        if (mu_scalar(element) == 3)
            continue;
        if (mu_scalar(element) == 6)
            break;
        mu_constant(MU_F32, 1);
        total += mu_scalar(element);
    }
    assert_true(total == 0 + 1 + 2 + 4 + 5);
}

static void test_only_datasets(void **state)
{
    (void)state;
    assert_null(mu_iterate(mu_of(mu_constant(MU_F32, 1))));
    expect_error(MU_INVALID_ARGUMENT, "a value cannot be iterated");
    MU_EACH(element, mu_constant(MU_F32, 1))
        fail();
    expect_error(MU_INVALID_ARGUMENT, "a tensor cannot be iterated");
}

static void test_each_nested(void **state)
{
    (void)state;
    int turns = 0;
    MU_EACH(outer, range(4))
        MU_EACH(inner, range(4)) {
            if (mu_scalar(inner) > mu_scalar(outer))
                break;
            turns++;
        }
    assert_int_equal(turns, 1 + 2 + 3 + 4);
}

static void test_each_frees_iterations(void **state)
{
    (void)state;
    long before = 0, most = 0;
    MU_EACH(element, range(100)) {
        for (int i = 0; i < 10; i++)
            mu_of(mu_constant(MU_F32, mu_scalar(element)));
        before = before != 0 ? before : mu__live_objects(NULL);
        most = MU_MAX(most, mu__live_objects(NULL));
    }
    assert_int_equal(most, before);
}

static double first_of(mu_dataset *dataset)
{
    MU_EACH(element, dataset)
        return mu_scalar(element);
    return -1;
}

static void test_each_return(void **state)
{
    (void)state;
    assert_true(first_of(mu_dataset_range(7, 9, 1)) == 7);
    assert_true(first_of(range(0)) == -1);
}

static void test_each_error(void **state)
{
    (void)state;
    int turns = 0;
    MU_EACH(element, range(5)) {
        turns++;
        if (mu_scalar(element) == 2)
            mu_fail(MU_ABORTED, "enough");
    }
    assert_int_equal(turns, 3);
    expect_error(MU_ABORTED, "enough");
    MU_EACH(element, (mu_dataset *)NULL)
        turns += (int)mu_scalar(element);
    expect_error(MU_INVALID_ARGUMENT, "NULL");
}

static void test_end_stays(void **state)
{
    (void)state;
    mu_iterator *iterator = mu_iterate(range(1));
    assert_non_null(mu_next(iterator));
    assert_null(mu_next(iterator));
    assert_null(mu_next(iterator));
    assert_int_equal(mu_error_code(), MU_OK);
}

static bool odd(mu_value *element, void *arg)
{
    (void)arg;
    return (int64_t)mu_scalar(element) % 2 == 1;
}

// Every position of a pipeline is saved, restored in a new iterator, and run to the end.
static void check_resume(mu_dataset *(*make)(void))
{
    char whole[TEXT_BYTES];
    strcpy(whole, elements(make()));
    for (int stop = 0; stop < 12; stop++) {
        mu_dataset *dataset = make();
        mu_iterator *iterator = mu_iterate(dataset);
        char text[TEXT_BYTES] = "";
        append_elements(iterator, stop, text);
        char *saved = strdup(mu_iterator_state(iterator));
        elements(dataset); // other iterations in between do not matter
        mu_iterator *again = mu_iterate(dataset);
        assert_int_equal(mu_iterator_restore(again, saved), MU_OK);
        append_elements(again, 200, text);
        assert_string_equal(text, whole);
        free(saved);
    }
}

static mu_dataset *shuffled_rounds(void)
{
    return mu_dataset_batch(mu_dataset_repeat(mu_dataset_shuffle(range(7), 4, .seed = 3), 3), 2);
}

static mu_dataset *batches_shuffled(void)
{
    mu_dataset *zipped = mu_dataset_zip(range(9), mu_dataset_shuffle(range(9), 9, .seed = 2), MU_END);
    return mu_dataset_prefetch(mu_dataset_shuffle(mu_dataset_batch(zipped, 2), 3, .seed = 4), 2);
}

static mu_dataset *filtered_windows(void)
{
    mu_dataset *odds = mu_dataset_filter(mu_dataset_concatenate(range(20), range(9)), odd, NULL);
    return mu_dataset_take(mu_dataset_window(odds, 3, .shift = 1), 10);
}

static void test_resume(void **state)
{
    (void)state;
    check_resume(shuffled_rounds);
    check_resume(batches_shuffled);
    check_resume(filtered_windows);
}

static void test_restore_refuses(void **state)
{
    (void)state;
    mu_iterator *iterator = mu_iterate(range(3));
    assert_int_equal(mu_iterator_restore(iterator, "{\"elements\":7,\"shuffles\":[]}"), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "only 3");
    mu_iterator_restore(mu_iterate(range(3)), "{\"elements\":-1,\"shuffles\":[]}");
    expect_error(MU_DATA_LOSS, "mu_iterator_state");
    mu_iterator_restore(mu_iterate(range(3)), "nonsense");
    expect_error(MU_DATA_LOSS, "nonsense");
    mu_iterator_restore(mu_iterate(range(3)), "{\"elements\":1,\"shuffles\":[{\"seed\":1,\"iteration\":0}]}");
    expect_error(MU_INVALID_ARGUMENT, "1 shuffles");
    iterator = mu_iterate(range(3));
    mu_next(iterator);
    mu_iterator_restore(iterator, "{\"elements\":1,\"shuffles\":[]}");
    expect_error(MU_FAILED_PRECONDITION, "already given 1");
}

// Iterators of one shuffled dataset that are open at the same time share no order, also where they repeat it.
static void test_orders_of_open_iterators(void **state)
{
    enum { ITERATORS = 3, ROUNDS = 3 };
    (void)state;
    mu_dataset *dataset = mu_dataset_repeat(mu_dataset_shuffle(range(20), 20, .seed = 3), ROUNDS);
    mu_iterator *open[ITERATORS];
    char texts[ITERATORS * ROUNDS][TEXT_BYTES] = {""};
    for (int i = 0; i < ITERATORS; i++)
        open[i] = mu_iterate(dataset);
    for (int i = 0; i < ITERATORS * ROUNDS; i++)
        append_elements(open[i % ITERATORS], 20, texts[i]);
    for (int i = 0; i < ITERATORS * ROUNDS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(texts[i], texts[k]);
}

// A position that is refused changes nothing: the iterator keeps its order, which no other one has.
static void test_refused_positions_change_nothing(void **state)
{
    static const char *const refused[] = {
        "{\"elements\":0,\"shuffles\":[]}", "{\"elements\":0,\"shuffles\":[{\"seed\":9,\"iteration\":1},{}]}",
        "{\"elements\":0,\"shuffles\":[{\"seed\":9,\"iteration\":9223372036854775807},{\"seed\":9,\"iteration\":0}]}"};
    static const mu_status codes[] = {MU_INVALID_ARGUMENT, MU_DATA_LOSS, MU_DATA_LOSS};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(refused); i++) {
        mu_dataset *twice = mu_dataset_shuffle(mu_dataset_shuffle(range(20), 20, .seed = 3), 20, .seed = 4);
        mu_dataset *same = mu_dataset_shuffle(mu_dataset_shuffle(range(20), 20, .seed = 3), 20, .seed = 4);
        mu_iterator *first = mu_iterate(twice);
        assert_int_equal(mu_iterator_restore(first, refused[i]), codes[i]);
        mu_error_take();
        char text[TEXT_BYTES] = "", other[TEXT_BYTES] = "";
        append_elements(mu_iterate(twice), 20, other);
        append_elements(first, 20, text);
        assert_string_not_equal(text, other);
        assert_elements(same, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_only_datasets),
        DATA_TEST(test_each),
        DATA_TEST(test_each_nested),
        DATA_TEST(test_each_frees_iterations),
        DATA_TEST(test_each_return),
        DATA_TEST(test_each_error),
        DATA_TEST(test_end_stays),
        DATA_TEST(test_resume),
        DATA_TEST(test_restore_refuses),
        DATA_TEST(test_orders_of_open_iterators),
        DATA_TEST(test_refused_positions_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
