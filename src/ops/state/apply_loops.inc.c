// Optimizer loops for one float type T, named by FN; M names its square root.

MU_PER_ISA(FN(descend), (const update_job *j, int64_t begin, int64_t end), (j, begin, end))
{
    T *restrict variable = j->variable;
    T *restrict velocity = j->slots[0];
    const T *restrict grad = j->grad;
    const T rate = (T)j->rate, momentum = (T)j->momentum;
    if (!velocity) {
        for (int64_t i = begin; i < end; i++)
            variable[i] -= rate * grad[i];
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        velocity[i] = momentum * velocity[i] - rate * grad[i];
        variable[i] += j->nesterov ? momentum * velocity[i] - rate * grad[i] : velocity[i];
    }
}

MU_PER_ISA(FN(adam), (const update_job *j, int64_t begin, int64_t end), (j, begin, end))
{
    T *restrict variable = j->variable;
    T *restrict m = j->slots[0], *restrict v = j->slots[1];
    const T *restrict grad = j->grad;
    const T alpha = (T)j->rate, epsilon = (T)j->epsilon;
    const T new_m = (T)(1 - j->beta_1), new_v = (T)(1 - j->beta_2);
    for (int64_t i = begin; i < end; i++) {
        m[i] += (grad[i] - m[i]) * new_m;
        v[i] += (grad[i] * grad[i] - v[i]) * new_v;
        variable[i] -= m[i] * alpha / (M(sqrt)(v[i]) + epsilon);
    }
}

#undef T
#undef FN
#undef M
