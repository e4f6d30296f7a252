"""Map over any shapes: operands are views that broadcast, the innermost axis is computed in vectors.

    for rows of a block:  read what stands still;  for vectors of the row:  out = body(operands)
A short row of known length (a block of channels, a pixel's colours) is straight-line code in the loop
over rows, and what repeats in every row is read once. Where only the run knows whether operands of such rows
repeat, there is a nest for where none does; where only it knows how long rows are, there is one that goes
through short ones as if they were one long row. Blocked images are nests over their storage; halo and idle
lanes are written as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from ...ir import dims, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Layout, Node, TensorType, Value
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.conversion import NARROW
from ..text.emitter import scalar_type, splat
from ..text.memory import first_lanes, store_lanes
from ..tiles.strides import broadcast_stride
from .copies import Copy
from .movement import halo_copies, in_blocks, inside_blocks, stored
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
    displaced,
    joined_by_the_run,
    moving,
    output_view,
    rank_aligned,
)
from .operands import (
    Indices,
    Reader,
    each_vector,
    evaluate,
    narrow_indices,
    read_all,
    scratch_bytes,
    split_still,
    stride_kind,
    vector_lanes,
)

MOST_CYCLIC = 64  # instructions of the loop over whole cycles, whose vectors are a loop of their own beyond
SHORT = 4  # vectors of a row that is written without a loop
MOST_JOINED = 24  # instructions of a body that is computed of more than two vectors at once
LEAST_JOINED = 28  # instructions of a float32 body that is computed of two; float64 has twice as many


class Elementwise(Piece):
    """out = body(views...) over `sizes`. `blank`: a row of the result has that many elements, zeros after
    those computed; its length is known then. `short`: where only the run knows how long rows are, it has
    found that they are shorter than `SHORT` vectors."""

    def __init__(
        self,
        target: Target,
        body: Expr,
        sizes: Sequence[Dimension],
        out: View,
        views: Mapping[int, View],
        blank: int = 0,
        short: bool = False,
    ):
        used = [i for i in expr.inputs(body) if i in views]
        apart = sorted({n.value for n in expr.topological(body) if n.op == "index"})
        body, self.indices = narrow_indices(body, sizes)
        row = len(sizes) - 1 if blank else None  # one element is a row too, where zeros follow
        self.sizes, (self.out, *rest), groups = collapse(sizes, (out, *(views[i] for i in used)), apart, row)
        if not self.sizes:
            self.sizes = (1,)
            self.out, *rest = (replace(v, strides=(v.itemsize,)) for v in (self.out, *rest))
        self.target, self.body, self.blank = target, body, blank
        self.views = dict(zip(used, rest))
        self.axis_of = {axis: k for k, group in enumerate(groups) for axis in group}
        self.lanes = vector_lanes(target, body)
        several, self.cyclic = self._cyclic(bool(apart), short)
        self.cycle: Dimension | None = self.sizes[-1] if several else None
        if not apart and not blank and not several and not isinstance(self.sizes[-1], int):
            self.sizes = joined_by_the_run(self.sizes, (self.out, *rest))
        if self.cycle is not None:
            *outer, rows, _ = self.sizes
            self.sizes = (*outer, rows * self.cycle)
            kept = [*range(len(outer)), len(self.sizes)]
            self.out, self.views = (self.out.pick(kept), {i: v.pick(kept) for i, v in self.views.items()})
        self.last = len(self.sizes) - 1
        still = [i for i, v in self.views.items() if stride_kind(v, self.last) == "same"]
        self.body, self.still = split_still(body, still)

    def _cyclic(self, indexed: bool, short: bool) -> tuple[bool, list[int]]:
        """Whether rows are that short that several make a vector, or that the run calls short, and the
        operands that are the same in all rows: the others run through the rows without a gap."""
        count, lanes = self.sizes[-1], self.lanes
        few = 1 < count < lanes if isinstance(count, int) else short
        if indexed or self.blank or len(self.sizes) < 2 or not few:
            return False, []
        still = [i for i, v in self.views.items() if v.strides[-2] == 0 and v.strides[-1] == v.itemsize]
        moving = [self.out, *(v for i, v in self.views.items() if i not in still)]
        together = all(
            (v.strides[-1] == v.itemsize and v.strides[-2] == count * v.itemsize) or v.strides[-2:] == (0, 0)
            for v in moving
        )
        return together, still

    @property
    def estimate(self) -> Estimate:
        """What is read and written, and the instructions of every vector of every row."""
        rows, row = costs.rows_of(self.sizes)
        views = (self.out, *self.views.values())
        lanes, moved = self.lanes, moving(self.target, self.views.values(), self.out, self.sizes, over=True)
        vectors = rows * (row / lanes if self.cycle is not None else -(-max(row, self.blank) // lanes))
        each = costs.weight(self.target, self.body) + sum(self._reading(v) for v in views)
        begun = rows * costs.begun_row(self.sizes[-1], SHORT * lanes if self.cycle is None else 0)
        begun += rows * costs.weight(self.target, *self.still.values())
        unknown = sum(stride_kind(v, self.last) == "either" for v in self.views.values())
        begun += rows * costs.VARYING * unknown
        return moved + costs.compute(self.target, vectors * each + begun)

    def _reading(self, view: View) -> float:
        """Instructions to bring a vector of an operand, or of the result to memory."""
        if stride_kind(view, self.last) == "stride":
            return costs.GATHERED * self.lanes
        if stride_kind(view, self.last) == "same" or view.strides[-2:-1] == (0,):
            return 0
        return 1 + costs.CONVERTED * (view.dtype in NARROW)

    @property
    def blocks(self) -> Blocks:
        cycle = 1 if self.cycle is None else self.cycle
        whole_cycles = math.lcm(64, cycle) if isinstance(cycle, int) else 64 * cycle
        return block_rows(self.sizes, self.elements, whole_cycles)

    @property
    def cycle_vectors(self) -> int:
        """Vectors that hold whole cycles; at most so many where only the run knows."""
        if isinstance(self.cycle, int):
            return self.cycle // math.gcd(self.cycle, self.lanes)
        return 1 if self.cycle is None else SHORT * self.lanes

    @property
    def joined(self) -> int:
        """Vectors whose results are narrowed together, to fill one: where no instruction narrows a vector by
        itself, that takes half as many. Of long bodies two, each instruction for both, so that none waits
        for the one before; the rows of a table that is looked up do not wait for each other."""
        widest = self.target.vector_bits // (8 * self.lanes)
        plain = {stride_kind(v, self.last) for v in self.views.values()} <= {"run", "same"}
        if self.target.masked or self.cycle is not None or not plain or self.out.dtype == "bool":
            return 1
        weight = costs.weight(self.target, self.body)
        narrowed = widest // self.out.itemsize if weight <= MOST_JOINED else 1
        long = weight * widest > 4 * LEAST_JOINED and not expr.contains(self.body, "lookup")
        return max(narrowed, 2 if long else 1)

    @property
    def scratch(self) -> int:
        return scratch_bytes(len(self.views) * self.cycle_vectors)

    def _reader(self, f: KernelFunction, index: int, pointer: str) -> Reader:
        slot = list(self.views).index(index) * self.cycle_vectors
        cycle = self.cycle if index in self.cyclic else None
        return Reader(f, self.views[index], self.last, pointer, self.lanes, slot, cycle)

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block: its rows, then their vectors."""
        to = address(f, self.out, block.starts)
        repeated = () if self.cycle is None else self.cyclic
        pointers = {
            i: address(f, v, (*block.starts[:-1], "0") if i in repeated else block.starts)
            for i, v in self.views.items()
        }  # a block begins with a whole cycle
        outer = next((a for a in range(self.last) if block.extents[a] != "1"), None)
        if outer is None:
            row = Row(self, f, {i: self._reader(f, i, p) for i, p in pointers.items()}, {}, block.starts)
            row.write(to, block.extents[-1])
            return
        still = {i: self._reader(f, i, p) for i, p in pointers.items() if self.views[i].strides[outer] == 0}
        known = self._read_ahead(still, block.extents[-1])
        with f.loop(0, block.extents[outer]) as loop:
            moving = {
                i: self._reader(f, i, displaced(f, p, loop.index, f.size(self.views[i].strides[outer])))
                for i, p in pointers.items()
                if i not in still
            }
            at = [f.add(s, loop.index) if a == outer else s for a, s in enumerate(block.starts)]
            row = Row(self, f, {**still, **moving}, known, at)
            row.write(displaced(f, to, loop.index, f.size(self.out.strides[outer])), block.extents[-1])

    def _read_ahead(self, still: Mapping[int, Reader], count: str) -> dict[tuple[int, int], str]:
        """The vectors of operands that all rows share, where rows are short: by operand and index."""
        if not self.is_short(count):
            return {}
        return {
            (i, at): self._read_short(reader, at, int(count) - at)
            for i, reader in still.items()
            if self.views[i].dtype not in NARROW
            for at in range(0, int(count), self.lanes)
        }

    def _read_short(self, reader: Reader, at: int, left: int) -> str:
        if left >= self.lanes:
            return reader.read(at, self.lanes, None)
        masked = self.target.masked
        return reader.read(
            at, self.lanes if masked else left, first_lanes(reader.f, left, self.lanes) if masked else None
        )

    @property
    def ends_masked(self) -> bool:
        """Whether short rows, of which another follows, end in a vector with masked lanes."""
        row = self.sizes[-1]
        short = len(self.sizes) > 1 and isinstance(row, int) and self.is_short(str(row))
        return short and self.target.masked and row % self.lanes != 0

    def is_short(self, count: str) -> bool:
        return self.cycle is None and count.isdigit() and int(count) <= SHORT * self.lanes


