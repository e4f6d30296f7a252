"""Numbers that generated code and the C runtime share: offsets into structs, table slots, statuses.

The structs are declared and explained in runtime_c/onnxc.h and runtime_c/internal.h; a test compiles
those headers and compares every number here with the C compiler's.
"""

from __future__ import annotations

from enum import IntEnum

ABI_MAJOR = 1
ABI_MINOR = 0
ALIGNMENT = 64  # of the arena, of every planned buffer, slot and scratch
MAX_RANK = 32


class Context(IntEnum):
    """Byte offsets of the fields of `onnxc_context` that generated code reads."""

    API = 0  # pointer to the table of functions
    DIMS = 8  # i64[dim_count]
    VALUES = 16  # ptr[value_count]
    ARENA = 24
    OFFSETS = 32  # i64[buffer_count]
    SIZES = 40  # i64[buffer_count], filled by bind
    WEIGHTS = 48
    SCRATCH_BYTES = 56  # i64, set by bind
    RUN_COUNT = 64  # i64


class Api(IntEnum):
    """Byte offsets of the functions in the table `context->api`."""

    PARALLEL = 0  # i32 (ctx, kernel, args, i64 parts, i64 work_ns, i32 node)
    FAIL = 8  # i32 (ctx, i32 node, i32 code, i64 value)
    BUFFER = 16  # ptr (ctx, i32 slot, i64 bytes)
    OUTPUT = 24  # ptr (ctx, outputs, i32 index, i32 rank, ptr dims)
    OUTPUT_VALUE = 32  # i32 (ctx, outputs, i32 index, ptr value)
    CALL = 40  # i32 (ctx, i32 op, ptr in, i32 in_count, ptr out, i32 out_count, ptr attributes, i32 node)
    CANCELLED = 48  # i32 (ctx)
    FAIL_EXPECTED = 56  # i32 (ctx, i32 node, i32 code, i64 expected, i64 got)
    FAIL_INPUT = 64  # i32 (ctx, i32 input, i32 axis, i64 expected)
    HOLD = 72  # void (ctx, i32 slot, ptr object)
    MOVE = 80  # void (ctx, i32 to, i32 from)


class Value(IntEnum):
    """Byte offsets of the fields of `onnxc_value`."""

    STRUCT_SIZE = 0  # i32
    KIND = 4  # i32
    DTYPE = 8  # i32
    RANK = 12  # i32
    DIMS = 16  # ptr to i64[rank]
    DATA = 24
    BYTES = 32  # i64
    CAPACITY = 40  # i64
    OBJECT = 48


VALUE_BYTES = 56


class Kind(IntEnum):
    """What a value is."""

    NONE = 0
    TENSOR = 1
    SEQUENCE = 2
    OPTIONAL = 3
    MAP = 4


class Status(IntEnum):
    """What functions return; 0 is success."""

    OK = 0
    NULL_POINTER = 1
    WRONG_COUNT = 2
    WRONG_KIND = 3
    WRONG_DTYPE = 4
    WRONG_RANK = 5
    WRONG_SHAPE = 6
    BUFFER_TOO_SMALL = 7
    OVERLAP = 8
    DIMS_MISMATCH = 9
    RANK_MISMATCH = 10
    INDEX_OUT_OF_RANGE = 11
    DIVISION_BY_ZERO = 12
    INVALID_VALUE = 13
    INVALID_RESHAPE = 14
    SIZE_OVERFLOW = 15
    OUT_OF_MEMORY = 16
    CANCELLED = 17
    UNSUPPORTED_PROCESSOR = 18
    WRONG_ABI = 19
    WEIGHTS_FILE = 20
    BUSY = 21
    EMPTY_OPTIONAL = 22
    UNSUPPORTED = 23


#: Element types by the IR's names, numbered as in ONNX.
DTYPES: dict[str, int] = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "string": 8, "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
    "complex64": 14, "complex128": 15, "bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18,
    "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23,
    "float8e8m0": 24, "uint2": 25, "int2": 26,
}
