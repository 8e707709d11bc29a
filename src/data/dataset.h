// Internal interface of the data layer: datasets, stages and elements.
//
// A dataset is immutable: a kind of stage, its arguments and its inputs. So a pipeline can be walked from its end and
// cloned with other inputs. An iterator opens one mu_stage per dataset. Elements travel as mu_items: a value, or a row
// number of a source in memory. So shuffle, repeat, take, skip and shard move only numbers, and batch gathers all its
// rows at once. An iterator's position is the number of elements it returned plus its initial seeds. A restored
// iterator skips elements; skipped rows are not read. The data layer does not depend on replicas.
#ifndef MU_SRC_DATA_DATASET_H
#define MU_SRC_DATA_DATASET_H

#include "tensor/tensor.h"

#include <muster/data.h>

// ---- Rows in memory (tensor_slices.c) -----------------------------------------------------------

// One component of the elements of a source in memory: n rows as stored, and their spec as elements.
typedef struct mu_column {
    const void *data;
    mu_dtype stored;
    mu_spec spec;             // of one element
    int divisor;              // uint8 stored, float32 returned: divides by it, correctly rounded; else 1
    const mu_tensor *strings; // instead of `data`: the rows of this tensor (its only one, if `whole`); borrowed
    bool whole;
} mu_column;

// n rows of some columns. `ready` (may be NULL) waits until all rows before `end` are in memory.
typedef struct mu_rows {
    mu_object object;
    int64_t n;
    int n_columns;
    mu_column *columns;
    mu_value *spec; // structure of an element; leaves are symbolic tensors without a node
    mu_status (*ready)(struct mu_rows *rows, int64_t end);
    void *source; // what keeps the data alive
    void (*free_source)(void *source);
} mu_rows;

// mu__rows_new takes ownership of `spec` and `source`, on failure too; the caller fills the columns. Owned by the
// caller.
mu_rows *mu__rows_new(int64_t n, int n_columns, mu_value *spec, void *source, void (*free_source)(void *source));

// mu__rows_of_tensors makes rows from the tensors of a value: with `slices` the slices of each along axis 0, otherwise
// the whole value as one row. Owned by the caller. Errors: INVALID_ARGUMENT without tensors, or for different numbers
// of rows.
mu_rows *mu__rows_of_tensors(mu_value *value, bool slices);

// mu__rows_form sends all rows as they are stored; the reader uses them where they arrived (rows_form.c).
extern const struct mu_object_form mu__rows_form;

// mu__rows_gather copies the given rows of every column; out[column] points to the space for the first.
mu_status mu__rows_gather(mu_rows *rows, const int64_t *index, int64_t count, void *const *out);

// mu__rows_element makes the value of one row. Owned by the caller.
mu_value *mu__rows_element(mu_rows *rows, int64_t row);

// ---- Datasets (dataset.c) -----------------------------------------------------------------------

typedef struct mu_stage_ops mu_stage_ops;

// Part of a division into n parts: one part, or `width` consecutive parts.
typedef struct mu_division {
    int64_t n, index, width;
    bool all_shares; // by elements and files: an empty part is an error
} mu_division;

// A stage's arguments are a struct (ops->args_bytes). A list of mu_owned_field, ended by MU_OWNS_END, names what they
// own, so that any dataset can be cloned and freed. All other fields are copied as bytes.
typedef enum mu_owned_kind {
    MU_OWNS_END = 0,
    MU_OWNS_TEXT,    // char *, from mu__strdup
    MU_OWNS_NUMBERS, // mu_numbers
    MU_OWNS_OBJECT,  // pointer to a reference-counted object; a clone retains it
} mu_owned_kind;

typedef struct mu_owned_field {
    mu_owned_kind kind;
    size_t offset; // offset in the struct of arguments
} mu_owned_field;

typedef struct mu_numbers {
    int n;
    int64_t *items;
} mu_numbers;

