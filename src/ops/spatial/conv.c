// conv2d and conv3d, and their gradients: op definitions.
//
// Images are NHWC, kernels HWIO; in three dimensions depth comes before height. float32 and bfloat16 use oneDNN;
// float16, and bfloat16 where the processor multiplies float32 faster, are computed as float32; float64 and int32 use
// conv_loops.c. oneDNN reads images in our layout. Kernels are reordered at each run into the layout that the primitive
// prefers, because they change every step and the reorder is cheap. With stride 1 an input gradient is computed as a
// forward convolution; most filter gradients use conv_filter.c. Each of the three ops is linear in both operands, so
// the ops are each other's gradients. The fast kernel of conv2d takes a bias too, as third input: the native engine's
// conv2d_bias (engine/cpu/fused_bias.c) runs it.
#include "ops/spatial/conv.h"
#include "ops/core/lower.h"
#include "ops/onednn/onednn.h"

const mu_attr_spec mu__conv_fields[] = {MU_CONV_FIELDS, {0}};

mu_conv_kind mu__conv_kind(const mu_op *op)
{
    return op == &mu_op_conv2d_input_grad || op == &mu_op_conv3d_input_grad     ? MU_CONV_INPUT_GRAD
           : op == &mu_op_conv2d_filter_grad || op == &mu_op_conv3d_filter_grad ? MU_CONV_FILTER_GRAD
                                                                                : MU_CONV_FORWARD;
}

mu_conv_roles mu__conv_roles(const mu_op *op, int n_in)
{
    switch (mu__conv_kind(op)) {
    case MU_CONV_INPUT_GRAD: return (mu_conv_roles){.image = n_in, .kernel = 1, .result = 0};
    case MU_CONV_FILTER_GRAD: return (mu_conv_roles){.image = 0, .kernel = n_in, .result = 1};
    default: return (mu_conv_roles){.image = 0, .kernel = 1, .result = n_in, .bias = n_in == 3 ? 2 : 0};
    }
}

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status result_shape(const mu_infer *infer, const mu_shape *image, const mu_shape *kernel, mu_shape *out)
{
    const mu_conv_attrs *attrs = infer->attrs;
    mu_window window;
    if (attrs->strides.n != infer->op->variant)
        return mu__error(MU_INVALID_ARGUMENT, "%s: strides have %lld entries, %d are needed", infer->op->name,
                         (long long)attrs->strides.n, infer->op->variant);
    MU_TRY(mu__conv_window(attrs, image, kernel, infer->op->name, &window));
    *out = (mu_shape){.rank = window.spatial + 2, .dims = {window.n}};
    for (int i = 0; i < window.spatial; i++)
        out->dims[i + 1] = mu__window_axes(&window)[i].out;
    out->dims[window.spatial + 1] = kernel->dims[window.spatial + 1];
    return MU_OK;
}

static mu_status conv_infer(mu_infer *infer)
{
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    infer->out[0].dtype = infer->in[0].dtype;
    return result_shape(infer, &infer->in[0].shape, &infer->in[1].shape, &infer->out[0].shape);
}

static mu_status need_result(const mu_infer *infer, const mu_shape *wanted, const mu_shape *dy)
{
    char wanted_text[MU_SHAPE_TEXT], dy_text[MU_SHAPE_TEXT];
    if (mu__shape_compatible(wanted, dy))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: dy has shape %s, the convolution's result has %s", infer->op->name,
                     mu__shape_text(dy, dy_text), mu__shape_text(wanted, wanted_text));
}

// The shape of the image in an input gradient: that of input 2, or the sizes in the attributes.
static mu_status image_shape(const mu_infer *infer, mu_shape *out)
{
    const mu_conv_attrs *attrs = infer->attrs;
    const mu_shape *dy = &infer->in[0].shape, *kernel = &infer->in[1].shape;
    const int spatial = infer->op->variant;
    if (infer->n_in == 3) {
        *out = infer->in[2].shape;
        return MU_OK;
    }
    if (attrs->image.n != spatial || dy->rank != spatial + 2 || kernel->rank != spatial + 2)
        return mu__error(MU_INVALID_ARGUMENT, "%s: with two inputs, of rank %d, the attribute image gives %d extents",
                         infer->op->name, spatial + 2, spatial);
    const int64_t own = kernel->dims[spatial];
    *out = (mu_shape){.rank = spatial + 2, .dims = {dy->dims[0]}};
    memcpy(out->dims + 1, attrs->image.at, (size_t)spatial * sizeof out->dims[0]);
    out->dims[spatial + 1] = own == MU_UNKNOWN ? MU_UNKNOWN : own * attrs->groups;
    return mu__shape_check(out, infer->op->name);
}

