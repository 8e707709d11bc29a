// One table of fields per class of layer, loss, metric or optimizer: what its options are called, what they default
// to, which values they accept and how Keras writes them.
//
// From the table come the defaults, the checks and their messages, the copy that an object keeps, and Keras's JSON in
// both directions. A class with a new option changes its public struct and one row here.
#ifndef MU_SRC_MODEL_FIELDS_H
#define MU_SRC_MODEL_FIELDS_H

#include "base/base.h"

#include <jansson.h>
#include <muster/model.h>

typedef enum mu_field_kind {
    MU_FIELD_END,
    MU_FIELD_INT,         // int
    MU_FIELD_INT64,       // int64_t
    MU_FIELD_DOUBLE,      // double
    MU_FIELD_FLAG,        // bool
    MU_FIELD_NOT,         // bool that negates Keras's option of the name `keras`: no_bias is use_bias
    MU_FIELD_SEED,        // uint64_t; left out it is Keras's None
    MU_FIELD_AXES,        // int for all spatial axes, or an array with an int for each (MU_FIELD_PER_AXIS)
    MU_FIELD_RANGE,       // double[2]: lowest and highest, by default `number` and `high` (NAN: Keras's None)
    MU_FIELD_DIMS,        // int64_t[MU_MAX_SAMPLE_RANK] that ends with 0: the shape of a sample
    MU_FIELD_INTS,        // const int *: as many as the int at `second` says; 0: Keras's None
    MU_FIELD_DOUBLES,     // const double *: likewise
    MU_FIELD_LONGS,       // const int64_t *: likewise
    MU_FIELD_TEXTS,       // const char *const *: likewise
    MU_FIELD_TEXT,        // const char *: any
    MU_FIELD_CHOICE,      // const char *: one of `choices`
    MU_FIELD_ACTIVATION,  // const char *
    MU_FIELD_INITIALIZER, // mu_any_initializer, which mu__fields_fill makes an object; likewise the next two
    MU_FIELD_REGULARIZER, // mu_any_regularizer; NULL: none
    MU_FIELD_CONSTRAINT,  // mu_any_constraint; NULL: none
    MU_FIELD_LAYER,       // mu_layer *; NULL: none
    MU_FIELD_OPTIMIZER,   // mu_optimizer *
    MU_FIELD_RATE,        // double, and at `second` a mu_learning_rate_schedule * that is instead of it; NULL: none
    MU_FIELD_POLICY,      // const char *: a dtype policy; NULL: the program's. Written and read in keras_config.c
    MU_FIELD_FIXED,       // no member: an option of Keras whose only value here is Keras's default; not written
    MU_FIELD_NAME,        // const char *: the object's own name; NULL: chosen by the class
} mu_field_kind;

// The values that a number may have.
typedef enum mu_limit {
    MU_ANY_NUMBER,
    MU_POSITIVE, // an integer from 1, a double above 0
    MU_NOT_NEGATIVE,
    MU_NOT_POSITIVE,
    MU_FRACTION,  // from 0 to 1
    MU_BELOW_ONE, // from 0 to below 1
    MU_INSIDE,    // between 0 and 1, neither included
} mu_limit;

