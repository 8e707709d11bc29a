// Gradients in buckets: as many as asked for, each reduced where the backward pass has its gradients ready, applied in
// the order in which they arrive; the bits do not depend on how the gradients are divided.
#include "model/training/training.h"
#include "model_test.h"

enum { LAYERS = 4 };

static mu_model *model_on(mu_strategy *strategy)
{
    mu_model *model = NULL;
    mu_set_seed(3);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(8, .activation = "relu"), mu_dense(8, .activation = "relu"),
                              mu_dense(8, .activation = "relu"), mu_dense(3));
        mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true), .optimizer = mu_adam());
    }
    return model;
}

static double *trained(size_t bytes_per_pack, mu_model **model, int64_t *n)
{
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2);
    strategy->bytes_per_pack = bytes_per_pack;
    *model = model_on(strategy);
    assert_non_null(mu_fit(*model, rows_and_classes(40, 5, 3, 8), .epochs = 2, .verbose = MU_VERBOSE_SILENT));
    return weights_of(*model, n);
}

static void sizes_do_not_change_bits(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 600, 1 << 20};
    mu_model *model;
    int64_t n;
    double *whole = trained(0, &model, &n);
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        double *seen = trained(sizes[i], &model, &n);
        assert_memory_equal(seen, whole, sizeof *seen * (size_t)n);
        free(seen);
    }
    free(whole);
}

// Reduced in the background or at once, on any number of replicas: the weights are the same.
static void overlap_does_not_change_bits(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 8; replicas += replicas < 3 ? 1 : 5) {
        double *seen[2];
        int64_t n;
        for (int on = 0; on < 2; on++) {
            mu_strategy *strategy = mu_mirrored_strategy(.replicas = replicas);
            strategy->bytes_per_pack = 100;
            for (int r = 0; r < replicas && strategy->group && !on; r++)
                mu__group_member(strategy->group, r)->start = NULL;
            mu_model *model = model_on(strategy);
            assert_non_null(mu_fit(model, rows_and_classes(40, 5, 3, 8), .epochs = 3, .verbose = MU_VERBOSE_SILENT));
            seen[on] = weights_of(model, &n);
        }
        assert_memory_equal(seen[0], seen[1], sizeof **seen * (size_t)n);
        free(seen[0]);
        free(seen[1]);
    }
}

// Positions of the reductions of gradients, and of the last gradient, in the graph of the training step.
static int reductions(const mu_graph *graph, int *at, int *last_gradient)
{
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        if (node->op != &mu_op_all_reduce || mu__elements(&node->out[0].shape) == 1)
            continue;
        at[n++] = node->id;
        for (int k = 0; k < node->n_in; k++)
            *last_gradient = MU_MAX(*last_gradient, node->in[k].node->id);
    }
    return n;
}

// Returns how many gradients are applied, or -1 if one waits for a later bucket than the one after it.
static int applied_in_order(const mu_graph *graph)
{
    int n = 0, reduced = -1;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        if (node->op != &mu_op_apply_adam)
            continue;
        int latest = -1;
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k].node->op == &mu_op_all_reduce)
                latest = MU_MAX(latest, node->in[k].node->id);
        if (latest < reduced)
            return -1;
        reduced = latest;
        n++;
    }
    return n;
}

static void the_last_layers_go_first(void **state)
{
    (void)state;
    mu_model *model;
    int64_t n;
    int at[2 * LAYERS] = {0}, last = 0;
    free(trained(1, &model, &n));
    mu_value *batch = mu_next(mu_iterate(rows_and_classes(40, 5, 3, 8)));
    mu_strategy_replica replica = {.replica = {.id = -1}, .strategy = model->strategy};
    mu_saved_context before = mu__enter_replica(&replica, NULL, 0);
    mu_concrete *concrete = mu__function_concrete(model->trainer->train_function, batch, true, model->strategy);
    mu__leave_replica(before);
    assert_non_null(concrete);
    assert_int_equal(reductions(concrete->graph, at, &last), 2 * LAYERS);
    assert_true(at[0] < last);
    assert_true(at[LAYERS] < last);
    assert_true(at[2 * LAYERS - 1] > last);
    assert_int_equal(applied_in_order(concrete->graph), 2 * LAYERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(sizes_do_not_change_bits),
        MODEL_TEST(overlap_does_not_change_bits),
        MODEL_TEST(the_last_layers_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
