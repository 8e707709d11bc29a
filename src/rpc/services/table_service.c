// The embedding tables of a server. Everything that arrives is untrusted.
//
// A lookup writes rows into the bytes of its answer. The list has a lock; a table is used without it, by many threads.
// In a store that has a copy, all that changes a table has one order, and lookups are among it: they make rows, and
// with a limit the order of use decides which rows go.
#include "rpc/services/table_service.h"

#include "ops/state/embedding_table.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

enum { MOST_TABLES = 65536 };

struct mu_table_service {
    mu_object object;
    pthread_mutex_t lock; // of the list
    bool has_lock;
    struct {
        mu_table **items;
        size_t n, capacity;
    } tables;      // retained
    mu_kept *kept; // retained: the tables' budget
};

static void service_destroy(void *object)
{
    mu_table_service *s = object;
    for (size_t i = 0; i < s->tables.n; i++)
        mu_release(s->tables.items[i]);
    mu__free(s->tables.items);
    mu_release(s->kept);
    if (s->has_lock)
        pthread_mutex_destroy(&s->lock);
}

static mu_type service_type = {.name = "table service", .destroy = service_destroy};

void mu__table_service_clear(mu_table_service *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->tables.n > 0)
        mu_release(s->tables.items[--s->tables.n]);
    pthread_mutex_unlock(&s->lock);
}

// ---- The list -----------------------------------------------------------------------------------

// With the lock held; the number of tables if there is none of this name.
static size_t find(const mu_table_service *s, const char *name)
{
    size_t i = 0;
    while (i < s->tables.n && strcmp(s->tables.items[i]->resource.name, name) != 0)
        i++;
    return i;
}

// The table that the first argument names; retained.
static mu_table *table_of(mu_table_service *s, const mu_value *arguments)
{
    char *name = NULL;
    if (mu__argument_name(arguments, "an embedding table", &name) != MU_OK)
        return NULL;
    pthread_mutex_lock(&s->lock);
    const size_t i = find(s, name);
    mu_table *table = i < s->tables.n ? mu_retain(s->tables.items[i]) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (table == NULL)
        mu__error(MU_NOT_FOUND, "this server has no embedding table '%s'", name);
    mu__free(name);
    return table;
}

// The same for a request that changes it: found when the change has its place in the order of all.
static mu_table *table_to_change(mu_table_service *s, const mu_value *arguments)
{
    return mu__change_begin() == MU_OK ? table_of(s, arguments) : NULL;
}

static mu_status read_options(const mu_value *arguments, mu_table_options *out)
{
    const mu_tensor *ints = mu_at(arguments, 1), *reals = ints != NULL ? mu_at(arguments, 2) : NULL;
    if (reals == NULL)
        return mu_error_code();
    if (ints->dtype != MU_I64 || mu__elements(&ints->shape) != MU_TABLE_INTS || reals->dtype != MU_F64 ||
        mu__elements(&reals->shape) != MU_TABLE_REALS)
        return mu__error(MU_INVALID_ARGUMENT, "an embedding table is made with %d numbers of int64 and %d of float64",
                         MU_TABLE_INTS, MU_TABLE_REALS);
    memcpy(&out->dimension, mu__host_read(ints), MU_TABLE_INTS * sizeof(int64_t));
    memcpy(&out->scale, mu__host_read(reals), MU_TABLE_REALS * sizeof(double));
    return MU_OK;
}

static mu_status add(mu_table_service *s, const char *name, const mu_table_options *options)
{
    if (find(s, name) < s->tables.n)
        return mu__error(MU_ALREADY_EXISTS, "this server has an embedding table '%s'; choose another name", name);
    if (s->tables.n == MOST_TABLES)
        return mu__error(MU_RESOURCE_EXHAUSTED, "this server has %d embedding tables; delete some first", MOST_TABLES);
    mu_table *table = mu__table_new(options, name, &s->kept->budget);
    if (table != NULL && MU_PUSH(&s->tables, table) == MU_OK)
        return MU_OK;
    mu_release(table);
    return mu_error_code();
}

