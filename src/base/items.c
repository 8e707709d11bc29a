// Lists of objects and names, for arguments that take several.
#include "base/base.h"

static void items_destroy(void *object)
{
    mu_items *items = object;
    for (int i = 0; i < items->n; i++) {
        if (mu__is_object(items->items[i]))
            mu_release(items->items[i]);
        else
            mu__free(items->items[i]);
    }
    mu__free(items->items);
}

mu_type mu__items_type = {.name = "list of arguments", .destroy = items_destroy};

mu_items *mu_items_of(const void *const *given)
{
    if (mu__pending() || mu__need(given, "mu_items_of: the array") != MU_OK)
        return NULL;
    size_t n = 0;
    while (given[n] != MU_END)
        n++;
    mu_items *items = mu__new(&mu__items_type, sizeof *items);
    if (items == NULL)
        return NULL;
    items->items = mu__calloc(n + 1, sizeof *items->items);
    for (size_t i = 0; items->items != NULL && i < n; i++, items->n++) {
        const bool text = given[i] != NULL && !mu__is_object(given[i]);
        void *item = text ? mu__strdup(given[i]) : mu_retain((void *)(uintptr_t)given[i]);
        if (text && item == NULL)
            break;
        items->items[i] = item;
    }
    if (items->items == NULL || (size_t)items->n < n) {
        mu_release(items);
        return NULL;
    }
    return mu__give(items);
}
