// The layers that look strings and integers up in a vocabulary, and what adapts such layers.
#include "model/core/layer.h"
#include "model/layers/fingerprint.h"
#include "model/layers/token_lookup.h"

#include <muster/text.h>

static const char *const oov_methods[] = {"floormod", "farmhash", NULL};
static const char *const modes[] = {"int", "one_hot", "multi_hot", "count", "tf_idf", NULL};
#define NO_TOKEN INT64_MIN // Keras's None

static void lookup_release(mu_layer *layer)
{
    mu_lookup *l = layer->state;
    if (l == NULL)
        return;
    mu__vocabulary_free(&l->vocabulary);
    mu__free(l->idf);
    mu__free(l);
}

static mu_lookup *lookup_new(mu_layer *layer)
{
    mu_lookup *l = mu__calloc(1, sizeof *l);
    layer->state = l;
    return l;
}

static mu_string text_of(const char *text) { return (mu_string){text, text != NULL ? strlen(text) : 0}; }

static mu_status check_inverted(const char *function, bool invert, const char *output_mode)
{
    return !invert || strcmp(output_mode, "int") == 0
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: .invert needs the output mode \"int\"; this one is \"%s\"",
                           function, output_mode);
}

// From indices to tokens: numbers outside of the vocabulary give the out-of-vocabulary token.
static mu_value *invert(mu_layer *layer, mu_value *inputs)
{
    const mu_lookup *l = layer->state;
    const mu_tensor *x = mu__host_only(layer, inputs, 0);
    mu_strings strings = {0};
    if (x == NULL || !l->ready || mu__has_strings(x)) {
        if (!mu__pending())
            mu__error(MU_INVALID_ARGUMENT,
                      "layer '%s' gives tokens of indices: its input must be integers, and it needs a vocabulary",
                      mu_layer_name(layer));
        return NULL;
    }
    const int64_t n = mu__elements(&x->shape), count = mu__vocabulary_count(&l->vocabulary);
    mu_tensor *out = l->integers ? mu__tensor_alloc(MU_I64, &x->shape) : NULL;
    mu_status status = out != NULL || !l->integers ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < n && status == MU_OK; i++) {
        const int64_t index = mu_tensor_item_int(x, i), number = index - mu__lookup_first(l);
        const mu_string token = l->masks && index == 0          ? l->mask
                                : number >= 0 && number < count ? mu__vocabulary_token(&l->vocabulary, number)
                                                                : l->oov;
        if (l->integers)
            memcpy((int64_t *)mu__host_write(out) + i, token.bytes, sizeof(int64_t));
        else
            status = mu__strings_add(&strings, token.bytes, token.n);
    }
    if (status == MU_OK && !l->integers)
        out = mu__strings_end(&strings, &x->shape);
    mu__strings_free(&strings);
    return out != NULL ? mu_of(mu__give(out)) : NULL;
}

// ---- Strings ------------------------------------------------------------------------------------

static const mu_field string_fields[] = {
    MU_FIELD(mu_string_lookup_args, max_tokens, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_string_lookup_args, num_oov_indices, INT, .limit = MU_NOT_NEGATIVE, .number = 1),
    MU_FIELD(mu_string_lookup_args, mask_token, TEXT),
    MU_FIELD(mu_string_lookup_args, oov_token, TEXT, .text = "[UNK]"),
    MU_FIELD(mu_string_lookup_args, vocabulary, TEXTS, .second = offsetof(mu_string_lookup_args, n_vocabulary)),
    MU_FIELD(mu_string_lookup_args, idf_weights, DOUBLES, .second = offsetof(mu_string_lookup_args, n_idf_weights)),
    MU_FIELD(mu_string_lookup_args, invert, FLAG),
    MU_FIELD(mu_string_lookup_args, output_mode, CHOICE, .text = "int", .choices = modes),
    MU_FIELD(mu_string_lookup_args, pad_to_max_tokens, FLAG),
    MU_FIELD(mu_string_lookup_args, salt, LONGS, .second = offsetof(mu_string_lookup_args, n_salt), .single = true),
    MU_FIELD_ONLY("oov_method", .text = "floormod"),
    MU_FIELD_ONLY("encoding", .text = "utf-8"),
    MU_LAYER_FIELDS(mu_string_lookup_args),
    {0},
};

static mu_status string_complete(void *arguments)
{
    mu_string_lookup_args *args = arguments;
    args->oov_token = args->oov_token != NULL ? args->oov_token : "[UNK]";
    MU_TRY(mu__salt_check(args->n_salt, "mu_string_lookup"));
    return check_inverted("mu_string_lookup", args->invert, args->output_mode);
}