// What of the arguments goes into a description (describe.h): a list that ends with MU_SENT_END. What it leaves
// out is zero there. A reader refuses what is outside of the bounds before it makes the stage, and so does the writer.
typedef struct mu_object_form mu_object_form;
typedef enum mu_sent_kind {
    MU_SENT_END = 0,
    MU_SENT_INT,     // an int, int64_t, bool, char or enum of `bytes`
    MU_SENT_SEED,    // uint64_t, the seed of ops->order: the one with which an iteration begins that starts now
    MU_SENT_NUMBERS, // mu_numbers: at least one, each within the bounds
    MU_SENT_TEXT,    // char *, from mu__strdup; NULL only if `may_lack`
    MU_SENT_OBJECT,  // pointer to a reference-counted object, by its form; NULL only if `may_lack`
    MU_SENT_NOTHING, // pointer of this process, such as a function of the program: only NULL can be sent
} mu_sent_kind;

typedef struct mu_sent_field {
    mu_sent_kind kind;
    size_t offset, bytes;
    int64_t least, most;
    const mu_object_form *form;
    bool may_lack;
} mu_sent_field;
#define MU_SENDS_INT(type, field, fewest, highest)                                                                  \
    {                                                                                                               \
        .kind = MU_SENT_INT, .offset = offsetof(type, field), .bytes = sizeof((type *)0)->field, .least = (fewest), \
        .most = (highest)                                                                                           \
    }
#define MU_SENDS_SEED(type, field)                                                                                    \
    {                                                                                                                 \
        .kind = MU_SENT_SEED, .offset = offsetof(type, field), .bytes = sizeof((type *)0)->field, .least = INT64_MIN, \
        .most = INT64_MAX                                                                                             \
    }
#define MU_SENDS_NUMBERS(type, field, fewest, highest)                                                 \
    {                                                                                                  \
        .kind = MU_SENT_NUMBERS, .offset = offsetof(type, field), .least = (fewest), .most = (highest) \
    }
#define MU_SENDS_TEXT(type, field)                            \
    {                                                         \
        .kind = MU_SENT_TEXT, .offset = offsetof(type, field) \
    }
#define MU_SENDS_OPTIONAL_TEXT(type, field)                                     \
    {                                                                           \
        .kind = MU_SENT_TEXT, .offset = offsetof(type, field), .may_lack = true \
    }
#define MU_SENDS_OBJECT(type, field, how)                                      \
    {                                                                          \
        .kind = MU_SENT_OBJECT, .offset = offsetof(type, field), .form = (how) \
    }
#define MU_SENDS_OPTIONAL(type, field, how)                                                      \
    {                                                                                            \
        .kind = MU_SENT_OBJECT, .offset = offsetof(type, field), .form = (how), .may_lack = true \
    }
#define MU_SENDS_NOTHING(type, field)                                                               \
    {                                                                                               \
        .kind = MU_SENT_NOTHING, .offset = offsetof(type, field), .bytes = sizeof((type *)0)->field \
    }

// Base struct of everything that mu_iterate and MU_EACH accept.
typedef struct mu_iterable {
    mu_object object;
    mu_iterator *(*iterate)(struct mu_iterable *iterable); // owned by the caller
} mu_iterable;

struct mu_dataset {
    mu_iterable iterable; // first
    const mu_stage_ops *ops;
    int n_inputs;
    mu_dataset **inputs;     // retained
    void *args;              // ops->args_bytes; NULL for a stage without arguments
    mu_object *shared;       // made by ops->share; NULL without it
    atomic_llong iterations; // shuffle: iterations started; selects the order of the next
};
extern mu_type mu__dataset_type, mu__iterator_type;
extern mu_type mu__distributed_type; // defined in distribute: the other kind of mu_iterable

// mu__dataset_new makes a dataset. `args` is the stage's struct of arguments (NULL if it has none). It is copied, and
// the dataset takes ownership of what it owns, on failure too. Retains the inputs. Owned by the caller. Errors:
// INVALID_ARGUMENT for an input that is not a dataset.
mu_dataset *mu__dataset_new(const mu_stage_ops *ops, const void *args, int n_inputs, mu_dataset *const *inputs);

