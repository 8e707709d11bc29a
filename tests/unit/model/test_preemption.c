// The preemption handler in one process: what it refuses, what it counts, when it saves, and the exit code. tests/ranks
// has jobs of several processes that get SIGTERM at any moment.
#include "base/private.h"
#include "../scratch.h"
#include "model_test.h"

#include <muster/checkpoint.h>
#include <muster/cluster.h>

#include <signal.h>
#include <unistd.h>

#define FOLDER "muster-test-preemption"

static void remove_folder(void)
{
    if (system("rm -rf " FOLDER) != 0)
        fail_msg("the folder of the test cannot be removed");
}

typedef struct loop {
    mu_variable *v;
    int told_at; // the watcher says so after so many steps
    int saves, exits;
} loop;

static mu_checkpoint *begin(loop *l)
{
    *l = (loop){.v = mu_variable_new(mu_constant(MU_F64, 0), "v"), .told_at = -1};
    return mu_checkpoint_new(.variables = mu_variables(l->v, MU_END));
}

static mu_value *add_one(mu_value *arguments, void *arg)
{
    loop *l = arg;
    mu_variable_assign_add(l->v, mu_constant(MU_F64, 1));
    l->told_at--;
    return arguments;
}

static bool told(void *arg) { return ((loop *)arg)->told_at == 0; }

static mu_status count_save(void *arg)
{
    ((loop *)arg)->saves++;
    return MU_OK;
}

static mu_status fail_to_save(void *arg)
{
    (void)arg;
    return MU_DATA_LOSS;
}

static void count_exit(void *arg) { ((loop *)arg)->exits++; }

static mu_value *nothing_more(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return NULL;
}

static void what_it_refuses(void **state)
{
    (void)state;
    loop l;
    mu_checkpoint *checkpoint = begin(&l);
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, FOLDER);
    assert_null(mu_preemption_handler_new());
    expect_error(MU_INVALID_ARGUMENT, "nothing to save");
    assert_null(mu_preemption_handler_new(checkpoint));
    expect_error(MU_INVALID_ARGUMENT, "the directory is missing");
    assert_null(mu_preemption_handler_new(.directory = FOLDER));
    expect_error(MU_INVALID_ARGUMENT, "the checkpoint is missing");
    assert_null(mu_preemption_handler_new(checkpoint, FOLDER, .manager = manager));
    expect_error(MU_INVALID_ARGUMENT, "more than it");
    assert_null(mu_preemption_handler_new(.manager = manager, .grace_period = -1));
    expect_error(MU_INVALID_ARGUMENT, "grace_period is -1");
    assert_null(mu_preemption_handler_new(.manager = manager, .exit_code = 256));
    expect_error(MU_INVALID_ARGUMENT, "exit_code is 256");
    assert_null(mu_preemption_run(NULL, add_one, &l, NULL));
    expect_error(MU_INVALID_ARGUMENT, "the handler is NULL");
    assert_int_equal(mu_preemption_total_runs(NULL), -1);
    expect_error(MU_INVALID_ARGUMENT, "the handler is NULL");
    remove_folder();
}

// Case 160 of the parameter-server cases. SIGTERM twice: while the handler exists, the second one does not end the
// process.
static void test_case_ps_160(void **state)
{
    (void)state;
    remove_folder();
    loop l;
    mu_pool *pool = mu_pool_open();
    mu_checkpoint *checkpoint = begin(&l);
    mu_preemption_handler *handler = mu_preemption_handler_new(checkpoint, FOLDER, .exit_fn = count_exit, .arg = &l);
    mu_value *one = mu_of(mu_constant(MU_F64, 1));
    for (int i = 0; i < 3; i++)
        assert_non_null(mu_preemption_run(handler, add_one, &l, one));
    assert_null(mu_preemption_run(handler, nothing_more, &l, one));
    assert_int_equal(mu_error_code(), MU_OK);
    assert_int_equal(mu_preemption_total_runs(handler), 3);
    assert_int_not_equal(access(FOLDER "/ckpt-1.safetensors", F_OK), 0);
    raise(SIGTERM);
    raise(SIGTERM);
    assert_int_equal(mu__check_stop(), MU_OK);
    assert_null(mu_preemption_run(handler, add_one, &l, one));
    expect_error(MU_CANCELLED,
                 "told to end by SIGTERM after 3 steps; they are saved in '" FOLDER "': run the same command");
    assert_int_equal(l.exits, 1);
    assert_int_equal(mu__stop_exit_code(), 42);
    assert_int_equal(access(FOLDER "/ckpt-1.safetensors", F_OK), 0);
    assert_null(mu_preemption_run(handler, add_one, &l, one));
    expect_error(MU_FAILED_PRECONDITION, "end the loop");
    mu_pool_close(pool);
    mu__signals_restore();
    pool = mu_pool_open();
    handler = mu_preemption_handler_new(begin(&l), FOLDER);
    assert_int_equal(mu_preemption_total_runs(handler), 3);
    assert_true(mu_scalar(mu_variable_read(l.v)) == 3);
    mu_pool_close(pool);
    mu__signals_restore();
    remove_folder();
}

