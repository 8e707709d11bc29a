// Measures Open MPI's MPI_Allreduce as bench/collectives/run.py expects it: built with mpicc, started by mpirun.
//
// Uses the same sizes, batches, pinning and check as bench_processes; takes the better of in-place and out-of-place.
// Rank 0 prints one line "bytes microseconds" per size.
#include "pin_rank.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 7 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add(float *in, float *out, int n)
{
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void check(float *in, float *out, int n, int rank, int ranks)
{
    for (int i = 0; i < n; i++)
        in[i] = (float)(rank + 1 + i % 13);
    add(in, out, n);
    for (int i = 0; i < n; i++)
        if (out[i] != (float)(ranks * (ranks + 1) / 2) + (float)(ranks * (i % 13)))
            MPI_Abort(MPI_COMM_WORLD, 1);
    memset(in, 0, (size_t)n * sizeof *in);
    memset(out, 0, (size_t)n * sizeof *out);
}

static double measure(float *in, float *out, int n, int rank, int ranks)
{
    double times[BATCHES];
    const double guess = 2e-6 + (double)n * 4 * ranks / 4e9, wanted = 10e-3 / guess;
    const int turns = wanted < 1 ? 1 : wanted > 500 ? 500 : (int)wanted;
    check(in, out, n, rank, ranks);
    for (int batch = 0; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = now_us();
        for (int i = 0; i < turns; i++)
            add(in, out, n);
        times[batch] = (now_us() - begin) / turns;
    }
    qsort(times, BATCHES, sizeof *times, by_value);
    return times[BATCHES / 2];
}

int main(int argc, char **argv)
{
    static const long sizes[] = {4,      64,      1024,    4096,    16384,    65536,
                                 262144, 1048576, 4194304, 8388608, 16777216, 67108864};
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pin_rank(rank);
    float *in = calloc(67108864, 1), *out = calloc(67108864, 1);
    if (in == NULL || out == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const double in_place = measure(in, in, (int)(sizes[i] / 4), rank, ranks);
        const double apart = measure(in, out, (int)(sizes[i] / 4), rank, ranks);
        if (rank == 0) {
            printf("%ld %.3f\n", sizes[i], in_place < apart ? in_place : apart);
            fflush(stdout);
        }
    }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
