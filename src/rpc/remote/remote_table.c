// Embedding tables on servers, as this process sees them: ops are split by key and sent to all servers concerned at the
// same time.
//
// Each key is sent once, with the sum of its gradients. Rows are copied once, from the answers to the result; or not at
// all, if one server has all keys and they are distinct.
#include "rpc/remote/remote_table.h"

#include "ops/array/distinct.h"
#include "ops/nn/nn.h"
#include "rpc/remote/row_route.h"
#include "rpc/rpc.h"

#include <muster/ops.h>

typedef struct remote_table {
    mu_resource resource; // its home is the first client
    int n;
    mu_rpc_client **clients; // [n] retained
    bool owned;              // the table goes with this object
} remote_table;

int mu__table_server_of(uint64_t key, int n) { return (int)((mu__hash_id(key) >> 40) * (uint64_t)n >> 24); }

// ---- Keys by server -----------------------------------------------------------------------------

static void server_of(const void *arg, int64_t n, const int64_t *keys, uint32_t *server, int64_t *local)
{
    for (int64_t i = 0; i < n; i++) {
        server[i] = (uint32_t)mu__table_server_of((uint64_t)keys[i], *(const int *)arg);
        local[i] = keys[i];
    }
}

static mu_remote_subject subject_of(const mu_op *op, const remote_table *t)
{
    return mu__remote_subject(op, "embedding table", t->resource.name);
}

// ---- Lookups ------------------------------------------------------------------------------------

static mu_status check_rows(const remote_table *t, const mu_row_route *r, int s, const mu_tensor *rows)
{
    const mu_shape wanted = MU_SHAPE(r->begin[s + 1] - r->begin[s], t->resource.spec.shape.dims[0]);
    if (mu__pending() || (rows != NULL && rows->dtype == MU_F32 && mu__shape_equal(&rows->shape, &wanted)))
        return mu_error_code();
    return mu__error(MU_DATA_LOSS, "a server of embedding table '%s' answers with rows of another type or shape",
                     t->resource.name);
}

// Asks every server that has keys, then waits for all: rows[s] gets the rows of server s.
static mu_status fetch(const remote_table *t, const mu_row_route *r, bool read_only, mu_tensor **rows)
{
    int n, *servers;
    mu_remote_call *calls = mu__row_route_calls(r, t->clients, &servers, &n);
    for (int k = 0; k < n; k++) {
        calls[k].subject = subject_of(&mu_op_embedding_table_lookup, t);
        calls[k].arguments = mu_list(mu__text_value(t->resource.name), mu__row_route_ids(r, servers[k]),
                                     mu_constant(MU_BOOL, read_only), MU_END);
    }
    mu_status status = calls != NULL ? mu__remote_calls("muster.table.lookup", n, calls) : mu_error_code();
    for (int k = 0; k < n && status == MU_OK; k++) {
        rows[servers[k]] = calls[k].value != NULL ? mu_value_tensor(calls[k].value) : NULL;
        status = check_rows(t, r, servers[k], rows[servers[k]]);
    }
    mu__free(calls);
    mu__free(servers);
    return status;
}

static mu_tensor *look_up(const remote_table *t, const mu_tensor *keys, bool read_only, const mu_spec *out)
{
    const int64_t n = mu__elements(&keys->shape);
    int64_t *distinct = mu__alloc(((size_t)n + 1) * sizeof *distinct);
    uint32_t *number = mu__alloc(((size_t)n + 1) * sizeof *number);
    mu_tensor **rows = mu__calloc((size_t)t->n, sizeof *rows), *all = NULL;
    mu_row_route r = {0};
    const bool allocated = distinct != NULL && number != NULL && rows != NULL;
    const int64_t found = allocated ? mu__distinct(n, mu__host_read(keys), distinct, number) : -1;
    if (found >= 0 && mu__row_route(&r, t->n, found, distinct, server_of, &t->n) == MU_OK &&
        fetch(t, &r, read_only, rows) == MU_OK)
        all = t->n == 1 && found == n && n > 0 ? mu_reshape(rows[0], out->shape.rank, out->shape.dims)
                                               : mu__row_route_join(&r, rows, number, out);
    mu__row_route_free(&r);
    mu__free(distinct);
    mu__free(number);
    mu__free(rows);
    return all;
}

// ---- Updates ------------------------------------------------------------------------------------

// The gradients of a server's keys, side by side.
static mu_tensor *gradients_of(const mu_row_route *r, int s, const float *gradients, const int64_t *key_at,
                               int64_t dimension)
{
    const int64_t dims[] = {r->begin[s + 1] - r->begin[s], dimension};
    mu_tensor *part = mu_tensor_new(MU_F32, 2, dims, NULL);
    float *to = part != NULL ? mu__host_write(part) : NULL;
    for (int64_t k = r->begin[s]; to != NULL && k < r->begin[s + 1]; k++, to += dimension)
        memcpy(to, gradients + key_at[k] * dimension, (size_t)dimension * sizeof *to);
    return part;
}

