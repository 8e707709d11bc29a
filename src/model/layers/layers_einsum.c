// The dense layer whose product is an einsum. Its equation and the sizes of its output say what its weights are.

#include "model/core/layer.h"

#include <ctype.h>
#include <muster/ops.h>

// ---- The equation -------------------------------------------------------------------------------

// "...ab,bc->...ac": the letters of each operand, and where "..." stands.
typedef struct equation {
    char input[MU_MAX_RANK + 1], kernel[MU_MAX_RANK + 1], output[MU_MAX_RANK + 1];
    bool left, right;
} equation;

static bool read_text(const char **at, const char *text)
{
    const bool found = strncmp(*at, text, strlen(text)) == 0;
    *at += found ? strlen(text) : 0;
    return found;
}

static bool read_letters(const char **at, char *out)
{
    int n = 0;
    for (; isalpha((unsigned char)**at) && n < MU_MAX_RANK; n++)
        out[n] = *(*at)++;
    out[n] = '\0';
    return n > 0;
}

static bool read_equation(const char *text, equation *e)
{
    const char *at = text;
    *e = (equation){.left = read_text(&at, "...")};
    if (!read_letters(&at, e->input))
        return false;
    e->right = !e->left && read_text(&at, "...");
    return read_text(&at, ",") && read_letters(&at, e->kernel) && read_text(&at, "->") &&
           read_text(&at, "...") == e->left && read_letters(&at, e->output) && read_text(&at, "...") == e->right &&
           *at == '\0';
}

// ---- Sizes --------------------------------------------------------------------------------------

// The shape of the whole output: the batch axis, the given sizes, and the input's axes that "..." stands for.
static mu_shape output_shape(const mu_einsum_dense_args *args, const equation *e, const mu_shape *input, int elided)
{
    mu_shape shape = {.rank = 1, .dims = {input->dims[0]}};
    for (int i = 1; e->left && i < elided; i++)
        shape.dims[shape.rank++] = input->dims[i];
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->output_shape[i] != 0 && shape.rank < MU_MAX_RANK; i++)
        shape.dims[shape.rank++] = args->output_shape[i];
    for (int i = input->rank - elided; !e->left && i < input->rank && shape.rank < MU_MAX_RANK; i++)
        shape.dims[shape.rank++] = input->dims[i];
    return shape;
}

// The size of a letter's axis; MU_UNKNOWN if it is unknown, 0 if the operand does not have the letter.
static int64_t size_of(char letter, const char *letters, const mu_shape *shape, int before)
{
    const char *at = strchr(letters, letter);
    return at ? shape->dims[before + (int)(at - letters)] : 0;
}

typedef struct sizes {
    equation equation;
    mu_shape input, output;
    int before; // axes in front of the first letter: those of "..."
    int elided; // axes that "..." stands for
} sizes;

static mu_status check_letters(const mu_layer *layer, const sizes *s)
{
    const equation *e = &s->equation;
    for (const char *at = e->output; *at; at++)
        if (!strchr(e->input, *at) && !strchr(e->kernel, *at))
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': '%c' of the output is neither in the input nor in the kernel of its equation",
                             mu_layer_name(layer), *at);
    for (const char *at = e->input; *at; at++) {
        const int64_t in = size_of(*at, e->input, &s->input, s->before);
        const int64_t out = size_of(*at, e->output, &s->output, s->before);
        if (out > 0 && in > 0 && in != out)
            return mu__error(MU_INVALID_ARGUMENT, "layer '%s': '%c' is %lld in the input and %lld in output_shape",
                             mu_layer_name(layer), *at, (long long)in, (long long)out);
    }
    return MU_OK;
}

static mu_status find_sizes(const mu_layer *layer, const mu_shape *input, sizes *s)
{
    const mu_einsum_dense_args *args = layer->args;
    char text[MU_SHAPE_TEXT];
    *s = (sizes){.input = *input};
    read_equation(args->equation, &s->equation);
    const equation *e = &s->equation;
    s->elided = input->rank - (int)strlen(e->input);
    s->before = e->left ? s->elided : 0;
    if (input->rank < 1 || s->elided < 0 || (s->elided > 0 && !e->left && !e->right))
        return mu__error(MU_INVALID_ARGUMENT, "layer '%s': the input of '%s' has %d axes; it was given %s",
                         mu_layer_name(layer), args->equation, (int)strlen(e->input), mu__shape_text(input, text));
    s->output = output_shape(args, e, input, s->elided);
    if (s->output.rank != s->elided + (int)strlen(e->output))
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': the output of '%s' has %d axes, with output_shape it has %d; output_shape has a "
                         "size for each letter but the batch axis",
                         mu_layer_name(layer), args->equation, s->elided + (int)strlen(e->output), s->output.rank);
    return check_letters(layer, s);
}

