// matmul and conv2d with a bias along the last axis and, if the attribute relu is set, a ReLU of the sum.
//
// The shape rules are those of matmul or conv2d and then of bias_add. The fast kernels of matmul and conv2d take the
// bias as third input. The plain loops are those of the separate ops, one after the other.
#include "engine/cpu/fused_ops.h"
#include "ops/spatial/conv.h"

static bool is_convolution(const mu_op *op) { return op == &mu__op_conv2d_bias; }

static const mu_op *product_of(const mu_op *op) { return is_convolution(op) ? &mu_op_conv2d : &mu_op_matmul; }

static bool has_relu(const mu_kernel *kernel)
{
    return is_convolution(kernel->op) ? ((const mu_conv_attrs *)kernel->attrs)->relu
                                      : ((const mu_matmul_attrs *)kernel->attrs)->relu;
}

mu_status mu__need_bias(const mu_infer *infer, const mu_spec *product)
{
    const mu_spec in[] = {*product, infer->in[2]};
    mu_spec sum = {0};
    mu_infer inner = {.op = &mu_op_bias_add, .n_in = 2, .n_out = 1, .in = in, .out = &sum};
    return mu__infer_call(&inner);
}

// What is wrong with the product is said of the op that the program has called.
static mu_status biased_infer(mu_infer *infer)
{
    mu_infer product = *infer;
    product.op = product_of(infer->op);
    MU_TRY(product.op->infer(&product));
    return mu__need_bias(infer, &infer->out[0]);
}

static mu_status biased_ref(const mu_kernel *kernel)
{
    const mu_view *y = &kernel->out[0], sum_of[] = {*y, kernel->in[2]};
    MU_TRY(mu__run_plain(product_of(kernel->op), kernel->attrs, kernel, 2, kernel->in, 1, y));
    MU_TRY(mu__run_plain(&mu_op_bias_add, NULL, kernel, 2, sum_of, 1, y));
    return has_relu(kernel) ? mu__run_plain(&mu_op_relu, NULL, kernel, 1, y, 1, y) : MU_OK;
}

static mu_status biased_prepare(mu_prepare *prepare) { return product_of(prepare->op)->cpu.prepare(prepare); }

static mu_status biased_run(const mu_kernel *kernel) { return product_of(kernel->op)->cpu.run(kernel); }

static void release_product(void *state) { mu_op_matmul.cpu.release(state); }

static void release_convolution(void *state) { mu_op_conv2d.cpu.release(state); }

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec matmul_fields[] = {
    MU_MATMUL_FIELDS,
    {"relu", MU_ATTR_BOOL, offsetof(mu_matmul_attrs, relu)},
    {0},
};

static const mu_attr_spec conv_fields[] = {
    MU_CONV_FIELDS,
    {"relu", MU_ATTR_BOOL, offsetof(mu_conv_attrs, relu)},
    {0},
};

static const mu_matmul_attrs plain_product = {0}, product_with_relu = {.relu = true};

static const mu_sample matmul_samples[] = {
    {.n_in = 3, .in = {{2, {5, 7}}, {2, {7, 3}}, {1, {3}}}, .attrs = &plain_product, .no_grad = 7},
    {.n_in = 3, .in = {{2, {4, 6}}, {2, {6, 17}}, {1, {17}}}, .attrs = &product_with_relu, .no_grad = 7},
    {0},
};

static const mu_conv_attrs plain_convolution = {
    .strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "valid", .groups = 1};
static const mu_conv_attrs convolution_with_relu = {
    .strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "valid", .groups = 1, .relu = true};

static const mu_sample conv_samples[] = {
    {.n_in = 3, .in = {{4, {2, 7, 6, 3}}, {4, {3, 3, 3, 5}}, {1, {5}}}, .attrs = &plain_convolution, .no_grad = 7},
    {.n_in = 3,
     .in = {{4, {2, 6, 6, 2}}, {4, {3, 3, 2, 16}}, {1, {16}}},
     .attrs = &convolution_with_relu,
     .no_grad = 7},
    {0},
};

const mu_op mu__op_matmul_bias = {
    .name = "matmul_bias",
    .n_in = 3,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_matmul_attrs),
    .attrs = matmul_fields,
    .infer = biased_infer,
    .ref = biased_ref,
    .cpu = {biased_prepare, biased_run, release_product},
    .samples = matmul_samples,
};

const mu_op mu__op_conv2d_bias = {
    .name = "conv2d_bias",
    .variant = 2,
    .n_in = 3,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_conv_attrs),
    .attrs = conv_fields,
    .infer = biased_infer,
    .ref = biased_ref,
    .cpu = {biased_prepare, biased_run, release_convolution},
    .samples = conv_samples,
};
