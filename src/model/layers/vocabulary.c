// Sets of tokens: an open hash table over one block of bytes. See token_lookup.h.
#include "model/layers/fingerprint.h"
#include "model/layers/token_lookup.h"

mu_string mu__vocabulary_token(const mu_token_set *v, int64_t number)
{
    const int64_t begin = number > 0 ? v->tokens.ends.items[number - 1] : 0;
    return (mu_string){v->tokens.bytes.items + begin, (size_t)(v->tokens.ends.items[number] - begin - 1)};
}

// The slot of a token, or the free one where it belongs.
static size_t slot_of(const mu_token_set *v, mu_string token)
{
    size_t slot = mu__fingerprint64(token.bytes, token.n) & (v->n_slots - 1);
    for (; v->slots[slot] != 0; slot = (slot + 1) & (v->n_slots - 1)) {
        const mu_string other = mu__vocabulary_token(v, v->slots[slot] - 1);
        if (other.n == token.n && memcmp(other.bytes, token.bytes, token.n) == 0)
            break;
    }
    return slot;
}

int64_t mu__vocabulary_find(const mu_token_set *v, mu_string token)
{
    return v->n_slots > 0 ? v->slots[slot_of(v, token)] - 1 : -1;
}

static mu_status grow(mu_token_set *v)
{
    const int64_t n = mu__vocabulary_count(v);
    if ((size_t)n * 2 < v->n_slots)
        return MU_OK;
    const size_t wanted = v->n_slots == 0 ? 64 : 2 * v->n_slots;
    int64_t *slots = mu__calloc(wanted, sizeof *slots);
    if (slots == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__free(v->slots);
    v->slots = slots;
    v->n_slots = wanted;
    for (int64_t i = 0; i < n; i++)
        v->slots[slot_of(v, mu__vocabulary_token(v, i))] = i + 1;
    return MU_OK;
}

mu_status mu__vocabulary_add(mu_token_set *v, mu_string token, int64_t *number)
{
    MU_TRY(grow(v));
    const size_t slot = slot_of(v, token);
    if (v->slots[slot] == 0) {
        MU_TRY(mu__strings_add(&v->tokens, token.bytes, token.n));
        v->slots[slot] = mu__vocabulary_count(v);
    }
    *number = v->slots[slot] - 1;
    return MU_OK;
}

void mu__vocabulary_free(mu_token_set *v)
{
    mu__strings_free(&v->tokens);
    mu__free(v->slots);
    *v = (mu_token_set){0};
}
