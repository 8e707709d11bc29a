// The data of the programs that are interrupted: rows of one small set that any model can tell apart, in the order of a
// seeded shuffle, so that an interrupted run must end with the weights of an undisturbed one.
#ifndef MU_TESTS_RANKS_SHUFFLED_ROWS_H
#define MU_TESTS_RANKS_SHUFFLED_ROWS_H

#include <muster.h>

enum { ROWS = 200, WIDTH = 6 };

static inline mu_dataset *shuffled_rows(void)
{
    static float x[ROWS][WIDTH];
    static int64_t y[ROWS];
    for (int i = 0; i < ROWS; i++) {
        y[i] = i * 7 % 3;
        for (int k = 0; k < WIDTH; k++)
            x[i][k] = (float)((i * 31 + k * 17) % 23) / 23 + (float)(k == y[i]);
    }
    mu_value *all = mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, WIDTH}, x),
                            mu_tensor_new(MU_I64, 1, (int64_t[]){ROWS}, y), MU_END);
    return mu_dataset_shuffle(mu_dataset_from_tensor_slices(all), ROWS, .seed = 5);
}

#endif
