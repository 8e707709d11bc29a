// Status codes and the error record of each thread.
//
// The record is sticky: the first error of a chain stays until it is taken, because later errors are only its
// consequences. Recording never allocates, so that it works when memory is exhausted.
#include "base/private.h"

#include <errno.h>
#include <stdarg.h>

enum { MAX_CONTEXT_LINES = 4 };

const char mu_list_end = 0;

const char *mu_status_name(mu_status status)
{
    switch (status) {
#define STATUS_NAME(name, number) \
    case MU_##name: return number == MU_UNKNOWN_ERROR ? "UNKNOWN" : #name;
        MU_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

mu_status mu__need(const void *argument, const char *what)
{
    return argument != NULL ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "%s is NULL", what);
}

// Marks a text that vsnprintf had to cut, without leaving half of a UTF-8 character.
static void mark_cut(char *text, size_t capacity)
{
    size_t end = capacity - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

static void append(char *text, size_t capacity, const char *format, va_list values)
{
    const size_t used = strlen(text);
    const int wanted = vsnprintf(text + used, capacity - used, format != NULL ? format : "", values);
    if (wanted < 0)
        text[used] = '\0';
    else if ((size_t)wanted >= capacity - used)
        mark_cut(text, capacity);
    mu__printable(text + used, true); // names in it may come from files, and programs print it
}

mu_status mu_fail_at(mu_status code, const char *file, int line, const char *format, ...)
{
    if (code == MU_OK)
        return MU_OK;
    mu_context *context = mu__context();
    mu_error_value *error = &context->error;
    if (error->code != MU_OK)
        return code;
    const int number = (int)code;
    error->code = number > 0 && number <= MU_UNAUTHENTICATED ? code : MU_UNKNOWN_ERROR;
    error->file = file != NULL ? file : "";
    error->line = line;
    error->skipped = false;
    error->of_caller = false;
    error->message[0] = '\0';
    context->n_error_context = 0;
    va_list values;
    va_start(values, format);
    append(error->message, sizeof error->message, format, values);
    va_end(values);
    return error->code;
}

void mu__error_of_caller(void) { mu__context()->error.of_caller = true; }

bool mu__pending(void) { return mu__context()->error.code != MU_OK; }

void mu__error_context(const char *format, ...)
{
    mu_context *context = mu__context();
    mu_error_value *error = &context->error;
    if (error->code == MU_OK || context->n_error_context >= MAX_CONTEXT_LINES)
        return;
    const size_t used = strlen(error->message);
    if (used + 2 >= sizeof error->message)
        return;
    context->n_error_context++;
    memcpy(error->message + used, "\n", 2);
    va_list values;
    va_start(values, format);
    append(error->message, sizeof error->message, format, values);
    va_end(values);
}

void mu__error_append(const char *format, ...)
{
    mu_error_value *error = &mu__context()->error;
    if (error->code == MU_OK || strlen(error->message) + 4 >= sizeof error->message)
        return;
    va_list values;
    va_start(values, format);
    append(error->message, sizeof error->message, format, values);
    va_end(values);
}

void mu__error_begin(size_t bytes, const char *text)
{
    mu_error_value *error = &mu__context()->error;
    mu_error_value old = *error;
    if (error->code == MU_OK || bytes > strlen(old.message))
        return;
    error->message[0] = '\0';
    mu__error_append("%s%s", text, old.message + bytes);
}

mu_status mu_error_code(void) { return mu__context()->error.code; }

const char *mu_error_message(void)
{
    const mu_error_value *error = &mu__context()->error;
    return error->code != MU_OK ? error->message : "";
}

mu_error mu_error_take(void)
{
    mu_error_value *taken = mu__context_taken();
    mu__error_move(taken);
    return (mu_error){.code = taken->code, .message = taken->message, .file = taken->file, .line = taken->line};
}

void mu__error_move(mu_error_value *out)
{
    mu_context *context = mu__context();
    if (context->error.code == MU_OK) {
        *out = (mu_error_value){.code = MU_OK, .file = ""};
        return;
    }
    *out = context->error;
    context->error.code = MU_OK;
    context->error.message[0] = '\0';
    context->n_error_context = 0;
}

mu_status mu__error_raise(const mu_error_value *value)
{
    if (value->code == MU_OK)
        return MU_OK;
    mu_context *context = mu__context();
    if (context->error.code == MU_OK) {
        context->error = *value;
        context->error.message[sizeof value->message - 1] = '\0';
        context->n_error_context = 0;
    }
    return value->code;
}

mu_status mu__errno_code(int error_number)
{
    switch (error_number) {
    case 0: return MU_OK;
    case ENOENT:
    case ENOTDIR:
    case ENODEV:
    case ENXIO: return MU_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return MU_PERMISSION_DENIED;
    case EEXIST: return MU_ALREADY_EXISTS;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP: return MU_INVALID_ARGUMENT;
    case EISDIR: return MU_FAILED_PRECONDITION;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case EAGAIN: return MU_RESOURCE_EXHAUSTED;
    case ETIMEDOUT: return MU_DEADLINE_EXCEEDED;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENETUNREACH:
    case EHOSTUNREACH: return MU_UNAVAILABLE;
    case EIO: return MU_DATA_LOSS;
    default: return MU_UNKNOWN_ERROR;
    }
}
