"""Fused groups of kind "gathered sum": what a Gather picks for each place of an axis, in as many terms as the
run tells, times weights.

    out[.., o, ..] = sum over t: x[.., places[t, o], ..] * weights[t, o]
Along the last axis a vector holds neighbours on it, whose terms are gathered; along another one whole rows
are added up, a few vectors at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...ir.ops import Fused
from ...ir.ranges import all_inside
from ...target import Ability, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, as_it_is, single
from ..nests.indexed import Component, lanes_at, numbers_at, picked
from ..nests.nest import displaced
from ..nests.operands import each_vector
from ..text.emitter import Loop, scalar_type
from ..text.memory import from_bits, gather, load_lanes, store_lanes
from ..text.vectors import Vectors
from ..tiles.lines import cut_lines

TOGETHER = 4  # vectors of a row for which a place is looked up


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    if not isinstance(node.op, Fused) or node.op.kind != "gathered sum":
        return
    if not any(v.tensor.layout for v in (*node.inputs, *node.outputs)):
        yield Offer(_Sum(node, target).estimate, None, (None,) * len(node.inputs))


pack = as_it_is


def emit(node: Node, choice: Choice, target: Target) -> Code:
    total, k = _Sum(node, target), KernelText(target)
    cut = cut_lines(total.lines, 1, 1, choice.cost.total)
    with k.entry() as f, f.loop("%first", "%last") as part, f.loop(*cut.at(f, part.index)) as line:
        total.line(f, line.index)
    return single(k.step(cut.count, costs.work(choice.cost, node.outputs[0].tensor.count)))


class _Sum:
    """The group's operands and sizes: what is outside of the axis, the axis itself, what is inside."""

    def __init__(self, node: Node[Fused], target: Target):
        picks, sums = node.op.region.nodes
        number = {v: k for k, v in enumerate(node.op.region.inputs)}
        self.node, self.target = node, target
        self.x, self.places, self.weights = (number[v] for v in (*picks.inputs, sums.inputs[1]))
        shape, axis = node.inputs[self.x].shape, picks.op.axis
        self.outer, self.length = dims.product(shape[:axis]), shape[axis]
        self.inner, self.in_rows = dims.product(shape[axis + 1 :]), axis < len(shape) - 1
        self.terms, self.size = node.inputs[self.places].shape
        self.dtype = node.outputs[0].dtype
        self.item = dtypes.itemsize(self.dtype)
        self.lanes = target.lanes(self.dtype)
        self.lines = self.outer * self.size if self.in_rows else self.outer
        known = node.inputs[self.places].constant
        inside = known is not None and all_inside(known.array, self.length)
        self.component = Component(0, self.inner * self.item, self.length, inside)

    @property
    def estimate(self) -> Estimate:
        target = self.target
        lines, terms = dims.typical(self.lines), dims.typical(self.terms)
        vectors = lines * -(-dims.typical(self.inner if self.in_rows else self.size) // self.lanes)
        alone = costs.GATHERED if Ability.GATHER in target.abilities else costs.ALONE
        each = 2 + 1 / TOGETHER if self.in_rows else 4 + alone * self.lanes
        looked = vectors * terms / TOGETHER if self.in_rows else 0
        found = costs.compute(target, each * vectors * terms + costs.LOOPED * lines)
        found += costs.overhead(target, costs.LOOKED_UP * looked)
        return found + costs.traffic(target, self.node) + costs.step(target)

    def line(self, f: KernelFunction, line: str) -> None:
        """A row of the result."""
        if self.in_rows:
            n, place = f.divide(line, f.size(self.size))
            source = displaced(f, f.input(self.x), n, f.size(self.length * self.inner * self.item))
            to = displaced(f, f.output(), line, f.size(self.inner * self.item))
            self._row(f, source, place, to)
        else:
            source = displaced(f, f.input(self.x), line, f.size(self.length * self.item))
            self._columns(f, source, displaced(f, f.output(), line, f.size(self.size * self.item)))

    def _row(self, f: KernelFunction, source: str, place: str, to: str) -> None:
        """Rows added up: those that are picked for a place."""

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            v, starts = Vectors(f, self.dtype, lanes), [displaced(f, source, x, self.item) for x in indices]
            with self._terms(f, v, len(indices)) as loop:
                at = f.add(f.mul(loop.index, f.size(self.size)), place)
                index = displaced(f, f.input(self.places), at, 8)
                weight = f.load(scalar_type(self.dtype), displaced(f, f.input(self.weights), at, self.item))
                weights, found = (
                    f.broadcast(weight.type, weight, lanes),
                    list(numbers_at(f, [self.component], "int64", index)),
                )
                rows = [load_lanes(f, self.dtype, picked(f, start, found), lanes, mask) for start in starts]
                loop.carry(*(v.fma(row, weights, total) for row, total in zip(rows, loop.carried)))
            for x, total in zip(indices, loop.results):
                store_lanes(f, self.dtype, total, displaced(f, to, x, self.item), lanes, mask)

        each_vector(f, f.size(self.inner), self.lanes, TOGETHER, vectors)

    def _columns(self, f: KernelFunction, source: str, to: str) -> None:
        """Elements of a row added up: those that are picked for each of its places."""

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            v = Vectors(f, self.dtype, lanes)
            (x,) = indices
            with self._terms(f, v, 1) as loop:
                at = f.add(f.mul(loop.index, f.size(self.size)), x)
                index = displaced(f, f.input(self.places), at, 8)
                places = lanes_at(f, self.component, "int64", index, lanes, mask)
                bits = gather(f, f"i{8 * self.item}", source, places, mask)
                weights = load_lanes(
                    f, self.dtype, displaced(f, f.input(self.weights), at, self.item), lanes, mask
                )
                loop.carry(v.fma(from_bits(f, self.dtype, lanes, bits), weights, loop.carried[0]))
            store_lanes(f, self.dtype, loop.results[0], displaced(f, to, x, self.item), lanes, mask)

        each_vector(f, f.size(self.size), self.lanes, 1, vectors)

    def _terms(self, f: KernelFunction, v: Vectors, count: int) -> AbstractContextManager[Loop]:
        """The loop over terms, which hands on so many sums."""
        return f.loop(0, f.size(self.terms), carried=[(v.type, v.constant(0))] * count)
