// Strategies inside the library: one struct for all of them, told apart by a row of rules.
//
// A strategy is a set of local devices, a group that their replicas reduce in, and rules for variables. What
// a kind of strategy does differently is in its row; run, reduce, scopes and input are written once.
#ifndef MU_SRC_DISTRIBUTE_DISTRIBUTE_H
#define MU_SRC_DISTRIBUTE_DISTRIBUTE_H

#include "comm/comm.h"
#include "comm/mesh.h"
#include "data/dataset.h"
#include "engine/engine.h"

#include <muster/distribute.h>
#include <pthread.h>

// Local replicas of one process, at most.
#define MU_MAX_REPLICAS 256
// Gradients are reduced in buckets of this size where nothing else is asked for: long enough that waiting for peers
// is little beside moving the bytes, short enough that most are reduced while the backward pass continues.
// Bytes of a bucket of gradients where the user names none: an eighth of all, so that most of them are under way while
// the backward pass continues, within these bounds, so that messages are neither short nor the last of them long.
#define MU_BUCKETS_CHOSEN ((size_t)-1)
#define MU_BUCKET_LEAST   ((size_t)256 << 10)
#define MU_BUCKET_MOST    ((size_t)4 << 20)

// What a kind of strategy does its own way.
typedef struct mu_strategy_ops {
    const char *name;                     // "MirroredStrategy"
    bool plain_variables;                 // one component, no rules, synchronisation ignored
    bool central_variables;               // one component that all replicas share
} mu_strategy_ops;

enum { MU_TOLD_BYTES = 160 };
struct mu_strategy {
    mu_object object;
    const mu_strategy_ops *ops;
    mu_runtime *runtime;
    int n_replicas;                       // in sync, in all processes
    int first_replica;                    // id of local replica 0
    int n_local;
    mu_device **devices;                  // [n_local]
    mu_device *parameter_device;          // of central variables; NULL: variables live on all devices
    int n_workers, worker;                // processes, and which this is
    bool stopping;                        // all workers know that a signal has asked for the end
    mu_group *group;                      // of all replicas; this process's are its local members; NULL for one
    bool wants_values, values_wanted;     // this worker, any of them wants the metrics of all at the next step's end
    struct mu_job *job;                   // retained, and entered while `mesh` is there; NULL for one worker
    mu_mesh *mesh;                        // the job's, of all workers; NULL for one
    mu_group *workers;                    // one rank per worker; NULL for one
    int64_t n_rendezvous;                 // of the workers outside of steps, so far
    mu_cluster *cluster;                  // retained; NULL for strategies of one process
    bool sealed;                          // the cluster is the environment's, which must not change any more
    mu_cross_device_ops *cross_device;    // retained; NULL: in replica order
    size_t bytes_per_pack;                // of a bucket of gradients, about; 0: all in one
    char told[4][MU_TOLD_BYTES];          // what was said about its pipelines last
    int n_told;
    pthread_mutex_t order;                // guards what follows
    int64_t runs;                         // started so far
    int under_way;                        // started and not waited for
};

extern mu_type mu__strategy_type;

// mu__strategy_new makes a strategy on local devices; owned by the caller.
mu_strategy *mu__strategy_new(const mu_strategy_ops *ops, int n_devices, mu_device *const *devices);
// Devices by name, or the first so many (0: all); `function` names the caller in errors. -1 on error.
int mu__named_devices(const char *function, const char *const *names, mu_device **devices, int capacity);
int mu__first_devices(const char *function, int replicas, mu_device **devices, int available);
// mu__strategy_is_mirrored: made by mu_mirrored_strategy.
bool mu__strategy_is_mirrored(const mu_strategy *strategy);
// mu__strategy_or_default maps NULL (no scope) to the default strategy; borrowed.
mu_strategy *mu__strategy_or_default(mu_strategy *strategy);

// ---- Contexts (strategy.c) ----------------------------------------------------------------------

typedef struct mu_strategy_scope {
    struct mu_scope scope;                // first
    mu_strategy *strategy;
    bool updating;                        // in an update function: variables are the context's component
    struct mu_strategy_replica *merging;  // in a merge_call of a trace: the replica that is traced
    bool set;                             // by mu_set_strategy
    bool mixed;                           // inside one of the default strategy: no variables
} mu_strategy_scope;

// Inside a function that runs on replicas. While tracing there is no id: it is a value in the graph.
typedef struct mu_strategy_replica {
    struct mu_replica replica;            // first; its id is -1 while tracing
    mu_strategy *strategy;
    struct mu_eager_replicas *eager;      // an eager run of several replicas; else NULL
    int local;                            // which of them
    bool sync_on_read;                    // reads of ON_READ variables are put together
} mu_strategy_replica;

