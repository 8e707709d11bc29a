// Distributed variables in traced functions and outside: reads and assignments by synchronisation and
// aggregation, cases 070 to 107.
#include "distribute_test.h"

typedef enum source { LITERAL, ID, PER_REPLICA } source;

// The value that a step assigns: one tensor from outside, the replica's id, or a value computed on the replica.
typedef struct change {
    mu_variable *variable;
    mu_status (*update)(mu_variable *, mu_tensor *);
    source source;
    double value;
    mu_tensor *literal; // from outside of the function
} change;

static mu_value *apply_change(mu_value *arguments, void *arg)
{
    const change *c = arg;
    mu_dtype dtype = mu_variable_dtype(c->variable);
    mu_tensor *value = c->literal;
    if (c->source != LITERAL)
        value = mu_cast(c->source == ID ? mu_replica_id() : mu_at(arguments, 0), dtype);
    if (c->update(c->variable, value) != MU_OK)
        return NULL;
    return mu_of(mu_variable_read(c->variable));
}

static mu_variable *make(mu_strategy *strategy, mu_dtype dtype, double value, int synchronization, int aggregation)
{
    mu_variable *variable = NULL;
    MU_SCOPE(strategy) {
        variable = mu_variable_new(mu_constant(dtype, value), "v", .aggregation = (mu_variable_aggregation)aggregation,
                                   .synchronization = (mu_variable_synchronization)synchronization);
    }
    return variable;
}

static double component(mu_variable *variable, int i)
{
    const mu_tensor *value = mu__variable_component(variable, i);
    if (!value)
        fail_msg("%s", mu_error_message());
    return mu__read_element(value->dtype, mu__host_read(value), 0);
}

static void assert_components(mu_variable *variable, double first, double second)
{
    if (component(variable, 0) != first || component(variable, 1) != second)
        fail_msg("components %g, %g; expected %g, %g", component(variable, 0), component(variable, 1), first, second);
}

static mu_value *run_change(mu_strategy *strategy, change c)
{
    mu_value *two = scalars_of(2, MU_F64, (double[]){c.value, c.value});
    c.literal = mu_constant(mu_variable_dtype(c.variable), c.value);
    return mu_run(strategy, mu_function_new(apply_change, &c), two);
}

// Cases 073 to 080, and 098 for ON_READ: each row is one step on two replicas that changes a variable of 1.
static void steps_follow_the_matrix(void **state)
{
    (void)state;
    enum { WRITE = MU_SYNCHRONIZATION_ON_WRITE, READ = MU_SYNCHRONIZATION_ON_READ };
    enum { NONE, SUM, MEAN, FIRST };
    static const struct {
        int synchronization, aggregation;
        source source;
        mu_status (*update)(mu_variable *, mu_tensor *);
        double value, first, second;
        mu_status code;
    } rows[] = {
        {WRITE, NONE, LITERAL, mu_variable_assign, 5, 5, 5, MU_OK},
        {WRITE, NONE, ID, mu_variable_assign, 0, 0, 1, MU_OK},
        {WRITE, SUM, LITERAL, mu_variable_assign, 5, 1, 1, MU_INVALID_ARGUMENT},
        {WRITE, SUM, PER_REPLICA, mu_variable_assign, 2, 4, 4, MU_OK},
        {WRITE, SUM, PER_REPLICA, mu_variable_assign_add, 2, 5, 5, MU_OK},
        {WRITE, SUM, PER_REPLICA, mu_variable_assign_sub, -2, 5, 5, MU_OK},
        {WRITE, MEAN, PER_REPLICA, mu_variable_assign, 2, 2, 2, MU_OK},
        {WRITE, MEAN, ID, mu_variable_assign, 0, .5, .5, MU_OK},
        {WRITE, MEAN, ID, mu_variable_assign_add, 0, 1.5, 1.5, MU_OK},
        {WRITE, MEAN, ID, mu_variable_assign_sub, 0, .5, .5, MU_OK},
        {WRITE, MEAN, LITERAL, mu_variable_assign_add, 3, 4, 4, MU_OK},
        {WRITE, FIRST, ID, mu_variable_assign, 0, 0, 0, MU_OK},
        {WRITE, FIRST, PER_REPLICA, mu_variable_assign_add, 2, 3, 3, MU_OK},
        {READ, NONE, ID, mu_variable_assign, 0, 0, 1, MU_OK},
        {READ, SUM, ID, mu_variable_assign_add, 0, 1, 2, MU_OK},
        {READ, SUM, LITERAL, mu_variable_assign, 7, 7, 7, MU_OK},
        {READ, MEAN, LITERAL, mu_variable_assign_sub, -1, 2, 2, MU_OK},
        {READ, FIRST, ID, mu_variable_assign_add, 0, 1, 2, MU_OK},
    };
    mu_strategy *strategy = strategy_of(2);
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_variable *variable = make(strategy, MU_F64, 1, rows[i].synchronization, rows[i].aggregation);
        mu_value *seen = run_change(strategy, (change){variable, rows[i].update, rows[i].source, rows[i].value});
        if (mu_error_code() != rows[i].code)
            fail_msg("row %zu: %s", i, mu_error_message());
        mu_error_take();
        assert_components(variable, rows[i].first, rows[i].second);
        if (seen) { // reads in the same function see the new value
            assert_true(on_replica(strategy, seen, 0) == rows[i].first);
            assert_true(on_replica(strategy, seen, 1) == rows[i].second);
        }
    }
}

