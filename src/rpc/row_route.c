// Divides ids among servers by counting, and joins the rows of their answers; see row_route.h.
#include "rpc/row_route.h"

mu_status mu__row_route(mu_row_route *r, int n_parts, int64_t n, const int64_t *ids, mu_part_of *part_of,
                        const void *arg)
{
    if (n > UINT32_MAX) {
        *r = (mu_row_route){0};
        return mu__error(MU_INVALID_ARGUMENT, "%lld rows in one request to several servers; at most %lld can be "
                         "divided among them: use several requests", (long long)n, (long long)UINT32_MAX);
    }
    *r = (mu_row_route){.n_parts = n_parts, .n = n,
                        .begin = mu__calloc((size_t)n_parts + 2, sizeof *r->begin),
                        .ids = mu__alloc(((size_t)n + 1) * sizeof *r->ids),
                        .place = mu__alloc(((size_t)n + 1) * sizeof *r->place)};
    if (r->begin == NULL || r->ids == NULL || r->place == NULL)
        return MU_RESOURCE_EXHAUSTED;
    int64_t *end = r->begin + 1, local;
    for (int64_t i = 0; i < n; i++)
        end[part_of(arg, ids[i], &local) + 1]++;
    for (int s = 0; s < n_parts; s++)
        end[s + 1] += end[s];
    for (int64_t i = 0; i < n; i++) { // end[s] begins at the beginning of s, and ends where it ends
        r->place[i] = (uint32_t)end[part_of(arg, ids[i], &local)]++;
        r->ids[r->place[i]] = local;
    }
    return MU_OK;
}

void mu__row_route_free(mu_row_route *r)
{
    mu__free(r->begin);
    mu__free(r->ids);
    mu__free(r->place);
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
            calls[(*n)++].client = clients[s];
        }
    return calls;
}

mu_tensor *mu__row_route_join(const mu_row_route *r, mu_tensor *const *rows, const uint32_t *number, const mu_spec *out)
{
    size_t bytes = 0;
    const char **from = mu__alloc(((size_t)r->n + 1) * sizeof *from);
    mu_tensor *all = from != NULL ? mu__give(mu__tensor_alloc(out->dtype, &out->shape)) : NULL;
    char *to = all != NULL ? mu__host_write(all) : NULL;
    for (int s = 0; to != NULL && s < r->n_parts; s++) {
        const int64_t n = r->begin[s + 1] - r->begin[s];
        const mu_spec spec = n > 0 ? mu__spec_of(rows[s]) : (mu_spec){.dtype = out->dtype};
        bytes = n > 0 ? mu__spec_bytes(&spec) / (size_t)n : bytes;
        const char *data = n > 0 ? mu__host_read(rows[s]) : NULL;
        for (int64_t k = 0; k < n; k++)
            from[r->begin[s] + k] = data + (size_t)k * bytes;
    }
    const int64_t n = bytes > 0 ? (int64_t)(mu__spec_bytes(out) / bytes) : 0;
    for (int64_t i = 0; to != NULL && i < n; i++, to += bytes)
        memcpy(to, from[r->place[number[i]]], bytes);
    mu__free(from);
    return all;
}
