// Core cases G: scattering into variables.
#include "cases.h"

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

typedef struct scattering {
    mu_variable *variable;
    scatter_fn *scatter;
    mu_tensor *indices, *values; // NULL: made from the id
    double offset;               // values: id + offset
} scattering;

static mu_value *scatter_on_replica(mu_value *arguments, void *arg)
{
    (void)arguments;
    const scattering *s = arg;
    mu_tensor *row = mu_expand_dims(id(), 0);
    mu_tensor *indices = s->indices ? s->indices : mu_cast(row, MU_I32);
    mu_tensor *values = s->values ? s->values : mu_cast(mu_add(row, scalar(s->offset)), mu_variable_dtype(s->variable));
    return s->scatter(s->variable, indices, values) == MU_OK ? read_of(s->variable) : NULL;
}

static mu_value *scatter_two_rows(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *row = mu_expand_dims(id(), 0);
    mu_tensor *both[] = {row, mu_add(row, VECTOR(1))};
    mu_tensor *values = mu_concat(2, both, 0);
    return mu_variable_scatter_sub(arg, mu_cast(values, MU_I32), values) == MU_OK ? read_of(arg) : NULL;
}

static mu_variable *mirrored_vector(mu_strategy *s, mu_tensor *initial, mu_variable_aggregation aggregation)
{
    return variable(s, initial, MU_SYNCHRONIZATION_AUTO, aggregation);
}

static void core_092(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        mu_variable *v = mirrored_vector(s, VECTOR(0, 0, 0), MU_AGGREGATION_MEAN);
        CHECK((i ? traced : eager)(s, scatter_two_rows, v));
        EXPECT(components(v), 0, -1, -1, 0, -1, -1);
    }
}

static void core_094(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = mirrored_vector(s, mu_cast(VECTOR(1, 6, 1), MU_I32), MU_AGGREGATION_SUM);
    CHECK(eager(s, scatter_on_replica, &(scattering){.variable = v, .scatter = mu_variable_scatter_div, .offset = 2}));
    EXPECT(components(v), 0, 2, 1, 0, 2, 1);
    mu_variable *w = mirrored_vector(s, VECTOR(2, 1, 1), MU_AGGREGATION_MEAN);
    CHECK(eager(s, scatter_on_replica, &(scattering){.variable = w, .scatter = mu_variable_scatter_mul, .offset = 2}));
    EXPECT(components(w), 2, 1.5, 1, 2, 1.5, 1);
}

static void core_095(void)
{
    static scatter_fn *const scatters[] = {mu_variable_scatter_min, mu_variable_scatter_max,
                                           mu_variable_scatter_update};
    static const double initial[3][3] = {{0, 2, 0}, {0, 0, 0}, {0, 0, 0}},
                        wanted[3][3] = {{0, 1, 0}, {1, 0, 0}, {0, 3, 0}};
    static const double rows[] = {1, 0, 1}, values[] = {1, 1, 3};
    static const mu_variable_aggregation refused[] = {MU_AGGREGATION_SUM, MU_AGGREGATION_MEAN};
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 3; i++) {
        scattering job = {.scatter = scatters[i], .indices = INDICES(rows[i]), .values = VECTOR(values[i])};
        for (int a = 0; a < 2; a++) {
            job.variable = mirrored_vector(s, vector(3, initial[i]), refused[a]);
            CHECK(!eager(s, scatter_on_replica, &job));
            EXPECT_ERROR(MU_UNIMPLEMENTED);
            CHECK(scatters[i](job.variable, job.indices, job.values) != MU_OK);
            EXPECT_ERROR(MU_UNIMPLEMENTED);
        }
        job.variable = mirrored_vector(s, vector(3, initial[i]), MU_AGGREGATION_ONLY_FIRST_REPLICA);
        CHECK(eager(s, scatter_on_replica, &job));
        EXPECT(components(job.variable), wanted[i][0], wanted[i][1], wanted[i][2], wanted[i][0], wanted[i][1],
               wanted[i][2]);
    }
}

static void core_097(void)
{
    static scatter_fn *const scatters[] = {mu_variable_scatter_add,   mu_variable_scatter_sub, mu_variable_scatter_mul,
                                           mu_variable_scatter_div,   mu_variable_scatter_min, mu_variable_scatter_max,
                                           mu_variable_scatter_update};
    mu_strategy *s = mirrored(2);
    for (int a = 0; a < 4; a++)
        for (int i = 0; i < 7; i++) {
            scattering job = {.scatter = scatters[i], .indices = INDICES(1), .values = VECTOR(1)};
            job.variable = variable(s, VECTOR(0, 0), MU_SYNCHRONIZATION_ON_READ, (mu_variable_aggregation)a);
            CHECK(!eager(s, scatter_on_replica, &job));
            EXPECT_ERROR(MU_UNIMPLEMENTED);
        }
}

const one_case scatter_cases[] = {
    {"core-092", core_092, NULL},
    {"core-094", core_094, NULL},
    {"core-095", core_095, NULL},
    {"core-097", core_097, NULL},
    {0},
};