typedef struct mu_field {
    const char *name;  // in the public struct
    const char *keras; // Keras's name; NULL: the same
    mu_field_kind kind;
    mu_limit limit;
    size_t offset;
    double number;              // default of a number; NAN: a double that may be left out, which is Keras's None
    double high;                // MU_FIELD_RANGE: default of the second number
    const char *text;           // default of a choice, an activation or an initializer
    const char *const *choices; // ends with NULL
    const char *null_choice;    // the one that Keras writes as None; NULL: none
    bool whole;                 // MU_FIELD_RANGE: Keras takes integers only
    int n;                      // MU_FIELD_AXES: the number of axes; Keras writes a list of as many numbers
    const char *array;          // MU_FIELD_AXES: name and offset of the array
    size_t array_offset;
    int array_length;   // MU_FIELD_AXES: length of the array, which may be longer than what the class uses
    bool pairs;         // MU_FIELD_AXES: each axis has two numbers, one before and one after
    size_t second;      // MU_FIELD_INTS, MU_FIELD_DOUBLES: offset of the int that is the length of the list
    size_t empty;       // MU_FIELD_INTS: offset of a bool that stands for a list without numbers, which Keras
                        // has as None besides a default; 0: there is none
    bool up_to;         // MU_FIELD_LONGS: a number in Keras's JSON is the list from 1 to that number
    bool none_is_empty; // MU_FIELD_TEXTS: Keras has an empty list where none is given, not None
    bool single;        // MU_FIELD_INTS, MU_FIELD_DOUBLES: Keras writes a list of one number as the number
    bool none;          // MU_FIELD_DOUBLE: 0 is Keras's None; MU_FIELD_INT, MU_FIELD_INT64: `number` is;
                        // MU_FIELD_DIMS: an empty shape is
    bool nulls;         // MU_FIELD_DIMS: Keras writes None, not -1, for an unknown dimension
    bool or_next;       // MU_FIELD_DOUBLE, MU_FIELD_TEXT: Keras may have what the next row, an internal one,
                        // has instead: a list of numbers, an integer
    bool internal;      // Keras does not have it
    bool in_call;       // a flag that Keras's layer takes in each call, and not in its configuration
} mu_field;

// MU_FIELD(struct, member, kind without MU_FIELD_, other fields of the row by name …)
#define MU_FIELD(type, member, ...)                                                   \
    {                                                                                 \
        .name = #member, MU_FIELD_KIND(__VA_ARGS__, .offset = offsetof(type, member)) \
    }
// MU_FIELD_ONLY(Keras's option, .text = its default, a name; or .number = its default)
#define MU_FIELD_ONLY(keras_name, value)                  \
    {                                                     \
        .name = keras_name, .kind = MU_FIELD_FIXED, value \
    }
