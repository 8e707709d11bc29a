// Tensors as values of event files: what mu_tensorboard and the mu_summary_ functions share.
#ifndef MU_SRC_MODEL_EVENT_VALUES_H
#define MU_SRC_MODEL_EVENT_VALUES_H

#include "io/events.h"
#include "tensor/tensor.h"

// mu__event_histogram adds the histogram of a tensor's numbers. Errors: INVALID_ARGUMENT for a type without numbers.
mu_status mu__event_histogram(mu_event_file *file, const char *tag, int64_t step, mu_tensor *data, int buckets);
// mu__event_image adds at most `most` images of [images, height, width, channels]. Errors: INVALID_ARGUMENT.
mu_status mu__event_image(mu_event_file *file, const char *tag, int64_t step, mu_tensor *data, int most);
// mu__event_weight_image adds a weight as an image, as Keras's TensorBoard draws it; of a shape that it cannot draw,
// nothing.
mu_status mu__event_weight_image(mu_event_file *file, const char *tag, int64_t step, mu_tensor *weight);

#endif
