// Internal interface of models: layers, losses, metrics, optimizers, and the state of fit.
//
// Each kind of layer has a mu_layer_ops (build, call); its options are a copy of the public argument struct. Weights
// are variables named after the layer, as in Keras. Distribution of variables and reduction of gradients are the
// strategy's task.
#ifndef MU_SRC_MODEL_MODEL_H
#define MU_SRC_MODEL_MODEL_H

#include "distribute/distribute.h"

#include <muster/model.h>
#include <pthread.h>

typedef struct mu_layer_ops mu_layer_ops;
typedef struct mu_fit_position mu_fit_position;
typedef struct mu_model_use mu_model_use;

#define MU_MAX_LAYER_WEIGHTS 8

struct mu_layer {
    mu_object object;
    const mu_layer_ops *ops;
    char *name;                                    // "conv2d_1"; chosen by the user, else by the model
    bool built;
    mu_shape input, output;                        // shapes seen when built, batch axis unknown
    int n_weights;
    mu_variable *weights[MU_MAX_LAYER_WEIGHTS];    // retained, in Keras's order
    mu_regularizer *regularizers[MU_MAX_LAYER_WEIGHTS];  // retained; NULL where there is none
    mu_variable *generator;                        // dropout's state; retained
    void *args;                                    // copy of the public struct; the layer owns its strings and objects
};

struct mu_layer_ops {
    const char *name;          // Keras's class in snake case: "conv2d"
    size_t args_bytes;
    size_t texts[4];           // offsets of strings in args to copy; ends with 0
    size_t objects[2];         // offsets of objects in args to retain; ends with 0
    bool takes_integers;       // inputs stay integers, which float32 could not represent exactly
    bool moves_only;           // only moves elements, so the next layer decides on takes_integers
    // build makes the weights for inputs of this shape. Optional: a layer without weights has none.
    mu_status (*build)(mu_layer *layer, const mu_shape *input);
    // call applies the layer; the result belongs to the pool, NULL on error.
    mu_tensor *(*call)(mu_layer *layer, mu_tensor *x, bool training);
};

extern mu_type mu__layer_type;

// mu__layer_new copies `args` (of ops->args_bytes, checked by the caller); `name` may be NULL. The result belongs to
// the pool.
mu_layer *mu__layer_new(const mu_layer_ops *ops, const void *args, const char *name);
// mu__layer_weight makes a weight "LAYER/NAME" with a named initializer and adds it to the layer. Retains: regularizer.
mu_variable *mu__layer_weight(mu_layer *layer, const char *name, mu_shape shape, const char *initializer,
                              bool trainable, mu_regularizer *regularizer);
mu_tensor *mu__layer_call(mu_layer *layer, mu_tensor *x, bool training);  // builds first if needed
mu_tensor *mu__activate(const char *activation, mu_tensor *x);            // NULL or "linear": x itself
mu_status mu__activation_known(const char *activation, const char *layer);

// mu__initial_value draws a weight's initial value (eager). The result belongs to the pool.
mu_status mu__initializer_known(const char *initializer, const char *layer);  // NULL is valid: the default
mu_tensor *mu__initial_value(const char *initializer, mu_dtype dtype, const mu_shape *shape);
mu_dtype mu__floatx(void);

struct mu_model {
    mu_object object;
    mu_strategy *strategy;       // in whose scope it was made; retained
    int n_layers;
    mu_layer **layers;           // retained
    mu_optimizer *optimizer;     // set by compile; retained, like the next fields
    mu_loss *loss;
    int n_metrics;
    mu_metric **metrics;         // the mean loss first, then compile's metrics
    mu_function *train_function, *test_function, *predict_function;
    bool stop;
    mu_model_use *use;           // the innermost running call of fit, evaluate or predict; NULL: none
};

// ---- Use of a model (use.c) ---------------------------------------------------------------------

// One call of fit, evaluate or predict, on the calling thread's stack.
struct mu_model_use {
    mu_model_use *outer;         // the call whose callback made this call
    const char *function;        // "mu_fit"
    pthread_t thread;
    bool in_callback;            // a callback of this call is running
    const char *callback_before; // for mu__callback_leave
    mu_fit_position *position;   // only for fit
};
// mu__model_enter begins a use in the caller's storage; mu__model_leave ends the innermost. Errors: FAILED_PRECONDITION
// if the model is in use, unless a callback of that use makes the call.
mu_status mu__model_enter(mu_model *model, mu_model_use *use, const char *function);
void mu__model_leave(mu_model *model);
// mu__model_need_idle protects what a running fit works with from changes. Errors: FAILED_PRECONDITION while a call
// runs.
mu_status mu__model_need_idle(const mu_model *model, const char *function);
void mu__model_callback_begin(mu_model *model);
void mu__model_callback_end(mu_model *model);

mu_status mu__model_variables(const mu_model *model, bool trainable_only, int *n, mu_variable ***variables); // mu__free

struct mu_regularizer {
    mu_object object;
    double l2;
};
// mu__regularization returns the sum of all penalties; NULL without an error if there are none.
mu_tensor *mu__regularization(const mu_model *model);

struct mu_loss {
    mu_object object;
    const char *name;
    bool from_logits;
    mu_tensor *(*call)(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);  // per sample
};

// A metric is a total and a count in ON_READ SUM variables: exact over unequal parts.
struct mu_metric {
    mu_object object;
    char *name;
    mu_variable *total, *count;  // made on first use; retained
    mu_tensor *(*values)(mu_tensor *y_true, mu_tensor *y_pred);  // values to average; NULL: y_true itself
};
mu_status mu__metric_build(mu_metric *metric);
mu_status mu__metric_add(mu_metric *metric, mu_tensor *total, mu_tensor *count);

