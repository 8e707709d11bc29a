// Fuzzes what replicas tell each other inside of collective ops: shapes ahead of an all_gather, numbers and indices of
// sparse gradients. A communicator that only plays one hands out the input in place of what the others would say; the
// ops refuse it or stay within their memory.
#include "ops/nn/nn.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { RANKS = 2, ROWS = 6, COLUMNS = 3, MOST_BYTES = 1 << 16 };

typedef struct stranger {
    mu_collective collective; // first
    const uint8_t *data;
    size_t left;
} stranger;

static void hand_out(stranger *s, void *out, size_t bytes)
{
    const size_t n = MU_MIN(bytes, s->left);
    memset(out, 0, bytes);
    if (n > 0)
        memcpy(out, s->data, n);
    s->data += n;
    s->left -= n;
}

// The own part stays, the other's is the input.
static mu_status gather(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                        int64_t count, void *out, const int64_t *counts)
{
    const size_t element = mu_dtype_bytes(dtype);
    (void)number, (void)name;
    memcpy(out, in, (size_t)count * element);
    if (counts[1] < 0 || (uint64_t)counts[1] > MOST_BYTES / element)
        return mu__error(MU_INVALID_ARGUMENT, "as real ones do for other counts");
    hand_out((stranger *)self, (char *)out + (size_t)count * element, (size_t)counts[1] * element);
    return MU_OK;
}

static mu_status add(mu_collective *self, int64_t number, const char *name, mu_reduction reduction, mu_dtype dtype,
                     void *data, int64_t count)
{
    (void)self, (void)number, (void)name, (void)reduction, (void)dtype, (void)data, (void)count;
    return MU_OK;
}

static stranger new_stranger(const uint8_t *data, size_t bytes)
{
    return (stranger){
        .collective = {.size = RANKS, .all_gather = gather, .all_reduce = add}, .data = data, .left = bytes};
}

static void try_shapes(const uint8_t *data, size_t bytes)
{
    float in[2 * 3] = {0}, out[4 * 3];
    int64_t extents[RANKS];
    stranger other = new_stranger(data, bytes);
    const mu_all_gather_attrs attrs = {.axis = 0, .ranks = RANKS, .name = "x"};
    const mu_view views[] = {
        {MU_F32, MU_SHAPE(2, 3), in}, {MU_F32, MU_SHAPE(4, 3), out}, {MU_I64, MU_SHAPE(RANKS), extents}};
    const mu_kernel kernel = {.op = &mu_op_all_gather,
                              .attrs = &attrs,
                              .n_in = 1,
                              .n_out = 2,
                              .in = views,
                              .out = views + 1,
                              .collective = &other.collective};
    mu_spec measured[] = {{MU_F32, MU_SHAPE(MU_UNKNOWN, 3)}, {MU_I64, MU_SHAPE(RANKS)}};
    (void)mu_op_all_gather.ref(&kernel);
    mu_error_take();
    other = new_stranger(data, bytes);
    if (mu_op_all_gather.measure(&kernel, measured) == MU_OK && measured[0].shape.dims[0] < 2)
        abort();
    mu_error_take();
}

static void try_slices(const uint8_t *data, size_t bytes)
{
    static const mu_team alone = {1};
    float rate = .1f, momentum = 0, values[2 * COLUMNS] = {1, 2, 3}, variable[ROWS * COLUMNS] = {0};
    int64_t indices[2] = {1, 4};
    stranger other = new_stranger(data, bytes);
    const mu_apply_slices_attrs attrs = {.reduce = true, .name = "x"};
    const mu_view in[] = {{MU_F32, {0}, &rate},
                          {MU_F32, {0}, &momentum},
                          {MU_F32, MU_SHAPE(2, COLUMNS), values},
                          {MU_I64, MU_SHAPE(2), indices}},
                  resource = {MU_F32, MU_SHAPE(ROWS, COLUMNS), variable};
    const mu_kernel kernel = {.op = &mu_op_apply_gradient_descent_slices,
                              .attrs = &attrs,
                              .n_in = 4,
                              .in = in,
                              .n_resources = 1,
                              .resources = &resource,
                              .team = &alone,
                              .collective = &other.collective};
    (void)mu_op_apply_gradient_descent_slices.ref(&kernel);
    mu_error_take();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    try_shapes(data, bytes);
    try_slices(data, bytes);
    return 0;
}
