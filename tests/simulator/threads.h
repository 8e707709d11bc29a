// Threads on virtual time: shipped code that blocks runs in the virtual world (world.h), one thread at a time.
//
// Whoever blocks in the library does so in one of few functions: on a condition, a lock, a futex, a poller, in a sleep,
// or for the end of a thread. The linker puts the functions of threads.c in the place of these (--wrap), so that a
// thread of the simulation waits there until the simulator lets it go on: when what it waits for has happened, or its
// virtual time has come. Which of several threads goes on is drawn from the seed. Threads that the library starts from
// a thread of the simulation are part of it, and of the same process; the program's main thread is not.
#ifndef MU_TESTS_THREADS_H
#define MU_TESTS_THREADS_H

#include "world.h"

enum { MOST_THREADS = 512, MOST_LIVES = 128 }; // MOST_LIVES: numbers of processes

// threads_begin follows world_begin; threads_end comes before world_end, when no thread is left.
void threads_begin(void);
void threads_end(void);
// threads_start begins a thread of a process, from the main thread or from a thread of the simulation.
void threads_start(int process, int host, void (*run)(void *arg), void *arg);
// threads_step lets one thread go on until it blocks, or time pass until something happens, `until_ns` at most. It
// returns false if nothing can happen before that.
bool threads_step(int64_t until_ns);
// threads_pause stops all threads of a process until a time, as SIGSTOP does.
void threads_pause(int process, int64_t until_ns);
// threads_count returns how many threads of a process have not ended.
int threads_count(int process);
// threads_end_devices ends the thread on which a process computes; on a thread of that process.
void threads_end_devices(void);

#endif
