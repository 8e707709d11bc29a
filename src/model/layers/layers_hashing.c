// Layers that give categories bins by hashes: of single values, and of combinations of several.
#include "model/core/layer.h"
#include "model/layers/fingerprint.h"
#include "model/layers/token_lookup.h"

#include <muster/text.h>

static const char *const hashing_modes[] = {"int", "one_hot", "multi_hot", "count", NULL};
static const char *const crossing_modes[] = {"int", "one_hot", NULL};

// An element as the bytes that are hashed: a string itself, an integer in decimal digits.
static mu_string value_text(const mu_tensor *x, int64_t i, char digits[32])
{
    if (mu__has_strings(x))
        return mu__string_at(x, i);
    const int n = snprintf(digits, 32, "%lld", (long long)mu_tensor_item_int(x, i));
    return (mu_string){digits, (size_t)n};
}

static mu_status check_input(const mu_layer *layer, mu_dtype dtype)
{
    return dtype == MU_STRING || mu__dtype_is_integer(dtype)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "layer '%s' hashes strings and integers; the input is %s",
                           mu_layer_name((mu_layer *)(uintptr_t)layer), mu_dtype_name(dtype));
}

// Type and shape of the bins of n inputs in an output mode.
static mu_status bins_spec(const mu_layer *layer, int n, const mu_spec *in, int num_bins, const char *mode,
                           mu_spec *out)
{
    const bool as_int = strcmp(mode, "int") == 0;
    *out = (mu_spec){.dtype = as_int ? MU_I64 : mu__floatx(), .shape = mu__tokens_shape(mode, &in->shape, num_bins)};
    for (int i = 0; i < n; i++)
        MU_TRY(check_input(layer, in[i].dtype));
    return MU_OK;
}

// Bins as the layer's output mode wants them.
static mu_value *encoded(mu_tensor *bins, int num_bins, const char *mode)
{
    if (bins == NULL || strcmp(mode, "int") == 0)
        return bins != NULL ? mu_of(bins) : NULL;
    return mu_of(mu__encode_tokens(bins, num_bins, mode));
}

// ---- Hashing ------------------------------------------------------------------------------------

#define NO_INTEGER INT64_MIN // Keras's None

static const mu_field hashing_fields[] = {
    MU_FIELD(mu_hashing_args, num_bins, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_hashing_args, mask_value, TEXT, .or_next = true),
    MU_FIELD(mu_hashing_args, mask_integer, INT64, .number = (double)NO_INTEGER, .none = true, .internal = true),
    MU_FIELD(mu_hashing_args, salt, LONGS, .second = offsetof(mu_hashing_args, n_salt), .single = true),
    MU_FIELD(mu_hashing_args, output_mode, CHOICE, .text = "int", .choices = hashing_modes),
    MU_LAYER_FIELDS(mu_hashing_args),
    {0},
};

static mu_status hashing_complete(void *arguments)
{
    const mu_hashing_args *args = arguments;
    if (args->mask_value && args->mask_integer != NO_INTEGER)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_hashing: .mask_value is \"%.40s\" and .mask_integer %lld; give the one that the inputs "
                         "are, strings or integers",
                         args->mask_value, (long long)args->mask_integer);
    return mu__salt_check(args->n_salt, "mu_hashing");
}

// The value that has bin 0, as the text that would be hashed; NULL: none.
static const char *mask_of(const mu_hashing_args *args, char digits[32])
{
    if (args->mask_integer == NO_INTEGER)
        return args->mask_value;
    snprintf(digits, 32, "%lld", (long long)args->mask_integer);
    return digits;
}

static int64_t bin_of(const mu_hashing_args *args, const char *mask, mu_string text)
{
    const int64_t bins = args->num_bins - (mask != NULL);
    if (bins < 1 || (mask && strlen(mask) == text.n && memcmp(mask, text.bytes, text.n) == 0))
        return 0;
    return (int64_t)(mu__salted_hash(args->n_salt, args->salt, text) % (uint64_t)bins) + (mask != NULL);
}

