// Recurrent layers: a cell in a loop over time.
//
// The loop is mu_scan, so it runs eagerly, in traces of any length and on replicas, and has gradients. A masked step
// keeps the states. Where the output is one of the states, the stack of this state is the output of all steps.
#include "model/core/layer.h"
#include "model/layers/recurrent.h"

#include <muster/control.h>
#include <muster/ops.h>

mu_recurrent *mu__recurrent_of(const mu_layer *layer)
{
    return layer->ops->call == mu__recurrent_call ? layer->state : NULL;
}

static mu_layer *cell_of(const mu_layer *layer) { return layer->sublayers.items[0]; }

// ---- One step -----------------------------------------------------------------------------------

// A call of a recurrent layer. The loop carries the states and, where it is not one of them, the output.
typedef struct sequence {
    const mu_recurrent *options;
    mu_layer *cell;
    mu_cell_run run;         // of a cell of ours
    mu_call_context context; // of a cell of the program's own
    bool masked, carries_output;
    int n_states;
    mu_tensor *states[MU_MAX_CELL_STATES + 1];
} sequence;

// A cell of the program's own is a layer that takes and returns lists; its output is appended to its states.
static mu_status step_own_cell(const sequence *s, mu_tensor *x, mu_tensor *const *states, mu_tensor **next)
{
    mu_value *inputs[MU_MAX_CELL_STATES + 1] = {mu_of(x)};
    if (!s->cell->ops->takes_several)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' (%s) takes one tensor, but a cell with %d states takes a list of its input and "
                         "the states, and returns a list of its output and %d states",
                         mu_layer_name(s->cell), mu__layer_keras_class(s->cell), s->n_states, s->n_states);
    for (int i = 0; i < s->n_states; i++)
        inputs[i + 1] = mu_of(states[i]);
    mu_value *outputs = mu__layer_call(s->cell, mu_list_of(s->n_states + 1, inputs), &s->context, NULL);
    if (!outputs)
        return mu_error_code();
    if (mu_value_count(outputs) != s->n_states + 1)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "layer '%s' returned %d tensors; a cell with %d states returns a list of its output and %d states",
            mu_layer_name(s->cell), mu_value_count(outputs), s->n_states, s->n_states);
    for (int i = 0; i < s->n_states; i++)
        next[i] = mu_at(outputs, i + 1);
    next[s->n_states] = mu_at(outputs, 0);
    return mu_error_code();
}

static mu_status step_cell(const sequence *s, mu_tensor *x, mu_tensor *const *states, mu_tensor **next)
{
    if (!s->cell->ops->cell)
        return step_own_cell(s, x, states, next);
    MU_TRY(s->run.ops->step(&s->run, x, states, next));
    if (s->carries_output)
        next[s->n_states] = next[s->options->output_state];
    return MU_OK;
}

// The loop's body: `element` is a list of the step's input and, if there is one, its mask [batch, 1].
static mu_value *one_step(mu_value *state, mu_value *element, void *arg)
{
    const sequence *s = arg;
    const int n = s->n_states + s->carries_output;
    mu_tensor *states[MU_MAX_CELL_STATES + 1], *next[MU_MAX_CELL_STATES + 1];
    mu_value *values[MU_MAX_CELL_STATES + 1];
    for (int i = 0; i < n; i++)
        states[i] = mu_at(state, i);
    if (step_cell(s, mu_at(element, 0), states, next) != MU_OK)
        return NULL;
    mu_tensor *mask = s->masked ? mu_at(element, 1) : NULL;
    for (int i = 0; i < n; i++)
        values[i] = mu_of(mask ? mu_where(mask, next[i], states[i]) : next[i]);
    return mu_list_of(n, values);
}

// ---- All steps ----------------------------------------------------------------------------------

static mu_value *states_value(const sequence *s)
{
    mu_value *values[MU_MAX_CELL_STATES + 1];
    const int n = s->n_states + s->carries_output;
    for (int i = 0; i < n; i++)
        values[i] = mu_of(s->states[i]);
    return mu_list_of(n, values);
}

