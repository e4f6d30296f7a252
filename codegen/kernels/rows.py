"""Fused groups of kind "rows": softmax, the normalisations and all else that Maps and Reduces over rows make,
and Maps of rows that Gathers pick, which are read where the indices say.

A row is run through in passes (row_passes.py) while it stays in the innermost cache, several at once:
    pass 0   h = x + y, kept            s = sum h
    pass 1                              q = sum (h - s/n)²
    pass 2   out = (h - s/n) * r * gamma + beta      with r = 1 / sqrt(q/n + e), once a row
Kept values lie in registers, in the place of a result that is written later, or in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, Value
from ...ir.ops import Fused
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, as_it_is, offered, single
from ..nests.indexed import Named, named, numbers_at, picked
from ..nests.nest import (
    ERROR_BYTES,
    Block,
    Blocks,
    View,
    address,
    block_rows,
    broadcasting,
    collapse,
    displaced,
    input_view,
    loops,
)
from ..nests.operands import SLOT_BYTES, Reader, evaluate, nothing, vector_lanes
from ..nests.row_passes import DEAR, KEPT, Gathered, Pass, RowPasses, analysed
from ..nests.states import State
from ..text.conversion import NARROW, to_computed
from ..text.emitter import Function, scalar_type, vector_type
from ..text.memory import first_lanes, load_lanes, store_lanes
from ..text.scalar import OTHER_NAN, lower
from ..text.vectors import Vectors
from ..tiles.strides import row_major

Pointers = Mapping[tuple[str, int], str]  # ("input", "output" or "kept", index) → where it begins

SHORT_LINE = 8  # elements along the last of several axes of a row, below which loop_nest's joined axes win


@dataclass(frozen=True)
class Tiling:
    """`rows` at once, in vectors of `lanes`."""

    rows: int
    lanes: int


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    if not isinstance(node.op, Fused) or node.op.kind != "rows" or any(v.tensor.layout for v in node.inputs):
        return
    kernel = _kernel(node, target)
    if kernel is None:
        return
    if len(kernel.inner) == 1 or dims.typical(kernel.inner[-1]) >= SHORT_LINE:
        yield Offer(kernel.estimate, Tiling(kernel.together, kernel.lanes))


pack = as_it_is


def emit(node: Node[Fused], choice: Choice[Tiling], target: Target) -> Code:
    return single(offered(_kernel(node, target), node).step(choice.cost))


def _kernel(node: Node[Fused], target: Target) -> _Kernel | None:
    """Of short rows everything is kept that is not read as it is: that costs no memory."""
    for dear in (0, DEAR):
        rows = analysed(node.op.region, dear)
        if rows is None:
            return None
        kernel = _Kernel(node, target, rows)
        if kernel.short:
            break
    return kernel


class _Kernel:
    """A row's axes are collapsed to few, the last of which is computed in vectors; those outside make blocks
    of rows. `together` rows are computed at once, so that folding the lanes of one waits for none. Where
    rows are `short` nothing of them is a loop and kept values stay in registers."""

    def __init__(self, node: Node[Fused], target: Target, rows: RowPasses):
        self.node, self.target, self.k, self.rows = node, target, KernelText(target), rows
        outer, row = range(rows.outer), range(rows.outer, len(rows.shape))
        self.named = {i: self._named(i, gathered) for i, gathered in rows.gathered.items()}
        seen = {i: nest.whole for i, nest in self.named.items()}
        seen |= {nest.index.index: nest.index for nest in self.named.values()}
        views = [
            seen.get(i) or broadcasting("input", i, v.tensor, rows.shape) for i, v in enumerate(node.inputs)
        ]
        views += [broadcasting("output", i, v.tensor, rows.shape) for i, v in enumerate(node.outputs)]
        sizes = tuple(rows.shape[a] for a in row)
        kept = [
            View("kept", i, e.dtype, row_major(sizes, dtypes.itemsize(e.dtype)))
            for i, e in enumerate(rows.kept)
        ]
        self.outer, outside, _ = collapse(tuple(rows.shape[a] for a in outer), [v.pick(outer) for v in views])
        self.inner, inside, _ = collapse(sizes, [*(v.pick(row) for v in views), *kept])
        if not self.inner:
            self.inner, inside = (1,), tuple(replace(v, strides=(0,)) for v in inside)
        self.outside = {(v.kind, v.index): v for v in outside}
        self.inside = {(v.kind, v.index): v for v in inside}
        self.lanes = min(vector_lanes(target, *p.roots) for p in rows.passes if p.roots)
        if isinstance(self.inner[-1], int):
            self.lanes = min(self.lanes, max(2, 1 << (self.inner[-1] - 1).bit_length()))
        self.plain = not any(v.dtype in OTHER_NAN for v in node.inputs)
        self.together = self._together()
        registers = self.together * max(1, rows.held) * dims.ceil_divide(self.inner[-1], self.lanes)
        self.short = (
            len(self.inner) == 1
            and isinstance(registers, int)
            and registers <= target.vector_registers // 2
            and not any(e.dtype in (*NARROW, "bool") for e in rows.kept)
        )

    def _named(self, source: int, gathered: Gathered) -> Named:
        """How the rows of an operand are picked."""
        x, places = (self.node.inputs[i] for i in (source, gathered.places))
        views = input_view(self.node, source), input_view(self.node, gathered.places)
        return named(gathered.op, views[0], x.shape, views[1], places.shape, views[0])

    def _together(self) -> int:
        """How many rows at once: the fewer, the longer they are; no more than there are."""
        vectors = dims.typical(dims.product(self.inner)) / self.lanes
        wanted = 4 if vectors <= 16 else 2 if vectors <= 48 else 1
        there = self.outer[-1] if self.outer else 1
        limit = max(1, there) if isinstance(there, int) else wanted
        return next(n for n in (4, 2, 1) if n <= min(wanted, limit))

    @property
    def row(self) -> Estimate:
        """Of one row."""
        target, passes = self.target, self.rows.passes
        count, line = dims.typical(dims.product(self.inner)), dims.typical(self.inner[-1])
        vectors = count // line * -(-line // self.lanes)
        effort = vectors * sum(map(self._vector, passes))
        effort += sum(costs.weight(target, *p.before.values()) for p in passes)
        moved = count * sum(dtypes.itemsize(v.dtype) for v in self._whole() if v.constant is None)
        among = moved * dims.typical(dims.product(self.outer))
        found = costs.overhead(target, costs.LOOKUP * sum(len(n.components) for n in self.named.values()))
        for i in self.named:
            source = self.node.inputs[i].tensor
            found += costs.move(target, count * dtypes.itemsize(source.dtype), dims.typical(source.nbytes))
        folds = costs.overhead(self.target, costs.FOLDED_ROW * (1 + len(self.rows.reduced)) / self.together)
        return costs.compute(target, effort) + costs.move(target, moved, among) + folds + found

    def unrolled(self, one: Pass, rows: int) -> int:
        """How many vectors along each of so many rows a pass combines apart; 0 where it has no loop."""
        instructions = costs.weight(self.target, *one.roots) * rows
        return 0 if self.short else 4 if instructions <= 8 else 2 if instructions <= 40 else 1

    def _vector(self, one: Pass) -> float:
        """Instructions of a vector of a row, or those in whose time its sums wait for those before."""
        combined = [costs.KEPT_NAN if state.keeps_nan else 1 for state in one.reductions]
        each = costs.weight(self.target, *one.roots) + len(one.reads) + len(one.stores) + sum(combined)
        facts, chains = self.target.facts, self.together * max(1, self.unrolled(one, self.together))
        return max(each, max(combined, default=0) * facts.latency * facts.instructions / chains)

    def _whole(self) -> list[Value]:
        """Operands and results that have an element of their own for each of all rows'."""
        inputs = [v for i, v in enumerate(self.node.inputs) if i not in self.named]
        return [v for v in (*inputs, *self.node.outputs) if v.tensor.count == dims.product(self.rows.shape)]

    @property
    def estimate(self) -> Estimate:
        """Of all rows, and of tables that differ among these. What all rows share lies with weights that were
        just read."""
        alone = dims.product(self.outer) == 1
        tables = [] if alone else [v for v in self._whole() if v.constant is not None]
        rows = self.row * dims.typical(dims.product(self.outer))
        read = costs.total(costs.stored(self.target, dims.typical(v.tensor.nbytes)) for v in tables)
        shared = {v for v in self.node.inputs if v.constant is not None}.difference(tables)
        return rows + read + costs.beginning(self.target, len(shared)) + costs.step(self.target)

    def place(self, key: tuple[str, int]) -> tuple[str, int]:
        """Where an operand, a result or what is kept lies."""
        return self.rows.homes[key[1]] if key[0] == "kept" else key

    def kept_places(self) -> tuple[dict[int, list[Dimension]], Dimension]:
        """Where in scratch memory the rows' kept values lie, behind what an error and the readers need; and
        where that ends."""
        end: Dimension = ERROR_BYTES + self.together * len(self.node.inputs) * SLOT_BYTES
        places: dict[int, list[Dimension]] = {}
        for index, value in enumerate(self.rows.kept):
            if self.rows.homes[index] == ("kept", index) and not self.short:
                nbytes = dims.product(self.inner) * dtypes.itemsize(value.dtype)
                apart = dims.ceil_divide(nbytes, SLOT_BYTES) * SLOT_BYTES
                places[index] = [end + apart * n for n in range(self.together)]
                end = end + apart * self.together
        return places, end

    def step(self, cost: Estimate) -> Step:
        k = self.k
        blocks = block_rows(self.outer, costs.elements_per_part(self.row.total), self.together)
        with k.entry() as f, blocks.each(f) as block:
            self._block(f, blocks, block)
        count = dims.product(self.outer)
        work = costs.work(cost, count)
        return k.step(blocks.parts, work, self.kept_places()[1], unit=1)

    def _block(self, f: KernelFunction, blocks: Blocks, block: Block) -> None:
        if not block.extents:
            self._strip(f, [()])
            return
        *extents, count = block.extents
        even = all(
            isinstance(n, int) and n % self.together == 0 for n in (blocks.sizes[-1], blocks.blocks[-1])
        )
        many = count if even else f.round_down(count, self.together)
        with loops(f, extents) as indices:
            at = tuple(f.add(start, index) for start, index in zip(block.starts, indices))
            for first, last, some in ((0, many, self.together), (many, count, 1)):
                if not nothing(str(first), last):
                    with f.loop(first, last, some) as loop:
                        row = f.add(block.starts[-1], loop.index)
                        self._strip(f, [(*at, f.add(row, n)) for n in range(some)])

    def _strip(self, f: KernelFunction, rows: Sequence[tuple[str, ...]]) -> None:
        """The rows with these indices."""
        used = {i for p in self.rows.passes for i in p.reads} | set(self.rows.row_operands)
        pointers: list[dict[tuple[str, int], str]] = []
        for at in rows:
            pointers.append(
                {
                    (kind, i): self._start(f, kind, i, at)
                    for kind, i in self.outside
                    if kind == "output" or i in used
                }
            )
        for index, places in self.kept_places()[0].items():
            for mine, place in zip(pointers, places):
                mine["kept", index] = f.offset("%scratch", f.size(place))
        _Strip(self, f, pointers).emit()

    def is_shared(self, operand: int) -> bool:
        """Whether all rows read the same of an operand."""
        return operand not in self.named and all(s == 0 for s in self.outside["input", operand].strides)

    def _start(self, f: KernelFunction, kind: str, index: int, at: tuple[str, ...]) -> str:
        """Where the row of an operand or a result begins."""
        start = address(f, self.outside[kind, index], at)
        if kind == "output" or index not in self.named:
            return start
        nest = self.named[index]
        places = address(f, self.outside["input", nest.index.index], at)
        return picked(f, start, numbers_at(f, nest.components, nest.index.dtype, places))


# Rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number:
    """One number of a row in a form that may live on across basic blocks: narrow floats as their bits, bool
    as a byte."""

    dtype: str
    held: str

    @staticmethod
    def of(f: Function, dtype: str, value: str) -> _Number:
        if dtype == "bool":
            value = f.cast("zext", value, "i8", "i1")
        elif dtype in ("float16", "bfloat16"):
            value = f.cast("bitcast", value, "i16", scalar_type(dtype))
        return _Number(dtype, value)

    def lanes(self, f: Function, lanes: int) -> str:
        """The number in every lane, in its own type."""
        own = scalar_type(self.dtype)
        held = {"bool": "i8", "float16": "i16", "bfloat16": "i16"}.get(self.dtype, own)
        x = f.broadcast(held, self.held, lanes)
        if held == own:
            return x
        operation = "trunc" if self.dtype == "bool" else "bitcast"
        return f.cast(operation, x, vector_type(own, lanes))


@dataclass
class _Row:
    """One row while it is written: where its operands, results and kept values begin, the numbers found so
    far, and what is kept in registers, by its index and place."""

    pointers: Pointers
    numbers: dict[int, _Number] = field(default_factory=dict)
    held: dict[tuple[int, str], str] = field(default_factory=dict)


class _Strip:
    """Rows that are computed at once, each instruction for all of them."""

    def __init__(self, kernel: _Kernel, f: KernelFunction, pointers: Sequence[Pointers]):
        self.kernel, self.f, self.plan = kernel, f, kernel.rows
        self.rows = [_Row(p) for p in pointers]

    def emit(self) -> None:
        f, plan, node = self.f, self.plan, self.kernel.node
        for i in plan.row_operands:
            dtype = node.inputs[i].dtype
            for row in self.rows:
                row.numbers[i] = _Number.of(f, dtype, load_lanes(f, dtype, row.pointers["input", i], 1))
        for one in plan.passes:
            for leaf, numbers in zip(one.before, self._evaluated(list(one.before.values())), strict=True):
                for row, number in zip(self.rows, numbers, strict=True):
                    row.numbers[leaf] = number
            start = [x for state in one.reductions for x in state.initial(self.kernel.lanes)]
            found = self._along(one, 0, [r.pointers for r in self.rows], start * len(self.rows))
            for n, row in enumerate(self.rows):
                self._fold(one, row, found[n * len(start) : (n + 1) * len(start)])
        last = {i: root for i, root in enumerate(plan.outputs) if i not in plan.written}
        for i, numbers in zip(last, self._evaluated(list(last.values())), strict=True):
            for row, number in zip(self.rows, numbers, strict=True):
                store_lanes(f, number.dtype, number.lanes(f, 1), row.pointers["output", i], 1)

    def _fold(self, one: Pass, row: _Row, totals: Sequence[str]) -> None:
        """What the pass has reduced, one number each."""
        for leaf, state, total in zip(one.results, one.reductions, totals, strict=True):
            found = state.across(self.f, [total], self.kernel.lanes)
            cast = expr.cast(expr.input_(0, state.dtype), leaf.dtype)
            (result,) = lower(self.f, [cast], found.__getitem__, 1)
            row.numbers[leaf.value] = _Number.of(self.f, leaf.dtype, result)

    def _evaluated(self, roots: Sequence[Expr]) -> list[list[_Number]]:
        """Numbers made of those known, of every row: together where that is worth bringing them together."""
        f, count = self.f, len(self.rows)
        if not roots:
            return []
        used = expr.inputs(*roots)
        if count == 1 or costs.weight(f.target, *roots) <= 4 * len(used) or not _plain(roots):
            each = []
            for row in self.rows:
                readers = {i: (lambda n=row.numbers[i]: n.lanes(f, 1)) for i in used}
                each.append(evaluate(f, roots, readers, 1))
            return [[_Number.of(f, r.dtype, x) for x in found] for r, found in zip(roots, zip(*each))]
        readers = {i: (lambda i=i: self._side_by_side([row.numbers[i] for row in self.rows])) for i in used}
        found = []
        for root, x in zip(roots, evaluate(f, roots, readers, count), strict=True):
            type_ = vector_type(scalar_type(root.dtype), count)
            lanes = [f.extract(x, n, type_) for n in range(count)]
            found.append([_Number(root.dtype, lane) for lane in lanes])
        return found

    def _side_by_side(self, numbers: Sequence[_Number]) -> str:
        element = scalar_type(numbers[0].dtype)
        type_, x = vector_type(element, len(numbers)), "poison"
        for n, number in enumerate(numbers):
            x = self.f.insert(x, number.held, n, type_)
        return x

    def _along(self, one: Pass, axis: int, pointers: Sequence[Pointers], totals: list[str]) -> list[str]:
        """The pass over the axes of the rows from `axis` on: for each row a vector for each reduction, begun
        with `totals`."""
        f, kernel = self.f, self.kernel
        if not one.roots:
            return totals
        if axis == len(kernel.inner) - 1:
            return self._vectors(one, pointers, totals)
        types = _types(one.reductions, kernel.lanes) * len(self.rows)
        with f.loop(0, f.size(kernel.inner[axis]), 1, list(zip(types, totals, strict=True))) as loop:
            moved = [
                {
                    key: displaced(f, p, loop.index, f.size(kernel.inside[key].strides[axis]))
                    for key, p in mine.items()
                }
                for mine in pointers
            ]
            loop.carry(*self._along(one, axis + 1, moved, loop.carried))
        return loop.results

    def _vectors(self, one: Pass, pointers: Sequence[Pointers], totals: list[str]) -> list[str]:
        """The pass along the last axis."""
        f, kernel = self.f, self.kernel
        rows = [_Vectors(self, one, r, p, n) for n, (r, p) in enumerate(zip(self.rows, pointers))]

        def values(index: str, lanes: int, mask: str | None) -> list[str]:
            shared: dict[int, str] = {}
            return [x for row in rows for x in row.values(index, lanes, mask, shared)]

        unroll = kernel.unrolled(one, len(rows))
        states, count = one.reductions * len(rows), f.size(kernel.inner[-1])
        return _reduced(f, count, kernel.lanes, unroll, states, totals, values)


