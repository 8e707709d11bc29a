// Writes the training steps of four networks as StableHLO: a CNN, a ResNet block, an LSTM, and a transformer block with
// dropout and an embedding. Each runs once on the CPU plugin, which shows that the program is valid, and
// MUSTER_DUMP_STABLEHLO=folder keeps its text, under the name NETWORK_TYPE.
//
// Usage: write_steps REPLICAS; MUSTER_CPU_DEVICES must be as many. Weights are float32, and the computation is in TYPE.
#include <muster.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, CLASSES = 10, MOST_WEIGHTS = 24, MOST_REPLICAS = 8 };

typedef struct network network;
typedef mu_tensor *logits_fn(mu_tensor *const *w, mu_tensor *x);

struct network {
    const char *name;
    logits_fn *logits;
    int64_t input[3];                 // dims of a sample; 0: no further axis
    bool tokens;                      // inputs are integers below TOKENS
    int64_t weights[MOST_WEIGHTS][4]; // dims of each weight
    mu_dtype dtype;
    mu_variable *variables[MOST_WEIGHTS];
    int n_weights;
    mu_optimizer *optimizer;
};

// ---- Networks -----------------------------------------------------------------------------------

enum { SIDE = 28, CHANNELS = 16, TOKENS = 64, LENGTH = 16, WIDTH = 32, HEADS = 4 };

static mu_tensor *cnn(mu_tensor *const *w, mu_tensor *x)
{
    for (int i = 0; i < 2; i++) {
        x = mu_nn_conv2d(x, w[2 * i]);
        x = mu_nn_relu(mu_add(x, w[2 * i + 1]));
        x = mu_nn_max_pool2d(x, {2, 2});
    }
    x = mu_nn_relu(mu_add(mu_matmul(mu_reshape(x, 2, (int64_t[]){-1, 1600}), w[4]), w[5]));
    return mu_add(mu_matmul(x, w[6]), w[7]);
}

static mu_tensor *normalized(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta)
{
    mu_tensor *y = NULL, *mean = NULL, *variance = NULL;
    return mu_nn_batch_norm_training(x, gamma, beta, 1e-3, &y, &mean, &variance) == MU_OK ? y : NULL;
}

static mu_tensor *resnet_block(mu_tensor *const *w, mu_tensor *x)
{
    mu_tensor *y = mu_nn_relu(normalized(mu_nn_conv2d(x, w[0], .strides = {2, 2}, .padding = "same"), w[1], w[2]));
    y = normalized(mu_nn_conv2d(y, w[3], .padding = "same"), w[4], w[5]);
    y = mu_nn_relu(mu_add(y, normalized(mu_nn_conv2d(x, w[6], .strides = {2, 2}, .padding = "same"), w[7], w[8])));
    return mu_matmul(mu_reduce_mean(mu_reduce_mean(y, 1), 1), w[9]);
}

// The state is [cell, output] along the last axis; the weights are `arg`.
static mu_value *lstm_cell(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *const *w = arg, *parts[2], *gates[4];
    if (mu_split(mu_value_tensor(state), 2, 1, parts) != MU_OK)
        return NULL;
    mu_tensor *sum = mu_add(mu_matmul(mu_value_tensor(element), w[0]), mu_matmul(parts[1], w[1]));
    if (mu_split(mu_add(sum, w[2]), 4, 1, gates) != MU_OK)
        return NULL;
    mu_tensor *cell =
        mu_add(mu_multiply(mu_sigmoid(gates[1]), parts[0]), mu_multiply(mu_sigmoid(gates[0]), mu_tanh(gates[2])));
    mu_tensor *output = mu_multiply(mu_sigmoid(gates[3]), mu_tanh(cell));
    return mu_of(mu_concat(2, (mu_tensor *[]){cell, output}, 1));
}