// Two members of a struct: `int member` for all `axes` spatial axes, and an array with one int for each axis, or with
// two for each, before and after. The caller gives one of them; mu__fields_fill completes the array. A negative default
// is Keras's None.
#define MU_FIELD_PER_AXIS(type, member, axes, ...) MU_FIELD_ARRAY(type, member, member##_per_axis, axes, __VA_ARGS__)
#define MU_FIELD_PER_SIDE(type, member, axes, ...) \
    MU_FIELD_ARRAY(type, member, member##_per_side, axes, .pairs = true, __VA_ARGS__)
#define MU_FIELD_ARRAY(type, member, array_member, axes, ...)                                                        \
    {                                                                                                                \
        .name = #member, .kind = MU_FIELD_AXES, .offset = offsetof(type, member), .n = axes, .array = #array_member, \
        .array_offset = offsetof(type, array_member),                                                                \
        .array_length = (int)(sizeof(((type *)0)->array_member) / sizeof(int)), __VA_ARGS__                          \
    }
// The options of a weight: its initializer, regularizer and constraint.
#define MU_FIELD_WEIGHT(type, weight, initial)                          \
    MU_FIELD(type, weight##_initializer, INITIALIZER, .text = initial), \
        MU_FIELD(type, weight##_regularizer, REGULARIZER), MU_FIELD(type, weight##_constraint, CONSTRAINT)
#define MU_FIELD_KIND(field_kind, ...) .kind = MU_FIELD_##field_kind, __VA_ARGS__

// What every layer has.
#define MU_LAYER_FIELDS(type) MU_FIELD(type, name, NAME), MU_FIELD(type, dtype, POLICY, .internal = true)

#define MU_OPTIONS(type) sizeof(type), offsetof(type, only_)

// What a class of objects has in common with the other classes of its kind.
typedef struct mu_class {
    const char *name;        // Keras's class in snake case: "conv2d"; default of the names of objects
    const char *keras;       // Keras's class: "Conv2D"
    const char *function;    // "mu_conv2d", for messages
    size_t args_bytes, only; // of the struct of options, and where its member only_ is: MU_OPTIONS(struct)
    const mu_field *fields;  // ends with a field of kind MU_FIELD_END; NULL: none
    // What no row can say: defaults that depend on other options, and checks of several. Optional.
    mu_status (*complete)(void *args);
} mu_class;

// mu__fields_fill copies a caller's struct (NULL: all defaults) into `args` of class->args_bytes, puts in the defaults
// of the options that were left out, and checks every field. Strings and objects are still the caller's. Errors:
// INVALID_ARGUMENT naming field and value.
mu_status mu__fields_fill(const mu_class *class, void *args, const void *given);
// mu__fields_keep returns a copy of filled options that owns its strings and retains its objects; NULL on error.
// mu__fields_drop frees it; NULL is accepted.
void *mu__fields_keep(const mu_class *class, const void *args);
void mu__fields_drop(const mu_class *class, void *args);
// mu__fields_object returns the object in the field of this name; NULL: there is none, or no such field.
void *mu__fields_object(const mu_class *class, const void *args, const char *name);
// mu__fields_drop_list frees a list in such a copy, whose place and length the caller sets anew.
void mu__fields_drop_list(const mu_class *class, void *args, const char *name);
// mu__fields_text returns the text, choice or activation in the field of this name, likewise.
const char *mu__fields_text(const mu_class *class, const void *args, const char *name);
// mu__fields_name returns the object's own name in its options, mu__fields_policy its dtype policy; NULL: none was
// given.
const char *mu__fields_name(const mu_class *class, const void *args);
const char *mu__fields_policy(const mu_class *class, const void *args);

// mu__fields_json adds the options to a JSON object under Keras's names.
mu_status mu__fields_json(const mu_class *class, const void *args, json_t *config);
// mu__fields_from reads them back into a struct for mu__fields_fill; free it with mu__fields_from_free. Its strings
// belong to `config`, its objects to the pool; `depth` counts the objects around this one. Returns NULL on error:
// INVALID_ARGUMENT for a value of another type, UNIMPLEMENTED for an option that the class lacks; both name it.
void *mu__fields_from(const mu_class *class, const json_t *config, int depth);
// mu__fields_call_json adds those options that Keras takes in calls, if they are set; mu__fields_call_option returns
// whether a name is one of them.
mu_status mu__fields_call_json(const mu_class *class, const void *args, json_t *kwargs);
bool mu__fields_call_option(const mu_class *class, const char *name);
void mu__fields_from_free(void *args); // NULL is accepted

// JSON as text (json.c). mu__keras_json makes {"module", "class_name", "config", "registered_name"}, as Keras writes
// objects, and takes over `config`; NULL on error, like the next two. mu__json_text returns a JSON value, which it
// takes over, as text that belongs to the pool. mu__json_read reads a text from anywhere, at most 64 MiB; release the
// result with json_decref. Errors: INVALID_ARGUMENT in the name of `function`.
json_t *mu__keras_json(const char *module, const char *class_name, json_t *config);
const char *mu__json_text(json_t *json, const char *function);
json_t *mu__json_read(const char *text, const char *function);
// What optimizers and schedules are in such a configuration; belong to the pool, NULL on error.
json_t *mu__schedule_json(const mu_learning_rate_schedule *schedule);
mu_learning_rate_schedule *mu__schedule_from(const json_t *json);
json_t *mu__optimizer_json(const mu_optimizer *optimizer);
mu_optimizer *mu__optimizer_from(const json_t *json);                     // of a loss scale optimizer
mu_optimizer *mu__optimizer_of(const json_t *json, const char *function); // of any class

// mu__json_member sets a member of an object and takes over the reference to `value`, which may be NULL after a failed
// call. Errors: RESOURCE_EXHAUSTED.
mu_status mu__json_member(json_t *object, const char *key, json_t *value);

#endif
