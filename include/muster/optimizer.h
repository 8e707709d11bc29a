// Optimizers and learning rate schedules as in Keras, and the parts that loops of one's own need: gradients that are
// clipped and applied, losses that are scaled.
//
// Names, defaults and formulas are those of Keras 3. An optimizer's state is made with its first update: tensors like
// each variable, which are named after the optimizer, the variable and Keras's name of the state, such as
// "adam/dense/kernel/velocity".
//
// Errors: INVALID_ARGUMENT for an option outside of its range, a name that is none, or a list of anything but
// variables. Variables that are returned belong to the optimizer.
#ifndef MUSTER_OPTIMIZER_H
#define MUSTER_OPTIMIZER_H

#include <muster/distribute.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_optimizer mu_optimizer; // the rule and the state with which gradients update variables
typedef struct mu_learning_rate_schedule mu_learning_rate_schedule; // a learning rate that depends on the step

// ---- Learning rate schedules --------------------------------------------------------------------

// A schedule is evaluated with ops inside the step, from the number of earlier updates, so a traced step stays the same
// when the rate changes. Numbers of steps are positive.

typedef struct mu_exponential_decay_args {
    size_t size;
    const char *given;
    double initial_learning_rate; // required
    int64_t decay_steps;          // required
    double decay_rate;            // required
    mu_keyword_only only_;
    bool staircase; // count whole multiples of decay_steps only
    const char *name;
} mu_exponential_decay_args;
// mu_exponential_decay makes the schedule initial_learning_rate · decay_rate^(step / decay_steps).
#define mu_exponential_decay(...) \
    mu_exponential_decay_with(MU_ARGS(mu_exponential_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_exponential_decay_with(const mu_exponential_decay_args *args);
// mu_inverse_time_decay makes the schedule initial_learning_rate / (1 + decay_rate · step / decay_steps).
#define mu_inverse_time_decay(...) \
    mu_inverse_time_decay_with(MU_ARGS(mu_exponential_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_inverse_time_decay_with(const mu_exponential_decay_args *args);

typedef struct mu_polynomial_decay_args {
    size_t size;
    const char *given;
    double initial_learning_rate; // required
    int64_t decay_steps;          // required
    mu_keyword_only only_;
    double end_learning_rate; // default 0.0001
    double power;             // default 1
    bool cycle;               // after decay_steps begin again, with 2, 3, … times as many steps
    const char *name;
} mu_polynomial_decay_args;
// mu_polynomial_decay makes a schedule that falls from initial_learning_rate to end_learning_rate within decay_steps,
// as (1 - step / decay_steps)^power.
#define mu_polynomial_decay(...) mu_polynomial_decay_with(MU_ARGS(mu_polynomial_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_polynomial_decay_with(const mu_polynomial_decay_args *args);

typedef struct mu_piecewise_constant_decay_args {
    size_t size;
    const char *given;
    int n_boundaries;         // at least 1
    const double *boundaries; // steps in ascending order
    int n_values;             // n_boundaries + 1
    const double *values;     // rates
    mu_keyword_only only_;
    const char *name;
} mu_piecewise_constant_decay_args;
// mu_piecewise_constant_decay makes a schedule that is values[0] up to and including step boundaries[0], then values[1]
// up to and including boundaries[1], and so on.
#define mu_piecewise_constant_decay(...) \
    mu_piecewise_constant_decay_with(MU_ARGS(mu_piecewise_constant_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_piecewise_constant_decay_with(const mu_piecewise_constant_decay_args *args);

typedef struct mu_cosine_decay_args {
    size_t size;
    const char *given;
    double initial_learning_rate; // required
    int64_t decay_steps;          // required; counted after the warm-up
    mu_keyword_only only_;
    double alpha;         // the last rate, as a share of the largest; default 0
    double warmup_target; // rate after the warm-up, which begins at initial_learning_rate
    int64_t warmup_steps; // with warmup_target; default 0
    const char *name;
} mu_cosine_decay_args;
// mu_cosine_decay makes a schedule that falls along half a cosine, after a linear warm-up if warmup_target is given.
#define mu_cosine_decay(...) mu_cosine_decay_with(MU_ARGS(mu_cosine_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_cosine_decay_with(const mu_cosine_decay_args *args);

typedef struct mu_cosine_decay_restarts_args {
    size_t size;
    const char *given;
    double initial_learning_rate; // required
    int64_t first_decay_steps;    // required: steps of the first period
    mu_keyword_only only_;
    double t_mul; // each period is this many times as long as the previous one; default 2
    double m_mul; // and begins with so many times its first rate; default 1
    double alpha; // the last rate, as a share of the first; default 0
    const char *name;
} mu_cosine_decay_restarts_args;
// mu_cosine_decay_restarts makes a schedule of half cosines that begin again (SGDR; Loshchilov and Hutter, 2017).
#define mu_cosine_decay_restarts(...) \
    mu_cosine_decay_restarts_with(MU_ARGS(mu_cosine_decay_restarts_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_cosine_decay_restarts_with(const mu_cosine_decay_restarts_args *args);

typedef struct mu_own_schedule_args {
    size_t size;
    const char *given;
    // call returns the rate, a scalar of step's type, for step, a scalar of the type of mu_set_floatx. It uses ops, as
    // a traced function does; NULL after mu_fail(code, reason).
    mu_tensor *(*call)(mu_tensor *step, void *arg);
    void *arg; // passed to call; must live as long as the schedule
    mu_keyword_only only_;
    const char *name;
} mu_own_schedule_args;
// mu_learning_rate_schedule_new makes a schedule of a function of the program's own.
#define mu_learning_rate_schedule_new(...) \
    mu_learning_rate_schedule_new_with(MU_ARGS(mu_own_schedule_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_learning_rate_schedule *mu_learning_rate_schedule_new_with(const mu_own_schedule_args *args);

// mu_learning_rate_schedule_call returns the rate for a step: a scalar of the type of mu_set_floatx for a scalar of any
// type of numbers.
MU_API mu_tensor *mu_learning_rate_schedule_call(const mu_learning_rate_schedule *schedule, mu_tensor *step);

// ---- Optimizers ---------------------------------------------------------------------------------

// Every optimizer begins with these options. Errors: INVALID_ARGUMENT for a value outside of its range, and for more
// than one kind of clipping.
typedef struct mu_optimizer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // 0 or more; each class has its own default
    mu_learning_rate_schedule *schedule; // instead of learning_rate
    // Before each update a variable loses weight_decay · learning rate of itself; default none. See
    // mu_exclude_from_weight_decay.
    double weight_decay;
    // Default none; see mu_clip_gradients. Each replica clips its own gradients before they are summed, as in Keras, so
    // results depend on the number of replicas, except with gradient_accumulation_steps.
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema; // keep a moving average of each variable, the state average
    // average = ema_momentum · average + (1 - ema_momentum) · variable; default 0.99
    double ema_momentum;
    // Every so many updates the variables become their averages. Default: only at the end of mu_fit, or by
    // mu_optimizer_finalize_variable_values.
    int ema_overwrite_frequency;
    double loss_scale_factor; // mu_scale_loss multiplies by it, and gradients are divided; default none
    // Update the variables only every so many calls, with the mean of the gradients since; at least 2, default none.
    // The state gradient_accumulator holds their sum. Schedules count calls, all else counts updates.
    int gradient_accumulation_steps;
    const char *name; // of the optimizer's state; default: the class's, such as "adam"
} mu_optimizer_args;

typedef struct mu_adam_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double beta_1, beta_2; // default 0.9, 0.999
    double epsilon;        // default 1e-7
    bool amsgrad;          // divide by the largest second moment so far
} mu_adam_args;
// mu_adam makes an Adam optimizer (Kingma and Ba, 2015). State: momentum and velocity, with amsgrad also velocity_hat.
#define mu_adam(...) mu_adam_with(MU_ARGS(mu_adam_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adam_with(const mu_adam_args *args);

// mu_adamw makes an Adam optimizer with decoupled weight decay, by default 0.004 (Loshchilov and Hutter, 2019). State
// as for mu_adam.
#define mu_adamw(...) mu_adamw_with(MU_ARGS(mu_adam_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adamw_with(const mu_adam_args *args);

typedef struct mu_moments_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double beta_1, beta_2; // default 0.9, 0.999
    double epsilon;        // default 1e-7
} mu_moments_args;
// mu_adamax makes an Adamax optimizer: Adam with the largest gradient in place of the second moment. State: momentum
// and norm.
#define mu_adamax(...) mu_adamax_with(MU_ARGS(mu_moments_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adamax_with(const mu_moments_args *args);

// mu_nadam makes a Nadam optimizer: Adam with Nesterov's momentum (Dozat, 2016). State: momentum, velocity, and the
// scalar u_product.
#define mu_nadam(...) mu_nadam_with(MU_ARGS(mu_moments_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_nadam_with(const mu_moments_args *args);

// mu_lamb makes a Lamb optimizer: Adam whose step for each variable is scaled by the variable's norm (You et al.,
// 2020). State: momentum and velocity.
#define mu_lamb(...) mu_lamb_with(MU_ARGS(mu_moments_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_lamb_with(const mu_moments_args *args);

typedef struct mu_sgd_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.01
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double momentum; // from 0 to below 1; default 0
    bool nesterov;   // use Nesterov's momentum
} mu_sgd_args;
// mu_sgd makes a gradient descent optimizer. State: with momentum, momentum.
#define mu_sgd(...) mu_sgd_with(MU_ARGS(mu_sgd_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_sgd_with(const mu_sgd_args *args);

typedef struct mu_rmsprop_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double rho;      // decay of the mean of squares; default 0.9
    double momentum; // default 0
    double epsilon;  // default 1e-7
    bool centered;   // divide by the gradients' deviation, not their root mean square
} mu_rmsprop_args;
// mu_rmsprop makes an RMSprop optimizer. State: velocity, with momentum also momentum, if centered average_gradient.
#define mu_rmsprop(...) mu_rmsprop_with(MU_ARGS(mu_rmsprop_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_rmsprop_with(const mu_rmsprop_args *args);

typedef struct mu_adagrad_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double initial_accumulator_value; // default 0.1
    double epsilon;                   // default 1e-7
} mu_adagrad_args;
// mu_adagrad makes an Adagrad optimizer (Duchi et al., 2011). State: accumulator.
#define mu_adagrad(...) mu_adagrad_with(MU_ARGS(mu_adagrad_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adagrad_with(const mu_adagrad_args *args);

typedef struct mu_adadelta_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double rho;     // decay of both means of squares; default 0.95
    double epsilon; // default 1e-7
} mu_adadelta_args;
// mu_adadelta makes an Adadelta optimizer (Zeiler, 2012). State: accumulated_grad and accumulated_delta_var.
#define mu_adadelta(...) mu_adadelta_with(MU_ARGS(mu_adadelta_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adadelta_with(const mu_adadelta_args *args);

typedef struct mu_ftrl_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double learning_rate_power;                                    // 0 or less; default -0.5
    double initial_accumulator_value;                              // default 0.1
    double l1_regularization_strength, l2_regularization_strength; // default 0
    double l2_shrinkage_regularization_strength;                   // default 0
    double beta;                                                   // default 0
} mu_ftrl_args;
// mu_ftrl makes an FTRL optimizer ("follow the regularized leader"; McMahan et al., 2013). State: accumulator and
// linear.
#define mu_ftrl(...) mu_ftrl_with(MU_ARGS(mu_ftrl_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_ftrl_with(const mu_ftrl_args *args);

typedef struct mu_lion_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double beta_1, beta_2; // default 0.9, 0.99
} mu_lion_args;
// mu_lion makes a Lion optimizer, which steps by the sign of the momentum (Chen et al., 2023). State: momentum.
#define mu_lion(...) mu_lion_with(MU_ARGS(mu_lion_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_lion_with(const mu_lion_args *args);

typedef struct mu_muon_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;                 // of matrices; default 0.004
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double adam_beta_1, adam_beta_2; // of the variables that Adam updates; default 0.9, 0.999
    double adam_weight_decay;        // of these; default 0.004, 0: none
    double epsilon;                  // likewise; default 1e-7
    // Adam also updates variables in whose path one of these regular expressions occurs, such as that of the last
    // layer, "logits": POSIX extended, at most 1000 bytes and 8 times '+', without '{' and Python's \d
    int n_exclude_layers;
    const char *const *exclude_layers;
    bool no_exclude_embeddings;    // Muon also updates matrices with "embedding" in their path
    double muon_a, muon_b, muon_c; // of the iteration; default 3.4445, -4.775, 2.0315
    double adam_lr_ratio;          // Adam's share of the learning rate; default 1
    double momentum;               // default 0.95
    int ns_steps;                  // iterations; default 5
    bool no_nesterov;
    double rms_rate; // steps are as large as Adam's with 0.2, the default; 0: not scaled
} mu_muon_args;
// mu_muon makes a Muon optimizer (Jordan et al., 2024; Liu et al., 2025): each step of a matrix is its momentum with
// singular values near 1, by ns_steps of Newton and Schulz's iteration. Adam with decoupled weight decay updates all
// other variables, embeddings among them. State: momentum, and for Adam's variables velocity. Errors, when variables
// are updated: UNIMPLEMENTED for a matrix that is divided among servers.
#define mu_muon(...) mu_muon_with(MU_ARGS(mu_muon_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_muon_with(const mu_muon_args *args);

