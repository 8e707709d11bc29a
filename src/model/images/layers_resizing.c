// The layer that resizes images, all of a batch to one size, after it has cut or padded them to the same proportion.
#include "model/core/layer.h"
#include "model/images/augment.h"
#include "ops/spatial/image_size.h"

#include <muster/ops.h>
#include <muster/preprocessing.h>

static const char *const fill_modes[] = {"constant", NULL};

static const mu_field resizing_fields[] = {
    MU_FIELD(mu_resizing_args, height, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_resizing_args, width, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_resizing_args, interpolation, CHOICE, .text = "bilinear", .choices = mu__interpolations),
    MU_FIELD(mu_resizing_args, crop_to_aspect_ratio, FLAG),
    MU_FIELD(mu_resizing_args, pad_to_aspect_ratio, FLAG),
    MU_FIELD(mu_resizing_args, fill_mode, CHOICE, .text = "constant", .choices = fill_modes),
    MU_FIELD(mu_resizing_args, fill_value, DOUBLE),
    MU_FIELD(mu_resizing_args, antialias, FLAG),
    MU_LAYER_FIELDS(mu_resizing_args),
    {0},
};

static mu_status resizing_complete(void *arguments)
{
    const mu_resizing_args *args = arguments;
    if (!args->crop_to_aspect_ratio || !args->pad_to_aspect_ratio)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_resizing: .crop_to_aspect_ratio and .pad_to_aspect_ratio are both true; give one of them");
}

// The image is padded on both sides to the proportion of height to width.
static mu_tensor *pad_to_ratio(mu_tensor *x, const mu_resizing_args *args)
{
    const int64_t h = mu_tensor_dim(x, 1), w = mu_tensor_dim(x, 2);
    const int64_t rows = MU_MAX(w * args->height / args->width - h, 0) / 2;
    const int64_t columns = MU_MAX(h * args->width / args->height - w, 0) / 2;
    const int64_t sides[] = {0, rows, columns, 0};
    return mu_pad(x, sides, sides, "constant", args->fill_value);
}

static mu_value *resizing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_resizing_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (args->crop_to_aspect_ratio)
        x = mu__crop_to_ratio(x, args->height, args->width);
    if (args->pad_to_aspect_ratio)
        x = pad_to_ratio(x, args);
    return mu_of(mu__resize_images(x, args->height, args->width, args->interpolation, args->antialias));
}

MU_LAYER_CLASS(resizing, "resizing", "Resizing", mu_resizing_args, resizing_fields, resizing_complete,
               .keeps_type = true, .axes = 2, .build = mu__image_sizes_known, .call = resizing_call)
