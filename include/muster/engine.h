// Names of the logical devices.
#ifndef MUSTER_ENGINE_H
#define MUSTER_ENGINE_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_device_count and mu_device_name list the logical devices: "CPU:0", "CPU:1", … With MUSTER_PJRT set to a plugin's
// name (such as xla_cpu) or file, they list the plugin's devices: "XLA_CPU:0", …; a strategy may name those without it
// too. Functions that take a device name also accept TensorFlow's other forms:
// "/job:localhost/replica:0/task:0/device:CPU:1", "/device:CPU:1", "/cpu:1". A name without a number means device 0.
// mu_device_name returns NULL for an invalid index.
MU_API int mu_device_count(void);
MU_API const char *mu_device_name(int index);

#ifdef __cplusplus
}
#endif
#endif
