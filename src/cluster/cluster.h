// Private declarations of the cluster layer: specifications and resolvers.
//
// A resolver is a table of functions, mu_resolver_ops, whose one task is to fill a view with what its source says now.
// Values set by hand, queries and rules are the same for all resolvers. Does not open connections to the cluster.
#ifndef MU_SRC_CLUSTER_H
#define MU_SRC_CLUSTER_H

#include "base/base.h"

#include <muster/cluster.h>

enum { MU_MAX_TASKS = 65536, MU_MAX_CLUSTER_TEXT = 4 << 20, MU_MAX_NAME = 255 };

typedef struct mu_task {
    int index;
    char *address;
} mu_task;

typedef struct mu_job {
    char *name;
    size_t n, capacity;
    mu_task *items; // sorted by index
} mu_job;

struct mu_cluster_spec {
    mu_object object;
    size_t n, capacity;
    mu_job *items; // sorted by name
};

// The caller owns the references that these functions return.
mu_cluster_spec *mu__spec_new(void);
mu_cluster_spec *mu__spec_copy(const mu_cluster_spec *spec);
// mu__spec_from_json converts a parsed `{job: tasks}`; errors name it by `where`.
struct json_t; // of jansson
mu_cluster_spec *mu__spec_from_json(struct json_t *json, const char *where);
mu_job *mu__spec_find(const mu_cluster_spec *spec, const char *job); // NULL if absent; records no error
mu_task *mu__job_find(const mu_job *job, int index);                 // NULL if absent; records no error
mu_job *mu__spec_job(mu_cluster_spec *spec, const char *job);        // found or added; NULL on error
// mu__job_is_list returns whether the indices are 0 to n-1: then a union appends the tasks.
bool mu__job_is_list(const mu_job *job);
int mu__spec_count(const mu_cluster_spec *spec, const char *job);   // number of tasks; 0 if absent
struct json_t *mu__json_parse(const char *text, const char *where); // checks limits; an object, or NULL with
                                                                    // an error

// mu__spec_check_task applies the rules of mu_cluster_spec_is_chief and similar functions.
mu_status mu__spec_check_task(const mu_cluster_spec *spec, const char *task_type, int task_id);

// mu__check_parameter_servers applies the rules of a parameter-server strategy's cluster (parameter_servers.c). Errors:
// INVALID_ARGUMENT.
mu_status mu__check_parameter_servers(mu_cluster *cluster);

// mu__spec_check_indices fails unless chiefs, workers and evaluators are numbered from 0 without gaps.
mu_status mu__spec_check_indices(const mu_cluster_spec *spec);

// mu__text_give copies a text into the innermost pool. NULL stays NULL.
const char *mu__text_give(const char *text);

// mu__text_set replaces a text by a copy of another, or by NULL.
mu_status mu__text_set(char **out, const char *text);

// mu__task_type_copy copies a job name; the old name "master" becomes "chief".
char *mu__task_type_copy(const char *text);

// What a source says. The code that filled it owns it.
typedef struct mu_cluster_view {
    mu_cluster_spec *spec; // never NULL once read
    char *task_type;       // NULL: not stated
    int task_id;           // -1: not stated
    char *rpc_layer;
    char *environment;
    char *master; // set if the source names a master address explicitly
    char *accelerator_type;
    int num_accelerators;
} mu_cluster_view;

void mu__view_clear(mu_cluster_view *view);
mu_status mu__view_copy(mu_cluster_view *out, const mu_cluster_view *from); // `out` must be zeroed

typedef struct mu_resolver_ops {
    const char *source;
    // read fills a zeroed view; after an error the caller clears it.
    mu_status (*read)(mu_cluster *cluster, mu_cluster_view *out);
    void (*free_state)(void *state); // optional
    // master_first: `master` takes precedence even if a query names a task.
    bool master_first;
    // no_master_without_task: "" is the master while the task is unknown; other resolvers report an error.
    bool no_master_without_task;
    // task_type_is_fixed: it cannot be set by hand.
    bool task_type_is_fixed;
    // lone_task_is_local: a cluster of one job with one task has the master "".
    bool lone_task_is_local;
} mu_resolver_ops;

