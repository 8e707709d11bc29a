// Numbers as Python writes them: its repr(), and format() with a specification such as "02d", ".3f", "," or "*^9".
#include "model/callbacks/callback_class.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_WIDTH = 64, MOST_PRECISION = 32, MOST_FILL_BYTES = 4 };
enum { BODY_BYTES = 400 };    // the largest double has 309 digits before the point
enum { GROUPED_BYTES = 600 }; // with a separator after every third of them

// Takes trailing zeros of a fraction away, and leaves one digit of it.
static void shorten_fraction(char *text)
{
    size_t n = strlen(text);
    while (n > 2 && text[n - 1] == '0' && text[n - 2] != '.')
        text[--n] = '\0';
}

// Python's forms of a float with so many digits: a fraction, or from 10^most on and below 10^-4 an exponent. `whole`
// keeps the point and zeros at the end.
static void digits_text(double value, int digits, int most, bool whole, size_t bytes, char *text)
{
    char form[40];
    snprintf(form, sizeof form, "%#.*e", digits - 1, value);
    const int exponent = atoi(strchr(form, 'e') + 1);
    if (exponent >= -4 && exponent < most) {
        snprintf(text, bytes, "%.*f", MU_MAX(digits - 1 - exponent, 1), value);
        if (!whole)
            shorten_fraction(text);
        return;
    }
    char *mantissa_end = strchr(form, 'e'), *end = mantissa_end;
    while (!whole && end[-1] == '0' && end - form > 1)
        end--;
    end -= !whole && end[-1] == '.';
    snprintf(text, bytes, "%.*s%s", (int)(end - form), form, mantissa_end);
}

