// argmax and argmin for one element type; included by argmax.c once per type.
//
// T: the element type; K: the type compared; KEY(x, smallest): the key of an element; BEATS(a, b, smallest): compares
// two numbers; ODD(x): whether a key is NaN; NONE: a NaN key; P: a signed integer of K's size; FN(name);
// MINMAX(smallest, x, n): optional, the extreme of a row. Columns are folded eight rows at a time. Only the number of
// the group of eight is tracked; the row within the group is found at the end.

enum {
    FN(RUN) = sizeof(P) == 1   ? 1 << 6
              : sizeof(P) == 2 ? 1 << 14
                               : 1 << 24, // groups of eight that P can count
};

// The first NaN beats all numbers.
#define WINS(a, b, smallest) ((BEATS(a, b, smallest) | ODD(a)) & !ODD(b))
#define SAME(a, wanted)      (ODD(wanted) ? ODD(a) : (a) == (wanted))

// Folds `rows` rows into the best keys so far of some columns, and into the numbers of the groups that contain them.
REDUCE_INLINE void FN(update)(int rows, int64_t lanes, const T *x, int64_t stride, K *best, P *eights, P eight,
                              bool smallest)
{
    MU_INDEPENDENT
    for (int64_t lane = 0; lane < lanes; lane++) {
        K most = KEY(x[lane], smallest);
        bool odd = ODD(most);
        for (int k = 1; k < rows; k++) {
            const K here = KEY(x[k * stride + lane], smallest);
            odd |= ODD(here);
            most = BEATS(here, most, smallest) ? here : most;
        }
        const K old = best[lane];
        const bool wins = (BEATS(most, old, smallest) | odd) & !ODD(old);
        most = odd ? NONE : most;
        best[lane] = wins ? most : old;
        eights[lane] = wins ? eight : eights[lane];
    }
}

// Index of the first of up to n elements, `stride` apart, whose key equals `wanted`.
REDUCE_INLINE int64_t FN(first_of)(K wanted, const T *x, int64_t n, int64_t stride, bool smallest)
{
    for (int64_t i = 0; i < n; i++) {
        const K here = KEY(x[i * stride], smallest);
        if (SAME(here, wanted))
            return i;
    }
    return 0;
}

// For `width` adjacent columns.
REDUCE_INLINE void FN(positions_below)(const T *x, int64_t n, int64_t stride, int64_t width, int64_t *positions,
                                       bool smallest)
{
    K best[MU_FOLD_BYTES / sizeof(T)];
    P eights[MU_FOLD_BYTES / sizeof(T)];
    for (int64_t j = 0; j < width; j++) {
        best[j] = KEY(x[j], smallest);
        positions[j] = 0;
    }
    for (int64_t start = 0; start < n; start += 8 * (int64_t)FN(RUN)) {
        const int64_t end = MU_MIN(n, start + 8 * (int64_t)FN(RUN));
        int64_t i = start;
        memset(eights, -1, (size_t)width * sizeof eights[0]);
        for (; i + 8 <= end; i += 8)
            FN(update)(8, width, x + i * stride, stride, best, eights, (P)((i - start) / 8), smallest);
        for (; i < end; i++)
            FN(update)(1, width, x + i * stride, stride, best, eights, (P)((i - start) / 8), smallest);
        for (int64_t j = 0; j < width; j++)
            positions[j] = eights[j] >= 0 ? start + 8 * (int64_t)eights[j] : positions[j];
    }
    for (int64_t j = 0; j < width; j++)
        positions[j] +=
            FN(first_of)(best[j], x + positions[j] * stride + j, MU_MIN(8, n - positions[j]), stride, smallest);
}

// Index of the first occurrence of the extreme in a row: finds the block, then the element.
REDUCE_INLINE int64_t FN(first_in_row)(K extreme, const T *x, int64_t n, bool smallest)
{
    enum { BLOCK = 64 };
    int64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK) {
        P found = 0;
        for (int lane = 0; lane < BLOCK; lane++) {
            const K here = KEY(x[at + lane], smallest);
            found |= ((here == extreme) | ODD(here)) ? (P)-1 : 0;
        }
        if (found)
            break;
    }
    return at + FN(first_of)(extreme, x + at, n - at, 1, smallest);
}

#ifndef MINMAX
#define MINMAX FN(minmax_along)
REDUCE_INLINE T FN(minmax_along)(bool smallest, const T *x, int64_t n)
{
    T best = x[0];
    for (int64_t i = 0; i < n; i++) // from 0 on, for whole vectors
        best = BEATS(KEY(x[i], smallest), KEY(best, smallest), smallest) ? x[i] : best;
    return best;
}
#endif

// For one row: finds the block that has the extreme, then its index there.
REDUCE_INLINE int64_t FN(position_along)(const T *x, int64_t n, bool smallest)
{
    enum { PIECE = 16384 / sizeof(T) };
    K most = KEY(x[0], smallest);
    int64_t position = 0;
    for (int64_t i = 0; i < n; i += PIECE) {
        const K here = KEY(MINMAX(smallest, x + i, MU_MIN(n - i, (int64_t)PIECE)), smallest);
        if (WINS(here, most, smallest)) {
            most = here;
            position = i;
        }
    }
    return position + FN(first_in_row)(most, x + position, n - position, smallest);
}

MU_PER_ISA(FN(positions_of_columns),
           (int variant, const void *from, int64_t n, int64_t stride, int64_t width, int64_t *positions),
           (variant, from, n, stride, width, positions))
{
    if (variant == ARGMIN)
        FN(positions_below)(from, n, stride, width, positions, true);
    else
        FN(positions_below)(from, n, stride, width, positions, false);
}

MU_PER_ISA_RESULT(int64_t, FN(position_in_row), (int variant, const void *from, int64_t n), (variant, from, n))
{
    return variant == ARGMIN ? FN(position_along)(from, n, true) : FN(position_along)(from, n, false);
}

#undef WINS
#undef SAME
#undef T
#undef K
#undef P
#undef KEY
#undef BEATS
#undef ODD
#undef NONE
#undef MINMAX
#undef FN
