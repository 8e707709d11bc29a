// Computes a fused element-wise op in tiles that fit the cache, member by member, with each op's own kernel.
//
// The result is treated as a table of rows: an input covers the whole table, one row, one column or one element. A tile
// is a range of rows; values between members are kept in registers: blocks of scratch memory that are reused once no
// member needs them. A result goes straight to its memory, unless that is an input's memory which a later member still
// reads: then it stays in its register until all members have seen the tile. The team's threads share the tiles. If an
// input broadcasts in another way, every member is computed as a whole. The kernels are those of the ops, so the
// results are bit-identical.
#include "engine/cpu/fusion.h"

#include <stdatomic.h>

enum {
    TILE_BYTES = 65536,    // of a value of the widest type; several fit into the second-level cache
    WIDEST_ROW = 65536,    // elements; a longer row does not fit a tile
    PARALLEL_FROM = 32768, // elements
};

typedef enum layout { WHOLE_TABLE, ONE_ROW, ONE_COLUMN, ONE_ELEMENT } layout;

typedef struct member {
    const mu_node *node;
    mu_kernel_run *run;
    int slot;      // register number
    size_t offset; // without tiles: offset of the value in scratch memory
} member;

// The arguments of a member's kernel; each part has its own.
typedef struct call {
    mu_kernel kernel;
    mu_view in[MU_FUSION_OPERANDS], out;
} call;

typedef struct fusion {
    const mu_graph *body;
    int n, n_in, first; // nodes of the body; inputs of the node; the first node of the body that is not an input
    bool tiled;
    int64_t rows, width, tile_rows;
    int n_registers, n_parts; // registers per part; parts, one per thread
    int home;                 // register that may use the only output's memory; -1: none
    size_t register_bytes;
    layout layouts[MU_FUSION_NODES];
    member members[MU_FUSION_NODES];
    mu_spec specs[MU_FUSION_NODES];
    call *calls; // [parts][n - first]
} fusion;

// ---- Preparing ----------------------------------------------------------------------------------

static bool ones(const mu_shape *shape, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (shape->dims[i] != 1)
            return false;
    return true;
}

// The layout of an input if rows end at axis `split` of the result; returns false if it fits no layout.
static bool layout_at(const mu_shape *in, const mu_shape *out, int split, layout *found)
{
    mu_shape padded = {.rank = out->rank};
    for (int i = 0; i < out->rank; i++)
        padded.dims[i] = i < out->rank - in->rank ? 1 : in->dims[i - (out->rank - in->rank)];
    const bool upper = memcmp(padded.dims, out->dims, sizeof *padded.dims * (size_t)split) == 0;
    const bool lower =
        memcmp(padded.dims + split, out->dims + split, sizeof *padded.dims * (size_t)(out->rank - split)) == 0;
    if (in->rank > out->rank)
        return false;
    if (upper && lower)
        *found = WHOLE_TABLE;
    else if (lower && ones(&padded, 0, split))
        *found = ONE_ROW;
    else if (upper && ones(&padded, split, out->rank))
        *found = ONE_COLUMN;
    else if (ones(&padded, 0, out->rank))
        *found = ONE_ELEMENT;
    else
        return false;
    return true;
}

static bool split_at(fusion *c, int split)
{
    const mu_shape *out = &c->specs[c->n - 1].shape;
    for (int i = 0; i < c->first; i++)
        if (!layout_at(&c->specs[i].shape, out, split, &c->layouts[i]))
            return false;
    c->rows = mu__elements_between(out, 0, split);
    c->width = mu__elements_between(out, split, out->rank);
    return c->width <= WIDEST_ROW && c->width > 0;
}

// Prefers rows of one element; an input may require longer rows.
static bool find_table(fusion *c)
{
    const mu_shape *out = &c->specs[c->n - 1].shape;
    for (int i = c->first; i < c->n; i++)
        if (!mu__shape_equal(&c->specs[i].shape, out))
            return false;
    for (int split = out->rank; split >= 0; split--)
        if (split_at(c, split))
            return true;
    return false;
}

