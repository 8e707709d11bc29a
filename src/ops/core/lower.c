// StableHLO operations for use in lowerings. See lower.h.
//
// Types follow from the operands or are arguments; the emitter writes names and types. Checks nothing except the length
// of text: ops have checked the shapes, and the plugin checks the text.
#include "ops/core/lower.h"

#include <math.h>
#include <string.h>

mu_status mu__lowered(mu_lowering *l, int i, mu_hlo value)
{
    l->out[i] = value;
    return l->emitter->status;
}

const char *mu__hlo_type(mu_dtype dtype)
{
    return dtype == MU_HLO_U32 ? "ui32" : dtype == MU_HLO_U64 ? "ui64" : mu__dtype_hlo(dtype);
}

const char *mu__hlo_precision(void)
{
#define PRECISION(word) "precision_config = [#stablehlo<precision " word ">, #stablehlo<precision " word ">]"
    static atomic_bool logged;
    const char *wanted = mu__setting_text(MU_SETTING_XLA_PRECISION);
    if (!atomic_exchange(&logged, true))
        mu__log(MU_LOG_INFO, "products and convolutions on XLA devices have the precision \"%s\"%s", wanted,
                strcmp(wanted, "default") == 0 ? ", the platform's own (TPUs multiply in bfloat16, GPUs may use TF32); "
                                                 "MUSTER_XLA_PRECISION=highest for float32"
                                               : "");
    return strcmp(wanted, "highest") == 0 ? PRECISION("HIGHEST")
           : strcmp(wanted, "high") == 0  ? PRECISION("HIGH")
                                          : PRECISION("DEFAULT");
#undef PRECISION
}

const char *mu__hlo_list(const mu_ints *list, char text[MU_HLO_TEXT / 4])
{
    int used = snprintf(text, MU_HLO_TEXT / 4, "array<i64%s", list->n ? ":" : "");
    for (int64_t i = 0; i < list->n; i++)
        used +=
            snprintf(text + used, (size_t)(MU_HLO_TEXT / 4 - used), "%s %lld", i ? "," : "", (long long)list->at[i]);
    snprintf(text + used, (size_t)(MU_HLO_TEXT / 4 - used), ">");
    return text;
}

// ---- Constants ----------------------------------------------------------------------------------

enum { ELEMENT_TEXT = 40 };

static mu_hlo failed(mu_emitter *e, const mu_spec *spec)
{
    if (e->status == MU_OK)
        e->status = MU_RESOURCE_EXHAUSTED;
    return (mu_hlo){.id = -1, .spec = *spec};
}

// A finite number with a point, which printf would write as the program's locale wants it, and with as many digits as
// it needs. Others are written as bits.
static void float_text(mu_dtype dtype, const void *element, char text[ELEMENT_TEXT])
{
    const double value = mu__read_element(dtype, element, 0);
    char number[ELEMENT_TEXT];
    uint64_t bits = 0;
    if (!isfinite(value)) {
        memcpy(&bits, element, mu_dtype_bytes(dtype));
        snprintf(text, ELEMENT_TEXT, "0x%0*llX", 2 * (int)mu_dtype_bytes(dtype), (unsigned long long)bits);
        return;
    }
    if (fabs(value) < 1e9 && value == floor(value) && !(value == 0 && signbit(value))) {
        snprintf(text, ELEMENT_TEXT, "%lld.0", (long long)value);
        return;
    }
    snprintf(number, sizeof number, "%.*e", dtype == MU_F64 ? 16 : 8, value);
    const int whole = number[0] == '-' ? 2 : 1;
    snprintf(text, ELEMENT_TEXT, "%.*s.%s", whole, number, number + whole + strcspn(number + whole, "0123456789"));
}

