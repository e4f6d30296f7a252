"""Numbers of include/onnxc.h and internal.h (of runtime_c/) that generated code contains: offsets in bytes,
error codes, kinds.

tests/runtime_c holds them against the structs that a C compiler lays out.
"""

from __future__ import annotations

#: Fields of onnxc_context.
CONTEXT = {
    name: 8 * k
    for k, name in enumerate(
        (
            "api",
            "dims",
            "values",
            "arena",
            "offsets",
            "sizes",
            "weights",
            "strings",
            "scratch_bytes",
            "run_count",
        )
    )
}

#: Functions of onnxc_api.
API = {
    name: 8 * k
    for k, name in enumerate(
        (
            "parallel",
            "fail",
            "buffer",
            "output",
            "output_value",
            "call",
            "cancelled",
            "fail_expected",
            "fail_input",
            "hold",
            "move",
            "scratch",
            "keep_texts",
            "enter_branch",
        )
    )
}

#: Fields of onnxc_value, and its size.
VALUE = {
    "struct_size": 0,
    "kind": 4,
    "dtype": 8,
    "rank": 12,
    "dims": 16,
    "data": 24,
    "bytes": 32,
    "capacity": 40,
    "object": 48,
}
VALUE_BYTES = 56

KINDS = {"none": 0, "tensor": 1, "sequence": 2, "optional": 3, "map": 4}

#: enum onnxc_status, by the names that `check` expressions and kernels use.
ERRORS = {
    name: code
    for code, name in enumerate(
        (
            "ok",
            "null_pointer",
            "wrong_count",
            "wrong_kind",
            "wrong_dtype",
            "wrong_rank",
            "wrong_shape",
            "buffer_too_small",
            "overlap",
            "dims_mismatch",
            "rank_mismatch",
            "index_out_of_range",
            "division_by_zero",
            "invalid_value",
            "invalid_reshape",
            "size_overflow",
            "out_of_memory",
            "cancelled",
            "unsupported_processor",
            "wrong_abi",
            "weights_file",
            "busy",
            "empty_optional",
            "unsupported",
            "wrong_handle",
        )
    )
}

#: What a kernel adds to the status where what it has for the sentence is a double.
OF_DOUBLE = 0x100

#: What a kernel adds to the status where it has a sentence, with `{}` for what it has for it.
SAYS = 0x400

#: What is added to the status where more than what is expected fits too.
AT_LEAST = 0x200

#: Bytes: what the arena, scratch, weights and every value in them begin with a multiple of.
ALIGNMENT = 64


def aligned(nbytes: int) -> int:
    """So many bytes and those behind them up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
