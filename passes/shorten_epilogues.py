"""shorten_epilogues: what becomes of sums of floats takes as few instructions as it can.

conv(%x, %w) { div(mul($0, min(max(add($0, 3.0), 0.0), 6.0)), 6.0) }
    →   conv(%x, %w) { mul($0, min(max(fma($0, 0.16666667, 0.5), 0.0), 1.0)) }

A factor is multiplied, in float64, into a factor or a sum behind it that nobody else reads; a quotient by a
number is a product; a product that only a sum reads is rounded with it. As with the order of the sums
themselves results differ in their last bits. Bodies that round or compare, whose results might then differ in
more, stay as they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir import expr
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Rewriter
from ..ir.ops import Contract, Conv
from ..ir.ranges import MODERATE

#: Operations that take a small difference of what they are given for a small one.
SMOOTH = frozenset(
    ("input", "const", "neg", "abs", "add", "sub", "mul", "div", "min", "max", "fma")
    + ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "erf")
)


@everywhere
def shorten_epilogues(graph: Graph) -> Graph:
    """graph with shorter epilogues of Conv and Contract nodes that add up floats."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        op = node.op
        body = op.epilogue if isinstance(op, (Conv, Contract)) and not op.exact else None
        made = body if body is None else shortened(body)
        if not isinstance(op, (Conv, Contract)) or made is body:
            rewriter.copy(node)
        else:
            inputs = [rewriter.of(v) for v in node.inputs]
            results = rewriter.add(replace(op, epilogue=made), inputs, node.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, results)
    return rewriter.finish()


def shortened(body: Expr) -> Expr:
    """The body of fewer instructions; itself where there is none."""
    nodes = expr.topological(body)
    if body.dtype not in ("float32", "float64") or any(
        n.op not in SMOOTH or n.dtype != body.dtype for n in nodes
    ):
        return body
    at_work = _Shortening(nodes)
    for node in nodes:
        at_work.add(node)
    made = at_work.made[body]
    return made if expr.instructions(made) <= expr.instructions(body) else body


class _Shortening:
    """What the nodes of a body have become, and how many read that."""

    def __init__(self, nodes: list[Expr]):
        self.users = Counter(argument for node in nodes for argument in node.args)
        self.made: dict[Expr, Expr] = {}
        self.readers: Counter[Expr] = Counter()

    def add(self, node: Expr) -> None:
        args = tuple(self.made[a] for a in node.args)
        found = self._shorter(node, args) or (expr.rebuild(node, args) if args else node)
        self.made[node] = found
        self.readers[found] += self.users[node]

    def _shorter(self, node: Expr, args: tuple[Expr, ...]) -> Expr | None:
        match node.op:
            case "mul" if (split := _number_of(args)) is not None:
                return self._scaled(*split)
            case "div" if args[1].op == "const" and args[1].value != 0:
                return self._scaled(args[0], 1 / args[1].value)
            case "add":
                return next((_added(x, y) for x, y in (args, args[::-1]) if self._is_product(x)), None)
            case "sub" if args[1].op == "const" and self._is_product(args[0]):
                return _added(args[0], expr.const(-args[1].value, node.dtype))
        return None

    def _is_product(self, x: Expr) -> bool:
        return x.op == "mul" and self.readers[x] == 1

    def _scaled(self, x: Expr, factor: float) -> Expr | None:
        """x * factor, None where the number is too large or small."""
        return self._absorbed(x, factor) or self._applied("mul", x, factor)

    def _absorbed(self, x: Expr, factor: float) -> Expr | None:
        """x * factor without an instruction for that, if there is such an expression."""
        if x.op == "const":
            return _constant(x.value * factor, x.dtype)
        if self.readers[x] > 1:
            return None
        split = _number_of(x.args)
        match x.op:
            case "mul":
                return self._product(x, factor)
            case "fma" if x.args[2].op == "const":
                shift = _constant(x.args[2].value * factor, x.dtype)
                return None if shift is None else self._product(x, factor, shift)
            case "sub" if x.args[1].op == "const":
                return self._applied("fma", x.args[0], factor, -x.args[1].value * factor)
            case "add" if split is not None:
                return self._applied("fma", split[0], factor, split[1] * factor)
            case "min" | "max" if split is not None:
                inner, bound = self._absorbed(split[0], factor), _constant(split[1] * factor, x.dtype)
                op = x.op if factor > 0 else {"min": "max", "max": "min"}[x.op]
                return None if inner is None or bound is None else self._new(op, inner, bound)
        return None

    def _product(self, x: Expr, factor: float, *shift: Expr) -> Expr | None:
        """The product that is x, or is the first part of x, with one of its factors times `factor`, and a
        shift."""
        for k in (0, 1):
            scaled = self._absorbed(x.args[k], factor)
            if scaled is not None:
                factors = (scaled, x.args[1]) if k == 0 else (x.args[0], scaled)
                return self._new(x.op, *factors, *shift)
        return None

    def _applied(self, op: str, x: Expr, *numbers: float) -> Expr | None:
        """The operation on x and numbers."""
        constants = [_constant(n, x.dtype) for n in numbers]
        known = [c for c in constants if c is not None]
        return self._new(op, x, *known) if len(known) == len(constants) else None

    def _new(self, op: str, *args: Expr) -> Expr:
        """An expression that no node has become yet, which is the one that reads what was made for it."""
        for argument in args:
            self.readers[argument] = max(1, self.readers[argument])
        return expr.apply(op, *args)


def _added(product: Expr, y: Expr) -> Expr:
    return expr.apply("fma", *product.args, y)


def _number_of(args: tuple[Expr, ...]) -> tuple[Expr, float] | None:
    """Two arguments of which one is a number, that one last."""
    if len(args) != 2 or "const" not in (args[0].op, args[1].op):
        return None
    x, number = args if args[1].op == "const" else args[::-1]
    return x, float(number.value)


def _constant(value: float, dtype: str) -> Expr | None:
    """A number that is neither too large nor too small."""
    if value == 0:
        return expr.const(0.0, dtype)
    return expr.const(value, dtype) if MODERATE[0] < abs(value) < MODERATE[1] else None
