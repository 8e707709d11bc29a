// Keys as the user sets them: the cluster's, or one that belongs to a single worker. They are read from a variable or a
// file, and refused if they are easy to guess.
//
// secure.c derives the keys of workers, and those of links.
#include "comm/mesh/mesh.h"
#include "comm/sessions/net.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <stdlib.h>
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

// ---- The key of a worker ------------------------------------------------------------------------

static const char of_worker[] = "worker:";

static int digit_of(char c) { return c <= '9' ? c - '0' : tolower((unsigned char)c) - 'a' + 10; }

static bool read_secret(const char *text, uint8_t secret[MU_KEY_BYTES])
{
    if (strspn(text, "0123456789abcdefABCDEF") != 2 * MU_KEY_BYTES || text[2 * MU_KEY_BYTES] != '\0')
        return false;
    for (int i = 0; i < MU_KEY_BYTES; i++)
        secret[i] = (uint8_t)(digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1]));
    return true;
}

mu_status mu__key_read(const char *key, int *bearer, uint8_t secret[MU_KEY_BYTES])
{
    const char *index = key + sizeof of_worker - 1;
    char *end = NULL;
    *bearer = MU_BEARER_ALL;
    if (strncmp(key, of_worker, sizeof of_worker - 1) != 0)
        return MU_OK;
    const long worker = isdigit((unsigned char)*index) ? strtol(index, &end, 10) : -1;
    if (worker < 0 || worker >= MU_MOST_BEARER || end - index > 5 || *end != ':' || !read_secret(end + 1, secret))
        return mu__error(MU_INVALID_ARGUMENT,
                         "a key that begins with \"worker:\" is that of one worker, and this one is incomplete: it "
                         "needs the worker's index, from 0 to %d, another colon and %d hexadecimal digits; `muster key "
                         "--for worker:N` makes it of the cluster's key",
                         MU_MOST_BEARER - 1, 2 * MU_KEY_BYTES);
    if (count_different(end + 1) < LEAST_DIFFERENT)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the key of worker %ld repeats %d different digits; `muster key --for worker:%ld` makes one "
                         "that cannot be guessed",
                         worker, count_different(end + 1), worker);
    *bearer = (int)worker + 1;
    return MU_OK;
}

// ---- Where the user keeps it --------------------------------------------------------------------

// Random bytes would be cut at the first zero or line end, and the rest could be weak.
static mu_status check_text(const char *path, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (iscntrl((unsigned char)text[i]) && strchr("\t\r\n", text[i] != '\0' ? text[i] : 'x') == NULL)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s is not a text: byte %zu is %#x; the cluster's key is its first line. Make the file "
                             "with `openssl rand -hex 32 > %s`",
                             path, i, (unsigned)(unsigned char)text[i], path);
    if (bytes == 0 || strchr("\r\n", text[0]) != NULL)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s has no key: %s; the cluster's key is the first line. Make the file with `openssl rand -hex 32 > %s`",
            path, bytes == 0 ? "the file is empty" : "its first line is empty", path);
    return MU_OK;
}

static mu_status key_file(const char *path, char **out, bool warns)
{
    void *data;
    size_t bytes;
    struct stat seen;
    MU_TRY(mu__file_read(path, MOST_KEY, &data, &bytes));
    if (warns && stat(path, &seen) == 0 && (seen.st_mode & (S_IRWXG | S_IRWXO)) != 0)
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

static mu_status own_key(char **out, bool warns)
{
    const char *key = mu__setting_text(MU_SETTING_CLUSTER_KEY), *path = mu__setting_text(MU_SETTING_CLUSTER_KEY_FILE);
    *out = NULL;
    if (key != NULL && path != NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "MUSTER_CLUSTER_KEY and MUSTER_CLUSTER_KEY_FILE are both set; set one of them");
    if (path != NULL)
        return key_file(path, out, warns);
    *out = key != NULL ? mu__strdup(key) : NULL;
    return key == NULL || *out != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

mu_status mu__mesh_key(char **out) { return own_key(out, true); }

// ---- Whose key this process has -----------------------------------------------------------------

// `who` is what this process is, `wants` whose key it should have.
static mu_status not_its_own(int bearer, const char *who, const char *wants)
{
    return mu__error(MU_PERMISSION_DENIED,
                     "the key of this process (MUSTER_CLUSTER_KEY or the file of MUSTER_CLUSTER_KEY_FILE) is that of "
                     "worker %d, and this process is %s; give it %s",
                     bearer - 1, who, wants);
}

mu_status mu__key_suits_role(int bearer, const char *who)
{
    return bearer == MU_BEARER_ALL ? MU_OK : not_its_own(bearer, who, "the cluster's key");
}

// The call that reads the key to use it also warns about a key file that other users may open.
mu_status mu__key_suits_task(const char *job, int index)
{
    char *key = NULL, who[80], wants[120] = "the cluster's key";
    uint8_t secret[MU_KEY_BYTES];
    int bearer = MU_BEARER_ALL;
    MU_TRY(own_key(&key, false));
    const mu_status status = key != NULL ? mu__key_read(key, &bearer, secret) : MU_OK;
    mu__key_forget(key);
    OPENSSL_cleanse(secret, sizeof secret);
    MU_TRY(status);
    const bool worker = strcmp(job, "worker") == 0;
    if (bearer == MU_BEARER_ALL || (worker && index == bearer - 1))
        return MU_OK;
    snprintf(who, sizeof who, "%.60s %d", job, index);
    if (worker)
        snprintf(wants, sizeof wants, "its own, which `muster key --for worker:%d` makes of the cluster's key", index);
    return not_its_own(bearer, who, wants);
}

// ---- The key of a cluster -----------------------------------------------------------------------

mu_status mu__key_check(const char *key)
{
    uint8_t secret[MU_KEY_BYTES];
    int bearer;
    const mu_status status = mu__key_read(key, &bearer, secret);
    OPENSSL_cleanse(secret, sizeof secret);
    if (status != MU_OK || bearer != MU_BEARER_ALL)
        return status;
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

mu_status mu__key_random(char out[MU_RANDOM_KEY])
{
    uint8_t bytes[MU_KEY_BYTES];
    MU_TRY(mu__random(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return MU_OK;
}

void mu__key_forget(char *key)
{
    if (key != NULL)
        OPENSSL_cleanse(key, strlen(key));
    mu__free(key);
}