// mu__dataset_stage is mu__dataset_new for one input; the result belongs to the pool. If an error is pending it only
// frees what `args` owns.
mu_dataset *mu__dataset_stage(const mu_stage_ops *ops, const void *args, mu_dataset *input);

// mu__dataset_clone copies a dataset with other inputs (the same number). Owned by the caller.
mu_dataset *mu__dataset_clone(const mu_dataset *dataset, mu_dataset *const *inputs);

// mu__stage_args_free frees a struct of arguments, from mu__calloc, and what it owns.
void mu__stage_args_free(const mu_stage_ops *ops, void *args);

// mu__dataset_spec returns the structure of an element; its leaves are symbolic tensors with dtype and shape
// (MU_UNKNOWN if not fixed). NULL without an error: unknown until an element is made (map, generator without `like`).
// Owned by the caller.
mu_value *mu__dataset_spec(const mu_dataset *dataset);

// mu__dataset_batch_size returns the batch size of a pipeline, determined as in TensorFlow; -1 if unknown.
int64_t mu__dataset_batch_size(const mu_dataset *dataset);
// mu__batch_size_of_inputs is ops->batch_size for stages that pass batches on: the common size of all inputs.
int64_t mu__batch_size_of_inputs(const mu_dataset *dataset);

// ---- Stages of an open iterator (iterator.c) ----------------------------------------------------

// An element in transit: an owned value or, if value is NULL, row `row` of `rows` (borrowed from the dataset).
typedef struct mu_item {
    mu_value *value;
    mu_rows *rows;
    int64_t row;
} mu_item;

typedef struct mu_stage {
    const mu_stage_ops *ops;
    const mu_dataset *dataset; // borrowed: the iterator retains the last dataset, which retains the others
    mu_iterator *iterator;
    struct mu_stage **inputs; // of dataset->n_inputs; an input is opened when first used
    void *state;              // ops->state_bytes, zeroed
    bool ended;
} mu_stage;

// The order of a shuffle; `fixed`: the same in every iteration.
typedef struct mu_shuffle_order {
    uint64_t seed;
    bool fixed;
} mu_shuffle_order;

// A kind of stage. All functions run on the iterator's thread, or on the thread of a later stage.
struct mu_stage_ops {
    const char *name;
    size_t state_bytes;
    size_t args_bytes;
    const mu_owned_field *owned; // what the arguments own; NULL: nothing
    // open prepares the state. Optional.
    mu_status (*open)(mu_stage *stage);
    // next makes the next element, owned by the caller; at the end it sets *end instead. May block.
    mu_status (*next)(mu_stage *stage, mu_item *item, bool *end);
    // skip skips up to `count` elements and returns the number in *skipped. Optional: elements are made and dropped.
    mu_status (*skip)(mu_stage *stage, int64_t count, int64_t *skipped);
    // close frees what the state owns and ends threads; the inputs are still open. Optional.
    void (*close)(mu_stage *stage);
    // cardinality, computed from the inputs'. Optional: unknown.
    int64_t (*cardinality)(const mu_dataset *dataset);
    // spec of an element as mu__dataset_spec. Optional: that of input 0, or unknown without inputs.
    mu_value *(*spec)(const mu_dataset *dataset);
    bool opaque; // with inputs, and without `spec`: the spec is unknown
    // For stages of stages.def: what is sent of the arguments (NULL: there are none), and what must hold between them
    // in a stage that was read. Optional.
    const mu_sent_field *sent;
    mu_status (*check)(const mu_dataset *dataset);
    // share makes an object for all iterators of one dataset (dataset->shared); a clone gets its own. Optional.
    mu_object *(*share)(void);

