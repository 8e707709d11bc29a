// Element-wise results made piece by piece; see loops.h.
//
// Main idea: a result that is larger than the caches is made in pieces of a kilobyte or two, which stay in the nearest
// one and are put past all others from there, while what one dense operand, or each of three, gives next is on its way.
// Tried without gain: asking for two dense operands; asking for anything where the result stays in the caches. Knows
// nothing of what a piece is made of.
#include "ops/loops.h"

#include "kernels/kernels.h"

// Bytes: of a piece (pieces of 4 KB leave the memory idle while each is put), and of one that is made of as many bytes
// of one operand; how far ahead is asked for, in pieces; of a line.
enum { PIECE = 1024, LONG_PIECE = 2048, AHEAD = 4, LINE = 64 };

// Elements of a piece, of which no operand has more bytes than the piece.
static int64_t piece_elements(const mu_pieces *p, int n_dense)
{
    size_t widest = p->out_bytes;
    bool alike = n_dense == 1;
    for (int i = 0; i < p->n_in; i++) {
        widest = MU_MAX(widest, p->in_bytes[i]);
        alike = alike && (p->in_bytes[i] == 0 || p->in_bytes[i] == p->out_bytes);
    }
    return (alike ? LONG_PIECE : PIECE) / (int64_t)widest;
}

// Asks for what the dense operands give to the piece that is so many pieces behind the one at hand.
static void fetch(const mu_pieces *p, int64_t at, int64_t n)
{
    for (int i = 0; i < p->n_in; i++) {
        const char *from = (const char *)p->in[i] + (size_t)(at + AHEAD * n) * p->in_bytes[i];
        for (size_t k = 0; k < (size_t)n * p->in_bytes[i]; k += LINE)
            __builtin_prefetch(from + k, 0, 2);  // the second cache
    }
}

static void put_pieces(const mu_pieces *p, int64_t n)
{
    int n_dense = 0;
    for (int i = 0; i < p->n_in; i++)
        n_dense += p->in_bytes[i] > 0;
    const int64_t step = piece_elements(p, n_dense);
    const mu_kernels *kernels = mu__kernels();
    _Alignas(LINE) char piece[LONG_PIECE];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t count = MU_MIN(step, n - at);
        if (n_dense != 2)
            fetch(p, at, count);
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
