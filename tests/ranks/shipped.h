// What the two programs of the shipped training step agree on: its sizes, and how bytes go through their pipes.
//
// The stream holds a length and the graph, then the elements of every resource in the graph's order, then those
// of every input of each step; back come the losses, one float32 a step.
#ifndef MU_TESTS_SHIPPED_H
#define MU_TESTS_SHIPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

enum { STEPS = 5, BATCH = 32, SIDE = 28, CLASSES = 10 };

static inline bool write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    for (ssize_t n; bytes > 0; at += n, bytes -= (size_t)n)
        if ((n = write(fd, at, bytes)) <= 0)
            return false;
    return true;
}

static inline bool read_all(int fd, void *data, size_t bytes)
{
    char *at = data;
    for (ssize_t n; bytes > 0; at += n, bytes -= (size_t)n)
        if ((n = read(fd, at, bytes)) <= 0)
            return false;
    return true;
}

#endif
