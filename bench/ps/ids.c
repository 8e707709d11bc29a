// Row numbers, uniform or by Zipf's law with exponent 1; rival.py has the same formulas.
#include "ids.h"

#include <math.h>

// A number below 1 from a counter (splitmix64).
static double chance(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

void ids_fill(int64_t *out, int64_t n, int64_t rows, int zipf)
{
    for (int64_t i = 0; i < n; i++) {
        const double u = chance((uint64_t)i);
        if (!zipf) {
            out[i] = (int64_t)(u * (double)rows);
            continue;
        }
        // The sum of 1/k up to x is about ln x: the rank of the share u is rows^u. The odd factor spreads the ranks.
        const int64_t rank = (int64_t)pow((double)rows, u) - 1;
        out[i] = (int64_t)((uint64_t)rank * 2654435761u % (uint64_t)rows);
    }
}
