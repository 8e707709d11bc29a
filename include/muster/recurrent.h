// Recurrent layers as in Keras: LSTM, GRU, simple RNN, their cells, layers around any cell, and wrappers.
//
// Sequences have shape [batch, steps, features]. A recurrent layer returns [batch, units], the output of the last step,
// or with .return_sequences [batch, steps, units]. With .return_state its outputs are a list: the output, then the
// last states [batch, units] (mu_call_values). Called with .inputs = mu_list(sequence, state, …, MU_END), it begins
// with these states instead of zeros.
//
// With .stateful a layer keeps its last states: sequence i of a batch continues where sequence i of the batch before
// ended, until mu_layer_reset_states. All batches then have as many sequences as the first, which mu_input's
// .batch_size says to a model for mu_fit. The states are no weights: mu_save_model leaves them out, as Keras does;
// checkpoints and backups have them. Any number of replicas computes what one would.
//
// A mask [batch, steps] (of mu_embedding's .mask_zero, mu_masking, or mu_call's .mask) leaves steps out: states stay,
// and the output of the step before is repeated. Names of activations and initializers are those of muster/layer.h.
//
// Errors: as for all layers (muster/layer.h).
#ifndef MUSTER_RECURRENT_H
#define MUSTER_RECURRENT_H

#include <muster/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Layers -------------------------------------------------------------------------------------

typedef struct mu_simple_rnn_args {
    size_t size;
    const char *given;
    int units; // size of the state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout;           // share of the input's features dropped in training, alike in all steps
    double recurrent_dropout; // share of the state dropped in training, alike in all steps
    uint64_t seed;            // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    bool return_sequences;                   // return the outputs of all steps
    bool return_state;                       // return the last states too
    bool go_backwards;                       // from the last step to the first; outputs are in that order
    bool unroll;                             // a copy of the step's ops for each step, instead of a loop
    bool stateful;                           // a batch begins with the states that the batch before ended with
    bool zero_output_for_mask;               // a step that the mask leaves out gives zeros
    mu_any_regularizer activity_regularizer; // of the output
} mu_simple_rnn_args;
// mu_simple_rnn makes a recurrent layer: h' = activation(x · kernel + h · recurrent_kernel + bias). State: h.
#define mu_simple_rnn(...) mu_simple_rnn_with(MU_ARGS(mu_simple_rnn_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_simple_rnn_with(const mu_simple_rnn_args *args);

typedef struct mu_lstm_args {
    size_t size;
    const char *given;
    int units; // size of each state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout;           // share of the input's features dropped in training, alike in all steps
    double recurrent_dropout; // share of the state dropped in training, alike in all steps
    uint64_t seed;            // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    bool return_sequences;                   // return the outputs of all steps
    bool return_state;                       // return the last states too
    bool go_backwards;                       // from the last step to the first; outputs are in that order
    bool unroll;                             // a copy of the step's ops for each step, instead of a loop
    bool stateful;                           // a batch begins with the states that the batch before ended with
    bool zero_output_for_mask;               // a step that the mask leaves out gives zeros
    mu_any_regularizer activity_regularizer; // of the output
    const char *recurrent_activation;        // of the gates; default "sigmoid"
    bool no_unit_forget_bias;                // the forget gate's bias does not begin with 1
} mu_lstm_args;
// mu_lstm makes a layer of long short-term memory. States: h and c. Its kernels have the columns of the input gate, the
// forget gate, the cell and the output gate side by side. Hochreiter and Schmidhuber, "Long short-term memory", 1997.
#define mu_lstm(...) mu_lstm_with(MU_ARGS(mu_lstm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_lstm_with(const mu_lstm_args *args);

typedef struct mu_gru_args {
    size_t size;
    const char *given;
    int units; // size of the state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout;           // share of the input's features dropped in training, alike in all steps
    double recurrent_dropout; // share of the state dropped in training, alike in all steps
    uint64_t seed;            // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    bool return_sequences;                   // return the outputs of all steps
    bool return_state;                       // return the last state too
    bool go_backwards;                       // from the last step to the first; outputs are in that order
    bool unroll;                             // a copy of the step's ops for each step, instead of a loop
    bool stateful;                           // a batch begins with the states that the batch before ended with
    bool zero_output_for_mask;               // a step that the mask leaves out gives zeros
    mu_any_regularizer activity_regularizer; // of the output
    const char *recurrent_activation;        // of the gates; default "sigmoid"
    bool no_reset_after;                     // multiply the state by the reset gate before its matrix product
} mu_gru_args;
// mu_gru makes a layer of gated recurrent units. State: h. Its kernels have the columns of the update gate, the reset
// gate and the candidate side by side; the bias is [2, 3 · units] (of the input, of the state), or [3 · units] with
// .no_reset_after. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
#define mu_gru(...) mu_gru_with(MU_ARGS(mu_gru_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_gru_with(const mu_gru_args *args);

