// The classes of optimizers: options, state and formula of each, written with ops. Defaults, formulas and names of the
// state are Keras 3's; the papers are named in muster/optimizer.h.
//
// Gradient descent and Adam have an op of their own, which updates a variable and its slots in one pass, and another
// for slices, as Adagrad and Ftrl have; their formulas with ops serve what these ops lack.
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <strings.h>

// ---- What the formulas are written with ---------------------------------------------------------

static mu_tensor *number(const mu_optimizer_update *u, double value)
{
    return mu_constant(u->variable->resource.spec.dtype, value);
}

static mu_tensor *times(const mu_optimizer_update *u, double factor, mu_tensor *x)
{
    return mu_multiply(x, number(u, factor));
}

static mu_tensor *slot(const mu_optimizer_update *u, int i) { return mu__variable_read(u->slots[i]); }

// Assigns a slot and returns its new value; NULL on error.
static mu_tensor *set(const mu_optimizer_update *u, int i, mu_tensor *value)
{
    return value && mu__variable_update(u->slots[i], MU_UPDATE_ASSIGN, value) == MU_OK ? value : NULL;
}

static mu_status subtract(const mu_optimizer_update *u, mu_tensor *difference)
{
    return difference ? mu__variable_update(u->variable, MU_UPDATE_SUB, difference) : mu_error_code();
}

// Moves a slot from its value towards x by a share of the difference.
static mu_tensor *approach(const mu_optimizer_update *u, int i, mu_tensor *x, double share)
{
    mu_tensor *before = slot(u, i);
    return set(u, i, mu_add(before, times(u, share, mu_subtract(x, before))));
}

// Makes a slot decay · slot + (1 - decay) · x.
static mu_tensor *blend(const mu_optimizer_update *u, int i, double decay, mu_tensor *x)
{
    return set(u, i, mu_add(times(u, decay, slot(u, i)), times(u, 1 - decay, x)));
}

// 1 - beta^step
static mu_tensor *correction(const mu_optimizer_update *u, double beta)
{
    return mu_subtract(number(u, 1), mu_pow(number(u, beta), u->step));
}

// sqrt(x) + epsilon
static mu_tensor *root_plus(const mu_optimizer_update *u, mu_tensor *x, double epsilon)
{
    return mu_add(mu_sqrt(x), number(u, epsilon));
}

// Whether the ops that update in one pass take this variable.
static bool is_single_or_double(const mu_variable *variable)
{
    return variable->resource.spec.dtype == MU_F32 || variable->resource.spec.dtype == MU_F64;
}

static bool takes_slices(const void *args, const mu_variable *variable)
{
    (void)args;
    return is_single_or_double(variable);
}

static mu_apply_slices_attrs slices_attrs(const mu_optimizer_update *u, bool nesterov)
{
    mu_apply_slices_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.nesterov = nesterov;
    attrs.reduce = mu_replica_count() > 1;
    snprintf(attrs.name, sizeof attrs.name, "slices of %.80s", u->variable->resource.name);
    return attrs;
}

// ---- Gradient descent ---------------------------------------------------------------------------

static int sgd_slots(const void *arguments, mu_optimizer_slot *slots)
{
    const mu_sgd_args *args = arguments;
    slots[0] = (mu_optimizer_slot){.name = "momentum"};
    return args->momentum != 0;
}

static mu_status sgd_ops_update(const mu_optimizer_update *u, const mu_sgd_args *args)
{
    mu_tensor *step = mu_multiply(u->gradient.dense, u->rate);
    if (args->momentum == 0)
        return subtract(u, step);
    mu_tensor *momentum = set(u, 0, mu_subtract(times(u, args->momentum, slot(u, 0)), step));
    if (args->nesterov)
        momentum = mu_subtract(times(u, args->momentum, momentum), step);
    return momentum ? mu__variable_update(u->variable, MU_UPDATE_ADD, momentum) : mu_error_code();
}

static mu_status sgd_update(const mu_optimizer_update *u)
{
    const mu_sgd_args *args = u->optimizer->args;
    if (!is_single_or_double(u->variable))
        return sgd_ops_update(u, args);
    mu_nesterov_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.nesterov = args->nesterov;
    const bool moves = args->momentum != 0;
    mu_tensor *in[] = {u->rate, mu_constant(MU_F64, args->momentum), u->gradient.dense};
    mu_resource *resources[] = {&u->variable->resource, moves ? &u->slots[0]->resource : NULL};
    return mu__apply(&mu_op_apply_gradient_descent, &attrs, 3, in, 1 + moves, resources, NULL);
}

static mu_status sgd_slices(const mu_optimizer_update *u)
{
    const mu_sgd_args *args = u->optimizer->args;
    const mu_apply_slices_attrs attrs = slices_attrs(u, args->nesterov);
    const bool moves = args->momentum != 0;
    mu_tensor *in[] = {u->rate, mu_constant(MU_F64, args->momentum), u->gradient.values, u->gradient.indices};
    mu_resource *resources[] = {&u->variable->resource, moves ? &u->slots[0]->resource : NULL};
    return mu__apply(&mu_op_apply_gradient_descent_slices, &attrs, 4, in, 1 + moves, resources, NULL);
}

