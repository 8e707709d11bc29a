// Element-wise results made piece by piece; see loops.h.
//
// Main idea: a result that is larger than the caches is made in pieces of a kilobyte, which stay in the nearest one and
// are put past all others from there, while what a single dense operand gives next is on its way. Tried without gain:
// asking for two dense operands; asking for anything where the result stays in the caches. Knows nothing of what a
// piece is made of.
#include "ops/loops.h"

#include "kernels/kernels.h"

// Bytes: of a piece (pieces of 4 KB leave the memory idle while each is put); how far ahead is asked for; of a line.
enum { PIECE = 1024, AHEAD = 4096, LINE = 64 };

// Elements of a piece, of which no operand has more than PIECE bytes.
static int64_t piece_elements(const mu_pieces *p)
{
    size_t widest = p->out_bytes;
    for (int i = 0; i < p->n_in; i++)
        widest = MU_MAX(widest, p->in_bytes[i]);
    return PIECE / (int64_t)widest;
}

// The only dense operand, or -1.
static int dense_operand(const mu_pieces *p)
{
    int found = -1;
    for (int i = 0; i < p->n_in; i++) {
        if (p->in_bytes[i] > 0 && found >= 0)
            return -1;
        found = p->in_bytes[i] > 0 ? i : found;
    }
    return found;
}

static void fetch(const void *base, int64_t at, int64_t n, size_t element, size_t ahead)
{
    const char *from = (const char *)base + (size_t)at * element + ahead;
    for (size_t i = 0; i < (size_t)n * element; i += LINE)
        __builtin_prefetch(from + i);
}

static void put_pieces(const mu_pieces *p, int64_t n)
{
    const int64_t step = piece_elements(p);
    const int dense = dense_operand(p);
    const mu_kernels *kernels = mu__kernels();
    _Alignas(LINE) char piece[PIECE];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t count = MU_MIN(step, n - at);
        if (dense >= 0)
            fetch(p->in[dense], at, count, p->in_bytes[dense], AHEAD);
        p->make(p->arg, at, count, piece);
        kernels->put((char *)p->out + (size_t)at * p->out_bytes, piece, count * (int64_t)p->out_bytes);
    }
    mu__put_begun();
}

void mu__run_pieces(const mu_pieces *p, bool stream, int64_t n)
{
    const int64_t step = p->most > 0 ? p->most : n;
    if (stream && n * (int64_t)p->out_bytes >= PIECE) {
        put_pieces(p, n);
        return;
    }
    for (int64_t at = 0; at < n; at += step)
        p->make(p->arg, at, MU_MIN(step, n - at), (char *)p->out + (size_t)at * p->out_bytes);
}