    // For dividing a pipeline among workers (auto_shard.c). All optional.
    bool divided_before;                              // passes elements on unchanged, so a division goes before it
    bool opens_files;                                 // reads the files that its input names
    bool makes_datasets;                              // makes a dataset of each element, which may be a file name
    int64_t (*batch_size)(const mu_dataset *dataset); // as mu__dataset_batch_size
    int64_t (*rows)(const mu_dataset *dataset);       // total rows of all batches; -1: unknown
    // divide_rows returns a stage that makes only this division's rows of each batch. Owned by the caller.
    mu_dataset *(*divide_rows)(const mu_dataset *dataset, const mu_division *by);
    // order: the stage is a shuffle, whose orders are part of an iterator's position.
    mu_shuffle_order (*order)(const mu_dataset *dataset);
};

// mu__stage_next takes the next element of input `i` of a stage; once *end is set, it stays set.
mu_status mu__stage_next(mu_stage *stage, int i, mu_item *item, bool *end);
mu_status mu__stage_skip(mu_stage *stage, int i, int64_t count, int64_t *skipped);
// mu__stage_again closes input `i`; the next use starts a new iteration of it.
void mu__stage_again(mu_stage *stage, int i);

// mu__splitmix draws 64 random bits and moves the state on (order.c).
uint64_t mu__splitmix(uint64_t *state);

// mu__stage_seed returns the seed of the order of this iteration of a shuffle. mu__order_begins counts an iteration
// that begins in another process, and returns the seed with which the shuffle begins there.
uint64_t mu__stage_seed(mu_stage *stage);
uint64_t mu__order_begins(mu_dataset *dataset);

void mu__item_drop(mu_item *item);
// mu__item_value turns the item into a value (gathers its row) and returns it, borrowed; NULL on error.
mu_value *mu__item_value(mu_item *item);

// ---- Iterators (iterator.c) ---------------------------------------------------------------------

// Base struct of all iterators. next returns an element owned by the caller, or NULL at the end or on error.
typedef struct mu_iterator_ops {
    mu_value *(*next)(mu_iterator *iterator);
    char *(*save)(mu_iterator *iterator); // JSON, owned by the caller
    mu_status (*restore)(mu_iterator *iterator, const char *state);
} mu_iterator_ops;

struct mu_iterator {
    mu_object object;
    const mu_iterator_ops *ops;
    mu_value *lent;
    char *state; // result of mu_iterator_state
};

// mu__dataset_iterate opens an iterator; owned by the caller (mu_release closes it).
mu_iterator *mu__dataset_iterate(mu_dataset *dataset);
// mu__iterator_item is mu_next for items: the item is owned, and rows stay rows. Only for iterators of datasets.
mu_status mu__iterator_item(mu_iterator *iterator, mu_item *item, bool *end);
// mu__iterator_close frees what the base struct owns; destroy functions of iterators call it.
void mu__iterator_close(mu_iterator *iterator);

#define MU_MAX_PREFETCH       65536
#define MU_MAX_PARALLEL_CALLS 256

// ---- Calling C code (map_filter.c) --------------------------------------------------------------

typedef struct mu_traced_map mu_traced_map;

// Arguments of map and parallel_map.
typedef struct mu_map_args {
    int64_t parallel_calls;
    mu_value *(*fn)(mu_value *element, void *arg);
    void *arg;
    mu_traced_map *traced; // instead of fn; retained
    char *name;            // name of the function, for errors; owned
} mu_map_args;
extern const mu_owned_field mu__map_owned[];
extern const mu_sent_field mu__map_sent[];

// mu__call_map calls a map's function; the result is owned by the caller. A NULL element gives NULL.
mu_value *mu__call_map(const mu_map_args *args, mu_value *element);
mu_value *mu__map_result_spec(const mu_dataset *dataset); // as mu__dataset_spec
// mu__callback_name copies a callback's name (default: the stage's); owned by the caller. NULL with an error if there
// is no memory, or if no callback was given.
char *mu__callback_name(const char *name, const char *stage, bool given);

