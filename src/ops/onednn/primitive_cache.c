// Cache of prepared kernels for eager calls. Creating a primitive takes longer than running it on a small tensor, and
// loops call the same op with the same shapes repeatedly.
//
// Each runtime keeps a few states, found by op, attributes and specs of the operands. A call takes a state out and puts
// it back when done, so no two calls share one. If the cache is full, the least recently used state is evicted. Plans
// keep their own states. The contents of a state are opaque here.
#include "ops/onednn/primitive_cache.h"

#include <pthread.h>

enum { SLOTS = 16, OPERANDS = 6, ATTRS_BYTES = 1024 };

typedef struct prepared_state {
    const mu_op *op; // NULL: the entry is free
    int n_in, n_out;
    mu_spec specs[OPERANDS];
    unsigned char attrs[ATTRS_BYTES];
    void *state;
    size_t scratch_bytes;
    uint64_t used;
} prepared_state;

typedef struct prepared_states {
    pthread_mutex_t lock;
    uint64_t now;
    prepared_state slots[SLOTS];
} prepared_states;

static void *states_new(mu_runtime *runtime)
{
    (void)runtime;
    prepared_states *states = mu__calloc(1, sizeof *states);
    if (states)
        pthread_mutex_init(&states->lock, NULL);
    return states;
}

static void states_free(void *object)
{
    prepared_states *states = object;
    for (int i = 0; i < SLOTS; i++)
        if (states->slots[i].op)
            states->slots[i].op->cpu.release(states->slots[i].state);
    pthread_mutex_destroy(&states->lock);
    mu__free(states);
}

// States of ops with tensor or graph attributes are not cached, because those objects would have to be kept alive.
static bool is_plain(const mu_op *op)
{
    for (const mu_attr_spec *spec = op->attrs; spec && spec->name; spec++)
        if (spec->kind == MU_ATTR_TENSOR || spec->kind == MU_ATTR_GRAPH)
            return false;
    return op->cpu.release && op->cpu.prepare && op->attrs_bytes <= ATTRS_BYTES && !mu__custom_is_name(op->name);
}

static prepared_states *states_for(const mu_prepare *prepare)
{
    if (!is_plain(prepare->op) || prepare->n_in + prepare->n_out > OPERANDS || prepare->team->n_threads > 1)
        return NULL;
    return mu__runtime_slot(mu__runtime(), MU_SLOT_PREPARED, states_new, states_free);
}

static bool same_spec(const mu_spec *a, const mu_spec *b)
{
    return a->dtype == b->dtype && mu__shape_equal(&a->shape, &b->shape);
}

static bool is_for(const prepared_state *slot, const mu_prepare *prepare)
{
    if (slot->op != prepare->op || slot->n_in != prepare->n_in || slot->n_out != prepare->n_out)
        return false;
    for (int i = 0; i < prepare->n_in; i++)
        if (!same_spec(&slot->specs[i], &prepare->in[i]))
            return false;
    for (int i = 0; i < prepare->n_out; i++)
        if (!same_spec(&slot->specs[prepare->n_in + i], &prepare->out[i]))
            return false;
    return slot->op->attrs_bytes == 0 || memcmp(slot->attrs, prepare->attrs, slot->op->attrs_bytes) == 0;
}

bool mu__prepared_take(mu_prepare *prepare)
{
    prepared_states *states = states_for(prepare);
    bool found = false;
    if (!states)
        return false;
    pthread_mutex_lock(&states->lock);
    for (int i = 0; i < SLOTS && !found; i++) {
        prepared_state *slot = &states->slots[i];
        found = slot->op && is_for(slot, prepare);
        if (!found)
            continue;
        prepare->state = slot->state;
        prepare->scratch_bytes = slot->scratch_bytes;
        slot->op = NULL;
    }
    pthread_mutex_unlock(&states->lock);
    return found;
}

// A free entry, or the least recently used one.
static prepared_state *slot_for_new(prepared_states *states)
{
    prepared_state *oldest = &states->slots[0];
    for (int i = 0; i < SLOTS; i++) {
        prepared_state *slot = &states->slots[i];
        if (!slot->op)
            return slot;
        if (slot->used < oldest->used)
            oldest = slot;
    }
    return oldest;
}

void mu__prepared_give(const mu_prepare *prepare)
{
    const mu_op *op = prepare->op;
    prepared_states *states = prepare->state ? states_for(prepare) : NULL;
    if (!states) {
        if (prepare->state && op->cpu.release)
            op->cpu.release(prepare->state);
        return;
    }
    pthread_mutex_lock(&states->lock);
    prepared_state *slot = slot_for_new(states);
    const mu_op *old_op = slot->op;
    void *old_state = slot->state;
    slot->op = op;
    slot->n_in = prepare->n_in;
    slot->n_out = prepare->n_out;
    memcpy(slot->specs, prepare->in, (size_t)prepare->n_in * sizeof slot->specs[0]);
    memcpy(slot->specs + prepare->n_in, prepare->out, (size_t)prepare->n_out * sizeof slot->specs[0]);
    if (op->attrs_bytes > 0)
        memcpy(slot->attrs, prepare->attrs, op->attrs_bytes);
    slot->state = prepare->state;
    slot->scratch_bytes = prepare->scratch_bytes;
    slot->used = ++states->now;
    pthread_mutex_unlock(&states->lock);
    if (old_op)
        old_op->cpu.release(old_state);
}
