// Runs a graph in parts, cut at its collectives, for one of several replicas that cannot run one program: their shapes
// differ, or other processes take part. The host performs the collectives in between, with the ops' own kernels. Before
// it gathers parts of any sizes, the replicas exchange them, as on CPU devices, since the programs behind depend on the
// size of the whole.
#include "engine/pjrt/pjrt_plan.h"
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

static mu_view view_of(const mu_tensor *tensor)
{
    return (mu_view){.dtype = tensor->dtype, .shape = tensor->shape, .data = mu__host_write(tensor)};
}

static mu_kernel kernel_of(const mu_pjrt_lane *lane, const mu_node *node, const mu_view *views)
{
    static const mu_team alone = {.n_threads = 1};
    return (mu_kernel){.op = node->op,
                       .attrs = node->attrs,
                       .n_in = node->n_in,
                       .n_out = node->n_out,
                       .in = views,
                       .out = views + node->n_in,
                       .team = &alone,
                       .collective = lane->args->collective,
                       .number = node->number,
                       .replica = lane->args->replica_id};
}

// Performs a collective on the host, on copies of the values.
static mu_status reduce_on_host(mu_pjrt_lane *lane, const mu_node *node)
{
    const mu_pjrt_programs *p = lane->programs;
    const int n = node->n_in + node->n_out;
    const char *what = lane->plan->graph->name;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    mu_tensor **tensors = mu__calloc((size_t)n + 1, sizeof *tensors);
    mu_view *views = mu__calloc((size_t)n + 1, sizeof *views);
    for (int i = 0; tensors && views && i < n; i++) {
        const int slot = i < node->n_in ? mu__pjrt_slot(p, node->in[i]) : p->cut.first[node->id] + i - node->n_in;
        if (!(tensors[i] = mu__tensor_alloc(p->specs[slot].dtype, &p->specs[slot].shape)))
            goto out;
        views[i] = view_of(tensors[i]);
        if (i < node->n_in)
            MU_GO(mu__pjrt_download(lane->plan->client, lane->slots[slot], &views[i], what));
    }
    if (!tensors || !views)
        goto out;
    const mu_kernel kernel = kernel_of(lane, node, views);
    MU_GO(mu__run_direct(&kernel));
    for (int i = 0; i < node->n_out; i++)
        MU_GO(mu__pjrt_upload((const mu_pjrt_memory_space *)lane->device->memory_space, &views[node->n_in + i], what,
                              &lane->slots[p->cut.first[node->id] + i]));
out:
    for (int i = 0; tensors && i < n; i++)
        mu_release(tensors[i]);
    mu__free(tensors);
    mu__free(views);
    return status;
}

// ---- Gathers of parts of any sizes --------------------------------------------------------------

static void go_on_with(mu_pjrt_run *run, mu_pjrt_programs *programs)
{
    mu__pjrt_leave_behind(run->plan, run->programs);
    run->programs = run->lanes[0].programs = programs;
}

// Goes on with the programs for the size of what is to be gathered, if it is not known yet.
static mu_status learn_whole(mu_pjrt_run *run, const mu_node *node)
{
    const mu_pjrt_programs *p = run->programs;
    const mu_spec *out = &p->specs[p->cut.first[node->id]];
    if (node->op != &mu_op_all_gather || mu__shape_known(&out->shape))
        return MU_OK;
    const mu_spec *in = &p->specs[mu__pjrt_slot(p, node->in[0])];
    const mu_view views[3] = {{.dtype = in->dtype, .shape = in->shape}};
    const mu_kernel kernel = kernel_of(&run->lanes[0], node, views);
    mu_spec measured[2] = {out[0], out[1]};
    MU_TRY(node->op->measure(&kernel, measured));
    const int64_t axis = ((const mu_all_gather_attrs *)node->attrs)->axis;
    mu_pjrt_programs *next = mu__pjrt_programs_behind(run->plan, p, measured[0].shape.dims[axis]);
    if (!next)
        return mu_error_code();
    go_on_with(run, next);
    return MU_OK;
}

// ---- Parts --------------------------------------------------------------------------------------

static mu_status execute(mu_pjrt_run *run, int part)
{
    run->lanes[0].ended = false;
    MU_TRY(mu__pjrt_execute(run, part, 0));
    pj_event *complete = run->complete[0];
    run->complete[0] = NULL;
    MU_TRY(mu__pjrt_await(run->plan->client, complete, run->plan->graph->name));
    run->lanes[0].ended = true;
    return mu__pjrt_check_fault(run);
}

// The replica's id is the last argument of every part.
static mu_status run_all(mu_pjrt_run *run, pj_buffer *id)
{
    mu_pjrt_lane *lane = &run->lanes[0];
    const mu_pjrt_parts *cut = &run->programs->cut;
    const mu_graph *graph = run->plan->graph;
    for (int i = 0; i < cut->n_parts; i++) {
        lane->arguments[cut->parts[i].n_taken] = id;
        MU_TRY(execute(run, i));
        if (cut->parts[i].end == (int)graph->nodes.n)
            break;
        const mu_node *node = graph->nodes.items[cut->parts[i].end];
        MU_TRY(learn_whole(run, node));
        MU_TRY(reduce_on_host(lane, node));
    }
    return MU_OK;
}

// Replicas run in threads of their own here. One that has the old value of a shared variable must have it before the
// first replica replaces it, and the next run of each must see the new value.
static mu_status wait_for_others(const mu_pjrt_plan *plan, mu_collective *collective)
{
    int32_t one = 1;
    if (!plan->writes_shared)
        return MU_OK;
    return collective->all_reduce(collective, plan->graph->n_collectives, "shared variable", MU_REDUCTION_SUM, MU_I32,
                                  &one, 1);
}

static mu_status run_lane(mu_pjrt_run *run, const mu_run_args *args)
{
    mu_pjrt_lane *lane = &run->lanes[0];
    const int32_t number = args->replica_id;
    const mu_view view = {.dtype = MU_I32, .data = (void *)&number};
    pj_buffer *id = NULL;
    MU_TRY(mu__pjrt_lane_begin(lane, args->device, args));
    MU_TRY(wait_for_others(run->plan, args->collective));
    mu_status status =
        mu__pjrt_upload((const mu_pjrt_memory_space *)args->device->memory_space, &view, run->plan->graph->name, &id);
    if (status == MU_OK)
        status = run_all(run, id);
    mu__pjrt_drop(run->plan->client, &id);
    if (status != MU_OK && lane->ended)
        MU_TRY(mu__pjrt_commit_draws(lane));
    MU_TRY(status);
    MU_TRY(mu__pjrt_lane_results(lane));
    MU_TRY(mu__pjrt_commit(lane));
    return wait_for_others(run->plan, args->collective);
}

mu_status mu__pjrt_run_parts(mu_pjrt_plan *whole, const mu_run_args *args)
{
    mu_pjrt_plan *plan = mu__pjrt_plan_for_parts(whole);
    const mu_pjrt_span each = {.replicas = MU_PJRT_ONE_BY_ONE, .partitions = 1, .n_local = 1};
    mu_pjrt_programs *programs = plan ? mu__pjrt_programs(plan, &each) : NULL;
    mu_pjrt_run *run = programs ? mu__pjrt_run_take(plan, programs) : NULL;
    if (!run)
        return mu_error_code();
    run->lanes[0].args = args;
    const mu_status status = run_lane(run, args);
    mu__pjrt_lane_empty(&run->lanes[0]);
    mu__pjrt_lane_end(&run->lanes[0], status);
    go_on_with(run, programs);
    mu__pjrt_run_give(run);
    return status;
}