// ---- Adam and its relatives ---------------------------------------------------------------------

static int adam_slots(const void *arguments, mu_optimizer_slot *slots)
{
    const mu_adam_args *args = arguments;
    slots[0] = (mu_optimizer_slot){.name = "momentum"};
    slots[1] = (mu_optimizer_slot){.name = "velocity"};
    slots[2] = (mu_optimizer_slot){.name = "velocity_hat"};
    return args->amsgrad ? 3 : 2;
}

static mu_status adam_ops_update(const mu_optimizer_update *u, const mu_adam_args *args)
{
    mu_tensor *rate =
        mu_divide(mu_multiply(u->rate, mu_sqrt(correction(u, args->beta_2))), correction(u, args->beta_1));
    mu_tensor *momentum = approach(u, 0, u->gradient.dense, 1 - args->beta_1);
    mu_tensor *velocity = approach(u, 1, u->magnitude, 1 - args->beta_2);
    if (args->amsgrad)
        velocity = set(u, 2, mu_maximum(slot(u, 2), velocity));
    return subtract(u, mu_divide(mu_multiply(momentum, rate), root_plus(u, velocity, args->epsilon)));
}

static mu_status adam_update(const mu_optimizer_update *u)
{
    const mu_adam_args *args = u->optimizer->args;
    if (args->amsgrad || !is_single_or_double(u->variable))
        return adam_ops_update(u, args);
    mu_tensor *in[] = {u->rate,
                       mu_constant(MU_F64, args->beta_1),
                       mu_constant(MU_F64, args->beta_2),
                       mu_constant(MU_F64, args->epsilon),
                       u->earlier,
                       u->gradient.dense};
    mu_resource *resources[] = {&u->variable->resource, &u->slots[0]->resource, &u->slots[1]->resource};
    return mu__apply(&mu_op_apply_adam, NULL, 6, in, 3, resources, NULL);
}

static bool adam_takes_slices(const void *args, const mu_variable *variable)
{
    return !((const mu_adam_args *)args)->amsgrad && is_single_or_double(variable);
}

static mu_status adam_slices(const mu_optimizer_update *u)
{
    const mu_adam_args *args = u->optimizer->args;
    const mu_apply_slices_attrs attrs = slices_attrs(u, false);
    mu_tensor *in[] = {u->rate,
                       mu_constant(MU_F64, args->beta_1),
                       mu_constant(MU_F64, args->beta_2),
                       mu_constant(MU_F64, args->epsilon),
                       u->earlier,
                       u->gradient.values,
                       u->gradient.indices};
    mu_resource *resources[] = {&u->variable->resource, &u->slots[0]->resource, &u->slots[1]->resource};
    return mu__apply(&mu_op_apply_adam_slices, &attrs, 7, in, 3, resources, NULL);
}

static int adamax_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[0] = (mu_optimizer_slot){.name = "momentum"};
    slots[1] = (mu_optimizer_slot){.name = "norm"};
    return 2;
}

static mu_status adamax_update(const mu_optimizer_update *u)
{
    const mu_moments_args *args = u->optimizer->args;
    mu_tensor *momentum = approach(u, 0, u->gradient.dense, 1 - args->beta_1);
    mu_tensor *norm = set(u, 1, mu_maximum(times(u, args->beta_2, slot(u, 1)), u->magnitude));
    mu_tensor *divisor = mu_multiply(correction(u, args->beta_1), mu_add(norm, number(u, args->epsilon)));
    return subtract(u, mu_divide(mu_multiply(u->rate, momentum), divisor));
}

static int moment_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[0] = (mu_optimizer_slot){.name = "momentum"};
    slots[1] = (mu_optimizer_slot){.name = "velocity"};
    return 2;
}

enum { U_PRODUCT }; // Nadam's scalar: the product of the momenta of all updates

static int nadam_scalars(const void *args, mu_optimizer_scalar *scalars)
{
    (void)args;
    scalars[U_PRODUCT] = (mu_optimizer_scalar){.name = "u_product", .initial = 1};
    return 1;
}

// The momentum of an update grows towards beta_1.
static mu_tensor *nadam_momentum(double beta_1, mu_tensor *step)
{
    const mu_dtype dtype = step ? mu_tensor_dtype(step) : MU_F32;
    mu_tensor *half = mu_multiply(mu_constant(dtype, .5), mu_pow(mu_constant(dtype, .96), step));
    return mu_multiply(mu_constant(dtype, beta_1), mu_subtract(mu_constant(dtype, 1), half));
}

// The product of the momenta with that of one more update.
static mu_tensor *nadam_product(const mu_optimizer *optimizer, mu_tensor *product, mu_tensor *earlier)
{
    const mu_moments_args *args = optimizer->args;
    const mu_dtype dtype = optimizer->scalars[U_PRODUCT]->resource.spec.dtype;
    mu_tensor *step = mu_cast(mu_add(earlier, mu_constant(MU_I64, 1)), dtype);
    return mu_multiply(product, nadam_momentum(args->beta_1, step));
}

