// Calls the hooks of fit's callbacks, and checks their arguments before training (hooks.c).
#ifndef MU_SRC_MODEL_HOOKS_H
#define MU_SRC_MODEL_HOOKS_H

#include "model/core/layer.h"

#include <muster/callback.h>

typedef enum mu_hook {
    MU_HOOK_TRAIN_BEGIN,
    MU_HOOK_TRAIN_END,
    MU_HOOK_EPOCH_BEGIN,
    MU_HOOK_EPOCH_END,
    MU_HOOK_BATCH_BEGIN,
    MU_HOOK_BATCH_END,
    MU_HOOK_TEST_BEGIN,
    MU_HOOK_TEST_END,
    MU_HOOK_TEST_BATCH_BEGIN,
    MU_HOOK_TEST_BATCH_END,
    MU_HOOK_PREDICT_BEGIN,
    MU_HOOK_PREDICT_END,
    MU_HOOK_PREDICT_BATCH_BEGIN,
    MU_HOOK_PREDICT_BATCH_END
} mu_hook;
// When values whose names begin with "val_" are logged.
typedef enum mu_validates { MU_VALIDATES_NEVER, MU_VALIDATES_SOME_EPOCHS, MU_VALIDATES_EACH_EPOCH } mu_validates;
// mu__check_callbacks checks before training that no callback is NULL and that the values they watch will be logged.
// Lists end with MU_END; NULL is an empty list.
mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, mu_validates validates);
// mu__need_callbacks checks only that none is NULL, in the name of `function`.
mu_status mu__need_callbacks(mu_callback *const *callbacks, const char *function);
bool mu__watches(mu_callback *const *callbacks, mu_hook which); // whether any callback has this hook
// mu__call_hooks calls a hook of each callback in order, and stops at the first that fails. Errors: INVALID_ARGUMENT if
// one returns a code without recording an error.
mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs);
// mu__hooks_set_rate returns whether one of the callbacks sets the learning rate.
bool mu__hooks_set_rate(mu_callback *const *callbacks);

#endif