// At most one field is set.
typedef struct mu_clipping {
    double norm, global_norm, value;
} mu_clipping;
mu_status mu__check_clipping(const mu_clipping *clipping, const char *function);
// mu__clip clips gradients in place, with ops.
mu_status mu__clip(const mu_clipping *clipping, int n, mu_gradient *gradients);

typedef struct mu_optimizer_ops {
    const char *name;            // "adam"
    int n_slots;                 // per variable
    const char *slot_names[4];
    // apply updates one variable from its reduced gradient.
    mu_status (*apply)(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots, mu_tensor *gradient);
    // apply_slices updates a variable from this replica's slices, and itself combines those of all replicas. Optional:
    // slices become dense first.
    mu_status (*apply_slices)(mu_optimizer *optimizer, mu_variable *variable, mu_variable *const *slots,
                              const mu_gradient *gradient);
} mu_optimizer_ops;

struct mu_optimizer {
    mu_object object;
    const mu_optimizer_ops *ops;
    double learning_rate_value, momentum, beta_1, beta_2, epsilon;
    bool nesterov;
    mu_clipping clipping;
    mu_strategy *strategy;       // in whose scope it was made; retained
    mu_variable *iterations, *learning_rate;
    struct { mu_variable **items; size_t n, capacity; } variables;  // in order of first use
    struct { mu_variable **items; size_t n, capacity; } slots;      // n_slots for each of them
    mu_tensor *step;             // the value of iterations in the step being traced
};
// mu__optimizer_build makes the optimizer's state for these variables, as the first step would.
mu_status mu__optimizer_build(mu_optimizer *optimizer, int n, mu_variable *const *variables);

struct mu_history {
    mu_object object;
    struct { char **items; size_t n, capacity; } names;
    struct { double *items; size_t n, capacity; } values;           // [epoch][name]
    int epochs;
    double seconds;
    int64_t samples;
};
mu_history *mu__history_new(void);
int mu__history_name(mu_history *history, const char *name);        // its column; -1 on error
mu_status mu__history_add(mu_history *history, int n, const double *values);  // one epoch

struct mu_callback {
    mu_object object;
    mu_callback_args hooks;
    void *state;                  // built-in callbacks: what `arg` points to; owned
    const char *monitor;          // built-in callbacks: the logged value that they watch, stored in `state`; NULL: none
    // Called when a signal ends fit, after the step in progress has finished. Optional.
    mu_status (*on_interrupt)(const mu_logs *logs, void *arg);
};
mu_callback *mu__callback_built_in(mu_callback_args hooks, void *state);  // takes ownership of `state`

// The position of fit, for callbacks that save it and restore it before the first epoch.
struct mu_fit_position {
    int epoch;               // epoch in progress, from 0; between epochs the next one
    int64_t step;            // number of its finished steps
    mu_dataset *data;
    mu_iterator *iterator;   // iterator with the position; NULL: a new iteration of the data is next
    char *restored;          // a saved position in the data to start from; owned
};
// mu__fit_data_state returns the position in the data as text; free with mu__free. NULL on error.
char *mu__fit_data_state(const mu_model *model);

// ---- Hooks (hooks.c) ----------------------------------------------------------------------------

typedef enum mu_hook {
    MU_HOOK_TRAIN_BEGIN, MU_HOOK_EPOCH_BEGIN, MU_HOOK_BATCH_END, MU_HOOK_EPOCH_END, MU_HOOK_TRAIN_END
} mu_hook;
// mu__check_callbacks checks before training that no callback is NULL and that the values they watch will be logged;
// `validates`: so will values whose names begin with "val_". Lists end with MU_END; NULL is an empty list.
mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, bool validates);
bool mu__watches_batches(mu_callback *const *callbacks);
// mu__call_hooks calls a hook of each callback in order, and stops at the first that fails. Errors: INVALID_ARGUMENT if
// one returns a code without recording an error.
mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs);

// Arguments that may be of several kinds (arguments.c, arrays.c); `function` names the caller in errors. What they
// return is borrowed or belongs to the pool; a NULL argument gives NULL without an error.
mu_optimizer *mu__optimizer_argument(const void *given, const char *function);
mu_loss *mu__loss_argument(const void *given, const char *function);
// mu__metrics_argument and mu__callbacks_argument fill a list of `*n` objects, for mu__free.
mu_status mu__metrics_argument(const void *given, const char *function, mu_metric ***metrics, int *n);
mu_status mu__callbacks_argument(const void *given, const char *function, mu_callback ***callbacks);
extern mu_type mu__optimizer_type, mu__loss_type, mu__metric_type, mu__callback_type;

// Samples for fit, evaluate and predict: a dataset of batches, or rows that become one.
typedef struct mu_samples {
    const void *x, *y;
    int64_t batch_size;      // 0: the default
    bool shuffle;
} mu_samples;
mu_dataset *mu__samples_dataset(const mu_samples *samples, const char *function);

// ---- Progress (progress.c) ----------------------------------------------------------------------

typedef struct mu_progress {
    FILE *out;
    mu_verbose mode;              // resolved: never AUTO
    bool colour;
    int64_t target;               // steps; -1 while unknown
    int64_t begin_ns, shown_ns;   // shown: time of the last drawing
    int64_t step, shown_step;     // last finished step, and last step drawn
    int width;                    // columns
    size_t last_length;
    double input_share;           // fraction of the time that devices waited for input
} mu_progress;
void mu__progress_begin(mu_progress *progress, mu_verbose verbose, int epoch, int epochs, int64_t target);
void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
bool mu__progress_due(const mu_progress *progress);  // whether mu__progress_step would draw
void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
void mu__progress_abandon(mu_progress *progress);  // moves the terminal to a new line

#endif
