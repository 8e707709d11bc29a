// Internal interface of layers: what a class of layers is, what a layer keeps, and how layers are called.
//
// A class is one entry: its table of fields, `build`, which makes the weights, and `call`, which uses ops. Layers call
// other layers (sublayers), so models are layers too. Distribution of variables is the strategy's task.
#ifndef MU_SRC_MODEL_LAYER_H
#define MU_SRC_MODEL_LAYER_H

#include "distribute/distribute.h"
#include "model/core/weight_option.h"

#include <stdatomic.h>

typedef struct mu_layer_ops mu_layer_ops;
typedef struct mu_cell_ops mu_cell_ops;
typedef struct mu_trainer mu_trainer;

// A variable of a layer under the name that it has there.
typedef struct mu_weight {
    char *name;                  // "kernel"
    mu_variable *variable;       // retained
    mu_regularizer *regularizer; // retained; NULL: none
    bool seed;                   // the state of random choices
    bool uncounted;              // Keras does not count it among the weights: a seed, a state of a stateful layer
    bool shared;                 // of a sublayer, and one of this layer too in Keras's files
} mu_weight;

// The types of a layer's computation and of its weights.
typedef struct mu_layer_policy {
    mu_dtype compute, variable;
} mu_layer_policy;
// mu__layer_policy_named finds a policy. Errors: INVALID_ARGUMENT in the name of `function`. mu__layer_policy_name
// returns Keras's name of one. mu__layer_policy_now returns the policy of layers that are made now.
mu_status mu__layer_policy_named(const char *name, const char *function, mu_layer_policy *out);
const char *mu__layer_policy_name(mu_layer_policy policy);
mu_layer_policy mu__layer_policy_now(void);
// mu__layer_policy_from_json reads "dtype" of a layer's configuration; NULL or null: the policy of now. Integer types
// are ignored for layers that move integers or strings. Errors: UNIMPLEMENTED, INVALID_ARGUMENT.
mu_status mu__layer_policy_from_json(const json_t *json, bool moves_integers, mu_layer_policy *out);

// A sublayer under the name that mu_layer_set_attribute gave it.
typedef struct mu_attribute {
    char *name;
    mu_layer *layer; // among the sublayers, which retain it
} mu_attribute;

// How many sublayers and attributes a layer has.
typedef struct mu_layer_parts {
    size_t sublayers, attributes;
} mu_layer_parts;

struct mu_layer {
    mu_object object;
    const mu_layer_ops *ops;
    void *args;           // the class's options (mu__fields_keep); NULL: none
    char *name;           // the user's, else chosen by the first model that the layer is part of; NULL: not yet
    char *path;           // the names of the models around it and its own, which its weights' names begin with
    atomic_bool built;    // set after all that the build has made (layer.c)
    bool frozen;          // its weights are not trained
    bool has_rate_factor; // the weights, made or to come, get `rate_factor` (mu_variable)
    double rate_factor;
    mu_layer_policy policy;
    mu_regularizer *activity; // penalty on the outputs; retained; NULL: none
    mu_shape input, output;   // of the first tensor, when built and last called; batch axis unknown
    struct {
        mu_weight *items;
        size_t n, capacity;
    } weights; // in Keras's order
    struct {
        mu_layer **items;
        size_t n, capacity;
    } sublayers; // retained, in the order of their weights
    struct {
        mu_attribute *items;
        size_t n, capacity;
    } attributes;                // by which some sublayers are known
    mu_layer_parts before_build; // what it had when its build began; the rest is build's
    struct {
        mu_metric **items;
        size_t n, capacity;
    } metrics;             // that its call updates; retained
    void *state;           // of the class; ops->release frees it
    json_t *entry;         // of a registered class: the configuration that it was made of; owned; NULL: none
    mu_strategy *strategy; // of a model: in whose scope it was made; retained
    mu_trainer *trainer;   // of a model: what compile and fit keep; owned
};

