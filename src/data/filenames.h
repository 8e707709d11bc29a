// What the readers of record files share: names as elements, and the file being read.
#ifndef MU_SRC_DATA_FILENAMES_H
#define MU_SRC_DATA_FILENAMES_H

#include "data/dataset.h"
#include "data/file_stream.h"

// mu__files_next closes *stream and opens the file that the next element of input 0 names; *end after the last.
mu_status mu__files_next(mu_stage *stage, mu_file_stream **stream, bool *end);

// mu__files_one makes the dataset of one name, given to the pool; NULL after an error. `function` is named
// where the path is NULL.
mu_dataset *mu__files_one(const char *path, const char *function);

#endif
