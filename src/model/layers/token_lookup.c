// Indices of tokens, as Keras's IndexLookup gives them: a mask token, out-of-vocabulary indices, the vocabulary;
// encodings of indices; and the vocabulary from counts.
#include "model/layers/token_lookup.h"

#include "model/core/layer.h"
#include "model/layers/fingerprint.h"

#include <math.h>
#include <stdlib.h>

static mu_lookup *lookup_of(const mu_layer *layer) { return layer->state; }

static bool same(mu_string a, mu_string b)
{
    return a.bytes != NULL && b.bytes != NULL && a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0;
}

static int64_t integer_of(mu_string token)
{
    int64_t value = 0;
    memcpy(&value, token.bytes, MU_MIN(token.n, sizeof value));
    return value;
}

// A token as messages show it.
#define TOKEN_TEXT 64
static const char *token_text(const mu_lookup *l, mu_string token, char text[TOKEN_TEXT])
{
    if (l->integers)
        snprintf(text, TOKEN_TEXT, "%lld", (long long)integer_of(token));
    else
        snprintf(text, TOKEN_TEXT, "\"%.40s\"", token.bytes);
    return text;
}

const mu_tensor *mu__host_only(const mu_layer *layer, mu_value *inputs, int i)
{
    const mu_tensor *x = mu_at(inputs, i);
    if (x == NULL || (x->buffer != NULL && mu__host_read(x) != NULL))
        return x;
    if (!mu__pending())
        mu__error(MU_FAILED_PRECONDITION,
                  "layer '%s' (%s) looks values up on the host and cannot be part of a traced function, or of a layer "
                  "of the program's own; make it part of a sequential or functional model, or call it in the function "
                  "of mu_dataset_map and give the step its result",
                  mu_layer_name((mu_layer *)(uintptr_t)layer), layer->ops->class.name);
    return NULL;
}

// ---- The vocabulary -----------------------------------------------------------------------------

// How many of the first tokens are the special ones: all of them, or none.
static int special_tokens(const mu_layer *layer, int n, mu_string (*token)(const mu_layer *layer, int i))
{
    const mu_lookup *l = lookup_of(layer);
    const int first = (int)mu__lookup_first(l);
    bool special = n >= first && first > 0;
    for (int i = 0; special && i < first; i++)
        special = same(token(layer, i), i == 0 && l->masks ? l->mask : l->oov);
    return special ? first : 0;
}

static mu_status add_token(mu_layer *layer, mu_string token, int i)
{
    mu_lookup *l = lookup_of(layer);
    char text[TOKEN_TEXT];
    int64_t number = 0;
    const int64_t before = mu__vocabulary_count(&l->vocabulary);
    if (token.bytes == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s: vocabulary[%d] is NULL", layer->ops->class.function, i);
    // Without .invert, nothing gives the out-of-vocabulary token: it may be any token, such as the integer -1.
    const bool masks = same(token, l->mask);
    if (masks || (l->inverts && same(token, l->oov)))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: vocabulary[%d] is %s, the %s token; leave it out, or put all special tokens in front",
                         layer->ops->class.function, i, token_text(l, token, text),
                         masks ? "mask" : "out-of-vocabulary");
    MU_TRY(mu__vocabulary_add(&l->vocabulary, token, &number));
    if (number < before)
        return mu__error(MU_INVALID_ARGUMENT, "%s: vocabulary[%d] is the same as token %lld; each must be there once",
                         layer->ops->class.function, i, (long long)number);
    return MU_OK;
}

