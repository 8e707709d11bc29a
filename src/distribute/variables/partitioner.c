// Partitioners: how many parts a variable gets along each axis, with TensorFlow's formulas.
//
// A partitioner divides one axis only. It knows nothing about where parts are placed.
#include "distribute/distribute.h"
#include "distribute/variables/sharded_variable.h"

#include "base/callback.h"

#include <math.h>

enum { BYTES_PER_STRING = 16, MIN_SHARD_BYTES = 256 * 1024 };

typedef enum rule { FIXED, MIN_SIZE, MAX_SIZE, CALLBACK } rule;

struct mu_partitioner {
    mu_object object;
    rule rule;
    int64_t shards;      // FIXED: how many; otherwise at most; 0: no limit
    int64_t shard_bytes; // least or most
    int64_t string_bytes;
    int (*fn)(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg);
    void *arg;
};

static mu_type partitioner_type = {.name = "partitioner"};

// ---- Making them --------------------------------------------------------------------------------

static mu_status need_positive(int64_t number, const char *function, const char *field)
{
    return number >= 1 ? MU_OK
                       : mu__error(MU_INVALID_ARGUMENT, "%s: .%s is %lld; it must be 1 or more", function, field,
                                   (long long)number);
}

// The value of an argument; the default if it is left out. An explicit 0 does not mean the default.
static int64_t or_default(const void *args, const char *field, int position, int64_t number, int64_t value)
{
    return number != 0 || mu__args_text(args, field, position) ? number : value;
}

static mu_partitioner *new_partitioner(const mu_partitioner *like)
{
    mu_partitioner *partitioner = mu__pending() ? NULL : mu__new(&partitioner_type, sizeof *partitioner);
    if (!partitioner)
        return NULL;
    const mu_object object = partitioner->object;
    *partitioner = *like;
    partitioner->object = object;
    return mu__give(partitioner);
}

mu_partitioner *mu_fixed_shards_partitioner_with(const mu_fixed_shards_partitioner_args *given)
{
    static const char *const name = "mu_fixed_shards_partitioner";
    mu_fixed_shards_partitioner_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK ||
        need_positive(args.num_shards, name, "num_shards") != MU_OK)
        return NULL;
    return new_partitioner(&(mu_partitioner){.rule = FIXED, .shards = args.num_shards});
}

mu_partitioner *mu_min_size_partitioner_with(const mu_min_size_partitioner_args *given)
{
    static const char *const name = "mu_min_size_partitioner";
    mu_min_size_partitioner_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    const mu_partitioner made = {
        .rule = MIN_SIZE,
        .shard_bytes = or_default(&args, "min_shard_bytes", 0, args.min_shard_bytes, MIN_SHARD_BYTES),
        .shards = or_default(&args, "max_shards", 1, args.max_shards, 1),
        .string_bytes = or_default(&args, "bytes_per_string", -1, args.bytes_per_string, BYTES_PER_STRING)};
    if (need_positive(made.shard_bytes, name, "min_shard_bytes") != MU_OK ||
        need_positive(made.shards, name, "max_shards") != MU_OK ||
        need_positive(made.string_bytes, name, "bytes_per_string") != MU_OK)
        return NULL;
    return new_partitioner(&made);
}

mu_partitioner *mu_max_size_partitioner_with(const mu_max_size_partitioner_args *given)
{
    static const char *const name = "mu_max_size_partitioner";
    mu_max_size_partitioner_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    const mu_partitioner made = {
        .rule = MAX_SIZE,
        .shard_bytes = args.max_shard_bytes,
        .shards = args.max_shards, // 0, also where it is written: no limit, as TensorFlow's None
        .string_bytes = or_default(&args, "bytes_per_string", -1, args.bytes_per_string, BYTES_PER_STRING)};
    if (need_positive(made.shard_bytes, name, "max_shard_bytes") != MU_OK ||
        need_positive(made.shards == 0 ? 1 : made.shards, name, "max_shards") != MU_OK ||
        need_positive(made.string_bytes, name, "bytes_per_string") != MU_OK)
        return NULL;
    return new_partitioner(&made);
}

mu_partitioner *
mu_partitioner_new(int (*fn)(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg), void *arg)
{
    if (mu__pending())
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_partitioner_new: the function is NULL");
        return NULL;
    }
    return new_partitioner(&(mu_partitioner){.rule = CALLBACK, .fn = fn, .arg = arg});
}

// ---- The formulas -------------------------------------------------------------------------------

