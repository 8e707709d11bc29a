// The guide's custom training loop: a logistic regression whose step is written out. Losses are per sample and
// averaged over the global batch, so the replicas' gradients add up to those of the whole batch.
#include <muster.h>

#include <stdio.h>

#define GLOBAL_BATCH_SIZE 10

struct job {
    mu_model *model;
    mu_optimizer *optimizer;
};

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tensor *features = mu_at(batch, 0), *labels = mu_at(batch, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *predictions = mu_call(job->model, features, .training = true);
    mu_tensor *per_sample = mu_reduce_mean(mu_nn_sigmoid_cross_entropy(labels, predictions), -1);
    mu_tensor *loss = mu_compute_average_loss(per_sample, .global_batch_size = GLOBAL_BATCH_SIZE);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

int main(void)
{
    mu_init(.cpu_devices = 2, .seed = 1);
    mu_strategy *strategy = mu_mirrored_strategy();
    struct job job = {0};
    MU_SCOPE(strategy) {
        job.model = mu_sequential(mu_dense(1));
        job.optimizer = mu_sgd(.learning_rate = 0.5);
    }
    mu_tensor *one = mu_tensor_new(MU_F32, 1, (int64_t[]){1}, &(float){1});
    mu_dataset *data = mu_dataset_repeat(mu_dataset_from_tensors(mu_list(one, one, MU_END)), 100);
    mu_distributed_dataset *distributed = mu_distribute_dataset(strategy, mu_dataset_batch(data, GLOBAL_BATCH_SIZE));
    mu_function *step = mu_function_new(train_step, &job);

    double first = 0, last = 0;
    int steps = 0;
    MU_EACH(batch, distributed) {
        last = mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, batch)));
        first = steps++ ? first : last;
    }
    printf("%d steps: loss %.4f, then %.4f\n", steps, first, last);

    mu_iterator *iterator = mu_iterate(distributed);  // or step by step, as many as wanted
    for (int i = 0; i < 5; i++)
        last = mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, mu_next(iterator))));
    printf("5 more: loss %.4f\n", last);
    return mu_exit(steps == 10 && last < first);
}
