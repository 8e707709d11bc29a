// `muster plugin install NAME`: fetches the published PJRT plugin for a kind of device through pip, and puts its
// library where programs find it.
//
// pip compares the wheel with the hash in the table below before it accepts it. Everything happens in a temporary
// folder next to the plugins, and the library is renamed last, so that an interrupted installation leaves no plugin
// behind.
#include "base/directory.h"
#include "engine/pjrt/pjrt.h"
#include "tools/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// A published plugin: the word for it, the name under which programs find it, and where it comes from.
typedef struct published {
    const char *word, *name, *package, *version, *sha256;
    const char *library; // in the wheel
    const char *tells;   // what it needs
} published;

static const published plugins[] = {
    {"cpu", "xla_cpu", "xla-cpu-pjrt", "0.0.1", "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
     "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "the processors, through XLA"},
    {"cuda13", "xla_cuda13", "jax-cuda13-pjrt", "0.12.0.1",
     "5899bb6177eda86ea532afb9a26794f2bdd04966f6a01f9028266b16c2b6cf90", "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
     "NVIDIA GPUs; needs CUDA 13's libraries"},
    {"tpu", "tpu", "libtpu", "0.0.52", "f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140",
     "libtpu/libtpu.so", "TPUs"},
};

enum { PATH_BYTES = 4096 };

// ---- Files --------------------------------------------------------------------------------------

static int remove_one(const char *path, const struct stat *what, int type, struct FTW *walk)
{
    (void)what, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(const char *path) { (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static mu_status sync_path(const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool synced = file >= 0 && fsync(file) == 0;
    if (file >= 0)
        close(file);
    return synced ? MU_OK : mu__error(MU_DATA_LOSS, "muster plugin: %s cannot be synced: %s", path, strerror(errno));
}

// ---- pip ----------------------------------------------------------------------------------------

static mu_status run_python(const char *const *words, const char *doing)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execvp("python3", (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return mu__error(MU_RESOURCE_EXHAUSTED, "muster plugin: no process can be started for python3");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return mu__error(MU_NOT_FOUND, "muster plugin: there is no python3; install it with pip (Debian: python3-pip)");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return mu__error(MU_UNAVAILABLE, "muster plugin: %s failed; python3 says why above", doing);
    return MU_OK;
}

// pip accepts only a wheel with this hash. The platform is named so that every version of Python fetches the same one.
static mu_status fetch(const published *plugin, const char *folder)
{
    char list[PATH_BYTES], text[512];
    snprintf(list, sizeof list, "%.3000s/requirements.txt", folder);
    snprintf(text, sizeof text, "%s==%s --hash=sha256:%s\n", plugin->package, plugin->version, plugin->sha256);
    FILE *file = fopen(list, "we");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        return mu__error(MU_PERMISSION_DENIED, "muster plugin: %s cannot be written: %s", list, strerror(errno));
    const char *const words[] = {"python3",
                                 "-m",
                                 "pip",
                                 "download",
                                 "--no-deps",
                                 "--require-hashes",
                                 "--only-binary=:all:",
                                 "--platform",
                                 "manylinux_2_31_x86_64",
                                 "--platform",
                                 "manylinux_2_27_x86_64",
                                 "--implementation",
                                 "cp",
                                 "--python-version",
                                 "3.11",
                                 "--disable-pip-version-check",
                                 "--dest",
                                 folder,
                                 "--requirement",
                                 list,
                                 NULL};
    return run_python(words, "the download");
}

static mu_status unpack(const char *folder)
{
    char pattern[PATH_BYTES];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%.3000s/*.whl", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return mu__error(MU_NOT_FOUND, "muster plugin: pip left no wheel in %s", folder);
    const char *const words[] = {"python3", "-m", "zipfile", "-e", found.gl_pathv[0], folder, NULL};
    const mu_status status = run_python(words, "unpacking the wheel");
    globfree(&found);
    return status;
}

// ---- Installing ---------------------------------------------------------------------------------

static mu_status put(const published *plugin, const char *from, const char *folder, char path[PATH_BYTES])
{
    char own[PATH_BYTES], library[PATH_BYTES];
    const char *base = strrchr(plugin->library, '/') + 1;
    snprintf(library, sizeof library, "%.2000s/%s", from, plugin->library);
    snprintf(own, sizeof own, "%.2000s/%s", folder, plugin->name);
    snprintf(path, PATH_BYTES, "%.3000s/%s", own, base);
    MU_TRY(mu__directory_make(own));
    MU_TRY(sync_path(library));
    if (rename(library, path) != 0)
        return mu__error(MU_PERMISSION_DENIED, "muster plugin: %s cannot become %s: %s", library, path,
                         strerror(errno));
    return sync_path(own);
}

static mu_status install(const published *plugin, const char *folder)
{
    char temporary[PATH_BYTES], path[PATH_BYTES];
    MU_TRY(mu__directory_make(folder));
    snprintf(temporary, sizeof temporary, "%.2000s/.installing-XXXXXX", folder);
    if (!mkdtemp(temporary))
        return mu__error(MU_PERMISSION_DENIED, "muster plugin: nothing can be written to %s: %s", folder,
                         strerror(errno));
    mu_status status = fetch(plugin, temporary);
    if (status == MU_OK)
        status = unpack(temporary);
    if (status == MU_OK)
        status = put(plugin, temporary, folder, path);
    remove_folder(temporary);
    if (status == MU_OK)
        printf("%s %s is in %s; `muster devices` lists its devices\n", plugin->package, plugin->version, path);
    return status;
}

static bool run(const mu_tool_arguments *a)
{
    char folder[MU_PJRT_FOLDER];
    if (strcmp(a->operands[0], "install") != 0) {
        mu__error(MU_INVALID_ARGUMENT, "muster plugin: unknown action '%s'; expected install", a->operands[0]);
        return false;
    }
    if (!mu__pjrt_folder(folder)) {
        mu__error(MU_FAILED_PRECONDITION,
                  "muster plugin: there is no folder for plugins; set MUSTER_PJRT_PATH or HOME");
        return false;
    }
    for (size_t i = 0; i < MU_COUNT(plugins); i++)
        if (strcmp(plugins[i].word, a->operands[1]) == 0)
            return install(&plugins[i], folder) == MU_OK;
    mu__error(MU_INVALID_ARGUMENT,
              "muster plugin: no published plugin is called '%s'; there are cpu (%s), cuda13 (%s) and tpu (%s)",
              a->operands[1], plugins[0].tells, plugins[1].tells, plugins[2].tells);
    return false;
}

const mu_tool_command mu__tool_plugin = {
    .name = "muster plugin",
    .usage = "install cpu|cuda13|tpu",
    .summary = "install a PJRT plugin",
    .description = "Fetches the published plugin for processors (cpu), NVIDIA GPUs (cuda13) or TPUs (tpu) through pip, "
                   "which compares it with the hash that this version of Muster knows, and puts its library into the "
                   "folder of MUSTER_PJRT_PATH, by default muster/plugins in XDG_DATA_HOME or ~/.local/share. Programs "
                   "find it there: its devices are XLA_CPU:0, GPU:0 or TPU:0 and so on.",
    .example = "muster plugin install cpu\nmuster devices\n",
    .needs = "expected install and the name of a plugin: cpu, cuda13 or tpu",
    .fewest = 2,
    .most = 2,
    .run = run,
};
