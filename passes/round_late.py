"""round_late: between what computes float16 numbers and what computes with them they stay float32.

%1 = map(%x: float16, %y: float16) { mul($0, $1) }; %2 = transpose(%1); %3 = map(%2) { exp($0) }
    →   %1 = map(%x, %y) { mul(cast($0, float32), cast($1, float32)) }; %2 = transpose(%1)
        %3 = map(%2) { cast(exp($0), float16) }

Numbers are rounded where the type itself is asked for (outputs, branches, loops, sorting, operators in C) and
where the model casts: a Map that is `asked` to, or casts what another ONNX node made. So does ONNX Runtime,
which casts around each node without a kernel for float16 and takes out casts that undo each other
(InsertCastTransformer).

Rounding to bfloat16 takes as long as two operations; a node does it once, not after each operation:

map(%x: bfloat16) { neg(exp(exp($0))) }   →   map(%x) { cast(neg(exp(exp(cast($0, float32)))), bfloat16) }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import expr
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Value
from ..ir.ops import Attention, Contract, Conv, Map, Op, Pool, Recurrent, Reduce, RuntimeCall
from ..ir.widths import MOVEMENT, WIDE, TwoWidths, moved

NARROW = "float16"
#: The type whose numbers are rounded once a node.
BRIEF = "bfloat16"
#: What computes with whole operands of a type, beside Maps, Reduces and sums of products, which have bodies.
_WHOLE = (Attention, Pool, Recurrent)


@everywhere
def round_late(graph: Graph) -> Graph:
    """graph that computes in float32 where it said float16, and within its nodes where it said bfloat16."""
    return _Later(graph, _wanted(graph)).finish()


def _computes(node: Node) -> bool:
    """Whether a node's results are rounded because of their type alone."""
    match node.op:
        case Map(body) if _casts(node.op):
            made = node.inputs[body.args[0].value].producer
            return not node.op.asked and made is not None and _rounds_result(node, made)
        case Map(body):
            return body.op != "input"
        case Contract(accumulate=wide) | Conv(accumulate=wide):
            return wide != NARROW
        case Reduce():
            return True
    return isinstance(node.op, _WHOLE)


def _rounds_result(node: Node, made: Node) -> bool:
    """Whether a cast is of what the same ONNX node has computed, rather than of its operand."""
    return node.origin == made.origin != "" and not isinstance(made.op, RuntimeCall)


def _reads_numbers(node: Node) -> bool:
    """Whether a node may be given float32 numbers for its operands of float16."""
    return _computes(node) or (isinstance(node.op, Map) and node.outputs[0].dtype != NARROW)


def _wanted(graph: Graph) -> set[Value]:
    """The values to keep in float32: computed, or moved after that, and read by what computes."""
    made: set[Value] = set()
    for node in graph.nodes:
        moves = isinstance(node.op, MOVEMENT) and any(v in made for v in moved(node))
        if moves or _computes(node):
            made.update(v for v in node.outputs if v.dtype == NARROW)
    wanted: set[Value] = set()
    for node in reversed(graph.nodes):
        if _reads_numbers(node):
            wanted.update(made.intersection(node.inputs))
        elif isinstance(node.op, MOVEMENT) and node.outputs[0] in wanted:
            wanted.update(made.intersection(moved(node)))
    return wanted


