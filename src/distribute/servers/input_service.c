// The worker's end of inputs that it keeps for a coordinator: see input_service.h.
//
// What arrives is hostile until verified: mu__dataset_described checks a description, and an element reaches a graph
// only if it fits. The files that a description names are opened with the rights of the worker's process, as everything
// is that a coordinator has it do: permissions.c lets only the coordinator call these methods.
#include "distribute/servers/input_service.h"

#include "base/system.h"
#include "data/describe.h"
#include "engine/engine.h"
#include "rpc/server/call_metrics.h"
#include "rpc/rpc.h"

enum { MOST_INPUTS = 4096, READ_AHEAD = 2 };

// Number, name and budget never change. The rest is used with the lock `taking` held.
typedef struct input {
    mu_object object;
    int64_t number;
    char *name;            // "the dataset of worker 2"
    mu_holder holder;      // of the bytes that came
    mu_iterator *iterator; // NULL: of a value
    struct {
        mu_value **items;
        size_t n, capacity;
    } drawn;     // the value, or the next elements, which no call has used; retained
    size_t used; // of them, by the call whose tensors are being collected
} input;

struct mu_worker_inputs {
    mu_object object;
    mu_kept *kept;          // retained
    pthread_mutex_t lock;   // of the list
    pthread_mutex_t taking; // held while elements are drawn; taken before `lock`
    int n_locks;            // that exist
    int64_t next_number;    // from a random one on: that of another process names nothing here
    struct {
        input **items;
        size_t n, capacity;
    } all; // retained
};

static void input_destroy(void *object)
{
    input *in = object;
    for (size_t i = 0; i < in->drawn.n; i++)
        mu_release(in->drawn.items[i]);
    mu__free(in->drawn.items);
    mu_release(in->iterator);
    mu__holder_end(&in->holder);
    mu__free(in->name);
}

static mu_type input_type = {.name = "input of a worker", .destroy = input_destroy};

static void free_all(void *object)
{
    mu_worker_inputs *s = object;
    pthread_mutex_lock(&s->lock);
    input **items = s->all.items;
    const size_t n = s->all.n;
    memset(&s->all, 0, sizeof s->all);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++)
        mu_release(items[i]); // a dataset's threads may take time to end
    mu__free(items);
}

static void inputs_destroy(void *object)
{
    mu_worker_inputs *s = object;
    if (s->n_locks == 2)
        free_all(s);
    if (s->n_locks > 1)
        pthread_mutex_destroy(&s->taking);
    if (s->n_locks > 0)
        pthread_mutex_destroy(&s->lock);
    mu_release(s->kept);
}

static mu_type inputs_type = {.name = "inputs of a worker", .destroy = inputs_destroy};

// ---- Making -------------------------------------------------------------------------------------

static mu_status take_bytes(mu_worker_inputs *s, input *in, const mu_value *what)
{
    char largest[MU_HOLDERS_TEXT];
    mu_leaves leaves;
    size_t bytes = 0;
    MU_TRY(mu__leaves_of(what, &leaves));
    for (int i = 0; i < leaves.n; i++) {
        const mu_spec spec = mu__spec_of(mu__leaf(&leaves, i));
        bytes += mu__spec_bytes(&spec);
    }
    mu__leaves_free(&leaves);
    mu__holder_begin(&in->holder, &s->kept->budget, "input", in->name);
    if (mu__holder_take(&in->holder, bytes))
        return MU_OK;
    return mu__error(MU_RESOURCE_EXHAUSTED, "%s has %zu bytes, and %s; give the workers more (--max-bytes)", in->name,
                     bytes, mu__holders_largest(&s->kept->budget, largest));
}

static mu_status add(mu_worker_inputs *s, input *in)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&s->lock);
    if (s->all.n == MOST_INPUTS)
        status = mu__error(MU_RESOURCE_EXHAUSTED, "this worker keeps %d inputs; release some first", MOST_INPUTS);
    else if ((status = MU_PUSH(&s->all, in)) == MU_OK)
        in->number = s->next_number++;
    pthread_mutex_unlock(&s->lock);
    if (status == MU_OK)
        mu_retain(in);
    return status;
}

// The iterator of a description, which prefetches on a thread of its own.
static mu_iterator *iterate(const mu_value *description)
{
    mu_dataset *dataset = mu__give(mu__dataset_described(description));
    return dataset != NULL ? mu__dataset_iterate(mu_dataset_prefetch(dataset, READ_AHEAD)) : NULL;
}

static mu_status fill(mu_worker_inputs *s, input *in, mu_value *arguments, bool dataset)
{
    mu_value *what = arguments != NULL && mu_value_count(arguments) == 2 ? mu_value_at(arguments, 1) : NULL;
    if (what == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "an input of a worker is made of its name and a value or description");
    MU_TRY(mu__value_text(mu_value_at(arguments, 0), "the name of an input", &in->name));
    MU_TRY(take_bytes(s, in, what));
    if (dataset && (in->iterator = iterate(what)) == NULL)
        return mu_error_code();
    if (!dataset)
        MU_TRY(MU_PUSH(&in->drawn, mu_retain(what)));
    return add(s, in);
}

