// Common to all layers: options, names, sublayers, building on first use, calls.
#include "model/models/host_part.h"
#include "model/training/training.h"

#include <muster/ops.h>
#include <pthread.h>

// The functions of datasets call layers on several threads. Outside of replicas these take turns where a call changes
// its layer: at its build, in which sublayers are built too, and where it keeps the shape of its output. Replicas run
// one at a time, and hand over while variables are made, so they must not hold the lock.
static pthread_mutex_t changes = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static bool changes_begin(void)
{
    const bool outside = mu__context()->replica == NULL;
    if (outside)
        pthread_mutex_lock(&changes);
    return outside;
}

static void changes_end(bool locked)
{
    if (locked)
        pthread_mutex_unlock(&changes);
}

static void forget_weights(mu_layer *layer)
{
    for (size_t i = 0; i < layer->weights.n; i++) {
        mu__free(layer->weights.items[i].name);
        mu_release(layer->weights.items[i].variable);
        mu_release(layer->weights.items[i].regularizer);
    }
    layer->weights.n = 0;
}

static void layer_destroy(void *object)
{
    mu_layer *layer = object;
    mu__trainer_free(layer->trainer);
    if (layer->ops->release && layer->state)
        layer->ops->release(layer);
    forget_weights(layer);
    for (size_t i = 0; i < layer->sublayers.n; i++)
        mu_release(layer->sublayers.items[i]);
    for (size_t i = 0; i < layer->metrics.n; i++)
        mu_release(layer->metrics.items[i]);
    mu__free(layer->weights.items);
    mu__free(layer->sublayers.items);
    for (size_t i = 0; i < layer->attributes.n; i++)
        mu__free(layer->attributes.items[i].name);
    mu__free(layer->attributes.items);
    mu__free(layer->metrics.items);
    mu__fields_drop(&layer->ops->class, layer->args);
    mu_release(layer->strategy);
    mu_release(layer->activity);
    json_decref(layer->entry);
    mu__free(layer->name);
    mu__free(layer->path);
}

mu_type mu__layer_type = {.name = "layer", .destroy = layer_destroy};

// Keeps a copy of the options, because the layer is built later.
static mu_layer *layer_of(const mu_layer_ops *ops, const void *args)
{
    mu_layer *layer = mu__new(&mu__layer_type, sizeof *layer);
    if (!layer)
        return NULL;
    layer->ops = ops;
    const char *name = mu__fields_name(&ops->class, args);
    layer->args = mu__fields_keep(&ops->class, args);
    layer->activity = mu_retain(mu__fields_object(&ops->class, args, "activity_regularizer"));
    layer->name = name ? mu__strdup(name) : NULL;
    layer->policy = mu__layer_policy_now();
    const char *policy = mu__fields_policy(&ops->class, args);
    if (policy) // which was checked with the other fields
        mu__layer_policy_named(policy, ops->class.function, &layer->policy);
    if (layer->args && (layer->name || !name))
        return mu__give(layer);
    mu_release(layer);
    return NULL;
}

// Completes a new layer. Sublayers that it makes have its policy.
static mu_status complete(mu_layer *layer)
{
    mu_context *thread = mu__context();
    const void *outer = thread->policy;
    thread->policy = &layer->policy;
    const mu_status status = layer->ops->make ? layer->ops->make(layer) : MU_OK;
    thread->policy = outer;
    return status;
}

mu_layer *mu__layer_make(const mu_layer_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_layer *layer = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK)
        layer = layer_of(ops, filled);
    mu__free(filled);
    return layer && complete(layer) == MU_OK ? layer : NULL;
}

// ---- Names --------------------------------------------------------------------------------------

const char *mu_layer_name(const mu_layer *layer)
{
    return layer ? layer->name ? layer->name : mu__layer_class(layer) : NULL;
}

const char *mu__layer_path(const mu_layer *layer) { return layer->path ? layer->path : mu_layer_name(layer); }

// A model that is not part of another leaves its own name out of the weights' names, as Keras's files do.
static const char *path_of_weights(const mu_layer *layer)
{
    return layer->trainer && !layer->path ? NULL : mu__layer_path(layer);
}

