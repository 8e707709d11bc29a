// Models as in Keras: sequential and functional models; compile, fit, evaluate, predict; callbacks. Layers are in
// muster/layer.h and muster/spatial.h, losses and metrics in muster/loss.h, optimizers in muster/optimizer.h, which
// this header includes.
//
// Names, defaults and formulas are those of Keras 3. Where Keras's default is true, the option here is the opposite
// (.no_bias, .no_shuffle), so that false is the default of every option.
//
// Errors: what makes a model or a callback fails with INVALID_ARGUMENT, as what makes a layer does (muster/layer.h).
// What trains or measures fails with INVALID_ARGUMENT for data that do not fit the model, FAILED_PRECONDITION for a
// model that is not compiled or that another thread uses, and with the errors of data, callbacks and strategy. A
// question about a model or a history returns NULL, 0, -1 or NaN for NULL.
#ifndef MUSTER_MODEL_H
#define MUSTER_MODEL_H

#include <muster/layer.h>
#include <muster/loss.h>
#include <muster/optimizer.h>
#include <muster/spatial.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_callback mu_callback; // functions that mu_fit calls at moments of the training
typedef struct mu_history mu_history;   // the values of a training run, by name and epoch

// ---- Models -------------------------------------------------------------------------------------

// mu_sequential(layer, layer, …) makes a model that applies the layers one after the other. Retains: the layers. If
// the first is mu_input_layer, the weights are made at once; otherwise from the shape of the first input.
#ifndef __cplusplus
#define mu_sequential(...) mu_sequential_of((mu_layer *const[]){__VA_ARGS__, MU_END})
#endif
MU_API mu_model *mu_sequential_of(mu_layer *const *layers); // `layers` ends with MU_END

typedef struct mu_input_args {
    size_t size;
    const char *given;
    int64_t shape[MU_MAX_SAMPLE_RANK]; // of a sample, without the batch axis; ends with 0
    mu_keyword_only only_;
    mu_dtype dtype; // default: that of mu_set_floatx; MU_STRING: for the layers of text.h
    const char *name;
    int64_t batch_size; // of all batches, which stateful layers need to know; default: any
} mu_input_args;
// mu_input makes a placeholder for a model's input: mu_input({28, 28, 1}). Calling a layer on it (mu_call) makes the
// layer's weights and returns a placeholder for the output. Ops do not take such tensors; layers do.
#define mu_input(...) mu_input_with(MU_ARGS(mu_input_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_input_with(const mu_input_args *args);
// mu_input_layer makes a layer that begins a sequential model and says the shape of its input.
#define mu_input_layer(...) mu_input_layer_with(MU_ARGS(mu_input_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_input_layer_with(const mu_input_args *args);

#define MU_MAX_MODEL_INPUTS 64

typedef struct mu_model_args {
    size_t size;
    const char *given;
    mu_tensor *input, *output;
    mu_keyword_only only_;
    mu_value *inputs;  // instead of input: a list of tensors of mu_input
    mu_value *outputs; // instead of output: a list
    const char *name;
} mu_model_args;
// mu_model_new makes a model of the layers that lead from the inputs to the outputs: a functional model. A layer that
// was called several times is shared. Inputs and outputs number at most MU_MAX_MODEL_INPUTS each. Retains: all of
// these. Errors: INVALID_ARGUMENT if an output depends on an input that is not given.
#define mu_model_new(...) mu_model_new_with(MU_ARGS(mu_model_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_model *mu_model_new_with(const mu_model_args *args);

