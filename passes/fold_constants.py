"""fold_constants: computes what depends on constants alone, within a budget of bytes and of effort.

%0 = map(constant 2.0, constant 3.0) { mul($0, $1) }   →   constant 6.0

A constant that repeats one value stays a splat. Of large ones a Map, and what only moves elements, are only
written down (`Constant.derivation`) and computed when a kernel packs them or the library writes them, one
by one: weights behind a Cast or DequantizeLinear take no memory before. What would repeat stored elements (a
Broadcast) stays a node unless only what is folded reads it, or it takes longer to compute than to read (a
window times a sinc, of all places and phases); and so does one whose folding fails. A table's
rows that are gathered by constants are stored as long as all of them are little beside the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ..ir import dtypes, interpret
from ..ir.derived import computed, put_off, reshaped, steps_of
from ..ir.dims import is_static, number, numbers
from ..ir.everywhere import everywhere
from ..ir.expr import SERIES, contains
from ..ir.graph import Constant, Graph, Node, Rewriter, TensorType, Value
from ..ir.interpret import VALUE_LIMIT
from ..ir.ops import Broadcast, Map, Op, Random, Reshape, Slice, Transpose
from ..records import dataclass

TOTAL_LIMIT = 1 << 30  # bytes folded in all
STEPS_LIMIT = 16  # computed constants that a constant is made of
DERIVED_LIMIT = 16  # bytes derived lazily from each stored byte, beside TOTAL_LIMIT
GROWTH = 8  # of so many bytes of constants one may be added by elements that are stored again
SMALL = 4096  # bytes of a constant that is computed at once, whatever it takes
PLACES = 1 << 16  # the same of indices, by which kernels know what lies where
GENERATED_LIMIT = 16 << 20  # bytes that are stored rather than made of nothing, or of few, in every run
SLICE = 1 << 18  # elements of a derived constant that are computed at a time


@dataclass
class _Budget:
    """What folding may still cost: bytes of results, `interpret.effort`, bytes of derived constants, of which
    more may be where more is `stored`, and bytes of elements that are stored again."""

    nbytes: int
    effort: int
    derived: int
    again: int
    stored: dict[int, Constant] = field(default_factory=dict)

    def pays(self, nbytes: int, effort: int) -> bool:
        """Whether there is enough left; then it is taken."""
        if nbytes > min(VALUE_LIMIT, self.nbytes) or effort > self.effort:
            return False
        self.nbytes -= nbytes
        self.effort -= effort
        return True

    def repeats(self, nbytes: int) -> bool:
        """Whether so many bytes may be stored of elements that are stored already; then they are taken."""
        if nbytes > self.again:
            return False
        self.again -= nbytes
        return True

    def derives(self, nbytes: int, constants: list[Constant]) -> bool:
        """Whether a constant of so many bytes may be derived from these; then they are taken."""
        for constant in constants:
            if not constant.steps and id(constant) not in self.stored:
                self.stored[id(constant)] = constant
                self.derived += DERIVED_LIMIT * constant.nbytes * (constant.splat is None)
        if nbytes > self.derived:
            return False
        self.derived -= nbytes
        return True


def fold_constants(graph: Graph) -> Graph:
    """graph with nodes over constants replaced by their results."""
    constants = {id(v.constant): v.constant for node in graph.nodes for v in node.inputs if v.constant}
    stored = sum(c.nbytes for c in constants.values() if c.splat is None)
    budget = _Budget(TOTAL_LIMIT, interpret.EFFORT_LIMIT, TOTAL_LIMIT, stored // GROWTH)
    return everywhere(lambda g: _fold(g, budget))(graph)


def _fold(graph: Graph, budget: _Budget) -> Graph:
    """graph folded within what is left of the budget."""
    rewriter, repeating = Rewriter(graph), _repeating(graph, budget)
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        folded = _results(node, inputs, budget, id(node) in repeating)
        if folded is not None:
            rewriter.replace(node.outputs, folded)
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _repeating(graph: Graph, budget: _Budget) -> set[int]:
    """The nodes, by id, that would store elements again, more than may be. What is read by nodes alone that
    are folded is not stored."""
    made = _made_of(graph)
    dear = _dear(graph, made)
    stored, found = {id(v) for v in graph.outputs}, set[int]()
    for node in reversed(graph.nodes):
        stays = not node.outputs or id(node.outputs[0]) not in made
        if not stays and any(id(v) in stored for v in node.outputs) and _repeats(node, made):
            moved = not isinstance(node.op, (Map, Broadcast))  # which readers compute for nothing
            nbytes = sum(number(v.tensor.nbytes) for v in node.outputs)
            pays = id(node.outputs[0]) in dear and nbytes <= GENERATED_LIMIT
            stays = not pays and not (moved and budget.repeats(nbytes))
            found |= {id(node)} if stays else set()
        if stays:
            stored |= {id(v) for v in node.inputs}
    return found


def _made_of(graph: Graph) -> dict[int, int]:
    """Of how many elements of the graph's constants the values are made, at most, that depend on nothing
    else."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            if v.constant is not None:
                found[id(v)] = math.prod(v.constant.shape)
        static = all(isinstance(v.type, TensorType) and is_static(v.type.shape) for v in node.outputs)
        known = static and node.inputs and all(id(v) in found for v in node.inputs)
        if known and interpret.effort(node.op, [v.type for v in node.inputs]) <= interpret.EFFORT_LIMIT:
            elements = sum(found[id(v)] for v in node.inputs)
            found |= {id(v): min(elements, number(v.tensor.count)) for v in node.outputs}
    return found


