// Accumulators on a server, as this process sees them: ops are sent there like those on variables; outside of functions
// a take is a call of its own, whose result may have any shape.
#include "rpc/services/service.h"

#include "ops/state/accumulator.h"

// How much longer than a take the client waits for its answer.
#define GRACE_S 5.0

static mu_rpc_client *client_of(const mu_accumulator *a) { return (mu_rpc_client *)a->resource.home; }

static mu_value *take(mu_accumulator *a, int64_t required, double timeout_s)
{
    const double seconds = timeout_s > 0 ? timeout_s : mu__setting_real(MU_SETTING_TIMEOUT);
    mu_tensor *number = mu_tensor_new(MU_I64, 0, NULL, &required), *limit = mu_tensor_new(MU_F64, 0, NULL, &seconds);
    mu_remote_call request = {.client = client_of(a),
                              .seconds = seconds + GRACE_S,
                              .settles = true,
                              .subject = mu__remote_subject(NULL, "taking a gradient of accumulator", a->resource.name),
                              .arguments = mu_list(mu__text_value(a->resource.name), number, limit, MU_END)};
    mu_value *answer = mu__remote_calls("muster.accumulator.take", 1, &request) == MU_OK ? request.value : NULL;
    const int wanted = a->sparse ? 3 : 1;
    const mu_tensor *values = answer != NULL && mu_value_count(answer) == wanted ? mu_at(answer, a->sparse) : NULL;
    if (values != NULL && values->dtype == a->resource.spec.dtype)
        return answer;
    if (!mu__pending())
        mu__error(MU_DATA_LOSS, "the server of accumulator '%s' answers a take with something else than a gradient",
                  a->resource.name);
    return NULL;
}

// Works with an error pending.
static mu_status close_it(mu_accumulator *a)
{
    mu_error_value before;
    mu__error_move(&before);
    mu_pool *pool = mu_pool_open();
    mu__remote_call(client_of(a), "muster.accumulator.close",
                    mu__remote_subject(NULL, "closing accumulator", a->resource.name),
                    mu_list(mu__text_value(a->resource.name), MU_END));
    mu_pool_close(pool);
    const mu_status status = mu_error_code();
    if (before.code != MU_OK)
        mu_error_take();
    mu__error_raise(&before);
    return status;
}

static const mu_accumulator_keeper keeper = {.take = take, .close = close_it};

// [sparse, mean, type, rank (-1: any shape), sizes…].
static mu_tensor *numbers_of(const mu_accumulator *a)
{
    int64_t numbers[4 + MU_MAX_RANK] = {a->sparse, a->mean, a->resource.spec.dtype, a->declared_rank};
    const int rank = MU_MAX(a->declared_rank, 0);
    memcpy(numbers + 4, a->declared.dims, sizeof *numbers * (size_t)rank);
    return mu_tensor_new(MU_I64, 1, (int64_t[]){4 + rank}, numbers);
}

mu_accumulator *mu__remote_accumulator_new(mu_rpc_client *client, const char *name,
                                           const mu_conditional_accumulator_args *given, bool sparse)
{
    mu_conditional_accumulator_args args = *given;
    args.name = name;
    mu_accumulator *a = mu__accumulator_new(&args, sparse);
    if (a != NULL && a->shared_name != NULL) { // the server tells accumulators apart by names of their own
        mu__free(a->resource.name);
        a->resource.name = mu__strdup(name);
    }
    static const mu_wire_need need = {MU_WIRE_ACCUMULATORS, "accumulators on servers"};
    mu_pool *pool = mu_pool_open();
    mu__remote_delete_forgotten(client);
    if (a != NULL && a->resource.name != NULL) {
        mu_remote_call call = {.client = client,
                               .need = &need,
                               .subject = mu__remote_subject(NULL, "creating accumulator", name),
                               .arguments = mu_list(mu__text_value(name), numbers_of(a), MU_END)};
        mu__remote_calls("muster.accumulator.create", 1, &call);
    }
    mu_pool_close(pool);
    if (mu__pending()) {
        mu_release(a);
        return NULL;
    }
    a->keeper = &keeper;
    a->resource.kind = mu__remote_kind(a->resource.kind->name);
    a->resource.home = mu_retain(client);
    return a;
}
