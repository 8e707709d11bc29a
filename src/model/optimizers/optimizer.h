// Internal interface of optimizers, of learning rate schedules and of what changes gradients before an update.
//
// A class has a table of fields and its formula, written with ops (optimizers.c). Distribution of variables and
// reduction of gradients are the strategy's task.
#ifndef MU_SRC_MODEL_OPTIMIZER_H
#define MU_SRC_MODEL_OPTIMIZER_H

#include "graph/graph.h"
#include "model/core/fields.h"

#include <muster/optimizer.h>

typedef struct mu_schedule_ops {
    mu_class class;
    // call returns the rate for a step; both are scalars of one type. Belongs to the pool; NULL on error.
    mu_tensor *(*call)(const void *args, mu_tensor *step);
} mu_schedule_ops;

struct mu_learning_rate_schedule {
    mu_object object;
    const mu_schedule_ops *ops;
    void *args;
};

// At most one field is set.
typedef struct mu_clipping {
    double norm, global_norm, value;
} mu_clipping;
mu_status mu__check_clipping(const mu_clipping *clipping, const char *function);
// mu__clip clips gradients in place, with ops.
mu_status mu__clip(const mu_clipping *clipping, int n, mu_gradient *gradients);

enum { MU_MAX_SLOTS = 5, MU_MAX_OPTIMIZER_SCALARS = 2 };

typedef struct mu_optimizer_slot {
    const char *name; // Keras's name
    double initial;
    int without; // the variable's axis that the slot lacks, from the end: -1, -2; 0: none is lacking
} mu_optimizer_slot;

// A scalar that an optimizer keeps besides its slots.
typedef struct mu_optimizer_scalar {
    const char *name;
    mu_dtype dtype; // MU_DTYPE_DEFAULT: that of mu_set_floatx
    double initial;
} mu_optimizer_scalar;

// The update of one variable. Tensors have the variable's type.
typedef struct mu_optimizer_update {
    mu_optimizer *optimizer;
    mu_variable *variable;
    mu_variable *const *slots; // in the order of the class's `slots`
    mu_gradient gradient;      // the sum of all replicas; for update_slices this replica's slices
    mu_tensor *magnitude;      // the class's magnitude of it; NULL if the class has none
    mu_tensor *rate, *step;    // scalars: the learning rate; the number of this update, from 1
    mu_tensor *earlier;        // int64 scalar: the number of earlier updates
} mu_optimizer_update;

typedef struct mu_optimizer_ops {
    mu_class class;
    // slots writes what each variable has, at most MU_MAX_SLOTS - 2, and returns how many. Optional: none.
    int (*slots)(const void *args, mu_optimizer_slot *slots);
    // How many slots, from the first on, Keras makes for one variable before it takes the next one: the order of the
    // state in its files. 0: one. What is left comes slot by slot.
    int slots_together;
    // lacks returns whether a variable is without one of these slots, which then is a scalar that counts for nothing
    // and is not in Keras's files. Optional: as `without` of the slot says of variables with fewer than two axes.
    bool (*lacks)(const void *args, const mu_variable *variable, int slot);
    // decay returns the weight decay of a variable. Optional: the option weight_decay.
    double (*decay)(const mu_optimizer *optimizer, const mu_variable *variable);
    // scalars writes what the optimizer has, at most MU_MAX_OPTIMIZER_SCALARS, and returns how many. Optional: none.
    int (*scalars)(const void *args, mu_optimizer_scalar *scalars);
    // recall makes the scalars what they are after the optimizer's steps, for files that lack them. Optional: none.
    mu_status (*recall)(mu_optimizer *optimizer);
    // The function of the gradient's size that the formula has: mu_square or mu_abs. Slices count separately in it.
    // Optional.
    mu_tensor *(*magnitude)(mu_tensor *gradient);
    // begin updates the scalars, before the variables of an update. Optional.
    mu_status (*begin)(mu_optimizer *optimizer, mu_tensor *earlier);
    // update updates a variable and its slots, with ops.
    mu_status (*update)(const mu_optimizer_update *update);
    // takes_slices returns whether update_slices updates this variable from this replica's slices, and itself combines
    // those of all replicas. Optional: slices become dense first.
    bool (*takes_slices)(const void *args, const mu_variable *variable);
    mu_status (*update_slices)(const mu_optimizer_update *update);
} mu_optimizer_ops;

