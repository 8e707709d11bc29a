// Fuzzes the reader of serialised graphs: any bytes are refused with a record, or give a graph that is written
// again and then reads as the same. Resources are made as they are asked for, so that effects get past them.
#include "../unit/graph/same_resource.h"

#include "graph/graph.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static mu_resource *make_variable(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg;
    if (strcmp(kind, "variable") != 0 || !mu__shape_known(&spec->shape) || mu__spec_bytes(spec) > 4096)
        return NULL;
    mu_tensor *zeros = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    mu_variable *variable = mu_variable_new(zeros, name);
    return variable ? &variable->resource : NULL;
}

// Only resources of one name may be refused when it is written.
static void write_again(mu_graph *graph)
{
    void *written;
    size_t size;
    if (mu__graph_write(graph, &written, &size) != MU_OK)
        return;
    mu_graph *again = mu__graph_read(written, size, same_resource, graph);
    if (!again || again->nodes.n != graph->nodes.n || again->outputs.n != graph->outputs.n)
        abort();
    mu_release(again);
    mu__free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_graph *graph = mu__graph_read(data, bytes, make_variable, NULL);
    if (!graph == !mu_error_code())
        abort();
    if (graph)
        write_again(graph);
    mu_release(graph);
    mu_error_take();
    mu_pool_close(pool);
    return 0;
}
