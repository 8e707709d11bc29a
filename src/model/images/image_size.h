// Images at other sizes, for layers.
#ifndef MU_SRC_MODEL_IMAGE_SIZE_H
#define MU_SRC_MODEL_IMAGE_SIZE_H

#include <muster/tensor.h>

// Names of methods, as in Keras; ends with NULL.
extern const char *const mu__interpolations[];
// mu__resize_images returns images [batch, height, width, channels] of a known size at another one, in their type:
// pixels of integers are mixed in f32 and rounded. `antialias` widens the kernel where pixels become fewer. The result
// belongs to the pool; NULL on error, also one before.
mu_tensor *mu__resize_images(mu_tensor *x, int64_t height, int64_t width, const char *interpolation, bool antialias);

#endif