// ---- The layer ----------------------------------------------------------------------------------

static const mu_field einsum_fields[] = {
    MU_FIELD(mu_einsum_dense_args, equation, TEXT),
    MU_FIELD(mu_einsum_dense_args, output_shape, DIMS, .nulls = true),
    MU_FIELD(mu_einsum_dense_args, activation, ACTIVATION),
    MU_FIELD(mu_einsum_dense_args, bias_axes, TEXT),
    MU_FIELD_WEIGHT(mu_einsum_dense_args, kernel, "glorot_uniform"),
    MU_FIELD_WEIGHT(mu_einsum_dense_args, bias, "zeros"),
    MU_FIELD(mu_einsum_dense_args, activity_regularizer, REGULARIZER),
    MU_LAYER_FIELDS(mu_einsum_dense_args),
    {0},
};

static mu_status einsum_complete(void *arguments)
{
    const mu_einsum_dense_args *args = arguments;
    equation e;
    if (!args->equation || !read_equation(args->equation, &e))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_einsum_dense: the equation is '%.60s'; it must be like \"ab,bc->ac\", \"...ab,bc->...ac\" "
                         "or \"ab...,bc->ac...\", with at most %d letters for each operand",
                         args->equation ? args->equation : "", MU_MAX_RANK);
    for (const char *at = args->bias_axes; at && *at; at++)
        if (!strchr(e.output, *at))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "mu_einsum_dense: bias_axes has '%c'; the output of '%s' has no such axis: use its letters", *at,
                args->equation);
    return MU_OK;
}

static mu_status add_kernel(mu_layer *layer, const sizes *s)
{
    const mu_einsum_dense_args *args = layer->args;
    const equation *e = &s->equation;
    mu_shape kernel = {0};
    int64_t in = 1, out = 1;
    for (const char *at = e->kernel; *at; at++) {
        const bool is_output = strchr(e->output, *at) != NULL;
        const int64_t size =
            is_output ? size_of(*at, e->output, &s->output, s->before) : size_of(*at, e->input, &s->input, s->before);
        if (size < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': the size of the kernel's axis '%c' is unknown; give it in %s",
                             mu_layer_name(layer), *at, is_output ? "output_shape" : "the input");
        kernel.dims[kernel.rank++] = size;
        *(is_output ? &out : &in) *= size;
    }
    const bool by_fans = ((const mu_weight_option *)args->kernel_initializer)->ops->by_fans;
    return mu__weight_as(layer, "kernel", kernel, by_fans ? MU_SHAPE(in, out) : kernel, MU_OPTIONS_OF(args, kernel));
}

// The bias has the output's axes from the first of its letters on; those that are not its letters have size 1.
static mu_status add_bias(mu_layer *layer, const sizes *s)
{
    const mu_einsum_dense_args *args = layer->args;
    const char *at = s->equation.output + strcspn(s->equation.output, args->bias_axes);
    mu_shape bias = {0};
    for (; *at; at++) {
        const int64_t size = strchr(args->bias_axes, *at) ? size_of(*at, s->equation.output, &s->output, s->before) : 1;
        if (size < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': the size of the bias's axis '%c' is unknown; give it in output_shape",
                             mu_layer_name(layer), *at);
        bias.dims[bias.rank++] = size;
    }
    for (int i = 0; !s->equation.left && i < s->elided; i++)
        bias.dims[bias.rank++] = 1;
    return mu__weight(layer, "bias", bias, MU_OPTIONS_OF(args, bias));
}

static mu_status einsum_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const char *bias_axes = ((const mu_einsum_dense_args *)layer->args)->bias_axes;
    sizes s;
    MU_TRY(find_sizes(layer, input, &s));
    MU_TRY(add_kernel(layer, &s));
    return bias_axes && *bias_axes ? add_bias(layer, &s) : MU_OK;
}

static mu_value *einsum_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_einsum_dense_args *args = layer->args;
    mu_tensor *operands[] = {mu_at(inputs, 0), mu__weight_read(layer, "kernel")};
    mu_tensor *y = operands[0] && operands[1] ? mu_einsum(args->equation, 2, operands) : NULL;
    mu_tensor *bias = mu__weight_read(layer, "bias");
    return mu_of(mu__activate(args->activation, bias ? mu_add(y, bias) : y));
}

MU_LAYER_CLASS(einsum_dense, "einsum_dense", "EinsumDense", mu_einsum_dense_args, einsum_fields, einsum_complete,
               .build = einsum_build, .call = einsum_call)