class Row:
    """One row being written."""

    def __init__(
        self,
        nest: Elementwise,
        f: KernelFunction,
        readers: Mapping[int, Reader],
        known: Mapping[tuple[int, int], str],
        at: Sequence[str],
    ):
        self.nest, self.f, self.readers, self.known = nest, f, readers, known
        self.indices = Indices(nest.axis_of, at, nest.last)
        values = evaluate(f, list(nest.still.values()), read_all(readers, "0", 1, None), 1)
        self.still = {
            number: {1: value, nest.lanes: f.broadcast(scalar_type(part.dtype), value, nest.lanes)}
            for (number, part), value in zip(nest.still.items(), values)
        }

    def write(self, to: str, count: str) -> None:
        nest = self.nest
        self.to = to
        if not nest.is_short(count):
            weight = costs.weight(nest.target, nest.body)
            unroll = 4 if weight <= 4 else 2 if weight <= 12 else 1
            unroll = nest.cycle_vectors if isinstance(nest.cycle, int) else unroll
            if isinstance(nest.cycle, dims.Dim):
                self._turns(count, nest.cycle, unroll)
            elif (joined := nest.joined) > 1:
                each_vector(self.f, count, nest.lanes, joined, self._joined)
            else:
                rolled = nest.cycle is not None and unroll * weight > MOST_CYCLIC
                each_vector(self.f, count, nest.lanes, unroll, self._vectors, rolled)
            return
        for at in range(0, max(int(count), nest.blank), nest.lanes):
            self._short(at, int(count) - at)

    def _turns(self, count: str, cycle: Dimension, unroll: int) -> None:
        """Vectors of rows of which only the run knows how long they are: as many at a turn as a row has
        elements, so that each turn begins with a row."""
        f, lanes = self.f, self.nest.lanes
        turn = f.mul(f.size(cycle), lanes)
        with f.loop(0, count, turn) as loop:

            def vectors(indices: Sequence[str | int], lanes: int, mask: str | None, _: str) -> None:
                self._vectors([f.add(loop.index, index) for index in indices], lanes, mask, loop.index)

            each_vector(f, f.minimum(turn, f.sub(count, loop.index)), lanes, unroll, vectors)

    def _vectors(self, indices: Sequence[str | int], lanes: int, mask: str | None, cycle: str = "0") -> None:
        values = [self._value(index, lanes, mask, cycle) for index in indices]
        for index, value in zip(indices, values):
            self._store(index, value, lanes, mask)

    def _joined(self, indices: Sequence[str | int], lanes: int, mask: str | None, cycle: str = "0") -> None:
        """Vectors that follow each other, as one."""
        lanes *= len(indices)
        self._store(indices[0], self._value(indices[0], lanes, mask, cycle), lanes, mask)

    def _value(self, index: str | int, lanes: int, mask: str | None, cycle: str = "0") -> str:
        reads: dict[int, Callable[[], str]] = read_all(self.readers, index, lanes, mask, cycle)
        for operand, at in self.known:
            if at == index:
                reads[operand] = partial(self.known.__getitem__, (operand, at))
        for number in self.still:
            reads[number] = partial(self._still, number, lanes)
        for number, axis in self.nest.indices.items():
            reads[number] = partial(self.indices.lanes, self.f, axis, index, lanes, "i32")
        (value,) = evaluate(
            self.f,
            [self.nest.body],
            reads,
            lanes,
            lambda axis: self.indices.lanes(self.f, axis, index, lanes),
            mask,
        )
        return value

    def _still(self, number: int, lanes: int) -> str:
        """What is the same in the whole row, in so many lanes."""
        values = self.still[number]
        if lanes in values:
            return values[lanes]
        return self.f.broadcast(scalar_type(self.nest.still[number].dtype), values[1], lanes)

    def _store(self, index: str | int, value: str, lanes: int, mask: str | None) -> None:
        out = self.nest.out
        store_lanes(self.f, out.dtype, value, displaced(self.f, self.to, index, out.itemsize), lanes, mask)

    def _short(self, at: int, left: int) -> None:
        """The vector at `at` of a short row, of which `left` elements are to be computed."""
        nest, f, lanes = self.nest, self.f, self.nest.lanes
        if left >= lanes:
            self._vectors([at], lanes, None)
            return
        blank = range(at + max(left, 0), min(at + lanes, nest.blank))
        if left > 0:
            mask = first_lanes(f, left, lanes) if f.target.masked else None
            value = self._value(at, lanes if mask else left, mask)
            if blank.stop == at + lanes and nest.out.dtype not in NARROW:
                self._store(at, self._cleared(value, lanes if mask else left, left), lanes, None)
                return
            self._store(at, value, lanes if mask else left, mask)
        for zero in blank:
            self._store(zero, splat(0, nest.out.dtype, 1), 1, None)

    def _cleared(self, value: str, lanes: int, left: int) -> str:
        """The first `left` of the vector's lanes, then zeros up to a whole vector."""
        element = scalar_type(self.nest.out.dtype)
        if lanes == 1:
            value, lanes = self.f.broadcast(element, value, 2), 2
        vector, whole = f"<{lanes} x {element}>", self.nest.lanes
        picks = [k if k < left else lanes for k in range(whole)]
        return self.f.shuffle(value, "zeroinitializer", picks, vector)


