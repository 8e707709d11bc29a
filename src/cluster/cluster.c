// Clusters: what all resolvers have in common. A resolver reads its source into a view; values set by hand override it;
// every query is answered from the result.
//
// Also has the two resolvers without a source of their own: simple and union. Does not read the environment.
#include "cluster/cluster.h"

static void cluster_destroy(void *object)
{
    mu_cluster *cluster = object;
    mu__free(cluster->task_type);
    mu__free(cluster->rpc_layer);
    mu__view_clear(&cluster->fixed);
    for (int i = 0; i < cluster->n_parts; i++)
        mu_release(cluster->parts[i]);
    mu__free(cluster->parts);
    if (cluster->ops->free_state != NULL)
        cluster->ops->free_state(cluster->state);
}

static mu_type cluster_type = {.name = "cluster", .destroy = cluster_destroy};

// A text as an object, so that a pool can own it.
typedef struct text_object {
    mu_object object;
    char text[];
} text_object;

static void text_destroy(void *object) { (void)object; }

static mu_type text_type = {.name = "text", .destroy = text_destroy};

const char *mu__text_give(const char *text)
{
    if (text == NULL)
        return NULL;
    const size_t bytes = strlen(text) + 1;
    text_object *copy = mu__new(&text_type, sizeof *copy + bytes);
    if (copy == NULL)
        return NULL;
    memcpy(copy->text, text, bytes);
    copy = mu__give(copy);
    return copy != NULL ? copy->text : NULL;
}

// ---- Views --------------------------------------------------------------------------------------

void mu__view_clear(mu_cluster_view *view)
{
    mu_release(view->spec);
    mu__free(view->task_type);
    mu__free(view->rpc_layer);
    mu__free(view->environment);
    mu__free(view->master);
    mu__free(view->accelerator_type);
    *view = (mu_cluster_view){.task_id = -1};
}

mu_status mu__text_set(char **out, const char *text)
{
    char *copy = text != NULL ? mu__strdup(text) : NULL;
    if (text != NULL && copy == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__free(*out);
    *out = copy;
    return MU_OK;
}

mu_status mu__view_copy(mu_cluster_view *out, const mu_cluster_view *from)
{
    out->task_id = from->task_id;
    out->num_accelerators = from->num_accelerators;
    out->spec = mu__spec_copy(from->spec);
    if (out->spec == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(mu__text_set(&out->task_type, from->task_type));
    MU_TRY(mu__text_set(&out->rpc_layer, from->rpc_layer));
    MU_TRY(mu__text_set(&out->environment, from->environment));
    MU_TRY(mu__text_set(&out->master, from->master));
    return mu__text_set(&out->accelerator_type, from->accelerator_type);
}

mu_status mu__read_fixed(mu_cluster *cluster, mu_cluster_view *out) { return mu__view_copy(out, &cluster->fixed); }

mu_status mu__cluster_read(mu_cluster *cluster, mu_cluster_view *out)
{
    *out = (mu_cluster_view){.task_id = -1};
    MU_TRY(cluster->ops->read(cluster, out));
    if (cluster->task_type != NULL)
        MU_TRY(mu__text_set(&out->task_type, cluster->task_type));
    if (cluster->task_id >= 0)
        out->task_id = cluster->task_id;
    return cluster->rpc_layer != NULL ? mu__text_set(&out->rpc_layer, cluster->rpc_layer) : MU_OK;
}

// ---- Creation and setters -----------------------------------------------------------------------

mu_cluster *mu__cluster_new(const mu_resolver_ops *ops)
{
    mu_cluster *cluster = mu__new(&cluster_type, sizeof *cluster);
    if (cluster == NULL)
        return NULL;
    cluster->ops = ops;
    cluster->task_id = cluster->fixed.task_id = -1;
    return cluster;
}

// Records an error if the argument is not a cluster.
static bool is_cluster(const mu_cluster *cluster, const char *function)
{
    if (cluster == NULL || !mu__is(cluster, &cluster_type)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: needs a cluster, as mu_cluster_from_environment or a resolver returns it",
                  function);
        return false;
    }
    return true;
}

static bool usable(const mu_cluster *cluster, const char *function)
{
    return !mu__pending() && is_cluster(cluster, function);
}

mu_status mu_cluster_set_task_type(mu_cluster *cluster, const char *task_type)
{
    if (!usable(cluster, "mu_cluster_set_task_type"))
        return mu_error_code();
    if (cluster->ops->task_type_is_fixed)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_cluster_set_task_type: the task type of %s is the one that its resolver was made with; "
                         "make another with .task_type = \"%.80s\"",
                         cluster->ops->source, task_type != NULL ? task_type : "worker");
    return mu__text_set(&cluster->task_type, task_type);
}

