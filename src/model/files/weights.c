// Saves and loads a model's weights, in any format of named tensors, under the names that the format's files have.
//
// Keras's formats and TensorFlow's checkpoints also hold the state of the optimizer.
#include "model/files/checkpoint.h"
#include "model/files/keras_names.h"
#include "model/layers/token_lookup.h"
#include "model/models/model.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

#include <muster/ops.h>
#include <regex.h>

// The first layer without weights of its own to come; NULL: all are built.
static const mu_layer *not_built(const mu_layer *layer)
{
    for (size_t i = 0; i < layer->sublayers.n; i++) {
        const mu_layer *found = not_built(layer->sublayers.items[i]);
        if (found)
            return found;
    }
    return layer->built || layer->sublayers.n > 0 ? NULL : layer;
}

mu_status mu__model_need_built(const mu_model *model, const char *path, const char *function)
{
    if (!model || !path)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, model ? "path" : "model");
    MU_TRY(mu__need_model(model, function));
    const mu_layer *layer = not_built(model);
    return !layer ? MU_OK
                  : mu__error(MU_FAILED_PRECONDITION,
                              "%s: layer '%s' has no weights yet; call mu_model_build, or run the model once", function,
                              mu_layer_name(layer));
}

// ---- Saving -------------------------------------------------------------------------------------

// tf.train.Checkpoint keeps the number of its saves in every file.
static mu_status add_save_counter(mu_file_names names, size_t n, char **keys, mu_tensor **tensors)
{
    if (names != MU_NAMES_OBJECTS)
        return MU_OK;
    keys[n] = mu__strdup("save_counter" MU_BUNDLE_SUFFIX);
    tensors[n] = mu_constant(MU_I64, 1);
    return keys[n] && tensors[n] ? MU_OK : mu_error_code();
}

// The names and values of all variables. Names of a checkpoint are made here, and freed by the caller.
static mu_status read_all(const mu_named_variables *list, mu_file_names names, char **keys, mu_tensor **tensors)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *name = mu__named_as(&list->items[i], names), *end = list->items[i].end;
        keys[i] = names == MU_NAMES_OBJECTS ? mu__sprintf("model/%s%s", name, end ? end : MU_BUNDLE_SUFFIX)
                                            : mu__strdup(name);
        tensors[i] = list->items[i].constant ? list->items[i].constant : mu_variable_read(list->items[i].variable);
        if (!keys[i] || !tensors[i])
            return mu_error_code();
    }
    return add_save_counter(names, list->n, keys, tensors);
}

// All workers read the variables, the chief writes the file.
static mu_status save_list(mu_model *model, const mu_named_variables *list, const mu_file_format *format,
                           const char *path, const char *const *metadata)
{
    const size_t n = list->n + (format->names == MU_NAMES_OBJECTS);
    mu_tensor **tensors = mu__calloc(n + 1, sizeof *tensors);
    char **keys = mu__calloc(n + 1, sizeof *keys);
    mu_status status = tensors && keys ? read_all(list, format->names, keys, tensors) : MU_RESOURCE_EXHAUSTED;
    const mu_tensors all = {.n = (int)n, .names = (const char *const *)keys, .tensors = tensors, .metadata = metadata};
    mu__strategy_doing(model->strategy, "saving", -1);
    if (status == MU_OK && mu_strategy_should_checkpoint(model->strategy))
        status = mu__tensors_save_as(format, path, &all);
    status = mu__workers_written(model->strategy, status);
    for (size_t i = 0; keys && i < n; i++)
        mu__free(keys[i]);
    mu__free(keys);
    mu__free(tensors);
    return status;
}

mu_status mu__model_save(mu_model *model, const mu_file_format *format, const char *path, const char *const *metadata)
{
    mu_named_variables list = {0};
    bool numbered = true;
    if (format->names == MU_NAMES_OBJECTS)
        MU_TRY(mu__numbers_operations(model, &numbered));
    if (!numbered)
        return mu__error(
            MU_UNIMPLEMENTED,
            "%s: the numbers that layers have in a checkpoint depend on how Keras computes the masks of multi-head "
            "attention and of concatenations; save '%s' as .weights.h5, or make it of Keras's configuration",
            path, mu_layer_name(model));
    mu_pool *pool = mu_pool_open();
    mu_status status = pool ? mu__keras_names(model, format->names, &list) : mu_error_code();
    if (status == MU_OK)
        status = save_list(model, &list, format, path, metadata);
    mu__keras_names_free(&list);
    mu_pool_close(pool);
    return status;
}

