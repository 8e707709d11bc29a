// Fuzzes the reader of Keras's archives.
#include "fuzz_tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) { return load_bytes(data, bytes); }
