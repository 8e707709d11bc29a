// Internal interface of built-in callbacks: a class with a table of fields, hooks and a state.
#ifndef MU_SRC_MODEL_CALLBACK_H
#define MU_SRC_MODEL_CALLBACK_H

#include "model/core/fields.h"

#include <muster/callback.h>

struct mu_callback {
    mu_object object;
    mu_callback_args hooks;
    void *state;                     // built-in callbacks: owned
    const mu_class *class;           // built-in callbacks with a table of fields; NULL: none
    void *args;                      // their options; owned
    void (*on_destroy)(void *state); // releases what the state owns; optional
    const char *monitor; // built-in callbacks: the logged value that they watch, stored in `state`; NULL: none
    const char *path;    // built-in callbacks: a path with {names} of logged values, stored in `args`; or NULL
    bool sets_rate;      // built-in callbacks: fit logs "learning_rate" at the end of every epoch
    // Called when a signal ends fit, after the step in progress has finished. Names the folder from which the next run
    // continues, in *saved_in, if there is one; it stays valid as long as the callback. Optional.
    mu_status (*on_interrupt)(const mu_logs *logs, const char **saved_in, void *arg);
};
mu_callback *mu__callback_built_in(mu_callback_args hooks, void *state); // takes ownership of `state`
extern mu_type mu__callback_type;

typedef struct mu_callback_class {
    mu_class class;
    size_t state_bytes;              // of the state, which begins as zeros
    mu_callback_args hooks;          // their argument is the callback
    void (*on_destroy)(void *state); // releases what the state owns; optional
} mu_callback_class;

// mu__callback_of_class makes a callback of a class from a caller's options. Belongs to the pool; NULL on error.
mu_callback *mu__callback_of_class(const mu_callback_class *class, const void *given);
// mu__logged reads a value of the logs; false: there is none of this name, and *value stays as it is.
bool mu__logged(const mu_logs *logs, const char *name, double *value);

// mu__callback_say prints what a callback has done, a line that ends with '\n'. Of several workers only the chief does.
void mu__callback_say(const mu_logs *logs, const char *format, ...) MU_PRINTF(2, 3);

// A watched value (callbacks_monitor.c).
typedef struct mu_watched {
    double best;
    bool seen; // `best` is a value to improve on
} mu_watched;
extern const char *const mu__monitor_modes[];
// mu__is_maximized returns whether larger values of what has this name are better.
bool mu__is_maximized(const mu_model *model, const char *name, const char *mode);
// mu__improved returns whether the value is the best so far, which it then is from now on. NaN is never an improvement.
bool mu__improved(mu_watched *watched, double value, bool maximized, double min_delta);
// The steps that on_batch_end has seen, several at a time with .steps_per_execution (callbacks_checkpoint.c).
typedef struct mu_counted_steps {
    int64_t n;    // since the count began again
    int64_t last; // logs->step of the last call, or of on_epoch_begin: a run that is restored begins within an epoch
} mu_counted_steps;
// mu__steps_are_due counts on, over epochs and calls of fit, as Keras does. True: there were `freq`, and the count
// begins again.
bool mu__steps_are_due(mu_counted_steps *counted, const mu_logs *logs, int64_t freq);

// mu__number_text writes the shortest text that reads as this number, as Python's repr() does; bytes: 32 or more.
void mu__number_text(double value, size_t bytes, char *text);
// mu__number_format writes a number as Python's format() does with a specification such as "", "02d", ".3f" or "*^9";
// `whole`: as an int. False: format() refuses it, it is "c" (a character), or its width or precision is too large.
bool mu__number_format(double value, bool whole, const char *spec, size_t bytes, char *out);
// The learning rate of a model's optimizer (callbacks_log.c).
mu_status mu__learning_rate_read(const mu_model *model, double *rate);
mu_status mu__learning_rate_write(const mu_model *model, double rate);

#endif
