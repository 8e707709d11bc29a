// Fuzzes the CSV reader: any bytes are refused with a record, or give elements and an end.
#include "dataset_file.h"

static mu_dataset *open_file(const char *path)
{
    return mu_dataset_csv(path, .columns = 3, .dtypes = (const mu_dtype[]){MU_F32, MU_I32, MU_I64}, .skip_lines = 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    return fuzz_file(data, bytes, open_file);
}