char *mu__weight_path(const mu_layer *layer, const char *name)
{
    const char *around = path_of_weights(layer);
    return around ? mu__sprintf("%s/%s", around, name) : mu__strdup(name);
}

// A server knows its variables by the names that they were made with, so those keep them.
static mu_status rename_weights(mu_layer *layer)
{
    for (size_t i = 0; i < layer->weights.n; i++) {
        mu_variable *variable = layer->weights.items[i].variable;
        if (layer->weights.items[i].shared || variable->resource.home || variable->resource.per_worker)
            continue;
        char *name = mu__weight_path(layer, layer->weights.items[i].name);
        if (!name)
            return MU_RESOURCE_EXHAUSTED;
        mu__free(variable->resource.name);
        variable->resource.name = name;
    }
    return MU_OK;
}

mu_status mu__layer_rename(mu_layer *layer, const char *around)
{
    char *path = around ? mu__sprintf("%s/%s", around, mu_layer_name(layer)) : mu__strdup(mu_layer_name(layer));
    if (!path)
        return MU_RESOURCE_EXHAUSTED;
    mu__free(layer->path);
    layer->path = path;
    MU_TRY(rename_weights(layer));
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(mu__layer_rename(layer->sublayers.items[i], layer->path));
    return MU_OK;
}

// ---- Sublayers ----------------------------------------------------------------------------------

// The position of another sublayer with this name; -1 if there is none.
static int sublayer_named(const mu_layer *layer, const char *name, const mu_layer *except)
{
    for (size_t i = 0; i < layer->sublayers.n; i++) {
        const mu_layer *sublayer = layer->sublayers.items[i];
        if (sublayer != except && sublayer->name && strcmp(sublayer->name, name) == 0)
            return (int)i;
    }
    return -1;
}

// Chooses the first of "dense", "dense_1", … that no other sublayer has.
static mu_status choose_name(const mu_layer *layer, mu_layer *sublayer)
{
    const char *class_name = mu__layer_class(sublayer);
    for (int before = 0; !sublayer->name; before++) {
        char *name = before ? mu__sprintf("%s_%d", class_name, before) : mu__strdup(class_name);
        if (!name)
            return MU_RESOURCE_EXHAUSTED;
        if (sublayer_named(layer, name, sublayer) < 0)
            sublayer->name = name;
        else
            mu__free(name);
    }
    return MU_OK;
}

mu_status mu__layer_adopt(mu_layer *layer, mu_layer *sublayer)
{
    MU_TRY(MU_PUSH(&layer->sublayers, sublayer));
    mu_retain(sublayer);
    if (layer->has_rate_factor && !sublayer->has_rate_factor)
        mu__layer_set_rate(sublayer, layer->rate_factor);
    return layer->frozen ? mu_layer_set_trainable(sublayer, false) : MU_OK;
}

mu_status mu__layer_name_sublayers(mu_layer *layer, const char *function)
{
    for (size_t i = 0; i < layer->sublayers.n; i++) {
        mu_layer *sublayer = layer->sublayers.items[i];
        const int other = sublayer->name ? sublayer_named(layer, sublayer->name, sublayer) : -1;
        if (other >= 0)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: layers %d and %d are both named '%s'; names must differ, as weights are saved under them",
                function, MU_MIN(other, (int)i), MU_MAX(other, (int)i), sublayer->name);
        MU_TRY(choose_name(layer, sublayer));
    }
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(mu__layer_rename(layer->sublayers.items[i], path_of_weights(layer)));
    return MU_OK;
}

// Layers that only move elements leave the decision to the next one. A functional model's inputs have types of their
// own.
bool mu__layer_takes_integers(const mu_layer *layer)
{
    if (layer->ops->asks_sublayer)
        return mu__layer_takes_integers(layer->sublayers.items[0]);
    if (layer->ops != &mu__sequential_ops)
        return layer->ops->takes_integers;
    for (size_t i = 0; i < layer->sublayers.n; i++)
        if (!layer->sublayers.items[i]->ops->keeps_type)
            return mu__layer_takes_integers(layer->sublayers.items[i]);
    return false;
}