static mu_status input_grad_infer(mu_infer *infer)
{
    mu_shape result, image;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(image_shape(infer, &image));
    MU_TRY(result_shape(infer, &image, &infer->in[1].shape, &result));
    infer->out[0] = (mu_spec){infer->in[0].dtype, image};
    return need_result(infer, &result, &infer->in[0].shape);
}

static mu_status filter_grad_infer(mu_infer *infer)
{
    mu_shape result;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(result_shape(infer, &infer->in[0].shape, &infer->in[2].shape, &result));
    infer->out[0] = (mu_spec){infer->in[0].dtype, infer->in[2].shape};
    return need_result(infer, &result, &infer->in[1].shape);
}

// ---- Gradients ----------------------------------------------------------------------------------

static bool is_deep(const mu_conv_attrs *attrs) { return attrs->strides.n == 3; }

static mu_tensor *input_grad(const mu_conv_attrs *attrs, mu_tensor *dy, mu_tensor *w, mu_tensor *x)
{
    return mu__apply3(is_deep(attrs) ? &mu_op_conv3d_input_grad : &mu_op_conv2d_input_grad, attrs, dy, w, x);
}

static mu_tensor *filter_grad(const mu_conv_attrs *attrs, mu_tensor *x, mu_tensor *dy, mu_tensor *w)
{
    return mu__apply3(is_deep(attrs) ? &mu_op_conv3d_filter_grad : &mu_op_conv2d_filter_grad, attrs, x, dy, w);
}

static mu_tensor *conv_grad(mu_grad *g, int i)
{
    return i == 0 ? input_grad(g->attrs, g->dy, g->x[1], g->x[0]) : filter_grad(g->attrs, g->x[0], g->dy, g->x[1]);
}

static mu_tensor *forward(const mu_conv_attrs *attrs, mu_tensor *x, mu_tensor *w)
{
    return mu__apply2(is_deep(attrs) ? &mu_op_conv3d : &mu_op_conv2d, attrs, x, w);
}

// Inputs (dy, w, x): linear in dy and in w; only the shape of x is used.
static mu_tensor *input_grad_grad(mu_grad *g, int i)
{
    return i == 0 ? forward(g->attrs, g->dy, g->x[1]) : i == 1 ? filter_grad(g->attrs, g->dy, g->x[0], g->x[1]) : NULL;
}

// Inputs (x, dy, w): linear in x and in dy.
static mu_tensor *filter_grad_grad(mu_grad *g, int i)
{
    return i == 0 ? input_grad(g->attrs, g->x[1], g->dy, g->x[0]) : i == 1 ? forward(g->attrs, g->x[0], g->dy) : NULL;
}

// ---- oneDNN -------------------------------------------------------------------------------------

// The convolution in oneDNN's terms: logical NC(D)HW and (G)OI(D)HW descriptors over our arrays; the kernel's layout is
// oneDNN's choice.
typedef struct conv_plan {
    mu_dnnl *dnnl;
    bool as_forward;       // an input gradient as a forward convolution; see can_run_as_forward
    int64_t images, parts; // images per primitive call (see images_at_once), and number of calls
    int before_parts;      // steps shared by all calls: the kernel's reorder
    dnnl_memory_desc_t image, result, bias;
    dnnl_memory_desc_t own_kernel, any_kernel;
    dnnl_dims_t strides, dilations, before, after; // (depth,) height, width
} conv_plan;

// Descriptor of an image [n, extents…, channels]; oneDNN lists channels first.
static dnnl_memory_desc_t image_layout(mu_dnnl *dnnl, int64_t n, int64_t channels, int spatial, const int64_t *extents,
                                       dnnl_data_type_t type)
{
    dnnl_dim_t dims[5] = {n, channels}, strides[5] = {0, 1}, stride = channels;
    for (int i = spatial - 1; i >= 0; i--) {
        dims[i + 2] = extents[i];
        strides[i + 2] = stride;
        stride *= extents[i];
    }
    strides[0] = stride;
    return mu__dnnl_layout(dnnl, spatial + 2, dims, type, strides);
}