typedef struct mu_model_subclass_args {
    size_t size;
    const char *given;
    const char *class_name; // in snake case, for names and the summary; default "model"
    mu_keyword_only only_;
    // as in mu_layer_new: build makes weights and may set layers, call computes the outputs
    mu_status (*build)(mu_layer *model, int n, const mu_shape *inputs, void *arg);
    mu_value *(*call)(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg);
    void *arg; // must live as long as the model
    const char *name;
    const char *dtype;
    mu_layer *(*clone)(const mu_layer *model, void *arg);
} mu_model_subclass_args;
// mu_model_subclass makes a model whose weights and outputs are made by C functions: what a subclass of keras.Model is.
// It is compiled, trained, summarised and saved like any other. Its layers are its attributes (mu_layer_set_attribute);
// weights (mu_layer_add_weight), losses and metrics (mu_layer_add_loss, mu_layer_add_metric) of its own are those of a
// layer. Inputs and outputs are one tensor, or a list or map of several: mu_compile takes losses in the list's order,
// or by the map's keys. Layers that `call` calls without .training use the model's mode and get the masks of their
// inputs (mu_mask_of). The weights are made by the first call, or by mu_call with tensors of mu_input. Look-ups of
// strings run before a step, so put them in front of it, in a functional model that calls this one. What needs a
// configuration (mu_save_model, mu_layer_config) is refused; mu_save_weights, mu_load_weights and checkpoints are not.
//     mu_model *model = mu_model_subclass("autoencoder", .call = encode_and_decode);
//     mu_layer_set_attribute(model, "encoder", mu_dense(8, .activation = "relu"));
//     mu_layer_set_attribute(model, "decoder", mu_dense(64));
#define mu_model_subclass(...) mu_model_subclass_with(MU_ARGS(mu_model_subclass_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_model *mu_model_subclass_with(const mu_model_subclass_args *args);

// mu_model_build makes the weights for inputs of this shape (`dims` without the batch axis). mu_fit and mu_call do it
// automatically, from the shape of their input. Errors: INVALID_ARGUMENT for a shape that the layers do not take.
MU_API mu_status mu_model_build(mu_model *model, int rank, const int64_t *dims);

typedef struct mu_call_args {
    size_t size;
    const char *given;
    mu_model *model; // or a layer
    mu_tensor *x;
    mu_keyword_only only_;
    // apply dropout, and normalize by the batch's statistics; left out in a layer's call: as that layer. A call on
    // tensors of mu_input keeps the mode that it is given for runs that are given none (mu_call without .training);
    // fit, evaluate and predict say one, which counts for all calls, as in Keras. A frozen batch normalization keeps
    // its statistics
    bool training;
    mu_value *inputs; // instead of x: a list of several inputs
    // bool, [batch, steps]: false leaves a step out (mu_softmax: an element of x); default: mu_mask_of(x)
    mu_tensor *mask;
    // instead of mask: a list for .inputs; an empty list for none. mu_multi_head_attention and
    // mu_grouped_query_attention: an empty list in the list is the mask that the input carries
    mu_value *masks;
    bool reverse; // the reverse of mu_reversible_embedding, or of a layer of your own
} mu_call_args;
// mu_call runs a model or a layer on x: [batch, …]. mu_call_values calls a layer or model that has several outputs, and
// returns them in the structure of the model's .outputs. Errors of mu_call: INVALID_ARGUMENT for several outputs.
#define mu_call(...) mu_call_with(MU_ARGS(mu_call_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_call_with(const mu_call_args *args);
#define mu_call_values(...) mu_call_values_with(MU_ARGS(mu_call_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_call_values_with(const mu_call_args *args);

