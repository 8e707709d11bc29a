// The subcommands of `muster`: each has an entry in main.c and its own file.
//
// A subcommand gets the arguments after its name, writes to standard output and returns whether it succeeded. The
// thread's error record says what failed; main prints it and derives the exit code.
#ifndef MU_SRC_TOOLS_TOOLS_H
#define MU_SRC_TOOLS_TOOLS_H

#include "base/base.h"

bool mu__tool_devices(int n, char **arguments);
bool mu__tool_config(int n, char **arguments);
bool mu__tool_ops(int n, char **arguments);
bool mu__tool_inspect(int n, char **arguments);
bool mu__tool_explain(int n, char **arguments);
bool mu__tool_doctor(int n, char **arguments);
// Returns the exit code of the program that it ran; prints earlier errors itself.
int mu__tool_launch(int n, char **arguments);
// Starts the library with the requested devices, so it also ends it; returns the exit code.
int mu__tool_bench(int n, char **arguments);

// mu__tool_flush writes buffered output; false after recording why that failed.
bool mu__tool_flush(void);

// mu__tool_no_arguments records INVALID_ARGUMENT unless n is 0.
bool mu__tool_no_arguments(const char *command, int n, char **arguments);

// mu__tool_print_name prints a name from a file, padded to `width`. Control characters could affect the terminal, so
// they become question marks.
void mu__tool_print_name(const char *name, int width);

#endif
