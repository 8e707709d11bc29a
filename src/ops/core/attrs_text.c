// Writes attributes as text, for the readable dump of a graph and for its picture.
//
// Follows the op's attribute description, so no op is special, except `input`, whose attributes are the type that is
// shown after every node anyway. Graphs in attributes are printed by the printer of the enclosing graph.
#include "ops/core/op.h"

#include <stdarg.h>

enum { SHOWN_ELEMENTS = 4 }; // of a constant

typedef struct writing {
    char *text;
    size_t bytes, used;
} writing;

static void put(writing *w, const char *format, ...) MU_PRINTF(2, 3);
static void put(writing *w, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(w->text + w->used, w->bytes - w->used, format, values);
    va_end(values);
    w->used = MU_MIN(w->used + (size_t)MU_MAX(n, 0), w->bytes - 1);
}

static void put_ints(writing *w, const int64_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        put(w, "%s%lld", i ? ", " : "[", (long long)at[i]);
    put(w, n ? "]" : "[]");
}

// The elements of a short constant; the type is shown after the node.
static void put_tensor(writing *w, const mu_tensor *x)
{
    const int64_t n = mu__elements(&x->shape);
    put(w, "%s", x->shape.rank ? "[" : "");
    for (int64_t i = 0; i < MU_MIN(n, SHOWN_ELEMENTS); i++) {
        put(w, "%s", i ? ", " : "");
        if (x->dtype == MU_I64)
            put(w, "%lld", (long long)((const int64_t *)mu__host_read(x))[i]);
        else
            put(w, "%.10g", mu__read_element(x->dtype, mu__host_read(x), i));
    }
    put(w, "%s%s", n > SHOWN_ELEMENTS ? ", ..." : "", x->shape.rank ? "]" : "");
}

static void put_value(writing *w, mu_attr_kind kind, const void *field)
{
    char shape[MU_SHAPE_TEXT];
    switch (kind) {
    case MU_ATTR_INT: put(w, "%lld", (long long)*(const int64_t *)field); break;
    case MU_ATTR_REAL: put(w, "%.9g", *(const double *)field); break;
    case MU_ATTR_BOOL: put(w, *(const bool *)field ? "true" : "false"); break;
    case MU_ATTR_INTS: put_ints(w, ((const mu_ints *)field)->at, ((const mu_ints *)field)->n); break;
    case MU_ATTR_DTYPE: put(w, "%s", mu_dtype_name(*(const mu_dtype *)field)); break;
    case MU_ATTR_SHAPE: put(w, "%s", mu__shape_text(field, shape)); break;
    case MU_ATTR_TEXT:
    case MU_ATTR_MESSAGE: put(w, "'%s'", (const char *)field); break;
    case MU_ATTR_TENSOR: put_tensor(w, *(mu_tensor *const *)field); break;
    case MU_ATTR_GRAPH: break;
    }
}

static bool says_something(mu_attr_kind kind, const void *field)
{
    switch (kind) {
    case MU_ATTR_INTS: return ((const mu_ints *)field)->n > 0;
    case MU_ATTR_TEXT:
    case MU_ATTR_MESSAGE: return *(const char *)field != 0;
    case MU_ATTR_TENSOR: return *(mu_tensor *const *)field != NULL;
    default: return kind != MU_ATTR_GRAPH;
    }
}

void mu__attrs_text(const mu_op *op, const void *attrs, const char *between, char text[MU_ATTRS_TEXT])
{
    writing w = {.text = text, .bytes = MU_ATTRS_TEXT};
    text[0] = 0;
    if (op == &mu_op_input)
        return;
    for (const mu_attr_spec *spec = attrs ? op->attrs : NULL; spec && spec->name; spec++) {
        const void *field = (const char *)attrs + spec->offset;
        if (!says_something(spec->kind, field))
            continue;
        put(&w, "%s%s=", between, spec->name);
        put_value(&w, spec->kind, field);
    }
    mu__printable(text, true);
}
