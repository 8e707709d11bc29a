// Folders that a program makes for its files.
#ifndef MU_SRC_BASE_DIRECTORY_H
#define MU_SRC_BASE_DIRECTORY_H

#include "base/base.h"

// mu__directory_make makes a folder and its missing parents. Errors: those of mkdir, naming the folder.
mu_status mu__directory_make(const char *path);

#endif
