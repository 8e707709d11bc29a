// Muster's side of the bench of XLA devices: does what run.py asks for, line by line, and answers each line with one of
// JSON. The figures: a training step of each network on one device and on two, an empty step, a large array to the
// device and back, compiling. Usage: bench_xla KIND, the kind of the devices: XLA_CPU, GPU or TPU.
#include "networks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { CHECKED_STEPS = 5, LARGE = 4 << 20 };

static char first_device[32], second_device[32];

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double processor(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void stop_on_error(const void *result, const char *what)
{
    if (result)
        return;
    fprintf(stderr, "bench_xla: %s: %s\n", what, mu_error_message());
    exit(1);
}

// ---- Training steps -----------------------------------------------------------------------------

static mu_value *train_step(mu_value *batch, void *arg)
{
    network *net = arg;
    mu_tensor *weights[MOST_WEIGHTS];
    mu_tape *tape = mu_tape_open();
    for (int i = 0; i < net->n_weights; i++)
        weights[i] = mu_cast(mu_variable_read(net->weights[i]), net->dtype);
    mu_tensor *losses = net->loss(net, weights, mu_at(batch, 0), mu_at(batch, 1));
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = net->samples);
    mu_apply_gradients(net->optimizer, mu_gradients(tape, loss, mu_variables_of(net->n_weights, net->weights)));
    return mu_of(loss);
}

typedef struct training {
    network net;
    mu_strategy *strategy;
    mu_value *batch;
} training;

static mu_value *parts_of(mu_strategy *strategy, const network *net)
{
    mu_value *whole = net->batch(net), *split[2][2];
    for (int i = 0; i < 2; i++) {
        mu_tensor *halves[2];
        if (mu_split(mu_at(whole, i), 2, 0, halves) != MU_OK)
            return NULL;
        for (int r = 0; r < 2; r++)
            split[i][r] = mu_of(halves[r]);
    }
    return mu_list(mu_per_replica_of(strategy, 2, split[0]), mu_per_replica_of(strategy, 2, split[1]), MU_END);
}

static void open_training(training *t, const gpt_size *size, int devices)
{
    const char *names[] = {first_device, second_device, NULL};
    t->strategy = devices == 1 ? mu_one_device_strategy(names[0]) : mu_mirrored_strategy(.devices = names);
    MU_SCOPE(t->strategy) {
        if (size)
            make_gpt(&t->net, size);
        else
            make_cnn(&t->net);
        t->net.optimizer = mu_adam(.learning_rate = 1e-3);
    }
    t->batch = mu_retain(devices == 1 ? t->net.batch(&t->net) : parts_of(t->strategy, &t->net));
    t->net.step = mu_retain(mu_function_new(train_step, &t->net));
    stop_on_error(t->batch, t->net.name);
}

static mu_value *step(const training *t)
{
    mu_value *result = mu_run(t->strategy, t->net.step, t->batch);
    stop_on_error(result, t->net.name);
    return result;
}

static void check(const training *t)
{
    printf("{\"losses\":[");
    for (int i = 0; i < CHECKED_STEPS; i++)
        printf("%s%.7f", i ? "," : "", mu_scalar(mu_reduce(t->strategy, MU_SUM, step(t))));
    printf("]}\n");
}

static void run_steps(void *arg)
{
    mu_pool *pool = mu_pool_open();
    step(arg);
    mu_pool_close(pool);
}

// ---- An empty step, a large array ---------------------------------------------------------------

static mu_strategy *one;
static mu_variable *counter, *large;
static mu_tensor *source;
static mu_function *empty_step, *large_step;

static mu_value *count(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_variable_assign_add(counter, mu_constant(MU_F32, 1));
    return NULL;
}

static mu_value *touch(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *value = mu_variable_read(large);
    mu_variable_assign(large, mu_tensor_scatter_add(value, mu_tensor_new(MU_I32, 2, (int64_t[]){1, 1}, (int32_t[]){0}),
                                                    mu_fill(MU_F32, 1, (int64_t[]){1}, 1)));
    return NULL;
}

