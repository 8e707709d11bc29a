// Datasets: where samples come from and what happens to them on the way to a step.
//
// A dataset is a description (a source and stages behind it); nothing is read until something iterates it,
// and it may be iterated any number of times. Elements are values: a tensor, or a list or map of them.
// Orders are fixed by seeds: the same seed gives the same order on every machine. What callbacks compute
// with ops is computed at once, element by element.
#ifndef MUSTER_DATA_H
#define MUSTER_DATA_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_dataset mu_dataset;
typedef struct mu_iterator mu_iterator;

// Cardinalities that are no count; TensorFlow's numbers.
#define MU_INFINITE ((int64_t)-1)
#define MU_UNKNOWN_CARDINALITY ((int64_t)-2)

// ---- Sources ------------------------------------------------------------------------------------

// mu_dataset_from_tensors makes a dataset of one element. Keeps: value.
MU_API mu_dataset *mu_dataset_from_tensors(mu_value *value);

// mu_dataset_from_tensor_slices cuts every tensor along axis 0; all have the same number of rows. Keeps: value.
MU_API mu_dataset *mu_dataset_from_tensor_slices(mu_value *value);

// mu_dataset_range counts from start to before stop, as int64 scalars; step may be negative, not 0.
MU_API mu_dataset *mu_dataset_range(int64_t start, int64_t stop, int64_t step);

typedef struct mu_dataset_generator_args {
    size_t size;
    mu_value *(*next)(void *state);  // the next element; NULL at the end (or after mu_fail)
    void *arg;                       // must live as long as the dataset
    mu_keyword_only only_;
    void *(*open)(void *arg);        // makes the state of one iteration; default: the state is arg
    void (*close)(void *state);
    mu_value *like;                  // an example element: tells dtypes and shapes before the first one is made
    const char *name;                // for messages; default "generator"
} mu_dataset_generator_args;

