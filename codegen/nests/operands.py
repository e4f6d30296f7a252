"""How operands are read along the vectorised axis of a nest, and how an expression is evaluated there.

run      elements follow each other: vectors are loaded
same     one element serves the whole row: loaded once
either   only the run knows which of the two: the element is spread over a vector in scratch
         memory and loads have a stride of 0, so that one loop serves both cases
stride   anything else: lanes are gathered
cycle    a few elements over and over, of which only the run may know how many: vectors that hold whole
         rounds of them lie in scratch memory
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.ranges import ranges_in
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.conversion import NARROW, computed_in
from ..text.emitter import Function, is_number, vector_constant, vector_type
from ..text.memory import first_lanes, from_bits, gather, load_lanes
from ..text.scalar import Checks, lower
from .nest import ERROR_BYTES, View, displaced

SLOT_BYTES = 64  # one vector


def stride_kind(view: View, axis: int) -> str:
    """How the view's elements lie along an axis: run, same, either, stride."""
    stride = view.strides[axis]
    if isinstance(stride, int):
        return {0: "same", view.itemsize: "run"}.get(stride, "stride")
    low, high = dims.bounds(stride)
    return (
        "either" if low is not None and high is not None and low >= 0 and high <= view.itemsize else "stride"
    )


def vector_lanes(target: Target, *roots: Expr) -> int:
    """How many elements expressions handle at once: one register of the widest type that is computed with.
    What is looked up is its bits."""
    nodes = expr.topological(*roots)
    bits = {a for node in nodes if node.op == "lookup" for a in (node, *node.args)}
    widths = [
        dtypes.itemsize(node.dtype if node in bits else computed_in(node.dtype))
        for node in nodes
        if node.op not in ("index", "size", "const")
    ]
    return target.vector_bits // (8 * max(widths, default=8))


def evaluation(target: Target, *roots: Expr, together: int = 1) -> Estimate:
    """To evaluate the expressions for one element, all in vectors. together: of so many of these the bytes
    are looked up at once."""
    return costs.compute(
        target, costs.weight(target, *roots, together=together) / vector_lanes(target, *roots)
    )


def split_still(body: Expr, still: Collection[int]) -> tuple[Expr, dict[int, Expr]]:
    """(body, parts) where the largest parts that depend on nothing but the operands in `still` have become
    operands, by their new numbers. Checks stay where they are, and so does what narrow floats give."""
    alone: dict[int, bool] = {}
    order = expr.topological(body)
    for node in order:
        stays = node.op in ("index", "check") or node.dtype in NARROW
        stays = stays or (node.op == "input" and node.value not in still)
        alone[id(node)] = not stays and all(alone[id(a)] for a in node.args)
    tops = [body, *(a for node in order if not alone[id(node)] for a in node.args)]
    found = dict.fromkeys(n for n in tops if alone[id(n)] and n.args)
    first = 1 + max(expr.inputs(body), default=0)
    parts = {first + k: part for k, part in enumerate(found)}
    places = {id(part): expr.input_(number, part.dtype) for number, part in parts.items()}
    return expr.rewrite(body, lambda node: places.get(id(node))), parts


def narrow_indices(body: Expr, sizes: Sequence[Dimension]) -> tuple[Expr, dict[int, int]]:
    """(body, axes) where indices that fit in 32 bits are compared and cast as int32, of which a vector holds
    twice as many: as operands, whose axes are given by their new numbers."""
    low, high = dtypes.integer_range("int32")
    fit = {node for node, (a, b) in ranges_in(body, {}, sizes).items() if low <= a and b <= high}
    first = 1 + max(expr.inputs(body), default=0)
    narrow: dict[Expr, Expr] = {}
    made: dict[Expr, Expr] = {}
    for node in expr.topological(body):
        made[node] = expr.rebuild(node, tuple(made[a] for a in node.args))
        inner = [narrow[a] for a in node.args if a in narrow]
        if node.dtype == "int64" and node in fit and node.op == "index":
            narrow[node] = expr.input_(first + node.value, "int32")
        elif node.dtype == "int64" and node in fit and node.op == "const":
            narrow[node] = expr.const(node.value, "int32")
        elif not inner or len(inner) < len(node.args):
            continue
        elif node.dtype == "int64" and node in fit and node.op in ("add", "sub", "mul", "neg", "min", "max"):
            narrow[node] = expr.apply(node.op, *inner)
        elif node.op in ("eq", "ne", "lt", "le", "gt", "ge"):
            made[node] = expr.apply(node.op, *inner)
        elif node.op == "cast":
            made[node] = inner[0].cast(node.dtype)
    found = made[body]
    return found, {i: i - first for i in expr.inputs(found) if i >= first}


