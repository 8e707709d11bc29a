// Event files of TensorBoard: scalars, histograms, images and texts by tag and step.
#ifndef MU_SRC_IO_EVENTS_H
#define MU_SRC_IO_EVENTS_H

#include "base/base.h"

typedef struct mu_event_file mu_event_file;

// mu__event_file_create makes a folder's next event file, and the folder. NULL on error: NOT_FOUND, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED, with the file's name.
mu_event_file *mu__event_file_create(const char *folder);
// mu__event_file_scalar adds a value; a reader sees it after mu__event_file_flush. Errors: RESOURCE_EXHAUSTED.
mu_status mu__event_file_scalar(mu_event_file *file, const char *tag, int64_t step, double value);
// mu__event_file_histogram adds n buckets, each with its left and right edge and its count.
mu_status mu__event_file_histogram(mu_event_file *file, const char *tag, int64_t step, int n, const double (*rows)[3]);
// mu__event_file_images adds a width and a height, written as decimal numbers, and images as PNG.
typedef struct mu_event_bytes {
    const void *bytes;
    size_t n;
} mu_event_bytes;
mu_status mu__event_file_images(mu_event_file *file, const char *tag, int64_t step, int n, const mu_event_bytes *parts);
mu_status mu__event_file_text(mu_event_file *file, const char *tag, int64_t step, const char *text);
mu_status mu__event_file_flush(mu_event_file *file);
void mu__event_file_close(mu_event_file *file); // NULL is accepted

#endif
