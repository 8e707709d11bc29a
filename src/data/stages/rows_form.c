// Rows in memory as part of a description: their elements as they are stored, sent and used without a copy.
//
// [tensors in the structure of an element, type of each as an element, divisors, whether each is cut into rows]. Rows
// of a file that is still being read are waited for.
#include "data/describe.h"

#define MOST_BYTES ((size_t)1 << 30)

// ---- Writing ------------------------------------------------------------------------------------

static void release_rows(void *rows) { mu_release(rows); }

// All rows of a column as a tensor that uses their memory.
static mu_tensor *whole_column(mu_rows *rows, const mu_column *column, size_t *bytes)
{
    mu_spec spec = {.dtype = column->stored, .shape = column->spec.shape};
    if (column->strings != NULL)
        return mu_retain((mu_tensor *)(uintptr_t)column->strings);
    if (!column->whole && mu__add_axis(&spec, rows->n) != MU_OK)
        return NULL;
    *bytes += mu__spec_bytes(&spec);
    if (*bytes > MOST_BYTES) {
        mu__error(MU_UNIMPLEMENTED, "a dataset in memory with more than %zu bytes is not sent to another process",
                  MOST_BYTES);
        return NULL;
    }
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (buffer == NULL)
        return NULL;
    *buffer = (mu_buffer){.object = buffer->object,
                          .data = (void *)(uintptr_t)column->data,
                          .bytes = mu__spec_bytes(&spec),
                          .memory_space = &mu__host_memory,
                          .release = release_rows,
                          .arg = mu_retain(rows)};
    mu_tensor *tensor = mu__tensor_view(buffer, 0, spec.dtype, &spec.shape);
    mu_release(buffer);
    return tensor;
}

static mu_value *write_columns(mu_rows *rows)
{
    mu_leaves made;
    size_t bytes = 0;
    bool ok = mu__build_begin(&made, rows->n_columns);
    while (ok && made.n < rows->n_columns)
        ok = mu__build_add(&made, whole_column(rows, &rows->columns[made.n], &bytes));
    return mu__give(mu__build_end(&made, rows->spec));
}

static mu_value *write_rows(const void *object, const mu_dataset *dataset)
{
    mu_rows *rows = (mu_rows *)(uintptr_t)object;
    const int n = rows->n_columns;
    (void)dataset;
    if (rows->ready != NULL && rows->n > 0 && rows->ready(rows, rows->n) != MU_OK)
        return NULL;
    int64_t *numbers = mu__calloc((size_t)n * 2 + 1, sizeof *numbers);
    for (int i = 0; numbers != NULL && i < n; i++) {
        numbers[i] = (int64_t)rows->columns[i].spec.dtype;
        numbers[n + i] = rows->columns[i].divisor;
    }
    const int64_t cut = n > 0 && !rows->columns[0].whole;
    mu_value *columns = numbers != NULL ? write_columns(rows) : NULL;
    mu_value *list = columns != NULL ? mu_list(columns, mu__int64s_value(n, numbers), mu__int64s_value(n, numbers + n),
                                               mu_of(mu_tensor_new(MU_I64, 0, NULL, &cut)), MU_END)
                                     : NULL;
    mu__free(numbers);
    return list;
}

// ---- Reading ------------------------------------------------------------------------------------

// Whether elements stored as `stored` can become elements of `wanted`.
static bool converts(mu_dtype stored, int64_t wanted, int64_t divisor)
{
    if (divisor != 1)
        return stored == MU_U8 && wanted == MU_F32 && divisor > 1 && divisor <= UINT8_MAX;
    if (stored == MU_STRING || wanted == MU_STRING)
        return (int64_t)stored == wanted;
    return wanted >= 0 && wanted <= INT8_MAX && mu__dtype_ok((mu_dtype)wanted);
}

static mu_status set_types(mu_rows *rows, const int64_t *types, const int64_t *divisors)
{
    mu_leaves made;
    bool ok = mu__build_begin(&made, rows->n_columns);
    for (int i = 0; ok && i < rows->n_columns; i++) {
        mu_column *column = &rows->columns[i];
        if (!converts(column->stored, types[i], divisors[i])) {
            mu__error(MU_INVALID_ARGUMENT,
                      "component %d of rows is stored as %s, which becomes no element of type %lld divided by %lld", i,
                      mu_dtype_name(column->stored), (long long)types[i], (long long)divisors[i]);
            break;
        }
        column->spec.dtype = (mu_dtype)types[i];
        column->divisor = (int)divisors[i];
        ok = mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &column->spec, NULL));
    }
    mu_value *spec = mu__build_end(&made, rows->spec);
    if (spec == NULL)
        return mu_error_code();
    mu_release(rows->spec);
    rows->spec = spec;
    return MU_OK;
}

static void *read_rows(const mu_value *value)
{
    const int64_t *types, *divisors;
    int64_t n_types, n_divisors, cut;
    if (value->kind != MU_VALUE_LIST || value->n != 4 || !mu__described_numbers(value->items[1], &types, &n_types) ||
        !mu__described_numbers(value->items[2], &divisors, &n_divisors) ||
        !mu__described_number(value->items[3], &cut) || cut < 0 || cut > 1)
        return NULL;
    mu_rows *rows = mu__rows_of_tensors(value->items[0], cut == 1);
    if (rows == NULL)
        return NULL;
    if (n_types == rows->n_columns && n_divisors == rows->n_columns && set_types(rows, types, divisors) == MU_OK)
        return rows;
    mu_release(rows);
    return NULL;
}

const mu_object_form mu__rows_form = {.write = write_rows, .read = read_rows};
