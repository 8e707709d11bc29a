// Checks XLA_FLAGS before a plugin reads it: XLA ends the process over an option that the plugin does not know, over a
// word that is no option, and over a file of options that cannot be read.
//
// The names that a plugin knows are in its library, each with a zero byte after it. The variable is read as XLA reads
// it: options between blanks, values may be quoted, and without "--" in front it is the name of a file with options.
#include "engine/pjrt/pjrt.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, LONGEST_NAME = 200 };

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

// ---- The options --------------------------------------------------------------------------------

static mu_status check_option(const library *l, const char *from, const char *option, size_t length)
{
    const size_t name = MU_MIN(strcspn(option, "="), length) - 2;
    if (name > 0 && name <= LONGEST_NAME && knows(l, option + 2, name))
        return MU_OK;
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

mu_status mu__pjrt_check_flags(const char *path)
{
    const char *text = mu__environment("XLA_FLAGS");
    library l = {.path = path};
    if (!text || !text[strspn(text, blanks)] || !map_library(&l))
        return MU_OK;
    const bool words = strncmp(text + strspn(text, blanks), "--", 2) == 0;
    const mu_status status = words ? check_words(&l, "XLA_FLAGS", text) : check_file(&l, text);
    munmap(l.bytes, l.n);
    return status;
}
