// What random layers for images share.
#ifndef MU_SRC_MODEL_AUGMENT_H
#define MU_SRC_MODEL_AUGMENT_H

#include "model/core/layer.h"

#include <muster/preprocessing.h>

// mu__image_numbers draws a number from low to high for each image: [batch, 1, 1, 1], of x's type. NULL on error.
mu_tensor *mu__image_numbers(const mu_layer *layer, mu_tensor *x, double low, double high);
// mu__random_build is the `build` of layers for images with a generator; seed NULL: from the program's seed.
mu_status mu__random_build(mu_layer *layer, int n, const mu_shape *input, const uint64_t *seed);
// mu__image_sizes_known checks that images have a known height and width.
mu_status mu__image_sizes_known(mu_layer *layer, int n, const mu_shape *input);
// mu__image_chosen decides for each image: [batch, 1, 1, 1], true with the probability `share` (a tensor, or numbers
// from which one is drawn for each image).
mu_tensor *mu__image_chosen(const mu_layer *layer, mu_tensor *x, mu_tensor *share);
mu_tensor *mu__image_chosen_from(const mu_layer *layer, mu_tensor *x, const double share[2]);
// mu__image_stretched takes values from a range to another. Keras computes in mu__image_bytes, which is {0, 255}.
mu_tensor *mu__image_stretched(mu_tensor *x, const double from[2], const double to[2]);
extern const double mu__image_bytes[2];
mu_tensor *mu__image_limited(mu_tensor *x, const double range[2]);
// mu__image_brighter and mu__image_contrasted apply factors that they draw, as the layers for single adjustments do.
mu_tensor *mu__image_brighter(const mu_layer *layer, mu_tensor *x, const double factor[2], const double value_range[2]);
mu_tensor *mu__image_contrasted(const mu_layer *layer, mu_tensor *x, const double factor[2],
                                const double value_range[2]);
// mu__need_colors checks that images have 3 channels, or one if `grey`.
mu_status mu__need_colors(const mu_layer *layer, const mu_shape *input, bool grey);
// mu__number_like returns a scalar of x's type.
static inline mu_tensor *mu__number_like(const mu_tensor *x, double value)
{
    return x ? mu_constant(x->dtype, value) : NULL;
}

// The fields of mu_random_color_args, with the default of `factor`; mu__color_build is the `build` of such a class.
#define MU_COLOR_FIELDS(...)                                                                        \
    {                                                                                               \
        MU_FIELD(mu_random_color_args, factor, RANGE, __VA_ARGS__),                                 \
            MU_FIELD(mu_random_color_args, value_range, RANGE, .number = 0, .high = 255),           \
            MU_FIELD(mu_random_color_args, seed, SEED), MU_LAYER_FIELDS(mu_random_color_args), {0}, \
    }
mu_status mu__color_build(mu_layer *layer, int n, const mu_shape *input);
// mu__in_order checks that numbers of an option are from `low` to `high`, the lowest first.
mu_status mu__in_order(const double range[2], double low, double high, const char *function, const char *option);

#endif