static void describe_arrays(conv_plan *plan, mu_window *w, const mu_shape *kernel, int64_t groups,
                            dnnl_data_type_t type)
{
    mu_dnnl *dnnl = plan->dnnl;
    const int n = w->spatial;
    const int64_t o = kernel->dims[n + 1], i = kernel->dims[n];
    int64_t in[3], out[3], tap = i * o;
    dnnl_dim_t weights[6] = {groups, o / groups, i}, strides[6] = {o / groups, 1, o};
    if (plan->as_forward) {
        weights[1] = i;
        weights[2] = o / groups;
        strides[1] = o;
        strides[2] = 1;
    }
    for (int k = n - 1; k >= 0; k--) {
        const mu_window_axis *axis = &mu__window_axes(w)[k];
        in[k] = axis->in;
        out[k] = axis->out;
        weights[k + 3] = axis->size;
        strides[k + 3] = tap;
        tap *= axis->size;
    }
    const int skip = groups == 1 ? 1 : 0; // the group axis exists only if there are several groups
    const bool swapped = plan->as_forward;
    plan->image = image_layout(dnnl, plan->images, swapped ? o : w->channels, n, swapped ? out : in, type);
    plan->result = image_layout(dnnl, plan->images, swapped ? w->channels : o, n, swapped ? in : out, type);
    plan->bias = mu__dnnl_layout(dnnl, 1, &o, type, NULL);
    plan->own_kernel = mu__dnnl_layout(dnnl, n + 3 - skip, weights + skip, type, strides + skip);
    plan->any_kernel = mu__dnnl_any(dnnl, n + 3 - skip, weights + skip, type);
}

static void describe_window(conv_plan *plan, mu_window *w)
{
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *axis = &mu__window_axes(w)[i];
        const int64_t span = (axis->size - 1) * axis->dilation;
        plan->strides[i] = axis->stride;
        plan->dilations[i] = axis->dilation - 1;
        plan->before[i] = plan->as_forward ? span - axis->before : axis->before;
        plan->after[i] = plan->as_forward ? span - axis->after : axis->after;
    }
}

// With stride 1 an input gradient is a forward convolution of dy, with the taps in reverse order and channels and
// filters exchanged. oneDNN's forward code is faster for this from 64 channels on (in groups: from 16) and for kernels
// of one tap without groups, and slower otherwise.
static bool can_run_as_forward(mu_conv_kind kind, mu_window *w, const mu_shape *kernel, int64_t groups)
{
    const int64_t many = groups == 1 ? 64 : 16;
    const int64_t channels = kernel->dims[w->spatial], filters = kernel->dims[w->spatial + 1];
    const bool one_tap = channels * filters == mu__elements(kernel);
    const bool enough = channels >= many && filters / groups >= many;
    bool as_forward = kind == MU_CONV_INPUT_GRAD && (enough || (one_tap && groups == 1));
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *axis = &mu__window_axes(w)[i];
        const int64_t span = (axis->size - 1) * axis->dilation;
        as_forward = as_forward && axis->stride == 1 && axis->before <= span && axis->after <= span;
    }
    return as_forward;
}

// oneDNN's input gradient, and everything with groups, passes over all images once per few channels or per group. So it
// is faster to run it on as many images as fit the caches (`bytes` each, with the result). `alone`: run each large
// image by itself, which is faster if a group has several channels.
static int64_t images_at_once(int64_t n, int64_t bytes, bool alone, const mu_team *team)
{
    enum { NEAR_BYTES = 2 << 20, ALONE_BYTES = 128 << 10 };
    if (alone && bytes >= ALONE_BYTES)
        return 1;
    const int64_t most = MU_MAX(NEAR_BYTES / bytes, (int64_t)1) * team->n_threads;
    int64_t images = MU_MIN(n, most);
    while (n % images != 0)
        images--;
    return 2 * images < MU_MIN(n, most) ? n : images;
}

static const_dnnl_primitive_desc_t choose_forward(conv_plan *p, bool bias, bool relu)
{
    dnnl_convolution_desc_t operation;
    if (dnnl_dilated_convolution_forward_desc_init(&operation, dnnl_forward_training, dnnl_convolution_direct,
                                                   &p->image, &p->any_kernel, bias ? &p->bias : NULL, &p->result,
                                                   p->strides, p->dilations, p->before, p->after) != dnnl_success)
        return NULL;
    return mu__dnnl_choose(p->dnnl, &operation, relu, NULL);
}

