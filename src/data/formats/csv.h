// What is known of a CSV file before its lines are read.
#ifndef MU_SRC_DATA_CSV_H
#define MU_SRC_DATA_CSV_H

#include "data/formats/file_stream.h"

// mu__csv_columns counts the fields, with commas between them, of the first line that is not empty after so many
// skipped ones, as mu_dataset_csv reads them; 0: there is none. `lines`: how many lines were skipped. Errors: those of
// opening and reading the file; DATA_LOSS for a wrong line.
mu_status mu__csv_columns(const char *path, int64_t skip_lines, int64_t *lines, int *columns);

#endif
