// Internal interface of models: losses, metrics, optimizers, and the state of fit. Layers: layer.h.
//
// Each class has a table of fields and a few functions written with ops. Distribution of variables and reduction of
// gradients are the strategy's task.
#ifndef MU_SRC_MODEL_MODEL_H
#define MU_SRC_MODEL_MODEL_H

#include "model/layer.h"

#include <muster/model.h>
#include <pthread.h>

#define MU_MAX_LOGS 128  // values of one epoch, those of validation included

typedef struct mu_fit_position mu_fit_position;
typedef struct mu_model_use mu_model_use;
typedef struct mu_layer_call mu_layer_call;

// ---- Names of inputs and outputs (names.c) ------------------------------------------------------

typedef struct mu_name_list {
    char **items;
    size_t n, capacity;
} mu_name_list;
enum { MU_NAME_LIST_TEXT = 400 };
mu_status mu__name_list_add(mu_name_list *list, const char *name);  // with a number behind it if the list has the name
mu_status mu__name_list_copy(mu_name_list *list, size_t n, char *const *names);
int mu__name_list_find(const mu_name_list *list, const char *name); // -1: it is not there
void mu__name_list_text(const mu_name_list *list, char text[MU_NAME_LIST_TEXT]);  // "'a', 'b'"
void mu__name_list_free(mu_name_list *list);
bool mu__is_flat_map(const mu_value *nest);  // a map of single tensors
// mu__places_by_name writes where in a map each name's tensor is, -1 for none. Errors: INVALID_ARGUMENT, also for a
// name that is missing (MU_NAMES_ALL) or a key that is no name (MU_NAMES_KNOWN).
typedef enum mu_name_rule { MU_NAMES_ALL, MU_NAMES_KNOWN } mu_name_rule;
mu_status mu__places_by_name(const mu_value *map, const mu_name_list *names, mu_name_rule rule, const char *what,
                             int *places);

// What compile and fit keep of a model.
struct mu_trainer {
    mu_optimizer *optimizer;     // set by compile; retained, like the next fields
    mu_name_list outputs;        // their names; empty: not known before the model is called
    int n_losses;                // 1, or one for each output
    mu_loss **losses;            // NULL: none for this output
    double *loss_weights;        // of the outputs' losses; owned
    int n_metrics;
    mu_metric **metrics;         // the mean loss first, then, if several outputs have one, their losses, then compile's
    int *metric_outputs;         // which output each metric compares; owned
    int first_metric;            // of compile's metrics
    int first_weighted;          // metrics from here on count samples by their weights
    int first_of_layers;         // metrics from here on are those of layers, whose calls update them
    bool compiled, run_eagerly;
    mu_tensor *(*train_step)(mu_model *model, mu_value *batch, void *arg);  // of the program's own; NULL: fit's
    mu_tensor *(*test_step)(mu_model *model, mu_value *batch, void *arg);
    void *step_arg;
    mu_function *train_function, *test_function, *predict_function;
    int64_t steps_per_execution; // of training
    mu_function *loop_function;  // several training steps as one run (looped_steps.c); NULL: steps_per_execution is 1
    bool stop;
    void *coordinator;           // of steps on workers (worker_steps.c); retained. NULL: none yet
    mu_model_use *use;           // the innermost running call of fit, evaluate or predict; NULL: none
};

// mu__adopt_metrics adds the metrics of layers that are not among a compiled model's yet (layer_metrics.c).
mu_status mu__adopt_metrics(mu_model *model);
// mu__check_labels refuses two values that would be logged under one name.
mu_status mu__check_labels(const mu_trainer *trainer);

// mu__model_make makes a model of a class of layers that call others. Belongs to the pool; NULL on error.
mu_model *mu__model_make(const mu_layer_ops *ops, const void *args);
// mu__model_build makes the weights for inputs of this shape, whose batch axis may be known.
mu_status mu__model_build(mu_model *model, const mu_shape *input);
void mu__trainer_free(mu_trainer *trainer);  // NULL is accepted
// mu__need_model checks that a layer is a model. Errors: INVALID_ARGUMENT in the name of `function`.
mu_status mu__need_model(const mu_model *model, const char *function);