static mu_tensor *lstm(mu_tensor *const *w, mu_tensor *x)
{
    mu_tensor *first = mu_matmul(mu_reduce_sum(x, 1), mu_zeros(mu_tensor_dtype(x), 2, (int64_t[]){WIDTH, 2 * WIDTH}));
    mu_value *states =
        mu_scan(lstm_cell, mu_of(mu_transpose(x, (int[]){1, 0, 2})), mu_of(first), .arg = (void *)(uintptr_t)w);
    mu_tensor *last =
        states ? mu_slice(mu_value_tensor(states), (int64_t[]){LENGTH - 1, 0, WIDTH}, (int64_t[]){1, -1, WIDTH}) : NULL;
    return mu_matmul(mu_reshape(last, 2, (int64_t[]){-1, WIDTH}), w[3]);
}

static mu_tensor *heads_first(mu_tensor *x, mu_tensor *kernel)
{
    mu_tensor *y = mu_reshape(mu_matmul(x, kernel), 4, (int64_t[]){-1, LENGTH, HEADS, WIDTH / HEADS});
    return mu_transpose(y, (int[]){0, 2, 1, 3});
}

static mu_tensor *dropped(mu_tensor *x, int64_t number)
{
    return mu_nn_stateless_dropout(x, 0.1, mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){7, number}));
}

static mu_tensor *transformer_block(mu_tensor *const *w, mu_tensor *tokens)
{
    mu_tensor *x = dropped(mu_add(mu_gather(w[0], tokens, 0, 0), w[1]), 1);
    mu_tensor *h = mu_nn_layer_normalization(x, w[2], w[3], 1e-5);
    mu_tensor *query = heads_first(h, w[4]), *key = heads_first(h, w[5]), *value = heads_first(h, w[6]);
    mu_tensor *scores = mu_matmul_transposed(query, key, false, true);
    mu_tensor *mixed = mu_matmul(dropped(mu_nn_softmax(scores, -1), 2), value);
    mixed = mu_reshape(mu_transpose(mixed, (int[]){0, 2, 1, 3}), 3, (int64_t[]){-1, LENGTH, WIDTH});
    x = mu_add(x, mu_matmul(mixed, w[7]));
    h = mu_nn_gelu(mu_matmul(mu_nn_layer_normalization(x, w[8], w[9], 1e-5), w[10]), true);
    return mu_matmul(mu_reduce_mean(mu_add(x, dropped(mu_matmul(h, w[11]), 3)), 1), w[12]);
}

static network networks[] = {
    {.name = "cnn",
     .logits = cnn,
     .input = {SIDE, SIDE, 1},
     .weights = {{3, 3, 1, 32}, {32}, {3, 3, 32, 64}, {64}, {1600, 128}, {128}, {128, CLASSES}, {CLASSES}}},
    {.name = "resnet_block",
     .logits = resnet_block,
     .input = {SIDE, SIDE, CHANNELS},
     .weights = {{3, 3, CHANNELS, 2 * CHANNELS},
                 {2 * CHANNELS},
                 {2 * CHANNELS},
                 {3, 3, 2 * CHANNELS, 2 * CHANNELS},
                 {2 * CHANNELS},
                 {2 * CHANNELS},
                 {1, 1, CHANNELS, 2 * CHANNELS},
                 {2 * CHANNELS},
                 {2 * CHANNELS},
                 {2 * CHANNELS, CLASSES}}},
    {.name = "lstm",
     .logits = lstm,
     .input = {LENGTH, WIDTH},
     .weights = {{WIDTH, 4 * WIDTH}, {WIDTH, 4 * WIDTH}, {4 * WIDTH}, {WIDTH, CLASSES}}},
    {.name = "transformer_block",
     .logits = transformer_block,
     .input = {LENGTH},
     .tokens = true,
     .weights = {{TOKENS, WIDTH},
                 {LENGTH, WIDTH},
                 {WIDTH},
                 {WIDTH},
                 {WIDTH, WIDTH},
                 {WIDTH, WIDTH},
                 {WIDTH, WIDTH},
                 {WIDTH, WIDTH},
                 {WIDTH},
                 {WIDTH},
                 {WIDTH, 4 * WIDTH},
                 {4 * WIDTH, WIDTH},
                 {WIDTH, CLASSES}}},
};

