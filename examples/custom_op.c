// An op of the program's own: the cube, with its gradient, in a function that every replica runs.
#include <muster.h>

// Runs on all replicas at once: it touches nothing but its arguments.
static mu_status cube_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    const float *x = in[0].data;
    float *y = out[0].data;
    int64_t n = 1;
    (void)arg;
    for (int i = 0; i < in[0].shape.rank; i++)
        n *= in[0].shape.dims[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * x[i] * x[i];
    return MU_OK;
}

static mu_status cube_gradient(mu_tensor *const *x, mu_tensor *const *y, mu_tensor *const *dy, mu_tensor **dx,
                               void *arg)
{
    (void)y, (void)arg;
    dx[0] = mu_multiply(dy[0], mu_multiply(mu_constant(MU_F32, 3), mu_square(x[0])));
    return mu_error_code();
}

static mu_value *slope(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_reduce_sum(mu_call_op1("cube", 1, &x), MU_ALL_AXES);
    return mu_gradients(tape, y, mu_of(x));
}

int main(void)
{
    mu_init();
    mu_register_op("cube", 1, 1, .kernel = cube_kernel, .gradient = cube_gradient);
    mu_strategy *strategy = mu_mirrored_strategy();
    mu_function *step = mu_function_new(slope, NULL);
    mu_value *slopes = mu_local_results(strategy, mu_run(strategy, step, mu_of(mu_vector_f32(3, (float[]){1, 2, 3}))));
    for (int i = 0; i < mu_value_count(slopes); i++)
        mu_tensor_print(mu_at(mu_value_at(slopes, i), 0), stdout);  // [ 3. 12. 27.] from each replica
    return mu_exit(slopes != NULL);
}
