// The table of calls of the op benchmark: Muster's ops under the names that the cases use, by family. run.py checks
// that both sides of a case compute the same by comparing results.
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