struct mu_optimizer {
    mu_object object;
    const mu_optimizer_ops *ops;
    void *args;            // begins with the members of mu_optimizer_args, except for a loss scale optimizer
    mu_optimizer *inner;   // of a loss scale optimizer; retained. NULL: an optimizer that updates itself
    mu_strategy *strategy; // in whose scope it was made; retained
    int n_slots;           // of each variable
    mu_optimizer_slot slot_kinds[MU_MAX_SLOTS];
    int average, accumulator;                // which slots they are; -1: none
    bool averages_in_place;                  // variables and their averages are exchanged
    mu_variable *iterations, *learning_rate; // learning_rate is NULL under a schedule
    int n_scalars;
    mu_optimizer_scalar scalar_kinds[MU_MAX_OPTIMIZER_SCALARS];
    mu_variable *scalars[MU_MAX_OPTIMIZER_SCALARS]; // NULL before the first step
    struct {
        mu_variable **items;
        size_t n, capacity;
    } variables; // in order of first use
    struct {
        mu_variable **items;
        size_t n, capacity;
    } slots; // n_slots for each of them
    struct {
        mu_object **items;
        size_t n, capacity;
    } left;               // what workers leave for updates; retained
    mu_value *excluded;   // variables that weight decay leaves alone; retained. NULL: none
    char *excluded_names; // a regular expression; NULL: none
    atomic_bool warned_of_unconnected;
};
extern const mu_optimizer_ops mu__loss_scale_ops;

// mu__optimizer_swap_averages exchanges all variables and their moving averages, if the optimizer keeps these
// (use_ema) and has trained; in_place: they are exchanged now. mu_optimizer_finalize_variable_values ends that.
bool mu__optimizer_has_averages(mu_optimizer *optimizer);
bool mu__optimizer_averages_in_place(mu_optimizer *optimizer);
mu_status mu__optimizer_swap_averages(mu_optimizer *optimizer);

mu_optimizer *mu__optimizer_make(const mu_optimizer_ops *ops, const void *args); // belongs to the pool; NULL on error
mu_optimizer *mu__optimizer_named(const char *name, const char *function);       // with default options
const mu_optimizer_ops *mu__optimizer_find(const char *name);                    // by Keras's names; NULL: none
const char *mu__optimizer_name(const mu_optimizer *optimizer);                   // its state's names begin with it
// mu__optimizer_need makes the scalars of the optimizer's state where they are missing.
mu_status mu__optimizer_need(mu_optimizer *optimizer);
// mu__optimizer_build makes the optimizer's state for these variables, as the first step would.
mu_status mu__optimizer_build(mu_optimizer *optimizer, int n, mu_variable *const *variables);
// mu__optimizer_slots returns the slots of a variable, made if they are missing; NULL on error.
mu_variable *const *mu__optimizer_slots(mu_optimizer *optimizer, mu_variable *variable);
// mu__optimizer_lacks returns whether a variable's slot is a scalar that counts for nothing.
bool mu__optimizer_lacks(const mu_optimizer *optimizer, const mu_variable *variable, int slot);
bool mu__optimizer_decays(const mu_optimizer *optimizer, const mu_variable *variable);
// mu__optimizer_path returns the variable's path; of a part of a variable that is divided, that of the whole.
const char *mu__optimizer_path(const mu_variable *variable);
// mu__expression_check refuses text that is not a regular expression (POSIX extended), or is one that takes much to
// compile, as an option of the caller's or of a file: INVALID_ARGUMENT. mu__expression_occurs returns whether one
// occurs in a text.
mu_status mu__expression_check(const char *option, const char *expression);
bool mu__expression_occurs(const char *expression, const char *text);
// mu__optimizer_forget_left frees `left`; what workers have left is then never applied.
void mu__optimizer_forget_left(mu_optimizer *optimizer);
// mu__loss_scale_update changes the scale after a step whose gradients are all finite (a bool scalar), or are not.
mu_tensor *mu__loss_scale(const mu_optimizer *optimizer);
mu_status mu__loss_scale_update(mu_optimizer *optimizer, mu_tensor *finite);
extern mu_type mu__optimizer_type, mu__schedule_type;

#endif
