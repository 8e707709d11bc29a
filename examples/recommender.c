// A recommender on clicks that the program draws itself, so the best possible result is known. Users and items are keys
// of one embedding table, in which a row exists once its key has been seen. Under
//     muster launch --workers 2 --ps 2 -- ./recommender
// the rows are on two servers, and the table is too large for one of them.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { EACH = 5000, TASTES = 3, DIMENSION = 8, BATCH = 4096, ROUNDS = 13, STEPS = 40, TESTED = 20000, BYTES = 1300000 };

static mu_tensor *scores_of(mu_tensor *rows) /* [n, 2, …]: user times item */
{
    return mu_reduce_sum(mu_reduce_prod(rows, 1), 1);
}

static mu_tensor *seed_of(int64_t a, int64_t b)
{
    return mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){a, b});
}

/* Keys [n, 2] of users and items; clicks [n], which are 1 with a probability of sigmoid(best); best [n]: how far what a
   user likes and what an item is like agree. */
static mu_value *draw_clicks(int64_t number, int64_t n)
{
    const int64_t pairs[] = {n, 2}, all[] = {2 * EACH, TASTES};
    mu_tensor *who = mu_stateless_random_uniform_int(seed_of(1, number), MU_I64, 2, pairs, 0, EACH);
    who = mu_add(who, mu_tensor_new(MU_I64, 1, &pairs[1], (int64_t[]){0, EACH}));
    mu_tensor *best = scores_of(mu_gather(mu_stateless_random_normal(seed_of(2, 0), MU_F32, 2, all), who, 0, 0));
    mu_tensor *clicks = mu_less(mu_stateless_random_uniform(seed_of(3, number), MU_F32, 1, &n), mu_sigmoid(best));
    return mu_list(mu_multiply(who, mu_constant(MU_I64, 1000003)), mu_cast(clicks, MU_F32), best, MU_END);
}

static mu_value *train_step(mu_value *batch, void *table)
{
    mu_tape   *tape = mu_tape_open();
    mu_tensor *rows = mu_embedding_table_lookup(table, mu_at(batch, 0));
    mu_tensor *loss = mu_reduce_sum(mu_nn_sigmoid_cross_entropy(mu_at(batch, 1), scores_of(rows)), MU_ALL_AXES);
    mu_value  *gradients = mu_gradients(tape, loss, mu_list(rows, MU_END));
    mu_embedding_table_apply_gradients(table, mu_at(batch, 0), mu_at(gradients, 0));
    return mu_of(mu_divide(loss, mu_constant(MU_F32, BATCH)));
}

static double auc_of(mu_tensor *labels, mu_tensor *scores)
{
    mu_metric *auc = mu_auc_metric(.num_thresholds = 1000, .from_logits = true);
    return mu_metric_update(auc, labels, scores) == MU_OK ? mu_metric_result(auc) : 0;
}

int main(void)
{
    mu_init(.cpu_devices = 2);
    const bool   launched = getenv("TF_CONFIG") != NULL;
    mu_cluster  *here = mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"w:1\"], \"ps\": [\"p:1\"]}"));
    mu_strategy *strategy = mu_parameter_server_strategy(launched ? mu_cluster_from_environment() : here,
                                                         .in_process = !launched);
    mu_coordinator     *coordinator = mu_coordinator_new(strategy);
    mu_embedding_table *table = NULL;
    MU_SCOPE(strategy) {
        table = mu_embedding_table_new(DIMENSION, .optimizer = "adagrad", .learning_rate = 0.5, .scale = 0.6,
                                       .max_bytes = launched ? BYTES : 0, .name = "users and items");
    }
    mu_function *step = mu_function_new(train_step, table);
    for (int round = 1; round <= ROUNDS && !mu_error_code(); round++) {
        mu_pool  *pool = mu_pool_open();
        mu_value *loss = NULL;
        for (int i = 0; i < STEPS; i++)
            loss = mu_schedule(coordinator, step, draw_clicks(round * STEPS + i, BATCH));
        mu_join(coordinator);
        printf("%3d steps: loss %.3f, %lld rows\n", round * STEPS, mu_scalar(mu_fetch(loss)),
               (long long)mu_embedding_table_row_count(table));
        mu_pool_close(pool);
    }
    mu_value  *test = draw_clicks(0, TESTED);
    mu_tensor *rows = mu_embedding_table_lookup(table, mu_at(test, 0), .read_only = true);
    const double known = auc_of(mu_at(test, 1), mu_at(test, 2)), learned = auc_of(mu_at(test, 1), scores_of(rows));
    printf("the table has %lld bytes, a server at most %d\n", (long long)mu_embedding_table_bytes(table), BYTES);
    printf("AUC %.3f; with the true tastes %.3f\n", learned, known);
    return mu_exit(learned > known - 0.03);
}
