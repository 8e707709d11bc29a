// Forward pass of an image network's first layer in one pass: convolution, bias, ReLU and 2x2 max pool. The four
// convolution results of one pooled pixel stay in registers, so the convolution's output (the largest tensor of a
// step) is never stored. The weights of one vector of output channels are packed first and padded with zeros, so that
// odd channel counts take the same path. The gradient is in conv_pool_grad.c.
#include "kernel_slots.h"
#include "simd.h"

enum { MAX_TAPS = 7 * 7 * 4 };

// The weights of one vector of output channels, padded with zeros.
typedef struct channel_block {
    mu_vf w[MAX_TAPS], b;
} channel_block;

static int64_t pooled(int64_t size, int64_t kernel) { return (size - kernel + 1) / 2; }

// Whether all elements of x are so small that no sum of MAX_TAPS products of two such numbers can overflow, so that
// no result can be NaN.
static bool all_tame(const float *x, int64_t n)
{
    int wild = 0;
    for (int64_t i = 0; i < n; i++)
        wild |= !(fabsf(x[i]) <= 1e15f);
    return !wild;
}

// Returns whether all elements of the block are that small.
static bool pack_block(const mu_conv_pool_shape *s, const float *w, const float *b, int64_t first, int64_t n,
                       channel_block *block)
{
    bool tame = true;
    block->b = (mu_vf){0};
    if (b != NULL) {
        block->b = v_load_n(b + first, n);
        tame = all_tame(b + first, n);
    }
    for (int64_t t = 0; t < s->kernel * s->kernel * s->in_channels; t++) {
        block->w[t] = v_load_n(w + t * s->out_channels + first, n);
        tame = tame && all_tame(w + t * s->out_channels + first, n);
    }
    return tame;
}

// The operands for one row of pooled pixels; y, mark (or NULL) and channels belong to one vector.
typedef struct pooled_row {
    const float *x;
    int64_t x_row; // elements between rows of x
    float *y;
    uint8_t *mark;
    int64_t y_step, n_pixels;
    int64_t channels; // at most MU_LANES
} pooled_row;

// Stores one pooled pixel from its four convolution results. fast: a whole vector of channels without NaN.
MU_INLINE void finish_pixel(const pooled_row *r, int64_t pixel, const mu_vf acc[4], mu_vf bias, bool fast)
{
    const int64_t at = pixel * r->y_step;
    mu_marks marks;
    const mu_vf best = fast ? v_relu_pool_numbers(acc, bias, &marks) : v_relu_pool(acc, bias, &marks);
    if (fast)
        v_store(r->y + at, best);
    else
        v_store_n(r->y + at, best, r->channels);
    if (r->mark != NULL && fast)
        marks_store(r->mark + at, marks);
    else if (r->mark != NULL)
        marks_store_n(r->mark + at, marks, r->channels);
}

// Any kernel size. A kernel row with its input channels is one run of kernel * in_channels contiguous elements.
MU_INLINE void forward_row(const pooled_row *r, const channel_block *block, int64_t kernel, int64_t in_channels,
                           bool fast)
{
    const int64_t run = kernel * in_channels;
    for (int64_t pixel = 0; pixel < r->n_pixels; pixel++) {
        mu_vf acc[4] = {{0}};
        for (int64_t k = 0; k < kernel; k++) {
            const float *upper = r->x + pixel * 2 * in_channels + k * r->x_row, *lower = upper + r->x_row;
            const mu_vf *w = block->w + k * run;
            for (int64_t t = 0; t < run; t++) {
                acc[0] += upper[t] * w[t];
                acc[1] += upper[t + in_channels] * w[t];
                acc[2] += lower[t] * w[t];
                acc[3] += lower[t + in_channels] * w[t];
            }
        }
        finish_pixel(r, pixel, acc, block->b, fast);
    }
}

// Where the kernel's size and the channels are known to the compiler, the results of GROUP pooled pixels stay in
// registers, and each input element is broadcast to a vector once for all of them.
enum { GROUP = MU_LANES == 16 ? 3 : 2 };

