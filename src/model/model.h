// The model layer inside: what a layer, a loss, a metric and an optimizer are.
//
// Each kind of layer is a row (build, call); its options are the public argument struct, copied. Weights are
// variables named after the layer, as in Keras. Nothing here knows how variables are spread or gradients
// reduced: that is the strategy's.
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
    char *name;                                    // "conv2d_1"; given by the model unless chosen
    bool built;
    mu_shape input, output;                        // shapes seen when built, batch axis unknown
    int n_weights;
    mu_variable *weights[MU_MAX_LAYER_WEIGHTS];    // retained, in Keras's order
    mu_regularizer *regularizers[MU_MAX_LAYER_WEIGHTS];  // retained; NULL where there is none
    mu_variable *generator;                        // dropout's state; retained
    void *args;                                    // copy of the public struct; texts and objects in it are the layer's
};

struct mu_layer_ops {
    const char *name;          // Keras's class in snake case: "conv2d"
    size_t args_bytes;
    size_t texts[4];           // where the args have strings to copy; ends with 0
    size_t objects[2];         // where they have objects to retain, likewise
    bool takes_integers;       // which float32 could not count: whole numbers come as they are
    bool moves_only;           // whatever its input is: so what the next layer takes counts
    // build makes the weights for inputs of this shape. Optional: a layer without weights.
    mu_status (*build)(mu_layer *layer, const mu_shape *input);
    // call applies the layer; given to the pool, NULL on error.
    mu_tensor *(*call)(mu_layer *layer, mu_tensor *x, bool training);
};

extern mu_type mu__layer_type;

// mu__layer_new copies `args` (of ops->args_bytes, checked by the caller); `name` may be NULL. Given to the pool.
mu_layer *mu__layer_new(const mu_layer_ops *ops, const void *args, const char *name);
// mu__layer_weight makes a weight "LAYER/NAME" with an initializer by name and adds it to the layer. Keeps:
// regularizer.
mu_variable *mu__layer_weight(mu_layer *layer, const char *name, mu_shape shape, const char *initializer,
                              bool trainable, mu_regularizer *regularizer);
mu_tensor *mu__layer_call(mu_layer *layer, mu_tensor *x, bool training);  // builds first if needed
mu_tensor *mu__activate(const char *activation, mu_tensor *x);            // NULL or "linear": x itself
mu_status mu__activation_known(const char *activation, const char *layer);

// mu__initial_value draws a weight's first value (eager). Given to the pool.
// Errors (both): INVALID_ARGUMENT for an unknown initializer, listing the known ones.
mu_status mu__initializer_known(const char *initializer, const char *layer);  // NULL is known: the default
mu_tensor *mu__initial_value(const char *initializer, mu_dtype dtype, const mu_shape *shape);
mu_dtype mu__floatx(void);

struct mu_model {
    mu_object object;
    mu_strategy *strategy;       // in whose scope it was made; retained
    int n_layers;
    mu_layer **layers;           // retained
    mu_optimizer *optimizer;     // by compile; retained, as the rest
    mu_loss *loss;
    int n_metrics;
    mu_metric **metrics;         // loss's mean first, then compile's
    mu_function *train_function, *test_function, *predict_function;
    bool stop;
    mu_model_use *use;           // the innermost fit, evaluate or predict that has not returned; NULL: none
};

// ---- Use of a model (use.c) ---------------------------------------------------------------------

// One call of fit, evaluate or predict, on the stack of the thread that made it.
struct mu_model_use {
    mu_model_use *outer;         // the call in whose callback this one was made
    const char *function;        // "mu_fit"
    pthread_t thread;
    bool in_callback;            // a callback of this call is running
    const char *callback_before; // for mu__callback_leave
    mu_fit_position *position;   // fit alone
};
// mu__model_enter begins a use, in caller's storage; mu__model_leave ends the innermost. Errors: FAILED_PRECONDITION if
// the model is in use and this is not a callback of that use.
mu_status mu__model_enter(mu_model *model, mu_model_use *use, const char *function);
void mu__model_leave(mu_model *model);
// mu__model_need_idle is for what would pull away what fit works with. Errors: FAILED_PRECONDITION while one runs.
mu_status mu__model_need_idle(const mu_model *model, const char *function);
void mu__model_callback_begin(mu_model *model);
void mu__model_callback_end(mu_model *model);

