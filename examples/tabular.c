// Regression on a table whose best possible result is known: the price is a linear function of seven columns of very
// different sizes, plus noise of a known size. A normalisation layer learns the columns' means and variances from the
// data; a trained model's error on new rows then is the noise, and its slopes are those that the data were made with.
// Usage: tabular [EPOCHS [CURVE.svg]]
#include <muster.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8000, TEST_ROWS = 2000, COLUMNS = 7 };
#define NOISE .5                          // standard deviation; its square is the least mean squared error
#define TARGET (1.05 * NOISE * NOISE)     // on rows that it has not seen, after 8 epochs
#define SLOPE_TARGET .03                  // how far a slope may be off, per standard deviation of its column

static const float mean[COLUMNS] = {1990, 120, 3, .02f, -5, 1e5f, 0};
static const float deviation[COLUMNS] = {20, 40, 1, .01f, 8, 3e4f, 1};
static const float slope[COLUMNS] = {.5f, 2, 1, -1.5f, 0, .25f, -.75f};  // per standard deviation

// The sum of 12 numbers between 0 and 1, minus 6: mean 0, standard deviation 1, and nearly normal.
static float normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) / 9007199254740992.;
    }
    return (float)sum;
}

// A list of rows [n, COLUMNS] and prices [n, 1].
static mu_value *table(int64_t n, uint64_t seed)
{
    float *x = calloc((size_t)n * COLUMNS, sizeof *x), *y = calloc((size_t)n, sizeof *y);
    for (int64_t i = 0; x && y && i < n; i++) {
        y[i] = 3 + (float)NOISE * normal(&seed);
        for (int k = 0; k < COLUMNS; k++) {
            const float z = normal(&seed);
            x[i * COLUMNS + k] = mean[k] + deviation[k] * z;
            y[i] += slope[k] * z;
        }
    }
    mu_value *rows = mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){n, COLUMNS}, x),
                             mu_tensor_new(MU_F32, 2, (int64_t[]){n, 1}, y), MU_END);
    free(x);
    free(y);
    return rows;
}

int main(int argc, char **argv)
{
    mu_init();
    mu_set_seed(1);
    mu_value *train = table(ROWS, 1), *test = table(TEST_ROWS, 2);
    mu_model *model = NULL;
    MU_SCOPE(mu_mirrored_strategy()) {
        mu_layer *normalization = mu_normalization();
        mu_normalization_adapt(normalization, mu_dataset_batch(mu_dataset_from_tensor_slices(train), 500));
        model = mu_sequential(normalization, mu_dense(1, .name = "price"));
        mu_compile(model, .optimizer = mu_adam(.schedule = mu_cosine_decay(.02, 1000)), .loss = "mse");
    }
    mu_history *history = mu_fit(model, train, .epochs = argc > 1 ? atoi(argv[1]) : 8, .batch_size = 64,
                                 .validation_data = test);
    mu_tensor *kernel = mu_variable_read(mu_layer_weight(mu_model_layer(model, "price"), "kernel"));
    double worst = 0;
    for (int i = 0; kernel && i < COLUMNS; i++)
        if (fabs(mu_tensor_item(kernel, i) - slope[i]) > worst)
            worst = fabs(mu_tensor_item(kernel, i) - slope[i]);
    printf("error %.4f, the least possible is %.4f; slopes are off by at most %.4f\n",
           mu_history_last(history, "val_loss"), NOISE * NOISE, worst);
    if (argc > 2)
        mu_plot_history(history, argv[2]);
    return mu_exit(mu_history_last(history, "val_loss") <= TARGET && worst <= SLOPE_TARGET);
}
