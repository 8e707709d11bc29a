// The cache in a file: the first complete iteration writes every element; later ones, also in other processes, read
// them.
//
// The file is a TFRecord file: the structure of an element as JSON, then each tensor as a .npy file, or, if it holds
// strings, as a mark, its rank, its sizes (8 bytes each, little-endian) and its strings. It gets its final
// name when it is complete; an iteration that finds the name reads the file.
#include "data/dataset.h"
#include "data/formats/npy.h"
#include "data/formats/tfrecord.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct cache_file_args {
    char *path; // owned
} cache_file_args;

static const mu_owned_field cache_file_owned[] = {{MU_OWNS_TEXT, offsetof(cache_file_args, path)}, {MU_OWNS_END, 0}};

static const char *path_of(const mu_stage *stage) { return ((const cache_file_args *)stage->dataset->args)->path; }

typedef struct cache_file_state {
    mu_record_reader reader; // stream is set if the file exists
    mu_file_writer *writer;
    mu_value *like; // structure of an element; its leaves are not used
    int n_leaves;
    bool begun;
} cache_file_state;

static void cache_file_close(mu_stage *stage)
{
    cache_file_state *state = stage->state;
    mu__record_close(&state->reader);
    mu__file_abandon(state->writer);
    mu_release(state->like);
}

// ---- Structures as JSON: 0 is a tensor ----------------------------------------------------------

static json_t *structure_to_json(const mu_value *value)
{
    if (value->leaf != NULL)
        return json_integer(0);
    json_t *json = value->kind == MU_VALUE_MAP ? json_object() : json_array();
    for (int i = 0; i < value->n; i++) {
        json_t *item = structure_to_json(value->items[i]);
        int failed = value->kind == MU_VALUE_MAP ? json_object_set_new(json, value->keys[i], item)
                                                 : json_array_append_new(json, item);
        if (failed != 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static mu_value *structure_from_json(json_t *json);

static mu_value *map_from_json(json_t *json)
{
    int n = 0, wanted = (int)json_object_size(json);
    mu_value **items = mu__calloc((size_t)wanted, sizeof *items);
    const char **keys = mu__calloc((size_t)wanted, sizeof *keys), *key;
    json_t *member;
    mu_value *map = NULL;
    if (items != NULL && keys != NULL) {
        json_object_foreach(json, key, member)
        {
            keys[n] = key;
            if ((items[n] = structure_from_json(member)) == NULL)
                break;
            n++;
        }
        map = n == wanted ? mu__value_container(MU_VALUE_MAP, n, items, keys) : NULL;
    }
    for (int i = 0; i < n; i++)
        mu_release(items[i]);
    mu__free(items);
    mu__free(keys);
    return map;
}

static mu_value *structure_from_json(json_t *json)
{
    if (json_is_integer(json))
        return mu__spec_leaf(MU_U8, &mu__scalar_shape);
    if (json_is_object(json))
        return map_from_json(json);
    if (!json_is_array(json))
        return NULL;
    int n = (int)json_array_size(json);
    mu_value **items = mu__calloc((size_t)n, sizeof *items);
    for (int i = 0; items != NULL && i < n; i++)
        items[i] = structure_from_json(json_array_get(json, (size_t)i));
    mu_value *list = items != NULL ? mu__list_value(n, items) : NULL;
    mu__free(items);
    return list;
}

// ---- Writing ------------------------------------------------------------------------------------

static mu_status write_structure(cache_file_state *state, const mu_value *value)
{
    json_t *json = structure_to_json(value);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    mu_status status = text != NULL
                           ? mu__record_write(state->writer, text, strlen(text), "", 0)
                           : mu__error(MU_RESOURCE_EXHAUSTED, "no memory to write down the structure of an element");
    free(text);
    json_decref(json);
    state->like = mu_retain((void *)(uintptr_t)value);
    return status;
}

static const char string_mark[] = "\x93STRING";
enum { MARK_BYTES = sizeof string_mark, STRING_HEADER = MARK_BYTES + 1 + 8 * MU_MAX_RANK };

static mu_status write_strings(cache_file_state *state, const mu_tensor *tensor)
{
    uint8_t header[STRING_HEADER], *data = mu__alloc(mu__strings_wire_bytes(tensor) + 1);
    size_t n = MARK_BYTES;
    if (data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(header, string_mark, MARK_BYTES);
    header[n++] = (uint8_t)tensor->shape.rank;
    for (int i = 0; i < 8 * tensor->shape.rank; i++)
        header[n++] = (uint8_t)((uint64_t)tensor->shape.dims[i / 8] >> 8 * (i % 8));
    mu__strings_to_wire(tensor, data);
    const mu_status status = mu__record_write(state->writer, header, n, data, mu__strings_wire_bytes(tensor));
    mu__free(data);
    return status;
}

static mu_status write_numbers(cache_file_state *state, const mu_tensor *tensor)
{
    char header[MU_NPY_HEADER];
    const mu_spec spec = mu__spec_of(tensor);
    const size_t bytes = mu__npy_header(tensor, header);
    const void *data = bytes > 0 ? mu__host_read(tensor) : NULL;
    return data != NULL ? mu__record_write(state->writer, header, bytes, data, mu__spec_bytes(&spec)) : mu_error_code();
}

static mu_status write_element(cache_file_state *state, const mu_value *value)
{
    if (state->like == NULL)
        MU_TRY(write_structure(state, value));
    if (!mu__value_same_structure(value, state->like))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "cache: an element is nested in another way than the first; elements of one dataset must look alike");
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(value, &leaves));
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < leaves.n; i++) {
        const mu_tensor *tensor = mu__leaf(&leaves, i);
        status = mu__has_strings(tensor) ? write_strings(state, tensor) : write_numbers(state, tensor);
    }
    mu__leaves_free(&leaves);
    return status;
}

// After a failure the file would lack an element, so it is discarded; elements are still passed on.
static mu_status pass_on(mu_stage *stage, mu_item *item, bool *end)
{
    cache_file_state *state = stage->state;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end) {
        mu_file_writer *writer = state->writer;
        state->writer = NULL;
        return writer != NULL ? mu__file_commit(writer) : MU_OK;
    }
    if (mu__item_value(item) == NULL)
        return mu_error_code();
    return state->writer != NULL ? write_element(state, item->value) : MU_OK;
}

