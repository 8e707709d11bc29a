// text_vectorization: texts become words, words become indices or encodings.
//
// Standardising and splitting are those of Keras's TextVectorization: ASCII letters and punctuation, words between
// white space or characters of UTF-8, and n-grams joined by spaces, all of one length before those of the next.
#include "model/core/layer.h"
#include "model/layers/token_lookup.h"

#include <muster/text.h>

static const char *const standards[] = {"lower_and_strip_punctuation", "lower", "strip_punctuation", "none", NULL};
static const char *const splits[] = {"whitespace", "character", "none", NULL};
static const char *const text_modes[] = {"int", "multi_hot", "count", "tf_idf", NULL};

static const mu_field text_fields[] = {
    MU_FIELD(mu_text_vectorization_args, max_tokens, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_text_vectorization_args, standardize, CHOICE, .text = "lower_and_strip_punctuation",
             .choices = standards, .null_choice = "none"),
    MU_FIELD(mu_text_vectorization_args, split, CHOICE, .text = "whitespace", .choices = splits, .null_choice = "none"),
    MU_FIELD(mu_text_vectorization_args, ngrams, LONGS, .limit = MU_POSITIVE, .up_to = true,
             .second = offsetof(mu_text_vectorization_args, n_ngrams)),
    MU_FIELD(mu_text_vectorization_args, output_mode, CHOICE, .text = "int", .choices = text_modes),
    MU_FIELD(mu_text_vectorization_args, output_sequence_length, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_text_vectorization_args, pad_to_max_tokens, FLAG),
    MU_FIELD(mu_text_vectorization_args, vocabulary, TEXTS,
             .second = offsetof(mu_text_vectorization_args, n_vocabulary)),
    MU_FIELD(mu_text_vectorization_args, idf_weights, DOUBLES,
             .second = offsetof(mu_text_vectorization_args, n_idf_weights)),
    MU_FIELD_ONLY("encoding", .text = "utf-8"),
    MU_LAYER_FIELDS(mu_text_vectorization_args),
    {0},
};

static const mu_text_vectorization_args *args_of(const mu_layer *layer) { return layer->args; }

static mu_string vocabulary_token(const mu_layer *layer, int i)
{
    const char *text = args_of(layer)->vocabulary[i];
    return (mu_string){text, text != NULL ? strlen(text) : 0};
}

static mu_status text_make(mu_layer *layer)
{
    const mu_text_vectorization_args *args = layer->args;
    mu_lookup *l = layer->state = mu__calloc(1, sizeof *l);
    if (l == NULL)
        return MU_RESOURCE_EXHAUSTED;
    l->n_oov = 1;
    l->output_mode = args->output_mode;
    l->mask = (mu_string){"", 0};
    l->masks = strcmp(args->output_mode, "int") == 0;
    l->oov = (mu_string){"[UNK]", 5};
    l->max_tokens = args->max_tokens;
    l->pad_to_max = args->pad_to_max_tokens;
    return args->n_vocabulary > 0
               ? mu__lookup_set(layer, args->n_vocabulary, vocabulary_token, args->idf_weights, args->n_idf_weights)
               : MU_OK;
}

static void text_release(mu_layer *layer)
{
    mu_lookup *l = layer->state;
    if (l != NULL) {
        mu__vocabulary_free(&l->vocabulary);
        mu__free(l->idf);
    }
    mu__free(l);
}

// ---- Words --------------------------------------------------------------------------------------

// The words of one text: parts of `bytes`, each followed by a zero.
typedef struct word_lists {
    mu_strings plain; // as split
    mu_strings grams; // with n-grams, if there are any
} word_lists;

static void words_free(word_lists *w)
{
    mu__strings_free(&w->plain);
    mu__strings_free(&w->grams);
}

static mu_string word_at(const mu_strings *s, int64_t i)
{
    const int64_t begin = i > 0 ? s->ends.items[i - 1] : 0;
    return (mu_string){s->bytes.items + begin, (size_t)(s->ends.items[i] - begin - 1)};
}

static bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_punctuation(char c) { return c != 0 && strchr("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'", c) != NULL; }

// Copies a text as the layer standardises it; returns its length.
static size_t standardise(const char *how, mu_string text, char *out)
{
    const bool lower = strncmp(how, "lower", 5) == 0, strip = strstr(how, "strip") != NULL;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        const char c = text.bytes[i];
        if (!strip || !is_punctuation(c))
            out[n++] = lower && c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
    }
    return n;
}

