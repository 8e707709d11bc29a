// Program A: a CNN learns Fashion-MNIST on every core, by changing one line from one device to many.
// Usage: fashion_mnist [--epochs N] [--seed N] [--weights FILE] [--summary] [--workers]
// With --workers on every device of every worker: muster launch -n 2 -- ./fashion_mnist --workers
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    int epochs;
    uint64_t seed;
    const char *weights;
    bool summary, workers;
} options;

static bool parse(int argc, char **argv, options *out)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--epochs") == 0 && has_value)
            out->epochs = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            out->seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--weights") == 0 && has_value)
            out->weights = argv[++i];
        else if (strcmp(argv[i], "--summary") == 0)
            out->summary = true;
        else if (strcmp(argv[i], "--workers") == 0)
            out->workers = true;
        else
            return false;
    }
    return out->epochs > 0;
}

int main(int argc, char **argv)
{
    options options = {.epochs = 3, .seed = 1, .weights = "fashion_mnist.safetensors"};
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: %s [--epochs N] [--seed N] [--weights FILE] [--summary] [--workers]\n", argv[0]);
        return 64;
    }
    mu_init();
    mu_stop_on_signals();                                  // ctrl-C ends after the step in progress
    mu_set_seed(options.seed);
    mu_strategy *strategy = options.workers ? mu_multi_worker_mirrored_strategy()
                                            : mu_mirrored_strategy();  // every visible device

    mu_dataset *train = mu_dataset_fashion_mnist("train");
    mu_dataset *test = mu_dataset_fashion_mnist("test");
    train = mu_dataset_batch(mu_dataset_shuffle(train, 60000, .seed = options.seed), 128);
    test = mu_dataset_batch(test, 512);

    mu_model *model = NULL;
    MU_SCOPE(strategy) {                                   // variables made here are mirrored
        model = mu_sequential(
            mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
            mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2),
            mu_flatten(), mu_dense(128, .activation = "relu"), mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 1e-3),
                          .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                          .metrics = MU_METRICS(mu_accuracy()));
    }
    if (options.summary) {
        mu_model_build(model, 3, (int64_t[]){28, 28, 1});
        mu_summary(model, stdout);
    }
    mu_history *history = mu_fit(model, train, .epochs = options.epochs, .validation_data = test,
                                 .callbacks = MU_CALLBACKS(mu_model_checkpoint(options.weights)));
    if (history)
        printf("test accuracy %.4f, %.0f images/s on %d replicas\n", mu_history_last(history, "val_accuracy"),
               (double)mu_history_samples(history) / mu_history_seconds(history), mu_num_replicas_in_sync(strategy));
    return mu_exit(history != NULL);                       // prints the error, if any; frees everything
}