// Keeps a weight for each token; the vocabulary is complete.
static mu_status keep_idf(mu_layer *layer, const double *idf, int n_idf)
{
    mu_lookup *l = lookup_of(layer);
    const int64_t n = mu__vocabulary_count(&l->vocabulary);
    mu__free(l->idf);
    l->idf = NULL;
    if (strcmp(l->output_mode, "tf_idf") != 0)
        return MU_OK;
    if (n_idf != n)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: there are %d idf_weights and %lld tokens; give one for each, without those of special tokens",
            layer->ops->class.function, n_idf, (long long)n);
    if ((l->idf = mu__calloc((size_t)n + 1, sizeof *idf)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (n > 0)
        memcpy(l->idf, idf, (size_t)n * sizeof *idf);
    return MU_OK;
}

mu_status mu__lookup_set(mu_layer *layer, int n, mu_string (*token)(const mu_layer *layer, int i), const double *idf,
                         int n_idf)
{
    mu_lookup *l = lookup_of(layer);
    const int special = special_tokens(layer, n, token), skipped = n_idf == n ? special : 0;
    mu__vocabulary_free(&l->vocabulary);
    l->ready = l->adapted = false;
    for (int i = special; i < n; i++)
        MU_TRY(add_token(layer, token(layer, i), i));
    const int64_t size = mu__lookup_first(l) + mu__vocabulary_count(&l->vocabulary);
    if (l->max_tokens > 0 && size > l->max_tokens)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the vocabulary has %lld tokens with the special ones, and max_tokens is %lld; give fewer "
                         "tokens or a larger max_tokens",
                         layer->ops->class.function, (long long)size, (long long)l->max_tokens);
    MU_TRY(keep_idf(layer, skipped > 0 ? idf + skipped : idf, n_idf - skipped));
    l->ready = true;
    return MU_OK;
}

// ---- Indices ------------------------------------------------------------------------------------

// Which of the out-of-vocabulary indices a token has.
static int64_t oov_index(const mu_lookup *l, mu_string token)
{
    const int64_t n = l->n_oov;
    char digits[32];
    if (n == 1)
        return 0;
    if (l->integers && !l->hashes_integers)
        return (integer_of(token) % n + n) % n;
    if (l->integers)
        token = (mu_string){digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)integer_of(token))};
    return (int64_t)(mu__salted_hash(l->n_salt, l->salt, token) % (uint64_t)n);
}

bool mu__lookup_index(const mu_layer *layer, mu_string token, int64_t *index)
{
    const mu_lookup *l = lookup_of(layer);
    const int64_t number = mu__vocabulary_find(&l->vocabulary, token);
    if (same(token, l->mask)) {
        *index = l->masks ? 0 : MU_MASKED;
        return true;
    }
    if (number >= 0) {
        *index = mu__lookup_first(l) + number;
        return true;
    }
    if (l->n_oov == 0) {
        char text[TOKEN_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "layer '%s': %s is not in the vocabulary, and num_oov_indices is 0; add it, or give indices for such "
                  "tokens",
                  mu_layer_name((mu_layer *)(uintptr_t)layer), token_text(l, token, text));
        return false;
    }
    *index = l->masks + oov_index(l, token);
    return true;
}

// ---- Encodings ----------------------------------------------------------------------------------

static double weight_of(const mu_lookup *l, int64_t index)
{
    const int64_t n = mu__vocabulary_count(&l->vocabulary), number = index - mu__lookup_first(l);
    double sum = 0;
    if (number >= 0)
        return number < n ? l->idf[number] : 0;
    for (int64_t i = 0; i < n; i++)
        sum += l->idf[i];
    return n > 0 ? sum / (double)n : 0; // of tokens out of the vocabulary: the average
}

int64_t mu__lookup_depth(const mu_lookup *l)
{
    return l->pad_to_max && l->max_tokens > 0 ? l->max_tokens
           : l->ready                         ? mu__lookup_first(l) + mu__vocabulary_count(&l->vocabulary)
                                              : MU_UNKNOWN;
}

// one_hot has a row for each element, the others for each row of the last axis.
static mu_shape rows_shape(const char *mode, mu_shape shape)
{
    const bool one_hot = strcmp(mode, "one_hot") == 0;
    if (!one_hot ? shape.rank > 0 : shape.rank > 1 && shape.dims[shape.rank - 1] == 1)
        shape.rank--;
    return shape;
}

