// Internal interface of strategies: one struct for all kinds, with a table of slots (strategy_ops.h) for what differs.
//
// A strategy has local devices, a group in which their replicas reduce, and rules for variables. Scopes and contexts
// are the same for all kinds.
#ifndef MU_SRC_DISTRIBUTE_DISTRIBUTE_H
#define MU_SRC_DISTRIBUTE_DISTRIBUTE_H

#include "comm/comm.h"
#include "comm/mesh/mesh.h"
#include "data/dataset.h"
#include "distribute/strategy_ops.h"
#include "engine/engine.h"

#include <muster/accumulator.h>
#include <muster/distribute.h>
#include <muster/tpu.h>
#include <pthread.h>

// Limit of local replicas per process.
#define MU_MAX_REPLICAS 256
// Size in bytes of a bucket of gradients if the user sets none. Within one process it is MU_BUCKET_MOST: there is
// little latency to hide, and each bucket has a cost. Between processes (MU_BUCKETS_CHOSEN) it is an eighth of all
// gradients, so that most are reduced while the backward pass continues, within these bounds, so that messages are not
// too short and the last one is not too long.
#define MU_BUCKETS_CHOSEN ((size_t)-1)
#define MU_BUCKET_LEAST   ((size_t)256 << 10)
#define MU_BUCKET_MOST    ((size_t)4 << 20)

enum { MU_LOGGED_BYTES = 200 };
struct mu_strategy {
    mu_object object;
    const mu_strategy_ops *ops;
    mu_runtime *runtime;
    int n_replicas;    // replicas in sync, over all processes
    int first_replica; // id of local replica 0
    int n_local;
    mu_device **devices;          // [n_local]
    mu_device **compiled_devices; // [n_local] of functions with .jit_compile; NULL: none has run (under order)
    mu_device *parameter_device;  // where central variables are; NULL: variables are on all devices
    int n_workers, worker;        // number of worker processes, and this worker's index
    bool stopping;                // all workers have agreed that a signal asked to stop
    mu_group *group;              // all replicas, this process's as local members; NULL for one replica
    // this worker, or any worker, needs the metrics of all replicas after the next step; one process has them anyway
    bool progress_due, progress_agreed;
    struct mu_job *job;                   // retained and entered; NULL for one worker
    mu_mesh *mesh;                        // the job's, connects all workers; NULL for one worker
    mu_group *workers;                    // one rank per worker; NULL for one worker
    int64_t n_rendezvous;                 // rendezvous of the workers outside of steps, so far
    mu_group *agreements;                 // one rank per worker, for agreements before runs; NULL without world_ids
    int64_t n_agreements;                 // collectives of these so far, under the job's lock of launches
    mu_cluster *cluster;                  // retained; NULL for strategies of one process
    mu_tpu_device_assignment *assignment; // retained; which cores the replicas of a TPUStrategy are, NULL for others
    mu_device **cores;                    // [n_local * n_cores] its replicas' logical devices; NULL: one each
    int n_cores;                          // of each replica
    int64_t *world_ids;                   // [n_replicas * n_cores] devices of one program of all workers; NULL: none
    bool spmd;                            // all logical cores of its replicas run one program
    int tpu_life;                         // the life of the TPU system (engine/tpu.c) that it belongs to
    bool sealed;                          // the cluster came from the environment, which must not change any more
    struct mu_servers *servers;           // owned; NULL for strategies without parameter servers (parameter_server.h)
    mu_cross_device_ops *cross_device;    // retained; NULL: in replica order
    size_t bytes_per_pack;                // approximate bytes of a bucket of gradients; 0: all in one
    char logged[4][MU_LOGGED_BYTES];      // latest log messages about its pipelines, to log each once
    int n_logged;
    pthread_mutex_t order; // guards the fields below
    int64_t runs;          // started so far
    int64_t common_runs;   // with collectives, which all workers run in one order, so far
    int under_way;         // started but not yet waited for
};

extern mu_type mu__strategy_type;

