// All rows of an embedding table at once, for checkpoints: from every stripe of every server, in the order of the keys,
// and back to the server of each key, whatever their number was.
#include "distribute/variables/strategy_embedding.h"

#include "rpc/remote/remote_table.h"

#include <stdlib.h>

enum { PAGE = 1 << 14 }; // rows in one request

typedef struct row_sizes {
    size_t values, slots; // bytes
} row_sizes;

static row_sizes sizes_of(const mu_table_options *o)
{
    return (row_sizes){.values = (size_t)o->dimension * mu_dtype_bytes((mu_dtype)o->dtype),
                       .slots = (size_t)mu__table_slots(o) * sizeof(float)};
}

static mu_status allocate(const mu_table_options *o, int64_t n, mu_table_rows *out)
{
    const row_sizes sizes = sizes_of(o);
    const size_t rows = (size_t)n + 1;
    *out = (mu_table_rows){.keys = mu__calloc(rows, sizeof *out->keys),
                           .about = mu__calloc(rows, 2 * sizeof *out->about),
                           .values = mu__calloc(rows, sizes.values),
                           .slots = mu__calloc(rows, sizes.slots + sizeof(float))};
    if (out->keys && out->about && out->values && out->slots)
        return MU_OK;
    mu__table_rows_free(out);
    return MU_RESOURCE_EXHAUSTED;
}

// Appends row i of another list, which has room.
static void append(const mu_table_options *o, mu_table_rows *to, const mu_table_rows *from, int64_t i)
{
    const row_sizes sizes = sizes_of(o);
    const size_t n = (size_t)to->n++, k = (size_t)i;
    to->keys[n] = from->keys[k];
    to->about[2 * n] = from->about[2 * k];
    to->about[2 * n + 1] = from->about[2 * k + 1];
    memcpy((char *)to->values + n * sizes.values, (const char *)from->values + k * sizes.values, sizes.values);
    memcpy((char *)to->slots + n * sizes.slots, (const char *)from->slots + k * sizes.slots, sizes.slots);
}

// ---- Orders -------------------------------------------------------------------------------------

typedef struct ordered_row {
    int64_t by, row;
} ordered_row;

static int compare(const void *a, const void *b)
{
    const ordered_row *x = a, *y = b;
    return x->by != y->by ? (x->by < y->by ? -1 : 1) : (x->row > y->row) - (x->row < y->row);
}

// The rows by key, or the one that was not used for the longest time first. The caller frees the list.
static ordered_row *sorted(const mu_table_rows *rows, bool by_key)
{
    ordered_row *ordered = mu__alloc(((size_t)rows->n + 1) * sizeof *ordered);
    for (int64_t i = 0; ordered && i < rows->n; i++)
        ordered[i] = (ordered_row){.by = by_key ? rows->keys[i] : -MU_MAX(rows->about[2 * i + 1], 0), .row = i};
    if (ordered)
        qsort(ordered, (size_t)rows->n, sizeof *ordered, compare);
    return ordered;
}

// ---- Reading ------------------------------------------------------------------------------------

typedef struct parts {
    mu_table_rows *items;
    size_t n, capacity;
} parts;

static mu_status add_copy(const mu_table_options *o, parts *all, const mu_table_rows *rows)
{
    mu_table_rows copy;
    MU_TRY(allocate(o, rows->n, &copy));
    for (int64_t i = 0; i < rows->n; i++)
        append(o, &copy, rows, i);
    if (MU_PUSH(all, copy) == MU_OK)
        return MU_OK;
    mu__table_rows_free(&copy);
    return mu_error_code();
}

static mu_status read_server(const mu_embedding_table *table, mu_rpc_client *client, parts *all)
{
    int64_t state[3] = {0};
    const char *name = table->resource->name;
    mu_status status = mu__remote_table_state(client, name, state);
    for (int64_t k = 0; status == MU_OK && k < state[2]; k++) {
        mu_table_rows rows;
        mu_pool *pool = mu_pool_open();
        status = mu__remote_table_export(client, name, &table->options, (int)k, &rows);
        if (status == MU_OK)
            status = add_copy(&table->options, all, &rows);
        mu_pool_close(pool);
    }
    return status;
}

