// The layer that sorts numbers into bins, and the bins' boundaries from data.
//
// Boundaries are quantiles of the data as Keras estimates them. A summary of the batches so far has values in ascending
// order and the number of samples that each of them counts for; a batch's own summary is merged into it, and what grows
// longer than 1 / epsilon values is interpolated to that length. As in Keras, all of it is float32, so the boundaries
// are the same.
#include "model/core/layer.h"
#include "model/models/host_part.h"

#include <math.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>
#include <stdlib.h>

static const char *const bin_outputs[] = {"int", "one_hot", "multi_hot", "count", NULL};

static const mu_field discretization_fields[] = {
    MU_FIELD(mu_discretization_args, bin_boundaries, DOUBLES,
             .second = offsetof(mu_discretization_args, n_bin_boundaries)),
    MU_FIELD(mu_discretization_args, num_bins, INT, .limit = MU_NOT_NEGATIVE, .none = true),
    MU_FIELD(mu_discretization_args, epsilon, DOUBLE, .limit = MU_INSIDE, .number = .01),
    MU_FIELD(mu_discretization_args, output_mode, CHOICE, .text = "int", .choices = bin_outputs),
    MU_LAYER_FIELDS(mu_discretization_args),
    {0},
};

// Both may be given: boundaries that mu_adapt has found for this number of bins.
static mu_status discretization_complete(void *arguments)
{
    const mu_discretization_args *args = arguments;
    if (args->n_bin_boundaries < 1 && args->num_bins < 2)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_discretization: there are no bin_boundaries, and num_bins is %d; give one boundary or more, ascending, "
            "and their number in n_bin_boundaries, or 2 bins or more, whose boundaries mu_adapt finds",
            args->num_bins);
    for (int i = 1; i < args->n_bin_boundaries; i++)
        if (!(args->bin_boundaries[i - 1] <= args->bin_boundaries[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_discretization: bin_boundaries[%d] is %g and follows %g; they must ascend", i,
                             args->bin_boundaries[i], args->bin_boundaries[i - 1]);
    return MU_OK;
}

static mu_status discretization_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const char *mode = ((const mu_discretization_args *)layer->args)->output_mode;
    const bool samples = strcmp(mode, "multi_hot") == 0 || strcmp(mode, "count") == 0;
    return mu__need_input_rank(layer, input, samples ? 2 : 1, MU_MAX_RANK);
}

// The boundaries; zeros where only the shape of the output is asked for and there are none yet.
static mu_tensor *boundaries_of(const mu_layer *layer, mu_dtype dtype)
{
    const mu_discretization_args *args = layer->args;
    const int64_t n = args->n_bin_boundaries, later = args->num_bins - 1;
    if (n > 0)
        return mu_cast(mu_tensor_new(MU_F64, 1, &n, args->bin_boundaries), dtype);
    if (mu__host_shapes_only())
        return mu_zeros(dtype, 1, &later);
    mu__error(MU_FAILED_PRECONDITION,
              "layer '%s' has no boundaries of its %d bins; call mu_adapt first, or give .bin_boundaries",
              mu_layer_name((mu_layer *)(uintptr_t)layer), args->num_bins);
    return NULL;
}

static mu_value *discretization_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const char *mode = ((const mu_discretization_args *)layer->args)->output_mode;
    mu_tensor *x = mu_at(inputs, 0), *boundaries = x ? boundaries_of(layer, x->dtype) : NULL;
    if (!boundaries)
        return NULL;
    mu_tensor *bins = mu_searchsorted(boundaries, mu_reshape(x, 1, (int64_t[]){-1}), true);
    bins = mu_reshape_like(bins, x);
    if (strcmp(mode, "int") == 0)
        return mu_of(bins);
    const int64_t depth = mu_tensor_dim(boundaries, 0) + 1;
    return mu_of(mu_cast(mu__encode_tokens(bins, depth, mode), layer->policy.compute));
}

// ---- Summaries of data --------------------------------------------------------------------------

typedef struct weighted {
    float value, weight;
} weighted;

typedef struct summary {
    const mu_discretization_args *args;
    weighted *items;
    int64_t n;
    int64_t samples;
} summary;

