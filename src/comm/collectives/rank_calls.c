// What a rank calls: each operation of its mu_collective as a call that group.c runs.
//
// A call takes the shapes that its caller gave, ends what was started before it, and is a span of the timeline.
#include "comm/collectives/group.h"

static mu_status collective(mu_collective *self, mu_collective_call *c)
{
    member *m = (member *)self;
    mu_status status = mu_error_code();
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    c->form = m->form.hash != 0 ? &m->form : NULL;
    if (status == MU_OK) {
        mu__requests_settle(m);
        status = mu__group_inside(m, c, mu__run_collective_call);
    }
    m->form.hash = 0;
    if (begin != 0)
        mu__span("comm", mu__kind_name(c->kind), m->channel.rank - m->group->joined.topology.first_local, begin,
                 mu__now_ns());
    return status;
}

mu_status mu__member_all_reduce(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                mu_dtype dtype, void *data, int64_t count)
{
    return collective(self, &(mu_collective_call){.kind = MU_KIND_ALL_REDUCE,
                                                  .number = number,
                                                  .name = name,
                                                  .reduction = reduction,
                                                  .dtype = dtype,
                                                  .data = data,
                                                  .input = data,
                                                  .count = count});
}

mu_status mu__member_all_gather(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                                int64_t count, void *out, const int64_t *counts)
{
    return collective(self, &(mu_collective_call){.kind = MU_KIND_ALL_GATHER,
                                                  .number = number,
                                                  .name = name,
                                                  .dtype = dtype,
                                                  .data = out,
                                                  .input = in,
                                                  .count = count,
                                                  .counts = counts});
}

mu_status mu__member_broadcast(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, void *data,
                               int64_t count, int root)
{
    return collective(self, &(mu_collective_call){.kind = MU_KIND_BROADCAST,
                                                  .number = number,
                                                  .name = name,
                                                  .dtype = dtype,
                                                  .data = data,
                                                  .input = data,
                                                  .count = count,
                                                  .root = root});
}

mu_status mu__collective_barrier(mu_collective *self, int64_t number, const char *name)
{
    return collective(self,
                      &(mu_collective_call){.kind = MU_KIND_BARRIER, .number = number, .name = name, .dtype = MU_U8});
}

mu_status mu__collective_all_to_all(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                    const void *in, void *out, int64_t count)
{
    return collective(self, &(mu_collective_call){.kind = MU_KIND_ALL_TO_ALL,
                                                  .number = number,
                                                  .name = name,
                                                  .dtype = dtype,
                                                  .data = out,
                                                  .input = in,
                                                  .count = count});
}

mu_status mu__collective_reduce_scatter(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                        mu_dtype dtype, const void *in, void *out, int64_t count)
{
    return collective(self, &(mu_collective_call){.kind = MU_KIND_REDUCE_SCATTER,
                                                  .number = number,
                                                  .name = name,
                                                  .reduction = reduction,
                                                  .dtype = dtype,
                                                  .data = out,
                                                  .input = in,
                                                  .count = count});
}

mu_status mu__collective_permute(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                                 void *out, int64_t count, const int64_t *sources)
{
    MU_TRY(collective(self, &(mu_collective_call){.kind = MU_KIND_PERMUTE,
                                                  .number = number,
                                                  .name = name,
                                                  .dtype = dtype,
                                                  .data = out,
                                                  .input = in,
                                                  .count = count,
                                                  .counts = sources}));
    if (sources[self->rank] < 0)
        memset(out, 0, (size_t)count * mu_dtype_bytes(dtype));
    return MU_OK;
}
