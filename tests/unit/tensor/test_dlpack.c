// DLPack: exported and imported without a copy, every type, both forms; strided or unaligned tensors are copied,
// unreadable ones are refused and remain the caller's; nothing leaks.
#include "tensor_test.h"

#include <muster/dlpack.h>

// The part of the interface that the test builds by hand, laid out as DLPack says.
typedef struct dl_managed {
    struct {
        void *data;
        int32_t device_type, device_id, rank;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

static int deleted;

static void count_delete(dl_managed *self)
{
    (void)self;
    deleted++;
}

static dl_managed floats(float *data, int rank, int64_t *shape, int64_t *strides)
{
    dl_managed m = {.deleter = count_delete};
    m.tensor.data = data;
    m.tensor.device_type = 1;
    m.tensor.rank = rank;
    m.tensor.code = 2;
    m.tensor.bits = 32;
    m.tensor.lanes = 1;
    m.tensor.shape = shape;
    m.tensor.strides = strides;
    deleted = 0;
    return m;
}

static void test_round_trips_copy_nothing(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};
    static const struct {
        int rank;
        int64_t dims[3];
    } shapes[] = {{0, {0}}, {1, {5}}, {3, {2, 1, 3}}, {2, {0, 4}}};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t s = 0; s < MU_COUNT(shapes); s++)
            for (int versioned = 0; versioned < 2; versioned++) {
                mu_pool *pool = mu_pool_open();
                mu_tensor *tensor = mu_tensor_new(dtypes[d], shapes[s].rank, shapes[s].dims, NULL);
                const void *data = mu_tensor_data(tensor);
                mu_tensor *again = mu_from_dlpack(mu_to_dlpack(tensor, versioned), versioned);
                assert_non_null(again);
                assert_ptr_equal(mu_tensor_data(again), data);
                assert_int_equal(mu_tensor_dtype(again), dtypes[d]);
                mu_shape seen = mu_tensor_shape(again), wanted = mu_tensor_shape(tensor);
                assert_true(mu__shape_equal(&seen, &wanted));
                mu_pool_close(pool);
            }
}

static void test_the_deleter_is_called_once(void **state)
{
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6};
    int64_t shape[] = {2, 3}, row_major[] = {3, 1};
    dl_managed m = floats(data, 2, shape, row_major);
    mu_pool *pool = mu_pool_open();
    mu_tensor *tensor = mu_from_dlpack(&m, false);
    assert_ptr_equal(mu_tensor_data(tensor), data);
    mu_retain(tensor);
    mu_pool_close(pool);
    assert_int_equal(deleted, 0);
    mu_release(tensor);
    assert_int_equal(deleted, 1);
}

// PyTorch gives no memory for a tensor without elements; such a tensor can be lent on.
static void test_nothing_may_lie_nowhere(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    int64_t shape[] = {0, 3};
    dl_managed given = floats(NULL, 2, shape, NULL);
    mu_tensor *tensor = mu_from_dlpack(&given, false);
    assert_non_null(tensor);
    dl_managed *lent = mu_to_dlpack(tensor, false);
    assert_non_null(lent);
    mu_pool_close(pool);
    assert_int_equal(deleted, 0);
    lent->deleter(lent);
    assert_int_equal(deleted, 1);
}

static void test_strides_are_copied(void **state)
{
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6};
    int64_t shape[] = {3, 2}, transposed[] = {1, 3}, one[] = {1, 3}, any[] = {77, 1}, backwards[] = {-1};
    mu_pool *pool = mu_pool_open();
    dl_managed m = floats(data, 2, shape, transposed);
    const float *seen = mu_tensor_data(mu_from_dlpack(&m, false));
    const float wanted[] = {1, 4, 2, 5, 3, 6};
    assert_memory_equal(seen, wanted, sizeof wanted);
    assert_int_equal(deleted, 1);
    m = floats(data, 2, one, any); // the stride of an axis of size 1 means nothing
    assert_ptr_equal(mu_tensor_data(mu_from_dlpack(&m, false)), data);
    m = floats(data + 2, 1, &shape[0], backwards);
    seen = mu_tensor_data(mu_from_dlpack(&m, false));
    const float turned[] = {3, 2, 1};
    assert_memory_equal(seen, turned, sizeof turned);
    m = floats(data, 1, &shape[1], NULL);
    m.tensor.byte_offset = 4;
    assert_float_equal(((const float *)mu_tensor_data(mu_from_dlpack(&m, false)))[0], 2, 0);
    char bytes[12];
    memcpy(bytes + 1, data, 8);
    m = floats(data, 1, &shape[1], NULL);
    m.tensor.data = bytes;
    m.tensor.byte_offset = 1;
    seen = mu_tensor_data(mu_from_dlpack(&m, false));
    assert_int_equal((uintptr_t)seen % 4, 0);
    assert_float_equal(seen[1], 2, 0);
    mu_pool_close(pool);
}

static void test_what_cannot_be_read_stays_the_callers(void **state)
{
    (void)state;
    float data[4] = {0};
    int64_t shape[] = {2, 2, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-2}, huge[] = {INT64_MAX, INT64_MAX};
    dl_managed m = floats(data, 2, shape, NULL);
    m.tensor.device_type = 2;
    assert_null(mu_from_dlpack(&m, false));
    assert_taken(MU_UNIMPLEMENTED, "device of type 2");
    m = floats(data, 2, shape, NULL);
    m.tensor.lanes = 4;
    assert_null(mu_from_dlpack(&m, false));
    assert_taken(MU_UNIMPLEMENTED, "4 lanes");
    m = floats(data, 9, shape, NULL);
    assert_null(mu_from_dlpack(&m, false));
    assert_taken(MU_INVALID_ARGUMENT, "rank 9");
    m = floats(data, 1, negative, NULL);
    assert_null(mu_from_dlpack(&m, false));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    m = floats(data, 2, huge, NULL);
    assert_null(mu_from_dlpack(&m, false));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    m = floats(NULL, 1, shape, NULL);
    assert_null(mu_from_dlpack(&m, false));
    assert_taken(MU_INVALID_ARGUMENT, "no memory");
    uint32_t future[32] = {9, 0};
    assert_null(mu_from_dlpack(future, true));
    assert_taken(MU_UNIMPLEMENTED, "major version 9");
    assert_null(mu_from_dlpack(NULL, true));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_int_equal(deleted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips_copy_nothing),
        cmocka_unit_test(test_the_deleter_is_called_once),
        cmocka_unit_test(test_nothing_may_lie_nowhere),
        cmocka_unit_test(test_strides_are_copied),
        cmocka_unit_test(test_what_cannot_be_read_stays_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
