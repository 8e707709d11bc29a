// Lowerings of cond, while_loop and call to StableHLO: bodies become regions.
//
// Branches use values from outside directly. A loop carries everything that it uses: the number of iterations so far,
// its values, the rows collected, and then the slices and captured tensors, which stay the same.
//
// Where replicas run one program and a body has a collective, all of them must take the same way. If what decides it is
// not surely the same on all (uniform.c), they agree on it before each decision: a branch is taken, or a loop
// continues, only where all want that. A condition with a collective is written in front of the loop and at the end of
// its body.
//
// Which op has failed (mu_emitter.fault) is a further result of control flow with ops inside that may fail: replicas
// that did not agree, and checks, of indices and of the program's own. A loop with a check ends where that has failed,
// since what follows may rely on it; where the body has a collective, on all replicas. So does a loop with a condition
// behind a check, because what has failed may keep the condition true for ever.
#include "graph/passes/uniform.h"
#include "ops/core/lower.h"

static mu_hlo *new_values(mu_emitter *e, size_t n)
{
    mu_hlo *values = mu__calloc(n + 1, sizeof *values);
    if (!values && e->status == MU_OK)
        e->status = MU_RESOURCE_EXHAUSTED;
    return values;
}

// ---- call ---------------------------------------------------------------------------------------

mu_status mu__lower_call(mu_lowering *l)
{
    return l->emitter->body(l->emitter, ((const mu_call_attrs *)l->attrs)->body, l->in, l->out);
}

// ---- cond ---------------------------------------------------------------------------------------

static bool is_joint(const mu_emitter *e, const mu_graph *body) { return e->replicas > 1 && body && body->collective; }

static bool has_checks(const mu_graph *body) { return body && (body->effects & MU_OP_MAY_FAIL); }

// A branch returns what both share, the values that it keeps, and zeros for those of the other branch; if one of them
// may fail, the fault too, which is the operation's last result.
static void write_branch(mu_lowering *l, mu_hlo_operation *operation, const mu_graph *branch, bool is_then)
{
    mu_emitter *e = l->emitter;
    const int shared = (int)((const mu_cond_attrs *)l->attrs)->n_shared, n = (int)branch->outputs.n;
    const int first = is_then ? shared : l->n_out - (n - shared); // of the values that it keeps
    mu_hlo *made = new_values(e, (size_t)n), *results = new_values(e, (size_t)l->n_out + 1);
    const mu_hlo before = e->fault;
    e->enter(e, operation, 0, NULL);
    if (made && results && e->body(e, branch, l->in + 1, made) == MU_OK) {
        for (int i = 0; i < l->n_out; i++)
            results[i] = i < shared ? made[i]
                         : i >= first && i < first + n - shared
                             ? made[shared + i - first]
                             : mu__hlo_fill(e, l->out[i].spec.dtype, &l->out[i].spec.shape, 0);
        results[l->n_out] = e->fault;
        e->leave(e, operation->n_out, results);
    }
    e->fault = before;
    mu__free(made);
    mu__free(results);
}

mu_status mu__lower_cond(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_cond_attrs *attrs = l->attrs;
    const bool joint = is_joint(e, attrs->then) || is_joint(e, attrs->otherwise);
    const bool may_fail = joint || has_checks(attrs->then) || has_checks(attrs->otherwise);
    const mu_hlo predicate = joint && !l->in[0].uniform ? mu__hlo_agree(l, l->in[0]) : l->in[0];
    mu_hlo *out = new_values(e, (size_t)l->n_out + 1);
    if (!out)
        return e->status;
    memcpy(out, l->out, sizeof *out * (size_t)l->n_out);
    out[l->n_out].spec = (mu_spec){.dtype = MU_I64};
    mu_hlo_operation operation = {
        .name = "stablehlo.if", .n_in = 1, .in = &predicate, .n_out = l->n_out + may_fail, .out = out};
    e->open(e, &operation);
    write_branch(l, &operation, attrs->then, true);
    write_branch(l, &operation, attrs->otherwise, false);
    e->close(e, &operation, NULL);
    memcpy(l->out, out, sizeof *out * (size_t)l->n_out);
    if (may_fail)
        e->fault = out[l->n_out];
    mu__free(out);
    return e->status;
}

// ---- while_loop ---------------------------------------------------------------------------------

// What the loop carries, in this order: the count, the carried values, stacks of rows, then the limit, the slices and
// the captured tensors; if it may fail, the fault; and if that is decided before each round, whether there is another.
typedef struct loop_state {
    mu_lowering *l;
    const mu_loop_attrs *attrs;
    int n_carried, n_rows, n_fixed, n;
    bool joint, agreed;        // replicas run a collective in it; and they agree on each round
    bool checked, may_fail;    // ends after a check that fails, in it or before it; has the fault
    bool decides_first;        // each round is decided before its condition's region
    bool *uniform;             // [n_carried] carried values that are the same on all replicas
    mu_hlo *begin, *end, *now; // [n] before the loop, after it, in a region
    mu_hlo *given, *made;      // a body's inputs and outputs
} loop_state;