static mu_tensor *row(mu_tensor *stack, int64_t i)
{
    const int64_t begin[MU_MAX_RANK] = {i};
    int64_t size[MU_MAX_RANK] = {1};
    for (int k = 1; k < mu_tensor_rank(stack); k++)
        size[k] = -1;
    return stack ? mu_squeeze(mu_slice(stack, begin, size), 0) : NULL;
}

// Stacks tensor k of the states of all steps.
static mu_tensor *stack_steps(mu_value *const *states, int64_t n, int k)
{
    mu_tensor **rows = mu__calloc((size_t)n + 1, sizeof *rows), *stack = NULL;
    bool whole = rows != NULL;
    for (int64_t t = 0; whole && t < n; t++)
        whole = (rows[t] = mu_at(states[t], k)) != NULL;
    if (whole)
        stack = mu_stack((int)n, rows, 0);
    mu__free(rows);
    return stack;
}

// The same as mu_scan with a copy of the step's ops for each step.
static mu_value *unrolled(sequence *s, mu_value *elements, int64_t n)
{
    mu_value **states = mu__calloc((size_t)n + 1, sizeof *states), *state = states_value(s);
    mu_value *stacks[MU_MAX_CELL_STATES + 1];
    const int carried = s->n_states + s->carries_output;
    bool whole = states && state;
    for (int64_t i = 0; whole && i < n; i++) {
        const int64_t t = s->options->backwards ? n - 1 - i : i;
        mu_value *x = mu_of(row(mu_at(elements, 0), t));
        mu_value *element = s->masked ? mu_list(x, mu_of(row(mu_at(elements, 1), t)), MU_END) : mu_list(x, MU_END);
        state = states[t] = element ? one_step(state, element, s) : NULL;
        whole = state != NULL;
    }
    for (int k = 0; whole && k < carried; k++)
        whole = (stacks[k] = mu_of(stack_steps(states, n, k))) != NULL;
    mu__free(states);
    return whole ? mu_list_of(carried, stacks) : NULL;
}

static mu_value *run_steps(sequence *s, mu_value *elements, const mu_layer *layer)
{
    const int64_t n = mu_tensor_dim(mu_at(elements, 0), 0);
    if (!s->options->unroll)
        return mu_scan(one_step, elements, states_value(s), s, .reverse = s->options->backwards);
    if (n != MU_UNKNOWN)
        return unrolled(s, elements, n);
    mu__error(MU_INVALID_ARGUMENT,
              "layer '%s': unroll needs a known number of steps, and here it is unknown; leave unroll out, or give the "
              "shape of the input",
              mu_layer_name(layer));
    return NULL;
}

// ---- Before and behind the loop -----------------------------------------------------------------

// Exchanges the batch and the steps.
static mu_tensor *swap_time(mu_tensor *x)
{
    int axes[MU_MAX_RANK] = {1, 0};
    for (int i = 2; i < mu_tensor_rank(x); i++)
        axes[i] = i;
    return x ? mu_transpose(x, axes) : NULL;
}

// Zeros in the shape of a state, as many rows as `first` [batch, …] has.
static mu_tensor *zero_state(const sequence *s, mu_tensor *first, int64_t size)
{
    mu_shape shape = MU_SHAPE(1, size);
    const mu_cell_ops *ops = s->cell->ops->cell;
    if (!first || (ops && ops->state_shape && ops->state_shape(s->cell, &first->shape, &shape) != MU_OK))
        return NULL;
    const int64_t begin[MU_MAX_RANK] = {0};
    mu_shape column = {.rank = first->shape.rank, .dims = {-1}}, rows = {.rank = shape.rank, .dims = {MU_UNKNOWN}};
    for (int i = 1; i < MU_MAX_RANK; i++)
        column.dims[i] = rows.dims[i] = 1;
    mu_tensor *zeros = mu_reshape(mu_zeros_like(mu_slice(first, begin, column.dims)), rows.rank, rows.dims);
    shape.dims[0] = 1;
    return zeros ? mu_add(zeros, mu_zeros(zeros->dtype, shape.rank, shape.dims)) : NULL;
}