static const_dnnl_primitive_desc_t choose_backward(conv_plan *p, mu_conv_kind kind)
{
    dnnl_convolution_desc_t operation;
    const_dnnl_primitive_desc_t forward = choose_forward(p, false, false);
    const dnnl_status_t status =
        kind == MU_CONV_INPUT_GRAD
            ? dnnl_dilated_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, &p->image,
                                                               &p->any_kernel, &p->result, p->strides, p->dilations,
                                                               p->before, p->after)
            : dnnl_dilated_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, &p->image,
                                                                  &p->any_kernel, NULL, &p->result, p->strides,
                                                                  p->dilations, p->before, p->after);
    return forward && status == dnnl_success ? mu__dnnl_choose(p->dnnl, &operation, false, forward) : NULL;
}

// A memory in the layout that the primitive wants for the kernel: the given memory if its layout is the same, else one
// in scratch.
static dnnl_memory_t kernel_memory(conv_plan *p, const_dnnl_primitive_desc_t chosen, dnnl_query_t what,
                                   dnnl_memory_t own)
{
    const dnnl_memory_desc_t *wanted = mu__dnnl_wants(p->dnnl, chosen, what);
    return !wanted || dnnl_memory_desc_equal(wanted, &p->own_kernel) ? own : mu__dnnl_scratch(p->dnnl, wanted);
}

static void append_steps(conv_plan *p, const mu_prepare *prepare, const_dnnl_primitive_desc_t chosen)
{
    const mu_conv_kind kind = p->as_forward ? MU_CONV_FORWARD : mu__conv_kind(prepare->op);
    const mu_conv_roles roles = mu__conv_roles(prepare->op, prepare->n_in);
    const int from = p->as_forward ? roles.result : roles.image, to = p->as_forward ? roles.image : roles.result;
    const bool filter = kind == MU_CONV_FILTER_GRAD, input = kind == MU_CONV_INPUT_GRAD;
    dnnl_memory_t own = mu__dnnl_operand(p->dnnl, roles.kernel, &p->own_kernel);
    dnnl_memory_t kernel = kernel_memory(p, chosen, filter ? dnnl_query_diff_weights_md : dnnl_query_weights_md, own);
    p->before_parts = !filter && kernel != own;
    if (p->before_parts > 0)
        mu__dnnl_reorder(p->dnnl, own, kernel);
    const dnnl_exec_arg_t args[] = {
        {input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, mu__dnnl_operand(p->dnnl, from, &p->image)},
        {filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, kernel},
        {filter || input ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, mu__dnnl_operand(p->dnnl, to, &p->result)},
        {DNNL_ARG_BIAS, roles.bias ? mu__dnnl_operand(p->dnnl, roles.bias, &p->bias) : NULL},
    };
    mu__dnnl_step(p->dnnl, chosen, roles.bias ? 4 : 3, args);
    if (filter && kernel != own)
        mu__dnnl_reorder(p->dnnl, kernel, own);
}

static const mu_spec *spec_at(const mu_prepare *prepare, int i)
{
    return i < prepare->n_in ? &prepare->in[i] : &prepare->out[i - prepare->n_in];
}

// Whether some tap of the kernel covers only padding.
static bool has_idle_tap(const mu_window_axis *axis)
{
    bool idle = false;
    for (int64_t tap = 0; tap < axis->size && !idle; tap++) {
        const int64_t first = tap * axis->dilation - axis->before; // in the image, for the first window
        const int64_t skipped = first < 0 ? (-first + axis->stride - 1) / axis->stride : 0;
        idle = skipped >= axis->out || first + skipped * axis->stride >= axis->in;
    }
    return idle;
}

// oneDNN 2.6's filter gradient in bfloat16 leaves some taps unwritten if a stride is larger than 1: taps that cover
// only padding and, in 3-D, taps whose windows reach beyond the end.
static bool leaves_taps(mu_window *w)
{
    bool leaves = false;
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *axis = &mu__window_axes(w)[i];
        const bool padded = axis->before != 0 || axis->after != 0;
        leaves = leaves || (axis->stride > 1 && padded && (w->spatial == 3 || has_idle_tap(axis)));
    }
    return leaves;
}

// For such windows oneDNN 2.6's input gradient in bfloat16 is wrong for half of the pixels.
static bool is_strided_tap(mu_window *w)
{
    bool strided = false;
    int64_t taps = 1;
    for (int i = 0; i < w->spatial; i++) {
        strided = strided || mu__window_axes(w)[i].stride > 1;
        taps *= mu__window_axes(w)[i].size;
    }
    return strided && taps == 1;
}