class _Vectors:
    """One pass over one row's last axis."""

    def __init__(self, strip: _Strip, one: Pass, row: _Row, pointers: Pointers, number: int):
        self.strip, self.one, self.row, self.pointers = strip, one, row, pointers
        self.f, self.kernel = strip.f, strip.kernel
        self.axis = len(self.kernel.inner) - 1
        self.readers = {}
        for slot, leaf in enumerate(one.reads, number * len(self.kernel.node.inputs)):
            if leaf < KEPT or not self.kernel.short:
                key = self.kernel.place(("kept", leaf - KEPT) if leaf >= KEPT else ("input", leaf))
                view, lanes = self.kernel.inside[key], self.kernel.lanes
                self.readers[leaf] = Reader(self.f, view, self.axis, pointers[key], lanes, slot)
        self.spread = {
            i: self._computed(
                row.numbers[i].dtype, row.numbers[i].lanes(self.f, self.kernel.lanes), self.kernel.lanes
            )
            for i in one.known
            if row.numbers[i].dtype != "bool"
        }

    def _computed(self, dtype: str, x: str, lanes: int) -> str:
        """Elements of a type as they are computed, so that they may live on and are not converted again."""
        return to_computed(Vectors(self.f, dtype, lanes), x)

    def values(self, index: str, lanes: int, mask: str | None, shared: dict[int, str]) -> list[str]:
        """What the pass reduces, of the elements from an index on; the rest is stored. `shared`: the operands
        that are the same for all rows, read by the first of them."""
        one, f, short = self.one, self.f, self.kernel.short
        leaves: dict[int, Callable[[], str]] = {}
        leaves |= {i: partial(self._read, i, index, lanes, mask, shared) for i in self.readers}
        leaves |= {i: partial(self._known, i, lanes) for i in one.known}
        if short:
            held = self.row.held
            leaves |= {KEPT + i: partial(held.__getitem__, (i, at)) for i, at in held if at == index}
        found = evaluate(f, one.roots, leaves, lanes, None, mask, self.kernel.plain)
        count = len(one.reductions)
        for key, value in zip(one.stores, found[count:], strict=True):
            place = self.kernel.place(key)
            if key[0] == "kept" and short:
                self.row.held[key[1], index] = value
            elif place == key or place not in one.stores:  # else it is the result that is stored there now
                self._store(place, value, index, lanes, mask)
        return found[:count]

    def _read(self, leaf: int, index: str, lanes: int, mask: str | None, shared: dict[int, str]) -> str:
        reader = self.readers[leaf]
        if leaf >= KEPT or not self.kernel.is_shared(leaf):
            return reader.read(index, lanes, mask)
        if leaf not in shared:
            shared[leaf] = self._computed(reader.view.dtype, reader.read(index, lanes, mask), lanes)
        return shared[leaf]

    def _known(self, leaf: int, lanes: int) -> str:
        """One of the row's numbers in every lane."""
        ready = self.spread.get(leaf) if lanes == self.kernel.lanes else None
        return ready or self.row.numbers[leaf].lanes(self.f, lanes)

    def _store(self, key: tuple[str, int], value: str, index: str, lanes: int, mask: str | None) -> None:
        view = self.kernel.inside[key]
        place = displaced(self.f, self.pointers[key], index, self.f.size(view.strides[self.axis]))
        store_lanes(self.f, view.dtype, value, place, lanes, mask)


def _plain(roots: Sequence[Expr]) -> bool:
    """Whether nothing is of a type that registers hold in another form."""
    return not any(n.dtype in (*NARROW, "bool") for n in expr.topological(*roots))


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
    """totals with the elements 0..count-1, `unroll` vectors at once in accumulators of their own, then one at
    a time; with no `unroll` without loops."""
    many = f.round_down(count, lanes * max(1, unroll))
    whole = f.round_down(count, lanes) if unroll > 1 else many
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
                x = f.select(mask, type_, x, none)
            result += s.combine(f, [total], [x], lanes)
        return result

    if unroll == 0:
        for index in range(0, int(many), lanes):
            totals = step(totals, str(index), lanes, None)
    elif not nothing("0", many):
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
        return f.insert(filling, x, 0, vector)
    x = f.shuffle(x, "poison", [min(n, some) for n in range(lanes)], vector_type(element, some))
    return f.shuffle(x, filling, [n if n < some else lanes + n for n in range(lanes)])
