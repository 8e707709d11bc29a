// Datasets of the images in a folder, labelled by the folders that they are in.
#include "data/formats/image.h"
#include "data/formats/labelled_folder.h"
#include "ops/spatial/image_size.h"

#include <math.h>
#include <muster/ops.h>

#define MOST_FILE_BYTES ((size_t)1 << 28)

static const char *const ends[] = {".jpg", ".jpeg", ".png", NULL};
static const mu_folder_kind images = {"mu_dataset_image_folder", "mu_dataset_image_folder: the directory", "images",
                                      ends};

// ---- The stage that reads one image -------------------------------------------------------------

typedef struct image_args {
    mu_folder_labels labels;
    int height, width, channels;
    bool crops, pads;  // to the proportion of height to width
    int interpolation; // of mu__resize_methods
} image_args;

static mu_tensor *resize(mu_tensor *x, int64_t height, int64_t width, const image_args *args)
{
    return mu__resize_images_now(x, height, width, mu__resize_methods[args->interpolation]);
}

// tf.image.resize_with_pad, which computes in float32. Its image that is under a pixel high or wide fails; here it has
// one.
static mu_tensor *resize_with_pad(mu_tensor *x, const image_args *args)
{
    const float height = (float)mu_tensor_dim(x, 1), width = (float)mu_tensor_dim(x, 2);
    const float full_height = (float)args->height, full_width = (float)args->width;
    const float ratio = fmaxf(width / full_width, height / full_height);
    const int64_t rows = MU_MAX((int64_t)(height / ratio), 1), columns = MU_MAX((int64_t)(width / ratio), 1);
    const int64_t top = MU_MAX((int64_t)floorf((full_height - height / ratio) / 2), 0);
    const int64_t left = MU_MAX((int64_t)floorf((full_width - width / ratio) / 2), 0);
    const int64_t before[] = {0, top, left, 0};
    const int64_t after[] = {0, args->height - top - rows, args->width - left - columns, 0};
    return mu_pad(resize(x, rows, columns, args), before, after, "constant", 0);
}

// `image` is uint8 [height, width, channels].
static mu_tensor *resized(mu_tensor *image, const image_args *args)
{
    mu_tensor *x = mu_expand_dims(image, 0);
    if (args->crops)
        x = mu__crop_to_ratio(x, args->height, args->width);
    x = mu_cast(x, MU_F32);
    if (x == NULL)
        return NULL;
    x = args->pads ? resize_with_pad(x, args) : resize(x, args->height, args->width, args);
    return mu_squeeze(x, 0);
}

static mu_tensor *load(const void *arguments, const char *path)
{
    const image_args *args = arguments;
    void *bytes = NULL;
    size_t n = 0;
    if (mu__file_read(path, MOST_FILE_BYTES, &bytes, &n) != MU_OK)
        return NULL;
    mu_tensor *image = mu__give(mu__decode_image(bytes, n, args->channels));
    mu__free(bytes);
    if (image == NULL) {
        mu__error_context("in %s", path);
        return NULL;
    }
    return resized(image, args);
}

static mu_status image_next(mu_stage *stage, mu_item *item, bool *end)
{
    return mu__folder_next(stage, &((const image_args *)stage->dataset->args)->labels, item, end, load);
}

static mu_value *image_spec(const mu_dataset *dataset)
{
    const image_args *args = dataset->args;
    return mu__folder_spec(&args->labels,
                           mu__spec_leaf(MU_F32, &(mu_shape){3, {args->height, args->width, args->channels}}));
}

static const mu_stage_ops image_stage = {
    .name = "image_folder",
    .args_bytes = sizeof(image_args),
    .next = image_next,
    .skip = mu__folder_skip,
    .cardinality = mu__folder_cardinality,
    .spec = image_spec,
    .opens_files = true,
};

// ---- The dataset --------------------------------------------------------------------------------

static mu_status complete(mu_dataset_image_folder_args *a)
{
    static const char *const colors[] = {"rgb", "grayscale", "rgba", NULL};
    a->label_mode = a->label_mode != NULL ? a->label_mode : "int";
    a->color_mode = a->color_mode != NULL ? a->color_mode : "rgb";
    a->interpolation = a->interpolation != NULL ? a->interpolation : "bilinear";
    a->batch_size = MU_GIVEN(a, batch_size) ? a->batch_size : 32;
    if (a->image_size[0] == 0 && a->image_size[1] == 0)
        a->image_size[0] = a->image_size[1] = 256;
    MU_TRY(mu__folder_word(images.function, "color_mode", a->color_mode, colors));
    MU_TRY(mu__folder_word(images.function, "interpolation", a->interpolation, mu__resize_methods));
    if (a->crop_to_aspect_ratio && a->pad_to_aspect_ratio)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: crop_to_aspect_ratio and pad_to_aspect_ratio are both true; give one of them",
                         images.function);
    return a->image_size[0] >= 1 && a->image_size[1] >= 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: image_size is %d x %d; expected at least 1", images.function,
                           a->image_size[0], a->image_size[1]);
}

mu_dataset *mu_dataset_image_folder_with(const mu_dataset_image_folder_args *args)
{
    mu_dataset_image_folder_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, images.function) != MU_OK || complete(&a) != MU_OK)
        return NULL;
    const mu_folder_options options = {.directory = a.directory,
                                       .label_mode = a.label_mode,
                                       .subset = a.subset,
                                       .batch_size = a.batch_size,
                                       .no_shuffle = a.no_shuffle,
                                       .seed = MU_GIVEN(&a, seed) ? &a.seed : NULL,
                                       .validation_split = a.validation_split};
    image_args stage = {.height = a.image_size[0],
                        .width = a.image_size[1],
                        .channels = strcmp(a.color_mode, "rgb") == 0    ? 3
                                    : strcmp(a.color_mode, "rgba") == 0 ? 4
                                                                        : 1,
                        .crops = a.crop_to_aspect_ratio,
                        .pads = a.pad_to_aspect_ratio};
    while (strcmp(mu__resize_methods[stage.interpolation], a.interpolation) != 0)
        stage.interpolation++;
    mu_dataset *files = mu__folder_files(&images, &options, &stage.labels);
    mu_dataset *dataset = files != NULL ? mu__dataset_stage(&image_stage, &stage, files) : NULL;
    return dataset != NULL && a.batch_size > 0 ? mu_dataset_batch(dataset, a.batch_size) : dataset;
}

mu_tensor *mu_image_folder_classes(const char *directory)
{
    static const mu_folder_kind classes = {"mu_image_folder_classes", "mu_image_folder_classes: the directory",
                                           "images", ends};
    return mu__folder_classes(&classes, directory);
}