static mu_value *make(mu_worker_inputs *s, mu_value *arguments, bool dataset)
{
    input *in = mu__new(&input_type, sizeof *in);
    const mu_status status = in != NULL ? fill(s, in, arguments, dataset) : MU_RESOURCE_EXHAUSTED;
    const int64_t number = status == MU_OK ? in->number : -1;
    mu_release(in);
    return status == MU_OK ? mu_of(mu_tensor_new(MU_I64, 0, NULL, &number)) : NULL;
}

static mu_value *make_value(mu_value *arguments, void *arg) { return make(arg, arguments, false); }

static mu_value *make_dataset(mu_value *arguments, void *arg) { return make(arg, arguments, true); }

// ---- Finding and freeing ------------------------------------------------------------------------

// Returns the input with a number, retained.
static input *find(mu_worker_inputs *s, int64_t number, bool take_out)
{
    input *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->all.n && found == NULL; i++)
        if (s->all.items[i]->number == number) {
            found = take_out ? s->all.items[i] : mu_retain(s->all.items[i]);
            if (take_out)
                s->all.items[i] = s->all.items[--s->all.n];
        }
    pthread_mutex_unlock(&s->lock);
    if (found == NULL && !take_out)
        mu__error(MU_UNAVAILABLE,
                  "this worker does not have input %lld: it is a new process, or another coordinator came",
                  (long long)number);
    return found;
}

static mu_value *delete (mu_value *arguments, void *arg)
{
    mu_release(find(arg, mu_tensor_item_int(mu_at(arguments, 0), 0), true));
    return NULL;
}

// ---- Elements -----------------------------------------------------------------------------------

// Draws one more element.
static mu_status draw(input *in)
{
    mu_value *element = in->iterator->ops->next(in->iterator);
    if (element != NULL && MU_PUSH(&in->drawn, element) != MU_OK)
        mu_release(element);
    else if (element == NULL && !mu__pending())
        mu__error(MU_OUT_OF_RANGE, "%s has no more elements (end of data); repeat it, or schedule fewer steps",
                  in->name);
    else if (element == NULL)
        mu__error_context("in %s, which the worker iterates itself", in->name);
    return mu_error_code();
}

// The value, or element `i` of those that no call has used; borrowed. With `taking` held.
static mu_value *look(input *in, size_t i)
{
    if (in->iterator == NULL)
        return in->drawn.items[0];
    return in->drawn.n > i || draw(in) == MU_OK ? in->drawn.items[i] : NULL;
}

// The elements that a call has used are gone; their tensors belong to its pool.
static void drop_used(input *in)
{
    if (in->iterator == NULL)
        return;
    for (size_t i = 0; i < in->used; i++)
        mu_release(in->drawn.items[i]);
    in->drawn.n -= in->used;
    memmove(in->drawn.items, in->drawn.items + in->used, in->drawn.n * sizeof *in->drawn.items);
    in->used = 0;
}

static mu_value *next_spec(mu_value *arguments, void *arg)
{
    mu_worker_inputs *s = arg;
    input *in = find(s, mu_tensor_item_int(mu_at(arguments, 0), 0), false);
    if (in == NULL)
        return NULL;
    pthread_mutex_lock(&s->taking);
    const mu_value *element = look(in, 0);
    mu_value *spec = element != NULL ? mu__give(mu__spec_describe(element)) : NULL;
    pthread_mutex_unlock(&s->taking);
    mu_release(in);
    return spec;
}

// ---- The inputs of a call -----------------------------------------------------------------------

typedef struct taking {
    const mu_graph *graph;
    mu_tensor **out; // [n] of the pool
    mu_spec *specs;  // [n]
    int n, at;
    input **inputs; // of `positions`, retained
    int n_inputs;
} taking;

static mu_status put(taking *t, mu_tensor *tensor)
{
    if (tensor == NULL)
        return mu_error_code();
    if (t->at == t->n)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' takes %d tensors; more were sent", t->graph->name, t->n);
    t->specs[t->at] = mu__spec_of(tensor);
    t->out[t->at++] = tensor;
    return MU_OK;
}

static mu_status put_element(taking *t, input *in)
{
    mu_leaves leaves;
    mu_value *element = look(in, in->used);
    if (element == NULL)
        return mu_error_code();
    in->used++;
    MU_TRY(mu__leaves_of(element, &leaves));
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < leaves.n; i++)
        status = put(t, mu__give(mu_retain(mu__leaf(&leaves, i))));
    mu__leaves_free(&leaves);
    return status;
}

