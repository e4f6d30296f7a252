/* SPDX-License-Identifier: Apache-2.0 */
/* processor.c - all that differs between processors: how a thread waits, the mode of the floating
 * point unit, and whether there is what the model's code was generated for. The check runs before any
 * generated code, in code for the baseline processor.
 *
 * Rounding to nearest, no flushing of subnormals, all exceptions masked: results must not depend on
 * the caller's mode, which is put back afterwards.
 * Features are x86-64's bits of cpuid, and of xgetbv for the vector registers that the system saves;
 * aarch64: the kernel's hardware capabilities. Names are LLVM's. */

#if defined(__x86_64__)

#include <cpuid.h>

static void onnxc_pause(void) { __builtin_ia32_pause(); }

/* Of a function: code for vectors of 32 bytes whose products and sums are one instruction. By a standard of C, GCC
 * would make them two. */
#if defined(__clang__)
#define ONNXC_FUSED __attribute__((target("avx2,fma")))
#else
#define ONNXC_FUSED __attribute__((target("avx2,fma"), optimize("fp-contract=fast")))
#endif

typedef unsigned onnxc_float_mode;
static onnxc_float_mode onnxc_enter_float_mode(void) {
    onnxc_float_mode before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return before;
}
static void onnxc_leave_float_mode(onnxc_float_mode mode) { __builtin_ia32_ldmxcsr(mode); }

enum { ONNXC_EAX, ONNXC_EBX, ONNXC_ECX, ONNXC_EDX };
enum { ONNXC_NO_STATE = 0, ONNXC_YMM = 0x6, ONNXC_ZMM = 0xe6, ONNXC_AMX = 0x60000 };

/* Where cpuid tells of a feature, and the register state that the system must save for it. */
static const struct onnxc_feature {
    const char *name;
    uint32_t leaf, subleaf;
    uint8_t word, bit;
    uint32_t state;
} onnxc_features[] = {
    {"sse3", 1, 0, ONNXC_ECX, 0, ONNXC_NO_STATE},
    {"pclmul", 1, 0, ONNXC_ECX, 1, ONNXC_NO_STATE},
    {"ssse3", 1, 0, ONNXC_ECX, 9, ONNXC_NO_STATE},
    {"fma", 1, 0, ONNXC_ECX, 12, ONNXC_YMM},
    {"cx16", 1, 0, ONNXC_ECX, 13, ONNXC_NO_STATE},
    {"sse4.1", 1, 0, ONNXC_ECX, 19, ONNXC_NO_STATE},
    {"sse4.2", 1, 0, ONNXC_ECX, 20, ONNXC_NO_STATE},
    {"movbe", 1, 0, ONNXC_ECX, 22, ONNXC_NO_STATE},
    {"popcnt", 1, 0, ONNXC_ECX, 23, ONNXC_NO_STATE},
    {"aes", 1, 0, ONNXC_ECX, 25, ONNXC_NO_STATE},
    {"avx", 1, 0, ONNXC_ECX, 28, ONNXC_YMM},
    {"f16c", 1, 0, ONNXC_ECX, 29, ONNXC_YMM},
    {"sse", 1, 0, ONNXC_EDX, 25, ONNXC_NO_STATE},
    {"sse2", 1, 0, ONNXC_EDX, 26, ONNXC_NO_STATE},
    {"bmi", 7, 0, ONNXC_EBX, 3, ONNXC_NO_STATE},
    {"avx2", 7, 0, ONNXC_EBX, 5, ONNXC_YMM},
    {"bmi2", 7, 0, ONNXC_EBX, 8, ONNXC_NO_STATE},
    {"avx512f", 7, 0, ONNXC_EBX, 16, ONNXC_ZMM},
    {"avx512dq", 7, 0, ONNXC_EBX, 17, ONNXC_ZMM},
    {"adx", 7, 0, ONNXC_EBX, 19, ONNXC_NO_STATE},
    {"avx512ifma", 7, 0, ONNXC_EBX, 21, ONNXC_ZMM},
    {"avx512cd", 7, 0, ONNXC_EBX, 28, ONNXC_ZMM},
    {"avx512bw", 7, 0, ONNXC_EBX, 30, ONNXC_ZMM},
    {"avx512vl", 7, 0, ONNXC_EBX, 31, ONNXC_ZMM},
    {"avx512vbmi", 7, 0, ONNXC_ECX, 1, ONNXC_ZMM},
    {"avx512vbmi2", 7, 0, ONNXC_ECX, 6, ONNXC_ZMM},
    {"gfni", 7, 0, ONNXC_ECX, 8, ONNXC_NO_STATE},
    {"vaes", 7, 0, ONNXC_ECX, 9, ONNXC_YMM},
    {"vpclmulqdq", 7, 0, ONNXC_ECX, 10, ONNXC_YMM},
    {"avx512vnni", 7, 0, ONNXC_ECX, 11, ONNXC_ZMM},
    {"avx512bitalg", 7, 0, ONNXC_ECX, 12, ONNXC_ZMM},
    {"avx512vpopcntdq", 7, 0, ONNXC_ECX, 14, ONNXC_ZMM},
    {"amx-bf16", 7, 0, ONNXC_EDX, 22, ONNXC_AMX},
    {"avx512fp16", 7, 0, ONNXC_EDX, 23, ONNXC_ZMM},
    {"amx-tile", 7, 0, ONNXC_EDX, 24, ONNXC_AMX},
    {"amx-int8", 7, 0, ONNXC_EDX, 25, ONNXC_AMX},
    {"avxvnni", 7, 1, ONNXC_EAX, 4, ONNXC_YMM},
    {"avx512bf16", 7, 1, ONNXC_EAX, 5, ONNXC_ZMM},
    {"avxvnniint8", 7, 1, ONNXC_EDX, 4, ONNXC_YMM},
    {"avxneconvert", 7, 1, ONNXC_EDX, 5, ONNXC_YMM},
    {"lzcnt", 0x80000001, 0, ONNXC_ECX, 5, ONNXC_NO_STATE},
};

