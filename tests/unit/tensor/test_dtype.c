// Tests of element types: tables, 16-bit floats, conversions as TensorFlow's cast makes them.
#include "tensor_test.h"

static void test_names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(mu_dtype_name(MU_F32), "float32");
    assert_string_equal(mu_dtype_name((mu_dtype)8), "unknown");
    assert_int_equal(mu_dtype_bytes(MU_BF16), 2);
    assert_int_equal(mu_dtype_bytes(MU_DTYPE_DEFAULT), 0);
    assert_int_equal(mu_dtype_bytes((mu_dtype)-1), 0);
    assert_int_equal(mu__dtype_from_name("int8"), MU_I8);
    assert_int_equal(mu__dtype_from_safetensors("BF16"), MU_BF16);
    assert_int_equal(mu__dtype_from_safetensors("F8"), MU_DTYPE_DEFAULT);
}

static void test_every_half_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float f16 = mu__f16_to_f32((uint16_t)bits), bf16 = mu__bf16_to_f32((uint16_t)bits);
        assert_true(f16 != f16 || mu__f32_to_f16(f16) == bits);
        assert_true(bf16 != bf16 || mu__f32_to_bf16(bf16) == bits);
    }
}

static void test_halves_round_to_even(void **state)
{
    (void)state;
    assert_int_equal(mu__f32_to_f16(1 + 0x1p-11f), 0x3c00);     // half way: down to even
    assert_int_equal(mu__f32_to_f16(1 + 3 * 0x1p-11f), 0x3c02); // half way: up to even
    assert_int_equal(mu__f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(mu__f32_to_f16(65520.0f), 0x7c00); // infinity
    assert_int_equal(mu__f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(mu__f32_to_f16(-0x1.8p-25f), 0x8001); // the least denormal
    assert_int_equal(mu__f32_to_bf16(1 + 0x1p-8f), 0x3f80);
    assert_int_equal(mu__f32_to_bf16(3.4e38f), 0x7f80);
    assert_true(isnan(mu__f16_to_f32(mu__f32_to_f16(NAN))));
    assert_true(isnan(mu__bf16_to_f32(mu__f32_to_bf16(NAN))));
}

static void test_floats_to_integers(void **state)
{
    (void)state;
    const float in[] = {-1.9f, 2.9f, 3e9f, NAN, -3e9f, 300.7f};
    int32_t wide[6];
    uint8_t narrow[6];
    int64_t widest[6];
    mu__convert(MU_I32, wide, MU_F32, in, 6);
    mu__convert(MU_U8, narrow, MU_F32, in, 6);
    mu__convert(MU_I64, widest, MU_F32, in, 6);
    assert_int_equal(wide[0], -1);
    assert_int_equal(wide[1], 2);
    assert_int_equal(wide[2], INT32_MIN); // values that do not fit, as the processor converts them
    assert_int_equal(wide[3], INT32_MIN);
    assert_int_equal(narrow[5], 300 % 256);
    assert_true(widest[2] == 3000000000 && widest[3] == INT64_MIN);
}

static void test_conversions_of_halves_and_bools(void **state)
{
    (void)state;
    enum { N = 600 }; // more than one piece of the float buffer
    int64_t in[N];
    uint16_t half[N];
    bool truth[N];
    int8_t back[N];
    for (int i = 0; i < N; i++)
        in[i] = i % 100;
    mu__convert(MU_BF16, half, MU_I64, in, N);
    mu__convert(MU_I8, back, MU_BF16, half, N);
    mu__convert(MU_BOOL, truth, MU_BF16, half, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(back[i], in[i]);
        assert_int_equal(truth[i], in[i] != 0);
    }
}

static void test_written_elements_saturate(void **state)
{
    (void)state;
    int64_t wide;
    int8_t narrow;
    mu__write_element(MU_I64, &wide, 0, 1e300);
    assert_true(wide == INT64_MAX);
    mu__write_element(MU_I64, &wide, 0, -1e300);
    assert_true(wide == INT64_MIN);
    mu__write_element(MU_I8, &narrow, 0, 200);
    assert_int_equal(narrow, 127);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_every_half_survives_a_round_trip),
        cmocka_unit_test(test_halves_round_to_even),
        cmocka_unit_test(test_floats_to_integers),
        cmocka_unit_test(test_conversions_of_halves_and_bools),
        cmocka_unit_test(test_written_elements_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
