// Temporary files beside a file that is being written, and the removal of those whose writer was killed.
#ifndef MU_SRC_BASE_TEMPORARY_H
#define MU_SRC_BASE_TEMPORARY_H

#include "base/base.h"

// mu__temporary_create makes and opens a temporary file for `path` in the same folder; *name is freed with mu__free,
// also after a failure. It stays locked until it is closed. Temporaries of `path` from killed writers are removed
// first.
mu_status mu__temporary_create(const char *path, char **name, int *fd);

// mu__temporary_sweep removes the temporary files of `path` whose writers are dead for certain. What cannot be read,
// locked or removed stays; that is not an error.
void mu__temporary_sweep(const char *path);

// mu__temporary_goal returns how many bytes of a file's name are the name of the file that it is a temporary of; 0 if
// it is none.
size_t mu__temporary_goal(const char *name);

#endif
