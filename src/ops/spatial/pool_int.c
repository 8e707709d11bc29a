// Max pools of integers, which have no gradients and no NaN: one set of loops per type.
//
// Padding is ignored; ties go to the first element.
#include "ops/spatial/pool.h"

#define T        int8_t
#define LEAST    INT8_MIN
#define FN(name) i8_##name
#include "ops/spatial/pool_int_loops.inc.c"

#define T        uint8_t
#define LEAST    0
#define FN(name) u8_##name
#include "ops/spatial/pool_int_loops.inc.c"

#define T        int16_t
#define LEAST    INT16_MIN
#define FN(name) i16_##name
#include "ops/spatial/pool_int_loops.inc.c"

#define T        int32_t
#define LEAST    INT32_MIN
#define FN(name) i32_##name
#include "ops/spatial/pool_int_loops.inc.c"

#define T        int64_t
#define LEAST    INT64_MIN
#define FN(name) i64_##name
#include "ops/spatial/pool_int_loops.inc.c"

void mu__max_pool_whole(const mu_pool_call *call, int64_t begin, int64_t end)
{
    switch (call->dtype) {
    case MU_I8: i8_max_pool(call, begin, end); break;
    case MU_U8: u8_max_pool(call, begin, end); break;
    case MU_I16: i16_max_pool(call, begin, end); break;
    case MU_I32: i32_max_pool(call, begin, end); break;
    default: i64_max_pool(call, begin, end); break;
    }
}
