// Internal interface of recurrent layers: what a cell is to the loop over time, and what a recurrent layer keeps.
//
// A cell's step is cut in two: `project` is what does not depend on the state, which the loop does for all steps at
// once, and `step` is the rest.
#ifndef MU_SRC_MODEL_RECURRENT_H
#define MU_SRC_MODEL_RECURRENT_H

#include "model/core/layer.h"

#include <muster/recurrent.h>

enum { MAX_GATES = 4 };

// What a cell prepares for all steps of one call. Tensors are borrowed.
typedef struct mu_cell_run mu_cell_run;
struct mu_cell_run {
    mu_layer *cell;
    const mu_cell_ops *ops;
    bool training;
    mu_tensor *kernel, *recurrent, *bias;
    mu_tensor *recurrent_bias;            // of a GRU; NULL: none
    mu_tensor *gate_recurrent[MAX_GATES]; // the columns of `recurrent` by gate, where steps need them apart
    int n_input_masks, n_state_masks;     // of dropout: 0, 1 for all gates, or one for each
    mu_tensor *input_masks[MAX_GATES], *state_masks[MAX_GATES];
    int n_inner;        // of stacked cells
    mu_cell_run *inner; // owned
};

struct mu_cell_ops {
    // sizes writes the sizes of the states, and returns how many there are.
    int (*sizes)(const mu_layer *cell, int64_t sizes[MU_MAX_CELL_STATES]);
    int (*output_state)(const mu_layer *cell); // which of the states is the output too
    // begin reads the weights and draws what is dropped; x: [batch, features], the states: [batch, size].
    mu_status (*begin)(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states);
    // project computes what of a step, or of several, does not depend on the state; x: [steps…, batch, features].
    mu_tensor *(*project)(const mu_cell_run *run, mu_tensor *x);
    // step computes the next states from what project returned for the step. Returns NULL in `next` on error.
    mu_status (*step)(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next);
    // product applies a kernel to the step's input, or to the state. Optional: the product of matrices.
    mu_tensor *(*product)(const mu_cell_run *run, mu_tensor *x, mu_tensor *kernel, bool is_state);
    // state_shape writes the shape of the states for an input of the shape `x`. Optional: [batch, size].
    mu_status (*state_shape)(const mu_layer *cell, const mu_shape *x, mu_shape *out);
};

// What cells with gates have in common (cells.c). mu__cell_weights makes the weights of a cell, and its seed if it
// drops; adapt_bias: NULL, or mu__lstm_bias. mu__gates_project is `project`. mu__lstm_sizes and the others are slots of
// an LSTM, whose options are mu_lstm_cell_args.
mu_status mu__cell_weights(mu_layer *cell, mu_shape kernel, mu_shape recurrent, mu_shape bias,
                           mu_weight_adapt *adapt_bias);
mu_tensor *mu__gates_project(const mu_cell_run *run, mu_tensor *x);
mu_weight_adapt mu__lstm_bias;
int mu__lstm_sizes(const mu_layer *cell, int64_t *sizes);
int mu__first_state(const mu_layer *cell);
mu_status mu__lstm_begin(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states);
mu_status mu__lstm_step(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next);
extern const mu_field mu__lstm_cell_fields[];

// mu__cell_begin prepares a built cell; mu__cell_end frees what that allocated, also after an error.
mu_status mu__cell_begin(mu_cell_run *run, mu_layer *cell, bool training, mu_tensor *x, mu_tensor *const *states);
void mu__cell_end(mu_cell_run *run);

// The fields of the options that cells, and the layers made of one cell, begin with.
#define MU_CELL_FIELDS(type) MU_FIELD(type, units, INT, .limit = MU_POSITIVE), MU_CELL_WEIGHT_FIELDS(type)
#define MU_CELL_WEIGHT_FIELDS(type)                                                                            \
    MU_FIELD(type, activation, ACTIVATION, .text = "tanh"), MU_FIELD(type, no_bias, NOT, .keras = "use_bias"), \
        MU_FIELD_WEIGHT(type, kernel, "glorot_uniform"), MU_FIELD_WEIGHT(type, recurrent, "orthogonal"),       \
        MU_FIELD_WEIGHT(type, bias, "zeros"), MU_FIELD(type, dropout, DOUBLE, .limit = MU_BELOW_ONE),          \
        MU_FIELD(type, recurrent_dropout, DOUBLE, .limit = MU_BELOW_ONE), MU_FIELD(type, seed, SEED),          \
        MU_LAYER_FIELDS(type)