static mu_status read_local(mu_table *table, parts *all)
{
    mu_status status = MU_OK;
    for (int k = 0; k < table->n_stripes && status == MU_OK; k++) {
        mu_table_rows rows;
        MU_TRY(mu__table_export(table, k, &rows));
        if ((status = MU_PUSH(all, rows)) != MU_OK)
            mu__table_rows_free(&rows);
    }
    return status;
}

// All parts as one list by key.
static mu_status join(const mu_table_options *o, const parts *all, mu_table_rows *out)
{
    mu_table_rows joined;
    int64_t n = 0;
    for (size_t k = 0; k < all->n; k++)
        n += all->items[k].n;
    MU_TRY(allocate(o, n, &joined));
    for (size_t k = 0; k < all->n; k++)
        for (int64_t i = 0; i < all->items[k].n; i++)
            append(o, &joined, &all->items[k], i);
    ordered_row *order = sorted(&joined, true);
    mu_status status = order ? allocate(o, n, out) : MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; status == MU_OK && i < n; i++)
        append(o, out, &joined, order[i].row);
    mu__free(order);
    mu__table_rows_free(&joined);
    return status;
}

mu_status mu__embedding_table_read(mu_embedding_table *table, mu_table_rows *out)
{
    parts all = {0};
    int n = 0;
    mu_rpc_client *const *clients = mu__remote_table_clients(table->resource, &n);
    mu_status status = clients ? MU_OK : read_local((mu_table *)table->resource, &all);
    for (int s = 0; s < n && status == MU_OK; s++)
        status = read_server(table, clients[s], &all);
    if (status == MU_OK)
        status = join(&table->options, &all, out);
    for (size_t k = 0; k < all.n; k++)
        mu__table_rows_free(&all.items[k]);
    mu__free(all.items);
    return status;
}

// ---- Writing ------------------------------------------------------------------------------------

static mu_status clear(const mu_embedding_table *table, int64_t oldest)
{
    int n = 0;
    mu_rpc_client *const *clients = mu__remote_table_clients(table->resource, &n);
    if (!clients)
        mu__table_clear((mu_table *)table->resource, (uint64_t)oldest);
    for (int s = 0; s < n; s++)
        MU_TRY(mu__remote_table_clear(clients[s], table->resource->name, oldest));
    return MU_OK;
}

// Sends a full page, or the last one, and empties it.
static mu_status send_page(const mu_embedding_table *table, mu_rpc_client *client, mu_table_rows *page)
{
    const mu_status status = page->n == 0 ? MU_OK
                             : client ? mu__remote_table_import(client, table->resource->name, &table->options, page)
                                      : mu__table_import((mu_table *)table->resource, page);
    page->n = 0;
    return status;
}

// The rows of one server (of n; NULL: this process), in their order.
static mu_status write_server(const mu_embedding_table *table, mu_rpc_client *client, int server, int n,
                              const mu_table_rows *rows, const ordered_row *order)
{
    mu_table_rows page;
    MU_TRY(allocate(&table->options, PAGE, &page));
    mu_status status = MU_OK;
    for (int64_t i = 0; i < rows->n && status == MU_OK; i++) {
        if (mu__table_server_of((uint64_t)rows->keys[order[i].row], n) != server)
            continue;
        append(&table->options, &page, rows, order[i].row);
        if (page.n == PAGE)
            status = send_page(table, client, &page);
    }
    if (status == MU_OK)
        status = send_page(table, client, &page);
    mu__table_rows_free(&page);
    return status;
}

mu_status mu__embedding_table_write(mu_embedding_table *table, const mu_table_rows *rows)
{
    int n = 0;
    mu_rpc_client *const *clients = mu__remote_table_clients(table->resource, &n);
    ordered_row *order = sorted(rows, false);
    mu_status status = order ? clear(table, rows->n > 0 ? -order[0].by : 0) : MU_RESOURCE_EXHAUSTED;
    for (int s = 0; s < MU_MAX(n, 1) && status == MU_OK; s++)
        status = write_server(table, clients ? clients[s] : NULL, s, MU_MAX(n, 1), rows, order);
    mu__free(order);
    return status;
}
