// How a chain is computed: in tiles that fit the cache, member after member, with each op's own kernel.
//
// The result's elements are a table of rows: an input is whole, one row for all, one element per row, or one for
// all. A tile is some rows; values between members lie in registers, pieces of scratch memory that are used again as
// soon as nobody needs them. Each thread of the team takes tiles of its own. Where inputs broadcast in another way,
// every member is computed whole. The kernels are those of the ops, so the bits are too.
#include "engine/cpu/chain.h"

#include <stdatomic.h>

enum {
    TILE_BYTES = 16384,       // of a value of the widest type in a chain: several fit into the innermost cache
    WIDEST_ROW = 65536,       // elements; longer ones are no tiles
    PARALLEL_FROM = 32768,    // elements
    OUTPUT = -1, INPUT = -2,  // places of a value that are no registers
};

typedef enum layout { WHOLE_TABLE, ONE_ROW, ONE_COLUMN, ONE_ELEMENT } layout;

typedef struct member {
    const mu_node *node;
    mu_kernel_run *run;
    int place;                // register; OUTPUT of the last
    size_t offset;            // without tiles: of the value in scratch memory
} member;

typedef struct chain {
    const mu_graph *body;
    int n, first;             // nodes of the body; the first that is no input
    bool tiled;
    int64_t rows, width, tile_rows;
    int n_registers, n_parts; // registers of a part; parts: one per thread
    size_t register_bytes;
    layout layouts[MU_CHAIN_NODES];
    member members[MU_CHAIN_NODES];
    mu_spec specs[MU_CHAIN_NODES];
} chain;

// ---- Preparing ----------------------------------------------------------------------------------

static bool ones(const mu_shape *shape, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (shape->dims[i] != 1)
            return false;
    return true;
}

// The layout of an input if rows end at axis `split` of the result; false if it has none of them.
static bool layout_at(const mu_shape *in, const mu_shape *out, int split, layout *found)
{
    mu_shape padded = {.rank = out->rank};
    for (int i = 0; i < out->rank; i++)
        padded.dims[i] = i < out->rank - in->rank ? 1 : in->dims[i - (out->rank - in->rank)];
    const bool upper = memcmp(padded.dims, out->dims, sizeof *padded.dims * (size_t)split) == 0;
    const bool lower = memcmp(padded.dims + split, out->dims + split, sizeof *padded.dims * (size_t)(out->rank - split)) == 0;
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

static bool split_at(chain *c, int split)
{
    const mu_shape *out = &c->specs[c->n - 1].shape;
    for (int i = 0; i < c->first; i++)
        if (!layout_at(&c->specs[i].shape, out, split, &c->layouts[i]))
            return false;
    c->rows = mu__elements_between(out, 0, split);
    c->width = mu__elements_between(out, split, out->rank);
    return c->width <= WIDEST_ROW && c->width > 0;
}

// Rows of one element, unless an input asks for others.
static bool find_table(chain *c)
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

static int last_use(const chain *c, int value)
{
    int last = value;
    for (int i = value + 1; i < c->n; i++)
        for (int k = 0; k < c->body->nodes.items[i]->n_in; k++)
            if (c->body->nodes.items[i]->in[k].node->id == value)
                last = i;
    return last;
}

// A register is free again when the last member that reads it has been computed: a member never writes what it
// reads, because its kernel may not allow that.
static void assign_registers(chain *c)
{
    int busy_until[MU_CHAIN_NODES] = {0};
    for (int i = c->first; i < c->n; i++) {
        int r = 0;
        while (r < c->n_registers && busy_until[r] >= i)
            r++;
        c->n_registers = MU_MAX(c->n_registers, r + 1);
        busy_until[r] = last_use(c, i);
        c->members[i].place = r;
    }
}

// The shape of a piece of a value with `rows` rows.
static mu_shape piece_shape(const chain *c, layout how, int64_t rows)
{
    const int64_t r = how == ONE_ROW || how == ONE_ELEMENT ? 1 : rows;
    const int64_t w = how == ONE_COLUMN || how == ONE_ELEMENT ? 1 : c->width;
    return c->width == 1 ? (mu_shape){.rank = 1, .dims = {r}} : (mu_shape){.rank = 2, .dims = {r, w}};
}

static mu_spec piece_spec(const chain *c, int value, int64_t rows)
{
    return (mu_spec){.dtype = c->specs[value].dtype,
                     .shape = piece_shape(c, value < c->first ? c->layouts[value] : WHOLE_TABLE, rows)};
}

// The fast kernel serves if it needs neither memory nor state, for tiles of every size.
static bool takes_rows(const chain *c, const mu_node *node, int64_t rows, mu_status *status)
{
    static const mu_team alone = {.n_threads = 1};
    mu_spec in[MU_CHAIN_OPERANDS], out = c->tiled ? piece_spec(c, node->id, rows) : c->specs[node->id];
    for (int k = 0; k < node->n_in; k++)
        in[k] = c->tiled ? piece_spec(c, node->in[k].node->id, rows) : c->specs[node->in[k].node->id];
    mu_prepare prepare = {.op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = in, .out = &out,
                          .team = &alone};
    *status = node->op->cpu.prepare ? node->op->cpu.prepare(&prepare) : MU_OK;
    const bool takes = *status == MU_OK && !prepare.declined && !prepare.state && prepare.scratch_bytes == 0;
    if (prepare.state && node->op->cpu.release)
        node->op->cpu.release(prepare.state);
    return takes;
}

static mu_status choose_kernels(chain *c)
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

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t plan_tiles(chain *c, const mu_team *team)
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

static size_t plan_whole(chain *c)
{
    size_t at = 0;
    for (int i = c->first; i < c->n; i++) {
        c->members[i].offset = at;
        at += aligned(mu__spec_bytes(&c->specs[i]));
    }
    return at;
}

static mu_status make_chain(mu_prepare *prepare, chain *c)
{
    const mu_graph *body = ((const mu_chain_attrs *)prepare->attrs)->body;
    c->body = body;
    c->n = (int)body->nodes.n;
    c->first = (int)body->inputs.n;
    MU_TRY(mu__chain_specs(body, prepare->in, c->specs));
    c->tiled = find_table(c);
    prepare->scratch_bytes = c->tiled ? plan_tiles(c, prepare->team) : plan_whole(c);
    return choose_kernels(c);
}

mu_status mu__chain_prepare(mu_prepare *prepare)
{
    chain *c = mu__calloc(1, sizeof *c);
    mu_status status = c ? make_chain(prepare, c) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        prepare->state = c;
    else
        mu__free(c);
    return status;
}

void mu__chain_release(void *state)
{
    mu__free(state);
}

// ---- Running ------------------------------------------------------------------------------------

// One run over the rows [begin, end), or over everything.
typedef struct piece {
    const chain *c;
    const mu_kernel *kernel;
    char *scratch;
    int64_t begin, end;
} piece;

static mu_view view_of(const piece *p, int value)
{
    const chain *c = p->c;
    const bool input = value < c->first;
    if (!c->tiled)
        return (mu_view){.dtype = c->specs[value].dtype, .shape = c->specs[value].shape,
                         .data = input ? p->kernel->in[value].data : p->scratch + c->members[value].offset};
    const mu_spec spec = piece_spec(c, value, p->end - p->begin);
    mu_view view = {.dtype = spec.dtype, .shape = spec.shape};
    if (!input) {
        view.data = p->scratch + (size_t)c->members[value].place * c->register_bytes;
        return view;
    }
    const layout how = c->layouts[value];
    const int64_t at = how == WHOLE_TABLE ? p->begin * c->width : how == ONE_COLUMN ? p->begin : 0;
    view.data = (char *)p->kernel->in[value].data + (size_t)at * mu_dtype_bytes(spec.dtype);
    return view;
}

static mu_view output_of(const piece *p)
{
    mu_view view = view_of(p, p->c->n - 1);
    const size_t at = p->c->tiled ? (size_t)(p->begin * p->c->width) * mu_dtype_bytes(view.dtype) : 0;
    view.data = (char *)p->kernel->out[0].data + at;
    return view;
}

// The last member writes the result at once, unless it would overwrite what it may not read and write.
static bool may_write(const mu_kernel *k, const mu_view *out)
{
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].data == out->data && (!(k->op->in_place >> i & 1) || k->in[i].dtype != out->dtype))
            return false;
    return true;
}

