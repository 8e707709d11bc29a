// What TensorFlow does with variables among the values of branches, loops and maps: they stand for what they hold.
#include "cases.h"

#include <muster/control.h>

static mu_tensor *first(mu_value *values) { return mu_at(values, 0); }

static mu_tensor *is_below_five(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(first(vars), scalar(5));
}

static mu_value *one_more(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_list(mu_add(first(vars), scalar(1)), MU_END);
}

static mu_value *loop(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_while_loop(is_below_five, one_more, mu_variables(arg, MU_END));
}

// Gives back the variable, which holds five then.
static mu_value *assign_five(mu_value *vars, void *arg)
{
    CHECK(mu_variable_assign(arg, mu_add(first(vars), scalar(5))) == MU_OK);
    return mu_variables(arg, MU_END);
}

static mu_value *loop_that_assigns(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_while_loop(is_below_five, assign_five, mu_list(scalar(0), MU_END), arg);
}

static mu_value *the_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variables(arg, MU_END);
}

static mu_value *its_value_and_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_list(mu_add(mu_variable_read(arg), scalar(1)), MU_END);
}

static mu_value *branch(mu_value *arguments, void *arg)
{
    return mu_cond(mu_at(arguments, 0), the_variable, its_value_and_one, NULL, arg);
}

static mu_value *running_sum(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_add(first(state), mu_value_tensor(element)), MU_END);
}

static mu_value *scan(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable *rows = arg;
    mu_value *start = mu_list(mu_multiply(scalar(10), scalar(1)), MU_END);
    return mu_scan(running_sum, mu_value_at(mu_variables(rows, MU_END), 0), start);
}

static mu_value *doubled(mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_value_tensor(element), scalar(2)));
}

static mu_value *map(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_map_fn(doubled, mu_value_at(mu_variables(arg, MU_END), 0), NULL);
}

static mu_value *map_at_once(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_vectorized_map(doubled, mu_value_at(mu_variables(arg, MU_END), 0), NULL);
}

static mu_value *run(int way, mu_strategy *strategy, replica_fn *fn, mu_variable *v, mu_value *arguments)
{
    if (way == 2)
        return fn(arguments, v);
    if (way == 3)
        return mu_function_call(mu_function_new(fn, v), arguments);
    mu_value *out =
        way ? mu_run(strategy, mu_function_new(fn, v), arguments) : mu_run_callback(strategy, fn, v, arguments);
    return mu_value_at(mu_local_results(strategy, out), 0);
}

static void variables_in_loops(void)
{
    mu_strategy *all[] = {mirrored(2), mu_one_device_strategy("CPU:0"), mu_default_strategy(), mu_default_strategy()};
    for (int i = 0; i < 4; i++)
        for (int way = i < 2 ? 0 : i; way < (i < 2 ? 2 : i + 1); way++) {
            mu_variable *v = on_write(all[i], 0, MU_AGGREGATION_MEAN);
            mu_variable *rows = variable(all[i], VECTOR(1, 2, 3), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
            EXPECT(run(way, all[i], loop, v, NULL), 5);
            EXPECT(read_of(v), 0);
            EXPECT(run(way, all[i], scan, rows, NULL), 11, 13, 16);
            EXPECT(run(way, all[i], map, rows, NULL), 2, 4, 6);
            EXPECT(run(way, all[i], map_at_once, rows, NULL), 2, 4, 6);
            EXPECT(run(way, all[i], loop_that_assigns, v, NULL), 5);
            EXPECT(read_of(v), 5);
        }
}

static void variables_in_branches(void)
{
    mu_strategy *all[] = {mirrored(2), mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    for (int i = 0; i < 6; i++) {
        const bool holds = i % 2 == 0;
        const int way = i / 2 == 2 ? 3 : 1;
        mu_variable *v = on_write(all[i / 2], 7, MU_AGGREGATION_NONE);
        mu_value *pred = mu_list(mu_constant(MU_BOOL, holds), MU_END);
        EXPECT(run(way, all[i / 2], branch, v, pred), holds ? 7 : 8);
    }
    // Outside of traces the branch is only called.
    mu_variable *v = mu_variable_new(scalar(7), "v");
    CHECK(mu_value_variable(mu_value_at(branch(mu_list(mu_constant(MU_BOOL, true), MU_END), v), 0)) == v);
}

const one_case pin_control_cases[] = {
    {"pin_variables_in_loops", variables_in_loops, NULL},
    {"pin_variables_in_branches", variables_in_branches, NULL},
    {0},
};