static bool is_result(const fusion *c, int value)
{
    for (size_t k = 0; k < c->body->outputs.n; k++)
        if (c->body->outputs.items[k].node->id == value)
            return true;
    return false;
}

// The last node of the body that reads a value; n for a result.
static int last_use(const fusion *c, int value)
{
    int last = value;
    if (is_result(c, value))
        return c->n;
    for (int i = value + 1; i < c->n; i++)
        for (int k = 0; k < c->body->nodes.items[i]->n_in; k++)
            if (c->body->nodes.items[i]->in[k].node->id == value)
                last = i;
    return last;
}

// Whether a member may write over an operand: its kernel allows it, and no other member needs the operand.
static bool may_replace(const fusion *c, const mu_node *node, int k)
{
    const int operand = node->in[k].node->id;
    int uses = 0;
    for (int i = 0; i < node->n_in; i++)
        uses += node->in[i].node->id == operand;
    return operand >= c->first && uses == 1 && (node->op->in_place >> k & 1) && last_use(c, operand) == node->id &&
           c->specs[operand].dtype == c->specs[node->id].dtype;
}

// A register becomes free after the last member that reads it.
static void assign_registers(fusion *c)
{
    int busy_until[MU_FUSION_NODES] = {0};
    for (int i = c->first; i < c->n; i++) {
        const mu_node *node = c->body->nodes.items[i];
        int r = -1;
        for (int k = 0; k < node->n_in && r < 0; k++)
            if (may_replace(c, node, k))
                r = c->members[node->in[k].node->id].slot;
        if (r < 0)
            for (r = 0; r < c->n_registers && busy_until[r] >= i;)
                r++;
        c->n_registers = MU_MAX(c->n_registers, r + 1);
        busy_until[r] = last_use(c, i);
        c->members[i].slot = r;
    }
    c->home = c->n_in == c->first && c->body->outputs.n == 1 ? c->members[c->n - 1].slot : -1;
    for (int i = c->first; i < c->n; i++) // the output's elements must be as wide as the register's
        if (c->members[i].slot == c->home &&
            mu_dtype_bytes(c->specs[i].dtype) > mu_dtype_bytes(c->specs[c->n - 1].dtype))
            c->home = -1;
}

// The shape of a part of a value with `rows` rows.
static mu_shape piece_shape(const fusion *c, layout how, int64_t rows)
{
    const int64_t r = how == ONE_ROW || how == ONE_ELEMENT ? 1 : rows;
    const int64_t w = how == ONE_COLUMN || how == ONE_ELEMENT ? 1 : c->width;
    return c->width == 1 ? (mu_shape){.rank = 1, .dims = {r}} : (mu_shape){.rank = 2, .dims = {r, w}};
}

static mu_spec piece_spec(const fusion *c, int value, int64_t rows)
{
    return (mu_spec){.dtype = c->specs[value].dtype,
                     .shape = piece_shape(c, value < c->first ? c->layouts[value] : WHOLE_TABLE, rows)};
}

static const mu_team alone = {.n_threads = 1};

// The fast kernel is usable if it needs neither scratch memory nor state, for tiles of every size.
static bool takes_rows(const fusion *c, const mu_node *node, int64_t rows, mu_status *status)
{
    mu_spec in[MU_FUSION_OPERANDS], out = c->tiled ? piece_spec(c, node->id, rows) : c->specs[node->id];
    for (int k = 0; k < node->n_in; k++)
        in[k] = c->tiled ? piece_spec(c, node->in[k].node->id, rows) : c->specs[node->in[k].node->id];
    mu_prepare prepare = {
        .op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = in, .out = &out, .team = &alone};
    *status = node->op->cpu.prepare ? node->op->cpu.prepare(&prepare) : MU_OK;
    const bool takes = *status == MU_OK && !prepare.declined && !prepare.state && prepare.scratch_bytes == 0;
    if (prepare.state && node->op->cpu.release)
        node->op->cpu.release(prepare.state);
    return takes;
}