static mu_string string_token(const mu_layer *layer, int i)
{
    return text_of(((const mu_string_lookup_args *)layer->args)->vocabulary[i]);
}

static mu_status string_make(mu_layer *layer)
{
    const mu_string_lookup_args *args = layer->args;
    mu_lookup *l = lookup_new(layer);
    if (l == NULL)
        return MU_RESOURCE_EXHAUSTED;
    l->n_oov = args->num_oov_indices;
    l->n_salt = args->n_salt;
    l->salt = args->salt;
    l->output_mode = args->output_mode;
    l->mask = text_of(args->mask_token);
    l->masks = args->mask_token != NULL && strcmp(args->output_mode, "int") == 0;
    l->oov = text_of(args->oov_token);
    l->inverts = args->invert;
    l->max_tokens = args->max_tokens;
    l->pad_to_max = args->pad_to_max_tokens;
    return args->n_vocabulary > 0
               ? mu__lookup_set(layer, args->n_vocabulary, string_token, args->idf_weights, args->n_idf_weights)
               : MU_OK;
}

static mu_value *string_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    return ((const mu_string_lookup_args *)layer->args)->invert ? invert(layer, inputs)
                                                                : mu__lookup_call(layer, inputs, context);
}

static mu_status string_spec(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out)
{
    (void)n;
    return mu__lookup_spec(layer, ((const mu_string_lookup_args *)layer->args)->invert, in, out);
}

MU_LAYER_CLASS(string_lookup, "string_lookup", "StringLookup", mu_string_lookup_args, string_fields, string_complete,
               .takes_integers = true, .takes_strings = true, .make = string_make, .call = string_call,
               .host_spec = string_spec, .release = lookup_release, .adapt = mu__lookup_adapt_to)

// ---- Integers -----------------------------------------------------------------------------------

static const mu_field integer_fields[] = {
    MU_FIELD(mu_integer_lookup_args, max_tokens, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_integer_lookup_args, num_oov_indices, INT, .limit = MU_NOT_NEGATIVE, .number = 1),
    MU_FIELD(mu_integer_lookup_args, mask_token, INT64, .number = (double)NO_TOKEN, .none = true),
    MU_FIELD(mu_integer_lookup_args, oov_token, INT64, .number = -1),
    MU_FIELD(mu_integer_lookup_args, vocabulary, LONGS, .second = offsetof(mu_integer_lookup_args, n_vocabulary)),
    MU_FIELD(mu_integer_lookup_args, idf_weights, DOUBLES, .second = offsetof(mu_integer_lookup_args, n_idf_weights)),
    MU_FIELD(mu_integer_lookup_args, invert, FLAG),
    MU_FIELD(mu_integer_lookup_args, output_mode, CHOICE, .text = "int", .choices = modes),
    MU_FIELD(mu_integer_lookup_args, pad_to_max_tokens, FLAG),
    MU_FIELD(mu_integer_lookup_args, oov_method, CHOICE, .text = "floormod", .choices = oov_methods),
    MU_FIELD(mu_integer_lookup_args, salt, LONGS, .second = offsetof(mu_integer_lookup_args, n_salt), .single = true),
    MU_FIELD_ONLY("vocabulary_dtype", .text = "int64"),
    MU_LAYER_FIELDS(mu_integer_lookup_args),
    {0},
};

static mu_status integer_complete(void *arguments)
{
    const mu_integer_lookup_args *args = arguments;
    MU_TRY(mu__salt_check(args->n_salt, "mu_integer_lookup"));
    if (args->n_salt > 0 && strcmp(args->oov_method, "farmhash") != 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_integer_lookup: .salt is given and oov_method is \"%s\", which hashes nothing; write "
                         ".oov_method = \"farmhash\", or leave .salt out",
                         args->oov_method);
    return check_inverted("mu_integer_lookup", args->invert, args->output_mode);
}

static mu_string integer_token(const mu_layer *layer, int i)
{
    return (mu_string){(const char *)&((const mu_integer_lookup_args *)layer->args)->vocabulary[i], sizeof(int64_t)};
}

