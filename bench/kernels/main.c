// Times every CPU kernel at the shapes of the CNN's training step (28x28x1, conv 3x3x32, pool, conv 3x3x64, pool,
// dense 128, dense 10), batch 64 and 128, on one core, and compares it with the limits of the same core in the same
// run: multiply-adds in registers and a copy of 4 MB. Usage: bench_kernels [isa [part of a name]]. Reports the best
// of many runs, because other programs can only increase a time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "peak.h"

enum { N_PARAMETERS = 225034, MAX_BATCH = 128, COPY_BYTES = 4 << 20 };

typedef struct bench {
    const mu_kernels *k;
    int64_t batch;
    double peak_flops, copy_bytes; // per second
    float *big[4], *weights[4];
    uint8_t *mark, *bytes;
    int64_t index[MAX_BATCH];
} bench;

typedef void body(bench *b);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_time(bench *b, body *run)
{
    double best = 1e9;
    run(b);
    for (double until = now() + 0.25; now() < until;) {
        const double start = now();
        run(b);
        const double time = now() - start;
        best = time < best ? time : best;
    }
    return best;
}

static const mu_conv_pool_shape conv1 = {28, 28, 1, 32, 3};
static const mu_pool_shape pool2 = {11, 11, 64, 5, 5, 2, 2, 2, 2, 0, 0};

static void conv_forward(bench *b)
{
    float *const *w = b->weights;
    b->k->conv_relu_pool(&conv1, b->big[0], w[0], w[1], b->big[1], b->mark, 0, b->batch);
}

static void conv_backward(bench *b)
{
    float *const *w = b->weights;
    b->k->conv_relu_pool_grad(&conv1, b->big[0], b->big[1], b->mark, w[2], w[3], 0, b->batch);
}

static void pool_forward(bench *b)
{
    b->k->relu_pool(b->big[0], b->weights[0], b->big[1], b->mark, 11, 11, 64, 0, b->batch);
}

static void pool_backward(bench *b)
{
    b->k->relu_pool_grad(b->big[1], b->mark, b->big[2], b->weights[0], 11, 11, 64, 0, b->batch);
}

static void max_forward(bench *b) { b->k->max_pool(&pool2, b->big[0], b->big[1], b->mark, 0, b->batch); }

static void max_backward(bench *b) { b->k->max_pool_grad(&pool2, b->big[1], b->mark, b->big[2], 0, b->batch); }

static void average_forward(bench *b) { b->k->average_pool(&pool2, b->big[0], b->big[1], 0, b->batch); }

static void average_backward(bench *b) { b->k->average_pool_grad(&pool2, b->big[1], b->big[2], 0, b->batch); }

static void bias_relu(bench *b) { b->k->bias_relu(b->big[0], b->weights[0], b->big[0], 128, 0, b->batch); }

static void relu_grad(bench *b) { b->k->relu_grad(b->big[0], b->big[1], b->big[2], 0, 128 * b->batch); }

static void bias_grad(bench *b) { b->k->bias_grad(b->big[0], b->weights[0], 128, 0, b->batch); }

static void xent(bench *b) { b->k->softmax_xent(b->big[0], b->mark, 1, b->big[1], b->big[2], 10, 0, b->batch); }

static void argmax(bench *b) { b->k->argmax(b->big[0], b->index, 10, 0, b->batch); }

static void scale(bench *b) { b->k->scale(b->big[0], 0.5f, b->big[1], 0, N_PARAMETERS); }

static void scale_u8(bench *b) { b->k->scale_u8(b->bytes, 1.0f / 255, b->big[0], 0, 784 * b->batch); }

static void gather_u8(bench *b) { b->k->gather_u8(b->bytes, b->index, 1.0f / 255, b->big[0], 784, 0, b->batch); }

static void adam(bench *b)
{
    const mu_adam_scalars s = {1e-3f, 0.1f, 0.001f, 1e-7f};
    b->k->adam(b->big[0], b->big[1], b->big[2], b->big[3], s, 0, N_PARAMETERS);
}

static void sgd(bench *b)
{
    const mu_sgd_scalars s = {1e-3f, 0.9f, true};
    b->k->sgd(b->big[0], b->big[1], b->big[2], s, 0, N_PARAMETERS);
}

static void reduce(bench *b)
{
    float *const dst[2] = {b->big[0], b->big[1]};
    const float *const src[2] = {b->big[2], b->big[3]};
    b->k->reduce_n(dst, 2, src, 2, 1, false, 0, N_PARAMETERS);
}