static int by_value(const void *a, const void *b)
{
    const weighted *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

// numpy.interp: y at x of the line through points with ascending xs; both of its ends are constant.
static double interpolate(double x, int64_t n, const float *xs, const float *ys, int64_t stride, int64_t *at)
{
    while (*at + 1 < n && (double)xs[*at + 1] <= x)
        ++*at;
    const int64_t i = *at;
    const double x0 = xs[i], y0 = ys[i * stride];
    if (i + 1 == n || x <= x0)
        return y0;
    return ((double)ys[(i + 1) * stride] - y0) / ((double)xs[i + 1] - x0) * (x - x0) + y0;
}

// The same summary with 1 / epsilon values; of fewer, itself. Owned; NULL on error.
static weighted *compress(const weighted *items, int64_t *n, double epsilon)
{
    const bool shorter = (double)*n * epsilon < 1;
    const int64_t n_out = shorter ? *n : (int64_t)ceil(1 / epsilon);
    const size_t stride = sizeof *items / sizeof(float);
    weighted *out = mu__calloc((size_t)n_out + 1, sizeof *out);
    float *sums = mu__calloc(2 * (size_t)*n + 1, sizeof *sums), *shares = sums ? sums + *n : NULL, sum = 0;
    for (int64_t i = 0; sums && i < *n; i++)
        sums[i] = sum += items[i].weight;
    for (int64_t i = 0; sums && i < *n; i++)
        shares[i] = sums[i] / sum;
    if (out && sums && shorter)
        memcpy(out, items, (size_t)*n * sizeof *out);
    double before = 0;
    for (int64_t i = 0, v = 0, w = 0; out && sums && !shorter && i < n_out; i++) {
        const double share = epsilon + (double)i * epsilon, end = interpolate(share, *n, shares, sums, 1, &w);
        out[i].value = (float)interpolate(share, *n, shares, &items[0].value, (int64_t)stride, &v);
        out[i].weight = (float)(end - before);
        before = end;
    }
    mu__free(sums);
    *n = n_out;
    return out;
}

// Adds every step-th of a batch's sorted values to the summary.
static mu_status merge(summary *s, const weighted *sorted, int64_t n)
{
    const double step = MU_MAX((double)n / (1 / s->args->epsilon), 1);
    const int64_t stride = (int64_t)step;
    int64_t n_all = 0, old = 0;
    weighted *all = mu__calloc((size_t)(n + s->n) + 1, sizeof *all);
    if (!all)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = (int64_t)(step - 1); i < n; i += stride) {
        while (old < s->n && s->items[old].value < sorted[i].value)
            all[n_all++] = s->items[old++];
        all[n_all++] = (weighted){sorted[i].value, (float)step};
    }
    while (old < s->n)
        all[n_all++] = s->items[old++];
    weighted *compressed = compress(all, &n_all, s->args->epsilon);
    mu__free(all);
    mu__free(s->items);
    s->items = compressed;
    s->n = compressed ? n_all : 0;
    return compressed ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status add_inputs(mu_layer *layer, mu_tensor *x, void *arg)
{
    summary *s = arg;
    if (mu__has_strings(x))
        return mu__error(MU_INVALID_ARGUMENT, "mu_adapt: layer '%s' sorts numbers; the data are strings",
                         mu_layer_name(layer));
    const int64_t n = mu_tensor_elements(x);
    const void *data = mu__host_read(x);
    weighted *sorted = data ? mu__calloc((size_t)n + 1, sizeof *sorted) : NULL;
    bool finite = sorted != NULL;
    for (int64_t i = 0; finite && i < n; i++) {
        sorted[i].value = (float)mu__read_element(x->dtype, data, i);
        finite = isfinite(sorted[i].value);
    }
    if (sorted && !finite)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_adapt: layer '%s' is given NaN or infinity, which belong to no bin; leave them out of the data",
                  mu_layer_name(layer));
    s->samples += n;
    if (finite && n > 0) {
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        merge(s, sorted, n);
    }
    mu__free(sorted);
    return mu_error_code();
}

// Puts the boundaries into the options, from which the configuration is written. There are as many as Keras finds,
// which is one more than num_bins - 1 where the reciprocal is rounded down (1 / (1. / 49) is more than 49).
static mu_status keep_boundaries(mu_layer *layer, const summary *s)
{
    mu_discretization_args *args = layer->args;
    int64_t n = s->n;
    weighted *bins = compress(s->items, &n, 1. / args->num_bins);
    double *boundaries = bins && n > 1 ? mu__calloc((size_t)n, sizeof *boundaries) : NULL;
    for (int64_t i = 0; boundaries && i + 1 < n; i++)
        boundaries[i] = bins[i].value;
    mu__free(bins);
    if (!boundaries)
        return mu__pending()
                   ? mu_error_code()
                   : mu__error(MU_INVALID_ARGUMENT,
                               "mu_adapt: layer '%s' is given %lld number%s to find the boundaries of %d bins; give "
                               "more data",
                               mu_layer_name(layer), (long long)s->samples, s->samples == 1 ? "" : "s", args->num_bins);
    mu__fields_drop_list(&layer->ops->class, args, "bin_boundaries");
    args->bin_boundaries = boundaries;
    args->n_bin_boundaries = (int)(n - 1);
    return MU_OK;
}

static mu_status discretization_adapt(mu_layer *layer, mu_dataset *data)
{
    summary s = {.args = layer->args};
    if (s.args->num_bins == 0)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_adapt: layer '%s' was made with bin_boundaries; make it with .num_bins instead, so that "
                         "mu_adapt finds them",
                         mu_layer_name(layer));
    mu_status status = mu__adapt_each(layer, data, add_inputs, &s);
    if (status == MU_OK)
        status = s.samples > 0 ? keep_boundaries(layer, &s) : mu__adapt_empty(layer);
    mu__free(s.items);
    return status;
}

MU_LAYER_CLASS(discretization, "discretization", "Discretization", mu_discretization_args, discretization_fields,
               discretization_complete, .no_autocast = true, .build = discretization_build, .call = discretization_call,
               .adapt = discretization_adapt)
