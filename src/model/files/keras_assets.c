// What Keras stores of adapted look-ups outside of the configuration: vocabularies among the assets of a .keras file,
// and idf weights among its weights. Both are put into the configuration before the model is made of it, where a
// vocabulary that was given to a layer stands from the beginning; so sizes are known when layers are built.
#include "model/files/keras_names.h"

#include <errno.h>

enum { MOST_LAYERS = 20000, MOST_TOKENS = 1 << 23, MOST_DEPTH = 32 };

static const char *class_of(const json_t *layer)
{
    const char *name = json_string_value(json_object_get(layer, "class_name"));
    return name ? name : "";
}

// ---- Vocabularies -------------------------------------------------------------------------------

static mu_status wrong_line(const mu_tensor_file *file, const char *asset, size_t line, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: line %zu of '%s' is not %s; save the model again", file->path, line + 1, asset,
                     what);
}

static json_t *integer_of(const char *text, size_t n)
{
    char digits[24], *end;
    if (n == 0 || n >= sizeof digits || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return NULL;
    memcpy(digits, text, n);
    digits[n] = '\0';
    errno = 0;
    const long long value = strtoll(digits, &end, 10);
    return errno == 0 && *end == '\0' ? json_integer(value) : NULL;
}

// Keras joins tokens by line feeds, without one after the last.
static mu_status tokens_of(const mu_tensor_file *file, const char *asset, const char *text, bool integers, json_t *list)
{
    for (size_t line = 0;; line++) {
        const size_t n = strcspn(text, "\n");
        if (line == MOST_TOKENS)
            return mu__error(MU_RESOURCE_EXHAUSTED, "%s: '%s' has more than %d tokens, which is the limit", file->path,
                             asset, MOST_TOKENS);
        json_t *token = integers && n > 0 ? integer_of(text, n) : json_stringn(text, n);
        if (!token)
            return wrong_line(file, asset, line, integers ? "an integer of 64 bits" : "UTF-8");
        if (json_array_append_new(list, token) != 0)
            return mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory is left for the tokens of '%s'; free some",
                             file->path, asset);
        if (text[n] == '\0')
            return MU_OK;
        text += n + 1;
    }
}

// Empty lines at the end are tokens only if the configuration counts them.
static mu_status check_size(const mu_tensor_file *file, const char *asset, const json_t *config, json_t *list)
{
    const json_t *size = json_object_get(config, "vocabulary_size");
    const size_t least = json_is_integer(size) && json_integer_value(size) > 0 ? (size_t)json_integer_value(size) : 0;
    for (size_t n = json_array_size(list); n > least; n--) {
        const json_t *last = json_array_get(list, n - 1);
        if (!json_is_string(last) || json_string_length(last) > 0)
            break;
        json_array_remove(list, n - 1);
    }
    if (!json_is_integer(size) || json_array_size(list) == least)
        return MU_OK;
    return mu__error(
        MU_DATA_LOSS,
        "%s: '%s' has %zu tokens, and the configuration of the layer says %lld; a token with a line feed cannot be "
        "kept in this file. Give the vocabulary to the layer (vocabulary=…) and save the model again",
        file->path, asset, json_array_size(list), (long long)json_integer_value(size));
}

static mu_status take_vocabulary(const mu_tensor_file *file, const char *asset, const char *text, bool integers,
                                 json_t *config)
{
    json_t *list = json_array();
    mu_status status = list ? tokens_of(file, asset, text, integers, list) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = check_size(file, asset, config, list);
    if (status == MU_OK && json_array_size(list) > 0)
        return mu__json_member(config, "vocabulary", list);
    json_decref(list);
    return status;
}

// ---- Weights of tokens --------------------------------------------------------------------------