// oneDNN 2.6's AVX2 code computes wrong filter gradients for kernels of one tap with strides, such as 3 and 1, in
// float32.
static bool sums_wrong_pixels(mu_window *w)
{
    const int isa = mu__dnnl_isa();
    return isa > dnnl_cpu_isa_sse41 && isa < dnnl_cpu_isa_avx512_core && is_strided_tap(w);
}

// oneDNN 2.6 multiplies bfloat16 channels in pairs, and with AMX it reads pixels outside the window if there are few
// channels. What it reads too much is multiplied by zero, so infinity and NaN reach results that do not depend on them.
static bool reads_beyond(mu_conv_kind kind, const mu_window *w, const mu_shape *kernel, int64_t groups)
{
    enum { FEW = 4 };
    const int64_t channels = kernel->dims[w->spatial], filters = kernel->dims[w->spatial + 1] / groups;
    const int64_t summed = kind == MU_CONV_INPUT_GRAD ? filters : channels;
    const bool depthwise = groups > 1 && channels == 1;
    return kind != MU_CONV_FILTER_GRAD && !depthwise && (summed % 2 != 0 || summed <= FEW);
}

// State made by prepare. A kernel that is used in reverse order is copied to scratch, at byte offset `at`.
typedef struct conv_state {
    mu_dnnl *dnnl; // NULL: mu__conv_filter_run
    bool as_f32;   // oneDNN computes in float32
    int64_t taps;  // 0: the kernel is used as it is
    size_t tap_bytes, at;
    int64_t parts;    // number of image batches that the primitives run on
    int before_parts; // steps that run only for the first batch
} conv_state;

static void state_free(void *object)
{
    conv_state *state = object;
    if (state)
        mu__dnnl_free(state->dnnl);
    mu__free(state);
}

// Moves the built list into a state.
static mu_status finish_state(conv_plan *plan, const mu_shape *kernel, bool as_f32, mu_prepare *prepare)
{
    conv_state *state = mu__calloc(1, sizeof *state);
    if (!state) {
        mu__dnnl_free(plan->dnnl);
        return MU_RESOURCE_EXHAUSTED;
    }
    const mu_status status = mu__dnnl_finish(plan->dnnl, prepare);
    if (status != MU_OK || prepare->declined) {
        mu__free(state);
        return status;
    }
    state->dnnl = prepare->state;
    state->parts = plan->parts;
    state->before_parts = plan->before_parts;
    state->as_f32 = as_f32;
    const size_t bytes = dnnl_memory_desc_get_size(&plan->own_kernel);
    const int64_t tap = kernel->dims[kernel->rank - 2] * kernel->dims[kernel->rank - 1];
    if (plan->as_forward && tap < mu__elements(kernel)) {
        state->taps = mu__elements(kernel) / tap;
        state->tap_bytes = bytes / (size_t)state->taps;
        state->at = prepare->scratch_bytes;
        prepare->scratch_bytes += bytes;
    }
    prepare->state = state;
    return MU_OK;
}

// The state of a filter gradient that is computed without oneDNN.
static mu_status prepare_sums(bool as_f32, mu_prepare *prepare)
{
    conv_state *state = mu__calloc(1, sizeof *state);
    if (!state)
        return MU_RESOURCE_EXHAUSTED;
    state->as_f32 = as_f32;
    prepare->state = state;
    return MU_OK;
}

