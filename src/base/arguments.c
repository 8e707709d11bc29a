// Argument structs of callers: their versions, and which arguments the caller named.
//
// The struct's text, which the macros of the headers set, distinguishes an argument that is 0 from one that is left
// out. It is read only where that makes a difference: where an argument is 0 and its default is not.
#include "base/base.h"

enum { MAX_ARGS_BYTES = 1 << 16 };

// ---- The text of the arguments ------------------------------------------------------------------

// The end of a string or character literal that starts at `at`.
static const char *skip_literal(const char *at)
{
    const char quote = *at++;
    while (*at != '\0' && *at != quote)
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    return *at != '\0' ? at + 1 : at;
}

// The comma, or the end of the text, after the argument that starts at `at`.
static const char *skip_argument(const char *at)
{
    for (int depth = 0; *at != '\0' && (*at != ',' || depth > 0);) {
        if (*at == '"' || *at == '\'') {
            at = skip_literal(at);
            continue;
        }
        depth += (strchr("([{", *at) != NULL) - (strchr(")]}", *at) != NULL);
        at++;
    }
    return at;
}

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\t')
        at++;
    return at;
}

bool mu__in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool names(const char *argument, const char *name)
{
    if (*argument != '.')
        return false;
    argument = skip_space(argument + 1);
    const size_t length = strlen(name);
    return strncmp(argument, name, length) == 0 && !mu__in_name(argument[length]);
}

const char *mu__args_text(const void *args, const char *name, int position)
{
    const char *at = ((const mu_args_head *)args)->given;
    for (int i = 0; at != NULL && *at != '\0'; i++) {
        at = skip_space(at);
        if (names(at, name) || (i == position && *at != '.'))
            return *at == '.' ? skip_space(strpbrk(at, "=,") ? strpbrk(at, "=,") + 1 : at + strlen(at)) : at;
        at = skip_argument(at);
        at += *at == ',';
    }
    return NULL;
}

bool mu__args_given(const void *args, const char *name) { return mu__args_text(args, name, -1) != NULL; }

// The last argument without a name, and its number from 1; an empty text if there is none.
static int last_positional(const char *at, char *out, size_t bytes)
{
    int n = 0, number = 0;
    *out = '\0';
    while (at != NULL && *at != '\0') {
        at = skip_space(at);
        const char *end = skip_argument(at);
        n++;
        if (*at != '.' && end > at) {
            number = n;
            snprintf(out, bytes, "%.*s", (int)MU_MIN((size_t)(end - at), bytes), at);
        }
        at = end + (*end == ',');
    }
    return number;
}

// ---- Copying ------------------------------------------------------------------------------------

static mu_status refuse_positional(const char *given, const char *function)
{
    char text[64];
    const int number = last_positional(given, text, sizeof text);
    if (number == 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the member only_ of the argument struct is set; leave it NULL",
                         function);
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: argument %d, %s, has no name, and only the arguments before it can go without; write which "
                     "option it is, as in .OPTION = %s",
                     function, number, text, text);
}

mu_status mu__args_take(void *out, size_t size, size_t only, const void *args, const char *function)
{
    memset(out, 0, size);
    memcpy(out, &size, sizeof size);
    if (args == NULL)
        return MU_OK;
    size_t given;
    memcpy(&given, args, sizeof given);
    if (given < sizeof given || given > MAX_ARGS_BYTES)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the argument struct says that it has %zu bytes; set .size to its sizeof (%zu here), as "
                         "the macro of that name does",
                         function, given, size);
    for (size_t i = size; i < given; i++)
        if (((const unsigned char *)args)[i] != 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: the caller's argument struct has %zu bytes and sets one after the %zu that version "
                             "%s of the library knows; install the version that the caller was built for",
                             function, given, size, mu_version());
    const size_t known = MU_MIN(given, size);
    memcpy((char *)out + sizeof size, (const char *)args + sizeof size, known - sizeof size);
    const void *beyond;
    memcpy(&beyond, (const char *)out + only, sizeof beyond);
    return beyond == NULL ? MU_OK : refuse_positional(((const mu_args_head *)out)->given, function);
}

mu_status mu__args_positive(const void *args, const char *name, int64_t value, const char *function)
{
    if (value > 0 || (value == 0 && !mu__args_given(args, name)))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is %lld; it must be 1 or more, or left out for the default", function,
                     name, (long long)value);
}

mu_status mu__args_length(const char *function, const char *name, const void *array, int n, int wanted,
                          const char *item)
{
    if (array != NULL ? n == wanted : n == 0)
        return MU_OK;
    if (array == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s: .n_%s is %d and .%s is NULL; give both or neither", function, name,
                         n, name);
    return mu__error(MU_INVALID_ARGUMENT, "%s: .%s has %d elements by its length .n_%s%s; give %d, one for each %s",
                     function, name, n, name, n == 0 ? ", which is not given or 0" : "", wanted, item);
}

mu_status mu__axes_take(const void *args, int axis, int position, const int *axes, int n_axes, mu_axes *out,
                        const char *function)
{
    const bool several = axes != NULL || n_axes != 0 || mu__args_given(args, "axes");
    const bool single = axis != 0 || mu__args_text(args, "axis", position) != NULL;
    if (several && single)
        return mu__error(MU_INVALID_ARGUMENT, "%s: both .axis and .axes are given; give one of them", function);
    *out = (mu_axes){.named = several || single, .n = several ? n_axes : single, .one = axis};
    out->at = several ? axes : &out->one;
    return MU_OK;
}