static mu_status integer_make(mu_layer *layer)
{
    const mu_integer_lookup_args *args = layer->args;
    mu_lookup *l = lookup_new(layer);
    if (l == NULL)
        return MU_RESOURCE_EXHAUSTED;
    l->integers = true;
    l->n_oov = args->num_oov_indices;
    l->hashes_integers = strcmp(args->oov_method, "farmhash") == 0;
    l->n_salt = args->n_salt;
    l->salt = args->salt;
    l->output_mode = args->output_mode;
    if (args->mask_token != NO_TOKEN)
        l->mask = (mu_string){(const char *)&args->mask_token, sizeof args->mask_token};
    l->masks = l->mask.bytes != NULL && strcmp(args->output_mode, "int") == 0;
    l->oov = (mu_string){(const char *)&args->oov_token, sizeof args->oov_token};
    l->inverts = args->invert;
    l->max_tokens = args->max_tokens;
    l->pad_to_max = args->pad_to_max_tokens;
    return args->n_vocabulary > 0
               ? mu__lookup_set(layer, args->n_vocabulary, integer_token, args->idf_weights, args->n_idf_weights)
               : MU_OK;
}

static mu_value *integer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    return ((const mu_integer_lookup_args *)layer->args)->invert ? invert(layer, inputs)
                                                                 : mu__lookup_call(layer, inputs, context);
}

static mu_status integer_spec(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out)
{
    (void)n;
    return mu__lookup_spec(layer, ((const mu_integer_lookup_args *)layer->args)->invert, in, out);
}

MU_LAYER_CLASS(integer_lookup, "integer_lookup", "IntegerLookup", mu_integer_lookup_args, integer_fields,
               integer_complete, .takes_integers = true, .make = integer_make, .call = integer_call,
               .host_spec = integer_spec, .release = lookup_release, .adapt = mu__lookup_adapt_to)

// ---- Adapting -----------------------------------------------------------------------------------

// Which fields of the options hold the vocabulary and the weights of a class.
typedef struct adapted {
    const mu_layer_ops *ops;
    mu_status (*document)(mu_layer *layer, const mu_tensor *inputs, mu_token_counts *counts);
    size_t vocabulary, n_vocabulary, idf, n_idf;
} adapted;

