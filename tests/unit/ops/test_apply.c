// Effects on variables: assignments, gradient descent and Adam against Keras's formulas written out, fast
// against plain loops; rows; mismatches.
#include "nn_check.h"

enum { SIZE = 37 };

// A resource that is nothing but a tensor.
typedef struct cell {
    mu_resource resource; // first
    mu_tensor *value;
} cell;

static mu_status acquire_cell(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                              mu_buffer **out)
{
    (void)replica;
    (void)access;
    assert_ptr_equal(space, &mu__host_memory);
    *out = mu_retain(((cell *)resource)->value->buffer);
    return MU_OK;
}

static mu_status commit_cell(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer)
{
    (void)replica;
    (void)access;
    assert_ptr_equal(buffer, ((cell *)resource)->value->buffer);
    return MU_OK;
}

static void mark_cell(mu_resource *resource, int replica)
{
    (void)resource;
    (void)replica;
}

static const mu_resource_kind cell_kind = {"cell", acquire_cell, commit_cell, mark_cell};

static cell cell_of(mu_tensor *value)
{
    return (cell){.resource = {.kind = &cell_kind, .spec = mu__spec_of(value)}, .value = value};
}

static void test_assignments(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cell variable = cell_of(random_tensor(MU_F32, MU_SHAPE(3), 2, 2, 1));
    mu_resource *resources[] = {&variable.resource};
    mu_tensor *one = random_tensor(MU_F32, MU_SHAPE(3), 1, 1, 1), *read;
    assert_int_equal(mu__apply(&mu_op_assign_add_variable, NULL, 1, &one, 1, resources, NULL), MU_OK);
    assert_int_equal(mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, resources, &read), MU_OK);
    assert_true(element(read, 2) == 3);
    assert_int_equal(mu__apply(&mu_op_assign_sub_variable, NULL, 1, &read, 1, resources, NULL), MU_OK);
    assert_true(element(variable.value, 0) == 0 && element(read, 0) == 3);
    assert_int_equal(mu__apply(&mu_op_assign_variable, NULL, 1, &one, 1, resources, NULL), MU_OK);
    assert_true(element(variable.value, 1) == 1);
    mu_tensor *wrong = random_tensor(MU_F32, MU_SHAPE(4), 1, 1, 1);
    assert_int_equal(mu__apply(&mu_op_assign_variable, NULL, 1, &wrong, 1, resources, NULL), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "[4]"));
    mu_error_take();
    mu_pool_close(pool);
}

// Runs an effect by one kernel or the other on its own copies of the resources.
static void run_effect(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                       mu_tensor *const *resources, bool fast)
{
    static const mu_team alone = {1};
    mu_view in_views[6], resource_views[3];
    for (int i = 0; i < n_in; i++)
        in_views[i] = view_of(in[i]);
    for (int i = 0; i < n_resources; i++)
        resource_views[i] = view_of(resources[i]);
    const mu_kernel kernel = {.op = op,
                              .attrs = attrs,
                              .n_in = n_in,
                              .in = in_views,
                              .n_resources = n_resources,
                              .resources = resource_views,
                              .team = &alone};
    assert_int_equal(fast ? op->cpu.run(&kernel) : op->ref(&kernel), MU_OK);
}

static void test_adam(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const struct {
        mu_dtype dtype;
        bool fast;
        double tolerance;
    } ways[] = {{MU_F64, false, 1e-14}, {MU_F64, true, 1e-14}, {MU_F32, false, 1e-6}, {MU_F32, true, 1e-6}};
    for (size_t k = 0; k < MU_COUNT(ways); k++) {
        const mu_shape shape = MU_SHAPE(SIZE);
        mu_tensor *resources[] = {random_tensor(ways[k].dtype, shape, -1, 1, 1),
                                  random_tensor(ways[k].dtype, shape, 0, 0, 1),
                                  random_tensor(ways[k].dtype, shape, 0, 0, 1)};
        mu_tensor *in[] = {mu_constant(ways[k].dtype, 0.01),
                           mu_constant(MU_F64, 0.9),
                           mu_constant(MU_F64, 0.999),
                           mu_constant(MU_F64, 1e-7),
                           NULL,
                           NULL};
        double w[SIZE], m[SIZE] = {0}, v[SIZE] = {0};
        for (int64_t i = 0; i < SIZE; i++)
            w[i] = element(resources[0], i);
        for (int step = 0; step < 5; step++) {
            in[4] = mu_constant(MU_I64, step);
            in[5] = random_tensor(ways[k].dtype, shape, -1, 1, 100 + (uint64_t)step);
            run_effect(&mu_op_apply_adam, NULL, 6, in, 3, resources, ways[k].fast);
            const double alpha = element(in[0], 0) * sqrt(1 - pow(0.999, step + 1)) / (1 - pow(0.9, step + 1));
            for (int64_t i = 0; i < SIZE; i++) {
                const double g = element(in[5], i);
                m[i] += (g - m[i]) * (1 - 0.9);
                v[i] += (g * g - v[i]) * (1 - 0.999);
                w[i] -= m[i] * alpha / (sqrt(v[i]) + 1e-7);
                assert_true(fabs(element(resources[0], i) - w[i]) <= ways[k].tolerance);
            }
        }
    }
    mu_pool_close(pool);
}

