// One pass over data, by fit, evaluate or predict: takes batches, runs a step on each, and keeps the metrics.
//
// The steps run on the replicas of this process's strategy, or on the workers of a coordinator: two tables of functions
// (mu_step_runner) for the same loop (pass.c).
#ifndef MU_SRC_MODEL_PASS_H
#define MU_SRC_MODEL_PASS_H

#include "data/dataset.h"
#include "model/callbacks/callback_class.h"
#include "model/training/progress.h"
#include "model/training/samples.h"
#include "model/training/training.h"
#include "model/training/worker_data.h"

#include <muster/coordinator.h>

typedef struct mu_pass mu_pass;

// Where the steps' batches come from: a dataset, or a creator whose datasets the runner opens.
typedef struct mu_step_data {
    mu_dataset *dataset;
    mu_dataset_creator *creator;
    mu_worker_data *workers; // whose dataset it is (worker_data.h): an element is the batch of a call; else NULL
} mu_step_data;

typedef struct mu_step_runner {
    // begin opens the data of a pass, or continues with what `opened` holds from an earlier one, and sets it.
    mu_status (*begin)(const mu_model *model, const mu_step_data *data, mu_object **opened);
    // start takes the next batch and starts its step. NULL at the end of the data, or on error.
    void *(*start)(mu_pass *pass);
    // next returns which of the started steps to finish now, so that another can start; `all`: until none is left.
    // -1: none has to be.
    int (*next)(const mu_pass *pass, bool all);
    // wait frees the step and returns its result, which belongs to the pool; NULL on error. One that was several steps
    // sets pass->waited to their number.
    mu_value *(*wait)(mu_pass *pass, void *step);
    // abandon follows an error (which is moved away), when no step is left. Optional.
    void (*abandon)(mu_pass *pass, const mu_error_value *error);
    // add adds a step's result to the metrics.
    mu_status (*add)(mu_pass *pass, mu_value *result);
    // read makes pass->sums the metrics' states after the steps so far; `last`: the pass is over.
    mu_status (*read)(mu_pass *pass, bool last);
    // note gives the progress bar a text to show in addition to the values. Optional.
    void (*note)(const mu_pass *pass, mu_progress *progress);
} mu_step_runner;
extern const mu_step_runner mu__replica_steps, mu__eager_steps, mu__worker_steps; // (replica_steps.c, worker_steps.c)

// Steps on replicas, several of which are one run (looped_steps.c); mu__replica_steps begins. mu__loops_steps returns
// whether a pass's steps run so: it trains, mu_compile was asked for it, and the devices work by themselves.
extern const mu_step_runner mu__looped_steps;
bool mu__loops_steps(const mu_pass *pass);
int mu__replica_next(const mu_pass *pass, bool all);
mu_status mu__replica_add(mu_pass *pass, mu_value *states);
mu_status mu__replica_read(mu_pass *pass, bool last);

// mu__step_runner returns how a model's steps run.
const mu_step_runner *mu__step_runner(const mu_model *model);

struct mu_pass {
    mu_model *model;
    mu_function *function;
    const mu_step_runner *runner;
    mu_object *opened; // the data, of the runner
    bool batch_each;   // an element of the data is the batch of a call, of which several may make a step
    int64_t limit;     // steps; -1: until the data ends
    bool training;
    mu_progress *progress; // NULL: nothing is shown
    mu_callback *const *callbacks;
    bool in_step;        // a callback runs after every batch, so only one step may be in progress
    bool *warned_of_nan; // for one warning per call of fit or evaluate; NULL: no metrics
    int epoch;
    struct {
        void **items;
        size_t n, capacity;
    } started;      // steps, the oldest first
    int64_t begun;  // steps started, over all of the pass
    int64_t waited; // steps that the last wait of the runner has ended
    struct {
        mu_value **items;
        size_t n, capacity;
    } waiting; // batches of the next steps
    // results
    int64_t steps, samples;
    double input_before; // the devices' waiting time for input at the start, in seconds
    mu_value *unread;    // the metrics' states after the last step, until they are read
    double *sums;        // the states as they were last read, summed over replicas; owned
    int64_t read_before; // step after which they were last read; 0: none
    const char *names[MU_MAX_LOGS];
    double values[MU_MAX_LOGS];
    struct {
        mu_value **items;
        size_t n, capacity;
    } outputs; // predict: of every batch, in order; retained
};

// mu__pass_begin_batch calls the callbacks that precede a step, for runners.
mu_status mu__pass_begin_batch(const mu_pass *pass);

// mu__pass_run runs the steps and reads the metrics. mu__pass_end frees what the pass holds, except for `opened`.
mu_status mu__pass_run(mu_pass *pass);
void mu__pass_end(mu_pass *pass);
mu_logs mu__pass_logs(const mu_pass *pass);

// mu__pass_need_sums makes room for the metrics' states, mu__pass_values computes the metrics from them.
mu_status mu__pass_need_sums(mu_pass *pass);
void mu__pass_values(mu_pass *pass);
int64_t mu__pass_numbers(const mu_trainer *trainer); // of all metrics' states together
// mu__pass_write writes pass->sums to the metrics' variables; mu__pass_reset writes zeros.
mu_status mu__pass_write(const mu_pass *pass);
mu_status mu__pass_reset(const mu_model *model);
// mu__state_numbers writes the numbers of a state on replica r, and returns how many there are.
int64_t mu__state_numbers(const mu_value *state, int r, double *out);

// ---- What fit, evaluate and predict share (evaluate.c) ------------------------------------------

// mu__step_data finds out what the samples are for a model (NULL: none, which fails later); of rows it makes batches.
// Errors: those of mu__samples_dataset.
mu_status mu__step_data(const mu_model *model, const mu_samples *samples, const char *function, mu_step_data *out);
// mu__need_end checks that a pass ends. Errors: INVALID_ARGUMENT naming the argument that says when.
mu_status mu__need_end(const mu_step_data *data, int64_t steps, const char *function, const char *argument);
// mu__check_validation finds out whether a model takes its validation data, if nothing has to be trained for that
// (validation_check.c). NULL: there are none, or workers read them.
mu_status mu__check_validation(mu_model *model, mu_dataset *training, mu_dataset *validation);
int64_t mu__data_steps(const mu_step_data *data); // batches; negative: not known
mu_status mu__need_compiled(const mu_model *model, const mu_step_data *data, const char *function);
mu_status mu__no_batches(const char *function);
mu_verbose mu__verbose_on(const mu_model *model, mu_verbose verbose);
// mu__measure evaluates; the pass then holds names and values. mu__add_epoch adds them to a history;
// `train` or `validation` is NULL where there are none; rate: the learning rate, or NULL.
mu_status mu__measure(mu_pass *pass, const mu_step_data *data);
#define MU_RATE_LOG "learning_rate"
mu_status mu__add_epoch(mu_history *history, const mu_pass *train, const mu_pass *validation, const double *rate);
// mu__pass_read reads what the metrics hold now.
mu_status mu__pass_read(mu_pass *pass);

#endif
