// The coordinator's end of inputs that workers keep: see input_service.h.
#include "distribute/servers/input_service.h"

#include "data/describe.h"
#include "distribute/distribute.h"
#include "rpc/rpc.h"

static const mu_wire_need need = {MU_WIRE_INPUTS, "datasets and values that workers keep"};

// ---- Making and ending --------------------------------------------------------------------------

// The answer is not awaited; a process that is gone has nothing to free.
static void tell_end(const mu_remote_input *input)
{
    enum { SECONDS = 10 };
    mu_error_value before, ignored;
    mu__error_move(&before);
    mu_pool *pool = mu_pool_open();
    mu_value *arguments = pool != NULL ? mu_list(mu_tensor_new(MU_I64, 0, NULL, &input->number), MU_END) : NULL;
    if (arguments != NULL)
        mu_release(mu__client_call(input->client, "muster.input.delete", arguments, SECONDS, NULL, NULL));
    mu_pool_close(pool);
    mu__error_move(&ignored);
    mu__error_raise(&before);
}

static void input_destroy(void *object)
{
    mu_remote_input *input = object;
    if (input->process != 0 && mu_rpc_client_server(input->client) == input->process)
        tell_end(input);
    mu_release(input->element);
    mu_release(input->client);
}

mu_type mu__remote_input_type = {.name = "input on a worker", .destroy = input_destroy};

static const mu_tensor *number_in(const mu_rpc_client *worker, const mu_value *answer)
{
    const mu_tensor *number = answer != NULL ? mu_at(answer, 0) : NULL;
    if (!mu__pending() && (number == NULL || number->dtype != MU_I64 || number->shape.rank != 0))
        mu__error(MU_DATA_LOSS, "the worker at %s answers with something else than the number of an input",
                  mu__client_address(worker));
    return mu__pending() ? NULL : number;
}

static mu_remote_input *make(mu_rpc_client *worker, const char *method, const char *name, mu_value *what)
{
    mu_remote_input *input = what != NULL ? mu__new(&mu__remote_input_type, sizeof *input) : NULL;
    if (input == NULL)
        return NULL;
    mu_pool *pool = mu_pool_open();
    input->client = mu_retain(worker);
    mu_remote_call call = {.client = worker,
                           .arguments = mu_list(mu__text_value(name), what, MU_END),
                           .need = &need,
                           .subject = {.what = name}};
    mu__remote_calls(method, 1, &call);
    const mu_tensor *number = number_in(worker, mu__pending() ? NULL : call.value);
    if (number != NULL) {
        input->number = mu_tensor_item_int(number, 0);
        input->process = mu_rpc_client_server(worker);
    }
    mu_pool_close(pool);
    if (!mu__pending())
        return input;
    mu_release(input);
    return NULL;
}

static mu_value *spec_of(mu_value *value) { return mu__map_spec(mu_retain(value), mu__spec_as_it_is, 0); }

mu_remote_input *mu__remote_input_value(mu_rpc_client *worker, const char *name, mu_value *value)
{
    mu_value *spec = spec_of(value);
    mu_remote_input *input = spec != NULL ? make(worker, "muster.input.value", name, value) : NULL;
    if (input != NULL)
        input->element = spec;
    else
        mu_release(spec);
    return input;
}

mu_remote_input *mu__remote_input_dataset(mu_rpc_client *worker, const char *name, mu_dataset *dataset)
{
    mu_remote_input *input = make(worker, "muster.input.dataset", name, mu__dataset_describe(dataset));
    if (input != NULL)
        input->dataset = true;
    return input;
}

// ---- In arguments -------------------------------------------------------------------------------

mu_remote_input *mu__remote_input_leaf(const mu_value *leaf)
{
    return leaf->kind == MU_VALUE_PER_WORKER && mu__is(leaf->leaf, &mu__remote_input_type)
               ? (mu_remote_input *)leaf->leaf
               : NULL;
}

// Asks what the next element of a dataset is.
static mu_status ask(mu_remote_input *input)
{
    mu_pool *pool = mu_pool_open();
    mu_remote_call call = {.client = input->client,
                           .need = &need,
                           .subject = {.what = "the next element of a worker's dataset"},
                           .arguments = mu_list(mu_tensor_new(MU_I64, 0, NULL, &input->number), MU_END)};
    mu__remote_calls("muster.input.next", 1, &call);
    if (!mu__pending() && call.value == NULL)
        mu__error(MU_DATA_LOSS, "the worker at %s does not say what the next element of a dataset is",
                  mu__client_address(input->client));
    if (!mu__pending())
        input->element = mu__spec_described(call.value);
    mu_pool_close(pool);
    return mu_error_code();
}

static mu_value *spec_in_place(const mu_value *leaf, const void *arg)
{
    mu_remote_input *input = mu__remote_input_leaf(leaf);
    (void)arg;
    if (input == NULL)
        return (mu_value *)leaf;
    return input->element != NULL || ask(input) == MU_OK ? mu__give(mu_retain(input->element)) : NULL;
}

static bool has_input(const mu_value *value)
{
    bool has = mu__remote_input_leaf(value) != NULL;
    for (int i = 0; value->leaf == NULL && i < value->n && !has; i++)
        has = has_input(value->items[i]);
    return has;
}

// Most calls name no input, and are not to be slower for it.
mu_value *mu__remote_input_specs(mu_value *arguments)
{
    return has_input(arguments) ? mu__map_parts(arguments, true, spec_in_place, NULL) : arguments;
}

static mu_status find_positions(mu_input_positions *positions, const mu_value *value, int64_t *n)
{
    mu_remote_input *input = mu__remote_input_leaf(value);
    if (input != NULL) {
        MU_TRY(MU_PUSH(&positions->pairs, *n));
        MU_TRY(MU_PUSH(&positions->pairs, input->number));
        MU_TRY(MU_PUSH(&positions->inputs, input));
        *n += mu__value_flatten(input->element, NULL, 0);
        return MU_OK;
    }
    *n += value->leaf != NULL && mu__is(value->leaf, &mu__tensor_type);
    const bool one = value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED;
    for (int i = 0; value->leaf == NULL && i < (one ? MU_MIN(value->n, 1) : value->n); i++)
        MU_TRY(find_positions(positions, value->items[i], n));
    return MU_OK;
}

mu_status mu__input_positions_find(mu_input_positions *positions, const mu_value *arguments)
{
    int64_t n = 0;
    return find_positions(positions, arguments, &n);
}

void mu__input_positions_free(mu_input_positions *positions)
{
    mu__free(positions->pairs.items);
    mu__free(positions->inputs.items);
    *positions = (mu_input_positions){0};
}

void mu__input_positions_forget(const mu_input_positions *positions)
{
    for (size_t i = 0; i < positions->inputs.n; i++) {
        mu_remote_input *input = positions->inputs.items[i];
        if (!input->dataset)
            continue;
        mu_release(input->element);
        input->element = NULL;
    }
}
