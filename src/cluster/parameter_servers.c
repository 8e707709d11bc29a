// What a cluster with parameter servers must look like for ParameterServerStrategy.
//
// The checks and their order are TensorFlow's. Does not connect to anything.
#include "cluster/cluster.h"

static bool is_job(const char *name)
{
    static const char *const jobs[] = {"chief", "worker", "evaluator", "ps"};
    for (size_t i = 0; i < MU_COUNT(jobs); i++)
        if (strcmp(name, jobs[i]) == 0)
            return true;
    return false;
}

static mu_status check_jobs(const mu_cluster_spec *spec)
{
    if (spec->n == 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "the cluster of a parameter-server strategy is empty; name its workers and parameter servers (job \"ps\")");
    for (size_t i = 0; i < spec->n; i++)
        if (!is_job(spec->items[i].name))
            return mu__error(MU_INVALID_ARGUMENT,
                             "disallowed task type '%s' in the cluster of a parameter-server strategy; the jobs are "
                             "chief, worker, ps and evaluator",
                             spec->items[i].name);
    return MU_OK;
}

// A coordinator need not be in its own cluster, nor an evaluator.
static mu_status check_own_task(const mu_cluster_spec *spec, const char *task_type)
{
    if (task_type && !is_job(task_type))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "unrecognized task type '%s' of this process; it must be chief, worker, ps or evaluator, or not given",
            task_type);
    if (task_type && strcmp(task_type, "evaluator") != 0 && !mu__spec_find(spec, task_type))
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is a %s, but the cluster has no such job; add it, or correct the task type",
                         task_type);
    return MU_OK;
}

static mu_status check_counts(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    static const char *const single[] = {"chief", "evaluator"}, *const needed[] = {"ps", "worker"};
    for (size_t i = 0; i < MU_COUNT(single); i++)
        if (mu__spec_count(spec, single[i]) > 1)
            return mu__error(MU_INVALID_ARGUMENT, "the cluster has %d tasks of job %s; there must be at most one",
                             mu__spec_count(spec, single[i]), single[i]);
    if (task_type && mu__spec_find(spec, task_type) && task_id >= mu__spec_count(spec, task_type))
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is %s %d, but the cluster has %d tasks of that job; correct the index",
                         task_type, task_id, mu__spec_count(spec, task_type));
    for (size_t i = 0; i < MU_COUNT(needed); i++)
        if (mu__spec_count(spec, needed[i]) < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "the cluster has no tasks of job %s; a parameter-server strategy needs one or more",
                             needed[i]);
    return MU_OK;
}

mu_status mu__check_parameter_servers(mu_cluster *cluster)
{
    mu_cluster_view view = {0};
    mu_status status = mu__need(cluster, "mu_parameter_server_strategy: the cluster");
    if (status == MU_OK)
        status = mu__cluster_read(cluster, &view);
    if (status == MU_OK)
        status = check_jobs(view.spec);
    if (status == MU_OK)
        status = check_own_task(view.spec, view.task_type);
    if (status == MU_OK)
        status = check_counts(view.spec, view.task_type, view.task_id);
    mu__view_clear(&view);
    return status;
}