MU_API mu_value *mu_trainable_variables(mu_model *model);  // a list, in the order of the layers
MU_API mu_value *mu_model_weights(mu_model *model);        // trainable and other weights, in the order of the layers
MU_API int64_t mu_model_parameters(const mu_model *model); // total number of elements of all weights
// mu_model_losses returns a list of scalars for loops of your own, which add them to the loss: what layers added in the
// model's last call on this thread (mu_layer_add_loss, activity regularizers), and the penalties on weights.
MU_API mu_value *mu_model_losses(mu_model *model);
// mu_model_layer finds a layer by its name; it belongs to the model. Errors: NOT_FOUND.
MU_API mu_layer *mu_model_layer(mu_model *model, const char *name);
// mu_model_layer_count returns how many layers a model has, inputs not counted, and mu_model_layer_at the layer of a
// number, from 0 in the order of mu_summary; negative numbers count from the end, -1 is the last. It belongs to the
// model. Errors: OUT_OF_RANGE for another number.
MU_API int mu_model_layer_count(const mu_model *model);
MU_API mu_layer *mu_model_layer_at(mu_model *model, int i);
// A model of parts of another, which shares the layers and their weights: Keras's model.input, model.output and
// layer.output. mu_model_input and mu_model_output return the placeholder of input or output i of a functional or
// sequential model, mu_model_layer_output for output i of the layer of this name where the model first calls it; layers
// are called on these, and mu_model_new takes them. A sequential model must have its weights (mu_model_build). Errors:
// NOT_FOUND for a layer, OUT_OF_RANGE for an i that is none; FAILED_PRECONDITION without weights; INVALID_ARGUMENT for
// a model that is a function in C.
//     mu_tensor *x = mu_model_layer_output(base, "block3", 0);
//     mu_model *features = mu_model_new(mu_model_input(base, 0), mu_call(mu_dense(10), x));
MU_API mu_tensor *mu_model_input(mu_model *model, int i);
MU_API mu_tensor *mu_model_output(mu_model *model, int i);
MU_API mu_tensor *mu_model_layer_output(mu_model *model, const char *layer, int i);
// mu_model_input_name and mu_model_output_name return the name of input or output i of a functional model: the key in a
// map; in a list that of mu_input, or of the layer that makes the output. It belongs to the model; NULL past the last,
// and for other models.
MU_API const char *mu_model_input_name(const mu_model *model, int i);
MU_API const char *mu_model_output_name(const mu_model *model, int i);

typedef struct mu_summary_args {
    size_t size;
    const char *given;
    mu_model *model;
    FILE *out; // default: stdout
    mu_keyword_only only_;
    // columns of the table; default: 88, or 108 where there are connections, 12 more with .show_trainable, but at most
    // the terminal's width (80 if there is none) less 4
    int line_length;
    bool expand_nested;  // also the layers of models in the model
    bool show_trainable; // a column that says which layers with weights are trained: Y or N
    // only the layers from the first whose name begins with the first regular expression (POSIX extended) to the last
    // whose name begins with the second; default: all
    const char *layer_range[2];
    // where each column but that of show_trainable ends, as shares of the line: three, or four where there are
    // connections; default: {.45, .8, 1}, or {.3, .56, .74, 1}
    double positions[4];
} mu_summary_args;
// mu_summary prints a table of layers, output shapes and parameters, as Keras does; where layers do not follow each
// other in a row, also the layers that each is connected to. A word that is longer than its column is cut, with an
// ellipsis at its end. Keras also lists the operations with which it computes masks, which layers do here themselves.
// Errors: INVALID_ARGUMENT for a line that is too short, a range without layers, or another number of positions.
#define mu_summary(...) mu_summary_with(MU_ARGS(mu_summary_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_summary_with(const mu_summary_args *args);

// mu_layer_config returns a layer's or model's configuration as Keras's JSON (valid until the pool closes), from which
// keras.layers.deserialize makes the same layer. mu_layer_from_config makes a layer from such a configuration. Errors:
// INVALID_ARGUMENT for text that is not such a configuration; UNIMPLEMENTED for a class or option that Muster lacks.
MU_API const char *mu_layer_config(const mu_layer *layer);
MU_API mu_layer *mu_layer_from_config(const char *json);

// mu_model_weight finds a weight by its path, as Keras's variables have one: "conv2d/kernel", in a nested model
// "encoder/conv2d/kernel". mu_model_weights lists them all, mu_variable_name returns the path of each; mu_variable_read
// and mu_variable_assign get and set it; it belongs to the model. Errors: NOT_FOUND; FAILED_PRECONDITION for a model
// without weights yet.
MU_API mu_variable *mu_model_weight(mu_model *model, const char *path);

// mu_save_weights writes all weights to a safetensors file, atomically, under names such as "conv2d/kernel". Errors:
// FAILED_PRECONDITION for a model without weights yet; RESOURCE_EXHAUSTED (disk full; the old file is kept);
// UNIMPLEMENTED where Keras would number the objects of a checkpoint otherwise.
MU_API mu_status mu_save_weights(mu_model *model, const char *path);

