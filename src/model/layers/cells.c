// Cells of recurrent layers: simple RNN, LSTM, GRU, and cells stacked on each other.
//
// The kernels of all gates are concatenated, so that a step is one matrix product of the state. With dropout of the
// state each gate drops others of its elements, and the products are done gate by gate, as in Keras.
#include "model/core/layer.h"
#include "model/layers/recurrent.h"

#include <muster/nn.h>
#include <muster/ops.h>

// The options that all cells begin with.
typedef mu_simple_rnn_cell_args cell_args;

static const cell_args *args_of(const mu_layer *cell) { return cell->args; }

// ---- What the gated cells share -----------------------------------------------------------------

mu_status mu__cell_weights(mu_layer *cell, mu_shape kernel, mu_shape recurrent, mu_shape bias,
                           mu_weight_adapt *adapt_bias)
{
    const cell_args *args = args_of(cell);
    mu_weight_options bias_options = *MU_OPTIONS_OF(args, bias);
    bias_options.adapt = adapt_bias;
    MU_TRY(mu__weight(cell, "kernel", kernel, MU_OPTIONS_OF(args, kernel)));
    MU_TRY(mu__weight(cell, "recurrent_kernel", recurrent, MU_OPTIONS_OF(args, recurrent)));
    if (!args->no_bias)
        MU_TRY(mu__weight(cell, "bias", bias, &bias_options));
    return args->dropout > 0 || args->recurrent_dropout > 0
               ? mu__weight_seed(cell, MU_GIVEN(args, seed) ? &args->seed : NULL)
               : MU_OK;
}

static mu_status build_weights(mu_layer *cell, const mu_shape *input, int gates, mu_shape bias,
                               mu_weight_adapt *adapt_bias)
{
    const int64_t units = args_of(cell)->units;
    MU_TRY(mu__need_input_rank(cell, input, 2, 2));
    MU_TRY(mu__need_last_axis(cell, input));
    return mu__cell_weights(cell, MU_SHAPE(input->dims[1], gates * units), MU_SHAPE(units, gates * units), bias,
                            adapt_bias);
}

static mu_status draw_masks(const mu_cell_run *run, mu_tensor *like, double rate, int n, mu_tensor **masks)
{
    for (int i = 0; i < n; i++)
        masks[i] = mu_nn_stateless_dropout(mu_ones_like(like), rate, mu__weight_next_seed(run->cell));
    return mu_error_code();
}

// Dropout of the state makes the gates drop different elements, except in a simple RNN, which has one gate.
static mu_status begin_gates(mu_cell_run *run, int gates, mu_tensor *x, mu_tensor *state)
{
    const cell_args *args = args_of(run->cell);
    const bool drops_state = run->training && args->recurrent_dropout > 0;
    run->kernel = mu__weight_read(run->cell, "kernel");
    run->recurrent = mu__weight_read(run->cell, "recurrent_kernel");
    run->bias = mu__weight_read(run->cell, "bias");
    if (run->training && args->dropout > 0) {
        run->n_input_masks = args->recurrent_dropout > 0 || run->ops->product ? gates : 1;
        MU_TRY(draw_masks(run, x, args->dropout, run->n_input_masks, run->input_masks));
    }
    if (drops_state) {
        run->n_state_masks = gates;
        MU_TRY(draw_masks(run, state, args->recurrent_dropout, gates, run->state_masks));
        MU_TRY(mu_split(run->recurrent, gates, -1, run->gate_recurrent));
    }
    return mu_error_code();
}

static mu_tensor *product(const mu_cell_run *run, mu_tensor *x, mu_tensor *kernel, bool is_state)
{
    return run->ops->product ? run->ops->product(run, x, kernel, is_state) : mu_matmul(x, kernel);
}

