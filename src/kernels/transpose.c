// Matrix transposes. Squares as wide as a vector are loaded row by row, transposed in registers by interleaving
// (log2(side) passes) and stored row by row, so that every cache line touched is used completely; strips of a few
// cache lines keep reads adjacent. The code depends on the element size only, not the type.
#include "kernel_slots.h"
#include "simd.h"

// Bytes of a cache line; input cache lines read side by side; elements of a tile's rows.
enum { LINE = 64, STRIP = 4, WIDTH = 128 };
// Rows whose size is a multiple of CROWDED bytes compete for a few cache sets, so large results with such rows also
// go through tiles elsewhere in memory; for other results tiles only cost time.
enum { CROWDED = 1024, TILED_FROM = 128 << 10 };

#define LOW_2   0, 2
#define HIGH_2  1, 3
#define LOW_4   0, 4, 1, 5
#define HIGH_4  2, 6, 3, 7
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

// Sides of the squares: at most 16 elements and at most a vector.
#if MU_LANES == 16
#define SIDE_8  16
#define SIDE_16 16
#define SIDE_32 16
#define SIDE_64 8
#elif MU_LANES == 8
#define SIDE_8  16
#define SIDE_16 16
#define SIDE_32 8
#define SIDE_64 4
#else
#define SIDE_8  16
#define SIDE_16 8
#define SIDE_32 4
#define SIDE_64 2
#endif

// Copies a row of a tile to its destination and prefetches `next`, the destination of the row after next.
MU_INLINE void move_row(uint8_t *to, const uint8_t *from, int64_t bytes, const uint8_t *next)
{
    int64_t at = 0;
    for (; at + LINE <= bytes; at += LINE) {
        __builtin_prefetch(next + at, 1);
        memcpy(to + at, from + at, LINE);
    }
    memcpy(to + at, from + at, (size_t)(bytes - at));
}

#define PASTE(a, b) a##b
#define JOIN(a, b)  PASTE(a, b)

