// Finds a plugin's shared library by name, opens it, checks its version and calls its functions.
//
// A plugin is opened at most once per process and never closed, because its threads live on. Its errors become status
// codes with messages; the plugin's error objects are freed at once.
#include "engine/pjrt/pjrt.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <unistd.h>

enum { OLDEST_MINOR = 54, LONGEST_PATH = 4096, MOST_PLUGINS = 16 };

// ---- Calls and errors ---------------------------------------------------------------------------

static pj_call *function_of(const pj_api *api, pj_function function)
{
    const size_t end = offsetof(pj_api, functions) + sizeof(pj_call *) * ((size_t)function + 1);
    return end <= api->size ? api->functions[function] : NULL;
}

static mu_status take_error(const pj_api *api, pj_error *error, const char *what)
{
    pj_error_message_args message = PJ_ARGS(pj_error_message_args, .error = error);
    pj_error_code_args code = PJ_ARGS(pj_error_code_args, .error = error);
    pj_error_args end = PJ_ARGS(pj_error_args, .error = error);
    api->functions[PJ_ERROR_MESSAGE](&message);
    if (api->functions[PJ_ERROR_GET_CODE](&code) != NULL || code.code < MU_CANCELLED || code.code > MU_UNAUTHENTICATED)
        code.code = MU_UNKNOWN_ERROR;
    const mu_status status = mu__error((mu_status)code.code, "%s: the plugin says: %.*s", what,
                                       (int)MU_MIN(message.bytes, (size_t)700), message.message ? message.message : "");
    api->functions[PJ_ERROR_DESTROY](&end);
    return status;
}

mu_status mu__pjrt_call(const pj_api *api, pj_function function, void *args, const char *what)
{
    pj_call *call = function_of(api, function);
    if (!call)
        return mu__error(MU_UNIMPLEMENTED, "%s: the plugin (PJRT %d.%d) lacks function %d; use a newer one", what,
                         api->version.major, api->version.minor, (int)function);
    pj_error *error = call(args);
    return error ? take_error(api, error, what) : MU_OK;
}

void mu__pjrt_destroy(const pj_api *api, pj_function function, void *args)
{
    pj_call *call = function_of(api, function);
    pj_error *error = call ? call(args) : NULL;
    pj_error_args end = PJ_ARGS(pj_error_args, .error = error);
    if (error)
        api->functions[PJ_ERROR_DESTROY](&end);
}

// ---- Finding ------------------------------------------------------------------------------------

// The path given for `name` in "name:path,name:path".
static bool find_in_list(const char *list, const char *name, char path[LONGEST_PATH])
{
    const size_t length = strlen(name);
    while (list && *list) {
        const char *end = list + strcspn(list, ",");
        if (strncmp(list, name, length) == 0 && list[length] == ':') {
            const char *begin = list + length + 1;
            snprintf(path, LONGEST_PATH, "%.*s", (int)(end - begin), begin);
            return true;
        }
        list = *end ? end + 1 : end;
    }
    return false;
}