typedef struct mu_load_weights_args {
    size_t size;
    const char *given;
    mu_model *model;
    const char *path; // of a file of mu_save_weights, or of another that muster convert reads
    mu_keyword_only only_;
    // load only the weights in whose path this regular expression (POSIX extended) occurs, "^encoder/"; others stay
    const char *only;
    bool skip_mismatch; // leave weights that the file lacks, or has in another shape or type
} mu_load_weights_args;
// mu_load_weights reads weights of a file; of Keras's formats also the optimizer's state, if all weights are loaded.
// Either all selected weights change, or none. Errors: NOT_FOUND, DATA_LOSS; INVALID_ARGUMENT if names or shapes do not
// match the model, or no weight is selected; FAILED_PRECONDITION for a model without weights yet; UNIMPLEMENTED for a
// type or a form of file that Muster lacks.
#define mu_load_weights(...) mu_load_weights_with(MU_ARGS(mu_load_weights_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_load_weights_with(const mu_load_weights_args *args);

// ---- compile, fit, evaluate, predict ------------------------------------------------------------

// mu_dataset_creator_new makes what Keras calls a DatasetCreator: a function that makes a dataset where it is read.
// Under mu_parameter_server_strategy it is called once for each worker (mu_get_current_worker_index returns its index),
// and each worker reads its own dataset; under other strategies it is that of mu_distribute_datasets_from_function.
// mu_fit, mu_evaluate and mu_predict read what it returns on and on, so they need a number of steps: repeat the
// dataset. With replicas_to_aggregate or visitation_guarantee this process reads the workers' datasets, an element of
// each in rotation, and a pass without a number of steps ends when all have ended: every element is used once in each
// epoch. In a synchronous step each call gets an element. `arg` must live as long as the creator is used.
typedef struct mu_dataset_creator mu_dataset_creator;
MU_API mu_dataset_creator *mu_dataset_creator_new(mu_dataset *(*fn)(const mu_input_context *context, void *arg),
                                                  void *arg);

// Arguments that are an object or its name in Keras, one or several of them, or samples of several kinds. Names, in any
// case: "adam", "rmsprop"; "mean_squared_error" or "mse", "sparse_categorical_crossentropy"; "accuracy" or "acc".
MU_ANY(mu_any_optimizer, mu_optimizer *, const char *);
MU_ANY(mu_any_loss, mu_loss *, const char *, mu_items *);
MU_ANY(mu_any_metrics, mu_metric *, const char *, mu_items *);
MU_ANY(mu_any_callbacks, mu_callback *, mu_items *);
MU_ANY(mu_any_samples, mu_dataset *, mu_tensor *, mu_value *, mu_dataset_creator *);
#define MU_METRICS(...)   MU_ITEMS(__VA_ARGS__)
#define MU_LOSSES(...)    MU_ITEMS(__VA_ARGS__)
#define MU_CALLBACKS(...) MU_ITEMS(__VA_ARGS__)

