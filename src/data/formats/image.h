// Images in files as tensors.
#ifndef MU_SRC_DATA_IMAGE_H
#define MU_SRC_DATA_IMAGE_H

#include "data/dataset.h"

#include <muster/image.h>

// mu__decode_image is mu_decode_image for bytes; owned by the caller.
mu_tensor *mu__decode_image(const void *bytes, size_t n, int channels);

#endif
