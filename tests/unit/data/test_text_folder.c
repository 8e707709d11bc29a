// Datasets of the texts in a folder.
#include "data_test.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[] = "muster-texts-XXXXXX";
static const char *const files[] = {"neg/b.txt", "neg/a.TXT", "pos/deep/c.txt", "pos/notes.md"};

static void put(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_all(void)
{
    static const char *const folders[] = {"neg", "pos/deep", "pos", ""};
    char path[200];
    for (size_t i = 0; i < MU_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        unlink(path);
    }
    for (size_t i = 0; i < MU_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        rmdir(path);
    }
}

static void texts_have_labels(void **state)
{
    (void)state;
    mu_dataset_text_folder_args args = {.size = sizeof args,
                                        .given = ".batch_size .seed",
                                        .directory = root,
                                        .batch_size = -1,
                                        .no_shuffle = true,
                                        .seed = 3};
    assert_elements(mu_dataset_text_folder_with(&args), "('bad film',0) ('so\nso',0) ('',1)");
    assert_int_equal(mu_dataset_cardinality(mu_dataset_text_folder_with(&args)), 3);
    args.max_length = 3;
    args.label_mode = "binary";
    assert_elements(mu_dataset_text_folder_with(&args), "('bad',[0]) ('so\n',[0]) ('',[1])");
    args.max_length = 0;
    args.batch_size = 2;
    args.label_mode = "none";
    assert_elements(mu_dataset_text_folder_with(&args), "['bad film' 'so\nso'] ['']");
    args.batch_size = -1;
    args.label_mode = "categorical";
    args.validation_split = .4;
    args.subset = "validation";
    assert_elements(mu_dataset_text_folder_with(&args), "('',[0 1])");
    args.no_shuffle = false;
    args.subset = "training";
    assert_int_equal(mu_dataset_cardinality(mu_dataset_text_folder_with(&args)), 2);
}

// A link to a folder of samples is a class, as in Keras; one deeper is not followed.
static void links_are_classes(void **state)
{
    (void)state;
    char path[200], deeper[200];
    snprintf(path, sizeof path, "%s/linked", root);
    snprintf(deeper, sizeof deeper, "%s/pos/deep/up", root);
    assert_int_equal(symlink("neg", path), 0);
    assert_int_equal(symlink("../../neg", deeper), 0);
    mu_dataset *data = mu_dataset_text_folder(root, .batch_size = -1, .no_shuffle = true);
    assert_elements(data, "('bad film',0) ('so\nso',0) ('bad film',1) ('so\nso',1) ('',2)");
    unlink(path);
    unlink(deeper);
}

// Keras takes a folder's own files before those of the folders in it, whatever their names.
static void folders_follow_files(void **state)
{
    (void)state;
    char path[200];
    put("neg/Z/x.txt", "inner");
    assert_elements(mu_dataset_text_folder(root, .batch_size = -1, .no_shuffle = true, .label_mode = "none"),
                    "'bad film' 'so\nso' 'inner' ''");
    snprintf(path, sizeof path, "%s/neg/Z/x.txt", root);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

static void refuses(void **state)
{
    (void)state;
    assert_null(mu_dataset_text_folder(root, .max_length = 0));
    expect_error(MU_INVALID_ARGUMENT, "mu_dataset_text_folder: max_length is 0; it must be 1 or more");
    assert_null(mu_dataset_text_folder(root, .batch_size = 0));
    expect_error(MU_INVALID_ARGUMENT, "batch_size is 0; expected at least 1, or -1 for single samples");
    assert_null(mu_dataset_text_folder(root, .label_mode = "text"));
    expect_error(MU_INVALID_ARGUMENT, "label_mode is \"text\"; expected one of \"int\"");
    assert_null(mu_dataset_text_folder("nowhere"));
    expect_error(MU_NOT_FOUND, "cannot open nowhere");
    char path[200];
    snprintf(path, sizeof path, "%s/neg", root);
    assert_null(mu_dataset_text_folder(path));
    expect_error(MU_NOT_FOUND, "there are no texts (.txt) in");
}

int main(void)
{
    const struct CMUnitTest tests[] = {DATA_TEST(texts_have_labels), DATA_TEST(links_are_classes),
                                       DATA_TEST(folders_follow_files), DATA_TEST(refuses)};
    if (mkdtemp(root) == NULL)
        return 1;
    put(files[0], "so\nso");
    put(files[1], "bad film");
    put(files[2], "");
    put(files[3], "no text");
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_all();
    return failed;
}
