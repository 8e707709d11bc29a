// The plain loops of arithmetic, comparisons and clipping: each function as it is defined, in float64 or int64.
#include "ops/core/plain.h"
#include "ops/math/elementwise.h"

#include <math.h>

static double real_of_two(int variant, mu_dtype dtype, double x, double y)
{
    const double rest = fmod(x, y), apart = mu__rounded(dtype, x - y);
    switch (variant) {
    case MU_BINARY_ADD: return x + y;
    case MU_BINARY_SUBTRACT: return x - y;
    case MU_BINARY_MULTIPLY: return x * y;
    case MU_BINARY_DIVIDE: return x / y;
    case MU_BINARY_DIVIDE_NO_NAN: return y == 0 ? 0 : x / y;
    case MU_BINARY_FLOOR_DIVIDE: return floor(mu__rounded(dtype, x / y));
    case MU_BINARY_MOD: return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    case MU_BINARY_POW: return pow(x, y);
    case MU_BINARY_MAXIMUM: return x > y || x != x ? x : y;
    case MU_BINARY_MINIMUM: return x < y || x != x ? x : y;
    case MU_BINARY_SQUARED_DIFFERENCE: return apart * apart;
    default: return atan2(x, y);
    }
}

// x to the power y, and the quotient rounded down; both wrap around.
static uint64_t whole_power(uint64_t x, uint64_t y)
{
    uint64_t result = 1;
    for (; y > 0; y >>= 1, x *= x)
        result *= y & 1 ? x : 1;
    return result;
}

static uint64_t whole_quotient(int64_t x, int64_t y)
{
    return y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y - (x % y != 0 && (x < 0) != (y < 0)));
}

static int64_t whole_of_two(int variant, int64_t x, int64_t y)
{
    const uint64_t a = (uint64_t)x, b = (uint64_t)y;
    switch (variant) {
    case MU_BINARY_ADD: return (int64_t)(a + b);
    case MU_BINARY_SUBTRACT: return (int64_t)(a - b);
    case MU_BINARY_MULTIPLY: return (int64_t)(a * b);
    case MU_BINARY_FLOOR_DIVIDE: return (int64_t)whole_quotient(x, y);
    case MU_BINARY_MOD: return (int64_t)(a - whole_quotient(x, y) * b);
    case MU_BINARY_POW: return (int64_t)whole_power(a, b);
    case MU_BINARY_MAXIMUM: return MU_MAX(x, y);
    case MU_BINARY_MINIMUM: return MU_MIN(x, y);
    default: return (int64_t)((a - b) * (a - b));
    }
}

mu_status mu__arithmetic_ref(const mu_kernel *k)
{
    const mu_view *a = &k->in[0], *b = &k->in[1], *out = &k->out[0];
    const int variant = k->op->variant;
    const bool checked = variant == MU_BINARY_FLOOR_DIVIDE || variant == MU_BINARY_MOD || variant == MU_BINARY_POW;
    MU_TRY(checked ? mu__check_integers(k) : MU_OK);
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        const int64_t x = mu__broadcast_at(&out->shape, &a->shape, i), y = mu__broadcast_at(&out->shape, &b->shape, i);
        if (mu__dtype_is_float(out->dtype))
            mu__write_real(out, i, real_of_two(variant, out->dtype, mu__read_real(a, x), mu__read_real(b, y)));
        else
            mu__write_whole(out, i, whole_of_two(variant, mu__read_whole(a, x), mu__read_whole(b, y)));
    }
    return MU_OK;
}

// `order` is that of the operands: below 0 if the first is less. NaN has none.
static bool compared(int variant, bool ordered, int order)
{
    switch (variant) {
    case MU_BINARY_EQUAL: return ordered && order == 0;
    case MU_BINARY_NOT_EQUAL: return !ordered || order != 0;
    case MU_BINARY_LESS: return ordered && order < 0;
    case MU_BINARY_LESS_EQUAL: return ordered && order <= 0;
    case MU_BINARY_GREATER: return ordered && order > 0;
    default: return ordered && order >= 0;
    }
}

mu_status mu__compare_ref(const mu_kernel *k)
{
    const mu_view *a = &k->in[0], *b = &k->in[1];
    const mu_shape *out = &k->out[0].shape;
    for (int64_t i = 0; i < mu__elements(out); i++) {
        const int64_t at = mu__broadcast_at(out, &a->shape, i), bt = mu__broadcast_at(out, &b->shape, i);
        const double x = mu__read_real(a, at), y = mu__read_real(b, bt);
        int order = (x > y) - (x < y);
        bool ordered = x == x && y == y;
        if (!mu__dtype_is_float(a->dtype)) {
            const int64_t left = mu__read_whole(a, at), right = mu__read_whole(b, bt);
            order = (left > right) - (left < right);
            ordered = true;
        }
        ((bool *)k->out[0].data)[i] = compared(k->op->variant, ordered, order);
    }
    return MU_OK;
}

// If the bounds cross, the lower one wins, as in TensorFlow.
mu_status mu__clip_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0], *low = &k->in[1], *high = &k->in[2], *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        const int64_t at = mu__broadcast_at(&out->shape, &x->shape, i);
        const int64_t lt = mu__broadcast_at(&out->shape, &low->shape, i);
        const int64_t ht = mu__broadcast_at(&out->shape, &high->shape, i);
        if (mu__dtype_is_float(out->dtype)) {
            const double below =
                real_of_two(MU_BINARY_MINIMUM, out->dtype, mu__read_real(x, at), mu__read_real(high, ht));
            mu__write_real(out, i, real_of_two(MU_BINARY_MAXIMUM, out->dtype, below, mu__read_real(low, lt)));
        } else {
            const int64_t below = MU_MIN(mu__read_whole(x, at), mu__read_whole(high, ht));
            mu__write_whole(out, i, MU_MAX(below, mu__read_whole(low, lt)));
        }
    }
    return MU_OK;
}
