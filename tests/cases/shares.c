// The INPUT cases about what each of several workers reads, as one worker sees it: no other process is needed.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

// A strategy as worker `w` of `workers` has it, with `replicas` of its own.
static mu_strategy *as_worker(int w, int workers, int replicas)
{
    mu_strategy *strategy = mirrored(replicas);
    strategy->ops = workers > 1 ? &mu__multi_worker_ops : &mu__single_worker_ops;
    strategy->n_workers = workers;
    strategy->worker = w;
    strategy->n_replicas = workers * replicas;
    strategy->first_replica = w * replicas;
    return strategy;
}

static void check_sizes(int line, int64_t batch, int workers, int w, int replicas, const int *wanted)
{
    int64_t *sizes = mu__rebatch_sizes(batch, workers, w, replicas);
    for (int i = 0; i < workers * replicas; i++)
        if (sizes[i] != wanted[i])
            fail_case(line, "size %d of worker %d is %lld, expected %d", i, w, (long long)sizes[i], wanted[i]);
    mu__free(sizes);
}

#define SIZES(batch, workers, w, replicas, ...) \
    check_sizes(__LINE__, batch, workers, w, replicas, (const int[]){__VA_ARGS__})

static void ps_110(void)
{
    SIZES(7, 2, 0, 2, 2, 2, 2, 1);
    SIZES(7, 2, 1, 2, 2, 1, 2, 2);
    SIZES(4, 3, 0, 1, 2, 1, 1);
    SIZES(4, 3, 1, 1, 1, 1, 2);
    SIZES(4, 3, 2, 1, 1, 2, 1);
    SIZES(4, 1, 0, 5, 1, 1, 1, 1, 0);
    SIZES(10, 2, 0, 2, 3, 3, 2, 2);
    SIZES(10, 2, 1, 2, 2, 2, 3, 3);
}

// ---- Files --------------------------------------------------------------------------------------

enum { MOST_FILES = 10 };

typedef struct files {
    char folder[64];
    char paths[MOST_FILES][80];
    int n;
} files;

// n files of `records` lines: file f has 100 f, 100 f + 1, …
static void make_files(files *f, int n, int records)
{
    f->n = n;
    char folder[] = "/tmp/muster-cases-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(f->folder, sizeof f->folder, "%s", folder);
    for (int i = 0; i < n; i++) {
        snprintf(f->paths[i], sizeof f->paths[i], "%s/%d.csv", folder, i);
        FILE *file = fopen(f->paths[i], "w");
        CHECK(file != NULL);
        for (int k = 0; file && k < records; k++)
            fprintf(file, "%d\n", 100 * i + k);
        if (file)
            fclose(file);
    }
}

static void remove_files(const files *f)
{
    for (int i = 0; i < f->n; i++)
        unlink(f->paths[i]);
    rmdir(f->folder);
}

static mu_dataset *paths_of(const files *f)
{
    const char *paths[MOST_FILES];
    for (int i = 0; i < f->n; i++)
        paths[i] = f->paths[i];
    return mu_dataset_paths(f->n, paths);
}

static mu_dataset *open_file(mu_value *name, void *arg)
{
    (void)arg;
    return mu_dataset_csv(mu_dataset_path_of(name), .columns = 1);
}

// The sizes and elements of what a dataset gives, one element after the other.
static void check_elements(int line, mu_dataset *dataset, int n, const int *sizes, const double *values)
{
    int element = 0, seen = 0;
    MU_EACH(batch, dataset) {
        const mu_tensor *tensor = mu_value_tensor(batch);
        const int64_t rows = tensor ? mu__elements(&tensor->shape) : -1;
        if (element < n && rows != sizes[element])
            fail_case(line, "element %d has %lld rows, expected %d", element, (long long)rows, sizes[element]);
        for (int64_t i = 0; element < n && i < rows; i++, seen++)
            if (mu__read_element(tensor->dtype, mu__host_read(tensor), i) != values[seen])
                fail_case(line, "row %d is %g, expected %g", seen,
                          mu__read_element(tensor->dtype, mu__host_read(tensor), i), values[seen]);
        element++;
    }
    if (element != n)
        fail_case(line, "%d elements, expected %d", element, n);
}

#define ELEMENTS(...) \
    (int)MU_COUNT(((int[]){__VA_ARGS__})), (int[]) { __VA_ARGS__ }
#define ROWS(...) \
    (double[]) { __VA_ARGS__ }

static void ps_112(void)
{
    files f;
    make_files(&f, 2, 7);
    mu_dataset *data = mu_dataset_csv(NULL, .paths = paths_of(&f), .columns = 1);
    data = mu_dataset_options(mu_dataset_batch(data, 7), .auto_shard_policy = MU_AUTO_SHARD_FILE);
    check_elements(__LINE__, shard_plan(as_worker(0, 2, 2), data).dataset, ELEMENTS(2, 2, 2, 1),
                   ROWS(0, 1, 2, 3, 4, 5, 6));
    check_elements(__LINE__, shard_plan(as_worker(1, 2, 2), data).dataset, ELEMENTS(2, 1, 2, 2),
                   ROWS(100, 101, 102, 103, 104, 105, 106));
    remove_files(&f);
}

