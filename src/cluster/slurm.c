// Slurm: the tasks of a job step, from the variables that srun sets for each task.
//
// Uses the variables of the step, not of the job: a step may have fewer nodes and tasks than the allocation. Expands
// host lists (n[01-03,7],m) and counts (3(x2),1) up to a limit; numbers keep their leading zeros.
#include "cluster/cluster.h"

#include <stdlib.h>

enum { MAX_DIGITS = 9 };

void mu__hosts_free(mu_hosts *hosts)
{
    for (size_t i = 0; i < hosts->n; i++)
        mu__free(hosts->items[i]);
    mu__free(hosts->items);
    *hosts = (mu_hosts){0};
}

static mu_status bad_hostlist(const char *text, const char *at)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        "the host list \"%.80s\" cannot be read at \"%.20s\"; expected hosts and ranges as in n[01-03,7],m5", text, at);
}

static mu_status push_host(mu_hosts *out, const char *prefix, size_t prefix_bytes, const char *number)
{
    if (out->n >= MU_MAX_TASKS)
        return mu__error(MU_INVALID_ARGUMENT, "the host list has more than %d hosts", MU_MAX_TASKS);
    char *host = mu__sprintf("%.*s%s", (int)prefix_bytes, prefix, number);
    if (host == NULL)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = MU_PUSH(out, host);
    if (status != MU_OK)
        mu__free(host);
    return status;
}

// Reads up to MAX_DIGITS digits and returns their number; 0 if there are none, or more.
static size_t digits(const char *text, int *out)
{
    const size_t n = strspn(text, "0123456789");
    if (n == 0 || n > MAX_DIGITS)
        return 0;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + (text[i] - '0');
    return n;
}

// `at` points after the opening bracket; on success, after the closing one.
static mu_status expand_ranges(const char *text, const char **at, const char *prefix, size_t prefix_bytes,
                               mu_hosts *out)
{
    for (;;) {
        int first, last;
        const size_t width = digits(*at, &first);
        if (width == 0)
            return bad_hostlist(text, *at);
        *at += width;
        last = first;
        if (**at == '-') {
            const size_t n = digits(++*at, &last);
            if (n == 0 || last < first)
                return bad_hostlist(text, *at);
            *at += n;
        }
        for (int number = first; number <= last; number++) {
            char shown[16];
            snprintf(shown, sizeof shown, "%0*d", (int)width, number);
            MU_TRY(push_host(out, prefix, prefix_bytes, shown));
        }
        if (**at == ']')
            return ++*at, MU_OK;
        if (**at != ',')
            return bad_hostlist(text, *at);
        ++*at;
    }
}

mu_status mu__hostlist_expand(const char *text, mu_hosts *out)
{
    *out = (mu_hosts){0};
    if (strnlen(text, MU_MAX_CLUSTER_TEXT + 1) > MU_MAX_CLUSTER_TEXT)
        return mu__error(MU_INVALID_ARGUMENT, "the host list is longer than %d bytes", MU_MAX_CLUSTER_TEXT);
    mu_status status = MU_OK;
    for (const char *at = text;;) {
        const char *prefix = at;
        const size_t bytes = strcspn(at, ",[] \t\n");
        at += bytes;
        if (bytes == 0 || bytes > MU_MAX_NAME)
            MU_GO(bad_hostlist(text, at));
        if (*at == '[') {
            at++;
            MU_GO(expand_ranges(text, &at, prefix, bytes, out));
        } else {
            MU_GO(push_host(out, prefix, bytes, ""));
        }
        if (*at == '\0')
            return MU_OK;
        if (*at++ != ',')
            MU_GO(bad_hostlist(text, at - 1));
    }
out:
    mu__hosts_free(out);
    return status;
}

mu_status mu__tasks_per_node_expand(const char *text, mu_counts *out)
{
    *out = (mu_counts){0};
    for (const char *at = text;; at++) {
        int tasks, times = 1;
        size_t n = digits(at, &tasks);
        bool good = n > 0;
        at += n;
        if (good && *at == '(') {
            n = at[1] == 'x' ? digits(at + 2, &times) : 0;
            good = n > 0 && at[2 + n] == ')';
            at += good ? 3 + n : 0;
        }
        good = good && (*at == ',' || *at == '\0') && times <= MU_MAX_TASKS - (int)out->n;
        for (int i = 0; good && i < times; i++)
            good = MU_PUSH(out, tasks) == MU_OK;
        if (!good) {
            mu__free(out->items);
            *out = (mu_counts){0};
            return mu__error(
                MU_INVALID_ARGUMENT,
                "the tasks per node \"%.80s\" cannot be read; expected numbers as in 3(x2),1 for at most %d nodes",
                text, MU_MAX_TASKS);
        }
        if (*at == '\0')
            return MU_OK;
    }
}