/* What cpuid and xgetbv say. Each is asked once: a virtual machine takes microseconds to answer. */
typedef struct onnxc_processor {
    uint32_t words[4][4]; /* of the leaves, zero where there is none */
    uint64_t saved_state; /* the register states that the system saves */
} onnxc_processor;

static const uint32_t onnxc_leaves[4][2] = {{1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};

static void onnxc_ask_processor(onnxc_processor *processor) {
    uint32_t highest[2] = {__get_cpuid_max(0, NULL), __get_cpuid_max(0x80000000u, NULL)}, low, high;
    memset(processor, 0, sizeof *processor);
    for (int k = 0; k < 4; k++) {
        uint32_t leaf = onnxc_leaves[k][0], *words = processor->words[k];
        if (highest[leaf >> 31] >= leaf)
            __cpuid_count(leaf, onnxc_leaves[k][1], words[0], words[1], words[2], words[3]);
    }
    if (processor->words[0][ONNXC_ECX] >> 27 & 1) {
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        processor->saved_state = (uint64_t)high << 32 | low;
    }
}

/* Whether the process may use state that is large: the system gives it to who asks, once for all
 * threads; asked again it says the same. */
static bool onnxc_granted(uint32_t state) {
    if (state != ONNXC_AMX) return true;
#ifdef __linux__
    enum { REQUEST_STATE = 0x1023, AMX_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_STATE, AMX_DATA) == 0;
#else
    return false;
#endif
}

static bool onnxc_has_feature(const onnxc_processor *processor, const char *name) {
    for (size_t i = 0; i < sizeof onnxc_features / sizeof *onnxc_features; i++) {
        const struct onnxc_feature *feature = &onnxc_features[i];
        if (strcmp(feature->name, name) != 0) continue;
        int leaf = 0;
        while (onnxc_leaves[leaf][0] != feature->leaf || onnxc_leaves[leaf][1] != feature->subleaf) leaf++;
        return (processor->words[leaf][feature->word] >> feature->bit & 1)
            && (processor->saved_state & feature->state) == feature->state
            && onnxc_granted(feature->state);
    }
    return false;
}

#elif defined(__aarch64__)

static void onnxc_pause(void) { __asm__ volatile("isb" ::: "memory"); }

typedef uint64_t onnxc_float_mode;
static onnxc_float_mode onnxc_enter_float_mode(void) {
    onnxc_float_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0));
    return before;
}
static void onnxc_leave_float_mode(onnxc_float_mode mode) {
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
}