# Nodes -------------------------------------------------------------------------------------------


def stages(node: Node, target: Target, short: bool = False) -> Stages:
    """What a Map computes and fills; short: of rows that the run calls short."""
    out, body = node.outputs[0].tensor, node.op.body
    if out.layout is not None:
        return [_blocked_pieces(node, target)], ()
    source = _copied(body)
    if source is not None:
        copied = broadcasting("input", source, node.inputs[source].tensor, out.shape)
        return [[Copy(target, out.shape, output_view(node), replace(copied, dtype=out.dtype))]], ()
    return [[_dense_nest(node, target, short)]], ()


def _dense_nest(node: Node, target: Target, short: bool) -> Elementwise:
    out = node.outputs[0].tensor
    views = {i: broadcasting("input", i, v.tensor, out.shape) for i, v in enumerate(node.inputs)}
    return Elementwise(target, node.op.body, out.shape, output_view(node), views, short=short)


def short_rows(node: Node, target: Target) -> Dimension | None:
    """Whether rows that share an operand are short and many, and end within a vector: `stages` of short ones
    are then faster. None where that does not depend on how long the run finds rows to be."""
    if node.outputs[0].tensor.layout is not None or _copied(node.op.body) is not None:
        return None
    nest = _dense_nest(node, target, short=True)
    length, lanes = nest.cycle, nest.lanes
    if not nest.cyclic or length is None or isinstance(length, int):
        return None
    many = dims.compare("lt", lanes * length, nest.sizes[-1])
    ends_within = dims.compare("lt", 0, dims.remainder(length, lanes))
    found = dims.minimum(dims.minimum(many, ends_within), dims.compare("lt", length, SHORT * lanes))
    return None if isinstance(found, int) else found


