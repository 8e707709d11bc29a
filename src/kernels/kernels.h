// Hand-written CPU kernels for what oneDNN lacks or is slow at: fused first layers, pooling, element-wise ops,
// optimizer updates, reductions between replicas, matrix products of float64 and integers. Each instruction set has
// one table of function pointers; the same C sources are compiled once for each table, and the process picks the best
// table once. Kernels take raw pointers only: they know no tensors, graphs, threads or settings, and they never
// allocate, fail or keep state.
#ifndef MU_SRC_KERNELS_H
#define MU_SRC_KERNELS_H

#include "kernels/math/elementary.h"

#include <stddef.h>

// Rules for every kernel:
// - Tensors are dense, row-major, NHWC. Any size is valid, zero included. Threads share one call's work by cutting
// the first axis into ranges [begin, end) of images, rows or elements ("Range" below). Pointers always point to the
// whole tensor, never to the part.
// - No alignment is assumed beyond that of the element type.
// - Outputs must not overlap inputs unless the kernel's comment says that they may be the same pointer.
// - Outputs are overwritten. Sums over the batch (gradients of weights and biases) cover [begin, end) only: each
// caller passes its own buffer and adds the partial sums in an order that it chooses.
// - The order of summation depends on the shapes, the range and the table, never on time or alignment: the same call
// gives the same bits. Results of different tables may differ in the last bits.

// Mark for a 2x2 max pool with ReLU: 0..3 names the element of the window (row by row) that receives the gradient;
// MU_MARK_DEAD means that none does.
enum { MU_MARK_DEAD = 4 };

// Shape of a convolution (stride 1, no padding) followed by ReLU and a 2x2 max pool of stride 2. The pooled image is
// [(height-kernel+1)/2, (width-kernel+1)/2, out_channels]; an odd last row or column of the convolution's result is
// dropped.
typedef struct mu_conv_pool_shape {
    int64_t height, width; // of x
    int64_t in_channels;   // 1..4
    int64_t out_channels;  // multiples of 16 are fast
    int64_t kernel;        // 1..7, square, at most height and width
} mu_conv_pool_shape;

// Shape of a pool over [N, height, width, channels] -> [N, out_height, out_width, channels].
// Padding counts as absent: it is never the maximum and never part of an average.
typedef struct mu_pool_shape {
    int64_t height, width, channels;
    int64_t out_height, out_width;
    int64_t window_height, window_width; // at most 256 elements together
    int64_t stride_height, stride_width;
    int64_t pad_top, pad_left; // zeros before the image; the padding after it follows from the output size
} mu_pool_shape;

// Adam as in Keras: alpha = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t). rest_1 and rest_2 are 1 - beta_1 and
// 1 - beta_2, subtracted in float64, because in float32 1 - 0.999 has a relative error of 1.3e-5.
typedef struct mu_adam_scalars {
    float alpha, rest_1, rest_2, epsilon;
} mu_adam_scalars;

typedef struct mu_sgd_scalars {
    float learning_rate, momentum;
    bool nesterov;
} mu_sgd_scalars;

// Number of windows of an image that conv_relu_pool_grads processes at a time.
#define MU_DEEP_WINDOWS 64

static inline size_t mu__deep_scratch_bytes(const mu_conv_pool_shape *shape)
{
    const int64_t patch = shape->kernel * shape->kernel * shape->in_channels;
    return (size_t)(shape->out_channels * (2 * patch * 4 + MU_DEEP_WINDOWS * 8 + 8));
}

// Scratch size in 64-bit words: room for two copies of a row padded to a power of two of vectors, or of as many short
// rows as a vector has lanes.
static inline int64_t mu__sort_scratch(int64_t columns) { return 4 * columns + 2 * 8 * 128; }

// A matrix product c [rows, columns] = a [rows, depth] b [depth, columns]; the strides of a and b are in elements.
typedef struct mu_product_shape {
    int64_t rows, columns, depth; // depth at least 1
    int64_t a_row, a_column;
    int64_t b_row, b_column;
} mu_product_shape;

// Bytes of one block of b, which stays in the second-level cache, and of the whole scratch, which also holds rows of
// a.
enum { MU_PRODUCT_BLOCK = 480 << 10, MU_PRODUCT_SCRATCH = 512 << 10 };

typedef enum mu_bitwise { MU_BITWISE_AND, MU_BITWISE_OR, MU_BITWISE_XOR } mu_bitwise;
typedef enum mu_fold { MU_FOLD_SUM, MU_FOLD_PRODUCT, MU_FOLD_GREATEST, MU_FOLD_LEAST } mu_fold;