static void its_own_functions(void **state)
{
    (void)state;
    loop l;
    mu_pool *pool = mu_pool_open();
    mu_checkpoint *checkpoint = begin(&l);
    l.told_at = 0;
    mu_preemption_handler *handler = mu_preemption_handler_new(checkpoint, FOLDER, .termination_watcher_fn = told,
                                                               .save_fn = count_save, .exit_code = 7, .arg = &l);
    assert_null(mu_preemption_run(handler, add_one, &l, mu_list(MU_END)));
    expect_error(MU_CANCELLED, "told to end by the watcher after 0 steps; .save_fn has saved them");
    assert_int_equal(l.saves, 1);
    assert_int_equal(mu__stop_exit_code(), 7);
    assert_int_not_equal(access(FOLDER "/ckpt-1.safetensors", F_OK), 0);
    mu__signals_restore();
    handler = mu_preemption_handler_new(checkpoint, FOLDER, .termination_watcher_fn = told, .save_fn = fail_to_save,
                                        .arg = &l);
    assert_null(mu_preemption_run(handler, add_one, &l, mu_list(MU_END)));
    expect_error(MU_DATA_LOSS, "function that saves");
    mu_pool_close(pool);
    mu__signals_restore();
    remove_folder();
}

// Two saves: one at once, and one before the grace period is over; training continues between them.
static void a_grace_period(void **state)
{
    (void)state;
    loop l;
    mu_pool *pool = mu_pool_open();
    mu_preemption_handler *handler =
        mu_preemption_handler_new(begin(&l), FOLDER, .grace_period = 1, .save_fn = count_save, .arg = &l);
    mu_value *one = mu_of(mu_constant(MU_F64, 1));
    assert_non_null(mu_preemption_run(handler, add_one, &l, one));
    raise(SIGTERM);
    const int64_t told_ns = mu__now_ns();
    assert_non_null(mu_preemption_run(handler, add_one, &l, one));
    assert_int_equal(l.saves, 1);
    raise(SIGTERM);
    while (mu_preemption_run(handler, add_one, &l, one))
        usleep(1000);
    expect_error(MU_CANCELLED, "SIGTERM");
    assert_int_equal(l.saves, 2);
    assert_in_range(mu__now_ns() - told_ns, 500000000, 20000000000);
    assert_true(mu_preemption_total_runs(handler) > 5);
    mu_pool_close(pool);
    mu__signals_restore();
    remove_folder();
}

static void parameter_servers_are_not_for_it(void **state)
{
    (void)state;
    loop l;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}");
    mu_strategy *strategy =
        mu_multi_worker_mirrored_strategy(.cluster_resolver = mu_simple_cluster_resolver(spec, .task_type = "worker"));
    if (!strategy) {
        expect_error(MU_INVALID_ARGUMENT, "ps");
        return;
    }
    assert_null(mu_preemption_handler_new(begin(&l), FOLDER, .strategy = strategy));
    expect_error(MU_UNIMPLEMENTED, "parameter servers");
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_refuses),
        cmocka_unit_test(test_case_ps_160),
        cmocka_unit_test(its_own_functions),
        cmocka_unit_test(a_grace_period),
        cmocka_unit_test(parameter_servers_are_not_for_it),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
