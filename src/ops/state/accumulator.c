// Accumulators: the resource, its queue of takes, and the table of shared names.
//
// One lock per accumulator protects everything. Takes wait in a queue whose head alone is examined; a thread that
// changes the sum or the queue serves as many heads as the sum suffices for, so a take may be served by an applying
// thread.
#include "ops/state/accumulator.h"

// One take that waits: on the stack of its thread, linked into the queue.
typedef struct mu_take_request {
    struct mu_take_request *next;
    int64_t required;
    const mu_shape *expected; // of the values; NULL: any
    mu_measured *block;       // memory for the result; NULL: the caller has some
    bool served, misfit;      // misfit: the sum has another shape; it stays, `sum` has its shape only
    bool no_memory;           // for the block: the sum stays
    mu_gradient_sum sum;
} take_request;

// ---- The resource -------------------------------------------------------------------------------

const mu_resource_kind mu__dense_accumulator_kind = {.name = "conditional_accumulator",
                                                     .acquire = mu__opaque_acquire,
                                                     .commit = mu__opaque_commit,
                                                     .opaque = true,
                                                     .what = "accumulator"};
const mu_resource_kind mu__sparse_accumulator_kind = {.name = "sparse_conditional_accumulator",
                                                      .acquire = mu__opaque_acquire,
                                                      .commit = mu__opaque_commit,
                                                      .opaque = true,
                                                      .what = "accumulator"};

void mu__gradient_sum_free(mu_gradient_sum *sum)
{
    mu_release(sum->buffer);
    mu__free(sum->indices);
    mu__free(sum->counts);
    *sum = (mu_gradient_sum){0};
}

size_t mu__gradient_sum_bytes(const mu_gradient_sum *sum)
{
    return sum->bytes + (sum->indices ? (size_t)sum->shape.dims[0] * (sizeof *sum->indices + sizeof *sum->counts) : 0);
}

mu_status mu__accumulator_reserve(mu_accumulator *a, size_t bytes)
{
    char kept[MU_HOLDERS_TEXT];
    if (mu__holder_take(&a->holder, bytes))
        return MU_OK;
    return mu__error(
        MU_RESOURCE_EXHAUSTED,
        "accumulator '%.200s' has no room for a gradient of %zu bytes: %s; take gradients earlier, or add servers",
        a->resource.name, bytes, mu__holders_largest(a->holder.budget, kept));
}

mu_status mu__accumulator_budget(mu_accumulator *a, mu_byte_budget *budget)
{
    const size_t has = a->holder.bytes;
    mu__holder_give(&a->holder, has);
    mu__holder_begin(&a->holder, budget, "accumulator", a->resource.name);
    return mu__accumulator_reserve(a, has);
}

static void accumulator_destroy(void *object)
{
    mu_accumulator *a = object;
    assert(!a->first);
    if (a->resource.home && a->resource.kind->forget)
        a->resource.kind->forget(&a->resource);
    mu_release(a->resource.home);
    mu__gradient_sum_free(&a->sum);
    mu__accumulator_drop_kept(a, INT64_MAX);
    mu__holder_end(&a->holder);
    mu__free(a->kept.items);
    mu_release(a->resource.self);
    if (a->made > 0)
        pthread_mutex_destroy(&a->lock);
    if (a->made > 1)
        pthread_cond_destroy(&a->taken);
    mu__free(a->resource.name);
    mu__free(a->shared_name);
}

static mu_type accumulator_type = {.name = "accumulator", .destroy = accumulator_destroy};

static bool make_locks(mu_accumulator *a)
{
    a->made += pthread_mutex_init(&a->lock, NULL) == 0;
    a->made += a->made == 1 && mu__condition_init(&a->taken);
    if (a->made < 2)
        mu__error(MU_RESOURCE_EXHAUSTED, "accumulator '%s': the system cannot make a lock; free memory",
                  a->resource.name);
    return a->made == 2;
}

