// Stages whose result depends on the elements before: scan carries a state along, take_while ends at the first element
// that a function refuses, unique drops elements that were there before.
#include "data/dataset.h"

#include "base/callback.h"

static const char in_dataset[] = "a function of a dataset";

static int64_t unknown_unless_empty(const mu_dataset *dataset)
{
    return mu_dataset_cardinality(dataset->inputs[0]) == 0 ? 0 : MU_UNKNOWN_CARDINALITY;
}

// ---- Scan ---------------------------------------------------------------------------------------

typedef struct scan_args {
    mu_value *initial; // retained
    mu_value *(*fn)(mu_value *state, mu_value *element, void *arg);
    void *arg;
} scan_args;

static const mu_owned_field scan_owned[] = {{MU_OWNS_OBJECT, offsetof(scan_args, initial)}, {MU_OWNS_END, 0}};

typedef struct scan_state {
    mu_value *carried;
} scan_state;

static mu_status scan_open(mu_stage *stage)
{
    ((scan_state *)stage->state)->carried = mu_retain(((const scan_args *)stage->dataset->args)->initial);
    return MU_OK;
}

static void scan_close(mu_stage *stage) { mu_release(((scan_state *)stage->state)->carried); }

// Calls the function; its two results replace the state and the element.
static mu_status scan_call(mu_stage *stage, mu_item *item)
{
    const scan_args *args = stage->dataset->args;
    scan_state *state = stage->state;
    mu_value *element = mu__item_value(item), *output = NULL;
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    if (pool == NULL)
        return mu_error_code();
    const char *before = mu__callback_enter(in_dataset);
    const mu_value *result = args->fn(state->carried, element, args->arg);
    mu__callback_leave(before);
    if (!mu__pending() && (result == NULL || result->kind != MU_VALUE_LIST || result->n != 2))
        mu__error(MU_INVALID_ARGUMENT,
                  "the function of scan returned %s; it must return a list of the new state and the element, or call "
                  "mu_fail first",
                  result == NULL ? "NULL" : "something else");
    if (!mu__pending()) {
        output = mu_retain(result->items[1]);
        mu_retain(result->items[0]);
        mu_release(state->carried);
        state->carried = result->items[0];
    }
    mu_pool_close(pool);
    mu__item_drop(item);
    *item = (mu_item){.value = output};
    return mu_error_code();
}

static mu_status scan_next(mu_stage *stage, mu_item *item, bool *end)
{
    MU_TRY(mu__stage_next(stage, 0, item, end));
    return *end ? MU_OK : scan_call(stage, item);
}

static int64_t scan_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static const mu_stage_ops scan_stage = {
    .name = "scan",
    .state_bytes = sizeof(scan_state),
    .args_bytes = sizeof(scan_args),
    .owned = scan_owned,
    .open = scan_open,
    .next = scan_next,
    .close = scan_close,
    .cardinality = scan_cardinality,
    .opaque = true,
};

mu_dataset *mu_dataset_scan(mu_dataset *dataset, mu_value *initial,
                            mu_value *(*fn)(mu_value *state, mu_value *element, void *arg), void *arg)
{
    if (mu__need(initial, "mu_dataset_scan: the initial state") != MU_OK)
        return NULL;
    if (fn == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_scan: the function is NULL; give one");
        return NULL;
    }
    return mu__dataset_stage(&scan_stage, &(scan_args){mu_retain(initial), fn, arg}, dataset);
}

// ---- Take while ---------------------------------------------------------------------------------

typedef struct while_args {
    bool (*keep)(mu_value *element, void *arg);
    void *arg;
} while_args;

static mu_status while_next(mu_stage *stage, mu_item *item, bool *end)
{
    const while_args *args = stage->dataset->args;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    mu_value *element = mu__item_value(item);
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    const char *before = mu__callback_enter(in_dataset);
    *end = pool != NULL && !args->keep(element, args->arg);
    mu__callback_leave(before);
    mu_pool_close(pool);
    if (*end || mu__pending())
        mu__item_drop(item);
    return mu_error_code();
}

