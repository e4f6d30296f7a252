"""Tests of passes: IR text in, IR text out, and the same results of both."""

from dataclasses import replace

import numpy as np

from onnxc.ir import dims, dtypes, interpret
from onnxc.ir.graph import MapType, OptionalType, Rewriter, SequenceType, TensorType, UnrankedType, Value
from onnxc.ir.ops import Elements, RuntimeCall
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
    """A random value for each input, the same ones at every call: an array, a sequence of one."""
    random = np.random.default_rng(1)
    return [_operand(random, value.type, sizes) for value in graph.inputs]


def _operand(random, type_, sizes):
    match type_:
        case SequenceType(element=element):
            return [_operand(random, element, sizes)]
        case OptionalType():
            return None
        case MapType():
            return {}
        case UnrankedType(dtype=dtype):
            return array(random, dtype, [2])
    return array(random, type_.dtype, [dims.evaluate(d, sizes) for d in type_.shape])


def array(random, dtype, shape):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtypes.is_integer(dtype):
        return random.integers(0, 3, shape).astype(dtypes.numpy_dtype(dtype))
    return random.standard_normal(shape).astype(dtypes.numpy_dtype(dtype))


def ops(graph):
    """The names of the nodes' ops, in order."""
    return [type(node.op).__name__ for node in graph.nodes]


def among_containers(graph):
    """The graph whose inputs are taken out of sequences, and whose every value is also put into a sequence
    and an optional; sequences, optionals, maps and tensors of an unknown rank go through it besides."""
    image = TensorType("float32", (2, 3))
    besides = [
        Value(type_)
        for type_ in (
            SequenceType(image),
            OptionalType(image),
            UnrankedType("float32"),
            MapType("string", "float32"),
        )
    ]
    rewriter, outputs = Rewriter(graph), list(besides)

    def call(symbol, type_, *inputs):
        return rewriter.add(RuntimeCall(symbol, (type_,)), inputs)[0]

    (first,) = rewriter.add(Elements((0,), ()), ())
    sequences = [Value(SequenceType(value.type)) for value in graph.inputs]
    for value, sequence in zip(graph.inputs, sequences):
        rewriter.replace([value], [call("sequence_at", value.type, sequence, first)])
    for node in graph.nodes:
        copied = rewriter.copy(node)
        for value in (*copied.inputs, *copied.outputs):
            outputs.append(call("sequence_construct", SequenceType(value.type), value, value))
            outputs.append(call("optional", OptionalType(value.type), value))
    found = rewriter.finish()
    return replace(found, inputs=(*sequences, *besides), outputs=(*found.outputs, *outputs))
