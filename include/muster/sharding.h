// Sharded variables: one variable whose rows are divided among several smaller ones, and what is done with its rows.
//
// TensorFlow's partitioners, ShardedVariable and embedding lookups. A sharded variable is a mu_variable: it is read,
// assigned and scattered into with the functions of graph.h and distribute.h. Its parts are variables of their own,
// named "NAME/part_0", "NAME/part_1", …; mu_variables(v, MU_END) lists the parts, for gradients, optimizers and
// checkpoints. A checkpoint holds one tensor "NAME", whatever the number of parts, so it also fits another number.
// Optimizers see a variable for each part, as in TensorFlow: .clipnorm limits the norm of each part's gradient;
// .global_clipnorm and .clipvalue are as without parts.
//
// Errors: INVALID_ARGUMENT for a number that is not positive where one is needed; for a variable on servers also those
// of a call to one.
#ifndef MUSTER_SHARDING_H
#define MUSTER_SHARDING_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Partitioners -------------------------------------------------------------------------------

// A partitioner chooses the number of parts along each axis from a variable's shape and type.
typedef struct mu_partitioner mu_partitioner;

typedef struct mu_fixed_shards_partitioner_args {
    size_t size;
    const char *given;
    int64_t num_shards; // 1 or more; an axis with fewer rows gets one part for each row
    mu_keyword_only only_;
} mu_fixed_shards_partitioner_args;

