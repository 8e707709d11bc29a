// Whether n numbers lie between two others; included by math.c and math_f64.c with T, the type of the numbers. Loops
// without a branch, so that they vectorise.
static bool all_between(const T *in, T low, T high, int64_t n)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= !((in[i] > low) & (in[i] < high));
    return outside == 0;
}
