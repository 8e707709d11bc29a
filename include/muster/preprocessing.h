// Layers that prepare data: scaling, normalisation, encodings, sizes of images, and random changes of images.
//
// They are parts of models, or are called by themselves on what a data set gives. Those named random change images in
// training alone, each image by its own random numbers. Images: [batch, height, width, channels].
//
// Errors: as for all layers (muster/layer.h).
#ifndef MUSTER_PREPROCESSING_H
#define MUSTER_PREPROCESSING_H

#include <muster/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Numbers ------------------------------------------------------------------------------------

typedef struct mu_rescaling_args {
    size_t size;
    const char *given;
    double scale;
    mu_keyword_only only_;
    double offset; // default 0
    const char *name;
    const char *dtype;
    const double *scales; // in place of .scale: n_scales numbers, one for each channel (last axis)
    int n_scales;
    const double *offsets; // in place of .offset, likewise
    int n_offsets;
} mu_rescaling_args;
// mu_rescaling makes a layer: y = scale · x + offset. 8-bit images: mu_rescaling(1. / 255). The shape stays, unless a
// list makes several channels of one. Errors: INVALID_ARGUMENT for a number and a list in its place, and, when called,
// for a list that does not broadcast with the channels.
#define mu_rescaling(...) mu_rescaling_with(MU_ARGS(mu_rescaling_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_rescaling_with(const mu_rescaling_args *args);

typedef struct mu_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool invert; // from normalized to the original numbers
    const char *name;
    const char *dtype;
    // given instead of learned: one for each feature, or one for all; the layer then has no weights and refuses adapt
    const double *mean;
    int n_mean; // the length of mean
    const double *variance;
    int n_variance;  // the length of variance, which is that of mean
    const int *axes; // whose elements have a mean each; n_axes of them; default {-1}, the last
    int n_axes;
    bool whole; // instead: one mean of all numbers, also of [batch]; Keras's axis=None
} mu_normalization_args;
// mu_normalization makes a layer that subtracts the mean of each feature (.axes) and divides by its standard
// deviation, those of the data that mu_normalization_adapt has seen; until then mean 0 and variance 1. Weights: mean,
// variance, count; none is trained.
#define mu_normalization(...) mu_normalization_with(MU_ARGS(mu_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_normalization_with(const mu_normalization_args *args);
// mu_normalization_adapt sets mean and variance to those of all batches of a dataset, whose elements are inputs, or
// lists that begin with the inputs. Errors: INVALID_ARGUMENT for another layer, or a dataset without elements.
MU_API mu_status mu_normalization_adapt(mu_layer *layer, mu_dataset *data);

