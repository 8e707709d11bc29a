// The driver of the simulators: plays one seed, a range or a file of them, counts those that fail, and plays some
// twice, because the same seed must give the same trace.
//
//   PROGRAM --seed N            plays one seed and prints its trace
//   PROGRAM --from N --count K  plays K seeds
//   PROGRAM --seeds FILE        plays the seeds of a file, one in each line; text after a # is a comment
//   … --most-failures N         ends when N seeds have failed
//
// While it plays a range, a line says how far it is: on a terminal it changes, elsewhere there is one every 30 s.
#ifndef SIMULATOR_SEEDS_H
#define SIMULATOR_SEEDS_H

#include "base/base.h"

typedef struct simulation {
    const char *name;                            // of the program
    const char *options;                         // which it has besides, for the message about its use; "": none
    uint64_t twice_every;                        // seeds that this number divides are played twice
    uint64_t (*play)(uint64_t seed, bool print); // returns the hash of what has happened
    const char *(*about)(void);                  // what stands behind the seed's number when it fails, such as when
} simulation;

// seeds_option returns the argument behind one named `name`; NULL: there is none.
const char *seeds_option(int argc, char **argv, const char *name);

// seeds_folder returns a folder for the files of the seed that is played, which is empty when it begins. It ends the
// program if there cannot be one.
const char *seeds_folder(void);

// seeds_play plays what the arguments name, and returns the program's exit code: 0, 1 if a seed failed, 2 if the
// arguments name none. It ends the library.
int seeds_play(const simulation *s, int argc, char **argv);

// run_fails tells that the seed which is played does not hold; only the first reason is printed. run_failed: it was
// called for this seed.
void run_fails(const char *format, ...) MU_PRINTF(1, 2);
bool run_failed(void);

#endif