// Python packages install each plugin in its own folder, with one shared library in it.
static bool find_in_packages(const char *root, const char *name, char path[LONGEST_PATH])
{
    static const char *const folders[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages"};
    static const struct {
        const char *before, *after;
    } forms[] = {
        {"xla_plugins/", "_pjrt/*.so"}, {"xla_plugins/", "/*.so"}, {"jax_plugins/", "/*.so"}, {"lib", "/lib*.so"}};
    for (size_t f = 0; root && f < MU_COUNT(folders); f++)
        for (size_t i = 0; i < MU_COUNT(forms); i++) {
            char pattern[LONGEST_PATH];
            glob_t found;
            snprintf(pattern, sizeof pattern, "%.2000s/%s/%s%.200s%s", root, folders[f], forms[i].before, name,
                     forms[i].after);
            if (glob(pattern, 0, NULL, &found) != 0)
                continue;
            snprintf(path, LONGEST_PATH, "%s", found.gl_pathv[0]);
            globfree(&found);
            return true;
        }
    return false;
}

const char *mu__pjrt_folder(char folder[MU_PJRT_FOLDER])
{
    const char *chosen = mu__setting_text(MU_SETTING_PJRT_PATH), *data = mu__environment("XDG_DATA_HOME"),
               *home = mu__environment("HOME");
    if (chosen && *chosen)
        snprintf(folder, MU_PJRT_FOLDER, "%s", chosen);
    else if (data && *data)
        snprintf(folder, MU_PJRT_FOLDER, "%s/muster/plugins", data);
    else if (home)
        snprintf(folder, MU_PJRT_FOLDER, "%s/.local/share/muster/plugins", home);
    else
        return NULL;
    return folder;
}

// `muster plugin install` puts each plugin into a folder of its name, with one shared library in it.
static bool find_installed(const char *name, char path[LONGEST_PATH])
{
    char folder[MU_PJRT_FOLDER], pattern[LONGEST_PATH];
    glob_t found;
    if (!mu__pjrt_folder(folder))
        return false;
    snprintf(pattern, sizeof pattern, "%s/%.200s/*.so", folder, name);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    snprintf(path, LONGEST_PATH, "%s", found.gl_pathv[0]);
    globfree(&found);
    return true;
}

static bool find_file(const char *name, char path[LONGEST_PATH])
{
    const char *home = mu__environment("HOME");
    char local[LONGEST_PATH] = "";
    if (strchr(name, '/')) {
        snprintf(path, LONGEST_PATH, "%s", name);
        return true;
    }
    if (home)
        snprintf(local, sizeof local, "%.2000s/.local", home);
    const char *roots[] = {mu__environment("VIRTUAL_ENV"), mu__environment("CONDA_PREFIX"), home ? local : NULL,
                           "/usr/local", "/usr"};
    if (find_in_list(mu__environment("PJRT_NAMES_AND_LIBRARY_PATHS"), name, path) || find_installed(name, path))
        return true;
    for (size_t i = 0; i < MU_COUNT(roots); i++)
        if (find_in_packages(roots[i], name, path))
            return true;
    return false;
}

static bool listed(char names[][MU_PJRT_NAME], int n, const char *name)
{
    while (n > 0 && strcmp(names[n - 1], name) != 0)
        n--;
    return n > 0;
}

static void add_name(char names[][MU_PJRT_NAME], int capacity, int *n, const char *name, size_t length)
{
    if (*n == capacity || length == 0 || length >= MU_PJRT_NAME)
        return;
    snprintf(names[*n], MU_PJRT_NAME, "%.*s", (int)length, name);
    *n += !listed(names, *n, names[*n]);
}

int mu__pjrt_list(char names[][MU_PJRT_NAME], int capacity)
{
    static const char *const published[] = {"tpu", "xla_cuda13", "xla_cuda12", "xla_rocm7", "xla_rocm60", "xla_cpu"};
    const char *list = mu__environment("PJRT_NAMES_AND_LIBRARY_PATHS"), *preferred = mu__setting_text(MU_SETTING_PJRT);
    int n = 0;
    while (list && *list) {
        const size_t entry = strcspn(list, ",");
        add_name(names, capacity, &n, list, MU_MIN(strcspn(list, ":"), entry));
        list += entry + (list[entry] != '\0');
    }
    if (preferred)
        add_name(names, capacity, &n, preferred, strlen(preferred));
    for (size_t i = 0; i < MU_COUNT(published); i++)
        if (mu__pjrt_installed(published[i]))
            add_name(names, capacity, &n, published[i], strlen(published[i]));
    return n;
}

// ---- Opening ------------------------------------------------------------------------------------

static mu_status check_version(const pj_api *api, const char *path)
{
    if (api->size < offsetof(pj_api, functions) || api->version.major != 0 || api->version.minor < OLDEST_MINOR)
        return mu__error(MU_FAILED_PRECONDITION,
                         "plugin %s speaks PJRT %d.%d; expected 0.%d or a later 0.x; install %s version of it", path,
                         api->version.major, api->version.minor, (int)OLDEST_MINOR,
                         api->version.major > 0 ? "an older" : "a newer");
    for (int function = PJ_ERROR_DESTROY; function <= PJ_PLUGIN_INITIALIZE; function++)
        if (!function_of(api, (pj_function)function))
            return mu__error(MU_FAILED_PRECONDITION, "plugin %s lacks function %d of PJRT's table; it is damaged", path,
                             function);
    return MU_OK;
}

static const pj_api *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *reason = dlerror();
        mu__error(MU_NOT_FOUND, "plugin %s cannot be opened: %s", path, reason ? reason : "no reason given");
        mu__pjrt_advise();
        return NULL;
    }
    pj_get_api *get = NULL;
    *(void **)&get = dlsym(library, "GetPjrtApi"); // POSIX's way around C's ban on converting object pointers
    const pj_api *api = get ? get() : NULL;
    if (!api) {
        mu__error(MU_FAILED_PRECONDITION, "%s is not a PJRT plugin: it has no GetPjrtApi that returns a table", path);
        return NULL;
    }
    pj_plugin_args args = PJ_ARGS(pj_plugin_args, .extension = NULL);
    if (check_version(api, path) != MU_OK || mu__pjrt_call(api, PJ_PLUGIN_INITIALIZE, &args, path) != MU_OK)
        return NULL;
    return api;
}