mu_tensor *mu__gates_project(const mu_cell_run *run, mu_tensor *x)
{
    mu_tensor *kernels[MAX_GATES], *products[MAX_GATES], *y = NULL;
    const int n = run->n_input_masks;
    if (n <= 1)
        y = product(run, n == 1 ? mu_multiply(x, run->input_masks[0]) : x, run->kernel, false);
    else if (mu_split(run->kernel, n, -1, kernels) == MU_OK) {
        for (int i = 0; i < n; i++)
            products[i] = product(run, mu_multiply(x, run->input_masks[i]), kernels[i], false);
        y = mu__pending() ? NULL : mu_concat(n, products, -1);
    }
    return run->bias ? mu_nn_bias_add(y, run->bias) : y;
}

// The state's part in one gate; `state` may be the state multiplied by something.
static mu_tensor *gate_product(const mu_cell_run *run, mu_tensor *state, int gate)
{
    return product(run, run->n_state_masks ? mu_multiply(state, run->state_masks[gate]) : state,
                   run->gate_recurrent[gate], true);
}

// The state's part in all gates, side by side.
static mu_tensor *state_product(const mu_cell_run *run, mu_tensor *state)
{
    mu_tensor *products[MAX_GATES];
    if (!run->n_state_masks)
        return product(run, state, run->recurrent, true);
    for (int i = 0; i < run->n_state_masks; i++)
        products[i] = gate_product(run, state, i);
    return mu__pending() ? NULL : mu_concat(run->n_state_masks, products, -1);
}

int mu__first_state(const mu_layer *cell)
{
    (void)cell;
    return 0;
}

static int one_state(const mu_layer *cell, int64_t *sizes)
{
    sizes[0] = args_of(cell)->units;
    return 1;
}

// ---- Simple RNN ---------------------------------------------------------------------------------

static const mu_field simple_rnn_cell_fields[] = {MU_CELL_FIELDS(mu_simple_rnn_cell_args), {0}};

static mu_status simple_rnn_cell_build(mu_layer *cell, int n, const mu_shape *inputs)
{
    (void)n;
    return build_weights(cell, inputs, 1, MU_SHAPE(args_of(cell)->units), NULL);
}

static mu_status simple_begin(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states)
{
    return begin_gates(run, 1, x, states[0]);
}

static mu_status simple_step(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next)
{
    next[0] = mu__activate(args_of(run->cell)->activation, mu_add(projected, state_product(run, states[0])));
    return mu_error_code();
}

static const mu_cell_ops simple_ops = {.sizes = one_state,
                                       .output_state = mu__first_state,
                                       .begin = simple_begin,
                                       .project = mu__gates_project,
                                       .step = simple_step};

// ---- LSTM ---------------------------------------------------------------------------------------

const mu_field mu__lstm_cell_fields[] = {
    MU_CELL_FIELDS(mu_lstm_cell_args),
    MU_FIELD(mu_lstm_cell_args, recurrent_activation, ACTIVATION, .text = "sigmoid"),
    MU_FIELD(mu_lstm_cell_args, no_unit_forget_bias, NOT, .keras = "unit_forget_bias"),
    {0},
};

// With 1 in the columns of the forget gate.
mu_tensor *mu__lstm_bias(const mu_layer *cell, mu_tensor *bias)
{
    const mu_lstm_cell_args *args = cell->args;
    mu_tensor *parts[MAX_GATES] = {NULL};
    if (args->no_unit_forget_bias)
        return bias;
    if (mu_split(bias, MAX_GATES, 0, parts) == MU_OK)
        parts[1] = mu_ones_like(parts[1]);
    return mu__pending() ? NULL : mu_concat(MAX_GATES, parts, 0);
}

static mu_status lstm_cell_build(mu_layer *cell, int n, const mu_shape *inputs)
{
    (void)n;
    return build_weights(cell, inputs, 4, MU_SHAPE(4 * (int64_t)args_of(cell)->units), mu__lstm_bias);
}

int mu__lstm_sizes(const mu_layer *cell, int64_t *sizes)
{
    sizes[0] = sizes[1] = args_of(cell)->units;
    return 2;
}

mu_status mu__lstm_begin(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states)
{
    return begin_gates(run, 4, x, states[0]);
}