// The steps of fit, evaluate and predict, for mu_function_new with the model as argument (step.c).
mu_value *mu__train_step(mu_value *batch, void *model);
enum { MU_MOST_LOOPED_STEPS = 256 };
mu_value *mu__train_steps(mu_value *batches, void *model);  // (looped_steps.c)
// mu__metric_states returns every state of every metric on this replica, as a step does.
mu_value *mu__metric_states(const mu_trainer *trainer);
mu_value *mu__test_step(mu_value *batch, void *model);
mu_value *mu__predict_step(mu_value *batch, void *model);

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

// mu__added_losses (losses_added.c) writes the sum of the losses that layers added in the model's last call on this
// thread, and the sum of all penalties on weights; NULL where there are none.
mu_status mu__added_losses(const mu_model *model, mu_tensor **added, mu_tensor **penalty);

// ---- Losses (loss.c, losses.c) ------------------------------------------------------------------

typedef struct mu_loss_ops {
    mu_class class;
    const char *short_name;    // "mse"; NULL: none
    bool takes_labels;         // y_true stays as it is; otherwise it gets the type and the rank of y_pred
    // call returns the loss of each sample: [batch, …]. Belongs to the pool; NULL on error.
    mu_tensor *(*call)(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);
    // valid returns which of these losses count, bool of their shape; NULL without an error: all. Optional.
    mu_tensor *(*valid)(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *losses);
} mu_loss_ops;

struct mu_loss {
    mu_object object;
    const mu_loss_ops *ops;
    void *args;                // begins with the members of mu_loss_args
};

// The options that every class of losses begins with.
extern const char *const mu__reductions[];
extern const mu_field mu__loss_fields[];
#define MU_LOSS_FIELDS(type)                                                                            \
    MU_FIELD(type, reduction, WORD, .text = "sum_over_batch_size", .words = mu__reductions),            \
    MU_FIELD(type, name, NAME)

mu_loss *mu__loss_make(const mu_loss_ops *ops, const void *args);  // belongs to the pool; NULL on error
const mu_loss_ops *mu__loss_find(const char *name);                // by Keras's names; NULL: there is none
mu_tensor *mu__loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);
// mu__ctc_loss (loss_ctc.c) returns CTC's loss of each sample: [batch]. y_true: class numbers [batch, labels], 0 behind
// the last; y_pred: logits [batch, time, classes], class 0 the blank.
mu_tensor *mu__ctc_loss(mu_tensor *y_true, mu_tensor *y_pred);
// mu__weights_like broadcasts weights [batch, …] to `values`. mu__join_weights multiplies weights and mask, each of
// which may be NULL; a mask of more axes than `values` does not apply to them. NULL without an error: neither is there.
mu_tensor *mu__weights_like(mu_tensor *weights, mu_tensor *values);
mu_tensor *mu__join_weights(mu_tensor *weights, mu_tensor *mask, mu_tensor *values);

typedef struct mu_loss_inputs {
    mu_tensor *y_true, *y_pred, *weights, *mask;  // the last two may be NULL
} mu_loss_inputs;
typedef struct mu_loss_share {
    mu_tensor *share;          // this replica's share of the batch's loss: the shares of all replicas add up to it
    mu_tensor *total, *count;  // what it adds to the mean loss of the epoch
} mu_loss_share;
mu_status mu__loss_share(const mu_loss *loss, const mu_loss_inputs *in, mu_loss_share *out);

// ---- Metrics (metric.c, metrics*.c) -------------------------------------------------------------

typedef struct mu_metric_ops {
    mu_class class;
    bool compares;             // update needs y_pred
    // states writes names and shapes, at most MU_MAX_METRIC_STATES, and returns how many there are.
    int (*states)(const mu_metric *metric, mu_metric_state *states);
    // update adds a batch with mu_metric_add; `weights` may be NULL.
    mu_status (*update)(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights);
    // result computes the metric from the numbers of all states, side by side, summed over all replicas. Instead,
    // results writes several, at most one per number of the states, and returns how many; their mean is the result.
    double (*result)(const mu_metric *metric, const double *sums);
    int (*results)(const mu_metric *metric, const double *sums, double *out);
    bool maximized;            // larger is better
    bool by_column;            // the states' shapes are known from the first batch on, in `columns`
} mu_metric_ops;

