// A convolutional network and a small GPT (4 layers, d = 256), with Adam.
#include "networks.h"

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

#define WEIGHT(net, scale, offset, ...)                                     \
    add_weight(net, scale, offset, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

// ---- The CNN ------------------------------------------------------------------------------------

static mu_tensor *cnn_loss(mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    for (int i = 0; i < 2; i++) {
        x = mu_nn_conv2d(x, w[2 * i]);
        x = mu_nn_relu(mu_add(x, w[2 * i + 1]));
        x = mu_nn_max_pool2d(x, {2, 2});
    }
    x = mu_reshape(x, 2, (int64_t[]){-1, 1600});
    x = mu_nn_relu(mu_add(mu_matmul(x, w[4]), w[5]));
    return mu_nn_sparse_softmax_cross_entropy(y, mu_add(mu_matmul(x, w[6]), w[7]));
}

static mu_value *cnn_batch(int samples)
{
    return mu_list(mu_of(numbers(4, (int64_t[]){samples, 28, 28, 1}, 1000, 1, 0)),
                   mu_of(integers(1, (int64_t[]){samples}, 1001, 10)), MU_END);
}

void make_cnn(network *net)
{
    *net = (network){.name = "cnn", .loss = cnn_loss, .samples = 128, .batch = cnn_batch};
    WEIGHT(net, 0.3f, 0, 3, 3, 1, 32);
    WEIGHT(net, 0, 0, 32);
    WEIGHT(net, 0.08f, 0, 3, 3, 32, 64);
    WEIGHT(net, 0, 0, 64);
    WEIGHT(net, 0.05f, 0, 1600, 128);
    WEIGHT(net, 0, 0, 128);
    WEIGHT(net, 0.15f, 0, 128, 10);
    WEIGHT(net, 0, 0, 10);
}

// ---- The GPT ------------------------------------------------------------------------------------

enum { VOCABULARY = 1024, LENGTH = 64, WIDTH = 256, HEADS = 8, HEAD = WIDTH / HEADS, LAYERS = 4, PER_LAYER = 12 };

static mu_tensor *heads_first(mu_tensor *x)
{
    return mu_transpose(mu_reshape(x, 4, (int64_t[]){-1, LENGTH, HEADS, HEAD}), (int[]){0, 2, 1, 3});
}

static mu_tensor *linear(mu_tensor *x, mu_tensor *const *w) { return mu_add(mu_matmul(x, w[0]), w[1]); }

static mu_tensor *attention(mu_tensor *x, mu_tensor *const *w, mu_tensor *mask)
{
    mu_tensor *parts[3];
    if (mu_split(linear(x, w), 3, 2, parts) != MU_OK)
        return NULL;
    for (int i = 0; i < 3; i++)
        parts[i] = heads_first(parts[i]);
    mu_tensor *scores = mu_multiply(mu_matmul_transposed(parts[0], parts[1], false, true),
                                    mu_constant(MU_F32, 0.17677669529663687));
    mu_tensor *mixed = mu_matmul(mu_nn_softmax(mu_add(scores, mask), -1), parts[2]);
    mixed = mu_transpose(mixed, (int[]){0, 2, 1, 3});
    return linear(mu_reshape(mixed, 3, (int64_t[]){-1, LENGTH, WIDTH}), w + 2);
}

// What a position must not see gets -1e9.
static mu_tensor *causal_mask(void)
{
    static float data[LENGTH * LENGTH];
    for (int i = 0; i < LENGTH * LENGTH; i++)
        data[i] = i % LENGTH > i / LENGTH ? -1e9f : 0;
    return mu_tensor_new(MU_F32, 2, (int64_t[]){LENGTH, LENGTH}, data);
}

static mu_tensor *normal(mu_tensor *x, mu_tensor *const *w) { return mu_nn_layer_normalization(x, w[0], w[1], 1e-5); }

static mu_tensor *gpt_loss(mu_tensor *const *w, mu_tensor *x, mu_tensor *y)
{
    mu_tensor *const *layer = w + 2, *mask = causal_mask();
    mu_tensor *h = mu_add(mu_gather(w[0], x, 0, 0), w[1]);
    for (int i = 0; i < LAYERS; i++, layer += PER_LAYER) {
        h = mu_add(h, attention(normal(h, layer), layer + 2, mask));
        h = mu_add(h, linear(mu_nn_gelu(linear(normal(h, layer + 6), layer + 8), true), layer + 10));
    }
    h = mu_reshape(normal(h, layer), 2, (int64_t[]){-1, WIDTH});
    mu_tensor *logits = mu_matmul_transposed(h, w[0], false, true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_reshape(y, 1, (int64_t[]){-1}), logits);
    return mu_reduce_mean(mu_reshape(losses, 2, (int64_t[]){-1, LENGTH}), 1);
}

static mu_value *gpt_batch(int samples)
{
    const int64_t dims[] = {samples, LENGTH};
    return mu_list(mu_of(integers(2, dims, 1002, VOCABULARY)), mu_of(integers(2, dims, 1003, VOCABULARY)), MU_END);
}

void make_gpt(network *net)
{
    *net = (network){.name = "gpt", .loss = gpt_loss, .samples = 8, .batch = gpt_batch};
    WEIGHT(net, 0.03f, 0, VOCABULARY, WIDTH);
    WEIGHT(net, 0.03f, 0, LENGTH, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        WEIGHT(net, 0, 1, WIDTH);
        WEIGHT(net, 0, 0, WIDTH);
        WEIGHT(net, 0.03f, 0, WIDTH, 3 * WIDTH);
        WEIGHT(net, 0, 0, 3 * WIDTH);
        WEIGHT(net, 0.03f, 0, WIDTH, WIDTH);
        WEIGHT(net, 0, 0, WIDTH);
        WEIGHT(net, 0, 1, WIDTH);
        WEIGHT(net, 0, 0, WIDTH);
        WEIGHT(net, 0.03f, 0, WIDTH, 4 * WIDTH);
        WEIGHT(net, 0, 0, 4 * WIDTH);
        WEIGHT(net, 0.03f, 0, 4 * WIDTH, WIDTH);
        WEIGHT(net, 0, 0, WIDTH);
    }
    WEIGHT(net, 0, 1, WIDTH);
    WEIGHT(net, 0, 0, WIDTH);
}
