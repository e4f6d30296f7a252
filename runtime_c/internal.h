/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the contract between generated code and the runtime.
 *
 * Generated code reads the first fields of the context, of values and of the function table by
 * offset (codegen/abi.py holds the numbers; a test compares them with these structs) and calls the
 * runtime only through `context->api`. Kernels are i32 kernel(args, first, last, scratch). */
#ifndef ONNXC_INTERNAL_H
#define ONNXC_INTERNAL_H

#include "onnxc.h"

#include <stdatomic.h>
#include <stdbool.h>

#define ONNXC_HIDDEN __attribute__((visibility("hidden")))
#define ONNXC_HERE static inline __attribute__((always_inline)) /* where types or counts are known */

/* What the tables of a model refer to by name. The runtime is compiled once for all models; in an object for
 * static linking a digest takes the place of the zeros (codegen/library/runtime.py), so that many link into
 * one program. */
#define ONNXC_PREFIX onnxc__0000000000000000_
#define ONNXC_JOIN_(prefix, name) prefix##name
#define ONNXC_JOIN(prefix, name) ONNXC_JOIN_(prefix, name)
#define ONNXC_SYMBOL(name) ONNXC_JOIN(ONNXC_PREFIX, name)
#define ONNXC_UNUSED __attribute__((unused))
#define ONNXC_OPERATOR(name)                                                                                  \
    ONNXC_HIDDEN int32_t ONNXC_SYMBOL(op_##name)(onnxc_context *context, const onnxc_value *in,               \
                                                 ONNXC_UNUSED int32_t in_count, onnxc_value *out,             \
                                                 ONNXC_UNUSED int32_t out_count, const int64_t *attributes)

#define ONNXC_ALIGNMENT 64

/* Runs parts [first, last). `args` are 8-byte words that the run function laid out. `scratch` is
 * this thread's: 64-byte aligned, context->scratch_bytes long and at least 64. Returns 0, or a
 * status after storing an onnxc_told at scratch[0], plus ONNXC_OF_DOUBLE where its number is a double, plus
 * ONNXC_SAYS where it has a sentence; of several failing parts it reports the lowest. */
#define ONNXC_OF_DOUBLE 0x100
#define ONNXC_SAYS 0x400
typedef struct onnxc_told {
    int64_t number;
    const char *says; /* with {} for the number */
} onnxc_told;
typedef int32_t onnxc_kernel(const uint64_t *args, int64_t first, int64_t last, void *scratch);

/* What `fail_expected` takes beside a status where more than what is expected fits too. */
#define ONNXC_AT_LEAST 0x200

/* An operator written in C. `attributes` begins with the slot of each output (~k: it is output k of the model),
 * then what the operator documents. Of an input tensor kind, dtype, rank, dims and data are set, of a sequence,
 * optional or map kind and object; inputs left out have kind ONNXC_NONE. Outputs are allocated with
 * onnxc_call_output. Returns 0, or what onnxc_raise returned. */
typedef int32_t onnxc_operator(onnxc_context *context, const onnxc_value *in, int32_t in_count,
                               onnxc_value *out, int32_t out_count, const int64_t *attributes);

