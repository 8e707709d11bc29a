// How device programs say that an op has failed.
//
// A program carries one number, its fault (mu_emitter.fault), to its end, where the host reads it. In the low bits are
// a position, for example of an element of the indices, and the whole number there, which gets the bits that the
// position leaves: with up to 32,768 positions any int32 fits. A number that does not fit becomes the nearest that
// does.
#include "ops/core/lower.h"
#include "ops/core/plain.h"

static int value_bits(int64_t positions)
{
    int bits = MU_HLO_FAULT_BITS;
    while (bits > 1 && (positions - 1) >> (MU_HLO_FAULT_BITS - bits) > 0)
        bits--;
    return bits;
}

// Values are from -values_end to values_end - 1.
static int64_t values_end(int64_t positions) { return INT64_C(1) << (value_bits(positions) - 1); }

mu_status mu__fault_raise(const mu_fault *fault, int64_t what)
{
    const int64_t end = values_end(fault->positions), value = (what & (2 * end - 1)) - end;
    const mu_status status = fault->raise(fault, what >> value_bits(fault->positions), value);
    if (fault->clamped && (value == -end || value == end - 1))
        mu__error_append("; the number may be even further from 0, a device program does not say more of it");
    return status;
}

// ---- Operations ---------------------------------------------------------------------------------

mu_hlo mu__hlo_faultless(mu_emitter *e) { return mu__hlo_compare(e, "EQ", e->fault, mu__hlo_number(e, MU_I64, 0)); }

// The first position where `fails` is true; none: the highest number of the type.
static mu_hlo first_position(mu_emitter *e, mu_hlo fails, mu_hlo none)
{
    const mu_ints all = {.n = 1};
    const mu_shape *shape = &fails.spec.shape;
    const mu_hlo positions = mu__hlo_iota(e, none.spec.dtype, shape, 0);
    const mu_hlo failed = mu__hlo_select(e, fails, positions, mu__hlo_broadcast_to(e, none, shape));
    return mu__hlo_reduce(e, "stablehlo.minimum", failed, none, &all);
}

// Place and value as one number.
static mu_hlo packed(mu_emitter *e, int64_t positions, mu_hlo position, mu_hlo value)
{
    const double end = (double)values_end(positions);
    value = mu__hlo_convert(e, value, MU_I64);
    value = mu__hlo_binary(e, "stablehlo.maximum", value, mu__hlo_number(e, MU_I64, -end));
    value = mu__hlo_binary(e, "stablehlo.minimum", value, mu__hlo_number(e, MU_I64, end - 1));
    value = mu__hlo_binary(e, "stablehlo.add", value, mu__hlo_number(e, MU_I64, end));
    position = mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_convert(e, position, MU_I64),
                              mu__hlo_number(e, MU_I64, 2 * end));
    return mu__hlo_binary(e, "stablehlo.add", position, value);
}

void mu__hlo_fail(mu_emitter *e, const mu_fault *fault, mu_hlo fails, mu_hlo values)
{
    const mu_shape scalar = {.rank = 0};
    const mu_dtype dtype = fault->positions < INT32_MAX ? MU_I32 : MU_I64;
    mu_hlo position = mu__hlo_number(e, dtype, 0), value = values.id < 0 ? position : values;
    if (fails.spec.shape.rank > 0) {
        const mu_hlo none = mu__hlo_minmax(e, dtype, true);
        position = first_position(e, fails, none);
        fails = mu__hlo_compare(e, "LT", position, none);
    }
    if (value.spec.shape.rank > 0)
        value = mu__hlo_reshape(e, mu__hlo_part(e, value, 0, position, 1), &scalar);
    mu_fault described = *fault;
    described.clamped = 8 * (int)mu_dtype_bytes(value.spec.dtype) > value_bits(fault->positions);
    const double number = (double)e->may_fail(e, &described) * (double)(INT64_C(1) << MU_HLO_FAULT_BITS);
    const mu_hlo what = mu__hlo_binary(e, "stablehlo.add", packed(e, fault->positions, position, value),
                                       mu__hlo_number(e, MU_I64, number));
    const mu_hlo first = mu__hlo_binary(e, "stablehlo.and", fails, mu__hlo_faultless(e));
    e->fault = mu__hlo_select(e, first, what, e->fault);
    e->failing = true;
}

