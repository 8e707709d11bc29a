// Iterators: a pipeline's open stages, the position, and the loop MU_EACH.
//
// The order of each shuffle depends on its seed, the iterator's number, and how often the iterator has begun it before,
// in a repetition for instance. Each iterator takes the next number of the dataset when it is made, so no two have an
// order in common. So the initial values and the number of elements returned are the complete position. Of all stages
// only shuffles are special here.
#include "data/dataset.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct shuffle_order { // of one shuffle of the pipeline, in this iterator
    mu_dataset *dataset;
    uint64_t seed;
    bool fixed;         // the same order in every iteration
    bool taken;         // `number` was taken by this iterator, not by that of a saved position
    int64_t number;     // of this iterator
    atomic_llong begun; // how often the shuffle has begun in it
} shuffle_order;

typedef struct dataset_iterator {
    mu_iterator head; // first
    mu_dataset *dataset;
    mu_stage *root; // NULL until the first element
    int64_t given;
    bool ended;
    struct {
        shuffle_order *items;
        size_t n, capacity;
    } orders;
} dataset_iterator;

// ---- Stages -------------------------------------------------------------------------------------

static void stage_close(mu_stage *stage)
{
    if (stage == NULL)
        return;
    if (stage->ops->close != NULL && stage->state != NULL)
        stage->ops->close(stage);
    for (int i = 0; stage->inputs != NULL && i < stage->dataset->n_inputs; i++)
        stage_close(stage->inputs[i]);
    mu__free(stage->inputs);
    mu__free(stage->state);
    mu__free(stage);
}

static mu_stage *stage_open(mu_iterator *iterator, const mu_dataset *dataset)
{
    mu_stage *stage = mu__calloc(1, sizeof *stage);
    if (stage == NULL)
        return NULL;
    stage->ops = dataset->ops;
    stage->dataset = dataset;
    stage->iterator = iterator;
    stage->inputs = mu__calloc((size_t)dataset->n_inputs, sizeof(mu_stage *));
    stage->state = stage->inputs != NULL ? mu__calloc(1, dataset->ops->state_bytes) : NULL;
    if (stage->state == NULL || (stage->ops->open != NULL && stage->ops->open(stage) != MU_OK)) {
        stage_close(stage);
        return NULL;
    }
    return stage;
}

static mu_status stage_next(mu_stage *stage, mu_item *item, bool *end)
{
    *item = (mu_item){0};
    *end = stage->ended;
    if (stage->ended)
        return MU_OK;
    mu_context *context = mu__context();
    context->on_host++; // a callback computes where it would on a thread of the pipeline
    mu_status status = stage->ops->next(stage, item, end);
    context->on_host--;
    if (status == MU_OK && *end)
        stage->ended = true;
    return status;
}

// Makes and drops elements if a stage cannot skip them.
static mu_status stage_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    *skipped = 0;
    if (stage->ended)
        return MU_OK;
    if (stage->ops->skip != NULL) {
        MU_TRY(stage->ops->skip(stage, count, skipped));
        stage->ended = *skipped < count;
        return MU_OK;
    }
    bool end = false;
    for (; *skipped < count; ++*skipped) {
        mu_item item;
        MU_TRY(stage_next(stage, &item, &end));
        if (end)
            return MU_OK;
        mu__item_drop(&item);
    }
    return MU_OK;
}

static mu_status input_open(mu_stage *stage, int i)
{
    if (stage->inputs[i] == NULL)
        stage->inputs[i] = stage_open(stage->iterator, stage->dataset->inputs[i]);
    return stage->inputs[i] != NULL ? MU_OK : mu_error_code();
}

mu_status mu__stage_next(mu_stage *stage, int i, mu_item *item, bool *end)
{
    *item = (mu_item){0};
    MU_TRY(input_open(stage, i));
    return stage_next(stage->inputs[i], item, end);
}

mu_status mu__stage_skip(mu_stage *stage, int i, int64_t count, int64_t *skipped)
{
    *skipped = 0;
    MU_TRY(input_open(stage, i));
    return stage_skip(stage->inputs[i], count, skipped);
}

