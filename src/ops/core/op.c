// The table of ops, and mu__apply, the only way to use an op.
//
// While the thread traces, applying an op adds a node to the graph. Otherwise the shape rule checks it and it is
// computed at once: on the device of the scope if that has one for eager ops, else on the calling thread, by the op's
// fast kernel if that accepts the case, else by its plain loops. Open tapes record both. No op is special here.
#include "ops/core/loops.h"

#include "base/type_name.h"
#include "ops/onednn/primitive_cache.h"

static const mu_op *const table[] = {
#define MU_OP(word) &mu_op_##word,
#include "ops/core/ops.def"
};

const mu_op *mu__op_by_name(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return mu__custom_is_name(name) ? mu__custom_by_name(name) : NULL;
}

int mu__op_count(void) { return (int)MU_COUNT(table); }

const mu_op *mu__op_at(int i) { return i >= 0 && i < mu__op_count() ? table[i] : NULL; }

int mu__op_outputs(const mu_op *op, const void *attrs, int n_in)
{
    if (op->attr_outputs)
        return op->attr_outputs(attrs);
    if (op->pure_of)
        return op->n_out + n_in - op->n_in;
    return op->n_out == MU_OUT_AS_IN ? n_in : op->n_out;
}

bool mu__op_is_view(const mu_op *op, const mu_spec *in, const mu_spec *out)
{
    return (op->flags & MU_OP_VIEW) || ((op->flags & MU_OP_VIEW_IF_SAME) && in->dtype == out->dtype &&
                                        mu__shape_known(&in->shape) && mu__shape_equal(&in->shape, &out->shape));
}

bool mu__op_is_part(const mu_op *op, const void *attrs, const mu_spec *in, const mu_spec *out, size_t *offset)
{
    enum { LEAST = 1024, MOST = 64 }; // bytes; largest ratio of the whole to the part
    if (!op->view_at || !op->view_at(attrs, in, out, offset))
        return false;
    const size_t bytes = mu__spec_bytes(out);
    return bytes >= LEAST || mu__spec_bytes(in) / MOST <= bytes;
}

// ---- Eager execution ----------------------------------------------------------------------------

enum { FEW = 8 }; // calls with at most this many inputs and outputs need no allocation

// Everything that one eager call needs.
typedef struct eager_call {
    mu_infer infer;
    mu_kernel kernel;
    mu_spec *in_specs, *out_specs, *resource_specs;
    mu_view *in, *out, *resources;
    mu_buffer **held; // [n_held] resources acquired so far
    int n_held, component;
    void *block;
    bool views; // output 0 shares input 0's bytes, all or a part of them
    mu_spec few_specs[2 * FEW];
    mu_view few_views[2 * FEW];
    mu_buffer *few_held[2 * FEW];
} eager_call;

static mu_status eager_storage(eager_call *call, int n_in, int n_out, int n_resources)
{
    size_t n = (size_t)n_in + (size_t)n_out + (size_t)n_resources;
    mu_spec *specs = call->few_specs;
    mu_view *views = call->few_views;
    call->held = call->few_held;
    if (n > MU_COUNT(call->few_specs)) {
        call->block = mu__calloc(n, sizeof *specs + sizeof *views + sizeof *call->held);
        if (!call->block)
            return MU_RESOURCE_EXHAUSTED;
        views = call->block;
        specs = (mu_spec *)(void *)(views + n);
        call->held = (mu_buffer **)(void *)(specs + n);
    } else {
        memset(specs, 0, n * sizeof *specs);
    }
    call->in_specs = specs;
    call->out_specs = specs + n_in;
    call->resource_specs = specs + n_in + n_out;
    call->in = views;
    call->out = views + n_in;
    call->resources = views + n_in + n_out;
    return MU_OK;
}

