// The states that a stateful recurrent layer keeps from one batch to the next.
//
// A state of all sequences of a batch is one variable with the same value on all replicas. A replica reads the rows of
// its own part of the batch, and all replicas join their rows again: any number of them computes what one would.
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "model/layers/recurrent.h"

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

static mu_status need_rows(const mu_layer *layer, int64_t wanted, mu_tensor *rows)
{
    char message[256];
    snprintf(message, sizeof message,
             "layer '%.60s' is stateful and keeps the states of %lld sequences, but the batch has another number of "
             "them. Make all batches of one size: mu_dataset_batch(…, .drop_remainder = true)",
             mu_layer_name(layer), (long long)wanted);
    mu_tensor *sum = mu_reduce_sum(rows, 0);
    mu_tensor *number = sum ? mu_constant(sum->dtype, (double)wanted) : NULL;
    return number ? mu_assert(mu_equal(sum, number), message) : mu_error_code();
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
    if (!rows || need_rows(layer, mu_tensor_dim(state, 0), rows) != MU_OK)
        return NULL;
    state = mu_cast(state, zeros->dtype);
    return is_divided() ? mu_gather(state, numbers_of_rows(rows, zeros), 0, 0) : state;
}

mu_status mu__keep_states(mu_layer *layer, int n, mu_tensor *const *states)
{
    for (int i = 0; i < n; i++) {
        mu_variable *variable = variable_of(layer, i, states[i]);
        if (!variable)
            return mu_error_code();
        mu_tensor *whole = mu_cast(mu_stop_gradient(states[i]), mu_variable_dtype(variable));
        MU_TRY(mu_variable_assign(variable, is_divided() ? mu_all_gather(whole, 0) : whole));
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