static mu_status choose_kernels(fusion *c)
{
    for (int i = c->first; i < c->n; i++) {
        const mu_node *node = c->body->nodes.items[i];
        mu_status status = MU_OK;
        bool fast = node->op->cpu.run && takes_rows(c, node, c->tile_rows, &status);
        if (fast && c->tiled)
            fast = takes_rows(c, node, 1, &status);
        MU_TRY(status);
        c->members[i].node = node;
        c->members[i].run = fast ? node->op->cpu.run : node->op->ref;
    }
    return MU_OK;
}

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t plan_tiles(fusion *c, const mu_team *team)
{
    size_t widest = 1;
    for (int i = c->first; i < c->n; i++)
        widest = MU_MAX(widest, mu_dtype_bytes(c->specs[i].dtype));
    c->tile_rows = MU_MIN(MU_MAX((int64_t)(TILE_BYTES / widest) / c->width, 1), MU_MAX(c->rows, 1));
    c->register_bytes = aligned((size_t)(c->tile_rows * c->width) * widest);
    assign_registers(c);
    c->n_parts = c->rows * c->width >= PARALLEL_FROM ? MU_MAX(team->n_threads, 1) : 1;
    return c->register_bytes * (size_t)c->n_registers * (size_t)c->n_parts;
}

static size_t plan_whole(fusion *c)
{
    size_t at = 0;
    for (int i = c->first; i < c->n; i++) {
        c->members[i].offset = at;
        at += aligned(mu__spec_bytes(&c->specs[i]));
    }
    c->n_parts = 1;
    return at;
}

static mu_view view_for(const fusion *c, int value)
{
    const mu_spec spec = c->tiled ? piece_spec(c, value, c->tile_rows) : c->specs[value];
    return (mu_view){.dtype = spec.dtype, .shape = spec.shape};
}

static mu_status make_calls(fusion *c, const mu_team *team)
{
    const int n = c->n - c->first;
    c->calls = mu__calloc((size_t)n * (size_t)c->n_parts + 1, sizeof *c->calls);
    if (!c->calls)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n * c->n_parts; i++) {
        const mu_node *node = c->members[c->first + i % n].node;
        call *made = &c->calls[i];
        for (int k = 0; k < node->n_in; k++)
            made->in[k] = view_for(c, node->in[k].node->id);
        made->out = view_for(c, node->id);
        made->kernel = (mu_kernel){.op = node->op,
                                   .attrs = node->attrs,
                                   .n_in = node->n_in,
                                   .n_out = 1,
                                   .in = made->in,
                                   .out = &made->out,
                                   .team = c->tiled ? &alone : team};
    }
    return MU_OK;
}

static mu_status make_fusion(mu_prepare *prepare, fusion *c)
{
    const mu_fusion_attrs *attrs = prepare->attrs;
    c->body = attrs->body;
    c->n = (int)c->body->nodes.n;
    c->n_in = prepare->n_in;
    c->first = (int)c->body->inputs.n;
    MU_TRY(mu__fusion_specs(attrs, prepare->in, c->specs));
    c->tiled = find_table(c);
    prepare->scratch_bytes = c->tiled ? plan_tiles(c, prepare->team) : plan_whole(c);
    MU_TRY(choose_kernels(c));
    return make_calls(c, prepare->team);
}

void mu__fusion_release(void *state)
{
    fusion *c = state;
    if (c)
        mu__free(c->calls);
    mu__free(c);
}

mu_status mu__fusion_prepare(mu_prepare *prepare)
{
    fusion *c = mu__calloc(1, sizeof *c);
    mu_status status = c ? make_fusion(prepare, c) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        prepare->state = c;
    else
        mu__fusion_release(c);
    return status;
}

