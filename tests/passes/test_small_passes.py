"""Dead and common nodes, constants, scalars, padding."""
import numpy as np
from onnxc.passes.eliminate_common import eliminate_common
from onnxc.passes.eliminate_dead import eliminate_dead
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.fold_pads import fold_pads
from onnxc.passes.inline_scalars import inline_scalars
from pass_text import becomes, stays


def test_what_nobody_reads_goes():
    becomes(eliminate_dead, """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { log($0) }
        %2 = map(%x) { neg($0) }
        return %2
    }""", """graph g(%x: float32[n]) {
        %2 = map(%x) { neg($0) }
        return %2
    }""")


def test_a_bind_stays_while_a_size_needs_it():
    stays(eliminate_dead, """graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = slice(%x) starts=(0) sizes=(k) steps=(1)
        return %0
    }""")


def test_equal_nodes_become_one():
    becomes(eliminate_common, """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%x) { exp($0) }
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }""", """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %2 = map(%0, %0) { add($0, $1) }
        return %2
    }""")


def test_constants_are_computed():
    becomes(fold_constants, """graph g(%x: float32[2]) {
        %a = constant float32[2] (1.0, 2.0)
        %b = constant float32[2] (10.0, 20.0)
        %0 = map(%a, %b) { add($0, $1) }
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""", """graph g(%x: float32[2]) {
        %0 = constant float32[2] (11.0, 22.0)
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""")


def test_repeated_values_stay_repeated_values():
    becomes(fold_constants, """graph g(%x: float32[1000, 1000]) {
        %a = constant float32[1000, 1000] splat 2.0
        %0 = map(%a) { mul($0, $0) }
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""", """graph g(%x: float32[1000, 1000]) {
        %0 = constant float32[1000, 1000] splat 4.0
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""")


def test_stored_data_is_not_widened():
    half = np.ones((4096, 4), np.float16)
    stays(fold_constants, """graph g(%x: float32[4096, 4]) {
        %w = constant float16[4096, 4] #data
        %0 = map(%w) { cast($0, float32) }
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""", {"w": half})


def test_scalars_enter_bodies():
    becomes(inline_scalars, """graph g(%x: float32[n]) {
        %c = constant float32[] (0.5)
        %0 = map(%x, %c) { mul($0, $1) }
        return %0
    }""", """graph g(%x: float32[n]) {
        %0 = map(%x) { mul($0, 0.5) }
        return %0
    }""")


def test_a_body_without_operands_keeps_its_shape():
    becomes(inline_scalars, """graph g(%x: float32[n]) {
        %c = constant float32[3] splat 1.5
        %0 = map(%c) { exp($0) }
        %1 = concat(%x, %0) axis=0
        return %1
    }""", """graph g(%x: float32[n]) {
        %0 = map() { 4.481689:float32 } shape=(3)
        %1 = concat(%x, %0) axis=0
        return %1
    }""")


def test_zeros_around_an_image_become_padding():
    becomes(fold_pads, """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 0, 0) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(2, 2) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %1
    }""", """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 0, 0) after=(0, 0, 1, 1)
        %1 = conv(%x, %k) strides=(2, 2) pads=(0, 0, 1, 1) dilations=(1, 1)
        return %1
    }""")


def test_padding_with_other_values_stays():
    stays(fold_pads, """graph g(%x: float32[1, 3, 8, 8], %k: float32[8, 3, 3, 3]) {
        %one = constant float32[] (1.0)
        %0 = pad(%x, %one) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %1
    }""")
