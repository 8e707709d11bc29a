// The role of a task in its cluster (chief, worker i of n, leader), and clusters that cannot work.
//
// The rules are those of tf.distribute for the jobs chief, worker, ps and evaluator. The checks find mistakes that
// would otherwise cause a hang at startup, so each message says what to change.
#include "cluster/cluster.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <strings.h>

static bool is(const char *task_type, const char *name) { return task_type != NULL && strcmp(task_type, name) == 0; }

static mu_status check_jobs(const mu_cluster_spec *spec)
{
    static const char *const jobs[] = {"chief", "worker", "ps", "evaluator"};
    for (size_t i = 0; spec != NULL && i < spec->n; i++) {
        bool known = false;
        for (size_t j = 0; j < MU_COUNT(jobs); j++)
            known = known || is(spec->items[i].name, jobs[j]);
        if (!known)
            return mu__error(MU_INVALID_ARGUMENT,
                             "the cluster has a job \"%s\"; the jobs that strategies know are chief, worker, ps and "
                             "evaluator: rename it, or leave it out",
                             spec->items[i].name);
    }
    static const char *const single[] = {"chief", "evaluator"};
    for (size_t i = 0; i < MU_COUNT(single); i++)
        if (mu__spec_count(spec, single[i]) > 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "the cluster has %d tasks of job %s; there can be one: make the others workers",
                             mu__spec_count(spec, single[i]), single[i]);
    return MU_OK;
}

mu_status mu__spec_check_task(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    MU_TRY(check_jobs(spec));
    if (task_type == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "this process's task type is not known; set \"task\": {\"type\": …, "
                                              "\"index\": …} in TF_CONFIG, or give .task_type and .task_id");
    const mu_job *job = mu__spec_find(spec, task_type);
    if (task_id < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is a task of job %s, but which one is not known; set \"index\" in \"task\" of "
                         "TF_CONFIG, or give .task_id",
                         task_type);
    // An evaluator only reads checkpoints, so the cluster need not list it.
    if (is(task_type, "evaluator") && job == NULL && task_id == 0)
        return MU_OK;
    if (is(task_type, "evaluator") && job == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "this process is evaluator %d; there is one, and its index is 0",
                         task_id);
    if (job == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is %s %d, but the cluster has no job %s: %s; correct the task or add the job",
                         task_type, task_id, task_type, mu_cluster_spec_json(spec));
    if (job->n == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is %s %d, but that job of the cluster has no tasks; add its address", task_type,
                         task_id);
    if (mu__job_find(job, task_id) == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "this process is %s %d, but of that job the cluster has %zu, the last is %d; correct the "
                         "index or add the address",
                         task_type, task_id, job->n, job->items[job->n - 1].index);
    return MU_OK;
}

int mu_cluster_spec_is_chief(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    if (mu__spec_check_task(spec, task_type, task_id) != MU_OK)
        return -1;
    if (is(task_type, "chief") || is(task_type, "evaluator"))
        return 1;
    return is(task_type, "worker") && task_id == 0 && mu__spec_count(spec, "chief") == 0;
}

int mu_cluster_spec_worker_count(const mu_cluster_spec *spec, const char *task_type)
{
    if (check_jobs(spec) != MU_OK)
        return -1;
    if (is(task_type, "evaluator"))
        return MU_MAX(mu__spec_count(spec, "evaluator"), 1);
    if ((is(task_type, "chief") || is(task_type, "worker")) && mu__spec_find(spec, task_type) == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "the cluster has no job %s: %s; ask for the task type of one of its tasks",
                  task_type, mu_cluster_spec_json(spec));
        return -1;
    }
    if (is(task_type, "chief") || is(task_type, "worker"))
        return mu__spec_count(spec, "chief") + mu__spec_count(spec, "worker");
    mu__error(MU_INVALID_ARGUMENT,
              "a task of job %s is not a worker, so it has no number of workers; ask for a chief, worker or evaluator",
              task_type != NULL ? task_type : "(none)");
    return -1;
}

int mu_cluster_spec_worker_index(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    if (mu__spec_check_task(spec, task_type, task_id) != MU_OK)
        return -1;
    if (is(task_type, "chief"))
        return 0;
    if (is(task_type, "worker"))
        return task_id + mu__spec_count(spec, "chief");
    if (is(task_type, "evaluator"))
        return task_id;
    mu__error(MU_INVALID_ARGUMENT, "a task of job %s is not a worker and has no worker number", task_type);
    return -1;
}

const char *mu_cluster_spec_leader(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    if (spec == NULL || spec->n == 0)
        return "";
    if (mu__spec_check_task(spec, task_type, task_id) != MU_OK)
        return NULL;
    if (is(task_type, "evaluator"))
        return "";
    if (mu__spec_count(spec, "chief") > 0)
        return "/job:chief/replica:0/task:0";
    if (mu__job_find(mu__spec_find(spec, "worker"), 0) != NULL)
        return "/job:worker/replica:0/task:0";
    mu__error(MU_INVALID_ARGUMENT, "the cluster has neither a chief nor a worker 0, so nobody leads it");
    return NULL;
}

// ---- Checks -------------------------------------------------------------------------------------

mu_status mu__spec_check_indices(const mu_cluster_spec *spec)
{
    static const char *const jobs[] = {"chief", "worker", "evaluator"};
    for (size_t i = 0; i < MU_COUNT(jobs); i++) {
        const mu_job *job = mu__spec_find(spec, jobs[i]);
        for (size_t at = 0; job != NULL && at < job->n; at++)
            if (job->items[at].index != (int)at)
                return mu__error(MU_INVALID_ARGUMENT,
                                 "the cluster has %s %d (\"%.60s\") but no %s %zu; number the tasks of a job from 0 "
                                 "without holes: %s",
                                 jobs[i], job->items[at].index, job->items[at].address, jobs[i], at,
                                 mu_cluster_spec_json(spec));
    }
    return MU_OK;
}