class _Later(TwoWidths):
    """Wide numbers are those that were not rounded yet."""

    def rewrite(self, node: Node) -> None:
        wanted = any(v in self.wanted for v in node.outputs)
        if isinstance(node.op, MOVEMENT) and wanted:
            self._emit(node, node.op, self.moved_wide(node))
        elif isinstance(node.op, Map) and _rounds_inside(node.op.body):
            operands = [self.as_it_was(v) for v in node.inputs]
            body = _unrounded(node.op.body, operands, BRIEF).cast(BRIEF)
            self._emit(node, replace(node.op, body=body), operands)
        elif not (_reads_numbers(node) and (wanted or self._may_round(node))):
            self.rewriter.copy(node, [self.as_it_was(v) for v in node.inputs])
        elif isinstance(node.op, _WHOLE):
            self._emit(node, node.op, [self._wide(v, node) for v in node.inputs])
        else:
            self._bodied(node, wanted)

    def _may_round(self, node: Node) -> bool:
        """Whether something is rounded before a node whose results are, or inside its body; or a product may
        be one of float16s."""
        return isinstance(node.op, (Map, Contract, Conv)) or any(v in self.wide for v in node.inputs)

    def _bodied(self, node: Node, wanted: bool) -> None:
        """A Map, a Reduce or a sum of products, whose body computes in float32."""
        op, operands = node.op, [self.wide.get(v) or self.rewriter.of(v) for v in node.inputs]
        if isinstance(op, Map):
            body = _unrounded(op.body, operands)
            if op.body.dtype == NARROW and wanted and body.op == "input" and len(operands) == 1:
                self.wide[node.outputs[0]] = operands[body.value]
                return
            if op.body.dtype == NARROW and not wanted:
                body = body.cast(NARROW)
            self._emit(node, replace(op, body=body), operands)
        elif isinstance(op, Reduce):
            body = _unrounded(op.body or expr.input_(0, node.inputs[0].dtype), operands)
            self._emit(node, replace(op, body=None if body.op == "input" else body), operands)
        elif isinstance(op, (Contract, Conv)):
            sums = expr.input_(0, op.accumulate)
            body = sums if op.epilogue is None else _unrounded(op.epilogue, [None, *operands[2:]])
            halves = all(_is_half(v, node) for v in node.inputs[:2])
            op = replace(op, halves=halves or op.halves)
            self._emit(node, replace(op, epilogue=None if body is sums else body), operands)

    def _emit(self, node: Node, op: Op, operands: Sequence[Value]) -> None:
        """The node with another op, what it gives in float32 noted as that."""
        operands = [self.rewriter.of(v) for v in operands]
        if op == node.op and operands == [self.rewriter.of(v) for v in node.inputs]:
            self.rewriter.copy(node)
            return
        names = [v.name for v in node.outputs]
        results = self.rewriter.add(op, operands, node.origin, names)
        for before, after in zip(node.outputs, results, strict=True):
            if before.dtype == after.dtype:
                after.elements = before.elements
                self.rewriter.replace([before], [after])
            else:
                self.wide[before] = after

    def _wide(self, value: Value, node: Node) -> Value:
        """An operand as float32, if it is a float16."""
        return self.widened(value, node.origin) if value.dtype == NARROW else self.rewriter.of(value)


def _is_half(value: Value, node: Node) -> bool:
    """Whether an operand is a float16, or one that the same ONNX node, or a constant, has as another type."""
    if value.dtype == NARROW:
        return True
    if value.constant is not None:
        made = value.constant.derivation
        return made is not None and _casts(made.op) and made.operands[0].dtype == NARROW
    cast = value.producer
    own = cast is not None and cast.origin == node.origin != "" and _casts(cast.op)
    return own and value.node.inputs[0].dtype == NARROW


def _casts(op: Op) -> bool:
    """Whether an op gives its operand as another type."""
    return isinstance(op, Map) and op.body.op == "cast" and op.body.args[0].op == "input"


def _rounds_inside(body: Expr) -> bool:
    """Whether a body that gives a bfloat16 computes others on the way."""
    inner = (e for e in expr.topological(body) if e is not body and e.dtype == BRIEF)
    return body.dtype == BRIEF and body.op != "cast" and any(e.op not in ("input", "const") for e in inner)


def _unrounded(body: Expr, operands: Sequence[Value | None], short: str = NARROW) -> Expr:
    """A body over these operands (None: as it was) with float32 for every number of a short type in it."""
    done: dict[Expr, Expr] = {}

    def narrow(e: Expr) -> Expr:
        return done[e].cast(short) if e.dtype == short else done[e]

    for e in expr.topological(body):
        if e.op == "input":
            operand = operands[e.value]
            new = expr.input_(e.value, e.dtype if operand is None else operand.dtype)
        elif e.op == "const":
            new = e
        elif e.op == "cast":
            new = done[e.args[0]] if e.dtype == short else done[e.args[0]].cast(e.dtype)
        elif e.op in ("bitcast", "lookup"):
            new = expr.rebuild(e, tuple(map(narrow, e.args)))
        else:
            new = expr.rebuild(e, tuple(done[a] for a in e.args))
        done[e] = new.cast(WIDE) if e.dtype == short else new
    return done[body]
