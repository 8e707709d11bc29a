// Program D: asynchronous training with parameter servers. Workers take steps as soon as they are free, each with
// batches of its own, and the servers apply their updates one by one. One program has all three roles: with TF_CONFIG
// on each machine it is a worker, a server or the coordinator. On one machine
//     muster launch --workers 4 --ps 2 -- ./parameter_server
// starts a process for each, and without both they are threads of this process.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

#define BATCH 128
#define STEPS 50 /* in a round */
#define HERE  "{\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\", \"p1:1\"]}"

struct job {
    mu_model *model;
    mu_optimizer *optimizer;
};

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tape   *tape   = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, mu_at(batch, 0), .training = true);
    mu_tensor *loss   = mu_reduce_mean(mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits), MU_ALL_AXES);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

/* Called once for each worker: every worker reads all samples, in an order of its own. */
static mu_dataset *make_dataset(void *arg)
{
    (void)arg;
    mu_dataset *train = mu_dataset_fashion_mnist("train");
    train = mu_dataset_shuffle(train, 60000, .seed = 1 + (uint64_t)mu_get_current_worker_index());
    return mu_dataset_repeat(mu_dataset_batch(train, BATCH, .drop_remainder = true), MU_INFINITE);
}

int main(void)
{
    mu_init(.cpu_devices = 2);
    mu_set_seed(1);
    const bool  alone   = getenv("TF_CONFIG") == NULL;
    mu_cluster *cluster = alone ? mu_simple_cluster_resolver(mu_cluster_spec_parse(HERE))
                                : mu_cluster_from_environment();
    if (!mu_cluster_is_coordinator(cluster))
        return mu_server_main(cluster);
    mu_partitioner *partitioner = mu_min_size_partitioner(.max_shards = 2);
    mu_strategy    *strategy    = mu_parameter_server_strategy(cluster, partitioner, .in_process = alone);
    mu_coordinator *coordinator = mu_coordinator_new(strategy);

    struct job job = {0};
    MU_SCOPE(strategy) {
        job.model = mu_sequential(mu_flatten(), mu_dense(128, .activation = "relu"), mu_dense(10));
        job.optimizer = mu_adam();
    }
    mu_function *step = mu_function_new(train_step, &job);
    mu_value    *data = mu_create_per_worker_dataset(coordinator, make_dataset, NULL);

    double first = 0, loss = 0;
    for (int round = 0; round < 5; round++) {
        mu_pool *pool = mu_pool_open();
        mu_value *results[STEPS];
        for (int i = 0; i < STEPS; i++)
            results[i] = mu_schedule(coordinator, step, data);
        mu_join(coordinator);
        loss = 0;
        for (int i = 0; i < STEPS; i++)
            loss += mu_scalar(mu_fetch(results[i])) / STEPS;
        first = round == 0 ? loss : first;
        printf("%3d steps: loss %.4f\n", (round + 1) * STEPS, loss);
        mu_pool_close(pool);
    }
    for (int i = 0; i < mu_strategy_ps_worker_count(strategy); i++) {
        mu_worker_calls calls = {0};
        mu_coordinator_worker_calls(coordinator, i, &calls);
        printf("worker %d: %lld steps\n", i, (long long)calls.done);
    }
    return mu_exit(loss < first);
}