mu_status mu__model_variables(const mu_model *model, bool trainable_only, int *n, mu_variable ***variables); // mu__free

struct mu_regularizer {
    mu_object object;
    double l2;
};
// mu__regularization returns the sum of all penalties, NULL without an error if there are none.
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
    mu_tensor *(*values)(mu_tensor *y_true, mu_tensor *y_pred);  // what is averaged; NULL: y_true itself
};
mu_status mu__metric_build(mu_metric *metric);
mu_status mu__metric_add(mu_metric *metric, mu_tensor *total, mu_tensor *count);

// At most one of them is set.
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
    // apply_slices updates one from this replica's slices, and puts the replicas' together itself. Optional:
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
    mu_tensor *step;             // iterations read in the step being traced
};
// mu__optimizer_build makes the state for these variables that the first step would make.
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
    const char *monitor;          // built-in callbacks: the logged value that they need, in `state`; NULL: none
    // When a signal ends fit: the step in progress is finished, nothing is under way. Optional.
    mu_status (*on_interrupt)(const mu_logs *logs, void *arg);
};
mu_callback *mu__callback_built_in(mu_callback_args hooks, void *state);  // takes over `state`

// Where fit is: for what saves that, and takes it up again before the first epoch.
struct mu_fit_position {
    int epoch;               // the one in progress, from 0; between epochs the next one
    int64_t step;            // how many of its steps are finished
    mu_dataset *data;
    mu_iterator *iterator;   // whose place counts; NULL: a new iteration of the data is next
    char *restored;          // a saved place where the data begins; owned
};
// mu__fit_data_state writes down the place in the data; freed with mu__free. NULL on error.
char *mu__fit_data_state(const mu_model *model);

// ---- Hooks (hooks.c) ----------------------------------------------------------------------------

typedef enum mu_hook {
    MU_HOOK_TRAIN_BEGIN, MU_HOOK_EPOCH_BEGIN, MU_HOOK_BATCH_END, MU_HOOK_EPOCH_END, MU_HOOK_TRAIN_END
} mu_hook;
// mu__check_callbacks checks, before training, that all are there and that what they watch will be logged; `validates`:
// so will what begins with "val_". Lists end with MU_END; NULL is an empty one.
mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, bool validates);
bool mu__watches_batches(mu_callback *const *callbacks);
// mu__call_hooks calls one hook of each, in order, up to the first that fails. Errors: INVALID_ARGUMENT if one
// returns a code but leaves no record.
mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs);

// mu__fit_dataset is `x`, or a dataset of the rows of `arrays` (given to the pool); NULL on error. Not for both.
mu_dataset *mu__fit_dataset(mu_dataset *x, mu_value *arrays, int64_t batch_size, bool shuffle, const char *function);

// ---- Progress (progress.c) ----------------------------------------------------------------------

typedef struct mu_progress {
    FILE *out;
    mu_verbose mode;              // resolved: never AUTO
    bool colour;
    int64_t target;               // steps; -1 while unknown
    int64_t begin_ns, shown_ns;   // shown: when something was drawn last
    int64_t step, shown_step;     // the last finished one; the one that was drawn last
    int width;                    // columns
    size_t last_length;
    double input_share;           // of the time: devices waited for input
} mu_progress;
void mu__progress_begin(mu_progress *progress, mu_verbose verbose, int epoch, int epochs, int64_t target);
void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
bool mu__progress_due(const mu_progress *progress);  // mu__progress_step would draw
void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
void mu__progress_abandon(mu_progress *progress);  // leaves the terminal on a new line

#endif
