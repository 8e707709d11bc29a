// Optimizer updates over one flat range of parameters. Each element's data are read and written once; the loops are
// plain, and the compiler vectorises them. The scalars already include learning-rate decay and step-dependent
// factors.
#include "kernel_slots.h"

#include <math.h>
#include <stddef.h>

void MU_KERNEL(adam)(float *restrict param, float *restrict m, float *restrict v, const float *restrict grad,
                     mu_adam_scalars s, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float g = grad[i];
        m[i] += (g - m[i]) * s.rest_1;
        v[i] += (g * g - v[i]) * s.rest_2;
        param[i] -= s.alpha * m[i] / (sqrtf(v[i]) + s.epsilon);
    }
}

static void sgd_plain(float *restrict param, const float *restrict grad, float rate, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        param[i] -= rate * grad[i];
}

static void sgd_momentum(float *restrict param, float *restrict velocity, const float *restrict grad, mu_sgd_scalars s,
                         int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float step = s.learning_rate * grad[i];
        velocity[i] = s.momentum * velocity[i] - step;
        param[i] += s.nesterov ? s.momentum * velocity[i] - step : velocity[i];
    }
}

void MU_KERNEL(sgd)(float *param, float *velocity, const float *grad, mu_sgd_scalars s, int64_t begin, int64_t end)
{
    if (velocity == NULL)
        sgd_plain(param, grad, s.learning_rate, begin, end);
    else
        sgd_momentum(param, velocity, grad, s, begin, end);
}
