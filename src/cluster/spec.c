// Cluster specifications: jobs by name, their tasks by index, and conversion to and from JSON.
//
// The JSON comes from the environment and is untrusted: its size, depth, names, indices and number of tasks are
// limited. roles.c defines what jobs mean.
#include "cluster/cluster.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

static void job_clear(mu_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        mu__free(job->items[i].address);
    mu__free(job->items);
    mu__free(job->name);
}

static void spec_destroy(void *object)
{
    mu_cluster_spec *spec = object;
    for (size_t i = 0; i < spec->n; i++)
        job_clear(&spec->items[i]);
    mu__free(spec->items);
}

static mu_type spec_type = {.name = "cluster_spec", .destroy = spec_destroy};

mu_cluster_spec *mu__spec_new(void) { return mu__new(&spec_type, sizeof(mu_cluster_spec)); }

// ---- Finding and adding -------------------------------------------------------------------------

mu_job *mu__spec_find(const mu_cluster_spec *spec, const char *job)
{
    for (size_t i = 0; spec != NULL && job != NULL && i < spec->n; i++)
        if (strcmp(spec->items[i].name, job) == 0)
            return &spec->items[i];
    return NULL;
}

// Position of the first task whose index is at least `index`.
static size_t task_position(const mu_job *job, int index)
{
    size_t low = 0, high = job->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (job->items[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mu_task *mu__job_find(const mu_job *job, int index)
{
    const size_t at = job != NULL ? task_position(job, index) : 0;
    return job != NULL && at < job->n && job->items[at].index == index ? &job->items[at] : NULL;
}

int mu__spec_count(const mu_cluster_spec *spec, const char *job)
{
    const mu_job *found = mu__spec_find(spec, job);
    return found != NULL ? (int)found->n : 0;
}

bool mu__job_is_list(const mu_job *job) { return job->n == 0 || job->items[job->n - 1].index == (int)job->n - 1; }

mu_job *mu__spec_job(mu_cluster_spec *spec, const char *name)
{
    mu_job *found = mu__spec_find(spec, name);
    if (found != NULL)
        return found;
    const size_t length = strlen(name);
    if (length == 0 || length > MU_MAX_NAME) {
        mu__error(MU_INVALID_ARGUMENT, "a job of the cluster has a name of %zu bytes (\"%.40s\"); names have 1 to %d",
                  length, name, MU_MAX_NAME);
        return NULL;
    }
    char *copy = mu__strdup(name);
    if (copy == NULL || mu__grow((void **)&spec->items, &spec->capacity, spec->n + 1, sizeof *spec->items) != MU_OK) {
        mu__free(copy);
        return NULL;
    }
    size_t at = spec->n;
    while (at > 0 && strcmp(spec->items[at - 1].name, name) > 0)
        at--;
    memmove(&spec->items[at + 1], &spec->items[at], (spec->n - at) * sizeof *spec->items);
    spec->items[at] = (mu_job){.name = copy};
    spec->n++;
    return &spec->items[at];
}

static size_t total_tasks(const mu_cluster_spec *spec)
{
    size_t total = 0;
    for (size_t i = 0; i < spec->n; i++)
        total += spec->items[i].n;
    return total;
}

static mu_status add_task(mu_job *job, int index, const char *address)
{
    if (strlen(address) > MU_MAX_NAME)
        return mu__error(MU_INVALID_ARGUMENT, "the address of %s %d is longer than %d bytes: \"%.60s…\"", job->name,
                         index, MU_MAX_NAME, address);
    const size_t at = task_position(job, index);
    if (at < job->n && job->items[at].index == index)
        return mu__error(
            MU_ALREADY_EXISTS,
            "%s %d is in the cluster twice, at \"%s\" and at \"%s\"; give each task of a job its own index", job->name,
            index, job->items[at].address, address);
    char *copy = mu__strdup(address);
    if (copy == NULL || mu__grow((void **)&job->items, &job->capacity, job->n + 1, sizeof *job->items) != MU_OK) {
        mu__free(copy);
        return MU_RESOURCE_EXHAUSTED;
    }
    memmove(&job->items[at + 1], &job->items[at], (job->n - at) * sizeof *job->items);
    job->items[at] = (mu_task){.index = index, .address = copy};
    job->n++;
    return MU_OK;
}

mu_status mu_cluster_spec_add(mu_cluster_spec *spec, const char *job, int index, const char *address)
{
    if (mu__pending())
        return mu_error_code();
    if (spec == NULL || job == NULL || address == NULL || index < -1)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_cluster_spec_add: needs a specification, a job, an address and an index from -1 (this one is %d)",
            index);
    if (total_tasks(spec) >= MU_MAX_TASKS)
        return mu__error(MU_INVALID_ARGUMENT, "the cluster has more than %d tasks", MU_MAX_TASKS);
    mu_job *found = mu__spec_job(spec, job);
    if (found == NULL)
        return mu_error_code();
    const int64_t next = found->n > 0 ? (int64_t)found->items[found->n - 1].index + 1 : 0;
    if (index < 0 && next > INT32_MAX)
        return mu__error(MU_INVALID_ARGUMENT, "the last task of job \"%s\" has the highest possible index", job);
    return add_task(found, index < 0 ? (int)next : index, address);
}

mu_cluster_spec *mu__spec_copy(const mu_cluster_spec *spec)
{
    mu_cluster_spec *copy = mu__spec_new();
    for (size_t i = 0; copy != NULL && spec != NULL && i < spec->n; i++) {
        const mu_job *from = &spec->items[i];
        mu_job *to = mu__spec_job(copy, from->name);
        bool good = to != NULL;
        for (size_t j = 0; good && j < from->n; j++)
            good = add_task(to, from->items[j].index, from->items[j].address) == MU_OK;
        if (!good) {
            mu_release(copy);
            return NULL;
        }
    }
    return copy;
}

// ---- JSON ---------------------------------------------------------------------------------------

json_t *mu__json_parse(const char *text, const char *where)
{
    if (strnlen(text, MU_MAX_CLUSTER_TEXT + 1) > MU_MAX_CLUSTER_TEXT) {
        mu__error(MU_INVALID_ARGUMENT, "%s is longer than %d bytes", where, MU_MAX_CLUSTER_TEXT);
        return NULL;
    }
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL) {
        mu__error(MU_INVALID_ARGUMENT,
                  "%s is not JSON: %s (line %d, column %d); expected {\"cluster\": {\"worker\": [\"host:port\"]}, "
                  "\"task\": {\"type\": \"worker\", \"index\": 0}} or a part of it",
                  where, error.text, error.line, error.column);
        return NULL;
    }
    if (!json_is_object(json)) {
        json_decref(json);
        mu__error(MU_INVALID_ARGUMENT, "%s is JSON, but not an object; it must start with {", where);
        return NULL;
    }
    return json;
}

// A task index as a JSON member name: digits only.
static bool parse_index(const char *text, int *out)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > INT32_MAX - 1)
        return false;
    *out = (int)value;
    return true;
}