struct mu_cluster {
    mu_object object;
    const mu_resolver_ops *ops;
    char *task_type, *rpc_layer; // set by hand; NULL: not set
    int task_id;                 // set by hand; -1: not set
    mu_cluster_view fixed;       // the constructor's arguments, and the data of resolvers that read only once
    mu_cluster **parts;          // parts of a union
    int n_parts;
    void *state; // the resolver's; freed by free_state
};

mu_cluster *mu__cluster_new(const mu_resolver_ops *ops);               // the caller owns it
mu_status mu__cluster_read(mu_cluster *cluster, mu_cluster_view *out); // applies values set by hand
mu_status mu__read_fixed(mu_cluster *cluster, mu_cluster_view *out);   // a `read` that copies `fixed`
// mu__cluster_override sets values that a constructor was given, as if by hand; NULL: not given.
mu_status mu__cluster_override(mu_cluster *cluster, const char *task_type, const int *task_id, const char *rpc_layer);

// mu__tf_config_parse fills a view from the text of TF_CONFIG, which is untrusted.
mu_status mu__tf_config_parse(const char *text, const char *where, mu_cluster_view *out);

// mu__tf_config_from makes a cluster from such a text, which it reads only once. The caller owns it.
mu_cluster *mu__tf_config_from(const char *text, const mu_resolver_ops *ops);

// Growing lists of texts, such as expanded Slurm host lists, and of numbers; at most MU_MAX_TASKS entries.
typedef struct mu_hosts {
    size_t n, capacity;
    char **items;
} mu_hosts;
mu_status mu__hostlist_expand(const char *text, mu_hosts *out);
void mu__hosts_free(mu_hosts *hosts);
typedef struct mu_counts {
    size_t n, capacity;
    int *items;
} mu_counts;
mu_status mu__tasks_per_node_expand(const char *text, mu_counts *out);

// mu__environment_int reads a whole number in [low, high] from a variable; -1 without an error if it is unset.
mu_status mu__environment_int(const char *variable, int low, int high, int *out);

// mu__cluster_seal stores the values of the variables that mu_cluster_from_environment uses, because strategies now
// depend on them. From then on mu__cluster_check_sealed fails if a variable has changed, and names it.
mu_status mu__cluster_seal(void);
mu_status mu__cluster_check_sealed(void);

// mu__cluster_own_task finds which task of the job this process is; -1: the cluster does not say. For a TPU's workers
// that is what was set by hand, else TPU_WORKER_ID, else the only worker with an address of this machine
// (tpu_resolver.c).
mu_status mu__cluster_own_task(mu_cluster *cluster, const mu_cluster_spec *spec, const char *job, int *out);

// ---- Web requests (https.c) ---------------------------------------------------------------------

typedef struct mu_https_request {
    const char *url;
    const char *header;  // one header line of the request, "Name: value"; NULL: none
    const char *post;    // JSON, the body of a POST; NULL: a GET
    const char *ca_file; // file of CA certificates for the server; NULL: the system's
    double seconds;      // longest wait, in seconds
} mu_https_request;

// mu__https_request returns the body of the response, terminated by a 0 byte, to be freed with mu__free; NULL on error.
// At most MU_MAX_CLUSTER_TEXT bytes. Errors: FAILED_PRECONDITION without libcurl; UNAVAILABLE, DEADLINE_EXCEEDED,
// UNAUTHENTICATED (401), PERMISSION_DENIED (403), NOT_FOUND (404); INTERNAL for any status other than 200.
char *mu__https_request(const mu_https_request *request);

// mu__metadata_get asks the metadata server of Google's machines at `address` for `path` below its instance/. Result
// and errors as mu__https_request.
char *mu__metadata_get(const char *address, const char *path, double seconds);

// mu__url_encode percent-encodes a text for a URL. The caller owns the result.
char *mu__url_encode(const char *text);

// mu__cluster_print writes the cluster, its source and this task as text; mu__cluster_sources_print the sources in
// order of precedence, and which one is used.
mu_status mu__cluster_print(mu_cluster *cluster, FILE *out);
void mu__cluster_sources_print(FILE *out);

#endif
