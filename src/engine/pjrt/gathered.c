// Programs behind gathers: where the host gathers parts of other sizes, the shapes of what follows depend on the size
// of the whole, which a run learns when it gets there. They are compiled for each size, in a bounded cache.
#include "engine/pjrt/pjrt_plan.h"

static bool follows(const mu_pjrt_programs *p, const mu_pjrt_programs *before, int64_t whole)
{
    const int n = before->cut.n_wholes;
    return p->cut.n_wholes == n + 1 && p->cut.wholes[n] == whole &&
           (n == 0 || memcmp(p->cut.wholes, before->cut.wholes, sizeof whole * (size_t)n) == 0);
}

// Frees those programs behind the n-th gather whose last use is longest ago, if there are `most` or more and no run has
// them. Returns whether it has.
static bool free_oldest(mu_pjrt_plan *plan, int n, int64_t most)
{
    mu_pjrt_programs **oldest = NULL;
    int64_t count = 0;
    for (mu_pjrt_programs **at = &plan->behind; *at; at = &(*at)->next) {
        const bool there = (*at)->cut.n_wholes == n;
        count += there;
        if (there && (*at)->users == 0 && (!oldest || (*at)->last_use < (*oldest)->last_use))
            oldest = at;
    }
    if (!oldest || count < most)
        return false;
    mu_pjrt_programs *p = *oldest;
    *oldest = p->next;
    mu__pjrt_programs_free(plan, p);
    return true;
}

static mu_pjrt_programs *find_or_make(mu_pjrt_plan *plan, const mu_pjrt_programs *before, int64_t whole)
{
    mu_pjrt_programs *p = plan->behind;
    while (p && !follows(p, before, whole))
        p = p->next;
    if (p || !(p = mu__pjrt_programs_new(plan, &before->span, before, whole)))
        return p;
    while (free_oldest(plan, p->cut.n_wholes, mu__setting_int(MU_SETTING_PLAN_CACHE)))
        continue;
    p->next = plan->behind;
    plan->behind = p;
    return p;
}

mu_pjrt_programs *mu__pjrt_programs_behind(mu_pjrt_plan *plan, const mu_pjrt_programs *before, int64_t whole)
{
    pthread_mutex_lock(&plan->lock);
    mu_pjrt_programs *p = find_or_make(plan, before, whole);
    if (p) {
        p->users++;
        p->last_use = ++plan->n_uses;
    }
    pthread_mutex_unlock(&plan->lock);
    return p;
}

void mu__pjrt_leave_behind(mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    if (p->cut.n_wholes == 0)
        return;
    pthread_mutex_lock(&plan->lock);
    p->users--;
    pthread_mutex_unlock(&plan->lock);
}

void mu__pjrt_free_behind(mu_pjrt_plan *plan)
{
    while (plan->behind) {
        mu_pjrt_programs *p = plan->behind;
        plan->behind = p->next;
        mu__pjrt_programs_free(plan, p);
    }
}