// mu__strategy_new makes a strategy on local devices; owned by the caller (mu_release).
mu_strategy *mu__strategy_new(const mu_strategy_ops *ops, int n_devices, mu_device *const *devices);
// mu__named_devices finds devices by name; mu__first_devices takes the first `replicas` (0: all) of `available` ones in
// an array. They return the number of devices, -1 on error. `function` names the caller in errors.
int mu__named_devices(const char *function, const char *const *names, mu_device *devices[MU_MAX_REPLICAS]);
int mu__first_devices(const char *function, int replicas, mu_device *first, int available,
                      mu_device *devices[MU_MAX_REPLICAS]);
// mu__strategy_or_default maps NULL (no scope) to the default strategy; borrowed.
mu_strategy *mu__strategy_or_default(mu_strategy *strategy);
// mu__another returns "another " if the second strategy is of the same kind, else "", to be written before its name in
// messages.
const char *mu__another(const mu_strategy *strategy, const mu_strategy *other);
// mu__set_strategy is mu_set_strategy; its errors name `function`.
mu_status mu__set_strategy(mu_strategy *strategy, const char *function);

// ---- Contexts (strategy.c) ----------------------------------------------------------------------

typedef struct mu_strategy_scope {
    struct mu_scope scope; // first
    mu_strategy *strategy;
    bool updating;                       // inside an update function: a variable means the context's component
    struct mu_strategy_replica *merging; // inside a merge_call of a trace: the replica that is traced
    bool set;                            // made by mu_set_strategy
    bool device;                         // made by mu_set_device: functions that are called run on the device
    bool mixed;                          // inside a scope of the default strategy: variables are not allowed
    bool part;                           // a part of a sharded variable is made: it is not partitioned again
    bool colocated;                      // variables go where another one is
    int server;                          // colocated: its parameter server; -1: none
} mu_strategy_scope;

// Context of a function that runs on replicas. In a trace the id is not a number but a value in the graph.
typedef struct mu_strategy_replica {
    struct mu_replica replica; // first; its id is -1 while tracing
    mu_strategy *strategy;
    struct mu_eager_replicas *eager; // the eager run, if several replicas run eagerly; else NULL
    int local;                       // index among the local replicas
    // Of a call on a worker that leaves its gradients (aggregation.h), while it is traced; NULL: none
    mu_tensor *attempt, *ratio;
    struct mu_deferred_trace *deferred;
    bool sync_on_read; // reads of ON_READ variables aggregate all copies
} mu_strategy_replica;

// mu__scope_for_parts and mu__scope_beside change how the innermost scope makes variables, until mu__scope_restore: as
// parts of a sharded variable, and where `variable` is. Outside of scopes they change nothing.
typedef struct mu_scope_change {
    mu_strategy_scope scope;
    struct mu_scope *before;
} mu_scope_change;
void mu__scope_for_parts(mu_scope_change *change);
void mu__scope_beside(mu_scope_change *change, const mu_variable *variable);
void mu__scope_restore(const mu_scope_change *change);

// The scope of the strategy that an object belongs to, for state of it that is made late, by a save for example. Unlike
// mu_scope_open it also works inside a scope of another strategy, whose variables it does not touch.
mu_scope_guard mu__scope_open_apart(mu_scope_change *change, mu_strategy *strategy);
void mu__scope_close_apart(const mu_scope_change *change, mu_scope_guard *scope);

mu_strategy *mu__current_strategy(void); // NULL outside of scopes and replicas
// mu__device_in_force returns the device of mu_set_device, where no scope or replica of a strategy is; else NULL.
const mu_device *mu__device_in_force(void);

// mu__strategy_usable fails if the strategy has been lost, as one of a TPU that was initialised again.
mu_status mu__strategy_usable(const mu_strategy *strategy);

// mu__need_no_other checks that the caller is not in a scope or on a replica of another strategy.
mu_status mu__need_no_other(const mu_strategy *strategy, const char *function);

// mu__need_cross_replica checks that the caller is in the cross-replica (or default) context of this strategy;
// mu_set_device does not change that. Errors: FAILED_PRECONDITION inside a replica, or under another strategy.
mu_status mu__need_cross_replica(const mu_strategy *strategy, const char *function);