mu_status mu_cluster_set_task_id(mu_cluster *cluster, int task_id)
{
    if (!usable(cluster, "mu_cluster_set_task_id"))
        return mu_error_code();
    cluster->task_id = MU_MAX(task_id, -1);
    return MU_OK;
}

mu_status mu_cluster_set_rpc_layer(mu_cluster *cluster, const char *rpc_layer)
{
    return usable(cluster, "mu_cluster_set_rpc_layer") ? mu__text_set(&cluster->rpc_layer, rpc_layer) : mu_error_code();
}

mu_status mu__cluster_override(mu_cluster *cluster, const char *task_type, const int *task_id, const char *rpc_layer)
{
    if (task_id != NULL && *task_id < 0)
        return mu__error(MU_INVALID_ARGUMENT, "task_id is %d; the tasks of a job count from 0", *task_id);
    MU_TRY(mu__text_set(&cluster->task_type, task_type));
    cluster->task_id = task_id != NULL ? *task_id : -1;
    return mu__text_set(&cluster->rpc_layer, rpc_layer);
}

static const mu_resolver_ops simple_ops = {.source = "the program", .read = mu__read_fixed};

mu_cluster *mu_simple_cluster_resolver_with(const mu_simple_cluster_resolver_args *given)
{
    mu_simple_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_simple_cluster_resolver") != MU_OK)
        return NULL;
    if (args.cluster_spec == NULL || args.num_accelerators < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_simple_cluster_resolver: needs a specification (mu_cluster_spec_parse makes one) and 0 or more "
                  "accelerators (%d)",
                  args.num_accelerators);
        return NULL;
    }
    mu_cluster *cluster = mu__cluster_new(&simple_ops);
    if (cluster == NULL)
        return NULL;
    const bool numbered = args.task_type != NULL || MU_GIVEN(&args, task_id);
    mu_cluster_view *view = &cluster->fixed;
    view->num_accelerators = args.num_accelerators;
    view->spec = mu__spec_copy(args.cluster_spec);
    if (view->spec == NULL || mu__text_set(&view->master, args.master) != MU_OK ||
        mu__text_set(&view->environment, args.environment) != MU_OK ||
        mu__text_set(&view->accelerator_type, args.accelerator_type != NULL ? args.accelerator_type : "GPU") != MU_OK ||
        mu__cluster_override(cluster, args.task_type, numbered ? &args.task_id : NULL, args.rpc_layer) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}

// ---- Union --------------------------------------------------------------------------------------

static mu_status union_add(mu_cluster_spec *into, const mu_cluster_spec *from, const mu_cluster_spec *maps)
{
    for (size_t i = 0; i < from->n; i++) {
        const mu_job *job = &from->items[i];
        const bool append = mu__spec_find(maps, job->name) == NULL;
        // A job without tasks is still a job.
        if (mu__spec_job(into, job->name) == NULL)
            return mu_error_code();
        for (size_t j = 0; j < job->n; j++)
            MU_TRY(mu_cluster_spec_add(into, job->name, append ? -1 : job->items[j].index, job->items[j].address));
    }
    return MU_OK;
}

static mu_status union_read(mu_cluster *cluster, mu_cluster_view *out)
{
    mu_status status = MU_OK;
    mu_cluster_view *views = mu__calloc((size_t)cluster->n_parts, sizeof *views);
    mu_cluster_spec *maps = mu__spec_new(), *all = mu__spec_new();
    if (views == NULL || maps == NULL || all == NULL)
        MU_GO(MU_RESOURCE_EXHAUSTED);
    for (int i = 0; i < cluster->n_parts; i++) {
        MU_GO(mu__cluster_read(cluster->parts[i], &views[i]));
        for (size_t j = 0; j < views[i].spec->n; j++)
            if (!mu__job_is_list(&views[i].spec->items[j]) && mu__spec_job(maps, views[i].spec->items[j].name) == NULL)
                MU_GO(mu_error_code());
    }
    for (int i = 0; i < cluster->n_parts; i++)
        MU_GO(union_add(all, views[i].spec, maps));
    MU_GO(mu__view_copy(out, &views[0]));
    mu_release(out->spec);
    out->spec = mu_retain(all);
out:
    for (int i = 0; views != NULL && i < cluster->n_parts; i++)
        mu__view_clear(&views[i]);
    mu__free(views);
    mu_release(maps);
    mu_release(all);
    return status;
}

