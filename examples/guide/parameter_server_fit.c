// The guide's mu_fit on parameter servers: a data-set creator, which each worker calls for a data set of its own, a
// partitioner that divides large variables among the servers, and callbacks, of which one saves the weights after each
// epoch. Workers and servers are processes under
//     muster launch --workers 3 --ps 2 -- ./parameter_server_fit
// and without the launcher threads of this process.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, BATCH = 16, EPOCHS = 5, STEPS = 20 };

// The label says whether a point is in the unit circle. Each worker draws points of its own.
static mu_dataset *make_dataset(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_tensor *seed = mu_fill(MU_I64, 1, (int64_t[]){2}, 1 + mu_get_current_worker_index());
    mu_tensor *half = mu_constant(MU_F32, 0.5), *one = mu_constant(MU_F32, 1), *three = mu_constant(MU_F32, 3);
    mu_tensor *drawn = mu_stateless_random_uniform(seed, MU_F32, 2, (int64_t[]){ROWS, 2});
    mu_tensor *points = mu_multiply(three, mu_subtract(drawn, half));
    mu_tensor *labels = mu_cast(mu_less(mu_reduce_sum(mu_square(points), -1), one), MU_I32);
    mu_dataset *data = mu_dataset_from_tensor_slices(mu_list(points, labels, MU_END));
    return mu_dataset_repeat(mu_dataset_batch(mu_dataset_shuffle(data, ROWS), BATCH), MU_INFINITE);
}

static mu_strategy *make_strategy(void)
{
    mu_partitioner *partitioner = mu_min_size_partitioner(.min_shard_bytes = 256, .max_shards = 2);
    if (getenv("TF_CONFIG"))
        return mu_parameter_server_strategy(mu_cluster_from_environment(), partitioner);
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\", \"p1:1\"]}");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), partitioner, .in_process = true);
}

int main(void)
{
    mu_init(.cpu_devices = 2, .seed = 1);
    mu_strategy *strategy = make_strategy();
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(64, .activation = "relu"), mu_dense(2));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 0.02), .metrics = "accuracy",
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_dataset_creator *data = mu_dataset_creator_new(make_dataset, NULL);
    mu_callback *save = mu_model_checkpoint("parameter_server_fit.weights.safetensors");
    mu_callback *backup = mu_backup_and_restore("parameter_server_fit_backup");
    mu_history *history = mu_fit(model, data, .epochs = EPOCHS, .steps_per_epoch = STEPS,
                                 .callbacks = MU_CALLBACKS(save, backup));
    mu_history *result = mu_evaluate(model, data, .steps = STEPS);
    if (!history || !result)
        return mu_exit(false);
    printf("accuracy %.3f after %d epochs; the first kernel has %d parts\n", mu_history_last(result, "accuracy"),
           EPOCHS, mu_value_count(mu_value_at(mu_model_weights(model), 0)));
    return mu_exit(mu_history_last(result, "accuracy") > 0.8);
}
