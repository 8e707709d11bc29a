// What compile, fit, evaluate and predict keep of a model: its trainer, the steps, the use in progress, the position of
// fit, and the history.
#ifndef MU_SRC_MODEL_TRAINING_H
#define MU_SRC_MODEL_TRAINING_H

#include "model/core/names.h"
#include "model/models/model.h"

#include <muster/model.h>
#include <pthread.h>

#define MU_MAX_LOGS 128 // values of one epoch, those of validation included

typedef struct mu_fit_position mu_fit_position;
typedef struct mu_model_use mu_model_use;

// What compile and fit keep of a model.
struct mu_trainer {
    mu_optimizer *optimizer; // set by compile; retained, like the next fields
    mu_name_list outputs;    // their names; empty: not known before the model is called
    int n_losses;            // 1, or one for each output
    mu_loss **losses;        // NULL: none for this output
    double *loss_weights;    // of the outputs' losses; owned
    int n_metrics;
    mu_metric **metrics; // the mean loss first, then, if several outputs have one, their losses, then compile's
    int *metric_outputs; // which output each metric compares; owned
    int first_metric;    // of compile's metrics
    int first_weighted;  // metrics from here on count samples by their weights
    int first_of_layers; // metrics from here on are those of layers, whose calls update them
    bool compiled, run_eagerly, jit_compile;
    mu_tensor *(*train_step)(mu_model *model, mu_value *batch, void *arg); // of the program's own; NULL: fit's
    mu_tensor *(*test_step)(mu_model *model, mu_value *batch, void *arg);
    void *step_arg;
    mu_function *train_function, *test_function, *predict_function;
    int64_t steps_per_execution; // of training
    mu_function *loop_function;  // several training steps as one run (looped_steps.c); NULL: steps_per_execution is 1
    bool stop;
    atomic_bool warned_of_frozen; // that no weight is trained
    void *coordinator;            // of steps on workers (worker_steps.c); retained. NULL: none yet
    mu_model_use *use;            // the innermost running call of fit, evaluate or predict; NULL: none
};

// mu__adopt_metrics adds the metrics of layers that are not among a compiled model's yet (layer_metrics.c).
mu_status mu__adopt_metrics(mu_model *model);
// mu__check_labels refuses two values that would be logged under one name.
mu_status mu__check_labels(const mu_trainer *trainer);

void mu__trainer_free(mu_trainer *trainer); // NULL is accepted

// The steps of fit, evaluate and predict, for mu_function_new with the model as argument (step.c).
mu_value *mu__train_step(mu_value *batch, void *model);
enum { MU_MOST_LOOPED_STEPS = 256 };
mu_value *mu__train_steps(mu_value *batches, void *model); // (looped_steps.c)
// mu__metric_states returns every state of every metric on this replica, as a step does.
mu_value *mu__metric_states(const mu_trainer *trainer);
mu_value *mu__test_step(mu_value *batch, void *model);
mu_value *mu__predict_step(mu_value *batch, void *model);
// mu__loss_step computes the loss of the model alone, for a trace that finds out whether it takes such batches.
mu_value *mu__loss_step(mu_value *batch, void *model);

// One call of fit, evaluate or predict, on the calling thread's stack.
struct mu_model_use {
    mu_model_use *outer;  // the call whose callback made this call
    const char *function; // "mu_fit"
    pthread_t thread;
    bool in_callback;            // a callback of this call is running
    char callback[40];           // "a callback of mu_fit"
    const char *callback_before; // for mu__callback_leave
    mu_fit_position *position;   // only for fit
};
// mu__model_enter begins a use in the caller's storage; mu__model_leave ends the innermost. Errors: FAILED_PRECONDITION
// if the model is in use, unless a callback of that use makes the call.
mu_status mu__model_enter(mu_model *model, mu_model_use *use, const char *function);
void mu__model_leave(mu_model *model);
// mu__model_need_idle protects what a running fit works with from changes. Errors: FAILED_PRECONDITION while a call
// runs.
mu_status mu__model_need_idle(const mu_model *model, const char *function);
void mu__model_callback_begin(mu_model *model);
void mu__model_callback_end(mu_model *model);

// The values of one name, up to the last epoch that has one; NaN in epochs before that have none.
typedef struct mu_series {
    char *name;
    struct {
        double *items;
        size_t n, capacity;
    } values;
} mu_series;

struct mu_history {
    mu_object object;
    struct {
        mu_series *items;
        size_t n, capacity;
    } series;
    int epochs;
    double seconds;
    int64_t samples;
};
mu_history *mu__history_new(void);
// mu__history_put adds a value of the epoch in progress, the one after history->epochs others.
mu_status mu__history_put(mu_history *history, const char *name, double value);
// mu__history_last_epoch gives the names, which belong to the history, and the values of its last epoch, and returns
// how many there are: at most 2 * MU_MAX_LOGS + 1.
int mu__history_last_epoch(const mu_history *history, const char **names, double *values);

// The position of fit, for callbacks that save it and restore it before the first epoch.
struct mu_fit_position {
    int epoch;             // epoch in progress, from 0; between epochs the next one
    int64_t step;          // number of its finished steps
    mu_dataset *data;      // NULL: of a creator, without a position to save
    bool begun;            // the data are open at the position; else a new iteration is next
    mu_iterator *iterator; // with the position, if `data` is set
    char *restored;        // a saved position in the data to start from; owned
};
// mu__fit_data_state returns the position in the data as text; free with mu__free. NULL on error.
char *mu__fit_data_state(const mu_model *model);

#endif
