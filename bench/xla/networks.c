// A convolutional network, dense layers, an LSTM and GPTs.
#include "networks.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// ---- Numbers that every framework computes ------------------------------------------------------

static uint32_t mix(uint32_t i, uint32_t stream)
{
    uint32_t u = i * 1664525u + stream * 1013904223u + 12345u;
    u = (u ^ u >> 16) * 0x45d9f3bu;
    return u ^ u >> 16;
}

static mu_tensor *numbers(int rank, const int64_t *dims, uint32_t stream, float scale, float offset)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    float *data = malloc(sizeof *data * (size_t)n);
    for (int64_t i = 0; data && i < n; i++)
        data[i] = ((float)(mix((uint32_t)i, stream) >> 8) * 0x1p-23f - 1) * scale + offset;
    mu_tensor *tensor = data ? mu_tensor_new(MU_F32, rank, dims, data) : NULL;
    free(data);
    return tensor;
}

static mu_tensor *integers(int rank, const int64_t *dims, uint32_t stream, uint32_t below)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    int32_t *data = malloc(sizeof *data * (size_t)n);
    for (int64_t i = 0; data && i < n; i++)
        data[i] = (int32_t)(mix((uint32_t)i, stream) % below);
    mu_tensor *tensor = data ? mu_tensor_new(MU_I32, rank, dims, data) : NULL;
    free(data);
    return tensor;
}

static void add_weight(network *net, float scale, float offset, int rank, const int64_t *dims)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%d", net->name, net->n_weights);
    mu_tensor *first = numbers(rank, dims, (uint32_t)net->n_weights, scale, offset);
    net->weights[net->n_weights++] = mu_variable_new(.initial_value = first, .name = name);
}

