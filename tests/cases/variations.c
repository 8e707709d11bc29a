// Variations of the numbered cases that follow from the guides or from TensorFlow as it runs, and that no case has:
// other types, other ways through the same rule, and what messages must say.
#include "cases.h"

#include <muster/coordinator.h>
#include <muster/control.h>

// The pending error must have this code, and these words in its message; it is taken.
static void expect_words(int line, mu_status wanted, const char *words)
{
    const mu_error error = mu_error_take();
    if (error.code != wanted || !strstr(error.message, words))
        fail_case(line, "%s with \"%s\" wanted, got %s: %s", mu_status_name(wanted), words, mu_status_name(error.code),
                  error.message);
}
#define EXPECT_WORDS(code, words) expect_words(__LINE__, code, words)

// ---- Calls on workers ---------------------------------------------------------------------------

static mu_strategy *servers_in_process(int workers)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"ps\": [\"\"]}");
    for (int i = 0; i < workers; i++)
        mu_cluster_spec_add(spec, "worker", -1, "");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), .in_process = true);
}

static mu_coordinator *coordinator_in_process(int workers) { return mu_coordinator_new(servers_in_process(workers)); }

static mu_dataset *from_three(void *arg)
{
    (void)arg;
    return mu_dataset_range(3, 100, 1);
}

static mu_value *ten_times_plus(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_multiply(mu_at(arguments, 0), mu_constant(MU_I64, 10)), mu_at(arguments, 1)));
}

// Each mention of a per-worker dataset is an element of its own.
static void dataset_twice(void)
{
    mu_coordinator *c = coordinator_in_process(1);
    mu_value *data = mu_create_per_worker_dataset(c, from_three, NULL);
    mu_function *f = mu_function_new(ten_times_plus, NULL);
    for (int i = 0; i < 4; i++)
        EXPECT(mu_fetch(mu_schedule(c, f, mu_list(data, data, MU_END))), 10 * (3 + 2 * i) + 4 + 2 * i);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *refuse_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_assert(mu_greater_equal(mu_value_tensor(arguments), scalar(0)), "negative");
    return arguments;
}

// Whoever has fetched a call's error is told at the next schedule, not at a later one.
static void error_of_the_fetched(void)
{
    mu_coordinator *c = coordinator_in_process(1);
    mu_function *f = mu_function_new(refuse_negative, NULL);
    for (int i = 0; i < 50; i++) {
        CHECK(!mu_fetch(mu_schedule(c, f, mu_of(scalar(-1)))));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "negative");
        CHECK(!mu_schedule(c, f, mu_of(scalar(1))));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "negative");
        EXPECT(mu_fetch(mu_schedule(c, f, mu_of(scalar(1)))), 1);
        CHECK(mu_join(c) == MU_OK);
    }
}

const one_case variation_cases[] = {
    {"vary_dataset_twice", dataset_twice, NULL},
    {"vary_error_of_the_fetched", error_of_the_fetched, NULL},
    {0},
};