mu_status mu__lstm_step(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next)
{
    const mu_lstm_cell_args *args = run->cell->args;
    const char *gate = args->recurrent_activation;
    mu_tensor *z[MAX_GATES];
    MU_TRY(mu_split(mu_add(projected, state_product(run, states[0])), 4, -1, z));
    mu_tensor *kept = mu_multiply(mu__activate(gate, z[1]), states[1]);
    next[1] = mu_add(kept, mu_multiply(mu__activate(gate, z[0]), mu__activate(args->activation, z[2])));
    next[0] = mu_multiply(mu__activate(gate, z[3]), mu__activate(args->activation, next[1]));
    return mu_error_code();
}

static const mu_cell_ops lstm_ops = {.sizes = mu__lstm_sizes,
                                     .output_state = mu__first_state,
                                     .begin = mu__lstm_begin,
                                     .project = mu__gates_project,
                                     .step = mu__lstm_step};

// ---- GRU ----------------------------------------------------------------------------------------

static const mu_field gru_cell_fields[] = {
    MU_CELL_FIELDS(mu_gru_cell_args),
    MU_FIELD(mu_gru_cell_args, recurrent_activation, ACTIVATION, .text = "sigmoid"),
    MU_FIELD(mu_gru_cell_args, no_reset_after, NOT, .keras = "reset_after"),
    {0},
};

static mu_status gru_cell_build(mu_layer *cell, int n, const mu_shape *inputs)
{
    (void)n;
    const mu_gru_cell_args *args = cell->args;
    const int64_t columns = 3 * (int64_t)args->units;
    return build_weights(cell, inputs, 3, args->no_reset_after ? MU_SHAPE(columns) : MU_SHAPE(2, columns), NULL);
}

static mu_status gru_begin(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states)
{
    const mu_gru_cell_args *args = run->cell->args;
    mu_tensor *biases[2];
    MU_TRY(begin_gates(run, 3, x, states[0]));
    if (args->no_reset_after)
        return run->n_state_masks ? MU_OK : mu_split(run->recurrent, 3, 1, run->gate_recurrent);
    if (run->bias) {
        MU_TRY(mu_unstack(run->bias, 2, 0, biases));
        run->bias = biases[0];
        run->recurrent_bias = biases[1];
    }
    return mu_error_code();
}

// The candidate's input from the state: the reset gate times the state's product, or the product of both.
static mu_status gru_step(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next)
{
    const mu_gru_cell_args *args = run->cell->args;
    const char *gate = args->recurrent_activation;
    mu_tensor *x[3], *inner[3] = {NULL}, *h = states[0];
    MU_TRY(mu_split(projected, 3, -1, x));
    if (args->no_reset_after) {
        inner[0] = gate_product(run, h, 0);
        inner[1] = gate_product(run, h, 1);
    } else {
        mu_tensor *product = state_product(run, h);
        MU_TRY(mu_split(run->recurrent_bias ? mu_nn_bias_add(product, run->recurrent_bias) : product, 3, -1, inner));
    }
    mu_tensor *update = mu__activate(gate, mu_add(x[0], inner[0]));
    mu_tensor *reset = mu__activate(gate, mu_add(x[1], inner[1]));
    inner[2] = args->no_reset_after ? gate_product(run, mu_multiply(reset, h), 2) : mu_multiply(reset, inner[2]);
    mu_tensor *candidate = mu__activate(args->activation, mu_add(x[2], inner[2]));
    next[0] = mu_add(mu_multiply(update, h), mu_multiply(mu_subtract(mu_ones_like(update), update), candidate));
    return mu_error_code();
}

static const mu_cell_ops gru_ops = {.sizes = one_state,
                                    .output_state = mu__first_state,
                                    .begin = gru_begin,
                                    .project = mu__gates_project,
                                    .step = gru_step};

// ---- Stacked cells ------------------------------------------------------------------------------

typedef struct stacked_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} stacked_args;

static const mu_field stacked_fields[] = {MU_FIELD(stacked_args, name, NAME), {0}};

