/* SPDX-License-Identifier: Apache-2.0 */
/* onnxc.h - the interface of every compiled model, the same for all of them.
 *
 * A library exports `const onnxc_model *<name>_model(void)`: a table of constants and functions.
 * Contexts are cheap, one per concurrent caller; weights are shared. Every function that can fail
 * returns a status and leaves one sentence in `last_error`. Nothing prints, exits or raises signals.
 * Structs begin with their size (sizeof) and only ever grow, by words of 8 bytes, so callers and libraries of
 * different minor versions fit together; another major version must be refused. */
#ifndef ONNXC_H
#define ONNXC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONNXC_ABI_MAJOR 1
#define ONNXC_ABI_MINOR 3
#define ONNXC_MAX_RANK 32
#define ONNXC_ERROR_BYTES 768 /* of a sentence and its end: longer ones are cut */

/* What a function returns. */
enum onnxc_status {
    ONNXC_OK = 0,
    ONNXC_NULL_POINTER = 1,           /* a pointer that must not be null is */
    ONNXC_WRONG_COUNT = 2,            /* number of inputs or outputs */
    ONNXC_WRONG_KIND = 3,             /* a tensor where a sequence is expected, and so on */
    ONNXC_WRONG_DTYPE = 4,
    ONNXC_WRONG_RANK = 5,
    ONNXC_WRONG_SHAPE = 6,            /* a dimension of an input */
    ONNXC_BUFFER_TOO_SMALL = 7,       /* caller's memory; the sentence tells the bytes needed */
    ONNXC_OVERLAP = 8,                /* an output's memory overlaps an input or another output */
    ONNXC_DIMS_MISMATCH = 9,          /* operands of a node do not fit together */
    ONNXC_RANK_MISMATCH = 10,         /* a node met a rank that its operator does not allow */
    ONNXC_INDEX_OUT_OF_RANGE = 11,
    ONNXC_DIVISION_BY_ZERO = 12,      /* of integers */
    ONNXC_INVALID_VALUE = 13,         /* a negative size, a step of zero, ... */
    ONNXC_INVALID_RESHAPE = 14,
    ONNXC_SIZE_OVERFLOW = 15,         /* dimensions whose product does not fit in memory */
    ONNXC_OUT_OF_MEMORY = 16,
    ONNXC_CANCELLED = 17,
    ONNXC_UNSUPPORTED_PROCESSOR = 18,
    ONNXC_WRONG_ABI = 19,             /* a struct of another version */
    ONNXC_WEIGHTS_FILE = 20,          /* the side file is missing or not this model's */
    ONNXC_BUSY = 21,                  /* the context is running in another thread */
    ONNXC_EMPTY_OPTIONAL = 22,        /* a node read an optional that holds nothing */
    ONNXC_UNSUPPORTED = 23,           /* valid, but not supported for this input */
    ONNXC_WRONG_HANDLE = 24           /* a context of another model, or one that is destroyed: told by libraries
                                       * that were compiled with --debug; others must not be given one */
};

/* What a value is. */
enum onnxc_kind {
    ONNXC_NONE = 0,     /* an optional input left out */
    ONNXC_TENSOR = 1,
    ONNXC_SEQUENCE = 2,
    ONNXC_OPTIONAL = 3,
    ONNXC_MAP = 4
};

/* Element types, numbered as in ONNX. Types of less than a byte take one byte an element (its low
 * bits). A string element is an onnxc_string. */
enum onnxc_dtype {
    ONNXC_FLOAT32 = 1, ONNXC_UINT8 = 2, ONNXC_INT8 = 3, ONNXC_UINT16 = 4, ONNXC_INT16 = 5,
    ONNXC_INT32 = 6, ONNXC_INT64 = 7, ONNXC_STRING = 8, ONNXC_BOOL = 9, ONNXC_FLOAT16 = 10,
    ONNXC_FLOAT64 = 11, ONNXC_UINT32 = 12, ONNXC_UINT64 = 13, ONNXC_COMPLEX64 = 14,
    ONNXC_COMPLEX128 = 15, ONNXC_BFLOAT16 = 16, ONNXC_FLOAT8E4M3FN = 17,
    ONNXC_FLOAT8E4M3FNUZ = 18, ONNXC_FLOAT8E5M2 = 19, ONNXC_FLOAT8E5M2FNUZ = 20, ONNXC_UINT4 = 21,
    ONNXC_INT4 = 22, ONNXC_FLOAT4E2M1 = 23, ONNXC_FLOAT8E8M0 = 24, ONNXC_UINT2 = 25, ONNXC_INT2 = 26,
    ONNXC_FLOAT6E2M3 = 27, ONNXC_FLOAT6E3M2 = 28
};

