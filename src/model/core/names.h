// Lists of the names of a model's inputs and outputs, and nests whose parts are given under them (names.c).
#ifndef MU_SRC_MODEL_NAMES_H
#define MU_SRC_MODEL_NAMES_H

#include "tensor/tensor.h"

typedef struct mu_name_list {
    char **items;
    size_t n, capacity;
} mu_name_list;
enum { MU_NAME_LIST_TEXT = 400 };
mu_status mu__name_list_add(mu_name_list *list, const char *name); // with a number appended if the list has the name
mu_status mu__name_list_copy(mu_name_list *list, size_t n, char *const *names);
int mu__name_list_find(const mu_name_list *list, const char *name);              // -1: it is not there
void mu__name_list_text(const mu_name_list *list, char text[MU_NAME_LIST_TEXT]); // "'a', 'b'"
void mu__name_list_free(mu_name_list *list);
bool mu__is_flat_map(const mu_value *nest); // a map of single tensors
// mu__indices_by_name writes where in a map each name's tensor is, -1 for none. Errors: INVALID_ARGUMENT, also for a
// name that is missing (MU_NAMES_ALL) or an unknown key (MU_NAMES_KNOWN).
typedef enum mu_name_rule { MU_NAMES_ALL, MU_NAMES_KNOWN } mu_name_rule;
mu_status mu__indices_by_name(const mu_value *map, const mu_name_list *names, mu_name_rule rule, const char *what,
                              int *indices);

#endif
