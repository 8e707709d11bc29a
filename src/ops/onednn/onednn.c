// Implementation of onednn.h on oneDNN's C interface.
//
// Prepare creates the engine, stream, memories and primitives, with scratchpads supplied by the caller. A run binds
// pointers and executes. Independent of ops: the caller chooses what a primitive computes.
#include "ops/onednn/onednn.h"

#include <pthread.h>

enum { MAX_STEPS = 4, MAX_MEMORIES = 16, MAX_ARGS = 8, MAX_CHOSEN = 8, ALIGNMENT = 64 };

typedef struct dnnl_slot {
    dnnl_memory_t memory;
    int operand; // -1: in scratch
    size_t offset;
} dnnl_slot;

typedef struct dnnl_step {
    dnnl_primitive_t primitive;
    int n_args;
    dnnl_exec_arg_t args[MAX_ARGS];
} dnnl_step;

struct mu_dnnl {
    const char *op;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int n_memories, n_steps, n_chosen;
    dnnl_slot memories[MAX_MEMORIES];
    dnnl_step steps[MAX_STEPS];
    dnnl_primitive_desc_t chosen[MAX_CHOSEN];
    size_t scratch_bytes;
    bool declined;
    dnnl_status_t status; // first failure
};

// Records the first failure; returns whether there is none so far.
static bool check(mu_dnnl *dnnl, dnnl_status_t status)
{
    if (dnnl->status == dnnl_success && !dnnl->declined) {
        if (status == dnnl_unimplemented)
            dnnl->declined = true;
        else
            dnnl->status = status;
    }
    return dnnl->status == dnnl_success && !dnnl->declined;
}

// oneDNN selects its instruction set once per process, at most the one MUSTER_ISA allows; its threads are our teams.
static void set_up(void)
{
    static const struct {
        const char *isa;
        dnnl_cpu_isa_t most;
    } limits[] = {{"avx512", dnnl_cpu_isa_avx512_core}, {"avx2", dnnl_cpu_isa_avx2}, {"base", dnnl_cpu_isa_sse41}};
    const char *isa = mu__setting_text(MU_SETTING_ISA);
    for (size_t i = 0; isa && i < MU_COUNT(limits); i++)
        if (strcmp(isa, limits[i].isa) == 0)
            dnnl_set_max_cpu_isa(limits[i].most);
    mu__dnnl_use_teams();
}

static pthread_once_t is_set_up = PTHREAD_ONCE_INIT;

int mu__dnnl_isa(void)
{
    pthread_once(&is_set_up, set_up);
    return (int)dnnl_get_effective_cpu_isa();
}

mu_dnnl *mu__dnnl_new(const char *op)
{
    pthread_once(&is_set_up, set_up);
    mu_dnnl *dnnl = mu__calloc(1, sizeof *dnnl);
    if (!dnnl)
        return NULL;
    dnnl->op = op;
    if (check(dnnl, dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0)))
        check(dnnl, dnnl_stream_create(&dnnl->stream, dnnl->engine, dnnl_stream_default_flags));
    return dnnl;
}

void mu__dnnl_free(void *object)
{
    mu_dnnl *dnnl = object;
    if (!dnnl)
        return;
    for (int i = 0; i < dnnl->n_steps; i++)
        dnnl_primitive_destroy(dnnl->steps[i].primitive);
    for (int i = 0; i < dnnl->n_chosen; i++)
        dnnl_primitive_desc_destroy(dnnl->chosen[i]);
    for (int i = 0; i < dnnl->n_memories; i++)
        dnnl_memory_destroy(dnnl->memories[i].memory);
    if (dnnl->stream)
        dnnl_stream_destroy(dnnl->stream);
    if (dnnl->engine)
        dnnl_engine_destroy(dnnl->engine);
    mu__free(dnnl);
}

// AMX multiplies bfloat16 many times as fast as float32. Without it there is one instruction, which does two products
// for each float32 that a vector holds: AMD's processors start it as often as a multiply-add of float32, Intel's a
// quarter as often, so that it is half as fast. Where even that is missing, oneDNN imitates it in many instructions.
static bool multiplies_bf16(void)
{
    const int isa = mu__dnnl_isa(), amx = dnnl_cpu_isa_avx512_core_amx, dot_products = dnnl_cpu_isa_avx512_core_bf16;
#if defined(__x86_64__)
    return (isa & amx) == amx || ((isa & dot_products) == dot_products && !__builtin_cpu_is("intel"));
#else
    return (isa & amx) == amx || (isa & dot_products) == dot_products;
#endif
}

