// The guide's side-car evaluation: a program beside the training that measures each checkpoint as it is written, on a
// machine of its own and without the servers. It ends with the checkpoint of the last epoch of parameter_server_loop.
#include <muster.h>

#include <stdio.h>
#include <unistd.h>

enum { ROWS = 256, EPOCHS = 4 };

// Points with y = x0 + 2 x1 + 3 x2.
static double loss_of(mu_model *model)
{
    mu_tensor *seed = mu_fill(MU_I64, 1, (int64_t[]){2}, 7);
    mu_tensor *x = mu_stateless_random_normal(seed, MU_F32, 2, (int64_t[]){ROWS, 3});
    mu_tensor *truth = mu_matmul(x, mu_tensor_new(MU_F32, 2, (int64_t[]){3, 1}, (float[]){1, 2, 3}));
    mu_tensor *error = mu_subtract(mu_call(model, x, .training = false), truth);
    return mu_scalar(mu_reduce_mean(mu_square(error), MU_ALL_AXES));
}

int main(void)
{
    mu_init(.seed = 2);
    mu_model *model = mu_sequential(mu_dense(1));
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(mu_checkpoint_new(.model = model),
                                                               "parameter_server_checkpoints");
    double loss = 1;
    for (int64_t seen = 0; seen < EPOCHS && mu_error_code() == MU_OK;) {
        if (mu_checkpoint_manager_latest(manager) <= seen) {
            sleep(1);
            continue;
        }
        seen = mu_checkpoint_manager_restore(manager);
        loss = loss_of(model);
        printf("checkpoint %d: loss %.5f\n", (int)seen, loss);
    }
    return mu_exit(loss < 0.01);
}