static const mu_stage_ops while_stage = {
    .name = "take_while",
    .args_bytes = sizeof(while_args),
    .next = while_next,
    .cardinality = unknown_unless_empty,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_take_while(mu_dataset *dataset, bool (*keep)(mu_value *element, void *arg), void *arg)
{
    if (mu__pending())
        return NULL;
    if (keep == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_take_while: the function is NULL; give one");
        return NULL;
    }
    return mu__dataset_stage(&while_stage, &(while_args){keep, arg}, dataset);
}

// ---- Unique -------------------------------------------------------------------------------------

// The bytes of an element, behind those of all elements before; an open hash table of them.
typedef struct unique_state {
    struct {
        char *items;
        size_t n, capacity;
    } bytes;
    struct {
        size_t *items;
        size_t n, capacity;
    } begins;               // of elements, in order
    size_t *slots, n_slots; // 1 + number of an element; 0: free
} unique_state;

static void unique_close(mu_stage *stage)
{
    unique_state *state = stage->state;
    mu__free(state->bytes.items);
    mu__free(state->begins.items);
    mu__free(state->slots);
}

static mu_status add_bytes(unique_state *state, const void *from, size_t n)
{
    MU_TRY(mu__grow((void **)&state->bytes.items, &state->bytes.capacity, state->bytes.n + n, 1));
    if (n > 0)
        memcpy(state->bytes.items + state->bytes.n, from, n);
    state->bytes.n += n;
    return MU_OK;
}

static mu_status add_leaf(unique_state *state, const mu_tensor *tensor)
{
    const int64_t n = mu__elements(&tensor->shape);
    const mu_spec spec = mu__spec_of(tensor);
    MU_TRY(add_bytes(state, &tensor->dtype, sizeof tensor->dtype));
    MU_TRY(add_bytes(state, &tensor->shape.rank, sizeof tensor->shape.rank));
    MU_TRY(add_bytes(state, tensor->shape.dims, (size_t)tensor->shape.rank * sizeof tensor->shape.dims[0]));
    const void *data = mu__host_read(tensor);
    if (data == NULL)
        return mu_error_code();
    if (!mu__has_strings(tensor))
        return add_bytes(state, data, mu__spec_bytes(&spec));
    for (int64_t i = 0; i < n; i++) {
        const mu_string string = mu__string_at(tensor, i);
        MU_TRY(add_bytes(state, &string.n, sizeof string.n));
        MU_TRY(add_bytes(state, string.bytes, string.n));
    }
    return MU_OK;
}

static size_t end_of(const unique_state *state, size_t element)
{
    return element + 1 < state->begins.n ? state->begins.items[element + 1] : state->bytes.n;
}

// The slot of an element, or the free one where it belongs.
static size_t find_slot(const unique_state *state, size_t element)
{
    const size_t begin = state->begins.items[element], n = end_of(state, element) - begin;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)state->bytes.items[begin + i]) * 1099511628211u;
    size_t slot = (hash ^ hash >> 32) & (state->n_slots - 1);
    for (; state->slots[slot] != 0; slot = (slot + 1) & (state->n_slots - 1)) {
        const size_t other = state->slots[slot] - 1, at = state->begins.items[other];
        if (end_of(state, other) - at == n && memcmp(state->bytes.items + at, state->bytes.items + begin, n) == 0)
            break;
    }
    return slot;
}

// The last element is not in the table yet.
static mu_status grow_table(unique_state *state)
{
    if (state->begins.n * 2 < state->n_slots)
        return MU_OK;
    mu__free(state->slots);
    state->n_slots = state->n_slots == 0 ? 64 : 2 * state->n_slots;
    state->slots = mu__calloc(state->n_slots, sizeof *state->slots);
    if (state->slots == NULL) {
        state->n_slots = 0;
        return MU_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0; i + 1 < state->begins.n; i++)
        state->slots[find_slot(state, i)] = i + 1;
    return MU_OK;
}

static mu_status is_new(unique_state *state, mu_item *item, bool *new)
{
    mu_leaves leaves;
    if (mu__item_value(item) == NULL)
        return mu_error_code();
    MU_TRY(mu__leaves_of(item->value, &leaves));
    const size_t begin = state->bytes.n;
    mu_status status = MU_PUSH(&state->begins, begin);
    for (int i = 0; i < leaves.n && status == MU_OK; i++)
        status = add_leaf(state, mu__leaf(&leaves, i));
    mu__leaves_free(&leaves);
    if (status == MU_OK)
        status = grow_table(state);
    MU_TRY(status);
    const size_t slot = find_slot(state, state->begins.n - 1);
    *new = state->slots[slot] == 0;
    if (*new) {
        state->slots[slot] = state->begins.n;
        return MU_OK;
    }
    state->begins.n--;
    state->bytes.n = begin;
    return MU_OK;
}

static mu_status unique_next(mu_stage *stage, mu_item *item, bool *end)
{
    for (bool new = false; !new;) {
        MU_TRY(mu__stage_next(stage, 0, item, end));
        if (*end)
            return MU_OK;
        const mu_status status = is_new(stage->state, item, &new);
        if (status != MU_OK || !new)
            mu__item_drop(item);
        MU_TRY(status);
    }
    return MU_OK;
}

const mu_stage_ops mu__unique_stage = {
    .name = "unique",
    .state_bytes = sizeof(unique_state),
    .next = unique_next,
    .close = unique_close,
    .cardinality = unknown_unless_empty,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_unique(mu_dataset *dataset) { return mu__dataset_stage(&mu__unique_stage, NULL, dataset); }
