// Fuzzes the reader of a dataset's cache file: any bytes are refused with a record, or give elements and an end.
#include "dataset_file.h"

static mu_dataset *open_file(const char *path) { return mu_dataset_cache(mu_dataset_range(0, 1, 1), path); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) { return fuzz_file(data, bytes, open_file); }