typedef struct mu_conv_lstm_args {
    size_t size;
    const char *given;
    int filters, kernel_size; // filters: channels of the states and of the output
    mu_keyword_only only_;
    int kernel_size_per_axis[3];
    int strides, strides_per_axis[3];             // of the input's convolution; default 1
    int dilation_rate, dilation_rate_per_axis[3]; // distance of the kernel's elements over the input; default 1
    const char *padding;                          // of the input's convolution: "valid" (default) or "same"
    const char *activation;                       // default "tanh"
    bool no_bias;                                 // leave the bias out
    mu_any_initializer kernel_initializer;        // default "glorot_uniform"
    mu_any_initializer recurrent_initializer;     // default "orthogonal"
    mu_any_initializer bias_initializer;          // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout;           // share of the input dropped in training, alike in all steps
    double recurrent_dropout; // share of the state dropped in training, alike in all steps
    uint64_t seed;            // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    bool return_sequences;                   // return the outputs of all steps
    bool return_state;                       // return the last states too
    bool go_backwards;                       // from the last step to the first; outputs are in that order
    bool unroll;                             // a copy of the step's ops for each step, instead of a loop
    bool stateful;                           // a batch begins with the states that the batch before ended with
    bool zero_output_for_mask;               // a step that the mask leaves out gives zeros
    mu_any_regularizer activity_regularizer; // of the output
    const char *recurrent_activation;        // of the gates; default "sigmoid"
    bool no_unit_forget_bias;                // the forget gate's bias does not begin with 1
} mu_conv_lstm_args;
// mu_conv_lstm1d, mu_conv_lstm2d and mu_conv_lstm3d make LSTMs whose steps are maps with 1 to 3 spatial axes, of known
// sizes, and which convolve instead of multiplying. x: [batch, steps, axes…, channels]; y: [batch, axes…, filters],
// with .return_sequences [batch, steps, axes…, filters]. Weights: kernel [sizes…, channels, 4 · filters],
// recurrent_kernel [sizes…, filters, 4 · filters], bias. Errors: INVALID_ARGUMENT for strides and a dilation rate above
// 1. Shi et al., "Convolutional LSTM network", 2015.
#define mu_conv_lstm1d(...) mu_conv_lstm1d_with(MU_ARGS(mu_conv_lstm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv_lstm1d_with(const mu_conv_lstm_args *args);
#define mu_conv_lstm2d(...) mu_conv_lstm2d_with(MU_ARGS(mu_conv_lstm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv_lstm2d_with(const mu_conv_lstm_args *args);
#define mu_conv_lstm3d(...) mu_conv_lstm3d_with(MU_ARGS(mu_conv_lstm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv_lstm3d_with(const mu_conv_lstm_args *args);

// ---- Cells --------------------------------------------------------------------------------------

// A cell computes one step: called with .inputs = mu_list(x, state, …, MU_END), where x is [batch, features], it
// returns a list: the output, then the next states. A layer of your own (mu_layer_new) that does so is a cell.

typedef struct mu_simple_rnn_cell_args {
    size_t size;
    const char *given;
    int units; // size of the state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout, recurrent_dropout; // as in mu_simple_rnn
    uint64_t seed;                     // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
} mu_simple_rnn_cell_args;
// mu_simple_rnn_cell makes the cell of mu_simple_rnn.
#define mu_simple_rnn_cell(...) mu_simple_rnn_cell_with(MU_ARGS(mu_simple_rnn_cell_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_simple_rnn_cell_with(const mu_simple_rnn_cell_args *args);

typedef struct mu_lstm_cell_args {
    size_t size;
    const char *given;
    int units; // size of each state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout, recurrent_dropout; // as in mu_lstm
    uint64_t seed;                     // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    const char *recurrent_activation; // of the gates; default "sigmoid"
    bool no_unit_forget_bias;         // the forget gate's bias does not begin with 1
} mu_lstm_cell_args;
// mu_lstm_cell makes the cell of mu_lstm.
#define mu_lstm_cell(...) mu_lstm_cell_with(MU_ARGS(mu_lstm_cell_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_lstm_cell_with(const mu_lstm_cell_args *args);

