// Custom ops of a program. Registering one creates an op definition like the built-in ones.
//
// Definitions live as long as the process, because graphs point to them; the list only grows, so it is read without a
// lock. In graphs and between processes such an op is the name "custom/NAME": code is never transferred.
#include "base/callback.h"
#include "ops/core/op.h"

#include <ctype.h>
#include <muster/custom.h>
#include <pthread.h>

#define PREFIX "custom/"
enum { NAME_BYTES = 64, DONE = MU_GRAD_MEMO - 1 }; // DONE: the memo slot that says that the others are filled

typedef struct custom_op {
    mu_op op;
    mu_custom_op custom;
    char name[sizeof PREFIX + NAME_BYTES];
    struct custom_op *next;
} custom_op;

static _Atomic(custom_op *) custom_ops;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

static const custom_op *find_op(const char *name)
{
    const custom_op *entry = atomic_load(&custom_ops);
    while (entry && strcmp(entry->name, name) != 0)
        entry = entry->next;
    return entry;
}

const mu_op *mu__custom_by_name(const char *name)
{
    const custom_op *entry = find_op(name);
    return entry ? &entry->op : NULL;
}

bool mu__custom_is_name(const char *name) { return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0; }

static const custom_op *custom_op_of(const mu_op *op)
{
    return (const custom_op *)(const void *)((const char *)op - offsetof(custom_op, op));
}

// ---- What an op does ----------------------------------------------------------------------------

static mu_status must_say_why(mu_status status, const char *name, const char *what)
{
    if (mu__pending()) {
        mu__error_context("in the %s of %s", what, name); // the user's message may not name the op
        return mu_error_code();
    }
    if (status == MU_OK)
        return MU_OK;
    return mu__error(status, "%s: its %s failed without a message; call mu_fail to give the reason", name, what);
}

static mu_status custom_infer(mu_infer *infer)
{
    const custom_op *entry = custom_op_of(infer->op);
    mu_array in[MU_CUSTOM_INPUTS], out[MU_CUSTOM_OUTPUTS];
    for (int i = 0; i < infer->n_in; i++)
        in[i] = (mu_array){.dtype = infer->in[i].dtype, .shape = infer->in[i].shape};
    for (int i = 0; i < infer->n_out; i++)
        out[i] = in[0];
    mu_status status = MU_OK;
    if (entry->custom.infer)
        MU_CALLBACK("the shape rule of an op", status = entry->custom.infer(in, out, entry->custom.arg));
    MU_TRY(must_say_why(status, entry->name, "shape rule"));
    for (int i = 0; i < infer->n_out; i++) {
        if (!mu__dtype_ok(out[i].dtype))
            return mu__error(MU_INVALID_ARGUMENT, "%s: its shape rule gives output %d the unknown type %d", entry->name,
                             i, (int)out[i].dtype);
        infer->out[i] = (mu_spec){.dtype = out[i].dtype, .shape = out[i].shape};
    }
    return MU_OK;
}

static mu_status custom_ref(const mu_kernel *k)
{
    const custom_op *entry = custom_op_of(k->op);
    mu_array in[MU_CUSTOM_INPUTS], out[MU_CUSTOM_OUTPUTS];
    for (int i = 0; i < k->n_in; i++)
        in[i] = (mu_array){.dtype = k->in[i].dtype, .shape = k->in[i].shape, .data = k->in[i].data};
    for (int i = 0; i < k->n_out; i++)
        out[i] = (mu_array){.dtype = k->out[i].dtype, .shape = k->out[i].shape, .data = k->out[i].data};
    mu_status status;
    MU_CALLBACK("the kernel of an op", status = entry->custom.kernel(in, out, entry->custom.arg));
    return must_say_why(status, entry->name, "kernel");
}

static mu_status check_gradient(const custom_op *entry, const mu_tensor *x, const mu_tensor *dx, int i)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!dx || (dx->dtype == x->dtype && mu__shape_compatible(&dx->shape, &x->shape)))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: its gradient for input %d is %s%s; it must be %s%s", entry->name, i,
                     mu_dtype_name(dx->dtype), mu__shape_text(&dx->shape, seen), mu_dtype_name(x->dtype),
                     mu__shape_text(&x->shape, wanted));
}

// Computes the gradients of all inputs at once, when the first is requested.
static mu_status all_gradients(mu_grad *g)
{
    const custom_op *entry = custom_op_of(g->op);
    mu_tensor *dys[MU_CUSTOM_OUTPUTS];
    for (int i = 0; i < g->n_out; i++)
        if (!(dys[i] = mu__grad_of(g, i)))
            return mu_error_code();
    if (!entry->custom.gradient)
        return mu__error(MU_UNIMPLEMENTED,
                         "%s: it was registered without a gradient; give mu_register_op one, or put mu_stop_gradient "
                         "around the op's inputs",
                         entry->name);
    mu_status status;
    MU_CALLBACK("the gradient of an op", status = entry->custom.gradient(g->x, g->y, dys, g->memo, entry->custom.arg));
    if (mu__pending()) // the caller adds whose gradient failed
        return mu_error_code();
    MU_TRY(must_say_why(status, entry->name, "gradient"));
    for (int i = 0; i < g->n_in; i++)
        MU_TRY(check_gradient(entry, g->x[i], g->memo[i], i));
    g->memo[DONE] = g->y[0];
    return MU_OK;
}

