// Whether a model takes its validation data, which fit finds out before the first epoch.
//
// Where their elements are known to differ from those of training, which the first step checks, the model and its
// losses are traced once for them. Nothing is read: a generator would not give the element again.
#include "model/models/host_part.h"
#include "model/models/model.h"
#include "model/training/pass.h"

// Whether elements are alike but for the number of rows.
static bool are_alike(const mu_value *a, const mu_value *b)
{
    mu_object *of_a[2 * MU_MAX_MODEL_INPUTS], *of_b[2 * MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(a, of_a, (int)MU_COUNT(of_a));
    bool alike = n <= (int)MU_COUNT(of_a) && mu__value_same_structure(a, b);
    if (alike)
        mu__value_flatten(b, of_b, (int)MU_COUNT(of_b));
    for (int i = 0; alike && i < n; i++) {
        const mu_tensor *x = (const mu_tensor *)of_a[i], *y = (const mu_tensor *)of_b[i];
        alike = x->dtype == y->dtype && x->shape.rank == y->shape.rank;
        for (int k = 1; alike && k < x->shape.rank; k++)
            alike = x->shape.dims[k] == y->shape.dims[k];
    }
    return alike;
}

// Traces the model and its losses for an element, whose batch axis has `rows` where it is not known.
static mu_status trace(mu_model *model, const mu_value *element, int64_t rows)
{
    const int n = mu__value_flatten(element, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_spec *specs = mu__calloc((size_t)n + 1, sizeof *specs);
    mu_traced traced = {0};
    mu_status status = leaves && specs ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        mu__value_flatten(element, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++) {
        specs[i] = mu__spec_of((const mu_tensor *)leaves[i]);
        if (specs[i].shape.rank > 0 && specs[i].shape.dims[0] == MU_UNKNOWN && rows > 0)
            specs[i].shape.dims[0] = rows;
    }
    mu_scope_guard scope = mu_scope_open(model->strategy);
    mu_host_results shapes, *outer = mu__host_shapes_begin(&shapes);
    if (status == MU_OK)
        status = mu__trace_run("validation", mu__loss_step, model, element, specs, true, &traced);
    mu__host_shapes_end(outer);
    mu__losses_begin(model); // those of the trace end with it
    mu_scope_close(&scope);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    mu__free(leaves);
    mu__free(specs);
    return status;
}

// The number of rows that all tensors have in training's trace, MU_UNKNOWN where nothing tells it. 0: they differ, so
// a first axis need not be the batch.
static int64_t rows_of(const mu_value *element, int64_t batch_size)
{
    mu_object *leaves[2 * MU_MAX_MODEL_INPUTS];
    const int n = MU_MIN(mu__value_flatten(element, leaves, (int)MU_COUNT(leaves)), (int)MU_COUNT(leaves));
    int64_t rows = 0;
    for (int i = 0; i < n; i++) {
        const mu_shape *shape = &((const mu_tensor *)leaves[i])->shape;
        int64_t first = shape->rank > 0 ? shape->dims[0] : 0;
        if (first == MU_UNKNOWN && batch_size > 0)
            first = batch_size;
        if (first == 0 || (i > 0 && first != rows))
            return 0;
        rows = first;
    }
    return rows;
}

// Whether a trace with so many rows, training's, sees what a step would: no axis is unknown but the first one of all
// tensors.
static bool is_known(const mu_value *element, int64_t rows)
{
    mu_object *leaves[2 * MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(element, leaves, (int)MU_COUNT(leaves));
    int unknown = 0;
    bool known = n <= (int)MU_COUNT(leaves);
    for (int i = 0; known && i < n; i++) {
        const mu_shape *shape = &((const mu_tensor *)leaves[i])->shape;
        unknown += shape->rank > 0 && shape->dims[0] == MU_UNKNOWN;
        for (int k = 1; known && k < shape->rank; k++)
            known = shape->dims[k] != MU_UNKNOWN;
    }
    return known && (unknown == 0 || (unknown == n && rows != 0));
}

// Whether a trace tells what a step would: it does of training's elements. A model without weights gets them, except
// where several processes make them together: this one's data alone may be of another kind.
static bool can_trace(mu_model *model, const mu_value *element, int64_t batch_size)
{
    mu_error_value error;
    if (!mu__layer_is_built(model) && model->strategy->n_workers > 1)
        return false;
    const bool traces = trace(model, element, batch_size) == MU_OK;
    mu__error_move(&error);
    return traces;
}

static mu_status check(mu_model *model, mu_dataset *training, mu_dataset *validation)
{
    mu_value *wanted = mu__give(mu__dataset_spec(training)), *seen = mu__give(mu__dataset_spec(validation));
    if (mu__pending() || !wanted || !seen || are_alike(wanted, seen))
        return mu_error_code();
    const int64_t batch_size = mu__dataset_batch_size(training), rows = rows_of(wanted, batch_size);
    if (is_known(seen, rows) && can_trace(model, wanted, batch_size) && trace(model, seen, rows) != MU_OK)
        mu__error_context("in the validation data (validation_data, validation_split), before the first epoch");
    return mu_error_code();
}

mu_status mu__check_validation(mu_model *model, mu_dataset *training, mu_dataset *validation)
{
    const mu_trainer *trainer = model->trainer;
    if (!training || !validation || trainer->train_step || trainer->test_step || trainer->run_eagerly)
        return MU_OK;
    mu_pool *pool = mu_pool_open();
    const mu_status status = pool ? check(model, training, validation) : mu_error_code();
    mu_pool_close(pool);
    return status;
}
