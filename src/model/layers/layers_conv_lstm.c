// LSTMs over images: as an LSTM, with convolutions in place of the products of matrices, for 1 to 3 spatial axes.
//
// The cell is an LSTM's (cells.c) whose input and state are maps. It has no constructor of its own, as in Keras.
#include "model/core/layer.h"
#include "model/layers/recurrent.h"

#include <muster/ops.h>

// ---- The cell -----------------------------------------------------------------------------------

// What a cell keeps as its state: how its kernels move over the input.
static const mu_conv_args *window_of(const mu_layer *cell) { return cell->state; }

static mu_status state_shape(const mu_layer *cell, const mu_shape *x, mu_shape *out)
{
    const mu_conv_args *window = window_of(cell);
    *out = *x;
    for (int i = 0; i < cell->ops->axes; i++) {
        const int64_t n = x->dims[i + 1], stride = window->strides_per_axis[i];
        const int64_t size = (window->kernel_size_per_axis[i] - 1) * (int64_t)window->dilation_rate_per_axis[i] + 1;
        const int64_t positions = strcmp(window->padding, "same") == 0 ? n : n - size + 1;
        if (n == MU_UNKNOWN || positions < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': spatial axis %d of a step has the size %lld; it must be known, and at least "
                             "that of the kernel, %lld",
                             mu_layer_name(cell), i, (long long)n, (long long)size);
        out->dims[i + 1] = (positions + stride - 1) / stride;
    }
    out->dims[out->rank - 1] = ((const mu_lstm_cell_args *)cell->args)->units;
    return MU_OK;
}

static mu_status conv_lstm_cell_build(mu_layer *cell, int n, const mu_shape *input)
{
    const int *sizes = window_of(cell)->kernel_size_per_axis;
    const int64_t filters = ((const mu_lstm_cell_args *)cell->args)->units;
    mu_shape states;
    MU_TRY(mu__need_spatial(cell, n, input));
    MU_TRY(mu__need_last_axis(cell, input));
    MU_TRY(state_shape(cell, input, &states));
    return mu__cell_weights(cell, mu__kernel_shape(cell, sizes, input->dims[input->rank - 1], 4 * filters),
                            mu__kernel_shape(cell, sizes, filters, 4 * filters), MU_SHAPE(4 * filters), mu__lstm_bias);
}

// The state keeps its size: its convolution has stride 1.
static mu_tensor *convolution(const mu_cell_run *run, mu_tensor *x, mu_tensor *kernel, bool is_state)
{
    static const mu_conv_args over_state = {
        .strides_per_axis = {1, 1, 1}, .dilation_rate_per_axis = {1, 1, 1}, .groups = 1, .padding = "same"};
    return mu__convolve(run->cell->ops->axes, x, kernel, is_state ? &over_state : window_of(run->cell));
}

// The input is convolved step by step, because a convolution has one batch axis.
static mu_tensor *keep_input(const mu_cell_run *run, mu_tensor *x)
{
    (void)run;
    return x;
}

static mu_status conv_lstm_step(const mu_cell_run *run, mu_tensor *x, mu_tensor *const *states, mu_tensor **next)
{
    return mu__lstm_step(run, mu__gates_project(run, x), states, next);
}

static const mu_cell_ops conv_lstm_ops = {
    .sizes = mu__lstm_sizes,
    .output_state = mu__first_state,
    .begin = mu__lstm_begin,
    .project = keep_input,
    .step = conv_lstm_step,
    .product = convolution,
    .state_shape = state_shape,
};

static void conv_lstm_cell_release(mu_layer *cell) { mu__free(cell->state); }

#define CELL(n_axes)                                                                                             \
    {                                                                                                            \
        .class = {"conv_lstm_cell",     "ConvLSTMCell",                                                          \
                  "mu_conv_lstm",       MU_OPTIONS(mu_lstm_cell_args),                                           \
                  mu__lstm_cell_fields, NULL},                                                                   \
        .axes = n_axes, .build = conv_lstm_cell_build, .release = conv_lstm_cell_release, .cell = &conv_lstm_ops \
    }
