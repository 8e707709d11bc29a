// A worker that is a device of this process: it is never lost.
#include "coordinator/task.h"

static mu_value *call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    (void)failure; // all its failures are the call's
    return mu__served_call(task->strategy, task->worker, function, arguments);
}

static void free_task(mu_task *task) { mu__free(task); }

static const mu_task_ops local_ops = {.name = "local", .call = call, .free = free_task};

mu_task *mu__local_task(mu_strategy *strategy, int worker, void *arg)
{
    (void)arg;
    mu_task *task = mu__calloc(1, sizeof *task);
    if (task)
        *task = (mu_task){.ops = &local_ops, .strategy = strategy, .worker = worker};
    return task;
}