// ---- Maps by traced functions (traced.c) --------------------------------------------------------

mu_traced_map *mu__traced_map_new(mu_function *function); // owned by the caller
// mu__traced_map_spec traces for elements of this spec and returns the spec of the result; NULL on error, or without an
// error if the function returns nothing. mu__traced_map_call computes an element; any number of threads may call it at
// the same time. Results are owned by the caller. Errors: INVALID_ARGUMENT if the function writes a variable or
// communicates with other replicas.
mu_value *mu__traced_map_spec(mu_traced_map *map, mu_value *element);
mu_value *mu__traced_map_call(mu_traced_map *map, mu_value *element);
extern const mu_object_form mu__traced_map_form; // one whose element spec is known

// ---- The tensors of elements (nest.c) -----------------------------------------------------------

// The tensors of an element, borrowed. Errors: INVALID_ARGUMENT if a leaf is not a tensor.
typedef struct mu_leaves {
    int n, wanted;
    mu_object **items;
} mu_leaves;
static inline mu_tensor *mu__leaf(const mu_leaves *leaves, int i) { return (mu_tensor *)leaves->items[i]; }
mu_status mu__leaves_of(const mu_value *value, mu_leaves *out);
void mu__leaves_free(mu_leaves *leaves);

// Building a value: begin, add each leaf (takes ownership; false for NULL), end. The value is NULL unless all `wanted`
// leaves were added. end frees the leaves, also after a failed begin.
bool mu__build_begin(mu_leaves *made, int wanted);
bool mu__build_add(mu_leaves *made, mu_tensor *tensor);
mu_value *mu__build_end(mu_leaves *made, const mu_value *like);

// Small values, owned by the caller: a leaf of a spec; a leaf for a tensor (takes ownership; NULL gives NULL); an int64
// scalar; a list of items (takes ownership; NULL if one is NULL).
mu_value *mu__spec_leaf(mu_dtype dtype, const mu_shape *shape);
mu_value *mu__leaf_value(mu_tensor *tensor);
mu_value *mu__number_value(int64_t number);
mu_value *mu__list_value(int n, mu_value **items);

// mu__map_spec rebuilds a structure with each leaf's spec changed by fn. Takes ownership of spec; NULL gives NULL.
mu_value *mu__map_spec(mu_value *spec, mu_status (*fn)(mu_spec *leaf, int64_t number), int64_t number);
mu_status mu__spec_as_it_is(mu_spec *leaf, int64_t number);
// mu__add_axis prepends an axis of n to the shape.
mu_status mu__add_axis(mu_spec *leaf, int64_t n);
// mu__stack_spec prepends an axis of size `n` (or MU_UNKNOWN) to every leaf; with `shapeless` the other axes become
// unknown. Takes ownership of spec.
mu_value *mu__stack_spec(mu_value *spec, int64_t n, bool shapeless);

// mu__empty_like makes a batch without rows (unknown dimensions become 0). mu__join concatenates batches (values) along
// axis 0. Owned by the caller.
mu_value *mu__empty_like(const mu_value *like);
mu_value *mu__join(const mu_item *items, int n, const char *what);

// ---- Stacking (collate.c) -----------------------------------------------------------------------

// Buffers of returned elements. A buffer without other users is reused, so that batches of equal size touch the same
// memory.
#define MU_CACHED_BUFFERS 8
typedef struct mu_buffer_cache {
    mu_buffer *buffers[MU_CACHED_BUFFERS];
} mu_buffer_cache;
void mu__buffer_cache_free(mu_buffer_cache *buffer_cache);

// How elements of different shapes are padded, by component: to shapes with MU_UNKNOWN for the longest of a batch
// (none: all axes are so), with scalars (none: zeros; one: for all components).
typedef struct mu_padding {
    mu_object object;
    int n_shapes, n_values;
    mu_shape *shapes;
    mu_value *values;   // retained
    mu_object **leaves; // of `values`
} mu_padding;
static inline const mu_tensor *mu__padding_value(const mu_padding *pad, int component)
{
    return pad->n_values == 0 ? NULL : (const mu_tensor *)pad->leaves[pad->n_values == 1 ? 0 : component];
}