static int stacked_sizes(const mu_layer *stack, int64_t *sizes)
{
    int64_t of_cell[MU_MAX_CELL_STATES];
    int n = 0;
    for (size_t i = 0; i < stack->sublayers.n; i++) {
        const mu_layer *cell = stack->sublayers.items[i];
        const int more = cell->ops->cell->sizes(cell, of_cell);
        for (int k = 0; k < more && n < MU_MAX_CELL_STATES; k++)
            sizes[n++] = of_cell[k];
    }
    return n;
}

// The output of the last cell.
static int stacked_output(const mu_layer *stack)
{
    int64_t sizes[MU_MAX_CELL_STATES];
    const mu_layer *last = stack->sublayers.items[stack->sublayers.n - 1];
    return stacked_sizes(stack, sizes) - last->ops->cell->sizes(last, sizes) + last->ops->cell->output_state(last);
}

static mu_status stacked_build(mu_layer *stack, int n, const mu_shape *inputs)
{
    (void)n;
    mu_shape input = inputs[0];
    for (size_t i = 0; i < stack->sublayers.n; i++) {
        mu_layer *cell = stack->sublayers.items[i];
        int64_t sizes[MU_MAX_CELL_STATES];
        MU_TRY(mu__layer_build(cell, 1, &input));
        cell->ops->cell->sizes(cell, sizes);
        input = MU_SHAPE(MU_UNKNOWN, sizes[cell->ops->cell->output_state(cell)]);
    }
    return MU_OK;
}

static mu_status stacked_begin(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states)
{
    const int n = (int)run->cell->sublayers.n;
    int64_t sizes[MU_MAX_CELL_STATES];
    if (!(run->inner = mu__calloc((size_t)n, sizeof *run->inner)))
        return MU_RESOURCE_EXHAUSTED;
    for (run->n_inner = 0; run->n_inner < n; run->n_inner++) {
        mu_layer *cell = run->cell->sublayers.items[run->n_inner];
        MU_TRY(mu__cell_begin(&run->inner[run->n_inner], cell, run->training, x, states));
        x = states[cell->ops->cell->output_state(cell)]; // has the shape of the next cell's input
        states += cell->ops->cell->sizes(cell, sizes);
    }
    return MU_OK;
}

static mu_tensor *stacked_project(const mu_cell_run *run, mu_tensor *x)
{
    return run->inner[0].ops->project(&run->inner[0], x);
}

static mu_status stacked_step(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next)
{
    int64_t sizes[MU_MAX_CELL_STATES];
    for (int i = 0; i < run->n_inner; i++) {
        const mu_cell_run *inner = &run->inner[i];
        MU_TRY(inner->ops->step(inner, projected, states, next));
        if (i + 1 < run->n_inner)
            projected = run->inner[i + 1].ops->project(&run->inner[i + 1], next[inner->ops->output_state(inner->cell)]);
        const int n = inner->ops->sizes(inner->cell, sizes);
        states += n;
        next += n;
    }
    return mu_error_code();
}

static const mu_cell_ops stacked_ops = {.sizes = stacked_sizes,
                                        .output_state = stacked_output,
                                        .begin = stacked_begin,
                                        .project = stacked_project,
                                        .step = stacked_step};

// ---- Calls --------------------------------------------------------------------------------------

mu_status mu__cell_begin(mu_cell_run *run, mu_layer *cell, bool training, mu_tensor *x, mu_tensor *const *states)
{
    *run = (mu_cell_run){.cell = cell, .ops = cell->ops->cell, .training = training};
    return run->ops->begin(run, x, states);
}

void mu__cell_end(mu_cell_run *run)
{
    for (int i = 0; i < run->n_inner; i++)
        mu__cell_end(&run->inner[i]);
    mu__free(run->inner);
    run->inner = NULL;
    run->n_inner = 0;
}

