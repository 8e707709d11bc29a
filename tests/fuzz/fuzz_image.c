// Fuzzes the decoding of images: any bytes are refused with a record, or give an image with the channels wanted, and
// the image written as a PNG is the same image again.
#include "data/formats/image.h"

#include <muster/image.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    for (int channels = 0; channels <= 4; channels++) {
        mu_tensor *image =
            mu_decode_image(mu_tensor_byte_strings(0, NULL, &(mu_string){(const char *)data, bytes}), channels);
        if ((image == NULL) != (mu_error_code() != MU_OK))
            abort();
        if (image == NULL) {
            mu_error_take();
            continue;
        }
        const mu_spec spec = mu__spec_of(image);
        mu_tensor *again = mu_decode_image(mu_encode_png(image), 0);
        if (again == NULL || !mu__shape_equal(&again->shape, &spec.shape) ||
            (channels > 0 && spec.shape.dims[2] != channels) ||
            memcmp(mu__host_read(image), mu__host_read(again), mu__spec_bytes(&spec)) != 0)
            abort();
    }
    mu_pool_close(pool);
    return 0;
}