void mu__stage_again(mu_stage *stage, int i)
{
    stage_close(stage->inputs[i]);
    stage->inputs[i] = NULL;
}

void mu__item_drop(mu_item *item)
{
    mu_release(item->value);
    *item = (mu_item){0};
}

mu_value *mu__item_value(mu_item *item)
{
    if (item->value == NULL)
        item->value = mu__rows_element(item->rows, item->row);
    return item->value;
}

// ---- Orders of shuffles -------------------------------------------------------------------------

static uint64_t seed_of(uint64_t seed, long long number, long long begun)
{
    return seed + 0x9e3779b97f4a7c15u * (uint64_t)number + 0xbf58476d1ce4e5b9u * (uint64_t)begun;
}

uint64_t mu__stage_seed(mu_stage *stage)
{
    dataset_iterator *iterator = (dataset_iterator *)stage->iterator;
    for (size_t i = 0; i < iterator->orders.n; i++) {
        shuffle_order *order = &iterator->orders.items[i];
        if (order->dataset != stage->dataset)
            continue;
        if (order->fixed)
            return order->seed;
        const long long begun = atomic_fetch_add(&order->begun, 1), next = order->number + 1;
        long long seen = atomic_load(&order->dataset->iterations);
        while (seen < next && !atomic_compare_exchange_weak(&order->dataset->iterations, &seen, next))
            continue;
        return seed_of(order->seed, order->number, begun);
    }
    return stage->dataset->ops->order(stage->dataset).seed;
}

uint64_t mu__order_begins(mu_dataset *dataset)
{
    const mu_shuffle_order order = dataset->ops->order(dataset);
    return order.fixed ? order.seed : seed_of(order.seed, atomic_fetch_add(&dataset->iterations, 1), 0);
}

// Gives back the numbers that an iterator took and did not use, so that it has no effect on the orders of others: the
// iterator of an epoch that a restored run leaves for the saved position, for instance. A number behind which another
// iterator has taken one stays taken.
static void orders_give_back(dataset_iterator *iterator)
{
    for (size_t i = 0; i < iterator->orders.n; i++) {
        shuffle_order *order = &iterator->orders.items[i];
        long long next = order->number + 1;
        if (order->taken && atomic_load(&order->begun) == 0)
            atomic_compare_exchange_strong(&order->dataset->iterations, &next, order->number);
        order->taken = false;
    }
}

// Lists every shuffle once, in the order of a walk from the end, with the next number.
static mu_status orders_collect(dataset_iterator *iterator, mu_dataset *dataset)
{
    if (dataset->ops->order != NULL) {
        for (size_t i = 0; i < iterator->orders.n; i++)
            if (iterator->orders.items[i].dataset == dataset)
                return MU_OK;
        MU_TRY(mu__grow((void **)&iterator->orders.items, &iterator->orders.capacity, iterator->orders.n + 1,
                        sizeof *iterator->orders.items));
        shuffle_order *order = &iterator->orders.items[iterator->orders.n++];
        order->dataset = dataset;
        order->seed = dataset->ops->order(dataset).seed;
        order->fixed = dataset->ops->order(dataset).fixed;
        order->number = atomic_fetch_add(&dataset->iterations, 1);
        order->taken = true;
        atomic_init(&order->begun, 0);
    }
    for (int i = 0; i < dataset->n_inputs; i++)
        MU_TRY(orders_collect(iterator, dataset->inputs[i]));
    return MU_OK;
}

// ---- Iterators of datasets ----------------------------------------------------------------------

static mu_status iterator_root(dataset_iterator *iterator)
{
    if (iterator->root == NULL)
        iterator->root = stage_open(&iterator->head, iterator->dataset);
    return iterator->root != NULL ? MU_OK : mu_error_code();
}

mu_status mu__iterator_item(mu_iterator *head, mu_item *item, bool *end)
{
    dataset_iterator *iterator = (dataset_iterator *)head;
    *item = (mu_item){0};
    *end = iterator->ended;
    if (iterator->ended)
        return MU_OK;
    MU_TRY(iterator_root(iterator));
    MU_TRY(stage_next(iterator->root, item, end));
    if (!*end) {
        iterator->given++;
        return MU_OK;
    }
    iterator->ended = true; // threads and buffers are no longer needed
    stage_close(iterator->root);
    iterator->root = NULL;
    return MU_OK;
}