// ---- Training -----------------------------------------------------------------------------------

static mu_value *train_step(mu_value *batch, void *arg)
{
    network *net = arg;
    mu_tensor *weights[MOST_WEIGHTS], *x = mu_at(batch, 0);
    mu_tape *tape = mu_tape_open();
    for (int i = 0; i < net->n_weights; i++)
        weights[i] = mu_cast(mu_variable_read(net->variables[i]), net->dtype);
    mu_tensor *logits = mu_cast(net->logits(weights, net->tokens ? x : mu_cast(x, net->dtype)), MU_F32);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = BATCH);
    mu_apply_gradients(net->optimizer, mu_gradients(tape, loss, mu_variables_of(net->n_weights, net->variables)));
    return mu_of(loss);
}

static int rank_of(const int64_t *dims, int most)
{
    int rank = 0;
    while (rank < most && dims[rank] > 0)
        rank++;
    return rank;
}

static void make_weights(network *net)
{
    for (net->n_weights = 0; net->weights[net->n_weights][0] > 0; net->n_weights++) {
        const int64_t *dims = net->weights[net->n_weights], seed[2] = {1, net->n_weights};
        mu_tensor *drawn =
            mu_stateless_random_normal(mu_tensor_new(MU_I64, 1, (int64_t[]){2}, seed), MU_F32, rank_of(dims, 4), dims);
        char name[64];
        snprintf(name, sizeof name, "%s/weight_%d", net->name, net->n_weights);
        net->variables[net->n_weights] =
            mu_variable_new(.initial_value = mu_multiply(drawn, mu_constant(MU_F32, 0.1)), .name = name);
    }
    net->optimizer = mu_adam(.learning_rate = 1e-3);
}

static mu_value *part_of_batch(const network *net, int samples)
{
    const int64_t dims[] = {samples, net->input[0], net->input[1], net->input[2]}, labels = samples;
    const int rank = 1 + rank_of(net->input, 3);
    mu_tensor *x = mu_zeros(net->tokens ? MU_I32 : MU_F32, rank, dims);
    return mu_list(mu_of(x), mu_of(mu_zeros(MU_I32, 1, &labels)), MU_END);
}

static bool run(network *net, mu_dtype dtype, int replicas)
{
    const char *devices[MOST_REPLICAS + 1] = {NULL};
    mu_value *parts[MOST_REPLICAS];
    char name[64];
    mu_pool *pool = mu_pool_open();
    if (mu_list_physical_devices("XLA_CPU", devices, MOST_REPLICAS) < replicas)
        return false;
    devices[replicas] = NULL;
    mu_strategy *strategy =
        replicas == 1 ? mu_one_device_strategy(devices[0]) : mu_mirrored_strategy(.devices = devices);
    net->dtype = dtype;
    MU_SCOPE(strategy)
        make_weights(net);
    for (int r = 0; r < replicas; r++)
        parts[r] = part_of_batch(net, BATCH / replicas);
    snprintf(name, sizeof name, "%s_%s", net->name, mu_dtype_name(dtype));
    mu_value *batch = replicas == 1 ? parts[0] : mu_per_replica_of(strategy, replicas, parts);
    const bool ran = mu_run(strategy, mu_function_new(train_step, net, .name = name), batch) != NULL;
    mu_pool_close(pool);
    return ran;
}

int main(int argc, char **argv)
{
    const int replicas = argc == 2 ? atoi(argv[1]) : 0;
    if (replicas < 1 || replicas > MOST_REPLICAS || BATCH % replicas != 0) {
        fprintf(stderr, "usage: write_steps REPLICAS; 1, 2, 4 or 8\n");
        return 2;
    }
    mu_init();
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        for (int b = 0; b < 2; b++)
            if (!run(&networks[i], b ? MU_BF16 : MU_F32, replicas)) {
                fprintf(stderr, "%s: %s\n", networks[i].name, mu_error_message());
                return 1;
            }
    return mu_exit(true);
}