static mu_status eager_inputs(eager_call *call, mu_tensor *const *in)
{
    const mu_infer *infer = &call->infer;
    for (int i = 0; i < infer->n_in; i++) {
        if (!in[i]->buffer)
            return mu__error(MU_FAILED_PRECONDITION,
                             "%s: input %d is symbolic and has no elements here. If it is of a function whose trace "
                             "has ended, return it from the function instead of keeping it; if it is of mu_input, call "
                             "a layer on it, such as mu_activation, mu_add_layer or one of your own (mu_layer_new)",
                             infer->op->name, i);
        call->in_specs[i] = mu__spec_of(in[i]);
        call->in[i] = (mu_view){.dtype = in[i]->dtype, .shape = in[i]->shape, .data = (void *)mu__host_read(in[i])};
        if (!call->in[i].data)
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status eager_acquire(eager_call *call, mu_resource *const *resources)
{
    const mu_access access = mu__access_of(call->infer.op->flags);
    call->component = mu__context()->component;
    for (int i = 0; i < call->infer.n_resources; i++) {
        mu_resource *resource = resources[i];
        mu_view *view = &call->resources[i];
        call->resource_specs[i] = resource->spec;
        MU_TRY(resource->kind->acquire(resource, call->component, &mu__host_memory, access, &call->held[i]));
        call->n_held++;
        view->dtype = resource->spec.dtype;
        view->shape = resource->spec.shape;
        view->data = call->held[i]->data;
    }
    return MU_OK;
}

static mu_status eager_commit(const eager_call *call, mu_resource *const *resources)
{
    const mu_access access = mu__access_of(call->infer.op->flags);
    for (int i = 0; access != MU_ACCESS_READ && i < call->n_held; i++)
        MU_TRY(resources[i]->kind->commit(resources[i], call->component, access, call->held[i]));
    return MU_OK;
}

// Makes the output tensors (owned here until the call succeeds) and the kernel's views of them.
static mu_status eager_outputs(eager_call *call, mu_tensor *const *in, mu_tensor **out)
{
    const mu_op *op = call->infer.op;
    for (int i = 0; i < call->infer.n_out; i++) {
        const mu_spec *spec = &call->out_specs[i];
        if (!mu__shape_known(&spec->shape))
            return mu__error(MU_INTERNAL, "%s: the shape rule left output %d unknown for known inputs", op->name, i);
        call->views |= i == 0 && call->infer.n_in > 0 && mu__op_is_view(op, &call->in_specs[0], spec);
        size_t offset = 0;
        call->views |= i == 0 && mu__op_is_part(op, call->infer.attrs, call->in_specs, spec, &offset);
        const bool view = i == 0 && call->views; // nothing is written, and its buffer may be on a device
        out[i] = view ? mu__tensor_view(in[0]->buffer, in[0]->offset + offset, spec->dtype, &spec->shape)
                      : mu__tensor_alloc(spec->dtype, &spec->shape);
        if (!out[i])
            return MU_RESOURCE_EXHAUSTED;
        call->out[i] =
            (mu_view){.dtype = spec->dtype, .shape = spec->shape, .data = view ? NULL : mu__host_write(out[i])};
    }
    return MU_OK;
}

// Runs the op's fast kernel if it accepts this case; `ran` receives whether it did.
static mu_status run_fast(eager_call *call, bool *ran)
{
    const mu_op *op = call->infer.op;
    mu_kernel *kernel = &call->kernel;
    mu_prepare prepare = {.op = op,
                          .attrs = call->infer.attrs,
                          .n_in = call->infer.n_in,
                          .n_out = call->infer.n_out,
                          .in = call->in_specs,
                          .out = call->out_specs,
                          .team = kernel->team};
    void *scratch = NULL;
    mu_status status = op->cpu.prepare && !mu__prepared_take(&prepare) ? op->cpu.prepare(&prepare) : MU_OK;
    *ran = status == MU_OK && !prepare.declined;
    if (*ran && prepare.scratch_bytes > 0 && !(scratch = mu__alloc_data(prepare.scratch_bytes)))
        status = MU_RESOURCE_EXHAUSTED;
    if (*ran && status == MU_OK) {
        kernel->scratch = scratch;
        kernel->state = prepare.state;
        status = op->cpu.run(kernel);
        kernel->scratch = kernel->state = NULL;
    }
    if (scratch)
        mu__free_data(scratch, prepare.scratch_bytes);
    mu__prepared_give(&prepare);
    return status;
}

mu_status mu__run_direct(const mu_kernel *kernel)
{
    const mu_op *op = kernel->op;
    return op->cpu.run && !op->cpu.prepare ? op->cpu.run(kernel) : op->ref(kernel);
}

static mu_status eager_run(eager_call *call)
{
    const mu_op *op = call->infer.op;
    if (call->views)
        return MU_OK;
    bool ran = false;
    const int threads = mu__team_limit(mu__runtime_threads(mu__runtime()));
    mu_status status = op->cpu.run ? run_fast(call, &ran) : MU_OK;
    if (status == MU_OK && !ran)
        status = op->ref(&call->kernel);
    mu__team_unlimit(threads);
    return status;
}

static mu_status eager_run_shared(eager_call *call)
{
    mu_shared_update update;
    mu_status status = mu__shared_begin(&call->kernel, &update);
    if (status == MU_OK && update.runs)
        status = eager_run(call);
    return mu__shared_end(&call->kernel, &update, status);
}

static mu_status apply_eagerly(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                               mu_resource *const *resources, int n_out, mu_tensor **out)
{
    static const mu_team alone = {.n_threads = 1};
    const struct mu_replica *replica = mu__context()->replica;
    eager_call call;
    mu_measured measured = {0};
    call.block = NULL;
    call.n_held = 0;
    call.views = false;
    mu_status status = MU_OK;
    MU_GO(eager_storage(&call, n_in, n_out, n_resources));
    call.infer = (mu_infer){.op = op,
                            .attrs = attrs,
                            .n_in = n_in,
                            .n_out = n_out,
                            .n_resources = n_resources,
                            .in = call.in_specs,
                            .resources = call.resource_specs,
                            .out = call.out_specs};
    call.kernel = (mu_kernel){.op = op,
                              .attrs = attrs,
                              .n_in = n_in,
                              .n_out = n_out,
                              .n_resources = n_resources,
                              .in = call.in,
                              .resources = call.resources,
                              .team = &alone,
                              .measured = &measured,
                              .collective = replica ? replica->collective : NULL,
                              .replica = replica ? replica->id : 0};
    MU_GO(eager_inputs(&call, in));
    if (n_resources > 0)
        MU_GO(eager_acquire(&call, resources));
    MU_GO(mu__infer_call(&call.infer));
    if (op->measure)
        MU_GO(op->measure(&call.kernel, call.out_specs));
    MU_GO(eager_outputs(&call, in, out));
    call.kernel.out = call.out;
    MU_GO(mu__shared(op, n_resources, resources) ? eager_run_shared(&call) : eager_run(&call));
    if (call.n_held > 0)
        MU_GO(eager_commit(&call, resources));
out:
    for (int i = 0; i < call.n_held; i++)
        mu_release(call.held[i]);
    if (measured.block)
        mu__free_data(measured.block, measured.bytes);
    mu__free(call.block);
    for (int i = 0; i < n_out; i++) {
        if (status != MU_OK)
            mu_release(out[i]);
        out[i] = status == MU_OK ? mu__give(out[i]) : NULL;
    }
    return status;
}

// Resources that another process keeps: all of an op's, or none.
static mu_status apply_remotely(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                                mu_resource *const *resources, mu_tensor **out)
{
    for (int i = 1; i < n_resources; i++)
        if (resources[i]->kind != resources[0]->kind)
            return mu__error(MU_FAILED_PRECONDITION,
                             "%s: '%s' is kept by another process, '%s' by this one or a third; one process must keep "
                             "the variables of one op",
                             op->name, resources[resources[0]->kind->apply != NULL ? 0 : i]->name,
                             resources[resources[0]->kind->apply != NULL ? i : 0]->name);
    return resources[0]->kind->apply(op, attrs, n_in, in, n_resources, resources, out);
}

static bool is_remote(int n_resources, mu_resource *const *resources)
{
    for (int i = 0; i < n_resources; i++)
        if (resources[i]->kind->apply != NULL)
            return true;
    return false;
}

// Reads and assignments of a value that is elsewhere in this process need no copy of it on the host.
static mu_status apply_there(const mu_op *op, mu_tensor *const *in, mu_resource *const *resources, mu_tensor **out,
                             bool *done)
{
    const int component = mu__context()->component;
    const mu_resource_kind *kind = op->n_resources == 1 && resources[0] ? resources[0]->kind : NULL;
    *done = false;
    if (kind && kind->assign && op == &mu_op_assign_variable && !resources[0]->shared)
        return kind->assign(resources[0], component, in[0], done);
    if (!kind || !kind->read || op != &mu_op_read_variable)
        return MU_OK;
    MU_TRY(kind->read(resources[0], component, out));
    *done = *out != NULL;
    *out = mu__give(*out);
    return *done && !*out ? mu_error_code() : MU_OK;
}

static mu_status apply_locked(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                              mu_resource *const *resources, int n_out, mu_tensor **out)
{
    mu_context *context = mu__context();
    struct mu_scope *scope = context->scope && context->scope->apply && !context->on_host ? context->scope : NULL;
    bool done = false;
    mu__resources_lock(n_resources, resources);
    mu_status status = apply_there(op, in, resources, out, &done);
    if (status == MU_OK && !done && scope)
        status = scope->apply(scope, op, attrs, n_in, in, n_resources, resources, n_out, out, &done);
    if (status == MU_OK && !done)
        status = apply_eagerly(op, attrs, n_in, in, n_resources, resources, n_out, out);
    mu__resources_unlock(n_resources, resources);
    return status;
}

// ---- Applying an op -----------------------------------------------------------------------------

static mu_status no_tensor(const mu_op *op, int i, const void *given)
{
    const char *name = mu__type_name(given);
    return mu__error(MU_INVALID_ARGUMENT, "%s: input %d is of the kind %s; expected a tensor. %s", op->name, i, name,
                     strcmp(name, "value") == 0      ? "mu_value_tensor and mu_at take the tensors out of a value"
                     : strcmp(name, "variable") == 0 ? "mu_variable_read gives a variable's tensor"
                                                     : "Check what is passed");
}

// Control flow passes resources of any kind on to the ops of its bodies.
static bool works_on(const mu_op *op, const mu_resource_kind *kind)
{
    if (op->resource_kind)
        return strcmp(op->resource_kind, kind->name) == 0;
    return !kind->opaque || (op->flags & MU_OP_CONTROL);
}

mu_status mu__check_resources(const mu_op *op, int n, mu_resource *const *resources)
{
    for (int i = 0; i < n; i++)
        if (!works_on(op, resources[i]->kind))
            return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' is a %s; this op works on a %s", op->name,
                             resources[i]->name, resources[i]->kind->name,
                             op->resource_kind ? op->resource_kind : "variable");
    return MU_OK;
}

static mu_status check_inputs(const mu_op *op, int n_in, mu_tensor *const *in, int n_resources,
                              mu_resource *const *resources)
{
    MU_TRY(mu__check_counts(op, n_in, n_resources)); // before anything is sized by them
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return mu__error(MU_INVALID_ARGUMENT, "%s: input %d of %d is NULL; give a tensor", op->name, i, n_in);
        if (!mu__is(in[i], &mu__tensor_type))
            return no_tensor(op, i, in[i]);
    }
    for (int i = 0; i < n_resources; i++)
        if (!resources[i])
            return mu__error(MU_INVALID_ARGUMENT, "%s: resource %d of %d is NULL; give a variable", op->name, i,
                             n_resources);
    return mu__check_resources(op, n_resources, resources);
}

