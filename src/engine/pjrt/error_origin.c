// Says which of the user's operations an error of XLA's compiler is about.
//
// XLA names a line and a column of the program's text ("…:12:5: error: …") where it reads it, and later the line alone,
// with the operation that came of it ("source_line=12"). The text has a comment above the operations of each node with
// its op, its layer, the line of the user's program that made it, and its variables.
#include "engine/pjrt/pjrt_plan.h"

#include <ctype.h>
#include <stdlib.h>

// The number of the first line that the message names as ":LINE:COLUMN", else as "source_line=LINE"; 0: none.
static long named_line(const char *message)
{
    for (const char *at = strchr(message, ':'); at; at = strchr(at + 1, ':')) {
        char *end = NULL;
        if (!isdigit((unsigned char)at[1]))
            continue;
        const long line = strtol(at + 1, &end, 10);
        if (line > 0 && *end == ':' && isdigit((unsigned char)end[1]))
            return line;
    }
    static const char key[] = "source_line=";
    const char *at = strstr(message, key);
    return at ? strtol(at + sizeof key - 1, NULL, 10) : 0;
}

// The last comment on or before a line of the text; NULL: none.
static const char *comment_above(const char *text, long line)
{
    const char *found = NULL;
    for (long n = 1; text && n <= line; n++) {
        const char *at = text + strspn(text, " ");
        if (strncmp(at, "// ", 3) == 0)
            found = at + 3;
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return found;
}

void mu__pjrt_add_error_origin(const mu_pjrt_text *text)
{
    mu_error_value error;
    mu__error_move(&error);
    const char *comment = comment_above(text->items, named_line(error.message));
    if (comment) {
        mu_error_value named = error;
        snprintf(named.message, sizeof named.message, "op %.*s: %.*s", (int)MU_MIN(strcspn(comment, "\n"), (size_t)200),
                 comment, (int)sizeof named.message - 220, error.message);
        error = named;
    }
    mu__error_raise(&error);
}
