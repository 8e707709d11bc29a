// Makes a folder, and those around it that are missing.
#include "base/directory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

mu_status mu__directory_make(const char *path)
{
    char *text = mu__strdup(path);
    if (!text)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    for (char *at = text + 1; status == MU_OK; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        const char kept = *at;
        *at = '\0';
        if (mkdir(text, 0777) != 0 && errno != EEXIST)
            status = mu__error(mu__errno_code(errno), "the folder '%s' cannot be made: %s", text, strerror(errno));
        if (kept == '\0')
            break;
        *at = kept;
    }
    mu__free(text);
    return status;
}
