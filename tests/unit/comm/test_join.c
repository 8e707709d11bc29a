// Groups of several processes, in shared memory and over TCP: every operation gives the right numbers and the same bits
// on all ranks. If one rank calls something else, leaves a call out or dies, all ranks get an error that says so.
#include "comm/collectives/group.h"
#include "operations_test.h"

#include <sys/mman.h>
#include <sys/resource.h>

static void test_every_operation(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int processes = 1; processes <= 4; processes++)
            for (int n_local = 1; n_local <= 3; n_local++)
                run_world((world){.processes = processes, .n_local = n_local, .tcp = tcp, .run = every_operation});
    run_world((world){.processes = 5, .n_local = 2, .tcp = true, .run = every_operation});
    run_world((world){.processes = 3, .n_local = 2, .tcp = true, .encrypted = true, .run = every_operation});
}

static void test_every_type(void **state)
{
    static const mu_communication_options in_order = {.deterministic = true};
    static const mu_communication_options ring = {.implementation = MU_COMM_RING};
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        run_world((world){.processes = 2, .n_local = 2, .tcp = tcp, .run = every_type});
        run_world((world){.processes = 3, .n_local = 1, .tcp = tcp, .run = every_type});
        run_world((world){.processes = 2, .n_local = 3, .tcp = tcp, .run = every_type, .options = &in_order});
        run_world((world){.processes = 3, .n_local = 2, .tcp = tcp, .run = every_type, .options = &ring});
    }
}

// The last rank to come finds the announcements of all others. Its own announcement is sent even though it does nothing
// more until the others have finished.
static int nothing_to_add(world *w, mu_collective *c)
{
    float none[1] = {0};
    atomic_int *through = w->arg;
    if (c->rank == 0)
        usleep(300000);
    CHECK(c->all_reduce(c, 1, "nothing", MU_REDUCTION_SUM, MU_F32, none, 0) == MU_OK);
    if (c->rank != 0)
        atomic_fetch_add(through, 1);
    for (const double begin = idle_now(); c->rank == 0 && atomic_load(through) < c->size - 1; sleep_seconds(0.01))
        CHECK(in_time(begin, 10));
    CHECK(mu__collective_barrier(c, 2, "end") == MU_OK);
    return 0;
}

static void test_nothing_to_add(void **state)
{
    static const mu_communication_options pairwise = {.algorithms = "allreduce:pairwise"};
    (void)state;
    atomic_int *through = mmap(NULL, sizeof *through, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(through != MAP_FAILED);
    run_world((world){
        .processes = 3, .n_local = 1, .tcp = true, .run = nothing_to_add, .options = &pairwise, .arg = through});
    munmap(through, sizeof *through);
}

// ---- Memory that all can address ----------------------------------------------------------------

static int in_place(world *w, mu_collective *c)
{
    enum { N = 300001 };
    const question q = {.c = c, .dtype = MU_F32};
    (void)w;
    CHECK(c->memory != NULL);
    for (int turn = 0; turn < 6; turn++) {
        mu_buffer *small = c->memory(c, 100), *block = c->memory(c, N * sizeof(float));
        CHECK(small != NULL && block != NULL && block->bytes == N * sizeof(float) && (uintptr_t)block->data % 64 == 0);
        for (int64_t i = 0; i < N; i++)
            mu__write_element(MU_F32, block->data, i, element(c->rank, i));
        mu_release(small);
        // In the last rounds some or all ranks keep their data outside the segment.
        if (turn >= 4 && (turn == 5 || c->rank == 0)) {
            CHECK(check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, N) == 0);
        } else {
            CHECK(c->all_reduce(c, 1, "sum", MU_REDUCTION_SUM, MU_F32, block->data, N) == MU_OK);
            CHECK(first_wrong(MU_F32, block->data, N, wanted_sum, &q) == -1);
        }
        mu_release(block);
    }
    CHECK(c->memory(c, (size_t)1 << 60) == NULL && mu_error_code() == MU_OK);
    return 0;
}

static void test_in_place(void **state)
{
    (void)state;
    run_world((world){.processes = 2, .n_local = 1, .run = in_place});
    run_world((world){.processes = 3, .n_local = 2, .run = in_place});
}

// A limit on file sizes stands for a lack of memory: the processes of this host then talk through TCP.
static int without_memory(int rank, void *arg)
{
    world w = *(world *)arg;
    if (rank == 0)
        CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1 << 16, .rlim_max = 1 << 16}) == 0);
    mu_mesh *mesh = join_mesh(rank, false);
    CHECK(mesh != NULL);
    w.group = mu__group_join(mesh, w.n_local, "test", NULL);
    CHECK(w.group != NULL);
    CHECK(strcmp(mu__group_path(w.group), "tcp") == 0);
    const int failed = run_members(&w);
    mu_release(w.group);
    mu_release(mesh);
    return failed;
}

