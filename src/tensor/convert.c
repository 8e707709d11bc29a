// Converts arrays from one element type to another, as TensorFlow's cast does on x86.
//
// Floats truncate to integers; a value that does not fit (and NaN) becomes the least int32 or int64, and its low bits
// in smaller types, as the processor's conversion gives it. f16 and bf16 go through a small float buffer. The loops are
// in convert_from.inc.c, which is compiled once per source type.
#include "kernels/kernels.h"
#include "tensor/tensor.h"

static inline int32_t float_to_i32(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN; }

static inline int64_t float_to_i64(float x) { return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN; }

static inline int32_t double_to_i32(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN; }

static inline int64_t double_to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

#define T         float
#define FN(name)  f32_##name
#define NARROW(x) float_to_i32(x)
#define WIDE(x)   float_to_i64(x)
#include "tensor/convert_from.inc.c"

#define T         double
#define FN(name)  f64_##name
#define NARROW(x) double_to_i32(x)
#define WIDE(x)   double_to_i64(x)
#include "tensor/convert_from.inc.c"

#define T         int64_t
#define FN(name)  i64_##name
#define NARROW(x) ((int32_t)(x))
#define WIDE(x)   (x)
#include "tensor/convert_from.inc.c"

#define T         int32_t
#define FN(name)  i32_##name
#define NARROW(x) (x)
#define WIDE(x)   (x)
#include "tensor/convert_from.inc.c"

#define T         int16_t
#define FN(name)  i16_##name
#define NARROW(x) (x)
#define WIDE(x)   (x)
#include "tensor/convert_from.inc.c"

#define T         int8_t
#define FN(name)  i8_##name
#define NARROW(x) (x)
#define WIDE(x)   (x)
#include "tensor/convert_from.inc.c"

#define T         uint8_t
#define FN(name)  u8_##name
#define NARROW(x) (x)
#define WIDE(x)   (x)
#include "tensor/convert_from.inc.c"

static void convert_plain(mu_dtype to, void *out, mu_dtype from, const void *in, int64_t n)
{
    switch (from) {
    case MU_F32: f32_from(to, out, in, n); break;
    case MU_F64: f64_from(to, out, in, n); break;
    case MU_I64: i64_from(to, out, in, n); break;
    case MU_I32: i32_from(to, out, in, n); break;
    case MU_I16: i16_from(to, out, in, n); break;
    case MU_I8: i8_from(to, out, in, n); break;
    case MU_U8:
    case MU_BOOL: u8_from(to, out, in, n); break; // a bool is a byte of 0 or 1
    default: break;
    }
}

void mu__convert(mu_dtype to, void *out, mu_dtype from, const void *in, int64_t n)
{
    if (n <= 0)
        return;
    if (to == from) {
        memmove(out, in, (size_t)n * mu_dtype_bytes(to));
        return;
    }
    if (!mu__dtype_is_half(to) && !mu__dtype_is_half(from)) {
        convert_plain(to, out, from, in, n);
        return;
    }
    if (from == MU_F32) {
        (to == MU_BF16 ? mu__kernels()->narrow_bf16 : mu__kernels()->narrow_f16)(in, out, n);
        return;
    }
    if (to == MU_F32) {
        (from == MU_BF16 ? mu__kernels()->widen_bf16 : mu__kernels()->widen_f16)(in, out, n);
        return;
    }
    _Alignas(64) float chunk[1024];
    for (int64_t at = 0; at < n; at += MU_COUNT(chunk)) {
        int64_t count = MU_MIN(n - at, (int64_t)MU_COUNT(chunk));
        mu__convert(MU_F32, chunk, from, (const char *)in + (size_t)at * mu_dtype_bytes(from), count);
        mu__convert(to, (char *)out + (size_t)at * mu_dtype_bytes(to), MU_F32, chunk, count);
    }
}
