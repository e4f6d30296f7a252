"""Sort: a stable merge sort of the indices of every line, bottom up, between two halves of scratch memory.

    width 1: [3][1][2][0] → [1 3][0 2]      width 2: [1 3][0 2] → [0 1 2 3]
NaN is greater than every number. Lines are parts of their own, so a part's result never depends on another's.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import contextmanager

from ... import dims, dtypes, expr
from ...ir import Constant, Node
from ...ops import Sort
from ...target import Target
from ..emitter import Function
from ..kernel import Choice, Code, KernelText, single
from ..nest import ERROR_BYTES, typical
from ..scalar import load_vector, lower, store_vector

NANOSECONDS = 8  # for one step of a merge


def candidates(node: Node, target: Target) -> Iterable[Choice]:
    if isinstance(node.op, Sort) and node.inputs[0].type.layout is None:
        count = typical(node.inputs[0].type.count)
        yield Choice(sys.modules[__name__], NANOSECONDS * count * max(1, count.bit_length()))


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    (x,), axis = node.inputs, node.op.axis % max(1, node.inputs[0].rank)
    count = x.shape[axis] if x.rank else 1
    inner = dims.product(x.shape[axis + 1 :])
    lines = dims.product(x.shape[:axis]) * inner
    width = dtypes.itemsize(x.dtype)
    k = KernelText(target)
    with k.entry() as f:
        n, stride = k.size(f, count), k.size(f, inner)
        first = f.hoisted(f"getelementptr i8, ptr %scratch, i64 {ERROR_BYTES}")
        second = f.offset(first, f.mul(n, 8))
        with f.loop("%first", "%last") as line:
            outer, lane = f.divide(line.index, stride)
            start = f.add(f.mul(outer, f.mul(n, stride)), lane)

            def key(index: str) -> str:
                place = f.add(start, f.mul(index, stride))
                return load_vector(f, x.dtype, f.element(k.input(f, 0), place, width), 1)

            order = _sorted(f, n, first, second, key, _precedes(x.dtype, node.op.descending))
            with f.loop(0, n) as place:
                index = f.load("i64", f.element(order, place.index, 8))
                to = f.add(start, f.mul(place.index, stride))
                store_vector(f, x.dtype, key(index), f.element(k.output(f, 0), to, width), 1)
                f.store("i64", index, f.element(k.output(f, 1), to, 8))
    return single(k.step(lines, lines * count * (4 * NANOSECONDS), ERROR_BYTES + 16 * count))


def _precedes(dtype: str, descending: bool) -> expr.Expr:
    """Whether operand 0 has to stand before operand 1, strictly."""
    a, b = expr.input_(0, dtype), expr.input_(1, dtype)
    if descending:
        a, b = b, a
    if dtype == "bool":
        return ~a & b
    if dtypes.is_float(dtype):
        return (a < b) | (expr.isnan(b) & ~expr.isnan(a))
    return a < b


class _Variable:
    """A number that changes: a stack slot, so that loops need no phi for it."""

    def __init__(self, f: Function):
        self.f, self.slot = f, f.name()
        f.prologue.append(f"  {self.slot} = alloca i64")

    def get(self) -> str:
        return self.f.load("i64", self.slot, 8)

    def set(self, value: str) -> None:
        self.f.store("i64", value, self.slot, 8)


@contextmanager
def _while(f: Function, condition):
    """Repeats what follows while condition() gives a true i1."""
    head, body, after = (f.fresh_label(name) for name in ("while", "repeat", "finished"))
    f.branch(head)
    f.label(head)
    f.branch_if(condition(), body, after)
    f.label(body)
    yield
    f.branch(head)
    f.label(after)


def _sorted(f: Function, n: str, first: str, second: str, key, precedes: expr.Expr) -> str:
    """The address of the indices 0..n-1 in sorted order: one of two arrays of n i64."""
    with f.loop(0, n) as place:
        f.store("i64", place.index, f.element(first, place.index, 8))
    width, flipped = _Variable(f), _Variable(f)
    width.set("1")
    flipped.set("0")
    left, right = _Variable(f), _Variable(f)
    with _while(f, lambda: f.compare("slt", width.get(), n)):
        size = width.get()
        swap = f.compare("ne", flipped.get(), 0)
        source, target = f.select(swap, "ptr", second, first), f.select(swap, "ptr", first, second)
        with f.loop(0, n, f.mul(size, 2)) as run:
            middle = f.minimum(f.add(run.index, size), n)
            end = f.minimum(f.add(middle, size), n)
            left.set(run.index)
            right.set(middle)
            with f.loop(run.index, end) as place:
                _merge_one(f, place.index, left, right, middle, end, source, target, key, precedes)
        width.set(f.mul(size, 2))
        flipped.set(f.sub("1", flipped.get()))
    return f.select(f.compare("ne", flipped.get(), 0), "ptr", second, first)


def _merge_one(f: Function, place: str, left: _Variable, right: _Variable, middle: str, end: str, source: str, target: str, key,
               precedes: expr.Expr) -> None:
    """The next of two runs to `place`: the right one's where it precedes the left one's, or the left run has ended."""
    i, j = left.get(), right.get()
    inside = f.compare("slt", i, middle), f.compare("slt", j, end)
    # a run that has ended is read at its last element, which is there, and not taken
    at_left = f.load("i64", f.element(source, f.minimum(i, f.sub(middle, 1)), 8))
    at_right = f.load("i64", f.element(source, f.minimum(j, f.sub(end, 1)), 8))
    operands = [key(at_right), key(at_left)]
    (before,) = lower(f, [precedes], operands.__getitem__, 1)
    wanted = f.value(f"or i1 {before}, {f.value(f'xor i1 {inside[0]}, true')}")
    take = f.value(f"and i1 {inside[1]}, {wanted}")
    f.store("i64", f.select(take, "i64", at_right, at_left), f.element(target, place, 8))
    left.set(f.select(take, "i64", i, f.add(i, 1)))
    right.set(f.select(take, "i64", f.add(j, 1), j))
