// Signatures: which arguments a method takes, as text, and whether given arguments match.
//
// One walk reads the text and traverses the value along with it; without a value it checks the text alone.
#include "rpc/rpc.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST_NESTED = 64 };

typedef struct walk {
    const char *text, *at;
    bool check; // compare with a value
    int depth;
} walk;

static void skip_spaces(walk *w)
{
    while (*w->at == ' ')
        w->at++;
}

static bool take(walk *w, char c)
{
    skip_spaces(w);
    if (*w->at != c)
        return false;
    w->at++;
    return true;
}

static mu_status malformed(const walk *w, const char *wanted)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        "the signature \"%.200s\" needs %s at \"%.40s\"; a valid one is \"(int32[], {rows: float32[?, 64]})\"", w->text,
        wanted, w->at);
}

static mu_status differs(const walk *w, const char *seen)
{
    return mu__error(MU_INVALID_ARGUMENT, "the arguments do not match the signature \"%.200s\": %s", w->text, seen);
}

// ---- Tensors ------------------------------------------------------------------------------------

// Reads "[2, ?]" and compares it with a tensor's shape (NULL: only reads).
static mu_status walk_shape(walk *w, const mu_tensor *tensor)
{
    char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT + 80];
    mu_shape wanted = {0};
    bool any = false;
    if (!take(w, '['))
        return malformed(w, "a shape in brackets");
    for (bool more = !take(w, ']'); more; more = take(w, ',')) {
        skip_spaces(w);
        char *end = NULL;
        const long long size = isdigit((unsigned char)*w->at) ? strtoll(w->at, &end, 10) : -1;
        any = any || *w->at == '*';
        if (wanted.rank == MU_MAX_RANK || (end == NULL && *w->at != '?' && *w->at != '*'))
            return malformed(w, "the size of an axis, ? or *,");
        wanted.dims[wanted.rank++] = size;
        w->at = end != NULL ? end : w->at + 1;
    }
    if (w->at[-1] != ']' && !take(w, ']'))
        return malformed(w, "a closing bracket");
    if (tensor == NULL || any || mu__shape_compatible(&wanted, &tensor->shape))
        return MU_OK;
    snprintf(text, sizeof text, "a tensor has the shape %s", mu__shape_text(&tensor->shape, seen));
    return differs(w, text);
}

static mu_status walk_tensor(walk *w, const mu_value *value)
{
    char name[24], text[120];
    size_t n = 0;
    skip_spaces(w);
    while (n + 1 < sizeof name && isalnum((unsigned char)w->at[n]))
        n++;
    snprintf(name, sizeof name, "%.*s", (int)n, w->at);
    const mu_dtype dtype = mu__dtype_from_name(name);
    if (dtype == MU_DTYPE_DEFAULT)
        return malformed(w, "an element type");
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    if (w->check && tensor == NULL)
        return differs(w, "a tensor is missing");
    if (w->check && tensor->dtype != dtype) {
        snprintf(text, sizeof text, "a tensor is %s, not %s", mu_dtype_name(tensor->dtype), name);
        return differs(w, text);
    }
    w->at += n;
    return walk_shape(w, tensor);
}

// ---- Lists and maps -----------------------------------------------------------------------------

static mu_status walk_value(walk *w, const mu_value *value);

static mu_status read_key(walk *w, char *key, size_t bytes)
{
    skip_spaces(w);
    const size_t n = strcspn(w->at, ":,{}()[]");
    if (n == 0 || n >= bytes || w->at[n] != ':')
        return malformed(w, "a key and a colon");
    snprintf(key, bytes, "%.*s", (int)n, w->at);
    w->at += n + 1;
    return MU_OK;
}

static const mu_value *element(const mu_value *value, bool map, int i, const char *key)
{
    if (value == NULL || value->kind != (map ? MU_VALUE_MAP : MU_VALUE_LIST))
        return NULL;
    if (!map)
        return i < value->n ? value->items[i] : NULL;
    for (int k = 0; k < value->n; k++)
        if (strcmp(value->keys[k], key) == 0)
            return value->items[k];
    return NULL;
}

static mu_status walk_items(walk *w, const mu_value *value, bool map)
{
    const char close = map ? '}' : ')';
    char key[200] = "", text[320];
    int n = 0;
    for (bool more = !take(w, close); more; n++) {
        if (map)
            MU_TRY(read_key(w, key, sizeof key));
        const mu_value *item = element(value, map, n, key);
        if (w->check && item == NULL) {
            snprintf(text, sizeof text, "argument %d%s%s is missing", n, map ? ", key " : "", key);
            return differs(w, text);
        }
        MU_TRY(walk_value(w, item));
        more = take(w, ',');
        if (!more && !take(w, close))
            return malformed(w, "a comma or a closing bracket");
    }
    const int given = value == NULL ? 0 : value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP ? value->n : 1;
    if (!w->check || given == n)
        return MU_OK;
    snprintf(text, sizeof text, "%d values; expected %d", given, n);
    return differs(w, text);
}

static mu_status walk_value(walk *w, const mu_value *value)
{
    if (++w->depth > MOST_NESTED)
        return malformed(w, "fewer nested brackets");
    const bool list = take(w, '('), map = !list && take(w, '{');
    const mu_status status = list || map ? walk_items(w, value, map) : walk_tensor(w, value);
    w->depth--;
    return status;
}

static mu_status walk_all(walk *w, const mu_value *value)
{
    MU_TRY(walk_value(w, value));
    skip_spaces(w);
    return *w->at == '\0' ? MU_OK : malformed(w, "its end");
}

mu_status mu__signature_valid(const char *signature)
{
    return walk_all(&(walk){.text = signature, .at = signature}, NULL);
}

mu_status mu__signature_check(const char *signature, const mu_value *arguments)
{
    return walk_all(&(walk){.text = signature, .at = signature, .check = true}, arguments);
}
