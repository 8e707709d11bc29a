// Bilinear sampling of images and its gradient for one float type T, named by FN; resize.c includes it once per type.
//
// Works in two steps, along a row and then between two rows, so that an image row that several output rows use is
// sampled once, and the second step is one long loop. Images that shrink to half or less are sampled in one step,
// because no row is used twice and the temporary rows would only cost memory traffic.

MU_PER_ISA(FN(sample_row), (const T *from, T *restrict to, const position *columns, int64_t n, int64_t c),
           (from, to, columns, n, c))
{
    for (int64_t o = 0; o < n; o++, to += c) {
        const T *left = from + columns[o].low * c, *right = from + columns[o].high * c;
        const T part = (T)columns[o].part;
        int64_t i = 0;
        for (; i + CHANNELS <= c; i += CHANNELS)
            for (int64_t lane = i; lane < i + CHANNELS; lane++)
                to[lane] = left[lane] + (right[lane] - left[lane]) * part;
        for (; i < c; i++)
            to[i] = left[i] + (right[i] - left[i]) * part;
    }
}

MU_PER_ISA(FN(between), (const T *top, const T *bottom, T part, T *restrict to, int64_t n), (top, bottom, part, to, n))
{
    for (int64_t i = 0; i < n; i++)
        to[i] = top[i] + (bottom[i] - top[i]) * part;
}

// Both steps at once, with the same rounding.
MU_PER_ISA(FN(sample_between),
           (const T *top, const T *bottom, T part, T *restrict to, const position *columns, int64_t n, int64_t c),
           (top, bottom, part, to, columns, n, c))
{
    for (int64_t o = 0; o < n; o++, to += c) {
        const int64_t left = columns[o].low * c, right = columns[o].high * c;
        const T along = (T)columns[o].part;
        for (int64_t i = 0; i < c; i++) {
            const T above = top[left + i] + (top[right + i] - top[left + i]) * along;
            const T below = bottom[left + i] + (bottom[right + i] - bottom[left + i]) * along;
            to[i] = above + (below - above) * part;
        }
    }
}

// Rows [begin, end) of all results, counted over the batch. scratch: two output rows.
static void FN(sample_rows)(const resize_job *j, int64_t begin, int64_t end, void *scratch)
{
    const int64_t c = j->channels, wide = j->out_width * c;
    const T *image = j->image;
    T *rows[2] = {scratch, (T *)scratch + wide};
    int64_t held[2] = {-1, -1}; // numbers of the image rows, over the batch, that `rows` holds
    for (int64_t row = begin; row < end; row++) {
        const position *y = &j->rows[row % j->out_height];
        const int64_t first = row / j->out_height * j->height, wanted[2] = {first + y->low, first + y->high};
        if (j->height >= 2 * j->out_height) {
            FN(sample_between)
            (image + wanted[0] * j->width * c, image + wanted[1] * j->width * c, (T)y->part,
             (T *)j->result + row * wide, j->columns, j->out_width, c);
            continue;
        }
        if (held[1] == wanted[0]) {
            T *const other = rows[0];
            rows[0] = rows[1];
            rows[1] = other;
            held[1] = held[0];
            held[0] = wanted[0];
        }
        for (int i = 0; i < 2; i++)
            if (held[i] != wanted[i]) {
                FN(sample_row)(image + wanted[i] * j->width * c, rows[i], j->columns, j->out_width, c);
                held[i] = wanted[i];
            }
        FN(between)(rows[0], rows[1], (T)y->part, (T *)j->result + row * wide, wide);
    }
}

MU_PER_ISA(FN(spread_row), (const T *from, T *to, const position *columns, int64_t n, int64_t c),
           (from, to, columns, n, c))
{
    for (int64_t o = 0; o < n; o++, from += c) {
        T *left = to + columns[o].low * c, *right = to + columns[o].high * c;
        const T part = (T)columns[o].part;
        for (int64_t i = 0; i < c; i++)
            left[i] += from[i] - from[i] * part;
        for (int64_t i = 0; i < c; i++)
            right[i] += from[i] * part;
    }
}

MU_PER_ISA(FN(add_part), (const T *from, T part, T *to, int64_t n), (from, part, to, n))
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i] * part;
}

// Images [begin, end): every output element adds to the four pixels it was sampled from. scratch: one image row.
static void FN(spread_images)(const resize_job *j, int64_t begin, int64_t end, void *scratch)
{
    const int64_t c = j->channels, wide = j->width * c;
    T *across = scratch;
    memset((T *)j->image + begin * j->height * wide, 0, (size_t)((end - begin) * j->height * wide) * sizeof(T));
    for (int64_t row = begin * j->out_height; row < end * j->out_height; row++) {
        const position *y = &j->rows[row % j->out_height];
        T *image = (T *)j->image + row / j->out_height * j->height * wide;
        memset(across, 0, (size_t)wide * sizeof *across);
        FN(spread_row)((const T *)j->result + row * j->out_width * c, across, j->columns, j->out_width, c);
        FN(add_part)(across, 1 - (T)y->part, image + y->low * wide, wide);
        FN(add_part)(across, (T)y->part, image + y->high * wide, wide);
    }
}

#undef T
#undef FN