// The bytes of the character at the begin of a text in UTF-8; 0: they are none.
static size_t character_bytes(const uint8_t *s, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t bytes = s[0] < 0x80                   ? 1
                         : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                         : (s[0] & 0xf0) == 0xe0       ? 3
                         : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                       : 0;
    if (bytes == 0 || bytes > n)
        return 0;
    uint32_t code = bytes == 1 ? s[0] : s[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code >= least[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? bytes : 0;
}

static mu_status split_characters(mu_strings *out, const char *text, size_t n)
{
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = character_bytes((const uint8_t *)text + at, n - at);
        MU_TRY(bytes > 0 ? mu__strings_add(out, text + at, bytes) : mu__strings_add(out, "\xef\xbf\xbd", 3));
        bytes = MU_MAX(bytes, (size_t)1);
    }
    return MU_OK;
}

static mu_status split_words(mu_strings *out, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && !is_white(text[end]))
            end++;
        if (end > at)
            MU_TRY(mu__strings_add(out, text + at, end - at));
        at = end + 1;
    }
    return MU_OK;
}

// Adds the words of a text to those of its row.
static mu_status add_text(const mu_layer *layer, mu_string text, word_lists *w)
{
    const mu_text_vectorization_args *args = layer->args;
    char *copy = mu__alloc(text.n + 1);
    if (copy == NULL)
        return MU_RESOURCE_EXHAUSTED;
    const size_t n = standardise(args->standardize, text, copy);
    const mu_status status = strcmp(args->split, "whitespace") == 0  ? split_words(&w->plain, copy, n)
                             : strcmp(args->split, "character") == 0 ? split_characters(&w->plain, copy, n)
                                                                     : mu__strings_add(&w->plain, copy, n);
    mu__free(copy);
    return status;
}

static mu_status add_gram(word_lists *w, int64_t first, int64_t n)
{
    const mu_string begin = word_at(&w->plain, first), end = word_at(&w->plain, first + n - 1);
    const size_t bytes = (size_t)(end.bytes - begin.bytes) + end.n;
    char *joined = mu__alloc(bytes + 1);
    if (joined == NULL)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(joined, begin.bytes, bytes);
    for (int64_t i = first + 1; i < first + n; i++) // the zeros between words become spaces
        joined[word_at(&w->plain, i).bytes - begin.bytes - 1] = ' ';
    const mu_status status = mu__strings_add(&w->grams, joined, bytes);
    mu__free(joined);
    return status;
}

// Completes the words of a row, and returns them; NULL on error.
static const mu_strings *finish_row(const mu_layer *layer, word_lists *w)
{
    const mu_text_vectorization_args *args = layer->args;
    if (args->n_ngrams == 0)
        return &w->plain;
    for (int i = 0; i < args->n_ngrams; i++)
        for (int64_t first = 0; first + args->ngrams[i] <= (int64_t)w->plain.ends.n; first++)
            if (add_gram(w, first, args->ngrams[i]) != MU_OK)
                return NULL;
    return &w->grams;
}

// ---- Rows ---------------------------------------------------------------------------------------

// How the elements of an input are texts: rows of `width`.
typedef struct rows {
    int64_t n, width;
    bool batch;
} rows;

static mu_status check_texts(const mu_layer *layer, mu_dtype dtype, const mu_shape *shape)
{
    char text[MU_SHAPE_TEXT];
    const bool words = strcmp(args_of(layer)->split, "none") == 0;
    const bool fits = words ? shape->rank <= 2 : shape->rank <= 1 || (shape->rank == 2 && shape->dims[1] == 1);
    if (dtype == MU_STRING && fits)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "layer '%s' takes strings of shape %s; the input is %s %s",
                     mu_layer_name((mu_layer *)(uintptr_t)layer), words ? "[batch, words]" : "[batch] or [batch, 1]",
                     mu_dtype_name(dtype), mu__shape_text(shape, text));
}

static mu_status rows_of(const mu_layer *layer, const mu_tensor *x, rows *out)
{
    const mu_shape *shape = &x->shape;
    MU_TRY(check_texts(layer, x->dtype, shape));
    *out = (rows){.n = shape->rank > 0 ? shape->dims[0] : 1,
                  .width = shape->rank == 2 ? shape->dims[1] : 1,
                  .batch = shape->rank > 0};
    return MU_OK;
}

// Calls fn with the words of each row.
static mu_status each_row(mu_layer *layer, const mu_tensor *x, const rows *r,
                          mu_status (*fn)(mu_layer *layer, const mu_strings *words, void *arg), void *arg)
{
    mu_status status = MU_OK;
    for (int64_t row = 0; row < r->n && status == MU_OK; row++) {
        word_lists w = {0};
        for (int64_t i = 0; i < r->width && status == MU_OK; i++)
            status = add_text(layer, mu__string_at(x, row * r->width + i), &w);
        const mu_strings *all = status == MU_OK ? finish_row(layer, &w) : NULL;
        status = all != NULL ? fn(layer, all, arg) : mu_error_code();
        words_free(&w);
    }
    return status;
}

