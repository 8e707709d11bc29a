// Embedding tables: makes them in this process or on a strategy's servers, and applies their ops.
#include "distribute/variables/strategy_embedding.h"

#include "distribute/strategies/parameter_server.h"
#include "rpc/remote/remote_table.h"

#include <muster/ops.h>

static void table_destroy(void *object)
{
    mu_embedding_table *table = object;
    mu_release(table->resource);
}

mu_type mu__embedding_table_type = {.name = "embedding table", .destroy = table_destroy};

// ---- Options ------------------------------------------------------------------------------------

static const char constructor[] = "mu_embedding_table_new";
static const char *const optimizers[] = {[MU_TABLE_SGD] = "sgd",
                                         [MU_TABLE_ADAGRAD] = "adagrad",
                                         [MU_TABLE_ROWWISE_ADAGRAD] = "rowwise_adagrad",
                                         [MU_TABLE_ADAM] = "adam"};
static const char *const initializers[] = {
    [MU_TABLE_UNIFORM] = "uniform", [MU_TABLE_NORMAL] = "normal", [MU_TABLE_ZEROS] = "zeros"};

static mu_status read_word(const char *given, int n, const char *const *words, int standard, const char *what,
                           int64_t *out)
{
    *out = standard;
    for (int i = 0; given && i < n; i++)
        if (strcmp(given, words[i]) == 0) {
            *out = i;
            return MU_OK;
        }
    if (!given)
        return MU_OK;
    char known[80] = "";
    for (int i = 0; i < n; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s\"%s\"", i ? ", " : "", words[i]);
    return mu__error(MU_INVALID_ARGUMENT, "%s: .%s is \"%.60s\"; it must be one of %s", constructor, what, given,
                     known);
}

#define OR(field, standard) (MU_GIVEN(args, field) ? args->field : (standard))

static mu_status read_options(const mu_embedding_table_args *args, mu_table_options *o)
{
    *o = (mu_table_options){.dimension = args->dimension,
                            .dtype = args->dtype == MU_DTYPE_DEFAULT ? MU_F32 : args->dtype,
                            .seed = args->seed,
                            .max_rows = args->max_rows,
                            .max_age = args->max_age,
                            .max_bytes = args->max_bytes,
                            .scale = OR(scale, 0.05),
                            .initial_accumulator = OR(initial_accumulator_value, 0.1),
                            .beta_1 = OR(beta_1, 0.9),
                            .beta_2 = OR(beta_2, 0.999),
                            .epsilon = OR(epsilon, 1e-7)};
    MU_TRY(read_word(args->optimizer, MU_TABLE_N_OPTIMIZERS, optimizers, MU_TABLE_ADAGRAD, "optimizer", &o->optimizer));
    MU_TRY(read_word(args->initializer, MU_TABLE_N_INITIALIZERS, initializers, MU_TABLE_UNIFORM, "initializer",
                     &o->initializer));
    o->learning_rate = OR(learning_rate, o->optimizer == MU_TABLE_SGD ? 0.01 : 0.001);
    return mu__table_options_check(o, args->name);
}

// ---- Making one ---------------------------------------------------------------------------------

// On all servers, or on none.
static mu_resource *make_on_servers(const mu_servers *servers, const char *name, const mu_table_options *options)
{
    mu_table_options part = *options;
    mu_rpc_client **clients = mu__calloc((size_t)servers->n, sizeof *clients);
    mu_resource *resource = NULL;
    int made = 0;
    if (options->max_rows > 0)
        part.max_rows = (options->max_rows + servers->n - 1) / servers->n;
    for (; clients && made < servers->n; made++) {
        clients[made] = servers->servers[made].client;
        if (mu__remote_table_create(clients[made], name, &part) != MU_OK)
            break;
    }
    if (clients && made == servers->n)
        resource = mu__remote_table(servers->n, clients, name, options->dimension);
    if (resource)
        mu__remote_table_own(resource);
    mu_error_value error;
    if (clients && !resource) {
        mu__error_move(&error);
        for (int i = 0; i < made; i++)
            if (mu__remote_table_delete(clients[i], name) != MU_OK)
                mu_error_take(); // the server is gone, or clears its tables for the next coordinator
        mu__error_raise(&error);
    }
    mu__free(clients);
    return resource;
}

static mu_resource *make_here(const mu_table_options *options, const char *name)
{
    mu_table *table = mu__table_new(options, name, NULL);
    return table ? &table->resource : NULL;
}

mu_resource *mu__make_served_table(const mu_strategy *strategy, const mu_table_options *options, const char *name)
{
    return strategy->servers->remote ? make_on_servers(strategy->servers, name, options) : make_here(options, name);
}