// A class of metrics and the function that makes one; the other fields of its mu_metric_ops by name.
#define MU_METRIC(word, keras_class, args_type, args_fields, completes, ...)                                       \
    static const mu_metric_ops word##_ops = {                                                                      \
        .class = {#word, keras_class, "mu_" #word "_metric", MU_OPTIONS(args_type), args_fields, completes},       \
        .compares = true, __VA_ARGS__};                                                                            \
    mu_metric *mu_##word##_metric_with(const args_type *args)                                                      \
    {                                                                                                              \
        return mu__metric_make(&word##_ops, args);                                                                 \
    }

struct mu_metric {
    mu_object object;
    const mu_metric_ops *ops;
    void *args;
    char *name;
    char *label;               // by which a model with several outputs logs it; NULL: its name
    struct { mu_variable **items; size_t n, capacity; } states;  // made on first use; retained
    mu_loss *loss;             // of a metric that averages a loss; retained
    // Of a step on a worker, while it is traced: what is added to each state (NULL: nothing) instead of the variables.
    bool collects;
    mu_tensor *added[MU_MAX_METRIC_STATES];
    int64_t columns;           // of the predictions, for classes whose states have as many; 0: not known yet
};

typedef struct mu_metric_name_args {  // of classes without options
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} mu_metric_name_args;
mu_metric *mu__metric_make(const mu_metric_ops *ops, const void *args);  // belongs to the pool; NULL on error
// The classes of each file, which end with NULL.
extern const mu_metric_ops *const mu__mean_metrics[], *const mu__counting_metrics[], *const mu__iou_metrics[],
    *const mu__column_metrics[], *const mu__correlation_metrics[];
// mu__metric_find returns a class by Keras's names; NULL: there is none. mu__metric_known returns whether
// mu__metric_named knows a name. mu__metric_word returns the name that Keras has for what is no class of its own here
// ("accuracy", the name of a loss); NULL: it is one.
const mu_metric_ops *mu__metric_find(const char *name);
bool mu__metric_known(const char *name);
const char *mu__metric_word(const mu_metric *metric);
// mu__metric_label returns the name by which a model logs a metric; its states have it too. mu__metric_set_label makes
// it PREFIX and the name. Errors: INVALID_ARGUMENT if it becomes too long.
const char *mu__metric_label(const mu_metric *metric);
mu_status mu__metric_set_label(mu_metric *metric, const char *prefix);
double mu__metric_value(const mu_metric *metric, const double *sums);    // NaN after an error
mu_status mu__metric_build(mu_metric *metric);
int mu__metric_state_count(const mu_metric *metric);
const char *mu__metric_state_name(const mu_metric *metric, int i);
int64_t mu__metric_numbers(const mu_metric *metric);                     // of all states together
// mu__metric_read reads the sums over all replicas; mu__metric_write makes them these numbers.
mu_status mu__metric_read(const mu_metric *metric, double *sums);
mu_status mu__metric_write(mu_metric *metric, const double *sums);
// A mean: what classes whose result is the mean of values per sample have in common.
int mu__mean_states(const mu_metric *metric, mu_metric_state *states);
mu_status mu__mean_update(mu_metric *metric, mu_tensor *values, mu_tensor *weights);
double mu__mean_result(const mu_metric *metric, const double *sums);

// ---- Learning rate schedules (schedules.c) ------------------------------------------------------

typedef struct mu_schedule_ops {
    mu_class class;
    // call returns the rate for a step; both are scalars of one type. Belongs to the pool; NULL on error.
    mu_tensor *(*call)(const void *args, mu_tensor *step);
} mu_schedule_ops;

struct mu_learning_rate_schedule {
    mu_object object;
    const mu_schedule_ops *ops;
    void *args;
};

// ---- Optimizers (optimizer.c, optimizers.c, apply_gradients.c, loss_scale.c) --------------------

// At most one field is set.
typedef struct mu_clipping {
    double norm, global_norm, value;
} mu_clipping;
mu_status mu__check_clipping(const mu_clipping *clipping, const char *function);
// mu__clip clips gradients in place, with ops.
mu_status mu__clip(const mu_clipping *clipping, int n, mu_gradient *gradients);

enum { MU_MAX_SLOTS = 5, MU_MAX_OPTIMIZER_SCALARS = 2 };

typedef struct mu_optimizer_slot {
    const char *name;            // Keras's name
    double initial;
    int without;                 // the variable's axis that the slot lacks, from the end: -1, -2; 0: none is lacking
} mu_optimizer_slot;

// A scalar that an optimizer keeps besides its slots.
typedef struct mu_optimizer_scalar {
    const char *name;
    mu_dtype dtype;              // MU_DTYPE_DEFAULT: that of mu_set_floatx
    double initial;
} mu_optimizer_scalar;

// The update of one variable. Tensors have the variable's type.
typedef struct mu_optimizer_update {
    mu_optimizer *optimizer;
    mu_variable *variable;
    mu_variable *const *slots;   // in the order of the class's `slots`
    mu_gradient gradient;        // the sum of all replicas; for update_slices this replica's slices
    mu_tensor *magnitude;        // the class's magnitude of it; NULL if the class has none
    mu_tensor *rate, *step;      // scalars: the learning rate; the number of this update, from 1
    mu_tensor *earlier;          // int64 scalar: the number of earlier updates
} mu_optimizer_update;

typedef struct mu_optimizer_ops {
    mu_class class;
    // slots writes what each variable has, at most MU_MAX_SLOTS - 2, and returns how many. Optional: none.
    int (*slots)(const void *args, mu_optimizer_slot *slots);
    // scalars writes what the optimizer has, at most MU_MAX_OPTIMIZER_SCALARS, and returns how many. Optional: none.
    int (*scalars)(const void *args, mu_optimizer_scalar *scalars);
    // The function of the gradient's size that the formula has: mu_square or mu_abs. Slices count separately in it.
    // Optional.
    mu_tensor *(*magnitude)(mu_tensor *gradient);
    // begin updates the scalars, before the variables of an update. Optional.
    mu_status (*begin)(mu_optimizer *optimizer, mu_tensor *earlier);
    // update updates a variable and its slots, with ops.
    mu_status (*update)(const mu_optimizer_update *update);
    // takes_slices tells whether update_slices updates this variable from this replica's slices, and itself combines
    // those of all replicas. Optional: slices become dense first.
    bool (*takes_slices)(const void *args, const mu_variable *variable);
    mu_status (*update_slices)(const mu_optimizer_update *update);
} mu_optimizer_ops;

struct mu_optimizer {
    mu_object object;
    const mu_optimizer_ops *ops;
    void *args;                  // begins with the members of mu_optimizer_args, except for a loss scale optimizer
    mu_optimizer *inner;         // of a loss scale optimizer; retained. NULL: an optimizer that updates itself
    mu_strategy *strategy;       // in whose scope it was made; retained
    int n_slots;                 // of each variable
    mu_optimizer_slot slot_kinds[MU_MAX_SLOTS];
    int average, accumulator;    // which slots they are; -1: none
    bool averages_in_place;      // variables and their averages are exchanged
    mu_variable *iterations, *learning_rate;                        // learning_rate is NULL under a schedule
    int n_scalars;
    mu_optimizer_scalar scalar_kinds[MU_MAX_OPTIMIZER_SCALARS];
    mu_variable *scalars[MU_MAX_OPTIMIZER_SCALARS];                 // NULL before the first step
    struct { mu_variable **items; size_t n, capacity; } variables;  // in order of first use
    struct { mu_variable **items; size_t n, capacity; } slots;      // n_slots for each of them
    struct { mu_object **items; size_t n, capacity; } left;         // what workers leave for updates; retained
    mu_value *excluded;          // variables that weight decay leaves alone; retained. NULL: none
    char *excluded_names;        // a regular expression; NULL: none
};
extern const mu_optimizer_ops mu__loss_scale_ops;

// mu__optimizer_swap_averages exchanges all variables and their moving averages, if the optimizer keeps these
// (use_ema) and has trained; in_place: they are exchanged now. mu_optimizer_finalize_variable_values ends that.
bool mu__optimizer_has_averages(mu_optimizer *optimizer);
bool mu__optimizer_averages_in_place(mu_optimizer *optimizer);
mu_status mu__optimizer_swap_averages(mu_optimizer *optimizer);

mu_optimizer *mu__optimizer_make(const mu_optimizer_ops *ops, const void *args);  // belongs to the pool; NULL on error
mu_optimizer *mu__optimizer_named(const char *name, const char *function);        // with default options
const mu_optimizer_ops *mu__optimizer_find(const char *name);                     // by Keras's names; NULL: none
const char *mu__optimizer_name(const mu_optimizer *optimizer);                    // its state's names begin with it
// mu__optimizer_need makes the scalars of the optimizer's state where they are missing.
mu_status mu__optimizer_need(mu_optimizer *optimizer);
// mu__optimizer_build makes the optimizer's state for these variables, as the first step would.
mu_status mu__optimizer_build(mu_optimizer *optimizer, int n, mu_variable *const *variables);
// mu__optimizer_slots returns the slots of a variable, made if they are missing; NULL on error.
mu_variable *const *mu__optimizer_slots(mu_optimizer *optimizer, mu_variable *variable);
bool mu__optimizer_decays(const mu_optimizer *optimizer, const mu_variable *variable);
// mu__optimizer_forget_left frees `left`; what workers have left is then never applied.
void mu__optimizer_forget_left(mu_optimizer *optimizer);
// mu__loss_scale_update changes the scale after a step whose gradients are all finite (a bool scalar), or are not.
mu_tensor *mu__loss_scale(const mu_optimizer *optimizer);
mu_status mu__loss_scale_update(mu_optimizer *optimizer, mu_tensor *finite);

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
    void *state;                  // built-in callbacks: owned
    const mu_class *class;        // built-in callbacks with a table of fields; NULL: none
    void *args;                   // their options; owned
    void (*on_destroy)(void *state);  // releases what the state owns; optional
    const char *monitor;          // built-in callbacks: the logged value that they watch, stored in `state`; NULL: none
    const char *path;             // built-in callbacks: a path with {names} of logged values, stored in `args`; or NULL
    // Called when a signal ends fit, after the step in progress has finished. Optional.
    mu_status (*on_interrupt)(const mu_logs *logs, void *arg);
};
mu_callback *mu__callback_built_in(mu_callback_args hooks, void *state);  // takes ownership of `state`