static mu_status add_json_task(mu_job *job, int index, const json_t *address, const char *where)
{
    if (!json_is_string(address))
        return mu__error(MU_INVALID_ARGUMENT, "%s: the address of %s %d is not a text; expected \"host:port\"", where,
                         job->name, index);
    return add_task(job, index, json_string_value(address));
}

static mu_status add_json_job(mu_cluster_spec *spec, const char *name, json_t *tasks, const char *where)
{
    if (!json_is_array(tasks) && !json_is_object(tasks))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: job \"%.60s\" is neither a list of addresses nor a map from index to address", where,
                         name);
    if (total_tasks(spec) + json_array_size(tasks) + json_object_size(tasks) > MU_MAX_TASKS)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the cluster has more than %d tasks", where, MU_MAX_TASKS);
    mu_job *job = mu__spec_job(spec, name);
    if (job == NULL)
        return mu_error_code();
    size_t i;
    json_t *address;
    json_array_foreach(tasks, i, address) MU_TRY(add_json_task(job, (int)i, address, where));
    const char *key;
    json_object_foreach(tasks, key, address)
    {
        int index;
        if (!parse_index(key, &index))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: \"%.40s\" is not the index of a task of job \"%s\"; expected a whole number from 0",
                             where, key, name);
        MU_TRY(add_json_task(job, index, address, where));
    }
    return MU_OK;
}