bool mu__layer_is_built(const mu_layer *layer)
{
    bool built = layer->built;
    for (size_t i = 0; built && i < layer->sublayers.n; i++)
        built = mu__layer_is_built(layer->sublayers.items[i]);
    return built;
}

static mu_status collect_one(const mu_weight *weight, mu_weight_choice choice, mu_variable_list *list)
{
    if (choice != MU_WEIGHTS_AND_SEEDS && weight->uncounted)
        return MU_OK;
    if (choice == MU_WEIGHTS_TRAINABLE && !mu_variable_is_trainable(weight->variable))
        return MU_OK;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] == weight->variable)
            return MU_OK;
    return MU_PUSH(list, weight->variable);
}

static mu_status collect_all(const mu_layer *layer, mu_weight_choice choice, mu_variable_list *list)
{
    const bool left_out = choice == MU_WEIGHTS_TRAINABLE && layer->frozen;
    for (size_t i = 0; i < layer->weights.n && !left_out; i++)
        MU_TRY(collect_one(&layer->weights.items[i], choice, list));
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(collect_all(layer->sublayers.items[i], choice, list));
    return MU_OK;
}

// A layer that was thawed again is trained, also inside of a frozen one; but a frozen model itself trains nothing.
mu_status mu__layer_collect(const mu_layer *layer, mu_weight_choice choice, mu_variable_list *list)
{
    return choice == MU_WEIGHTS_TRAINABLE && layer->frozen ? MU_OK : collect_all(layer, choice, list);
}

int64_t mu__layer_parameters(const mu_layer *layer, bool trainable_only)
{
    int64_t sum = 0;
    mu_variable_list list = {0};
    if (mu__layer_collect(layer, trainable_only ? MU_WEIGHTS_TRAINABLE : MU_WEIGHTS_ALL, &list) == MU_OK)
        for (size_t i = 0; i < list.n; i++)
            sum += mu__elements(&list.items[i]->resource.spec.shape);
    mu__free(list.items);
    return sum;
}

mu_status mu_layer_set_trainable(mu_layer *layer, bool trainable)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_set_trainable: the layer"));
    layer->frozen = !trainable;
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(mu_layer_set_trainable(layer->sublayers.items[i], trainable));
    return MU_OK;
}

bool mu_layer_is_trainable(const mu_layer *layer) { return layer && !layer->frozen; }

// ---- Calls --------------------------------------------------------------------------------------

static bool is_integer(const mu_tensor *tensor) { return tensor->dtype == MU_I32 || tensor->dtype == MU_I64; }

// A tensor in the type that the layer computes in. What models are given becomes floatx, the type of inputs, which
// their layers convert further. Integers stay where the layer only moves elements or takes them.
static mu_tensor *convert_input(const mu_layer *layer, mu_tensor *tensor)
{
    const bool real = mu__dtype_is_float(tensor->dtype);
    const bool keeps = real ? layer->ops->no_autocast || layer->ops == &mu__input_layer_ops : layer->ops->keeps_type;
    if (keeps || (is_integer(tensor) && mu__layer_takes_integers(layer)) ||
        ((layer->ops->takes_strings || layer->trainer) && mu__has_strings(tensor)))
        return tensor;
    return mu_cast(tensor,
                   mu__layer_only_calls(layer) || layer->ops->no_autocast ? mu__floatx() : layer->policy.compute);
}

