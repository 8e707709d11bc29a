// One HTTPS request through libcurl. The library is opened only when a resolver needs it, because it loads about twenty
// others.
#include "cluster/cluster.h"

#include <curl/curl.h>
#include <dlfcn.h>

// The functions of libcurl in use, looked up by name.
typedef struct curl_functions {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
} curl_functions;

typedef struct body {
    char *items;
    size_t n, capacity;
    bool too_long;
} body;

// POSIX allows the conversion from object to function pointer; ISO C does not.
static bool look_up(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

// TensorFlow exports the names of a libcurl of its own, which the system's must not call. Sanitizers refuse the flag.
#ifndef __has_feature
#define __has_feature(feature) 0 // gcc has macros instead
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
enum { OWN_NAMES_FIRST = 0 };
#else
enum { OWN_NAMES_FIRST = RTLD_DEEPBIND };
#endif

static mu_status open_curl(curl_functions *curl)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | OWN_NAMES_FIRST);
    if (library == NULL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "a web request needs libcurl.so.4, which cannot be opened (%s); install it (Debian: libcurl4)",
                         dlerror());
    const bool whole = look_up(library, "curl_easy_init", &curl->easy_init) &&
                       look_up(library, "curl_easy_setopt", &curl->easy_setopt) &&
                       look_up(library, "curl_easy_perform", &curl->easy_perform) &&
                       look_up(library, "curl_easy_getinfo", &curl->easy_getinfo) &&
                       look_up(library, "curl_easy_cleanup", &curl->easy_cleanup) &&
                       look_up(library, "curl_easy_strerror", &curl->easy_strerror) &&
                       look_up(library, "curl_slist_append", &curl->slist_append) &&
                       look_up(library, "curl_slist_free_all", &curl->slist_free_all);
    dlclose(library);
    return whole ? MU_OK
                 : mu__error(MU_FAILED_PRECONDITION, "libcurl.so.4 lacks functions of its interface; reinstall it");
}

// libcurl delivers the response in chunks; returning less than was delivered ends the transfer.
static size_t take(char *data, size_t size, size_t count, void *arg)
{
    body *b = arg;
    const size_t bytes = size * count;
    if (b->n + bytes > MU_MAX_CLUSTER_TEXT) {
        b->too_long = true;
        return 0;
    }
    if (mu__grow((void **)&b->items, &b->capacity, b->n + bytes + 1, 1) != MU_OK)
        return 0;
    memcpy(b->items + b->n, data, bytes);
    b->n += bytes;
    return bytes;
}

static mu_status complain(const mu_https_request *request, CURLcode code, const char *why, const body *b)
{
    if (mu__pending())
        return mu_error_code();
    if (b->too_long)
        return mu__error(MU_RESOURCE_EXHAUSTED, "the response of %s has more than %d bytes", request->url,
                         MU_MAX_CLUSTER_TEXT);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return mu__error(MU_DEADLINE_EXCEEDED, "%s did not answer within %g s", request->url, request->seconds);
    return mu__error(MU_UNAVAILABLE, "%s cannot be asked: %s", request->url, why);
}

static mu_status code_of(long answer)
{
    switch (answer) {
    case 200: return MU_OK;
    case 401: return MU_UNAUTHENTICATED;
    case 403: return MU_PERMISSION_DENIED;
    case 404: return MU_NOT_FOUND;
    case 429: return MU_UNAVAILABLE;
    default: return answer >= 500 ? MU_UNAVAILABLE : MU_FAILED_PRECONDITION;
    }
}

static mu_status check_answer(const mu_https_request *request, long answer, const body *b)
{
    const mu_status status = code_of(answer);
    return status == MU_OK ? MU_OK
                           : mu__error(status, "%s answered %ld: %.*s", request->url, answer, (int)MU_MIN(b->n, 200),
                                       b->n > 0 ? b->items : "");
}

static mu_status perform(const curl_functions *curl, CURL *handle, const mu_https_request *request, body *b)
{
    char why[CURL_ERROR_SIZE] = "";
    curl->easy_setopt(handle, CURLOPT_URL, request->url);
    curl->easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)(request->seconds * 1e3));
    curl->easy_setopt(handle, CURLOPT_ERRORBUFFER, why);
    curl->easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
    curl->easy_setopt(handle, CURLOPT_WRITEDATA, b);
    if (request->post != NULL)
        curl->easy_setopt(handle, CURLOPT_POSTFIELDS, request->post);
    if (request->ca_file != NULL)
        curl->easy_setopt(handle, CURLOPT_CAINFO, request->ca_file);
    const CURLcode code = curl->easy_perform(handle);
    long answer = 0;
    if (code != CURLE_OK)
        return complain(request, code, why[0] != '\0' ? why : curl->easy_strerror(code), b);
    curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer);
    return check_answer(request, answer, b);
}

// The request's header lines; NULL if there are none, or without memory.
static struct curl_slist *headers_of(const curl_functions *curl, const mu_https_request *request)
{
    const char *const lines[] = {request->header, request->post != NULL ? "Content-Type: application/json" : NULL};
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < MU_COUNT(lines); i++) {
        struct curl_slist *longer = lines[i] != NULL ? curl->slist_append(list, lines[i]) : list;
        if (lines[i] != NULL && longer == NULL) {
            curl->slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

char *mu__https_request(const mu_https_request *request)
{
    curl_functions curl = {0};
    body b = {0};
    if (open_curl(&curl) != MU_OK || mu__grow((void **)&b.items, &b.capacity, 1, 1) != MU_OK)
        return NULL;
    CURL *handle = curl.easy_init();
    struct curl_slist *headers = headers_of(&curl, request);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (handle == NULL || (headers == NULL && (request->header != NULL || request->post != NULL)))
        mu__error(status, "no memory to ask %s", request->url);
    else if (curl.easy_setopt(handle, CURLOPT_HTTPHEADER, headers) == CURLE_OK)
        status = perform(&curl, handle, request, &b);
    if (handle != NULL)
        curl.easy_cleanup(handle);
    curl.slist_free_all(headers);
    if (status != MU_OK) {
        mu__free(b.items);
        return NULL;
    }
    b.items[b.n] = '\0';
    return b.items;
}

char *mu__metadata_get(const char *address, const char *path, double seconds)
{
    char *url = mu__sprintf("http://%s/computeMetadata/v1/instance/%s", address, path);
    char *answer = url == NULL ? NULL
                               : mu__https_request(&(mu_https_request){
                                     .url = url, .header = "Metadata-Flavor: Google", .seconds = seconds});
    mu__free(url);
    return answer;
}

char *mu__url_encode(const char *text)
{
    static const char *const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    char *out = mu__alloc(3 * strlen(text) + 1), *at = out;
    for (; out != NULL && *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL)
            *at++ = *text;
        else
            at += sprintf(at, "%%%02X", (unsigned char)*text);
    }
    if (out != NULL)
        *at = '\0';
    return out;
}