static mu_tensor *custom_grad(mu_grad *g, int i)
{
    return g->memo[DONE] || all_gradients(g) == MU_OK ? g->memo[i] : NULL;
}

// ---- Registering --------------------------------------------------------------------------------

static mu_status check_name(const char *name)
{
    size_t n = 0;
    while (name && n < NAME_BYTES && (isalnum((unsigned char)name[n]) || name[n] == '_'))
        n++;
    if (n > 0 && name[n] == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_register_op: '%.80s' is not a name; take up to %d letters, digits and underscores",
                     name ? name : "", NAME_BYTES - 1);
}

static mu_status check_op(const mu_custom_op *op)
{
    MU_TRY(check_name(op->name));
    if (op->n_in < 1 || op->n_in > MU_CUSTOM_INPUTS || op->n_out < 1 || op->n_out > MU_CUSTOM_OUTPUTS)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_register_op: '%s' has %d inputs and %d outputs; 1 to %d and 1 to %d are possible",
                         op->name, op->n_in, op->n_out, MU_CUSTOM_INPUTS, MU_CUSTOM_OUTPUTS);
    if (!op->kernel)
        return mu__error(MU_INVALID_ARGUMENT, "mu_register_op: '%s' has no kernel; give the function that computes it",
                         op->name);
    return MU_OK;
}

static bool same_op(const mu_custom_op *a, const mu_custom_op *b)
{
    return a->n_in == b->n_in && a->n_out == b->n_out && a->kernel == b->kernel && a->infer == b->infer &&
           a->gradient == b->gradient && a->arg == b->arg && a->has_effect == b->has_effect;
}

static mu_status add_op(const mu_custom_op *op)
{
    custom_op *entry = mu__calloc(1, sizeof *entry);
    if (!entry)
        return MU_RESOURCE_EXHAUSTED;
    entry->custom = *op;
    snprintf(entry->name, sizeof entry->name, PREFIX "%s", op->name);
    entry->custom.name = entry->name + sizeof PREFIX - 1;
    const mu_op filled = {
        .name = entry->name,
        .n_in = op->n_in,
        .n_out = op->n_out,
        .infer = custom_infer,
        .ref = custom_ref,
        .flags = op->has_effect ? MU_OP_EFFECT : 0,
        .grad = custom_grad,
        .no_lowering =
            "a program's own op is a C function; call it outside of the function, or run the function on a CPU device"};
    memcpy(&entry->op, &filled, sizeof filled);
    entry->next = atomic_load(&custom_ops);
    atomic_store(&custom_ops, entry);
    return MU_OK;
}

mu_status mu_register_op_with(const mu_custom_op *args)
{
    mu_custom_op op;
    char name[sizeof PREFIX + NAME_BYTES];
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&op, sizeof op, args, "mu_register_op"));
    MU_TRY(check_op(&op));
    snprintf(name, sizeof name, PREFIX "%s", op.name);
    pthread_mutex_lock(&registering);
    const custom_op *there = find_op(name);
    mu_status status = MU_OK;
    if (!there)
        status = add_op(&op);
    else if (!same_op(&there->custom, &op))
        status = mu__error(MU_ALREADY_EXISTS, "mu_register_op: another op named '%s' is registered; take another name",
                           op.name);
    pthread_mutex_unlock(&registering);
    return status;
}

// ---- Calling ------------------------------------------------------------------------------------

static const mu_op *need_op(const char *name)
{
    char full[sizeof PREFIX + NAME_BYTES];
    if (mu__pending())
        return NULL;
    snprintf(full, sizeof full, PREFIX "%s", name ? name : "");
    const mu_op *op = mu__custom_by_name(full);
    if (!op)
        mu__error(MU_NOT_FOUND, "mu_call_op: no op '%.80s' is registered; call mu_register_op first", name ? name : "");
    return op;
}

mu_status mu_call_op(const char *name, int n_in, mu_tensor *const *in, mu_tensor **out)
{
    const mu_op *op = need_op(name);
    return op ? mu__apply(op, NULL, n_in, in, 0, NULL, out) : mu_error_code();
}

mu_tensor *mu_call_op1(const char *name, int n_in, mu_tensor *const *in)
{
    const mu_op *op = need_op(name);
    mu_tensor *out = NULL;
    if (op && op->n_out != 1)
        mu__error(MU_INVALID_ARGUMENT, "mu_call_op1: '%s' has %d outputs; use mu_call_op", name, op->n_out);
    return op && !mu__pending() && mu__apply(op, NULL, n_in, in, 0, NULL, &out) == MU_OK ? out : NULL;
}
