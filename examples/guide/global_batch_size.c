// The global batch grows with the number of replicas, and the learning rate with the batch.
#include <muster.h>

#include <stdio.h>

#define BATCH_SIZE_PER_REPLICA 5

static double learning_rate_of(int64_t batch_size)
{
    static const struct {
        int64_t batch_size;
        double rate;
    } table[] = {{5, 0.1}, {10, 0.15}, {20, 0.2}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].batch_size == batch_size)
            return table[i].rate;
    return 0.1;
}

int main(void)
{
    mu_init(.cpu_devices = 2);
    mu_strategy *strategy = mu_mirrored_strategy();
    int64_t global_batch_size = BATCH_SIZE_PER_REPLICA * mu_num_replicas_in_sync(strategy);
    double learning_rate = learning_rate_of(global_batch_size);

    mu_tensor *one = mu_tensor_new(MU_F32, 1, (int64_t[]){1}, &(float){1});
    mu_dataset *data = mu_dataset_repeat(mu_dataset_from_tensors(mu_list(one, one, MU_END)), 100);
    data = mu_dataset_batch(data, global_batch_size);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(1));
        mu_compile(model, .loss = mu_mean_squared_error_loss(), .optimizer = mu_sgd(.learning_rate = learning_rate));
    }
    mu_history *history = mu_fit(model, data);
    if (history)
        printf("batches of %lld, learning rate %g: loss %.6f\n", (long long)global_batch_size, learning_rate,
               mu_history_last(history, "loss"));
    return mu_exit(history != NULL && global_batch_size == 10);
}
