// Images at other sizes, for layers and for images from files.
#ifndef MU_SRC_OPS_IMAGE_SIZE_H
#define MU_SRC_OPS_IMAGE_SIZE_H

#include <muster/tensor.h>

// Names of methods, as in Keras's layers and as in tf.image.resize; they end with NULL.
extern const char *const mu__interpolations[], *const mu__resize_methods[];
// mu__resize_images returns images [batch, height, width, channels] of a known size at another one, in their type:
// pixels of integers are mixed in f32 and rounded. `antialias` widens the kernel where pixels become fewer. The result
// belongs to the pool; NULL on error, also one before.
mu_tensor *mu__resize_images(mu_tensor *x, int64_t height, int64_t width, const char *method, bool antialias);
// mu__resize_images_now is the same, without antialiasing, for images of f32 whose elements are on the host, and reads
// only the pixels that it needs: photographs are much larger than what a model takes.
mu_tensor *mu__resize_images_now(mu_tensor *x, int64_t height, int64_t width, const char *method);
// mu__image_middle cuts a size out of the middle of images; mu__crop_to_ratio cuts them to the proportion of height to
// width, as much as is left of them.
mu_tensor *mu__image_middle(mu_tensor *x, int64_t height, int64_t width);
mu_tensor *mu__crop_to_ratio(mu_tensor *x, int64_t height, int64_t width);

#endif