// Bytes of all elements together; a double, so that no product overflows.
static double total_bytes(const mu_partitioner *p, const mu_shape *shape, mu_dtype dtype)
{
    const size_t bytes = dtype == MU_STRING ? (size_t)p->string_bytes : mu_dtype_bytes(dtype);
    double total = (double)bytes;
    for (int i = 0; i < shape->rank; i++)
        total *= (double)shape->dims[i];
    return total;
}

static int64_t min_size_count(const mu_partitioner *p, double total, int64_t rows)
{
    const double wanted = ceil(total / (double)p->shard_bytes);
    const int64_t most = MU_MIN(rows, p->shards);
    return MU_MAX(1, wanted < (double)most ? (int64_t)wanted : most);
}

static int64_t max_size_count(const mu_partitioner *p, double total, int64_t rows)
{
    const double row_bytes = rows > 0 ? total / (double)rows : 0;
    const double fit = row_bytes > 0 ? floor((double)p->shard_bytes / row_bytes) : (double)rows;
    const int64_t per_shard = fit < 1 ? 1 : fit < (double)rows ? (int64_t)fit : MU_MAX(rows, 1);
    const int64_t count = rows / per_shard + (rows % per_shard != 0);
    return p->shards > 0 ? MU_MIN(count, p->shards) : count;
}

static int64_t count_of(const mu_partitioner *p, const mu_shape *shape, mu_dtype dtype, int axis)
{
    const int64_t rows = shape->dims[axis];
    if (p->rule == FIXED)
        return MU_MIN(p->shards, rows);
    const double total = total_bytes(p, shape, dtype);
    return p->rule == MIN_SIZE ? min_size_count(p, total, rows) : max_size_count(p, total, rows);
}

static int ask_callback(const mu_partitioner *p, const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK])
{
    const char *before = mu__callback_enter("a partitioner");
    const int n = p->fn(shape, dtype, counts, p->arg);
    mu__callback_leave(before);
    return mu__pending() ? -1 : MU_MIN(MU_MAX(n, 0), MU_MAX_RANK);
}

static mu_status check_call(const mu_shape *shape, mu_dtype dtype)
{
    char text[MU_SHAPE_TEXT];
    MU_TRY(mu__shape_check(shape, "mu_partitioner_call"));
    if (dtype != MU_STRING && !mu__dtype_ok(dtype))
        return mu__error(MU_INVALID_ARGUMENT, "mu_partitioner_call: %d is not an element type", (int)dtype);
    if (!mu__shape_known(shape))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_partitioner_call: the shape %s is not fully known; a partitioner needs every dimension",
                         mu__shape_text(shape, text));
    return MU_OK;
}

int mu_partitioner_call(mu_partitioner *partitioner, const mu_shape *shape, mu_dtype dtype, int axis,
                        int64_t counts[MU_MAX_RANK])
{
    if (mu__pending() || mu__need(partitioner, "mu_partitioner_call: the partitioner") != MU_OK ||
        mu__need(shape, "mu_partitioner_call: the shape") != MU_OK ||
        mu__need(counts, "mu_partitioner_call: the array of counts") != MU_OK || check_call(shape, dtype) != MU_OK ||
        (axis = mu__axis(axis, shape->rank, "mu_partitioner_call")) < 0)
        return -1;
    if (partitioner->rule == CALLBACK)
        return ask_callback(partitioner, shape, dtype, counts);
    for (int i = 0; i < shape->rank; i++)
        counts[i] = i == axis ? count_of(partitioner, shape, dtype, axis) : 1;
    return shape->rank;
}

// ---- For variables ------------------------------------------------------------------------------

static void describe_counts(int n, const int64_t *counts, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)counts[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

int64_t mu__partition_count(mu_partitioner *partitioner, const mu_spec *spec, const char *name)
{
    int64_t counts[MU_MAX_RANK] = {0};
    char text[24 * MU_MAX_RANK];
    if (!partitioner || spec->shape.rank == 0)
        return 1;
    const int n = mu_partitioner_call(partitioner, &spec->shape, spec->dtype, 0, counts);
    if (n < 0)
        return -1;
    bool usable = n > 0 && counts[0] >= 1;
    for (int i = 1; i < n; i++)
        usable &= counts[i] == 1;
    if (usable)
        return MU_MAX(MU_MIN(counts[0], spec->shape.dims[0]), 1); // a variable without rows is one part
    describe_counts(n, counts, text, sizeof text);
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s': the partitioner returned %s; it must return one count per axis, 1 or more for axis 0 and "
              "1 for every other axis",
              name, n > 0 ? text : "no counts");
    return -1;
}
