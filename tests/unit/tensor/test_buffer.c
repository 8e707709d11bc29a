// Tests of buffers and memory spaces: elements that are not on the host are fetched once, by the first reader, or that
// read fails.
#include "tensor_test.h"

#include "own_memory_space.h"

static own_memory_space far = OWN_MEMORY_SPACE("FAR:0");

// A tensor in that memory space with the elements 1 to n.
static mu_tensor *far_tensor(int64_t n)
{
    float data[16];
    const mu_spec spec = {.dtype = MU_F32, .shape = mu_shape_make(1, &n)};
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)(i + 1);
    mu_buffer *buffer = mu__give(mu__buffer_at(&far.memory_space, &spec));
    assert_non_null(buffer);
    assert_int_equal(mu__buffer_from_host(buffer, data), MU_OK);
    return mu__give(mu__tensor_view(buffer, 0, MU_F32, &spec.shape));
}

static void test_the_host_costs_nothing(void **state)
{
    (void)state;
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(4)};
    mu_buffer *buffer = mu__buffer_at(&mu__host_memory, &spec);
    float in[] = {1, 2, 3, 4}, out[4];
    assert_ptr_equal(buffer->memory_space, &mu__host_memory);
    assert_int_equal(mu__buffer_from_host(buffer, in), MU_OK);
    assert_memory_equal(buffer->data, in, sizeof in);
    assert_int_equal(mu__buffer_to_host(buffer, out), MU_OK);
    assert_memory_equal(out, in, sizeof in);
    mu_release(buffer);
}

static void test_elements_elsewhere_are_fetched_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    far = (own_memory_space)OWN_MEMORY_SPACE("FAR:0");
    mu_tensor *tensor = far_tensor(6);
    mu_tensor *part = mu__give(mu__tensor_view(tensor->buffer, 3 * sizeof(float), MU_F32, &mu__scalar_shape));
    assert_int_equal(far.to_host, 0);
    assert_true(((const float *)mu_tensor_data(tensor))[5] == 6);
    assert_true(mu_scalar(part) == 4);
    assert_int_equal(far.to_host, 1);
    mu_pool_close(pool);
    assert_int_equal(far.live, 0);
}

static void test_a_memory_space_that_fails(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    far = (own_memory_space)OWN_MEMORY_SPACE("FAR:0");
    mu_tensor *tensor = far_tensor(2);
    float out[2];
    far.fails = true;
    assert_null(mu_tensor_data(tensor));
    assert_taken(MU_UNAVAILABLE, "FAR:0 does not answer");
    assert_int_equal(mu_tensor_copy_to(tensor, out, sizeof out), MU_UNAVAILABLE);
    assert_taken(MU_UNAVAILABLE, "FAR:0 does not answer");
    far.fails = false;
    assert_int_equal(mu_tensor_copy_to(tensor, out, sizeof out), MU_OK); // a failure leaves nothing behind
    assert_true(out[1] == 2);
    mu_pool_close(pool);
    assert_int_equal(far.live, 0);
}

static void test_printing_says_what_is_wrong(void **state)
{
    (void)state;
    char text[200] = "";
    mu_pool *pool = mu_pool_open();
    far = (own_memory_space)OWN_MEMORY_SPACE("FAR:0");
    FILE *out = fmemopen(text, sizeof text, "w");
    mu_tensor *tensor = far_tensor(3);
    far.fails = true;
    mu_tensor_print(tensor, out);
    assert_taken(MU_UNAVAILABLE, "FAR:0 does not answer");
    far.fails = false;
    mu_tensor_print(tensor, out);
    fclose(out);
    assert_non_null(strstr(text, "FAR:0 does not answer"));
    assert_non_null(strstr(text, "[1. 2. 3.]"));
    mu_pool_close(pool);
}

static void test_without_memory(void **state)
{
    (void)state;
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(4)};
    int failures = 0;
    mu_buffer *buffer = NULL;
    far = (own_memory_space)OWN_MEMORY_SPACE("FAR:0");
    for (; !buffer && failures < 10; failures++) {
        mu__alloc_fail_at(failures + 1);
        buffer = mu__buffer_at(&far.memory_space, &spec);
        mu__alloc_fail_at(0);
        if (!buffer)
            assert_taken(MU_RESOURCE_EXHAUSTED, "");
    }
    assert_int_equal(failures, 3); // the block, the buffer, and then none
    mu_release(buffer);
    assert_int_equal(far.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_host_costs_nothing),
        cmocka_unit_test(test_elements_elsewhere_are_fetched_once),
        cmocka_unit_test(test_a_memory_space_that_fails),
        cmocka_unit_test(test_printing_says_what_is_wrong),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
