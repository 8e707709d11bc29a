// Internal interface of recurrent layers: what a cell is to the loop over time, and what a recurrent layer keeps.
//
// A cell's step is cut in two: `project` is what does not depend on the state, which the loop does for all steps at
// once, and `step` is the rest.
#ifndef MU_SRC_MODEL_RECURRENT_H
#define MU_SRC_MODEL_RECURRENT_H

#include "model/layer.h"

#include <muster/recurrent.h>

enum { MAX_GATES = 4 };

// What a cell prepares for all steps of one call. Tensors are borrowed.
typedef struct mu_cell_run mu_cell_run;
struct mu_cell_run {
    mu_layer *cell;
    const mu_cell_ops *ops;
    bool training;
    mu_tensor *kernel, *recurrent, *bias;
    mu_tensor *recurrent_bias;                 // of a GRU; NULL: none
    mu_tensor *gate_recurrent[MAX_GATES];      // the columns of `recurrent` by gate, where steps need them apart
    int n_input_masks, n_state_masks;          // of dropout: 0, 1 for all gates, or one for each
    mu_tensor *input_masks[MAX_GATES], *state_masks[MAX_GATES];
    int n_inner;                               // of stacked cells
    mu_cell_run *inner;                        // owned
};

struct mu_cell_ops {
    // sizes writes the sizes of the states, and returns how many there are.
    int (*sizes)(const mu_layer *cell, int64_t sizes[MU_MAX_CELL_STATES]);
    int (*output_state)(const mu_layer *cell);  // which of the states is the output too
    // begin reads the weights and draws what is dropped; x: [batch, features], the states: [batch, size].
    mu_status (*begin)(mu_cell_run *run, mu_tensor *x, mu_tensor *const *states);
    // project computes what of a step, or of several, does not depend on the state; x: [steps…, batch, features].
    mu_tensor *(*project)(const mu_cell_run *run, mu_tensor *x);
    // step computes the next states from what project returned for the step. Returns NULL in `next` on error.
    mu_status (*step)(const mu_cell_run *run, mu_tensor *projected, mu_tensor *const *states, mu_tensor **next);
};

// mu__cell_begin prepares a built cell; mu__cell_end frees what that allocated, also after an error.
mu_status mu__cell_begin(mu_cell_run *run, mu_layer *cell, bool training, mu_tensor *x, mu_tensor *const *states);
void mu__cell_end(mu_cell_run *run);

// The fields of the options that cells, and the layers made of one cell, begin with.
#define MU_CELL_FIELDS(type)                                                             \
    MU_FIELD(type, units, INT, .limit = MU_POSITIVE),                                    \
    MU_FIELD(type, activation, ACTIVATION, .text = "tanh"),                              \
    MU_FIELD(type, no_bias, NOT, .keras = "use_bias"),                                   \
    MU_FIELD_WEIGHT(type, kernel, "glorot_uniform"),                                     \
    MU_FIELD_WEIGHT(type, recurrent, "orthogonal"),                                      \
    MU_FIELD_WEIGHT(type, bias, "zeros"),                                                \
    MU_FIELD(type, dropout, DOUBLE, .limit = MU_BELOW_ONE),                              \
    MU_FIELD(type, recurrent_dropout, DOUBLE, .limit = MU_BELOW_ONE),                    \
    MU_FIELD(type, seed, SEED),                                                          \
    MU_LAYER_FIELDS(type)

// What a recurrent layer keeps as its state.
typedef struct mu_recurrent {
    bool sequences, last_states, backwards, unroll, zero_for_mask;  // the options of these names
    bool in_time_order;          // outputs of a layer that goes backwards are in the order of time
    int n_states;
    int64_t sizes[MU_MAX_CELL_STATES], output_size;
    int output_state;            // which state is the output too; -1: none
} mu_recurrent;
mu_recurrent *mu__recurrent_of(const mu_layer *layer);  // NULL: it is not a recurrent layer

#endif