static void free_state(loop_state *s)
{
    mu__free(s->uniform);
    mu__free(s->begin);
    mu__free(s->end);
    mu__free(s->now);
    mu__free(s->given);
    mu__free(s->made);
}

static mu_hlo *stacks(const loop_state *s, mu_hlo *values) { return values + 1 + s->n_carried; }

static mu_hlo *fixed(const loop_state *s, mu_hlo *values) { return stacks(s, values) + s->n_rows; }

static mu_hlo *fault(const loop_state *s, mu_hlo *values) { return fixed(s, values) + s->n_fixed; }

static mu_hlo *another(const loop_state *s, mu_hlo *values) { return fault(s, values) + 1; }

static mu_status find_uniform(loop_state *s)
{
    const mu_lowering *l = s->l;
    bool *in = mu__calloc((size_t)l->n_in + 1, sizeof *in), decided = false;
    s->uniform = mu__calloc((size_t)s->n_carried + 1, sizeof *s->uniform);
    mu_status status = in && s->uniform ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; in && i < l->n_in; i++)
        in[i] = l->in[i].uniform;
    if (status == MU_OK && s->joint)
        status = mu__uniform_loop(s->attrs, l->n_in, in, s->uniform, NULL, &decided);
    s->agreed = s->joint && (!decided || is_joint(l->emitter, s->attrs->condition));
    s->decides_first = s->agreed || has_checks(s->attrs->condition) || (s->joint && s->checked);
    mu__free(in);
    return status;
}

// A check in the condition counts only if the condition decides.
static mu_hlo condition_holds(loop_state *s, mu_hlo below)
{
    mu_emitter *e = s->l->emitter;
    const mu_hlo before = e->fault;
    mu_hlo wanted = below;
    if (e->body(e, s->attrs->condition, s->given, &wanted) != MU_OK)
        return wanted;
    if (has_checks(s->attrs->condition))
        e->fault = mu__hlo_select(e, below, e->fault, before);
    return mu__hlo_binary(e, "stablehlo.and", below, wanted);
}

// Whether the count is below the limit and the condition, if any, holds; on all replicas, where they agree.
static mu_hlo holds(loop_state *s, const mu_hlo *values)
{
    mu_emitter *e = s->l->emitter;
    const int n_slices = (int)s->attrs->n_slices, n_captured = s->n_fixed - 1 - n_slices;
    const mu_hlo *given = values + 1 + s->n_carried + s->n_rows;
    mu_hlo on = mu__hlo_compare(e, "LT", values[0], given[0]);
    if (s->attrs->condition) {
        memcpy(s->given, values + 1, sizeof *s->given * (size_t)s->n_carried);
        memcpy(s->given + s->n_carried, given + 1 + n_slices, sizeof *s->given * (size_t)n_captured);
        on = condition_holds(s, on);
    }
    if (s->checked && s->joint)
        mu__hlo_share_fault(e);
    if (s->checked)
        on = mu__hlo_binary(e, "stablehlo.and", on, mu__hlo_faultless(e));
    return s->agreed ? mu__hlo_agree(s->l, on) : on;
}

static mu_status make_state(mu_lowering *l, loop_state *s)
{
    mu_emitter *e = l->emitter;
    *s = (loop_state){.l = l, .attrs = l->attrs};
    s->n_carried = (int)s->attrs->n_carried;
    s->n_rows = l->n_out - 1 - s->n_carried;
    s->n_fixed = l->n_in - s->n_carried;
    s->joint = is_joint(e, s->attrs->body) || is_joint(e, s->attrs->condition);
    s->checked = has_checks(s->attrs->body) || has_checks(s->attrs->condition) || (s->attrs->condition && e->failing);
    s->may_fail = s->joint || s->checked || e->failing;
    const mu_status status = find_uniform(s);
    if (status != MU_OK)
        return e->status = status;
    s->n = 1 + s->n_carried + s->n_rows + s->n_fixed + s->may_fail + s->decides_first;
    s->begin = new_values(e, (size_t)s->n);
    s->end = new_values(e, (size_t)s->n);
    s->now = new_values(e, (size_t)s->n);
    s->given = new_values(e, (size_t)l->n_in);
    s->made = new_values(e, (size_t)l->n_out);
    if (e->status != MU_OK)
        return e->status;
    s->begin[0] = mu__hlo_number(e, MU_I64, 0);
    memcpy(s->begin + 1, l->in + 1, sizeof *l->in * (size_t)s->n_carried);
    for (int i = 0; i < s->n_rows; i++) {
        const mu_spec *spec = &l->out[1 + s->n_carried + i].spec;
        stacks(s, s->begin)[i] = mu__hlo_fill(e, spec->dtype, &spec->shape, 0);
    }
    fixed(s, s->begin)[0] = l->in[0];
    memcpy(fixed(s, s->begin) + 1, l->in + 1 + s->n_carried, sizeof *l->in * (size_t)(s->n_fixed - 1));
    for (int i = 0; i < s->n_carried; i++)
        s->begin[1 + i].uniform = s->uniform[i];
    if (s->decides_first)
        *another(s, s->begin) = holds(s, s->begin);
    if (s->may_fail)
        *fault(s, s->begin) = e->fault;
    memcpy(s->end, s->begin, sizeof *s->end * (size_t)s->n);
    return e->status;
}

