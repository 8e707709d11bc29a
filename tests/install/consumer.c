// A program of somebody else's: built outside the tree with what pkg-config says, it saves and loads a map of
// tensors and meets an error on the way. Its argument is the version that pkg-config reports.
#include <muster.h>

#include <stdio.h>
#include <string.h>

static const char path[] = "consumer.safetensors";

static bool saves_and_loads(void)
{
    mu_value *map = mu_map("a", mu_constant(MU_F32, 1.5), "b", mu_vector_f32(2, (float[]){3, 4}), MU_END);
    mu_save_tensors(path, map, .metadata = (const char *[]){"made by", "consumer", NULL});
    mu_value *back = mu_load_tensors(path);
    remove(path);
    return mu_scalar(mu_value_get(back, "a")) == 1.5 &&
           mu_tensor_elements(mu_value_tensor(mu_value_get(back, "b"))) == 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], mu_version()) != 0) {
        fprintf(stderr, "pkg-config says %s, the library %s\n", argv[1], mu_version());
        return 1;
    }
    mu_init(.threads = 1);
    mu_load_tensors("no such file");
    const bool reported = mu_error_take().code == MU_NOT_FOUND;
    return mu_exit(reported && saves_and_loads());
}