mu_shape mu__tokens_shape(const char *mode, const mu_shape *tokens, int64_t depth)
{
    mu_shape shape = strcmp(mode, "int") == 0 ? *tokens : rows_shape(mode, *tokens);
    if (strcmp(mode, "int") != 0 && shape.rank < MU_MAX_RANK)
        shape.dims[shape.rank++] = depth;
    return shape;
}

static mu_status check_type(const mu_layer *layer, mu_dtype dtype)
{
    const bool integers = lookup_of(layer)->integers;
    if (integers ? dtype != MU_STRING && !mu__dtype_is_float(dtype) : dtype == MU_STRING)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "layer '%s' looks up %s; the input is %s",
                     mu_layer_name((mu_layer *)(uintptr_t)layer), integers ? "integers" : "strings",
                     mu_dtype_name(dtype));
}

mu_status mu__lookup_spec(const mu_layer *layer, bool inverts, const mu_spec *in, mu_spec *out)
{
    const mu_lookup *l = lookup_of(layer);
    if (inverts) {
        *out = (mu_spec){.dtype = l->integers ? MU_I64 : MU_STRING, .shape = in->shape};
        return mu__dtype_is_integer(in->dtype)
                   ? MU_OK
                   : mu__error(MU_INVALID_ARGUMENT,
                               "layer '%s' gives tokens of indices: its input must be integers; it is %s",
                               mu_layer_name((mu_layer *)(uintptr_t)layer), mu_dtype_name(in->dtype));
    }
    *out = (mu_spec){.dtype = strcmp(l->output_mode, "tf_idf") == 0 ? mu__floatx() : MU_I64,
                     .shape = mu__tokens_shape(l->output_mode, &in->shape, mu__lookup_depth(l))};
    return check_type(layer, in->dtype);
}

// NULL: the layer looks no tokens up.
static const mu_lookup *look_up_in(const mu_layer *layer)
{
    const bool looks_up = layer->ops == &mu__string_lookup_ops || layer->ops == &mu__integer_lookup_ops ||
                          layer->ops == &mu__text_vectorization_ops;
    return looks_up ? lookup_of(layer) : NULL;
}

const mu_lookup *mu__lookup_adapted(const mu_layer *layer)
{
    const mu_lookup *l = look_up_in(layer);
    return l && l->adapted ? l : NULL;
}

mu_status mu__lookup_weights(const mu_layer *layer, mu_tensor **out)
{
    const mu_lookup *l = look_up_in(layer);
    *out = NULL;
    if (!l || !l->ready || !l->idf)
        return MU_OK;
    const mu_shape shape = MU_SHAPE(mu__lookup_depth(l));
    mu_tensor *weights = mu__give(mu__tensor_alloc(mu__floatx(), &shape));
    void *data = weights ? mu__host_write(weights) : NULL;
    for (int64_t i = 0; data && i < shape.dims[0]; i++)
        mu__write_element(weights->dtype, data, i, weight_of(l, i));
    *out = weights;
    return mu_error_code();
}

