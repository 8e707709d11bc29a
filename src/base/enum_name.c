// Names of the values of an enum, and back.
#include "base/base.h"

#include <strings.h>

const char *mu__enum_name(const mu_enum_name *names, int number, const char *unknown)
{
    for (; names->name != NULL; names++)
        if (names->number == number)
            return names->name;
    return unknown;
}

int mu__enum_number(const mu_enum_name *names, const char *name, int failed, const char *function)
{
    char expected[MU_PRINTABLE_BYTES] = "";
    for (const mu_enum_name *at = names; at->name != NULL; at++) {
        if (name != NULL && strcasecmp(at->name, name) == 0)
            return at->number;
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", used > 0 ? ", " : "", at->name);
    }
    mu__error(MU_INVALID_ARGUMENT, "%s: '%s' is not a name; expected one of %s, in any case", function,
              name != NULL ? name : "NULL", expected);
    return failed;
}
