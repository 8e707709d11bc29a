// Trees of paths; see path_tree.h.
#include "io/path_tree.h"

#include <string.h>

int mu__path_child(const mu_path_tree *tree, int parent, const char *name, size_t length)
{
    for (int i = tree->items[parent].first; i >= 0; i = tree->items[i].next)
        if (tree->items[i].length == length && memcmp(tree->items[i].name, name, length) == 0)
            return i;
    return -1;
}

mu_status mu__path_add(mu_path_tree *tree, int parent, const char *name, size_t length)
{
    const int i = (int)tree->n;
    const mu_path_node made = {
        .name = name, .length = length, .parent = parent, .first = -1, .last = -1, .next = -1, .tensor = -1};
    MU_TRY(MU_PUSH(tree, made));
    if (parent < 0)
        return MU_OK;
    mu_path_node *above = &tree->items[parent];
    if (above->last >= 0)
        tree->items[above->last].next = i;
    else
        above->first = i;
    above->last = i;
    return MU_OK;
}
