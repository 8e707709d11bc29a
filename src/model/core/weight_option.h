// Options of a layer's weight: initializers, regularizers and constraints.
//
// Each is a class with a table of fields and one function, which `draw`s a first value or is `apply`-ed to a weight.
// They are given as an object or by name, and are written as Keras's JSON.
#ifndef MU_SRC_MODEL_WEIGHT_OPTION_H
#define MU_SRC_MODEL_WEIGHT_OPTION_H

#include "model/core/fields.h"

#include <muster/weight.h>

typedef struct mu_weight_option_ops {
    mu_class class;    // its name is one that options take
    const char *alias; // Keras's other name for it; NULL: none
    bool by_fans;      // an initializer that looks at a weight's last two axes
    // One of these. Results belong to the pool; NULL on error. `numbers`: two of the program's seed. Every weight takes
    // as many, so that another initializer of one weight leaves the others as they were.
    mu_tensor *(*draw)(const void *args, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape);
    mu_tensor *(*apply)(const void *args, mu_tensor *weight);
} mu_weight_option_ops;

typedef struct mu_weight_option {
    mu_object object;
    const mu_weight_option_ops *ops;
    void *args;
} mu_weight_option;
struct mu_initializer {
    mu_weight_option option;
};
struct mu_regularizer {
    mu_weight_option option;
};
struct mu_constraint {
    mu_weight_option option;
};

typedef struct mu_weight_option_kind {
    mu_type type;                               // its name is what messages call it
    const char *module;                         // Keras's
    const mu_weight_option_ops *const *classes; // ends with NULL
} mu_weight_option_kind;
extern mu_weight_option_kind mu__initializer_kind, mu__regularizer_kind, mu__constraint_kind;

void mu__weight_option_destroy(void *option);
// mu__own_weight_apply is the `apply` of the program's own functions (mu_own_weight_function_args).
mu_tensor *mu__own_weight_apply(const void *arguments, mu_tensor *weight);

// mu__weight_option_make makes an object of a class from the caller's options (NULL: the defaults).
// mu__weight_option_argument returns the object that a caller gave or named (NULL: none was given). Both belong to the
// pool; NULL on error: INVALID_ARGUMENT in the name of `function`.
void *mu__weight_option_make(mu_weight_option_kind *kind, const mu_weight_option_ops *ops, const void *args);
void *mu__weight_option_argument(mu_weight_option_kind *kind, const void *given, const char *function);
// As Keras's JSON (NULL: None), and an object of such JSON or of a name in it; belongs to the pool. NULL on error.
json_t *mu__weight_option_json(const mu_weight_option_kind *kind, const mu_weight_option *option);
void *mu__weight_option_from(mu_weight_option_kind *kind, const json_t *json);
// mu__weight_option_draw and mu__weight_option_apply call the function of the class.
mu_tensor *mu__weight_option_draw(const mu_weight_option *option, mu_dtype dtype, const mu_shape *shape);
mu_tensor *mu__weight_option_apply(const mu_weight_option *option, mu_tensor *weight);

// A class whose options are a public struct, and the function mu_NAME_with that makes such an object.
#define MU_WEIGHT_OPTION(function_name, snake, keras_class, other_name, result, kind_of, args_type, rows, completer, \
                         ...)                                                                                        \
    static const mu_weight_option_ops function_name##_ops = {                                                        \
        .class = {snake, keras_class, "mu_" #function_name, MU_OPTIONS(args_type), rows, completer},                 \
        .alias = other_name,                                                                                         \
        __VA_ARGS__};                                                                                                \
    result *mu_##function_name##_with(const args_type *args)                                                         \
    {                                                                                                                \
        return mu__weight_option_make(&kind_of, &function_name##_ops, args);                                         \
    }

#endif