// The position of fit, for callbacks that save it and restore it before the first epoch.
struct mu_fit_position {
    int epoch;               // epoch in progress, from 0; between epochs the next one
    int64_t step;            // number of its finished steps
    mu_dataset *data;        // NULL: of a creator, without a position to save
    bool begun;              // the data are open at the position; else a new iteration is next
    mu_iterator *iterator;   // with the position, if `data` is set
    char *restored;          // a saved position in the data to start from; owned
};
// mu__fit_data_state returns the position in the data as text; free with mu__free. NULL on error.
char *mu__fit_data_state(const mu_model *model);

// ---- Hooks (hooks.c) ----------------------------------------------------------------------------

typedef enum mu_hook {
    MU_HOOK_TRAIN_BEGIN, MU_HOOK_TRAIN_END, MU_HOOK_EPOCH_BEGIN, MU_HOOK_EPOCH_END, MU_HOOK_BATCH_BEGIN,
    MU_HOOK_BATCH_END, MU_HOOK_TEST_BEGIN, MU_HOOK_TEST_END, MU_HOOK_TEST_BATCH_BEGIN, MU_HOOK_TEST_BATCH_END,
    MU_HOOK_PREDICT_BEGIN, MU_HOOK_PREDICT_END, MU_HOOK_PREDICT_BATCH_BEGIN, MU_HOOK_PREDICT_BATCH_END
} mu_hook;
// mu__check_callbacks checks before training that no callback is NULL and that the values they watch will be logged;
// `validates`: so will values whose names begin with "val_". Lists end with MU_END; NULL is an empty list.
mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, bool validates);
// mu__need_callbacks checks only that none is NULL, in the name of `function`.
mu_status mu__need_callbacks(mu_callback *const *callbacks, const char *function);
bool mu__watches(mu_callback *const *callbacks, mu_hook which);  // whether any callback has this hook
// mu__call_hooks calls a hook of each callback in order, and stops at the first that fails. Errors: INVALID_ARGUMENT if
// one returns a code without recording an error.
mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs);