MU_INLINE void pixel_group(const pooled_row *r, int64_t pixel, const mu_vf *w, mu_vf bias, int kernel, int channels,
                           int n, bool fast)
{
    const float *x = r->x + 2 * pixel * channels;
    mu_vf acc[GROUP][4] = {{{0}}};
    MU_UNROLL for (int row = 0; row <= kernel; row++, x += r->x_row)
    {
        MU_UNROLL for (int column = 0; column < 2 * n + kernel - 1; column++)
        {
            MU_UNROLL for (int c = 0; c < channels; c++)
            {
                const mu_vf value = v_splat(x[column * channels + c]);
                MU_UNROLL for (int p = 0; p < 4 * n; p++)
                {
                    const int k = row - p % 4 / 2, l = column - 2 * (p / 4) - p % 2;
                    if (k >= 0 && k < kernel && l >= 0 && l < kernel)
                        acc[p / 4][p % 4] += value * w[(k * kernel + l) * channels + c];
                }
            }
        }
    }
    MU_UNROLL for (int i = 0; i < n; i++) finish_pixel(r, pixel + i, acc[i], bias, fast);
}

MU_INLINE void forward_row_of(const pooled_row *r, const mu_vf *w, mu_vf bias, int kernel, int channels, bool fast)
{
    int64_t pixel = 0;
    for (; pixel + GROUP <= r->n_pixels; pixel += GROUP)
        pixel_group(r, pixel, w, bias, kernel, channels, GROUP, fast);
    for (; pixel < r->n_pixels; pixel++)
        pixel_group(r, pixel, w, bias, kernel, channels, 1, fast);
}

// Separate functions, with a copy of the row that no store can alias: inlined into one function they would have too
// many live values for the registers.
#define ROW_FUNCTION(kernel, channels)                                                                             \
    static MU_OUTLINE void row_##kernel##x##channels(const pooled_row *row, const channel_block *block, bool fast) \
    {                                                                                                              \
        const pooled_row r = *row;                                                                                 \
        forward_row_of(&r, block->w, block->b, kernel, channels, fast);                                            \
    }
#define ROW_ENTRY(k, c) {.kernel = k, .in_channels = c, .row = row_##k##x##c},
// Gray and RGB pictures with the usual kernels; all others take forward_row.
#define KNOWN_LAYERS(X) \
    X(3, 1)             \
    X(5, 1)             \
    X(7, 1)             \
    X(3, 3)             \
    X(5, 3)

KNOWN_LAYERS(ROW_FUNCTION)

typedef struct known_layer {
    int64_t kernel, in_channels;
    void (*row)(const pooled_row *, const channel_block *, bool fast);
} known_layer;

static const known_layer known_layers[] = {KNOWN_LAYERS(ROW_ENTRY)};

static MU_OUTLINE void other_row(const pooled_row *row, const channel_block *block, int64_t kernel, int64_t in_channels,
                                 bool fast)
{
    const pooled_row r = *row;
    forward_row(&r, block, kernel, in_channels, fast);
}

// The layer of these sizes, or NULL.
static const known_layer *known_layer_of(const mu_conv_pool_shape *s)
{
    for (size_t i = 0; i < sizeof known_layers / sizeof *known_layers; i++)
        if (known_layers[i].kernel == s->kernel && known_layers[i].in_channels == s->in_channels)
            return &known_layers[i];
    return NULL;
}

static void forward_image(const mu_conv_pool_shape *s, const channel_block *block, pooled_row r, bool fast)
{
    const known_layer *known = known_layer_of(s);
    for (int64_t row = 0; row < pooled(s->height, s->kernel); row++) {
        if (known != NULL)
            known->row(&r, block, fast);
        else
            other_row(&r, block, s->kernel, s->in_channels, fast);
        r.x += 2 * r.x_row;
        r.y += r.n_pixels * r.y_step;
        r.mark = r.mark == NULL ? NULL : r.mark + r.n_pixels * r.y_step;
    }
}

void MU_KERNEL(conv_relu_pool)(const mu_conv_pool_shape *s, const float *x, const float *w, const float *b, float *y,
                               uint8_t *mark, int64_t begin, int64_t end)
{
    pooled_row r = {.x_row = s->width * s->in_channels, .y_step = s->out_channels};
    r.n_pixels = pooled(s->width, s->kernel);
    const int64_t x_size = s->height * r.x_row, y_size = pooled(s->height, s->kernel) * r.n_pixels * s->out_channels;
    channel_block block;
    for (int64_t first = 0; first < s->out_channels; first += MU_LANES) {
        r.channels = least(s->out_channels - first, MU_LANES);
        const bool fast = pack_block(s, w, b, first, r.channels, &block) && r.channels == MU_LANES;
        for (int64_t i = begin; i < end; i++) {
            r.x = x + i * x_size;
            r.y = y + i * y_size + first;
            r.mark = mark == NULL ? NULL : mark + i * y_size + first;
            forward_image(s, &block, r, fast && all_tame(r.x, x_size));
        }
    }
}
