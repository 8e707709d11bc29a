// Reads and writes the records of a TFRecord file, for the reader stage and for the cache in a file.
#ifndef MU_SRC_DATA_TFRECORD_H
#define MU_SRC_DATA_TFRECORD_H

#include "data/formats/file_stream.h"

typedef struct mu_record_reader {
    mu_file_stream *stream; // owned
    uint8_t *items;         // the last record
    size_t n, capacity;
} mu_record_reader;

// mu__record_read reads the next record; *end at the end of the file. Errors: DATA_LOSS.
mu_status mu__record_read(mu_record_reader *reader, bool *end);
void mu__record_close(mu_record_reader *reader);

// mu__record_write writes a record that consists of two blocks of memory (the second may be empty).
mu_status mu__record_write(mu_file_writer *file, const void *head, size_t head_bytes, const void *body,
                           size_t body_bytes);

#endif