#define WEIGHT(net, scale, offset, ...) \
    add_weight(net, scale, offset, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

// ---- The CNN ------------------------------------------------------------------------------------

static mu_tensor *cnn_loss(const network *net, mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    (void)net;
    for (int i = 0; i < 2; i++) {
        x = mu_nn_conv2d(x, w[2 * i]);
        x = mu_nn_relu(mu_add(x, w[2 * i + 1]));
        x = mu_nn_max_pool2d(x, {2, 2});
    }
    x = mu_reshape(x, 2, (int64_t[]){-1, 1600});
    x = mu_nn_relu(mu_add(mu_matmul(x, w[4]), w[5]));
    return mu_nn_sparse_softmax_cross_entropy(y, mu_add(mu_matmul(x, w[6]), w[7]));
}

static mu_value *cnn_batch(const network *net)
{
    return mu_list(mu_of(numbers(4, (int64_t[]){net->samples, 28, 28, 1}, 1000, 1, 0)),
                   mu_of(integers(1, (int64_t[]){net->samples}, 1001, 10)), MU_END);
}

void make_cnn(network *net)
{
    *net = (network){.name = "cnn", .loss = cnn_loss, .dtype = MU_F32, .samples = 128, .batch = cnn_batch};
    WEIGHT(net, 0.3f, 0, 3, 3, 1, 32);
    WEIGHT(net, 0, 0, 32);
    WEIGHT(net, 0.08f, 0, 3, 3, 32, 64);
    WEIGHT(net, 0, 0, 64);
    WEIGHT(net, 0.05f, 0, 1600, 128);
    WEIGHT(net, 0, 0, 128);
    WEIGHT(net, 0.15f, 0, 128, 10);
    WEIGHT(net, 0, 0, 10);
}

// ---- Dense layers -------------------------------------------------------------------------------

static mu_tensor *mlp_loss(const network *net, mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    for (int i = 0; i + 2 < net->n_weights; i += 2)
        x = mu_nn_relu(mu_add(mu_matmul(x, w[i]), w[i + 1]));
    return mu_nn_sparse_softmax_cross_entropy(y, mu_add(mu_matmul(x, w[net->n_weights - 2]), w[net->n_weights - 1]));
}

static mu_value *mlp_batch(const network *net)
{
    return mu_list(mu_of(numbers(2, (int64_t[]){net->samples, 784}, 1004, 1, 0)),
                   mu_of(integers(1, (int64_t[]){net->samples}, 1005, 10)), MU_END);
}

void make_mlp(network *net)
{
    *net = (network){.name = "mlp", .loss = mlp_loss, .dtype = MU_F32, .samples = 128, .batch = mlp_batch};
    WEIGHT(net, 0.06f, 0, 784, 512);
    WEIGHT(net, 0, 0, 512);
    WEIGHT(net, 0.08f, 0, 512, 512);
    WEIGHT(net, 0, 0, 512);
    WEIGHT(net, 0.08f, 0, 512, 10);
    WEIGHT(net, 0, 0, 10);
}

// ---- The LSTM, written with ops, one step of the sequence after the other -----------------------

enum { LSTM_STEPS = 20, LSTM_INPUTS = 32, LSTM_UNITS = 64 };

// Four gates in one product: input, forget, candidate, output.
static void lstm_step(mu_tensor *x, mu_tensor *const *w, mu_tensor **h, mu_tensor **c)
{
    mu_tensor *gates[4];
    mu_tensor *sum = mu_add(mu_add(mu_matmul(x, w[0]), mu_matmul(*h, w[1])), w[2]);
    if (mu_split(sum, 4, 1, gates) != MU_OK)
        return;
    *c = mu_add(mu_multiply(mu_sigmoid(gates[1]), *c), mu_multiply(mu_sigmoid(gates[0]), mu_tanh(gates[2])));
    *h = mu_multiply(mu_sigmoid(gates[3]), mu_tanh(*c));
}

static mu_tensor *lstm_loss(const network *net, mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    (void)net;
    mu_tensor *steps[LSTM_STEPS];
    if (mu_unstack(x, LSTM_STEPS, 1, steps) != MU_OK)
        return NULL;
    mu_tensor *h = mu_multiply(mu_matmul(steps[0], w[0]), mu_constant(MU_F32, 0));
    h = mu_slice(h, (int64_t[]){0, 0}, (int64_t[]){-1, LSTM_UNITS});
    mu_tensor *c = h;
    for (int i = 0; i < LSTM_STEPS; i++)
        lstm_step(steps[i], w, &h, &c);
    return mu_nn_sparse_softmax_cross_entropy(y, mu_add(mu_matmul(h, w[3]), w[4]));
}

static mu_value *lstm_batch(const network *net)
{
    return mu_list(mu_of(numbers(3, (int64_t[]){net->samples, LSTM_STEPS, LSTM_INPUTS}, 1006, 1, 0)),
                   mu_of(integers(1, (int64_t[]){net->samples}, 1007, 10)), MU_END);
}

void make_lstm(network *net)
{
    *net = (network){.name = "lstm", .loss = lstm_loss, .dtype = MU_F32, .samples = 32, .batch = lstm_batch};
    WEIGHT(net, 0.1f, 0, LSTM_INPUTS, 4 * LSTM_UNITS);
    WEIGHT(net, 0.1f, 0, LSTM_UNITS, 4 * LSTM_UNITS);
    WEIGHT(net, 0, 0, 4 * LSTM_UNITS);
    WEIGHT(net, 0.2f, 0, LSTM_UNITS, 10);
    WEIGHT(net, 0, 0, 10);
}

// ---- The GPT ------------------------------------------------------------------------------------

enum { PER_LAYER = 12 };

const gpt_size gpt_sizes[GPT_SIZES] = {
    {"gpt", .vocabulary = 1024, .length = 64, .width = 256, .heads = 8, .layers = 4, .samples = 8, .dtype = MU_F32},
    {"gpt2", .vocabulary = 50257, .length = 1024, .width = 768, .heads = 12, .layers = 12, .samples = 8,
     .dtype = MU_BF16},
    {"gpt2_small", .vocabulary = 512, .length = 32, .width = 64, .heads = 4, .layers = 2, .samples = 4,
     .dtype = MU_BF16},
};

static mu_tensor *heads_first(const gpt_size *size, mu_tensor *x)
{
    const int64_t dims[] = {-1, size->length, size->heads, size->width / size->heads};
    return mu_transpose(mu_reshape(x, 4, dims), (int[]){0, 2, 1, 3});
}

static mu_tensor *linear(mu_tensor *x, mu_tensor *const *w) { return mu_add(mu_matmul(x, w[0]), w[1]); }

static mu_tensor *attention(const gpt_size *size, mu_tensor *x, mu_tensor *const *w, mu_tensor *mask)
{
    mu_tensor *parts[3];
    if (mu_split(linear(x, w), 3, 2, parts) != MU_OK)
        return NULL;
    for (int i = 0; i < 3; i++)
        parts[i] = heads_first(size, parts[i]);
    mu_tensor *scores = mu_multiply(mu_matmul_transposed(parts[0], parts[1], false, true),
                                    mu_constant(size->dtype, 1 / sqrt((double)size->width / size->heads)));
    mu_tensor *mixed = mu_matmul(mu_nn_softmax(mu_add(scores, mask), -1), parts[2]);
    mixed = mu_transpose(mixed, (int[]){0, 2, 1, 3});
    return linear(mu_reshape(mixed, 3, (int64_t[]){-1, size->length, size->width}), w + 2);
}

// What a position must not see gets -1e9.
static mu_tensor *causal_mask(const gpt_size *size)
{
    const int64_t n = size->length;
    float *data = malloc(sizeof *data * (size_t)(n * n));
    for (int64_t i = 0; data && i < n * n; i++)
        data[i] = i % n > i / n ? -1e9f : 0;
    mu_tensor *mask = data ? mu_tensor_new(MU_F32, 2, (int64_t[]){n, n}, data) : NULL;
    free(data);
    return mu_cast(mask, size->dtype);
}

static mu_tensor *normal(mu_tensor *x, mu_tensor *const *w) { return mu_nn_layer_normalization(x, w[0], w[1], 1e-5); }

static mu_tensor *gpt_loss(const network *net, mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    const gpt_size *size = net->size;
    mu_tensor *const *layer = w + 2, *mask = causal_mask(size);
    mu_tensor *h = mu_add(mu_gather(w[0], x, 0, 0), w[1]);
    for (int i = 0; i < size->layers; i++, layer += PER_LAYER) {
        h = mu_add(h, attention(size, normal(h, layer), layer + 2, mask));
        h = mu_add(h, linear(mu_nn_gelu(linear(normal(h, layer + 6), layer + 8), true), layer + 10));
    }
    h = mu_reshape(normal(h, layer), 2, (int64_t[]){-1, size->width});
    mu_tensor *logits = mu_cast(mu_matmul_transposed(h, w[0], false, true), MU_F32);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_reshape(y, 1, (int64_t[]){-1}), logits);
    return mu_reduce_mean(mu_reshape(losses, 2, (int64_t[]){-1, size->length}), 1);
}