// 1 - 0.999 in float32 is wrong by 1.3e-5, which shows in a first step: the factors are computed in float64.
static void test_adam_step_in_f32(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double gradient = 0.25, epsilon = 1e-7;
    for (int fast = 0; fast < 2; fast++) {
        double m = 0, v = 0, w = 0;
        mu_tensor *resources[3];
        for (int i = 0; i < 3; i++)
            resources[i] = mu_constant(MU_F32, 0);
        for (int step = 0; step < 100; step++) {
            mu_tensor *in[] = {mu_constant(MU_F64, 0.5),     mu_constant(MU_F64, 0.9),  mu_constant(MU_F64, 0.999),
                               mu_constant(MU_F64, epsilon), mu_constant(MU_I64, step), mu_constant(MU_F32, gradient)};
            run_effect(&mu_op_apply_adam, NULL, 6, in, 3, resources, fast);
            m += (gradient - m) * (1 - 0.9);
            v += (gradient * gradient - v) * (1 - 0.999);
            w -= 0.5 * sqrt(1 - pow(0.999, step + 1)) / (1 - pow(0.9, step + 1)) * m / (sqrt(v) + epsilon);
            if (fabs(element(resources[0], 0) / w - 1) > 1e-6)
                fail_msg("fast %d, step %d: the variable is %.9g; expected %.9g", fast, step + 1,
                         element(resources[0], 0), w);
        }
    }
    mu_pool_close(pool);
}

static void test_gradient_descent(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int k = 0; k < 12; k++) {
        const mu_dtype dtype = k % 2 == 0 ? MU_F64 : MU_F32;
        const bool fast = k / 2 % 2, slot = k / 4 > 0;
        const mu_nesterov_attrs attrs = {.nesterov = k / 4 == 2};
        const double momentum = slot ? 0.9 : 0;
        mu_tensor *resources[] = {random_tensor(dtype, MU_SHAPE(SIZE), -1, 1, 1),
                                  random_tensor(dtype, MU_SHAPE(SIZE), 0, 0, 1)};
        mu_tensor *in[] = {mu_constant(MU_F64, 0.1), mu_constant(MU_F64, momentum), NULL};
        double w[SIZE], velocity[SIZE] = {0};
        for (int64_t i = 0; i < SIZE; i++)
            w[i] = element(resources[0], i);
        for (uint64_t step = 0; step < 3; step++) {
            in[2] = random_tensor(dtype, MU_SHAPE(SIZE), -1, 1, 100 + step);
            run_effect(&mu_op_apply_gradient_descent, &attrs, 3, in, slot ? 2 : 1, resources, fast);
            for (int64_t i = 0; i < SIZE; i++) {
                const double change = -0.1 * element(in[2], i);
                velocity[i] = momentum * velocity[i] + change;
                w[i] += attrs.nesterov ? momentum * velocity[i] + change : velocity[i];
                assert_true(fabs(element(resources[0], i) - w[i]) <= (dtype == MU_F64 ? 1e-14 : 1e-6));
            }
        }
    }
    mu_pool_close(pool);
}

// ---- Rows ---------------------------------------------------------------------------------------

enum { TABLE_ROWS = 40, UPDATES = 1500 };

static mu_tensor *row_numbers(mu_dtype dtype, int64_t n, int64_t rows)
{
    const mu_shape shape = MU_SHAPE(n);
    mu_tensor *numbers = mu__give(mu__tensor_alloc(dtype, &shape));
    for (int64_t i = 0; i < n; i++)
        mu__write_element(dtype, mu__host_write(numbers), i, (double)(i * i % rows));
    return numbers;
}

static void check_scatter(mu_dtype dtype, mu_dtype index_type, int64_t kind, int64_t width)
{
    mu_pool *pool = mu_pool_open();
    const mu_scatter_attrs attrs = {.kind = kind};
    mu_tensor *in[] = {row_numbers(index_type, UPDATES, TABLE_ROWS),
                       random_tensor(dtype, MU_SHAPE(UPDATES, width), 1, 4, 2)};
    mu_tensor *tables[2];
    for (int fast = 0; fast < 2; fast++) {
        tables[fast] = random_tensor(dtype, MU_SHAPE(TABLE_ROWS, width), 1, 100, 3);
        run_effect(&mu_op_scatter_variable, &attrs, 2, in, 1, &tables[fast], fast);
    }
    const mu_spec spec = mu__spec_of(tables[0]);
    if (memcmp(mu__host_read(tables[0]), mu__host_read(tables[1]), mu__spec_bytes(&spec)) != 0)
        fail_msg("scatter %d of %s, rows of %d: not what the plain loops make", (int)kind, mu_dtype_name(dtype),
                 (int)width);
    mu_pool_close(pool);
}

