"""Tests of passes: IR text in, IR text out, and the same results of both."""

import numpy as np

from onnxc.ir import dims, dtypes, interpret
from onnxc.ir.text_parser import parse
from onnxc.ir.verify import verify
from onnxc.passes.eliminate_dead import eliminate_dead


def clean(step):
    """The pass, and then without what it left dead."""
    return lambda graph: eliminate_dead(step(graph))


def becomes(step, before, after, constants=None):
    """Asserts that a pass turns one text into the other; names of values do not matter, since both are
    printed anew."""
    found = step(parse(before, constants))
    verify(found)
    wanted = str(parse(after, constants))
    assert str(found) == wanted, f"\n{found}\nshould be\n{wanted}"
    return found


def stays(step, text, constants=None):
    becomes(step, text, text, constants)


def agrees(step, text, constants=None, inputs=None, tolerance=0.0, **sizes):
    """Asserts that a pass changes no result; returns the new graph. Inputs are random unless given, their
    dimension variables of the given sizes."""
    graph = parse(text, constants)
    inputs = operands(graph, **sizes) if inputs is None else inputs
    expected = interpret.run_graph(graph, inputs, sizes)
    found = step(graph)
    verify(found)
    for actual, wanted in zip(interpret.run_graph(found, inputs, sizes), expected, strict=True):
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)
    return found


def operands(graph, **sizes):
    """A random array for each input, the same ones at every call."""
    random = np.random.default_rng(1)
    return [array(random, v.dtype, [dims.evaluate(d, sizes) for d in v.shape]) for v in graph.inputs]


def array(random, dtype, shape):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtypes.is_integer(dtype):
        return random.integers(0, 3, shape).astype(dtypes.numpy_dtype(dtype))
    return random.standard_normal(shape).astype(dtypes.numpy_dtype(dtype))


def ops(graph):
    """The names of the nodes' ops, in order."""
    return [type(node.op).__name__ for node in graph.nodes]
