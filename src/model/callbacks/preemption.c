// The preemption handler: saves and stops a custom training loop, between two steps, when the job must end.
//
// Before every step the workers exchange whether any of them was asked to stop. So all learn it at the same step and
// save the same state, whichever worker got the signal. The checkpoint includes the number of steps run. This file does
// not depend on what a step does.
#include "base/callback.h"
#include "cluster/cluster.h"
#include "model/files/checkpoint.h"

#include <math.h>
#include <signal.h>

enum { EXIT_CODE = 42 };
// The last save begins this many mean step times before the grace period ends, as in TensorFlow.
#define STEPS_FOR_SAVING 6
#define WATCH_NS         1000000000

struct mu_preemption_handler {
    mu_object object;
    mu_preemption_handler_args args; // retained objects are in the fields below
    mu_strategy *strategy;           // retained, as the next two
    mu_checkpoint_manager *manager;
    mu_checkpoint *checkpoint; // saved by save()
    int64_t total_runs;
    int64_t runs, run_ns; // steps run in this process, and their time in ns
    int64_t watched_ns;
    bool saved; // saved once; the grace period is running
    bool ended;
};

static void handler_destroy(void *object)
{
    mu_preemption_handler *handler = object;
    if (handler->checkpoint)
        mu__checkpoint_count(handler->checkpoint, NULL);
    mu_release(handler->checkpoint);
    mu_release(handler->manager);
    mu_release(handler->strategy);
    mu__stop_let_go();
}

static mu_type handler_type = {.name = "preemption handler", .destroy = handler_destroy};

// ---- Making -------------------------------------------------------------------------------------

static mu_status check_args(const mu_preemption_handler_args *args)
{
    if (args->manager ? args->checkpoint || args->directory : !args->checkpoint || !args->directory)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_preemption_handler_new: %s; give a checkpoint and a directory, or a manager",
                         args->manager      ? "there is a manager, and more than it"
                         : args->checkpoint ? "the directory is missing"
                         : args->directory  ? "the checkpoint is missing"
                                            : "there is nothing to save");
    if (!(args->grace_period >= 0) || isinf(args->grace_period))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_preemption_handler_new: grace_period is %g; expected seconds from 0 up",
                         args->grace_period);
    if (args->exit_code < 0 || args->exit_code > 255)
        return mu__error(MU_INVALID_ARGUMENT, "mu_preemption_handler_new: exit_code is %d; expected 1 to 255",
                         args->exit_code);
    return MU_OK;
}

static mu_status check_cluster(const mu_strategy *strategy)
{
    mu_cluster_spec *spec = strategy->cluster ? mu_cluster_get_spec(strategy->cluster) : NULL;
    if (!spec || !mu__spec_find(spec, "ps"))
        return mu_error_code();
    return mu__error(MU_UNIMPLEMENTED, "mu_preemption_handler_new: the cluster has parameter servers; save with a "
                                       "checkpoint manager between steps there, workers may come and go without it");
}

// Workers that continued from different files would silently train apart.
static mu_status compare_latest(mu_strategy *strategy, int64_t number)
{
    int n = 0;
    int64_t *all = mu__workers_gather_equal(strategy, "latest checkpoint", MU_I64, 1, &number, &n);
    mu_status status = all ? MU_OK : mu_error_code();
    for (int w = 1; status == MU_OK && w < n; w++)
        if (all[w] != all[0])
            status = mu__error(MU_INVALID_ARGUMENT,
                               "mu_preemption_handler_new: worker 0 resumes from checkpoint %lld, worker %d from %lld "
                               "(-1: none); the folder of checkpoints must be the same one for all workers",
                               (long long)all[0], w, (long long)all[w]);
    mu__free(all);
    return status;
}

static mu_status restore(mu_preemption_handler *handler)
{
    const int64_t latest = mu_checkpoint_manager_latest(handler->manager);
    if (!mu__pending())
        MU_TRY(compare_latest(handler->strategy, latest));
    const int64_t number = mu_checkpoint_manager_restore(handler->manager);
    if (mu__pending()) {
        mu__strategy_failed(handler->strategy);
        return mu_error_code();
    }
    if (number >= 0)
        mu__log(MU_LOG_INFO, "mu_preemption_handler: resuming from checkpoint %lld, after %lld steps",
                (long long)number, (long long)handler->total_runs);
    return MU_OK;
}

static mu_status fill(mu_preemption_handler *handler, const mu_preemption_handler_args *args)
{
    handler->args = *args;
    if (!MU_GIVEN(args, exit_code))
        handler->args.exit_code = EXIT_CODE;
    mu_checkpoint_manager *manager =
        args->manager ? args->manager : mu_checkpoint_manager_new(args->checkpoint, args->directory, .max_to_keep = 1);
    if (!manager)
        return mu_error_code();
    handler->manager = mu_retain(manager);
    handler->checkpoint = mu_retain(mu__manager_checkpoint(manager));
    mu_strategy *strategy = args->strategy ? args->strategy : mu__checkpoint_strategy(handler->checkpoint);
    handler->strategy = mu_retain(mu__strategy_or_default(strategy));
    if (!handler->strategy)
        return mu_error_code();
    MU_TRY(check_cluster(handler->strategy));
    mu__checkpoint_count(handler->checkpoint, &handler->total_runs);
    return args->termination_watcher_fn ? MU_OK : mu_stop_on_signals();
}

