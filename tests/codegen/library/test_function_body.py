"""Shape arithmetic of `bind` and `run`: what it computes, and that parts are computed once."""

import ctypes
import itertools

import numpy as np
from support.harness import compiled

from onnxc.codegen import abi
from onnxc.codegen.library.function_body import FunctionBody, Tables
from onnxc.codegen.text.emitter import Function, Text
from onnxc.ir import dims
from onnxc.target import find_target

TARGET = find_target("native")
N, M = dims.symbol("n", minimum=None), dims.symbol("m", minimum=None)
SIZE = dims.symbol("size")


def written(write):
    """`write(f, body)` as a function of the context and a place for numbers."""
    text = Text(TARGET, Function)
    with text.function("entry", ["ptr %ctx", "ptr %to"], linkage="") as f:
        write(f, FunctionBody(f, Tables({"n": 0, "m": 1, "size": 2})))
        f.statement("ret void")
    return str(text)


def stored(*values):
    def write(f, body):
        for k, value in enumerate(values):
            f.store("i64", body.dimension(value), f.offset("%to", 8 * k), 8)

    return written(write)


def test_every_operation_gives_what_it_means_of_any_numbers():
    divisions = [
        dims.of_atom(dims.Apply(kind, dividend, divisor))
        for kind in ("floordiv", "mod", "truncdiv")
        for dividend in (N, SIZE)
        for divisor in (1, 2, 3, 8, 1000, M)
    ]
    others = [dims.of_atom(dims.Apply(kind, N, M)) for kind in dims.APPLICATIONS]
    values = [*divisions, *others, 3 * N * N * M - 2 * N + M - 7, N // 4 * (M // 4) * 12 + N // 4]
    values += [-6 * (N + M + 1) * (N - 2 * M + 3), 4 * N * M * (N + M + SIZE) - N, N * N + N * M - M - 5]
    engine = compiled(stored(*values), TARGET)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("entry"))
    context, found = np.zeros(len(abi.CONTEXT), np.uint64), np.zeros(len(values), np.int64)
    for n, m in itertools.product((-1001, -8, -3, -1, 0, 1, 2, 7, 8, 2999), (-5, -1, 0, 1, 3, 1000)):
        variables = np.array([n, m, abs(n)])
        context[abi.CONTEXT["dims"] // 8] = variables.ctypes.data
        function(context.ctypes.data, found.ctypes.data)
        for value, number in zip(values, found):
            assert number == dims.evaluate(value, {"n": n, "m": m, "size": abs(n)}), (str(value), n, m)


def test_what_sizes_have_in_common_is_computed_once():
    half = SIZE // 6
    text = stored(half * M, 4 * half * M + half, half + 1, half)
    assert (text.count("udiv"), text.count("mul")) == (1, 2)


def test_a_product_of_sums_is_computed_as_one():
    length, width = SIZE + N + 1, M + 2 * N + 3
    text = stored(8 * length * width, 12 * length * width)
    assert text.count("mul") == 6  # of 8 terms


def test_a_division_by_a_power_of_two_shifts():
    text = stored(N // 8, N % 8)
    assert text.count("ashr i64 %v3, 3") == 1
    assert "div" not in text


def test_only_what_was_computed_without_a_look_at_overflow_is_computed_again_with_it():
    def write(f, body):
        body.dimension(N * M)
        for _ in range(2):
            with body.overflow_checked("here"):
                body.dimension(N * M)
        body.dimension(N * M)
        body.close()

    text = written(write)
    assert (text.count("mul i64"), text.count("call {i64, i1} @llvm.smul")) == (1, 1)
