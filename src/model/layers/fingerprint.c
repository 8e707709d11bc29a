// FarmHash's Fingerprint64, SipHash-2-4, and the joining of hashes in feature crosses; see fingerprint.h.
//
// FarmHash has one form for each range of lengths; the constants are its published ones.
#include "model/layers/fingerprint.h"

#define K0 0xc3a5c85c97cb3127u
#define K1 0xb492b66fbe98f273u
#define K2 0x9ae16a3b2f90404fu

typedef struct pair {
    uint64_t first, second;
} pair;

static uint64_t fetch64(const uint8_t *s)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | s[i];
    return value;
}

static uint64_t fetch32(const uint8_t *s)
{
    return (uint64_t)s[0] | (uint64_t)s[1] << 8 | (uint64_t)s[2] << 16 | (uint64_t)s[3] << 24;
}

static uint64_t right(uint64_t value, int by) { return value >> by | value << (64 - by); }

static uint64_t shift_mix(uint64_t value) { return value ^ value >> 47; }

static uint64_t mix(uint64_t u, uint64_t v, uint64_t mul)
{
    const uint64_t a = shift_mix((u ^ v) * mul);
    return shift_mix((v ^ a) * mul) * mul;
}

static uint64_t to_16(const uint8_t *s, size_t n)
{
    const uint64_t mul = K2 + n * 2;
    if (n >= 8) {
        const uint64_t a = fetch64(s) + K2, b = fetch64(s + n - 8);
        return mix(right(b, 37) * mul + a, (right(a, 25) + b) * mul, mul);
    }
    if (n >= 4)
        return mix(n + (fetch32(s) << 3), fetch32(s + n - 4), mul);
    if (n == 0)
        return K2;
    const uint32_t y = s[0] + ((uint32_t)s[n >> 1] << 8), z = (uint32_t)n + ((uint32_t)s[n - 1] << 2);
    return shift_mix(y * K2 ^ z * K0) * K2;
}

static uint64_t to_32(const uint8_t *s, size_t n)
{
    const uint64_t mul = K2 + n * 2, a = fetch64(s) * K1, b = fetch64(s + 8);
    const uint64_t c = fetch64(s + n - 8) * mul, d = fetch64(s + n - 16) * K2;
    return mix(right(a + b, 43) + right(c, 30) + d, a + right(b + K2, 18) + c, mul);
}

static uint64_t to_64(const uint8_t *s, size_t n)
{
    const uint64_t mul = K2 + n * 2, a = fetch64(s) * K2, b = fetch64(s + 8);
    const uint64_t c = fetch64(s + n - 8) * mul, d = fetch64(s + n - 16) * K2;
    const uint64_t y = right(a + b, 43) + right(c, 30) + d, z = mix(y, a + right(b + K2, 18) + c, mul);
    const uint64_t e = fetch64(s + 16) * mul, f = fetch64(s + 24);
    const uint64_t g = (y + fetch64(s + n - 32)) * mul, h = (z + fetch64(s + n - 24)) * mul;
    return mix(right(e + f, 43) + right(g, 30) + h, e + right(f + a, 18) + g, mul);
}

static pair weak(const uint8_t *s, uint64_t a, uint64_t b)
{
    const uint64_t w = fetch64(s), x = fetch64(s + 8), y = fetch64(s + 16), z = fetch64(s + 24);
    a += w;
    b = right(b + a + z, 21);
    const uint64_t c = a;
    a += x + y;
    b += right(a, 44);
    return (pair){a + z, b + c};
}

// One block of 64 bytes. `last`: the block that overlaps the one before it, whose factors are others.
typedef struct farm {
    uint64_t x, y, z;
    pair v, w;
} farm;

static void block(farm *f, const uint8_t *s, uint64_t mul, uint64_t nine)
{
    f->x = right(f->x + f->y + f->v.first + fetch64(s + 8), 37) * mul;
    f->y = right(f->y + f->v.second + fetch64(s + 48), 42) * mul;
    f->x ^= f->w.second * nine;
    f->y += f->v.first * nine + fetch64(s + 40);
    f->z = right(f->z + f->w.first, 33) * mul;
    f->v = weak(s, f->v.second * mul, f->x + f->w.first);
    f->w = weak(s + 32, f->z + f->w.second, f->y + fetch64(s + 16));
    const uint64_t z = f->z;
    f->z = f->x;
    f->x = z;
}

uint64_t mu__fingerprint64(const void *bytes, size_t n)
{
    enum { SEED = 81 };
    const uint8_t *s = bytes;
    if (n <= 64)
        return n <= 16 ? to_16(s, n) : n <= 32 ? to_32(s, n) : to_64(s, n);
    farm f = {.x = SEED * K2 + fetch64(s), .y = SEED * K1 + 113};
    f.z = shift_mix(f.y * K2 + 113) * K2;
    for (size_t i = 0; i < (n - 1) / 64; i++)
        block(&f, s + 64 * i, K1, 1);
    const uint64_t mul = K1 + ((f.z & 0xff) << 1);
    f.w.first += (n - 1) & 63;
    f.v.first += f.w.first;
    f.w.first += f.v.first;
    block(&f, s + n - 64, mul, 9);
    return mix(mix(f.v.first, f.w.first, mul) + shift_mix(f.y) * K0 + f.z, mix(f.v.second, f.w.second, mul) + f.x, mul);
}

uint64_t mu__fingerprint_join(uint64_t a, uint64_t b)
{
    const uint64_t mul = 0xc6a4a7935bd1e995u;
    uint64_t joined = (a ^ mul) ^ shift_mix(b * mul) * mul;
    joined *= mul;
    return shift_mix(shift_mix(joined) * mul);
}

// ---- SipHash ------------------------------------------------------------------------------------

static uint64_t left(uint64_t value, int by) { return value << by | value >> (64 - by); }

static void sip_rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = left(v[1], 13) ^ v[0];
        v[3] = left(v[3], 16) ^ v[2];
        v[0] = left(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = left(v[1], 17) ^ v[2];
        v[3] = left(v[3], 21) ^ v[0];
        v[2] = left(v[2], 32);
    }
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

uint64_t mu__siphash(const uint64_t key[2], const void *bytes, size_t n)
{
    const uint8_t *s = bytes;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                     key[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = 0; i + 8 <= n; i += 8)
        sip_word(v, fetch64(s + i));
    for (size_t i = 0; i < n % 8; i++)
        last |= (uint64_t)s[n - n % 8 + i] << 8 * i;
    sip_word(v, last);
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t mu__salted_hash(int n, const int64_t *salt, mu_string text)
{
    if (n == 0)
        return mu__fingerprint64(text.bytes, text.n);
    return mu__siphash((uint64_t[]){(uint64_t)salt[0], (uint64_t)salt[n - 1]}, text.bytes, text.n);
}

mu_status mu__salt_check(int n, const char *function)
{
    return n <= 2
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: n_salt is %d; the key of SipHash has 1 or 2 numbers", function, n);
}