// The states that the caller gave after the sequence, those of the previous batch, or zeros.
static mu_status first_states(sequence *s, mu_layer *layer, const mu_value *inputs, mu_tensor *first)
{
    const bool kept = s->options->stateful;
    const int given = mu_value_count(inputs) - 1;
    if (given != 0 && given != s->n_states)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' takes a sequence, or a list of a sequence and %d states; it was given %d tensors",
                         mu_layer_name(layer), s->n_states, given + 1);
    for (int i = 0; i < s->n_states; i++)
        if (given)
            s->states[i] = mu_at(inputs, i + 1);
        else if ((s->states[i] = zero_state(s, first, s->options->sizes[i])) && kept)
            s->states[i] = mu__kept_state(layer, i, s->states[i]);
    // With a mask, the output before the first step is zero, which the given states are not.
    s->carries_output = s->options->output_state < 0 || (s->masked && (given || kept) && !s->options->zero_for_mask);
    if (s->carries_output)
        s->states[s->n_states] = zero_state(s, first, s->options->output_size);
    return mu_error_code();
}

static mu_status begin(sequence *s, mu_layer *layer, mu_value *inputs, const mu_call_context *context,
                       mu_value **elements)
{
    mu_tensor *x = swap_time(mu_at(inputs, 0)), *mask = mu__mask_at(context->mask, 0);
    mu_tensor *first = x ? row(x, 0) : NULL;
    *s = (sequence){.options = layer->state,
                    .cell = cell_of(layer),
                    .masked = mask != NULL,
                    .context = {.training = context->training}};
    s->n_states = s->options->n_states;
    if (!first || first_states(s, layer, inputs, first) != MU_OK)
        return mu_error_code();
    mask = mu__step_mask(layer, mu_at(inputs, 0), mask, 2);
    if (mu__pending())
        return mu_error_code();
    if (s->cell->ops->cell) {
        MU_TRY(mu__cell_begin(&s->run, s->cell, context->training, first, s->states));
        x = s->run.ops->project(&s->run, x);
    }
    if (!mask) {
        *elements = mu_list(x, MU_END);
        return mu_error_code();
    }
    mask = swap_time(mu_cast(mask, MU_BOOL));
    for (int i = 1; mask && i < mu_tensor_rank(s->states[0]); i++) // one for each row of the states
        mask = mu_expand_dims(mask, -1);
    *elements = mu_list(x, mask, MU_END);
    return mu_error_code();
}

// The row of the step that was computed last.
static mu_tensor *last_row(const mu_recurrent *options, mu_tensor *stack)
{
    const int64_t n = mu_tensor_dim(stack, 0);
    if (options->backwards || n != MU_UNKNOWN)
        return row(stack, options->backwards ? 0 : n - 1);
    return mu_gather(stack, mu_subtract(mu_dim_size(stack, 0), mu_constant(MU_I64, 1)), 0, 0);
}

static mu_value *outputs_of(const sequence *s, mu_layer *layer, const mu_value *stacks, const mu_value *elements)
{
    mu_tensor *last[MU_MAX_CELL_STATES];
    const mu_recurrent *options = s->options;
    mu_value *values[MU_MAX_CELL_STATES + 1];
    mu_tensor *all = mu_at(stacks, s->carries_output ? s->n_states : options->output_state);
    if (s->masked && options->zero_for_mask)
        all = mu_where(mu_at(elements, 1), all, mu_zeros_like(all));
    if (options->sequences)
        values[0] = mu_of(swap_time(options->backwards && !options->in_time_order ? mu_reverse(all, 0) : all));
    else
        values[0] = all ? mu_of(last_row(options, all)) : NULL;
    if (!all || !(options->last_states || options->stateful))
        return values[0];
    for (int i = 0; i < s->n_states; i++)
        values[i + 1] = (last[i] = last_row(options, mu_at(stacks, i))) ? mu_of(last[i]) : NULL;
    if (mu__pending() || (options->stateful && mu__keep_states(layer, s->n_states, last) != MU_OK))
        return NULL;
    return options->last_states ? mu_list_of(s->n_states + 1, values) : values[0];
}