/* What generated code may call; nodes are indices of the table of node names, -1 for none. */
typedef struct onnxc_api {
    /* Cuts [0, parts) into one contiguous piece for each thread; serial when `work_ns`, the time of
     * all parts on one thread, is short. Who is through with a long piece takes on what others have not begun
     * of theirs, from a multiple of `unit` parts on (0: all of a piece stays with its thread). Records the lowest
     * failing part. */
    int32_t (*parallel)(onnxc_context *context, onnxc_kernel *kernel, const uint64_t *args,
                        int64_t parts, int64_t work_ns, int64_t unit, int32_t node);
    /* Records an error of a node and returns `code`, which must not be 0. */
    int32_t (*fail)(onnxc_context *context, int32_t node, int32_t code, int64_t value);
    /* Memory of at least `bytes` in a slot that the context keeps: it grows at least twofold, keeps
     * its contents and may move. Null after recording an error. */
    void *(*buffer)(onnxc_context *context, int32_t slot, int64_t bytes);
    /* Where output `index` of these dims is to be written, which may have any alignment; called at
     * most once a run for each output. Null after recording an error. */
    void *(*output)(onnxc_context *context, onnxc_value *outputs, int32_t index, int32_t rank,
                    const int64_t *dims);
    /* Makes a value of a sequence, optional or map (or a tensor's object) the output `index`. */
    int32_t (*output_value)(onnxc_context *context, onnxc_value *outputs, int32_t index,
                            const onnxc_value *value);
    /* Runs operator `op` of the library's table. `out` needs no initialisation; afterwards it
     * describes the results, valid until their slots are written again; slots of outputs may not
     * hold inputs unless the operator says so. */
    int32_t (*call)(onnxc_context *context, int32_t op, const onnxc_value *in, int32_t in_count,
                    onnxc_value *out, int32_t out_count, const int64_t *attributes, int32_t node);
    /* Whether the run shall stop; records the error when it shall. For loops, once a round. */
    int32_t (*cancelled)(onnxc_context *context);
    /* As `fail`, for what was expected of a node and what it got. */
    int32_t (*fail_expected)(onnxc_context *context, int32_t node, int32_t code, int64_t expected,
                             int64_t got);
    /* For `bind`: dimension `axis` of an input is not `expected`. */
    int32_t (*fail_input)(onnxc_context *context, int32_t input, int32_t axis, int64_t expected);
    /* Slot `slot` holds `object` (its reference is counted) instead of what it held; null clears. */
    void (*hold)(onnxc_context *context, int32_t slot, onnxc_object *object);
    /* Moves the object (or, if there is none, swaps the memory) of slot `from` to slot `to`. */
    void (*move)(onnxc_context *context, int32_t to, int32_t from);
    /* Makes each thread's scratch at least `bytes` long, where that depends on data. */
    int32_t (*scratch)(onnxc_context *context, int64_t bytes);
    /* Copies the characters of a tensor of strings, of `bytes` bytes, to memory that slot `slot` holds beside
     * what it held, and lets the strings be there. For what outlives a round of a loop. */
    int32_t (*keep_texts)(onnxc_context *context, int32_t slot, void *tensor, int64_t bytes);
    /* The arena of a branch that `node` takes: memory of a slot in which its buffers `first` to `end` are placed,
     * whose sizes the caller has stored. Null after recording an error. */
    void *(*enter_branch)(onnxc_context *context, int32_t slot, int64_t first, int64_t end, int32_t node);
} onnxc_api;

/* Memory or an object that a run keeps under a number. */
typedef struct onnxc_slot {
    char *data; /* 64-byte aligned */
    int64_t capacity;
    onnxc_object *object;
} onnxc_slot;

enum { ONNXC_CHUNKS = 4 }; /* of a piece that threads may share */

/* What a thread has of a parallel region, by chunks: how many are begun, and of those that failed the code, else 0,
 * and what is told. Cache lines of its own. */
typedef struct onnxc_piece {
    _Alignas(ONNXC_ALIGNMENT) atomic_int begun;
    int32_t codes[ONNXC_CHUNKS];
    onnxc_told told[ONNXC_CHUNKS];
} onnxc_piece;

struct onnxc_context {
    /* Read by generated code, in this order. */
    const onnxc_api *api;
    int64_t *dims;          /* one for each dimension variable */
    void **values;          /* data pointer or object of each value; then arguments of calls */
    char *arena;            /* 64-byte aligned */
    int64_t *offsets;       /* of each planned buffer in its arena; null when compiled in */
    int64_t *sizes;         /* bytes of each planned buffer, filled by bind, of branches by who enters one */
    const char *weights;    /* base of the constant data */
    onnxc_string *strings;  /* the constants that are strings, with addresses */
    int64_t scratch_bytes;  /* for each thread, set by bind */
    int64_t run_count;      /* runs begun before this one, for unseeded random numbers */

    /* Private to the runtime. */
    const struct onnxc_library *library;
    const struct onnxc_lowered *lowered; /* the code of the library that this context runs */
    int64_t *planned_sizes; /* the sizes that offsets were placed for; -1 before the first plan */
    int64_t *plan_memory;   /* the planner's working memory: four words for each buffer */
    int64_t arena_bytes;    /* that the plan takes */
    char *workspace;        /* arena, then scratch of each thread */
    int64_t workspace_bytes;
    char *own_workspace;    /* the same, unless the caller gave it */
    char *scratch;          /* of thread 0; in the workspace or, when data asked for more, ... */
    int64_t scratch_stride;
    char *own_scratch;      /* ... here */
    int64_t own_scratch_bytes;
    onnxc_slot *slots;
    onnxc_value *inputs;    /* the caller's, checked and copied */
    onnxc_value *outputs;
    int64_t *output_dims;   /* of outputs in the caller's memory */
    onnxc_object **borrowed; /* objects made of inputs that are sequences */
    onnxc_piece *pieces;    /* of the parallel region under way */
    int64_t alone_ns;       /* of this run's work that threads could have shared, but for waking them */
    onnxc_pool *pool;
    onnxc_pool *own_pool;
    onnxc_profile *profile; /* the caller's; null: steps are not timed */
    int64_t clock_ns;       /* that reading the clock takes, of a run that is timed */
    int32_t threads;
    int32_t node;           /* that a running operator belongs to */
    void *temporaries;      /* that operator's working memory, a list */
    atomic_int cancel_requested; /* of the run under way */
    const int32_t *stop;    /* the caller's: of all runs while it is not 0; or null */
    atomic_int running;
    onnxc_allocator *allocator; /* the caller's; null: malloc */
    onnxc_allocator *outer_allocator; /* the thread's before it entered this context */
    onnxc_context *next;    /* of those alive, where handles are checked */
    int32_t status;
    char error[ONNXC_ERROR_BYTES];
};

