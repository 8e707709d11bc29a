// A custom loop that may be told to end at any moment: SIGTERM (from Kubernetes, Slurm, a cloud, or `kill`) on any
// worker, and all save the same step and leave with 42; started again, the loop continues from there to the weights of
// a run that was never disturbed. Alone, or as muster launch -n 2 -- ./preemption
// Usage: preemption [FOLDER]
#include <muster.h>

#include <stdio.h>

enum { STEPS = 400, ROWS = 512, BATCH = 32 };

struct job {
    mu_strategy *strategy;
    mu_model *model;
    mu_optimizer *optimizer;
    mu_function *step;
    mu_iterator *batches;
};

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tensor *x = mu_at(batch, 0), *y = mu_at(batch, 1);
    mu_tape   *tape   = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, x, .training = true);
    mu_tensor *loss   = mu_compute_average_loss(mu_nn_sparse_softmax_cross_entropy(y, logits));
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

// What must not be torn apart: a batch is taken and trained on, or neither.
static mu_value *one_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    struct job *job = arg;
    return mu_reduce(job->strategy, MU_SUM, mu_run(job->strategy, job->step, mu_next(job->batches)));
}

static mu_dataset *points(void)
{
    static float x[ROWS][2];
    static int64_t y[ROWS];
    for (int i = 0; i < ROWS; i++) {
        x[i][0] = (float)(i * 37 % 101) / 50 - 1;
        x[i][1] = (float)(i * 53 % 103) / 51 - 1;
        y[i] = x[i][0] * x[i][1] > 0;
    }
    mu_value *all = mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, 2}, x),
                            mu_tensor_new(MU_I64, 1, (int64_t[]){ROWS}, y), MU_END);
    mu_dataset *shuffled = mu_dataset_shuffle(mu_dataset_from_tensor_slices(all), ROWS, .seed = 1);
    return mu_dataset_batch(mu_dataset_repeat(shuffled, -1), BATCH);
}

int main(int argc, char **argv)
{
    mu_init(.seed = 1);
    struct job job = {.strategy = mu_multi_worker_mirrored_strategy()};
    MU_SCOPE(job.strategy) {
        job.model = mu_sequential(mu_dense(16, .activation = "tanh"), mu_dense(2));
        job.optimizer = mu_adam(.learning_rate = 1e-2);
        mu_compile(job.model, .optimizer = job.optimizer,
                              .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    job.step = mu_function_new(train_step, &job);
    job.batches = mu_iterate(mu_distribute_dataset(job.strategy, points()));

    mu_checkpoint *checkpoint = mu_checkpoint_new(.model = job.model, .iterator = job.batches);
    mu_preemption_handler *handler =
        mu_preemption_handler_new(checkpoint, argc > 1 ? argv[1] : "preemption-checkpoints");
    double loss = 0;
    while (mu_error_code() == MU_OK && mu_preemption_total_runs(handler) < STEPS) {
        mu_pool *pool = mu_pool_open();
        loss = mu_scalar(mu_preemption_run(handler, one_step, &job, NULL));
        mu_pool_close(pool);
    }
    if (mu_error_code() == MU_OK && mu_strategy_should_checkpoint(job.strategy))
        printf("%d steps on %d replicas: loss %.4f\n", STEPS, mu_num_replicas_in_sync(job.strategy), loss);
    return mu_exit(true);
}
