// Variables, tapes and traced functions.
#ifndef MUSTER_GRAPH_H
#define MUSTER_GRAPH_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Variables ----------------------------------------------------------------------------------

typedef struct mu_variable mu_variable;

// How copies on replicas are kept together; TensorFlow's numbers.
typedef enum mu_variable_synchronization {
    MU_SYNCHRONIZATION_AUTO = 0,
    MU_SYNCHRONIZATION_NONE = 1,
    MU_SYNCHRONIZATION_ON_WRITE = 2,
    MU_SYNCHRONIZATION_ON_READ = 3
} mu_variable_synchronization;

// How values that replicas assign are put together; TensorFlow's numbers.
typedef enum mu_variable_aggregation {
    MU_AGGREGATION_NONE = 0,
    MU_AGGREGATION_SUM = 1,
    MU_AGGREGATION_MEAN = 2,
    MU_AGGREGATION_ONLY_FIRST_REPLICA = 3
} mu_variable_aggregation;

typedef struct mu_variable_args {
    size_t size;
    mu_tensor *initial_value;       // its dtype and shape become the variable's
    const char *name;               // default "Variable"
    mu_keyword_only only_;
    bool not_trainable;             // the default of ON_READ variables
    mu_variable_synchronization synchronization;
    mu_variable_aggregation aggregation;
    bool trainable;                 // also an ON_READ variable; not together with not_trainable
} mu_variable_args;

// mu_variable_new makes a variable under the strategy in force (with none: one plain variable).
// Errors: FAILED_PRECONDITION in a later trace of a function (only its first may make variables); INVALID_ARGUMENT for
// an ON_READ variable with aggregation MEAN that is not a float, where the strategy keeps a copy on each device.
#define mu_variable_new(...) mu_variable_new_with(MU_ARGS(mu_variable_args, __VA_ARGS__))
MU_API mu_variable *mu_variable_new_with(const mu_variable_args *args);

MU_API const char *mu_variable_name(const mu_variable *variable);
MU_API mu_dtype mu_variable_dtype(const mu_variable *variable);
MU_API mu_shape mu_variable_shape(const mu_variable *variable);
MU_API bool mu_variable_is_trainable(const mu_variable *variable);
// What a variable was made with; under a strategy that mirrors variables AUTO has become ON_WRITE.
MU_API mu_variable_synchronization mu_variable_synchronization_of(const mu_variable *variable);
MU_API mu_variable_aggregation mu_variable_aggregation_of(const mu_variable *variable);

// mu_variable_read returns the value that this context sees: on a replica its own copy; outside, and with ON_READ, what
// the aggregation makes of all copies; otherwise the first one.
MU_API mu_tensor *mu_variable_read(mu_variable *variable);
// mu_variable_assign, _add and _sub: on replicas of a strategy the variable's aggregation puts the replicas' values
// together first. Per replica is a tensor that the replica function made, also a constant, or its component of a
// per-replica argument. A tensor from outside of the function is one value: MEAN and ONLY_FIRST_REPLICA take it as it
// is. Errors: INVALID_ARGUMENT for a value of another type or shape, SUM of a value from outside (but a constant 0),
// and MEAN of per-replica integers; FAILED_PRECONDITION where eager replicas assign to different variables.
MU_API mu_status mu_variable_assign(mu_variable *variable, mu_tensor *value);
MU_API mu_status mu_variable_assign_add(mu_variable *variable, mu_tensor *delta);
MU_API mu_status mu_variable_assign_sub(mu_variable *variable, mu_tensor *delta);

// ---- Gradients ----------------------------------------------------------------------------------

typedef struct mu_tape mu_tape;

// mu_tape_open starts remembering the ops of this thread until the tape is closed or its pool is. While one is open
// around mu_function_call, or mu_run on one replica, the function's callback is called eagerly, so that gradients pass
// through it; of several replicas a tape sees nothing: open it inside the function.
MU_API mu_tape *mu_tape_open(void);
MU_API void mu_tape_close(mu_tape *tape);

// mu_gradients returns the gradients of a loss with respect to variables or tensors (a list, in order; an
// element without influence gets zeros). The tape stays open for further use.
MU_API mu_value *mu_gradients(mu_tape *tape, mu_tensor *loss, mu_value *sources);

// mu_variables makes a value of variables; the last argument is MU_END.
MU_API mu_value *mu_variables(mu_variable *first, ...);
MU_API mu_value *mu_variables_of(int n, mu_variable *const *variables);
// mu_value_variable returns the variable in a value: of mu_value_at(mu_model_weights(model), 0), say.
// Errors: INVALID_ARGUMENT for any other value.
MU_API mu_variable *mu_value_variable(const mu_value *value);

// ---- Functions ----------------------------------------------------------------------------------

typedef struct mu_function mu_function;

// mu_function_new makes a function of a C callback: traced once per signature of its arguments, compiled,
// then run without the callback. The first axis of each argument is a batch, whose size the trace does not know; on one
// replica a callback that must know it is traced for each size (again: a trace that fails is tried with the sizes).
// `arg` must live as long as the function.
MU_API mu_function *mu_function_new(mu_value *(*fn)(mu_value *arguments, void *arg), void *arg);

// mu_function_trace_count says how often the callback has been traced.
MU_API int mu_function_trace_count(const mu_function *function);

// mu_function_dot writes the latest traced graph as a picture for Graphviz: `dot -Tsvg path`. MUSTER_LOG=debug prints
// the same as text. Errors: FAILED_PRECONDITION if the function has not been traced.
MU_API mu_status mu_function_dot(mu_function *function, const char *path);

#ifdef __cplusplus
}
#endif
#endif