// mu__padding_new checks and keeps what the caller of `function` gives; owned by the caller. mu__padded_spec is the
// spec of batches of n padded elements of this spec, which it takes over; NULL gives NULL.
mu_padding *mu__padding_new(const char *function, int n_shapes, const mu_shape *shapes, mu_value *values);
extern const mu_object_form mu__padding_form;
mu_value *mu__padded_spec(mu_value *spec, const mu_padding *padding, int64_t n);

// mu__stack stacks items along a new axis 0. Without `pad`, shapes must agree; `what` names the stage in errors.
mu_value *mu__stack(mu_item *items, int64_t n, const mu_padding *pad, mu_buffer_cache *buffer_cache, const char *what);

// ---- Stages of other files ----------------------------------------------------------------------

#define MU_STAGE(name, fewest, most) extern const mu_stage_ops mu__##name##_stage;
#include "data/stages/stages.def"
#undef MU_STAGE

// mu__dataset_of_rows makes a source of rows; takes ownership of `rows` (NULL gives NULL). `path`: its only row is a
// file name. The result belongs to the pool.
mu_dataset *mu__dataset_of_rows(mu_rows *rows, bool path);
// mu__dataset_is_path returns whether a source is a single name of mu_dataset_paths.
bool mu__dataset_is_path(const mu_dataset *dataset);

// mu__dataset_cache_in_file is mu_dataset_cache with a file. The result belongs to the pool.
mu_dataset *mu__dataset_cache_in_file(mu_dataset *dataset, const char *path);

// mu__dataset_is_shard_hint returns whether a stage is a shard that auto-sharding fills in (MU_SHARD_HINT).
bool mu__dataset_is_shard_hint(const mu_dataset *dataset);

// mu__dataset_split splits each batch separately into `pieces` pieces of equal size, the last ones short or empty, as
// TensorFlow's legacy rebatch does. The result belongs to the pool.
mu_dataset *mu__dataset_split(mu_dataset *dataset, int64_t pieces);

// mu__dataset_share is mu_dataset_shard as auto-sharding inserts it: if this shard has an element, every other shard
// must have one too, else INVALID_ARGUMENT. An index past the end gives an empty dataset. The result belongs to the
// pool.
mu_dataset *mu__dataset_share(mu_dataset *dataset, int64_t n_shards, int64_t index);

// ---- Between workers (auto_shard.c) -------------------------------------------------------------

// Each returns this worker's part of a pipeline (belongs to the pool; NULL on error). By rows, every worker runs the
// whole pipeline and keeps its rows of each batch; only there `width` matters. By files: NOT_FOUND if a source reads no
// files.
mu_dataset *mu__dataset_divide_rows(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_elements(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_files(mu_dataset *dataset, const mu_division *by);
mu_dataset *mu__dataset_divide_hints(mu_dataset *dataset, const mu_division *by);
bool mu__dataset_reads_files(const mu_dataset *dataset);
// mu__division_rows returns this part's range of `rows` rows: parts differ by one row at most, larger parts first.
void mu__division_rows(const mu_division *by, int64_t rows, int64_t *begin, int64_t *end);
// mu__dataset_rows finds the total rows of all batches of a pipeline and the rows of the largest; false if unknown.
bool mu__dataset_rows(const mu_dataset *dataset, int64_t *rows, int64_t *batch);

// Rows [begin, begin + n) of a tensor without a copy; with `cut` the row itself, without the first axis. Owned.
mu_tensor *mu__row_view(const mu_tensor *tensor, int64_t begin, int64_t n, bool cut);

// mu__dataset_auto_shard returns the pipeline's policy, the last one set; AUTO if none was set.
mu_auto_shard_policy mu__dataset_auto_shard(const mu_dataset *dataset);

#endif