static const mu_resolver_ops union_ops = {.source = "a union of clusters", .read = union_read};

mu_cluster *mu_union_cluster_resolver_with(const mu_union_cluster_resolver_args *given)
{
    mu_union_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_union_cluster_resolver") != MU_OK)
        return NULL;
    int n = 0;
    while (args.resolvers != NULL && n < MU_MAX_TASKS && args.resolvers[n] != (mu_cluster *)MU_END)
        if (!usable(args.resolvers[n++], "mu_union_cluster_resolver"))
            return NULL;
    if (n == 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_union_cluster_resolver: needs at least one cluster: .resolvers = MU_CLUSTERS(a, b)");
        return NULL;
    }
    mu_cluster *cluster = mu__cluster_new(&union_ops);
    if (cluster == NULL)
        return NULL;
    cluster->parts = mu__calloc((size_t)n, sizeof(mu_cluster *));
    const int *id = MU_GIVEN(&args, task_id) ? &args.task_id : NULL;
    if (cluster->parts == NULL || mu__cluster_override(cluster, args.task_type, id, args.rpc_layer) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    while (cluster->n_parts < n) {
        cluster->parts[cluster->n_parts] = mu_retain(args.resolvers[cluster->n_parts]);
        cluster->n_parts++;
    }
    return mu__give(cluster);
}

// ---- Queries ------------------------------------------------------------------------------------

// Reads a cluster for one of the functions below; false with an error recorded. Sets a pending error aside meanwhile,
// because queries work in spite of one.
static bool ask(mu_cluster *cluster, const char *function, mu_cluster_view *view)
{
    mu_error_value pending, own;
    mu__error_move(&pending);
    const bool there = is_cluster(cluster, function), known = there && mu__cluster_read(cluster, view) == MU_OK;
    if (there && !known)
        mu__view_clear(view);
    mu__error_move(&own);
    mu__error_raise(pending.code != MU_OK ? &pending : &own);
    return known;
}

mu_cluster_spec *mu_cluster_get_spec(mu_cluster *cluster)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_get_spec", &view))
        return NULL;
    mu_cluster_spec *spec = mu__give(mu_retain(view.spec));
    mu__view_clear(&view);
    return spec;
}

const char *mu_cluster_task_type(mu_cluster *cluster)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_task_type", &view))
        return NULL;
    const char *text = mu__text_give(view.task_type);
    mu__view_clear(&view);
    return text;
}

int mu_cluster_task_id(mu_cluster *cluster)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_task_id", &view))
        return -1;
    const int id = view.task_id;
    mu__view_clear(&view);
    return id;
}

const char *mu_cluster_rpc_layer(mu_cluster *cluster)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_rpc_layer", &view))
        return NULL;
    const char *text = mu__text_give(view.rpc_layer);
    mu__view_clear(&view);
    return text;
}

const char *mu_cluster_environment(mu_cluster *cluster)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_environment", &view))
        return NULL;
    const char *text = mu__text_give(view.environment != NULL ? view.environment : "");
    mu__view_clear(&view);
    return text;
}

int mu_cluster_num_accelerators(mu_cluster *cluster, const char *type)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu_cluster_num_accelerators", &view))
        return -1;
    const bool same = type != NULL && view.accelerator_type != NULL && strcmp(type, view.accelerator_type) == 0;
    const int n = same ? view.num_accelerators : 0;
    mu__view_clear(&view);
    return n;
}

const char *mu_cluster_source(const mu_cluster *cluster) { return cluster != NULL ? cluster->ops->source : "nothing"; }

// "LAYER://ADDRESS", owned by the pool; the address alone if either is missing. NULL stays NULL.
static const char *url_of(const char *layer, const char *address)
{
    if (address == NULL || address[0] == '\0' || layer == NULL || layer[0] == '\0')
        return mu__text_give(address);
    char *url = mu__sprintf("%s://%s", layer, address);
    const char *given = mu__text_give(url);
    mu__free(url);
    return given;
}

// The address of a task of a type, or of this process's type.
static const char *address_of(const mu_cluster_view *view, const mu_resolver_ops *ops, const char *task_type,
                              int task_id, const char *layer)
{
    const char *type = task_type != NULL ? task_type : view->task_type;
    if (type != NULL && task_id >= 0)
        return url_of(layer, mu_cluster_spec_task_address(view->spec, type, task_id));
    if (ops->no_master_without_task)
        return "";
    mu__error(
        MU_INVALID_ARGUMENT,
        "mu_cluster_master: the cluster does not say which task this process is; give .task_type and .task_id, or "
        "set them with mu_cluster_set_task_type and mu_cluster_set_task_id");
    return NULL;
}

