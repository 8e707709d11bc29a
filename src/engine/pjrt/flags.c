// Checks XLA_FLAGS before a plugin reads it: XLA ends the process over an option that the plugin does not know or whose
// value it cannot read, over a word that is no option, and over a file of options that cannot be read.
//
// The names that a plugin knows are in its library, each with a zero byte after it. Most options are fields of XLA's
// message DebugOptions, whose description, with the types, protobuf keeps in the library too. The variable is read as
// XLA reads it: options between blanks, values may be quoted, and without "--" in front it is the name of a file with
// options. Not checked are options that are for LLVM (xla_backend_extra_options).
#include "engine/pjrt/pjrt.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, LONGEST_NAME = 200, LONGEST_VALUE = 1000 };

static const char blanks[] = " \t\r\n";

// ---- The library --------------------------------------------------------------------------------

typedef struct library {
    const char *path;
    void *bytes;
    size_t n;
} library;

// What cannot be mapped cannot be opened either, and the loader says why.
static bool map_library(library *l)
{
    struct stat about;
    const int file = open(l->path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        l->bytes = bytes == MAP_FAILED ? NULL : bytes;
        l->n = (size_t)about.st_size;
    }
    if (file >= 0)
        close(file);
    return l->bytes != NULL;
}

static bool knows(const library *l, const char *name, size_t length)
{
    char word[LONGEST_NAME + 1] = "";
    memcpy(word, name, length);
    return memmem(l->bytes, l->n, word, length + 1) != NULL;
}

// The numbers that protobuf's descriptor.proto gives to types.
typedef enum field_type {
    FIELD_UNKNOWN = 0,
    FIELD_DOUBLE = 1,
    FIELD_FLOAT = 2,
    FIELD_INT64 = 3,
    FIELD_INT32 = 5,
    FIELD_BOOL = 8,
    FIELD_ENUM = 14
} field_type;

// A name in a description, with its length (one byte) in front, and with the tag of the number that follows it.
static const unsigned char *described(const library *l, const char *name, size_t length, char tag)
{
    char key[LONGEST_NAME + 4] = {'\n', (char)length};
    if (length > INT8_MAX)
        return NULL;
    memcpy(key + 2, name, length);
    key[length + 2] = tag;
    const unsigned char *at = memmem(l->bytes, l->n, key, length + 3);
    return at ? at + length + 3 : NULL;
}

// The type of the field with an option's name: after the name come number, label and type, each with a tag.
static field_type type_of(const library *l, const char *name, size_t length)
{
    enum { NUMBER = 0x18, LABEL = 0x20, TYPE = 0x28 };
    const unsigned char *end = (const unsigned char *)l->bytes + l->n, *at = described(l, name, length, NUMBER);
    if (!at)
        return FIELD_UNKNOWN;
    while (at < end && (*at & 0x80))
        at++;
    return end - at > 4 && at[1] == LABEL && at[3] == TYPE ? (field_type)at[4] : FIELD_UNKNOWN;
}

// ---- Values -------------------------------------------------------------------------------------

static bool is_integer(const char *value, int64_t least, int64_t most)
{
    char *end;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    return end > value && !*end && errno == 0 && number >= least && number <= most;
}

static bool is_real(const char *value)
{
    char *end;
    strtod(value, &end);
    return end > value && !*end;
}

// Whether a value's word is that of an enum: all of its name, or what follows the enum's own name in it.
static bool is_named(const library *l, const char *word, size_t n)
{
    enum { NUMBER = 0x10 };
    char tail[LONGEST_NAME + 2];
    if (n == 0 || n > LONGEST_NAME)
        return n == 0;
    for (size_t i = 0; i < n; i++)
        tail[i] = (char)toupper((unsigned char)word[i]);
    tail[n] = NUMBER;
    const char *at = l->bytes, *end = at + l->n;
    while ((at = memmem(at, (size_t)(end - at), tail, n + 1)) != NULL) {
        if (at > (const char *)l->bytes && (at[-1] == '_' || at[-1] == (char)n))
            return true;
        at++;
    }
    return false;
}

// A list of names, each with a sign in front or not. Which case the option wants cannot be told.
static bool are_named(const library *l, const char *value)
{
    while (*value) {
        value += *value == '+' || *value == '-';
        const size_t n = strcspn(value, ",");
        if (!is_named(l, value, n))
            return false;
        value += n + (value[n] == ',');
    }
    return true;
}

