// Calls of the op benchmark: recurrent cells, run over a sequence by mu_scan in a traced function. cases_cells.py
// uses the same names.
#include "calls.h"

#include <muster/control.h>
#include <muster/distribute.h>

enum { SEQUENCE, STATE, CELL, INPUT_WEIGHTS, STATE_WEIGHTS, BIAS, N_INPUTS };

// The current case: its variables and its function live in the case's pool.
static mu_variable *variables[N_INPUTS];
static mu_function *function;

// The weights inside the trace in progress.
static mu_tensor *state_weights, *gates_bias;

static void prepare(mu_tensor *const *in, mu_value *(*body)(mu_value *, void *))
{
    for (int i = 0; i < N_INPUTS; i++)
        variables[i] = mu_variable_new(in[i], .not_trainable = true);
    function = mu_function_new(body, NULL);
}

static int run(mu_tensor **out)
{
    out[0] = mu_at(mu_function_call(function, NULL), 0);
    return 1;
}

// The part that all steps share is computed at once: [time, batch, width] by [width, gates].
static mu_tensor *projected(void)
{
    state_weights = mu_variable_read(variables[STATE_WEIGHTS]);
    gates_bias = mu_variable_read(variables[BIAS]);
    return mu_add(mu_matmul(mu_variable_read(variables[SEQUENCE]), mu_variable_read(variables[INPUT_WEIGHTS])),
                  gates_bias);
}

static mu_value *lstm_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *gates[4], *h = mu_at(state, 0), *c = mu_at(state, 1);
    (void)arg;
    mu_split(mu_add(mu_at(element, 0), mu_matmul(h, state_weights)), 4, 1, gates);
    c = mu_add(mu_multiply(mu_sigmoid(gates[1]), c), mu_multiply(mu_sigmoid(gates[0]), mu_tanh(gates[2])));
    h = mu_multiply(mu_sigmoid(gates[3]), mu_tanh(c));
    return mu_list(h, c, MU_END);
}

static mu_value *lstm(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    mu_tensor *h = mu_variable_read(variables[STATE]), *c = mu_variable_read(variables[CELL]);
    mu_value *states = mu_scan(lstm_step, mu_of(projected()), mu_list(h, c, MU_END));
    return mu_of(mu_at(states, 0));
}

// The reset gate applies to the product with the state, as in implementations that compute a step's products at once.
static mu_value *gru_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *from_input[3], *from_state[3], *h = mu_at(state, 0);
    (void)arg;
    mu_split(mu_at(element, 0), 3, 1, from_input);
    mu_split(mu_matmul(h, state_weights), 3, 1, from_state);
    mu_tensor *update = mu_sigmoid(mu_add(from_input[0], from_state[0]));
    mu_tensor *reset = mu_sigmoid(mu_add(from_input[1], from_state[1]));
    mu_tensor *next = mu_tanh(mu_add(from_input[2], mu_multiply(reset, from_state[2])));
    return mu_of(mu_add(next, mu_multiply(update, mu_subtract(h, next))));
}

static mu_value *gru(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return mu_scan(gru_step, mu_of(projected()), mu_of(mu_variable_read(variables[STATE])));
}

static mu_value *tanh_step(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_tanh(mu_add(mu_at(element, 0), mu_matmul(mu_at(state, 0), state_weights))));
}

static mu_value *tanh_cell(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return mu_scan(tanh_step, mu_of(projected()), mu_of(mu_variable_read(variables[STATE])));
}

#define CELL_ROW(name, body)                                                \
    static void prepare_##name(mu_tensor *const *in) { prepare(in, body); } \
    static int call_##name(mu_tensor *const *in, mu_tensor **out)           \
    {                                                                       \
        (void)in;                                                           \
        return run(out);                                                    \
    }
CELL_ROW(lstm, lstm)
CELL_ROW(gru, gru)
CELL_ROW(tanh_cell, tanh_cell)

const call_row call_cells[] = {
    {"lstm", call_lstm, prepare_lstm},
    {"gru", call_gru, prepare_gru},
    {"tanh_cell", call_tanh_cell, prepare_tanh_cell},
    {0},
};