static mu_status send_updates(const remote_table *t, const mu_row_route *r, const float *gradients, mu_tensor *rate)
{
    const int64_t dimension = t->resource.spec.shape.dims[0];
    int n, *servers;
    mu_remote_call *calls = mu__row_route_calls(r, t->clients, &servers, &n);
    int64_t *key_at = calls != NULL ? mu__alloc(((size_t)r->n + 1) * sizeof *key_at) : NULL;
    for (int64_t i = 0; key_at != NULL && i < r->n; i++)
        key_at[r->position[i]] = i;
    for (int k = 0; key_at != NULL && k < n; k++) {
        calls[k].subject = subject_of(&mu_op_embedding_table_update, t);
        calls[k].arguments = mu_list(mu__text_value(t->resource.name), mu__row_route_ids(r, servers[k]),
                                     gradients_of(r, servers[k], gradients, key_at, dimension), rate, MU_END);
    }
    const mu_status status = key_at != NULL ? mu__remote_calls("muster.table.update", n, calls) : mu_error_code();
    mu__free(calls);
    mu__free(servers);
    mu__free(key_at);
    return status;
}

static mu_status update(const remote_table *t, const mu_tensor *keys, const mu_tensor *gradients, mu_tensor *rate)
{
    mu_distinct_gradients d;
    mu_row_route r = {0};
    MU_TRY(mu__distinct_gradients(mu__elements(&keys->shape), t->resource.spec.shape.dims[0], mu__host_read(keys),
                                  mu__host_read(gradients), &d));
    mu_status status = mu__row_route(&r, t->n, d.n, d.keys, server_of, &t->n);
    if (status == MU_OK)
        status = send_updates(t, &r, d.gradients, rate);
    mu__row_route_free(&r);
    mu__distinct_gradients_free(&d);
    return status;
}

// ---- The resource -------------------------------------------------------------------------------

static mu_status apply_in_pool(const remote_table *t, const mu_op *op, const void *attrs, mu_tensor *const *in,
                               const mu_spec *spec, mu_tensor **out)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *rows = NULL;
    mu_status status = pool != NULL ? MU_OK : mu_error_code();
    for (int i = 0; status == MU_OK && i < t->n; i++)
        mu__remote_tell_forgotten(t->clients[i]);
    if (status == MU_OK && op == &mu_op_embedding_table_lookup)
        rows = mu_retain(look_up(t, in[0], ((const mu_table_lookup_attrs *)attrs)->read_only, spec));
    else if (status == MU_OK)
        update(t, in[0], in[1], in[2]);
    status = mu_error_code();
    mu_pool_close(pool);
    if (op == &mu_op_embedding_table_lookup)
        out[0] = mu__give(rows);
    return status;
}

static mu_status apply(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                       mu_resource *const *resources, mu_tensor **out)
{
    const remote_table *t = (const remote_table *)resources[0];
    mu_spec specs[3], spec = {0};
    for (int i = 0; i < n_in; i++) {
        specs[i] = mu__spec_of(in[i]);
        if (mu__host_read(in[i]) == NULL)
            return mu_error_code();
    }
    mu_infer infer = {.op = op,
                      .attrs = attrs,
                      .n_in = n_in,
                      .n_out = op->n_out,
                      .n_resources = n_resources,
                      .in = specs,
                      .resources = &resources[0]->spec,
                      .out = &spec};
    MU_TRY(mu__infer_call(&infer));
    return apply_in_pool(t, op, attrs, in, &spec, out);
}

static mu_status acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                         mu_buffer **out)
{
    (void)replica, (void)space, (void)access, (void)out;
    return mu__error(MU_UNIMPLEMENTED,
                     "embedding table '%s' is on servers: ops on it are sent there one by one, and it cannot be used "
                     "in a branch or a loop",
                     resource->name);
}

static mu_status commit(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer)
{
    (void)resource, (void)replica, (void)access, (void)buffer;
    return MU_OK;
}

const mu_resource_kind mu__remote_table_kind = {
    .name = MU_TABLE_KIND, .acquire = acquire, .commit = commit, .apply = apply, .opaque = true};

static void table_destroy(void *object)
{
    remote_table *t = object;
    for (int i = 0; i < t->n; i++) {
        if (t->owned)
            mu__client_forget(t->clients[i], MU_RELEASED_TABLE, t->resource.name);
        mu_release(t->clients[i]);
    }
    mu__free(t->clients);
    mu__free(t->resource.name);
}

static mu_type table_type = {.name = "remote embedding table", .destroy = table_destroy};

mu_resource *mu__remote_table(int n, mu_rpc_client *const *clients, const char *name, int64_t dimension)
{
    remote_table *t = mu__new(&table_type, sizeof *t);
    if (t == NULL)
        return NULL;
    t->resource.kind = &mu__remote_table_kind;
    t->resource.spec = (mu_spec){.dtype = MU_F32, .shape = MU_SHAPE(dimension)};
    t->resource.name = mu__strdup(name);
    t->clients = mu__calloc((size_t)n, sizeof *t->clients);
    while (t->clients != NULL && t->n < n) {
        t->clients[t->n] = mu_retain(clients[t->n]);
        t->n++;
    }
    t->resource.home = t->n > 0 ? t->clients[0] : NULL;
    if (t->resource.name != NULL && t->clients != NULL)
        return &t->resource;
    mu_release(t);
    return NULL;
}