// mu__need_own_copies fails where `function` would update one of several copies of a variable: outside of the replicas
// that have them, and of updates of each copy. Errors: FAILED_PRECONDITION.
mu_status mu__need_own_copies(const mu_variable *variable, const char *function);

// mu__in_call returns whether this is a function for a worker of a coordinator, while it is traced for this strategy.
// The worker is the only replica there, so what is for all replicas (mu_run, mu_reduce) is done with it alone.
bool mu__in_call(const mu_strategy *strategy);

// The thread's context before mu__enter_replica, for mu__leave_replica.
typedef struct mu_saved_context {
    struct mu_scope *scope;
    struct mu_replica *replica;
    int64_t run;
    int component, n_components;
} mu_saved_context;
mu_saved_context mu__enter_replica(mu_strategy_replica *replica, struct mu_scope *scope, int component);
void mu__leave_replica(mu_saved_context before);

// mu__enter_cross_replica puts this thread into the cross-replica context of `scope`.
mu_saved_context mu__enter_cross_replica(mu_strategy_scope *scope);

// mu__updating returns whether this thread is inside an update function.
bool mu__updating(void);

// mu__replica returns the replica that this thread runs; NULL outside of replicas. mu__traced_replica returns the
// replica whose merge_call this thread traces; NULL elsewhere.
mu_strategy_replica *mu__replica(void);
mu_strategy_replica *mu__traced_replica(void);

// ---- Eager replicas (eager_replicas.c) ----------------------------------------------------------

// mu__eager_run calls fn for every local replica, one at a time, and returns the regrouped
// results. Owned; NULL on error.
mu_value *mu__eager_run(mu_strategy *strategy, mu_replica_fn *fn, void *arg, const mu_value *arguments);

// mu__eager_merge pauses the calling replica until all replicas have called it; then the first replica's fn runs once
// on the coordinating thread. The result belongs to the pool; NULL on error.
mu_value *mu__eager_merge(mu_merge_fn *fn, void *arg, mu_value *arguments);
// mu__eager_assign is the merge of an assignment: all replicas must make the same kind of assignment to the same
// variable. Errors: FAILED_PRECONDITION naming both replicas and their variables; then fn is not called.
mu_value *mu__eager_assign(const mu_variable *variable, mu_update update, mu_merge_fn *fn, void *arg, mu_value *value);

// mu__eager_variable returns the variable that the first replica made under this canonical name, for the later
// replicas' matching call; NULL on the first replica. Errors: FAILED_PRECONDITION if the first made none.
// mu__eager_made records a variable of the first replica for the others.
mu_variable *mu__eager_variable(const char *name);
mu_status mu__eager_made(mu_variable *variable);

// ---- Merges in a trace (merge.c) ----------------------------------------------------------------

// mu__merge_traced calls fn once, in cross-replica context, with symbolic values, which stand for those of all replicas
// and which no op accepts, in place of the trace's symbolic tensors. The result belongs to the pool; NULL on error.
mu_value *mu__merge_traced(mu_merge_fn *fn, void *arg, mu_value *arguments);
// mu__is_symbolic returns whether a value is symbolic.
bool mu__is_symbolic(const mu_value *value);
// mu__merged_own returns the running replica's part of a symbolic value. mu__merged_group does the reverse: it makes
// a value of this kind from the replica's part. Both belong to the pool. Errors: UNIMPLEMENTED for another replica's
// part.
mu_value *mu__merged_own(const mu_value *value);
mu_value *mu__merged_group(const mu_strategy *strategy, mu_value_kind kind, const mu_value *own);
// mu__refuse_traced fails with UNIMPLEMENTED: `what` works only eagerly. It returns NULL.
mu_value *mu__refuse_traced(const char *what);

// ---- Values (values.c) --------------------------------------------------------------------------

