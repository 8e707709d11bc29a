// Fuzzes the readers of text: any bytes are refused with a record, or give elements and an end, as CSV with numbers, as
// CSV with strings and defaults, as lines, and as records of one length.
#include "dataset_file.h"

static mu_dataset *open_numbers(const char *path)
{
    return mu_dataset_csv(path, .columns = 3, .dtypes = (const mu_dtype[]){MU_F32, MU_I32, MU_I64}, .n_dtypes = 3,
                          .skip_lines = 1);
}

static mu_dataset *open_strings(const char *path)
{
    mu_tensor *const defaults[] = {mu_string_scalar("?"), mu_constant(MU_F64, 1)};
    return mu_dataset_csv(path, .columns = 3, .dtypes = (const mu_dtype[]){MU_STRING, MU_F64}, .n_dtypes = 2,
                          .na_value = "NA", .select_columns = (const int[]){0, 2}, .n_select_columns = 2,
                          .record_defaults = defaults, .n_record_defaults = 2);
}

static mu_dataset *open_records(const char *path)
{
    return mu_dataset_fixed_length_record(path, 7, .header_bytes = 9, .footer_bytes = 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_file(data, bytes, open_numbers);
    fuzz_file(data, bytes, open_strings);
    fuzz_file(data, bytes, open_records);
    return fuzz_file(data, bytes, mu_dataset_text_line);
}