bool mu__dnnl_type(mu_dtype dtype, dnnl_data_type_t *type)
{
    *type = dtype == MU_BF16 && multiplies_bf16() ? dnnl_bf16 : dnnl_f32;
    return dtype == MU_F32 || dtype == MU_F16 || dtype == MU_BF16;
}

dnnl_memory_desc_t mu__dnnl_layout(mu_dnnl *dnnl, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type,
                                   const dnnl_dim_t *strides)
{
    dnnl_memory_desc_t layout = {0};
    check(dnnl, dnnl_memory_desc_init_by_strides(&layout, rank, dims, type, strides));
    return layout;
}

dnnl_memory_desc_t mu__dnnl_any(mu_dnnl *dnnl, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type)
{
    dnnl_memory_desc_t layout = {0};
    check(dnnl, dnnl_memory_desc_init_by_tag(&layout, rank, dims, type, dnnl_format_tag_any));
    return layout;
}

static dnnl_memory_t add_memory(mu_dnnl *dnnl, int operand, const dnnl_memory_desc_t *layout)
{
    if (!layout || !check(dnnl, dnnl_success))
        return NULL;
    assert(dnnl->n_memories < MAX_MEMORIES);
    dnnl_slot *slot = &dnnl->memories[dnnl->n_memories];
    if (!check(dnnl, dnnl_memory_create(&slot->memory, layout, dnnl->engine, DNNL_MEMORY_NONE)))
        return NULL;
    slot->operand = operand;
    dnnl->n_memories++;
    if (operand < 0) {
        slot->offset = dnnl->scratch_bytes;
        dnnl->scratch_bytes += (dnnl_memory_desc_get_size(layout) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return slot->memory;
}

dnnl_memory_t mu__dnnl_operand(mu_dnnl *dnnl, int operand, const dnnl_memory_desc_t *layout)
{
    return add_memory(dnnl, operand, layout);
}

dnnl_memory_t mu__dnnl_scratch(mu_dnnl *dnnl, const dnnl_memory_desc_t *layout) { return add_memory(dnnl, -1, layout); }

// Attributes of every primitive: scratchpad supplied by the caller, optionally a ReLU after it.
static dnnl_primitive_attr_t make_attributes(mu_dnnl *dnnl, bool relu)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;
    if (check(dnnl, dnnl_primitive_attr_create(&attributes)))
        check(dnnl, dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (relu && check(dnnl, dnnl_post_ops_create(&post)) &&
        check(dnnl, dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f)))
        check(dnnl, dnnl_primitive_attr_set_post_ops(attributes, post));
    if (post)
        dnnl_post_ops_destroy(post);
    return attributes;
}

// Whether an implementation's name begins with `kind`; NULL: whether it is not the reference.
static bool is_of_kind(const_dnnl_primitive_desc_t description, const char *kind)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&name) != dnnl_success)
        return false;
    return kind ? strncmp(name, kind, strlen(kind)) == 0 : strstr(name, "ref") == NULL;
}

// The first implementation of the given kind, or NULL.
static dnnl_primitive_desc_t find_kind(mu_dnnl *dnnl, const_dnnl_op_desc_t operation,
                                       const_dnnl_primitive_attr_t attributes, const_dnnl_primitive_desc_t hint,
                                       const char *kind)
{
    dnnl_primitive_desc_iterator_t each = NULL;
    dnnl_primitive_desc_t found = NULL;
    check(dnnl, dnnl_primitive_desc_iterator_create(&each, operation, attributes, dnnl->engine, hint));
    while (each) {
        found = dnnl_primitive_desc_iterator_fetch(each);
        if (!found || is_of_kind(found, kind))
            break;
        dnnl_primitive_desc_destroy(found);
        found = NULL;
        if (dnnl_primitive_desc_iterator_next(each) != dnnl_success)
            break;
    }
    if (each)
        dnnl_primitive_desc_iterator_destroy(each);
    return found;
}

const_dnnl_primitive_desc_t mu__dnnl_choose_kind(mu_dnnl *dnnl, const_dnnl_op_desc_t operation, bool relu,
                                                 const_dnnl_primitive_desc_t hint, const char *kind)
{
    dnnl_primitive_attr_t attributes = make_attributes(dnnl, relu);
    dnnl_primitive_desc_t found = NULL;
    if (kind && check(dnnl, dnnl_success))
        found = find_kind(dnnl, operation, attributes, hint, kind);
    if (!found && check(dnnl, dnnl_success))
        found = find_kind(dnnl, operation, attributes, hint, NULL);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    if (!found) {
        check(dnnl, dnnl_unimplemented);
        return NULL;
    }
    assert(dnnl->n_chosen < MAX_CHOSEN);
    return dnnl->chosen[dnnl->n_chosen++] = found;
}

