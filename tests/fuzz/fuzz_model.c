// Fuzzes the readers of whole models: Keras's JSON, with what the model was compiled with, and .keras archives. Any
// bytes are refused with a record, or make a model that its own configuration describes.
#include "base/base.h"
#include "model/files/keras_names.h"

#include <muster/saved_model.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static mu_model *load_archive(const uint8_t *data, size_t bytes)
{
    char path[64];
    const int fd = memfd_create("model", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mu_model *model = mu_load_model(path);
    close(fd);
    return model;
}

static mu_model *read_json(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (!text)
        abort();
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    mu_model *model = mu__model_from_json(text, NULL, true, "fuzz_model");
    free(text);
    return model;
}

// A model that was read can be written again, and read once more.
static void read_again(const mu_model *model)
{
    json_t *json = mu__model_json(model);
    const char *text = json ? mu__json_text(json, "fuzz_model") : NULL;
    if (text && !mu__model_from_json(text, NULL, true, "fuzz_model") && mu_error_code() != MU_RESOURCE_EXHAUSTED)
        abort();
    if (!text && !mu_error_code())
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_model *model = bytes > 2 && memcmp(data, "PK", 2) == 0 ? load_archive(data, bytes) : read_json(data, bytes);
    if (!model == !mu_error_code())
        abort();
    if (model)
        read_again(model);
    mu_error_take();
    mu_pool_close(pool);
    return 0;
}
