// What the tests of the data layer share: the library is started and ended around each test, nothing is alive
// or left in the record after it; and the elements of a dataset as text.
#ifndef MU_TEST_DATA_H
#define MU_TEST_DATA_H

#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEXT_BYTES 4096

static inline int start_library(void **state)
{
    (void)state;
    return mu_init(.threads = 2) != MU_OK;
}

static inline int end_library(void **state)
{
    (void)state;
    mu_status code = mu_error_code();
    return mu_exit(true) != 0 || code != MU_OK || mu__live_objects(stderr) != 0;
}

#define DATA_TEST(name) cmocka_unit_test_setup_teardown(name, start_library, end_library)

static inline void write_tensor(const mu_tensor *tensor, char *text)
{
    mu_shape shape = mu_tensor_shape(tensor);
    bool vector = shape.rank > 0;
    int64_t n = mu_tensor_elements(tensor);
    strcat(text, vector ? "[" : "");
    for (int64_t i = 0; i < n; i++) {
        int64_t row = shape.rank == 2 ? shape.dims[1] : n + 1;
        size_t used = strlen(text);
        const char *between = i == 0 ? "" : i % row == 0 ? "|" : " ";
        if (mu__has_strings(tensor))
            snprintf(text + used, TEXT_BYTES - used, "%s'%s'", between, mu_tensor_string(tensor, i).bytes);
        else
            snprintf(text + used, TEXT_BYTES - used, "%s%g", between,
                     mu__read_element(mu_tensor_dtype(tensor), mu_tensor_data(tensor), i));
    }
    strcat(text, vector ? "]" : "");
}

static inline void write_value(const mu_value *value, char *text)
{
    if (mu_value_kind_of(value) == MU_VALUE_TENSOR) {
        write_tensor(mu_value_tensor(value), text);
        return;
    }
    strcat(text, "(");
    for (int i = 0; i < mu_value_count(value); i++) {
        strcat(text, i > 0 ? "," : "");
        write_value(mu_value_at(value, i), text);
    }
    strcat(text, ")");
}

// Appends what an iterator gives, at most `limit` elements, separated by spaces.
static inline void append_elements(mu_iterator *iterator, int limit, char *text)
{
    mu_value *value;
    for (int i = 0; i < limit && (value = mu_next(iterator)) != NULL; i++) {
        strcat(text, text[0] != 0 ? " " : "");
        write_value(value, text);
    }
}

// The elements of one iteration: "0 1 2", "[0 1] [2]", "(0,[1 2])".
static inline const char *elements(mu_dataset *dataset)
{
    static char text[TEXT_BYTES];
    text[0] = 0;
    append_elements(mu_iterate(dataset), 200, text);
    return text;
}

#define assert_elements(dataset, text) assert_string_equal(elements(dataset), text)

// Takes the pending error: its code, and a part of its message.
static inline void expect_error(mu_status code, const char *part)
{
    mu_error error = mu_error_take();
    if (error.code != code || strstr(error.message, part) == NULL)
        fail_msg("error %s \"%s\"; expected %s \"%s\"", mu_status_name(error.code), error.message, mu_status_name(code),
                 part);
}

// A temporary file with these bytes; its path (static) is valid until the next call but one.
static inline const char *temporary_file(const void *data, size_t bytes)
{
    static char paths[2][64];
    static int turn;
    char *path = paths[turn ^= 1];
    strcpy(path, "muster-test-XXXXXX");
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    return path;
}

#endif