typedef struct mu_gru_cell_args {
    size_t size;
    const char *given;
    int units; // size of the state and of the output
    mu_keyword_only only_;
    const char *activation;                   // default "tanh"
    bool no_bias;                             // leave the bias out
    mu_any_initializer kernel_initializer;    // default "glorot_uniform"
    mu_any_initializer recurrent_initializer; // default "orthogonal"
    mu_any_initializer bias_initializer;      // default "zeros"
    mu_any_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, recurrent_constraint, bias_constraint;
    double dropout, recurrent_dropout; // as in mu_gru
    uint64_t seed;                     // of dropout; default: from the program's seed
    const char *name;
    const char *dtype;
    const char *recurrent_activation; // of the gates; default "sigmoid"
    bool no_reset_after;              // multiply the state by the reset gate before its matrix product
} mu_gru_cell_args;
// mu_gru_cell makes the cell of mu_gru.
#define mu_gru_cell(...) mu_gru_cell_with(MU_ARGS(mu_gru_cell_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_gru_cell_with(const mu_gru_cell_args *args);

// mu_stacked_rnn_cells(cell, cell, …) makes a cell in which each cell's output is the next one's input. Its states are
// those of all cells, in order. Cells of your own cannot be stacked. Retains: the cells.
#ifndef __cplusplus
#define mu_stacked_rnn_cells(...) mu_stacked_rnn_cells_of((mu_layer *const[]){__VA_ARGS__, MU_END})
#endif
MU_API mu_layer *mu_stacked_rnn_cells_of(mu_layer *const *cells); // `cells` ends with MU_END

#define MU_MAX_CELL_STATES 16

typedef struct mu_rnn_args {
    size_t size;
    const char *given;
    mu_layer *cell;
    mu_keyword_only only_;
    bool return_sequences;                  // return the outputs of all steps
    bool return_state;                      // return the last states too
    bool go_backwards;                      // from the last step to the first; outputs are in that order
    bool unroll;                            // a copy of the step's ops for each step, instead of a loop
    bool stateful;                          // a batch begins with the states that the batch before ended with
    bool zero_output_for_mask;              // a step that the mask leaves out gives zeros
    int64_t state_size[MU_MAX_CELL_STATES]; // of each state of a cell of your own; ends with 0
    int64_t output_size;                    // of a cell of your own; default: state_size[0]
    const char *name;
    const char *dtype;
} mu_rnn_args;
// mu_rnn makes a recurrent layer of any cell. Retains: cell. Errors: INVALID_ARGUMENT for a cell of your own without
// state_size.
#define mu_rnn(...) mu_rnn_with(MU_ARGS(mu_rnn_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_rnn_with(const mu_rnn_args *args);

// mu_layer_reset_states sets the states that stateful layers keep to zero: those of a layer or model, and of all layers
// in it. A layer that has not been called keeps none.
MU_API mu_status mu_layer_reset_states(mu_layer *layer);

// ---- Wrappers -----------------------------------------------------------------------------------

typedef struct mu_bidirectional_args {
    size_t size;
    const char *given;
    mu_layer *layer; // a recurrent layer
    mu_keyword_only only_;
    const char *merge_mode;   // "concat" (default), "sum", "mul", "ave", or "none": a list of both
    mu_layer *backward_layer; // default: a layer like `layer` that goes backwards
    const char *name;
    const char *dtype;
} mu_bidirectional_args;
// mu_bidirectional makes a layer of two recurrent layers, one from the first step to the last and one back; outputs of
// all steps are in the order of time. It copies `layer`, which must have a configuration in Keras's JSON (cells of
// your own have none). First states are those of the forward layer, then those of the backward layer, and so are the
// states that are returned. Retains: backward_layer. Errors: INVALID_ARGUMENT unless the layers go in different
// directions and agree on return_sequences and return_state.
#define mu_bidirectional(...) mu_bidirectional_with(MU_ARGS(mu_bidirectional_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_bidirectional_with(const mu_bidirectional_args *args);

typedef struct mu_time_distributed_args {
    size_t size;
    const char *given;
    mu_layer *layer;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_time_distributed_args;
// mu_time_distributed makes a layer that applies `layer`, which has one input and one output, to each step of [batch,
// steps, …] by itself; y: [batch, steps, …]. Retains: layer. Errors: INVALID_ARGUMENT if a dimension after the steps is
// unknown; if `layer` has weights that training does not change by gradients (batch normalization), the number of steps
// must be known too, as for a stateful layer, whose states are carried from step to step. A mask [batch, steps] says
// which rows count in a step: batch normalization and layers of your own, also inside of `layer`, get this mask
// [batch]; all others compute each row by itself. Of a mask with more axes, `layer` gets those after the steps. The
// mask of y has the axes that y still has; where it has lost some, a step counts if any of its elements did.
#define mu_time_distributed(...) mu_time_distributed_with(MU_ARGS(mu_time_distributed_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_time_distributed_with(const mu_time_distributed_args *args);

#ifdef __cplusplus
}
#endif
#endif
