// What a functional model is made of, for those who run it, write it as Keras's JSON or name its weights.
#ifndef MU_SRC_MODEL_FUNCTIONAL_H
#define MU_SRC_MODEL_FUNCTIONAL_H

#include "model/core/names.h"
#include "model/models/model.h"

// A call of a layer, or an input. Its tensors refer to the nodes of a graph of its own, one node per output, and keep
// the call alive; the call keeps its inputs.
struct mu_layer_call {
    mu_object object;
    mu_layer *layer;  // retained; NULL: an input
    mu_value *inputs; // nest of layer tensors and constants; retained; NULL: an input
    mu_value *mask;   // the caller's masks of the inputs, such a nest too; retained; NULL: those that the inputs have
    bool reverse;     // called with .reverse
    bool has_mode, training; // the mode that the call was given, for runs that are given none
    int64_t moment;          // calls that were made later have larger numbers
    mu_graph *graph;         // one `input` node per output
    char *name;              // of an input; owned
};

// An operation of a model: a layer, with all of its calls, or an input.
typedef struct mu_operation {
    mu_layer *layer;           // NULL: an input
    const mu_layer_call *call; // of an input, else the first
    int number;                // among Keras's operations, which may include some that Muster does not have
} mu_operation;
// The calls of a model, in an order in which each finds its inputs: the state of a layer of mu__functional_ops.
typedef struct mu_functional {
    mu_value *inputs, *outputs;             // nests of layer tensors; retained
    mu_name_list input_names, output_names; // of the leaves of both
    struct {
        mu_layer_call **items;
        size_t n, capacity;
    } calls;         // retained; those of the inputs first
    size_t n_inputs; // how many of the calls made the inputs
    // The operations in the order of the configuration that the model was made of, which is Keras's; else empty.
    struct {
        mu_operation *items;
        size_t n, capacity;
    } order;
} mu_functional;

// mu__calls_in_training returns whether the layer is or has a functional model with a call that was given the training
// mode, which it has in runs that are given none.
bool mu__calls_in_training(const mu_layer *layer);

// One run of a model: what each call returned, and the masks (functional.c).
typedef struct mu_functional_run {
    const mu_functional *f;
    mu_value *given, *given_mask; // in the structure of f->inputs; the latter may be NULL
    mu_value **values, **masks;   // [f->calls.n]; NULL: not called, no mask
} mu_functional_run;
// mu__functional_take makes `given` of what the model was given: in order or by name, each in the type of its input.
mu_status mu__functional_take(mu_functional_run *r, const mu_value *given, const mu_value *mask);
// mu__functional_replace returns a nest of layer tensors with the run's values, or masks, in their places. NULL: an
// error, or no mask.
mu_value *mu__functional_replace(const mu_functional_run *r, const mu_value *nest, bool mask);

// mu__layer_tensor_names lists the names of the leaves of a nest of layer tensors (names.c).
mu_status mu__layer_tensor_names(const mu_value *nest, mu_name_list *out);
// mu__call_of returns the call that made a layer tensor.
mu_layer_call *mu__call_of(const mu_tensor *tensor);
// mu__call_index returns the position of a call among the model's; -1: it is not the model's.
int mu__call_index(const mu_functional *f, const mu_layer_call *call);

typedef struct mu_operation_list {
    mu_operation *items;
    size_t n, capacity;
} mu_operation_list;
// mu__model_operations lists the operations of a functional or sequential model in Keras's order (functional_order.c),
// in which Keras numbers them in its files and lists their variables: that of the configuration, or as Keras would
// compute it. Free the items. `unknown`: the numbers depend on masks that Keras computes in a way that is not known.
mu_status mu__model_operations(const mu_layer *model, mu_operation_list *out, bool *unknown);
// mu__name_inputs writes a name for each operation that is an input: its own, else as Keras would call it. `names` has
// operations->n members, NULL at first; free each. mu__call_number returns the number of a call among those of its
// layer in the model, as Keras counts them; mu__nth_call returns the n-th call of a layer, from 0, as they were made;
// NULL: there are fewer (functional_config.c).
mu_status mu__name_inputs(const mu_operation_list *operations, char **names);
int mu__call_number(const mu_functional *f, const mu_layer_call *call);
const mu_layer_call *mu__nth_call(const mu_functional *f, const mu_layer *layer, int n);