// mu__select returns the value with replica i's component in place of each per-replica value. Owned.
mu_value *mu__select(const mu_value *value, int i);
// mu__select_for does so for a replica function of this run: tensors in components count as made by it (mu__made_here),
// other tensors as made outside. Owned.
mu_value *mu__select_for(const mu_strategy *strategy, const mu_value *value, int i, int64_t run);
// mu__new_run returns a number for a run of a function on replicas; 0 for one replica, where nothing is compared.
int64_t mu__new_run(const mu_strategy *strategy);
// mu__own_component marks a value that belongs to this worker's only replica. It is not wrapped as per-replica there,
// but mu__select_for treats it as a component. Results of replica functions need no mark. Owned.
mu_value *mu__own_component(const mu_value *value);
// mu__regroup groups one value per replica into per-replica leaves, in the structure of values[0]. One replica:
// values[0] itself. Owned. Errors: INVALID_ARGUMENT if structures differ.
mu_value *mu__regroup(int n, mu_value *const *values);
// mu__regroup_as makes leaves of another kind; with `always`, also leaves that are the same on all replicas.
mu_value *mu__regroup_as(mu_value_kind kind, bool always, int n, mu_value *const *values);
// mu__select_mirrored is mu__select for values that must be equal on all replicas. Errors: INVALID_ARGUMENT for a leaf
// that may differ.
mu_value *mu__select_mirrored(const mu_value *value, int i);
bool mu__is_distributed(const mu_value *value);
// mu__map_parts rebuilds a nest with fn(part) for each part: with `deep` each leaf, otherwise everything that is not a
// list or map. The result belongs to the pool; NULL if fn returns NULL.
typedef mu_value *mu_part_fn(const mu_value *part, const void *arg);
mu_value *mu__map_parts(const mu_value *value, bool deep, mu_part_fn *fn, const void *arg);
// mu__need_value fails with INVALID_ARGUMENT for a pointer that is neither NULL nor a mu_value.
mu_status mu__need_value(const mu_value *value, const char *function);

// ---- Parts of replicas (replica_parts.c) --------------------------------------------------------

// mu__need_components fails with INVALID_ARGUMENT if a part of a nest has a number of components other than the
// strategy's number of local replicas. NULL passes.
mu_status mu__need_components(const mu_strategy *strategy, const mu_value *value, const char *function);
mu_status mu__refuse_remote(const char *function); // its error for values on the workers of a coordinator

// How errors name parts: "mu_reduce: replica 0 has …".
typedef struct mu_parts_name {
    const char *what;  // the function, or the variable
    const char *whose; // "replica", "worker", "component"
    int value;         // position in a list of values, from 1; 0: no list
} mu_parts_name;

// mu__need_numbers fails with INVALID_ARGUMENT for parts of a type that has no sum. mu__parts_advice returns what to do
// about parts that differ: `shapes` if their types are the same.
mu_status mu__need_numbers(const mu_parts_name *name, mu_dtype dtype);
const char *mu__parts_advice(mu_dtype first, mu_dtype other, const char *shapes);
// mu__same_part fails with INVALID_ARGUMENT if part i differs from the first in type or shape; mu__same_parts checks n.
mu_status mu__same_part(const mu_parts_name *name, int i, const mu_spec *first, const mu_spec *other);
mu_status mu__same_parts(const mu_parts_name *name, int n, mu_tensor *const *parts);
// mu__same_dense_shapes compares the dense shapes of n indexed slices.
mu_status mu__same_dense_shapes(const mu_parts_name *name, int n, mu_tensor *const *shapes);

// mu__need_reduce_op fails with INVALID_ARGUMENT for anything but MU_SUM and MU_MEAN.
mu_status mu__need_reduce_op(mu_reduce_op op, const char *function);

// mu__mirror makes a mirrored value of `copies` copies, which share their elements; for one copy the value itself. The
// result belongs to the pool.
mu_value *mu__mirror(mu_value *value, int copies);

// ---- What functions are traced for (like.c) -----------------------------------------------------

// mu__like_all returns the first local replica's arguments, as mu__select_for returns them. A size that differs between
// replicas is unknown; with `agree` (then a collective of all workers) also one that differs between workers. Owned.
// Errors: INVALID_ARGUMENT if replicas' tensors differ in type or rank.
mu_value *mu__like_all(mu_strategy *strategy, const mu_value *arguments, int64_t run, bool agree);

// ---- Running (strategy_run.c) -------------------------------------------------------------------

