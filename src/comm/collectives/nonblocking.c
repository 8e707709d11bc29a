// Nonblocking collectives: started, waited for, or abandoned.
//
// On one host, ranks post them to a work queue (work_queue.c). Between hosts, a background thread of the rank runs them
// one after the other in the order in which they were started, which is the same on all ranks. Its waits sleep and do
// not spin. A blocking collective first waits until the background thread is idle. Independent of graphs and plans.
#include "comm/collectives/group.h"

static request *at(const member *m, int64_t number) { return &m->queue[number % MU_MAX_REQUESTS]; }

// ---- Background thread --------------------------------------------------------------------------

static void run_request(void *arg)
{
    request *s = arg;
    mu_context context = {0};
    if (mu__context_enter(&context, mu__context()) == MU_OK) {
        (void)mu__group_inside(s->member, &s->call, mu__run_collective_call); // its error is stored in the request
        mu__context_leave(&context, NULL, &s->error);
    } else {
        mu__error_move(&s->error);
    }
    s->end_ns = mu__trace_on() ? mu__now_ns() : 0;
    mu__latch_arrive(&s->done);
}

// The thread may run on all cores, not only on those of the replica that starts it.
static mu_worker *new_background(const member *m)
{
    mu_runtime *runtime = mu__runtime();
    const int n = mu__runtime_threads(runtime);
    int *cpus = mu__calloc((size_t)n, sizeof *cpus);
    char name[16];
    for (int i = 0; cpus != NULL && i < n; i++)
        cpus[i] = mu__runtime_cpu(runtime, i);
    snprintf(name, sizeof name, "mu-comm-%d", m->channel.rank);
    mu_worker *worker = cpus != NULL ? mu__worker_new(name, cpus, n, runtime) : NULL;
    mu__free(cpus);
    return worker;
}

static mu_status post_background(member *m, request *s)
{
    if (m->background == NULL && (m->background = new_background(m)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    atomic_store(&m->calm, true);
    MU_TRY(mu__latch_init(&s->done, 1));
    return mu__worker_post(m->background, run_request, s);
}

static void wait_background(member *m, request *s)
{
    if (!mu__latch_done(&s->done))
        atomic_store(&m->calm, false);
    mu__latch_wait(&s->done, MU_FOREVER, "a collective"); // the collective has its own deadline
}

void mu__requests_settle(member *m)
{
    if (m->background == NULL)
        return;
    for (int64_t number = m->n_ended; number < m->n_started; number++)
        if (at(m, number)->way == REQUEST_BACKGROUND)
            wait_background(m, at(m, number));
    atomic_store(&m->calm, false);
}

// ---- Start, wait, abandon -----------------------------------------------------------------------

static mu_status end_one(member *m)
{
    request *s = at(m, m->n_ended);
    const int64_t number = m->n_ended;
    mu_status status = MU_OK;
    if (s->way == REQUEST_QUEUE) {
        status = mu__work_end(m, s, number);
    } else if (s->way == REQUEST_BACKGROUND) {
        wait_background(m, s);
        status = mu__error_raise(&s->error);
    }
    m->n_ended++;
    if (s->begin_ns != 0 && status == MU_OK)
        mu__span(MU_SPAN_BESIDE, "all_reduce", m->channel.rank - m->group->joined.topology.first_local, s->begin_ns,
                 MU_MAX(s->end_ns, s->begin_ns));
    atomic_store(&m->calm, m->background != NULL && m->n_ended < m->n_started);
    return status;
}

static mu_status start(member *m, request *s, bool soon)
{
    if (mu__work_fits(m, &s->call)) {
        s->way = REQUEST_QUEUE;
        return mu__work_post(m, s, m->n_started);
    }
    if (m->group->joined.topology.hosts > 1 && !soon) {
        s->way = REQUEST_BACKGROUND;
        return post_background(m, s);
    }
    s->way = REQUEST_DONE;
    mu__requests_settle(m);
    const mu_status status = mu__group_inside(m, &s->call, mu__run_collective_call);
    s->end_ns = s->begin_ns != 0 ? mu__now_ns() : 0;
    return status;
}

mu_status mu__member_start(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                           mu_dtype dtype, void *data, int64_t count, bool soon, int64_t *number_started)
{
    member *m = (member *)self;
    if (mu__pending())
        return mu_error_code();
    if (m->queue == NULL && (m->queue = mu__calloc(MU_MAX_REQUESTS, sizeof *m->queue)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (m->n_started - m->n_ended == MU_MAX_REQUESTS)
        MU_TRY(end_one(m));
    request *s = at(m, m->n_started);
    *s = (request){.member = m,
                   .call = {.kind = MU_KIND_ALL_REDUCE,
                            .number = number,
                            .name = name,
                            .reduction = reduction,
                            .dtype = dtype,
                            .data = data,
                            .input = data,
                            .count = count},
                   .begin_ns = mu__trace_on() ? mu__now_ns() : 0};
    if (m->form.hash != 0) {
        s->form = m->form;
        s->call.form = &s->form;
        m->form.hash = 0;
    }
    MU_TRY(start(m, s, soon));
    *number_started = m->n_started++;
    return MU_OK;
}

mu_status mu__member_wait(mu_collective *self, int64_t number_started)
{
    member *m = (member *)self;
    if (mu__pending())
        return mu_error_code();
    while (m->n_ended <= number_started)
        MU_TRY(end_one(m));
    return MU_OK;
}

static mu_status leave_alone(member *m, const mu_collective_call *c)
{
    (void)c;
    return mu__raise_group_error(m->group);
}

// Fails the group first, so that no rank starts to access this rank's memory, and then waits for those that already do.
void mu__member_abandon(mu_collective *self)
{
    member *m = (member *)self;
    mu_error_value cause, echo;
    if (m->n_ended == m->n_started)
        return;
    mu__error_move(&cause);
    mu__group_abort(m->group, &cause);
    mu__requests_settle(m);
    mu__group_inside(m, &(mu_collective_call){.kind = MU_KIND_ALL_REDUCE}, leave_alone);
    mu__error_move(&echo);
    m->n_ended = m->n_started;
    mu__error_raise(&cause);
}

void mu__requests_free(member *m)
{
    mu__worker_free(m->background);
    mu__free(m->queue);
}
