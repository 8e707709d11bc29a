// Walks over broadcast operands; see loops.h.
//
// A team member can start at any output element, so work is divided by elements, whatever the axes are.
#include "ops/core/loops.h"

// Whether, for all operands, axis `inner` of the walk (its newest) and the axis outside it form one longer axis.
static bool joins(const mu_walk *walk, int inner, const int64_t *outer_strides)
{
    for (int i = 0; i < walk->n; i++)
        if (outer_strides[i] != walk->strides[i][inner] * walk->dims[inner])
            return false;
    return true;
}

static void reverse_axes(mu_walk *walk)
{
    for (int a = 0, b = walk->rank - 1; a < b; a++, b--) {
        int64_t dim = walk->dims[a];
        walk->dims[a] = walk->dims[b];
        walk->dims[b] = dim;
        for (int i = 0; i < walk->n; i++) {
            int64_t stride = walk->strides[i][a];
            walk->strides[i][a] = walk->strides[i][b];
            walk->strides[i][b] = stride;
        }
    }
}

void mu__walk_strided(mu_walk *walk, const mu_shape *out, int n, const int64_t (*strides)[MU_MAX_RANK])
{
    assert(n <= MU_WALK_OPERANDS);
    *walk = (mu_walk){.n = n};
    for (int axis = out->rank - 1; axis >= 0; axis--) { // innermost first
        int64_t here[MU_WALK_OPERANDS];
        if (out->dims[axis] == 1)
            continue;
        for (int i = 0; i < n; i++)
            here[i] = strides[i][axis];
        if (walk->rank > 0 && joins(walk, walk->rank - 1, here)) {
            walk->dims[walk->rank - 1] *= out->dims[axis];
            continue;
        }
        walk->dims[walk->rank] = out->dims[axis];
        for (int i = 0; i < n; i++)
            walk->strides[i][walk->rank] = here[i];
        walk->rank++;
    }
    if (walk->rank == 0) {
        walk->rank = 1;
        walk->dims[0] = 1;
    }
    reverse_axes(walk);
}

void mu__walk_make(mu_walk *walk, const mu_shape *out, int n, const mu_view *operands)
{
    int64_t strides[MU_WALK_OPERANDS][MU_MAX_RANK] = {{0}};
    for (int i = 0; i < n; i++) {
        const mu_shape *shape = &operands[i].shape;
        int64_t step = 1;
        for (int axis = shape->rank - 1; axis >= 0; axis--) {
            if (shape->dims[axis] != 1)
                strides[i][axis + out->rank - shape->rank] = step;
            step *= shape->dims[axis];
        }
    }
    mu__walk_strided(walk, out, n, (const int64_t(*)[MU_MAX_RANK])strides);
}

typedef struct walk_job {
    const mu_walk *walk;
    mu_walk_row *row;
    void *arg;
} walk_job;

// Advances the operands' offsets from the end of a row to the next row.
static void next_row(const mu_walk *walk, int64_t *index, int64_t *at)
{
    const int inner = walk->rank - 1;
    for (int i = 0; i < walk->n; i++)
        at[i] -= index[inner] * walk->strides[i][inner];
    index[inner] = 0;
    for (int axis = inner - 1; axis >= 0; axis--) {
        for (int i = 0; i < walk->n; i++)
            at[i] += walk->strides[i][axis];
        if (++index[axis] < walk->dims[axis])
            return;
        for (int i = 0; i < walk->n; i++)
            at[i] -= walk->dims[axis] * walk->strides[i][axis];
        index[axis] = 0;
    }
}

static void walk_range(void *arg, int64_t begin, int64_t end)
{
    const walk_job *job = arg;
    const mu_walk *walk = job->walk;
    const int inner = walk->rank - 1;
    int64_t at[MU_WALK_OPERANDS] = {0}, index[MU_MAX_RANK], rest = begin;
    for (int axis = inner; axis >= 0; axis--) {
        index[axis] = rest % walk->dims[axis];
        rest /= walk->dims[axis];
        for (int i = 0; i < walk->n; i++)
            at[i] += index[axis] * walk->strides[i][axis];
    }
    while (begin < end) {
        const int64_t count = MU_MIN(end - begin, walk->dims[inner] - index[inner]);
        job->row(job->arg, walk, at, begin, count);
        begin += count;
        next_row(walk, index, at);
    }
}

void mu__walk_blocks(const mu_walk *walk, const mu_team *team, int64_t block, mu_walk_row *row, void *arg)
{
    walk_job job = {.walk = walk, .row = row, .arg = arg};
    int64_t n = 1;
    for (int axis = 0; axis < walk->rank; axis++)
        n *= walk->dims[axis];
    mu__share_range(team, n, MU_MAX(1024 / MU_MAX(block, 1), 1), n * block, walk_range, &job);
}

void mu__walk_run(const mu_walk *walk, const mu_team *team, mu_walk_row *row, void *arg)
{
    mu__walk_blocks(walk, team, 1, row, arg);
}

typedef struct range_job {
    int64_t n, grain;
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
} range_job;

static void run_part(void *arg, int index, int count)
{
    const range_job *job = arg;
    int64_t begin, end;
    mu__team_share(job->n, job->grain, index, count, &begin, &end);
    if (begin < end)
        job->fn(job->arg, begin, end);
}

const mu_team *mu__team_for(const mu_team *team, int64_t work)
{
    static const mu_team alone = {.n_threads = 1};
    return work < MU_PARALLEL_FROM ? &alone : team;
}

void mu__share_range(const mu_team *team, int64_t n, int64_t grain, int64_t work,
                     void (*fn)(void *arg, int64_t begin, int64_t end), void *arg)
{
    if (n <= 0)
        return;
    if (mu__team_for(team, work)->n_threads <= 1) {
        fn(arg, 0, n);
        return;
    }
    range_job job = {.n = n, .grain = grain, .fn = fn, .arg = arg};
    mu__team_run(team, run_part, &job);
}