mu_tensor *mu__lookup_encode(const mu_layer *layer, const char *mode, const int64_t *indices, int64_t n_rows,
                             const int64_t *ends, mu_shape before)
{
    const mu_lookup *l = lookup_of(layer);
    const int64_t depth = mu__lookup_depth(l);
    const bool counts = strcmp(mode, "count") == 0, tf_idf = strcmp(mode, "tf_idf") == 0;
    if (before.rank == MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "layer '%s': the input has too many axes to add one of tokens",
                  mu_layer_name((mu_layer *)(uintptr_t)layer));
        return NULL;
    }
    before.dims[before.rank++] = depth;
    if (mu__shape_check(&before, layer->ops->class.function) != MU_OK)
        return NULL;
    mu_tensor *out = mu__tensor_alloc(tf_idf ? mu__floatx() : MU_I64, &before);
    if (out == NULL)
        return NULL;
    const mu_spec spec = mu__spec_of(out);
    void *data = mu__host_write(out);
    memset(data, 0, mu__spec_bytes(&spec));
    for (int64_t row = 0, i = 0; row < n_rows; row++)
        for (; i < ends[row]; i++) {
            if (indices[i] == MU_MASKED)
                continue;
            const int64_t at = row * depth + indices[i];
            const double old = mu__read_element(spec.dtype, data, at);
            const double value = counts ? old + 1 : tf_idf ? old + weight_of(l, indices[i]) : 1;
            mu__write_element(spec.dtype, data, at, value);
        }
    return out;
}

static mu_string token_at(const mu_tensor *x, const void *data, int64_t i, int64_t *number)
{
    if (mu__has_strings(x))
        return mu__string_at(x, i);
    *number = x->dtype == MU_I64 ? ((const int64_t *)data)[i] : (int64_t)mu__read_element(x->dtype, data, i);
    return (mu_string){(const char *)number, sizeof *number};
}

static mu_tensor *encode(const mu_layer *layer, const mu_tensor *x, const int64_t *indices)
{
    const char *mode = lookup_of(layer)->output_mode;
    const bool one_hot = strcmp(mode, "one_hot") == 0;
    const mu_shape before = rows_shape(mode, x->shape);
    const int64_t n = mu__elements(&x->shape), n_rows = mu__elements(&before);
    int64_t *ends = mu__calloc((size_t)n_rows + 1, sizeof *ends);
    for (int64_t row = 0; ends != NULL && row < n_rows; row++)
        ends[row] = one_hot ? row + 1 : (row + 1) * (n / n_rows);
    mu_tensor *out = ends != NULL ? mu__lookup_encode(layer, mode, indices, n_rows, ends, before) : NULL;
    mu__free(ends);
    return out;
}

mu_value *mu__lookup_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_lookup *l = lookup_of(layer);
    const mu_tensor *x = mu__host_only(layer, inputs, 0);
    if (x == NULL)
        return NULL;
    if (!l->ready)
        mu__error(MU_FAILED_PRECONDITION,
                  "layer '%s' has no vocabulary of %s (input: %s); give one (.vocabulary), or call mu_adapt first",
                  mu_layer_name(layer), l->integers ? "integers" : "strings", mu_dtype_name(x->dtype));
    if (mu__pending() || check_type(layer, x->dtype) != MU_OK)
        return NULL;
    const bool as_int = strcmp(l->output_mode, "int") == 0;
    const int64_t n = mu__elements(&x->shape);
    const void *data = mu__host_read(x);
    mu_tensor *indices = mu__tensor_alloc(MU_I64, &x->shape), *out = NULL;
    int64_t *to = indices != NULL ? mu__host_write(indices) : NULL, number = 0;
    bool found = to != NULL;
    for (int64_t i = 0; found && i < n; i++)
        found = mu__lookup_index(layer, token_at(x, data, i, &number), &to[i]);
    if (found)
        out = as_int ? mu_retain(indices) : encode(layer, x, to);
    mu_release(indices);
    return out != NULL ? mu_of(mu__give(out)) : NULL;
}

// ---- Vocabularies from data ---------------------------------------------------------------------

mu_status mu__tokens_count(mu_token_counts *c, mu_string token)
{
    int64_t number = 0;
    MU_TRY(mu__vocabulary_add(&c->seen, token, &number));
    if ((size_t)number == c->counts.n) {
        MU_TRY(MU_PUSH(&c->counts, 0));
        MU_TRY(MU_PUSH(&c->documents, 0));
        MU_TRY(MU_PUSH(&c->last, -1));
    }
    c->counts.items[number]++;
    c->documents.items[number] += c->last.items[number] != c->n_documents;
    c->last.items[number] = c->n_documents;
    return MU_OK;
}

