// A bidirectional LSTM reads lines of brackets and says of each place whether its bracket has a partner. That depends
// on what comes before a ')' and on what comes after a '(', so both directions are needed. Lines have different
// lengths; the embedding's mask leaves their padding out of the layers, the loss and the accuracy.
// Usage: brackets [EPOCHS [CURVE.svg]]
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 4000, TEST_LINES = 500, LENGTH = 16 };
#define TARGET 0.99  // accuracy on lines that it has not seen, after 3 epochs

static uint64_t next_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// Writes a line of 1 for '(', 2 for ')' and 3 for a letter, with 0 behind it, and 1 for each bracket with a partner.
static void make_line(uint64_t *state, int32_t *line, float *has_partner)
{
    int open[LENGTH], n_open = 0;
    const int length = LENGTH / 2 + (int)(next_number(state) % (LENGTH / 2 + 1));
    for (int i = 0; i < length; i++) {
        line[i] = 1 + (int32_t)(next_number(state) % 3);
        if (line[i] == 1)
            open[n_open++] = i;
        else if (line[i] == 2 && n_open > 0)
            has_partner[i] = has_partner[open[--n_open]] = 1;
    }
}

// Batches of lines [64, LENGTH] and of answers [64, LENGTH, 1].
static mu_dataset *lines(int64_t n, uint64_t seed)
{
    int32_t *x = calloc((size_t)n * LENGTH, sizeof *x);
    float *y = calloc((size_t)n * LENGTH, sizeof *y);
    for (int64_t i = 0; x && y && i < n; i++)
        make_line(&seed, x + i * LENGTH, y + i * LENGTH);
    mu_value *all = mu_list(mu_tensor_new(MU_I32, 2, (int64_t[]){n, LENGTH}, x),
                            mu_tensor_new(MU_F32, 3, (int64_t[]){n, LENGTH, 1}, y), MU_END);
    free(x);
    free(y);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), 64);
}

// Prints a line, and under each bracket that the model gives a partner a '^'.
static void show(mu_model *model, const char *text)
{
    int32_t line[LENGTH] = {0};
    for (int i = 0; i < LENGTH && text[i]; i++)
        line[i] = text[i] == '(' ? 1 : text[i] == ')' ? 2 : 3;
    mu_tensor *answer = mu_call(model, mu_tensor_new(MU_I32, 2, (int64_t[]){1, LENGTH}, line));
    printf("%s\n", text);
    for (int i = 0; i < LENGTH && text[i]; i++)
        putchar(mu_tensor_item(answer, i) > .5 ? '^' : ' ');
    printf("\n");
}

int main(int argc, char **argv)
{
    mu_init();
    mu_set_seed(1);
    mu_model *model = NULL;
    MU_SCOPE(mu_mirrored_strategy()) {
        model = mu_sequential(mu_embedding(4, 8, .mask_zero = true),
                              mu_bidirectional(mu_lstm(32, .return_sequences = true)),
                              mu_time_distributed(mu_dense(1, .activation = "sigmoid")));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = .01), .loss = "binary_crossentropy",
                   .metrics = "binary_accuracy");
    }
    mu_history *history = mu_fit(model, lines(LINES, 1), .epochs = argc > 1 ? atoi(argv[1]) : 3,
                                 .validation_data = lines(TEST_LINES, 3));
    if (argc > 2)
        mu_plot_history(history, argv[2]);
    mu_history *seen = mu_evaluate(model, lines(TEST_LINES, 2));
    show(model, "a(b(c)))d(");
    return mu_exit(seen && mu_history_last(seen, "binary_accuracy") >= TARGET);
}
