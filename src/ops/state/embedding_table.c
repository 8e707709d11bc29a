// Storage of embedding tables: the resource, the index of each stripe, rows in slabs, and which rows go.
//
// The index has open addressing with linear probes; a removal shifts what follows back, so there are no tombstones. A
// row never moves while it exists. With a limit of rows or age, the rows of a stripe are in a list by last use.
#include "ops/state/embedding_table.h"

#include "ops/array/distinct.h"

enum { FIRST_INDEX = 64, SLAB_BYTES = 1 << 16, MOST_STRIPES = 16, ROWS_PER_STRIPE = 1024, MOST_DIMENSION = 1 << 16 };

// ---- Options ------------------------------------------------------------------------------------

int64_t mu__table_slots(const mu_table_options *options)
{
    return options->optimizer == MU_TABLE_SGD               ? 0
           : options->optimizer == MU_TABLE_ROWWISE_ADAGRAD ? 1
           : options->optimizer == MU_TABLE_ADAGRAD         ? options->dimension
                                                            : 2 * options->dimension;
}

static bool is_fraction(double x) { return x >= 0 && x < 1; }

mu_status mu__table_options_check(const mu_table_options *o, const char *name)
{
    if (o->dimension < 1 || o->dimension > MOST_DIMENSION)
        return mu__error(MU_INVALID_ARGUMENT, "embedding table '%s': the dimension is %lld; it must be from 1 to %d",
                         name, (long long)o->dimension, MOST_DIMENSION);
    if (o->dtype != MU_F32 && o->dtype != MU_BF16)
        return mu__error(MU_INVALID_ARGUMENT,
                         "embedding table '%s': rows are stored as MU_F32 or MU_BF16, not as type %lld", name,
                         (long long)o->dtype);
    if (o->optimizer < 0 || o->optimizer >= MU_TABLE_N_OPTIMIZERS || o->initializer < 0 ||
        o->initializer >= MU_TABLE_N_INITIALIZERS)
        return mu__error(MU_INVALID_ARGUMENT, "embedding table '%s': optimizer %lld or initializer %lld is unknown",
                         name, (long long)o->optimizer, (long long)o->initializer);
    if (o->max_rows < 0 || o->max_age < 0 || o->max_bytes < 0 || !(o->scale >= 0) || !(o->learning_rate >= 0) ||
        !(o->initial_accumulator >= 0) || !is_fraction(o->beta_1) || !is_fraction(o->beta_2) || !(o->epsilon >= 0))
        return mu__error(MU_INVALID_ARGUMENT,
                         "embedding table '%s': a limit, rate or factor is out of range; limits, .scale, "
                         ".learning_rate and .epsilon must not be negative, the betas be from 0 to below 1",
                         name);
    return MU_OK;
}

// ---- The resource -------------------------------------------------------------------------------

const mu_resource_kind mu__table_kind = {.name = MU_TABLE_KIND,
                                         .acquire = mu__opaque_acquire,
                                         .commit = mu__opaque_commit,
                                         .opaque = true,
                                         .what = "embedding table"};

static size_t slab_bytes(const mu_table *t) { return t->row_bytes << t->slab_shift; }

static void free_rows(const mu_table *t, mu_table_stripe *s)
{
    for (uint32_t i = 0; i < s->n_slabs; i++)
        mu__free_data(s->slabs[i], slab_bytes(t));
    mu__free(s->slabs);
    mu__free(s->index);
    s->slabs = NULL;
    s->index = NULL;
    s->mask = 0;
    s->n_slabs = s->n_taken = s->n = s->free = s->newest = s->oldest = 0;
}

static void table_destroy(void *object)
{
    mu_table *t = object;
    for (int i = 0; i < t->made; i++) {
        free_rows(t, &t->stripes[i]);
        pthread_mutex_destroy(&t->stripes[i].lock);
    }
    mu__holder_end(&t->holder);
    mu__free(t->stripes);
    mu_release(t->resource.self);
    mu__free(t->resource.name);
}

static mu_type table_type = {.name = "embedding table's rows", .destroy = table_destroy};

static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

static void lay_out(mu_table *t)
{
    const mu_table_options *o = &t->options;
    const size_t values = (size_t)o->dimension * mu_dtype_bytes((mu_dtype)o->dtype);
    t->values_at = sizeof(mu_table_row);
    t->slots_at = rounded(t->values_at + values, sizeof(float));
    t->row_bytes = rounded(t->slots_at + (size_t)mu__table_slots(o) * sizeof(float), 32);
    while ((t->row_bytes << (t->slab_shift + 1)) <= SLAB_BYTES)
        t->slab_shift++;
    t->n_stripes = 1;
    while (t->n_stripes < MOST_STRIPES && (o->max_rows == 0 || t->n_stripes * ROWS_PER_STRIPE < o->max_rows))
        t->n_stripes *= 2;
    if (o->max_rows > 0)
        t->most_rows = (uint32_t)MU_MIN(MU_MAX(o->max_rows / t->n_stripes, 1), (int64_t)UINT32_MAX - 1);
}

