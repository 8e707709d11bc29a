// Program E: a CNN learns Fashion-MNIST on the cores of a TPU, or of any XLA device.
// The device is a PJRT plugin: libtpu, or one that PJRT_NAMES_AND_LIBRARY_PATHS=name:path names. Without one the
// program runs on the CPU devices, as the warning says. Usage: tpu [--epochs N]
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const int epochs = argc == 3 && strcmp(argv[1], "--epochs") == 0 ? atoi(argv[2]) : 3;
    if (epochs < 1 || (argc != 1 && argc != 3)) {
        fprintf(stderr, "usage: %s [--epochs N]\n", argv[0]);
        return 64;
    }
    mu_init();
    mu_stop_on_signals();
    mu_set_seed(1);
    mu_cluster *tpu = mu_tpu_cluster_resolver(.tpu = "");
    mu_connect_to_cluster(tpu);
    mu_tpu_initialize(tpu);
    mu_strategy *strategy = mu_tpu_strategy(tpu);

    mu_dataset *train = mu_dataset_batch(mu_dataset_shuffle(mu_dataset_fashion_mnist("train"), 60000, .seed = 1), 128);
    mu_dataset *test = mu_dataset_batch(mu_dataset_fashion_mnist("test"), 512);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(
            mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
            mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2),
            mu_flatten(), mu_dense(128, .activation = "relu"), mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(),
                          .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                          .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_history *history = mu_fit(model, train, .epochs = epochs, .validation_data = test);
    if (history)
        printf("test accuracy %.4f, %.0f images/s on %d cores\n", mu_history_last(history, "val_accuracy"),
               (double)mu_history_samples(history) / mu_history_seconds(history), mu_num_replicas_in_sync(strategy));
    return mu_exit(history != NULL);
}