// Those of the padding after the vocabulary are left out.
static mu_status take_weights(const mu_tensor_file *file, const char *path, json_t *config)
{
    char *name = mu__sprintf("%s/vars/idf_weights", path);
    const int at = name ? mu_tensor_file_find(file, name) : -1;
    const size_t n = json_array_size(json_object_get(config, "vocabulary"));
    mu__free(name);
    if (at < 0)
        return mu_error_code();
    const mu_shape shape = mu_tensor_file_shape(file, at);
    if (shape.rank != 1 || shape.dims[0] < (int64_t)n || !mu__dtype_is_float(mu_tensor_file_dtype(file, at)))
        return mu__error(MU_DATA_LOSS,
                         "%s: the idf_weights of '%s' are not a number for each of the %zu tokens of its vocabulary; "
                         "save the model again",
                         file->path, path, n);
    mu_tensor *weights = mu_tensor_file_read(file, at);
    const void *data = weights ? mu__host_read(weights) : NULL;
    json_t *list = data ? json_array() : NULL;
    for (size_t i = 0; list && i < n; i++) {
        json_t *weight = json_real(mu__read_element(weights->dtype, data, (int64_t)i));
        if (!weight) {
            json_decref(list);
            return mu__error(MU_DATA_LOSS, "%s: idf weight %zu of '%s' is not a finite number; save the model again",
                             file->path, i, path);
        }
        if (json_array_append_new(list, weight) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    if (list)
        return mu__json_member(config, "idf_weights", list);
    return mu__pending() ? mu_error_code()
                         : mu__error(MU_RESOURCE_EXHAUSTED,
                                     "%s: no memory is left for the idf weights of '%s'; free some", file->path, path);
}

static mu_status complete(const mu_tensor_file *file, const char *path, const json_t *layer)
{
    json_t *config = json_object_get(layer, "config");
    const json_t *given = json_object_get(config, "vocabulary");
    const char *mode = json_string_value(json_object_get(config, "output_mode"));
    char *asset = mu__sprintf("assets/%s/vocabulary.txt", path);
    const char *text = asset ? mu_tensor_file_metadata(file, asset) : NULL;
    mu_status status = asset ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (text && json_is_object(config) && (!given || json_is_null(given))) {
        status = take_vocabulary(file, asset, text, strcmp(class_of(layer), "IntegerLookup") == 0, config);
        if (status == MU_OK && mode && strcmp(mode, "tf_idf") == 0)
            status = take_weights(file, path, config);
    }
    mu__free(asset);
    return status;
}

// ---- The layers of a model ----------------------------------------------------------------------

// Keras's name of a class in paths; NULL: no look-up, and no model.
static const char *directory_of(const char *class_name, bool *model)
{
    static const struct {
        const char *class_name, *directory;
        bool model;
    } known[] = {{"StringLookup", "string_lookup", false},
                 {"IntegerLookup", "integer_lookup", false},
                 {"TextVectorization", "text_vectorization", false},
                 {"Functional", "functional", true},
                 {"Sequential", "sequential", true}};
    for (size_t i = 0; i < MU_COUNT(known); i++)
        if (strcmp(known[i].class_name, class_name) == 0) {
            *model = known[i].model;
            return known[i].directory;
        }
    return NULL;
}

static int same_class_before(const json_t *layers, size_t i)
{
    int n = 0;
    for (size_t k = 0; k < i; k++)
        n += strcmp(class_of(json_array_get(layers, k)), class_of(json_array_get(layers, i))) == 0;
    return n;
}

static mu_status walk(const mu_tensor_file *file, const char *around, const json_t *model, int depth)
{
    const json_t *layers = json_object_get(json_object_get(model, "config"), "layers");
    const size_t n = json_array_size(layers);
    mu_status status = MU_OK;
    for (size_t i = 0; status == MU_OK && n <= MOST_LAYERS && depth < MOST_DEPTH && i < n; i++) {
        const json_t *layer = json_array_get(layers, i);
        bool is_model = false;
        const char *directory = directory_of(class_of(layer), &is_model);
        if (!directory)
            continue;
        const int before = same_class_before(layers, i);
        char *path = before > 0 ? mu__sprintf("%s%slayers/%s_%d", around, *around ? "/" : "", directory, before)
                                : mu__sprintf("%s%slayers/%s", around, *around ? "/" : "", directory);
        status = !path      ? MU_RESOURCE_EXHAUSTED
                 : is_model ? walk(file, path, layer, depth + 1)
                            : complete(file, path, layer);
        mu__free(path);
    }
    return status;
}

mu_status mu__keras_assets_into(json_t *model, const mu_tensor_file *file) { return walk(file, "", model, 0); }