static mu_status nadam_begin(mu_optimizer *optimizer, mu_tensor *earlier)
{
    mu_variable *product = optimizer->scalars[U_PRODUCT];
    mu_tensor *next = nadam_product(optimizer, mu__variable_read(product), earlier);
    return next ? mu__variable_update(product, MU_UPDATE_ASSIGN, next) : mu_error_code();
}

// The product depends on the number of updates alone. It soon becomes 0, or the least number that the momentum, by then
// beta_1, rounds to itself, and stays there.
static mu_status nadam_recall(mu_optimizer *optimizer)
{
    mu_variable *variable = optimizer->scalars[U_PRODUCT];
    const mu_moments_args *args = optimizer->args;
    mu_tensor *steps = mu_variable_read(optimizer->iterations);
    const int64_t updates = steps ? (int64_t)mu_scalar(steps) / MU_MAX(args->gradient_accumulation_steps, 1) : 0;
    mu_tensor *product = mu_retain(mu_constant(variable->resource.spec.dtype, 1));
    bool moves = true;
    for (int64_t i = 0; i < updates && product && moves; i++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *next = mu_retain(nadam_product(optimizer, product, mu_constant(MU_I64, i)));
        mu_pool_close(pool);
        moves = next && mu_scalar(next) != mu_scalar(product);
        mu_release(product);
        product = next;
    }
    const mu_status status = product ? mu_variable_assign(variable, product) : mu_error_code();
    mu_release(product);
    return status;
}

static mu_status nadam_update(const mu_optimizer_update *u)
{
    const mu_moments_args *args = u->optimizer->args;
    mu_tensor *one = number(u, 1);
    mu_tensor *now = nadam_momentum(args->beta_1, u->step), *next = nadam_momentum(args->beta_1, mu_add(u->step, one));
    mu_tensor *product = mu_cast(mu__variable_read(u->optimizer->scalars[U_PRODUCT]), u->variable->resource.spec.dtype);
    mu_tensor *momentum = approach(u, 0, u->gradient.dense, 1 - args->beta_1);
    mu_tensor *velocity = approach(u, 1, u->magnitude, 1 - args->beta_2);
    mu_tensor *ahead = mu_divide(mu_multiply(next, momentum), mu_subtract(one, mu_multiply(product, next)));
    mu_tensor *fresh = mu_divide(mu_multiply(mu_subtract(one, now), u->gradient.dense), mu_subtract(one, product));
    mu_tensor *divisor = root_plus(u, mu_divide(velocity, correction(u, args->beta_2)), args->epsilon);
    return subtract(u, mu_divide(mu_multiply(mu_add(ahead, fresh), u->rate), divisor));
}

static mu_tensor *norm_of(mu_tensor *x) { return mu_sqrt(mu_reduce_sum(mu_square(x), MU_ALL_AXES)); }

static mu_status lamb_update(const mu_optimizer_update *u)
{
    const mu_moments_args *args = u->optimizer->args;
    mu_tensor *momentum = approach(u, 0, u->gradient.dense, 1 - args->beta_1);
    mu_tensor *velocity = approach(u, 1, u->magnitude, 1 - args->beta_2);
    mu_tensor *step = mu_divide(mu_divide(momentum, correction(u, args->beta_1)),
                                root_plus(u, mu_divide(velocity, correction(u, args->beta_2)), args->epsilon));
    mu_tensor *own = norm_of(mu__variable_read(u->variable)), *other = norm_of(step), *zero = number(u, 0);
    mu_tensor *both = mu_logical_and(mu_greater(own, zero), mu_greater(other, zero));
    mu_tensor *ratio = mu_where(both, mu_divide(own, other), number(u, 1));
    return subtract(u, mu_multiply(mu_multiply(ratio, u->rate), step));
}

// ---- RMSprop, Adagrad, Adadelta -----------------------------------------------------------------

static int rmsprop_slots(const void *arguments, mu_optimizer_slot *slots)
{
    const mu_rmsprop_args *args = arguments;
    int n = 0;
    slots[n++] = (mu_optimizer_slot){.name = "velocity"};
    if (args->momentum > 0)
        slots[n++] = (mu_optimizer_slot){.name = "momentum"};
    if (args->centered)
        slots[n++] = (mu_optimizer_slot){.name = "average_gradient"};
    return n;
}

static mu_status rmsprop_update(const mu_optimizer_update *u)
{
    const mu_rmsprop_args *args = u->optimizer->args;
    const bool moves = args->momentum > 0;
    mu_tensor *spread = blend(u, 0, args->rho, u->magnitude);
    if (args->centered)
        spread = mu_subtract(spread, mu_square(blend(u, moves ? 2 : 1, args->rho, u->gradient.dense)));
    mu_tensor *divisor = mu_sqrt(mu_add(spread, number(u, args->epsilon)));
    mu_tensor *step = mu_divide(mu_multiply(u->rate, u->gradient.dense), divisor);
    return subtract(u, moves ? set(u, 1, mu_add(times(u, args->momentum, slot(u, 1)), step)) : step);
}

static int adagrad_slots(const void *args, mu_optimizer_slot *slots)
{
    const double initial = ((const mu_adagrad_args *)args)->initial_accumulator_value;
    slots[0] = (mu_optimizer_slot){.name = "accumulator", .initial = initial};
    return 1;
}

