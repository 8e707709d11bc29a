// Writes the text of programs to files before the plugin compiles it, for people who want to read it
// (MUSTER_DUMP_STABLEHLO).
#include "base/directory.h"
#include "engine/pjrt/pjrt.h"

#include <ctype.h>
#include <unistd.h>

enum { NAME_BYTES = 64 };

// The function's name with an underscore for every character that is not a letter, a digit, '_' or '-'.
static void file_name(const char *function, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", function && *function ? function : "program");
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
            *c = '_';
}

static mu_status write_file(const char *path, const mu_pjrt_text *text)
{
    mu_file_writer *file = mu__file_create(path);
    if (!file)
        return mu_error_code();
    const mu_status status = mu__file_write(file, text->items, text->n);
    if (status == MU_OK)
        return mu__file_commit(file);
    mu__file_abandon(file);
    return status;
}

void mu__pjrt_dump(const char *function, const mu_pjrt_text *text)
{
    static atomic_int written;
    const char *folder = mu__setting_text(MU_SETTING_DUMP_STABLEHLO);
    char name[NAME_BYTES];
    if (!folder)
        return;
    if (mu__directory_make(folder) != MU_OK) {
        mu__log(MU_LOG_WARNING, "MUSTER_DUMP_STABLEHLO: %s", mu_error_take().message);
        return;
    }
    file_name(function, name);
    char *path = mu__sprintf("%s/%s.%ld.%d.mlir", folder, name, (long)getpid(), written++);
    if (!path || write_file(path, text) != MU_OK)
        mu__log(MU_LOG_WARNING, "MUSTER_DUMP_STABLEHLO: '%s' is not written: %s", path ? path : folder,
                mu_error_take().message);
    else
        mu__log(MU_LOG_INFO, "'%s' as StableHLO: %s", function, path);
    mu__free(path);
}
