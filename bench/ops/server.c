// Muster's side of the op benchmark: a program that reads commands from run.py and answers each with one line. `load
// NAME DTYPE FILE DIMS…` maps an input, `drop NAME` unmaps it, `case OP NAMES…` selects an op of the table
// (calls*.c), `check FILE` runs it once and writes a sample of its outputs, `time MS` runs it for about that long and
// answers nanoseconds per call (the best of three tries), `limit WAY BYTES MS` measures memory bandwidth for about
// that long and answers bytes per second, `peak` answers the FLOP/s of a matrix product.
#include "calls.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_INPUTS = 256, MAX_WORDS = 24, SAMPLED = 4096 };

typedef struct input {
    char name[16];
    mu_tensor *tensor;
    void *data;
    size_t bytes;
} input;

static input inputs[MAX_INPUTS];
static int n_inputs;
static const call_row *row;
static mu_tensor *arguments[MAX_WORDS];
static mu_pool *case_pool; // pool of the current case

static void refuse(const char *what)
{
    const mu_error error = mu_error_take();
    printf("error %s: %s\n", what, error.message ? error.message : "");
}

// ---- Inputs -------------------------------------------------------------------------------------

// Copies the input, because a mapped file has small pages.
static void *read_file(const char *path, size_t *bytes)
{
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    char *data = NULL;
    if (fstat(file, &about) == 0) {
        *bytes = (size_t)about.st_size;
        data = aligned_alloc(2 << 20, (*bytes + (2 << 20)) / (2 << 20) * (2 << 20));
    }
    if (data)
        madvise(data, *bytes, MADV_HUGEPAGE);
    size_t have = 0;
    for (ssize_t got = 1; data && have < *bytes && got > 0; have += got > 0 ? (size_t)got : 0)
        got = read(file, data + have, *bytes - have);
    close(file);
    return data;
}

static void load(int n, char **words)
{
    int64_t dims[MU_MAX_RANK];
    if (n < 3 || n_inputs == MAX_INPUTS || n - 3 > MU_MAX_RANK) {
        printf("error load takes a name, a type, a file and dimensions\n");
        return;
    }
    input *in = &inputs[n_inputs];
    for (int i = 3; i < n; i++)
        dims[i - 3] = strtoll(words[i], NULL, 10);
    snprintf(in->name, sizeof in->name, "%s", words[0]);
    in->data = read_file(words[2], &in->bytes);
    in->tensor =
        in->data ? mu_retain(mu_tensor_wrap((mu_dtype)atoi(words[1]), n - 3, dims, in->data, NULL, NULL)) : NULL;
    if (!in->tensor) {
        free(in->data);
        refuse(words[2]);
        return;
    }
    n_inputs++;
    printf("ok\n");
}

static void end_case(void)
{
    row = NULL;
    mu_pool_close(case_pool);
    case_pool = NULL;
}

static void drop(const char *name)
{
    end_case();
    for (int i = 0; i < n_inputs; i++) {
        if (strcmp(inputs[i].name, name) != 0)
            continue;
        mu_release(inputs[i].tensor);
        free(inputs[i].data);
        inputs[i] = inputs[--n_inputs];
        printf("ok\n");
        return;
    }
    printf("error no input is called %s\n", name);
}

static void choose(int n, char **words)
{
    end_case();
    row = n > 0 ? find_call(words[0]) : NULL;
    for (int i = 1; row && i < n; i++) {
        arguments[i - 1] = NULL;
        for (int k = 0; k < n_inputs; k++)
            if (strcmp(inputs[k].name, words[i]) == 0)
                arguments[i - 1] = inputs[k].tensor;
        if (!arguments[i - 1]) {
            printf("error no input is called %s\n", words[i]);
            row = NULL;
            return;
        }
    }
    case_pool = mu_pool_open();
    if (row && row->prepare)
        row->prepare(arguments);
    printf(row ? "ok\n" : "error no such op\n");
}

// ---- Running ------------------------------------------------------------------------------------

// Writes each output's type, number of elements and up to SAMPLED evenly spaced elements: a line, then the bytes.
static bool write_sample(FILE *file, const mu_tensor *y)
{
    const int64_t n = mu_tensor_elements(y), step = n > SAMPLED ? n / SAMPLED : 1;
    const size_t bytes = mu_dtype_bytes(mu_tensor_dtype(y));
    const char *data = mu_tensor_data(y);
    if (!data)
        return false;
    fprintf(file, "%d %" PRId64 " %" PRId64 "\n", (int)mu_tensor_dtype(y), n, (n + step - 1) / step);
    for (int64_t i = 0; i < n; i += step)
        fwrite(data + (size_t)i * bytes, 1, bytes, file);
    return true;
}

static void check(const char *path)
{
    mu_tensor *out[MAX_OUTPUTS] = {0};
    FILE *file = fopen(path, "wb");
    mu_pool *pool = mu_pool_open();
    bool good = file != NULL;
    const int n = row->call(arguments, out);
    for (int i = 0; good && i < n; i++)
        good = out[i] && write_sample(file, out[i]);
    mu_pool_close(pool);
    if (file)
        fclose(file);
    if (good)
        printf("ok\n");
    else
        refuse(row->name);
}

static void run_case(const void *arg)
{
    mu_tensor *out[MAX_OUTPUTS];
    mu_pool *pool = mu_pool_open();
    (void)arg;
    row->call(arguments, out);
    mu_pool_close(pool);
}

static void time_case(double wanted_s)
{
    const double seconds = seconds_per_call(run_case, NULL, wanted_s);
    if (mu_error_code() != MU_OK)
        refuse(row->name);
    else
        printf("ok %.2f\n", 1e9 * seconds);
}

// ---- Commands -----------------------------------------------------------------------------------

static void obey(int n, char **words)
{
    if (strcmp(words[0], "load") == 0)
        load(n - 1, words + 1);
    else if (strcmp(words[0], "drop") == 0 && n == 2)
        drop(words[1]);
    else if (strcmp(words[0], "case") == 0)
        choose(n - 1, words + 1);
    else if (strcmp(words[0], "check") == 0 && n == 2 && row)
        check(words[1]);
    else if (strcmp(words[0], "time") == 0 && n == 2 && row)
        time_case(1e-3 * atof(words[1]));
    else if (strcmp(words[0], "limit") == 0 && n == 4)
        print_limit(atoi(words[1]), (size_t)strtoull(words[2], NULL, 10), 1e-3 * atof(words[3]));
    else if (strcmp(words[0], "peak") == 0)
        print_peak();
    else
        printf("error not understood: %s\n", words[0]);
}

int main(void)
{
    static char line[4096];
    if (mu_init(.threads = 1, .cpu_devices = 1) != MU_OK)
        return mu_exit(false);
    while (fgets(line, sizeof line, stdin)) {
        char *words[MAX_WORDS], *rest = NULL;
        int n = 0;
        for (char *word = strtok_r(line, " \n", &rest); word && n < MAX_WORDS; word = strtok_r(NULL, " \n", &rest))
            words[n++] = word;
        if (n > 0)
            obey(n, words);
        fflush(stdout);
    }
    return mu_exit(true);
}