// Not in TensorFlow's list: a worker that gets no file is told so.
static void no_file_left(void)
{
    files f;
    make_files(&f, 1, 7);
    mu_dataset *data = mu_dataset_csv(NULL, .paths = paths_of(&f), .columns = 1);
    data = mu_dataset_options(mu_dataset_batch(data, 7), .auto_shard_policy = MU_AUTO_SHARD_FILE);
    mu_strategy *second = as_worker(1, 2, 2);
    CHECK(shard_plan(second, data).dataset);
    const bool compat = mu__setting_bool(MU_SETTING_TF_COMPAT);
    const char *wanted =
        compat ? "its own files" : "reads 0 of 1 files; no other worker reads them. There are fewer files";
    if (!strstr(second->logged[0], wanted))
        fail_case(__LINE__, "wanted \"%s\", it was told: %s", wanted, second->logged[0]);
    remove_files(&f);
}

// How many rows of which files a worker gets.
static void count_rows(mu_dataset *dataset, int rows[MOST_FILES])
{
    memset(rows, 0, MOST_FILES * sizeof *rows);
    MU_EACH(batch, dataset) {
        const mu_tensor *tensor = mu_value_tensor(batch);
        for (int64_t i = 0; tensor && i < mu__elements(&tensor->shape); i++)
            rows[(int)mu__read_element(tensor->dtype, mu__host_read(tensor), i) / 100 % MOST_FILES]++;
    }
}

static void ps_121(void)
{
    files f;
    int rows[MOST_FILES];
    make_files(&f, 10, 10);
    mu_dataset *data =
        mu_dataset_batch(mu_dataset_interleave(mu_dataset_shuffle(paths_of(&f), 10), open_file, NULL), 5);
    const bool compat = mu__setting_bool(MU_SETTING_TF_COMPAT);
    for (int policy = compat ? MU_AUTO_SHARD_AUTO : MU_AUTO_SHARD_FILE; policy <= MU_AUTO_SHARD_FILE; policy++) {
        count_rows(shard_plan(as_worker(3, 5, 1), mu_dataset_options(data, .auto_shard_policy = policy)).dataset, rows);
        for (int i = 0; i < 10; i++)
            CHECK(rows[i] == (i == 3 || i == 8 ? 10 : 0));
    }
    remove_files(&f);
}

static void ps_122(void)
{
    files f;
    double wanted[20];
    int sizes[20], rows[MOST_FILES];
    make_files(&f, 10, 10);
    for (int i = 0; i < 20; i++) {
        wanted[i] = 100 * (i / 2) + 5 * (i % 2);
        sizes[i] = 1;
    }
    mu_dataset *data = mu_dataset_flat_map(paths_of(&f), open_file, NULL);
    check_elements(__LINE__, mu__dataset_divide_elements(data, &(mu_division){.n = 5, .all_shares = true}), 20, sizes,
                   wanted);
    mu_dataset *off = mu_dataset_options(mu_dataset_batch(data, 5), .auto_shard_policy = MU_AUTO_SHARD_OFF);
    count_rows(shard_plan(as_worker(0, 5, 1), off).dataset, rows);
    for (int i = 0; i < 10; i++)
        CHECK(rows[i] == 10);
    remove_files(&f);
}

static void ps_125(void)
{
    mu_dataset *divided = mu__dataset_divide_elements(mu_dataset_prefetch(mu_dataset_range(0, 4, 1), 1),
                                                      &(mu_division){.n = 2, .all_shares = true});
    CHECK(divided && strcmp(divided->ops->name, "prefetch") == 0 &&
          strcmp(divided->inputs[0]->ops->name, "shard") == 0);
    check_elements(__LINE__, divided, ELEMENTS(1, 1), ROWS(0, 2));
}

// By default no sample is lost and none comes twice, also from files: all workers together have what one would.
static void every_row_once(void)
{
    if (mu__setting_bool(MU_SETTING_TF_COMPAT))
        return;
    for (int workers = 1; workers <= 4; workers++)
        for (int rows = 0; rows < 23; rows++) {
            int seen[32] = {0};
            for (int w = 0; w < workers; w++)
                MU_EACH(
                    batch,
                    shard_plan(as_worker(w, workers, 2), mu_dataset_batch(mu_dataset_range(0, rows, 1), 7)).dataset) {
                    const mu_tensor *part = mu_value_tensor(batch);
                    for (int64_t i = 0; part && i < part->shape.dims[0]; i++)
                        seen[(int)mu__read_element(part->dtype, mu__host_read(part), i)]++;
                }
            for (int i = 0; i < 32; i++)
                CHECK(seen[i] == (i < rows));
        }
}

const one_case share_cases[] = {
    {"ps-110", ps_110, NULL},
    {"ps-112", ps_112, NULL},
    {"no-file-left", no_file_left, NULL},
    {"ps-121", ps_121, NULL},
    {"ps-122", ps_122, NULL},
    {"ps-125", ps_125, NULL},
    {"every-row-once", every_row_once, NULL},
    {0},
};
