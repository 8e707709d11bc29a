// The subcommands of `muster`: the table that describes them, and what they share.
//
// A subcommand is one mu_tool_command in its own file, listed in commands.c. Its description is what `--help` prints,
// what the manual page says and what the shells complete, so none of the three can disagree with the parser.
#ifndef MU_SRC_TOOLS_TOOLS_H
#define MU_SRC_TOOLS_TOOLS_H

#include "base/base.h"

typedef struct mu_tool_option {
    const char *name; // long name, without dashes; NULL: none
    char letter;      // short name; 0: none
    bool required;
    const char *value;          // name of its value, such as "SECONDS"; NULL: the option has none
    const char *initial;        // value if the option is not given; NULL: none
    const char *const *choices; // values that are allowed, in any case; ends with NULL. NULL: see the description
    const char *text;           // description, one phrase; NULL ends a list of options
} mu_tool_option;

enum { MU_TOOL_OPTIONS = 32 }; // most options of a subcommand

struct mu_tool_command;

typedef struct mu_tool_arguments {
    const struct mu_tool_command *command;
    // By the option's index: the value given last, "" for an option without a value, else the initial value.
    const char *values[MU_TOOL_OPTIONS];
    int n;
    char **operands; // [n], then NULL
    bool help;       // --help is among the options: print the help and do nothing else
} mu_tool_arguments;

typedef struct mu_tool_command {
    const char *name;              // "muster launch"
    const char *usage;             // arguments, as in the first line of the help
    const char *summary;           // one phrase
    const char *description;       // paragraphs, separated by empty lines
    const char *example;           // command lines, each ended by a newline; NULL: none
    const mu_tool_option *options; // ends with text NULL; NULL: none
    const char *needs;             // what is wrong if there are fewer or more operands, as a clause
    int fewest, most;              // number of operands; most -1: any number
    bool ends_at_operand;          // options after the first operand belong to that, as for a program to run
    // One of the two. `run` is called between mu_init and mu_exit and returns whether it succeeded; the error record
    // says what failed. `main` starts and ends the library itself and returns the exit code.
    bool (*run)(const mu_tool_arguments *arguments);
    int (*main)(const mu_tool_arguments *arguments);
} mu_tool_command;

extern const mu_tool_command mu__tool_muster, mu__tool_launch, mu__tool_serve, mu__tool_doctor, mu__tool_bench,
    mu__tool_devices, mu__tool_plugin, mu__tool_config, mu__tool_ops, mu__tool_fit, mu__tool_convert, mu__tool_inspect,
    mu__tool_explain, mu__tool_key;

// The subcommands in the order of the help; ends with NULL.
extern const mu_tool_command *const mu__tool_commands[];

// mu__tool_word returns the word after "muster" that selects the command.
const char *mu__tool_word(const mu_tool_command *command);

// ---- Arguments (command_line.c) --------------------------------------------------------------------

// mu__tool_parse reads options and operands with getopt_long, which may reorder argv; argv[0] is the command's own
// word. Errors: INVALID_ARGUMENT for unknown options, missing values, and a wrong number of operands.
mu_status mu__tool_parse(const mu_tool_command *command, int argc, char **argv, mu_tool_arguments *out);

// mu__tool_option_name writes "-n", or "--timeout" for an option without a letter.
enum { MU_TOOL_NAME_BYTES = 40 };
const char *mu__tool_option_name(const mu_tool_option *option, char text[MU_TOOL_NAME_BYTES]);

// mu__tool_wrong records INVALID_ARGUMENT for an option's value: "muster launch: -n is 'many'; expected …".
mu_status mu__tool_wrong(const mu_tool_arguments *arguments, int option, const char *expected);

// mu__tool_number reads a number from `low` to `high`; `unit` is what the message calls it ("seconds").
// mu__tool_whole reads a whole number. mu__tool_choice returns the index of the value among the option's choices, -1
// after recording an error. The option must have a value or an initial value.
mu_status mu__tool_number(const mu_tool_arguments *arguments, int option, const char *unit, double low, double high,
                          double *out);
mu_status mu__tool_whole(const mu_tool_arguments *arguments, int option, int low, int high, int *out);
int mu__tool_choice(const mu_tool_arguments *arguments, int option);

// ---- Output (help.c, output.c) ------------------------------------------------------------------

typedef struct mu_tool_exit_code {
    int code;
    const char *when;
} mu_tool_exit_code;
extern const mu_tool_exit_code mu__tool_exit_codes[]; // ends with when NULL

// mu__tool_print_help prints usage, description and options; of `muster` itself also the subcommands.
void mu__tool_print_help(const mu_tool_command *command, FILE *out);

// mu__tool_option_names writes an option as the help and the manual show it: "-b, --minbytes BYTES".
enum { MU_TOOL_NAMES_BYTES = 80 };
const char *mu__tool_option_names(const mu_tool_option *option, char text[MU_TOOL_NAMES_BYTES]);

// mu__tool_option_text writes the description with the choices and the initial value.
enum { MU_TOOL_TEXT_BYTES = 400 };
const char *mu__tool_option_text(const mu_tool_option *option, char text[MU_TOOL_TEXT_BYTES]);

// mu__tool_list writes "a, b or c" from a list that ends with NULL.
const char *mu__tool_list(const char *const *items, size_t bytes, char *text);

// mu__tool_flush writes buffered output; false after recording why that failed.
bool mu__tool_flush(void);

// mu__tool_print_name prints a name from a file, padded to `width`. Control characters could affect the terminal, so
// they become question marks.
void mu__tool_print_name(const char *name, int width);

#endif
