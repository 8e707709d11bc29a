// What the tests of groups of several processes check for every operation: correct numbers for every type, size and
// reduction, whatever transport carries them.
#ifndef MU_TESTS_OPERATIONS_TEST_H
#define MU_TESTS_OPERATIONS_TEST_H

#include "world_test.h"

static inline double wanted_root(const void *arg, int64_t i) { return element(((const question *)arg)->root, i); }

static inline double wanted_gather(const void *arg, int64_t i)
{
    const question *q = arg;
    int from = 0;
    for (; i >= q->counts[from]; from++)
        i -= q->counts[from];
    return element(from, i);
}

static inline double wanted_exchange(const void *arg, int64_t i)
{
    const question *q = arg;
    return element((int)(i / q->count), q->c->rank * q->count + i % q->count);
}

static inline int check_all_reduce(mu_collective *c, mu_dtype dtype, mu_reduction reduction, int64_t n)
{
    const question q = {.c = c, .dtype = dtype, .reduction = reduction};
    void *data = filled(c, dtype, n);
    CHECK(c->all_reduce(c, 1, "sum", reduction, dtype, data, n) == MU_OK);
    CHECK(first_wrong(dtype, data, n, wanted_sum, &q) == -1);
    free(data);
    return 0;
}

static inline int check_broadcast(mu_collective *c, mu_dtype dtype, int64_t n)
{
    const question q = {.root = c->size / 2};
    void *data = filled(c, dtype, n);
    CHECK(c->broadcast(c, 2, "start", dtype, data, n, q.root) == MU_OK);
    CHECK(first_wrong(dtype, data, n, wanted_root, &q) == -1);
    free(data);
    return 0;
}

// Uneven parts: every third rank has none.
static inline int check_all_gather(mu_collective *c, mu_dtype dtype, int64_t n)
{
    int64_t counts[MOST_RANKS * MOST_LOCAL], total = 0;
    for (int r = 0; r < c->size; r++)
        total += counts[r] = r % 3 == 1 ? 0 : n + r;
    const question q = {.counts = counts};
    void *in = filled(c, dtype, counts[c->rank]), *out = calloc((size_t)total + 1, mu_dtype_bytes(dtype));
    CHECK(c->all_gather(c, 3, "rows", dtype, in, counts[c->rank], out, counts) == MU_OK);
    CHECK(first_wrong(dtype, out, total, wanted_gather, &q) == -1);
    free(in);
    free(out);
    return 0;
}

static inline int check_blocks(mu_collective *c, mu_dtype dtype, mu_reduction reduction, int64_t n)
{
    const question q = {.c = c, .dtype = dtype, .reduction = reduction, .count = n, .offset = c->rank * n};
    void *in = filled(c, dtype, n * c->size), *out = calloc((size_t)(n * c->size) + 1, mu_dtype_bytes(dtype));
    CHECK(mu__collective_all_to_all(c, 4, "exchange", dtype, in, out, n) == MU_OK);
    CHECK(first_wrong(dtype, out, n * c->size, wanted_exchange, &q) == -1);
    CHECK(mu__collective_reduce_scatter(c, 5, "scatter", reduction, dtype, in, out, n) == MU_OK);
    CHECK(first_wrong(dtype, out, n, wanted_sum, &q) == -1);
    free(in);
    free(out);
    return 0;
}

// Every rank's tensor goes to the rank two further on; every fourth rank has no source and gets zeros.
static inline int check_permute(mu_collective *c, mu_dtype dtype, int64_t n)
{
    int64_t sources[MOST_RANKS * MOST_LOCAL];
    for (int r = 0; r < c->size; r++)
        sources[r] = r % 4 == 3 ? -1 : (r + 2 * c->size - 2) % c->size;
    const question q = {.root = (int)MU_MAX(sources[c->rank], 0)};
    void *in = filled(c, dtype, n);
    char *out = calloc((size_t)n + 1, mu_dtype_bytes(dtype)), *zeros = calloc((size_t)n + 1, mu_dtype_bytes(dtype));
    memset(out, 1, (size_t)n * mu_dtype_bytes(dtype));
    CHECK(c->permute(c, 6, "permute", dtype, in, out, n, sources) == MU_OK);
    if (sources[c->rank] >= 0)
        CHECK(first_wrong(dtype, out, n, wanted_root, &q) == -1);
    else
        CHECK(memcmp(out, zeros, (size_t)n * mu_dtype_bytes(dtype)) == 0);
    free(in);
    free(out);
    free(zeros);
    return 0;
}

static inline int every_operation(world *w, mu_collective *c)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4097, 70001, 400000};
    const size_t n = c->size <= 4 ? MU_COUNT(sizes) : MU_COUNT(sizes) - 1;
    (void)w;
    for (size_t i = 0; i < n; i++) {
        mu__collective_begin(c, (int64_t)i);
        CHECK(check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, sizes[i]) == 0);
        CHECK(check_broadcast(c, MU_F32, sizes[i]) == 0);
        CHECK(check_all_gather(c, MU_I32, sizes[i]) == 0);
        CHECK(check_blocks(c, MU_F64, MU_REDUCTION_SUM, sizes[i] / 4) == 0);
        CHECK(check_permute(c, MU_F32, sizes[i]) == 0);
        CHECK(mu__collective_barrier(c, 7, "end") == MU_OK);
    }
    return 0;
}

static inline int every_type(world *w, mu_collective *c)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    static const int64_t sizes[] = {0, 1, 33, 20011};
    (void)w;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t s = 0; s < MU_COUNT(sizes); s++) {
            for (int reduction = MU_REDUCTION_SUM; reduction <= MU_REDUCTION_MAX; reduction++) {
                CHECK(check_all_reduce(c, dtypes[d], (mu_reduction)reduction, sizes[s]) == 0);
                CHECK(check_blocks(c, dtypes[d], (mu_reduction)reduction, sizes[s] / 3) == 0);
            }
            CHECK(check_broadcast(c, dtypes[d], sizes[s]) == 0);
            CHECK(check_all_gather(c, dtypes[d], sizes[s]) == 0);
            CHECK(check_permute(c, dtypes[d], sizes[s]) == 0);
        }
    return 0;
}

#endif
