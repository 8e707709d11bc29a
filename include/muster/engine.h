// Names of the logical devices. All names here belong to the library and live until mu_exit.
//
// Errors (0, NULL): those of the plugin whose devices are listed: NOT_FOUND if it is not there, FAILED_PRECONDITION if
// it cannot be used, UNIMPLEMENTED if it lacks a function that is needed, DEADLINE_EXCEEDED if it does not end its
// trial with the options for LLVM in XLA_FLAGS.
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
// mu_device_name returns NULL, without an error, for an invalid index.
MU_API int mu_device_count(void);
MU_API const char *mu_device_name(int index);

// mu_list_physical_devices writes the names of the devices of a type ("CPU", "GPU", "TPU", or a plugin's own such as
// "XLA_CPU"; any case), at most `capacity` of them, and returns how many there are: TensorFlow's
// tf.config.list_physical_devices. GPUs are the devices of the first plugin for CUDA or ROCm that is installed or that
// PJRT_NAMES_AND_LIBRARY_PATHS names. A plugin that cannot be used has none, and the log says why. Blocks: while the
// plugin starts. Errors (-1): INVALID_ARGUMENT for NULL.
MU_API int mu_list_physical_devices(const char *device_type, const char **names, int capacity);

#ifdef __cplusplus
}
#endif
#endif