static bool is_bool(const char *value)
{
    static const char *const words[] = {"true", "false", "1", "0"};
    for (size_t i = 0; i < MU_COUNT(words); i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

// What a value of this type has to be, for messages; NULL: it is. `value`: NULL if there is none. XLA makes arrays of
// as many items as a count says.
static const char *wanted_value(const library *l, field_type type, bool count, const char *value)
{
    switch (type) {
    case FIELD_BOOL: return !value || is_bool(value) ? NULL : "true or false";
    case FIELD_INT32:
        if (count)
            return value && is_integer(value, 0, INT32_MAX) ? NULL : "a whole number of 32 bits, 0 or more";
        return value && is_integer(value, INT32_MIN, INT32_MAX) ? NULL : "a whole number of 32 bits";
    case FIELD_INT64: return value && is_integer(value, INT64_MIN, INT64_MAX) ? NULL : "a whole number";
    case FIELD_FLOAT:
    case FIELD_DOUBLE: return value && is_real(value) ? NULL : "a number";
    case FIELD_ENUM: return value && are_named(l, value) ? NULL : "one of the names that XLA has for it";
    case FIELD_UNKNOWN: return NULL;
    default: return value ? NULL : "a text";
    }
}

static mu_status check_value(const library *l, const char *from, const char *option, size_t length, size_t name)
{
    char value[LONGEST_VALUE + 1];
    const char *at = option + name + 2, *end = option + length;
    const bool quoted = end - at > 2 && (at[1] == '\'' || at[1] == '"') && end[-1] == at[1];
    const bool given = at < end;
    const size_t n = given ? (size_t)(end - at) - 1 - 2 * (size_t)quoted : 0;
    if (n > LONGEST_VALUE)  // a text
        return MU_OK;
    memcpy(value, at + given + quoted, n);
    value[n] = '\0';
    static const char count[] = "_count";
    const bool counts = name >= sizeof count && memcmp(at - sizeof count + 1, count, sizeof count - 1) == 0;
    const char *wanted = wanted_value(l, type_of(l, option + 2, name), counts, given ? value : NULL);
    if (!wanted)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s has the option '%.*s', whose value must be %s; XLA would end the process. Correct it "
                     "(--name=value), or remove the option", from, (int)MU_MIN(length, (size_t)LONGEST_NAME), option,
                     wanted);
}

// ---- The options --------------------------------------------------------------------------------

static mu_status check_option(const library *l, const char *from, const char *option, size_t length)
{
    const size_t name = MU_MIN(strcspn(option, "="), length) - 2;
    if (name > 0 && name <= LONGEST_NAME && knows(l, option + 2, name))
        return check_value(l, from, option, length, name);
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s has the option '%.*s', which plugin %s does not know; XLA would end the process. Correct its "
                     "name, or remove it", from, (int)MU_MIN(length, (size_t)LONGEST_NAME), option, l->path);
}

// The end of a word, whose value may be in quotes.
static const char *end_of(const char *word)
{
    const char *value = word + strcspn(word, "= \t\r\n");
    if (value[0] == '=' && (value[1] == '\'' || value[1] == '"')) {
        const char *close = strchr(value + 2, value[1]);
        value = close ? close : value;
    }
    return value + strcspn(value, blanks);
}

static mu_status check_words(const library *l, const char *from, const char *text)
{
    for (const char *at = text + strspn(text, blanks); *at; at += strspn(at, blanks)) {
        const char *end = end_of(at);
        if (strncmp(at, "--", 2) != 0)
            return mu__error(MU_INVALID_ARGUMENT, "%s has '%.*s', which is no option; XLA would end the process. "
                             "Options begin with \"--\" and have blanks between them", from,
                             (int)MU_MIN(end - at, LONGEST_NAME), at);
        MU_TRY(check_option(l, from, at, (size_t)(end - at)));
        at = end;
    }
    return MU_OK;
}

static mu_status check_file(const library *l, const char *path)
{
    void *text = NULL;
    size_t bytes = 0;
    mu_status status = mu__file_read(path, MOST_BYTES, &text, &bytes);
    if (status != MU_OK) {
        mu__error_append("; XLA_FLAGS='%s' has no \"--\" in front, so XLA reads options from a file of this name",
                         path);
        return status;
    }
    status = check_words(l, path, text);
    mu__free(text);
    return status;
}

// Whether the variable has options itself, and does not name a file of options.
static bool has_options(const char *flags) { return strncmp(flags + strspn(flags, blanks), "--", 2) == 0; }

bool mu__pjrt_flags_have(const char *name)
{
    const char *flags = mu__environment("XLA_FLAGS");
    void *text = NULL;
    size_t bytes = 0;
    if (!flags || has_options(flags))
        return flags && strstr(flags, name);
    if (mu__file_read(flags, MOST_BYTES, &text, &bytes) != MU_OK) {
        mu_error_take();  // mu__pjrt_check_flags has told the reason
        return false;
    }
    const bool has = strstr(text, name) != NULL;
    mu__free(text);
    return has;
}

bool mu__pjrt_has_flag(const char *path, const char *name)
{
    library l = {.path = path};
    const bool mapped = map_library(&l), has = mapped && knows(&l, name, strlen(name));
    if (mapped)
        munmap(l.bytes, l.n);
    return has;
}

mu_status mu__pjrt_check_flags(const char *path)
{
    const char *text = mu__environment("XLA_FLAGS");
    library l = {.path = path};
    if (!text || !text[strspn(text, blanks)] || !map_library(&l))
        return MU_OK;
    const mu_status status = has_options(text) ? check_words(&l, "XLA_FLAGS", text) : check_file(&l, text);
    munmap(l.bytes, l.n);
    return status;
}
