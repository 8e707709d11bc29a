// The part of a model that runs on the host before its steps: look-ups of strings and integers.
//
// Steps are traced and compute with numbers, on any device; strings exist on the host alone. So fit, evaluate and
// predict run a model in two parts. The input pipeline calls the look-ups, and the layers between them and the inputs,
// on each batch; the step then runs the whole model, in which each call of a look-up returns what the pipeline found.
// Models in models are divided likewise.
#ifndef MU_SRC_MODEL_HOST_PART_H
#define MU_SRC_MODEL_HOST_PART_H

#include "model/core/layer.h"
#include "model/training/pass.h"

// The layers of a model that run on the host, in the order of their calls; one that is called twice is there twice.
typedef struct mu_host_calls {
    const mu_layer **items;
    size_t n, capacity;
} mu_host_calls;

// What the calls of look-ups return on this thread (mu_context.host_results).
typedef struct mu_host_results {
    bool shapes_only; // the trace in progress is for shapes alone: nothing is looked up
    mu_host_calls calls;
    mu_value *values; // a list: what each of the calls returned
    size_t next;
    // In a step of the program's own, only calls of this model on these inputs take the results; NULL: all calls do.
    const mu_layer *model;
    const mu_value *inputs;
    bool outside; // of a call of the model
} mu_host_results;

// mu__has_host_part returns whether a layer, or a model with its models, has such layers.
bool mu__has_host_part(const mu_layer *layer);
// mu__host_data makes the data of a model's steps those that mu__host_model_call takes: lists whose first item is
// a list of the inputs, with unused values in place of strings, and of the results of the look-ups. Nothing changes
// for other models, or NULL. Retains: nothing; the model must outlive the data.
mu_status mu__host_data(mu_model *model, mu_step_data *data);
// mu__host_model_call is mu__layer_call for a step, whose inputs come from such data.
mu_value *mu__host_model_call(mu_model *model, mu_value *inputs, const mu_call_context *context, mu_value **mask);
// mu__host_step_begin returns a batch of such data as a step of the program's own takes it, with the inputs in place of
// the first item, and lets the step's calls of the model on these inputs take the results, until mu__host_step_end.
// Nothing changes for other models. NULL on error.
mu_value *mu__host_step_begin(mu_model *model, mu_value *batch, mu_host_results *results);
void mu__host_step_end(mu_host_results *results);
// mu__host_enter and mu__host_leave are around each call of a layer while there are results on this thread. Errors:
// INVALID_ARGUMENT if the model is called on other inputs than those that were looked up.
mu_status mu__host_enter(const mu_layer *layer, const mu_value *inputs);
void mu__host_leave(const mu_layer *layer);
// mu__host_shapes_begin announces a trace for shapes alone; give its result to mu__host_shapes_end.
mu_host_results *mu__host_shapes_begin(mu_host_results *results);
void mu__host_shapes_end(mu_host_results *outer);
bool mu__host_shapes_only(void); // such a trace is in progress
// mu__host_stand_in makes a tensor in such a trace that no op has computed, an input of its graph: look-ups run before
// the step, and no op takes strings. Belongs to the pool; NULL on error.
mu_tensor *mu__host_stand_in(const mu_spec *spec);
// mu__host_input_dtype returns the type of the inputs of a sequential model or of a layer, if it begins with an input
// layer or with a look-up that says it, else `other`.
mu_dtype mu__host_input_dtype(const mu_layer *layer, mu_dtype other);

#endif
