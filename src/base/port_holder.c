// Finds which process listens at a port of this host, from the kernel's tables in /proc: for messages.
#include "base/linux.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

// The inode of the socket that listens on `port`, from the kernel's table; 0 if there is none.
static unsigned long listening_inode(const char *table, int port)
{
    char line[512];
    unsigned long found = 0;
    FILE *file = fopen(table, "re");
    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned here, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &here, &state, &inode) ==
                3 &&
            here == (unsigned)port && state == 0x0A) // TCP_LISTEN
            found = inode;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static bool process_has(const char *process, const char *link_text)
{
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    DIR *list = opendir(path);
    bool found = false;
    for (const struct dirent *entry; list != NULL && !found && (entry = readdir(list)) != NULL;) {
        const ssize_t n = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, link_text) == 0;
    }
    if (list != NULL)
        closedir(list);
    return found;
}

static void name_process(const char *process, char *text, size_t bytes)
{
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%.20s/comm", process);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof name, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
    snprintf(text, bytes, "process %.20s (%s)", process, name);
}

// Writes "process 123 (python3)"; processes of other users cannot be identified.
void mu__linux_port_holder(int port, char *text, size_t bytes)
{
    snprintf(text, bytes, "a process that this user may not inspect");
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    inode = inode != 0 ? inode : listening_inode("/proc/net/tcp6", port);
    char link_text[40];
    snprintf(link_text, sizeof link_text, "socket:[%lu]", inode);
    DIR *list = inode != 0 ? opendir("/proc") : NULL;
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !process_has(entry->d_name, link_text))
            continue;
        name_process(entry->d_name, text, bytes);
        break;
    }
    if (list != NULL)
        closedir(list);
}