static mu_status run_piece(const piece *p)
{
    static const mu_team alone = {.n_threads = 1};
    const chain *c = p->c;
    for (int i = c->first; i < c->n; i++) {
        const mu_node *node = c->members[i].node;
        mu_view in[MU_CHAIN_OPERANDS], out = view_of(p, i), result;
        for (int k = 0; k < node->n_in; k++)
            in[k] = view_of(p, node->in[k].node->id);
        mu_kernel kernel = {.op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = in, .out = &out,
                            .team = c->tiled ? &alone : p->kernel->team, .number = p->kernel->number,
                            .replica = p->kernel->replica};
        const bool last = i == c->n - 1;
        bool copies = false;
        if (last) {
            result = output_of(p);
            copies = !may_write(&kernel, &result);
            out.data = copies ? out.data : result.data;
        }
        if (c->members[i].run(&kernel) != MU_OK) {
            mu__error_place(mu__node_site(node));
            return mu_error_code();
        }
        if (copies)
            memcpy(result.data, out.data, (size_t)mu__elements(&out.shape) * mu_dtype_bytes(out.dtype));
    }
    return MU_OK;
}

typedef struct chain_job {
    const chain *c;
    const mu_kernel *kernel;
    atomic_int failed;
    mu_error_value error;    // of the part that failed first
} chain_job;

static void run_part(void *arg, int index, int count)
{
    chain_job *job = arg;
    const chain *c = job->c;
    int64_t begin, end;
    const int64_t tiles = (c->rows + c->tile_rows - 1) / c->tile_rows;
    mu__team_share(tiles, 1, index, count, &begin, &end);
    piece p = {.c = c, .kernel = job->kernel,
               .scratch = (char *)job->kernel->scratch + c->register_bytes * (size_t)c->n_registers * (size_t)index};
    for (int64_t tile = begin; tile < end && !atomic_load_explicit(&job->failed, memory_order_relaxed); tile++) {
        p.begin = tile * c->tile_rows;
        p.end = MU_MIN(p.begin + c->tile_rows, c->rows);
        if (run_piece(&p) == MU_OK)
            continue;
        mu_error_value error;
        mu__error_move(&error);
        if (atomic_exchange(&job->failed, 1) == 0)
            job->error = error;
    }
}

mu_status mu__chain_run(const mu_kernel *kernel)
{
    const chain *c = kernel->state;
    if (mu__elements(&kernel->out[0].shape) == 0)
        return MU_OK;
    if (!c->tiled) {
        const piece whole = {.c = c, .kernel = kernel, .scratch = kernel->scratch};
        return run_piece(&whole);
    }
    chain_job job = {.c = c, .kernel = kernel};
    atomic_init(&job.failed, 0);
    if (c->n_parts > 1)
        mu__team_run(kernel->team, run_part, &job);
    else
        run_part(&job, 0, 1);
    return atomic_load(&job.failed) ? mu__error_raise(&job.error) : MU_OK;
}