mu_accumulator *mu__accumulator_new(const mu_conditional_accumulator_args *args, bool sparse)
{
    mu_accumulator *a = mu__new(&accumulator_type, sizeof *a);
    if (!a)
        return NULL;
    const char *name = args->shared_name ? args->shared_name : args->name;
    a->resource.kind = sparse ? &mu__sparse_accumulator_kind : &mu__dense_accumulator_kind;
    a->resource.spec = (mu_spec){.dtype = args->dtype, .shape = {.rank = 1, .dims = {0}}};
    a->resource.name = mu__strdup(name ? name : a->resource.kind->name);
    a->sparse = sparse;
    a->shared_name = args->shared_name ? mu__strdup(args->shared_name) : NULL;
    a->mean = !args->reduction_type || strcmp(args->reduction_type, "MEAN") == 0;
    a->declared_rank = args->shape ? args->shape->rank : -1;
    a->declared = args->shape ? *args->shape : mu__scalar_shape;
    if (a->resource.name && (a->shared_name || !args->shared_name) && mu__opaque_begin(&a->resource) == MU_OK &&
        make_locks(a))
        return a;
    mu_release(a);
    return NULL;
}

// Of the innermost scope's strategy, or of this process.
static mu_accumulator *new_accumulator(const mu_conditional_accumulator_args *args, bool sparse)
{
    struct mu_scope *scope = mu__context()->scope;
    mu_accumulator *a = scope && scope->make_accumulator ? scope->make_accumulator(scope, args, sparse) : NULL;
    return a || mu__pending() ? a : mu__accumulator_new(args, sparse);
}

// ---- Shared names -------------------------------------------------------------------------------

// The runtime's accumulators with a shared name; retained.
typedef struct shared_names {
    pthread_mutex_t lock;
    struct {
        mu_accumulator **items;
        size_t n, capacity;
    } all;
} shared_names;

static void *make_names(mu_runtime *runtime)
{
    (void)runtime;
    shared_names *names = mu__calloc(1, sizeof *names);
    if (names && mu__lock_init(&names->lock, "accumulators"))
        return names;
    mu__free(names);
    return NULL;
}

static void free_names(void *slot)
{
    shared_names *names = slot;
    for (size_t i = 0; i < names->all.n; i++)
        mu_release(names->all.items[i]);
    mu__free(names->all.items);
    pthread_mutex_destroy(&names->lock);
    mu__free(names);
}

static shared_names *names_here(void)
{
    return mu__runtime_slot(mu__runtime(), MU_SLOT_ACCUMULATORS, make_names, free_names);
}

// The caller holds the lock of the names.
static mu_accumulator *find(const shared_names *names, const char *name)
{
    for (size_t i = 0; i < names->all.n; i++)
        if (strcmp(names->all.items[i]->shared_name, name) == 0)
            return names->all.items[i];
    return NULL;
}

static mu_status check_same(const mu_accumulator *a, const mu_conditional_accumulator_args *args, bool sparse)
{
    const bool mean = !args->reduction_type || strcmp(args->reduction_type, "MEAN") == 0;
    const char *differs = a->sparse != sparse                                          ? "kind (dense or sparse)"
                          : a->resource.spec.dtype != args->dtype                      ? "type"
                          : a->mean != mean                                            ? "reduction_type"
                          : a->declared_rank != (args->shape ? args->shape->rank : -1) ? "shape"
                          : args->shape && !mu__shape_equal(&a->declared, args->shape) ? "shape"
                                                                                       : NULL;
    if (!differs)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "the shared accumulator '%s' exists with another %s (it is a %s of %s); use the same arguments, "
                     "or another shared_name",
                     a->resource.name, differs, a->resource.kind->name, mu_dtype_name(a->resource.spec.dtype));
}

