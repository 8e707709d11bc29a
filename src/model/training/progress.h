// The progress of an epoch on a terminal or in a log, as Keras shows it (progress.c).
#ifndef MU_SRC_MODEL_PROGRESS_H
#define MU_SRC_MODEL_PROGRESS_H

#include "base/base.h"

#include <muster/model.h>
#include <stdio.h>

typedef struct mu_progress {
    FILE *out;
    mu_verbose mode; // resolved: never AUTO
    bool colour;
    int64_t target;             // steps; -1 while unknown
    int64_t begin_ns, shown_ns; // shown: time of the last drawing
    int64_t step, shown_step;   // last finished step, and last step drawn
    int width;                  // columns
    size_t last_length;
    double input_share; // fraction of the time that devices waited for input
    char workers[256];  // what a coordinator's workers do; "": there are none
} mu_progress;
int mu__terminal_width(FILE *out); // columns; 0: not known, or no terminal
void mu__progress_begin(mu_progress *progress, mu_verbose verbose, int epoch, int epochs, int64_t target);
void mu__progress_step(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
bool mu__progress_due(const mu_progress *progress); // whether mu__progress_step would draw
void mu__progress_end(mu_progress *progress, int64_t step, int n, const char *const *names, const double *values);
void mu__progress_abandon(mu_progress *progress); // moves the terminal to a new line

#endif
