// What the tests of files with tensors share: a folder of their own, the tensors of the golden files, and a
// comparison with them.
#ifndef MU_TESTS_IO_GOLDEN_H
#define MU_TESTS_IO_GOLDEN_H

#include "../scratch.h"
#include "io/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define GOLDEN MU_TEST_GOLDEN "/"

static inline int start(void **state) { return scratch_enter(state) == 0 && mu_init(.threads = 1) == MU_OK ? 0 : -1; }

static inline int finish(void **state)
{
    return mu_exit(true) == 0 && mu__live_objects(stderr) == 0 ? scratch_leave(state) : -1;
}

// The tensors of tests/golden/make_tensor_files.py and make_safetensors.py.
static inline mu_value *golden_map(void)
{
    float kernel[24];
    for (int i = 0; i < 24; i++)
        kernel[i] = (float)i / 4;
    return mu_map("conv2d/kernel", mu_tensor_new(MU_F32, 3, (int64_t[]){2, 3, 4}, kernel), "conv2d/bias",
                  mu_tensor_new(MU_F64, 1, (int64_t[]){3}, (double[]){-1.5, 0, 2}), "step",
                  mu_tensor_new(MU_I64, 0, NULL, (int64_t[]){7}), "mask",
                  mu_tensor_new(MU_BOOL, 1, (int64_t[]){3}, (bool[]){true, false, true}), "empty",
                  mu_tensor_new(MU_I32, 2, (int64_t[]){0, 5}, NULL), "bytes",
                  mu_tensor_new(MU_U8, 1, (int64_t[]){3}, (uint8_t[]){0, 127, 255}), "half",
                  mu_tensor_new(MU_F16, 1, (int64_t[]){2}, (uint16_t[]){0x3c00, 0xc000}), MU_END);
}

static inline bool same(const mu_tensor *a, const mu_tensor *b)
{
    const mu_spec spec = mu__spec_of(a);
    return b && a->dtype == b->dtype && mu__shape_equal(&a->shape, &b->shape) &&
           (mu__spec_bytes(&spec) == 0 || memcmp(mu__host_read(a), mu__host_read(b), mu__spec_bytes(&spec)) == 0);
}

// The bytes of a file; free them with mu__free.
static inline void *slurp(const char *from, size_t *bytes)
{
    void *data = NULL;
    assert_int_equal(mu__file_read(from, 1 << 20, &data, bytes), MU_OK);
    return data;
}

static inline void assert_golden(const char *from)
{
    mu_value *wanted = golden_map(), *seen = mu_load_tensors(from);
    if (mu_error_code())
        fail_msg("%s: %s", from, mu_error_message());
    assert_int_equal(mu_value_count(seen), mu_value_count(wanted));
    for (int i = 0; i < wanted->n; i++)
        if (!same(mu_value_tensor(wanted->items[i]), mu_value_tensor(mu_value_get(seen, wanted->keys[i]))))
            fail_msg("%s: %s differs", from, wanted->keys[i]);
}

#endif
