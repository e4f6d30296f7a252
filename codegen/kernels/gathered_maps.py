"""Fused groups of kind "gathered map": a Map of elements that Gathers pick along the last axis, with the Maps
that tell their places.

    for vectors of the last axis:  places, and what else planes share
        for planes:  out = body(x[places], y[places], ..)
The axis before the last one counts planes (the channels of an image) where all are picked from at the same
places, which are computed and checked once; few planes are unrolled. Nothing between is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, Value
from ...ir.ops import Broadcast, Fused, Gather
from ...ir.ranges import Range, expression_range, value_range
from ...records import dataclass
from ...target import Ability, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer, as_it_is, single
from ..nests.indexed import Component, counted_from_start
from ..nests.nest import (
    Block,
    Blocks,
    Piece,
    View,
    address,
    block_rows,
    broadcasting,
    dense,
    displaced,
    loops,
    moving,
    parts_step,
)
from ..nests.operands import Reader, each_vector, evaluate, read_all, scratch_bytes, split_still, vector_lanes
from ..text.emitter import Reg, vector_type
from ..text.memory import from_bits, gather, store_lanes

UNROLLED = 8  # planes


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    if not isinstance(node.op, Fused) or node.op.kind != "gathered map":
        return
    if not any(v.tensor.layout for v in (*node.inputs, *node.outputs)):
        yield Offer(GatheredMap(node, target).cost + costs.step(target), None, (None,) * len(node.inputs))


pack = as_it_is


def emit(node: Node, choice: Choice, target: Target) -> Code:
    return single(parts_step(target, [GatheredMap(node, target)]))


@dataclass(frozen=True)
class Pick:
    """A Gather: of which operand, the number that stands for what it picks in the body, and its places."""

    number: int
    view: View
    place: Expr
    component: Component


class GatheredMap(Piece):
    """The group as a nest over all axes but that of planes. Operands and picks are inputs of one expression,
    by their numbers."""

    def __init__(self, node: Node[Fused], target: Target):
        region, out = node.op.region, node.outputs[0].tensor
        self.target, self.out = target, dense("output", 0, out)
        self.picks: list[Pick] = []
        made: dict[Value, Expr] = {}
        for k, value in enumerate(region.inputs):
            made[value] = expr.input_(k, value.dtype)
        operands = {k: value_range(v) for k, v in enumerate(node.inputs) if dtypes.is_integer(v.dtype)}
        for inner in region.nodes:
            if isinstance(inner.op, Gather):
                number = len(region.inputs) + len(self.picks)
                source, place = region.inputs.index(inner.inputs[0]), made[inner.inputs[1]]
                self.picks.append(_pick(number, source, inner, place, expression_range(place, operands)))
                made[inner.outputs[0]] = expr.input_(number, inner.outputs[0].dtype)
            elif isinstance(inner.op, Broadcast):
                made[inner.outputs[0]] = made[inner.inputs[0]]
            else:
                stands = {k: made[v] for k, v in enumerate(inner.inputs)}
                made[inner.outputs[0]] = expr.substitute(inner.op.body, stands)
        body = made[region.outputs[0]]
        places = [pick.place for pick in self.picks]
        read = [k for k in expr.inputs(body, *places) if k < len(region.inputs)]
        self.views = {k: broadcasting("input", k, node.inputs[k].tensor, out.shape) for k in read}
        shared = [k for k in read if out.rank > 1 and self.views[k].strides[-2] == 0]
        self.axes = list(range(out.rank))  # those of the nest
        self.planes: Dimension | None = None
        self.body = body
        self.shared: dict[int, Expr] = {}  # what planes have in common, by its number in the body
        if out.rank > 1 and out.shape[-2] != 1 and set(expr.inputs(*places)) <= set(shared):
            self.axes.remove(out.rank - 2)
            self.planes = out.shape[-2]
            self.body, self.shared = split_still(body, shared)
        self.sizes = tuple(out.shape[a] for a in self.axes)
        self.lanes = vector_lanes(target, body, *places)

    @property
    def estimate(self) -> Estimate:
        target, count, item = self.target, dims.typical(dims.product(self.sizes)), self.out.itemsize
        planes = 1 if self.planes is None else dims.typical(self.planes)
        shape = self.sizes if self.planes is None else (*self.sizes[:-1], self.planes, self.sizes[-1])
        narrow = item < 4 or Ability.GATHER not in target.abilities
        picked = len(self.picks) * self.lanes * (costs.ALONE if narrow else costs.GATHERED)
        once = costs.weight(target, *(pick.place for pick in self.picks), *self.shared.values())
        each = picked + costs.weight(target, self.body) + 1
        vectors = count / self.lanes
        moved = moving(target, [*self.views.values(), *(p.view for p in self.picks)], self.out, shape)
        return moved + costs.compute(target, vectors * (once + len(self.views) + planes * each))

    @property
    def blocks(self) -> Blocks:
        return block_rows(self.sizes, self.elements)

    @property
    def scratch(self) -> Dimension:
        return scratch_bytes(len(self.views))

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block: rows of the nest, then vectors."""
        starts = list(block.starts)
        if self.planes is not None:
            starts.insert(-1, "0")
        views = {**self.views, **{pick.number: pick.view for pick in self.picks}}
        begin = {k: address(f, view, starts) for k, view in views.items()}
        to = address(f, self.out, starts)
        with loops(f, block.extents[:-1]) as at:

            def along(pointer: str, view: View) -> str:
                for index, axis in zip(at, self.axes):
                    pointer = displaced(f, pointer, index, f.size(view.strides[axis]))
                return pointer

            pointers = {k: along(pointer, views[k]) for k, pointer in begin.items()}
            row = _Row(self, f, pointers, along(to, self.out))
            each_vector(f, block.extents[-1], self.lanes, 1, row.vectors)


