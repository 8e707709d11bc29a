// Processor time and memory of training steps under a dtype policy, through fit: an MLP of 3 × 1024 units on batches of
// 256, or a transformer block of 256 features on 16 sequences of 128. Reports the processor time of an epoch, which
// other programs change little, as the best of several. The model "product" is no training but what bounds it: one
// product of matrices of 1024 × 1024, whose rate is reported. Usage: bench_precision mlp|transformer|product POLICY
// [DEVICE].
#include <muster.h>
#include <muster/attention.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { FEATURES = 256, LENGTH = 128, UNITS = 1024, STEPS = 8, EPOCHS = 6, PRODUCTS = 30 };

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double begun, best = 1e9;

static mu_status on_begin(const mu_logs *logs, void *arg)
{
    (void)logs, (void)arg;
    begun = processor_seconds();
    return MU_OK;
}

// The first epoch includes tracing and the choice of kernels.
static mu_status on_end(const mu_logs *logs, void *arg)
{
    (void)arg;
    const double spent = processor_seconds() - begun;
    if (logs->epoch > 0 && spent < best)
        best = spent;
    return MU_OK;
}

static mu_model *mlp(void)
{
    return mu_sequential(mu_input_layer({FEATURES}), mu_dense(UNITS, .activation = "relu"),
                         mu_dense(UNITS, .activation = "relu"), mu_dense(UNITS, .activation = "relu"), mu_dense(1));
}

static mu_model *transformer(void)
{
    mu_tensor *x = mu_input({LENGTH, FEATURES});
    mu_tensor *y = mu_call(mu_layer_normalization(), x);
    y = mu_call(mu_multi_head_attention(8, FEATURES / 8), .inputs = mu_list(y, y, MU_END));
    mu_tensor *h = mu_call(mu_add_layer(), .inputs = mu_list(x, y, MU_END));
    y = mu_call(mu_dense(4 * FEATURES, .activation = "gelu"), mu_call(mu_layer_normalization(), h));
    y = mu_call(mu_add_layer(), .inputs = mu_list(h, mu_call(mu_dense(FEATURES), y), MU_END));
    return mu_model_new(x, mu_call(mu_dense(1), y));
}

static mu_dtype type_of(const char *policy)
{
    return strstr(policy, "bfloat16") ? MU_BF16 : strstr(policy, "float16") ? MU_F16 : MU_F32;
}

static int product(const char *policy)
{
    mu_tensor *seed = mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){1, 2}), *made = NULL;
    mu_tensor *x = mu_cast(mu_stateless_random_normal(seed, MU_F32, 2, (int64_t[]){UNITS, UNITS}), type_of(policy));
    for (int i = 0; i < PRODUCTS; i++) {
        mu_pool *pool = mu_pool_open();
        const double start = processor_seconds();
        made = mu_matmul(x, x);
        const double spent = processor_seconds() - start;
        best = spent < best ? spent : best;
        mu_pool_close(pool);
    }
    if (made)
        printf("{\"model\": \"product\", \"policy\": \"%s\", \"gflops\": %.1f}\n", policy,
               2e-9 * UNITS * UNITS * UNITS / best);
    return mu_exit(made != NULL);
}

int main(int argc, char **argv)
{
    if (argc < 3 || (strcmp(argv[1], "mlp") && strcmp(argv[1], "transformer") && strcmp(argv[1], "product"))) {
        fprintf(stderr, "usage: bench_precision mlp|transformer|product POLICY [DEVICE]\n");
        return 64;
    }
    mu_init(.cpu_devices = 1, .threads = 1, .seed = 1);
    mu_set_dtype_policy(argv[2]);
    if (argv[1][0] == 'p')
        return product(argv[2]);
    const bool is_mlp = argv[1][0] == 'm';
    const int64_t batch = is_mlp ? 256 : 16, rows = STEPS * batch;
    mu_tensor *seed = mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){1, 2});
    mu_tensor *x = is_mlp ? mu_stateless_random_normal(seed, MU_F32, 2, (int64_t[]){rows, FEATURES})
                          : mu_stateless_random_normal(seed, MU_F32, 3, (int64_t[]){rows, LENGTH, FEATURES});
    mu_model *model = NULL;
    MU_SCOPE(mu_one_device_strategy(argc > 3 ? argv[3] : "CPU:0")) {
        model = is_mlp ? mlp() : transformer();
        mu_compile(model, .optimizer = "adam", .loss = "mse");
    }
    mu_tensor *y = is_mlp ? mu_reduce_mean(x, 1, .keep_dims = true) : mu_reduce_mean(x, 2, .keep_dims = true);
    mu_callback *clock = mu_callback_new(.on_epoch_begin = on_begin, .on_epoch_end = on_end);
    mu_history *history = mu_fit(model, x, y, .epochs = EPOCHS, .batch_size = (int)batch, .no_shuffle = true,
                                 .callbacks = MU_CALLBACKS(clock), .verbose = MU_VERBOSE_SILENT);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (history)
        printf("{\"model\": \"%s\", \"policy\": \"%s\", \"processor_ms_per_step\": %.2f, \"peak_mib\": %ld, \"loss\": "
               "%.5f}\n",
               argv[1], argv[2], best / STEPS * 1e3, usage.ru_maxrss / 1024, mu_history_last(history, "loss"));
    return mu_exit(history != NULL);
}
