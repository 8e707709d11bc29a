// The cluster's key as the user sets it: read from a variable or a file, and refused if it is easy to guess.
//
// secure.c derives the other keys from it.
#include "comm/mesh.h"
#include "comm/net.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <sys/stat.h>

enum { LEAST_KEY = 16, LEAST_DIFFERENT = 8, MOST_KEY = 4096, RANDOM_DIGITS = 32 };

static int count_different(const char *key)
{
    bool seen[256] = {false};
    int n = 0;
    for (const unsigned char *at = (const unsigned char *)key; *at != '\0'; at++) {
        n += !seen[*at];
        seen[*at] = true;
    }
    return n;
}

mu_status mu__key_check(const char *key)
{
    if (strlen(key) < LEAST_KEY)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the cluster's key has %zu characters; it needs %d or more, so that it cannot be guessed: "
                         "`openssl rand -hex 32` makes one",
                         strlen(key), LEAST_KEY);
    if (count_different(key) < LEAST_DIFFERENT)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the cluster's key repeats %d different characters; it needs %d or more, so that it cannot be "
                         "guessed: `openssl rand -hex 32` makes one",
                         count_different(key), LEAST_DIFFERENT);
    return MU_OK;
}

bool mu__key_is_random(const char *key)
{
    size_t n = 0;
    while (isxdigit((unsigned char)key[n]))
        n++;
    return key[n] == '\0' && n >= RANDOM_DIGITS;
}

// Random bytes would be cut at the first zero or line end, and the rest could be weak.
static mu_status check_text(const char *path, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (iscntrl((unsigned char)text[i]) && strchr("\t\r\n", text[i] != '\0' ? text[i] : 'x') == NULL)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s is not a text: byte %zu is %#x; the cluster's key is its first line. Make the file "
                             "with "
                             "`openssl rand -hex 32 > %s`",
                             path, i, (unsigned)(unsigned char)text[i], path);
    return MU_OK;
}

static mu_status key_file(const char *path, char **out)
{
    void *data;
    size_t bytes;
    struct stat seen;
    MU_TRY(mu__file_read(path, MOST_KEY, &data, &bytes));
    if (stat(path, &seen) == 0 && (seen.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        mu__log(MU_LOG_WARNING, "%s holds the cluster's key and others may open it; `chmod 600` closes it", path);
    char *text = data;
    mu_status status = check_text(path, text, bytes);
    text[strcspn(text, "\r\n")] = '\0';
    *out = status == MU_OK ? mu__strdup(text) : NULL;
    if (status == MU_OK && *out == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    OPENSSL_cleanse(data, bytes);
    mu__free(data);
    return status;
}

mu_status mu__mesh_key(char **out)
{
    const char *key = mu__setting_text(MU_SETTING_CLUSTER_KEY), *path = mu__setting_text(MU_SETTING_CLUSTER_KEY_FILE);
    *out = NULL;
    if (key != NULL && path != NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "MUSTER_CLUSTER_KEY and MUSTER_CLUSTER_KEY_FILE are both set; set one of them");
    if (path != NULL)
        return key_file(path, out);
    *out = key != NULL ? mu__strdup(key) : NULL;
    return key == NULL || *out != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}