void mu__tokens_free(mu_token_counts *c)
{
    mu__vocabulary_free(&c->seen);
    mu__free(c->counts.items);
    mu__free(c->documents.items);
    mu__free(c->last.items);
}

typedef struct ranked {
    int64_t number, count;
    mu_string token;
    bool integers;
} ranked;

static int compare_tokens(const ranked *x, const ranked *y)
{
    if (x->integers) {
        const int64_t a = integer_of(x->token), b = integer_of(y->token);
        return (a > b) - (a < b);
    }
    const int order = memcmp(x->token.bytes, y->token.bytes, MU_MIN(x->token.n, y->token.n));
    return order != 0 ? order : (x->token.n > y->token.n) - (x->token.n < y->token.n);
}

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : -compare_tokens(x, y);
}

// The tokens in their new order, and how many; the special ones are left out. NULL on error.
static ranked *rank(const mu_lookup *l, const mu_token_counts *c, int64_t *n)
{
    const int64_t seen = mu__vocabulary_count(&c->seen);
    ranked *list = mu__calloc((size_t)seen + 1, sizeof *list);
    *n = 0;
    for (int64_t i = 0; list != NULL && i < seen; i++) {
        const mu_string token = mu__vocabulary_token(&c->seen, i);
        if (!same(token, l->oov) && !same(token, l->mask))
            list[(*n)++] = (ranked){i, c->counts.items[i], token, l->integers};
    }
    if (list != NULL && *n > 1)
        qsort(list, (size_t)*n, sizeof *list, by_rank);
    if (l->max_tokens > 0)
        *n = MU_MIN(*n, MU_MAX(l->max_tokens - mu__lookup_first(l), 0));
    return list;
}

mu_status mu__lookup_adapt(mu_layer *layer, mu_token_counts *c)
{
    mu_lookup *l = lookup_of(layer);
    int64_t n = 0, number = 0;
    ranked *list = rank(l, c, &n);
    double *idf = mu__calloc((size_t)n + 1, sizeof *idf);
    mu_status status = list != NULL && idf != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    mu__vocabulary_free(&l->vocabulary);
    for (int64_t i = 0; status == MU_OK && i < n; i++) {
        status = mu__vocabulary_add(&l->vocabulary, list[i].token, &number);
        idf[i] = log(1 + (double)c->n_documents / (1 + (double)c->documents.items[list[i].number]));
    }
    if (status == MU_OK)
        status = keep_idf(layer, idf, (int)MU_MIN(n, INT32_MAX));
    l->ready = l->adapted = status == MU_OK;
    mu__free(list);
    mu__free(idf);
    return status;
}

mu_status mu__adapt_values(mu_layer *layer, const mu_tensor *x, mu_token_counts *counts)
{
    const mu_lookup *l = lookup_of(layer);
    const int64_t n = mu__elements(&x->shape), rows = x->shape.rank > 0 ? x->shape.dims[0] : 1;
    const void *data = mu__host_read(x);
    int64_t number = 0;
    if (mu__has_strings(x) ? l->integers : !l->integers || mu__dtype_is_float(x->dtype))
        return mu__error(MU_INVALID_ARGUMENT, "mu_adapt: layer '%s' looks up %s; the data are %s", mu_layer_name(layer),
                         l->integers ? "integers" : "strings", mu_dtype_name(x->dtype));
    for (int64_t row = 0; row < rows; row++, counts->n_documents++)
        for (int64_t i = row * (n / rows); i < (row + 1) * (n / rows); i++)
            MU_TRY(mu__tokens_count(counts, token_at(x, data, i, &number)));
    return MU_OK;
}

mu_status mu__adapt_document(mu_layer *layer, mu_tensor *inputs, void *counts)
{
    return ((mu_token_counts *)counts)->document(layer, inputs, counts);
}
