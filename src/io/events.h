// Event files of TensorBoard: scalars by tag and step.
#ifndef MU_SRC_IO_EVENTS_H
#define MU_SRC_IO_EVENTS_H

#include "base/base.h"

typedef struct mu_event_file mu_event_file;

// mu__event_file_create makes a folder's next event file, and the folder. NULL on error: NOT_FOUND, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED, with the file's name.
mu_event_file *mu__event_file_create(const char *folder);
// mu__event_file_scalar adds a value; a reader sees it after mu__event_file_flush. Errors: RESOURCE_EXHAUSTED.
mu_status mu__event_file_scalar(mu_event_file *file, const char *tag, int64_t step, double value);
mu_status mu__event_file_flush(mu_event_file *file);
void mu__event_file_close(mu_event_file *file);  // NULL is accepted

#endif
