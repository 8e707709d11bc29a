// Inside the data layer: what a dataset is, what a stage must provide, how elements travel.
//
// A dataset is immutable data: a kind of stage, its arguments and its inputs; so a pipeline can be walked from its
// end and cloned with other inputs. An iterator opens one mu_stage per
// dataset. Elements travel as mu_items: either a value, or still a row number of a source in memory, so that
// shuffle, repeat, take, skip and shard move numbers and batch gathers all its rows at once. The position of
// an iterator is how many elements it gave plus the seeds it began with: a restored one skips, and rows are
// skipped without being made. Knows nothing of replicas.
#ifndef MU_SRC_DATA_DATASET_H
#define MU_SRC_DATA_DATASET_H

#include "tensor/tensor.h"

#include <muster/data.h>

// ---- Rows in memory (tensor_slices.c) -----------------------------------------------------------

// One component of the elements of a source in memory: n rows as stored, handed out as `spec`.
typedef struct mu_column {
    const void *data;
    mu_dtype stored;
    mu_spec spec;      // of one element
    int divisor;       // uint8 handed out as float32 is divided by it, correctly rounded; else 1
} mu_column;

// n rows of some columns. `ready` (may be NULL) waits until the rows before `end` are in memory.
typedef struct mu_rows {
    mu_object object;
    int64_t n;
    int n_columns;
    mu_column *columns;
    mu_value *spec;    // structure of an element; leaves are symbolic tensors without a node
    mu_status (*ready)(struct mu_rows *rows, int64_t end);
    void *source;      // what keeps the data alive
    void (*free_source)(void *source);
} mu_rows;

// mu__rows_new takes over `spec` and `source` (also on failure); columns are to be filled. Owned by the caller.
mu_rows *mu__rows_new(int64_t n, int n_columns, mu_value *spec, void *source, void (*free_source)(void *source));

// mu__rows_of_tensors makes rows of the tensors of a value: `slices` cuts each along its first axis, else the whole
// value is the one row. Owned by the caller. Errors: INVALID_ARGUMENT without tensors, or for unequal numbers of rows.
mu_rows *mu__rows_of_tensors(mu_value *value, bool slices);

// mu__rows_gather writes the given rows of every column, out[column] pointing at the place of the first.
mu_status mu__rows_gather(mu_rows *rows, const int64_t *index, int64_t count, void *const *out);

// mu__rows_element makes the value of one row. Owned by the caller.
mu_value *mu__rows_element(mu_rows *rows, int64_t row);

// ---- Datasets (dataset.c) -----------------------------------------------------------------------

typedef struct mu_stage_ops mu_stage_ops;

// One of n parts, or `width` of them that follow each other.
typedef struct mu_division {
    int64_t n, index, width;
    bool all_shares;     // by elements and files: that a part gets nothing is an error
} mu_division;

// A stage's arguments are a struct of its own (ops->args_bytes). What they own is listed, so that every dataset can be
// cloned and freed without knowing the stage; all other fields are copied as bytes. The list ends with MU_OWNS_END.
typedef enum mu_owned_kind {
    MU_OWNS_END = 0,
    MU_OWNS_TEXT,        // char *, from mu__strdup
    MU_OWNS_NUMBERS,     // mu_numbers
    MU_OWNS_OBJECT,      // pointer to a reference-counted object; a clone retains it
} mu_owned_kind;

typedef struct mu_owned_field {
    mu_owned_kind kind;
    size_t offset;       // in the struct of arguments
} mu_owned_field;

typedef struct mu_numbers {
    int n;
    int64_t *items;
} mu_numbers;

// Head of everything that mu_iterate and MU_EACH accept.
typedef struct mu_iterable {
    mu_object object;
    mu_iterator *(*iterate)(struct mu_iterable *iterable);  // owned by the caller
} mu_iterable;

struct mu_dataset {
    mu_iterable iterable;            // first
    const mu_stage_ops *ops;
    int n_inputs;
    mu_dataset **inputs;             // retained
    void *args;                      // ops->args_bytes; NULL for a stage without arguments
    mu_object *shared;               // made by ops->share; NULL without it
    atomic_llong iterations;         // shuffle: how many were begun; chooses the order of the next
};
extern mu_type mu__dataset_type;
extern mu_type mu__distributed_type;  // of distribute: the other kind of mu_iterable

// mu__dataset_new makes a dataset. `args` is the stage's struct of arguments (NULL if it has none): it is copied, and
// what it owns is taken over, also on failure. Retains the inputs. Owned by the caller.
// Errors: INVALID_ARGUMENT for an input that is not a dataset.
mu_dataset *mu__dataset_new(const mu_stage_ops *ops, const void *args, int n_inputs, mu_dataset *const *inputs);