mu_strategy *mu__current_strategy(void);  // NULL outside of scopes and replicas

// mu__need_cross_replica checks that a call which needs the cross-replica (or default) state is made there.
// Errors: FAILED_PRECONDITION inside a replica, or under another strategy.
mu_status mu__need_cross_replica(const mu_strategy *strategy, const char *function);

// What a thread's context was before mu__enter_replica.
typedef struct mu_saved_context {
    struct mu_scope *scope;
    struct mu_replica *replica;
    int64_t run;
    int component, n_components;
} mu_saved_context;
mu_saved_context mu__enter_replica(mu_strategy_replica *replica, struct mu_scope *scope, int component);
void mu__leave_replica(mu_saved_context before);

// mu__enter_cross_replica puts this thread into the cross-replica state of `scope`.
mu_saved_context mu__enter_cross_replica(mu_strategy_scope *scope);

// mu__updating says whether this thread is in an update function.
bool mu__updating(void);

// mu__replica is what this thread is a replica of; NULL outside of replicas.
mu_strategy_replica *mu__replica(void);

// ---- Eager replicas (eager_replicas.c) -------------------------------------------------------

typedef mu_value *mu_replica_fn(mu_value *arguments, void *arg);
typedef mu_value *mu_merge_fn(mu_strategy *strategy, mu_value *arguments, void *arg);

// mu__eager_run calls fn for every local replica, one at a time, and returns the regrouped
// results. Owned; NULL on error.
mu_value *mu__eager_run(mu_strategy *strategy, mu_replica_fn *fn, void *arg, const mu_value *arguments);

// mu__eager_merge pauses the calling replica until all are there; then fn of the first runs once on the
// coordinating thread. Given to the pool; NULL on error.
mu_value *mu__eager_merge(mu_merge_fn *fn, void *arg, mu_value *arguments);
// mu__turns_assign is the merge that an assignment is: all replicas must assign to the same variable in the same way.
// Errors: FAILED_PRECONDITION naming both replicas and their variables; fn is not called then.
mu_value *mu__turns_assign(const mu_variable *variable, mu_update update, mu_merge_fn *fn, void *arg, mu_value *value);

// mu__eager_variable finds the variable that the first replica made under this canonical name in this
// replica's turn to make it, or NULL where this replica is the first. Errors: FAILED_PRECONDITION if the first
// made none. mu__eager_made keeps what the first replica made for the others.
mu_variable *mu__eager_variable(const char *name);
mu_status mu__eager_made(mu_variable *variable);

// ---- Merges in a trace (merge.c) ----------------------------------------------------------------

// mu__merge_traced calls fn once, in the cross-replica state, with placeholders for the replicas' values in place of
// symbolic tensors. Given to the pool; NULL on error.
mu_value *mu__merge_traced(mu_merge_fn *fn, void *arg, mu_value *arguments);
// mu__merging says whether this thread is in such a call; mu__is_placeholder whether a value is one of its
// placeholders.
bool mu__merging(void);
bool mu__is_placeholder(const mu_value *value);
// mu__merged_own is the running replica's part, mu__merged_group the other way round, as values of
// this kind. Of the pool.
// Errors: UNIMPLEMENTED for another replica's part.
mu_value *mu__merged_own(const mu_value *value);
mu_value *mu__merged_group(const mu_strategy *strategy, mu_value_kind kind, const mu_value *own);
// Collectives on the nodes behind placeholders; results as those of mu_reduce (_own: of a value that each worker has
// one of), mu_reduce_axes, mu_strategy_gather,
// mu_local_results (before it selects), mu_batch_reduce_to (tensors only), and an ON_READ variable's reading.
mu_value *mu__merged_reduce(mu_reduce_op op, const mu_value *value);
mu_tensor *mu__merged_reduce_own(mu_reduce_op op, const mu_value *value);
mu_tensor *mu__merged_reduce_axes(mu_reduce_op op, const mu_value *value, int n_axes, const int *axes);
mu_tensor *mu__merged_gather(const mu_value *value, int axis);
mu_value *mu__merged_gather_own(const mu_value *value, int axis);
mu_value *mu__merged_results(const mu_strategy *strategy, const mu_value *value);
mu_status mu__merged_batch(mu_reduce_op op, int n, mu_value *const *values, mu_tensor **out);
mu_tensor *mu__merged_read(mu_variable *variable);

// ---- Values (values.c) --------------------------------------------------------------------------

