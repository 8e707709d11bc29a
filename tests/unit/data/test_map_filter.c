// Stages that call C code: map, filter, generator; zip and enumerate; what happens when the code fails.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

static mu_value *add(mu_value *element, void *arg)
{
    mu_constant(MU_F32, 1); // left behind in the pool of the call
    return mu_of(mu_constant(MU_I64, mu_scalar(element) + *(int *)arg));
}

static mu_value *fail_at_2(mu_value *element, void *arg)
{
    (void)arg;
    if (mu_scalar(element) == 2)
        mu_fail(MU_ABORTED, "two is too much");
    return mu_scalar(element) == 4 ? NULL : element;
}

static bool below(mu_value *element, void *arg) { return mu_scalar(element) < *(int *)arg; }

static bool fails(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    mu_fail(MU_UNAVAILABLE, "no judgement");
    return true;
}

static void test_map(void **state)
{
    (void)state;
    int ten = 10;
    assert_elements(mu_dataset_map(range(3), add, &ten), "10 11 12");
    assert_elements(mu_dataset_batch(mu_dataset_map(range(3), add, &ten), 2), "[10 11] [12]");
    assert_int_equal(mu_dataset_cardinality(mu_dataset_map(range(3), add, &ten)), 3);
    assert_null(mu__dataset_spec(mu_dataset_map(range(3), add, &ten)));
    assert_null(mu_dataset_map(range(3), NULL));
    expect_error(MU_INVALID_ARGUMENT, "map has no function");
}

// After a failed element, iteration continues with the next one.
static void test_map_fails(void **state)
{
    (void)state;
    mu_iterator *iterator = mu_iterate(mu_dataset_map(range(6), fail_at_2, NULL, .name = "picky"));
    char text[TEXT_BYTES] = "";
    append_elements(iterator, 9, text);
    assert_string_equal(text, "0 1");
    expect_error(MU_ABORTED, "two is too much");
    append_elements(iterator, 9, text);
    expect_error(MU_INVALID_ARGUMENT, "function of picky returned NULL");
    append_elements(iterator, 9, text);
    assert_string_equal(text, "0 1 3 5");
}

static void test_filter(void **state)
{
    (void)state;
    int three = 3;
    mu_dataset *few = mu_dataset_filter(range(9), below, &three);
    assert_elements(few, "0 1 2");
    assert_elements(mu_dataset_skip(mu_dataset_repeat(few, 2), 4), "1 2");
    assert_int_equal(mu_dataset_cardinality(few), MU_UNKNOWN_CARDINALITY);
    assert_elements(mu_dataset_filter(range(9), fails, NULL), "");
    expect_error(MU_UNAVAILABLE, "no judgement");
}

static void test_zip(void **state)
{
    (void)state;
    assert_elements(mu_dataset_zip(range(3), mu_dataset_range(5, 9, 1), MU_END), "(0,5) (1,6) (2,7)");
    assert_elements(mu_dataset_enumerate(mu_dataset_batch(range(3), 2), 7), "(7,[0 1]) (8,[2])");
    assert_elements(mu_dataset_batch(mu_dataset_zip(range(3), range(3), MU_END), 2), "([0 1],[0 1]) ([2],[2])");
    assert_elements(mu_dataset_skip(mu_dataset_zip(range(3), range(2), MU_END), 1), "(1,1)");
    assert_null(mu_dataset_zip(range(3), NULL, MU_END));
    expect_error(MU_INVALID_ARGUMENT, "dataset to zip is NULL");
}

typedef struct countdown {
    int left;
} countdown;
static int open_states;

static void *countdown_open(void *arg)
{
    countdown *state = malloc(sizeof *state);
    state->left = *(int *)arg;
    open_states++;
    return state;
}

static void countdown_close(void *state)
{
    open_states--;
    free(state);
}

static mu_value *countdown_next(void *arg)
{
    countdown *state = arg;
    return state->left > 0 ? mu_of(mu_constant(MU_F32, state->left--)) : NULL;
}

static void test_generator(void **state)
{
    (void)state;
    int three = 3;
    mu_value *like = mu_of(mu_constant(MU_F32, 0));
    mu_dataset *dataset =
        mu_dataset_generator(countdown_next, &three, .open = countdown_open, .close = countdown_close, .like = like);
    assert_elements(dataset, "3 2 1");
    assert_elements(mu_dataset_repeat(dataset, 2), "3 2 1 3 2 1");
    mu_value *spec = mu__dataset_spec(dataset);
    assert_int_equal(mu_tensor_dtype(mu_at(spec, 0)), MU_F32);
    assert_true(mu_tensor_is_symbolic(mu_at(spec, 0)));
    mu_release(spec);
    int turns = 0;
    MU_EACH(element, dataset)
        if (mu_scalar(element) == 2 || turns++ > 5)
            break;
}

static mu_dataset *counted(int *from, int64_t cardinality)
{
    return mu_dataset_generator(countdown_next, from, .open = countdown_open, .close = countdown_close,
                                .cardinality = cardinality);
}

// A generator must give as many elements as its cardinality says.
static void test_generator_cardinality(void **state)
{
    (void)state;
    static const struct {
        int64_t cardinality;
        const char *message;
    } wrong[] = {{2, "gave at least 3 elements"}, {4, "gave only 3 elements"}, {MU_INFINITE, "ended after 3 elements"}};
    int three = 3;
    mu_dataset *dataset = counted(&three, 3);
    assert_int_equal(mu_dataset_cardinality(dataset), 3);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_batch(dataset, 2)), 2);
    assert_elements(mu_dataset_repeat(dataset, 2), "3 2 1 3 2 1");
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        mu_iterator *iterator = mu_iterate(counted(&three, wrong[i].cardinality));
        while (mu_next(iterator))
            ;
        expect_error(MU_INVALID_ARGUMENT, wrong[i].message);
    }
    assert_null(counted(&three, -3));
    expect_error(MU_INVALID_ARGUMENT, "cardinality is -3");
}

static int no_states_left(void **state)
{
    int result = end_library(state);
    return result != 0 || open_states != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_map),
        DATA_TEST(test_map_fails),
        DATA_TEST(test_filter),
        DATA_TEST(test_zip),
        DATA_TEST(test_generator_cardinality),
        cmocka_unit_test_setup_teardown(test_generator, start_library, no_states_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