static mu_value *create(mu_value *arguments, void *arg)
{
    mu_table_service *s = arg;
    mu_table_options options;
    char *name = NULL;
    if (read_options(arguments, &options) == MU_OK &&
        mu__argument_name(arguments, "an embedding table", &name) == MU_OK && mu__change_begin() == MU_OK) {
        pthread_mutex_lock(&s->lock);
        add(s, name, &options);
        pthread_mutex_unlock(&s->lock);
    }
    mu__free(name);
    return NULL;
}

static mu_value *delete_one(mu_value *arguments, void *arg)
{
    mu_table_service *s = arg;
    mu_table *table = table_to_change(s, arguments);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; table != NULL && i < s->tables.n; i++)
        if (s->tables.items[i] == table) {
            mu_release(table);
            s->tables.items[i] = s->tables.items[--s->tables.n];
        }
    pthread_mutex_unlock(&s->lock);
    mu_release(table);
    return NULL;
}

// ---- Rows ---------------------------------------------------------------------------------------

static mu_status check_tensor(const mu_tensor *tensor, mu_dtype dtype, const mu_shape *shape, const mu_table *table,
                              const char *what)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (tensor == NULL)
        return mu_error_code();
    if (tensor->dtype == dtype && tensor->shape.rank == shape->rank && mu__shape_compatible(&tensor->shape, shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "embedding table '%s': the %s are %s%s; they must be %s%s",
                     table->resource.name, what, mu_dtype_name(tensor->dtype), mu__shape_text(&tensor->shape, seen),
                     mu_dtype_name(dtype), mu__shape_text(shape, wanted));
}

// The keys, a vector; NULL on error.
static const mu_tensor *keys_of(const mu_value *arguments, const mu_table *table)
{
    static const mu_shape vector = {.rank = 1, .dims = {MU_UNKNOWN}};
    const mu_tensor *keys = mu_at(arguments, 1);
    return check_tensor(keys, MU_I64, &vector, table, "keys") == MU_OK ? keys : NULL;
}

typedef struct looking_up {
    mu_table *table;
    const mu_tensor *keys;
    bool make, done;
} looking_up;

// A change that exceeds the budget has changed some rows.
static mu_status whole(mu_status status)
{
    if (status != MU_OK)
        mu__change_torn();
    return status;
}

static mu_status look_up(void *elements, void *arg)
{
    looking_up *l = arg;
    l->done = true;
    return whole(mu__table_lookup(l->table, l->keys->shape.dims[0], mu__host_read(l->keys), l->make, elements));
}

static mu_message *lookup(const mu_value *arguments, void *arg)
{
    mu_table *table = table_to_change(arg, arguments);
    const mu_tensor *keys = table != NULL ? keys_of(arguments, table) : NULL;
    const mu_tensor *read_only = keys != NULL ? mu_at(arguments, 2) : NULL;
    mu_message *message = NULL;
    if (read_only != NULL &&
        check_tensor(read_only, MU_BOOL, &mu__scalar_shape, table, "words on reading only") == MU_OK) {
        const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(keys->shape.dims[0], table->options.dimension)};
        looking_up l = {.table = table, .keys = keys, .make = !*(const bool *)mu__host_read(read_only)};
        if (mu__shape_check(&spec.shape, table->resource.name) == MU_OK)
            message = mu__message_filled(&spec, look_up, &l);
        if (message == NULL && l.done) // its rows have no place in an answer
            mu__change_torn();
    }
    mu_release(table);
    return message;
}

static mu_value *update(mu_value *arguments, void *arg)
{
    mu_table *table = table_to_change(arg, arguments);
    const mu_tensor *keys = table != NULL ? keys_of(arguments, table) : NULL;
    const mu_tensor *gradients = keys != NULL ? mu_at(arguments, 2) : NULL;
    const mu_tensor *rate = gradients != NULL ? mu_at(arguments, 3) : NULL;
    if (rate != NULL) {
        const mu_shape shape = MU_SHAPE(keys->shape.dims[0], table->options.dimension);
        if (check_tensor(gradients, MU_F32, &shape, table, "gradients") == MU_OK &&
            check_tensor(rate, MU_F64, &mu__scalar_shape, table, "learning rates") == MU_OK)
            whole(mu__table_update(table, keys->shape.dims[0], mu__host_read(keys), mu__host_read(gradients),
                                   mu_tensor_item(rate, 0)));
    }
    mu_release(table);
    return NULL;
}

// ---- State --------------------------------------------------------------------------------------

