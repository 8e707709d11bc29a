// The subcommands of `muster`: each is a row in main.c and a file of its own.
//
// A subcommand gets the arguments after its name, writes to standard output and says whether it went well;
// what went wrong is the thread's error record, which main prints and turns into the exit code.
#ifndef MU_SRC_TOOLS_TOOLS_H
#define MU_SRC_TOOLS_TOOLS_H

#include "base/base.h"

bool mu__tool_devices(int n, char **arguments);
bool mu__tool_config(int n, char **arguments);
bool mu__tool_ops(int n, char **arguments);
bool mu__tool_inspect(int n, char **arguments);
bool mu__tool_explain(int n, char **arguments);
bool mu__tool_doctor(int n, char **arguments);
// Returns the exit code of the program that it ran; what went wrong before that it has printed.
int mu__tool_launch(int n, char **arguments);
// Starts the library with as many devices as it is asked for, so it ends it too: returns the exit code.
int mu__tool_bench(int n, char **arguments);

// mu__tool_flush writes what is buffered; false after recording why it cannot be written.
bool mu__tool_flush(void);

// mu__tool_no_arguments records INVALID_ARGUMENT unless n is 0.
bool mu__tool_no_arguments(const char *command, int n, char **arguments);

// mu__tool_print_name prints a name from a file, filled up to `width`: control characters would reach the terminal, so
// they become question marks.
void mu__tool_print_name(const char *name, int width);

#endif