// Returns a reference to the accumulator with the shared name, which is made if there is none.
static mu_accumulator *shared_accumulator(const mu_conditional_accumulator_args *args, bool sparse)
{
    shared_names *names = names_here();
    if (!names)
        return NULL;
    pthread_mutex_lock(&names->lock);
    mu_accumulator *a = find(names, args->shared_name);
    if (a)
        a = check_same(a, args, sparse) == MU_OK ? mu_retain(a) : NULL;
    else if ((a = new_accumulator(args, sparse)) && MU_PUSH(&names->all, a) == MU_OK)
        mu_retain(a);
    else if (a) {
        mu_release(a);
        a = NULL;
    }
    pthread_mutex_unlock(&names->lock);
    return a;
}

static void forget_name(mu_accumulator *a)
{
    shared_names *names = a->shared_name ? names_here() : NULL;
    bool found = false;
    if (!names)
        return;
    pthread_mutex_lock(&names->lock);
    for (size_t i = 0; i < names->all.n && !found; i++)
        if ((found = names->all.items[i] == a))
            names->all.items[i] = names->all.items[--names->all.n];
    pthread_mutex_unlock(&names->lock);
    if (found)
        mu_release(a);
}

mu_accumulator *mu_accumulator_find(const char *shared_name)
{
    shared_names *names =
        mu__pending() || mu__need(shared_name, "mu_accumulator_find: the name") != MU_OK ? NULL : names_here();
    if (!names)
        return NULL;
    pthread_mutex_lock(&names->lock);
    mu_accumulator *a = mu_retain(find(names, shared_name));
    pthread_mutex_unlock(&names->lock);
    if (!a)
        mu__error(MU_NOT_FOUND, "there is no open accumulator with the shared_name '%s'; make it first", shared_name);
    return mu__give(a);
}

// ---- Making and closing -------------------------------------------------------------------------

static mu_status check_args(const mu_conditional_accumulator_args *args, const char *function)
{
    const unsigned dtype = (unsigned)args->dtype;
    if (dtype >= 32 || !(MU_DTYPE_BIT(dtype) & MU_FLOATS))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: .dtype is %s; an accumulator holds MU_F16, MU_BF16, MU_F32 or MU_F64", function,
                         dtype ? mu_dtype_name(args->dtype) : "not given");
    if (args->reduction_type && strcmp(args->reduction_type, "MEAN") != 0 && strcmp(args->reduction_type, "SUM") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: .reduction_type is \"%s\"; it must be \"MEAN\" or \"SUM\"", function,
                         args->reduction_type);
    return args->shape ? mu__shape_check(args->shape, function) : MU_OK;
}

static mu_accumulator *make_accumulator(const mu_conditional_accumulator_args *given, bool sparse, const char *function)
{
    mu_conditional_accumulator_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK ||
        check_args(&args, function) != MU_OK)
        return NULL;
    return mu__give(args.shared_name ? shared_accumulator(&args, sparse) : new_accumulator(&args, sparse));
}

mu_accumulator *mu_conditional_accumulator_with(const mu_conditional_accumulator_args *args)
{
    return make_accumulator(args, false, "mu_conditional_accumulator");
}

mu_accumulator *mu_sparse_conditional_accumulator_with(const mu_conditional_accumulator_args *args)
{
    return make_accumulator(args, true, "mu_sparse_conditional_accumulator");
}

mu_status mu_accumulator_close(mu_accumulator *accumulator)
{
    MU_TRY(mu__need(accumulator, "mu_accumulator_close: the accumulator"));
    if (accumulator->keeper) {
        forget_name(accumulator);
        return accumulator->keeper->close(accumulator);
    }
    pthread_mutex_lock(&accumulator->lock);
    const int n_waiting = accumulator->n_waiting;
    accumulator->closed = true;
    mu__accumulator_drop_kept(accumulator, INT64_MAX);
    pthread_cond_broadcast(&accumulator->taken);
    pthread_mutex_unlock(&accumulator->lock);
    if (n_waiting > 0)
        mu__log(MU_LOG_INFO, "accumulator '%s' is closed while %d takes wait", accumulator->resource.name, n_waiting);
    forget_name(accumulator);
    return MU_OK;
}

const char *mu_accumulator_name(const mu_accumulator *accumulator)
{
    return !accumulator ? NULL : accumulator->shared_name ? accumulator->shared_name : accumulator->resource.name;
}