// mu_fixed_shards_partitioner makes the same number of parts of every variable. Errors: INVALID_ARGUMENT for num_shards
// below 1.
#define mu_fixed_shards_partitioner(...) \
    mu_fixed_shards_partitioner_with(MU_ARGS(mu_fixed_shards_partitioner_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_partitioner *mu_fixed_shards_partitioner_with(const mu_fixed_shards_partitioner_args *args);

typedef struct mu_min_size_partitioner_args {
    size_t size;
    const char *given;
    int64_t min_shard_bytes; // default 262144
    int64_t max_shards;      // default 1: no partitioning
    mu_keyword_only only_;
    int64_t bytes_per_string; // counted for an element of TensorFlow's type string (number 7); default 16
} mu_min_size_partitioner_args;

// mu_min_size_partitioner makes as many parts as there are times min_shard_bytes in the variable, rounded up (so parts
// may be smaller), at most max_shards. All three numbers must be positive: INVALID_ARGUMENT.
#define mu_min_size_partitioner(...) \
    mu_min_size_partitioner_with(MU_ARGS(mu_min_size_partitioner_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_partitioner *mu_min_size_partitioner_with(const mu_min_size_partitioner_args *args);

typedef struct mu_max_size_partitioner_args {
    size_t size;
    const char *given;
    int64_t max_shard_bytes; // 1 or more
    int64_t max_shards;      // default: no limit
    mu_keyword_only only_;
    int64_t bytes_per_string; // as above
} mu_max_size_partitioner_args;

// mu_max_size_partitioner makes parts of at most max_shard_bytes, of one row at least, at most max_shards of them.
#define mu_max_size_partitioner(...) \
    mu_max_size_partitioner_with(MU_ARGS(mu_max_size_partitioner_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_partitioner *mu_max_size_partitioner_with(const mu_max_size_partitioner_args *args);

// mu_partitioner_new makes a partitioner from a function of the program. It writes one count per axis of the shape and
// returns how many it wrote; 0 or less means that it has no answer, which is an error where the partitioner is used. To
// fail with an error of its own, it calls mu_fail.
MU_API mu_partitioner *
mu_partitioner_new(int (*fn)(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg), void *arg);

// mu_partitioner_call returns the number of counts that the partitioner writes, the shape's rank. Only `axis` may get
// more than one part; a negative one counts from the end. A function of the program does not get the axis. Errors (-1):
// INVALID_ARGUMENT for an axis that the shape does not have, and for a shape with unknown dimensions.
MU_API int mu_partitioner_call(mu_partitioner *partitioner, const mu_shape *shape, mu_dtype dtype, int axis,
                               int64_t counts[MU_MAX_RANK]);

// ---- Making sharded variables -------------------------------------------------------------------

// The part of a variable whose initial value is requested.
typedef struct mu_partition_info {
    mu_shape full_shape;         // of the whole variable
    mu_shape shape;              // of the part
    int64_t offset[MU_MAX_RANK]; // where the part begins
    mu_dtype dtype;
} mu_partition_info;

typedef struct mu_sharded_variable_args {
    size_t size;
    const char *given;
    mu_tensor *initial_value; // the whole value; or give initial_value_fn
    const char *name;         // default "Variable"
    mu_keyword_only only_;
    mu_partitioner *partitioner; // default: a plain variable
    // Returns the value of one part, or the whole value, of which the part is then taken. Called once per part if shape
    // and dtype are given, otherwise once with NULL for the whole value.
    mu_tensor *(*initial_value_fn)(const mu_partition_info *info, void *arg);
    void *arg;
    const mu_shape *shape; // of the whole variable; for initial_value_fn
    mu_dtype dtype;
    bool not_trainable; // these four as in mu_variable_new, for each part
    mu_variable_synchronization synchronization;
    mu_variable_aggregation aggregation;
    bool trainable;
} mu_sharded_variable_args;

// mu_sharded_variable_new divides a variable along axis 0 into the number of parts that the partitioner chooses. The
// first parts have one row more where the rows do not divide evenly. A scalar, or one part, is a plain variable.
// Errors: as mu_variable_new; INVALID_ARGUMENT without an initial value, and if the partitioner returns no counts, none
// for axis 0, or more than one for another axis.
#define mu_sharded_variable_new(...) \
    mu_sharded_variable_new_with(MU_ARGS(mu_sharded_variable_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_variable *mu_sharded_variable_new_with(const mu_sharded_variable_args *args);

// mu_sharded_variable_of makes a sharded variable of existing variables, whose rows follow each other; any numbers of
// rows. It retains them. name: default "ShardedVariable". Errors: INVALID_ARGUMENT for no variables, for anything else
// than plain variables, for variables that differ in type or in a dimension after the first, or that are parts already.
MU_API mu_variable *mu_sharded_variable_of(int n, mu_variable *const *variables, const char *name);

// mu_variable_shard_count returns the number of parts of a sharded variable, 0 for any other variable.
// mu_variable_shard returns one part, and mu_variable_shard_offset its first row. Errors (NULL, -1): OUT_OF_RANGE.
MU_API int mu_variable_shard_count(const mu_variable *variable);
MU_API mu_variable *mu_variable_shard(mu_variable *variable, int i);
MU_API int64_t mu_variable_shard_offset(const mu_variable *variable, int i);

// ---- Rows of variables --------------------------------------------------------------------------

// These functions accept any variable. Of a sharded variable they read only the parts concerned. An index that is not a
// row is INVALID_ARGUMENT.

// mu_variable_strided_slice is mu_strided_slice of a variable's value. Errors: OUT_OF_RANGE for an index of axis 0
// (shrink_mask) that the variable does not have; INVALID_ARGUMENT for a stride of 0.
MU_API mu_tensor *mu_variable_strided_slice(mu_variable *variable, const int64_t *begin, const int64_t *end,
                                            const int64_t *strides, unsigned begin_mask, unsigned end_mask,
                                            unsigned shrink_mask);

// mu_variable_boolean_mask returns the elements, or rows, for which the mask (bool, the shape of the first axes) is
// true.
MU_API mu_tensor *mu_variable_boolean_mask(mu_variable *variable, mu_tensor *mask);

// mu_variable_gather returns the rows with these indices (int32 or int64), in their order: indices.shape + row.shape.
// Errors: INVALID_ARGUMENT for an index that is not a row.
MU_API mu_tensor *mu_variable_gather(mu_variable *variable, mu_tensor *indices);

// mu_variable_sparse_read is TensorFlow's sparse_read, for a vector of indices: rows in the order of the parts, and of
// the indices within a part. That is mu_variable_gather if the indices are sorted by part.
MU_API mu_tensor *mu_variable_sparse_read(mu_variable *variable, mu_tensor *indices);

// ---- Embedding lookups --------------------------------------------------------------------------

typedef struct mu_nn_embedding_lookup_args {
    size_t size;
    const char *given;
    mu_variable *params; // the table, sharded or not
    mu_tensor *ids;      // int32 or int64, any shape
    mu_keyword_only only_;
    const char *partition_strategy; // "div" (default): parts hold ranges of ids; "mod": part i holds i, i + parts, …
    double max_norm;                // rows with a larger L2 norm are scaled down to it; default: no limit
} mu_nn_embedding_lookup_args;

// mu_nn_embedding_lookup returns the rows of the table with these ids: ids.shape + row.shape. Errors: INVALID_ARGUMENT
// for an id that the table does not have.
#define mu_nn_embedding_lookup(...) \
    mu_nn_embedding_lookup_with(MU_ARGS(mu_nn_embedding_lookup_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_embedding_lookup_with(const mu_nn_embedding_lookup_args *args);

typedef struct mu_nn_embedding_lookup_sparse_args {
    size_t size;
    const char *given;
    mu_variable *params; // the table, sharded or not
    mu_tensor *ids;      // [n], int32 or int64
    mu_tensor *rows;     // [n], int32 or int64, ascending: the row of the result that each id belongs to
    mu_keyword_only only_;
    mu_tensor *weights;             // [n], of the table's type; default: 1 each
    int64_t n_rows;                 // of the result; default: the last row + 1
    const char *combiner;           // "mean" (default), "sum" or "sqrtn" (sum / root of the sum of squared weights)
    const char *partition_strategy; // as above
    double max_norm;                // as above, before combining
    // Of the safe lookup only: the id whose row is used for a result row without ids; default: zeros.
    int64_t default_id;
    bool has_default_id; // set it to use default_id
} mu_nn_embedding_lookup_sparse_args;

// mu_nn_embedding_lookup_sparse combines the table's rows of several ids into one row each: [n_rows] + row.shape.
#define mu_nn_embedding_lookup_sparse(...) \
    mu_nn_embedding_lookup_sparse_with(MU_ARGS(mu_nn_embedding_lookup_sparse_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_embedding_lookup_sparse_with(const mu_nn_embedding_lookup_sparse_args *args);

// mu_nn_safe_embedding_lookup_sparse also accepts ids that are negative, and weights that are not positive unless the
// combiner is "sum": it leaves them out. n_rows is required.
#define mu_nn_safe_embedding_lookup_sparse(...) \
    mu_nn_safe_embedding_lookup_sparse_with(MU_ARGS(mu_nn_embedding_lookup_sparse_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_safe_embedding_lookup_sparse_with(const mu_nn_embedding_lookup_sparse_args *args);

#ifdef __cplusplus
}
#endif
#endif