// mu_dataset_generator asks C code for element after element.
// Threads: called by whichever thread iterates, one at a time.
#define mu_dataset_generator(...) \
    mu_dataset_generator_with(MU_ARGS(mu_dataset_generator_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_generator_with(const mu_dataset_generator_args *args);

// ---- Files --------------------------------------------------------------------------------------

// mu_dataset_fashion_mnist reads "train" (60,000) or "test" (10,000): elements are lists of an image, float32
// [28, 28, 1] in 0…1, and a label, int32. The files are those of Debian's package dataset-fashion-mnist,
// in the folder fashion-mnist of MUSTER_DATA_DIR.
// Errors: NOT_FOUND naming the file; DATA_LOSS (also later, when the damaged part is reached).
MU_API mu_dataset *mu_dataset_fashion_mnist(const char *split);

// mu_dataset_idx reads an IDX file, plain or gzip: elements are its slices along axis 0, in the type of the file.
MU_API mu_dataset *mu_dataset_idx(const char *path);

// mu_dataset_npy reads a NumPy file: elements are its slices along axis 0. mu_dataset_npz reads an archive of
// them: elements are maps from the arrays' names to their slices; all arrays have the same number of rows.
// Errors: DATA_LOSS for a damaged file; UNIMPLEMENTED for Fortran order and element types that Muster lacks.
MU_API mu_dataset *mu_dataset_npy(const char *path);
MU_API mu_dataset *mu_dataset_npz(const char *path);

// mu_dataset_paths makes a dataset of n file names, uint8 vectors, for the readers below: so that files can be
// shuffled, sharded and interleaved. mu_dataset_path_of returns the name in an element (lent by the pool).
MU_API mu_dataset *mu_dataset_paths(int n, const char *const *paths);
MU_API const char *mu_dataset_path_of(const mu_value *element);

// mu_dataset_tfrecord reads the records of a TFRecord file, plain or gzip, as uint8 vectors; checksums are
// verified. mu_dataset_tfrecords reads those of every file of a dataset of names.
MU_API mu_dataset *mu_dataset_tfrecord(const char *path);
MU_API mu_dataset *mu_dataset_tfrecords(mu_dataset *paths);

typedef struct mu_dataset_csv_args {
    size_t size;
    const char *path;          // plain or gzip; NULL with .paths
    mu_keyword_only only_;
    mu_dataset *paths;         // a dataset of names instead of one
    int columns;               // numbers per line; at least 1
    const mu_dtype *dtypes;    // [columns]: elements are lists of scalars; default: float32 vectors [columns]
    int skip_lines;            // header lines of every file
    char delimiter;            // default ','
} mu_dataset_csv_args;

// mu_dataset_csv reads lines of numbers; fields may stand in double quotes, empty lines are passed over.
// Errors: DATA_LOSS naming file, line and column.
#define mu_dataset_csv(...) \
    mu_dataset_csv_with(MU_ARGS(mu_dataset_csv_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_csv_with(const mu_dataset_csv_args *args);

// ---- Stages -------------------------------------------------------------------------------------

typedef struct mu_dataset_shuffle_args {
    size_t size;
    mu_dataset *dataset;
    int64_t buffer_size;              // elements among which the next one is drawn
    mu_keyword_only only_;
    uint64_t seed;                    // default: drawn from the program's seed (mu_set_seed)
    bool has_seed;                    // seed 0 is a seed only with this set
    bool no_reshuffle_each_iteration; // the same order in every iteration
} mu_dataset_shuffle_args;

// mu_dataset_shuffle draws each element uniformly from a buffer that slides over the input.
#define mu_dataset_shuffle(...) \
    mu_dataset_shuffle_with(MU_ARGS(mu_dataset_shuffle_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_shuffle_with(const mu_dataset_shuffle_args *args);

typedef struct mu_dataset_batch_args {
    size_t size;
    mu_dataset *dataset;
    int64_t batch_size;
    mu_keyword_only only_;
    bool drop_remainder;  // leave out a last batch that is not full
} mu_dataset_batch_args;

// mu_dataset_batch stacks elements along a new axis 0. Errors: INVALID_ARGUMENT if shapes differ.
#define mu_dataset_batch(...) \
    mu_dataset_batch_with(MU_ARGS(mu_dataset_batch_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_batch_with(const mu_dataset_batch_args *args);

// mu_dataset_padded_batch is mu_dataset_batch for elements of unequal shapes: each is filled up with zeros
// (at the end of every axis) to the largest of its batch.
#define mu_dataset_padded_batch(...) \
    mu_dataset_padded_batch_with(MU_ARGS(mu_dataset_batch_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_padded_batch_with(const mu_dataset_batch_args *args);

// mu_dataset_unbatch cuts every element into its rows.
MU_API mu_dataset *mu_dataset_unbatch(mu_dataset *dataset);

// mu_dataset_rebatch cuts batches anew, to n_sizes sizes used in turn, across the input's borders; the last
// one may be short. A size of 0 gives an empty batch.
MU_API mu_dataset *mu_dataset_rebatch(mu_dataset *dataset, int n_sizes, const int64_t *sizes, bool drop_remainder);

// mu_dataset_repeat iterates `count` times; MU_INFINITE: for ever.
MU_API mu_dataset *mu_dataset_repeat(mu_dataset *dataset, int64_t count);

// mu_dataset_take keeps the first `count` elements (-1: all); mu_dataset_skip leaves them out (-1: all).
MU_API mu_dataset *mu_dataset_take(mu_dataset *dataset, int64_t count);
MU_API mu_dataset *mu_dataset_skip(mu_dataset *dataset, int64_t count);

// mu_dataset_shard keeps the elements whose number is `index` modulo n_shards. With MU_SHARD_HINT for both it
// marks the place where the auto-shard policy HINT is to shard.
#define MU_SHARD_HINT ((int64_t)-1)
MU_API mu_dataset *mu_dataset_shard(mu_dataset *dataset, int64_t n_shards, int64_t index);

// mu_dataset_prefetch computes up to `count` elements ahead, on a thread of its own (0: two).
MU_API mu_dataset *mu_dataset_prefetch(mu_dataset *dataset, int64_t count);

// mu_dataset_zip makes lists of one element of each dataset, until the shortest ends; last argument MU_END.
MU_API mu_dataset *mu_dataset_zip(mu_dataset *first, ...);
MU_API mu_dataset *mu_dataset_zip_of(int n, mu_dataset *const *datasets);

// mu_dataset_concatenate gives the elements of one, then those of the other.
MU_API mu_dataset *mu_dataset_concatenate(mu_dataset *first, mu_dataset *second);

// mu_dataset_enumerate makes lists of a number (int64, from start) and the element.
MU_API mu_dataset *mu_dataset_enumerate(mu_dataset *dataset, int64_t start);

typedef struct mu_dataset_map_args {
    size_t size;
    mu_dataset *dataset;
    mu_value *(*fn)(mu_value *element, void *arg);  // NULL only after mu_fail
    void *arg;                                      // must live as long as the dataset
    mu_keyword_only only_;
    int parallel_calls;                             // threads that call fn at once; default 1: the iterating one
    const char *name;                               // for messages; default "map"
    mu_function *function;                          // instead of fn: traced, compiled, run without calling back
} mu_dataset_map_args;

// mu_dataset_map replaces every element by fn(element, arg). The order stays, also with parallel calls.
// Threads: with parallel_calls > 1, fn is called by several threads at once; a traced function's callback is not.
// Errors: INVALID_ARGUMENT for a traced function that writes variables or needs other replicas.
#define mu_dataset_map(...) \
    mu_dataset_map_with(MU_ARGS(mu_dataset_map_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_map_with(const mu_dataset_map_args *args);

// mu_dataset_filter keeps the elements for which keep returns true.
MU_API mu_dataset *mu_dataset_filter(mu_dataset *dataset, bool (*keep)(mu_value *element, void *arg), void *arg);

// mu_dataset_flat_map makes a dataset of every element and gives the elements of each in turn.
MU_API mu_dataset *mu_dataset_flat_map(mu_dataset *dataset, mu_dataset *(*fn)(mu_value *element, void *arg), void *arg);

typedef struct mu_dataset_interleave_args {
    size_t size;
    mu_dataset *dataset;
    mu_dataset *(*fn)(mu_value *element, void *arg);
    void *arg;
    mu_keyword_only only_;
    int64_t cycle_length;  // datasets open at once; default 4
    int64_t block_length;  // elements taken from one before the next has its turn; default 1
} mu_dataset_interleave_args;

// mu_dataset_interleave is mu_dataset_flat_map with several of the datasets taken in turn.
#define mu_dataset_interleave(...) \
    mu_dataset_interleave_with(MU_ARGS(mu_dataset_interleave_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_interleave_with(const mu_dataset_interleave_args *args);

typedef struct mu_dataset_window_args {
    size_t size;
    mu_dataset *dataset;
    int64_t window_size;
    mu_keyword_only only_;
    int64_t shift;        // elements between the starts of two windows; default: window_size
    int64_t stride;       // elements between two of a window; default 1
    bool drop_remainder;
} mu_dataset_window_args;

// mu_dataset_window makes windows that may overlap; each is a stack along a new axis 0, as a batch is.
#define mu_dataset_window(...) \
    mu_dataset_window_with(MU_ARGS(mu_dataset_window_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_window_with(const mu_dataset_window_args *args);

typedef struct mu_dataset_cache_args {
    size_t size;
    mu_dataset *dataset;
    const char *file;         // default: in memory
    mu_keyword_only only_;
} mu_dataset_cache_args;

// mu_dataset_cache keeps the elements of the first full iteration, in memory or in a file; later iterations
// (with a file also later programs) read them there. A file belongs to one pipeline: remove it when that changes.
#define mu_dataset_cache(...) \
    mu_dataset_cache_with(MU_ARGS(mu_dataset_cache_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_cache_with(const mu_dataset_cache_args *args);

// How a distributed dataset is divided between workers; TensorFlow's numbers.
typedef enum mu_auto_shard_policy {
    MU_AUTO_SHARD_OFF = -1,
    MU_AUTO_SHARD_AUTO = 0,   // by files where the pipeline reads files, else by elements
    MU_AUTO_SHARD_FILE = 1,
    MU_AUTO_SHARD_DATA = 2,
    MU_AUTO_SHARD_HINT = 3
} mu_auto_shard_policy;

typedef struct mu_dataset_options_args {
    size_t size;
    mu_dataset *dataset;
    mu_keyword_only only_;
    mu_auto_shard_policy auto_shard_policy;  // default AUTO
} mu_dataset_options_args;

// mu_dataset_options gives a pipeline its options; those nearest to the end count.
#define mu_dataset_options(...) \
    mu_dataset_options_with(MU_ARGS(mu_dataset_options_args, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_options_with(const mu_dataset_options_args *args);

// ---- Queries ------------------------------------------------------------------------------------

// mu_dataset_cardinality returns the number of elements, MU_INFINITE or MU_UNKNOWN_CARDINALITY.
MU_API int64_t mu_dataset_cardinality(const mu_dataset *dataset);

// mu_dataset_element_spec tells the structure of the elements: symbolic tensors that have type and shape, MU_UNKNOWN
// where a dimension may change. Errors: FAILED_PRECONDITION where only an element would tell: behind a map by a
// callback (one by a traced function tells), and a generator without `like`.
MU_API mu_value *mu_dataset_element_spec(const mu_dataset *dataset);

// ---- Iteration ----------------------------------------------------------------------------------

// mu_iterate starts an iteration of a dataset or of a distributed dataset.
// Threads: an iterator is used by one thread at a time.
MU_API mu_iterator *mu_iterate(void *dataset);

// mu_next returns the next element, lent until the next call; NULL at the end, without a record.
// Errors: INVALID_ARGUMENT for a distributed dataset's inside a function that runs on replicas: it is for all of them.
// Blocks: until the element is there.
MU_API mu_value *mu_next(mu_iterator *iterator);

// mu_iterator_state returns the position as one line of JSON, lent until the next call on this iterator;
// mu_iterator_restore brings an unused iterator of the same pipeline to it: what follows is what would
// have followed. Callbacks that are not pure make their elements again.
MU_API const char *mu_iterator_state(mu_iterator *iterator);
MU_API mu_status mu_iterator_restore(mu_iterator *iterator, const char *state);

// MU_EACH(batch, dataset) { … } runs the block for every element, `batch` (mu_value *). Every iteration has its
// own pool; break, continue and return work (what the broken-off iteration made lives on in the pool outside).
// The state of the loop travels as a mu_value so that one for statement declares both.
#define MU_EACH(batch, dataset)                                                                       \
    for (mu_value *mu_each_of_##batch = mu_each_begin(dataset), *batch = mu_each_next(mu_each_of_##batch); \
         (batch) != NULL; (batch) = mu_each_next(mu_each_of_##batch))
MU_API mu_value *mu_each_begin(void *dataset);
MU_API mu_value *mu_each_next(mu_value *loop);

#ifdef __cplusplus
}
#endif
#endif
