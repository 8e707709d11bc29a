// Measures the machine's own multiply-add limit for the kernel benchmark.
#ifndef MU_BENCH_KERNELS_PEAK_H
#define MU_BENCH_KERNELS_PEAK_H

// run_peak does a fixed number of independent f32 operations in registers and returns that number; it stores the
// results in sink, so that the compiler cannot drop the operations.
double run_peak(volatile float *sink);

#endif
