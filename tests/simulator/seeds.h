// The options of a simulator, and files of seeds.
#ifndef SIMULATOR_SEEDS_H
#define SIMULATOR_SEEDS_H

#include <stdint.h>

// option returns the argument behind one named `name`; NULL: there is none.
const char *option(int argc, char **argv, const char *name);

// play_file plays the seeds of a file, one in each line; text after a # is a comment. Returns how many there were. The
// program ends with exit code 2 if the file cannot be opened.
int play_file(const char *path, void (*play)(uint64_t seed));

#endif