static mu_status adagrad_update(const mu_optimizer_update *u)
{
    const mu_adagrad_args *args = u->optimizer->args;
    mu_tensor *sum = set(u, 0, mu_add(slot(u, 0), u->magnitude));
    mu_tensor *divisor = mu_sqrt(mu_add(sum, number(u, args->epsilon)));
    return subtract(u, mu_divide(mu_multiply(u->rate, u->gradient.dense), divisor));
}

static mu_status adagrad_slices(const mu_optimizer_update *u)
{
    const mu_apply_slices_attrs attrs = slices_attrs(u, false);
    const double epsilon = ((const mu_adagrad_args *)u->optimizer->args)->epsilon;
    mu_tensor *in[] = {u->rate, mu_constant(MU_F64, epsilon), u->gradient.values, u->gradient.indices};
    mu_resource *resources[] = {&u->variable->resource, &u->slots[0]->resource};
    return mu__apply(&mu_op_apply_adagrad_slices, &attrs, 4, in, 2, resources, NULL);
}

static int adadelta_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[0] = (mu_optimizer_slot){.name = "accumulated_grad"};
    slots[1] = (mu_optimizer_slot){.name = "accumulated_delta_var"};
    return 2;
}

static mu_status adadelta_update(const mu_optimizer_update *u)
{
    const mu_adadelta_args *args = u->optimizer->args;
    mu_tensor *epsilon = number(u, args->epsilon);
    mu_tensor *steps = mu_sqrt(mu_add(slot(u, 1), epsilon));
    mu_tensor *gradients = mu_sqrt(mu_add(blend(u, 0, args->rho, u->magnitude), epsilon));
    mu_tensor *step = mu_divide(mu_multiply(steps, u->gradient.dense), gradients);
    mu_tensor *size = mu_multiply(mu_square(mu_divide(steps, gradients)), u->magnitude); // of slices, separately
    return set(u, 1, mu_add(times(u, args->rho, slot(u, 1)), times(u, 1 - args->rho, size)))
               ? subtract(u, mu_multiply(u->rate, step))
               : mu_error_code();
}

// ---- Adafactor ----------------------------------------------------------------------------------

enum { ROW_MEANS, COLUMN_MEANS, VELOCITY };

static int adafactor_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[ROW_MEANS] = (mu_optimizer_slot){.name = "r", .without = -1};
    slots[COLUMN_MEANS] = (mu_optimizer_slot){.name = "c", .without = -2};
    slots[VELOCITY] = (mu_optimizer_slot){.name = "velocity"};
    return 3;
}

static mu_tensor *mean_kept(mu_tensor *x, int axis) { return mu_reduce_mean(x, axis, .keep_dims = true); }

// Makes a slot keep · slot + (1 - keep) · x; keep is a scalar.
static mu_tensor *blend_by(const mu_optimizer_update *u, int i, mu_tensor *keep, mu_tensor *x)
{
    mu_tensor *added = mu_multiply(mu_subtract(number(u, 1), keep), x);
    return set(u, i, mu_add(mu_multiply(keep, slot(u, i)), added));
}

// The second moment, of a matrix as the product of its means by rows and by columns.
static mu_tensor *adafactor_velocity(const mu_optimizer_update *u, mu_tensor *keep, mu_tensor *squares)
{
    if (mu_tensor_rank(squares) < 2)
        return blend_by(u, VELOCITY, keep, squares);
    mu_tensor *rows = blend_by(u, ROW_MEANS, keep, mu_reduce_mean(squares, -1));
    mu_tensor *columns = blend_by(u, COLUMN_MEANS, keep, mu_reduce_mean(squares, -2));
    mu_tensor *shares = mu_expand_dims(mu_divide(rows, mean_kept(rows, -1)), -1);
    return set(u, VELOCITY, mu_multiply(shares, mu_expand_dims(columns, -2)));
}

static mu_status adafactor_update(const mu_optimizer_update *u)
{
    const mu_adafactor_args *args = u->optimizer->args;
    mu_tensor *one = number(u, 1), *falling = mu_reciprocal(mu_sqrt(u->step));
    mu_tensor *rate = args->no_relative_step || args->schedule ? u->rate : mu_minimum(u->rate, falling);
    mu_tensor *size = mu_sqrt(mu_reduce_mean(mu_square(mu__variable_read(u->variable)), MU_ALL_AXES));
    mu_tensor *scale = mu_multiply(mu_maximum(number(u, args->epsilon_2), size), mu_minimum(rate, falling));
    mu_tensor *keep = mu_subtract(one, mu_pow(u->step, number(u, args->beta_2_decay)));
    mu_tensor *velocity = adafactor_velocity(u, keep, mu_add(u->magnitude, number(u, args->epsilon_1)));
    mu_tensor *spread = mu_sqrt(mu_reduce_mean(mu_divide(u->magnitude, velocity), MU_ALL_AXES));
    mu_tensor *limit = mu_maximum(one, mu_divide(spread, number(u, args->clip_threshold)));
    return subtract(u, mu_multiply(scale, mu_divide(mu_divide(u->gradient.dense, mu_sqrt(velocity)), limit)));
}