class _Row:
    """A row of points, of every plane."""

    def __init__(self, nest: GatheredMap, f: KernelFunction, pointers: Mapping[int, str], to: str):
        self.nest, self.f, self.pointers, self.to = nest, f, pointers, to
        self.apart = nest.planes is not None
        self.readers = {k: self._reader(k, "0") for k in nest.views if not self._moves(k)}

    def _moves(self, number: int) -> bool:
        """Whether an operand differs from plane to plane."""
        return self.apart and self.nest.views[number].strides[-2] != 0

    def _reader(self, number: int, plane: str | int) -> Reader:
        nest, f, view = self.nest, self.f, self.nest.views[number]
        pointer = self.pointers[number]
        if self.apart:
            pointer = displaced(f, pointer, plane, f.size(view.strides[-2]))
        axis, slot = len(view.strides) - 1, list(nest.views).index(number)
        return Reader(f, view, axis, pointer, nest.lanes, slot)

    def vectors(self, indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
        """The points from one on."""
        nest, f, (index,) = self.nest, self.f, indices
        reads = read_all(self.readers, index, lanes, mask)
        roots = [*(pick.place for pick in nest.picks), *nest.shared.values()]
        values = evaluate(f, roots, reads, lanes, mask=mask)
        count = len(nest.picks)
        places = [self._place(pick, value, lanes, mask) for pick, value in zip(nest.picks, values)]
        known = dict(zip(nest.shared, values[count:]))

        def plane(number: str | int) -> None:
            self._plane(number, index, lanes, mask, places, {**reads, **_constant(known)})

        if nest.planes is None:
            plane("0")
        elif isinstance(nest.planes, int) and nest.planes <= UNROLLED:
            for number in range(nest.planes):
                plane(number)
        else:
            with f.loop(0, f.size(nest.planes)) as loop:
                plane(loop.index)

    def _place(self, pick: Pick, value: str, lanes: int, mask: str | None) -> Reg:
        """Which elements a vector of places names, as i64."""
        f, dtype = self.f, pick.place.dtype
        wide = vector_type("i64", lanes)
        if dtypes.itemsize(dtype) < 8:
            extended = "sext" if dtypes.is_signed(dtype) else "zext"
            value = f.cast(extended, value, wide, vector_type(f"i{8 * dtypes.itemsize(dtype)}", lanes))
        return counted_from_start(f, pick.component, Reg(value, wide), lanes, mask)

    def _plane(
        self,
        plane: str | int,
        index: str,
        lanes: int,
        mask: str | None,
        places: Sequence[Reg],
        reads: Mapping[int, Callable[[], str]],
    ) -> None:
        """The points of one plane."""
        nest, f = self.nest, self.f
        used = expr.inputs(nest.body)
        found = dict(reads)
        moving = {k: self._reader(k, plane) for k in nest.views if k in used and self._moves(k)}
        found.update(read_all(moving, index, lanes, mask))
        for pick, place in zip(nest.picks, places):
            found[pick.number] = partial(self._picked, pick, plane, place, lanes, mask)
        (value,) = evaluate(f, [nest.body], found, lanes, mask=mask)
        to = self.to
        if self.apart:
            to = displaced(f, to, plane, f.size(nest.out.strides[-2]))
        store_lanes(f, nest.out.dtype, value, displaced(f, to, index, nest.out.itemsize), lanes, mask)

    def _picked(self, pick: Pick, plane: str | int, place: Reg, lanes: int, mask: str | None) -> str:
        f, source = self.f, self.pointers[pick.number]
        if self.apart:
            source = displaced(f, source, plane, f.size(pick.view.strides[-2]))
        bits = gather(f, f"i{8 * pick.view.itemsize}", source, place, mask)
        return from_bits(f, pick.view.dtype, lanes, bits)


def _constant(values: Mapping[int, str]) -> dict[int, Callable[[], str]]:
    return {k: partial(str, value) for k, value in values.items()}


def _pick(number: int, source: int, node: Node, place: Expr, found: Range) -> Pick:
    """A Gather of the group. found: between which numbers its places are known to lie."""
    x = node.inputs[0].tensor
    own = dense("input", source, x)
    view = View("input", source, x.dtype, (*own.strides[:-1], 0))
    limit = x.shape[-1]
    inside = isinstance(limit, int) and found[0] >= 0 and found[1] < limit
    return Pick(number, view, place, Component(0, own.itemsize, limit, inside))
