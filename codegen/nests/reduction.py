"""Reduce and Contract: nests in which some axes are kept and the others combined.

    vertical     for vectors of j:  for r:  sum[j] += term[r, j]     the innermost kept axis in lanes
    horizontal   for j:  for vectors of r:  sum += term[j, r]        the innermost reduced axis, the
                                                                     lanes combined at the end
Which of the two is chosen by how the operands lie in memory and how long both axes are: by the run, where
only it knows the latter. The result is cast, or goes through an epilogue with operands of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, takewhile

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node
from ...ir.ops import Reduce
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import Function, scalar_type, splat, vector_constant, vector_type
from ..text.memory import first_lanes, load_lanes, store_lanes
from ..tiles.contraction import sizes_of, steps_of
from ..tiles.microkernel import fused
from ..tiles.strides import row_major
from .nest import (
    Block,
    Blocks,
    Piece,
    Stages,
    View,
    address,
    block_rows,
    broadcasting,
    collapse,
    dense,
    displaced,
    moving,
    run_through,
)
from .operands import (
    Indices,
    Reader,
    Reads,
    each_vector,
    evaluate,
    nothing,
    read_all,
    scratch_bytes,
    stride_kind,
    vector_lanes,
)
from .states import State, accumulator

ACCUMULATORS = 4  # vectors that are summed at once, for the latency of an addition
LENGTHS = (1, 8, 64, 4096)  # of an axis of which only the run knows


# The nest ----------------------------------------------------------------------------------------


class Reduction(Piece):
    """out[kept] = finish(reduction over reduced of term(views), extra views).

    `views` run over kept and reduced axes and are the operands of `term` and `factor`, a second term that the
    first is multiplied with; `extra` run over the kept axes. `finish` has the result as operand 0 and
    extra[i] as operand i."""

    def __init__(
        self,
        target: Target,
        state: State,
        term: Expr,
        kept: Sequence[Dimension],
        reduced: Sequence[Dimension],
        views: Mapping[int, View],
        out: View,
        finish: Expr,
        extra: Mapping[int, View] | None = None,
        factor: Expr | None = None,
    ):
        self.target, self.state, self.factor, self.finish = target, state, factor, finish
        self.terms = [term] if factor is None else [term, factor]
        used = [i for i in expr.inputs(*self.terms) if i in views]
        ends = [i for i in expr.inputs(finish) if i]
        rank, extra = len(kept), extra or {}
        indexed = {n.value for n in expr.topological(*self.terms, finish) if n.op == "index"}
        heads = [views[i].pick(range(rank)) for i in used]
        tails = [views[i].pick(range(rank, rank + len(reduced))) for i in used]
        self.kept, (self.out, *heads_and_ends), outer_groups = collapse(
            kept, (out, *heads, *(extra[i] for i in ends)), [a for a in indexed if a < rank]
        )
        apart = [a - rank for a in indexed if a >= rank]
        self.reduced, inner, inner_groups = collapse(reduced, tails, apart)
        heads, self.extra = (heads_and_ends[: len(used)], dict(zip(ends, heads_and_ends[len(used) :])))
        self.views = {i: replace(h, strides=h.strides + t.strides) for i, h, t in zip(used, heads, inner)}
        groups = (*outer_groups, *(tuple(a + rank for a in group) for group in inner_groups))
        self.axis_of = {axis: k for k, group in enumerate(groups) for axis in group}
        self.lanes = vector_lanes(target, *self.terms, expr.input_(0, state.dtype))
        self.orders = self._orders()
        self.vertical = self.orders[0]
        self.sizes = self.kept

    def _orders(self) -> list[bool]:
        """Whether the innermost kept axis is in the lanes: both answers where that depends on the run, the
        one for usual sizes first."""
        if not self.kept or not self.reduced:
            return [bool(self.kept) or not self.reduced]
        usual = self._steps(True).total <= self._steps(False).total
        inner = self.kept[-1], self.reduced[-1]
        if all(isinstance(size, int) for size in inner):
            return [usual]
        sizes = product(*((size,) if isinstance(size, int) else LENGTHS for size in inner))
        found = {self._instructions(True, *each) <= self._instructions(False, *each) for each in sizes}
        return [*found] if len(found) == 1 else [usual, not usual]

    def _instructions(self, vertical: bool, kept: int, reduced: int) -> float:
        """Of the innermost axes, of that many elements."""
        if vertical:
            return -(-kept // self.lanes) * reduced * self._vector(True) + costs.LOOPED
        return kept * (-(-reduced // self.lanes) * self._vector(False) + self._row)

    def is_vertical(self, f: KernelFunction) -> str:
        """An i1 where the run chooses between the two orders, by whole axes: for all parts alike."""
        kept, reduced = f.size(self.kept[-1]), f.size(self.reduced[-1])

        def scaled(instructions: float) -> int:
            return round(8 * instructions)

        def vectors(count: str) -> str:
            return f.divide(f.add(count, self.lanes - 1), self.lanes)[0]

        down = f.add(f.mul(f.mul(vectors(kept), reduced), scaled(self._vector(True))), scaled(costs.LOOPED))
        across = f.add(f.mul(vectors(reduced), scaled(self._vector(False))), scaled(self._row))
        return f.compare("sle", down, f.mul(kept, across))

    def _vector(self, vertical: bool) -> float:
        """Instructions of a vector of terms."""
        last = len(self.kept) - 1 if vertical else len(self.kept) + len(self.reduced) - 1
        kinds = [stride_kind(v, last) for v in self.views.values()]
        each = sum(costs.GATHERED * self.lanes if kind == "stride" else kind != "same" for kind in kinds)
        return each + 1 + costs.weight(self.target, *self.terms) + costs.ARGMAX * self.state.finds_place

    @property
    def _row(self) -> float:
        """Instructions to begin and end a row whose terms are in the lanes."""
        return costs.REDUCED_PLACES if self.state.finds_place else costs.REDUCED_ROW

    def _steps(self, vertical: bool) -> Estimate:
        """All terms combined, with the innermost kept axis in the lanes or the innermost reduced one, and
        each result's end."""
        facts, lanes = self.target.facts, self.lanes
        results, terms = (dims.typical(dims.product(sizes)) for sizes in (self.kept, self.reduced))
        along = dims.typical((self.kept if vertical else self.reduced)[-1]) if results * terms > 1 else 1
        waits = costs.KEPT_NAN if self.state.keeps_nan else 1
        each, latency = self._vector(vertical) + waits - 1, waits * facts.latency
        many, left = divmod(-(-along // lanes), ACCUMULATORS)
        term = (ACCUMULATORS * many + left) * each / facts.instructions
        if many + left > ACCUMULATORS:  # what comes after a shorter row does not wait for its end
            term = max(term, (many + left) * latency)
        time = results * terms / along * term
        ends = results * (costs.weight(self.target, self.finish) + 1) / facts.instructions
        if vertical:
            begun = costs.begun_row(0, 1) * results / along * terms * (many + left)
            return Estimate(compute=time + ends / lanes) + costs.compute(self.target, begun)
        rows = results * terms / along
        return Estimate(compute=time + ends) + costs.compute(self.target, self._row * rows)

    @property
    def estimate(self) -> Estimate:
        """The terms combined, and every operand brought in once, and again for each step of the outermost
        axes if it has none of these."""
        if not self.kept and not self.reduced:
            return costs.overhead(self.target, costs.SIZE)
        found = self._steps(self.vertical) + moving(self.target, self.extra.values(), self.out, self.kept)
        read = 0.0
        for view in self.views.values():
            nbytes = run_through(view, (*self.kept, *self.reduced))
            outside = [size for size, _ in takewhile(lambda axis: axis[1] == 0, zip(self.kept, view.strides))]
            read += nbytes
            times = dims.typical(dims.product(outside))
            found += costs.again(self.target, nbytes * max(0, times - 1), nbytes)
        if self._goes_down:
            found += costs.apart(self.target, read)
        return found + costs.move(self.target, costs.READ * read, read)

    @property
    def _goes_down(self) -> bool:
        """Whether terms are added up down panels of longer rows."""
        long = bool(self.kept) and dims.typical(self.kept[-1]) > ACCUMULATORS * self.lanes
        return self.vertical and bool(self.reduced) and long

    @property
    def iterations(self) -> Dimension:
        return dims.product((*self.kept, *self.reduced))

    @property
    def blocks(self) -> Blocks:
        return block_rows(self.kept, self.elements, self.lanes * ACCUMULATORS if True in self.orders else 1)

    @property
    def scratch(self) -> int:
        return scratch_bytes(len(self.views) + len(self.extra))

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block of results."""
        if len(self.orders) == 1:
            _Writer(self, f, self.vertical).block(block)
            return
        vertical = self.is_vertical(f)
        with f.when(vertical):
            _Writer(self, f, True).block(block)
        with f.when(f.invert(vertical)):
            _Writer(self, f, False).block(block)


class _Writer:
    """One block being written, with the innermost kept axis in the lanes or the innermost reduced one."""

    def __init__(self, nest: Reduction, f: KernelFunction, vertical: bool):
        self.nest, self.f, self.vertical = nest, f, vertical
        self.rank = len(nest.kept)
        self.at: list[str] = []

    def block(self, block: Block) -> None:
        nest = self.nest
        pointers = {i: address(self.f, v, block.starts) for i, v in nest.views.items()}
        ends = {i: address(self.f, v, block.starts) for i, v in {**nest.extra, 0: nest.out}.items()}
        self.at = list(block.starts)
        looped = [a for a in range(self.rank - self.vertical) if block.extents[a] != "1"]
        self._results(block, looped, pointers, ends)

    def _results(
        self, block: Block, axes: Sequence[int], pointers: Mapping[int, str], ends: Mapping[int, str]
    ) -> None:
        """Loops over the kept axes that are not vectorised."""
        if not axes:
            if self.vertical:
                self._vertical(block.extents[-1] if self.rank else "1", pointers, ends)
            else:
                self._horizontal(pointers, ends)
            return
        f, axis = self.f, axes[0]
        with f.loop(0, block.extents[axis]) as loop:
            self.at[axis] = f.add(block.starts[axis], loop.index)
            self._results(
                block,
                axes[1:],
                self._moved(self.nest.views, pointers, axis, loop.index),
                self._moved({**self.nest.extra, 0: self.nest.out}, ends, axis, loop.index),
            )

    def _moved(
        self, views: Mapping[int, View], pointers: Mapping[int, str], axis: int, index: str
    ) -> dict[int, str]:
        return {
            i: displaced(self.f, p, index, self.f.size(views[i].strides[axis])) for i, p in pointers.items()
        }

    def _readers(
        self, views: Mapping[int, View], axis: int, pointers: Mapping[int, str], slot: int = 0
    ) -> dict[int, Reader]:
        return {
            i: Reader(self.f, v, axis, pointers[i], self.nest.lanes, slot + n)
            for n, (i, v) in enumerate(views.items())
        }

    # One axis kept in the lanes ----------------------------------------------------------------

    def _kept_readers(
        self, views: Mapping[int, View], pointers: Mapping[int, str], slot: int = 0
    ) -> Mapping[int, Reads]:
        """Those along the last kept axis; where none is kept, of single elements."""
        if self.rank:
            return self._readers(views, self.rank - 1, pointers, slot)
        return {i: _Single(self.f, view, pointers[i]) for i, view in views.items()}

    def _vertical(self, count: str, pointers: Mapping[int, str], ends: Mapping[int, str]) -> None:
        nest = self.nest
        end_readers = self._kept_readers(nest.extra, ends, len(nest.views))

        def vectors(indices: Sequence[str | int], lanes: int, mask: str | None, _: str) -> None:
            states = [nest.state.initial(lanes) for _ in indices]
            states = self._reduce(0, pointers, indices, lanes, mask, states)
            for index, state in zip(indices, states):
                self._finish(state, index, lanes, mask, end_readers, ends[0])

        if self.rank:
            each_vector(self.f, count, nest.lanes, ACCUMULATORS if not nest.state.finds_place else 2, vectors)
        else:
            vectors(["0"], 1, None, "0")

    def _reduce(
        self,
        depth: int,
        pointers: Mapping[int, str],
        indices: Sequence[str | int],
        lanes: int,
        mask: str | None,
        states: Sequence[Sequence[str]],
    ) -> list[list[str]]:
        """The reduced axes from `depth` on, around the terms of vectors at `indices` of the last kept
        axis."""
        nest, f = self.nest, self.f
        if depth < len(nest.reduced):
            kinds = [
                (vector_type(scalar_type(t), lanes), x)
                for state in states
                for t, x in zip(nest.state.types, state)
            ]
            axis = self.rank + depth
            with f.loop(0, f.size(nest.reduced[depth]), carried=kinds) as loop:
                self.at[axis:] = [loop.index]
                inner = self._moved(nest.views, pointers, axis, loop.index)
                results = self._reduce(depth + 1, inner, indices, lanes, mask, self._unflat(loop.carried))
                loop.carry(*(x for state in results for x in state))
            return self._unflat(loop.results)
        axis = max(self.rank - 1, 0)
        readers = self._kept_readers(nest.views, pointers)
        combined = []
        for index, state in zip(indices, states):
            place = self.at[self.rank] if len(self.at) > self.rank else "0"
            number = partial(self._number, place, lanes)
            combined.append(self._combine(state, readers, index, lanes, mask, axis, number))
        return combined

    def _number(self, number: str, lanes: int, dtype: str) -> str:
        """A scalar i64 in all lanes of an integer type."""
        if number.isdigit():
            return splat(int(number), dtype, lanes)
        word = scalar_type(dtype)
        narrow = number if word == "i64" else self.f.cast("trunc", number, word, "i64")
        return self.f.broadcast(word, narrow, lanes)

    def _unflat(self, values: Sequence[str]) -> list[list[str]]:
        width = len(self.nest.state.types)
        return [list(values[k : k + width]) for k in range(0, len(values), width)]

    def _combine(
        self,
        state: Sequence[str],
        readers: Mapping[int, Reads],
        index: str | int,
        lanes: int,
        mask: str | None,
        axis: int,
        place: Callable[[str], str],
    ) -> list[str]:
        """state with the term at an index of the vectorised axis."""
        nest, f = self.nest, self.f
        where = Indices(nest.axis_of, self.at, axis)
        values = evaluate(
            f,
            nest.terms,
            read_all(readers, index, lanes, mask),
            lanes,
            lambda a: where.lanes(f, a, index, lanes),
            mask,
        )
        if nest.factor is not None:
            return [fused(f, nest.state.dtype, lanes, *values, *state)]
        new = [*values, place(nest.state.place)] if nest.state.finds_place else values
        return nest.state.advance(f, state, new, lanes)

    def _finish(
        self,
        state: Sequence[str],
        index: str | int,
        lanes: int,
        mask: str | None,
        readers: Mapping[int, Reads],
        to: str,
    ) -> None:
        nest, f = self.nest, self.f
        reads = {**read_all(readers, index, lanes, mask), 0: lambda: state[-1]}
        where = Indices(nest.axis_of, self.at, self.rank - 1 if self.vertical else -1)
        (value,) = evaluate(f, [nest.finish], reads, lanes, lambda a: where.lanes(f, a, index, lanes), mask)
        store_lanes(f, nest.out.dtype, value, displaced(f, to, index, nest.out.itemsize), lanes, mask)

    # One axis reduced in the lanes -------------------------------------------------------------

    def _horizontal(self, pointers: Mapping[int, str], ends: Mapping[int, str]) -> None:
        nest, f, lanes = self.nest, self.f, self.nest.lanes
        count = 2 if nest.state.finds_place else ACCUMULATORS
        states = [nest.state.initial(lanes) for _ in range(count)] + [nest.state.initial(1)]
        *vectors, single_ = self._outer_reduced(0, pointers, states)
        while len(vectors) > 1:
            vectors = [nest.state.combine(f, a, b, lanes) for a, b in zip(vectors[::2], vectors[1::2])]
        state = nest.state.across(f, vectors[0], lanes)
        if not f.target.masked:  # else the last vector had what was left
            state = nest.state.combine(f, state, single_, 1)
        readers = {i: _Single(f, nest.extra[i], ends[i]) for i in nest.extra}
        self._finish(state, "0", 1, None, readers, ends[0])

    def _types(self, states: Sequence[Sequence[str]]) -> list[str]:
        """LLVM's types of states of vectors, the last a scalar."""
        lanes = [self.nest.lanes] * (len(states) - 1) + [1]
        return [vector_type(scalar_type(t), n) for n in lanes for t in self.nest.state.types]

    def _outer_reduced(
        self, depth: int, pointers: Mapping[int, str], states: list[list[str]]
    ) -> list[list[str]]:
        nest, f = self.nest, self.f
        if depth == len(nest.reduced) - 1:
            return self._row(pointers, states)
        axis = self.rank + depth
        kinds = list(zip(self._types(states), (x for state in states for x in state)))
        with f.loop(0, f.size(nest.reduced[depth]), carried=kinds) as loop:
            self.at[axis:] = [loop.index]
            inner = self._moved(nest.views, pointers, axis, loop.index)
            results = self._outer_reduced(depth + 1, inner, self._unflat(loop.carried))
            loop.carry(*(x for state in results for x in state))
        return self._unflat(loop.results)

    def _row(self, pointers: Mapping[int, str], states: list[list[str]]) -> list[list[str]]:
        """The innermost reduced axis: several vectors at once, then one, then what is left."""
        nest, f, lanes = self.nest, self.f, self.nest.lanes
        axis = self.rank + len(nest.reduced) - 1
        self.at[axis:] = ["0"]
        readers = self._readers(nest.views, axis, pointers)
        length = f.size(nest.reduced[-1])
        *vectors, rest = states
        many, whole = f.round_down(length, lanes * len(vectors)), f.round_down(length, lanes)

        def step(state: Sequence[str], index: str, width: int, mask: str | None = None) -> list[str]:
            def place(dtype: str) -> str:
                first = self._number(index, width, dtype)
                kind = vector_type(scalar_type(dtype), width)
                return (
                    first
                    if width == 1
                    else f.binary("add", first, vector_constant(scalar_type(dtype), range(width)), kind)
                )

            new = self._combine(state, readers, index, width, mask, axis, place)
            if mask is None:
                return new
            kinds = [vector_type(scalar_type(t), width) for t in nest.state.types]
            return [f.select(mask, t, a, b) for t, a, b in zip(kinds, new, state)]

        def over(start: str, stop: str, width: int, active: list[list[str]]) -> list[list[str]]:
            if nothing(start, stop):
                return active
            kinds = [
                (vector_type(scalar_type(t), width), x) for s in active for t, x in zip(nest.state.types, s)
            ]
            with f.loop(start, stop, width * len(active), carried=kinds) as loop:
                carried = self._unflat(loop.carried)
                new = [step(s, f.add(loop.index, u * width), width) for u, s in enumerate(carried)]
                loop.carry(*(x for s in new for x in s))
            return self._unflat(loop.results)

        vectors = over("0", many, lanes, vectors)
        vectors[:1] = over(many, whole, lanes, vectors[:1])
        if f.target.masked and not nothing(whole, length):
            mask = first_lanes(f, f.sub(length, whole), lanes)
            vectors[0] = step(vectors[0], whole, lanes, mask)
        else:
            (rest,) = over(whole, length, 1, [rest])
        return [*vectors, rest]


@dataclass(frozen=True)
class _Single:
    """A reader of the one element at a pointer."""

    f: Function
    view: View
    pointer: str

    def read(self, index: str | int, lanes: int, mask: str | None, cycle: str = "0") -> str:
        return load_lanes(self.f, self.view.dtype, self.pointer, 1)


# Nodes -------------------------------------------------------------------------------------------


def stages(node: Node, target: Target) -> Stages:
    return [[_reduce(node, target) if isinstance(node.op, Reduce) else _contract(node, target)]], ()


def _reduce(node: Node, target: Target) -> Reduction:
    op, x, out = node.op, node.inputs[0].tensor, node.outputs[0].tensor
    kept = [a for a in range(x.rank) if a not in op.axes]
    body = op.body if op.body is not None else expr.input_(0, x.dtype)
    order = [*kept, *op.axes]
    moved = {axis: k for k, axis in enumerate(order)}
    body = expr.rewrite(body, lambda n: expr.index(moved[n.value]) if n.op == "index" else None)
    length = dims.product(x.shape[a] for a in op.axes)
    kind = {"sum": "max", "prod": "min"}.get(op.kind, op.kind) if body.dtype == "bool" else op.kind
    state = State(
        kind, accumulator(body.dtype), "int32" if isinstance(length, int) and length < 1 << 31 else "int64"
    )
    views = {i: broadcasting("input", i, v.tensor, x.shape).pick(order) for i, v in enumerate(node.inputs)}
    sizes = [x.shape[a] for a in kept]
    to = View("output", 0, out.dtype, row_major(sizes, dtypes.itemsize(out.dtype)))
    finish = expr.cast(expr.input_(0, state.types[-1]), out.dtype)
    return Reduction(
        target, state, expr.cast(body, state.dtype), sizes, [x.shape[a] for a in op.axes], views, to, finish
    )


def _contract(node: Node, target: Target) -> Reduction:
    op, out = node.op, node.outputs[0].tensor
    operands, sizes = list(zip((op.lhs, op.rhs), node.inputs)), sizes_of(node)
    summed = [label for label in sizes if label not in op.out]
    # The axis that both operands end with, or one does, is the one to run along.
    summed.sort(key=lambda label: (op.lhs.endswith(label) + op.rhs.endswith(label), op.lhs.find(label)))
    order = [*op.out, *summed]
    views = {}
    for index, (labels, value) in enumerate(operands):
        steps = steps_of(op, labels, value.shape, sizes, dtypes.itemsize(value.dtype))
        along = [sum((step for one, step in steps if one == label), 0) for label in order]
        views[index] = View("input", index, value.dtype, tuple(along))
    state = State("sum", accumulator(op.accumulate))
    factors = [expr.cast(expr.input_(i, v.dtype), state.dtype) for i, (_, v) in enumerate(operands)]
    extra = {k - 1: broadcasting("input", k, v.tensor, out.shape) for k, v in enumerate(node.inputs) if k > 1}
    kept = [sizes[label] for label in op.out]
    finish = op.epilogue if op.epilogue is not None else expr.input_(0, op.accumulate)
    total = expr.cast(expr.input_(0, state.dtype), op.accumulate)
    finish = expr.substitute(finish, {0: total})
    return Reduction(
        target,
        state,
        factors[0],
        kept,
        [sizes[s] for s in summed],
        views,
        dense("output", 0, out),
        finish,
        extra,
        factors[1],
    )