static void test_scattered_rows(void **state)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int64_t kind = MU_SCATTER_ADD; kind <= MU_SCATTER_UPDATE; kind++)
            for (int64_t width = 1; width < 600; width = 12 * width + 1) {
                check_scatter(dtypes[d], MU_I64, kind, width);
                check_scatter(dtypes[d], MU_I32, kind, width);
            }
}

// Graphs come from other processes, so the attribute `kind` may be any number.
static void test_scatters_of_no_kind_are_refused(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cell variable = cell_of(random_tensor(MU_F32, MU_SHAPE(3, 2), 2, 2, 1));
    mu_resource *resources[] = {&variable.resource};
    mu_tensor *in[] = {row_numbers(MU_I64, 2, 3), random_tensor(MU_F32, MU_SHAPE(2, 2), 1, 1, 1)};
    for (int64_t kind = -1; kind <= MU_SCATTER_UPDATE + 1; kind += MU_SCATTER_UPDATE + 2) {
        const mu_scatter_attrs attrs = {.kind = kind};
        assert_int_equal(mu__apply(&mu_op_scatter_variable, &attrs, 2, in, 1, resources, NULL), MU_INVALID_ARGUMENT);
        assert_non_null(strstr(mu_error_message(), "the kind is"));
        mu_error_take();
    }
    mu_pool_close(pool);
}

// A variable in three parts, one of them empty, reads as one.
static void test_rows_of_parts(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t sizes[] = {5, 0, 7};
    const mu_shape shape = MU_SHAPE(5, 6, 4);
    mu_tensor *values[3];
    cell parts[3];
    mu_resource *resources[3];
    for (int i = 0; i < 3; i++) {
        values[i] = random_tensor(MU_F32, MU_SHAPE(sizes[i], 4), -1, 1, 5 + (uint64_t)i);
        parts[i] = cell_of(values[i]);
        resources[i] = &parts[i].resource;
    }
    mu_tensor *numbers = mu_reshape(row_numbers(MU_I32, 30, 12), 2, (int64_t[]){5, 6}), *rows;
    const mu_tensor *wanted = mu_gather(mu_concat(3, values, 0), numbers, 0, 0);
    assert_int_equal(mu__apply(&mu_op_gather_variable, NULL, 1, &numbers, 3, resources, &rows), MU_OK);
    assert_true(mu__shape_equal(&rows->shape, &shape));
    assert_memory_equal(mu__host_read(rows), mu__host_read(wanted), 5 * 6 * 4 * sizeof(float));
    numbers = mu_constant(MU_I64, 12);
    assert_int_equal(mu__apply(&mu_op_gather_variable, NULL, 1, &numbers, 3, resources, &rows), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "index 12"));
    mu_error_take();
    parts[2].resource.spec.shape.dims[1] = 3;
    assert_int_equal(mu__apply(&mu_op_gather_variable, NULL, 1, &numbers, 3, resources, &rows), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "all parts must have the same type and the same axes after the first"));
    mu_error_take();
    mu_pool_close(pool);
}

static void test_mismatches_say_why(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cell variable = cell_of(random_tensor(MU_F32, MU_SHAPE(3), 2, 2, 1));
    mu_resource *resources[] = {&variable.resource};
    const mu_nesterov_attrs attrs = {false};
    mu_tensor *in[] = {mu_constant(MU_F32, 0.1), mu_constant(MU_F32, 0), random_tensor(MU_F32, MU_SHAPE(4), -1, 1, 1)};
    assert_int_equal(mu__apply(&mu_op_apply_gradient_descent, &attrs, 3, in, 1, resources, NULL), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "gradient"));
    mu_error_take();
    in[0] = in[2];
    assert_int_equal(mu__apply(&mu_op_apply_gradient_descent, &attrs, 3, in, 1, resources, NULL), MU_INVALID_ARGUMENT);
    assert_non_null(strstr(mu_error_message(), "scalar"));
    mu_error_take();
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_assignments),      cmocka_unit_test(test_adam),
        cmocka_unit_test(test_adam_step_in_f32), cmocka_unit_test(test_gradient_descent),
        cmocka_unit_test(test_scattered_rows),   cmocka_unit_test(test_scatters_of_no_kind_are_refused),
        cmocka_unit_test(test_rows_of_parts),    cmocka_unit_test(test_mismatches_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