static mu_status prepare_primitives(mu_prepare *prepare)
{
    const mu_conv_attrs *attrs = prepare->attrs;
    const mu_conv_kind kind = mu__conv_kind(prepare->op);
    const mu_conv_roles roles = mu__conv_roles(prepare->op, prepare->n_in);
    const mu_shape *image = &spec_at(prepare, roles.image)->shape, *kernel = &spec_at(prepare, roles.kernel)->shape;
    mu_window window;
    dnnl_data_type_t type;
    const mu_dtype dtype = prepare->in[0].dtype;
    MU_TRY(mu__conv_window(attrs, image, kernel, prepare->op->name, &window));
    prepare->declined = !mu__dnnl_type(dtype, &type) || mu__elements(image) == 0 || mu__elements(kernel) == 0 ||
                        mu__elements(&spec_at(prepare, roles.result)->shape) == 0 ||
                        (kind == MU_CONV_FILTER_GRAD && sums_wrong_pixels(&window));
    if (prepare->declined)
        return MU_OK;
    if ((kind == MU_CONV_FILTER_GRAD && leaves_taps(&window)) ||
        (kind == MU_CONV_INPUT_GRAD && is_strided_tap(&window)) || reads_beyond(kind, &window, kernel, attrs->groups))
        type = dnnl_f32;
    const bool as_f32 = type == dnnl_f32 && dtype != MU_F32;
    if (kind == MU_CONV_FILTER_GRAD && type == dnnl_f32 && mu__conv_filter_fits(&window, kernel, attrs->groups))
        return prepare_sums(as_f32, prepare);
    conv_plan plan = {.dnnl = mu__dnnl_new(prepare->op->name),
                      .as_forward = can_run_as_forward(kind, &window, kernel, attrs->groups)};
    if (!plan.dnnl)
        return MU_RESOURCE_EXHAUSTED;
    plan.images = window.n;
    if (kind != MU_CONV_FILTER_GRAD && (attrs->groups > 1 || (kind == MU_CONV_INPUT_GRAD && !plan.as_forward))) {
        const mu_shape *result = &spec_at(prepare, roles.result)->shape;
        const int64_t elements = (mu__elements(image) + mu__elements(result)) / window.n;
        const bool alone = attrs->groups > 1 && kernel->dims[window.spatial] > 1;
        const size_t bytes = as_f32 ? sizeof(float) : mu_dtype_bytes(dtype);
        plan.images = images_at_once(window.n, elements * (int64_t)bytes, alone, prepare->team);
    }
    plan.parts = window.n / plan.images;
    describe_arrays(&plan, &window, kernel, attrs->groups, type);
    describe_window(&plan, &window);
    const_dnnl_primitive_desc_t chosen = kind == MU_CONV_FORWARD || plan.as_forward
                                             ? choose_forward(&plan, roles.bias > 0, attrs->relu)
                                             : choose_backward(&plan, kind);
    append_steps(&plan, prepare, chosen);
    return finish_state(&plan, kernel, as_f32, prepare);
}

// What oneDNN does not take has no state: mu__conv_loops computes it.
static mu_status conv_prepare(mu_prepare *prepare)
{
    MU_TRY(prepare_primitives(prepare));
    if (prepare->declined) {
        prepare->declined = false;
        prepare->state = NULL;
        prepare->scratch_bytes = 0;
    }
    return MU_OK;
}

// Runs the primitives once per batch of images: the first axis of operand 0 and of the result.
static mu_status run_parts(const mu_kernel *kernel, int64_t parts, int before_parts)
{
    mu_kernel part = *kernel;
    mu_view in[3], out = kernel->out[0];
    const size_t element = mu_dtype_bytes(out.dtype);
    memcpy(in, kernel->in, (size_t)kernel->n_in * sizeof *in);
    part.in = in;
    part.out = &out;
    for (int64_t i = 0; i < parts; i++) {
        MU_TRY(mu__dnnl_run_from(&part, i == 0 ? 0 : before_parts));
        in[0].data = (char *)in[0].data + (size_t)(mu__elements(&in[0].shape) / parts) * element;
        out.data = (char *)out.data + (size_t)(mu__elements(&out.shape) / parts) * element;
    }
    return MU_OK;
}

static mu_status run_state(const mu_kernel *kernel)
{
    const conv_state *state = kernel->state;
    if (!state->dnnl)
        return mu__conv_filter_run(kernel);
    const int number = mu__conv_roles(kernel->op, kernel->n_in).kernel;
    mu_kernel own = *kernel;
    mu_view in[3];
    own.state = state->dnnl;
    if (state->taps > 0) {
        char *reversed = (char *)kernel->scratch + state->at;
        const char *taps = kernel->in[number].data;
        for (int64_t i = 0; i < state->taps; i++)
            memcpy(reversed + (size_t)i * state->tap_bytes, taps + (size_t)(state->taps - 1 - i) * state->tap_bytes,
                   state->tap_bytes);
        memcpy(in, kernel->in, (size_t)kernel->n_in * sizeof *in);
        in[number].data = reversed;
        own.in = in;
    }
    return run_parts(&own, state->parts, state->before_parts);
}

static mu_status conv_run(const mu_kernel *kernel)
{
    const conv_state *state = kernel->state;
    if (!state)
        return mu__conv_loops(kernel);
    return state->as_f32 ? mu__run_as_f32(kernel, run_state) : run_state(kernel);
}