// For one element size: the transpose of a square, of a rectangle of any size, and of a range of the output's rows.
#define TRANSPOSE(BITS)                                                                                                \
    typedef uint##BITS##_t row_##BITS __attribute__((vector_size(SIDE_##BITS * BITS / 8)));                            \
                                                                                                                       \
    MU_INLINE void transpose_square_##BITS(const uint##BITS##_t *in, int64_t stride, uint##BITS##_t *out,              \
                                           int64_t columns)                                                            \
    {                                                                                                                  \
        enum { SIDE = SIDE_##BITS };                                                                                   \
        row_##BITS rows[SIDE], mixed[SIDE];                                                                            \
        MU_UNROLL                                                                                                      \
        for (int j = 0; j < SIDE; j++)                                                                                 \
            memcpy(&rows[j], in + j * stride, sizeof rows[j]);                                                         \
        MU_UNROLL                                                                                                      \
        for (int pass = 1; pass < SIDE; pass *= 2) {                                                                   \
            MU_UNROLL                                                                                                  \
            for (int j = 0; j < SIDE / 2; j++) {                                                                       \
                mixed[2 * j] = __builtin_shufflevector(rows[j], rows[j + SIDE / 2], JOIN(LOW_, SIDE_##BITS));          \
                mixed[2 * j + 1] = __builtin_shufflevector(rows[j], rows[j + SIDE / 2], JOIN(HIGH_, SIDE_##BITS));     \
            }                                                                                                          \
            MU_UNROLL                                                                                                  \
            for (int j = 0; j < SIDE; j++)                                                                             \
                rows[j] = mixed[j];                                                                                    \
        }                                                                                                              \
        MU_UNROLL                                                                                                      \
        for (int i = 0; i < SIDE; i++)                                                                                 \
            memcpy(out + i * columns, &rows[i], sizeof rows[i]);                                                       \
    }                                                                                                                  \
                                                                                                                       \
    static void transpose_edge_##BITS(const uint##BITS##_t *in, int64_t stride, uint##BITS##_t *out, int64_t columns,  \
                                      int64_t rows, int64_t width)                                                     \
    {                                                                                                                  \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int64_t j = 0; j < width; j++)                                                                        \
                out[i * columns + j] = in[i + j * stride];                                                             \
    }                                                                                                                  \
                                                                                                                       \
    /* Transposes through a buffer, up to HEIGHT output rows of up to WIDTH elements each. */                          \
    static void transpose_tile_##BITS(const uint##BITS##_t *in, int64_t stride, uint##BITS##_t *out, int64_t columns,  \
                                      int64_t rows, int64_t width)                                                     \
    {                                                                                                                  \
        enum { SIDE = SIDE_##BITS, HEIGHT = STRIP * LINE * 8 / BITS };                                                 \
        _Alignas(LINE) uint##BITS##_t tile[HEIGHT * WIDTH];                                                            \
        for (int64_t j = 0; j < width; j += SIDE)                                                                      \
            for (int64_t i = 0; i < rows; i += SIDE)                                                                   \
                transpose_square_##BITS(in + i + j * stride, stride, tile + i * WIDTH + j, WIDTH);                     \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            move_row((uint8_t *)(out + i * columns), (const uint8_t *)(tile + i * WIDTH), width *(BITS / 8),           \
                     (const uint8_t *)(out + (i + 2) * columns));                                                      \
    }                                                                                                                  \
                                                                                                                       \
    /* Transposes up to HEIGHT output rows of whole squares. */                                                        \
    static void transpose_strip_##BITS(const uint##BITS##_t *in, int64_t stride, uint##BITS##_t *out, int64_t columns, \
                                       int64_t rows, bool tiled)                                                       \
    {                                                                                                                  \
        const int64_t step = tiled ? WIDTH : SIDE_##BITS, whole = columns / SIDE_##BITS * SIDE_##BITS;                 \
        for (int64_t j = 0; j < whole; j += step) {                                                                    \
            if (tiled)                                                                                                 \
                transpose_tile_##BITS(in + j * stride, stride, out + j, columns, rows, least(WIDTH, whole - j));       \
            for (int64_t i = 0; !tiled && i < rows; i += SIDE_##BITS)                                                  \
                transpose_square_##BITS(in + i + j * stride, stride, out + i * columns + j, columns);                  \
        }                                                                                                              \
        transpose_edge_##BITS(in + whole * stride, stride, out + whole, columns, rows, columns - whole);               \
    }                                                                                                                  \
                                                                                                                       \
    static void transpose_##BITS(const void *from, int64_t stride, void *to, int64_t columns, int64_t begin,           \
                                 int64_t end)                                                                          \
    {                                                                                                                  \
        enum { SIDE = SIDE_##BITS, HEIGHT = STRIP * LINE * 8 / BITS };                                                 \
        const uint##BITS##_t *in = from;                                                                               \
        uint##BITS##_t *out = to;                                                                                      \
        const int64_t row = columns * (BITS / 8);                                                                      \
        const bool tiled = row % CROWDED == 0 && (end - begin) * row >= TILED_FROM;                                    \
        for (int64_t first = begin; first < end; first += HEIGHT) {                                                    \
            const int64_t rows = least(HEIGHT, end - first), whole = rows / SIDE * SIDE;                               \
            transpose_strip_##BITS(in + first, stride, out + first * columns, columns, whole, tiled);                  \
            transpose_edge_##BITS(in + first + whole, stride, out + (first + whole) * columns, columns, rows - whole,  \
                                  columns);                                                                            \
        }                                                                                                              \
    }

TRANSPOSE(8)
TRANSPOSE(16)
TRANSPOSE(32)
TRANSPOSE(64)

void MU_KERNEL(transpose)(const void *in, int64_t stride, void *out, int64_t columns, int bytes, int64_t begin,
                          int64_t end)
{
    (bytes == 1   ? transpose_8
     : bytes == 2 ? transpose_16
     : bytes == 4 ? transpose_32
                  : transpose_64)(in, stride, out, columns, begin, end);
}