// ---- The step -----------------------------------------------------------------------------------

// A host with its tasks, and its position before sorting.
typedef struct node {
    const char *host;
    int tasks;
    int first; // local number of its first task
    int rank;  // rank of its first task, in the order of Slurm's list
    size_t order;
} node;

// The step as arguments and variables describe it.
typedef struct slurm_step {
    mu_hosts hosts;
    mu_counts counts;
    node *nodes; // [hosts.n], sorted by name
    int rank, tasks;
    bool twice;       // some host is listed twice
    const char *here; // this task's node, and its number there; NULL, -1: unknown
    int local;
    int gpus_per_task;
} slurm_step;

static int by_name(const void *a, const void *b)
{
    const node *x = a, *y = b;
    const int order = strcmp(x->host, y->host);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static mu_status missing(const char *variable)
{
    return mu__error(MU_FAILED_PRECONDITION,
                     "mu_slurm_cluster_resolver: %s is not set; start the program with srun, or choose another source "
                     "with MUSTER_CLUSTER",
                     variable);
}

static mu_status required_int(const char *variable, int *out)
{
    MU_TRY(mu__environment_int(variable, 0, MU_MAX_TASKS, out));
    return *out >= 0 ? MU_OK : missing(variable);
}

static int visible_gpus(void)
{
    const char *visible = mu__environment("CUDA_VISIBLE_DEVICES");
    int n = visible != NULL;
    for (; visible != NULL && *visible != '\0'; visible++)
        n += *visible == ',';
    return n;
}

// The number of tasks of each host, from the arguments or else from Slurm.
static mu_status read_counts(const mu_slurm_cluster_resolver_args *args, slurm_step *out)
{
    const char *counts = mu__environment("SLURM_STEP_TASKS_PER_NODE");
    if (args->tasks_per_node != 0 || args->tasks_per_host != NULL)
        return MU_OK;
    if (counts == NULL)
        return missing("SLURM_STEP_TASKS_PER_NODE");
    MU_TRY(mu__tasks_per_node_expand(counts, &out->counts));
    if (out->counts.n == out->hosts.n)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "SLURM_STEP_TASKS_PER_NODE (\"%.60s\") describes %zu nodes, SLURM_STEP_NODELIST (\"%.60s\") lists "
                     "%zu; they must agree",
                     counts, out->counts.n, mu__environment("SLURM_STEP_NODELIST"), out->hosts.n);
}

static mu_status tasks_of(const mu_slurm_cluster_resolver_args *args, const slurm_step *step, size_t i, int *out)
{
    *out = args->tasks_per_node != 0 ? args->tasks_per_node : step->counts.n > i ? step->counts.items[i] : -1;
    for (int k = 0; args->tasks_per_host != NULL && args->tasks_per_host[k].host != NULL; k++)
        if (strcmp(args->tasks_per_host[k].host, step->hosts.items[i]) == 0)
            *out = args->tasks_per_host[k].tasks;
    if (*out >= 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "the job step has the host %s, but .tasks_per_host has no valid number of tasks for it; give one "
                     "entry for each host",
                     step->hosts.items[i]);
}

static mu_status read_nodes(const mu_slurm_cluster_resolver_args *args, slurm_step *out)
{
    const char *hosts = mu__environment("SLURM_STEP_NODELIST");
    if (hosts == NULL)
        return missing("SLURM_STEP_NODELIST");
    MU_TRY(mu__hostlist_expand(hosts, &out->hosts));
    MU_TRY(read_counts(args, out));
    out->nodes = mu__calloc(out->hosts.n, sizeof *out->nodes);
    if (out->nodes == NULL)
        return MU_RESOURCE_EXHAUSTED;
    int64_t tasks = 0;
    for (size_t i = 0; i < out->hosts.n; i++) {
        out->nodes[i] = (node){.host = out->hosts.items[i], .order = i, .rank = (int)tasks};
        MU_TRY(tasks_of(args, out, i, &out->nodes[i].tasks));
        tasks += out->nodes[i].tasks;
        if (tasks > MU_MAX_TASKS)
            return mu__error(MU_INVALID_ARGUMENT, "the job step has more than %d tasks", MU_MAX_TASKS);
    }
    out->tasks = (int)tasks;
    qsort(out->nodes, out->hosts.n, sizeof *out->nodes, by_name);
    // A heterogeneous job may list a host twice; its ports then continue.
    for (size_t i = 1; i < out->hosts.n; i++)
        if (strcmp(out->nodes[i].host, out->nodes[i - 1].host) == 0) {
            out->nodes[i].first = out->nodes[i - 1].first + out->nodes[i - 1].tasks;
            out->twice = true;
        }
    return MU_OK;
}