// ---- Checks of integers -------------------------------------------------------------------------

static bool is_wrong(mu_check check, int64_t value, int64_t limit)
{
    switch (check) {
    case MU_CHECK_INDEX: return value < 0 || value >= limit;
    case MU_CHECK_BELOW: return value >= limit;
    case MU_CHECK_NOT_ZERO: return value == 0;
    default: return value < 0;
    }
}

// Finds the first position with a wrong value in a tensor; -1: there is none.
static mu_status find_wrong(const mu_fault *fault, mu_check check, const mu_tensor *tensor, int64_t *position,
                            int64_t *value)
{
    const mu_view view = {.dtype = tensor->dtype, .shape = tensor->shape, .data = (void *)mu__host_read(tensor)};
    const mu_shape *limits = &fault->limits;
    if (!view.data)
        return mu_error_code();
    for (*position = 0; *position < fault->positions; ++*position) {
        *value = mu__read_whole(&view, *position);
        if (is_wrong(check, *value, limits->rank > 0 ? limits->dims[*position % limits->rank] : 0))
            return MU_OK;
    }
    *position = -1;
    return MU_OK;
}

// Whether a check of what is known needs no operation: it holds, or the emitter has the error. A body may never run, so
// what is wrong there is left to the program.
static bool is_decided(mu_emitter *e, const mu_fault *fault, mu_check check, const mu_tensor *known)
{
    int64_t position = -1, value = 0;
    e->status = find_wrong(fault, check, known, &position, &value);
    if (e->status == MU_OK && position >= 0 && !e->in_body)
        e->status = fault->raise(fault, position, value);
    return e->status != MU_OK || position < 0;
}

// Whether each value, [rows, columns], is not below the limit of its column. A type that ends before that has no such
// value: the last one below the limit is its highest then.
static mu_hlo beyond(mu_emitter *e, mu_hlo values, const mu_shape *limits)
{
    mu_hlo columns[MU_MAX_RANK];
    mu_shape column = values.spec.shape;
    column.dims[1] = 1;
    for (int i = 0; i < limits->rank; i++)
        columns[i] = mu__hlo_fill(e, values.spec.dtype, &column, (double)(limits->dims[i] - 1));
    return mu__hlo_compare(e, "GT", values, mu__hlo_concat(e, limits->rank, columns, 1));
}

static mu_hlo wrong_values(mu_emitter *e, mu_check check, mu_hlo values, const mu_shape *limits)
{
    const mu_hlo zero = mu__hlo_fill(e, values.spec.dtype, &values.spec.shape, 0);
    switch (check) {
    case MU_CHECK_INDEX:
        return mu__hlo_binary(e, "stablehlo.or", beyond(e, values, limits), mu__hlo_compare(e, "LT", values, zero));
    case MU_CHECK_BELOW: return beyond(e, values, limits);
    default: return mu__hlo_compare(e, check == MU_CHECK_NOT_ZERO ? "EQ" : "LT", values, zero);
    }
}

void mu__hlo_check(mu_lowering *l, int i, mu_check check, const mu_shape *limits, mu_fault_raise *raise)
{
    static const mu_shape none = {.rank = 0};
    mu_emitter *e = l->emitter;
    const mu_hlo given = l->in[i];
    const mu_fault fault = {
        .raise = raise, .op = l->op, .positions = mu__elements(&given.spec.shape), .limits = limits ? *limits : none};
    if (fault.positions == 0 || e->status != MU_OK)
        return;
    if (given.known && is_decided(e, &fault, check, given.known))
        return;
    const int64_t columns = MU_MAX(fault.limits.rank, 1);
    const mu_shape matrix = MU_SHAPE(fault.positions / columns, columns), flat = MU_SHAPE(fault.positions);
    const mu_dtype dtype = mu_dtype_bytes(given.spec.dtype) < 4 ? MU_I32 : given.spec.dtype;
    const mu_hlo values = mu__hlo_reshape(e, mu__hlo_convert(e, given, dtype), &matrix);
    const mu_hlo wrong = wrong_values(e, check, values, &fault.limits);
    mu__hlo_fail(e, &fault, mu__hlo_reshape(e, wrong, &flat), mu__hlo_reshape(e, values, &flat));
}