mu_table *mu__table_new(const mu_table_options *options, const char *name, mu_byte_budget *budget)
{
    if (mu__table_options_check(options, name) != MU_OK)
        return NULL;
    mu_table *t = mu__new(&table_type, sizeof *t);
    if (!t)
        return NULL;
    t->options = *options;
    t->resource.kind = &mu__table_kind;
    t->resource.spec = (mu_spec){.dtype = MU_F32, .shape = MU_SHAPE(options->dimension)};
    t->resource.name = mu__strdup(name);
    mu__holder_begin(&t->holder, budget, "embedding table", t->resource.name);
    lay_out(t);
    const bool begun = mu__opaque_begin(&t->resource) == MU_OK;
    t->stripes = mu__calloc((size_t)t->n_stripes, sizeof *t->stripes);
    while (t->stripes && t->made < t->n_stripes && pthread_mutex_init(&t->stripes[t->made].lock, NULL) == 0)
        t->made++;
    if (t->resource.name && begun && t->made == t->n_stripes)
        return t;
    if (!mu__pending())
        mu__error(MU_RESOURCE_EXHAUSTED, "embedding table '%s': the system cannot make a lock; free memory", name);
    mu_release(t);
    return NULL;
}

// ---- Bytes --------------------------------------------------------------------------------------

static mu_status no_space(const mu_table *t, const char *why)
{
    return mu__error(MU_RESOURCE_EXHAUSTED,
                     "embedding table '%s' has no room for more rows: %s; raise the limit, limit the rows or their age "
                     "(.max_rows, .max_age), or add servers",
                     t->resource.name, why);
}

static mu_status take_bytes(mu_table *t, size_t bytes)
{
    const size_t own = t->options.max_bytes > 0 ? (size_t)t->options.max_bytes : SIZE_MAX;
    char why[MU_HOLDERS_TEXT];
    if (!mu__holder_take(&t->holder, bytes))
        return no_space(t, mu__holders_largest(t->holder.budget, why));
    if (t->holder.bytes <= own)
        return MU_OK;
    mu__holder_give(&t->holder, bytes);
    snprintf(why, sizeof why, "it takes %zu of %zu bytes", (size_t)t->holder.bytes, own);
    return no_space(t, why);
}

// ---- The index ----------------------------------------------------------------------------------

int mu__table_stripe_of(const mu_table *t, uint64_t hash) { return (int)(hash >> 32) & (t->n_stripes - 1); }

mu_table_row *mu__table_row_at(const mu_table *t, const mu_table_stripe *s, uint32_t number)
{
    const uint32_t i = number - 1;
    return (void *)(s->slabs[i >> t->slab_shift] + (i & ((1u << t->slab_shift) - 1)) * t->row_bytes);
}

// The entry of a key, or the free entry where it would be.
static size_t entry_of(const mu_table_stripe *s, uint64_t key, uint64_t hash)
{
    size_t i = hash & s->mask;
    while (s->index[i].row != 0 && s->index[i].key != key)
        i = (i + 1) & s->mask;
    return i;
}

mu_table_row *mu__table_find(const mu_table *t, const mu_table_stripe *s, uint64_t key, uint64_t hash)
{
    const uint32_t row = s->index ? s->index[entry_of(s, key, hash)].row : 0;
    return row != 0 ? mu__table_row_at(t, s, row) : NULL;
}

// Doubles the index when it would be more than three quarters full.
static mu_status grow(mu_table *t, mu_table_stripe *s)
{
    const size_t size = s->index ? s->mask + 1 : 0, wanted = size ? 2 * size : FIRST_INDEX;
    if (size && ((size_t)s->n + 1) * 4 <= size * 3)
        return MU_OK;
    MU_TRY(take_bytes(t, (wanted - size) * sizeof *s->index));
    mu_table_stripe grown = {.index = mu__calloc(wanted, sizeof *s->index), .mask = wanted - 1};
    if (!grown.index) {
        mu__holder_give(&t->holder, (wanted - size) * sizeof *s->index);
        return MU_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0; i < size; i++)
        if (s->index[i].row != 0)
            grown.index[entry_of(&grown, s->index[i].key, mu__hash_id(s->index[i].key))] = s->index[i];
    mu__free(s->index);
    s->index = grown.index;
    s->mask = grown.mask;
    return MU_OK;
}

