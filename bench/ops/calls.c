// The table of calls of the bench of ops: each op of Muster as the cases name it, family by family. Knows neither how
// long anything takes nor what the rivals do; both sides of a case are kept alike by comparing results.
#include "calls.h"

#include <string.h>

static const call_row *const families[] = {
    call_elements, call_shapes, call_index, call_nn, call_grad, call_cells, call_order, call_linear,
};

const call_row *find_call(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const call_row *row = families[i]; row->name; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}