static void open_small(void)
{
    one = mu_one_device_strategy(first_device);
    MU_SCOPE(one) {
        counter = mu_variable_new(.initial_value = mu_constant(MU_F32, 0), .name = "counter");
        source = mu_retain(mu_fill(MU_F32, 1, (int64_t[]){LARGE}, 1));
        large = mu_variable_new(.initial_value = source, .name = "large");
    }
    empty_step = mu_retain(mu_function_new(count, NULL));
    large_step = mu_retain(mu_function_new(touch, NULL));
}

static void run_empty(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    stop_on_error(mu_run(one, empty_step, NULL), "the empty step");
    mu_pool_close(pool);
}

static void run_transfer(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    mu_variable_assign(large, source);
    stop_on_error(mu_run(one, large_step, NULL), "the large array");
    const float *back = mu_tensor_data(mu_variable_read(large));
    if (!back || back[0] != 2 || back[LARGE - 1] != 1)
        exit(2);
    mu_pool_close(pool);
}

// ---- Compiling ----------------------------------------------------------------------------------

// The first run of a new function traces and compiles; the second one does not.
static double compile_seconds(training *t)
{
    mu_pool *pool = mu_pool_open();
    mu_function *kept = t->net.step;
    t->net.step = mu_function_new(train_step, &t->net);
    const double begin = wall();
    step(t);
    const double middle = wall();
    step(t);
    const double seconds = middle - begin - (wall() - middle);
    t->net.step = kept;
    mu_pool_close(pool);
    return seconds;
}

// ---- Requests -----------------------------------------------------------------------------------

static void measure(void (*run)(void *arg), void *arg, int times)
{
    run(arg);
    const double begin = wall(), used = processor();
    for (int i = 0; i < times; i++)
        run(arg);
    printf("{\"wall\":%.9f,\"processor\":%.9f}\n", (wall() - begin) / times, (processor() - used) / times);
}

// A network's name, with "_2" behind it on two devices.
static training *named(const char *name)
{
    enum { MOST = 2 * (GPT_SIZES + 1) };
    static training trainings[MOST];
    static bool open[MOST];
    for (int i = 0; i < MOST; i++) {
        const gpt_size *size = i < 2 ? NULL : &gpt_sizes[i / 2 - 1];
        const int devices = 1 + i % 2;
        char own[32];
        snprintf(own, sizeof own, "%s%s", size ? size->name : "cnn", devices == 2 ? "_2" : "");
        if (strcmp(own, name) != 0)
            continue;
        if (!open[i])
            open_training(&trainings[i], size, devices);
        open[i] = true;
        return &trainings[i];
    }
    return NULL;
}

static void answer(const char *what, const char *name, int times)
{
    training *t = named(name);
    if (strcmp(what, "check") == 0 && t)
        check(t);
    else if (strcmp(what, "compile") == 0 && t)
        printf("{\"wall\":%.9f}\n", compile_seconds(t));
    else if (strcmp(what, "step") == 0 && t)
        measure(run_steps, t, times);
    else if (strcmp(what, "empty") == 0)
        measure(run_empty, NULL, times);
    else if (strcmp(what, "transfer") == 0)
        measure(run_transfer, NULL, times);
    else
        printf("{\"error\":\"%s %s\"}\n", what, name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[128], what[32], name[32];
    int times;
    if (argc != 2) {
        fprintf(stderr, "usage: bench_xla KIND\n");
        return 2;
    }
    snprintf(first_device, sizeof first_device, "%.20s:0", argv[1]);
    snprintf(second_device, sizeof second_device, "%.20s:1", argv[1]);
    mu_init(.cpu_devices = 4);
    open_small();
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %31s %d", what, name, &times) == 3)
        answer(what, name, times);
    return mu_exit(true);
}