// Case 080.
static void means_of_integers_are_refused(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_variable *variable = make(strategy, MU_I32, 1, MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_MEAN);
    assert_null(run_change(strategy, (change){variable, mu_variable_assign, ID, 0}));
    expect_error(MU_INVALID_ARGUMENT, "int32");
    assert_non_null(run_change(strategy, (change){variable, mu_variable_assign, LITERAL, 6}));
    assert_components(variable, 6, 6);
}

// TensorFlow makes no distributed variable with this aggregation and type: reading an ON_READ one would give a
// fraction, which its own checkpoint could not restore. A variable with one copy needs no mean.
static void integers_that_would_be_read_as_a_mean(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_I32, MU_I64, MU_U8, MU_BOOL};
    for (int i = 0; i < 4; i++)
        for (int replicas = 1; replicas <= 2; replicas++) {
            assert_null(make(strategy_of(replicas), dtypes[i], 1, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN));
            expect_error(MU_INVALID_ARGUMENT, mu_dtype_name(dtypes[i]));
        }
    for (int kind = -1; kind <= CENTRAL + 2; kind += kind == 0 ? CENTRAL + 1 : 1)
        assert_non_null(make(strategy_of(kind), MU_I32, 1, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN));
    for (int aggregation = 0; aggregation <= 3; aggregation++) {
        const mu_dtype dtype = aggregation == MU_AGGREGATION_MEAN ? MU_F16 : MU_I32;
        mu_variable *variable = make(strategy_of(2), dtype, 4, MU_SYNCHRONIZATION_ON_READ, aggregation);
        mu_tensor *read = aggregation == MU_AGGREGATION_NONE ? NULL : mu_variable_read(variable);
        if (read && (mu_tensor_dtype(read) != dtype || mu_variable_assign(variable, read) != MU_OK))
            fail_msg("aggregation %d reads %s", aggregation, mu_dtype_name(mu_tensor_dtype(read)));
    }
}

typedef struct scattering {
    mu_variable *variable;
    int64_t rows, values; // on replica 0; on replica 1 the other way round
} scattering;

static mu_value *scatter_rows(mu_value *arguments, void *arg)
{
    (void)arguments;
    const scattering *s = arg;
    mu_tensor *rows = mu_zeros(MU_I32, 1, &s->rows), *own = mu_cast(mu_replica_id(), mu_variable_dtype(s->variable));
    mu_tensor *values = mu_add(mu_ones(mu_variable_dtype(s->variable), 1, &s->values), own);
    return mu_variable_scatter_add(s->variable, rows, values) == MU_OK ? mu_list(MU_END) : NULL;
}