// mu__select returns the value with replica i's component in place of each per-replica value. Owned.
mu_value *mu__select(const mu_value *value, int i);
// mu__select_for does so for a replica function of this run: tensors in components count as made in it
// (mu__made_here), other tensors stay values from outside. Owned.
mu_value *mu__select_for(const mu_strategy *strategy, const mu_value *value, int i, int64_t run);
// mu__new_run numbers a run of a function on replicas: 0 where there is one replica, which has nothing to compare.
int64_t mu__new_run(const mu_strategy *strategy);
// mu__own_component marks a value that this worker's only replica has for itself: it is not wrapped there, and
// mu__select_for takes it for a component all the same. What replica functions return needs no mark. Owned.
mu_value *mu__own_component(const mu_value *value);
// mu__regroup puts one value per replica together: per-replica leaves in the structure of values[0]. One
// replica: values[0] itself. Owned. Errors: INVALID_ARGUMENT if structures differ.
mu_value *mu__regroup(int n, mu_value *const *values);
// mu__regroup_as makes leaves of another kind; `always` also those that are the same everywhere.
mu_value *mu__regroup_as(mu_value_kind kind, bool always, int n, mu_value *const *values);
// mu__select_mirrored is mu__select for values that must not differ. Errors: INVALID_ARGUMENT if a leaf may.
mu_value *mu__select_mirrored(const mu_value *value, int i);
bool mu__is_distributed(const mu_value *value);
// mu__map_parts rebuilds a nest with other parts, of the pool: its leaves where `deep`, otherwise whatever is neither a
// list nor a map. NULL where fn gives NULL.
typedef mu_value *mu_part_fn(const mu_value *part, const void *arg);
mu_value *mu__map_parts(const mu_value *value, bool deep, mu_part_fn *fn, const void *arg);
// mu__need_value fails with INVALID_ARGUMENT for a pointer that is not NULL and no mu_value.
mu_status mu__need_value(const mu_value *value, const char *function);

// ---- Parts of replicas (parts.c) ----------------------------------------------------------------

// mu__need_components fails with INVALID_ARGUMENT where a part of a nest has another number of components than the
// strategy has local replicas. A NULL value passes.
mu_status mu__need_components(const mu_strategy *strategy, const mu_value *value, const char *function);

// How parts are called in errors: "mu_reduce: replica 0 has …".
typedef struct mu_parts_name {
    const char *what;   // the function, or the variable
    const char *whose;  // "replica", "worker", "component"
    int value;          // of a list of values: 1 for the first; 0: there is no list
} mu_parts_name;

// mu__same_part fails with INVALID_ARGUMENT if the i-th part has another type or shape than the first; mu__same_parts
// checks all of n.
mu_status mu__same_part(const mu_parts_name *name, int i, const mu_spec *first, const mu_spec *other);
mu_status mu__same_parts(const mu_parts_name *name, int n, mu_tensor *const *parts);
// mu__same_dense_shapes compares the shapes that n indexed slices carry.
mu_status mu__same_dense_shapes(const mu_parts_name *name, int n, mu_tensor *const *shapes);

// mu__need_reduce_op fails with INVALID_ARGUMENT for what is neither MU_SUM nor MU_MEAN.
mu_status mu__need_reduce_op(mu_reduce_op op, const char *function);

// mu__mirror makes a mirrored value of so many copies, which share their elements; one copy: the value itself. Of the
// pool.
mu_value *mu__mirror(mu_value *value, int copies);

// ---- What functions are traced for (like.c) -------------------------------------------------------

// mu__like_all is the first local replica's arguments, as mu__select_for gives them, where a size that differs between
// replicas is unknown; with `agree` also one that differs between workers, which all call this then. Owned.
// Errors: INVALID_ARGUMENT where replicas' tensors differ in type or rank.
mu_value *mu__like_all(mu_strategy *strategy, const mu_value *arguments, int64_t run, bool agree);

// ---- Running (strategy_run.c) -------------------------------------------------------------------

// A run that has been started; several may be under way, they execute in order.
typedef struct mu_running mu_running;

// mu__run_start traces and compiles as needed, and hands the work to the replicas' threads; NULL on error.
mu_running *mu__run_start(mu_strategy *strategy, mu_function *function, mu_value *arguments);
// mu__run_wait waits, frees the run and returns the regrouped results (given to the pool); NULL on error.
mu_value *mu__run_wait(mu_running *running);
// mu__strategy_input_seconds is how long the replica that waited most has waited for batches, ever.
double mu__strategy_input_seconds(mu_strategy *strategy);

// ---- Variables (variables.c) --------------------------------------------------------------------

