// Arguments of compile and fit: objects or their names, and what is given for each output.
#ifndef MU_SRC_MODEL_ARGUMENTS_H
#define MU_SRC_MODEL_ARGUMENTS_H

#include "model/core/names.h"
#include "model/models/model.h"

#include <muster/model.h>

// Arguments that may be of several kinds (named_arguments.c, arrays.c); `function` names the caller in errors. What
// they return is borrowed or belongs to the pool; a NULL argument gives NULL without an error.
mu_optimizer *mu__optimizer_argument(const void *given, const char *function);
// mu__callbacks_argument fills a list of `*n` objects, for mu__free. mu__loss_named and mu__metric_named make an object
// with default options by Keras's name, mu__loss_argument and mu__metric_argument one of an object or its name.
mu_loss *mu__loss_named(const char *name, const char *function);
mu_metric *mu__metric_named(const char *name, const char *function);
// mu__metric_called is mu__metric_named for an argument: the metric's own name is the one that is given, "mae".
mu_metric *mu__metric_called(const char *name, const char *function);
mu_loss *mu__loss_argument(const void *given, const char *function);
mu_metric *mu__metric_argument(const void *given, const char *function);
mu_status mu__callbacks_argument(const void *given, const char *function, mu_callback ***callbacks);

typedef struct mu_for_outputs {
    mu_name_list names; // of the outputs; empty: not known
    int n_losses;
    mu_loss **losses; // one for each output, NULL for none; borrowed
    double *weights;
    struct mu_output_metric {
        mu_metric *metric;
        int output;
    } * metrics; // borrowed
    size_t n_metrics, first_weighted;
} mu_for_outputs;
// mu__for_outputs finds out what .loss, .metrics and their like give each output. Release it also after an error.
mu_status mu__for_outputs(const mu_compile_args *args, mu_for_outputs *out);
void mu__for_outputs_free(mu_for_outputs *out);

#endif
