// The states that a stateful recurrent layer keeps from one batch to the next.
//
// A state of all sequences of a batch is one variable with the same value on all replicas. A replica reads the rows of
// its own part of the batch, and all replicas join their rows again: any number of them computes what one would.
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "model/layers/recurrent.h"
#include "ops/core/assert.h"

#include <muster/ops.h>

enum { STATE_NAME = 24 };

static const char *state_name(int i, char name[STATE_NAME])
{
    snprintf(name, STATE_NAME, "rnn_state_%d", i);
    return name;
}

static bool is_divided(void)
{
    return !mu_in_cross_replica_context() && mu_num_replicas_in_sync(mu_get_strategy()) > 1;
}

// How many rows each replica has: [replicas], or [1] for a whole batch.
static mu_tensor *rows_of_replicas(mu_tensor *x)
{
    mu_tensor *rows = mu_expand_dims(mu_dim_size(x, 0), 0);
    return is_divided() ? mu_all_gather(rows, 0) : rows;
}

// Errors end with the number of rows that the batch has, which a trace may not know.
static mu_status need_rows(const mu_layer *layer, int64_t wanted, const mu_tensor *x, mu_tensor *rows)
{
    const int64_t known = is_divided() ? MU_UNKNOWN : mu_tensor_dim(x, 0);
    char message[320];
    snprintf(message, sizeof message,
             "layer '%.60s' is stateful and keeps the states of %lld sequences, so all batches need as many. Use "
             "mu_dataset_batch(…, .drop_remainder = true), or a number of rows that %lld divides and "
             ".batch_size = %lld. The number of sequences in this batch is",
             mu_layer_name(layer), (long long)wanted, (long long)wanted, (long long)wanted);
    if (known != MU_UNKNOWN && known != wanted)
        return mu__error(MU_INVALID_ARGUMENT, "%s %lld", message, (long long)known);
    mu_tensor *sum = mu_reduce_sum(rows, 0);
    mu_tensor *number = sum ? mu_constant(sum->dtype, (double)wanted) : NULL;
    return number ? mu__assert_number(mu_equal(sum, number), message, sum) : mu_error_code();
}

// The numbers of this replica's rows in the batch: those of earlier replicas come first.
static mu_tensor *numbers_of_rows(mu_tensor *rows, mu_tensor *x)
{
    mu_tensor *before = mu_gather(mu_cumsum(rows, 0, true, false), mu_replica_id(), 0, 0);
    const int64_t begin[MU_MAX_RANK] = {0};
    int64_t column[MU_MAX_RANK] = {-1};
    for (int i = 1; i < MU_MAX_RANK; i++)
        column[i] = 1;
    mu_tensor *ones = mu_ones_like(mu_cast(mu_reshape(mu_slice(x, begin, column), 1, (int64_t[]){MU_UNKNOWN}), MU_I64));
    return mu_add(mu_cast(before, MU_I64), mu_cumsum(ones, 0, true, false));
}

// The rows of these numbers; instead of those that x lacks the last one, so that need_rows alone refuses a batch.
static mu_tensor *rows_at(mu_tensor *x, mu_tensor *numbers)
{
    mu_tensor *last = mu_subtract(mu_dim_size(x, 0), mu_constant(MU_I64, 1));
    return mu_gather(x, mu_minimum(numbers, last), 0, 0);
}

static mu_variable *variable_of(mu_layer *layer, int i, const mu_tensor *zeros)
{
    char name[STATE_NAME];
    if (mu__refuse_in_calls(false, mu_layer_name(layer),
                            "the layer is stateful, and each call has a part of the sequences; use MirroredStrategy, "
                            "or a model without .stateful") != MU_OK)
        return NULL;
    mu_variable *variable = mu__weight_named(layer, state_name(i, name));
    if (variable || mu__pending())
        return variable;
    if (zeros->shape.dims[0] == MU_UNKNOWN || is_divided()) {
        mu__error(MU_INVALID_ARGUMENT,
                  "layer '%s' is stateful, so it needs to know how many sequences a batch has: begin the model with "
                  "mu_input or mu_input_layer, and give it .batch_size",
                  mu_layer_name(layer));
        return NULL;
    }
    const mu_weight_options options = {.initializer = "zeros", .not_trainable = true, .state = true};
    return mu__weight(layer, name, zeros->shape, &options) == MU_OK ? mu__weight_named(layer, name) : NULL;
}

mu_tensor *mu__kept_state(mu_layer *layer, int i, mu_tensor *zeros)
{
    mu_variable *variable = variable_of(layer, i, zeros);
    mu_tensor *state = variable ? mu_variable_read(variable) : NULL, *rows = state ? rows_of_replicas(zeros) : NULL;
    if (!rows || need_rows(layer, mu_tensor_dim(state, 0), zeros, rows) != MU_OK)
        return NULL;
    state = mu_cast(state, zeros->dtype);
    // Rows by number also where a trace does not know how many there are: a batch of another size then gets as far as
    // the check, instead of failing at the first op that adds the two.
    const bool by_number = is_divided() || mu_tensor_dim(zeros, 0) == MU_UNKNOWN;
    return by_number ? rows_at(state, numbers_of_rows(rows, zeros)) : state;
}

// The tensor with n rows, where a trace does not know how many it has: need_rows has checked that it has n.
static mu_tensor *with_rows(mu_tensor *x, int64_t n)
{
    return x && mu_tensor_dim(x, 0) == MU_UNKNOWN ? rows_at(x, mu_range(MU_I64, 0, (double)n, 1)) : x;
}

mu_status mu__keep_states(mu_layer *layer, int n, mu_tensor *const *states)
{
    for (int i = 0; i < n; i++) {
        mu_variable *variable = variable_of(layer, i, states[i]);
        if (!variable)
            return mu_error_code();
        mu_tensor *own = mu_cast(mu_stop_gradient(states[i]), mu_variable_dtype(variable));
        mu_tensor *whole = is_divided() ? mu_all_gather(own, 0) : with_rows(own, mu_variable_shape(variable).dims[0]);
        MU_TRY(mu_variable_assign(variable, whole));
    }
    return MU_OK;
}

static mu_status reset(mu_layer *layer)
{
    char name[STATE_NAME];
    const mu_recurrent *options = mu__recurrent_of(layer);
    for (int i = 0; options && options->stateful && i < options->n_states; i++) {
        mu_variable *variable = mu__weight_named(layer, state_name(i, name));
        const mu_shape shape = variable ? mu_variable_shape(variable) : (mu_shape){0};
        if (variable)
            MU_TRY(mu_variable_assign(variable, mu_zeros(mu_variable_dtype(variable), shape.rank, shape.dims)));
    }
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(reset(layer->sublayers.items[i]));
    return MU_OK;
}

mu_status mu_layer_reset_states(mu_layer *layer)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_reset_states: the layer"));
    return reset(layer);
}
