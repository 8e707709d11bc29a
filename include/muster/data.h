// Datasets: input pipelines, from a source of samples to the batches of a step.
//
// A dataset is a description: a source and the stages after it. Nothing is read until it is iterated, and it can be
// iterated any number of times. Elements are values: a tensor, or a list or map of values. Order is determined by
// seeds: the same seed gives the same order on every machine. Callbacks run eagerly, once per element. A stage retains
// the datasets that it reads from.
//
// Errors: a stage is refused with INVALID_ARGUMENT, for a number or a name that it does not take. What elements and
// files have wrong shows where they are read, by mu_next and all that iterates: INVALID_ARGUMENT for elements that do
// not fit together or have strings where numbers are needed, and the errors of callbacks and files.
#ifndef MUSTER_DATA_H
#define MUSTER_DATA_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_dataset mu_dataset;   // a source of samples and the stages after it
typedef struct mu_iterator mu_iterator; // a position in one pass over a dataset

// Special results of mu_dataset_cardinality; TensorFlow's numbers.
#define MU_INFINITE            ((int64_t)-1)
#define MU_UNKNOWN_CARDINALITY ((int64_t)-2)

// ---- Sources ------------------------------------------------------------------------------------

// mu_dataset_from_tensors makes a dataset of one element. Retains: value.
MU_API mu_dataset *mu_dataset_from_tensors(mu_value *value);

// mu_dataset_from_tensor_slices slices every tensor of a value along axis 0, where all must have the same size.
// Retains: value.
MU_API mu_dataset *mu_dataset_from_tensor_slices(mu_value *value);

// mu_dataset_range yields start, start + step, … up to but not including stop, as int64 scalars. step may be negative,
// but 0 is an error.
MU_API mu_dataset *mu_dataset_range(int64_t start, int64_t stop, int64_t step);

typedef struct mu_dataset_generator_args {
    size_t size;
    const char *given;
    mu_value *(*next)(void *state); // returns the next element; NULL at the end or after mu_fail
    void *arg;                      // must live as long as the dataset
    mu_keyword_only only_;
    void *(*open)(void *arg);   // makes the state of one iteration; default: the state is arg
    void (*close)(void *state); // frees the state; default: nothing
    mu_value *like;             // an example element, from which dtypes and shapes are known before the first call
    const char *name;           // for messages; default "generator"
    // how many elements an iteration gives, or MU_INFINITE: for the progress bar, and for stages that need to know it;
    // default: not known, until the first iteration of mu_fit has ended
    int64_t cardinality;
} mu_dataset_generator_args;