// ---- Ftrl, Lion ---------------------------------------------------------------------------------

static int ftrl_slots(const void *args, mu_optimizer_slot *slots)
{
    const double initial = ((const mu_ftrl_args *)args)->initial_accumulator_value;
    slots[0] = (mu_optimizer_slot){.name = "accumulator", .initial = initial};
    slots[1] = (mu_optimizer_slot){.name = "linear"};
    return 2;
}

static mu_status ftrl_update(const mu_optimizer_update *u)
{
    const mu_ftrl_args *args = u->optimizer->args;
    mu_tensor *variable = mu__variable_read(u->variable), *before = slot(u, 0);
    mu_tensor *l1 = number(u, args->l1_regularization_strength);
    mu_tensor *power = number(u, -args->learning_rate_power);
    mu_tensor *l2 =
        mu_add(number(u, args->l2_regularization_strength), mu_divide(number(u, args->beta), times(u, 2, u->rate)));
    mu_tensor *gradient = mu_add(u->gradient.dense, times(u, 2 * args->l2_shrinkage_regularization_strength, variable));
    mu_tensor *sum = set(u, 0, mu_add(before, u->magnitude)), *root = mu_pow(sum, power);
    mu_tensor *grown = mu_divide(mu_subtract(root, mu_pow(before, power)), u->rate);
    mu_tensor *linear = set(u, 1, mu_add(slot(u, 1), mu_subtract(gradient, mu_multiply(grown, variable))));
    mu_tensor *quadratic = mu_add(mu_divide(root, u->rate), times(u, 2, l2));
    mu_tensor *next = mu_divide(mu_subtract(mu_clip_by_value(linear, mu_neg(l1), l1), linear), quadratic);
    return next ? mu__variable_update(u->variable, MU_UPDATE_ASSIGN, next) : mu_error_code();
}

// Keras recomputes every row. That costs a server nothing on the wire; elsewhere the dense formula is as good.
static bool ftrl_takes_slices(const void *args, const mu_variable *variable)
{
    return variable->resource.home && takes_slices(args, variable);
}

static mu_status ftrl_slices(const mu_optimizer_update *u)
{
    const mu_ftrl_args *args = u->optimizer->args;
    const mu_apply_slices_attrs attrs = slices_attrs(u, false);
    mu_tensor *l2 =
        mu_add(number(u, args->l2_regularization_strength), mu_divide(number(u, args->beta), times(u, 2, u->rate)));
    mu_tensor *in[] = {u->rate,
                       mu_constant(MU_F64, args->learning_rate_power),
                       mu_constant(MU_F64, args->l1_regularization_strength),
                       l2,
                       mu_constant(MU_F64, args->l2_shrinkage_regularization_strength),
                       u->gradient.values,
                       u->gradient.indices};
    mu_resource *resources[] = {&u->variable->resource, &u->slots[0]->resource, &u->slots[1]->resource};
    return mu__apply(&mu_op_apply_ftrl_slices, &attrs, 7, in, 3, resources, NULL);
}

static int lion_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[0] = (mu_optimizer_slot){.name = "momentum"};
    return 1;
}

static mu_status lion_update(const mu_optimizer_update *u)
{
    const mu_lion_args *args = u->optimizer->args;
    mu_tensor *before = slot(u, 0), *gradient = u->gradient.dense;
    mu_tensor *direction = mu_sign(mu_add(times(u, args->beta_1, before), times(u, 1 - args->beta_1, gradient)));
    MU_TRY(subtract(u, mu_multiply(u->rate, direction)));
    return set(u, 0, mu_add(times(u, args->beta_2, before), times(u, 1 - args->beta_2, gradient))) ? MU_OK
                                                                                                   : mu_error_code();
}

// ---- Muon ---------------------------------------------------------------------------------------

static mu_status muon_complete(void *arguments)
{
    const mu_muon_args *args = arguments;
    for (int i = 0; i < args->n_exclude_layers; i++)
        MU_TRY(mu__expression_check("mu_muon: exclude_layers", args->exclude_layers[i]));
    return MU_OK;
}

// Whether Adam is to update a variable; once it has slots, they tell (mu__optimizer_lacks).
static bool muon_leaves(const mu_muon_args *args, const mu_variable *variable)
{
    const char *path = mu__optimizer_path(variable);
    bool leaves = variable->resource.spec.shape.rank != 2 ||
                  (!args->no_exclude_embeddings && strcasestr(path, "embedding") != NULL);
    for (int i = 0; !leaves && i < args->n_exclude_layers; i++)
        leaves = mu__expression_occurs(args->exclude_layers[i], path);
    return leaves;
}

enum { MUON_MOMENTUM, MUON_VELOCITY };

static int muon_slots(const void *args, mu_optimizer_slot *slots)
{
    (void)args;
    slots[MUON_MOMENTUM] = (mu_optimizer_slot){.name = "momentum"};
    slots[MUON_VELOCITY] = (mu_optimizer_slot){.name = "velocity"};
    return 2;
}