// Length of the host in "host:port" or "[::1]:port"; 0 if the text has another form.
static size_t host_length(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || strlen(colon + 1) == 0 || strlen(colon + 1) > 5)
        return 0;
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || atoi(colon + 1) > 65535 || atoi(colon + 1) == 0)
        return 0;
    const size_t length = (size_t)(colon - address);
    if (strcspn(address, " \t\r\n/,;\"'@") < length)
        return 0;
    const bool bracketed = address[0] == '[' && address[length - 1] == ']' && length > 2;
    return bracketed || memchr(address, ':', length) == NULL ? length : 0;
}

static bool is_this_machine(const char *address)
{
    const size_t length = host_length(address);
    return (length == 9 && strncasecmp(address, "localhost", 9) == 0) || strncmp(address, "127.", 4) == 0 ||
           (length == 5 && strncmp(address, "[::1]", 5) == 0);
}

// Whether this is the wildcard address in any spelling ("0", "[::0]"): other processes cannot connect to it.
static bool is_all_addresses(const char *address)
{
    char host[MU_MAX_NAME + 1];
    struct in_addr four;
    struct in6_addr six;
    const size_t length = host_length(address);
    const bool bracketed = address[0] == '[';
    if (length == 0 || length > MU_MAX_NAME)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(length - 2 * bracketed), address + bracketed);
    if (!bracketed)
        return inet_aton(host, &four) != 0 && four.s_addr == INADDR_ANY;
    return inet_pton(AF_INET6, host, &six) == 1 &&
           (IN6_IS_ADDR_UNSPECIFIED(&six) ||
            (IN6_IS_ADDR_V4MAPPED(&six) && memcmp(&six.s6_addr[12], "\0\0\0\0", 4) == 0));
}

typedef struct named_task {
    const char *job, *address;
    int index;
} named_task;

static int by_address(const void *a, const void *b)
{
    return strcasecmp(((const named_task *)a)->address, ((const named_task *)b)->address);
}

static mu_status check_addresses(named_task *tasks, size_t n)
{
    const named_task *here = NULL, *elsewhere = NULL;
    for (size_t i = 0; i < n; i++) {
        if (host_length(tasks[i].address) == 0)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s %d has the address \"%s\"; expected host:port, with a port from 1 to 65535 (IPv6 as [::1]:2222)",
                tasks[i].job, tasks[i].index, tasks[i].address);
        if (n > 1 && is_all_addresses(tasks[i].address))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s %d is at \"%s\", which means every address of a machine: one can listen there, but the other tasks "
                "cannot call it; give the name or address by which their hosts reach it (on one machine 127.0.0.1%s)",
                tasks[i].job, tasks[i].index, tasks[i].address, strrchr(tasks[i].address, ':'));
        *(is_this_machine(tasks[i].address) ? &here : &elsewhere) = &tasks[i];
    }
    if (here != NULL && elsewhere != NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s %d is at \"%s\", which means \"this machine\" on every machine, but %s %d is at \"%s\"; "
                         "give all tasks the names by which the other hosts reach them",
                         here->job, here->index, here->address, elsewhere->job, elsewhere->index, elsewhere->address);
    qsort(tasks, n, sizeof *tasks, by_address);
    for (size_t i = 1; i < n; i++)
        if (by_address(&tasks[i - 1], &tasks[i]) == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s %d and %s %d have the same address \"%s\"; give each task its own port",
                             tasks[i - 1].job, tasks[i - 1].index, tasks[i].job, tasks[i].index, tasks[i].address);
    return MU_OK;
}

static mu_status check_all_addresses(const mu_cluster_spec *spec)
{
    size_t n = 0;
    for (size_t i = 0; i < spec->n; i++)
        n += spec->items[i].n;
    named_task *tasks = mu__calloc(n, sizeof *tasks);
    if (tasks == NULL)
        return MU_RESOURCE_EXHAUSTED;
    n = 0;
    for (size_t i = 0; i < spec->n; i++)
        for (size_t j = 0; j < spec->items[i].n; j++)
            if (spec->items[i].items[j].address[0] != '\0')
                tasks[n++] =
                    (named_task){spec->items[i].name, spec->items[i].items[j].address, spec->items[i].items[j].index};
    const mu_status status = check_addresses(tasks, n);
    mu__free(tasks);
    return status;
}

mu_status mu_cluster_check(mu_cluster *cluster)
{
    if (mu__pending())
        return mu_error_code();
    if (cluster == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "mu_cluster_check: the cluster is NULL");
    mu_cluster_view view = {0};
    mu_status status = mu__cluster_read(cluster, &view);
    if (status == MU_OK && view.spec->n > 0) {
        // With parameter servers, the coordinator need not be in the cluster, and then has no task.
        const bool servers = mu__spec_count(view.spec, "ps") > 0;
        status = view.task_type != NULL || view.task_id > 0 || !servers
                     ? mu__spec_check_task(view.spec, view.task_type, view.task_id)
                     : check_jobs(view.spec);
        // With parameter servers, a worker's cluster may list only that worker, by its index among all.
        if (status == MU_OK && !servers)
            status = mu__spec_check_indices(view.spec);
        if (status == MU_OK)
            status = check_all_addresses(view.spec);
    }
    if (status != MU_OK)
        mu__error_context("in the cluster from %s", mu_cluster_source(cluster));
    mu__view_clear(&view);
    return status;
}
