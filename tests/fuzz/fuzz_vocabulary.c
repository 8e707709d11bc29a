// Fuzzes how vocabularies among the assets of a .keras file become part of the configuration, and layers are made of
// it: the bytes are a configuration, a byte 0, and the text of each asset that a look-up may have.
#include "io/io.h"
#include "model/files/keras_names.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void add_assets(mu_tensor_file *file, const char *text)
{
    static const char *const names[] = {"string_lookup", "string_lookup_1", "integer_lookup", "text_vectorization",
                                        "sequential/layers/string_lookup"};
    char key[100];
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        snprintf(key, sizeof key, "assets/layers/%s/vocabulary.txt", names[i]);
        if (mu__file_add_metadata(file, key, text) != MU_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = mu__alloc(bytes + 2);
    mu_pool *pool = mu_pool_open();
    mu_tensor_file *file = mu__new(&mu__tensor_file_type, sizeof *file);
    if (!text || !pool || !file)
        abort();
    memcpy(text, data, bytes);
    text[bytes] = text[bytes + 1] = '\0';
    file->path = mu__strdup("fuzzed");
    file->format = &mu__keras_format;
    file->fd = -1;
    add_assets(file, text + strlen(text) + 1);
    const mu_model *model = mu__model_from_json(text, file, false, "fuzz");
    if (!model == !mu_error_code())
        abort();
    mu_error_take();
    mu_release(file);
    mu_pool_close(pool);
    mu__free(text);
    return 0;
}