// mu__trace_for_replicas returns the graph of a function for such arguments under a strategy. It is traced on the
// calling thread, if needed. Borrowed.
mu_concrete *mu__trace_for_replicas(mu_strategy *strategy, mu_function *function, const mu_value *arguments);
// mu__run_start traces and compiles if needed, and posts the work to the replicas' threads; NULL on error.
mu_running *mu__run_start(mu_strategy *strategy, mu_function *function, mu_value *arguments);
// mu__run_wait waits for the run, frees it and returns the regrouped results, which belong to the pool; NULL on error.
mu_value *mu__run_wait(mu_running *running);
// mu__strategy_find_world sends the other workers the devices of this worker's replicas, and sets world_ids if the
// devices of all workers can run one program and no worker declines. A collective of the workers' mesh.
mu_status mu__strategy_find_world(mu_strategy *strategy, bool willing);
// mu__world_read reads what a worker has sent about its n devices into ids [n]; false if the worker declines, or if its
// world has another number of devices per worker.
bool mu__world_read(const void *block, size_t bytes, int worker, int n_workers, int n, int64_t *ids);
// mu__strategy_launches returns whether one program can run on all of the strategy's devices (launched_run.c), with
// those of other workers if there are some.
bool mu__strategy_launches(const mu_strategy *strategy);
// mu__strategy_input_seconds returns the total time, in seconds, that the replica that waited longest has waited for
// batches.
double mu__strategy_input_seconds(mu_strategy *strategy);

// ---- Variables (variables.c) --------------------------------------------------------------------

mu_variable *mu__make_distributed_variable(struct mu_scope *scope, const mu_variable_args *args);

// mu__make_distributed_accumulator makes an accumulator where the scope's strategy keeps them; NULL without an error:
// in this process. Owned.
mu_accumulator *mu__make_distributed_accumulator(struct mu_scope *scope, const mu_conditional_accumulator_args *args,
                                                 bool sparse);

// mu__update_copy calls an update function on component i with these arguments (NULL: an error is pending). The result
// belongs to the pool.
mu_value *mu__update_copy(const mu_updating *u, int i, mu_value *arguments);

// mu__update_function returns the name of the public function that updates so.
const char *mu__update_function(mu_update kind);
// mu__variable_component reads one component in any context. The result belongs to the pool.
mu_tensor *mu__variable_component(mu_variable *variable, int i);
// mu__first_copy gives each replica the copy of its worker's first one; `own` is the replica's own copy. Collective.
mu_tensor *mu__first_copy(const mu_variable *variable, mu_tensor *own);

// ---- Ways of reducing (packing.c) ---------------------------------------------------------------

// mu__cross_device_reduce reduces n tensors of one shape (mu__same_parts) with `ops` (NULL: in replica order). Errors:
// INVALID_ARGUMENT if a user's function returns nothing, or another shape or type.
mu_tensor *mu__cross_device_reduce(const mu_cross_device_ops *ops, mu_reduce_op op, int n, mu_tensor *const *parts);
// mu__cross_device_batch reduces n_tensors tensors of n replicas: parts[i * n + r] is tensor i of replica r.
mu_status mu__cross_device_batch(const mu_cross_device_ops *ops, mu_reduce_op op, int n_tensors, int n,
                                 mu_tensor *const *parts, mu_tensor **out);
// mu__cross_device_supports returns whether `ops` has its own way for this reduction and type. mu__reduce_arrays uses
// it on one array of each of n replicas, and writes the result to n_out arrays (which may be the inputs).
bool mu__cross_device_supports(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype);
// mu__cross_device_default returns whether XLA devices reduce in their own program: no other implementation was chosen,
// or NCCL, which XLA uses on GPUs.
bool mu__cross_device_default(const mu_cross_device_ops *ops);
mu_status mu__reduce_arrays(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype, int64_t count,
                            int n, void *const *parts, int n_out, void *const *out);
