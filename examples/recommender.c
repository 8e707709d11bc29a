// A recommender on clicks that the program draws itself, so the best possible result is known. Users and items are keys
// of one embedding table, in which a row exists once its key has been seen. Under
//     muster launch --workers 2 --ps 2 -- ./recommender
// the rows are on two servers, and the table is too large for one of them.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

enum { USERS = 8000, ITEMS = 2000, TASTES = 3, DIMENSION = 8, BATCH = 4096, ROUNDS = 6, STEPS = 40, TESTED = 20000,
       SERVER_BYTES = 1300000 };

static int64_t keys[2 * TESTED];
static float   chance[TESTED], best[TESTED];
static uint64_t state = 1;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* What a user likes, and what an item is like: from -1 to 1, from the key alone. */
static float taste(int64_t key, int i)
{
    const uint64_t x = ((uint64_t)key ^ (uint64_t)i << 56) * 0xD6E8FEB86659FD93u;
    return (float)((x ^ x >> 32) * 0xD6E8FEB86659FD93u >> 40) * 0x1p-23f - 1;
}

/* Keys [n, 2] and clicks [n]: 1 with a probability of sigmoid(best). */
static mu_value *draw_clicks(int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        keys[2 * i] = (int64_t)(1000003 * (draw() % USERS));
        keys[2 * i + 1] = -(int64_t)(1000033 * (1 + draw() % ITEMS));
        best[i] = 0;
        for (int k = 0; k < TASTES; k++)
            best[i] += 4 * taste(keys[2 * i], k) * taste(keys[2 * i + 1], k);
        chance[i] = (float)(draw() >> 40) * 0x1p-24f;
    }
    mu_tensor *clicks = mu_less(mu_tensor_new(MU_F32, 1, &n, chance), mu_sigmoid(mu_tensor_new(MU_F32, 1, &n, best)));
    return mu_list(mu_tensor_new(MU_I64, 2, (int64_t[]){n, 2}, keys), mu_cast(clicks, MU_F32), MU_END);
}

static mu_tensor *scores_of(mu_tensor *rows) /* [n, 2, DIMENSION]: user times item */
{
    return mu_reduce_sum(mu_reduce_prod(rows, 1), 1);
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
        table = mu_embedding_table_new(DIMENSION, .optimizer = "adagrad", .learning_rate = 0.3, .scale = 0.3,
                                       .max_bytes = launched ? SERVER_BYTES : 0, .name = "users and items");
    }
    mu_function *step = mu_function_new(train_step, table);
    for (int round = 1; round <= ROUNDS && !mu_error_code(); round++) {
        mu_pool  *pool = mu_pool_open();
        mu_value *loss = NULL;
        for (int i = 0; i < STEPS; i++)
            loss = mu_schedule(coordinator, step, draw_clicks(BATCH));
        mu_join(coordinator);
        printf("%3d steps: loss %.3f, %lld rows\n", round * STEPS, mu_scalar(mu_fetch(loss)),
               (long long)mu_embedding_table_row_count(table));
        mu_pool_close(pool);
    }
    mu_value  *test = draw_clicks(TESTED);
    mu_tensor *rows = mu_embedding_table_lookup(table, mu_at(test, 0), .read_only = true);
    const double known = auc_of(mu_at(test, 1), mu_tensor_new(MU_F32, 1, (int64_t[]){TESTED}, best));
    const double learned = auc_of(mu_at(test, 1), scores_of(rows));
    printf("the table has %lld bytes, a server at most %d\n", (long long)mu_embedding_table_bytes(table), SERVER_BYTES);
    printf("AUC %.3f; with the true tastes %.3f\n", learned, known);
    return mu_exit(learned > known - 0.03);
}
