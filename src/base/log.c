// Writes messages by level to standard error, one line each.
//
// Works before mu_init and after mu_exit (then at the level warning). Messages may contain text from a hostile file,
// so control characters are replaced.
#include "base/private.h"

#include <errno.h>
#include <stdarg.h>

static const char *const prefixes[] = {"error: ", "warning: ", "", "debug: "};

void mu__printable(char *text, bool keep_newlines)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        if (*at == '\n' && keep_newlines)
            continue;
        if (*at < 0x20 || *at == 0x7F)
            *at = *at == '\n' || *at == '\t' ? ' ' : '?';
    }
}

const char *mu__printable_copy(const char *text, char copy[MU_PRINTABLE_BYTES])
{
    snprintf(copy, MU_PRINTABLE_BYTES, "%s", text);
    mu__printable(copy, false);
    return copy;
}

int mu__columns(const char *text)
{
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

bool mu__log_enabled(mu_log_level level)
{
    const mu_runtime *runtime = mu__runtime_present();
    return level <= (runtime != NULL ? runtime->log_level : MU_LOG_WARNING);
}

static void put_line(const char *prefix, const char *format, va_list values)
{
    const int kept = errno;
    char text[2000];
    vsnprintf(text, sizeof text, format, values);
    mu__printable(text, false);
    fprintf(stderr, "muster: %s%s\n", prefix, text);
    errno = kept;
}

void mu__log(mu_log_level level, const char *format, ...)
{
    if (!mu__log_enabled(level))
        return;
    va_list values;
    va_start(values, format);
    put_line(prefixes[level], format, values);
    va_end(values);
}

void mu__notice(const char *format, ...)
{
    if (!mu__log_enabled(MU_LOG_WARNING))
        return;
    va_list values;
    va_start(values, format);
    put_line("", format, values);
    va_end(values);
}