mu_status mu_save_weights(mu_model *model, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__model_need_built(model, path, "mu_save_weights"));
    return mu__model_save(model, mu__file_format_of(path), path, NULL);
}

// ---- Loading ------------------------------------------------------------------------------------

typedef struct loading {
    const mu_tensor_file *file;
    const char *function;
    const mu_load_weights_args *options; // NULL: all weights
    const regex_t *only;                 // that the paths of weights must match; NULL: none
    mu_file_names names;                 // those that the file has
} loading;

// Whether a variable of the list is to be loaded, as far as the caller's options say.
static bool is_wanted(const loading *l, const mu_named_variable *named)
{
    const char *path = named->variable ? mu__saved_name(named->variable) : NULL;
    return path && !named->of_optimizer && (!l->only || regexec(l->only, path, 0, NULL, 0) == 0);
}

// The way in which the file names tensors: the first that finds every weight, or that of its format; where weights may
// be missing, the first that finds most. A file that was converted keeps the names of the one that it was made from.
// The names of Keras's variables, which checkpoints have too, come first: the numbers of operations depend on the masks
// of a model.
static mu_file_names names_in(const loading *l, const mu_named_variables *list)
{
    static const mu_file_names ways[] = {MU_NAMES_OWN, MU_NAMES_KERAS, MU_NAMES_OBJECTS};
    mu_file_names best = l->file->format->names;
    size_t most = 0;
    for (size_t w = 0; w < MU_COUNT(ways); w++) {
        size_t found = 0, wanted = 0;
        for (size_t i = 0; i < list->n; i++) {
            const bool counts = is_wanted(l, &list->items[i]);
            wanted += counts;
            found += counts && mu_tensor_file_find(l->file, mu__named_as(&list->items[i], ways[w])) >= 0;
        }
        if (found > most && (found == wanted || (l->options && l->options->skip_mismatch))) {
            most = found;
            best = ways[w];
        }
    }
    return best;
}

// The state of the optimizer has a name of its own only in the format's way.
static int find(const loading *l, const mu_named_variable *variable)
{
    const mu_file_names names = variable->of_optimizer ? l->file->format->names : l->names;
    return mu_tensor_file_find(l->file, mu__named_as(variable, names));
}

// Checks every name, type and shape before the first weight changes.
static mu_status check_one(const loading *l, const mu_named_variable *named)
{
    const char *name = mu__named_as(named, l->names);
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const int i = find(l, named);
    if (i < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: '%s' has no tensor '%s' of this model (muster inspect lists what it has)", l->function,
                         l->file->path, name);
    const mu_spec seen = {.dtype = mu_tensor_file_dtype(l->file, i), .shape = mu_tensor_file_shape(l->file, i)};
    const mu_spec *wanted = &named->variable->resource.spec;
    if (seen.dtype == wanted->dtype && mu__shape_equal(&wanted->shape, &seen.shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' in '%s' is %s%s; the model's is %s%s", l->function, name,
                     l->file->path, mu_dtype_name(seen.dtype), mu__shape_text(&seen.shape, text),
                     mu_dtype_name(wanted->dtype), mu__shape_text(&wanted->shape, other));
}

static mu_status load_one(const loading *l, const mu_named_variable *named)
{
    mu_tensor *value = mu_tensor_file_read(l->file, find(l, named));
    if (value && named->of_optimizer)
        value = mu_cast(value, named->variable->resource.spec.dtype);
    if (!value)
        return mu_error_code();
    const mu_status status = mu_variable_assign(named->variable, value);
    if (status != MU_OK)
        mu__error_context("while loading '%s'", l->file->path);
    return status;
}

// How much an optimizer has before its first step: steps and learning rate, and as much again for one inside, whose
// state Keras's own formats have twice.
enum { UNTRAINED = 2 };

static bool is_inside(const mu_named_variable *named) { return strstr(named->object, "inner_optimizer/") != NULL; }

// Whether the file has a variable of the optimizer, in its shape.
static bool has_variable(const loading *l, const mu_named_variable *named)
{
    const int at = find(l, named);
    const mu_shape shape = mu_tensor_file_shape(l->file, at);
    return at >= 0 && mu__shape_equal(&shape, &named->variable->resource.spec.shape);
}

// Whether the file has all of the optimizer's state. Without slots it was saved before training; with others it is of
// another optimizer, or of an older version's, which Keras passes over too.
static bool has_state(const loading *l, const mu_named_variables *list)
{
    int found = 0, untrained = UNTRAINED;
    const mu_named_variable *missing = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const mu_named_variable *named = &list->items[i];
        if (named->of_optimizer && is_inside(named))
            untrained = 2 * UNTRAINED;
        if (named->of_optimizer && has_variable(l, named))
            found++;
        else if (named->of_optimizer && !missing)
            missing = named;
    }
    if (found > untrained && missing)
        mu__log(MU_LOG_WARNING,
                "%s: the optimizer's state in '%s' has no '%s' of this shape, so it was saved with another optimizer "
                "or by an older version; the optimizer starts from its initial state",
                l->function, l->file->path, mu__named_as(missing, l->file->format->names));
    return found > 0 && !missing;
}