static const mu_layer_ops cells[] = {CELL(1), CELL(2), CELL(3)};

// ---- The layers ---------------------------------------------------------------------------------

#define CONV_LSTM_FIELDS(axes)                                                                                 \
    {                                                                                                          \
        MU_FIELD(mu_conv_lstm_args, filters, INT, .limit = MU_POSITIVE),                                       \
            MU_WINDOW_FIELDS(mu_conv_lstm_args, axes, mu__paddings), MU_CELL_WEIGHT_FIELDS(mu_conv_lstm_args), \
            MU_LOOP_FIELDS(mu_conv_lstm_args), MU_FIELD(mu_conv_lstm_args, activity_regularizer, REGULARIZER), \
            MU_FIELD(mu_conv_lstm_args, recurrent_activation, ACTIVATION, .text = "sigmoid"),                  \
            MU_FIELD(mu_conv_lstm_args, no_unit_forget_bias, NOT, .keras = "unit_forget_bias"),                \
        {                                                                                                      \
            0                                                                                                  \
        }                                                                                                      \
    }
static const mu_field conv_lstm1d_fields[] = CONV_LSTM_FIELDS(1);
static const mu_field conv_lstm2d_fields[] = CONV_LSTM_FIELDS(2);
static const mu_field conv_lstm3d_fields[] = CONV_LSTM_FIELDS(3);

static mu_status conv_lstm_complete(void *arguments)
{
    const mu_conv_lstm_args *args = arguments;
    int stride = 1, dilation = 1;
    for (int i = 0; i < 3; i++) {
        stride = MU_MAX(stride, args->strides_per_axis[i]);
        dilation = MU_MAX(dilation, args->dilation_rate_per_axis[i]);
    }
    return stride == 1 || dilation == 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "ConvLSTM: strides of %d and a dilation_rate of %d; one of them must be 1", stride,
                           dilation);
}

static mu_layer *make_cell(const mu_layer *layer)
{
    const mu_conv_lstm_args *args = layer->args;
    const mu_lstm_cell_args options = {.size = sizeof options,
                                       MU_CELL_OPTIONS(args, args->filters, conv_lstm_cell),
                                       .recurrent_activation = args->recurrent_activation,
                                       .no_unit_forget_bias = args->no_unit_forget_bias};
    mu_layer *cell = mu__layer_make(&cells[layer->ops->axes - 1], &options);
    mu_conv_args *window = cell ? mu__calloc(1, sizeof *window) : NULL;
    if (!window)
        return NULL;
    memcpy(window->kernel_size_per_axis, args->kernel_size_per_axis, sizeof window->kernel_size_per_axis);
    memcpy(window->strides_per_axis, args->strides_per_axis, sizeof window->strides_per_axis);
    memcpy(window->dilation_rate_per_axis, args->dilation_rate_per_axis, sizeof window->dilation_rate_per_axis);
    window->groups = 1;
    window->padding = mu__paddings[strcmp(args->padding, "same") == 0];
    cell->state = window;
    return cell;
}

static mu_status conv_lstm_make(mu_layer *layer)
{
    const mu_conv_lstm_args *args = layer->args;
    return mu__recurrent_keep(layer, &(mu_recurrent){MU_LOOP_OPTIONS(args)}, make_cell(layer));
}

MU_RECURRENT(conv_lstm1d, "ConvLSTM1D", mu_conv_lstm_args, conv_lstm_make, conv_lstm_complete, 1)
MU_RECURRENT(conv_lstm2d, "ConvLSTM2D", mu_conv_lstm_args, conv_lstm_make, conv_lstm_complete, 2)
MU_RECURRENT(conv_lstm3d, "ConvLSTM3D", mu_conv_lstm_args, conv_lstm_make, conv_lstm_complete, 3)