// Shifts back entries that a search would no longer find after a free entry (Knuth, volume 3, 6.4, algorithm R).
static void remove_entry(mu_table_stripe *s, size_t free)
{
    for (size_t i = (free + 1) & s->mask; s->index[i].row != 0; i = (i + 1) & s->mask) {
        const size_t wanted = mu__hash_id(s->index[i].key) & s->mask;
        if (((i - wanted) & s->mask) < ((i - free) & s->mask))
            continue;
        s->index[free] = s->index[i];
        free = i;
    }
    s->index[free].row = 0;
}

// ---- The order of use ---------------------------------------------------------------------------

static bool keeps_order(const mu_table *t) { return t->most_rows > 0 || t->options.max_age > 0; }

static void unlink_row(const mu_table *t, mu_table_stripe *s, const mu_table_row *row)
{
    *(row->newer ? &mu__table_row_at(t, s, row->newer)->older : &s->newest) = row->older;
    *(row->older ? &mu__table_row_at(t, s, row->older)->newer : &s->oldest) = row->newer;
}

static void link_newest(const mu_table *t, mu_table_stripe *s, mu_table_row *row, uint32_t number)
{
    row->newer = 0;
    row->older = s->newest;
    *(s->newest ? &mu__table_row_at(t, s, s->newest)->newer : &s->oldest) = number;
    s->newest = number;
}

void mu__table_touch(const mu_table *t, mu_table_stripe *s, mu_table_row *row)
{
    row->used = t->n_updates;
    const uint32_t number = !keeps_order(t)   ? 0
                            : row->newer != 0 ? mu__table_row_at(t, s, row->newer)->older
                                              : s->newest;
    if (number == 0 || number == s->newest)
        return;
    unlink_row(t, s, row);
    link_newest(t, s, row, number);
}

static void remove_oldest(mu_table *t, mu_table_stripe *s)
{
    const uint32_t number = s->oldest;
    mu_table_row *row = mu__table_row_at(t, s, number);
    remove_entry(s, entry_of(s, row->key, mu__hash_id(row->key)));
    unlink_row(t, s, row);
    row->older = s->free;
    s->free = number;
    s->n--;
}

void mu__table_evict(mu_table *t, mu_table_stripe *s, uint64_t n_updates)
{
    const uint64_t most = (uint64_t)t->options.max_age;
    while (most > 0 && s->oldest != 0 && mu__table_row_at(t, s, s->oldest)->used + most <= n_updates)
        remove_oldest(t, s);
}

// ---- Making a row -------------------------------------------------------------------------------

static mu_status add_slab(mu_table *t, mu_table_stripe *s)
{
    if (s->n_taken >> t->slab_shift == UINT32_MAX >> t->slab_shift)
        return mu__error(MU_RESOURCE_EXHAUSTED, "embedding table '%s' has %u rows in a stripe; it can have no more",
                         t->resource.name, s->n);
    MU_TRY(take_bytes(t, slab_bytes(t)));
    char **slabs = mu__realloc(s->slabs, ((size_t)s->n_slabs + 1) * sizeof *slabs);
    char *slab = slabs ? mu__alloc_data(slab_bytes(t)) : NULL;
    if (slabs)
        s->slabs = slabs;
    if (!slab) {
        mu__holder_give(&t->holder, slab_bytes(t));
        return MU_RESOURCE_EXHAUSTED;
    }
    s->slabs[s->n_slabs++] = slab;
    return MU_OK;
}

// The number of an unused row; 0 on error.
static uint32_t take_row(mu_table *t, mu_table_stripe *s)
{
    const uint32_t number = s->free;
    if (number != 0) {
        s->free = mu__table_row_at(t, s, number)->older;
        return number;
    }
    if (s->n_taken == s->n_slabs << t->slab_shift && add_slab(t, s) != MU_OK)
        return 0;
    return ++s->n_taken;
}

mu_table_row *mu__table_add(mu_table *t, mu_table_stripe *s, uint64_t key, uint64_t hash)
{
    while (t->most_rows > 0 && s->n >= t->most_rows)
        remove_oldest(t, s);
    const uint32_t number = grow(t, s) == MU_OK ? take_row(t, s) : 0;
    if (number == 0)
        return NULL;
    mu_table_row *row = mu__table_row_at(t, s, number);
    *row = (mu_table_row){.key = key, .used = t->n_updates};
    s->index[entry_of(s, key, hash)] = (mu_table_entry){.key = key, .row = number};
    s->n++;
    if (keeps_order(t))
        link_newest(t, s, row, number);
    mu__row_begin(t, row);
    return row;
}

void mu__table_clear(mu_table *t, uint64_t oldest)
{
    for (int i = 0; i < t->n_stripes; i++) {
        mu_table_stripe *s = &t->stripes[i];
        pthread_mutex_lock(&s->lock);
        mu__holder_give(&t->holder, s->n_slabs * slab_bytes(t) + (s->index ? (s->mask + 1) * sizeof *s->index : 0));
        free_rows(t, s);
        pthread_mutex_unlock(&s->lock);
    }
    t->n_updates = oldest;
}