// The cost of one image (or, with `fixed`, of one call): floating-point operations if they are the limit, otherwise
// bytes read and written.
static const struct row {
    const char *name;
    body *run;
    double flops, bytes;
    bool fixed;
} rows[] = {
    {"conv_relu_pool 28x28x1 3x3x32", conv_forward, 2.0 * 26 * 26 * 9 * 32, 0, false},
    {"conv_relu_pool_grad (maxima only)", conv_backward, 2.0 * 13 * 13 * 9 * 32, 0, false},
    {"relu_pool 11x11x64", pool_forward, 0, 121 * 64 * 4 + 25 * 64 * 5, false},
    {"relu_pool_grad with db", pool_backward, 0, 121 * 64 * 4 + 25 * 64 * 5, false},
    {"max_pool 11x11x64", max_forward, 0, 121 * 64 * 4 + 25 * 64 * 5, false},
    {"max_pool_grad", max_backward, 0, 121 * 64 * 4 + 25 * 64 * 5, false},
    {"average_pool 11x11x64", average_forward, 0, 121 * 64 * 4 + 25 * 64 * 4, false},
    {"average_pool_grad", average_backward, 0, 121 * 64 * 4 + 25 * 64 * 4, false},
    {"bias_relu x 128", bias_relu, 0, 128 * 8, false},
    {"relu_grad x 128", relu_grad, 0, 128 * 12, false},
    {"bias_grad x 128", bias_grad, 0, 128 * 4, false},
    {"softmax_xent x 10", xent, 0, 10 * 8 + 5, false},
    {"argmax x 10", argmax, 0, 10 * 4 + 8, false},
    {"scale_u8 x 784", scale_u8, 0, 784 * 5, false},
    {"gather_u8 x 784", gather_u8, 0, 784 * 5, false},
    {"adam 225034", adam, 0, 28.0 * N_PARAMETERS, true},
    {"sgd nesterov 225034", sgd, 0, 20.0 * N_PARAMETERS, true},
    {"reduce_n 2 to 2, 225034", reduce, 0, 16.0 * N_PARAMETERS, true},
    {"scale 225034", scale, 0, 8.0 * N_PARAMETERS, true},
};

static void measure_row(bench *b, const struct row *row)
{
    const double time = best_time(b, row->run), times = row->fixed ? 1 : (double)b->batch;
    const double work = times * (row->flops > 0 ? row->flops : row->bytes) / time;
    const double roof = row->flops > 0 ? b->peak_flops : b->copy_bytes;
    printf("%5lld  %-34s %9.2f  %7.1f %-7s %5.2f\n", (long long)b->batch, row->name, 1e6 * time, 1e-9 * work,
           row->flops > 0 ? "GFLOP/s" : "GB/s", work / roof);
}

static void peak_body(bench *b)
{
    (void)b;
    static volatile float sink;
    run_peak(&sink);
}

static void plain_copy(bench *b) { memcpy(b->big[0], b->big[1], COPY_BYTES); }

static void measure_roofs(bench *b)
{
    volatile float sink = 0;
    b->peak_flops = run_peak(&sink) / best_time(b, peak_body);
    b->copy_bytes = 2.0 * COPY_BYTES / best_time(b, plain_copy);
    printf("roofs: %.1f GFLOP/s in registers, %.1f GB/s copying 4 MB (read + written)\n", 1e-9 * b->peak_flops,
           1e-9 * b->copy_bytes);
}

static void *must_allocate(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        fprintf(stderr, "bench_kernels: no memory for %zu bytes; free some and run again\n", bytes);
        exit(1);
    }
    return p;
}

static void set_up(bench *b)
{
    const size_t n = MAX_BATCH * 26 * 26 * 32;
    for (int i = 0; i < 4; i++) {
        b->big[i] = must_allocate(n * sizeof(float));
        b->weights[i] = must_allocate(4096 * sizeof(float));
        for (size_t j = 0; j < n; j++)
            b->big[i][j] = (float)(rand() % 1000 + 1) / 1000;
        for (size_t j = 0; j < 4096; j++)
            b->weights[i][j] = (float)(rand() % 1000) / 1000 - 0.5f;
    }
    b->mark = must_allocate(n);
    b->bytes = must_allocate(n);
    for (size_t j = 0; j < n; j++)
        b->mark[j] = (uint8_t)(rand() % 5), b->bytes[j] = (uint8_t)rand();
    for (int i = 0; i < MAX_BATCH; i++)
        b->index[i] = rand() % MAX_BATCH;
}

static void tear_down(bench *b)
{
    for (int i = 0; i < 4; i++) {
        free(b->big[i]);
        free(b->weights[i]);
    }
    free(b->mark);
    free(b->bytes);
}

int main(int argc, char **argv)
{
    bench b = {.k = argc > 1 ? mu__kernels_for(argv[1]) : mu__kernels()};
    if (b.k == NULL) {
        fprintf(stderr, "bench_kernels: no table '%s' on this processor; wanted avx512, avx2 or base\n", argv[1]);
        return 1;
    }
    set_up(&b);
    printf("table %s\n", b.k->isa);
    measure_roofs(&b);
    printf("batch  %-34s %9s  %7s %-7s %5s\n", "kernel", "us", "", "", "roof");
    for (b.batch = 64; b.batch <= MAX_BATCH; b.batch *= 2)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (argc < 3 || strstr(rows[i].name, argv[2]) != NULL)
                measure_row(&b, &rows[i]);
    tear_down(&b);
    return 0;
}