// ---- Op definitions -----------------------------------------------------------------------------

#define ONES        \
    {               \
        2, { 1, 1 } \
    }
static const mu_conv_attrs valid = {.strides = ONES, .dilations = ONES, .padding = "valid", .groups = 1};
static const mu_conv_attrs same_strided = {.strides = {2, {2, 3}}, .dilations = ONES, .padding = "same", .groups = 1};
static const mu_conv_attrs dilated = {.strides = ONES, .dilations = {2, {2, 3}}, .padding = "same", .groups = 1};
static const mu_conv_attrs grouped = {.strides = {2, {2, 1}}, .dilations = ONES, .padding = "same", .groups = 2};
static const mu_conv_attrs padded = {
    .strides = {2, {1, 2}}, .dilations = ONES, .pads = {4, {0, 2, 3, 1}}, .padding = "explicit", .groups = 1};
static const mu_conv_attrs sized = {
    .strides = {2, {2, 2}}, .dilations = ONES, .image = {2, {6, 5}}, .padding = "same", .groups = 2};
#define ONES_3         \
    {                  \
        3, { 1, 1, 1 } \
    }
static const mu_conv_attrs valid_3 = {.strides = ONES_3, .dilations = ONES_3, .padding = "valid", .groups = 1};
static const mu_conv_attrs same_3 = {.strides = {3, {2, 1, 3}}, .dilations = ONES_3, .padding = "same", .groups = 2};
static const mu_conv_attrs padded_3 = {.strides = {3, {1, 2, 1}},
                                       .dilations = {3, {2, 1, 1}},
                                       .pads = {6, {1, 1, 0, 2, 1, 0}},
                                       .padding = "explicit",
                                       .groups = 1};

static const mu_sample conv_samples[] = {
    {.n_in = 2, .in = {{4, {2, 7, 6, 3}}, {4, {3, 3, 3, 5}}}, .attrs = &valid},
    {.n_in = 2, .in = {{4, {1, 8, 9, 2}}, {4, {3, 4, 2, 3}}}, .attrs = &same_strided},
    {.n_in = 2, .in = {{4, {1, 9, 8, 1}}, {4, {3, 2, 1, 4}}}, .attrs = &dilated},
    {.n_in = 2, .in = {{4, {2, 5, 5, 4}}, {4, {3, 3, 2, 6}}}, .attrs = &grouped},
    {.n_in = 2, .in = {{4, {1, 4, 5, 2}}, {4, {2, 3, 2, 2}}}, .attrs = &padded},
    {.n_in = 2, .in = {{4, {0, 5, 5, 2}}, {4, {3, 3, 2, 2}}}, .attrs = &valid},
    {0},
};

static const mu_sample input_grad_samples[] = {
    {.n_in = 3, .in = {{4, {2, 5, 4, 5}}, {4, {3, 3, 3, 5}}, {4, {2, 7, 6, 3}}}, .attrs = &valid, .no_grad = 4},
    {.n_in = 3, .in = {{4, {1, 4, 3, 3}}, {4, {3, 4, 2, 3}}, {4, {1, 8, 9, 2}}}, .attrs = &same_strided, .no_grad = 4},
    {.n_in = 3, .in = {{4, {2, 3, 5, 6}}, {4, {3, 3, 2, 6}}, {4, {2, 5, 5, 4}}}, .attrs = &grouped, .no_grad = 4},
    {.n_in = 2, .in = {{4, {2, 3, 3, 4}}, {4, {3, 3, 1, 4}}}, .attrs = &sized},
    {0},
};

static const mu_sample filter_grad_samples[] = {
    {.n_in = 3, .in = {{4, {2, 7, 6, 3}}, {4, {2, 5, 4, 5}}, {4, {3, 3, 3, 5}}}, .attrs = &valid, .no_grad = 4},
    {.n_in = 3, .in = {{4, {1, 8, 9, 2}}, {4, {1, 4, 3, 3}}, {4, {3, 4, 2, 3}}}, .attrs = &same_strided, .no_grad = 4},
    {.n_in = 3, .in = {{4, {2, 5, 5, 4}}, {4, {2, 3, 5, 6}}, {4, {3, 3, 2, 6}}}, .attrs = &grouped, .no_grad = 4},
    {.n_in = 3, .in = {{4, {2, 3, 1, 2}}, {4, {2, 2, 1, 3}}, {4, {3, 4, 2, 3}}}, .attrs = &same_strided, .no_grad = 4},
    {0},
};

