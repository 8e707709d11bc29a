// The second of two programs: an encoder that encoder_pretrain.c has saved learns another question, whether a picture
// shows a shoe, from 200 pictures. First only the new layer is trained, then all layers at a low rate.
// Usage: encoder_finetune [ENCODER.keras [STRATEGY [CURVE.svg]]]
#include <muster.h>

#include <stdio.h>
#include <string.h>

enum { SAMPLES = 200 };
#define TARGET .985  // accuracy on 2,000 test pictures; 70 % of them show no shoe

static mu_value *is_shoe(mu_value *element, void *arg)
{
    (void)arg;
    const int class = (int)mu_tensor_item(mu_at(element, 1), 0);  // 5 sandals, 7 sneakers, 9 ankle boots
    const float answer = class == 5 || class == 7 || class == 9;
    return mu_list(mu_at(element, 0), mu_tensor_new(MU_F32, 1, (int64_t[]){1}, &answer), MU_END);
}

static mu_dataset *pictures(const char *part, int64_t n, int64_t batch)
{
    return mu_dataset_batch(mu_dataset_map(mu_dataset_take(mu_dataset_fashion_mnist(part), n), is_shoe), batch);
}

static mu_strategy *strategy_named(const char *name)
{
    return strcmp(name, "one_device") == 0        ? mu_one_device_strategy("CPU:0")
           : strcmp(name, "central_storage") == 0 ? mu_central_storage_strategy()
           : strcmp(name, "multi_worker") == 0    ? mu_multi_worker_mirrored_strategy() : mu_mirrored_strategy();
}

static mu_history *train(mu_model *model, double rate, int epochs)
{
    mu_compile(model, .optimizer = mu_adam(.learning_rate = rate), .loss = "binary_crossentropy",
               .metrics = "binary_accuracy");
    return mu_fit(model, pictures("train", SAMPLES, 20), .epochs = epochs,
                  .validation_data = pictures("test", 2000, 500));
}

int main(int argc, char **argv)
{
    mu_init(.seed = 1);
    mu_layer *encoder = NULL;
    mu_model *model = NULL;
    MU_SCOPE(strategy_named(argc > 2 ? argv[2] : "mirrored")) {
        encoder = mu_load_model(argc > 1 ? argv[1] : "encoder.keras", .no_compile = true);
        model = mu_sequential(encoder, mu_dense(1, .activation = "sigmoid"));
    }
    mu_layer_set_trainable(encoder, false);
    train(model, 5e-3, 6);
    mu_layer_set_trainable(encoder, true);
    mu_history *history = train(model, 2e-4, 6);
    if (argc > 3)
        mu_plot_history(history, argv[3]);
    return mu_exit(history && mu_history_last(history, "val_binary_accuracy") >= TARGET);
}