typedef struct mu_compile_args {
    size_t size;
    const char *given;
    mu_model *model;
    mu_keyword_only only_;
    mu_any_optimizer optimizer; // may be left out if the model is only evaluated
    // required. Of a model with several outputs, a single one is that of each; MU_LOSSES(…) gives one for each in
    // order, MU_BY_NAME("a", "mse", "b", "mae") by their names. NULL among them: this output has no loss
    mu_any_loss loss;
    // one, or several: MU_METRICS(…). Of a model with several outputs, one for each, each of which may be NULL or
    // several, as in MU_METRICS("mse", MU_METRICS("acc", "mse")); or by name, as in
    // MU_BY_NAME("b", MU_METRICS("acc", "mse")); or any, with .metric_outputs
    mu_any_metrics metrics;
    // n_loss_weights numbers, one for each loss in the order in which .loss gives them; a single loss for all outputs
    // may have one for each output. Default: 1 each
    const double *loss_weights;
    int n_loss_weights;
    const int *metric_outputs;          // which output each metric compares, counted from 0
    int n_metric_outputs;               // the number of .metrics
    mu_any_metrics weighted_metrics;    // metrics that count samples by their weights; given as .metrics
    const int *weighted_metric_outputs; // likewise
    int n_weighted_metric_outputs;
    bool run_eagerly; // run the steps as C functions, without a trace: for breakpoints
    // A step of your own instead of fit's and evaluate's: it computes with ops on this replica's part of the batch,
    // applies gradients (mu_apply_gradients), updates metrics (mu_metric_update), and returns the mean loss of its
    // samples, a scalar, which is logged as "loss"; NULL after mu_fail. A model with a train_step needs no loss.
    mu_tensor *(*train_step)(mu_model *model, mu_value *batch, void *arg);
    mu_tensor *(*test_step)(mu_model *model, mu_value *batch, void *arg);
    void *step_arg; // must live as long as the model is compiled
    // training steps that mu_fit makes one run, a loop on the device; default 1, at most 256. Callbacks of batches are
    // called once for each run. For XLA devices, those of several processes if they form one world; elsewhere steps
    // run one by one, to the same result.
    int64_t steps_per_execution;
    // compile training, evaluation and prediction by XLA on CPU devices too, as .jit_compile of mu_function_new; the
    // default is Keras's "auto": XLA devices compile, CPU devices use the native engine
    bool jit_compile;
    // leave the optimizer as it is for a model whose policy is "mixed_float16"; by default it gets a
    // mu_loss_scale_optimizer around it, unless it is one
    bool no_auto_scale_loss;
} mu_compile_args;
// A batch of training is a list of inputs, labels and, optionally, a weight for each sample; inputs and labels are
// tensors, lists in the order of the model's inputs and outputs, or maps with their names as keys
// (mu_model_input_name, mu_model_output_name); so are weights, where outputs differ in them. A map of inputs may have
// more keys than the model needs; outputs without a loss or a metric need no labels. With several losses, each is
// logged as OUTPUT_loss, and each metric as OUTPUT_NAME. A metric that is given by a name has this name; a weighted one
// that has the name of another is "weighted_NAME".
// mu_compile sets what mu_fit and mu_evaluate use, and retains it. Errors: INVALID_ARGUMENT without a loss, for an
// unknown name or an argument of another kind, if two values would be logged under one name, or for
// steps_per_execution out of range; FAILED_PRECONDITION while mu_fit runs in another thread.
#define mu_compile(...) mu_compile_with(MU_ARGS(mu_compile_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_compile_with(const mu_compile_args *args);

// mu_model_optimizer returns the optimizer that the model is compiled with, loss scaling around it included. It belongs
// to the model until the next mu_compile. Errors: FAILED_PRECONDITION if there is none.
MU_API mu_optimizer *mu_model_optimizer(mu_model *model);

typedef enum mu_verbose { MU_VERBOSE_AUTO = 0, MU_VERBOSE_SILENT, MU_VERBOSE_BAR, MU_VERBOSE_LINES } mu_verbose;

