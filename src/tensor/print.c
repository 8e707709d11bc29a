// Prints tensors as text in the layout of NumPy's str(): the shortest digits that round-trip, aligned columns, lines
// of 75 characters, and above 1000 elements only three at each end of an axis.
//
// Floats take two passes: the first finds the widths that all shown elements need, the second prints. NumPy itself
// has no bfloat16: it prints ml_dtypes' elements one by one, without columns, and so does this file. A symbolic
// tensor prints as its type and shape.
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>

enum { EDGE = 3, SHOW_ALL = 1000, LINE = 75, DIGITS = 8, SCALAR_DIGITS = 20, ITEM = 400 };

typedef struct printer {
    FILE *out;
    const mu_tensor *tensor;
    bool shortened, exponents;
    int left, right;    // columns before and after the point (integers: all in left)
    double least, most; // magnitudes of the finite non-zero elements
    int digits;         // maximum number of digits after the point
    int longest_word;   // "nan" 3, "-inf" 4; 0: every element is finite
    int column;
    int held; // spaces to write before the next word; dropped at the end of a line
} printer;

static bool reads_back(mu_dtype dtype, const char *text, double value)
{
    double again = strtod(text, NULL);
    switch (dtype) {
    case MU_F64: return again == value;
    case MU_F32: return strtof(text, NULL) == (float)value;
    case MU_F16: return mu__f16_to_f32(mu__f32_to_f16((float)again)) == (float)value;
    default: return mu__bf16_to_f32(mu__f32_to_bf16((float)again)) == (float)value;
    }
}

// Increments the last digit of the decimal number in `text`, away from 0, with carry.
static void step_away(char *text)
{
    char *at = strchr(text, 'e') ? strchr(text, 'e') - 1 : text + strlen(text) - 1;
    for (; at >= text && (*at == '9' || *at == '.'); at--)
        *at = *at == '9' ? '0' : '.';
    if (at >= text && *at >= '0')
        ++*at;
}

// Whether `precision` digits identify the number. Below a power of two the neighbours are closer than above it, so
// the number that round-trips may be the next decimal number instead of the nearest one, which printf gives.
static bool enough(mu_dtype dtype, bool exponent, int precision, double value, char *text)
{
    snprintf(text, ITEM, exponent ? "%.*e" : "%.*f", precision, value);
    if (reads_back(dtype, text, value))
        return true;
    step_away(text);
    return reads_back(dtype, text, value);
}

// The shortest "d.ddde+xx" that round-trips, with at most `digits` digits after the point; returns their number.
static int scientific(mu_dtype dtype, double value, int digits, char *text)
{
    for (int precision = 0; precision <= digits; precision++)
        if (enough(dtype, true, precision, value, text))
            return precision;
    snprintf(text, ITEM, "%.*e", digits, value);
    for (const char *end = strchr(text, 'e'); digits > 0 && end[-1] == '0'; end--)
        digits--;
    return digits;
}

// The shortest "ddd.ddd" that round-trips, with at most `digits` digits after the point; a whole number ends in a
// bare point.
static void positional(mu_dtype dtype, double value, int digits, char *text)
{
    bool whole = false;
    for (int precision = 0; precision <= digits && !whole; precision++)
        whole = enough(dtype, false, precision, value, text);
    if (!whole)
        snprintf(text, ITEM, "%.*f", digits, value);
    char *point = strchr(text, '.');
    if (!point) {
        strcat(text, ".");
        return;
    }
    for (char *end = text + strlen(text); end[-1] == '0'; end--)
        end[-1] = 0;
}

static double element(const printer *p, int64_t i)
{
    return mu__read_element(p->tensor->dtype, mu__host_read(p->tensor), i);
}

static void learn_magnitude(printer *p, int64_t i)
{
    double value = element(p, i), magnitude = fabs(value);
    if (!isfinite(value))
        p->longest_word = MU_MAX(p->longest_word, isinf(value) && value < 0 ? 4 : 3);
    if (!isfinite(value) || value == 0)
        return;
    p->least = p->least == 0 ? magnitude : fmin(p->least, magnitude);
    p->most = fmax(p->most, magnitude);
}

static void learn_float_width(printer *p, int64_t i)
{
    char text[ITEM];
    double value = element(p, i);
    if (!isfinite(value))
        return;
    if (p->exponents) {
        p->right = MU_MAX(p->right, scientific(p->tensor->dtype, value, p->digits, text));
        p->left = MU_MAX(p->left, value < 0 || (value == 0 && signbit(value)) ? 2 : 1);
        return;
    }
    positional(p->tensor->dtype, value, p->digits, text);
    int left = (int)(strchr(text, '.') - text);
    p->left = MU_MAX(p->left, left);
    p->right = MU_MAX(p->right, (int)strlen(text) - left - 1);
}