mu_value *mu__layer_convert(const mu_layer *layer, mu_value *inputs)
{
    const int n = mu__value_flatten(inputs, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *converted = NULL;
    bool whole = leaves != NULL;
    if (whole)
        mu__value_flatten(inputs, leaves, n);
    for (int i = 0; whole && i < n; i++) {
        if (mu__is(leaves[i], &mu__tensor_type))
            leaves[i] = (mu_object *)convert_input(layer, (mu_tensor *)leaves[i]);
        whole = leaves[i] != NULL;
    }
    if (whole)
        converted = mu__give(mu__value_pack(inputs, leaves, n));
    mu__free(leaves);
    return converted && mu__masks_keep(converted, mu__masks_kept(inputs)) == MU_OK ? converted : NULL;
}

static mu_shape shape_without_batch(const mu_tensor *tensor)
{
    mu_shape shape = tensor->shape;
    if (shape.rank > 0)
        shape.dims[0] = MU_UNKNOWN;
    return shape;
}

// The shape of a value's first tensor.
static mu_shape first_shape(const mu_value *value)
{
    mu_object *leaf = NULL;
    mu__value_flatten(value, &leaf, 1);
    return leaf && mu__is(leaf, &mu__tensor_type) ? shape_without_batch((mu_tensor *)leaf) : (mu_shape){0};
}

static mu_status build(mu_layer *layer, int n, const mu_shape *inputs)
{
    layer->input = inputs[0];
    layer->before_build = mu__layer_given(layer);
    mu_context *thread = mu__context();
    const void *outer = thread->policy;
    thread->policy = &layer->policy;
    const mu_status status = layer->ops->build ? layer->ops->build(layer, n, inputs) : MU_OK;
    thread->policy = outer;
    if (status != MU_OK) {
        forget_weights(layer);
        mu__layer_drop_built(layer);
        mu__error_context("while building layer '%s'", mu_layer_name(layer));
    }
    layer->built = status == MU_OK;
    return status;
}

mu_status mu__layer_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const bool locked = changes_begin();
    const mu_status status = layer->built ? MU_OK : build(layer, n, inputs);
    changes_end(locked);
    return status;
}

