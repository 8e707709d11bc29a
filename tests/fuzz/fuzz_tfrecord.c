// Fuzzes the TFRecord reader, plain and gzip: any bytes are refused with a record, or give elements and an end.
#include "dataset_file.h"

static mu_dataset *open_file(const char *path) { return mu_dataset_tfrecord(path); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) { return fuzz_file(data, bytes, open_file); }
