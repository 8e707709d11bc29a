// A folder of one run's checkpoints, numbered; the latest few are kept.
//
// There is no separate index: files are complete or absent, so listing the folder is enough. If a file is damaged
// nevertheless, the previous one is used.
#include "model/files/checkpoint.h"

#include "base/directory.h"
#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct mu_checkpoint_manager {
    mu_object object;
    mu_checkpoint *checkpoint; // retained
    char *directory, *name;
    int max_to_keep;
};

typedef struct numbers {
    int64_t *items;
    size_t n, capacity;
} numbers;

static void manager_destroy(void *object)
{
    mu_checkpoint_manager *manager = object;
    mu_release(manager->checkpoint);
    mu__free(manager->directory);
    mu__free(manager->name);
}

static mu_type manager_type = {.name = "checkpoint manager", .destroy = manager_destroy};

static mu_status check_args(const mu_checkpoint_manager_args *args)
{
    if (!args->checkpoint || !args->directory || !*args->directory)
        return mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_manager_new: the %s is missing",
                         args->checkpoint ? "directory" : "checkpoint");
    MU_TRY(mu__args_positive(args, "max_to_keep", args->max_to_keep, "mu_checkpoint_manager_new"));
    if (args->name && (!*args->name || strchr(args->name, '/')))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_checkpoint_manager_new: the name '%s' cannot begin the name of a file", args->name);
    return MU_OK;
}

mu_checkpoint_manager *mu_checkpoint_manager_new_with(const mu_checkpoint_manager_args *given)
{
    mu_checkpoint_manager_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_checkpoint_manager_new") != MU_OK ||
        check_args(&args) != MU_OK || mu__directory_make(args.directory) != MU_OK)
        return NULL;
    mu_checkpoint_manager *manager = mu__new(&manager_type, sizeof *manager);
    if (!manager)
        return NULL;
    manager->checkpoint = mu_retain(args.checkpoint);
    manager->max_to_keep = args.max_to_keep ? args.max_to_keep : 5;
    manager->directory = mu__strdup(args.directory);
    manager->name = mu__strdup(args.name ? args.name : "ckpt");
    if (!manager->directory || !manager->name) {
        mu_release(manager);
        return NULL;
    }
    return mu__give(manager);
}

mu_checkpoint *mu__manager_checkpoint(const mu_checkpoint_manager *manager) { return manager->checkpoint; }
const char *mu__manager_directory(const mu_checkpoint_manager *manager) { return manager->directory; }

// ---- The files ----------------------------------------------------------------------------------

static char *path_of(const mu_checkpoint_manager *manager, int64_t number)
{
    return mu__sprintf("%s/%s-%lld.safetensors", manager->directory, manager->name, (long long)number);
}

// The number in "NAME-12.safetensors"; -1 for any other name.
static int64_t number_in(const mu_checkpoint_manager *manager, const char *file)
{
    const size_t length = strlen(manager->name);
    if (strncmp(file, manager->name, length) != 0 || file[length] != '-' || file[length + 1] < '0' ||
        file[length + 1] > '9')
        return -1;
    char *end;
    errno = 0;
    const long long number = strtoll(file + length + 1, &end, 10);
    return errno == 0 && strcmp(end, ".safetensors") == 0 ? number : -1;
}

static int latest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

// Lists the numbers in the folder, the latest first; the caller frees the items.
static mu_status list_numbers(const mu_checkpoint_manager *manager, numbers *out)
{
    DIR *folder = opendir(manager->directory);
    if (!folder)
        return mu__error(mu__errno_code(errno), "the folder '%s' of checkpoints cannot be read: %s", manager->directory,
                         strerror(errno));
    mu_status status = MU_OK;
    for (const struct dirent *file; status == MU_OK && (file = readdir(folder));) {
        const int64_t number = number_in(manager, file->d_name);
        status = number >= 0 ? MU_PUSH(out, number) : MU_OK;
    }
    closedir(folder);
    if (out->n > 1)
        qsort(out->items, out->n, sizeof *out->items, latest_first);
    return status;
}

// Removes temporary files left in the folder by killed saves.
static void sweep(const mu_checkpoint_manager *manager)
{
    DIR *folder = opendir(manager->directory);
    if (!folder)
        return;
    for (const struct dirent *file; (file = readdir(folder));) {
        char name[sizeof file->d_name];
        const size_t goal = mu__temporary_goal(file->d_name);
        snprintf(name, sizeof name, "%.*s", (int)goal, file->d_name);
        char *path = goal > 0 && number_in(manager, name) >= 0 ? mu__sprintf("%s/%s", manager->directory, name) : NULL;
        if (path)
            mu__temporary_sweep(path);
        mu__free(path);
    }
    closedir(folder);
}

// ---- Saving and restoring -----------------------------------------------------------------------

static void delete_old(const mu_checkpoint_manager *manager, const numbers *all)
{
    for (size_t i = (size_t)manager->max_to_keep; i < all->n; i++) {
        char *path = path_of(manager, all->items[i]);
        if (path && unlink(path) != 0)
            mu__log(MU_LOG_WARNING, "the old checkpoint '%s' cannot be deleted: %s", path, strerror(errno));
        mu__free(path);
    }
}

mu_status mu_checkpoint_manager_save(mu_checkpoint_manager *manager, int64_t number)
{
    if (mu__pending())
        return mu_error_code();
    if (!manager)
        return mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_manager_save: the manager is NULL");
    const int64_t latest = number < 0 ? mu_checkpoint_manager_latest(manager) : 0;
    char *path = mu__pending() ? NULL : path_of(manager, number < 0 ? latest + 1 : number);
    mu_status status = path ? mu__checkpoint_write(manager->checkpoint, path, NULL) : mu_error_code();
    numbers all = {0};
    const bool ours = status == MU_OK && mu__checkpoint_is_ours(manager->checkpoint);
    if (ours) {
        sweep(manager);
        status = list_numbers(manager, &all);
    }
    if (ours && status == MU_OK)
        delete_old(manager, &all);
    mu__free(all.items);
    mu__free(path);
    return status;
}

int64_t mu_checkpoint_manager_latest(mu_checkpoint_manager *manager)
{
    numbers all = {0};
    if (!manager) {
        mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_manager_latest: the manager is NULL");
        return -1;
    }
    const int64_t latest = list_numbers(manager, &all) == MU_OK && all.n > 0 ? all.items[0] : -1;
    mu__free(all.items);
    return latest;
}

// Damage is skipped, because an older file may be intact; any other error is not.
static bool passed_over(const char *path)
{
    if (mu_error_code() != MU_DATA_LOSS)
        return false;
    mu_error_value error;
    mu__error_move(&error);
    mu__log(MU_LOG_WARNING, "the checkpoint '%s' is damaged, the one before is taken: %s", path, error.message);
    return true;
}

int64_t mu_checkpoint_manager_restore(mu_checkpoint_manager *manager)
{
    numbers all = {0};
    if (mu__pending())
        return -1;
    if (!manager) {
        mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_manager_restore: the manager is NULL");
        return -1;
    }
    int64_t restored = -1;
    sweep(manager);
    mu_status status = list_numbers(manager, &all);
    for (size_t i = 0; status == MU_OK && restored < 0 && i < all.n; i++) {
        char *path = path_of(manager, all.items[i]);
        status = path ? mu_checkpoint_restore(manager->checkpoint, path) : mu_error_code();
        if (status == MU_OK)
            restored = all.items[i];
        else if (path && i + 1 < all.n && passed_over(path))
            status = MU_OK;
        mu__free(path);
    }
    mu__free(all.items);
    return restored;
}