static const pj_api *open_file(const char *path)
{
    if (access(path, F_OK) != 0) {
        mu__error(MU_NOT_FOUND,
                  "plugin %s: there is no such file; correct its path in PJRT_NAMES_AND_LIBRARY_PATHS, or install a "
                  "published plugin (`muster plugin install cpu`, cuda13 or tpu)",
                  path);
        return NULL;
    }
    if (mu__pjrt_check_flags(path) != MU_OK ||
        (mu__pjrt_flags_have("xla_backend_extra_options") && mu__pjrt_try(path, load) != MU_OK))
        return NULL;
    const pj_api *api = load(path);
    if (api)
        mu__log(MU_LOG_INFO, "plugin %s: PJRT %d.%d", path, api->version.major, api->version.minor);
    return api;
}

// A plugin belongs to the process and is initialised once for all runtimes, so this table cannot belong to a runtime.
static struct {
    pthread_mutex_t lock;
    int n;
    struct {
        char path[LONGEST_PATH];
        const pj_api *api;
    } opened[MOST_PLUGINS];
} plugins = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const pj_api *open_once(const char *path)
{
    for (int i = 0; i < plugins.n; i++)
        if (strcmp(plugins.opened[i].path, path) == 0)
            return plugins.opened[i].api;
    if (plugins.n == MOST_PLUGINS) {
        mu__error(MU_RESOURCE_EXHAUSTED, "plugin %s: %d plugins are open, which is the limit", path, plugins.n);
        return NULL;
    }
    const pj_api *api = open_file(path);
    if (!api)
        return NULL;
    snprintf(plugins.opened[plugins.n].path, LONGEST_PATH, "%s", path);
    plugins.opened[plugins.n++].api = api;
    return api;
}

bool mu__pjrt_installed(const char *name)
{
    char path[LONGEST_PATH];
    return find_file(name, path);
}

bool mu__pjrt_named(const char *name)
{
    char path[LONGEST_PATH];
    return find_in_list(mu__environment("PJRT_NAMES_AND_LIBRARY_PATHS"), name, path);
}

bool mu__pjrt_plugin_has(const char *name, const char *flag)
{
    char path[LONGEST_PATH];
    return find_file(name, path) && mu__pjrt_has_flag(path, flag);
}

const pj_api *mu__pjrt_plugin(const char *name)
{
    char path[LONGEST_PATH];
    if (!find_file(name, path)) {
        mu__error(MU_NOT_FOUND,
                  "no PJRT plugin is called '%s'; name its file in PJRT_NAMES_AND_LIBRARY_PATHS=%s:/path/to/plugin.so, "
                  "or install a published one (`muster plugin install cpu`, cuda13 or tpu)",
                  name, name);
        return NULL;
    }
    pthread_mutex_lock(&plugins.lock);
    const pj_api *api = open_once(path);
    pthread_mutex_unlock(&plugins.lock);
    return api;
}