static mu_value *iterator_next(mu_iterator *head)
{
    mu_item item;
    bool end = false;
    if (mu__iterator_item(head, &item, &end) != MU_OK || end)
        return NULL;
    if (mu__item_value(&item) == NULL)
        mu__item_drop(&item);
    return item.value;
}

static char *iterator_save(mu_iterator *head)
{
    dataset_iterator *iterator = (dataset_iterator *)head;
    json_t *shuffles = json_array();
    for (size_t i = 0; i < iterator->orders.n; i++) {
        const shuffle_order *order = &iterator->orders.items[i];
        json_array_append_new(
            shuffles, json_pack("{s:I,s:I}", "seed", (json_int_t)order->seed, "iteration", (json_int_t)order->number));
    }
    json_t *state = json_pack("{s:I,s:o}", "elements", (json_int_t)iterator->given, "shuffles", shuffles);
    char *text = state != NULL ? json_dumps(state, JSON_COMPACT) : NULL;
    char *copy = text != NULL ? mu__strdup(text) : NULL;
    if (text == NULL)
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory to write down the position of an iterator with %zu shuffles",
                  iterator->orders.n);
    free(text);
    json_decref(state);
    return copy;
}

// Reads what was saved of a shuffle.
static mu_status order_saved(json_t *shuffles, size_t i, json_int_t *seed, json_int_t *number)
{
    const bool read = json_unpack(json_array_get(shuffles, i), "{s:I,s:I}", "seed", seed, "iteration", number) == 0;
    return read && *number >= 0 && *number < INT64_MAX
               ? MU_OK
               : mu__error(MU_DATA_LOSS, "shuffle %zu of the saved position has no seed and iteration number", i);
}

// Nothing changes before all shuffles have been read.
static mu_status orders_restore(dataset_iterator *iterator, json_t *shuffles)
{
    json_int_t seed, number;
    if (json_array_size(shuffles) != iterator->orders.n)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "the saved position has %zu shuffles and the pipeline %zu; restore into the pipeline that was saved",
            json_array_size(shuffles), iterator->orders.n);
    for (size_t i = 0; i < iterator->orders.n; i++)
        MU_TRY(order_saved(shuffles, i, &seed, &number));
    orders_give_back(iterator);
    for (size_t i = 0; i < iterator->orders.n; i++) {
        MU_TRY(order_saved(shuffles, i, &seed, &number));
        iterator->orders.items[i].seed = (uint64_t)seed;
        iterator->orders.items[i].number = number;
    }
    return MU_OK;
}

static mu_status iterator_restore(mu_iterator *head, const char *text)
{
    dataset_iterator *iterator = (dataset_iterator *)head;
    if (iterator->given > 0 || iterator->root != NULL || iterator->ended)
        return mu__error(MU_FAILED_PRECONDITION, "the iterator has already given %lld elements; restore into a new one",
                         (long long)iterator->given);
    json_int_t given = 0;
    json_t *shuffles = NULL;
    json_t *state = json_loads(text, 0, NULL);
    mu_status status = MU_OK;
    if (state == NULL || json_unpack(state, "{s:I,s:o}", "elements", &given, "shuffles", &shuffles) != 0 || given < 0 ||
        !json_is_array(shuffles)) {
        status =
            mu__error(MU_DATA_LOSS,
                      "the saved position of an iterator is \"%.60s\"; expected what mu_iterator_state returned", text);
        goto out;
    }
    MU_GO(orders_restore(iterator, shuffles));
    MU_GO(iterator_root(iterator));
    int64_t skipped = 0;
    MU_GO(stage_skip(iterator->root, given, &skipped));
    iterator->given = given;
    if (skipped < given)
        status = mu__error(MU_INVALID_ARGUMENT,
                           "the saved position is after %lld elements, the pipeline has only %lld; restore into the "
                           "pipeline that was saved",
                           (long long)given, (long long)skipped);
out:
    json_decref(state);
    return status;
}

static const mu_iterator_ops iterator_ops = {.next = iterator_next, .save = iterator_save, .restore = iterator_restore};

