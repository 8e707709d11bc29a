// Loops that the compiler vectorises, compiled once per instruction set. A call runs the version for the set in use,
// which is the same one for these loops and for the tables of kernels.h, and which MUSTER_ISA selects.
#ifndef MU_SRC_KERNELS_DISPATCH_H
#define MU_SRC_KERNELS_DISPATCH_H

#include <stdatomic.h>

// Instruction sets, in ascending order.
typedef enum mu_isa { MU_ISA_BASE, MU_ISA_AVX2, MU_ISA_AVX512 } mu_isa;

extern atomic_int mu__isa_in_use; // mu_isa; -1 until the first use
mu_isa mu__isa_choose(void);      // selects the best set of this processor unless one is selected already

static inline mu_isa mu__isa(void)
{
    const int isa = atomic_load_explicit(&mu__isa_in_use, memory_order_relaxed);
    return isa >= 0 ? (mu_isa)isa : mu__isa_choose();
}

// MU_PER_ISA(name, (parameters), (arguments)) { body } defines the static function `name`, which returns nothing;
// MU_PER_ISA_RESULT takes the type of a result first. The arguments are the parameters' names. With a sanitizer only
// the plain version is compiled, since gcc refuses to inline between instruction sets then.
#ifdef __has_feature
#define MU_PER_ISA_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MU_PER_ISA_SANITIZED 1
#else
#define MU_PER_ISA_SANITIZED 0
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !MU_PER_ISA_SANITIZED
#define MU_PER_ISA_X86 1
// By their features, all of which kernels.c asks the processor for: clang 14 does not know the names x86-64-v3 and -v4.
#define MU_PER_ISA_AVX2   target("avx2,bmi,bmi2,f16c,fma,popcnt")
#define MU_PER_ISA_AVX512 target("avx2,bmi,bmi2,f16c,fma,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")
#define MU_PER_ISA_CODE(type, name, parameters) \
    static type name parameters;                \
    static inline __attribute__((always_inline)) type name##_body parameters
#define MU_PER_ISA_NAMED(name, parameters, arguments)                                                  \
    MU_PER_ISA_CODE(void, name, parameters);                                                           \
    static __attribute__((MU_PER_ISA_AVX512)) void name##_avx512 parameters { name##_body arguments; } \
    static __attribute__((MU_PER_ISA_AVX2)) void name##_avx2 parameters { name##_body arguments; }     \
    static __attribute__((noinline)) void name##_base parameters { name##_body arguments; }            \
    static void name parameters                                                                        \
    {                                                                                                  \
        switch (mu__isa()) {                                                                           \
        case MU_ISA_AVX512: name##_avx512 arguments; break;                                            \
        case MU_ISA_AVX2: name##_avx2 arguments; break;                                                \
        default: name##_base arguments;                                                                \
        }                                                                                              \
    }                                                                                                  \
    MU_PER_ISA_CODE(void, name, parameters)
#define MU_PER_ISA_RESULT_NAMED(type, name, parameters, arguments)                                            \
    MU_PER_ISA_CODE(type, name, parameters);                                                                  \
    static __attribute__((MU_PER_ISA_AVX512)) type name##_avx512 parameters { return name##_body arguments; } \
    static __attribute__((MU_PER_ISA_AVX2)) type name##_avx2 parameters { return name##_body arguments; }     \
    static __attribute__((noinline)) type name##_base parameters { return name##_body arguments; }            \
    static type name parameters                                                                               \
    {                                                                                                         \
        switch (mu__isa()) {                                                                                  \
        case MU_ISA_AVX512: return name##_avx512 arguments;                                                   \
        case MU_ISA_AVX2: return name##_avx2 arguments;                                                       \
        default: return name##_base arguments;                                                                \
        }                                                                                                     \
    }                                                                                                         \
    MU_PER_ISA_CODE(type, name, parameters)
// MU_PER_ISA_VECTORS is MU_PER_ISA for a body with one more parameter in front, vector_bytes: the size of the vectors
// that the set has. The compiler turns operations on larger ones into loads and stores.
#define MU_PER_ISA_LIST(...) __VA_ARGS__
#define MU_PER_ISA_VECTORS_NAMED(name, parameters, arguments)                                                          \
    static void name parameters;                                                                                       \
    static inline __attribute__((always_inline)) void name##_body(const int vector_bytes, MU_PER_ISA_LIST parameters); \
    static __attribute__((MU_PER_ISA_AVX512)) void name##_avx512 parameters                                            \
    {                                                                                                                  \
        name##_body(64, MU_PER_ISA_LIST arguments);                                                                    \
    }                                                                                                                  \
    static __attribute__((MU_PER_ISA_AVX2)) void name##_avx2 parameters                                                \
    {                                                                                                                  \
        name##_body(32, MU_PER_ISA_LIST arguments);                                                                    \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_base parameters { name##_body(16, MU_PER_ISA_LIST arguments); }       \
    static void name parameters                                                                                        \
    {                                                                                                                  \
        switch (mu__isa()) {                                                                                           \
        case MU_ISA_AVX512: name##_avx512 arguments; break;                                                            \
        case MU_ISA_AVX2: name##_avx2 arguments; break;                                                                \
        default: name##_base arguments;                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) void name##_body(const int vector_bytes, MU_PER_ISA_LIST parameters)
#define MU_PER_ISA_VECTORS(name, parameters, arguments)      MU_PER_ISA_VECTORS_NAMED(name, parameters, arguments)
#define MU_PER_ISA(name, parameters, arguments)              MU_PER_ISA_NAMED(name, parameters, arguments)
#define MU_PER_ISA_RESULT(type, name, parameters, arguments) MU_PER_ISA_RESULT_NAMED(type, name, parameters, arguments)
#else
#define MU_PER_ISA_X86       0
#define MU_PER_ISA_LIST(...) __VA_ARGS__
#define MU_PER_ISA_VECTORS_NAMED(name, parameters, arguments)                           \
    static inline void name##_body(const int vector_bytes, MU_PER_ISA_LIST parameters); \
    static void name parameters { name##_body(16, MU_PER_ISA_LIST arguments); }         \
    static inline void name##_body(const int vector_bytes, MU_PER_ISA_LIST parameters)
#define MU_PER_ISA_VECTORS(name, parameters, arguments)      MU_PER_ISA_VECTORS_NAMED(name, parameters, arguments)
#define MU_PER_ISA(name, parameters, arguments)              static void name parameters
#define MU_PER_ISA_RESULT(type, name, parameters, arguments) static type name parameters
#endif

#endif