// Whether a weight fits; one that does not may be left out.
static mu_status check_wanted(const loading *l, const mu_named_variable *named, bool *fits)
{
    *fits = is_wanted(l, named);
    if (!*fits || check_one(l, named) == MU_OK || !l->options || !l->options->skip_mismatch)
        return mu_error_code();
    *fits = false;
    mu__log(MU_LOG_WARNING, "left as it is: %s", mu_error_message());
    mu_error_take();
    return MU_OK;
}

// Where the file has the idf weights of a look-up; -1: it has none, or they are not selected. Older files lack these
// weights, so their absence is not an error.
static int find_idf(const loading *l, const mu_named_variable *named)
{
    return named->look_up && !l->only ? mu_tensor_file_find(l->file, mu__named_as(named, l->names)) : -1;
}

// Before the first weight changes.
static mu_status check_idf(const loading *l, const mu_named_variable *named, bool *fits)
{
    char text[MU_SHAPE_TEXT];
    const int at = find_idf(l, named);
    const mu_shape seen = mu_tensor_file_shape(l->file, at), *wanted = &named->constant->shape;
    *fits = at >= 0 && mu__dtype_is_float(mu_tensor_file_dtype(l->file, at)) && mu__shape_equal(&seen, wanted);
    if (*fits || at < 0)
        return mu_error_code();
    if (!l->options || !l->options->skip_mismatch)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: '%s' in '%s' is %s%s, and the look-up '%s' has %lld indices; give it the vocabulary that "
                         "it had when the file was saved",
                         l->function, mu__named_as(named, l->names), l->file->path,
                         mu_dtype_name(mu_tensor_file_dtype(l->file, at)), mu__shape_text(&seen, text),
                         mu_layer_name(named->look_up), (long long)wanted->dims[0]);
    mu__log(MU_LOG_WARNING, "left as they are: the idf weights of '%s', of which '%s' has another number",
            mu_layer_name(named->look_up), l->file->path);
    return MU_OK;
}

static mu_status load_idf(const loading *l, const mu_named_variable *named)
{
    const mu_tensor *weights = mu_tensor_file_read(l->file, find_idf(l, named));
    return weights ? mu__lookup_take_weights(named->look_up, weights) : mu_error_code();
}

static mu_status load_chosen(const loading *l, const mu_named_variables *list, bool *fits)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (!list->items[i].constant)
            MU_TRY(check_wanted(l, &list->items[i], &fits[i]));
        n += fits[i];
    }
    if (n == 0 && l->options && (l->only || l->options->skip_mismatch))
        return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' has no weight to load: %s", l->function, l->file->path,
                         l->only ? "none of the model's has a path with .only; mu_variable_name returns the paths"
                                 : "none of the model's is in it with this shape");
    for (size_t i = 0; i < list->n; i++)
        if (fits[i])
            MU_TRY(list->items[i].constant ? load_idf(l, &list->items[i]) : load_one(l, &list->items[i]));
    return MU_OK;
}

