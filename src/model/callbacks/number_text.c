// Numbers as Python writes them: its repr(), and format() with a specification such as "02d", ".3f", ".1%" or "*^9".
#include "model/callbacks/callback_class.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_WIDTH = 64, MOST_PRECISION = 32, MOST_FILL_BYTES = 4 };
enum { BODY_BYTES = 400 };  // the largest double has 309 digits before the point

// Takes trailing zeros of a fraction away, and leaves one digit of it.
static void shorten_fraction(char *text)
{
    size_t n = strlen(text);
    while (n > 2 && text[n - 1] == '0' && text[n - 2] != '.')
        text[--n] = '\0';
}

// Python's forms of a float with so many digits: a fraction, or from 10^most on and below 10^-4 an exponent.
static void digits_text(double value, int digits, int most, size_t bytes, char *text)
{
    char form[40];
    snprintf(form, sizeof form, "%.*e", digits - 1, value);
    const int exponent = atoi(strchr(form, 'e') + 1);
    if (exponent >= -4 && exponent < most) {
        snprintf(text, bytes, "%.*f", MU_MAX(digits - 1 - exponent, 1), value);
        shorten_fraction(text);
        return;
    }
    char *mantissa_end = strchr(form, 'e'), *end = mantissa_end;
    while (digits > 1 && end[-1] == '0')
        end--;
    end -= end[-1] == '.';
    snprintf(text, bytes, "%.*s%s", (int)(end - form), form, mantissa_end);
}

void mu__number_text(double value, size_t bytes, char *text)
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
    digits_text(value, digits, 16, bytes, text);
}

// A specification of format(): [[fill]align][sign][0][width][.precision][type].
typedef struct number_form {
    const char *fill;  // a character of UTF-8
    int fill_bytes;
    char align;        // '<', '>', '^', or '=': between the sign and the digits
    char sign;         // '-': only of negative numbers
    int width;
    int precision;     // -1: none
    char type;         // '\0': none
} number_form;

// Reads digits up to a limit; false: there are none, or too large a number.
static bool read_digits(const char **at, int most, int *out)
{
    const char *begin = *at;
    for (*out = 0; **at >= '0' && **at <= '9' && *out <= most; ++*at)
        *out = *out * 10 + (**at - '0');
    return *at != begin && *out <= most;
}

static bool is_align(char c)
{
    return c != '\0' && strchr("<>^=", c) != NULL;
}

// Reads "[[fill]align]". A brace is no fill: it would end the field, or begin another.
static const char *read_align(const char *spec, number_form *form)
{
    int bytes = *spec != '\0' && *spec != '{' && *spec != '}';
    while (bytes > 0 && (spec[bytes] & 0xC0) == 0x80)
        bytes++;
    if (bytes > MOST_FILL_BYTES || !is_align(spec[bytes]))
        bytes = 0;
    if (!is_align(spec[bytes]))
        return spec;
    form->align = spec[bytes];
    form->fill = bytes > 0 ? spec : form->fill;
    form->fill_bytes = bytes > 0 ? bytes : 1;
    return spec + bytes + 1;
}

static bool read_form(const char *spec, number_form *form)
{
    static const char space[] = " ", zero[] = "0";
    *form = (number_form){.fill = space, .fill_bytes = 1, .sign = '-', .precision = -1};
    spec = read_align(spec, form);
    if (*spec != '\0' && strchr("+- ", *spec))
        form->sign = *spec++;
    const bool zeros = *spec == '0' && form->fill == space;  // where no other is given
    form->align = form->align != '\0' ? form->align : zeros ? '=' : '>';
    form->fill = zeros ? zero : form->fill;
    if (*spec >= '0' && *spec <= '9' && !read_digits(&spec, MOST_WIDTH, &form->width))
        return false;
    const bool point = *spec == '.';
    spec += point;
    if (point && !read_digits(&spec, MOST_PRECISION, &form->precision))
        return false;
    if (*spec != '\0')
        form->type = *spec++;
    return *spec == '\0';
}

// Writes a number of 0 or more without its sign.
static bool body_text(double value, bool whole, const number_form *form, char text[BODY_BYTES])
{
    const int precision = form->precision < 0 ? 6 : form->precision;
    char printf_form[] = "%.*f";
    if (form->type == 'd' || (form->type == '\0' && whole)) {
        snprintf(text, BODY_BYTES, "%lld", (long long)value);
        return whole && form->precision < 0;
    }
    if (form->type == '\0' && form->precision < 0) {
        mu__number_text(value, BODY_BYTES, text);
    } else if (form->type == '\0' && isfinite(value)) {  // one digit behind the point counts as a digit
        const int digits = MU_MAX(precision, 1);
        digits_text(value, digits, digits - 1, BODY_BYTES, text);
    } else if (form->type == '%') {
        snprintf(text, BODY_BYTES, "%.*f%%", precision, value * 100);
    } else {
        printf_form[3] = form->type != '\0' ? form->type : 'f';
        if (!strchr("eEfFgG", printf_form[3]))  // "%n" and "%s" would take the number for an address
            return false;
        snprintf(text, BODY_BYTES, printf_form, precision, value);
    }
    return true;
}

typedef char padding[MOST_WIDTH * MOST_FILL_BYTES + 1];

static void pad(const number_form *form, int n, padding text)
{
    for (int i = 0; i < n; i++)
        memcpy(text + i * form->fill_bytes, form->fill, (size_t)form->fill_bytes);
    text[n * form->fill_bytes] = '\0';
}

bool mu__number_format(double value, bool whole, const char *spec, size_t bytes, char *out)
{
    number_form form;
    char body[BODY_BYTES];
    padding left, inside, right;
    if (!read_form(spec, &form) || !body_text(fabs(value), whole, &form, body))
        return false;
    const bool negative = signbit(value) && !isnan(value);
    const char sign[] = {negative ? '-' : form.sign == '-' ? '\0' : form.sign, '\0'};
    const int fill = MU_MAX(form.width - (int)(strlen(sign) + strlen(body)), 0);
    const int before = form.align == '>' ? fill : form.align == '^' ? fill / 2 : 0;
    const int between = form.align == '=' ? fill : 0;
    pad(&form, before, left);
    pad(&form, between, inside);
    pad(&form, fill - before - between, right);
    snprintf(out, bytes, "%s%s%s%s%s", left, sign, inside, body, right);
    return true;
}
