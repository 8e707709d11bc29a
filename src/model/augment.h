// What random layers for images share.
#ifndef MU_SRC_MODEL_AUGMENT_H
#define MU_SRC_MODEL_AUGMENT_H

#include "model/model.h"

// mu__image_numbers draws a number from low to high for each image: [batch, 1, 1, 1], of x's type. NULL on error.
mu_tensor *mu__image_numbers(const mu_layer *layer, mu_tensor *x, double low, double high);
// mu__random_build is the `build` of layers for images with a generator; seed NULL: from the program's seed.
mu_status mu__random_build(mu_layer *layer, int n, const mu_shape *input, const uint64_t *seed);
// mu__image_sizes_known checks that images have a known height and width.
mu_status mu__image_sizes_known(mu_layer *layer, int n, const mu_shape *input);
// mu__crop_to_ratio cuts images to the proportion of height to width, as much as is left of them.
mu_tensor *mu__crop_to_ratio(mu_tensor *x, int64_t height, int64_t width);
// mu__in_order checks that numbers of an option are from `low` to `high`, the lowest first.
mu_status mu__in_order(const double range[2], double low, double high, const char *function, const char *option);

#endif