// Arguments that may be of several kinds (arguments.c, arrays.c); `function` names the caller in errors. What they
// return is borrowed or belongs to the pool; a NULL argument gives NULL without an error.
mu_optimizer *mu__optimizer_argument(const void *given, const char *function);
// mu__callbacks_argument fills a list of `*n` objects, for mu__free. mu__loss_named and mu__metric_named make an object
// with default options by Keras's name, mu__loss_argument and mu__metric_argument one of an object or its name.
mu_loss *mu__loss_named(const char *name, const char *function);
mu_metric *mu__metric_named(const char *name, const char *function);
// mu__metric_called is mu__metric_named for an argument: the metric's own name is the one that is given, "mae".
mu_metric *mu__metric_called(const char *name, const char *function);
mu_loss *mu__loss_argument(const void *given, const char *function);
mu_metric *mu__metric_argument(const void *given, const char *function);
mu_status mu__callbacks_argument(const void *given, const char *function, mu_callback ***callbacks);

// ---- What compile is given for each output (compile_outputs.c) ----------------------------------

typedef struct mu_for_outputs {
    mu_name_list names;          // of the outputs; empty: not known
    int n_losses;
    mu_loss **losses;            // one for each output, NULL for none; borrowed
    double *weights;
    struct mu_output_metric { mu_metric *metric; int output; } *metrics;  // borrowed
    size_t n_metrics, first_weighted;
} mu_for_outputs;
// mu__for_outputs finds out what .loss, .metrics and their like give each output. Release it also after an error.
mu_status mu__for_outputs(const mu_compile_args *args, mu_for_outputs *out);
void mu__for_outputs_free(mu_for_outputs *out);
extern mu_type mu__optimizer_type, mu__schedule_type, mu__loss_type, mu__metric_type, mu__callback_type;