typedef struct mu_adafactor_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double learning_rate;                // default 0.001
    mu_learning_rate_schedule *schedule; // this option and the next eight: as in mu_optimizer_args
    double weight_decay;
    double clipnorm, global_clipnorm, clipvalue;
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency;
    double loss_scale_factor;
    int gradient_accumulation_steps;
    const char *name;
    double beta_2_decay;   // the second moment's decay is 1 - update^beta_2_decay; default -0.8
    double epsilon_1;      // added to squared gradients; default 1e-30
    double epsilon_2;      // least size of a variable that scales its steps; default 1e-3
    double clip_threshold; // largest root mean square of a step before scaling; default 1
    bool no_relative_step; // the rate does not fall as 1 / sqrt(update)
} mu_adafactor_args;
// mu_adafactor makes an Adafactor optimizer, whose second moment of a matrix is the product of a column and a row
// (Shazeer and Stern, 2018). State: r, the means of the last axis, c, those of the axis before it, and velocity; for a
// variable with fewer than two axes velocity alone counts.
#define mu_adafactor(...) mu_adafactor_with(MU_ARGS(mu_adafactor_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_adafactor_with(const mu_adafactor_args *args);

typedef struct mu_loss_scale_args {
    size_t size;
    const char *given;
    mu_optimizer *inner_optimizer; // required
    mu_keyword_only only_;
    double initial_scale;         // default 32768
    int64_t dynamic_growth_steps; // default 2000
    const char *name;
} mu_loss_scale_args;
// mu_loss_scale_optimizer makes an optimizer that scales the loss so that small gradients do not vanish, and lets
// inner_optimizer update with gradients that are divided by the scale. If a gradient is not finite, nothing is updated
// and the scale is halved; after dynamic_growth_steps updates in a row it is doubled. State: step_counter and
// dynamic_scale, besides the inner optimizer's. Retains: inner_optimizer, whose loss_scale_factor does not count.
#define mu_loss_scale_optimizer(...) \
    mu_loss_scale_optimizer_with(MU_ARGS(mu_loss_scale_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_optimizer *mu_loss_scale_optimizer_with(const mu_loss_scale_args *args);

// mu_optimizer_named makes an optimizer with default options by Keras's name, in any case: "adam", "RMSprop".
MU_API mu_optimizer *mu_optimizer_named(const char *name);
// mu_optimizer_learning_rate returns the rate as a scalar variable; assign to it to change the rate. Errors:
// FAILED_PRECONDITION if the optimizer follows a schedule.
MU_API mu_variable *mu_optimizer_learning_rate(mu_optimizer *optimizer);
// mu_optimizer_current_rate returns the rate of the next update, a scalar, that of a schedule too. Errors: those of the
// schedule's function.
MU_API mu_tensor *mu_optimizer_current_rate(mu_optimizer *optimizer);
MU_API mu_variable *mu_optimizer_iterations(mu_optimizer *optimizer); // int64: calls of mu_apply_gradients so far

// mu_variable_set_learning_rate_multiplier makes every optimizer train a variable as if its learning rate were
// multiplied by this number; weight decay, too, is that of the multiplied rate. It is what Keras's MultiOptimizer does
// with several optimizers that differ in their rates. mu_layer_set_learning_rate_multiplier does so for the weights of
// a layer. Call mu_compile afterwards. Files do not keep it. Errors: INVALID_ARGUMENT unless it is above 0; what must
// not change is frozen (mu_layer_set_trainable).
MU_API mu_status mu_variable_set_learning_rate_multiplier(mu_variable *variable, double multiplier);

// mu_optimizer_build makes the optimizer's state for these variables, as its first update would: for a checkpoint that
// is restored before it, of an optimizer that no model is compiled with. variables: a list (mu_trainable_variables).
MU_API mu_status mu_optimizer_build(mu_optimizer *optimizer, mu_value *variables);

// mu_optimizer_config returns an optimizer's configuration as Keras's JSON (valid until the pool closes), from which
// keras.optimizers.deserialize makes the same optimizer. mu_optimizer_from_config makes an optimizer from such a
// configuration. Errors: INVALID_ARGUMENT for text that is not such a configuration; UNIMPLEMENTED for a class or
// option that Muster lacks, and for a schedule that is a function. Both together clone an optimizer: the options and
// the learning rate that it has now, without the state of the variables.
MU_API const char *mu_optimizer_config(const mu_optimizer *optimizer);
MU_API mu_optimizer *mu_optimizer_from_config(const char *json);

typedef struct mu_exclude_from_weight_decay_args {
    size_t size;
    const char *given;
    mu_optimizer *optimizer;
    mu_keyword_only only_;
    mu_value *variables; // a list of variables; or
    const char *names;   // a regular expression (POSIX extended): "bias|gamma"
} mu_exclude_from_weight_decay_args;
// mu_exclude_from_weight_decay makes weight_decay leave variables alone: those given, and those in whose name, without
// the layer's, the expression occurs. Call it before the first update; a second call replaces the first. Retains:
// variables. Errors: FAILED_PRECONDITION after the first update; INVALID_ARGUMENT for an invalid regular expression, or
// one that mu_muon's exclude_layers may not be.
#define mu_exclude_from_weight_decay(...) \
    mu_exclude_from_weight_decay_with(MU_ARGS(mu_exclude_from_weight_decay_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_exclude_from_weight_decay_with(const mu_exclude_from_weight_decay_args *args);

// mu_optimizer_finalize_variable_values makes all variables their moving averages, if the optimizer keeps these
// (use_ema). mu_fit does it after the last epoch.
MU_API mu_status mu_optimizer_finalize_variable_values(mu_optimizer *optimizer);

// mu_scale_loss returns the loss times the optimizer's scale (loss_scale_factor, or that of mu_loss_scale_optimizer).
// Gradients for mu_apply_gradients must be those of the scaled loss. Without a scale, it is the loss itself. mu_fit
// does it.
MU_API mu_tensor *mu_scale_loss(mu_optimizer *optimizer, mu_tensor *loss);

typedef struct mu_apply_gradients_args {
    size_t size;
    const char *given;
    mu_optimizer *optimizer;
    mu_value *gradients; // a list of tensors, indexed slices or variables that hold them
    mu_keyword_only only_;
    mu_value *variables; // those to update, in the order of the gradients
} mu_apply_gradients_args;
// mu_apply_gradients sums the gradients of all replicas and updates the variables. Gradients from mu_gradients or
// mu_clip_gradients know their variables; for gradients from anywhere else (accumulated, scaled, averaged), give
// .variables. A variable on which the loss does not depend stays as it is, without decay. Collective: every replica
// must call it. If several indexed slices have the same row, all of them count; where a formula squares gradients or
// takes their size, each slice by itself, as Keras does. mu_sgd, mu_adam and mu_adamw (without amsgrad) exchange slices
// between replicas as they are; the others, and all with gradient_accumulation_steps or in mu_loss_scale_optimizer,
// exchange sums of the variable's shape. The optimizer's own clipping is applied first, to each replica's gradients;
// with gradient_accumulation_steps, to the mean of all replicas' and steps' gradients. Errors: INVALID_ARGUMENT for
// gradients without variables or with another number of them, for a gradient of another type or shape than its
// variable, and if the loss depends on no variable; FAILED_PRECONDITION for a variable of which several replicas have a
// copy, outside of these; for variables on servers UNAVAILABLE, CANCELLED and DATA_LOSS (muster/parameter_server.h),
// and FAILED_PRECONDITION where calls are applied together and the variable is assigned in a body of control flow, or
// was read or assigned too late.
#define mu_apply_gradients(...) mu_apply_gradients_with(MU_ARGS(mu_apply_gradients_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_apply_gradients_with(const mu_apply_gradients_args *args);

typedef struct mu_clip_gradients_args {
    size_t size;
    const char *given;
    mu_value *gradients; // result of mu_gradients
    mu_keyword_only only_;
    double norm;        // limit for the norm of each gradient; or
    double global_norm; // limit for the norm of all gradients together; or
    double value;       // limit every element to [-value, value]
} mu_clip_gradients_args;
// mu_clip_gradients returns clipped gradients for mu_apply_gradients. Set one of the three limits. Indexed slices are
// clipped as they are, without adding rows with the same index first.
#define mu_clip_gradients(...) mu_clip_gradients_with(MU_ARGS(mu_clip_gradients_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_clip_gradients_with(const mu_clip_gradients_args *args);

#ifdef __cplusplus
}
#endif
#endif
