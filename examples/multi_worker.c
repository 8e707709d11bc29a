// Program C: the same program on many machines. Started by itself it trains on this machine's devices; started as
//   muster launch -n 2 -- ./multi_worker
// or with TF_CONFIG on each of several machines it trains on the devices of all, to the same model.
// Usage: multi_worker [--epochs N] [--seed N] [--weights FILE]
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    int epochs;
    uint64_t seed;
    const char *weights;
} options;

static bool parse(int argc, char **argv, options *out)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--epochs") == 0)
            out->epochs = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            out->seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--weights") == 0)
            out->weights = argv[i + 1];
        else
            return false;
    }
    return argc % 2 == 1 && out->epochs > 0;
}

// A thousand points in four clouds: 1000 is not a multiple of any batch, so that some parts are uneven, some empty.
static mu_dataset *clouds(uint64_t seed)
{
    enum { ROWS = 1000, COLUMNS = 8, CLOUDS = 4 };
    static float x[ROWS][COLUMNS];
    static int32_t y[ROWS];
    uint64_t state = seed * 2654435761u + 1;
    for (int i = 0; i < ROWS; i++) {
        y[i] = i % CLOUDS;
        for (int k = 0; k < COLUMNS; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[i][k] = (float)(state >> 40) / 8388608 - 1 + (float)(k % CLOUDS == y[i]);
        }
    }
    mu_tensor *inputs = mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, COLUMNS}, x);
    mu_tensor *classes = mu_tensor_new(MU_I32, 1, (int64_t[]){ROWS}, y);
    return mu_dataset_from_tensor_slices(mu_list(inputs, classes, MU_END));
}

int main(int argc, char **argv)
{
    options options = {.epochs = 5, .seed = 1};
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: %s [--epochs N] [--seed N] [--weights FILE]\n", argv[0]);
        return 64;
    }
    mu_init(.seed = options.seed);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy(.communication = MU_COMM_AUTO);
    mu_dataset *train = mu_dataset_batch(mu_dataset_shuffle(clouds(options.seed), 1000), 64);
    mu_dataset *test = mu_dataset_batch(clouds(options.seed + 1), 96);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(32, .activation = "relu"), mu_dense(4));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 1e-2),
                          .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                          .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_history *history = mu_fit(model, train, .epochs = options.epochs);
    mu_history *result = mu_evaluate(model, test);
    mu_tensor *predicted = mu_predict(model, test);
    if (result && predicted)
        printf("worker %d of %d: %lld samples, %lld predictions, loss %.6f, accuracy %.4f on %d replicas\n",
               mu_strategy_worker_index(strategy), mu_strategy_worker_count(strategy),
               (long long)mu_history_samples(result), (long long)mu_tensor_shape(predicted).dims[0],
               mu_history_last(result, "loss"), mu_history_last(result, "accuracy"), mu_num_replicas_in_sync(strategy));
    if (options.weights)
        mu_save_weights(model, options.weights);           // by all workers together; the chief writes
    return mu_exit(history && result && predicted);
}
