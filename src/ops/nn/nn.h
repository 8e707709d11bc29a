// Shared by the neural network ops: attribute structs, windows over images, plain matrix products.
//
// Engine passes read the attribute structs to fuse ops. The fast kernels are elsewhere.
#ifndef MU_SRC_OPS_NN_H
#define MU_SRC_OPS_NN_H

#include "kernels/gemm/gemm.h"
#include "ops/core/attrs.h"

// ---- Attributes ---------------------------------------------------------------------------------

typedef struct mu_matmul_attrs {
    bool transpose_a, transpose_b;
    bool relu; // after a bias: in the native engine's matmul_bias only
} mu_matmul_attrs;

// The fields of mu_matmul_attrs, without relu.
#define MU_MATMUL_FIELDS                                                    \
    {"transpose_a", MU_ATTR_BOOL, offsetof(mu_matmul_attrs, transpose_a)},  \
    {                                                                       \
        "transpose_b", MU_ATTR_BOOL, offsetof(mu_matmul_attrs, transpose_b) \
    }

// Convolutions of images [N, height, width, C] with kernels [height, width, C / groups, out]. In three dimensions,
// depth precedes height in all lists.
typedef struct mu_conv_attrs {
    mu_ints strides, dilations; // height, width
    mu_ints pads;               // top, bottom, left, right; for "explicit"
    mu_ints image;              // height, width of the result of an input gradient, which its inputs do not determine
    char padding[MU_ATTR_TEXT_BYTES]; // "valid", "same" or "explicit"
    int64_t groups;
    bool relu; // after a bias: in the native engine's conv2d_bias only
} mu_conv_attrs;

typedef struct mu_pool_attrs {
    mu_ints window, strides, pads;
    char padding[MU_ATTR_TEXT_BYTES];
} mu_pool_attrs;

typedef struct mu_epsilon_attrs {
    double epsilon;
} mu_epsilon_attrs;

// normalize: along the last axis; if groups > 0, over a sample's positions and each group of its channels.
typedef struct mu_normalize_attrs {
    int64_t groups;
    double epsilon;
    bool centered; // the mean is subtracted
} mu_normalize_attrs;

typedef struct mu_attention_attrs {
    double scale;
    bool causal; // a query attends to no later key; the last query attends to all keys
} mu_attention_attrs;

typedef struct mu_dropout_attrs {
    double rate;
} mu_dropout_attrs;

typedef struct mu_nesterov_attrs {
    bool nesterov;
} mu_nesterov_attrs;

typedef struct mu_all_reduce_attrs {
    int64_t reduction; // mu_reduction
    char name[MU_ATTR_TEXT_BYTES];
    int64_t pack_bytes; // of a gradient in a trace: packed with others up to this size (reductions.c), then -1
} mu_all_reduce_attrs;

typedef struct mu_broadcast_attrs {
    int64_t root;
    char name[MU_ATTR_TEXT_BYTES];
} mu_broadcast_attrs;

typedef struct mu_all_gather_attrs {
    int64_t axis;
    int64_t ranks; // replicas
    bool uneven;   // sizes of the parts may differ; the replicas exchange them at run time
    char name[MU_ATTR_TEXT_BYTES];
} mu_all_gather_attrs;

typedef struct mu_reduce_scatter_attrs {
    int64_t reduction; // mu_reduction: a sum or a mean
    int64_t axis;
    int64_t ranks; // replicas
    char name[MU_ATTR_TEXT_BYTES];
} mu_reduce_scatter_attrs;

typedef struct mu_permute_attrs {
    mu_tensor *sources; // int64: for each replica the one whose tensor it gets; -1: none
} mu_permute_attrs;

typedef enum mu_scatter {
    MU_SCATTER_ADD,
    MU_SCATTER_SUB,
    MU_SCATTER_MUL,
    MU_SCATTER_DIV,
    MU_SCATTER_MIN,
    MU_SCATTER_MAX,
    MU_SCATTER_UPDATE
} mu_scatter;

typedef struct mu_scatter_attrs {
    int64_t kind; // mu_scatter
} mu_scatter_attrs;

// Optimizer updates from slices. With `reduce` the slices of all replicas are combined first.
typedef struct mu_apply_slices_attrs {
    bool nesterov, reduce;
    char name[MU_ATTR_TEXT_BYTES];
} mu_apply_slices_attrs;

// ---- Optimizers' updates (apply.c) --------------------------------------------------------------

// mu__need_update checks what all updates require: scalar inputs first, a float variable, slots of its shape.
mu_status mu__need_update(const mu_infer *infer, int n_scalars);
double mu__read_scalar(const mu_kernel *kernel, int i); // input i
double mu__adam_rate(const mu_kernel *kernel);          // the bias-corrected learning rate, from inputs 0, 1, 2 and 4

// ---- Generators (dropout.c) ---------------------------------------------------------------------