static mu_status build_for(mu_layer *layer, const mu_value *inputs)
{
    const int n = mu__value_flatten(inputs, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_shape *shapes = mu__calloc((size_t)n + 1, sizeof *shapes);
    mu_status status = leaves && shapes ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(inputs, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++)
        if (mu__is(leaves[i], &mu__tensor_type))
            shapes[i] = shape_without_batch((mu_tensor *)leaves[i]);
    if (status == MU_OK)
        status = mu__layer_build(layer, n, shapes);
    mu__free(leaves);
    mu__free(shapes);
    return status;
}

static void keep_output(mu_layer *layer, const mu_value *outputs)
{
    const mu_shape shape = first_shape(outputs);
    const bool locked = changes_begin();
    layer->output = shape;
    changes_end(locked);
}

bool mu__layer_only_calls(const mu_layer *layer)
{
    return layer->ops == &mu__functional_ops || layer->ops == &mu__sequential_ops;
}

// Errors inside a model that is made of calls name the layer, not the models around it. Its layers may be C functions,
// which find a mask that the model was given with the tensor.
static mu_value *call_model(mu_layer *layer, mu_value *inputs, const mu_call_context *context, mu_value **mask)
{
    mu_value *output_mask = NULL;
    if (mu__masks_lend(inputs, context->mask) != MU_OK)
        return NULL;
    const mu_call_context inner = {.training = context->training,
                                   .mask = context->mask,
                                   .output_mask = &output_mask,
                                   .training_left_out = context->training_left_out};
    mu_value *outputs = layer->ops->call(layer, inputs, &inner);
    mu__masks_take_back(inputs, context->mask);
    if (outputs)
        keep_output(layer, outputs);
    if (mask)
        *mask = output_mask;
    return outputs;
}

// The type that reads of weights are converted to while a layer is called.
static int autocast_of(const mu_layer *layer)
{
    const bool casts = !layer->ops->no_autocast && layer->policy.compute != layer->policy.variable;
    return casts ? (int)layer->policy.compute : 0;
}

// What a C function that does not call mu_call_set_mask leaves as the masks of its outputs.
static mu_value unsaid;

// Runs the function of a layer or model of the program's own. Layers inside find the masks that the call was given with
// its tensors; so does what the function returns.
static mu_value *call_own(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    if (mu__masks_lend(inputs, context->mask) != MU_OK)
        return NULL;
    mu_value *outputs = layer->ops->call(layer, inputs, context);
    if (outputs && context->mask && *context->output_mask == &unsaid)
        *context->output_mask = mu__masks_kept(outputs);
    mu__masks_take_back(inputs, context->mask);
    return mu__pending() ? NULL : outputs;
}

// Gives the outputs of a call their masks. What a C function returns has the masks of the layers that made it, unless
// it says others, or none.
static mu_value *with_masks(const mu_layer *layer, mu_value *outputs, mu_value *said, mu_value **mask)
{
    const bool own = mu__layer_is_own(layer);
    if (own && said != &unsaid)
        outputs = mu__masks_set(outputs, said);
    else if (!own && mu__masks_keep(outputs, said) != MU_OK)
        return NULL;
    if (outputs && mask)
        *mask = own ? mu__masks_kept(outputs) : said;
    return outputs;
}

// Runs a layer, or a model that is a function in C. Layers that the function calls get the same mode.
static mu_value *run_layer(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_site site = mu__line();
    site.layer = mu_layer_name(layer);
    mu_context *thread = mu__context();
    mu__line_push(thread, site);
    const int outer = thread->autocast;
    const bool outer_mode = thread->training, outer_left_out = thread->training_left_out;
    thread->autocast = autocast_of(layer);
    thread->training = context->training;
    thread->training_left_out = context->training_left_out;
    mu_value *outputs = layer->ops->host_spec     ? mu__host_layer_call(layer, inputs, context)
                        : mu__layer_is_own(layer) ? call_own(layer, inputs, context)
                                                  : layer->ops->call(layer, inputs, context);
    thread->autocast = outer;
    thread->training = outer_mode;
    thread->training_left_out = outer_left_out;
    if (outputs && layer->activity && mu__losses_activity(layer, outputs) != MU_OK)
        outputs = NULL;
    mu__line_pop(thread);
    if (outputs)
        keep_output(layer, outputs);
    else
        mu__error_context("in layer '%s'", mu_layer_name(layer));
    return outputs;
}

// One call of such a layer with masks, from which one of rows is hidden unless the layer, or one inside, asks for it.
static mu_value *call_layer(mu_layer *layer, mu_value *inputs, const mu_call_context *context, mu_value **mask)
{
    const bool hides =
        !layer->ops->asks_for_rows && !layer->ops->asks_sublayer && mu__mask_has_rows(inputs, context->mask);
    mu_value *seen = hides ? mu__mask_without_rows(inputs, context->mask) : context->mask;
    mu_value *output_mask = mu__layer_is_own(layer) ? &unsaid : layer->ops->passes_mask ? mu__mask_join(seen) : NULL;
    const mu_call_context inner = {.training = context->training,
                                   .mask = seen,
                                   .output_mask = &output_mask,
                                   .reverse = context->reverse,
                                   .training_left_out = context->training_left_out};
    mu_value *outputs = mu__pending() ? NULL : run_layer(layer, inputs, &inner);
    if (outputs && hides && !output_mask)
        output_mask = mu__mask_of_rows(outputs);
    return outputs && !mu__pending() ? with_masks(layer, outputs, output_mask, mask) : NULL;
}

static mu_status check_call(const mu_layer *layer, const mu_value *inputs, const mu_call_context *context)
{
    const int n = mu__value_flatten(inputs, NULL, 0);
    if (context->reverse && !layer->ops->takes_reverse)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' is called with .reverse, but a %s has no reverse; leave it out, or call a layer "
                         "of mu_reversible_embedding",
                         mu_layer_name(layer), mu__layer_keras_class(layer));
    return n == 1 || layer->ops->takes_several
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "layer '%s' (%s) takes one tensor; it was given %d. Join them with mu_concat or "
                           "mu_concatenate, or make a model that has an mu_input for each with mu_model_new",
                           mu_layer_name(layer), mu__layer_keras_class(layer), n);
}

