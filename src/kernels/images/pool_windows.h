// Windows of pools over images: the position of a window along an axis, and how a row of the result divides into runs
// of columns that are pooled alike. Columns with stride 1 whose windows lie inside the image form one long run of
// elements, whatever the number of channels.
#ifndef MU_SRC_KERNELS_POOL_WINDOWS_H
#define MU_SRC_KERNELS_POOL_WINDOWS_H

#include "kernel_slots.h"
#include "simd.h"

// A window: its first position, which may lie in the padding, and its part [begin, end) inside the image.
typedef struct span {
    int64_t first, begin, end;
} span;

// A division of non-negative numbers, fast for common strides.
MU_INLINE int64_t quotient(int64_t a, int64_t b) { return b == 1 ? a : b == 2 ? a >> 1 : a / b; }

MU_INLINE span span_at(int64_t out, int64_t stride, int64_t pad, int64_t size, int64_t in)
{
    const int64_t first = out * stride - pad;
    return (span){first, greatest(first, 0), least(first + size, in)};
}

MU_INLINE span rows_at(const mu_pool_shape *s, int64_t out_row)
{
    return span_at(out_row, s->stride_height, s->pad_top, s->window_height, s->height);
}

MU_INLINE span columns_at(const mu_pool_shape *s, int64_t out_column)
{
    return span_at(out_column, s->stride_width, s->pad_left, s->window_width, s->width);
}

MU_INLINE int64_t length_of(const span *s) { return greatest(s->end - s->begin, 0); }

enum {
    HELD = 16384,   // most elements of the buffered rows
    MOST_ROWS = 256 // most rows of a window
};

// The number of columns and channels buffered at a time for `rows` rows: as many as fit, in equal parts.
typedef struct cut {
    int64_t columns, channels;
} cut;

static inline cut cut_of(int64_t columns, int64_t channels, int64_t rows)
{
    const int64_t most = HELD / rows, part = channels <= most ? channels : most / MU_LANES * MU_LANES;
    const int64_t at_once = most / greatest(part, 1), strips = (columns + at_once - 1) / at_once;
    return (cut){.columns = (columns + greatest(strips, 1) - 1) / greatest(strips, 1), .channels = part};
}

// The part that is pooled at a time: columns [begin, end) of the result, and `channels` channels from `channel` on.
// whole: these are all channels, so that neighbouring columns are contiguous. [inner_begin, inner_end): the columns
// whose windows lie inside the image.
typedef struct strip {
    int64_t begin, end, channel, channels;
    int64_t inner_begin, inner_end;
    bool whole;
} strip;

static void find_inner(const mu_pool_shape *s, strip *t)
{
    const int64_t last = s->width - s->window_width + s->pad_left;
    const int64_t begin = least(quotient(s->pad_left + s->stride_width - 1, s->stride_width), s->out_width);
    const int64_t end = last < 0 ? 0 : least(quotient(last, s->stride_width) + 1, s->out_width);
    t->inner_begin = begin;
    t->inner_end = greatest(begin, end);
}

// The number of columns from this one on that form one run.
MU_INLINE int64_t run_of(const strip *t, int64_t column)
{
    const bool inner = t->whole && column >= t->inner_begin && column < t->inner_end;
    return inner ? least(t->inner_end, t->end) - column : 1;
}

static inline int64_t image_size(const mu_pool_shape *s) { return s->height * s->width * s->channels; }

static inline int64_t result_size(const mu_pool_shape *s) { return s->out_height * s->out_width * s->channels; }

#endif
