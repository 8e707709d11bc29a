// Loops over two floating operands; included by math.c and math_f64.c once each.
//
// T: the element type; FN(name): the name of this copy; M(name): libm's function for T; POW_OF etc.: the function on
// doubles; POW_RIGHT etc.: the operands for which POW_OF is valid. libm computes a piece with any other operands.

static T FN(floor_mod_alone)(T x, T y)
{
    const T rest = M(fmod)(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static T FN(alone)(mu_math2 function, T a, T b)
{
    return function == MU_MATH_POW     ? M(pow)(a, b)
           : function == MU_MATH_ATAN2 ? M(atan2)(a, b)
                                       : FN(floor_mod_alone)(a, b);
}

#define NONE_WRONG(right)            \
    for (int64_t i = 0; i < n; i++)  \
        wrong |= !right(a[i], b[i]); \
    break

static bool FN(all_right)(mu_math2 function, const T *a, const T *b, int64_t n)
{
    int wrong = 0;
    switch (function) {
    case MU_MATH_POW: NONE_WRONG(POW_RIGHT);
    case MU_MATH_ATAN2: NONE_WRONG(ATAN2_RIGHT);
    default: NONE_WRONG(MOD_RIGHT);
    }
    return wrong == 0;
}

#define LOOP2(function_of_two)                                   \
    EACH_ALONE                                                   \
    for (int64_t i = 0; i < n; i++)                              \
        out[i] = (T)function_of_two((double)a[i], (double)b[i]); \
    break

static void FN(loops)(mu_math2 function, const T *a, const T *b, T *out, int64_t n)
{
    switch (function) {
    case MU_MATH_POW: LOOP2(POW_OF);
    case MU_MATH_ATAN2: LOOP2(ATAN2_OF);
    default: LOOP2(MOD_OF);
    }
}

void MU_KERNEL(FN(math2))(mu_math2 function, const T *a, int64_t step_a, const T *b, int64_t step_b, T *out, int64_t n)
{
    enum { PAIRS = 128 };
    T same_a[PAIRS], same_b[PAIRS];
    for (int64_t i = 0; i < PAIRS && n > 0; i++) {
        same_a[i] = a[0];
        same_b[i] = b[0];
    }
    for (int64_t at = 0; at < n; at += PAIRS) {
        const int64_t count = least(n - at, PAIRS);
        const T *from_a = step_a ? a + at : same_a, *from_b = step_b ? b + at : same_b;
        if (FN(all_right)(function, from_a, from_b, count))
            FN(loops)(function, from_a, from_b, out + at, count);
        else
            for (int64_t i = 0; i < count; i++)
                out[at + i] = FN(alone)(function, from_a[i], from_b[i]);
    }
}