mu_status mu__apply(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                    mu_resource *const *resources, mu_tensor **out)
{
    int n_out = mu__op_outputs(op, attrs, n_in);
    for (int i = 0; i < n_out; i++)
        out[i] = NULL;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check_inputs(op, n_in, in, n_resources, resources));
    mu_context *context = mu__context();
    if (context->trace)
        MU_TRY(context->trace->add(context->trace, op, attrs, n_in, in, n_resources, resources, out));
    else if (is_remote(n_resources, resources))
        MU_TRY(apply_remotely(op, attrs, n_in, in, n_resources, resources, out));
    else
        MU_TRY(apply_locked(op, attrs, n_in, in, n_resources, resources, n_out, out));
    for (struct mu_tape *tape = context->tape; tape; tape = tape->outer)
        if (!tape->paused)
            MU_TRY(tape->record(tape, op, attrs, n_in, in, n_resources, resources, n_out, out));
    return MU_OK;
}

mu_tensor *mu__apply_n(const mu_op *op, const void *attrs, int n, mu_tensor *const *in)
{
    mu_tensor *out = NULL;
    assert(mu__op_outputs(op, attrs, n) == 1);
    return mu__apply(op, attrs, n, in, 0, NULL, &out) == MU_OK ? out : NULL;
}

mu_tensor *mu__apply1(const mu_op *op, const void *attrs, mu_tensor *a) { return mu__apply_n(op, attrs, 1, &a); }

