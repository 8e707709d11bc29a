// Who holds how many of the bytes that a server may keep; see budget.h.
#include "ops/state/budget.h"

#include <stdio.h>

enum { NAMED = 3 };

mu_status mu__budget_init(mu_byte_budget *budget, size_t limit)
{
    budget->limit = limit;
    return mu__lock_init(&budget->lock, "a budget of bytes") ? MU_OK : mu_error_code();
}

void mu__budget_end(mu_byte_budget *budget) { pthread_mutex_destroy(&budget->lock); }

void mu__holder_begin(mu_holder *holder, mu_byte_budget *budget, const char *kind, const char *name)
{
    holder->kind = kind;
    holder->name = name;
    holder->budget = budget;
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    holder->next = budget->holders;
    budget->holders = holder;
    pthread_mutex_unlock(&budget->lock);
}

void mu__holder_end(mu_holder *holder)
{
    mu_byte_budget *budget = holder->budget;
    if (!budget)
        return;
    mu__holder_give(holder, holder->bytes);
    pthread_mutex_lock(&budget->lock);
    mu_holder **at = &budget->holders;
    while (*at != holder)
        at = &(*at)->next;
    *at = holder->next;
    pthread_mutex_unlock(&budget->lock);
    holder->budget = NULL;
}

bool mu__holder_take(mu_holder *holder, size_t bytes)
{
    mu_byte_budget *budget = holder->budget;
    size_t used = budget ? atomic_load(&budget->used) : 0;
    do
        if (budget && bytes > budget->limit - MU_MIN(used, budget->limit))
            return false;
    while (budget && !atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    holder->bytes += bytes;
    return true;
}

void mu__holder_give(mu_holder *holder, size_t bytes)
{
    holder->bytes -= bytes;
    if (holder->budget)
        holder->budget->used -= bytes;
}

// The largest but those that were found before, n of them; NULL: there is none. With the lock held.
static const mu_holder *next_largest(const mu_byte_budget *budget, int n, const mu_holder *const *found)
{
    const mu_holder *largest = NULL;
    for (const mu_holder *h = budget->holders; h; h = h->next) {
        bool before = h->bytes == 0;
        for (int k = 0; k < n; k++)
            before |= found[k] == h;
        if (!before && (!largest || h->bytes > largest->bytes))
            largest = h;
    }
    return largest;
}

const char *mu__holders_largest(mu_byte_budget *budget, char text[MU_HOLDERS_TEXT])
{
    const mu_holder *found[NAMED];
    size_t at = (size_t)snprintf(text, MU_HOLDERS_TEXT, "this server keeps %zu of at most %zu bytes",
                                 (size_t)budget->used, budget->limit);
    pthread_mutex_lock(&budget->lock);
    for (int n = 0; n < NAMED && (found[n] = next_largest(budget, n, found)) != NULL; n++)
        at += (size_t)snprintf(text + at, MU_HOLDERS_TEXT - at, "%s%s '%.80s' %zu", n > 0 ? ", " : ", the largest ",
                               found[n]->kind, found[n]->name, (size_t)found[n]->bytes);
    pthread_mutex_unlock(&budget->lock);
    return text;
}
