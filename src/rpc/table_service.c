// The embedding tables of a server. Everything that arrives is untrusted.
//
// A lookup writes rows into the bytes of its answer. The list has a lock; a table is used without it, by many threads.
#include "rpc/table_service.h"

#include "rpc/rpc.h"
#include "rpc/service.h"

enum { MOST_NAME = 1000, MOST_TABLES = 65536 };

struct mu_table_service {
    mu_object object;
    pthread_mutex_t lock; // of the list
    bool has_lock;
    struct {
        mu_table **items;
        size_t n, capacity;
    } tables; // retained
    mu_table_budget budget;
};

static void service_destroy(void *object)
{
    mu_table_service *s = object;
    for (size_t i = 0; i < s->tables.n; i++)
        mu_release(s->tables.items[i]);
    mu__free(s->tables.items);
    if (s->has_lock)
        pthread_mutex_destroy(&s->lock);
}

static mu_type service_type = {.name = "table service", .destroy = service_destroy};

mu_table_budget *mu__table_service_budget(mu_table_service *service) { return &service->budget; }

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

static mu_status read_name(const mu_value *arguments, char **name)
{
    MU_TRY(mu__value_text(mu_value_at(arguments, 0), "the table's name", name));
    if (**name != '\0' && strlen(*name) <= MOST_NAME)
        return MU_OK;
    mu__free(*name);
    *name = NULL;
    return mu__error(MU_INVALID_ARGUMENT, "an embedding table's name needs 1 to %d bytes", MOST_NAME);
}

// The table that the first argument names; retained.
static mu_table *table_of(mu_table_service *s, const mu_value *arguments)
{
    char *name = NULL;
    if (read_name(arguments, &name) != MU_OK)
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
    mu_table *table = mu__table_new(options, name, &s->budget);
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
    if (read_options(arguments, &options) == MU_OK && read_name(arguments, &name) == MU_OK) {
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
    mu_table *table = table_of(s, arguments);
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
    bool make;
} looking_up;

static mu_status look_up(void *elements, void *arg)
{
    const looking_up *l = arg;
    return mu__table_lookup(l->table, l->keys->shape.dims[0], mu__host_read(l->keys), l->make, elements);
}

static mu_message *lookup(const mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
    const mu_tensor *keys = table != NULL ? keys_of(arguments, table) : NULL;
    const mu_tensor *read_only = keys != NULL ? mu_at(arguments, 2) : NULL;
    mu_message *message = NULL;
    if (read_only != NULL &&
        check_tensor(read_only, MU_BOOL, &mu__scalar_shape, table, "words on reading only") == MU_OK) {
        const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(keys->shape.dims[0], table->options.dimension)};
        looking_up l = {.table = table, .keys = keys, .make = !*(const bool *)mu__host_read(read_only)};
        if (mu__shape_check(&spec.shape, table->resource.name) == MU_OK)
            message = mu__message_filled(&spec, look_up, &l);
    }
    mu_release(table);
    return message;
}

static mu_value *update(mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
    const mu_tensor *keys = table != NULL ? keys_of(arguments, table) : NULL;
    const mu_tensor *gradients = keys != NULL ? mu_at(arguments, 2) : NULL;
    const mu_tensor *rate = gradients != NULL ? mu_at(arguments, 3) : NULL;
    if (rate != NULL) {
        const mu_shape shape = MU_SHAPE(keys->shape.dims[0], table->options.dimension);
        if (check_tensor(gradients, MU_F32, &shape, table, "gradients") == MU_OK &&
            check_tensor(rate, MU_F64, &mu__scalar_shape, table, "learning rates") == MU_OK)
            mu__table_update(table, keys->shape.dims[0], mu__host_read(keys), mu__host_read(gradients),
                             mu_tensor_item(rate, 0));
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
    const int64_t numbers[] = {mu__table_rows(table), (int64_t)table->bytes, table->n_stripes};
    mu_release(table);
    return mu_of(mu_tensor_new(MU_I64, 1, &n, numbers));
}

static mu_value *clear(mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
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

static mu_value *import(mu_value *arguments, void *arg)
{
    mu_table *table = table_of(arg, arguments);
    const mu_tensor *keys = table != NULL ? keys_of(arguments, table) : NULL;
    if (keys != NULL) {
        const mu_table_options *o = &table->options;
        const int64_t n = keys->shape.dims[0];
        const mu_shape about = MU_SHAPE(n, 2), values = MU_SHAPE(n, o->dimension),
                       slots = MU_SHAPE(n, mu__table_slots(o));
        if (check_tensor(mu_at(arguments, 2), MU_I64, &about, table, "numbers of updates") == MU_OK &&
            check_tensor(mu_at(arguments, 3), (mu_dtype)o->dtype, &values, table, "rows") == MU_OK &&
            check_tensor(mu_at(arguments, 4), MU_F32, &slots, table, "slots") == MU_OK)
            mu__table_import(table, &(mu_table_rows){.n = n, .keys = (void *)(uintptr_t)mu__host_read(keys),
                .about = (void *)(uintptr_t)mu__host_read(mu_at(arguments, 2)),
                .values = (void *)(uintptr_t)mu__host_read(mu_at(arguments, 3)),
                .slots = (void *)(uintptr_t)mu__host_read(mu_at(arguments, 4))});
    }
    mu_release(table);
    return NULL;
}

// ---- The service --------------------------------------------------------------------------------

mu_table_service *mu__table_service_add(mu_rpc_server *server, size_t max_bytes)
{
    mu_table_service *s = mu__new(&service_type, sizeof *s);
    if (s == NULL)
        return NULL;
    s->budget.limit = max_bytes;
    s->has_lock = pthread_mutex_init(&s->lock, NULL) == 0;
    mu_status status = s->has_lock
                           ? mu__server_keep(server, s)
                           : mu__error(MU_RESOURCE_EXHAUSTED, "the system has no room for a lock; free memory");
    static const struct {
        const char *name;
        mu_rpc_method *fn;
    } methods[] = {{"muster.table.create", create}, {"muster.table.delete", delete_one},
                   {"muster.table.update", update}, {"muster.table.state", state},
                   {"muster.table.clear", clear},   {"muster.table.export", export},
                   {"muster.table.import", import}};
    for (size_t i = 0; i < MU_COUNT(methods) && status == MU_OK; i++)
        status = mu__server_add(server, &(mu_rpc_server_register_args){
            .name = methods[i].name, .fn = methods[i].fn, .arg = s});
    if (status == MU_OK)
        status = mu__server_add_writer(server, "muster.table.lookup", lookup, s);
    if (status == MU_OK)
        return s;
    mu_release(s);
    return NULL;
}