// mu__reduce_replica_arrays adds n arrays in order into each local replica's.
void mu__reduce_replica_arrays(const mu_replica_arrays *arrays, int n, const void *const *from);
// mu__reduce_replica_block adds n arrays in order into one.
void mu__reduce_replica_block(const mu_replica_arrays *arrays, int n, const void *const *from, void *out);
// mu__cross_device_collective makes a communicator whose reductions use `ops` on every replica, and which passes
// everything else to `inner`, a member of a group. If `ops` has no way of its own, it returns `inner`.
typedef struct mu_cross_device_collective {
    mu_collective head; // first
    mu_collective *inner;
    const mu_cross_device_ops *ops;
} mu_cross_device_collective;
mu_collective *mu__cross_device_collective(mu_cross_device_collective *own, mu_collective *inner,
                                           const mu_cross_device_ops *ops);
// mu__pack_sizes divides `total` elements into packs of equal size; the last one takes the remainder.
void mu__pack_sizes(int64_t total, int packs, int64_t *sizes);
// mu__group_by_size assigns each tensor to a pack: a new pack starts when the last one exceeds bytes_per_pack (0, or a
// size of -1: one pack). Returns the number of packs.
int mu__group_by_size(int n, const int64_t *bytes, int64_t bytes_per_pack, int *pack);

// ---- Reductions (cross_device.c) ----------------------------------------------------------------

// mu__reduce_value is mu_reduce under another name.
mu_value *mu__reduce_value(mu_strategy *strategy, const char *what, mu_reduce_op op, mu_value *value);
// mu__reduce_tensors adds `n` tensors of one shape in order, on the calling thread; MEAN divides by n.
mu_tensor *mu__reduce_tensors(mu_reduce_op op, int n, mu_tensor *const *tensors);
// mu__mean_of and mu__mean_over use true division, as mu_divide does: mu__mean_dtype is the type that a mean has.
mu_dtype mu__mean_dtype(mu_dtype dtype);
mu_tensor *mu__mean_of(mu_tensor *sum, int count);
mu_tensor *mu__mean_over(mu_tensor *sum, mu_tensor *count);
// mu__divide_by_count divides and keeps the type (integers truncate).
mu_tensor *mu__divide_by_count(mu_tensor *value, int count);

// mu__reduce_replicas reduces the parts of this worker's n replicas with those of all other workers (a collective of
// the workers), in replica order. `what` names it in errors. Errors: INVALID_ARGUMENT if types or shapes differ.
mu_tensor *mu__reduce_replicas(mu_strategy *strategy, const char *what, mu_reduce_op op, int n,
                               mu_tensor *const *parts);

// ---- Between workers (cross_worker.c, workers.c) ------------------------------------------------

// What workers exchange outside of steps, made of the collectives in the strategy's cross-worker slots: all workers
// call these in the same order, and compare `what`. With one process they do nothing.
enum { MU_WHAT_BYTES = MU_ATTR_TEXT_BYTES + 64 }; // size of a `what` that is composed
// mu__access_text writes what replicas and workers compare when they use a variable: "assign_add to 'dense/kernel'". A
// long name is cut and ends in a hash.
const char *mu__access_text(const char *access, const mu_variable *variable, char text[MU_ATTR_TEXT_BYTES]);
mu_status mu__workers_add(mu_strategy *strategy, const char *what, mu_dtype dtype, void *numbers, int64_t n);
// mu__workers_least gives every worker the minimum of their numbers.
mu_status mu__workers_least(mu_strategy *strategy, const char *what, int64_t *number);
mu_status mu__workers_agree(mu_strategy *strategy, const char *what, int64_t numbers[2]);
// mu__workers_sum sums n numbers of every replica in replica order; `parts` has n for each local replica.
mu_status mu__workers_sum(mu_strategy *strategy, const char *what, int n, const double *parts, double *sums);
// mu__workers_gather_equal returns n elements of every worker, in worker order, and the number of workers. Free the
// array with mu__free; NULL on error.
void *mu__workers_gather_equal(mu_strategy *strategy, const char *what, mu_dtype dtype, int64_t n, const void *mine,
                               int *workers);