static void element_text(mu_dtype dtype, const void *element, char text[ELEMENT_TEXT])
{
    if (mu__dtype_is_float(dtype))
        float_text(dtype, element, text);
    else if (dtype == MU_BOOL)
        snprintf(text, ELEMENT_TEXT, "%s", *(const uint8_t *)element ? "true" : "false");
    else if (dtype == MU_I64)
        snprintf(text, ELEMENT_TEXT, "%lld", (long long)*(const int64_t *)element);
    else
        snprintf(text, ELEMENT_TEXT, "%.0f", mu__read_element(dtype, element, 0));
}

static void shape_text(const mu_spec *spec, char text[MU_HLO_TEXT / 4])
{
    int used = 0;
    for (int i = 0; i < spec->shape.rank; i++)
        used += snprintf(text + used, (size_t)(MU_HLO_TEXT / 4 - used), "%lldx", (long long)spec->shape.dims[i]);
    snprintf(text + used, (size_t)(MU_HLO_TEXT / 4 - used), "%s", mu__hlo_type(spec->dtype));
}

// A constant whose elements are all the same. An empty one is broadcast from a scalar.
static mu_hlo repeated(mu_emitter *e, const mu_spec *spec, const void *element)
{
    char number[ELEMENT_TEXT], shape[MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    if (mu__elements(&spec->shape) == 0)
        return mu__hlo_broadcast_to(e, repeated(e, &(mu_spec){.dtype = spec->dtype}, element), &spec->shape);
    element_text(spec->dtype, element, number);
    shape_text(spec, shape);
    snprintf(text, sizeof text, "{value = dense<%s> : tensor<%s>}", number, shape);
    return e->add(e, spec, "stablehlo.constant", 0, NULL, text);
}

// Elements are written as bytes, so that the text stays short; bools, as words.
static void write_elements(const mu_spec *spec, const void *data, size_t bytes, char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    const bool words = spec->dtype == MU_BOOL;
    char *at = text + sprintf(text, "{value = dense<%s", words ? "[" : "\"0x");
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t byte = ((const uint8_t *)data)[i];
        if (words) {
            at += sprintf(at, "%s%s", i ? ", " : "", byte ? "true" : "false");
        } else {
            *at++ = digits[byte >> 4];
            *at++ = digits[byte & 15];
        }
    }
    at += sprintf(at, "%s> : tensor<", words ? "]" : "\"");
    shape_text(spec, at);
    strcat(at, ">}");
}

mu_hlo mu__hlo_data(mu_emitter *e, const mu_spec *spec, const void *data)
{
    const size_t bytes = mu__spec_bytes(spec);
    const double zero = 0;
    if (mu__elements(&spec->shape) <= 1)
        return repeated(e, spec, bytes ? data : &zero);
    char *text = mu__alloc(bytes * 8 + MU_HLO_TEXT); // longest: "false, "
    if (!text)
        return failed(e, spec);
    mu_spec flat = *spec;
    if (spec->dtype == MU_BOOL)
        flat.shape = MU_SHAPE(mu__elements(&spec->shape));
    write_elements(&flat, data, bytes, text);
    const mu_hlo value = mu__hlo_reshape(e, e->add(e, &flat, "stablehlo.constant", 0, NULL, text), &spec->shape);
    mu__free(text);
    return value;
}

mu_hlo mu__hlo_number(mu_emitter *e, mu_dtype dtype, double value)
{
    const mu_shape scalar = {.rank = 0};
    return mu__hlo_fill(e, dtype, &scalar, value);
}

mu_hlo mu__hlo_fill(mu_emitter *e, mu_dtype dtype, const mu_shape *shape, double value)
{
    union {
        double align;
        unsigned char bytes[8];
    } element = {0};
    const mu_spec spec = {.dtype = dtype, .shape = *shape};
    mu__write_element(dtype, element.bytes, 0, value);
    return repeated(e, &spec, element.bytes);
}

mu_hlo mu__hlo_minmax(mu_emitter *e, mu_dtype dtype, bool highest)
{
    if (dtype == MU_BOOL)
        return mu__hlo_number(e, dtype, highest);
    return mu__hlo_number(e, dtype, highest ? INFINITY : -INFINITY); // conversion to integers saturates
}

