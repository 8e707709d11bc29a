// The ring buffer of prefetched elements and its producer threads; see queue.h.
//
// There are two locks: `order` is held while taking a sequence number and its input, `lock` only around the ring
// itself. So the reader never waits for an input that it does not need yet.
#include "data/stages/queue.h"

#include <pthread.h>

typedef struct queue_slot {
    bool full, end;
    mu_item item;
    mu_error_value error;
} queue_slot;

struct mu_queue {
    const mu_queue_ops *ops;
    void *arg;
    int64_t n_slots;
    queue_slot *slots;
    int n_threads;
    mu_worker **threads;
    pthread_mutex_t order, lock;
    pthread_cond_t not_full, not_empty;
    int64_t taken, given; // sequence numbers
    bool stop;            // closed, or the end was seen
};

// ---- Makers -------------------------------------------------------------------------------------

// Waits for a free slot; -1: stop. Called with `order` held.
static int64_t take_sequence(mu_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (!queue->stop && queue->taken - queue->given >= queue->n_slots)
        pthread_cond_wait(&queue->not_full, &queue->lock);
    int64_t sequence = queue->stop ? -1 : queue->taken++;
    pthread_mutex_unlock(&queue->lock);
    return sequence;
}

static void stop_makers(mu_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->stop = true;
    pthread_cond_broadcast(&queue->not_full);
    pthread_mutex_unlock(&queue->lock);
}

static void put(mu_queue *queue, int64_t sequence, mu_item *item, bool end)
{
    queue_slot *slot = &queue->slots[sequence % queue->n_slots];
    mu__error_move(&slot->error);
    if (slot->error.code != MU_OK)
        mu__item_drop(item);
    pthread_mutex_lock(&queue->lock);
    slot->item = *item;
    slot->end = end;
    slot->full = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

static bool make_one(mu_queue *queue)
{
    mu_item item = {0};
    bool end = false;
    pthread_mutex_lock(&queue->order);
    int64_t sequence = take_sequence(queue);
    mu_pool *pool = sequence >= 0 ? mu_pool_open() : NULL;
    mu_status status = pool != NULL ? queue->ops->take(queue->arg, &item, &end) : MU_RESOURCE_EXHAUSTED;
    if (end)
        stop_makers(queue);
    pthread_mutex_unlock(&queue->order);
    if (sequence < 0)
        return false;
    if (status == MU_OK && !end && queue->ops->make != NULL)
        queue->ops->make(queue->arg, &item);
    mu_pool_close(pool);
    put(queue, sequence, &item, end);
    return !end;
}

static void make_all(void *arg)
{
    while (make_one(arg))
        continue;
}

// ---- The reader ---------------------------------------------------------------------------------

static mu_status wait_filled(mu_queue *queue, const queue_slot *slot, int64_t deadline_ns)
{
    while (!slot->full) {
        const bool late = !mu__condition_wait(&queue->not_empty, &queue->lock, deadline_ns);
        MU_TRY(mu__check_stop());
        if (late)
            return mu__error(MU_DEADLINE_EXCEEDED,
                             "%s has made no element for %g s; raise MUSTER_TIMEOUT if it may take longer",
                             queue->ops->name, mu__setting_real(MU_SETTING_TIMEOUT));
    }
    return MU_OK;
}

mu_status mu__queue_get(mu_queue *queue, mu_item *item, bool *end)
{
    queue_slot *slot = &queue->slots[queue->given % queue->n_slots];
    int64_t deadline_ns = mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT));
    pthread_mutex_lock(&queue->lock);
    mu_status status = wait_filled(queue, slot, deadline_ns);
    mu_error_value error = {0};
    if (status == MU_OK) {
        *item = slot->item;
        *end = slot->end;
        error = slot->error;
        *slot = (queue_slot){0};
        queue->given++;
        pthread_cond_signal(&queue->not_full);
    }
    pthread_mutex_unlock(&queue->lock);
    return status != MU_OK ? status : mu__error_raise(&error);
}

// ---- Opening and closing ------------------------------------------------------------------------

static void locks_init(mu_queue *queue)
{
    pthread_mutex_init(&queue->order, NULL);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->not_full, NULL);
    mu__condition_init(&queue->not_empty);
}

mu_queue *mu__queue_open(const mu_queue_ops *ops, void *arg, int64_t n_slots, int n_threads)
{
    mu_queue *queue = mu__calloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    queue->ops = ops;
    queue->arg = arg;
    queue->n_slots = n_slots;
    locks_init(queue);
    queue->slots = mu__calloc((size_t)n_slots, sizeof *queue->slots);
    queue->threads = mu__calloc((size_t)n_threads, sizeof(mu_worker *));
    bool ok = queue->slots != NULL && queue->threads != NULL;
    while (ok && queue->n_threads < n_threads) {
        mu_worker *thread = mu__worker_new(ops->name, NULL, 0, mu__runtime());
        ok = thread != NULL && mu__worker_post(thread, make_all, queue) == MU_OK;
        if (thread != NULL)
            queue->threads[queue->n_threads++] = thread;
    }
    if (ok)
        return queue;
    mu__queue_close(queue);
    return NULL;
}

void mu__queue_close(mu_queue *queue)
{
    if (queue == NULL)
        return;
    stop_makers(queue);
    for (int i = 0; i < queue->n_threads; i++)
        mu__worker_free(queue->threads[i]);
    for (int64_t i = 0; queue->slots != NULL && i < queue->n_slots; i++)
        mu__item_drop(&queue->slots[i].item);
    pthread_cond_destroy(&queue->not_empty);
    pthread_cond_destroy(&queue->not_full);
    pthread_mutex_destroy(&queue->lock);
    pthread_mutex_destroy(&queue->order);
    mu__free(queue->threads);
    mu__free(queue->slots);
    mu__free(queue);
}