void mu__remote_table_own(mu_resource *resource) { ((remote_table *)resource)->owned = true; }

mu_rpc_client *const *mu__remote_table_clients(const mu_resource *resource, int *n)
{
    const remote_table *t = resource->kind == &mu__remote_table_kind ? (const remote_table *)resource : NULL;
    *n = t != NULL ? t->n : 0;
    return t != NULL ? t->clients : NULL;
}

// ---- One server's requests ----------------------------------------------------------------------

mu_status mu__remote_table_create(mu_rpc_client *client, const char *name, const mu_table_options *options)
{
    mu_pool *pool = mu_pool_open();
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS;
    mu__remote_delete_forgotten(client);
    mu__remote_call(client, "muster.table.create", mu__remote_subject(NULL, "creating embedding table", name),
                    mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 1, &n_ints, &options->dimension),
                            mu_tensor_new(MU_F64, 1, &n_reals, &options->scale), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_table_delete(mu_rpc_client *client, const char *name)
{
    mu_pool *pool = mu_pool_open();
    mu__remote_call(client, "muster.table.delete", mu__remote_subject(NULL, "deleting embedding table", name),
                    mu_list(mu__text_value(name), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_table_clear(mu_rpc_client *client, const char *name, int64_t oldest)
{
    mu_pool *pool = mu_pool_open();
    mu__remote_call(client, "muster.table.clear", mu__remote_subject(NULL, "clearing embedding table", name),
                    mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 0, NULL, &oldest), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}

static mu_status unexpected(const char *name)
{
    return mu__pending()
               ? mu_error_code()
               : mu__error(MU_DATA_LOSS, "a server of embedding table '%s' answers with something else than its rows",
                           name);
}

mu_status mu__remote_table_state(mu_rpc_client *client, const char *name, int64_t state[3])
{
    mu_pool *pool = mu_pool_open();
    mu_value *answer =
        mu__remote_call(client, "muster.table.state", mu__remote_subject(NULL, "state of embedding table", name),
                        mu_list(mu__text_value(name), MU_END));
    const mu_tensor *numbers = answer != NULL ? mu_value_tensor(answer) : NULL;
    const bool good = numbers != NULL && numbers->dtype == MU_I64 && mu__elements(&numbers->shape) == 3;
    for (int i = 0; good && i < 3; i++)
        state[i] = mu_tensor_item_int(numbers, i);
    const mu_status status = good ? MU_OK : unexpected(name);
    mu_pool_close(pool);
    return status;
}

static const void *elements(const mu_value *list, int i, mu_dtype dtype, int64_t n)
{
    const mu_tensor *tensor = mu_at(list, i);
    return tensor != NULL && tensor->dtype == dtype && mu__elements(&tensor->shape) == n ? mu__host_read(tensor) : NULL;
}

mu_status mu__remote_table_export(mu_rpc_client *client, const char *name, const mu_table_options *options, int stripe,
                                  mu_table_rows *out)
{
    const int64_t number = stripe;
    mu_value *answer =
        mu__remote_call(client, "muster.table.export", mu__remote_subject(NULL, "reading embedding table", name),
                        mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 0, NULL, &number), MU_END));
    const mu_tensor *keys = answer != NULL && mu_value_count(answer) == 4 ? mu_at(answer, 0) : NULL;
    if (keys == NULL || keys->dtype != MU_I64 || keys->shape.rank != 1)
        return unexpected(name);
    const int64_t n = keys->shape.dims[0];
    *out = (mu_table_rows){.n = n,
                           .keys = (int64_t *)(uintptr_t)mu__host_read(keys),
                           .about = (int64_t *)(uintptr_t)elements(answer, 1, MU_I64, 2 * n),
                           .values =
                               (void *)(uintptr_t)elements(answer, 2, (mu_dtype)options->dtype, n * options->dimension),
                           .slots = (float *)(uintptr_t)elements(answer, 3, MU_F32, n * mu__table_slots(options))};
    return out->keys && out->about && out->values && out->slots ? MU_OK : unexpected(name);
}

mu_status mu__remote_table_import(mu_rpc_client *client, const char *name, const mu_table_options *options,
                                  const mu_table_rows *rows)
{
    mu_pool *pool = mu_pool_open();
    const int64_t n[2] = {rows->n, 2}, values[2] = {rows->n, options->dimension},
                  slots[2] = {rows->n, mu__table_slots(options)};
    mu__remote_call(client, "muster.table.import", mu__remote_subject(NULL, "writing embedding table", name),
                    mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 1, n, rows->keys),
                            mu_tensor_new(MU_I64, 2, n, rows->about),
                            mu_tensor_new((mu_dtype)options->dtype, 2, values, rows->values),
                            mu_tensor_new(MU_F32, 2, slots, rows->slots), MU_END));
    mu_pool_close(pool);
    return mu_error_code();
}