mu_dtype mu_accumulator_dtype(const mu_accumulator *accumulator)
{
    return accumulator ? accumulator->resource.spec.dtype : MU_DTYPE_DEFAULT;
}

// ---- Takes --------------------------------------------------------------------------------------

static bool has_shape(const mu_gradient_sum *sum, const mu_shape *expected)
{
    return !expected || mu__shape_compatible(&sum->shape, expected);
}

// Allocates the memory for a take's result, so that nothing can fail once the sum was moved. The thread may be another
// one than the request's, and must not keep the error.
static bool reserve_block(const mu_accumulator *a, take_request *request)
{
    const bool pending = mu__pending();
    if (!request->block)
        return true;
    request->block->bytes = a->sum.bytes + (a->sparse ? (size_t)a->sum.shape.dims[0] * sizeof *a->sum.indices : 0);
    request->block->block = mu__alloc_data(request->block->bytes);
    if (!request->block->block && !pending)
        mu_error_take();
    return request->block->block != NULL;
}

// Serves heads of the queue while the sum suffices: after a success it is empty, so at most one gets it.
static void serve_takes(mu_accumulator *a)
{
    while (a->first && a->sum.n >= a->first->required) {
        take_request *head = a->first;
        a->first = head->next;
        if (!a->first)
            a->last = NULL;
        a->n_waiting--;
        head->served = true;
        head->misfit = !has_shape(&a->sum, head->expected);
        head->sum.shape = a->sum.shape;
        head->no_memory = !head->misfit && !reserve_block(a, head);
        if (!head->misfit && !head->no_memory) {
            mu__holder_give(&a->holder, mu__gradient_sum_bytes(&a->sum));
            head->sum = a->sum;
            a->sum = (mu_gradient_sum){0};
            a->step += a->step < INT64_MAX;
        }
        pthread_cond_broadcast(&a->taken);
    }
}

static void enqueue(mu_accumulator *a, take_request *request)
{
    if (a->last)
        a->last->next = request;
    else
        a->first = request;
    a->last = request;
    a->n_waiting++;
}

// A request that times out leaves the queue; the next head may need fewer gradients.
static void withdraw(mu_accumulator *a, take_request *request)
{
    take_request *before = NULL, **at = &a->first;
    for (; *at != request; at = &(*at)->next)
        before = *at;
    *at = request->next;
    if (a->last == request)
        a->last = before;
    a->n_waiting--;
    serve_takes(a);
}

static mu_status closed(const mu_accumulator *a, const char *what)
{
    return mu__error(MU_CANCELLED, "%s was cancelled: accumulator '%s' is closed", what, a->resource.name);
}

static mu_status interrupted(const mu_accumulator *a, const take_request *request, int64_t deadline_ns, double limit_s)
{
    if (a->closed)
        return closed(a, "TakeGrad operation");
    if (mu_cancellation_is_cancelled(mu__context()->cancellation))
        return mu__error(MU_CANCELLED,
                         "TakeGrad operation was cancelled: accumulator '%s' has %lld of the %lld gradients",
                         a->resource.name, (long long)a->sum.n, (long long)request->required);
    MU_TRY(mu__check_stop());
    if (mu__now_ns() < deadline_ns)
        return MU_OK;
    return mu__error(MU_DEADLINE_EXCEEDED,
                     "accumulator '%s' has %lld of the %lld gradients that a take waits for%s after %g s; apply more "
                     "gradients, or raise .timeout_seconds or MUSTER_TIMEOUT",
                     a->resource.name, (long long)a->sum.n, (long long)request->required,
                     a->first == request ? "" : ", behind an earlier take,", limit_s);
}

static mu_status misfit(const mu_accumulator *a, const take_request *request)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT,
                     "accumulator '%s': the gradients have the shape %s, but the traced function takes %s; make the "
                     "accumulator with the gradients' shape",
                     a->resource.name, mu__shape_text(&request->sum.shape, seen),
                     mu__shape_text(request->expected, wanted));
}