// ---- Running ------------------------------------------------------------------------------------

// What one run finds out about its memory.
typedef struct run {
    const fusion *c;
    const mu_kernel *kernel;
    bool direct[MU_FUSION_RESULTS]; // the member writes the result's memory
    bool at_home;                   // the home register is in the output
} run;

// A tile: the rows from `begin` on, or the whole result.
typedef struct piece {
    const run *run;
    call *calls;
    char *scratch;
    int64_t begin, end;
} piece;

static const mu_view *result_view(const mu_kernel *kernel, size_t k)
{
    return k < (size_t)kernel->n_out ? &kernel->out[k] : &kernel->resources[k - (size_t)kernel->n_out];
}

static const mu_view *input_view(const run *r, int value)
{
    return value < r->c->n_in ? &r->kernel->in[value] : &r->kernel->resources[value - r->c->n_in];
}

static char *result_at(const piece *p, size_t k)
{
    const mu_view *view = result_view(p->run->kernel, k);
    const int64_t at = p->run->c->tiled ? p->begin * p->run->c->width : 0;
    return (char *)view->data + (size_t)at * mu_dtype_bytes(view->dtype);
}

static char *input_at(const piece *p, int value)
{
    const fusion *c = p->run->c;
    const layout how = c->tiled ? c->layouts[value] : ONE_ELEMENT;
    const int64_t at = how == WHOLE_TABLE ? p->begin * c->width : how == ONE_COLUMN ? p->begin : 0;
    return (char *)input_view(p->run, value)->data + (size_t)at * mu_dtype_bytes(c->specs[value].dtype);
}

static char *address(const piece *p, int value)
{
    const fusion *c = p->run->c;
    if (value < c->first)
        return input_at(p, value);
    for (size_t k = 0; k < c->body->outputs.n; k++)
        if (p->run->direct[k] && c->body->outputs.items[k].node->id == value)
            return result_at(p, k);
    if (!c->tiled)
        return p->scratch + c->members[value].offset;
    const int slot = c->members[value].slot;
    return p->run->at_home && slot == c->home ? result_at(p, 0) : p->scratch + (size_t)slot * c->register_bytes;
}

// Whether a member may write over an input of the whole op: no later member reads it, and its own kernel allows it.
static bool may_write(const fusion *c, int value, int input)
{
    const mu_node *node = c->body->nodes.items[value];
    if (last_use(c, input) > value)
        return false;
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k].node->id == input &&
            (!(node->op->in_place >> k & 1) || c->specs[input].dtype != c->specs[value].dtype))
            return false;
    return true;
}

static bool writes_directly(const run *r, size_t k)
{
    const fusion *c = r->c;
    const int value = c->body->outputs.items[k].node->id;
    for (size_t other = 0; other < k; other++)
        if (c->body->outputs.items[other].node->id == value)
            return false;
    for (int input = 0; input < c->first; input++)
        if (input_view(r, input)->data == result_view(r->kernel, k)->data && !may_write(c, value, input))
            return false;
    return value >= c->first;
}

// Whether the output shares memory with an input, as the planner may decide: then only the last member writes there.
static bool overwrites(const mu_kernel *k)
{
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].data == k->out[0].data)
            return true;
    return false;
}

static run start(const mu_kernel *kernel)
{
    run r = {.c = kernel->state, .kernel = kernel};
    for (size_t k = 0; k < r.c->body->outputs.n; k++)
        r.direct[k] = writes_directly(&r, k);
    r.at_home = r.c->tiled && r.c->home >= 0 && !overwrites(kernel);
    return r;
}

static void copy_result(const piece *p, size_t k)
{
    const fusion *c = p->run->c;
    const mu_view *view = result_view(p->run->kernel, k);
    const int64_t elements = c->tiled ? (p->end - p->begin) * c->width : mu__elements(&view->shape);
    memmove(result_at(p, k), address(p, c->body->outputs.items[k].node->id),
            (size_t)elements * mu_dtype_bytes(view->dtype));
}