static const mu_sample conv3d_samples[] = {
    {.n_in = 2, .in = {{5, {3, 3, 4, 3, 2}}, {5, {2, 3, 2, 2, 3}}}, .attrs = &valid_3},
    {.n_in = 2, .in = {{5, {1, 4, 3, 5, 4}}, {5, {3, 2, 2, 2, 2}}}, .attrs = &same_3},
    {.n_in = 2, .in = {{5, {1, 4, 3, 3, 1}}, {5, {2, 2, 3, 1, 2}}}, .attrs = &padded_3},
    {.n_in = 2, .in = {{5, {0, 3, 4, 3, 2}}, {5, {2, 3, 2, 2, 3}}}, .attrs = &valid_3},
    {0},
};

static const mu_sample conv3d_input_grad_samples[] = {
    {.n_in = 3,
     .in = {{5, {3, 2, 2, 2, 3}}, {5, {2, 3, 2, 2, 3}}, {5, {3, 3, 4, 3, 2}}},
     .attrs = &valid_3,
     .no_grad = 4},
    {.n_in = 3,
     .in = {{5, {1, 2, 3, 2, 2}}, {5, {3, 2, 2, 2, 2}}, {5, {1, 4, 3, 5, 4}}},
     .attrs = &same_3,
     .no_grad = 4},
    {0},
};

static const mu_sample conv3d_filter_grad_samples[] = {
    {.n_in = 3,
     .in = {{5, {3, 3, 4, 3, 2}}, {5, {3, 2, 2, 2, 3}}, {5, {2, 3, 2, 2, 3}}},
     .attrs = &valid_3,
     .no_grad = 4},
    {.n_in = 3,
     .in = {{5, {1, 4, 3, 5, 4}}, {5, {1, 2, 3, 2, 2}}, {5, {3, 2, 2, 2, 2}}},
     .attrs = &same_3,
     .no_grad = 4},
    {.n_in = 3,
     .in = {{5, {1, 5, 3, 1, 4}}, {5, {1, 3, 3, 1, 2}}, {5, {3, 2, 3, 2, 2}}},
     .attrs = &same_3,
     .no_grad = 4},
    {0},
};

#define CONV(text, spatial, rule, derivative, some)                                                      \
    .name = text, .variant = spatial, .n_in = 2, .n_out = 1, .dtypes = MU_FLOATS | MU_DTYPE_BIT(MU_I32), \
    .attrs_bytes = sizeof(mu_conv_attrs), .attrs = mu__conv_fields, .infer = rule, .grad = derivative,   \
    .ref = mu__conv_ref, .cpu = {conv_prepare, conv_run, state_free}, .samples = some, .lower = mu__lower_conv

const mu_op mu_op_conv2d = {CONV("conv2d", 2, conv_infer, conv_grad, conv_samples)};
const mu_op mu_op_conv3d = {CONV("conv3d", 3, conv_infer, conv_grad, conv3d_samples)};

const mu_op mu_op_conv2d_input_grad = {
    CONV("conv2d_input_grad", 2, input_grad_infer, input_grad_grad, input_grad_samples), .max_in = 3,
    .shape_only = 1u << 2};
const mu_op mu_op_conv3d_input_grad = {
    CONV("conv3d_input_grad", 3, input_grad_infer, input_grad_grad, conv3d_input_grad_samples), .max_in = 3,
    .shape_only = 1u << 2};

#undef CONV
#define FILTER_GRAD(text, spatial, some)                                                                         \
    .name = text, .variant = spatial, .n_in = 3, .n_out = 1, .dtypes = MU_FLOATS, .shape_only = 1u << 2,         \
    .attrs_bytes = sizeof(mu_conv_attrs), .attrs = mu__conv_fields, .infer = filter_grad_infer,                  \
    .grad = filter_grad_grad, .ref = mu__conv_ref, .cpu = {conv_prepare, conv_run, state_free}, .samples = some, \
    .lower = mu__lower_conv

const mu_op mu_op_conv2d_filter_grad = {FILTER_GRAD("conv2d_filter_grad", 2, filter_grad_samples)};
const mu_op mu_op_conv3d_filter_grad = {FILTER_GRAD("conv3d_filter_grad", 3, conv3d_filter_grad_samples)};
