// Every allocation of tracing, differentiating, compiling and running a function fails once: the call says so, nothing
// crashes and nothing stays behind. The function has a loop, a scan, branches, calls and state in it.
#include "../fail_allocation.h"
#include "control_test.h"

#include "graph/control/control.h"

static mu_variable *level;

static mu_tensor *total(mu_tensor *x) { return mu_reduce_sum(x, MU_ALL_AXES); }

static mu_tensor *few_iterations(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_F64, 3));
}

static mu_value *iteration(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(vars, 1);
    mu_variable_assign_add(level, mu_reduce_mean(x, 0));
    mu_tensor *next = mu_tanh(mu_multiply(x, mu_variable_read(level)));
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_F64, 1)), next, MU_END);
}

static mu_value *step(mu_value *states, mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_sin(mu_add(mu_at(states, 0), mu_at(element, 0))), MU_END);
}

static mu_value *bend(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_square(mu_at(arguments, 0)), MU_END);
}

static mu_value *shift(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign(level, mu_constant(MU_F64, .5));
    return mu_list(mu_multiply(mu_at(arguments, 0), mu_variable_read(level)), MU_END);
}

static mu_value *derivative(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)results;
    (void)arg;
    return mu_list(mu_multiply(mu_at(arguments, 0), mu_at(gradients, 0)), MU_END);
}

static mu_value *inner(mu_value *arguments, void *arg)
{
    return mu_recompute_grad(bend, mu_custom_gradient(bend, derivative, arguments, arg), arg);
}

static mu_value *work(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_at(arguments, 0);
    mu_value *looped = mu_while_loop(few_iterations, iteration, mu_list(mu_constant(MU_F64, 0), x, MU_END), arg,
                                     .maximum_iterations = 4);
    mu_value *states = mu_scan(step, mu_list(x, MU_END), mu_list(total(x), MU_END), arg);
    mu_value *bent = mu_cond(mu_less(total(x), mu_constant(MU_F64, 0)), bend, shift, states, arg);
    mu_value *called = mu_function_call(mu_function_new(inner, arg), bent);
    mu_value *rows = mu_vectorized_map(bend, called, arg);
    mu_tensor *y = mu_add(total(mu_multiply(mu_at(looped, 1), mu_at(rows, 0))), mu_variable_read(level));
    mu_value *found = mu_gradients(tape, y, mu_list(x, mu_variables(level, MU_END), MU_END));
    return mu_list(y, mu_at(found, 0), mu_at(mu_value_at(found, 1), 0), MU_END);
}

static void run_once(mu_strategy *strategy)
{
    MU_SCOPE(strategy) {
        level = mu_variable_new(mu_constant(MU_F64, .5), "level");
    }
    mu_value *arguments = mu_list(vector(4, (double[]){.3, -.7, 1.1, .2}), MU_END);
    mu_function *function = mu_function_new(work, NULL);
    for (int i = 0; i < 2; i++)
        mu_run(strategy, function, arguments);
}

// Serialised, read and made pure, as well.
static void send_once(mu_strategy *strategy)
{
    (void)strategy;
    void *bytes = NULL;
    size_t size = 0;
    level = mu_variable_new(mu_constant(MU_F64, .5), "level");
    mu_value *arguments = mu_list(vector(4, (double[]){.3, -.7, 1.1, .2}), MU_END);
    mu_function *function = mu_function_new(work, NULL);
    mu_concrete *concrete = function ? mu__function_concrete(function, arguments, false, NULL) : NULL;
    mu_graph *pure = concrete ? mu__pass_state(concrete->graph) : NULL;
    if (pure && mu__graph_write(pure, &bytes, &size) == MU_OK)
        mu__free(bytes);
    mu_release(pure);
}

typedef struct run {
    void (*once)(mu_strategy *strategy);
    mu_strategy *strategy;
} run;

static void run_again(void *arg)
{
    const run *of = arg;
    of->once(of->strategy);
}

static void check(void (*once)(mu_strategy *strategy), mu_strategy *strategy, int least)
{
    once(strategy);
    if (mu_error_code() != MU_OK)
        fail_msg("%s", mu_error_message());
    run of = {once, strategy};
    bool reached = true;
    int rounds = 0, failures = 0;
    for (long n = 1; reached && rounds < 20000; n += n < 3000 ? 1 : 7, rounds++) {
        const allocation_failed seen = fail_allocation(n, run_again, &of);
        reached = seen.reached;
        failures += seen.failed;
    }
    print_message("%d allocations, %d failures\n", rounds - 1, failures);
    assert_in_range(rounds, least, 19999);
    assert_true(failures > rounds * 9 / 10); // few allocations are for optional work
}

static void on_one_device(void **state)
{
    (void)state;
    check(run_once, mu_default_strategy(), 500);
}

static void on_two_replicas(void **state)
{
    (void)state;
    check(run_once, strategy_of(2), 500);
}

static void as_a_pure_graph(void **state)
{
    (void)state;
    check(send_once, NULL, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(on_one_device),
        MODEL_TEST(on_two_replicas),
        MODEL_TEST(as_a_pure_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