const char *mu_cluster_master_with(const mu_cluster_master_args *given)
{
    mu_cluster_master_args args;
    mu_cluster_view view;
    if (mu__args_copy(&args, sizeof args, given, "mu_cluster_master") != MU_OK ||
        !ask(args.cluster, "mu_cluster_master", &view))
        return NULL;
    const mu_resolver_ops *ops = args.cluster->ops;
    const bool asked = args.task_type != NULL || MU_GIVEN(&args, task_id) || mu__args_text(&args, "task_id", 2) != NULL;
    const bool lone = view.spec->n == 0 || (view.spec->n == 1 && view.spec->items[0].n == 1);
    // A union's own layer is only the one it was given; without a task its first part answers.
    const char *own = ops == &union_ops ? args.cluster->rpc_layer : view.rpc_layer, *master;
    const char *layer = args.rpc_layer != NULL ? args.rpc_layer : own;
    if (ops == &union_ops && !asked)
        master = mu_cluster_master(args.cluster->parts[0], .rpc_layer = args.rpc_layer);
    else if (ops->master_first && view.master != NULL)
        master = mu__text_give(view.master);
    else if (ops->lone_task_is_local && lone)
        master = "";
    else if (asked)
        master = address_of(&view, ops, args.task_type, args.task_id, layer);
    else if (ops == &simple_ops)
        master = url_of(layer, view.master != NULL ? view.master : "");
    else
        master = address_of(&view, ops, NULL, view.task_id, layer);
    mu__view_clear(&view);
    return master;
}

// ---- This process -------------------------------------------------------------------------------

typedef int role_query(const mu_cluster_spec *spec, const char *task_type, int task_id);

static int count_query(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    (void)task_id;
    return mu_cluster_spec_worker_count(spec, task_type);
}

static int ask_role(mu_cluster *cluster, const char *function, role_query *query, int alone)
{
    mu_cluster_view view;
    if (!ask(cluster, function, &view))
        return -1;
    const int answer = view.spec->n > 0 ? query(view.spec, view.task_type, view.task_id) : alone;
    mu__view_clear(&view);
    return answer;
}

int mu_cluster_is_chief(mu_cluster *cluster)
{
    return ask_role(cluster, "mu_cluster_is_chief", mu_cluster_spec_is_chief, 1);
}

int mu_cluster_worker_count(mu_cluster *cluster)
{
    return ask_role(cluster, "mu_cluster_worker_count", count_query, 1);
}

int mu_cluster_worker_index(mu_cluster *cluster)
{
    return ask_role(cluster, "mu_cluster_worker_index", mu_cluster_spec_worker_index, 0);
}

static int coordinates(const mu_cluster_spec *spec, const char *task_type, int task_id)
{
    (void)spec, (void)task_id;
    return task_type == NULL || strcmp(task_type, "chief") == 0;
}

int mu_cluster_is_coordinator(mu_cluster *cluster)
{
    return ask_role(cluster, "mu_cluster_is_coordinator", coordinates, 1);
}

mu_status mu__cluster_print(mu_cluster *cluster, FILE *out)
{
    mu_cluster_view view;
    if (!ask(cluster, "mu__cluster_print", &view))
        return mu_error_code();
    fprintf(out, "cluster from %s: ", mu_cluster_source(cluster));
    if (view.spec->n == 0)
        fprintf(out, "this process alone\n");
    else if (view.task_type != NULL)
        fprintf(out, "this process is %s %d\n", view.task_type, view.task_id);
    else
        fprintf(out, "this process is none of its tasks\n");
    for (size_t i = 0; i < view.spec->n; i++)
        for (size_t j = 0; j < view.spec->items[i].n; j++) {
            const mu_task *task = &view.spec->items[i].items[j];
            const bool own = view.task_id == task->index && view.task_type != NULL &&
                             strcmp(view.task_type, view.spec->items[i].name) == 0;
            fprintf(out, "  %-10s %4d  %s%s\n", view.spec->items[i].name, task->index,
                    task->address[0] != '\0' ? task->address : "(sends its address when it joins)",
                    own ? "  <- this process" : "");
        }
    mu__view_clear(&view);
    return MU_OK;
}