// mu__generator_next steps a generator (a resource of int64 [3]: 128-bit counter, key) and returns a seed for
// this replica, int64 [2].
mu_tensor *mu__generator_next(mu_resource *generator);

// ---- Windows over images (window.c) -------------------------------------------------------------

// One spatial axis of a convolution or pool.
typedef struct mu_window_axis {
    int64_t in, out; // extent of the image and of the result; MU_UNKNOWN in traces
    int64_t size, stride, dilation;
    int64_t before, after; // padding; unknown (0) where `in` is unknown
} mu_window_axis;

typedef struct mu_window {
    int64_t n, channels;
    int spatial; // 2, or 3 with depth
    union {
        struct {
            mu_window_axis z, y, x; // depth (one element in 2-D), height, width
        };
        mu_window_axis axes[3];
    };
} mu_window;

// mu__window_axes returns the spatial axes in order; there are window->spatial of them.
static inline mu_window_axis *mu__window_axes(mu_window *window) { return &window->axes[3 - window->spatial]; }

// mu__window_axis computes out, before and after from the other fields. Errors: INVALID_ARGUMENT naming `op`.
mu_status mu__window_axis(mu_window_axis *axis, const char *padding, int64_t before, int64_t after, const char *op);

// mu__window_span returns the output positions [*begin, *end) whose tap number `tap` lies inside the image.
void mu__window_span(const mu_window_axis *axis, int64_t tap, int64_t *begin, int64_t *end);

mu_status mu__conv_window(const mu_conv_attrs *attrs, const mu_shape *x, const mu_shape *w, const char *op,
                          mu_window *out);
mu_status mu__pool_window(const mu_pool_attrs *attrs, const mu_shape *x, const char *op, mu_window *out);

// mu__window_options fills an attribute from the caller's n numbers, one per spatial axis. 0 means the previous axis's
// number, or 1 for the first axis.
mu_status mu__window_options(mu_ints *out, int n, const int64_t *given, const char *what, const char *op);
// mu__padding_options does the same for padding (NULL: "explicit" if pads are given, two per axis, else "valid").
mu_status mu__padding_options(char out[MU_ATTR_TEXT_BYTES], mu_ints *pads, const char *padding, int n,
                              const int64_t *given, const char *op);

// mu__bias_in_place adds a bias along the last axis and, with `relu`, clamps at 0 (NaN is kept).
void mu__bias_in_place(const mu_view *y, const mu_view *bias, bool relu);

// mu__gemm_for and mu__outer_for return the products (gemm.h) of float32, float64, int32 and int64; NULL for
// other types.
mu_gemm *mu__gemm_for(mu_dtype dtype);
mu_outer *mu__outer_for(mu_dtype dtype);

// ---- Kernels in general (widen.c, nn.c) ---------------------------------------------------------

// mu__run_as_f32 runs `run` on float32 copies of float16 and bfloat16 operands and converts the outputs back.
mu_status mu__run_as_f32(const mu_kernel *kernel, mu_kernel_run *run);
// mu__run_as_i32 runs `run` on int32 copies of integer operands; only the low bits are kept.
mu_status mu__run_as_i32(const mu_kernel *kernel, mu_kernel_run *run);
// mu__run_wide runs `run` on int64 copies of shorter integers.
mu_status mu__run_wide(const mu_kernel *kernel, mu_kernel_run *run);

// mu__sum_parts sums over n items. Each member of the team calls `sum` for its items and its own partial sum of `width`
// floats; the partial sums (mu__parts_bytes in total) are then added into the first in order of members. With little
// work (see mu__team_for) the calling thread does everything.
typedef void mu_partial_sum(void *arg, float *part, int64_t begin, int64_t end);
size_t mu__parts_bytes(const mu_team *team, int64_t width);
void mu__sum_parts(const mu_team *whole, int64_t work, int64_t n, int64_t width, float *parts, mu_partial_sum *sum,
                   void *arg);

// mu__label_error reports a label in a row of logits of so many classes (softmax.c); mu__not_definite, which of so many
// matrices has no Cholesky factor (linalg/linalg.c).
mu_status mu__label_error(const mu_op *op, int64_t label, int64_t classes, int64_t row);
mu_status mu__not_definite(int64_t matrix, int64_t matrices);

// mu__prepare_f32 is the prepare function of kernels that exist for float32 alone: it declines other types.
mu_status mu__prepare_f32(mu_prepare *prepare);

// The kernels of batch_norm_training and its gradient (batch_norm_fast.c), for what mu__batch_norm_takes accepts.
bool mu__batch_norm_takes(mu_dtype dtype, const mu_shape *x);
mu_status mu__batch_norm_prepare(mu_prepare *prepare);
mu_status mu__batch_norm_run(const mu_kernel *kernel);
mu_status mu__batch_norm_grad_run(const mu_kernel *kernel);

#endif
