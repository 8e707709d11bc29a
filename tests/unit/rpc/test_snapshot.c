// Files of snapshots that a store no longer needs: those of earlier cuts, and those that a server left when it was
// killed while writing, whichever cut they belong to. Other stores' files are kept.
#include "rpc/stores/store.h"

#include "../base/base_test.h"

static bool is_there(const char *folder, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void test_obsolete_files_are_deleted(void **state)
{
    static const struct {
        const char *name;
        bool stays;
    } files[] = {
        {"cut-6-store-2.safetensors", false},
        {"cut-7-store-2.safetensors", true},
        {"cut-6-store-2.safetensors.tmp-0123456789ab-1-0", false},
        {"cut-8-store-2.safetensors.tmp-0123456789ab-1-0", false},
        {"cut-6-store-2.safetensors.tmp-mine", true},
        {"cut-6-store-2.safetensors2", true},
        {"cut-6-store-21.safetensors.tmp-0123456789ab-1-0", true},
        {"cut-6-store-3.safetensors", true},
        {"cut-6-store-3.safetensors.tmp-0123456789ab-1-0", true},
        {"other.tmp-0123456789ab-1-0", true},
    };
    const char *folder = temporary_folder();
    const mu_store store = {.number = 2};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(files); i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
    mu__snapshot_delete_before(&store, 7, folder);
    for (size_t i = 0; i < MU_COUNT(files); i++)
        if (is_there(folder, files[i].name) != files[i].stays)
            fail_msg("%s %s", files[i].name, files[i].stays ? "was deleted" : "is still there");
    remove_folder(folder);
    assert_int_equal(mu_error_code(), MU_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_obsolete_files_are_deleted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