def _dear(graph: Graph, made: dict[int, int]) -> set[int]:
    """Of the values that repeat elements those, by id, that take longer to compute than to read."""
    found = set[int]()
    for node in graph.nodes:
        if node.outputs and id(node.outputs[0]) in made and _repeats(node, made):
            itself = isinstance(node.op, Map) and contains(node.op.body, *SERIES)
            found |= {id(v) for v in node.outputs if itself or any(id(x) in found for x in node.inputs)}
    return found


def _repeats(node: Node, made: dict[int, int]) -> bool:
    """Whether the results have more elements than they are made of."""
    count = sum(number(v.tensor.count) for v in node.outputs)
    elements = max(sum(made[id(v)] for v in node.inputs), 1)
    limit = PLACES if node.outputs[0].dtype == "int64" else SMALL
    return number(node.outputs[0].tensor.nbytes) > limit and count > elements


def _results(
    node: Node, inputs: tuple[Value, ...], budget: _Budget, repeats: bool
) -> tuple[Value, ...] | None:
    """What the node gives for these inputs, if they are constants and it may be computed. repeats: it may not
    unless they and the result repeat one value."""
    if not node.outputs or isinstance(node.op, Random) or not (inputs or _is_dear(node)):
        return None
    constants = [v.constant for v in inputs if v.constant is not None]
    types = [v.type for v in node.outputs if isinstance(v.type, TensorType) and is_static(v.type.shape)]
    if len(constants) < len(inputs) or len(types) < len(node.outputs):
        return None
    if inputs and all(c.splat is not None for c in constants) and len(types) == 1:
        repeated = _splat(node, constants)
        if repeated is not None:
            return repeated
    nbytes = sum(number(t.nbytes) for t in types)
    if repeats:
        return None
    if _is_cheap(node) and steps_of(constants) <= STEPS_LIMIT and budget.derives(nbytes, constants):
        return (_lazily(node, constants),)
    if nbytes > VALUE_LIMIT or not budget.pays(nbytes, interpret.effort(node.op, [v.type for v in inputs])):
        return None
    made = computed(node.op, constants)
    return None if made is None else tuple(map(_value, node.outputs, made))


def _is_dear(node: Node) -> bool:
    """Whether a node makes of the places of its elements what is better stored: the waves of a transform."""
    if not isinstance(node.op, Map) or not contains(node.op.body, *SERIES):
        return False
    nbytes = node.outputs[0].tensor.nbytes
    return isinstance(nbytes, int) and nbytes <= GENERATED_LIMIT


def _is_cheap(node: Node) -> bool:
    """Whether computing the node cannot fail, takes no longer than reading its operands, and is worth putting
    off."""
    if isinstance(node.op, Map):
        made = number(node.outputs[0].tensor.nbytes) > SMALL
        return made and not contains(node.op.body, "check", "size", "index")
    if isinstance(node.op, Slice):
        return is_static((*node.op.starts, *node.op.steps))
    return isinstance(node.op, (Reshape, Transpose))


def _lazily(node: Node, constants: list[Constant]) -> Value:
    """A constant made of others when it is written into the library."""
    output, op = node.outputs[0], node.op
    if isinstance(op, Reshape):
        return _value(output, reshaped(op, constants[0]))
    shape = numbers(output.shape)
    return _value(output, put_off(op, constants, output.dtype, shape, lambda: _made(op, constants, shape)))


def _made(op: Op, constants: Sequence[Constant], shape: tuple[int, ...]) -> np.ndarray:
    """The array that an op makes of constants. A Map is computed in slices along its longest axis, so that
    what lies between its operands and its result takes little memory."""
    known = {id(c): c.array for c in dict.fromkeys(constants)}
    arrays = [known[id(c)] for c in constants]
    if not isinstance(op, Map):
        return interpret.run_op(op, arrays, {})[0]
    made = np.empty(shape, dtypes.numpy_dtype(op.body.dtype))
    axis = max(range(len(shape)), key=shape.__getitem__)
    aligned = [a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in arrays]
    step = max(1, SLICE // max(1, made.size // shape[axis]))
    for first in range(0, shape[axis], step):
        inside = (slice(None),) * axis + (slice(first, first + step),)
        parts = [a if a.shape[axis] == 1 else a[inside] for a in aligned]
        made[inside] = interpret.run_op(Map(op.body), parts, {})[0]
    return made


def _splat(node: Node, constants: list[Constant]) -> tuple[Value, ...] | None:
    """A node over repeated values whose result repeats one value too. One that is large stays a node, for
    the library would hold it in full."""
    output = node.outputs[0]
    shape = numbers(output.shape)
    if number(output.tensor.nbytes) > VALUE_LIMIT:
        return None
    if isinstance(node.op, Map) and not contains(node.op.body, "index", "size"):
        scalars = [_scalar(c) for c in constants]
        arrays = interpret.fold(Map(node.op.body), scalars)
        if arrays is None:
            return None
        return (_value(output, Constant(output.dtype, shape, splat=arrays[0].reshape(-1)[0])),)
    if isinstance(node.op, (Broadcast, Reshape, Transpose)):
        return (_value(output, Constant(output.dtype, shape, splat=constants[0].splat)),)
    return None


def _scalar(constant: Constant) -> np.ndarray:
    return np.asarray(constant.splat, dtypes.numpy_dtype(constant.dtype))


def _value(output: Value, constant: Constant) -> Value:
    return Value(output.type, output.name, constant, output.elements)