static void enter(loop_state *s, mu_hlo_operation *operation)
{
    memcpy(s->now, s->begin, sizeof *s->now * (size_t)s->n);
    s->l->emitter->enter(s->l->emitter, operation, s->n, s->now);
    if (s->may_fail)
        s->l->emitter->fault = *fault(s, s->now);
}

// A region that cannot be left is not: the emitter has the error.
static void write_condition(loop_state *s, mu_hlo_operation *operation)
{
    mu_emitter *e = s->l->emitter;
    enter(s, operation);
    const mu_hlo on = s->decides_first ? *another(s, s->now) : holds(s, s->now);
    if (e->status == MU_OK)
        e->leave(e, 1, &on);
}

// The index of this iteration's slices and rows.
static mu_hlo row_index_of(const loop_state *s)
{
    mu_emitter *e = s->l->emitter;
    if (!s->attrs->reverse)
        return s->now[0];
    const mu_hlo left = mu__hlo_binary(e, "stablehlo.subtract", fixed(s, s->now)[0], s->now[0]);
    return mu__hlo_binary(e, "stablehlo.subtract", left, mu__hlo_number(e, MU_I64, 1));
}

// XLA takes no slice of nothing, and writes none, also in a body that never runs.
static mu_hlo slice_at(mu_emitter *e, mu_hlo whole, mu_hlo row_index)
{
    const int64_t rows = whole.spec.shape.dims[0];
    mu_shape shape = whole.spec.shape;
    memmove(shape.dims, shape.dims + 1, sizeof *shape.dims * (size_t)--shape.rank);
    shape.dims[shape.rank] = 0;
    if (rows == 0)
        return mu__hlo_fill(e, whole.spec.dtype, &shape, 0);
    return mu__hlo_reshape(e, mu__hlo_part(e, whole, 0, row_index, 1), &shape);
}

static mu_hlo with_row(mu_emitter *e, mu_hlo stack, mu_hlo row_index, mu_hlo row)
{
    mu_shape shape = stack.spec.shape;
    if (shape.dims[0] == 0)
        return stack;
    shape.dims[0] = 1;
    return mu__hlo_put_part(e, stack, 0, row_index, mu__hlo_reshape(e, row, &shape));
}

static void write_body(loop_state *s, mu_hlo_operation *operation)
{
    mu_emitter *e = s->l->emitter;
    const int n_slices = (int)s->attrs->n_slices, n_own = s->n_carried + n_slices;
    enter(s, operation);
    const mu_hlo row_index = row_index_of(s);
    memcpy(s->given, s->now + 1, sizeof *s->given * (size_t)s->n_carried);
    for (int i = 0; i < n_slices; i++)
        s->given[s->n_carried + i] = slice_at(e, fixed(s, s->now)[1 + i], row_index);
    for (int i = 0; i < n_slices; i++)
        s->given[s->n_carried + i].uniform = fixed(s, s->now)[1 + i].uniform;
    memcpy(s->given + n_own, fixed(s, s->now) + 1 + n_slices, sizeof *s->given * (size_t)(s->n_fixed - 1 - n_slices));
    if (e->body(e, s->attrs->body, s->given, s->made) != MU_OK)
        return;
    s->now[0] = mu__hlo_binary(e, "stablehlo.add", s->now[0], mu__hlo_number(e, MU_I64, 1));
    memcpy(s->now + 1, s->made, sizeof *s->made * (size_t)s->n_carried);
    for (int i = 0; i < s->n_rows; i++)
        stacks(s, s->now)[i] = with_row(e, stacks(s, s->now)[i], row_index, s->made[s->n_carried + i]);
    for (int i = 0; i < s->n_carried; i++)
        s->now[1 + i].uniform = s->uniform[i];
    if (s->decides_first)
        *another(s, s->now) = holds(s, s->now);
    if (s->may_fail)
        *fault(s, s->now) = e->fault;
    if (e->status == MU_OK)
        e->leave(e, s->n, s->now);
}

mu_status mu__lower_loop(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    loop_state s;
    if (make_state(l, &s) == MU_OK) {
        mu_hlo_operation operation = {
            .name = "stablehlo.while", .n_in = s.n, .in = s.begin, .n_out = s.n, .out = s.end};
        e->open(e, &operation);
        write_condition(&s, &operation);
        write_body(&s, &operation);
        e->close(e, &operation, NULL);
        memcpy(l->out, s.end, sizeof *l->out * (size_t)l->n_out);
        if (s.may_fail)
            e->fault = *fault(&s, s.end);
    }
    free_state(&s);
    return e->status;
}