// mu__dataset_stage is mu__dataset_new for one input, given to the pool; it does nothing while a record is
// pending (what `args` owns is freed).
mu_dataset *mu__dataset_stage(const mu_stage_ops *ops, const void *args, mu_dataset *input);

// mu__dataset_clone copies one description with other inputs (as many as before). Owned by the caller.
mu_dataset *mu__dataset_clone(const mu_dataset *dataset, mu_dataset *const *inputs);

// mu__dataset_spec returns the structure of an element; its leaves are symbolic tensors that carry dtype and
// shape (MU_UNKNOWN where not fixed). NULL without a record: not known before an element is made (map,
// generator without `like`). Owned by the caller.
mu_value *mu__dataset_spec(const mu_dataset *dataset);

// mu__dataset_batch_size returns how many elements each batch of a pipeline has, found as TensorFlow finds it; -1 if it
// is not known.
int64_t mu__dataset_batch_size(const mu_dataset *dataset);
// mu__batch_size_of_inputs is ops->batch_size of stages that hand batches on: the size that all inputs share.
int64_t mu__batch_size_of_inputs(const mu_dataset *dataset);

// ---- Stages of an open iterator (iterator.c) ----------------------------------------------------

// An element on its way: a value (owned), or row `row` of `rows` (borrowed from the dataset) if value is NULL.
typedef struct mu_item {
    mu_value *value;
    mu_rows *rows;
    int64_t row;
} mu_item;

typedef struct mu_stage {
    const mu_stage_ops *ops;
    const mu_dataset *dataset;    // borrowed: the iterator keeps the last dataset, which keeps the others
    mu_iterator *iterator;
    struct mu_stage **inputs;     // of dataset->n_inputs; an input is opened when first used
    void *state;                  // ops->state_bytes, zeroed
    bool ended;
} mu_stage;

// The order of a shuffle: `fixed` is the same in every iteration.
typedef struct mu_shuffle_order {
    uint64_t seed;
    bool fixed;
} mu_shuffle_order;

// One kind of stage. All functions run on the iterator's thread, or on the thread of a stage behind.
struct mu_stage_ops {
    const char *name;
    size_t state_bytes;
    size_t args_bytes;
    const mu_owned_field *owned;  // what the arguments own; NULL: nothing
    // open prepares the state. Optional.
    mu_status (*open)(mu_stage *stage);
    // next makes the next element, owned by the caller; *end is set instead at the end. May block.
    mu_status (*next)(mu_stage *stage, mu_item *item, bool *end);
    // skip passes over up to `count` elements, as next would, and says how many there were. Optional:
    // then elements are made and dropped.
    mu_status (*skip)(mu_stage *stage, int64_t count, int64_t *skipped);
    // close frees what the state owns, and ends threads; the inputs still live. Optional.
    void (*close)(mu_stage *stage);
    // cardinality from the inputs' ones. Optional: unknown.
    int64_t (*cardinality)(const mu_dataset *dataset);
    // spec of an element as mu__dataset_spec. Optional: that of input 0, or unknown without inputs.
    mu_value *(*spec)(const mu_dataset *dataset);
    bool opaque;  // with inputs, and without `spec`: the spec is unknown
    // share makes what all iterators of one dataset share (dataset->shared); a clone gets its own. Optional.
    mu_object *(*share)(void);

    // What the division of a pipeline between workers asks (auto_shard.c). All optional.
    bool divided_before;  // hands elements on at the end of a pipeline: a division goes before it
    bool opens_files;     // reads the files that its input names
    bool makes_datasets;  // of every element, which may name a file
    int64_t (*batch_size)(const mu_dataset *dataset);  // as mu__dataset_batch_size
    int64_t (*rows)(const mu_dataset *dataset);        // in all batches together; -1: not known
    // divide_rows returns the stage that makes only this division's rows of each batch. Owned by the caller.
    mu_dataset *(*divide_rows)(const mu_dataset *dataset, const mu_division *by);
    // order: the stage is a shuffle, whose orders are part of an iterator's position.
    mu_shuffle_order (*order)(const mu_dataset *dataset);
};

// mu__stage_next takes the next element of input `i` of a stage; *end stays set once it was.
mu_status mu__stage_next(mu_stage *stage, int i, mu_item *item, bool *end);
mu_status mu__stage_skip(mu_stage *stage, int i, int64_t count, int64_t *skipped);
// mu__stage_again closes input `i`, so that the next use begins a new iteration of it.
void mu__stage_again(mu_stage *stage, int i);