static mu_value *state(mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
    const int64_t n = 3;
    if (table == NULL)
        return NULL;
    const int64_t numbers[] = {mu__table_rows(table), (int64_t)table->holder.bytes, table->n_stripes};
    mu_release(table);
    return mu_of(mu_tensor_new(MU_I64, 1, &n, numbers));
}

static mu_value *clear(mu_value *arguments, void *arg)
{
    mu_table *table = table_to_change(arg, arguments);
    const mu_tensor *oldest = table != NULL ? mu_at(arguments, 1) : NULL;
    if (oldest != NULL && check_tensor(oldest, MU_I64, &mu__scalar_shape, table, "ages") == MU_OK)
        mu__table_clear(table, (uint64_t)MU_MAX(mu_tensor_item_int(oldest, 0), 0));
    mu_release(table);
    return NULL;
}

static mu_value *rows_value(const mu_table *table, const mu_table_rows *rows)
{
    const mu_table_options *o = &table->options;
    const int64_t n[] = {rows->n, 2}, values[] = {rows->n, o->dimension}, slots[] = {rows->n, mu__table_slots(o)};
    return mu_list(mu_tensor_new(MU_I64, 1, n, rows->keys), mu_tensor_new(MU_I64, 2, n, rows->about),
                   mu_tensor_new((mu_dtype)o->dtype, 2, values, rows->values),
                   mu_tensor_new(MU_F32, 2, slots, rows->slots), MU_END);
}

static mu_value *export(mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
    const mu_tensor *number = table != NULL ? mu_at(arguments, 1) : NULL;
    mu_value *answer = NULL;
    mu_table_rows rows = {0};
    if (number != NULL && check_tensor(number, MU_I64, &mu__scalar_shape, table, "stripes") == MU_OK) {
        const int64_t stripe = mu_tensor_item_int(number, 0);
        if (stripe < 0 || stripe >= table->n_stripes)
            mu__error(MU_OUT_OF_RANGE, "embedding table '%s' has %d stripes; there is no number %lld",
                      table->resource.name, table->n_stripes, (long long)stripe);
        else if (mu__table_export(table, (int)stripe, &rows) == MU_OK)
            answer = rows_value(table, &rows);
        mu__table_rows_free(&rows);
    }
    mu_release(table);
    return answer;
}

// The rows that begin at argument `first`; false: they do not fit the table.
static bool read_rows(const mu_value *arguments, int first, const mu_table *table, mu_table_rows *out)
{
    static const mu_shape vector = {.rank = 1, .dims = {MU_UNKNOWN}};
    const mu_table_options *o = &table->options;
    const mu_tensor *keys = mu_at(arguments, first);
    if (check_tensor(keys, MU_I64, &vector, table, "keys") != MU_OK)
        return false;
    const int64_t n = keys->shape.dims[0];
    const mu_shape about = MU_SHAPE(n, 2), values = MU_SHAPE(n, o->dimension), slots = MU_SHAPE(n, mu__table_slots(o));
    if (check_tensor(mu_at(arguments, first + 1), MU_I64, &about, table, "numbers of updates") != MU_OK ||
        check_tensor(mu_at(arguments, first + 2), (mu_dtype)o->dtype, &values, table, "rows") != MU_OK ||
        check_tensor(mu_at(arguments, first + 3), MU_F32, &slots, table, "slots") != MU_OK)
        return false;
    *out = (mu_table_rows){.n = n,
                           .keys = (void *)(uintptr_t)mu__host_read(keys),
                           .about = (void *)(uintptr_t)mu__host_read(mu_at(arguments, first + 1)),
                           .values = (void *)(uintptr_t)mu__host_read(mu_at(arguments, first + 2)),
                           .slots = (void *)(uintptr_t)mu__host_read(mu_at(arguments, first + 3))};
    return true;
}

static mu_value *import(mu_value *arguments, void *arg)
{
    mu_table *table = table_to_change(arg, arguments);
    mu_table_rows rows;
    if (table != NULL && read_rows(arguments, 1, table, &rows))
        whole(mu__table_import(table, &rows));
    mu_release(table);
    return NULL;
}

// ---- As a part of a store -----------------------------------------------------------------------