// The mask of the output; the states have none.
static void set_mask(const mu_recurrent *options, const mu_call_context *context)
{
    mu_tensor *mask = options->sequences ? mu__mask_at(context->mask, 0) : NULL;
    if (!mask || !options->last_states) {
        mu_call_set_mask(context, mask ? mu_of(mask) : NULL);
        return;
    }
    mu_value *masks[MU_MAX_CELL_STATES + 1] = {mu_of(mask)};
    for (int i = 0; i < options->n_states; i++)
        masks[i + 1] = mu_list_of(0, NULL);
    mu_call_set_mask(context, mu_list_of(options->n_states + 1, masks));
}

mu_value *mu__recurrent_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    sequence s;
    mu_value *elements = NULL, *outputs = NULL;
    const mu_status status = begin(&s, layer, inputs, context, &elements);
    mu_value *stacks = status == MU_OK ? run_steps(&s, elements, layer) : NULL;
    if (stacks)
        outputs = outputs_of(&s, layer, stacks, elements);
    mu__cell_end(&s.run);
    set_mask(s.options, context);
    return outputs;
}

mu_status mu__recurrent_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    (void)n;
    mu_layer *cell = cell_of(layer);
    const int rank = 3 + layer->ops->axes;
    MU_TRY(mu__need_input_rank(layer, inputs, rank, cell->ops->cell ? rank : MU_MAX_RANK));
    mu_shape step = {.rank = inputs->rank - 1, .dims = {MU_UNKNOWN}};
    for (int i = 1; i < step.rank; i++)
        step.dims[i] = inputs->dims[i + 1];
    if (cell->ops->cell)
        return mu__layer_build(cell, 1, &step);
    const mu_recurrent *options = layer->state;
    mu_shape shapes[MU_MAX_CELL_STATES + 1] = {step};
    for (int i = 0; i < options->n_states; i++)
        shapes[i + 1] = MU_SHAPE(MU_UNKNOWN, options->sizes[i]);
    return mu__layer_build(cell, options->n_states + 1, shapes);
}

// ---- Making a layer -----------------------------------------------------------------------------

void mu__recurrent_release(mu_layer *layer) { mu__free(layer->state); }

mu_status mu__recurrent_keep(mu_layer *layer, const mu_recurrent *options, mu_layer *cell)
{
    if (!cell || !(layer->state = mu__alloc(sizeof *options)))
        return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
    mu_recurrent *kept = layer->state;
    *kept = *options;
    if (cell->ops->cell) {
        kept->n_states = cell->ops->cell->sizes(cell, kept->sizes);
        kept->output_state = cell->ops->cell->output_state(cell);
        kept->output_size = kept->sizes[kept->output_state];
    }
    MU_TRY(mu__layer_adopt(layer, cell));
    return mu__layer_name_sublayers(layer, layer->ops->class.function);
}

static const mu_field rnn_fields[] = {
    MU_FIELD(mu_rnn_args, cell, LAYER),
    MU_LOOP_FIELDS(mu_rnn_args),
    MU_FIELD(mu_rnn_args, output_size, INT64, .limit = MU_NOT_NEGATIVE, .internal = true),
    MU_LAYER_FIELDS(mu_rnn_args),
    {0},
};

static mu_status rnn_complete(void *arguments)
{
    const mu_rnn_args *args = arguments;
    MU_TRY(mu__need(args->cell, "mu_rnn: the cell"));
    for (int i = 0; i < MU_MAX_CELL_STATES && args->state_size[i] != 0; i++)
        if (args->state_size[i] < 0)
            return mu__error(MU_INVALID_ARGUMENT, "mu_rnn: state_size[%d] is %lld; it must be 1 or more", i,
                             (long long)args->state_size[i]);
    if (!args->cell->ops->cell && args->state_size[0] == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_rnn: layer '%s' is not one of Muster's cells; give the sizes of its states as .state_size",
                         mu_layer_name(args->cell));
    return MU_OK;
}

