// The first of two programs: trains an encoder of pictures with Fashion-MNIST's ten classes, and saves it without the
// layer that names the classes. encoder_finetune.c trains it further.
// Usage: encoder_pretrain [ENCODER.keras [EPOCHS]]
#include <muster.h>

#include <stdlib.h>

#define TARGET .8  // accuracy on test pictures, after 2 epochs of 12,000 pictures

int main(int argc, char **argv)
{
    mu_init(.seed = 1);
    mu_dataset *train = mu_dataset_take(mu_dataset_shuffle(mu_dataset_fashion_mnist("train"), 60000, .seed = 1), 12000);
    mu_dataset *test = mu_dataset_batch(mu_dataset_take(mu_dataset_fashion_mnist("test"), 2000), 500);
    mu_model *encoder = NULL, *model = NULL;
    MU_SCOPE(mu_mirrored_strategy()) {
        encoder = mu_sequential(mu_conv2d(16, 3, .strides = 2, .activation = "relu"),
                                mu_conv2d(32, 3, .strides = 2, .activation = "relu"), mu_flatten(),
                                mu_dense(64, .activation = "relu"));
        model = mu_sequential(encoder, mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 2e-3), .metrics = "accuracy",
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_history *history = mu_fit(model, mu_dataset_batch(train, 64), .epochs = argc > 2 ? atoi(argv[2]) : 2,
                                 .validation_data = test);
    mu_save_model(encoder, argc > 1 ? argv[1] : "encoder.keras");
    return mu_exit(history && mu_history_last(history, "val_accuracy") >= TARGET);
}