mu_value *mu__layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, mu_value **mask)
{
    mu_context *thread = mu__context();
    if (mu__pending() || !inputs || (thread->host_results && mu__host_enter(layer, inputs) != MU_OK) ||
        !(inputs = mu__layer_convert(layer, inputs)))
        return NULL;
    if (check_call(layer, inputs, context) != MU_OK)
        return NULL;
    if (!layer->built && build_for(layer, inputs) != MU_OK)
        return NULL;
    if (thread->n_layers == 0)
        mu__losses_begin(layer);
    thread->n_layers++;
    mu_value *outputs = mu__layer_only_calls(layer) ? call_model(layer, inputs, context, mask)
                                                    : call_layer(layer, inputs, context, mask);
    thread->n_layers--;
    if (thread->host_results)
        mu__host_leave(layer);
    return outputs;
}

// ---- Checks -------------------------------------------------------------------------------------

mu_status mu__need_input_rank(const mu_layer *layer, const mu_shape *input, int low, int high)
{
    char text[MU_SHAPE_TEXT];
    if (input->rank >= low && input->rank <= high)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s' takes inputs of rank %d%s with the batch axis first; it was given %s. %s",
                     mu_layer_name(layer), low, high > low ? " or more" : "", mu__shape_text(input, text),
                     input->rank > low ? "mu_flatten or mu_reshape joins axes"
                     : low == 3 && input->rank == low - 1
                         ? "A recurrent layer in front gives all of its steps with .return_sequences = true; "
                           "mu_dataset_batch gives samples a batch axis, mu_reshape any other"
                         : "mu_dataset_batch gives samples a batch axis, mu_reshape any other");
}

mu_status mu__need_declared(const char *input, const mu_shape *declared, const mu_tensor *x)
{
    char wanted[MU_SHAPE_TEXT], seen[MU_SHAPE_TEXT];
    bool fits = declared->rank == x->shape.rank;
    for (int i = 1; fits && i < declared->rank; i++)
        fits =
            declared->dims[i] == x->shape.dims[i] || declared->dims[i] == MU_UNKNOWN || x->shape.dims[i] == MU_UNKNOWN;
    return fits ? MU_OK
                : mu__error(MU_INVALID_ARGUMENT,
                            "the model's input '%s' has shape %s and was given %s; give what mu_input says, or "
                            "mu_input the shape of a sample, with MU_UNKNOWN for axes that vary",
                            input, mu__shape_text(declared, wanted), mu__shape_text(&x->shape, seen));
}

// x with one more last axis of size 1, or one less. Strings, for which there are no ops, are seen in another shape;
// what stands for strings in a trace is there only while a model is made, for its shape.
static mu_tensor *with_last_axis(mu_tensor *x, bool more)
{
    mu_spec spec = mu__spec_of(x);
    if (!mu__has_strings(x))
        return more ? mu_expand_dims(x, -1) : mu_squeeze(x, -1);
    if (more)
        spec.shape.dims[spec.shape.rank] = 1;
    spec.shape.rank += more ? 1 : -1;
    return mu_tensor_is_symbolic(x) ? mu__host_stand_in(&spec)
                                    : mu__give(mu__tensor_view(x->buffer, x->offset, MU_STRING, &spec.shape));
}

mu_tensor *mu__as_declared(const char *input, const mu_shape *declared, mu_tensor *x)
{
    const int rank = mu_tensor_rank(x);
    if (!x)
        return NULL;
    const bool more = rank + 1 == declared->rank && declared->dims[rank] == 1;
    const bool less = rank == declared->rank + 1 && mu_tensor_dim(x, -1) == 1;
    const bool fixed = mu__has_strings(x) && mu_tensor_is_symbolic(x) && !mu__host_shapes_only();
    mu_tensor *same = (more || less) && !fixed ? with_last_axis(x, more) : x;
    return same && mu__need_declared(input, declared, same) == MU_OK ? same : NULL;
}

mu_status mu__need_last_axis(const mu_layer *layer, const mu_shape *input)
{
    char text[MU_SHAPE_TEXT];
    if (input->dims[input->rank - 1] != MU_UNKNOWN)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs a known last axis to make its weights; it was given %s",
                     mu_layer_name(layer), mu__shape_text(input, text));
}