static bool muon_lacks(const void *args, const mu_variable *variable, int slot)
{
    return slot == MUON_VELOCITY && !muon_leaves(args, variable);
}

static double muon_decay(const mu_optimizer *optimizer, const mu_variable *variable)
{
    const mu_muon_args *args = optimizer->args;
    return !mu__optimizer_lacks(optimizer, variable, MUON_VELOCITY) ? args->adam_weight_decay : args->weight_decay;
}

// The matrix with singular values near 1, by the iteration x ← a x + (b A + c A²) x, where A = x xᵀ.
static mu_tensor *with_equal_values(const mu_optimizer_update *u, const mu_muon_args *args, mu_tensor *x)
{
    const int64_t *dims = u->variable->resource.spec.shape.dims;
    const bool tall = dims[0] > dims[1];
    x = tall ? mu_transpose(x, NULL) : x;
    mu_tensor *size = mu_sqrt(mu_reduce_sum(mu_square(x), MU_ALL_AXES));
    x = mu_divide(x, mu_add(size, number(u, 1e-7)));
    for (int i = 0; i < args->ns_steps && x; i++) {
        mu_tensor *square = mu_matmul_transposed(x, x, false, true);
        mu_tensor *factor = mu_add(times(u, args->muon_b, square), mu_matmul(times(u, args->muon_c, square), square));
        x = mu_add(times(u, args->muon_a, x), mu_matmul(factor, x));
    }
    return tall ? mu_transpose(x, NULL) : x;
}

static mu_status muon_step(const mu_optimizer_update *u, const mu_muon_args *args)
{
    const int64_t *dims = u->variable->resource.spec.shape.dims;
    if (u->variable->slice)
        return mu__error(MU_UNIMPLEMENTED,
                         "mu_muon: '%s' is divided among servers, and its steps need the whole matrix; name it in "
                         ".exclude_layers, so that Adam updates it, or do not divide it",
                         mu__optimizer_path(u->variable));
    mu_tensor *gradient = u->gradient.dense;
    mu_tensor *momentum = set(u, MUON_MOMENTUM, mu_add(times(u, args->momentum, slot(u, MUON_MOMENTUM)), gradient));
    mu_tensor *ahead = args->no_nesterov ? momentum : mu_add(gradient, times(u, args->momentum, momentum));
    mu_tensor *step = mu_multiply(u->rate, with_equal_values(u, args, ahead));
    const double scale = args->rms_rate == 0 ? 1 : sqrt((double)MU_MAX(dims[0], dims[1])) * args->rms_rate;
    return subtract(u, times(u, scale, step));
}

static mu_status muon_update(const mu_optimizer_update *u)
{
    const mu_muon_args *args = u->optimizer->args;
    if (mu__optimizer_lacks(u->optimizer, u->variable, MUON_VELOCITY))
        return muon_step(u, args);
    mu_tensor *momentum = blend(u, MUON_MOMENTUM, args->adam_beta_1, u->gradient.dense);
    mu_tensor *velocity = blend(u, MUON_VELOCITY, args->adam_beta_2, u->magnitude);
    mu_tensor *rate =
        mu_divide(mu_multiply(times(u, args->adam_lr_ratio, u->rate), mu_sqrt(correction(u, args->adam_beta_2))),
                  correction(u, args->adam_beta_1));
    return subtract(u, mu_divide(mu_multiply(momentum, rate), root_plus(u, velocity, args->epsilon)));
}

// ---- Options ------------------------------------------------------------------------------------

// The rows of mu_optimizer_args: SHARED(type, default rate, default of weight_decay).
#define SHARED(type, rate_value, ...)                                                                             \
    MU_FIELD(type, learning_rate, RATE, .limit = MU_NOT_NEGATIVE, .number = rate_value,                           \
             .second = offsetof(type, schedule)),                                                                 \
        MU_FIELD(type, weight_decay, DOUBLE, .limit = MU_NOT_NEGATIVE, __VA_ARGS__),                              \
        MU_FIELD(type, clipnorm, DOUBLE, .limit = MU_NOT_NEGATIVE, .none = true),                                 \
        MU_FIELD(type, global_clipnorm, DOUBLE, .limit = MU_NOT_NEGATIVE, .none = true),                          \
        MU_FIELD(type, clipvalue, DOUBLE, .limit = MU_NOT_NEGATIVE, .none = true), MU_FIELD(type, use_ema, FLAG), \
        MU_FIELD(type, ema_momentum, DOUBLE, .limit = MU_FRACTION, .number = .99),                                \
        MU_FIELD(type, ema_overwrite_frequency, INT, .limit = MU_NOT_NEGATIVE, .none = true),                     \
        MU_FIELD(type, loss_scale_factor, DOUBLE, .limit = MU_NOT_NEGATIVE, .none = true),                        \
        MU_FIELD(type, gradient_accumulation_steps, INT, .limit = MU_NOT_NEGATIVE, .none = true),                 \
        MU_FIELD(type, name, NAME)
#define BETAS(type)                                                      \
    MU_FIELD(type, beta_1, DOUBLE, .limit = MU_BELOW_ONE, .number = .9), \
        MU_FIELD(type, beta_2, DOUBLE, .limit = MU_BELOW_ONE, .number = .999)