const_dnnl_primitive_desc_t mu__dnnl_choose(mu_dnnl *dnnl, const_dnnl_op_desc_t operation, bool relu,
                                            const_dnnl_primitive_desc_t hint)
{
    return mu__dnnl_choose_kind(dnnl, operation, relu, hint, NULL);
}

const dnnl_memory_desc_t *mu__dnnl_wants(mu_dnnl *dnnl, const_dnnl_primitive_desc_t chosen, dnnl_query_t what)
{
    return chosen && check(dnnl, dnnl_success) ? dnnl_primitive_desc_query_md(chosen, what, 0) : NULL;
}

void mu__dnnl_step(mu_dnnl *dnnl, const_dnnl_primitive_desc_t chosen, int n, const dnnl_exec_arg_t *args)
{
    if (!chosen || !check(dnnl, dnnl_success))
        return;
    assert(dnnl->n_steps < MAX_STEPS && n < MAX_ARGS);
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
    dnnl_memory_t scratchpad = mu__dnnl_scratch(dnnl, pad);
    dnnl_step *step = &dnnl->steps[dnnl->n_steps];
    if (!scratchpad || !check(dnnl, dnnl_primitive_create(&step->primitive, chosen)))
        return;
    for (int i = 0; i < n; i++)
        step->args[step->n_args++] = args[i];
    step->args[step->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, scratchpad};
    dnnl->n_steps++;
}

void mu__dnnl_reorder(mu_dnnl *dnnl, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *source = NULL, *target = NULL;
    if (!from || !to || !check(dnnl, dnnl_memory_get_memory_desc(from, &source)) ||
        !check(dnnl, dnnl_memory_get_memory_desc(to, &target)))
        return;
    dnnl_primitive_attr_t attributes = make_attributes(dnnl, false);
    dnnl_primitive_desc_t description = NULL;
    if (check(dnnl, dnnl_success))
        check(dnnl,
              dnnl_reorder_primitive_desc_create(&description, source, dnnl->engine, target, dnnl->engine, attributes));
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    if (!description)
        return;
    assert(dnnl->n_chosen < MAX_CHOSEN);
    dnnl->chosen[dnnl->n_chosen++] = description;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    mu__dnnl_step(dnnl, description, 2, args);
}

mu_status mu__dnnl_finish(mu_dnnl *dnnl, mu_prepare *prepare)
{
    const dnnl_status_t status = dnnl->status;
    if (status == dnnl_success && !dnnl->declined) {
        prepare->state = dnnl;
        prepare->scratch_bytes = dnnl->scratch_bytes;
        return MU_OK;
    }
    const char *op = dnnl->op;
    mu__dnnl_free(dnnl);
    if (status == dnnl_out_of_memory)
        return mu__error(MU_RESOURCE_EXHAUSTED, "%s: oneDNN found no memory for its primitive", op);
    mu__log(MU_LOG_INFO, "%s: oneDNN has no fast code for these types and shapes; slower loops run instead", op);
    prepare->declined = true;
    return MU_OK;
}

mu_status mu__dnnl_run(const mu_kernel *kernel) { return mu__dnnl_run_from(kernel, 0); }

// A kernel without scratch memory has slots of no bytes there.
static void *scratch_at(const mu_kernel *kernel, size_t offset)
{
    return kernel->scratch ? (char *)kernel->scratch + offset : NULL;
}

mu_status mu__dnnl_run_from(const mu_kernel *kernel, int first)
{
    mu_dnnl *dnnl = kernel->state;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < dnnl->n_memories && status == dnnl_success; i++) {
        const dnnl_slot *slot = &dnnl->memories[i];
        void *data = slot->operand < 0              ? scratch_at(kernel, slot->offset)
                     : slot->operand < kernel->n_in ? kernel->in[slot->operand].data
                                                    : kernel->out[slot->operand - kernel->n_in].data;
        status = dnnl_memory_set_data_handle(slot->memory, data);
    }
    for (int i = first; i < dnnl->n_steps && status == dnnl_success; i++)
        status =
            dnnl_primitive_execute(dnnl->steps[i].primitive, dnnl->stream, dnnl->steps[i].n_args, dnnl->steps[i].args);
    if (status == dnnl_success)
        return MU_OK;
    return mu__error(status == dnnl_out_of_memory ? MU_RESOURCE_EXHAUSTED : MU_INTERNAL,
                     "%s: oneDNN ended with status %d while computing", dnnl->op, (int)status);
}