mu_hlo mu__hlo_iota(mu_emitter *e, mu_dtype dtype, const mu_shape *shape, int axis)
{
    char text[64];
    const mu_spec spec = {.dtype = dtype, .shape = *shape};
    snprintf(text, sizeof text, "{iota_dimension = %d : i64}", axis);
    return e->add(e, &spec, "stablehlo.iota", 0, NULL, text);
}

// ---- Element by element -------------------------------------------------------------------------

mu_hlo mu__hlo_unary(mu_emitter *e, const char *op, mu_hlo a) { return e->add(e, &a.spec, op, 1, &a, NULL); }

mu_hlo mu__hlo_binary(mu_emitter *e, const char *op, mu_hlo a, mu_hlo b)
{
    const mu_hlo operands[] = {a, b};
    return e->add(e, &a.spec, op, 2, operands, NULL);
}

static const char *comparison_type(mu_dtype dtype)
{
    if (dtype == MU_U8 || dtype == MU_BOOL || dtype == MU_HLO_U32 || dtype == MU_HLO_U64)
        return "UNSIGNED";
    return mu__dtype_is_float(dtype) ? "FLOAT" : "SIGNED";
}

// Without a type of comparison XLA takes integers for unsigned where it compares constants.
mu_hlo mu__hlo_compare(mu_emitter *e, const char *direction, mu_hlo a, mu_hlo b)
{
    char text[192];
    const mu_hlo operands[] = {a, b};
    const mu_spec spec = {.dtype = MU_BOOL, .shape = a.spec.shape};
    snprintf(
        text, sizeof text,
        "{comparison_direction = #stablehlo<comparison_direction %s>, compare_type = #stablehlo<comparison_type %s>}",
        direction, comparison_type(a.spec.dtype));
    return e->add(e, &spec, "stablehlo.compare", 2, operands, text);
}

mu_hlo mu__hlo_select(mu_emitter *e, mu_hlo which, mu_hlo yes, mu_hlo no)
{
    const mu_hlo operands[] = {which, yes, no};
    return e->add(e, &yes.spec, "stablehlo.select", 3, operands, NULL);
}

mu_hlo mu__hlo_convert(mu_emitter *e, mu_hlo a, mu_dtype dtype)
{
    const mu_spec spec = {.dtype = dtype, .shape = a.spec.shape};
    return a.spec.dtype == dtype ? a : e->add(e, &spec, "stablehlo.convert", 1, &a, NULL);
}

mu_hlo mu__hlo_wide(mu_emitter *e, mu_hlo a)
{
    return a.spec.dtype == MU_F16 || a.spec.dtype == MU_BF16 ? mu__hlo_convert(e, a, MU_F32) : a;
}

static size_t type_bytes(mu_dtype dtype)
{
    return dtype == MU_HLO_U32 ? 4 : dtype == MU_HLO_U64 ? 8 : mu_dtype_bytes(dtype);
}

mu_hlo mu__hlo_bits(mu_emitter *e, mu_hlo a, mu_dtype dtype)
{
    mu_spec spec = {.dtype = dtype, .shape = a.spec.shape};
    if (type_bytes(dtype) > type_bytes(a.spec.dtype))
        spec.shape.dims[--spec.shape.rank] = 0;
    return e->add(e, &spec, "stablehlo.bitcast_convert", 1, &a, NULL);
}

// ---- Shapes -------------------------------------------------------------------------------------

mu_hlo mu__hlo_reshape(mu_emitter *e, mu_hlo a, const mu_shape *shape)
{
    const mu_spec spec = {.dtype = a.spec.dtype, .shape = *shape};
    return mu__shape_equal(&a.spec.shape, shape) ? a : e->add(e, &spec, "stablehlo.reshape", 1, &a, NULL);
}

