// Memory in a memfd that is backed when it is asked for, so that a lack of it is an error and not a signal later.
#ifndef MU_SRC_COMM_SESSIONS_BACKED_MEMORY_H
#define MU_SRC_COMM_SESSIONS_BACKED_MEMORY_H

#include <stddef.h>

// mu__memory_back backs a range of the file by memory, and lengthens the file to its end. mu__memory_lengthen only
// makes the file as long. Both return 0 or an errno: EFBIG where `ulimit -f` is less.
int mu__memory_back(int fd, size_t at, size_t bytes);
int mu__memory_lengthen(int fd, size_t bytes);

#endif
