// Images: JPEG and PNG as tensors, PNG written, and datasets of the images in a folder.
//
// Errors: NOT_FOUND for a folder that is not there; INVALID_ARGUMENT for a tensor of another type or shape.
#ifndef MUSTER_IMAGE_H
#define MUSTER_IMAGE_H

#include <muster/data.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_decode_image decodes a JPEG or PNG (a scalar of MU_STRING, or a vector of uint8) to uint8 [height, width,
// channels]. channels: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha (2 and 4 of a PNG alone); 0: those of the file.
// 16 bits become 8, CMYK becomes RGB. Errors: DATA_LOSS for a damaged image; INVALID_ARGUMENT for another format;
// UNIMPLEMENTED for CMYK to gray, and other forms of colours; RESOURCE_EXHAUSTED above 65,500 pixels in a direction,
// or 1 GiB.
MU_API mu_tensor *mu_decode_image(mu_tensor *contents, int channels);

// mu_encode_png makes a PNG (a scalar of MU_STRING) of uint8 [height, width, channels], 1 to 4 channels as above.
MU_API mu_tensor *mu_encode_png(mu_tensor *image);

typedef struct mu_dataset_image_folder_args {
    size_t size;
    const char *given;
    const char *directory;
    mu_keyword_only only_;
    // "int" (default; int32), "categorical" (one-hot, float32), "binary" (float32 [1], of two classes) or "none":
    // elements are images alone, and the folder needs no classes
    const char *label_mode;
    const char *color_mode;  // "rgb" (default), "grayscale" or "rgba"
    int64_t batch_size;      // default 32; -1: elements are single images
    int image_size[2];       // height, width; default 256, 256
    bool no_shuffle;         // in order of classes and file names
    uint64_t seed;           // of the shuffle and the split; default: from the program's seed
    double validation_split; // the share of the files, from 0 to below 1, that is kept for validation
    const char *subset;      // "training" or "validation", with validation_split
    // "bilinear" (default), "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian" or "mitchellcubic", as in
    // tf.image.resize without antialiasing. Cubic and Lanczos's kernels go beyond 0 and 255
    const char *interpolation;
    bool crop_to_aspect_ratio; // cuts the image's middle out, in the proportion of image_size, before it is resized
    bool pad_to_aspect_ratio;  // keeps the image's proportion, and puts zeros at two of its sides
} mu_dataset_image_folder_args;

// mu_dataset_image_folder makes a dataset of the JPEG and PNG files in a folder: each folder in it is a class, numbered
// in order of the names, and holds files at any depth; names that begin with a dot are left out. Elements are lists of
// images (float32 [batch, height, width, channels], 0 to 255) and labels. Both subsets need the same seed. Errors:
// NOT_FOUND without images; DATA_LOSS for a file that is damaged, when it is read.
#define mu_dataset_image_folder(...) \
    mu_dataset_image_folder_with(MU_ARGS(mu_dataset_image_folder_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_image_folder_with(const mu_dataset_image_folder_args *args);

// mu_image_folder_classes returns the names of the classes of a folder of images, in order of their numbers.
MU_API mu_tensor *mu_image_folder_classes(const char *directory);

#ifdef __cplusplus
}
#endif
#endif
