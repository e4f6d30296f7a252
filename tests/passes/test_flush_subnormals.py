"""flush_subnormals: weights that are no normal numbers are 0 in products, and nothing else changes."""

import numpy as np
import pytest
from support.pass_text import agrees

from onnxc.ir.ops import Contract
from onnxc.ir.text_parser import parse
from onnxc.passes.flush_subnormals import flush_subnormals, normal_or_zero

PRODUCT = """graph g(%x: float32[2, 3]) {
    %w = constant float32[3, 2] #w
    %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
    return %0
}"""
WEIGHTS = np.array([[0.5, 1e-40], [-1e-42, 2.0], [0.0, 1.2e-38]], np.float32)


def weights(graph):
    return next(n.inputs[1].constant.array for n in graph.nodes if isinstance(n.op, Contract))


def test_subnormal_weights_become_zero():
    found = flush_subnormals(parse(PRODUCT, {"w": WEIGHTS}))
    assert weights(found).tolist() == [[0.5, 0.0], [0.0, 2.0], [0.0, np.float32(1.2e-38)]]


def test_normal_weights_change_no_result():
    agrees(flush_subnormals, PRODUCT, {"w": np.ones((3, 2), np.float32)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_normal_zero_infinite_or_no_number_stays(dtype):
    least = np.finfo(dtype).tiny
    array = np.array([least, -least, 0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], dtype)
    assert normal_or_zero(array) is array
    assert normal_or_zero(np.append(array, least / 2))[:-1].tobytes() == array.tobytes()


def test_large_weights_are_looked_at_in_full():
    array = np.ones((1000, 1000), np.float32)
    array[::7, ::11] = 1e-41
    assert (normal_or_zero(array) == np.where(array == 1, array, 0)).all()


def test_a_constant_that_two_products_read_is_made_once():
    text = """graph g(%x: float32[2, 2]) {
    %w = constant float32[2, 2] #w
    %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
    %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=float32
    return %1
}"""
    found = flush_subnormals(parse(text, {"w": WEIGHTS[:2]}))
    assert len({id(n.inputs[1].constant) for n in found.nodes}) == 1
