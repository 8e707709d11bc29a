// What to do about a plugin that cannot be opened or started: advice that follows the plugin's own message, chosen by
// words in it.
#include "engine/pjrt/pjrt.h"

static const struct {
    const char *words, *text;
} advice[] = {
    {"No visible GPU", "check that nvidia-smi lists a GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that the "
                       "driver is new enough for the plugin's CUDA (580 or later for cuda13)"},
    {"CUDA_ERROR", "check with nvidia-smi that the GPU works and that the driver is new enough for the plugin's CUDA "
                   "(580 or later for cuda13)"},
    {"No jellyfish", "this machine has no TPU that the process may use; on a TPU VM check that no other process uses "
                     "it, elsewhere use another plugin (MUSTER_PJRT=xla_cpu)"},
    {"libtpu_lockfile", "another process uses the TPU; end it, or remove the file if there is none"},
    {"already in use", "another process uses the device; end it first"},
    {"GLIBC", "the plugin was built for a newer system; use an older version of it, or a newer system"},
    {"ELF",
     "the file is not a library for this machine; install the plugin's wheel for it with `muster plugin install`"},
    {"file too short", "the file is damaged; install the plugin anew"},
    {"undefined symbol",
     "the plugin and a library that it needs have different versions; install both from one release"},
    {"cannot open shared object file", "the plugin needs that library: install the package that has it (for CUDA the "
                                       "wheels of jax-cuda13-plugin[with-cuda]), or add its folder to LD_LIBRARY_PATH"},
    {"Permission denied", "make the file readable for this user"},
};

void mu__pjrt_advise(void)
{
    mu_error_value error;
    size_t i = 0;
    mu__error_move(&error);
    while (i < MU_COUNT(advice) && !strstr(error.message, advice[i].words))
        i++;
    mu__error_raise(&error);
    if (i < MU_COUNT(advice))
        mu__error_append("; %s", advice[i].text);
}
