// Variables, tapes and traced functions.
//
// Errors: a question about a variable or a function does not fail; for NULL it returns NULL, false, -1, a shape of rank
// -1, or the default value of its type. FAILED_PRECONDITION for a symbolic tensor outside of the trace that it belongs
// to, and for a variable that a failed step has left in doubt, until it is assigned.
#ifndef MUSTER_GRAPH_H
#define MUSTER_GRAPH_H

#include <limits.h>
#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Variables ----------------------------------------------------------------------------------

typedef struct mu_variable mu_variable; // a tensor with a name that can be assigned

// When the copies of a variable on replicas are synchronized; TensorFlow's numbers.
typedef enum mu_variable_synchronization {
    MU_SYNCHRONIZATION_AUTO = 0,
    MU_SYNCHRONIZATION_NONE = 1,
    MU_SYNCHRONIZATION_ON_WRITE = 2,
    MU_SYNCHRONIZATION_ON_READ = 3
} mu_variable_synchronization;

// How the values that replicas assign are combined; TensorFlow's numbers.
typedef enum mu_variable_aggregation {
    MU_AGGREGATION_NONE = 0,
    MU_AGGREGATION_SUM = 1,
    MU_AGGREGATION_MEAN = 2,
    MU_AGGREGATION_ONLY_FIRST_REPLICA = 3
} mu_variable_aggregation;

// Names of these values, such as "ON_WRITE"; "UNRECOGNIZED" for another number (static storage). The values of names,
// in any case. Errors (-1): INVALID_ARGUMENT.
MU_API const char *mu_variable_synchronization_name(mu_variable_synchronization synchronization);
MU_API const char *mu_variable_aggregation_name(mu_variable_aggregation aggregation);
MU_API int mu_variable_synchronization_from_name(const char *name);
MU_API int mu_variable_aggregation_from_name(const char *name);

typedef struct mu_variable_args {
    size_t size;
    const char *given;
    mu_tensor *initial_value; // its dtype and shape become the variable's
    const char *name;         // default "Variable"
    mu_keyword_only only_;
    bool not_trainable;                          // ON_READ variables are not trainable by default
    mu_variable_synchronization synchronization; // default MU_SYNCHRONIZATION_AUTO
    mu_variable_aggregation aggregation;         // default MU_AGGREGATION_NONE
    bool trainable;                              // makes an ON_READ variable trainable; not together with not_trainable
    // instead of initial_value: makes it; called once, eagerly, in a trace too
    mu_tensor *(*initial_value_fn)(void *arg);
    void *arg; // passed to initial_value_fn
    // Parameter servers only: each worker has a value of its own, and this process one (mu_variable_read_all).
    bool per_worker_variable;
} mu_variable_args;

// mu_variable_new makes a variable under the strategy in scope (without one: a plain variable). Errors:
// FAILED_PRECONDITION in a retrace of a function (only its first trace may make variables), and for a symbolic initial
// value; INVALID_ARGUMENT for an ON_READ variable with aggregation MEAN that is not a float, if the strategy keeps a
// copy on each device, and for per_worker_variable under another strategy than mu_parameter_server_strategy, or
// together with trainable.
#define mu_variable_new(...) mu_variable_new_with(MU_ARGS(mu_variable_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_variable *mu_variable_new_with(const mu_variable_args *args);

MU_API const char *mu_variable_name(const mu_variable *variable); // as it was made; belongs to the variable
// mu_variable_print prints name, element type, shape and value; in a trace, where the value is not known, without it.
MU_API mu_status mu_variable_print(mu_variable *variable, FILE *out);
MU_API mu_dtype mu_variable_dtype(const mu_variable *variable);    // the element type
MU_API mu_shape mu_variable_shape(const mu_variable *variable);    // the shape of its value
MU_API bool mu_variable_is_trainable(const mu_variable *variable); // whether mu_trainable_variables lists it
// The settings that the variable was made with. Under a strategy that mirrors variables, AUTO is reported as ON_WRITE.
MU_API mu_variable_synchronization mu_variable_synchronization_of(const mu_variable *variable);
MU_API mu_variable_aggregation mu_variable_aggregation_of(const mu_variable *variable);