typedef struct onnxc_context onnxc_context;
typedef struct onnxc_object onnxc_object;
typedef struct onnxc_pool onnxc_pool;

/* UTF-8 text, not terminated. */
typedef struct onnxc_string {
    const char *data;
    int64_t length;
} onnxc_string;

/* An input or an output. Set all of it to zero, then what is needed; `struct_size` to sizeof.
 *
 * Inputs: kind, dtype, rank, dims and data are read and only borrowed for the call; `bytes` is the
 * size of the memory at data (0: as much as dims tell). Any alignment is fine.
 * Outputs: with `data` and `capacity` the result is written to that memory, which may not overlap
 * an input, unless it is the next value of a state (`onnxc_port.state`) and begins where that does: the
 * run then changes the state in place. Where a state grows the capacity is for its next value, and what
 * is there is not moved. With data null the result owns memory until `release`. On success kind, dtype, rank,
 * dims, data and bytes describe the result. `dims` then points into the context (valid until its
 * next run) or, when the value owns memory, lives as long as that.
 * A sequence, optional or map has rank 1, dims = {count} and data = onnxc_value[count] (a map: its
 * keys and its values); a sequence that is an output always owns its memory. */
typedef struct onnxc_value {
    uint32_t struct_size;
    int32_t kind;
    int32_t dtype;
    int32_t rank;
    const int64_t *dims;
    void *data;
    uint64_t bytes;
    uint64_t capacity;
    onnxc_object *object; /* what `release` frees; null when the caller owns the memory */
} onnxc_value;

/* How an input or output is declared. Step through arrays of these by struct_size. */
typedef struct onnxc_port {
    uint32_t struct_size;
    int32_t kind;
    int32_t dtype;               /* 0: any */
    int32_t rank;                /* -1: any */
    const char *name;
    const int64_t *dims;         /* -1 where the dimension is symbolic */
    const char *const *symbols;  /* name of each symbolic dimension, or null */
    int32_t optional;            /* an input that may be ONNXC_NONE */
    int32_t state;               /* of an input: 1 + the number of its next value's output; or 0 */
} onnxc_port;

typedef struct onnxc_metadata {
    const char *key;
    const char *value;
} onnxc_metadata;

/* A pool of threads begins with these two, so that any pool serves every model.
 * `run` calls work(data, i) once for each i in [0, count), count <= threads, in any threads, and
 * returns 1 when all are done; or it returns 0 at once, nothing done, when it is busy. */
struct onnxc_pool {
    int32_t (*run)(onnxc_pool *pool, int32_t count, void (*work)(void *data, int32_t index),
                   void *data);
    int32_t threads;
};

/* Since 1.2. Where a context's memory comes from, its own and that of its outputs: functions of yours in front of
 * whatever they need. Threads that use contexts call them at the same time, and each output that is released
 * does: it outlives them all. `allocate` gives memory aligned as malloc does, or null when there is none. */
typedef struct onnxc_allocator onnxc_allocator;
struct onnxc_allocator {
    uint32_t struct_size;
    uint32_t reserved;
    void *(*allocate)(onnxc_allocator *allocator, size_t bytes);
    void (*deallocate)(onnxc_allocator *allocator, void *memory);
};

typedef struct onnxc_options {
    uint32_t struct_size;
    int32_t threads;           /* 0: as compiled, else one for each processor; ignored with a pool */
    onnxc_pool *pool;          /* shared with other contexts, must outlive them; null: own threads */
    /* The side file of a model that has one (WEIGHTS_FILE in its header). Null: the path that it was
     * compiled to, relative to the library or, where the model is part of a program, to the program.
     * Contexts share the mapping; the first one's path counts. */
    const char *weights_path;
    /* Since 1.1. The target whose code is used, of those that the library was compiled for; null: the
     * first of them that the processor can run. */
    const char *target;
    /* Since 1.2. Must outlive the context and its outputs; null: malloc and free. */
    onnxc_allocator *allocator;
    /* Since 1.3. A number that any thread may change at any time: unless it is 0, runs end soon with
     * ONNXC_CANCELLED, those that begin, too. Must outlive the context; null: `cancel` alone ends runs. */
    const int32_t *stop;
} onnxc_options;