struct mu_layer_ops {
    mu_class class;
    bool takes_integers; // inputs stay integers, which float32 could not represent exactly
    bool takes_strings;  // and strings stay strings
    bool takes_several;  // inputs may be several tensors; else they are one
    bool keeps_type;     // any type, which its output has too; the next layer decides on takes_integers
    bool asks_sublayer;  // its first sublayer decides on takes_integers
    bool takes_reverse;  // may be called with .reverse
    bool typed_by_mode;  // in output mode "int" Keras's layer has the type int64
    bool no_autocast;    // floats and weights keep their types (Keras's autocast=False)
    int axes;            // number of spatial axes of the input, where that is what classes differ in; else 0
    bool passes_mask;    // the mask of the input is the mask of the output (Keras's supports_masking); of several
                         // inputs a step counts that counts in any, if all have masks
    bool asks_for_rows;  // its call computes with the batch's other rows, so a mask may be one of whole rows
    // host_spec makes the layer one that runs on the host, before the step that the rest of its model is (host_part.h):
    // it fills the type and shape of the output for n inputs of these types and shapes, where axes may be unknown.
    // NULL: the layer is made of ops.
    mu_status (*host_spec)(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out);
    const mu_cell_ops *cell; // of a cell of recurrent layers (recurrent.h); NULL: it is none
    // make completes a new layer: its sublayers and its state. Optional.
    mu_status (*make)(mu_layer *layer);
    // build makes the weights for n input tensors of these shapes (batch axis unknown). Optional: none are needed.
    mu_status (*build)(mu_layer *layer, int n, const mu_shape *inputs);
    // call applies the layer; the result belongs to the pool, NULL on error. Tensors in `inputs` have the type that the
    // layer computes in; with takes_integers or keeps_type, integers stay as they are.
    mu_value *(*call)(mu_layer *layer, mu_value *inputs, const mu_call_context *context);
    void (*release)(mu_layer *layer); // frees `state`; optional
    // adapt learns from the inputs that a dataset has. NULL: there is nothing to learn.
    mu_status (*adapt)(mu_layer *layer, mu_dataset *data);
};

// A word in this list is a class that mu_layer_from_config knows: `mu__NAME_ops`.
#define MU_LAYER(name) extern const mu_layer_ops mu__##name##_ops;
#include "model/layers/layers.def"
#undef MU_LAYER
extern const mu_layer_ops mu__sequential_ops, mu__functional_ops, mu__stacked_rnn_cells_ops, mu__own_layer_ops,
    mu__subclassed_ops;

