// Devices.
#ifndef MUSTER_ENGINE_H
#define MUSTER_ENGINE_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_device_count and mu_device_name tell the logical devices: "CPU:0", "CPU:1", … With MUSTER_PJRT=xla_cpu (or
// another plugin's name, or its file) they are the plugin's, "XLA_CPU:0", …; a strategy may name those at any time.
// Where a device is named TensorFlow's other forms are understood: "/job:localhost/replica:0/task:0/device:CPU:1",
// "/device:CPU:1", "/cpu:1"; without a number the first is meant.
MU_API int mu_device_count(void);
MU_API const char *mu_device_name(int index);

#ifdef __cplusplus
}
#endif
#endif
