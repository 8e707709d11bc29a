// fit on arrays: a hundred rows, cut into batches of ten that are split among the replicas.
#include <muster.h>

#include <stdio.h>

int main(void)
{
    mu_init(.cpu_devices = 2, .seed = 1);
    mu_strategy *strategy = mu_mirrored_strategy();
    mu_tensor *inputs = mu_ones(MU_F32, 2, (int64_t[]){100, 1}), *targets = mu_ones(MU_F32, 2, (int64_t[]){100, 1});
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(1));
        mu_compile(model, .loss = mu_mean_squared_error_loss(), .optimizer = mu_sgd());
    }
    mu_history *history = mu_fit(model, inputs, targets, .epochs = 2, .batch_size = 10);
    mu_history *result = mu_evaluate(model, inputs, targets, .batch_size = 10);
    if (result)
        printf("loss %.6f on %d replicas\n", mu_history_last(result, "loss"), mu_num_replicas_in_sync(strategy));
    return mu_exit(history != NULL && result != NULL);
}
