// The same from C++17, where the functions that take a struct stand in for the macros.
#include <muster.h>

#include <cstring>
#include <vector>

int main()
{
    mu_runtime_args args = {};
    args.size = sizeof args;
    args.threads = 1;
    mu_init_with(&args);

    const std::vector<float> values = {1, 2, 3};
    mu_tensor *tensor = mu_vector_f32(static_cast<int64_t>(values.size()), values.data());
    const auto *data = static_cast<const float *>(mu_tensor_data(tensor));
    const bool ok = data && data[2] == 3 && mu_tensor_dim(tensor, 0) == 3 && mu_device_count() > 0;
    mu_model *model = mu_sequential(mu_flatten());
    mu_compile_args with = {};
    with.size = sizeof with;
    with.model = model;
    with.loss = "mse";
    with.metrics = MU_METRICS(mu_accuracy(), mu_mean_metric("m"));
    bool ends = mu_compile_with(&with) == MU_OK;
    with.metrics = mu_accuracy();
    ends = ends && mu_compile_with(&with) == MU_OK;
    const bool failed = !mu_add(tensor, mu_vector_f32(2, values.data()));
    const bool named = std::strstr(mu_error_take().message, "consumer.cpp:") != nullptr;
    return mu_exit(ok && ends && failed && named);
}
