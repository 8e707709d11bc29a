// bench_steps: the time of a training step on the native engine, for networks beside the CNNs of bench_train: dense
// layers, an LSTM, a GPT, and the CNN written with ops, all with Adam.
//
// Usage: bench_steps [NAME [REPLICAS]], by default all networks on one replica. Each round times as many steps as
// take about 0.2 s; prints a line of JSON per network with the median of the rounds, and the losses of the first and
// the last step, so that two builds can be compared on equal results.
#include "../xla/networks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 5, ROUNDS = 9 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void make_transformer(network *net) { make_gpt(net, &gpt_sizes[0]); }

static const struct named {
    const char *name;
    void (*make)(network *out);
} all[] = {{"cnn", make_cnn}, {"mlp", make_mlp}, {"lstm", make_lstm}, {"transformer", make_transformer}};

static mu_value *train_step(mu_value *batch, void *arg)
{
    network *net = arg;
    mu_tensor *weights[MOST_WEIGHTS];
    mu_tape *tape = mu_tape_open();
    for (int i = 0; i < net->n_weights; i++)
        weights[i] = mu_variable_read(net->weights[i]);
    mu_tensor *losses = net->loss(net, weights, mu_at(batch, 0), mu_at(batch, 1));
    mu_tensor *loss = mu_compute_average_loss(losses);
    mu_apply_gradients(net->optimizer, mu_gradients(tape, loss, mu_variables_of(net->n_weights, net->weights)));
    return mu_of(loss);
}

// The loss of one step; a failure ends the program.
static double step(mu_strategy *strategy, const network *net, mu_value *batch)
{
    mu_pool *pool = mu_pool_open();
    mu_value *result = mu_run(strategy, net->step, batch);
    const double loss = result ? mu_scalar(mu_reduce(strategy, MU_MEAN, result)) : 0;
    mu_pool_close(pool);
    if (result)
        return loss;
    fprintf(stderr, "bench_steps: %s: %s\n", net->name, mu_error_message());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct named *which, int replicas)
{
    network net;
    double times[ROUNDS], first = 0, last = 0;
    const char *devices[] = {"CPU:0", replicas > 1 ? "CPU:1" : NULL, NULL};
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    MU_SCOPE(strategy) {
        which->make(&net);
        net.optimizer = mu_adam(.learning_rate = 1e-4);
    }
    mu_value *batch = net.batch(&net);
    net.step = mu_function_new(train_step, &net);
    double begin = now();
    for (int i = 0; i < WARM_UP; i++) {
        last = step(strategy, &net, batch);
        first = i == 0 ? last : first;
        begin = i == 0 ? now() : begin;
    }
    const int per_round = (int)(0.2 * (WARM_UP - 1) / (now() - begin)) + 1;
    for (int r = 0; r < ROUNDS; r++) {
        begin = now();
        for (int i = 0; i < per_round; i++)
            last = step(strategy, &net, batch);
        times[r] = (now() - begin) / per_round;
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    printf("{\"network\":\"%s\",\"replicas\":%d,\"ms_per_step\":%.4f,\"first_loss\":%.7f,\"last_loss\":%.7f}\n",
           net.name, replicas, 1e3 * times[ROUNDS / 2], first, last);
}

int main(int argc, char **argv)
{
    const int replicas = argc > 2 ? atoi(argv[2]) : 1;
    int done = 0;
    if (replicas < 1 || replicas > 2) {
        fprintf(stderr, "usage: bench_steps [cnn|mlp|lstm|transformer [1|2]]\n");
        return 64;
    }
    mu_init(.cpu_devices = replicas);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (argc < 2 || strcmp(argv[1], all[i].name) == 0) {
            mu_pool *pool = mu_pool_open();
            measure(&all[i], replicas);
            mu_pool_close(pool);
            done++;
        }
    if (done == 0)
        fprintf(stderr, "bench_steps: there is no network \"%s\"; there are cnn, mlp, lstm and transformer\n", argv[1]);
    return done ? 0 : 64;
}
