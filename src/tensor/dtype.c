// Element types: the table of dtype.def, and single elements read and written as double.
//
// The table is indexed by TensorFlow's number, so a lookup is one bound check. f16 and bf16 are kept as
// their bits; conversions go through float. Whole arrays are converted in convert.c.
#include "tensor/tensor.h"

#include <math.h>

typedef struct dtype_row {
    const char *name;
    size_t bytes;
    const char *hlo, *safetensors;
    char kind;
} dtype_row;

#define MU_N_DTYPE_NUMBERS 20
enum { F = 'F', I = 'I', U = 'U', B = 'B' };
static const dtype_row rows[MU_N_DTYPE_NUMBERS] = {
#define MU_DTYPE(id, text, type, number, hlo_name, safe_name, type_kind) \
    [number] = {text, sizeof(type), hlo_name, safe_name, type_kind},
#include "tensor/dtype.def"
#undef MU_DTYPE
};

static const dtype_row *row_of(mu_dtype dtype)
{
    return (unsigned)dtype < MU_N_DTYPE_NUMBERS ? &rows[dtype] : &rows[0];
}

bool mu__dtype_ok(mu_dtype dtype) { return row_of(dtype)->bytes > 0; }

static const char string_name[] = "string";

const char *mu_dtype_name(mu_dtype dtype)
{
    return mu__dtype_ok(dtype) ? row_of(dtype)->name : dtype == MU_STRING ? string_name : "unknown";
}

size_t mu_dtype_bytes(mu_dtype dtype) { return dtype == MU_STRING ? sizeof(int64_t) : row_of(dtype)->bytes; }

bool mu__dtype_is_float(mu_dtype dtype) { return row_of(dtype)->kind == F; }

bool mu__dtype_is_half(mu_dtype dtype) { return dtype == MU_F16 || dtype == MU_BF16; }

bool mu__dtype_is_integer(mu_dtype dtype) { return row_of(dtype)->kind == I || row_of(dtype)->kind == U; }

const char *mu__dtype_hlo(mu_dtype dtype) { return row_of(dtype)->hlo; }

const char *mu__dtype_safetensors(mu_dtype dtype) { return row_of(dtype)->safetensors; }

mu_dtype mu__dtype_from_safetensors(const char *name)
{
    for (int i = 0; i < MU_N_DTYPE_NUMBERS; i++)
        if (rows[i].bytes && strcmp(rows[i].safetensors, name) == 0)
            return (mu_dtype)i;
    return MU_DTYPE_DEFAULT;
}

mu_dtype mu__dtype_from_name(const char *name)
{
    for (int i = 0; i < MU_N_DTYPE_NUMBERS; i++)
        if (rows[i].bytes && strcmp(rows[i].name, name) == 0)
            return (mu_dtype)i;
    return strcmp(name, string_name) == 0 ? MU_STRING : MU_DTYPE_DEFAULT;
}

mu_dtype mu_dtype_from_name(const char *name)
{
    static const mu_enum_name names[] = {
#define MU_DTYPE(id, text, type, number, hlo_name, safe_name, type_kind) {number, text},
#include "tensor/dtype.def"
#undef MU_DTYPE
        {MU_STRING, string_name}, {0, NULL}};
    return (mu_dtype)mu__enum_number(names, name, MU_DTYPE_DEFAULT, "mu_dtype_from_name");
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float mu__bf16_to_f32(uint16_t bits) { return bits_float((uint32_t)bits << 16); }

uint16_t mu__f32_to_bf16(float value)
{
    uint32_t bits = float_bits(value);
    if (value != value)
        return (uint16_t)((bits >> 16) | 0x40); // keeps a NaN whose only set fraction bits are in the low half
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float mu__f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f)
        return bits_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) { // zero or denormal: fraction * 2^-24, exact in float
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t mu__f32_to_f16(float value)
{
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) // rounds to 2^16 or more
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { // below 2^-14: adding 0.5 puts the denormal's rounded fraction into the low bits
        uint32_t sum = float_bits(bits_float(magnitude) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    magnitude += 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

double mu__read_element(mu_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case MU_F32: return ((const float *)data)[i];
    case MU_F64: return ((const double *)data)[i];
    case MU_I32: return ((const int32_t *)data)[i];
    case MU_U8: return ((const uint8_t *)data)[i];
    case MU_I16: return ((const int16_t *)data)[i];
    case MU_I8: return ((const int8_t *)data)[i];
    case MU_I64: return (double)((const int64_t *)data)[i];
    case MU_BOOL: return ((const uint8_t *)data)[i] != 0;
    case MU_BF16: return mu__bf16_to_f32(((const uint16_t *)data)[i]);
    case MU_F16: return mu__f16_to_f32(((const uint16_t *)data)[i]);
    default: return NAN;
    }
}

static int64_t saturate(double value, double low, double high)
{
    if (value != value)
        return 0;
    return value <= low ? (int64_t)low : value >= high ? (int64_t)high : (int64_t)value;
}

void mu__write_element(mu_dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case MU_F32: ((float *)data)[i] = (float)value; break;
    case MU_F64: ((double *)data)[i] = value; break;
    case MU_I32: ((int32_t *)data)[i] = (int32_t)saturate(value, INT32_MIN, INT32_MAX); break;
    case MU_U8: ((uint8_t *)data)[i] = (uint8_t)saturate(value, 0, UINT8_MAX); break;
    case MU_I16: ((int16_t *)data)[i] = (int16_t)saturate(value, INT16_MIN, INT16_MAX); break;
    case MU_I8: ((int8_t *)data)[i] = (int8_t)saturate(value, INT8_MIN, INT8_MAX); break;
    case MU_I64: // 2^63 itself is not a valid int64
        ((int64_t *)data)[i] = value >= 0x1p63 ? INT64_MAX : saturate(value, -0x1p63, 0x1.fffffffffffffp62);
        break;
    case MU_BOOL: ((bool *)data)[i] = value != 0; break;
    case MU_BF16: ((uint16_t *)data)[i] = mu__f32_to_bf16((float)value); break;
    case MU_F16: ((uint16_t *)data)[i] = mu__f32_to_f16((float)value); break;
    default: break;
    }
}