static mu_status count_row(mu_layer *layer, const mu_strings *words, void *arg)
{
    mu_token_counts *counts = arg;
    (void)layer;
    for (size_t i = 0; i < words->ends.n; i++)
        MU_TRY(mu__tokens_count(counts, word_at(words, (int64_t)i)));
    counts->n_documents++;
    return MU_OK;
}

mu_status mu__adapt_text(mu_layer *layer, const mu_tensor *x, mu_token_counts *counts)
{
    rows r;
    MU_TRY(rows_of(layer, x, &r));
    return each_row(layer, x, &r, count_row, counts);
}

// The indices of all rows, one row after the other.
typedef struct indices {
    struct {
        int64_t *items;
        size_t n, capacity;
    } all, ends;
    int64_t longest;
} indices;

static mu_status index_row(mu_layer *layer, const mu_strings *words, void *arg)
{
    indices *out = arg;
    for (size_t i = 0; i < words->ends.n; i++) {
        int64_t index = 0;
        if (!mu__lookup_index(layer, word_at(words, (int64_t)i), &index))
            return mu_error_code();
        MU_TRY(MU_PUSH(&out->all, index));
    }
    out->longest = MU_MAX(out->longest, (int64_t)words->ends.n);
    return MU_PUSH(&out->ends, (int64_t)out->all.n);
}

// The indices as int64, each row cut or filled with 0; owned.
static mu_tensor *as_integers(const mu_layer *layer, const indices *in, const rows *r)
{
    const int length = args_of(layer)->output_sequence_length;
    const int64_t width = length > 0 ? length : in->longest;
    const mu_shape shape = r->batch ? (mu_shape){2, {r->n, width}} : (mu_shape){1, {width}};
    if (mu__shape_check(&shape, "mu_text_vectorization") != MU_OK)
        return NULL;
    mu_tensor *out = mu__tensor_alloc(MU_I64, &shape);
    int64_t *to = out != NULL ? mu__host_write(out) : NULL;
    for (int64_t row = 0, at = 0; to != NULL && row < r->n; row++, to += width) {
        const int64_t end = in->ends.items[row], n = MU_MIN(end - at, width);
        memset(to, 0, (size_t)width * sizeof *to);
        if (n > 0)
            memcpy(to, in->all.items + at, (size_t)n * sizeof *to);
        at = end;
    }
    return out;
}

static mu_value *text_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_lookup *l = layer->state;
    const mu_tensor *x = mu__host_only(layer, inputs, 0);
    indices in = {0};
    rows r;
    mu_tensor *out = NULL;
    if (x == NULL || rows_of(layer, x, &r) != MU_OK)
        return NULL;
    if (!l->ready) {
        mu__error(MU_FAILED_PRECONDITION,
                  "layer '%s' has no vocabulary; give one (.vocabulary), or call mu_adapt first", mu_layer_name(layer));
        return NULL;
    }
    if (each_row(layer, x, &r, index_row, &in) == MU_OK)
        out = strcmp(l->output_mode, "int") == 0
                  ? as_integers(layer, &in, &r)
                  : mu__lookup_encode(layer, l->output_mode, in.all.items, r.n, in.ends.items,
                                      r.batch ? (mu_shape){1, {r.n}} : mu__scalar_shape);
    mu__free(in.all.items);
    mu__free(in.ends.items);
    return out != NULL ? mu_of(mu__give(out)) : NULL;
}

static mu_status text_spec(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out)
{
    const mu_text_vectorization_args *args = layer->args;
    const mu_lookup *l = layer->state;
    const bool words = strcmp(l->output_mode, "int") == 0, batch = in->shape.rank > 0;
    const int64_t length = args->output_sequence_length > 0 ? args->output_sequence_length : MU_UNKNOWN;
    (void)n;
    *out = (mu_spec){.dtype = strcmp(l->output_mode, "tf_idf") == 0 ? mu__floatx() : MU_I64,
                     .shape = {.rank = batch, .dims = {batch ? in->shape.dims[0] : 0}}};
    out->shape.dims[out->shape.rank++] = words ? length : mu__lookup_depth(l);
    return check_texts(layer, in->dtype, &in->shape);
}

MU_LAYER_CLASS(text_vectorization, "text_vectorization", "TextVectorization", mu_text_vectorization_args, text_fields,
               NULL, .takes_strings = true, .make = text_make, .call = text_call, .host_spec = text_spec,
               .release = text_release, .adapt = mu__lookup_adapt_to)
