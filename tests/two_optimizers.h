// A step of two calls with two optimizers, each for a variable of its own. The second one's rate is an op of the test,
// which can fail, or hurt a server, when the first variable has been updated and the second has not.
#ifndef MU_TESTS_TWO_OPTIMIZERS_H
#define MU_TESTS_TWO_OPTIMIZERS_H

#include <muster.h>

enum { CALLS_OF_TWO = 2 };

typedef struct two_optimizers {
    mu_variable *first, *second;
    mu_optimizer *plain, *late; // late: with the test's rate
} two_optimizers;

static inline two_optimizers two_optimizers_new(mu_strategy *strategy, mu_tensor *(*rate)(mu_tensor *at, void *arg))
{
    two_optimizers two = {0};
    MU_SCOPE(strategy) {
        two.first = mu_variable_new(mu_constant(MU_F64, 0), "first");
        two.second = mu_variable_new(mu_constant(MU_F64, 0), "second");
        two.plain = mu_sgd(.learning_rate = 1);
        two.late = mu_sgd(.schedule = mu_learning_rate_schedule_new(rate));
    }
    return two;
}

// Of the loss (first + second) * x, whose gradients are x.
static inline mu_value *step_of_two(mu_value *arguments, void *arg)
{
    const two_optimizers *two = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *sum = mu_add(mu_variable_read(two->first), mu_variable_read(two->second));
    mu_tensor *loss = mu_multiply(sum, mu_at(arguments, 0));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(two->first, two->second, MU_END));
    mu_apply_gradients(two->plain, mu_list(mu_value_at(gradients, 0), MU_END),
                       .variables = mu_variables(two->first, MU_END));
    mu_apply_gradients(two->late, mu_list(mu_value_at(gradients, 1), MU_END),
                       .variables = mu_variables(two->second, MU_END));
    return mu_error_code() == MU_OK ? mu_of(loss) : NULL;
}

// With the gradients 1 and 2: each variable becomes less by 3.
static inline mu_status run_step_of_two(mu_coordinator *coordinator, mu_function *function)
{
    for (int i = 0; i < CALLS_OF_TWO; i++)
        if (!mu_schedule(coordinator, function, mu_list(mu_constant(MU_F64, i + 1), MU_END)))
            return mu_error_code();
    return mu_join(coordinator);
}

#endif