static mu_value *hashing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_hashing_args *args = layer->args;
    const mu_tensor *x = mu__host_only(layer, inputs, 0);
    char digits[32], mask_digits[32];
    if (x == NULL || check_input(layer, x->dtype) != MU_OK)
        return NULL;
    const char *mask = mask_of(args, mask_digits);
    mu_tensor *bins = mu__give(mu__tensor_alloc(MU_I64, &x->shape));
    for (int64_t i = 0, n = mu__elements(&x->shape); bins != NULL && i < n; i++)
        ((int64_t *)mu__host_write(bins))[i] = bin_of(args, mask, value_text(x, i, digits));
    return encoded(bins, args->num_bins, args->output_mode);
}

static mu_status hashing_spec(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out)
{
    const mu_hashing_args *args = layer->args;
    return bins_spec(layer, n, in, args->num_bins, args->output_mode, out);
}

MU_LAYER_CLASS(hashing, "hashing", "Hashing", mu_hashing_args, hashing_fields, hashing_complete, .takes_integers = true,
               .takes_strings = true, .typed_by_mode = true, .call = hashing_call, .host_spec = hashing_spec)

// ---- Crosses ------------------------------------------------------------------------------------

static const mu_field crossing_fields[] = {
    MU_FIELD(mu_hashed_crossing_args, num_bins, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_hashed_crossing_args, output_mode, CHOICE, .text = "int", .choices = crossing_modes),
    MU_LAYER_FIELDS(mu_hashed_crossing_args),
    {0},
};

static mu_status check_features(const mu_layer *layer, mu_value *inputs, int n)
{
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (inputs->kind != MU_VALUE_LIST || n < 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' crosses features: the input must be a list of two tensors or more",
                         mu_layer_name((mu_layer *)(uintptr_t)layer));
    for (int i = 0; i < n; i++) {
        const mu_tensor *x = mu__host_only(layer, inputs, i), *first = x != NULL ? mu_at(inputs, 0) : NULL;
        if (x == NULL)
            return mu_error_code();
        MU_TRY(check_input(layer, x->dtype));
        if (!mu__shape_equal(&x->shape, &first->shape) || x->shape.rank > 2 ||
            (x->shape.rank == 2 && x->shape.dims[1] != 1))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "layer '%s': feature %d has shape %s and feature 0 %s; all must be [batch] or all [batch, 1]",
                mu_layer_name((mu_layer *)(uintptr_t)layer), i, mu__shape_text(&x->shape, text),
                mu__shape_text(&first->shape, other));
    }
    return MU_OK;
}

static mu_value *crossing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const uint64_t seed = 0xDECAFCAFFE; // TensorFlow's key of crosses
    const mu_hashed_crossing_args *args = layer->args;
    const int n = inputs->kind == MU_VALUE_LIST ? inputs->n : 1;
    if (check_features(layer, inputs, n) != MU_OK)
        return NULL;
    mu_tensor *bins = mu__give(mu__tensor_alloc(MU_I64, &mu_at(inputs, 0)->shape));
    for (int64_t i = 0; bins != NULL && i < mu__elements(&bins->shape); i++) {
        uint64_t hash = seed;
        for (int feature = 0; feature < n; feature++) {
            const mu_tensor *x = mu_at(inputs, feature);
            const mu_string text = mu__has_strings(x) ? mu__string_at(x, i) : (mu_string){0};
            hash = mu__fingerprint_join(hash, text.bytes != NULL ? mu__fingerprint64(text.bytes, text.n)
                                                                 : (uint64_t)mu_tensor_item_int(x, i));
        }
        ((int64_t *)mu__host_write(bins))[i] = (int64_t)(hash % (uint64_t)args->num_bins);
    }
    return encoded(bins, args->num_bins, args->output_mode);
}

static mu_status crossing_spec(const mu_layer *layer, int n, const mu_spec *in, mu_spec *out)
{
    const mu_hashed_crossing_args *args = layer->args;
    return bins_spec(layer, n, in, args->num_bins, args->output_mode, out);
}

MU_LAYER_CLASS(hashed_crossing, "hashed_crossing", "HashedCrossing", mu_hashed_crossing_args, crossing_fields, NULL,
               .takes_integers = true, .takes_strings = true, .takes_several = true, .typed_by_mode = true,
               .call = crossing_call, .host_spec = crossing_spec)