// Loads the state of the optimizer, of which Keras's own formats lack the scalars of an optimizer inside of another.
static mu_status load_state(const loading *l, const mu_named_variables *list, mu_optimizer *optimizer)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].of_optimizer)
            MU_TRY(load_one(l, &list->items[i]));
    mu_optimizer *inside = optimizer->inner;
    const bool lacks = inside && inside->ops->recall && l->file->format->names == MU_NAMES_KERAS;
    return lacks ? inside->ops->recall(inside) : MU_OK;
}

static mu_status load_list(const loading *l, const mu_named_variables *list, mu_optimizer *optimizer)
{
    const bool part = l->options && (l->only || l->options->skip_mismatch);
    bool *fits = mu__calloc(list->n + 1, sizeof *fits);
    const bool state = !part && has_state(l, list);
    mu_status status = fits ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < list->n; i++)
        if (list->items[i].constant)
            status = check_idf(l, &list->items[i], &fits[i]);
    if (status == MU_OK)
        status = load_chosen(l, list, fits);
    if (status == MU_OK && state)
        status = load_state(l, list, optimizer);
    mu__free(fits);
    return status;
}

static mu_status load(mu_model *model, loading *l)
{
    mu_named_variables list = {0};
    mu_pool *pool = mu_pool_open();
    mu_status status = pool ? mu__keras_names(model, l->file->format->names, &list) : mu_error_code();
    l->names = names_in(l, &list);
    if (status == MU_OK)
        status = load_list(l, &list, model->trainer->optimizer);
    mu__keras_names_free(&list);
    mu_pool_close(pool);
    return status;
}

mu_status mu__model_load(mu_model *model, const mu_tensor_file *file, const char *function)
{
    loading l = {.file = file, .function = function};
    return load(model, &l);
}

static mu_status load_file(const mu_load_weights_args *args, const regex_t *only)
{
    mu__tensor_file_sweep(args->path);
    mu_tensor_file *file = mu__tensor_file_open(args->path);
    loading l = {.file = file, .function = "mu_load_weights", .options = args, .only = only};
    const mu_status status = file ? load(args->model, &l) : mu_error_code();
    mu_release(file);
    return status;
}

mu_status mu_load_weights_with(const mu_load_weights_args *given)
{
    mu_load_weights_args args;
    regex_t only;
    char reason[120];
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_load_weights"));
    MU_TRY(mu__model_need_built(args.model, args.path, "mu_load_weights"));
    const int code = args.only ? regcomp(&only, args.only, REG_EXTENDED | REG_NOSUB) : 0;
    if (code != 0) {
        regerror(code, &only, reason, sizeof reason);
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_load_weights: .only is '%.60s', which is not a regular expression: %s", args.only, reason);
    }
    const mu_status status = load_file(&args, args.only ? &only : NULL);
    if (args.only)
        regfree(&only);
    return status;
}

// ---- One weight ---------------------------------------------------------------------------------

mu_variable *mu_model_weight(mu_model *model, const char *path)
{
    if (mu__pending() || mu__need(path, "mu_model_weight: the path") != MU_OK ||
        mu__model_need_built(model, path, "mu_model_weight") != MU_OK)
        return NULL;
    mu_variable_list list = {0};
    mu_variable *found = NULL;
    mu_status status = mu__layer_collect(model, MU_WEIGHTS_ALL, &list);
    for (size_t i = 0; status == MU_OK && !found && i < list.n; i++)
        if (strcmp(mu_variable_name(list.items[i]), path) == 0)
            found = list.items[i];
    if (status == MU_OK && !found)
        mu__error(MU_NOT_FOUND,
                  "mu_model_weight: '%s' has no weight '%.80s'; its %zu weights begin with '%s' (mu_model_weights "
                  "lists them)",
                  mu_layer_name(model), path, list.n, list.n > 0 ? mu_variable_name(list.items[0]) : "");
    mu__free(list.items);
    return found;
}
