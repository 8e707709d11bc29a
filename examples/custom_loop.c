// Program B: a custom training loop. The step is an ordinary C function: it is traced once, compiled, and
// run on every replica; gradients are all-reduced between them.
#include <muster.h>

#include <stdio.h>

#define GLOBAL_BATCH 128

struct job {
    mu_model *model;
    mu_optimizer *optimizer;
    mu_metric *accuracy;
};

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tensor *x = mu_at(batch, 0), *y = mu_at(batch, 1);
    mu_tape   *tape   = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, x, .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(y, logits);
    mu_tensor *loss   = mu_compute_average_loss(losses, .global_batch_size = GLOBAL_BATCH);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    mu_metric_update(job->accuracy, y, logits);
    return mu_of(loss);
}

int main(void)
{
    mu_init();
    mu_set_seed(1);
    mu_strategy *strategy = mu_mirrored_strategy();
    mu_dataset *train = mu_dataset_take(mu_dataset_fashion_mnist("train"), 100 * GLOBAL_BATCH);
    train = mu_dataset_batch(mu_dataset_shuffle(train, 100 * GLOBAL_BATCH, .seed = 1), GLOBAL_BATCH);

    struct job job = {0};
    MU_SCOPE(strategy) {
        job.model = mu_sequential(mu_flatten(), mu_dense(128, .activation = "relu"), mu_dense(10));
        job.optimizer = mu_adam();
        job.accuracy = mu_accuracy();
    }
    mu_function *step = mu_function_new(train_step, &job);

    double total = 0;
    int steps = 0;
    MU_EACH(batch, mu_distribute_dataset(strategy, train)) {  // a pool per turn; break and continue work
        total += mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, batch)));
        steps++;
    }
    if (mu_error_code() == MU_OK)
        printf("%d steps on %d replicas: loss %.4f, accuracy %.4f\n", steps, mu_num_replicas_in_sync(strategy),
               total / steps, mu_metric_result(job.accuracy));
    return mu_exit(steps == 100);
}
