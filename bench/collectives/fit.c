// bench_fit: how fast the README's CNN trains on the replicas of all workers, and when its first step is complete.
//
// Arguments: the number of replicas of this process; then optionally "begun" and the time when the job was started in
// seconds since 1970: in that case it runs only the first steps, on blank images. Started directly, the replicas are
// threads; under `muster launch` they are also processes. The first worker prints "images_per_s N" or "first_step_s
// N". run.py compares the results.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 128, WARMUP = 20, STEPS = 200, FIRST_STEPS = 3 };

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct measure {
    double begin, end, first;
} measure;

static mu_status on_batch_end(const mu_logs *logs, void *arg)
{
    measure *m = arg;
    if (logs->step == 1)
        m->first = now(CLOCK_REALTIME);
    if (logs->step == WARMUP)
        m->begin = now(CLOCK_MONOTONIC);
    m->end = now(CLOCK_MONOTONIC);
    return MU_OK;
}

static mu_dataset *blank_images(void)
{
    static float x[4 * BATCH][28][28][1];
    static int32_t y[4 * BATCH];
    return mu_dataset_from_tensor_slices(mu_list(mu_tensor_new(MU_F32, 4, (int64_t[]){4 * BATCH, 28, 28, 1}, x),
                                                 mu_tensor_new(MU_I32, 1, (int64_t[]){4 * BATCH}, y), MU_END));
}

int main(int argc, char **argv)
{
    const int devices = argc > 1 ? atoi(argv[1]) : 0;
    const double begun = argc > 3 ? atof(argv[3]) : 0;
    if (devices < 1) {
        fprintf(stderr, "usage: bench_fit REPLICAS [begun SECONDS]\n");
        return 64;
    }
    mu_init(.cpu_devices = devices);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    mu_dataset *data = begun > 0 ? blank_images() : mu_dataset_fashion_mnist("train");
    data = mu_dataset_repeat(mu_dataset_batch(data, BATCH, .drop_remainder = true), MU_INFINITE);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                              mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(),
                              mu_dense(128, .activation = "relu"), mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    measure m = {0};
    mu_history *history =
        mu_fit(model, data, .steps_per_epoch = begun > 0 ? FIRST_STEPS : WARMUP + STEPS, .verbose = MU_VERBOSE_SILENT,
               .callbacks = MU_CALLBACKS(mu_callback_new(.on_batch_end = on_batch_end, .arg = &m)));
    if (history && mu_strategy_worker_index(strategy) == 0) {
        if (begun > 0)
            printf("first_step_s %.3f\n", m.first - begun);
        else
            printf("images_per_s %.1f\n", STEPS * BATCH / (m.end - m.begin));
    }
    return mu_exit(history != NULL);
}
