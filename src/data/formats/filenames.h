// Shared by the readers of record files: file names as elements, and the file being read.
#ifndef MU_SRC_DATA_FILENAMES_H
#define MU_SRC_DATA_FILENAMES_H

#include "data/dataset.h"
#include "data/formats/file_stream.h"

// mu__files_next closes *stream and opens the file named by the next element of input 0; sets *end after the last.
mu_status mu__files_next(mu_stage *stage, mu_file_stream **stream, bool *end);

// mu__files_one makes a dataset of one file name; it belongs to the pool, NULL on error. If the path is NULL, the error
// names `function`.
mu_dataset *mu__files_one(const char *path, const char *function);

#endif
