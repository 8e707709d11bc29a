// Times training steps on one device whose team has all cores: steps per second and the slowest step.
//
//   bench_teams small|large SECONDS
//
// "small" has many ops that take microseconds (batch 100, four layers of 8 units), "large" has matrix products that
// the team divides (batch 256, four layers of 512 units). Prints one line of JSON.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 4, MOST_STEPS = 2000000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static mu_variable *weights[LAYERS], *biases[LAYERS];

static mu_value *train_step(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *y = x;
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_variable *variables[2 * LAYERS];
    for (int i = 0; i < LAYERS; i++)
        y = mu_tanh(mu_nn_bias_add(mu_matmul(y, mu_variable_read(weights[i])), mu_variable_read(biases[i])));
    mu_tensor *loss = mu_reduce_mean(mu_square(mu_subtract(y, x)), MU_ALL_AXES);
    for (int i = 0; i < LAYERS; i++) {
        variables[2 * i] = weights[i];
        variables[2 * i + 1] = biases[i];
    }
    mu_value *slopes = mu_gradients(tape, loss, mu_variables_of(2 * LAYERS, variables));
    for (int i = 0; i < LAYERS; i++) {
        mu_variable_assign_sub(weights[i], mu_multiply(mu_constant(MU_F32, .01), mu_at(slopes, 2 * i)));
        mu_variable_assign_sub(biases[i], mu_multiply(mu_constant(MU_F32, .01), mu_at(slopes, 2 * i + 1)));
    }
    return mu_of(loss);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(const char *name, int64_t batch, int64_t units, double seconds)
{
    const int64_t dims[] = {batch, units}, square[] = {units, units};
    mu_tensor *seed = mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){1, 2});
    mu_tensor *x = mu_stateless_random_normal(seed, MU_F32, 2, dims);
    for (int i = 0; i < LAYERS; i++) {
        weights[i] = mu_variable_new(mu_stateless_random_uniform(seed, MU_F32, 2, square), NULL);
        biases[i] = mu_variable_new(mu_zeros(MU_F32, 1, &units), NULL);
    }
    mu_function *step = mu_function_new(train_step, NULL);
    double *times = malloc(MOST_STEPS * sizeof *times);
    long n = 0;
    for (int i = 0; i < 20; i++)
        mu_run(NULL, step, mu_of(x));
    const double begin = now();
    for (double at = begin; times && at - begin < seconds && n < MOST_STEPS && mu_error_code() == MU_OK; n++) {
        mu_pool *pool = mu_pool_open();
        mu_run(NULL, step, mu_of(x));
        mu_pool_close(pool);
        const double end = now();
        times[n] = end - at;
        at = end;
    }
    const double took = now() - begin;
    if (times && n > 0) {
        qsort(times, (size_t)n, sizeof *times, by_size);
        printf("{\"work\":\"%s\",\"steps_per_s\":%.1f,\"median_us\":%.1f,\"p99_us\":%.1f,\"slowest_us\":%.1f}\n", name,
               (double)n / took, times[n / 2] * 1e6, times[n - 1 - n / 100] * 1e6, times[n - 1] * 1e6);
    }
    free(times);
    return mu_exit(mu_error_code() == MU_OK);
}

int main(int argc, char **argv)
{
    const double seconds = argc > 2 ? atof(argv[2]) : 0;
    if (seconds <= 0 || (strcmp(argv[1], "small") != 0 && strcmp(argv[1], "large") != 0)) {
        fprintf(stderr, "usage: bench_teams small|large SECONDS\n");
        return 2;
    }
    mu_init(.cpu_devices = 1);
    return strcmp(argv[1], "small") == 0 ? measure("small", 100, 8, seconds) : measure("large", 256, 512, seconds);
}
