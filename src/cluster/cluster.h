// Private side of the cluster layer: specifications, and what a resolver is.
//
// A resolver is a row of mu_resolver_ops; its one task is to fill a view with what its source says now. What was
// set on the cluster by hand, the answers and the rules are the same for all. Knows nothing of connections.
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
    bool list; // written as a list: in a union its tasks are appended
    size_t n, capacity;
    mu_task *items; // by index
} mu_job;

struct mu_cluster_spec {
    mu_object object;
    size_t n, capacity;
    mu_job *items; // by name
};

// All of these return references that the caller owns.
mu_cluster_spec *mu__spec_new(void);
mu_cluster_spec *mu__spec_copy(const mu_cluster_spec *spec);
// mu__spec_from_json takes a parsed `{job: tasks}`; `where` names it in errors.
struct json_t; // jansson's
mu_cluster_spec *mu__spec_from_json(struct json_t *json, const char *where);
mu_job *mu__spec_find(const mu_cluster_spec *spec, const char *job);          // NULL: not there; records nothing
mu_task *mu__job_find(const mu_job *job, int index);                          // likewise
mu_job *mu__spec_job(mu_cluster_spec *spec, const char *job, bool list);      // found or made; NULL on error
int mu__spec_count(const mu_cluster_spec *spec, const char *job);             // 0: not there
struct json_t *mu__json_parse(const char *text, const char *where);           // bounded; an object, or NULL

// mu__spec_check_task holds the rules of mu_cluster_spec_is_chief and its like.
mu_status mu__spec_check_task(const mu_cluster_spec *spec, const char *task_type, int task_id);

// mu__spec_check_indices refuses chiefs, workers and evaluators that are not numbered from 0 without holes.
mu_status mu__spec_check_indices(const mu_cluster_spec *spec);

// mu__text_give copies a text into the innermost pool. NULL stays NULL.
const char *mu__text_give(const char *text);

// mu__task_type_copy copies the name of a task's job, the old "master" as "chief".
char *mu__task_type_copy(const char *text);

// What a source says. Owned by whoever filled it.
typedef struct mu_cluster_view {
    mu_cluster_spec *spec; // never NULL once read
    char *task_type;       // NULL: not said
    int task_id;           // -1: not said
    char *rpc_layer;
    char *environment;
    char *master;          // said outright
    char *accelerator_type;
    int num_accelerators;
} mu_cluster_view;

void mu__view_clear(mu_cluster_view *view);
mu_status mu__view_copy(mu_cluster_view *out, const mu_cluster_view *from); // `out` zeroed

typedef struct mu_resolver_ops {
    const char *source;
    // read fills a zeroed view; what it leaves after an error is cleared by the caller.
    mu_status (*read)(mu_cluster *cluster, mu_cluster_view *out);
    void (*free_state)(void *state); // optional
    // master_first: `master` holds even when a task is asked for.
    bool master_first;
    // no_master_without_task: "" is the master as long as the task is not known; elsewhere that is an error.
    bool no_master_without_task;
    // lone_task_is_local: one job of one task has the master "".
    bool lone_task_is_local;
} mu_resolver_ops;

struct mu_cluster {
    mu_object object;
    const mu_resolver_ops *ops;
    char *task_type, *rpc_layer; // set by hand; NULL: not
    int task_id;                 // -1: not
    mu_cluster_view fixed;       // for resolvers that read once, and what the constructor was given
    mu_cluster **parts;          // of a union
    int n_parts;
    void *state;                 // of the row; goes with free_state
};

mu_cluster *mu__cluster_new(const mu_resolver_ops *ops);        // owned by the caller
mu_status mu__cluster_read(mu_cluster *cluster, mu_cluster_view *out); // with what was set by hand
mu_status mu__read_fixed(mu_cluster *cluster, mu_cluster_view *out);   // a row's `read` that copies `fixed`
// mu__cluster_override sets by hand what a constructor was given; NULL: nothing.
mu_status mu__cluster_override(mu_cluster *cluster, const char *task_type, int task_id, const char *rpc_layer);

// mu__tf_config_parse fills a view from the text of TF_CONFIG (hostile).
mu_status mu__tf_config_parse(const char *text, const char *where, mu_cluster_view *out);

// mu__tf_config_from makes a cluster of such a text, once and for all. Owned by the caller.
mu_cluster *mu__tf_config_from(const char *text, const mu_resolver_ops *ops);

// Lists of texts, as Slurm's host lists expand to, and of numbers. Bounded by MU_MAX_TASKS.
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

// mu__environment_int reads a whole number from low to high out of a variable; -1 and no error if it is unset.
mu_status mu__environment_int(const char *variable, int low, int high, int *out);

// mu__cluster_seal remembers what the variables of mu_cluster_from_environment are, for strategies that have been
// made from them: from then on mu__cluster_check_sealed fails if one differs, naming it.
mu_status mu__cluster_seal(void);
mu_status mu__cluster_check_sealed(void);

// ---- Asking a web service (https.c) -------------------------------------------------------------

typedef struct mu_https_request {
    const char *url;
    const char *token;   // of "Authorization: Bearer"; NULL: none
    const char *ca_file; // certificates that the server must have one of; NULL: the system's
    double seconds;      // to wait at most
} mu_https_request;

// mu__https_get returns the body of the answer, ended by a 0 byte, to be freed with mu__free; NULL on error. At most
// MU_MAX_CLUSTER_TEXT bytes. Errors: FAILED_PRECONDITION without libcurl; UNAVAILABLE, DEADLINE_EXCEEDED,
// UNAUTHENTICATED (401), PERMISSION_DENIED (403), NOT_FOUND (404); INTERNAL for any other answer than 200.
char *mu__https_get(const mu_https_request *request);

// mu__cluster_print writes the cluster, its source and this task, for people; mu__cluster_sources_print the sources in
// their order, and which of them is used.
mu_status mu__cluster_print(mu_cluster *cluster, FILE *out);
void mu__cluster_sources_print(FILE *out);

#endif