// mu__stage_seed returns the seed of the order of this iteration of a shuffle.
uint64_t mu__stage_seed(mu_stage *stage);

void mu__item_drop(mu_item *item);
// mu__item_value makes the item hold a value (rows are gathered) and returns it, borrowed; NULL on error.
mu_value *mu__item_value(mu_item *item);

// ---- Iterators (iterator.c) ---------------------------------------------------------------------

// Head of all iterators. next returns an element owned by the caller, or NULL at the end or after an error.
typedef struct mu_iterator_ops {
    mu_value *(*next)(mu_iterator *iterator);
    char *(*save)(mu_iterator *iterator);  // JSON, owned by the caller
    mu_status (*restore)(mu_iterator *iterator, const char *state);
} mu_iterator_ops;

struct mu_iterator {
    mu_object object;
    const mu_iterator_ops *ops;
    mu_value *lent;
    char *state;     // text lent by mu_iterator_state
};

// mu__dataset_iterate opens an iterator; owned by the caller (mu_release closes it).
mu_iterator *mu__dataset_iterate(mu_dataset *dataset);
// mu__iterator_item is mu_next without lending: rows stay rows. Only for iterators of datasets.
mu_status mu__iterator_item(mu_iterator *iterator, mu_item *item, bool *end);
// mu__iterator_close frees what the head owns; for the destroy functions of all iterators.
void mu__iterator_close(mu_iterator *iterator);

#define MU_MAX_PREFETCH 65536
#define MU_MAX_PARALLEL_CALLS 256

// ---- Calling C code (map_filter.c) -----------------------------------------------------------

typedef struct mu_traced_map mu_traced_map;

// Arguments of map and parallel_map.
typedef struct mu_map_args {
    int64_t parallel_calls;
    mu_value *(*fn)(mu_value *element, void *arg);
    void *arg;
    mu_traced_map *traced;  // instead of fn; retained
    char *name;             // of the function, in errors; owned
} mu_map_args;
extern const mu_owned_field mu__map_owned[];
extern const mu_stage_ops mu__stage_parallel_map;

// mu__call_map calls the function of a map; the result is owned by the caller. A NULL element gives NULL.
mu_value *mu__call_map(const mu_map_args *args, mu_value *element);
mu_value *mu__map_result_spec(const mu_dataset *dataset);  // as mu__dataset_spec
// mu__callback_name copies the name of a callback (default: the stage's); owned by the caller. NULL with a record
// if there is no memory, or no callback was given.
char *mu__callback_name(const char *name, const char *stage, bool given);

// ---- Maps by traced functions (traced.c) ------------------------------------------------------

mu_traced_map *mu__traced_map_new(mu_function *function);  // owned by the caller
// mu__traced_map_spec traces for elements like this (a spec) and tells what becomes of them; NULL on error, or without
// a record where the function returns nothing. mu__traced_map_call computes; any number of threads may call at the
// same time. Owned by the caller.
// Errors: INVALID_ARGUMENT if the function writes a variable or needs other replicas.
mu_value *mu__traced_map_spec(mu_traced_map *map, mu_value *element);
mu_value *mu__traced_map_call(mu_traced_map *map, mu_value *element);

// ---- The tensors of elements (nest.c) -----------------------------------------------------------

// The tensors of an element, borrowed. Errors: INVALID_ARGUMENT if a leaf is something else.
typedef struct mu_leaves {
    int n, wanted;
    mu_object **items;
} mu_leaves;
static inline mu_tensor *mu__leaf(const mu_leaves *leaves, int i) { return (mu_tensor *)leaves->items[i]; }
mu_status mu__leaves_of(const mu_value *value, mu_leaves *out);
void mu__leaves_free(mu_leaves *leaves);

// Building a value: begin, add each leaf (taken over; false for NULL), end. The value is NULL unless all the
// wanted leaves are there; end frees the leaves also after a begin that failed.
bool mu__build_begin(mu_leaves *made, int wanted);
bool mu__build_add(mu_leaves *made, mu_tensor *tensor);
mu_value *mu__build_end(mu_leaves *made, const mu_value *like);

// Small values, owned by the caller: a leaf of a spec; a leaf around a tensor, which is taken over (NULL: NULL);
// an int64 scalar; a list around items, which are taken over (NULL if one is).
mu_value *mu__spec_leaf(mu_dtype dtype, const mu_shape *shape);
mu_value *mu__leaf_value(mu_tensor *tensor);
mu_value *mu__number_value(int64_t number);
mu_value *mu__list_value(int n, mu_value **items);