typedef struct mu_fit_args {
    size_t size;
    const char *given;
    mu_model *model;
    // a dataset of batches, whose elements are lists of inputs and labels; or inputs, one row per sample, with y; or a
    // list of inputs and labels
    mu_any_samples x;
    mu_any_samples y; // labels, one row per sample
    mu_keyword_only only_;
    // number of the last epoch (default 1; 0: none); with initial_epoch 0, the number of epochs
    int epochs;
    int initial_epoch; // epoch to start at; default 0
    // default: until the data ends; required if it never ends. The next epoch goes on in the data, and begins them anew
    // if they have ended, even within the epoch
    int64_t steps_per_epoch;
    // evaluated after each epoch: a dataset of batches, or a list of inputs and labels; default: none
    mu_any_samples validation_data;
    int64_t validation_steps;     // default: until validation_data ends
    mu_any_callbacks callbacks;   // one, or several: MU_CALLBACKS(…)
    mu_verbose verbose;           // default: a progress bar on a terminal, else lines
    int64_t batch_size;           // for rows that are not in batches; default 32
    bool no_shuffle;              // for rows that are not in batches: do not shuffle them
    mu_any_samples sample_weight; // with y: a weight for each row of the loss and of weighted metrics
    // weights of samples by their class, from 0 to n_class_weight - 1; also of those of a dataset creator
    const double *class_weight;
    int n_class_weight;            // the length of class_weight; classes from there on have weight 1
    double validation_split;       // this share of the rows, the last ones, are validation data; default 0
    int validation_freq;           // epochs from one validation to the next; default 1
    int64_t validation_batch_size; // for rows; default: batch_size
    // instead of validation_freq: the epochs, counted from 1, after which to validate; ends with 0
    const int *validation_epochs;
} mu_fit_args;
// mu_fit trains the model under the strategy in whose scope it was made. Every batch is split among the replicas; the
// result is the same as with one replica on the whole batch, unless the optimizer clips (mu_optimizer_args). Under
// mu_parameter_server_strategy each batch goes to the worker that is free next, through the strategy's coordinator
// (muster/coordinator.h, whose numbers the progress bar shows), and updates happen as steps end; each batch is used
// once, and metrics are exact, also when workers are lost. A callback for each batch lets steps run one at a time.
// Returns the history; NULL on error. Errors: FAILED_PRECONDITION without an optimizer or .train_step;
// INVALID_ARGUMENT for data without an end or a number of steps; CANCELLED after a signal (mu_stop_on_signals), at the
// end of the step in progress.
#define mu_fit(...) mu_fit_with(MU_ARGS(mu_fit_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_history *mu_fit_with(const mu_fit_args *args);

typedef struct mu_evaluate_args {
    size_t size;
    const char *given;
    mu_model *model;
    mu_any_samples x; // as in mu_fit; mu_predict accepts inputs alone
    mu_any_samples y; // as in mu_fit
    mu_keyword_only only_;
    int64_t steps;                // default: until the data ends
    mu_verbose verbose;           // as in mu_fit
    int64_t batch_size;           // for rows that are not in batches; default 32
    mu_any_callbacks callbacks;   // one, or several: MU_CALLBACKS(…)
    mu_any_samples sample_weight; // as in mu_fit
} mu_evaluate_args;
// mu_evaluate computes loss and metrics; every sample counts exactly once. Returns a history of one epoch.
#define mu_evaluate(...) mu_evaluate_with(MU_ARGS(mu_evaluate_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_history *mu_evaluate_with(const mu_evaluate_args *args);
#define mu_predict(...) mu_predict_with(MU_ARGS(mu_evaluate_args, #__VA_ARGS__, __VA_ARGS__))
// mu_predict returns the output for all samples, in order: [samples, …]. Elements may be inputs alone; those of several
// are a map, or a list as the only part of a list; arrays of several inputs may be just a list. mu_predict_values
// predicts with a model that has several outputs, and returns them in the structure of the model's .outputs. A model
// need not be compiled.
MU_API mu_tensor *mu_predict_with(const mu_evaluate_args *args);
#define mu_predict_values(...) mu_predict_values_with(MU_ARGS(mu_evaluate_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_predict_values_with(const mu_evaluate_args *args);

typedef struct mu_batch_args {
    size_t size;
    const char *given;
    mu_model *model;
    mu_any_samples x, y; // one batch: inputs and labels, or a list of both as x
    mu_keyword_only only_;
    mu_any_samples sample_weight; // as in mu_fit
    const double *class_weight;   // as in mu_fit
    int n_class_weight;
} mu_batch_args;
// mu_train_on_batch and mu_test_on_batch do one step of mu_fit or mu_evaluate, and return the batch's loss and metrics
// as a history of one epoch. Errors: as mu_fit and mu_evaluate.
#define mu_train_on_batch(...) mu_train_on_batch_with(MU_ARGS(mu_batch_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_history *mu_train_on_batch_with(const mu_batch_args *args);
#define mu_test_on_batch(...) mu_test_on_batch_with(MU_ARGS(mu_batch_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_history *mu_test_on_batch_with(const mu_batch_args *args);
// mu_predict_on_batch returns the outputs for one batch of inputs, as mu_predict_values does; labels and weights are
// refused.
#define mu_predict_on_batch(...) mu_predict_on_batch_with(MU_ARGS(mu_batch_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_predict_on_batch_with(const mu_batch_args *args);
// mu_metrics_result returns what the metrics hold, as a history of one epoch; mu_reset_metrics empties them.
MU_API mu_status mu_reset_metrics(mu_model *model);
MU_API mu_history *mu_metrics_result(mu_model *model);

