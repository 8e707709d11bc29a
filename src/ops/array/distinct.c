// Numbers distinct ids with a hash table of open addressing, at most half full; see distinct.h.
#include "ops/array/distinct.h"

int64_t mu__distinct(int64_t n, const int64_t *ids, int64_t *distinct, uint32_t *number)
{
    size_t size = 16;
    while (size < 2 * (size_t)n)
        size *= 2;
    uint32_t *table = mu__calloc(size, sizeof *table); // numbers + 1; 0: free
    int64_t found = 0;
    if (table == NULL)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        size_t at = mu__hash_id((uint64_t)ids[i]) & (size - 1);
        while (table[at] != 0 && distinct[table[at] - 1] != ids[i])
            at = (at + 1) & (size - 1);
        if (table[at] == 0) {
            distinct[found++] = ids[i];
            table[at] = (uint32_t)found;
        }
        number[i] = table[at] - 1;
    }
    mu__free(table);
    return found;
}
