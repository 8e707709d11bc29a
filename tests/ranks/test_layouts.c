// MultiWorkerMirroredStrategy: the same replicas laid out over one, two, three or four processes train to the
// parameters of one device, count every sample once, and with `deterministic` have the same bits.
//
// The test starts itself under `muster launch`; as a worker it trains every recipe and the chief writes what came out.
#include "../tables/recipes.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct results {
    double *items;
    size_t n, capacity;
} results;

static void add_numbers(results *all, const double *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(MU_PUSH(all, numbers[i]), MU_OK);
}

// What one process or worker finds: weights and losses of all recipes, then the evaluation.
static void find_all(mu_strategy *(*make)(void), results *out)
{
    static measured m;
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        outcome o = train_on(&recipes[i], make());
        add_numbers(out, o.weights, o.n_weights);
        add_numbers(out, o.losses, o.epochs);
        free_outcome(&o);
    }
    measure_on(make(), &m);
    add_numbers(out, (double[]){(double)m.samples, m.loss, m.accuracy}, 3);
    add_numbers(out, m.outputs, MU_COUNT(m.outputs));
}

// ---- A worker -----------------------------------------------------------------------------------

static mu_strategy *joined;

static mu_strategy *the_joined(void)
{
    return joined;
}

// Large values are reduced in pieces: the bits are those of all parts fetched at once.
static void reduce_in_pieces(void)
{
    enum { LARGE = 300001, MOST = 4 };
    const int64_t dims[] = {LARGE};
    mu_tensor *mine[MOST];
    for (int r = 0; r < joined->n_local && r < MOST; r++) {
        mine[r] = mu_tensor_new(MU_F64, 1, dims, NULL);
        for (int64_t i = 0; i < LARGE && mine[r]; i++)
            ((double *)mu__data(mine[r]))[i] = 1.0 / (double)(i % 1000 + joined->first_replica + r + 1);
    }
    for (int op = MU_SUM; op <= MU_MEAN && joined->n_workers > 1 && !mu__pending(); op++) {
        mu_tensor *seen = mu__workers_reduce(joined, NULL, (mu_reduce_op)op, joined->n_local, mine);
        mu_tensor **all = mu__workers_gather(joined, "all parts", joined->n_local, mine);
        mu_tensor *wanted = all ? mu__reduce_tensors((mu_reduce_op)op, joined->n_replicas, all) : NULL;
        mu__free(all);
        if (seen && wanted && memcmp(mu__data(seen), mu__data(wanted), LARGE * sizeof(double)) != 0)
            mu_fail(MU_INTERNAL, "a value reduced in pieces has other bits");
    }
}

static int worker(const char *path, const char *how)
{
    const bool deterministic = strcmp(how, "deterministic") == 0;
    results found = {0};
    if (mu_init(.seed = 7) != MU_OK || mu_set_floatx(MU_F64) != MU_OK)
        return mu_exit(false);
    const mu_communication_options options = {.deterministic = deterministic};
    joined = mu_multi_worker_mirrored_strategy(.communication_options = &options);
    if (!joined)
        return mu_exit(false);
    if (!deterministic)
        joined->bytes_per_pack = 200; // many buckets
    for (int r = 0; r < joined->n_local && strcmp(how, "on the spot") == 0; r++)
        mu__group_member(joined->group, r)->start = NULL;
    reduce_in_pieces();
    find_all(the_joined, &found);
    FILE *file = mu_strategy_should_checkpoint(joined) ? fopen(path, "w") : NULL;
    if (file && (fwrite(found.items, sizeof *found.items, found.n, file) != found.n || fclose(file) != 0))
        mu_fail(MU_INTERNAL, "cannot write %s", path);
    mu__free(found.items);
    return mu_exit(true);
}

// ---- The test -----------------------------------------------------------------------------------

static mu_strategy *one_device(void)
{
    return mu_one_device_strategy("CPU:0");
}

static void launch(int processes, int replicas, const char *how, results *out)
{
    char self[512], command[1400], path[] = "/tmp/muster-layouts-XXXXXX";
    double number;
    const int fd = mkstemp(path);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0 && fd >= 0);
    self[n] = '\0';
    snprintf(command, sizeof command, "'%s' launch -n %d --replicas %d --timeout 120 -- '%s' --worker %s '%s' >&2",
             MUSTER_COMMAND, processes, replicas, self, path, how);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    while (read(fd, &number, sizeof number) == (ssize_t)sizeof number)
        add_numbers(out, &number, 1);
    close(fd);
    unlink(path);
}

static void reaches_the_parameters_of_one_device(void **state)
{
    (void)state;
    static const int layouts[][2] = {{1, 4}, {2, 2}, {4, 1}, {3, 1}, {2, 1}};
    results wanted = {0};
    find_all(one_device, &wanted);
    const size_t evaluation = wanted.n - MU_COUNT(((measured *)0)->outputs) - 3;
    assert_true(wanted.items[evaluation] == 1000);
    for (size_t i = 0; i < MU_COUNT(layouts); i++) {
        results seen = {0};
        launch(layouts[i][0], layouts[i][1], "meanwhile", &seen);
        assert_int_equal(seen.n, wanted.n);
        assert_near(seen.items, wanted.items, (int64_t)evaluation, TOLERANCE);
        assert_true(seen.items[evaluation] == 1000);
        assert_true(seen.items[evaluation + 2] == wanted.items[evaluation + 2]);
        assert_near(seen.items + evaluation + 1, wanted.items + evaluation + 1, (int64_t)(wanted.n - evaluation - 1),
                    TOLERANCE);
        mu__free(seen.items);
    }
    mu__free(wanted.items);
}

static void deterministic_layouts_have_the_same_bits(void **state)
{
    (void)state;
    static const int layouts[][2] = {{1, 4}, {2, 2}, {4, 1}};
    results first = {0};
    for (size_t i = 0; i < MU_COUNT(layouts); i++) {
        results seen = {0};
        launch(layouts[i][0], layouts[i][1], "deterministic", i == 0 ? &first : &seen);
        if (i == 0)
            continue;
        assert_int_equal(seen.n, first.n);
        assert_memory_equal(seen.items, first.items, first.n * sizeof *first.items);
        mu__free(seen.items);
    }
    mu__free(first.items);
}

// Gradients reduced while the backward pass goes on, or on the spot: in shared memory and over TCP.
static void overlap_has_the_same_bits(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        results seen = {0}, wanted = {0};
        setenv("MUSTER_SHARED_MEMORY", tcp ? "0" : "1", 1);
        launch(2, 1 + tcp, "on the spot", &wanted);
        launch(2, 1 + tcp, "meanwhile", &seen);
        assert_int_equal(seen.n, wanted.n);
        assert_memory_equal(seen.items, wanted.items, wanted.n * sizeof *wanted.items);
        mu__free(seen.items);
        mu__free(wanted.items);
    }
    unsetenv("MUSTER_SHARED_MEMORY");
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "--worker") == 0)
        return worker(argv[2], argc == 4 ? argv[3] : "meanwhile");
    const struct CMUnitTest tests[] = {
        MODEL_TEST(reaches_the_parameters_of_one_device),
        MODEL_TEST(deterministic_layouts_have_the_same_bits),
        MODEL_TEST(overlap_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
