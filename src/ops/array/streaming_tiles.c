// Computes large element-wise results in tiles with non-temporal stores; see loops.h.
//
// A result larger than the caches is computed in tiles of one or two kilobytes. Each tile stays in the first-level
// cache until it is stored past the caches. Meanwhile the input of later tiles is prefetched, if there is one dense
// operand or three. Two dense operands use a kernel that stores its results directly, if one exists. Prefetching two
// dense operands, or prefetching for results that fit the caches, gained nothing.
#include "ops/core/loops.h"

// In bytes: a tile (4 KB tiles leave the memory bus idle during each store); a tile of a single operand that is not
// wider than the result; prefetch distance, in tiles; a cache line.
enum { PIECE = 1024, LONG_TILE = 2048, PREFETCH = 4, LINE = 64 };

// Elements per tile. With several operands, the widest has the bytes of one tile.
static int64_t tile_elements(const mu_tiles *p, int n_dense)
{
    size_t widest = p->out_bytes;
    for (int i = 0; i < p->n_in; i++)
        widest = MU_MAX(widest, p->in_bytes[i]);
    if (n_dense == 1)
        return (widest == p->out_bytes ? LONG_TILE : PIECE) / (int64_t)p->out_bytes;
    return PIECE / (int64_t)widest;
}

// Prefetches the dense operands of the tile that is PREFETCH tiles after the current one.
static void fetch(const mu_tiles *p, int64_t at, int64_t n)
{
    for (int i = 0; i < p->n_in; i++) {
        const char *from = (const char *)p->in[i] + (size_t)(at + PREFETCH * n) * p->in_bytes[i];
        for (size_t k = 0; k < (size_t)n * p->in_bytes[i]; k += LINE)
            __builtin_prefetch(from + k, 0, 2);  // into the second-level cache
    }
}

static void stream_tiles(const mu_tiles *p, int64_t n)
{
    int n_dense = 0;
    for (int i = 0; i < p->n_in; i++)
        n_dense += p->in_bytes[i] > 0;
    const int64_t step = MU_MIN(tile_elements(p, n_dense), p->most > 0 ? p->most : n);
    const mu_kernels *kernels = mu__kernels();
    _Alignas(LINE) char piece[LONG_TILE];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t count = MU_MIN(step, n - at);
        if (n_dense != 2)
            fetch(p, at, count);
        p->make(p->arg, at, count, piece);
        kernels->put((char *)p->out + (size_t)at * p->out_bytes, piece, count * (int64_t)p->out_bytes);
    }
    mu__put_begun();
}

// Runs the kernel of two dense operands that stores its results directly; the few unaligned elements at both ends are
// computed by `make`. Returns false, having done nothing, if there is no such kernel.
static bool stream_pairs(const mu_tiles *p, int64_t n)
{
    const size_t bytes = p->out_bytes;
    if (p->binary == MU_BINARY_NONE || p->n_in != 2 || p->in_bytes[0] != bytes || p->in_bytes[1] != bytes)
        return false;
    char *out = p->out;
    const int64_t head = (int64_t)(-(uintptr_t)out % MU_BINARY_BYTES / bytes);
    const size_t before = (size_t)head * bytes, whole = (size_t)(n - head) * bytes / MU_BINARY_BYTES * MU_BINARY_BYTES;
    const int64_t done = head + (int64_t)(whole / bytes);
    if (!mu__kernels()->binary(p->binary, p->floats, (int)bytes, (const char *)p->in[0] + before,
                             (const char *)p->in[1] + before, out + before, (int64_t)whole))
        return false;
    p->make(p->arg, 0, head, out);
    p->make(p->arg, done, n - done, out + (size_t)done * bytes);
    mu__put_begun();
    return true;
}

void mu__run_tiles(const mu_tiles *p, bool stream, int64_t n)
{
    const int64_t step = p->most > 0 ? p->most : n;
    if (stream && n * (int64_t)p->out_bytes >= PIECE) {
        if (!stream_pairs(p, n))
            stream_tiles(p, n);
        return;
    }
    for (int64_t at = 0; at < n; at += step)
        p->make(p->arg, at, MU_MIN(step, n - at), (char *)p->out + (size_t)at * p->out_bytes);
}