static mu_value *gpt_batch(const network *net)
{
    const int64_t dims[] = {net->samples, net->size->length};
    const uint32_t below = (uint32_t)net->size->vocabulary;
    return mu_list(mu_of(integers(2, dims, 1002, below)), mu_of(integers(2, dims, 1003, below)), MU_END);
}

void make_gpt(network *net, const gpt_size *size)
{
    const int64_t width = size->width;
    *net = (network){.name = size->name,
                     .size = size,
                     .dtype = size->dtype,
                     .loss = gpt_loss,
                     .samples = size->samples,
                     .batch = gpt_batch};
    WEIGHT(net, 0.03f, 0, size->vocabulary, width);
    WEIGHT(net, 0.03f, 0, size->length, width);
    for (int i = 0; i < size->layers; i++) {
        WEIGHT(net, 0, 1, width);
        WEIGHT(net, 0, 0, width);
        WEIGHT(net, 0.03f, 0, width, 3 * width);
        WEIGHT(net, 0, 0, 3 * width);
        WEIGHT(net, 0.03f, 0, width, width);
        WEIGHT(net, 0, 0, width);
        WEIGHT(net, 0, 1, width);
        WEIGHT(net, 0, 0, width);
        WEIGHT(net, 0.03f, 0, width, 4 * width);
        WEIGHT(net, 0, 0, 4 * width);
        WEIGHT(net, 0.03f, 0, 4 * width, width);
        WEIGHT(net, 0, 0, width);
    }
    WEIGHT(net, 0, 1, width);
    WEIGHT(net, 0, 0, width);
}
