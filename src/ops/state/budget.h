// The bytes that a server may keep, in all kinds of objects: variables, rows of embedding tables, gradients of
// accumulators.
//
// Each of them is a holder, so that an allocation that exceeds the budget can name the largest holder of all kinds in
// its error.
#ifndef MU_SRC_OPS_BUDGET_H
#define MU_SRC_OPS_BUDGET_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

struct mu_holder;

typedef struct mu_byte_budget {
    atomic_size_t used;
    size_t limit;
    pthread_mutex_t lock;      // of the list; nothing else is locked under it
    struct mu_holder *holders; // the newest first
} mu_byte_budget;

typedef struct mu_holder {
    const char *kind, *name; // "variable" and its name, which the owner keeps
    mu_byte_budget *budget;  // which outlives the holder; NULL: none, bytes are only added up
    atomic_size_t bytes;     // that it holds
    struct mu_holder *next;
} mu_holder;

enum { MU_HOLDERS_TEXT = 480 };

// mu__budget_init makes a budget without holders. Errors: RESOURCE_EXHAUSTED. mu__budget_end needs all to be gone.
mu_status mu__budget_init(mu_byte_budget *budget, size_t limit);
void mu__budget_end(mu_byte_budget *budget);

// mu__holder_begin lists a holder (budget NULL: nowhere). mu__holder_end takes it out and gives its bytes back; also of
// a zeroed struct. mu__holder_take reserves bytes: false if they are not there; what then fails reports
// mu__holders_largest. mu__holder_give gives some back.
void mu__holder_begin(mu_holder *holder, mu_byte_budget *budget, const char *kind, const char *name);
void mu__holder_end(mu_holder *holder);
bool mu__holder_take(mu_holder *holder, size_t bytes);
void mu__holder_give(mu_holder *holder, size_t bytes);

// mu__holders_largest writes how much is kept, and the largest three with their bytes: "this server keeps 20 of at most
// 24 bytes, the largest variable 'v' 12, accumulator 'a' 8". Returns `text`.
const char *mu__holders_largest(mu_byte_budget *budget, char text[MU_HOLDERS_TEXT]);

#endif