// What was sent fills the positions between those of the inputs.
static mu_status put_all(taking *t, const mu_value *sent, const int64_t *pairs)
{
    const int n_sent = mu_value_count(sent);
    int used = 0;
    for (int i = 0; i <= t->n_inputs; i++) {
        const int64_t until = i < t->n_inputs ? pairs[2 * i] : t->n;
        while (t->at < until && used < n_sent)
            MU_TRY(put(t, mu_at(sent, used++)));
        if (t->at != until)
            return mu__error(MU_INVALID_ARGUMENT,
                             "'%s' takes %d tensors; its inputs leave other positions than the %d that were sent",
                             t->graph->name, t->n, n_sent);
        if (i < t->n_inputs)
            MU_TRY(put_element(t, t->inputs[i]));
    }
    if (used == n_sent)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "'%s' takes %d tensors; more were sent", t->graph->name, t->n);
}

// An input that is named twice gives two elements. They are used if the graph takes all.
static mu_status take_all(taking *t, const mu_value *sent, const int64_t *pairs, bool *fits)
{
    mu_error_value misfit;
    for (int i = 0; i < t->n_inputs; i++)
        t->inputs[i]->used = 0;
    MU_TRY(put_all(t, sent, pairs));
    *fits = mu__check_inputs(t->graph, t->specs, t->n) == MU_OK;
    if (!*fits)
        mu__error_move(&misfit);
    for (int i = 0; *fits && i < t->n_inputs; i++)
        drop_used(t->inputs[i]);
    return MU_OK;
}

mu_status mu__worker_inputs_take(mu_worker_inputs *s, const mu_graph *graph, const mu_value *sent,
                                 const mu_value *positions, mu_tensor **out, bool *fits)
{
    const int64_t *pairs;
    int64_t n;
    taking t = {.graph = graph, .out = out, .n = (int)graph->inputs.n};
    if (!mu__described_numbers(positions, &pairs, &n) || n % 2 != 0 || n / 2 > MOST_INPUTS)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the positions of a call's inputs must be a vector of int64, two for each");
    t.specs = mu__calloc(graph->inputs.n + 1, sizeof *t.specs);
    t.inputs = mu__calloc((size_t)n / 2 + 1, sizeof *t.inputs);
    mu_status status = t.specs != NULL && t.inputs != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < n / 2 && status == MU_OK; i++)
        status =
            (t.inputs[t.n_inputs] = find(s, pairs[2 * i + 1], false)) != NULL ? (t.n_inputs++, MU_OK) : mu_error_code();
    pthread_mutex_lock(&s->taking);
    if (status == MU_OK)
        status = take_all(&t, sent, pairs, fits);
    pthread_mutex_unlock(&s->taking);
    for (int i = 0; i < t.n_inputs; i++)
        mu_release(t.inputs[i]);
    mu__free(t.inputs);
    mu__free(t.specs);
    return status;
}

// ---- The service --------------------------------------------------------------------------------

static mu_status write_metrics(void *arg, mu_text *out)
{
    mu_worker_inputs *s = arg;
    pthread_mutex_lock(&s->lock);
    const size_t n = s->all.n;
    pthread_mutex_unlock(&s->lock);
    return mu__metrics_gauge(out, "inputs", (double)n);
}

static mu_worker_inputs *new_inputs(mu_kept *kept)
{
    mu_worker_inputs *s = mu__new(&inputs_type, sizeof *s);
    if (s == NULL)
        return NULL;
    s->kept = mu_retain(kept);
    s->n_locks += pthread_mutex_init(&s->lock, NULL) == 0;
    s->n_locks += s->n_locks == 1 && pthread_mutex_init(&s->taking, NULL) == 0;
    if (s->n_locks < 2)
        mu__error(MU_RESOURCE_EXHAUSTED, "the system has no memory for a lock; free some");
    else if (mu__random(&s->next_number, sizeof s->next_number) == MU_OK) {
        s->next_number &= INT64_MAX >> 1;
        return s;
    }
    mu_release(s);
    return NULL;
}

mu_worker_inputs *mu__worker_inputs_add(mu_rpc_server *server, mu_kept *kept)
{
    mu_worker_inputs *s = new_inputs(kept);
    mu_status status = s != NULL ? mu__server_keep(server, s) : mu_error_code();
    const mu_rpc_server_register_args methods[] = {
        {.name = "muster.input.value", .fn = make_value, .arg = s},
        {.name = "muster.input.dataset", .fn = make_dataset, .arg = s},
        {.name = "muster.input.next", .fn = next_spec, .arg = s, .input_signature = "(int64[])"},
        {.name = "muster.input.delete", .fn = delete, .arg = s, .input_signature = "(int64[])"}};
    if (status == MU_OK)
        status = mu__server_owned(server, free_all, s);
    if (status == MU_OK)
        status = mu__server_add_metrics(server, write_metrics, s);
    for (size_t i = 0; i < MU_COUNT(methods) && status == MU_OK; i++)
        status = mu__server_add(server, &methods[i]);
    if (status == MU_OK)
        return s;
    mu_release(s);
    return NULL;
}
