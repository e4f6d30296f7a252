"""What a group of Maps and Reduces over rows computes in which pass: the plan that `kernels/rows.py` emits.

Every value becomes an expression of leaves: `wide` ones differ along the row, the others are numbers,
computed once a row. A Reduce of wide values that need no other Reduce is made in pass 0, one that needs those
in pass 1, and so on; each result is written in the first pass that can. A wide part that later passes need
again and that is dear to compute is kept. Rows are divided by a number by multiplying with its inverse, where
that is as good; what they are divided by after that divides the inverse. Quantised rows are scaled late:
their sums and means are those of integers, and the scale is a factor of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import field, replace

import numpy as np

from ...ir import dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Graph, Node, Value
from ...ir.ops import Gather, Map, Reduce
from ...records import dataclass
from .. import costs
from ..text.conversion import NARROW, SCALES, computed_in
from ..text.exponentials import FAR_BELOW
from ..text.scalar import softmax_exp
from .states import State, accumulator

KINDS = ("sum", "prod", "min", "max", "and", "or")

#: Keeping a value costs a store and loads; what takes more instructions and loads than this in the passes
#: after the first that needs it is kept.
DEAR = 2

#: Leaves are inputs of expressions: the operands from 0 on, results of reductions, numbers made of
#: these, kept wide values.
REDUCED, NUMBER, KEPT = 1 << 16, 2 << 16, 3 << 16

#: Operations whose result is NaN where an argument is.
_KEEP_NAN = frozenset(
    ("add", "sub", "mul", "div", "neg", "abs", "min", "max", "cast")
    + ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "erf")
)


@dataclass
class Pass:
    """One run through a row: `roots` are what the reductions combine, as they compute it, then what
    goes to `stores`."""

    reductions: list[State] = field(default_factory=list)
    results: list[Expr] = field(default_factory=list)  # the leaves that the reductions give
    stores: list[tuple[str, int]] = field(default_factory=list)  # ("output" or "kept", index)
    roots: list[Expr] = field(default_factory=list)
    before: dict[int, Expr] = field(default_factory=dict)  # numbers to be computed first, by their leaves
    reads: list[int] = field(default_factory=list)  # wide leaves of the roots
    known: list[int] = field(default_factory=list)  # their other leaves


@dataclass(frozen=True)
class Gathered:
    """How an operand is read of which a Gather picks each row, and which operand names its place."""

    op: Gather
    places: int


class RowPasses:
    """The plan of a group over `shape`, whose axes from `outer` on make a row. `outputs` are the
    region's as expressions of leaves, those in `written` over whole rows, the others numbers. `gathered`: the
    operands whose rows Gathers pick."""

    def __init__(self, shape: tuple[Dimension, ...], depth: int, dear: int):
        self.shape, self.outer, self.dear = shape, len(shape) - depth, dear
        self.reduced: list[tuple[State, Expr]] = []
        self.kept: list[Expr] = []
        self.homes: list[tuple[str, int]] = []  # where they lie: ("kept", index) or in a result's place
        self.outputs: list[Expr] = []
        self.written: list[int] = []
        self.passes: list[Pass] = []
        self.gathered: dict[int, Gathered] = {}
        self._level: dict[Expr, int] = {}  # the first pass in which a node can be computed or read
        self._wide: dict[Expr, bool] = {}

    # Expressions -----------------------------------------------------------------------------------

    def leaf(self, index: int, dtype: str, level: int, wide: bool) -> Expr:
        node = expr.input_(index, dtype)
        self._level[node], self._wide[node] = level, wide
        return node

    def level(self, root: Expr) -> int:
        """The first pass in which the value can be computed."""
        self._learn(root)
        return self._level[root]

    def wide(self, root: Expr) -> bool:
        self._learn(root)
        return self._wide[root]

    def _learn(self, root: Expr) -> None:
        if root not in self._level:
            for node in expr.topological(root):
                if node not in self._level:
                    self._level[node] = max((self._level[a] for a in node.args), default=0)
                    self._wide[node] = any(self._wide[a] for a in node.args)

    def multiplied(self, root: Expr) -> Expr:
        """root with x * (1 / n) for x / n where x differs along the row, n does not and 1 / n can be had,
        x * (1 / n / c) for what is then divided by a constant, as quantising does, and the scales of
        integers outside of sums and products."""
        done: dict[Expr, Expr] = {}
        for node in expr.topological(root):
            made = expr.rebuild(node, tuple(done[a] for a in node.args))
            if made.op == "div" and dtypes.is_float(made.dtype) and self.wide(made.args[0]):
                x, n = made.args
                if not self.wide(n) and self._invertible(n):
                    x, n = (a.cast(computed_in(made.dtype)) for a in (x, n))
                    made = self._scaled_late(x * (1 / n)).cast(node.dtype)
                elif n.op == "const" and n.dtype not in NARROW and SCALES[0] < abs(n.value) < SCALES[1]:
                    made = self._divided(x, n) or made
            done[node] = self._scaled_late(made)
        return done[root]

    def _divided(self, x: Expr, n: Expr) -> Expr | None:
        """x / n where a factor of x is an inverse that is the same along the row, or x is a sum of such a
        product and others."""
        if x.op == "add":
            terms = [self._divided(a, n) if self.wide(a) else a / n for a in x.args]
            if not any(made is not None and self.wide(made) for made in terms):
                return None
            first, second = (a * (1 / n) if made is None else made for a, made in zip(x.args, terms))
            return first + second
        if x.op != "mul":
            return None
        for k, factor in enumerate(x.args):
            made = factor / n if self._is_inverse(factor) else None
            if made is None and self.wide(factor):
                made = self._divided(factor, n)
            if made is not None:
                return made * x.args[1 - k]
        return None

    def _is_inverse(self, x: Expr) -> bool:
        """Whether x is the same along the row and an inverse, or a scale times one."""
        if x.op == "mul" and x.args[1].op == "const":
            x = x.args[0]
        return x.op == "div" and not self.wide(x)

    def _scaled_late(self, x: Expr) -> Expr:
        """x with the scale of `_scale` outside:
        (k c)(m d) → (k m)(c d)   k c - n c → (k - n) c   (k c) n → k (n c)   n c / 256 → (n / 256) c"""
        if x.op not in ("mul", "sub", "div"):
            return x
        (k, c), (m, d) = map(self._scale, x.args)
        if c is None:
            return x
        if x.op == "mul" and d is not None:
            return (k * m) * (c * d)
        if x.op == "mul" and m.op == "const" and not self.wide(k):
            return (k * m) * c
        if x.op == "mul" and m.op != "const" and self.wide(k) and not self.wide(m):
            return k * (m * c)
        if x.op == "sub" and c is d and self.wide(k):
            return (k - m) * c
        if x.op == "div" and m.op == "const" and not self.wide(k):
            return (k / m) * c
        return x

    def _scale(self, x: Expr) -> tuple[Expr, Expr | None]:
        """(k, c) of x = k * c with a constant c, where k is made of small integers, so that neither it nor
        its square is too large or too small for a float32; (x, None) of others."""
        if x.op != "mul" or x.args[1].op != "const" or x.dtype not in ("float32", "float64"):
            return x, None
        k, c = x.args
        fits = SCALES[0] < abs(c.value) < SCALES[1] and self._of_integers(k)
        return (k, c) if fits else (x, None)

    def _of_integers(self, x: Expr) -> bool:
        """Whether x and the sums that it is made of are of integers of at most 16 bits."""
        for node in expr.topological(x):
            if node.op == "input" and REDUCED <= node.value < NUMBER:
                state, value = self.reduced[node.value - REDUCED]
                known = state.kind == "sum" and self._of_integers(value)
            elif node.op == "input":
                known = dtypes.is_integer(node.dtype) and dtypes.bits(node.dtype) <= 16
            else:
                known = node.op in ("const", "cast", "add", "sub", "mul", "div")
            if not known:
                return False
        return True

    def _invertible(self, x: Expr) -> bool:
        """Whether x >= 0, or NaN, has an inverse that is neither denormal nor infinite, except those of 0
        and infinity. Square roots have, and so has a sum of exponentials of which one is 1."""
        if x.op == "sqrt":
            return True
        if x.op in ("max", "add") and x.args[1].op == "const":
            least = float(np.finfo(dtypes.numpy_dtype(accumulator(x.dtype))).tiny)
            return least <= x.args[1].value <= 1 / least and self._invertible(x.args[0])
        return (
            x.op == "input"
            and REDUCED <= x.value < NUMBER
            and self._softmax(*self.reduced[x.value - REDUCED])
        )

    def _softmax(self, state: State, value: Expr) -> bool:
        """Whether a reduction is the sum of the exponentials of a softmax."""
        if state.kind != "sum" or value.op != "exp" or value.args[0].op != "sub":
            return False
        return self._meets(*value.args[0].args)

    def _meets(self, x: Expr, y: Expr) -> bool:
        """Whether x and y are the same function of an element and of the greatest one, so that they are equal
        somewhere in the row."""
        found = [i - REDUCED for i in expr.inputs(y) if REDUCED <= i < NUMBER]
        if len(found) != 1 or self.reduced[found[0]][0].kind != "max":
            return False
        return expr.substitute(y, {REDUCED + found[0]: self.reduced[found[0]][1]}) is x

    def reduce(self, kind: str, value: Expr) -> Expr:
        """A leaf for the result of a new reduction, or that times a scale."""
        k, c = self._scale(value)
        if c is not None and kind == "sum":
            return self.reduce(kind, k) * c
        if value.dtype == "bool":
            kind = {"sum": "max", "prod": "min"}.get(kind, kind)
        self.reduced.append((State(kind, accumulator(value.dtype)), value))
        return self.leaf(REDUCED + len(self.reduced) - 1, value.dtype, self.level(value) + 1, False)

    # Passes ----------------------------------------------------------------------------------------

    def distribute(self) -> None:
        """Plans the passes, when all reductions and outputs are known."""
        self._ignore_nan()
        self._vanish()
        wanted = [e for _, e in self.reduced] + [self.outputs[i] for i in self.written]
        self.passes = [Pass() for _ in range(1 + max(map(self.level, wanted)))]
        self._choose_kept(wanted)
        for index, (state, value) in enumerate(self.reduced):
            one = self.passes[self.level(value)]
            one.reductions.append(state)
            one.results.append(expr.input_(REDUCED + index, value.dtype))
            one.roots.append(value.cast(state.dtype))
        stores = [(("kept", i), e) for i, e in enumerate(self.kept)]
        stores += [(("output", i), self.outputs[i]) for i in self.written]
        for place, value in stores:
            one = self.passes[self.level(value)]
            one.stores.append(place)
            one.roots.append(value)
        numbers: dict[Expr, int] = {}
        computed: set[int] = set()
        for number, one in enumerate(self.passes):
            one.roots = [self._seen(root, number, numbers) for root in one.roots]
            leaves = [n for n in expr.topological(*one.roots) if n.op == "input"]
            one.reads = sorted(n.value for n in leaves if self.wide(n))
            one.known = sorted(n.value for n in leaves if not self.wide(n))
            one.before = {i: e for e, i in numbers.items() if i in one.known and i not in computed}
            computed.update(one.before)
        self._settle()

    def _settle(self) -> None:
        """Homes for what is kept: the result that it is, or one that is written no sooner than it is last
        read, else memory of its own."""
        written = {i: n for n, one in enumerate(self.passes) for kind, i in one.stores if kind == "output"}
        for index, value in enumerate(self.kept):
            last = max(n for n, one in enumerate(self.passes) if KEPT + index in one.reads)
            fit = [i for i in written if self.outputs[i] is value] or [
                i for i, n in written.items() if n >= last and self.outputs[i].dtype == value.dtype
            ]
            free = [("output", i) for i in fit if ("output", i) not in self.homes]
            self.homes.append(free[0] if free else ("kept", index))

    @property
    def held(self) -> int:
        """How many values are kept from one pass to the next, at most."""
        read = {i: n for n, one in enumerate(self.passes) for i in one.reads}
        ends = [(self.level(v), read[KEPT + i]) for i, v in enumerate(self.kept)]
        return max(sum(first <= n < last for first, last in ends) for n in range(len(self.passes)))

    def _ignore_nan(self) -> None:
        """Greatest and least elements need not be NaN where that makes all outputs NaN anyway, and cannot be
        where they are of integers."""
        for index, (state, value) in enumerate(self.reduced):
            if state.kind not in ("min", "max") or not dtypes.is_float(state.dtype):
                continue
            known = {value}
            for other, (s, e) in enumerate(self.reduced):
                if other != index and s.kind in ("sum", "prod") and _nan_if(e, known):
                    known.add(expr.input_(REDUCED + other, e.dtype))
            known.remove(value)
            if _never_nan(value) or all(_nan_if(output, known) for output in self.outputs):
                self.reduced[index] = replace(state, nan=False), value

    def _vanish(self) -> None:
        """exp(x - max) → `softmax_exp(x - max)`, unless something may take its logarithm: that of the
        sum, which is at least 1, is as good."""
        found = [e for s, e in self.reduced if e.dtype == s.dtype in FAR_BELOW and self._softmax(s, e)]
        made_of = expr.topological(*self.outputs)
        if any(n.op == "log" for n in made_of) and any(e in made_of for e in found):
            return
        made = {e: softmax_exp(e.args[0]) for e in found}
        self.reduced = [(state, expr.rewrite(value, made.get)) for state, value in self.reduced]
        self.outputs = [expr.rewrite(value, made.get) for value in self.outputs]

    @property
    def row_operands(self) -> list[int]:
        """The operands of one number a row that something needs."""
        numbers = [e for p in self.passes for e in p.before.values()]
        numbers += [e for i, e in enumerate(self.outputs) if i not in self.written]
        needed = {i for e in numbers for i in expr.inputs(e)} | {i for p in self.passes for i in p.known}
        return sorted(i for i in needed if i < REDUCED)

    def _choose_kept(self, wanted: Sequence[Expr]) -> None:
        """Of the parts that a pass takes from earlier ones, those kept: smaller ones first, which
        make others cheaper."""
        edge = {
            a: None
            for w in wanted
            for n in expr.topological(w)
            for a in n.args
            if a.args and self.wide(a) and self.level(a) < self.level(n)
        }
        edge.update((w, None) for w in wanted if w.args and self.wide(w))
        order = {n: k for k, n in enumerate(expr.topological(*wanted))}
        for node in sorted(edge, key=lambda n: (self.level(n), order[n])):
            here = self.level(node)
            seen = expr.topological(self._seen(node, here + 1))  # as later passes would compute it
            price = sum(_price(n) for n in seen if self.wide(n)) - 1  # numbers are there anyway
            used = {
                level
                for w in (*wanted, *self.kept)
                if self._seen(node, level := self.level(w)) in expr.topological(self._seen(w, level))
            }
            if price * (len(used) - 1) > self.dear:  # the first that uses it computes it either way
                self._keep([*self.kept, node])
        while (read := self._read(wanted)) != self.kept:  # what made others that are kept, too
            self._keep(read)

    def _keep(self, values: list[Expr]) -> None:
        self.kept = values
        for index, value in enumerate(values):
            self.leaf(KEPT + index, value.dtype, self.level(value) + 1, True)

    def _read(self, wanted: Sequence[Expr]) -> list[Expr]:
        """What is kept and a later pass reads."""
        made = [self._seen(w, self.level(w)) for w in (*wanted, *self.kept)]
        leaves = {leaf.value for leaf in expr.topological(*made) if leaf.op == "input"}
        return [value for index, value in enumerate(self.kept) if KEPT + index in leaves]

    def _seen(self, root: Expr, number: int, numbers: dict[Expr, int] | None = None) -> Expr:
        """root in the pass of that number: what earlier passes kept is read; with `numbers`, whatever is
        the same along the row becomes a leaf, listed there, but for conditions: a comparison of vectors
        makes the mask that one of numbers would have to be moved to."""
        kept = {e: KEPT + i for i, e in enumerate(self.kept) if self.level(e) < number}

        def leaf(node: Expr) -> Expr | None:
            if node in kept:
                return expr.input_(kept[node], node.dtype)
            if numbers is None or not node.args or node.dtype == "bool" or self.wide(node):
                return None
            index = numbers.setdefault(node, NUMBER + len(numbers))
            return self.leaf(index, node.dtype, number, False)

        return expr.rewrite(root, leaf)


def _price(node: Expr) -> int:
    """Instructions for a part and for bringing it from or to 16 bits."""
    narrow = node.op not in ("input", "const") and any(n.dtype in NARROW for n in (node, *node.args))
    return (costs.DIVIDED if node.op in costs.DIVISIONS else costs.INSTRUCTIONS.get(node.op, 1)) + (
        costs.CONVERTED if narrow else 0
    )


def _nan_if(root: Expr, known: Collection[Expr]) -> bool:
    """Whether root is NaN wherever one of the known values is."""
    found: dict[int, bool] = {}
    for node in expr.topological(root):
        passes = node.op in _KEEP_NAN and dtypes.is_float(node.dtype)
        found[id(node)] = node in known or (passes and any(found[id(a)] for a in node.args))
    return found[id(root)]


def _never_nan(root: Expr) -> bool:
    """Whether root is an integer as a float, or that times a scale: a number, whatever the operands are."""
    if root.op == "mul" and root.args[1].op == "const" and math.isfinite(root.args[1].value):
        root = root.args[0]
    wide = root.dtype in ("float32", "float64")
    return root.op == "cast" and wide and dtypes.is_integer(root.args[0].dtype)


def analysed(region: Graph, dear: int = DEAR) -> RowPasses | None:
    """The region's plan, in which what costs later passes more than `dear` is kept; None if it is no
    computation of rows: Reduces over other than the same last axes or of other kinds, rows gathered along
    other axes, values of another shape, indices, checks, or a constant tensor that is no operand."""
    frame = _frame(region)
    if frame is None:
        return None
    shape, depth = frame
    rows = RowPasses(shape, depth, dear)
    values: dict[Value, Expr] = {}
    number = {value: index for index, value in enumerate(region.inputs)}
    for node in region.nodes:
        if isinstance(node.op, Gather):
            if not all(value in number for value in node.inputs):
                return None
            source, places = (number[value] for value in node.inputs)
            rows.gathered[source] = Gathered(node.op, places)
            values[node.outputs[0]] = rows.leaf(source, node.outputs[0].dtype, 0, True)
    apart = {*rows.gathered, *(found.places for found in rows.gathered.values())}
    for index, value in enumerate(region.inputs):
        if index in apart:
            continue
        if value.rank > len(shape):
            return None
        wide = any(d != 1 for d in value.shape[max(0, value.rank - depth) :])
        values[value] = rows.leaf(index, value.dtype, 0, wide)
    for node in region.nodes:
        made = values.get(node.outputs[0]) or _value(node, values, rows)
        if made is None:
            return None
        values[node.outputs[0]] = made
    for index, value in enumerate(region.outputs):
        if value not in values:
            return None
        rows.outputs.append(values[value])
        if value.shape == shape:
            rows.written.append(index)
    rows.distribute()
    return rows


def _frame(region: Graph) -> tuple[tuple[Dimension, ...], int] | None:
    """The shape of all rows, and how many of its axes a row has."""
    frames: list[tuple[tuple[Dimension, ...], int]] = []
    for node in region.nodes:
        if isinstance(node.op, Reduce):
            shape, axes = node.inputs[0].shape, node.op.axes
            trailing = tuple(range(len(shape) - len(axes), len(shape)))
            if node.op.kind not in KINDS or not node.op.keepdims or not axes or axes != trailing:
                return None
            frames.append((shape, len(axes)))
        elif isinstance(node.op, Gather):
            frames.append((node.outputs[0].shape, node.op.row_axes(*(v.tensor for v in node.inputs))))
    return frames[0] if frames and all(frame == frames[0] for frame in frames) else None


def _value(node: Node, values: dict[Value, Expr], rows: RowPasses) -> Expr | None:
    """What a node computes for one element."""
    small = (*rows.shape[: rows.outer], *(1,) * (len(rows.shape) - rows.outer))
    if not isinstance(node.op, (Map, Reduce)) or node.outputs[0].shape not in (rows.shape, small):
        return None
    for value in node.inputs:
        if value not in values and value.constant is not None and value.constant.splat is not None:
            values[value] = expr.const(np.asarray(value.constant.splat).item(), value.dtype)
    if any(value not in values for value in node.inputs):
        return None
    body = node.op.body if node.op.body is not None else expr.input_(0, node.inputs[0].dtype)
    if any(n.op in ("index", "check") for n in expr.topological(body)):
        return None
    result = rows.multiplied(expr.substitute(body, {k: values[v] for k, v in enumerate(node.inputs)}))
    return rows.reduce(node.op.kind, result) if isinstance(node.op, Reduce) else result