def repeating_nowhere(node: Node, target: Target) -> tuple[Dimension, Node] | None:
    """Whether no operand repeats of those of which only the run knows, and the node as it then is, whose rows
    may be longer; None where those that it has are many vectors, or whole ones."""
    out = node.outputs[0].tensor
    if out.layout is not None or _copied(node.op.body) is not None:
        return None
    condition: Dimension = 1
    inputs = []
    for value in node.inputs:
        sizes = list(zip(value.shape, out.shape[out.rank - value.rank :]))
        shape = tuple(size if size == 1 else whole for size, whole in sizes)
        for size, whole in sizes:
            condition = condition * (1 if size == 1 else dims.compare("eq", size, whole))
        inputs.append(Value(replace(value.tensor, shape=shape), value.name, value.constant))
    ((nest,),), _ = stages(node, target)
    row, lanes = nest.sizes[-1], vector_lanes(target, node.op.body)
    if isinstance(condition, int) or not isinstance(row, int) or row > SHORT * lanes or row % lanes == 0:
        return None
    outputs = tuple(Value(v.type, v.name) for v in node.outputs)
    return condition, Node(node.op, tuple(inputs), outputs, node.origin)


def over(node: Node, target: Target) -> tuple[int, ...]:
    """Operands that the result may be written over: vectors are read before they are written. A copy is made
    in pieces of its own. None where short rows end in a masked vector: who reads the next row would wait
    until that is written, since its masked lanes lie there."""
    nests = [piece for stage in stages(node, target)[0] for piece in stage if isinstance(piece, Elementwise)]
    if _copied(node.op.body) is not None or any(nest.ends_masked for nest in nests):
        return ()
    return tuple(range(len(node.inputs)))


