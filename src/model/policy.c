// The types of weights and of computation in layers.
#include "model/model.h"

typedef struct floatx {
    mu_dtype dtype;
} floatx;

static void *create_floatx(mu_runtime *runtime)
{
    (void)runtime;
    floatx *slot = mu__alloc(sizeof *slot);
    if (slot)
        slot->dtype = MU_F32;
    return slot;
}

mu_dtype mu__floatx(void)
{
    const floatx *slot = mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_floatx, mu__free);
    return slot ? slot->dtype : MU_F32;
}

mu_status mu_set_floatx(mu_dtype dtype)
{
    if (mu__pending())
        return mu_error_code();
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__error(MU_INVALID_ARGUMENT, "mu_set_floatx: %s is neither float32 nor float64", mu_dtype_name(dtype));
    floatx *slot = mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_floatx, mu__free);
    if (!slot)
        return mu_error_code();
    slot->dtype = dtype;
    return MU_OK;
}
