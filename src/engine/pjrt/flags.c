// Checks XLA_FLAGS before a plugin reads it: XLA ends the process over an option that the plugin does not know or whose
// value it cannot read, over a word that is no option, and over a file of options that cannot be read.
//
// The names that a plugin knows are in its library, each with a zero byte after it. Most options are fields of XLA's
// message DebugOptions, whose description, with the types, protobuf keeps in the library too. The variable is read as
// XLA reads it: options between blanks, values may be quoted, and without "--" in front it is the name of a file with
// options. Of options for LLVM (xla_backend_extra_options) the names are checked; which values they take is not in the
// library, so the plugin is tried with them (trial.c).
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

// A field of DebugOptions, and the name of its enumeration if it has one.
typedef struct field {
    field_type type;
    bool repeated;
    const char *enumeration;
    size_t n;
} field;

// The field with an option's name: after the name come number, label, type and the name of the type, each with a tag.
static field field_of(const library *l, const char *name, size_t length)
{
    enum { NUMBER = 0x18, LABEL = 0x20, TYPE = 0x28, TYPE_NAME = 0x32, REPEATED = 3 };
    const unsigned char *end = (const unsigned char *)l->bytes + l->n, *at = described(l, name, length, NUMBER);
    field out = {.type = FIELD_UNKNOWN};
    while (at && at < end && (*at & 0x80))
        at++;
    if (!at || end - at < 7 || at[1] != LABEL || at[3] != TYPE)
        return out;
    out = (field){.type = (field_type)at[4], .repeated = at[2] == REPEATED};
    if (out.type != FIELD_ENUM || at[5] != TYPE_NAME || end - at < 7 + at[6])
        return out;
    const char *full = (const char *)at + 7, *dot = memrchr(full, '.', at[6]);
    out.enumeration = dot ? dot + 1 : full;
    out.n = (size_t)(full + at[6] - out.enumeration);
    return out;
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

// ---- Enumerations -------------------------------------------------------------------------------

// One name of an enumeration.
typedef struct enum_name {
    const char *text;
    size_t n;
} enum_name;

// Reads the name at `at`, and returns where the next one is; NULL: there is none.
static const unsigned char *next_name(const library *l, const unsigned char *at, enum_name *out)
{
    enum { VALUE = 0x12, NAME = 0x0a };
    const unsigned char *end = (const unsigned char *)l->bytes + l->n;
    if (!at || end - at < 4 || at[0] != VALUE || (at[1] & 0x80) || at[2] != NAME || at[3] + 2 > at[1] ||
        end - at < 2 + at[1])
        return NULL;
    *out = (enum_name){.text = (const char *)at + 4, .n = at[3]};
    return at + 2 + at[1];
}

// How long the beginning is that all names of an enumeration have, up to an underscore.
static size_t shared_length(const library *l, const unsigned char *first)
{
    enum_name one, other;
    const unsigned char *at = next_name(l, first, &one);
    size_t shared = at ? one.n : 0;
    while ((at = next_name(l, at, &other)) != NULL)
        for (size_t i = 0; i < shared; i++)
            if (i >= other.n || one.text[i] != other.text[i])
                shared = i;
    while (shared > 0 && one.text[shared - 1] != '_')
        shared--;
    return shared;
}

// How XLA wants the names of an enumeration to be written, which is nowhere in the library: in their own case, or in
// any, whole or without the beginning that they share. Tried out with xla-cpu-pjrt 0.0.1; of others it is not known.
typedef enum spelling { ANY, WHOLE, WHOLE_IN_ANY_CASE, SHORT_IN_SMALL } spelling;

static const struct {
    const char *enumeration;
    spelling spelling;
} spellings[] = {{"AutotuneCacheMode", WHOLE},
                 {"CommandBufferSchedulingMode", WHOLE},
                 {"PGLEStrictnessLevel", WHOLE},
                 {"PartitioningAlgorithm", WHOLE},
                 {"PipelineParallelismOptLevel", WHOLE},
                 {"ShapeChecks", WHOLE},
                 {"StepMarkerLocation", WHOLE},
                 {"WhileLoopUnrolling", WHOLE_IN_ANY_CASE},
                 {"XnnGraphFusionMode", WHOLE_IN_ANY_CASE},
                 {"DetectionMode", SHORT_IN_SMALL}};

static bool is_enumeration(const field *f, const char *name)
{
    return strlen(name) == f->n && memcmp(f->enumeration, name, f->n) == 0;
}

static spelling spelling_of(const field *f)
{
    for (size_t i = 0; i < MU_COUNT(spellings); i++)
        if (is_enumeration(f, spellings[i].enumeration))
            return spellings[i].spelling;
    return ANY;
}

static bool is_spelled(enum_name name, size_t shared, spelling how, const char *given, size_t n)
{
    const bool whole = n == name.n && strncasecmp(given, name.text, n) == 0;
    const bool is_short = n + shared == name.n && strncasecmp(given, name.text + shared, n) == 0;
    bool small = true;
    for (size_t i = 0; i < n; i++)
        small &= !isupper((unsigned char)given[i]);
    return how == WHOLE               ? whole && memcmp(given, name.text, n) == 0
           : how == WHOLE_IN_ANY_CASE ? whole
           : how == SHORT_IN_SMALL    ? is_short && small
                                      : whole || is_short;
}

static bool is_named(const library *l, const unsigned char *first, spelling how, const char *given, size_t n)
{
    const size_t shared = shared_length(l, first);
    enum_name name;
    bool named = false;
    for (const unsigned char *at = first; !named && (at = next_name(l, at, &name)) != NULL;)
        named = is_spelled(name, shared, how, given, n);
    return named;
}

// Lists have a sign in front of every name, which then changes the default, or of none. No option of a single value
// takes a list.
static bool are_named(const library *l, const field *f, const unsigned char *first, const char *value)
{
    const bool lists = f->repeated, changes = lists && !is_enumeration(f, "CollectiveOpType");
    const bool is_signed = *value == '+' || *value == '-';
    if (*value == '\0' || (is_signed && !changes))
        return changes;
    for (const char *at = value; *at; at += *at == ',') {
        if (is_signed != (*at == '+' || *at == '-'))
            return false;
        at += is_signed;
        const size_t n = strcspn(at, ",");
        if (!is_named(l, first, spelling_of(f), at, n) || (at[n] && (!lists || (!at[n + 1] && !changes))))
            return false;
        at += n;
    }
    return true;
}

// "IGNORE, RUNTIME, COMPILE_TIME", as XLA wants them to be written.
static void list_names(const library *l, const field *f, const unsigned char *first, char text[LONGEST_NAME])
{
    const spelling how = spelling_of(f);
    const size_t shared = how == SHORT_IN_SMALL ? shared_length(l, first) : 0;
    int used = snprintf(text, LONGEST_NAME, "one of ");
    enum_name name;
    for (const unsigned char *at = first; (at = next_name(l, at, &name)) != NULL && used < LONGEST_NAME;)
        used += snprintf(text + used, (size_t)(LONGEST_NAME - used), "%s%.*s", used > 7 ? ", " : "",
                         (int)(name.n - shared), name.text + shared);
    for (char *c = text; how == SHORT_IN_SMALL && *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

// What the value of an enumeration has to be; NULL: it is, or the library does not say.
static const char *wanted_name(const library *l, const field *f, const char *value, char text[LONGEST_NAME])
{
    enum { VALUE = 0x12 };
    const unsigned char *first = f->enumeration ? described(l, f->enumeration, f->n, VALUE) : NULL;
    if (!first)
        return value ? NULL : "a name";
    first--; // the tag
    if (value && are_named(l, f, first, value))
        return NULL;
    list_names(l, f, first, text);
    return text;
}

// ---- Other values -------------------------------------------------------------------------------

static bool is_bool(const char *value)
{
    static const char *const words[] = {"true", "false", "1", "0"};
    for (size_t i = 0; i < MU_COUNT(words); i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

// What the value of a field has to be, for messages; NULL: it is. `value`: NULL if there is none. XLA makes arrays of
// as many items as a count says.
static const char *wanted_value(const library *l, const field *f, bool count, const char *value,
                                char text[LONGEST_NAME])
{
    switch (f->type) {
    case FIELD_BOOL: return !value || is_bool(value) ? NULL : "true or false";
    case FIELD_INT32:
        if (count)
            return value && is_integer(value, 0, INT32_MAX) ? NULL : "a whole number of 32 bits, 0 or more";
        return value && is_integer(value, INT32_MIN, INT32_MAX) ? NULL : "a whole number of 32 bits";
    case FIELD_INT64: return value && is_integer(value, INT64_MIN, INT64_MAX) ? NULL : "a whole number";
    case FIELD_FLOAT:
    case FIELD_DOUBLE: return value && is_real(value) ? NULL : "a number";
    case FIELD_ENUM: return wanted_name(l, f, value, text);
    case FIELD_UNKNOWN: return NULL;
    default: return value ? NULL : "a text";
    }
}

// Options for LLVM, which ends the process when the first program is compiled: "-name=value,-name". What begins with
// "xla_" is XLA's own, and not checked there.
static mu_status check_llvm(const library *l, const char *from, const char *value)
{
    for (const char *at = value; *at; at += *at == ',') {
        const size_t length = strcspn(at, ","), dashes = MU_MIN(strspn(at, "-"), (size_t)2);
        const size_t name = MU_MIN(strcspn(at + dashes, "=,"), length - dashes);
        const bool own = strncmp(at, "xla_", 4) == 0;
        if (!own && (dashes == 0 || name == 0 || name > LONGEST_NAME || !knows(l, at + dashes, name)))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s has '%.*s' in --xla_backend_extra_options, which LLVM in plugin %s does not know; it "
                             "would end the process. Options for LLVM begin with \"-\" and have commas between them",
                             from, (int)MU_MIN(length, (size_t)LONGEST_NAME), at, l->path);
        at += length;
    }
    return MU_OK;
}

static mu_status check_value(const library *l, const char *from, const char *option, size_t length, size_t name)
{
    char value[LONGEST_VALUE + 1];
    const char *at = option + name + 2, *end = option + length;
    const bool quoted = end - at > 2 && (at[1] == '\'' || at[1] == '"') && end[-1] == at[1];
    const bool given = at < end;
    const size_t n = given ? (size_t)(end - at) - 1 - 2 * (size_t)quoted : 0;
    if (n > LONGEST_VALUE) // a text
        return MU_OK;
    memcpy(value, at + given + quoted, n);
    value[n] = '\0';
    static const char count[] = "_count";
    const bool counts = name >= sizeof count && memcmp(at - sizeof count + 1, count, sizeof count - 1) == 0;
    static const char extra[] = "xla_backend_extra_options";
    if (given && name == sizeof extra - 1 && memcmp(option + 2, extra, name) == 0)
        return check_llvm(l, from, value);
    char names[LONGEST_NAME];
    const field f = field_of(l, option + 2, name);
    const char *wanted = wanted_value(l, &f, counts, given ? value : NULL, names);
    if (!wanted)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s has the option '%.*s', whose value must be %s; XLA would end the process. Correct it "
                     "(--name=value), or remove the option",
                     from, (int)MU_MIN(length, (size_t)LONGEST_NAME), option, wanted);
}

// ---- The options --------------------------------------------------------------------------------

static mu_status check_option(const library *l, const char *from, const char *option, size_t length)
{
    const size_t name = MU_MIN(strcspn(option, "="), length) - 2;
    if (name > 0 && name <= LONGEST_NAME && knows(l, option + 2, name))
        return check_value(l, from, option, length, name);
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s has the option '%.*s', which plugin %s does not know; XLA would end the process. Correct its "
                     "name, or remove it",
                     from, (int)MU_MIN(length, (size_t)LONGEST_NAME), option, l->path);
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
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s has '%.*s', which is not an option; XLA would end the process. Options begin with "
                             "\"--\" and have blanks between them",
                             from, (int)MU_MIN(end - at, LONGEST_NAME), at);
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
        mu_error_take(); // mu__pjrt_check_flags has told the reason
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