def _copied(body: Expr) -> int | None:
    """The operand that a body copies, bit for bit."""
    bits = body.op == "bitcast" and "bool" not in (body.dtype, body.args[0].dtype)
    source = body.args[0] if bits else body
    return source.value if source.op == "input" else None


# Blocked images ----------------------------------------------------------------------------------


def blocked_layouts(node: Node) -> list[tuple[Layout, tuple[Layout | None, ...]]]:
    """The blocked layouts in which a Map can leave its result, each with those in which it reads the
    operands: one for every block in which an operand is stored already."""
    out = node.outputs[0].tensor
    used = any(n.op == "index" for n in expr.topological(node.op.body))
    if out.rank < 3 or not isinstance(out.shape[1], int) or used:
        return []
    blocks = {
        v.tensor.layout.block for v in node.inputs if v.tensor.layout is not None and v.rank == out.rank
    }
    found = []
    for block in sorted(blocks):
        plain = Layout(block, (0,) * (out.rank - 2))
        wanted = [_wanted_layout(v, out, plain) for v in node.inputs]
        if None not in wanted:
            found.append((plain, tuple(w or None for w in wanted)))
    return found


def _wanted_layout(value: Value, out: TensorType, plain: Layout) -> Layout | Literal[False] | None:
    """The layout that an operand is read in: dense (False) where it repeats over all pixels; None: it
    cannot be read."""
    shape = rank_aligned(value, out.rank)
    if not isinstance(shape[1], int):
        return None
    if value.tensor.layout is None and (
        value.constant is not None or shape[1] == 1 or all(d == 1 for d in shape[2:])
    ):
        return False
    return plain if value.rank == out.rank else None


def _blocked_view(index: int, value: Value, out: TensorType) -> View:
    """An operand seen from the nest over (batch, blocks, spatial..., lanes) of the output."""
    block, shape = out.blocked.block, rank_aligned(value, out.rank)
    if value.tensor.layout is None:
        view = broadcasting("input", index, value.tensor, out.shape)
        return in_blocks(view, block)
    view = stored("input", index, value.tensor)
    one = shape[1] == 1 and out.shape[1] != 1
    batch, channels, *spatial, lane = view.strides
    repeated = [broadcast_stride(s, d, n) for s, d, n in zip(spatial, shape[2:], out.shape[2:])]
    return replace(
        view,
        strides=(
            broadcast_stride(batch, shape[0], out.shape[0]),
            0 if one else channels,
            *repeated,
            0 if one else lane,
        ),
    )


def _blocked_pieces(node: Node, target: Target) -> list[Piece]:
    out, body = node.outputs[0].tensor, node.op.body
    block = out.blocked.block
    views = {i: _blocked_view(i, v, out) for i, v in enumerate(node.inputs)}
    to = stored("output", 0, out)
    batch, _, *pixels, _ = inside_blocks(out)
    whole, rest = divmod(dims.number(out.shape[1]), block)
    found: list[Piece] = []
    if whole:
        found.append(Elementwise(target, body, (batch, whole, *pixels, block), to, views))
    if rest:
        last = {i: v.moved(whole * v.strides[1]) for i, v in views.items()}
        found.append(
            Elementwise(target, body, (batch, 1, *pixels, rest), to.moved(whole * to.strides[1]), last, block)
        )
    return found + halo_copies(target, out)
