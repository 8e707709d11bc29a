// TF_CONFIG: {"cluster": {job: [addresses]}, "task": {"type": …, "index": …}, "rpc_layer": …, "session_master": …}.
//
// Accepts what TensorFlow accepts (numbers as texts, texts as numbers, missing members) and treats it as untrusted.
// mu_tf_config_cluster_resolver reads the variable again for every query.
#include "cluster/cluster.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

char *mu__task_type_copy(const char *text) { return mu__strdup(strcmp(text, "master") == 0 ? "chief" : text); }

// A member's text, if it exists; a number is converted to text.
static mu_status text_member(const json_t *object, const char *key, const char *where, char **out)
{
    const json_t *member = json_object_get(object, key);
    if (member == NULL || json_is_null(member))
        return MU_OK;
    if (!json_is_string(member) && !json_is_integer(member))
        return mu__error(MU_INVALID_ARGUMENT, "%s: \"%s\" is neither a text nor a whole number", where, key);
    *out = json_is_integer(member) ? mu__sprintf("%lld", (long long)json_integer_value(member))
                                   : mu__strdup(json_string_value(member));
    return *out != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status read_index(const char *text, const char *where, int *out)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0 || value > INT32_MAX - 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the task's index is \"%.40s\"; expected a whole number from 0",
                         where, text);
    *out = (int)value;
    return MU_OK;
}

static mu_status read_task(const json_t *task, const char *where, mu_cluster_view *out)
{
    if (task == NULL)
        return MU_OK;
    if (!json_is_object(task))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: \"task\" is not an object; expected {\"type\": \"worker\", \"index\": 0}", where);
    char *type = NULL, *index = NULL;
    mu_status status = text_member(task, "type", where, &type);
    if (status == MU_OK)
        status = text_member(task, "index", where, &index);
    if (status == MU_OK && index != NULL)
        status = read_index(index, where, &out->task_id);
    if (status == MU_OK && type != NULL && (out->task_type = mu__task_type_copy(type)) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    mu__free(type);
    mu__free(index);
    return status;
}

// Old configurations call the chief "master".
static mu_status rename_master(json_t *cluster)
{
    json_t *master = json_object_get(cluster, "master");
    if (master == NULL || json_object_get(cluster, "chief") != NULL)
        return MU_OK;
    if (json_object_set(cluster, "chief", master) != 0)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the cluster's specification");
    json_object_del(cluster, "master");
    return MU_OK;
}

mu_status mu__tf_config_parse(const char *text, const char *where, mu_cluster_view *out)
{
    out->task_id = -1;
    json_t *json = mu__json_parse(text, where);
    if (json == NULL)
        return mu_error_code();
    mu_status status = MU_OK;
    json_t *cluster = json_object_get(json, "cluster");
    if (cluster != NULL)
        MU_GO(rename_master(cluster));
    out->spec = cluster != NULL ? mu__spec_from_json(cluster, where) : mu__spec_new();
    if (out->spec == NULL)
        MU_GO(mu_error_code());
    MU_GO(read_task(json_object_get(json, "task"), where, out));
    MU_GO(text_member(json, "rpc_layer", where, &out->rpc_layer));
    MU_GO(text_member(json, "session_master", where, &out->master));
out:
    json_decref(json);
    return status;
}

static mu_status tf_config_read(mu_cluster *cluster, mu_cluster_view *out)
{
    const char *text = mu__environment("TF_CONFIG");
    MU_TRY(mu__tf_config_parse(text != NULL ? text : "{}", "TF_CONFIG", out));
    if (cluster->fixed.environment != NULL && (out->environment = mu__strdup(cluster->fixed.environment)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    return MU_OK;
}

static const mu_resolver_ops tf_config_ops = {
    .source = "TF_CONFIG", .read = tf_config_read, .master_first = true, .lone_task_is_local = true};

mu_cluster *mu_tf_config_cluster_resolver_with(const mu_tf_config_cluster_resolver_args *given)
{
    mu_tf_config_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_tf_config_cluster_resolver") != MU_OK)
        return NULL;
    mu_cluster *cluster = mu__cluster_new(&tf_config_ops);
    if (cluster == NULL)
        return NULL;
    const int *id = MU_GIVEN(&args, task_id) ? &args.task_id : NULL;
    if (mu__cluster_override(cluster, args.task_type, id, args.rpc_layer) != MU_OK ||
        (args.environment != NULL && (cluster->fixed.environment = mu__strdup(args.environment)) == NULL)) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}

mu_cluster *mu__tf_config_from(const char *text, const mu_resolver_ops *ops)
{
    mu_cluster *cluster = mu__cluster_new(ops);
    if (cluster != NULL && mu__tf_config_parse(text, ops->source, &cluster->fixed) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return cluster;
}