typedef struct mu_category_encoding_args {
    size_t size;
    const char *given;
    int num_tokens; // size of the last axis of y
    mu_keyword_only only_;
    const char *output_mode; // "multi_hot" (default), "one_hot" or "count"
    const char *name;
    const char *dtype;
} mu_category_encoding_args;
// mu_category_encoding encodes integers from 0 to num_tokens - 1. "one_hot": x [batch, …] gives [batch, …, num_tokens];
// a last axis of size 1 is replaced. "multi_hot" and "count": x [batch, …, n] gives [batch, …, num_tokens], which
// tokens there are among the n, or how many of each; called with a list of x and weights in its shape (Keras's
// count_weights), "count" adds up the weights of each. Errors: INVALID_ARGUMENT for other integers, or weights in
// another mode or shape.
#define mu_category_encoding(...) \
    mu_category_encoding_with(MU_ARGS(mu_category_encoding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_category_encoding_with(const mu_category_encoding_args *args);

typedef struct mu_discretization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const double *bin_boundaries; // n_bin_boundaries numbers, ascending
    int n_bin_boundaries;
    int num_bins;            // instead, from 2: mu_adapt finds the boundaries
    double epsilon;          // and keeps 1 / epsilon quantiles of the data so far; default 0.01
    const char *output_mode; // "int" (default), "one_hot", "multi_hot" or "count"
    const char *name;
    const char *dtype;
} mu_discretization_args;
// mu_discretization makes a layer that numbers bins: bin 0 is below the first boundary, bin i from boundary i - 1 on,
// below boundary i. "int" gives the bins (int32) in the shape of x, the other modes encode them as mu_category_encoding
// does. With num_bins, bins have about as many samples each, in Keras's number: fewer where data have fewer numbers,
// one more for 49, 98, ... (1 / (1. / 49) > 49): adapt before other layers use them. FAILED_PRECONDITION: not adapted.
#define mu_discretization(...) mu_discretization_with(MU_ARGS(mu_discretization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_discretization_with(const mu_discretization_args *args);

// ---- Layers that learn from data -----------------------------------------------------------------

// Inputs to learn from: a dataset, or an array.
MU_ANY(mu_any_inputs, mu_dataset *, mu_tensor *, mu_value *);
// mu_adapt lets a layer learn from data before it is trained: the moments of mu_normalization, the boundaries of
// mu_discretization, the vocabulary of a look-up or mu_text_vectorization (text.h). The data are a dataset, whose
// elements are inputs (a batch, or a single one, which mu_normalization does not accept) or lists that begin with the
// inputs, or an array of all inputs. What an earlier call has learned is forgotten. Adapt before mu_compile: a step
// that was traced keeps boundaries. Boundaries are quantiles, as Keras estimates them from float32 numbers; they depend
// on how data are divided into batches. Vocabularies have the most frequent tokens first, as many as max_tokens allows;
// for "tf_idf" come the weights, log(1 + documents / (1 + documents with the token)). Errors: INVALID_ARGUMENT for a
// layer that has nothing to adapt, for data of another type, without elements, without an end, or (numbers) with NaN or
// infinity, after which the layer is as before; FAILED_PRECONDITION for mu_discretization with boundaries of its own.
MU_API mu_status mu_adapt(mu_layer *layer, mu_any_inputs data);

// ---- Sizes of images ----------------------------------------------------------------------------

typedef struct mu_resizing_args {
    size_t size;
    const char *given;
    int height, width;
    mu_keyword_only only_;
    // "bilinear" (default), "nearest", "bicubic", "lanczos3", "lanczos5" or "area" (which has no antialiasing)
    const char *interpolation;
    bool crop_to_aspect_ratio; // cut what is too high or too wide, at both sides, before resizing
    bool pad_to_aspect_ratio;  // fill up what is too low or too narrow instead, at both sides
    const char *fill_mode;     // "constant", the only one
    double fill_value;         // what .pad_to_aspect_ratio fills with; default 0
    bool antialias;            // mix all pixels that become one, where images shrink; not with "nearest"
    const char *name;
    const char *dtype;
} mu_resizing_args;
// mu_resizing makes a layer that resizes images, which keep their type: mixed pixels of integers are rounded. Errors:
// INVALID_ARGUMENT if height or width of the input is unknown.
#define mu_resizing(...) mu_resizing_with(MU_ARGS(mu_resizing_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_resizing_with(const mu_resizing_args *args);

typedef struct mu_center_crop_args {
    size_t size;
    const char *given;
    int height, width;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_center_crop_args;
// mu_center_crop makes a layer that takes the middle of images. Smaller images are resized, cut to the aspect ratio.
#define mu_center_crop(...) mu_center_crop_with(MU_ARGS(mu_center_crop_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_center_crop_with(const mu_center_crop_args *args);

// ---- Random changes of images -------------------------------------------------------------------

typedef struct mu_random_flip_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *mode; // "horizontal_and_vertical" (default), "horizontal" or "vertical"
    uint64_t seed;    // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_flip_args;
// mu_random_flip makes a layer that flips half of the images; with both directions, an image is flipped in both.
#define mu_random_flip(...) mu_random_flip_with(MU_ARGS(mu_random_flip_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_flip_with(const mu_random_flip_args *args);

typedef struct mu_random_color_args {
    size_t size;
    const char *given;
    double factor[2]; // see below
    mu_keyword_only only_;
    double value_range[2]; // lowest and highest value of the images; default {0, 255}
    uint64_t seed;         // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_color_args;
// mu_random_brightness adds a number between factor[0] and factor[1] (from -1 to 1), times the extent of value_range,
// to all values of an image: mu_random_brightness({-0.2, 0.2}). mu_random_contrast multiplies the distance of values
// from the mean of their channel by a number from 1 - factor[0] to 1 + factor[1] (from 0 to 1). Both limit the result
// to value_range.
#define mu_random_brightness(...) mu_random_brightness_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_brightness_with(const mu_random_color_args *args);
#define mu_random_contrast(...) mu_random_contrast_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_contrast_with(const mu_random_color_args *args);

typedef struct mu_random_grayscale_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor; // share of the images that become grey; default 0.5
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_grayscale_args;
// mu_random_grayscale makes a layer that makes some images grey; they keep their channels.
#define mu_random_grayscale(...) mu_random_grayscale_with(MU_ARGS(mu_random_grayscale_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_grayscale_with(const mu_random_grayscale_args *args);
// mu_random_color_degeneration mixes each image with its grey one, whose part is from factor[0] to factor[1] (from -1
// to 1). mu_random_invert turns images x to value_range[1] - x, each with a probability from factor[0] to factor[1]
// (from 0 to 1, which is the default).
#define mu_random_color_degeneration(...) \
    mu_random_color_degeneration_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_color_degeneration_with(const mu_random_color_args *args);
#define mu_random_invert(...) mu_random_invert_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_invert_with(const mu_random_color_args *args);

// mu_random_hue turns the hues of each image by a number from factor[0] to factor[1] (from 0 to 1), times half a turn,
// to either side. mu_random_saturation multiplies the saturations by f / (1 - f), f from factor[0] to factor[1] (from 0
// to 1): 0.5 leaves them; as in Keras, they are then limited to value_range. mu_random_sharpness adds to each image the
// part 1 - 2 · f of the difference to a smoother one: 0 blurs, 0.5 leaves it, 1 sharpens. mu_random_posterization keeps
// the upper factor[0] to factor[1] - 1 of the 8 bits of all values, or factor[0] if both are equal (from 1 to 8).
// Images of hue and saturation have 3 channels.
#define mu_random_hue(...) mu_random_hue_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_hue_with(const mu_random_color_args *args);
#define mu_random_saturation(...) mu_random_saturation_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_saturation_with(const mu_random_color_args *args);
#define mu_random_sharpness(...) mu_random_sharpness_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_sharpness_with(const mu_random_color_args *args);
#define mu_random_posterization(...) \
    mu_random_posterization_with(MU_ARGS(mu_random_color_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_posterization_with(const mu_random_color_args *args);

typedef struct mu_random_color_jitter_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double value_range[2]; // lowest and highest value of the images; default {0, 255}
    double brightness_factor[2], contrast_factor[2], saturation_factor[2], hue_factor[2]; // default: no such change
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_color_jitter_args;
// mu_random_color_jitter makes a layer that changes brightness, contrast, saturation and hue, in this order, as
// mu_random_brightness, mu_random_contrast, mu_random_saturation and mu_random_hue do with these factors.
#define mu_random_color_jitter(...) \
    mu_random_color_jitter_with(MU_ARGS(mu_random_color_jitter_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_color_jitter_with(const mu_random_color_jitter_args *args);

typedef struct mu_random_gaussian_blur_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor[2];                         // an image is blurred with a probability between both; default {0, 1}
    int kernel_size, kernel_size_per_axis[2]; // odd; default 3
    double sigma[2];                          // deviations are drawn between both, from 0 to 1; default {0, 1}
    double value_range[2];                    // the result is limited to it; default {0, 255}
    uint64_t seed;                            // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_gaussian_blur_args;
// mu_random_gaussian_blur makes a layer that blurs some images by a normal distribution, whose two deviations, in
// pixels, are the same for all images of a batch.
#define mu_random_gaussian_blur(...) \
    mu_random_gaussian_blur_with(MU_ARGS(mu_random_gaussian_blur_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_gaussian_blur_with(const mu_random_gaussian_blur_args *args);

typedef struct mu_random_erasing_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor[2];         // an image is changed with a probability between both; default {0, 1}
    double scale[2];          // squares of the sides' parts of the image's; default {0.02, 0.33}
    const double *fill_value; // n_fill_value numbers: 1, or one for each channel; default: noise
    int n_fill_value;
    double value_range[2]; // what is filled in is limited to it; default {0, 255}
    uint64_t seed;         // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_erasing_args;
// mu_random_erasing makes a layer that replaces a rectangle in some images. Zhong et al., "Random erasing data
// augmentation", 2020.
#define mu_random_erasing(...) mu_random_erasing_with(MU_ARGS(mu_random_erasing_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_erasing_with(const mu_random_erasing_args *args);

typedef struct mu_equalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double value_range[2]; // lowest and highest value of the images; default {0, 255}
    int bins;              // of the histograms; default 256
    const char *name;
    const char *dtype;
} mu_equalization_args;
// mu_equalization makes a layer that, in training, spreads the values of each channel evenly over value_range. As in
// Keras, a channel's histogram is that of all images that a replica has of the batch.
#define mu_equalization(...) mu_equalization_with(MU_ARGS(mu_equalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_equalization_with(const mu_equalization_args *args);

typedef struct mu_solarization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double addition_factor[2], threshold_factor[2]; // lowest and highest, from 0 to 1; default {0, 0}
    double value_range[2];                          // lowest and highest value of the images; default {0, 255}
    uint64_t seed;                                  // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_solarization_args;
// mu_solarization makes a layer that adds a number to all values of an image, and inverts those above a threshold; both
// are parts of value_range.
#define mu_solarization(...) mu_solarization_with(MU_ARGS(mu_solarization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_solarization_with(const mu_solarization_args *args);

typedef struct mu_auto_contrast_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double value_range[2]; // lowest and highest value of the images; default {0, 255}
    const char *name;
    const char *dtype;
} mu_auto_contrast_args;
// mu_auto_contrast makes a layer that stretches the values of each channel of an image to value_range, in training and
// outside of it.
#define mu_auto_contrast(...) mu_auto_contrast_with(MU_ARGS(mu_auto_contrast_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_auto_contrast_with(const mu_auto_contrast_args *args);

typedef struct mu_mix_up_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double alpha;  // parts are drawn from Beta(alpha, alpha); default 0.2
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_mix_up_args;
// mu_mix_up makes a layer that, in training, mixes each image of a batch with another one, in parts that are drawn for
// each, and the labels in the same parts. It takes images, or a map with the keys "images" and "labels", and returns
// the like; labels are a row of numbers for each image (mu_one_hot). Data sets apply it in a function of mu_dataset_map
// behind mu_dataset_batch, which calls it with mu_call_values and .training = true. Zhang et al., "mixup: beyond
// empirical risk minimization", 2018. Errors: INVALID_ARGUMENT for other keys, for a list of images and labels, for
// labels that are classes, or if the batch's size is not known.
#define mu_mix_up(...) mu_mix_up_with(MU_ARGS(mu_mix_up_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_mix_up_with(const mu_mix_up_args *args);

typedef struct mu_cut_mix_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor[2]; // alpha is drawn from it for each batch (from 0 to 1); default {0, 1}
    uint64_t seed;    // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_cut_mix_args;
// mu_cut_mix makes a layer that, in training, replaces a rectangle of each image by that of another one of the batch,
// whose part of the area is drawn from Beta(alpha, alpha), and mixes the labels in the same parts. Otherwise, it is as
// mu_mix_up. Yun et al., "CutMix: regularization strategy to train strong classifiers", 2019. Errors: as mu_mix_up.
#define mu_cut_mix(...) mu_cut_mix_with(MU_ARGS(mu_cut_mix_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_cut_mix_with(const mu_cut_mix_args *args);

typedef struct mu_rand_augment_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double value_range[2];     // lowest and highest value of the images; default {0, 255}
    int num_ops;               // number of changes; default 2
    double factor[2];          // lowest and highest strength of a change (from 0 to 1); default {0, 0.5}
    const char *interpolation; // "bilinear" (default) or "nearest"
    uint64_t seed;             // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_rand_augment_args;
// mu_rand_augment makes a layer that, in training, applies num_ops of these layers to all images of a batch, which are
// drawn for each batch: shear, translation, rotation, brightness, color degeneration, contrast, sharpness,
// posterization, solarization, auto contrast and equalization. A traced step computes all of them, as Keras does, and
// takes those; eagerly, as in a function of mu_dataset_map, only those are computed. Images need a known size. Cubuk et
// al., "RandAugment: practical automated data augmentation with a reduced search space", 2020.
#define mu_rand_augment(...) mu_rand_augment_with(MU_ARGS(mu_rand_augment_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_rand_augment_with(const mu_rand_augment_args *args);

// ---- Random movements of images -----------------------------------------------------------------

// What lies beyond an image's edge, by fill_mode: "reflect" dcba|abcd|dcba, "wrap" abcd|abcd|abcd, "nearest"
// aaaa|abcd|dddd (mu_image_affine_transform). Images need a known size.

typedef struct mu_random_rotation_args {
    size_t size;
    const char *given;
    double factor[2]; // lowest and highest part of a full turn, from -1 to 1
    mu_keyword_only only_;
    const char *fill_mode;     // "reflect" (default), "constant", "wrap" or "nearest"
    const char *interpolation; // "bilinear" (default) or "nearest"
    double fill_value;         // beyond the edge where fill_mode is "constant"; default 0
    uint64_t seed;             // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_rotation_args;
// mu_random_rotation makes a layer that turns images around their middle, to the left by positive numbers:
// mu_random_rotation({-0.1, 0.1}) turns by up to 36 degrees.
#define mu_random_rotation(...) mu_random_rotation_with(MU_ARGS(mu_random_rotation_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_rotation_with(const mu_random_rotation_args *args);

typedef struct mu_random_move_args {
    size_t size;
    const char *given;
    double height_factor[2], width_factor[2]; // see below
    mu_keyword_only only_;
    const char *fill_mode;     // "reflect" (default), "constant", "wrap" or "nearest"
    const char *interpolation; // "bilinear" (default) or "nearest"
    double fill_value;         // beyond the edge where fill_mode is "constant"; default 0
    uint64_t seed;             // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_move_args;
// mu_random_zoom makes a layer that scales images: height_factor (lowest and highest, from -1 to 1) is by how much the
// height of what is seen grows, so -0.2 zooms in and 0.2 zooms out. Without width_factor the proportions stay.
// mu_random_translation moves images down and to the right by these parts of their height and width.
#define mu_random_zoom(...) mu_random_zoom_with(MU_ARGS(mu_random_move_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_zoom_with(const mu_random_move_args *args);
#define mu_random_translation(...) mu_random_translation_with(MU_ARGS(mu_random_move_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_translation_with(const mu_random_move_args *args);

typedef struct mu_random_shear_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double x_factor[2], y_factor[2]; // lowest and highest, from -1 to 1; default {0, 0}
    const char *fill_mode;           // "reflect" (default), "constant", "wrap" or "nearest"
    const char *interpolation;       // "bilinear" (default) or "nearest"
    double fill_value;               // beyond the edge where fill_mode is "constant"; default 0
    uint64_t seed;                   // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_shear_args;
// mu_random_shear makes a layer that takes pixel (x, y) from (x + f·y, y + g·x), with f from x_factor and g from
// y_factor; half of the images are sheared by -f and -g.
#define mu_random_shear(...) mu_random_shear_with(MU_ARGS(mu_random_shear_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_shear_with(const mu_random_shear_args *args);

typedef struct mu_random_perspective_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double factor[2];          // an image is changed with a probability between both; default {0, 1}
    double scale;              // how far corners move, from 0 to 1; default 1
    const char *interpolation; // "bilinear" (default) or "nearest"
    double fill_value;         // beyond the image; default 0
    uint64_t seed;             // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_perspective_args;
// mu_random_perspective makes a layer that projects some images: each corner's distances from the upper left corner
// change by up to the part scale / 2.
#define mu_random_perspective(...) \
    mu_random_perspective_with(MU_ARGS(mu_random_perspective_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_perspective_with(const mu_random_perspective_args *args);

typedef struct mu_random_crop_args {
    size_t size;
    const char *given;
    int height, width; // of the result
    mu_keyword_only only_;
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_random_crop_args;
// mu_random_crop makes a layer that cuts a part of this size out of images, the same place for all images of a batch.
// Outside of training, and where images are not larger in both directions, it is the largest part from the middle with
// these proportions, resized.
#define mu_random_crop(...) mu_random_crop_with(MU_ARGS(mu_random_crop_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_random_crop_with(const mu_random_crop_args *args);

#ifdef __cplusplus
}
#endif
#endif