// One step by itself: a list of x and the states gives a list of the output and the next states.
static mu_value *cell_call(mu_layer *cell, mu_value *inputs, const mu_call_context *context)
{
    const mu_cell_ops *ops = cell->ops->cell;
    int64_t sizes[MU_MAX_CELL_STATES];
    mu_tensor *states[MU_MAX_CELL_STATES], *next[MU_MAX_CELL_STATES];
    mu_value *outputs[MU_MAX_CELL_STATES + 1];
    const int n = ops->sizes(cell, sizes);
    if (mu_value_count(inputs) != n + 1) {
        mu__error(MU_INVALID_ARGUMENT, "layer '%s' is called with a list of x and %d states; it was given %d tensors",
                  mu_layer_name(cell), n, mu_value_count(inputs));
        return NULL;
    }
    for (int i = 0; i < n; i++)
        states[i] = mu_at(inputs, i + 1);
    mu_cell_run run;
    mu_status status = mu__cell_begin(&run, cell, context->training, mu_at(inputs, 0), states);
    if (status == MU_OK)
        status = ops->step(&run, ops->project(&run, mu_at(inputs, 0)), states, next);
    mu__cell_end(&run);
    if (status != MU_OK)
        return NULL;
    for (int i = 0; i < n; i++)
        outputs[i + 1] = mu_of(next[i]);
    outputs[0] = mu_of(next[ops->output_state(cell)]);
    return mu_list_of(n + 1, outputs);
}

// A word's class, and the function that makes such a cell.
#define CELL(word, keras_class, its_fields, operations)                                             \
    const mu_layer_ops mu__##word##_ops = {                                                         \
        .class = {#word, keras_class, "mu_" #word, MU_OPTIONS(mu_##word##_args), its_fields, NULL}, \
        .takes_several = true,                                                                      \
        .cell = &operations,                                                                        \
        .build = word##_build,                                                                      \
        .call = cell_call,                                                                          \
    };                                                                                              \
    mu_layer *mu_##word##_with(const mu_##word##_args *args) { return mu__layer_make(&mu__##word##_ops, args); }

CELL(simple_rnn_cell, "SimpleRNNCell", simple_rnn_cell_fields, simple_ops)
CELL(lstm_cell, "LSTMCell", mu__lstm_cell_fields, lstm_ops)
CELL(gru_cell, "GRUCell", gru_cell_fields, gru_ops)

const mu_layer_ops mu__stacked_rnn_cells_ops = {
    .class = {"stacked_rnn_cells", "StackedRNNCells", "mu_stacked_rnn_cells", MU_OPTIONS(stacked_args), stacked_fields,
              NULL},
    .takes_several = true,
    .cell = &stacked_ops,
    .build = stacked_build,
    .call = cell_call,
};

static mu_status adopt_cells(mu_layer *stack, mu_layer *const *cells)
{
    int64_t sizes[MU_MAX_CELL_STATES];
    int n = 0, states = 0;
    for (; (const void *)cells[n] != MU_END; n++) {
        if (!cells[n] || !cells[n]->ops->cell)
            return mu__error(MU_INVALID_ARGUMENT, "mu_stacked_rnn_cells: %s %d is %s; give cells such as mu_lstm_cell",
                             cells[n] ? "layer" : "cell", n, cells[n] ? mu_layer_name(cells[n]) : "NULL");
        states += cells[n]->ops->cell->sizes(cells[n], sizes);
        if (states > MU_MAX_CELL_STATES)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_stacked_rnn_cells: the first %d cells have %d states; at most %d are supported", n + 1,
                             states, MU_MAX_CELL_STATES);
        MU_TRY(mu__layer_adopt(stack, cells[n]));
    }
    return n > 0 ? mu__layer_name_sublayers(stack, "mu_stacked_rnn_cells")
                 : mu__error(MU_INVALID_ARGUMENT, "mu_stacked_rnn_cells: there are no cells");
}

mu_layer *mu_stacked_rnn_cells_of(mu_layer *const *cells)
{
    if (mu__pending() || mu__need(cells, "mu_stacked_rnn_cells_of: the list") != MU_OK)
        return NULL;
    mu_layer *stack = mu__layer_make(&mu__stacked_rnn_cells_ops, NULL);
    return stack && adopt_cells(stack, cells) == MU_OK ? stack : NULL;
}