static mu_status no_memory(const mu_accumulator *a, const take_request *request)
{
    return mu__error(MU_RESOURCE_EXHAUSTED,
                     "out of memory: a block of %zu bytes for the gradients of accumulator '%s' was refused; they are "
                     "kept: free some memory and take them again",
                     request->block->bytes, a->resource.name);
}

static void wake(void *arg)
{
    mu_accumulator *a = arg;
    pthread_mutex_lock(&a->lock);
    pthread_cond_broadcast(&a->taken);
    pthread_mutex_unlock(&a->lock);
}

mu_status mu__accumulator_take(mu_accumulator *a, int64_t required, double timeout_s, const mu_shape *expected,
                               mu_measured *block, mu_gradient_sum *out)
{
    if (required < 1)
        return mu__error(MU_INVALID_ARGUMENT, "accumulator '%s': num_required is %lld; it must be 1 or more",
                         a->resource.name, (long long)required);
    const double limit_s = timeout_s > 0 ? timeout_s : mu__setting_real(MU_SETTING_TIMEOUT);
    const int64_t deadline_ns = mu__deadline_ns(limit_s);
    take_request request = {.required = required, .expected = expected, .block = block};
    mu_cancel_hook hook = {.wake = wake, .arg = a};
    mu_status status = MU_OK;
    mu__cancel_hook_add(mu__context()->cancellation, &hook);
    pthread_mutex_lock(&a->lock);
    if (a->closed || mu_cancellation_is_cancelled(mu__context()->cancellation)) {
        status = interrupted(a, &request, deadline_ns, limit_s);
    } else {
        enqueue(a, &request);
        serve_takes(a);
        while (!request.served && status == MU_OK) {
            mu__condition_wait(&a->taken, &a->lock, deadline_ns);
            status = request.served ? MU_OK : interrupted(a, &request, deadline_ns, limit_s);
        }
        if (!request.served)
            withdraw(a, &request);
    }
    pthread_mutex_unlock(&a->lock);
    mu__cancel_hook_remove(mu__context()->cancellation, &hook);
    if (status == MU_OK && request.misfit)
        return misfit(a, &request);
    if (status == MU_OK && request.no_memory)
        return no_memory(a, &request);
    if (status == MU_OK)
        *out = request.sum;
    return status;
}

// ---- Applying and the step ----------------------------------------------------------------------

mu_status mu__accumulator_apply(mu_accumulator *a, int64_t local_step, const mu_view *values, const mu_view *indices,
                                const mu_view *shape)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&a->lock);
    if (a->closed) {
        status = closed(a, "ApplyGrad operation");
    } else if (local_step >= a->step) {
        status = a->sparse ? mu__sparse_add(a, values, indices, shape) : mu__dense_add(a, values);
        a->sum.n += status == MU_OK;
        serve_takes(a);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

mu_status mu__accumulator_set_step(mu_accumulator *a, int64_t step)
{
    pthread_mutex_lock(&a->lock);
    const int64_t before = a->step;
    const mu_status status = a->closed ? closed(a, "SetGlobalStep operation") : MU_OK;
    if (status == MU_OK)
        a->step = step;
    pthread_mutex_unlock(&a->lock);
    if (status == MU_OK && step < before)
        mu__log(MU_LOG_WARNING, "accumulator '%s': the global step goes back from %lld to %lld", a->resource.name,
                (long long)before, (long long)step);
    return status;
}

mu_status mu__accumulator_count(mu_accumulator *a, int64_t *out)
{
    pthread_mutex_lock(&a->lock);
    *out = a->sum.n;
    const mu_status status = a->closed ? closed(a, "NumAccumulated operation") : MU_OK;
    pthread_mutex_unlock(&a->lock);
    return status;
}

bool mu__accumulator_ready(mu_accumulator *a, int64_t required)
{
    pthread_mutex_lock(&a->lock);
    const bool ready = a->closed || a->sum.n >= required;
    pthread_mutex_unlock(&a->lock);
    return ready;
}
