// Muster's side of the training benchmark: trains the models of models.py on the same batches and initial weights as
// the other frameworks, one replica per core. Prints the line of JSON that run.py compares; with --peak, prints the
// speed of oneDNN's matrix product on one core instead.
#include <muster.h>

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BATCH    128
#define N_LOSSES 10

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Seconds since this process was started, as the kernel recorded it (in clock ticks).
static double since_start(void)
{
    char text[2048];
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    char *at = strrchr(text, ')'); // the program's name before it may contain anything
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at, NULL, 10);
    return now(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

// ---- Measurements -------------------------------------------------------------------------------

typedef struct measure {
    long warmup;
    double startup, begin, end, losses[N_LOSSES], sum_before;
} measure;

static mu_status on_batch_end(const mu_logs *logs, void *arg)
{
    measure *m = arg;
    double sum = logs->values[0] * (double)logs->step; // the log holds the epoch's mean so far
    if (logs->step == 1)
        m->startup = since_start();
    if (logs->step <= N_LOSSES)
        m->losses[logs->step - 1] = sum - m->sum_before;
    m->sum_before = sum;
    if (logs->step == m->warmup)
        m->begin = now(CLOCK_MONOTONIC);
    m->end = now(CLOCK_MONOTONIC);
    return MU_OK;
}

static void report(const measure *m, const char *model, int threads, long steps)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"rival\":\"muster\",\"setting\":\"mirrored\",\"model\":\"%s\",\"threads\":%d,\"images_per_s\":%.1f,"
           "\"losses\":[",
           model, threads, (double)steps * BATCH / (m->end - m->begin));
    for (int i = 0; i < N_LOSSES; i++)
        printf("%s%.7f", i ? "," : "", m->losses[i]);
    printf("],\"startup_s\":%.4f,\"rss_mib\":%.1f}\n", m->startup, (double)usage.ru_maxrss / 1024);
}

// ---- The models ---------------------------------------------------------------------------------

#define HEAD mu_flatten(), mu_dense(128, .activation = "relu"), mu_dense(10)

static mu_model *cnn(void)
{
    return mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                         mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), HEAD);
}

static mu_model *kernels_5x5(void)
{
    return mu_sequential(mu_conv2d(32, 5, .activation = "relu"), mu_max_pool2d(2),
                         mu_conv2d(64, 5, .activation = "relu"), mu_max_pool2d(2), HEAD);
}

static mu_model *average_pool(void)
{
    return mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_average_pool2d(2),
                         mu_conv2d(64, 3, .activation = "relu"), mu_average_pool2d(2), HEAD);
}

static mu_model *batch_norm(void)
{
    return mu_sequential(mu_conv2d(32, 3, .no_bias = true), mu_batch_normalization(), mu_activation("relu"),
                         mu_max_pool2d(2), mu_conv2d(64, 3, .no_bias = true), mu_batch_normalization(),
                         mu_activation("relu"), mu_max_pool2d(2), HEAD);
}

static mu_model *vgg(void)
{
    return mu_sequential(mu_conv2d(32, 3, .activation = "relu", .padding = "same"),
                         mu_conv2d(32, 3, .activation = "relu", .padding = "same"), mu_max_pool2d(2),
                         mu_conv2d(64, 3, .activation = "relu", .padding = "same"),
                         mu_conv2d(64, 3, .activation = "relu", .padding = "same"), mu_max_pool2d(2), HEAD);
}

static const struct named_model {
    const char *name;
    mu_model *(*make)(void);
} models[] = {{"cnn", cnn},
              {"kernels_5x5", kernels_5x5},
              {"average_pool", average_pool},
              {"batch_norm", batch_norm},
              {"vgg", vgg}};

static const struct named_model *find_model(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

static int train(const struct named_model *chosen, int threads, long steps, long warmup, const char *weights)
{
    mu_init(.threads = threads, .cpu_devices = threads);
    mu_strategy *strategy = mu_mirrored_strategy();
    mu_dataset *data = mu_dataset_batch(mu_dataset_fashion_mnist("train"), BATCH, .drop_remainder = true);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = chosen->make();
        mu_compile(model, .optimizer = mu_adam(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    if (weights) {
        mu_model_build(model, 3, (int64_t[]){28, 28, 1});
        mu_load_weights(model, weights);
    }
    measure m = {.warmup = warmup};
    mu_history *history = mu_fit(model, mu_dataset_repeat(data, MU_INFINITE), .steps_per_epoch = warmup + steps,
                                 .verbose = MU_VERBOSE_SILENT,
                                 .callbacks = MU_CALLBACKS(mu_callback_new(.on_batch_end = on_batch_end, .arg = &m)));
    if (history)
        report(&m, chosen->name, threads, steps);
    return mu_exit(history != NULL);
}

// ---- The limit ----------------------------------------------------------------------------------

// The best of several products of 1024 x 1024 matrices; the caller limits the process to one core.
static int peak(void)
{
    enum { N = 1024, ROUNDS = 12 };
    float *block = malloc(sizeof *block * 3 * N * N), best = 0;
    for (size_t i = 0; block && i < 3u * N * N; i++)
        block[i] = (float)(i % 17) * 0.25f;
    for (int round = 0; block && round < ROUNDS; round++) {
        double begin = now(CLOCK_MONOTONIC);
        if (dnnl_sgemm('N', 'N', N, N, N, 1, block, N, block + N * N, N, 0, block + 2 * N * N, N) != dnnl_success)
            break;
        double gflops = 2.0 * N * N * N / (now(CLOCK_MONOTONIC) - begin) / 1e9;
        best = gflops > best ? (float)gflops : best;
    }
    free(block);
    printf("{\"peak_gflops_1core\":%.1f}\n", best);
    return best > 0 ? 0 : 70;
}

int main(int argc, char **argv)
{
    long threads = 1, steps = 200, warmup = 20;
    const char *weights = NULL;
    const struct named_model *model = &models[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--peak") == 0)
            return peak();
        if (i + 1 == argc)
            break;
        if (strcmp(argv[i], "--threads") == 0)
            threads = atol(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0)
            steps = atol(argv[++i]);
        else if (strcmp(argv[i], "--warmup") == 0)
            warmup = atol(argv[++i]);
        else if (strcmp(argv[i], "--weights") == 0)
            weights = argv[++i];
        else if (strcmp(argv[i], "--model") == 0)
            model = find_model(argv[++i]);
    }
    if (!model || threads < 1 || steps < 1 || warmup < N_LOSSES) {
        fprintf(stderr,
                "usage: %s [--model NAME] [--threads N] [--steps K] [--warmup W, at least %d] [--weights FILE]\n"
                "       %s --peak\n"
                "models:",
                argv[0], N_LOSSES, argv[0]);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            fprintf(stderr, " %s", models[i].name);
        fprintf(stderr, "\n");
        return 64;
    }
    return train(model, (int)threads, steps, warmup, weights);
}