static mu_status write_next(mu_stage *stage, mu_item *item, bool *end)
{
    cache_file_state *state = stage->state;
    mu_status status = pass_on(stage, item, end);
    if (status != MU_OK) {
        mu__item_drop(item);
        mu__file_abandon(state->writer);
        state->writer = NULL;
    }
    return status;
}

// ---- Reading ------------------------------------------------------------------------------------

static mu_status damaged(const mu_stage *stage)
{
    return mu__error(MU_DATA_LOSS, "%s is not a cache of a dataset, or not whole; remove it, and it will be made again",
                     path_of(stage));
}

static mu_status read_structure(mu_stage *stage, bool *end)
{
    cache_file_state *state = stage->state;
    MU_TRY(mu__record_read(&state->reader, end));
    if (*end)
        return MU_OK;
    json_t *json = json_loadb((const char *)state->reader.items, state->reader.n, JSON_DECODE_ANY, NULL);
    state->like = json != NULL ? structure_from_json(json) : NULL;
    json_decref(json);
    state->n_leaves = state->like != NULL ? mu__value_flatten(state->like, NULL, 0) : 0;
    return state->n_leaves > 0 ? MU_OK : damaged(stage);
}

static mu_tensor *read_strings(const mu_stage *stage, mu_cursor cursor)
{
    mu_shape shape = {.rank = mu__cursor_u8(&cursor)};
    bool valid = shape.rank <= MU_MAX_RANK;
    for (int i = 0; valid && i < shape.rank; i++) {
        const uint64_t size = mu__cursor_u64_little(&cursor);
        valid = size <= INT64_MAX;
        shape.dims[i] = (int64_t)size;
    }
    if (!valid || cursor.bad) {
        damaged(stage);
        return NULL;
    }
    return mu__shape_check(&shape, "a cached tensor") == MU_OK ? mu__strings_from_wire(&cursor, &shape) : NULL;
}

// The tensor in the record just read.
static mu_tensor *read_tensor(const mu_stage *stage)
{
    const cache_file_state *state = stage->state;
    const uint8_t *record = state->reader.items;
    const size_t n = state->reader.n;
    if (n > MARK_BYTES && memcmp(record, string_mark, MARK_BYTES) == 0)
        return read_strings(stage, mu__cursor(record + MARK_BYTES, n - MARK_BYTES));
    return mu__npy_parse(path_of(stage), record, n);
}

static mu_status read_next(mu_stage *stage, mu_item *item, bool *end)
{
    cache_file_state *state = stage->state;
    mu_leaves made;
    if (state->like == NULL)
        MU_TRY(read_structure(stage, end));
    if (*end)
        return MU_OK;
    bool ok = mu__build_begin(&made, state->n_leaves), over = false;
    while (ok && made.n < state->n_leaves) {
        ok = mu__record_read(&state->reader, &over) == MU_OK && !over && mu__build_add(&made, read_tensor(stage));
    }
    *end = over && made.n == 0;
    if (over && made.n > 0)
        damaged(stage);
    item->value = mu__build_end(&made, state->like);
    return mu_error_code();
}

// ---- The stage ----------------------------------------------------------------------------------

static mu_status begin(mu_stage *stage)
{
    cache_file_state *state = stage->state;
    state->begun = true;
    state->reader.stream = mu__file_stream_open(path_of(stage));
    if (state->reader.stream != NULL || mu_error_code() != MU_NOT_FOUND)
        return mu_error_code();
    mu_error_take();
    state->writer = mu__file_create(path_of(stage));
    return state->writer != NULL ? MU_OK : mu_error_code();
}

static mu_status cache_file_next(mu_stage *stage, mu_item *item, bool *end)
{
    cache_file_state *state = stage->state;
    if (!state->begun)
        MU_TRY(begin(stage));
    return state->reader.stream != NULL ? read_next(stage, item, end) : write_next(stage, item, end);
}

static int64_t cache_file_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static const mu_stage_ops cache_file_stage = {
    .name = "cache_file",
    .state_bytes = sizeof(cache_file_state),
    .args_bytes = sizeof(cache_file_args),
    .owned = cache_file_owned,
    .next = cache_file_next,
    .close = cache_file_close,
    .cardinality = cache_file_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu__dataset_cache_in_file(mu_dataset *dataset, const char *path)
{
    const cache_file_args args = {.path = mu__strdup(path)};
    return args.path != NULL ? mu__dataset_stage(&cache_file_stage, &args, dataset) : NULL;
}