mu_cluster_spec *mu__spec_from_json(json_t *json, const char *where)
{
    if (!json_is_object(json)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the cluster is not an object; expected {\"worker\": [\"host:port\", …]}",
                  where);
        return NULL;
    }
    mu_cluster_spec *spec = mu__spec_new();
    const char *name;
    json_t *tasks;
    if (spec == NULL)
        return NULL;
    json_object_foreach(json, name, tasks)
    {
        if (add_json_job(spec, name, tasks, where) != MU_OK) {
            mu_release(spec);
            return NULL;
        }
    }
    return spec;
}

mu_cluster_spec *mu_cluster_spec_parse(const char *text)
{
    if (mu__pending())
        return NULL;
    if (text == NULL)
        return mu__give(mu__spec_new());
    json_t *json = mu__json_parse(text, "the cluster's specification");
    mu_cluster_spec *spec = json != NULL ? mu__spec_from_json(json, "the cluster's specification") : NULL;
    json_decref(json);
    return mu__give(spec);
}

static json_t *job_to_json(const mu_job *job)
{
    const bool list = job->n > 0 && mu__job_is_list(job);
    json_t *json = list ? json_array() : json_object();
    for (size_t i = 0; json != NULL && i < job->n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", job->items[i].index);
        json_t *address = json_string(job->items[i].address);
        if ((list ? json_array_append_new(json, address) : json_object_set_new(json, key, address)) != 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

const char *mu_cluster_spec_json(const mu_cluster_spec *spec)
{
    json_t *json = json_object();
    bool good = json != NULL;
    for (size_t i = 0; good && spec != NULL && i < spec->n; i++)
        good = json_object_set_new(json, spec->items[i].name, job_to_json(&spec->items[i])) == 0;
    char *text = good ? json_dumps(json, 0) : NULL;
    json_decref(json);
    if (text == NULL)
        mu__error(MU_RESOURCE_EXHAUSTED, "mu_cluster_spec_json: no memory, or an address that is not UTF-8");
    const char *given = mu__text_give(text);
    free(text); // allocated by jansson
    return given;
}

// ---- Queries ------------------------------------------------------------------------------------

int mu_cluster_spec_job_count(const mu_cluster_spec *spec) { return spec != NULL ? (int)spec->n : 0; }

const char *mu_cluster_spec_job(const mu_cluster_spec *spec, int i)
{
    return spec != NULL && i >= 0 && (size_t)i < spec->n ? mu__text_give(spec->items[i].name) : NULL;
}

static const mu_job *known_job(const mu_cluster_spec *spec, const char *job)
{
    const mu_job *found = mu__spec_find(spec, job);
    if (found == NULL)
        mu__error(MU_INVALID_ARGUMENT, "the cluster has no job \"%s\"; its jobs are %s", job != NULL ? job : "(NULL)",
                  spec != NULL && spec->n > 0 ? mu_cluster_spec_json(spec) : "none");
    return found;
}

int mu_cluster_spec_num_tasks(const mu_cluster_spec *spec, const char *job)
{
    const mu_job *found = known_job(spec, job);
    return found != NULL ? (int)found->n : -1;
}

int mu_cluster_spec_task_index(const mu_cluster_spec *spec, const char *job, int i)
{
    const mu_job *found = known_job(spec, job);
    if (found == NULL)
        return -1;
    if (i < 0 || (size_t)i >= found->n) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_cluster_spec_task_index: there is no task number %d of job \"%s\"; it has %zu tasks", i, job,
                  found->n);
        return -1;
    }
    return found->items[i].index;
}

const char *mu_cluster_spec_task_address(const mu_cluster_spec *spec, const char *job, int index)
{
    const mu_job *found = known_job(spec, job);
    if (found == NULL)
        return NULL;
    const mu_task *task = mu__job_find(found, index);
    if (task == NULL)
        mu__error(MU_INVALID_ARGUMENT, "the cluster has no %s %d; it has %zu tasks of that job", job, index, found->n);
    return task != NULL ? mu__text_give(task->address) : NULL;
}
