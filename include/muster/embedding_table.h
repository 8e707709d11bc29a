// Embedding tables for open vocabularies: rows by 64-bit keys, which exist once they are used.
//
// A table is not a variable: it has no size, and its rows are trained by an optimizer of its own, which touches the
// rows of a batch only. Under ParameterServerStrategy with servers in other processes each row is on one server, by the
// hash of its key; with other strategies of one process the table is in this process, and all replicas use it.
//
//   mu_embedding_table *users = mu_embedding_table_new(16, .optimizer = "adagrad", .learning_rate = 0.05);
//   …                                                        /* in a step, which may be traced: */
//   mu_tensor *rows = mu_embedding_table_lookup(users, keys);
//   mu_tensor *loss = …;
//   mu_value *gradients = mu_gradients(tape, loss, mu_list(rows, kernel, MU_END));
//   mu_embedding_table_apply_gradients(users, keys, mu_at(gradients, 0));
//
// All functions work outside of functions and in traced functions, and from several threads at once: rows are changed
// one by one, each under a lock. Errors: UNIMPLEMENTED in a function that XLA devices run; for a table on servers
// UNAVAILABLE if one is lost, CANCELLED if the thread's cancellation is cancelled or a signal asks to stop, and
// DATA_LOSS for an answer that cannot be read.
#ifndef MUSTER_EMBEDDING_TABLE_H
#define MUSTER_EMBEDDING_TABLE_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_embedding_table mu_embedding_table; // rows by key, with the state of their optimizer

typedef struct mu_embedding_table_args {
    size_t size;
    const char *given;
    int64_t dimension; // numbers in a row, required: 1 to 65536
    mu_keyword_only only_;
    // How a row is trained: "sgd"; "adagrad" (default); "rowwise_adagrad", with one accumulator per row, of the mean
    // square of its gradients; "adam", which counts the updates of each row. The formulas are those of mu_sgd,
    // mu_adagrad and mu_adam for a dense gradient of the row, and nothing happens to rows without a gradient.
    const char *optimizer;
    double learning_rate;             // default 0.001; "sgd": 0.01
    double initial_accumulator_value; // of both kinds of Adagrad; default 0.1
    double beta_1, beta_2;            // of Adam; default 0.9, 0.999
    double epsilon;                   // default 1e-7
    // First values of a row: "uniform" (default) from -scale to scale, "normal" with the standard deviation scale, or
    // "zeros". They depend on key and seed alone: not on the order of use, nor on the number of servers.
    const char *initializer;
    double scale; // default 0.05
    int64_t seed;
    mu_dtype dtype; // of rows in memory: MU_F32 (default) or MU_BF16, rounded up or down at random
    // Limits; default: none. Beyond max_rows the row that was not used for the longest time goes, for each new one. A
    // row that no lookup and no update has used during the last max_age updates of the table goes too. If it is used
    // again, it is a new row. What a call uses was used later than everything else; the order among the keys of one
    // call is not defined. Each of n servers takes max_rows / n rows, and counts the updates that concern it. With
    // more than 1024 rows to a server the oldest is that of a part of the table.
    int64_t max_rows, max_age;
    int64_t max_bytes; // of a server, or of this process; more rows fail with RESOURCE_EXHAUSTED
    const char *name;  // in checkpoints and messages; default "embedding_table". One per strategy
} mu_embedding_table_args;

// mu_embedding_table_new makes an empty table; inside the scope of a ParameterServerStrategy on its servers, which
// delete it, with its copies, once the table and every function that uses it are released. Errors:
// INVALID_ARGUMENT; ALREADY_EXISTS if the servers have a table of this name; UNIMPLEMENTED under a strategy of several
// workers that are not servers' workers.
#define mu_embedding_table_new(...) \
    mu_embedding_table_new_with(MU_ARGS(mu_embedding_table_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_embedding_table *mu_embedding_table_new_with(const mu_embedding_table_args *args);

typedef struct mu_embedding_table_lookup_args {
    size_t size;
    const char *given;
    mu_embedding_table *table;
    mu_tensor *keys; // int64, or int32; any shape
    mu_keyword_only only_;
    bool read_only; // do not make rows: a key without one has its first values
} mu_embedding_table_lookup_args;

// mu_embedding_table_lookup returns the rows of keys as float32, keys.shape + [dimension]. Keys that have no row get
// one. Each distinct key is read, and sent, once. The gradient ends at the result. Errors: RESOURCE_EXHAUSTED naming
// the table; those of a call to a server.
#define mu_embedding_table_lookup(...) \
    mu_embedding_table_lookup_with(MU_ARGS(mu_embedding_table_lookup_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_embedding_table_lookup_with(const mu_embedding_table_lookup_args *args);

typedef struct mu_embedding_table_apply_gradients_args {
    size_t size;
    const char *given;
    mu_embedding_table *table;
    mu_tensor *keys;      // as in the lookup
    mu_tensor *gradients; // float32, keys.shape + [dimension]
    mu_keyword_only only_;
    mu_tensor *learning_rate; // a scalar, such as that of a schedule; default: the table's
} mu_embedding_table_apply_gradients_args;

// mu_embedding_table_apply_gradients adds up the gradients of each key and updates its row with the table's optimizer.
// Errors: RESOURCE_EXHAUSTED as in a lookup; INVALID_ARGUMENT for gradients of another shape.
#define mu_embedding_table_apply_gradients(...) \
    mu_embedding_table_apply_gradients_with(MU_ARGS(mu_embedding_table_apply_gradients_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_embedding_table_apply_gradients_with(const mu_embedding_table_apply_gradients_args *args);

// mu_embedding_table_row_count returns how many rows there are now, on all servers; mu_embedding_table_bytes how much
// memory rows, optimizer state and index take. -1 on error.
MU_API int64_t mu_embedding_table_row_count(mu_embedding_table *table);
MU_API int64_t mu_embedding_table_bytes(mu_embedding_table *table);

// mu_embedding_table_name returns the name, which belongs to the table, mu_embedding_table_dimension the numbers in a
// row; NULL: NULL and 0.
MU_API const char *mu_embedding_table_name(const mu_embedding_table *table);
MU_API int64_t mu_embedding_table_dimension(const mu_embedding_table *table);

#ifdef __cplusplus
}
#endif
#endif