static void learn_integer_width(printer *p, int64_t i)
{
    char text[ITEM];
    int width;
    if (p->tensor->dtype == MU_BOOL)
        width = 5; // even if no element is False
    else if (p->tensor->dtype == MU_I64)
        width = snprintf(text, sizeof text, "%lld", (long long)((const int64_t *)mu__host_read(p->tensor))[i]);
    else
        width = snprintf(text, sizeof text, "%.0f", element(p, i));
    p->left = MU_MAX(p->left, width);
}

// Calls fn on every element that is printed.
static void each_shown(printer *p, int axis, int64_t at, void (*fn)(printer *, int64_t))
{
    const mu_shape *shape = &p->tensor->shape;
    if (axis == shape->rank) {
        fn(p, at);
        return;
    }
    int64_t n = shape->dims[axis];
    for (int64_t i = 0; i < n; i++) {
        if (p->shortened && n > 2 * EDGE && i == EDGE)
            i = n - EDGE;
        each_shown(p, axis + 1, at * n + i, fn);
    }
}

static bool long_exponents(const printer *p) { return p->most >= 1e100 || (p->least > 0 && p->least < 1e-99); }

// Number of columns from the point on.
static int columns_right(const printer *p) { return 1 + p->right + (!p->exponents ? 0 : long_exponents(p) ? 5 : 4); }

// "1.5e-05", with three digits of exponent if another element needs them.
static int format_exponent(const printer *p, double value, char *text)
{
    char digits[ITEM];
    if (!enough(p->tensor->dtype, true, p->right, value, digits))
        snprintf(digits, sizeof digits, "%.*e", p->right, value);
    const char *exponent = strchr(digits, 'e') + 1;
    const int length = (int)(exponent - 1 - digits);
    return snprintf(text, ITEM, "%*s%.*s%se%c%s%s", p->left - (*digits == '-' ? 2 : 1), "", length, digits,
                    p->right ? "" : ".", *exponent, long_exponents(p) && strlen(exponent) == 3 ? "0" : "",
                    exponent + 1);
}

static int format_float(const printer *p, double value, char *text)
{
    int width = p->left + columns_right(p);
    if (!isfinite(value))
        return snprintf(text, ITEM, "%*s", width, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    if (p->exponents)
        return format_exponent(p, value, text);
    char digits[ITEM];
    positional(p->tensor->dtype, value, p->digits, digits);
    int left = (int)(strchr(digits, '.') - digits);
    return snprintf(text, ITEM, "%*s%-*s", p->left - left, "", left + 1 + p->right, digits);
}

static int format_element(const printer *p, int64_t i, char *text)
{
    if (p->tensor->dtype == MU_BF16)
        return snprintf(text, ITEM, "%g", isnan(element(p, i)) ? fabs(element(p, i)) : element(p, i));
    if (mu__dtype_is_float(p->tensor->dtype))
        return format_float(p, element(p, i), text);
    if (p->tensor->dtype == MU_BOOL)
        return snprintf(text, ITEM, "%*s", p->left, element(p, i) != 0 ? "True" : "False");
    if (p->tensor->dtype == MU_I64)
        return snprintf(text, ITEM, "%*lld", p->left, (long long)((const int64_t *)mu__host_read(p->tensor))[i]);
    return snprintf(text, ITEM, "%*.0f", p->left, element(p, i));
}

// A string as Python writes bytes; `out` takes up to 4 characters a byte, and 4 more.
static int quote_string(mu_string string, char *out)
{
    const char quote = memchr(string.bytes, '\'', string.n) && !memchr(string.bytes, '"', string.n) ? '"' : '\'';
    char *at = out + sprintf(out, "b%c", quote);
    for (size_t i = 0; i < string.n; i++) {
        const char c = string.bytes[i];
        const char *special = memchr("\tt\nn\rr", c, 6);
        if (c == quote || c == '\\')
            at += sprintf(at, "\\%c", c);
        else if (special && (c == '\t' || c == '\n' || c == '\r'))
            at += sprintf(at, "\\%c", special[1]);
        else
            at += sprintf(at, c >= ' ' && c <= '~' ? "%c" : "\\x%02x", (unsigned char)c);
    }
    *at++ = quote;
    *at = 0;
    return (int)(at - out);
}

static void print_word(printer *p, char *word, int length, int indent, bool first)
{
    if (!first && p->column + 1 + length > LINE - indent) { // there are as many closing brackets as the indent
        fprintf(p->out, "\n%*s", indent, "");
        p->column = indent;
    } else if (!first) {
        fprintf(p->out, "%*s", p->held + 1, "");
        p->column++;
    }
    p->column += length;
    for (p->held = 0; word[length - 1] == ' '; p->held++)
        word[--length] = 0;
    fputs(word, p->out);
}

static void print_element(printer *p, int64_t i, int indent, bool first)
{
    char text[ITEM];
    if (!mu__has_strings(p->tensor)) {
        print_word(p, text, format_element(p, i, text), indent, first);
        return;
    }
    const mu_string string = mu__string_at(p->tensor, i);
    char *word = mu__alloc(4 * string.n + 5);
    if (word)
        print_word(p, word, quote_string(string, word), indent, first);
    mu__free(word);
}

static void print_axis(printer *p, int axis, int64_t at)
{
    const mu_shape *shape = &p->tensor->shape;
    bool last = axis == shape->rank - 1;
    int64_t n = shape->dims[axis];
    fputc('[', p->out);
    p->column = axis + 1;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && !last)
            fprintf(p->out, "%.*s%*s", shape->rank - 1 - axis, "\n\n\n\n\n\n\n\n", axis + 1, "");
        if (p->shortened && n > 2 * EDGE && i == EDGE) {
            if (last)
                print_word(p, (char[]){"..."}, 3, axis + 1, false);
            else
                fprintf(p->out, "...%.*s%*s", shape->rank - 1 - axis, "\n\n\n\n\n\n\n\n", axis + 1, "");
            i = n - EDGE;
        }
        if (last)
            print_element(p, at * n + i, axis + 1, i == 0);
        else
            print_axis(p, axis + 1, at * n + i);
    }
    fprintf(p->out, "%*s]", p->held, "");
    p->held = 0;
}