// A stripe of a table: [name, options, options, number of updates, keys, about, rows, slots].
static mu_value *saved_stripe(mu_table *table, int stripe)
{
    const mu_table_options *o = &table->options;
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS, n_updates = (int64_t)table->n_updates;
    mu_table_rows rows = {0};
    mu_value *value = NULL;
    if (mu__table_export(table, stripe, &rows) == MU_OK) {
        const mu_value *parts = rows_value(table, &rows);
        value = mu_list(mu__text_value(table->resource.name), mu_tensor_new(MU_I64, 1, &n_ints, &o->dimension),
                        mu_tensor_new(MU_F64, 1, &n_reals, &o->scale), mu_tensor_new(MU_I64, 0, NULL, &n_updates),
                        mu_at(parts, 0), mu_at(parts, 1), mu_at(parts, 2), mu_at(parts, 3), MU_END);
    }
    mu__table_rows_free(&rows);
    return value;
}

// A row of what is saved for each stripe, under a name that no other row has.
static mu_value *save(void *part)
{
    const mu_table_service *s = part;
    char name[48];
    size_t n = 0, most = 0;
    for (size_t i = 0; i < s->tables.n; i++)
        most += (size_t)s->tables.items[i]->n_stripes;
    mu_value **rows = mu__calloc(most + 1, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < s->tables.n; i++)
        for (int k = 0; k < s->tables.items[i]->n_stripes && !mu__pending(); k++) {
            snprintf(name, sizeof name, "table %zu stripe %d", i, k);
            mu_value *stripe = saved_stripe(s->tables.items[i], k);
            rows[n++] = mu_list(mu__text_value(name), stripe, MU_END);
        }
    mu_value *list = rows != NULL && !mu__pending() ? mu_list_of((int)n, rows) : NULL;
    mu__free(rows);
    return list;
}

// The stripe of a table that is made with the first of its stripes.
static mu_status load(void *part, const char *name, mu_value *value)
{
    mu_table_service *s = part;
    mu_table_options options;
    mu_table_rows rows;
    char *table_name = NULL;
    (void)name;
    if (read_options(value, &options) != MU_OK || mu__argument_name(value, "an embedding table", &table_name) != MU_OK)
        return mu_error_code();
    pthread_mutex_lock(&s->lock);
    const bool first = find(s, table_name) == s->tables.n;
    if (first)
        add(s, table_name, &options);
    pthread_mutex_unlock(&s->lock);
    mu__free(table_name);
    mu_table *table = mu__pending() ? NULL : table_of(s, value);
    const mu_tensor *updates = table != NULL ? mu_at(value, 3) : NULL;
    if (updates != NULL && check_tensor(updates, MU_I64, &mu__scalar_shape, table, "number of updates") == MU_OK) {
        if (first)
            mu__table_clear(table, (uint64_t)MU_MAX(mu_tensor_item_int(updates, 0), 0));
        if (read_rows(value, 4, table, &rows))
            mu__table_import(table, &rows);
    }
    mu_release(table);
    return mu_error_code();
}

// ---- The service --------------------------------------------------------------------------------

static void *make(mu_kept *kept)
{
    mu_table_service *s = mu__new(&service_type, sizeof *s);
    if (s == NULL)
        return NULL;
    s->kept = mu_retain(kept);
    s->has_lock = mu__lock_init(&s->lock, "embedding tables of a server");
    if (s->has_lock)
        return s;
    mu_release(s);
    return NULL;
}

static const mu_store_method methods[] = {
    {.name = "muster.table.create", .fn = create},     {.name = "muster.table.delete", .fn = delete_one},
    {.name = "muster.table.lookup", .writer = lookup}, {.name = "muster.table.update", .fn = update},
    {.name = "muster.table.state", .fn = state},       {.name = "muster.table.clear", .fn = clear},
    {.name = "muster.table.export", .fn = export},     {.name = "muster.table.import", .fn = import}};

const mu_store_part mu__tables_part = {
    .name = "tables", .make = make, .n_methods = MU_COUNT(methods), .methods = methods, .save = save, .load = load};

mu_table_service *mu__table_service_add(mu_rpc_server *server, mu_kept *kept)
{
    mu_table_service *s = make(kept);
    if (s != NULL && mu__server_keep(server, s) == MU_OK && mu__part_register(server, &mu__tables_part, s) == MU_OK)
        return s;
    mu_release(s);
    return NULL;
}