// mu_variable_read returns the variable's value as seen here. On a replica, this is the replica's own copy. Elsewhere,
// an ON_READ variable's copies are combined by its aggregation, and any other variable's first copy is returned.
MU_API mu_tensor *mu_variable_read(mu_variable *variable);
// mu_variable_assign, _add and _sub: inside a replica function, the variable's aggregation first combines the values of
// all replicas. A tensor made by the replica function (constants too), or a component of a per-replica argument, is a
// per-replica value. A tensor made outside the function is one value for all replicas: MEAN and ONLY_FIRST_REPLICA use
// it unchanged. Errors: INVALID_ARGUMENT for a value of another type or shape, for SUM of a value from outside (except
// a constant 0), and for MEAN of per-replica integers; FAILED_PRECONDITION if eager replicas assign to different
// variables.
MU_API mu_status mu_variable_assign(mu_variable *variable, mu_tensor *value);
MU_API mu_status mu_variable_assign_add(mu_variable *variable, mu_tensor *delta);
MU_API mu_status mu_variable_assign_sub(mu_variable *variable, mu_tensor *delta);

// ---- Gradients ----------------------------------------------------------------------------------

typedef struct mu_tape mu_tape; // a record of ops, for gradients

// mu_tape_open starts recording the ops of this thread, until the tape or its pool is closed. While a tape is open,
// mu_function_call, and mu_run on one replica, call the function's callback eagerly so that gradients pass through it.
// A tape does not record what several replicas do: open it inside the function. A tape belongs to its pool, and to the
// thread that opened it.
MU_API mu_tape *mu_tape_open(void);
MU_API void mu_tape_close(mu_tape *tape); // ends recording; NULL is accepted

// mu_gradients returns the gradients of a loss with respect to variables or tensors: a list in the order of `sources`.
// A source on which the loss does not depend gets zeros, and mu_apply_gradients leaves it as it is. The tape stays open
// and may be used again. Retains: sources, with the result. Errors: UNIMPLEMENTED for a custom op without a gradient;
// FAILED_PRECONDITION for a branch or loop that was called before the tape was opened.
MU_API mu_value *mu_gradients(mu_tape *tape, mu_tensor *loss, mu_value *sources);

// mu_variables makes a list of variables, which it retains; the last argument is MU_END.
MU_API mu_value *mu_variables(mu_variable *first, ...);
MU_API mu_value *mu_variables_of(int n, mu_variable *const *variables);
// mu_value_variable returns the variable in a value, such as mu_value_at(mu_model_weights(model), 0). Errors:
// INVALID_ARGUMENT for any other value.
MU_API mu_variable *mu_value_variable(const mu_value *value);

// ---- Functions ----------------------------------------------------------------------------------

typedef struct mu_function mu_function; // a C callback that is traced and compiled

#define MU_NO_BATCH (INT_MIN + 1) // in a list of axes, for a tensor: none

typedef struct mu_function_args {
    size_t size;
    const char *given;
    mu_value *(*fn)(mu_value *arguments, void *arg);
    void *arg; // must live as long as the function
    mu_keyword_only only_;
    const char *name; // in traces, logs, timelines and graphs sent to other processes; default: the callback's
    // for each tensor of the arguments its batch axis or MU_NO_BATCH; the last entry holds for all further tensors
    const int *batch_axes;
    int n_batch_axes;
    // Under a strategy of CPU devices: compile for the devices of XLA's CPU plugin with the same numbers, and run
    // there. On XLA devices functions are compiled anyway. No effect in data sets, on other processes, under a tape, or
    // inside of another function, which decides.
    bool jit_compile;
} mu_function_args;

// mu_function_new makes a function from a C callback. The callback is traced and compiled once per signature of the
// arguments; later calls run without it. The size of a batch axis is unknown in the trace, so that one trace serves all
// batches. With batch_axes, those are the batch axes, and a callback that needs to know their size fails. Without, the
// first axis of each tensor is one; if tracing fails that way on one replica, the callback is traced again for each
// batch size. Errors: INVALID_ARGUMENT, when it is called, for a batch axis that a tensor does not have;
// FAILED_PRECONDITION, when it is run, if jit_compile lacks the plugin or devices of it: the message says what to do.
#define mu_function_new(...) mu_function_new_with(MU_ARGS(mu_function_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_function *mu_function_new_with(const mu_function_args *args);

// mu_function_name returns the function's name; it belongs to the function.
MU_API const char *mu_function_name(const mu_function *function);

// mu_function_trace_count returns how many times the callback has been traced.
MU_API int mu_function_trace_count(const mu_function *function);

// mu_function_dot writes the latest traced graph to a Graphviz file; draw it with `dot -Tsvg path`. MUSTER_LOG=debug
// prints the graph as text. Errors: FAILED_PRECONDITION if the function has not been traced; those of writing a file.
MU_API mu_status mu_function_dot(mu_function *function, const char *path);

#ifdef __cplusplus
}
#endif
#endif
