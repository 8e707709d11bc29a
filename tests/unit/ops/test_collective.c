// all_reduce and broadcast as ops, over an imitated communicator: packing, arrays side by side, groups of one,
// gradients.
#include "nn_check.h"

// Doubles every element, as a sum over two ranks with equal values would; counts its calls.
typedef struct twin {
    mu_collective collective; // first
    int calls;
    int64_t elements;
} twin;

static mu_status twin_all_reduce(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                 mu_dtype dtype, void *data, int64_t count)
{
    twin *me = (twin *)self;
    (void)number;
    (void)name;
    me->calls++;
    me->elements += count;
    for (int64_t i = 0; i < count && reduction == MU_REDUCTION_SUM; i++)
        mu__write_element(dtype, data, i, 2 * mu__read_element(dtype, data, i));
    return MU_OK;
}

static twin make_twin(void) { return (twin){.collective = {.rank = 0, .size = 2, .all_reduce = twin_all_reduce}}; }

static void run_all_reduce(twin *group, int n, const mu_view *in, const mu_view *out, void *scratch)
{
    static const mu_team alone = {1};
    const mu_all_reduce_attrs attrs = {MU_REDUCTION_SUM, "gradients"};
    const mu_kernel kernel = {.op = &mu_op_all_reduce,
                              .attrs = &attrs,
                              .n_in = n,
                              .n_out = n,
                              .in = in,
                              .out = out,
                              .team = &alone,
                              .collective = group ? &group->collective : NULL,
                              .scratch = scratch};
    assert_int_equal(mu_op_all_reduce.cpu.run(&kernel), MU_OK);
}

static void test_one_call_for_all(void **state)
{
    (void)state;
    float in[6] = {1, 2, 3, 4, 5, 6}, together[6], scratch[6], apart[2][4];
    const mu_view from[] = {{MU_F32, {1, {2}}, in}, {MU_F32, {2, {2, 2}}, in + 2}};
    const mu_view beside[] = {{MU_F32, {1, {2}}, together}, {MU_F32, {2, {2, 2}}, together + 2}};
    const mu_view scattered[] = {{MU_F32, {1, {2}}, apart[1]}, {MU_F32, {2, {2, 2}}, apart[0]}};
    twin group = make_twin();
    run_all_reduce(&group, 2, from, beside, NULL);
    assert_true(group.calls == 1 && group.elements == 6 && together[0] == 2 && together[5] == 12);
    run_all_reduce(&group, 2, from, scattered, scratch);
    assert_true(group.calls == 2 && apart[1][1] == 4 && apart[0][3] == 12);
    run_all_reduce(&group, 2, from, scattered, NULL);
    assert_true(group.calls == 3 && apart[0][0] == 6);
    run_all_reduce(&group, 2, from, from, NULL); // in place
    assert_true(group.calls == 4 && in[0] == 2 && in[5] == 12);
    run_all_reduce(NULL, 2, from, scattered, NULL);
    assert_true(group.calls == 4 && apart[0][0] == 6 && apart[1][0] == 2);
}

static void test_gradient_is_the_same_reduction(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_all_reduce_attrs attrs = {MU_REDUCTION_SUM, "values"};
    mu_tensor *in[3], *out[3];
    for (uint64_t i = 0; i < 3; i++)
        in[i] = random_tensor(MU_F64, MU_SHAPE(2, 3), -1, 1, i);
    for (int o = 0; o < 1; o++)
        check_gradient(&mu_op_all_reduce, &attrs, 3, in, 6, o);
    assert_int_equal(mu__apply(&mu_op_all_reduce, &attrs, 3, in, 0, NULL, out), MU_OK);
    assert_close(out[2], in[2], 0);
    mu_tensor *mixed[] = {in[0], random_tensor(MU_F32, MU_SHAPE(2), -1, 1, 1)};
    assert_int_equal(mu__apply(&mu_op_all_reduce, &attrs, 2, mixed, 0, NULL, out), MU_INVALID_ARGUMENT);
    mu_error_take();
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_call_for_all),
        cmocka_unit_test(test_gradient_is_the_same_reduction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