// What makes the datasets of workers.
struct mu_dataset_creator {
    mu_object object;
    mu_dataset *(*fn)(const mu_input_context *context, void *arg);
    void *arg;
};

// Samples for fit, evaluate and predict: a dataset of batches, or rows that become one.
typedef struct mu_samples {
    const void *x, *y;
    int64_t batch_size;      // 0: the default
    bool shuffle;
    const void *weights;     // of samples; with y
} mu_samples;
// mu__samples_split moves the last `share` of the rows into `rest`.
mu_status mu__samples_split(mu_samples *samples, double share, mu_samples *rest, const char *function);
// mu__samples_element returns x, y and weights as one list, or what is there of them.
mu_value *mu__samples_element(const mu_samples *samples, const char *function);
// mu__class_weights adds sample weights by the labels' classes to a dataset; the numbers must live as long as that.
typedef struct mu_class_weights {
    const double *weights;
    int n;
} mu_class_weights;
mu_dataset *mu__class_weights(mu_dataset *data, const mu_class_weights *by, const char *function);
mu_dataset *mu__samples_dataset(const mu_samples *samples, const char *function);

// mu__shape_as_keras writes "(None, 28, 28)" (summary.c).
void mu__shape_as_keras(const mu_shape *shape, char text[MU_SHAPE_TEXT]);

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
    char workers[256];            // what a coordinator's workers do; "": there are none
} mu_progress;
int mu__terminal_width(FILE *out);  // columns; 0: not known, or no terminal
void mu__progress_begin(mu_progress *progress, mu_verbose verbose, int epoch, int epochs, int64_t target);
void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
bool mu__progress_due(const mu_progress *progress);  // whether mu__progress_step would draw
void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
void mu__progress_abandon(mu_progress *progress);  // moves the terminal to a new line

#endif
