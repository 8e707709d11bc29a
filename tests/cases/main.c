// Runs the numbered cases and counts them; those that need what is not there yet are listed, and never count
// as passed.
#include "cases.h"

#include <math.h>
#include <stdarg.h>

static char failure[600];

void fail_case(int line, const char *format, ...)
{
    if (failure[0])
        return;
    const int n = snprintf(failure, sizeof failure, "line %d: ", line);
    va_list rest;
    va_start(rest, format);
    vsnprintf(failure + n, sizeof failure - (size_t)n, format, rest);
    va_end(rest);
}

const char *first_failure(void) { return failure; }

void expect_error(int line, mu_status wanted)
{
    const mu_error error = mu_error_take();
    if (error.code != wanted)
        fail_case(line, "%s wanted, got %s: %s", mu_status_name(wanted), mu_status_name(error.code), error.message);
}

void expect_values(int line, const char *text, const mu_value *value, int n, const double *wanted)
{
    mu_object *leaves[64];
    int seen = 0;
    if (!value) {
        fail_case(line, "%s is NULL: %s", text, mu_error_message());
        return;
    }
    const int n_leaves = MU_MIN(mu__value_flatten(value, leaves, (int)MU_COUNT(leaves)), (int)MU_COUNT(leaves));
    for (int i = 0; i < n_leaves; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        for (int64_t k = 0; k < mu__elements(&tensor->shape); k++, seen++) {
            const double got = mu__read_element(tensor->dtype, mu__host_read(tensor), k);
            if (seen < n && !(fabs(got - wanted[seen]) <= 1e-5 * fmax(1, fabs(wanted[seen]))))
                fail_case(line, "%s: element %d is %g, expected %g", text, seen, got, wanted[seen]);
        }
    }
    if (seen != n)
        fail_case(line, "%s has %d elements, expected %d", text, seen, n);
}

typedef struct counts {
    int passed, failed, later;
} counts;

static void run_case(const one_case *c, counts *count)
{
    if (!c->run && !c->on_workers) {
        printf("%s later: %s\n", c->name, c->later);
        count->later++;
        return;
    }
    failure[0] = '\0';
    mu_pool *pool = mu_pool_open();
    c->on_workers ? run_on_workers(c) : c->run();
    if (mu_error_code() != MU_OK)
        fail_case(0, "left an error: %s", mu_error_take().message);
    mu_pool_close(pool);
    if (mu_error_code() != MU_OK)
        fail_case(0, "left an error: %s", mu_error_take().message);
    CHECK(!mu_has_strategy() && !mu_in_cross_replica_context());
    if (failure[0])
        printf("%s FAILED: %s\n", c->name, failure);
    else
        printf("%s ok\n", c->name);
    fflush(stdout);
    count->failed += failure[0] != '\0';
    count->passed += failure[0] == '\0';
}

// Those that run with --served unless names are given.
static bool is_served(const one_case *area)
{
    return area == sharded_cases || area == variation_part_cases || area == variation_call_cases ||
           area == pin_server_cases;
}

static const one_case *const areas[] = {context_cases,
                                        run_cases,
                                        reduce_cases,
                                        variable_cases,
                                        scatter_cases,
                                        device_cases,
                                        input_cases,
                                        share_cases,
                                        worker_cases,
                                        guide_cases,
                                        rule_context_cases,
                                        rule_value_cases,
                                        rule_variable_cases,
                                        rule_device_cases,
                                        rule_input_cases,
                                        rule_training_cases,
                                        rule_server_cases,
                                        per_replica_cases,
                                        uneven_axes_cases,
                                        accumulator_cases,
                                        rpc_cases,
                                        sharded_cases,
                                        resolver_cases,
                                        tpu_cases,
                                        coordinator_cases,
                                        coordinator_call_cases,
                                        lost_task_cases,
                                        preempted_cases,
                                        variation_cases,
                                        variation_accumulator_cases,
                                        variation_part_cases,
                                        variation_call_cases,
                                        pin_core_cases,
                                        pin_loop_cases,
                                        pin_function_cases,
                                        pin_server_cases,
                                        pin_control_cases,
                                        pin_cluster_cases,
                                        pin_reduction_cases,
                                        pin_tpu_cases,
                                        pin_model_cases};

// With names as arguments only those run; after --served workers and parameter servers are reached by sockets.
int main(int n_names, char **names)
{
    counts count = {0};
    if (n_names == 3 && strcmp(names[1], "--worker") == 0) {
        const int code = mu_init(.seed = 1) == MU_OK ? run_worker(names[2]) : 1;
        mu_exit(true);
        return code;
    }
    served_workers = n_names > 1 && strcmp(names[1], "--served") == 0;
    names += served_workers;
    n_names -= served_workers;
    if (mu_init(.cpu_devices = 8, .seed = 1) != MU_OK)
        return mu_exit(false);
    for (size_t a = 0; a < MU_COUNT(areas); a++)
        for (const one_case *c = areas[a]; c->name; c++) {
            bool wanted = n_names < 2 && (!served_workers || is_served(areas[a]));
            for (int i = 1; i < n_names; i++)
                wanted |= strcmp(names[i], c->name) == 0;
            if (wanted)
                run_case(c, &count);
        }
    printf("%d passed, %d failed, %d later\n", count.passed, count.failed, count.later);
    mu_exit(true);
    return count.failed != 0;
}
