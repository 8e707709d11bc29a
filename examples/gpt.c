// A GPT (Radford et al., 2018) learns to add. Its text is lines such as "7+5=12;", of whose 7 characters only the first
// two digits are random: the least possible loss is 2 log(10) / 7 = 0.658. At the end it finishes a line.
// Usage: gpt [EPOCHS [CURVE.svg]]
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 7, LENGTH = 3 * LINE, ROWS = 4000, WIDTH = 48, HEADS = 4, BLOCKS = 2, CHARACTERS = 13 };
#define TARGET .67  // mean loss per character of text that it has not seen
static int number_of(char character) { return (int)(strchr("0123456789+=;", character) - "0123456789+=;"); }

// Rows of characters [n, LENGTH], and the characters behind each of them.
static mu_dataset *text(int64_t n, uint64_t seed)
{
    static int32_t all[ROWS][LENGTH + 1];
    for (int64_t i = 0; i < n; i++) {
        char row[LENGTH + LINE + 1] = "";
        for (int at = 0; at < LENGTH + LINE; at += LINE) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const int a = (int)((seed >> 33) % 10), b = (int)((seed >> 43) % 10);
            snprintf(row + at, LINE + 1, "%d+%d=%02d;", a, b, a + b);
        }
        for (int k = 0; k <= LENGTH; k++)
            all[i][k] = number_of(row[k]);
    }
    mu_tensor *rows = mu_tensor_new(MU_I32, 2, (int64_t[]){n, LENGTH + 1}, all);
    mu_value *pair = mu_list(mu_slice(rows, (int64_t[]){0, 0}, (int64_t[]){n, LENGTH}),
                             mu_slice(rows, (int64_t[]){0, 1}, (int64_t[]){n, LENGTH}), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(pair), 64);
}

static mu_value *add_places(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *embedding)
{
    (void)layer, (void)context;
    return mu_of(mu_add(mu_at(inputs, 0), mu_call(embedding, mu_range(MU_I32, 0, LENGTH, 1))));
}

static mu_tensor *add(mu_tensor *x, mu_tensor *y) { return mu_call(mu_add_layer(), .inputs = mu_list(x, y, MU_END)); }

static mu_model *gpt(void)
{
    mu_layer *embedding = mu_embedding(LENGTH, WIDTH), *places = mu_layer_new(.call = add_places, .arg = embedding);
    mu_layer_add_sublayer(places, embedding);
    mu_tensor *x = mu_input({LENGTH}, .dtype = MU_I32), *h = mu_call(mu_embedding(CHARACTERS, WIDTH), x);
    h = mu_call(places, h);
    for (int i = 0; i < BLOCKS; i++) {
        mu_tensor *seen = mu_call(mu_layer_normalization(), h);
        h = add(h, mu_call(mu_multi_head_attention(HEADS, WIDTH / HEADS, .use_causal_mask = true),
                           .inputs = mu_list(seen, seen, MU_END)));
        seen = mu_call(mu_dense(4 * WIDTH, .activation = "gelu"), mu_call(mu_layer_normalization(), h));
        h = add(h, mu_call(mu_dense(WIDTH), seen));
    }
    return mu_model_new(x, mu_call(mu_dense(CHARACTERS), mu_call(mu_layer_normalization(), h)));
}

int main(int argc, char **argv)
{
    mu_init(.seed = 1);
    mu_model *model = NULL;
    MU_SCOPE(mu_mirrored_strategy()) {
        model = gpt();
        mu_compile(model, .optimizer = mu_adamw(.schedule = mu_cosine_decay(2.5e-3, 400)),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_history *history = mu_fit(model, text(ROWS, 1), .epochs = argc > 1 ? atoi(argv[1]) : 6,
                                 .validation_data = text(500, 2));
    char row[LENGTH + 1] = "3+4=07;7+5=";
    for (size_t at = strlen(row); at < 2 * LINE && history; at++) {
        int32_t numbers[LENGTH] = {0};
        for (size_t i = 0; i < at; i++)
            numbers[i] = number_of(row[i]);
        mu_tensor *best = mu_argmax(mu_call(model, mu_tensor_new(MU_I32, 2, (int64_t[]){1, LENGTH}, numbers)), 2);
        row[at] = "0123456789+=;"[best ? mu_tensor_item_int(best, (int64_t)at - 1) : 0];
    }
    printf("%s loss %.4f\n", row, mu_history_last(history, "val_loss"));
    const bool drawn = argc <= 2 || mu_plot_history(history, argv[2]) == MU_OK;
    return mu_exit(drawn && mu_history_last(history, "val_loss") <= TARGET);
}
