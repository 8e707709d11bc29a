// Every strategy on devices of the plugin, one model after the other: training reaches the parameters of one device of
// the native engine, with uneven and empty parts too; evaluation counts every sample once.
//
// The recipes are those of tables/test_strategies, in float64: what remains is the order of summation. Each kind
// compiles for seconds, so only some recipes are trained by all; with the argument `all`, all are.
#include "skip.h"

#include "../tables/recipes.h"

#include <muster/tpu_strategy.h>

enum { KINDS = 5 };

static const char *const names[DEVICES + 1] = {"XLA_CPU:0", "XLA_CPU:1", "XLA_CPU:2", "XLA_CPU:3",
                                               "XLA_CPU:4", "XLA_CPU:5", "XLA_CPU:6", "XLA_CPU:7"};

// Mirrored on 3 devices the last batches are uneven, on 8 some parts are empty.
static mu_strategy *on_plugin(int kind)
{
    const char *three[] = {names[0], names[1], names[2], NULL};
    switch (kind) {
    case 0: return mu_one_device_strategy(names[0]);
    case 1: return mu_central_storage_strategy(.compute_devices = (const char *[]){names[1], NULL});
    case 2: return mu_mirrored_strategy(.devices = three);
    case 3: return mu_mirrored_strategy(.devices = names);
    default: mu_tpu_initialize(NULL); return mu_tpu_strategy();
    }
}

static bool all_of_them;

static bool trains(int kind, const struct recipe *recipe)
{
    const bool few = recipe->images && recipe->optimizer == adam;
    return all_of_them || (recipe->images ? kind == 2 && (few || recipe->model == normalized_model)
                                          : kind == 2 || recipe->optimizer == adam);
}

static void reaches_the_parameters_of_the_native_engine(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        outcome wanted = train_on(&recipes[i], mu_default_strategy());
        for (int kind = 0; kind < KINDS; kind++) {
            if (!trains(kind, &recipes[i]))
                continue;
            outcome seen = train_on(&recipes[i], on_plugin(kind));
            assert_int_equal(seen.n_weights, wanted.n_weights);
            assert_near(seen.weights, wanted.weights, wanted.n_weights, 1e-10);
            assert_near(seen.losses, wanted.losses, wanted.epochs, 1e-10);
            free_outcome(&seen);
        }
        free_outcome(&wanted);
    }
}

static void counts_every_sample_once(void **state)
{
    (void)state;
    static measured wanted, seen;
    measure_on(mu_default_strategy(), &wanted);
    for (int kind = 0; kind < KINDS; kind++) {
        measure_on(on_plugin(kind), &seen);
        assert_int_equal(seen.samples, 1000);
        assert_true(seen.accuracy == wanted.accuracy);
        assert_number(seen.loss, wanted.loss, 1e-10);
        assert_near(seen.outputs, wanted.outputs, MU_COUNT(wanted.outputs), 1e-10);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(reaches_the_parameters_of_the_native_engine),
                                       MODEL_TEST(counts_every_sample_once)};
    if (plugin_missing())
        return SKIPPED;
    all_of_them = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
