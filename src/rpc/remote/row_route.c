// Divides ids among servers by counting, and joins the rows of their answers; see row_route.h.
#include "rpc/remote/row_route.h"

#include "ops/core/loops.h"

enum { WANTED = 256 }; // rows whose addresses are looked up before they are copied

// Sorts ids by their parts, which are in `position`, by counting.
static void sort_by_part(mu_row_route *r, const int64_t *local)
{
    int64_t *end = r->begin + 1;
    for (int64_t i = 0; i < r->n; i++)
        end[r->position[i] + 1]++;
    for (int s = 0; s < r->n_parts; s++)
        end[s + 1] += end[s];
    for (int64_t i = 0; i < r->n; i++) { // end[s] begins at the beginning of s, and ends where it ends
        r->position[i] = (uint32_t)end[r->position[i]]++;
        r->ids[r->position[i]] = local[i];
    }
}

mu_status mu__row_route(mu_row_route *r, int n_parts, int64_t n, const int64_t *ids, mu_part_of *part_of,
                        const void *arg)
{
    if (n > UINT32_MAX) {
        *r = (mu_row_route){0};
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%lld rows in one request to several servers; at most %lld can be divided among them: use several requests",
            (long long)n, (long long)UINT32_MAX);
    }
    *r = (mu_row_route){.n_parts = n_parts,
                        .n = n,
                        .begin = mu__calloc((size_t)n_parts + 2, sizeof *r->begin),
                        .ids = mu__alloc(((size_t)n + 1) * sizeof *r->ids),
                        .position = mu__alloc(((size_t)n + 1) * sizeof *r->position)};
    int64_t *local = mu__alloc(((size_t)n + 1) * sizeof *local);
    if (r->begin != NULL && r->ids != NULL && r->position != NULL && local != NULL) {
        part_of(arg, n, ids, r->position, local);
        sort_by_part(r, local);
    }
    mu__free(local);
    return mu__pending() ? mu_error_code() : MU_OK;
}

void mu__row_route_free(mu_row_route *r)
{
    mu__free(r->begin);
    mu__free(r->ids);
    mu__free(r->position);
}

mu_tensor *mu__row_route_ids(const mu_row_route *r, int part)
{
    const int64_t n = r->begin[part + 1] - r->begin[part];
    return mu_tensor_new(MU_I64, 1, &n, r->ids + r->begin[part]);
}

mu_remote_call *mu__row_route_calls(const mu_row_route *r, mu_rpc_client *const *clients, int **parts, int *n)
{
    mu_remote_call *calls = mu__calloc((size_t)r->n_parts + 1, sizeof *calls);
    *parts = calls != NULL ? mu__calloc((size_t)r->n_parts + 1, sizeof **parts) : NULL;
    *n = 0;
    if (*parts == NULL) {
        mu__free(calls);
        return NULL;
    }
    for (int s = 0; s < r->n_parts; s++)
        if (r->begin[s + 1] > r->begin[s]) {
            (*parts)[*n] = s;
            calls[*n].settles = true;
            calls[(*n)++].client = clients[s];
        }
    return calls;
}

// The address of each row of the answers, by its position; sets *bytes of a row, 0: there is none. NULL: no memory.
static const char **rows_of(const mu_row_route *r, mu_tensor *const *rows, size_t *bytes)
{
    const char **at = mu__alloc(((size_t)r->n + 1) * sizeof *at);
    *bytes = 0;
    for (int s = 0; at != NULL && s < r->n_parts; s++) {
        const int64_t n = r->begin[s + 1] - r->begin[s];
        if (n == 0)
            continue;
        const mu_spec spec = mu__spec_of(rows[s]);
        const char *data = mu__host_read(rows[s]);
        *bytes = mu__spec_bytes(&spec) / (size_t)n;
        for (int64_t k = 0; k < n; k++)
            at[r->begin[s] + k] = data + (size_t)k * *bytes;
    }
    return at;
}

mu_tensor *mu__row_route_join(const mu_row_route *r, mu_tensor *const *rows, const uint32_t *number, const mu_spec *out)
{
    const char *wanted[WANTED];
    size_t bytes;
    const char **at = rows_of(r, rows, &bytes);
    mu_tensor *all = at != NULL ? mu__give(mu__tensor_alloc(out->dtype, &out->shape)) : NULL;
    char *to = all != NULL ? mu__host_write(all) : NULL;
    const int64_t n = to != NULL && bytes > 0 ? (int64_t)(mu__spec_bytes(out) / bytes) : 0;
    for (int64_t done = 0, some; done < n; done += some, to += (size_t)some * bytes) {
        some = MU_MIN(n - done, WANTED);
        for (int64_t i = 0; i < some; i++)
            wanted[i] = at[r->position[number[done + i]]];
        mu__copy_scattered(to, wanted, bytes, some);
    }
    mu__free(at);
    return all;
}
