// The machine's own f32 limit: independent multiply-adds that stay in registers. Unlike the kernels, it is compiled
// for the machine that builds it.
#include "peak.h"

#include "kernels/simd.h"

enum { FUSIONS = 12, TURNS = 4096 };

double run_peak(volatile float *sink)
{
    mu_vf acc[FUSIONS], factor = v_splat(0.999f + *sink * 0), term = v_splat(1e-3f);
    for (int i = 0; i < FUSIONS; i++)
        acc[i] = v_splat((float)i);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < FUSIONS; i++)
            acc[i] = acc[i] * factor + term;
    for (int i = 1; i < FUSIONS; i++)
        acc[0] += acc[i];
    *sink = acc[0][0];
    return 2.0 * FUSIONS * MU_LANES * TURNS;
}
