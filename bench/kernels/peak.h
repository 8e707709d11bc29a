// The bench's measure of the machine's own multiply-add limit.
#ifndef MU_BENCH_KERNELS_PEAK_H
#define MU_BENCH_KERNELS_PEAK_H

// run_peak does a fixed number of independent f32 operations in registers and returns that number; what
// they give goes to sink, so that they are not left out.
double run_peak(volatile float *sink);

#endif
