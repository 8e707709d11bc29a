// The guide's custom loop on parameter servers with inline evaluation: after each epoch the coordinator schedules the
// evaluation as calls, while no step runs. It also writes a checkpoint, which parameter_server_sidecar measures. Alone,
// or as muster launch --workers 3 --ps 2 -- ./parameter_server_loop
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 32, EPOCHS = 4, STEPS = 25 };

struct job {
    mu_model *model;
    mu_optimizer *optimizer;
};

// Points with y = x0 + 2 x1 + 3 x2.
static mu_tensor *loss_of(struct job *job, mu_tensor *x, bool training)
{
    mu_tensor *truth = mu_matmul(x, mu_tensor_new(MU_F32, 2, (int64_t[]){3, 1}, (float[]){1, 2, 3}));
    return mu_reduce_mean(mu_square(mu_subtract(mu_call(job->model, x, .training = training), truth)), MU_ALL_AXES);
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    struct job *job = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = loss_of(job, mu_at(batch, 0), true);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

static mu_value *eval_step(mu_value *batch, void *arg) { return mu_of(loss_of(arg, mu_at(batch, 0), false)); }

static mu_tensor *points(void)
{
    static int seed;
    mu_tensor *seeds = mu_fill(MU_I64, 1, (int64_t[]){2}, ++seed);
    return mu_stateless_random_normal(seeds, MU_F32, 2, (int64_t[]){ROWS, 3});
}

static mu_strategy *make_strategy(void)
{
    if (getenv("TF_CONFIG"))
        return mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\", \"p1:1\"]}");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), .in_process = true);
}

// The mean of what the calls return.
static double run_all(mu_coordinator *coordinator, mu_function *function)
{
    mu_value *results[STEPS];
    double sum = 0;
    for (int i = 0; i < STEPS; i++)
        results[i] = mu_schedule(coordinator, function, mu_list(points(), MU_END));
    mu_join(coordinator);
    for (int i = 0; i < STEPS; i++)
        sum += mu_scalar(mu_fetch(results[i]));
    return sum / STEPS;
}

int main(void)
{
    mu_init(.cpu_devices = 2, .seed = 1);
    mu_strategy *strategy = make_strategy();
    mu_coordinator *coordinator = mu_coordinator_new(strategy);
    struct job job = {0};
    MU_SCOPE(strategy)
        job = (struct job){mu_sequential(mu_dense(1)), mu_sgd(.learning_rate = 0.2)};
    mu_function *train = mu_function_new(train_step, &job), *eval = mu_function_new(eval_step, &job);
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(mu_checkpoint_new(.model = job.model),
                                                               "parameter_server_checkpoints");
    double loss = 0, evaluated = 0;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        loss = run_all(coordinator, train), evaluated = run_all(coordinator, eval);
        mu_checkpoint_manager_save(manager, epoch);
        printf("epoch %d: loss %.5f, evaluated %.5f\n", epoch, loss, evaluated);
    }
    return mu_exit(evaluated < 0.01);
}
