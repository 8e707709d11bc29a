// Library code that works with and without a strategy: it asks for the one in force. Where none is, that is the
// default strategy, which runs a function once and reduces nothing.
#include <muster.h>

#include <stdio.h>

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_constant(MU_F32, 1)));
}

// What a library offers: it does not know what it is called under.
static double sum_of_results(float x)
{
    mu_strategy *strategy = mu_get_strategy();
    mu_function *function = mu_function_new(add_one, NULL);
    mu_value *result = mu_run(strategy, function, mu_list(mu_constant(MU_F32, x), MU_END));
    return mu_scalar(mu_reduce(strategy, MU_SUM, result));
}

int main(void)
{
    mu_init(.cpu_devices = 2);
    double alone = sum_of_results(1), mirrored = 0;
    printf("%s: %g\n", mu_strategy_name(mu_get_strategy()), alone);
    mu_strategy *strategy = mu_mirrored_strategy();
    MU_SCOPE(strategy) {
        mirrored = sum_of_results(1);
        printf("%s: %g\n", mu_strategy_name(mu_get_strategy()), mirrored);
    }
    return mu_exit(alone == 2 && mirrored == 4);
}