static mu_variable *counters(mu_strategy *strategy, mu_dtype dtype, mu_variable_aggregation aggregation)
{
    mu_variable *variable = NULL;
    MU_SCOPE(strategy) {
        variable = mu_variable_new(mu_zeros(dtype, 1, (int64_t[]){2}), "counters", .aggregation = aggregation);
    }
    return variable;
}

static void scatters_of_integer_means(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    scattering s = {counters(strategy, MU_I32, MU_AGGREGATION_MEAN), 1, 1};
    for (int traced = 0; traced < 2; traced++) {
        assert_null(traced ? mu_run(strategy, mu_function_new(scatter_rows, &s), NULL)
                           : mu_run_callback(strategy, scatter_rows, &s, NULL));
        expect_error(MU_INVALID_ARGUMENT, "variable 'counters' has aggregation MEAN and type int32");
        assert_components(s.variable, 0, 0);
    }
    mu_tensor *row = mu_zeros(MU_I32, 1, (int64_t[]){1}), *three = mu_tensor_new(MU_I32, 1, (int64_t[]){1}, &(int){3});
    assert_int_equal(mu_variable_scatter_add(s.variable, row, three), MU_OK);
    assert_components(s.variable, 3, 3);
    mu_strategy *alone = strategy_of(1);
    s.variable = counters(alone, MU_I32, MU_AGGREGATION_MEAN);
    assert_non_null(mu_run_callback(alone, scatter_rows, &s, NULL));
    s.variable = counters(strategy, MU_I32, MU_AGGREGATION_SUM);
    assert_non_null(mu_run_callback(strategy, scatter_rows, &s, NULL));
    assert_components(s.variable, 3, 3);
}

static mu_value *scatter_crosswise(mu_value *arguments, void *arg)
{
    scattering here = *(const scattering *)arg;
    if (mu_scalar(mu_at(arguments, 0)) == 1)
        here = (scattering){here.variable, here.values, here.rows};
    return scatter_rows(arguments, &here);
}