static mu_status read_gpus(const mu_slurm_cluster_resolver_args *args, slurm_step *out)
{
    int most = 0;
    for (size_t i = 0; i < out->hosts.n; i++)
        most = MU_MAX(most, out->nodes[i].tasks);
    const int per_node = MU_GIVEN(args, gpus_per_node) ? args->gpus_per_node : visible_gpus();
    out->gpus_per_task = MU_GIVEN(args, gpus_per_task) ? args->gpus_per_task : per_node / MU_MAX(most, 1);
    if ((int64_t)most * out->gpus_per_task > per_node)
        return mu__error(MU_FAILED_PRECONDITION,
                         "%d tasks on a node with %d GPUs each need %lld GPUs, but a node has %d; start fewer tasks "
                         "per node, or give .gpus_per_node and .gpus_per_task",
                         most, out->gpus_per_task, (long long)most * out->gpus_per_task, per_node);
    return MU_OK;
}

static mu_status read_position(slurm_step *out)
{
    const char *name = mu__environment("SLURMD_NODENAME");
    MU_TRY(mu__environment_int("SLURM_LOCALID", 0, MU_MAX_TASKS, &out->local));
    for (size_t i = 0; name != NULL && i < out->hosts.n; i++)
        if (strcmp(out->nodes[i].host, name) == 0 && out->local < out->nodes[i].tasks)
            out->here = out->nodes[i].host;
    return MU_OK;
}

static mu_status read_step(const mu_slurm_cluster_resolver_args *args, slurm_step *out)
{
    MU_TRY(required_int("SLURM_PROCID", &out->rank));
    MU_TRY(read_nodes(args, out));
    MU_TRY(read_position(out));
    return read_gpus(args, out);
}

// ---- Jobs ---------------------------------------------------------------------------------------

static int by_job(const void *a, const void *b)
{
    return strcmp(((const mu_job_size *)a)->job, ((const mu_job_size *)b)->job);
}

// Sets CUDA_VISIBLE_DEVICES to the GPUs of the local task `local`.
static mu_status show_gpus(int local, int gpus)
{
    const size_t bytes = (size_t)gpus * 12 + 1;
    char *list = mu__calloc(bytes, 1);
    if (list == NULL)
        return MU_RESOURCE_EXHAUSTED;
    size_t at = 0;
    for (int i = 0; i < gpus; i++)
        at += (size_t)snprintf(list + at, bytes - at, "%s%d", i > 0 ? "," : "", local * gpus + i);
    const bool set = setenv("CUDA_VISIBLE_DEVICES", list, 1) == 0;
    mu__free(list);
    return set ? MU_OK : mu__error(MU_RESOURCE_EXHAUSTED, "cannot set CUDA_VISIBLE_DEVICES");
}

// Slurm numbers ranks by node in the order of its list (n9 before n10), or cyclically, but addresses are assigned by
// name. So a task finds itself by its node and local number, if Slurm states them.
static bool is_own(const slurm_step *step, const node *at, int local, int rank)
{
    // It is not specified what SLURM_LOCALID counts on a host that is listed twice.
    if (step->twice)
        return at->rank + local == step->rank;
    if (step->here == NULL || step->local < 0)
        return rank == step->rank;
    return strcmp(at->host, step->here) == 0 && local == step->local;
}

// Assigns the tasks of the step, host by host, to the jobs in the given order.
static mu_status deal(const slurm_step *step, const mu_job_size *jobs, int n_jobs, int port_base, mu_cluster_view *out,
                      int *local)
{
    int rank = 0, job = 0, index = 0;
    for (int i = 0; i < n_jobs; i++) // a job without tasks is still a job
        if (mu__spec_job(out->spec, jobs[i].job) == NULL)
            return mu_error_code();
    for (size_t i = 0; i < step->hosts.n; i++)
        for (int j = 0; j < step->nodes[i].tasks; j++, rank++) {
            while (job < n_jobs && index == jobs[job].tasks) {
                job++;
                index = 0;
            }
            char *address = mu__sprintf("%s:%d", step->nodes[i].host, port_base + step->nodes[i].first + j);
            if (address == NULL)
                return MU_RESOURCE_EXHAUSTED;
            const mu_status status = mu_cluster_spec_add(out->spec, jobs[job].job, -1, address);
            mu__free(address);
            MU_TRY(status);
            if (is_own(step, &step->nodes[i], j, rank)) {
                out->task_id = index;
                if ((out->task_type = mu__strdup(jobs[job].job)) == NULL)
                    return MU_RESOURCE_EXHAUSTED;
                *local = step->nodes[i].first + j;
            }
            index++;
        }
    return MU_OK;
}