// Copies the results that are inputs, and then those that wait in registers, whose memory may be such an input's.
static void copy_results(const piece *p)
{
    const fusion *c = p->run->c;
    for (int from_register = 0; from_register < 2; from_register++)
        for (size_t k = 0; k < c->body->outputs.n; k++)
            if (!p->run->direct[k] && (c->body->outputs.items[k].node->id >= c->first) == from_register)
                copy_result(p, k);
}

static mu_status run_piece(const piece *p)
{
    const fusion *c = p->run->c;
    for (int i = c->first; i < c->n; i++) {
        call *now = &p->calls[i - c->first];
        const mu_node *node = c->members[i].node;
        for (int k = 0; k < node->n_in; k++)
            now->in[k].data = address(p, node->in[k].node->id);
        now->out.data = address(p, i);
        if (c->members[i].run(&now->kernel) != MU_OK) {
            mu__error_add_site(mu__node_site(node));
            return mu_error_code();
        }
    }
    copy_results(p);
    return MU_OK;
}

// Adapts the arguments of a part to tiles of `rows` rows.
static void set_rows(const fusion *c, call *calls, int64_t rows)
{
    for (int i = c->first; i < c->n; i++) {
        call *now = &calls[i - c->first];
        for (int k = 0; k < now->kernel.n_in; k++)
            now->in[k].shape = piece_spec(c, c->members[i].node->in[k].node->id, rows).shape;
        now->out.shape = piece_spec(c, i, rows).shape;
    }
}

typedef struct fusion_job {
    const run *run;
    atomic_int failed;
    mu_error_value *error; // of the first part that failed
} fusion_job;

static void run_tile(fusion_job *job, const piece *p)
{
    mu_error_value error;
    if (run_piece(p) == MU_OK)
        return;
    mu__error_move(&error);
    if (atomic_exchange(&job->failed, 1) == 0)
        *job->error = error;
}

static void run_part(void *arg, int index, int count)
{
    fusion_job *job = arg;
    const fusion *c = job->run->c;
    int64_t begin, end;
    const int64_t tiles = (c->rows + c->tile_rows - 1) / c->tile_rows;
    mu__team_share(tiles, 1, index, count, &begin, &end);
    piece p = {.run = job->run,
               .calls = c->calls + (size_t)index * (size_t)(c->n - c->first),
               .scratch =
                   (char *)job->run->kernel->scratch + c->register_bytes * (size_t)c->n_registers * (size_t)index};
    for (int64_t tile = begin; tile < end && !atomic_load_explicit(&job->failed, memory_order_relaxed); tile++) {
        p.begin = tile * c->tile_rows;
        p.end = MU_MIN(p.begin + c->tile_rows, c->rows);
        const bool cut = p.end - p.begin < c->tile_rows;
        if (cut)
            set_rows(c, p.calls, p.end - p.begin);
        run_tile(job, &p);
        if (cut)
            set_rows(c, p.calls, c->tile_rows);
    }
}

mu_status mu__fusion_run(const mu_kernel *kernel)
{
    const fusion *c = kernel->state;
    const run r = start(kernel);
    mu_error_value error;
    if (mu__elements(&c->specs[c->n - 1].shape) == 0)
        return MU_OK;
    if (!c->tiled) {
        const piece whole = {.run = &r, .calls = c->calls, .scratch = kernel->scratch};
        return run_piece(&whole);
    }
    fusion_job job = {.run = &r, .error = &error};
    atomic_init(&job.failed, 0);
    if (c->n_parts > 1)
        mu__team_run(kernel->team, run_part, &job);
    else
        run_part(&job, 0, 1);
    return atomic_load(&job.failed) ? mu__error_raise(&error) : MU_OK;
}