// repr(), with a point in any case if `pointed`.
static void shortest_text(double value, bool pointed, size_t bytes, char *text)
{
    char form[40];
    int digits = 1;
    if (!isfinite(value)) {
        snprintf(text, bytes, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (; digits < 17; digits++) {
        snprintf(form, sizeof form, "%.*e", digits - 1, value);
        if (strtod(form, NULL) == value)
            break;
    }
    digits_text(value, digits, 16, pointed, bytes, text);
}

void mu__number_text(double value, size_t bytes, char *text) { shortest_text(value, false, bytes, text); }

// A specification of format(): [[fill]align][sign][z][#][0][width][grouping][.precision][type].
typedef struct number_form {
    const char *fill; // a character of UTF-8
    int fill_bytes;
    char align;            // '<', '>', '^', or '=': between the sign and the digits
    char sign;             // '-': only of negative numbers
    bool no_negative_zero; // "z"
    bool alternate;        // "#": a prefix such as 0x, and a point in any case
    int width;
    char separator; // ',' or '_' between groups of digits; '\0': none
    int precision;  // -1: none
    char type;      // '\0': none
} number_form;

// ---- Reading ------------------------------------------------------------------------------------

// Reads digits up to a limit; false: there are none, or too large a number.
static bool read_digits(const char **at, int most, int *out)
{
    const char *begin = *at;
    for (*out = 0; **at >= '0' && **at <= '9' && *out <= most; ++*at)
        *out = *out * 10 + (**at - '0');
    return *at != begin && *out <= most;
}

static bool is_among(char c, const char *some) { return c != '\0' && strchr(some, c) != NULL; }

// Reads a character that may be there: one of some, else '\0'.
static char read_flag(const char **at, const char *some) { return is_among(**at, some) ? *(*at)++ : '\0'; }

// Reads "[[fill]align]". A brace is no fill: it would end the field, or begin another.
static const char *read_align(const char *spec, number_form *form)
{
    static const char aligns[] = "<>^=";
    int bytes = *spec != '\0' && *spec != '{' && *spec != '}';
    while (bytes > 0 && (spec[bytes] & 0xC0) == 0x80)
        bytes++;
    if (bytes > MOST_FILL_BYTES || !is_among(spec[bytes], aligns))
        bytes = 0;
    if (!is_among(spec[bytes], aligns))
        return spec;
    form->align = spec[bytes];
    form->fill = bytes > 0 ? spec : form->fill;
    form->fill_bytes = bytes > 0 ? bytes : 1;
    return spec + bytes + 1;
}

static bool read_form(const char *spec, number_form *form)
{
    static const char space[] = " ", zero[] = "0";
    *form = (number_form){.fill = space, .fill_bytes = 1, .precision = -1};
    spec = read_align(spec, form);
    form->sign = read_flag(&spec, "+- ");
    form->no_negative_zero = read_flag(&spec, "z");
    form->alternate = read_flag(&spec, "#");
    const bool zeros = *spec == '0' && form->fill == space; // where no other is given
    form->align = form->align != '\0' ? form->align : zeros ? '=' : '>';
    form->fill = zeros ? zero : form->fill;
    if (*spec >= '0' && *spec <= '9' && !read_digits(&spec, MOST_WIDTH, &form->width))
        return false;
    form->separator = read_flag(&spec, ",_");
    if (read_flag(&spec, ".") && !read_digits(&spec, MOST_PRECISION, &form->precision))
        return false;
    if (*spec != '\0')
        form->type = *spec++;
    return *spec == '\0';
}

// ---- Digits -------------------------------------------------------------------------------------

// Digits of an int in a base of its own, up to 16.
static void whole_text(uint64_t value, unsigned base, bool capitals, char text[BODY_BYTES])
{
    char reversed[64];
    int n = 0;
    do
        reversed[n++] = (capitals ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
    while ((value /= base) > 0);
    for (int i = 0; i < n; i++)
        text[i] = reversed[n - 1 - i];
    text[n] = '\0';
}

// Writes an int of 0 or more; false: format() refuses the specification.
static bool int_text(double value, const number_form *form, const char **prefix, char text[BODY_BYTES])
{
    static const struct {
        char type, separators[3], prefix[3];
        unsigned base;
    } types[] = {{'\0', ",_", "", 10}, {'d', ",_", "", 10},  {'n', "", "", 10},   {'b', "_", "0b", 2},
                 {'o', "_", "0o", 8},  {'x', "_", "0x", 16}, {'X', "_", "0X", 16}};
    size_t i = 0;
    while (i < MU_COUNT(types) && types[i].type != form->type)
        i++;
    if (i == MU_COUNT(types) || form->precision >= 0 || form->no_negative_zero ||
        (form->separator && !is_among(form->separator, types[i].separators)))
        return false;
    *prefix = form->alternate ? types[i].prefix : "";
    whole_text((uint64_t)value, types[i].base, form->type == 'X', text);
    return true;
}

// Writes a float of 0 or more; false: format() refuses the specification.
static bool float_text(double value, const number_form *form, char text[BODY_BYTES])
{
    const int precision = form->precision < 0 ? 6 : form->precision, digits = MU_MAX(precision, 1);
    char printf_form[8];
    if (form->type == '\0' && form->precision < 0) {
        shortest_text(value, form->alternate, BODY_BYTES, text);
    } else if (form->type == '\0' && isfinite(value)) { // one digit behind the point counts as a digit
        digits_text(value, digits, digits - 1, form->alternate, BODY_BYTES, text);
    } else if (form->type == '%') {
        snprintf(text, BODY_BYTES, form->alternate ? "%#.*f%%" : "%.*f%%", precision, value * 100);
    } else {
        const char type = form->type == 'n' ? 'g' : form->type != '\0' ? form->type : 'f';
        if (!is_among(type, "eEfFgG") || (form->type == 'n' && form->separator))
            return false; // "%n" and "%s" would take the number for an address
        snprintf(printf_form, sizeof printf_form, "%%%s.*%c", form->alternate ? "#" : "", type);
        snprintf(text, BODY_BYTES, printf_form, precision, value);
    }
    return true;
}

// Puts a separator after every so many of the n digits at the beginning of `text`, counted from their end, and zeros in
// front of them until they and the separators are `least` characters.
static void group(const char *text, int n, int size, char separator, int least, char out[GROUPED_BYTES])
{
    char reversed[GROUPED_BYTES];
    int used = 0, left = n;
    for (int i = 0; left > 0 || used < least; i++) {
        if (i > 0 && i % size == 0)
            reversed[used++] = separator;
        reversed[used++] = left > 0 ? text[--left] : '0';
    }
    for (int i = 0; i < used; i++)
        out[i] = reversed[used - 1 - i];
    snprintf(out + used, (size_t)(GROUPED_BYTES - used), "%s", text + n);
}

// ---- The whole ----------------------------------------------------------------------------------

typedef char padding[MOST_WIDTH * MOST_FILL_BYTES + 1];

static void pad(const number_form *form, int n, padding text)
{
    for (int i = 0; i < n; i++)
        memcpy(text + i * form->fill_bytes, form->fill, (size_t)form->fill_bytes);
    text[n * form->fill_bytes] = '\0';
}

// Whether the digits in front of an exponent are all 0.
static bool is_zero(const char *body)
{
    return strcspn(body, "123456789iInN") >= strcspn(body, "eE"); // "inf", "nan"
}

// Writes the sign, the prefix and the digits of a number, padded.
static void put(const number_form *form, bool negative, const char *prefix, const char *body, size_t bytes, char *out)
{
    padding left, inside, right;
    char grouped[GROUPED_BYTES];
    const char sign[] = {negative ? '-' : form->sign == '-' ? '\0' : form->sign, '\0'};
    const bool zeros = form->align == '=' && form->fill_bytes == 1 && *form->fill == '0';
    const int others = (int)(strlen(sign) + strlen(prefix));
    const int digits = (int)strspn(body, is_among(form->type, "xX") ? "0123456789abcdefABCDEF" : "0123456789");
    if (form->separator && digits > 0) {
        const int rest = (int)strlen(body) - digits;
        group(body, digits, is_among(form->type, "boxX") ? 4 : 3, form->separator,
              zeros ? form->width - others - rest : 0, grouped);
        body = grouped;
    }
    const int fill = MU_MAX(form->width - others - (int)strlen(body), 0);
    const int before = form->align == '>' ? fill : form->align == '^' ? fill / 2 : 0;
    const int between = form->align == '=' ? fill : 0;
    pad(form, before, left);
    pad(form, between, inside);
    pad(form, fill - before - between, right);
    snprintf(out, bytes, "%s%s%s%s%s%s", left, sign, prefix, inside, body, right);
}

bool mu__number_format(double value, bool whole, const char *spec, size_t bytes, char *out)
{
    number_form form;
    char body[BODY_BYTES];
    const char *prefix = "";
    if (!read_form(spec, &form))
        return false;
    const bool as_int = whole && !is_among(form.type, "eEfFgG%");
    if (!(as_int ? int_text(fabs(value), &form, &prefix, body) : float_text(fabs(value), &form, body)))
        return false;
    const bool negative = signbit(value) && !isnan(value) && !(form.no_negative_zero && is_zero(body));
    put(&form, negative, prefix, body, bytes, out);
    return true;
}
