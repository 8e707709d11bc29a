// Lists of objects and names, for arguments that take several, each under a name or in order.
#include "base/base.h"

static void items_destroy(void *object)
{
    mu_items *items = object;
    for (int i = 0; i < items->n; i++) {
        if (mu__is_object(items->items[i]))
            mu_release(items->items[i]);
        else
            mu__free(items->items[i]);
        if (items->names)
            mu__free(items->names[i]);
    }
    mu__free(items->items);
    mu__free(items->names);
}

mu_type mu__items_type = {.name = "list of arguments", .destroy = items_destroy};

// Keeps the next item, and the name that it has in a list of pairs.
static bool keep(mu_items *items, const char *name, const void *item)
{
    const bool text = item && !mu__is_object(item);
    const int i = items->n;
    items->items[i] = text ? mu__strdup(item) : mu_retain((void *)(uintptr_t)item);
    if (items->names)
        items->names[i] = mu__strdup(name);
    items->n++;
    return (!text || items->items[i]) && (!items->names || items->names[i]);
}

// The list of `n` items; in pairs, each behind its name.
static mu_items *items_of(const void *const *given, size_t n, bool pairs)
{
    mu_items *items = mu__new(&mu__items_type, sizeof *items);
    if (!items)
        return NULL;
    items->items = mu__calloc(n + 1, sizeof *items->items);
    items->names = pairs ? mu__calloc(n + 1, sizeof *items->names) : NULL;
    bool whole = items->items && (!pairs || items->names);
    for (size_t i = 0; whole && i < n; i++)
        whole = pairs ? keep(items, given[2 * i], given[2 * i + 1]) : keep(items, NULL, given[i]);
    if (whole)
        return mu__give(items);
    mu_release(items);
    return NULL;
}

static size_t count(const void *const *given)
{
    size_t n = 0;
    while (given[n] != MU_END)
        n++;
    return n;
}

mu_items *mu_items_of(const void *const *given)
{
    if (mu__pending() || mu__need(given, "mu_items_of: the array") != MU_OK)
        return NULL;
    return items_of(given, count(given), false);
}

mu_items *mu_named_items_of(const void *const *given)
{
    if (mu__pending() || mu__need(given, "mu_named_items_of: the array") != MU_OK)
        return NULL;
    const size_t n = count(given);
    for (size_t i = 0; i < n; i += 2)
        if (!given[i] || mu__is_object(given[i]) || i + 1 == n) {
            mu__error(MU_INVALID_ARGUMENT,
                      "mu_named_items_of: %s; give a name and an object for each, as in MU_BY_NAME(\"a\", \"mse\", "
                      "\"b\", \"mae\")",
                      i + 1 == n ? "the last name has no object" : "found an object where a name is expected");
            return NULL;
        }
    for (size_t i = 0; i < n; i += 2)
        for (size_t k = 0; k < i; k += 2)
            if (strcmp(given[i], given[k]) == 0) {
                mu__error(MU_INVALID_ARGUMENT, "mu_named_items_of: '%.60s' is given twice", (const char *)given[i]);
                return NULL;
            }
    return items_of(given, n / 2, true);
}
