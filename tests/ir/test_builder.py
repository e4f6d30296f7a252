"""What the builder makes of many operands."""

from __future__ import annotations

import numpy as np
import pytest

from onnxc.ir import dims, ops
from onnxc.ir.builder import Builder
from onnxc.ir.graph import TensorType, walk
from onnxc.ir.interpret import run_graph
from onnxc.ir.verify import verify


def joined(count):
    """A graph that joins as many operands, each of a size of its own."""
    b = Builder()
    values = [b.input(TensorType("float32", (dims.symbol(f"n{k}"),)), f"x{k}") for k in range(count)]
    return b.finish(b.emit(ops.Concat(0), *values))


@pytest.mark.parametrize("count", [17, 300])
def test_operands_of_any_number_of_sizes_are_joined_in_their_order(count):
    arrays = [np.full(k % 3, k, np.float32) for k in range(count)]
    (found,) = run_graph(joined(count), arrays)
    np.testing.assert_array_equal(found, np.concatenate(arrays))


def test_a_constant_of_any_size_is_known_in_another_shape():
    b, array = Builder(), np.arange(6000, dtype=np.float32)
    table = b.reshape(b.constant(array), (60, 100))
    assert table.constant is not None and not b.nodes
    np.testing.assert_array_equal(b.known(table), array.reshape(60, 100))


def test_what_stands_for_a_value_further_out_is_captured_with_it_as_one():
    b = Builder()
    x = b.input(TensorType("float32", (3,)), "x")
    body = b.inner()
    own = body.capture(x)
    nested = body.inner()
    assert nested.capture(x) is nested.capture(own)
    assert nested.captured() == [(own, nested.capture(x))]


def test_a_captured_value_is_at_home_where_it_comes_from():
    b = Builder()
    x = b.input(TensorType("float32", (3,)), "x")
    body = b.inner()
    own = body.input(TensorType("float32", (3,)))
    nested = body.inner()
    assert (
        nested.home(x) == nested.home(nested.capture(x)) == body.home(body.capture(x)) == b.home(x) == (b, x)
    )
    assert nested.home(own) == nested.home(nested.capture(own)) == (body, own)


def test_sizes_are_known_where_some_operands_of_a_concat_tell_them():
    b, n = Builder(), dims.symbol("n")
    x, given = b.input(TensorType("float32", (n, 3)), "x"), b.input(TensorType("int64", (2,)), "given")
    sizes = b.concat([b.shape(x), given, b.constant([7])], 0)
    found = b.dimensions(sizes)
    assert found[:2] == [n, 3] and found[4] == 7 and len({n, *found[2:4]}) == 3
    assert b.dimensions(sizes) == found == list(sizes.elements)
    (bound,) = (node.op.symbols for node in b.nodes if isinstance(node.op, ops.Bind))
    assert [dims.symbols(size) for size in found[2:4]] == [{symbol} for symbol in bound]


@pytest.mark.slow
def test_no_size_is_too_large_a_formula():
    graph = joined(9000)
    verify(graph)
    assert not any(dims.is_large(size) for node in walk(graph) for v in node.outputs for size in v.shape)