// Rounds a number to the array's type: NumPy compares magnitudes and their ratio in that type.
static double rounded(mu_dtype dtype, double value)
{
    return dtype == MU_F32 ? (float)value : dtype == MU_F16 ? mu__f16_to_f32(mu__f32_to_f16((float)value)) : value;
}

static bool needs_exponents(const printer *p)
{
    const mu_dtype dtype = p->tensor->dtype;
    const double whole = dtype == MU_F16 ? 1e3 : dtype == MU_F32 ? 1e6 : 1e8; // the last digits are not exact from here
    return p->most >= whole ||
           (p->least > 0 && (p->least < rounded(dtype, 1e-4) || rounded(dtype, p->most / p->least) > 1000));
}

static void learn(printer *p)
{
    if (p->tensor->dtype == MU_BF16 || mu__has_strings(p->tensor))
        return;
    if (!mu__dtype_is_float(p->tensor->dtype)) {
        each_shown(p, 0, 0, learn_integer_width);
        return;
    }
    each_shown(p, 0, 0, learn_magnitude);
    p->exponents = needs_exponents(p);
    each_shown(p, 0, 0, learn_float_width);
    p->left = MU_MAX(p->left, p->longest_word - columns_right(p));
}

static void print_float_scalar(mu_dtype dtype, double value, FILE *out)
{
    char text[ITEM];
    const double magnitude = fabs(value), whole = dtype == MU_F16 ? 1e3 : dtype == MU_F32 ? 1e6 : 1e16;
    if (!isfinite(value))
        snprintf(text, ITEM, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    else if (magnitude != 0 && (magnitude >= whole || magnitude < 1e-4))
        scientific(dtype, value, SCALAR_DIGITS, text);
    else
        positional(dtype, value, SCALAR_DIGITS, text);
    fprintf(out, "%s%s\n", text, text[strlen(text) - 1] == '.' ? "0" : "");
}

void mu_tensor_print(const mu_tensor *tensor, FILE *out)
{
    char text[ITEM];
    if (mu__need(out, "mu_tensor_print: the file") != MU_OK)
        return;
    if (!tensor) {
        fputs("NULL\n", out);
        return;
    }
    if (!tensor->buffer) {
        fprintf(out, "<symbolic %s %s>\n", mu_dtype_name(tensor->dtype), mu__shape_text(&tensor->shape, text));
        return;
    }
    if (!mu__host_read(tensor)) {
        fprintf(out, "<%s %s: %s>\n", mu_dtype_name(tensor->dtype), mu__shape_text(&tensor->shape, text),
                mu_error_message());
        return;
    }
    int64_t n = mu__elements(&tensor->shape);
    printer p = {.out = out, .tensor = tensor, .shortened = n > SHOW_ALL, .digits = DIGITS};
    if (n == 0) {
        fputs("[]\n", out);
    } else if (tensor->shape.rank == 0 && mu__dtype_is_float(tensor->dtype) && tensor->dtype != MU_BF16) {
        print_float_scalar(tensor->dtype, element(&p, 0), out);
    } else if (tensor->shape.rank == 0) {
        print_element(&p, 0, 0, true);
        fprintf(out, "%*s\n", p.held, "");
    } else {
        learn(&p);
        print_axis(&p, 0, 0);
        fputc('\n', out);
    }
}
