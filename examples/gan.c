// A GAN: a generator learns to draw clothes from random numbers, against a critic that learns to tell its pictures from
// real ones. Both train in one step, through mu_fit. An interrupted run continues where it was when it is started
// again. Usage: gan [EPOCHS [SAMPLES [PICTURE.png [CURVE.svg [FOLDER OF THE BACKUP]]]]]
#include <muster.h>

#include <stdlib.h>

enum { SIDE = 28 };
#define TARGET .03  // mean squared difference of the mean pictures, drawn and real, after 3 epochs of 6,000

// The second layer makes the random numbers: noise on zeros. Its state is saved with the weights.
static mu_model *generator(void)
{
    return mu_sequential(
        mu_input_layer({SIDE, SIDE, 1}), mu_gaussian_noise(1), mu_flatten(), mu_dense(32), mu_dense(7 * 7 * 32),
        mu_batch_normalization(), mu_relu_layer(), mu_reshape_layer({7, 7, 32}),
        mu_conv2d_transpose(16, 4, .strides = 2, .padding = "same"), mu_batch_normalization(), mu_relu_layer(),
        mu_conv2d_transpose(1, 4, .strides = 2, .padding = "same", .activation = "sigmoid"));
}

static mu_model *critic(void)
{
    return mu_sequential(
        mu_input_layer({SIDE, SIDE, 1}), mu_conv2d(16, 4, .strides = 2, .padding = "same"), mu_leaky_relu(),
        mu_conv2d(32, 4, .strides = 2, .padding = "same"), mu_leaky_relu(), mu_flatten(), mu_dropout(.3), mu_dense(1));
}

// The loss of each picture if the critic should answer `wanted`.
static mu_tensor *losses(mu_model *judge, mu_tensor *pictures, double wanted)
{
    mu_tensor *answer = mu_call(judge, pictures, .training = true), *one = mu_ones_like(answer);
    return mu_reduce_mean(mu_nn_sigmoid_cross_entropy(mu_multiply(one, mu_constant(MU_F32, wanted)), answer), 1);
}

static mu_tensor *train_both(mu_model *model, mu_value *batch, void *judge)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *real = mu_at(batch, 0), *drawn = mu_call(model, mu_zeros_like(real), .training = true);
    mu_tensor *judging = mu_add(losses(judge, real, .9), losses(judge, drawn, 0)), *drawing = losses(judge, drawn, 1);
    mu_value *of_judge = mu_gradients(tape, mu_compute_average_loss(judging), mu_trainable_variables(judge));
    mu_value *of_model = mu_gradients(tape, mu_compute_average_loss(drawing), mu_trainable_variables(model));
    mu_tape_close(tape);
    mu_status status = mu_apply_gradients(mu_model_optimizer(judge), of_judge);
    status = status == MU_OK ? mu_apply_gradients(mu_model_optimizer(model), of_model) : status;
    return status == MU_OK ? mu_reduce_mean(judging, MU_ALL_AXES) : NULL;
}

// Writes 40 drawn pictures in 4 rows, and returns how far the mean of 512 is from the mean of real ones.
static double draw(mu_model *model, const char *path)
{
    mu_tensor *real = mu_at(mu_next(mu_iterate(mu_dataset_batch(mu_dataset_fashion_mnist("test"), 512))), 0);
    mu_tensor *drawn = mu_call(model, mu_zeros_like(real), .training = true), *gray = mu_constant(MU_F32, 255);
    mu_tensor *shown = mu_slice(drawn, (int64_t[4]){0}, (int64_t[]){40, -1, -1, -1});
    shown = mu_transpose(mu_reshape(shown, 4, (int64_t[]){4, 10, SIDE, SIDE}), (int[]){0, 2, 1, 3});
    shown = mu_cast(mu_multiply(mu_reshape(shown, 3, (int64_t[]){4 * SIDE, 10 * SIDE, 1}), gray), MU_U8);
    const mu_string png = mu_tensor_string(mu_encode_png(shown), 0);
    FILE *file = png.n > 0 ? fopen(path, "wb") : NULL;
    if (!file || fwrite(png.bytes, 1, png.n, file) != png.n || fclose(file) != 0)
        mu_fail(MU_UNKNOWN, "'%s' cannot be written", path);
    mu_tensor *far = mu_subtract(mu_reduce_mean(drawn, 0), mu_reduce_mean(real, 0));
    return mu_scalar(mu_reduce_mean(mu_square(far), MU_ALL_AXES));
}

int main(int argc, char **argv)
{
    mu_init();
    mu_set_seed(1);
    const int n = argc > 2 ? atoi(argv[2]) : 6000;
    mu_model *model = generator(), *judge = critic();
    mu_compile(judge, .optimizer = mu_adam(.learning_rate = 1e-3, .beta_1 = .5), .loss = "mse");
    mu_compile(model, .optimizer = mu_adam(.learning_rate = 2e-3, .beta_1 = .5), .train_step = train_both,
               .step_arg = judge);
    mu_dataset *data = mu_dataset_shuffle(mu_dataset_take(mu_dataset_fashion_mnist("train"), n), n, .seed = 1);
    mu_callback *backup = argc > 5 ? mu_backup_and_restore(argv[5], .objects = MU_BY_NAME("critic", judge)) : NULL;
    mu_history *history = mu_fit(model, mu_dataset_batch(data, 64), .epochs = argc > 1 ? atoi(argv[1]) : 3,
                                 .callbacks = backup);
    if (argc > 4)
        mu_plot_history(history, argv[4]);
    return mu_exit(history && draw(model, argc > 3 ? argv[3] : "gan.png") <= TARGET);
}
