// The machine's limits for the bench of ops: the bytes per second of the four ways of moving memory, in plain and in
// streaming stores, whichever is faster; and the best matrix product of oneDNN, called without Muster.
#include "calls.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef struct arrays {
    vec *a, *b, *to;
    size_t n;  // vectors
} arrays;
typedef void loop(const arrays *x);
static vec sink;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put(vec *to, vec value, int stream)
{
#if defined(__clang__) || defined(__x86_64__)
    if (stream) {
#if defined(__clang__)
        __builtin_nontemporal_store(value, to);
#elif defined(__AVX512F__)
        __builtin_ia32_movntps512((float *)to, value);
#elif defined(__AVX__)
        __builtin_ia32_movntps256((float *)to, value);
#else
        *to = value;
#endif
        return;
    }
#endif
    *to = value;
}

static void read_all(const arrays *x)
{
    vec sums[8] = {{0}};
    for (size_t i = 0; i + 8 <= x->n; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += x->a[i + k];
    for (size_t k = 0; k < 8; k++)
        sink += sums[k];
}

static inline __attribute__((always_inline)) void add_to(const arrays *x, int stream)
{
    for (size_t i = 0; i < x->n; i++)
        put(&x->to[i], x->a[i] + x->b[i], stream);
}

static inline __attribute__((always_inline)) void copy_to(const arrays *x, int stream)
{
    for (size_t i = 0; i < x->n; i++)
        put(&x->to[i], x->a[i], stream);
}

static inline __attribute__((always_inline)) void fill_to(const arrays *x, int stream)
{
    for (size_t i = 0; i < x->n; i++)
        put(&x->to[i], sink, stream);
}

static void add_plain(const arrays *x) { add_to(x, 0); }
static void add_stream(const arrays *x) { add_to(x, 1); }
static void copy_plain(const arrays *x) { copy_to(x, 0); }
static void copy_stream(const arrays *x) { copy_to(x, 1); }
static void copy_library(const arrays *x) { memcpy(x->to, x->a, x->n * sizeof *x->to); }
static void fill_plain(const arrays *x) { fill_to(x, 0); }
static void fill_stream(const arrays *x) { fill_to(x, 1); }

static double best_seconds(loop *run, const arrays *x)
{
    double best = 1e9;
    const size_t bytes = x->n * sizeof(vec);
    const int calls = bytes < (1 << 20) ? (int)((1 << 20) / (bytes > 0 ? bytes : 1)) + 1 : 1;
    const double until = now() + 0.08;
    do {
        const double start = now();
        for (int i = 0; i < calls; i++) {
            run(x);
            __asm__ volatile("" ::: "memory");
        }
        const double took = (now() - start) / calls;
        best = took < best ? took : best;
    } while (now() < until);
    return best;
}

static double faster(loop *plain, loop *stream, const arrays *x)
{
    const double one = best_seconds(plain, x), other = best_seconds(stream, x);
    return one < other ? one : other;
}

void print_limits(size_t operand_bytes)
{
    const size_t huge = 2 << 20, bytes = (operand_bytes + huge - 1) / huge * huge;
    char *memory = aligned_alloc(huge, 3 * bytes);
    if (!memory) {
        printf("error no memory for the limits\n");
        return;
    }
    madvise(memory, 3 * bytes, MADV_HUGEPAGE);
    memset(memory, 0, 3 * bytes);
    // The three lie close together when small, as an allocator would place them.
    const size_t apart = operand_bytes < huge ? (operand_bytes + 255) / 256 * 256 : bytes;
    const arrays x = {(vec *)(void *)memory, (vec *)(void *)(memory + apart), (vec *)(void *)(memory + 2 * apart),
                      operand_bytes / sizeof(vec)};
    const double size = (double)operand_bytes;
    const double copied = faster(copy_plain, copy_stream, &x), library = best_seconds(copy_library, &x);
    printf("ok %.4g %.4g %.4g %.4g\n", size / best_seconds(read_all, &x),
           2 * size / (copied < library ? copied : library), 3 * size / faster(add_plain, add_stream, &x),
           size / faster(fill_plain, fill_stream, &x));
    free(memory);
}

void print_peak(void)
{
    enum { SIDE = 1024 };
    float *x = aligned_alloc(64, 3 * SIDE * SIDE * sizeof *x);
    double best = 1e9;
    if (!x)
        return;
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        x[i] = 1.0f / (float)(1 + i % 97);
    for (int i = 0; i < 12; i++) {
        const double start = now();
        dnnl_sgemm('N', 'N', SIDE, SIDE, SIDE, 1, x, SIDE, x + SIDE * SIDE, SIDE, 0, x + 2 * SIDE * SIDE, SIDE);
        const double took = now() - start;
        best = took < best ? took : best;
    }
    printf("ok %.4g\n", 2.0 * SIDE * SIDE * SIDE / best);
    free(x);
}