/* First and last step, both included, of a run at which a planned buffer is in use. */
typedef struct onnxc_lifetime {
    int32_t first;
    int32_t last;
} onnxc_lifetime;

/* A model's code for one target, and what the runtime must know of it. */
typedef struct onnxc_lowered {
    const char *target;
    const char *const *features;      /* what the processor must have */
    int32_t (*bind)(onnxc_context *context, const onnxc_value *inputs);
    int32_t (*run)(onnxc_context *context, const onnxc_value *inputs, onnxc_value *outputs);
    onnxc_operator *const *operators; /* in the order of api->call's index */
    const char *const *node_names;
    const onnxc_lifetime *lifetimes;  /* of each planned buffer */
    int64_t arena_bytes;              /* of a static model */
    int64_t scratch_bytes;            /* of a static model, for each thread */
    int32_t feature_count;
    int32_t node_count;
    int32_t dim_count;
    int32_t value_count;
    int32_t slot_count;
    int32_t buffer_count;             /* planned before the run; 0 when the arena is static */
    int32_t branch_buffer_count;      /* that follow them, planned when the run enters a branch */
} onnxc_lowered;

/* The side file of a library, shared by its contexts. */
typedef struct onnxc_mapping {
    char *data;
    int64_t users;
} onnxc_mapping;

/* What the tables of a library (codegen/library/tables.py) tell the runtime. */
typedef struct onnxc_library {
    const onnxc_model *model;
    const onnxc_lowered *lowered; /* for each target, the best first */
    const char *weights;          /* the constant data; null: in a side file, or there is none */
    const char *weights_file;     /* the side file, relative to the library's folder; or null */
    onnxc_mapping *mapping;       /* of the side file */
    /* Of each input: a kind, then the types of what is in it, as many as a value of that kind has: one of a
     * sequence or optional, of a map those of its keys and of its values, of a tensor its element type. 0: any. */
    const char *const *input_types;
    int64_t string_table;         /* offset in the weights: two words for each string, its offset */
    int64_t string_count;         /* in the weights and its length */
    int32_t target_count;
    int32_t threads;              /* default number; 0: one for each processor */
    int32_t checks_handles;       /* whether contexts are looked up before they are used (handles.c) */
    uint8_t weights_digest[32];   /* of the constants, in the head of the side file */
} onnxc_library;

/* For operators written in C. */

/* Bytes of one element, 0 for an unknown type. */
static int64_t onnxc_dtype_bytes(int32_t dtype);
/* Bytes of a tensor, or -1 when a dimension is negative or the product overflows. */
static int64_t onnxc_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dims);
/* Records an error of the node whose operator runs and returns `code`. */
static int32_t onnxc_raise(onnxc_context *context, int32_t code, int64_t value);
/* Makes *out a tensor of these dims in `slot` (~k: in output k of the model) and returns its data, null after an
 * error. */
static void *onnxc_call_output(onnxc_context *context, onnxc_value *out, int64_t slot,
                               int32_t dtype, int32_t rank, const int64_t *dims);
/* Makes *out the object's value and the slot, or output, its holder. Takes over the caller's reference. */
static int32_t onnxc_call_object(onnxc_context *context, onnxc_value *out, int64_t slot,
                                 onnxc_object *object);
/* A tensor of empty strings, with `bytes` for the text that they are given; null after an error. */
static onnxc_object *onnxc_new_strings(onnxc_context *context, int32_t rank, const int64_t *dims, int64_t bytes);
/* onnxc_call_object of such a tensor, or of null after an error. Strings that may point anywhere, as there is no
 * text for them, are copied. */
static int32_t onnxc_call_strings(onnxc_context *context, onnxc_value *out, int64_t slot, onnxc_object *tensor);
/* Working memory for `count` items of `size` bytes until the operator returns, 64-byte aligned; null
 * after an error. */
static void *onnxc_call_scratch(onnxc_context *context, int64_t count, int64_t size);

#endif
