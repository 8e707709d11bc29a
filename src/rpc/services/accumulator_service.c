// The accumulators that a server keeps in addition to its variables. Ops on them come as "muster.apply" (service.c);
// making, closing and waiting outside of functions are methods of their own.
//
// In a store a take is a change that begins when enough gradients are there (mu__change_begin_when). Elsewhere it
// occupies its thread, and the server runs another in its place (mu__call_wait_begin), so that the gradients that it
// waits for get through.
#include "rpc/services/service.h"

#include "ops/state/accumulator.h"
#include "rpc/rpc.h"

struct mu_accumulator_list {
    mu_object object;
    pthread_mutex_t lock;
    bool has_lock;
    mu_byte_budget *budget; // of the gradients
    struct {
        mu_accumulator **items;
        size_t n, capacity;
    } all; // retained
};

void mu__accumulators_clear(mu_accumulator_list *list)
{
    pthread_mutex_lock(&list->lock);
    while (list->all.n > 0) {
        mu_accumulator *gone = list->all.items[--list->all.n];
        mu_accumulator_close(gone); // ends the takes that wait
        mu_release(gone);
    }
    pthread_mutex_unlock(&list->lock);
}

static void list_destroy(void *object)
{
    mu_accumulator_list *list = object;
    if (list->has_lock) {
        mu__accumulators_clear(list);
        pthread_mutex_destroy(&list->lock);
    }
    mu__free(list->all.items);
}

static mu_type list_type = {.name = "accumulators of a server", .destroy = list_destroy};

mu_accumulator_list *mu__accumulators_new(mu_byte_budget *budget)
{
    mu_accumulator_list *list = mu__new(&list_type, sizeof *list);
    if (list == NULL)
        return NULL;
    list->budget = budget;
    list->has_lock = mu__lock_init(&list->lock, "accumulators of a server");
    if (list->has_lock)
        return list;
    mu_release(list);
    return NULL;
}

// With the lock held; the number of accumulators if there is none of this name.
static size_t find(const mu_accumulator_list *list, const char *name)
{
    size_t i = 0;
    while (i < list->all.n && strcmp(list->all.items[i]->resource.name, name) != 0)
        i++;
    return i;
}

// Of the pool; NULL without an error: there is none.
static mu_accumulator *find_retained(mu_accumulator_list *list, const char *name)
{
    pthread_mutex_lock(&list->lock);
    const size_t i = find(list, name);
    mu_accumulator *found = i < list->all.n ? mu_retain(list->all.items[i]) : NULL;
    pthread_mutex_unlock(&list->lock);
    return found != NULL ? mu__give(found) : NULL;
}

mu_resource *mu__accumulators_find(mu_accumulator_list *list, const char *kind, const char *name)
{
    mu_accumulator *found = find_retained(list, name);
    return found != NULL && strcmp(found->resource.kind->name, kind) == 0 ? &found->resource : NULL;
}

bool mu__accumulators_forget(mu_accumulator_list *list, const char *name)
{
    pthread_mutex_lock(&list->lock);
    const size_t i = find(list, name);
    mu_accumulator *gone = i < list->all.n ? list->all.items[i] : NULL;
    if (gone != NULL)
        list->all.items[i] = list->all.items[--list->all.n];
    pthread_mutex_unlock(&list->lock);
    if (gone != NULL) {
        mu__change_concerns(gone->resource.name);
        mu_accumulator_close(gone);
    }
    mu_release(gone);
    return gone != NULL;
}

// ---- Making -------------------------------------------------------------------------------------

// [sparse, mean, type, rank (-1: any shape), sizes…] as int64.
static mu_status read_kind(const mu_tensor *numbers, mu_conditional_accumulator_args *args, mu_shape *shape,
                           bool *sparse)
{
    const bool is_list = numbers != NULL && numbers->dtype == MU_I64 && numbers->shape.rank == 1;
    const int64_t n = is_list ? numbers->shape.dims[0] : 0;
    const int64_t *at = n >= 4 ? mu__host_read(numbers) : NULL;
    const int64_t rank = at != NULL ? at[3] : 0;
    if (at == NULL || at[2] < 0 || at[2] > INT32_MAX || rank < -1 || rank > MU_MAX_RANK || n != 4 + MU_MAX(rank, 0))
        return mu__error(MU_INVALID_ARGUMENT, "an accumulator is described by %lld numbers that do not fit together",
                         (long long)n);
    *sparse = at[0] != 0;
    args->reduction_type = at[1] != 0 ? "MEAN" : "SUM";
    args->dtype = (mu_dtype)at[2];
    shape->rank = (int)MU_MAX(rank, 0);
    memcpy(shape->dims, at + 4, sizeof *at * (size_t)shape->rank);
    args->shape = rank >= 0 ? shape : NULL;
    return MU_OK;
}

static mu_status add(mu_accumulator_list *list, mu_accumulator *made)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&list->lock);
    if (find(list, made->resource.name) < list->all.n)
        status =
            mu__error(MU_ALREADY_EXISTS, "this server has an accumulator '%s'; delete it first, or choose another name",
                      made->resource.name);
    else if ((status = mu__accumulator_budget(made, list->budget)) == MU_OK &&
             (status = MU_PUSH(&list->all, made)) == MU_OK)
        mu_retain(made);
    pthread_mutex_unlock(&list->lock);
    return status;
}

