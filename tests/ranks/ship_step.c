// Traces the CNN's training step, sends it to a process that has no user code, and compares the losses bit by bit.
//
// ship_step PROGRAM: PROGRAM is run_shipped. The step is complete: forward pass, loss, gradients and Adam. It is sent
// after a first step in this process, so that the optimizer's slots are not zero.
#include "shipped.h"

#include "graph/graph.h"

#include <muster.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

typedef struct job {
    mu_model *model;
    mu_optimizer *optimizer;
} job;

typedef struct child {
    pid_t pid;
    int to, from;
} child;

static mu_value *train_step(mu_value *batch, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(j->model, mu_at(batch, 0), .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = BATCH);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_trainable_variables(j->model)));
    return mu_of(loss);
}

static mu_value *make_batch(uint32_t step)
{
    const int64_t image_dims[] = {BATCH, SIDE, SIDE, 1}, label_dims[] = {BATCH};
    mu_tensor *x = mu_tensor_new(MU_F32, 4, image_dims, NULL), *y = mu_tensor_new(MU_I32, 1, label_dims, NULL);
    uint32_t state = 77 + step;
    for (int i = 0; x && i < BATCH * SIDE * SIDE; i++) {
        state = state * 1664525u + 1013904223u;
        ((float *)mu__host_write(x))[i] = (float)(state >> 8) * 0x1p-24f;
    }
    for (int i = 0; y && i < BATCH; i++)
        ((int32_t *)mu__host_write(y))[i] = (int32_t)(((uint32_t)i * 7 + step) % CLASSES);
    return mu_list(mu_of(x), mu_of(y), MU_END);
}

// ---- The other process --------------------------------------------------------------------------

static bool start(const char *program, child *c)
{
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0)
        return false;
    c->pid = fork();
    if (c->pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[0]);
        close(to[1]);
        close(from[0]);
        close(from[1]);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    c->to = to[1];
    c->from = from[0];
    return c->pid > 0;
}

static bool send_tensor(const child *c, const mu_tensor *tensor)
{
    const mu_spec spec = mu__spec_of(tensor);
    return write_all(c->to, mu__host_read(tensor), mu__spec_bytes(&spec));
}

static bool send_step(const child *c, const mu_graph *graph)
{
    void *bytes;
    size_t size;
    if (mu__graph_write(graph, &bytes, &size) != MU_OK)
        return false;
    bool sent = write_all(c->to, &(uint64_t){size}, sizeof(uint64_t)) && write_all(c->to, bytes, size);
    for (size_t i = 0; i < graph->resources.n; i++)
        sent = sent && send_tensor(c, ((mu_variable *)graph->resources.items[i])->components[0]);
    for (uint32_t step = 1; step <= STEPS; step++) {
        mu_value *batch = make_batch(step);
        sent = sent && send_tensor(c, mu_at(batch, 0)) && send_tensor(c, mu_at(batch, 1));
    }
    mu__free(bytes);
    return sent;
}

static bool finish(child *c, float *losses)
{
    int status = -1;
    close(c->to);
    const bool came = read_all(c->from, losses, sizeof(float) * STEPS);
    close(c->from);
    waitpid(c->pid, &status, 0);
    return came && status == 0;
}

// ---- Here ---------------------------------------------------------------------------------------

static int compare(mu_strategy *strategy, mu_function *step, const float *theirs)
{
    int apart = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        const float own = (float)mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, make_batch(i + 1))));
        printf("step %u: loss %.9g here, %.9g there\n", i + 1, own, theirs[i]);
        apart += memcmp(&own, &theirs[i], sizeof own) != 0;
    }
    return apart;
}

int main(int argc, char **argv)
{
    job j = {0};
    child c;
    float theirs[STEPS];
    signal(SIGPIPE, SIG_IGN);
    // Started before the library has threads, because a fork would not copy them.
    if (argc != 2 || !start(argv[1], &c))
        return 2;
    mu_init(.cpu_devices = 1, .seed = 5);
    mu_strategy *strategy = mu_one_device_strategy("CPU:0");
    MU_SCOPE(strategy) {
        j.model = mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                                mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(),
                                mu_dense(128, .activation = "relu"), mu_dense(10));
        j.optimizer = mu_adam(.learning_rate = 1e-3);
    }
    mu_function *step = mu_function_new(train_step, &j);
    mu_run(strategy, step, make_batch(0));
    mu_concrete *concrete = mu__function_concrete(step, make_batch(0), true, strategy);
    const bool sent = concrete && mu_function_trace_count(step) == 1 && send_step(&c, concrete->graph);
    const bool done = finish(&c, theirs) && sent;
    if (!done)
        fprintf(stderr, "the step was %s\n", sent ? "sent, but its losses did not come back" : "not sent");
    const int apart = done ? compare(strategy, step, theirs) : STEPS;
    if (done)
        printf("%d of %d losses differ\n", apart, STEPS);
    return mu_exit(apart == 0) || apart != 0;
}
