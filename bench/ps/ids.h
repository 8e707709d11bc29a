// The row numbers that lookups and updates of the bench ask for; the same for Muster, TensorFlow and the limits.
#ifndef BENCH_PS_IDS_H
#define BENCH_PS_IDS_H

#include <stdint.h>

enum { DIMENSION = 64, N_IDS = 65536 }; // elements of a row; rows of a lookup

// ids_fill writes n row numbers below `rows`: uniform, or by Zipf's law (the k-th most frequent row has a share of
// about 1/k), with the frequent rows spread over the table.
void ids_fill(int64_t *out, int64_t n, int64_t rows, int zipf);

#endif
