"""fold_constants: computes what depends on constants alone, within a budget of bytes and of effort.

%0 = map(constant 2.0, constant 3.0) { mul($0, $1) }   →   constant 6.0

A constant that repeats one value stays a splat. What widens stored data (a Cast of float16 weights,
DequantizeLinear) is left to the kernels; a node whose folding fails stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir import dtypes, interpret
from ..ir.dims import is_static
from ..ir.expr import contains
from ..ir.graph import Constant, Graph, Node, Rewriter, TensorType, Value
from ..ir.interpret import VALUE_LIMIT
from ..ir.ops import Broadcast, Map, Random, Reshape, Transpose
from ..ir.regions import in_regions
from ..target import Target

TOTAL_LIMIT = 1 << 30  # bytes folded in all
STEPS_LIMIT = 16  # of a constant made from one made from another


@dataclass
class _Budget:
    """What folding may still cost: bytes of results, and `interpret.effort`."""

    nbytes: int
    effort: int

    def pays(self, nbytes: int, effort: int) -> bool:
        """Whether there is enough left; then it is taken."""
        if nbytes > min(VALUE_LIMIT, self.nbytes) or effort > self.effort:
            return False
        self.nbytes -= nbytes
        self.effort -= effort
        return True


def fold_constants(graph: Graph, target: Target) -> Graph:
    """graph with nodes over constants replaced by their results."""
    return _fold(graph, _Budget(TOTAL_LIMIT, interpret.EFFORT_LIMIT))


def _fold(graph: Graph, budget: _Budget) -> Graph:
    """graph folded within what is left of the budget."""
    rewriter = Rewriter()
    for node in graph.nodes:
        node = in_regions(node, lambda g: _fold(g, budget))
        folded = _results(node, tuple(rewriter.of(v) for v in node.inputs), budget)
        if folded is not None:
            rewriter.replace(node.outputs, folded)
        else:
            rewriter.copy(node)
    return rewriter.finish(graph)


def _results(node: Node, inputs: tuple[Value, ...], budget: _Budget) -> tuple[Value, ...] | None:
    """What the node gives for these inputs, if they are constants and it may be computed."""
    if not inputs or not node.outputs or isinstance(node.op, Random):
        return None
    if any(v.constant is None for v in inputs):
        return None
    types = [v.type for v in node.outputs]
    if not all(isinstance(t, TensorType) and is_static(t.shape) for t in types):
        return None
    constants = [v.constant for v in inputs]
    if all(c.splat is not None for c in constants) and len(types) == 1:
        repeated = _splat(node, constants)
        if repeated is not None:
            return repeated
    nbytes = sum(t.nbytes for t in types)
    if nbytes > VALUE_LIMIT or _widens(node, constants):
        return None
    if isinstance(node.op, (Reshape, Transpose)) and constants[0].steps < STEPS_LIMIT:
        return (_lazily(node, constants[0]),)
    if not budget.pays(nbytes, interpret.effort(node.op, [v.type for v in inputs])):
        return None
    arrays = interpret.fold(node.op, [c.array for c in constants])
    if arrays is None:
        return None
    return tuple(_value(v, Constant.of(a)) for v, a in zip(node.outputs, arrays))


def _lazily(node: Node, constant: Constant) -> Value:
    """A reshaped or transposed constant, made when it is written into the library."""
    op, output = node.op, node.outputs[0]
    moved = Constant(constant.dtype, output.shape, lambda: interpret.fold(op, [constant.array])[0])
    moved.steps = constant.steps + 1
    return _value(output, moved)


def _splat(node: Node, constants: list[Constant]) -> tuple[Value, ...] | None:
    """A node over repeated values whose result repeats one value too. One that is large stays a node, for
    the library would hold it in full."""
    output = node.outputs[0]
    if output.type.nbytes > VALUE_LIMIT:
        return None
    if isinstance(node.op, Map) and not contains(node.op.body, "index", "size"):
        scalars = [_scalar(c) for c in constants]
        arrays = interpret.fold(Map(node.op.body), scalars)
        if arrays is None:
            return None
        return (_value(output, Constant(output.dtype, output.shape, splat=arrays[0].reshape(-1)[0])),)
    if isinstance(node.op, (Broadcast, Reshape, Transpose)):
        return (_value(output, Constant(output.dtype, output.shape, splat=constants[0].splat)),)
    return None


def _scalar(constant: Constant) -> np.ndarray:
    return np.asarray(constant.splat, dtypes.numpy_dtype(constant.dtype))


def _widens(node: Node, constants: list[Constant]) -> bool:
    """Whether folding would replace stored data by more than twice its bytes."""
    if node.outputs[0].type.nbytes <= 4096:
        return False
    return node.outputs[0].type.nbytes > sum(c.nbytes for c in constants)


def _value(output: Value, constant: Constant) -> Value:
    return Value(output.type, output.name, constant, output.elements)