static mu_status rnn_make(mu_layer *layer)
{
    const mu_rnn_args *args = layer->args;
    mu_recurrent options = {MU_LOOP_OPTIONS(args), .output_state = -1};
    while (options.n_states < MU_MAX_CELL_STATES && args->state_size[options.n_states] != 0) {
        options.sizes[options.n_states] = args->state_size[options.n_states];
        options.n_states++;
    }
    options.output_size = args->output_size ? args->output_size : options.sizes[0];
    return mu__recurrent_keep(layer, &options, args->cell);
}

static const mu_field simple_rnn_fields[] = {
    MU_CELL_FIELDS(mu_simple_rnn_args),
    MU_LOOP_FIELDS(mu_simple_rnn_args),
    MU_FIELD(mu_simple_rnn_args, activity_regularizer, REGULARIZER),
    {0},
};

static mu_status simple_rnn_make(mu_layer *layer)
{
    const mu_simple_rnn_args *args = layer->args;
    const mu_simple_rnn_cell_args cell = {.size = sizeof cell, MU_CELL_OPTIONS(args, args->units, simple_rnn_cell)};
    return mu__recurrent_keep(layer, &(mu_recurrent){MU_LOOP_OPTIONS(args)}, mu_simple_rnn_cell_with(&cell));
}

static const mu_field lstm_fields[] = {
    MU_CELL_FIELDS(mu_lstm_args),
    MU_LOOP_FIELDS(mu_lstm_args),
    MU_FIELD(mu_lstm_args, activity_regularizer, REGULARIZER),
    MU_FIELD(mu_lstm_args, recurrent_activation, ACTIVATION, .text = "sigmoid"),
    MU_FIELD(mu_lstm_args, no_unit_forget_bias, NOT, .keras = "unit_forget_bias"),
    {0},
};

static mu_status lstm_make(mu_layer *layer)
{
    const mu_lstm_args *args = layer->args;
    const mu_lstm_cell_args cell = {.size = sizeof cell,
                                    MU_CELL_OPTIONS(args, args->units, lstm_cell),
                                    .recurrent_activation = args->recurrent_activation,
                                    .no_unit_forget_bias = args->no_unit_forget_bias};
    return mu__recurrent_keep(layer, &(mu_recurrent){MU_LOOP_OPTIONS(args)}, mu_lstm_cell_with(&cell));
}

static const mu_field gru_fields[] = {
    MU_CELL_FIELDS(mu_gru_args),
    MU_LOOP_FIELDS(mu_gru_args),
    MU_FIELD(mu_gru_args, activity_regularizer, REGULARIZER),
    MU_FIELD(mu_gru_args, recurrent_activation, ACTIVATION, .text = "sigmoid"),
    MU_FIELD(mu_gru_args, no_reset_after, NOT, .keras = "reset_after"),
    {0},
};

static mu_status gru_make(mu_layer *layer)
{
    const mu_gru_args *args = layer->args;
    const mu_gru_cell_args cell = {.size = sizeof cell,
                                   MU_CELL_OPTIONS(args, args->units, gru_cell),
                                   .recurrent_activation = args->recurrent_activation,
                                   .no_reset_after = args->no_reset_after};
    return mu__recurrent_keep(layer, &(mu_recurrent){MU_LOOP_OPTIONS(args)}, mu_gru_cell_with(&cell));
}

MU_RECURRENT(rnn, "RNN", mu_rnn_args, rnn_make, rnn_complete, 0)
MU_RECURRENT(simple_rnn, "SimpleRNN", mu_simple_rnn_args, simple_rnn_make, NULL, 0)
MU_RECURRENT(lstm, "LSTM", mu_lstm_args, lstm_make, NULL, 0)
MU_RECURRENT(gru, "GRU", mu_gru_args, gru_make, NULL, 0)
