// Reads a file sequentially, plain or gzip, without holding all of it in memory.
#ifndef MU_SRC_DATA_FILE_STREAM_H
#define MU_SRC_DATA_FILE_STREAM_H

#include "base/base.h"

typedef struct mu_file_stream mu_file_stream;

// mu__file_stream_open opens a regular file; gzip is recognised by its first bytes. Errors: NOT_FOUND,
// PERMISSION_DENIED, FAILED_PRECONDITION (a folder). Owned by the caller.
mu_file_stream *mu__file_stream_open(const char *path);
void mu__file_stream_close(mu_file_stream *stream); // NULL is accepted

// mu__file_stream_read reads up to `bytes` bytes of content; fewer only at the end. Before it reports the end, it has
// verified gzip's checksum. Errors: DATA_LOSS for corrupt or truncated gzip.
mu_status mu__file_stream_read(mu_file_stream *stream, void *data, size_t bytes, size_t *got);

uint64_t mu__file_stream_at(const mu_file_stream *stream);   // content read so far, bytes
uint64_t mu__file_stream_most(const mu_file_stream *stream); // upper bound of the content's size, bytes
const char *mu__file_stream_path(const mu_file_stream *stream);

// mu__swap_bytes reverses the bytes of every element, between big-endian and little-endian.
void mu__swap_bytes(void *data, size_t bytes, size_t element);

#endif
