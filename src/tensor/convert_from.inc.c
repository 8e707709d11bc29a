// Loops from one element type T to every type stored as plain C values; included by convert.c once per T.
//
// T: the source's C type; FN(name): the name of this copy. NARROW(x) and WIDE(x) bring an element to int32_t
// and int64_t; they differ for floating and integer sources.
MU_PER_ISA(FN(from), (mu_dtype to, void *restrict out, const void *restrict in, int64_t n), (to, out, in, n))
{
    const T *x = in;
    switch (to) {
    case MU_F32:
        for (int64_t i = 0; i < n; i++)
            ((float *)out)[i] = (float)x[i];
        break;
    case MU_F64:
        for (int64_t i = 0; i < n; i++)
            ((double *)out)[i] = (double)x[i];
        break;
    case MU_I64:
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)out)[i] = WIDE(x[i]);
        break;
    case MU_I32:
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)out)[i] = NARROW(x[i]);
        break;
    case MU_I16:
        for (int64_t i = 0; i < n; i++)
            ((int16_t *)out)[i] = (int16_t)NARROW(x[i]);
        break;
    case MU_I8:
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)out)[i] = (int8_t)NARROW(x[i]);
        break;
    case MU_U8:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = (uint8_t)NARROW(x[i]);
        break;
    case MU_BOOL:
        for (int64_t i = 0; i < n; i++)
            ((bool *)out)[i] = x[i] != 0;
        break;
    default: break;
    }
}
#undef T
#undef FN
#undef NARROW
#undef WIDE