static int some_sums(world *w, mu_collective *c)
{
    (void)w;
    return check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, 10) + check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, 50000);
}

static void test_falls_back_to_tcp(void **state)
{
    world w = {.processes = 3, .n_local = 2, .run = some_sums};
    (void)state;
    run_ranks(w.processes, without_memory, &w);
}

// ---- The same bits however ranks are laid out ---------------------------------------------------

enum { FRACTIONS = 30011 };

static int add_fractions(world *w, mu_collective *c)
{
    static const int64_t sizes[] = {7, 3000, FRACTIONS};
    float *result = w->arg, *data = malloc(FRACTIONS * sizeof *data);
    for (size_t s = 0; s < MU_COUNT(sizes); s++) {
        unsigned seed = (unsigned)c->rank + 1;
        for (int64_t i = 0; i < sizes[s]; i++)
            data[i] = (float)rand_r(&seed) / 1e6f - 1000.0f;
        CHECK(c->all_reduce(c, (int64_t)s, "fractions", MU_REDUCTION_MEAN, MU_F32, data, sizes[s]) == MU_OK);
    }
    if (c->rank == c->size - 1)
        memcpy(result, data, FRACTIONS * sizeof *data);
    free(data);
    return 0;
}

static void test_layouts_give_the_same_bits(void **state)
{
    static const mu_communication_options in_order = {.deterministic = true};
    const size_t bytes = FRACTIONS * sizeof(float);
    float *first = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(first != MAP_FAILED);
    for (int tcp = 0; tcp < 2; tcp++)
        for (int processes = 1; processes <= 6; processes++) {
            float *result = tcp == 0 && processes == 1 ? first : first + FRACTIONS;
            if (6 % processes != 0 || 6 / processes > 6)
                continue;
            memset(first + FRACTIONS, 0, bytes);
            run_world((world){.processes = processes,
                              .n_local = 6 / processes,
                              .tcp = tcp,
                              .options = &in_order,
                              .run = add_fractions,
                              .arg = result});
            if (result != first)
                assert_memory_equal(result, first, bytes);
        }
    munmap(first, 2 * bytes);
}

// ---- What goes wrong ----------------------------------------------------------------------------

static int differ(world *w, mu_collective *c)
{
    const bool odd = c->rank >= w->n_local;
    float x[5000] = {0};
    mu__collective_begin(c, 5);
    for (int n = 4; n <= 5000; n += 4996) {
        CHECK(c->all_reduce(c, 3, odd ? "y" : "x", MU_REDUCTION_SUM, MU_F32, x, n) == MU_INVALID_ARGUMENT);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "rank 0 of /job:worker/task:0 is in all_reduce \"x\" (run 5, op 3");
        CHECK(c->all_reduce(c, 3, "x", MU_REDUCTION_SUM, MU_F32, x, odd ? n - 1 : n) == MU_INVALID_ARGUMENT);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "of /job:worker/task:1 in all_reduce \"x\"");
        CHECK(some_sums(w, c) == 0);
    }
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++)
            run_world((world){.processes = 2, .n_local = n_local, .tcp = tcp, .run = differ});
}

static int join_unequal(int rank, void *arg)
{
    mu_mesh *mesh = join_mesh(rank, false);
    mu_communication_options options = {.deterministic = arg != NULL && rank == 1};
    CHECK(mesh != NULL);
    CHECK(mu__group_join(mesh, arg == NULL && rank == 2 ? 2 : 1, "test", &options) == NULL);
    if (arg == NULL)
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "/job:worker/task:0 has replicas: 1, /job:worker/task:2 has 2");
    else
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "/job:worker/task:0 has deterministic off, /job:worker/task:1 has on");
    mu_release(mesh);
    return 0;
}

static void test_unequal(void **state)
{
    (void)state;
    run_ranks(3, join_unequal, NULL);
    run_ranks(3, join_unequal, state);
}

// The ranks of process 1 come late. All ranks get the same error, the late ones too.
static int late(world *w, mu_collective *c)
{
    float x[2] = {1, 1};
    CHECK(mu__collective_barrier(c, 11, "together") == MU_OK);
    mu__collective_begin(c, 4);
    while (c->rank / w->n_local == 1 && !mu__group_failed(w->group, &(mu_error_value){0}))
        sleep_seconds(0.01);
    const double begin = idle_now();
    CHECK(c->all_reduce(c, 12, "dense_2/kernel", MU_REDUCTION_SUM, MU_F32, x, 2) != MU_OK);
    CHECK(in_time(begin, 5));
    CHECK(strstr(mu_error_message(), "did not come to all_reduce \"dense_2/kernel\" (run 4, op 12") != NULL);
    CHECK_TAKEN(MU_DEADLINE_EXCEEDED,
                w->n_local == 1 ? "Rank 1 (/job:worker/task:1" : "Ranks 2, 3 (/job:worker/task:1");
    CHECK(mu__group_reset(w->group) == MU_FAILED_PRECONDITION);
    CHECK_TAKEN(MU_FAILED_PRECONDITION, "their job has failed");
    return 0;
}

