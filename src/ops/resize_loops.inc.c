// Bilinear samples of images and their gradient for one float type T, named by FN; resize.c includes it for each.

// Rows [begin, end) of all results, counted over the batch.
static void FN(sample_rows)(const resize_job *j, int64_t begin, int64_t end)
{
    const int64_t c = j->channels;
    for (int64_t row = begin; row < end; row++) {
        const place *y = &j->rows[row % j->out_height];
        const T *image = (const T *)j->image + row / j->out_height * j->height * j->width * c;
        const T *upper = image + y->low * j->width * c, *lower = image + y->high * j->width * c;
        T *to = (T *)j->result + row * j->out_width * c;
        for (int64_t ox = 0; ox < j->out_width; ox++, to += c) {
            const place *x = &j->columns[ox];
            const int64_t left = x->low * c, right = x->high * c;
            for (int64_t i = 0; i < c; i++) {
                const T top = upper[left + i] + (upper[right + i] - upper[left + i]) * (T)x->part;
                const T bottom = lower[left + i] + (lower[right + i] - lower[left + i]) * (T)x->part;
                to[i] = top + (bottom - top) * (T)y->part;
            }
        }
    }
}

// Images [begin, end): every result element adds to the four pixels that it came from.
static void FN(spread_images)(const resize_job *j, int64_t begin, int64_t end)
{
    const int64_t c = j->channels, size = j->height * j->width * c;
    const T *from = (const T *)j->result + begin * j->out_height * j->out_width * c;
    T *image = (T *)j->image + begin * size;
    memset(image, 0, (size_t)((end - begin) * size) * sizeof *image);
    for (int64_t n = begin; n < end; n++, image += size)
        for (int64_t oy = 0; oy < j->out_height; oy++) {
            const place *y = &j->rows[oy];
            T *upper = image + y->low * j->width * c, *lower = image + y->high * j->width * c;
            for (int64_t ox = 0; ox < j->out_width; ox++, from += c) {
                const place *x = &j->columns[ox];
                const int64_t left = x->low * c, right = x->high * c;
                for (int64_t i = 0; i < c; i++) {
                    const T bottom = from[i] * (T)y->part, top = from[i] - bottom;
                    const T top_right = top * (T)x->part, bottom_right = bottom * (T)x->part;
                    upper[left + i] += top - top_right;
                    upper[right + i] += top_right;
                    lower[left + i] += bottom - bottom_right;
                    lower[right + i] += bottom_right;
                }
            }
        }
}

#undef T
#undef FN