def scratch_bytes(slots: int) -> int:
    return ERROR_BYTES + slots * SLOT_BYTES


class Reads(Protocol):
    """What gives an operand's elements."""

    def read(self, index: str | int, lanes: int, mask: str | None, cycle: str = "0") -> str:
        """`lanes` elements from an index on; those outside of the mask are anything."""


class Reader:
    """One operand from a row's first element on: `read` gives the elements from an index on."""

    def __init__(
        self,
        f: KernelFunction,
        view: View,
        axis: int,
        pointer: str,
        lanes: int,
        slot: int,
        cycle: Dimension | None = None,
    ):
        self.f, self.view, self.pointer, self.lanes = f, view, pointer, lanes
        self.kind = "cycle" if cycle is not None else stride_kind(view, axis)
        self.stride = f.size(view.strides[axis])
        if self.kind == "same":
            word = f"i{8 * view.itemsize}"
            self.all = f.broadcast(word, f.load(word, pointer), lanes)
        elif self.kind == "either":
            self._spread(slot)
        elif isinstance(cycle, int):
            self._repeat(slot, cycle)
        elif cycle is not None:
            self._repeat_row(slot, f.size(cycle))

    def _spread(self, slot: int) -> None:
        f, memory = self.f, f"i{8 * self.view.itemsize}"
        place = f.offset("%scratch", ERROR_BYTES + slot * SLOT_BYTES)
        repeats = f.compare("eq", self.stride, 0)
        with f.when(repeats):
            element = f.load(memory, self.pointer)
            f.store(vector_type(memory, self.lanes), f.broadcast(memory, element, self.lanes), place)
        self.pointer = f.select(repeats, "ptr", place, self.pointer)

    def _repeat(self, slot: int, cycle: int) -> None:
        f, word, item = self.f, f"i{8 * self.view.itemsize}", self.view.itemsize
        place = f.offset("%scratch", ERROR_BYTES + slot * SLOT_BYTES)
        elements = [f.load(word, f.offset(self.pointer, k * item)) for k in range(cycle)]
        for at in range(math.lcm(cycle, self.lanes)):
            f.store(word, elements[at % cycle], f.offset(place, at * item))
        self.pointer = place

    def _repeat_row(self, slot: int, length: str) -> None:
        """A row of a length that only the run knows, as often as a vector has lanes: each of its vectors goes
        to all its places. The last one reaches into the next row: with what that begins with, or, where it
        is the only one, to be written over by it."""
        f, word, item, lanes = self.f, f"i{8 * self.view.itemsize}", self.view.itemsize, self.lanes
        place, vector = f.offset("%scratch", ERROR_BYTES + slot * SLOT_BYTES), vector_type(word, lanes)
        with f.loop(0, length) as each:
            element = f.load(word, displaced(f, self.pointer, each.index, item))
            f.store(word, element, displaced(f, place, each.index, item))
        with f.loop(0, length, lanes) as each:
            start = displaced(f, place, each.index, item)
            value = f.load(vector, start)
            with f.loop(length, f.mul(length, lanes), length) as again:
                f.store(vector, value, displaced(f, start, again.index, item))
        self.pointer = place

    def read(self, index: str | int, lanes: int, mask: str | None, cycle: str = "0") -> str:
        """`lanes` elements; those outside of the mask are anything, their memory untouched."""
        if self.kind == "same":
            return self._same(lanes)
        if self.kind == "cycle":
            index = self.f.sub(index, cycle)
            mask = None if lanes == self.lanes else mask
        if self.kind == "stride" and lanes > 1:
            return self._gather(index, lanes, mask)
        step = self.stride if self.kind in ("either", "stride") else self.view.itemsize
        pointer = displaced(self.f, self.pointer, index, step)
        return load_lanes(self.f, self.view.dtype, pointer, lanes, mask)

    def _same(self, lanes: int) -> str:
        if lanes == self.lanes:
            return from_bits(self.f, self.view.dtype, lanes, self.all)
        if lanes == 1:
            return load_lanes(self.f, self.view.dtype, self.pointer, 1)
        word = f"i{8 * self.view.itemsize}"
        if lanes > self.lanes > 1:
            repeated = self.f.shuffle(self.all, "poison", [0] * lanes, vector_type(word, self.lanes))
            return from_bits(self.f, self.view.dtype, lanes, repeated)
        return from_bits(
            self.f, self.view.dtype, lanes, self.f.broadcast(word, self.f.load(word, self.pointer), lanes)
        )

    def _gather(self, index: str | int, lanes: int, mask: str | None) -> str:
        f, memory = self.f, f"i{8 * self.view.itemsize}"
        start = f.offset(self.pointer, f.mul(index, self.stride))
        numbers = vector_constant("i64", range(lanes))
        steps = (
            f.binary("mul", numbers, f.broadcast("i64", self.stride, lanes))
            if not is_number(self.stride)
            else vector_constant("i64", [k * int(self.stride) for k in range(lanes)])
        )
        loaded = gather(f, memory, start, steps, mask, "i8")
        return from_bits(f, self.view.dtype, lanes, loaded)