typedef struct onnxc_processor { unsigned long words[2]; } onnxc_processor;

#ifdef __linux__
static void onnxc_ask_processor(onnxc_processor *processor) {
    processor->words[0] = getauxval(AT_HWCAP);
    processor->words[1] = getauxval(AT_HWCAP2);
}

static bool onnxc_has_feature(const onnxc_processor *processor, const char *name) {
    static const struct { const char *name; int which; uint8_t bit; } features[] = {
        {"fp-armv8", 0, 0}, {"asimd", 0, 1}, {"neon", 0, 1}, {"lse", 0, 8}, {"fullfp16", 0, 10},
        {"dotprod", 0, 20}, {"sve", 0, 22}, {"fp16fml", 0, 23}, {"sve2", 1, 1}, {"i8mm", 1, 13},
        {"bf16", 1, 14}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strcmp(features[i].name, name) == 0)
            return processor->words[features[i].which] >> features[i].bit & 1;
    return false;
}

#else /* every such processor has the features that code is generated for */
static void onnxc_ask_processor(onnxc_processor *processor) { memset(processor, 0, sizeof *processor); }
static bool onnxc_has_feature(const onnxc_processor *processor, const char *name) {
    (void)processor, (void)name;
    return true;
}
#endif

#else

static void onnxc_pause(void) {}

typedef int onnxc_float_mode;
static onnxc_float_mode onnxc_enter_float_mode(void) { return 0; }
static void onnxc_leave_float_mode(onnxc_float_mode mode) { (void)mode; }

/* No way to ask: a library for another processor does not load in the first place. */
typedef int onnxc_processor;
static void onnxc_ask_processor(onnxc_processor *processor) { *processor = 0; }
static bool onnxc_has_feature(const onnxc_processor *processor, const char *name) {
    (void)processor, (void)name;
    return true;
}

#endif

/* Writes the features that are missing, separated by commas; whether there are any. */
static bool onnxc_lacks(const onnxc_processor *processor, const onnxc_lowered *lowered, char *missing,
                        size_t room) {
    size_t used = 0;
    missing[0] = 0;
    for (int32_t i = 0; i < lowered->feature_count; i++) {
        if (onnxc_has_feature(processor, lowered->features[i])) continue;
        int written = snprintf(missing + used, room - used, "%s%.32s", used > 0 ? ", " : "",
                               lowered->features[i]);
        if (written > 0 && used + (size_t)written < room) used += (size_t)written;
    }
    return missing[0] != 0;
}

#if defined(ONNXC_FUSED)
/* Whether a model's code was generated for processors with a feature. */
static bool onnxc_relies_on(const onnxc_lowered *lowered, const char *name) {
    for (int32_t i = 0; i < lowered->feature_count; i++)
        if (strcmp(lowered->features[i], name) == 0) return true;
    return false;
}

/* Whether what it was generated for runs functions that are ONNXC_FUSED. */
static bool onnxc_relies_on_fused(const onnxc_lowered *lowered) {
    return onnxc_relies_on(lowered, "avx2") && onnxc_relies_on(lowered, "fma");
}
#endif

/* The first of the library's targets that this processor can run or, with a name, the one of that name. */
static int32_t onnxc_choose_target(const onnxc_library *library, const char *name,
                                   const onnxc_lowered **chosen) {
    char missing[512] = "";
    bool known = false;
    onnxc_processor processor;
    onnxc_ask_processor(&processor);
    for (int32_t i = 0; i < library->target_count; i++) {
        if (name != NULL && strcmp(name, library->lowered[i].target) != 0) continue;
        known = true;
        *chosen = &library->lowered[i];
        if (!onnxc_lacks(&processor, *chosen, missing, sizeof missing)) return ONNXC_OK;
    }
    if (!known)
        return onnxc_report(NULL, ONNXC_INVALID_VALUE, "model '%.80s' was not compiled for target '%.80s'",
                            library->model->name, name);
    return onnxc_report(NULL, ONNXC_UNSUPPORTED_PROCESSOR,
                        "model '%.80s' was compiled for another processor: this one lacks %s",
                        library->model->name, missing);
}