mu_variable *mu__make_distributed_variable(struct mu_scope *scope, const mu_variable_args *args);

// mu__variable_component reads one component, whatever the context. Given to the pool.
mu_tensor *mu__variable_component(mu_variable *variable, int i);

// ---- Ways of reducing (packing.c) ---------------------------------------------------------------

// mu__cross_device_reduce reduces n tensors of one shape (mu__same_parts) the way `ops` does (NULL: in replica order).
// Errors: INVALID_ARGUMENT if a user's function returns nothing, or another shape or type.
mu_tensor *mu__cross_device_reduce(const mu_cross_device_ops *ops, mu_reduce_op op, int n, mu_tensor *const *parts);
// mu__cross_device_batch reduces n_tensors of n replicas: parts[i * n + r] is replica r's i-th.
mu_status mu__cross_device_batch(const mu_cross_device_ops *ops, mu_reduce_op op, int n_tensors, int n,
                                 mu_tensor *const *parts, mu_tensor **out);
// mu__cross_device_supports says whether `ops` reduces these its own way; mu__reduce_arrays does so with one array of
// each of n replicas, and writes the result to n_out places (which may be those arrays).
bool mu__cross_device_supports(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype);
mu_status mu__reduce_arrays(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype, int64_t count,
                            int n, void *const *parts, int n_out, void *const *out);
// mu__cross_device_collective makes a communicator that all-reduces the way of `ops`, every replica for itself, and
// leaves all else to `inner`. Where there is no such way it is `inner`.
typedef struct mu_cross_device_collective {
    mu_collective head;   // first
    mu_collective *inner;
    const mu_cross_device_ops *ops;
} mu_cross_device_collective;
mu_collective *mu__cross_device_collective(mu_cross_device_collective *own, mu_collective *inner,
                                           const mu_cross_device_ops *ops);
// mu__pack_sizes cuts `total` elements into packs of equal size; the last one takes the rest.
void mu__pack_sizes(int64_t total, int packs, int64_t *sizes);
// mu__group_by_size numbers the pack of each tensor: a new one starts where the last is already larger than
// bytes_per_pack (0, or a size of -1: one pack). Returns how many there are.
int mu__group_by_size(int n, const int64_t *bytes, int64_t bytes_per_pack, int *pack);

// ---- Reductions (cross_device.c) ----------------------------------------------------------------

// mu__reduce_value is mu_reduce under another name.
mu_value *mu__reduce_value(mu_strategy *strategy, const char *what, mu_reduce_op op, mu_value *value);
// mu__reduce_tensors adds `n` tensors of one shape in order, on the calling thread; MEAN divides by n.
mu_tensor *mu__reduce_tensors(mu_reduce_op op, int n, mu_tensor *const *tensors);
// mu__mean_of divides truly: integers give float64.
mu_tensor *mu__mean_of(mu_tensor *sum, int count);
mu_tensor *mu__mean_over(mu_tensor *sum, mu_tensor *count);
// mu__divide_by_count divides and keeps the type (integers truncate).
mu_tensor *mu__divide_by_count(mu_tensor *value, int count);

// mu__reduce_replicas reduces what this worker's n replicas have with what all others' have (a collective of the
// workers), in replica order. `what` names it in errors. Errors: INVALID_ARGUMENT if types or shapes differ.
mu_tensor *mu__reduce_replicas(mu_strategy *strategy, const char *what, mu_reduce_op op, int n,
                               mu_tensor *const *parts);

// ---- Between workers (workers.c) ----------------------------------------------------------------

// All of these are collectives of the workers, called by all of them in the same order; `what` is compared and named
// in errors. With one worker they do nothing.
enum { MU_WHAT_BYTES = 64 }; // room for one that is made up
mu_status mu__workers_add(mu_strategy *strategy, const char *what, mu_dtype dtype, void *numbers, int64_t n);
// mu__workers_agree adds up two numbers, and tells all whether a signal has asked one of them to end: then all have
// heard it (mu__stop_signal) and strategy->stopping is set, behind the same call on each.
mu_status mu__workers_agree(mu_strategy *strategy, const char *what, int64_t numbers[2]);
// mu__workers_sum adds up n numbers of every replica in replica order; `parts` has them for each local one.
mu_status mu__workers_sum(mu_strategy *strategy, const char *what, int n, const double *parts, double *sums);
// mu__workers_gather_blocks (several workers only) puts counts[w] elements of each worker behind each other. `form`
// says of which tensors they are, for the workers to compare; NULL: of none.
mu_status mu__workers_gather_blocks(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype,
                                    const void *mine, void *all, const int64_t *counts);
