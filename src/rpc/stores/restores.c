// The times a store went back to a snapshot, and how many acknowledged updates each of them lost. See store.h.
#include "rpc/stores/store.h"

void mu__restores_add(mu_restores *restores, int64_t epoch, int64_t sequence)
{
    if (restores->n == MU_MOST_RESTORES) {
        restores->forgotten = restores->items[0].epoch;
        memmove(restores->items, restores->items + 1, (MU_MOST_RESTORES - 1) * sizeof *restores->items);
        restores->n--;
    }
    restores->items[restores->n++] = (mu_restore){.epoch = epoch, .sequence = sequence};
}

mu_restore *mu__restores_find(mu_restores *restores, int64_t epoch)
{
    for (int i = 0; i < restores->n; i++)
        if (restores->items[i].epoch == epoch)
            return &restores->items[i];
    return NULL;
}

// The first time after the client's epoch that went back further than the client knows of cost it all that lies in
// between. Of the rest, a later time may have cost it more, if that went back even further.
void mu__restores_count(mu_restores *restores, int64_t known, int64_t known_epoch)
{
    for (int i = 0; i < restores->n && known_epoch >= restores->forgotten; i++) {
        mu_restore *at = &restores->items[i];
        if (known_epoch >= at->epoch || known <= at->sequence)
            continue;
        at->lost = MU_MAX(at->lost, MU_MIN(known - at->sequence, MU_STATE_MOST));
        known = at->sequence;
    }
}

void mu__restores_take(mu_restores *restores, const mu_restores *given)
{
    mu_restores taken = *given;
    for (int i = 0; i < taken.n; i++) {
        const mu_restore *own = mu__restores_find(restores, taken.items[i].epoch);
        taken.items[i].lost = own != NULL ? own->lost : 0;
    }
    *restores = taken;
}

// ---- As a value ---------------------------------------------------------------------------------

mu_value *mu__restores_value(const mu_restores *restores)
{
    int64_t numbers[1 + 2 * MU_MOST_RESTORES] = {restores->forgotten};
    for (int i = 0; i < restores->n; i++) {
        numbers[1 + 2 * i] = restores->items[i].epoch;
        numbers[2 + 2 * i] = restores->items[i].sequence;
    }
    return mu__numbers_value(numbers, 1 + 2 * restores->n);
}

static bool can_be(const mu_restores *restores, int64_t epoch)
{
    int64_t before = restores->forgotten;
    bool good = before >= 0;
    for (int i = 0; i < restores->n && good; i++) {
        const mu_restore *at = &restores->items[i];
        good = at->epoch > before && at->sequence >= 0;
        before = at->epoch;
    }
    return good && before < epoch;
}

mu_status mu__restores_of(const mu_value *value, int64_t epoch, mu_restores *out)
{
    const bool is_tensor = value != NULL && value->kind == MU_VALUE_TENSOR;
    const mu_tensor *tensor = is_tensor ? (const mu_tensor *)value->leaf : NULL;
    const int64_t n = tensor != NULL && tensor->shape.rank == 1 ? tensor->shape.dims[0] : 0;
    int64_t numbers[1 + 2 * MU_MOST_RESTORES];
    *out = (mu_restores){0};
    if (n % 2 == 1 && n <= 1 + 2 * MU_MOST_RESTORES) {
        MU_TRY(mu__numbers_of(value, numbers, (int)n));
        out->forgotten = numbers[0];
        out->n = (int)(n / 2);
        for (int i = 0; i < out->n; i++)
            out->items[i] = (mu_restore){.epoch = numbers[1 + 2 * i], .sequence = numbers[2 + 2 * i]};
        if (can_be(out, epoch))
            return MU_OK;
    }
    return mu__error(MU_INVALID_ARGUMENT,
                     "the times that a store went back to snapshots are not an epoch and then at most %d pairs of an "
                     "epoch and a sequence number, in the order of the epochs, all before %lld",
                     MU_MOST_RESTORES, (long long)epoch);
}
