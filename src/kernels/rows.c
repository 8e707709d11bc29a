// Kernels on matrices of rows: bias and ReLU, their gradients, softmax cross-entropy, argmax. Rows are short
// (classes, channels), so a row's tail is loaded as one padded vector instead of being left to a scalar loop. The
// exponential is written out here because libm's is not vectorised.
#include "kernel_slots.h"
#include "simd.h"

// Explicit vectors, because y may be x, and a compiler would have to expect any overlap.
static void bias_relu_row(const float *x, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += MU_LANES) {
        const int64_t left = least(n - i, MU_LANES);
        mu_vf sum = v_load_n(x + i, left);
        if (b != NULL)
            sum += v_load_n(b + i, left);
        v_store_n(y + i, v_max((mu_vf){0}, sum), left);
    }
}

void MU_KERNEL(bias_relu)(const float *x, const float *b, float *y, int64_t channels, int64_t begin, int64_t end)
{
    if (b == NULL)
        bias_relu_row(x + begin * channels, NULL, y + begin * channels, (end - begin) * channels);
    else
        for (int64_t row = begin; row < end; row++)
            bias_relu_row(x + row * channels, b, y + row * channels, channels);
}

void MU_KERNEL(relu_grad)(const float *y, const float *dy, float *dx, int64_t begin, int64_t end)
{
    // Explicit vectors, because a compiler would load dy only where y > 0, and so wait for y before it loads dy.
    int64_t i = begin;
    for (; i + MU_LANES <= end; i += MU_LANES)
        v_store(dx + i, v_keep(v_greater(v_load(y + i), (mu_vf){0}), v_load(dy + i)));
    if (i < end)
        v_store_n(dx + i, v_keep(v_greater(v_load_n(y + i, end - i), (mu_vf){0}), v_load_n(dy + i, end - i)), end - i);
}

// Adds rows to sums: several rows each time that a sum is loaded and stored.
static void add_rows(const float *restrict x, float *restrict sums, int64_t rows, int64_t columns)
{
    enum { TOGETHER = 8 };
    int64_t row = 0;
    for (; row + TOGETHER <= rows; row += TOGETHER) {
        const float *r = x + row * columns;
        for (int64_t i = 0; i < columns; i += MU_LANES) {
            const int64_t left = least(columns - i, MU_LANES);
            mu_vf of[TOGETHER];
            MU_UNROLL
            for (int k = 0; k < TOGETHER; k++)
                of[k] = v_load_n(r + k * columns + i, left);
            of[0] = ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
            v_store_n(sums + i, v_load_n(sums + i, left) + of[0], left);
        }
    }
    for (; row < rows; row++)
        for (int64_t i = 0; i < columns; i++)
            sums[i] += x[row * columns + i];
}

enum { PANEL = 8, PANEL_COLUMNS = PANEL * MU_LANES };

// Adds rows of `vectors` vectors to sums, reading in order. The last two vectors may overlap; the shared columns get
// the same sums in both.
MU_INLINE void add_panel(const float *x, float *sums, int64_t rows, int64_t columns, int vectors)
{
    enum { BLOCK = 256 }; // rows summed before the result is added to the total, for accuracy
    const int64_t last = columns - MU_LANES;
    for (int64_t begin = 0; begin < rows; begin += BLOCK) {
        const int64_t end = least(begin + BLOCK, rows);
        mu_vf totals[PANEL] = {{0}};
        for (int64_t row = begin; row < end; row++) {
            const float *r = x + row * columns;
            MU_UNROLL
            for (int k = 0; k < vectors; k++)
                totals[k] += v_load(r + least(k * MU_LANES, last));
        }
        MU_UNROLL
        for (int k = 0; k < vectors; k++)
            totals[k] += v_load(sums + least(k * MU_LANES, last));
        MU_UNROLL
        for (int k = 0; k < vectors; k++)
            v_store(sums + least(k * MU_LANES, last), totals[k]);
    }
}

// For rows of more than half a panel and at most one panel of columns.
static void add_narrow_rows(const float *x, float *sums, int64_t rows, int64_t columns)
{
    switch ((columns + MU_LANES - 1) / MU_LANES) {
    case 5: add_panel(x, sums, rows, columns, 5); break;
    case 6: add_panel(x, sums, rows, columns, 6); break;
    case 7: add_panel(x, sums, rows, columns, 7); break;
    default: add_panel(x, sums, rows, columns, 8);
    }
}

// Few channels: treats several rows as one, as many as fill a panel.
void MU_KERNEL(bias_grad)(const float *dy, float *db, int64_t channels, int64_t begin, int64_t end)
{
    const int64_t rows = end - begin, as_one = channels > 0 ? PANEL_COLUMNS / channels : 0;
    const int64_t wide = as_one > 0 ? rows / as_one : 0, done = wide * as_one;
    float sums[PANEL_COLUMNS] = {0};
    memset(db, 0, (size_t)channels * sizeof *db);
    if (wide > 0)
        add_narrow_rows(dy + begin * channels, sums, wide, as_one * channels);
    for (int64_t i = 0; wide > 0 && i < as_one; i++)
        for (int64_t c = 0; c < channels; c++)
            db[c] += sums[i * channels + c];
    add_rows(dy + (begin + done) * channels, db, rows - done, channels);
}