// mu__workers_take_text returns a worker's text (the caller frees it with mu__free).
char *mu__workers_take_text(mu_strategy *strategy, const char *what, const char *own, int worker);
// mu__workers_written ends the writing of a file by the chief (mu_strategy_should_checkpoint) with its status: the
// other workers wait for it, and fail if the chief failed. NULL: no strategy.
mu_status mu__workers_written(mu_strategy *strategy, mu_status status);
// mu__header_write encodes a tensor's type and shape as numbers. mu__header_read decodes those of another worker; false
// if they are invalid.
enum { MU_HEADER_INTS = 2 + MU_MAX_RANK };
void mu__header_write(const mu_tensor *tensor, int64_t out[MU_HEADER_INTS]);
bool mu__header_read(const int64_t in[MU_HEADER_INTS], mu_spec *out);
// mu__strategy_doing records what this worker is busy with, for messages of workers that wait for it; number -1: none.
// mu__strategy_done ends it: the worker is in a step or in the program again. NULL: no strategy.
void mu__strategy_doing(const mu_strategy *strategy, const char *what, int64_t number);
void mu__strategy_done(mu_strategy *strategy);
// mu__strategy_failed sends the pending error to the other workers: they fail with it, and the message names this
// worker.
void mu__strategy_failed(const mu_strategy *strategy);

// ---- Collectives in a replica context (replica.c) -----------------------------------------------

// mu__broadcast_from_first gives every replica the first one's value. Replicas compare `name`.
mu_tensor *mu__broadcast_from_first(mu_tensor *value, const char *name);
// mu__all_gather_named is mu_all_gather under a name that replicas compare.
mu_tensor *mu__all_gather_named(mu_tensor *value, int axis, const char *name);
// mu__all_reduce_list reduces n tensors over all replicas, in buckets of one type. A bucket ends before it exceeds
// bytes_per_pack (0: no limit; MU_BUCKETS_CHOSEN: from the size of all). In a trace with a limit, a pass fills the
// buckets in the order in which the tensors become ready, and decides when they start (reductions.c). `names`
// (may be NULL) are shown to peers that wait. out[i] belongs to the pool.
mu_status mu__all_reduce_list(mu_reduction reduction, int n, mu_tensor *const *in, mu_tensor **out,
                              const char *const *names, size_t bytes_per_pack);

// ---- The log (announce.c) -----------------------------------------------------------------------

// mu__strategy_announce logs the strategy's devices and communication at level info, and returns the strategy (NULL:
// logs nothing).
mu_strategy *mu__strategy_announce(mu_strategy *strategy);

// mu__reductions_announce logs the all-reduces of gradients in a traced function at level info, once.
void mu__reductions_announce(const mu_strategy *strategy, mu_concrete *concrete);

// ---- Input (input.c, sharding.c, element_spec.c) ------------------------------------------------

// mu__split_rows splits a batch into `parts` parts (views), which the caller owns; out [parts].
mu_status mu__split_rows(const mu_value *batch, int parts, mu_value **out);
// mu__split_batch splits a batch into one part per local replica (views). Owned.
mu_value *mu__split_batch(const mu_strategy *strategy, const mu_value *batch);

// mu__distributed_iterate opens an iterator; owned by the caller. mu__distributed_rows returns the number of rows of
// its last step, over all workers.
mu_iterator *mu__distributed_iterate(mu_distributed_dataset *distributed);

// mu__distributed_source returns what this process reads of a dataset that the strategy has distributed, borrowed;
// *batches: its elements are global batches, else each is for one replica. Errors: INVALID_ARGUMENT for another
// strategy.
mu_dataset *mu__distributed_source(const mu_distributed_dataset *distributed, const mu_strategy *strategy,
                                   bool *batches);
int64_t mu__distributed_rows(const mu_iterator *iterator);

// mu__step_rows returns the number of rows of this process's part of a step.
int64_t mu__step_rows(const mu_strategy *strategy, const mu_value *value);
// mu__take_order makes this worker's pipeline read in the chief's order (its shuffle seeds).
mu_status mu__take_order(mu_strategy *strategy, mu_iterator *iterator);

// mu__rebatch_sizes returns TensorFlow's list of the batch sizes of a worker (mu__free).
int64_t *mu__rebatch_sizes(int64_t batch, int workers, int worker, int replicas);

// mu__element_text returns the structure of an element as text (mu__free). mu__element_from_text rebuilds it with
// symbolic tensors as leaves. Owned.
char *mu__element_text(const mu_value *element);
mu_value *mu__element_from_text(const char *text);

#endif
