// The numbered cases of TensorFlow's behaviour, one function each: what the files of this folder share.
//
// A case checks with EXPECT (elements of a value, all components one after the other), EXPECT_ERROR and CHECK;
// the first that does not hold is what is printed. Each case has a pool of its own.
#ifndef MU_TESTS_CASES_H
#define MU_TESTS_CASES_H

#include "distribute/distribute.h"

#include <muster.h>

typedef struct one_case {
    const char *name; // "core-016"
    void (*run)(void);
    const char *later;                         // why it is not run yet; then `run` is NULL
    void (*on_workers)(mu_strategy *strategy); // or: run by so many processes (workers.c)
    int workers, replicas;
    const char *options; // of the launcher
    int first_code;      // exit code of a run before the one that must succeed; 0: there is none
} one_case;

// Each area is a list that ends with a row without a name.
extern const one_case context_cases[], run_cases[], reduce_cases[], variable_cases[], scatter_cases[], device_cases[],
    input_cases[];
extern const one_case guide_cases[], share_cases[], worker_cases[], per_replica_cases[], uneven_axes_cases[];
extern const one_case rpc_cases[];
extern const one_case accumulator_cases[], sharded_cases[], resolver_cases[], tpu_cases[], coordinator_cases[];
extern const one_case coordinator_call_cases[], lost_task_cases[], preempted_cases[];
extern const one_case rule_context_cases[], rule_value_cases[], rule_variable_cases[], rule_device_cases[],
    rule_input_cases[], rule_training_cases[], rule_server_cases[];
extern const one_case variation_cases[], pin_core_cases[], pin_loop_cases[], pin_function_cases[], pin_server_cases[];
extern const one_case variation_accumulator_cases[], variation_part_cases[], variation_call_cases[];
extern const one_case pin_control_cases[], pin_cluster_cases[], pin_reduction_cases[], pin_tpu_cases[];
extern const one_case pin_model_cases[];

// The first failure of the case that runs.
void fail_case(int line, const char *format, ...) MU_PRINTF(2, 3);

const char *first_failure(void); // "" if there was none

// Cases of several processes: run_on_workers starts them, run_worker is what each of them does (its exit code).
void run_on_workers(const one_case *c);
int run_worker(const char *name);

// Of per_replica.c, on workers:
void per_replica_on_workers(mu_strategy *strategy);
void literal_on_workers(mu_strategy *strategy);
void literal_slices_on_workers(mu_strategy *strategy);
void integer_mean_on_workers(mu_strategy *strategy);
// Of uneven_axes.c, likewise:
void uneven_on_workers(mu_strategy *strategy);
void uneven_in_turn(mu_strategy *strategy);
// Of pins_workers.c, likewise:
void pins_of_input(mu_strategy *strategy);
void pins_of_variables(mu_strategy *strategy);
void pins_of_files(mu_strategy *strategy);
void pins_of_gathers(mu_strategy *strategy);
void pins_of_restarts(mu_strategy *strategy);
void pins_of_shards(mu_strategy *strategy);
void pins_of_first_replicas(mu_strategy *strategy);
// Of preempted.c, likewise:
void ps_158(mu_strategy *strategy);
void ps_161(mu_strategy *strategy);
void ps_163(mu_strategy *strategy);

void expect_values(int line, const char *text, const mu_value *value, int n, const double *wanted);
void expect_error(int line, mu_status wanted);

#define CHECK(condition)                                     \
    do {                                                     \
        if (!(condition))                                    \
            fail_case(__LINE__, "not true: %s", #condition); \
    } while (0)
#define EXPECT(value, ...) \
    expect_values(__LINE__, #value, value, (int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})
#define EXPECT_ERROR(code) expect_error(__LINE__, code)

// ---- Short forms --------------------------------------------------------------------------------

mu_strategy *mirrored(int replicas);
// Parameter servers and workers in this process: threads, or with served_workers servers that are reached by sockets.
extern bool served_workers;
mu_strategy *on_workers(int workers, int servers, mu_partitioner *partitioner);
mu_shard_plan shard_plan(mu_strategy *strategy, mu_dataset *dataset);
mu_tensor *scalar(double value);                // float32
mu_tensor *vector(int n, const double *values); // float32
#define VECTOR(...) vector((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})
mu_tensor *indices_of(int n, const double *values); // int32
#define INDICES(...) indices_of((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})
mu_value *per_replica(int n, const double *values); // float32 scalars
#define PER_REPLICA(...) per_replica((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})
mu_value *per_replica_of(int n, mu_tensor *const *tensors);

mu_tensor *id(void); // this replica's id, float32
mu_variable *variable(mu_strategy *strategy, mu_tensor *initial, mu_variable_synchronization synchronization,
                      mu_variable_aggregation aggregation);
mu_variable *on_write(mu_strategy *strategy, double initial, mu_variable_aggregation aggregation);
mu_variable *on_read(mu_strategy *strategy, double initial, mu_variable_aggregation aggregation);
mu_value *components(mu_variable *variable);
mu_value *read_of(mu_variable *variable);

typedef mu_value *replica_fn(mu_value *arguments, void *arg);
mu_value *eager(mu_strategy *strategy, replica_fn *fn, void *arg);
mu_value *traced(mu_strategy *strategy, replica_fn *fn, void *arg);

// What a replica function assigns, for the tables of variables.
typedef mu_status assign_fn(mu_variable *variable, mu_tensor *value);
typedef struct assignment {
    mu_variable *variable;
    assign_fn *assign;
    mu_tensor *value; // the same on all replicas; NULL: scale * (id + offset)
    double scale, offset;
} assignment;
mu_value *assign_on_replica(mu_value *arguments, void *arg); // returns what the replica reads afterwards
mu_value *read_on_replica(mu_value *arguments, void *arg);   // arg: a variable

#endif