// e^x within 2 ulp for x <= 0; 0 below the smallest normal number. Range reduction by powers of two (Cody and Waite),
// then a polynomial fitted to the relative error on |r| <= ln(2)/2.
MU_INLINE mu_vf v_exp_nonpositive(mu_vf x)
{
    const float round_magic = 12582912.0f; // 1.5 * 2^23: adding it puts the nearest integer into the low bits
    const mu_vf lowest = v_splat(-87.0f);
    const mu_vm tiny = v_greater(lowest, x);
    const mu_vf clamped = v_select(tiny, lowest, x);
    const mu_vf shifted = clamped * 1.44269504f + round_magic;
    const mu_vf n = shifted - round_magic;
    const mu_vf r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
    mu_vf e = r * 0.0013950723223388195f + 0.008369024842977524f;
    e = e * r + 0.04166620224714279f;
    e = e * r + 0.166665181517601f;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    const mu_vi power = ((mu_vi)shifted << 23) + v_splat_int(127 << 23);
    return v_keep(m_not(tiny), e * (mu_vf)power);
}

static float row_max(const float *x, int64_t n)
{
    enum { WIDE = 4 }; // accumulators side by side, so that none waits for the others
    mu_vf best[WIDE];
    int64_t i = 0;
    for (int k = 0; k < WIDE; k++)
        best[k] = v_splat(-INFINITY);
    for (; i + WIDE * MU_LANES <= n; i += WIDE * MU_LANES) {
        MU_UNROLL
        for (int k = 0; k < WIDE; k++)
            best[k] = v_max(v_load(x + i + k * MU_LANES), best[k]);
    }
    for (; i < n; i += MU_LANES)
        best[0] = v_max(v_load_padded(x + i, least(n - i, MU_LANES), -INFINITY), best[0]);
    return v_most_of_lanes(v_max(v_max(best[0], best[1]), v_max(best[2], best[3])));
}

// Writes exp(x - max) to e if e is not NULL, and returns the sum, in an order that depends on n only.
static float exp_row(const float *x, float max, float *e, int64_t n)
{
    mu_vf sums = {0};
    for (int64_t i = 0; i < n; i += MU_LANES) {
        const int64_t left = least(n - i, MU_LANES);
        const mu_vf term = v_exp_nonpositive(v_load_padded(x + i, left, -INFINITY) - max);
        v_prefetch(x + i, n * (int64_t)sizeof *x); // the next row
        sums += term;
        if (e != NULL)
            v_store_n(e + i, term, left);
    }
    return v_sum_of_lanes(sums);
}

static void divide_row(float *x, float divisor, int64_t n)
{
    const float inverse = 1 / divisor;
    for (int64_t i = 0; i < n; i += MU_LANES) {
        const int64_t left = least(n - i, MU_LANES);
        v_store_n(x + i, v_load_n(x + i, left) * inverse, left);
    }
}

static void subtract_row(const float *x, float max, float offset, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += MU_LANES) {
        const int64_t left = least(n - i, MU_LANES);
        v_store_n(y + i, (v_load_n(x + i, left) - v_splat(max)) - v_splat(offset), left);
    }
}

void MU_KERNEL(softmax)(const float *x, float *y, int64_t columns, bool logarithm, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns;
        const float max = row_max(from, columns), sum = exp_row(from, max, logarithm ? NULL : to, columns);
        if (logarithm)
            subtract_row(from, max, logf(sum), to, columns);
        else
            divide_row(to, sum, columns);
    }
}

float MU_KERNEL(softmax_row)(const float *x, float *e, int64_t columns, float *max)
{
    *max = row_max(x, columns);
    return exp_row(x, *max, e, columns);
}

static int64_t label_at(const void *labels, int label_bytes, int64_t row)
{
    if (label_bytes == 1)
        return ((const uint8_t *)labels)[row];
    return label_bytes == 4 ? ((const int32_t *)labels)[row] : ((const int64_t *)labels)[row];
}

static void fill(float *x, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

int64_t MU_KERNEL(softmax_xent)(const float *logits, const void *labels, int label_bytes, float *loss, float *dlogits,
                                int64_t classes, int64_t begin, int64_t end)
{
    int64_t first_bad = -1;
    for (int64_t row = begin; row < end; row++) {
        const float *x = logits + row * classes;
        float *dx = dlogits == NULL ? NULL : dlogits + row * classes;
        const int64_t label = label_at(labels, label_bytes, row);
        const bool bad = label < 0 || label >= classes;
        const float max = row_max(x, classes), at_label = bad ? NAN : x[label];
        const float sum = exp_row(x, max, dx, classes);
        if (loss != NULL)
            loss[row] = logf(sum) + (max - at_label);
        if (dx != NULL && bad)
            fill(dx, NAN, classes);
        if (dx != NULL && !bad) {
            divide_row(dx, sum, classes);
            dx[label] -= 1;
        }
        if (bad && first_bad < 0)
            first_bad = row;
    }
    return first_bad;
}

void MU_KERNEL(argmax)(const float *x, int64_t *index, int64_t columns, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *from = x + row * columns;
        const float best = row_max(from, columns);
        int64_t at = 0;
        while (at < columns && !(from[at] == best))
            at++;
        index[row] = at < columns ? at : 0;
    }
}