// mu_clone_model makes a model of the same layers with new weights, from its configuration (mu_layer_config); it is not
// compiled. Layers of your own are cloned by their .clone (mu_layer_new). Errors: UNIMPLEMENTED for one with an .arg or
// sublayers, but no .clone.
MU_API mu_model *mu_clone_model(const mu_model *model);

// A history has one value per epoch for each name ("loss", "accuracy", "val_loss", …). An epoch without validation
// (.validation_freq, .validation_epochs) has no "val_…": mu_history_at gives NaN there, mu_history_last the value of
// the last epoch that has one. A name without any value is not among mu_history_names.
MU_API int mu_history_epochs(const mu_history *history);
MU_API double mu_history_at(const mu_history *history, const char *name, int epoch); // NaN if there is none
MU_API double mu_history_last(const mu_history *history, const char *name); // the last that there is; NaN if none is
MU_API int mu_history_names(const mu_history *history);                     // how many names there are; -1 for NULL
MU_API const char *mu_history_name(const mu_history *history, int i); // the i-th, belongs to it; NULL past the last
MU_API double mu_history_seconds(const mu_history *history);          // time in training steps
MU_API int64_t mu_history_samples(const mu_history *history);         // number of samples in them

// ---- Callbacks ----------------------------------------------------------------------------------

// Argument of callbacks; names and values are those of mu_history_at, for the epoch or batch in progress.
typedef struct mu_logs {
    mu_model *model;
    int epoch;
    int64_t step;
    int n;
    const char *const *names;
    const double *values;
} mu_logs;

typedef struct mu_callback_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    // Each function returns MU_OK, or the result of mu_fail(…), which ends training. NULL: not called. A callback may
    // call mu_evaluate, mu_predict and mu_fit on the same model, as in Keras; these share weights, optimizer, metrics
    // and mu_stop_training with the outer call. Another thread that does so meanwhile gets FAILED_PRECONDITION.
    mu_status (*on_train_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_epoch_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_batch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_epoch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_train_end)(const mu_logs *logs, void *arg); // with epoch, step and values of the last epoch, if any
    void *arg;
    // Before each step of training; logs->step is the number of steps of the epoch before it, and there are no values.
    mu_status (*on_batch_begin)(const mu_logs *logs, void *arg);
    // Of mu_evaluate, and of each validation of mu_fit; their names have no "val_".
    mu_status (*on_test_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_test_batch_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_test_batch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_test_end)(const mu_logs *logs, void *arg);
    // Of mu_predict; without values.
    mu_status (*on_predict_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_predict_batch_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_predict_batch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_predict_end)(const mu_logs *logs, void *arg);
} mu_callback_args;
// mu_callback_new makes a callback for mu_fit, mu_evaluate and mu_predict; `arg` must live as long as the callback.
#define mu_callback_new(...) mu_callback_new_with(MU_ARGS(mu_callback_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_callback_new_with(const mu_callback_args *args);
// mu_stop_training makes mu_fit end after this epoch, or after this batch if called in on_batch_end.
MU_API void mu_stop_training(mu_model *model);

#ifdef __cplusplus
}

template <typename... Layers> mu_model *mu_sequential(Layers... layers)
{
    mu_layer *const list[] = {layers..., static_cast<mu_layer *>(MU_END)};
    return mu_sequential_of(list);
}
#endif
#endif