// A class of layers and the function mu_WORD_with that makes such layers: its word in layers.def, its name in snake
// case, Keras's class, its struct of options, their fields and `complete` (or NULL), and members of mu_layer_ops.
#define MU_LAYER_CLASS(word, snake, keras_class, args_type, args_fields, completer, ...)                         \
    const mu_layer_ops mu__##word##_ops = {                                                                      \
        .class = {snake, keras_class, "mu_" #word, MU_OPTIONS(args_type), args_fields, completer}, __VA_ARGS__}; \
    mu_layer *mu_##word##_with(const args_type *args) { return mu__layer_make(&mu__##word##_ops, args); }

extern mu_type mu__layer_type;

// Losses of calls (losses_added.c). mu__losses_begin forgets those of earlier calls of this layer and its sublayers on
// this thread. mu__losses_activity adds the penalty on a layer's outputs.
void mu__losses_begin(const mu_layer *layer);
mu_status mu__losses_activity(mu_layer *layer, const mu_value *outputs);

// mu__layer_make makes a layer of a class from the caller's options (NULL: the defaults). The result belongs to the
// pool; NULL on error.
mu_layer *mu__layer_make(const mu_layer_ops *ops, const void *args);
// mu__layer_call calls a layer, built first if needed, and writes the masks of its outputs to `mask` (may be NULL). The
// result belongs to the pool; NULL on error.
mu_value *mu__layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, mu_value **mask);
// mu__host_layer_call calls a layer that runs on the host, or returns what it returned before the step (host_part.c).
mu_value *mu__host_layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context);
// mu__layer_convert returns inputs in the types that the layer takes; belongs to the pool, NULL on error.
mu_value *mu__layer_convert(const mu_layer *layer, mu_value *inputs);
// mu__layer_build builds a layer that is not built yet, for n inputs of these shapes (batch axes unknown).
mu_status mu__layer_build(mu_layer *layer, int n, const mu_shape *inputs);
// mu__mask_at returns the mask of input i; NULL: it has none. A list of masks has an empty list for such an input.
mu_tensor *mu__mask_at(const mu_value *mask, int i);
// mu__step_mask returns a mask with the first n_axes axes of x, in all of which it has x's sizes, where a size of the
// mask may be 1; NULL without an error if `mask` is NULL. Errors: INVALID_ARGUMENT, which names the layer.
mu_tensor *mu__step_mask(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, int n_axes);
// mu__mask_for_steps does so for a layer that hands a mask [batch, steps, …] to another one for each step: the axes
// after the steps are x's, in x's sizes, or others, which that layer must interpret.
mu_tensor *mu__mask_for_steps(const mu_layer *layer, mu_tensor *x, mu_tensor *mask);
// mu__masks_complete returns the masks that a call was given for n inputs, and the carried ones of inputs that it was
// given none for; an empty list is none for all of them.
mu_value *mu__masks_complete(mu_value *given, const mu_value *carried, int n);
// mu__mask_join returns the mask of the steps that count in any of several inputs; NULL if one has no mask.
mu_value *mu__mask_join(mu_value *mask);
// A mask [rows] of a step says of whole rows whether they count. It reaches all layers, as these keep the rows; layers
// that do not use row masks do not get it. mu__row_mask_set makes `mask` (NULL: none) that of the following calls on
// this thread, and returns the previous one. mu__mask_has_rows returns whether the masks of values are or have it;
// mu__mask_without_rows returns them without, mu__mask_of_rows it for each of the values (NULL without an error if no
// mask is left).
const mu_tensor *mu__row_mask_set(const mu_tensor *mask);
bool mu__is_row_mask(const mu_tensor *mask);
bool mu__mask_has_rows(const mu_value *values, const mu_value *mask);
mu_value *mu__mask_without_rows(const mu_value *values, const mu_value *mask);
mu_value *mu__mask_of_rows(const mu_value *values);
// mu__mask_leaves writes the masks of the leaves of `values`, in order (at most `capacity`); NULL where there is none.
void mu__mask_leaves(const mu_value *values, const mu_value *mask, mu_tensor **out, int capacity);
// mu__mask_nest returns masks in the structure of `values`; NULL without an error if all are NULL.
mu_value *mu__mask_nest(const mu_value *values, mu_tensor *const *masks);
// A mask travels with the tensor that it is of, as long as the pool lives in which a layer was called. mu__masks_keep
// lets it (mask NULL: does nothing); mu__masks_kept finds the masks of tensors, NULL without an error if none has one.
mu_status mu__masks_keep(const mu_value *values, const mu_value *mask);
mu_value *mu__masks_kept(const mu_value *values);
// mu__masks_set returns the values with these masks and no others. A tensor that has another one keeps it: the result
// then has a copy. The result belongs to the pool; NULL on error.
mu_value *mu__masks_set(mu_value *values, const mu_value *mask);
// mu__masks_lend lets the masks that a call was given (NULL: no word of them) travel with the caller's tensors, instead
// of those that these have, until mu__masks_take_back is called with the same values.
mu_status mu__masks_lend(const mu_value *values, const mu_value *mask);
void mu__masks_take_back(const mu_value *values, const mu_value *mask);
// mu__layer_adopt adds a sublayer without a name. Retains: sublayer. mu__layer_name_sublayers then names all sublayers
// that have none and sets the names of their weights. Errors: INVALID_ARGUMENT, in the name of `function`, for two
// sublayers with one name.
mu_status mu__layer_adopt(mu_layer *layer, mu_layer *sublayer);
mu_status mu__layer_name_sublayers(mu_layer *layer, const char *function);
// mu__layer_set_rate sets the factor of the learning rate of a layer, its sublayers and their weights (rates.c).
void mu__layer_set_rate(mu_layer *layer, double factor);
// mu__layer_rename sets the path, and renames the weights and sublayers accordingly.
mu_status mu__layer_rename(mu_layer *layer, const char *around);
const char *mu__layer_path(const mu_layer *layer);
char *mu__weight_path(const mu_layer *layer, const char *name); // of a weight; free with mu__free, NULL on error
// mu__layer_given returns what a layer was given besides what its build added; mu__layer_drop_built takes the latter
// away again (sublayers.c).
mu_layer_parts mu__layer_given(const mu_layer *layer);
void mu__layer_drop_built(mu_layer *layer);
bool mu__layer_is_own(const mu_layer *layer);     // of mu_layer_new or mu_model_subclass (subclassed.c)
bool mu__layer_only_calls(const mu_layer *layer); // a functional or sequential model, which only calls its layers
const char *mu__layer_attribute_of(const mu_layer *layer, const mu_layer *sublayer); // NULL: it has none
const char *mu__layer_class(const mu_layer *layer);       // its class in snake case, for names
const char *mu__layer_keras_class(const mu_layer *layer); // Keras's name of it, for people; of one's own layers theirs
bool mu__layer_takes_integers(const mu_layer *layer);
bool mu__layer_is_built(const mu_layer *layer); // the layer and all of its sublayers
// mu__layer_parameters counts the elements of the layer's weights, each weight once; 0 on error.
int64_t mu__layer_parameters(const mu_layer *layer, bool trainable_only);