static void test_deadline(void **state)
{
    static const mu_communication_options hurry = {.timeout_seconds = MU_TEST_SLOWNESS};
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++)
            run_world((world){.processes = 3, .n_local = n_local, .tcp = tcp, .run = late, .options = &hurry});
}

// Process 1 ends in order while the others wait for it. They all have the group before: whoever still joins when it
// ends has none.
static int wait_in_vain(world *w, mu_collective *c)
{
    float x[3] = {1, 1, 1};
    CHECK(c->all_reduce(c, 0, "all are there", MU_REDUCTION_SUM, MU_F32, x, 3) == MU_OK);
    if (c->rank / w->n_local == 1)
        return 0;
    const double begin = idle_now();
    CHECK(c->all_reduce(c, 1, "x", MU_REDUCTION_SUM, MU_F32, x, 3) == MU_UNAVAILABLE);
    CHECK(in_time(begin, 10));
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    return 0;
}

static void test_left(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++)
            run_world((world){.processes = 3, .n_local = n_local, .tcp = tcp, .run = wait_in_vain});
}

// Rank 1 gives up while the others are in the middle of the collective.
static int give_up(world *w, mu_collective *c)
{
    const mu_error_value down = {.code = MU_DATA_LOSS, .message = "the disk is gone", .file = __FILE__, .line = 1};
    float *x = calloc(100000, sizeof *x);
    mu_status status = MU_OK;
    for (int turn = 0; turn < 100000 && status == MU_OK; turn++) {
        if (c->rank == 1 && turn == 20)
            mu__group_abort(w->group, &down);
        status = c->all_reduce(c, turn, "x", MU_REDUCTION_SUM, MU_F32, x, turn % 2 == 0 ? 3 : 100000);
    }
    free(x);
    CHECK(status == MU_DATA_LOSS);
    CHECK_TAKEN(MU_DATA_LOSS, "the disk is gone");
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++)
            run_world((world){.processes = 3, .n_local = n_local, .tcp = tcp, .run = give_up});
}

// Process 1 is killed while all are working; the others' error names it.
static int until_killed(world *w, mu_collective *c)
{
    float *x = calloc(100000, sizeof *x);
    mu_status status = MU_OK;
    int turn = 0;
    for (; turn < 1000000 && status == MU_OK; turn++) {
        if (c->rank == w->n_local && turn == 30)
            raise(SIGKILL);
        status = c->all_reduce(c, turn, "x", MU_REDUCTION_SUM, MU_F32, x, turn % 2 == 0 ? 3 : 100000);
    }
    free(x);
    CHECK(status == MU_UNAVAILABLE);
    CHECK_TAKEN(MU_UNAVAILABLE, "/job:worker/task:1");
    return 0;
}

// This rank checks so slowly that the others have often finished and left meanwhile. That is no reason to give up.
static mu_status look_slowly(void *arg)
{
    const member *m = arg;
    const int peer = m->channel.waiting_for, turns = m->channel.rank == 1 ? 100 : 5;
    for (int turn = 0; turn < turns && (peer < 0 || !mu__mesh_is_gone(m->group->joined.mesh, peer)); turn++)
        sleep_seconds(.001);
    return mu__member_idle(arg);
}

static int slow_to_look(world *w, mu_collective *c)
{
    static float data[100001];
    member *m = (member *)c;
    (void)w;
    m->channel.idle = look_slowly;
    m->channel.idle_arg = m;
    CHECK(c->all_reduce(c, 1, "sum", MU_REDUCTION_SUM, MU_F32, data, (int64_t)MU_COUNT(data)) == MU_OK);
    return 0;
}

static void test_done_and_left(void **state)
{
    static const mu_communication_options ring = {.implementation = MU_COMM_RING};
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int turn = 0; turn < 4; turn++)
            run_world((world){
                .processes = 3, .n_local = 1, .tcp = tcp, .run = slow_to_look, .options = turn % 2 ? &ring : NULL});
}

static void test_killed(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++) {
            world w = {.processes = 3, .n_local = n_local, .tcp = tcp, .run = until_killed};
            pid_t children[3];
            make_peers(3);
            const double begin = idle_now();
            for (int i = 0; i < 3; i++)
                children[i] = start_rank(i, run_process, &w);
            for (int i = 0; i < 3; i++)
                assert_int_equal(wait_rank(children[i]), i == 1 ? 1000 + SIGKILL : 0);
            assert_true(in_time(begin, 10));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation),
        cmocka_unit_test(test_nothing_to_add),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_falls_back_to_tcp),
        cmocka_unit_test(test_layouts_give_the_same_bits),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_done_and_left),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