mu_tensor *mu__apply2(const mu_op *op, const void *attrs, mu_tensor *a, mu_tensor *b)
{
    mu_tensor *in[] = {a, b};
    return mu__apply_n(op, attrs, 2, in);
}

mu_tensor *mu__apply3(const mu_op *op, const void *attrs, mu_tensor *a, mu_tensor *b, mu_tensor *c)
{
    mu_tensor *in[] = {a, b, c};
    return mu__apply_n(op, attrs, 3, in);
}

mu_tensor *mu__grad_of(mu_grad *g, int i) { return g->dys[i] ? g->dys[i] : mu__zeros_like(g->y[i]); }

// ---- Attributes ---------------------------------------------------------------------------------

static void *held_object(const mu_attr_spec *spec, const void *attrs)
{
    void *object = NULL;
    if (spec->kind == MU_ATTR_TENSOR || spec->kind == MU_ATTR_GRAPH)
        memcpy(&object, (const char *)attrs + spec->offset, sizeof object);
    return object;
}

void mu__attrs_retain(const mu_op *op, const void *attrs)
{
    for (const mu_attr_spec *spec = attrs ? op->attrs : NULL; spec && spec->name; spec++)
        mu_retain(held_object(spec, attrs));
}

void mu__attrs_release(const mu_op *op, const void *attrs)
{
    for (const mu_attr_spec *spec = attrs ? op->attrs : NULL; spec && spec->name; spec++)
        mu_release(held_object(spec, attrs));
}