mu_hlo mu__hlo_transpose(mu_emitter *e, mu_hlo a, const mu_ints *permutation)
{
    char list[MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    mu_spec spec = a.spec;
    for (int i = 0; i < spec.shape.rank; i++)
        spec.shape.dims[i] = a.spec.shape.dims[permutation->at[i]];
    snprintf(text, sizeof text, "{permutation = %s}", mu__hlo_list(permutation, list));
    return e->add(e, &spec, "stablehlo.transpose", 1, &a, text);
}

mu_hlo mu__hlo_broadcast(mu_emitter *e, mu_hlo a, const mu_shape *shape, const mu_ints *axes)
{
    char list[MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    const mu_spec spec = {.dtype = a.spec.dtype, .shape = *shape};
    if (mu__shape_equal(&a.spec.shape, shape))
        return a;
    snprintf(text, sizeof text, "{broadcast_dimensions = %s}", mu__hlo_list(axes, list));
    return e->add(e, &spec, "stablehlo.broadcast_in_dim", 1, &a, text);
}

mu_hlo mu__hlo_broadcast_to(mu_emitter *e, mu_hlo a, const mu_shape *shape)
{
    mu_ints axes = {.n = a.spec.shape.rank};
    for (int i = 0; i < axes.n; i++)
        axes.at[i] = shape->rank - axes.n + i;
    return mu__hlo_broadcast(e, a, shape, &axes);
}

mu_hlo mu__hlo_pad(mu_emitter *e, mu_hlo a, mu_hlo with, const mu_ints *low, const mu_ints *high, const mu_ints *inner)
{
    char lists[3][MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    const mu_hlo operands[] = {a, with};
    mu_spec spec = a.spec;
    for (int i = 0; i < spec.shape.rank; i++)
        spec.shape.dims[i] += low->at[i] + high->at[i] + inner->at[i] * MU_MAX(a.spec.shape.dims[i] - 1, 0);
    snprintf(text, sizeof text, "{edge_padding_low = %s, edge_padding_high = %s, interior_padding = %s}",
             mu__hlo_list(low, lists[0]), mu__hlo_list(high, lists[1]), mu__hlo_list(inner, lists[2]));
    return e->add(e, &spec, "stablehlo.pad", 2, operands, text);
}

mu_hlo mu__hlo_slice(mu_emitter *e, mu_hlo a, const mu_ints *begin, const mu_ints *end, const mu_ints *strides)
{
    char lists[3][MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    mu_spec spec = a.spec;
    for (int i = 0; i < spec.shape.rank; i++)
        spec.shape.dims[i] = (end->at[i] - begin->at[i] + strides->at[i] - 1) / strides->at[i];
    snprintf(text, sizeof text, "{start_indices = %s, limit_indices = %s, strides = %s}", mu__hlo_list(begin, lists[0]),
             mu__hlo_list(end, lists[1]), mu__hlo_list(strides, lists[2]));
    return e->add(e, &spec, "stablehlo.slice", 1, &a, text);
}

mu_hlo mu__hlo_slice_axis(mu_emitter *e, mu_hlo a, int axis, int64_t begin, int64_t end, int64_t stride)
{
    const mu_shape *shape = &a.spec.shape;
    mu_ints begins = {.n = shape->rank}, ends = {.n = shape->rank}, strides = {.n = shape->rank};
    if (begin == 0 && end == shape->dims[axis] && stride == 1)
        return a;
    for (int i = 0; i < shape->rank; i++) {
        begins.at[i] = i == axis ? begin : 0;
        ends.at[i] = i == axis ? end : shape->dims[i];
        strides.at[i] = i == axis ? stride : 1;
    }
    return mu__hlo_slice(e, a, &begins, &ends, &strides);
}

mu_hlo mu__hlo_concat(mu_emitter *e, int n, const mu_hlo *parts, int axis)
{
    char text[64];
    mu_spec spec = parts[0].spec;
    if (n == 1)
        return parts[0];
    for (int i = 1; i < n; i++)
        spec.shape.dims[axis] += parts[i].spec.shape.dims[axis];
    snprintf(text, sizeof text, "{dimension = %d : i64}", axis);
    return e->add(e, &spec, "stablehlo.concatenate", n, parts, text);
}

mu_hlo mu__hlo_reverse(mu_emitter *e, mu_hlo a, int axis)
{
    char text[64];
    snprintf(text, sizeof text, "{dimensions = array<i64: %d>}", axis);
    return e->add(e, &a.spec, "stablehlo.reverse", 1, &a, text);
}

// Fills in the start of a slice along each axis: `at` along one, 0 along the others.
static void starts(mu_emitter *e, int rank, int axis, mu_hlo at, mu_hlo *out)
{
    for (int i = 0; i < rank; i++)
        out[i] = i == axis ? at : mu__hlo_number(e, at.spec.dtype, 0);
}

mu_hlo mu__hlo_part(mu_emitter *e, mu_hlo a, int axis, mu_hlo at, int64_t size)
{
    char list[MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    mu_hlo operands[1 + MU_MAX_RANK] = {a};
    mu_spec spec = a.spec;
    mu_ints sizes = {.n = spec.shape.rank};
    spec.shape.dims[axis] = size;
    memcpy(sizes.at, spec.shape.dims, sizeof *sizes.at * (size_t)sizes.n);
    starts(e, spec.shape.rank, axis, at, operands + 1);
    snprintf(text, sizeof text, "{slice_sizes = %s}", mu__hlo_list(&sizes, list));
    return e->add(e, &spec, "stablehlo.dynamic_slice", 1 + spec.shape.rank, operands, text);
}

mu_hlo mu__hlo_put_part(mu_emitter *e, mu_hlo a, int axis, mu_hlo at, mu_hlo part)
{
    mu_hlo operands[2 + MU_MAX_RANK] = {a, part};
    starts(e, a.spec.shape.rank, axis, at, operands + 2);
    return e->add(e, &a.spec, "stablehlo.dynamic_update_slice", 2 + a.spec.shape.rank, operands, NULL);
}

mu_hlo mu__hlo_replica(mu_emitter *e, mu_dtype dtype)
{
    static const mu_spec scalar = {.dtype = MU_HLO_U32};
    if (e->replicas == 1)
        return mu__hlo_number(e, dtype, 0);
    return mu__hlo_convert(e, e->replicas > 1 ? e->add(e, &scalar, "stablehlo.replica_id", 0, NULL, NULL) : e->replica,
                           dtype);
}

// ---- Reductions ---------------------------------------------------------------------------------

mu_hlo mu__hlo_reduce(mu_emitter *e, const char *op, mu_hlo a, mu_hlo start, const mu_ints *axes)
{
    char list[MU_HLO_TEXT / 4], text[MU_HLO_TEXT];
    const char *type = mu__hlo_type(a.spec.dtype);
    const mu_hlo operands[] = {a, start};
    mu_spec spec = {.dtype = a.spec.dtype, .shape = {.rank = 0}};
    int64_t next = 0;
    for (int i = 0; i < a.spec.shape.rank; i++)
        if (next < axes->n && axes->at[next] == i)
            next++;
        else
            spec.shape.dims[spec.shape.rank++] = a.spec.shape.dims[i];
    snprintf(text, sizeof text,
             "({ ^bb0(%%p: tensor<%s>, %%q: tensor<%s>): %%r = \"%s\"(%%p, %%q) : (tensor<%s>, tensor<%s>) -> "
             "tensor<%s> \"stablehlo.return\"(%%r) : (tensor<%s>) -> () }) {dimensions = %s}",
             type, type, op, type, type, type, type, mu__hlo_list(axes, list));
    return e->add(e, &spec, "stablehlo.reduce", 2, operands, text);
}
