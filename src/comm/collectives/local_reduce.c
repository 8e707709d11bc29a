// Reduces the same slice of several buffers and writes the result to several: the arithmetic of every all-reduce.
//
// Sums of f32 use the fused kernels; other types use plain loops, compiled once per type. Sources are added in their
// given order, so bits never depend on timing. Independent of ranks.
#include "comm/comm.h"

#include "kernels/kernels.h"

#include <math.h>

enum { BLOCK = 1024, MOST_SOURCES = 256 };

// ---- f32, f64 -----------------------------------------------------------------------------------

#define LOAD(x)   (x)
#define STORE(a)  (a)
#define ADD(a, b) ((a) + (b))
#define IS_NAN(a) isnan(a)

#define T          float
#define A          float
#define NAME(word) word##_f32
#include "comm/collectives/local_reduce_loops.inc.c"

#define T          double
#define A          double
#define NAME(word) word##_f64
#include "comm/collectives/local_reduce_loops.inc.c"

// ---- f16, bf16 ----------------------------------------------------------------------------------

#undef LOAD
#undef STORE
#define LOAD(x)    mu__f16_to_f32(x)
#define STORE(a)   mu__f32_to_f16(a)
#define T          uint16_t
#define A          float
#define NAME(word) word##_f16
#include "comm/collectives/local_reduce_loops.inc.c"

#undef LOAD
#undef STORE
#define LOAD(x)    mu__bf16_to_f32(x)
#define STORE(a)   mu__f32_to_bf16(a)
#define T          uint16_t
#define A          float
#define NAME(word) word##_bf16
#include "comm/collectives/local_reduce_loops.inc.c"

// ---- Integers wrap, as in TensorFlow; unsigned, because signed overflow is undefined ------------

#undef LOAD
#undef STORE
#undef ADD
#undef IS_NAN
#define LOAD(x)   (x)
#define STORE(a)  (a)
#define ADD(a, b) ((A)((uint64_t)(a) + (uint64_t)(b)))
#define IS_NAN(a) false

#define T          int64_t
#define A          int64_t
#define NAME(word) word##_i64
#include "comm/collectives/local_reduce_loops.inc.c"

#define T          int32_t
#define A          int32_t
#define NAME(word) word##_i32
#include "comm/collectives/local_reduce_loops.inc.c"

#define T          int16_t
#define A          int16_t
#define NAME(word) word##_i16
#include "comm/collectives/local_reduce_loops.inc.c"

#define T          int8_t
#define A          int8_t
#define NAME(word) word##_i8
#include "comm/collectives/local_reduce_loops.inc.c"

#define T          uint8_t
#define A          uint8_t
#define NAME(word) word##_u8
#include "comm/collectives/local_reduce_loops.inc.c"

// ---- Dispatch by type ---------------------------------------------------------------------------

typedef void reduce_fn(const mu_local_reduce_args *args);

static reduce_fn *function_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return reduce_f32;
    case MU_F64: return reduce_f64;
    case MU_F16: return reduce_f16;
    case MU_BF16: return reduce_bf16;
    case MU_I64: return reduce_i64;
    case MU_I32: return reduce_i32;
    case MU_I16: return reduce_i16;
    case MU_I8: return reduce_i8;
    case MU_U8: return reduce_u8;
    case MU_BOOL:
    case MU_STRING:
    case MU_DTYPE_DEFAULT: break;
    }
    return NULL;
}

bool mu__reduce_supports(mu_dtype dtype) { return function_of(dtype) != NULL; }

int mu__reduce_width(mu_dtype dtype) { return dtype == MU_F16 || dtype == MU_BF16 ? 2 : 1; }

// Dividing by a power of two equals multiplying by its inverse, exactly; the kernel does that in the same pass.
static bool power_of_two(int n) { return (n & (n - 1)) == 0; }

static void sum_f32(const mu_local_reduce_args *args)
{
    const float scale = 1.0f / (float)args->divide, *src[MOST_SOURCES + 1];
    float *open = args->partial, *const *dst = open != NULL ? &open : (float *const *)args->dst;
    int n = 0;
    if (args->prefix != NULL)
        src[n++] = args->prefix;
    for (int i = 0; i < args->n_src; i++)
        src[n++] = args->src[i];
    mu__kernels()->reduce_n(dst, open != NULL ? 1 : args->n_dst, src, n, scale, args->stream, 0, args->count);
}

void mu__reduce(const mu_local_reduce_args *args)
{
    const bool sum = args->reduction == MU_REDUCTION_SUM || args->reduction == MU_REDUCTION_MEAN;
    assert(mu__reduce_supports(args->dtype) && args->n_src >= 1 && args->n_src <= MOST_SOURCES && args->n_dst >= 1 &&
           args->divide >= 1);
    if (args->dtype == MU_F32 && sum && power_of_two(args->divide))
        sum_f32(args);
    else
        function_of(args->dtype)(args);
}
