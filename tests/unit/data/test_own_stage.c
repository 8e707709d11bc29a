// A stage of the test's own, through the interface that all stages use: its struct of arguments with the objects that
// it owns, its state, its own way of skipping, and its place when a pipeline is divided among workers.
//
// `scaled` multiplies the numbers of its input by the elements of a list, one after the other.
#include "data_test.h"

typedef struct scaled_args {
    mu_numbers factors; // owned
} scaled_args;

static const mu_owned_field scaled_owned[] = {{MU_OWNS_NUMBERS, offsetof(scaled_args, factors)}, {MU_OWNS_END, 0}};

typedef struct scaled_state {
    int64_t at;
} scaled_state;

static mu_status scaled_next(mu_stage *stage, mu_item *item, bool *end)
{
    const scaled_args *args = stage->dataset->args;
    scaled_state *state = stage->state;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    const mu_tensor *number = mu_value_tensor(mu__item_value(item));
    const int64_t factor = args->factors.items[state->at++ % args->factors.n];
    const int64_t product = *(const int64_t *)mu_tensor_data(number) * factor;
    mu__item_drop(item);
    item->value = mu__number_value(product);
    return item->value ? MU_OK : mu_error_code();
}

static mu_status scaled_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    MU_TRY(mu__stage_skip(stage, 0, count, skipped));
    ((scaled_state *)stage->state)->at += *skipped;
    return MU_OK;
}

static int64_t scaled_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static const mu_stage_ops scaled_stage = {
    .name = "scaled",
    .state_bytes = sizeof(scaled_state),
    .args_bytes = sizeof(scaled_args),
    .owned = scaled_owned,
    .next = scaled_next,
    .skip = scaled_skip,
    .cardinality = scaled_cardinality,
};

static mu_dataset *scaled(mu_dataset *input)
{
    const int64_t factors[] = {1, 10, 100};
    scaled_args args = {.factors = {3, mu__alloc(sizeof factors)}};
    memcpy(args.factors.items, factors, sizeof factors);
    return mu__dataset_stage(&scaled_stage, &args, input);
}

static void runs_in_a_pipeline(void **state)
{
    (void)state;
    mu_dataset *numbers = scaled(mu_dataset_range(1, 7, 1));
    assert_elements(mu_dataset_batch(numbers, 2), "[1 20] [300 4] [50 600]");
    assert_elements(mu_dataset_skip(numbers, 4), "50 600");
    assert_elements(mu_dataset_repeat(mu_dataset_take(numbers, 2), 2), "1 20 1 20");
    assert_int_equal(mu_dataset_cardinality(numbers), 6);
}

// A division between workers clones the stages behind it: the clone has arguments of its own.
static void is_cloned_with_its_arguments(void **state)
{
    (void)state;
    mu_dataset *numbers = scaled(mu_dataset_range(1, 4, 1)), *other = mu_dataset_range(5, 8, 1);
    mu_dataset *clone = mu__give(mu__dataset_clone(numbers, &other));
    const scaled_args *from = numbers->args, *to = clone->args;
    assert_ptr_not_equal(to->factors.items, from->factors.items);
    assert_elements(clone, "5 60 700");
}

static void is_freed_when_it_cannot_be_made(void **state)
{
    (void)state;
    assert_null(scaled(NULL));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(runs_in_a_pipeline),
        DATA_TEST(is_cloned_with_its_arguments),
        DATA_TEST(is_freed_when_it_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
