// Temporary files next to a file that is being written, and the removal of those whose writer was killed.
#ifndef MU_SRC_BASE_TEMPORARY_H
#define MU_SRC_BASE_TEMPORARY_H

#include "base/base.h"

// mu__temporary_create creates and opens a temporary file for `path` in the same folder. The file stays locked until
// it is closed. Free *name with mu__free, also after a failure. First removes the temporary files of `path` whose
// writers were killed.
mu_status mu__temporary_create(const char *path, char **name, int *fd);

// mu__temporary_sweep removes the temporary files of `path` whose writers are certainly dead. Files that cannot be
// read, locked or removed stay; that is not an error.
void mu__temporary_sweep(const char *path);

// mu__temporary_sweep_parts does so for `path` and for all files whose names are its name, a dot and more.
void mu__temporary_sweep_parts(const char *path);

// mu__temporary_goal returns the length of the target's name at the start of a temporary file's name; 0 if the name
// is not that of a temporary file.
size_t mu__temporary_goal(const char *name);

#endif