// mu__workers_least gives every worker the least of their numbers (several workers only).
mu_status mu__workers_least(mu_strategy *strategy, const char *what, int64_t *number);
// mu__workers_take gives every worker the n elements of one of them (`form` as above); _tensor the chief's tensor
// (given to the pool; one worker: itself); _text a worker's text (the caller's: mu__free).
mu_status mu__workers_take(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype, void *data,
                           int64_t n, int worker);
mu_tensor *mu__workers_take_tensor(mu_strategy *strategy, const char *what, mu_tensor *mine);
char *mu__workers_take_text(mu_strategy *strategy, const char *what, const char *own, int worker);
// mu__workers_written ends the writing of a file, which only the chief did (mu_strategy_should_checkpoint), with what
// status: the others continue when the file is there, or fail as the chief did. NULL: no strategy.
mu_status mu__workers_written(mu_strategy *strategy, mu_status status);
// mu__workers_gather returns n tensors of each worker in their order (mu__free; the tensors belong to the pool).
mu_tensor **mu__workers_gather(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine);
// mu__workers_reduce combines n tensors of each worker in the order of their replicas, large ones piece by piece.
// `name` names them in errors. Errors: INVALID_ARGUMENT, on all workers, if types or shapes differ.
mu_tensor *mu__workers_reduce(mu_strategy *strategy, const mu_parts_name *name, const mu_cross_device_ops *ops,
                              mu_reduce_op op, int n, mu_tensor *const *mine);
// mu__header_write says in numbers what a tensor is; mu__header_read reads what another worker has said: false for what
// no tensor can be.
enum { MU_HEADER_INTS = 2 + MU_MAX_RANK };
void mu__header_write(const mu_tensor *tensor, int64_t out[MU_HEADER_INTS]);
bool mu__header_read(const int64_t in[MU_HEADER_INTS], mu_spec *out);
// mu__strategy_doing says what this worker is busy with, for others that wait for it; number -1: none.
// mu__strategy_done says that it is at that no more: a step is under way, or the program is.
void mu__strategy_doing(const mu_strategy *strategy, const char *what, int64_t number);
void mu__strategy_done(mu_strategy *strategy);
// mu__strategy_failed tells the other workers the pending error: they fail with it, and it names this worker.
void mu__strategy_failed(const mu_strategy *strategy);

// ---- Collectives in a replica context (replica.c) -----------------------------------------------

// mu__all_reduce_list reduces n tensors over all replicas. They go into buckets of one type, in the order given or,
// in a trace, in that in which they become ready; a bucket ends before it exceeds bytes_per_pack (0: never;
// MU_BUCKETS_CHOSEN: by the size of all). `names` (may be NULL) is what peers that wait are told. out[i] are given to
// the pool.
// mu__broadcast_from_first gives every replica the first one's value. `name` is what replicas compare.
mu_tensor *mu__broadcast_from_first(mu_tensor *value, const char *name);
// mu__all_gather_named is mu_all_gather under a name that replicas compare.
mu_tensor *mu__all_gather_named(mu_tensor *value, int axis, const char *name);
mu_status mu__all_reduce_list(mu_reduction reduction, int n, mu_tensor *const *in, mu_tensor **out,
                              const char *const *names, size_t bytes_per_pack);

// ---- Input (input.c, sharding.c, element_spec.c) ------------------------------------------------

// mu__split_batch cuts a batch into one part per local replica (views). Owned.
mu_value *mu__split_batch(const mu_strategy *strategy, const mu_value *batch);

// mu__distributed_iterate opens an iterator; owned by the caller. mu__distributed_rows says how many rows its last step
// has, on all workers together.
mu_iterator *mu__distributed_iterate(mu_distributed_dataset *distributed);
int64_t mu__distributed_rows(const mu_iterator *iterator);

// What this worker reads of a dataset.
typedef struct mu_shard_plan {
    mu_dataset *dataset;  // borrowed; NULL on error
    bool pieces;          // its elements are one replica's; else they are this worker's batches
    bool same_order;      // parts of one sequence, which all workers must see in the same order
} mu_shard_plan;
mu_shard_plan mu__shard_plan_of(mu_strategy *strategy, mu_dataset *dataset);

// mu__rebatch_sizes: TensorFlow's list of the sizes that a worker cuts its data into (mu__free).
int64_t *mu__rebatch_sizes(int64_t batch, int workers, int worker, int replicas);

// mu__element_text describes the structure of an element (mu__free); mu__element_from_text makes it again, with
// symbolic tensors as leaves. Owned.
char *mu__element_text(const mu_value *element);
mu_value *mu__element_from_text(const char *text);

#endif