// Makes a weight's first value of what its initializer has drawn.
typedef mu_tensor *mu_weight_adapt(const mu_layer *layer, mu_tensor *drawn);

// Options of a weight: objects or names (weight_option.h); NULL: no regularizer, no constraint.
typedef struct mu_weight_options {
    const void *initializer, *regularizer, *constraint;
    bool not_trainable;
    bool no_autocast; // reads keep the weight's type, whatever the layer computes in
    bool state;       // of a stateful layer: no weight, and the same value on all replicas
    // NULL: what is drawn is the first value. An assignment to the weight would change the copy of one replica, if the
    // layer is built in a function that runs on several.
    mu_weight_adapt *adapt;
} mu_weight_options;
// Those that a class's struct has for a weight, and those of a weight for which it has none.
#define MU_OPTIONS_OF(args, weight)                                    \
    (&(mu_weight_options){.initializer = (args)->weight##_initializer, \
                          .regularizer = (args)->weight##_regularizer, \
                          .constraint = (args)->weight##_constraint})
#define MU_WEIGHT_OPTIONS(...) (&(mu_weight_options){__VA_ARGS__})

// mu__weight makes a weight "PATH/NAME" and adds it to the layer. Retains: the regularizer, the constraint.
mu_status mu__weight(mu_layer *layer, const char *name, mu_shape shape, const mu_weight_options *options);
// mu__weight_as draws the values as for a weight of the shape `drawn`, whose last two axes are what fans are computed
// from.
mu_status mu__weight_as(mu_layer *layer, const char *name, mu_shape shape, mu_shape drawn,
                        const mu_weight_options *options);
// mu__weight_constant makes a scalar that is not trained.
mu_status mu__weight_constant(mu_layer *layer, const char *name, mu_dtype dtype, double value);
// mu__weight_seed adds a generator (seed NULL: from the program's seed); mu__weight_next_seed returns its next seed.
mu_status mu__weight_seed(mu_layer *layer, const uint64_t *seed);
mu_tensor *mu__weight_next_seed(const mu_layer *layer);
// mu__weight_share adds the weight of a sublayer under a name.
mu_status mu__weight_share(mu_layer *layer, const char *name, mu_variable *variable);
mu_variable *mu__weight_named(const mu_layer *layer, const char *name); // NULL: there is none
mu_tensor *mu__weight_read(const mu_layer *layer, const char *name);    // NULL without an error: there is none

// mu__layer_collect adds the variables of a layer and its sublayers to a list, each once. Borrowed; free the items.
typedef enum mu_weight_choice { MU_WEIGHTS_TRAINABLE, MU_WEIGHTS_ALL, MU_WEIGHTS_AND_SEEDS } mu_weight_choice;
typedef struct mu_variable_list {
    mu_variable **items;
    size_t n, capacity;
} mu_variable_list;
mu_status mu__layer_collect(const mu_layer *layer, mu_weight_choice choice, mu_variable_list *list);

// A layer's configuration as Keras's JSON, and a layer of one (the result belongs to the pool); NULL on error. `depth`
// counts the layers around it. (keras_config.c)
json_t *mu__layer_json(const mu_layer *layer);
mu_layer *mu__layer_from_json(const json_t *json, int depth);
// Such for layers of the program's own, while mu_clone_model makes and reads a configuration (clone.c).
json_t *mu__own_layer_json(const mu_layer *layer);
bool mu__is_own_layer_json(const char *class_name);
mu_layer *mu__own_layer_from(const json_t *config, int depth);
// Layers of classes that the program registered (registered.c). mu__registered_from makes one of an entry of a
// configuration for which mu__is_registered_json is true, mu__registered_json the entry that it was made of.
bool mu__is_registered_json(const json_t *json);
// mu__is_keras_json tells whether an entry is of Keras's own layers (keras_config.c): by its module, or, if it names
// none, by its class.
bool mu__is_keras_json(const json_t *json);
mu_layer *mu__registered_from(const json_t *json);
json_t *mu__registered_json(const mu_layer *layer);
mu_layer *mu__own_like(const mu_layer *layer); // a new one of the same functions (subclassed.c)

// Checks for `build`; both name the layer. Errors: INVALID_ARGUMENT.
mu_status mu__need_input_rank(const mu_layer *layer, const mu_shape *input, int low, int high);
mu_status mu__need_last_axis(const mu_layer *layer, const mu_shape *input);
// mu__need_declared checks that x has the shape that mu_input has declared, whatever its batch. Errors:
// INVALID_ARGUMENT, which names the input.
mu_status mu__need_declared(const char *input, const mu_shape *declared, const mu_tensor *x);
// mu__as_declared returns x in that shape: a last axis of size 1 is added or taken away, as in Keras. NULL and
// INVALID_ARGUMENT for another shape.
mu_tensor *mu__as_declared(const char *input, const mu_shape *declared, mu_tensor *x);
// mu__need_spatial is the `build` of layers without weights whose input is [batch, ops->axes spatial axes, channels].
mu_status mu__need_spatial(mu_layer *layer, int n, const mu_shape *input);
extern const char *const mu__paddings[]; // "valid", "same"
// mu__convolve convolves x [batch, `axes` spatial axes, channels]; of the options it reads strides and dilations per
// axis, padding and groups. mu__kernel_shape returns the shape of a kernel of these sizes along the layer's spatial
// axes.
mu_tensor *mu__convolve(int axes, mu_tensor *x, mu_tensor *kernel, const mu_conv_args *args);
mu_shape mu__kernel_shape(const mu_layer *layer, const int *sizes, int64_t rows, int64_t columns);
// The options of a window that moves over spatial axes, with which all convolutions begin.
#define MU_WINDOW_FIELDS(type, axes, padding_words)                                      \
    MU_FIELD_PER_AXIS(type, kernel_size, axes, .limit = MU_POSITIVE),                    \
        MU_FIELD_PER_AXIS(type, strides, axes, .limit = MU_POSITIVE, .number = 1),       \
        MU_FIELD_PER_AXIS(type, dilation_rate, axes, .limit = MU_POSITIVE, .number = 1), \
        MU_FIELD(type, padding, CHOICE, .text = "valid", .choices = padding_words)

// mu__encode_tokens encodes integers below `depth`: "one_hot", "multi_hot" or "count" (layers_preprocessing.c).
mu_tensor *mu__encode_tokens(mu_tensor *tokens, int64_t depth, const char *mode);

// mu__adapt_each calls a function on the inputs of each element of a dataset, in order, until one fails.
// mu__adapt_empty records that there were none (adapt.c).
mu_status mu__adapt_each(mu_layer *layer, mu_dataset *data,
                         mu_status (*each)(mu_layer *layer, mu_tensor *inputs, void *arg), void *arg);
mu_status mu__adapt_empty(mu_layer *layer);

// mu__unit_norm divides x by its Euclidean norm along an axis, where that is above 1e-12.
mu_tensor *mu__unit_norm(mu_tensor *x, int axis);
mu_tensor *mu__activate(const char *activation, mu_tensor *x); // NULL or "linear": x itself
// mu__softmax returns the softmax of x along an axis. Both note the logits of a softmax or a sigmoid for losses, as
// Keras does: probabilities near 0 and 1 have lost their digits. NULL on error.
mu_tensor *mu__softmax(mu_tensor *x, int axis);
mu_status mu__activation_known(const char *activation, const char *function);

// mu__orthogonal draws a matrix whose rows or columns (the fewer of them) have length 1 and are at right angles. The
// axes before the last count as one. Errors: INVALID_ARGUMENT for a rank below 2.
mu_tensor *mu__orthogonal(mu_tensor *seed, mu_dtype dtype, const mu_shape *shape);
mu_dtype mu__floatx(void);

// ---- Functional models (functional.c) -----------------------------------------------------------

// A tensor of mu_input, or what a layer returned for one: it stands for values that do not exist yet.
bool mu__is_layer_tensor(const mu_tensor *tensor);
bool mu__has_layer_tensor(const mu_value *value);
// mu__layer_connect records the call of a layer on such tensors, and builds it. Belongs to the pool; NULL on error.
mu_value *mu__layer_connect(mu_layer *layer, mu_value *inputs, const mu_call_context *context);

#endif
