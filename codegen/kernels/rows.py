"""Fused groups of kind "rows": softmax, the normalisations and all else that Maps and Reduces over
whole rows make.

Each Reduce needs what the ones before it found, so a row is run through in passes while it stays in
the innermost cache:
    pass 0   h = x + y, kept            s = sum h
    pass 1                              q = sum (h - s/n)²
    pass 2   out = (h - s/n) * r * gamma + beta      with r = 1 / sqrt(q/n + e), once a row
What is dear and needed again is kept in scratch memory. Parts are blocks of rows.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ... import dims, dtypes, expr
from ...dims import Dimension
from ...expr import Expr
from ...ir import Constant, Node
from ...ops import Fused
from ...target import Target
from ..conversion import NARROW
from ..emitter import Function, scalar_type, vector_type
from ..kernel import Choice, Code, KernelText, Step, single
from ..nest import (
    ERROR_BYTES,
    PART_NS,
    Block,
    View,
    address,
    block_rows,
    broadcasting,
    collapse,
    displaced,
    loops,
    moving_cost,
    nanoseconds,
    row_major,
    typical,
)
from ..operands import (
    SLOT_BYTES,
    Reader,
    computing_cost,
    evaluate,
    nothing,
    round_down,
    store_lanes,
    vector_lanes,
    weight,
)
from ..row_passes import KEPT, Pass, RowPasses, analysed
from ..scalar import first_lanes, load_vector, lower, store_vector
from .states import State

Pointers = Mapping[tuple[str, int], str]  # ("input", "output" or "kept", index) → where it begins

ROW_NS = 8.0  # to begin a row and to fold the lanes of its reductions


def candidates(node: Node, target: Target) -> Iterator[Choice]:
    if (
        isinstance(node.op, Fused)
        and node.op.kind == "rows"
        and not any(v.type.layout for v in node.inputs)
    ):
        rows = analysed(node.op.region)
        if rows is not None:
            yield Choice(sys.modules[__name__], _time(node, rows, target))


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    return single(_Kernel(node, target).step())


def _cost(node: Node, rows: RowPasses, target: Target) -> float:
    """Picoseconds an element."""
    computing = sum(computing_cost(target, *p.roots) for p in rows.passes if p.roots)
    whole = [
        v.dtype for v in (*node.inputs, *node.outputs) if v.type.count == dims.product(rows.shape)
    ]
    return computing + moving_cost(target, sum(map(dtypes.itemsize, whole)))


def _time(node: Node, rows: RowPasses, target: Target) -> float:
    """Nanoseconds on one core."""
    count, many = (typical(dims.product(s)) for s in (rows.shape, rows.shape[: rows.outer]))
    return count * _cost(node, rows, target) / 1000 + many * ROW_NS


class _Kernel:
    """A row's axes are collapsed to few, the last of which is computed in vectors; those outside
    make blocks of rows."""

    def __init__(self, node: Node, target: Target):
        self.node, self.target, self.k = node, target, KernelText(target)
        self.rows = rows = analysed(node.op.region)
        self.lanes = min(vector_lanes(target, *p.roots) for p in rows.passes if p.roots)
        outer, row = range(rows.outer), range(rows.outer, len(rows.shape))
        places = [("input", i, v.type) for i, v in enumerate(node.inputs)]
        places += [("output", i, v.type) for i, v in enumerate(node.outputs)]
        views = [broadcasting(kind, i, t, rows.shape) for kind, i, t in places]
        sizes = tuple(rows.shape[a] for a in row)
        kept = [
            View("kept", i, e.dtype, row_major(sizes, dtypes.itemsize(e.dtype)))
            for i, e in enumerate(rows.kept)
        ]
        self.outer, outside, _ = collapse(
            tuple(rows.shape[a] for a in outer), [v.pick(outer) for v in views]
        )
        self.inner, inside, _ = collapse(sizes, [*(v.pick(row) for v in views), *kept])
        if not self.inner:
            self.inner, inside = (1,), tuple(replace(v, strides=(0,)) for v in inside)
        self.outside = {(v.kind, v.index): v for v in outside}
        self.inside = {(v.kind, v.index): v for v in inside}

    def kept_offsets(self) -> list[Dimension]:
        """Where kept values lie in scratch memory, behind what an error and the readers need; and
        the end."""
        offsets: list[Dimension] = [ERROR_BYTES + len(self.node.inputs) * SLOT_BYTES]
        for value in self.rows.kept:
            nbytes = dims.product(self.inner) * dtypes.itemsize(value.dtype)
            offsets.append(offsets[-1] + dims.ceil_divide(nbytes, SLOT_BYTES) * SLOT_BYTES)
        return offsets

    def step(self) -> Step:
        k = self.k
        row_ps = (
            _cost(self.node, self.rows, self.target) * typical(dims.product(self.inner))
            + 1000 * ROW_NS
        )
        blocks = block_rows(self.outer, int(max(1, min(1 << 16, 1000 * PART_NS / row_ps))), 1)
        with k.entry() as f, blocks.each(k, f) as block:
            self._block(f, block)
        return k.step(
            blocks.parts, nanoseconds(dims.product(self.outer), row_ps), self.kept_offsets()[-1]
        )

    def _block(self, f: Function, block: Block) -> None:
        used = {i for p in self.rows.passes for i in p.reads} | set(self.rows.row_operands)
        with loops(f, block.extents) as indices:
            at = [f.add(start, index) for start, index in zip(block.starts, indices)]
            pointers = {
                (kind, i): address(self.k, f, view, at)
                for (kind, i), view in self.outside.items()
                if kind == "output" or i in used
            }
            for i, offset in enumerate(self.kept_offsets()[:-1]):
                pointers["kept", i] = f.offset("%scratch", self.k.size(f, offset))
            _Row(self, f, pointers).emit()


# One row -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number:
    """One number of the row in a form that may live on across basic blocks: narrow floats as their
    bits, bool as a byte."""

    dtype: str
    held: str

    @staticmethod
    def of(f: Function, dtype: str, value: str) -> _Number:
        if dtype == "bool":
            value = f.value(f"zext i1 {value} to i8")
        elif dtype in ("float16", "bfloat16"):
            value = f.value(f"bitcast {scalar_type(dtype)} {value} to i16")
        return _Number(dtype, value)

    def lanes(self, f: Function, lanes: int) -> str:
        """The number in every lane, in its own type."""
        own = scalar_type(self.dtype)
        held = {"bool": "i8", "float16": "i16", "bfloat16": "i16"}.get(self.dtype, own)
        x = f.broadcast(held, self.held, lanes)
        if held == own:
            return x
        operation = "trunc" if self.dtype == "bool" else "bitcast"
        return f.value(f"{operation} {vector_type(held, lanes)} {x} to {vector_type(own, lanes)}")


class _Row:
    """One row while it is written: where its operands, results and kept values begin, and the
    numbers found so far."""

    def __init__(self, kernel: _Kernel, f: Function, pointers: Pointers):
        self.kernel, self.k, self.f, self.rows, self.pointers = (
            kernel,
            kernel.k,
            f,
            kernel.rows,
            pointers,
        )
        self.numbers: dict[int, _Number] = {}

    def emit(self) -> None:
        f, rows, node = self.f, self.rows, self.kernel.node
        for i in rows.row_operands:
            dtype = node.inputs[i].dtype
            self.numbers[i] = _Number.of(
                f, dtype, load_vector(f, dtype, self.pointers["input", i], 1)
            )
        for one in rows.passes:
            for leaf, root, value in zip(
                one.before, one.before.values(), self._evaluated(list(one.before.values()))
            ):
                self.numbers[leaf] = _Number.of(f, root.dtype, value)
            lanes = self.kernel.lanes
            start = [x for state in one.reductions for x in state.initial(lanes)]
            totals = self._along(one, 0, self.pointers, start) if one.roots else []
            for leaf, state, total in zip(one.results, one.reductions, totals, strict=True):
                found = state.across(f, [total], lanes)
                (result,) = lower(
                    f, [expr.cast(expr.input_(0, state.dtype), leaf.dtype)], found.__getitem__, 1
                )
                self.numbers[leaf.value] = _Number.of(f, leaf.dtype, result)
        for i, root in enumerate(rows.outputs):
            if i not in rows.written:
                (value,) = self._evaluated([root])
                store_vector(f, root.dtype, value, self.pointers["output", i], 1)

    def _evaluated(self, roots: Sequence[Expr]) -> list[str]:
        """Numbers made of those known."""
        readers = {i: (lambda n=n: n.lanes(self.f, 1)) for i, n in self.numbers.items()}
        return evaluate(self.k, self.f, roots, readers, 1) if roots else []

    def _along(self, one: Pass, axis: int, pointers: Pointers, totals: list[str]) -> list[str]:
        """The pass over the axes of the row from `axis` on: a vector for each reduction, begun with
        `totals`."""
        f, k, kernel = self.f, self.k, self.kernel
        if axis == len(kernel.inner) - 1:
            return self._vectors(one, pointers, totals)
        types = _types(one.reductions, kernel.lanes)
        with f.loop(0, k.size(f, kernel.inner[axis]), 1, list(zip(types, totals))) as loop:
            moved = {
                key: displaced(f, p, loop.index, k.size(f, kernel.inside[key].strides[axis]))
                for key, p in pointers.items()
            }
            loop.carry(*self._along(one, axis + 1, moved, loop.carried))
        return loop.results

    def _vectors(self, one: Pass, pointers: Pointers, totals: list[str]) -> list[str]:
        """The pass along the last axis."""
        f, k, kernel, axis = self.f, self.k, self.kernel, len(self.kernel.inner) - 1
        readers = {}
        for slot, leaf in enumerate(one.reads):
            key = ("kept", leaf - KEPT) if leaf >= KEPT else ("input", leaf)
            readers[leaf] = Reader(
                k, f, kernel.inside[key], axis, pointers[key], kernel.lanes, slot
            )
        numbers = {i: self.numbers[i] for i in one.known}
        spread = {
            i: n.lanes(f, kernel.lanes)
            for i, n in numbers.items()
            if n.dtype != "bool" and n.dtype not in NARROW
        }

        def values(index: str, lanes: int, mask: str | None) -> list[str]:
            leaves = {i: (lambda r=r: r.read(index, lanes, mask)) for i, r in readers.items()}
            for i, n in numbers.items():
                ready = spread.get(i) if lanes == kernel.lanes else None
                leaves[i] = lambda n=n, ready=ready: ready or n.lanes(f, lanes)
            found = evaluate(k, f, one.roots, leaves, lanes, None, mask)
            count = len(one.reductions)
            for key, value in zip(one.stores, found[count:], strict=True):
                view = kernel.inside[key]
                place = displaced(f, pointers[key], index, k.size(f, view.strides[axis]))
                store_lanes(f, view.dtype, value, place, lanes, mask)
            return found[:count]

        instructions = weight(*one.roots)
        unroll = 4 if instructions <= 8 else 2 if instructions <= 40 else 1
        return _reduced(
            f, k.size(f, kernel.inner[-1]), kernel.lanes, unroll, one.reductions, totals, values
        )


# Along the last axis -----------------------------------------------------------------------------

#: (index, lanes, mask) → a vector for each reduction, of the elements from an index on; outside of
#: the mask they are anything.
Values = Callable[[str, int, str | None], Sequence[str]]


def _types(states: Sequence[State], lanes: int) -> list[str]:
    return [vector_type(scalar_type(s.dtype), lanes) for s in states]


def _reduced(
    f: Function,
    count: str,
    lanes: int,
    unroll: int,
    states: Sequence[State],
    totals: list[str],
    values: Values,
) -> list[str]:
    """totals with the elements 0..count-1, `unroll` vectors at once in accumulators of their own,
    then one at a time."""
    many = round_down(f, count, lanes * unroll)
    whole = round_down(f, count, lanes) if unroll > 1 else many
    types, width = _types(states, lanes), len(states)
    neutral = [x for s in states for x in s.initial(lanes)]

    def step(totals: Sequence[str], index: str, some: int, mask: str | None) -> list[str]:
        """One vector more. Fewer lanes than the totals have are filled up."""
        result = []
        for s, type_, total, none, x in zip(
            states, types, totals, neutral, values(index, some, mask), strict=True
        ):
            if some < lanes:
                x = _widened(f, scalar_type(s.dtype), x, some, none, lanes)
            elif mask is not None:
                x = f.value(f"select <{lanes} x i1> {mask}, {type_} {x}, {type_} {none}")
            result += s.combine(f, [total], [x], lanes)
        return result

    if not nothing("0", many):
        first = totals + neutral * (unroll - 1)
        with f.loop(0, many, lanes * unroll, list(zip(types * unroll, first, strict=True))) as loop:
            following: list[str] = []
            for u in range(unroll):
                mine = loop.carried[u * width : (u + 1) * width]
                following += step(mine, f.add(loop.index, u * lanes), lanes, None)
            loop.carry(*following)
        groups = [loop.results[u * width : (u + 1) * width] for u in range(unroll)]
        while len(groups) > 1:
            groups = [
                [s.combine(f, [x], [y], lanes)[0] for s, x, y in zip(states, a, b, strict=True)]
                for a, b in zip(groups[::2], groups[1::2], strict=True)
            ]
        (totals,) = groups
    if not nothing(many, whole):
        with f.loop(many, whole, lanes, list(zip(types, totals, strict=True))) as loop:
            loop.carry(*step(loop.carried, loop.index, lanes, None))
        totals = loop.results
    return _tail(f, whole, count, lanes, types, totals, step)


def _tail(
    f: Function,
    whole: str,
    count: str,
    lanes: int,
    types: Sequence[str],
    totals: list[str],
    step: Callable[[Sequence[str], str, int, str | None], list[str]],
) -> list[str]:
    """The elements from `whole` on, fewer than a vector."""
    if nothing(whole, count):
        return totals
    if count.isdigit():
        rest = int(count) - int(whole)
        return (
            step(totals, whole, lanes, first_lanes(f, rest, lanes))
            if f.target.masked
            else step(totals, whole, rest, None)
        )
    if not f.target.masked:
        with f.loop(whole, count, 1, list(zip(types, totals, strict=True))) as loop:
            loop.carry(*step(loop.carried, loop.index, 1, None))
        return loop.results
    before, some, after = f.block, f.fresh_label("tail"), f.fresh_label("ended")
    f.branch_if(f.compare("slt", whole, count), some, after)
    f.label(some)
    more = step(totals, whole, lanes, first_lanes(f, f.sub(count, whole), lanes))
    last = f.block
    f.branch(after)
    f.label(after)
    return [f.phi(t, (a, before), (b, last)) for t, a, b in zip(types, totals, more, strict=True)]


def _widened(f: Function, element: str, x: str, some: int, filling: str, lanes: int) -> str:
    """The `some` lanes of x, then those of `filling`, equal in all its lanes."""
    vector = vector_type(element, lanes)
    if some == 1:
        return f.value(f"insertelement {vector} {filling}, {element} {x}, i64 0")
    order = ", ".join(f"i32 {min(n, some)}" for n in range(lanes))
    x = f.value(
        f"shufflevector <{some} x {element}> {x}, <{some} x {element}> poison, <{lanes} x i32> <{order}>"
    )
    order = ", ".join(f"i32 {n if n < some else lanes + n}" for n in range(lanes))
    return f.value(f"shufflevector {vector} {x}, {vector} {filling}, <{lanes} x i32> <{order}>")
