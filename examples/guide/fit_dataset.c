// The one-unit regression of the tf.distribute guide: a repeated one-element dataset, an L2 penalty on the
// kernel, mean squared error, gradient descent. The loss is the same on one replica and on many.
#include <muster.h>

#include <stdio.h>

int main(void)
{
    mu_init();
    mu_strategy *strategy = mu_mirrored_strategy();
    float one = 1;
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){1}, &one);
    mu_dataset *data = mu_dataset_from_tensors(mu_list(x, x, MU_END));
    mu_dataset *train = mu_dataset_batch(mu_dataset_repeat(data, 100), 10);
    mu_dataset *test = mu_dataset_batch(mu_dataset_repeat(data, 10), 10);

    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(1, .kernel_regularizer = mu_l2(1e-4)));
        mu_compile(model, .loss = mu_mean_squared_error_loss(), .optimizer = mu_sgd());
    }
    mu_history *history = mu_fit(model, train, .epochs = 2);
    mu_history *result = mu_evaluate(model, test);
    if (result)
        printf("loss %.6f on %d replicas\n", mu_history_last(result, "loss"), mu_num_replicas_in_sync(strategy));
    return mu_exit(history != NULL && result != NULL);
}