typedef struct mu_kernels {
    const char *isa; // "avx512", "avx2" or "base"

    // conv_relu_pool: y = max_pool2x2(relu(conv2d(x, w) + b)), and the marks for the gradient. x: [N, height, width,
    // in_channels]; w: [kernel, kernel, in_channels, out_channels]; b: [out_channels] or NULL; y, mark: [N, pooled
    // height, pooled width, out_channels]; mark may be NULL (inference). A NaN in a window makes y NaN and the mark
    // MU_MARK_DEAD, as in ReLU's gradient. Range: images.
    void (*conv_relu_pool)(const mu_conv_pool_shape *shape, const float *x, const float *w, const float *b, float *y,
                           uint8_t *mark, int64_t begin, int64_t end);

    // conv_relu_pool_grad: dw [kernel, kernel, in_channels, out_channels] and db [out_channels] (or NULL) from dy,
    // the gradient of conv_relu_pool's y. Computes no dx: this kernel is for a first layer. Range: images; dw and db
    // are sums over the range.
    void (*conv_relu_pool_grad)(const mu_conv_pool_shape *shape, const float *x, const float *dy, const uint8_t *mark,
                                float *dw, float *db, int64_t begin, int64_t end);

    // conv_relu_pool_grads: also computes dx [N, height, width, in_channels], for layers that are not the first. Here
    // in_channels must be a multiple of 16. w: as above; db may not be NULL; scratch: mu__deep_scratch_bytes(shape)
    // bytes, aligned to 8. Range: images; dw and db are sums over the range.
    void (*conv_relu_pool_grads)(const mu_conv_pool_shape *shape, const float *x, const float *w, const float *dy,
                                 const uint8_t *mark, float *dw, float *db, float *dx, void *scratch, int64_t begin,
                                 int64_t end);

    // relu_pool: y = max_pool2x2(relu(x + b)) with stride 2 and no padding, and mark (or NULL). x: [N, height, width,
    // channels]; b: [channels] or NULL; y, mark: [N, height/2, width/2, channels]. Ties are decided before b is
    // added. Range: images.
    void (*relu_pool)(const float *x, const float *b, float *y, uint8_t *mark, int64_t height, int64_t width,
                      int64_t channels, int64_t begin, int64_t end);

    // relu_pool_grad: dx [N, height, width, channels] from dy [N, height/2, width/2, channels]; writes each element
    // of dx once, zeros included. db [channels] (or NULL) is the bias gradient summed over the range: summing dy here
    // reads a quarter of what summing dx would. Range: images.
    void (*relu_pool_grad)(const float *dy, const uint8_t *mark, float *dx, float *db, int64_t height, int64_t width,
                           int64_t channels, int64_t begin, int64_t end);

    // max_pool: y, and mark (or NULL): the index of the maximum in its window, row by row. The first maximum wins; a
    // NaN counts as greater than all numbers. A window wholly in the padding gives -infinity. Range: images.
    void (*max_pool)(const mu_pool_shape *shape, const float *x, float *y, uint8_t *mark, int64_t begin, int64_t end);

    // max_pool_grad: dx [N, height, width, channels] from dy and mark. Range: images.
    void (*max_pool_grad)(const mu_pool_shape *shape, const float *dy, const uint8_t *mark, float *dx, int64_t begin,
                          int64_t end);

    // average_pool: the mean over the part of each window that is not padding; 0 if the whole window is padding.
    // Range: images.
    void (*average_pool)(const mu_pool_shape *shape, const float *x, float *y, int64_t begin, int64_t end);

    // average_pool_grad: dx [N, height, width, channels] from dy. Range: images.
    void (*average_pool_grad)(const mu_pool_shape *shape, const float *dy, float *dx, int64_t begin, int64_t end);

    // bias_relu: y = max(x + b, 0) over [rows, channels]; NaN stays NaN. b: [channels] or NULL (plain
    // ReLU). y may be x. Range: rows.
    void (*bias_relu)(const float *x, const float *b, float *y, int64_t channels, int64_t begin, int64_t end);

    // relu_grad: dx = y > 0 ? dy : 0, where y is ReLU's output (or input). dx may be dy or y. Range: elements.
    void (*relu_grad)(const float *y, const float *dy, float *dx, int64_t begin, int64_t end);

    // bias_grad: db [channels]: column sums of dy [rows, channels]. Range: rows; db is the sum over the range.
    void (*bias_grad)(const float *dy, float *db, int64_t channels, int64_t begin, int64_t end);

    // softmax_xent: sparse softmax cross-entropy. logits: [rows, classes], classes at least 1; labels: [rows],
    // integers of label_bytes 1 (unsigned), 4 or 8 (signed); loss: [rows] or NULL; dlogits: [rows, classes] = softmax
    // - one-hot, or NULL; may be logits. Returns the first row whose label is outside 0..classes-1, or -1; rows with
    // such labels get NaN. Range: rows.
    int64_t (*softmax_xent)(const float *logits, const void *labels, int label_bytes, float *loss, float *dlogits,
                            int64_t classes, int64_t begin, int64_t end);

    // softmax: y = exp(x - m) / sum(exp(x - m)), or its logarithm, over each row of x [rows, columns], where m is the
    // row's maximum; columns at least 1. A NaN makes its whole row NaN. y may be x. Range: rows.
    void (*softmax)(const float *x, float *y, int64_t columns, bool logarithm, int64_t begin, int64_t end);

    // softmax_f64: softmax of float64.
    void (*softmax_f64)(const double *x, double *y, int64_t columns, bool logarithm, int64_t begin, int64_t end);

    // softmax_row: e = exp(x - max) of one row; returns the sum of e. max is the row's maximum. e may be x.
    float (*softmax_row)(const float *x, float *e, int64_t columns, float *max);

    // normalize_row: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta of one row of at least 1 column. If not
    // `centered`, the mean counts as 0. gamma, beta: [columns] or NULL. y may be x.
    void (*normalize_row)(const float *x, const float *gamma, const float *beta, float *y, int64_t columns,
                          bool centered, double epsilon);

    // normalize_row_grad: dx of normalize_row from dy; adds the row's terms to dgamma and dbeta [columns]. gamma may
    // be NULL.
    void (*normalize_row_grad)(const float *x, const float *gamma, const float *dy, float *dx, float *dgamma,
                               float *dbeta, int64_t columns, bool centered, double epsilon);

    // column_sums: sums [columns] down x [rows, columns]: of x if center is NULL; of (x - center)^2 with center
    // [columns]; of (x - center) * dy if dy [rows, columns] is given too.
    void (*column_sums)(const float *x, const float *dy, const float *center, double *sums, int64_t rows,
                        int64_t columns);

    // affine_columns: y = (x - center) * factor + shift over [rows, columns]; center, factor, shift: [columns]. y may
    // be x. Range: rows.
    void (*affine_columns)(const float *x, const float *center, const float *factor, const float *shift, float *y,
                           int64_t columns, int64_t begin, int64_t end);

    // mixed_columns: dx = dy * factor + (x - center) * along + shift, with the same shapes. Range: rows.
    void (*mixed_columns)(const float *x, const float *dy, const float *center, const float *along, const float *factor,
                          const float *shift, float *dx, int64_t columns, int64_t begin, int64_t end);

    // argmax: index [rows] of the greatest element of each row of x [rows, columns]. Ties go to the lowest index; a
    // NaN never wins (0 if a row has only NaNs). Range: rows.
    void (*argmax)(const float *x, int64_t *index, int64_t columns, int64_t begin, int64_t end);

    // adam: m += (grad - m) * rest_1; v += (grad^2 - v) * rest_2;
    // param -= alpha * m / (sqrt(v) + epsilon). Range: elements.
    void (*adam)(float *param, float *m, float *v, const float *grad, mu_adam_scalars s, int64_t begin, int64_t end);

    // sgd: if velocity is NULL, param -= learning_rate * grad. Otherwise velocity = momentum * velocity -
    // learning_rate * grad and param += velocity, or with nesterov param += momentum * velocity - learning_rate *
    // grad. Range: elements.
    void (*sgd)(float *param, float *velocity, const float *grad, mu_sgd_scalars s, int64_t begin, int64_t end);

    // reduce_n: an all-reduce on one slice: computes scale * (src[0] + src[1] + ... in this order) and writes it to
    // every dst[i]. scale 1 is exact. Any dst[i] may be any src[k] (same elements, no shift); n_dst and n_src at
    // least 1. stream: stores bypass the caches where alignment allows, for slices that would leave the cache before
    // their next reader. Range: elements.
    void (*reduce_n)(float *const *dst, int n_dst, const float *const *src, int n_src, float scale, bool stream,
                     int64_t begin, int64_t end);

    // transpose: the transpose of a matrix with elements of 1, 2, 4 or 8 bytes: out [rows, columns] with out[i][j] =
    // in[i + j * stride], stride in elements. Range: rows of out.
    void (*transpose)(const void *in, int64_t stride, void *out, int64_t columns, int bytes, int64_t begin,
                      int64_t end);

    // product_f64, product_i32, product_i64: c [rows, columns] of a mu_product_shape. scratch: MU_PRODUCT_SCRATCH
    // bytes, aligned to 64. Range: rows; a row's result does not depend on the range.
    void (*product_f64)(const mu_product_shape *shape, const double *a, const double *b, double *c, void *scratch,
                        int64_t begin, int64_t end);
    void (*product_i32)(const mu_product_shape *shape, const uint32_t *a, const uint32_t *b, uint32_t *c, void *scratch,
                        int64_t begin, int64_t end);
    void (*product_i64)(const mu_product_shape *shape, const uint64_t *a, const uint64_t *b, uint64_t *c, void *scratch,
                        int64_t begin, int64_t end);

    // sort_rows: sorts each row of words [rows, columns] in ascending order. The caller promises that the lowest
    // `settled` bits of every row are already in ascending order, so that the sort may skip them. scratch:
    // mu__sort_scratch(columns) words, aligned to 64 bytes. Range: rows.
    void (*sort_rows)(int64_t *words, int64_t *scratch, int64_t columns, int settled, int64_t begin, int64_t end);

    // fold_rows: y [rows] from x [rows, columns]: the sum, product, maximum or minimum of each row (of an empty row
    // 0, 1, -infinity, infinity). A NaN makes its row's result NaN. Range: rows.
    void (*fold_rows)(mu_fold fold, const float *x, float *y, int64_t columns, int64_t begin, int64_t end);

    // minmax_f32, minmax_f64: the maximum (or, if `least`, the minimum) of n numbers; of none -infinity (or
    // infinity). A NaN makes the result NaN. minmax_columns_f32, _f64: y [width] holds the extremes of the columns of
    // n rows, which are `stride` elements apart.
    float (*minmax_f32)(bool least, const float *x, int64_t n);
    double (*minmax_f64)(bool least, const double *x, int64_t n);
    void (*minmax_columns_f32)(bool least, const float *x, float *y, int64_t n, int64_t stride, int64_t width);
    void (*minmax_columns_f64)(bool least, const double *x, double *y, int64_t n, int64_t stride, int64_t width);

    // sum_f64: the sum of n doubles.
    double (*sum_f64)(const double *x, int64_t n);

    // bitwise: y = a op b, bit by bit. If `alone`, b is a single byte. y may be a or b. Range: the first n bytes.
    void (*bitwise)(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, int64_t n);

    // scale: y = factor * x; y may be x. Range: elements.
    void (*scale)(const float *x, float factor, float *y, int64_t begin, int64_t end);

    // scale_u8: y = factor * x. Range: elements.
    void (*scale_u8)(const uint8_t *x, float factor, float *y, int64_t begin, int64_t end);

    // gather_u8: y[i] = factor * x[index[i]], rows of row_size elements: x: [any, row_size], y: [rows, row_size]. If
    // index is NULL, it is the identity. The caller checks the indices. Range: rows of y.
    void (*gather_u8)(const uint8_t *x, const int64_t *index, float factor, float *y, int64_t row_size, int64_t begin,
                      int64_t end);

    // philox: the 4 n words that Philox 4x32-10 generates from n counters, which start at `counter` (least
    // significant word first) and are `step` apart.
    void (*philox)(const uint32_t counter[4], const uint32_t key[2], uint64_t step, int64_t n, uint32_t *words);

    // math_f32, math_f64, math2_f32, math2_f64: elementary functions of arrays (elementary.h).
    mu_math_f32 *math_f32;
    mu_math_f64 *math_f64;
    mu_math2_f32 *math2_f32;
    mu_math2_f64 *math2_f64;

    // widen_*, narrow_*: n 16-bit floats to float32 and back, rounded to nearest even; a NaN stays NaN.
    void (*widen_f16)(const uint16_t *x, float *y, int64_t n);
    void (*widen_bf16)(const uint16_t *x, float *y, int64_t n);
    void (*narrow_f16)(const float *x, uint16_t *y, int64_t n);
    void (*narrow_bf16)(const float *x, uint16_t *y, int64_t n);
} mu_kernels;

// mu__kernels returns the table in use: the best one for this processor, unless mu__kernels_use chose another. Any
// thread may call it.
const mu_kernels *mu__kernels(void);

// mu__kernels_use selects the table called isa for the whole process; NULL selects the best one. Returns false and
// changes nothing if this build or this processor lacks the table.
bool mu__kernels_use(const char *isa);

// mu__kernels_for returns the table called isa ("avx512", "avx2", "base"), or NULL if this build or this processor
// lacks it.
const mu_kernels *mu__kernels_for(const char *isa);

#endif
