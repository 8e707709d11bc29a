// The five programs that the interface was designed for, word for word: training with fit, a loop of one's own, many
// machines, parameter servers, XLA devices. They are only compiled; examples/ has programs like them that run.
#include <muster.h>

int with_fit(void);
int with_a_loop(mu_strategy *strategy, mu_dataset *train);
mu_strategy *with_many_machines(void);
int with_parameter_servers(mu_dataset *(*make_dataset)(void *arg), mu_function *step, int steps);
mu_strategy *with_xla_devices(void);

int with_fit(void)
{
    mu_init();
    mu_strategy *strategy = mu_mirrored_strategy();

    mu_dataset *train = mu_dataset_fashion_mnist("train");
    mu_dataset *test = mu_dataset_fashion_mnist("test");
    train = mu_dataset_batch(mu_dataset_shuffle(train, 60000, .seed = 1), 128);
    test = mu_dataset_batch(test, 512);

    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                              mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(),
                              mu_dense(128, .activation = "relu"), mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 1e-3),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_history *history = mu_fit(model, train, .epochs = 3, .validation_data = test);
    return mu_exit(history != NULL);
}

struct job {
    mu_model *model;
    mu_optimizer *optimizer;
    mu_metric *accuracy;
};

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tensor *x = mu_at(batch, 0), *y = mu_at(batch, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, x, .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(y, logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = 128);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    mu_metric_update(job->accuracy, y, logits);
    return mu_of(loss);
}

int with_a_loop(mu_strategy *strategy, mu_dataset *train)
{
    struct job job = {0};
    double total = 0;
    mu_function *step = mu_function_new(train_step, &job);
    MU_EACH(batch, mu_distribute_dataset(strategy, train))
        total += mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, batch)));
    return total > 0;
}

mu_strategy *with_many_machines(void)
{
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy(.communication = MU_COMM_AUTO);
    return strategy;
}

int with_parameter_servers(mu_dataset *(*make_dataset)(void *arg), mu_function *step, int steps)
{
    mu_cluster *cluster = mu_cluster_from_environment();
    if (!mu_cluster_is_coordinator(cluster))
        return mu_server_main(cluster);
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster, .partitioner = mu_min_size_partitioner(.max_shards = 2));
    mu_coordinator *coordinator = mu_coordinator_new(strategy);
    mu_per_worker *data = mu_create_per_worker_dataset(coordinator, make_dataset, NULL);
    for (int i = 0; i < steps; i++)
        mu_schedule(coordinator, step, data);
    mu_join(coordinator);
    return 0;
}

mu_strategy *with_xla_devices(void)
{
    mu_cluster *tpu = mu_tpu_cluster_resolver(.tpu = "");
    mu_connect_to_cluster(tpu);
    mu_tpu_initialize(tpu);
    mu_strategy *strategy = mu_tpu_strategy(tpu);
    return strategy;
}
