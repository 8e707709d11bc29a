// The INPUT area of the parameter-server cases, as far as it concerns one machine.
//
// Where TensorFlow drops or empties what need not be, the case holds with MUSTER_TF_COMPAT=1, which the test
// runs a second time with; without it nothing is dropped, and the parts are as even as they can be.
#include "cases.h"

// The sizes and elements of every step, one part after the other.
static void check_parts(int line, void *dataset, int n, const int *sizes, int n_values, const double *values)
{
    int part = 0, seen = 0;
    MU_EACH(batch, (mu_dataset *)dataset) {
        const int parts = batch->kind == MU_VALUE_PER_REPLICA ? batch->n : 1;
        for (int r = 0; r < parts; r++, part++) {
            const mu_tensor *tensor = mu_value_tensor(parts > 1 ? batch->items[r] : batch);
            const int64_t rows = tensor ? mu__elements(&tensor->shape) : -1;
            if (part < n && rows != sizes[part])
                fail_case(line, "part %d has %lld rows, expected %d", part, (long long)rows, sizes[part]);
            for (int64_t i = 0; i < rows; i++, seen++)
                if (seen < n_values && mu__read_element(tensor->dtype, mu__host_read(tensor), i) != values[seen])
                    fail_case(line, "element %d is %g, expected %g", seen,
                              mu__read_element(tensor->dtype, mu__host_read(tensor), i), values[seen]);
        }
    }
    if (part != n || seen != n_values)
        fail_case(line, "%d parts and %d elements, expected %d and %d", part, seen, n, n_values);
}

#define PARTS(...) \
    (int)MU_COUNT(((int[]){__VA_ARGS__})), (int[]) { __VA_ARGS__ }

// Elements 0, 1, … in order.
static void check_range(int line, void *dataset, int n, const int *sizes)
{
    double values[128] = {0};
    int total = 0;
    for (int i = 0; i < n; i++)
        total += sizes[i];
    for (int i = 0; i < total; i++)
        values[i] = i;
    check_parts(line, dataset, n, sizes, total, values);
}

static mu_dataset *batches(int n, int size) { return mu_dataset_batch(mu_dataset_range(0, n, 1), size); }

static bool compat(void) { return mu__setting_bool(MU_SETTING_TF_COMPAT); }

static void ps_113(void)
{
    check_range(__LINE__, mu_dataset_rebatch(batches(8, 4), 2, (int64_t[]){2, 2}, false), PARTS(2, 2, 2, 2));
    check_range(__LINE__, mu_dataset_rebatch(batches(8, 4), 5, (int64_t[]){1, 1, 1, 1, 0}, false),
                PARTS(1, 1, 1, 1, 0, 1, 1, 1, 1, 0));
    check_range(__LINE__, mu_dataset_rebatch(batches(8, 4), 2, (int64_t[]){0, 1}, false),
                PARTS(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0));
    check_range(__LINE__, mu_dataset_rebatch(batches(12, 4), 1, (int64_t[]){6}, false), PARTS(6, 6));
}

static void ps_115(void)
{
    check_range(__LINE__, mu__dataset_split(batches(8, 4), 3), PARTS(2, 2, 0, 2, 2, 0));
    check_range(__LINE__, mu__dataset_split(batches(10, 4), 2), PARTS(2, 2, 2, 2, 1, 1));
    check_range(__LINE__, mu__dataset_split(batches(9, 4), 2), PARTS(2, 2, 2, 2, 1, 0));
}

static void ps_116(void)
{
    MU_EACH(batch, mu__dataset_split(mu_dataset_range(0, 4, 1), 2))
        CHECK(!batch);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    MU_EACH(batch, mu_distribute_dataset(mirrored(2), mu_dataset_range(0, 4, 1)))
        CHECK(!batch);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void ps_118(void)
{
    check_range(__LINE__, mu_distribute_dataset(mirrored(2), batches(10, 4)), PARTS(2, 2, 2, 2, 1, 1));
    if (!compat())
        return;
    mu_dataset *as_files = mu_dataset_options(batches(10, 4), .auto_shard_policy = MU_AUTO_SHARD_FILE);
    check_range(__LINE__, mu_distribute_dataset(mirrored(2), as_files), PARTS(2, 2, 2, 2, 2, 0));
}

static void ps_119(void)
{
    if (compat())
        check_range(__LINE__, mu_distribute_dataset(mirrored(3), batches(8, 4)), PARTS(2, 2, 0, 2, 2, 0));
    else
        check_range(__LINE__, mu_distribute_dataset(mirrored(3), batches(8, 4)), PARTS(2, 1, 1, 2, 1, 1));
    check_range(__LINE__, mu_distribute_dataset(mirrored(5), batches(4, 4)), PARTS(1, 1, 1, 1, 0));
}

static void ps_124(void)
{
    MU_EACH(element, mu__dataset_share(mu_dataset_range(0, 5, 1), 10, 0))
        CHECK(element);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    check_range(__LINE__, mu__dataset_share(mu_dataset_range(0, 0, 1), 10, 0), 0, NULL);
    check_range(__LINE__, mu__dataset_share(mu_dataset_range(0, 10, 1), 500, 499), 0, NULL);
}

static void ps_127(void)
{
    int sizes[20];
    for (int i = 0; i < 20; i++)
        sizes[i] = 5;
    check_range(__LINE__, mu_distribute_dataset(mirrored(2), batches(100, 10)), 20, sizes);
}

static mu_dataset *nine_by_two(const mu_input_context *context, void *arg)
{
    (void)arg;
    CHECK(context->num_input_pipelines == 1 && context->input_pipeline_id == 0);
    return batches(9, 2);
}

static void ps_130(void)
{
    check_range(__LINE__, mu_distribute_datasets_from_function(mirrored(2), nine_by_two, NULL),
                PARTS(2, 2, 2, 2, 1, 0));
}

const one_case input_cases[] = {
    {"ps-113", ps_113, NULL},
    {"ps-115", ps_115, NULL},
    {"ps-116", ps_116, NULL},
    {"ps-118", ps_118, NULL},
    {"ps-119", ps_119, NULL},
    {"ps-124", ps_124, NULL},
    {"ps-127", ps_127, NULL},
    {"ps-130-one-worker", ps_130, NULL},
    {0},
};
