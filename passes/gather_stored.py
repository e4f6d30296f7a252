"""gather_stored: rows of a widened table are gathered as they are stored, and widened after.

%w = constant float32[v, d], which is map(%q: int8[v, d], %s) { mul(cast($0, float32), $1) }
gather(%w, %i)   →   map(gather(%q, %i), %s) { mul(cast($0, float32), $1) }

An embedding behind a Cast or DequantizeLinear then stays as small in the library as in the model. It goes
through the Maps and Reshapes that `fold_constants` wrote down, as far as they keep the rows apart. What is
one number in all rows, as zero points often are, is not gathered. Matrices that are picked for the rows of a
product stay: their kernel packs what is stored.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import expr
from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Gather, Map, Reshape
from ..ir.ranges import repeated_element
from .fuse_experts import picked_by


@everywhere
def gather_stored(graph: Graph) -> Graph:
    """graph with Gathers of derived constants as Gathers of what they are derived from."""
    rewriter = Rewriter(graph)
    matrices = {picked_by(node, rewriter.readers) for node in graph.nodes}
    for node in graph.nodes:
        table = node.inputs[0].constant if isinstance(node.op, Gather) and node.op.form == "axis" else None
        if table is None or node in matrices or not _is_wide(table, node.op.axis):
            rewriter.copy(node)
            continue
        gathered = _gathered(rewriter, node, table, rewriter.of(node.inputs[1]))
        rewriter.replace(node.outputs, [gathered])
    return rewriter.finish()


def _is_wide(table: Constant, axis: int) -> bool:
    """Whether less is stored than the table takes, rows apart."""
    return sum(c.nbytes for c in _roots(table, axis)) < table.nbytes


def _roots(table: Constant, axis: int) -> list[Constant]:
    """What is gathered from, or broadcast, in the place of the table."""
    if table.derivation is None or not _passes(table, axis):
        return [table]
    operands = {id(c): c for c in table.derivation.operands}.values()
    return [root for c in operands for root in _roots(c, _axis_in(c, table, axis))]


def _axis_in(operand: Constant, made: Constant, axis: int) -> int:
    """The axis of an operand that is an axis of what is made of it: a Map's align at the last; below 0 where
    there is none."""
    return axis - (len(made.shape) - len(operand.shape)) * (
        made.derivation is not None and isinstance(made.derivation.op, Map)
    )


def _passes(table: Constant, axis: int) -> bool:
    """Whether rows along the axis are made of the same rows of the operands."""
    if table.derivation is None or axis < 0 or table.shape[axis] == 1:
        return False
    match table.derivation.op:
        case Map(body=body):
            return not expr.contains(body, "index")
        case Reshape():
            (source,) = table.derivation.operands
            return source.shape[: axis + 1] == table.shape[: axis + 1]
    return False


def _gathered(rewriter: Rewriter, node: Node, table: Constant, index: Value) -> Value:
    """node's result over `table`, its op's axis counted in the table."""
    axis, rank, origin = node.op.axis, index.rank, node.origin

    def rows(constant: Constant, axis: int) -> Value:
        """The constant's rows at the index, in a shape that broadcasts to those of the table."""
        value = constant_value(constant)
        if axis < 0:
            return value
        if constant.shape[axis] == 1:  # one row for all
            shape = (*constant.shape[:axis], *(1,) * rank, *constant.shape[axis + 1 :])
            return rewriter.add(Reshape(shape), [value], origin)[0]
        if constant.derivation is None or not _passes(constant, axis):
            return rewriter.add(Gather("axis", axis), [value, index], origin)[0]
        op, operands = constant.derivation.op, constant.derivation.operands
        full = any(c.splat is None and c.shape == constant.shape for c in operands)
        numbers = [repeated_element(constant_value(c)) if full else None for c in operands]
        inner = [n or rows(c, _axis_in(c, constant, axis)) for n, c in zip(numbers, operands)]
        if isinstance(op, Reshape) or (isinstance(op, Map) and op.shape is not None):
            op = replace(op, shape=(*constant.shape[:axis], *index.shape, *constant.shape[axis + 1 :]))
        return rewriter.add(op, inner, origin)[0]

    return rows(table, axis)