mu_value *mu__accumulator_create(mu_value *arguments, void *arg)
{
    mu_conditional_accumulator_args args = {.size = sizeof args};
    mu_shape shape = {0};
    bool sparse = false;
    char *name = NULL;
    if (mu__argument_name(arguments, "an accumulator", &name) != MU_OK)
        return NULL;
    args.name = name;
    if (read_kind(mu_at(arguments, 1), &args, &shape, &sparse) == MU_OK) {
        mu_accumulator *made =
            sparse ? mu_sparse_conditional_accumulator_with(&args) : mu_conditional_accumulator_with(&args);
        if (made != NULL && mu__change_begin() == MU_OK)
            add(mu__service_accumulators(arg), made);
    }
    mu__free(name);
    return NULL;
}

mu_value *mu__accumulator_close(mu_value *arguments, void *arg)
{
    char *name = NULL;
    if (mu__argument_name(arguments, "an accumulator", &name) != MU_OK)
        return NULL;
    mu_accumulator *found = mu__change_begin() == MU_OK ? find_retained(mu__service_accumulators(arg), name) : NULL;
    mu__free(name);
    if (found != NULL) {
        mu__change_concerns(found->resource.name);
        mu_accumulator_close(found);
    }
    return NULL;
}

// ---- Waiting ------------------------------------------------------------------------------------

static mu_value *take_from(mu_accumulator *a, int64_t required, double seconds)
{
    const mu_accumulator_take_grad_args args = {.size = sizeof args,
                                                .accumulator = a,
                                                .timeout_seconds = seconds,
                                                .num_required = (int)MU_MAX(MU_MIN(required, INT32_MAX), INT32_MIN)};
    if (a->sparse)
        return mu_sparse_accumulator_take_grad_with(&args);
    mu_tensor *sum = mu_accumulator_take_grad_with(&args);
    return sum != NULL ? mu_list(sum, MU_END) : NULL;
}

// What a take needs before it begins.
typedef struct wanted {
    mu_accumulator *accumulator;
    int64_t required;
} wanted;

static bool is_ready(void *arg)
{
    const wanted *w = arg;
    return mu__accumulator_ready(w->accumulator, w->required);
}

mu_status mu__accumulator_begin(mu_accumulator *a, int64_t required, double seconds)
{
    wanted w = {.accumulator = a, .required = required};
    const double limit = seconds > 0 ? seconds : mu__setting_real(MU_SETTING_TIMEOUT);
    const mu_status status = mu__change_begin_when(a->resource.name, limit, is_ready, &w);
    if (status != MU_DEADLINE_EXCEEDED)
        return status;
    int64_t seen = 0;
    mu_error_take();
    if (mu__accumulator_count(a, &seen) != MU_OK) // it was closed meanwhile
        return mu_error_code();
    return mu__error(MU_DEADLINE_EXCEEDED,
                     "accumulator '%s' has %lld of the %lld gradients that a take waits for after %g s; apply more "
                     "gradients, or raise .timeout_seconds or MUSTER_TIMEOUT",
                     a->resource.name, (long long)seen, (long long)required, limit);
}

// In a store the gradients are there now; what fails after that has lost them.
static mu_value *take_here(mu_accumulator *a, int64_t required, double seconds)
{
    mu_value *result = NULL;
    if (mu__change_in_store() && mu__accumulator_begin(a, required, seconds) == MU_OK) {
        const int64_t step = a->step;
        result = take_from(a, required, seconds);
        if (result == NULL && a->step != step)
            mu__change_torn();
    } else if (!mu__change_in_store() && mu__call_wait_begin() == MU_OK) {
        result = take_from(a, required, seconds);
        mu__call_wait_end();
    }
    return result;
}

mu_value *mu__accumulator_take_method(mu_value *arguments, void *arg)
{
    mu_accumulator_list *list = mu__service_accumulators(arg);
    char *name = NULL;
    if (mu__argument_name(arguments, "an accumulator", &name) != MU_OK)
        return NULL;
    mu_accumulator *a = find_retained(list, name);
    const mu_tensor *required = mu_at(arguments, 1), *seconds = mu_at(arguments, 2);
    mu_value *result = NULL;
    if (a == NULL && !mu__pending()) {
        mu__error(MU_NOT_FOUND, "this server has no accumulator '%.200s'", name);
    } else if (!mu__pending() && (required->dtype != MU_I64 || required->shape.rank != 0 || seconds->dtype != MU_F64 ||
                                  seconds->shape.rank != 0)) {
        mu__error(MU_INVALID_ARGUMENT, "a take needs an int64 and a float64 scalar");
    } else if (!mu__pending()) {
        result = take_here(a, mu_tensor_item_int(required, 0), mu_tensor_item(seconds, 0));
    }
    mu__free(name);
    return result;
}

// ---- As a part of a store -----------------------------------------------------------------------

static mu_accumulator *at(mu_accumulator_list *list, size_t i)
{
    pthread_mutex_lock(&list->lock);
    mu_accumulator *found = i < list->all.n ? mu_retain(list->all.items[i]) : NULL;
    pthread_mutex_unlock(&list->lock);
    return found != NULL ? mu__give(found) : NULL;
}

mu_value *mu__accumulators_save(mu_accumulator_list *list)
{
    const size_t n = list->all.n;
    mu_value **rows = mu__calloc(n + 1, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < n; i++) {
        mu_accumulator *a = at(list, i);
        rows[i] = a != NULL ? mu_list(mu__text_value(a->resource.name), mu__accumulator_save(a), MU_END) : NULL;
    }
    mu_value *all = rows != NULL ? mu_list_of((int)n, rows) : NULL;
    mu__free(rows);
    return all;
}

mu_status mu__accumulators_load(mu_accumulator_list *list, const char *name, const mu_value *value)
{
    mu_accumulator *made = mu__accumulator_load(name, value);
    const mu_status status = made != NULL ? add(list, made) : mu_error_code();
    mu_release(made);
    return status;
}