/* Since 1.1. What one step of a run took: all parts of a kernel, or an operator of the runtime. */
typedef struct onnxc_timing {
    const char *node;     /* that it belongs to */
    int64_t parts;
    int64_t estimated_ns; /* that the compiler expected of one thread at these sizes; 0: nothing */
    int64_t ns;
} onnxc_timing;

/* Since 1.1. Memory for the timings of a run. */
typedef struct onnxc_profile {
    uint32_t struct_size;
    uint32_t reserved;
    onnxc_timing *timings;
    int64_t capacity;     /* timings that there is room for */
    int64_t count;        /* steps of the last run, in their order */
} onnxc_profile;

typedef struct onnxc_model {
    uint32_t struct_size;
    uint16_t abi_major;
    uint16_t abi_minor;
    const char *name;
    const char *version;      /* of onnxc */
    const char *description;  /* JSON: all of the below and more */
    int32_t input_count;
    int32_t output_count;
    const onnxc_port *inputs;
    const onnxc_port *outputs;
    const onnxc_metadata *metadata;
    int32_t metadata_count;
    int32_t feature_count;
    const char *const *features;  /* what the processor must have, whichever target is used */
    uint64_t weights_bytes;
    int64_t workspace_bytes;      /* one thread's, of the target that takes most; -1 where it depends on
                                   * the inputs' dims */

    /* `options` may be null. On failure *context is null and last_error(NULL) tells why. */
    int32_t (*create)(const onnxc_options *options, onnxc_context **context);
    /* Null is fine. No run may be under way. (Before 1.2 it returned nothing.) */
    int32_t (*destroy)(onnxc_context *context);
    int32_t (*run)(onnxc_context *context, const onnxc_value *inputs, int32_t input_count,
                   onnxc_value *outputs, int32_t output_count);
    /* Frees what an output owns, in any thread, before or after its context is destroyed. */
    void (*release)(onnxc_value *value);
    /* Bytes of arena and scratch that a run on inputs of these dims takes; data may be null. Memory
     * that depends on data (a NonZero's result, what is inside the branch of an If that a run takes
     * where sizes are open, ...) is not in it. */
    int32_t (*workspace_bytes_for)(onnxc_context *context, const onnxc_value *inputs,
                                   int32_t input_count, size_t *bytes);
    /* Gives the memory that runs work in, until called again; null: the context's own. */
    int32_t (*set_workspace)(onnxc_context *context, void *memory, size_t bytes);
    /* Of the context's last failed call; of this thread's last failed call without a context when
     * it is null. Never null. */
    const char *(*last_error)(const onnxc_context *context);
    /* Makes a run under way in another thread stop soon with ONNXC_CANCELLED. Without one it does
     * nothing. */
    void (*cancel)(onnxc_context *context);
    /* threads <= 0: one for each processor. */
    int32_t (*pool_create)(int32_t threads, onnxc_pool **pool);
    void (*pool_destroy)(onnxc_pool *pool);
    /* Since 1.1. The target whose code the context runs; null without a context. */
    const char *(*target)(const onnxc_context *context);
    /* Since 1.1. Every later run writes to `profile` what its steps take, until called again; null: none
     * does. */
    int32_t (*set_profile)(onnxc_context *context, onnxc_profile *profile);
    /* Since 1.2. For languages whose texts are objects: fills `strings` with what `text` tells of each
     * handle, whose memory stays the object's. Returns how many, fewer than `count` where it told null. */
    int64_t (*read_texts)(void *const *handles, int64_t count,
                          const char *(*text)(void *handle, int64_t *length), onnxc_string *strings);
    /* Since 1.2. The way back: handles become what `make` makes of strings, `drop` takes those that were there.
     * Returns how many, fewer than `count` where it made null. */
    int64_t (*write_texts)(const onnxc_string *strings, int64_t count,
                           void *(*make)(const char *data, int64_t length, const char *errors),
                           void (*drop)(void *handle), void **handles);
} onnxc_model;

/* The model of this library under the name that loaders look up. */
#define ONNXC_ENTRY_POINT "onnxc_model"

#ifdef __cplusplus
}
#endif
#endif
