// A convolutional autoencoder learns to draw pictures of clothes again from 32 numbers each. The first pictures of the
// test data, and under each what the model makes of it, are written as a PNG.
// Usage: autoencoder [EPOCHS [SAMPLES [PICTURE.png [CURVE.svg]]]]
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, SHOWN = 10, CODE = 32 };
#define TARGET .026  // mean squared error on test pictures after 4 epochs of 6,000; after 10 of 60,000 it is .0086

// The pictures as inputs and as labels.
static mu_value *itself(mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_at(element, 0), mu_at(element, 0), MU_END);
}

static mu_dataset *pictures(const char *part, int64_t n)
{
    mu_dataset *data = mu_dataset_take(mu_dataset_fashion_mnist(part), n);
    return mu_dataset_batch(mu_dataset_map(mu_dataset_shuffle(data, n, .seed = 1), itself), 128);
}

static mu_model *autoencoder(void)
{
    return mu_sequential(
        mu_conv2d(16, 3, .strides = 2, .padding = "same", .activation = "relu"),
        mu_conv2d(32, 3, .strides = 2, .padding = "same", .activation = "relu"),
        mu_flatten(), mu_dense(CODE, .name = "code"),
        mu_dense(7 * 7 * 32, .activation = "relu"), mu_reshape_layer({7, 7, 32}),
        mu_conv2d_transpose(16, 3, .strides = 2, .padding = "same", .activation = "relu"),
        mu_conv2d_transpose(1, 3, .strides = 2, .padding = "same", .activation = "sigmoid"));
}

// Two rows of pictures, each twice as large.
static void write_picture(mu_model *model, const char *path)
{
    enum { WIDE = 2 * SIDE * SHOWN, HIGH = 4 * SIDE };
    static uint8_t pixels[HIGH][WIDE];
    mu_dataset *data = mu_dataset_batch(mu_dataset_take(mu_dataset_fashion_mnist("test"), SHOWN), SHOWN);
    mu_tensor *x = mu_at(mu_next(mu_iterate(data)), 0), *y = mu_call(model, x);
    for (int row = 0; y && row < HIGH; row++)
        for (int column = 0; column < WIDE; column++) {
            const int picture = column / (2 * SIDE), at = row / 2 % SIDE * SIDE + column / 2 % SIDE;
            const double value = mu_tensor_item(row < 2 * SIDE ? x : y, picture * SIDE * SIDE + at);
            pixels[row][column] = (uint8_t)(255.5 * value);
        }
    mu_tensor *png = mu_encode_png(mu_tensor_new(MU_U8, 3, (int64_t[]){HIGH, WIDE, 1}, pixels));
    FILE *file = png ? fopen(path, "wb") : NULL;
    const mu_string bytes = mu_tensor_string(png, 0);
    if (!file || fwrite(bytes.bytes, 1, bytes.n, file) != bytes.n || fclose(file) != 0)
        mu_fail(MU_UNKNOWN, "'%s' cannot be written", path);
}

int main(int argc, char **argv)
{
    mu_init();
    mu_set_seed(1);
    mu_model *model = NULL;
    MU_SCOPE(mu_mirrored_strategy()) {
        model = autoencoder();
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 2e-3), .loss = "mse");
    }
    mu_history *history = mu_fit(model, pictures("train", argc > 2 ? atoi(argv[2]) : 6000),
                                 .epochs = argc > 1 ? atoi(argv[1]) : 4, .validation_data = pictures("test", 2000));
    write_picture(model, argc > 3 ? argv[3] : "autoencoder.png");
    if (argc > 4)
        mu_plot_history(history, argv[4]);
    return mu_exit(history && mu_history_last(history, "val_loss") <= TARGET);
}