static void iterator_destroy(void *object)
{
    dataset_iterator *iterator = object;
    stage_close(iterator->root);
    orders_give_back(iterator);
    mu__free(iterator->orders.items);
    mu_release(iterator->dataset);
    mu__iterator_close(&iterator->head);
}

mu_type mu__iterator_type = {.name = "dataset iterator", .destroy = iterator_destroy};

mu_iterator *mu__dataset_iterate(mu_dataset *dataset)
{
    dataset_iterator *iterator = mu__new(&mu__iterator_type, sizeof *iterator);
    if (iterator == NULL)
        return NULL;
    iterator->head.ops = &iterator_ops;
    iterator->dataset = mu_retain(dataset);
    if (orders_collect(iterator, dataset) != MU_OK) {
        mu_release(iterator);
        return NULL;
    }
    return &iterator->head;
}

// ---- All iterators ------------------------------------------------------------------------------

void mu__iterator_close(mu_iterator *iterator)
{
    mu_release(iterator->lent);
    mu__free(iterator->state);
}

static mu_iterator *iterate(mu_iterable *iterable)
{
    if (mu__pending())
        return NULL;
    if (iterable == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "the dataset to iterate is NULL; give a dataset");
        return NULL;
    }
    if (!mu__is(iterable, &mu__dataset_type) && !mu__is(iterable, &mu__distributed_type)) {
        mu__error(MU_INVALID_ARGUMENT, "a %s cannot be iterated; give a dataset or a distributed dataset",
                  iterable->object.type->name);
        return NULL;
    }
    return iterable->iterate(iterable);
}

mu_iterator *mu_iterate(void *dataset) { return mu__give(iterate(dataset)); }

mu_value *mu_next(mu_iterator *iterator)
{
    if (mu__pending())
        return NULL;
    if (iterator == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "the iterator is NULL; make one with mu_iterate");
        return NULL;
    }
    mu_release(iterator->lent);
    iterator->lent = NULL;
    mu__context()->input_begin_ns = mu__now_ns();
    iterator->lent = iterator->ops->next(iterator);
    mu__context()->input_end_ns = mu__now_ns();
    return iterator->lent;
}

const char *mu_iterator_state(mu_iterator *iterator)
{
    if (mu__pending() || mu__need(iterator, "mu_iterator_state: the iterator") != MU_OK)
        return NULL;
    mu__free(iterator->state);
    iterator->state = iterator->ops->save(iterator);
    return iterator->state;
}

mu_status mu_iterator_restore(mu_iterator *iterator, const char *state)
{
    if (mu__pending())
        return mu_error_code();
    if (iterator == NULL || state == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s is NULL; give both",
                         iterator == NULL ? "the iterator" : "the saved position");
    return iterator->ops->restore(iterator, state);
}

// ---- MU_EACH ------------------------------------------------------------------------------------

typedef struct each_loop {
    mu_object object;
    mu_iterator *iterator;
    mu_pool *iteration; // NULL before the first iteration
} each_loop;

static void each_destroy(void *object) { mu_release(((each_loop *)object)->iterator); }

static mu_type each_type = {.name = "loop", .destroy = each_destroy};

mu_value *mu_each_begin(void *dataset)
{
    mu_iterator *iterator = iterate(dataset);
    each_loop *loop = iterator != NULL ? mu__new(&each_type, sizeof *loop) : NULL;
    if (loop == NULL) {
        mu_release(iterator);
        return NULL;
    }
    loop->iterator = iterator;
    return mu__give(loop);
}

// After a break the pass's pool is still open; the enclosing pool closes it.
mu_value *mu_each_next(mu_value *state)
{
    each_loop *loop = (each_loop *)(void *)state;
    if (loop == NULL)
        return NULL;
    mu_pool_close(loop->iteration);
    loop->iteration = NULL;
    if (mu__pending() || (loop->iteration = mu_pool_open()) == NULL)
        return NULL;
    mu_value *value = mu_next(loop->iterator);
    if (value == NULL) {
        mu_pool_close(loop->iteration);
        loop->iteration = NULL;
    }
    return value;
}