// What a recurrent layer keeps as its state.
typedef struct mu_recurrent {
    bool sequences, last_states, backwards, unroll, zero_for_mask, stateful; // the options of these names
    bool in_time_order; // outputs of a layer that goes backwards are in the order of time
    int n_states;
    int64_t sizes[MU_MAX_CELL_STATES], output_size;
    int output_state; // which state is the output too; -1: none
} mu_recurrent;
mu_recurrent *mu__recurrent_of(const mu_layer *layer); // NULL: it is not a recurrent layer

// What the class of a recurrent layer has in common with the others (layers_recurrent.c). mu__recurrent_keep completes
// a new layer: it keeps the options, and makes the cell part of the layer.
mu_status mu__recurrent_keep(mu_layer *layer, const mu_recurrent *options, mu_layer *cell);
mu_status mu__recurrent_build(mu_layer *layer, int n, const mu_shape *inputs);
mu_value *mu__recurrent_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context);
void mu__recurrent_release(mu_layer *layer);

// The states of a stateful layer (recurrent_states.c). mu__kept_state returns state i of this replica's sequences,
// which is made with zeros if it is missing; `zeros` has its shape. mu__keep_states writes all of them. Errors:
// INVALID_ARGUMENT for another number of sequences than the states have.
mu_tensor *mu__kept_state(mu_layer *layer, int i, mu_tensor *zeros);
mu_status mu__keep_states(mu_layer *layer, int n, mu_tensor *const *states);

// Those options of a layer's cell, which has Keras's name for it; `n` is the size of its states.
#define MU_CELL_OPTIONS(args, n, cell_name)                                                                   \
    .given = (args)->given, .units = n, .activation = (args)->activation, .no_bias = (args)->no_bias,         \
    .kernel_initializer = (args)->kernel_initializer, .recurrent_initializer = (args)->recurrent_initializer, \
    .bias_initializer = (args)->bias_initializer, .kernel_regularizer = (args)->kernel_regularizer,           \
    .recurrent_regularizer = (args)->recurrent_regularizer, .bias_regularizer = (args)->bias_regularizer,     \
    .kernel_constraint = (args)->kernel_constraint, .recurrent_constraint = (args)->recurrent_constraint,     \
    .bias_constraint = (args)->bias_constraint, .dropout = (args)->dropout,                                   \
    .recurrent_dropout = (args)->recurrent_dropout, .seed = (args)->seed, .name = #cell_name

#define MU_LOOP_OPTIONS(args)                                                                                      \
    .sequences = (args)->return_sequences, .last_states = (args)->return_state, .backwards = (args)->go_backwards, \
    .unroll = (args)->unroll, .zero_for_mask = (args)->zero_output_for_mask, .stateful = (args)->stateful

#define MU_LOOP_FIELDS(type)                                                                                        \
    MU_FIELD(type, return_sequences, FLAG), MU_FIELD(type, return_state, FLAG), MU_FIELD(type, go_backwards, FLAG), \
        MU_FIELD(type, stateful, FLAG), MU_FIELD(type, unroll, FLAG), MU_FIELD(type, zero_output_for_mask, FLAG)

// A word's class, and the function that makes such a layer.
#define MU_RECURRENT(word, keras_class, args_type, makes, completes, n_axes)                         \
    const mu_layer_ops mu__##word##_ops = {                                                          \
        .class = {#word, keras_class, "mu_" #word, MU_OPTIONS(args_type), word##_fields, completes}, \
        .axes = n_axes,                                                                              \
        .takes_several = true,                                                                       \
        .make = makes,                                                                               \
        .build = mu__recurrent_build,                                                                \
        .call = mu__recurrent_call,                                                                  \
        .release = mu__recurrent_release,                                                            \
    };                                                                                               \
    mu_layer *mu_##word##_with(const args_type *args) { return mu__layer_make(&mu__##word##_ops, args); }

#endif