// mu_dataset_generator gets each element from a C callback. Threads: the callback runs on the thread that iterates, one
// call at a time. Errors, while it iterates: INVALID_ARGUMENT if it gives fewer or more elements than .cardinality.
#define mu_dataset_generator(...) \
    mu_dataset_generator_with(MU_ARGS(mu_dataset_generator_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_generator_with(const mu_dataset_generator_args *args);

// ---- Files --------------------------------------------------------------------------------------

// A file that is not there is NOT_FOUND, a folder FAILED_PRECONDITION; files of records and lines fail where they are
// read.

// mu_dataset_fashion_mnist reads a split: "train" (60,000 samples) or "test" (10,000). Elements are lists of an image
// (float32 [28, 28, 1], values 0 to 1) and a label (int32). The files come from Debian's package dataset-fashion-mnist;
// they are read from the folder fashion-mnist in MUSTER_DATA_DIR. Errors: NOT_FOUND naming the file;
// FAILED_PRECONDITION for a folder in its place; DATA_LOSS for a damaged file, perhaps only when the damaged part is
// read.
MU_API mu_dataset *mu_dataset_fashion_mnist(const char *split);

// mu_dataset_idx reads an IDX file, plain or gzip. Elements are its slices along axis 0, in the file's element type.
// Errors: as mu_dataset_fashion_mnist.
MU_API mu_dataset *mu_dataset_idx(const char *path);

// mu_dataset_npy reads a .npy file of NumPy; elements are its slices along axis 0. mu_dataset_npz reads a .npz archive;
// elements are maps from array names to slices, and all arrays must have the same number of rows. Errors: NOT_FOUND;
// DATA_LOSS for a damaged file; UNIMPLEMENTED for unsupported element types, more than MU_MAX_RANK axes, or another
// compression.
MU_API mu_dataset *mu_dataset_npy(const char *path);
MU_API mu_dataset *mu_dataset_npz(const char *path);

// mu_dataset_paths makes a dataset of n file names, for the readers below, so that files can be shuffled, sharded and
// interleaved. Elements are uint8 vectors. mu_dataset_path_of returns the name in an element; it belongs to the pool.
// Errors of the latter: INVALID_ARGUMENT for an element that is not a name.
MU_API mu_dataset *mu_dataset_paths(int n, const char *const *paths);
MU_API const char *mu_dataset_path_of(const mu_value *element);

// mu_dataset_tfrecord reads the records of a TFRecord file, plain or gzip, as uint8 vectors, and verifies the
// checksums: DATA_LOSS where it is read. mu_dataset_tfrecords reads the records of every file in a dataset of file
// names.
MU_API mu_dataset *mu_dataset_tfrecord(const char *path);
MU_API mu_dataset *mu_dataset_tfrecords(mu_dataset *paths);

// mu_dataset_text_line reads the lines of a text file, plain or gzip, as strings without line feeds and, as in
// TensorFlow, without any carriage return. mu_dataset_text_lines reads those of every file in a dataset of file names.
// DATA_LOSS, where it is read, for a line of more than 256 MiB.
MU_API mu_dataset *mu_dataset_text_line(const char *path);
MU_API mu_dataset *mu_dataset_text_lines(mu_dataset *paths);

typedef struct mu_dataset_text_folder_args {
    size_t size;
    const char *given;
    const char *directory;
    mu_keyword_only only_;
    // "int" (default; int32), "categorical" (one-hot, float32), "binary" (float32 [1], of two classes) or "none":
    // elements are texts alone, and the folder needs no classes
    const char *label_mode;
    int64_t batch_size;      // default 32; -1: elements are single texts
    int64_t max_length;      // keep as many bytes of a text at most; default: all
    bool no_shuffle;         // in order of classes and file names
    uint64_t seed;           // of the shuffle and the split; default: from the program's seed
    double validation_split; // the share of the files, from 0 to below 1, that is kept for validation
    const char *subset;      // "training" or "validation", with validation_split
} mu_dataset_text_folder_args;

// mu_dataset_text_folder makes a dataset of the texts in a folder, such as reviews in pos and neg: the content of each
// file whose name ends with ".txt" is a string, each folder in the folder is a class, numbered in order of the names,
// and holds files at any depth (mu_image_folder_classes returns their names); names that begin with a dot are left out,
// which Keras does only for classes. Elements are lists of texts and labels,
// for mu_text_vectorization. Both subsets need the same seed. Errors: NOT_FOUND without texts; RESOURCE_EXHAUSTED for a
// file above 256 MiB, when it is read.
#define mu_dataset_text_folder(...) \
    mu_dataset_text_folder_with(MU_ARGS(mu_dataset_text_folder_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_text_folder_with(const mu_dataset_text_folder_args *args);

typedef struct mu_dataset_fixed_length_record_args {
    size_t size;
    const char *given;
    const char *path; // file, plain or gzip; NULL with .paths
    int64_t record_bytes;
    mu_keyword_only only_;
    mu_dataset *paths;                  // a dataset of file names, instead of path
    int64_t header_bytes, footer_bytes; // of each file, left out; default 0
} mu_dataset_fixed_length_record_args;
// mu_dataset_fixed_length_record reads the records of a binary file, all of one length, as uint8 [record_bytes].
// Errors: DATA_LOSS for a file that is not a header, whole records and a footer; INVALID_ARGUMENT for lengths that no
// file has.
#define mu_dataset_fixed_length_record(...) \
    mu_dataset_fixed_length_record_with(MU_ARGS(mu_dataset_fixed_length_record_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_fixed_length_record_with(const mu_dataset_fixed_length_record_args *args);

typedef struct mu_dataset_csv_args {
    size_t size;
    const char *given;
    const char *path; // file, plain or gzip; NULL with .paths
    mu_keyword_only only_;
    mu_dataset *paths; // a dataset of file names, instead of path
    int columns;       // fields of a line; at least 1
    // The fields that are read: n_select_columns numbers of columns, from 0, ascending. Default: all
    const int *select_columns;
    int n_select_columns;
    // The next three have an entry for each field that is read.
    // Types: numbers or MU_STRING; elements are lists of scalars. Default: float32 vectors
    const mu_dtype *dtypes;
    int n_dtypes;
    const char *const *names; // elements are maps from these names to scalars
    int n_names;
    // Scalars for fields that are empty; NULL: an empty field is an error (a string is just empty).
    mu_tensor *const *record_defaults;
    int n_record_defaults;
    const char *na_value; // a field with this text is empty too
    // Lines to skip at the start of each file, such as a header; one with a quoted field may hold line ends too
    int skip_lines;
    char delimiter; // default ','
    bool no_quotes; // quotes are characters like others
} mu_dataset_csv_args;

// mu_dataset_csv reads lines of fields. Fields may be in double quotes; then they may hold delimiters and line ends,
// and two quotes are one. Lines end with a line feed, a carriage return or both; empty ones are skipped. Retains:
// record_defaults. Errors, where it is read: DATA_LOSS naming file, line and column.
#define mu_dataset_csv(...) mu_dataset_csv_with(MU_ARGS(mu_dataset_csv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_csv_with(const mu_dataset_csv_args *args);

// ---- Stages -------------------------------------------------------------------------------------

typedef struct mu_dataset_shuffle_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    int64_t buffer_size; // number of elements from which the next one is drawn
    mu_keyword_only only_;
    uint64_t seed;                    // default: from the program's seed (mu_set_seed)
    bool no_reshuffle_each_iteration; // use the same order in every iteration
} mu_dataset_shuffle_args;

// mu_dataset_shuffle draws each element uniformly from a buffer of the next buffer_size input elements. Each iteration
// has an order of its own, also of iterators that are open at the same time.
#define mu_dataset_shuffle(...) mu_dataset_shuffle_with(MU_ARGS(mu_dataset_shuffle_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_shuffle_with(const mu_dataset_shuffle_args *args);

typedef struct mu_dataset_batch_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    int64_t batch_size; // number of elements in a batch, at least 1
    mu_keyword_only only_;
    bool drop_remainder; // drop the last batch if it is not full
} mu_dataset_batch_args;

// mu_dataset_batch stacks batch_size elements along a new axis 0. Errors: INVALID_ARGUMENT if their shapes differ.
#define mu_dataset_batch(...) mu_dataset_batch_with(MU_ARGS(mu_dataset_batch_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_batch_with(const mu_dataset_batch_args *args);

typedef struct mu_dataset_padded_batch_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    int64_t batch_size; // number of elements in a batch, at least 1
    mu_keyword_only only_;
    bool drop_remainder; // drop the last batch if it is not full
    // [n_padded_shapes]: the shape of each component, in the order of the leaves; MU_UNKNOWN: the longest in the batch.
    // Default: every axis is so
    const mu_shape *padded_shapes;
    int n_padded_shapes;
    mu_value *padding_values; // a scalar, or one for each component in the same order; default: 0, false, ""
} mu_dataset_padded_batch_args;

// mu_dataset_padded_batch is mu_dataset_batch for elements of different shapes: each is padded at the end of every
// axis. Retains: padding_values. Errors: INVALID_ARGUMENT for an element that is larger than its padded shape.
#define mu_dataset_padded_batch(...) \
    mu_dataset_padded_batch_with(MU_ARGS(mu_dataset_padded_batch_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_padded_batch_with(const mu_dataset_padded_batch_args *args);

// mu_dataset_unbatch splits every element along axis 0 into its rows.
MU_API mu_dataset *mu_dataset_unbatch(mu_dataset *dataset);

// mu_dataset_rebatch splits and joins batches to new sizes, which it uses cyclically; a batch may take rows from
// several input batches. The last batch may be short, or is dropped with drop_remainder. A size of 0 makes an empty
// batch.
MU_API mu_dataset *mu_dataset_rebatch(mu_dataset *dataset, int n_sizes, const int64_t *sizes, bool drop_remainder);

// mu_dataset_repeat repeats the dataset `count` times; MU_INFINITE means without end.
MU_API mu_dataset *mu_dataset_repeat(mu_dataset *dataset, int64_t count);

// mu_dataset_take keeps the first `count` elements (-1: all). mu_dataset_skip drops them (-1: all).
MU_API mu_dataset *mu_dataset_take(mu_dataset *dataset, int64_t count);
MU_API mu_dataset *mu_dataset_skip(mu_dataset *dataset, int64_t count);

// mu_dataset_shard keeps every element whose number modulo n_shards is `index`. With MU_SHARD_HINT for both arguments
// it marks the place where the auto-shard policy HINT shards; FAILED_PRECONDITION where it is read under another
// policy.
#define MU_SHARD_HINT ((int64_t)-1)
MU_API mu_dataset *mu_dataset_shard(mu_dataset *dataset, int64_t n_shards, int64_t index);

// mu_dataset_prefetch computes up to `count` elements in advance, on a thread of its own (0: two elements). Errors,
// where it is read: DEADLINE_EXCEEDED if an element takes longer than MUSTER_TIMEOUT.
MU_API mu_dataset *mu_dataset_prefetch(mu_dataset *dataset, int64_t count);

// mu_dataset_zip yields lists of one element from each dataset, until the shortest ends. The last argument is MU_END.
MU_API mu_dataset *mu_dataset_zip(mu_dataset *first, ...);
MU_API mu_dataset *mu_dataset_zip_of(int n, mu_dataset *const *datasets);

// mu_dataset_concatenate yields the elements of the first dataset, then those of the second.
MU_API mu_dataset *mu_dataset_concatenate(mu_dataset *first, mu_dataset *second);

// mu_dataset_enumerate yields lists of a number (int64, counting from start) and the element.
MU_API mu_dataset *mu_dataset_enumerate(mu_dataset *dataset, int64_t start);

typedef struct mu_dataset_map_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    mu_value *(*fn)(mu_value *element, void *arg); // returns the new element; NULL only after mu_fail
    void *arg;                                     // must live as long as the dataset
    mu_keyword_only only_;
    // threads that call fn in parallel; default 1: the thread that iterates
    int parallel_calls;
    const char *name; // for messages; default "map"
    // instead of fn: traced and compiled; later elements run without the callback
    mu_function *function;
} mu_dataset_map_args;

// mu_dataset_map replaces every element by fn(element, arg). It preserves the order, with parallel calls too. Threads:
// with parallel_calls > 1, several threads call fn at the same time, so it guards what it changes (a metric, a
// counter); layers and models may be called. The callback of .function is never called in parallel. Errors:
// INVALID_ARGUMENT for a traced function that writes variables or communicates with other replicas; with
// parallel_calls > 1, where it is read, as mu_dataset_prefetch.
#define mu_dataset_map(...) mu_dataset_map_with(MU_ARGS(mu_dataset_map_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_map_with(const mu_dataset_map_args *args);

// mu_dataset_filter keeps the elements for which keep returns true.
MU_API mu_dataset *mu_dataset_filter(mu_dataset *dataset, bool (*keep)(mu_value *element, void *arg), void *arg);

// mu_dataset_flat_map makes a dataset of every element and yields the elements of these datasets one after the other.
MU_API mu_dataset *mu_dataset_flat_map(mu_dataset *dataset, mu_dataset *(*fn)(mu_value *element, void *arg), void *arg);

typedef struct mu_dataset_interleave_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    mu_dataset *(*fn)(mu_value *element, void *arg); // makes a dataset of an element
    void *arg;                                       // must live as long as the dataset
    mu_keyword_only only_;
    int64_t cycle_length; // number of datasets that are read at the same time; default 4
    int64_t block_length; // consecutive elements from one dataset before the next; default 1
} mu_dataset_interleave_args;

// mu_dataset_interleave is mu_dataset_flat_map that cycles through several of the datasets.
#define mu_dataset_interleave(...) \
    mu_dataset_interleave_with(MU_ARGS(mu_dataset_interleave_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_interleave_with(const mu_dataset_interleave_args *args);

typedef struct mu_dataset_window_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    int64_t window_size; // number of elements in a window, at least 1
    mu_keyword_only only_;
    int64_t shift;       // distance between the starts of two windows, in elements; default: window_size
    int64_t stride;      // distance between two elements of a window; default 1
    bool drop_remainder; // drop windows with fewer elements
} mu_dataset_window_args;

// mu_dataset_window yields windows of consecutive elements, which may overlap. Each is stacked along a new axis 0, like
// a batch.
#define mu_dataset_window(...) mu_dataset_window_with(MU_ARGS(mu_dataset_window_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_window_with(const mu_dataset_window_args *args);

typedef struct mu_dataset_bucket_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    int64_t (*element_length)(mu_value *element, void *arg); // the length of an element, 0 or more
    void *arg;                                               // must live as long as the dataset
    mu_keyword_only only_;
    const int64_t *bucket_boundaries; // [n_bucket_boundaries]: lengths from 1, ascending
    int n_bucket_boundaries;
    // [n_bucket_batch_sizes]: the batch size of each bucket; the last is for lengths from the last boundary on
    const int64_t *bucket_batch_sizes;
    int n_bucket_batch_sizes; // n_bucket_boundaries + 1
    bool drop_remainder;      // drop batches that are not full at the end
    // pad to the bucket's upper boundary - 1 where a padded shape is MU_UNKNOWN, not to the longest in the batch
    bool pad_to_bucket_boundary;
    bool no_padding;               // all elements of a batch have one shape
    const mu_shape *padded_shapes; // as in mu_dataset_padded_batch
    int n_padded_shapes;
    mu_value *padding_values;
} mu_dataset_bucket_args;

// mu_dataset_bucket_by_sequence_length batches elements of similar length, padded. Batches come in the order in which
// they become full; those that are left at the end in order of their lengths. Retains: padding_values.
#define mu_dataset_bucket_by_sequence_length(...) \
    mu_dataset_bucket_by_sequence_length_with(MU_ARGS(mu_dataset_bucket_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_bucket_by_sequence_length_with(const mu_dataset_bucket_args *args);

typedef struct mu_sample_from_datasets_args {
    size_t size;
    const char *given;
    int n_datasets;
    mu_dataset *const *datasets; // [n_datasets]
    mu_keyword_only only_;
    const double *weights; // [n_weights]: how often each is drawn, relative to their sum; default: equally
    int n_weights;         // n_datasets
    uint64_t seed;         // default: from the program's seed
    bool stop_on_empty;    // end with the first dataset that ends; default: continue with the others
} mu_sample_from_datasets_args;

// mu_sample_from_datasets takes each element from a dataset that it draws at random; the same in every iteration.
#define mu_sample_from_datasets(...) \
    mu_sample_from_datasets_with(MU_ARGS(mu_sample_from_datasets_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_sample_from_datasets_with(const mu_sample_from_datasets_args *args);

typedef struct mu_choose_from_datasets_args {
    size_t size;
    const char *given;
    int n_datasets;
    mu_dataset *const *datasets; // [n_datasets]
    mu_dataset *choices;         // int64 scalars from 0 to n_datasets - 1
    mu_keyword_only only_;
    bool continue_on_empty; // skip choices of datasets that have ended; default: end
} mu_choose_from_datasets_args;

// mu_choose_from_datasets takes each element from the dataset whose number is the next element of `choices`.
#define mu_choose_from_datasets(...) \
    mu_choose_from_datasets_with(MU_ARGS(mu_choose_from_datasets_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_choose_from_datasets_with(const mu_choose_from_datasets_args *args);

// mu_dataset_scan calls fn(state, element, arg) for every element in order; it returns a list of the new state and the
// element that replaces the old one. Retains: initial.
MU_API mu_dataset *mu_dataset_scan(mu_dataset *dataset, mu_value *initial,
                                   mu_value *(*fn)(mu_value *state, mu_value *element, void *arg), void *arg);

// mu_dataset_take_while ends before the first element for which keep returns false.
MU_API mu_dataset *mu_dataset_take_while(mu_dataset *dataset, bool (*keep)(mu_value *element, void *arg), void *arg);

// mu_dataset_unique drops elements that are equal to an earlier one, which it keeps in memory.
MU_API mu_dataset *mu_dataset_unique(mu_dataset *dataset);

typedef struct mu_dataset_cache_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    const char *file; // default: in memory
    mu_keyword_only only_;
} mu_dataset_cache_args;

// mu_dataset_cache stores the elements of the first complete iteration in memory or in a file. Later iterations read
// them from there; with a file, later runs of the program too. The file belongs to one pipeline: delete it if that
// changes. Errors, where it is read: DATA_LOSS for a file that is damaged or not a cache.
#define mu_dataset_cache(...) mu_dataset_cache_with(MU_ARGS(mu_dataset_cache_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_cache_with(const mu_dataset_cache_args *args);

// How a distributed dataset is divided among workers; TensorFlow's numbers.
typedef enum mu_auto_shard_policy {
    MU_AUTO_SHARD_OFF = -1,
    MU_AUTO_SHARD_AUTO = 0, // FILE if the pipeline reads files, else DATA
    MU_AUTO_SHARD_FILE = 1,
    MU_AUTO_SHARD_DATA = 2,
    MU_AUTO_SHARD_HINT = 3
} mu_auto_shard_policy;

// mu_auto_shard_policy_name returns "OFF", "AUTO", "FILE", "DATA" or "HINT", and "UNRECOGNIZED" for another number
// (static storage). mu_auto_shard_policy_from_name returns the value of a name, in any case. Errors (-2):
// INVALID_ARGUMENT.
MU_API const char *mu_auto_shard_policy_name(mu_auto_shard_policy policy);
MU_API int mu_auto_shard_policy_from_name(const char *name);

typedef struct mu_dataset_options_args {
    size_t size;
    const char *given;
    mu_dataset *dataset;
    mu_keyword_only only_;
    mu_auto_shard_policy auto_shard_policy; // default AUTO
} mu_dataset_options_args;

// mu_dataset_options sets options of a pipeline. If they are set more than once, the last stage's count.
#define mu_dataset_options(...) mu_dataset_options_with(MU_ARGS(mu_dataset_options_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_options_with(const mu_dataset_options_args *args);

// ---- Queries ------------------------------------------------------------------------------------

// mu_dataset_cardinality returns the number of elements, MU_INFINITE or MU_UNKNOWN_CARDINALITY (also for NULL).
MU_API int64_t mu_dataset_cardinality(const mu_dataset *dataset);

// mu_dataset_element_spec returns the structure of the elements: symbolic tensors with type and shape; a dimension that
// may vary is MU_UNKNOWN. Errors: FAILED_PRECONDITION if the structure is known only once an element is read: after a
// map with a callback (use a traced function), and for a generator without `like`.
MU_API mu_value *mu_dataset_element_spec(const mu_dataset *dataset);

// ---- Iteration ----------------------------------------------------------------------------------

// mu_iterate starts an iteration of a dataset or of a distributed dataset, and returns the iterator. Retains: dataset.
// Threads: only one thread at a time may use an iterator.
MU_API mu_iterator *mu_iterate(void *dataset);

// mu_next returns the next element, which is valid until the next call on the iterator; NULL without an error at the
// end. Errors: INVALID_ARGUMENT for a distributed dataset's iterator inside a function that runs on replicas, because a
// step takes elements for all replicas. Blocks: until the element is computed.
MU_API mu_value *mu_next(mu_iterator *iterator);

// mu_iterator_state returns the position as one line of JSON, valid until the next call on this iterator.
// mu_iterator_restore moves an unused iterator of the same pipeline to that position, so that it yields the same
// elements as the first one would have. It may call callbacks again for elements before that position. Errors:
// FAILED_PRECONDITION for an iterator that has given elements; DATA_LOSS for another text; UNIMPLEMENTED for a
// distributed dataset with MU_PER_REPLICA.
MU_API const char *mu_iterator_state(mu_iterator *iterator);
MU_API mu_status mu_iterator_restore(mu_iterator *iterator, const char *state);

// MU_EACH(batch, dataset) { … } runs the block for every element, as `batch` (mu_value *). Each pass has its own pool.
// break, continue and return work; after break or return, the objects of that pass live until the enclosing pool
// closes. The loop's state is a mu_value so that one for statement can declare both.
#define MU_EACH(batch, dataset)                                                                            \
    for (mu_value *mu_each_of_##batch = mu_each_begin(dataset), *batch = mu_each_next(mu_each_of_##batch); \
         (batch) != NULL; (batch) = mu_each_next(mu_each_of_##batch))
// mu_each_begin and mu_each_next are what MU_EACH is made of.
MU_API mu_value *mu_each_begin(void *dataset);
MU_API mu_value *mu_each_next(mu_value *loop);

#ifdef __cplusplus
}
#endif
#endif