// mu__map_spec rebuilds a structure with every leaf's spec changed by fn. Takes over spec; NULL gives NULL.
mu_value *mu__map_spec(mu_value *spec, mu_status (*fn)(mu_spec *leaf, int64_t number), int64_t number);
mu_status mu__spec_as_it_is(mu_spec *leaf, int64_t number);
// mu__add_axis prepends an axis of n to the shape.
mu_status mu__add_axis(mu_spec *leaf, int64_t n);
// mu__stack_spec prepends `n` (or MU_UNKNOWN) to every leaf; `shapeless` forgets the other axes. Takes over spec.
mu_value *mu__stack_spec(mu_value *spec, int64_t n, bool shapeless);

// mu__empty_like makes a batch of no rows (unknown dimensions become 0). mu__join puts batches (values) together
// along axis 0. Owned by the caller.
mu_value *mu__empty_like(const mu_value *like);
mu_value *mu__join(const mu_item *items, int n, const char *what);

// ---- Stacking (collate.c) -----------------------------------------------------------------------

// Buffers of elements that were given out: one that nobody holds any more is used again, so that batches of
// equal size touch the same memory.
#define MU_CACHED_BUFFERS 8
typedef struct mu_buffer_cache {
    mu_buffer *buffers[MU_CACHED_BUFFERS];
} mu_buffer_cache;
void mu__buffer_cache_free(mu_buffer_cache *buffer_cache);

// mu__stack puts items along a new axis 0. Without `pad` shapes must agree; `what` names the stage in errors.
mu_value *mu__stack(mu_item *items, int64_t n, bool pad, mu_buffer_cache *buffer_cache, const char *what);

// ---- Stages of other files ----------------------------------------------------------------------

// mu__dataset_of_rows makes the source that hands rows out; takes over `rows` (NULL gives NULL). `path`: its one row
// is the name of a file. Given to the pool.
mu_dataset *mu__dataset_of_rows(mu_rows *rows, bool path);
// mu__dataset_is_path says whether a source is one name of mu_dataset_paths.
bool mu__dataset_is_path(const mu_dataset *dataset);

// mu__dataset_cache_in_file is the cache of mu_dataset_cache with a file. Given to the pool.
mu_dataset *mu__dataset_cache_in_file(mu_dataset *dataset, const char *path);

// mu__dataset_is_shard_hint says whether a stage is a shard whose number auto-sharding decides (MU_SHARD_HINT).
bool mu__dataset_is_shard_hint(const mu_dataset *dataset);

// mu__dataset_split cuts every batch for itself into `pieces` pieces of equal size, the last ones short or
// empty: TensorFlow's legacy rebatch. Given to the pool.
mu_dataset *mu__dataset_split(mu_dataset *dataset, int64_t pieces);

// mu__dataset_share is mu_dataset_shard as auto-sharding inserts it: when this shard finds an element, every
// other must too, else INVALID_ARGUMENT. An index past the end just ends. Given to the pool.
mu_dataset *mu__dataset_share(mu_dataset *dataset, int64_t n_shards, int64_t index);

// ---- Between workers (auto_shard.c) -------------------------------------------------------------

// Each gives this worker's part of a pipeline, to the pool; NULL on error. By rows every worker runs all of it and
// keeps the rows of each batch that fall to it; `width` counts only there. By files: NOT_FOUND if a source reads none.
mu_dataset *mu__dataset_divide_rows(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_elements(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_files(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_hints(mu_dataset *dataset, const mu_division *by);
bool mu__dataset_reads_files(const mu_dataset *dataset);
// mu__division_rows says which of `rows` rows are ours: parts differ by one row at most, the larger ones first.
void mu__division_rows(const mu_division *by, int64_t rows, int64_t *begin, int64_t *end);
// mu__dataset_rows finds how many rows all batches of a pipeline have, and most of one; false: not known.
bool mu__dataset_rows(const mu_dataset *dataset, int64_t *rows, int64_t *batch);

// Rows [begin, begin + n) of a tensor, without a copy; `cut`: the row itself instead of a stack of one. Owned.
mu_tensor *mu__row_view(const mu_tensor *tensor, int64_t begin, int64_t n, bool cut);

// mu__dataset_auto_shard returns the policy nearest to the end of the pipeline; AUTO if none was set.
mu_auto_shard_policy mu__dataset_auto_shard(const mu_dataset *dataset);

#endif