#define EPSILON(type) MU_FIELD(type, epsilon, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-7)

static const mu_field sgd_fields[] = {
    SHARED(mu_sgd_args, .01, .none = true),
    MU_FIELD(mu_sgd_args, momentum, DOUBLE, .limit = MU_BELOW_ONE),
    MU_FIELD(mu_sgd_args, nesterov, FLAG),
    {0},
};
static const mu_field adam_fields[] = {
    SHARED(mu_adam_args, .001, .none = true),
    BETAS(mu_adam_args),
    EPSILON(mu_adam_args),
    MU_FIELD(mu_adam_args, amsgrad, FLAG),
    {0},
};
static const mu_field adamw_fields[] = {
    SHARED(mu_adam_args, .001, .number = .004),
    BETAS(mu_adam_args),
    EPSILON(mu_adam_args),
    MU_FIELD(mu_adam_args, amsgrad, FLAG),
    {0},
};
static const mu_field moments_fields[] = {
    SHARED(mu_moments_args, .001, .none = true),
    BETAS(mu_moments_args),
    EPSILON(mu_moments_args),
    {0},
};
static const mu_field rmsprop_fields[] = {
    SHARED(mu_rmsprop_args, .001, .none = true),
    MU_FIELD(mu_rmsprop_args, rho, DOUBLE, .limit = MU_FRACTION, .number = .9),
    MU_FIELD(mu_rmsprop_args, momentum, DOUBLE, .limit = MU_FRACTION),
    EPSILON(mu_rmsprop_args),
    MU_FIELD(mu_rmsprop_args, centered, FLAG),
    {0},
};
static const mu_field adagrad_fields[] = {
    SHARED(mu_adagrad_args, .001, .none = true),
    MU_FIELD(mu_adagrad_args, initial_accumulator_value, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .1),
    EPSILON(mu_adagrad_args),
    {0},
};
static const mu_field adadelta_fields[] = {
    SHARED(mu_adadelta_args, .001, .none = true),
    MU_FIELD(mu_adadelta_args, rho, DOUBLE, .limit = MU_FRACTION, .number = .95),
    EPSILON(mu_adadelta_args),
    {0},
};
static const mu_field adafactor_fields[] = {
    SHARED(mu_adafactor_args, .001, .none = true),
    MU_FIELD(mu_adafactor_args, beta_2_decay, DOUBLE, .limit = MU_NOT_POSITIVE, .number = -.8),
    MU_FIELD(mu_adafactor_args, epsilon_1, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-30),
    MU_FIELD(mu_adafactor_args, epsilon_2, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-3),
    MU_FIELD(mu_adafactor_args, clip_threshold, DOUBLE, .limit = MU_POSITIVE, .number = 1),
    MU_FIELD(mu_adafactor_args, no_relative_step, NOT, .keras = "relative_step"),
    {0},
};
static const mu_field ftrl_fields[] = {
    SHARED(mu_ftrl_args, .001, .none = true),
    MU_FIELD(mu_ftrl_args, learning_rate_power, DOUBLE, .limit = MU_NOT_POSITIVE, .number = -.5),
    MU_FIELD(mu_ftrl_args, initial_accumulator_value, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .1),
    MU_FIELD(mu_ftrl_args, l1_regularization_strength, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_ftrl_args, l2_regularization_strength, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_ftrl_args, l2_shrinkage_regularization_strength, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_ftrl_args, beta, DOUBLE),
    {0},
};
static const mu_field muon_fields[] = {
    SHARED(mu_muon_args, .001, .number = .004, .none = true),
    MU_FIELD(mu_muon_args, adam_beta_1, DOUBLE, .limit = MU_BELOW_ONE, .number = .9),
    MU_FIELD(mu_muon_args, adam_beta_2, DOUBLE, .limit = MU_BELOW_ONE, .number = .999),
    MU_FIELD(mu_muon_args, adam_weight_decay, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .004, .none = true),
    EPSILON(mu_muon_args),
    MU_FIELD(mu_muon_args, exclude_layers, TEXTS, .second = offsetof(mu_muon_args, n_exclude_layers),
             .none_is_empty = true),
    MU_FIELD(mu_muon_args, no_exclude_embeddings, NOT, .keras = "exclude_embeddings"),
    MU_FIELD(mu_muon_args, muon_a, DOUBLE, .number = 3.4445),
    MU_FIELD(mu_muon_args, muon_b, DOUBLE, .number = -4.775),
    MU_FIELD(mu_muon_args, muon_c, DOUBLE, .number = 2.0315),
    MU_FIELD(mu_muon_args, adam_lr_ratio, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1),
    MU_FIELD(mu_muon_args, momentum, DOUBLE, .limit = MU_BELOW_ONE, .number = .95),
    MU_FIELD(mu_muon_args, ns_steps, INT, .limit = MU_POSITIVE, .number = 5),
    MU_FIELD(mu_muon_args, no_nesterov, NOT, .keras = "nesterov"),
    MU_FIELD(mu_muon_args, rms_rate, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .2, .none = true),
    {0},
};
static const mu_field lion_fields[] = {
    SHARED(mu_lion_args, .001, .none = true),
    MU_FIELD(mu_lion_args, beta_1, DOUBLE, .limit = MU_INSIDE, .number = .9),
    MU_FIELD(mu_lion_args, beta_2, DOUBLE, .limit = MU_FRACTION, .number = .99),
    {0},
};