mu_preemption_handler *mu_preemption_handler_new_with(const mu_preemption_handler_args *given)
{
    mu_preemption_handler_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_preemption_handler_new") != MU_OK ||
        check_args(&args) != MU_OK)
        return NULL;
    mu_preemption_handler *handler = mu__new(&handler_type, sizeof *handler);
    if (!handler)
        return NULL;
    mu__stop_hold();
    handler = mu__give(handler);
    return handler && fill(handler, &args) == MU_OK && restore(handler) == MU_OK ? handler : NULL;
}

// ---- Stopping -----------------------------------------------------------------------------------

static void ask_watcher(mu_preemption_handler *handler)
{
    const int64_t now = mu__now_ns();
    const mu_preemption_handler_args *args = &handler->args;
    if (!args->termination_watcher_fn || mu__stop_signal() != 0 ||
        (handler->watched_ns != 0 && now - handler->watched_ns < WATCH_NS))
        return;
    handler->watched_ns = now;
    if (args->termination_watcher_fn(args->arg))
        mu__stop_by(SIGTERM);
}

// Whether only the time for the last save remains of the grace period.
static bool is_due(const mu_preemption_handler *handler)
{
    const double mean_ns = handler->runs > 0 ? (double)handler->run_ns / (double)handler->runs : 0;
    const double left_ns = (double)(mu__stop_time_ns() - mu__now_ns()) + handler->args.grace_period * 1e9;
    return handler->saved && left_ns <= STEPS_FOR_SAVING * mean_ns;
}

// Saves a checkpoint; numbers start at 1.
static mu_status save(const mu_preemption_handler *handler)
{
    mu__strategy_doing(handler->strategy, "saving", -1);
    if (handler->args.save_fn) {
        mu_status status;
        MU_CALLBACK("a function that saves", status = handler->args.save_fn(handler->args.arg));
        return mu__pending() || status == MU_OK ? mu_error_code()
                                                : mu__error(status, "the function that saves has failed");
    }
    const int64_t latest = mu_checkpoint_manager_latest(handler->manager);
    return mu__pending() ? mu_error_code() : mu_checkpoint_manager_save(handler->manager, latest < 1 ? 1 : latest + 1);
}

static mu_status leave(mu_preemption_handler *handler)
{
    const int number = mu__stop_signal();
    handler->ended = true;
    if (number != SIGINT)
        mu__stop_exit_with(handler->args.exit_code);
    if (handler->args.exit_fn)
        handler->args.exit_fn(handler->args.arg);
    const char *by = handler->args.termination_watcher_fn ? "the watcher"
                     : number == SIGINT                   ? "SIGINT (Ctrl-C)"
                                                          : "SIGTERM";
    const long long steps = handler->total_runs;
    if (handler->args.save_fn)
        return mu__error(
            MU_CANCELLED,
            "told to end by %s after %lld steps; .save_fn has saved them: run the same command to continue", by, steps);
    return mu__error(MU_CANCELLED,
                     "told to end by %s after %lld steps; they are saved in '%s': run the same command to continue", by,
                     steps, mu__manager_directory(handler->manager));
}

// Called before a step. All workers agree here, so they save the same step.
static mu_status end_if_stopped(mu_preemption_handler *handler)
{
    ask_watcher(handler);
    int64_t numbers[2] = {is_due(handler), mu__stop_signal() != 0};
    MU_TRY(mu__workers_agree(handler->strategy, "next step", numbers));
    const bool due = numbers[0] > 0, told = numbers[1] > 0;
    if (!told || (handler->saved && !due))
        return MU_OK;
    if (save(handler) != MU_OK) {
        mu__strategy_failed(handler->strategy);
        return mu_error_code();
    }
    if (handler->saved || handler->args.grace_period == 0)
        return leave(handler);
    handler->saved = true;
    mu__log(MU_LOG_INFO, "mu_preemption_handler: told to end, saved after %lld steps; continuing for %g s",
            (long long)handler->total_runs, handler->args.grace_period);
    return MU_OK;
}

// ---- Running ------------------------------------------------------------------------------------

mu_value *mu_preemption_run(mu_preemption_handler *handler, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                            mu_value *arguments)
{
    if (mu__pending())
        return NULL;
    if (!handler || !fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_preemption_run: the %s is NULL", handler ? "function" : "handler");
        return NULL;
    }
    if (handler->ended) {
        mu__error(MU_FAILED_PRECONDITION, "mu_preemption_run: the state is saved and the program was told to end; end "
                                          "the loop when mu_preemption_run fails with CANCELLED");
        return NULL;
    }
    if (mu__need_cross_replica(handler->strategy, "mu_preemption_run") != MU_OK || end_if_stopped(handler) != MU_OK)
        return NULL;
    const int64_t begin = mu__now_ns();
    const char *before = mu__callback_enter("the function of mu_preemption_run");
    mu_value *result = fn(arguments, arg);
    mu__callback_leave(before);
    if (mu__pending()) {
        mu__strategy_failed(handler->strategy);
        return NULL;
    }
    if (!result)
        return NULL;
    handler->total_runs++;
    handler->runs++;
    handler->run_ns += mu__now_ns() - begin;
    return result;
}

int64_t mu_preemption_total_runs(const mu_preemption_handler *handler)
{
    if (handler)
        return handler->total_runs;
    if (!mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "mu_preemption_total_runs: the handler is NULL");
    return -1;
}