#define ADAPTED(word, document)                                                                                        \
    {                                                                                                                  \
        &mu__##word##_ops, document, offsetof(mu_##word##_args, vocabulary), offsetof(mu_##word##_args, n_vocabulary), \
            offsetof(mu_##word##_args, idf_weights), offsetof(mu_##word##_args, n_idf_weights)                         \
    }
static const adapted classes[] = {
    ADAPTED(string_lookup, mu__adapt_values),
    ADAPTED(integer_lookup, mu__adapt_values),
    ADAPTED(text_vectorization, mu__adapt_text),
};

static const adapted *class_of(const mu_layer *layer)
{
    for (size_t i = 0; i < MU_COUNT(classes); i++)
        if (classes[i].ops == layer->ops)
            return &classes[i];
    return NULL;
}

// The vocabulary as a list for the options: strings, or integers; owned like those.
static void *listed(const mu_lookup *l)
{
    const int64_t n = mu__vocabulary_count(&l->vocabulary);
    void *list = mu__calloc((size_t)n + 1, sizeof(int64_t));
    for (int64_t i = 0; list != NULL && i < n; i++) {
        const mu_string token = mu__vocabulary_token(&l->vocabulary, i);
        if (l->integers)
            memcpy((int64_t *)list + i, token.bytes, sizeof(int64_t));
    }
    return list;
}

static void free_list(const mu_lookup *l, void *list)
{
    const int64_t n = mu__vocabulary_count(&l->vocabulary);
    for (int64_t i = 0; list != NULL && !l->integers && i < n; i++)
        mu__free(((char **)list)[i]);
    mu__free(list);
}

static char **listed_texts(const mu_lookup *l)
{
    const int64_t n = mu__vocabulary_count(&l->vocabulary);
    char **list = mu__calloc((size_t)n + 1, sizeof *list);
    for (int64_t i = 0; list != NULL && i < n && !mu__pending(); i++) {
        const mu_string token = mu__vocabulary_token(&l->vocabulary, i);
        if (memchr(token.bytes, 0, token.n) == NULL)
            list[i] = mu__strdup(token.bytes);
        else
            mu__error(MU_INVALID_ARGUMENT,
                      "mu_adapt: token %lld, which begins with \"%.40s\", has a byte 0, which a vocabulary cannot "
                      "have; replace it in the data",
                      (long long)i, token.bytes);
    }
    return list;
}

// Puts what adapting found into the options, from which the configuration is written.
static mu_status keep_in_options(mu_layer *layer, const adapted *class)
{
    const mu_lookup *l = layer->state;
    char *args = layer->args;
    const int64_t n = mu__vocabulary_count(&l->vocabulary);
    if (n > INT32_MAX)
        return mu__error(MU_RESOURCE_EXHAUSTED, "mu_adapt: %lld tokens; limit them by max_tokens", (long long)n);
    void *list = l->integers ? listed(l) : (void *)listed_texts(l);
    double *idf = l->idf != NULL ? mu__calloc((size_t)n + 1, sizeof *idf) : NULL;
    if (mu__pending()) {
        mu__free(idf);
        free_list(l, list);
        return mu_error_code();
    }
    if (idf != NULL)
        memcpy(idf, l->idf, (size_t)n * sizeof *idf);
    mu__fields_drop_list(&layer->ops->class, args, "vocabulary");
    mu__fields_drop_list(&layer->ops->class, args, "idf_weights");
    *(void **)(void *)(args + class->vocabulary) = list;
    *(int *)(void *)(args + class->n_vocabulary) = (int)n;
    *(double **)(void *)(args + class->idf) = idf;
    *(int *)(void *)(args + class->n_idf) = idf != NULL ? (int)n : 0;
    return MU_OK;
}

mu_status mu__lookup_take_weights(mu_layer *layer, const mu_tensor *weights)
{
    const adapted *class = class_of(layer);
    mu_lookup *l = layer->state;
    const void *data = mu__host_read(weights);
    double *in_options = *(double **)(void *)((char *)layer->args + class->idf);
    const int n_options = *(int *)(void *)((char *)layer->args + class->n_idf);
    const int64_t n = mu__vocabulary_count(&l->vocabulary), first = mu__lookup_first(l);
    for (int64_t i = 0; data && i < n; i++)
        l->idf[i] = mu__read_element(weights->dtype, data, first + i);
    // Options may begin with the special tokens.
    for (int i = 0; data && i < n_options; i++)
        in_options[i] = mu__read_element(weights->dtype, data, first + n - n_options + i);
    return mu_error_code();
}

// Makes the vocabulary from counts. If that fails, the layer keeps the one that it had.
static mu_status learn(mu_layer *layer, const adapted *class, mu_token_counts *counts)
{
    mu_lookup *l = layer->state, had = *l;
    l->vocabulary = (mu_token_set){0};
    l->idf = NULL;
    mu_status status = mu__lookup_adapt(layer, counts);
    if (status == MU_OK)
        status = keep_in_options(layer, class);
    mu_lookup *unused = status == MU_OK ? &had : l;
    mu__vocabulary_free(&unused->vocabulary);
    mu__free(unused->idf);
    if (status != MU_OK)
        *l = had;
    return status;
}

mu_status mu__lookup_adapt_to(mu_layer *layer, mu_dataset *data)
{
    const adapted *class = class_of(layer);
    mu_token_counts counts = {.document = class->document};
    mu_status status = mu__adapt_each(layer, data, mu__adapt_document, &counts);
    if (status == MU_OK)
        status = learn(layer, class, &counts);
    mu__tokens_free(&counts);
    return status;
}

// Adds the token of an index, special ones included.
static mu_string token_of(const mu_lookup *l, int64_t index)
{
    const int64_t number = index - mu__lookup_first(l);
    return number >= 0 ? mu__vocabulary_token(&l->vocabulary, number) : l->masks && index == 0 ? l->mask : l->oov;
}

mu_tensor *mu_vocabulary(mu_layer *layer)
{
    if (mu__need(layer, "mu_vocabulary: the layer") != MU_OK)
        return NULL;
    const mu_lookup *l = class_of(layer) != NULL ? layer->state : NULL;
    if (l == NULL || !l->ready) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_vocabulary: layer '%s' has no vocabulary; give one to a look-up or text vectorisation, or call "
                  "mu_adapt",
                  mu_layer_name(layer));
        return NULL;
    }
    const int64_t n = mu__lookup_first(l) + mu__vocabulary_count(&l->vocabulary);
    mu_strings strings = {0};
    mu_tensor *integers = l->integers ? mu__tensor_alloc(MU_I64, &(mu_shape){1, {n}}) : NULL;
    mu_status status = integers != NULL || !l->integers ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < n && status == MU_OK; i++) {
        const mu_string token = token_of(l, i);
        if (l->integers)
            memcpy((int64_t *)mu__host_write(integers) + i, token.bytes, sizeof(int64_t));
        else
            status = mu__strings_add(&strings, token.bytes, token.n);
    }
    if (l->integers || status != MU_OK) {
        mu__strings_free(&strings);
        return mu__give(integers);
    }
    return mu__give(mu__strings_end(&strings, &(mu_shape){1, {n}}));
}