// ---- Classes ------------------------------------------------------------------------------------

// OPTIMIZER(the word of mu_WORD, Keras's class, the words of mu_WORD_args and of WORD_fields, functions …)
#define OPTIMIZER(word, keras_name, options, rows, ...) \
    OPTIMIZER_CHECKED(word, keras_name, options, rows, NULL, __VA_ARGS__)
#define OPTIMIZER_CHECKED(word, keras_name, options, rows, complete, ...)                                    \
    static const mu_optimizer_ops word##_ops = {                                                             \
        .class = {#word, keras_name, "mu_" #word, MU_OPTIONS(mu_##options##_args), rows##_fields, complete}, \
        __VA_ARGS__};                                                                                        \
    mu_optimizer *mu_##word##_with(const mu_##options##_args *args) { return mu__optimizer_make(&word##_ops, args); }

OPTIMIZER(sgd, "SGD", sgd, sgd, .slots = sgd_slots, .update = sgd_update, .takes_slices = takes_slices,
          .update_slices = sgd_slices)
OPTIMIZER(adam, "Adam", adam, adam, .slots = adam_slots, .slots_together = 2, .magnitude = mu_square,
          .update = adam_update, .takes_slices = adam_takes_slices, .update_slices = adam_slices)
OPTIMIZER(adamw, "AdamW", adam, adamw, .slots = adam_slots, .slots_together = 2, .magnitude = mu_square,
          .update = adam_update, .takes_slices = adam_takes_slices, .update_slices = adam_slices)
OPTIMIZER(adamax, "Adamax", moments, moments, .slots = adamax_slots, .slots_together = 2, .magnitude = mu_abs,
          .update = adamax_update)
OPTIMIZER(nadam, "Nadam", moments, moments, .slots = moment_slots, .slots_together = 2, .scalars = nadam_scalars,
          .magnitude = mu_square, .begin = nadam_begin, .recall = nadam_recall, .update = nadam_update)
OPTIMIZER(lamb, "Lamb", moments, moments, .slots = moment_slots, .slots_together = 2, .magnitude = mu_square,
          .update = lamb_update)
OPTIMIZER(rmsprop, "RMSprop", rmsprop, rmsprop, .slots = rmsprop_slots, .magnitude = mu_square,
          .update = rmsprop_update)
OPTIMIZER(adagrad, "Adagrad", adagrad, adagrad, .slots = adagrad_slots, .magnitude = mu_square,
          .update = adagrad_update, .takes_slices = takes_slices, .update_slices = adagrad_slices)
OPTIMIZER(adadelta, "Adadelta", adadelta, adadelta, .slots = adadelta_slots, .slots_together = 2,
          .magnitude = mu_square, .update = adadelta_update)
OPTIMIZER(adafactor, "Adafactor", adafactor, adafactor, .slots = adafactor_slots, .slots_together = MU_MAX_SLOTS,
          .magnitude = mu_square, .update = adafactor_update)
OPTIMIZER(ftrl, "Ftrl", ftrl, ftrl, .slots = ftrl_slots, .slots_together = 2, .magnitude = mu_square,
          .update = ftrl_update, .takes_slices = ftrl_takes_slices, .update_slices = ftrl_slices)
OPTIMIZER(lion, "Lion", lion, lion, .slots = lion_slots, .update = lion_update)
OPTIMIZER_CHECKED(muon, "Muon", muon, muon, muon_complete, .slots = muon_slots, .slots_together = 2,
                  .lacks = muon_lacks, .decay = muon_decay, .magnitude = mu_square, .update = muon_update)

// All but the last have defaults for every option.
static const mu_optimizer_ops *const classes[] = {
    &sgd_ops,     &adam_ops,     &adamw_ops,     &adamax_ops, &nadam_ops, &lamb_ops, &rmsprop_ops,
    &adagrad_ops, &adadelta_ops, &adafactor_ops, &ftrl_ops,   &lion_ops,  &muon_ops, &mu__loss_scale_ops,
};

const mu_optimizer_ops *mu__optimizer_find(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(classes); i++)
        if (strcasecmp(classes[i]->class.name, name) == 0 || strcasecmp(classes[i]->class.keras, name) == 0)
            return classes[i];
    return NULL;
}

mu_optimizer *mu__optimizer_named(const char *name, const char *function)
{
    const mu_optimizer_ops *ops = mu__optimizer_find(name);
    if (ops && ops != &mu__loss_scale_ops)
        return mu__optimizer_make(ops, NULL);
    char known[256] = "";
    for (size_t i = 0; i + 1 < MU_COUNT(classes); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", classes[i]->class.name);
    }
    mu__error(MU_INVALID_ARGUMENT, "%s: no optimizer is named '%.60s'; expected an object or one of %s", function, name,
              known);
    return NULL;
}