// One replica has two indices and one value, the other one index and two values: concatenated, the lengths would agree.
static void scatters_that_only_fit_together(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    scattering s = {counters(strategy, MU_F64, MU_AGGREGATION_SUM), 2, 1};
    mu_value *ids = scalars_of(2, MU_F64, (double[]){0, 1});
    assert_null(mu_run_callback(strategy, scatter_crosswise, &s, mu_list(ids, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "must be float64[2]");
    assert_components(s.variable, 0, 0);
}

// Cases 083, 098 and 100 to 103: outside of replicas.
static void cross_replica_updates(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_tensor *two = mu_constant(MU_F64, 2);
    for (int aggregation = 0; aggregation <= 3; aggregation++) {
        mu_variable *variable = make(strategy, MU_F64, 1, MU_SYNCHRONIZATION_ON_WRITE, aggregation);
        assert_int_equal(mu_variable_assign_add(variable, two), MU_OK);
        assert_components(variable, 3, 3);
        assert_int_equal(mu_variable_assign_sub(variable, two), MU_OK);
        assert_int_equal(mu_variable_assign(variable, two), MU_OK);
        assert_components(variable, 2, 2);
        assert_true(mu_scalar(mu_variable_read(variable)) == 2);
    }
    for (int aggregation = MU_AGGREGATION_MEAN; aggregation <= MU_AGGREGATION_ONLY_FIRST_REPLICA; aggregation++) {
        mu_variable *variable = make(strategy, MU_F64, 0, MU_SYNCHRONIZATION_ON_READ, aggregation);
        assert_int_equal(mu_variable_assign_add(variable, two), MU_OK);
        assert_components(variable, 2, 2);
    }
    mu_variable *sum = make(strategy, MU_F64, 1, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM);
    assert_true(mu_scalar(mu_variable_read(sum)) == 2);
    assert_int_equal(mu_variable_assign(sum, mu_constant(MU_F64, 6)), MU_OK);
    assert_components(sum, 3, 3);
    assert_true(mu_scalar(mu_variable_read(sum)) == 6);
    assert_int_equal(mu_variable_assign_add(sum, two), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "SUM");
    mu_variable *none = make(strategy, MU_F64, 1, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_NONE);
    assert_null(mu_variable_read(none));
    expect_error(MU_INVALID_ARGUMENT, "NONE");
}

// Cases 101 and 104.
static void reads_put_components_together(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    static const double wanted[] = {0, 1, .5, 0};
    for (int aggregation = MU_AGGREGATION_SUM; aggregation <= MU_AGGREGATION_ONLY_FIRST_REPLICA; aggregation++) {
        mu_variable *variable = make(strategy, MU_F64, 9, MU_SYNCHRONIZATION_ON_READ, aggregation);
        assert_non_null(run_change(strategy, (change){variable, mu_variable_assign, ID, 0}));
        assert_true(mu_scalar(mu_variable_read(variable)) == wanted[aggregation]);
    }
}

// Cases 068 and 070, and arguments that strategies with one replica ignore.
static void creation_is_checked(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    assert_null(make(strategy, MU_F64, 1, MU_SYNCHRONIZATION_NONE, 0));
    expect_error(MU_INVALID_ARGUMENT, "NONE");
    assert_null(make(strategy, MU_F64, 1, 4, 0));
    expect_error(MU_INVALID_ARGUMENT, "synchronization 4");
    assert_null(make(strategy, MU_F64, 1, 0, -1));
    expect_error(MU_INVALID_ARGUMENT, "aggregation -1");
    assert_null(mu_variable_new(NULL, "v"));
    expect_error(MU_INVALID_ARGUMENT, "'v'");
    assert_false(mu_variable_is_trainable(make(strategy, MU_F64, 1, MU_SYNCHRONIZATION_ON_READ, 0)));
    assert_true(mu_variable_is_trainable(make(strategy, MU_F64, 1, 0, 0)));
    for (int kind = -1; kind <= 0; kind++) {
        mu_variable *plain = make(strategy_of(kind), MU_F64, 1, MU_SYNCHRONIZATION_NONE, 0);
        assert_int_equal(plain->n_components, 1);
    }
    mu_variable *variable = make(strategy, MU_F64, 1, 0, 0);
    assert_int_equal(mu_variable_assign(variable, mu_constant(MU_F32, 1)), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "float32");
    assert_int_equal(mu_variable_assign(variable, vector(2, (double[]){1, 2})), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "'v'");
}

static void other_scopes_are_refused(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2), *other = strategy_of(3);
    mu_variable *variable = make(strategy, MU_F64, 1, 0, 0);
    MU_SCOPE(other) {
        assert_null(mu_variable_read(variable));
        expect_error(MU_FAILED_PRECONDITION, "may not be mixed");
        assert_int_equal(mu_variable_assign(variable, mu_constant(MU_F64, 1)), MU_FAILED_PRECONDITION);
        expect_error(MU_FAILED_PRECONDITION, "may not be mixed");
    }
    assert_true(mu_scalar(mu_variable_read(variable)) == 1);
}

// A plain variable has no copy for each replica: replicas that write it would race.
static void plain_variables_are_not_written_by_replicas(void **state)
{
    (void)state;
    mu_variable *plain = mu_variable_new(mu_constant(MU_F64, 1), "plain");
    assert_null(run_change(strategy_of(2), (change){plain, mu_variable_assign, ID, 0}));
    expect_error(MU_FAILED_PRECONDITION, "'plain'");
    assert_true(mu_scalar(mu_variable_read(plain)) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(integers_that_would_be_read_as_a_mean),
        MODEL_TEST(scatters_of_integer_means),
        MODEL_TEST(scatters_that_only_fit_together),
        MODEL_TEST(steps_follow_the_matrix),
        MODEL_TEST(means_of_integers_are_refused),
        MODEL_TEST(cross_replica_updates),
        MODEL_TEST(reads_put_components_together),
        MODEL_TEST(creation_is_checked),
        MODEL_TEST(other_scopes_are_refused),
        MODEL_TEST(plain_variables_are_not_written_by_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