mu_resource *mu__refuse_table(const mu_strategy *strategy, const mu_table_options *options, const char *name)
{
    (void)options;
    mu__error(MU_UNIMPLEMENTED,
              "%s: '%s' would be another table on each of the %d workers of %s; use ParameterServerStrategy, whose "
              "servers all workers reach",
              constructor, name, strategy->n_workers, strategy->ops->name);
    return NULL;
}

static mu_resource *make_resource(const mu_table_options *options, const char *name)
{
    const mu_strategy *strategy = mu__current_strategy();
    return strategy && strategy->ops->make_table ? strategy->ops->make_table(strategy, options, name)
                                                 : make_here(options, name);
}

mu_embedding_table *mu_embedding_table_new_with(const mu_embedding_table_args *given)
{
    mu_embedding_table_args args;
    mu_table_options options;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, constructor) != MU_OK)
        return NULL;
    args.name = args.name ? args.name : "embedding_table";
    if (read_options(&args, &options) != MU_OK)
        return NULL;
    mu_embedding_table *table = mu__new(&mu__embedding_table_type, sizeof *table);
    if (!table)
        return NULL;
    table->options = options;
    table->resource = make_resource(&options, args.name);
    if (table->resource)
        return mu__give(table);
    mu_release(table);
    return NULL;
}

// ---- Using it -----------------------------------------------------------------------------------

static mu_status check(const mu_embedding_table *table, const mu_tensor *keys, const char *function)
{
    if (mu__pending())
        return mu_error_code();
    if (!table || !keys)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, table ? "tensor of keys" : "table");
    if (keys->dtype == MU_I32 || keys->dtype == MU_I64)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the keys of '%s' are of type %s; they must be int64 or int32", function,
                     table->resource->name, mu_dtype_name(keys->dtype));
}

mu_tensor *mu_embedding_table_lookup_with(const mu_embedding_table_lookup_args *given)
{
    mu_embedding_table_lookup_args args;
    mu_table_lookup_attrs attrs = {0};
    mu_tensor *rows = NULL;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_embedding_table_lookup") != MU_OK ||
        check(args.table, args.keys, "mu_embedding_table_lookup") != MU_OK)
        return NULL;
    mu_tensor *keys = mu_cast(args.keys, MU_I64);
    attrs.read_only = args.read_only;
    return mu__apply(&mu_op_embedding_table_lookup, &attrs, 1, &keys, 1, &args.table->resource, &rows) == MU_OK ? rows
                                                                                                                : NULL;
}

mu_status mu_embedding_table_apply_gradients_with(const mu_embedding_table_apply_gradients_args *given)
{
    static const char function[] = "mu_embedding_table_apply_gradients";
    mu_embedding_table_apply_gradients_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, function));
    MU_TRY(check(args.table, args.keys, function));
    MU_TRY(mu__need(args.gradients, "mu_embedding_table_apply_gradients: the tensor of gradients"));
    mu_tensor *rate = args.learning_rate ? mu_cast(args.learning_rate, MU_F64) : mu_constant(MU_F64, -1);
    mu_tensor *in[] = {mu_cast(args.keys, MU_I64), args.gradients, rate};
    return mu__apply(&mu_op_embedding_table_update, NULL, 3, in, 1, &args.table->resource, NULL);
}

// Number i of a table's state, over all servers.
static int64_t state_of(mu_embedding_table *table, int i, const char *function)
{
    int n = 0;
    int64_t sum = 0, state[3];
    if (mu__pending())
        return -1;
    if (!table) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the table is NULL", function);
        return -1;
    }
    mu_rpc_client *const *clients = mu__remote_table_clients(table->resource, &n);
    mu_table *local = (mu_table *)table->resource;
    if (!clients)
        return i == 0 ? mu__table_rows(local) : (int64_t)local->holder.bytes;
    for (int s = 0; s < n; s++) {
        if (mu__remote_table_state(clients[s], table->resource->name, state) != MU_OK)
            return -1;
        sum += state[i];
    }
    return sum;
}

int64_t mu_embedding_table_row_count(mu_embedding_table *table)
{
    return state_of(table, 0, "mu_embedding_table_row_count");
}

int64_t mu_embedding_table_bytes(mu_embedding_table *table) { return state_of(table, 1, "mu_embedding_table_bytes"); }

const char *mu_embedding_table_name(const mu_embedding_table *table) { return table ? table->resource->name : NULL; }

int64_t mu_embedding_table_dimension(const mu_embedding_table *table) { return table ? table->options.dimension : 0; }