@dataclass(frozen=True)
class Indices:
    """The indices of an element along the original axes of a collapsed nest: `axis_of` maps an original axis
    to its collapsed one (none: size 1), `at` holds the scalar index along each collapsed axis, the vector
    axis' being that of the row's start."""

    axis_of: Mapping[int, int]
    at: Sequence[str]
    vector_axis: int

    def lanes(self, f: Function, axis: int, index: str | int, lanes: int, word: str = "i64") -> str:
        """Those along an axis, as integers of type `word`, which holds them."""
        collapsed = self.axis_of.get(axis)
        if collapsed is None:
            return "0" if lanes == 1 else "zeroinitializer"
        here = collapsed == self.vector_axis
        number = f.add(self.at[collapsed], index) if here else self.at[collapsed]
        if word != "i64" and not is_number(number):
            number = f.cast("trunc", number, word, "i64")
        first = f.broadcast(word, number, lanes)
        if lanes == 1 or not here:
            return first
        return f.binary("add", first, vector_constant(word, range(lanes)))


def evaluate(
    f: KernelFunction,
    roots: Sequence[Expr],
    readers: Mapping[int, Callable[[], str]],
    lanes: int,
    index: Callable[[int], str] | None = None,
    mask: str | None = None,
    plain: bool = False,
) -> list[str]:
    """The values of expressions whose operand i is what readers[i]() gives; for `plain` see `lower`."""
    checks = Checks(f, "%scratch", mask)
    return lower(f, roots, lambda i: readers[i](), lanes, lambda d: f.size(d), index, checks, plain)


def each_vector(
    f: Function,
    count: str | int,
    lanes: int,
    unroll: int,
    body: Callable[[Sequence[str], int, str | None, str], None],
    rolled: bool = False,
) -> None:
    """Covers 0..count-1: `body(indices, lanes, mask, cycle)` emits one vector at each index; a mask tells the
    lanes that count. `cycle` is the last multiple of lanes * unroll up to the first index. rolled: `unroll`
    vectors are a loop of their own, for long bodies."""
    count = str(count)
    many = f.round_down(count, lanes * unroll)
    whole = f.round_down(count, lanes) if unroll > 1 else many
    if not nothing("0", many):
        with f.loop(0, many, lanes * unroll) as loop:
            if rolled:
                with f.loop(0, lanes * unroll, lanes) as each:
                    body([f.add(loop.index, each.index)], lanes, None, loop.index)
            else:
                body([f.add(loop.index, u * lanes) for u in range(unroll)], lanes, None, loop.index)
    if not nothing(many, whole):
        with f.loop(many, whole, lanes) as loop:
            body([loop.index], lanes, None, many)
    if nothing(whole, count):
        return
    if count.isdigit():
        rest = int(count) - int(whole)
        if f.target.masked:
            body([whole], lanes, first_lanes(f, rest, lanes), many)
        else:
            body([whole], rest, None, many)
    elif f.target.masked:
        with f.when(f.compare("slt", whole, count)):
            body([whole], lanes, first_lanes(f, f.sub(count, whole), lanes), many)
    else:
        with f.loop(whole, count) as loop:
            body([loop.index], 1, None, many)


def nothing(start: str, stop: str) -> bool:
    """Whether start..stop-1 is known to be empty."""
    return start == stop or (start.isdigit() and stop.isdigit() and int(start) >= int(stop))


def read_all(
    readers: Mapping[int, Reads], index: str | int, lanes: int, mask: str | None, cycle: str = "0"
) -> dict[int, Callable[[], str]]:
    return {i: partial(reader.read, index, lanes, mask, cycle) for i, reader in readers.items()}