// A call while Keras's order is computed: of an input, a layer, or an operation that computes a mask.
typedef struct mu_order_node {
    mu_layer *layer;           // NULL: an input, or an operation that computes a mask
    const mu_layer_call *call; // NULL: computes a mask, or of a sequential model
    struct {
        int *items;
        size_t n, capacity;
    } parents; // nodes, in the order of the arguments
    int mask;  // node that computes the mask of the first n_masked outputs
    int n_masked;
} mu_order_node;
typedef struct mu_order_graph {
    struct {
        mu_order_node *items;
        size_t n, capacity;
    } nodes;      // parents first
    bool unknown; // a layer takes a mask of which it is not known how Keras computes it
} mu_order_graph;

// Arguments of a call: outputs of nodes, and those that are masks that the program gave.
typedef struct mu_order_tensor {
    int node, output;
} mu_order_tensor;
typedef struct mu_order_call {
    mu_order_tensor inputs[MU_MAX_MODEL_INPUTS], masks[MU_MAX_MODEL_INPUTS];
    int n_inputs, n_masks;
} mu_order_call;
// mu__order_add adds a call, and the operations that compute its output's mask (mask_order.c), to the graph; `out`: its
// node. layer NULL: an input.
mu_status mu__order_add(mu_order_graph *graph, mu_layer *layer, const mu_layer_call *call,
                        const mu_order_call *arguments, int *out);
void mu__order_free(mu_order_graph *graph);

// mu__sequential_release frees the state of a sequential model: its layer tensors, if they were requested
// (model_parts.c).
void mu__sequential_release(mu_layer *model);

// How the calls of Keras's layers differ from those here (functional_config.c). Attention layers with heads take their
// operands one by one in Keras, and as one list here. mu__further_inputs names Keras's argument for what stands behind
// the first input here: a recurrent layer's first states, and the weights of an encoding; NULL: there is none.
// mu__first_end returns the number of a layer's first call where its
// outputs are inputs or outputs of the model; mu__operand_masks are its arguments for the masks of the operands.
enum { MU_OPERAND_MASKS = 3 };
// A member of a call whose query mask counts: Keras's multi-head attention takes the one that its query carries,
// whichever it is given, and takes no notice of this member.
#define MU_QUERY_MASK_COUNTS "query_mask_counts"
extern const char *const mu__operand_masks[MU_OPERAND_MASKS];
bool mu__takes_operands(const mu_layer_ops *ops);
const char *mu__further_inputs(const mu_layer *layer);
int mu__first_end(const mu_layer *layer);
// mu__functional_json (functional_config.c) and mu__functional_from (functional_read.c) are mu__layer_json and
// mu__layer_from_json of a functional model.
json_t *mu__functional_json(const mu_layer *model);
mu_layer *mu__functional_from(const json_t *config, int depth);
// Keras writes the operations with which it computes masks into a model; Muster's layers compute masks themselves
// (mask_config.c). The search for them in the entries of a configuration, which belong to the caller:
typedef struct mu_mask_search {
    const json_t *layers; // all entries
    json_t *indices;      // by name: the index among them
    json_t *sources;      // the layers that make masks
    json_t *passing;      // by name: the layers that pass masks on
    int steps;            // that are left
} mu_mask_search;
// mu__mask_search_begin makes a search; end it, whether it failed or not. mu__mask_search_passes says that a layer may
// pass a mask on. mu__is_mask_operation returns whether an operation is of those that Keras computes masks with, as far
// as the layers' masks tell; if the steps have run out, it is none. mu__computes_mask returns whether the mask of a
// call (a tensor, or a list as the operand is one) is what Keras computed because the operand carries it; operand NULL:
// what it computes for any layer. Errors: RESOURCE_EXHAUSTED.
mu_status mu__mask_search_begin(mu_mask_search *search, const json_t *layers);
void mu__mask_search_end(mu_mask_search *search);
mu_status mu__mask_search_passes(mu_mask_search *search, const char *name);
bool mu__is_mask_operation(mu_mask_search *search, const json_t *operation);
mu_status mu__computes_mask(mu_mask_search *search, const json_t *operand, const json_t *value, bool *computed);
// mu__may_pass_mask returns whether outputs of a layer may carry masks of its inputs (mask_order.c).
bool mu__may_pass_mask(const mu_layer *layer);
// mu__input_shape returns the shape of an input with its batch axis (keras_config.c).
mu_shape mu__input_shape(const mu_input_args *args);
// mu__input_json writes an input as Keras's InputLayer (keras_config.c). mu__input_args reads its configuration.
json_t *mu__input_json(const char *name, mu_dtype dtype, const mu_shape *shape);
mu_status mu__input_args(const json_t *config, mu_input_args *args);

#endif
