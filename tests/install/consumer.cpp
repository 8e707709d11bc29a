// The same from C++17, where the functions that take a struct stand in for the macros.
#include <muster.h>

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
    return mu_exit(ok);
}
