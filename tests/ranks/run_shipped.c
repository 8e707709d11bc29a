// Runs a training step that another process traced: this program has the library and the bytes, but none of the other's
// code.
//
// Reads the stream of shipped.h from standard input, makes plain variables for the resources, runs the steps on
// the device's own thread and writes the losses to standard output.
#include "shipped.h"

#include "engine/engine.h"

#include <muster.h>

#include <stdlib.h>

typedef struct work {
    mu_device *device;
    mu_graph *graph;
    float losses[STEPS];
    mu_status status;
    mu_error_value error;
    mu_latch done;
} work;

static mu_resource *make_variable(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg;
    if (strcmp(kind, "variable") != 0)
        return NULL;
    mu_tensor *zeros = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    mu_variable *variable = mu_variable_new(zeros, name);
    return variable ? &variable->resource : NULL;
}

static mu_status read_elements(const mu_tensor *tensor)
{
    const mu_spec spec = mu__spec_of(tensor);
    return read_all(STDIN_FILENO, mu__host_write(tensor), mu__spec_bytes(&spec))
               ? MU_OK
               : mu__error(MU_DATA_LOSS, "the stream ended early");
}

static mu_status read_stream_graph(mu_graph **out)
{
    uint64_t size = 0;
    if (!read_all(STDIN_FILENO, &size, sizeof size) || size > (uint64_t)1 << 30)
        return mu__error(MU_DATA_LOSS, "the stream begins with no length");
    void *bytes = mu__alloc(size);
    if (!bytes)
        return MU_RESOURCE_EXHAUSTED;
    *out = read_all(STDIN_FILENO, bytes, size) ? mu__graph_read(bytes, size, make_variable, NULL) : NULL;
    mu__free(bytes);
    if (!*out)
        return mu__error(MU_DATA_LOSS, "the stream holds no graph");
    for (size_t i = 0; i < (*out)->resources.n; i++)
        MU_TRY(read_elements(((mu_variable *)(*out)->resources.items[i])->components[0]));
    return MU_OK;
}

static mu_status run_step(const work *w, mu_plan *plan, mu_tensor *const *in, int64_t number, float *loss)
{
    mu_tensor *out[4] = {NULL};
    const mu_run_args args = {.run = number, .in = in, .out = out};
    MU_TRY(w->device->engine->run(plan, &args));
    *loss = (float)mu_scalar(out[0]);
    for (size_t i = 0; i < w->graph->outputs.n; i++)
        mu_release(out[i]);
    return MU_OK;
}

static mu_status run_steps(work *w)
{
    const mu_spec specs[] = {{.dtype = MU_F32, .shape = MU_SHAPE(BATCH, SIDE, SIDE, 1)},
                             {.dtype = MU_I32, .shape = MU_SHAPE(BATCH)}};
    const mu_engine *engine = w->device->engine;
    mu_tensor *in[] = {mu__tensor_alloc(specs[0].dtype, &specs[0].shape),
                       mu__tensor_alloc(specs[1].dtype, &specs[1].shape)};
    mu_graph *lowered = engine->lower(w->graph);
    mu_plan *plan = lowered && in[0] && in[1] ? engine->compile(w->device, lowered, specs, 2) : NULL;
    mu_status status = plan ? MU_OK : mu_error_code();
    for (int i = 0; i < STEPS && status == MU_OK; i++) {
        MU_GO(read_elements(in[0]));
        MU_GO(read_elements(in[1]));
        MU_GO(run_step(w, plan, in, i + 1, &w->losses[i]));
    }
out:
    engine->free(plan);
    mu_release(lowered);
    mu_release(in[0]);
    mu_release(in[1]);
    return status;
}

static void do_work(void *arg)
{
    work *w = arg;
    mu_context context = {0};
    w->status = mu__context_enter(&context, mu__context());
    if (w->status == MU_OK) {
        w->status = run_steps(w);
        mu__context_leave(&context, NULL, &w->error);
    }
    mu__latch_arrive(&w->done);
}

int main(void)
{
    mu_init(.cpu_devices = 1);
    work w = {.device = mu__device_at(mu__runtime(), 0)};
    mu_worker *worker = w.device ? mu__device_worker(w.device) : NULL;
    if (worker && read_stream_graph(&w.graph) == MU_OK && mu__latch_init(&w.done, 1) == MU_OK &&
        mu__worker_post(worker, do_work, &w) == MU_OK) {
        if (mu__latch_wait(&w.done, mu__deadline_ns(120), "the steps") != MU_OK)
            _Exit(1); // the thread still uses objects on this stack
        mu__error_raise(&w.error);
    }
    mu_release(w.graph);
    const bool sent = !mu__pending() && write_all(STDOUT_FILENO, w.losses, sizeof w.losses);
    return mu_exit(sent) || !sent;
}
