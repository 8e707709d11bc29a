// together [MODE]: one worker of a job. Two strategies of the same cluster train a small model each, alternately, and
// the weights are printed bit for bit, with the numbers of replicas and threads of this process. MODE: "one" makes only
// one strategy, "deterministic" one that must give the same bits everywhere, "other" a second one of another cluster.
#include "distribute/distribute.h"

#include <muster.h>

enum { WIDTH = 400, ROWS = 64, STEPS = 3 };

typedef struct training {
    mu_strategy *strategy;
    mu_variable *weights, *steps;
    mu_function *step;
} training;

static mu_value *train_step(mu_value *batch, void *arg)
{
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_matmul(mu_at(batch, 0), mu_variable_read(t->weights));
    mu_tensor *loss = mu_reduce_mean(mu_reshape(mu_multiply(y, y), 1, (int64_t[]){-1}), 0);
    mu_tensor *derivative = mu_at(mu_gradients(tape, loss, mu_variables(t->weights, MU_END)), 0);
    mu_variable_assign_sub(t->weights, mu_multiply(mu_constant(MU_F32, 0.1), derivative));
    mu_variable_assign_add(t->steps, mu_constant(MU_F32, 1));
    return mu_of(loss);
}

static void make(training *t, const mu_communication_options *options, double scale)
{
    static float first[WIDTH * WIDTH];
    t->strategy = mu_multi_worker_mirrored_strategy(.communication_options = options);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        first[i] = (float)(scale * ((i * 37) % 101 - 50) / 101);
    MU_SCOPE(t->strategy) {
        t->weights = mu_variable_new(mu_tensor_new(MU_F32, 2, (int64_t[]){WIDTH, WIDTH}, first), "weights",
                                     .aggregation = MU_AGGREGATION_SUM);
        t->steps = mu_variable_new(mu_constant(MU_F32, 0), "steps", .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA);
    }
    t->step = mu_function_new(train_step, t);
}

static mu_value *batch(int number)
{
    static float rows[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i] = (float)((i * 53 + number * 11) % 97) / 97;
    return mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, WIDTH}, rows), MU_END);
}

static void print(const training *t, const char *name)
{
    static float at[WIDTH * WIDTH];
    uint32_t hash = 2166136261u;
    if (mu_tensor_copy_to(mu_variable_read(t->weights), at, sizeof at) != MU_OK)
        return;
    for (size_t i = 0; i < sizeof at; i++)
        hash = (hash ^ ((const uint8_t *)at)[i]) * 16777619u;
    printf("%s: %d replicas, %d here, %d threads each, steps %g, weights %08x\n", name,
           mu_num_replicas_in_sync(t->strategy), t->strategy->n_local, t->strategy->devices[0]->team.n_threads,
           mu_scalar(mu_variable_read(t->steps)), (unsigned)hash);
}

static void second_of_another(void)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"127.0.0.1:1\", \"127.0.0.1:2\"]}");
    mu_cluster *cluster = mu_simple_cluster_resolver(spec, .task_type = "worker", .task_id = 0);
    if (!mu_multi_worker_mirrored_strategy(cluster)) {
        const mu_error error = mu_error_take();
        printf("refused: %s: %s\n", mu_status_name(error.code), error.message);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const bool one = strcmp(mode, "one") == 0 || strcmp(mode, "deterministic") == 0;
    const mu_communication_options *options =
        MU_COMMUNICATION_OPTIONS(.deterministic = strcmp(mode, "deterministic") == 0);
    training first = {0}, second = {0};
    mu_init(.seed = 1);
    make(&first, options, 1);
    if (!one)
        make(&second, options, 2);
    for (int i = 0; i < STEPS && mu_error_code() == MU_OK; i++) {
        mu_run(first.strategy, first.step, batch(i));
        if (!one && mu_error_code() == MU_OK)
            mu_run(second.strategy, second.step, batch(i + 1));
    }
    print(&first, "first");
    if (!one)
        print(&second, "second");
    if (strcmp(mode, "other") == 0)
        second_of_another();
    return mu_exit(mu_error_code() == MU_OK);
}