static mu_status check_step(const slurm_step *step, const mu_job_size *jobs, int n_jobs, int port_base)
{
    int64_t wanted = 0;
    for (int i = 0; i < n_jobs; i++) {
        if (jobs[i].tasks < 0)
            return mu__error(MU_INVALID_ARGUMENT, "job %s is to have %d tasks; expected 0 or more", jobs[i].job,
                             jobs[i].tasks);
        wanted += jobs[i].tasks;
    }
    if (wanted != step->tasks)
        return mu__error(MU_FAILED_PRECONDITION,
                         "the jobs have %lld tasks together, but the job step has %d; start it with srun "
                         "--ntasks=%lld, or change the jobs",
                         (long long)wanted, step->tasks, (long long)wanted);
    if (step->rank >= step->tasks)
        return mu__error(MU_FAILED_PRECONDITION,
                         "SLURM_PROCID is %d, but the job step has %d tasks; of a heterogeneous job start all "
                         "components with one srun, or name the tasks in TF_CONFIG",
                         step->rank, step->tasks);
    for (size_t i = 0; i < step->hosts.n; i++)
        if (port_base < 1 || port_base > 65536 - MU_MAX(step->nodes[i].first + step->nodes[i].tasks, 1))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "the ports of the %d tasks of %s begin at %d; they must lie between 1 and 65535: change .port_base",
                step->nodes[i].tasks, step->nodes[i].host, port_base);
    return MU_OK;
}

static mu_status fill(const mu_slurm_cluster_resolver_args *args, const slurm_step *step, mu_cluster_view *out)
{
    int n = 0, local = 0, of_step = -1;
    while (args->jobs != NULL && args->jobs[n].job != NULL)
        n++;
    if (n == 0)
        MU_TRY(required_int("SLURM_STEP_NUM_TASKS", &of_step));
    const int n_jobs = MU_MAX(n, 1), port_base = args->port_base != 0 ? args->port_base : 8888;
    mu_job_size *jobs = mu__calloc((size_t)n_jobs, sizeof *jobs);
    if (jobs == NULL)
        return MU_RESOURCE_EXHAUSTED;
    jobs[0] = (mu_job_size){"worker", of_step};
    if (n > 0)
        memcpy(jobs, args->jobs, sizeof *jobs * (size_t)n);
    qsort(jobs, (size_t)n_jobs, sizeof *jobs, by_job);
    mu_status status = check_step(step, jobs, n_jobs, port_base);
    if (status == MU_OK)
        status = deal(step, jobs, n_jobs, port_base, out, &local);
    mu__free(jobs);
    MU_TRY(status);
    out->num_accelerators = step->gpus_per_task;
    if ((out->accelerator_type = mu__strdup("GPU")) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    return step->gpus_per_task > 0 && !args->no_auto_set_gpu ? show_gpus(local, step->gpus_per_task) : MU_OK;
}

static const mu_resolver_ops slurm_ops = {.source = "SLURM_PROCID and the job step", .read = mu__read_fixed};

mu_cluster *mu_slurm_cluster_resolver_with(const mu_slurm_cluster_resolver_args *given)
{
    mu_slurm_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_slurm_cluster_resolver") != MU_OK)
        return NULL;
    if (args.tasks_per_node < 0 || args.gpus_per_node < 0 || args.gpus_per_task < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_slurm_cluster_resolver: tasks_per_node (%d), gpus_per_node (%d) and gpus_per_task (%d) cannot be "
                  "negative",
                  args.tasks_per_node, args.gpus_per_node, args.gpus_per_task);
        return NULL;
    }
    slurm_step step = {0};
    mu_cluster *cluster = mu__cluster_new(&slurm_ops);
    mu_status status =
        cluster != NULL && (cluster->fixed.spec = mu__spec_new()) != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = read_step(&args, &step);
    if (status == MU_OK)
        status = fill(&args, &step, &cluster->fixed);
    if (status == MU_OK &&
        (cluster->fixed.rpc_layer = mu__strdup(args.rpc_layer != NULL ? args.rpc_layer : "grpc")) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    mu__hosts_free(&step.hosts);
    mu__free(step.counts.items);
    mu__free(step.nodes);
    if (status != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}
