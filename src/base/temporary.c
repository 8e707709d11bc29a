// Creates temporary files next to a file that is being written, and removes those whose writer was killed.
//
// A writer holds an exclusive flock on its temporary file until it has closed it, and the kernel releases the locks
// of a dead process. A process that obtains the lock of such a file therefore knows that its writer is dead, provided
// that one kernel manages all locks of the file: on a file system local to this machine, or if the name holds this
// boot's identity. Files of other hosts on a network file system stay.
#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MOST_NAMES = 100, BOOT_DIGITS = 12 };

static const char marker[] = ".tmp-";

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#define ZFS_MAGIC 0x2fc12fc1 // has no name in the kernel's headers

// ---- Names --------------------------------------------------------------------------------------

// The first digits of the kernel's boot identity, which containers share; zeros if it cannot be read.
static void boot_digits(char out[BOOT_DIGITS + 1])
{
    char text[40] = {0};
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    int digits = 0;
    for (ssize_t i = 0; i < n && digits < BOOT_DIGITS; i++)
        if (text[i] != '-' && text[i] != '\n')
            out[digits++] = text[i];
    while (digits < BOOT_DIGITS)
        out[digits++] = '0';
    out[digits] = '\0';
}

// "weights.tmp-<boot>-<process>-<attempt>". A file without a lock has no <boot>, so that its writer is never taken
// for dead.
static char *name_of(const char *path, const char *boot, int attempt)
{
    return mu__sprintf("%s%s%s%s%ld-%d", path, marker, boot, *boot ? "-" : "", (long)getpid(), attempt);
}

static bool is_number(const char *text, const char *end)
{
    bool any = false;
    for (; text < end; text++, any = true)
        if (*text < '0' || *text > '9')
            return false;
    return any;
}

size_t mu__temporary_goal(const char *name)
{
    const char *at = NULL;
    for (const char *next = strstr(name, marker); next != NULL; next = strstr(next + 1, marker))
        at = next;
    if (at == NULL)
        return 0;
    const char *boot = at + sizeof marker - 1;
    if (strspn(boot, "0123456789abcdef") != BOOT_DIGITS || boot[BOOT_DIGITS] != '-')
        return 0;
    const char *process = boot + BOOT_DIGITS + 1, *dash = strchr(process, '-');
    if (dash == NULL || !is_number(process, dash) || !is_number(dash + 1, dash + strlen(dash)))
        return 0;
    return (size_t)(at - name);
}

// ---- Creating -----------------------------------------------------------------------------------

// Whether an open file still has this name: a sweep may have removed it before it was locked.
static bool is_named(int fd, int folder, const char *name)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

// Another process with the same number (in another container) or another thread may be writing the same file, so each
// attempt takes an unused name.
static mu_status create_named(const char *path, const char *boot, char **name, int *fd)
{
    for (int attempt = 0; attempt < MOST_NAMES; attempt++) {
        mu__free(*name);
        *name = name_of(path, boot, attempt);
        if (*name == NULL)
            return MU_RESOURCE_EXHAUSTED;
        *fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd < 0 && errno != EEXIST)
            break;
        if (*fd < 0)
            continue;
        if (!*boot || (flock(*fd, LOCK_EX | LOCK_NB) == 0 && is_named(*fd, AT_FDCWD, *name)))
            return MU_OK;
        const bool without_locks = errno != EWOULDBLOCK && is_named(*fd, AT_FDCWD, *name);
        unlink(*name);
        close(*fd);
        *fd = -1;
        if (without_locks)
            return create_named(path, "", name, fd);
    }
    const int number = errno;
    return mu__error(mu__errno_code(number), "cannot create %s: %s%s", path, strerror(number),
                     number == ENOENT ? "; make its folder first" : "");
}

mu_status mu__temporary_create(const char *path, char **name, int *fd)
{
    char boot[BOOT_DIGITS + 1];
    *name = NULL;
    *fd = -1;
    mu__temporary_sweep(path);
    boot_digits(boot);
    return create_named(path, boot, name, fd);
}

// ---- Sweeping -----------------------------------------------------------------------------------

// Whether no other kernel can have files of this folder open. An unknown file system counts as shared.
static bool is_local(int folder)
{
    static const unsigned long local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,     F2FS_SUPER_MAGIC,
                                          TMPFS_MAGIC,      RAMFS_MAGIC,     OVERLAYFS_SUPER_MAGIC, ZFS_MAGIC};
    struct statfs system;
    bool found = false;
    if (fstatfs(folder, &system) == 0)
        for (size_t i = 0; i < MU_COUNT(local); i++)
            found |= ((unsigned long)system.f_type & 0xffffffffUL) == local[i];
    return found;
}

static bool is_of_this_boot(const char *name, size_t goal)
{
    char boot[BOOT_DIGITS + 1], unread[BOOT_DIGITS + 1];
    boot_digits(boot);
    memset(unread, '0', BOOT_DIGITS);
    return memcmp(boot, unread, BOOT_DIGITS) != 0 && memcmp(name + goal + sizeof marker - 1, boot, BOOT_DIGITS) == 0;
}

static void remove_if_dead(int folder, const char *name)
{
    // Neither blocks nor follows links: another program may have created the name.
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return;
    struct stat found;
    // The holder of the lock of a file that still has this name is its only user, so the file can be removed.
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        is_named(fd, folder, name)) {
        if (unlinkat(folder, name, 0) == 0)
            mu__log(MU_LOG_INFO, "removed '%s' (%lld bytes), which a killed process left", name,
                    (long long)found.st_size);
        else
            mu__log(MU_LOG_WARNING, "'%s' (%lld bytes), which a killed process left, cannot be removed: %s", name,
                    (long long)found.st_size, strerror(errno));
    }
    close(fd);
}

static bool is_goal(const char *name, size_t goal, const char *file, size_t length, bool parts)
{
    return goal >= length && memcmp(name, file, length) == 0 &&
           (goal == length || (parts && goal > length && name[length] == '.'));
}

static void sweep_folder(DIR *folder, const char *file, bool parts)
{
    const size_t length = strlen(file);
    const bool local = is_local(dirfd(folder));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const size_t goal = mu__temporary_goal(entry->d_name);
        if (goal > 0 && is_goal(entry->d_name, goal, file, length, parts) &&
            (local || is_of_this_boot(entry->d_name, goal)))
            remove_if_dead(dirfd(folder), entry->d_name);
    }
}

static void sweep(const char *path, bool parts)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash != NULL ? MU_MAX((size_t)(slash - path), 1) : 1;
    char name[PATH_MAX];
    if (length >= sizeof name)
        return;
    memcpy(name, slash != NULL ? path : ".", length);
    name[length] = '\0';
    DIR *folder = opendir(name);
    if (folder != NULL) {
        sweep_folder(folder, slash != NULL ? slash + 1 : path, parts);
        closedir(folder);
    }
}

void mu__temporary_sweep(const char *path) { sweep(path, false); }

void mu__temporary_sweep_parts(const char *path) { sweep(path, true); }
